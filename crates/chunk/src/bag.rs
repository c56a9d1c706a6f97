//! The queue of a bag on one device, in memory: which chunk is granted to which consumer, and when a grant ends.

use base::id::{ChunkId, SessionId};
use base::limit::GRANT_LEASE;
use base::planted::Planted;
use base::unit::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The chunks of one bag on one device that are not acknowledged yet: waiting, or given to a consumer for a while.
/// A pure state machine; what is durable (which chunks exist, which are acknowledged) is the engine's.
#[derive(Debug, Default)]
pub struct BagQueue {
    /// Chunks to give, the oldest first. May name chunks that are gone or given by now: `chunks` decides.
    waiting: VecDeque<ChunkId>,
    chunks: BTreeMap<ChunkId, Entry>,
    /// Live grants by their end.
    ends: BTreeSet<(Time, ChunkId)>,
    /// Live grants by whose they are and their number: a pull asked again gets the same chunk, and a session that is over gives all back.
    grants: BTreeMap<(SessionId, u64), ChunkId>,
    waiting_count: usize,
    waiting_bytes: u64,
    /// A fault put in on purpose, by the simulation alone.
    pub planted: Option<Planted>,
}

#[derive(Debug)]
struct Entry {
    length: u64,
    granted: Option<Granted>,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    grant: u64,
    consumer: SessionId,
    end: Time,
    /// An acknowledgement under it was accepted and is not durable yet.
    acknowledging: bool,
}

/// Whether an acknowledgement may be made durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Hand it to the engine.
    Accept,
    /// The chunk is not in this queue: the engine, which remembers recent acknowledgements, decides.
    Unknown,
    /// The consumer must discard what it made of the chunk; the text says why.
    Refuse(&'static str),
}

/// How much waits, as it rides on every reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueLength {
    /// Chunks that can be pulled now.
    pub waiting: usize,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Chunks that are given and neither acknowledged nor taken back.
    pub granted: usize,
}

impl BagQueue {
    /// A queue of these chunks (id, length in bytes), all waiting, in this order. After a restart: the chunks that exist.
    pub fn new(chunks: impl IntoIterator<Item = (ChunkId, u64)>) -> BagQueue {
        let mut queue = BagQueue::default();
        for (chunk, length) in chunks {
            queue.push(chunk, length);
        }
        queue
    }

    /// Adds a complete chunk of `length` bytes. One that is there already stays as it is (a retried push).
    pub fn push(&mut self, chunk: ChunkId, length: u64) {
        if self.chunks.contains_key(&chunk) {
            return;
        }
        self.chunks.insert(chunk, Entry { length, granted: None });
        self.waiting.push_back(chunk);
        self.waiting_count += 1;
        self.waiting_bytes += length;
    }

    /// Gives the oldest waiting chunk to `consumer` under `grant` for `GRANT_LEASE`. The consumer draws the grant's number;
    /// asking again under a live grant gives the same chunk (the first answer may have been lost).
    pub fn pull(&mut self, now: Time, consumer: SessionId, grant: u64) -> Option<(ChunkId, u64)> {
        self.expire(now);
        if let Some(chunk) = self.grants.get(&(consumer, grant)).copied()
            && self.renew(now, chunk, grant, consumer)
        {
            return self.chunks.get(&chunk).map(|entry| (chunk, entry.length));
        }
        while let Some(chunk) = self.waiting.pop_front() {
            let Some(entry) = self.chunks.get_mut(&chunk) else { continue };
            if entry.granted.is_some() {
                continue;
            }
            let end = now.after(GRANT_LEASE);
            entry.granted = Some(Granted { grant, consumer, end, acknowledging: false });
            self.ends.insert((end, chunk));
            self.grants.insert((consumer, grant), chunk);
            self.waiting_count -= 1;
            self.waiting_bytes -= entry.length;
            return Some((chunk, entry.length));
        }
        None
    }

    /// Prolongs a live grant to `GRANT_LEASE` from now. False: the grant has ended, the chunk may be with somebody else.
    pub fn renew(&mut self, now: Time, chunk: ChunkId, grant: u64, consumer: SessionId) -> bool {
        self.expire(now);
        let Some(Entry { granted: Some(granted), .. }) = self.chunks.get_mut(&chunk) else { return false };
        if (granted.grant, granted.consumer) != (grant, consumer) {
            return false;
        }
        self.ends.remove(&(granted.end, chunk));
        granted.end = now.after(GRANT_LEASE);
        self.ends.insert((granted.end, chunk));
        true
    }

    /// Whether an acknowledgement under a grant by this consumer may be made durable: the chunk is there and nobody else holds a live
    /// grant on it, nor another session one of that number. So one that comes after its grant ended, or after a restart, is good as long as the chunk was not given again.
    /// The chunk is not given to anybody while its acknowledgement is under way: it counts as granted until `acknowledged`
    /// or the grant's end.
    pub fn acknowledge(&mut self, now: Time, chunk: ChunkId, (grant, consumer): (u64, SessionId)) -> Verdict {
        self.expire(now);
        let Some(entry) = self.chunks.get_mut(&chunk) else { return Verdict::Unknown };
        match &mut entry.granted {
            Some(granted) if (granted.grant, granted.consumer) == (grant, consumer) => {
                granted.acknowledging = true;
                Verdict::Accept
            }
            Some(_) => Verdict::Refuse(
                "the grant ended and the chunk was given to another consumer; discard what was made of it",
            ),
            None => {
                let end = now.after(GRANT_LEASE);
                entry.granted = Some(Granted { grant, consumer, end, acknowledging: true });
                self.ends.insert((end, chunk));
                self.grants.insert((consumer, grant), chunk);
                self.waiting_count -= 1;
                self.waiting_bytes -= entry.length;
                Verdict::Accept
            }
        }
    }

    /// The acknowledgement is durable (or the chunk was deleted): the chunk is gone.
    pub fn acknowledged(&mut self, chunk: ChunkId) {
        let Some(entry) = self.chunks.remove(&chunk) else { return };
        match entry.granted {
            Some(granted) => {
                self.ends.remove(&(granted.end, chunk));
                self.grants.remove(&(granted.consumer, granted.grant));
            }
            None => {
                self.waiting_count -= 1;
                self.waiting_bytes -= entry.length;
            }
        }
    }

    /// Takes back every chunk whose grant ended at or before `now`; they are given next, before newer chunks.
    pub fn expire(&mut self, now: Time) {
        while let Some((end, chunk)) = self.ends.first().copied() {
            if end > now {
                return;
            }
            self.take_back(end, chunk);
        }
    }

    /// Takes back what sessions of this mark (`SessionId::mark`) hold: they are over. True: there was something. A chunk whose
    /// acknowledgement is under way stays: it must not be given again to be refused then.
    pub fn release(&mut self, mark: u64) -> bool {
        let grants =
            self.grants.range((of_mark(mark), 0)..=(SessionId(of_mark(mark).0 | u128::from(u64::MAX)), u64::MAX));
        let ended = |chunk: &ChunkId| {
            let granted = self.chunks.get(chunk)?.granted.filter(|granted| !granted.acknowledging)?;
            Some((granted.end, *chunk))
        };
        let ended: Vec<(Time, ChunkId)> = grants.filter_map(|(_, chunk)| ended(chunk)).collect();
        ended.iter().for_each(|(end, chunk)| self.take_back(*end, *chunk));
        !ended.is_empty()
    }

    /// Marks of the sessions that hold grants, in order: those above `after`, at most `limit`.
    pub fn holders(&self, after: Option<u64>, limit: usize) -> Vec<u64> {
        let mut found = Vec::new();
        let mut from = after.map_or(Some(0), |after| after.checked_add(1));
        while let Some(mark) = from.filter(|_| found.len() < limit) {
            let Some(((session, _), _)) = self.grants.range((of_mark(mark), 0)..).next() else { break };
            found.push(session.mark());
            from = session.mark().checked_add(1);
        }
        found
    }

    /// How much waits and how much is given.
    pub fn lengths(&self) -> QueueLength {
        QueueLength { waiting: self.waiting_count, waiting_bytes: self.waiting_bytes, granted: self.ends.len() }
    }

    /// Nothing waits and nothing is given.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// When the next grant ends.
    pub fn next_expiry(&self) -> Option<Time> {
        self.ends.first().map(|(end, _)| *end)
    }

    fn take_back(&mut self, end: Time, chunk: ChunkId) {
        self.ends.remove(&(end, chunk));
        if self.planted == Some(Planted::CursorMovedBeforeAcknowledgement) {
            return;
        }
        if let Some(entry) = self.chunks.get_mut(&chunk) {
            if let Some(granted) = entry.granted.take() {
                self.grants.remove(&(granted.consumer, granted.grant));
            }
            self.waiting_count += 1;
            self.waiting_bytes += entry.length;
            self.waiting.push_front(chunk);
        }
    }
}

/// The lowest session of this mark.
fn of_mark(mark: u64) -> SessionId {
    SessionId(u128::from(mark) << 64)
}

#[cfg(test)]
mod tests {
    use super::{BagQueue, QueueLength, Verdict};
    use base::id::{ChunkId, SessionId};
    use base::limit::GRANT_LEASE;
    use base::unit::Time;

    const A: SessionId = SessionId(1 << 64 | 5);
    const B: SessionId = SessionId(2 << 64 | 5);

    fn three() -> BagQueue {
        BagQueue::new([(ChunkId(1), 10), (ChunkId(2), 20), (ChunkId(3), 30)])
    }

    fn refused(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Refuse(_))
    }

    /// Chunks come in the order they were pushed, each to one consumer, and the lengths count what waits.
    #[test]
    fn first_in_first_out() {
        let mut queue = three();
        queue.push(ChunkId(2), 20);
        assert_eq!(queue.lengths(), QueueLength { waiting: 3, waiting_bytes: 60, granted: 0 });
        assert_eq!(queue.pull(Time::ZERO, A, 7), Some((ChunkId(1), 10)));
        assert_eq!(queue.pull(Time::ZERO, B, 8), Some((ChunkId(2), 20)));
        assert_eq!(queue.lengths(), QueueLength { waiting: 1, waiting_bytes: 30, granted: 2 });
        assert_eq!(queue.pull(Time::ZERO, B, 9), Some((ChunkId(3), 30)));
        assert_eq!(queue.pull(Time::ZERO, B, 10), None);
        assert!(!queue.is_empty());
    }

    /// A pull whose answer was lost is asked again and gets the same chunk, not another one.
    #[test]
    fn asked_again() {
        let mut queue = three();
        assert_eq!(queue.pull(Time::ZERO, A, 7), Some((ChunkId(1), 10)));
        assert_eq!(queue.pull(Time::ZERO, A, 7), Some((ChunkId(1), 10)));
        assert_eq!(queue.lengths(), QueueLength { waiting: 2, waiting_bytes: 50, granted: 1 });
        queue.acknowledged(ChunkId(1));
        assert_eq!(queue.pull(Time::ZERO, A, 7), Some((ChunkId(2), 20)));
    }

    /// One acknowledgement of a chunk is accepted; a second is left to the engine, which knows who made the first.
    #[test]
    fn acknowledged_once() {
        let mut queue = three();
        queue.pull(Time::ZERO, A, 7);
        assert_eq!(queue.acknowledge(Time::ZERO, ChunkId(1), (7, A)), Verdict::Accept);
        queue.acknowledged(ChunkId(1));
        assert_eq!(queue.acknowledge(Time::ZERO, ChunkId(1), (7, A)), Verdict::Unknown);
        assert_eq!(queue.lengths(), QueueLength { waiting: 2, waiting_bytes: 50, granted: 0 });
    }

    /// A grant that ended gives the chunk to the next consumer; then the late acknowledgement is refused.
    #[test]
    fn late_after_the_chunk_was_given_again() {
        let mut queue = three();
        queue.pull(Time::ZERO, A, 7);
        let late = Time::ZERO.after(GRANT_LEASE);
        assert_eq!(queue.next_expiry(), Some(late));
        assert_eq!(queue.pull(late, B, 8), Some((ChunkId(1), 10)));
        assert!(refused(&queue.acknowledge(late, ChunkId(1), (7, A))));
        assert!(!queue.renew(late, ChunkId(1), 7, A));
        assert_eq!(queue.acknowledge(late, ChunkId(1), (8, B)), Verdict::Accept);
    }

    /// A late acknowledgement of a chunk that nobody else was given is good, also one from before a restart, and from
    /// then on nobody else is given the chunk.
    #[test]
    fn late_but_first() {
        let mut queue = three();
        assert_eq!(queue.acknowledge(Time::ZERO, ChunkId(2), (99, A)), Verdict::Accept);
        assert_eq!(queue.pull(Time::ZERO, B, 8), Some((ChunkId(1), 10)));
        assert_eq!(queue.pull(Time::ZERO, B, 9), Some((ChunkId(3), 30)));
        assert!(refused(&queue.acknowledge(Time::ZERO, ChunkId(2), (98, A))));
        queue.acknowledged(ChunkId(2));
        assert_eq!(queue.pull(Time::ZERO, B, 10), None);
        assert_eq!(queue.lengths(), QueueLength { waiting: 0, waiting_bytes: 0, granted: 2 });
    }

    /// A grant is of the session that pulled under it: another one that knows its number can neither acknowledge nor prolong it, and is
    /// not given the same chunk.
    #[test]
    fn bound_to_the_session() {
        let mut queue = three();
        queue.pull(Time::ZERO, A, 7);
        assert!(refused(&queue.acknowledge(Time::ZERO, ChunkId(1), (7, B))));
        assert!(!queue.renew(Time::ZERO, ChunkId(1), 7, B));
        assert_eq!(queue.pull(Time::ZERO, B, 7), Some((ChunkId(2), 20)));
        assert_eq!(queue.acknowledge(Time::ZERO, ChunkId(1), (7, A)), Verdict::Accept);
    }

    /// Renewal moves the end; a session that is over gives everything back at once, and nobody else does.
    #[test]
    fn renewed_and_released() {
        let mut queue = three();
        queue.pull(Time::ZERO, A, 7);
        queue.pull(Time::ZERO, B, 8);
        let half = Time::ZERO.after(GRANT_LEASE / 2);
        assert!(queue.renew(half, ChunkId(1), 7, A));
        queue.expire(Time::ZERO.after(GRANT_LEASE));
        assert_eq!(queue.lengths(), QueueLength { waiting: 2, waiting_bytes: 50, granted: 1 });
        assert!(!queue.release(B.mark()));
        assert!(queue.release(A.mark()));
        assert_eq!(queue.next_expiry(), None);
        assert_eq!(queue.lengths(), QueueLength { waiting: 3, waiting_bytes: 60, granted: 0 });
        assert!(!queue.renew(half, ChunkId(1), 7, A));
        assert_eq!(queue.pull(half, B, 9), Some((ChunkId(1), 10)));
    }

    /// What is being acknowledged is not given again because its session ended meanwhile; if nothing comes of the acknowledgement, it
    /// is when its grant ends.
    #[test]
    fn acknowledged_and_over() {
        let mut queue = three();
        queue.pull(Time::ZERO, A, 7);
        queue.pull(Time::ZERO, A, 8);
        assert_eq!(queue.acknowledge(Time::ZERO, ChunkId(1), (7, A)), Verdict::Accept);
        assert_eq!(queue.acknowledge(Time::ZERO, ChunkId(3), (9, A)), Verdict::Accept);
        assert!(queue.release(A.mark()));
        assert_eq!(queue.lengths(), QueueLength { waiting: 1, waiting_bytes: 20, granted: 2 });
        assert_eq!(queue.pull(Time::ZERO, B, 1), Some((ChunkId(2), 20)));
        assert_eq!(queue.pull(Time::ZERO, B, 2), None);
        queue.acknowledged(ChunkId(1));
        queue.acknowledged(ChunkId(2));
        assert_eq!(queue.pull(Time::ZERO.after(GRANT_LEASE), B, 3), Some((ChunkId(3), 30)));
    }

    /// Whoever holds something is named once, in parts if there are many.
    #[test]
    fn holders_in_parts() {
        let mut queue = three();
        queue.pull(Time::ZERO, B, 7);
        queue.pull(Time::ZERO, A, 7);
        queue.pull(Time::ZERO, A, 8);
        assert_eq!(queue.holders(None, 9), [A.mark(), B.mark()]);
        assert_eq!(queue.holders(None, 1), [A.mark()]);
        assert_eq!(queue.holders(Some(A.mark()), 9), [B.mark()]);
        assert!(queue.holders(Some(u64::MAX), 9).is_empty());
    }
}
