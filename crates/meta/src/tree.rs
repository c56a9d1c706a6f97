//! The embedded tree on a `BlockFile`: what redb asks of its storage, and how its errors read.

use base::disk::BlockFile;
use base::error::{Error, ErrorKind, is_full};
use redb::{Builder, Database, Durability, StorageBackend, TableDefinition, WriteTransaction};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The one table: the ordered state.
pub const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("state");

/// Bytes of pages that redb keeps in memory.
const CACHE: usize = 32 << 20;

/// The file under the tree. Opening a tree changes it, even if what is in it is refused afterwards: until `release` changes stay in
/// memory, which are a few pages.
#[derive(Debug)]
pub struct Storage {
    file: Box<dyn BlockFile>,
    held: Mutex<Option<Vec<Change>>>,
}

/// What redb did to the file.
#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

impl Storage {
    fn held(&self) -> MutexGuard<'_, Option<Vec<Change>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what was held back; from now on the file is changed at once.
    pub fn release(&self) -> base::error::Result<()> {
        let mut held = self.held();
        for change in held.take().unwrap_or_default() {
            match change {
                Change::Write(offset, data) => self.file.write(offset, &data)?,
                Change::Length(length) => self.file.set_length(length)?,
                Change::Sync => self.file.sync()?,
            }
        }
        Ok(())
    }

    /// Keeps a change back, or does it.
    fn change(&self, change: Change, at_once: impl FnOnce(&dyn BlockFile) -> io::Result<()>) -> io::Result<()> {
        match &mut *self.held() {
            Some(changes) => {
                changes.push(change);
                Ok(())
            }
            None => at_once(&*self.file),
        }
    }
}

#[derive(Debug)]
struct Backend(Arc<Storage>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        let held = self.0.held();
        let lengths = held.iter().flatten().rev().filter_map(|change| match change {
            Change::Length(length) => Some(*length),
            Change::Write(..) | Change::Sync => None,
        });
        lengths.into_iter().next().map_or_else(|| self.0.file.length(), Ok)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.0.held();
        let Some(changes) = held.as_ref().filter(|changes| !changes.is_empty()) else {
            drop(held);
            return self.0.file.read(offset, out);
        };
        out.fill(0);
        let there = self.0.file.length()?.saturating_sub(offset).min(out.len() as u64) as usize;
        self.0.file.read(offset, &mut out[..there])?;
        for change in changes {
            match change {
                Change::Write(at, data) => lay_over(out, offset, *at, data),
                Change::Length(length) => {
                    let kept = length.saturating_sub(offset).min(out.len() as u64) as usize;
                    out[kept..].fill(0);
                }
                Change::Sync => {}
            }
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.change(Change::Length(length), |file| file.set_length(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.change(Change::Sync, |file| file.sync())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.0.held().is_none() {
            return self.0.file.write(offset, data);
        }
        self.0.change(Change::Write(offset, data.to_vec()), |file| file.write(offset, data))
    }
}

/// Puts what of `data`, which begins at `at`, lies in `out`, which begins at `offset`, over it.
fn lay_over(out: &mut [u8], offset: u64, at: u64, data: &[u8]) {
    let (from, to) = (offset.max(at), (offset + out.len() as u64).min(at + data.len() as u64));
    if from < to {
        let (length, target, source) = ((to - from) as usize, (from - offset) as usize, (from - at) as usize);
        out[target..target + length].copy_from_slice(&data[source..source + length]);
    }
}

/// Opens the tree in the file, or makes it there, in memory until it is released. `fresh` says that no change was ever logged: then a
/// file that was begun and not finished (redb writes its magic number last) is made again.
pub fn open(file: Box<dyn BlockFile>, fresh: bool) -> base::error::Result<(Database, Arc<Storage>)> {
    let length = file.length()?;
    if fresh && length > 0 {
        let mut start = [0; 8];
        if length < 8 || (file.read(0, &mut start).is_ok() && start == [0; 8]) {
            file.set_length(0)?;
        }
    }
    let storage = Arc::new(Storage { file, held: Mutex::new(Some(Vec::new())) });
    let backend = Backend(Arc::clone(&storage));
    let database =
        Builder::new().set_cache_size(CACHE).create_with_backend(backend).map_err(|error| failed("open", error))?;
    Ok((database, storage))
}

/// A commit that is durable when it returns. Two phases, and the allocator's state with each commit: opening after a crash then reads no page
/// that it does not need.
pub fn make_durable(transaction: &mut WriteTransaction) -> base::error::Result<()> {
    transaction.set_durability(Durability::Immediate).map_err(|error| failed("begin a durable change", error))?;
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    Ok(())
}

/// The error for people of something that redb could not do.
pub fn failed(doing: &str, error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    let kind = match &error {
        redb::Error::Corrupted(_) => ErrorKind::Corrupt,
        // It says so of a file that is none of its own, or has been cut off.
        redb::Error::Io(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            ErrorKind::Corrupt
        }
        _ => ErrorKind::Io,
    };
    let remedy = match &error {
        redb::Error::Io(error) if is_full(error) => "make room on its file system",
        _ => "check the disk",
    };
    Error::new(
        kind,
        format!(
            "the metadata tree could not {doing}: {error}; acknowledged changes are in the log or the tree: {remedy} and restart"
        ),
    )
}
