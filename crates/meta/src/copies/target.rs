//! The keeper that gets a copy of another one's tree: it asks for one page after the other, and has them put into a file of their own. The copy counts
//! when all of it is there, durably; then that file takes the place of the tree's.

use super::{CopyMessage, Page, What};
use crate::format::{MergedRecord, SEQUENCE_MAX, check_version};
use crate::key::Key;
use crate::tree::{self, TABLE};
use base::disk::BlockFile;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::planted::Planted;
use base::unit::Time;
use base::version::ProgramVersion;
use bytes::Bytes;
use prost::Message;
use quorum::{KeeperId, Stamp};
use redb::{Database, WriteTransaction};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A page that did not come is asked for again after so long.
const AGAIN: Duration = Duration::from_millis(500);

/// A copy that nobody says is needed ends after so long: the leader says it ten times a second.
const UNNEEDED: Duration = Duration::from_secs(5);

/// A page that takes long to write: whoever gives the copy is told so often that it goes on.
const STILL: Duration = Duration::from_secs(3);

/// A copy that could not be written is begun anew after so long.
const FAILED: Duration = Duration::from_secs(5);

/// A tree that is being written. Its one transaction is durable when the last page is in it.
pub struct Builder {
    transaction: WriteTransaction,
    database: Database,
    front: Stamp,
    merged: Option<MergedRecord>,
}

/// A page to be written, on whatever thread has time for that.
pub struct CopyJob {
    copy: u64,
    builder: Option<Box<Builder>>,
    page: Page,
}

/// What became of a `CopyJob`; goes to `Store::copied`.
pub struct CopyResult {
    copy: u64,
    result: Result<Written>,
}

enum Written {
    /// More is to come.
    Part(Box<Builder>),
    /// All of it is there, durably.
    Whole(Stamp),
}

struct Run {
    from: KeeperId,
    copy: u64,
    /// The last key that came.
    behind: Bytes,
    /// When the page behind it was asked for last, if it was and has not come.
    asked: Option<Time>,
    /// When something was asked last.
    spoke: Time,
    /// None before the first page, and while one is being written.
    builder: Option<Box<Builder>>,
    /// The next one, which came meanwhile: reading and sending it takes as long as writing one.
    next: Option<Page>,
    needed: Time,
}

impl Run {
    fn new(from: KeeperId, copy: u64, now: Time) -> Run {
        let (behind, asked, builder, next) = (Bytes::new(), None, None, None);
        Run { from, copy, behind, asked, spoke: now, builder, next, needed: now }
    }
}

/// What the target wants done.
pub enum Wish {
    /// To be sent.
    Send {
        /// To whom.
        to: KeeperId,
        /// What.
        message: CopyMessage,
    },
    /// To be run.
    Copy(CopyJob),
}

/// A copy that this keeper gets, if it does.
pub struct Target {
    own: KeeperId,
    random: Arc<dyn Random>,
    planted: Option<Planted>,
    run: Option<Run>,
    /// It has to have all groups up to this index at the least.
    least: u64,
    /// None is begun before.
    not_before: Time,
    /// A page is being written, perhaps of a copy that was given up: its file is not to be taken away before.
    writes: bool,
    wishes: Vec<Wish>,
}

impl Target {
    /// None yet. `least`: the index of a group that the tree has to have, with all before it.
    pub fn new(own: KeeperId, least: u64, random: Arc<dyn Random>, planted: Option<Planted>) -> Target {
        Target { own, random, planted, run: None, least, not_before: Time::ZERO, writes: false, wishes: Vec::new() }
    }

    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        self.run.is_some()
    }

    /// This keeper needs a copy of that one's tree.
    pub fn needs(&mut self, now: Time, from: KeeperId) {
        if let Some(run) = self.run.as_mut().filter(|run| run.from == from) {
            run.needed = now;
        } else if now >= self.not_before && !self.writes {
            self.run = Some(Run::new(from, self.random.next(), now));
            self.ask(now);
        }
    }

    fn ask(&mut self, now: Time) {
        let Some(run) = &mut self.run else { return };
        run.asked = Some(now);
        self.say(now);
    }

    fn say(&mut self, now: Time) {
        let Some(run) = &mut self.run else { return };
        run.spoke = now;
        let what = What::Asks { behind: run.behind.clone(), least: self.least };
        let message = CopyMessage { from: self.own, copy: run.copy, what };
        self.wishes.push(Wish::Send { to: run.from, message });
    }

    /// Asks again for what did not come, and ends what is not needed any more.
    pub fn tick(&mut self, now: Time) {
        let Some(run) = &self.run else { return };
        if now >= run.needed.after(UNNEEDED) {
            self.run = None;
        } else if run.asked.is_some_and(|asked| now >= asked.after(AGAIN)) {
            self.ask(now);
        } else if run.asked.is_none() && now >= run.spoke.after(STILL) {
            // The page that comes is not waited for, and counts for nothing.
            self.say(now);
        }
    }

    /// When `tick` has something to do.
    pub fn next_tick(&self) -> Option<Time> {
        let run = self.run.as_ref()?;
        let speaks = run.asked.map_or(run.spoke.after(STILL), |asked| asked.after(AGAIN));
        Some(speaks.min(run.needed.after(UNNEEDED)))
    }

    /// Something of a copy came, perhaps of another one, late or twice.
    pub fn receive(&mut self, now: Time, message: CopyMessage) {
        let CopyMessage { from, copy, what } = message;
        let Some(run) = self.run.as_mut().filter(|run| (run.from, run.copy) == (from, copy)) else { return };
        match what {
            What::Page(mut page)
                if page.behind == run.behind && page.front.index >= self.least && run.asked.is_some() =>
            {
                page.is_last |= self.planted == Some(Planted::HalfACopyCounts);
                // Of a page without a key the builder says that it is wrong.
                run.behind = page.pairs.last().map_or(Bytes::new(), |(key, _)| Bytes::copy_from_slice(key));
                (run.asked, run.next) = (None, Some(page));
                self.go_on(now);
            }
            // It is begun anew when this keeper is told again that it needs one.
            What::Gone => self.run = None,
            What::Page(_) | What::Asks { .. } => {}
        }
    }

    /// Has what came written, if nothing is being written, and asks for the next page.
    fn go_on(&mut self, now: Time) {
        let Some(run) = self.run.as_mut().filter(|_| !self.writes) else { return };
        if let Some(page) = run.next.take() {
            let asks = !page.is_last;
            self.writes = true;
            self.wishes.push(Wish::Copy(CopyJob { copy: run.copy, builder: run.builder.take(), page }));
            if asks {
                self.ask(now);
            }
        }
    }

    /// A page was written, or was not. If it was the last one: the group up to which the copy has all; its file is to take the place of the tree's, unless
    /// that is not needed any more.
    pub fn written(&mut self, now: Time, done: CopyResult) -> Result<Option<Stamp>> {
        self.writes = false;
        let Some(run) = self.run.as_mut().filter(|run| run.copy == done.copy) else { return Ok(None) };
        match done.result {
            Ok(Written::Part(builder)) => {
                run.builder = Some(builder);
                self.go_on(now);
                Ok(None)
            }
            Ok(Written::Whole(front)) => {
                self.run = None;
                Ok(Some(front))
            }
            Err(error) => {
                (self.run, self.not_before) = (None, now.after(FAILED));
                Err(error)
            }
        }
    }

    /// Whether a page is being written.
    pub fn is_writing(&self) -> bool {
        self.writes
    }

    /// What is to be done since this was asked, in order.
    pub fn take_wishes(&mut self) -> Vec<Wish> {
        std::mem::take(&mut self.wishes)
    }
}

impl fmt::Debug for CopyJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopyJob({}, {} pairs)", self.copy, self.page.pairs.len())
    }
}

impl CopyJob {
    /// Does it. `file`: makes the file of the copy; it is called for the first page. One that is there has to be removed, and not emptied: whatever is left
    /// of an earlier copy may have it open, and write to it when it is dropped. Blocks: writes that file, and syncs it when the last page is in it.
    pub fn run(self, file: impl FnOnce() -> Result<Box<dyn BlockFile>>) -> CopyResult {
        let CopyJob { copy, builder, page } = self;
        let builder = builder.map_or_else(|| Builder::begin(file()?, page.front), Ok);
        CopyResult { copy, result: builder.and_then(|builder| builder.add(page)) }
    }
}

impl Builder {
    fn begin(file: Box<dyn BlockFile>, front: Stamp) -> Result<Box<Builder>> {
        file.set_length(0)?;
        let (database, storage) = tree::open(file, true)?;
        storage.release()?;
        let mut transaction = database.begin_write().map_err(|error| tree::failed("begin a change", error))?;
        tree::make_durable(&mut transaction)?;
        Ok(Box::new(Builder { transaction, database, front, merged: None }))
    }

    fn add(mut self: Box<Builder>, page: Page) -> Result<Written> {
        let wrong = |what| {
            let text = format!("a copy of the metadata tree {what}; it is begun anew, and nothing is lost");
            Err(Error::new(ErrorKind::Corrupt, text))
        };
        if page.front != self.front {
            return wrong("has pages of two trees");
        }
        let mut behind = &page.behind;
        {
            let table = self.transaction.open_table(TABLE);
            let mut table = table.map_err(|error| tree::failed("open its table", error))?;
            for (key, value) in &page.pairs {
                if key <= behind {
                    return wrong("has keys that do not follow");
                }
                behind = key;
                if key[..] == Key::Merged.encode()[..] {
                    self.merged = MergedRecord::decode(&value[..]).ok();
                } else {
                    table.insert(&key[..], &value[..]).map_err(|error| tree::failed("write", error))?;
                }
            }
            if page.is_last {
                let Some(record) = self.merged.take() else { return wrong("does not say what it has") };
                check_version(record.version, ProgramVersion::from_number(record.least))?;
                let Stamp { index, term, sum } = self.front;
                if [record.sequence, index, term].into_iter().any(|count| count > SEQUENCE_MAX / 2) {
                    return wrong("has an impossible sequence number");
                }
                let record = MergedRecord { index, term, sum, begun: true, ..record };
                let inserted = table.insert(Key::Merged.encode().as_slice(), record.encode_to_vec().as_slice());
                inserted.map_err(|error| tree::failed("write", error))?;
            }
        }
        if !page.is_last {
            // Nothing in it would be asked for again and again.
            return if page.pairs.is_empty() { wrong("has an empty page") } else { Ok(Written::Part(self)) };
        }
        self.transaction.commit().map_err(|error| tree::failed("commit", error))?;
        drop(self.database);
        Ok(Written::Whole(self.front))
    }
}
