//! A disk that fails a sync: it leaves service at once, and nothing that was acknowledged goes with it. Its world has disks that stand
//! still, too.

use crate::hdfs_user::client_of;
use crate::until;
use base::buffer::Pool;
use base::disk::{BlockFile, Disk, DiskError, Done, FileName, Op, Wake};
use base::env::Random;
use base::error::{ErrorKind, Result};
use base::net::Boxed;
use base::planted::Planted;
use base::policy::Class;
use bytes::Bytes;
use client::{Client, CreateOptions, FileWriter};

use node::{DeviceSetting, Door, Ended, Open, OsWorld, Running, Settings, World};
use os::disk::{Backend, Opened};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The real world, except that syncs of one device fail while `broken` says so, and that its log is kept.
#[derive(Default)]
pub struct FailingWorld {
    pub place: PathBuf,
    pub broken: Arc<AtomicBool>,
    /// Whether its disk stands still.
    pub still: Arc<Still>,
    /// A fault put in on purpose.
    pub planted: Option<Planted>,
    pub said: Mutex<String>,
}

/// Holds up what a disk has finished.
#[derive(Default)]
pub struct Still {
    holds: AtomicBool,
    wakers: Mutex<Vec<Arc<dyn Wake>>>,
}

impl Still {
    /// From now on nothing ends.
    pub fn begin(&self) {
        self.holds.store(true, Ordering::SeqCst);
    }

    /// It goes on.
    pub fn end(&self) {
        self.holds.store(false, Ordering::SeqCst);
        self.wakers.lock().expect("nobody panicked").iter().for_each(|waker| waker.wake());
    }
}

struct FailingDisk {
    inner: Box<dyn Disk>,
    broken: Arc<AtomicBool>,
    still: Arc<Still>,
    /// Finished while it stood still.
    held: Vec<Done>,
    syncs: BTreeSet<u64>,
}

impl Disk for FailingDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.inner.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        if matches!(op, Op::Sync { .. }) {
            self.syncs.insert(token);
        }
        self.inner.submit(token, op);
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let before = done.len();
        self.inner.poll(wait, done);
        for finished in &mut done[before..] {
            if self.syncs.remove(&finished.token) && self.broken.load(Ordering::SeqCst) {
                finished.result = Err(DiskError::Io("Input/output error (os error 5)".to_string()));
            }
        }
        self.held.extend(done.drain(before..));
        if !self.still.holds.load(Ordering::SeqCst) {
            done.append(&mut self.held);
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
}

impl World for FailingWorld {
    fn disk(&self, directory: &Path, backend: Backend, pool: Pool) -> Result<Opened> {
        let mut opened = OsWorld.disk(directory, backend, pool)?;
        if directory.starts_with(&self.place) {
            self.still.wakers.lock().expect("nobody panicked").push(opened.disk.waker());
            let (broken, still) = (self.broken.clone(), self.still.clone());
            let (inner, held, syncs) = (opened.disk, Vec::new(), BTreeSet::new());
            opened.disk = Box::new(FailingDisk { inner, broken, still, held, syncs });
        }
        Ok(opened)
    }

    fn tree(&self, path: &Path, backend: Backend) -> Result<Box<dyn BlockFile>> {
        OsWorld.tree(path, backend)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        OsWorld.exists(path)
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        OsWorld.is_same(one, other)
    }

    fn read_text(&self, path: &Path) -> Result<String> {
        OsWorld.read_text(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8], backend: Backend) -> Result<()> {
        OsWorld.replace(path, bytes, backend)
    }

    fn make_directory(&self, path: &Path) -> Result<()> {
        OsWorld.make_directory(path)
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        OsWorld.free_bytes(path)
    }

    fn chunk_settings(&self, capacity: u64, pool: Pool) -> chunk::Settings {
        OsWorld.chunk_settings(capacity, pool)
    }

    fn meta_settings(&self, capacity: u64, random: Arc<dyn Random>) -> meta::Settings {
        OsWorld.meta_settings(capacity, random)
    }

    fn run(&self, name: &str, disk: Box<dyn Disk>, open: Open) -> Result<Ended> {
        OsWorld.run(name, disk, open)
    }

    fn aside(&self, name: &str, work: Boxed<'static, ()>) -> Result<Ended> {
        OsWorld.aside(name, work)
    }

    fn say(&self, line: &str) {
        let mut said = self.said.lock().expect("nobody panicked");
        said.push_str(line);
        said.push('\n');
    }

    fn planted(&self) -> Option<Planted> {
        self.planted
    }
}

/// A store of two devices, `good` and `bad`, that goes with the test.
struct Scene {
    directory: PathBuf,
    broken: Arc<AtomicBool>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

impl Scene {
    async fn start(&self) -> (Running, Client) {
        let running = self.try_start(&["good", "bad"]).await.expect("the node starts");
        let client = client_of(&running.address).await;
        (running, client)
    }

    async fn try_start(&self, names: &[&str]) -> Result<Running> {
        self.try_start_as_new(names, None).await
    }

    async fn try_start_as_new(&self, names: &[&str], new: Option<&str>) -> Result<Running> {
        let device = |name: &&str| {
            let directory = self.directory.join(name);
            DeviceSetting { directory, class: Class::Ssd, capacity: Some(256 << 20) }
        };
        let mut settings = Settings::new("127.0.0.1:0", names.iter().map(device).collect());
        settings.console = Door::At("127.0.0.1:0".to_string());
        settings.as_new = new.map(|name| self.directory.join(name)).into_iter().collect();
        let world =
            FailingWorld { place: self.directory.join("bad"), broken: self.broken.clone(), ..FailingWorld::default() };
        let (clock, random) = (Arc::new(os::clock::SystemClock::new()), Arc::new(os::random::SystemRandom));
        node::start(settings, Arc::new(world), Arc::new(os::net::TcpNet), clock, random).await
    }
}

fn content(number: u64) -> Bytes {
    Bytes::from((0..300_000).map(|at: u64| (at.wrapping_mul(number | 1) >> 3) as u8).collect::<Vec<u8>>())
}

/// Files that are being written: as many on either device as chance has it.
async fn writers(client: &Client, name: &str, are_synced: bool) -> Vec<FileWriter> {
    let mut writers = Vec::new();
    for number in 0..10 {
        let mut writer = client.create(&format!("/{name}{number}"), CreateOptions::default()).await.expect("made");
        writer.write(content(number)).await.expect("written");
        let done = if are_synced { writer.sync().await } else { writer.hflush().await };
        done.expect("there");
        writers.push(writer);
    }
    writers
}

async fn put(client: &Client, number: u64) -> Result<()> {
    let mut writer = client.create(&format!("/f{number}"), CreateOptions::default()).await?;
    writer.write(content(number)).await?;
    writer.close().await.map(drop)
}

/// What the console answers.
fn get(running: &Running, path: &str) -> String {
    let mut socket = std::net::TcpStream::connect(running.console.as_ref().expect("a console")).expect("it listens");
    write!(socket, "GET {path} HTTP/1.1\r\nHost: console\r\nConnection: close\r\n\r\n").expect("it is asked");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("it answers");
    answer
}

/// An fdatasync that fails takes the device out of service, and no later write to it is acknowledged. New files and chunks of bags go to the
/// other device, and so do those that are being written if what was acknowledged of them is synced; of the others it is said which bytes
/// may be lost. What was acknowledged is read; `device ls`, health and metrics say it. After a restart everything acknowledged is there,
/// and the device is tried anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync() {
    let directory = std::env::temp_dir().join(format!("stormwell-node-{}-sync", std::process::id()));
    let scene = Scene { directory, broken: Arc::default() };
    let (running, client) = scene.start().await;
    let bag = client.bag_create("b", false).await.expect("a bag");
    let mut acknowledged: BTreeSet<u64> = BTreeSet::new();
    for number in 0..20 {
        put(&client, number).await.expect("put");
        acknowledged.insert(number);
    }
    let (logs, loose) = (writers(&client, "log", true).await, writers(&client, "loose", false).await);
    scene.broken.store(true, Ordering::SeqCst);
    for number in 100..140 {
        put(&client, number).await.expect("the other device has room");
        acknowledged.insert(number);
    }
    for (number, mut writer) in (0..).zip(logs) {
        writer.write(content(number + 1)).await.expect("taken");
        writer.sync().await.expect("what was synced is safe, what comes goes elsewhere");
        assert_eq!(writer.close().await.expect("closed").length, 600_000);
    }
    let mut may_be_lost = 0;
    for mut writer in loose {
        match writer.sync().await {
            Ok(()) => assert_eq!(writer.close().await.expect("closed").length, 300_000),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                assert!(error.text().contains("bytes 0 to 300000 of /loose"), "{error}");
                assert!(error.text().contains("failed to sync (Input/output error (os error 5))"), "{error}");
                assert!(error.text().contains("reads go on"), "{error}");
                may_be_lost += 1;
            }
        }
    }
    assert!((1..10).contains(&may_be_lost), "{may_be_lost} of ten were on the device that failed");
    let producer = bag.producer(client::ProducerOptions::default());
    for number in 0..30 {
        producer.push(content(number)).await.expect("pushed");
    }
    producer.flush().await.expect("every chunk found a device");
    for number in &acknowledged {
        let read = client.read_small(&format!("/f{number}")).await.expect("acknowledged bytes are read");
        assert!(read == content(*number), "file {number} has changed");
    }
    let devices = client.devices().await.expect("listed").devices;
    let [bad] = &devices.iter().filter(|device| device.out_of_service).collect::<Vec<_>>()[..] else {
        panic!("{devices:?}")
    };
    assert!(bad.place.ends_with("bad") && bad.failures > 0 && bad.trouble.contains("failed write or sync"), "{bad:?}");
    let health = get(&running, "/health/ready");
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("bad is out of service"), "{health}");
    let metrics = get(&running, "/metrics");
    let out = metrics.lines().filter(|line| line.starts_with("stormwell_device_out_of_service{"));
    let out: Vec<(bool, bool)> = out.map(|line| (line.contains("/bad\""), line.ends_with(" 1"))).collect();
    assert!(out.len() == 2 && out.iter().all(|(bad, out)| bad == out), "{metrics}");
    drop((producer, bag, client));
    running.stop().await;
    scene.broken.store(false, Ordering::SeqCst);
    let (running, client) = scene.start().await;
    assert!(client.devices().await.expect("listed").devices.iter().all(|device| !device.out_of_service));
    for number in &acknowledged {
        let read = client.read_small(&format!("/f{number}")).await.expect("it survived");
        assert!(read == content(*number), "file {number} has changed over the restart");
    }
    for number in 0..10 {
        let read = client.read_small(&format!("/log{number}")).await.expect("it survived");
        assert!(read == [content(number), content(number + 1)].concat(), "log {number} has changed");
    }
    put(&client, 5000).await.expect("put");
    drop(client);
    running.stop().await;
}

/// A store whose device `bad` failed, was emptied and removed: it takes no deletion, so it still holds its chunks.
async fn with_a_removed_device(name: &str) -> Scene {
    let directory = std::env::temp_dir().join(format!("stormwell-node-{}-{name}", std::process::id()));
    let scene = Scene { directory, broken: Arc::default() };
    let (running, client) = scene.start().await;
    for number in 0..20 {
        put(&client, number).await.expect("put");
    }
    scene.broken.store(true, Ordering::SeqCst);
    for number in 100..140 {
        put(&client, number).await.expect("the other device has room");
    }
    // It says so a moment after it failed.
    let failed = async || listed(&client).await.into_iter().find(|device| device.out_of_service);
    until("it is out of service", async || failed().await.is_some()).await;
    let failed = failed().await.expect("one is");
    assert!(failed.chunks > 0, "{failed:?}");
    client.drain(failed.device).await.expect("it begins");
    until("it is removed", async || !listed(&client).await.iter().any(|device| device.device == failed.device)).await;
    drop(client);
    running.stop().await;
    scene.broken.store(false, Ordering::SeqCst);
    scene
}

async fn listed(client: &Client) -> Vec<client::Device> {
    client.devices().await.expect("listed").devices
}

/// Starts that name a removed device which still holds its chunks leave it out with a word, wherever it is, and serve the others; its place may
/// have a new one. A device of another store is refused, also in that place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_device_that_was_removed() {
    let scene = with_a_removed_device("removed").await;
    let bad = scene.directory.join("bad");
    for names in [&["good", "bad"][..], &["bad", "good"], &["good"], &["good", "bad"]] {
        let running = scene.try_start(names).await.expect("it starts with the other one");
        let word = |note: &&String| note.contains("bad: ") && note.contains("was emptied and removed from this store");
        let said = running.notes.iter().filter(word).count();
        assert_eq!(said, usize::from(names.contains(&"bad")), "{:?}", running.notes);
        assert_eq!(running.missing, []);
        let client = client_of(&running.address).await;
        assert_eq!(listed(&client).await.len(), 1);
        for number in 0..20 {
            let read = client.read_small(&format!("/f{number}")).await.expect("it was moved");
            assert!(read == content(number), "file {number} has changed");
        }
        drop(client);
        running.stop().await;
    }

    let running = scene.try_start_as_new(&["good", "bad"], Some("bad")).await.expect("it starts");
    assert!(running.notes.iter().any(|note| note.contains("--as-new changed nothing")), "{:?}", running.notes);
    assert!(running.notes.iter().all(|note| !note.contains("made a new device")), "{:?}", running.notes);
    running.stop().await;

    // Nor does one that cannot be opened stop the others, whatever is said of it.
    let identity = bad.join("chunks/identity-00000000");
    let whole = std::fs::read(&identity).expect("it is there");
    let mut damaged = whole.clone();
    damaged[24] ^= 1;
    std::fs::write(&identity, damaged).expect("written");
    for new in [None, Some("bad")] {
        let running = scene.try_start_as_new(&["good", "bad"], new).await.expect("it starts");
        assert!(running.notes.iter().any(|note| note.contains("cannot be opened")), "{:?}", running.notes);
        running.stop().await;
    }
    std::fs::write(&identity, whole).expect("written");

    // It is known wherever it is. In its place, whose disk may have been taken away, a new one is made if somebody says so.
    std::fs::rename(&bad, scene.directory.join("old")).expect("moved away");
    let running = scene.try_start(&["good", "bad"]).await.expect("it starts");
    assert!(running.notes.iter().any(|note| note.contains("its disk may be taken away")), "{:?}", running.notes);
    running.stop().await;
    let running = scene.try_start_as_new(&["good", "bad", "old"], Some("bad")).await.expect("it starts");
    let word = |word: &str| running.notes.iter().filter(|note| note.contains(word)).count();
    assert_eq!((word("bad: made a new device"), word("old: device")), (1, 1), "{:?}", running.notes);
    let client = client_of(&running.address).await;
    assert_eq!(listed(&client).await.len(), 2);
    drop(client);
    running.stop().await;

    // In its place one of another store, whose own metadata are nowhere, so that nothing else says whose it is.
    let directory = std::env::temp_dir().join(format!("stormwell-node-{}-foreign", std::process::id()));
    let foreign = Scene { directory, broken: Arc::default() };
    let (running, client) = foreign.start().await;
    for number in 0..20 {
        put(&client, number).await.expect("put");
    }
    drop(client);
    running.stop().await;
    std::fs::remove_dir_all(scene.directory.join("old")).expect("removed");
    std::fs::rename(foreign.directory.join("bad"), scene.directory.join("old")).expect("moved here");
    drop(foreign);
    let error = scene.try_start(&["good", "bad", "old"]).await.map(drop).expect_err("it is another store's");
    assert!(error.text().contains("chunks of another store"), "{error}");
}

/// A device of which it is said that it is gone for good, and that is there, is kept: also if it is not named, and if it cannot be opened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_there_is_not_new() {
    let directory = std::env::temp_dir().join(format!("stormwell-node-{}-not-new", std::process::id()));
    let scene = Scene { directory, broken: Arc::default() };
    let (running, client) = scene.start().await;
    for number in 0..20 {
        put(&client, number).await.expect("put");
    }
    drop(client);
    running.stop().await;
    let identity = scene.directory.join("bad/chunks/identity-00000000");
    let whole = std::fs::read(&identity).expect("it is there");
    for (names, is_there) in [(&["good"][..], true), (&["good", "bad"], false)] {
        if !is_there {
            std::fs::remove_file(&identity).expect("removed");
        }
        let running = scene.try_start_as_new(names, Some("bad")).await.expect("it starts with the other one");
        let noted = running.notes.iter().any(|note| note.contains("--as-new changed nothing"));
        assert_eq!((noted, running.missing.len()), (is_there, 1), "{:?}", running.notes);
        running.stop().await;
    }
    std::fs::write(&identity, whole).expect("written");
    // Nor does one keep the others from serving whose directory cannot even be locked.
    let lock = scene.directory.join("bad/chunks/lock");
    std::fs::remove_file(&lock).expect("removed");
    std::fs::create_dir(&lock).expect("made");
    let running = scene.try_start(&["good", "bad"]).await.expect("it starts with the other one");
    assert_eq!(running.missing.len(), 1, "{:?}", running.notes);
    running.stop().await;
    std::fs::remove_dir(&lock).expect("removed");
    let (running, client) = scene.start().await;
    assert_eq!(running.missing, []);
    for number in 0..20 {
        assert!(client.read_small(&format!("/f{number}")).await.expect("it is there") == content(number));
    }
    drop(client);
    running.stop().await;
}

/// A removed device that another store had since then holds that store's chunks: it is refused, whether that store was a node's own or had it
/// as a member's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_device_that_another_store_had() {
    for (name, text) in [("metadata", "stormwell metadata 1\n/nowhere/meta\n"), ("node", "stormwell node 1\n")] {
        let scene = with_a_removed_device(&format!("had-{name}")).await;
        std::fs::write(scene.directory.join("bad").join(name), text).expect("written");
        let error = scene.try_start(&["good", "bad"]).await.map(drop).expect_err("it may be another store's");
        assert!(error.text().contains("chunks of another store"), "{error}");
    }
}
