//! Files that are open for writing: who holds each, which block is being written, and where its bytes go.

use super::blocks::{count_after, first_stamp, has_numbers, irregular, number_at, place};
use crate::message::hdfs::ExtendedBlock;
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::limit::{HDFS_OPEN_FILES_EACH, HDFS_OPEN_FILES_MAX, HOLDER_MAX, HOLDERS_UNTOLD_MAX};
use base::unit::Time;
use bytes::Bytes;
use client::{Attributes, FileWriter, Written};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// A holder that was silent for so long loses a file to whoever wants it (as in HDFS).
pub const SOFT_LIMIT: Duration = Duration::from_secs(60);
/// A holder that was silent for so long loses its files (as in HDFS).
pub const HARD_LIMIT: Duration = Duration::from_secs(20 * 60);

/// Files that were closed lately, remembered so that a client that did not hear the answer is told again.
const CLOSED_MAX: usize = 4096;

/// Of a holder with more open files than this a path is looked up in the store, which then costs less than to go through them.
const LOOKED_THROUGH: usize = 64;

/// Files that are open for writing through this gateway.
#[derive(Default)]
pub struct OpenFiles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    by_inode: BTreeMap<u64, Arc<OpenFile>>,
    leases: BTreeMap<Arc<str>, Lease>,
    /// Holders that said here that they live and have nothing open here, and when: the store has to be told.
    renewed_for_others: BTreeMap<String, Time>,
    /// How many files each user has open.
    users: BTreeMap<Arc<str>, usize>,
    /// Files that were closed lately, by their number.
    closed: BTreeMap<u64, Closed>,
    /// These in the order in which they were closed; what is older than its entry there counts for nothing.
    closed_order: VecDeque<(u64, u64)>,
    /// How many were ever closed.
    closed_count: u64,
}

/// A file that was closed lately.
#[derive(Clone, Copy)]
struct Closed {
    /// When, in the order of all that were.
    order: u64,
    /// Number of its last block; none if it has none.
    last: Option<u64>,
}

/// What one holder has open.
struct Lease {
    renewed: Time,
    inodes: BTreeSet<u64>,
}

/// A file that is open for writing.
pub struct OpenFile {
    /// Its number.
    pub inode: u64,
    /// Who has it open.
    pub holder: Arc<str>,
    /// The user who opened it.
    pub user: Arc<str>,
    /// From where.
    pub machine: String,
    /// The path that it was opened by.
    pub path: String,
    /// Bytes in a block.
    pub block_size: u64,
    /// As it was when it was opened.
    pub attributes: Attributes,
    /// When bytes or a heartbeat of it came, in nanoseconds of the gateway's clock.
    heard: AtomicU64,
    /// How far it is written.
    pub written: watch::Receiver<Written>,
    /// What changes. Held for moments, except while the file is closed.
    pub state: tokio::sync::Mutex<State>,
}

/// What changes of an open file.
pub struct State {
    /// Its end. None: it is closed, or was taken away.
    pub writer: Option<FileWriter>,
    /// The block being written, and the one before it.
    pub present: Option<Block>,
    /// See `present`.
    pub before: Option<Block>,
    /// What the store keeps of the present block: it is there once one began where regular blocks do not, from then on for each.
    pub kept: Option<u32>,
    /// The generation stamp of the connection that may write; those with a lower one may not.
    pub stamp: u64,
    /// The highest generation stamp given out.
    pub granted: u64,
    /// Which connection may write: each one ends the one before.
    connection: u64,
}

/// A block of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its number.
    pub id: u64,
    /// Where in the file it begins.
    pub base: u64,
}

/// The right to write into a block, until somebody else has it.
pub struct Turn {
    /// The file.
    pub file: Arc<OpenFile>,
    /// Where in the file the block begins.
    pub base: u64,
    /// Where in the file the next byte goes.
    pub position: u64,
    connection: u64,
}

/// Ends when what was handed over is synced.
pub type Syncing = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl OpenFiles {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this user may open one more: of all that there may be, who is no superuser has a part.
    pub fn has_room(&self, user: &str, superuser: bool) -> bool {
        let table = self.table();
        let own = table.users.get(user).copied().unwrap_or(0);
        table.by_inode.len() < HDFS_OPEN_FILES_MAX && (superuser || own < HDFS_OPEN_FILES_EACH)
    }

    /// The file was opened; its holder's lease is renewed.
    pub fn insert(&self, file: Arc<OpenFile>, now: Time) {
        let mut table = self.table();
        let lease = Lease { renewed: now, inodes: BTreeSet::new() };
        let lease = table.leases.entry(file.holder.clone()).or_insert(lease);
        lease.renewed = now;
        lease.inodes.insert(file.inode);
        table.closed.remove(&file.inode);
        *table.users.entry(file.user.clone()).or_default() += 1;
        let holder = file.holder.clone();
        if let Some(before) = table.by_inode.insert(file.inode, file) {
            table.one_fewer(&before.user);
            // Else the end of that holder's lease would be the end of this file.
            if before.holder != holder {
                table.not_held(&before);
            }
        }
    }

    /// The open file of this number.
    pub fn get(&self, inode: u64) -> Option<Arc<OpenFile>> {
        self.table().by_inode.get(&inode).cloned()
    }

    /// The file that this holder opened here by this path, if it is one; so few files of a holder are looked through for it.
    pub fn opened_by(&self, holder: &str, path: &str) -> Option<Arc<OpenFile>> {
        let table = self.table();
        let lease = table.leases.get(holder).filter(|lease| lease.inodes.len() <= LOOKED_THROUGH)?;
        let files = lease.inodes.iter().filter_map(|inode| table.by_inode.get(inode));
        let mut of_path = files.filter(|file| file.path == path);
        of_path.next().filter(|_| of_path.next().is_none()).cloned()
    }

    /// The file is not open any more.
    pub fn remove(&self, inode: u64) {
        self.remove_if(inode, |_| true);
    }

    /// This writing of the file has ended; another one may have begun.
    pub fn remove_this(&self, file: &OpenFile) {
        self.remove_if(file.inode, |open| open.attributes.generation == file.attributes.generation);
    }

    fn remove_if(&self, inode: u64, wanted: impl Fn(&OpenFile) -> bool) {
        let mut table = self.table();
        if !table.by_inode.get(&inode).is_some_and(|file| wanted(file)) {
            return;
        }
        let Some(file) = table.by_inode.remove(&inode) else { return };
        table.one_fewer(&file.user);
        table.not_held(&file);
    }

    /// Its holder closed it, with this last block.
    pub fn closed(&self, inode: u64, last: Option<u64>) {
        self.remove(inode);
        let mut table = self.table();
        table.closed_count = table.closed_count.saturating_add(1);
        let order = table.closed_count;
        table.closed.insert(inode, Closed { order, last });
        table.closed_order.push_back((order, inode));
        if table.closed_order.len() > CLOSED_MAX
            && let Some((order, inode)) = table.closed_order.pop_front()
            && table.closed.get(&inode).is_some_and(|closed| closed.order == order)
        {
            table.closed.remove(&inode);
        }
    }

    /// Whether the file was closed lately with this last block.
    pub fn was_closed(&self, inode: u64, last: Option<u64>) -> bool {
        self.table().closed.get(&inode).is_some_and(|closed| closed.last == last)
    }

    /// The holder lives, or was heard of at this time by another gateway. False: it has nothing open here, and there is no room to note
    /// it for others.
    pub fn renew(&self, holder: &str, at: Time) -> bool {
        let mut table = self.table();
        if let Some(lease) = table.leases.get_mut(holder) {
            lease.renewed = lease.renewed.max(at);
            return true;
        }
        if holder.len() > HOLDER_MAX {
            // The store keeps no such holder, so no gateway has anything of it open but the one that opened it.
            return true;
        }
        if let Some(renewed) = table.renewed_for_others.get_mut(holder) {
            *renewed = at.max(*renewed);
            return true;
        }
        let room = table.renewed_for_others.len() < HOLDERS_UNTOLD_MAX;
        if room {
            table.renewed_for_others.insert(holder.to_string(), at);
        }
        room
    }

    /// Holders that were heard of here since then, and when. Those without open files are told of once: what could not be said is given
    /// back to `renew`.
    pub fn heard_since(&self, since: Time) -> Vec<(String, Time)> {
        let mut table = self.table();
        let mut heard: Vec<(String, Time)> = std::mem::take(&mut table.renewed_for_others).into_iter().collect();
        for (holder, lease) in &table.leases {
            let at = lease.heard(&table.by_inode);
            if at >= since && holder.len() <= HOLDER_MAX {
                heard.push((holder.to_string(), at));
            }
        }
        heard
    }

    /// How many files the holder has open.
    pub fn held(&self, holder: &str) -> usize {
        self.table().leases.get(holder).map_or(0, |lease| lease.inodes.len())
    }

    /// Whether the holder was not heard of here for so long that anybody may take its files.
    pub fn is_silent(&self, holder: &str, now: Time) -> bool {
        let table = self.table();
        table.leases.get(holder).is_none_or(|lease| now.since(lease.heard(&table.by_inode)) > SOFT_LIMIT)
    }

    /// Holders that were not heard of here for so long that their files are to be closed.
    pub fn expired(&self, now: Time) -> Vec<Arc<str>> {
        let table = self.table();
        let silent = |lease: &Lease| {
            now.since(lease.renewed) > HARD_LIMIT && now.since(lease.heard(&table.by_inode)) > HARD_LIMIT
        };
        table.leases.iter().filter(|(_, lease)| silent(lease)).map(|(holder, _)| holder.clone()).collect()
    }

    /// What the holder has open here.
    pub fn of_holder(&self, holder: &str) -> Vec<Arc<OpenFile>> {
        let table = self.table();
        let Some(lease) = table.leases.get(holder) else { return Vec::new() };
        lease.inodes.iter().filter_map(|inode| table.by_inode.get(inode).cloned()).collect()
    }

    /// Open files with a higher number than this that are wanted, at most so many.
    pub fn after(&self, inode: u64, limit: usize, wanted: impl Fn(&OpenFile) -> bool) -> Vec<Arc<OpenFile>> {
        let after = (std::ops::Bound::Excluded(inode), std::ops::Bound::Unbounded);
        let table = self.table();
        let files = table.by_inode.range(after).map(|(_, file)| file).filter(|file| wanted(file));
        files.take(limit).cloned().collect()
    }
}

impl Lease {
    /// When its holder was heard of: it renewed its lease, or something came of a file of its.
    fn heard(&self, files: &BTreeMap<u64, Arc<OpenFile>>) -> Time {
        let files = self.inodes.iter().filter_map(|inode| files.get(inode));
        files.map(|file| file.heard_at()).max().map_or(self.renewed, |heard| heard.max(self.renewed))
    }
}

impl Table {
    /// Its holder does not have this file open any more.
    fn not_held(&mut self, file: &OpenFile) {
        if let Some(lease) = self.leases.get_mut(&file.holder) {
            lease.inodes.remove(&file.inode);
            if lease.inodes.is_empty() {
                self.leases.remove(&file.holder);
            }
        }
    }

    /// A user has one file less open.
    fn one_fewer(&mut self, user: &Arc<str>) {
        if let Some(count) = self.users.get_mut(user) {
            *count -= 1;
            if *count == 0 {
                self.users.remove(user);
            }
        }
    }
}

/// Who opens a file.
#[derive(Clone, Copy)]
pub struct Opener<'a> {
    /// The name that its lease goes by.
    pub holder: &'a str,
    /// The user.
    pub user: &'a Arc<str>,
    /// From where.
    pub machine: &'a str,
}

impl OpenFile {
    /// Bytes or a heartbeat came.
    pub fn hear(&self, now: Time) {
        self.heard.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }

    fn heard_at(&self) -> Time {
        Time::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    /// A file that was opened just now.
    pub fn new(writer: FileWriter, opener: Opener<'_>, path: &str, block_size: u64) -> OpenFile {
        let Opener { holder, user, machine } = opener;
        let attributes = writer.attributes().clone();
        let stamp = first_stamp(attributes.generation);
        OpenFile {
            inode: writer.inode(),
            holder: holder.into(),
            user: user.clone(),
            machine: machine.to_string(),
            path: path.to_string(),
            block_size,
            attributes,
            heard: AtomicU64::new(0),
            written: writer.written(),
            state: tokio::sync::Mutex::new(State {
                writer: Some(writer),
                present: None,
                before: None,
                kept: None,
                stamp,
                granted: stamp,
                connection: 0,
            }),
        }
    }

    /// The right to write into a block goes to whoever asks, if the generation stamp is a present one: it ends the turn of any
    /// other connection.
    pub async fn begin(self: &Arc<OpenFile>, block: u64, stamp: u64) -> Result<Turn> {
        let mut state = self.state.lock().await;
        let stale = |text: String| Err(Error::new(ErrorKind::Stale, text));
        if stamp < state.stamp || stamp > state.granted {
            let (least, most) = (state.stamp, state.granted);
            return stale(format!("generation stamp {stamp} of block {block} is not between {least} and {most}"));
        }
        let Some(present) = state.present.filter(|present| present.id == block) else {
            return stale(format!("block {block} is not the one that is being written to {}", self.path));
        };
        let Some(writer) = &state.writer else { return stale(format!("{} is not open any more", self.path)) };
        let position = writer.position();
        state.stamp = stamp;
        state.connection += 1;
        Ok(Turn { file: self.clone(), base: present.base, position, connection: state.connection })
    }

    /// Takes the file away from its connections: nothing more of theirs is stored.
    pub async fn take_away(&self) -> Option<FileWriter> {
        let mut state = self.state.lock().await;
        state.connection += 1;
        state.writer.take()
    }
}

impl State {
    /// The block that begins at this byte, for the store to keep if it has to.
    pub async fn begin_block(&mut self, file: &OpenFile, base: u64) -> Result<Block> {
        if !has_numbers(file.inode) {
            let text = format!(
                "{} has a number that blocks cannot have; nothing was written; write it by `stormwell put`",
                file.path
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let regular = number_at(file.inode, base, file.block_size);
        if let (Some(id), None) = (regular, self.kept) {
            return Ok(Block { id, base });
        }
        let count = self.kept.map_or(0, count_after);
        if let Some(writer) = &self.writer {
            writer.begin_block(base, count).await?;
        }
        self.kept = Some(count);
        Ok(Block { id: regular.unwrap_or_else(|| irregular(file.inode, count)), base })
    }

    /// The block that was being written when the file was taken from another gateway: as the store kept it, or else the one with the last
    /// byte if any was `begun` since the file was opened. `asked`: the one that its holder takes for the last: it may be an empty one behind
    /// that, or the one before an empty one.
    pub async fn go_on(
        &mut self,
        file: &OpenFile,
        (kept, begun): (Option<(u64, u32)>, bool),
        asked: Option<&ExtendedBlock>,
    ) -> Result<()> {
        let position = self.position();
        let regular = |base: u64| number_at(file.inode, base, file.block_size);
        self.present = match kept {
            Some((base, count)) => {
                if let Some(writer) = &self.writer {
                    writer.begin_block(base, count).await?;
                }
                self.kept = Some(count);
                Some(Block { id: regular(base).unwrap_or_else(|| irregular(file.inode, count)), base })
            }
            None => position.checked_sub(1).filter(|_| begun).and_then(|last| {
                let base = last - last % file.block_size;
                regular(base).map(|id| Block { id, base })
            }),
        };
        let Some(asked) = asked.filter(|asked| place(asked.id).is_some_and(|place| place.inode == file.inode)) else {
            return Ok(());
        };
        if self.kept.is_none() && regular(position) == Some(asked.id) {
            (self.before, self.present) = (self.present, Some(Block { id: asked.id, base: position }));
        } else if self.present.is_some_and(|present| present.base == position && present.id != asked.id) {
            let base = position.saturating_sub(asked.length.unwrap_or(0));
            self.before = Some(Block { id: asked.id, base });
        }
        Ok(())
    }

    /// Bytes of the file that were received.
    pub fn position(&self) -> u64 {
        self.writer.as_ref().map_or(0, FileWriter::position)
    }

    /// Nobody with a lower generation stamp writes from now on.
    pub fn raise(&mut self, stamp: u64) {
        if stamp > self.stamp {
            self.stamp = stamp;
            self.connection += 1;
        }
    }
}

/// Sets aside what a whole block from `base` on takes, if a quota limits bytes: `OverQuota` before anything is written.
pub async fn reserve_block(state: &State, base: u64, block_size: u64) -> Result<()> {
    match &state.writer {
        Some(writer) if writer.is_limited() => writer.reserve(base.saturating_add(block_size)).await,
        _ => Ok(()),
    }
}

impl Turn {
    /// Adds bytes to the file, at most a piece of 1 MiB.
    pub async fn write(&self, bytes: Bytes, sums: BlockSums) -> Result<()> {
        let mut state = self.file.state.lock().await;
        self.writer(&mut state)?.write_now(bytes, sums).await
    }

    /// The same, with a future that ends when they and all before them are synced.
    pub async fn sync(&self, bytes: Bytes, sums: BlockSums) -> Result<Syncing> {
        let mut state = self.file.state.lock().await;
        Ok(Box::pin(self.writer(&mut state)?.sync_now(bytes, sums).await?))
    }

    fn writer<'a>(&self, state: &'a mut State) -> Result<&'a mut FileWriter> {
        match &mut state.writer {
            Some(writer) if state.connection == self.connection => Ok(writer),
            _ => {
                let text = format!("another connection writes {} now, or it was closed", self.file.path);
                Err(Error::new(ErrorKind::Stale, text))
            }
        }
    }
}
