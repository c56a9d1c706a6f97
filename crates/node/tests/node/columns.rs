//! Files over four devices of one node, compressed or not: whatever is done to them, the bytes are those of the file, up to the first
//! that is missing.

use crate::hdfs_user::{client_of, content};
use crate::{AheadClock, until};
use base::error::ErrorKind;
use base::limit::{CELL, NARROW_COLUMN, SESSION_LEASE};
use base::policy::{Class, Compression, Policy};
use base::unit::MIB;
use bytes::Bytes;
use client::{Client, CreateOptions, FileReader};
use node::{DeviceSetting, Running, Settings};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A node with four devices that goes with the test.
struct Scene {
    /// How its files are compressed.
    how: Compression,
    running: Option<Running>,
    directory: PathBuf,
    clock: Arc<AheadClock>,
}

impl Scene {
    async fn start(name: &str, how: Compression) -> Scene {
        let name = format!("stormwell-columns-{}-{name}-{}", std::process::id(), how.name());
        let directory = std::env::temp_dir().join(name);
        let clock = Arc::new(AheadClock::new());
        let mut scene = Scene { how, running: None, directory, clock };
        scene.run().await;
        let policy = Policy { compression: Some(how), ..Policy::default() };
        scene.client().await.set_policy("/", policy).await.expect("set");
        scene
    }

    async fn run(&mut self) {
        let device = |number: u32| {
            let directory = self.directory.join(format!("d{number}"));
            DeviceSetting { directory, class: Class::Ssd, capacity: Some(2 << 30) }
        };
        let settings = Settings::new("127.0.0.1:0", (0..4).map(device).collect());
        let (world, random) = (Arc::new(node::OsWorld), Arc::new(os::random::SystemRandom));
        let started = node::start(settings, world, Arc::new(os::net::TcpNet), self.clock.clone(), random).await;
        self.running = Some(started.expect("the node starts"));
    }

    /// Noise, or, where files are compressed, noise with parts between that get smaller.
    fn content(&self, length: usize, seed: u64) -> Bytes {
        let mut bytes = content(length, seed).to_vec();
        if self.how != Compression::None {
            for (place, part) in bytes.chunks_mut(777_777).enumerate().filter(|(place, _)| place % 3 > 0) {
                part.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / (97 + place) + place) as u8);
            }
        }
        bytes.into()
    }

    async fn client(&self) -> Client {
        client_of(&self.running.as_ref().expect("it runs").address).await
    }

    async fn stop(&mut self) {
        self.running.take().expect("it runs").stop().await;
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

async fn put(client: &Client, path: &str, bytes: &Bytes) {
    let mut writer = client.create(path, CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes.clone()).await.expect("written");
    writer.close().await.expect("closed");
}

async fn read(reader: &FileReader, from: u64, length: u64) -> Bytes {
    Bytes::from(reader.read_at(from, length).await.expect("read").concat())
}

async fn same(client: &Client, path: &str, bytes: &[u8]) {
    let reader = client.open(path).await.expect("it is there");
    assert_eq!(reader.length().await.expect("known"), bytes.len() as u64, "{path}");
    let mut stream = reader.stream(0);
    let mut at = 0;
    while let Some(part) = stream.next().await.expect("read") {
        assert!(part == bytes[at..at + part.len()], "{path}: other bytes at {at}");
        at += part.len();
    }
    assert_eq!(at, bytes.len(), "{path}");
}

/// The devices that hold bytes of a file.
async fn devices_of(client: &Client, path: &str) -> BTreeSet<u128> {
    let attributes = client.stat(path).await.expect("it is there");
    let (extents, _) = client.extents(attributes.inode, 0).await.expect("located");
    let parts = extents.iter().flat_map(|extent| client::parts(extent).expect("columns"));
    parts.map(|part| part.device.value()).collect()
}

/// Waits until no device has a chunk.
async fn all_free(client: &Client) {
    until("all space comes back", async || {
        client.devices().await.expect("devices").devices.iter().all(|device| device.chunks == 0)
    })
    .await;
}

/// A large file lies on all four devices, a small one on one; ranges across cells and groups are read, the file is appended to, cut in
/// the middle and joined with another, and survives a restart; deleted, it leaves no chunk on any device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_of_a_file() {
    life_of_a_file_if(Compression::None).await;
}

/// The same with files that are compressed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_of_a_file_compressed() {
    life_of_a_file_if(Compression::Lz4).await;
}

async fn life_of_a_file_if(how: Compression) {
    let mut scene = Scene::start("life", how).await;
    let client = scene.client().await;
    let bytes = scene.content((NARROW_COLUMN + 30 * CELL) as usize + 12_345, 1);
    put(&client, "/small", &bytes.slice(..NARROW_COLUMN as usize - 1)).await;
    assert_eq!(devices_of(&client, "/small").await.len(), 1);
    put(&client, "/large", &bytes).await;
    assert_eq!(devices_of(&client, "/large").await.len(), 4);
    same(&client, "/large", &bytes).await;
    let reader = client.open("/large").await.expect("it is there");
    for border in [CELL, NARROW_COLUMN, NARROW_COLUMN + CELL, NARROW_COLUMN + 4 * CELL, NARROW_COLUMN + 9 * CELL] {
        for (from, length) in [(border - 1, 2), (border, 1), (border - 5000, 10_000), (border - 3, 5 * CELL)] {
            let end = from + length;
            assert!(read(&reader, from, length).await == bytes[from as usize..end as usize], "{length} from {from}");
        }
    }
    let more = scene.content((NARROW_COLUMN + 5 * CELL) as usize + 77, 2);
    let mut writer = client.append("/large").await.expect("nobody writes it");
    for part in more.chunks(300_000) {
        writer.write(Bytes::copy_from_slice(part)).await.expect("written");
    }
    writer.close().await.expect("closed");
    let mut whole = [&bytes[..], &more].concat();
    same(&client, "/large", &whole).await;
    whole.truncate((NARROW_COLUMN + 13 * CELL) as usize + 500_000);
    client.truncate("/large", whole.len() as u64).await.expect("cut");
    same(&client, "/large", &whole).await;
    put(&client, "/other", &bytes).await;
    client.concat("/large", &["/other".to_string(), "/small".to_string()]).await.expect("joined");
    whole.extend_from_slice(&bytes);
    whole.extend_from_slice(&bytes[..NARROW_COLUMN as usize - 1]);
    same(&client, "/large", &whole).await;
    drop(client);
    scene.stop().await;
    scene.run().await;
    let client = scene.client().await;
    same(&client, "/large", &whole).await;
    client.delete("/large", false).await.expect("deleted");
    all_free(&client).await;
    scene.stop().await;
}

/// A writer that goes away in the middle leaves the file with everything that it was told to be there, whether its session ended or
/// somebody took the file from it, and with no byte that is not the file's. What columns have beyond is freed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn left_in_the_middle() {
    left_in_the_middle_if(Compression::None).await;
}

/// The same with files that are compressed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn left_in_the_middle_compressed() {
    left_in_the_middle_if(Compression::Zstd).await;
}

async fn left_in_the_middle_if(how: Compression) {
    let mut scene = Scene::start("left", how).await;
    let bytes = scene.content((NARROW_COLUMN + 40 * CELL) as usize, 3);
    for (number, sync) in [(0, false), (1, true), (2, false)] {
        let path = format!("/f{number}");
        let gone = scene.client().await;
        let mut writer = gone.create(&path, CreateOptions::default()).await.expect("the file is new");
        let (mut at, mut promised) = (0, 0);
        for step in 0..50 + number as usize * 7 {
            let length = (step % 5 + 1) * 201_001;
            let length = length.min(bytes.len() - at);
            writer.write(bytes.slice(at..at + length)).await.expect("written");
            at += length;
            if step % 9 == 8 {
                if sync {
                    writer.sync().await.expect("synced")
                } else {
                    writer.hflush().await.expect("visible")
                }
                promised = at;
            }
        }
        let inode = writer.inode();
        let client = if number == 2 {
            let client = scene.client().await;
            let attributes = client.recover(inode, false).await.expect("taken");
            let acknowledged = writer.written().borrow().length;
            assert!(!attributes.open && acknowledged <= attributes.length, "{acknowledged} bytes, {attributes:?}");
            let late = match writer.write(bytes.slice(..3 * MIB as usize)).await {
                Ok(()) => writer.hflush().await,
                known => known,
            };
            assert_eq!(late.expect_err("fenced").kind(), ErrorKind::Stale);
            let told = writer.written().borrow().length;
            assert!(told <= attributes.length, "{told} bytes acknowledged, {} kept", attributes.length);
            client
        } else {
            drop((writer, gone));
            scene.clock.ahead.fetch_add(SESSION_LEASE.as_secs() + 1, Ordering::Relaxed);
            let client = scene.client().await;
            until("the file is recovered", async || !client.stat(&path).await.expect("it is there").open).await;
            client
        };
        let kept = client.stat(&path).await.expect("it is there").length as usize;
        assert!((promised..=at).contains(&kept), "{kept} bytes of {at}, and {promised} were promised");
        same(&client, &path, &bytes[..kept]).await;
        let mut writer = client.append(&path).await.expect("nobody writes it");
        writer.write(bytes.slice(..100)).await.expect("written");
        writer.close().await.expect("closed");
        same(&client, &path, &[&bytes[..kept], &bytes[..100]].concat()).await;
        client.delete(&path, false).await.expect("deleted");
        all_free(&client).await;
    }
    scene.stop().await;
}

/// A device is drained while files that have a column there are read and written: every byte stays, and no column is left there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained() {
    drained_if(Compression::None).await;
}

/// The same with files that are compressed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drained_compressed() {
    drained_if(Compression::Lz4).await;
}

async fn drained_if(how: Compression) {
    let mut scene = Scene::start("drained", how).await;
    let client = scene.client().await;
    let bytes = scene.content((NARROW_COLUMN + 60 * CELL) as usize + 999, 4);
    put(&client, "/closed", &bytes).await;
    let mut writer = client.create("/open", CreateOptions::default()).await.expect("the file is new");
    let half = (NARROW_COLUMN + 30 * CELL) as usize + 77;
    writer.write(bytes.slice(..half)).await.expect("written");
    writer.hflush().await.expect("visible");
    let metadata = client.devices().await.expect("devices").devices;
    // The first one also holds the metadata and cannot be drained.
    let leaving = metadata.iter().find(|device| device.place.ends_with("d2")).expect("it is there").device;
    let over = Arc::new(AtomicBool::new(false));
    let reading = tokio::spawn({
        let (client, bytes, over) = (client.clone(), bytes.clone(), over.clone());
        async move {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) || rounds == 0 {
                same(&client, "/closed", &bytes).await;
                rounds += 1;
            }
        }
    });
    client.drain(leaving).await.expect("it drains");
    let mut at = half;
    while at < bytes.len() {
        let end = (at + 700_001).min(bytes.len());
        writer.write(bytes.slice(at..end)).await.expect("written");
        at = end;
    }
    writer.close().await.expect("closed");
    until("the device is empty", async || {
        client.devices().await.expect("devices").devices.iter().all(|device| device.device != leaving)
    })
    .await;
    over.store(true, Ordering::Relaxed);
    reading.await.expect("no panic");
    for path in ["/closed", "/open"] {
        same(&client, path, &bytes).await;
        assert!(!devices_of(&client, path).await.contains(&leaving.value()), "{path}");
        client.delete(path, false).await.expect("deleted");
    }
    all_free(&client).await;
    scene.stop().await;
}

/// Many files at once over the same devices, read while they are written: each reader sees the first bytes of its file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_at_once() {
    several_at_once_if(Compression::None).await;
}

/// The same with files that are compressed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_at_once_compressed() {
    several_at_once_if(Compression::Zstd).await;
}

async fn several_at_once_if(how: Compression) {
    let mut scene = Scene::start("several", how).await;
    let mut tasks = Vec::new();
    for number in 0..3_u64 {
        let (writing, reading) = (scene.client().await, scene.client().await);
        let bytes = scene.content((NARROW_COLUMN + 20 * CELL) as usize + number as usize, 10 + number);
        tasks.push(tokio::spawn(async move {
            let path = format!("/f{number}");
            let mut writer = writing.create(&path, CreateOptions::default()).await.expect("the file is new");
            let reader = reading.open(&path).await.expect("it is there");
            for part in bytes.chunks(3_333_333) {
                writer.write(Bytes::copy_from_slice(part)).await.expect("written");
                let length = reader.length().await.expect("known");
                let from = length.saturating_sub(2_000_000);
                let seen = read(&reader, from, 5_000_000).await;
                let end = from as usize + seen.len();
                assert!(end as u64 >= length && seen == bytes[from as usize..end], "{path}: {from}..{end} of {length}");
            }
            writer.close().await.expect("closed");
            same(&reading, &path, &bytes).await;
        }));
    }
    for task in tasks {
        task.await.expect("no panic");
    }
    scene.stop().await;
}
