//! Files that are compressed by their writers: what is stored is smaller, what is read is what was written, through every door.

use crate::cluster::Cluster;
use crate::hdfs_read::{Reader, ask as read_block};
use crate::hdfs_user::{client, client_of, content};
use crate::hdfs_write::{Open, stored};
use crate::{Fixture, until};
use base::env::Random;
use base::error::ErrorKind;
use base::limit::{CELL, NARROW_COLUMN};
use base::policy::{Compression, Policy};
use base::unit::MIB;
use bytes::Bytes;
use client::{Client, CreateOptions};
use gateway_hdfs::message::hdfs::ExtendedBlock;
use net::Payload;
use net::message::chunk;
use sim::random::SimRandom;

/// Bytes of which some pieces get much smaller, some a little and some not at all.
fn mixed(length: usize, seed: u64) -> Bytes {
    let mut bytes = content(length, seed).to_vec();
    for (place, part) in bytes.chunks_mut(700_001).enumerate().filter(|(place, _)| place % 4 > 0) {
        let run = [0, 3, 50, 5000][place % 4];
        part.iter_mut()
            .enumerate()
            .for_each(|(at, byte)| *byte = ((*byte & 1) * u8::from(run == 3)).wrapping_add((at / run) as u8));
    }
    bytes.into()
}

async fn wish(client: &Client, path: &str, compression: Compression) {
    let policy = Policy { compression: Some(compression), ..Policy::default() };
    client.set_policy(path, policy).await.expect("set");
}

async fn put(client: &Client, path: &str, bytes: &Bytes) {
    let mut writer = client.create(path, CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes.clone()).await.expect("written");
    writer.close().await.expect("closed");
}

async fn live(client: &Client) -> u64 {
    client.devices().await.expect("devices").devices.iter().map(|device| device.live).sum()
}

/// Any range is read, over the bounds of cells too, before the file is closed, after and after a restart, whatever way it is cut and
/// appended to; the device has less than was written; and a directory may wish otherwise than the one above.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_range() {
    for how in [Compression::Lz4, Compression::Zstd] {
        let mut fixture = Fixture::start(&format!("compressed-{}", how.name())).await;
        let mut client = client(&fixture).await;
        client.make_directory("/plain", false).await.expect("made");
        wish(&client, "/", how).await;
        wish(&client, "/plain", Compression::None).await;
        let (bytes, random) = (mixed(6 << 20, 1), SimRandom::new(2));
        put(&client, "/plain/f", &bytes).await;
        let plain = live(&client).await;
        assert!(plain >= 6 * MIB, "{plain} bytes live of what is not compressed");
        let mut writer = client.create("/f", CreateOptions::default()).await.expect("the file is new");
        let mut at = 0;
        while at < bytes.len() {
            let end = (at + random.below(2 << random.below(21)) as usize).min(bytes.len());
            writer.write(bytes.slice(at..end)).await.expect("written");
            at = end;
            if random.one_in(9) {
                let sync = random.one_in(2);
                if sync { writer.sync().await } else { writer.hflush().await }.expect("visible");
                let reader = client.open("/f").await.expect("it is there");
                assert_eq!(reader.length().await.expect("known"), at as u64);
                let from = at.saturating_sub(70_000);
                let tail = reader.read_at(from as u64, 100_000).await.expect("read").concat();
                assert!(tail == bytes[from..at], "the tail at {at}");
            }
        }
        writer.close().await.expect("closed");
        let mut whole = bytes.to_vec();
        for round in 0..4 {
            let reader = client.open("/f").await.expect("it is there");
            assert!(reader.read_at(0, u64::MAX).await.expect("read").concat() == whole, "round {round}");
            for _ in 0..40 {
                let from = random.below(whole.len() as u64);
                let length = random.below(3 << random.below(20));
                let end = (from + length).min(whole.len() as u64);
                let got = reader.read_at(from, length).await.expect("read").concat();
                assert!(got == whole[from as usize..end as usize], "{length} from {from}");
            }
            match round {
                0 => {
                    let stored = live(&client).await - plain;
                    assert!(stored < plain * 3 / 4, "{how:?}: {stored} live, {plain} uncompressed");
                    // In the middle of a cell.
                    whole.truncate(4_444_444);
                    client.truncate("/f", whole.len() as u64).await.expect("cut");
                }
                1 => {
                    let more = mixed(2_500_000, 3);
                    let mut writer = client.append("/f").await.expect("nobody writes it");
                    writer.write(more.clone()).await.expect("written");
                    writer.close().await.expect("closed");
                    whole.extend_from_slice(&more);
                }
                2 => {
                    drop((reader, client));
                    fixture.stop().await;
                    fixture.run().await;
                    client = crate::hdfs_user::client(&fixture).await;
                }
                _ => {}
            }
        }
        for path in ["/f", "/plain/f"] {
            client.delete(path, false).await.expect("deleted");
        }
        until("all space comes back", async || live(&client).await == 0).await;
        fixture.stop().await;
    }
}

/// A program that does not know cells gets an error that says so, and not what is stored; what cannot be a cell is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers() {
    let mut fixture = Fixture::start("compressed-strangers").await;
    let client = client(&fixture).await;
    wish(&client, "/", Compression::Zstd).await;
    put(&client, "/f", &Bytes::from(vec![7; 3 << 20])).await;
    let attributes = client.stat("/f").await.expect("it is there");
    let (extents, _) = client.extents(attributes.inode, 0).await.expect("located");
    let (device, chunk) = (extents[0].layout.columns[0].device, extents[0].layout.columns[0].chunk);
    let link = fixture.link(5).await;
    let ranges = vec![chunk::Range { offset: 100, length: 100 }];
    let ask = chunk::Read { device, chunk, ranges, ..chunk::Read::default() };
    let refused = link.call(&ask, Payload::empty()).await.expect_err("it cannot read it");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(refused.text().contains("newer version"), "{refused}");
    let answered = link.call(&chunk::Read { cells: true, ..ask }, Payload::empty()).await.expect("read");
    assert_eq!((answered.0.cells.len(), answered.0.cells[0].length, answered.0.blocks.len()), (1, CELL, 0));
    for length in [0, 5, 4096, 5000, 2 * CELL, u64::MAX] {
        let append = chunk::Append { device, chunk: 99.into(), group: 9, generation: 1, ..chunk::Append::default() };
        let ask = chunk::AppendCell { append, length };
        let refused = link.call(&ask, Payload::new(Bytes::from(vec![1; 5000]))).await.expect_err("nonsense");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{length}: {refused}");
    }
    fixture.stop().await;
}

/// What Hadoop's clients write into a compressed directory is smaller, and what they read has checksums of its bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_hdfs() {
    let mut fixture = Fixture::start("compressed-hdfs").await;
    let client = client(&fixture).await;
    wish(&client, "/", Compression::Lz4).await;
    let bytes = mixed(5_000_777, 4);
    let file = Open::new(&fixture, "/f").await;
    let block = file.add(&fixture, None).await.expect("a block").block;
    file.fill(&fixture, &block, 0, &bytes).await;
    let last = ExtendedBlock { length: Some(bytes.len() as u64), ..block.clone() };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    assert!(stored(&fixture, "/f").await == bytes);
    let stored = live(&client).await;
    assert!(stored < bytes.len() as u64 * 3 / 4, "{stored} bytes live of {}", bytes.len());
    let (random, mut reader) = (SimRandom::new(5), Reader::connect(&fixture).await);
    for place in 0..40 {
        let offset = if place == 0 { 0 } else { random.below(bytes.len() as u64) };
        let count = if place == 0 { bytes.len() as u64 } else { random.below(bytes.len() as u64 - offset) };
        // The helper compares each packet with its checksums.
        let read = reader.read(&read_block(&block, offset, count)).await.expect("it is there");
        assert!(read.bytes == bytes[offset as usize..(offset + count) as usize], "{count} bytes from {offset}");
    }
    fixture.stop().await;
}

/// Columns of compressed files move to other nodes as they are stored, with cells that lie anywhere and one that was cut.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained() {
    let cluster = Cluster::start("compressed-drain", 3).await;
    let client = client_of(cluster.address(0)).await;
    wish(&client, "/", Compression::Zstd).await;
    let bytes = mixed((NARROW_COLUMN + 25 * CELL) as usize + 777, 6);
    let mut files = Vec::new();
    for number in 0..3 {
        let path = format!("/f{number}");
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("the file is new");
        for (place, part) in bytes.chunks(3_333_333).enumerate() {
            writer.write(Bytes::copy_from_slice(part)).await.expect("written");
            if number > 0 && place % 2 == 0 {
                writer.hflush().await.expect("visible");
            }
        }
        writer.close().await.expect("closed");
        let cut = bytes.len() - number * 4_567_890;
        if number > 0 {
            client.truncate(&path, cut as u64).await.expect("cut");
        }
        files.push((path, bytes.slice(..cut)));
    }
    let devices = client.devices().await.expect("devices").devices;
    let leaving = devices.iter().find(|device| device.place.contains("n1")).expect("it is there").device;
    client.drain(leaving).await.expect("it drains");
    until("the device is empty", async || {
        client.devices().await.expect("devices").devices.iter().all(|device| device.device != leaving)
    })
    .await;
    for (path, bytes) in &files {
        let reader = client.open(path).await.expect("it is there");
        assert!(reader.read_at(0, u64::MAX).await.expect("read").concat() == *bytes, "{path}");
        let attributes = client.stat(path).await.expect("it is there");
        let (extents, _) = client.extents(attributes.inode, 0).await.expect("located");
        let parts = extents.iter().flat_map(|extent| client::parts(extent).expect("columns"));
        assert!(parts.into_iter().all(|part| part.device != leaving), "{path}");
    }
    // What was cut off counts in full until its chunk goes.
    let most = 3 * bytes.len() as u64 * 3 / 4;
    until("nothing is there twice, or not compressed any more", async || live(&client).await < most).await;
    cluster.stop_all().await;
}
