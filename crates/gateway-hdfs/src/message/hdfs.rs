//! Messages that many calls share: blocks, servers, statuses of files (hdfs.proto, Security.proto).

use prost::Message;

/// A block of a file, as clients name it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ExtendedBlock {
    /// The pool; one for the whole store.
    #[prost(string, required, tag = "1")]
    pub pool: String,
    /// The block; negative numbers would mean striped ones.
    #[prost(uint64, required, tag = "2")]
    pub id: u64,
    /// Rises with every writer.
    #[prost(uint64, required, tag = "3")]
    pub generation_stamp: u64,
    /// Its bytes, as far as the speaker knows.
    #[prost(uint64, optional, tag = "4")]
    pub length: Option<u64>,
}

/// A permission to ask. Ours are empty, and all four fields are written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Token {
    /// Whom it names.
    #[prost(bytes = "vec", required, tag = "1")]
    pub identifier: Vec<u8>,
    /// What proves it.
    #[prost(bytes = "vec", required, tag = "2")]
    pub password: Vec<u8>,
    /// Its kind.
    #[prost(string, required, tag = "3")]
    pub kind: String,
    /// What it is for.
    #[prost(string, required, tag = "4")]
    pub service: String,
}

/// How to reach a server of blocks.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DatanodeId {
    /// Its address as digits.
    #[prost(string, required, tag = "1")]
    pub ip: String,
    /// Its name.
    #[prost(string, required, tag = "2")]
    pub host: String,
    /// Never changes.
    #[prost(string, required, tag = "3")]
    pub uuid: String,
    /// Port of the data transfer protocol.
    #[prost(uint32, required, tag = "4")]
    pub transfer_port: u32,
    /// Port of its web page.
    #[prost(uint32, required, tag = "5")]
    pub info_port: u32,
    /// Port of ClientDatanodeProtocol.
    #[prost(uint32, required, tag = "6")]
    pub ipc_port: u32,
}

/// A server of blocks and how full it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DatanodeInfo {
    /// How to reach it.
    #[prost(message, required, tag = "1")]
    pub id: DatanodeId,
    /// Bytes it may use.
    #[prost(uint64, optional, tag = "2")]
    pub capacity: Option<u64>,
    /// Bytes it uses.
    #[prost(uint64, optional, tag = "3")]
    pub used: Option<u64>,
    /// Bytes it may still take.
    #[prost(uint64, optional, tag = "4")]
    pub remaining: Option<u64>,
    /// Bytes it uses for this pool.
    #[prost(uint64, optional, tag = "5")]
    pub pool_used: Option<u64>,
    /// When it was last heard of, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "6")]
    pub last_update: Option<u64>,
    /// Its transfers under way.
    #[prost(uint32, optional, tag = "7")]
    pub transfers: Option<u32>,
    /// Its place in the network; clients fail without one.
    #[prost(string, optional, tag = "8")]
    pub location: Option<String>,
    /// Bytes of the disk that others use.
    #[prost(uint64, optional, tag = "9")]
    pub used_by_others: Option<u64>,
    /// 0: in service.
    #[prost(int32, optional, tag = "10")]
    pub admin_state: Option<i32>,
    /// When it last told all its blocks, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "15")]
    pub last_block_report: Option<u64>,
    /// Its blocks.
    #[prost(uint32, optional, tag = "17")]
    pub blocks: Option<u32>,
}

/// Where a block of a file is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LocatedBlock {
    /// The block.
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
    /// First byte within the file.
    #[prost(uint64, required, tag = "2")]
    pub offset: u64,
    /// Who serves it, the best first.
    #[prost(message, repeated, tag = "3")]
    pub locations: Vec<DatanodeInfo>,
    /// Whether no good copy is known.
    #[prost(bool, required, tag = "4")]
    pub corrupt: bool,
    /// The permission to ask for it.
    #[prost(message, required, tag = "5")]
    pub token: Token,
    /// Whether each location holds it in memory.
    #[prost(bool, repeated, tag = "6")]
    pub cached: Vec<bool>,
    /// `StorageType` of each location, unpacked as proto2 has it.
    #[prost(int32, repeated, packed = "false", tag = "7")]
    pub storage_types: Vec<i32>,
    /// The store within each location; as many as locations, or clients fail.
    #[prost(string, repeated, tag = "8")]
    pub storage_ids: Vec<String>,
}

/// Where a file's blocks are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LocatedBlocks {
    /// Bytes in the blocks.
    #[prost(uint64, required, tag = "1")]
    pub file_length: u64,
    /// The blocks of the range, in order.
    #[prost(message, repeated, tag = "2")]
    pub blocks: Vec<LocatedBlock>,
    /// Whether somebody writes it.
    #[prost(bool, required, tag = "3")]
    pub under_construction: bool,
    /// The file's last block.
    #[prost(message, optional, tag = "4")]
    pub last_block: Option<LocatedBlock>,
    /// Whether its length above is all there is to know.
    #[prost(bool, required, tag = "5")]
    pub last_block_complete: bool,
}

impl LocatedBlocks {
    /// The tag of `blocks`, for whoever encodes many of them one by one.
    pub const BLOCKS: u32 = 2;
}

/// Permission bits, sticky included.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Permission {
    /// 12 bits.
    #[prost(uint32, required, tag = "1")]
    pub bits: u32,
}

/// What a client learns of a file or directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FileStatus {
    /// 1 directory, 2 file, 3 symbolic link.
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    /// Its name in a listing; empty elsewhere.
    #[prost(bytes = "vec", required, tag = "2")]
    pub path: Vec<u8>,
    /// Bytes.
    #[prost(uint64, required, tag = "3")]
    pub length: u64,
    /// Who may do what.
    #[prost(message, required, tag = "4")]
    pub permission: Permission,
    /// Who owns it.
    #[prost(string, required, tag = "5")]
    pub owner: String,
    /// Which group owns it.
    #[prost(string, required, tag = "6")]
    pub group: String,
    /// Milliseconds since 1970.
    #[prost(uint64, required, tag = "7")]
    pub modified: u64,
    /// Milliseconds since 1970.
    #[prost(uint64, required, tag = "8")]
    pub accessed: u64,
    /// Copies; zero for directories.
    #[prost(uint32, optional, tag = "10")]
    pub replication: Option<u32>,
    /// Bytes in a block; zero for directories.
    #[prost(uint64, optional, tag = "11")]
    pub block_size: Option<u64>,
    /// Where it is, in listings that ask for it.
    #[prost(message, optional, tag = "12")]
    pub locations: Option<LocatedBlocks>,
    /// The file's number.
    #[prost(uint64, optional, tag = "13")]
    pub inode: Option<u64>,
    /// Entries of a directory.
    #[prost(int32, optional, tag = "14")]
    pub children: Option<i32>,
    /// Number of its own storage policy; zero: as above.
    #[prost(uint32, optional, tag = "16")]
    pub storage_policy: Option<u32>,
    /// 1: it has access control entries. Always written: without it clients read high permission bits.
    #[prost(uint32, optional, tag = "18")]
    pub flags: Option<u32>,
}

/// `FileStatus::kind` of a directory.
pub const DIRECTORY: i32 = 1;
/// `FileStatus::kind` of a file.
pub const FILE: i32 = 2;
/// `FileStatus::flags`: it has access control entries.
pub const HAS_ACL: u32 = 1;
/// `StorageType` of what is served: a disk.
pub const STORAGE_DISK: i32 = 1;
