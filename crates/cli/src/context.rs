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
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes of aligned memory kept for later: two windows of a file writer or reader.
const POOL_IDLE_MAX: usize = 32 << 20;

/// Connections to the node: two keep the wire busy while one of them waits for its turn; more cost more than they bring.
const CONNECTIONS: usize = 2;

/// What a port that is no store's may say of itself, and how long it has for it.
const ANSWER_MAX: u64 = 4096;
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// The surroundings of one run of one command.
pub struct Context {
    /// Where the store is, `host:port`.
    pub at: String,
    /// Where other nodes of it are, for when nobody answers there.
    pub others: Vec<String>,
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
        let said = at.map(|at| at.split(',').map(|at| at.trim().to_string()).collect());
        let addresses = said.unwrap_or_else(|| config.as_deref().map(settings::addresses_in).unwrap_or_default());
        let mut addresses = addresses.into_iter();
        Context {
            at: addresses.next().unwrap_or_else(|| ADDRESS_UNSAID.to_string()),
            others: addresses.collect(),
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
        match Client::connect(self.settings(command)?).await {
            Err(error) if error.kind() == ErrorKind::Protocol => Err(other_port(&self.at).await.unwrap_or(error)),
            connected => connected,
        }
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
        let (name, groups) = os::user::with_groups();
        Ok(Settings {
            net: tls.map_or(sockets.clone(), |tls| tls.over(sockets)),
            addresses: std::iter::once(&self.at).chain(&self.others).cloned().collect(),
            program: format!("stormwell {command}"),
            credentials,
            user: client::User { name, groups },
            clock: self.clock.clone(),
            random: self.random.clone(),
            pool: self.pool.clone(),
            connections: CONNECTIONS,
            silence_max: CALL_SILENCE_MAX,
        })
    }
}

/// Whether what is at this address, and is no store, is another port of one of ours, both of which answer browsers: the error that
/// says so.
async fn other_port(at: &str) -> Option<Error> {
    let question = async {
        let mut stream = os::net::TcpNet.connect(at).await.ok()?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: stormwell\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut answer = Vec::new();
        stream.take(ANSWER_MAX).read_to_end(&mut answer).await.ok()?;
        Some(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = tokio::time::timeout(ANSWER_WAIT, question).await.ok()??;
    let port = match answer.split_once("\r\n\r\n")?.1 {
        words if words.starts_with("stormwell\n") => "the console of a node",
        words if words.contains("HDFS port of Stormwell") => "the HDFS gateway of a node",
        _ if answer.starts_with("HTTP/") => "a web server",
        _ => return None,
    };
    let text = format!(
        "{at} is the port of {port}, not of a store; nothing was done; name the address that `stormwell serve` says it serves on, with the port 7400 if nothing else was said"
    );
    Some(Error::new(ErrorKind::Invalid, text))
}
