//! Clients that do no more than they are told: they read files, write files and push chunks at a given rate; and what the files
//! hold, so that each byte is known by its place.

use super::ground::Tools;
use super::load::{Count, Load};
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use base::unit::Time;
use bytes::Bytes;
use client::{Bag, Client, CreateOptions, ProducerOptions, Scope};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Bytes that are written and compared at once.
const PIECE: usize = RECORD_PAYLOAD_MAX;

/// What files hold: pieces that are the pattern of the experiments, each begun at another block of it.
#[derive(Clone)]
pub struct Pieces {
    /// The pattern twice.
    twice: Bytes,
}

impl Pieces {
    /// Made of the pattern of these tools.
    pub fn new(tools: &Tools) -> Pieces {
        let once = tools.pattern.first(PIECE);
        Pieces { twice: [once.clone(), once].concat().into() }
    }

    /// A piece of a file. Two files, and 256 pieces of a file, begin at different blocks.
    fn piece(&self, file: usize, number: u64) -> Bytes {
        let blocks = (PIECE / BLOCK) as u64;
        let start = ((file as u64 * 37 + number * 11) % blocks) as usize * BLOCK;
        self.twice.slice(start..start + PIECE)
    }

    /// Compares bytes at a place of a file with what was written there.
    fn compare(&self, path: &str, file: usize, at: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let place = at + done as u64;
            let within = (place % PIECE as u64) as usize;
            let length = (bytes.len() - done).min(PIECE - within);
            let piece = self.piece(file, place / PIECE as u64);
            if piece[within..within + length] != bytes[done..done + length] {
                let text = format!(
                    "{path} has other bytes between {place} and {} than were written; this is a fault in Stormwell",
                    place + length as u64
                );
                return Err(Error::new(ErrorKind::Corrupt, text));
            }
            done += length;
        }
        Ok(())
    }

    /// Writes files of these sizes, in whole pieces, into a new directory: each client some of them.
    pub async fn write_all(&self, clients: &[Client], directory: &str, sizes: &[u64]) -> Result<()> {
        self.share_out(clients, directory, sizes, false).await
    }

    /// Reads files of these sizes and compares all of them.
    pub async fn compare_all(&self, clients: &[Client], directory: &str, sizes: &[u64]) -> Result<()> {
        self.share_out(clients, directory, sizes, true).await
    }

    /// Each client reads or writes some of the files, one after another.
    async fn share_out(&self, clients: &[Client], directory: &str, sizes: &[u64], reads: bool) -> Result<()> {
        let mut tasks = JoinSet::new();
        for (number, client) in clients.iter().enumerate() {
            let (pieces, client, directory) = (self.clone(), client.clone(), directory.to_string());
            let its: Vec<_> = sizes.iter().copied().enumerate().skip(number).step_by(clients.len()).collect();
            tasks.spawn(async move {
                let turn = Turn::default();
                for file in its {
                    match reads {
                        true => pieces.read(&client, &directory, file, &turn).await?,
                        false => pieces.write(&client, &directory, file, &turn).await?,
                    }
                }
                Ok(())
            });
        }
        all(tasks).await
    }

    /// Writes one file.
    async fn write(&self, client: &Client, directory: &str, (file, size): (usize, u64), turn: &Turn) -> Result<()> {
        let options = CreateOptions { parents: true, ..CreateOptions::default() };
        let mut writer = client.create(&format!("{directory}/{file}"), options).await?;
        for number in 0..size / PIECE as u64 {
            writer.write(self.piece(file, number)).await?;
            turn.did(PIECE as u64).await;
        }
        writer.close().await.map(drop)
    }

    /// Reads one file and compares it, until it is told to stop.
    async fn read(&self, client: &Client, directory: &str, (file, size): (usize, u64), turn: &Turn) -> Result<()> {
        let path = format!("{directory}/{file}");
        let mut stream = client.open(&path).await?.stream(0);
        let mut at = 0;
        while let Some(bytes) = stream.next().await? {
            self.compare(&path, file, at, &bytes)?;
            at += bytes.len() as u64;
            if !turn.did(bytes.len() as u64).await {
                return Ok(());
            }
        }
        if at != size {
            let text = format!("{path} has {at} bytes and {size} were written; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        Ok(())
    }
}

async fn all(mut tasks: JoinSet<Result<()>>) -> Result<()> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Error::new(ErrorKind::Io, format!("a client ended: {error}")))??;
    }
    Ok(())
}

/// How fast a client goes: it waits when it is ahead, and makes up for what it is behind.
pub struct Pace {
    clock: Arc<dyn Clock>,
    began: Time,
    /// Bytes a second.
    rate: f64,
    done: AtomicU64,
}

impl Pace {
    /// So many bytes a second from now on.
    pub fn new(tools: &Tools, rate: f64) -> Pace {
        Pace { clock: tools.clock.clone(), began: tools.clock.now(), rate, done: AtomicU64::new(0) }
    }

    /// Did so many bytes more, and waits until they are due.
    async fn did(&self, bytes: u64) {
        let done = self.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let (due, now) = (done as f64 / self.rate, self.clock.now().since(self.began).as_secs_f64());
        if due > now {
            tokio::time::sleep(Duration::from_secs_f64(due - now)).await;
        }
    }
}

/// A client's place among those of a load: its pace, if it has one, and what it shares with the others.
#[derive(Default)]
struct Turn {
    pace: Option<Pace>,
    shared: Arc<Shared>,
}

impl Turn {
    /// Did so many bytes more, and waits until they are due. Whether it goes on.
    async fn did(&self, bytes: u64) -> bool {
        self.shared.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(pace) = &self.pace {
            pace.did(bytes).await;
        }
        self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.shared.stop.load(Ordering::Relaxed)
    }
}

/// Clients that each keep to their pace, until they are told to stop.
pub struct Paced {
    tasks: JoinSet<Result<()>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    /// Bytes of files that were read and written.
    bytes: AtomicU64,
    /// Files that were begun.
    files: AtomicUsize,
    /// Chunks that were pushed.
    pushed: AtomicU64,
}

impl Paced {
    /// Nobody yet.
    pub fn new() -> Paced {
        Paced { tasks: JoinSet::new(), shared: Arc::default() }
    }

    fn turn(&self, pace: Pace) -> Turn {
        Turn { pace: Some(pace), shared: self.shared.clone() }
    }

    /// A client reads the files of these sizes in a directory, again and again, and compares them.
    pub fn read(
        &mut self,
        client: &Client,
        pieces: &Pieces,
        pace: Pace,
        (directory, sizes): (&'static str, Vec<u64>),
        first: usize,
    ) {
        let (client, pieces, turn) = (client.clone(), pieces.clone(), self.turn(pace));
        self.tasks.spawn(async move {
            let mut next = first;
            while turn.goes_on() {
                let file = next % sizes.len();
                pieces.read(&client, directory, (file, sizes[file]), &turn).await?;
                // Readers that began apart stay so.
                next += 5;
            }
            Ok(())
        });
    }

    /// A client writes new files of this size into a directory.
    pub fn write(&mut self, client: &Client, pieces: &Pieces, pace: Pace, (directory, size): (&'static str, u64)) {
        let (client, pieces, turn) = (client.clone(), pieces.clone(), self.turn(pace));
        self.tasks.spawn(async move {
            while turn.goes_on() {
                let file = turn.shared.files.fetch_add(1, Ordering::Relaxed);
                pieces.write(&client, directory, (file, size), &turn).await?;
            }
            Ok(())
        });
    }

    /// A client pushes chunks to a bag.
    pub fn push(&mut self, tools: &Tools, bag: &Bag, pace: Pace, load: Load, count: &Arc<Count>) {
        let producer = bag.producer(ProducerOptions {
            window: load.window * load.chunk,
            scope: Scope::Cluster,
            ..ProducerOptions::default()
        });
        let (bytes, count, shared) = (tools.pattern.first(load.chunk), count.clone(), self.shared.clone());
        self.tasks.spawn(async move {
            while !shared.stop.load(Ordering::Relaxed) {
                producer.push(bytes.clone()).await?;
                shared.pushed.fetch_add(1, Ordering::Relaxed);
                count.pushed.fetch_add(1, Ordering::Relaxed);
                pace.did(bytes.len() as u64).await;
            }
            producer.flush().await
        });
    }

    /// Bytes of files that were read and written so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Tells them to stop and waits for them. How many files were written, and chunks pushed.
    pub async fn end(self) -> Result<(usize, u64)> {
        self.shared.stop.store(true, Ordering::Relaxed);
        all(self.tasks).await?;
        Ok((self.shared.files.load(Ordering::Relaxed), self.shared.pushed.load(Ordering::Relaxed)))
    }
}
