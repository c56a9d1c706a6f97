//! A bag that keeps its chunks, and is gone through several times: in each pass every chunk comes, and one acknowledgement of it is
//! accepted; one of an earlier pass never is.

use super::format::{chunk_bytes, chunk_number};
use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::id::ChunkId;
use bytes::Bytes;
use client::{Acknowledged, Bag, BagOptions, Chunk, Client, Consumer, ConsumerOptions, ProducerOptions};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Numbers of its chunks, apart from those of other bags.
const FIRST: u64 = 1 << 50;

/// Batches that are pushed, and consumed in part, before it is sealed.
const BATCHES: u64 = 12;

/// Times that the bag is gone through.
const PASSES: u64 = 3;

/// Longest pass: several outages, one after the other.
const PASS_BOUND: Duration = Duration::from_secs(600);

/// What is known of a chunk in the present pass.
#[derive(Clone, Copy, Debug, Default)]
struct Handled {
    accepted: u64,
    /// Acknowledgements whose fate is not known.
    unsure: u64,
}

struct Passes<'a> {
    scene: &'a Arc<Scene>,
    random: &'a SimRandom,
    name: &'a str,
    /// Lengths of the chunks whose push was acknowledged, and of those of which that is not known, by number.
    pushed: BTreeMap<u64, usize>,
    doubtful: BTreeMap<u64, usize>,
    handled: BTreeMap<u64, Handled>,
    /// Chunks whose acknowledgement was accepted before the present consumers began: nothing of them can be on its way.
    done: BTreeSet<u64>,
    /// Which chunk has which number.
    numbers: BTreeMap<ChunkId, u64>,
}

/// Fills a bag while it is consumed, then goes through it again and again with two consumers.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client, other: &Client) -> Check<()> {
    let bag = format!("passes{:x}", random.next());
    let retaining = BagOptions { retain: true, ..BagOptions::default() };
    let made = scene.insist(name, "bag_create", || client.bag_create_with(&bag, true, retaining)).await?;
    let first = made.map_err(|error| Broken(format!("{name}: {error}")))?;
    let second = scene.insist(name, "bag", || other.bag(&bag)).await?;
    let second = second.map_err(|error| Broken(format!("{name}: {error}")))?;
    let (pushed, doubtful, handled, done, numbers) = Default::default();
    let mut passes = Passes { scene, random, name, pushed, doubtful, handled, done, numbers };
    passes.fill(&first, &second, client).await?;
    for pass in 0..PASSES {
        if pass > 0 {
            passes.rewind(&first, &second, client).await?;
        }
        passes.go_through(&first, &second).await?;
    }
    match scene.insist(name, "bag_delete", || client.bag_delete(&bag)).await? {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Broken(format!("{name}: {bag}: {error}"))),
        _ => Ok(()),
    }
}

impl Passes<'_> {
    /// Pushes with one client while the other one consumes, then seals.
    async fn fill(&mut self, bag: &Bag, other: &Bag, client: &Client) -> Check<()> {
        let mut consumer = other.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
        for batch in 0..BATCHES {
            // Devices may have joined.
            let now = self.scene.call(self.name, "bag", client.bag(bag.name())).await?;
            let bag = now.as_ref().unwrap_or(bag);
            let producer = bag.producer(ProducerOptions::default());
            let first = FIRST + 100 * batch;
            let mut sent = BTreeMap::new();
            for number in first..first + 1 + self.random.below(8) {
                let length = 8 + self.random.below(20_000) as usize;
                sent.insert(number, length);
                let bytes = Bytes::from(chunk_bytes(number, length));
                if self.scene.call(self.name, "push", producer.push(bytes)).await?.is_err() {
                    break;
                }
            }
            match self.scene.call(self.name, "push_flush", producer.flush()).await? {
                Ok(()) => self.pushed.append(&mut sent),
                Err(_) => self.doubtful.append(&mut sent),
            }
            for _ in 0..self.random.below(6) {
                if let Ok(Some(chunk)) = self.scene.call(self.name, "pull", consumer.pull()).await? {
                    self.acknowledge(chunk)?;
                }
            }
            let results = self.flush(&mut consumer).await?;
            self.learn(results)?;
            tokio::time::sleep(Duration::from_millis(self.random.below(1_500))).await;
        }
        let sealed = self.scene.insist(self.name, "bag_seal", || bag.seal()).await?;
        sealed.map(drop).map_err(|error| Broken(format!("{}: seal: {error}", self.name)))
    }

    /// Two consumers take turns until each is told that this is the end.
    async fn go_through(&mut self, first: &Bag, second: &Bag) -> Check<()> {
        let options = ConsumerOptions::default();
        let mut consumers = [first.consumer(options), second.consumer(options)];
        let mut ended = [false; 2];
        let begun = self.scene.clock.now();
        let accepted = self.handled.iter().filter(|(_, handled)| handled.accepted > 0);
        self.done = accepted.map(|(number, _)| *number).collect();
        while ended != [true; 2] {
            if self.scene.clock.now().since(begun) > PASS_BOUND {
                return Err(Broken(format!("{}: a pass does not end within {} s", self.name, PASS_BOUND.as_secs())));
            }
            let turn = self.random.below(2) as usize;
            let consumer = &mut consumers[turn];
            let patience = Duration::from_millis(20 + self.random.below(2_000));
            self.scene.count("pull");
            match tokio::time::timeout(patience, consumer.pull()).await {
                Ok(Ok(Some(chunk))) if self.random.one_in(10) => drop(chunk),
                Ok(Ok(Some(chunk))) => self.acknowledge(chunk)?,
                Ok(Ok(None)) => ended[turn] = true,
                Ok(Err(error)) if error.kind() == ErrorKind::Corrupt => {
                    return Err(Broken(format!("{}: pull: {error}", self.name)));
                }
                Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(500)).await,
                Err(_) => (),
            }
        }
        for consumer in &mut consumers {
            let results = self.flush(consumer).await?;
            self.learn(results)?;
        }
        for number in self.pushed.keys() {
            let handled = self.handled.get(number).copied().unwrap_or_default();
            let is_known = handled.unsure == 0;
            self.scene.count(if is_known { "chunks accounted for" } else { "chunks whose fate is not known" });
            if handled.accepted == 0 && handled.unsure == 0 {
                return Err(Broken(format!("{}: the pass ended before chunk {number} was handled", self.name)));
            }
        }
        Ok(())
    }

    /// Begins a new pass while some chunks are in somebody's hands: nothing that is said of them afterwards counts.
    async fn rewind(&mut self, bag: &Bag, other: &Bag, client: &Client) -> Check<()> {
        self.rewound(bag, client).await?;
        let mut consumer = other.consumer(ConsumerOptions::default());
        let mut held = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            match tokio::time::timeout(Duration::from_secs(2), consumer.pull()).await {
                Ok(Ok(Some(chunk))) => held.push(chunk),
                _ => break,
            }
        }
        self.rewound(bag, client).await?;
        let late: Vec<ChunkId> = held.iter().map(|chunk| chunk.id).collect();
        held.into_iter().for_each(Chunk::acknowledge);
        let results = self.flush(&mut consumer).await?;
        if let Some(chunk) = results.accepted.iter().find(|chunk| late.contains(*chunk)) {
            let text = format!("{}: chunk {chunk} was acknowledged for a pass that was over", self.name);
            return Err(Broken(text));
        }
        self.scene.count_more("late acknowledgements refused", results.refused.len() as u64);
        Ok(())
    }

    async fn rewound(&mut self, bag: &Bag, client: &Client) -> Check<()> {
        let rewound = self.scene.insist(self.name, "bag_rewind", || client.bag_rewind(bag.name())).await?;
        rewound.map_err(|error| Broken(format!("{}: rewind: {error}", self.name)))?;
        self.handled.clear();
        self.done.clear();
        Ok(())
    }

    fn acknowledge(&mut self, chunk: Chunk) -> Check<()> {
        let number = chunk_number(&chunk.bytes).unwrap_or_default();
        let Some(length) = self.pushed.get(&number).or(self.doubtful.get(&number)) else {
            return Err(Broken(format!("{}: chunk {} was never pushed to this bag", self.name, chunk.id)));
        };
        self.scene.count_more("bytes compared", chunk.bytes.len() as u64);
        if chunk.bytes != chunk_bytes(number, *length) {
            return Err(Broken(format!("{}: chunk {number} has other bytes than were pushed", self.name)));
        }
        if self.done.contains(&number) {
            return Err(Broken(format!("{}: chunk {number} came back after its acknowledgement", self.name)));
        }
        let handled = self.handled.entry(number).or_default();
        handled.unsure += 1;
        self.scene.say(|| format!("{}: acknowledges {number}, {}", self.name, chunk.id));
        self.numbers.insert(chunk.id, number);
        self.scene.count("acknowledge");
        chunk.acknowledge();
        Ok(())
    }

    async fn flush(&mut self, consumer: &mut Consumer) -> Check<Acknowledged> {
        let flush = async { Ok(consumer.flush().await) };
        let results = self.scene.call(self.name, "acknowledge_flush", flush).await?;
        results.map_err(|error| Broken(error.to_string()))
    }

    /// Notes how acknowledgements of this pass fared.
    fn learn(&mut self, results: Acknowledged) -> Check<()> {
        for id in results.accepted {
            let Some(number) = self.numbers.get(&id) else { continue };
            let handled = self.handled.entry(*number).or_default();
            handled.unsure = handled.unsure.saturating_sub(1);
            handled.accepted += 1;
            if handled.accepted > 1 {
                return Err(Broken(format!("{}: chunk {number} was acknowledged twice in a pass", self.name)));
            }
        }
        for refusal in results.refused {
            let certain = matches!(refusal.error.kind(), ErrorKind::Stale | ErrorKind::NotFound);
            if let (true, Some(number)) = (certain, self.numbers.get(&refusal.chunk)) {
                let handled = self.handled.entry(*number).or_default();
                handled.unsure = handled.unsure.saturating_sub(1);
            }
        }
        Ok(())
    }
}
