//! Bags that come and go while everything else happens: each is made, filled, sealed, emptied in part and deleted. Once that was
//! acknowledged it is not there any more, and its chunks' space has to come back.

use super::oracle::{Broken, Check};
use super::scene::Scene;
use base::env::Random;
use base::error::ErrorKind;
use bytes::Bytes;
use client::{Client, ConsumerOptions, ProducerOptions};
use sim::random::SimRandom;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Makes and deletes so many bags.
const BAGS: u64 = 8;

/// Makes bags and deletes them again.
pub async fn play(scene: &Arc<Scene>, random: &SimRandom, name: &str, client: &Client) -> Check<()> {
    let mut gone = BTreeSet::new();
    for _ in 0..BAGS {
        tokio::time::sleep(Duration::from_millis(random.below(3_000))).await;
        let bag = format!("passing{:x}", random.next());
        fill_and_empty(scene, random, name, client, &bag).await?;
        let deleted = scene.insist(name, "bag_delete", || client.bag_delete(&bag)).await?;
        match deleted {
            Ok(()) => (),
            // An attempt whose answer was lost did it.
            Err(error) if error.kind() == ErrorKind::NotFound => (),
            Err(error) => return Err(Broken(format!("{name}: {bag}: {error}"))),
        }
        gone.insert(bag);
        let listed = scene.insist(name, "bag_list", || client.bag_list()).await?;
        let listed = listed.map_err(|error| Broken(format!("{name}: {error}")))?;
        if let Some(back) = listed.iter().find(|info| gone.contains(&info.name)) {
            return Err(Broken(format!("{name}: {} was deleted and is in the list of bags", back.name)));
        }
    }
    Ok(())
}

/// Deletes the bags of players that were ended between making and deleting one.
pub async fn end(scene: &Scene, name: &str, client: &Client) -> Check<()> {
    let broken = |error| Broken(format!("{name}: {error}"));
    let listed = scene.insist(name, "bag_list", || client.bag_list()).await?.map_err(broken)?;
    for bag in listed {
        match scene.insist(name, "bag_delete", || client.bag_delete(&bag.name)).await? {
            // Its player was just about to.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(broken(error)),
            _ => (),
        }
    }
    Ok(())
}

async fn fill_and_empty(scene: &Scene, random: &SimRandom, name: &str, client: &Client, bag: &str) -> Check<()> {
    let made = scene.insist(name, "bag_create", || client.bag_create(bag, true)).await?;
    let bag = made.map_err(|error| Broken(format!("{name}: {error}")))?;
    let producer = bag.producer(ProducerOptions::default());
    for _ in 0..random.below(5) {
        let bytes = Bytes::from(vec![7; 1 + random.below(60_000) as usize]);
        if scene.call(name, "push", producer.push(bytes)).await?.is_err() {
            return Ok(());
        }
    }
    drop(scene.call(name, "push_flush", producer.flush()).await?);
    if random.one_in(2) {
        drop(scene.call(name, "bag_seal", bag.seal()).await?);
    }
    let mut consumer = bag.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
    for _ in 0..random.below(4) {
        match scene.call(name, "pull", consumer.pull()).await? {
            Ok(Some(chunk)) => chunk.acknowledge(),
            _ => break,
        }
    }
    let flush = async { Ok(consumer.flush().await) };
    drop(scene.call(name, "acknowledge_flush", flush).await?);
    Ok(())
}
