//! Devices: what is done with one as a whole.

use super::id::Id;
use prost::Message;

/// Begins to read every live byte of a device and to compare checksums. One that is under way goes on as it began.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Scrub {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// Bytes a second; zero: `base::limit::SCRUB_RATE`.
    #[prost(uint64, tag = "2")]
    pub rate: u64,
}

/// How the last scrub of a device went, or goes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScrubState {
    /// It is under way.
    #[prost(bool, tag = "1")]
    pub running: bool,
    /// When it began, in milliseconds since 1970.
    #[prost(uint64, tag = "2")]
    pub began_ms: u64,
    /// When it ended; zero while it is under way.
    #[prost(uint64, tag = "3")]
    pub ended_ms: u64,
    /// Chunks looked at.
    #[prost(uint64, tag = "4")]
    pub chunks: u64,
    /// Bytes compared.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// Damaged ranges.
    #[prost(uint64, tag = "6")]
    pub damaged_ranges: u64,
    /// Bytes in them.
    #[prost(uint64, tag = "7")]
    pub damaged_bytes: u64,
    /// Bytes a second that it may read.
    #[prost(uint64, tag = "8")]
    pub rate: u64,
}

/// Asks the node that has a device how its last scrub went, or goes: it knows that now, the others what was reported last.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Scrubbed {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// With what was found damaged.
    #[prost(bool, tag = "2")]
    pub ranges: bool,
}

/// How it went, or goes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ScrubbedAnswer {
    /// None: it was not scrubbed since its node started.
    #[prost(message, optional, tag = "1")]
    pub state: Option<ScrubState>,
    /// Damaged ranges of chunks that still exist, in the order of the chunks' ids; `base::limit::SCRUB_DAMAGE_MAX` at the most.
    #[prost(message, repeated, tag = "2")]
    pub ranges: Vec<OwnedRange>,
    /// Further ranges, which were only counted.
    #[prost(uint64, tag = "3")]
    pub not_listed: u64,
}

/// Bytes of a chunk that could not be had, with what the device knows of whose they are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OwnedRange {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Id,
    /// The first byte.
    #[prost(uint64, tag = "2")]
    pub start: u64,
    /// Behind the last byte.
    #[prost(uint64, tag = "3")]
    pub end: u64,
    /// The disk could not read them; else their checksum is another.
    #[prost(bool, tag = "4")]
    pub unreadable: bool,
    /// The bag it belongs to, if `of_bag`, else the group.
    #[prost(uint64, tag = "5")]
    pub owner: u64,
    /// Whether it belongs to a bag.
    #[prost(bool, tag = "6")]
    pub of_bag: bool,
    /// What `owner` is a number of, as `Owner::kind` says; zero: as `of_bag` says.
    #[prost(uint32, tag = "7")]
    pub owner_kind: u32,
}

/// Begins to empty a device: nothing new comes there, what is there moves to others, and in the end it is none of the store's.
/// Refused, with nothing done, if the others have no room. One that is being emptied goes on.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Drain {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
}

/// Gives a device up: nobody counts on what it has any more. What has other replicas gets new ones from these; what has none is copied off it, should
/// it answer again. For good. Refused of one that serves.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Lost {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
}

/// How far a drain has come since the node started.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DrainState {
    /// When it began, or went on, in milliseconds since 1970.
    #[prost(uint64, tag = "1")]
    pub began_ms: u64,
    /// Chunks that were moved.
    #[prost(uint64, tag = "2")]
    pub chunks: u64,
    /// Bytes that were copied, those of chunks that are on their way included.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// What it waits for; empty while it has work.
    #[prost(string, tag = "4")]
    pub waits: String,
    /// Chunks that were on the device when the first was moved; 0: not known yet.
    #[prost(uint64, tag = "5")]
    pub whole_chunks: u64,
    /// Their bytes.
    #[prost(uint64, tag = "6")]
    pub whole_bytes: u64,
}

/// Asks what the last scrub of a device found damaged, by the names that it has now.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Damage {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
}

/// What is damaged, in the order of the chunks' ids; `base::limit::SCRUB_DAMAGE_MAX` ranges at the most.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DamageAnswer {
    /// The ranges of chunks that still exist.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<DamagedRange>,
    /// Further ranges, which were only counted.
    #[prost(uint64, tag = "2")]
    pub not_listed: u64,
}

/// Bytes of a chunk that could not be had.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DamagedRange {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Id,
    /// The first byte.
    #[prost(uint64, tag = "2")]
    pub start: u64,
    /// Behind the last byte.
    #[prost(uint64, tag = "3")]
    pub end: u64,
    /// The disk could not read them; else their checksum is another.
    #[prost(bool, tag = "4")]
    pub unreadable: bool,
    /// The bag that the chunk belongs to; empty: it belongs to files.
    #[prost(string, tag = "5")]
    pub bag: String,
    /// The files with these bytes; none: no file needs them.
    #[prost(message, repeated, tag = "6")]
    pub pieces: Vec<FileRange>,
}

/// Bytes of a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FileRange {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The first byte.
    #[prost(uint64, tag = "2")]
    pub start: u64,
    /// Behind the last byte.
    #[prost(uint64, tag = "3")]
    pub end: u64,
}
