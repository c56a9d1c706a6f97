//! The cluster, as the node that keeps the metadata knows it: takes the reports of the others, says who is there, removes nodes.

use super::reports::use_of;
use crate::identity::Identity;
use crate::leading::Leading;
use crate::log::Level;
use crate::node::Node;
use crate::peers::place_on;
use crate::settings::{Cluster, Settings};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId, SessionId};
use base::limit::{KEEPING_TOLD_MAX, NODE_DEVICES_MAX, SESSIONS_ASKED_MAX};
use base::policy::Class;
use base::unit::Time;
use meta::Caller;
use meta::request::{DeviceInfo, NodeInfo, NodeState};
use net::Asker;
use net::message::{Done, Id, cluster as wire, file};
use std::collections::BTreeMap;
use std::time::Duration;

/// Sessions that a report's answer names at the most: 30 bytes each. Others are asked for one by one.
const SESSIONS_TOLD_MAX: usize = 10_000;

/// What a node tells of itself.
pub fn itself(settings: &Settings, identity: &Identity, address: &str, hdfs: Option<&str>) -> NodeInfo {
    let cluster = settings.cluster.as_ref();
    let said = |value: fn(&Cluster) -> &str| cluster.map(value).unwrap_or_default().to_string();
    let id = identity.node.to_string();
    let name = Some(said(|cluster| &cluster.name)).filter(|name| !name.is_empty());
    let advertised = cluster.and_then(|cluster| cluster.advertise.clone());
    NodeInfo {
        node: identity.node,
        incarnation: identity.incarnation,
        name: name.unwrap_or_else(|| id[..8].to_string()),
        address: advertised.unwrap_or_else(|| address.to_string()),
        site: said(|cluster| &cluster.site),
        rack: said(|cluster| &cluster.rack),
        hdfs: hdfs.unwrap_or_default().to_string(),
    }
}

/// The same as the wire has it.
pub fn wire_node(info: NodeInfo) -> wire::Node {
    let NodeInfo { node, incarnation, name, address, site, rack, hdfs } = info;
    wire::Node { node: node.0.into(), incarnation, name, address, site, rack, hdfs }
}

/// Looks at whether a session that is at its end was renewed or ended, and the pause between them: half a second, less than a member
/// waits for.
const FIND_ATTEMPTS: u32 = 50;
const FIND_PAUSE: Duration = Duration::from_millis(10);

impl Node {
    /// Who is there; `led`: as whoever leads has it.
    pub async fn view(&self, led: bool) -> Result<wire::ViewAnswer> {
        let viewed = match self.leading() {
            Ok(leading) => leading.view(self).await,
            Err(error) => Err(error),
        };
        match (viewed, self.membership()) {
            // It does not lead, or not any more: then it is a member like others.
            (Err(error), Some(membership)) if !led && (error.kind() == ErrorKind::Moved || !self.leads()) => {
                membership.view()
            }
            (viewed, _) => viewed,
        }
    }

    /// Takes the report of another node. Tells what it has to know, or why it cannot be one of the cluster's.
    pub async fn take_report(&self, leading: &Leading, from: Asker, ask: wire::Report) -> Result<wire::ReportAnswer> {
        let (name, address) = (ask.node.name.clone(), ask.node.address.clone());
        let answer = self.report_taken(leading, from, ask).await;
        if let Err(error) = &answer
            && let Asker::Node { node, .. } = from
            && leading.peers.refused(node, error.text())
        {
            let text = format!("a node that reported was refused: {}", error.text());
            self.log.say(Level::Warn, "cluster", &text, &[("name", &name), ("at", &address)]);
        }
        answer
    }

    async fn report_taken(&self, leading: &Leading, from: Asker, ask: wire::Report) -> Result<wire::ReportAnswer> {
        let wire::Report { node, mut devices, epoch, mut remembered, keeping } = ask;
        let info = info_of(&node);
        self.check_reporter(leading, from, &info, devices.len())?;
        // In this order: one that is not known any more was marked before.
        let named = devices.iter().map(|device| DeviceId(device.device.value())).collect();
        let (before, known) = leading.find_node(info.node, named).await?;
        let known: BTreeMap<DeviceId, DeviceInfo> = known.into_iter().map(|info| (info.device, info)).collect();
        let removed = leading.removed_of(&devices, &known).await?;
        devices.retain(|device| !removed.contains(&device.device));
        for device in &devices {
            check_device(&info, device, known.get(&DeviceId(device.device.value())))?;
        }
        if before.as_ref() != Some(&info) {
            leading.metadata.ask(meta::Request::NodeJoin { node: info.clone() }).await?;
            let text = "a node joined, or came back";
            self.log.say(Level::Info, "cluster", text, &[("name", &info.name), ("at", &info.address)]);
        }
        leading.note_devices(info.node, &devices, &known).await?;
        let drains = devices.iter().any(|device| device.drain.is_some());
        leading.peers.heard(node, devices, keeping);
        if drains {
            // A drain may have waited for this node to know of it.
            leading.drains.notify_one();
        }
        let mut answer = leading.answer_to(self, info.node, epoch).await?;
        answer.removed = removed;
        remembered.truncate(SESSIONS_ASKED_MAX);
        answer.over = leading.metadata.over(remembered).await?;
        Ok(answer)
    }

    fn check_reporter(&self, leading: &Leading, from: Asker, info: &NodeInfo, devices: usize) -> Result<()> {
        let wrong = |text: String| Err(Error::new(ErrorKind::Invalid, text));
        if !matches!(from, Asker::Node { node, .. } if node == info.node) {
            return wrong("a node reports for itself alone; nothing was changed".to_string());
        }
        if leading.is_near(self, info.node) {
            return wrong(format!(
                "this node has the id of the one that keeps the metadata, {}, so its directory is a copy of that one's; nothing was \
                 changed; start it with a directory of its own",
                self.id
            ));
        }
        if devices > NODE_DEVICES_MAX {
            return wrong(format!(
                "a node has at most {NODE_DEVICES_MAX} devices, and this one names {devices}; nothing was changed; start a second \
                 node for the others"
            ));
        }
        Ok(())
    }

    /// Takes a node without devices out of the cluster.
    pub async fn remove_node(&self, leading: &Leading, caller: Caller, ask: wire::RemoveNode) -> Result<Done> {
        let node = NodeId(ask.node.value());
        if self.keepers().contains(&node) {
            let text = "this node keeps the metadata and cannot be removed; nothing was changed";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        leading.metadata.ask_for(caller, meta::Request::NodeRemove { node }).await?;
        leading.peers.forget(node);
        Ok(Done {})
    }
}

impl Leading {
    /// Whether a session is open, and for how long at least.
    pub async fn find_session(&self, ask: wire::FindSession) -> Result<wire::OpenSession> {
        let session = SessionId(ask.session.value());
        for _ in 0..FIND_ATTEMPTS {
            let leases = self.metadata.leases(Some(session), 1).await?;
            let lease_ms = match leases.first() {
                None => 0,
                // It ends now, or is renewed: the next answer knows.
                Some((_, left)) if left.as_millis() == 0 => {
                    tokio::time::sleep(FIND_PAUSE).await;
                    continue;
                }
                Some((_, left)) => left.as_millis() as u64,
            };
            return Ok(wire::OpenSession { session: ask.session, lease_ms });
        }
        let text = format!(
            "session {session} is at its end, and the metadata store has not ended it for {} ms; whether it is open is not known; ask \
             again, and if that stays so look at what the node that keeps the metadata says",
            FIND_ATTEMPTS * FIND_PAUSE.as_millis() as u32
        );
        Err(Error::new(ErrorKind::Unreachable, text))
    }

    /// The epoch and all nodes.
    pub async fn nodes(&self) -> Result<(u64, Vec<NodeState>)> {
        match self.metadata.ask(meta::Request::NodeList).await? {
            meta::Reply::Nodes { epoch, nodes } => Ok((epoch, nodes)),
            other => unreachable!("nodes were asked for: {other:?}"),
        }
    }

    /// What is known of a node, of its devices and of these.
    async fn find_node(&self, node: NodeId, devices: Vec<DeviceId>) -> Result<(Option<NodeInfo>, Vec<DeviceInfo>)> {
        match self.metadata.ask(meta::Request::NodeFind { node, devices }).await? {
            meta::Reply::NodeFound { info, devices } => Ok((info, devices)),
            other => unreachable!("a node was asked for: {other:?}"),
        }
    }

    /// The epoch, and the nodes that are silent.
    async fn silent_nodes(&self) -> Result<(u64, Vec<NodeId>)> {
        match self.metadata.ask(meta::Request::NodesSilent).await? {
            meta::Reply::SilentNodes { epoch, nodes } => Ok((epoch, nodes)),
            other => unreachable!("silent nodes were asked for: {other:?}"),
        }
    }

    /// All devices of the store.
    pub async fn devices(&self) -> Result<Vec<DeviceInfo>> {
        match self.metadata.ask(meta::Request::DeviceList).await? {
            meta::Reply::Devices(known) => Ok(known),
            other => unreachable!("devices were asked for: {other:?}"),
        }
    }

    /// The devices of this node, `devices`, with its name before their directories as soon as there are others.
    pub async fn near_devices(&self, itself: NodeId, mut devices: Vec<file::Device>) -> Result<Vec<file::Device>> {
        let lost: BTreeMap<u128, DeviceInfo> =
            self.devices().await?.into_iter().filter(|info| info.lost).map(|info| (info.device.0, info)).collect();
        for device in &mut devices {
            if let Some(info) = lost.get(&device.device.value()) {
                (device.lost, device.trouble) = (true, given_up(info));
            }
        }
        let (_, nodes) = self.nodes().await?;
        if let Some(node) = nodes.iter().find(|node| node.info.node == itself && nodes.len() > 1) {
            for device in &mut devices {
                device.place = place_on(&node.info.name, &device.place);
            }
        }
        Ok(devices)
    }

    /// The devices of nodes that report, as they did last.
    pub async fn far_devices(&self, node: &Node) -> Result<Vec<file::Device>> {
        let (_, nodes) = self.nodes().await?;
        let mut devices = Vec::new();
        for info in self.devices().await?.into_iter().filter(|info| !self.is_near(node, info.node)) {
            let node = nodes.iter().find(|node| node.info.node == info.node);
            let name = node.map_or_else(|| info.node.to_string(), |node| node.info.name.clone());
            let mut device = match self.peers.device(info.device) {
                Some(far) => {
                    let said = far.last_report();
                    file::Device {
                        place: far.peer.place_of(&said),
                        drain: self.peers.drain_of(&far, said.drain.clone()),
                        ..said
                    }
                }
                None => file::Device { place: name.clone(), ..file::Device::default() },
            };
            if info.lost {
                device.missing |= info.silent || !info.reported;
                device.trouble = given_up(&info);
            } else if info.silent {
                device.missing = true;
                device.trouble = format!(
                    "node {name} is silent; what is on it is safe there and comes back with it; start it again"
                );
            } else if !info.reported && !device.missing {
                device.missing = true;
                device.trouble = format!(
                    "missing: node {name} has not said that it has it; what is on it cannot be read; if its disk is well, start that \
                     node with its --data too"
                );
            }
            device.device = info.device.0.into();
            device.lost = info.lost;
            (device.class, device.capacity, device.node) = (info.class.code(), info.capacity, Some(info.node.0.into()));
            devices.push(device);
        }
        Ok(devices)
    }

    /// Says of devices how long they have been away.
    pub fn tell_away(&self, now: Time, devices: &mut [file::Device]) {
        for device in devices {
            let since = self.away.since(DeviceId(device.device.value()));
            // One that is away is told so, however short that is.
            device.away_ms = since.map_or(0, |since| (now.since(since).as_millis() as u64).max(1));
        }
    }

    /// Which of the devices that a node reports were taken out of the store. They are told so, and never registered: one taken for a new device
    /// would get files, and its disk may be gone tomorrow.
    async fn removed_of(&self, devices: &[file::Device], known: &BTreeMap<DeviceId, DeviceInfo>) -> Result<Vec<Id>> {
        let (mut removed, mut unknown) = (Vec::new(), Vec::new());
        for said in devices {
            let device = DeviceId(said.device.value());
            let is_known = known.contains_key(&device);
            // One that is being emptied was known. What its node says of the drain is of this start of it, so it was removed in this start: a
            // device in memory leaves no mark in the metadata.
            if self.peers.was_removed(device) || said.drain.is_some() && !is_known {
                removed.push(said.device);
            } else if !is_known {
                unknown.push(device);
            }
        }
        let before = self.metadata.removed(unknown).await?;
        removed.extend(before.into_iter().map(|device| Id::from(device.0)));
        Ok(removed)
    }

    async fn view(&self, node: &Node) -> Result<wire::ViewAnswer> {
        let (epoch, nodes) = self.nodes().await?;
        let (mut keepers, mut term) = (Vec::new(), 0);
        if !self.alone {
            (keepers, term) = (node.keepers().into_iter().map(|keeper| keeper.0.into()).collect(), self.term);
        }
        let mut members: Vec<wire::Member> = nodes.into_iter().map(wire_member).collect();
        tell_keeping(&mut members, |node| self.peers.find(node).map(|peer| peer.keeping()).unwrap_or_default());
        Ok(wire::ViewAnswer { epoch, keeper: node.id.0.into(), members, keepers, term })
    }

    /// Tells the metadata store what a node said of its devices.
    async fn note_devices(
        &self,
        node: NodeId,
        devices: &[file::Device],
        known: &BTreeMap<DeviceId, DeviceInfo>,
    ) -> Result<()> {
        let (mut present, mut uses) = (Vec::new(), Vec::new());
        for said in devices.iter().filter(|said| !said.missing) {
            let (device, class) = (DeviceId(said.device.value()), Class::from_code(said.class).unwrap_or_default());
            let same =
                |known: &DeviceInfo| known.node == node && known.class == class && known.capacity == said.capacity;
            if !known.get(&device).is_some_and(same) {
                let capacity = said.capacity;
                self.metadata.ask(meta::Request::DeviceRegister { device, class, capacity, node }).await?;
            }
            let file::Device { capacity, used, reserve, full, out_of_service: failed, .. } = *said;
            let usage = chunk::Usage { capacity, used, reserve, full, failed, ..chunk::Usage::default() };
            uses.push(use_of(device, &usage));
            present.push(device);
        }
        self.metadata.ask(meta::Request::DeviceReport { devices: uses }).await?;
        self.metadata.ask(meta::Request::NodeReport { node, keeps: false, devices: present }).await?;
        Ok(())
    }

    /// What a node has to know that has this epoch's view.
    async fn answer_to(&self, itself: &Node, node: NodeId, epoch: u64) -> Result<wire::ReportAnswer> {
        // The view is made for those to whom it says something new: it grows with the nodes, and so do the reports.
        let (present, silent) = self.silent_nodes().await?;
        let peer = self.peers.find(node);
        let knows = present == epoch && peer.as_ref().is_some_and(|peer| peer.knows_silent(&silent));
        let view = if knows { None } else { Some(self.view(itself).await?) };
        if let (Some(view), Some(peer)) = (&view, peer) {
            let silent = view.members.iter().filter(|member| member.silent);
            peer.told_silent(silent.map(|member| NodeId(member.node.node.value())).collect());
        }
        let leases = self.metadata.leases(None, SESSIONS_TOLD_MAX).await?;
        let open = |(session, left): (SessionId, Duration)| wire::OpenSession {
            session: session.0.into(),
            lease_ms: left.as_millis() as u64,
        };
        let sessions = leases.into_iter().map(open).filter(|open| open.lease_ms > 0).collect();
        let (_, devices) = self.find_node(node, Vec::new()).await?;
        let draining = devices.iter().filter(|info| info.draining).map(|info| info.device.0.into());
        let (draining, term) = (draining.collect(), self.term);
        let leader = (!self.alone).then_some(itself.id.0.into());
        Ok(wire::ReportAnswer { view, sessions, draining, removed: Vec::new(), over: Vec::new(), term, leader })
    }
}

/// What it means that a device was given up.
fn given_up(info: &DeviceInfo) -> String {
    let what = match info.may_return {
        true => {
            "given up by itself, because it was away for long: what it had is copied from elsewhere; if it answers it counts again, what is nowhere \
             else is there, and what found no other place is compared with the other copies"
        }
        false => {
            "given up by a person; it is forgotten when nothing is left that is only here: what it had is copied from elsewhere, and from here only what \
             is nowhere else; if it answers it counts again after that, as an empty device"
        }
    };
    what.to_string()
}

/// Whether a device may be one of the store's. One that holds chunks and is not known belongs to another store: serving it would
/// mean deleting everything on it.
fn check_device(node: &NodeInfo, said: &file::Device, known: Option<&DeviceInfo>) -> Result<()> {
    let place = &said.place;
    match known {
        None if said.chunks > 0 => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the device in {place} holds {} chunks of another store; nothing was changed. Start it in its own cluster, or give \
                 node {} an empty directory",
                said.chunks, node.name
            ),
        )),
        Some(known) if known.node != node.node && known.reported && !known.silent && !said.missing => Err(Error::new(
            ErrorKind::Exists,
            format!(
                "the device in {place} is served by node {} already, so one of the two is a copy; nothing was changed; leave one out",
                known.node
            ),
        )),
        _ if Class::from_code(said.class).is_none() => {
            let text = format!("the device in {place} has a class that this version does not know; update the keeper");
            Err(Error::new(ErrorKind::Unsupported, text))
        }
        _ => Ok(()),
    }
}

fn wire_member(state: NodeState) -> wire::Member {
    let NodeState { info, devices, silent } = state;
    let devices = devices.into_iter().map(|device| device.0.into()).collect();
    wire::Member { node: wire_node(info), devices, silent, keeping: String::new() }
}

/// Tells of each node what is wrong with the metadata that it keeps, as far as that fits.
fn tell_keeping(members: &mut [wire::Member], keeping: impl Fn(NodeId) -> String) {
    let troubled = members.iter_mut().filter_map(|member| {
        let says = keeping(NodeId(member.node.node.value()));
        (!says.is_empty()).then_some((member, says))
    });
    troubled.take(KEEPING_TOLD_MAX).for_each(|(member, says)| member.keeping = says);
}

fn info_of(node: &wire::Node) -> NodeInfo {
    let wire::Node { node, incarnation, name, address, site, rack, hdfs } = node.clone();
    NodeInfo { node: NodeId(node.value()), incarnation, name, address, site, rack, hdfs }
}

#[cfg(test)]
mod tests {
    use super::{tell_keeping, wire};
    use base::limit::KEEPING_TOLD_MAX;

    /// However many nodes say that something is wrong, of so many it is told: of the first ones.
    #[test]
    fn what_is_told_of_keepers_is_bounded() {
        let member = |number: u128| wire::Member {
            node: wire::Node { node: number.into(), ..wire::Node::default() },
            ..wire::Member::default()
        };
        let mut members: Vec<wire::Member> = (0..100).map(member).collect();
        tell_keeping(&mut members, |node| if node.0 >= 50 { "lost".to_string() } else { String::new() });
        let told: Vec<bool> = members.iter().map(|member| !member.keeping.is_empty()).collect();
        let expected: Vec<bool> = (0..100).map(|number| (50..50 + KEEPING_TOLD_MAX).contains(&number)).collect();
        assert_eq!(told, expected);
    }
}
