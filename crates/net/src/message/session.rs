//! How a connection begins and a session stays alive.

use super::id::Id;
use bytes::Bytes;
use prost::Message;

/// The first message of every connection, from the side that connected.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Hello {
    /// Oldest protocol version that the sender speaks.
    #[prost(uint32, tag = "1")]
    pub version_min: u32,
    /// Newest protocol version that the sender speaks.
    #[prost(uint32, tag = "2")]
    pub version_max: u32,
    /// The client's session. All its connections name the same one.
    #[prost(message, required, tag = "3")]
    pub session: Id,
    /// Which program, for people: `stormwell put`.
    #[prost(string, tag = "4")]
    pub program: String,
    /// The cluster that the sender means; absent: whichever answers.
    #[prost(message, optional, tag = "5")]
    pub cluster: Option<Id>,
    /// 32 random bytes, new for each connection; empty: the sender has no secret.
    #[prost(bytes = "bytes", tag = "6")]
    pub nonce: Bytes,
    /// What kind of program it is.
    #[prost(enumeration = "Role", tag = "7")]
    pub role: i32,
    /// Of a node: which one.
    #[prost(message, optional, tag = "8")]
    pub node: Option<Id>,
    /// Of a node: rises with every start of it.
    #[prost(uint64, tag = "9")]
    pub incarnation: u64,
    /// Of a node that leads the keepers: the term in which it orders over this connection. Zero: none, as of all who do not order. A server
    /// that is older does not read it.
    #[prost(uint64, tag = "10")]
    pub term: u64,
}

/// What kind of program connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Role {
    /// A command, or another program that uses the store.
    Client = 0,
    /// A node of the cluster.
    Node = 1,
}

/// The answer of a node that has a secret to a `Hello` with a nonce: proves that it knows the secret, and wants the same.
/// What the proofs are made of: `net::secret`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Challenge {
    /// 32 random bytes, new for each connection.
    #[prost(bytes = "bytes", tag = "1")]
    pub nonce: Bytes,
    /// The node's proof, 32 bytes.
    #[prost(bytes = "bytes", tag = "2")]
    pub proof: Bytes,
    /// Which node it is.
    #[prost(message, required, tag = "3")]
    pub node: Id,
    /// Rises with every start of that node.
    #[prost(uint64, tag = "4")]
    pub incarnation: u64,
}

/// The answer to `Challenge`; `Welcome` follows.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Proof {
    /// The proof of the side that connected, 32 bytes.
    #[prost(bytes = "bytes", tag = "1")]
    pub proof: Bytes,
}

/// The answer to `Hello`, or a `Failure` and the connection's end.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Welcome {
    /// The version that both sides speak from here on.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Which node answered.
    #[prost(message, required, tag = "2")]
    pub node: Id,
    /// Rises with every start of that node.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// The cluster that the node belongs to; absent: none.
    #[prost(message, optional, tag = "4")]
    pub cluster: Option<Id>,
}

/// Keeps the session's leases; at least every third of `base::limit::SESSION_LEASE`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Renew {
    /// Owner of what this session creates; empty: nobody in particular. Counts when the session begins.
    #[prost(string, tag = "1")]
    pub owner: String,
    /// Group of people of what it creates.
    #[prost(string, tag = "2")]
    pub group: String,
    /// The session has begun before: if it is over, that is said, and it does not begin anew.
    #[prost(bool, tag = "3")]
    pub again: bool,
    /// Other groups that the user is in; at most `base::limit::GROUPS_MAX` count.
    #[prost(string, repeated, tag = "4")]
    pub groups: Vec<String>,
}

/// Asks a node how it is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeStatus {}

/// How a node is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeStatusAnswer {
    /// Which node.
    #[prost(message, required, tag = "1")]
    pub node: Id,
    /// The program's version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// Its process id, so that a benchmark can read what the kernel counted for it.
    #[prost(uint64, tag = "3")]
    pub process: u64,
    /// Milliseconds since it began to serve.
    #[prost(uint64, tag = "4")]
    pub uptime_ms: u64,
}

/// Asks a node for all that it tells of itself. Needs no session, and neither the metadata store nor a device to be well.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Look {}

/// What a node tells of itself. The payload is its page of metrics as Prometheus reads it (exposition format 0.0.4); empty
/// while the metadata store does not answer.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LookAnswer {
    /// Whether reads and writes are taken.
    #[prost(bool, tag = "1")]
    pub ready: bool,
    /// What is wrong, one sentence each; there may be troubles while it is ready.
    #[prost(string, repeated, tag = "2")]
    pub troubles: Vec<String>,
    /// Where its console is, `host:port`; empty if it has none.
    #[prost(string, tag = "3")]
    pub console: String,
    /// The program's version.
    #[prost(string, tag = "4")]
    pub version: String,
    /// Its process id.
    #[prost(uint64, tag = "5")]
    pub process: u64,
    /// Where Hadoop's clients find it as an HDFS, `host:port`; empty if they do not.
    #[prost(string, tag = "6")]
    pub hdfs: String,
}
