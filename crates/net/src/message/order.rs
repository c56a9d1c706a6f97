//! What the node that keeps the metadata orders of a device on another node: the steps of collecting, sealing, recovering and
//! moving. Nobody else may.

use super::id::Id;
use prost::Message;

/// Raises a chunk's generation, durably: who writes under a lower one is refused.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fence {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The new generation.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
}

/// The chunk is fenced.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FenceAnswer {
    /// Its length in bytes, all durable.
    #[prost(uint64, tag = "1")]
    pub length: u64,
    /// Which start of its node answers (`base::id::NodeId::start`); 0: of a node that does not say.
    #[prost(uint64, tag = "2")]
    pub start: u64,
}

/// Deletes chunks, durably. Those that are not there count as deleted. Done once: one that comes late, when the chunk is there anew, would take that.
/// Of the other orders none needs that: a late release gives back what the original of a copy gave back before, a seal and a fence ask for what is
/// so or are refused for their length or generation, and bytes that are fetched late are what is there, are refused, or are a chunk that nobody knows.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Delete {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunks; `base::limit::LIST_PAGE_MAX` at the most.
    #[prost(message, repeated, tag = "2")]
    pub chunks: Vec<Id>,
    /// Counts the deletes that one leadership orders of this device, from 1 on; 0: of a node that does not number them.
    #[prost(uint64, tag = "3")]
    pub number: u64,
    /// The lowest number that may be asked again: a lower one is not done any more.
    #[prost(uint64, tag = "4")]
    pub floor: u64,
}

/// These bytes of a chunk are no longer needed.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Release {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The ranges; `base::limit::LIST_PAGE_MAX` at the most.
    #[prost(message, repeated, tag = "3")]
    pub ranges: Vec<super::chunk::Range>,
}

/// Chunks in the order of their ids.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Inventory {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// Behind this one; none: from the first.
    #[prost(message, optional, tag = "2")]
    pub after: Option<Id>,
    /// At most so many; `base::limit::LIST_PAGE_MAX` at the most, and if zero.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
}

/// A page of chunks.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct InventoryAnswer {
    /// The chunks.
    #[prost(message, repeated, tag = "1")]
    pub chunks: Vec<Stored>,
    /// Whether there are more behind the last.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A chunk on a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stored {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Id,
    /// The bag it belongs to, if `of_bag`, else the group.
    #[prost(uint64, tag = "2")]
    pub owner: u64,
    /// Whether it belongs to a bag.
    #[prost(bool, tag = "3")]
    pub of_bag: bool,
    /// Its length in bytes.
    #[prost(uint64, tag = "4")]
    pub length: u64,
    /// The highest generation seen.
    #[prost(uint64, tag = "5")]
    pub generation: u64,
    /// Whether it is complete.
    #[prost(bool, tag = "6")]
    pub sealed: bool,
    /// CRC32C of all its bytes so far.
    #[prost(fixed32, tag = "7")]
    pub crc: u32,
    /// What `owner` is a number of, as `Owner::kind` says; zero: as `of_bag` says.
    #[prost(uint32, tag = "8")]
    pub owner_kind: u32,
}

/// Asks which bytes of a chunk were not released.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Kept {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// Only ranges that begin at or behind this byte.
    #[prost(uint64, tag = "3")]
    pub start: u64,
}

/// The bytes that were not released.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeptAnswer {
    /// In order, `base::limit::LIST_PAGE_MAX` at the most.
    #[prost(message, repeated, tag = "1")]
    pub ranges: Vec<super::chunk::Range>,
    /// Whether there are more behind the last.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// Whether the chunk's records are small.
    #[prost(bool, tag = "3")]
    pub small_parts: bool,
}

/// Asks for a bag's counters on a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BagCounts {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The bag.
    #[prost(uint64, tag = "2")]
    pub bag: u64,
}

/// A bag's counters on a device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BagCountsAnswer {
    /// Complete chunks that were ever pushed here.
    #[prost(uint64, tag = "1")]
    pub pushed: u64,
    /// Their bytes.
    #[prost(uint64, tag = "2")]
    pub pushed_bytes: u64,
    /// Chunks that were acknowledged; of a bag that retains: in the present pass.
    #[prost(uint64, tag = "3")]
    pub acknowledged: u64,
    /// Their bytes.
    #[prost(uint64, tag = "4")]
    pub acknowledged_bytes: u64,
    /// The epoch at which further pushes were refused.
    #[prost(uint64, optional, tag = "5")]
    pub sealed_epoch: Option<u64>,
    /// The present pass, counted from 0.
    #[prost(uint32, tag = "6")]
    pub pass: u32,
    /// Acknowledged chunks stay.
    #[prost(bool, tag = "7")]
    pub retain: bool,
    /// Chunks that wait to be pulled.
    #[prost(uint64, tag = "8")]
    pub waiting: u64,
    /// Chunks granted and not yet acknowledged.
    #[prost(uint64, tag = "9")]
    pub granted: u64,
    /// Chunks that are there, handled or not.
    #[prost(uint64, tag = "10")]
    pub chunks: u64,
}

/// The bag is in this pass from now on, durably.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BeginPass {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The bag.
    #[prost(uint64, tag = "2")]
    pub bag: u64,
    /// Counted from 0.
    #[prost(uint32, tag = "3")]
    pub pass: u32,
    /// Acknowledged chunks stay.
    #[prost(bool, tag = "4")]
    pub retain: bool,
}

/// From now on new chunks of this bag are refused, durably.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SealBag {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The bag.
    #[prost(uint64, tag = "2")]
    pub bag: u64,
    /// The epoch at which it was sealed.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}

/// Deletes all chunks of a bag and forgets its counters, durably.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DropBag {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The bag.
    #[prost(uint64, tag = "2")]
    pub bag: u64,
    /// Only if the device has left the bag, so that it takes chunks of it again; else nothing is done.
    #[prost(bool, tag = "3")]
    pub only_left: bool,
}

/// Bytes of a chunk are to be taken over from another device: the node asks the one that has them, and adds them to its copy of the
/// chunk, which it makes if there is none. Answered when they are written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fetch {
    /// The device that takes them.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The group it belongs to.
    #[prost(uint64, tag = "3")]
    pub group: u64,
    /// As the original has it.
    #[prost(uint64, tag = "4")]
    pub generation: u64,
    /// Whether its records are small.
    #[prost(bool, tag = "5")]
    pub small_parts: bool,
    /// The device that has them.
    #[prost(message, required, tag = "6")]
    pub from: Id,
    /// The node that has that device.
    #[prost(message, required, tag = "7")]
    pub node: Id,
    /// Where that node is, `host:port`.
    #[prost(string, tag = "8")]
    pub address: String,
    /// The first byte: the length of the copy so far.
    #[prost(uint64, tag = "9")]
    pub start: u64,
    /// Behind the last byte; at most `base::limit::FETCH_MAX` behind the first.
    #[prost(uint64, tag = "10")]
    pub end: u64,
}

/// Asks what a device reads of a chunk, to compare it with what another one has: all is compared with its stored checksums.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Sums {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// What to read; `base::limit::LIST_PAGE_MAX` ranges of `base::limit::FETCH_MAX` bytes together at the most.
    #[prost(message, repeated, tag = "3")]
    pub ranges: Vec<super::chunk::Range>,
}

/// What the device has read.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SumsAnswer {
    /// CRC32C of what is stored of the ranges, one after the other. A cell that a range touches counts whole and as it is stored, once in each range: a
    /// fetch copies it so, so that of a copy the sums are those of its original. Says nothing if some of it is damaged.
    #[prost(fixed32, tag = "1")]
    pub crc: u32,
    /// The parts of the ranges, each of `base::limit::RECORD_PAYLOAD_MAX` bytes or several such, in which bytes do not match their checksums.
    #[prost(message, repeated, tag = "2")]
    pub damaged: Vec<super::chunk::Range>,
}

/// Who orders leads the keepers, in the term that its link's greeting says: the node reports to it at once, and obeys no leader of an earlier term
/// any more.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Follow {
    /// Where the leader listens, `host:port`.
    #[prost(string, tag = "1")]
    pub address: String,
}
