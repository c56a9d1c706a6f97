//! A copy of a group's chunk on another device. One of a chunk that nobody writes any more is complete, sealed, durable and compared with the
//! original (`verifying`) when it is handed to whoever names it in the metadata. Between nodes the one that takes it fetches the bytes.
//!
//! Whoever copies a chunk has claimed it (`Jobs::copying`) from before the first byte until the copy is named or gone. So there is one copy of it
//! under way at a time, what is found of a chunk at its target is a leftover, and nobody takes the copy for something unknown (`comparing`).

use super::claims::Claim;
use super::orders::{Order, PATIENCE};
use crate::device::control::{Copied, Extent, Kept};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, GroupId};
use base::limit::{FETCH_MAX, FULL_WAIT, LIST_PAGE_MAX, RECORD_PAYLOAD_MAX};
use base::planted::Planted;
use base::policy::Level;
use bytes::Bytes;
use net::cells::Stored;
use net::message::order::Fetch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes copied at once: one record.
pub const STEP: u64 = RECORD_PAYLOAD_MAX as u64;

/// How long it is waited for a fetch, or for sums of as many bytes: as many bytes as many small orders have, over a network that others use, too,
/// each piece of which may wait for room. One that comes late appends what is there, or is refused.
pub const FETCH_WAIT: Duration = Duration::from_secs(30);

/// How often a chunk that grows meanwhile is asked how long it is before it is sealed. Nobody should write it: once more than a late append takes.
const SEAL_ATTEMPTS: usize = 3;

/// Told how many bytes more were copied.
pub type Progress = Box<dyn Fn(u64) + Send + Sync>;

/// A copy of a chunk that is being made. Its claim ends when this is dropped.
pub struct Copying {
    /// The node whose keeper leads.
    pub node: Arc<Node>,
    /// The leadership that it belongs to.
    pub leading: Arc<Leading>,
    /// The group.
    pub group: GroupId,
    /// Its chunk, of which each copy has the name.
    pub chunk: ChunkId,
    /// Where it is copied from.
    pub from: DeviceHandle,
    /// Where it is copied to.
    pub to: DeviceHandle,
    /// Bytes that the original has if nothing of it is lost, as far as the metadata says; 0: it does not.
    pub at_least: u64,
    /// A fault put in on purpose.
    pub planted: Option<Planted>,
    progress: Progress,
    copied: AtomicU64,
    /// The metadata name the replica at the target all the time: what is there may be all that is left when this fails.
    is_named: bool,
    /// Zeros stand in the copy where the original had released bytes: what is stored of the two is not the same.
    filled: AtomicBool,
    _claim: Claim<(GroupId, ChunkId)>,
}

impl Copying {
    /// Claims the chunk, to be copied between these devices. `Busy`: somebody else copies it. `Stale`: the metadata names a copy of it there: what is
    /// known of the group is of before somebody else copied it. That copy would else be taken for a leftover.
    pub async fn begin(
        (node, leading): (&Arc<Node>, &Arc<Leading>),
        (group, chunk): (GroupId, ChunkId),
        (from, to): (DeviceHandle, DeviceHandle),
        progress: Progress,
    ) -> Result<Copying> {
        Copying::claimed((node, leading), (group, chunk), (from, to), (progress, false)).await
    }

    /// The same of a chunk that the metadata name at the target, too, where it is to be compared with the original, or copied anew. Both may be one.
    pub async fn begin_again(
        of: (&Arc<Node>, &Arc<Leading>),
        chunk: (GroupId, ChunkId),
        devices: (DeviceHandle, DeviceHandle),
        progress: Progress,
    ) -> Result<Copying> {
        Copying::claimed(of, chunk, devices, (progress, true)).await
    }

    async fn claimed(
        (node, leading): (&Arc<Node>, &Arc<Leading>),
        (group, chunk): (GroupId, ChunkId),
        (from, to): (DeviceHandle, DeviceHandle),
        (progress, again): (Progress, bool),
    ) -> Result<Copying> {
        let Ok(claim) = timeout(PATIENCE, leading.jobs.copying.claim((group, chunk))).await else {
            let text = format!("somebody else copies or deletes chunk {chunk} of group {group}; it is copied later");
            return Err(Error::new(ErrorKind::Busy, text));
        };
        let meta::Reply::Known(known) =
            leading.metadata.ask(meta::Request::KnownGroups { groups: vec![group] }).await?
        else {
            unreachable!("a known group was asked for")
        };
        let mut layouts = known.iter().filter_map(|known| known.layout.as_ref());
        let is_named = layouts.any(|layout| layout.on(to.id()).any(|replica| replica.chunk == chunk));
        if is_named != again {
            let has = if is_named { "has a copy" } else { "has no copy" };
            let text = format!("{} {has} of chunk {chunk} of group {group} by now; it was not copied", to.shown());
            return Err(Error::new(ErrorKind::Stale, text));
        }
        let (planted, node, leading) = (node.planted, node.clone(), leading.clone());
        let (at_least, copied, filled) = (0, AtomicU64::new(0), AtomicBool::new(false));
        Ok(Copying {
            node,
            leading,
            group,
            chunk,
            from,
            to,
            at_least,
            planted,
            progress,
            copied,
            is_named: again,
            filled,
            _claim: claim,
        })
    }

    /// Makes the copy of a chunk that nobody writes any more: complete, sealed, durable and compared with the original; how it is. None: there is
    /// nothing to copy, nor anything of it at the target. Whoever wants to name it claims the group, and asks `confirm` under that claim.
    ///
    /// `Corrupt`: of the original bytes are missing, or damaged. `Busy`: as it is now it cannot be copied; later it can.
    pub async fn at_rest(&self) -> Result<Option<Extent>> {
        let original = self.original_at_rest().await?;
        self.clear().await?;
        let Some(original) = original else { return Ok(None) };
        self.copy(&original, 0).await?;
        let whole = Extent { sealed: true, ..original };
        self.close(&whole).await?;
        self.release().await?;
        self.compare(&whole).await?;
        Ok(Some(whole))
    }

    /// Deletes the copy, which nobody will name; not one that is named already. Not if that was because the keeper leads no more: then it may be named all the same, or be another
    /// one by now, of whoever leads. That one compares the device with the metadata, and finds it if it is unknown.
    pub async fn give_up(&self, error: &Error) {
        if error.kind() != ErrorKind::Moved && !self.is_named {
            // If that is cut short it goes when its device is compared with the metadata.
            let _later = self.clear().await;
        }
    }

    /// Bytes copied so far.
    pub fn copied(&self) -> u64 {
        self.copied.load(Ordering::Relaxed)
    }

    /// Whether zeros stand in the copy where the original had released bytes.
    pub fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Relaxed)
    }

    /// Whether the original stays open: its device takes no changes, so that it does not grow either.
    pub fn stays_open(&self) -> bool {
        self.from.has_failed() || self.planted == Some(Planted::OpenChunkMoved)
    }

    /// Orders something of one of its devices. A device that does not answer ends the copying, and what it was told may be done later: the copy,
    /// which nobody names then, is no copy until it was compared with the original, and goes as that of any copying that was cut short.
    pub async fn told<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        handle: &DeviceHandle,
        work: impl FnOnce(DeviceHandle, Arc<Order>) -> F,
    ) -> Result<T> {
        self.leading.jobs.told(handle, work).await
    }

    /// How far the chunk has come on one of its devices.
    pub async fn stat(&self, handle: &DeviceHandle) -> Result<Option<Extent>> {
        let chunk = self.chunk;
        self.told(handle, |handle, _| async move { handle.stat(chunk).await }).await
    }

    /// What is left of it there.
    pub async fn kept(&self, handle: &DeviceHandle) -> Result<Kept> {
        let chunk = self.chunk;
        self.told(handle, |handle, _| async move { handle.kept(chunk).await }).await
    }

    /// The original, sealed, so that nothing comes to it after it was copied: a writer that was told that its group ended early, because the device
    /// was gone, may have sent more before.
    pub async fn original_at_rest(&self) -> Result<Option<Extent>> {
        let mut found = self.original().await?;
        for _ in 0..SEAL_ATTEMPTS {
            let Some(open) = found.filter(|extent| !extent.sealed && !self.stays_open()) else { return Ok(found) };
            match self.seal(&self.from, &open).await {
                Ok(()) => (),
                // It grew, or was fenced, meanwhile.
                Err(error) if error.kind() == ErrorKind::Stale => (),
                // There is no room for the seal on the device whose chunks go. Others need none, and make room.
                Err(error) if error.kind() == ErrorKind::Full => {
                    return Err(Error::new(ErrorKind::Busy, error.text()));
                }
                Err(error) => return Err(error),
            }
            found = self.original().await?;
        }
        match found {
            Some(open) if !open.sealed && !self.stays_open() => {
                let text = format!(
                    "chunk {} on {} still grows, though its group is closed; it is copied later",
                    self.chunk,
                    self.from.shown()
                );
                Err(Error::new(ErrorKind::Busy, text))
            }
            found => Ok(found),
        }
    }

    /// How far the original has come. `Corrupt` if bytes are missing.
    async fn original(&self) -> Result<Option<Extent>> {
        let found = self.stat(&self.from).await?;
        let length = found.map_or(0, |extent| extent.length);
        if length >= self.at_least {
            return Ok(found);
        }
        let text = format!(
            "chunk {} on {} has {length} bytes where its group has {}; nothing was copied; what is missing is lost unless another copy has it",
            self.chunk,
            self.from.shown(),
            self.at_least
        );
        Err(Error::new(ErrorKind::Corrupt, text))
    }

    /// Seals it on one of its devices, as it is.
    pub async fn seal(&self, handle: &DeviceHandle, extent: &Extent) -> Result<()> {
        let (chunk, Extent { generation, length, .. }) = (self.chunk, *extent);
        let seal = |handle: DeviceHandle, told: Arc<Order>| async move {
            told.may_wait(FULL_WAIT);
            handle.seal(chunk, generation, length).await
        };
        self.told(handle, seal).await
    }

    /// Deletes what there is of the chunk at the target: a leftover, whose bytes would be taken for the copy's, since an append of as many bytes as
    /// are there is answered without a look at them.
    pub async fn clear(&self) -> Result<()> {
        let chunk = self.chunk;
        self.told(&self.to, |handle, _| async move { handle.delete(vec![chunk]).await }).await
    }

    /// Copies the bytes from `start` on, in order; zeros where they were released. How long the copy is.
    pub async fn copy(&self, extent: &Extent, start: u64) -> Result<u64> {
        let kept = self.kept(&self.from).await?;
        let mut at = start;
        while at < extent.length {
            let next = kept.ranges.iter().find(|(_, end)| *end > at);
            if let Some((from, end)) = next
                && *from <= at
            {
                let until = at.saturating_add(FETCH_MAX).min(*end).min(extent.length);
                if self.fetch(extent, kept.small_parts, (at, until)).await? {
                    // The last cell may go on behind these bytes.
                    let copy = self.stat(&self.to).await?;
                    let before = std::mem::replace(&mut at, copy.map_or(until, |copy| copy.length.max(until)));
                    self.came(at - before);
                    continue;
                }
            }
            let most = at.saturating_add(STEP).min(extent.length);
            let zeros =
                |end: u64| vec![Stored { offset: at, bytes: Bytes::from(vec![0; (end - at) as usize]), cell: 0 }];
            let is_there = next.is_some_and(|(from, _)| *from <= at);
            self.filled.fetch_or(!is_there, Ordering::Relaxed);
            let pieces = match next {
                Some((from, end)) if *from <= at => {
                    let (chunk, start, end) = (self.chunk, at, most.min(*end));
                    self.told(&self.from, |handle, _| async move { handle.read(chunk, start, end).await }).await?
                }
                Some((from, _)) => zeros(most.min(*from)),
                None => zeros(most),
            };
            for piece in pieces {
                let end = at.max(piece.end());
                if is_there {
                    self.came(end - at);
                }
                at = end;
                self.append(extent, piece, Level::Written, kept.small_parts).await?;
            }
        }
        Ok(at)
    }

    /// So many bytes more were copied.
    fn came(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
        (self.progress)(bytes);
    }

    /// Lets the node that takes the chunk fetch these bytes. False: this node has to carry them, because both devices are its own, or
    /// because that one cannot reach the other, or does not know how.
    async fn fetch(&self, extent: &Extent, small_parts: bool, (start, end): (u64, u64)) -> Result<bool> {
        let (node, address) = match &self.from {
            DeviceHandle::Local(_) => self.node.neighbours.itself(),
            DeviceHandle::Remote(far) => (far.peer.incarnation().0, far.peer.address()),
        };
        let order = Fetch {
            device: self.to.id().0.into(),
            chunk: self.chunk.0.into(),
            group: self.group.0,
            generation: extent.generation.0,
            small_parts,
            from: self.from.id().0.into(),
            node: node.0.into(),
            address,
            start,
            end,
        };
        let fetched = match (&self.from, &self.to) {
            (DeviceHandle::Local(_), DeviceHandle::Local(_)) => return Ok(false),
            (DeviceHandle::Remote(_), DeviceHandle::Local(_)) => timeout(FETCH_WAIT, self.node.fetch(order)).await,
            (_, DeviceHandle::Remote(far)) => {
                timeout(FETCH_WAIT, far.ask(&order)).await.map(|fetched| fetched.map(drop))
            }
        };
        // Which of the two devices it waits for is not known here.
        let fetched = fetched.unwrap_or_else(|_| {
            let text = format!("{} has not fetched chunk {} in time", self.to.shown(), self.chunk);
            Err(Error::new(ErrorKind::Unreachable, text))
        });
        match fetched {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Unsupported) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn append(
        &self,
        extent: &Extent,
        Stored { offset, bytes, cell }: Stored,
        level: Level,
        small_parts: bool,
    ) -> Result<()> {
        let piece = Copied { generation: extent.generation, offset, bytes, level, small_parts, cell };
        let of = (self.group, self.chunk);
        let append = |handle: DeviceHandle, told: Arc<Order>| async move {
            // There may be no room for it.
            told.may_wait(FULL_WAIT);
            handle.append(of, piece).await
        };
        self.told(&self.to, append).await
    }

    /// Makes the copy durable, and as complete as `extent` is.
    pub async fn close(&self, extent: &Extent) -> Result<()> {
        if !extent.sealed || extent.length == 0 {
            let nothing = Stored { offset: extent.length, bytes: Bytes::new(), cell: 0 };
            self.append(extent, nothing, Level::Synced, false).await?;
        }
        if !extent.sealed {
            return Ok(());
        }
        self.seal(&self.to, extent).await
    }

    /// Releases in the copy what is released in the original.
    pub async fn release(&self) -> Result<()> {
        let Some(extent) = self.stat(&self.from).await? else { return Ok(()) };
        let kept = self.kept(&self.from).await?;
        let (mut ranges, mut at) = (Vec::new(), 0);
        for (start, end) in kept.ranges.into_iter().chain([(extent.length, extent.length)]) {
            if at < start {
                ranges.push((at, start - at));
            }
            at = end;
        }
        for ranges in ranges.chunks(LIST_PAGE_MAX) {
            let (chunk, ranges) = (self.chunk, ranges.to_vec());
            self.told(&self.to, |handle, _| async move { handle.release(chunk, ranges).await }).await?;
        }
        Ok(())
    }
}
