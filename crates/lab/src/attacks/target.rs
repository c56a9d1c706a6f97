//! What is attacked: the doors of a server, and a count of what was done to them.

use base::buffer::Pool;
use base::error::{Error, ErrorKind, Result};
use base::net::{Net, Stream};
use client::{Client, Settings};
use harness::child::Server;
use os::clock::SystemClock;
use os::net::TcpNet;
use os::random::SystemRandom;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The doors of a server. Addresses are `host:port`.
pub struct Target {
    /// The store's own.
    pub store: String,
    /// Metrics and health.
    pub console: String,
    /// Hadoop's.
    pub hdfs: String,
    /// Connections that an attack by their number opens.
    pub connections: usize,
    pool: Pool,
    done: Mutex<BTreeMap<&'static str, u64>>,
}

impl Target {
    /// The doors that the server said it has.
    pub fn of(server: &Server, connections: usize) -> Result<Target> {
        let said = server.child.said();
        let find = |key: &str| {
            let words = said.iter().flat_map(|line| line.split_whitespace());
            let found = words.filter_map(|word| word.strip_prefix(key)).next().map(str::to_string);
            found.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("the server did not say '{key}…'")))
        };
        Ok(Target {
            store: server.address.clone(),
            console: find("console=")?,
            hdfs: find("hdfs=hdfs://")?,
            connections,
            pool: Pool::new(64 << 20),
            done: Mutex::default(),
        })
    }

    /// Counts something that was done or that happened.
    pub fn count(&self, what: &'static str) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }

    /// What was counted.
    pub fn told(&self) -> BTreeMap<&'static str, u64> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection to a door.
    pub async fn connect(&self, address: &str) -> Result<Box<dyn Stream>> {
        TcpNet.connect(address).await
    }

    /// How a client of the store begins.
    pub fn settings(&self, connections: usize, silence_max: Duration) -> Settings {
        Settings {
            net: Arc::new(TcpNet),
            addresses: vec![self.store.clone()],
            program: "lab attacks".to_string(),
            credentials: net::Credentials::default(),
            user: client::User::default(),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            pool: self.pool.clone(),
            connections,
            silence_max,
        }
    }

    /// A client of the store.
    pub async fn client(&self) -> Result<Client> {
        Client::connect(self.settings(1, Duration::from_secs(10))).await
    }
}
