//! What the gateway refuses, as Java sees it: the name of an exception class and a text.
//!
//! A Hadoop client makes the exception from its class name if the class is on its class path, so the exact name decides
//! what programs do.

use base::error::{Error, ErrorKind};
use base::permission::Denied;
use base::quota::Exceeded;
use base::request;
use base::session::SessionOver;

/// A call that was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The full name of the Java exception class.
    pub class: &'static str,
    /// What happened, for people; some clients look for parts of it.
    pub text: String,
    /// What failed is the store, which an operator wants to hear of.
    pub failed: bool,
}

impl Refusal {
    /// A refusal of this class.
    pub fn new(class: &'static str, text: impl Into<String>) -> Refusal {
        Refusal { class, text: text.into(), failed: false }
    }

    /// A general failure.
    pub fn io(text: impl Into<String>) -> Refusal {
        Refusal::new(IO, text)
    }

    /// There is nothing of that name.
    pub fn not_found(text: impl Into<String>) -> Refusal {
        Refusal::new(FILE_NOT_FOUND, text)
    }

    /// The gateway does not do that.
    pub fn unsupported(text: impl Into<String>) -> Refusal {
        Refusal::new(UNSUPPORTED, text)
    }
}

/// `java.io.IOException`.
pub const IO: &str = "java.io.IOException";
/// Nothing of that name.
pub const FILE_NOT_FOUND: &str = "java.io.FileNotFoundException";
/// A feature that is refused.
pub const UNSUPPORTED: &str = "java.lang.UnsupportedOperationException";
/// Something of that name exists.
pub const FILE_EXISTS: &str = "org.apache.hadoop.fs.FileAlreadyExistsException";
/// A part of the path is a file.
pub const PARENT_NOT_DIRECTORY: &str = "org.apache.hadoop.fs.ParentNotDirectoryException";
/// A directory that should be empty is not.
pub const NOT_EMPTY: &str = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException";
/// No path.
pub const INVALID_PATH: &str = "org.apache.hadoop.fs.InvalidPathException";
/// The caller may not.
pub const ACCESS_CONTROL: &str = "org.apache.hadoop.security.AccessControlException";
/// A wrong argument.
pub const ILLEGAL_ARGUMENT: &str = "org.apache.hadoop.HadoopIllegalArgumentException";
/// Somebody else writes the file.
pub const ALREADY_BEING_CREATED: &str = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException";
/// The writer has lost its lease, or the file is gone.
pub const LEASE_EXPIRED: &str = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
/// Try again soon.
pub const RETRIABLE: &str = "org.apache.hadoop.ipc.RetriableException";
/// No block of that name.
pub const REPLICA_NOT_FOUND: &str = "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException";
/// A name of more than 255 bytes.
pub const COMPONENT_TOO_LONG: &str = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException";
/// A file where a directory is needed.
pub const NOT_DIRECTORY: &str = "org.apache.hadoop.fs.PathIsNotDirectoryException";
/// An argument that Java itself refuses.
pub const JAVA_ARGUMENT: &str = "java.lang.IllegalArgumentException";
/// A feature that the administrator switched off.
pub const UNSUPPORTED_ACTION: &str = "org.apache.hadoop.hdfs.server.namenode.UnsupportedActionException";
/// A directory that has no erasure coding policy of its own.
pub const NO_CODING_POLICY: &str = "org.apache.hadoop.hdfs.protocol.NoECPolicySetException";
/// Access control lists.
pub const ACL: &str = "org.apache.hadoop.hdfs.protocol.AclException";
/// An extended attribute that is not there.
pub const XATTR_NOT_FOUND: &str = "org.apache.hadoop.hdfs.protocol.XAttrNotFoundException";
/// A method that no protocol has.
pub const NO_SUCH_METHOD: &str = "org.apache.hadoop.ipc.RpcNoSuchMethodException";
/// A protocol that is not served.
pub const NO_SUCH_PROTOCOL: &str = "org.apache.hadoop.ipc.RpcNoSuchProtocolException";

/// An administrator wants nothing to change.
pub const SAFE_MODE: &str = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
/// More names than a quota allows.
pub const NAMES_OVER_QUOTA: &str = "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException";
/// More bytes than a quota allows.
pub const BYTES_OVER_QUOTA: &str = "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException";
/// Another version of a protocol, or of all of them.
pub const VERSION_MISMATCH: &str = "org.apache.hadoop.ipc.RPC$VersionMismatch";
/// A frame that makes no sense, as Hadoop's own server names it.
pub const RPC_SERVER: &str = "org.apache.hadoop.ipc.RpcServerException";

impl From<Error> for Refusal {
    /// The class that fits best when nothing more is known about what was asked.
    fn from(error: Error) -> Refusal {
        if let Some(exceeded) = Exceeded::read(&error) {
            return over_quota(&exceeded);
        }
        if let Some(denied) = Denied::read(&error) {
            return denied.into();
        }
        // The gateway has a new one soon. Whoever writes a file is told that it is lost to him when he asks again.
        if SessionOver::is(&error) {
            return Refusal::new(RETRIABLE, error.text());
        }
        let class = match error.kind() {
            ErrorKind::NotFound => FILE_NOT_FOUND,
            ErrorKind::Exists => FILE_EXISTS,
            ErrorKind::Invalid => ILLEGAL_ARGUMENT,
            ErrorKind::Stale => LEASE_EXPIRED,
            ErrorKind::Unsupported => UNSUPPORTED,
            // Whoever finds that a file is open says so in HDFS's words before it comes here: what is busy is the store.
            ErrorKind::Busy | ErrorKind::Unreachable | ErrorKind::Moved => RETRIABLE,
            ErrorKind::Corrupt | ErrorKind::Full | ErrorKind::Io | ErrorKind::Protocol | ErrorKind::Refused => IO,
            ErrorKind::OverQuota => IO,
            ErrorKind::Denied => ACCESS_CONTROL,
        };
        let failed = request::is_failure(error.kind());
        Refusal { failed, ..Refusal::new(class, request::named(error, request::current()).text()) }
    }
}

impl From<Denied> for Refusal {
    /// In HDFS's words: programs take them apart.
    fn from(denied: Denied) -> Refusal {
        const ACTIONS: [&str; 8] =
            ["NONE", "EXECUTE", "WRITE", "WRITE_EXECUTE", "READ", "READ_EXECUTE", "READ_WRITE", "ALL"];
        let text = match denied {
            Denied::NotDirectory { path } => format!("{path} (is not a directory)"),
            Denied::Access { user, access, path, what } => {
                let action = ACTIONS.get(access as usize).unwrap_or(&"ALL");
                format!("Permission denied: user={user}, access={action}, inode=\"{path}\":{}", what.in_short())
            }
            Denied::Below { path } => format!("Permission denied: nobody looked at what is below {path}"),
            Denied::Owner { user, path } => {
                format!("Permission denied. user={user} is not the owner of inode={path}")
            }
            Denied::Sticky { user, path, what, parent_path, parent } => format!(
                "Permission denied by sticky bit: user={user}, path=\"{path}\":{}, parent=\"{parent_path}\":{}",
                what.in_short(),
                parent.in_short()
            ),
            Denied::Superuser { user } => {
                format!("Access denied for user {user}. Superuser privilege is required")
            }
            Denied::Giver { user } => {
                format!("User {user} is not a super user (non-super user cannot change owner).")
            }
            Denied::Group { user, group } => format!("User {user} does not belong to {group}"),
        };
        Refusal::new(ACCESS_CONTROL, text)
    }
}

/// A quota that is used up, in HDFS's words.
fn over_quota(exceeded: &Exceeded) -> Refusal {
    let Exceeded { path, of_names, limit, would } = exceeded;
    if *of_names {
        let text = format!(
            "The NameSpace quota (directories and files) of directory {path} is exceeded: quota={limit} file count={would}"
        );
        return Refusal::new(NAMES_OVER_QUOTA, text);
    }
    let (short, long) = (bytes(*limit), bytes(*would));
    let text = format!(
        "The DiskSpace quota of {path} is exceeded: quota = {limit} B = {short} but diskspace consumed = {would} B = {long}"
    );
    Refusal::new(BYTES_OVER_QUOTA, text)
}

/// Bytes as Hadoop writes them for people: `1 KB`, `1.50 MB`.
fn bytes(bytes: u64) -> String {
    const PREFIXES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut power = (u64::BITS - 1).saturating_sub(bytes.leading_zeros()) as usize / 10;
    let unit = |power: usize| 1u64 << (10 * power);
    if power == 0 {
        return format!("{bytes} B");
    }
    if bytes.is_multiple_of(unit(power)) {
        return format!("{} {}B", bytes / unit(power), PREFIXES[power]);
    }
    let mut text = format!("{:.2}", bytes as f64 / unit(power) as f64);
    if text.starts_with("1024") && power + 1 < PREFIXES.len() {
        power += 1;
        text = format!("{:.2}", bytes as f64 / unit(power) as f64);
    }
    format!("{text} {}B", PREFIXES[power])
}

#[cfg(test)]
mod tests {
    use super::{ACCESS_CONTROL, BYTES_OVER_QUOTA, LEASE_EXPIRED, NAMES_OVER_QUOTA, RETRIABLE, Refusal, bytes};
    use base::error::{Error, ErrorKind};
    use base::id::SessionId;
    use base::permission::Denied;
    use base::permission::{ALL, Described, EXECUTE, READ, Rights, WRITE};
    use base::quota::Exceeded;
    use base::session::SessionOver;

    /// A store that is busy is asked again: it holds no file. So is a gateway whose session is over, which has a new one soon.
    #[test]
    fn busy() {
        assert_eq!(Refusal::from(Error::new(ErrorKind::Busy, "ask again")).class, RETRIABLE);
        assert_eq!(Refusal::from(Error::from(SessionOver { session: SessionId(7) })).class, RETRIABLE);
        assert_eq!(Refusal::from(Error::new(ErrorKind::Stale, "somebody else opened it")).class, LEASE_EXPIRED);
    }

    /// A quota that is used up is said in HDFS's own classes and words.
    #[test]
    fn quotas() {
        let refusal = |of_names, limit, would| {
            Refusal::from(Error::from(Exceeded { path: "/q".to_string(), of_names, limit, would }))
        };
        let names = "The NameSpace quota (directories and files) of directory /q is exceeded: quota=3 file count=4";
        assert_eq!(refusal(true, 3, 4), Refusal::new(NAMES_OVER_QUOTA, names));
        let text = "The DiskSpace quota of /q is exceeded: quota = 1024 B = 1 KB but diskspace consumed = 134217728 B = 128 MB";
        assert_eq!(refusal(false, 1024, 128 << 20), Refusal::new(BYTES_OVER_QUOTA, text));
        let texts = [0, 1023, 1536, (1 << 20) - 1, u64::MAX].map(bytes);
        assert_eq!(texts, ["0 B", "1023 B", "1.50 KB", "1.00 MB", "16.00 EB"]);
    }

    /// Missing rights are said in HDFS's words, as far as the store's sentence brought them here.
    #[test]
    fn missing_rights() {
        let rights = |directory, mode| Rights { directory, mode, owner: "ann", group: "staff", acl: &[] };
        let said = |denied: Denied| Refusal::from(Error::from(denied));
        let text = |directory, mode, access| {
            let what = Described::of(&rights(directory, mode));
            said(Denied::Access { user: "bob".to_string(), access, path: "/d".to_string(), what }).text
        };
        let expected = "Permission denied: user=bob, access=WRITE, inode=\"/d\":ann:staff:drwxr-xr-x";
        assert_eq!(text(true, 0o755, WRITE), expected);
        let expected = "Permission denied: user=bob, access=READ_EXECUTE, inode=\"/d\":ann:staff:drwxrwxrwT";
        assert_eq!(text(true, 0o1776, READ | EXECUTE), expected);
        let expected = "Permission denied: user=bob, access=ALL, inode=\"/d\":ann:staff:-rwxr-x---";
        assert_eq!(text(false, 0o750, ALL), expected);
        let (what, parent) = (Described::of(&rights(false, 0o644)), Described::of(&rights(true, 0o1777)));
        let (user, path, parent_path) = ("bob".to_string(), "/shared/f".to_string(), "/shared".to_string());
        let sticky = said(Denied::Sticky { user: user.clone(), path: path.clone(), what, parent_path, parent });
        let expected = "Permission denied by sticky bit: user=bob, path=\"/shared/f\":ann:staff:-rw-r--r--, \
                        parent=\"/shared\":ann:staff:drwxrwxrwt";
        assert_eq!(sticky, Refusal::new(ACCESS_CONTROL, expected));
        for (denied, expected) in [
            (
                Denied::Owner { user: user.clone(), path: path.clone() },
                "Permission denied. user=bob is not the owner of inode=/shared/f",
            ),
            (
                Denied::Giver { user: user.clone() },
                "User bob is not a super user (non-super user cannot change owner).",
            ),
            (Denied::Superuser { user: user.clone() }, "Access denied for user bob. Superuser privilege is required"),
            (Denied::Group { user, group: "wheel".to_string() }, "User bob does not belong to wheel"),
            (Denied::NotDirectory { path }, "/shared/f (is not a directory)"),
        ] {
            assert_eq!(said(denied), Refusal::new(ACCESS_CONTROL, expected));
        }
    }
}
