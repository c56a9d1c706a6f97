//! A device directory behind a volatile cache, for trials: what is not synced lies in the memory of this process, so that a
//! kill of it is a power cut. As on a real disk, some of what is not synced reaches the files all the same, in any order.
//! The files themselves are never synced: they survive the end of the process, and that is all a trial asks of them.
#![allow(clippy::disallowed_methods)] // The real files behind the cache.

mod file;
mod sync;

pub use sync::{SYNCS, Sync};

use super::directory::{Directory, MAKING, disk_error};
use super::workers::Finished;
use base::buffer::{Buffer, Pool};
use base::disk::{BlockFile, Disk, DiskError, Done, FileName, Op, Wake};
use base::error::{Error, Result};
use base::limit::BLOCK;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use sync::{Dice, Play};

/// Unsynced bytes that one disk keeps; beyond that everything of a file is written, as a system short of memory does.
const UNSYNCED_MAX: usize = 64 << 20;

/// The file of a tree, whose unsynced bytes end with this process.
pub(super) fn open_block_file(path: &Path) -> Result<Box<dyn BlockFile>> {
    Ok(Box::new(file::VolatileFile::open(path, Play::of_environment()?)?))
}

/// As `crate::file::replace`, but durable only against the end of this process.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    file::replace(path, bytes, Play::of_environment()?)
}

/// What people must know who use this.
pub(super) fn note() -> Result<String> {
    Ok(Play::of_environment()?.note())
}

/// The directory and what of it is only in memory.
pub(super) struct VolatileDisk {
    directory: Directory,
    /// As the engine sees it.
    files: BTreeMap<FileName, Cached>,
    /// Removed by the engine and still there: a power cut would bring them back.
    doomed: BTreeSet<FileName>,
    /// Writes whose end was not handed out yet: no sync covers them.
    in_flight: BTreeSet<u64>,
    unsynced: usize,
    finished: Arc<Finished>,
    pool: Pool,
    play: Play,
    dice: Dice,
}

/// A file and its unsynced blocks.
struct Cached {
    file: File,
    length: u64,
    /// Whether it would be there after a power cut.
    named: bool,
    pending: BTreeMap<u64, Pending>,
}

/// A block that no sync has covered.
struct Pending {
    /// None: it was punched and reads as zeros.
    bytes: Option<Bytes>,
    /// The operation that put it here.
    token: u64,
}

impl VolatileDisk {
    /// Serves this directory.
    pub(super) fn start(directory: Directory, pool: Pool) -> Result<VolatileDisk> {
        let play = Play::of_environment()?;
        let mut files = BTreeMap::new();
        let place = directory.path().display().to_string();
        let trouble = |error: io::Error| Error::from(error).during(format!("cannot open the files of {place}"));
        let listed = directory.list().map_err(|error| trouble(io::Error::other(error.to_string())))?;
        for (name, length) in listed {
            let path = directory.path().join(name.to_string());
            let file = OpenOptions::new().read(true).write(true).open(path).map_err(trouble)?;
            files.insert(name, Cached { file, length, named: true, pending: BTreeMap::new() });
        }
        let dice = Dice::new(play.seed, &place);
        Ok(VolatileDisk {
            directory,
            files,
            doomed: BTreeSet::new(),
            in_flight: BTreeSet::new(),
            unsynced: 0,
            finished: Arc::default(),
            pool,
            play,
            dice,
        })
    }

    fn execute(&mut self, token: u64, op: Op) -> std::result::Result<Buffer, DiskError> {
        if self.dice.one_in(8) {
            self.drift();
        }
        let nothing = |()| Buffer::zeroed(0);
        match op {
            Op::Create { file, size, .. } => {
                self.create(file, size).map(nothing).map_err(|error| disk_error("create", file, &error))
            }
            Op::Remove { file } => {
                if let Some(cached) = self.files.remove(&file) {
                    self.unsynced -= cached.bytes();
                    self.doomed.insert(file);
                }
                Ok(Buffer::zeroed(0))
            }
            Op::Read { file, offset, length, .. } => {
                let cached = self.files.get(&file).ok_or(DiskError::NotFound)?;
                cached.read(offset, self.pool.take(length)).map_err(|error| disk_error("read", file, &error))
            }
            Op::Write { file, offset, parts } => self.write(token, file, offset, &parts).map(nothing),
            Op::Sync { file } => {
                let cached = self.files.get_mut(&file).ok_or(DiskError::NotFound)?;
                if self.play.skips(sync::of_kind(file.kind)) {
                    return Ok(Buffer::zeroed(0));
                }
                let in_flight = &self.in_flight;
                let written = cached.write_out(&mut self.dice, |pending| !in_flight.contains(&pending.token));
                self.unsynced -= *written.as_ref().unwrap_or(&0);
                written.map(|_| Buffer::zeroed(0)).map_err(|error| disk_error("sync", file, &error))
            }
            Op::Punch { file, offset, length } => {
                let cached = self.files.get_mut(&file).ok_or(DiskError::NotFound)?;
                let end = offset.saturating_add(length).min(cached.length) / BLOCK as u64;
                for number in offset / BLOCK as u64..end {
                    self.unsynced -= cached.put(number, Pending { bytes: None, token });
                }
                Ok(Buffer::zeroed(0))
            }
        }
    }

    /// Makes the file and its name, both durable. Its space is not set aside: a trial never fills the file system.
    fn create(&mut self, name: FileName, size: u64) -> io::Result<()> {
        let path = self.directory.path().join(name.to_string());
        // A file that never gets its name is swept away at the next opening, like any other that was half made.
        let making = self.directory.path().join(format!("{name}{MAKING}"));
        if let Some(before) = self.files.remove(&name) {
            self.unsynced -= before.bytes();
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&making)?;
        file.set_len(size)?;
        let named = !self.play.skips("name");
        if named {
            std::fs::rename(&making, &path)?;
            self.doomed.remove(&name);
        }
        self.files.insert(name, Cached { file, length: size, named, pending: BTreeMap::new() });
        Ok(())
    }

    fn write(
        &mut self,
        token: u64,
        name: FileName,
        offset: u64,
        parts: &[Bytes],
    ) -> std::result::Result<(), DiskError> {
        let cached = self.files.get_mut(&name).ok_or(DiskError::NotFound)?;
        let early = self.dice.one_in(4);
        let mut number = offset / BLOCK as u64;
        for part in parts {
            for at in (0..part.len()).step_by(BLOCK) {
                // A copy: a slice would keep the engine's buffer from going back to its pool.
                let bytes = Bytes::copy_from_slice(&part[at..part.len().min(at + BLOCK)]);
                if early && self.dice.one_in(2) {
                    let place = number.saturating_mul(BLOCK as u64);
                    cached.file.write_all_at(&bytes, place).map_err(|error| disk_error("write", name, &error))?;
                }
                self.unsynced += bytes.len();
                self.unsynced -= cached.put(number, Pending { bytes: Some(bytes), token });
                number += 1;
            }
        }
        cached.length = cached.length.max(number.saturating_mul(BLOCK as u64));
        self.in_flight.insert(token);
        if self.unsynced > UNSYNCED_MAX && !self.play.skips(sync::of_kind(name.kind)) {
            let written = cached.write_out(&mut self.dice, |_| true);
            self.unsynced -= written.map_err(|error| disk_error("write", name, &error))?;
        }
        Ok(())
    }

    /// What a system does in its own time: a removal becomes durable, or what was punched in one file.
    fn drift(&mut self) {
        if let Some(name) = self.doomed.pop_first() {
            // What cannot be removed comes back at the next opening, which the engine must bear.
            let _ = std::fs::remove_file(self.directory.path().join(name.to_string()));
            return;
        }
        let mut punched: Vec<FileName> = (self.files.iter())
            .filter(|(_, cached)| cached.pending.values().any(|pending| pending.bytes.is_none()))
            .map(|(name, _)| *name)
            .collect();
        self.dice.shuffle(&mut punched);
        if let Some(cached) = punched.pop().and_then(|name| self.files.get_mut(&name)) {
            let _may_be_late = cached.write_out(&mut self.dice, |pending| pending.bytes.is_none());
        }
    }
}

impl Cached {
    fn bytes(&self) -> usize {
        self.pending.values().filter_map(|pending| pending.bytes.as_ref()).map(Bytes::len).sum()
    }

    /// Puts a block into the cache; how many unsynced bytes it replaces.
    fn put(&mut self, number: u64, pending: Pending) -> usize {
        let before = self.pending.insert(number, pending);
        before.and_then(|before| before.bytes).map_or(0, |bytes| bytes.len())
    }

    /// Writes the pending blocks that `which` picks, in any order, so that a kill in the middle leaves any of them.
    /// How many unsynced bytes they were.
    fn write_out(&mut self, dice: &mut Dice, which: impl Fn(&Pending) -> bool) -> io::Result<usize> {
        let mut numbers: Vec<u64> =
            self.pending.iter().filter(|(_, pending)| which(pending)).map(|(number, _)| *number).collect();
        dice.shuffle(&mut numbers);
        let mut written = 0;
        for number in numbers {
            let Some(pending) = self.pending.remove(&number) else { continue };
            let place = number.saturating_mul(BLOCK as u64);
            match pending.bytes {
                Some(bytes) => {
                    written += bytes.len();
                    self.file.write_all_at(&bytes, place)?;
                }
                None => self.file.write_all_at(&[0; BLOCK], place)?,
            }
        }
        Ok(written)
    }

    fn read(&self, offset: u64, mut buffer: Buffer) -> io::Result<Buffer> {
        let length = buffer.len().min(usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX));
        buffer.set_length(length);
        let mut filled = 0;
        while filled < length {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        // The file may still be shorter than it seems.
        buffer[filled..].fill(0);
        let first = offset / BLOCK as u64;
        let end = first + length.div_ceil(BLOCK) as u64;
        for (number, pending) in self.pending.range(first..end) {
            let at = (number - first) as usize * BLOCK;
            let step = BLOCK.min(length - at);
            match &pending.bytes {
                Some(bytes) => buffer[at..at + step].copy_from_slice(&bytes[..step]),
                None => buffer[at..at + step].fill(0),
            }
        }
        Ok(buffer)
    }
}

impl Disk for VolatileDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        Ok(self.files.iter().map(|(name, cached)| (*name, cached.length)).collect())
    }

    fn submit(&mut self, token: u64, op: Op) {
        let result = self.execute(token, op);
        self.finished.put(Done { token, result });
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let before = done.len();
        self.finished.wait(wait, done);
        self.dice.shuffle(&mut done[before..]);
        for done in &done[before..] {
            self.in_flight.remove(&done.token);
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.finished) as Arc<dyn Wake>
    }

    fn backend(&self) -> &'static str {
        "volatile"
    }
}

impl Drop for VolatileDisk {
    /// A planned end is not a power cut: what the system would still write is written.
    fn drop(&mut self) {
        while !self.doomed.is_empty() {
            self.drift();
        }
        for (name, cached) in &mut self.files {
            let _nobody_to_tell = cached.write_out(&mut self.dice, |_| true);
            if !cached.named {
                let path = self.directory.path().join(name.to_string());
                let _nobody_to_tell = std::fs::rename(path.with_file_name(format!("{name}{MAKING}")), path);
            }
        }
    }
}
