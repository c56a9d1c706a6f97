//! Files written through the HDFS gateway, in the words of its wire: blocks, packets, leases, and what goes wrong with them.

use crate::Fixture;
use crate::hdfs_read::call;
use crate::hdfs_user::{CLIENT_PROTOCOL, Refused, User, client, content, hdfs};
use base::checksum::{crc32, crc32c};
use base::env::Random;
use base::limit::LIST_PAGE_MAX;
use bytes::Bytes;
use gateway_hdfs::message::files::{
    AbandonBlock, AddBlock, Append, AppendAnswer, BlockAnswer, CREATE, Complete, Create, CreateAnswer, Fsync,
    GetAdditionalDatanode, IsFileClosed, ListOpenFiles, ListOpenFilesAnswer, NEW_BLOCK, Nothing, OVERWRITE,
    RecoverLease, RenewLease, Truth, UpdateBlockForPipeline, UpdatePipeline,
};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlock, Permission};
use gateway_hdfs::message::transfer::{
    BaseHeader, CHECKSUM_CRC32, CHECKSUM_CRC32C, CHECKSUM_NULL, CLOSE_RECOVERY, Checksum, ERROR, ERROR_CHECKSUM,
    HEARTBEAT, OperationAnswer, OperationHeader, PacketHeader, SETUP_APPEND, SETUP_CREATE, SETUP_STREAMING_RECOVERY,
    SUCCESS, WriteBlock,
};
use prost::Message;
use sim::random::SimRandom;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const BLOCK_SIZE: u64 = 1 << 20;
/// Bytes in a packet as Java's client sends them.
pub const PACKET: usize = 64_512;
const ALREADY: &str = "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException";
const EXPIRED: &str = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
const EXISTS: &str = "org.apache.hadoop.fs.FileAlreadyExistsException";
const MISSING: &str = "java.io.FileNotFoundException";

pub async fn ask<M: Message + Default>(fixture: &Fixture, method: &str, ask: &impl Message) -> Result<M, Refused> {
    call(fixture, (CLIENT_PROTOCOL, method), ask).await
}

/// A file that a client has open.
pub struct Open {
    pub path: String,
    pub holder: String,
    pub inode: u64,
}

impl Open {
    pub async fn create(fixture: &Fixture, path: &str, holder: &str, flags: u32) -> Result<Open, Refused> {
        let ask_create = Create {
            path: path.to_string(),
            masked: Permission { bits: 0o644 },
            holder: holder.to_string(),
            flags,
            parents: true,
            replication: 1,
            block_size: BLOCK_SIZE,
            ..Create::default()
        };
        let answer: CreateAnswer = ask(fixture, "create", &ask_create).await?;
        let status = answer.status.expect("clients need it");
        assert_eq!((status.length, status.block_size, status.replication), (0, Some(BLOCK_SIZE), Some(1)));
        let (path, holder) = (path.to_string(), holder.to_string());
        Ok(Open { path, holder, inode: status.inode.expect("clients need it") })
    }

    pub async fn new(fixture: &Fixture, path: &str) -> Open {
        Open::create(fixture, path, "one", CREATE).await.expect("the file is new")
    }

    pub async fn append(fixture: &Fixture, path: &str, flags: u32) -> Result<(Open, Option<LocatedBlock>), Refused> {
        let (path, holder) = (path.to_string(), "one".to_string());
        let ask_append = Append { path: path.clone(), holder: holder.clone(), flags: Some(flags) };
        let answer: AppendAnswer = ask(fixture, "append", &ask_append).await?;
        let inode = answer.status.and_then(|status| status.inode).expect("clients need it");
        Ok((Open { path, holder, inode }, answer.block))
    }

    pub async fn add(&self, fixture: &Fixture, previous: Option<&ExtendedBlock>) -> Result<LocatedBlock, Refused> {
        let (path, holder, previous) = (self.path.clone(), self.holder.clone(), previous.cloned());
        let ask_block = AddBlock { path, holder, previous, inode: Some(self.inode) };
        let answer: BlockAnswer = ask(fixture, "addBlock", &ask_block).await?;
        let block = answer.block;
        assert_eq!((block.locations.len(), block.storage_ids.len(), block.storage_types.len()), (1, 1, 1));
        Ok(block)
    }

    pub async fn complete(&self, fixture: &Fixture, last: Option<&ExtendedBlock>) -> Result<bool, Refused> {
        let (path, holder, last) = (self.path.clone(), self.holder.clone(), last.cloned());
        let ask_end = Complete { path, holder, last, inode: Some(self.inode) };
        ask::<Truth>(fixture, "complete", &ask_end).await.map(|answer| answer.result)
    }

    pub async fn update(&self, fixture: &Fixture, block: &ExtendedBlock) -> Result<ExtendedBlock, Refused> {
        let ask_stamp = UpdateBlockForPipeline { block: block.clone(), holder: self.holder.clone() };
        let answer: BlockAnswer = ask(fixture, "updateBlockForPipeline", &ask_stamp).await?;
        Ok(answer.block.block)
    }

    /// Writes these bytes from here on in a block, packet by packet, and ends the block.
    pub async fn fill(&self, fixture: &Fixture, block: &ExtendedBlock, from: u64, bytes: &[u8]) {
        let stage = if from == 0 { SETUP_CREATE } else { SETUP_APPEND };
        let mut writer = Writer::begin(fixture, block, stage, 0).await.expect("it may");
        writer.send_all(from, bytes, PACKET).await;
        writer.end(from + bytes.len() as u64).await;
    }
}

/// A connection that writes a block.
pub struct Writer {
    pub stream: TcpStream,
    kind: i32,
    number: i64,
    /// Packets that were sent and not acknowledged.
    pub sent: Vec<i64>,
}

impl Writer {
    pub async fn begin(
        fixture: &Fixture,
        block: &ExtendedBlock,
        stage: i32,
        stamp: u64,
    ) -> Result<Writer, OperationAnswer> {
        Writer::begin_with(fixture, block, stage, stamp, CHECKSUM_CRC32C).await
    }

    pub async fn begin_with(
        fixture: &Fixture,
        block: &ExtendedBlock,
        stage: i32,
        stamp: u64,
        kind: i32,
    ) -> Result<Writer, OperationAnswer> {
        Writer::begin_at(hdfs(fixture), block, stage, stamp, kind).await
    }

    /// The same at the gateway of any node.
    pub async fn begin_at(
        address: &str,
        block: &ExtendedBlock,
        stage: i32,
        stamp: u64,
        kind: i32,
    ) -> Result<Writer, OperationAnswer> {
        Writer::begin_of(address, block, (stage, 0), stamp, kind).await
    }

    /// The same of a block of which so many bytes were acknowledged.
    async fn begin_of(
        address: &str,
        block: &ExtendedBlock,
        (stage, acknowledged): (i32, u64),
        stamp: u64,
        kind: i32,
    ) -> Result<Writer, OperationAnswer> {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("set");
        let mut writer = Writer { stream, kind, number: 0, sent: Vec::new() };
        let base = BaseHeader { block: block.clone(), token: None };
        let request = WriteBlock {
            header: OperationHeader { base, client: "one".to_string() },
            stage,
            pipeline_size: 1,
            acknowledged,
            sent: 0,
            new_generation_stamp: stamp,
            checksum: Checksum { kind, bytes: 512 },
            caching: None,
        };
        let mut bytes = vec![0, 28, 80];
        request.encode_length_delimited(&mut bytes).expect("room");
        writer.stream.write_all(&bytes).await.expect("sent");
        let answer = OperationAnswer::decode(writer.message().await.expect("an answer").as_slice()).expect("read");
        if answer.status == SUCCESS { Ok(writer) } else { Err(answer) }
    }

    async fn message(&mut self) -> io::Result<Vec<u8>> {
        let mut length = 0;
        for place in 0.. {
            let byte = self.stream.read_u8().await?;
            length |= usize::from(byte & 0x7F) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    fn sums(&self, bytes: &[u8]) -> Vec<u8> {
        match self.kind {
            CHECKSUM_CRC32 => bytes.chunks(512).flat_map(|part| crc32(part).to_be_bytes()).collect(),
            CHECKSUM_CRC32C => bytes.chunks(512).flat_map(|part| crc32c(part).to_be_bytes()).collect(),
            _ => Vec::new(),
        }
    }

    /// A packet as it is sent, under the next number.
    pub fn packet(&mut self, offset: u64, bytes: &[u8], last: bool, sync: bool) -> Vec<u8> {
        let (number, sums) = (self.number, self.sums(bytes));
        self.number += 1;
        self.sent.push(number);
        let mut packet = Vec::new();
        PacketHeader { offset, number, last, length: bytes.len() as u32, sync }.encode(sums.len(), &mut packet);
        packet.extend(sums);
        packet.extend_from_slice(bytes);
        packet
    }

    pub async fn send(&mut self, offset: u64, bytes: &[u8]) {
        let packet = self.packet(offset, bytes, false, false);
        self.stream.write_all(&packet).await.expect("sent");
    }

    /// Sends bytes in packets of this size, all at once, and hears that each is written.
    pub async fn send_all(&mut self, from: u64, bytes: &[u8], size: usize) {
        let mut at = from;
        for part in bytes.chunks(size) {
            self.send(at, part).await;
            at += part.len() as u64;
        }
        self.heard().await;
    }

    /// Sends bytes in one packet, and hears that they are synced.
    pub async fn send_synced(&mut self, offset: u64, bytes: &[u8]) {
        let packet = self.packet(offset, bytes, false, true);
        self.stream.write_all(&packet).await.expect("sent");
        self.heard().await;
    }

    /// Says that it lives, as a client does that has nothing to write.
    pub async fn beat(&mut self) {
        let mut packet = Vec::new();
        PacketHeader { number: HEARTBEAT, ..PacketHeader::default() }.encode(0, &mut packet);
        self.sent.push(HEARTBEAT);
        self.stream.write_all(&packet).await.expect("sent");
    }

    /// The next acknowledgement: number and status.
    pub async fn hear(&mut self) -> io::Result<(i64, i32)> {
        let bytes = self.message().await?;
        assert_eq!(bytes[0], 0x08, "{bytes:?}");
        let mut rest = &bytes[1..];
        let zigzag = prost::encoding::decode_varint(&mut rest).expect("a number");
        assert_eq!((rest[0], rest[2]), (0x10, 0x22), "{bytes:?}");
        Ok(((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), rest[1].into()))
    }

    /// Hears that every packet is written: each once, in order.
    pub async fn heard(&mut self) {
        for number in std::mem::take(&mut self.sent) {
            assert_eq!(self.hear().await.expect("an acknowledgement"), (number, SUCCESS));
        }
    }

    /// Ends the block: hears it, and that the connection ends.
    pub async fn end(mut self, length: u64) {
        let packet = self.packet(length, &[], true, false);
        self.stream.write_all(&packet).await.expect("sent");
        self.heard().await;
        assert!(self.hear().await.is_err(), "nothing comes after the last packet");
    }

    /// Hears what is said before the connection ends.
    pub async fn said_to_the_end(&mut self) -> Vec<(i64, i32)> {
        let mut heard = Vec::new();
        let hearing = async {
            while let Ok(acknowledgement) = self.hear().await {
                heard.push(acknowledgement);
            }
        };
        tokio::time::timeout(Duration::from_secs(20), hearing).await.expect("the connection ends");
        heard
    }
}

pub fn with_length(block: &LocatedBlock, length: u64) -> ExtendedBlock {
    ExtendedBlock { length: Some(length), ..block.block.clone() }
}

pub async fn stored(fixture: &Fixture, path: &str) -> Bytes {
    client(fixture).await.read_small(path).await.expect("it is there")
}

/// A file of several blocks is stored as it was sent, whatever the size of its packets and the kind of their checksums, and each
/// packet is acknowledged once, in order; questions whose answers were lost are answered the same again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_blocks_and_packets() {
    let mut fixture = Fixture::start("hdfs-write").await;
    let bytes = content(2 * BLOCK_SIZE as usize + 77_777, 1);
    let kinds = [CHECKSUM_CRC32C, CHECKSUM_CRC32C, CHECKSUM_CRC32C, CHECKSUM_CRC32, CHECKSUM_NULL];
    for (place, (size, kind)) in [PACKET, 512, 700_000, PACKET, PACKET].into_iter().zip(kinds).enumerate() {
        let path = format!("/d/{place}");
        let file = Open::new(&fixture, &path).await;
        let mut previous: Option<ExtendedBlock> = None;
        for (index, part) in bytes.chunks(BLOCK_SIZE as usize).enumerate() {
            let block = file.add(&fixture, previous.as_ref()).await.expect("a block");
            let again = file.add(&fixture, previous.as_ref()).await.expect("the same block");
            assert_eq!((block.block.clone(), block.offset), (again.block, index as u64 * BLOCK_SIZE));
            let mut writer = Writer::begin_with(&fixture, &block.block, SETUP_CREATE, 0, kind).await.expect("it may");
            writer.beat().await;
            writer.send_all(0, part, size).await;
            writer.beat().await;
            writer.end(part.len() as u64).await;
            previous = Some(with_length(&block, part.len() as u64));
        }
        let last = previous.expect("blocks");
        let other = ExtendedBlock { id: last.id + 1, ..last.clone() };
        assert!(file.add(&fixture, Some(&other)).await.expect_err("not its last").1.contains("Cannot allocate block"));
        let more = ExtendedBlock { length: last.length.map(|length| length + 1), ..last.clone() };
        assert_eq!(file.complete(&fixture, Some(&more)).await, Ok(false), "bytes are missing");
        for _ in 0..2 {
            assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
        }
        let refused = file.complete(&fixture, Some(&other)).await.expect_err("it did not end so");
        assert!(refused.0 == EXPIRED && refused.1.contains("File is not open for writing: /d/"), "{refused:?}");
        assert!(stored(&fixture, &path).await == bytes, "packets of {size} bytes, checksums of kind {kind}");
    }
    let empty = Open::new(&fixture, "/empty").await;
    assert_eq!(empty.complete(&fixture, None).await, Ok(true));
    assert_eq!(empty.complete(&fixture, None).await, Ok(true));
    let large = Open::new(&fixture, "/large").await;
    let block = large.add(&fixture, None).await.expect("a block").block;
    let mut writer = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.expect("it may");
    writer.send_all(0, &bytes[..5], PACKET).await;
    writer.send_all(5, &bytes[5..], 3 << 20).await;
    writer.end(bytes.len() as u64).await;
    let last = ExtendedBlock { length: Some(bytes.len() as u64), ..block };
    assert_eq!(large.complete(&fixture, Some(&last)).await, Ok(true), "longer than a block");
    assert!(stored(&fixture, "/large").await == bytes);
    fixture.stop().await;
}

/// Packets that were there before are taken and acknowledged again, those that begin before the end add what is new: any mix of
/// them gives the bytes once. What is acknowledged is visible, and no more; synced ones are acknowledged in their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_overlapping_packets() {
    let mut fixture = Fixture::start("hdfs-overlap").await;
    let bytes = content(1_500_000, 2);
    let reading = client(&fixture).await;
    for seed in 0..6 {
        let random = SimRandom::new(seed);
        let path = format!("/{seed}");
        let file = Open::new(&fixture, &path).await;
        let block = file.add(&fixture, None).await.expect("a block").block;
        let mut writer = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.expect("it may");
        let reader = reading.open(&path).await.expect("it was made");
        let mut end = 0;
        while end < bytes.len() {
            let from = end - (random.below(1 << random.below(18)) as usize).min(end);
            let to = (from + random.below(150_000) as usize).min(bytes.len());
            let sync = random.one_in(8);
            let packet = writer.packet(from as u64, &bytes[from..to], false, sync);
            writer.stream.write_all(&packet).await.expect("sent");
            end = end.max(to);
            if random.one_in(5) {
                writer.heard().await;
                assert_eq!(reader.length().await.expect("known"), end as u64);
                assert!(reader.read_at(0, u64::MAX).await.expect("read").concat() == bytes[..end], "seed {seed}");
            }
        }
        let empty = writer.packet(end as u64, &[], false, true);
        writer.stream.write_all(&empty).await.expect("sent");
        writer.end(end as u64).await;
        let last = ExtendedBlock { length: Some(end as u64), ..block };
        assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
        assert!(stored(&fixture, &path).await == bytes, "seed {seed}");
    }
    fixture.stop().await;
}

/// Bytes that do not match their checksums are told so and nothing of their packet is stored, what came before is; a packet that
/// leaves a gap, or is none, ends the connection and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_wrong_packets() {
    let mut fixture = Fixture::start("hdfs-wrong").await;
    let bytes = content(300_000, 3);
    for (place, kind) in [CHECKSUM_CRC32C, CHECKSUM_CRC32C, CHECKSUM_CRC32].into_iter().enumerate() {
        let path = format!("/{place}");
        let file = Open::new(&fixture, &path).await;
        let block = file.add(&fixture, None).await.expect("a block").block;
        let mut writer = Writer::begin_with(&fixture, &block, SETUP_CREATE, 0, kind).await.expect("it may");
        // The second overlaps, so that its bytes are compared one checksum after another.
        let from = if place == 1 { PACKET as u64 - 9 } else { PACKET as u64 };
        let good = writer.packet(0, &bytes[..PACKET], false, false);
        let mut bad = writer.packet(from, &bytes[from as usize..from as usize + PACKET], false, false);
        *bad.last_mut().expect("bytes") ^= 1;
        writer.stream.write_all(&[good, bad].concat()).await.expect("sent");
        assert_eq!(writer.said_to_the_end().await, [(0, SUCCESS), (1, ERROR_CHECKSUM)]);
        let recover = RecoverLease { path: path.clone(), holder: "two".to_string() };
        assert_eq!(ask::<Truth>(&fixture, "recoverLease", &recover).await, Ok(Truth { result: true }));
        assert!(stored(&fixture, &path).await == bytes[..PACKET]);
    }
    let file = Open::new(&fixture, "/gap").await;
    let block = file.add(&fixture, None).await.expect("a block").block;
    let huge = [0xFF; 64];
    let mut nonsense: Vec<Vec<u8>> = vec![huge.to_vec(), vec![0, 0, 0, 4, 0, 3, 9, 9, 9], vec![0; 40]];
    let mut writer = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.expect("it may");
    nonsense.push(writer.packet(1, &bytes[..10], false, false));
    nonsense.push(writer.packet(1, &[], true, false));
    nonsense.push(writer.packet(1, &[], false, false));
    let mut alive = Vec::new();
    PacketHeader { number: HEARTBEAT, length: 10, ..PacketHeader::default() }.encode(0, &mut alive);
    alive.extend_from_slice(&bytes[..10]);
    nonsense.push(alive);
    let mut short = writer.packet(0, &bytes[..1000], false, false);
    short[3] -= 4;
    nonsense.push(short);
    for bytes in nonsense {
        let mut writer = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.expect("it may");
        writer.stream.write_all(&bytes).await.expect("sent");
        assert_eq!(writer.said_to_the_end().await, []);
    }
    for (kind, covered) in [(CHECKSUM_CRC32C, 0), (CHECKSUM_CRC32C, 511), (9, 512)] {
        let checksum = Checksum { kind, bytes: covered };
        let base = BaseHeader { block: block.clone(), token: None };
        let header = OperationHeader { base, client: "one".to_string() };
        let request = WriteBlock {
            header,
            stage: SETUP_CREATE,
            pipeline_size: 1,
            acknowledged: 0,
            sent: 0,
            new_generation_stamp: 0,
            checksum,
            caching: None,
        };
        let mut stream = TcpStream::connect(hdfs(&fixture)).await.expect("it listens");
        let mut bytes = vec![0, 28, 80];
        request.encode_length_delimited(&mut bytes).expect("room");
        stream.write_all(&bytes).await.expect("sent");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.expect("it ends");
        let answer = OperationAnswer::decode_length_delimited(said.as_slice()).expect("an answer");
        let text = answer.text.unwrap_or_default();
        assert!(answer.status == ERROR && text.contains(&format!("{covered} bytes are not served")), "{text}");
    }
    file.fill(&fixture, &block, 0, &bytes).await;
    let last = ExtendedBlock { length: Some(bytes.len() as u64), ..block };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    assert!(stored(&fixture, "/gap").await == bytes);
    fixture.stop().await;
}

/// Appending goes on in a last block that is partly full, at any byte; one that is full is not shown, and neither is any if the
/// client wants a new one. Blocks that begin anywhere are written and read like others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_append() {
    let mut fixture = Fixture::start("hdfs-append").await;
    let bytes = content(2 * BLOCK_SIZE as usize, 4);
    let file = Open::new(&fixture, "/a").await;
    let block = file.add(&fixture, None).await.expect("a block");
    file.fill(&fixture, &block.block, 0, &bytes[..1000]).await;
    assert_eq!(file.complete(&fixture, Some(&with_length(&block, 1000))).await, Ok(true));
    let mut at: usize = 1000;
    // As Java's client does it, under a new generation stamp, and as the native one does, under the present one.
    for (to, java) in [(1500, true), (100_001, false), (BLOCK_SIZE as usize, true)] {
        let (file, block) = Open::append(&fixture, "/a", 0).await.expect("closed");
        let block = block.expect("it is partly full");
        assert_eq!((block.block.length, block.offset), (Some(at as u64), 0));
        let stamped =
            if java { file.update(&fixture, &block.block).await.expect("a stamp") } else { block.block.clone() };
        assert_eq!(stamped.generation_stamp, block.block.generation_stamp + u64::from(java));
        let stamp = if java { stamped.generation_stamp } else { 0 };
        let mut writer = Writer::begin(&fixture, &block.block, SETUP_APPEND, stamp).await.expect("it may");
        if java {
            let (holder, old, new) = (file.holder.clone(), block.block.clone(), stamped.clone());
            ask::<Nothing>(&fixture, "updatePipeline", &UpdatePipeline { holder, old, new }).await.expect("updated");
        }
        // The first packet fills the bytes that a checksum covers.
        let first = at.next_multiple_of(512);
        let first = first.min(to);
        writer.send(at as u64, &bytes[at..first]).await;
        writer.send_all(first as u64, &bytes[first..to], PACKET).await;
        writer.end(to as u64).await;
        let last = ExtendedBlock { length: Some(to as u64), ..stamped };
        assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
        assert!(stored(&fixture, "/a").await == bytes[..to], "up to {to}");
        at = to;
    }
    let (file, block) = Open::append(&fixture, "/a", 0).await.expect("closed");
    assert_eq!(block, None, "a block that is full is not shown");
    let next = file.add(&fixture, None).await.expect("a block");
    assert_eq!(next.offset, BLOCK_SIZE);
    file.fill(&fixture, &next.block, 0, &bytes[at..at + 10]).await;
    assert_eq!(file.complete(&fixture, Some(&with_length(&next, 10))).await, Ok(true));
    let (file, block) = Open::append(&fixture, "/a", NEW_BLOCK).await.expect("closed");
    assert_eq!(block, None, "a new one is wanted");
    let next = file.add(&fixture, None).await.expect("a block");
    assert_eq!((next.offset, next.block.id >> 62), (BLOCK_SIZE + 10, 1));
    file.fill(&fixture, &next.block, 0, &bytes[at + 10..]).await;
    let rest = (bytes.len() - at - 10) as u64;
    assert_eq!(file.complete(&fixture, Some(&with_length(&next, rest))).await, Ok(true));
    assert!(stored(&fixture, "/a").await == bytes);
    let refused = Open::append(&fixture, "/none", 0).await.err().expect("there is none");
    assert!(refused.0 == MISSING && refused.1.contains("non-existent file /none"), "{refused:?}");
    let refused = Open::append(&fixture, "/", 0).await.err().expect("a directory");
    assert_eq!(refused.0, EXISTS);
    fixture.stop().await;
}

/// A writer whose connection broke goes on under a new generation stamp where it knows its bytes to be; what the old connection
/// still sends is not stored, and an old stamp opens no other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_zombies_are_fenced() {
    let mut fixture = Fixture::start("hdfs-zombie").await;
    let bytes = content(400_000, 5);
    let file = Open::new(&fixture, "/a").await;
    let block = file.add(&fixture, None).await.expect("a block").block;
    let mut zombie = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.expect("it may");
    zombie.send_all(0, &bytes[..100_000], PACKET).await;
    let stamped = file.update(&fixture, &block).await.expect("a stamp");
    assert!(stamped.generation_stamp > block.generation_stamp);
    let beyond = stamped.generation_stamp + 1;
    assert!(Writer::begin(&fixture, &block, SETUP_STREAMING_RECOVERY, beyond).await.is_err(), "never given out");
    let mut writer = Writer::begin(&fixture, &block, SETUP_STREAMING_RECOVERY, stamped.generation_stamp)
        .await
        .unwrap_or_else(|answer| panic!("{answer:?}"));
    zombie.send(100_000, &[7; 5000]).await;
    assert_eq!(zombie.said_to_the_end().await, [], "not acknowledged");
    let refused = Writer::begin(&fixture, &block, SETUP_CREATE, 0).await.err().expect("an old stamp");
    assert_eq!(refused.status, ERROR);
    let (holder, old, new) = ("one".to_string(), block.clone(), stamped.clone());
    ask::<Nothing>(&fixture, "updatePipeline", &UpdatePipeline { holder, old, new }).await.expect("updated");
    writer.send_all(64_512, &bytes[64_512..], PACKET).await;
    let another = file.update(&fixture, &stamped).await.expect("a stamp");
    let lost = (CLOSE_RECOVERY, bytes.len() as u64 + 1);
    let refused = Writer::begin_of(hdfs(&fixture), &stamped, lost, another.generation_stamp, CHECKSUM_CRC32C).await;
    let refused = refused.err().expect("a byte that was acknowledged is not there");
    assert!(refused.text.is_some_and(|text| text.contains("that were acknowledged")), "it says why");
    drop(Writer::begin(&fixture, &stamped, CLOSE_RECOVERY, another.generation_stamp).await.expect("it ends as it is"));
    let other = GetAdditionalDatanode {
        path: file.path.clone(),
        block: another.clone(),
        existing: Vec::new(),
        holder: file.holder.clone(),
        existing_storages: Vec::new(),
        inode: Some(file.inode),
    };
    let answer: BlockAnswer = ask(&fixture, "getAdditionalDatanode", &other).await.expect("this one");
    assert_eq!(answer.block.locations.len(), 1);
    let last = ExtendedBlock { length: Some(bytes.len() as u64), ..another };
    assert_eq!(file.complete(&fixture, Some(&last)).await, Ok(true));
    assert!(stored(&fixture, "/a").await == bytes);
    fixture.stop().await;
}

/// A file belongs to the holder of its lease: others are refused in HDFS's words, until it was silent for a minute, or somebody
/// recovers the lease; then what was acknowledged is there, and the old holder is refused. After twenty minutes of silence it is
/// closed for nobody in particular.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_leases() {
    let mut fixture = Fixture::start("hdfs-leases").await;
    let closed = async |fixture: &Fixture, path: &str| {
        let ask_closed = IsFileClosed { path: path.to_string() };
        ask::<Truth>(fixture, "isFileClosed", &ask_closed).await.map(|answer| answer.result)
    };
    let begun = async |fixture: &Fixture, path: &str| {
        let file = Open::new(fixture, path).await;
        let block = file.add(fixture, None).await.expect("a block").block;
        let mut writer = Writer::begin(fixture, &block, SETUP_CREATE, 0).await.expect("it may");
        writer.send_all(0, b"acknowledged", PACKET).await;
        (file, block, writer)
    };
    let (file, block, mut writer) = begun(&fixture, "/a").await;
    assert_eq!(closed(&fixture, "/a").await, Ok(false));
    let own = Open::create(&fixture, "/a", "one", CREATE).await.err().expect("it has it");
    assert!(own.0 == ALREADY && own.1.ends_with("one is already the current lease holder."), "{own:?}");
    let other = Open::create(&fixture, "/a", "two", CREATE).await.err().expect("one has it");
    assert!(other.0 == ALREADY && other.1.contains("Failed to CREATE_FILE /a for two on 127.0.0.1"), "{other:?}");
    assert!(other.1.contains("this file lease is currently owned by one on 127.0.0.1"), "{other:?}");
    let other = Open { holder: "two".to_string(), path: "/a".to_string(), ..file };
    let refused = other.complete(&fixture, Some(&block)).await.expect_err("it is one's");
    assert!(refused.0 == EXPIRED && refused.1.contains("Client (=two) is not the lease owner (=one"), "{refused:?}");
    let listed: ListOpenFilesAnswer =
        ask(&fixture, "listOpenFiles", &ListOpenFiles { after: 0, types: vec![1], path: None }).await.expect("listed");
    assert_eq!(listed.entries.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["/a"]);
    // A minute later; renewed, it is one's.
    fixture.clock.ahead.fetch_add(61, Ordering::Relaxed);
    ask::<Nothing>(&fixture, "renewLease", &RenewLease { holder: "one".to_string() }).await.expect("renewed");
    assert_eq!(Open::create(&fixture, "/a", "two", CREATE).await.err().expect("one has it").0, ALREADY);
    fixture.clock.ahead.fetch_add(61, Ordering::Relaxed);
    let exists = Open::create(&fixture, "/a", "two", CREATE).await.err().expect("it is there");
    assert_eq!((exists.0.as_str(), exists.1.as_str()), (EXISTS, "/a for client 127.0.0.1 already exists"));
    assert_eq!(closed(&fixture, "/a").await, Ok(true));
    writer.send(12, b" too late").await;
    assert_eq!(writer.said_to_the_end().await, []);
    let fsync = Fsync { path: "/a".to_string(), holder: "one".to_string(), inode: Some(other.inode) };
    let refused = ask::<Nothing>(&fixture, "fsync", &fsync).await.expect_err("it lost it");
    assert!(refused.0 == EXPIRED && refused.1.contains("does not have any open files."), "{refused:?}");
    assert_eq!(stored(&fixture, "/a").await, "acknowledged");
    // Recovered at once, whoever writes.
    let (_, _, mut writer) = begun(&fixture, "/b").await;
    let recover = |path: &str| RecoverLease { path: path.to_string(), holder: "two".to_string() };
    for _ in 0..2 {
        assert_eq!(ask::<Truth>(&fixture, "recoverLease", &recover("/b")).await, Ok(Truth { result: true }));
    }
    writer.send(12, b" too late").await;
    assert_eq!(
        (writer.said_to_the_end().await, stored(&fixture, "/b").await),
        (vec![], Bytes::from_static(b"acknowledged"))
    );
    for (path, text) in [("/none", "File does not exist: /none"), ("/", "Path is not a file: /")] {
        let refused = ask::<Truth>(&fixture, "recoverLease", &recover(path)).await.expect_err("no file");
        assert_eq!((refused.0.as_str(), refused.1.as_str()), (MISSING, text));
        assert_eq!(closed(&fixture, path).await.expect_err("no file"), refused);
    }
    // Of a program that does not speak HDFS.
    let native = client(&fixture).await.create("/n", client::CreateOptions::default()).await.expect("the file is new");
    let refused = Open::append(&fixture, "/n", 0).await.err().expect("it has a writer");
    assert_eq!(refused.0, ALREADY);
    assert_eq!(ask::<Truth>(&fixture, "recoverLease", &recover("/n")).await, Ok(Truth { result: true }));
    drop(native);
    // Nobody asks for it.
    let (_, _, writer) = begun(&fixture, "/c").await;
    drop(writer);
    fixture.clock.ahead.fetch_add(20 * 60 + 1, Ordering::Relaxed);
    for looks in 0.. {
        if closed(&fixture, "/c").await == Ok(true) {
            break;
        }
        assert!(looks < 3000, "it stays open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stored(&fixture, "/c").await, "acknowledged");
    fixture.stop().await;
}

/// A file that is deleted or replaced while it is written is gone for its writer, in HDFS's words; one that is renamed is not. An
/// empty block can be given back, one with bytes cannot. What is open when the node stops is closed with what was acknowledged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_writing_goes_on_or_not() {
    let mut fixture = Fixture::start("hdfs-gone").await;
    let native = client(&fixture).await;
    let file = Open::new(&fixture, "/a").await;
    let block = file.add(&fixture, None).await.expect("a block");
    let give_back = |block: &LocatedBlock, file: &Open| AbandonBlock {
        block: block.block.clone(),
        path: file.path.clone(),
        holder: file.holder.clone(),
        inode: Some(file.inode),
    };
    for _ in 0..2 {
        ask::<Nothing>(&fixture, "abandonBlock", &give_back(&block, &file)).await.expect("given back");
    }
    let block = file.add(&fixture, None).await.expect("a block");
    file.fill(&fixture, &block.block, 0, b"kept").await;
    assert!(ask::<Nothing>(&fixture, "abandonBlock", &give_back(&block, &file)).await.is_err());
    native.rename("/a", "/b", false).await.expect("renamed");
    let next = file.add(&fixture, Some(&with_length(&block, 4))).await.expect("by its number");
    ask::<Nothing>(&fixture, "abandonBlock", &give_back(&next, &file)).await.expect("given back");
    let next = file.add(&fixture, Some(&with_length(&block, 4))).await.expect("a block");
    file.fill(&fixture, &next.block, 0, b", too").await;
    assert_eq!(file.complete(&fixture, Some(&with_length(&next, 5))).await, Ok(true));
    assert_eq!(stored(&fixture, "/b").await, "kept, too");
    for replaced in [false, true] {
        let file = Open::new(&fixture, "/d").await;
        let block = file.add(&fixture, None).await.expect("a block");
        let mut writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
        writer.send_all(0, b"gone", PACKET).await;
        let new = if replaced {
            Some(Open::create(&fixture, "/d", "two", CREATE | OVERWRITE).await.expect("replaced"))
        } else {
            native.delete("/d", false).await.expect("deleted");
            None
        };
        let previous = with_length(&block, 4);
        let refused = file.add(&fixture, Some(&previous)).await.expect_err("it is gone");
        assert!(refused.0 == MISSING && refused.1.starts_with("File does not exist: /d (inode "), "{refused:?}");
        let refused = file.complete(&fixture, Some(&previous)).await.expect_err("it is gone");
        assert!(refused.0 == MISSING && refused.1.starts_with("File does not exist: /d (inode "), "{refused:?}");
        if let Some(new) = new {
            assert_eq!(new.complete(&fixture, None).await, Ok(true));
            assert_eq!(stored(&fixture, "/d").await, "");
        }
    }
    let file = Open::new(&fixture, "/open").await;
    let block = file.add(&fixture, None).await.expect("a block");
    let mut writer = Writer::begin(&fixture, &block.block, SETUP_CREATE, 0).await.expect("it may");
    writer.send_all(0, b"acknowledged", PACKET).await;
    drop(native);
    fixture.stop().await;
    fixture.run().await;
    assert_eq!(stored(&fixture, "/open").await, "acknowledged");
    assert_eq!(file.complete(&fixture, Some(&with_length(&block, 12))).await.map_err(|refused| refused.0), Ok(true));
    let (file, block) = Open::append(&fixture, "/open", 0).await.expect("closed");
    assert_eq!(block.expect("partly full").block.length, Some(12));
    assert_eq!(file.complete(&fixture, None).await, Ok(true));
    fixture.stop().await;
}

/// Open files are the superuser's to list. Of a path there are all, page by page, and no page but the last is empty: Java's client
/// takes an empty one for the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_open_files_are_listed() {
    let mut fixture = Fixture::start("hdfs-open-files").await;
    let native = client(&fixture).await;
    native.make_directory("/other", false).await.expect("made");
    native.make_directory("/wanted", false).await.expect("made");
    for number in 0..=LIST_PAGE_MAX {
        Open::new(&fixture, &format!("/other/{number}")).await;
    }
    let wanted = Open::new(&fixture, "/wanted/file").await;
    let page = |after: i64, path: &str| ListOpenFiles { after, types: vec![1], path: Some(path.to_string()) };
    let mut ada = User::connect(&fixture, "ada").await;
    let refused = ada.call::<ListOpenFilesAnswer>(CLIENT_PROTOCOL, "listOpenFiles", &page(0, "/")).await;
    let (class, text) = refused.expect_err("she is not the superuser");
    assert_eq!(class, "org.apache.hadoop.security.AccessControlException");
    assert_eq!(text, "Access denied for user ada. Superuser privilege is required for operation listOpenFiles");
    let listed: ListOpenFilesAnswer = ask(&fixture, "listOpenFiles", &page(0, "/wanted/")).await.expect("listed");
    let paths: Vec<&str> = listed.entries.iter().map(|file| file.path.as_str()).collect();
    assert_eq!((paths, listed.more), (vec![wanted.path.as_str()], false));
    let listed: ListOpenFilesAnswer = ask(&fixture, "listOpenFiles", &page(0, "/other")).await.expect("listed");
    assert_eq!((listed.entries.len(), listed.more), (LIST_PAGE_MAX, true));
    let last = listed.entries.last().expect("a whole page").inode;
    let listed: ListOpenFilesAnswer = ask(&fixture, "listOpenFiles", &page(last, "/other")).await.expect("listed");
    assert_eq!((listed.entries.len(), listed.more), (1, false));
    fixture.stop().await;
}
