//! The engine: takes requests and finished operations, hands out operations and replies. Keeps the tags; `Core` does the work.

use crate::core::Core;
use crate::index::{Index, Run};
use crate::recover;
use crate::request::{Effect, Opened, Request, Usage};
use crate::settings::Settings;
use base::disk::{Disk, Done};
use base::error::Result;
use base::id::{ChunkId, DeviceId};
use base::limit::RECORD_PAYLOAD_MIN;
use base::planted::Planted;
use base::unit::Time;
use std::collections::BTreeMap;

/// Chunks on one device. `T` is a tag that comes back with each request's reply.
pub struct Engine<T> {
    core: Core,
    tags: BTreeMap<u64, T>,
    next_ticket: u64,
}

impl<T> Engine<T> {
    /// Opens the device: makes an empty directory a device named `new_id`, recovers any other. Blocks, and drives `disk` itself.
    ///
    /// # Errors
    /// `Unsupported`: the directory belongs to something else or another version. `Corrupt`: what the device needs to be opened
    /// is damaged. `Io`: the disk refused. `Invalid`: the settings cannot work. Nothing was changed in these cases.
    pub fn open(disk: &mut dyn Disk, settings: Settings, new_id: DeviceId, now: Time) -> Result<(Engine<T>, Opened)> {
        let (core, opened) = recover::open(disk, settings, new_id, now)?;
        Ok((Engine { core, tags: BTreeMap::new(), next_ticket: 0 }, opened))
    }

    /// Takes a request. Its reply, with `tag`, is among the effects at once or later.
    pub fn submit(&mut self, now: Time, request: Request, tag: T) {
        self.next_ticket += 1;
        self.tags.insert(self.next_ticket, tag);
        self.core.submit(now, self.next_ticket, request);
    }

    /// Gives back what waits, for room or for its turn, to change this chunk, in the order in which it came: nothing of it is done, and
    /// nothing is answered. What is left under way of the chunk is part of it for everybody who looks (`Stat`, `Read`).
    pub fn give_back(&mut self, chunk: ChunkId) -> Vec<(Request, T)> {
        let parked = self.core.give_back(chunk).into_iter();
        parked.filter_map(|parked| Some((parked.request, self.tags.remove(&parked.ticket)?))).collect()
    }

    /// Takes a finished operation of this engine.
    pub fn completed(&mut self, now: Time, done: Done) {
        self.core.completed(now, done);
    }

    /// Bytes that a read of these ranges holds until it is answered, where `answer_length` is what it sends.
    pub fn read_cost(&self, id: ChunkId, ranges: &[(u64, u64)]) -> u64 {
        self.core.planned_bytes(id, ranges, self.answer_length(id, ranges))
    }

    /// Does what is due by `now`; see `next_tick`.
    pub fn tick(&mut self, now: Time) {
        self.core.tick(now);
    }

    /// Moves what the engine wants done to `out`, in order. To be called after every batch of `submit`, `completed` and `tick`:
    /// what was submitted together is written together.
    pub fn take_effects(&mut self, out: &mut Vec<Effect<T>>) {
        self.core.pump();
        out.extend(self.core.submissions.drain(..).map(|(token, op)| Effect::Disk { token, op }));
        for (ticket, result) in self.core.replies.drain(..) {
            if let Some(tag) = self.tags.remove(&ticket) {
                out.push(Effect::Reply { tag, result });
            }
        }
    }

    /// When `tick` must be called next, if nothing happens before.
    pub fn next_tick(&self) -> Option<Time> {
        self.core.next_tick()
    }

    /// How full the device is.
    pub fn usage(&self) -> Usage {
        Usage {
            capacity: self.core.settings.capacity,
            used: self.core.used(),
            live: self.core.index.live,
            reserve: self.core.settings.reserve,
            chunks: self.core.index.chunks.len() as u64,
            // While a segment is being made the device is slow, not full: others would be told that nobody takes what they write.
            full: !self.core.waiting.is_empty() && !self.core.space.is_making(),
            failed: self.core.failed.is_some(),
            damaged: self.core.damaged.len() as u64,
        }
    }

    /// What exists, for those in this crate that look at it.
    pub(crate) fn index(&self) -> &Index {
        &self.core.index
    }

    /// Which device this is.
    pub fn device(&self) -> DeviceId {
        self.core.device
    }

    /// The chunks of a bag: id, length in bytes, whether sealed; in the order of their ids. Looks at them and at some that lie beside them.
    pub fn chunks_of(&self, bag: base::id::BagId) -> impl Iterator<Item = (ChunkId, u64, bool)> + '_ {
        self.core.index.chunks.in_bag(bag).map(|(id, chunk)| (id, u64::from(chunk.length), chunk.sealed))
    }

    /// Whether this chunk is here.
    pub fn holds(&self, chunk: ChunkId) -> bool {
        self.core.index.chunks.contains_key(&chunk)
    }

    /// Whether a chunk is complete without a byte.
    pub fn is_closed_empty(&self, chunk: ChunkId) -> bool {
        self.core.index.chunks.get(&chunk).is_some_and(|chunk| chunk.sealed && chunk.length == 0)
    }

    /// Whether a chunk was written to be read in small parts, as far as its records show.
    pub fn has_small_records(&self, chunk: ChunkId) -> bool {
        let small = |run: &Run| run.length() as usize <= RECORD_PAYLOAD_MIN;
        self.core.index.chunks.get(&chunk).is_some_and(|chunk| chunk.runs.len() > 1 && chunk.runs.iter().all(small))
    }

    /// Whether this chunk is here, or was and is remembered as acknowledged, or waits for room or for its turn.
    pub fn knows(&self, chunk: ChunkId) -> bool {
        self.holds(chunk) || self.core.index.remembered.get(chunk).is_some() || self.core.waits(chunk)
    }

    /// Whether what is to become of a push of this chunk is decided here: it is known, or was answered, given up or refused before.
    pub fn decides(&self, chunk: ChunkId) -> bool {
        self.knows(chunk) || self.core.index.remembered.is_over(chunk)
    }

    /// Hears of a push of this chunk, and that no push of its stream (`PushName`) with a lower number than `floor` is asked again.
    ///
    /// # Errors
    /// `Invalid`, `Busy`, `Full`: it must not be submitted, because more would have to be remembered than one session may want. `Full`:
    /// nor will a copy of it be taken later, so it may be pushed elsewhere under another name.
    pub fn heard_push(&mut self, chunk: ChunkId, floor: u64) -> Result<()> {
        self.core.index.remembered.heard_push(chunk, floor)
    }

    /// This push, which was heard, is refused, now and whenever it comes again: it may be pushed elsewhere under another name.
    pub fn refuse_push(&mut self, chunk: ChunkId) {
        self.core.index.remembered.refuse(chunk);
    }

    /// The sessions, by their marks and in their order behind `after`, of whose pushes and acknowledgements anything is remembered.
    pub fn sessions(&self, after: Option<u64>, limit: usize) -> Vec<u64> {
        self.core.index.remembered.sessions(after, limit)
    }

    /// These sessions are over: nothing of them is asked again, and pushes of theirs that wait are refused.
    pub fn forget_sessions(&mut self, sessions: &[u64]) {
        self.core.forget_sessions(sessions);
    }

    /// Whether this chunk of a bag is here to be handled in the bag's present pass.
    pub fn wants_handling(&self, chunk: ChunkId) -> bool {
        self.holds(chunk) && !self.core.index.is_handled(chunk)
    }

    /// A bag's counters on this device.
    pub fn bag_stat(&self, bag: base::id::BagId) -> crate::request::BagStat {
        self.core.index.bags.get(&bag).copied().unwrap_or_default()
    }

    /// Chunks of a bag that are not here any more because they were acknowledged, and that may come back: the acknowledgement is not
    /// durable yet, or never was because the device failed. How many, and their bytes.
    pub fn acknowledged_for_now(&self, bag: base::id::BagId) -> (u64, u64) {
        let durable = self.core.journal.durable;
        let unsure = self.core.acknowledged.iter().filter(|(sequence, of, _)| *sequence > durable && *of == bag);
        unsure.fold((0, 0), |(count, bytes), (.., length)| (count + 1, bytes + u64::from(*length)))
    }

    /// Chunks of a bag that are here, complete or not. Looks at none of them.
    pub fn count_of(&self, bag: base::id::BagId) -> u64 {
        self.core.index.chunks.of_bag(bag)
    }

    /// Whether chunks of a bag are here, or may be again.
    pub fn has_chunks(&self, bag: base::id::BagId) -> bool {
        self.count_of(bag) > 0 || self.acknowledged_for_now(bag).0 > 0
    }

    /// Every bag that has chunks or counters here.
    pub fn bags(&self) -> Vec<base::id::BagId> {
        let mut bags: std::collections::BTreeSet<_> = self.core.index.bags.keys().copied().collect();
        bags.extend(self.core.index.chunks.bags());
        bags.into_iter().collect()
    }

    /// The fault put in on purpose, if there is one.
    pub fn planted(&self) -> Option<Planted> {
        self.core.settings.planted
    }

    /// Writes a checkpoint soon: before a planned end, so that the next opening is quick.
    pub fn want_checkpoint(&mut self) {
        self.core.checkpoint.forced = true;
    }
}
