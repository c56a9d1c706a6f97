//! The row about coming back: a server with 20 GiB in 100,000 chunks is killed under load and started again.

use super::ground::{Ground, at, free_bytes};
use super::payload::Payload;
use super::row::{Bar, Row, median};
use super::sequential::wrong;
use crate::child::Server;
use crate::context::Context;
use base::buffer::Buffer;
use base::error::{Error, ErrorKind, Result};
use base::unit::{KIB, show_bytes};
use bytes::Bytes;
use client::{Bag, Client, ConsumerOptions, CreateOptions, ProducerOptions};
use harness::stopwatch::Stopwatch;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Bytes of a chunk: 100,000 of these are a little more than 20 GiB.
const SIZE: usize = 210 * KIB as usize;

/// Chunks that are on the device at every kill, and how long the load goes on before each.
const CHUNKS: usize = 100_000;
const LOAD: Duration = Duration::from_secs(10);

/// Kills; more would make the whole bench last for minutes longer.
const KILLS_MAX: usize = 3;

/// Producers at once, and the chunks that each pushes before it waits until they are synced.
const PRODUCERS: usize = 4;
const BATCH: usize = 32;

/// Consumers at once, the pulls that each has open, and how many chunks the producers may be ahead of them.
const CONSUMERS: usize = 2;
const WINDOW: usize = 16;
const AHEAD: usize = 10_000;

/// The load is looked at so often.
const LOOK: Duration = Duration::from_millis(20);

/// Bytes of the files that are written beside; every other one is deleted again.
const FILE: usize = 16 * KIB as usize;

/// Where a chunk or file has its number.
const NUMBER_AT: usize = 16;

/// What must be true of a chunk or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// Its push or close was not answered: it may be there.
    Begun,
    /// That was answered: it must be there.
    Safe,
    /// Its acknowledgement or delete was not answered: it may be there.
    Leaving,
    /// That was answered, or it was seen at the end: it must not come again.
    Gone,
}

/// Chunks or files by their numbers.
#[derive(Default)]
struct Ledger {
    fates: Mutex<Vec<Fate>>,
}

impl Ledger {
    fn book(&self) -> MutexGuard<'_, Vec<Fate>> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The numbers of the next ones.
    fn begin(&self, count: usize) -> std::ops::Range<usize> {
        let mut fates = self.book();
        let first = fates.len();
        fates.resize(first + count, Fate::Begun);
        first..first + count
    }

    /// These were answered for. Somebody may have handled them already.
    fn safe(&self, numbers: impl IntoIterator<Item = usize>) {
        let mut fates = self.book();
        for number in numbers {
            if fates[number] == Fate::Begun {
                fates[number] = Fate::Safe;
            }
        }
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
}

/// What was stored, with its bytes.
struct Books {
    payload: Payload,
    chunks: Ledger,
    files: Ledger,
}

impl Books {
    /// Bytes that no other number has.
    fn bytes(&self, number: usize, size: usize) -> Bytes {
        let mut bytes = Buffer::zeroed(size);
        bytes.copy_from_slice(&self.payload.chunk(number as u64, size));
        bytes[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&(number as u64).to_le_bytes());
        bytes.freeze()
    }

    /// A chunk came: its number, if it may come.
    fn came(&self, bytes: &[u8]) -> Result<usize> {
        let number = bytes.get(NUMBER_AT..NUMBER_AT + 8).and_then(|bytes| bytes.try_into().ok());
        let number = number.and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok());
        let Some(number) = number.filter(|number| *number < self.chunks.book().len()) else {
            return Err(wrong("a chunk came that was not pushed"));
        };
        if self.bytes(number, SIZE)[..] != *bytes {
            return Err(wrong("a chunk came with other bytes than were pushed"));
        }
        match self.chunks.book()[number] {
            Fate::Gone => Err(wrong("a chunk came again that had been handled")),
            _ => Ok(number),
        }
    }
}

fn path(number: usize) -> String {
    format!("/recover/{number}")
}

/// What pushes, writes and consumes until it is told to end or the server is gone.
struct Load {
    books: Arc<Books>,
    tasks: Vec<JoinHandle<Result<()>>>,
}

impl Load {
    /// Producers up to `most` chunks.
    fn fill(bag: &Bag, books: &Arc<Books>, most: usize) -> Load {
        let producer = |_| tokio::spawn(produce(bag.clone(), books.clone(), most));
        Load { books: books.clone(), tasks: (0..PRODUCERS).map(producer).collect() }
    }

    /// The same beside consumers that leave so many chunks alone and a writer of files.
    fn mixed(client: &Client, bag: &Bag, books: &Arc<Books>, chunks: usize) -> Load {
        let mut load = Load::fill(bag, books, chunks + AHEAD);
        load.tasks.extend((0..CONSUMERS).map(|_| tokio::spawn(consume(bag.clone(), books.clone(), chunks))));
        load.tasks.push(tokio::spawn(write_files(client.clone(), books.clone())));
        load
    }

    /// Waits until so many chunks are safe and so much time went by.
    async fn run(&mut self, safe: usize, time: Duration) -> Result<()> {
        let watch = Stopwatch::start();
        while self.books.chunks.count(Fate::Safe) < safe || watch.elapsed() < time {
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

async fn produce(bag: Bag, books: Arc<Books>, most: usize) -> Result<()> {
    let producer = bag.producer(ProducerOptions::default());
    loop {
        while books.chunks.count(Fate::Safe) > most {
            tokio::time::sleep(LOOK).await;
        }
        let numbers = books.chunks.begin(BATCH);
        for number in numbers.clone() {
            producer.push(books.bytes(number, SIZE)).await?;
        }
        producer.flush().await?;
        books.chunks.safe(numbers);
    }
}

async fn consume(bag: Bag, books: Arc<Books>, keep: usize) -> Result<()> {
    let mut consumer = bag.consumer(ConsumerOptions { window: Some(WINDOW), ..ConsumerOptions::default() });
    loop {
        while books.chunks.count(Fate::Safe) < keep + CONSUMERS * BATCH {
            tokio::time::sleep(LOOK).await;
        }
        let mut numbers = Vec::with_capacity(BATCH);
        while numbers.len() < BATCH {
            let Some(chunk) = consumer.pull().await? else { return Err(wrong("a bag that is not sealed ended")) };
            let number = books.came(&chunk.bytes)?;
            books.chunks.set([number], Fate::Leaving);
            numbers.push(number);
            chunk.acknowledge();
        }
        if let Some(refusal) = consumer.flush().await.refused.first() {
            return Err(refusal.error.clone().during("acknowledge"));
        }
        books.chunks.set(numbers, Fate::Gone);
    }
}

async fn write_files(client: Client, books: Arc<Books>) -> Result<()> {
    loop {
        let number = books.files.begin(1).start;
        let mut file = client.create(&path(number), CreateOptions::default()).await?;
        file.write(books.bytes(number, FILE)).await?;
        file.close().await?;
        books.files.safe([number]);
        if number % 2 == 1 {
            books.files.set([number], Fate::Leaving);
            client.delete(&path(number), false).await?;
            books.files.set([number], Fate::Gone);
        }
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
    let client = context.connect("bench").await?;
    client.make_directory("/recover", false).await?;
    let bag = client.bag_create("recover", false).await?;
    let books = Arc::new(Books { payload: Payload::new(2001), chunks: Ledger::default(), files: Ledger::default() });
    let mut fill = Load::fill(&bag, &books, chunks);
    fill.run(chunks, Duration::ZERO).await?;
    fill.end();
    drop((bag, client));
    let (mut answered, mut least) = (Vec::new(), usize::MAX);
    for _ in 0..ground.rounds.min(KILLS_MAX) {
        let client = context.connect("bench").await?;
        let mut load = Load::mixed(&client, &client.bag("recover").await?, &books, chunks);
        load.run(chunks, time).await?;
        server.child().kill();
        load.end();
        drop((load, client));
        let watch = Stopwatch::start();
        server.start_again()?;
        let client = context.connect("bench").await?;
        let info = client.bag_stat("recover").await?;
        answered.push(watch.seconds());
        let (safe, gone) = (books.chunks.count(Fate::Safe), books.chunks.count(Fate::Gone));
        give_and_take(&client, &books).await?;
        row.values.push(watch.seconds());
        if info.pushed < (safe + gone) as u64 || info.acknowledged < gone as u64 {
            return Err(wrong("the counts of the bag are below what was acknowledged"));
        }
        least = least.min(safe);
    }
    let files = books.files.count(Fate::Safe);
    all_there(&context.connect("bench").await?, &books).await?;
    row.note = format!(
        "kill -9 after {:.0} s of pushes, pulls, acknowledgements and small files, with at least {least} acknowledged chunks, {}, \
         on the device; a bag stat was answered after {:.2} s; in the end all of them and {files} files were read and compared",
        time.as_secs_f64(),
        show_bytes((least * SIZE) as u64),
        median(&answered).unwrap_or(f64::NAN)
    );
    drop(server);
    std::fs::remove_dir_all(&directory)?;
    Ok(row)
}

/// Pulls a chunk, which stays, and pushes one.
async fn give_and_take(client: &Client, books: &Books) -> Result<()> {
    let bag = client.bag("recover").await?;
    let mut consumer = bag.consumer(ConsumerOptions { window: Some(1), ..ConsumerOptions::default() });
    let Some(chunk) = consumer.pull().await? else { return Err(wrong("a bag that is not sealed ended")) };
    books.came(&chunk.bytes)?;
    let producer = bag.producer(ProducerOptions::default());
    let number = books.chunks.begin(1);
    producer.push(books.bytes(number.start, SIZE)).await?;
    producer.flush().await?;
    books.chunks.safe(number);
    Ok(())
}

/// Pulls the sealed bag empty: every chunk whose push was acknowledged comes once, those that were handled do not. Reads the
/// files: those that were closed are there, those that were deleted are not.
async fn all_there(client: &Client, books: &Books) -> Result<()> {
    let bag = client.bag("recover").await?;
    bag.seal().await?;
    let mut consumer = bag.consumer(ConsumerOptions { window: Some(WINDOW), ..ConsumerOptions::default() });
    while let Some(chunk) = consumer.pull().await? {
        let number = books.came(&chunk.bytes)?;
        books.chunks.set([number], Fate::Gone);
        chunk.acknowledge();
    }
    if let Some(refusal) = consumer.flush().await.refused.first() {
        return Err(refusal.error.clone().during("acknowledge"));
    }
    match books.chunks.count(Fate::Safe) {
        0 => {}
        lost => return Err(wrong(&format!("{lost} acknowledged chunks are not there after the kills"))),
    }
    let fates = books.files.book().clone();
    for (number, fate) in fates.into_iter().enumerate() {
        match (fate, client.open(&path(number)).await) {
            (Fate::Safe, Ok(reader)) => {
                let mut stream = reader.stream(0);
                let mut found = Vec::with_capacity(FILE);
                while let Some(bytes) = stream.next().await? {
                    found.extend_from_slice(&bytes);
                }
                if books.bytes(number, FILE) != found {
                    return Err(wrong("a file that was closed has other bytes after the kills"));
                }
            }
            (Fate::Safe, Err(error)) => return Err(error.during("read a file that was closed before the kills")),
            (Fate::Gone, Ok(_)) => return Err(wrong("a file is there again that had been deleted")),
            _ => {}
        }
    }
    Ok(())
}
