//! Directories that go with this process.

use crate::owned::{owned, remove};
use base::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A directory of our own that goes with everything in it, unless it is kept.
pub struct Scratch {
    path: PathBuf,
    /// The directory above, if it was not there before.
    parent: Option<PathBuf>,
    kept: bool,
}

impl Scratch {
    /// Makes `PARENT/NAME-PID`, empty, and `PARENT` if it is missing.
    pub fn new(parent: &Path, name: &str) -> Result<Scratch> {
        let made = !os::file::exists(parent)?;
        let path = parent.join(format!("{name}-{}", std::process::id()));
        clear(&path)?;
        // `path` is absolute now, and so is what is above it.
        let path = path.canonicalize()?;
        let parent = path.parent().filter(|_| made).map(Path::to_path_buf);
        owned().directories.push((path.clone(), parent.clone()));
        Ok(Scratch { path, parent, kept: false })
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it, as text for a command line.
    pub fn join(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }

    /// Removes what is in it.
    pub fn clear(&self) -> Result<()> {
        clear(&self.path)
    }

    /// Leaves it where it is, for people to look at.
    pub fn keep(&mut self) {
        self.kept = true;
        self.forget();
    }

    fn forget(&self) {
        owned().directories.retain(|(directory, _)| *directory != self.path);
    }
}

fn clear(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::from(error).during(format!("remove {}", path.display())));
        }
        _ => {}
    }
    std::fs::create_dir_all(path)
        .map_err(|error| Error::from(error).during(format!("make the directory {}", path.display())))
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            remove(&self.path, self.parent.as_deref());
            self.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scratch;

    /// It goes with what is in it, and so does the directory above if it was made for it; one that is kept stays.
    #[test]
    fn comes_and_goes() {
        let outer = Scratch::new(&std::env::temp_dir(), "stormwell-scratch").expect("a directory");
        let above = outer.path().join("above");
        let mut inner = Scratch::new(&above, "inner").expect("a directory");
        let path = inner.path().to_path_buf();
        std::fs::write(inner.join("file"), "x").expect("a file");
        inner.clear().expect("it is emptied");
        assert!(path.is_dir() && !path.join("file").exists());
        std::fs::write(inner.join("file"), "x").expect("a file");
        drop(inner);
        assert!(!above.exists());
        inner = Scratch::new(&above, "inner").expect("a directory");
        inner.keep();
        drop(inner);
        assert!(path.is_dir());
    }
}
