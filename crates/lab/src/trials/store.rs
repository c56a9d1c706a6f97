//! A store that trials are made with, one after another: load, stop, start, compare.

use super::check;
use super::image::Image;
use super::load::{Phase, Worker};
use super::report::{Counts, Finding, Found, Kind};
use super::server::{Launch, check_words};
use base::buffer::Pool;
use base::env::Random;
use base::error::Result;
use base::net::Net;
use client::{Client, Settings, Sizes};
use harness::child::Server;
use harness::scratch::Scratch;
use os::clock::SystemClock;
use os::random::SystemRandom;
use sim::random::SimRandom;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// What each of the two devices may use. So small that segments fill, checkpoints are taken and space comes back in a trial:
/// a checkpoint every 16 MiB, or every 2 MiB of journal.
pub const CAPACITY: u64 = 64 << 20;

/// Workers at once.
const WORKERS: u64 = 3;

/// A store begins anew once in so many trials, and is emptied once in so many, which takes the lease of a session.
const FRESH: u64 = 40;
const SWEEP: u64 = 75;

/// Answers that were on their way when the server died have come after so long.
const GRACE: Duration = Duration::from_millis(3);

/// A worker that has not heard of an image after so long has ended.
const HOLD_WAIT: Duration = Duration::from_secs(60);

/// How a trial stops the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// SIGKILL; the system keeps what was written.
    Kill,
    /// SIGKILL on volatile disks: only what was synced is kept.
    Power,
    /// The image of the file system as it was at one instant.
    Image,
}

/// A store, its directories and what must be in it.
pub struct Store {
    launch: Launch,
    stop: Stop,
    random: SimRandom,
    workers: Vec<Worker>,
    /// The node's name, once it was heard.
    node: Option<u128>,
    running: Option<(Server, Client)>,
    /// Shared by all clients: what they left under way keeps them for a while after their server is gone.
    pool: Pool,
    /// For `Stop::Image`. After `running`, so that nobody uses it when it goes.
    image: Option<Image>,
    trials: u64,
}

impl Store {
    /// A store whose devices lie below `directory`, not made yet.
    pub fn new(directory: &Path, launch: Launch, stop: Stop, seed: u64) -> Store {
        Store::below(directory, launch, stop, seed, None)
    }

    /// A store in the image in this directory, for `Stop::Image`.
    pub fn in_image(directory: &Path, launch: Launch, seed: u64, image: Image) -> Store {
        Store::below(&Image::mounted_at(directory), launch, Stop::Image, seed, Some(image))
    }

    fn below(directory: &Path, mut launch: Launch, stop: Stop, seed: u64, image: Option<Image>) -> Store {
        let device = |name: &str, class: &str| format!("{}:{class}:{CAPACITY}", directory.join(name).display());
        launch.data = vec![device("a", "ssd"), device("b", "hdd")];
        launch.disk = if stop == Stop::Power { "volatile" } else { "auto" };
        let random = SimRandom::new(seed);
        let mut store = Store {
            launch,
            stop,
            random,
            workers: Vec::new(),
            node: None,
            running: None,
            pool: Pool::new(32 << 20),
            image,
            trials: 0,
        };
        store.forget();
        store
    }

    /// Nothing is in the store any more.
    fn forget(&mut self) {
        let written_survives = self.stop == Stop::Kill;
        self.workers = (0..WORKERS).map(|number| Worker::new(number, &self.random, written_survives, false)).collect();
        self.node = None;
    }

    /// One trial: load, stop, start again, perhaps killed while it does, compare.
    pub async fn trial(&mut self, scratch: &Scratch) -> Found<Counts> {
        let mut counts = Counts { trials: 1, ..Counts::default() };
        if self.trials > 0 && self.image.is_none() && self.random.below(FRESH) == 0 {
            self.running = None;
            self.forget();
            scratch.clear()?;
        }
        self.trials += 1;
        if self.running.is_none() {
            self.start(&mut counts).await?;
        }
        let load = Duration::from_millis(20 + self.random.below(200));
        self.load(load).await?;
        counts.stops += 1;
        if let Some(image) = &mut self.image {
            image.fall_back()?;
        }
        self.start(&mut counts).await?;
        self.check(&mut counts).await?;
        if self.image.is_none() && self.random.below(SWEEP) == 0 {
            self.sweep().await?;
            counts.sweeps += 1;
        }
        Ok(counts)
    }

    /// Starts the server; sometimes it is killed while it starts, several times in a row.
    async fn start(&mut self, counts: &mut Counts) -> Found<()> {
        self.running = None;
        while self.random.below(3) == 0 {
            let after = Duration::from_micros(self.random.below(60_000));
            self.launch.start_and_kill(&self.random, after).await?;
            counts.stops += 1;
            counts.stops_at_start += 1;
        }
        let server = self.launch.start(&self.random).await?;
        let client = connect(&server.address, self.pool.clone()).await?;
        self.running = Some((server, client));
        Ok(())
    }

    fn running(&mut self) -> (&mut Server, &Client) {
        match &mut self.running {
            Some((server, client)) => (server, client),
            None => unreachable!("the server was started"),
        }
    }

    /// Load for so long, then SIGKILL.
    async fn load(&mut self, length: Duration) -> Found<()> {
        let (tell, told) = watch::channel(Phase::Load);
        let client = self.running().1.clone();
        let mut tasks = JoinSet::new();
        for worker in std::mem::take(&mut self.workers) {
            tasks.spawn(worker.run(client.clone(), told.clone()));
        }
        drop(client);
        // A worker that finds something ends early, and there is no need to wait for the others.
        let early = tokio::time::timeout(length, tasks.join_next()).await.ok().flatten();
        if early.is_none() {
            self.copy_image(&tell, tasks.len()).await?;
        }
        let _watched = tell.send(Phase::Killed);
        self.running().0.child.kill();
        tokio::time::sleep(GRACE).await;
        let _watched = tell.send(Phase::Over);
        let mut ended: Vec<_> = early.into_iter().collect();
        ended.extend(tasks.join_all().await.into_iter().map(Ok));
        let mut found = Ok(());
        for joined in ended {
            let (worker, result) = joined.map_err(|error| Finding::new(Kind::Trouble, error.to_string()))?;
            self.workers.push(worker);
            found = found.and(result);
        }
        self.workers.sort_by(|a, b| a.root.cmp(&b.root));
        let words = check_words(self.running().0);
        self.running = None;
        found.and(words)
    }

    /// Copies the image, if there is one, while the workers go on.
    async fn copy_image(&self, phase: &watch::Sender<Phase>, workers: usize) -> Found<()> {
        let Some(image) = &self.image else { return Ok(()) };
        let holding = Arc::new(Semaphore::new(0));
        let _watched = phase.send(Phase::Image(holding.clone()));
        // From when all know of it, what is acknowledged may or may not be in the copy. One that found something never will.
        let _all = tokio::time::timeout(HOLD_WAIT, holding.acquire_many(workers as u32)).await;
        let mut command = image.copy_command();
        let copied = tokio::task::spawn_blocking(move || command.output()).await;
        match copied.map_err(|error| Finding::new(Kind::Trouble, error.to_string()))? {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(Finding::new(Kind::Trouble, String::from_utf8_lossy(&output.stderr))),
            Err(error) => Err(Finding::new(Kind::Trouble, error.to_string())),
        }
    }

    /// Compares everything with what must be there.
    async fn check(&mut self, counts: &mut Counts) -> Found<()> {
        let (_, client) = self.running();
        let client = client.clone();
        let node = client.node_status().await?.node.value();
        if self.node.is_some_and(|known| known != node) {
            return Err(Finding::new(Kind::Lost, "the node has another name after a restart"));
        }
        self.node = Some(node);
        for worker in &mut self.workers {
            check::check(worker, &client).await?;
            *counts += std::mem::take(&mut worker.counts);
        }
        check::check_totals(&self.workers, &client).await?;
        check_words(self.running().0)
    }

    /// Deletes everything; space must come back.
    async fn sweep(&mut self) -> Found<()> {
        let (_, client) = self.running();
        let client = client.clone();
        for worker in &mut self.workers {
            worker.bag.clear(&client).await?;
            if !worker.model.now.is_empty() {
                client.delete(&worker.root, true).await?;
                worker.model = super::model::Model::default();
            }
        }
        check::check_space(&client).await
    }
}

async fn connect(address: &str, pool: Pool) -> Result<Client> {
    let caller = Caller { net: Arc::new(os::net::TcpNet), credentials: net::Credentials::default(), pool };
    // Long: a machine that is busy with something else must not look like a server that does not answer.
    caller.connect(address, Duration::from_secs(60)).await
}

/// Who connects to the stores of trials, and how.
#[derive(Clone)]
pub struct Caller {
    /// The network as it sees it.
    pub net: Arc<dyn Net>,
    /// What it knows of the cluster.
    pub credentials: net::Credentials,
    /// Shared by all its clients.
    pub pool: Pool,
}

impl Caller {
    /// A client with small sizes, so that files have several chunks and writes several pieces.
    pub async fn connect(&self, address: &str, silence_max: Duration) -> Result<Client> {
        let settings = Settings {
            net: self.net.clone(),
            addresses: vec![address.to_string()],
            program: "lab trials".to_string(),
            credentials: self.credentials.clone(),
            user: client::User::default(),
            clock: Arc::new(SystemClock::new()),
            random: Arc::new(SystemRandom),
            pool: self.pool.clone(),
            connections: 2,
            silence_max,
        };
        let sizes = Sizes { piece: 128 << 10, file_chunk: 1 << 20, ..Sizes::default() };
        Ok(Client::connect(settings).await?.with_sizes(sizes))
    }
}
