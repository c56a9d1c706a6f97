//! Columns of several replicas: a reader gets the right bytes as long as one of them serves, and seldom waits for one that does not.

use crate::fake::file::Wide;
use crate::fake::nodes::Nodes;
use crate::fake::replicas::Bad;
use crate::fake::{DEVICES, Fake};
use crate::files::{SMALL, WIDE, content, write};
use base::checksum::{SECTOR, crc32c};
use base::env::Clock;
use base::error::ErrorKind;
use base::limit::BLOCK;
use bytes::Bytes;
use client::{Client, CreateOptions, Entry, Listed, ReadOptions, Sums};
use net::message::cluster::{Member, Node};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What a read that gave up one device took, at the most, and one that gave up none.
const ONE_GIVEN_UP: Duration = Duration::from_millis(2500);
const NONE_GIVEN_UP: Duration = Duration::from_millis(500);

/// A file of this length, of chunks on all devices in turn, each with so many replicas.
async fn replicated(fake: &Arc<Fake>, length: usize, replicas: u64) -> (Client, Bytes) {
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(length, 1);
    write(&client, "/a", &bytes, 30_000).await;
    fake.state().replicate(replicas);
    (client, bytes)
}

async fn listed(client: &Client) -> Vec<Entry> {
    let (mut listing, mut entries) = (client.list_all_located("/"), Vec::new());
    while let Some(entry) = listing.next().await.expect("listed") {
        entries.push(entry);
    }
    entries
}

/// Reads the file in every way there is.
async fn read_in_all_ways(client: &Client, bytes: &Bytes) {
    assert!(client.read_small("/a").await.expect("read") == bytes);
    let reader = client.open("/a").await.expect("it is there");
    let mut stream = reader.stream(0);
    let mut streamed = Vec::new();
    while let Some(part) = stream.next().await.expect("read") {
        streamed.extend_from_slice(&part);
    }
    assert!(streamed == *bytes);
    for sums in [Sums::None, Sums::Sectors, Sums::Blocks, Sums::Stored] {
        let mut range = reader.range(SECTOR as u64, u64::MAX, ReadOptions::default(), sums);
        let (mut got, mut summed) = (Vec::new(), Vec::new());
        while let Some(piece) = range.next().await.expect("read") {
            got.extend(piece.parts.concat());
            summed.extend(piece.sums);
        }
        assert!(got == bytes[SECTOR..]);
        let unit = match sums {
            Sums::None => continue,
            Sums::Sectors => SECTOR,
            Sums::Blocks | Sums::Stored => BLOCK,
        };
        assert_eq!(summed, got.chunks(unit).map(crc32c).collect::<Vec<_>>(), "{sums:?}");
    }
    let entries = listed(client).await;
    let files: Vec<Listed<'_>> =
        entries.iter().map(|Entry { attributes, extents, .. }| Listed { attributes, extents }).collect();
    for read in client.read_listed(&files, ReadOptions::default()).await {
        assert!(read.expect("read").concat() == *bytes);
    }
}

/// Whatever one device answers, another one that has the bytes serves them, in every way in which a file is read.
#[tokio::test(start_paused = true)]
async fn the_next_one_serves() {
    for (seed, bad) in [Bad::Rotten, Bad::Missing, Bad::Failed, Bad::Silent, Bad::Short].into_iter().enumerate() {
        for (replicas, wide) in [(2, Wide::default()), (3, WIDE)] {
            let fake = Fake::new(seed as u64);
            fake.state().wide = wide;
            let (client, bytes) = replicated(&fake, 250_000, replicas).await;
            for device in 1..=u128::from(DEVICES) {
                fake.state().bad = [(device, bad)].into();
                fake.state().readers_of.clear();
                read_in_all_ways(&client, &bytes).await;
                assert!(fake.state().readers_of.contains(&device), "device {device} was not even asked");
            }
        }
    }
}

/// Where each column lost others, all of it is read.
#[tokio::test(start_paused = true)]
async fn columns_lose_different_ones() {
    let fake = Fake::new(11);
    fake.state().devices = 12;
    fake.state().view.members[0].devices = (1..=12u128).map(Into::into).collect();
    fake.state().wide = WIDE;
    let (client, bytes) = replicated(&fake, 250_000, 3).await;
    let columns = fake.state().devices_of("/a");
    assert_eq!(columns.len(), 4);
    // Of the first column the first two, of the second the first, of the third the second.
    let bad = [
        (columns[0][0], Bad::Silent),
        (columns[0][1], Bad::Rotten),
        (columns[1][0], Bad::Rotten),
        (columns[2][1], Bad::Missing),
    ];
    fake.state().bad = bad.into();
    read_in_all_ways(&client, &bytes).await;
    let asked: BTreeSet<u128> = fake.state().readers_of.iter().copied().collect();
    assert!(asked.contains(&columns[0][0]) && asked.contains(&columns[0][1]));
}

/// When none serves the error says what each of them answered, and its kind is that which leaves most hope. Good bytes never hide behind it.
#[tokio::test(start_paused = true)]
async fn none_serves() {
    let cases = [
        ([Bad::Rotten, Bad::Missing], ErrorKind::Corrupt, ["the bytes are rotten", "the chunk is not here"]),
        ([Bad::Failed, Bad::Rotten], ErrorKind::Io, ["the disk cannot be read", "the bytes are rotten"]),
        ([Bad::Silent, Bad::Missing], ErrorKind::Unreachable, ["nothing was heard for 10 s", "the chunk is not here"]),
        ([Bad::Missing, Bad::Silent], ErrorKind::Unreachable, ["the chunk is not here", "nothing was heard for 10 s"]),
        ([Bad::Missing, Bad::Missing], ErrorKind::NotFound, ["the chunk is not here", "the chunk is not here"]),
        ([Bad::Short, Bad::Rotten], ErrorKind::Corrupt, ["its chunk ends at byte", "the bytes are rotten"]),
    ];
    for (seed, (bad, kind, said)) in cases.into_iter().enumerate() {
        let fake = Fake::new(seed as u64);
        let (client, bytes) = replicated(&fake, 10_000, 2).await;
        let devices = fake.state().devices_of("/a").remove(0);
        fake.state().bad = devices.iter().copied().zip(bad).collect();
        let began = fake.clock.now();
        let error = client.read_small("/a").await.expect_err("nobody has it");
        assert_eq!(error.kind(), kind, "{error}");
        for (device, said) in devices.iter().zip(said) {
            assert!(
                error.text().contains(&format!("device {device:032x}: ")) && error.text().contains(said),
                "{error}"
            );
        }
        assert!(error.text().contains("none of the 2 copies") && error.text().contains("read /a"), "{error}");
        assert!(fake.clock.now().since(began) < Duration::from_secs(13), "{:?}", fake.clock.now().since(began));
        let asked = fake.state().readers_of.len();
        assert!(asked <= 6, "{asked} questions");
        fake.state().bad.remove(&devices[1]);
        assert!(client.read_small("/a").await.expect("one has it") == bytes);
    }
}

/// One that was given up because another one was left is asked once more if that one does not serve: alone it would have had all the time.
#[tokio::test(start_paused = true)]
async fn slow_and_damaged() {
    for (seed, bad) in [Bad::Rotten, Bad::Missing, Bad::Failed, Bad::Short].into_iter().enumerate() {
        let fake = Fake::new(seed as u64);
        let (client, bytes) = replicated(&fake, 10_000, 2).await;
        let devices = fake.state().devices_of("/a").remove(0);
        fake.state().bad = [(devices[0], Bad::Slow), (devices[1], bad)].into();
        read_in_all_ways(&client, &bytes).await;
    }
}

/// A device that says nothing is given up once; then it is asked last, until its time is over or it has answered.
#[tokio::test(start_paused = true)]
async fn silence_is_paid_once() {
    let fake = Fake::new(12);
    let (client, bytes) = replicated(&fake, 10_000, 2).await;
    let devices = fake.state().devices_of("/a").remove(0);
    // They are on one node: its other device answers, and shows that the node does.
    fake.state().bad = [(devices[0], Bad::Silent)].into();
    for round in 0..3 {
        let began = fake.clock.now();
        for _ in 0..100 {
            assert!(client.read_small("/a").await.expect("read") == bytes);
        }
        let took = fake.clock.now().since(began);
        assert!(took >= Duration::from_secs(1) && took < ONE_GIVEN_UP, "round {round}: {took:?}");
        let asked = fake.state().readers_of.iter().filter(|device| **device == devices[0]).count();
        assert_eq!(asked, round + 1, "once in each round");
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    // The other one fails: what it answered itself is no silence, so the first is waited for, and then not given up.
    fake.state().bad = [(devices[1], Bad::Failed)].into();
    assert!(client.read_small("/a").await.expect("read") == bytes);
    fake.state().readers_of.clear();
    assert!(client.read_small("/a").await.expect("read") == bytes);
    assert_eq!(
        fake.state().readers_of,
        [devices[0]],
        "the one that answered again is asked first, the other one failed"
    );
}

/// When all are slow none is given up for another that was as slow a moment ago: each read asks one.
#[tokio::test(start_paused = true)]
async fn all_are_slow() {
    let fake = Fake::new(13);
    let (client, bytes) = replicated(&fake, 10_000, 3).await;
    let devices = fake.state().devices_of("/a").remove(0);
    fake.state().bad = devices.iter().map(|device| (*device, Bad::Silent)).collect();
    assert!(client.read_small("/a").await.is_err());
    fake.state().readers_of.clear();
    let reads: Vec<_> = (0..10)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.read_small("/a").await })
        })
        .collect();
    // So long that each would have given up one.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(fake.state().readers_of.len(), 10);
    fake.state().bad.clear();
    for read in reads {
        // They were asked before, and say nothing; then others are asked.
        assert!(read.await.expect("no panic").expect("read") == bytes);
    }
}

/// A node dies under readers: nobody sees an error, and few wait.
#[tokio::test(start_paused = true)]
async fn a_node_dies() {
    let fake = Fake::new(14);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await.with_sizes(SMALL);
    let paths: Vec<String> = (0..12).map(|number| format!("/file{number}")).collect();
    for path in &paths {
        write(&client, path, &content(1000, 1), 1000).await;
    }
    fake.state().replicate(2);
    let reader = client.open(&paths[0]).await.expect("it is there");
    nodes.kill("node2");
    let began = fake.clock.now();
    for _ in 0..4 {
        for path in &paths {
            assert!(client.read_small(path).await.expect("read") == content(1000, 1));
        }
        assert!(reader.read_at(0, 1000).await.is_ok());
    }
    let took = fake.clock.now().since(began);
    assert!(took < ONE_GIVEN_UP, "{took:?}");
    // The view says that it is silent: then nobody waits at all.
    tokio::time::sleep(Duration::from_secs(6)).await;
    fake.state().view.members.iter_mut().filter(|member| member.node.node.value() == 2).for_each(|m| m.silent = true);
    client.view().await.expect("asked");
    let began = fake.clock.now();
    for path in &paths {
        assert!(client.read_small(path).await.expect("read") == content(1000, 1));
    }
    assert!(fake.clock.now().since(began) < NONE_GIVEN_UP);
    assert_eq!(fake.state().astray, 0);
}

/// A reader that was told of one replica finds those that were made since, when that one does not serve any more.
#[tokio::test(start_paused = true)]
async fn made_since() {
    let fake = Fake::new(15);
    // With one node alone nobody else would be there to ask.
    let node = Node { node: 8u128.into(), address: "other".to_string(), ..Node::default() };
    let other = Member { node, devices: Vec::new(), silent: false, keeping: String::new() };
    fake.state().view.members.push(other);
    let (client, bytes) = replicated(&fake, 10_000, 1).await;
    for bad in [Bad::Rotten, Bad::Failed, Bad::Silent, Bad::Missing] {
        fake.state().replicate(1);
        let reader = client.open("/a").await.expect("it is there");
        fake.state().replicate(2);
        let head = fake.state().devices_of("/a")[0][0];
        fake.state().bad = [(head, bad)].into();
        assert!(reader.read_at(0, 10_000).await.expect("read").concat() == bytes, "{bad:?}");
        // With one alone the error is what that one said.
        fake.state().replicate(1);
        let error = client.read_small("/a").await.expect_err("nobody has it");
        assert!(!error.text().contains("none of the"), "{error}");
    }
}

/// Where they are told in another order nobody is left to ask: then it is not begun anew.
#[tokio::test(start_paused = true)]
async fn another_order() {
    let fake = Fake::new(20);
    let (client, _) = replicated(&fake, 10_000, 2).await;
    let reader = client.open("/a").await.expect("it is there");
    let devices = fake.state().devices_of("/a").remove(0);
    for group in fake.state().files.groups.values_mut() {
        let column = &mut group.layout.columns[0];
        (column.others[0], column.device) = (column.device, column.others[0]);
    }
    fake.state().bad = devices.iter().map(|device| (*device, Bad::Failed)).collect();
    let error = reader.read_at(0, 10_000).await.expect_err("nobody serves");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert_eq!(fake.state().readers_of, devices, "each was asked once");
}

/// Whatever one replica of an open group answers, another one serves what all have.
#[tokio::test(start_paused = true)]
async fn open_groups() {
    let fake = Fake::new(16);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(10_000, 2);
    let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes.clone()).await.expect("written");
    writer.hflush().await.expect("visible");
    fake.state().replicate(3);
    let devices = fake.state().devices_of("/a").remove(0);
    let reader = client.open("/a").await.expect("it is there");
    for bad in [Bad::Rotten, Bad::Failed, Bad::Missing, Bad::Short, Bad::Silent] {
        for device in devices.iter().copied() {
            fake.state().bad = [(device, bad)].into();
            assert!(reader.read_at(0, 10_000).await.expect("read").concat() == bytes, "{bad:?}");
            assert!(reader.read_at(10_000, 1).await.expect("its end").is_empty(), "{bad:?}");
        }
    }
    let state = fake.state();
    assert!((1..=3).all(|device| state.readers_of.contains(&device)), "{:?}", state.readers_of);
}

/// Who stands on a node reads from its devices, as long as they serve.
#[tokio::test(start_paused = true)]
async fn ones_own_node_first() {
    let fake = Fake::new(17);
    // The third device is on another node, which nobody can reach here.
    let node = Node { node: 8u128.into(), address: "far".to_string(), ..Node::default() };
    let (client, bytes) = replicated(&fake, 10_000, 1).await;
    {
        let mut state = fake.state();
        state.view.members[0].devices.retain(|device| device.value() < 3);
        let far = Member { node, devices: vec![3u128.into()], silent: false, keeping: String::new() };
        state.view.members.push(far);
        let group = state.files.groups.values_mut().last().expect("of the file");
        let column = &mut group.layout.columns[0];
        let (chunk, was) = (column.chunk.value(), column.device.value());
        (column.device, column.others) = (3u128.into(), vec![1u128.into()]);
        let stored = state.chunks[&(chunk, was)].clone();
        state.chunks.extend([((chunk, 3), stored.clone()), ((chunk, 1), stored)]);
    }
    let second = fake.client().with_sizes(SMALL);
    let began = fake.clock.now();
    for client in [&client, &second] {
        client.view().await.expect("asked");
        assert!(client.read_small("/a").await.expect("read") == bytes);
    }
    // One that nobody told yet who is near asks first.
    assert!(fake.client().with_sizes(SMALL).read_small("/a").await.expect("read") == bytes);
    assert!(fake.clock.now().since(began) < NONE_GIVEN_UP);
    assert_eq!(fake.state().readers_of, [1, 1, 1]);
    fake.state().bad = [(1, Bad::Missing)].into();
    let error = client.read_small("/a").await.expect_err("the far one is not there");
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.text().contains("device 00000000000000000000000000000003"), "{error}");
}

/// Reads that are under way at once go to all replicas.
#[tokio::test(start_paused = true)]
async fn spread_over_replicas() {
    let fake = Fake::new(18);
    let (client, bytes) = replicated(&fake, 10_000, 3).await;
    fake.fail(|faults| faults.delay_max = Duration::from_millis(9));
    let reads: Vec<_> = (0..30)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.read_small("/a").await })
        })
        .collect();
    for read in reads {
        assert!(read.await.expect("no panic").expect("read") == bytes);
    }
    let state = fake.state();
    for device in 1..=u128::from(DEVICES) {
        let its = state.readers_of.iter().filter(|of| **of == device).count();
        assert!((5..=15).contains(&its), "device {device} was asked {its} times of 30");
    }
}

/// A long read goes on however often bytes move on, as long as it gets some between.
#[tokio::test(start_paused = true)]
async fn moves_are_counted_for_one_place() {
    let fake = Fake::new(19);
    let (client, bytes) = replicated(&fake, 1_500_000, 2).await;
    fake.fail(|faults| faults.delay_max = Duration::from_millis(9));
    let reader = client.open("/a").await.expect("it is there");
    let mover = {
        let fake = fake.clone();
        tokio::spawn(async move {
            let (mut read, mut moves) = (0, 0);
            loop {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let mut state = fake.state();
                if state.bytes_read > read {
                    state.move_chunks();
                    state.faults.moved = 3;
                    (read, moves) = (state.bytes_read, moves + 1);
                }
                if read >= 1_500_000 {
                    break moves;
                }
            }
        })
    };
    assert!(reader.read_at(0, 1_500_000).await.expect("read").concat() == bytes);
    let moves = mover.await.expect("no panic");
    assert!(moves > 20, "{moves} moves");
}
