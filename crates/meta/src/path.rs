//! Paths, parsed once into a checked form: absolute, one slash between names, nothing that means another place.

use base::error::{Error, ErrorKind, Result};
use base::limit::{NAME_MAX, PATH_DEPTH_MAX, PATH_MAX};
use std::fmt;

/// An absolute path whose names are all usable. `Display` writes it back with single slashes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// `/a/b`; the root is the empty text, so that the text of a directory begins the text of everything in it.
    text: String,
}

impl Path {
    /// Reads `/a/b`. Repeated and trailing slashes mean nothing; `Invalid` for everything else that is not plain names.
    pub fn parse(text: &str) -> Result<Path> {
        let refuse = |why: &str| {
            let shown: String = text.chars().take(100).collect();
            Err(Error::new(ErrorKind::Invalid, format!("the path {shown:?} {why}; nothing was done")))
        };
        if text.len() > PATH_MAX {
            return refuse(&format!("is {} bytes long and {PATH_MAX} are the most", text.len()));
        }
        if !text.starts_with('/') {
            return refuse("does not begin with '/'");
        }
        let mut path = Path { text: String::with_capacity(text.len()) };
        let mut depth = 0;
        for name in text.split('/').filter(|name| !name.is_empty()) {
            if let Err(why) = check_name(name) {
                return refuse(&why);
            }
            depth += 1;
            if depth > PATH_DEPTH_MAX {
                return refuse(&format!("has more than {PATH_DEPTH_MAX} names"));
            }
            path.text.push('/');
            path.text.push_str(name);
        }
        Ok(path)
    }

    /// The root directory.
    pub fn root() -> Path {
        Path { text: String::new() }
    }

    /// Whether it is the root directory.
    pub fn is_root(&self) -> bool {
        self.text.is_empty()
    }

    /// The directory's text and the last name; nothing for the root.
    pub(crate) fn split(&self) -> Option<(&str, &str)> {
        self.text.rsplit_once('/')
    }

    /// The text as directories are looked up by: `/a/b`, and nothing at all for the root.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether `other` is this path or lies below it.
    pub fn contains(&self, other: &Path) -> bool {
        match other.text.strip_prefix(self.text.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "/" } else { &self.text })
    }
}

/// Why a name cannot be used.
fn check_name(name: &str) -> std::result::Result<(), String> {
    if name == "." || name == ".." {
        return Err(format!("has the name '{name}', which means another place; write the place itself"));
    }
    if name.len() > NAME_MAX {
        return Err(format!("has a name of {} bytes and {NAME_MAX} are the most", name.len()));
    }
    if name.contains('\0') {
        return Err("has a name with a zero byte".to_string());
    }
    Ok(())
}

/// Whether a bag may have this name: what a file may, in one piece.
pub(crate) fn check_bag_name(name: &str) -> Result<()> {
    let checked = if name.is_empty() {
        Err("is empty".to_string())
    } else if name.contains('/') {
        Err("has a '/' in it".to_string())
    } else {
        check_name(name)
    };
    checked.map_err(|why| {
        let shown: String = name.chars().take(100).collect();
        Error::new(ErrorKind::Invalid, format!("the bag name {shown:?} {why}; nothing was done"))
    })
}

#[cfg(test)]
mod tests {
    use super::{Path, check_bag_name};
    use base::error::ErrorKind;

    /// Slashes collapse; everything that is not plain names is refused as the caller's mistake.
    #[test]
    fn refusals() {
        let same = |text: &str, expected: &str| match Path::parse(text) {
            Ok(path) => assert_eq!(path.to_string(), expected),
            Err(error) => panic!("{text}: {error}"),
        };
        same("/", "/");
        same("//", "/");
        same("/a//b/", "/a/b");
        same("/...", "/...");
        same(&format!("/{}", "n".repeat(255)), &format!("/{}", "n".repeat(255)));
        same(&"/d".repeat(256), &"/d".repeat(256));
        let long_name = format!("/{}", "n".repeat(256));
        let long_path = format!("/{}", "abc/".repeat(1024));
        let deep = "/d".repeat(257);
        for bad in ["", "a", "a/b", "/a/../b", "/.", "/a/.", "/..", "/a\0b", &long_name, &long_path, &deep] {
            assert_eq!(Path::parse(bad).map_err(|error| error.kind()), Err(ErrorKind::Invalid), "{bad:?}");
        }
        for bad in ["", "a/b", "..", "\0"] {
            assert_eq!(check_bag_name(bad).map_err(|error| error.kind()), Err(ErrorKind::Invalid), "{bad:?}");
        }
        assert_eq!(check_bag_name("words 1"), Ok(()));
    }

    /// A directory contains itself and what lies below, not what merely begins alike.
    #[test]
    fn containment() {
        let parse = |text: &str| Path::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert!(parse("/a").contains(&parse("/a")));
        assert!(parse("/a").contains(&parse("/a/b")));
        assert!(parse("/").contains(&parse("/a")));
        assert!(!parse("/a").contains(&parse("/ab")));
        assert!(!parse("/a/b").contains(&parse("/a")));
    }
}
