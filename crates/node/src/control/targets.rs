//! Which device takes what is on one that is being emptied.

use super::copying::STEP;
use crate::device_handle::DeviceHandle;
use crate::leading::Leading;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, NodeId};
use base::planted::Planted;
use meta::request::{DeviceInfo, NewGroup};
use std::cmp::Reverse;
use std::collections::BTreeMap;

impl Leading {
    /// The devices that may take what is on this one: of its class if there are others, else of any that keeps what it has
    /// when its node ends.
    pub async fn targets(&self, node: &Node, handle: &DeviceHandle) -> Result<Vec<DeviceHandle>> {
        let known = self.devices().await?;
        let usable = |other: &DeviceHandle| {
            let takes = |info: &DeviceInfo| info.device == other.id() && !info.draining && !info.lost && !info.silent;
            other.id() != handle.id() && other.is_able() && known.iter().any(takes)
        };
        let others: Vec<DeviceHandle> = self.device_handles(node).into_iter().filter(usable).collect();
        let same: Vec<DeviceHandle> = others.iter().filter(|other| other.class() == handle.class()).cloned().collect();
        let any = || others.into_iter().filter(|other| other.class().keeps()).collect();
        Ok(if same.is_empty() { any() } else { same })
    }

    /// Whether a device is being emptied, known to its node or not yet.
    fn is_drained(&self, handle: &DeviceHandle) -> bool {
        handle.is_draining() || matches!(handle, DeviceHandle::Remote(far) if self.peers.is_drained(far.device))
    }

    /// The device that takes a group's chunk: none that has a replica of it, of the others those whose nodes have none, if there are any, of these
    /// those without a column of the group, if there are any, one to which the fewest chunks are under way, and of those the one with the most
    /// room. None: it may still be written, and only devices on other nodes have room. `Busy`: all that have room have a replica of it.
    pub fn target(
        &self,
        node: &Node,
        (from, targets): (&DeviceHandle, &[DeviceHandle]),
        (group, chunk): (&NewGroup, ChunkId),
        is_open: bool,
        under_way: &BTreeMap<DeviceId, usize>,
    ) -> Result<Option<DeviceHandle>> {
        let is_near = |handle: &DeviceHandle| matches!(handle, DeviceHandle::Local(_));
        let has_room = |target: &&DeviceHandle| target.is_able() && !self.is_drained(target) && target.room() > STEP;
        let mut roomy: Vec<&DeviceHandle> = targets.iter().filter(has_room).collect();
        if roomy.is_empty() {
            let text = format!(
                "no other device has room for what is left on {}; nothing is lost; delete something or start the node with another --data DIR",
                from.shown()
            );
            return Err(Error::new(ErrorKind::Full, text));
        }
        let still = self.jobs.still();
        roomy.retain(|target| !still.contains(&target.id()));
        if roomy.is_empty() {
            let text = format!("the devices that have room for what is left on {} do not answer", from.shown());
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        let column = group.layout.columns().iter().find(|column| column.chunk() == chunk);
        let others: Vec<DeviceId> =
            column.iter().flat_map(|column| column.devices()).filter(|device| *device != from.id()).collect();
        roomy.retain(|target| !others.contains(&target.id()));
        if roomy.is_empty() {
            let text = "a device that has no copy yet of what is left; add one, or delete files".to_string();
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let nodes: Vec<Option<NodeId>> = others
            .iter()
            .map(|device| self.device_handle(node, *device).ok().map(|handle| node_of(node, &handle)))
            .collect();
        let rank = |target: &&DeviceHandle| {
            let alone = !nodes.contains(&Some(node_of(node, target)));
            let apart = group.layout.on(target.id()).next().is_none();
            (alone, apart, Reverse(under_way.get(&target.id()).copied().unwrap_or(0)), target.room())
        };
        let near = roomy.iter().filter(|target| is_near(target)).max_by_key(|target| rank(target));
        match near {
            // Nothing crosses the network without need.
            Some(near) if is_near(from) && rank(near).0 => Ok(Some((*near).clone())),
            _ if is_open && node.planted != Some(Planted::OpenChunkMoved) => Ok(None),
            _ => Ok(roomy.into_iter().max_by_key(rank).cloned()),
        }
    }
}

/// The node that has a device.
fn node_of(node: &Node, handle: &DeviceHandle) -> NodeId {
    match handle {
        DeviceHandle::Local(_) => node.id,
        DeviceHandle::Remote(far) => far.peer.incarnation().0,
    }
}
