//! The keeper that gives copies of its tree: a reading of the tree that stands still, for as long as pages of it are asked for.

use super::{CopyMessage, KeeperMessage, Page, What};
use crate::format::MergedRecord;
use crate::key::Key;
use crate::layers::{Table, read_table};
use crate::tree;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use bytes::Bytes;
use prost::Message;
use quorum::{KeeperId, Stamp};
use redb::Database;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// A copy of which nothing was asked for so long is given up by whoever gets it, or it has all of it and writes the end.
const IDLE: Duration = Duration::from_secs(10);

/// A page that is asked for again may be on its way: it is read once more after so long, and then after twice as long.
const AGAIN: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// A copy that is being given.
struct Given {
    to: KeeperId,
    copy: u64,
    /// None: nothing is asked for any more. What follows the tree stays in the log until it is known to be there.
    table: Option<Arc<Table>>,
    front: Stamp,
    asked: Time,
    /// The page that was read last, when, and after how long it is read again.
    read: Option<(Bytes, Time)>,
    again: Duration,
}

/// All that are being given.
pub struct Source {
    /// Bytes of a page, about.
    page: usize,
    given: Vec<Given>,
}

/// A page to be read, on whatever thread has time for that.
pub struct PageJob {
    own: KeeperId,
    to: KeeperId,
    copy: u64,
    table: Arc<Table>,
    front: Stamp,
    behind: Bytes,
    /// Its bytes, about.
    length: usize,
}

/// A reading of the tree as it is now, and the last change that it has.
pub fn pin(database: &Database) -> Result<(Table, u64)> {
    let table = read_table(database)?;
    let key = Key::Merged.encode();
    let bytes = table.get(key.as_slice()).map_err(|error| tree::failed("read", error))?;
    let record = bytes.and_then(|bytes| MergedRecord::decode(bytes.value()).ok());
    let record = record.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the metadata tree does not say what it has"))?;
    Ok((table, record.sequence))
}

impl Source {
    /// One that gives nothing yet, and pages of so many bytes.
    pub fn new(page: usize) -> Source {
        Source { page, given: Vec::new() }
    }

    /// The index of the group from behind which the log is to be kept for those who get copies; none: nobody does.
    pub fn front(&self) -> Option<u64> {
        self.given.iter().map(|given| given.front.index).min()
    }

    /// Whether this one is being given.
    pub fn has(&self, to: KeeperId, copy: u64) -> bool {
        self.given.iter().any(|given| (given.to, given.copy) == (to, copy) && given.table.is_some())
    }

    /// Gives a reading of the tree, which has all groups up to `front`, in place of whatever this keeper got before.
    pub fn give(&mut self, now: Time, to: KeeperId, copy: u64, (table, front): (Table, Stamp)) {
        self.given.retain(|given| given.to != to);
        let (table, read, again) = (Some(Arc::new(table)), None, AGAIN);
        self.given.push(Given { to, copy, table, front, asked: now, read, again });
    }

    /// The page of a copy behind a key; none if it is not being given, or was read a moment ago: then it is on its way.
    pub fn page(&mut self, now: Time, own: KeeperId, (to, copy): (KeeperId, u64), behind: Bytes) -> Option<PageJob> {
        let given = self.given.iter_mut().find(|given| (given.to, given.copy) == (to, copy))?;
        given.asked = now;
        match &given.read {
            Some((read, at)) if *read == behind && now < at.after(given.again) => return None,
            Some((read, _)) if *read == behind => given.again = (2 * given.again).min(AGAIN_MAX),
            _ => given.again = (given.again / 2).max(AGAIN),
        }
        // Not the message that it came in.
        given.read = Some((Bytes::copy_from_slice(&behind), now));
        let table = Arc::clone(given.table.as_ref()?);
        Some(PageJob { own, to, copy, table, front: given.front, behind, length: self.page })
    }

    /// Gives up what nobody asks for any more, but for the log that follows it, until `has_caught_up` says of whoever got it that he has that, too.
    pub fn tick(&mut self, now: Time, has_caught_up: impl Fn(KeeperId, Stamp) -> bool) {
        for given in self.given.iter_mut().filter(|given| now >= given.asked.after(IDLE)) {
            given.table = None;
        }
        self.given.retain(|given| given.table.is_some() || !has_caught_up(given.to, given.front));
    }

    /// When `tick` has something to do.
    pub fn next_tick(&self) -> Option<Time> {
        let asked = self.given.iter().filter(|given| given.table.is_some());
        asked.map(|given| given.asked.after(IDLE)).min()
    }

    /// Gives up what begins before this group: the log is not there any more.
    pub fn forget_before(&mut self, front: u64) {
        self.given.retain(|given| given.front.index >= front);
    }

    /// Gives all up. Whether pages of some were still asked for.
    pub fn forget(&mut self) -> bool {
        self.given.drain(..).any(|given| given.table.is_some())
    }

    /// Whether this one was being given, and nobody asks for it any more.
    pub fn has_ended(&self, to: KeeperId, copy: u64) -> bool {
        self.given.iter().any(|given| (given.to, given.copy) == (to, copy) && given.table.is_none())
    }
}

impl fmt::Debug for PageJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageJob({} to {})", self.copy, self.to.0)
    }
}

impl PageJob {
    /// Reads it: what to send to whom. Blocks.
    pub fn run(self) -> Result<(KeeperId, KeeperMessage)> {
        let PageJob { own, to, copy, table, front, behind, length: most } = self;
        let from = if behind.is_empty() { Bound::Unbounded } else { Bound::Excluded(&behind[..]) };
        let range = table.range::<&[u8]>((from, Bound::Unbounded)).map_err(|error| tree::failed("read", error))?;
        let (mut pairs, mut length, mut is_last) = (Vec::new(), 0, true);
        for pair in range {
            if length >= most {
                is_last = false;
                break;
            }
            let (key, value) = pair.map_err(|error| tree::failed("read", error))?;
            let (key, value) = (Bytes::copy_from_slice(key.value()), Bytes::copy_from_slice(value.value()));
            length += key.len() + value.len();
            pairs.push((key, value));
        }
        let page = Page { behind, front, is_last, pairs };
        Ok((to, KeeperMessage::Copy(CopyMessage { from: own, copy, what: What::Page(page) })))
    }
}
