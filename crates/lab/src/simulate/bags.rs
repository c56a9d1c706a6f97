//! Clients that push chunks into a bag, or pull and acknowledge them, and know what must become of each.

use super::format::{chunk_bytes, chunk_number};
use super::oracle::{Broken, Check, ChunkState};
use super::scene::Scene;
use base::env::Random;
use base::error::ErrorKind;
use base::id::ChunkId;
use base::limit::RECORD_PAYLOAD_MAX;
use bytes::Bytes;
use client::{Acknowledged, Bag, Chunk, Client, Consumer, ConsumerOptions, ProducerOptions};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The name of a bag.
pub fn name_of(bag: usize) -> String {
    format!("bag{bag}")
}

/// Makes the bag, or finds it.
pub async fn open(scene: &Scene, who: &str, client: &Client, bag: usize) -> Check<Bag> {
    let name = name_of(bag);
    let made = scene.insist(who, "bag_create", || client.bag_create(&name, true)).await?;
    made.map_err(|error| Broken(format!("{who}: {name}: {error}")))
}

/// Somebody who pushes.
pub struct Pusher {
    pub scene: Arc<Scene>,
    pub random: SimRandom,
    pub name: String,
    pub number: usize,
    pub client: Client,
    pub bag: Bag,
    /// Longest pause between two batches, in milliseconds.
    pub pause_max: u64,
}

impl Pusher {
    /// Pushes so many batches. Ends early when the bag is sealed.
    pub async fn work(&mut self, turns: u64) -> Check<()> {
        for turn in 0.. {
            if turn >= turns && (self.scene.has_seen_enough() || turn > 8 * turns) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(self.random.below(self.pause_max))).await;
            if self.random.one_in(60) {
                // A refusal is possible only if it was sealed or deleted by somebody else, which nobody does.
                if self.scene.call(&self.name, "bag_seal", self.bag.seal()).await?.is_ok() {
                    self.scene.oracle().sealed.insert(self.number);
                }
            }
            if !self.scene.late.is_zero() && self.random.one_in(6) {
                // Devices may have joined.
                let name = name_of(self.number);
                if let Ok(bag) = self.scene.call(&self.name, "bag", self.client.bag(&name)).await? {
                    self.bag = bag;
                }
            }
            self.batch().await?;
        }
        Ok(())
    }

    async fn batch(&mut self) -> Check<()> {
        let window = 32 << (10 + self.random.below(7));
        let was_sealed = self.scene.oracle().sealed.contains(&self.number);
        // Small, so that it is reached while a push has no answer.
        let (ahead, planted) = (1 + self.random.below(12), self.scene.planted());
        let producer = self.bag.producer(ProducerOptions { window, ahead, planted, ..ProducerOptions::default() });
        let mut numbers = Vec::new();
        for _ in 0..1 + self.random.below(6) {
            let (least, most) = match self.random.below(60) {
                // More than one record of the device log, so that an end can cut it in two.
                0 => (RECORD_PAYLOAD_MAX, 400_000),
                1..20 => (8, 150_000),
                _ => (8, 9_000),
            };
            let length = least + self.random.below(most) as usize;
            let number = {
                let mut oracle = self.scene.oracle();
                let number = oracle.chunks.len() as u64;
                oracle.chunks.insert(number, ChunkState { bag: self.number, length, ..ChunkState::default() });
                number
            };
            let bytes = Bytes::from(chunk_bytes(number, length));
            if self.scene.call(&self.name, "push", producer.push(bytes)).await?.is_err() {
                return Ok(());
            }
            numbers.push(number);
            if length >= RECORD_PAYLOAD_MAX && self.random.one_in(2) {
                tokio::time::sleep(Duration::from_millis(self.random.below(8))).await;
                self.scene.end_now.notify_one();
            }
        }
        // While pushes are on their way to the disk: the bag ends when they are handled.
        if self.random.one_in(90) && self.scene.call(&self.name, "bag_seal", self.bag.seal()).await?.is_ok() {
            self.scene.oracle().sealed.insert(self.number);
        }
        if self.scene.call(&self.name, "push_flush", producer.flush()).await?.is_ok() {
            if was_sealed {
                return Err(Broken(format!("{}: chunks {numbers:?} were taken after the bag was sealed", self.name)));
            }
            let mut oracle = self.scene.oracle();
            let ended = oracle.ended.contains(&self.number);
            for number in numbers {
                let Some(chunk) = oracle.chunks.get_mut(&number) else { continue };
                chunk.pushed = true;
                if ended && chunk.accepted == 0 && chunk.unsure == 0 {
                    let text =
                        format!("{}: chunk {number} was acknowledged after the end of its bag: {chunk:?}", self.name);
                    return Err(Broken(text));
                }
            }
            drop(oracle);
            self.scene.acknowledged(&self.random);
        }
        Ok(())
    }
}

/// Somebody who pulls and acknowledges.
pub struct Puller {
    scene: Arc<Scene>,
    random: SimRandom,
    name: String,
    number: usize,
    bag: Bag,
    consumer: Consumer,
    /// Chunks acknowledged whose results have not come, by the chunk's id.
    asked: BTreeMap<ChunkId, u64>,
    held: Vec<(u64, Chunk)>,
    /// The consumer waits for chunks, so that nothing more means the end.
    waits: bool,
}

impl Puller {
    /// A consumer of a bag.
    pub fn new(scene: Arc<Scene>, random: SimRandom, name: &str, number: usize, bag: Bag) -> Puller {
        let consumer = bag.consumer(ConsumerOptions::default());
        let (asked, held) = (BTreeMap::new(), Vec::new());
        Puller { scene, random, name: name.to_string(), number, bag, consumer, asked, held, waits: true }
    }

    /// Pulls so many times.
    pub async fn work(&mut self, turns: u64) -> Check<()> {
        for turn in 0.. {
            if turn >= turns && (self.scene.has_seen_enough() || turn > 8 * turns) {
                break;
            }
            if self.random.one_in(10) {
                let results = self.flush().await?;
                self.learn(results)?;
                let options = ConsumerOptions {
                    window: Some(1 + self.random.below(4) as usize),
                    wait: self.random.one_in(2),
                    ..ConsumerOptions::default()
                };
                self.held.clear();
                self.waits = options.wait;
                self.consumer = self.bag.consumer(options);
            }
            self.turn().await?;
        }
        self.held.clear();
        let results = self.flush().await?;
        self.learn(results)
    }

    async fn turn(&mut self) -> Check<()> {
        let pull = self.consumer.pull();
        let patience = Duration::from_millis(20 + self.random.below(3000));
        self.scene.count("pull");
        match tokio::time::timeout(patience, pull).await {
            Ok(Ok(Some(chunk))) => drop(self.take(chunk, false)?),
            Ok(Err(error)) if error.kind() == ErrorKind::Corrupt => {
                return Err(Broken(format!("{}: pull: {error}", self.name)));
            }
            Ok(other) => {
                if matches!(other, Ok(None)) && self.waits {
                    self.check_end()?;
                }
                tokio::time::sleep(Duration::from_millis(1 + self.random.below(500))).await;
            }
            Err(_) => self.scene.count("pull_given_up"),
        }
        if self.random.one_in(4) {
            for (number, chunk) in std::mem::take(&mut self.held) {
                self.acknowledge(number, chunk);
            }
        }
        let results = self.consumer.take_results();
        self.learn(results)
    }

    /// The bag is said to have ended: then each chunk of it was handled.
    fn check_end(&self) -> Check<()> {
        let mut oracle = self.scene.oracle();
        oracle.ended.insert(self.number);
        let mut mine = oracle.chunks.iter().filter(|(_, state)| state.bag == self.number);
        match mine.find(|(_, state)| state.pushed && state.accepted == 0 && state.unsure == 0) {
            None => Ok(()),
            Some((number, state)) => {
                Err(Broken(format!("{}: the bag ended before chunk {number} was handled: {state:?}", self.name)))
            }
        }
    }

    /// Checks a chunk, then acknowledges, keeps or drops it.
    fn take(&mut self, chunk: Chunk, always: bool) -> Check<u64> {
        let number = chunk_number(&chunk.bytes);
        let known = number.and_then(|number| Some((number, *self.scene.oracle().chunks.get(&number)?)));
        let Some((number, state)) = known.filter(|(_, state)| state.bag == self.number) else {
            return Err(Broken(format!("{}: chunk {} was never pushed to this bag", self.name, chunk.id)));
        };
        if state.unwanted {
            return Err(Broken(format!("{}: chunk {number} was pushed in a session that was over", self.name)));
        }
        self.scene.count_more("bytes compared", chunk.bytes.len() as u64);
        if chunk.bytes != chunk_bytes(number, state.length) {
            return Err(Broken(format!("{}: chunk {number} has other bytes than were pushed", self.name)));
        }
        self.scene.say(|| format!("{}: pulled {number} as {}", self.name, chunk.id));
        match self.random.below(10) {
            0 if !always => self.scene.count("chunk_dropped"),
            1 | 2 if !always => self.held.push((number, chunk)),
            _ => self.acknowledge(number, chunk),
        }
        Ok(number)
    }

    fn acknowledge(&mut self, number: u64, chunk: Chunk) {
        self.scene.count("acknowledge");
        self.scene.say(|| format!("{}: acknowledges {number}", self.name));
        if let Some(state) = self.scene.oracle().chunks.get_mut(&number) {
            state.unsure += 1;
        }
        self.asked.insert(chunk.id, number);
        chunk.acknowledge();
    }

    async fn flush(&mut self) -> Check<Acknowledged> {
        let flush = async { Ok(self.consumer.flush().await) };
        let results = self.scene.call(&self.name, "acknowledge_flush", flush).await?;
        results.map_err(|error| Broken(error.to_string()))
    }

    /// Notes how acknowledgements fared.
    fn learn(&mut self, results: Acknowledged) -> Check<()> {
        for id in results.accepted {
            let Some(number) = self.asked.get(&id).copied() else { continue };
            let mut oracle = self.scene.oracle();
            let Some(state) = oracle.chunks.get_mut(&number) else { continue };
            state.unsure = state.unsure.saturating_sub(1);
            state.accepted += 1;
            if state.accepted > 1 {
                return Err(Broken(format!("{}: chunk {number} was acknowledged {} times", self.name, state.accepted)));
            }
        }
        for refusal in results.refused {
            self.scene.say(|| format!("{}: {} refused: {}", self.name, refusal.chunk, refusal.error));
            let certain = matches!(refusal.error.kind(), ErrorKind::Stale | ErrorKind::NotFound);
            if let (true, Some(number)) = (certain, self.asked.get(&refusal.chunk)) {
                self.scene.count("acknowledgement_refused");
                if let Some(state) = self.scene.oracle().chunks.get_mut(number) {
                    state.unsure = state.unsure.saturating_sub(1);
                }
            }
        }
        Ok(())
    }

    /// Seals the bag, handles what is left, and checks that each chunk was acknowledged once and none is missing.
    pub async fn finish(&mut self) -> Check<()> {
        let sealed = self.scene.insist(&self.name, "bag_seal", || self.bag.seal()).await?;
        sealed.map_err(|error| Broken(format!("{}: seal: {error}", self.name)))?;
        self.consumer = self.bag.consumer(ConsumerOptions::default());
        loop {
            let next = self.scene.call(&self.name, "pull_to_the_end", self.consumer.pull()).await?;
            let next = next.map_err(|error| Broken(format!("{}: pull: {error}", self.name)))?;
            let Some(chunk) = next else { break };
            let number = self.take(chunk, true)?;
            let state = self.scene.oracle().chunks.get(&number).copied().unwrap_or_default();
            if state.accepted > 0 {
                return Err(Broken(format!("{}: chunk {number} came back after its acknowledgement", self.name)));
            }
        }
        let results = self.flush().await?;
        self.learn(results)?;
        {
            let oracle = self.scene.oracle();
            let mine = oracle.chunks.iter().filter(|(_, state)| state.bag == self.number);
            for (number, state) in mine {
                let is_known = state.pushed && state.unsure == 0;
                self.scene.count(if is_known { "chunks accounted for" } else { "chunks whose fate is not known" });
                if state.pushed && state.accepted == 0 && state.unsure == 0 {
                    return Err(Broken(format!("{}: chunk {number} was pushed and never came: {state:?}", self.name)));
                }
            }
        }
        let stat = self.scene.insist(&self.name, "bag_stat", || self.bag.stat()).await?;
        let stat = stat.map_err(|error| Broken(format!("{}: stat: {error}", self.name)))?;
        if stat.waiting + stat.granted > 0 || stat.pushed != stat.acknowledged {
            return Err(Broken(format!("{}: the bag ended and still counts {stat:?}", self.name)));
        }
        Ok(())
    }
}
