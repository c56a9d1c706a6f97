//! Bags that are sealed while pushes are on their way to disks that sync data late: nobody may be told of the end of one before every
//! chunk that was taken was given to somebody.

use super::format::{chunk_bytes, chunk_number};
use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::{Clock, Random};
use base::error::ErrorKind;
use bytes::Bytes;
use client::{Bag, Client, ConsumerOptions, ProducerOptions};
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Numbers of its chunks, apart from those of other bags.
const FIRST: u64 = 1 << 51;

/// Seals so many bags.
const BAGS: u64 = 6;

/// Longest time that syncs of data take meanwhile, in milliseconds.
const LATE_MAX: u64 = 600;

/// Longest wait for the end of a bag: several outages, one after the other.
const END_BOUND: Duration = Duration::from_secs(600);

/// Longest wait for one chunk.
const PATIENCE: Duration = Duration::from_secs(10);

/// While it is there, syncs of data are late.
struct Late(Arc<AtomicU64>);

impl Late {
    fn begin(scene: &Scene, milliseconds: u64) -> Late {
        scene.late_syncs.store(milliseconds, Ordering::Relaxed);
        Late(scene.late_syncs.clone())
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Fills and seals one bag after another, while somebody else consumes it.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client, other: &Client) -> Check<()> {
    let broken = |error| Broken(format!("{name}: {error}"));
    for _ in 0..BAGS {
        tokio::time::sleep(Duration::from_millis(random.below(2_000))).await;
        let bag = format!("sealing{:x}", random.next());
        let made = scene.insist(name, "bag_create", || client.bag_create(&bag, true)).await?.map_err(broken)?;
        let found = scene.insist(name, "bag", || other.bag(&bag)).await?.map_err(broken)?;
        let late = Late::begin(scene, 1 + random.below(LATE_MAX));
        let (filled, given) = tokio::join!(fill(scene, random, name, &made), to_the_end(scene, name, &found));
        drop(late);
        let (taken, given) = (filled?, given?);
        scene.count_more("chunks taken while a bag was sealed", taken.len() as u64);
        if let Some(number) = taken.difference(&given).next() {
            return Err(Broken(format!(
                "{name}: {bag} ended before chunk {number}, which it took, was given to anybody"
            )));
        }
        match scene.insist(name, "bag_delete", || client.bag_delete(&bag)).await? {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(broken(error)),
            _ => (),
        }
    }
    Ok(())
}

/// Pushes a few chunks and seals the bag before they can be durable. Those that were taken.
async fn fill(scene: &Scene, random: &SimRandom, name: &str, bag: &Bag) -> Check<BTreeSet<u64>> {
    let numbers = FIRST..FIRST + 1 + random.below(4);
    let mut pushes = Vec::new();
    for number in numbers.clone() {
        // One each: of several that were pushed together it is not known which one was taken.
        let producer = bag.producer(ProducerOptions::default());
        let bytes = Bytes::from(chunk_bytes(number, 8 + random.below(30_000) as usize));
        if scene.call(name, "push", producer.push(bytes)).await?.is_ok() {
            pushes.push((number, producer));
        }
    }
    tokio::time::sleep(Duration::from_millis(random.below(30))).await;
    let sealed = scene.insist(name, "bag_seal", || bag.seal()).await?;
    sealed.map_err(|error| Broken(format!("{name}: seal: {error}")))?;
    let mut taken = BTreeSet::new();
    for (number, producer) in pushes {
        if scene.call(name, "push_flush", producer.flush()).await?.is_ok() {
            taken.insert(number);
        }
    }
    Ok(taken)
}

/// Consumes until it is told that this is the end. What it was given.
async fn to_the_end(scene: &Scene, name: &str, bag: &Bag) -> Check<BTreeSet<u64>> {
    let begun = scene.clock.now();
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let mut given = BTreeSet::new();
    loop {
        scene.count("pull");
        match tokio::time::timeout(PATIENCE, consumer.pull()).await {
            Ok(Ok(Some(chunk))) => {
                given.extend(chunk_number(&chunk.bytes));
                scene.count("acknowledge");
                chunk.acknowledge();
            }
            Ok(Ok(None)) => return Ok(given),
            Ok(Err(error)) if error.kind() == ErrorKind::Corrupt => {
                return Err(Broken(format!("{name}: pull: {error}")));
            }
            other if scene.clock.now().since(begun) > END_BOUND => {
                let what = other.map(|pulled| pulled.err());
                return Err(Broken(format!("{name}: {} is sealed and does not end: {what:?}", bag.name())));
            }
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(500)).await,
            Err(_) => (),
        }
    }
}
