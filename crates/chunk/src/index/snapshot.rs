//! The index as it was at one moment, written out in pieces while changes go on: what is about to change and is not written
//! yet is kept as it was. A snapshot holds all chunks, or those that changed since the snapshot before.

use super::format::{ENTRY_BYTES, RANGE_BYTES, RUN_BYTES, put_entry, put_gone};
use super::{Index, Open};
use base::id::ChunkId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A snapshot that is being written.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// All chunks, not only those in `changed`.
    full: bool,
    /// The chunks that changed since the snapshot before, and at least what their entries take.
    changed: BTreeSet<ChunkId>,
    changed_bytes: u64,
    /// Entries up to this chunk are written.
    written: Option<ChunkId>,
    finished: bool,
    /// Entries, as they were, of chunks that changed since the snapshot began and are not written yet.
    saved: BTreeMap<ChunkId, Saved>,
}

/// An entry; the tail's bytes stand behind the rest.
#[derive(Debug)]
struct Saved {
    fields: Vec<u8>,
    tail: SavedTail,
}

/// Tails only grow until they are taken: so long the first bytes of the live one are the saved one, and nothing is copied.
#[derive(Debug)]
enum SavedTail {
    Live(usize),
    Copied(Vec<u8>),
}

impl Snapshot {
    /// The chunk's entry will be written.
    fn wants(&self, id: ChunkId) -> bool {
        !self.finished && self.written.is_none_or(|written| id > written) && (self.full || self.changed.contains(&id))
    }
}

impl Index {
    /// Begins a snapshot of this moment, of all chunks or of those that changed since the last one that was kept: the most
    /// bytes that its entries will take. One at a time.
    pub fn begin_snapshot(&mut self, full: bool) -> u64 {
        assert!(self.snapshot.is_none(), "the snapshot before was not ended");
        let changed = std::mem::take(&mut self.dirty);
        let changed_bytes = std::mem::take(&mut self.dirty_bytes);
        let mut bytes = changed_bytes;
        if full {
            bytes = self.chunks.len() as u64 * ENTRY_BYTES + self.chunks.runs() * RUN_BYTES + self.ranges * RANGE_BYTES;
        }
        for (id, open) in self.open.iter() {
            if full {
                bytes += open.under_way.len() as u64 * RUN_BYTES;
            }
            if full || changed.contains(id) {
                bytes += open.journaled_tail() as u64;
            }
        }
        let saved = BTreeMap::new();
        self.snapshot = Some(Snapshot { full, changed, changed_bytes, written: None, finished: false, saved });
        bytes
    }

    /// Adds entries to `out` until it has `enough` bytes. True: that was all.
    pub fn write_snapshot(&mut self, out: &mut Vec<u8>, enough: usize) -> bool {
        let Some(mut snapshot) = self.snapshot.take() else { return true };
        while out.len() < enough && !snapshot.finished {
            let after = snapshot.written.map_or(Bound::Unbounded, Bound::Excluded);
            let range = (after, Bound::Unbounded);
            let next = if snapshot.full {
                let saved = snapshot.saved.range(range).next().map(|(id, _)| *id);
                let live = self.chunks.after(snapshot.written).next().map(|(id, _)| id);
                [saved, live].into_iter().flatten().min()
            } else {
                snapshot.changed.range(range).next().copied()
            };
            let Some(id) = next else {
                snapshot.finished = true;
                break;
            };
            let Saved { fields, tail } = snapshot.saved.remove(&id).unwrap_or_else(|| self.entry(id, snapshot.full));
            out.extend_from_slice(&fields);
            match tail {
                SavedTail::Copied(bytes) => out.extend_from_slice(&bytes),
                SavedTail::Live(length) => {
                    let open = self.open.get(&id).map_or(&[][..], |open| &open.tail);
                    out.extend_from_slice(&open[..length]);
                }
            }
            snapshot.written = Some(id);
        }
        let finished = snapshot.finished;
        self.snapshot = Some(snapshot);
        finished
    }

    /// The snapshot is durable, or (not `kept`) was given up: then what it was of is still to be written.
    pub fn end_snapshot(&mut self, kept: bool) {
        if let Some(snapshot) = self.snapshot.take()
            && !kept
        {
            self.dirty.extend(snapshot.changed);
            self.dirty_bytes += snapshot.changed_bytes;
        }
    }

    /// Nothing is to be written: everything here came from a checkpoint.
    pub fn all_is_kept(&mut self) {
        self.dirty.clear();
        self.dirty_bytes = 0;
    }

    /// To be called before anything of a chunk changes that a snapshot holds.
    pub(super) fn touch(&mut self, id: ChunkId) {
        if let Some(mut snapshot) = self.snapshot.take() {
            if snapshot.wants(id) && !snapshot.saved.contains_key(&id) {
                snapshot.saved.insert(id, self.entry(id, snapshot.full));
            }
            self.snapshot = Some(snapshot);
        }
        if self.dirty.insert(id) {
            let chunk = self.chunks.get(&id).map_or(0, |chunk| chunk.runs.len());
            let under_way = self.open.get(&id).map_or(0, |open| open.under_way.len());
            let ranges = self.released.get(&id).map_or(0, Vec::len);
            self.dirty_bytes += ENTRY_BYTES + (chunk + under_way) as u64 * RUN_BYTES + ranges as u64 * RANGE_BYTES;
        }
    }

    /// To be called before a tail is taken.
    pub(super) fn keep_tail(&mut self, id: ChunkId) {
        let saved = self.snapshot.as_mut().and_then(|snapshot| snapshot.saved.get_mut(&id));
        if let (Some(saved), Some(open)) = (saved, self.open.get(&id))
            && let SavedTail::Live(length) = saved.tail
        {
            saved.tail = SavedTail::Copied(open.tail[..length].to_vec());
        }
    }

    /// The chunk's entry as it is now. Of one that is not there: none in a full snapshot, else that it is gone.
    fn entry(&self, id: ChunkId, full: bool) -> Saved {
        let mut fields = Vec::new();
        let Some(chunk) = self.chunks.get(&id) else {
            if !full {
                put_gone(&mut fields, id);
            }
            return Saved { fields, tail: SavedTail::Copied(Vec::new()) };
        };
        let open = self.open.get(&id);
        let released = self.released.get(&id).map_or(&[][..], |ranges| ranges);
        put_entry(&mut fields, id, chunk, open, released);
        let tail = if chunk.sealed { 0 } else { open.map_or(0, Open::journaled_tail) };
        Saved { fields, tail: SavedTail::Live(tail) }
    }
}

impl Open {
    /// Bytes of the tail that are in journal records: only those are in a snapshot.
    pub(super) fn journaled_tail(&self) -> usize {
        (self.journaled.saturating_sub(self.flushed) as usize).min(self.tail.len())
    }
}
