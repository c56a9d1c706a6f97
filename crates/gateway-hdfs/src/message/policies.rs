//! Messages of the calls about sums, quotas, storage policies and erasure coding labels (hdfs.proto, erasurecoding.proto).

use prost::Message;

/// GetContentSummaryResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SummaryAnswer {
    /// The sums.
    #[prost(message, required, tag = "1")]
    pub summary: Summary,
}

/// ContentSummaryProto. A quota of all ones: none.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Summary {
    /// Bytes in files.
    #[prost(uint64, required, tag = "1")]
    pub length: u64,
    /// Files.
    #[prost(uint64, required, tag = "2")]
    pub files: u64,
    /// Directories, itself included.
    #[prost(uint64, required, tag = "3")]
    pub directories: u64,
    /// Most files and directories.
    #[prost(uint64, required, tag = "4")]
    pub quota: u64,
    /// Bytes with all copies.
    #[prost(uint64, required, tag = "5")]
    pub consumed: u64,
    /// Most bytes with all copies.
    #[prost(uint64, required, tag = "6")]
    pub space_quota: u64,
    /// Bytes in snapshots.
    #[prost(uint64, optional, tag = "8")]
    pub snapshot_length: Option<u64>,
    /// Files in snapshots.
    #[prost(uint64, optional, tag = "9")]
    pub snapshot_files: Option<u64>,
    /// Directories in snapshots.
    #[prost(uint64, optional, tag = "10")]
    pub snapshot_directories: Option<u64>,
    /// Bytes of snapshots with all copies.
    #[prost(uint64, optional, tag = "11")]
    pub snapshot_consumed: Option<u64>,
    /// The erasure coding policy; `Replicated` for a file, empty for a directory without.
    #[prost(string, optional, tag = "12")]
    pub coding: Option<String>,
}

/// GetQuotaUsageResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QuotaAnswer {
    /// The sums.
    #[prost(message, required, tag = "1")]
    pub usage: QuotaUsage,
}

/// QuotaUsageProto. A quota of all ones: none.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QuotaUsage {
    /// Files and directories.
    #[prost(uint64, required, tag = "1")]
    pub names: u64,
    /// Most of them.
    #[prost(uint64, required, tag = "2")]
    pub quota: u64,
    /// Bytes with all copies.
    #[prost(uint64, required, tag = "3")]
    pub consumed: u64,
    /// Most of them.
    #[prost(uint64, required, tag = "4")]
    pub space_quota: u64,
}

/// SetQuotaRequestProto. As signed numbers: -1 clears, the largest leaves it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetQuotaRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Most files and directories.
    #[prost(uint64, required, tag = "2")]
    pub names: u64,
    /// Most bytes with all copies.
    #[prost(uint64, required, tag = "3")]
    pub bytes: u64,
    /// Only bytes on this kind of storage.
    #[prost(int32, optional, tag = "4")]
    pub storage: Option<i32>,
}

/// SetStoragePolicyRequestProto; SetErasureCodingPolicyRequestProto has the same form.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetPolicyRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// The policy's name.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
}

/// StorageTypesProto: 1 disk, 2 flash, 3 archive, 4 memory disk, 5 provided, 6 NVDIMM.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StorageTypes {
    /// The first copy's, the second's, and so on; the last counts for all others.
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub types: Vec<i32>,
}

/// BlockStoragePolicyProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StoragePolicy {
    /// Its number.
    #[prost(uint32, required, tag = "1")]
    pub id: u32,
    /// Its name.
    #[prost(string, required, tag = "2")]
    pub name: String,
    /// Where copies go.
    #[prost(message, required, tag = "3")]
    pub creation: StorageTypes,
    /// Where new ones go if there is no room.
    #[prost(message, optional, tag = "4")]
    pub creation_fallback: Option<StorageTypes>,
    /// Where further copies go if there is no room.
    #[prost(message, optional, tag = "5")]
    pub replication_fallback: Option<StorageTypes>,
}

/// GetStoragePolicyResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StoragePolicyAnswer {
    /// The policy in force.
    #[prost(message, required, tag = "1")]
    pub policy: StoragePolicy,
}

/// GetStoragePoliciesResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StoragePoliciesAnswer {
    /// All there are.
    #[prost(message, repeated, tag = "1")]
    pub policies: Vec<StoragePolicy>,
}

/// ErasureCodingPolicyProto of a policy that every client knows by its number.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CodingPolicy {
    /// Its number.
    #[prost(uint32, required, tag = "4")]
    pub id: u32,
    /// 1 disabled, 2 enabled.
    #[prost(int32, optional, tag = "5")]
    pub state: Option<i32>,
}

/// GetErasureCodingPolicyResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CodingPolicyAnswer {
    /// The policy in force; absent: replication.
    #[prost(message, optional, tag = "1")]
    pub policy: Option<CodingPolicy>,
}

/// GetErasureCodingPoliciesResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CodingPoliciesAnswer {
    /// All there are.
    #[prost(message, repeated, tag = "1")]
    pub policies: Vec<CodingPolicy>,
}

/// CodecProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Codec {
    /// Its name.
    #[prost(string, required, tag = "1")]
    pub codec: String,
    /// Who computes it.
    #[prost(string, required, tag = "2")]
    pub coders: String,
}

/// GetErasureCodingCodecsResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CodecsAnswer {
    /// All there are.
    #[prost(message, repeated, tag = "1")]
    pub codecs: Vec<Codec>,
}
