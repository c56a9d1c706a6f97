//! A store to measure and its clients, all in this process, over loopback.

use super::kept::Pattern;
use super::limiter::Speed;
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
}

/// A store that serves: a cluster of nodes with one device each, of which the first keeps the metadata.
pub struct Store {
    tools: Tools,
    nodes: Vec<Running>,
}

/// Between two looks at whether all nodes have joined.
const LOOK: Duration = Duration::from_millis(20);

/// Nodes that have not joined after so long never will.
const JOIN_MAX: Duration = Duration::from_secs(30);

impl Store {
    /// Starts a store of this shape.
    pub async fn start(tools: &Tools, shape: Shape) -> Result<Store> {
        let cluster = Cluster::new(ClusterId(tools.random.wide()));
        let mut store = Store { tools: tools.clone(), nodes: Vec::with_capacity(shape.devices) };
        for number in 0..shape.devices {
            let meta = match store.nodes.first() {
                None => MetaPlace::Local,
                Some(keeper) => MetaPlace::Node(keeper.address.clone()),
            };
            let cluster = Cluster { name: format!("node-{number}"), meta, ..cluster.clone() };
            store.add(shape, cluster).await?;
        }
        let client = store.client().await?;
        let began = tools.clock.now();
        while client.devices().await?.devices.len() < shape.devices {
            if tools.clock.now().since(began) > JOIN_MAX {
                return Err(Error::new(ErrorKind::Unreachable, "not all nodes have joined"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(store)
    }

    async fn add(&mut self, shape: Shape, cluster: Cluster) -> Result<()> {
        let Tools { clock, random, net, pattern } = self.tools.clone();
        let world = Arc::new(LimitedWorld::new(shape.speed, pattern, clock.clone()));
        let device = DeviceSetting {
            directory: PathBuf::from(format!("/{}", cluster.name)),
            class: if shape.speed.seeks { Class::Hdd } else { Class::Ssd },
            capacity: Some(shape.capacity),
        };
        let settings = node::Settings { cluster: Some(cluster), ..node::Settings::new("127.0.0.1:0", vec![device]) };
        self.nodes.push(node::start(settings, world, net, clock, random).await?);
        Ok(())
    }

    /// Another client, with a session and connections of its own.
    pub async fn client(&self) -> Result<Client> {
        let Tools { clock, random, net, .. } = self.tools.clone();
        let settings = client::Settings {
            net,
            address: self.nodes[0].address.clone(),
            program: "lab scale".to_string(),
            credentials: net::Credentials::default(),
            user: (String::new(), String::new()),
            clock,
            random,
            pool: Pool::new(16 << 20),
            // Many clients of many nodes keep a card busy with one each.
            connections: if self.nodes.len() < 16 { 2 } else { 1 },
            silence_max: CALL_SILENCE_MAX,
        };
        Client::connect(settings).await
    }

    /// So many of them.
    pub async fn clients(&self, count: usize) -> Result<Vec<Client>> {
        let mut clients = Vec::with_capacity(count);
        for _ in 0..count {
            clients.push(self.client().await?);
        }
        Ok(clients)
    }

    /// Ends it and gives its memory back.
    pub async fn stop(self) {
        for node in self.nodes.into_iter().rev() {
            node.stop().await;
        }
    }
}
