//! Nodes: which are the store's (remembered), and when each was heard of (forgotten when the store is opened again, or begins to lead).

use crate::format::NodeRecord;
use crate::key::{Key, after_prefix, wide_at};
use crate::reply::Reply;
use crate::request::{NodeInfo, NodeState};
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::limit::{NODE_SILENCE_MAX, NODE_TEXTS_MAX, NODES_MAX};
use base::planted::Planted;
use base::unit::Time;
use prost::Message;
use std::collections::BTreeMap;

/// Nodes as memory has them.
#[derive(Default)]
pub struct Nodes {
    known: BTreeMap<NodeId, Node>,
    /// When this store began to lead, if it was another one's turn before: that one may have heard of everybody until then.
    led_since: Option<Time>,
}

struct Node {
    info: NodeInfo,
    /// When it was heard of; none: not since the store was opened.
    heard: Option<Time>,
    /// It keeps the store.
    keeps: bool,
    /// All its devices are being emptied.
    leaving: bool,
}

impl Nodes {
    /// Whether any node is.
    pub fn are_known(&self) -> bool {
        !self.known.is_empty()
    }

    /// Whether the node is one of the store's.
    pub fn is_known(&self, node: NodeId) -> bool {
        self.known.contains_key(&node)
    }

    /// Whether the node was not heard of for `NODE_SILENCE_MAX`. Nodes that never joined are not spoken of: not silent.
    pub fn is_silent(&self, node: NodeId, now: Time) -> bool {
        self.known.get(&node).is_some_and(|node| node.is_silent(now, self.led_since))
    }

    /// The site and rack of a node; none: nobody said.
    pub fn rack(&self, node: NodeId) -> Option<(&str, &str)> {
        let info = &self.known.get(&node)?.info;
        (!info.rack.is_empty()).then_some((info.site.as_str(), info.rack.as_str()))
    }

    /// This store leads from now on, after another one.
    pub fn led_since(&mut self, now: Time) {
        self.led_since = Some(now);
    }

    /// Whether all devices of the node are to be emptied.
    pub fn is_leaving(&self, node: NodeId) -> bool {
        self.known.get(&node).is_some_and(|node| node.leaving)
    }

    fn leaves(&mut self, node: NodeId) {
        if let Some(node) = self.known.get_mut(&node) {
            node.leaving = true;
        }
    }

    /// The node joined, or what is known of it changed: that is in the log.
    pub fn joined(&mut self, info: NodeInfo) {
        self.known.retain(|node, other| *node == info.node || other.info.name != info.name);
        let new = Node { info: NodeInfo::default(), heard: None, keeps: false, leaving: false };
        let known = self.known.entry(info.node).or_insert(new);
        known.info = info;
    }

    /// These are read anew: who was heard of before still was.
    pub fn keep_heard(&mut self, before: &Nodes) {
        for (id, node) in &mut self.known {
            if let Some(before) = before.known.get(id) {
                (node.heard, node.keeps) = (before.heard, before.keeps);
            }
        }
    }

    /// The node is none of the store's any more.
    pub fn removed(&mut self, node: NodeId) {
        self.known.remove(&node);
    }
}

impl Node {
    fn is_silent(&self, now: Time, led_since: Option<Time>) -> bool {
        !self.keeps && self.heard.max(led_since).is_none_or(|heard| now.since(heard) > NODE_SILENCE_MAX)
    }
}

impl Nodes {
    /// The start of a node that was heard of last (`NodeId::start`); 0 if it is none of the store's.
    pub fn start_of(&self, node: NodeId) -> u64 {
        self.known.get(&node).map_or(0, |known| node.start(known.info.incarnation))
    }
}

impl State {
    /// Reads the nodes. Done once, when the store is opened.
    pub fn load_nodes(&mut self) -> Result<()> {
        let prefix = [Key::Node(NodeId(0)).ordinal()];
        let mut found = Vec::new();
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = NodeRecord::decode(value).map_err(|_| missing("a readable node record"))?;
            let NodeRecord { incarnation, name, address, site, rack, hdfs, leaving } = record;
            let info = NodeInfo { node: NodeId(wide_at(key, 1)), incarnation, name, address, site, rack, hdfs };
            found.push((info, leaving));
            Ok(true)
        })?;
        for (info, leaving) in found {
            let node = info.node;
            self.nodes.joined(info);
            if leaving {
                self.nodes.leaves(node);
            }
        }
        Ok(())
    }

    /// The nodes or what they have are changed by the transaction under way.
    pub fn raise_epoch(&mut self) {
        self.counters.epoch = self.counters.epoch.saturating_add(1);
    }

    /// Does `NodeJoin`. Memory follows with `Nodes::joined` when it is committed.
    pub fn join_node(&mut self, info: &NodeInfo) -> Result<Reply> {
        check_texts(info)?;
        if let Some(known) = self.nodes.known.get(&info.node) {
            if known.info == *info {
                return Ok(Reply::Done);
            }
            // What a node says of itself changes with its starts only, and each has a number of its own.
            let is_old = known.info.incarnation >= info.incarnation;
            if is_old && self.planted != Some(Planted::OldIncarnationAccepted) {
                let text = format!(
                    "node {} ({}) was started again meanwhile, or is there twice: start number {} is known of {} at {}, and this is \
                     number {} at {}; nothing was changed; stop this process: it serves an old copy of the node's directory, or the \
                     other one does",
                    info.name,
                    info.node,
                    known.info.incarnation,
                    known.info.name,
                    known.info.address,
                    info.incarnation,
                    info.address
                );
                return Err(Error::new(ErrorKind::Stale, text));
            }
        }
        self.free_name(info)?;
        if !self.nodes.is_known(info.node) && self.nodes.known.len() >= NODES_MAX {
            let text = format!("the cluster has {NODES_MAX} nodes, which is the most; nothing was changed; remove one");
            return Err(Error::new(ErrorKind::Full, text));
        }
        self.put_node(info, self.nodes.is_leaving(info.node));
        self.raise_epoch();
        Ok(Reply::Done)
    }

    /// Does `NodeDrain`. Memory follows with `node_leaves` when it is committed.
    pub fn drain_node(&mut self, node: NodeId) -> Result<Reply> {
        let info = self.known_node(node)?.info.clone();
        self.put_node(&info, true);
        for device in self.devices.of_node(node) {
            self.drain_device(device)?;
        }
        Ok(Reply::Done)
    }

    /// All devices of the node are to be emptied: that is in the log.
    pub fn node_leaves(&mut self, node: NodeId) {
        self.nodes.leaves(node);
        for device in self.devices.of_node(node) {
            let drain = self.device_record(device).map_or(0, |record| record.drain);
            self.devices.draining(device, drain);
        }
    }

    fn put_node(&mut self, info: &NodeInfo, leaving: bool) {
        let NodeInfo { node, incarnation, name, address, site, rack, hdfs } = info.clone();
        self.put(&Key::Node(node), &NodeRecord { incarnation, name, address, site, rack, hdfs, leaving });
    }

    fn known_node(&self, node: NodeId) -> Result<&Node> {
        let unknown = || Error::new(ErrorKind::NotFound, format!("node {node} is not one of this cluster's"));
        self.nodes.known.get(&node).ok_or_else(unknown)
    }

    /// Sees to it that no other node has the name: one that is gone and left nothing behind gives it up.
    fn free_name(&mut self, info: &NodeInfo) -> Result<()> {
        let others = self.nodes.known.values().filter(|other| other.info.node != info.node);
        let Some(other) = others.into_iter().find(|other| other.info.name == info.name) else { return Ok(()) };
        let other_id = other.info.node;
        if !self.nodes.is_silent(other_id, self.now) || !self.devices.of_node(other_id).is_empty() {
            let text = format!(
                "the name {} is that of node {other_id} at {}; nothing was changed; start this node with another name (--name NAME)",
                info.name, other.info.address
            );
            return Err(Error::new(ErrorKind::Exists, text));
        }
        self.remove(&Key::Node(other_id));
        Ok(())
    }

    /// Does `NodeReport`.
    pub fn report_node(&mut self, node: NodeId, keeps: bool, devices: &[DeviceId]) -> Result<Reply> {
        let Some(known) = self.nodes.known.get_mut(&node) else {
            return Err(Error::new(ErrorKind::NotFound, format!("node {node} reports but did not join; join first")));
        };
        known.heard = Some(self.now);
        known.keeps = keeps;
        self.devices.present(node, devices);
        Ok(Reply::Done)
    }

    /// Answers `NodeList`.
    pub fn list_nodes(&self) -> Reply {
        let state = |node: &Node| NodeState {
            info: node.info.clone(),
            devices: self.devices.of_node(node.info.node),
            silent: node.is_silent(self.now, self.nodes.led_since),
        };
        Reply::Nodes { epoch: self.counters.epoch, nodes: self.nodes.known.values().map(state).collect() }
    }

    /// Answers `NodeFind`. Looks at no other nodes and devices.
    pub fn find_node(&self, node: NodeId, devices: &[DeviceId]) -> Reply {
        let info = self.nodes.known.get(&node).map(|known| known.info.clone());
        let mut of_node = self.devices.of_node(node);
        let named: Vec<DeviceId> = devices.iter().filter(|device| !of_node.contains(device)).copied().collect();
        of_node.extend(named);
        Reply::NodeFound { info, devices: of_node.into_iter().filter_map(|device| self.device_info(device)).collect() }
    }

    /// Answers `NodesSilent`.
    pub fn silent_nodes(&self) -> Reply {
        let silent = self.nodes.known.iter().filter(|(_, node)| node.is_silent(self.now, self.nodes.led_since));
        Reply::SilentNodes { epoch: self.counters.epoch, nodes: silent.map(|(node, _)| *node).collect() }
    }

    /// Does `NodeRemove`. Memory follows with `Nodes::removed` when it is committed.
    pub fn remove_node(&mut self, node: NodeId) -> Result<Reply> {
        let known = self.known_node(node)?;
        let devices = self.devices.of_node(node).len();
        if devices > 0 {
            let text = format!(
                "node {} has {devices} devices of this store; it was not removed; drain it first (`stormwell node drain {}`)",
                known.info.name, known.info.name
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        self.remove(&Key::Node(node));
        self.raise_epoch();
        Ok(Reply::Done)
    }
}

/// Refuses what is too long for a view.
fn check_texts(info: &NodeInfo) -> Result<()> {
    let texts = [&info.name, &info.address, &info.site, &info.rack, &info.hdfs];
    let length: usize = texts.iter().map(|text| text.len()).sum();
    if info.name.is_empty() || info.address.is_empty() || length > NODE_TEXTS_MAX {
        let text = format!(
            "a node has a name and an address, and all its texts together have at most {NODE_TEXTS_MAX} bytes; nothing was changed"
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(())
}
