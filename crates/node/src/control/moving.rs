//! The way of a group's chunk from one device to another. Between devices of the node that keeps the metadata a chunk may be
//! written meanwhile: its writers are held back for the moment of the change, and sent on. Between nodes only what nobody writes
//! any more is moved, and the node that takes it fetches the bytes.

use super::orders::{Order, PATIENCE};
use crate::device::control::{Copied, Extent, Kept};
use crate::device::{Device, Item};
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::log;
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
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::timeout;

/// Bytes copied at once: one record.
pub const STEP: u64 = RECORD_PAYLOAD_MAX as u64;

/// Between two attempts to find out whether the metadata names the new place.
const ASK_PAUSE: Duration = Duration::from_millis(500);

/// Attempts after which that is said, and again after as many more: 10 s, and each minute from then on.
const UNSURE_FROM: u32 = 20;
const UNSURE_EVERY: u32 = 120;

/// How long it is waited for a fetch: as many bytes as many small orders have, over a network that others use, too, each piece of which may
/// wait for room. One that comes late appends what is there, or is refused.
const FETCH_WAIT: Duration = Duration::from_secs(30);

/// One group's way.
pub struct Move {
    /// The node that keeps the metadata.
    pub node: Arc<Node>,
    /// The leadership that it belongs to.
    pub leading: Arc<Leading>,
    /// The group.
    pub group: GroupId,
    /// Its chunk, which keeps its name.
    pub chunk: ChunkId,
    /// Where it is.
    pub from: DeviceHandle,
    /// Where it shall be.
    pub to: DeviceHandle,
    /// Bytes that were copied so far.
    pub copied: AtomicU64,
}

/// A chunk whose writers wait while it moves. Dropped before it is known where it is, because the leadership is over, it refuses them: its copy may be named.
struct Held<'a> {
    device: &'a Device,
    chunk: ChunkId,
    is_known: bool,
}

impl<'a> Held<'a> {
    fn begin(device: &'a Device, chunk: ChunkId) -> Held<'a> {
        device.send(Item::Hold { chunk });
        Held { device, chunk, is_known: false }
    }

    /// It is on that device now; none: here, as before.
    fn ends(mut self, to: Option<Arc<Device>>) {
        self.is_known = true;
        self.device.send(Item::Departed { chunk: self.chunk, to });
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.device.send(Item::Unsure { chunk: self.chunk });
        }
    }
}

impl Move {
    /// Moves it.
    pub async fn run(&self) -> Result<()> {
        let moved = match (&self.from, &self.to) {
            (DeviceHandle::Local(from), DeviceHandle::Local(to)) => self.while_written(from, to).await,
            _ => self.at_rest().await,
        };
        let Err(error) = &moved else { return moved };
        let copied = self.copied.load(Ordering::Relaxed);
        self.leading.drained(&self.node, &self.from, |draining| {
            draining.bytes = draining.bytes.saturating_sub(copied);
        });
        // The keeper leads no more: the copy may be named all the same, or be another one by now, of whoever leads. That one compares the
        // device with the metadata, and finds it if it is unknown.
        if error.kind() != ErrorKind::Moved {
            self.forget_copy().await;
        }
        moved
    }

    /// Orders something of one of its devices. A device that does not answer ends the move, and what it was told may be done later: the copy,
    /// which nobody names then, is no copy until it was compared with the original, and goes as that of any move that was cut short.
    async fn told<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        handle: &DeviceHandle,
        work: impl FnOnce(DeviceHandle, Arc<Order>) -> F,
    ) -> Result<T> {
        self.leading.jobs.told(handle, work).await
    }

    async fn stat(&self, handle: &DeviceHandle) -> Result<Option<Extent>> {
        let chunk = self.chunk;
        self.told(handle, |handle, _| async move { handle.stat(chunk).await }).await
    }

    async fn kept(&self) -> Result<Kept> {
        let chunk = self.chunk;
        self.told(&self.from, |handle, _| async move { handle.kept(chunk).await }).await
    }

    /// Both devices are this node's.
    async fn while_written(&self, from: &Arc<Device>, to: &Arc<Device>) -> Result<()> {
        // What is there does not change any more: most of it is copied while its writer goes on.
        let copied = match self.stat(&self.from).await? {
            Some(extent) => self.copy(&extent, 0).await?,
            None => 0,
        };
        let held = Held::begin(from, self.chunk);
        let moved = self.finish(copied).await;
        match &moved {
            // The copy may be named: what would be written here now may be lost.
            Err(error) if error.kind() == ErrorKind::Moved => drop(held),
            _ => held.ends(moved.is_ok().then(|| to.clone())),
        }
        moved
    }

    /// What came meanwhile, the seal, and the change of the metadata; nothing changes the chunk during this.
    async fn finish(&self, copied: u64) -> Result<()> {
        let extent = self.stat(&self.from).await?;
        if let Some(extent) = &extent {
            self.copy(extent, copied).await?;
            self.close(extent).await?;
        }
        self.name_copy(extent).await
    }

    /// Nobody writes the chunk any more. Its copy is complete at once.
    async fn at_rest(&self) -> Result<()> {
        let extent = self.stat(&self.from).await?;
        let Some(extent) = extent.filter(|_| self.node.planted != Some(Planted::MovedUncopied)) else {
            return self.name_copy(None).await;
        };
        // Of an attempt that was cut short.
        self.delete_copy().await?;
        self.copy(&extent, 0).await?;
        let whole = Extent { sealed: true, ..extent };
        self.close(&whole).await?;
        self.name_copy(Some(whole)).await
    }

    /// Frees in the copy what was freed in the original, and names it in the metadata; `whole` is how it has to be, none: there is nothing
    /// to copy. Nobody frees anything of the group in between, nor takes the copy for something unknown: what that leads to is in
    /// `collecting` and `comparing`.
    async fn name_copy(&self, whole: Option<Extent>) -> Result<()> {
        let Ok(_claim) = timeout(PATIENCE, self.leading.jobs.groups.claim(self.group)).await else {
            let text = format!("somebody else works on group {}; its chunk {} is moved later", self.group, self.chunk);
            return Err(Error::new(ErrorKind::Busy, text));
        };
        if let Some(whole) = whole {
            self.release().await?;
            // Before that it may have been taken for something unknown: by its node when it was started again, or by a comparison.
            let is_whole = |copy: Extent| copy.sealed == whole.sealed && copy.length == whole.length;
            if !self.stat(&self.to).await?.is_some_and(is_whole) {
                let text = format!("the copy of chunk {} is not there any more; it is copied again", self.chunk);
                return Err(Error::new(ErrorKind::Busy, text));
            }
        }
        self.record().await
    }

    /// Names the new place in the metadata.
    async fn record(&self) -> Result<()> {
        let mut attempts = 0;
        loop {
            let (group, chunk, from, to) = (self.group, self.chunk, self.from.id(), self.to.id());
            match self.leading.metadata.ask(meta::Request::MoveGroup { group, chunk, from, to }).await {
                Ok(_) => return Ok(()),
                Err(error) if matches!(error.kind(), ErrorKind::Stale | ErrorKind::NotFound) => {
                    return Err(Error::new(ErrorKind::Stale, error.text()));
                }
                // Nor is it known then whether it is done, but it is no more for this keeper to find out: no repetition of it tells.
                Err(error) if error.kind() == ErrorKind::Moved => return Err(error),
                // Whether it is done is not known, so neither chunk may go or grow until it is.
                Err(error) => {
                    attempts += 1;
                    self.unsure(attempts, &error);
                    tokio::time::sleep(ASK_PAUSE).await;
                }
            }
        }
    }

    /// Says that it is not known for long whether the metadata names the new place, and lets nobody wait for it.
    fn unsure(&self, attempts: u32, error: &Error) {
        if attempts % UNSURE_EVERY != UNSURE_FROM {
            return;
        }
        let text = format!(
            "chunk {} is being moved from device {} to {}, and whether the metadata names its new place cannot be said ({error}); no data \
             is lost, and those who write it are refused; start this node again",
            self.chunk,
            self.from.id(),
            self.to.id()
        );
        self.node.log.say(log::Level::Error, "drain", &text, &[]);
        if let DeviceHandle::Local(from) = &self.from {
            from.send(Item::Unsure { chunk: self.chunk });
        }
    }

    /// Copies the bytes from `start` on, in order; zeros where they were released. How long the copy is.
    async fn copy(&self, extent: &Extent, start: u64) -> Result<u64> {
        let kept = self.kept().await?;
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
        self.leading.drained(&self.node, &self.from, |draining| {
            draining.bytes = draining.bytes.saturating_add(bytes);
        });
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
    async fn close(&self, extent: &Extent) -> Result<()> {
        if !extent.sealed || extent.length == 0 {
            let nothing = Stored { offset: extent.length, bytes: Bytes::new(), cell: 0 };
            self.append(extent, nothing, Level::Synced, false).await?;
        }
        if !extent.sealed {
            return Ok(());
        }
        let (chunk, Extent { generation, length, .. }) = (self.chunk, *extent);
        let seal = |handle: DeviceHandle, told: Arc<Order>| async move {
            told.may_wait(FULL_WAIT);
            handle.seal(chunk, generation, length).await
        };
        self.told(&self.to, seal).await
    }

    /// Releases in the copy what is released in the original.
    async fn release(&self) -> Result<()> {
        let Some(extent) = self.stat(&self.from).await? else { return Ok(()) };
        let kept = self.kept().await?;
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

    /// A copy that nobody knows of goes; if that is cut short, when its device is compared with the metadata.
    async fn forget_copy(&self) {
        let _later = self.delete_copy().await;
    }

    async fn delete_copy(&self) -> Result<()> {
        let chunk = self.chunk;
        self.told(&self.to, |handle, _| async move { handle.delete(vec![chunk]).await }).await
    }
}
