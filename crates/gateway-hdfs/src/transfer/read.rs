//! READ_BLOCK: bytes of a block in packets, each made of one piece of the file as the store hands it out, not copied.

use super::connection::{Connection, SILENCE_MAX, nonsense};
use super::fail;
use super::source::Source;
use crate::files::blocks::{generation_of, place};
use crate::files::located::show;
use crate::gateway::Gateway;
use crate::hdfs_attributes::HdfsAttributes;
use crate::message::hdfs::ExtendedBlock;
use crate::message::transfer::{
    CHECKSUM_CRC32C, CHECKSUM_NULL, Checksum, ERROR_CHECKSUM, OperationAnswer, PACKET_HEADER, PacketHeader, ReadBlock,
    ReadChecksum, ReadStatus,
};
use crate::ticket::IDLE_MAX_CROWDED;
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use client::{FileReader, RangePiece, ReadOptions, Sums};
use prost::Message;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a read waits for bytes of an open file that the client knows of and that are not visible yet, as in HDFS.
const GROWTH_WAIT_MAX: Duration = Duration::from_secs(3);

/// First pause between two looks at a file that grows; each is twice as long as the one before.
const GROWTH_LOOK: Duration = Duration::from_millis(2);

/// What is sent for one request.
struct Sending {
    source: Source,
    /// Its first piece: damage there is told before anything else is said. None: no bytes were asked for.
    first: Option<RangePiece>,
    /// First byte within the block.
    offset: u64,
    /// Bytes that will be sent.
    length: u64,
    checksums: bool,
}

/// How often it is looked at how many connections there are while a client does not say how it went.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Sends bytes of a block. Answers whether the connection may carry another operation.
pub async fn read_block(gateway: &Arc<Gateway>, connection: &mut Connection, request: &ReadBlock) -> Result<bool> {
    let sending = match begin(gateway, request).await {
        Ok(sending) => sending,
        Err(error) => {
            fail(gateway, connection, "block read", error).await?;
            return Ok(false);
        }
    };
    send(connection, sending).await?;
    connection.ticket.rest();
    // The client says whether the checksums were right, and the connection is free again. One that does not say it goes.
    let Some(status) = status(connection).await? else { return Ok(false) };
    if status.status == ERROR_CHECKSUM {
        suspect(gateway, &request.header.base.block).await;
    }
    Ok(true)
}

/// What a client says of the bytes that it was sent. None: it does not say it, and its place is wanted, or it had HDFS's own time.
async fn status(connection: &mut Connection) -> Result<Option<ReadStatus>> {
    let mut waited = Duration::ZERO;
    while waited < SILENCE_MAX && (waited < IDLE_MAX_CROWDED || !connection.ticket.is_crowded()) {
        match timeout(LOOK_EVERY, connection.read_message()).await {
            Ok(status) => return status.map(Some),
            Err(_) => waited += LOOK_EVERY,
        }
    }
    Ok(None)
}

/// A client says that bytes of this block did not match the checksums that came with them. They are compared here, one block at a
/// time; only if they do not match are the bytes of its file compared from now on before they are sent.
pub async fn suspect(gateway: &Gateway, block: &ExtendedBlock) {
    let name = show(block);
    // One at a time: while it goes on, others are not believed, and say it again when they see it again.
    let Ok(_turn) = gateway.compares.try_acquire() else { return };
    let Ok(Opened { reader, base, length }) = open_block(gateway, block, 0).await else { return };
    let inode = reader.attributes().inode;
    if gateway.files.readers.is_suspect(inode) {
        return;
    }
    let length = length.min(HdfsAttributes::read(&reader.attributes().note).block_size());
    let mut range = reader.range(base, length, ReadOptions { once: true }, Sums::Blocks);
    loop {
        match range.next().await {
            Ok(Some(_)) => (),
            Err(error) if error.kind() == ErrorKind::Corrupt => break,
            Ok(None) | Err(_) => return,
        }
    }
    (gateway.on_trouble)(format!("a client says that {name} is damaged, and it is; `stormwell device scrub` looks"));
    gateway.files.readers.suspect(inode);
}

/// Finds the bytes and asks for the first of them.
async fn begin(gateway: &Arc<Gateway>, request: &ReadBlock) -> Result<Sending> {
    let block = &request.header.base.block;
    let (offset, length) = (request.offset, request.length);
    let opened = open_block(gateway, block, offset.saturating_add(length)).await?;
    let beyond = |available: u64| {
        let text = format!("offset {offset} and length {length} are beyond the {available} bytes of {}", show(block));
        Error::new(ErrorKind::Invalid, text)
    };
    let wanted = offset.checked_add(length).ok_or_else(|| beyond(opened.length))?;
    let Opened { reader, base, length: available } = wait_for(gateway, block, opened, wanted).await?;
    if wanted > available {
        return Err(beyond(available));
    }
    // Whole blocks of the store, except at the end of what there is: their stored checksums are sent.
    let start = offset - offset % BLOCK as u64;
    let end = wanted.checked_next_multiple_of(BLOCK as u64).map_or(available, |end| end.min(available));
    let checksums = request.checksums.unwrap_or(true);
    let sums = match checksums {
        false => Sums::None,
        true if gateway.files.readers.is_suspect(reader.attributes().inode) => Sums::Blocks,
        true => Sums::Stored,
    };
    let once = request.caching.and_then(|caching| caching.drop_behind).unwrap_or(false);
    let range = base + start..base + end;
    let mut source = Source::new(reader, range, (ReadOptions { once }, sums), gateway.reads.clone());
    let first = source.next().await.inspect_err(|_| forget(gateway, block))?;
    Ok(Sending { source, first, offset: start, length: end - start, checksums })
}

/// A block that can be read.
pub struct Opened {
    /// Its file.
    pub reader: FileReader,
    /// First byte within the file.
    pub base: u64,
    /// Bytes of the file from there on.
    pub length: u64,
}

/// Opens the file of a block. If so many bytes of it are `enough`, nobody waits to be told whether there are more. `NotFound` if the block is none.
pub async fn open_block(gateway: &Gateway, block: &ExtendedBlock, enough: u64) -> Result<Opened> {
    let Some(place) = place(block.id) else { return Err(missing(block)) };
    let generation = generation_of(block.generation_stamp);
    let reader = match gateway.files.readers.open(&gateway.client, place.inode, generation).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(block)),
        other => other?,
    };
    let attributes = reader.attributes();
    let base =
        place.byte(&attributes, HdfsAttributes::read(&attributes.note).block_size()).ok_or_else(|| missing(block))?;
    let length = reader.length_known_or_reaching(base.saturating_add(enough)).await?.saturating_sub(base);
    Ok(Opened { reader, base, length })
}

/// Waits until a block has `wanted` bytes, as far as that is likely: its file grows, or what is known of it is old.
async fn wait_for(gateway: &Gateway, block: &ExtendedBlock, mut opened: Opened, wanted: u64) -> Result<Opened> {
    let deadline = gateway.clock.now().after(GROWTH_WAIT_MAX);
    let mut pause = GROWTH_LOOK;
    while opened.length < wanted {
        let was_open = opened.reader.attributes().open;
        forget(gateway, block);
        opened = open_block(gateway, block, wanted).await?;
        if opened.length >= wanted || !was_open || gateway.clock.now() >= deadline {
            break;
        }
        sleep(pause).await;
        pause = (pause * 2).min(GROWTH_WAIT_MAX / 10);
    }
    Ok(opened)
}

fn forget(gateway: &Gateway, block: &ExtendedBlock) {
    if let Some(place) = place(block.id) {
        gateway.files.readers.forget(place.inode);
    }
}

fn missing(block: &ExtendedBlock) -> Error {
    Error::new(ErrorKind::NotFound, format!("Replica not found for {}", show(block)))
}

/// Sends the answer, the packets, and the empty packet that ends them.
async fn send(connection: &mut Connection, sending: Sending) -> Result<()> {
    let Sending { mut source, first, offset, length, checksums } = sending;
    let kind = if checksums { CHECKSUM_CRC32C } else { CHECKSUM_NULL };
    let read = ReadChecksum { checksum: Checksum { kind, bytes: BLOCK as u32 }, offset };
    // What goes out before the next bytes: at first the answer itself.
    let mut head = OperationAnswer { read: Some(read), ..OperationAnswer::default() }.encode_length_delimited_to_vec();
    let (mut sent, mut number, mut next) = (0, 0, first);
    while let Some(piece) = next {
        let header =
            PacketHeader { offset: offset + sent, number, length: piece.length as u32, ..PacketHeader::default() };
        sent += piece.length;
        number += 1;
        let last = (sent == length).then_some(number);
        write_packet(connection, &mut head, header, (&piece, last), || source.is_slow()).await?;
        drop(piece);
        next = if sent < length { source.next().await? } else { None };
    }
    if sent < length {
        return Err(nonsense(format!("{} bytes of a block are gone: its file was cut meanwhile", length - sent)));
    }
    if length == 0 {
        PacketHeader { offset, last: true, ..PacketHeader::default() }.encode(0, &mut head);
        connection.write_all(&mut [IoSlice::new(&head)], || false).await?;
    }
    Ok(())
}

/// Sends a packet behind what `head` holds, and right behind it the last one, of number `last`, if there is one. `wanted`: asked while
/// the client takes too little, whether others want the memory that its bytes take.
async fn write_packet(
    connection: &mut Connection,
    head: &mut Vec<u8>,
    header: PacketHeader,
    (piece, last): (&RangePiece, Option<i64>),
    wanted: impl FnMut() -> bool,
) -> Result<()> {
    let checksums = 4 * piece.sums.len();
    head.reserve(PACKET_HEADER + checksums);
    header.encode(checksums, head);
    piece.sums.iter().for_each(|crc| head.extend_from_slice(&crc.to_be_bytes()));
    let mut tail = Vec::new();
    if let Some(number) = last {
        let offset = header.offset + piece.length;
        PacketHeader { offset, number, last: true, ..PacketHeader::default() }.encode(0, &mut tail);
    }
    let mut parts = Vec::with_capacity(2 + piece.parts.len());
    parts.push(IoSlice::new(head));
    parts.extend(piece.parts.iter().map(|part| IoSlice::new(part)));
    parts.push(IoSlice::new(&tail));
    connection.write_all(&mut parts, wanted).await?;
    head.clear();
    Ok(())
}
