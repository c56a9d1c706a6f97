//! What a keeper has on its disk, as the library reads it.

use crate::message::KeeperId;
use base::error::{ErrorKind, Result};
use bytes::Bytes;
use raft::eraftpb::{ConfState, Entry as Inner, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};

/// The entry that every log begins behind: number 1 of term 1, which is nowhere. The library takes 0 for "no snapshot", and ends.
pub(crate) const FIRST: (u64, u64) = (1, 1);

/// What an entry has on the wire beside its group, in bytes, at most.
const OVERHEAD: u64 = 32;

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

impl Entry {
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
    entries: Vec<Inner>,
}

impl Kept {
    /// What was found on the disk: entries in their order from `FIRST` on; the highest index known to be committed (0: none). `Corrupt` if one is
    /// left out, or of a lower term than the one before: that is to be mended first.
    pub fn new(voters: &[KeeperId], vote: Vote, committed: u64, entries: Vec<Entry>) -> Result<Kept> {
        let (mut index, mut term) = FIRST;
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
        let voters = voters.iter().map(|voter| voter.0).collect();
        Ok(Kept { vote, committed: committed.clamp(FIRST.0, end), voters, entries })
    }

    /// Whether this keeper is the only one.
    pub(crate) fn is_of(&self, own: KeeperId) -> bool {
        self.voters == [own.0]
    }

    /// Takes entries that are to be written, in place of those from the first one's index on.
    pub(crate) fn append(&mut self, entries: &[Inner]) {
        let Some(first) = entries.first() else { return };
        let at = self.place(first.index);
        assert!(at <= self.entries.len(), "entries follow one another");
        self.entries.truncate(at);
        self.entries.extend_from_slice(entries);
    }

    fn place(&self, index: u64) -> usize {
        (index - FIRST.0 - 1) as usize
    }

    fn end(&self) -> u64 {
        FIRST.0 + self.entries.len() as u64
    }
}

impl Storage for Kept {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let Vote { term, voted_for } = self.vote;
        let vote = voted_for.map_or(raft::INVALID_ID, |voter| voter.0);
        let hard_state = HardState { term: term.max(FIRST.1), vote, commit: self.committed, ..HardState::default() };
        Ok(RaftState::new(hard_state, ConfState { voters: self.voters.clone(), ..ConfState::default() }))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Inner>> {
        if low <= FIRST.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        let mut left = max_size.into().unwrap_or(u64::MAX);
        let mut fits = |entry: &&Inner| {
            let room = left > 0;
            left = left.saturating_sub(entry.data.len() as u64 + OVERHEAD);
            room
        };
        // The first comes however large it is: it would never come else.
        Ok(self.entries[self.place(low)..self.place(high)].iter().take_while(|entry| fits(entry)).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match index.cmp(&FIRST.0) {
            std::cmp::Ordering::Less => Err(Error::Store(StorageError::Compacted)),
            std::cmp::Ordering::Equal => Ok(FIRST.1),
            std::cmp::Ordering::Greater => {
                let entry = self.entries.get(self.place(index));
                entry.map(|entry| entry.term).ok_or(Error::Store(StorageError::Unavailable))
            }
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(FIRST.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.end())
    }

    /// There is none: nothing is ever cut off at the log's front, so nobody lacks what is not in it.
    fn snapshot(&self, _: u64, _: u64) -> raft::Result<Snapshot> {
        Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Kept, Vote};
    use crate::message::KeeperId;
    use base::error::ErrorKind;
    use bytes::Bytes;

    /// A log with a hole, or whose terms fall, is said and does not end the program.
    #[test]
    fn logs_that_do_not_follow() {
        let opened = |log: &[(u64, u64)]| {
            let entry = |(index, term): &(u64, u64)| Entry { index: *index, term: *term, group: Bytes::new() };
            Kept::new(&[KeeperId(1)], Vote::default(), 9, log.iter().map(entry).collect())
        };
        assert!(opened(&[]).is_ok() && opened(&[(2, 1), (3, 4)]).is_ok());
        for log in [&[(1, 1)][..], &[(3, 1)], &[(2, 1), (4, 1)], &[(2, 3), (3, 2)], &[(2, 0)]] {
            assert_eq!(opened(log).err().map(|error| error.kind()), Some(ErrorKind::Corrupt), "{log:?}");
        }
    }
}
