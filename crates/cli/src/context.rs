//! What every command is handed: global options, time, chance, memory, and the way to the store.

use crate::command::Global;
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::Result;
use base::limit::CALL_SILENCE_MAX;
use client::{Client, Settings};
use std::sync::Arc;

/// Bytes of aligned memory kept for later: two windows of a file writer or reader.
const POOL_IDLE_MAX: usize = 32 << 20;

/// Connections to the node: two keep the wire busy while one of them waits for its turn; more cost more than they bring.
const CONNECTIONS: usize = 2;

/// The surroundings of one run of one command.
pub struct Context {
    /// Where the store is, `host:port`.
    pub at: String,
    /// Whether stdout carries JSON.
    pub json: bool,
    /// Whether stderr carries errors only.
    pub quiet: bool,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Aligned memory.
    pub pool: Pool,
}

impl Context {
    /// The real world, and these options.
    pub fn new(global: Global) -> Context {
        Context {
            at: global.at,
            json: global.json,
            quiet: global.quiet,
            clock: Arc::new(os::clock::SystemClock::new()),
            random: Arc::new(os::random::SystemRandom),
            pool: Pool::new(POOL_IDLE_MAX),
        }
    }

    /// A session with the store, under the name of the command that wants it.
    pub async fn connect(&self, command: &str) -> Result<Client> {
        Client::connect(self.settings(command)).await
    }

    /// How the store is reached, under the name of the command that wants it.
    pub fn settings(&self, command: &str) -> Settings {
        Settings {
            net: Arc::new(os::net::TcpNet),
            address: self.at.clone(),
            program: format!("stormwell {command}"),
            credentials: net::Credentials::default(),
            user: os::user::current(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            connections: CONNECTIONS,
            silence_max: CALL_SILENCE_MAX,
        }
    }
}
