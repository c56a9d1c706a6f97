//! The local side of `get`: a file is written without a name, or under a temporary one, and gets its own when it is whole.

use crate::path;
use crate::progress::Progress;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use client::Attributes;
use os::new_file::NewFile;
use std::fs::{File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// How local files are made.
pub struct Local {
    /// Replace files that exist.
    pub overwrite: bool,
    /// The destination as it was named.
    pub destination: PathBuf,
    /// fsync files and directories.
    pub sync: bool,
    /// Chance, for temporary names.
    pub random: Arc<dyn Random>,
    /// Who hears of what goes on.
    pub progress: Arc<Progress>,
}

/// A file that is being written, of which nothing is left if it is not finished.
pub struct Unfinished {
    file: NewFile,
    /// The name that it has meanwhile, if it has one: without, there is nothing to rename and nothing left after a kill.
    temporary: Option<PathBuf>,
    target: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // Why it was not finished is told already, and matters more.
            let _left_behind = os::file::remove(temporary);
        }
    }
}

impl Local {
    /// Makes a directory whose parent exists; one that is there is fine. Answers whether it was made.
    pub fn directory(&self, path: &Path) -> Result<bool> {
        match std::fs::create_dir(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && self.may_go_into(path) => Ok(false),
            Err(error) => {
                let error = Error::from(error).during(format!("cannot make the directory {}", path::shown(path)));
                Err(error)
            }
        }
    }

    /// Whether files may be put into what is there: a directory, and not a symbolic link to one somewhere else, which somebody may have
    /// put there for that, unless it is the destination as it was named.
    fn may_go_into(&self, path: &Path) -> bool {
        let named = self.destination == path;
        path.is_dir() && (named || std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()))
    }

    /// Gives a directory that was made its times and bits, when all is in it: what is put into it would change them again.
    pub fn finish_directory(&self, path: &Path, attributes: &Attributes) -> Result<()> {
        let Attributes { mode, modified_ms, accessed_ms, .. } = *attributes;
        dress(&os::file::open(path)?, true, mode, (modified_ms, accessed_ms)).map_err(|error| {
            Error::from(error).during(format!("cannot set the bits and times of {}", path::shown(path)))
        })
    }

    /// Whether a file may be copied to this name: asked before its bytes are fetched.
    pub fn check(&self, target: &Path) -> Result<()> {
        match std::fs::symlink_metadata(target) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::from(error).during(format!("cannot look at {}", path::shown(target)))),
            Ok(metadata) if metadata.is_dir() => {
                let text = format!("{} is a directory, so no file can be copied to it", path::shown(target));
                Err(Error::new(ErrorKind::Exists, text))
            }
            Ok(_) if !self.overwrite => Err(exists(target)),
            Ok(_) => Ok(()),
        }
    }

    /// Begins a file beside its target that is expected to get so many bytes.
    pub fn begin(&self, target: &Path, expected: u64) -> Result<Unfinished> {
        // A file without a name cannot take the place of another one.
        let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let unnamed = (!self.overwrite).then(|| NewFile::create_unnamed(directory.unwrap_or(Path::new(".")), expected));
        if let Some(file) = unnamed.flatten() {
            return Ok(Unfinished { file, temporary: None, target: target.to_path_buf() });
        }
        // A name of its own, whose length does not depend on the target's: that may have 255 bytes already.
        let temporary = target.with_file_name(format!(".stormwell-{:016x}", self.random.next()));
        let file = NewFile::create(&temporary, expected)?;
        Ok(Unfinished { file, temporary: Some(temporary), target: target.to_path_buf() })
    }

    /// Writes a whole small file.
    pub fn small(&self, target: &Path, attributes: &Attributes, bytes: &[Bytes]) -> Result<()> {
        let mut unfinished = self.begin(target, attributes.length)?;
        for part in bytes {
            unfinished.write(part)?;
        }
        self.finish(unfinished, attributes)
    }

    /// Gives the file its time, bits and name.
    pub fn finish(&self, mut unfinished: Unfinished, attributes: &Attributes) -> Result<()> {
        let finished = self.finished(&mut unfinished.file, attributes);
        finished.map_err(|error| unfinished.named(error))?;
        let Unfinished { file, temporary, target } = &unfinished;
        let named = match temporary {
            None => file.name(target),
            Some(temporary) if self.overwrite => os::file::rename(temporary, target),
            Some(temporary) => os::file::rename_new(temporary, target),
        };
        // What came there since it was looked at stays; what it is says why.
        named.map_err(|error| self.check(target).err().unwrap_or(error))?;
        if self.sync && temporary.is_none() {
            // That it has a name now is written to the file, too: a file system without a journal would take its bytes back without that.
            file.sync()?;
        }
        unfinished.temporary = None;
        Ok(())
    }

    fn finished(&self, file: &mut NewFile, attributes: &Attributes) -> std::io::Result<()> {
        let Attributes { mode, modified_ms, accessed_ms, .. } = *attributes;
        let file = file.finish()?;
        dress(file, false, mode, (modified_ms, accessed_ms))?;
        if self.sync { file.sync_all() } else { Ok(()) }
    }
}

fn exists(target: &Path) -> Error {
    Error::new(ErrorKind::Exists, format!("{} exists already; use --overwrite to replace it", path::shown(target)))
}

/// Gives a local file or directory the bits and times (milliseconds since 1970: modified, accessed) that it has in the store, without
/// set-uid, set-gid and, but for directories, sticky.
pub fn dress(file: &File, directory: bool, mode: u32, (modified_ms, accessed_ms): (u64, u64)) -> std::io::Result<()> {
    let time = |milliseconds| UNIX_EPOCH.checked_add(Duration::from_millis(milliseconds)).unwrap_or(UNIX_EPOCH);
    file.set_times(FileTimes::new().set_modified(time(modified_ms)).set_accessed(time(accessed_ms)))?;
    // Whoever wrote it in the store must not make programs here that run as somebody else: the file is of who copies it.
    let kept = if directory { 0o1777 } else { 0o777 };
    file.set_permissions(Permissions::from_mode(mode & kept))
}

impl Unfinished {
    /// Adds bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write(bytes).map_err(|error| self.named(error))
    }

    fn named(&self, error: std::io::Error) -> Error {
        Error::from(error).during(format!("cannot write {}", path::shown(&self.target)))
    }
}
