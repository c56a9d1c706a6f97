//! What is remembered of pushes and acknowledgements so that one which is asked again does no harm: for as long as it may be asked
//! again, which its caller says by the lowest number of its own that has no answer yet. Nothing is forgotten by count or by time.
//!
//! What was heard of such numbers is not stored: after a restart more is remembered than has to be, until callers are heard again or
//! their sessions are over.

use crate::request::Asking;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, PushName};
use base::limit::{ACKNOWLEDGEMENTS_AHEAD_MAX, PUSH_STREAMS_MAX, PUSHES_AHEAD_MAX, REMEMBERED_MAX};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A remembered acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recent {
    pub grant: u64,
    pub length: u32,
    /// Who acknowledged, by its session's mark and the number of its message. None: nobody who may ask again.
    pub by: Option<(u64, u64)>,
}

/// What is known of a stream of pushes.
#[derive(Debug, Default)]
struct Stream {
    /// No push with a lower number is asked again.
    floor: u64,
    /// None with this number or a higher one was heard. What may have to be remembered lies between.
    end: u64,
    /// Pushes from `floor` on that were refused: what is still on its way of them must not be stored. At most
    /// `PUSHES_AHEAD_MAX`.
    refused: BTreeSet<u64>,
}

/// Acknowledgements that were made, and how far those are who pushed and who acknowledged.
#[derive(Debug)]
pub(crate) struct Remembered {
    entries: BTreeMap<ChunkId, Recent>,
    /// The entries whose acknowledgement may be asked again, by who made it.
    by: BTreeSet<(u64, u64, ChunkId)>,
    streams: BTreeMap<(u64, u16), Stream>,
    /// No message of acknowledgements of the session with a lower number is asked again.
    acknowledged: BTreeMap<u64, u64>,
    /// What may have to be remembered for each session: the numbers of its streams from their floors to their ends, and the entries whose
    /// acknowledgement it may ask again.
    held: BTreeMap<u64, u64>,
    /// All of it.
    total: u64,
    /// What all sessions together may have of it, as a rule: see `check_share`.
    pub most: u64,
    /// The entries in their order, with a fault put in on purpose.
    order: VecDeque<ChunkId>,
}

impl Default for Remembered {
    fn default() -> Remembered {
        Remembered {
            entries: BTreeMap::new(),
            by: BTreeSet::new(),
            streams: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            held: BTreeMap::new(),
            total: 0,
            most: REMEMBERED_MAX,
            order: VecDeque::new(),
        }
    }
}

impl Remembered {
    /// What is remembered of the acknowledgement of a chunk.
    pub fn get(&self, chunk: ChunkId) -> Option<Recent> {
        self.entries.get(&chunk).copied()
    }

    /// All entries, in the order of their chunks.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkId, Recent)> + '_ {
        self.entries.iter().map(|(chunk, recent)| (*chunk, *recent))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all entries, and keeps what was heard.
    pub fn clear(&mut self) {
        self.entries.clear();
        for (session, ..) in std::mem::take(&mut self.by) {
            self.give(session, 1);
        }
    }

    /// Remembers an acknowledgement, unless neither its push nor itself may be asked again. An earlier one of the same chunk, in another
    /// pass, is forgotten.
    pub fn insert(&mut self, chunk: ChunkId, recent: Recent) {
        self.remove(chunk);
        let by = recent.by.filter(|(session, number)| self.acknowledged_floor(*session) <= *number);
        let name = PushName::of(chunk);
        if by.is_none() && name.number < self.push_floor(chunk) {
            return;
        }
        if let Some((session, number)) = by
            && self.by.insert((session, number, chunk))
        {
            self.take(session, 1);
        }
        self.entries.insert(chunk, Recent { by, ..recent });
    }

    fn remove(&mut self, chunk: ChunkId) {
        if let Some(Recent { by: Some((session, number)), .. }) = self.entries.remove(&chunk) {
            self.asked_no_more((session, number, chunk));
        }
    }

    /// This acknowledgement is not asked again.
    fn asked_no_more(&mut self, entry: (u64, u64, ChunkId)) {
        if self.by.remove(&entry) {
            self.give(entry.0, 1);
        }
    }

    fn take(&mut self, session: u64, count: u64) {
        self.total += count;
        *self.held.entry(session).or_default() += count;
    }

    fn give(&mut self, session: u64, count: u64) {
        self.total -= count;
        if let Some(held) = self.held.get_mut(&session) {
            *held -= count;
            if *held == 0 {
                self.held.remove(&session);
            }
        }
    }

    /// Whether so much more may be remembered for a session: it has at most as much as is free then. So of `n` that want all each has one
    /// part of `n + 1`. Where some had theirs before the others came, little may be free; so each may have one part of 2,048 however
    /// much there is. Not asked for the oldest that a session has without an answer: refused, it would keep what it waits for.
    fn check_share(&self, session: u64, more: u64) -> Result<()> {
        let own = self.held.get(&session).copied().unwrap_or(0) + more;
        if own <= self.most.saturating_sub(self.total).max(self.most / 2048) {
            return Ok(());
        }
        let text = "a device has to remember too much of what has no answer yet, most of it for this session; nothing was changed; ask again \
                    when what was asked before has its answer";
        Err(Error::new(ErrorKind::Busy, text))
    }

    /// The lowest number of this chunk's stream that may be asked again, as far as that was heard.
    pub fn push_floor(&self, chunk: ChunkId) -> u64 {
        let PushName { session, stream, .. } = PushName::of(chunk);
        self.streams.get(&(session, stream)).map_or(0, |stream| stream.floor)
    }

    fn acknowledged_floor(&self, session: u64) -> u64 {
        self.acknowledged.get(&session).copied().unwrap_or(0)
    }

    /// Hears of a push, and that no lower number of its stream than `floor` is asked again. `Invalid`, `Busy`, `Full`: it is refused,
    /// because more would have to be remembered than one session may want. `Full`: so is whatever else comes of its stream.
    pub fn heard_push(&mut self, chunk: ChunkId, floor: u64) -> Result<()> {
        let PushName { session, stream, number } = PushName::of(chunk);
        if floor > number {
            let text = format!(
                "chunk {chunk} was pushed by somebody who said to have the answer to that push; it was not stored; this is a fault \
                 in the program that asked"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let known = self.streams.get(&(session, stream));
        if known.is_none() && self.streams.range((session, 0)..=(session, u16::MAX)).count() >= PUSH_STREAMS_MAX {
            let text = format!(
                "a session pushes in more than {PUSH_STREAMS_MAX} streams to one device; chunk {chunk} was not stored; push it to \
                 another device, or begin a new session"
            );
            return Err(Error::new(ErrorKind::Full, text));
        }
        // One that is below what was heard is late: `is_over` says so.
        if number.saturating_sub(known.map_or(0, |stream| stream.floor).max(floor)) >= PUSHES_AHEAD_MAX {
            let text = format!(
                "chunk {chunk} was pushed {PUSHES_AHEAD_MAX} pushes after one that has no answer yet; it was not stored; ask again \
                 when that has its answer"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        self.raise_push_floor(chunk, floor);
        let (floor, end) = self.streams.get(&(session, stream)).map_or((0, 0), |stream| (stream.floor, stream.end));
        if number < end {
            return Ok(());
        }
        if number > floor {
            self.check_share(session, number + 1 - end)?;
        }
        self.take(session, number + 1 - end);
        self.streams.entry((session, stream)).or_default().end = number + 1;
        Ok(())
    }

    /// No push of this chunk's stream with a lower number is asked again.
    pub fn raise_push_floor(&mut self, chunk: ChunkId, floor: u64) {
        let PushName { session, stream, .. } = PushName::of(chunk);
        let known = self.streams.entry((session, stream)).or_default();
        if floor <= known.floor {
            return;
        }
        let before = std::mem::replace(&mut known.floor, floor);
        known.refused = known.refused.split_off(&floor);
        let passed = floor.min(known.end) - before.min(known.end);
        known.end = known.end.max(floor);
        self.give(session, passed);
        let chunk = |number| PushName { session, stream, number }.chunk();
        let passed = self.entries.range(chunk(before)..chunk(floor));
        let done: Vec<ChunkId> = passed.filter(|(_, recent)| recent.by.is_none()).map(|(chunk, _)| *chunk).collect();
        done.into_iter().for_each(|chunk| self.remove(chunk));
    }

    /// Hears of a message of acknowledgements. `Invalid`, `Busy`: as for a push.
    pub fn heard_acknowledgement(&mut self, asking: &Asking) -> Result<()> {
        let Asking { session, number, floor } = *asking;
        if floor > number {
            let text = "acknowledgements came from somebody who said to have the answer to them; none was counted; this is a fault in \
                        the program that asked";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if number.saturating_sub(self.acknowledged_floor(session).max(floor)) >= ACKNOWLEDGEMENTS_AHEAD_MAX {
            let text = format!(
                "acknowledgements came {ACKNOWLEDGEMENTS_AHEAD_MAX} messages after one that has no answer yet; none was counted; ask \
                 again when that has its answer"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        self.raise_acknowledged_floor(session, floor);
        if number > self.acknowledged_floor(session) { self.check_share(session, 1) } else { Ok(()) }
    }

    /// No message of acknowledgements of the session with a lower number is asked again.
    pub fn raise_acknowledged_floor(&mut self, session: u64, floor: u64) {
        let known = self.acknowledged.entry(session).or_default();
        if floor <= *known {
            return;
        }
        *known = floor;
        let below = (session, floor, ChunkId::default());
        let passed: Vec<_> = self.by.range((session, 0, ChunkId::default())..below).copied().collect();
        for entry in passed {
            self.asked_no_more(entry);
            self.cannot_be_acknowledged_again(entry.2);
        }
    }

    fn cannot_be_acknowledged_again(&mut self, chunk: ChunkId) {
        let floor = self.push_floor(chunk);
        if let Some(recent) = self.entries.get_mut(&chunk) {
            recent.by = None;
            if PushName::of(chunk).number < floor {
                self.entries.remove(&chunk);
            }
        }
    }

    /// Whether a push of a chunk that is not here is over: answered, given up or refused. What still comes of it must not be stored.
    pub fn is_over(&self, chunk: ChunkId) -> bool {
        let PushName { session, stream, number } = PushName::of(chunk);
        let stream = self.streams.get(&(session, stream));
        stream.is_some_and(|stream| number < stream.floor || stream.refused.contains(&number))
    }

    /// This push is refused, now and whenever it comes again. Only of a stream that was heard.
    pub fn refuse(&mut self, chunk: ChunkId) {
        let PushName { session, stream, number } = PushName::of(chunk);
        if let Some(stream) = self.streams.get_mut(&(session, stream))
            && number >= stream.floor
        {
            stream.refused.insert(number);
        }
    }

    /// The marks of sessions of which anything is remembered, behind this one, in their order.
    pub fn sessions(&self, after: Option<u64>, limit: usize) -> Vec<u64> {
        let mut found = Vec::new();
        let mut from = after.map_or(Some(0), |after| after.checked_add(1));
        while let Some(start) = from.filter(|_| found.len() < limit) {
            let first = PushName { session: start, stream: 0, number: 0 }.chunk();
            let next = [
                self.entries.range(first..).next().map(|(chunk, _)| PushName::of(*chunk).session),
                self.by.range((start, 0, ChunkId::default())..).next().map(|(session, ..)| *session),
                self.streams.range((start, 0)..).next().map(|((session, _), _)| *session),
                self.acknowledged.range(start..).next().map(|(session, _)| *session),
            ];
            let Some(session) = next.into_iter().flatten().min() else { break };
            found.push(session);
            from = session.checked_add(1);
        }
        found
    }

    /// These sessions are over: nothing of them is asked again.
    pub fn forget_sessions(&mut self, sessions: &[u64]) {
        for session in sessions.iter().copied() {
            self.acknowledged.remove(&session);
            let (first, last) = (ChunkId::default(), ChunkId(u128::MAX));
            let made: Vec<_> = self.by.range((session, 0, first)..=(session, u64::MAX, last)).copied().collect();
            for entry in made {
                self.asked_no_more(entry);
                self.cannot_be_acknowledged_again(entry.2);
            }
        }
        for session in sessions.iter().copied() {
            let first = PushName { session, stream: 0, number: 0 }.chunk();
            let last = PushName { session, stream: u16::MAX, number: PushName::NUMBER_MAX }.chunk();
            // Those that another session acknowledged, and may again, wait for that one.
            let pushed = self.entries.range(first..=last).filter(|(_, recent)| recent.by.is_none());
            let pushed: Vec<ChunkId> = pushed.map(|(chunk, _)| *chunk).collect();
            pushed.into_iter().for_each(|chunk| self.remove(chunk));
            let streams = self.streams.range((session, 0)..=(session, u16::MAX));
            let streams: Vec<(u64, u16)> = streams.map(|(stream, _)| *stream).collect();
            for stream in streams {
                let passed = self.streams.remove(&stream).map_or(0, |stream| stream.end - stream.floor);
                self.give(session, passed);
            }
        }
    }

    /// Remembers only so many entries, whoever may still ask: a fault put in on purpose.
    pub fn keep_last(&mut self, newest: ChunkId, count: usize) {
        self.order.push_back(newest);
        while self.order.len() > count {
            if let Some(oldest) = self.order.pop_front() {
                self.remove(oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Recent, Remembered};
    use crate::request::Asking;
    use base::error::ErrorKind;
    use base::id::{ChunkId, PushName};
    use base::limit::{ACKNOWLEDGEMENTS_AHEAD_MAX, PUSH_STREAMS_MAX, PUSHES_AHEAD_MAX, REMEMBERED_MAX};

    const PUSHER: u64 = 10;
    const PULLER: u64 = 20;

    fn chunk(number: u64) -> ChunkId {
        PushName { session: PUSHER, stream: 3, number }.chunk()
    }

    fn by(number: u64) -> Recent {
        Recent { grant: 7, length: 100, by: Some((PULLER, number)) }
    }

    /// An entry goes when neither the push nor the acknowledgement may be asked again, in whichever order that is heard, and not before.
    #[test]
    fn both_have_their_answer() {
        for push_first in [true, false] {
            let mut remembered = Remembered::default();
            remembered.heard_push(chunk(5), 5).expect("heard");
            remembered.insert(chunk(5), by(9));
            for later in 6..5000 {
                remembered.insert(PushName { session: 99, stream: 0, number: later }.chunk(), by(9));
            }
            assert_eq!(remembered.get(chunk(5)), Some(by(9)), "however many were handled since");
            let raise_push = |remembered: &mut Remembered| remembered.heard_push(chunk(6), 6).expect("heard");
            let raise_other = |remembered: &mut Remembered| {
                let asking = Asking { session: PULLER, number: 12, floor: 10 };
                remembered.heard_acknowledgement(&asking).expect("heard");
            };
            if push_first {
                raise_push(&mut remembered)
            } else {
                raise_other(&mut remembered)
            }
            assert!(remembered.get(chunk(5)).is_some_and(|recent| recent.grant == 7));
            if push_first {
                raise_other(&mut remembered)
            } else {
                raise_push(&mut remembered)
            }
            assert_eq!(remembered.get(chunk(5)), None);
            assert!(remembered.is_over(chunk(5)), "what is still on its way of it is not stored");
        }
    }

    /// What a session pushed and acknowledged goes with it, and nothing of others; of pushes that others acknowledged the rest goes
    /// with those.
    #[test]
    fn sessions_end() {
        let mut remembered = Remembered::default();
        remembered.heard_push(chunk(5), 5).expect("heard");
        remembered.insert(chunk(5), by(1));
        remembered.insert(chunk(6), Recent { by: None, ..by(0) });
        let other = PushName { session: PUSHER + 1, stream: 0, number: 1 }.chunk();
        remembered.insert(other, by(2));
        assert_eq!(remembered.sessions(None, 9), [PUSHER, PUSHER + 1, PULLER]);
        assert_eq!(remembered.sessions(None, 1), [PUSHER]);
        assert_eq!(remembered.sessions(Some(PUSHER), 9), [PUSHER + 1, PULLER]);
        remembered.forget_sessions(&[PUSHER]);
        assert_eq!((remembered.get(chunk(5)), remembered.get(chunk(6))), (Some(by(1)), None));
        remembered.forget_sessions(&[PULLER]);
        remembered.forget_sessions(&[PUSHER]);
        assert_eq!(remembered.get(chunk(5)), None);
        assert_eq!(remembered.get(other), Some(Recent { by: None, ..by(2) }), "its pusher may ask again");
        remembered.forget_sessions(&[PUSHER + 1]);
        assert_eq!((remembered.len(), remembered.sessions(None, 9)), (0, vec![]));
    }

    /// Sessions that never say to have an answer share what a device remembers, and leave room for one that does.
    #[test]
    fn all_sessions_together_are_bounded() {
        let mut remembered = Remembered::default();
        let name = |session, number| PushName { session, stream: 0, number }.chunk();
        for round in 0..PUSHES_AHEAD_MAX {
            for session in 0..400 {
                if remembered.heard_push(name(session, round), 0).is_ok() {
                    remembered.insert(name(session, round), Recent { by: None, ..by(0) });
                }
            }
        }
        assert!(remembered.len() as u64 <= REMEMBERED_MAX, "{}", remembered.len());
        assert!(remembered.len() as u64 > REMEMBERED_MAX * 9 / 10, "no less than there is: {}", remembered.len());
        // One that asks for much at once when others have the rest gets none of it, and what is its due all the same.
        assert!(remembered.heard_push(name(999, 4000), 0).is_err());
        assert!(remembered.heard_push(name(999, REMEMBERED_MAX / 2048 - 1), 0).is_ok());
        for number in 0..5000 {
            let floor = u64::saturating_sub(number, 500);
            remembered.heard_push(name(1000, number), floor).expect("an honest one has 500 on their way");
        }
        for session in 0..400 {
            remembered.heard_push(name(session, 0), 0).expect("its oldest is heard however much there is");
        }
        let asking = |number| Asking { session: PULLER, number, floor: 1 };
        for number in 1..ACKNOWLEDGEMENTS_AHEAD_MAX {
            if remembered.heard_acknowledgement(&asking(number)).is_ok() {
                (0..1000).for_each(|chunk| remembered.insert(name(2000, number * 1000 + chunk), by(number)));
            }
        }
        assert!(remembered.total <= REMEMBERED_MAX + 1000, "{}", remembered.total);
        let all: Vec<u64> = (0..3000).collect();
        remembered.forget_sessions(&all);
        remembered.forget_sessions(&all);
        assert_eq!((remembered.len(), remembered.total, remembered.held.len()), (0, 0, 0));
    }

    /// Those who took all there is, one after another, keep nobody from a few, nor from the oldest, also when it is heard with an old floor.
    #[test]
    fn greedy_ones_keep_nobody_out() {
        let mut remembered = Remembered { most: 40_960, ..Remembered::default() };
        let name = |session, stream, number| PushName { session, stream, number }.chunk();
        for session in 0..100 {
            for stream in 0..PUSH_STREAMS_MAX as u16 {
                for ahead in (0..12).rev().map(|power| 1 << power) {
                    let _refused = remembered.heard_push(name(session, stream, ahead), 0);
                }
            }
        }
        assert!(remembered.total >= 40_000, "{}", remembered.total);
        for number in 0..1000 {
            let floor = u64::saturating_sub(number, 15);
            remembered.heard_push(name(1000, 0, number), floor).expect("sixteen are on their way");
        }
        assert_eq!(remembered.heard_push(name(1000, 0, 1020), 985).map_err(|error| error.kind()), Err(ErrorKind::Busy));
        remembered.heard_push(name(1000, 0, 999), 999).expect("all before have their answers");
        remembered.heard_push(name(1000, 0, 1014), 999).expect("sixteen again");
        remembered.heard_push(name(1000, 1, 5), 5).expect("the oldest of another stream");
        remembered.raise_push_floor(name(1000, 2, 7), 7);
        remembered.heard_push(name(1000, 2, 7), 3).expect("the oldest, sent again as it was");
    }

    /// A push that was refused is refused until its number is passed, and a stream is bounded however it is used.
    #[test]
    fn refused_and_bounded() {
        let mut remembered = Remembered::default();
        remembered.heard_push(chunk(5), 4).expect("heard");
        remembered.refuse(chunk(5));
        assert_eq!([4, 5, 6].map(|number| remembered.is_over(chunk(number))), [false, true, false]);
        let kind = |remembered: &mut Remembered, number, floor| {
            remembered.heard_push(chunk(number), floor).map_err(|error| error.kind())
        };
        assert_eq!(kind(&mut remembered, 4 + PUSHES_AHEAD_MAX, 4), Err(ErrorKind::Busy));
        assert_eq!(kind(&mut remembered, 5, 6), Err(ErrorKind::Invalid));
        assert_eq!(kind(&mut remembered, 4 + PUSHES_AHEAD_MAX, 5), Ok(()));
        for stream in 4..3 + PUSH_STREAMS_MAX as u16 {
            remembered.heard_push(PushName { session: PUSHER, stream, number: 1 }.chunk(), 1).expect("heard");
        }
        let more = PushName { session: PUSHER, stream: u16::MAX, number: 1 }.chunk();
        assert_eq!(
            remembered.heard_push(more, 1).map_err(|error| error.kind()),
            Err(ErrorKind::Full),
            "it goes elsewhere"
        );
        let ahead = Asking { session: PULLER, number: ACKNOWLEDGEMENTS_AHEAD_MAX + 1, floor: 1 };
        assert_eq!(remembered.heard_acknowledgement(&ahead).map_err(|error| error.kind()), Err(ErrorKind::Busy));
        remembered.heard_acknowledgement(&Asking { floor: 2, ..ahead }).expect("heard");
    }
}
