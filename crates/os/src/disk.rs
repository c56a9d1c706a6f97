//! Devices for real: opening a device directory with one of several ways of moving its bytes.

mod directory;
mod inline;
mod memory;
mod overlay;
pub mod probe;
mod threads;
mod uring;
mod volatile;
mod workers;

pub use volatile::{SYNCS, Sync};

use base::buffer::Pool;
use base::disk::{BlockFile, Disk};
use base::error::{Error, ErrorKind, Result};
use directory::Directory;
use memory::MemoryDisk;
use overlay::OverlayDisk;
use std::path::Path;
use threads::ThreadsDisk;
use uring::UringDisk;
use volatile::VolatileDisk;

/// A way of moving a device's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where the system lets us, else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// Four threads that block.
    Threads,
    /// No disk at all; everything ends with the process.
    Memory,
    /// For trials: what is not synced ends with the process, as it would with the power.
    Volatile,
}

impl Backend {
    /// The way with this name: `auto`, `io_uring`, `threads` or `volatile`. Not memory: a device has that as its class, while the
    /// metadata's tree is always a file.
    pub fn from_name(name: &str) -> Result<Backend> {
        match name {
            "auto" => Ok(Backend::Auto),
            "io_uring" | "uring" => Ok(Backend::Uring),
            "threads" => Ok(Backend::Threads),
            "volatile" => Ok(Backend::Volatile),
            _ => {
                let text = format!(
                    "'{name}' is no way to reach a disk; choose auto, io_uring or threads (volatile is for trials); a device in \
                     memory has that as its class, DIR:memory"
                );
                Err(Error::new(ErrorKind::Invalid, text))
            }
        }
    }
}

/// A device that was opened.
pub struct Opened {
    /// The device. It may be moved to another thread before its first use, and belongs to that thread from then on.
    pub disk: Box<dyn Disk>,
    /// What people should know: why something slower was chosen. For the log.
    pub note: Option<String>,
}

/// Opens a device directory, which is made if it is missing and locked until the disk is dropped. Reads take their memory from `pool`.
/// `Backend::Memory` does not touch the directory.
pub fn open(directory: &Path, backend: Backend, pool: Pool) -> Result<Opened> {
    if backend == Backend::Memory {
        return Ok(Opened { disk: Box::new(MemoryDisk::new(pool)), note: None });
    }
    let (files, mut note) = Directory::open(directory)?;
    if backend == Backend::Volatile {
        return Ok(Opened { disk: Box::new(VolatileDisk::start(files, pool)?), note });
    }
    if backend == Backend::Threads {
        return Ok(Opened { disk: Box::new(ThreadsDisk::start(files, pool)?), note });
    }
    let reason = match uring::build_ring(&files) {
        Ok(ring) => return Ok(Opened { disk: Box::new(UringDisk::start(files, pool, ring)?), note }),
        Err(reason) => reason,
    };
    let refusal = format!("io_uring cannot be used for {} ({reason})", directory.display());
    if backend == Backend::Uring {
        let text = format!(
            "{refusal}; nothing was changed; allow it (kernel.io_uring_disabled, seccomp, ulimit -l) or choose threads"
        );
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    let fallback = format!("{refusal}; threads are used instead");
    note = Some(note.map_or(fallback.clone(), |note| format!("{note}; {fallback}")));
    Ok(Opened { disk: Box::new(ThreadsDisk::start(files, pool)?), note })
}

/// Opens a file of flexible length beside a device, and makes it, with a durable name, if it is missing.
pub fn open_block_file(path: &Path, backend: Backend) -> Result<Box<dyn BlockFile>> {
    match backend {
        Backend::Volatile => volatile::open_block_file(path),
        _ => Ok(Box::new(crate::file::BlockingFile::open(path)?)),
    }
}

/// Makes a small file beside a device hold these bytes, durably and whole.
pub fn replace(path: &Path, bytes: &[u8], backend: Backend) -> Result<()> {
    match backend {
        Backend::Volatile => volatile::replace(path, bytes),
        _ => crate::file::replace(path, bytes),
    }
}

/// What people must be told who use this backend: that it keeps nothing. `Invalid` if the environment asks it for something
/// that it does not know.
pub fn warning(backend: Backend) -> Result<Option<String>> {
    if backend == Backend::Volatile { volatile::note().map(Some) } else { Ok(None) }
}

/// Who has a device directory open, for people. It is locked for a moment, for which a server that starts just then waits.
pub fn holder(directory: &Path) -> Result<Option<String>> {
    directory::holder(directory)
}

/// Opens a device directory to look at it: nothing in it is changed, whatever is written to the disk stays in memory.
/// `Busy` while a server has it; a server that starts meanwhile waits for some seconds, and is refused then.
pub fn open_to_look(directory: &Path, pool: Pool) -> Result<Box<dyn Disk>> {
    Ok(Box::new(OverlayDisk::open(directory, pool)?))
}
