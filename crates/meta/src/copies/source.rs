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

/// A copy of which nothing was asked for so long is given up by whoever gets it.
const IDLE: Duration = Duration::from_secs(10);

/// A copy that is being given.
struct Given {
    to: KeeperId,
    copy: u64,
    table: Arc<Table>,
    front: Stamp,
    asked: Time,
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
        self.given.iter().any(|given| (given.to, given.copy) == (to, copy))
    }

    /// Gives a reading of the tree, which has all groups up to `front`, in place of whatever this keeper got before.
    pub fn give(&mut self, now: Time, to: KeeperId, copy: u64, (table, front): (Table, Stamp)) {
        self.given.retain(|given| given.to != to);
        self.given.push(Given { to, copy, table: Arc::new(table), front, asked: now });
    }

    /// The page of a copy behind a key; none if it is not being given.
    pub fn page(&mut self, now: Time, own: KeeperId, (to, copy): (KeeperId, u64), behind: Bytes) -> Option<PageJob> {
        let given = self.given.iter_mut().find(|given| (given.to, given.copy) == (to, copy))?;
        given.asked = now;
        let table = Arc::clone(&given.table);
        Some(PageJob { own, to, copy, table, front: given.front, behind, length: self.page })
    }

    /// Gives up what nobody asks for any more.
    pub fn tick(&mut self, now: Time) {
        self.given.retain(|given| now.since(given.asked) < IDLE);
    }

    /// When `tick` has something to do.
    pub fn next_tick(&self) -> Option<Time> {
        self.given.iter().map(|given| given.asked.after(IDLE)).min()
    }

    /// Gives up what begins before this group: the log is not there any more.
    pub fn forget_before(&mut self, front: u64) {
        self.given.retain(|given| given.front.index >= front);
    }

    /// Gives all up.
    pub fn forget(&mut self) {
        self.given.clear();
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
