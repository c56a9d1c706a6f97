//! Which node has which device, and the links to the nodes: made when they are first used, and kept.
//!
//! Names, sessions and bags as wholes are asked at the node that keeps the metadata; what is on a device, at the node that has it.

use crate::hosts::Host;
use crate::locality::Side;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::limit::NODES_MAX;
use base::net::{Boxed, Net};
use base::unit::Time;
use net::message::Id;
use net::message::cluster::{Member, View, ViewAnswer};
use net::{Link, LinkSettings, Payload};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::Mutex;

/// The view is not asked for more often than this, whatever many calls find out at once. Short: whoever is told of a device that
/// has just come waits so long.
const PAUSE: Duration = Duration::from_millis(200);

/// How long the one that leads the keepers has to say who is there, before another node is asked what it was told: longer than an election takes.
const LED_WAIT: Duration = Duration::from_secs(3);

/// What is needed to connect to a node.
pub(crate) struct Connector {
    pub(crate) net: Arc<dyn Net>,
    pub(crate) settings: LinkSettings,
}

impl Connector {
    /// A link to whichever of the nodes there leads the metadata's keepers.
    pub(crate) fn to_leader(&self, addresses: Vec<String>) -> Link {
        Link::to_leader(self.net.clone(), addresses, self.settings.clone())
    }
}

/// The ways from this client to every device.
pub(crate) struct Routes {
    connector: Connector,
    /// The link to the node that keeps the metadata, or to whichever leads those that do.
    keeper: Link,
    /// The node that the client stands on.
    here: Option<NodeId>,
    /// Nodes that are reached over links that were there before: that one, and the one that was named.
    given: Vec<(NodeId, Arc<Links>)>,
    table: RwLock<Arc<Table>>,
    asking: Mutex<Asked>,
    clock: Arc<dyn Clock>,
}

/// When the view was last asked for, and why that failed.
#[derive(Default)]
struct Asked {
    at: Option<Time>,
    failed: Option<Error>,
}

/// Who is there, as it was last told.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) view: ViewAnswer,
    nodes: BTreeMap<NodeId, Arc<Peer>>,
    devices: BTreeMap<u128, Arc<Peer>>,
    pub(crate) hosts: BTreeMap<NodeId, Host>,
    /// Whoever leads told it, and no other node what it was told before.
    led: bool,
}

impl Table {
    /// Whether this node alone keeps the metadata: without it nothing goes on.
    fn keeps_alone(&self, node: NodeId) -> bool {
        self.view.keepers.is_empty() && node == NodeId(self.view.keeper.value())
    }

    /// How often the node that has a device has been started, and whether it is silent.
    pub(crate) fn condition_of(&self, device: Id) -> Option<(u64, bool)> {
        let host = self.hosts.get(&self.devices.get(&device.value())?.node)?;
        Some((host.incarnation, host.silent))
    }

    /// The node that has a device.
    pub(crate) fn node_of(&self, device: DeviceId) -> Option<NodeId> {
        self.devices.get(&device.0).map(|peer| peer.node)
    }
}

/// A node and the links to it.
pub(crate) struct Peer {
    pub(crate) node: NodeId,
    name: String,
    side: Side,
    links: Arc<Links>,
}

/// The links to one node.
pub(crate) struct Links {
    address: String,
    /// For whatever needs no order.
    main: OnceLock<Link>,
    /// Of one connection each. On one connection large payloads arrive in their order; on several they overtake each other,
    /// which a chunk that is being written refuses. None: the main link keeps the order by itself.
    ordered: Vec<OnceLock<Link>>,
}

impl Links {
    /// A link that is there: one's own node's.
    pub(crate) fn near(link: Link) -> Links {
        Links { address: String::new(), main: OnceLock::from(link), ordered: Vec::new() }
    }

    /// A link that was made to `address`, and others of its kind when they are needed.
    pub(crate) fn made(link: Link, address: &str, connections: usize) -> Links {
        Links { main: OnceLock::from(link), ..Links::later(address, connections) }
    }

    fn later(address: &str, connections: usize) -> Links {
        let ordered = if connections > 1 { connections } else { 0 };
        let ordered = (0..ordered).map(|_| OnceLock::new()).collect();
        Links { address: address.to_string(), main: OnceLock::new(), ordered }
    }

    fn main(&self, connector: &Connector) -> Link {
        let connect = || Link::when_used(connector.net.clone(), &self.address, connector.settings.clone());
        self.main.get_or_init(connect).clone()
    }

    /// `lane` spreads writers over the links.
    fn ordered(&self, connector: &Connector, lane: usize) -> Link {
        if self.ordered.is_empty() {
            return self.main(connector);
        }
        let connect = || {
            let settings = LinkSettings { connections: 1, ..connector.settings.clone() };
            Link::when_used(connector.net.clone(), &self.address, settings)
        };
        self.ordered[lane % self.ordered.len()].get_or_init(connect).clone()
    }
}

/// The way to one device, for one call that may be asked again.
pub(crate) struct Route<'a> {
    routes: &'a Routes,
    device: Id,
    table: Arc<Table>,
    peer: Arc<Peer>,
    again: bool,
}

impl Routes {
    /// Changes begun from the oldest unanswered one on, at the most.
    pub(crate) fn set_changes_under_way(&self, most: usize) {
        self.connector.settings.numbers.set_room(most);
    }

    /// Ways that start at these links, of a client on the node `here`; who else is there is asked when it is first needed.
    pub(crate) fn new(
        connector: Connector,
        keeper: Link,
        given: Vec<(NodeId, Arc<Links>)>,
        here: Option<NodeId>,
        clock: Arc<dyn Clock>,
    ) -> Routes {
        let (table, asking) = (RwLock::default(), Mutex::default());
        Routes { connector, keeper, here, given, table, asking, clock }
    }

    /// The node that the client stands on.
    pub(crate) fn here(&self) -> Option<NodeId> {
        self.here
    }

    /// The link to the node that keeps the metadata.
    pub(crate) fn keeper(&self) -> &Link {
        &self.keeper
    }

    /// Who is there, as it was last told.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The way to a device. `NotFound` if no node has it.
    pub(crate) async fn to(&self, device: Id) -> Result<Route<'_>> {
        let mut table = self.table();
        if !table.devices.contains_key(&device.value()) {
            table = self.refresh(&table).await?;
        }
        let Some(peer) = table.devices.get(&device.value()).cloned() else { return Err(nowhere(device)) };
        Ok(Route { routes: self, device, table, peer, again: false })
    }

    /// Whether a device is one of the cluster's, as it was last told.
    pub(crate) fn has(&self, device: Id) -> bool {
        self.table().devices.contains_key(&device.value())
    }

    /// Which node has a device, and on which side that is, as it was last told.
    pub(crate) fn place_of(&self, device: Id) -> Option<(NodeId, Side)> {
        self.table().devices.get(&device.value()).map(|peer| (peer.node, peer.side))
    }

    /// Whether a device can hardly be asked, as it was last told: no node has it, or that is silent.
    pub(crate) fn is_away(&self, device: Id) -> bool {
        let table = self.table();
        match table.devices.get(&device.value()) {
            Some(peer) => table.hosts.get(&peer.node).is_some_and(|host| host.silent),
            // Nobody was told of yet.
            None => !table.view.members.is_empty(),
        }
    }

    /// When the node that has a device was last heard on any link; none if it was never asked, or is this process.
    pub(crate) fn heard(&self, device: Id) -> Option<Time> {
        let peer = self.table().devices.get(&device.value()).cloned()?;
        let links = [&peer.links.main].into_iter().chain(&peer.links.ordered);
        links.filter_map(|link| link.get()?.heard()).max()
    }

    /// Whether one node is all there is: if it does not answer there is nobody to ask.
    pub(crate) fn is_one_node(&self) -> bool {
        self.table().view.members.len() <= 1
    }

    /// The other devices of the node that has this one, as it was last told.
    pub(crate) fn beside(&self, device: Id) -> Vec<Id> {
        let table = self.table();
        let has = |member: &&Member| member.devices.contains(&device);
        let of_node = table.view.members.iter().find(has).map(|member| member.devices.clone()).unwrap_or_default();
        of_node.into_iter().filter(|beside| *beside != device).collect()
    }

    /// Whether this error says that a device cannot be reached now, while other nodes go on: not if it is on the node that alone keeps
    /// the metadata, without which nothing does.
    pub(crate) fn may_come_back(&self, device: Id, error: &Error) -> bool {
        let table = self.table();
        match table.devices.get(&device.value()) {
            Some(peer) => error.kind() == ErrorKind::Unreachable && !table.keeps_alone(peer.node),
            None => error.kind() == ErrorKind::NotFound,
        }
    }

    /// Whether this error of an append says that its device takes no more while others may: its disk failed, or it cannot be reached.
    pub(crate) fn is_gone(&self, device: Id, error: &Error) -> bool {
        error.kind() == ErrorKind::Io || self.may_come_back(device, error)
    }

    /// Who is there, as whoever leads told it no longer ago than this. None: nobody who leads does.
    pub(crate) async fn told_within(&self, most: Duration) -> Option<Arc<Table>> {
        let seen = self.table();
        let is_recent = {
            let asked = self.asking.lock().await;
            asked.failed.is_none() && asked.at.is_some_and(|at| self.clock.now().since(at) < most)
        };
        let table = if is_recent { self.table() } else { self.refresh(&seen).await.ok()? };
        table.led.then_some(table)
    }

    /// Asks who is there, unless that was told since `seen`.
    pub(crate) fn refresh<'a>(&'a self, seen: &'a Arc<Table>) -> Boxed<'a, Result<Arc<Table>>> {
        Box::pin(self.refreshed(seen))
    }

    async fn refreshed(&self, seen: &Arc<Table>) -> Result<Arc<Table>> {
        let began = self.clock.now();
        let mut asked = self.asking.lock().await;
        let present = self.table();
        if !Arc::ptr_eq(&present, seen) {
            return Ok(present);
        }
        if let Some(at) = asked.at {
            match &asked.failed {
                // Others waited in this queue while it failed: it need not fail for each of them.
                Some(error) if at >= began => return Err(error.clone()),
                _ => tokio::time::sleep(PAUSE.saturating_sub(self.clock.now().since(at))).await,
            }
        }
        let told = self.view(&present.view).await.and_then(|(view, led)| self.learn(view, led));
        *asked = Asked { at: Some(self.clock.now()), failed: told.as_ref().err().cloned() };
        told
    }

    /// Who is there, as whoever leads has it. If nobody leads for a while, as another node was told last: calls to devices need none who leads. None
    /// older than what is known already. With it, whether whoever leads said so.
    async fn view(&self, known: &ViewAnswer) -> Result<(ViewAnswer, bool)> {
        let ask = View { led: true };
        let led = self.keeper.call(&ask, Payload::empty());
        if known.keepers.is_empty() {
            return led.await.map(|(view, _)| (view, true));
        }
        match tokio::time::timeout(LED_WAIT, led).await {
            Ok(Err(error)) if error.kind() != ErrorKind::Unreachable => return Err(error),
            Ok(Ok((view, _))) => return Ok((view, true)),
            Ok(Err(_)) | Err(_) => {}
        }
        let (view, _) = self.keeper.call(&View::default(), Payload::empty()).await?;
        if view.epoch < known.epoch {
            let text = "nobody leads the metadata's keepers now, and what another node knows of the cluster is older; ask again";
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        Ok((view, false))
    }

    /// Goes by this view from now on. `led`: whoever leads told it.
    pub(crate) fn learn(&self, view: ViewAnswer, led: bool) -> Result<Arc<Table>> {
        let table = Arc::new(Table { led, ..self.table_of(view, &self.table())? });
        let keepers = table.view.members.iter().filter(|member| table.view.keepers.contains(&member.node.node));
        self.keeper.learn(keepers.map(|member| member.node.address.clone()).collect());
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = table.clone();
        Ok(table)
    }

    /// Links to nodes that are where they were stay.
    fn table_of(&self, view: ViewAnswer, before: &Table) -> Result<Table> {
        if view.members.len() > NODES_MAX {
            let text = format!(
                "the node says that the cluster has {} nodes, and {NODES_MAX} are the most; use one version of client and node",
                view.members.len()
            );
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        let (mut nodes, mut devices, mut hosts) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for member in &view.members {
            let Member { node, devices: has, .. } = member;
            let id = NodeId(node.node.value());
            hosts.insert(id, Host::of(member));
            let given = self.given.iter().find(|(given, _)| *given == id).map(|(_, links)| links.clone());
            let known = || before.nodes.get(&id).map(|peer| &peer.links).filter(|links| links.address == node.address);
            let links = given
                .or_else(|| known().cloned())
                .unwrap_or_else(|| Arc::new(Links::later(&node.address, self.connector.settings.connections)));
            let near = self.here == Some(id) || self.connector.net.is_here(&node.address);
            let side = if near { Side::Near } else { Side::Far };
            let peer = Arc::new(Peer { node: id, name: node.name.clone(), side, links });
            devices.extend(has.iter().map(|device| (device.value(), peer.clone())));
            nodes.insert(id, peer);
        }
        Ok(Table { view, nodes, devices, hosts, led: false })
    }
}

impl Route<'_> {
    /// The link for whatever needs no order.
    pub(crate) fn link(&self) -> Link {
        self.peer.links.main(&self.routes.connector)
    }

    /// A link on which calls with large payloads arrive in the order in which they were made. Writers of different `lane`s need
    /// not wait for each other.
    pub(crate) fn ordered(&self, lane: usize) -> Link {
        self.peer.links.ordered(&self.routes.connector, lane)
    }

    /// Another way to the device after this one led to nobody: its node may have come back elsewhere. Else the error.
    pub(crate) async fn after(self, error: Error) -> Result<Self> {
        if error.kind() != ErrorKind::Unreachable {
            return Err(error);
        }
        let Route { routes, device, table, peer, again } = self;
        // Where that one is, a client is told once.
        let keeps = table.keeps_alone(peer.node);
        if !again
            && !keeps
            && let Ok(table) = routes.refresh(&table).await
        {
            let Some(other) = table.devices.get(&device.value()).cloned() else { return Err(nowhere(device)) };
            if !Arc::ptr_eq(&other.links, &peer.links) {
                return Ok(Route { routes, device, table, peer: other, again: true });
            }
        }
        // In a store of one node the error need not name the node.
        if table.view.members.len() <= 1 { Err(error) } else { Err(error.during(format!("node {}", peer.name))) }
    }
}

fn nowhere(device: Id) -> Error {
    let text = format!(
        "no node of the cluster has device {}; what is on it cannot be reached; `stormwell device ls` lists those that are there; \
         start a node with its directory",
        DeviceId(device.value())
    );
    Error::new(ErrorKind::NotFound, text)
}
