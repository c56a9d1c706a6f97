//! The row `mixed`: reads and replacements of small files all over a large set, while one stream writes and deletes.

use super::ground::{CHUNK, Ground};
use super::payload::Payload;
use super::raw::{Mix, next};
use super::row::{Bar, Latency, Row};
use base::error::{Error, ErrorKind, Result};
use base::unit::{KIB, MIB, show_bytes};
use client::{Client, CreateOptions, PackOptions, Packer, PackerOptions};
use harness::stopwatch::Stopwatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Bytes of each file of the set, and of each operation.
const FILE: usize = 64 * KIB as usize;

/// Operations under way at once.
const AT_ONCE: usize = 16;

/// So many operations of ten read, the others write.
const READS_OF_TEN: u64 = 7;

/// The stream deletes a file when it has written so much of the next one.
const STREAMED: u64 = 256 * MIB;

/// Files of one directory of the set.
const OF_DIRECTORY: u64 = 1024;

/// File `number` of the set holds one of two chunks of the payload, which these many pairs of files do not share.
const PAIRS: u64 = 500;

/// How long the operations of one round took, in nanoseconds.
#[derive(Default)]
struct Took {
    reads: Vec<u64>,
    writes: Vec<u64>,
}

/// `mixed`: p99.9 over p50 of all operations.
pub async fn row(ground: &mut Ground) -> Result<Row> {
    let mut row = Row::new("mixed", "p99.9/p50");
    row.bar = Bar::AtMost(8.0);
    row.raw_is = format!(
        "{AT_ONCE} threads on one direct file of the set's size, a write is pwrite and fdatasync, beside a thread that \
         writes and deletes"
    );
    row.raw_tool = "internal";
    let set = Set::store(ground).await?;
    let mut all = Took::default();
    for _ in 0..ground.rounds {
        ground.settle().await?;
        let mix = Mix { operation: FILE, at_once: AT_ONCE, reads_of_ten: READS_OF_TEN, streamed: STREAMED };
        let raw = ground.raw.mixed(&mix, ground.size, ground.time)?;
        row.raw.push(raw.p999 / raw.p50);
        // Nothing of the set is in memory when a round begins.
        ground.forget_cache().await?;
        let since = ground.since()?;
        let (took, streamed) = round(&set, ground.time).await?;
        let spent = ground.spent(&since)?;
        let (read, written) = ((took.reads.len() * FILE) as u64, (took.writes.len() * FILE) as u64);
        row.moved.push(spent.wrote(written + streamed));
        row.values.extend(Latency::of(both(&took)).map(|latency| latency.p999 / latency.p50));
        row.note = format!(
            "{}; {AT_ONCE} operations at once, {READS_OF_TEN} of 10 read a whole file by its path, the others replace one, \
             durably; beside them one stream wrote {:.0} MB/s and deleted it; last round: {:.0} operations/s, {} of {} read \
             came from the device, the rest from the page cache, which was empty before; {}",
            set.about(),
            streamed as f64 / spent.seconds / 1e6,
            (took.reads.len() + took.writes.len()) as f64 / spent.seconds,
            show_bytes(spent.read.min(read)),
            show_bytes(read),
            spent.processors(),
        );
        all.reads.extend(took.reads);
        all.writes.extend(took.writes);
    }
    row.latency = Latency::of(both(&all));
    for (what, nanos) in [("reads", all.reads), ("writes", all.writes)] {
        if let Some(Latency { p50, p99, p999 }) = Latency::of(nanos) {
            row.note.push_str(&format!("; {what} in us: p50 {p50:.0}, p99 {p99:.0}, p99.9 {p999:.0}"));
        }
    }
    set.client.delete(Set::ROOT, true).await?;
    Ok(row)
}

fn both(took: &Took) -> Vec<u64> {
    [took.reads.as_slice(), took.writes.as_slice()].concat()
}

/// The files that are read and replaced.
#[derive(Clone)]
struct Set {
    client: Client,
    payload: Arc<Payload>,
    files: u64,
}

impl Set {
    const ROOT: &str = "/bench-mixed";

    /// Stores files of the ground's size together.
    async fn store(ground: &Ground) -> Result<Set> {
        let set = Set {
            client: ground.connect().await?,
            payload: Arc::new(Payload::new(2001)),
            files: ground.size / FILE as u64,
        };
        let mut packer = set.client.packer(PackerOptions::default());
        for number in 0..set.files {
            let options = PackOptions { parents: true, ..PackOptions::default() };
            packer.put(&set.path(number), set.content(number, 0), options).await?;
            all_done(packer.take_results())?;
        }
        all_done(packer.close().await?)?;
        Ok(set)
    }

    fn about(&self) -> String {
        let bytes = show_bytes(self.files * FILE as u64);
        format!("{} files of {} ({bytes})", self.files, show_bytes(FILE as u64))
    }

    fn path(&self, number: u64) -> String {
        format!("{}/{}/{}", Set::ROOT, number / OF_DIRECTORY, number % OF_DIRECTORY)
    }

    fn content(&self, number: u64, version: u64) -> bytes::Bytes {
        self.payload.chunk(number % PAIRS * 2 + version % 2, FILE)
    }

    /// Reads a file, which must hold one of its two contents.
    async fn read(&self, number: u64) -> Result<()> {
        let path = self.path(number);
        let bytes = self.client.read_small(&path).await?;
        let known = self.payload.number_of(&bytes).filter(|known| known / 2 == number % PAIRS);
        match known.filter(|known| bytes.len() == FILE && self.payload.matches(*known, FILE, 0, &bytes)) {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Corrupt, format!("{path} does not hold what was put there"))),
        }
    }

    async fn replace(&self, packer: &mut Packer, number: u64, version: u64) -> Result<()> {
        let options = PackOptions { overwrite: true, ..PackOptions::default() };
        packer.put(&self.path(number), self.content(number, version), options).await?;
        all_done(packer.flush().await?)
    }
}

/// An error if one of these files was not put.
pub fn all_done(results: Vec<(String, Result<()>)>) -> Result<()> {
    results.into_iter().try_for_each(|(_, result)| result)
}

/// All operations of one round, and how many bytes the stream wrote meanwhile.
async fn round(set: &Set, time: Duration) -> Result<(Took, u64)> {
    let (ended, streamed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let stream: JoinHandle<Result<()>> = tokio::spawn(stream(set.clone(), ended.clone(), streamed.clone()));
    let workers: Vec<_> = (0..AT_ONCE).map(|worker| tokio::spawn(work(set.clone(), worker as u64 + 1, time))).collect();
    let mut all = Took::default();
    for worker in workers {
        let took = worker.await.map_err(cut_off)??;
        all.reads.extend(took.reads);
        all.writes.extend(took.writes);
    }
    let bytes = streamed.load(Ordering::Relaxed);
    ended.store(true, Ordering::Relaxed);
    stream.await.map_err(cut_off)??;
    Ok((all, bytes))
}

/// The error of a task that did not come to its end.
pub fn cut_off(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Io, format!("a part of the row was cut off: {error}"))
}

/// One operation after another.
async fn work(set: Set, seed: u64, time: Duration) -> Result<Took> {
    let options = PackerOptions { lanes: 1, ..PackerOptions::default() };
    let mut packer = set.client.packer(options);
    let (mut took, mut chance) = (Took::default(), seed);
    let whole = Stopwatch::start();
    while whole.elapsed() < time {
        let (number, reads) = (next(&mut chance) % set.files, next(&mut chance) % 10 < READS_OF_TEN);
        let watch = Stopwatch::start();
        if reads {
            set.read(number).await?;
            took.reads.push(watch.nanos());
        } else {
            set.replace(&mut packer, number, next(&mut chance)).await?;
            took.writes.push(watch.nanos());
        }
    }
    all_done(packer.close().await?)?;
    Ok(took)
}

/// Writes large files one after another, each in the place of the one before, until the row has ended.
async fn stream(set: Set, ended: Arc<AtomicBool>, streamed: Arc<AtomicU64>) -> Result<()> {
    let names = [format!("{}/stream-a", Set::ROOT), format!("{}/stream-b", Set::ROOT)];
    let mut count = 0;
    while !ended.load(Ordering::Relaxed) {
        let [current, before] = if count % 2 == 0 { [&names[0], &names[1]] } else { [&names[1], &names[0]] };
        let mut file = set.client.create(current, CreateOptions::default()).await?;
        for number in 0..STREAMED / CHUNK {
            if ended.load(Ordering::Relaxed) {
                break;
            }
            file.write(set.payload.chunk(number, CHUNK as usize)).await?;
            streamed.fetch_add(CHUNK, Ordering::Relaxed);
        }
        file.close().await?;
        if count > 0 {
            set.client.delete(before, false).await?;
        }
        count += 1;
    }
    let last = if count % 2 == 1 { &names[0] } else { &names[1] };
    set.client.delete(last, false).await
}
