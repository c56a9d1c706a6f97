//! Control calls: what the node that keeps the metadata orders of a device of this node, as it comes from the wire.

use super::respond;
use crate::device::bags::BagCounts;
use crate::device::control::Kept;
use crate::membership::deletes::Leader;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, Generation, Owner};
use base::limit::LIST_PAGE_MAX;
use chunk::{BagStat, ChunkStat};
use net::message::chunk::Range;
use net::message::{Ask, Done, Id, order as wire};
use net::{Asker, Call};
use std::sync::Arc;

impl Node {
    /// Does what the node that keeps the metadata orders. Nobody else may.
    pub fn handle_control(self: &Arc<Self>, call: Call) {
        let term = match self.membership() {
            Some(membership) => membership.term_of(call.asker),
            None => Err(nobody_else_orders()),
        };
        let term = match term {
            Ok(term) => term,
            Err(error) => return call.respond.fail(error),
        };
        let node = self.clone();
        self.apart(call.request, async move { node.carry_out(call, term).await });
    }

    async fn carry_out(&self, call: Call, term: u64) {
        match call.kind {
            wire::Inventory::KIND => carry(call, |ask| self.order_inventory(ask)).await,
            wire::Kept::KIND => carry(call, |ask| self.order_kept(ask)).await,
            wire::BagCounts::KIND => carry(call, |ask| self.order_counts(ask)).await,
            wire::Sums::KIND => carry(call, |ask| self.sums(ask)).await,
            wire::Fence::KIND => {
                self.in_turn(call, term, |ask: &wire::Fence| ask.device, |ask| self.order_fence(ask)).await
            }
            wire::Delete::KIND => {
                let leader = (term, start_of(call.asker));
                self.in_turn(call, term, |ask: &wire::Delete| ask.device, |ask| self.order_delete(ask, leader)).await
            }
            wire::Release::KIND => {
                self.in_turn(call, term, |ask: &wire::Release| ask.device, |ask| self.order_release(ask)).await
            }
            wire::BeginPass::KIND => {
                self.in_turn(call, term, |ask: &wire::BeginPass| ask.device, |ask| self.order_pass(ask)).await
            }
            wire::SealBag::KIND => {
                self.in_turn(call, term, |ask: &wire::SealBag| ask.device, |ask| self.order_seal(ask)).await
            }
            wire::DropBag::KIND => {
                self.in_turn(call, term, |ask: &wire::DropBag| ask.device, |ask| self.order_drop(ask)).await
            }
            wire::Fetch::KIND => {
                self.in_turn(call, term, |ask: &wire::Fetch| ask.device, |ask| self.order_fetch(ask)).await
            }
            other => unreachable!("{other} is no order"),
        }
    }

    /// As `carry`, of what changes something: when what an earlier leader ordered of the device has ended.
    async fn in_turn<A: Ask, F: Future<Output = Result<A::Answer>>>(
        &self,
        mut call: Call,
        term: u64,
        device: impl FnOnce(&A) -> Id,
        does: impl FnOnce(A) -> F,
    ) {
        let Some(membership) = self.membership() else { return call.respond.fail(nobody_else_orders()) };
        let ask = match call.ask::<A>() {
            Ok(ask) => ask,
            Err(error) => return call.respond.fail(error),
        };
        match membership.begin(term, DeviceId(device(&ask).value())).await {
            Ok(_until_it_is_done) => respond(call.respond, does(ask).await),
            Err(error) => call.respond.fail(error),
        }
    }

    async fn order_fence(&self, ask: wire::Fence) -> Result<wire::FenceAnswer> {
        let chunk = ChunkId(ask.chunk.value());
        let length = self.device(ask.device)?.fence(chunk, Generation(ask.generation)).await?;
        Ok(wire::FenceAnswer { length, start: self.start })
    }

    async fn order_delete(&self, ask: wire::Delete, leader: Leader) -> Result<Done> {
        check_length(ask.chunks.len())?;
        let membership = self.membership().ok_or_else(nobody_else_orders)?;
        let device = self.device(ask.device)?;
        let chunks = ask.chunks.iter().map(|chunk| ChunkId(chunk.value())).collect();
        membership.deletes.once((device.id, leader), (ask.number, ask.floor), || device.delete(chunks)).await?;
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

/// The start of the node that asks.
fn start_of(asker: Asker) -> u64 {
    match asker {
        Asker::Node { incarnation, .. } => incarnation,
        Asker::Client => 0,
    }
}

pub fn nobody_else_orders() -> Error {
    let text = "this node keeps the metadata itself, and only it orders anything of its devices; nothing was done";
    Error::new(ErrorKind::Invalid, text)
}

/// Reads the question of a call, answers it with what `does` makes of it.
async fn carry<A: Ask, F: Future<Output = Result<A::Answer>>>(mut call: Call, does: impl FnOnce(A) -> F) {
    match call.ask::<A>() {
        Ok(ask) => respond(call.respond, does(ask).await),
        Err(error) => call.respond.fail(error),
    }
}

pub fn check_length(length: usize) -> Result<()> {
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
