//! Rows about small appends that are synced before the reply: 64 writers at once, one alone, and one that goes on meanwhile.

use super::ground::{Ground, Spent};
use super::payload::Payload;
use super::row::{Bar, Latency, Row};
use base::checksum::BlockSums;
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use client::{Client, CreateOptions};
use harness::stopwatch::Stopwatch;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Writers of the row with many.
const WRITERS: usize = 64;

/// Syncs that the writer has on their way which does not wait for each: as many as the HDFS gateway has of a stream.
const AHEAD: usize = 8;

/// `append_4k`: 64 files, each appended to by a writer of its own in pieces of 4 KiB, each synced before the next.
pub async fn many(ground: &mut Ground) -> Result<Row> {
    let mut row = Row::new("append_4k", "appends/s");
    row.bar = Bar::AtLeast(90_000.0);
    row.raw_is = "a bare log: direct writes of 64 x 4160 bytes, each with fdatasync, in a file of zeros".to_string();
    row.raw_tool = "internal";
    let mut latencies = Vec::new();
    for round in 0..ground.rounds {
        ground.settle().await?;
        row.raw.push(ground.raw.grouped_log(ground.time)?);
        row.floor.push(ground.raw.bare_appends(WRITERS, ground.time)?.len() as f64 / ground.time.as_secs_f64());
        let (round_latencies, spent) = appended(ground, WRITERS, &format!("/bench-appends-{round}")).await?;
        let seconds = ground.time.as_secs_f64();
        row.values.push(round_latencies.len() as f64 / seconds);
        row.moved.push(spent.wrote((round_latencies.len() * BLOCK) as u64));
        row.note = format!("{WRITERS} files over 2 connections of one process; {}", spent.processors());
        latencies.extend(round_latencies);
    }
    row.latency = Latency::of(latencies);
    Ok(row)
}

/// `append_4k_1`: the same with one writer. The value is the median latency.
pub async fn one(ground: &mut Ground) -> Result<Row> {
    let mut row = Row::new("append_4k_1", "us p50");
    row.bar = Bar::RatioAtMost(1.8);
    row.raw_is = "a bare direct write of 4 KiB with fdatasync, p50".to_string();
    row.raw_tool = "internal";
    let mut latencies = Vec::new();
    for round in 0..ground.rounds {
        ground.settle().await?;
        row.raw.push(ground.raw.synced_write(ground.time)?.p50);
        row.floor.extend(Latency::of(ground.raw.bare_appends(1, ground.time)?).map(|latency| latency.p50));
        let (round_latencies, spent) = appended(ground, 1, &format!("/bench-append-{round}")).await?;
        row.moved.push(spent.wrote((round_latencies.len() * BLOCK) as u64));
        row.values.extend(Latency::of(round_latencies.clone()).map(|latency| latency.p50));
        latencies.extend(round_latencies);
    }
    row.latency = Latency::of(latencies);
    Ok(row)
}

/// `append_4k_8`: one writer that has eight syncs on their way, as a log may, beside one that waits for each.
pub async fn ahead(ground: &mut Ground) -> Result<Row> {
    let mut row = Row::new("append_4k_8", "appends/s");
    row.bar = Bar::RatioAtLeast(4.0);
    row.raw_is = "the same writer, waiting for each sync".to_string();
    row.raw_tool = "internal";
    for round in 0..ground.rounds {
        ground.settle().await?;
        let (alone, _) = appended(ground, 1, &format!("/bench-alone-{round}")).await?;
        row.raw.push(alone.len() as f64 / ground.time.as_secs_f64());
        ground.settle().await?;
        let (client, payload, path) = (ground.connect().await?, Payload::new(3), format!("/bench-ahead-{round}"));
        let since = ground.since()?;
        let count = append_ahead(&client, &path, &payload, ground.time).await?;
        let spent = ground.spent(&since)?;
        verify(&client, &path, count, &payload).await?;
        client.delete(&path, false).await?;
        row.values.push(count as f64 / spent.seconds);
        row.moved.push(spent.wrote((count * BLOCK) as u64));
        row.note = format!("{AHEAD} syncs of one file on their way; {}", spent.processors());
    }
    Ok(row)
}

/// How many blocks were appended and synced.
async fn append_ahead(client: &Client, path: &str, payload: &Payload, time: Duration) -> Result<usize> {
    let mut file = client.create(path, CreateOptions::default()).await?;
    let (mut count, mut waiting) = (0, VecDeque::new());
    let whole = Stopwatch::start();
    while whole.elapsed() < time {
        if waiting.len() == AHEAD
            && let Some(first) = waiting.pop_front()
        {
            first.await?;
        }
        let bytes = payload.chunk(count as u64, BLOCK);
        let sums = BlockSums::of(&bytes);
        waiting.push_back(file.sync_now(bytes, sums).await?);
        count += 1;
    }
    for sync in waiting {
        sync.await?;
    }
    file.close().await?;
    Ok(count)
}

/// Nanoseconds of every append that `writers` writers did during the ground's time, under a directory that is made for it
/// and removed, and what that took. What was appended is read back afterwards.
async fn appended(ground: &mut Ground, writers: usize, directory: &str) -> Result<(Vec<u64>, Spent)> {
    let client = ground.connect().await?;
    let payload = Arc::new(Payload::new(3));
    client.make_directory(directory, true).await?;
    let mut tasks = Vec::new();
    let since = ground.since()?;
    for writer in 0..writers {
        let path = format!("{directory}/{writer}");
        tasks.push(tokio::spawn(append(client.clone(), path, payload.clone(), ground.time)));
    }
    let mut latencies = Vec::new();
    let mut counts = Vec::new();
    for task in tasks {
        let done =
            task.await.map_err(|error| Error::new(ErrorKind::Io, format!("a writer was cut off: {error}")))??;
        counts.push(done.len());
        latencies.extend(done);
    }
    let spent = ground.spent(&since)?;
    for (writer, count) in counts.into_iter().enumerate() {
        verify(&client, &format!("{directory}/{writer}"), count, &payload).await?;
    }
    client.delete(directory, true).await?;
    Ok((latencies, spent))
}

async fn append(client: Client, path: String, payload: Arc<Payload>, time: Duration) -> Result<Vec<u64>> {
    let mut file = client.create(&path, CreateOptions::default()).await?;
    let mut latencies = Vec::new();
    let whole = Stopwatch::start();
    while whole.elapsed() < time {
        let bytes = payload.chunk(latencies.len() as u64, BLOCK);
        let watch = Stopwatch::start();
        file.write(bytes).await?;
        file.sync().await?;
        latencies.push(watch.nanos());
    }
    file.close().await?;
    Ok(latencies)
}

/// Reads a file back, which must be `count` blocks, each the one that was appended.
async fn verify(client: &Client, path: &str, count: usize, payload: &Payload) -> Result<()> {
    let mut stream = client.open(path).await?.stream(0);
    let mut position = 0;
    while let Some(bytes) = stream.next().await? {
        if !payload.matches_file(position, BLOCK, &bytes) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{path} does not hold what was appended to it")));
        }
        position += bytes.len() as u64;
    }
    if position == (count * BLOCK) as u64 {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!("{path} has {position} bytes after {count} acknowledged appends of 4 KiB"),
    ))
}
