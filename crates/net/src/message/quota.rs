//! Quotas of directories: how many names and bytes may be below them.

use prost::Message;

/// Limits what may be below a directory. What is there is counted in steps: ask `GetQuota` until it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetQuota {
    /// Absolute path of the directory.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Most files and directories, its own name included; `NO_QUOTA`: as many as come; absent: as before.
    #[prost(uint64, optional, tag = "2")]
    pub names: Option<u64>,
    /// Most bytes, as often as each file counts; `NO_QUOTA`: as many as come; absent: as before.
    #[prost(uint64, optional, tag = "3")]
    pub bytes: Option<u64>,
}

/// In `SetQuota`: no limit.
pub const NO_QUOTA: u64 = u64::MAX;

/// Asks for the quota of a directory itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetQuota {
    /// Absolute path of the directory.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// The quota of a directory, and what counts against it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Quota {
    /// Most files and directories, its own name included; absent: as many as come.
    #[prost(uint64, optional, tag = "1")]
    pub names_max: Option<u64>,
    /// Most bytes, as often as each file counts; absent: as many as come.
    #[prost(uint64, optional, tag = "2")]
    pub bytes_max: Option<u64>,
    /// How many names there are.
    #[prost(uint64, tag = "3")]
    pub names: u64,
    /// How many bytes.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// They are being counted still: there may be more.
    #[prost(bool, tag = "5")]
    pub counting: bool,
}

/// A directory's quota, if it has one.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct QuotaAnswer {
    /// The quota.
    #[prost(message, optional, tag = "1")]
    pub quota: Option<Quota>,
}

/// Reserves quota for a file that is open for writing, up to this file length, until it is closed. `OverQuota` if there is not as much.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Reserve {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The writer's generation.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// Bytes of the whole file.
    #[prost(uint64, tag = "3")]
    pub length: u64,
}
