//! Chunks on a device: the questions that a device log answers.

use super::id::Id;
use prost::Message;

/// Appends the frame's payload to a chunk; the first append makes the chunk.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Append {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The group it belongs to.
    #[prost(uint64, tag = "3")]
    pub group: u64,
    /// The writer's generation.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// The chunk's length before this append. An append that is there already is answered, not repeated.
    #[prost(uint64, tag = "5")]
    pub offset: u64,
    /// When to answer: 0 received, 1 written, 2 synced.
    #[prost(uint32, tag = "6")]
    pub level: u32,
    /// Whether this append completes the chunk.
    #[prost(bool, tag = "7")]
    pub seal: bool,
    /// Whether the chunk will be read in small parts: then its records are small, and any part comes with one read.
    #[prost(bool, tag = "8")]
    pub small_parts: bool,
}

/// Appends the frame's payload to a chunk, where it stands for more bytes than it has: its writer made it smaller, and who reads it
/// makes it what it was. Nodes that do not know cells do not know this question, so that none takes the payload for the bytes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AppendCell {
    /// Everything else; `small_parts` must not be set.
    #[prost(message, required, tag = "1")]
    pub append: Append,
    /// Bytes of the chunk that the payload stands for: whole blocks, more than it has, at most `base::limit::RECORD_PAYLOAD_MAX`.
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// The append has come as far as was asked.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AppendAnswer {
    /// The chunk's length after it.
    #[prost(uint64, tag = "1")]
    pub length: u64,
}

/// A range of a chunk.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Range {
    /// First byte.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub length: u64,
}

/// Reads ranges of a chunk; the answer's payload is their bytes one after another, `base::limit::FRAME_PAYLOAD_MAX` at most.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Read {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// What to read. A range beyond the chunk's end is cut short.
    #[prost(message, repeated, tag = "3")]
    pub ranges: Vec<Range>,
    /// Whether the reader will not come back: do not keep the bytes in memory for it.
    #[prost(bool, tag = "4")]
    pub once: bool,
    /// The node need not compare the bytes with their stored checksums: the receiver does, for the payload's checksum is
    /// made of them.
    #[prost(bool, tag = "5")]
    pub unchecked: bool,
    /// With `unchecked`: the stored checksums are wanted beside the bytes (`ReadAnswer::blocks`).
    #[prost(bool, tag = "6")]
    pub blocks: bool,
    /// Who asks can read cells (`ReadAnswer::cells`). If not, bytes in one are refused: `Unsupported`.
    #[prost(bool, tag = "7")]
    pub cells: bool,
}

/// What was read is the payload.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReadAnswer {
    /// The chunk's length at that moment.
    #[prost(uint64, tag = "1")]
    pub chunk_length: u64,
    /// Whether it will stay so: the chunk is complete, or its device takes nothing any more.
    #[prost(bool, tag = "2")]
    pub sealed: bool,
    /// If it was asked for: CRC32C of every `base::limit::BLOCK` of the payload as stored, counted from its first byte; the last
    /// may be short. Empty if the stored ones are of blocks that begin elsewhere, or from a node that does not know the question.
    #[prost(fixed32, repeated, tag = "3")]
    pub blocks: Vec<u32>,
    /// What in the payload is a cell as it is stored, in the order of the ranges. One that a range touches comes whole.
    #[prost(message, repeated, tag = "4")]
    pub cells: Vec<Cell>,
}

/// Bytes of a chunk that were made smaller by their writer.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Cell {
    /// Where in the chunk they begin.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// How many they are.
    #[prost(uint64, tag = "2")]
    pub length: u64,
    /// Bytes of the payload that stand for them.
    #[prost(uint64, tag = "3")]
    pub stored: u64,
}

/// Closes a chunk for good, durably.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Seal {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The writer's generation.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// The length that the writer believes in; another is refused.
    #[prost(uint64, tag = "4")]
    pub length: u64,
}

/// The chunk is sealed.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SealAnswer {
    /// Its length.
    #[prost(uint64, tag = "1")]
    pub length: u64,
    /// CRC32C of all its bytes.
    #[prost(fixed32, tag = "2")]
    pub crc: u32,
}

/// Asks how long a chunk is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stat {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// Whether the answer shall say the start of the node. Then of a chunk that is not there it says so, too: that chunk has no bytes and no
    /// generation.
    #[prost(bool, tag = "3")]
    pub start: bool,
}

/// How long a chunk is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatAnswer {
    /// Its length.
    #[prost(uint64, tag = "1")]
    pub length: u64,
    /// Whether it will stay so: the chunk is complete, or its device takes nothing any more.
    #[prost(bool, tag = "2")]
    pub sealed: bool,
    /// The generation of its writer.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// CRC32C of all that is stored of it, as it came, also of what was released since: of its bytes, if none are in cells. That of two chunks whose
    /// bytes came in the same form is the same. Absent: from a node that does not know the field.
    #[prost(fixed32, optional, tag = "4")]
    pub crc: Option<u32>,
    /// The start of the node that answers, if it was asked for. Zero: from a node that does not know the field.
    #[prost(uint64, tag = "5")]
    pub start: u64,
}
