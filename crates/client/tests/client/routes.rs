//! Several nodes: each is asked for what it has, wherever a client comes from and whatever changes meanwhile.

use crate::fake::Fake;
use crate::fake::nodes::Nodes;
use crate::files::{SMALL, content, write};
use base::env::Clock;
use base::error::{ErrorKind, Result};
use base::id::NodeId;
use base::planted::Planted;
use bytes::Bytes;
use client::{Bag, ConsumerOptions, CreateOptions, PackOptions, PackerOptions, ProducerOptions, Scope};
use net::message::{Ask, cluster};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A client may be told of any node. What is on a device is asked of its node, everything else of the node that keeps the
/// metadata, and files and bags go over all of them.
#[tokio::test(start_paused = true)]
async fn devices_are_asked_at_their_nodes() {
    let fake = Fake::new(1);
    let nodes = Nodes::new(&fake, 3).await;
    for (number, at) in ["node1", "node2", "node3"].into_iter().enumerate() {
        let client = nodes.client(at).await.with_sizes(SMALL);
        let bytes = content(500_000, number as u64);
        let path = format!("/large{number}");
        write(&client, &path, &bytes, 40_000).await;
        assert_eq!(client.read_small(&path).await.expect("read"), bytes);
        let mut writer = client.create(&format!("/open{number}"), CreateOptions::default()).await.expect("new");
        writer.write(bytes.slice(..100)).await.expect("written");
        writer.sync().await.expect("synced");
        let reader = client.open(&format!("/open{number}")).await.expect("there");
        assert_eq!(reader.length().await.expect("asked"), 100);
        writer.close().await.expect("closed");
        let mut packer = client.packer(PackerOptions::default());
        for file in 0..20 {
            let options = PackOptions::default();
            packer.put(&format!("/small{number}.{file}"), bytes.slice(..3000), options).await.expect("taken");
        }
        assert!(packer.close().await.expect("put").iter().all(|(_, result)| result.is_ok()));
        let bag = client.bag_create(&format!("bag{number}"), false).await.expect("new");
        let producer = bag.producer(ProducerOptions::default());
        for place in 0..60usize {
            producer.push(bytes.slice(place * 1000..(place + 1) * 1000)).await.expect("admitted");
        }
        producer.flush().await.expect("synced");
        let mut consumer = bag.consumer(ConsumerOptions { wait: false, ..ConsumerOptions::default() });
        let mut pulled = BTreeSet::new();
        while let Some(chunk) = consumer.pull().await.expect("pulled") {
            assert!(pulled.insert(chunk.bytes.clone()));
            chunk.acknowledge();
        }
        assert_eq!((pulled.len(), consumer.flush().await.accepted.len()), (60, 60));
    }
    let state = fake.state();
    assert_eq!(state.astray, 0, "calls came to the wrong node");
    for bag in state.bags.values() {
        assert!(bag.members.values().all(|member| member.pushed > 5), "a device got next to nothing");
    }
}

/// A device that comes after the client did is found by asking who is there; one that nobody has is an error that names it, and
/// however many ask for it, the view is asked for a few times.
#[tokio::test(start_paused = true)]
async fn devices_that_come_later() {
    let fake = Fake::new(2);
    let nodes = Nodes::new(&fake, 2).await;
    let client = nodes.client("node2").await.with_sizes(SMALL);
    write(&client, "/before", &content(200_000, 1), 50_000).await;
    nodes.join(3, "node3").await;
    let bytes = content(700_000, 2);
    write(&client, "/after", &bytes, 50_000).await;
    assert_eq!(client.read_small("/after").await.expect("read"), bytes);
    assert_eq!(fake.state().astray, 0);
    // Its node is taken out of the cluster.
    fake.state().view.members.retain(|member| member.node.node.value() != 3);
    client.view().await.expect("asked");
    let asked = |fake: &Fake| fake.state().calls[&cluster::View::KIND];
    let before = asked(&fake);
    let reads: Vec<_> = (0..50)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.read_small("/after").await })
        })
        .collect();
    for read in reads {
        let error = read.await.expect("no panic").expect_err("its device is nowhere");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.text().contains("no node of the cluster has device"), "{error}");
    }
    let views = asked(&fake) - before;
    assert!(views <= 10, "the view was asked for {views} times");
}

/// A node that comes back at another address is found there, without a word to who reads and writes.
#[tokio::test(start_paused = true)]
async fn a_node_that_moved() {
    let fake = Fake::new(3);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await.with_sizes(SMALL);
    let bytes = content(500_000, 1);
    write(&client, "/file", &bytes, 50_000).await;
    let reader = client.open("/file").await.expect("there");
    nodes.kill("node2");
    nodes.join(2, "elsewhere").await;
    let read = reader.read_at(0, bytes.len() as u64).await.expect("read").concat();
    assert_eq!(Bytes::from(read), bytes);
    let bag = client.bag_create("work", false).await.expect("new");
    let producer = bag.producer(ProducerOptions::default());
    for place in 0..60usize {
        producer.push(bytes.slice(place..place + 10)).await.expect("admitted");
    }
    producer.flush().await.expect("synced");
    assert_eq!(fake.state().astray, 0);
}

/// A file whose node does not answer any more goes on at another one if what is acknowledged of it was synced, small files go elsewhere, and
/// whoever reads on finds them.
#[tokio::test(start_paused = true)]
async fn files_go_on_when_a_node_is_gone() {
    let fake = Fake::new(11);
    let nodes = Nodes::new(&fake, 3).await;
    let (client, reading) = (nodes.client("node1").await.with_sizes(SMALL), nodes.client("node3").await);
    let bytes = content(20_000, 1);
    let mut packer = client.packer(PackerOptions::default());
    let mut files = Vec::new();
    for number in 0..9 {
        let path = format!("/log{number}");
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("new");
        writer.write(bytes.slice(..10_000)).await.expect("written");
        writer.sync().await.expect("synced");
        if number >= 6 {
            writer.write(bytes.slice(10_000..10_100)).await.expect("written");
            writer.hflush().await.expect("visible");
        }
        let reader = reading.open(&path).await.expect("there");
        assert!(reader.read_at(9_000, 100).await.is_ok());
        files.push((writer, reader));
    }
    nodes.kill("node2");
    let (mut went_on, mut lost) = (0, 0);
    for (number, (mut writer, reader)) in files.into_iter().enumerate() {
        let at = writer.position() as usize;
        writer.write(bytes.slice(at..)).await.expect("taken");
        if let Err(error) = writer.sync().await {
            assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
            assert!(error.text().contains("bytes 10000 to 10100 of /log"), "{error}");
            lost += 1;
            continue;
        }
        assert!(number < 6 || reader.read_at(0, 100).await.is_ok());
        let behind = reader.read_at(at as u64, 20_000).await.expect("read").concat();
        assert_eq!(Bytes::from(behind), bytes.slice(at..));
        went_on += u64::from(reader.read_at(0, 100).await.is_err());
        let attributes = writer.close().await.expect("closed");
        assert_eq!(attributes.length, 20_000);
    }
    assert_eq!((went_on, lost), (2, 1), "each third one was on that node");
    for file in 0..20 {
        let options = PackOptions::default();
        packer.put(&format!("/small{file}"), bytes.slice(..3000), options).await.expect("taken");
    }
    assert!(packer.close().await.expect("put").iter().all(|(_, result)| result.is_ok()));
}

/// What is on a node that does not answer is an error that names the node; the rest is read and written.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_gone() {
    let fake = Fake::new(4);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node3").await.with_sizes(SMALL);
    let paths: Vec<String> = (0..9).map(|number| format!("/file{number}")).collect();
    for path in &paths {
        write(&client, path, &content(1000, 1), 1000).await;
    }
    nodes.kill("node2");
    let began = fake.clock.now();
    let mut lost = 0;
    for path in &paths {
        match client.read_small(path).await {
            Ok(bytes) => assert_eq!(bytes, content(1000, 1)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unreachable);
                assert!(error.text().contains("node n2"), "{error}");
                lost += 1;
            }
        }
    }
    assert_eq!(lost, 3);
    let took = fake.clock.now().since(began);
    assert!(took < Duration::from_secs(3 * 12), "{took:?} for three files");
}

fn numbered(number: u64) -> Bytes {
    Bytes::from(format!("chunk {number}"))
}

/// Pulls and acknowledges everything until the end, and answers with what was acknowledged.
async fn consume(bag: Bag) -> BTreeMap<Bytes, u32> {
    let mut consumer = bag.consumer(ConsumerOptions::default());
    let (mut seen, mut accepted) = (BTreeMap::new(), BTreeMap::new());
    while let Some(chunk) = consumer.pull().await.expect("pulled") {
        seen.insert(chunk.id, chunk.bytes.clone());
        chunk.acknowledge();
    }
    let results = consumer.flush().await;
    // Where a grant ended while its node was away, the chunk was given again.
    assert!(results.refused.iter().all(|refusal| refusal.error.kind() == ErrorKind::Stale), "{:?}", results.refused);
    for chunk in results.accepted {
        *accepted.entry(seen[&chunk].clone()).or_default() += 1;
    }
    accepted
}

fn pushed_to(fake: &Fake, device: u128) -> u64 {
    fake.state().bags.values().map(|bag| bag.members.get(&device).map_or(0, |member| member.pushed)).sum()
}

/// A node that joins while somebody pushes and pulls takes part a second later, and the end is the end of it, too.
#[tokio::test(start_paused = true)]
async fn a_node_that_joins() {
    let fake = Fake::new(5);
    let nodes = Nodes::new(&fake, 3).await;
    fake.fail(|faults| faults.delay_max = Duration::from_millis(20));
    let bag = nodes.client("node1").await.bag_create("work", false).await.expect("new");
    let consumer = tokio::spawn(consume(nodes.client("node2").await.bag("work").await.expect("there")));
    let producer = bag.producer(ProducerOptions::default());
    for number in 0..400 {
        if number == 100 {
            nodes.join(4, "node4").await;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        producer.push(numbered(number)).await.expect("admitted");
    }
    producer.flush().await.expect("synced");
    // Two seconds after it joined 200 pushes were left, a quarter of them for it.
    assert!(pushed_to(&fake, 4) > 30, "{} chunks for the new node", pushed_to(&fake, 4));
    bag.seal().await.expect("sealed");
    assert_eq!(consumer.await.expect("no panic"), (0..400).map(|number| (numbered(number), 1)).collect());
}

/// While a node is away the others get what is pushed and give what they have. When it is back, each push that it did not answer
/// is settled there: every chunk is in the bag once, and acknowledged once.
#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back() {
    for seed in 0..5 {
        let fake = Fake::new(seed);
        let nodes = Nodes::new(&fake, 3).await;
        fake.fail(|faults| faults.delay_max = Duration::from_millis(30));
        let bag = nodes.client("node3").await.bag_create("work", false).await.expect("new");
        let consumer = tokio::spawn(consume(nodes.client("node1").await.bag("work").await.expect("there")));
        let producer = bag.producer(ProducerOptions { window: 600, ..ProducerOptions::default() });
        let mut before = 0;
        for number in 0..2000 {
            if number == 300 {
                nodes.kill("node2");
                before = pushed_to(&fake, 1) + pushed_to(&fake, 3);
            }
            if number == 1800 {
                let meanwhile = pushed_to(&fake, 1) + pushed_to(&fake, 3) - before;
                assert!(meanwhile > 1300, "seed {seed}: {meanwhile} chunks while a node was away");
                nodes.join(2, "node2").await;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            producer.push(numbered(number)).await.expect("admitted");
        }
        producer.flush().await.expect("synced");
        let pushed: u64 = (1..=3).map(|device| pushed_to(&fake, device)).sum();
        assert_eq!(pushed, 2000, "seed {seed}");
        bag.seal().await.expect("sealed");
        let accepted = consumer.await.expect("no panic");
        assert_eq!(accepted, (0..2000).map(|number| (numbered(number), 1)).collect(), "seed {seed}");
    }
}

/// A node that stays away is an error that names it, for who pulls after everything else was given and never the end; and for
/// who pushed what it did not answer.
#[tokio::test(start_paused = true)]
async fn a_node_that_stays_away() {
    let fake = Fake::new(6);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await;
    let bag = client.bag_create("work", false).await.expect("new");
    let producer = bag.producer(ProducerOptions::default());
    for number in 0..90 {
        producer.push(numbered(number)).await.expect("admitted");
    }
    producer.flush().await.expect("synced");
    let there = 90 - pushed_to(&fake, 2);
    bag.seal().await.expect("sealed");
    nodes.kill("node2");
    for wait in [true, false] {
        let mut consumer = bag.consumer(ConsumerOptions { wait, ..ConsumerOptions::default() });
        for _ in 0..if wait { there } else { 0 } {
            consumer.pull().await.expect("pulled").expect("there are more").acknowledge();
        }
        let error = consumer.pull().await.err().expect("no end");
        assert_eq!(error.kind(), ErrorKind::Unreachable);
        assert!(error.text().contains("node n2") && error.text().contains("not its end"), "{error}");
        assert_eq!(consumer.flush().await.refused, []);
    }
    let bag = client.bag_create("more", false).await.expect("new");
    let producer = bag.producer(ProducerOptions::default());
    let mut error = None;
    for number in 0..90 {
        error = error.or(producer.push(numbered(number)).await.err());
    }
    let error = error.or(producer.flush().await.err()).expect("a node is away");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.text().contains("node n2"), "{error}");
}

/// What was sent to a device and not answered is pushed nowhere else when the device has left the cluster: it may have been handled there
/// before. The producer says that it is not known whether it was stored.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_without_an_answer() {
    let (flushed, elsewhere) = left_without_an_answer(None).await;
    let error = flushed.expect_err("nobody can know");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.text().contains("was stored is not known"), "{error}");
    assert_eq!(elsewhere, 0, "nothing was pushed twice");
    let planted = left_without_an_answer(Some(Planted::UnansweredPushedElsewhere)).await;
    assert!(planted.0.is_ok() && planted.1 > 0, "this test sees nothing: {planted:?}");
}

/// One of three devices takes pushes, answers none, and leaves the cluster. How the producer ends, and how many chunks others got since.
async fn left_without_an_answer(planted: Option<Planted>) -> (Result<()>, u64) {
    let fake = Fake::new(8);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await;
    let bag = client.bag_create("work", false).await.expect("new");
    fake.state().faults.silent_device = Some(2);
    let producer = bag.producer(ProducerOptions { planted, ..ProducerOptions::default() });
    for number in 0..30 {
        producer.push(numbered(number)).await.expect("admitted");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (first, silent, third) = (pushed_to(&fake, 1), pushed_to(&fake, 2), pushed_to(&fake, 3));
    assert!(silent > 0 && first + silent + third == 30, "{first}, {silent} and {third}");
    nodes.kill("node2");
    {
        let mut state = fake.state();
        state.view.members.retain(|member| member.node.node.value() != 2);
        state.bags.values_mut().for_each(|bag| drop(bag.members.remove(&2)));
    }
    let flushed = producer.flush().await;
    (flushed, pushed_to(&fake, 1) + pushed_to(&fake, 3) - first - third)
}

/// A device that leaves the cluster before anything was sent to it settles what was to be pushed there: it goes elsewhere.
#[tokio::test(start_paused = true)]
async fn a_node_that_leaves() {
    let fake = Fake::new(7);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await;
    let bag = client.bag_create("work", false).await.expect("new");
    nodes.kill("node2");
    let producer = bag.producer(ProducerOptions::default());
    for number in 0..90 {
        producer.push(numbered(number)).await.expect("admitted");
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    {
        let mut state = fake.state();
        state.view.members.retain(|member| member.node.node.value() != 2);
        state.bags.values_mut().for_each(|bag| drop(bag.members.remove(&2)));
    }
    producer.flush().await.expect("synced on the others");
    assert_eq!(pushed_to(&fake, 1) + pushed_to(&fake, 3), 90);
    bag.seal().await.expect("sealed");
    assert_eq!(consume(bag).await.len(), 90);
}

/// Within the scope of a node, chunks go to its device only and come from there only; its end is when all that is handled, sealed
/// and waited for or not, whatever lies elsewhere. A node without a device takes nothing.
#[tokio::test(start_paused = true)]
async fn one_node_only() {
    let fake = Fake::new(9);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await;
    let bag = client.bag_create("work", false).await.expect("new");
    let scope = |node| ProducerOptions { scope: Scope::Node(NodeId(node)), ..ProducerOptions::default() };
    for node in 2..=3 {
        let producer = bag.producer(scope(node));
        for number in 0..30 {
            producer.push(numbered(u64::from(node as u32) * 100 + number)).await.expect("admitted");
        }
        producer.flush().await.expect("synced");
    }
    let pushed = |device: u128| fake.state().bags.values().map(|bag| bag.members[&device].pushed).sum::<u64>();
    assert_eq!([pushed(1), pushed(2), pushed(3)], [0, 30, 30]);
    let error = bag.producer(scope(4)).push(numbered(1)).await.expect_err("there is no such node");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let pull = async |node: u128, wait: bool| {
        let mut consumer = bag.consumer(ConsumerOptions { window: None, wait, scope: Scope::Node(NodeId(node)) });
        let mut pulled = Vec::new();
        while let Some(chunk) = consumer.pull().await.expect("pulled") {
            pulled.push(chunk.bytes.clone());
            chunk.acknowledge();
        }
        assert_eq!(consumer.flush().await.accepted.len(), pulled.len());
        pulled.sort();
        pulled
    };
    let of = |node: u64| (0..30).map(|number| numbered(node * 100 + number)).collect::<Vec<_>>();
    assert_eq!((pull(1, false).await, pull(2, false).await), (Vec::new(), of(2)));
    assert_eq!(pull(2, false).await.len(), 0);
    bag.seal().await.expect("sealed");
    assert_eq!((pull(2, true).await, pull(1, true).await, pull(4, true).await), (Vec::new(), Vec::new(), Vec::new()));
    assert_eq!(pull(3, true).await, of(3), "the end of one node was not the bag's");
    assert_eq!(fake.state().astray, 0);
}
