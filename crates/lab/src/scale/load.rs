//! What clients do to a bag: push, pull, or both at once, as fast as they may; and what that cost.

use super::ground::Tools;
use base::error::{Error, ErrorKind, Result};
use client::{Bag, Client, ConsumerOptions, ProducerOptions, Scope};
use harness::stopwatch::Stopwatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinSet;

/// What one client does.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Bytes of a chunk, at most a record's.
    pub chunk: usize,
    /// Chunks that each client may have on their way.
    pub window: usize,
    /// Pulls that each client has open; none: as many as it finds right.
    pub pulls: Option<usize>,
}

/// What all clients together have done so far.
#[derive(Default)]
pub struct Count {
    /// Chunks handed to the window of a producer.
    pub pushed: AtomicU64,
    /// Chunks that came to a consumer.
    pub pulled: AtomicU64,
}

/// What something took.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Seconds by the clock.
    pub seconds: f64,
    /// Seconds of processors, of the whole process.
    pub processor: f64,
}

/// Measures from here until `end`.
pub struct Watch {
    watch: Stopwatch,
    processor: f64,
}

fn processor_seconds() -> Result<f64> {
    Ok(os::process::usage(std::process::id())?.processor.as_secs_f64())
}

impl Watch {
    /// Begins now.
    pub fn start() -> Result<Watch> {
        Ok(Watch { watch: Stopwatch::start(), processor: processor_seconds()? })
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.watch.seconds()
    }

    /// What it took until now.
    pub fn end(&self) -> Result<Cost> {
        Ok(Cost { seconds: self.seconds(), processor: processor_seconds()? - self.processor })
    }
}

/// A client with a bag, and where it pushes to or pulls from.
pub struct Seat {
    /// The bag.
    pub bag: Bag,
    /// The cluster or a node.
    pub scope: Scope,
}

/// Opens the bag of this name for each client, for all of the cluster.
pub async fn open(clients: &[Client], name: &str) -> Result<Vec<Seat>> {
    let mut seats = Vec::with_capacity(clients.len());
    for client in clients {
        seats.push(Seat { bag: client.bag(name).await?, scope: Scope::Cluster });
    }
    Ok(seats)
}

/// Clients that work at once. What they did is in the count.
pub struct Work {
    tasks: JoinSet<Result<u64>>,
}

impl Work {
    /// Each of these pushes so many chunks and waits until they are synced.
    pub fn push(tools: &Tools, seats: &[Seat], load: Load, each: u64, count: &Arc<Count>) -> Work {
        let mut tasks = JoinSet::new();
        for Seat { bag, scope } in seats {
            let options =
                ProducerOptions { window: load.window * load.chunk, scope: *scope, ..ProducerOptions::default() };
            let producer = bag.producer(options);
            let (bytes, count) = (tools.pattern.first(load.chunk), count.clone());
            tasks.spawn(async move {
                for _ in 0..each {
                    producer.push(bytes.clone()).await?;
                    count.pushed.fetch_add(1, Ordering::Relaxed);
                }
                producer.flush().await?;
                Ok(each)
            });
        }
        Work { tasks }
    }

    /// Each of these pulls and acknowledges until the bag, which is sealed some day, has ended.
    pub fn pull(seats: &[Seat], load: Load, count: &Arc<Count>) -> Work {
        let mut tasks = JoinSet::new();
        for Seat { bag, scope } in seats {
            let options = ConsumerOptions { window: load.pulls, wait: true, scope: *scope };
            let mut consumer = bag.consumer(options);
            let count = count.clone();
            tasks.spawn(async move {
                let mut accepted = 0;
                while let Some(chunk) = consumer.pull().await? {
                    if chunk.bytes.len() != load.chunk {
                        let text = format!("a chunk of {} bytes came, {} were pushed", chunk.bytes.len(), load.chunk);
                        return Err(Error::new(ErrorKind::Corrupt, text));
                    }
                    count.pulled.fetch_add(1, Ordering::Relaxed);
                    chunk.acknowledge();
                    accepted += accepted_of(consumer.take_results())?;
                }
                Ok(accepted + accepted_of(consumer.flush().await)?)
            });
        }
        Work { tasks }
    }

    /// Waits for all of them: chunks that are synced, or whose acknowledgement is.
    pub async fn end(mut self) -> Result<u64> {
        let mut chunks = 0;
        while let Some(ended) = self.tasks.join_next().await {
            chunks += ended.map_err(|error| Error::new(ErrorKind::Io, format!("a client ended: {error}")))??;
        }
        Ok(chunks)
    }
}

fn accepted_of(results: client::Acknowledged) -> Result<u64> {
    match results.refused.into_iter().next() {
        Some(refusal) => Err(refusal.error.during("acknowledge")),
        None => Ok(results.accepted.len() as u64),
    }
}
