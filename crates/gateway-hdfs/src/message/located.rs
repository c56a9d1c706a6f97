//! Messages of the calls that ask where a file's blocks are (ClientNamenodeProtocol.proto, ClientDatanodeProtocol.proto).

use super::hdfs::{ExtendedBlock, LocatedBlocks};
use prost::Message;

/// `getBlockLocations`: asks for the blocks of a range of a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetBlockLocations {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// First byte; a negative number as two's complement is refused.
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    /// Bytes; as `offset`.
    #[prost(uint64, required, tag = "3")]
    pub length: u64,
}

/// Where they are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetBlockLocationsAnswer {
    /// The blocks.
    #[prost(message, optional, tag = "1")]
    pub located: Option<LocatedBlocks>,
}

impl GetBlockLocationsAnswer {
    /// The tag of `located`, for whoever encodes it in parts.
    pub const LOCATED: u32 = 1;
}

/// `getReplicaVisibleLength`: asks how many bytes of a block can be read.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetReplicaVisibleLength {
    /// The block.
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
}

/// So many.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct GetReplicaVisibleLengthAnswer {
    /// Bytes.
    #[prost(uint64, required, tag = "1")]
    pub length: u64,
}
