//! Bad luck under writers of the HDFS gateway: the node is killed, the store is full.

use crate::Fixture;
use crate::hdfs_user::{Refused, client, content, hdfs};
use crate::hdfs_write::{BLOCK_SIZE, Open, PACKET, Writer, ask, stored, with_length};
use base::error::ErrorKind;
use base::limit::FULL_WAIT;
use base::policy::{Class, Policy};
use bytes::Bytes;
use gateway_hdfs::message::files::{
    AbandonBlock, CREATE, Create, CreateAnswer, Nothing, RecoverLease, Truth, UpdatePipeline,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlock, Permission};
use gateway_hdfs::message::transfer::{NO_PACKET, OOB_RESTART, SETUP_CREATE, SETUP_STREAMING_RECOVERY, SUCCESS};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Tells the test program to be a node in this directory.
const BE_NODE: &str = "STORMWELL_TEST_NODE_AT";
const WRITERS: u64 = 8;
/// Every so many packets one is to be synced.
const SYNC_EVERY: u64 = 16;
/// So much of each file is acknowledged when the node is killed.
const ACKNOWLEDGED_MIN: u64 = 2 << 20;
/// What a writer sends if it is not stopped: the device has room for all of it.
const LENGTH: usize = 16 << 20;

/// A node that is a process of its own.
pub struct Elsewhere {
    process: Child,
    pub hdfs: String,
    /// Stays open: its test harness says after a minute that the test takes long, and would end if nobody could read that.
    _said: BufReader<ChildStdout>,
}

impl Elsewhere {
    /// Starts this test program again, as a node.
    pub fn start(fixture: &Fixture) -> Elsewhere {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(["--exact", "hdfs_trouble::node_of_a_test", "--nocapture"]).env(BE_NODE, &fixture.directory);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut process = process.expect("it starts");
        let mut said = BufReader::new(process.stdout.take().expect("it is piped"));
        let lines = said.by_ref().lines().map_while(Result::ok);
        let hdfs = lines.filter_map(|line| line.strip_prefix("hdfs ").map(str::to_string)).next();
        Elsewhere { process, hdfs: hdfs.expect("the node says where it is"), _said: said }
    }

    /// Its number, as the system knows it.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.process.kill().expect("it is killed");
        self.process.wait().expect("it ends");
    }
}

/// No promise: the node of `hdfs_killed_under_writers`, in a process that it kills. Without its variable it does nothing; it ends
/// with its parent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_a_test() {
    let Some(directory) = std::env::var_os(BE_NODE) else { return };
    let mut fixture = Fixture::at(directory.into());
    fixture.run().await;
    // On a line of its own, whatever the harness has begun to print.
    println!("\nhdfs {}", hdfs(&fixture));
    let ended = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ended = ended.await;
    std::process::exit(0);
}

/// A file with blocks of this size, and the first of them.
async fn begun(fixture: &Fixture, path: &str, block_size: u64) -> (Open, LocatedBlock) {
    let create = Create {
        path: path.to_string(),
        masked: Permission { bits: 0o644 },
        holder: "one".to_string(),
        flags: CREATE,
        parents: true,
        replication: 1,
        block_size,
        ..Create::default()
    };
    let answer: CreateAnswer = ask(fixture, "create", &create).await.expect("the file is new");
    let inode = answer.status.and_then(|status| status.inode).expect("clients need it");
    let file = Open { path: create.path, holder: create.holder, inode };
    let block = file.add(fixture, None).await.expect("a block");
    (file, block)
}

/// Writes packets, some of them to be synced, until the connection breaks, and counts what was acknowledged.
/// In the middle it waits for `all_far`, so that everybody writes when the node is killed.
async fn write_on(mut writer: Writer, bytes: Bytes, acknowledged: Arc<AtomicU64>, all_far: Arc<AtomicBool>) {
    let mut ends = VecDeque::new();
    let mut at = 0;
    for (number, part) in bytes[..LENGTH].chunks(PACKET).enumerate() {
        while at > LENGTH as u64 / 2 && !all_far.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let packet = writer.packet(at, part, false, (number as u64).is_multiple_of(SYNC_EVERY));
        at += part.len() as u64;
        ends.push_back(at);
        if writer.stream.write_all(&packet).await.is_err() {
            break;
        }
        // Some packets are always on their way.
        while ends.len() > 8 {
            let Ok((_, SUCCESS)) = writer.hear().await else { return };
            acknowledged.store(ends.pop_front().expect("there are some"), Ordering::Relaxed);
        }
    }
    while let (Ok((_, SUCCESS)), Some(end)) = (writer.hear().await, ends.pop_front()) {
        acknowledged.store(end, Ordering::Relaxed);
    }
}

/// After kill -9 under eight writers every packet that was acknowledged is in its file, and closed files are whole: byte by byte.
/// The lease of each file can be recovered, and the file goes on at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_killed_under_writers() {
    let name = format!("stormwell-node-{}-hdfs-killed", std::process::id());
    let mut fixture = Fixture::at(std::env::temp_dir().join(name));
    let bytes = |number: u64| content(LENGTH + PACKET, number + 1);
    let go_on = Arc::new(AtomicBool::new(false));
    fixture.elsewhere = Some(Elsewhere::start(&fixture));
    let mut writers = Vec::new();
    for number in 0..WRITERS {
        let closed = Open::new(&fixture, &format!("/closed/{number}")).await;
        let mut last: Option<ExtendedBlock> = None;
        for part in bytes(number)[..2 * BLOCK_SIZE as usize + 777].chunks(BLOCK_SIZE as usize) {
            let block = closed.add(&fixture, last.as_ref()).await.expect("a block");
            closed.fill(&fixture, &block.block, 0, part).await;
            last = Some(with_length(&block, part.len() as u64));
        }
        assert_eq!(closed.complete(&fixture, last.as_ref()).await, Ok(true));
        let (file, block) = begun(&fixture, &format!("/open/{number}"), 2 * LENGTH as u64).await;
        let writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
        let acknowledged = Arc::new(AtomicU64::new(0));
        let writing = tokio::spawn(write_on(writer, bytes(number), acknowledged.clone(), go_on.clone()));
        writers.push((file, writing, acknowledged));
    }
    let far = |acknowledged: &AtomicU64| acknowledged.load(Ordering::Relaxed) >= ACKNOWLEDGED_MIN;
    let all_far = async {
        while !writers.iter().all(|(_, _, acknowledged)| far(acknowledged)) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all_far).await.expect("they write");
    go_on.store(true, Ordering::Relaxed);
    fixture.elsewhere.take().expect("it runs").kill();
    fixture.run().await;
    for (number, (file, writing, acknowledged)) in (0..).zip(writers) {
        writing.await.expect("it ends with its connection");
        let (whole, acknowledged) = (bytes(number), acknowledged.load(Ordering::Relaxed) as usize);
        assert!(stored(&fixture, &format!("/closed/{number}")).await == whole[..2 * BLOCK_SIZE as usize + 777]);
        let recover = RecoverLease { path: file.path.clone(), holder: "another".to_string() };
        assert!(ask::<Truth>(&fixture, "recoverLease", &recover).await.expect("recovered").result);
        let there = read(&fixture, &file.path).await;
        assert!(there.len() >= acknowledged, "{} bytes of {acknowledged}", there.len());
        assert!(there == whole[..there.len()], "{} has other bytes", file.path);
        goes_on(&fixture, &file.path, &whole[there.len()..][..PACKET]).await;
        assert!(read(&fixture, &file.path).await == whole[..there.len() + PACKET], "{} went on wrong", file.path);
    }
    fixture.stop().await;
}

async fn read(fixture: &Fixture, path: &str) -> Bytes {
    let reader = client(fixture).await.open(path).await.expect("it is there");
    let length = reader.length().await.expect("known");
    Bytes::from(reader.read_at(0, length).await.expect("it can be read").concat())
}

/// Appends to a file and closes it.
async fn goes_on(fixture: &Fixture, path: &str, more: &[u8]) {
    let (file, block) = Open::append(fixture, path, 0).await.expect("nobody writes it");
    let block = match block {
        Some(block) => block.block,
        None => file.add(fixture, None).await.expect("a block").block,
    };
    let from = block.length.unwrap_or(0);
    file.fill(fixture, &block, from, more).await;
    let last = ExtendedBlock { length: Some(from + more.len() as u64), ..block };
    assert_eq!(file.complete(fixture, Some(&last)).await, Ok(true));
}

/// Writes until the node says that it is to be asked again; what was acknowledged.
async fn fill(fixture: &Fixture, mut writer: Writer) -> u64 {
    let part = content(BLOCK_SIZE as usize, 5);
    let (mut at, mut acknowledged) = (0, 0);
    loop {
        if at < 512 * BLOCK_SIZE && at < acknowledged + 4 * BLOCK_SIZE {
            writer.send(at, &part).await;
            at += BLOCK_SIZE;
            continue;
        }
        match tokio::time::timeout(Duration::from_millis(300), writer.hear()).await {
            Ok(Ok((NO_PACKET, OOB_RESTART))) => return acknowledged,
            Ok(heard) => {
                assert_eq!(heard.expect("an acknowledgement").1, SUCCESS);
                acknowledged += BLOCK_SIZE;
            }
            // It waits for room: as if it had waited long enough.
            Err(_) => drop(fixture.clock.ahead.fetch_add(FULL_WAIT.as_secs(), Ordering::Relaxed)),
        }
    }
}

fn is_about_room(refused: &Refused) -> bool {
    let words = ["could only be written to 0 of the 1 minReplication nodes", "The store is full"];
    refused.0 == "java.io.IOException" && words.iter().all(|words| refused.1.contains(words))
}

/// A store that is full says so in HDFS's words: to whoever is in the middle of a block, by way of the recovery of its pipeline, and
/// at once to whoever wants another block. Reads and deletes go on; after a delete there is room again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_full() {
    let mut fixture = Fixture::start("hdfs-full").await;
    let kept = Open::new(&fixture, "/kept").await;
    let bytes = content(77_777, 9);
    let block = kept.add(&fixture, None).await.expect("a block");
    kept.fill(&fixture, &block.block, 0, &bytes).await;
    assert_eq!(kept.complete(&fixture, Some(&with_length(&block, bytes.len() as u64))).await, Ok(true));
    let next = Open::new(&fixture, "/next").await;
    let (file, block) = begun(&fixture, "/large", 1 << 40).await;
    let writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    let acknowledged = fill(&fixture, writer).await;
    let stamped = file.update(&fixture, &block.block).await.expect("a stamp");
    let stage = (SETUP_STREAMING_RECOVERY, stamped.generation_stamp);
    let _again = Writer::begin(&fixture, &block.block, stage.0, stage.1).await.expect("it may");
    let update = UpdatePipeline { holder: file.holder.clone(), old: block.block.clone(), new: stamped };
    let refused = ask::<Nothing>(&fixture, "updatePipeline", &update).await.expect_err("no room");
    assert!(is_about_room(&refused), "{refused:?}");
    let refused = next.add(&fixture, None).await.expect_err("no room");
    assert!(is_about_room(&refused), "{refused:?}");
    assert!(stored(&fixture, "/kept").await == bytes);
    let recover = RecoverLease { path: file.path.clone(), holder: "another".to_string() };
    assert!(ask::<Truth>(&fixture, "recoverLease", &recover).await.expect("recovered").result);
    assert!(client(&fixture).await.stat("/large").await.expect("it is there").length >= acknowledged);
    client(&fixture).await.delete("/large", false).await.expect("deleted");
    let room = async {
        loop {
            match next.add(&fixture, None).await {
                Ok(block) => break block,
                Err(refused) => assert!(is_about_room(&refused), "{refused:?}"),
            }
        }
    };
    let block = tokio::time::timeout(Duration::from_secs(60), room).await.expect("space comes back");
    next.fill(&fixture, &block.block, 0, &bytes).await;
    assert_eq!(next.complete(&fixture, Some(&with_length(&block, bytes.len() as u64))).await, Ok(true));
    assert!(stored(&fixture, "/next").await == bytes);
    fixture.stop().await;
}

/// A client whose connection broke sends again what it was not told of, while it is on its way still: it is told when it is written,
/// and need not send anything more before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_sent_again_on_its_way() {
    let mut fixture = Fixture::start("hdfs-on-its-way").await;
    let bytes = content(3 * BLOCK_SIZE as usize, 8);
    let (large, block) = begun(&fixture, "/large", 1 << 40).await;
    let filling = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    let (file, block) = begun(&fixture, "/a", 1 << 30).await;
    let mut writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    let (head, rest) = bytes.split_at(PACKET);
    writer.send_all(0, head, PACKET).await;
    fill(&fixture, filling).await;
    // It waits for room.
    writer.send(head.len() as u64, rest).await;
    assert!(tokio::time::timeout(Duration::from_millis(500), writer.hear()).await.is_err(), "there is none");
    drop(writer);
    let stamped = file.update(&fixture, &block.block).await.expect("a stamp");
    let stage = (SETUP_STREAMING_RECOVERY, stamped.generation_stamp);
    let mut writer = Writer::begin(&fixture, &block.block, stage.0, stage.1).await.expect("it may");
    writer.send(head.len() as u64, rest).await;
    assert!(tokio::time::timeout(Duration::from_millis(500), writer.hear()).await.is_err(), "there is none");
    client(&fixture).await.delete(&large.path, false).await.expect("deleted");
    tokio::time::timeout(Duration::from_secs(60), writer.heard()).await.expect("it is told");
    writer.end(bytes.len() as u64).await;
    let last = ExtendedBlock { length: Some(bytes.len() as u64), ..stamped };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    assert!(stored(&fixture, "/a").await == bytes);
    fixture.stop().await;
}

/// A create and an append that begin while no device has room wait for some, as a put does: what was deleted just before comes back a moment
/// later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_opened_when_there_is_room() {
    let mut fixture = Fixture::start("hdfs-opened-later").await;
    assert_eq!(Open::new(&fixture, "/there").await.complete(&fixture, None).await, Ok(true));
    let (large, block) = begun(&fixture, "/large", 1 << 40).await;
    let filling = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    let (_next, block) = begun(&fixture, "/next", 1 << 30).await;
    let mut next = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    fill(&fixture, filling).await;
    let native = client(&fixture).await;
    // A device is full while somebody waits for room there.
    next.send(0, &content(BLOCK_SIZE as usize, 8)).await;
    let full = async {
        let mut probes = 0..;
        loop {
            let probe = format!("/probe{}", probes.next().expect("it has no end"));
            match native.create(&probe, Default::default()).await {
                Ok(probe) => drop(probe.close().await.expect("closed")),
                Err(error) => break assert_eq!(error.kind(), ErrorKind::Full, "{error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), full).await.expect("the store hears of it");
    let (new, there) = {
        let opened =
            async { tokio::join!(Open::create(&fixture, "/new", "one", CREATE), Open::append(&fixture, "/there", 0)) };
        let mut opened = std::pin::pin!(opened);
        let at_once = tokio::time::timeout(Duration::from_millis(500), &mut opened).await;
        native.delete(&large.path, false).await.expect("deleted");
        match at_once {
            Ok(opened) => opened,
            Err(_) => tokio::time::timeout(Duration::from_secs(60), opened).await.expect("space comes back"),
        }
    };
    assert_eq!(new.expect("there is room").complete(&fixture, None).await, Ok(true));
    assert_eq!(there.expect("there is room").0.complete(&fixture, None).await, Ok(true));
    fixture.stop().await;
}

/// A tier that is full refuses the blocks of the files that belong to it, and no others: those of another tier are written, and so
/// is what may go to either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_full_is_one_tier() {
    let name = format!("stormwell-node-{}-hdfs-tiers", std::process::id());
    let mut fixture = Fixture::at(std::env::temp_dir().join(name));
    fixture.classes = vec![Class::Ssd, Class::Hdd];
    fixture.run().await;
    let native = client(&fixture).await;
    for (path, class) in [("/fast", Class::Ssd), ("/slow", Class::Hdd)] {
        native.make_directory(path, false).await.expect("made");
        native.set_policy(path, Policy { tier: Some(class), ..Policy::default() }).await.expect("set");
    }
    let next = Open::new(&fixture, "/fast/next").await;
    let (_file, block) = begun(&fixture, "/fast/large", 1 << 40).await;
    let writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    fill(&fixture, writer).await;
    // Moments after the writer, the gateway knows.
    let refused = async {
        loop {
            let block = match next.add(&fixture, None).await {
                Ok(block) => block.block,
                Err(refused) => break refused,
            };
            let (path, holder, inode) = (next.path.clone(), next.holder.clone(), Some(next.inode));
            let give_back = AbandonBlock { block, path, holder, inode };
            ask::<Nothing>(&fixture, "abandonBlock", &give_back).await.expect("given back");
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), refused).await.expect("it is full");
    assert!(is_about_room(&refused), "{refused:?}");
    let bytes = content(2 * BLOCK_SIZE as usize, 9);
    let file = Open::new(&fixture, "/slow/next").await;
    let mut last: Option<ExtendedBlock> = None;
    for part in bytes.chunks(BLOCK_SIZE as usize) {
        let block = file.add(&fixture, last.as_ref()).await.expect("the other tier has room");
        file.fill(&fixture, &block.block, 0, part).await;
        last = Some(with_length(&block, part.len() as u64));
    }
    assert_eq!(file.complete(&fixture, last.as_ref()).await, Ok(true));
    assert!(stored(&fixture, "/slow/next").await == bytes);
    Open::new(&fixture, "/either").await.add(&fixture, None).await.expect("the other tier has room");
    fixture.stop().await;
}
