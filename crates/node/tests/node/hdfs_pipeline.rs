//! Writers of the HDFS gateway that want more copies than there are servers, and those that send nonsense after they began well.

use crate::Fixture;
use crate::hdfs_user::{CLIENT_PROTOCOL, User, content};
use crate::hdfs_write::{BLOCK_SIZE, Open, PACKET, Writer, ask, stored, with_length};
use base::env::Random;
use gateway_hdfs::message::files::{
    Append, AppendAnswer, BlockAnswer, CREATE, Create, CreateAnswer, GetAdditionalDatanode, Nothing, OVERWRITE,
    UpdatePipeline,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, FileStatus, LocatedBlock, Permission};
use gateway_hdfs::message::located::{GetBlockLocations, GetBlockLocationsAnswer};
use gateway_hdfs::message::names::{PathRequest, StatusAnswer};
use gateway_hdfs::message::transfer::{
    CHECKSUM_CRC32, CHECKSUM_CRC32C, CHECKSUM_NULL, PACKET_HEADER, PacketHeader, SETUP_APPEND, SETUP_CREATE,
    SETUP_STREAMING_RECOVERY,
};
use sim::random::SimRandom;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// As many copies as Hadoop's clients want if nobody says otherwise.
const WANTED: u32 = 3;

async fn shown(fixture: &Fixture) -> FileStatus {
    let path = PathRequest { path: "/a".to_string() };
    let answer: StatusAnswer = ask(fixture, "getFileInfo", &path).await.expect("answered");
    answer.status.expect("it is there")
}

/// A new generation stamp for a block, a connection under it, and the pipeline's end of the change.
async fn again(fixture: &Fixture, file: &Open, block: &ExtendedBlock, stage: i32) -> (Writer, ExtendedBlock) {
    let stamped = file.update(fixture, block).await.expect("a stamp");
    let writer = Writer::begin(fixture, block, stage, stamped.generation_stamp).await.expect("it may");
    let update = UpdatePipeline { holder: file.holder.clone(), old: block.clone(), new: stamped.clone() };
    ask::<Nothing>(fixture, "updatePipeline", &update).await.expect("updated");
    (writer, stamped)
}

/// Hadoop's default of three copies does no harm where a block has one place: everybody is shown what was wanted, and its writer that
/// there is one, so that Java's client looks for no other server, neither when it flushes, nor when its connection broke, nor when
/// it appends. One that asks for another server is told of the one that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_three_copies_are_wanted() {
    let mut fixture = Fixture::start("hdfs-three").await;
    let bytes = content(400_000, 1);
    let create = Create {
        path: "/a".to_string(),
        masked: Permission { bits: 0o644 },
        holder: "one".to_string(),
        flags: CREATE,
        parents: true,
        replication: WANTED,
        block_size: BLOCK_SIZE,
        ..Create::default()
    };
    let answer: CreateAnswer = ask(&fixture, "create", &create).await.expect("the file is new");
    let status = answer.status.expect("clients need it");
    assert_eq!((status.replication, shown(&fixture).await.replication), (Some(1), Some(WANTED)));
    let inode = status.inode.expect("clients need it");
    let file = Open { path: create.path, holder: create.holder, inode };
    let first: LocatedBlock = file.add(&fixture, None).await.expect("a block, at one place");
    let mut writer = Writer::begin(&fixture, &first.block, SETUP_CREATE, 0).await.expect("it may");
    writer.send_all(0, &bytes[..100_000], PACKET).await;
    assert!(stored(&fixture, "/a").await == bytes[..100_000], "flushed");
    drop(writer);
    let (mut writer, block) = again(&fixture, &file, &first.block, SETUP_STREAMING_RECOVERY).await;
    writer.send_all(100_000, &bytes[100_000..200_000], PACKET).await;
    let other = GetAdditionalDatanode {
        path: file.path.clone(),
        block: block.clone(),
        existing: first.servers().expect("readable"),
        holder: file.holder.clone(),
        existing_storages: first.storage_ids.clone(),
        inode: Some(file.inode),
    };
    let answer: BlockAnswer = ask(&fixture, "getAdditionalDatanode", &other).await.expect("no other");
    assert_eq!((&answer.block.locations, &answer.block.storage_ids), (&first.locations, &first.storage_ids));
    writer.end(200_000).await;
    let last = ExtendedBlock { length: Some(200_000), ..block };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    let append = Append { path: file.path.clone(), holder: file.holder.clone(), flags: None };
    let answer: AppendAnswer = ask(&fixture, "append", &append).await.expect("closed");
    assert_eq!(answer.status.expect("clients need it").replication, Some(1));
    let block = answer.block.expect("it is partly full");
    assert_eq!((block.locations.len(), block.block.length), (1, Some(200_000)));
    let (mut writer, stamped) = again(&fixture, &file, &block.block, SETUP_APPEND).await;
    writer.send_all(200_000, &bytes[200_000..], PACKET).await;
    writer.end(400_000).await;
    let last = ExtendedBlock { length: Some(400_000), ..stamped };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    assert!(stored(&fixture, "/a").await == bytes);
    assert_eq!(shown(&fixture).await.replication, Some(WANTED));
    let locate = GetBlockLocations { path: "/a".to_string(), offset: 0, length: 400_000 };
    let answer: GetBlockLocationsAnswer = ask(&fixture, "getBlockLocations", &locate).await.expect("located");
    let blocks = answer.located.expect("blocks").blocks;
    assert!(blocks.iter().all(|block| block.locations.len() == 1 && !block.corrupt), "{blocks:?}");
    fixture.stop().await;
}

/// Panics of what is tested, those of tests left out: a task that panics ends its connection and nothing else.
fn count_panics() -> Arc<AtomicU64> {
    let (count, before) = (Arc::new(AtomicU64::new(0)), std::panic::take_hook());
    let counted = count.clone();
    std::panic::set_hook(Box::new(move |info| {
        let of_test = info.location().is_some_and(|location| location.file().contains("tests/"));
        counted.fetch_add(u64::from(!of_test), Ordering::Relaxed);
        before(info);
    }));
    count
}

/// Some packets of a block, of which one or all are damaged.
fn damaged_packets(random: &SimRandom, writer: &mut Writer, bytes: &[u8]) -> Vec<u8> {
    let (mut sent, mut at) = (Vec::new(), 0);
    let (count, all) = (1 + random.below(6), random.one_in(4));
    let bad = random.below(count);
    for number in 0..count {
        let length = random.below(1 << random.below(17)) as usize;
        let (last, sync) = (random.one_in(6), random.one_in(4));
        let mut packet = writer.packet(at, &bytes[at as usize..][..length], last, sync);
        at += length as u64;
        if all || number == bad {
            match random.below(6) {
                // A bit of the lengths or of the header.
                0 => packet[random.below(PACKET_HEADER as u64) as usize] ^= 1 << random.below(8),
                // Lengths that are anything.
                1 => packet[..6].fill_with(|| random.next() as u8),
                2 => packet[..4].copy_from_slice(&(random.next() as u32 >> random.below(32)).to_be_bytes()),
                // A header that is well-formed and says what is not so.
                3 => {
                    let offset = random.next() >> (1 + random.below(63));
                    let (number, length) =
                        (random.next() as i64 >> random.below(64), random.next() as u32 >> random.below(32));
                    let header = PacketHeader { offset, number, last, length: length.min(1 << 30), sync };
                    packet.clear();
                    header.encode(random.below(4096) as usize, &mut packet);
                    packet.extend_from_slice(&bytes[..random.below(5000) as usize]);
                }
                4 => packet.truncate(random.below(packet.len() as u64) as usize),
                _ => crate::fuzz::damage(random, &mut packet),
            }
        }
        sent.extend(packet);
    }
    sent
}

/// Packets of which anything is damaged, after a write that began well, are answered or end their connection, and nothing panics: other files
/// are written, and what was acknowledged stays as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_hdfs_packets() {
    let panics = count_panics();
    let mut fixture = Fixture::start("hdfs-packets").await;
    let bytes = content(600_000, 7);
    let write = async |path: &str, bytes: &[u8]| {
        let file = Open::create(&fixture, path, "one", CREATE | OVERWRITE).await.expect("made or replaced");
        let block = file.add(&fixture, None).await.expect("a block");
        file.fill(&fixture, &block.block, 0, bytes).await;
        assert_eq!(file.complete(&fixture, Some(&with_length(&block, bytes.len() as u64))).await, Ok(true));
    };
    write("/kept", &bytes).await;
    for seed in sim::fuzz::seeds(200) {
        let random = SimRandom::new(seed);
        let file = Open::create(&fixture, "/broken", "one", CREATE | OVERWRITE).await.expect("made or replaced");
        let block = file.add(&fixture, None).await.expect("a block").block;
        let kind = [CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_NULL][random.below(3) as usize];
        let mut writer = Writer::begin_with(&fixture, &block, SETUP_CREATE, 0, kind).await.expect("it may");
        let sent = damaged_packets(&random, &mut writer, &bytes);
        // The gateway may have closed it by then.
        let _cut = writer.stream.write_all(&sent).await;
        let _closed = writer.stream.shutdown().await;
        let mut answer = Vec::new();
        let read = writer.stream.read_to_end(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(30), read).await;
        let again = "cargo test --release -p node fuzz_hdfs";
        assert!(ended.is_ok(), "seed {seed} is neither answered nor closed: {again}");
        assert_eq!(panics.load(Ordering::Relaxed), 0, "seed {seed} makes something panic: {again}");
        let from = random.below(500_000) as usize;
        write("/next", &bytes[from..from + 1000]).await;
        assert!(stored(&fixture, "/next").await == bytes[from..from + 1000], "seed {seed}: {again}");
        if seed % 16 == 0 {
            assert!(stored(&fixture, "/kept").await == bytes, "seed {seed}: {again}");
        }
    }
    assert!(stored(&fixture, "/kept").await == bytes);
    let status: StatusAnswer = User::superuser(&fixture)
        .await
        .call(CLIENT_PROTOCOL, "getFileInfo", &PathRequest { path: "/kept".to_string() })
        .await
        .expect("the gateway goes on");
    assert_eq!(status.status.map(|status| status.length), Some(bytes.len() as u64));
    fixture.stop().await;
}
