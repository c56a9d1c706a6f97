//! Answers that are swallowed while small chunks stream through a bag: each has to be handled once, whatever was asked again.

mod proxy;

use super::content;
use super::report::{Counts, Finding, Found, Kind};
use super::server::{Launch, check_words};
use super::store::Caller;
use base::buffer::Pool;
use base::env::Random;
use base::error::ErrorKind;
use base::id::ChunkId;
use client::{Acknowledged, Bag, Client, ConsumerOptions, ProducerOptions};
use harness::child::Server;
use harness::scratch::Scratch;
use harness::stopwatch::Stopwatch;
use os::net::TcpNet;
use proxy::Proxy;
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Bytes of a chunk.
const CHUNK: usize = 4096;

/// What each device may use: more than all chunks together.
const CAPACITY: &str = "4GiB";

/// A trial is stuck after so long.
const LENGTH_MAX: Duration = Duration::from_secs(600);

/// Nobody swallows longer than this: silence that lasts longer breaks a connection by itself.
const SWALLOW_MAX: Duration = Duration::from_secs(6);

/// The bag's name.
const NAME: &str = "stream";

/// What became of the chunks, by their numbers.
#[derive(Default)]
struct Ledger {
    /// Acknowledgements of each chunk that were accepted.
    accepted: BTreeMap<u64, u64>,
    /// Acknowledgements that were refused for good, and why.
    refused: BTreeMap<u64, String>,
    /// Acknowledgements whose fate nobody knows.
    unknown: u64,
}

type Shared = Arc<Mutex<Ledger>>;

fn lock(ledger: &Shared) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One trial: a fresh server, so many chunks through a bag.
pub async fn trial(scratch: &Scratch, launch: &Launch, random: &SimRandom, chunks: u64) -> Found<Counts> {
    scratch.clear()?;
    let mut launch = launch.clone();
    launch.data = vec![format!("{}:ssd:{CAPACITY}", scratch.path().join("a").display())];
    let server = launch.start(random).await?;
    let counts = tokio::time::timeout(LENGTH_MAX, stream(&server, random, chunks)).await;
    let counts = counts.unwrap_or_else(|_| {
        let text = format!("{chunks} chunks did not pass within {} s", LENGTH_MAX.as_secs());
        Err(Finding::new(Kind::Trouble, text))
    })?;
    check_words(&server)?;
    Ok(counts)
}

async fn stream(server: &Server, random: &SimRandom, chunks: u64) -> Found<Counts> {
    let pool = Pool::new(64 << 20);
    let caller = |net| Caller { net, credentials: net::Credentials::default(), pool: pool.clone() };
    let connect = async |net| caller(net).connect(&server.address, Duration::from_secs(30)).await;
    let (pushes, pulls) = (Proxy::before(&server.address).await?, Proxy::before(&server.address).await?);
    let direct = connect(Arc::new(TcpNet)).await?;
    direct.bag_create(NAME, true).await?;
    let ledger = Shared::default();
    let mut consumers = JoinSet::new();
    for client in [connect(Arc::new(TcpNet)).await?, connect(pulls.net()).await?] {
        consumers.spawn(consume(client, ledger.clone(), chunks));
    }
    let mut producers = JoinSet::new();
    let half = chunks / 2;
    producers.spawn(produce(connect(Arc::new(TcpNet)).await?, 0..half));
    producers.spawn(produce(connect(pushes.net()).await?, half..chunks));
    let mut cuts = 0;
    let streamed = async {
        all(&mut producers).await?;
        direct.bag_seal(NAME).await?;
        all(&mut consumers).await
    };
    tokio::select! {
        streamed = streamed => streamed?,
        () = disturb([&pushes, &pulls], random, &ledger, &mut cuts) => {}
    }
    let ledger = std::mem::take(&mut *lock(&ledger));
    compare(&direct, &ledger, chunks).await?;
    if cuts > 0 && pushes.swallowed() + pulls.swallowed() == 0 {
        return Err(Finding::new(Kind::Trouble, "no answer was swallowed: the trial tried nothing"));
    }
    let bytes = chunks * CHUNK as u64;
    Ok(Counts { trials: 1, steps: chunks, compared: chunks, bytes, half_cuts: cuts, ..Counts::default() })
}

/// Waits for all of them; the first that found something ends the wait.
async fn all(tasks: &mut JoinSet<Found<()>>) -> Found<()> {
    while let Some(joined) = tasks.join_next().await {
        joined.map_err(|error| Finding::new(Kind::Trouble, error.to_string()))??;
    }
    Ok(())
}

async fn produce(client: Client, numbers: std::ops::Range<u64>) -> Found<()> {
    let bag: Bag = client.bag(NAME).await?;
    let producer = bag.producer(ProducerOptions { window: 4 << 20, ..ProducerOptions::default() });
    for number in numbers {
        producer.push(content::chunk(number, CHUNK)).await?;
    }
    Ok(producer.flush().await?)
}

/// Pulls and acknowledges until the bag ends.
async fn consume(client: Client, ledger: Shared, chunks: u64) -> Found<()> {
    let bag = client.bag(NAME).await?;
    let mut consumer = bag.consumer(ConsumerOptions::default());
    // The numbers of chunks that were acknowledged here and have no result yet.
    let mut asked = BTreeMap::new();
    while let Some(chunk) = consumer.pull().await? {
        let number = content::read_chunk(&chunk.bytes).filter(|number| *number < chunks);
        let Some(number) = number else {
            return Err(Finding::new(Kind::Corrupt, format!("chunk {} was never pushed", chunk.id)));
        };
        // One whose grant ended may come twice; it must not be acknowledged twice.
        asked.insert(chunk.id, number);
        chunk.acknowledge();
        learn(consumer.take_results(), &mut asked, &ledger)?;
    }
    learn(consumer.flush().await, &mut asked, &ledger)
}

fn learn(results: Acknowledged, asked: &mut BTreeMap<ChunkId, u64>, ledger: &Shared) -> Found<()> {
    let mut ledger = lock(ledger);
    for id in results.accepted {
        let Some(number) = asked.remove(&id) else { continue };
        let accepted = ledger.accepted.entry(number).or_default();
        *accepted += 1;
        if *accepted > 1 {
            let text = format!("chunk {number} was acknowledged twice, the second time as {id}");
            return Err(Finding::new(Kind::Duplicated, text));
        }
    }
    for refusal in results.refused {
        let Some(number) = asked.remove(&refusal.chunk) else { continue };
        if matches!(refusal.error.kind(), ErrorKind::Stale | ErrorKind::NotFound) {
            ledger.refused.insert(number, refusal.error.text().to_string());
        } else {
            ledger.unknown += 1;
        }
    }
    Ok(())
}

/// Swallows answers again and again, now of pushes, now of pulls and acknowledgements, until so many more chunks were handled or
/// some seconds are over; then cuts. Never ends.
async fn disturb(proxies: [&Proxy; 2], random: &SimRandom, ledger: &Shared, cuts: &mut u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(20 + random.below(600))).await;
        let proxy = proxies[random.below(2) as usize];
        let enough = lock(ledger).accepted.len() as u64 + 1 + random.below(12_000);
        let begun = Stopwatch::start();
        proxy.swallow();
        while (lock(ledger).accepted.len() as u64) < enough && begun.elapsed() < SWALLOW_MAX {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        proxy.cut();
        *cuts += 1;
    }
}

/// Each chunk was pushed once and handled once, as those who handled it were told.
async fn compare(client: &Client, ledger: &Ledger, chunks: u64) -> Found<()> {
    let missing: Vec<u64> = (0..chunks).filter(|number| !ledger.accepted.contains_key(number)).collect();
    let wrong = missing.iter().find_map(|number| Some((number, ledger.refused.get(number)?)));
    if let Some((number, why)) = wrong {
        let text = format!(
            "chunk {number} is gone, and whoever handled it was told to discard what it made of it: {why} ({} such)",
            missing.len()
        );
        return Err(Finding::new(Kind::Lost, text));
    }
    if missing.len() as u64 > ledger.unknown {
        let text =
            format!("the bag ended and {} of {chunks} chunks were not handled, {} first", missing.len(), missing[0]);
        return Err(Finding::new(Kind::Lost, text));
    }
    let stat = client.bag_stat(NAME).await?;
    if (stat.pushed, stat.acknowledged, stat.waiting) != (chunks, chunks, 0) {
        let text = format!(
            "{chunks} chunks were pushed and handled, the bag counts {} pushed, {} acknowledged and {} waiting",
            stat.pushed, stat.acknowledged, stat.waiting
        );
        return Err(Finding::new(Kind::Duplicated, text));
    }
    Ok(())
}
