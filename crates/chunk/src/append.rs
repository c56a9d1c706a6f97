//! Changes: append, seal, fence, delete, release, and those of bags. Each is checked against the index, applied to it, put
//! into the log and answered when the log has it.

use crate::admission::LARGE;
use crate::core::Core;
use crate::format::{JOURNAL_PAYLOAD_MAX, Record, is_cell};
use crate::index::Recent;
use crate::piece::Way;
use crate::request::{Asking, Handling, Reply, Request};
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, Generation, Owner};
use base::limit::CHUNK_MAX;
use base::planted::Planted;
use base::policy::Level;
use bytes::Bytes;

/// The error about a chunk that is not here.
pub(crate) fn missing(chunk: ChunkId) -> Error {
    Error::new(ErrorKind::NotFound, format!("chunk {chunk} is not on this device; ask the namespace where it is now"))
}

fn stale_generation(chunk: ChunkId, have: Generation, got: Generation) -> Error {
    Error::new(
        ErrorKind::Stale,
        format!(
            "chunk {chunk} has generation {have}, the request {got}: another writer took over; open the file again"
        ),
    )
}

fn not_of_a_bag(id: ChunkId) -> Error {
    let text = format!("chunk {id} is not a complete chunk of a bag; only those are acknowledged");
    Error::new(ErrorKind::Invalid, text)
}

/// With the fault put in that chunks which were handled are forgotten by count, so many are remembered.
const FORGOTTEN_BEYOND: usize = 4;

/// An append taken apart.
pub(crate) struct Append {
    pub chunk: ChunkId,
    owner: Owner,
    generation: Generation,
    offset: u64,
    level: Level,
    pub seal: bool,
    pub small_parts: bool,
    /// Bytes of the chunk that the payload stands for; 0: for itself.
    pub cell: u64,
}

impl Append {
    /// Bytes by which the chunk grows.
    fn length(&self, payload: &Bytes) -> u64 {
        self.cell.max(payload.len() as u64)
    }
}

/// What an append is to do.
enum Course {
    /// Its bytes come next.
    Go,
    /// Its bytes are there.
    Retry,
    /// So many of its first bytes are there: the node was killed between two of its records. The others come next.
    Rest(usize),
    /// Its chunk was consumed; the length it had.
    Consumed(u64),
}

impl Core {
    /// Handles an append. Gives the request back if there is no room for it now.
    pub fn append(&mut self, ticket: u64, request: Request) -> Option<Request> {
        let Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, small_parts, cell } =
            request
        else {
            unreachable!("only appends come here");
        };
        let append = Append { chunk, owner, generation, offset, level, seal, small_parts, cell };
        match self.course(&append, &payload, sums.whole()) {
            Err(error) => {
                // Whatever is still on its way of a push that is refused must not be stored: it is pushed elsewhere.
                if matches!(owner, Owner::Bag(_)) && !self.index.chunks.contains_key(&chunk) {
                    self.index.remembered.refuse(chunk);
                }
                self.reply(ticket, Err(error));
            }
            Ok(Course::Consumed(length)) => {
                self.reply_at(level, [0, self.journal.last], ticket, Reply::Appended { length });
            }
            Ok(Course::Retry) => self.bring_to(&append, ticket),
            Ok(Course::Rest(there)) => {
                let (offset, payload) = (offset + there as u64, payload.slice(there..));
                let sums = BlockSums::of(&payload);
                let (small_parts, cell) = (false, 0);
                return self.append(
                    ticket,
                    Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, small_parts, cell },
                );
            }
            Ok(Course::Go) => {
                if !self.room_for_append(&append, payload.len()) {
                    return Some(Request::Append {
                        chunk,
                        owner,
                        generation,
                        offset,
                        payload,
                        sums,
                        level,
                        seal,
                        small_parts,
                        cell,
                    });
                }
                let small = payload.len() < LARGE;
                self.take_in(&append, payload, &sums);
                if small && append.level == Level::Synced {
                    self.data.hurry(self.needs(append.chunk)[0].max(self.piled_up_behind()));
                }
                self.bring_to(&append, ticket);
            }
        }
        None
    }

    /// What to do with an append, or why it is refused.
    fn course(&self, append: &Append, payload: &Bytes, crc: u32) -> Result<Course> {
        let Append { chunk: id, owner, generation, offset, .. } = *append;
        let end = offset.saturating_add(append.length(payload));
        let fits =
            is_cell(payload.len() as u64, append.cell) && !append.small_parts && matches!(owner, Owner::Group(_));
        if append.cell > 0 && !fits {
            let text = format!(
                "{} bytes were to stand for {} bytes of chunk {id}, which they cannot; nothing was stored",
                payload.len(),
                append.cell
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if end > CHUNK_MAX {
            let text =
                format!("chunk {id} would grow to {end} bytes, the largest has {CHUNK_MAX}; start another chunk");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let Some(chunk) = self.index.chunks.get(&id) else {
            if let Some(recent) = self.index.remembered.get(id)
                && self.settings.planted != Some(Planted::RetriedPushRepeated)
            {
                return Ok(Course::Consumed(u64::from(recent.length)));
            }
            if matches!(owner, Owner::Bag(_)) && self.index.remembered.is_over(id) {
                let text = format!(
                    "the push of chunk {id} was answered, given up or refused before; it was not stored again; push it under another name"
                );
                return Err(Error::new(ErrorKind::Stale, text));
            }
            if let Owner::Bag(bag) = owner
                && self.index.bags.get(&bag).is_some_and(|stat| stat.sealed_epoch.is_some())
            {
                let text = format!("bag {bag} is sealed and takes no more chunks; chunk {id} was not stored");
                return Err(Error::new(ErrorKind::Stale, text));
            }
            return if offset == 0 { Ok(Course::Go) } else { Err(missing(id)) };
        };
        if chunk.owner != owner {
            let text = format!("chunk {id} belongs to {:?}, not to {owner:?}; nothing was stored", chunk.owner);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        // A push may be asked again after its chunk was handled, which raised the generation; it changes nothing.
        let obeyed = self.settings.planted == Some(Planted::OldGenerationAccepted);
        if generation < chunk.generation && !matches!(owner, Owner::Bag(_)) && !obeyed {
            return Err(stale_generation(id, chunk.generation, generation));
        }
        let length = u64::from(chunk.length);
        let tail_start = self.index.open.get(&id).map_or(length, |open| u64::from(open.flushed));
        if end <= length && !(offset == length && append.seal && !chunk.sealed) {
            let same = match self.index.open.get(&id) {
                Some(open) if offset >= tail_start => {
                    // What stands for other bytes is never in a tail, and so is not the same.
                    let start = (offset - tail_start) as usize;
                    append.cell == 0
                        && open.tail.get(start..start + payload.len()).is_some_and(|bytes| bytes == payload)
                }
                // The whole chunk again, as a retried push is: its checksum tells.
                _ if offset == 0 && end == length => self.index.stat(id).is_some_and(|stat| stat.crc == crc),
                _ => true,
            };
            if same && (!append.seal || chunk.sealed || end == length) {
                return Ok(Course::Retry);
            }
        }
        if self.goes_on(append, payload, length) {
            return Ok(Course::Rest((length - offset) as usize));
        }
        if chunk.sealed || offset != length {
            let state = if chunk.sealed { "is sealed with" } else { "holds" };
            let text =
                format!("chunk {id} {state} {length} bytes, the append was for {offset}..{end}; go on from its length");
            return Err(Error::new(ErrorKind::Stale, text));
        }
        Ok(Course::Go)
    }

    /// Whether the chunk ends within this append, with bytes of it, and takes the rest: as a process that was killed leaves one of which some
    /// records were written. Bytes under this generation at these places are this writer's, which asks again for what it sent. Small files, which
    /// are not all of one writer's stream, go elsewhere instead.
    fn goes_on(&self, append: &Append, payload: &Bytes, length: u64) -> bool {
        let Some(chunk) = self.index.chunks.get(&append.chunk) else { return false };
        let within = append.offset < length && length < append.offset + payload.len() as u64;
        let plain = append.cell == 0 && !append.small_parts && matches!(append.owner, Owner::Group(_));
        if !within || !plain || chunk.sealed || append.generation != chunk.generation {
            return false;
        }
        let Some(open) = self.index.open.get(&append.chunk) else { return false };
        // What is still in memory can be compared.
        let from = append.offset.max(u64::from(open.flushed));
        let (in_tail, in_append) = ((from - u64::from(open.flushed)) as usize, (from - append.offset) as usize);
        let there = (length - append.offset) as usize;
        in_append >= there || open.tail.get(in_tail..).is_some_and(|tail| *tail == payload[in_append..there])
    }

    /// Takes the bytes into the chunk, which is made if need be.
    fn take_in(&mut self, append: &Append, payload: Bytes, sums: &BlockSums) {
        assert_eq!(payload.len(), sums.length(), "checksums of other bytes came with an append");
        let id = append.chunk;
        let way = self.way(append, payload.len());
        if !self.index.chunks.contains_key(&id) {
            let birth = self.sequence();
            self.index.create(id, append.owner, append.generation, birth);
            let behind = self.deleted;
            if let Some(open) = self.index.open_mut(id) {
                open.behind = behind;
            }
        }
        if append.small_parts {
            self.index.make_small(id);
        }
        let length = append.length(&payload) as u32;
        if let Some(chunk) = self.index.chunk_mut(id) {
            chunk.length += length;
            chunk.generation = chunk.generation.max(append.generation);
        }
        self.index.live += u64::from(length);
        match way {
            Way::Cell => self.put_cell(id, (&payload, sums.blocks()), append.cell, append.seal),
            Way::Records => self.put_records(id, payload, sums.blocks(), append.seal),
            Way::Tail { folds } => {
                if folds {
                    self.put_records(id, Bytes::new(), &[], false);
                }
                self.gather_tail(id, &payload, sums.whole());
                if append.seal {
                    self.finish(id);
                }
            }
        }
    }

    fn gather_tail(&mut self, id: ChunkId, payload: &Bytes, crc: u32) {
        let Some(open) = self.index.open_mut(id) else { return };
        if open.tail.is_empty() && !payload.is_empty() {
            open.journaled = open.flushed;
            self.tail_order.push_back((id, open.birth));
        }
        self.index.push_tail(id, payload, crc);
    }

    /// Seals a chunk whose bytes are all received: with its tail in a data record, else with a journal record.
    pub fn finish(&mut self, id: ChunkId) {
        let Some(open) = self.index.open.get(&id) else { return };
        if open.tail.is_empty() {
            let crc = open.crc();
            self.seal_in_journal(id, crc);
        } else {
            self.put_records(id, Bytes::new(), &[], true);
        }
    }

    fn seal_in_journal(&mut self, id: ChunkId, crc: u32) {
        let Some(chunk) = self.index.chunks.get(&id) else { return };
        let (owner, generation, length) = (chunk.owner, chunk.generation, chunk.length);
        let sequence = self.record(Record::Seal { chunk: id, owner, generation, length, crc });
        if let Some(open) = self.index.open_mut(id) {
            open.last_journal = sequence;
        }
        self.index.seal(id, crc);
        self.closing.push_back(id);
    }

    /// Puts the tail's unjournaled bytes into the journal if the level asks for it, and answers when all of the chunk is there.
    fn bring_to(&mut self, append: &Append, ticket: u64) {
        if append.level > Level::Received {
            self.journal_tail(append.chunk);
        }
        let [data, journal] = self.needs(append.chunk);
        let needs = [data.max(self.piled_up_behind()), journal];
        let length = self.index.chunks.get(&append.chunk).map_or(0, |chunk| u64::from(chunk.length));
        self.reply_at(append.level, needs, ticket, Reply::Appended { length });
    }

    /// The last sequence numbers of the chunk in both streams.
    fn needs(&self, id: ChunkId) -> [u64; 2] {
        let sealed = self.index.chunks.get(&id).is_some_and(|chunk| chunk.sealed);
        self.index.open.get(&id).map_or([0, 0], |open| open.needs(sealed))
    }

    fn journal_tail(&mut self, id: ChunkId) {
        let Some(chunk) = self.index.chunks.get(&id) else { return };
        let (owner, generation, empty) = (chunk.owner, chunk.generation, chunk.length == 0);
        let Some(open) = self.index.open_mut(id) else { return };
        let (flushed, from) = (open.flushed, open.journaled.max(open.flushed));
        // A chunk of no bytes has to be there after a restart, too.
        let alone = empty && open.last_journal == 0;
        let tail = std::mem::take(&mut open.tail);
        let (mut last, head) = (None, (id, owner, generation));
        let mut put = |core: &mut Core, offset, payload: &[u8]| {
            let sequence = core.sequence();
            core.gather_encoded(sequence, |out| Record::encode_append(head, offset, payload, sequence, out));
            last = Some(sequence);
        };
        for (place, piece) in tail[(from - flushed) as usize..].chunks(JOURNAL_PAYLOAD_MAX).enumerate() {
            put(self, from + (place * JOURNAL_PAYLOAD_MAX) as u32, piece);
        }
        if alone {
            put(self, 0, &[]);
        }
        if let Some(open) = self.index.open_mut(id) {
            open.journaled = (flushed + tail.len() as u32).max(open.journaled);
            open.last_journal = last.unwrap_or(open.last_journal);
            open.tail = tail;
        }
    }

    /// Handles a seal. False: its tail has no room now.
    pub fn seal(&mut self, ticket: u64, id: ChunkId, generation: Generation, length: u64) -> bool {
        let Some(chunk) = self.index.chunks.get(&id) else {
            self.reply(ticket, Err(missing(id)));
            return true;
        };
        if generation < chunk.generation {
            let error = stale_generation(id, chunk.generation, generation);
            self.reply(ticket, Err(error));
            return true;
        }
        let have = chunk.length;
        if u64::from(have) != length {
            let text =
                format!("chunk {id} holds {have} bytes, the seal was for {length}; append what is missing first");
            self.reply(ticket, Err(Error::new(ErrorKind::Stale, text)));
            return true;
        }
        if !chunk.sealed {
            if !self.fold_to_last(id) {
                return false;
            }
            if let Some(chunk) = self.index.chunk_mut(id) {
                chunk.generation = generation;
            }
            self.finish(id);
        }
        let crc = self.index.stat(id).map_or(0, |stat| stat.crc);
        let needs = self.needs(id);
        self.reply_at(Level::Synced, needs, ticket, Reply::Sealed { length, crc });
        true
    }

    /// Handles a fence.
    pub fn fence(&mut self, ticket: u64, id: ChunkId, generation: Generation) {
        let Some(chunk) = self.index.chunk_mut(id) else {
            self.reply(ticket, Err(missing(id)));
            return;
        };
        if generation < chunk.generation {
            let error = stale_generation(id, chunk.generation, generation);
            self.reply(ticket, Err(error));
            return;
        }
        chunk.generation = generation;
        let length = u64::from(chunk.length);
        self.journal_tail(id);
        let sequence = self.record(Record::Fence { chunk: id, generation });
        let [data, _] = self.needs(id);
        if let Some(open) = self.index.open_mut(id) {
            open.last_journal = sequence;
        }
        self.reply_at(Level::Synced, [data, sequence], ticket, Reply::Length(length));
    }

    /// Handles a delete.
    pub fn delete(&mut self, ticket: u64, chunks: &[ChunkId]) {
        for chunk in chunks {
            if self.index.chunks.contains_key(chunk) {
                self.deleted = self.record(Record::Delete { chunk: *chunk });
                let runs = self.index.remove(*chunk);
                self.bury(&runs);
            }
        }
        // A retry of a delete whose record is under way waits for it, too.
        self.reply_at(Level::Synced, [0, self.journal.last], ticket, Reply::Done);
    }

    /// Handles a release.
    pub fn release(&mut self, ticket: u64, chunk: ChunkId, ranges: &[(u64, u64)]) {
        if !self.index.chunks.contains_key(&chunk) {
            self.reply(ticket, Err(missing(chunk)));
            return;
        }
        let bound = |at: u64| at.min(CHUNK_MAX) as u32;
        let ranges = ranges.iter().map(|(offset, length)| (bound(*offset), bound(offset.saturating_add(*length))));
        let flushed = self.index.open.get(&chunk).map_or(u32::MAX, |open| open.flushed);
        if ranges.clone().any(|(_, end)| end > flushed) {
            // The chunk may be known by its tail alone: a replay has to find it before it finds what of it is released.
            self.journal_tail(chunk);
        }
        for (start, end) in ranges {
            self.record(Record::Release { chunk, start, end });
            let runs = self.index.release(chunk, start, end);
            self.bury(&runs);
        }
        let [data, _] = self.needs(chunk);
        self.reply_at(Level::Synced, [data, self.journal.last], ticket, Reply::Done);
    }

    /// Handles acknowledgements.
    pub fn acknowledge(
        &mut self,
        ticket: u64,
        chunks: &[(ChunkId, u64)],
        (pass, retain): (u32, bool),
        by: Option<Asking>,
    ) {
        if let Some(asking) = &by
            && let Err(error) = self.index.remembered.heard_acknowledgement(asking)
        {
            return self.reply(ticket, Err(error));
        }
        let mut data = 0;
        let mut results = Vec::with_capacity(chunks.len());
        let retain = retain && self.settings.planted != Some(Planted::JoinerNotToldOfPass);
        for (chunk, grant) in chunks {
            if retain {
                self.learn_retain(*chunk);
            }
            let verdict = self.may_acknowledge(*chunk, *grant, pass, by);
            if let Ok(true) = verdict {
                data = data.max(self.needs(*chunk)[0]);
                let handling = Handling { grant: *grant, by, push_floor: self.index.remembered.push_floor(*chunk) };
                if self.index.retains(*chunk) {
                    self.record(Record::Handle { chunk: *chunk, pass, handling });
                    self.index.handle(*chunk, handling, pass);
                } else {
                    let sequence = self.record(Record::Acknowledge { chunk: *chunk, pass, handling });
                    if let Some((bag, length)) = self.bag_of(*chunk) {
                        self.acknowledged.push_back((sequence, bag, length));
                    }
                    let runs = self.index.acknowledge(*chunk, handling);
                    self.bury(&runs);
                }
                if self.settings.planted == Some(Planted::HandledForgottenByCount) {
                    self.index.remembered.keep_last(*chunk, FORGOTTEN_BEYOND);
                }
            }
            results.push(verdict.map(drop));
        }
        self.reply_at(Level::Synced, [data, self.journal.last], ticket, Reply::Acknowledged { results });
    }

    /// The bag that a chunk is of, and the chunk's length.
    fn bag_of(&self, chunk: ChunkId) -> Option<(BagId, u32)> {
        let chunk = self.index.chunks.get(&chunk)?;
        match chunk.owner {
            Owner::Bag(bag) => Some((bag, chunk.length)),
            Owner::Group(_) | Owner::Newer(_) => None,
        }
    }

    /// The bag of this chunk retains.
    fn learn_retain(&mut self, chunk: ChunkId) {
        let Some(Owner::Bag(bag)) = self.index.chunks.get(&chunk).map(|chunk| chunk.owner) else { return };
        let known = self.index.bags.get(&bag).copied().unwrap_or_default();
        if !known.retain {
            self.record(Record::Pass { bag, pass: known.pass, retain: true });
            self.index.bag_pass(bag, known.pass, true);
        }
    }

    /// True: it is to be recorded; false: it was already.
    fn may_acknowledge(&self, id: ChunkId, grant: u64, pass: u32, by: Option<Asking>) -> Result<bool> {
        let other_grant = || {
            let text = format!("chunk {id} was acknowledged under another grant; discard what was made of it");
            Err(Error::new(ErrorKind::Stale, text))
        };
        let recent = self.index.remembered.get(id);
        let is_same = |recent: Recent| {
            let sessions = recent.by.zip(by).map(|((session, _), by)| (session, by.session));
            recent.grant == grant && sessions.is_none_or(|(one, other)| one == other)
        };
        if recent.is_some_and(is_same) {
            return Ok(false);
        }
        let Some(chunk) = self.index.chunks.get(&id) else {
            return match recent {
                Some(_) if self.settings.planted == Some(Planted::EndedGrantAccepted) => Ok(false),
                Some(_) => other_grant(),
                None => Err(missing(id)),
            };
        };
        let Owner::Bag(bag) = chunk.owner else { return Err(not_of_a_bag(id)) };
        if !chunk.sealed {
            return Err(not_of_a_bag(id));
        }
        let present = self.index.bags.get(&bag).map_or(0, |stat| stat.pass);
        if pass != present && self.settings.planted != Some(Planted::WrongPassAccepted) {
            let text = format!(
                "pass {pass} of bag {bag} is over, it was rewound and is in pass {present}; discard what was made of chunk {id}"
            );
            return Err(Error::new(ErrorKind::Stale, text));
        }
        if self.index.is_handled(id) { other_grant() } else { Ok(true) }
    }

    /// Handles the beginning of a pass.
    pub fn bag_pass(&mut self, ticket: u64, bag: BagId, pass: u32, retain: bool) {
        let known = self.index.bags.get(&bag).copied().unwrap_or_default();
        if pass > known.pass || retain && !known.retain {
            self.record(Record::Pass { bag, pass, retain });
            self.index.bag_pass(bag, pass, retain);
        }
        self.reply_at(Level::Synced, [0, self.journal.last], ticket, Reply::Done);
    }

    /// Handles the sealing of a bag.
    pub fn seal_bag(&mut self, ticket: u64, bag: BagId, epoch: u64) {
        if self.index.bags.get(&bag).and_then(|stat| stat.sealed_epoch) != Some(epoch) {
            self.record(Record::SealBag { bag, epoch });
            self.index.seal_bag(bag, epoch);
        }
        self.reply_at(Level::Synced, [0, self.journal.last], ticket, Reply::Done);
    }

    /// Handles the return of a device into a bag that it has left. Asked late or twice, it finds chunks that came since, and leaves them.
    pub fn readmit_bag(&mut self, ticket: u64, bag: BagId) {
        let is_sealed = self.index.bags.get(&bag).is_some_and(|stat| stat.sealed_epoch.is_some());
        if is_sealed && self.index.chunks.of_bag(bag) == 0 {
            return self.drop_bag(ticket, bag);
        }
        self.reply_at(Level::Synced, [0, self.journal.last], ticket, Reply::Done);
    }

    /// Handles the end of a bag.
    pub fn drop_bag(&mut self, ticket: u64, bag: BagId) {
        self.record(Record::DropBag { bag });
        let runs = self.index.drop_bag(bag);
        self.bury(&runs);
        self.reply_at(Level::Synced, [0, self.journal.last], ticket, Reply::Done);
    }
}
