//! The experiment with compression: one client, one device, and bags of chunks, or files, that get smaller or do not.

use super::ground::{Shape, Store, Tools};
use super::limiter::Speed;
use super::load::{Cost, Watch};
use super::row::Row;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::policy::{Compression, Policy};
use base::unit::{GIB, MIB};
use bytes::Bytes;
use client::{BagOptions, Client, ConsumerOptions, CreateOptions, ProducerOptions};

/// Bytes of a chunk, as in Hurricane.
const CHUNK: usize = 4 * MIB as usize;

/// What chunks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Noise, which nothing makes smaller.
    Noise,
    /// Zeros.
    Zeros,
    /// Numbers of eight bytes, each a little above the one before and every tenth the same: LZ4 makes 0.45 of them, as of Hurricane's
    /// content that can be encoded as differences.
    Rising,
}

impl Content {
    fn chunk(self, random: &dyn Random) -> Bytes {
        let mut chunk = vec![0; CHUNK];
        let mut number = random.next() >> 16;
        match self {
            Content::Zeros => {}
            Content::Noise => chunk.iter_mut().for_each(|byte| *byte = random.next() as u8),
            Content::Rising => {
                for place in chunk.chunks_exact_mut(8) {
                    number += if random.below(10) == 0 { 0 } else { 1 + random.below(5) };
                    (0..8).for_each(|at| place[at] = (number >> (8 * at)) as u8);
                }
            }
        }
        chunk.into()
    }

    fn name(self) -> &'static str {
        match self {
            Content::Noise => "noise",
            Content::Zeros => "zeros",
            Content::Rising => "rising numbers",
        }
    }
}

/// One client that pushes chunks to one device and pulls them.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// What the device can do.
    pub speed: Speed,
    /// What the chunks hold.
    pub content: Content,
    /// How they are compressed.
    pub how: Compression,
    /// How many.
    pub chunks: u64,
    /// Chunks on their way.
    pub window: usize,
}

impl Run {
    /// Pushes everything and pulls it; a row for each, of bytes as they were pushed. They are compared with `of`, or with the device:
    /// pushes and pulls in bytes a second, and how many times as fast is good enough.
    pub async fn push_and_pull(&self, tools: &Tools, of: Option<[(f64, f64); 2]>) -> Result<[Row; 2]> {
        let bytes = self.chunks * CHUNK as u64;
        let shape = Shape::new(1, self.speed, (2 * bytes).max(GIB));
        let store = Store::start(tools, shape).await?;
        let client = store.client(0).await?;
        let options = BagOptions { compression: Some(self.how), ..BagOptions::default() };
        let bag = client.bag_create_with("bag", false, options).await?;
        let chunk = self.content.chunk(tools.random.as_ref());
        let producer = bag.producer(ProducerOptions { window: self.window * CHUNK, ..ProducerOptions::default() });
        let watch = Watch::start()?;
        for _ in 0..self.chunks {
            producer.push(chunk.clone()).await?;
        }
        producer.flush().await?;
        let mut push = self.row("push", watch.end()?, of.map(|of| of[0]))?;
        push.note = self.note(&client).await?;
        bag.seal().await?;
        let watch = Watch::start()?;
        let mut consumer = bag.consumer(ConsumerOptions { window: Some(self.window), ..ConsumerOptions::default() });
        let mut came = 0;
        while let Some(pulled) = consumer.pull().await? {
            if pulled.bytes.len() != CHUNK || came == 0 && pulled.bytes != chunk {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "a chunk came that was not pushed; this is a fault in Stormwell",
                ));
            }
            came += 1;
            pulled.acknowledge();
        }
        let accepted = consumer.flush().await.accepted.len();
        if came != self.chunks {
            let text = format!(
                "{} chunks were pushed, {came} pulled, {accepted} of the last acknowledged; this is a fault in Stormwell",
                self.chunks
            );
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        let mut pull = self.row("pull", watch.end()?, of.map(|of| of[1]))?;
        pull.note = push.note.clone();
        drop((consumer, producer, bag, client));
        store.stop().await;
        Ok([push, pull])
    }

    /// Writes as many bytes to a file and reads it; a row for each, as `push_and_pull` makes them.
    pub async fn write_and_read(&self, tools: &Tools, of: Option<[(f64, f64); 2]>) -> Result<[Row; 2]> {
        let bytes = self.chunks * CHUNK as u64;
        let store = Store::start(tools, Shape::new(1, self.speed, (2 * bytes).max(GIB))).await?;
        let client = store.client(0).await?;
        client.set_policy("/", Policy { compression: Some(self.how), ..Policy::default() }).await?;
        let chunk = self.content.chunk(tools.random.as_ref());
        let watch = Watch::start()?;
        let mut file = client.create("/file", CreateOptions::default()).await?;
        for _ in 0..self.chunks {
            file.write(chunk.clone()).await?;
        }
        file.close().await?;
        let mut write = self.row("write of a file", watch.end()?, of.map(|of| of[0]))?;
        // Nodes tell the one that keeps the metadata every second what their devices hold.
        let stored = client.devices().await?.devices.iter().map(|device| device.live).sum::<u64>();
        let (name, how) = (self.content.name(), self.how.name());
        write.note = format!("{name}, {how}: {:.3} of it stored", stored as f64 / bytes as f64);
        let watch = Watch::start()?;
        let mut stream = client.open("/file").await?.stream(0);
        let mut came = 0;
        while let Some(part) = stream.next().await? {
            let at = (came % CHUNK as u64) as usize;
            // The first bytes are compared; the library has compared all of them with their checksums.
            if came < CHUNK as u64 && chunk.get(at..at + part.len()) != Some(&part[..]) {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "other bytes came than were written; this is a fault in Stormwell",
                ));
            }
            came += part.len() as u64;
        }
        if came != bytes {
            let text = format!("{bytes} bytes were written and {came} read; this is a fault in Stormwell");
            return Err(Error::new(ErrorKind::Corrupt, text));
        }
        let mut read = self.row("read of a file", watch.end()?, of.map(|of| of[1]))?;
        read.note = write.note.clone();
        drop((stream, client));
        store.stop().await;
        Ok([write, read])
    }

    /// What it is of, and how much of it is stored.
    async fn note(&self, client: &Client) -> Result<String> {
        let stored = client.bag_stat("bag").await?.pushed_bytes as f64 / (self.chunks * CHUNK as u64) as f64;
        Ok(format!("{}, {}: {stored:.3} of it stored", self.content.name(), self.how.name()))
    }

    fn row(&self, what: &'static str, cost: Cost, of: Option<(f64, f64)>) -> Result<Row> {
        let bytes = (self.chunks * CHUNK as u64) as f64;
        Ok(Row {
            experiment: "compression",
            what,
            devices: 1,
            rate: self.speed.rate,
            clients: 1,
            chunk: CHUNK,
            window: self.window,
            each: self.chunks,
            seconds: cost.seconds,
            throughput: bytes / cost.seconds,
            of: of.map_or(self.speed.rate as f64, |(of, _)| of),
            bar: of.map(|(_, bar)| bar),
            processor: cost.processor / (bytes / GIB as f64),
            memory: os::process::usage(std::process::id())?.anonymous_bytes,
            note: String::new(),
        })
    }
}
