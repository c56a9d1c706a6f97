//! What every command is handed: global options, time, chance, memory, and the way to the store.

use crate::command::Global;
use crate::settings::{self, ADDRESS_UNSAID, ADDRESS_VARIABLE, Origin, Said};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::limit::CALL_SILENCE_MAX;
use base::net::Net;
use client::{Client, Settings};
use net::{Credentials, Tls};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of aligned memory kept for later: two windows of a file writer or reader.
const POOL_IDLE_MAX: usize = 32 << 20;

/// Connections to the node: two keep the wire busy while one of them waits for its turn; more cost more than they bring.
const CONNECTIONS: usize = 2;

/// The surroundings of one run of one command.
pub struct Context {
    /// Where the store is, `host:port`.
    pub at: String,
    /// The same, if an option said it.
    pub at_option: Option<String>,
    /// The configuration file that was said.
    pub config: Option<PathBuf>,
    /// The file with the secret, if an option said it.
    pub secret_file: Option<PathBuf>,
    /// Whether this command is for a server of our own, which knows no cluster.
    pub own_server: bool,
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
        let config = settings::file(global.config.as_deref());
        let at = global.at.clone().or_else(|| settings::variable(ADDRESS_VARIABLE));
        let at = at.or_else(|| config.as_deref().and_then(settings::address_in));
        Context {
            at: at.unwrap_or_else(|| ADDRESS_UNSAID.to_string()),
            at_option: global.at,
            config,
            secret_file: global.secret_file,
            own_server: false,
            json: global.json,
            quiet: global.quiet,
            clock: Arc::new(os::clock::SystemClock::new()),
            random: Arc::new(os::random::SystemRandom),
            pool: Pool::new(POOL_IDLE_MAX),
        }
    }

    /// A session with the store, under the name of the command that wants it.
    pub async fn connect(&self, command: &str) -> Result<Client> {
        Client::connect(self.settings(command)?).await
    }

    /// Says what an option says of the secret.
    pub fn say_secret(&self, said: &mut Said) {
        let file = self.secret_file.as_ref().map(|file| file.display().to_string());
        said.say_text("secret_file", file, Origin::Option("secret-file"));
    }

    /// What is known of the store's cluster: by options, environment and the configuration, in this order.
    fn known(&self) -> Result<(Credentials, Option<Tls>)> {
        if self.own_server {
            return Ok((Credentials::default(), None));
        }
        let mut options = Said::default();
        self.say_secret(&mut options);
        let (said, mut faults) = settings::gather(options, self.config.as_deref())?;
        match settings::credentials(&said) {
            Ok(known) if faults.is_empty() => return Ok(known),
            Ok(_) => {}
            Err(more) => faults.extend(more),
        }
        let text: Vec<String> = faults.iter().map(ToString::to_string).collect();
        Err(Error::new(ErrorKind::Invalid, text.join("\n  ")))
    }

    /// How the store is reached, under the name of the command that wants it.
    pub fn settings(&self, command: &str) -> Result<Settings> {
        let (credentials, tls) = self.known()?;
        let sockets: Arc<dyn Net> = Arc::new(os::net::TcpNet);
        Ok(Settings {
            net: tls.map_or(sockets.clone(), |tls| tls.over(sockets)),
            address: self.at.clone(),
            program: format!("stormwell {command}"),
            credentials,
            user: os::user::current(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            connections: CONNECTIONS,
            silence_max: CALL_SILENCE_MAX,
        })
    }
}
