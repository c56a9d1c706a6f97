//! How the index becomes the body of a checkpoint, and back.
//! ```text
//! body of versions 2 to 4: head | entries up to the end
//! head: count 8 of bags, each: id 8 | pushed 8, bytes 8 | acknowledged 8, bytes 8
//!     | flags 4 (1: sealed, 2: retains) | pass 4 | epoch 8
//!     | count 8 of acknowledgements, each: chunk 16 | grant 8 | length 4 | session 8 of who made it | number 8 of its message
//!     (0: it is not asked again; up to version 3 session and number are missing)
//!     | count 8 of data segments, each: number 4 | incarnation 8
//! entry: state 4 (0 open, 1 sealed, 2 gone) | id 16; then, unless it is gone:
//!     owner 12 | generation 8 | length 4 | crc 4 (open: of the flushed bytes) | count 4 of tail bytes
//!     | count 4 of runs | count 4 of released ranges | runs, each: offset 4, segment 4, block 4, sizes 4 (payload bytes
//!     21 bits | blocks of the chunk that they stand for 9, 0: themselves; always in version 2 | zeros)
//!     | released ranges, each: start 4, end 4 | tail
//! ```
//! Version 1 is one whole index: `count 8 of chunks | chunks | head`, each chunk `id 16 | owner 12 | generation 8 | sealed 4
//! | length 4 | crc 4 | count 4 of tail bytes | tail | count 4 of runs | runs | count 4 of released ranges | released ranges`.

use super::chunks::{Chunk, Fields};
use super::remembered::Recent;
use super::{Index, Open, Run, saved};
use crate::format::{Fault, Reader, is_cell, put_owner};
use crate::request::BagStat;
use base::checksum::crc32c;
use base::id::{BagId, ChunkId, Generation, Owner};
use base::limit::{BLOCK, CHUNK_MAX, RECORD_PAYLOAD_MAX};

/// Bytes of an entry without runs, released ranges and tail.
pub(super) const ENTRY_BYTES: u64 = 60;
/// Bytes of a run in an entry.
pub(super) const RUN_BYTES: u64 = 16;
/// Bytes of a released range in an entry.
pub(super) const RANGE_BYTES: u64 = 8;

const OPEN: u32 = 0;
const SEALED: u32 = 1;
const GONE: u32 = 2;

/// An entry but for the bytes of its tail. Runs that are under way are runs.
pub(super) fn put_entry(
    out: &mut Vec<u8>,
    id: ChunkId,
    chunk: Chunk<'_>,
    open: Option<&Open>,
    released: &[(u32, u32)],
) {
    let tail = if chunk.sealed { None } else { open };
    let (state, length, crc, tail) = match tail {
        None => (SEALED, chunk.length, chunk.crc, 0),
        Some(open) => {
            let tail = open.journaled_tail() as u32;
            (OPEN, open.flushed + tail, open.flushed_crc, tail)
        }
    };
    let none = std::collections::VecDeque::new();
    let under_way = open.map_or(&none, |open| &open.under_way);
    out.extend_from_slice(&state.to_le_bytes());
    out.extend_from_slice(&id.to_bytes());
    put_owner(out, chunk.owner);
    out.extend_from_slice(&chunk.generation.0.to_le_bytes());
    let runs = (chunk.runs.len() + under_way.len()) as u32;
    for value in [length, crc, tail, runs, released.len() as u32] {
        out.extend_from_slice(&value.to_le_bytes());
    }
    for run in chunk.runs.iter().chain(under_way) {
        for value in [run.offset, run.segment, run.block, run.sizes] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
    for (start, end) in released {
        out.extend_from_slice(&start.to_le_bytes());
        out.extend_from_slice(&end.to_le_bytes());
    }
}

/// The entry of a chunk that is gone.
pub(super) fn put_gone(out: &mut Vec<u8>, id: ChunkId) {
    out.extend_from_slice(&GONE.to_le_bytes());
    out.extend_from_slice(&id.to_bytes());
}

/// A chunk as a checkpoint has it.
struct Entry<'a> {
    id: ChunkId,
    owner: Owner,
    generation: Generation,
    sealed: bool,
    length: u32,
    crc: u32,
    tail: &'a [u8],
    runs: Vec<Run>,
    released: Vec<(u32, u32)>,
}

impl Index {
    /// The head of a checkpoint's body: all that is no chunk.
    pub fn encode_head(&self, segments: &[(u32, u64)]) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.bags.len() * 56 + self.remembered.len() * 44 + segments.len() * 12);
        out.extend_from_slice(&(self.bags.len() as u64).to_le_bytes());
        for (bag, stat) in &self.bags {
            let flags =
                u64::from(stat.sealed_epoch.is_some()) | u64::from(stat.retain) << 1 | u64::from(stat.pass) << 32;
            let counts = [stat.pushed, stat.pushed_bytes, stat.acknowledged, stat.acknowledged_bytes];
            for value in [bag.0].into_iter().chain(counts).chain([flags, stat.sealed_epoch.unwrap_or(0)]) {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
        out.extend_from_slice(&(self.remembered.len() as u64).to_le_bytes());
        for (id, recent) in self.remembered.iter() {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&recent.grant.to_le_bytes());
            out.extend_from_slice(&recent.length.to_le_bytes());
            let (session, number) = recent.by.unwrap_or_default();
            out.extend_from_slice(&session.to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&(segments.len() as u64).to_le_bytes());
        for (number, incarnation) in segments {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&incarnation.to_le_bytes());
        }
        out
    }

    /// Applies the body of a checkpoint to the state of the one before (to nothing, if it is a full one): the data segments
    /// with their incarnations. If it cannot be read the index is of no use. `version`: 2 or a later one.
    pub fn decode(&mut self, body: &[u8], version: u32) -> Result<Vec<(u32, u64)>, Fault> {
        let mut reader = Reader(body);
        let segments = self.decode_head(&mut reader, version).ok_or(Fault::Damaged)?;
        while !reader.0.is_empty() {
            let state = reader.four().ok_or(Fault::Damaged)?;
            if state > GONE {
                return Err(Fault::Newer);
            }
            self.decode_entry(&mut reader, state).ok_or(Fault::Damaged)?;
        }
        Ok(segments)
    }

    fn decode_entry(&mut self, reader: &mut Reader<'_>, state: u32) -> Option<()> {
        let id = reader.chunk()?;
        if self.chunks.contains_key(&id) {
            self.remove(id);
        }
        if state == GONE {
            return Some(());
        }
        let entry = Entry::decode(reader, id, state == SEALED)?;
        self.put(entry)
    }

    /// The index in a body of version 1, and the data segments. `None` if it cannot be read.
    pub fn decode_first_version(body: &[u8]) -> Option<(Index, Vec<(u32, u64)>)> {
        let mut reader = Reader(body);
        let mut index = Index::default();
        for _ in 0..reader.eight()? {
            index.put(Entry::decode_first_version(&mut reader)?)?;
        }
        let segments = index.decode_head(&mut reader, 1)?;
        reader.0.is_empty().then_some((index, segments))
    }

    fn decode_head(&mut self, reader: &mut Reader<'_>, version: u32) -> Option<Vec<(u32, u64)>> {
        self.bags.clear();
        self.remembered.clear();
        for _ in 0..reader.eight()? {
            let bag = BagId(reader.eight()?);
            let mut stat = BagStat {
                pushed: reader.eight()?,
                pushed_bytes: reader.eight()?,
                acknowledged: reader.eight()?,
                acknowledged_bytes: reader.eight()?,
                ..BagStat::default()
            };
            let (flags, epoch) = (reader.eight()?, reader.eight()?);
            stat.sealed_epoch = (flags & 1 == 1).then_some(epoch);
            (stat.retain, stat.pass) = (flags & 2 == 2, (flags >> 32) as u32);
            self.bags.insert(bag, stat);
        }
        for _ in 0..reader.eight()? {
            let chunk = reader.chunk()?;
            let (grant, length) = (reader.eight()?, reader.four()?);
            let (session, number) = if version < 4 { (0, 0) } else { (reader.eight()?, reader.eight()?) };
            let by = (number > 0).then_some((session, number));
            self.remembered.insert(chunk, Recent { grant, length, by });
        }
        let mut segments = Vec::new();
        for _ in 0..reader.eight()? {
            segments.push((reader.four()?, reader.eight()?));
        }
        Some(segments)
    }

    /// Takes in a chunk that is not there. `None` if it says what cannot be.
    fn put(&mut self, entry: Entry<'_>) -> Option<()> {
        let Entry { id, owner, generation, sealed, length, crc, tail, mut runs, released } = entry;
        let flushed = length.checked_sub(u32::try_from(tail.len()).ok()?)?;
        let end = runs.last().map_or(0, |run| run.end());
        if end > flushed || u64::from(length) > CHUNK_MAX || self.chunks.contains_key(&id) {
            return None;
        }
        // A record that was under way when its bytes were released.
        runs.retain(|run| !released.iter().any(|(start, end)| *start <= run.offset && run.end() <= *end));
        self.live = self.live.checked_add(u64::from(length).checked_sub(saved(&runs))?)?;
        if !released.is_empty() {
            self.ranges += released.len() as u64;
            self.released.0.insert(id, released);
        }
        if !sealed {
            let open = Open { flushed, flushed_crc: crc, journaled: length, ..Open::default() };
            self.open.0.insert(id, open);
            self.change_tail(id, |open| open.push_tail(tail, crc32c(tail)));
        }
        let mut fields = Fields::new(id, owner, generation);
        (fields.length, fields.crc, fields.sealed) = (length, crc, sealed);
        self.chunks.0.insert(fields, &runs);
        Some(())
    }
}

impl<'a> Entry<'a> {
    fn decode(reader: &mut Reader<'a>, id: ChunkId, sealed: bool) -> Option<Entry<'a>> {
        let (owner, generation) = (reader.owner()?, Generation(reader.eight()?));
        let (length, crc, tail) = (reader.four()?, reader.four()?, reader.four()?);
        let (runs, released) = (reader.four()?, reader.four()?);
        let runs = decode_runs(reader, runs)?;
        let released = decode_ranges(reader, released)?;
        let tail = reader.take(tail as usize)?;
        Some(Entry { id, owner, generation, sealed, length, crc, tail, runs, released })
    }

    fn decode_first_version(reader: &mut Reader<'a>) -> Option<Entry<'a>> {
        let (id, owner, generation) = (reader.chunk()?, reader.owner()?, Generation(reader.eight()?));
        let (sealed, length, crc) = (reader.four()? == 1, reader.four()?, reader.four()?);
        let tail = reader.four()?;
        let tail = reader.take(tail as usize)?;
        let runs = reader.four()?;
        let runs = decode_runs(reader, runs)?;
        let released = reader.four()?;
        let released = decode_ranges(reader, released)?;
        Some(Entry { id, owner, generation, sealed, length, crc, tail, runs, released })
    }
}

fn decode_runs(reader: &mut Reader<'_>, count: u32) -> Option<Vec<Run>> {
    let mut runs = Vec::new();
    let mut end = 0u32;
    for _ in 0..count {
        let run = Run { offset: reader.four()?, segment: reader.four()?, block: reader.four()?, sizes: reader.four()? };
        let (stored, cell) = (run.stored(), run.cell());
        if stored as usize > RECORD_PAYLOAD_MAX || run.offset < end {
            return None;
        }
        if cell > 0 && !is_cell(u64::from(stored), u64::from(cell)) {
            return None;
        }
        end = run.offset.checked_add(run.length())?;
        run.block.checked_add(1 + stored.div_ceil(BLOCK as u32))?;
        runs.push(run);
    }
    Some(runs)
}

fn decode_ranges(reader: &mut Reader<'_>, count: u32) -> Option<Vec<(u32, u32)>> {
    let mut ranges = Vec::new();
    for _ in 0..count {
        ranges.push((reader.four()?, reader.four()?));
    }
    Some(ranges)
}
