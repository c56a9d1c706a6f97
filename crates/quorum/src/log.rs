//! What a keeper has on its disk while it runs: its vote in two blocks, entries and marks in segments that come round again. What `Core` wants
//! written is written here in its order, and told when it is durable.
//!
//! One thing is under way at a time: the two blocks of a vote, a few groups, or a mark. What comes meanwhile waits, and goes together.

use crate::format::{HEADER_BYTES, VOTE_FILES};
use crate::kept::{Entry, Vote, group_max, room_of};
use crate::replay::{GROUPS_AWAY, Header, Promised, Stamp, Voted};
use crate::segments::Segments;
use crate::vote::VoteBlocks;
use base::buffer::{Buffer, Pool};
use base::disk::{DiskError, Done, Op};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A log that has had nothing to write for so long says what of it is durable: should the last group rot, it is no torn end then.
const MARK_AFTER: Duration = Duration::from_millis(50);

/// Bytes kept warm for writing groups.
const POOL: usize = 4 << 20;

/// How a log is kept.
#[derive(Clone)]
pub struct Settings {
    /// Bytes of a segment, a multiple of `BLOCK`.
    pub segment_length: u64,
    /// Most segments.
    pub segments_max: usize,
    /// Draws the salt of a new keeper.
    pub random: Arc<dyn Random>,
    /// No other keeper has what is in it.
    pub is_alone: bool,
    /// A fault that is put in on purpose.
    pub planted: Option<Planted>,
}

/// What waits to be written, in its order.
enum Waiting {
    Vote(Vote),
    Entry(Entry),
    /// All of the write of this number came before. So much was known as committed then: of the log with that, and not of what waits in front of it
    /// and may be cut off by it.
    End {
        number: u64,
        committed: u64,
    },
}

/// What is under way.
enum Flight {
    /// The two blocks of a vote. `step`: writing the first, syncing it, writing the second, syncing that.
    Vote { step: usize, places: [usize; 2], block: Bytes },
    /// Groups, or a mark: written, then synced. `last`: the newest entry then; `end`: what is durable with it.
    /// `cut`: what is behind this index of what was written before is not needed any more. `end`: the number of the write that ends with it, and
    /// what was known as committed then.
    Groups { is_synced: bool, last: Stamp, cut: u64, end: Option<(u64, u64)> },
}

/// The disk of a running keeper.
pub struct Log {
    votes: VoteBlocks,
    segments: Segments,
    pool: Pool,
    waiting: VecDeque<Waiting>,
    flight: Option<Flight>,
    /// The order of what is written next.
    order: u64,
    /// The entry that those behind it follow: it and all before are kept elsewhere.
    base: Stamp,
    /// Those behind it, as far as they were handed to the disk.
    stamps: VecDeque<Stamp>,
    durable: Stamp,
    committed: u64,
    /// The newest thing on the disk is a mark, or the vote, that says `durable`.
    is_marked: bool,
    quiet_since: Time,
    /// All writes up to this number are durable.
    ended: u64,
    next_token: u64,
    token: u64,
    failure: Option<Error>,
    operations: Vec<(u64, Op)>,
}

impl Log {
    /// A log that goes on behind these entries, all of which are durable; so are the votes, which say that.
    pub(crate) fn new(
        votes: VoteBlocks,
        mut segments: Segments,
        (base, stamps): (Stamp, VecDeque<Stamp>),
        (order, committed): (u64, u64),
        now: Time,
    ) -> Log {
        segments.free(base.index);
        let durable = stamps.back().copied().unwrap_or(base);
        let mut log = Log {
            votes,
            segments,
            pool: Pool::new(POOL),
            waiting: VecDeque::new(),
            flight: None,
            order,
            base,
            stamps,
            durable,
            committed,
            is_marked: true,
            quiet_since: now,
            ended: 0,
            next_token: 1,
            token: 0,
            failure: None,
            operations: Vec::new(),
        };
        log.advance(now);
        log
    }

    /// Takes what `Core` wants written. `committed`: what it knows as committed. With a group that is longer than a segment the log fails: its
    /// leader has larger ones.
    pub fn push(&mut self, now: Time, number: u64, vote: Option<Vote>, entries: Vec<Entry>, committed: u64) {
        if self.failure.is_some() {
            return;
        }
        if let Some(long) = entries.iter().find(|entry| !self.takes(entry.room())) {
            let text = format!(
                "entry {} of the keepers' log has {} bytes, which no segment here takes; nothing is lost; give all keepers segments of \
                 one size",
                long.index,
                long.group.len()
            );
            self.fail(Error::new(ErrorKind::Invalid, text));
            return;
        }
        self.waiting.extend(vote.map(Waiting::Vote));
        self.waiting.extend(entries.into_iter().map(Waiting::Entry));
        self.waiting.push_back(Waiting::End { number, committed });
        self.advance(now);
    }

    /// Writes a mark if it is time.
    pub fn tick(&mut self, now: Time) {
        self.advance(now);
    }

    /// When `tick` has something to do.
    pub fn next_tick(&self) -> Option<Time> {
        if self.failure.is_some() {
            return None;
        }
        let idle = self.flight.is_none() && self.waiting.is_empty();
        let mark = (idle && !self.is_marked).then(|| self.quiet_since.after(MARK_AFTER));
        mark.into_iter().chain(self.segments.again()).min()
    }

    /// All writes up to this number are durable.
    pub fn durable(&self) -> u64 {
        self.ended
    }

    /// Entries up to this one, which is durable here, are kept elsewhere durably: segments with nothing newer come free.
    pub fn free(&mut self, now: Time, to: u64) {
        let to = to.min(self.durable.index);
        while let Some(first) = self.stamps.pop_front_if(|first| first.index <= to) {
            self.base = first;
        }
        self.segments.free(self.base.index);
        self.advance(now);
    }

    /// Whether entries should be kept elsewhere soon: segments run short, or none can be had.
    pub fn wants_room(&self) -> bool {
        self.segments.wants_room()
    }

    /// Whether no more is to be added by whoever leads (`Segments::is_too_long`).
    pub(crate) fn is_too_long(&self) -> bool {
        self.segments.is_too_long()
    }

    /// Whether a quarter of the segments is full.
    pub(crate) fn is_long(&self) -> bool {
        self.segments.is_long()
    }

    /// Bytes of groups of at most a quarter of a segment that will find room behind what waits, whatever becomes of freeing entries and making
    /// segments.
    pub(crate) fn room(&self) -> u64 {
        let entries = self.waiting.iter().map(|waiting| match waiting {
            Waiting::Entry(entry) => entry.room(),
            _ => 0,
        });
        self.segments.sure_room(room_of(group_max(self.segments.longest()))).saturating_sub(entries.sum())
    }

    /// Whether there is the segment that is written, and a spare one, or two that nothing is in.
    pub(crate) fn has_spare(&self) -> bool {
        self.segments.has_spare()
    }

    /// Whether a group that takes so many bytes fits a segment.
    pub(crate) fn takes(&self, room: u64) -> bool {
        room <= self.segments.longest()
    }

    /// Why it writes nothing any more.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Operations to be put to the disk, in order.
    pub fn take_operations(&mut self) -> Vec<(u64, Op)> {
        std::mem::take(&mut self.operations)
    }

    /// An operation is done. `Err` if the log failed with it: nothing that is not durable yet is told as durable any more, and this keeper ends.
    pub fn completed(&mut self, now: Time, done: Done) -> Result<()> {
        if self.failure.is_some() {
            return Ok(());
        }
        let told = match self.segments.made(now, &done) {
            Some(told) => told,
            None if done.token == self.token => match done.result {
                Ok(_) => {
                    self.step(now);
                    Ok(())
                }
                Err(error) => Err(error),
            },
            None => Ok(()),
        };
        if let Err(error) = told {
            self.fail(failed(&error));
            return Err(failed(&error));
        }
        self.advance(now);
        Ok(())
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.waiting.clear();
        self.operations.clear();
    }

    /// What is under way has come one step further.
    fn step(&mut self, now: Time) {
        match self.flight.take() {
            // It says what is durable, too.
            Some(Flight::Vote { step: 3, .. }) => self.is_marked = true,
            Some(Flight::Vote { step, places, block }) => {
                let place = places[usize::from(step > 0)];
                let op = match step {
                    0 | 2 => Op::Sync { file: VOTE_FILES[place] },
                    _ => Op::Write { file: VOTE_FILES[place], offset: 0, parts: vec![block.clone()] },
                };
                self.flight = Some(Flight::Vote { step: step + 1, places, block });
                self.submit(op);
            }
            Some(Flight::Groups { is_synced: false, last, cut, end }) => {
                self.flight = Some(Flight::Groups { is_synced: true, last, cut, end });
                let file = self.segments.written();
                self.submit(Op::Sync { file });
            }
            Some(Flight::Groups { last, cut, end, .. }) => {
                self.durable = last;
                end.into_iter().for_each(|(number, committed)| self.end(number, committed));
                self.segments.cut(cut, last.index);
            }
            None => {}
        }
        self.quiet_since = now;
    }

    fn submit(&mut self, op: Op) {
        self.token = self.token();
        self.operations.push((self.token, op));
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token - 1
    }

    /// Begins what can be begun.
    fn advance(&mut self, now: Time) {
        if self.failure.is_some() {
            return;
        }
        if self.flight.is_none() {
            self.begin(now);
        }
        let mut tokens = self.next_token;
        if let Some(made) = self.segments.make(now, &mut tokens) {
            self.operations.push(made);
        }
        self.next_token = tokens;
    }

    fn begin(&mut self, now: Time) {
        let is_end = |waiting: &mut Waiting| matches!(waiting, Waiting::End { .. });
        while let Some(Waiting::End { number, committed }) = self.waiting.pop_front_if(is_end) {
            self.end(number, committed);
        }
        match self.waiting.front() {
            Some(Waiting::Vote(vote)) => {
                let vote = *vote;
                self.waiting.pop_front();
                self.begin_vote(vote);
            }
            Some(Waiting::Entry(_) | Waiting::End { .. }) => self.begin_groups(),
            None if !self.is_marked && now >= self.quiet_since.after(MARK_AFTER) => self.begin_mark(),
            None => {}
        }
    }

    /// All of a write is durable.
    fn end(&mut self, number: u64, committed: u64) {
        (self.ended, self.committed) = (number, self.committed.max(committed));
    }

    fn promised(&self) -> Promised {
        Promised { durable: self.durable, to: self.durable.index }
    }

    fn begin_vote(&mut self, vote: Vote) {
        let places = self.votes.order();
        let voted = Voted { order: self.order - 1, promised: self.promised() };
        let block = self.votes.write(vote, voted).freeze();
        self.submit(Op::Write { file: VOTE_FILES[places[0]], offset: 0, parts: vec![block.clone()] });
        self.flight = Some(Flight::Vote { step: 0, places, block });
    }

    /// Writes a mark; where there is no room for it the vote again, which says as much.
    fn begin_mark(&mut self) {
        if !self.segments.has_room_for_mark(BLOCK as u64) {
            return self.begin_vote(self.votes.vote());
        }
        let header = Header {
            is_mark: true,
            salt: self.votes.salt(),
            order: self.order,
            stamp: self.durable,
            before: self.before(self.durable.index),
            committed: self.committed,
            promised: self.promised(),
            length: 0,
        };
        let mut block = Buffer::zeroed(BLOCK);
        block[..HEADER_BYTES].copy_from_slice(&header.bytes());
        self.order += 1;
        self.is_marked = true;
        // It has no entry, so it keeps no segment.
        let (file, offset) = self.segments.take(BLOCK as u64, 0);
        self.submit(Op::Write { file, offset, parts: vec![block.freeze()] });
        self.flight = Some(Flight::Groups { is_synced: false, last: self.durable, cut: u64::MAX, end: None });
    }

    /// Term and sum of the entry before this one; nothing if that is kept elsewhere and not known.
    fn before(&self, index: u64) -> (u64, u32) {
        let before = self.stamps.iter().rev().find(|stamp| stamp.index + 1 == index);
        let base = Some(&self.base).filter(|base| base.index + 1 == index);
        before.or(base).map_or((0, 0), |before| (before.term, before.sum))
    }

    /// Some of the entries that wait, as many as fit in what is left of a segment.
    fn begin_groups(&mut self) {
        let Some(Waiting::Entry(first)) = self.waiting.front() else { return };
        let (mut length, mut count) = (first.room(), 1);
        if !self.segments.has_room_for(length) {
            return;
        }
        let room = self.segments.room();
        for waiting in self.waiting.iter().skip(1) {
            match waiting {
                Waiting::Entry(entry) if count < GROUPS_AWAY && length + entry.room() <= room => {
                    (length, count) = (length + entry.room(), count + 1);
                }
                Waiting::End { .. } => {}
                _ => break,
            }
        }
        let mut bytes = self.pool.take(length as usize);
        let (mut at, mut end, mut last, mut highest, mut lowest) = (0, None, self.durable, 0, u64::MAX);
        let is_end = |waiting: &Waiting| matches!(waiting, Waiting::End { .. });
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| count > 0 || is_end(waiting)) {
            match waiting {
                Waiting::Entry(entry) => {
                    let long = entry.room() as usize;
                    last = self.put(&entry, &mut bytes[at..at + long]);
                    highest = highest.max(last.index);
                    lowest = lowest.min(last.index - 1);
                    (at, count) = (at + long, count - 1);
                }
                Waiting::End { number, committed } => end = Some((number, committed)),
                Waiting::Vote(_) => unreachable!("entries are counted up to the next vote"),
            }
        }
        self.is_marked = false;
        let (file, offset) = self.segments.take(length, highest);
        self.submit(Op::Write { file, offset, parts: vec![bytes.freeze()] });
        self.flight = Some(Flight::Groups { is_synced: false, last, cut: lowest, end });
    }

    /// Puts a group where it will be written; its stamp.
    fn put(&mut self, entry: &Entry, bytes: &mut [u8]) -> Stamp {
        let (stamp, group) = (entry.stamp(), &entry.group);
        assert!(stamp.index > self.base.index, "what is kept elsewhere is committed, and never written anew");
        while self.stamps.pop_back_if(|later| later.index >= stamp.index).is_some() {}
        let before = self.stamps.back().copied().unwrap_or(self.base);
        assert!(before.index + 1 == stamp.index, "entry {} follows {}", stamp.index, before.index);
        if self.durable.index > before.index {
            self.durable = before;
        }
        let header = Header {
            is_mark: false,
            salt: self.votes.salt(),
            order: self.order,
            stamp,
            before: (before.term, before.sum),
            committed: self.committed,
            promised: self.promised(),
            length: group.len() as u64,
        };
        self.order += 1;
        let end = HEADER_BYTES + group.len();
        bytes[..HEADER_BYTES].copy_from_slice(&header.bytes());
        bytes[HEADER_BYTES..end].copy_from_slice(group);
        bytes[end..].fill(0);
        self.stamps.push_back(stamp);
        stamp
    }
}

fn failed(error: &DiskError) -> Error {
    let text = format!(
        "the keepers' log could not be written: {error}; changes are refused until a restart; what was acknowledged is safe, and whether this \
         change is kept is not known: check the disk, restart, look"
    );
    Error::new(ErrorKind::Io, text)
}
