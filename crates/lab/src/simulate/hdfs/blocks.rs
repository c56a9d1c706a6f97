//! Blocks written and read over the data transfer protocol on the simulated network.

use super::format;
use base::error::{Error, ErrorKind, Result};
use base::net::{Net, Stream};
use gateway_hdfs::message::hdfs::{ExtendedBlock, LocatedBlock};
use gateway_hdfs::message::transfer::{
    BaseHeader, CHECKSUM_CRC32C, CHECKSUM_OK, CLOSE_RECOVERY, Checksum, OperationAnswer, OperationHeader,
    PACKET_LENGTHS, PacketHeader, ReadBlock, ReadStatus, SETUP_STREAMING_RECOVERY, SUCCESS, WriteBlock,
};
use prost::Message;
use sim::net::SimNet;
use std::collections::VecDeque;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Bytes that one checksum of a written packet covers.
pub const UNIT: u64 = 512;

/// A gateway that says nothing for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// No message and no packet is longer.
const MESSAGE_MAX: usize = 1 << 20;

const VERSION: u16 = 28;
const WRITE_BLOCK: u8 = 80;
const READ_BLOCK: u8 = 81;

/// A connection that writes a block.
pub struct BlockWriter {
    stream: Box<dyn Stream>,
    number: i64,
    /// Packets that were sent and not acknowledged, with where each ends in the block.
    sent: VecDeque<(i64, u64)>,
    /// What was acknowledged ends here in the block.
    acknowledged: u64,
}

/// Waits for something that a gateway has to say.
async fn heard<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(SILENCE_MAX, what).await {
        Ok(result) => result,
        Err(_) => Err(Error::new(ErrorKind::Unreachable, "the gateway says nothing")),
    }
}

fn strange(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, text.into())
}

async fn operation(
    net: &SimNet,
    address: &str,
    number: u8,
    request: &impl Message,
) -> Result<(Box<dyn Stream>, OperationAnswer)> {
    heard(async {
        let mut stream = net.connect(address).await?;
        let bytes = format::operation(VERSION, number, &request.encode_length_delimited_to_vec());
        stream.write_all(&bytes).await?;
        let answer = message(&mut stream).await?;
        let answer = OperationAnswer::decode(answer.as_slice()).map_err(|error| strange(error.to_string()))?;
        if answer.status == SUCCESS {
            return Ok((stream, answer));
        }
        let text = answer.text.unwrap_or_default();
        Err(Error::new(ErrorKind::Io, format!("the gateway refuses with status {}: {text}", answer.status)))
    })
    .await
}

/// A message with its length before it.
async fn message(stream: &mut Box<dyn Stream>) -> Result<Vec<u8>> {
    let mut length = 0;
    for place in 0..4 {
        let byte = stream.read_u8().await?;
        length |= usize::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    if length > MESSAGE_MAX {
        return Err(strange(format!("a message of {length} bytes")));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Where the best server of a block is.
pub fn address_of(block: &LocatedBlock, which: usize) -> Result<String> {
    let servers = block.servers().map_err(|error| strange(format!("a server of a block: {error}")))?;
    let location = servers.get(which).ok_or_else(|| strange("a block without a place"))?;
    Ok(format!("{}:{}", location.id.ip, location.id.transfer_port))
}

fn header(block: &ExtendedBlock, client: &str) -> OperationHeader {
    OperationHeader { base: BaseHeader { block: block.clone(), token: None }, client: client.to_string() }
}

impl BlockWriter {
    /// Begins to write a block in a stage of the protocol; what was acknowledged of it ends at `from`.
    pub async fn begin(
        net: &SimNet,
        block: &LocatedBlock,
        (stage, from): (i32, u64),
        holder: &str,
    ) -> Result<BlockWriter> {
        let recovers = matches!(stage, SETUP_STREAMING_RECOVERY | CLOSE_RECOVERY);
        let request = WriteBlock {
            header: header(&block.block, holder),
            stage,
            pipeline_size: 1,
            acknowledged: from,
            sent: from,
            new_generation_stamp: if recovers { block.block.generation_stamp } else { 0 },
            checksum: Checksum { kind: CHECKSUM_CRC32C, bytes: UNIT as u32 },
            caching: None,
        };
        let (stream, _) = operation(net, &address_of(block, 0)?, WRITE_BLOCK, &request).await?;
        Ok(BlockWriter { stream, number: 0, sent: VecDeque::new(), acknowledged: from })
    }

    /// What was acknowledged ends here in the block.
    pub fn acknowledged_to(&self) -> u64 {
        self.acknowledged
    }

    /// Sends bytes as one packet. `sync`: they have to be durable when it is acknowledged.
    pub async fn send(&mut self, offset: u64, bytes: &[u8], sync: bool) -> Result<()> {
        self.packet(PacketHeader { offset, number: self.number, last: false, length: bytes.len() as u32, sync }, bytes)
            .await
    }

    async fn packet(&mut self, header: PacketHeader, bytes: &[u8]) -> Result<()> {
        let sums = format::sums(bytes, UNIT as usize);
        let mut packet = Vec::new();
        header.encode(sums.len(), &mut packet);
        packet.extend(sums);
        packet.extend_from_slice(bytes);
        self.sent.push_back((header.number, header.offset + u64::from(header.length)));
        self.number += 1;
        let send = async {
            self.stream.write_all(&packet).await?;
            Ok(self.stream.flush().await?)
        };
        heard(send).await
    }

    /// Waits until all packets are acknowledged, each once and in order.
    pub async fn acknowledged(&mut self) -> Result<()> {
        while let Some((expected, end)) = self.sent.front().copied() {
            let bytes = heard(message(&mut self.stream)).await?;
            let read = (bytes.first() == Some(&0x08)).then(|| {
                let mut rest = &bytes[1..];
                let zigzag = prost::encoding::decode_varint(&mut rest).ok()?;
                let status = *rest.get(1)?;
                Some(((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), i32::from(status)))
            });
            let Some(Some((number, status))) = read else {
                return Err(strange(format!("an acknowledgement that is none: {bytes:?}")));
            };
            if status != SUCCESS {
                return Err(Error::new(ErrorKind::Io, format!("packet {number} was refused with status {status}")));
            }
            if number != expected {
                return Err(strange(format!("packet {number} was acknowledged where {expected} was next")));
            }
            self.acknowledged = self.acknowledged.max(end);
            self.sent.pop_front();
        }
        Ok(())
    }

    /// Ends the block, which has so many bytes. `sync`: they have to be durable when that is acknowledged. `deaf`: that is not heard.
    pub async fn end(mut self, length: u64, sync: bool, deaf: bool) -> Result<()> {
        let header = PacketHeader { offset: length, number: self.number, last: true, length: 0, sync };
        self.packet(header, &[]).await?;
        if deaf { Ok(()) } else { self.acknowledged().await }
    }
}

/// Reads a block from one of its places and compares its checksums.
pub async fn read(net: &SimNet, block: &LocatedBlock, which: usize, holder: &str) -> Result<Vec<u8>> {
    let length = block.block.length.unwrap_or_default();
    let request = ReadBlock { header: header(&block.block, holder), offset: 0, length, checksums: None, caching: None };
    let (mut stream, answer) = operation(net, &address_of(block, which)?, READ_BLOCK, &request).await?;
    let told = answer.read.ok_or_else(|| strange("a read that does not say how it is sent"))?;
    let mut got = Vec::new();
    for number in 0.. {
        let (header, sums, bytes) = heard(packet(&mut stream)).await?;
        if (header.offset, header.number) != (got.len() as u64, number) {
            return Err(strange(format!("{header:?} where packet {number} was next, at {}", got.len())));
        }
        if header.last {
            break;
        }
        let unit = told.checksum.bytes.max(1) as usize;
        if sums != format::sums(&bytes, unit) {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("a packet at {} does not match its checksums", header.offset),
            ));
        }
        got.extend(bytes);
        if got.len() as u64 > length + unit as u64 {
            return Err(strange(format!("{} bytes of a block of {length}", got.len())));
        }
    }
    // Whoever goes away first is no news.
    let _gone = stream.write_all(&ReadStatus { status: CHECKSUM_OK }.encode_length_delimited_to_vec()).await;
    got.truncate(length as usize);
    if (got.len() as u64) < length {
        return Err(strange(format!("{} bytes of a block of {length}", got.len())));
    }
    Ok(got)
}

async fn packet(stream: &mut Box<dyn Stream>) -> Result<(PacketHeader, Vec<u8>, Vec<u8>)> {
    let mut lengths = [0; PACKET_LENGTHS];
    stream.read_exact(&mut lengths).await?;
    let (following, header) = format::packet_lengths(lengths);
    let mut header = vec![0; header];
    stream.read_exact(&mut header).await?;
    let header = PacketHeader::decode(&header).ok_or_else(|| strange("a packet without a header"))?;
    let Some(sums) = following.checked_sub(header.length as usize).filter(|_| following <= 2 * MESSAGE_MAX) else {
        return Err(strange(format!("a packet of {following} bytes with {header:?}")));
    };
    let mut sums = vec![0; sums];
    stream.read_exact(&mut sums).await?;
    let mut bytes = vec![0; header.length as usize];
    stream.read_exact(&mut bytes).await?;
    Ok((header, sums, bytes))
}
