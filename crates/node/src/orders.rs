//! What the node that keeps the metadata may order of a device, whichever node has it: the steps of collecting, sealing,
//! recovering and moving. Here they are done by the device's own node, and taken from the wire.

use crate::bags::BagCounts;
use crate::device::answer::wire_cell;
use crate::device::{Device, Item};
use crate::service::{Node, respond};
use base::checksum::BlockSums;
use base::disk::Caching;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use base::limit::LIST_PAGE_MAX;
use base::policy::Level;
use bytes::Bytes;
use chunk::{BagStat, Check, ChunkStat, Engine, Reply, Request};
use net::Call;
use net::cells::{self, Stored};
use net::message::chunk::Range;
use net::message::{Ask, Done, order as wire};
use std::sync::Arc;

/// How far a chunk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// The highest generation seen.
    pub generation: Generation,
    /// Whether it is complete.
    pub sealed: bool,
}

/// What is left of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// (start, end) of each range that was not released, in order.
    pub ranges: Vec<(u64, u64)>,
    /// Its records are small.
    pub small_parts: bool,
}

/// A piece of a copy.
#[derive(Clone, Debug)]
pub struct Copied {
    /// As the original has it.
    pub generation: Generation,
    /// Where it goes: the length of the copy so far.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// How far they must have come before the answer.
    pub level: Level,
    /// As the original has it.
    pub small_parts: bool,
    /// Bytes of the chunk that they stand for; 0: for themselves.
    pub cell: u64,
}

/// A page of chunks, and whether there are more.
pub type Inventory = (Vec<(ChunkId, ChunkStat)>, bool);

impl Device {
    /// Raises a chunk's generation, durably. Its length, bytes.
    pub async fn fence(&self, chunk: ChunkId, generation: Generation) -> Result<u64> {
        match self.ask(Request::Fence { chunk, generation }).await? {
            Reply::Length(length) => Ok(length),
            other => unreachable!("a fence was answered by {other:?}"),
        }
    }

    /// Makes a chunk complete, durably.
    pub async fn seal(&self, chunk: ChunkId, generation: Generation, length: u64) -> Result<()> {
        self.ask(Request::Seal { chunk, generation, length }).await.map(drop)
    }

    /// Deletes chunks, durably.
    pub async fn delete(&self, chunks: Vec<ChunkId>) -> Result<()> {
        self.ask(Request::Delete { chunks }).await.map(drop)
    }

    /// Gives bytes of a chunk back: (offset, length) of each range.
    pub async fn release(&self, chunk: ChunkId, ranges: Vec<(u64, u64)>) -> Result<()> {
        self.ask(Request::Release { chunk, ranges }).await.map(drop)
    }

    /// Chunks in the order of their ids, behind `after`.
    pub async fn inventory(&self, after: Option<ChunkId>, limit: usize) -> Result<Inventory> {
        match self.ask(Request::List { after, limit }).await? {
            Reply::List { chunks, more } => Ok((chunks, more)),
            other => unreachable!("a list was answered by {other:?}"),
        }
    }

    /// What is known of a chunk, if it is there.
    pub async fn stat(&self, chunk: ChunkId) -> Result<Option<Extent>> {
        match self.ask(Request::Stat { chunk }).await {
            Ok(Reply::Stat(ChunkStat { length, generation, sealed, .. })) => {
                Ok(Some(Extent { length, generation, sealed }))
            }
            Ok(other) => unreachable!("a chunk was asked about: {other:?}"),
            // Nothing was written to it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which bytes of a chunk were not released: (start, end) of each range, in order.
    pub async fn kept(&self, chunk: ChunkId) -> Result<Kept> {
        let look = move |engine: &Engine<_>| (engine.kept_ranges(chunk), engine.has_small_records(chunk));
        let (ranges, small_parts) = self.look(look).await?;
        Ok(Kept { ranges, small_parts })
    }

    /// Bytes of a chunk as they are stored, all of them compared with their checksums.
    pub async fn read(&self, chunk: ChunkId, start: u64, end: u64) -> Result<Vec<Stored>> {
        let (ranges, caching, check) = (vec![(start, end - start)], Caching::Around, Check::Here);
        let request = Request::Read { chunk, ranges, caching, check, cells: true };
        let Reply::Data { mut parts, cells, .. } = self.ask(request).await? else {
            unreachable!("bytes were asked for")
        };
        let bytes = if parts.len() == 1 { parts.remove(0) } else { Bytes::from(parts.concat()) };
        let cells: Vec<_> = cells.into_iter().map(wire_cell).collect();
        cells::apart(&cells, (start, end - start), bytes)
    }

    /// Adds to the copy of a group's chunk, or makes it.
    pub async fn append(&self, (group, chunk): (GroupId, ChunkId), piece: Copied) -> Result<()> {
        let Copied { generation, offset, bytes: payload, level, small_parts, cell } = piece;
        let (owner, sums) = (Owner::Group(group), BlockSums::of(&payload));
        // A chunk of small records may have cells between them.
        let (seal, small_parts) = (false, small_parts && cell == 0);
        let request =
            Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, small_parts, cell };
        self.ask(request).await.map(drop)
    }

    /// The bag is in this pass from now on, durably.
    pub async fn begin_pass(&self, bag: BagId, pass: u32, retain: bool) -> Result<()> {
        let before = self.look(move |engine| engine.bag_stat(bag).pass).await?;
        self.ask(Request::BagPass { bag, pass, retain }).await?;
        // Told again, it changes nothing: what was granted stays granted.
        if pass > before {
            self.send(Item::BagRewound { bag });
        }
        Ok(())
    }

    /// From now on new chunks of this bag are refused, durably.
    pub async fn seal_bag(&self, bag: BagId, epoch: u64) -> Result<()> {
        self.ask(Request::SealBag { bag, epoch }).await?;
        self.send(Item::BagChanged { bag });
        Ok(())
    }

    /// Takes chunks of a bag again that the device has left, durably.
    pub async fn readmit_bag(&self, bag: BagId) -> Result<()> {
        self.ask(Request::ReadmitBag { bag }).await?;
        self.send(Item::BagChanged { bag });
        Ok(())
    }

    /// Deletes all chunks of a bag and forgets its counters, durably.
    pub async fn drop_bag(&self, bag: BagId) -> Result<()> {
        self.ask(Request::DropBag { bag }).await?;
        self.send(Item::BagChanged { bag });
        Ok(())
    }
}

impl Node {
    /// Does what the node that keeps the metadata orders. Nobody else may.
    pub fn obey(self: &Arc<Self>, call: Call) {
        if let Err(error) = self.may_order(call.asker) {
            return call.respond.fail(error);
        }
        let node = self.clone();
        self.apart(async move { node.carry_out(call).await });
    }

    async fn carry_out(&self, call: Call) {
        match call.kind {
            wire::Fence::KIND => carry(call, |ask| self.order_fence(ask)).await,
            wire::Delete::KIND => carry(call, |ask| self.order_delete(ask)).await,
            wire::Release::KIND => carry(call, |ask| self.order_release(ask)).await,
            wire::Inventory::KIND => carry(call, |ask| self.order_inventory(ask)).await,
            wire::Kept::KIND => carry(call, |ask| self.order_kept(ask)).await,
            wire::BagCounts::KIND => carry(call, |ask| self.order_counts(ask)).await,
            wire::BeginPass::KIND => carry(call, |ask| self.order_pass(ask)).await,
            wire::SealBag::KIND => carry(call, |ask| self.order_seal(ask)).await,
            wire::DropBag::KIND => carry(call, |ask| self.order_drop(ask)).await,
            wire::Fetch::KIND => carry(call, |ask| self.order_fetch(ask)).await,
            other => unreachable!("{other} is no order"),
        }
    }

    async fn order_fence(&self, ask: wire::Fence) -> Result<wire::FenceAnswer> {
        let chunk = ChunkId(ask.chunk.value());
        let length = self.device(ask.device)?.fence(chunk, Generation(ask.generation)).await?;
        Ok(wire::FenceAnswer { length })
    }

    async fn order_delete(&self, ask: wire::Delete) -> Result<Done> {
        check_length(ask.chunks.len())?;
        let chunks = ask.chunks.iter().map(|chunk| ChunkId(chunk.value())).collect();
        self.device(ask.device)?.delete(chunks).await?;
        Ok(Done {})
    }

    async fn order_release(&self, ask: wire::Release) -> Result<Done> {
        check_length(ask.ranges.len())?;
        let ranges = ask.ranges.iter().map(|range| (range.offset, range.length)).collect();
        self.device(ask.device)?.release(ChunkId(ask.chunk.value()), ranges).await?;
        Ok(Done {})
    }

    async fn order_inventory(&self, ask: wire::Inventory) -> Result<wire::InventoryAnswer> {
        let limit = match ask.limit as usize {
            0 => LIST_PAGE_MAX,
            limit => limit.min(LIST_PAGE_MAX),
        };
        let after = ask.after.map(|after| ChunkId(after.value()));
        let (chunks, more) = self.device(ask.device)?.inventory(after, limit).await?;
        Ok(wire::InventoryAnswer { chunks: chunks.into_iter().map(wire_stored).collect(), more })
    }

    async fn order_kept(&self, ask: wire::Kept) -> Result<wire::KeptAnswer> {
        let Kept { ranges, small_parts } = self.device(ask.device)?.kept(ChunkId(ask.chunk.value())).await?;
        let mut behind = ranges.into_iter().filter(|(start, _)| *start >= ask.start);
        let range = |(start, end): (u64, u64)| Range { offset: start, length: end - start };
        let ranges = behind.by_ref().take(LIST_PAGE_MAX).map(range).collect();
        Ok(wire::KeptAnswer { ranges, more: behind.next().is_some(), small_parts })
    }

    async fn order_counts(&self, ask: wire::BagCounts) -> Result<wire::BagCountsAnswer> {
        let BagCounts { stat, waiting, granted, chunks } = self.device(ask.device)?.bag_counts(BagId(ask.bag)).await?;
        let BagStat { pushed, pushed_bytes, acknowledged, acknowledged_bytes, sealed_epoch, pass, retain } = stat;
        Ok(wire::BagCountsAnswer {
            pushed,
            pushed_bytes,
            acknowledged,
            acknowledged_bytes,
            sealed_epoch,
            pass,
            retain,
            waiting,
            granted,
            chunks,
        })
    }

    async fn order_pass(&self, ask: wire::BeginPass) -> Result<Done> {
        self.device(ask.device)?.begin_pass(BagId(ask.bag), ask.pass, ask.retain).await?;
        Ok(Done {})
    }

    async fn order_seal(&self, ask: wire::SealBag) -> Result<Done> {
        self.device(ask.device)?.seal_bag(BagId(ask.bag), ask.epoch).await?;
        Ok(Done {})
    }

    async fn order_drop(&self, ask: wire::DropBag) -> Result<Done> {
        let (device, bag) = (self.device(ask.device)?, BagId(ask.bag));
        match ask.only_left {
            true => device.readmit_bag(bag).await?,
            false => device.drop_bag(bag).await?,
        }
        Ok(Done {})
    }

    async fn order_fetch(&self, ask: wire::Fetch) -> Result<Done> {
        self.fetch(ask).await?;
        Ok(Done {})
    }
}

/// Reads the question of a call, answers it with what `does` makes of it.
async fn carry<A: Ask, F: Future<Output = Result<A::Answer>>>(call: Call, does: impl FnOnce(A) -> F) {
    match call.ask::<A>() {
        Ok(ask) => respond(call.respond, does(ask).await),
        Err(error) => call.respond.fail(error),
    }
}

fn check_length(length: usize) -> Result<()> {
    if length <= LIST_PAGE_MAX {
        return Ok(());
    }
    let text = format!("{length} things were named in one order and {LIST_PAGE_MAX} are the most; nothing was done");
    Err(Error::new(ErrorKind::Invalid, text))
}

fn wire_stored((chunk, stat): (ChunkId, ChunkStat)) -> wire::Stored {
    let ChunkStat { owner, length, generation, sealed, crc } = stat;
    wire::Stored {
        chunk: chunk.0.into(),
        owner: owner.number(),
        of_bag: matches!(owner, Owner::Bag(_)),
        owner_kind: owner.kind().into(),
        length,
        generation: generation.0,
        sealed,
        crc,
    }
}
