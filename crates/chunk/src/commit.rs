//! Group commit: how far each stream of the log is written and durable, and who waits for it.

use crate::request::Reply;
use base::disk::FileName;
use base::policy::Level;
use base::unit::Time;
use std::collections::{BTreeMap, BTreeSet};

/// A stream of the log: its watermarks in sequence numbers, and who waits for them.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// The last sequence number given out in this stream.
    pub last: u64,
    /// Every record up to here is written.
    pub written: u64,
    /// Every record up to here, and none behind it, is written or was copied into the early file (`early`); below `written` it says nothing.
    pub early: u64,
    /// Every record up to here is on stable media.
    pub durable: u64,
    /// Files with writes that no sync has covered.
    pub dirty: BTreeSet<FileName>,
    /// Bytes written since the last round began.
    pub unsynced_bytes: u64,
    /// When the first of them was written.
    pub unsynced_since: Option<Time>,
    /// The sync round under way.
    pub round: Option<Round>,
    /// Somebody who has little to write waits for this record to be durable.
    hurried: u64,
    wait_written: BTreeSet<(u64, u64)>,
    wait_synced: BTreeSet<(u64, u64)>,
}

/// Syncs of all dirty files of a stream, which make everything written at its start durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub target: u64,
    pub left: usize,
}

impl Stream {
    /// A stream whose records up to `last` are durable.
    pub fn starting_at(last: u64) -> Stream {
        Stream { last, written: last, durable: last, ..Stream::default() }
    }

    /// Every record up to here survives the end of the process.
    pub fn kept(&self) -> u64 {
        self.written.max(self.early)
    }

    /// Somebody waits for records to survive the end of the process, and for no more.
    pub fn is_awaited_early(&self) -> bool {
        !self.wait_written.is_empty()
    }

    /// Somebody waits for a record to be written or durable.
    pub fn has_waiters(&self) -> bool {
        !self.wait_written.is_empty() || !self.wait_synced.is_empty()
    }

    /// Somebody waits for records to be durable that are not even written.
    pub fn is_wanted_synced(&self) -> bool {
        self.wait_synced.last().is_some_and(|(need, _)| *need > self.written)
    }

    /// A sync now would let somebody go on.
    pub fn is_awaited(&self) -> bool {
        self.wait_synced.first().is_some_and(|(need, _)| *need <= self.written)
    }

    /// Somebody who wrote little waits until this record is durable: worth a sync before much has gathered.
    pub fn hurry(&mut self, need: u64) {
        self.hurried = self.hurried.max(need);
    }

    /// A sync now would let somebody go on who wrote little.
    pub fn is_hurried(&self) -> bool {
        self.durable < self.hurried && self.hurried <= self.written
    }

    /// Something written is not durable, and no round is under way.
    pub fn may_start_round(&self) -> bool {
        self.round.is_none() && self.durable < self.written
    }

    /// Starts a round: the files to sync.
    pub fn start_round(&mut self) -> BTreeSet<FileName> {
        let files = std::mem::take(&mut self.dirty);
        (self.unsynced_bytes, self.unsynced_since) = (0, None);
        self.round = Some(Round { target: self.written, left: files.len() });
        files
    }

    /// One sync of the round is done; true if it was the last.
    pub fn synced(&mut self) -> bool {
        let Some(round) = &mut self.round else { return false };
        round.left = round.left.saturating_sub(1);
        if round.left > 0 {
            return false;
        }
        self.durable = self.durable.max(round.target);
        self.round = None;
        true
    }
}

/// Requests whose answer waits for the log.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: BTreeMap<u64, (Reply, u32)>,
}

impl Waiters {
    /// Lets `ticket` wait until both streams are at `level` up to these sequence numbers. Gives the reply back if they are.
    pub fn wait(&mut self, streams: [(&mut Stream, u64); 2], level: Level, ticket: u64, reply: Reply) -> Option<Reply> {
        let mut conditions = 0;
        for (stream, need) in streams {
            let (mark, set) = match level {
                Level::Received => continue,
                Level::Written => (stream.kept(), &mut stream.wait_written),
                Level::Synced => (stream.durable, &mut stream.wait_synced),
            };
            if need > mark {
                set.insert((need, ticket));
                conditions += 1;
            }
        }
        if conditions == 0 {
            return Some(reply);
        }
        self.waiting.insert(ticket, (reply, conditions));
        None
    }

    /// Takes out everybody whom the stream's marks let go, in order.
    pub fn release(&mut self, stream: &mut Stream, out: &mut Vec<(u64, Reply)>) {
        let marks = [(stream.kept(), &mut stream.wait_written), (stream.durable, &mut stream.wait_synced)];
        for (mark, set) in marks {
            while let Some((need, ticket)) = set.first().copied()
                && need <= mark
            {
                set.pop_first();
                let Some((_, conditions)) = self.waiting.get_mut(&ticket) else { continue };
                *conditions -= 1;
                if *conditions == 0
                    && let Some((reply, _)) = self.waiting.remove(&ticket)
                {
                    out.push((ticket, reply));
                }
            }
        }
    }

    /// Everybody who waits, in the order of the tickets; they wait no more.
    pub fn give_up(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_keys().collect()
    }
}
