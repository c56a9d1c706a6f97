//! A store of real processes on loopback whose metadata three of them keep, of which one after another goes away.

use super::cluster;
use super::server::program;
use super::store::Caller;
use base::buffer::Pool;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::limit::CALL_SILENCE_MAX;
use base::unit::Time;
use client::Client;
use harness::child::Server;
use os::clock::SystemClock;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How a node goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum How {
    /// `kill -9`; it is started again
    Killed,
    /// It stands still for five seconds, and goes on
    Paused,
    /// It is told to stop, as systemd does; it is started again
    Stopped,
}

/// A node that does not serve after so long never will.
const READY_WAIT: Duration = Duration::from_secs(60);

/// How long one that is paused stands still: longer than any lease.
const PAUSED: Duration = Duration::from_secs(5);

/// Between two calls of one who makes something, and two looks at what is waited for.
pub const PAUSE: Duration = Duration::from_millis(10);

const KEEPERS: usize = 3;

/// Three keepers, other nodes, and their directory.
pub struct Keepers {
    directory: PathBuf,
    addresses: Vec<String>,
    nodes: Vec<Option<Server>>,
    caller: Caller,
}

impl Keepers {
    /// They run, with so many other nodes.
    pub fn start(directory: &Path, others: usize) -> Result<Keepers> {
        let addresses = sim::ports::free(KEEPERS + others);
        let credentials = cluster::init(&program()?, directory, &addresses[..KEEPERS])?;
        let caller = Caller { net: Arc::new(os::net::TcpNet), credentials, pool: Pool::new(64 << 20) };
        let mut keepers = Keepers { directory: directory.to_path_buf(), addresses, nodes: Vec::new(), caller };
        for number in 0..keepers.addresses.len() {
            let server = keepers.serve(number)?;
            keepers.nodes.push(Some(server));
        }
        Ok(keepers)
    }

    fn serve(&self, number: usize) -> Result<Server> {
        let (name, data) = (format!("n{number}"), format!("n{number}:ssd:4G"));
        let mut command = Command::new(program()?);
        command.current_dir(&self.directory);
        command.args(["--quiet", "--config", "stormwell.toml", "serve", "--console", "off", "--hdfs", "off"]);
        command.args(["--name", &name, "--data", &data, "--listen", &self.addresses[number]]);
        Server::start(command, READY_WAIT)
    }

    /// A client, as soon as the store has begun.
    pub async fn client(&self) -> Result<Client> {
        let began = SystemClock::new();
        loop {
            match self.caller.connect(&self.addresses[0], CALL_SILENCE_MAX).await {
                Err(error) if error.kind() == ErrorKind::Busy && began.now().since(Time::ZERO) < READY_WAIT => {
                    sleep(PAUSE).await;
                }
                connected => return connected,
            }
        }
    }

    /// Which node leads, when all are there.
    pub async fn leader(&self, client: &Client) -> Result<usize> {
        let clock = SystemClock::new();
        let began = clock.now();
        while clock.now().since(began) < READY_WAIT {
            if let Ok(view) = client.view().await
                && view.members.len() == self.addresses.len()
                && view.members.iter().all(|member| !member.silent)
                && let Some(leads) = view.members.iter().find(|member| member.node.node == view.keeper)
                && let Some(number) = self.addresses.iter().position(|at| *at == leads.node.address)
            {
                return Ok(number);
            }
            sleep(PAUSE).await;
        }
        Err(Error::new(ErrorKind::Unreachable, "not all nodes are there again"))
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// A node goes away; one that is paused is back then.
    pub async fn goes(&mut self, number: usize, how: How) -> Result<()> {
        let server = self.nodes[number].as_mut().ok_or_else(|| Error::new(ErrorKind::Io, "a node does not run"))?;
        match how {
            How::Killed => server.child.kill(),
            How::Stopped => server.child.signal(libc::SIGTERM),
            How::Paused => {
                server.child.signal(libc::SIGSTOP);
                sleep(PAUSED).await;
                server.child.signal(libc::SIGCONT);
            }
        }
        Ok(())
    }

    /// One that went away runs again.
    pub fn start_again(&mut self, number: usize) -> Result<()> {
        self.nodes[number] = None;
        self.nodes[number] = Some(self.serve(number)?);
        Ok(())
    }
}

/// Of sorted times the one that so many of a hundred do not exceed, in seconds.
pub fn at(sorted: &[Duration], part: usize) -> f64 {
    sorted.get((sorted.len() * part / 100).min(sorted.len().saturating_sub(1))).map_or(0.0, Duration::as_secs_f64)
}
