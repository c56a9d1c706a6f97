//! Messages about the store as a whole, and those of protocols beside ClientProtocol.

use crate::message::hdfs::DatanodeInfo;
use prost::Message;

/// What a writer does if it knows nothing better.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerDefaults {
    /// Bytes in a block.
    #[prost(uint64, required, tag = "1")]
    pub block_size: u64,
    /// Bytes that one checksum covers.
    #[prost(uint32, required, tag = "2")]
    pub bytes_per_checksum: u32,
    /// Bytes in a packet, headers included.
    #[prost(uint32, required, tag = "3")]
    pub packet_size: u32,
    /// Copies.
    #[prost(uint32, required, tag = "4")]
    pub replication: u32,
    /// Bytes that a file's buffer holds.
    #[prost(uint32, required, tag = "5")]
    pub file_buffer_size: u32,
    /// Whether data travels encrypted.
    #[prost(bool, optional, tag = "6")]
    pub encrypted: Option<bool>,
    /// Minutes that what was removed stays in the trash; zero: as the client says.
    #[prost(uint64, optional, tag = "7")]
    pub trash_minutes: Option<u64>,
    /// `CHECKSUM_CRC32C`. Always written: clients take another one if it is absent.
    #[prost(int32, optional, tag = "8")]
    pub checksum: Option<i32>,
    /// Who keeps keys for encryption. Always written, and empty: otherwise clients ask their own configuration.
    #[prost(string, optional, tag = "9")]
    pub key_provider: Option<String>,
    /// Number of the storage policy.
    #[prost(uint32, optional, tag = "10")]
    pub storage_policy: Option<u32>,
}

/// `ServerDefaults::checksum`: CRC32C.
pub const CHECKSUM_CRC32C: i32 = 2;

/// The answer to `getServerDefaults`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServerDefaultsAnswer {
    /// What a writer does.
    #[prost(message, required, tag = "1")]
    pub defaults: ServerDefaults,
}

/// The answer to `getFsStats`: how full the store is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StoreStats {
    /// Bytes that it may use.
    #[prost(uint64, required, tag = "1")]
    pub capacity: u64,
    /// Bytes that it uses.
    #[prost(uint64, required, tag = "2")]
    pub used: u64,
    /// Bytes that it may still take.
    #[prost(uint64, required, tag = "3")]
    pub remaining: u64,
    /// Blocks with too few copies.
    #[prost(uint64, required, tag = "4")]
    pub under_replicated: u64,
    /// Blocks without a good copy.
    #[prost(uint64, required, tag = "5")]
    pub corrupt: u64,
    /// Blocks without any copy.
    #[prost(uint64, required, tag = "6")]
    pub missing: u64,
}

/// The answer to `getFsReplicatedBlockStats`: blocks that are not as they should be.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReplicatedBlockStats {
    /// Too few copies.
    #[prost(uint64, required, tag = "1")]
    pub low_redundancy: u64,
    /// No good copy.
    #[prost(uint64, required, tag = "2")]
    pub corrupt: u64,
    /// No copy.
    #[prost(uint64, required, tag = "3")]
    pub missing: u64,
    /// No copy, and only one was wanted.
    #[prost(uint64, required, tag = "4")]
    pub missing_single: u64,
    /// Newer than they can be.
    #[prost(uint64, required, tag = "5")]
    pub in_future: u64,
    /// Still to be deleted.
    #[prost(uint64, required, tag = "6")]
    pub pending_deletion: u64,
    /// Too few copies, and the first to be mended.
    #[prost(uint64, optional, tag = "7")]
    pub urgent: Option<u64>,
}

/// The answer to `getFsECBlockGroupStats`: striped blocks that are not as they should be.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StripedBlockStats {
    /// Too few parts.
    #[prost(uint64, required, tag = "1")]
    pub low_redundancy: u64,
    /// No good parts.
    #[prost(uint64, required, tag = "2")]
    pub corrupt: u64,
    /// Too few parts to rebuild them.
    #[prost(uint64, required, tag = "3")]
    pub missing: u64,
    /// Newer than they can be.
    #[prost(uint64, required, tag = "4")]
    pub in_future: u64,
    /// Still to be deleted.
    #[prost(uint64, required, tag = "5")]
    pub pending_deletion: u64,
    /// Too few parts, and the first to be mended.
    #[prost(uint64, optional, tag = "6")]
    pub urgent: Option<u64>,
}

/// Asks for servers of blocks, in `getDatanodeReport` and `getDatanodeStorageReport`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct DatanodeReport {
    /// `REPORT_ALL`, `REPORT_LIVE`; others ask for servers in some trouble.
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
}

/// `DatanodeReport::kind`: all servers.
pub const REPORT_ALL: i32 = 1;
/// `DatanodeReport::kind`: those that work.
pub const REPORT_LIVE: i32 = 2;
/// Those that are not heard of.
pub const REPORT_DEAD: i32 = 3;

/// The answer to `getDatanodeReport` and to `getSlowDatanodeReport`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DatanodeReportAnswer {
    /// The servers.
    #[prost(message, repeated, tag = "1")]
    pub datanodes: Vec<DatanodeInfo>,
}

/// The answer to `getDatanodeStorageReport`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StorageReportAnswer {
    /// The servers and their stores.
    #[prost(message, repeated, tag = "1")]
    pub reports: Vec<DatanodeStorages>,
}

/// A server and its stores.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DatanodeStorages {
    /// The server.
    #[prost(message, required, tag = "1")]
    pub datanode: DatanodeInfo,
    /// Its stores.
    #[prost(message, repeated, tag = "2")]
    pub storages: Vec<StorageReport>,
}

/// A store of a server.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StorageReport {
    /// Its name.
    #[prost(string, required, tag = "1")]
    pub uuid: String,
    /// Whether it takes no writes any more.
    #[prost(bool, optional, tag = "2")]
    pub failed: Option<bool>,
    /// Bytes that it may use.
    #[prost(uint64, optional, tag = "3")]
    pub capacity: Option<u64>,
    /// Bytes that it uses.
    #[prost(uint64, optional, tag = "4")]
    pub used: Option<u64>,
    /// Bytes that it may still take.
    #[prost(uint64, optional, tag = "5")]
    pub remaining: Option<u64>,
    /// Bytes that it uses for the pool.
    #[prost(uint64, optional, tag = "6")]
    pub pool_used: Option<u64>,
    /// What it is.
    #[prost(message, optional, tag = "7")]
    pub storage: Option<Storage>,
}

/// What a store of a server is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Storage {
    /// Its name.
    #[prost(string, required, tag = "1")]
    pub uuid: String,
    /// 0: in use.
    #[prost(int32, optional, tag = "2")]
    pub state: Option<i32>,
    /// `StorageType`.
    #[prost(int32, optional, tag = "3")]
    pub storage_type: Option<i32>,
}

/// Asks for the safe mode, or changes it, in `setSafeMode`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SafeMode {
    /// `SAFE_MODE_LEAVE` and the others.
    #[prost(int32, required, tag = "1")]
    pub action: i32,
}

/// `SafeMode::action`: leave it.
pub const SAFE_MODE_LEAVE: i32 = 1;
/// `SafeMode::action`: enter it.
pub const SAFE_MODE_ENTER: i32 = 2;
/// `SafeMode::action`: say whether it is on.
pub const SAFE_MODE_GET: i32 = 3;
/// `SafeMode::action`: leave it, whatever is wrong.
pub const SAFE_MODE_FORCE_EXIT: i32 = 4;

/// An answer that is yes or no: `setSafeMode`, `saveNamespace`, `restoreFailedStorage`, `upgradeStatus`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct YesOrNo {
    /// Yes.
    #[prost(bool, required, tag = "1")]
    pub yes: bool,
}

/// An answer that is a number: `rollEdits`, `getCurrentEditLogTxid`, `getHAServiceState`, `getBalancerBandwidth`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Number {
    /// The number.
    #[prost(uint64, required, tag = "1")]
    pub value: u64,
}

/// `Number::value` of a server that serves.
pub const STATE_ACTIVE: u64 = 1;

/// An answer that is a list of which there is nothing yet: fields of the list have tag 1.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct EndOfList {
    /// Whether there is more.
    #[prost(bool, required, tag = "2")]
    pub more: bool,
}

/// The answer to `listCorruptFileBlocks`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CorruptFilesAnswer {
    /// The files.
    #[prost(message, required, tag = "1")]
    pub files: CorruptFiles,
}

/// Files with blocks that have no good copy.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CorruptFiles {
    /// Their paths.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
    /// Where the next page begins.
    #[prost(string, required, tag = "2")]
    pub cookie: String,
}

/// The answer to `getECTopologyResultForPolicies`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TopologyAnswer {
    /// The verdict.
    #[prost(message, required, tag = "1")]
    pub verdict: Topology,
}

/// Whether there are enough servers for some codes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Topology {
    /// For people.
    #[prost(string, required, tag = "1")]
    pub text: String,
    /// Whether there are.
    #[prost(bool, required, tag = "2")]
    pub supported: bool,
}

/// The answer to NamenodeProtocol's `versionRequest`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct VersionAnswer {
    /// Which namespace this is.
    #[prost(message, required, tag = "1")]
    pub info: NamespaceInfo,
}

/// Which namespace a server has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NamespaceInfo {
    /// What was built.
    #[prost(string, required, tag = "1")]
    pub build: String,
    /// Always zero.
    #[prost(uint32, required, tag = "2")]
    pub unused: u32,
    /// The pool.
    #[prost(string, required, tag = "3")]
    pub pool: String,
    /// How it is stored.
    #[prost(message, required, tag = "4")]
    pub storage: StorageInfo,
    /// The version of HDFS that clients may expect.
    #[prost(string, required, tag = "5")]
    pub software: String,
}

/// How a namespace is stored.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StorageInfo {
    /// The 32 bits of a negative number.
    #[prost(uint32, required, tag = "1")]
    pub layout: u32,
    /// Its number.
    #[prost(uint32, required, tag = "2")]
    pub namespace: u32,
    /// The cluster.
    #[prost(string, required, tag = "3")]
    pub cluster: String,
    /// When it was made.
    #[prost(uint64, required, tag = "4")]
    pub created: u64,
}

/// A name: whose groups are asked for in `getGroupsForUser`, a thing to refresh in `refresh`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Name {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
}

/// The answer to `getGroupsForUser`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GroupsAnswer {
    /// The groups, the primary one first.
    #[prost(string, repeated, tag = "1")]
    pub groups: Vec<String>,
}

/// The answer to HAServiceProtocol's `getServiceStatus`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ServiceStatus {
    /// `STATE_ACTIVE`.
    #[prost(uint64, required, tag = "1")]
    pub state: u64,
    /// Whether it could become active.
    #[prost(bool, optional, tag = "2")]
    pub ready: Option<bool>,
}

/// The answer to ClientDatanodeProtocol's `getDatanodeInfo`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DatanodeInfoAnswer {
    /// The server.
    #[prost(message, required, tag = "1")]
    pub info: DatanodeLocalInfo,
}

/// What a server of blocks says of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DatanodeLocalInfo {
    /// Its version.
    #[prost(string, required, tag = "1")]
    pub software: String,
    /// The version of its configuration.
    #[prost(string, required, tag = "2")]
    pub configuration: String,
    /// Seconds since it began to serve.
    #[prost(uint64, required, tag = "3")]
    pub uptime: u64,
}
