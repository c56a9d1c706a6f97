//! How a command ends: its exit codes, what is said on stderr, and the quiet end when nobody reads stdout any more.

use base::error::{Error, ErrorKind};
use std::io::Write;
use std::process::ExitCode;

/// Exit codes, which scripts may rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything that was asked for is done.
    Done = 0,
    /// Something failed; stderr says what.
    Failed = 1,
    /// The command line or a name in it is wrong.
    Usage = 2,
    /// Something named does not exist.
    NotFound = 3,
    /// The store, or the local disk, has no room.
    NoRoom = 4,
    /// No store answered.
    Unreachable = 5,
    /// Stored bytes do not match their checksum.
    Corrupt = 6,
    /// What was to be made exists already.
    Exists = 7,
    /// Somebody else holds it now.
    Busy = 8,
    /// The command and the node do not accept each other: secret, cluster or certificate.
    Refused = 9,
    /// The user lacks a right.
    Denied = 10,
}

/// The codes as `--help` shows them.
pub const EXIT_CODES_HELP: &str = "Exit codes:
  0  done
  1  failed; stderr says what
  2  the command line, or a name in it, is wrong
  3  something named does not exist
  4  no room, or no more of a quota
  5  no store answered
  6  stored bytes are corrupt; they were not served
  7  it exists already
  8  somebody else holds it now
  9  the node and the command do not accept each other: secret, cluster or certificate
 10  permission denied

stdout carries only data (with --json, one object a line); everything else goes to stderr.";

/// Why a command ended early.
#[derive(Debug)]
pub enum Fault {
    /// Something went wrong.
    Error(Error),
    /// Whoever read our stdout has gone; that is their right.
    ClosedPipe,
}

/// The result of a command or of a part of it.
pub type Result<T> = std::result::Result<T, Fault>;

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Error(error)
    }
}

/// Prints what went wrong, if anything, and gives the code to exit with.
pub fn finish(outcome: Result<Exit>) -> ExitCode {
    let exit = match outcome {
        Ok(exit) => exit,
        Err(Fault::ClosedPipe) => Exit::Done,
        Err(Fault::Error(error)) => {
            report(&error);
            code_of(error.kind())
        }
    };
    ExitCode::from(exit as u8)
}

/// The code that tells a script what kind of error it was.
pub fn code_of(kind: ErrorKind) -> Exit {
    match kind {
        ErrorKind::NotFound => Exit::NotFound,
        ErrorKind::Exists => Exit::Exists,
        ErrorKind::Invalid => Exit::Usage,
        ErrorKind::Stale | ErrorKind::Busy => Exit::Busy,
        ErrorKind::Unreachable | ErrorKind::Moved => Exit::Unreachable,
        ErrorKind::Corrupt => Exit::Corrupt,
        ErrorKind::Full | ErrorKind::OverQuota => Exit::NoRoom,
        ErrorKind::Refused => Exit::Refused,
        ErrorKind::Denied => Exit::Denied,
        ErrorKind::Io | ErrorKind::Unsupported | ErrorKind::Protocol => Exit::Failed,
    }
}

/// Says on stderr what happened and what to do.
pub fn report(error: &Error) {
    let (what, hint) = sentences(error);
    say(&format!("stormwell: {what}"));
    if let Some(hint) = hint {
        say(&format!("hint: {hint}"));
    }
}

/// One line on stderr. That nobody reads stderr is no reason to stop.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// What happened, and what to do: an error's text has the advice after its last semicolon; without one, its kind advises.
fn sentences(error: &Error) -> (&str, Option<&str>) {
    match error.text().rsplit_once("; ") {
        // What the store says is read by gateways, too, whose users have other commands.
        Some((what, _)) if error.kind() == ErrorKind::Denied => (what, advice(ErrorKind::Denied)),
        Some((what, advice)) if !what.is_empty() && !advice.is_empty() => (what, Some(advice)),
        // What the system refused here is about this machine, on which the store's advice is wrong.
        _ if error.text().contains("(os error ") => (error.text(), None),
        _ => (error.text(), advice(error.kind())),
    }
}

fn advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::NotFound => Some("check the name; `stormwell ls` shows what is there"),
        ErrorKind::Unreachable => Some("start a store with `stormwell serve`, or name another with --at HOST:PORT"),
        ErrorKind::Corrupt => Some("the bytes were not served; put the file again from its source"),
        ErrorKind::Full => {
            Some("what was acknowledged is safe; remove something with `stormwell rm`, or serve another --data DIR")
        }
        ErrorKind::Stale | ErrorKind::Busy => Some("somebody else works on it; try again later"),
        ErrorKind::Unsupported | ErrorKind::Protocol => {
            Some("use the same version of stormwell for the command and for `stormwell serve`")
        }
        ErrorKind::Exists | ErrorKind::Invalid | ErrorKind::Io => None,
        ErrorKind::Denied => Some(
            "nothing was done; the owner or whoever runs the server can give the right, with `stormwell chmod` or `stormwell chown`",
        ),
        ErrorKind::Refused | ErrorKind::OverQuota | ErrorKind::Moved => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, code_of, sentences};
    use base::error::{Error, ErrorKind};
    use base::permission::Denied;

    /// The advice of an error is what follows its last semicolon, and every unreachable store comes with advice.
    #[test]
    fn advice_is_found() {
        let error = Error::new(ErrorKind::Exists, "/a exists already; use --overwrite to replace it");
        assert_eq!(sentences(&error), ("/a exists already", Some("use --overwrite to replace it")));
        let error = Error::from(Denied::Superuser { user: "ada".to_string() });
        assert!(sentences(&error).1.is_some_and(|hint| hint.contains("stormwell chown")), "{error:?}");
        let error = Error::new(ErrorKind::Unreachable, "127.0.0.1:1 refused the connection");
        assert_eq!(sentences(&error).0, "127.0.0.1:1 refused the connection");
        assert!(sentences(&error).1.is_some_and(|hint| hint.contains("stormwell serve")));
        assert_eq!(sentences(&Error::new(ErrorKind::Io, "EIO")), ("EIO", None));
        assert!(sentences(&Error::new(ErrorKind::NotFound, "there is no /a")).1.is_some());
        for local in [std::io::ErrorKind::NotFound, std::io::ErrorKind::StorageFull] {
            let number = if local == std::io::ErrorKind::NotFound { libc::ENOENT } else { libc::ENOSPC };
            let error = Error::from(std::io::Error::from_raw_os_error(number)).during("cannot look at a");
            assert_eq!(sentences(&error).1, None, "{error}");
        }
    }

    /// Scripts rely on these numbers.
    #[test]
    fn codes_are_stable() {
        for (kind, code) in [
            (ErrorKind::Io, 1),
            (ErrorKind::Invalid, 2),
            (ErrorKind::NotFound, 3),
            (ErrorKind::Full, 4),
            (ErrorKind::Unreachable, 5),
            (ErrorKind::Corrupt, 6),
            (ErrorKind::Exists, 7),
            (ErrorKind::Stale, 8),
            (ErrorKind::Refused, 9),
            (ErrorKind::Denied, 10),
        ] {
            assert_eq!(code_of(kind) as u8, code);
        }
        assert_eq!(Exit::Done as u8, 0);
    }
}
