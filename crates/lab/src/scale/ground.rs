//! A store to measure and its clients, all in this process, over loopback.

use super::limiter::{Busy, Speed};
use super::nic::Nics;
use super::pattern_disk::Pattern;
use super::world::LimitedWorld;
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::limit::CALL_SILENCE_MAX;
use base::net::Net;
use base::policy::Class;
use client::Client;
use node::{Cluster, DeviceSetting, MetaPlace, Running};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What everything of the experiments is made with.
#[derive(Clone)]
pub struct Tools {
    /// The real time.
    pub clock: Arc<dyn Clock>,
    /// The real chance.
    pub random: Arc<dyn Random>,
    /// Loopback.
    pub net: Arc<dyn Net>,
    /// What all chunks hold.
    pub pattern: Arc<Pattern>,
}

impl Tools {
    /// The real world.
    pub fn new() -> Tools {
        let random = Arc::new(os::random::SystemRandom);
        let pattern = Arc::new(Pattern::new(random.as_ref()));
        Tools { clock: Arc::new(os::clock::SystemClock::new()), random, net: Arc::new(os::net::TcpNet), pattern }
    }
}

/// How large a store is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Devices, each on a node of its own.
    pub devices: usize,
    /// What each can do.
    pub speed: Speed,
    /// Bytes that each holds.
    pub capacity: u64,
    /// Bytes a second, in each direction, of the network card that each node shares with the clients of its machine; none: as fast
    /// as loopback, and all on one machine.
    pub card: Option<u64>,
}

impl Shape {
    /// A store whose network is no bound.
    pub fn new(devices: usize, speed: Speed, capacity: u64) -> Shape {
        Shape { devices, speed, capacity, card: None }
    }
}

/// A store that serves: a cluster of nodes with one device each, of which the first keeps the metadata.
pub struct Store {
    tools: Tools,
    shape: Shape,
    cluster: Cluster,
    cards: Option<Arc<Nics>>,
    /// Where the node that keeps the metadata is, if it is in a process of its own.
    outside: Option<String>,
    nodes: Vec<Running>,
    /// What their devices do.
    busy: Vec<Arc<Busy>>,
}

/// Between two looks at whether all nodes have joined.
const LOOK: Duration = Duration::from_millis(20);

/// Nodes that have not joined after so long never will.
const JOIN_MAX: Duration = Duration::from_secs(30);

impl Store {
    /// Starts a store of this shape.
    pub async fn start(tools: &Tools, shape: Shape) -> Result<Store> {
        Store::of(tools, shape, ClusterId(tools.random.wide()), None).await
    }

    /// Starts the nodes of this shape as nodes of that cluster, whose metadata may be kept by a node `outside` of this process.
    pub async fn of(tools: &Tools, shape: Shape, cluster: ClusterId, outside: Option<String>) -> Result<Store> {
        let cluster = Cluster::new(cluster);
        let cards = shape.card.map(|rate| Arc::new(Nics::new(tools.net.clone(), tools.clock.clone(), rate)));
        let (nodes, busy) = (Vec::with_capacity(shape.devices), Vec::with_capacity(shape.devices));
        let mut store = Store { tools: tools.clone(), shape, cluster, cards, outside, nodes, busy };
        for _ in 0..shape.devices {
            store.start_node().await?;
        }
        store.all_there().await?;
        Ok(store)
    }

    /// Another node joins.
    pub async fn join(&mut self) -> Result<()> {
        self.start_node().await?;
        self.all_there().await
    }

    /// Waits until all nodes that were started have their devices in the store, and know it.
    async fn all_there(&self) -> Result<()> {
        let began = self.tools.clock.now();
        let late = |error: Error| match self.tools.clock.now().since(began) > JOIN_MAX {
            true => Err(error.during("not all nodes have joined")),
            false => Ok(()),
        };
        let client = self.client(0).await?;
        while client.devices().await?.devices.len() < self.nodes.len() + usize::from(self.outside.is_some()) {
            late(Error::new(ErrorKind::Unreachable, "devices are missing"))?;
            tokio::time::sleep(LOOK).await;
        }
        for number in 0..self.nodes.len() {
            while let Err(error) = self.client(number).await {
                late(error)?;
                tokio::time::sleep(LOOK).await;
            }
        }
        Ok(())
    }

    async fn start_node(&mut self) -> Result<()> {
        let Tools { clock, random, pattern, .. } = self.tools.clone();
        let number = self.nodes.len();
        let keeper = self.outside.as_ref().or(self.nodes.first().map(|first| &first.address));
        let meta = keeper.map_or(MetaPlace::Local, |keeper| MetaPlace::Node(keeper.clone()));
        let name = Store::name(number + usize::from(self.outside.is_some()));
        let cluster = Cluster { name, meta, ..self.cluster.clone() };
        let busy = Arc::new(Busy::default());
        self.busy.push(busy.clone());
        let world = Arc::new(LimitedWorld::new(self.shape.speed, busy, pattern, clock.clone()));
        let device = DeviceSetting {
            directory: PathBuf::from(format!("/{}", cluster.name)),
            class: if self.shape.speed.seeks { Class::Hdd } else { Class::Ssd },
            capacity: Some(self.shape.capacity),
        };
        let settings = node::Settings { cluster: Some(cluster), ..node::Settings::new("127.0.0.1:0", vec![device]) };
        self.nodes.push(node::start(settings, world, self.net(number), clock, random).await?);
        Ok(())
    }

    /// The network of the machine of this node.
    fn net(&self, number: usize) -> Arc<dyn Net> {
        self.cards.as_ref().map_or(self.tools.net.clone(), |cards| cards.host(number))
    }

    /// Another client, on the machine of this node, with a session and connections of its own.
    pub async fn client(&self, number: usize) -> Result<Client> {
        let Tools { clock, random, .. } = self.tools.clone();
        let settings = client::Settings {
            net: self.net(number),
            addresses: vec![self.nodes[number].address.clone()],
            program: "lab scale".to_string(),
            credentials: net::Credentials::default(),
            user: client::User::default(),
            clock,
            random,
            pool: Pool::new(16 << 20),
            // Many clients of many nodes keep a card busy with one each.
            connections: if self.nodes.len() < 16 { 2 } else { 1 },
            silence_max: CALL_SILENCE_MAX,
        };
        Client::connect(settings).await
    }

    /// Where a node serves.
    pub fn address(&self, number: usize) -> &str {
        &self.nodes[number].address
    }

    /// The name of a node.
    pub fn name(number: usize) -> String {
        format!("node-{number}")
    }

    /// So many clients, one after the other on each node's machine.
    pub async fn clients(&self, count: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for number in 0..count {
            clients.push(self.client(number % self.nodes.len()).await?);
        }
        Ok(clients)
    }

    /// How long all devices together were busy so far, in seconds.
    pub fn busy(&self) -> f64 {
        self.busy.iter().map(|busy| busy.time().as_secs_f64()).sum()
    }

    /// Bytes that each device has read and written so far.
    pub fn moved(&self) -> Vec<(u64, u64)> {
        self.busy.iter().map(|busy| busy.moved()).collect()
    }

    /// How long ago each device was done, on average, in seconds.
    pub fn idle(&self) -> f64 {
        let now = self.tools.clock.now();
        let idle: f64 = self.busy.iter().map(|busy| now.since(busy.free()).as_secs_f64()).sum();
        idle / self.busy.len().max(1) as f64
    }

    /// Ends it and gives its memory back.
    pub async fn stop(self) {
        for node in self.nodes.into_iter().rev() {
            node.stop().await;
        }
    }
}
