//! Names: paths in the store, names of bags, and where `put` and `get` put each source (the rules of `cp -r`).

use base::error::{Error, ErrorKind, Result};
use base::limit::{NAME_MAX, PATH_DEPTH_MAX, PATH_MAX};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path in the store as a person wrote it, made absolute: `a//b/./c/` and `/a/b/c` are the same.
pub fn parse(text: &str) -> Result<String> {
    let refuse =
        |why: String| Err(Error::new(ErrorKind::Invalid, format!("{text:?} is not a path in the store: {why}")));
    if text.is_empty() {
        return refuse("it is empty; the root directory is /".to_string());
    }
    let mut path = String::with_capacity(text.len() + 1);
    let mut depth = 0;
    for name in text.split('/').filter(|name| !name.is_empty() && *name != ".") {
        if name == ".." {
            return refuse("'..' is not followed; write out where you mean".to_string());
        }
        if name.contains('\0') {
            return refuse("it contains a NUL".to_string());
        }
        if name.len() > NAME_MAX {
            return refuse(format!("a name has {} bytes; {NAME_MAX} is the most", name.len()));
        }
        depth += 1;
        path.push('/');
        path.push_str(name);
    }
    if path.len() > PATH_MAX {
        return refuse(format!("it has {} bytes; {PATH_MAX} is the most", path.len()));
    }
    if depth > PATH_DEPTH_MAX {
        return refuse(format!("it is {depth} directories deep; {PATH_DEPTH_MAX} is the most"));
    }
    Ok(if depth == 0 { "/".to_string() } else { path })
}

/// A name below a directory of the store.
pub fn join(directory: &str, name: &str) -> String {
    let mut path = String::with_capacity(directory.len() + 1 + name.len());
    path.push_str(directory.strip_suffix('/').unwrap_or(directory));
    path.push('/');
    path.push_str(name);
    path
}

/// The last name of an absolute path; none of the root.
pub fn last_name(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| !name.is_empty())
}

/// What is at a destination before anything is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A file.
    File,
    /// A directory.
    Directory,
}

/// Whether sources go below the destination under their own names, or one source becomes the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// `DST/NAME` for every source.
    Below,
    /// The source is copied to the name DST.
    As,
}

/// Decides as `cp -r` does, by what is there, how many sources there are, and whether DST was written with a slash.
pub fn placing(destination: &str, found: Found, sources: usize) -> Result<Placing> {
    let refuse = |kind, text: String| Err(Error::new(kind, text));
    match found {
        Found::Directory => Ok(Placing::Below),
        _ if sources == 1 && !destination.ends_with('/') => Ok(Placing::As),
        Found::File => {
            refuse(ErrorKind::Invalid, format!("{destination} is a file; several sources need a directory to go to"))
        }
        Found::Nothing if sources == 1 => refuse(
            ErrorKind::NotFound,
            format!(
                "the directory {destination} does not exist; make it first, or write it without the slash at its end \
                 to give the copy that name"
            ),
        ),
        Found::Nothing => refuse(
            ErrorKind::NotFound,
            format!("the directory {destination} does not exist; several sources need one to go to: make it first"),
        ),
    }
}

/// The name that a local source has below a destination directory. None means that its content goes there: `dir/.`, `.`, `..`, `/`.
pub fn local_name(source: &Path) -> Result<Option<String>> {
    let bytes = source.as_os_str().as_bytes();
    if bytes == b"." || bytes.ends_with(b"/.") {
        return Ok(None);
    }
    source.file_name().map(utf8).transpose().map(|name| name.map(str::to_string))
}

/// A local name as the store keeps it: UTF-8 or not at all.
pub fn utf8(name: &OsStr) -> Result<&str> {
    name.to_str().ok_or_else(|| {
        Error::new(
            ErrorKind::Invalid,
            format!("the name {name:?} is not UTF-8, and names in the store are; rename it to put it"),
        )
    })
}

/// A local path for people.
pub fn shown(path: &Path) -> String {
    crate::show::harmless(&path.to_string_lossy())
}

/// Where a file of the store goes below a local directory. The store's names hold no slash, no NUL and no `..`, but a
/// name from the other side is checked before it is followed.
pub fn below(directory: &Path, name: &str) -> Result<PathBuf> {
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(Error::new(
            ErrorKind::Protocol,
            format!("the store sent the name {name:?}, which no file can have"),
        ));
    }
    Ok(directory.join(name))
}

#[cfg(test)]
mod tests {
    use super::{Found, Placing, below, join, last_name, local_name, parse, placing};
    use base::error::ErrorKind;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// Paths that people write become one absolute form; those that could mean something else are refused.
    #[test]
    fn paths() {
        for (written, meant) in
            [("/", "/"), (".", "/"), ("//", "/"), ("a", "/a"), ("/a//b/./c/", "/a/b/c"), ("/a b/ü", "/a b/ü")]
        {
            assert_eq!(parse(written).as_deref(), Ok(meant), "{written:?}");
        }
        let long_name = "n".repeat(256);
        let long_path = "/abc".repeat(1025);
        let deep_path = "/a".repeat(257);
        for bad in ["", "..", "/a/../b", "a\0b", &long_name, &long_path, &deep_path] {
            assert_eq!(parse(bad).map_err(|error| error.kind()), Err(ErrorKind::Invalid), "{bad:?}");
        }
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
        assert_eq!((last_name("/a/b"), last_name("/")), (Some("b"), None));
    }

    /// Destinations follow the rules of `cp -r`.
    #[test]
    fn destinations() {
        let kind = |destination, found, sources| placing(destination, found, sources).map_err(|error| error.kind());
        assert_eq!(kind("/d", Found::Directory, 1), Ok(Placing::Below));
        assert_eq!(kind("/d/", Found::Directory, 3), Ok(Placing::Below));
        assert_eq!(kind("/d", Found::Nothing, 1), Ok(Placing::As));
        assert_eq!(kind("/d", Found::File, 1), Ok(Placing::As));
        assert_eq!(kind("/d/", Found::Nothing, 1), Err(ErrorKind::NotFound));
        assert_eq!(kind("/d/", Found::File, 1), Err(ErrorKind::Invalid));
        assert_eq!(kind("/d", Found::Nothing, 2), Err(ErrorKind::NotFound));
        assert_eq!(kind("/d", Found::File, 2), Err(ErrorKind::Invalid));
    }

    /// A source keeps its own name, unless it was written as the content of a directory.
    #[test]
    fn names_of_sources() {
        let name = |text: &str| local_name(Path::new(text)).map_err(|error| error.kind());
        assert_eq!(name("a/b"), Ok(Some("b".to_string())));
        assert_eq!(name("a/b/"), Ok(Some("b".to_string())));
        for content in ["a/b/.", ".", "..", "a/..", "/"] {
            assert_eq!(name(content), Ok(None), "{content}");
        }
        let strange = Path::new(OsStr::from_bytes(b"a/\xff"));
        assert_eq!(local_name(strange).map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    }

    /// A name sent by a store never leads out of the directory it is written to.
    #[test]
    fn names_from_the_other_side() {
        for bad in ["", ".", "..", "a/b", "/etc", "a\0"] {
            assert!(below(Path::new("/tmp"), bad).is_err(), "{bad:?}");
        }
        assert_eq!(below(Path::new("/tmp"), "a b").ok().as_deref(), Some(Path::new("/tmp/a b")));
    }
}
