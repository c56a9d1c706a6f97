//! Messages of the calls about names, attributes and permissions (ClientNamenodeProtocol.proto, acl.proto, xattr.proto).

use super::hdfs::{FileStatus, Permission};
use prost::Message;

/// The question of many calls: only a path. What such a call asks besides is not needed.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PathRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
}

/// The answer of calls that only say whether.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct BoolAnswer {
    /// Whether.
    #[prost(bool, required, tag = "1")]
    pub result: bool,
}

/// The answer of calls that say nothing.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct EmptyAnswer {}

/// The answer of getFileInfo and its like; without a status there is nothing of that name.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct StatusAnswer {
    /// What it is.
    #[prost(message, optional, tag = "1")]
    pub status: Option<FileStatus>,
}

/// GetListingRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListingRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Names after this one.
    #[prost(bytes = "vec", required, tag = "2")]
    pub after: Vec<u8>,
    /// Whether blocks are wanted.
    #[prost(bool, required, tag = "3")]
    pub located: bool,
}

/// GetListingResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListingAnswer {
    /// Absent: there is nothing of that name.
    #[prost(message, optional, tag = "1")]
    pub listing: Option<Listing>,
}

/// DirectoryListingProto: a page.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Listing {
    /// The entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<FileStatus>,
    /// Not zero: there are more.
    #[prost(uint32, required, tag = "2")]
    pub remaining: u32,
}

/// GetBatchedListingRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BatchedListingRequest {
    /// Directories and files.
    #[prost(string, repeated, tag = "1")]
    pub paths: Vec<String>,
    /// Where the last answer ended: a `BatchedKey`.
    #[prost(bytes = "vec", required, tag = "2")]
    pub after: Vec<u8>,
    /// Whether blocks are wanted.
    #[prost(bool, required, tag = "3")]
    pub located: bool,
}

/// GetBatchedListingResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BatchedListingAnswer {
    /// Pages of one directory after another.
    #[prost(message, repeated, tag = "1")]
    pub listings: Vec<BatchedListing>,
    /// Whether there is more.
    #[prost(bool, required, tag = "2")]
    pub more: bool,
    /// Where to go on: a `BatchedKey`.
    #[prost(bytes = "vec", required, tag = "3")]
    pub after: Vec<u8>,
}

/// BatchedDirectoryListingProto: a page of one of several directories.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BatchedListing {
    /// The entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<FileStatus>,
    /// Of which of the paths.
    #[prost(uint32, required, tag = "2")]
    pub path: u32,
    /// Why it could not be listed.
    #[prost(message, optional, tag = "3")]
    pub failure: Option<RemoteFailure>,
}

/// RemoteExceptionProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RemoteFailure {
    /// The Java class.
    #[prost(string, required, tag = "1")]
    pub class: String,
    /// What happened.
    #[prost(string, optional, tag = "2")]
    pub text: Option<String>,
}

/// BatchedListingKeyProto: only this gateway reads it again.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct BatchedKey {
    /// Of the paths: the same must be asked for again.
    #[prost(bytes = "vec", required, tag = "1")]
    pub checksum: Vec<u8>,
    /// Which of them.
    #[prost(uint32, required, tag = "2")]
    pub path: u32,
    /// The last name in it; empty: it is done.
    #[prost(bytes = "vec", required, tag = "3")]
    pub after: Vec<u8>,
}

/// MkdirsRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct MkdirsRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Permission bits without what the client's umask takes.
    #[prost(message, required, tag = "2")]
    pub masked: Permission,
    /// Whether missing directories above are made.
    #[prost(bool, required, tag = "3")]
    pub parents: bool,
    /// Permission bits as the program said them.
    #[prost(message, optional, tag = "4")]
    pub open: Option<Permission>,
}

/// RenameRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RenameRequest {
    /// The old path.
    #[prost(string, required, tag = "1")]
    pub from: String,
    /// The new path.
    #[prost(string, required, tag = "2")]
    pub to: String,
}

/// Rename2RequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Rename2Request {
    /// The old path.
    #[prost(string, required, tag = "1")]
    pub from: String,
    /// The new path.
    #[prost(string, required, tag = "2")]
    pub to: String,
    /// Whether what has the new name may be replaced.
    #[prost(bool, required, tag = "3")]
    pub overwrite: bool,
    /// Whether it goes to the trash: then it must be the caller's to delete.
    #[prost(bool, optional, tag = "4")]
    pub to_trash: Option<bool>,
}

/// DeleteRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeleteRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Whether a directory may have something in it.
    #[prost(bool, required, tag = "2")]
    pub recursive: bool,
}

/// ConcatRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ConcatRequest {
    /// The file that grows.
    #[prost(string, required, tag = "1")]
    pub target: String,
    /// The others.
    #[prost(string, repeated, tag = "2")]
    pub sources: Vec<String>,
}

/// TruncateRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct TruncateRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Bytes to keep.
    #[prost(uint64, required, tag = "2")]
    pub length: u64,
    /// The client's name.
    #[prost(string, required, tag = "3")]
    pub client: String,
}

/// SetReplicationRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetReplicationRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Copies.
    #[prost(uint32, required, tag = "2")]
    pub replication: u32,
}

/// SetPermissionRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetPermissionRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// The bits.
    #[prost(message, required, tag = "2")]
    pub permission: Permission,
}

/// SetOwnerRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetOwnerRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Who owns it; absent leaves it.
    #[prost(string, optional, tag = "2")]
    pub owner: Option<String>,
    /// Which group does; absent leaves it.
    #[prost(string, optional, tag = "3")]
    pub group: Option<String>,
}

/// SetTimesRequestProto. Milliseconds since 1970; as a signed number below zero: leave it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetTimesRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// When it was last changed.
    #[prost(uint64, required, tag = "2")]
    pub modified: u64,
    /// When it was last read.
    #[prost(uint64, required, tag = "3")]
    pub accessed: u64,
}

/// CheckAccessRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CheckAccessRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Rights as bits rwx.
    #[prost(uint32, required, tag = "2")]
    pub access: u32,
}

/// GetPreferredBlockSizeResponseProto.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct BlockSizeAnswer {
    /// Bytes in a block.
    #[prost(uint64, required, tag = "1")]
    pub bytes: u64,
}

/// GetEnclosingRootResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct EnclosingRootAnswer {
    /// The path of the root.
    #[prost(string, optional, tag = "1")]
    pub path: Option<String>,
}

/// AclEntryProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AclEntryProto {
    /// 0 user, 1 group, 2 mask, 3 other.
    #[prost(uint32, required, tag = "1")]
    pub kind: u32,
    /// 0 access, 1 default.
    #[prost(uint32, required, tag = "2")]
    pub scope: u32,
    /// Bits rwx.
    #[prost(uint32, required, tag = "3")]
    pub permissions: u32,
    /// Whom it is about.
    #[prost(string, optional, tag = "4")]
    pub name: Option<String>,
}

/// The question of calls that change an access control list: ModifyAclEntries, RemoveAclEntries, SetAcl.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AclRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// The entries.
    #[prost(message, repeated, tag = "2")]
    pub entries: Vec<AclEntryProto>,
}

/// GetAclStatusResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AclAnswer {
    /// The list.
    #[prost(message, required, tag = "1")]
    pub status: AclStatus,
}

/// AclStatusProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AclStatus {
    /// Who owns it.
    #[prost(string, required, tag = "1")]
    pub owner: String,
    /// Which group does.
    #[prost(string, required, tag = "2")]
    pub group: String,
    /// Whether the sticky bit is set.
    #[prost(bool, required, tag = "3")]
    pub sticky: bool,
    /// The entries beyond the permission bits.
    #[prost(message, repeated, tag = "4")]
    pub entries: Vec<AclEntryProto>,
    /// The permission bits.
    #[prost(message, optional, tag = "5")]
    pub permission: Option<Permission>,
}

/// XAttrProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct XattrProto {
    /// 0 user, 1 trusted, 2 security, 3 system, 4 raw.
    #[prost(uint32, required, tag = "1")]
    pub namespace: u32,
    /// Its name without the namespace.
    #[prost(string, required, tag = "2")]
    pub name: String,
    /// Any bytes.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
}

/// SetXAttrRequestProto, and without the flag RemoveXAttrRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct XattrRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// The attribute.
    #[prost(message, optional, tag = "2")]
    pub xattr: Option<XattrProto>,
    /// 1: it may be new, 2: it may be replaced.
    #[prost(uint32, optional, tag = "3")]
    pub flag: Option<u32>,
}

/// GetXAttrsRequestProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct XattrsRequest {
    /// The path.
    #[prost(string, required, tag = "1")]
    pub path: String,
    /// Only these; none: all.
    #[prost(message, repeated, tag = "2")]
    pub xattrs: Vec<XattrProto>,
}

/// GetXAttrsResponseProto and ListXAttrsResponseProto.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct XattrsAnswer {
    /// The attributes.
    #[prost(message, repeated, tag = "1")]
    pub xattrs: Vec<XattrProto>,
}
