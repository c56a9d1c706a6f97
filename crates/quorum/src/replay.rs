//! What a keeper's log is after a restart, from the groups that are found in its segments: which entries it has, and whether what it promised is
//! among them. A group that cannot be read is a torn end if nothing says that it was durable, and rot if something does: what follows it on
//! the disk, a mark or a vote. What rotted may have been acknowledged, so a keeper that lacks it neither votes nor acknowledges before it has
//! it again from the others (Alagappan and others, "Protocol-Aware Recovery for Consensus-Based Storage", FAST 2018).
//!
//! Groups are played in the order in which they were written: one with the index of an earlier one cuts that off with all behind it, as
//! its leader wanted it, and nothing that was promised of those counts any more: they were committed nowhere. What each says of the log it
//! goes on (the entry before it, the last durable one, how far promises go) counts from there on, whatever was said before.
//!
//! Whoever reads the segments (`open`) looks at every block of them, as what is behind a torn group counts, too, and makes durable what is told:
//! what a killed process wrote may be in memory alone. Before a keeper that started acknowledges anything, its vote says what it has of its
//! log now: what was said last may be of a log that was cut off by a group that is lost.

use crate::kept::Entry;
use base::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};

/// Which entry it is: two with the same stamp are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Its place in the log.
    pub index: u64,
    /// The term of the leader that wrote it first.
    pub term: u64,
    /// CRC-32C of its group.
    pub sum: u32,
}

impl Stamp {
    /// The entry that every log begins behind, which is nowhere. (The library takes index 0 for "no snapshot", and ends.)
    pub const FIRST: Stamp = Stamp { index: 1, term: 1, sum: 0 };
}

/// What is on the disk before a group, and what a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// It has no group: it says again which entry is the newest one, when that is durable and all that was promised.
    pub is_mark: bool,
    /// What the keeper drew for its log (`VoteBlocks::salt`): users' bytes within a group are not taken for a header without it.
    pub salt: u64,
    /// Higher than that of what was written before, wherever that is.
    pub order: u64,
    /// The entry, or the newest one.
    pub stamp: Stamp,
    /// Term and sum of the entry before it.
    pub before: (u64, u32),
    /// The highest index known as committed when it was written; it need not be here.
    pub committed: u64,
    /// What was promised then, of the log that this goes on.
    pub promised: Promised,
    /// Bytes of the group.
    pub length: u64,
}

/// What a keeper has of its log, and has said that it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// The last entry that was durable with all before it. In a vote of a keeper that lacks the next one and knows which that is, that one: an
    /// older version in its place would be taken for it else.
    pub durable: Stamp,
    /// The highest index that was ever durable and is not cut off: above the durable one's while the keeper lacks some.
    pub to: u64,
}

/// What a keeper said when it voted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Voted {
    /// The order of what it had written last.
    pub order: u64,
    /// What was promised of its log.
    pub promised: Promised,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it says that it is.
    pub header: Header,
    /// Its group; none if that is damaged. Empty of a mark.
    pub group: Option<Bytes>,
}

/// A log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Its entries behind the one that it was asked from, each linked to the one before.
    pub entries: Vec<Entry>,
    /// The highest index that is known as committed, and is there.
    pub committed: u64,
    /// Entries up to this index were said to be durable by something that was written after them.
    pub said: u64,
    /// What it promised and does not have.
    pub lacks: Option<Lacks>,
    /// The order of what is written next: higher than those of groups that were on their way when the power went, whether they can be read or not.
    pub next_order: u64,
}

/// Entries that were durable and are not there any more. Until it has them from the others this keeper promises nothing more, and says in all
/// that it writes how far its promises go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacks {
    /// The first one's index.
    pub from: u64,
    /// The last one's.
    pub to: u64,
    /// Which one the first is, if anything says so. Whether it follows the last entry that is there is to be looked at: that may have
    /// been cut off, too, by one that rotted.
    pub first: Option<Stamp>,
}

/// Groups that are on their way to the disk at once, at the most.
pub const GROUPS_AWAY: u64 = 4;

/// The log behind an entry that is kept elsewhere (`base`: what the tree has). `Corrupt` if two things have one order.
pub fn replay(mut found: Vec<Found>, base: Stamp, voted: Voted) -> Result<Replayed> {
    found.sort_by_key(|found| found.header.order);
    let twice = |two: &[Found]| two[0].header.order == two[1].header.order && two[0] != two[1];
    if let Some(two) = found.windows(2).find(|two| twice(two)) {
        let text = format!(
            "two groups of the keeper's log both say that they are number {}; nothing was changed: keep the files and report this",
            two[0].header.order
        );
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    let order = found.last().map_or(0, |last| last.header.order).max(voted.order);
    let later = found.partition_point(|found| found.header.order <= voted.order);
    let later = found.split_off(later);
    let mut log = Log { base, promised: base.index, committed: base.index, ..Log::default() };
    found.into_iter().for_each(|found| log.play(found));
    if voted != Voted::default() {
        // Of a keeper that lacks the one that it names, this may be there and not be durable yet.
        log.hear(voted.promised, voted.promised.durable.index.saturating_sub(1));
    }
    later.into_iter().for_each(|found| log.play(found));
    Ok(Replayed { next_order: order.saturating_add(1 + GROUPS_AWAY), ..log.behind() })
}

/// What was played so far.
#[derive(Default)]
struct Log {
    base: Stamp,
    /// By their indices. Older ones stay among them, and nothing expects them any more.
    entries: BTreeMap<u64, Found>,
    /// Which entry is at an index, as what was written last says.
    expected: BTreeMap<u64, Stamp>,
    promised: u64,
    said: u64,
    committed: u64,
    /// Entries of another history than the one that is kept: they were committed nowhere, and nor was what follows them.
    others: HashSet<Stamp>,
}

impl Log {
    fn play(&mut self, found: Found) {
        let Header { is_mark, stamp, before: (term, sum), committed, promised, .. } = found.header;
        let before = Stamp { index: stamp.index.saturating_sub(1), term, sum };
        if self.is_of_others(stamp) || !is_mark && self.is_of_others(before) {
            self.others.insert(stamp);
            return;
        }
        self.committed = self.committed.max(committed.min(promised.durable.index));
        if !is_mark && stamp.index > self.base.index {
            // The same again, as one that had rotted is written, cuts nothing off.
            if !self.is_expected(stamp) {
                self.expected.split_off(&stamp.index);
            }
            self.name(before);
            self.name(stamp);
            // Nor does a copy that is damaged: it was on its way when the power went.
            let is_there = |there: &Found| there.header.stamp == stamp && there.group.is_some();
            if found.group.is_some() || !self.entries.get(&stamp.index).is_some_and(is_there) {
                self.entries.insert(stamp.index, found);
            }
        }
        self.hear(promised, promised.durable.index);
    }

    fn hear(&mut self, promised: Promised, said: u64) {
        if !self.is_of_others(promised.durable) {
            self.name(promised.durable);
            (self.promised, self.said) = (promised.to, said);
        }
    }

    /// This is the entry at its index. If it was another one, that was cut off with what followed it.
    fn name(&mut self, stamp: Stamp) {
        if stamp.index <= self.base.index {
            return;
        }
        if self.expected.get(&stamp.index).is_some_and(|other| *other != stamp) {
            self.expected.split_off(&stamp.index);
        }
        self.expected.insert(stamp.index, stamp);
    }

    fn is_expected(&self, stamp: Stamp) -> bool {
        self.expected.get(&stamp.index) == Some(&stamp)
    }

    /// Whether this entry is in another history than the base. From then on nothing that was heard before counts.
    fn is_of_others(&mut self, stamp: Stamp) -> bool {
        if stamp.index == self.base.index && stamp != self.base {
            self.entries.clear();
            self.expected.clear();
            (self.promised, self.said) = (self.base.index, self.base.index);
            self.others.insert(stamp);
        }
        self.others.contains(&stamp)
    }

    fn behind(mut self) -> Replayed {
        let (mut entries, mut last) = (Vec::new(), self.base.index);
        while let Some(Found { header: Header { stamp, .. }, group: Some(group) }) = self.entries.remove(&(last + 1)) {
            // What follows names another one: this is an older version, and the right one rotted.
            if !self.is_expected(stamp) {
                break;
            }
            entries.push(Entry { term: stamp.term, index: stamp.index, group });
            last = stamp.index;
        }
        let from = last + 1;
        let first = self.expected.get(&from).copied();
        // What is whole behind the first one may have been acknowledged, too.
        let is_right = |found: &Found| found.group.is_some() && self.is_expected(found.header.stamp);
        let whole =
            self.entries.values().rev().find(|found| is_right(found)).map_or(0, |found| found.header.stamp.index);
        let to = self.promised.max(whole);
        let lacks = (self.promised >= from).then_some(Lacks { from, to, first });
        let committed = self.committed.clamp(self.base.index, last);
        Replayed { entries, committed, said: self.said.clamp(self.base.index, last), lacks, next_order: 0 }
    }
}

#[cfg(test)]
mod tests;
