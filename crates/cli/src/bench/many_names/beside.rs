//! What goes on beside the removal of many names: clients that look at names, or make some, until they are told that it is over.

use super::path;
use crate::bench::mixed::cut_off;
use crate::bench::raw::next;
use crate::bench::sequential::wrong;
use base::error::Result;
use client::{Client, CreateOptions};
use harness::stopwatch::Stopwatch;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// What tells all clients that it is over, and how many calls were answered.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    answered: AtomicU64,
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// Clients at work.
pub struct Beside {
    shared: Arc<Shared>,
    watch: Stopwatch,
    tasks: Vec<JoinHandle<Result<Vec<u64>>>>,
}

/// What they did.
pub struct Did {
    /// How long each call took.
    pub nanos: Vec<u64>,
    seconds: f64,
}

impl Did {
    /// Calls a second.
    pub fn per_second(&self) -> f64 {
        self.nanos.len() as f64 / self.seconds
    }
}

impl Beside {
    fn start<F>(clients: &[Client], work: impl Fn(Client, usize, Arc<Shared>) -> F) -> Beside
    where
        F: Future<Output = Result<Vec<u64>>> + Send + 'static,
    {
        let (shared, watch) = (Arc::new(Shared::default()), Stopwatch::start());
        let each = |(number, client): (usize, &Client)| tokio::spawn(work(client.clone(), number, shared.clone()));
        let tasks = clients.iter().enumerate().map(each).collect();
        Beside { shared, watch, tasks }
    }

    /// Looks at any of the files that stay, all of which are there.
    pub fn stats(clients: &[Client], staying: u64) -> Beside {
        Beside::start(clients, |client, number, shared| stats(client, number as u64 + 1, staying, shared))
    }

    /// Makes empty files whose paths begin like this, as no others do.
    pub fn creates(clients: &[Client], prefix: &str) -> Beside {
        Beside::start(clients, |client, number, shared| creates(client, format!("{prefix}-{number}"), shared))
    }

    /// Ends it, and answers with what was done.
    pub async fn end(self) -> Result<Did> {
        let seconds = self.watch.seconds();
        self.shared.over.store(true, Ordering::Relaxed);
        let mut nanos = Vec::new();
        for task in self.tasks {
            nanos.extend(task.await.map_err(cut_off)??);
        }
        Ok(Did { nanos, seconds })
    }

    /// The same after a while.
    pub async fn end_after(self, time: Duration) -> Result<Did> {
        tokio::time::sleep(time).await;
        self.end().await
    }

    /// Kills the server while all clients are at work: how many calls were answered.
    pub async fn cut_off(self, kill: impl FnOnce()) -> Result<u64> {
        if self.tasks.iter().any(JoinHandle::is_finished) {
            self.end().await?;
            return Err(wrong("a client ended before it was told to"));
        }
        kill();
        for task in self.tasks {
            task.abort();
            // It was cut off, or failed because the server is gone.
            let _ = task.await;
        }
        Ok(self.shared.answered.load(Ordering::Relaxed))
    }
}

async fn stats(client: Client, seed: u64, staying: u64, shared: Arc<Shared>) -> Result<Vec<u64>> {
    let (mut nanos, mut chance) = (Vec::new(), seed);
    while shared.goes_on() {
        let path = path("staying", next(&mut chance) % staying);
        let watch = Stopwatch::start();
        let found = client.stat(&path).await?;
        nanos.push(watch.nanos());
        if found.directory || found.length != 0 {
            return Err(wrong(&format!("{path} is not the file that was made")));
        }
    }
    Ok(nanos)
}

async fn creates(client: Client, prefix: String, shared: Arc<Shared>) -> Result<Vec<u64>> {
    let mut nanos = Vec::new();
    while shared.goes_on() {
        let path = format!("{prefix}-{}", nanos.len());
        let watch = Stopwatch::start();
        client.create(&path, CreateOptions::default()).await?.close().await?;
        nanos.push(watch.nanos());
        shared.answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(nanos)
}
