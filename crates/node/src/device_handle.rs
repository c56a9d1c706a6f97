//! Handle to a device, on this node or on another one over a link, for the control operations of the node that keeps the metadata.
//! Appends and reads of clients never come here.

use crate::device::Device;
use crate::device::bags::BagCounts;
use crate::device::control::{Copied, Extent, Inventory, Kept};
use crate::peers::Peer;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Generation, GroupId, Owner};
use base::policy::Class;
use chunk::{BagStat, ChunkStat};
use net::Payload;
use net::cells::{self, Stored};
use net::message::{Ask, Id, chunk as piece, file, order as wire};
use std::sync::Arc;

/// A device of the store.
#[derive(Clone)]
pub enum DeviceHandle {
    /// On this node.
    Local(Arc<Device>),
    /// On another node.
    Remote(RemoteDevice),
}

/// A device on another node.
#[derive(Clone)]
pub struct RemoteDevice {
    /// Which device.
    pub device: DeviceId,
    /// The node that has it.
    pub peer: Arc<Peer>,
}

impl RemoteDevice {
    /// Asks its node.
    pub async fn ask<A: Ask>(&self, ask: &A) -> Result<A::Answer> {
        self.peer.ask(ask, Payload::empty()).await.map(|(answer, _)| answer)
    }

    fn id(&self) -> Id {
        self.device.0.into()
    }

    /// What its node reported of it last.
    pub fn last_report(&self) -> file::Device {
        self.peer.last_report_of(self.device).unwrap_or_default()
    }
}

impl DeviceHandle {
    /// Which device.
    pub fn id(&self) -> DeviceId {
        match self {
            DeviceHandle::Local(device) => device.id,
            DeviceHandle::Remote(far) => far.device,
        }
    }

    /// Its directory, for people; the node's name before it if that is another.
    pub fn shown(&self) -> String {
        match self {
            DeviceHandle::Local(device) => device.place.clone(),
            DeviceHandle::Remote(far) => far.peer.place_of(&far.last_report()),
        }
    }

    /// Its class.
    pub fn class(&self) -> Class {
        match self {
            DeviceHandle::Local(device) => device.class,
            DeviceHandle::Remote(far) => Class::from_code(far.last_report().class).unwrap_or_default(),
        }
    }

    /// Whether it takes changes now: it is there, and did not fail.
    pub fn is_able(&self) -> bool {
        self.can_be_asked() && !self.has_failed()
    }

    /// Whether it failed: it gives what it holds, and takes no changes until its node is started again.
    pub fn has_failed(&self) -> bool {
        match self {
            DeviceHandle::Local(device) => device.usage().failed,
            DeviceHandle::Remote(far) => far.last_report().out_of_service,
        }
    }

    /// Whether it can be asked what it holds, failed or not.
    pub fn can_be_asked(&self) -> bool {
        match self {
            DeviceHandle::Local(_) => true,
            DeviceHandle::Remote(far) => far.peer.is_reachable() && !far.last_report().missing,
        }
    }

    /// What somebody waits for who wants to ask it; none: it can be asked.
    pub fn waits_for(&self) -> Option<String> {
        let DeviceHandle::Remote(far) = self else { return None };
        let (node, said) = (far.peer.name(), far.last_report());
        if !far.peer.is_reachable() {
            return Some(format!("node {node}, which is silent; what is on it is safe there; start it"));
        }
        said.missing.then(|| {
            let text = "which is missing; it goes on when the disk is back and the node started again";
            format!("{}, {text}", self.shown())
        })
    }

    /// Whether it is being emptied, and its node knows that.
    pub fn is_draining(&self) -> bool {
        match self {
            DeviceHandle::Local(device) => device.is_draining(),
            DeviceHandle::Remote(far) => far.last_report().drain.is_some(),
        }
    }

    /// Bytes that it may still take, and whether it is worth trying.
    pub fn room(&self) -> u64 {
        match self {
            DeviceHandle::Local(device) => {
                let usage = device.usage();
                let room = usage.capacity.saturating_sub(usage.reserve).saturating_sub(usage.used);
                if usage.full { 0 } else { room }
            }
            DeviceHandle::Remote(far) => {
                let said = far.last_report();
                let room = said.capacity.saturating_sub(said.reserve).saturating_sub(said.used);
                if said.full { 0 } else { room }
            }
        }
    }

    /// Live bytes and chunks.
    pub fn holds(&self) -> (u64, u64) {
        match self {
            DeviceHandle::Local(device) => (device.usage().live, device.usage().chunks),
            DeviceHandle::Remote(far) => (far.last_report().live, far.last_report().chunks),
        }
    }

    /// Raises a chunk's generation, durably. Its length, bytes; and which start of its node answered, none: this process.
    pub async fn fence(&self, chunk: ChunkId, generation: Generation) -> Result<(u64, Option<u64>)> {
        match self {
            DeviceHandle::Local(device) => device.fence(chunk, generation).await.map(|length| (length, None)),
            DeviceHandle::Remote(far) => {
                let ask = wire::Fence { device: far.id(), chunk: chunk.0.into(), generation: generation.0 };
                far.ask(&ask).await.map(|answer| (answer.length, Some(answer.start)))
            }
        }
    }

    /// Which start of its node it was heard of from last; none: it is this process's.
    pub fn start(&self) -> Option<u64> {
        match self {
            DeviceHandle::Local(_) => None,
            DeviceHandle::Remote(far) => {
                let (node, incarnation) = far.peer.incarnation();
                Some(node.start(incarnation))
            }
        }
    }

    /// Makes a chunk complete, durably.
    pub async fn seal(&self, chunk: ChunkId, generation: Generation, length: u64) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.seal(chunk, generation, length).await,
            DeviceHandle::Remote(far) => {
                let ask = piece::Seal { device: far.id(), chunk: chunk.0.into(), generation: generation.0, length };
                far.ask(&ask).await.map(drop)
            }
        }
    }

    /// Deletes chunks, at most `LIST_PAGE_MAX`, durably.
    pub async fn delete(&self, chunks: Vec<ChunkId>) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.delete(chunks).await,
            DeviceHandle::Remote(far) => {
                let chunks = chunks.into_iter().map(|chunk| chunk.0.into()).collect();
                let under_way = far.peer.numbered(far.device);
                let (number, floor) = (under_way.number, under_way.floor);
                far.ask(&wire::Delete { device: far.id(), chunks, number, floor }).await.map(drop)
            }
        }
    }

    /// Gives bytes of a chunk back: (offset, length) of each range, at most `LIST_PAGE_MAX`.
    pub async fn release(&self, chunk: ChunkId, ranges: Vec<(u64, u64)>) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.release(chunk, ranges).await,
            DeviceHandle::Remote(far) => {
                let range = |(offset, length)| piece::Range { offset, length };
                let ranges = ranges.into_iter().map(range).collect();
                far.ask(&wire::Release { device: far.id(), chunk: chunk.0.into(), ranges }).await.map(drop)
            }
        }
    }

    /// Chunks in the order of their ids, behind `after`.
    pub async fn inventory(&self, after: Option<ChunkId>, limit: usize) -> Result<Inventory> {
        match self {
            DeviceHandle::Local(device) => device.inventory(after, limit).await,
            DeviceHandle::Remote(far) => {
                let after = after.map(|after| after.0.into());
                let limit = u32::try_from(limit).unwrap_or(u32::MAX);
                let answer = far.ask(&wire::Inventory { device: far.id(), after, limit }).await?;
                Ok((answer.chunks.iter().map(stored).collect(), answer.more))
            }
        }
    }

    /// What is known of a chunk, if it is there.
    pub async fn stat(&self, chunk: ChunkId) -> Result<Option<Extent>> {
        let far = match self {
            DeviceHandle::Local(device) => return device.stat(chunk).await,
            DeviceHandle::Remote(far) => far,
        };
        match far.ask(&piece::Stat { device: far.id(), chunk: chunk.0.into(), start: false }).await {
            Ok(piece::StatAnswer { length, sealed, generation, crc, .. }) => {
                Ok(Some(Extent { length, sealed, generation: Generation(generation), crc }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which bytes of a chunk were not released.
    pub async fn kept(&self, chunk: ChunkId) -> Result<Kept> {
        let far = match self {
            DeviceHandle::Local(device) => return device.kept(chunk).await,
            DeviceHandle::Remote(far) => far,
        };
        let (mut kept, mut start) = (Kept::default(), 0);
        loop {
            let answer = far.ask(&wire::Kept { device: far.id(), chunk: chunk.0.into(), start }).await?;
            let range = |range: &piece::Range| (range.offset, range.offset.saturating_add(range.length));
            kept.ranges.extend(answer.ranges.iter().map(range));
            kept.small_parts = answer.small_parts;
            let before = std::mem::replace(&mut start, kept.ranges.last().map_or(0, |(_, end)| *end));
            if !answer.more || start <= before {
                return Ok(kept);
            }
        }
    }

    /// Bytes of a chunk as they are stored, all of them compared with their checksums. `Corrupt` if they are not all there.
    pub async fn read(&self, chunk: ChunkId, start: u64, end: u64) -> Result<Vec<Stored>> {
        let pieces = match self {
            DeviceHandle::Local(device) => device.read(chunk, start, end).await?,
            DeviceHandle::Remote(far) => {
                let ranges = vec![piece::Range { offset: start, length: end - start }];
                let ask = piece::Read {
                    device: far.id(),
                    chunk: chunk.0.into(),
                    ranges,
                    once: true,
                    cells: true,
                    ..piece::Read::default()
                };
                let (answer, payload) = far.peer.ask(&ask, Payload::empty()).await?;
                cells::apart(&answer.cells, (start, end - start), payload.into_bytes())?
            }
        };
        if pieces.last().is_none_or(|last| last.end() < end) {
            let text = format!("bytes {start}..{end} of chunk {chunk} are not all there");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(pieces)
    }

    /// Adds to the copy of a group's chunk, or makes it.
    pub async fn append(&self, (group, chunk): (GroupId, ChunkId), piece: Copied) -> Result<()> {
        let far = match self {
            DeviceHandle::Local(device) => return device.append((group, chunk), piece).await,
            DeviceHandle::Remote(far) => far,
        };
        let Copied { generation, offset, bytes, level, small_parts, cell } = piece;
        let ask = piece::Append {
            device: far.id(),
            chunk: chunk.0.into(),
            group: group.0,
            generation: generation.0,
            offset,
            level: level as u32,
            seal: false,
            small_parts: small_parts && cell == 0,
        };
        if cell > 0 {
            let ask = piece::AppendCell { append: ask, length: cell };
            return far.peer.ask(&ask, Payload::new(bytes)).await.map(drop);
        }
        far.peer.ask(&ask, Payload::new(bytes)).await.map(drop)
    }

    /// What it has counted of a bag.
    pub async fn bag_counts(&self, bag: BagId) -> Result<BagCounts> {
        match self {
            DeviceHandle::Local(device) => device.bag_counts(bag).await,
            DeviceHandle::Remote(far) => far.ask(&wire::BagCounts { device: far.id(), bag: bag.0 }).await.map(counts),
        }
    }

    /// The bag is in this pass from now on, durably.
    pub async fn begin_pass(&self, bag: BagId, pass: u32, retain: bool) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.begin_pass(bag, pass, retain).await,
            DeviceHandle::Remote(far) => {
                far.ask(&wire::BeginPass { device: far.id(), bag: bag.0, pass, retain }).await.map(drop)
            }
        }
    }

    /// From now on new chunks of this bag are refused, durably.
    pub async fn seal_bag(&self, bag: BagId, epoch: u64) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.seal_bag(bag, epoch).await,
            DeviceHandle::Remote(far) => {
                far.ask(&wire::SealBag { device: far.id(), bag: bag.0, epoch }).await.map(drop)
            }
        }
    }

    /// Deletes all chunks of a bag and forgets its counters, durably.
    pub async fn drop_bag(&self, bag: BagId) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.drop_bag(bag).await,
            DeviceHandle::Remote(far) => {
                let ask = wire::DropBag { device: far.id(), bag: bag.0, only_left: false };
                far.ask(&ask).await.map(drop)
            }
        }
    }

    /// Takes chunks of a bag again that the device has left, durably. If it did not, nothing is done: the order may come late, when it is
    /// a member and has chunks.
    pub async fn readmit_bag(&self, bag: BagId) -> Result<()> {
        match self {
            DeviceHandle::Local(device) => device.readmit_bag(bag).await,
            DeviceHandle::Remote(far) => {
                let ask = wire::DropBag { device: far.id(), bag: bag.0, only_left: true };
                far.ask(&ask).await.map(drop)
            }
        }
    }
}

/// An owner as nodes tell each other of it: `kind` is `Owner::kind`, or zero from who knows groups and bags only.
pub(crate) fn owner_of(number: u64, of_bag: bool, kind: u32) -> Owner {
    let known = if of_bag { Owner::Bag(BagId(number)) } else { Owner::Group(GroupId(number)) };
    u8::try_from(kind).ok().and_then(|kind| Owner::new(kind, number)).unwrap_or(known)
}

fn stored(stored: &wire::Stored) -> (ChunkId, ChunkStat) {
    let owner = owner_of(stored.owner, stored.of_bag, stored.owner_kind);
    let generation = Generation(stored.generation);
    let stat = ChunkStat { owner, length: stored.length, generation, sealed: stored.sealed, crc: stored.crc };
    (ChunkId(stored.chunk.value()), stat)
}

fn counts(answer: wire::BagCountsAnswer) -> BagCounts {
    let stat = BagStat {
        pushed: answer.pushed,
        pushed_bytes: answer.pushed_bytes,
        acknowledged: answer.acknowledged,
        acknowledged_bytes: answer.acknowledged_bytes,
        sealed_epoch: answer.sealed_epoch,
        pass: answer.pass,
        retain: answer.retain,
    };
    BagCounts { stat, waiting: answer.waiting, granted: answer.granted, chunks: answer.chunks }
}
