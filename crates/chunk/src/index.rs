//! What exists: chunks and where their bytes lie, open tails, bags, what may be asked again; and how the log's records change it.

mod chunks;
#[cfg(test)]
mod footprint;
mod format;
mod remembered;
mod snapshot;

use crate::format::{DataHeader, LogPosition, Record};
use crate::piece::{record_max, tail_blocks};
use crate::request::{Asking, BagStat, ChunkStat, Handling};
use base::checksum::{combine, crc32c};
use base::id::{BagId, ChunkId, Generation, Owner};
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use bytes::Bytes;
use chunks::{Chunk, Chunks, Fields};
pub(crate) use remembered::Recent;
use remembered::Remembered;
use snapshot::Snapshot;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;

/// One data record of a chunk: 16 bytes. Its two sizes share one word: payload bytes take 21 bits (`RECORD_PAYLOAD_MAX` is 2^20),
/// the blocks of a cell 9 (256 at the most).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where in the chunk it starts.
    pub offset: u32,
    /// The data segment.
    pub segment: u32,
    /// The block of the record's header.
    pub block: u32,
    /// Payload bytes, and above them the blocks of the cell that they stand for; 0: for themselves.
    sizes: u32,
}

/// Bits of a run's payload bytes.
const STORED_BITS: u32 = 21;
const _: () = assert!(RECORD_PAYLOAD_MAX < 1 << STORED_BITS && RECORD_PAYLOAD_MAX / BLOCK < 1 << (32 - STORED_BITS));

impl Run {
    /// A record of so much payload, which stands for `cell` bytes of the chunk, or (0) for itself.
    pub fn new(offset: u32, (segment, block): (u32, u32), stored: u32, cell: u32) -> Run {
        Run { offset, segment, block, sizes: stored | (cell / BLOCK as u32) << STORED_BITS }
    }

    /// Payload bytes.
    pub fn stored(&self) -> u32 {
        self.sizes & ((1 << STORED_BITS) - 1)
    }

    /// Bytes of the chunk that the payload stands for, if it is not these themselves; else 0.
    pub fn cell(&self) -> u32 {
        (self.sizes >> STORED_BITS) * BLOCK as u32
    }

    /// Bytes of the chunk.
    pub fn length(&self) -> u32 {
        self.stored().max(self.cell())
    }

    /// Behind its last byte.
    pub fn end(&self) -> u32 {
        self.offset + self.length()
    }

    /// Bytes that need not be stored.
    pub fn saved(&self) -> u64 {
        u64::from(self.length() - self.stored())
    }
}

fn saved<'a>(runs: impl IntoIterator<Item = &'a Run>) -> u64 {
    runs.into_iter().map(Run::saved).sum()
}

impl DataHeader {
    /// Where the record's payload lies.
    pub(crate) fn run(&self) -> Run {
        Run::new(self.offset, (self.segment, self.block), self.length, self.cell)
    }
}

/// What is kept of a chunk only while it is open or has records under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    /// Behind the last byte that is in a data record or on its way into one.
    pub flushed: u32,
    /// CRC32C of what is stored of the bytes before `flushed`.
    pub flushed_crc: u32,
    /// The bytes behind `flushed`.
    pub tail: Vec<u8>,
    pub tail_crc: u32,
    /// Tail bytes before this chunk offset are in journal records.
    pub journaled: u32,
    /// Sequence number of the chunk's last data record, without those of which the journal has every byte.
    pub last_data: u64,
    /// The same with those.
    pub last_record: u64,
    /// Sequence number of the chunk's last journal record.
    pub last_journal: u64,
    /// Sequence number of the last deletion that was recorded before the chunk was made: perhaps of an earlier one of the same
    /// id, which a power loss would bring back in this one's place.
    pub behind: u64,
    /// Tells this chunk from an earlier one of the same id.
    pub birth: u64,
    /// Whether its data records are small. Not kept over a restart: the next append says it again.
    pub small_records: bool,
    /// Data records that have a place and are not written yet, in the order of their offsets.
    pub under_way: VecDeque<Run>,
}

impl Open {
    /// Up to where the two streams must be durable for the chunk to be. One that is sealed has no bytes that only the journal has: a seal
    /// that is found with such is passed over (`Index::replay`).
    pub fn needs(&self, sealed: bool) -> [u64; 2] {
        [if sealed { self.last_record } else { self.last_data }, self.last_journal.max(self.behind)]
    }

    /// CRC32C of all bytes.
    pub fn crc(&self) -> u32 {
        combine(self.flushed_crc, self.tail_crc, self.tail.len() as u64)
    }

    /// Blocks of the data records that the tail makes.
    fn tail_blocks(&self) -> u64 {
        tail_blocks(self.tail.len(), record_max(self.small_records))
    }

    fn push_tail(&mut self, bytes: &[u8], crc: u32) {
        self.tail.extend_from_slice(bytes);
        self.tail_crc = combine(self.tail_crc, crc, bytes.len() as u64);
    }
}

/// What others may look at; it is changed only by the index, which notes for the checkpoints what changes.
#[derive(Debug, Default)]
pub(crate) struct Watched<T>(T);

impl<T> Deref for Watched<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Everything that exists.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub chunks: Watched<Chunks>,
    pub open: Watched<BTreeMap<ChunkId, Open>>,
    pub bags: BTreeMap<BagId, BagStat>,
    /// Ranges of chunks that were released, sorted, joined.
    pub released: Watched<BTreeMap<ChunkId, Vec<(u32, u32)>>>,
    /// What may be asked again.
    pub remembered: Remembered,
    /// Payload bytes of all chunks, tails included; of records whose space was given back as many as they stood for.
    pub live: u64,
    /// Chunks whose end was found while bytes of them are known from the journal alone, and that are whole: generation and length of the end.
    pub passed_over: BTreeMap<ChunkId, (Generation, u32)>,
    /// Bytes of all tails.
    pub tails: u64,
    /// Blocks of the data records that they make.
    pub tail_blocks: u64,
    /// Released ranges of all chunks.
    ranges: u64,
    /// Chunks that changed, came or went since the last snapshot began, and at least what their entries take.
    dirty: BTreeSet<ChunkId>,
    dirty_bytes: u64,
    /// The snapshot that is being written.
    snapshot: Option<Snapshot>,
}

impl Index {
    /// What is known about a chunk.
    pub fn stat(&self, id: ChunkId) -> Option<ChunkStat> {
        let chunk = self.chunks.get(&id)?;
        let open_crc = || self.open.get(&id).map_or(chunk.crc, Open::crc);
        Some(ChunkStat {
            owner: chunk.owner,
            length: u64::from(chunk.length),
            generation: chunk.generation,
            sealed: chunk.sealed,
            crc: if chunk.sealed { chunk.crc } else { open_crc() },
        })
    }

    /// A chunk that is about to be changed.
    pub fn chunk_mut(&mut self, id: ChunkId) -> Option<&mut Fields> {
        self.touch(id);
        self.chunks.0.get_mut(id)
    }

    /// The open state of a chunk that is about to be changed. Its tail is changed by `push_tail` and `take_tail`.
    pub fn open_mut(&mut self, id: ChunkId) -> Option<&mut Open> {
        self.touch(id);
        self.open.0.get_mut(&id)
    }

    /// Changes what says how much room a chunk's tail takes, and counts it anew.
    fn change_tail<R>(&mut self, id: ChunkId, change: impl FnOnce(&mut Open) -> R) -> Option<R> {
        let open = self.open.0.get_mut(&id)?;
        self.tails -= open.tail.len() as u64;
        self.tail_blocks -= open.tail_blocks();
        let result = change(open);
        self.tails += open.tail.len() as u64;
        self.tail_blocks += open.tail_blocks();
        Some(result)
    }

    /// Adds bytes to a chunk's tail; `crc` is theirs.
    pub fn push_tail(&mut self, id: ChunkId, bytes: &[u8], crc: u32) {
        self.touch(id);
        self.change_tail(id, |open| open.push_tail(bytes, crc));
    }

    /// The chunk's data records are small from now on.
    pub fn make_small(&mut self, id: ChunkId) {
        self.change_tail(id, |open| open.small_records = true);
    }

    /// The first bytes of the tail, `most` at the most, which go into data records.
    pub fn take_tail(&mut self, id: ChunkId, most: usize) -> Vec<u8> {
        self.touch(id);
        self.keep_tail(id);
        let taken = self.change_tail(id, |open| {
            let rest = open.tail.split_off(most.min(open.tail.len()));
            open.tail_crc = crc32c(&rest);
            std::mem::replace(&mut open.tail, rest)
        });
        taken.unwrap_or_default()
    }

    /// A record has a place and is under way.
    pub fn record_begun(&mut self, id: ChunkId, run: Run) {
        if let Some(open) = self.open_mut(id) {
            open.under_way.push_back(run);
            self.dirty_bytes += format::RUN_BYTES;
        }
    }

    /// A record that was under way is written: it is a run of its chunk now. False: that chunk is gone. For a snapshot nothing
    /// changes, a run is a run.
    pub fn record_written(&mut self, id: ChunkId, birth: u64, run: Run) -> bool {
        let Some(open) = self.open.0.get_mut(&id).filter(|open| open.birth == birth) else { return false };
        open.under_way.pop_front();
        self.chunks.0.push_run(id, run);
        true
    }

    /// A record that is under way gets another place. Not while a snapshot is being written.
    pub fn record_moved(&mut self, id: ChunkId, birth: u64, run: Run) {
        assert!(self.snapshot.is_none(), "a snapshot names the old place");
        let Some(open) = self.open.0.get_mut(&id).filter(|open| open.birth == birth) else { return };
        if let Some(known) = open.under_way.iter_mut().find(|known| known.offset == run.offset) {
            *known = run;
        }
    }

    /// A sealed chunk whose records are durable needs no open state any more. For a snapshot nothing changes.
    pub fn close(&mut self, id: ChunkId) {
        if let Some(open) = self.open.0.remove(&id) {
            self.tails -= open.tail.len() as u64;
            self.tail_blocks -= open.tail_blocks();
        }
    }

    /// A new open chunk of no bytes.
    pub fn create(&mut self, id: ChunkId, owner: Owner, generation: Generation, birth: u64) {
        self.touch(id);
        self.chunks.0.insert(Fields::new(id, owner, generation), &[]);
        self.open.0.insert(id, Open { birth, ..Open::default() });
    }

    /// Marks a chunk complete and counts it for its bag.
    pub fn seal(&mut self, id: ChunkId, crc: u32) {
        let Some(chunk) = self.chunk_mut(id) else { return };
        if chunk.sealed {
            return;
        }
        (chunk.sealed, chunk.crc) = (true, crc);
        if let Owner::Bag(bag) = chunk.owner() {
            let length = chunk.length;
            let stat = self.bags.entry(bag).or_default();
            stat.pushed += 1;
            stat.pushed_bytes += u64::from(length);
        }
    }

    /// Forgets a chunk and gives back its runs, whose space is dead now.
    pub fn remove(&mut self, id: ChunkId) -> Vec<Run> {
        self.touch(id);
        self.keep_tail(id);
        self.passed_over.remove(&id);
        let Some((chunk, runs)) = self.chunks.0.remove(id) else { return Vec::new() };
        let under_way = self.open.get(&id).map_or(0, |open| saved(&open.under_way));
        self.live -= u64::from(chunk.length) - under_way - saved(&runs);
        self.close(id);
        let ranges = self.released.0.remove(&id);
        self.ranges -= ranges.map_or(0, |ranges| ranges.len() as u64);
        runs
    }

    /// Counts and remembers an acknowledgement and removes the chunk.
    pub fn acknowledge(&mut self, id: ChunkId, handling: Handling) -> Vec<Run> {
        let Some(chunk) = self.chunks.get(&id) else { return Vec::new() };
        let length = chunk.length;
        if let Owner::Bag(bag) = chunk.owner {
            let stat = self.bags.entry(bag).or_default();
            stat.acknowledged += 1;
            stat.acknowledged_bytes += u64::from(length);
        }
        self.remember(id, handling, length);
        self.remove(id)
    }

    /// Counts and remembers an acknowledgement of a chunk that stays. Its generation, which no push raises, says in which
    /// pass it was handled last: the first push gives 1, pass 0 raises it to 2.
    pub fn handle(&mut self, id: ChunkId, handling: Handling, pass: u32) {
        let generation = handled_in(pass);
        let Some(chunk) = self.chunk_mut(id).filter(|chunk| chunk.generation < generation) else { return };
        if let Owner::Bag(bag) = chunk.owner() {
            chunk.generation = generation;
            let length = chunk.length;
            let stat = self.bags.entry(bag).or_default();
            stat.acknowledged += 1;
            stat.acknowledged_bytes += u64::from(length);
            self.remember(id, handling, length);
        }
    }

    /// Whether the chunk belongs to a bag that retains.
    pub fn retains(&self, id: ChunkId) -> bool {
        match self.chunks.get(&id).map(|chunk| chunk.owner) {
            Some(Owner::Bag(bag)) => self.bags.get(&bag).is_some_and(|stat| stat.retain),
            _ => false,
        }
    }

    /// Whether a chunk that stays was handled in the present pass of its bag.
    pub fn is_handled(&self, id: ChunkId) -> bool {
        let Some(Chunk { owner: Owner::Bag(bag), generation, .. }) = self.chunks.get(&id) else { return false };
        let stat = self.bags.get(&bag).copied().unwrap_or_default();
        stat.retain && generation >= handled_in(stat.pass)
    }

    /// A bag is in this pass, or a later one that is known already. Of one that retains the counts begin anew.
    pub fn bag_pass(&mut self, bag: BagId, pass: u32, retain: bool) {
        let stat = self.bags.entry(bag).or_default();
        stat.retain |= retain;
        if pass > stat.pass {
            stat.pass = pass;
            if stat.retain {
                (stat.acknowledged, stat.acknowledged_bytes) = (0, 0);
            }
        }
    }

    fn remember(&mut self, id: ChunkId, Handling { grant, by, push_floor }: Handling, length: u32) {
        if push_floor > 0 {
            self.remembered.raise_push_floor(id, push_floor);
        }
        if let Some(Asking { session, floor, .. }) = by {
            self.remembered.raise_acknowledged_floor(session, floor);
        }
        let by = by.map(|asking| (asking.session, asking.number));
        self.remembered.insert(id, Recent { grant, length, by });
    }

    /// Releases a range: remembers it and gives back the runs that lie in released ranges altogether. Of a chunk that is not sealed also
    /// what is not in a run yet, or comes later: nobody asks again when it is.
    pub fn release(&mut self, id: ChunkId, start: u32, end: u32) -> Vec<Run> {
        self.touch(id);
        let Some(chunk) = self.chunks.get(&id) else { return Vec::new() };
        let most = if chunk.sealed { chunk.length } else { u32::MAX };
        let (start, end) = self.whole_cells(id, start, end.min(most));
        if start >= end {
            return Vec::new();
        }
        let ranges = self.released.0.entry(id).or_default();
        self.ranges -= ranges.len() as u64;
        ranges.push((start, end));
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (start, end) in ranges.drain(..) {
            match joined.last_mut() {
                Some(last) if last.1 >= start => last.1 = last.1.max(end),
                _ => joined.push((start, end)),
            }
        }
        *ranges = joined;
        self.ranges += ranges.len() as u64;
        self.dirty_bytes += format::RANGE_BYTES;
        let inside = |run: &Run| ranges.iter().any(|(start, end)| *start <= run.offset && run.end() <= *end);
        let taken = self.chunks.0.take_runs(id, inside);
        self.live += saved(&taken);
        taken
    }

    /// The part of a range that holds whole cells only: what is stored of a cell is needed as long as one of its bytes is.
    fn whole_cells(&self, id: ChunkId, mut start: u32, mut end: u32) -> (u32, u32) {
        let known = self.chunks.get(&id).map_or(&[][..], |chunk| chunk.runs);
        let under_way = self.open.get(&id).into_iter().flat_map(|open| &open.under_way);
        for run in known.iter().chain(under_way).filter(|run| run.cell() > 0) {
            if run.offset < start && start < run.end() {
                start = run.end();
            }
            if run.offset < end && end < run.end() {
                end = run.offset;
            }
        }
        (start, end)
    }

    /// Whether a record lies in one released range altogether.
    pub fn is_covered(&self, id: ChunkId, run: &Run) -> bool {
        let covered = |range: &(u32, u32)| range.0 <= run.offset && run.end() <= range.1;
        self.released.get(&id).is_some_and(|ranges| ranges.iter().any(covered))
    }

    /// Whether part of `start..end` was released.
    pub fn is_released(&self, id: ChunkId, start: u32, end: u32) -> bool {
        let ranges = self.released.get(&id);
        ranges.is_some_and(|ranges| ranges.iter().any(|range| range.0 < end && start < range.1))
    }

    /// Forgets a bag and its chunks; gives back the runs.
    pub fn drop_bag(&mut self, bag: BagId) -> Vec<Run> {
        self.bags.remove(&bag);
        let ids: Vec<ChunkId> = self.chunks.in_bag(bag).map(|(id, _)| id).collect();
        ids.into_iter().flat_map(|id| self.remove(id)).collect()
    }

    /// Applies a data record found in the log. False: it does not fit what is known (an earlier record is missing).
    pub fn replay_data(&mut self, header: &DataHeader) -> bool {
        if !self.chunks.contains_key(&header.chunk) {
            if header.offset != 0 {
                return false;
            }
            self.create(header.chunk, header.owner, header.generation, header.sequence);
        }
        self.touch(header.chunk);
        let (Some(chunk), Some(open)) = (self.chunks.get(&header.chunk), self.open.get(&header.chunk)) else {
            return false;
        };
        if chunk.sealed || open.flushed != header.offset {
            return false;
        }
        let length = self.change_tail(header.chunk, |open| {
            open.flushed = header.end();
            open.flushed_crc = combine(open.flushed_crc, header.payload_crc(), u64::from(header.length));
            let covered = ((header.end() - header.offset) as usize).min(open.tail.len());
            open.tail.drain(..covered);
            open.tail_crc = crc32c(&open.tail);
            open.journaled = open.flushed + open.tail.len() as u32;
            open.journaled
        });
        let (Some(chunk), Some(length)) = (self.chunks.0.get_mut(header.chunk), length) else { return false };
        chunk.generation = chunk.generation.max(header.generation);
        self.live += u64::from(length - chunk.length);
        self.live -= header.run().saved();
        chunk.length = length;
        if header.length > 0 {
            let run = header.run();
            self.chunks.0.push_run(header.chunk, run);
            self.dirty_bytes += format::RUN_BYTES;
            if self.is_covered(header.chunk, &run) {
                drop(self.release(header.chunk, run.offset, run.end()));
            }
        }
        if let Some((whole, crc)) = header.seals
            && whole == length
        {
            self.seal(header.chunk, crc);
        }
        true
    }

    /// Applies a journal record found in the log. False: it does not fit what is known.
    pub fn replay(&mut self, sequence: u64, record: &Record) -> bool {
        match record {
            Record::Append { chunk, owner, generation, offset, payload } => {
                return self.replay_append(sequence, (*chunk, *owner, *generation), *offset, payload);
            }
            Record::Seal { chunk: id, owner, generation, length, crc } => {
                if !self.chunks.contains_key(id) && *length == 0 {
                    self.create(*id, *owner, *generation, sequence);
                }
                if self.chunks.get(id).is_none_or(|chunk| chunk.length != *length) {
                    return false;
                }
                // The power went before its last records were durable, so nobody was told that it is complete; or one of them has rotted since, and
                // somebody was. It is sealed again with records of its own (`Core::seal_again`).
                if let Some(open) = self.open.get(id).filter(|open| !open.tail.is_empty()) {
                    if open.crc() == *crc {
                        self.passed_over.insert(*id, (*generation, *length));
                    }
                    return true;
                }
                self.seal(*id, *crc);
            }
            Record::Fence { chunk, generation } => {
                // Whoever fenced it was told that it is open.
                self.passed_over.remove(chunk);
                if let Some(chunk) = self.chunk_mut(*chunk) {
                    chunk.generation = chunk.generation.max(*generation);
                }
            }
            Record::Delete { chunk } => drop(self.remove(*chunk)),
            Record::Release { chunk, start, end } => drop(self.release(*chunk, *start, *end)),
            Record::Acknowledge { chunk, pass: _, handling } => drop(self.acknowledge(*chunk, *handling)),
            Record::SealBag { bag, epoch } => self.seal_bag(*bag, *epoch),
            Record::DropBag { bag } => drop(self.drop_bag(*bag)),
            Record::Handle { chunk, pass, handling } => self.handle(*chunk, *handling, *pass),
            Record::Pass { bag, pass, retain } => self.bag_pass(*bag, *pass, *retain),
            // A device with one is not opened.
            Record::Newer { .. } => return false,
        }
        true
    }

    /// Refuses pushes to the bag from now on.
    pub fn seal_bag(&mut self, bag: BagId, epoch: u64) {
        let stat = self.bags.entry(bag).or_default();
        stat.sealed_epoch = Some(stat.sealed_epoch.map_or(epoch, |known| known.max(epoch)));
    }

    fn replay_append(&mut self, birth: u64, who: (ChunkId, Owner, Generation), offset: u32, payload: &Bytes) -> bool {
        let (id, owner, generation) = who;
        if !self.chunks.contains_key(&id) {
            if offset != 0 {
                return false;
            }
            self.create(id, owner, generation, birth);
        }
        self.touch(id);
        let Some(chunk) = self.chunks.0.get_mut(id) else { return true };
        if offset > chunk.length {
            return false;
        }
        chunk.generation = chunk.generation.max(generation);
        let known = (chunk.length - offset) as usize;
        if chunk.sealed || known >= payload.len() {
            return true;
        }
        let fresh = &payload[known..];
        chunk.length += fresh.len() as u32;
        let journaled = chunk.length;
        self.live += fresh.len() as u64;
        self.change_tail(id, |open| {
            open.push_tail(fresh, crc32c(fresh));
            open.journaled = journaled;
        });
        true
    }
}

/// The generation of a chunk that was handled in this pass and stays.
fn handled_in(pass: u32) -> Generation {
    Generation(u64::from(pass) + 2)
}

/// Where both streams stood when a checkpoint was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Places {
    pub data: LogPosition,
    pub journal: LogPosition,
}
