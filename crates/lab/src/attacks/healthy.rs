//! The healthy client: `stat` by new connections all the time, writing and reading over one, and a look at the server's health.

use super::target::Target;
use base::env::Clock;
use base::error::{Error, Result};
use base::unit::Time;
use bytes::Bytes;
use client::CreateOptions;
use os::clock::SystemClock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// What a thing that takes longer counts as.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a file that is written and read.
const LENGTH: usize = 4 << 20;

/// Between two of the same kind, so that the client leaves a processor to the others.
const PAUSE: Duration = Duration::from_millis(5);

/// How long things took, and how many of them failed.
#[derive(Clone, Debug, Default)]
pub struct Times {
    /// In the order in which they ended.
    pub took: Vec<Duration>,
    /// The texts of those that failed.
    pub failed: Vec<String>,
}

impl Times {
    /// What all but one of a hundred took at most.
    pub fn p99(&self) -> Duration {
        let mut sorted = self.took.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }

    /// The longest.
    pub fn most(&self) -> Duration {
        self.took.iter().copied().max().unwrap_or_default()
    }

    fn since(&self, earlier: &Times) -> Times {
        let (took, failed) = (&self.took[earlier.took.len()..], &self.failed[earlier.failed.len()..]);
        Times { took: took.to_vec(), failed: failed.to_vec() }
    }
}

/// What the client did from its beginning to a moment, or between two.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// A connection, a session and `stat`, each time.
    pub stats: Times,
    /// `/health/ready`.
    pub health: Times,
    /// What `hdfs dfs -ls /` asks, by new connections.
    pub listings: Times,
    /// Files written and read.
    pub files: Times,
    /// Bytes of those.
    pub bytes: u64,
    at: Time,
    /// How long it lasted.
    pub lasted: Duration,
}

impl Done {
    /// What was done after `earlier`.
    pub fn since(&self, earlier: &Done) -> Done {
        Done {
            stats: self.stats.since(&earlier.stats),
            health: self.health.since(&earlier.health),
            listings: self.listings.since(&earlier.listings),
            files: self.files.since(&earlier.files),
            bytes: self.bytes - earlier.bytes,
            at: self.at,
            lasted: self.at.since(earlier.at),
        }
    }

    /// Bytes a second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.lasted.as_secs_f64().max(0.001)
    }
}

/// The client at work, in threads of its own.
pub struct Healthy {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<()>>>,
}

struct Shared {
    target: Arc<Target>,
    clock: SystemClock,
    done: Mutex<Done>,
    over: AtomicBool,
}

impl Healthy {
    /// Sets it to work.
    pub fn start(target: &Arc<Target>) -> Result<Healthy> {
        let (clock, done, over) = (SystemClock::new(), Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { target: target.clone(), clock, done, over });
        let mut threads = Vec::new();
        for (name, work) in
            [("stats", Work::Stats), ("files", Work::Files), ("health", Work::Health), ("listings", Work::Listings)]
        {
            let shared = shared.clone();
            threads.push(os::thread::spawn(name, move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(shared.work(work));
                Ok(())
            })?);
        }
        Ok(Healthy { shared, threads })
    }

    /// What was done so far.
    pub fn mark(&self) -> Done {
        let at = self.shared.clock.now();
        let done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Done { at, lasted: at.since(Time::ZERO), ..done }
    }

    /// Ends it; waits for what it has under way.
    pub fn stop(self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A panic of it was printed.
            drop(thread.join());
        }
    }
}

#[derive(Clone, Copy)]
enum Work {
    Stats,
    Files,
    Health,
    Listings,
}

impl Shared {
    async fn work(&self, work: Work) {
        let mut client = None;
        while !self.over.load(Ordering::Relaxed) {
            let begun = self.clock.now();
            let outcome = match work {
                Work::Stats => timeout(PATIENCE, self.stat()).await,
                Work::Health => timeout(PATIENCE, self.health()).await,
                Work::Files => timeout(PATIENCE, self.file(&mut client)).await,
                Work::Listings => timeout(PATIENCE, super::hdfs::listing(&self.target)).await,
            };
            let outcome = outcome.unwrap_or_else(|_| {
                let text = format!("nothing within {} s", PATIENCE.as_secs());
                Err(Error::new(base::error::ErrorKind::Unreachable, text))
            });
            let took = self.clock.now().since(begun);
            {
                let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(work, Work::Files) && outcome.is_ok() {
                    done.bytes += 2 * LENGTH as u64;
                }
                let times = match work {
                    Work::Stats => &mut done.stats,
                    Work::Health => &mut done.health,
                    Work::Listings => &mut done.listings,
                    Work::Files => &mut done.files,
                };
                times.took.push(took);
                if let Err(error) = outcome {
                    times.failed.push(error.text().to_string());
                    client = None;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn stat(&self) -> Result<()> {
        let client = self.target.client().await?;
        client.stat("/").await.map(drop)
    }

    async fn file(&self, client: &mut Option<client::Client>) -> Result<()> {
        let client = match client {
            Some(client) => client,
            None => client.insert(self.target.client().await?),
        };
        let options = CreateOptions { overwrite: true, ..CreateOptions::default() };
        let mut file = client.create("/healthy", options).await?;
        file.write(Bytes::from(vec![5; LENGTH])).await?;
        file.close().await?;
        let file = client.open("/healthy").await?;
        let read: usize = file.read_at(0, LENGTH as u64).await?.iter().map(Bytes::len).sum();
        match read {
            LENGTH => Ok(()),
            other => Err(Error::new(base::error::ErrorKind::Io, format!("{other} bytes of {LENGTH} came back"))),
        }
    }

    async fn health(&self) -> Result<()> {
        let mut stream = self.target.connect(&self.target.console).await?;
        stream.write_all(b"GET /health/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        match answer.starts_with(b"HTTP/1.1 200") {
            true => Ok(()),
            false => {
                let text = String::from_utf8_lossy(&answer).lines().next().unwrap_or("no answer").to_string();
                Err(Error::new(base::error::ErrorKind::Unreachable, text))
            }
        }
    }
}
