//! The row about coming back: a server with 20 GiB in 100,000 chunks is killed under load and started again.

use super::ground::{Ground, at, free_bytes};
use super::payload::Payload;
use super::row::{Bar, Row, median};
use super::sequential::wrong;
use super::stopwatch::Stopwatch;
use crate::child::Server;
use crate::context::Context;
use base::buffer::Buffer;
use base::error::{Error, ErrorKind, Result};
use base::unit::{KIB, show_bytes};
use bytes::Bytes;
use client::{Bag, Client, ConsumerOptions, ProducerOptions};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Bytes of a chunk: 100,000 of these are a little more than 20 GiB.
const SIZE: usize = 210 * KIB as usize;

/// Chunks that are on the device at every kill, and at least so many before a kill go on being pushed and acknowledged.
const CHUNKS: usize = 100_000;
const LOAD: Duration = Duration::from_secs(10);

/// Kills; more would make the whole bench last for minutes longer.
const KILLS_MAX: usize = 3;

/// Producers at once, and the chunks that each pushes before it waits until they are synced.
const PRODUCERS: usize = 4;
const BATCH: usize = 32;

/// Consumers at once, and how many chunks the producers may be ahead of them.
const CONSUMERS: usize = 2;
const AHEAD: usize = 10_000;

/// The load is looked at so often.
const LOOK: Duration = Duration::from_millis(20);

/// Where a chunk has its number.
const NUMBER_AT: usize = 16;

/// What must be true of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its push was not answered: it may be there.
    Begun,
    /// Its push was acknowledged: it must be there.
    Safe,
    /// Its acknowledgement was not answered: it may be there.
    Leaving,
    /// Handled, or seen at the end: it must not come again.
    Gone,
}

/// Every chunk by its number.
#[derive(Default)]
struct Ledger {
    fates: Mutex<Vec<Fate>>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Vec<Fate>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the next chunks to push.
    fn begin(&self, count: usize) -> std::ops::Range<usize> {
        let mut fates = self.book();
        let first = fates.len();
        fates.resize(first + count, Fate::Begun);
        first..first + count
    }

    fn set(&self, numbers: impl IntoIterator<Item = usize>, fate: Fate) {
        let mut fates = self.book();
        for number in numbers {
            fates[number] = fate;
        }
    }

    fn count(&self, fate: Fate) -> usize {
        self.book().iter().filter(|known| **known == fate).count()
    }

    /// A chunk came: its number, if it may come.
    fn came(&self, payload: &Payload, bytes: &[u8]) -> Result<usize> {
        let number = bytes.get(NUMBER_AT..NUMBER_AT + 8).and_then(|bytes| bytes.try_into().ok());
        let number = number.and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok());
        let Some(number) = number.filter(|number| *number < self.book().len()) else {
            return Err(wrong("a chunk came that was not pushed"));
        };
        if numbered(payload, number)[..] != *bytes {
            return Err(wrong("a chunk came with other bytes than were pushed"));
        }
        match self.book()[number] {
            Fate::Gone => Err(wrong("a chunk came again that had been handled")),
            _ => Ok(number),
        }
    }
}

/// Chunk `number`: bytes that no other has.
fn numbered(payload: &Payload, number: usize) -> Bytes {
    let mut bytes = Buffer::zeroed(SIZE);
    bytes.copy_from_slice(&payload.chunk(number as u64, SIZE));
    bytes[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes.freeze()
}

/// What pushes and consumes until it is told to end or the server is gone.
struct Load {
    ledger: Arc<Ledger>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Producers, and if they are to go on at `chunks`, consumers that leave so many alone.
    fn start(bag: &Bag, payload: &Arc<Payload>, ledger: &Arc<Ledger>, chunks: usize, consumers: usize) -> Load {
        let mut tasks = Vec::new();
        for _ in 0..PRODUCERS {
            tasks.push(tokio::spawn(produce(bag.clone(), payload.clone(), ledger.clone(), chunks + AHEAD)));
        }
        for _ in 0..consumers {
            tasks.push(tokio::spawn(consume(bag.clone(), payload.clone(), ledger.clone(), chunks)));
        }
        Load { ledger: ledger.clone(), tasks }
    }

    /// Waits until so many chunks are safe and so much time went by.
    async fn run(&mut self, safe: usize, time: Duration) -> Result<()> {
        let watch = Stopwatch::start();
        while self.ledger.count(Fate::Safe) < safe || watch.elapsed() < time {
            if let Some(ended) = self.tasks.iter().position(JoinHandle::is_finished) {
                let told = self.tasks.swap_remove(ended).await;
                let cut = |error| Error::new(ErrorKind::Io, format!("the load was cut off: {error}"));
                told.map_err(cut)??;
                return Err(Error::new(ErrorKind::Io, "the load ended before the server was killed"));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn end(&self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn produce(bag: Bag, payload: Arc<Payload>, ledger: Arc<Ledger>, most: usize) -> Result<()> {
    let producer = bag.producer(ProducerOptions::default());
    loop {
        while ledger.count(Fate::Safe) > most {
            tokio::time::sleep(LOOK).await;
        }
        let numbers = ledger.begin(BATCH);
        for number in numbers.clone() {
            producer.push(numbered(&payload, number)).await?;
        }
        producer.flush().await?;
        ledger.set(numbers, Fate::Safe);
    }
}

async fn consume(bag: Bag, payload: Arc<Payload>, ledger: Arc<Ledger>, keep: usize) -> Result<()> {
    let mut consumer = bag.consumer(ConsumerOptions { window: 16, ..ConsumerOptions::default() });
    loop {
        while ledger.count(Fate::Safe) < keep + BATCH {
            tokio::time::sleep(LOOK).await;
        }
        let mut numbers = Vec::with_capacity(BATCH);
        while numbers.len() < BATCH {
            let Some(chunk) = consumer.pull().await? else { return Err(wrong("a bag that is not sealed ended")) };
            let number = ledger.came(&payload, &chunk.bytes)?;
            ledger.set([number], Fate::Leaving);
            numbers.push(number);
            chunk.acknowledge();
        }
        if let Some(refusal) = consumer.flush().await.refused.first() {
            return Err(refusal.error.clone().during("acknowledge"));
        }
        ledger.set(numbers, Fate::Gone);
    }
}

/// `recover`: seconds from starting a killed server until it has told how the bag stands, given a chunk and taken one.
pub async fn recover(ground: &Ground, context: &Context) -> Result<Row> {
    let mut row = Row::new("recover", "s");
    // Twice what is on the device: dead space comes back a little later than it is made.
    let room = free_bytes(ground.scratch.path())? / (2 * SIZE as u64);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    let (chunks, time) = if ground.quick { (CHUNKS / 100, ground.time) } else { (CHUNKS, LOAD) };
    let chunks = chunks.min(room);
    row.bar = if chunks == CHUNKS { Bar::AtMost(2.0) } else { Bar::Shown };
    let directory = ground.scratch.join("recover");
    let mut server = Server::start(std::slice::from_ref(&directory))?;
    let context = at(context, server.address());
    let bag = context.connect("bench").await?.bag_create("recover", false).await?;
    let (payload, ledger) = (Arc::new(Payload::new(2001)), Arc::new(Ledger::default()));
    let mut fill = Load::start(&bag, &payload, &ledger, chunks, 0);
    fill.run(chunks, Duration::ZERO).await?;
    fill.end();
    drop(bag);
    let mut answered = Vec::new();
    for _ in 0..ground.rounds.min(KILLS_MAX) {
        let bag = context.connect("bench").await?.bag("recover").await?;
        let mut load = Load::start(&bag, &payload, &ledger, chunks, CONSUMERS);
        load.run(chunks, time).await?;
        server.kill();
        load.end();
        drop((load, bag));
        let watch = Stopwatch::start();
        server.start_again()?;
        let client = context.connect("bench").await?;
        let info = client.bag_stat("recover").await?;
        answered.push(watch.seconds());
        let (safe, gone) = (ledger.count(Fate::Safe) as u64, ledger.count(Fate::Gone) as u64);
        give_and_take(&client, &payload, &ledger).await?;
        row.values.push(watch.seconds());
        if info.pushed < safe + gone || info.acknowledged < gone {
            return Err(wrong("the counts of the bag are below what was acknowledged"));
        }
    }
    let safe = ledger.count(Fate::Safe);
    all_there(&context, &payload, &ledger).await?;
    row.note = format!(
        "kill -9 after {:.0} s of pushes, pulls and acknowledgements with {safe} chunks, {}, on the device; a bag stat was \
         answered after {:.2} s; then every acknowledged chunk was pulled and compared",
        time.as_secs_f64(),
        show_bytes((safe * SIZE) as u64),
        median(&answered).unwrap_or(f64::NAN)
    );
    drop(server);
    std::fs::remove_dir_all(&directory)?;
    Ok(row)
}

/// Pulls a chunk, which stays, and pushes one.
async fn give_and_take(client: &Client, payload: &Payload, ledger: &Ledger) -> Result<()> {
    let bag = client.bag("recover").await?;
    let mut consumer = bag.consumer(ConsumerOptions { window: 1, ..ConsumerOptions::default() });
    let Some(chunk) = consumer.pull().await? else { return Err(wrong("a bag that is not sealed ended")) };
    ledger.came(payload, &chunk.bytes)?;
    let producer = bag.producer(ProducerOptions::default());
    let number = ledger.begin(1);
    producer.push(numbered(payload, number.start)).await?;
    producer.flush().await?;
    ledger.set(number, Fate::Safe);
    Ok(())
}

/// Seals the bag and pulls it empty: every chunk whose push was acknowledged comes once, those that were handled do not.
async fn all_there(context: &Context, payload: &Payload, ledger: &Ledger) -> Result<()> {
    let bag = context.connect("bench").await?.bag("recover").await?;
    bag.seal().await?;
    let mut consumer = bag.consumer(ConsumerOptions { window: 16, ..ConsumerOptions::default() });
    while let Some(chunk) = consumer.pull().await? {
        let number = ledger.came(payload, &chunk.bytes)?;
        ledger.set([number], Fate::Gone);
        chunk.acknowledge();
    }
    if let Some(refusal) = consumer.flush().await.refused.first() {
        return Err(refusal.error.clone().during("acknowledge"));
    }
    match ledger.count(Fate::Safe) {
        0 => Ok(()),
        lost => Err(wrong(&format!("{lost} acknowledged chunks are not there after the kills"))),
    }
}
