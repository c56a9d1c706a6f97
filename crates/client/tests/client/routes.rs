//! Several nodes: each is asked for what it has, wherever a client comes from and whatever changes meanwhile.

use crate::fake::Fake;
use crate::fake::nodes::Nodes;
use crate::files::{SMALL, content, write};
use base::env::Clock;
use base::error::ErrorKind;
use bytes::Bytes;
use client::{ConsumerOptions, CreateOptions, PackOptions, PackerOptions, ProducerOptions};
use net::message::{Ask, cluster};
use std::collections::BTreeSet;
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
