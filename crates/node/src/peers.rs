//! The other nodes as the one that keeps the metadata knows them: what each reported last, and the link to it.

pub mod numbering;

use crate::control::claims::lock;
use crate::device::draining::Draining;
use crate::device_handle::RemoteDevice;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::limit::{KEEPING_MAX, NODE_SILENCE_MAX, NODES_MAX};
use base::moved::Moved;
use base::net::Net;
use base::unit::{Time, WallTime};
use net::message::{Ask, cluster, device as wire, file};
use net::{Link, LinkSettings, Payload};
use numbering::{Numbered, Numbering};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::timeout;

/// How long a node that has not reported has to take what it is told.
const TOLD_WAIT: Duration = Duration::from_secs(1);

/// All nodes that reported since this one's leadership began.
pub struct Peers {
    network: Arc<dyn Net>,
    settings: LinkSettings,
    known: Mutex<Known>,
    marks: Mutex<Marks>,
    deletes: Arc<Numbering>,
}

#[derive(Default)]
struct Known {
    peers: BTreeMap<NodeId, Arc<Peer>>,
    /// No more links are made: the leadership, of this term, is over.
    closed: Option<u64>,
}

/// What is remembered of devices of other nodes until something is done about it.
#[derive(Default)]
struct Marks {
    /// How often a node came, or came back.
    returns: u64,
    /// Not compared with the metadata since their node came, or since something could not be done there: then also one of this node.
    uncompared: BTreeSet<DeviceId>,
    /// How far the drains have come.
    drains: BTreeMap<DeviceId, Draining>,
    /// Why a node was refused last.
    refused: BTreeMap<NodeId, String>,
    /// Emptied and removed since this node leads: their nodes go on to report them for as long as they run.
    removed: BTreeSet<DeviceId>,
}

/// Another node.
pub struct Peer {
    network: Arc<dyn Net>,
    settings: LinkSettings,
    last_report: Mutex<LastReport>,
    link: Mutex<Linked>,
    /// That of all nodes: a device may be on another one by the next delete.
    deletes: Arc<Numbering>,
    /// Held by whoever connects.
    connecting: tokio::sync::Mutex<()>,
}

/// A start of the node, and where that listens.
#[derive(PartialEq, Eq)]
struct Start {
    address: String,
    node: NodeId,
    incarnation: u64,
}

/// The link to a node.
enum Linked {
    /// None is there; the next call connects.
    Not,
    /// To this start of the node.
    To(Start, Link),
    /// There will be none: the leadership, of this term, is over.
    Closed(u64),
}

struct LastReport {
    node: cluster::Node,
    devices: Vec<file::Device>,
    heard: Time,
    /// A call to it that was sent after its last report was met with silence.
    lost: bool,
    /// One that was sent before it was, since: it may have missed what that one asked.
    missed: bool,
    /// The silent nodes in the view that it was told last; none: it was told none since this one leads.
    told_silent: Option<Vec<NodeId>>,
    /// What is wrong with what it keeps of the metadata, if it is to; see `cluster::Report`.
    keeping: String,
}

impl LastReport {
    fn new(node: cluster::Node, devices: Vec<file::Device>, heard: Time) -> LastReport {
        LastReport { node, devices, heard, lost: false, missed: false, told_silent: None, keeping: String::new() }
    }
}

impl Peers {
    /// None yet; links to them are made with `settings`.
    pub fn new(network: Arc<dyn Net>, settings: LinkSettings) -> Peers {
        Peers { network, settings, known: Mutex::default(), marks: Mutex::default(), deletes: Arc::default() }
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        lock(&self.marks)
    }

    /// The leadership, of this term, is over. Closes all links, for good: no order leaves any more, and those that wait for an answer get none. They fail with `Moved`, which says that
    /// nobody here knows what was done.
    pub fn close(&self, term: u64) {
        let mut known = lock(&self.known);
        known.closed = Some(term);
        for peer in known.peers.values() {
            if let Linked::To(_, link) = std::mem::replace(&mut *lock(&peer.link), Linked::Closed(term)) {
                link.close();
            }
        }
    }

    /// Tells a node something that has not reported yet, over a connection for that alone. `Unreachable` if it does not take it in time.
    pub async fn tell<A: Ask>(&self, address: &str, ask: &A) -> Result<()> {
        let settings = LinkSettings { once: true, ..self.settings.clone() };
        let told = async {
            let link = Link::connect(self.network.clone(), address, settings).await?;
            let told = link.call(ask, Payload::empty()).await;
            link.close();
            told.map(drop)
        };
        let late = || {
            Error::new(ErrorKind::Unreachable, format!("the node at {address} was told something and has not answered"))
        };
        timeout(TOLD_WAIT, told).await.unwrap_or_else(|_| Err(late()))
    }

    /// The node of this id, if it reported.
    pub fn find(&self, node: NodeId) -> Option<Arc<Peer>> {
        lock(&self.known).peers.get(&node).cloned()
    }

    fn all(&self) -> Vec<Arc<Peer>> {
        lock(&self.known).peers.values().cloned().collect()
    }

    /// A node reported. One that came, or came back, may have missed things.
    pub fn heard(&self, node: cluster::Node, devices: Vec<file::Device>, mut keeping: String) {
        keeping.truncate(keeping.floor_char_boundary(KEEPING_MAX));
        let id = NodeId(node.node.value());
        let returned = match self.find(id) {
            Some(peer) => peer.heard(node, devices.clone(), keeping),
            None => {
                let now = self.settings.clock.now();
                let said = LastReport { keeping, ..LastReport::new(node, devices.clone(), now) };
                let (network, settings) = (self.network.clone(), self.settings.clone());
                let mut known = lock(&self.known);
                let link = Mutex::new(known.closed.map_or(Linked::Not, Linked::Closed));
                let (last_report, connecting) = (Mutex::new(said), tokio::sync::Mutex::default());
                let deletes = self.deletes.clone();
                let peer = Peer { network, settings, last_report, link, deletes, connecting };
                known.peers.insert(id, Arc::new(peer));
                true
            }
        };
        if returned {
            let mut marks = self.marks();
            marks.returns += 1;
            marks.uncompared.extend(devices.iter().map(|device| DeviceId(device.device.value())));
        }
    }

    /// How often a node came, or came back, since this one leads.
    pub fn returns(&self) -> u64 {
        self.marks().returns
    }

    /// The node is none of the cluster's any more.
    pub fn forget(&self, node: NodeId) {
        lock(&self.known).peers.remove(&node);
    }

    /// All devices of other nodes that are the store's.
    pub fn devices(&self) -> Vec<RemoteDevice> {
        let mut found = Vec::new();
        for peer in self.all() {
            let devices =
                peer.last_report().devices.iter().map(|device| DeviceId(device.device.value())).collect::<Vec<_>>();
            found.extend(devices.into_iter().map(|device| RemoteDevice { device, peer: peer.clone() }));
        }
        let marks = self.marks();
        found.retain(|far| !marks.removed.contains(&far.device));
        found
    }

    /// The device of this id, if it is on another node.
    pub fn device(&self, device: DeviceId) -> Option<RemoteDevice> {
        let peer = self.all().into_iter().find(|peer| peer.last_report_of(device).is_some())?;
        Some(RemoteDevice { device, peer })
    }

    /// A node was refused. Whether that is worth saying: it was not for the same reason before.
    pub fn refused(&self, from: NodeId, why: &str) -> bool {
        let refused = &mut self.marks().refused;
        if refused.len() > NODES_MAX {
            refused.clear();
        }
        refused.insert(from, why.to_string()).is_none_or(|before| before != why)
    }

    /// Something could not be done on this device: it has to be compared with the metadata when it is there again, or goes on.
    pub fn missed(&self, device: DeviceId) {
        self.marks().uncompared.insert(device);
    }

    /// Devices that have to be compared with the metadata.
    pub fn uncompared(&self) -> BTreeSet<DeviceId> {
        self.marks().uncompared.clone()
    }

    /// The device was compared with the metadata.
    pub fn compared(&self, device: DeviceId) {
        self.marks().uncompared.remove(&device);
    }

    /// The drain of a device came further.
    pub fn drained(&self, device: DeviceId, began: WallTime, note: impl FnOnce(&mut Draining)) {
        note(self.marks().drains.entry(device).or_insert(Draining { began, ..Draining::default() }));
    }

    /// Whether a device is being emptied.
    pub fn is_drained(&self, device: DeviceId) -> bool {
        self.marks().drains.contains_key(&device)
    }

    /// How far the drain of a device has come; `said` is what its node says of it, which does nothing by itself.
    pub fn drain_of(&self, far: &RemoteDevice, said: Option<wire::DrainState>) -> Option<wire::DrainState> {
        let marks = self.marks();
        // What its node says is that nothing was moved yet.
        let said = said.filter(|_| !marks.removed.contains(&far.device));
        marks.drains.get(&far.device).map(Draining::state).or(said)
    }

    /// The device is about to be none of the store's any more. How far its drain has come is known until it is (`gone`).
    pub fn removed(&self, far: &RemoteDevice) {
        self.marks().removed.insert(far.device);
    }

    /// It was removed.
    pub fn gone(&self, far: &RemoteDevice) {
        self.marks().drains.remove(&far.device);
    }

    /// The device could not be removed.
    pub fn stays(&self, device: DeviceId) {
        self.marks().removed.remove(&device);
    }

    /// Whether a device was removed since this node leads.
    pub fn was_removed(&self, device: DeviceId) -> bool {
        self.marks().removed.contains(&device)
    }
}

impl Peer {
    fn last_report(&self) -> MutexGuard<'_, LastReport> {
        lock(&self.last_report)
    }

    /// It reported. Whether it was away in between, or may have missed something.
    fn heard(&self, node: cluster::Node, devices: Vec<file::Device>, keeping: String) -> bool {
        let away = !self.is_reachable();
        let now = self.settings.clock.now();
        let mut said = self.last_report();
        let is_other = said.node.incarnation != node.incarnation || said.devices.len() != devices.len();
        let returned = away || said.missed || is_other;
        let told_silent = said.told_silent.take();
        *said = LastReport { told_silent, keeping, ..LastReport::new(node, devices, now) };
        returned
    }

    /// What is wrong with what it keeps of the metadata, if it said so.
    pub fn keeping(&self) -> String {
        self.last_report().keeping.clone()
    }

    /// Its name, for people.
    pub fn name(&self) -> String {
        self.last_report().node.name.clone()
    }

    /// Where it is reached, `host:port`.
    pub fn address(&self) -> String {
        self.last_report().node.address.clone()
    }

    /// Which start of which node it is.
    pub fn incarnation(&self) -> (NodeId, u64) {
        let said = self.last_report();
        (NodeId(said.node.node.value()), said.node.incarnation)
    }

    /// What it reported of a device.
    pub fn last_report_of(&self, device: DeviceId) -> Option<file::Device> {
        self.last_report().devices.iter().find(|said| said.device.value() == device.0).cloned()
    }

    /// Where a device of it is, for people.
    pub fn place_of(&self, device: &file::Device) -> String {
        place_on(&self.name(), &device.place)
    }

    /// When it was heard of last.
    pub fn heard_at(&self) -> Time {
        self.last_report().heard
    }

    /// How long it has been silent.
    pub fn silent_for(&self) -> std::time::Duration {
        self.settings.clock.now().since(self.last_report().heard)
    }

    /// Whether it is worth asking: it reported lately, and answered since then.
    pub fn is_reachable(&self) -> bool {
        !self.last_report().lost && self.silent_for() <= NODE_SILENCE_MAX
    }

    /// Whether these are the nodes that it was told last to be silent.
    pub fn knows_silent(&self, silent: &[NodeId]) -> bool {
        self.last_report().told_silent.as_deref() == Some(silent)
    }

    /// Notes which nodes it is told to be silent.
    pub fn told_silent(&self, silent: Vec<NodeId>) {
        self.last_report().told_silent = Some(silent);
    }

    /// Begins a delete on a device of it.
    pub fn numbered(&self, device: DeviceId) -> Numbered {
        self.deletes.begin(device)
    }

    /// Asks it. One that does not answer is not asked again before it reports.
    pub async fn ask<A: Ask>(&self, ask: &A, payload: Payload) -> Result<(A::Answer, Payload)> {
        self.check_open()?;
        if !self.is_reachable() {
            return Err(self.away("it has not reported lately"));
        }
        let heard = self.last_report().heard;
        let answer = match self.link().await {
            Ok(link) => link.call(ask, payload).await,
            Err(error) => Err(error),
        };
        match answer {
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                // By the end of the leadership: then nobody was silent.
                self.check_open()?;
                self.was_silent(heard);
                self.unlink();
                Err(self.away(error.text()))
            }
            other => other,
        }
    }

    /// A call was met with silence that was sent when it had reported last at this time. If it has reported since, it is back.
    fn was_silent(&self, heard: Time) {
        let mut said = self.last_report();
        let is_back = said.heard != heard;
        (said.lost, said.missed) = (said.lost || !is_back, said.missed || is_back);
    }

    async fn link(&self) -> Result<Link> {
        if let Some(link) = self.link_to(&self.start())? {
            return Ok(link);
        }
        let _turn = self.connecting.lock().await;
        // It may have reported another one meanwhile.
        let start = self.start();
        if let Some(link) = self.link_to(&start)? {
            return Ok(link);
        }
        // What is ordered of it is not for a later start, of which nothing is known before it reports.
        let settings = LinkSettings { meant: Some((start.node, start.incarnation)), ..self.settings.clone() };
        let made = Link::connect(self.network.clone(), &start.address, settings).await?;
        let mut link = lock(&self.link);
        if let Linked::Closed(term) = *link {
            made.close();
            return Err(Moved { leader: None, term }.into());
        }
        *link = Linked::To(start, made.clone());
        Ok(made)
    }

    /// The next call connects anew.
    fn unlink(&self) {
        let mut link = lock(&self.link);
        if !matches!(*link, Linked::Closed(_)) {
            *link = Linked::Not;
        }
    }

    /// Whether the leadership that asks is not over.
    fn check_open(&self) -> Result<()> {
        match *lock(&self.link) {
            Linked::Closed(term) => Err(Moved { leader: None, term }.into()),
            Linked::Not | Linked::To(..) => Ok(()),
        }
    }

    /// The start that reported last.
    fn start(&self) -> Start {
        let node = &self.last_report().node;
        Start { address: node.address.clone(), node: NodeId(node.node.value()), incarnation: node.incarnation }
    }

    /// The link to this start, if there is one.
    fn link_to(&self, start: &Start) -> Result<Option<Link>> {
        match &*lock(&self.link) {
            Linked::To(to, link) if to == start => Ok(Some(link.clone())),
            Linked::To(..) | Linked::Not => Ok(None),
            Linked::Closed(term) => Err(Moved { leader: None, term: *term }.into()),
        }
    }

    fn away(&self, why: &str) -> Error {
        let said = self.last_report();
        let text = format!(
            "node {} at {} cannot be reached ({why}); what is on it is safe there and comes back with it; everything else is \
             served; start it again, or look at the network",
            said.node.name, said.node.address
        );
        Error::new(ErrorKind::Unreachable, text)
    }
}

/// Where a device is, for people, in a store of several nodes.
pub fn place_on(node: &str, directory: &str) -> String {
    format!("{node}:{directory}")
}

#[cfg(test)]
mod tests {
    use super::{Peers, wire};
    use base::buffer::Pool;
    use base::env::Clock;
    use base::error::ErrorKind;
    use base::id::{DeviceId, NodeId, SessionId};
    use base::limit::NODE_SILENCE_MAX;
    use base::moved::Moved;
    use base::net::Net;
    use base::unit::{Time, WallTime};
    use net::message::{cluster, file, order};
    use net::{Asker, CallNumbers, Credentials, LinkSettings, Payload};
    use sim::net::SimNet;
    use sim::random::SimRandom;
    use sim::runtime_clock::RuntimeClock;
    use std::sync::Arc;
    use std::time::Duration;

    const NODE: NodeId = NodeId(7);

    fn peers(network: SimNet, clock: Arc<dyn Clock>) -> Peers {
        let settings = LinkSettings {
            session: SessionId(1),
            program: "test".to_string(),
            connections: 1,
            silence_max: NODE_SILENCE_MAX,
            pool: Pool::new(1 << 20),
            clock,
            random: Arc::new(SimRandom::new(1)),
            credentials: Credentials::default(),
            asker: Asker::Client,
            numbers: CallNumbers::default(),
            meant: None,
            once: false,
        };
        Peers::new(Arc::new(network), settings)
    }

    /// A node that does not answer is not asked again before it reports. One that reports while a call waits in vain, which was sent
    /// before, is there: the call's silence says nothing of now.
    #[tokio::test(start_paused = true)]
    async fn silence_before_a_report() {
        for returns in [false, true] {
            let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_now());
            let network = SimNet::new(1, clock.clone(), "here");
            // Its connections are taken, and nobody says anything there.
            let _silent = network.host("there").listen("there:1").await.expect("free");
            let peers = peers(network, clock.clone());
            let reports = || {
                let node = cluster::Node { node: NODE.0.into(), address: "there:1".to_string(), ..Default::default() };
                peers.heard(node, Vec::new(), String::new());
            };
            reports();
            let peer = peers.find(NODE).expect("it reported");
            let comes_back = async {
                tokio::time::sleep(NODE_SILENCE_MAX - Duration::from_millis(500)).await;
                if returns {
                    reports();
                }
            };
            let question = order::Kept::default();
            let (asked, ()) = tokio::join!(peer.ask(&question, Payload::empty()), comes_back);
            assert!(clock.now().since(Time::ZERO) >= NODE_SILENCE_MAX, "it waited");
            assert_eq!(asked.err().map(|error| error.kind()), Some(ErrorKind::Unreachable));
            assert_eq!(peer.is_reachable(), returns, "it reported meanwhile: {returns}");
            // What was asked it may have missed.
            assert_eq!(peers.returns(), 1);
            reports();
            assert!(peer.is_reachable());
            assert_eq!(peers.returns(), 2, "it reported meanwhile: {returns}");
            reports();
            assert_eq!(peers.returns(), 2);
        }
    }

    /// How far a drain has come is shown until the device is gone; that its node, which does nothing by itself, knows of nothing moved never is.
    #[tokio::test(start_paused = true)]
    async fn how_far_a_drain_came() {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_now());
        let peers = peers(SimNet::new(1, clock.clone(), "here"), clock);
        let device = file::Device { device: 9.into(), ..Default::default() };
        let node = cluster::Node { node: NODE.0.into(), address: "there:1".to_string(), ..Default::default() };
        peers.heard(node, vec![device], String::new());
        let far = peers.device(DeviceId(9)).expect("it reported it");
        let nothing = || Some(wire::DrainState { began_ms: 1, ..Default::default() });
        let bytes = |peers: &Peers| peers.drain_of(&far, nothing()).map(|state| state.bytes);
        assert_eq!(bytes(&peers), Some(0));
        peers.drained(DeviceId(9), WallTime(1), |draining| draining.bytes = 7);
        assert_eq!(bytes(&peers), Some(7));
        peers.removed(&far);
        assert_eq!(bytes(&peers), Some(7));
        peers.stays(DeviceId(9));
        peers.removed(&far);
        peers.gone(&far);
        assert_eq!(bytes(&peers), None);
    }

    /// Closed, they ask nobody any more, also not one that reports after that; and whoever waits for an answer hears that the leadership is over,
    /// not that a node was silent.
    #[tokio::test(start_paused = true)]
    async fn closed_for_good() {
        let clock: Arc<dyn Clock> = Arc::new(RuntimeClock::starting_now());
        let network = SimNet::new(1, clock.clone(), "here");
        let _silent = network.host("there").listen("there:1").await.expect("free");
        let peers = peers(network, clock.clone());
        let reports = |id: NodeId| {
            let node = cluster::Node { node: id.0.into(), address: "there:1".to_string(), ..Default::default() };
            peers.heard(node, Vec::new(), String::new());
            peers.find(id).expect("it reported")
        };
        let (peer, question) = (reports(NODE), order::Kept::default());
        let closes = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            peers.close(5);
        };
        let (asked, ()) = tokio::join!(peer.ask(&question, Payload::empty()), closes);
        let after = reports(NodeId(8)).ask(&question, Payload::empty()).await;
        for answer in [asked, peer.ask(&question, Payload::empty()).await, after] {
            let moved = answer.err().and_then(|error| Moved::read(&error));
            assert_eq!(moved, Some(Moved { leader: None, term: 5 }));
        }
        reports(NODE);
        assert_eq!(peers.returns(), 2, "both came, and neither came back");
    }
}
