//! The attributes of a file or directory, and what to change of them: one type each for the metadata store, the wire, the client and the
//! gateways, so that a new attribute is declared once. How they are stored is the metadata store's (`meta/src/attributes/format.rs`).

use crate::acl::{Acl, AclEntry};
use prost::Message;

/// What is known about a file or directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Attributes {
    /// Its number; survives renames.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Whether it is a directory.
    #[prost(bool, tag = "2")]
    pub directory: bool,
    /// Bytes recorded in the metadata store; an open file may have more.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// When its content last changed, in milliseconds since 1970.
    #[prost(uint64, tag = "4")]
    pub modified_ms: u64,
    /// Permission bits as POSIX has them.
    #[prost(uint32, tag = "5")]
    pub mode: u32,
    /// Whether somebody holds it open for writing.
    #[prost(bool, tag = "6")]
    pub open: bool,
    /// Rises with every new writer.
    #[prost(uint64, tag = "7")]
    pub generation: u64,
    /// Who owns it; empty: nobody said.
    #[prost(string, tag = "8")]
    pub owner: String,
    /// Which group of people owns it; empty: nobody said.
    #[prost(string, tag = "9")]
    pub group: String,
    /// When it was last read, as far as somebody said so, in milliseconds since 1970.
    #[prost(uint64, tag = "10")]
    pub accessed_ms: u64,
    /// When it was made, in milliseconds since 1970.
    #[prost(uint64, tag = "11")]
    pub created_ms: u64,
    /// What a gateway keeps with it, opaque to everybody else; together with `acl` at most `limit::NOTE_MAX` bytes.
    #[prost(bytes = "vec", tag = "12")]
    pub note: Vec<u8>,
    /// Its access control list, as it is stored.
    #[prost(message, repeated, tag = "13")]
    pub acl: Vec<AclEntry>,
    /// Who holds it in a gateway's protocol while it is written, or may go on with it after it was closed without him; empty: nobody in
    /// particular.
    #[prost(string, tag = "21")]
    pub holder: String,
    /// Rises when its mode, its owner, its group, its note or its extended attributes change.
    #[prost(uint64, tag = "22")]
    pub version: u64,
    /// Where the block begins that a gateway's client writes, as `BeginBlock` said last; 0: it said none.
    #[prost(uint64, tag = "23")]
    pub block_base: u64,
    /// That block's number among those of the file.
    #[prost(uint32, tag = "24")]
    pub block_number: u32,
    /// Bytes that an open file had when its holder opened it, which may have gone on with it through other gateways since.
    #[prost(uint64, tag = "25")]
    pub began_length: u64,
    /// And the generation that it got then; 0: nobody knows.
    #[prost(uint64, tag = "26")]
    pub began_generation: u64,
    /// Names in a directory; absent: of a file, or nobody counted them.
    #[prost(uint64, optional, tag = "27")]
    pub children: Option<u64>,
}

/// What to change of a file's or directory's attributes; what is absent stays as it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NewAttributes {
    /// Permission bits as POSIX has them.
    #[prost(uint32, optional, tag = "2")]
    pub mode: Option<u32>,
    /// Who owns it.
    #[prost(string, optional, tag = "3")]
    pub owner: Option<String>,
    /// Which group of people owns it.
    #[prost(string, optional, tag = "4")]
    pub group: Option<String>,
    /// When it was last changed, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "5")]
    pub modified_ms: Option<u64>,
    /// When it was last read, in milliseconds since 1970.
    #[prost(uint64, optional, tag = "6")]
    pub accessed_ms: Option<u64>,
    /// What a gateway keeps with it, at most `limit::NOTE_MAX` bytes; empty removes it.
    #[prost(bytes = "vec", optional, tag = "7")]
    pub note: Option<Vec<u8>>,
    /// How often its bytes count against quotas.
    #[prost(uint32, optional, tag = "20")]
    pub copies: Option<u32>,
    /// Its access control list, as it is stored.
    #[prost(message, optional, tag = "33")]
    pub acl: Option<Acl>,
}
