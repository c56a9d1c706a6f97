//! Two producers and two consumers on one bag: every chunk is known by its number and its bytes, and every one is accounted for.

use crate::bench::Payload;
use crate::context::Context;
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use base::limit::BAG_CHUNK;
use base::unit::show_bytes;
use client::{Acknowledged, Bag, Client, ConsumerOptions, ProducerOptions};
use harness::stopwatch::Stopwatch;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Bytes of a chunk, as the payload counts.
const SIZE: usize = BAG_CHUNK as usize;

/// Producers, and consumers.
const EACH: u64 = 2;

/// A consumer that hears nothing but errors for so long gives up.
const TROUBLE_MAX: Duration = Duration::from_secs(30);

/// One run of a stream.
pub struct Stream {
    /// The bag.
    name: String,
    /// Chunks that go through it.
    chunks: u64,
    payload: Arc<Payload>,
    handled: Arc<AtomicU64>,
}

/// What became of the chunks.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Chunks whose push was acknowledged.
    pub pushed: u64,
    /// Times that a consumer had a chunk in its hands.
    pub handled: u64,
    /// Acknowledged chunks that no consumer could acknowledge: lost.
    pub lost: u64,
    /// Chunks that came with wrong bytes, or were acknowledged more than once.
    pub wrong: u64,
    /// The first of those, in words.
    pub named: Vec<String>,
    /// From the first push to the last durable acknowledgement.
    pub seconds: f64,
}

/// What one consumer did.
#[derive(Default)]
struct Consumed {
    /// Which number each chunk turned out to have.
    numbers: HashMap<ChunkId, u64>,
    handled: u64,
    unknown: u64,
    fates: Acknowledged,
}

impl Stream {
    /// A stream of so many bytes through a new bag. `seed` tells its chunks from those of other streams; not zero.
    pub fn new(name: &str, bytes: u64, seed: u64) -> Stream {
        let chunks = bytes / BAG_CHUNK;
        assert!(chunks <= Payload::distinct(SIZE), "the payload does not have so many chunks that differ");
        let payload = Arc::new(Payload::new(seed));
        Stream { name: name.to_string(), chunks, payload, handled: Arc::new(AtomicU64::new(0)) }
    }

    /// Chunks that go through.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Counts chunks as they come to consumers.
    pub fn handled(&self) -> Arc<AtomicU64> {
        self.handled.clone()
    }

    /// Runs it against the store of `context`, to its end.
    pub async fn run(self, context: &Context) -> Result<Account> {
        let owner = context.connect("demo").await?;
        owner.bag_create(&self.name, false).await?;
        let (mut producers, mut consumers) = (Vec::new(), Vec::new());
        for _ in 0..EACH {
            // Every one is a session of its own, as if it were another program.
            let (pushing, pulling) = (context.connect("demo").await?, context.connect("demo").await?);
            producers.push(pushing.bag(&self.name).await?);
            consumers.push(pulling.bag(&self.name).await?);
        }
        let watch = Stopwatch::start();
        let consumers: Vec<JoinHandle<Result<Consumed>>> = consumers
            .into_iter()
            .map(|bag| tokio::spawn(consume(bag, self.payload.clone(), self.handled.clone())))
            .collect();
        let producers: Vec<JoinHandle<Result<u64>>> = producers
            .into_iter()
            .zip(0..)
            .map(|(bag, first)| tokio::spawn(produce(bag, self.payload.clone(), first, self.chunks)))
            .collect();
        let mut account = Account::default();
        for producer in producers {
            account.pushed += joined(producer).await?;
        }
        owner.bag_seal(&self.name).await?;
        let mut consumed = Vec::new();
        for consumer in consumers {
            consumed.push(joined(consumer).await?);
        }
        account.seconds = watch.seconds();
        self.settle(&owner, &consumed, &mut account).await?;
        owner.bag_delete(&self.name).await?;
        Ok(account)
    }

    /// Compares what consumers did with what was pushed, and with what the store says.
    async fn settle(&self, owner: &Client, consumed: &[Consumed], account: &mut Account) -> Result<()> {
        // An acknowledgement that nobody answered may have been accepted: the store's count tells.
        let (mut accepted, mut unanswered) = (vec![0_u64; self.chunks as usize], 0);
        for one in consumed {
            account.handled += one.handled;
            if one.unknown > 0 {
                account.wrong += one.unknown;
                account.named.push(format!("{} chunks came with bytes that nobody pushed", one.unknown));
            }
            for chunk in &one.fates.accepted {
                if let Some(count) = one.numbers.get(chunk).and_then(|number| accepted.get_mut(*number as usize)) {
                    *count += 1;
                }
            }
            unanswered +=
                one.fates.refused.iter().filter(|refusal| refusal.error.kind() != ErrorKind::Stale).count() as u64;
        }
        for (number, count) in accepted.iter().enumerate().filter(|(_, count)| **count > 1) {
            account.wrong += 1;
            account.named.push(format!("chunk {number} was acknowledged {count} times"));
        }
        let missing: Vec<usize> = (0..accepted.len()).filter(|number| accepted[*number] == 0).collect();
        let info = owner.bag_stat(&self.name).await?;
        if missing.len() as u64 > unanswered || info.acknowledged != account.pushed || info.pushed != account.pushed {
            account.lost = (missing.len() as u64).max(account.pushed.abs_diff(info.acknowledged)).max(1);
            account.named.push(format!(
                "of {} chunks the store counts {} pushed and {} acknowledged; consumers had no acceptance for {} ({unanswered} unanswered)",
                account.pushed, info.pushed, info.acknowledged, missing.len()
            ));
        }
        account.named.truncate(10);
        Ok(())
    }
}

impl Account {
    /// `1,024 chunks, 4.0 GiB`.
    pub fn amount(&self) -> String {
        format!("{}, {}", crate::show::count(self.pushed, "chunk", "chunks"), show_bytes(self.pushed * BAG_CHUNK))
    }

    /// Megabytes a second.
    pub fn speed(&self) -> f64 {
        (self.pushed * BAG_CHUNK) as f64 / self.seconds / 1e6
    }
}

/// Pushes every other chunk from `first` on. Returns how many were acknowledged as synced.
async fn produce(bag: Bag, payload: Arc<Payload>, first: u64, chunks: u64) -> Result<u64> {
    let producer = bag.producer(ProducerOptions::default());
    let mut pushed = 0;
    for number in (first..chunks).step_by(EACH as usize) {
        producer.push(payload.chunk(number, SIZE)).await?;
        pushed += 1;
    }
    producer.flush().await?;
    Ok(pushed)
}

/// Pulls, compares and acknowledges until the bag has ended.
async fn consume(bag: Bag, payload: Arc<Payload>, handled: Arc<AtomicU64>) -> Result<Consumed> {
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let mut consumed = Consumed::default();
    let mut trouble: Option<Stopwatch> = None;
    loop {
        let chunk = match consumer.pull().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => break,
            // No answer, as while the server is down: asking again is all there is to do.
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                if trouble.get_or_insert_with(Stopwatch::start).elapsed() > TROUBLE_MAX {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        trouble = None;
        consumed.handled += 1;
        handled.fetch_add(1, Ordering::Relaxed);
        let known = payload.number_of(&chunk.bytes).filter(|number| payload.matches(*number, SIZE, 0, &chunk.bytes));
        match known {
            Some(number) => {
                consumed.numbers.insert(chunk.id, number);
                chunk.acknowledge();
            }
            None => {
                consumed.unknown += 1;
                chunk.acknowledge();
            }
        }
    }
    consumed.fates = consumer.flush().await;
    Ok(consumed)
}

async fn joined<T>(task: JoinHandle<Result<T>>) -> Result<T> {
    task.await.map_err(|error| Error::new(ErrorKind::Io, format!("a part of the stream was cut off: {error}")))?
}
