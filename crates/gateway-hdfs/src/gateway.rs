//! The gateway: what all connections share.

use crate::cluster::state::Cluster;
use crate::files::table::Files;
use crate::names::directory_cache::DirectoryCache;
use crate::names::walks::Walks;
use crate::rpc::shared::Rpc;
use crate::transfer::source::Reads;
use base::env::{Clock, Random};
use base::planted::Planted;
use base::request::Noting;
use base::unit::Time;
use client::Client;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Groups of a user on this machine, the primary one first; empty if the user is not known.
pub type GroupsOf = Arc<dyn Fn(&str) -> Vec<String> + Send + Sync>;

/// What a gateway needs to know.
pub struct Settings {
    /// The store.
    pub client: Client,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Who may do everything: whoever runs the server.
    pub superuser: String,
    /// Groups of a user on this machine, the primary one first; empty if the user is not known.
    pub groups_of: GroupsOf,
    /// Told, in a sentence for people, why a connection was refused or cut.
    pub on_trouble: Arc<dyn Fn(String) + Send + Sync>,
    /// Told of a request that was slow or failed for a reason that is not its caller's.
    pub on_request: Arc<Noting>,
    /// Least bytes in a block of a new file.
    pub min_block_size: u64,
    /// Most connections at once, `base::limit::connections`.
    pub connections: usize,
    /// A fault that a test puts in.
    pub planted: Option<Planted>,
}

/// The one pool that all blocks are in.
pub const POOL: &str = "BP-1-127.0.0.1-1";
/// Bytes in a block unless the client says otherwise, as in HDFS.
pub const BLOCK_SIZE: u64 = 128 << 20;
/// Copies unless the client says otherwise: one node has one.
pub const REPLICATION: u32 = 1;

/// What all connections share.
pub struct Gateway {
    /// The store.
    pub client: Client,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Who may do everything.
    pub superuser: String,
    /// Groups of a user on this machine.
    pub groups_of: GroupsOf,
    /// Told why a connection was refused or cut.
    pub on_trouble: Arc<dyn Fn(String) + Send + Sync>,
    /// Told of a request that was slow or failed for a reason that is not its caller's.
    pub on_request: Arc<Noting>,
    /// Least bytes in a block of a new file.
    pub min_block_size: u64,
    /// A fault that a test puts in.
    pub(crate) planted: Option<Planted>,
    /// Where clients reach it, `host:port`: calls and data on one port.
    pub address: String,
    /// Files that are open for writing, and what is known of blocks.
    pub(crate) files: Files,
    /// When it began to serve.
    pub started: Time,
    /// What is known of the store as a whole.
    pub(crate) cluster: Cluster,
    /// What connections that carry calls share.
    pub(crate) rpc: Rpc,
    /// Directories that were looked up lately.
    pub(crate) known: DirectoryCache,
    /// Walks through trees that are under way.
    pub(crate) walks: Walks,
    /// Blocks whose bytes are read for a checksum, and to compare them.
    pub(crate) sums: Semaphore,
    /// See `sums`.
    pub(crate) compares: Semaphore,
    /// What reads of blocks share.
    pub(crate) reads: Arc<Reads>,
}
