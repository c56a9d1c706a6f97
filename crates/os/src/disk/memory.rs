//! A device in memory: for devices of class `memory`, and for tests that need no disk. Its files end with it.

use super::workers::Finished;
use base::buffer::{Buffer, Pool};
use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Unit in which memory is taken and given back, in bytes. Large enough that copying dominates looking up.
const PIECE: usize = 256 << 10;

/// Files as pieces of memory. Operations finish as they are submitted.
pub(super) struct MemoryDisk {
    files: BTreeMap<FileName, MemoryFile>,
    finished: Arc<Finished>,
    pool: Pool,
}

struct MemoryFile {
    size: u64,
    /// By number; what is not there is zeros.
    pieces: BTreeMap<u64, Buffer>,
}

impl MemoryDisk {
    /// An empty device.
    pub(super) fn new(pool: Pool) -> MemoryDisk {
        MemoryDisk { files: BTreeMap::new(), finished: Arc::default(), pool }
    }

    fn execute(&mut self, op: Op) -> Result<Buffer, DiskError> {
        match op {
            Op::Create { file, size, .. } => {
                self.files.insert(file, MemoryFile { size, pieces: BTreeMap::new() });
            }
            Op::Remove { file } => {
                self.files.remove(&file);
            }
            Op::Read { file, offset, length, .. } => {
                let stored = self.files.get(&file).ok_or(DiskError::NotFound)?;
                return Ok(stored.read(offset, length, &self.pool));
            }
            Op::Write { file, offset, parts } => {
                self.files.get_mut(&file).ok_or(DiskError::NotFound)?.write(offset, &parts);
            }
            Op::Sync { file } => {
                self.files.get(&file).ok_or(DiskError::NotFound)?;
            }
            Op::Punch { file, offset, length } => {
                self.files.get_mut(&file).ok_or(DiskError::NotFound)?.punch(offset, length);
            }
        }
        Ok(Buffer::zeroed(0))
    }
}

impl Disk for MemoryDisk {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        Ok(self.files.iter().map(|(name, file)| (*name, file.size)).collect())
    }

    fn submit(&mut self, token: u64, op: Op) {
        let result = self.execute(op);
        self.finished.put(Done { token, result });
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        self.finished.wait(wait, done);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.finished) as Arc<dyn Wake>
    }

    fn backend(&self) -> &'static str {
        "memory"
    }
}

/// The range cut at the edges of pieces: (piece, first byte within it, bytes).
fn cut(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut at = offset;
    let mut left = length;
    std::iter::from_fn(move || {
        let within = (at % PIECE as u64) as usize;
        let step = left.min(PIECE - within);
        let cut = (at / PIECE as u64, within, step);
        at = at.saturating_add(step as u64);
        left -= step;
        (step > 0).then_some(cut)
    })
}

impl MemoryFile {
    fn read(&self, offset: u64, length: usize, pool: &Pool) -> Buffer {
        let length = length.min(usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let mut buffer = pool.take(length);
        let mut filled = 0;
        for (piece, within, step) in cut(offset, length) {
            let out = &mut buffer[filled..filled + step];
            match self.pieces.get(&piece) {
                Some(stored) => out.copy_from_slice(&stored[within..within + step]),
                None => out.fill(0),
            }
            filled += step;
        }
        buffer
    }

    fn write(&mut self, offset: u64, parts: &[Bytes]) {
        let mut at = offset;
        for part in parts {
            let mut taken = 0;
            for (piece, within, step) in cut(at, part.len()) {
                let stored = self.pieces.entry(piece).or_insert_with(|| Buffer::zeroed(PIECE));
                stored[within..within + step].copy_from_slice(&part[taken..taken + step]);
                taken += step;
            }
            at += part.len() as u64;
        }
        // As a file system does; engines write within the length.
        self.size = self.size.max(at);
    }

    fn punch(&mut self, offset: u64, length: u64) {
        let length = length.min(self.size.saturating_sub(offset));
        for (piece, within, step) in cut(offset, usize::try_from(length).unwrap_or(usize::MAX)) {
            if step == PIECE {
                self.pieces.remove(&piece);
            } else if let Some(stored) = self.pieces.get_mut(&piece) {
                stored[within..within + step].fill(0);
            }
        }
    }
}
