//! Blocks read through the HDFS gateway, in the words of its wire, of files written with the store's own client.

use crate::Fixture;
use crate::hdfs_user::{CLIENT_PROTOCOL, Refused, User, client, content, hdfs};
use base::checksum::crc32c;
use base::env::Random;
use base::limit::BLOCK;
use bytes::Bytes;
use client::{Client, CreateOptions, FileWriter};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlocks};
use gateway_hdfs::message::located::{
    GetBlockLocations, GetBlockLocationsAnswer, GetReplicaVisibleLength, GetReplicaVisibleLengthAnswer,
};
use gateway_hdfs::message::transfer::{
    BaseHeader, BlockChecksum, CHECKSUM_CRC32C, CHECKSUM_NULL, CHECKSUM_OK, COMPOSITE_CRC, ChecksumOptions, ERROR,
    ERROR_CHECKSUM, ERROR_UNSUPPORTED, OperationAnswer, OperationHeader, PACKET_LENGTHS, PacketHeader, ReadBlock,
    ReadStatus, SUCCESS,
};
use prost::Message;
use sim::random::SimRandom;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A client of the data transfer protocol.
pub struct Reader {
    stream: TcpStream,
}

/// What a read brought.
#[derive(Debug)]
pub struct Read {
    pub bytes: Vec<u8>,
    packets: usize,
}

impl Reader {
    pub async fn connect(fixture: &Fixture) -> Reader {
        Reader::connect_to(hdfs(fixture)).await
    }

    /// The same at the gateway of any node.
    pub async fn connect_to(address: &str) -> Reader {
        let stream = TcpStream::connect(address).await.expect("it listens");
        stream.set_nodelay(true).expect("set");
        Reader { stream }
    }

    pub async fn say(&mut self, operation: u8, message: &impl Message) {
        let mut bytes = vec![0, 28, operation];
        message.encode_length_delimited(&mut bytes).expect("room");
        self.stream.write_all(&bytes).await.expect("sent");
    }

    async fn hear<M: Message + Default>(&mut self) -> io::Result<M> {
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
        Ok(M::decode(bytes.as_slice()).expect("a message"))
    }

    /// Asks, and hears whether it will come.
    async fn begin(&mut self, ask: &ReadBlock) -> io::Result<OperationAnswer> {
        self.say(81, ask).await;
        self.hear().await
    }

    /// The next packet: its header, its checksums and its bytes.
    async fn packet(&mut self) -> io::Result<(PacketHeader, Vec<u8>, Vec<u8>)> {
        let mut lengths = [0; PACKET_LENGTHS];
        self.stream.read_exact(&mut lengths).await?;
        let following = u32::from_be_bytes(lengths[..4].try_into().expect("four")) as usize - 4;
        let mut header = vec![0; u16::from_be_bytes([lengths[4], lengths[5]]).into()];
        self.stream.read_exact(&mut header).await?;
        let header = PacketHeader::decode(&header).expect("a packet's header");
        let mut sums = vec![0; following - header.length as usize];
        self.stream.read_exact(&mut sums).await?;
        let mut bytes = vec![0; header.length as usize];
        self.stream.read_exact(&mut bytes).await?;
        Ok((header, sums, bytes))
    }

    /// Reads as Java's client does, and checks what it checks.
    pub async fn read(&mut self, ask: &ReadBlock) -> Result<Read, OperationAnswer> {
        let answer = self.begin(ask).await.expect("an answer");
        if answer.status != SUCCESS {
            return Err(answer);
        }
        let read = answer.read.expect("how it will be sent");
        let checksums = ask.checksums.unwrap_or(true);
        assert_eq!(read.checksum.kind, if checksums { CHECKSUM_CRC32C } else { CHECKSUM_NULL });
        let unit = read.checksum.bytes as usize;
        assert!(read.offset.is_multiple_of(unit as u64), "HDFS begins at a checksum's first byte");
        assert!(read.offset <= ask.offset && ask.offset < read.offset + unit as u64, "{read:?} for {ask:?}");
        let (mut got, mut packets) = (Vec::new(), 0);
        loop {
            let (header, sums, bytes) = self.packet().await.expect("a packet");
            assert_eq!((header.offset, header.number), (read.offset + got.len() as u64, packets as i64));
            assert_eq!(header.last, bytes.is_empty(), "the last packet, and no other, is empty");
            if header.last {
                assert!(sums.is_empty());
                break;
            }
            packets += 1;
            assert!(got.len().is_multiple_of(unit), "packets are whole parts");
            let expected: Vec<u8> = bytes.chunks(unit).flat_map(|part| crc32c(part).to_be_bytes()).collect();
            assert_eq!(sums, if checksums { expected } else { Vec::new() });
            got.extend(bytes);
        }
        self.say_status(CHECKSUM_OK).await;
        let from = (ask.offset - read.offset) as usize;
        let to = from + ask.length as usize;
        assert!(to <= got.len() && got.len() < to + unit, "{} bytes for {from}..{to}", got.len());
        Ok(Read { bytes: got[from..to].to_vec(), packets })
    }

    /// Says how a read went.
    async fn say_status(&mut self, status: i32) {
        self.stream.write_all(&ReadStatus { status }.encode_length_delimited_to_vec()).await.expect("sent");
    }

    /// Whether the gateway has closed the connection, after what it still had to say.
    async fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        let read = self.stream.read_to_end(&mut rest);
        tokio::time::timeout(Duration::from_secs(20), read).await.is_ok()
    }
}

async fn write(client: &Client, path: &str, bytes: &Bytes) -> ExtendedBlock {
    let mut writer = client.create(path, CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes.clone()).await.expect("written");
    writer.close().await.expect("closed");
    block_of(client, path).await
}

/// The first block of a file, as the gateway would name it.
pub async fn block_of(client: &Client, path: &str) -> ExtendedBlock {
    let attributes = client.stat(path).await.expect("it is there");
    let generation_stamp = 1000 + (attributes.generation << 16);
    ExtendedBlock { pool: "pool".to_string(), id: attributes.inode << 20, generation_stamp, length: None }
}

pub fn ask(block: &ExtendedBlock, offset: u64, length: u64) -> ReadBlock {
    let base = BaseHeader { block: block.clone(), token: None };
    let header = OperationHeader { base, client: "test".to_string() };
    ReadBlock { header, offset, length, checksums: None, caching: None }
}

/// Asks one call over a connection of its own.
pub async fn call<M: Message + Default>(
    fixture: &Fixture,
    (protocol, method): (&str, &str),
    ask: &impl Message,
) -> Result<M, Refused> {
    User::superuser(fixture).await.call(protocol, method, ask).await
}

pub const LOCATIONS: (&str, &str) = (CLIENT_PROTOCOL, "getBlockLocations");
const VISIBLE: (&str, &str) = ("org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol", "getReplicaVisibleLength");

async fn locations(fixture: &Fixture, path: &str, offset: u64, length: u64) -> Result<LocatedBlocks, Refused> {
    let ask = GetBlockLocations { path: path.to_string(), offset, length };
    call::<GetBlockLocationsAnswer>(fixture, LOCATIONS, &ask).await.map(|answer| answer.located.expect("blocks"))
}

/// Any range of a block comes whole and right, aligned or not, with checksums or without, all over one connection; what lies
/// beyond the block is refused with a reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_ranges() {
    let mut fixture = Fixture::start("hdfs-ranges").await;
    let client = client(&fixture).await;
    let bytes = content(5_000_777, 1);
    let block = write(&client, "/a", &bytes).await;
    let length = bytes.len() as u64;
    let random = SimRandom::new(2);
    let mut ranges =
        vec![(0, length), (0, 0), (length, 0), (0, 1), (length - 1, 1), (511, 2), (512, 512), (777, 100_000)];
    ranges.extend((0..60).map(|_| {
        let offset = random.below(length);
        (offset, random.below(1 + ((length - offset) >> random.below(16))))
    }));
    let mut reader = Reader::connect(&fixture).await;
    for (place, (offset, count)) in ranges.into_iter().enumerate() {
        let ask = ReadBlock { checksums: [None, Some(true), Some(false)][place % 3], ..ask(&block, offset, count) };
        let read = reader.read(&ask).await.expect("it is there");
        assert!(read.bytes == bytes[offset as usize..(offset + count) as usize], "{count} bytes from {offset}");
        assert!(read.packets <= 5 + (count >> 19) as usize, "{} packets for {count} bytes", read.packets);
    }
    for (offset, count) in [(0, length + 1), (length, 1), (length + 1, 0), (u64::MAX, u64::MAX), (5, u64::MAX)] {
        let mut reader = Reader::connect(&fixture).await;
        let refused = reader.read(&ask(&block, offset, count)).await.expect_err("it is beyond");
        let text = refused.text.expect("a reason");
        assert!(refused.status == ERROR && text.contains("beyond the 5000777 bytes"), "{text}");
        assert!(reader.is_closed().await);
    }
    for id in [0, block.id + 1, 77_777 << 20, 1 << 62 | 5, u64::MAX] {
        let refused = Reader::connect(&fixture).await.read(&ask(&ExtendedBlock { id, ..block.clone() }, 0, 1)).await;
        assert_eq!(refused.expect_err("there is no such block").status, ERROR, "{id:x}");
    }
    fixture.stop().await;
}

/// A reader of a file that is being written gets what its writer has hflushed, waits a little for what is on its way, and is
/// told when it does not come; appended bytes come under the new generation stamp, also after the old one was read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_open_files() {
    let mut fixture = Fixture::start("hdfs-open").await;
    let client = client(&fixture).await;
    let bytes = content(300_000, 3);
    let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
    let block = block_of(&client, "/a").await;
    let mut reader = Reader::connect(&fixture).await;
    assert!(reader.read(&ask(&block, 0, 0)).await.expect("an empty one").bytes.is_empty());
    let mut at = 0;
    let mut grow = async |writer: &mut FileWriter, to: usize| {
        writer.write(bytes.slice(at..to)).await.expect("written");
        writer.hflush().await.expect("visible");
        at = to;
    };
    for end in [1, 700, 100_000] {
        grow(&mut writer, end).await;
        let read = reader.read(&ask(&block, 0, end as u64)).await.expect("visible");
        assert!(read.bytes == bytes[..end]);
        let located = locations(&fixture, "/a", 0, 1 << 40).await.expect("located");
        assert_eq!(
            (located.file_length, located.under_construction, located.last_block_complete),
            (end as u64, true, true)
        );
        assert_eq!(located.blocks[0].block.length, Some(end as u64));
        let ask = GetReplicaVisibleLength { block: block.clone() };
        let visible: GetReplicaVisibleLengthAnswer = call(&fixture, VISIBLE, &ask).await.expect("known");
        assert_eq!(visible.length, end as u64);
    }
    let mut waiting = Reader::connect(&fixture).await;
    let early = ask(&block, 99_000, 51_000);
    let reading = tokio::spawn(async move { waiting.read(&early).await });
    // The wait has begun or will begin: both are to work.
    tokio::task::yield_now().await;
    grow(&mut writer, 150_000).await;
    assert!(reading.await.expect("no panic").expect("it came").bytes == bytes[99_000..150_000]);
    let refused = Reader::connect(&fixture).await.read(&ask(&block, 0, 150_001)).await.expect_err("it does not come");
    assert!(refused.text.expect("a reason").contains("beyond the 150000 bytes"));
    writer.close().await.expect("closed");
    assert!(reader.read(&ask(&block, 0, 150_000)).await.expect("it is there").bytes == bytes[..150_000]);
    let mut writer = client.append("/a").await.expect("nobody writes it");
    grow(&mut writer, 300_000).await;
    let appended = block_of(&client, "/a").await;
    assert!(appended.generation_stamp > block.generation_stamp);
    assert!(reader.read(&ask(&appended, 1000, 299_000)).await.expect("visible").bytes == bytes[1000..]);
    writer.close().await.expect("closed");
    for block in [&block, &appended] {
        assert!(reader.read(&ask(block, 1000, 149_000)).await.expect("it is there").bytes == bytes[1000..150_000]);
    }
    assert!(reader.read(&ask(&appended, 1000, 299_000)).await.expect("it is there").bytes == bytes[1000..]);
    fixture.stop().await;
}

/// Blocks are located as asked: those of the range, the last one besides, none of an empty file; what cannot be read is told
/// in HDFS's words.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_locations() {
    let mut fixture = Fixture::start("hdfs-locations").await;
    let client = client(&fixture).await;
    let block = write(&client, "/a", &content(5000, 4)).await;
    write(&client, "/empty", &Bytes::new()).await;
    client.make_directory("/d", false).await.expect("made");
    let located = locations(&fixture, "/a", 0, i64::MAX as u64).await.expect("located");
    let only = &located.blocks[0];
    assert_eq!((located.file_length, located.blocks.len(), located.last_block.as_ref()), (5000, 1, Some(only)));
    assert_eq!((located.under_construction, located.last_block_complete), (false, true));
    assert_eq!((only.block.id, only.block.generation_stamp, only.offset), (block.id, block.generation_stamp, 0));
    assert_eq!((only.locations.len(), only.storage_ids.len(), only.storage_types.len()), (1, 1, 1));
    let server = &only.servers().expect("readable")[0];
    let at = format!("{}:{}", server.id.ip, server.id.transfer_port);
    assert_eq!((at.as_str(), server.location.as_deref()), (hdfs(&fixture), Some("/default-rack")));
    let beyond = locations(&fixture, "/a", 5000, 10).await.expect("located");
    assert_eq!((beyond.blocks.len(), beyond.last_block.is_some(), beyond.file_length), (0, true, 5000));
    let empty = locations(&fixture, "/empty", 0, 10).await.expect("located");
    assert_eq!(empty, LocatedBlocks::default());
    let refused = async |path, offset, length| locations(&fixture, path, offset, length).await.expect_err("refused");
    let told = |class: &str, text: &str| (class.to_string(), text.to_string());
    let missing = "java.io.FileNotFoundException";
    assert_eq!(refused("/b", 0, 1).await, told(missing, "File does not exist: /b"));
    assert_eq!(refused("/d", 0, 1).await, told(missing, "Path is not a file: /d"));
    assert!(refused("/a", u64::MAX, 1).await.1.contains("Negative offset is not supported"));
    assert!(refused("/a", 0, u64::MAX).await.1.contains("Negative length is not supported"));
    let nothing = ExtendedBlock { id: 77_777 << 20, ..block };
    let unknown =
        call::<GetReplicaVisibleLengthAnswer>(&fixture, VISIBLE, &GetReplicaVisibleLength { block: nothing }).await;
    assert_eq!(unknown.expect_err("no block").0, "org.apache.hadoop.hdfs.server.datanode.ReplicaNotFoundException");
    fixture.stop().await;
}

/// Clients that stop anywhere harm nobody, a file that is deleted under its readers gives right bytes or none, and is told to be
/// gone in the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_read_and_deleted() {
    let mut fixture = Fixture::start("hdfs-deleted").await;
    let client = client(&fixture).await;
    let bytes = content(60 << 20, 5);
    let block = write(&client, "/a", &bytes).await;
    let whole = ask(&block, 0, bytes.len() as u64);
    for packets in 0..3 {
        let mut reader = Reader::connect(&fixture).await;
        assert_eq!(reader.begin(&whole).await.expect("an answer").status, SUCCESS);
        for _ in 0..packets {
            reader.packet().await.expect("a packet");
        }
    }
    let mut reader = Reader::connect(&fixture).await;
    assert_eq!(reader.begin(&whole).await.expect("an answer").status, SUCCESS);
    let mut got = reader.packet().await.expect("a packet").2;
    client.delete("/a", false).await.expect("deleted");
    let mut refused = None;
    for _ in 0..2000 {
        refused = Reader::connect(&fixture).await.read(&ask(&block, 0, 5)).await.err();
        if refused.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(refused.expect("it is gone").status, ERROR);
    while let Ok((header, _, more)) = reader.packet().await {
        if header.last {
            assert_eq!(got.len(), bytes.len());
            break;
        }
        got.extend(more);
    }
    assert!(got == bytes[..got.len()], "a byte is wrong");
    fixture.stop().await;
}

/// Changes one byte wherever these lie on a device.
fn rot(directory: &Path, bytes: &[u8]) -> usize {
    let mut changed = 0;
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            changed += rot(&path, bytes);
            continue;
        }
        // The node may remove a file meanwhile.
        let Ok(content) = std::fs::read(&path) else { continue };
        let places: Vec<usize> = (0..content.len() / 4096).map(|block| block * 4096).collect();
        let found = places.into_iter().find(|at| content[*at..].starts_with(bytes));
        if let Some(at) = found {
            let file = std::fs::OpenOptions::new().write(true).open(&path).expect("a file");
            file.write_all_at(&[content[at + 100] ^ 1], at as u64 + 100).expect("written");
            changed += 1;
        }
    }
    changed
}

/// A rotten byte is never served as if it were sound: the read is refused with a reason, or cut where the byte would follow, or it
/// comes once, with the checksum that it had, to a client that says so. The rest is served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_rot_is_not_served() {
    let mut fixture = Fixture::start("hdfs-rot").await;
    let client = client(&fixture).await;
    let bytes = content(8 << 20, 6);
    let block = write(&client, "/a", &bytes).await;
    let bad = 6 << 20;
    assert_eq!(rot(&fixture.directory, &bytes[bad..bad + 512]), 1, "where is it?");
    for checksums in [true, false] {
        let about = |offset, length| ReadBlock { checksums: Some(checksums), ..ask(&block, offset, length) };
        for (offset, length) in [(bad as u64, 512), (bad as u64 + 100, 1), (bad as u64 - 1000, 3000)] {
            let refused = Reader::connect(&fixture).await.read(&about(offset, length)).await.expect_err("rotten");
            let text = refused.text.expect("a reason");
            assert!(refused.status == ERROR && text.contains("do not match their checksum"), "{text}");
        }
        if checksums {
            // The stored checksums come with the bytes: the client sees what does not match, and says so.
            let mut reader = Reader::connect(&fixture).await;
            let ask = about(0, bytes.len() as u64);
            assert_eq!(damaged_blocks(&mut reader, &ask, &bytes).await, [bad / BLOCK]);
            reader.say_status(ERROR_CHECKSUM).await;
            reader.read(&about(0, 1)).await.expect("the connection goes on");
        }
        let mut reader = Reader::connect(&fixture).await;
        assert_eq!(reader.begin(&about(0, bytes.len() as u64)).await.expect("an answer").status, SUCCESS);
        let mut got = Vec::new();
        while let Ok((header, _, more)) = reader.packet().await {
            assert!(!header.last, "as if it were whole");
            got.extend(more);
        }
        assert!(got.len() >= 4 << 20 && got.len() <= bad && got == bytes[..got.len()], "{} bytes", got.len());
        let mut reader = Reader::connect(&fixture).await;
        for (offset, length) in [(0, bad), (bad + 4096, bytes.len() - bad - 4096)] {
            let read = reader.read(&about(offset as u64, length as u64)).await.expect("it is sound");
            assert!(read.bytes == bytes[offset..offset + length]);
        }
    }
    fixture.stop().await;
}

/// Whoever says that a sound block is damaged takes the fast way from nobody: its bytes still come with the checksums that they were
/// stored with, which shows in one that rots later, and a client that says so then is believed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_reports_of_damage_are_compared() {
    let mut fixture = Fixture::start("hdfs-reports").await;
    let client = client(&fixture).await;
    let bytes = content(2 << 20, 9);
    let block = write(&client, "/a", &bytes).await;
    let ask = ask(&block, 0, bytes.len() as u64);
    let mut reader = Reader::connect(&fixture).await;
    let _begun = reader.begin(&ask).await.expect("an answer");
    while !reader.packet().await.expect("a packet").0.last {}
    reader.say_status(ERROR_CHECKSUM).await;
    // It is compared before this connection does anything else.
    reader.read(&ask).await.expect("the connection goes on");
    assert_eq!(rot(&fixture.directory, &bytes[1 << 20..(1 << 20) + 512]), 1, "where is it?");
    for believed in [false, true] {
        let mut reader = Reader::connect(&fixture).await;
        assert_eq!(reader.begin(&ask).await.expect("an answer").status, SUCCESS);
        let mut came = 0;
        let whole = loop {
            match reader.packet().await {
                Ok((header, ..)) if header.last => break true,
                Ok((_, _, more)) => came += more.len(),
                Err(_) => break false,
            }
        };
        assert_eq!(whole, !believed, "{came} bytes came");
        if whole {
            reader.say_status(ERROR_CHECKSUM).await;
            let sound = ReadBlock { length: 1, ..ask.clone() };
            reader.read(&sound).await.expect("the connection goes on");
        }
    }
    fixture.stop().await;
}

/// Reads to the end and answers with the numbers of the blocks whose checksums do not match; the others are right.
async fn damaged_blocks(reader: &mut Reader, ask: &ReadBlock, expected: &[u8]) -> Vec<usize> {
    let read = reader.begin(ask).await.expect("an answer").read.expect("how it will be sent");
    assert_eq!((read.checksum.bytes as usize, read.offset), (BLOCK, 0));
    let (mut damaged, mut at) = (Vec::new(), 0);
    loop {
        let (header, sums, bytes) = reader.packet().await.expect("a packet");
        if header.last {
            return damaged;
        }
        for (block, sum) in bytes.chunks(BLOCK).zip(sums.chunks(4)) {
            let right = crc32c(block).to_be_bytes() == sum;
            assert_eq!(right, *block == expected[at..at + block.len()], "block at {at}");
            if !right {
                damaged.push(at / BLOCK);
            }
            at += block.len();
        }
    }
}

/// Checksums of blocks are those of HDFS: of all bytes, of a part, of both kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_block_checksums() {
    let mut fixture = Fixture::start("hdfs-checksums").await;
    let client = client(&fixture).await;
    let zeros = write(&client, "/zeros", &Bytes::from(vec![0; 1024])).await;
    let bytes = content(3_000_333, 7);
    let other = write(&client, "/a", &bytes).await;
    let mut reader = Reader::connect(&fixture).await;
    let mut sum = async |block: &ExtendedBlock, length: Option<u64>, kind: Option<i32>| {
        let header = BaseHeader { block: ExtendedBlock { length, ..block.clone() }, token: None };
        let options = kind.map(|kind| ChecksumOptions { kind: Some(kind), stripe: None });
        reader.say(85, &BlockChecksum { header, options }).await;
        let answer: OperationAnswer = reader.hear().await.expect("an answer");
        assert_eq!(answer.status, SUCCESS, "{answer:?}");
        answer.checksum.expect("a checksum")
    };
    // MD5 over the CRC-32C of 512 zeros, twice.
    let md5 = [0x27, 0x54, 0x99, 0x4e, 0x4e, 0x88, 0xb8, 0xd7, 0x05, 0xb8, 0x50, 0x66, 0x66, 0x78, 0x72, 0x1d];
    for kind in [None, Some(1)] {
        let answer = sum(&zeros, Some(1024), kind).await;
        assert_eq!((answer.checksum.as_slice(), answer.crcs, answer.bytes_per_crc), (&md5[..], 2, 512));
        assert_eq!((answer.kind, answer.options.and_then(|options| options.kind)), (Some(CHECKSUM_CRC32C), Some(1)));
    }
    for length in [1, 511, 512, 1000, 1 << 20, 3_000_332, 3_000_333] {
        let answer = sum(&other, Some(length), Some(COMPOSITE_CRC)).await;
        assert_eq!(answer.checksum, crc32c(&bytes[..length as usize]).to_be_bytes(), "of {length} bytes");
        assert_eq!(answer.options.and_then(|options| options.kind), Some(COMPOSITE_CRC));
        assert_eq!(answer.crcs, 5861);
    }
    assert_eq!(sum(&other, None, Some(COMPOSITE_CRC)).await.checksum, crc32c(&bytes).to_be_bytes());
    fixture.stop().await;
}

/// Operations that are not served are refused by name, another version is cut off, and nobody else notices.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hdfs_other_operations() {
    let mut fixture = Fixture::start("hdfs-operations").await;
    let client = client(&fixture).await;
    let block = write(&client, "/a", &content(100, 8)).await;
    let base = BaseHeader { block: block.clone(), token: None };
    for (operation, status) in [(83, ERROR_UNSUPPORTED), (87, ERROR_UNSUPPORTED), (90, ERROR_UNSUPPORTED)] {
        let mut reader = Reader::connect(&fixture).await;
        // What comes before is served.
        reader.read(&ask(&block, 0, 100)).await.expect("it is there");
        reader.say(operation, &base).await;
        let answer: OperationAnswer = reader.hear().await.expect("an answer");
        assert_eq!(answer.status, status, "operation {operation}: {answer:?}");
        assert!(reader.is_closed().await);
    }
    let mut reader = Reader::connect(&fixture).await;
    reader.say(86, &OperationHeader { base, client: "test".to_string() }).await;
    assert_eq!(reader.hear::<OperationAnswer>().await.expect("an answer").status, SUCCESS);
    for begun in [&[0, 27, 81][..], &[0, 28, 1], &[0xDE, 0xAD, 0xBE, 0xEF], &[0, 28, 81, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]]
    {
        let mut reader = Reader::connect(&fixture).await;
        let padded = [begun, &[0; 20]].concat();
        reader.stream.write_all(&padded).await.expect("sent");
        assert!(reader.is_closed().await, "{begun:?}");
    }
    fixture.stop().await;
}

/// Damaged operations, cut anywhere, end their own connection at most: the gateway goes on serving right bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_hdfs_operations() {
    let mut fixture = Fixture::start("hdfs-fuzz").await;
    let client = client(&fixture).await;
    let bytes = content(200_000, 9);
    let block = write(&client, "/a", &bytes).await;
    for seed in sim::fuzz::seeds(200) {
        let random = SimRandom::new(seed);
        let mut message = if random.one_in(4) {
            let header = BaseHeader { block: block.clone(), token: None };
            BlockChecksum { header, options: None }.encode_to_vec()
        } else {
            ask(&block, random.below(200_000), random.below(100_000)).encode_to_vec()
        };
        crate::fuzz::damage(&random, &mut message);
        let mut sent = vec![0, 28, [80, 81, 81, 81, 85, 86, 87, 90][random.below(8) as usize]];
        prost::encoding::encode_varint(message.len() as u64, &mut sent);
        sent.extend(message);
        if random.one_in(5) {
            let at = random.below(sent.len() as u64) as usize;
            sent[at] ^= 1 << random.below(8);
        }
        let mut stream = TcpStream::connect(hdfs(&fixture)).await.expect("it listens");
        // The gateway may have closed it by then.
        let _cut = stream.write_all(&sent).await;
        let _closed = stream.shutdown().await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let ended = tokio::time::timeout(Duration::from_secs(30), read).await;
        assert!(ended.is_ok(), "seed {seed} is neither answered nor closed: cargo test --release -p node fuzz_hdfs");
        let offset = random.below(199_000);
        let read = Reader::connect(&fixture).await.read(&ask(&block, offset, 1000)).await.expect("it goes on");
        assert!(read.bytes == bytes[offset as usize..offset as usize + 1000], "seed {seed}");
    }
    fixture.stop().await;
}
