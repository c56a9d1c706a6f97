//! The nodes of a cluster: how one joins the node that keeps the metadata and reports to it, and who is there.

use super::file::Device;
use super::id::Id;
use prost::Message;

/// A node, as it tells of itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Node {
    /// Its id, for as long as its data lives.
    #[prost(message, required, tag = "1")]
    pub node: Id,
    /// Rises with every start.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// Its name, for people; one of its kind in the cluster.
    #[prost(string, tag = "3")]
    pub name: String,
    /// Where others reach it, `host:port`.
    #[prost(string, tag = "4")]
    pub address: String,
    /// Its site; empty if nobody said.
    #[prost(string, tag = "5")]
    pub site: String,
    /// Its rack; empty if nobody said.
    #[prost(string, tag = "6")]
    pub rack: String,
    /// Where Hadoop's clients find it as an HDFS, `host:port`; empty if they do not.
    #[prost(string, tag = "7")]
    pub hdfs: String,
}

/// What a node says of itself to the node that keeps the metadata: at first, and then every `base::limit::REPORT_EVERY`. The answer
/// says what changed since the last one, so that a lost report costs nothing but time.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Report {
    /// Who reports.
    #[prost(message, required, tag = "1")]
    pub node: Node,
    /// Its devices, those that are missing too.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<Device>,
    /// The epoch of the view that it has; zero: none.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
    /// Sessions, by the marks of their ids, of which its devices remember something; at most `base::limit::SESSIONS_ASKED_MAX`, other
    /// ones in other reports.
    #[prost(fixed64, repeated, tag = "4")]
    pub remembered: Vec<u64>,
    /// Why it does not keep the metadata although it is told to, or what is wrong with what it keeps of them, for people; empty: nothing is.
    #[prost(string, tag = "5")]
    pub keeping: String,
}

/// What the node has to know.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ReportAnswer {
    /// Who is there, if the epoch is another than the one reported.
    #[prost(message, optional, tag = "1")]
    pub view: Option<ViewAnswer>,
    /// The sessions that are open; others are not.
    #[prost(message, repeated, tag = "2")]
    pub sessions: Vec<OpenSession>,
    /// Its devices that are to be emptied: they take nothing new.
    #[prost(message, repeated, tag = "3")]
    pub draining: Vec<Id>,
    /// Those of the devices that it reported which were emptied and are none of the store's any more.
    #[prost(message, repeated, tag = "4")]
    pub removed: Vec<Id>,
    /// Those of the sessions that its devices remember which are over.
    #[prost(fixed64, repeated, tag = "5")]
    pub over: Vec<u64>,
    /// The term in which who answers leads: orders of a lower one are late. Zero: it is of an older version.
    #[prost(uint64, tag = "6")]
    pub term: u64,
    /// Who answers, if several keep the metadata.
    #[prost(message, optional, tag = "7")]
    pub leader: Option<Id>,
}

/// Asks the node that keeps the metadata whether a session is open.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FindSession {
    /// The session.
    #[prost(message, required, tag = "1")]
    pub session: Id,
}

/// A session that is open, and will be for a while.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OpenSession {
    /// The session.
    #[prost(message, required, tag = "1")]
    pub session: Id,
    /// It does not end before so many milliseconds from now; zero: it is not open.
    #[prost(uint64, tag = "2")]
    pub lease_ms: u64,
}

/// Asks who is there. Every node answers.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct View {
    /// As whoever leads the keepers has it: another node says who leads (`base::moved`). Without this it says what it was told last, which may be older
    /// than what the one who asks has seen.
    #[prost(bool, tag = "1")]
    pub led: bool,
}

/// Who is there.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ViewAnswer {
    /// Rises whenever anything else in here changes.
    #[prost(uint64, tag = "1")]
    pub epoch: u64,
    /// The node that keeps the metadata; of several, the one that leads.
    #[prost(message, required, tag = "2")]
    pub keeper: Id,
    /// All nodes, that one too.
    #[prost(message, repeated, tag = "3")]
    pub members: Vec<Member>,
    /// The nodes that keep the metadata if there are several.
    #[prost(message, repeated, tag = "4")]
    pub keepers: Vec<Id>,
    /// The term in which `keeper` leads them; zero: it keeps alone, or its node is of an older version.
    #[prost(uint64, tag = "5")]
    pub term: u64,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Member {
    /// What it told of itself.
    #[prost(message, required, tag = "1")]
    pub node: Node,
    /// The devices that it has.
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<Id>,
    /// It has not reported for `base::limit::NODE_SILENCE_MAX`.
    #[prost(bool, tag = "3")]
    pub silent: bool,
    /// `Report::keeping`, as whoever leads was told last; others may have it of earlier.
    #[prost(string, tag = "4")]
    pub keeping: String,
}

/// Begins to empty all devices of a node, which may then be removed.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DrainNode {
    /// The node.
    #[prost(message, required, tag = "1")]
    pub node: Id,
}

/// Takes a node without devices out of the cluster. It may join again.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RemoveNode {
    /// The node.
    #[prost(message, required, tag = "1")]
    pub node: Id,
}
