//! What gateways rely on and tell each other through the store: what was looked up before a change, which holders of files were heard of,
//! where the block begins that is being written; and how much of it is synced.

use prost::Message;

/// What was looked up before a change, which is to be made only if it is so still.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Looked {
    /// The version of the directories (`LookupAnswer::version`); 0: the change relies on none.
    #[prost(fixed64, tag = "1")]
    pub directories: u64,
    /// What each path of the change stood for, in the order of the change's fields; empty: the change relies on none.
    #[prost(message, repeated, tag = "2")]
    pub seen: Vec<Seen>,
    /// Directories by their numbers that were found empty, and have to be so still; at most `base::limit::EMPTY_DIRECTORIES_MAX`.
    #[prost(uint64, repeated, tag = "3")]
    pub empty: Vec<u64>,
    /// The number of the directory below which everything may go (`JudgeBelowAnswer::top`); 0: nobody looked.
    #[prost(uint64, tag = "4")]
    pub below: u64,
}

/// What a path stood for.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Seen {
    /// The number of the file or directory; 0: there was nothing.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// `Attributes::version`; absent: its rights, its note and its extended attributes do not matter.
    #[prost(uint64, optional, tag = "2")]
    pub version: Option<u64>,
}

/// Says which holders of files in a gateway's protocol live, and asks of others when they were last heard of through any gateway.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Holders {
    /// Those that were heard of; together with those asked for `base::limit::HOLDERS_TOLD_MAX` at the most.
    #[prost(message, repeated, tag = "1")]
    pub seen: Vec<SeenHolder>,
    /// Those asked for.
    #[prost(string, repeated, tag = "2")]
    pub asked: Vec<String>,
}

/// A holder that was heard of.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SeenHolder {
    /// Its name; at most `base::limit::HOLDER_MAX` bytes.
    #[prost(string, tag = "1")]
    pub name: String,
    /// How long ago, in milliseconds.
    #[prost(uint64, tag = "2")]
    pub ago_ms: u64,
}

/// When holders were last heard of.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct HoldersAnswer {
    /// For each that was asked for how long it has been silent at the least, in milliseconds. Of one that is not known: since when it
    /// would be.
    #[prost(uint64, repeated, tag = "1")]
    pub silent_ms: Vec<u64>,
}

/// Says where the block of a gateway's protocol begins that is written from now on, so that any gateway finds it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct BeginBlock {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The writer's generation.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// Where in the file; not zero.
    #[prost(uint64, tag = "3")]
    pub base: u64,
    /// Its number among the blocks of the file.
    #[prost(uint32, tag = "4")]
    pub number: u32,
}

/// Says how much of the group that is being written is synced. Never less than before.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct SyncLength {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The writer's generation.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// The group that is being written.
    #[prost(uint64, tag = "3")]
    pub group: u64,
    /// Bytes in it.
    #[prost(uint64, tag = "4")]
    pub length: u64,
}
