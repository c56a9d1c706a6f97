//! The nodes as machines to go to: who they are, which of them hold a file's bytes, and what each has.

use crate::client::Client;
use crate::routes::Table;
use base::error::Result;
use base::id::{DeviceId, NodeId};
use net::message::Id;
use net::message::cluster::{DrainNode, Member, RemoveNode};
use net::message::file::{Device, Extent};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A node, for those who do not see devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its id, for as long as its data lives.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Its rack; empty if nobody said.
    pub rack: String,
    /// Where its HDFS gateway is, `host:port`; empty if it has none.
    pub hdfs: String,
    /// It has not been heard of for a while.
    pub silent: bool,
    /// How often it has been started.
    pub incarnation: u64,
}

impl Host {
    pub(crate) fn of(member: &Member) -> Host {
        let node = &member.node;
        Host {
            node: NodeId(node.node.value()),
            name: node.name.clone(),
            rack: node.rack.clone(),
            hdfs: reachable(&node.hdfs, &node.address),
            silent: member.silent,
            incarnation: node.incarnation,
        }
    }
}

/// The address of a server that listens everywhere is where its node is reached, with its own port. One that listens on loopback
/// alone, of a node that others reach, has none for them.
fn reachable(at: &str, node: &str) -> String {
    let everywhere = ["0.0.0.0", "[::]"];
    let loopback = |host: &str| host.starts_with("127.") || host == "localhost" || host == "[::1]";
    match (at.rsplit_once(':'), node.rsplit_once(':')) {
        (Some((host, port)), Some((node, _))) if everywhere.contains(&host) => format!("{node}:{port}"),
        (Some((host, _)), Some((node, _))) if loopback(host) && !loopback(node) => String::new(),
        _ => at.to_string(),
    }
}

impl Client {
    /// The node that this client stands on: whose process it is in, or that it was named, on the same machine. None: it came over the
    /// network.
    pub fn here(&self) -> Option<NodeId> {
        self.session.routes.here()
    }

    /// All nodes, as they were last told of. Asks if nobody told yet.
    pub async fn hosts(&self) -> Result<Hosts> {
        let table = self.session.routes.table();
        if !table.hosts.is_empty() {
            return Ok(Hosts(table));
        }
        self.view().await?;
        Ok(Hosts(self.session.routes.table()))
    }

    /// For each `block` bytes of a range of a file, the last of them perhaps fewer: the nodes that hold bytes of it, those with the
    /// most first. Nodes that are silent are left out.
    pub async fn holders(&self, inode: u64, range: Range<u64>, block: u64) -> Result<Vec<Vec<NodeId>>> {
        let hosts = self.hosts().await?;
        let mut held = Held::new(&hosts, range.clone(), block);
        let mut at = range.start;
        while at < range.end {
            let (extents, more) = self.extents(inode, at).await?;
            held.add(&extents)?;
            let Some(last) = extents.last().filter(|_| more) else { break };
            // A page that brings nothing new must not keep anybody here for ever.
            at = last.offset.saturating_add(last.length).max(at.saturating_add(1));
        }
        Ok(held.nodes())
    }

    /// The same of a file all of whose extents a listing told (`Listed::is_located`): nobody is asked for it.
    pub async fn holders_listed(&self, extents: &[Extent], range: Range<u64>, block: u64) -> Result<Vec<Vec<NodeId>>> {
        let hosts = self.hosts().await?;
        let mut held = Held::new(&hosts, range, block);
        held.add(extents)?;
        Ok(held.nodes())
    }

    /// All devices, each with the node that has it; none: no node says that it does.
    pub async fn devices_and_hosts(&self) -> Result<Vec<(Device, Option<Host>)>> {
        self.view().await?;
        let hosts = self.hosts().await?;
        let host = |device: &Device| {
            let node = hosts.0.node_of(DeviceId(device.device.value()))?;
            hosts.get(node).cloned()
        };
        let paired = |device: Device| {
            let host = host(&device);
            (device, host)
        };
        Ok(self.devices().await?.devices.into_iter().map(paired).collect())
    }

    /// Begins to empty all devices of a node; how far that is, `devices` says. `Full` if the others have too little room: then
    /// nothing was done.
    pub async fn drain_node(&self, node: Id) -> Result<()> {
        self.ask(&DrainNode { node }).await.map(drop)
    }

    /// Takes a node without devices out of the cluster. It may join again.
    pub async fn remove_node(&self, node: Id) -> Result<()> {
        self.ask(&RemoveNode { node }).await.map(drop)
    }
}

/// The nodes as a client was last told of them. One of them is looked up, not searched for.
#[derive(Clone)]
pub struct Hosts(Arc<Table>);

impl Hosts {
    /// All of them, in the order of their ids.
    pub fn all(&self) -> impl Iterator<Item = &Host> {
        self.0.hosts.values()
    }

    /// The node of this id.
    pub fn get(&self, node: NodeId) -> Option<&Host> {
        self.0.hosts.get(&node)
    }

    /// The node that has a device; none if that is silent, or nobody has it.
    fn heard_with(&self, device: DeviceId) -> Option<NodeId> {
        let node = self.0.node_of(device)?;
        self.get(node).filter(|host| !host.silent).map(|host| host.node)
    }
}

/// Which nodes hold how many bytes of each block of a range of a file.
struct Held<'a> {
    hosts: &'a Hosts,
    range: Range<u64>,
    block: u64,
    bytes: Vec<BTreeMap<NodeId, u64>>,
}

impl Held<'_> {
    fn new(hosts: &Hosts, range: Range<u64>, block: u64) -> Held<'_> {
        assert!(block > 0, "blocks of no bytes");
        let count = usize::try_from((range.end.saturating_sub(range.start)).div_ceil(block)).unwrap_or(usize::MAX);
        Held { hosts, range, block, bytes: vec![BTreeMap::new(); count] }
    }

    /// Adds what these extents have of the range.
    fn add(&mut self, extents: &[Extent]) -> Result<()> {
        let Held { hosts, range, block, bytes } = self;
        for extent in extents {
            let layout = extent.layout.checked()?;
            let end = if extent.open { range.end } else { extent.offset.saturating_add(extent.length) };
            let (mut from, end) = (extent.offset.max(range.start), end.min(range.end));
            while from < end {
                let place = (from - range.start) / *block;
                let stop = (range.start.saturating_add((place + 1).saturating_mul(*block))).min(end);
                let within = |at: u64| (at - extent.offset).saturating_add(extent.group_offset);
                for replica in layout.replicas() {
                    let there = layout.stripe().column_range(within(from)..within(stop), replica.column);
                    if let Some(node) = hosts.heard_with(replica.device)
                        && let Some(held) = bytes.get_mut(place as usize)
                        && there.start < there.end
                    {
                        *held.entry(node).or_default() += there.end - there.start;
                    }
                }
                from = stop;
            }
        }
        Ok(())
    }

    /// The nodes of each block, those with the most bytes first.
    fn nodes(self) -> Vec<Vec<NodeId>> {
        let by_bytes = |held: BTreeMap<NodeId, u64>| {
            let mut nodes: Vec<(u64, NodeId)> = held.into_iter().map(|(node, bytes)| (bytes, node)).collect();
            nodes.sort_by(|a, b| b.cmp(a));
            nodes.into_iter().map(|(_, node)| node).collect()
        };
        self.bytes.into_iter().map(by_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::reachable;

    /// A server that listens on all addresses is reached where its node is.
    #[test]
    fn addresses() {
        assert_eq!(reachable("0.0.0.0:8020", "10.0.0.1:7400"), "10.0.0.1:8020");
        assert_eq!(reachable("[::]:8020", "[fe80::1]:7400"), "[fe80::1]:8020");
        assert_eq!(reachable("10.0.0.2:8020", "10.0.0.1:7400"), "10.0.0.2:8020");
        assert_eq!(reachable("", "10.0.0.1:7400"), "");
        assert_eq!(reachable("127.0.0.1:8020", "10.0.0.1:7400"), "", "a loopback of its own");
        assert_eq!(reachable("127.0.0.1:8020", "127.0.0.1:7400"), "127.0.0.1:8020", "all on one machine");
    }
}
