//! The metadata store's tree and the node's identity on a disk with a volatile cache.
#![allow(clippy::disallowed_methods)] // The real file behind the cache.

use super::sync::{Dice, Play};
use base::disk::BlockFile;
use base::error::{Error, Result};
use base::limit::BLOCK;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file of flexible length whose unsynced bytes are in the memory of this process.
#[derive(Debug)]
pub(super) struct VolatileFile {
    state: Mutex<State>,
    play: Play,
}

#[derive(Debug)]
struct State {
    file: File,
    /// A file that has no durable name: it goes with this process, as it would with the power.
    nameless: Option<PathBuf>,
    /// As the reader sees it.
    length: u64,
    /// The least length since the last sync: bytes of the file from there on are gone.
    cut: u64,
    /// Unsynced blocks by number.
    pending: BTreeMap<u64, Vec<u8>>,
    dice: Dice,
}

impl VolatileFile {
    /// Opens the file, and makes it, with a durable name, if it is missing.
    pub fn open(path: &Path, play: Play) -> Result<VolatileFile> {
        let opened = || -> io::Result<VolatileFile> {
            let nameless = (play.skips("tree-name") && !path.try_exists()?).then(|| path.with_extension("making"));
            let at = nameless.as_deref().unwrap_or(path);
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(nameless.is_some()).open(at)?;
            let length = file.metadata()?.len();
            let dice = Dice::new(play.seed, &path.display().to_string());
            let state = State { file, nameless, length, cut: length, pending: BTreeMap::new(), dice };
            Ok(VolatileFile { state: Mutex::new(state), play })
        };
        opened().map_err(|error| Error::from(error).during(format!("cannot open {}", path.display())))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A block as the reader sees it.
    fn block(&self, number: u64) -> io::Result<Vec<u8>> {
        if let Some(pending) = self.pending.get(&number) {
            return Ok(pending.clone());
        }
        let mut block = vec![0; BLOCK];
        let start = number.saturating_mul(BLOCK as u64);
        let kept = usize::try_from(self.cut.saturating_sub(start)).unwrap_or(BLOCK).min(BLOCK);
        let mut filled = 0;
        while filled < kept {
            match self.file.read_at(&mut block[filled..kept], start + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        Ok(block)
    }

    /// Writes one pending block out, as far as the file reaches for the reader.
    fn write_out(&self, number: u64, block: &[u8]) -> io::Result<()> {
        let start = number.saturating_mul(BLOCK as u64);
        let length = usize::try_from(self.length.saturating_sub(start)).unwrap_or(BLOCK).min(BLOCK);
        self.file.write_all_at(&block[..length], start)
    }

    fn write_all_out(&mut self) -> io::Result<()> {
        if self.cut < self.file.metadata()?.len() {
            self.file.set_len(self.cut)?;
        }
        self.file.set_len(self.length)?;
        let mut blocks: Vec<_> = std::mem::take(&mut self.pending).into_iter().collect();
        // In any order, so that a kill in the middle leaves any of them.
        self.dice.shuffle(&mut blocks);
        for (number, block) in blocks {
            self.write_out(number, &block)?;
        }
        self.cut = self.length;
        Ok(())
    }
}

impl BlockFile for VolatileFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.state().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.state();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > state.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut at = 0;
        while at < out.len() {
            let place = offset + at as u64;
            let within = (place % BLOCK as u64) as usize;
            let step = (BLOCK - within).min(out.len() - at);
            let block = state.block(place / BLOCK as u64)?;
            out[at..at + step].copy_from_slice(&block[within..within + step]);
            at += step;
        }
        Ok(())
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        let mut state = self.state();
        if length < state.length {
            let edge = length / BLOCK as u64;
            let within = (length % BLOCK as u64) as usize;
            let mut last = state.block(edge)?;
            last[within..].fill(0);
            state.pending.retain(|number, _| *number < edge);
            if within > 0 {
                state.pending.insert(edge, last);
            }
            state.cut = state.cut.min(length);
        }
        state.length = length;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.play.skips("tree") {
            return Ok(());
        }
        self.state().write_all_out()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.state();
        let end = offset.checked_add(data.len() as u64).ok_or(io::ErrorKind::InvalidInput)?;
        state.length = state.length.max(end);
        let early = state.dice.one_in(4);
        let mut at = 0;
        while at < data.len() {
            let place = offset + at as u64;
            let (number, within) = (place / BLOCK as u64, (place % BLOCK as u64) as usize);
            let step = (BLOCK - within).min(data.len() - at);
            let mut block = state.block(number)?;
            block[within..within + step].copy_from_slice(&data[at..at + step]);
            // Some unsynced blocks reach the disk all the same; they stay pending, which does no harm.
            if early && state.dice.one_in(2) && (number + 1) * BLOCK as u64 <= state.cut {
                state.write_out(number, &block)?;
            }
            state.pending.insert(number, block);
            at += step;
        }
        Ok(())
    }
}

impl Drop for VolatileFile {
    /// A planned end is not a power cut: what the system would still write is written.
    fn drop(&mut self) {
        let mut state = self.state();
        let _nobody_to_tell = state.write_all_out();
        if let Some(path) = state.nameless.take() {
            let _nobody_to_tell = std::fs::rename(&path, path.with_extension("redb"));
        }
    }
}

/// Makes the file hold these bytes, whole, as far as the syncs of it are not left out.
pub(super) fn replace(path: &Path, bytes: &[u8], play: Play) -> Result<()> {
    if play.skips("node-name") {
        return Ok(());
    }
    let making = path.with_extension("making");
    let replaced = || -> io::Result<()> {
        // The name can be durable before the bytes are.
        let durable = if play.skips("node") { &[][..] } else { bytes };
        std::fs::write(&making, durable)?;
        std::fs::rename(&making, path)
    };
    replaced().map_err(|error| Error::from(error).during(format!("cannot replace {}", path.display())))
}
