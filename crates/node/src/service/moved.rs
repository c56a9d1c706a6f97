//! Calls to a device that is being emptied: which device does what they ask.

use crate::device::{Device, Item, Pushed};
use crate::membership::over;
use crate::node::Node;
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, GroupId, SessionId};
use base::layout::{Column, Layout};
use bytes::Bytes;
use net::Responder;
use std::sync::Arc;

impl Node {
    /// A push to a device that is being emptied: another member takes the chunk, unless one has it already. Asked again, it goes
    /// the same way.
    pub async fn push_elsewhere(
        &self,
        device: &Arc<Device>,
        (session, push): (SessionId, Pushed),
        (bytes, sums): (Bytes, BlockSums),
        respond: Responder,
    ) {
        let _turn = self.taking.lock().await;
        match self.taker(device, push.bag, push.chunk).await {
            // It may have waited for longer than its session lasted: then devices no longer know what of it was handled.
            Ok(_) if self.metadata().is_ok_and(|metadata| !metadata.is_open(session)) => respond.fail(over(session)),
            Ok(taker) => taker.send(Item::Push { push, bytes, sums, respond }),
            Err(error) => respond.fail(error),
        }
    }

    async fn taker(&self, device: &Arc<Device>, bag: BagId, chunk: ChunkId) -> Result<Arc<Device>> {
        // Whichever had it decides, also one that is being emptied, failed or has left the bag since then: another one would store it
        // again.
        let others = self.devices.values().filter(|other| other.id != device.id);
        for known in std::iter::once(device).chain(others) {
            if known.look(move |engine| engine.decides(chunk)).await? {
                return Ok(known.clone());
            }
        }
        let leading = self.leading()?;
        let meta::Reply::Bag(info) = leading.metadata.ask(meta::Request::BagOf { bag }).await? else {
            unreachable!("a bag was asked for")
        };
        let info = leading.others_join(self, &info).await?;
        let takes = |member: &&Arc<Device>| !member.is_draining() && !member.usage().failed;
        let members = info.members.iter().filter_map(|member| self.devices.get(member)).filter(takes);
        // The same choice for the same chunk, even if two ask at once.
        let rank =
            |member: &&Arc<Device>| (member.id.0 ^ chunk.0).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
        // If nobody takes it, the device itself refuses it for good.
        Ok(members.max_by_key(rank).unwrap_or(device).clone())
    }

    /// The device that has a group's chunk now, for an append to a device that is being emptied: its writer may have been told
    /// before a restart. Nothing may be begun where the group is not.
    pub async fn place_now(&self, device: &Arc<Device>, group: GroupId, chunk: ChunkId) -> Result<Arc<Device>> {
        let request = meta::Request::KnownGroups { groups: vec![group] };
        let meta::Reply::Known(known) = self.metadata()?.ask(request).await? else {
            unreachable!("a known group was asked for")
        };
        let Some(known) = known.first() else {
            let text = format!("group {group} does not exist any more; its file was deleted");
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let mut columns = known.layout.iter().flat_map(Layout::columns).filter(|column| column.chunk() == chunk);
        // A chunk with several replicas is not moved while it is written: each of them takes what is sent to it, and no other's.
        let here = columns.find(|column| column.others().is_empty()).into_iter().flat_map(Column::devices);
        let here: Vec<&Arc<Device>> = here.filter_map(|place| self.devices.get(&place)).collect();
        let is_there = here.iter().any(|place| Arc::ptr_eq(place, device));
        Ok(if is_there { device } else { here.first().copied().unwrap_or(device) }.clone())
    }

    /// The device that holds a chunk which was on one that is being emptied; that one if none does.
    pub async fn holder(&self, device: &Arc<Device>, chunk: ChunkId) -> Result<Arc<Device>> {
        for other in std::iter::once(device).chain(self.served()) {
            if other.look(move |engine| engine.holds(chunk)).await? {
                return Ok(other.clone());
            }
        }
        Ok(device.clone())
    }
}
