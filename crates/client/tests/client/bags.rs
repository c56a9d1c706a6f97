//! Bags: handled at least once, acknowledged exactly once, and the end is never early.

use crate::fake::{Fake, Faults};
use base::error::ErrorKind;
use base::id::ChunkId;
use base::policy::Compression;
use bytes::Bytes;
use client::{Acknowledged, Bag, BagOptions, ConsumerOptions, ProducerOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

fn chunk(producer: u64, number: u64) -> Bytes {
    Bytes::from(format!("{producer}:{number}"))
}

async fn produce(bag: Bag, producer: u64, count: u64) {
    let pushing = bag.producer(ProducerOptions { window: 100, ..ProducerOptions::default() });
    for number in 0..count {
        pushing.push(chunk(producer, number)).await.expect("admitted");
    }
    pushing.flush().await.expect("synced");
}

/// Pulls to the end. Drops one chunk in `forget` unacknowledged, and is slow with some.
async fn consume(fake: Arc<Fake>, bag: Bag, forget: u64) -> (BTreeMap<ChunkId, Bytes>, Acknowledged) {
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let (mut seen, mut results) = (BTreeMap::new(), Acknowledged::default());
    while let Some(chunk) = consumer.pull().await.expect("pulled") {
        seen.insert(chunk.id, chunk.bytes.clone());
        if fake.random.one_in(40) {
            tokio::time::sleep(Duration::from_secs(45)).await;
        }
        if forget == 0 || !fake.random.one_in(forget) {
            chunk.acknowledge();
        }
        if fake.random.one_in(20) {
            let some = consumer.flush().await;
            results.accepted.extend(some.accepted);
            results.refused.extend(some.refused);
        }
    }
    let rest = consumer.flush().await;
    results.accepted.extend(rest.accepted);
    results.refused.extend(rest.refused);
    (seen, results)
}

/// Many producers and consumers at once, with delays, lost answers, full devices, slow and forgetful consumers: each
/// chunk is acknowledged exactly once, all of them are, and no consumer ends while a producer still pushes.
#[tokio::test(start_paused = true)]
async fn exactly_once() {
    for seed in 0..6 {
        let fake = Fake::new(seed);
        let bag = fake.client().bag_create("work", false).await.expect("new");
        let delay_max = Duration::from_millis(20 * (seed % 3));
        fake.fail(|faults| *faults = Faults { delay_max, lose_one_in: 4, full: 10, ..Faults::default() });
        let consumers: Vec<_> = (0..4)
            .map(|number| {
                let (fake, client) = (fake.clone(), fake.client());
                tokio::spawn(async move {
                    let bag = client.bag("work").await.expect("it was made");
                    consume(fake, bag, if number % 2 == 0 { 0 } else { 15 }).await
                })
            })
            .collect();
        let producers: Vec<_> = (0..3).map(|number| tokio::spawn(produce(bag.clone(), number, 70))).collect();
        for producer in producers {
            producer.await.expect("no panic");
        }
        // Idle for a while: consumers must not take a quiet bag for one at its end.
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(consumers.iter().all(|consumer| !consumer.is_finished()), "seed {seed}: an early end");
        produce(bag.clone(), 3, 70).await;
        bag.seal().await.expect("sealed");
        let mut accepted: BTreeMap<Bytes, u32> = BTreeMap::new();
        for consumer in consumers {
            let (seen, results) = consumer.await.expect("no panic");
            for chunk in results.accepted {
                *accepted.entry(seen[&chunk].clone()).or_default() += 1;
            }
        }
        for producer in 0..4 {
            for number in 0..70 {
                let count = accepted.remove(&chunk(producer, number));
                assert_eq!(count, Some(1), "seed {seed}: chunk {number} of producer {producer}");
            }
        }
        assert_eq!(accepted, BTreeMap::new(), "seed {seed}: chunks that nobody pushed");
    }
}

/// What a device says that was not told of the present pass is neither an end nor a chunk: it is told, and every chunk is given in the
/// pass. The first consumer has ended the pass before; the second comes after a rewind that no device heard of.
#[tokio::test(start_paused = true)]
async fn pass_that_devices_do_not_know() {
    let fake = Fake::new(9);
    let client = fake.client();
    let options = BagOptions { retain: true, ..BagOptions::default() };
    produce(client.bag_create_with("work", false, options).await.expect("new"), 0, 30).await;
    client.bag_seal("work").await.expect("sealed");
    for pass in 0..3 {
        let mut consumer = client.bag("work").await.expect("it was made").consumer(ConsumerOptions::default());
        let mut seen = Vec::new();
        while let Some(chunk) = consumer.pull().await.expect("pulled") {
            assert_eq!(chunk.pass, pass);
            seen.push(chunk.id);
            chunk.acknowledge();
        }
        let results = consumer.flush().await;
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len(), results.accepted.len(), results.refused.len()), (30, 30, 0), "pass {pass}");
        fake.state().bags.values_mut().for_each(|bag| bag.pass += 1);
    }
}

/// Devices that took a seal, said so, and lost it with their power before it was recorded take chunks again: a consumer that had
/// believed them gets those chunks.
#[tokio::test(start_paused = true)]
async fn seal_that_was_lost() {
    let fake = Fake::new(10);
    let client = fake.client();
    let bag = client.bag_create("work", false).await.expect("new");
    let seal = |sealed| {
        let mut state = fake.state();
        let members = state.bags.values_mut().flat_map(|bag| bag.members.values_mut());
        members.for_each(|member| member.sealed = sealed);
    };
    seal(true);
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let consuming = tokio::spawn(async move {
        let mut count = 0;
        while let Some(chunk) = consumer.pull().await.expect("pulled") {
            chunk.acknowledge();
            count += 1;
        }
        count
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!consuming.is_finished());
    seal(false);
    produce(bag.clone(), 0, 20).await;
    bag.seal().await.expect("sealed");
    assert_eq!(consuming.await.expect("no panic"), 20);
}

/// Without waiting, the end is when every device had nothing; chunks that come later are found by asking again.
#[tokio::test(start_paused = true)]
async fn without_waiting() {
    let fake = Fake::new(2);
    let bag = fake.client().bag_create("work", false).await.expect("new");
    let mut consumer = bag.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
    assert!(consumer.pull().await.expect("asked").is_none());
    for round in 0..3 {
        produce(bag.clone(), round, 20).await;
        for _ in 0..20 {
            consumer.pull().await.expect("asked").expect("there are twenty").acknowledge();
        }
        assert!(consumer.pull().await.expect("asked").is_none(), "round {round}");
    }
    let results = consumer.flush().await;
    assert_eq!((results.accepted.len(), results.refused.len()), (60, 0));
    bag.seal().await.expect("sealed");
    assert!(consumer.pull().await.expect("asked").is_none());
}

/// A chunk is renewed while it is held, given to somebody else once it is dropped, and an acknowledgement that comes
/// after its grant ended is refused.
#[tokio::test(start_paused = true)]
async fn grants() {
    let fake = Fake::new(3);
    let (mine, other) = (fake.client(), fake.client());
    let bag = mine.bag_create("work", false).await.expect("new");
    produce(bag.clone(), 0, 1).await;
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let held = consumer.pull().await.expect("asked").expect("there is one");
    tokio::time::sleep(Duration::from_secs(200)).await;
    let mut second = other.bag("work").await.expect("it was made").consumer(ConsumerOptions {
        wait: false,
        window: Some(1),
        ..ConsumerOptions::default()
    });
    assert!(second.pull().await.expect("asked").is_none(), "the grant was not renewed");
    drop(held);
    tokio::time::sleep(Duration::from_secs(31)).await;
    let again = match second.pull().await.expect("asked") {
        Some(chunk) => chunk,
        // The first consumer still has pulls open and may have got it again: then it lets go of it for good.
        None => {
            drop(consumer);
            tokio::time::sleep(Duration::from_secs(31)).await;
            second.pull().await.expect("asked").expect("it was dropped")
        }
    };
    // Renewals are lost while the node is unreachable, so the grant ends and the chunk goes to somebody else.
    fake.fail(|faults| faults.unreachable = true);
    tokio::time::sleep(Duration::from_secs(45)).await;
    fake.fail(|faults| faults.unreachable = false);
    let mut third = other.bag("work").await.expect("it was made").consumer(ConsumerOptions {
        wait: false,
        window: Some(1),
        ..ConsumerOptions::default()
    });
    let theirs = third.pull().await.expect("asked").expect("the grant has ended");
    again.acknowledge();
    let results = second.flush().await;
    assert_eq!(results.accepted, []);
    assert_eq!(results.refused[0].error.kind(), ErrorKind::Stale);
    let id = theirs.id;
    theirs.acknowledge();
    assert_eq!(third.flush().await.accepted, [id]);
}

/// An acknowledgement is sent at most 100 ms late, in company, and also when its consumer is gone.
#[tokio::test(start_paused = true)]
async fn acknowledgements_travel_together() {
    let fake = Fake::new(4);
    let bag = fake.client().bag_create("work", false).await.expect("new");
    produce(bag.clone(), 0, 30).await;
    let mut consumer = bag.consumer(ConsumerOptions { wait: false, window: Some(40), ..ConsumerOptions::default() });
    let mut chunks = Vec::new();
    while let Some(chunk) = consumer.pull().await.expect("asked") {
        chunks.push(chunk);
    }
    let late = chunks.split_off(20);
    chunks.into_iter().for_each(|chunk| chunk.acknowledge());
    tokio::time::sleep(Duration::from_millis(110)).await;
    assert_eq!(bag.stat().await.expect("there").acknowledged, 20);
    let calls = fake.state().calls[&71];
    assert!(calls <= 3, "{calls} messages for three devices");
    drop(consumer);
    late.into_iter().for_each(|chunk| chunk.acknowledge());
    tokio::time::sleep(Duration::from_millis(110)).await;
    assert_eq!(bag.stat().await.expect("there").acknowledged, 30);
}

/// While chunks come one after another, acknowledgements go sixteen at a time to each device, not with every pull.
#[tokio::test(start_paused = true)]
async fn acknowledgements_wait_for_company() {
    let fake = Fake::new(6);
    let bag = fake.client().bag_create("work", false).await.expect("new");
    produce(bag.clone(), 0, 480).await;
    let mut consumer = bag.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
    while let Some(chunk) = consumer.pull().await.expect("asked") {
        chunk.acknowledge();
    }
    assert_eq!(consumer.flush().await.accepted.len(), 480);
    let calls = fake.state().calls[&71];
    // Thirty of sixteen, and the last ones of three devices.
    assert!(calls <= 36, "{calls} messages for 480 acknowledgements");
}

/// A sealed bag, a bag of no room and an unreachable node are errors that stay; pushes spread over the devices.
#[tokio::test(start_paused = true)]
async fn producers() {
    let fake = Fake::new(5);
    let client = fake.client();
    let bag = client.bag_create("work", false).await.expect("new");
    assert_eq!(client.bag_create("work", false).await.err().map(|error| error.kind()), Some(ErrorKind::Exists));
    assert!(client.bag_exists("work").await.expect("asked") && !client.bag_exists("other").await.expect("asked"));
    produce(bag.clone(), 0, 300).await;
    for (device, member) in &fake.state().bags.values().next().expect("one bag").members {
        assert!((90..=110).contains(&member.pushed), "device {device} got {} of 300", member.pushed);
    }
    let empty = bag.producer(ProducerOptions::default()).push(Bytes::new()).await;
    assert_eq!(empty.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
    let producer = bag.producer(ProducerOptions::default());
    fake.fail(|faults| faults.full = u32::MAX);
    producer.push(chunk(1, 1)).await.expect("admitted");
    assert_eq!(producer.flush().await.map_err(|error| error.kind()), Err(ErrorKind::Full));
    fake.fail(|faults| faults.full = 0);
    assert_eq!(producer.push(chunk(1, 2)).await.map_err(|error| error.kind()), Err(ErrorKind::Full), "errors stay");
    bag.seal().await.expect("sealed");
    let producer = bag.producer(ProducerOptions::default());
    producer.push(chunk(1, 3)).await.expect("admitted");
    assert_eq!(producer.flush().await.map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// A device that remembers too much of what has no answer is asked again: every chunk is pushed and acknowledged once.
#[tokio::test(start_paused = true)]
async fn a_crowded_device_is_asked_again() {
    let fake = Fake::new(12);
    let bag = fake.client().bag_create("work", false).await.expect("new");
    fake.fail(|faults| faults.crowded = 40);
    produce(bag.clone(), 0, 30).await;
    assert_eq!(fake.state().faults.crowded, 0);
    let mut consumer = bag.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
    fake.fail(|faults| faults.crowded = 10);
    while let Some(chunk) = consumer.pull().await.expect("asked") {
        chunk.acknowledge();
    }
    let acknowledged = consumer.flush().await;
    assert_eq!((acknowledged.accepted.len(), acknowledged.refused.len()), (30, 0));
    assert_eq!(fake.state().faults.crowded, 0);
}

/// What a device refuses for good, because the bag has left it, is pushed to others: every chunk is in the bag once. Refused because the
/// bag is sealed, it ends the producer with words, and no device has it.
#[tokio::test(start_paused = true)]
async fn what_a_device_refuses() {
    let fake = Fake::new(11);
    let bag = fake.client().bag_create("work", false).await.expect("new");
    let stored = || {
        let state = fake.state();
        let members = state.bags.values().next().expect("one bag").members.values();
        members.map(|member| member.chunks.len()).collect::<Vec<_>>()
    };
    produce(bag.clone(), 0, 30).await;
    let before = stored()[1];
    assert!(before > 0);
    let producer = bag.producer(ProducerOptions { window: 100, ..ProducerOptions::default() });
    fake.fail(|faults| faults.left = Some(2));
    for number in 0..30 {
        producer.push(chunk(1, number)).await.expect("admitted");
    }
    producer.flush().await.expect("elsewhere");
    let after = stored();
    assert_eq!((after[1], after.iter().sum::<usize>()), (before, 60), "{after:?}");
    assert!(fake.state().calls[&69] > 60, "the device was asked and refused");
    bag.seal().await.expect("sealed");
    producer.push(chunk(1, 30)).await.expect("admitted");
    let error = producer.flush().await.expect_err("sealed");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    assert!(error.text().contains("push to bag work") && error.text().contains("no more chunks"), "{error}");
    assert_eq!(stored(), after, "nothing more is there");
}

/// A chunk that is damaged where it lies compressed is an error that names it; it is not acknowledged, and the others still come.
#[tokio::test]
async fn damage_of_a_compressed_chunk_is_told() {
    let fake = Fake::new(1);
    let options = BagOptions { compression: Some(Compression::Lz4), ..BagOptions::default() };
    let bag = fake.client().bag_create_with("b", false, options).await.expect("new");
    let producer = bag.producer(ProducerOptions::default());
    for number in 0..5 {
        producer.push(Bytes::from(vec![number; 100_000])).await.expect("admitted");
    }
    producer.flush().await.expect("synced");
    let damaged = fake.damage_stored_chunk();
    bag.seal().await.expect("sealed");
    let mut consumer = bag.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
    let (mut whole, mut told) = (0, 0);
    while whole < 4 || told == 0 {
        match consumer.pull().await {
            Ok(Some(chunk)) => {
                assert!(chunk.bytes.len() == 100_000 && chunk.id.0 != damaged);
                assert!(chunk.bytes.iter().all(|byte| *byte == chunk.bytes[0]));
                chunk.acknowledge();
                whole += 1;
            }
            Ok(None) => panic!("ended with {whole} chunks and {told} errors"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
                assert!(error.text().contains(&format!("chunk {}", ChunkId(damaged))), "{error:?}");
                told += 1;
            }
        }
    }
    let acknowledged = consumer.flush().await;
    assert_eq!((acknowledged.accepted.len(), acknowledged.refused.len()), (4, 0));
    assert!(!acknowledged.accepted.contains(&ChunkId(damaged)));
}
