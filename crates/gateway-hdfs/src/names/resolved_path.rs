//! The way to a path: what clients may write for it, and everything that is on it, asked for in one call.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::names::directory_cache::Above;
use crate::names::permission;
use crate::refusal::{
    COMPONENT_TOO_LONG, FILE_NOT_FOUND, ILLEGAL_ARGUMENT, INVALID_PATH, PARENT_NOT_DIRECTORY, Refusal,
};
use base::error::{Error, ErrorKind};
use base::limit::{NAME_MAX, PATH_DEPTH_MAX, PATH_MAX};
use base::permission::{Denied, Wanted};
use client::{Attributes, Found};

/// What is said of a path that is too long, as in HDFS.
const TOO_LONG: &str = "Pathname too long.  Limit 4096 characters, 256 levels.";
const _: () = assert!(PATH_MAX == 4096 && PATH_DEPTH_MAX == 256);

/// `/.reserved/raw`, or `/.reserved/.inodes/` and a number, in front of a path.
const RESERVED_MAX: usize = 64;

/// What is about to be done with a path: it decides what is refused as a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Looking.
    Read,
    /// Changing what is there.
    Write,
    /// Giving a name to something.
    Create,
}

/// A path and everything on it.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedPath {
    /// The path as the store has it: `/` and names, one slash between them.
    pub path: String,
    /// The root, then each name above the last one as far as there is something; nothing for the root itself.
    pub above: Above,
    /// What the path names, if there is something and it was asked for.
    pub last: Option<Attributes>,
    /// The version of the directories above.
    pub version: u64,
    /// It was asked for as raw: below `/.reserved/raw`.
    pub raw: bool,
    /// How many names the path has.
    names: usize,
}

/// A path as a client wrote it, and as the store has it.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// `/` and names, one slash between them.
    pub path: String,
    /// It was asked for as raw: below `/.reserved/raw`.
    raw: bool,
    /// How many names it has.
    names: usize,
    /// Whether the store could have anything of this name.
    pub possible: bool,
}

impl Written {
    /// Reads a path, and refuses what is none.
    pub async fn read(gateway: &Gateway, caller: &Caller, text: &str, purpose: Purpose) -> Result<Written, Refusal> {
        check_length(text)?;
        if purpose == Purpose::Create && !is_valid(text) {
            return Err(Refusal::new(INVALID_PATH, format!("Invalid file name: {text}")));
        }
        let (names, raw) = resolve(gateway, text).await?;
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        if raw && purpose != Purpose::Read && !caller.superuser {
            return Err(permission::superuser_only(caller, "on raw paths"));
        }
        if purpose == Purpose::Create {
            check_new_name(&names)?;
        }
        let path = format!("/{}", names.join("/"));
        let possible = is_possible(&names, &path);
        Ok(Written { path, raw, names: names.len(), possible })
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.names == 0
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(_, name)| name)
    }
}

/// A refusal of the store, in HDFS's words: of somebody who gives a name to something below a file, that this is no directory.
pub(crate) fn refused(error: Error, purpose: Purpose) -> Refusal {
    match Denied::read(&error) {
        Some(denied @ Denied::NotDirectory { .. }) if purpose == Purpose::Create => {
            Refusal { class: PARENT_NOT_DIRECTORY, ..Refusal::from(denied) }
        }
        Some(denied) => denied.into(),
        None => error.into(),
    }
}

impl ResolvedPath {
    /// Looks up a path as a client wrote it. The store refuses if the caller may not go there, or has not the rights that are wanted.
    pub async fn look(
        gateway: &Gateway,
        caller: &Caller,
        text: &str,
        purpose: Purpose,
        wanted: Wanted,
    ) -> Result<ResolvedPath, Refusal> {
        let Written { path, raw, names, possible } = Written::read(gateway, caller, text, purpose).await?;
        let mut resolved = ResolvedPath { path, above: Above::default(), last: None, version: 0, raw, names };
        let looked = match possible {
            true => resolved.ask(gateway, caller, wanted).await,
            false => {
                let root = caller.judged(&gateway.client).lookup("/", 0).await;
                root.and_then(|root| resolved.take(&root.found))
            }
        };
        looked.map_err(|error| refused(error, purpose))?;
        resolved.check_directories(purpose)?;
        Ok(resolved)
    }

    /// Asks the store whether the caller has these rights, too, on what was looked up.
    pub async fn judge(&self, gateway: &Gateway, caller: &Caller, wanted: Wanted) -> Result<(), Refusal> {
        caller.judged(&gateway.client).lookup_wanting(&self.path, self.version, wanted).await?;
        Ok(())
    }

    /// Asks the store what is on the way, as far as it is not known.
    async fn ask(&mut self, gateway: &Gateway, caller: &Caller, wanted: Wanted) -> Result<(), Error> {
        let known = if self.is_root() { None } else { gateway.known.way_to(self.parent_path()) };
        let version = known.as_ref().map_or(0, |(_, version)| *version);
        let store = caller.judged(&gateway.client);
        let Found { mut found, version, without_above } = store.lookup_wanting(&self.path, version, wanted).await?;
        self.version = version;
        match known {
            Some((above, _)) if without_above => (self.above, self.last) = (above, found.pop()),
            _ => {
                self.take(&found)?;
                if self.has_parent() && !self.is_root() && self.above.iter().all(|above| above.directory) {
                    gateway.known.looked_up(self.parent_path(), &self.above, version);
                }
            }
        }
        Ok(())
    }

    /// Takes what was found from the root on.
    fn take(&mut self, found: &[Attributes]) -> Result<(), Error> {
        if found.is_empty() || found.len() > self.names + 1 {
            let text = format!("the store answered a lookup of {} with another path", self.path);
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        self.above = found[..found.len().min(self.names)].into();
        self.last = found.get(self.names).cloned();
        Ok(())
    }

    /// A way as it would be if this were there.
    #[cfg(test)]
    pub fn of(path: &str, found: Vec<Attributes>) -> ResolvedPath {
        let names = path.split('/').filter(|name| !name.is_empty()).count();
        let mut resolved =
            ResolvedPath { path: path.to_string(), above: Above::default(), last: None, version: 0, raw: false, names };
        resolved.take(&found).expect("no more than the path has names");
        resolved
    }

    /// What the path names, if there is something.
    pub fn last(&self) -> Option<&Attributes> {
        self.last.as_ref()
    }

    /// The directory that the path is in, if it is there; none for the root.
    pub fn parent(&self) -> Option<&Attributes> {
        self.names.checked_sub(1).and_then(|above| self.above.get(above))
    }

    /// What the path names and everything above it, the root first.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Attributes> {
        self.above.iter().chain(&self.last)
    }

    /// Whether the path is the root.
    pub fn is_root(&self) -> bool {
        self.names == 0
    }

    /// Whether the path's directory is there.
    pub fn has_parent(&self) -> bool {
        self.above.len() == self.names
    }

    /// The path of what is so many names deep on the way.
    pub fn path_at(&self, at: usize) -> &str {
        match self.path.match_indices('/').nth(at) {
            _ if at == 0 => "/",
            Some((end, _)) => &self.path[..end],
            None => &self.path,
        }
    }

    /// The last name; empty for the root.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// The path of the directory that the path is in; the root's is the root.
    pub fn parent_path(&self) -> &str {
        parent_of(&self.path)
    }

    /// What is named, whatever it is; or `FileNotFoundException` with this text and the path.
    pub fn any(&self, text: &str) -> Result<&Attributes, Refusal> {
        self.last().ok_or_else(|| Refusal::not_found(format!("{text}{}", self.path)))
    }

    /// The file that is named.
    pub fn file(&self) -> Result<&Attributes, Refusal> {
        let attributes = self.any("File does not exist: ")?;
        match attributes.directory {
            true => Err(Refusal::not_found(format!("Path is not a file: {}", self.path))),
            false => Ok(attributes),
        }
    }

    /// Everything above the path must be a directory: to superusers the store just says what is there.
    fn check_directories(&self, purpose: Purpose) -> Result<(), Refusal> {
        let Some(at) = self.above.iter().position(|above| !above.directory) else { return Ok(()) };
        let denied = Denied::NotDirectory { path: self.path_at(at).to_string() };
        Err(refused(denied.into(), purpose))
    }
}

/// The path of the directory that a path is in; the root's is the root.
fn parent_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        None | Some(("", _)) => "/",
        Some((parent, _)) => parent,
    }
}

/// Refuses what is too long to be a path before anything is made of it: 4,096 bytes, and a word in front that is none of its names.
fn check_length(text: &str) -> Result<(), Refusal> {
    if text.len() <= PATH_MAX + RESERVED_MAX {
        return Ok(());
    }
    let begun = &text[..text.floor_char_boundary(NAME_MAX)];
    Err(Refusal::io(format!("{TOO_LONG} The path has {} bytes and begins with {begun}", text.len())))
}

/// Whether HDFS takes this for the name of something new.
fn is_valid(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('/') else { return false };
    let mut names: Vec<&str> = rest.split('/').collect();
    // One slash at the end is nothing, and so is the root.
    if names.last().is_some_and(|name| name.is_empty()) {
        names.pop();
    }
    let by_number = names.len() > 3 && names[0] == ".reserved" && names[1] == ".inodes";
    names.iter().all(|name| !name.is_empty() && *name != "." && (*name != ".." || by_number) && !name.contains(':'))
}

/// Whether a path is a raw one.
pub(crate) fn is_raw(text: &str) -> bool {
    let mut names = text.split('/').filter(|name| !name.is_empty());
    text.starts_with('/') && names.next() == Some(".reserved") && names.next() == Some("raw")
}

/// The names of a path, reserved ones resolved, and whether it was a raw one.
async fn resolve(gateway: &Gateway, text: &str) -> Result<(Vec<String>, bool), Refusal> {
    if !text.starts_with('/') {
        return Err(Refusal::new(INVALID_PATH, format!("Invalid path name {text}")));
    }
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
    let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    match names.as_slice() {
        [".reserved", "raw", rest @ ..] => Ok((owned(rest), true)),
        [".reserved", ".inodes", number, rest @ ..] => {
            let gone = |what: &str| Refusal::new(FILE_NOT_FOUND, format!("{what}: {text}"));
            let inode: u64 = number.parse().map_err(|_| gone("Invalid inode path"))?;
            let path = gateway.client.path_of(inode).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound => gone("File for given inode path does not exist"),
                _ => Refusal::from(error),
            })?;
            let mut above: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
            let rest = match rest {
                ["..", rest @ ..] => {
                    above.pop();
                    rest
                }
                rest => rest,
            };
            above.extend_from_slice(rest);
            Ok((owned(&above), false))
        }
        names => Ok((owned(names), false)),
    }
}

/// Whether the store could have anything of this name.
fn is_possible(names: &[&str], path: &str) -> bool {
    let good = |name: &&str| *name != "." && *name != ".." && name.len() <= NAME_MAX && !name.contains('\0');
    path.len() <= PATH_MAX && names.len() <= PATH_DEPTH_MAX && names.iter().all(good)
}

/// What HDFS refuses for the name of something new, and what this store cannot name.
fn check_new_name(names: &[&str]) -> Result<(), Refusal> {
    let length: usize = names.iter().map(|name| name.len() + 1).sum();
    if length > PATH_MAX || names.len() > PATH_DEPTH_MAX {
        return Err(Refusal::io(TOO_LONG));
    }
    if names.first() == Some(&".reserved") {
        let text = "File name \".reserved\" is reserved and cannot be created.";
        return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    }
    for (at, name) in names.iter().enumerate() {
        if *name == ".snapshot" {
            return Err(Refusal::new(ILLEGAL_ARGUMENT, "\".snapshot\" is a reserved name."));
        }
        if name.contains('\0') {
            return Err(Refusal::new(INVALID_PATH, format!("Invalid file name: /{}", names.join("/"))));
        }
        if name.len() > NAME_MAX {
            let text = format!(
                "The maximum path component name limit of {name} in directory /{} is exceeded: limit={NAME_MAX} length={}",
                names[..at].join("/"),
                name.len()
            );
            return Err(Refusal::new(COMPONENT_TOO_LONG, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{ResolvedPath, check_new_name, is_valid};
    use client::Attributes;

    /// What HDFS refuses as a name is refused, and nothing else.
    #[test]
    fn valid_names() {
        for good in ["/", "/a", "/a/", "/a b/ü", "/...", "/.a", "/.reserved/.inodes/5/..", "/.reserved/raw/a"] {
            assert!(is_valid(good), "{good}");
        }
        for bad in ["", "a", "a/b", "//", "//a", "/a//b", "/a/./b", "/.", "/a/..", "/../a", "/a:b", "/a/b:"] {
            assert!(!is_valid(bad), "{bad}");
        }
        let names = |text: &str| check_new_name(&text.split('/').collect::<Vec<_>>()).is_ok();
        assert!(names(&"n".repeat(255)));
        for bad in [
            &"n".repeat(256),
            ".reserved/a",
            "d/.snapshot",
            &"n/".repeat(300),
            &format!("{}/", "n".repeat(250)).repeat(17),
            "a\0",
        ] {
            assert!(!names(bad), "{bad}");
        }
    }

    /// Each place on a way has its path, whatever is missing.
    #[test]
    fn places() {
        let resolved = |path: &str, found: usize| {
            ResolvedPath::of(path, vec![Attributes { directory: true, ..Attributes::default() }; found])
        };
        let whole = resolved("/a/bb/c", 4);
        assert_eq!([0, 1, 2, 3].map(|at| whole.path_at(at)), ["/", "/a", "/a/bb", "/a/bb/c"]);
        assert_eq!((whole.name(), whole.parent_path()), ("c", "/a/bb"));
        assert!(whole.last().is_some() && whole.parent().is_some() && whole.has_parent());
        let without_last = resolved("/a/bb/c", 3);
        assert!(without_last.last().is_none() && without_last.has_parent());
        let without_parent = resolved("/a/bb/c", 2);
        assert!(!without_parent.has_parent() && without_parent.parent().is_none());
        let root = resolved("/", 1);
        assert!(root.is_root() && root.last().is_some() && root.parent().is_none() && root.has_parent());
        assert_eq!((root.name(), root.parent_path(), root.path_at(0)), ("", "/", "/"));
        assert_eq!((resolved("/a", 2).parent_path(), resolved("/a", 2).name()), ("/", "a"));
    }
}
