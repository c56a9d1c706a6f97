//! `cargo x lab turns`: three processes keep the metadata together, and whoever leads goes away again and again, while a client makes
//! directories one after the other. For how long none is acknowledged, and whether all that were are there.

use super::cluster;
use super::server::{program, scratch};
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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// What to measure.
#[derive(clap::Args)]
pub struct Args {
    /// How often whoever leads goes away
    #[arg(long, default_value_t = 20)]
    turns: usize,
    /// How it goes
    #[arg(long, value_enum, default_value_t = How::Killed)]
    how: How,
}

/// How a keeper goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// `kill -9`; it is started again
    Killed,
    /// It stands still for five seconds, and goes on
    Paused,
    /// It is told to stop, as systemd does; it is started again
    Stopped,
}

/// A keeper that does not serve after so long never will.
const READY_WAIT: Duration = Duration::from_secs(60);

/// How long one that is paused stands still: longer than any lease.
const PAUSED: Duration = Duration::from_secs(5);

/// Between two directories.
const PAUSE: Duration = Duration::from_millis(10);

/// So long directories are made before whoever leads goes, and after that.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(4);

const KEEPERS: usize = 3;

/// Three keepers and their directory.
struct Keepers {
    directory: PathBuf,
    addresses: Vec<String>,
    nodes: Vec<Option<Server>>,
}

impl Keepers {
    /// They run. What their clients have to show.
    fn start(directory: &Path) -> Result<(Keepers, net::Credentials)> {
        let addresses = sim::ports::free(KEEPERS);
        let mut keepers = Keepers { directory: directory.to_path_buf(), addresses, nodes: Vec::new() };
        let credentials = cluster::init(&program()?, directory, &keepers.addresses)?;
        for number in 0..KEEPERS {
            let server = keepers.serve(number)?;
            keepers.nodes.push(Some(server));
        }
        Ok((keepers, credentials))
    }

    fn serve(&self, number: usize) -> Result<Server> {
        let (name, data) = (format!("n{number}"), format!("n{number}:ssd:1G"));
        let mut command = Command::new(program()?);
        command.current_dir(&self.directory);
        command.args(["--quiet", "--config", "stormwell.toml", "serve", "--console", "off", "--hdfs", "off"]);
        command.args(["--name", &name, "--data", &data, "--listen", &self.addresses[number]]);
        Server::start(command, READY_WAIT)
    }

    fn node(&mut self, number: usize) -> Result<&mut Server> {
        self.nodes[number].as_mut().ok_or_else(|| Error::new(ErrorKind::Io, "a keeper does not run"))
    }

    /// Which one leads, when all are there.
    async fn leader(&self, client: &Client) -> Result<usize> {
        let clock = SystemClock::new();
        let began = clock.now();
        while clock.now().since(began) < READY_WAIT {
            if let Ok(view) = client.view().await
                && view.members.len() == KEEPERS
                && view.members.iter().all(|member| !member.silent)
                && let Some(leads) = view.members.iter().find(|member| member.node.node == view.keeper)
                && let Some(number) = self.addresses.iter().position(|at| *at == leads.node.address)
            {
                return Ok(number);
            }
            sleep(PAUSE).await;
        }
        Err(Error::new(ErrorKind::Unreachable, "not all keepers are there again"))
    }
}

/// What a maker did.
struct Made {
    clock: SystemClock,
    /// When each directory was acknowledged.
    at: Mutex<Vec<Time>>,
    ends: AtomicBool,
}

impl Made {
    /// Makes directories below one until it ends, and says when each was acknowledged.
    async fn run(self: Arc<Made>, client: Client, below: String) -> Result<()> {
        client.make_directory(&below, false).await?;
        for number in 0.. {
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            client.make_directory(&format!("{below}/{number}"), false).await?;
            self.at.lock().unwrap_or_else(PoisonError::into_inner).push(self.clock.now());
            sleep(PAUSE).await;
        }
        Ok(())
    }

    /// The longest time without one after this moment, and how many there were.
    fn gap(&self, after: Time) -> (Duration, usize) {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = at.windows(2).filter(|pair| pair[1] >= after).map(|pair| pair[1].since(pair[0]));
        (gaps.max().unwrap_or(AFTER), at.len())
    }
}

/// Measures. False: something that was acknowledged is not there.
pub fn run(args: &Args) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<bool> {
    let scratch = scratch("turns")?;
    let (mut keepers, credentials) = Keepers::start(scratch.path())?;
    let caller = Caller { net: Arc::new(os::net::TcpNet), credentials, pool: Pool::new(16 << 20) };
    // They have to begin the store first.
    let began = SystemClock::new();
    let client = loop {
        match caller.connect(&keepers.addresses[0], CALL_SILENCE_MAX).await {
            Err(error) if error.kind() == ErrorKind::Busy && began.now().since(Time::ZERO) < READY_WAIT => {
                sleep(PAUSE).await;
            }
            connected => break connected?,
        }
    };
    let (mut gaps, mut lost) = (Vec::new(), 0);
    for turn in 0..args.turns {
        let leader = keepers.leader(&client).await?;
        let (made, below) = (
            Arc::new(Made { clock: SystemClock::new(), at: Mutex::default(), ends: AtomicBool::new(false) }),
            format!("/turn{turn}"),
        );
        let making = tokio::spawn(made.clone().run(client.clone(), below.clone()));
        sleep(BEFORE).await;
        let gone = made.clock.now();
        let child = &mut keepers.node(leader)?.child;
        match args.how {
            How::Killed => child.kill(),
            How::Stopped => child.signal(libc::SIGTERM),
            How::Paused => {
                child.signal(libc::SIGSTOP);
                sleep(PAUSED).await;
                keepers.node(leader)?.child.signal(libc::SIGCONT);
            }
        }
        sleep(AFTER).await;
        made.ends.store(true, Ordering::Relaxed);
        making.await.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))??;
        if args.how != How::Paused {
            keepers.nodes[leader] = None;
            keepers.nodes[leader] = Some(keepers.serve(leader)?);
        }
        let (gap, count) = made.gap(gone);
        let mut listing = client.list_all(&below);
        let mut there = 0;
        while listing.next().await?.is_some() {
            there += 1;
        }
        // One may have been made and its answer still be on its way when it ended; none is missing.
        lost += count.saturating_sub(there);
        println!("turn {turn}: {count} directories, none acknowledged for {:.2} s", gap.as_secs_f64());
        gaps.push(gap);
    }
    gaps.sort_unstable();
    let at = |part: usize| gaps[(gaps.len() * part / 100).min(gaps.len() - 1)].as_secs_f64();
    println!(
        "whoever leads {:?}, {} times: none acknowledged for {:.2} s in the middle, {:.2} s at the 99th of 100, {:.2} s at most; {lost} lost",
        args.how,
        gaps.len(),
        at(50),
        at(99),
        at(100)
    );
    Ok(lost == 0)
}
