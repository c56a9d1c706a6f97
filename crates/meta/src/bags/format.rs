//! Records of bags.

use crate::format::PolicyRecord;
use prost::Message;

/// Under `Key::Bag` and `Key::GarbageBag`.
#[derive(Clone, PartialEq, Message)]
pub struct BagRecord {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its wishes.
    #[prost(message, optional, tag = "2")]
    pub policy: Option<PolicyRecord>,
    /// Bytes of a full chunk.
    #[prost(uint64, tag = "3")]
    pub chunk_size: u64,
    /// Sixteen bytes each.
    #[prost(bytes = "vec", repeated, tag = "4")]
    pub members: Vec<Vec<u8>>,
    /// 0 open, 1 sealing, 2 sealed.
    #[prost(uint32, tag = "5")]
    pub state: u32,
    /// Rises when the members change.
    #[prost(uint64, tag = "6")]
    pub epoch: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, tag = "7")]
    pub created: u64,
    /// Acknowledged chunks stay.
    #[prost(bool, tag = "8")]
    pub retain: bool,
    /// Counts rewinds.
    #[prost(uint32, tag = "9")]
    pub pass: u32,
    /// What members that left had counted.
    #[prost(message, optional, tag = "10")]
    pub carried: Option<CarriedRecord>,
    /// How its chunks are compressed: `Compression::code`.
    #[prost(uint32, tag = "11")]
    pub compression: u32,
}

/// Counts of the members that left a bag.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CarriedRecord {
    /// Chunks that were pushed there.
    #[prost(uint64, tag = "1")]
    pub pushed: u64,
    /// Their bytes.
    #[prost(uint64, tag = "2")]
    pub pushed_bytes: u64,
    /// Chunks that were acknowledged there.
    #[prost(uint64, tag = "3")]
    pub acknowledged: u64,
    /// Their bytes.
    #[prost(uint64, tag = "4")]
    pub acknowledged_bytes: u64,
}

/// Under `Key::BagName`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct BagNameRecord {
    /// The bag.
    #[prost(uint64, tag = "1")]
    pub bag: u64,
}
