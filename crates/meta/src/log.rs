//! The log of changes: entries gathered into groups, on which the keepers of the metadata agree (`quorum`), one group after the other.

use base::buffer::Buffer;
use base::disk::{Disk, Done, Op, wait};
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use base::unit::Time;
use bytes::Bytes;
use quorum::{Effect, Entry, Keeper, KeeperId, Message, Role, Seat, Stamp, group_max, room_of};
use std::collections::VecDeque;

/// Groups that may wait behind the one on its way, full ones: 16 MiB with segments of the usual size.
const WAITING_MAX: usize = 4;

/// Blocks that are never taken: for what a keeper begins with at its start, and marks.
const STARTS: u64 = 64;

/// Groups on their way at once: one whose leader is alone, so that what comes meanwhile goes with the next sync of its disk; more where the others take
/// longer than a sync.
const AWAY_ALONE: usize = 1;
const AWAY_MAX: usize = 4;

/// Groups without changes that are added at once, and how many may be lacking at the most: no log has more.
const GOES_ON: u64 = 64;
const GOES_ON_MAX: u64 = 1 << 20;

/// A keeper that lacks no more groups than these has caught up.
const NEAR: u64 = 16;

/// Entries that wait together.
struct Gather {
    /// Sequence number of the last one.
    last: u64,
    bytes: Vec<u8>,
}

/// What happened to the log, in order.
#[derive(Debug)]
pub enum Event {
    /// This keeper leads from now on, or does not any more. What it gathered or proposed and did not hear of as committed is no more its own.
    Turned(Role),
    /// A group that was not gathered here, or not since the last turn, is committed, and durable here.
    Group(Entry),
    /// What comes next for this keeper is not in the log of this leader any more.
    Lacks(KeeperId),
}

/// A group that is committed and durable here, and still in the log: the tree may not have it yet, or another keeper may lack it.
struct Kept {
    /// Sequence number of its last entry.
    last: u64,
    stamp: Stamp,
    group: Bytes,
}

/// The log, as this keeper of the metadata has it.
pub struct Log {
    keeper: Keeper,
    /// It is the only one.
    alone: bool,
    own: KeeperId,
    /// The other ones.
    others: Vec<KeeperId>,
    /// In which it leads.
    term: u64,
    /// Bytes of a group at the most.
    group_max: usize,
    waiting: VecDeque<Gather>,
    /// Those on their way: place in the keepers' log, sequence number of the last entry.
    proposed: VecDeque<(u64, u64)>,
    kept: VecDeque<Kept>,
    /// Sequence number up to which entries are in the tree.
    merged: u64,
    /// The last group that need not be in the log any more.
    front: Stamp,
    /// What is behind the group at this index stays in the log for those who get copies of the tree.
    held: Option<u64>,
    /// Sequence number up to which entries are committed, and durable here; and up to which they are committed.
    settled: u64,
    committed: u64,
    failure: Option<Error>,
    operations: Vec<(u64, Op)>,
    events: VecDeque<Event>,
    messages: Vec<(KeeperId, Message)>,
}

impl Log {
    /// Opens the log of a keeper whose groups up to `base` are in the tree: the log, and the groups behind those that are known as committed, of which it wants to
    /// hear (`found`), and that they are in the tree, too (`merged`). Then it is to `begin`. Blocks. Errors as of `quorum::Keeper::open`.
    pub fn open(disk: &mut dyn Disk, seat: Seat, base: Stamp, now: Time) -> Result<(Log, Vec<Entry>)> {
        let group_max = group_max(seat.settings.segment_length);
        let (own, alone) = (seat.own, seat.voters == [seat.own]);
        let others = seat.voters.iter().copied().filter(|voter| *voter != seat.own).collect();
        let keeper = Keeper::open(disk, seat, base, now)?;
        let mut log = Log {
            keeper,
            alone,
            own,
            others,
            term: 0,
            group_max,
            waiting: VecDeque::new(),
            proposed: VecDeque::new(),
            kept: VecDeque::new(),
            merged: 0,
            front: base,
            held: None,
            settled: 0,
            committed: 0,
            failure: None,
            operations: Vec::new(),
            events: VecDeque::new(),
            messages: Vec::new(),
        };
        log.take_effects();
        let mut groups = Vec::new();
        for event in std::mem::take(&mut log.events) {
            match event {
                Event::Group(entry) => groups.push(entry),
                other => log.events.push_back(other),
            }
        }
        Ok((log, groups))
    }

    /// One that is alone leads from now on. Blocks. `Io` if there is no room for what it begins with, which is a group without changes.
    pub fn begin(&mut self, disk: &mut dyn Disk, now: Time) -> Result<()> {
        if self.alone {
            self.keeper.lead_alone(now)?;
            self.run(disk, now, |keeper| keeper.has_lease(now))?;
            // It leads for good, and nothing of what it begins with is for the tree.
            self.events.clear();
        }
        Ok(())
    }

    /// A new log makes its segments: two, because the one that is written never comes free. Blocks. `Io` if there is no room.
    pub fn make_segments(&mut self, disk: &mut dyn Disk, now: Time) -> Result<()> {
        self.run(disk, now, Keeper::has_spare)
    }

    /// Does what the keeper wants of its disk, until something is so.
    fn run(&mut self, disk: &mut dyn Disk, now: Time, until: impl Fn(&Keeper) -> bool) -> Result<()> {
        let mut operations = VecDeque::from(std::mem::take(&mut self.operations));
        while !until(&self.keeper) {
            operations.extend(self.keeper.take_operations());
            let Some((token, op)) = operations.pop_front() else { return Err(no_room()) };
            let result = wait(disk, op).map(|bytes| Buffer::copy_of(&bytes));
            self.completed(now, Done { token, result });
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
        }
        self.operations = operations.into();
        Ok(())
    }

    /// Sequence number up to which entries are committed: durable at most keepers.
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Sequence number up to which entries are committed, and durable here: what may be in the tree.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether this keeper answers for all of them: it leads, and nobody else can now.
    pub fn has_lease(&self, now: Time) -> bool {
        self.failure.is_none() && self.keeper.has_lease(now)
    }

    /// The term in which it led last, or does.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Which keeper this is.
    pub fn own(&self) -> KeeperId {
        self.own
    }

    /// Whether there are no other keepers.
    pub fn is_alone(&self) -> bool {
        self.alone
    }

    /// What happened since this was asked.
    pub fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What is to be sent to other keepers; it may be lost, late, or come twice.
    pub fn take_messages(&mut self) -> Vec<(KeeperId, Message)> {
        std::mem::take(&mut self.messages)
    }

    /// Why the log takes no more entries, ever.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Whether another entry is taken now: one that is taken has room in the log, whatever becomes of merging. It would be in the way of what
    /// makes room else: only what is committed may be merged.
    pub fn check(&self) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        // Others may need their room for what a leader cuts off that comes after this one.
        let others = !self.alone && self.keeper.is_too_long();
        if self.waiting.len() >= WAITING_MAX || !self.has_room() || others {
            return Err(Error::new(
                ErrorKind::Full,
                "the metadata log is full: changes come faster than they are merged or the disk is, or its file system has no room for another segment; \
                 nothing was changed and what was acknowledged is safe: try again later",
            ));
        }
        Ok(())
    }

    /// Whether another group of the largest size has room behind those that wait.
    fn has_room(&self) -> bool {
        let waiting: u64 = self.waiting.iter().map(|gather| room_of(gather.bytes.len())).sum();
        self.keeper.room() >= waiting + room_of(self.group_max) + STARTS * BLOCK as u64
    }

    /// Whether merging should not wait: segments run short, or none can be had.
    pub fn wants_room(&self) -> bool {
        self.keeper.wants_room() || !self.has_room()
    }

    /// Takes an entry, which has the sequence number after the last one's and is no longer than a group.
    pub fn push(&mut self, sequence: u64, entry: &[u8]) {
        match self.waiting.back_mut() {
            Some(gather) if gather.bytes.len() + entry.len() <= self.group_max => {
                gather.bytes.extend_from_slice(entry);
                gather.last = sequence;
            }
            _ => self.waiting.push_back(Gather { last: sequence, bytes: entry.to_vec() }),
        }
    }

    /// Starts what can be started.
    pub fn advance(&mut self, now: Time) {
        let away = if self.alone { AWAY_ALONE } else { AWAY_MAX };
        while self.failure.is_none()
            && self.proposed.len() < away
            && let Some(Gather { last, bytes }) = self.waiting.pop_front()
        {
            let bytes = Bytes::from(bytes);
            match self.keeper.propose(now, self.term, bytes.clone()) {
                Ok(index) => self.proposed.push_back((index, last)),
                Err(error) if error.kind() == ErrorKind::Busy => {
                    self.waiting.push_front(Gather { last, bytes: bytes.into() });
                    break;
                }
                // It does not lead any more, of which an event tells.
                Err(error) if error.kind() == ErrorKind::Stale && !self.alone => break,
                Err(error) => self.fail(error),
            }
            self.take_effects();
        }
    }

    /// A message of another keeper came. `now` is read after it was taken from its link.
    pub fn receive(&mut self, now: Time, message: Message) {
        if self.failure.is_none() {
            self.keeper.receive(now, message);
            self.take_effects();
        }
    }

    /// Asks another keeper to lead in its place, if this one does.
    pub fn hand_over(&mut self, now: Time) {
        if self.failure.is_none() {
            self.keeper.hand_over(now);
            self.take_effects();
        }
    }

    /// Operations to be put to the disk, in order.
    pub fn take_operations(&mut self) -> Vec<(u64, Op)> {
        let mut operations = std::mem::take(&mut self.operations);
        operations.extend(self.keeper.take_operations());
        operations
    }

    /// An operation is done. The log may fail with it: nothing that is not committed yet will be.
    pub fn completed(&mut self, now: Time, done: Done) {
        if self.failure.is_some() {
            return;
        }
        let done = self.keeper.completed(now, done);
        self.take_effects();
        if let Err(error) = done {
            self.fail(error);
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, now: Time) {
        if self.failure.is_none() {
            self.keeper.tick(now);
            self.take_effects();
        }
    }

    /// When `tick` has something to do.
    pub fn next_tick(&self) -> Option<Time> {
        if self.failure.is_some() { None } else { self.keeper.next_tick() }
    }

    /// Whether the log is so long that a keeper that lacks some of it is to get a copy of the tree, and the log need not be kept for it.
    pub fn is_long(&self) -> bool {
        !self.alone && self.keeper.is_long()
    }

    /// Whether a log that is free of what need not be kept in it, once the tree has the entries that it has now, would have more room.
    pub fn can_free(&self) -> bool {
        self.front_at(self.merged) != self.front
    }

    /// The last group up to which the log is not needed any more once the tree has the entries up to `sequence`: everybody has what is before it, or will
    /// get a copy of the tree.
    pub fn front_at(&self, sequence: u64) -> Stamp {
        let everybody = if self.is_long() { u64::MAX } else { self.keeper.everybody() };
        self.last_group(sequence, everybody.min(self.held.unwrap_or(u64::MAX)))
    }

    /// The last group all of which a tree has that has the entries up to `sequence`.
    pub fn group_at(&self, sequence: u64) -> Stamp {
        self.last_group(sequence, u64::MAX)
    }

    fn last_group(&self, sequence: u64, to: u64) -> Stamp {
        let groups = self.kept.iter().take_while(|group| group.last <= sequence && group.stamp.index <= to);
        groups.last().map_or(self.front, |group| group.stamp)
    }

    /// Has the log go on to this index, if this keeper leads and nobody changes anything: a few groups at a time, each without changes.
    pub fn go_on_to(&mut self, now: Time, index: u64) {
        let lacks = Some(index.saturating_sub(self.keeper.committed())).filter(|lacks| *lacks <= GOES_ON_MAX);
        for _ in 0..lacks.unwrap_or(0).min(GOES_ON) {
            if self.check().is_err() || !self.waiting.is_empty() || self.keeper.propose_nothing(now, self.term).is_err()
            {
                break;
            }
        }
        self.take_effects();
    }

    /// Keeps what is behind the group at this index in the log; none: nothing that is not kept anyway.
    pub fn hold(&mut self, held: Option<u64>) {
        self.held = held;
    }

    /// The index up to which this keeper knows the log as committed.
    pub fn committed_index(&self) -> u64 {
        self.keeper.committed()
    }

    /// Whether another keeper has the log up to this index at the least, and nearly all of it; true, if this one does not lead and knows nothing of it.
    pub fn has_nearly_all(&self, keeper: KeeperId, index: u64) -> bool {
        let near = index.max(self.keeper.committed().saturating_sub(NEAR));
        self.keeper.matched(keeper).is_none_or(|matched| matched >= near)
    }

    /// Whether this is another keeper of the store.
    pub fn is_other(&self, keeper: KeeperId) -> bool {
        self.others.contains(&keeper)
    }

    /// The groups behind this entry that are committed, and durable here.
    pub fn behind(&self, sequence: u64) -> impl Iterator<Item = &Bytes> {
        self.kept.iter().filter(move |group| group.last > sequence && !group.group.is_empty()).map(|group| &group.group)
    }

    /// Entries up to `sequence` are in the tree, durably, which asks for the log from behind `front` on.
    pub fn merged(&mut self, now: Time, sequence: u64, front: Stamp) {
        self.merged = sequence;
        self.settled = self.settled.max(sequence);
        self.committed = self.committed.max(sequence);
        self.front = front;
        while self.kept.pop_front_if(|group| group.stamp.index <= front.index).is_some() {}
        if self.failure.is_none() {
            self.keeper.free(now, front.index);
            self.take_effects();
        }
    }

    /// A group was found at the opening, with entries up to `last`.
    pub fn found(&mut self, entry: Entry, last: u64) {
        (self.settled, self.committed) = (last, last);
        self.keep(entry);
    }

    /// Sequence number up to which entries are in the tree.
    pub fn merged_to(&self) -> u64 {
        self.merged
    }

    /// A group is committed, and durable here. One that was told (`Event::Group`) is in the overlay: its last entry has this sequence number. One without
    /// entries, which begins a term, changes nothing.
    pub fn settle(&mut self, entry: Entry, last: u64) {
        (self.settled, self.committed) = (last, self.committed.max(last));
        self.keep(entry);
    }

    /// Keeps a group that ends with the last entry that is settled.
    fn keep(&mut self, entry: Entry) {
        self.kept.push_back(Kept { last: self.settled, stamp: entry.stamp(), group: entry.group });
    }

    fn take_effects(&mut self) {
        for effect in self.keeper.take_effects() {
            match effect {
                Effect::Committed(entries) => entries.into_iter().for_each(|entry| self.committed_group(entry)),
                Effect::Turned(role) => {
                    if let Role::Leads { term } = role {
                        self.term = term;
                    }
                    self.throw_away();
                    self.events.push_back(Event::Turned(role));
                }
                Effect::Send { to, message } => self.messages.push((to, message)),
                Effect::Lacks { leader } => self.events.push_back(Event::Lacks(leader)),
            }
        }
        // What is durable at the others need not be here yet.
        let committed = self.keeper.committed();
        let own = self.proposed.iter().take_while(|(index, _)| *index <= committed).last();
        self.committed = own.map_or(self.committed, |(_, last)| self.committed.max(*last));
        if let Some(failure) = self.keeper.failure() {
            let failure = failure.clone();
            self.fail(failure);
        }
    }

    fn committed_group(&mut self, entry: Entry) {
        match self.proposed.pop_front_if(|(index, _)| *index == entry.index) {
            Some((_, last)) => self.settle(entry, last),
            None => self.events.push_back(Event::Group(entry)),
        }
    }

    /// What is not committed is not for this keeper to propose any more.
    fn throw_away(&mut self) {
        self.waiting.clear();
        self.proposed.clear();
        self.committed = self.settled;
    }

    /// Gives the log up: this keeper ends.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.throw_away();
    }
}

fn no_room() -> Error {
    let text = "the metadata log cannot be begun: it needs two segments with room, and they cannot be made; nothing is lost: make room on its \
                file system, start again";
    Error::new(ErrorKind::Io, text)
}
