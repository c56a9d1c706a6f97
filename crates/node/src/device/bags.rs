//! The volatile side of the bags on one device: their queues, and the consumers that wait for a chunk to come.

use crate::device::Then;
use base::id::{BagId, ChunkId, SessionId};
use base::limit::{DEVICE_PULLS_WAITING_EACH, DEVICE_PULLS_WAITING_MAX};
use base::planted::Planted;
use base::unit::Time;
use chunk::bag::{BagQueue, QueueLength, Verdict};
use chunk::{BagStat, Check, Engine};
use net::message::bag::{PullAnswer, Pulled};
use net::{Payload, Responder};
use std::collections::{BTreeMap, BTreeSet};

/// A consumer that wants a chunk.
pub struct Waiter {
    /// Whose session it is.
    pub consumer: SessionId,
    /// The grant's name, drawn by the consumer.
    pub grant: u64,
    /// When to give up.
    pub deadline: Time,
    /// Who compares the chunk's bytes with their checksums.
    pub check: Check,
    /// Where the answer goes.
    pub respond: Responder,
}

/// What a device has counted of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BagCounts {
    /// What is durable or on its way there; of acknowledgements what is durable.
    pub stat: BagStat,
    /// Chunks that wait to be pulled.
    pub waiting: u64,
    /// Chunks granted and not yet acknowledged.
    pub granted: u64,
    /// Chunks that are there, or may be again: a device that failed has them after its next start although they were acknowledged.
    pub chunks: u64,
}

/// The bags that have chunks on a device, a push on its way there, or consumers that wait. What is asked of any other is answered without
/// an entry: whoever names bags that are not here, or are no more, costs nothing.
#[derive(Default)]
pub struct Bags {
    bags: BTreeMap<BagId, Bag>,
    /// When the first grant or wait of a bag ends, of those that have any (`Bag::due`).
    due: BTreeSet<(Time, BagId)>,
    /// How many pulls of each session wait, of those that have any; bounded by `DEVICE_PULLS_WAITING_EACH`.
    waiting: BTreeMap<SessionId, usize>,
    /// How many wait in all; bounded by `DEVICE_PULLS_WAITING_MAX`.
    waiters: usize,
    /// The number of the next one that waits.
    next: u64,
}

#[derive(Default)]
struct Bag {
    queue: BagQueue,
    /// Pushes that the engine has and has not answered: what may become chunks yet.
    pushes: usize,
    /// Consumers that wait, by their numbers, the oldest first.
    waiters: BTreeMap<u64, Waiter>,
    /// The same by when they give up.
    deadlines: BTreeSet<(Time, u64)>,
    /// What `Bags::due` has of this bag.
    due: Option<Time>,
}

impl Bags {
    /// The entry of a bag that has one, or has chunks here: then it is made of those. It stays until the last of
    /// them is gone, so they are looked at once each time that a bag comes to this device.
    fn known(&mut self, bag: BagId, engine: &Engine<Then>) -> Option<&mut Bag> {
        if engine.count_of(bag) > 0 {
            return Some(self.made(bag, engine));
        }
        self.bags.get_mut(&bag)
    }

    fn made(&mut self, bag: BagId, engine: &Engine<Then>) -> &mut Bag {
        self.bags.entry(bag).or_insert_with(|| Bag { queue: queue_of(bag, engine), ..Bag::default() })
    }

    /// To be called after each change of a bag: notes when it is due next, and lets go an entry that says no more than the engine does,
    /// which would make the same anew. One of a bag that has chunks here stays, though all of them may be handled: else each pull
    /// would look at all of them again.
    fn changed(&mut self, bag: BagId, engine: &Engine<Then>) {
        let Some(entry) = self.bags.get_mut(&bag) else { return };
        let first = entry.deadlines.first().map(|(deadline, _)| *deadline);
        let due = entry.queue.next_expiry().into_iter().chain(first).min();
        if due != entry.due {
            if let Some(before) = std::mem::replace(&mut entry.due, due) {
                self.due.remove(&(before, bag));
            }
            self.due.extend(due.map(|due| (due, bag)));
        }
        let is_idle = entry.pushes == 0 && entry.waiters.is_empty() && entry.queue.is_empty();
        if is_idle && engine.count_of(bag) == 0 {
            self.bags.remove(&bag);
        }
    }

    /// How much of a bag waits and how much is granted.
    pub fn lengths(&self, bag: BagId) -> QueueLength {
        self.bags.get(&bag).map(|entry| entry.queue.lengths()).unwrap_or_default()
    }

    /// What is counted of a bag.
    pub fn counts(&mut self, bag: BagId, engine: &Engine<Then>) -> BagCounts {
        let lengths = self.known(bag, engine).map(|entry| entry.queue.lengths()).unwrap_or_default();
        let (unsure, unsure_bytes) = engine.acknowledged_for_now(bag);
        let mut stat = engine.bag_stat(bag);
        stat.acknowledged = stat.acknowledged.saturating_sub(unsure);
        stat.acknowledged_bytes = stat.acknowledged_bytes.saturating_sub(unsure_bytes);
        BagCounts {
            stat,
            waiting: lengths.waiting as u64,
            granted: lengths.granted as u64,
            chunks: engine.count_of(bag) + unsure,
        }
    }

    /// The engine gets a push to this bag.
    pub fn push_begins(&mut self, bag: BagId, engine: &Engine<Then>) {
        self.made(bag, engine).pushes += 1;
    }

    /// The engine answered it, one way or the other. `stored`: the chunk that may be pulled from now on.
    pub fn push_ended(&mut self, bag: BagId, stored: Option<(ChunkId, u64)>, engine: &Engine<Then>) {
        let Some(entry) = self.bags.get_mut(&bag) else { return };
        entry.pushes = entry.pushes.saturating_sub(1);
        if let Some((chunk, length)) = stored {
            entry.queue.push(chunk, length);
        }
        self.changed(bag, engine);
    }

    /// A chunk for a consumer, if one is there.
    pub fn pull(
        &mut self,
        now: Time,
        bag: BagId,
        (consumer, grant): (SessionId, u64),
        engine: &Engine<Then>,
    ) -> Option<(ChunkId, u64)> {
        let pulled = self.known(bag, engine)?.queue.pull(now, consumer, grant);
        self.changed(bag, engine);
        pulled
    }

    /// Prolongs those of these grants that are live. Of a bag without an entry none is.
    pub fn renew(
        &mut self,
        now: Time,
        bag: BagId,
        grants: Vec<(ChunkId, u64)>,
        consumer: SessionId,
        engine: &Engine<Then>,
    ) {
        let Some(entry) = self.bags.get_mut(&bag) else { return };
        for (chunk, grant) in grants {
            entry.queue.renew(now, chunk, grant, consumer);
        }
        self.changed(bag, engine);
    }

    /// Which of these acknowledgements may be made durable, in their order.
    pub fn acknowledge(
        &mut self,
        now: Time,
        bag: BagId,
        grants: &[(ChunkId, u64)],
        consumer: SessionId,
        engine: &Engine<Then>,
    ) -> Vec<Verdict> {
        let Some(entry) = self.known(bag, engine) else { return vec![Verdict::Unknown; grants.len()] };
        let verdict = |(chunk, grant): &(ChunkId, u64)| entry.queue.acknowledge(now, *chunk, (*grant, consumer));
        let verdicts = grants.iter().map(verdict).collect();
        self.changed(bag, engine);
        verdicts
    }

    /// These acknowledgements are durable.
    pub fn acknowledged(&mut self, bag: BagId, chunks: Vec<ChunkId>, engine: &Engine<Then>) {
        let Some(entry) = self.bags.get_mut(&bag) else { return };
        chunks.into_iter().for_each(|chunk| entry.queue.acknowledged(chunk));
        self.changed(bag, engine);
    }

    /// A new pass has begun: every chunk that is there waits again, and no grant counts any more.
    pub fn rewound(&mut self, bag: BagId, engine: &Engine<Then>) {
        if let Some(entry) = self.bags.get_mut(&bag) {
            entry.queue = queue_of(bag, engine);
            self.changed(bag, engine);
        }
    }

    /// Lets a consumer to whom `pull` gave nothing wait for a chunk to come, or answers at once if none will or it does not want to, or if
    /// too many wait. `ended`: none will, although the bag is not sealed.
    pub fn wait(&mut self, now: Time, bag: BagId, waiter: Waiter, ended: bool, engine: &Engine<Then>) {
        let stat = engine.bag_stat(bag);
        let ended = ended || stat.sealed_epoch.is_some();
        let lengths = self.lengths(bag);
        if ended && self.bags.get(&bag).is_none_or(|entry| entry.is_empty(engine)) {
            return answer_empty(waiter, Pulled::Ended, lengths, stat.pass);
        }
        let of_session = self.waiting.get(&waiter.consumer).copied().unwrap_or(0);
        if waiter.deadline <= now || of_session >= DEVICE_PULLS_WAITING_EACH || self.waiters >= DEVICE_PULLS_WAITING_MAX
        {
            return answer_empty(waiter, Pulled::Nothing, lengths, stat.pass);
        }
        *self.waiting.entry(waiter.consumer).or_default() += 1;
        self.waiters += 1;
        self.next += 1;
        let number = self.next;
        let entry = self.made(bag, engine);
        entry.deadlines.insert((waiter.deadline, number));
        entry.waiters.insert(number, waiter);
        self.changed(bag, engine);
    }

    /// One that waited does so no more.
    fn take(&mut self, bag: BagId, number: u64) -> Option<Waiter> {
        let entry = self.bags.get_mut(&bag)?;
        let waiter = entry.waiters.remove(&number)?;
        entry.deadlines.remove(&(waiter.deadline, number));
        self.waiters -= 1;
        if let Some(count) = self.waiting.get_mut(&waiter.consumer) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&waiter.consumer);
            }
        }
        Some(waiter)
    }

    /// The next chunk for a consumer that waits. When the bag has ended, all who wait are told so.
    pub fn next_served(&mut self, now: Time, bag: BagId, engine: &Engine<Then>) -> Option<(ChunkId, u64, Waiter)> {
        let stat = engine.bag_stat(bag);
        let entry = self.bags.get_mut(&bag)?;
        if stat.sealed_epoch.is_some() && entry.is_empty(engine) {
            let (numbers, lengths): (Vec<u64>, _) = (entry.waiters.keys().copied().collect(), entry.queue.lengths());
            for number in numbers {
                if let Some(waiter) = self.take(bag, number) {
                    answer_empty(waiter, Pulled::Ended, lengths, stat.pass);
                }
            }
            self.changed(bag, engine);
            return None;
        }
        let (number, waiter) = entry.waiters.first_key_value()?;
        let (number, pulled) = (*number, entry.queue.pull(now, waiter.consumer, waiter.grant));
        let served = pulled.and_then(|(chunk, length)| Some((chunk, length, self.take(bag, number)?)));
        self.changed(bag, engine);
        served
    }

    /// Reads the bag anew from the device at its next use; those who wait stay.
    pub fn forget_state(&mut self, bag: BagId, engine: &Engine<Then>) {
        if let Some(entry) = self.bags.get_mut(&bag)
            && !engine.has_chunks(bag)
        {
            entry.queue = BagQueue::default();
        }
        self.changed(bag, engine);
    }

    /// Ends grants and waits that are over; returns the bags that may have something to give again. Looks at no others.
    pub fn expire(&mut self, now: Time, engine: &Engine<Then>) -> Vec<BagId> {
        let over: Vec<BagId> = self.due.iter().take_while(|(due, _)| *due <= now).map(|(_, bag)| *bag).collect();
        for bag in &over {
            let Some(entry) = self.bags.get_mut(bag) else { continue };
            entry.queue.expire(now);
            let lengths = entry.queue.lengths();
            let ended = entry.deadlines.iter().take_while(|(deadline, _)| *deadline <= now);
            let mut ended: Vec<u64> = ended.map(|(_, number)| *number).collect();
            ended.sort_unstable();
            for number in ended {
                if let Some(waiter) = self.take(*bag, number) {
                    answer_empty(waiter, Pulled::Nothing, lengths, engine.bag_stat(*bag).pass);
                }
            }
            self.changed(*bag, engine);
        }
        over
    }

    /// Marks of the sessions that hold grants or wait, in order: those above `after`, at most `limit`.
    pub fn holders(&self, after: Option<u64>, limit: usize) -> Vec<u64> {
        let is_after = |mark: &u64| after.is_none_or(|after| *mark > after);
        let waiting = self.waiting.keys().map(|session| session.mark()).filter(is_after);
        // Who holds a grant makes its bag due some day.
        let entries = self.due.iter().filter_map(|(_, bag)| self.bags.get(bag));
        let found: BTreeSet<u64> = entries.flat_map(|entry| entry.queue.holders(after, limit)).chain(waiting).collect();
        found.into_iter().take(limit).collect()
    }

    /// Sessions of these marks are over: their grants and waits end. Returns the bags that may have something to give again.
    pub fn sessions_over(&mut self, marks: &[u64], engine: &Engine<Then>) -> Vec<BagId> {
        let due: Vec<BagId> = self.due.iter().map(|(_, bag)| *bag).collect();
        // Bags and sessions may be many, and few sessions have something of a bag: each bag is asked who has something of it.
        let marks: BTreeSet<u64> = marks.iter().copied().collect();
        let mut released = Vec::new();
        for bag in due {
            let Some(entry) = self.bags.get_mut(&bag) else { continue };
            let holders = entry.queue.holders(None, usize::MAX).into_iter().filter(|mark| marks.contains(mark));
            let gave_back = holders.filter(|mark| entry.queue.release(*mark)).count();
            if gave_back > 0 {
                released.push(bag);
            }
            let lengths = entry.queue.lengths();
            let over = entry.waiters.iter().filter(|(_, waiter)| marks.contains(&waiter.consumer.mark()));
            let over: Vec<u64> = over.map(|(number, _)| *number).collect();
            for number in over {
                if let Some(waiter) = self.take(bag, number) {
                    answer_empty(waiter, Pulled::Nothing, lengths, engine.bag_stat(bag).pass);
                }
            }
            self.changed(bag, engine);
        }
        released
    }

    /// When `expire` must be called next.
    pub fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(due, _)| *due)
    }
}

impl Bag {
    /// No chunk is there to be handled, and none that was accepted is on its way to the disk.
    fn is_empty(&self, engine: &Engine<Then>) -> bool {
        self.queue.is_empty() && (self.pushes == 0 || engine.planted() == Some(Planted::EndedBeforeDurable))
    }
}

/// The chunks of a bag on this device that were not handled in its present pass.
fn queue_of(bag: BagId, engine: &Engine<Then>) -> BagQueue {
    let wanted = |(chunk, _, sealed): &(ChunkId, u64, bool)| *sealed && engine.wants_handling(*chunk);
    let mut queue = BagQueue::new(engine.chunks_of(bag).filter(wanted).map(|(chunk, length, _)| (chunk, length)));
    queue.planted = engine.planted();
    queue
}

fn answer_empty(waiter: Waiter, pulled: Pulled, lengths: QueueLength, pass: u32) {
    let answer = PullAnswer {
        pulled: pulled as i32,
        pass,
        waiting: lengths.waiting as u64,
        granted: lengths.granted as u64,
        ..PullAnswer::default()
    };
    waiter.respond.answer(answer, Payload::empty());
}

#[cfg(test)]
mod tests;
