//! What the metadata store answers.

use crate::request::{
    BagInfo, DeviceInfo, Entry, FileHandle, FilePiece, Garbage, KnownGroup, LackingGroup, Lacks, Located, NewGroup,
    NodeInfo, NodeState, Orphan, Quota, Totals,
};
use base::attributes::Attributes;
use base::error::Result;
use base::id::{DeviceId, GroupId, InodeId, NodeId, SessionId};
use base::policy::Policy;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is so.
    Done,
    /// Of one file or directory.
    Attributes(Attributes),
    /// Of the root and of everything on the way, as far as it exists.
    Found {
        /// The attributes, from the root down.
        found: Vec<Attributes>,
        /// The version of the directories among them.
        version: u64,
        /// Only what the path names is there, if anything: the asker knows the rest.
        without_above: bool,
    },
    /// Everything below a directory may be removed, as far as was looked.
    Below {
        /// Which directory that is.
        top: InodeId,
        /// The version of the directories.
        version: u64,
        /// Directories that may go only because they are empty.
        empty: Vec<InodeId>,
        /// To go on with; none if this was the last part.
        resume: Option<Vec<u8>>,
    },
    /// What was answered to a change before, if it is remembered.
    Answered(Option<Box<Reply>>),
    /// An absolute path.
    PathOf(String),
    /// Of a directory.
    Entries {
        /// In the order of their names' bytes.
        entries: Vec<Entry>,
        /// The groups of all extents, each once, in the order of their numbers.
        groups: Vec<NewGroup>,
        /// Whether there are more after the last.
        more: bool,
        /// The first of the other directories, each whole, up to one that has no room, is none or may not be listed.
        others: Vec<Vec<Entry>>,
    },
    /// A write lease.
    Handle(FileHandle),
    /// A group to write to.
    Group(NewGroup),
    /// For each small file its number, or why it was not made.
    Files(Vec<Result<InodeId>>),
    /// Where a range is.
    Located(Located),
    /// Extended attributes: names and values.
    Xattrs(Vec<(String, Vec<u8>)>),
    /// Wishes.
    Policy {
        /// Of the file or directory itself.
        own: Policy,
        /// With what it inherits.
        effective: Policy,
    },
    /// A directory's own quota; none: it has none.
    Quota(Option<Quota>),
    /// A part of a count.
    DiskUsage {
        /// Of this part.
        totals: Totals,
        /// To go on with; none if this was the last part.
        resume: Option<Vec<u8>>,
    },
    /// Counts of the whole store. What is being taken apart after a delete still counts.
    Usage(Totals),
    /// Open sessions.
    Sessions(u64),
    /// Sessions that are open, and how long they do not end.
    Leases(Vec<(SessionId, Duration)>),
    /// Those of the marks that no open session has.
    SessionsOver(Vec<u64>),
    /// For each holder that was asked for, how long it was silent at the least.
    Silent(Vec<Duration>),
    /// All devices.
    Devices(Vec<DeviceInfo>),
    /// Those of the devices that were removed.
    WereRemoved(Vec<DeviceId>),
    /// All nodes.
    Nodes {
        /// Rises with every change of the nodes and of what devices they have.
        epoch: u64,
        /// In the order of their ids.
        nodes: Vec<NodeState>,
    },
    /// What is known of a node.
    NodeFound {
        /// Of itself; none: it is none of the store's.
        info: Option<NodeInfo>,
        /// Of its devices, and of those that were named, in no order.
        devices: Vec<DeviceInfo>,
    },
    /// The nodes that are silent.
    SilentNodes {
        /// Rises with every change of the nodes and of what devices they have.
        epoch: u64,
        /// In the order of their ids.
        nodes: Vec<NodeId>,
    },
    /// One bag.
    Bag(BagInfo),
    /// A page of bags.
    Bags {
        /// In the order of their names' bytes.
        bags: Vec<BagInfo>,
        /// Whether there are more after the last.
        more: bool,
    },
    /// What can be removed.
    Garbage(Garbage),
    /// Those of the groups that exist, and where they are.
    Known(Vec<KnownGroup>),
    /// Groups with a chunk on a device.
    GroupsOn {
        /// In the order of their ids.
        groups: Vec<NewGroup>,
        /// Those of them that may still be written.
        open: Vec<GroupId>,
        /// To go on after; none if this was the last part.
        resume: Option<GroupId>,
    },
    /// What would be without a device.
    LacksWithout {
        /// A group of this part would lack a replica that it could get.
        any: bool,
        /// To go on after; none if this was the last part.
        resume: Option<GroupId>,
    },
    /// Groups that have fewer replicas than they want.
    Lacking {
        /// The most endangered first, and of those the oldest.
        groups: Vec<LackingGroup>,
        /// To go on after; none if this was the last part.
        resume: Option<(u8, GroupId)>,
        /// How many there are.
        lacks: Lacks,
    },
    /// Where groups have names.
    Pieces {
        /// In no order.
        pieces: Vec<FilePiece>,
        /// To go on with; none if this was the last part.
        resume: Option<Vec<u8>>,
    },
    /// A file to recover.
    Orphans(Vec<Orphan>),
    /// Files to recover.
    FenceList {
        /// Those of this part.
        orphans: Vec<Orphan>,
        /// To go on after; none if this was the last part.
        resume: Option<InodeId>,
    },
}
