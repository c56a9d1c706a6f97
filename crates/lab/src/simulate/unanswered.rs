//! Pushes whose answers do not come: the way back to a producer is cut, others handle its chunks and many more, and in a cluster the
//! device is emptied and leaves meanwhile. Whatever the producer asks then, no chunk comes twice.

use super::format::{chunk_bytes, chunk_number};
use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::id::ChunkId;
use bytes::Bytes;
use client::{Bag, Client, Consumer, ConsumerOptions, Producer, ProducerOptions};
use net::message::Id;
use sim::net::SimNet;
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Numbers of its chunks, apart from those of other bags.
const FIRST: u64 = 1 << 52;

/// Bags that it is tried with.
const ROUNDS: u64 = 4;

/// Chunks that are handled while the answers do not come, at the most: far more than the small memory of the planted fault.
const OTHERS_MAX: u64 = 12;

/// Longest wait for one chunk.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest wait until a device is emptied and gone. A producer asks again for a minute.
const LEAVE_BOUND: Duration = Duration::from_secs(50);

/// Longest wait for the end of a bag: several outages, one after the other.
const END_BOUND: Duration = Duration::from_secs(600);

struct Unanswered<'a> {
    scene: &'a Arc<Scene>,
    random: &'a SimRandom,
    name: &'a str,
    /// The one that is answered.
    client: &'a Client,
    /// Numbers by the chunks that have them, and those whose acknowledgement was accepted.
    numbers: BTreeMap<ChunkId, u64>,
    handled: BTreeSet<u64>,
    next: u64,
}

/// Cuts a producer off from its answers, again and again.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let mut play =
        Unanswered { scene, random, name, client, numbers: BTreeMap::new(), handled: BTreeSet::new(), next: FIRST };
    for round in 0..ROUNDS {
        tokio::time::sleep(Duration::from_millis(random.below(2_000))).await;
        // A device that leaves is gone for good, or comes back as a new one.
        let leaves = round == 0 && random.one_in(2);
        // A machine of this round alone: one that is cut short does not mend its link, and a session may be over.
        let deaf = format!("deaf {round} {}", name.replace('.', "-"));
        let (producer, host) = scene.connect(&deaf, &random.fork(&deaf)).await?;
        play.round(&producer, (&host, &deaf), leaves).await?;
    }
    Ok(())
}

impl Unanswered<'_> {
    async fn round(&mut self, deaf: &Client, (host, machine): (&SimNet, &str), leaves: bool) -> Check<()> {
        let name = format!("unanswered{:x}", self.random.next());
        let broken = |error| Broken(format!("{}: {error}", self.name));
        let made = self.scene.insist(self.name, "bag_create", || self.client.bag_create(&name, true)).await?;
        let mine = made.map_err(broken)?;
        let Ok(theirs) = self.scene.call(self.name, "bag", deaf.bag(&name)).await? else { return Ok(()) };
        let Some((keeper_machine, device)) = self.one_machine(&mine).await? else { return Ok(()) };
        self.scene.net.cut_link(&keeper_machine, machine, false);
        let producer = theirs.producer(ProducerOptions { planted: self.scene.planted(), ..ProducerOptions::default() });
        // So many that some come to lie where the answers do not come from.
        for _ in 0..1 + self.random.below(8) {
            drop(self.scene.call(self.name, "push", self.push(&producer)).await?);
            self.next += 1;
        }
        let mut consumer = mine.consumer(ConsumerOptions::default());
        self.consume(&mut consumer, 12).await?;
        let others = mine.producer(ProducerOptions::default());
        for _ in 0..self.random.below(OTHERS_MAX) {
            drop(self.scene.call(self.name, "push", self.push(&others)).await?);
            self.next += 1;
        }
        drop(self.scene.call(self.name, "push_flush", others.flush()).await?);
        self.consume(&mut consumer, 12).await?;
        if leaves {
            self.leave(device, &mut consumer).await?;
        }
        if self.random.one_in(2) {
            host.cut_all();
        }
        self.scene.net.mend_link(&keeper_machine, machine);
        // Answered or not: what matters is what comes of it.
        drop(self.scene.call(self.name, "push_flush", producer.flush()).await?);
        drop(producer);
        let sealed = self.scene.insist(self.name, "bag_seal", || mine.seal()).await?;
        sealed.map_err(|error| Broken(format!("{}: seal: {error}", self.name)))?;
        self.pull_to_end(&mut consumer, &name).await?;
        self.scene.count("bags with unanswered pushes");
        match self.scene.insist(self.name, "bag_delete", || self.client.bag_delete(&name)).await? {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Broken(format!("{}: {error}", self.name))),
            _ => Ok(()),
        }
    }

    async fn push(&self, producer: &Producer) -> base::error::Result<()> {
        let length = 8 + self.random.below(9_000) as usize;
        producer.push(Bytes::from(chunk_bytes(self.next, length))).await
    }

    /// A machine that has a device of the bag, and which one; of a cluster one that does not keep the metadata.
    async fn one_machine(&self, bag: &Bag) -> Check<Option<(String, Id)>> {
        let machine = |address: &str| address.split_once(':').map_or(address, |(machine, _)| machine).to_string();
        let stat = self.scene.insist(self.name, "bag_stat", || bag.stat()).await?;
        let members = stat.map_err(|error| Broken(format!("{}: {error}", self.name)))?.members;
        if let Some(address) = self.scene.only_address() {
            let device = members.get(self.random.below(members.len().max(1) as u64) as usize);
            return Ok(device.map(|device| (machine(&address), *device)));
        }
        let view = self.scene.insist(self.name, "view", || self.client.view()).await?;
        let view = view.map_err(|error| Broken(format!("{}: {error}", self.name)))?;
        let away = view.members.iter().filter(|member| member.node.node != view.keeper);
        let places: Vec<(String, Id)> = away
            .flat_map(|member| member.devices.iter().map(|device| (machine(&member.node.address), *device)))
            .filter(|(_, device)| members.contains(device))
            .collect();
        Ok(places.get(self.random.below(places.len().max(1) as u64) as usize).cloned())
    }

    /// Handles what comes, until so many times nothing did.
    async fn consume(&mut self, consumer: &mut Consumer, most: u64) -> Check<()> {
        for _ in 0..most {
            self.scene.count("pull");
            match tokio::time::timeout(PATIENCE, consumer.pull()).await {
                Ok(Ok(Some(chunk))) => self.take(chunk)?,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => self.may_fail(&error)?,
                Err(_) => break,
            }
        }
        self.learn(consumer).await
    }

    fn may_fail(&self, error: &base::error::Error) -> Check<()> {
        match error.kind() {
            ErrorKind::Corrupt => Err(Broken(format!("{}: pull: {error}", self.name))),
            _ => Ok(()),
        }
    }

    fn take(&mut self, chunk: client::Chunk) -> Check<()> {
        let number = chunk_number(&chunk.bytes).unwrap_or_default();
        self.scene.say(|| format!("{}: pulled {number} as {}", self.name, chunk.id));
        // It may be given again before its acknowledgement arrives. What counts is whose acknowledgement is accepted.
        self.numbers.insert(chunk.id, number);
        self.scene.count("acknowledge");
        chunk.acknowledge();
        Ok(())
    }

    async fn learn(&mut self, consumer: &mut Consumer) -> Check<()> {
        let flush = async { Ok(consumer.flush().await) };
        let results = self.scene.call(self.name, "acknowledge_flush", flush).await?;
        let results = results.map_err(|error| Broken(error.to_string()))?;
        for number in results.accepted.iter().filter_map(|id| self.numbers.get(id)) {
            if !self.handled.insert(*number) {
                return Err(Broken(format!("{}: chunk {number} was acknowledged twice", self.name)));
            }
        }
        Ok(())
    }

    /// Empties the device, and waits until it is gone.
    async fn leave(&mut self, device: Id, consumer: &mut Consumer) -> Check<()> {
        if let Err(error) = self.scene.insist_with_room(self.name, "device_drain", || self.client.drain(device)).await?
        {
            // Too little room elsewhere, or nobody else: nothing was done.
            self.scene.say(|| format!("{}: {error}", self.name));
            return Ok(());
        }
        let begun = self.scene.clock.now();
        while self.scene.clock.now().since(begun) < LEAVE_BOUND {
            self.consume(consumer, 3).await?;
            tokio::time::sleep(Duration::from_millis(self.random.below(800))).await;
            let Ok(found) = self.scene.call(self.name, "devices", self.client.devices()).await? else { continue };
            if !found.devices.iter().any(|known| known.device == device) {
                self.scene.count("devices left beside an unanswered push");
                return Ok(());
            }
        }
        Ok(())
    }

    async fn pull_to_end(&mut self, consumer: &mut Consumer, bag: &str) -> Check<()> {
        let begun = self.scene.clock.now();
        loop {
            self.scene.count("pull");
            match tokio::time::timeout(PATIENCE, consumer.pull()).await {
                Ok(Ok(Some(chunk))) => self.take(chunk)?,
                Ok(Ok(None)) => return self.learn(consumer).await,
                other if self.scene.clock.now().since(begun) > END_BOUND => {
                    let what = other.map(|pulled| pulled.err());
                    return Err(Broken(format!("{}: {bag} is sealed and does not end: {what:?}", self.name)));
                }
                Ok(Err(error)) => {
                    self.may_fail(&error)?;
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(_) => (),
            }
        }
    }
}
