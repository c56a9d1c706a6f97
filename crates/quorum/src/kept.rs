//! What a keeper has on its disk, as the library reads it.

use crate::format::HEADER_BYTES;
use crate::message::KeeperId;
use crate::replay::Stamp;
use base::checksum::crc32c;
use base::error::{ErrorKind, Result};
use base::limit::BLOCK;
use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry as Inner, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use std::collections::VecDeque;

/// What a keeper has promised: it follows no lower term, and votes for no other keeper in this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The highest term that it knows of.
    pub term: u64,
    /// Whom it voted for in that term.
    pub voted_for: Option<KeeperId>,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The leader's term that wrote it first.
    pub term: u64,
    /// Its place in the log.
    pub index: u64,
    /// A group of changes; empty is what a leader begins its term with.
    pub group: Bytes,
}

/// Bytes that a group of so many takes in the log on the disk: with a header before it, in whole blocks.
pub fn room_of(group: usize) -> u64 {
    (HEADER_BYTES + group).next_multiple_of(BLOCK) as u64
}

/// Bytes of the largest group of which four fit in a segment of this length, with their headers.
pub const fn group_max(segment_length: u64) -> usize {
    let quarter = segment_length / 4 / BLOCK as u64 * BLOCK as u64;
    (quarter as usize).saturating_sub(HEADER_BYTES)
}

impl Entry {
    /// Bytes that it takes in the log on the disk.
    pub fn room(&self) -> u64 {
        room_of(self.group.len())
    }

    /// Which one it is.
    pub fn stamp(&self) -> Stamp {
        Stamp { index: self.index, term: self.term, sum: crc32c(&self.group) }
    }

    pub(crate) fn of(inner: &Inner) -> Entry {
        Entry { term: inner.term, index: inner.index, group: inner.data.clone() }
    }

    fn inner(self) -> Inner {
        Inner { term: self.term, index: self.index, data: self.group, ..Inner::default() }
    }
}

/// A keeper's vote and log. Entries are here as soon as they are to be written; what of them is durable the core knows.
pub struct Kept {
    vote: Vote,
    committed: u64,
    voters: Vec<u64>,
    /// Index and term of the entry that those here follow.
    base: (u64, u64),
    entries: VecDeque<Inner>,
}

impl Kept {
    /// What was found on the disk: entries in their order behind `base`, which is committed and kept elsewhere; the highest index known to be
    /// committed (0: not known). `Corrupt` if one is left out, or of a lower term than the one before: that is to be mended first.
    pub fn new(voters: &[KeeperId], vote: Vote, base: Stamp, committed: u64, entries: Vec<Entry>) -> Result<Kept> {
        let (mut index, mut term) = (base.index, base.term);
        for entry in &entries {
            if entry.index != index + 1 || entry.term < term {
                let text = format!(
                    "entry {index} of term {term} of the keepers' log is followed by entry {} of term {}; nothing was changed; mend it from \
                     the other keepers",
                    entry.index, entry.term
                );
                return Err(base::error::Error::new(ErrorKind::Corrupt, text));
            }
            (index, term) = (entry.index, entry.term);
        }
        let end = index;
        // A term in the log was followed, whatever the vote says.
        let vote = if vote.term < term { Vote { term, voted_for: None } } else { vote };
        let entries = entries.into_iter().map(Entry::inner).collect();
        // Of the only voter all that is durable is committed.
        let committed = if voters.len() == 1 { end } else { committed };
        let (voters, base) = (voters.iter().map(|voter| voter.0).collect(), (base.index, base.term));
        Ok(Kept { vote, committed: committed.clamp(base.0, end), voters, base, entries })
    }

    /// Whether this keeper is the only one.
    pub(crate) fn is_of(&self, own: KeeperId) -> bool {
        self.voters == [own.0]
    }

    /// Lets go of the entries up to this one, which are kept elsewhere.
    pub(crate) fn free(&mut self, to: u64) {
        while let Some(first) = self.entries.pop_front_if(|first| first.index <= to) {
            self.base = (first.index, first.term);
        }
    }

    /// The index of the entry that those here follow.
    pub(crate) fn base(&self) -> u64 {
        self.base.0
    }

    /// Takes entries that are to be written, in place of those from the first one's index on.
    pub(crate) fn append(&mut self, entries: &[Inner]) {
        let Some(first) = entries.first() else { return };
        assert!(first.index > self.base.0, "what is kept elsewhere is committed, and never written anew");
        let at = self.place(first.index);
        assert!(at <= self.entries.len(), "entries follow one another");
        self.entries.truncate(at);
        self.entries.extend(entries.iter().cloned());
    }

    /// Where an entry behind the base is.
    fn place(&self, index: u64) -> usize {
        (index - self.base.0 - 1) as usize
    }

    pub(crate) fn end(&self) -> u64 {
        self.base.0 + self.entries.len() as u64
    }
}

impl Storage for Kept {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let Vote { term, voted_for } = self.vote;
        let vote = voted_for.map_or(raft::INVALID_ID, |voter| voter.0);
        let hard_state =
            HardState { term: term.max(Stamp::FIRST.term), vote, commit: self.committed, ..HardState::default() };
        Ok(RaftState::new(hard_state, ConfState { voters: self.voters.clone(), ..ConfState::default() }))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Inner>> {
        if low <= self.base.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let mut left = max_size.into().unwrap_or(u64::MAX);
        let mut fits = |entry: &&Inner| {
            let room = left > 0;
            left = left.saturating_sub(room_of(entry.data.len()));
            room
        };
        // The first comes however large it is: it would never come else.
        let wanted = self.entries.range(self.place(low)..self.place(high));
        Ok(wanted.take_while(|entry| fits(entry)).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match index.cmp(&self.base.0) {
            std::cmp::Ordering::Less => Err(Error::Store(StorageError::Compacted)),
            std::cmp::Ordering::Equal => Ok(self.base.1),
            std::cmp::Ordering::Greater => {
                let entry = self.entries.get(self.place(index));
                entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
            }
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.base.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.end())
    }

    /// Never: whoever lacks what is not in a leader's log any more is told so (`Message::front`), and takes a copy beside the log.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Kept, Vote};
    use crate::message::KeeperId;
    use crate::replay::Stamp;
    use base::error::ErrorKind;
    use bytes::Bytes;

    /// A log with a hole, or whose terms fall, is said and does not end the program.
    #[test]
    fn logs_that_do_not_follow() {
        let opened = |log: &[(u64, u64)]| {
            let entry = |(index, term): &(u64, u64)| Entry { index: *index, term: *term, group: Bytes::new() };
            Kept::new(&[KeeperId(1)], Vote::default(), Stamp::FIRST, 9, log.iter().map(entry).collect())
        };
        assert!(opened(&[]).is_ok() && opened(&[(2, 1), (3, 4)]).is_ok());
        for log in [&[(1, 1)][..], &[(3, 1)], &[(2, 1), (4, 1)], &[(2, 3), (3, 2)], &[(2, 0)]] {
            assert_eq!(opened(log).err().map(|error| error.kind()), Some(ErrorKind::Corrupt), "{log:?}");
        }
    }
}
