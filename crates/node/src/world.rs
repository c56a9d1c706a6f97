//! What a node stands on: its disks and small files, how its engines are run, and where it complains. `OsWorld` is the real
//! one; a simulation has another, in which one thread runs everything and time is virtual.

use crate::loan::Loans;
use base::buffer::Pool;
use base::disk::{BlockFile, Disk, Done};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::net::Boxed;
use base::planted::Planted;
use os::disk::{Backend, Opened};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An engine that is being served, one turn after another.
pub trait Work: Send {
    /// Takes what the disk has finished out of `done`, does what there is to do, and says how long nothing needs to be done.
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn;
}

/// What follows a turn.
pub enum Turn {
    /// Another one, when the disk has finished something or was woken, or after so long. `None`: not for time's sake.
    Wait(Option<Duration>),
    /// Nothing: the engine was told to stop and has nothing under way.
    End,
}

/// Opens an engine on its disk, where it will be served. `None`: it could not be opened, and somebody was told why.
pub type Open = Box<dyn FnOnce(&mut dyn Disk) -> Option<Box<dyn Work>> + Send>;

/// Becomes ready, as an error, when an engine has ended and its disk is closed.
pub type Ended = oneshot::Receiver<()>;

/// What a node stands on.
pub trait World: Send + Sync {
    /// Opens the disk in this directory, which nobody else may have open.
    fn disk(&self, directory: &Path, backend: Backend, pool: Pool) -> Result<Opened>;
    /// Opens the file of the metadata store's tree, and makes it if it is missing.
    fn tree(&self, path: &Path, backend: Backend) -> Result<Box<dyn BlockFile>>;
    /// Makes a new file for a copy of such a tree. One that is there is removed, not emptied: whatever is left of an earlier copy may write to it.
    fn new_tree(&self, path: &Path, backend: Backend) -> Result<Box<dyn BlockFile>> {
        let _ = (path, backend);
        Err(several_unsupported())
    }
    /// Puts a copy in the place of a tree's file, durably. Nobody has either open.
    fn put_tree(&self, copy: &Path, tree: &Path, backend: Backend) -> Result<()> {
        let _ = (copy, tree, backend);
        Err(several_unsupported())
    }
    /// Whether something is there.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Whether both are there and are one, whatever links lead to it.
    fn is_same(&self, one: &Path, other: &Path) -> bool;
    /// All of a small file.
    fn read_text(&self, path: &Path) -> Result<String>;
    /// Makes a small file hold these bytes, durably and whole.
    fn replace(&self, path: &Path, bytes: &[u8], backend: Backend) -> Result<()>;
    /// Makes a directory, and those above it, unless it is there.
    fn make_directory(&self, path: &Path) -> Result<()>;
    /// Bytes that are free for us there.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
    /// Bytes of memory that a new program could have here without swapping.
    fn free_memory(&self) -> Result<u64> {
        let memory = os::machine::memory().ok_or_else(|| {
            let text = "/proc/meminfo does not say how much memory is free; give memory devices a capacity, DIR:memory:CAPACITY";
            Error::new(ErrorKind::Unsupported, text)
        })?;
        Ok(memory.group_left.map_or(memory.available, |left| left.min(memory.available)))
    }
    /// How the engine of a device of `capacity` bytes uses it.
    fn chunk_settings(&self, capacity: u64, pool: Pool) -> chunk::Settings;
    /// How the metadata store of devices of `capacity` bytes together uses its disk.
    fn meta_settings(&self, capacity: u64, random: Arc<dyn Random>) -> meta::Settings;
    /// Opens an engine and serves it until it ends. `name` is for people.
    fn run(&self, name: &str, disk: Box<dyn Disk>, open: Open) -> Result<Ended>;
    /// Carries out work that may block for tens of milliseconds, away from everything else. `name` is for people.
    fn aside(&self, name: &str, work: Boxed<'static, ()>) -> Result<Ended>;
    /// Looks after threads that disks may keep. Where no disk hangs in the middle of an operation nobody has to.
    fn watch(&self, _loans: &Loans) -> Result<()> {
        Ok(())
    }
    /// Writes a line of the log.
    fn say(&self, line: &str);
    /// How many files and sockets the process may have open. None: no limit.
    fn open_files(&self) -> Option<u64> {
        None
    }
    /// A fault put in on purpose, by the simulation alone.
    fn planted(&self) -> Option<Planted> {
        None
    }
}

fn several_unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "this world has no several keepers of the metadata; nothing was changed")
}

/// Real disks, files and threads.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsWorld;

impl World for OsWorld {
    fn disk(&self, directory: &Path, backend: Backend, pool: Pool) -> Result<Opened> {
        os::disk::open(directory, backend, pool)
    }

    fn tree(&self, path: &Path, backend: Backend) -> Result<Box<dyn BlockFile>> {
        os::disk::open_block_file(path, backend)
    }

    fn new_tree(&self, path: &Path, backend: Backend) -> Result<Box<dyn BlockFile>> {
        if os::file::exists(path)? {
            os::file::remove(path)?;
        }
        os::disk::open_block_file(path, backend)
    }

    fn put_tree(&self, copy: &Path, tree: &Path, _backend: Backend) -> Result<()> {
        os::file::rename(copy, tree)?;
        os::file::sync_directory(tree.parent().unwrap_or(tree))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        os::file::exists(path)
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        os::file::is_same(one, other)
    }

    fn read_text(&self, path: &Path) -> Result<String> {
        os::file::read_text(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8], backend: Backend) -> Result<()> {
        os::disk::replace(path, bytes, backend)
    }

    fn make_directory(&self, path: &Path) -> Result<()> {
        os::file::create_own_directory(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        os::file::free_bytes(path)
    }

    /// One that the system does not tell is none.
    fn open_files(&self) -> Option<u64> {
        os::machine::open_files().ok().and_then(|limit| limit.soft)
    }

    fn chunk_settings(&self, capacity: u64, pool: Pool) -> chunk::Settings {
        chunk::Settings::for_capacity(capacity, pool)
    }

    fn meta_settings(&self, capacity: u64, random: Arc<dyn Random>) -> meta::Settings {
        meta::Settings::for_capacity(capacity, random)
    }

    /// One thread for each engine: it opens the disk's engine itself, because a ring belongs to its thread.
    fn run(&self, name: &str, mut disk: Box<dyn Disk>, open: Open) -> Result<Ended> {
        let (ending, ended) = oneshot::channel::<()>();
        os::thread::spawn(name, move || {
            if let Some(mut work) = open(disk.as_mut()) {
                let mut done = Vec::new();
                while let Turn::Wait(wait) = work.turn(&mut done, disk.as_mut()) {
                    disk.poll(wait, &mut done);
                }
            }
            // The disk is unlocked before anybody hears of the end.
            drop(disk);
            drop(ending);
        })?;
        Ok(ended)
    }

    fn aside(&self, name: &str, work: Boxed<'static, ()>) -> Result<Ended> {
        let (ending, ended) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Handle::current();
        os::thread::spawn(name, move || {
            runtime.block_on(work);
            drop(ending);
        })?;
        Ok(ended)
    }

    fn watch(&self, loans: &Loans) -> Result<()> {
        loans.watch()
    }

    /// To stderr. That nobody reads it is no reason to stop.
    fn say(&self, line: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    }
}
