//! Trials of a cluster: real nodes in network namespaces with addresses and slow links of their own, under load from two client
//! hosts. They are killed, stopped, cut off and filled; then everything is mended, healing is waited for, and everything is
//! compared through other nodes than it was written through.

mod network;
mod nodes;
mod strike;
mod workers;

use super::check;
use super::load::Worker;
use super::report::{Counts, Finding, Found, Kind};
use super::server;
use super::store::Caller;
use base::buffer::Pool;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::limit::NODE_SILENCE_MAX;
use base::policy::Policy;
use client::Client;
use harness::stopwatch::Stopwatch;
use net::message::cluster::ViewAnswer;
use network::{NetOf, Network};
pub use nodes::init;
use nodes::{NAMES, Node, address_of};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strike::Strike;
use tokio::task::{JoinSet, LocalSet};
use workers::AtWork;

pub use network::obstacle;

/// Hosts with clients on them.
const CLIENTS: [&str; 2] = ["x", "y"];

const WORKERS: u64 = 6;

/// Copies of files: so many at the most, as many as there are nodes at the least.
const COPIES_MAX: u64 = 3;

/// What each direction of a link carries, in Mbit/s; one is drawn.
const RATES: [u64; 3] = [50, 200, 1000];

/// How long clients wait for a sign of life; one is drawn. The second is what they do unless told otherwise.
const SILENCES: [Duration; 2] = [Duration::from_secs(4), base::limit::CALL_SILENCE_MAX];

/// Those that keep the metadata together, in half of the trials.
const KEEPERS: usize = 3;

/// Who leads is asked for so long before a strike; if nobody says so the first node is meant.
const LEADER_WAIT: Duration = Duration::from_secs(2);

/// With everything mended all nodes serve, and everything can be read, after so long.
const HEAL_WAIT: Duration = Duration::from_secs(60);
const HEAL_PAUSE: Duration = Duration::from_millis(100);

/// Trials at once: each mostly waits for something.
const AT_ONCE: usize = 3;

/// A trial in which the machine stood still is made again so often.
const STOOD_STILL_MAX: u32 = 10;

/// A pause of this process that says that the machine stood still: what happens then says nothing about Stormwell.
const STANDSTILL: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(100);

/// A cluster in the middle of a trial.
struct Cluster {
    random: SimRandom,
    nodes: Vec<Node>,
    network: Network,
    callers: Vec<Caller>,
    silence_max: Duration,
    counts: Counts,
}

/// One trial from its seed. Logs are beside the configurations if something was found.
async fn trial(seed: u64, directory: &Path) -> Found<Counts> {
    let random = SimRandom::new(seed);
    let nodes = KEEPERS + random.below(2) as usize;
    let alone = random.fork("keepers").one_in(2);
    let copies = 1 + random.fork("copies").below(COPIES_MAX) as u32;
    let rate = RATES[random.below(RATES.len() as u64) as usize];
    let silence_max = SILENCES[random.below(SILENCES.len() as u64) as usize];
    let strikes: Vec<(Strike, Duration)> = (0..2 + random.below(2))
        .map(|number| {
            let kind = if number == 0 { seed } else { random.next() };
            let strike = Strike::draw(kind, nodes, CLIENTS.len(), &random);
            (strike, strike.lasts(&random))
        })
        .collect();
    let told: Vec<String> =
        strikes.iter().map(|(strike, lasts)| format!("{strike} {:.1} s", lasts.as_secs_f64())).collect();
    let patience = silence_max.as_secs();
    let who = if alone { "one keeper" } else { "three keepers" };
    eprintln!(
        "lab: seed {seed}: {nodes} nodes, {who}, {copies} copies, {rate} Mbit/s, clients wait {patience} s; {}",
        told.join(", ")
    );
    let own_disk = strikes.iter().any(|(strike, _)| *strike == Strike::FillDisk);
    let mut cluster = Cluster::new(random, directory, (nodes, alone), rate, (silence_max, own_disk))?;
    let found = match cluster.run(&strikes, copies).await {
        Ok(()) => cluster.end().await,
        found => found,
    };
    if found.is_err() {
        cluster.nodes.iter().try_for_each(Node::write_log)?;
    }
    cluster.counts.trials = 1;
    found.map(|()| cluster.counts)
}

/// Runs trials, each with the next seed, until one finds something: which, and what.
pub async fn run(count: u64, seed: u64, counts: &mut Counts) -> Result<Option<(u64, Finding)>> {
    let local = LocalSet::new();
    local.run_until(run_all(count, seed, counts)).await
}

async fn run_all(count: u64, first: u64, counts: &mut Counts) -> Result<Option<(u64, Finding)>> {
    let mut seeds = (0..count).map(|number| first.wrapping_add(number));
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < AT_ONCE
            && let Some(seed) = seeds.next()
        {
            under_way.spawn_local(async move { (seed, run_one(seed).await) });
        }
        let Some(joined) = under_way.join_next().await else { return Ok(None) };
        let (seed, found) = joined.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
        match found? {
            Ok(more) => *counts += more,
            Err(finding) => {
                under_way.shutdown().await;
                return Ok(Some((seed, finding)));
            }
        }
    }
}

/// One trial, made again if the machine stood still.
async fn run_one(seed: u64) -> Result<Found<Counts>> {
    let mut stood_still = 0;
    loop {
        let mut scratch = server::scratch(&format!("cluster-{seed}"))?;
        let (found, paused) = watched(trial(seed, scratch.path())).await;
        match found {
            Err(finding) if paused && finding.kind == Kind::Trouble && stood_still < STOOD_STILL_MAX => {
                stood_still += 1;
                eprintln!("lab: seed {seed}: the machine stood still, and the trial is made again: {finding}");
            }
            Err(finding) => {
                scratch.keep();
                eprintln!(
                    "lab: seed {seed}: configurations, logs and devices are kept in {}",
                    scratch.path().display()
                );
                return Ok(Err(finding));
            }
            Ok(counts) => return Ok(Ok(Counts { repeats: u64::from(stood_still), ..counts })),
        }
    }
}

/// Watches whether this process goes on; says in the end whether it stood still.
async fn watched<T>(trial: impl Future<Output = T>) -> (T, bool) {
    let mut last = Stopwatch::start();
    let mut stood_still = false;
    tokio::pin!(trial);
    loop {
        tokio::select! {
            biased;
            done = &mut trial => return (done, stood_still || last.elapsed() >= STANDSTILL),
            () = tokio::time::sleep(TICK) => {
                stood_still |= last.elapsed() >= STANDSTILL;
                last = Stopwatch::start();
            }
        }
    }
}

impl Cluster {
    fn new(
        random: SimRandom,
        directory: &Path,
        (count, alone): (usize, bool),
        rate: u64,
        (silence_max, own_disk): (Duration, bool),
    ) -> Result<Cluster> {
        let names: Vec<&str> = NAMES[..count].iter().chain(&CLIENTS).copied().collect();
        let network = Network::new(&names, rate)?;
        let program = server::program()?;
        let keepers: Vec<String> = (0..if alone { 0 } else { KEEPERS }).map(address_of).collect();
        let credentials = init(&program, directory, &keepers)?;
        let mut nodes = Vec::new();
        for host in 0..count {
            let own_disk = own_disk && host + 1 == count;
            nodes.push(Node::new((&program, directory), &network, host, (alone, own_disk))?);
        }
        let pool = Pool::new(64 << 20);
        let mut callers = Vec::new();
        for host in count..names.len() {
            let net = Arc::new(NetOf::new(network.namespace(host)?)?);
            callers.push(Caller { net, credentials: credentials.clone(), pool: pool.clone() });
        }
        Ok(Cluster { random, nodes, network, callers, silence_max, counts: Counts::default() })
    }

    async fn run(&mut self, strikes: &[(Strike, Duration)], copies: u32) -> Found<()> {
        for node in &mut self.nodes {
            node.start_at_once(&self.random).await?;
        }
        let clients = self.connect_first().await?;
        let members = self.all_serve(&clients[0]).await?;
        let policy = Policy { replicas: Some(copies), ..Policy::default() };
        clients[0].set_policy("/", policy).await?;
        let mut workers: Vec<Worker> =
            (0..WORKERS).map(|number| Worker::new(number, &self.random, true, true)).collect();
        workers = self.strike(workers, &clients, strikes).await?;
        if self.all_report(&clients[0]).await? != members {
            return Err(Finding::new(Kind::Lost, "a node has another id, or other devices, than before"));
        }
        let others = self.connect(1).await?;
        for worker in &mut workers {
            self.healed(worker, &others).await?;
        }
        // Once more, and now every error counts.
        let mut at_work = AtWork::begin(workers, &clients);
        at_work.wait(Duration::from_millis(300 + self.random.below(1000))).await?;
        let mut workers = at_work.end().await?;
        // Their sessions end 30 s later, and with them what they kept for small files; the space comes back only then.
        drop(clients);
        self.compare(&mut workers, &others[0]).await?;
        self.sweep(&mut workers, &others[0]).await
    }

    /// The same as soon as there is a store: several keepers have to begin it.
    async fn connect_first(&self) -> Found<Vec<Client>> {
        let began = Stopwatch::start();
        loop {
            match self.connect(0).await {
                Err(finding) if finding.kind == Kind::Trouble => {
                    check_patience(began, || format!("no store begins: {}", finding.text))?;
                    tokio::time::sleep(HEAL_PAUSE).await;
                }
                connected => return connected,
            }
        }
    }

    /// The node that keeps the metadata, or leads those that do.
    async fn leads(&self, client: &Client) -> usize {
        let view = tokio::time::timeout(LEADER_WAIT, client.view()).await;
        let leads = view.ok().and_then(Result::ok).and_then(|view| {
            let leads = view.members.iter().find(|member| member.node.node == view.keeper)?;
            self.nodes.iter().position(|node| node.name == leads.node.name)
        });
        leads.unwrap_or(0)
    }

    /// A client on each client host, connected through different nodes; `shift` says through which.
    async fn connect(&self, shift: usize) -> Found<Vec<Client>> {
        let mut clients = Vec::new();
        for (place, caller) in self.callers.iter().enumerate() {
            let address = &self.nodes[(place + shift) % self.nodes.len()].address;
            clients.push(caller.connect(address, self.silence_max).await?);
        }
        Ok(clients)
    }

    /// Waits until every node serves. Which node is which, with its devices.
    async fn all_serve(&self, client: &Client) -> Found<Members> {
        let began = Stopwatch::start();
        loop {
            let view = client.view().await;
            if let Some(members) = view.as_ref().ok().and_then(|view| self.serving(view)) {
                return Ok(members);
            }
            check_patience(began, || format!("the nodes do not serve; what is known of them: {view:?}"))?;
            tokio::time::sleep(HEAL_PAUSE).await;
        }
    }

    /// All nodes, if all serve.
    fn serving(&self, view: &ViewAnswer) -> Option<Members> {
        let all = view.members.len() == self.nodes.len()
            && view.members.iter().all(|member| !member.silent && !member.devices.is_empty());
        let named = view.members.iter().map(|member| {
            let devices = member.devices.iter().map(|device| device.value()).collect();
            (member.node.name.clone(), (member.node.node.value(), devices))
        });
        all.then(|| named.collect())
    }

    /// The same, when all have reported since everything was mended: whoever was cut off a moment ago counts as heard of until `NODE_SILENCE_MAX` is over.
    async fn all_report(&self, client: &Client) -> Found<Members> {
        let mut members = self.all_serve(client).await?;
        let (began, mut since) = (Stopwatch::start(), Stopwatch::start());
        while since.elapsed() <= NODE_SILENCE_MAX {
            check_patience(began, || "a node reports, and is silent again, and so on".to_string())?;
            tokio::time::sleep(HEAL_PAUSE).await;
            let view = client.view().await;
            if view.ok().and_then(|view| self.serving(&view)).is_none() {
                members = self.all_serve(client).await?;
                since = Stopwatch::start();
            }
        }
        Ok(members)
    }

    /// Load, and the strikes one after another; each begins before or after the one before it is mended.
    async fn strike(
        &mut self,
        workers: Vec<Worker>,
        clients: &[Client],
        strikes: &[(Strike, Duration)],
    ) -> Found<Vec<Worker>> {
        let hosts = self.nodes.len() + self.callers.len();
        let mut at_work = AtWork::begin(workers, clients);
        at_work.wait(Duration::from_millis(300 + self.random.below(1200))).await?;
        at_work.is_struck();
        let (mut turns, mut at) = (Vec::new(), 0);
        for (strike, lasts) in strikes {
            let lasts = lasts.as_millis() as u64;
            turns.extend([(at, *strike, true), (at + lasts, *strike, false)]);
            at += if self.random.below(3) == 0 { self.random.below(lasts + 1) } else { lasts };
            at += 200 + self.random.below(1500);
        }
        turns.sort_by_key(|(at, ..)| *at);
        let mut now = 0;
        for (at, strike, begins) in turns {
            at_work.wait(Duration::from_millis(at - now)).await?;
            now = at;
            let leads = if begins && strike == Strike::KillKeeper { self.leads(&clients[0]).await } else { 0 };
            let (nodes, network) = (&mut self.nodes, &self.network);
            if begins {
                strike.strike((nodes, leads), network, hosts, &mut self.counts)?;
            } else {
                strike.mend(nodes, network, hosts, &self.random, &mut self.counts).await?;
            }
        }
        at_work.end().await
    }

    /// Compares a worker's files as soon as they can be read, which has a bound; later every error counts.
    async fn healed(&self, worker: &mut Worker, clients: &[Client]) -> Found<()> {
        let began = Stopwatch::start();
        for client in clients {
            loop {
                match workers::look(worker, client).await {
                    Ok(()) => break,
                    Err(finding) if finding.kind == Kind::Trouble => {
                        check_patience(began, || finding.text.clone())?;
                        tokio::time::sleep(HEAL_PAUSE).await;
                    }
                    Err(finding) => return Err(finding),
                }
            }
        }
        Ok(())
    }

    async fn compare(&mut self, workers: &mut [Worker], client: &Client) -> Found<()> {
        for worker in workers.iter_mut() {
            workers::look(worker, client).await?;
            worker.bag.check(client, &mut worker.counts).await?;
            self.counts += std::mem::take(&mut worker.counts);
        }
        check::check_totals(workers, client).await
    }

    /// Deletes everything; space must come back.
    async fn sweep(&mut self, workers: &mut [Worker], client: &Client) -> Found<()> {
        for worker in workers {
            worker.bag.clear(client).await?;
            if !worker.model.now.is_empty() {
                client.delete(&worker.root, true).await?;
            }
        }
        check::check_space(client).await?;
        self.counts.sweeps += 1;
        Ok(())
    }

    /// Ends the nodes as an operator does.
    async fn end(&mut self) -> Found<()> {
        for node in self.nodes.iter_mut().rev() {
            node.end().await?;
        }
        self.nodes.iter().try_for_each(Node::check_words)
    }
}

/// The nodes by their names: their ids and those of their devices.
type Members = BTreeMap<String, (u128, Vec<u128>)>;

fn check_patience(began: Stopwatch, what: impl Fn() -> String) -> Found<()> {
    if began.elapsed() < HEAL_WAIT {
        return Ok(());
    }
    let text = format!("{} s after everything was mended: {}", HEAL_WAIT.as_secs(), what());
    Err(Finding::new(Kind::Trouble, text))
}
