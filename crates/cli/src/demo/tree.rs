//! The tree that is put: which one, how large, and what `cp -r` takes for it.

use base::error::{Error, ErrorKind, Result};
use base::unit::MIB;
use harness::child::Child;
use harness::stopwatch::Stopwatch;

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Without a directory named by the user, the tree has at most so many files, so that a minute is enough.
const FILES_MAX: u64 = 40_000;

/// And at most so many bytes.
const BYTES_MAX: u64 = 600 * MIB;

/// A tree of files on the local disk.
#[derive(Clone, Debug)]
pub struct Tree {
    /// Its top directory, absolute.
    pub root: PathBuf,
    /// Its regular files, relative to the top, sorted.
    pub files: Vec<PathBuf>,
    /// Bytes in them.
    pub bytes: u64,
    /// Symbolic links, sockets and the like, which nobody puts.
    pub others: u64,
    /// What must be said about it.
    pub about: String,
}

impl Tree {
    /// Walks a directory without following symbolic links.
    pub fn walk(root: &Path) -> Result<Tree> {
        let named = |error: std::io::Error| Error::from(error).during(format!("read the directory {}", root.display()));
        let root = root.canonicalize().map_err(named)?;
        let mut tree = Tree { about: root.display().to_string(), root, files: Vec::new(), bytes: 0, others: 0 };
        let mut open = vec![PathBuf::new()];
        while let Some(directory) = open.pop() {
            let here = tree.root.join(&directory);
            for entry in std::fs::read_dir(&here)
                .map_err(|error| Error::from(error).during(format!("read the directory {}", here.display())))?
            {
                let entry = entry?;
                let (kind, path) = (entry.file_type()?, directory.join(entry.file_name()));
                if kind.is_dir() {
                    open.push(path);
                } else if kind.is_file() {
                    tree.bytes = tree.bytes.saturating_add(entry.metadata()?.len());
                    tree.files.push(path);
                } else {
                    tree.others += 1;
                }
            }
        }
        tree.files.sort();
        if tree.files.is_empty() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} has no files; name a directory that has some", tree.about),
            ));
        }
        Ok(tree)
    }

    /// Writes all its files one behind the other into one. How many bytes.
    pub fn join_into(&self, path: &Path) -> Result<u64> {
        let mut one = os::file::create(path)?;
        let mut bytes = 0u64;
        for file in &self.files {
            bytes = bytes.saturating_add(std::io::copy(&mut os::file::open(&self.root.join(file))?, &mut one)?);
        }
        Ok(bytes)
    }

    /// The tree that is put: `chosen`, else the sources that cargo downloaded to build this program, else the current
    /// directory. One that was not chosen by the user and is too large for a minute is cut: some of its directories are copied
    /// into `scratch`.
    pub fn choose(chosen: Option<&Path>, scratch: &Path) -> Result<Tree> {
        if let Some(directory) = chosen {
            return Tree::walk(directory);
        }
        let sources = sources().filter(|directory| directory.is_dir());
        let root = sources.unwrap_or_else(|| PathBuf::from("."));
        let whole = Tree::walk(&root)?;
        if whole.files.len() as u64 <= FILES_MAX && whole.bytes <= BYTES_MAX {
            return Ok(whole);
        }
        whole.cut(scratch)
    }

    /// A copy of the first files that stay within the bounds.
    fn cut(&self, scratch: &Path) -> Result<Tree> {
        let target = scratch.join("source");
        let (mut count, mut bytes) = (0, 0_u64);
        for file in &self.files {
            let from = self.root.join(file);
            bytes = bytes.saturating_add(std::fs::metadata(&from)?.len());
            if count == FILES_MAX || bytes > BYTES_MAX {
                break;
            }
            let to = target.join(file);
            if let Some(parent) = to.parent() {
                std::fs::create_dir_all(parent)?;
            }
            std::fs::copy(&from, &to)?;
            count += 1;
        }
        let mut tree = Tree::walk(&target)?;
        tree.about = format!("the first {count} of {} files of {}", self.files.len(), self.root.display());
        Ok(tree)
    }

    /// Reads all of it once, so that it is in memory for everybody alike.
    pub fn warm(&self) -> Result<()> {
        for file in &self.files {
            std::io::copy(&mut os::file::open(&self.root.join(file))?, &mut std::io::sink())?;
        }
        Ok(())
    }

    /// Copies it with `cp -r` into `target`, which does not exist, and makes that durable with syncfs. Seconds.
    pub fn copy_with_cp(&self, target: &Path) -> Result<f64> {
        let watch = Stopwatch::start();
        let mut command = Command::new("cp");
        command.arg("-r").arg(&self.root).arg(target);
        Child::start(format!("cp -r {}", self.root.display()), command)?.finish()?;
        sync_file_system(target)?;
        Ok(watch.seconds())
    }
}

/// Makes everything on the file system of this directory durable.
pub fn sync_file_system(directory: &Path) -> Result<()> {
    let file = os::file::open(directory)?;
    // SAFETY: the descriptor is open for as long as `file` lives; the call takes no memory of ours.
    match unsafe { libc::syncfs(file.as_raw_fd()) } {
        0 => Ok(()),
        _ => Err(Error::from(std::io::Error::last_os_error()).during(format!("syncfs {}", directory.display()))),
    }
}

/// Where cargo keeps the sources of the crates that it downloaded.
fn sources() -> Option<PathBuf> {
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => PathBuf::from(std::env::var_os("HOME")?).join(".cargo"),
    };
    Some(home.join("registry/src"))
}
