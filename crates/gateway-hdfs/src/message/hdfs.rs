//! Messages that many calls share: blocks, servers, statuses of files (hdfs.proto, Security.proto).

use prost::{DecodeError, Message};

include!(concat!(env!("OUT_DIR"), "/hdfs.rs"));

impl LocatedBlock {
    /// Who serves it, as a client reads it.
    pub fn servers(&self) -> Result<Vec<DatanodeInfo>, DecodeError> {
        self.locations.iter().map(|location| DatanodeInfo::decode(location.clone())).collect()
    }
}

impl LocatedBlocks {
    /// The tag of `blocks`, for whoever encodes many of them one by one.
    pub const BLOCKS: u32 = 2;
}

/// `FileStatus::kind` of a directory.
pub const DIRECTORY: i32 = 1;
/// `FileStatus::kind` of a file.
pub const FILE: i32 = 2;
/// `FileStatus::flags`: it has access control entries.
pub const HAS_ACL: u32 = 1;
/// `StorageType` of what is served: a disk.
pub const STORAGE_DISK: i32 = 1;
