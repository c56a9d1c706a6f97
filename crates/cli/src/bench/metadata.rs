//! Rows about names: making, looking at and listing files without bytes.

use super::ground::{Ground, Spent};
use super::row::{Bar, Latency, Row};
use base::error::{Error, ErrorKind, Result};
use client::{Client, CreateOptions};
use harness::stopwatch::Stopwatch;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Clients of `meta_create` and `meta_stat`: sessions with connections of their own, in one process.
const CLIENTS: usize = 32;

/// What one client did: how many, and how long each took in nanoseconds.
type Done = Vec<u64>;

/// `meta_create`, `meta_stat` and `meta_list`.
pub async fn rows(ground: &mut Ground) -> Result<[Row; 3]> {
    let mut create = Row::new("meta_create", "creates/s");
    create.bar = Bar::AtLeast(22_000.0);
    let (mut stat, mut list) = (Row::new("meta_stat", "stats/s"), Row::new("meta_list", "entries/s"));
    let (mut created, mut looked_at) = (Vec::new(), Vec::new());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(ground.connect().await?);
    }
    for round in 0..ground.rounds {
        let directory = format!("/bench-names-{round}");
        clients[0].make_directory(&directory, false).await?;
        ground.settle().await?;
        let (done, spent) = at_once(ground, &clients, |client, number, time| {
            tokio::spawn(create_files(client, format!("{directory}/{number}-"), time))
        })
        .await?;
        let made: Vec<usize> = done.iter().map(Vec::len).collect();
        let count = made.iter().sum::<usize>();
        create.values.push(count as f64 / spent.seconds);
        create.note = format!(
            "{CLIENTS} clients, create and close of an empty file in one directory, two durable calls each; {}",
            spent.processors()
        );
        created.extend(done.into_iter().flatten());

        let (done, spent) = at_once(ground, &clients, |client, number, time| {
            tokio::spawn(look_at_files(client, format!("{directory}/{number}-"), made[number].max(1), time))
        })
        .await?;
        stat.values.push(done.iter().map(Vec::len).sum::<usize>() as f64 / spent.seconds);
        stat.note = format!("{CLIENTS} clients; {}", spent.processors());
        looked_at.extend(done.into_iter().flatten());

        let since = ground.since()?;
        let entries = list_again_and_again(&clients[0], &directory, count, ground.time).await?;
        let spent = ground.spent(&since)?;
        list.values.push(entries as f64 / spent.seconds);
        list.note = format!("one client, a directory of {count} files; {}", spent.processors());
        clients[0].delete(&directory, true).await?;
    }
    create.latency = Latency::of(created);
    stat.latency = Latency::of(looked_at);
    Ok([create, stat, list])
}

/// Starts the same work with every client at once, and waits for all.
async fn at_once(
    ground: &mut Ground,
    clients: &[Client],
    start: impl Fn(Client, usize, Duration) -> JoinHandle<Result<Done>>,
) -> Result<(Vec<Done>, Spent)> {
    let time = ground.time;
    let since = ground.since()?;
    let tasks: Vec<_> =
        clients.iter().enumerate().map(|(number, client)| start(client.clone(), number, time)).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.map_err(|error| Error::new(ErrorKind::Io, format!("a client was cut off: {error}")))??);
    }
    Ok((all, ground.spent(&since)?))
}

async fn create_files(client: Client, prefix: String, time: Duration) -> Result<Done> {
    let mut latencies = Vec::new();
    let whole = Stopwatch::start();
    while whole.elapsed() < time {
        let path = format!("{prefix}{}", latencies.len());
        let watch = Stopwatch::start();
        client.create(&path, CreateOptions::default()).await?.close().await?;
        latencies.push(watch.nanos());
    }
    Ok(latencies)
}

async fn look_at_files(client: Client, prefix: String, count: usize, time: Duration) -> Result<Done> {
    let mut latencies: Vec<u64> = Vec::new();
    let whole = Stopwatch::start();
    while whole.elapsed() < time {
        // A stride that shares no factor with most counts goes through all names without order.
        let path = format!("{prefix}{}", latencies.len().wrapping_mul(7919) % count);
        let watch = Stopwatch::start();
        client.stat(&path).await?;
        latencies.push(watch.nanos());
    }
    Ok(latencies)
}

/// Entries listed during this time, in whole listings of `count` entries each.
async fn list_again_and_again(client: &Client, directory: &str, count: usize, time: Duration) -> Result<u64> {
    let whole = Stopwatch::start();
    let mut entries = 0;
    loop {
        let mut listing = client.list_all(directory);
        let mut seen = 0;
        while listing.next().await?.is_some() {
            seen += 1;
        }
        if seen != count {
            let text = format!("{directory} lists {seen} files where {count} were made");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        entries += seen as u64;
        if whole.elapsed() >= time {
            return Ok(entries);
        }
    }
}
