//! A store to measure and its clients, all in this process, over loopback.

use super::kept::Pattern;
use super::limiter::Speed;
use super::world::LimitedWorld;
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::Result;
use base::limit::CALL_SILENCE_MAX;
use base::net::Net;
use base::policy::Class;
use client::Client;
use node::{DeviceSetting, Running};
use std::path::PathBuf;
use std::sync::Arc;

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
    /// Devices.
    pub devices: usize,
    /// What each can do.
    pub speed: Speed,
    /// Bytes that each holds.
    pub capacity: u64,
}

/// A store that serves.
pub struct Store {
    tools: Tools,
    node: Running,
}

impl Store {
    /// Starts a store of this shape.
    pub async fn start(tools: &Tools, shape: Shape) -> Result<Store> {
        let world = Arc::new(LimitedWorld::new(shape.speed, tools.pattern.clone(), tools.clock.clone()));
        let device = |number: usize| DeviceSetting {
            directory: PathBuf::from(format!("/{number}")),
            class: if shape.speed.seeks { Class::Hdd } else { Class::Ssd },
            capacity: Some(shape.capacity),
        };
        let settings = node::Settings::new("127.0.0.1:0", (0..shape.devices).map(device).collect());
        // As many nodes of one device would have.
        let devices = shape.devices as u64;
        let settings = node::Settings {
            incoming_bytes: settings.incoming_bytes * devices,
            outgoing_bytes: settings.outgoing_bytes * devices,
            ..settings
        };
        let Tools { clock, random, net, .. } = tools.clone();
        let node = node::start(settings, world, net, clock, random).await?;
        Ok(Store { tools: tools.clone(), node })
    }

    /// Another client, with a session and connections of its own.
    pub async fn client(&self) -> Result<Client> {
        let Tools { clock, random, net, .. } = self.tools.clone();
        let settings = client::Settings {
            net,
            address: self.node.address.clone(),
            program: "lab scale".to_string(),
            credentials: net::Credentials::default(),
            user: (String::new(), String::new()),
            clock,
            random,
            pool: Pool::new(16 << 20),
            connections: 2,
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
        self.node.stop().await;
    }
}
