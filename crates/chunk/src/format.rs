//! The bytes of the device log: identity, data record header, journal group and its records, checkpoint header.
//! All integers little-endian (ids most significant byte first), everything starts at multiples of 4 KiB.
//! Every CRC32C begins with the device's id, so that another device's block is never taken for one of ours.

pub use crate::early::format::{EARLY_HEADER, EarlyHeader};

use crate::request::{Asking, Handling};
use base::checksum::{combine, crc32c};
use base::id::{BagId, ChunkId, DeviceId, Generation, Owner};
use base::limit::{BLOCK, CHUNK_MAX, RECORD_PAYLOAD_MAX};
use base::version::ProgramVersion;
use bytes::Bytes;

/// The version of everything here. Versions 1 to 5 are read, too: 1 had another checkpoint (`index::format`), 2 knew no cells
/// (`DataHeader::cell`), 3 did not keep who acknowledged (`Record::Acknowledge`, `index::format`) and took owners of other kinds than
/// two for damage (`Owner::Newer`), 4 had no early records (`EarlyHeader`), programs of 5 end at what 6 leaves (0450); the rest is the same.
pub const VERSION: u32 = 6;
/// The least program that reads `VERSION`. Who raises the one raises the other.
pub const VERSION_SINCE: ProgramVersion = ProgramVersion { major: 0, minor: 1, patch: 0 };
/// The oldest version that is read.
pub const VERSION_MIN: u32 = 1;
/// CRCs in a data record's header.
pub const BLOCK_CRCS: usize = RECORD_PAYLOAD_MAX / BLOCK;
const _: () = assert!(CRCS_AT + BLOCK_CRCS * 4 <= BLOCK && DATA_FIELDS <= CRCS_AT);

const IDENTITY_MAGIC: [u8; 8] = *b"STORMDEV";
const DATA_MAGIC: [u8; 8] = *b"STORMDAT";
const GROUP_MAGIC: [u8; 8] = *b"STORMJRN";
const CHECKPOINT_MAGIC: [u8; 8] = *b"STORMCHK";
/// Every header keeps its CRC here, behind magic; it covers the header with these four bytes as zeros.
pub(crate) const CRC_AT: usize = 8;
/// End of a data record header's fields.
const DATA_FIELDS: usize = 128;
/// Where a data record's block CRCs start. Between: room for the devices of the group (16 ids) and for a push's session, sequence and
/// task. Behind the CRCs, from 2048 on: room for a parity record's witness (record 0283). Both are zeros in what this program writes.
const CRCS_AT: usize = 1024;
/// The flags of a data record that this program knows: seals, and a cell.
const FLAGS_KNOWN: u32 = 3;
/// Bytes of a journal group's header.
pub const GROUP_HEADER: usize = 96;
/// Bytes of a journal record's frame: length, kind, sequence.
pub const RECORD_FRAME: usize = 16;
/// Largest payload in one journal record: appends of at least `RECORD_PAYLOAD_MIN` are data records, and longer
/// unjournaled tails are cut into several records.
pub const JOURNAL_PAYLOAD_MAX: usize = 64 * 1024;
/// Bytes of a journal record's body that say who handled a chunk, from version 4 on: four numbers.
const HANDLER_BYTES: usize = 32;
/// The highest kind of a journal record that is known.
const KIND_MAX: u32 = 10;

/// Why something with a right checksum was not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It says what cannot be.
    Damaged,
    /// A newer program has written it.
    Newer,
}

/// Reads fields one after another; `None` when bytes are missing.
#[derive(Clone)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }
    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    /// Four bytes.
    pub fn four(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }
    /// Eight bytes.
    pub fn eight(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }
    /// A chunk's id.
    pub fn chunk(&mut self) -> Option<ChunkId> {
        ChunkId::from_slice(self.take(16)?)
    }
    /// An owner: kind in four bytes (1 group, 2 bag, up to 255 what newer programs know), number in eight.
    pub fn owner(&mut self) -> Option<Owner> {
        let (kind, number) = (self.four()?, self.eight()?);
        Owner::new(u8::try_from(kind).ok()?, number)
    }
    /// A chunk, the pass of its bag and how it was handled; who handled it only if that is there. What is left is of a newer program.
    fn handling(&mut self) -> Option<(ChunkId, u32, Handling)> {
        let (chunk, grant, pass) = (self.chunk()?, self.eight()?, self.four()?);
        if self.0.len() < HANDLER_BYTES {
            return Some((chunk, pass, Handling { grant, by: None, push_floor: 0 }));
        }
        let by = Asking { session: self.eight()?, number: self.eight()?, floor: self.eight()? };
        Some((chunk, pass, Handling { grant, by: Some(by), push_floor: self.eight()? }))
    }
}

fn put_handling(out: &mut Vec<u8>, chunk: ChunkId, pass: u32, handling: &Handling) {
    out.extend_from_slice(&chunk.to_bytes());
    out.extend_from_slice(&handling.grant.to_le_bytes());
    out.extend_from_slice(&pass.to_le_bytes());
    if let Some(Asking { session, number, floor }) = handling.by {
        for value in [session, number, floor, handling.push_floor] {
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Writes an owner as `Reader::owner` reads it.
pub fn put_owner(out: &mut Vec<u8>, owner: Owner) {
    out.extend_from_slice(&u32::from(owner.kind()).to_le_bytes());
    out.extend_from_slice(&owner.number().to_le_bytes());
}

/// CRC32C of the device's id and these bytes, taking the four bytes at `CRC_AT` as zeros.
fn header_crc(device: DeviceId, header: &[u8]) -> u32 {
    let (head, rest) = header.split_at(CRC_AT);
    let rest = &rest[4..];
    let mut start = [0; 16 + CRC_AT + 4];
    start[..16].copy_from_slice(&device.to_bytes());
    start[16..16 + CRC_AT].copy_from_slice(head);
    combine(crc32c(&start), crc32c(rest), rest.len() as u64)
}

/// Puts the CRC into a header.
pub(crate) fn stamp(device: DeviceId, header: &mut [u8]) {
    let crc = header_crc(device, header);
    header[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether magic and CRC are right.
pub(crate) fn is_stamped(device: DeviceId, magic: [u8; 8], header: &[u8]) -> bool {
    header.starts_with(&magic)
        && header.len() >= CRC_AT + 4
        && header[CRC_AT..CRC_AT + 4] == header_crc(device, header).to_le_bytes()
}

/// Which device this is, and the sizes it was made with. One block:
/// `magic 8 | crc 4 | version 4 | device 16 | capacity 8 | data segment 8 | journal segment 8 | least program 8 | zeros`. These fields
/// keep their places in every version, so that an older program can say which one is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the formats on the device.
    pub version: u32,
    /// The device.
    pub device: DeviceId,
    /// Capacity it was made with; may be changed by settings later.
    pub capacity: u64,
    /// Data segment size it was made with.
    pub data_segment: u64,
    /// Journal segment size it was made with.
    pub journal_segment: u64,
    /// The least program that knows everything on the device. Whoever is the first to write something of a kind that an older program
    /// does not know raises it before. Zero before version 4.
    pub least: ProgramVersion,
}

/// What is wrong with an identity block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityFault {
    /// All zeros: made, never written.
    Blank,
    /// Not written by this program.
    Foreign,
    /// Written by a newer program.
    Newer {
        /// The version of the formats there.
        version: u32,
        /// The least program that reads it.
        least: ProgramVersion,
    },
    /// Its CRC does not match.
    Damaged,
}

impl Identity {
    /// The block.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(&IDENTITY_MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.device.to_bytes());
        for value in [self.capacity, self.data_segment, self.journal_segment, self.least.to_number()] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.resize(BLOCK, 0);
        stamp(DeviceId(0), &mut out);
        out
    }

    /// The identity in this block.
    pub fn decode(block: &[u8]) -> Result<Identity, IdentityFault> {
        if block.iter().all(|byte| *byte == 0) {
            return Err(IdentityFault::Blank);
        }
        if block.len() != BLOCK || !block.starts_with(&IDENTITY_MAGIC) {
            return Err(IdentityFault::Foreign);
        }
        if !is_stamped(DeviceId(0), IDENTITY_MAGIC, block) {
            return Err(IdentityFault::Damaged);
        }
        let mut reader = Reader(&block[CRC_AT + 4..]);
        let fields = || -> Option<(u32, Identity)> {
            let version = reader.four()?;
            let device = DeviceId::from_slice(reader.take(16)?)?;
            let (capacity, data_segment, journal_segment) = (reader.eight()?, reader.eight()?, reader.eight()?);
            let least = ProgramVersion::from_number(reader.eight()?);
            Some((version, Identity { version, device, capacity, data_segment, journal_segment, least }))
        };
        match { fields }() {
            Some((VERSION_MIN..=VERSION, identity)) => Ok(identity),
            Some((version, Identity { least, .. })) if version > VERSION => {
                Err(IdentityFault::Newer { version, least })
            }
            _ => Err(IdentityFault::Damaged),
        }
    }
}

/// The header of a data record: one block, followed by `length` bytes of payload, padded to whole blocks.
/// ```text
/// 0 magic 8 | 8 crc 4 | 12 flags 4 (1: seals, 2: a cell, others: newer) | 16 chunk 16 | 32 owner 12 | 44 segment 4 | 48 generation 8
/// 56 sequence 8 | 64 previous 8 | 72 durable data 8 | 80 durable journal 8 | 88 incarnation 8
/// 96 block 4 | 100 offset 4 | 104 length 4 | 108 whole length 4 | 112 whole crc 4 | 116 cell 4 | 120 zeros
/// 1024 crc of each payload block, 4 each | zeros to 4096
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The chunk.
    pub chunk: ChunkId,
    /// Whom it belongs to.
    pub owner: Owner,
    /// The chunk's generation.
    pub generation: Generation,
    /// This record's place in the history of the device.
    pub sequence: u64,
    /// The sequence number of the data record before this one.
    pub previous: u64,
    /// Highest sequence number of the data stream known durable.
    pub durable_data: u64,
    /// Highest sequence number of the journal stream known durable.
    pub durable_journal: u64,
    /// Which life of the segment this was written in.
    pub incarnation: u64,
    /// The segment's number.
    pub segment: u32,
    /// Where in the segment this header is, in blocks.
    pub block: u32,
    /// Where in the chunk the payload starts.
    pub offset: u32,
    /// Payload bytes.
    pub length: u32,
    /// Bytes of the chunk that the payload stands for, because whoever wrote it made it smaller: whole blocks, and more than the
    /// payload has. 0: the payload is the chunk's bytes.
    pub cell: u32,
    /// This record completes the chunk: its length and the CRC of all that is stored of it.
    pub seals: Option<(u32, u32)>,
    /// Flags that this program does not know; they change nothing about the other fields. The payload says something only to who
    /// knows them.
    pub newer: u32,
    /// CRC32C of every payload block; the last may be of fewer bytes.
    pub crcs: Vec<u32>,
}

impl DataHeader {
    /// Blocks of the record, header included.
    pub fn blocks(&self) -> u32 {
        record_blocks(self.length)
    }

    /// Behind the last byte of the chunk that it holds.
    pub fn end(&self) -> u32 {
        self.offset + self.length.max(self.cell)
    }

    /// CRC32C of the payload.
    pub fn payload_crc(&self) -> u32 {
        let mut crc = 0;
        let mut left = self.length;
        for block in &self.crcs {
            let length = left.min(BLOCK as u32);
            crc = combine(crc, *block, u64::from(length));
            left -= length;
        }
        crc
    }

    /// Writes the header over `out`, one block.
    pub fn encode(&self, device: DeviceId, out: &mut [u8]) {
        assert!(out.len() == BLOCK && self.crcs.len() <= BLOCK_CRCS, "a header is one block");
        let (whole_length, whole_crc) = self.seals.unwrap_or((0, 0));
        let mut fields = Vec::with_capacity(DATA_FIELDS);
        fields.extend_from_slice(&DATA_MAGIC);
        fields.extend_from_slice(&[0; 4]);
        let flags = u32::from(self.seals.is_some()) | u32::from(self.cell > 0) << 1 | (self.newer & !FLAGS_KNOWN);
        fields.extend_from_slice(&flags.to_le_bytes());
        fields.extend_from_slice(&self.chunk.to_bytes());
        put_owner(&mut fields, self.owner);
        fields.extend_from_slice(&self.segment.to_le_bytes());
        let wide = [
            self.generation.0,
            self.sequence,
            self.previous,
            self.durable_data,
            self.durable_journal,
            self.incarnation,
        ];
        for value in wide {
            fields.extend_from_slice(&value.to_le_bytes());
        }
        for value in [self.block, self.offset, self.length, whole_length, whole_crc, self.cell] {
            fields.extend_from_slice(&value.to_le_bytes());
        }
        out.fill(0);
        out[..fields.len()].copy_from_slice(&fields);
        for (place, crc) in self.crcs.iter().enumerate() {
            out[CRCS_AT + 4 * place..CRCS_AT + 4 * place + 4].copy_from_slice(&crc.to_le_bytes());
        }
        stamp(device, out);
    }

    /// The header in this block; `None` if it is not one, or damaged, or says what cannot be.
    pub fn decode(device: DeviceId, block: &[u8]) -> Option<DataHeader> {
        if block.len() != BLOCK || !is_stamped(device, DATA_MAGIC, block) {
            return None;
        }
        let mut reader = Reader(&block[CRC_AT + 4..]);
        let flags = reader.four()?;
        let (chunk, owner, segment) = (reader.chunk()?, reader.owner()?, reader.four()?);
        let generation = Generation(reader.eight()?);
        let (sequence, previous) = (reader.eight()?, reader.eight()?);
        let (durable_data, durable_journal, incarnation) = (reader.eight()?, reader.eight()?, reader.eight()?);
        let (place, offset, length) = (reader.four()?, reader.four()?, reader.four()?);
        let (whole_length, whole_crc, cell) = (reader.four()?, reader.four()?, reader.four()?);
        let cell = if flags & 2 == 2 { cell } else { 0 };
        let seals = (flags & 1 == 1).then_some((whole_length, whole_crc));
        let end = u64::from(offset) + u64::from(length.max(cell));
        if length as usize > RECORD_PAYLOAD_MAX || end > CHUNK_MAX {
            return None;
        }
        if flags & 2 == 2 && !is_cell(u64::from(length), u64::from(cell)) {
            return None;
        }
        if seals.is_some_and(|(whole, _)| u64::from(whole) != end) {
            return None;
        }
        let count = (length as usize).div_ceil(BLOCK);
        let mut crcs = Vec::with_capacity(count);
        let mut reader = Reader(&block[CRCS_AT..]);
        for _ in 0..count {
            crcs.push(reader.four()?);
        }
        Some(DataHeader {
            chunk,
            owner,
            generation,
            sequence,
            previous,
            durable_data,
            durable_journal,
            incarnation,
            segment,
            block: place,
            offset,
            length,
            cell,
            seals,
            newer: flags & !FLAGS_KNOWN,
            crcs,
        })
    }
}

/// Whether so many bytes of payload may stand for `cell` bytes of a chunk.
pub fn is_cell(length: u64, cell: u64) -> bool {
    (1..cell).contains(&length) && cell.is_multiple_of(BLOCK as u64) && cell <= RECORD_PAYLOAD_MAX as u64
}

/// Blocks of a data record with so much payload, header included.
pub fn record_blocks(length: u32) -> u32 {
    1 + length.div_ceil(BLOCK as u32)
}

/// The header of a journal group, at the start of its first block; the records follow at once, zeros fill the last block.
/// ```text
/// 0 magic 8 | 8 crc 4 (of these 96 bytes) | 12 records' bytes 4 | 16 records' crc 4 | 20 segment 4 | 24 block 4 | 28 zeros 4
/// 32 incarnation 8 | 40 previous 8 (last sequence of the group before) | 48 first 8 | 56 last 8
/// 64 durable data 8 | 72 durable journal 8 | 80 zeros 16
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Bytes of records behind the header.
    pub length: u32,
    /// CRC32C of the device's id and those bytes.
    pub records_crc: u32,
    /// The segment's number.
    pub segment: u32,
    /// Where in the segment the group starts, in blocks.
    pub block: u32,
    /// Which life of the segment this was written in.
    pub incarnation: u64,
    /// Sequence number of the last record of the group before.
    pub previous: u64,
    /// Sequence number of the first record.
    pub first: u64,
    /// Sequence number of the last record.
    pub last: u64,
    /// Highest sequence number of the data stream known durable.
    pub durable_data: u64,
    /// Highest sequence number of the journal stream known durable.
    pub durable_journal: u64,
}

impl GroupHeader {
    /// Bytes of the group, header and padding included.
    pub fn padded(&self) -> u64 {
        (GROUP_HEADER as u64 + u64::from(self.length)).next_multiple_of(BLOCK as u64)
    }

    /// CRC32C of the device's id and the records.
    pub fn crc_of(device: DeviceId, records: &[u8]) -> u32 {
        combine(crc32c(&device.to_bytes()), crc32c(records), records.len() as u64)
    }

    /// Writes the header over the first bytes of `out`.
    pub fn encode(&self, device: DeviceId, out: &mut [u8]) {
        let mut fields = Vec::with_capacity(GROUP_HEADER);
        fields.extend_from_slice(&GROUP_MAGIC);
        for value in [0, self.length, self.records_crc, self.segment, self.block, 0] {
            fields.extend_from_slice(&value.to_le_bytes());
        }
        let wide = [self.incarnation, self.previous, self.first, self.last, self.durable_data, self.durable_journal];
        for value in wide {
            fields.extend_from_slice(&value.to_le_bytes());
        }
        fields.resize(GROUP_HEADER, 0);
        stamp(device, &mut fields);
        out[..GROUP_HEADER].copy_from_slice(&fields);
    }

    /// The header at the start of these bytes; `None` if there is none or it is damaged.
    pub fn decode(device: DeviceId, bytes: &[u8]) -> Option<GroupHeader> {
        let header = bytes.get(..GROUP_HEADER)?;
        if !is_stamped(device, GROUP_MAGIC, header) {
            return None;
        }
        let mut reader = Reader(&header[CRC_AT + 4..]);
        let (length, records_crc, segment, block) = (reader.four()?, reader.four()?, reader.four()?, reader.four()?);
        reader.four()?;
        let (incarnation, previous, first, last) = (reader.eight()?, reader.eight()?, reader.eight()?, reader.eight()?);
        let (durable_data, durable_journal) = (reader.eight()?, reader.eight()?);
        if first > last || previous >= first {
            return None;
        }
        let header = GroupHeader {
            length,
            records_crc,
            segment,
            block,
            incarnation,
            previous,
            first,
            last,
            durable_data,
            durable_journal,
        };
        Some(header)
    }
}

/// A record of the journal. In a group: `body length 4 | kind 4 | sequence 8 | body`, each padded to 8 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Bytes of an open chunk's tail. Kind 1: `chunk 16 | owner 12 | generation 8 | offset 4 | bytes`.
    Append {
        /// The chunk.
        chunk: ChunkId,
        /// Whom it belongs to.
        owner: Owner,
        /// The chunk's generation.
        generation: Generation,
        /// Where in the chunk the bytes start.
        offset: u32,
        /// The bytes.
        payload: Bytes,
    },
    /// A chunk is complete. Kind 2: `chunk 16 | owner 12 | generation 8 | length 4 | crc 4`.
    Seal {
        /// The chunk.
        chunk: ChunkId,
        /// Whom it belongs to.
        owner: Owner,
        /// The chunk's generation.
        generation: Generation,
        /// Its length.
        length: u32,
        /// CRC32C of all its bytes.
        crc: u32,
    },
    /// The generation was raised. Kind 3: `chunk 16 | generation 8`.
    Fence {
        /// The chunk.
        chunk: ChunkId,
        /// The new generation.
        generation: Generation,
    },
    /// A chunk was deleted. Kind 4: `chunk 16`.
    Delete {
        /// The chunk.
        chunk: ChunkId,
    },
    /// Bytes are no longer needed. Kind 5: `chunk 16 | start 4 | end 4`.
    Release {
        /// The chunk.
        chunk: ChunkId,
        /// First byte.
        start: u32,
        /// Behind the last byte.
        end: u32,
    },
    /// A chunk of a bag was handled. Kind 6: `chunk 16 | grant 8 | pass 4`, and from version 4 on, if the acknowledgement may be asked
    /// again: `session 8 | number 8 | floor 8 | push floor 8`.
    Acknowledge {
        /// The chunk.
        chunk: ChunkId,
        /// The pass of the bag.
        pass: u32,
        /// Under which grant, and who said so.
        handling: Handling,
    },
    /// A bag refuses pushes. Kind 7: `bag 8 | epoch 8`.
    SealBag {
        /// The bag.
        bag: BagId,
        /// Since which epoch.
        epoch: u64,
    },
    /// A bag is gone. Kind 8: `bag 8`.
    DropBag {
        /// The bag.
        bag: BagId,
    },
    /// A chunk of a bag that retains was handled, and stays. Kind 9: as kind 6.
    Handle {
        /// The chunk.
        chunk: ChunkId,
        /// The pass of the bag.
        pass: u32,
        /// Under which grant, and who said so.
        handling: Handling,
    },
    /// A bag is in this pass now. Kind 10: `bag 8 | pass 4 | retain 4 (0 or 1)`.
    Pass {
        /// The bag.
        bag: BagId,
        /// Counted from 0.
        pass: u32,
        /// Whether handled chunks stay.
        retain: bool,
    },
    /// What a newer program knows: another kind, or more behind what is known of this one. It says what this program cannot do, so a
    /// device with one that counts is not opened.
    Newer {
        /// Its kind.
        kind: u32,
        /// Everything in it.
        body: Bytes,
    },
}

/// Writes the frame of the record that begins at `start` and ends here.
fn put_frame(out: &mut Vec<u8>, start: usize, kind: u32, sequence: u64) {
    let body = (out.len() - start - RECORD_FRAME) as u32;
    out[start..start + 4].copy_from_slice(&body.to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&kind.to_le_bytes());
    out[start + 8..start + 16].copy_from_slice(&sequence.to_le_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
}

impl Record {
    /// Adds the record to a group's bytes.
    pub fn encode(&self, sequence: u64, out: &mut Vec<u8>) {
        if let Record::Append { chunk, owner, generation, offset, payload } = self {
            return Record::encode_append((*chunk, *owner, *generation), *offset, payload, sequence, out);
        }
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_FRAME]);
        let kind: u32 = match self {
            Record::Append { .. } => unreachable!("it is encoded above"),
            Record::Seal { chunk, owner, generation, length, crc } => {
                out.extend_from_slice(&chunk.to_bytes());
                put_owner(out, *owner);
                out.extend_from_slice(&generation.0.to_le_bytes());
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(&crc.to_le_bytes());
                2
            }
            Record::Fence { chunk, generation } => {
                out.extend_from_slice(&chunk.to_bytes());
                out.extend_from_slice(&generation.0.to_le_bytes());
                3
            }
            Record::Delete { chunk } => {
                out.extend_from_slice(&chunk.to_bytes());
                4
            }
            Record::Release { chunk, start, end } => {
                out.extend_from_slice(&chunk.to_bytes());
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(&end.to_le_bytes());
                5
            }
            Record::Acknowledge { chunk, pass, handling } => {
                put_handling(out, *chunk, *pass, handling);
                6
            }
            Record::SealBag { bag, epoch } => {
                out.extend_from_slice(&bag.0.to_le_bytes());
                out.extend_from_slice(&epoch.to_le_bytes());
                7
            }
            Record::DropBag { bag } => {
                out.extend_from_slice(&bag.0.to_le_bytes());
                8
            }
            Record::Handle { chunk, pass, handling } => {
                put_handling(out, *chunk, *pass, handling);
                9
            }
            Record::Pass { bag, pass, retain } => {
                out.extend_from_slice(&bag.0.to_le_bytes());
                out.extend_from_slice(&pass.to_le_bytes());
                out.extend_from_slice(&u32::from(*retain).to_le_bytes());
                10
            }
            Record::Newer { kind, body } => {
                out.extend_from_slice(body);
                *kind
            }
        };
        put_frame(out, start, kind, sequence);
    }

    /// Adds a record of kind 1 to a group's bytes, with a payload that stays where it is.
    pub fn encode_append(
        (chunk, owner, generation): (ChunkId, Owner, Generation),
        offset: u32,
        payload: &[u8],
        sequence: u64,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_FRAME]);
        out.extend_from_slice(&chunk.to_bytes());
        put_owner(out, owner);
        out.extend_from_slice(&generation.0.to_le_bytes());
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(payload);
        put_frame(out, start, 1, sequence);
    }

    /// The next record and its sequence number. `None` at the end and for what cannot be read (then nothing more can).
    pub fn decode(reader: &mut Reader<'_>) -> Option<(u64, Record)> {
        let (length, kind, sequence) = (reader.four()? as usize, reader.four()?, reader.eight()?);
        let whole = reader.take(length)?;
        let mut body = Reader(whole);
        reader.take(length.next_multiple_of(8) - length)?;
        let record = match kind {
            1 => {
                let (chunk, owner, generation) = (body.chunk()?, body.owner()?, Generation(body.eight()?));
                let offset = body.four()?;
                let payload = Bytes::copy_from_slice(body.take(body.0.len())?);
                if u64::from(offset) + payload.len() as u64 > CHUNK_MAX {
                    return None;
                }
                Record::Append { chunk, owner, generation, offset, payload }
            }
            2 => {
                let (chunk, owner, generation) = (body.chunk()?, body.owner()?, Generation(body.eight()?));
                Record::Seal { chunk, owner, generation, length: body.four()?, crc: body.four()? }
            }
            3 => Record::Fence { chunk: body.chunk()?, generation: Generation(body.eight()?) },
            4 => Record::Delete { chunk: body.chunk()? },
            5 => Record::Release { chunk: body.chunk()?, start: body.four()?, end: body.four()? },
            6 => {
                let (chunk, pass, handling) = body.handling()?;
                Record::Acknowledge { chunk, pass, handling }
            }
            7 => Record::SealBag { bag: BagId(body.eight()?), epoch: body.eight()? },
            8 => Record::DropBag { bag: BagId(body.eight()?) },
            9 => {
                let (chunk, pass, handling) = body.handling()?;
                Record::Handle { chunk, pass, handling }
            }
            10 => Record::Pass { bag: BagId(body.eight()?), pass: body.four()?, retain: body.four()? == 1 },
            0 => return None,
            _ => Record::Newer { kind, body: Bytes::copy_from_slice(whole) },
        };
        let more = kind <= KIND_MAX && !body.0.is_empty();
        Some((sequence, if more { Record::Newer { kind, body: Bytes::copy_from_slice(whole) } } else { record }))
    }
}

/// A place in a stream of the log: everything before it is in the checkpoint, from it on must be scanned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPosition {
    /// The segment that was written at that moment, if there was one.
    pub segment: u32,
    /// Its incarnation; segments of a higher one were opened later. If there was no segment: the next one to be used.
    pub incarnation: u64,
    /// Where in the segment the next record goes, in blocks.
    pub block: u32,
    /// The sequence number of the last record before this place.
    pub last: u64,
}

/// The header of a checkpoint: one block; the body (see `index::format`) follows.
/// `magic 8 | crc 4 | version 4 | number 8 | sequence 8 | body length 8 | body crc 4 | zeros 4 | data place 24 | journal place 24
/// | base 8 (version 1: zeros) | zeros`, a place being `segment 4 | block 4 | incarnation 8 | last 8`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointHeader {
    /// Which body follows.
    pub version: u32,
    /// Rises with every checkpoint; it lies in the file of this number (version 1: file `number % 2`).
    pub number: u64,
    /// The checkpoint that holds everything; this one and those between hold what changed since the one before each.
    /// Its own number: it holds everything itself.
    pub base: u64,
    /// The next sequence number at the moment of the checkpoint: records of lower ones are in it.
    pub sequence: u64,
    /// Bytes of the body.
    pub length: u64,
    /// CRC32C of the body.
    pub body_crc: u32,
    /// Where the scan of the data stream starts.
    pub data: LogPosition,
    /// Where the scan of the journal starts.
    pub journal: LogPosition,
}

impl CheckpointHeader {
    /// The block.
    pub fn encode(&self, device: DeviceId) -> Vec<u8> {
        let mut out = Vec::with_capacity(BLOCK);
        out.extend_from_slice(&CHECKPOINT_MAGIC);
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.version.to_le_bytes());
        for value in [self.number, self.sequence, self.length] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.body_crc.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for place in [self.data, self.journal] {
            out.extend_from_slice(&place.segment.to_le_bytes());
            out.extend_from_slice(&place.block.to_le_bytes());
            out.extend_from_slice(&place.incarnation.to_le_bytes());
            out.extend_from_slice(&place.last.to_le_bytes());
        }
        if self.version > 1 {
            out.extend_from_slice(&self.base.to_le_bytes());
        }
        out.resize(BLOCK, 0);
        stamp(device, &mut out);
        out
    }

    /// The header in this block, of this version or a newer one; `None` if it is none or damaged.
    pub fn decode(device: DeviceId, block: &[u8]) -> Option<CheckpointHeader> {
        if block.len() != BLOCK || !is_stamped(device, CHECKPOINT_MAGIC, block) {
            return None;
        }
        let mut reader = Reader(&block[CRC_AT + 4..]);
        let version = reader.four()?;
        if version < VERSION_MIN {
            return None;
        }
        let (number, sequence, length, body_crc) = (reader.eight()?, reader.eight()?, reader.eight()?, reader.four()?);
        reader.four()?;
        let mut place = || -> Option<LogPosition> {
            let (segment, block) = (reader.four()?, reader.four()?);
            Some(LogPosition { segment, block, incarnation: reader.eight()?, last: reader.eight()? })
        };
        let (data, journal) = (place()?, place()?);
        let base = if version == 1 { number } else { reader.eight()? };
        if base > number {
            return None;
        }
        Some(CheckpointHeader { version, base, number, sequence, length, body_crc, data, journal })
    }
}
