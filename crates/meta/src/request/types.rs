//! Value types of files, groups, bags, devices and nodes that requests and replies share.

use base::attributes::Attributes;
use base::id::{BagId, ChunkId, DeviceId, Generation, GroupId, InodeId, NodeId};
use base::layout::Layout;
use base::policy::{Class, Compression, Policy};
use base::unit::WallTime;

/// One line of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// What it stands for.
    pub attributes: Attributes,
    /// Where its bytes are, if that was asked for: all its pieces, in order. None if it is open, or they are many.
    pub extents: Vec<Extent>,
}

/// A group and where its bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    /// Its number.
    pub group: GroupId,
    /// Where its bytes are.
    pub layout: Layout,
    /// Bytes after which it ends, for who writes it; zero: nobody says.
    pub room: u64,
}

/// A group that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownGroup {
    /// Its number.
    pub group: GroupId,
    /// Where its bytes are; none: only a newer program knows what kind of group it is.
    pub layout: Option<Layout>,
    /// Whether it may still be written.
    pub open: bool,
}

/// What a group lacks that has fewer replicas than it wants: what the worst of its columns does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// One good replica is left.
    OneLeft,
    /// Two or more are left.
    Fewer,
    /// No good replica is left: bytes are lost, unless a device comes back that was given up.
    NoneLeft,
}

impl Lack {
    /// All there are.
    pub fn all() -> impl Iterator<Item = Lack> {
        [Lack::OneLeft, Lack::Fewer, Lack::NoneLeft].into_iter()
    }

    /// Its number in keys, in whose order replicas are made.
    pub fn code(self) -> u8 {
        match self {
            Lack::OneLeft => 0,
            Lack::Fewer => 2,
            Lack::NoneLeft => 7,
        }
    }
}

/// A closed group that has fewer replicas than it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LackingGroup {
    /// Its number.
    pub group: GroupId,
    /// What it lacks.
    pub lack: Lack,
    /// Those of its columns that lack a replica.
    pub columns: Vec<LackingColumn>,
}

/// A column that has fewer replicas than it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LackingColumn {
    /// The name of its chunk.
    pub chunk: ChunkId,
    /// Bytes that the chunk has at the least; zero: there is none, and nothing to copy.
    pub length: u64,
    /// Where it is: the good replicas, or if there is none the others.
    pub from: Vec<DeviceId>,
    /// Where another one may be; none: on no device at present.
    pub to: Option<DeviceId>,
    /// Devices on which one is that is doubted since they were given up: it is good when it was compared with one of `from`, and found to be the same
    /// or made anew. If the device is one of `from` there is nothing to compare it with.
    pub again: Vec<DeviceId>,
}

/// How many groups lack replicas, and how many bytes these have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacks {
    /// Groups of which one good replica is left, and their bytes.
    pub one_left: (u64, u64),
    /// Groups of which more are left, and their bytes.
    pub fewer: (u64, u64),
    /// Groups of which none is left, and their bytes.
    pub none_left: (u64, u64),
    /// What is on a device that was given up is being looked through: there may be more.
    pub recounting: bool,
}

/// A write lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHandle {
    /// The file.
    pub inode: InodeId,
    /// To be said with everything done under the lease.
    pub generation: Generation,
    /// What is said of the file.
    pub attributes: Attributes,
    /// Bytes that the file has already.
    pub length: u64,
    /// The group to append to, from its offset 0.
    pub group: NewGroup,
    /// Something above limits bytes: `Reserve` says in time that they are too many.
    pub limited: bool,
    /// How its writer shall make bytes smaller: for as long as it has the file open.
    pub compression: Compression,
    /// It is an answer that was remembered, and the asker does not have this lease.
    pub lost: bool,
}

/// A piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where in the file it begins.
    pub file_offset: u64,
    /// The group with its bytes.
    pub group: GroupId,
    /// Where in the group they begin.
    pub group_offset: u64,
    /// How many they are; for an open one, how many are known to be synced.
    pub length: u64,
    /// CRC32C of them, if known.
    pub crc: Option<u32>,
    /// Whether a writer still adds to it: ask the device how long it is.
    pub open: bool,
}

/// A piece of a group, by the name of the file that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePiece {
    /// The file's absolute path.
    pub path: String,
    /// Where in the file it begins.
    pub file_offset: u64,
    /// The group with its bytes.
    pub group: GroupId,
    /// Where in the group they begin.
    pub group_offset: u64,
    /// How many they are; as many as can be for one that is being written.
    pub length: u64,
}

/// Where a range of a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The file.
    pub attributes: Attributes,
    /// The pieces that the range touches, in order.
    pub extents: Vec<Extent>,
    /// The groups of these pieces, each once, in the order of their numbers.
    pub groups: Vec<NewGroup>,
    /// Of the open piece, if its group has several replicas.
    pub open: Option<Open>,
    /// Whether the range has more pieces: ask again from the end of the last one.
    pub more: bool,
}

/// What is needed to tell how far a group of several replicas is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// The writer's, also when it is fenced.
    pub generation: Generation,
    /// The start of its node that each replica was placed into, in the order of the layout.
    pub starts: Vec<u64>,
}

/// What a bag is up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BagState {
    /// It takes chunks.
    Open,
    /// Its members are being told to refuse chunks.
    Sealing,
    /// Every member refuses chunks: it has an end.
    Sealed,
}

/// What is said of a bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BagInfo {
    /// Its number.
    pub bag: BagId,
    /// Its name.
    pub name: String,
    /// Its own wishes.
    pub policy: Policy,
    /// Bytes of a full chunk.
    pub chunk_size: u64,
    /// The devices with its chunks.
    pub members: Vec<DeviceId>,
    /// Rises when the members change.
    pub epoch: u64,
    /// Whether it takes chunks.
    pub state: BagState,
    /// When it was made.
    pub created: WallTime,
    /// Whether acknowledged chunks stay.
    pub retain: bool,
    /// The present pass, counted from 0.
    pub pass: u32,
    /// How its chunks are compressed: `Compression::code`, or one of a newer version.
    pub compression: u32,
    /// What members that left had counted.
    pub carried: Carried,
}

/// Counts of the members that left a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Chunks that were pushed there.
    pub pushed: u64,
    /// Their bytes.
    pub pushed_bytes: u64,
    /// Chunks that were acknowledged there.
    pub acknowledged: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
}

/// What is said of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its id.
    pub node: NodeId,
    /// Rises with every start.
    pub incarnation: u64,
    /// For people, one of its kind.
    pub name: String,
    /// Where others reach it, `host:port`.
    pub address: String,
    /// Empty: nobody said.
    pub site: String,
    /// Empty: nobody said.
    pub rack: String,
    /// Where its HDFS gateway is, `host:port`; empty: it has none.
    pub hdfs: String,
}

/// A node as one of the store's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// What it told of itself.
    pub info: NodeInfo,
    /// Its devices, those that are missing too.
    pub devices: Vec<DeviceId>,
    /// It was not heard of for `NODE_SILENCE_MAX`.
    pub silent: bool,
}

/// How full a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceUse {
    /// Which.
    pub device: DeviceId,
    /// Bytes that new data cannot have: in use, or kept back so that deletes work when it is full.
    pub taken: u64,
    /// Bytes that fit.
    pub capacity: u64,
    /// Whether it takes no more new data.
    pub full: bool,
}

/// What is said of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its id.
    pub device: DeviceId,
    /// Its class.
    pub class: Class,
    /// The node that has it.
    pub node: NodeId,
    /// Bytes that fit.
    pub capacity: u64,
    /// Bytes that new data cannot have, as last reported; zero if nothing was reported yet.
    pub taken: u64,
    /// Whether it takes no more new data.
    pub full: bool,
    /// Whether it reported since the store was opened. Only such devices are given new data.
    pub reported: bool,
    /// Whether it is being emptied: it is given nothing new.
    pub draining: bool,
    /// In which order devices are emptied: higher than that of all which were being emptied when this one was to be. Zero: it is not, or
    /// nobody knows.
    pub drain: u64,
    /// Whether nobody counts on it any more: what it has is no replica to be relied on, and it is given nothing new.
    pub lost: bool,
    /// Whether it is lost by itself: because it was away for long, not because a person said that it is gone for good.
    pub may_return: bool,
    /// Whether its node is silent: it is given nothing new until that is heard of.
    pub silent: bool,
}

impl DeviceInfo {
    /// Whether a person gave it up: nothing waits for it any more, and it is forgotten when nothing names it.
    pub fn is_gone(&self) -> bool {
        self.lost && !self.may_return
    }
}

/// Devices that took no more bytes of a group, which ended early because of them: what its chunks have behind its end is garbage, and the
/// next lies elsewhere if others take data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// They had no room.
    pub full: Vec<DeviceId>,
    /// They failed, or the writer cannot reach them: what the group has there is synced, and its chunks are not sealed.
    pub gone: Vec<DeviceId>,
    /// Replicas that have less than the group's end: they are named no more, and others are made of what is left. Never all of a chunk: such
    /// ones stay named, as what they have may be all there is.
    pub short: Vec<(ChunkId, DeviceId)>,
    /// Nothing is written behind them: the next group need not be such as its policy says at the least.
    pub last: bool,
}

impl Refused {
    /// All of them.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.full.iter().chain(&self.gone).copied()
    }
}

/// A file whose writer's session ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The file.
    pub inode: InodeId,
    /// To be said with `Recovered`.
    pub generation: Generation,
    /// Its last group, to be sealed.
    pub group: NewGroup,
    /// The start of the node that each replica was placed on, in the order of the layout's replicas: one that answers by another start may have
    /// lost what it acknowledged. 0: not known.
    pub starts: Vec<u64>,
    /// Where in the file the group begins.
    pub start: u64,
    /// Bytes in the group recorded as synced: a shorter chunk has lost some, and the file keeps its length.
    pub length: u64,
}

/// What can be removed from devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Groups that nothing names.
    pub groups: Vec<NewGroup>,
    /// Parts of groups that nothing names: where the group is, offset, length.
    pub ranges: Vec<(NewGroup, u64, u64)>,
    /// Deleted bags, in the order of their numbers.
    pub bags: Vec<BagInfo>,
    /// After which range to go on, group and offset; none if this was the last part.
    pub ranges_resume: Option<(GroupId, u64)>,
    /// After which bag to go on; none if this was the last part.
    pub bags_resume: Option<BagId>,
}

/// What becomes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// It stays as it is.
    Keep,
    /// There is none.
    None,
    /// So many.
    Most(u64),
}

/// A directory's quota, and what counts against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Most files and directories, its own name included.
    pub names_max: Option<u64>,
    /// Most bytes, as often as each file counts.
    pub bytes_max: Option<u64>,
    /// How many names there are.
    pub names: u64,
    /// How many bytes.
    pub bytes: u64,
    /// They are being counted still: there may be more.
    pub counting: bool,
}

/// Counts of files, directories and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Directories; of the whole store, the root among them.
    pub directories: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Where the holder of a file in a gateway's protocol began to write it: it may have gone on through other gateways since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Began {
    /// Bytes that the file had.
    pub length: u64,
    /// The generation that it got.
    pub generation: u64,
}
