//! Records of remembered answers.

use crate::format::{ColumnRecord, InodeRecord, QuotaRecord};
use prost::Message;

/// Under `Key::Call`.
#[derive(Clone, PartialEq, Message)]
pub struct CallRecord {
    /// The client's number of the call.
    #[prost(uint64, tag = "1")]
    pub call: u64,
    /// Counts the session's remembered calls.
    #[prost(uint64, tag = "2")]
    pub order: u64,
    /// What was answered.
    #[prost(message, optional, tag = "3")]
    pub reply: Option<ReplyRecord>,
    /// No call of the session below this one was to be asked again when this was remembered: what it took the slot of was one of those. Older programs say
    /// nothing of it.
    #[prost(uint64, tag = "4")]
    pub floor: u64,
}

/// Under `Key::Answer`.
#[derive(Clone, PartialEq, Message)]
pub struct AnswerRecord {
    /// The upper half of the name of a gateway's client.
    #[prost(fixed64, tag = "1")]
    pub client_high: u64,
    /// The lower half.
    #[prost(fixed64, tag = "2")]
    pub client_low: u64,
    /// That client's number of the call.
    #[prost(uint32, tag = "3")]
    pub call: u32,
    /// Counts the remembered answers.
    #[prost(uint64, tag = "4")]
    pub order: u64,
    /// What was answered.
    #[prost(message, optional, tag = "5")]
    pub reply: Option<ReplyRecord>,
}

/// Under `Key::Floor`. A program that does not know it forgets answers without raising it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct FloorRecord {
    /// The last of that client's calls whose answer was forgotten.
    #[prost(uint32, tag = "1")]
    pub call: u32,
    /// Counts how often a client's was raised.
    #[prost(uint64, tag = "2")]
    pub order: u64,
}

/// A remembered reply: at most one part is there, none means done.
#[derive(Clone, PartialEq, Message)]
pub struct ReplyRecord {
    /// A lease.
    #[prost(message, optional, tag = "1")]
    pub handle: Option<HandleRecord>,
    /// A new group.
    #[prost(message, optional, tag = "2")]
    pub group: Option<PlacedRecord>,
    /// The attributes of this inode, as they are when the call is repeated.
    #[prost(message, optional, tag = "3")]
    pub attributes: Option<AttributesRecord>,
    /// One for each file of a compound request.
    #[prost(message, optional, tag = "4")]
    pub files: Option<FilesRecord>,
    /// A bag that was made.
    #[prost(uint64, optional, tag = "5")]
    pub bag: Option<u64>,
    /// A file that was taken from its writer.
    #[prost(message, optional, tag = "6")]
    pub fenced: Option<FencedRecord>,
    /// A quota as it was set.
    #[prost(message, optional, tag = "7")]
    pub limits: Option<LimitsRecord>,
}

/// A remembered fence.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct FencedRecord {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Under which it is to be ended.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
}

/// A remembered quota.
#[derive(Clone, PartialEq, Message)]
pub struct LimitsRecord {
    /// As it was then; absent: the directory had none any more.
    #[prost(message, optional, tag = "1")]
    pub quota: Option<QuotaRecord>,
}

/// A remembered write lease.
#[derive(Clone, PartialEq, Message)]
pub struct HandleRecord {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Of the lease.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// Bytes that the file has.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// The group to append to.
    #[prost(message, optional, tag = "4")]
    pub group: Option<PlacedRecord>,
    /// Something above limits bytes.
    #[prost(bool, tag = "20")]
    pub limited: bool,
    /// `Compression::code`.
    #[prost(uint32, tag = "21")]
    pub compression: u32,
}

/// A remembered group.
#[derive(Clone, PartialEq, Message)]
pub struct PlacedRecord {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub group: u64,
    /// Where it is.
    #[prost(message, repeated, tag = "2")]
    pub columns: Vec<ColumnRecord>,
    /// Bytes of a cell; zero in groups of one column.
    #[prost(uint64, tag = "3")]
    pub cell: u64,
    /// Bytes after which it ends; zero: nobody said.
    #[prost(uint64, tag = "4")]
    pub room: u64,
}

/// Remembered attributes: those that matter for the answer to a close.
#[derive(Clone, PartialEq, Message)]
pub struct AttributesRecord {
    /// Which.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The file as it was then.
    #[prost(message, optional, tag = "2")]
    pub record: Option<InodeRecord>,
}

/// Remembered answers of a compound request.
#[derive(Clone, PartialEq, Message)]
pub struct FilesRecord {
    /// One for each file, in order.
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<FileResultRecord>,
}

/// A remembered answer for one file.
#[derive(Clone, PartialEq, Message)]
pub struct FileResultRecord {
    /// The file, if it was made.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// `ErrorKind::code` if it was not.
    #[prost(uint32, tag = "2")]
    pub error: u32,
    /// What was wrong.
    #[prost(string, tag = "3")]
    pub text: String,
}
