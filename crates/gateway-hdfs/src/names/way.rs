//! The way to a path: what clients may write for it, and everything that is on it, asked for in one call.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::names::permission;
use crate::refusal::{
    ACCESS_CONTROL, COMPONENT_TOO_LONG, FILE_NOT_FOUND, ILLEGAL_ARGUMENT, INVALID_PATH, PARENT_NOT_DIRECTORY, Refusal,
};
use base::error::ErrorKind;
use base::limit::{NAME_MAX, PATH_DEPTH_MAX, PATH_MAX};
use client::Attributes;

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
pub(crate) struct Way {
    /// The path as the store has it: `/` and names, one slash between them.
    pub path: String,
    /// The root, then each name of the path as far as there is something.
    pub found: Vec<Attributes>,
    /// It was asked for as raw: below `/.reserved/raw`.
    pub raw: bool,
    /// How many names the path has.
    names: usize,
}

impl Way {
    /// Looks up a path as a client wrote it, and refuses if the caller may not go there.
    pub async fn look(gateway: &Gateway, caller: &Caller, text: &str, purpose: Purpose) -> Result<Way, Refusal> {
        if purpose == Purpose::Create && !is_valid(text) {
            return Err(Refusal::new(INVALID_PATH, format!("Invalid file name: {text}")));
        }
        let (names, raw) = resolve(gateway, text).await?;
        if raw && purpose != Purpose::Read && !caller.superuser {
            return Err(permission::superuser_only(caller, "on raw paths"));
        }
        if purpose == Purpose::Create {
            check_new_name(&names)?;
        }
        let path = format!("/{}", names.join("/"));
        let found = match is_possible(&names, &path) {
            true => gateway.client.lookup(&path).await?,
            false => gateway.client.lookup("/").await?,
        };
        let way = Way { path, found, raw, names: names.len() };
        if way.found.is_empty() || way.found.len() > way.names + 1 {
            return Err(Refusal::io(format!("the store answered a lookup of {} with another path", way.path)));
        }
        way.traverse(gateway, caller, purpose)?;
        Ok(way)
    }

    /// A way as it would be if this were there.
    #[cfg(test)]
    pub fn of(path: &str, found: Vec<Attributes>) -> Way {
        let names = path.split('/').filter(|name| !name.is_empty()).count();
        Way { path: path.to_string(), found, raw: false, names }
    }

    /// What the path names, if there is something.
    pub fn last(&self) -> Option<&Attributes> {
        self.found.get(self.names)
    }

    /// The directory that the path is in, if it is there; none for the root.
    pub fn parent(&self) -> Option<&Attributes> {
        self.names.checked_sub(1).and_then(|above| self.found.get(above))
    }

    /// The deepest directory above the path that is there, and where in `found`.
    pub fn ancestor(&self) -> (usize, &Attributes) {
        let at = self.found.len().min(self.names).saturating_sub(1);
        (at, &self.found[at])
    }

    /// Whether the path is the root.
    pub fn is_root(&self) -> bool {
        self.names == 0
    }

    /// Whether the path's directory is there.
    pub fn has_parent(&self) -> bool {
        self.found.len() >= self.names
    }

    /// The path of what is at this place in `found`.
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
        match self.path.rsplit_once('/') {
            None | Some(("", _)) => "/",
            Some((parent, _)) => parent,
        }
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

    /// Everything above the path must be a directory that the caller may go through.
    fn traverse(&self, gateway: &Gateway, caller: &Caller, purpose: Purpose) -> Result<(), Refusal> {
        for (at, above) in self.found.iter().take(self.names).enumerate() {
            if !above.directory {
                let class = if purpose == Purpose::Create { PARENT_NOT_DIRECTORY } else { ACCESS_CONTROL };
                return Err(Refusal::new(class, format!("{} (is not a directory)", self.path_at(at))));
            }
            if !caller.superuser {
                permission::check_one(&gateway.superuser, caller, above, self.path_at(at), permission::EXECUTE)?;
            }
        }
        Ok(())
    }
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
fn is_possible(names: &[String], path: &str) -> bool {
    let good = |name: &String| name != "." && name != ".." && name.len() <= NAME_MAX && !name.contains('\0');
    path.len() <= PATH_MAX && names.len() <= PATH_DEPTH_MAX && names.iter().all(good)
}

/// What HDFS refuses for the name of something new, and what this store cannot name.
fn check_new_name(names: &[String]) -> Result<(), Refusal> {
    let length: usize = names.iter().map(|name| name.len() + 1).sum();
    if length > PATH_MAX || names.len() > PATH_DEPTH_MAX {
        let text = format!("Pathname too long.  Limit {PATH_MAX} characters, {PATH_DEPTH_MAX} levels.");
        return Err(Refusal::io(text));
    }
    if names.first().is_some_and(|name| name == ".reserved") {
        let text = "File name \".reserved\" is reserved and cannot be created.";
        return Err(Refusal::new(ILLEGAL_ARGUMENT, text));
    }
    for (at, name) in names.iter().enumerate() {
        if name == ".snapshot" {
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
    use super::{Way, check_new_name, is_valid};
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
        let names = |text: &str| text.split('/').map(str::to_string).collect::<Vec<_>>();
        assert!(check_new_name(&names(&"n".repeat(255))).is_ok());
        for bad in [&"n".repeat(256), ".reserved/a", "d/.snapshot", &"n/".repeat(300), "a\0"] {
            assert!(check_new_name(&names(bad)).is_err(), "{bad}");
        }
    }

    /// Each place on a way has its path, and the deepest directory that is there is found, whatever is missing.
    #[test]
    fn places() {
        let way = |path: &str, found: usize| {
            let found = vec![Attributes { directory: true, ..Attributes::default() }; found];
            Way {
                path: path.to_string(),
                found,
                raw: false,
                names: path.matches('/').count() - usize::from(path == "/"),
            }
        };
        let whole = way("/a/bb/c", 4);
        assert_eq!([0, 1, 2, 3].map(|at| whole.path_at(at)), ["/", "/a", "/a/bb", "/a/bb/c"]);
        assert_eq!((whole.name(), whole.parent_path(), whole.ancestor().0), ("c", "/a/bb", 2));
        assert!(whole.last().is_some() && whole.parent().is_some() && whole.has_parent());
        let without_last = way("/a/bb/c", 3);
        assert!(without_last.last().is_none() && without_last.has_parent() && without_last.ancestor().0 == 2);
        let without_parent = way("/a/bb/c", 2);
        assert!(!without_parent.has_parent() && without_parent.parent().is_none());
        assert_eq!(without_parent.ancestor().0, 1);
        let root = way("/", 1);
        assert!(root.is_root() && root.last().is_some() && root.parent().is_none() && root.has_parent());
        assert_eq!((root.name(), root.parent_path(), root.path_at(0), root.ancestor().0), ("", "/", "/", 0));
        assert_eq!((way("/a", 2).parent_path(), way("/a", 2).name()), ("/", "a"));
    }
}
