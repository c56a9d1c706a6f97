//! Messages of the calls about open files and their blocks (ClientNamenodeProtocol.proto).

use super::hdfs::{DatanodeInfo, ExtendedBlock, FileStatus, LocatedBlock, Permission};
use prost::Message;

/// `Create::flags`: make the file if it is not there.
pub const CREATE: u32 = 1;
/// `Create::flags`: replace a file of that name.
pub const OVERWRITE: u32 = 2;
/// `Create::flags`: the file may be lost with the memory.
pub const LAZY_PERSIST: u32 = 16;
/// `Append::flags`: begin a new block although the last one is not full.
pub const NEW_BLOCK: u32 = 32;

/// Makes a file and opens it for writing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Create {
    /// Its path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Permission bits, those of the client's mask taken away.
    #[prost(message, required, tag = "2")]
    pub masked: Permission,
    /// Whom the lease belongs to.
    #[prost(string, required, tag = "3")]
    pub holder: String,
    /// `CREATE`, `OVERWRITE` and others.
    #[prost(uint32, required, tag = "4")]
    pub flags: u32,
    /// Make missing directories.
    #[prost(bool, required, tag = "5")]
    pub parents: bool,
    /// Copies that the user wants.
    #[prost(uint32, required, tag = "6")]
    pub replication: u32,
    /// Bytes in a block.
    #[prost(uint64, required, tag = "7")]
    pub block_size: u64,
    /// Permission bits before the client's mask: a directory's default entries take its place.
    #[prost(message, optional, tag = "9")]
    pub unmasked: Option<Permission>,
    /// Name of an erasure coding policy: a label here.
    #[prost(string, optional, tag = "10")]
    pub erasure_coding: Option<String>,
    /// Name of a storage policy.
    #[prost(string, optional, tag = "11")]
    pub storage_policy: Option<String>,
}

/// The file that was made.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CreateAnswer {
    /// Its status; clients need its number.
    #[prost(message, optional, tag = "1")]
    pub status: Option<FileStatus>,
}

/// Opens a file to write at its end.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Append {
    /// Its path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Whom the lease belongs to.
    #[prost(string, required, tag = "2")]
    pub holder: String,
    /// `NEW_BLOCK` and others.
    #[prost(uint32, optional, tag = "3")]
    pub flags: Option<u32>,
}

/// The file that was opened.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AppendAnswer {
    /// Its last block, if it is partly full.
    #[prost(message, optional, tag = "1")]
    pub block: Option<LocatedBlock>,
    /// Its status.
    #[prost(message, optional, tag = "2")]
    pub status: Option<FileStatus>,
}

/// Asks for the next block of a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AddBlock {
    /// The path that it was opened by.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Who writes.
    #[prost(string, required, tag = "2")]
    pub holder: String,
    /// The block before, with its length.
    #[prost(message, optional, tag = "3")]
    pub previous: Option<ExtendedBlock>,
    /// The file's number; zero: the path says which.
    #[prost(uint64, optional, tag = "5")]
    pub inode: Option<u64>,
}

/// A block to write.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BlockAnswer {
    /// The block.
    #[prost(message, required, tag = "1")]
    pub block: LocatedBlock,
}

/// Gives a block back that nothing was written to.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AbandonBlock {
    /// The block.
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
    /// The path that the file was opened by.
    #[prost(string, required, tag = "2")]
    pub path: String,
    /// Who writes.
    #[prost(string, required, tag = "3")]
    pub holder: String,
    /// The file's number; zero: the path says which.
    #[prost(uint64, optional, tag = "4")]
    pub inode: Option<u64>,
}

/// Asks for another server to write a block to.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetAdditionalDatanode {
    /// The path that the file was opened by.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// The block.
    #[prost(message, required, tag = "2")]
    pub block: ExtendedBlock,
    /// Those that it is being written to.
    #[prost(message, repeated, tag = "3")]
    pub existing: Vec<DatanodeInfo>,
    /// Who writes.
    #[prost(string, required, tag = "6")]
    pub holder: String,
    /// The stores within those that it is being written to.
    #[prost(string, repeated, tag = "7")]
    pub existing_storages: Vec<String>,
    /// The file's number; zero: the path says which.
    #[prost(uint64, optional, tag = "8")]
    pub inode: Option<u64>,
}

/// Ends writing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Complete {
    /// The path that the file was opened by.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Who writes.
    #[prost(string, required, tag = "2")]
    pub holder: String,
    /// The last block, with its length.
    #[prost(message, optional, tag = "3")]
    pub last: Option<ExtendedBlock>,
    /// The file's number; zero: the path says which.
    #[prost(uint64, optional, tag = "4")]
    pub inode: Option<u64>,
}

/// Yes or no.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Truth {
    /// Which.
    #[prost(bool, required, tag = "1")]
    pub result: bool,
}

/// Nothing to say.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Nothing {}

/// Says that blocks are damaged.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReportBadBlocks {
    /// Which.
    #[prost(message, repeated, tag = "1")]
    pub blocks: Vec<ReportedBlock>,
}

/// A block that is reported; where it is, is not read.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReportedBlock {
    /// The block.
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
}

/// Says that a holder of leases lives.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RenewLease {
    /// Who.
    #[prost(string, required, tag = "1")]
    pub holder: String,
}

/// Takes a file from its writer and closes it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RecoverLease {
    /// Its path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Who asks.
    #[prost(string, required, tag = "2")]
    pub holder: String,
}

/// Asks whether nobody writes a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct IsFileClosed {
    /// Its path.
    #[prost(string, required, tag = "1")]
    pub path: String,
}

/// Records how long a file is that is being written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Fsync {
    /// The path that it was opened by.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Who writes.
    #[prost(string, required, tag = "2")]
    pub holder: String,
    /// The file's number; zero: the path says which.
    #[prost(uint64, optional, tag = "4")]
    pub inode: Option<u64>,
}

/// Asks for a new generation stamp, to go on with a block after its pipeline failed, or to append to it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UpdateBlockForPipeline {
    /// The block.
    #[prost(message, required, tag = "1")]
    pub block: ExtendedBlock,
    /// Who writes.
    #[prost(string, required, tag = "2")]
    pub holder: String,
}

/// Says that a block goes on under a new generation stamp.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct UpdatePipeline {
    /// Who writes.
    #[prost(string, required, tag = "1")]
    pub holder: String,
    /// The block as it was.
    #[prost(message, required, tag = "2")]
    pub old: ExtendedBlock,
    /// The block as it is.
    #[prost(message, required, tag = "3")]
    pub new: ExtendedBlock,
}

/// Asks which files are being written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListOpenFiles {
    /// Only those with a higher number.
    #[prost(int64, required, tag = "1")]
    pub after: i64,
    /// Which kinds are wanted.
    #[prost(int32, repeated, packed = "false", tag = "2")]
    pub types: Vec<i32>,
    /// Only those below this path.
    #[prost(string, optional, tag = "3")]
    pub path: Option<String>,
}

/// A file that is being written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListedOpenFile {
    /// Its number.
    #[prost(int64, required, tag = "1")]
    pub inode: i64,
    /// Its path.
    #[prost(string, required, tag = "2")]
    pub path: String,
    /// Who writes it.
    #[prost(string, required, tag = "3")]
    pub holder: String,
    /// From where.
    #[prost(string, required, tag = "4")]
    pub machine: String,
}

/// Files that are being written.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListOpenFilesAnswer {
    /// In the order of their numbers.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<ListedOpenFile>,
    /// Whether there are more.
    #[prost(bool, required, tag = "2")]
    pub more: bool,
    /// Which kinds these are.
    #[prost(int32, repeated, packed = "false", tag = "3")]
    pub types: Vec<i32>,
}
