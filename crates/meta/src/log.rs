//! The log of changes: entries gathered into groups, on which the keepers of the metadata agree (`quorum`), one group after the other.

use base::buffer::Buffer;
use base::disk::{Disk, Done, Op, wait};
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use base::unit::Time;
use bytes::Bytes;
use quorum::{Effect, Entry, Keeper, Role, Seat, Stamp, group_max, room_of};
use std::collections::VecDeque;

/// Groups that may wait behind the one on its way, full ones: 16 MiB with segments of the usual size.
const WAITING_MAX: usize = 4;

/// Room that is never taken: a block is what a keeper begins with at each start, and it frees the others at once, if its tree can be written. So
/// many starts may fail in between.
const STARTS: u64 = 64;

/// Entries that wait together.
struct Gather {
    /// Sequence number of the last one.
    last: u64,
    bytes: Vec<u8>,
}

/// A group that is committed and durable here, and not in the tree yet.
struct Unmerged {
    /// Sequence number of its last entry.
    last: u64,
    stamp: Stamp,
    group: Bytes,
}

/// The log, as this keeper of the metadata has it.
pub struct Log {
    keeper: Keeper,
    /// In which it leads.
    term: u64,
    /// Bytes of a group at the most.
    group_max: usize,
    waiting: VecDeque<Gather>,
    /// The last one that waits takes no more entries.
    closed: bool,
    /// Those on their way: place in the keepers' log, sequence number of the last entry.
    proposed: VecDeque<(u64, u64)>,
    unmerged: VecDeque<Unmerged>,
    /// Sequence number up to which entries are in the tree.
    merged: u64,
    committed: u64,
    failure: Option<Error>,
    operations: Vec<(u64, Op)>,
}

impl Log {
    /// Opens the log of a keeper that is alone, whose groups up to `base` are in the tree: the log, and the groups behind those, of which it wants to
    /// hear that they are in the tree, too (`opened`). It leads then. Blocks. Errors as of `quorum::Keeper::open`; `Io` if there is no room for what it begins with.
    pub fn open(disk: &mut dyn Disk, seat: Seat, base: Stamp, now: Time) -> Result<(Log, Vec<Entry>)> {
        let group_max = group_max(seat.settings.segment_length);
        let mut keeper = Keeper::open(disk, seat, base, now)?;
        let (mut groups, mut term, mut operations) = (Vec::new(), 0, VecDeque::new());
        loop {
            for effect in keeper.take_effects() {
                match effect {
                    Effect::Committed(entries) => groups.extend(entries),
                    Effect::Turned(Role::Leads { term: leads }) => term = leads,
                    Effect::Turned(Role::Follows { .. }) | Effect::Send { .. } => {}
                }
            }
            if keeper.has_lease(now) {
                break;
            }
            operations.extend(keeper.take_operations());
            let Some((token, op)) = operations.pop_front() else { return Err(no_room()) };
            let result = wait(disk, op).map(|bytes| Buffer::copy_of(&bytes));
            keeper.completed(now, Done { token, result })?;
        }
        let log = Log {
            keeper,
            term,
            group_max,
            waiting: VecDeque::new(),
            closed: false,
            proposed: VecDeque::new(),
            unmerged: VecDeque::new(),
            merged: 0,
            committed: 0,
            failure: None,
            operations: operations.into(),
        };
        Ok((log, groups))
    }

    /// Sequence number up to which entries are committed: durable at most keepers, and here.
    pub fn committed(&self) -> u64 {
        self.committed
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
        let waiting: u64 = self.waiting.iter().map(|gather| room_of(gather.bytes.len())).sum();
        let wanted = waiting + room_of(self.group_max) + STARTS * BLOCK as u64;
        if self.waiting.len() >= WAITING_MAX || self.keeper.room() < wanted {
            return Err(Error::new(
                ErrorKind::Full,
                "the metadata log is full: changes come faster than they are merged or the disk is; \
                 nothing was changed and what was acknowledged is safe: try again later",
            ));
        }
        Ok(())
    }

    /// Whether merging should not wait: segments run short, or none can be had.
    pub fn wants_room(&self) -> bool {
        self.keeper.wants_room()
    }

    /// Takes an entry, which has the sequence number after the last one's and is no longer than a group.
    pub fn push(&mut self, sequence: u64, entry: &[u8]) {
        match self.waiting.back_mut() {
            Some(gather) if !self.closed && gather.bytes.len() + entry.len() <= self.group_max => {
                gather.bytes.extend_from_slice(entry);
                gather.last = sequence;
            }
            _ => self.waiting.push_back(Gather { last: sequence, bytes: entry.to_vec() }),
        }
        self.closed = false;
    }

    /// What comes next begins a group: what came before is to be merged without it.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Starts what can be started.
    pub fn advance(&mut self, now: Time) {
        if self.failure.is_some() || !self.proposed.is_empty() {
            return;
        }
        let Some(gather) = self.waiting.pop_front() else { return };
        match self.keeper.propose(now, self.term, gather.bytes.into()) {
            Ok(index) => self.proposed.push_back((index, gather.last)),
            Err(error) => return self.fail(error),
        }
        self.take_effects();
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

    /// Which group ends with this entry; none if it is not committed yet.
    pub fn stamp(&self, sequence: u64) -> Option<Stamp> {
        let at = self.unmerged.binary_search_by_key(&sequence, |group| group.last).ok()?;
        Some(self.unmerged[at].stamp)
    }

    /// The groups behind this entry, which ends one, that are committed.
    pub fn behind(&self, sequence: u64) -> impl Iterator<Item = &Bytes> {
        self.unmerged.iter().filter(move |group| group.last > sequence).map(|group| &group.group)
    }

    /// Entries up to `sequence` are in the tree, durably.
    pub fn merged(&mut self, now: Time, sequence: u64) {
        let mut last = None;
        while let Some(group) = self.unmerged.pop_front_if(|group| group.last <= sequence) {
            last = Some(group.stamp);
        }
        self.merged = sequence;
        if let Some(stamp) = last
            && self.failure.is_none()
        {
            self.keeper.free(now, stamp.index);
            self.take_effects();
        }
    }

    /// What was found at the opening, groups up to this one with entries up to `sequence`, is in the tree, durably.
    pub fn opened(&mut self, now: Time, to: Stamp, sequence: u64) {
        (self.merged, self.committed) = (sequence, sequence);
        self.keeper.free(now, to.index);
        self.take_effects();
    }

    /// Sequence number up to which entries are in the tree.
    pub fn merged_to(&self) -> u64 {
        self.merged
    }

    fn take_effects(&mut self) {
        for effect in self.keeper.take_effects() {
            match effect {
                Effect::Committed(entries) => entries.into_iter().for_each(|entry| self.committed_group(entry)),
                // Alone, it leads for good, and there is nobody to send anything to.
                Effect::Turned(_) | Effect::Send { .. } => {}
            }
        }
        if let Some(failure) = self.keeper.failure() {
            let failure = failure.clone();
            self.fail(failure);
        }
    }

    fn committed_group(&mut self, entry: Entry) {
        let Some((_, last)) = self.proposed.pop_front_if(|(index, _)| *index == entry.index) else { return };
        self.unmerged.push_back(Unmerged { last, stamp: entry.stamp(), group: entry.group });
        self.committed = last;
    }

    fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.waiting.clear();
        self.proposed.clear();
    }
}

fn no_room() -> Error {
    let text = "the metadata log cannot be begun: no segment of it has room, and none can be made; nothing is lost: make room on \
                its file system, start again";
    Error::new(ErrorKind::Io, text)
}
