//! A disk in memory for experiments that move more bytes than the machine has: every byte that is written is compared with a
//! pattern that the experiments write, and what is the pattern is kept as a note of where in it. All else is kept as it is.

use base::buffer::{Buffer, Pool};
use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use base::env::Random;
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Random bytes of which every block is another one.
pub struct Pattern {
    bytes: Bytes,
    /// Where in it the block begins whose first eight bytes these are.
    starts: BTreeMap<[u8; 8], usize>,
}

impl Pattern {
    /// A pattern as long as the largest record, so that a long chunk of it repeated has each record at its beginning.
    pub fn new(random: &dyn Random) -> Pattern {
        let mut buffer = Buffer::zeroed(RECORD_PAYLOAD_MAX);
        buffer.iter_mut().for_each(|byte| *byte = random.next() as u8);
        let first = |at: usize| buffer[at..].first_chunk::<8>().map(|word| (*word, at));
        let starts = (0..RECORD_PAYLOAD_MAX).step_by(BLOCK).filter_map(first).collect();
        Pattern { bytes: buffer.freeze(), starts }
    }

    /// The first `length` bytes of it, in aligned memory; `length` is at most `RECORD_PAYLOAD_MAX`.
    pub fn first(&self, length: usize) -> Bytes {
        self.bytes.slice(..length)
    }

    /// Where in the pattern these bytes begin, and how many of them are the pattern from there on, if any block is.
    fn find(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let start = *self.starts.get(bytes.first_chunk::<8>()?)?;
        let length = bytes.len().min(self.bytes.len() - start);
        (bytes[..length] == self.bytes[start..start + length]).then_some((start, length))
    }
}

/// Files as pieces that are written at once. Operations finish as they are submitted.
pub struct PatternDisk {
    files: BTreeMap<FileName, PatternFile>,
    pattern: Arc<Pattern>,
    finished: Arc<Finished>,
    pool: Pool,
}

struct PatternFile {
    size: u64,
    /// By where they begin; they do not overlap, and what is in none is zeros.
    pieces: BTreeMap<u64, Piece>,
}

#[derive(Clone)]
enum Piece {
    /// So many bytes of the pattern from there.
    Pattern(usize, usize),
    Bytes(Bytes),
}

/// Where finished operations are picked up.
#[derive(Default)]
struct Finished {
    state: Mutex<FinishedState>,
    arrived: Condvar,
}

#[derive(Default)]
struct FinishedState {
    done: Vec<Done>,
    woken: bool,
}

impl Finished {
    fn lock(&self) -> MutexGuard<'_, FinishedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Finished {
    fn wake(&self) {
        self.lock().woken = true;
        self.arrived.notify_one();
    }
}

impl Piece {
    fn length(&self) -> usize {
        match self {
            Piece::Pattern(_, length) => *length,
            Piece::Bytes(bytes) => bytes.len(),
        }
    }

    /// The bytes from `from` up to `to` of it.
    fn part(&self, from: usize, to: usize) -> Piece {
        match self {
            Piece::Pattern(start, _) => Piece::Pattern(start + from, to - from),
            Piece::Bytes(bytes) => Piece::Bytes(bytes.slice(from..to)),
        }
    }

    fn bytes<'a>(&'a self, pattern: &'a Pattern) -> &'a [u8] {
        match self {
            Piece::Pattern(start, length) => &pattern.bytes[*start..start + length],
            Piece::Bytes(bytes) => bytes,
        }
    }
}

impl PatternFile {
    fn new(size: u64) -> PatternFile {
        PatternFile { size, pieces: BTreeMap::new() }
    }

    /// Pieces that have a byte between `from` and `to`, and where they begin.
    fn touched(&self, from: u64, to: u64) -> Vec<u64> {
        let before = self.pieces.range(..to).rev();
        before.take_while(|(start, piece)| **start + piece.length() as u64 > from).map(|(start, _)| *start).collect()
    }

    /// Forgets what is between `from` and `to`.
    fn clear(&mut self, from: u64, to: u64) {
        for start in self.touched(from, to) {
            let Some(piece) = self.pieces.remove(&start) else { continue };
            let end = start + piece.length() as u64;
            if start < from {
                self.pieces.insert(start, piece.part(0, (from - start) as usize));
            }
            if end > to {
                self.pieces.insert(to, piece.part((to - start) as usize, piece.length()));
            }
        }
    }

    fn write(&mut self, offset: u64, parts: &[Bytes], pattern: &Pattern) {
        let mut at = offset;
        for part in parts {
            let mut rest: &[u8] = part;
            while !rest.is_empty() {
                let piece = match pattern.find(rest) {
                    Some((start, length)) => Piece::Pattern(start, length),
                    None => Piece::Bytes(Bytes::copy_from_slice(rest)),
                };
                let length = piece.length();
                self.clear(at, at + length as u64);
                self.pieces.insert(at, piece);
                (rest, at) = (&rest[length..], at + length as u64);
            }
        }
        self.size = self.size.max(at);
    }

    fn read(&self, offset: u64, length: usize, pattern: &Pattern, pool: &Pool) -> Buffer {
        let length = length.min(usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX));
        let end = offset + length as u64;
        let mut buffer = pool.take(length);
        let mut filled = 0;
        for start in self.touched(offset, end).into_iter().rev() {
            let Some(piece) = self.pieces.get(&start) else { continue };
            let (from, to) = (start.max(offset), end.min(start + piece.length() as u64));
            let (at, until) = ((from - offset) as usize, (to - offset) as usize);
            buffer[filled..at].fill(0);
            let within = (from - start) as usize;
            buffer[at..until].copy_from_slice(&piece.bytes(pattern)[within..within + until - at]);
            filled = until;
        }
        buffer[filled..].fill(0);
        buffer
    }
}

impl PatternDisk {
    /// An empty disk. Reads take their memory from `pool`.
    pub fn new(pattern: Arc<Pattern>, pool: Pool) -> PatternDisk {
        PatternDisk { files: BTreeMap::new(), pattern, finished: Arc::default(), pool }
    }

    fn execute(&mut self, op: Op) -> Result<Buffer, DiskError> {
        match op {
            Op::Create { file, size, .. } => {
                self.files.insert(file, PatternFile::new(size));
            }
            Op::Remove { file } => {
                self.files.remove(&file);
            }
            Op::Read { file, offset, length, .. } => {
                let kept = self.files.get(&file).ok_or(DiskError::NotFound)?;
                return Ok(kept.read(offset, length, &self.pattern, &self.pool));
            }
            Op::Write { file, offset, parts } => {
                self.files.get_mut(&file).ok_or(DiskError::NotFound)?.write(offset, &parts, &self.pattern);
            }
            Op::Sync { file } => {
                self.files.get(&file).ok_or(DiskError::NotFound)?;
            }
            Op::Punch { file, offset, length } => {
                let kept = self.files.get_mut(&file).ok_or(DiskError::NotFound)?;
                kept.clear(offset, offset.saturating_add(length));
            }
        }
        Ok(Buffer::zeroed(0))
    }
}

impl Disk for PatternDisk {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        Ok(self.files.iter().map(|(name, file)| (*name, file.size)).collect())
    }

    fn submit(&mut self, token: u64, op: Op) {
        let result = self.execute(op);
        self.finished.lock().done.push(Done { token, result });
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let state = self.finished.lock();
        let idle = |state: &mut FinishedState| state.done.is_empty() && !state.woken;
        let arrived = &self.finished.arrived;
        let mut state = match wait {
            None => arrived.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => arrived.wait_timeout_while(state, wait, idle).unwrap_or_else(PoisonError::into_inner).0,
        };
        state.woken = false;
        done.append(&mut state.done);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.finished) as Arc<dyn Wake>
    }

    fn backend(&self) -> &'static str {
        "memory"
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, PatternFile};
    use base::buffer::Pool;
    use base::env::Random;
    use base::limit::BLOCK;
    use bytes::Bytes;
    use sim::random::SimRandom;

    /// What is read is what was written last, whether it is the pattern, partly, or something else; and next to nothing of the
    /// pattern is kept.
    #[test]
    fn keeps_what_is_written() {
        let random = SimRandom::new(7);
        let (pattern, pool) = (Pattern::new(&random), Pool::new(1 << 20));
        let blocks = 64;
        let (mut file, mut model) = (PatternFile::new((blocks * BLOCK) as u64), vec![0u8; blocks * BLOCK]);
        for round in 0..4000 {
            let from = random.below(blocks as u64) as usize;
            let count = 1 + random.below((blocks - from) as u64) as usize;
            let range = from * BLOCK..(from + count) * BLOCK;
            match random.below(4) {
                0 => {
                    file.clear(range.start as u64, range.end as u64);
                    model[range].fill(0);
                }
                what => {
                    let start = random.below((256 - count) as u64) as usize * BLOCK;
                    let mut bytes = pattern.bytes[start..start + count * BLOCK].to_vec();
                    match what {
                        1 => {}
                        2 => bytes.fill(round as u8),
                        _ => bytes[count * BLOCK - 1] ^= 1,
                    }
                    let parts = [Bytes::copy_from_slice(&bytes[..BLOCK]), Bytes::copy_from_slice(&bytes[BLOCK..])];
                    file.write(range.start as u64, &parts, &pattern);
                    model[range].copy_from_slice(&bytes);
                }
            }
            let from = random.below(blocks as u64) as usize * BLOCK;
            let read = file.read(from as u64, 9 * BLOCK, &pattern, &pool);
            assert_eq!(read[..], model[from..(from + 9 * BLOCK).min(blocks * BLOCK)], "round {round}");
        }
        file.clear(0, u64::MAX);
        file.write(0, &[pattern.first(32 * BLOCK)], &pattern);
        assert!(matches!(file.pieces.values().next(), Some(super::Piece::Pattern(0, _))) && file.pieces.len() == 1);
    }
}
