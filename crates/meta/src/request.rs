//! What can be asked of the metadata store, and what its answers are made of. Plain types; the node translates to and from the wire.

mod types;

pub use types::{
    BagInfo, BagState, Began, Carried, DeviceInfo, DeviceUse, Entry, Extent, FileHandle, FilePiece, Garbage,
    KnownGroup, Lack, LackingColumn, LackingGroup, Lacks, Limit, Located, NewGroup, NodeInfo, NodeState, Open, Orphan,
    Quota, Refused, Totals,
};

use crate::path::Path;
use base::attributes::NewAttributes;
use base::id::{BagId, ChunkId, DeviceId, Generation, GroupId, InodeId, NodeId, SessionId};
use base::permission::Wanted;
use base::policy::{Class, Compression, Policy};
use base::unit::WallTime;
use std::time::Duration;

/// Who asks. A change that was made for the same session and call before is answered from memory and not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The client's session.
    pub session: SessionId,
    /// The client's number of this call, unique in the session; the same when the call is tried again. 0: it never is, and its
    /// answer is not remembered.
    pub call: u64,
    /// The session asks no change with a lower number again: what was answered to those is forgotten. 0: it has not said.
    pub floor: u64,
}

/// A call of a client of a gateway, which the client may ask again at another gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// The sixteen bytes that name the client.
    pub client: u128,
    /// Its number of the call, the same when it asks again.
    pub call: u32,
}

/// A file by its path or by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileRef {
    /// Whatever has this name now.
    Path(Path),
    /// This file, whatever its name is.
    Inode(InodeId),
}

/// A small file whose bytes are in a group already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutFile {
    /// Its name to be.
    pub path: Path,
    /// The packed group of this session with its bytes.
    pub group: GroupId,
    /// Where in the group they begin.
    pub offset: u64,
    /// How many they are; zero needs no group.
    pub length: u64,
    /// CRC32C of them.
    pub crc: u32,
    /// When the file was last changed; none means now.
    pub modified: Option<WallTime>,
    /// When it was last read; none means as modified.
    pub accessed: Option<WallTime>,
    /// Permission bits.
    pub mode: u32,
    /// Whether a file of this name is replaced.
    pub overwrite: bool,
    /// Whether missing directories above are made.
    pub parents: bool,
    /// It is a directory without bytes: made if it is missing, and given these times and bits in any case.
    pub directory: bool,
}

/// What somebody found at a path who is to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which file or directory; none: there was nothing.
    pub inode: Option<InodeId>,
    /// The version of its rights, note and extended attributes; none: they do not matter.
    pub version: Option<u64>,
}

/// Who asks, and whom what is made belongs to. Nobody proves it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name; empty: nobody said.
    pub name: String,
    /// The names of the groups of people that the user is in; what is made belongs to the first one.
    pub groups: Vec<String>,
}

/// What a new file or directory has from the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewInode {
    /// Permission bits.
    pub mode: u32,
    /// The bits before a umask took some of them: they count instead of `mode` where the directory hands down a list. None: `mode`.
    pub open: Option<u32>,
    /// Who owns it and the directories that are made on the way; none: the asker.
    pub owner: Option<String>,
    /// Which group of people does; none: the asker's.
    pub group: Option<String>,
    /// It belongs to the group of its directory instead, and so does what is made on the way.
    pub group_above: bool,
    /// What a gateway keeps with it.
    pub note: Vec<u8>,
    /// Permission bits of directories that are made on the way; none: those of the one that is there, and in any case their owner may go
    /// there and write.
    pub above_mode: Option<u32>,
    /// It is a copy with times of its own: the directory that it comes into keeps its own, too, whichever comes first.
    pub copied: bool,
    /// How often the bytes of a file count against quotas; zero: once.
    pub copies: u32,
    /// Who holds a file in a gateway's protocol while it is written; empty: nobody in particular.
    pub holder: String,
}

impl NewInode {
    /// The session's, with these permission bits; the usual ones for directories that are made on the way.
    pub fn with_mode(mode: u32) -> NewInode {
        NewInode { mode, above_mode: Some(DIRECTORY_MODE), ..NewInode::default() }
    }
}

/// Permission bits of directories that are made on the way, unless somebody says otherwise.
pub const DIRECTORY_MODE: u32 = 0o755;

/// A request. Lengths and offsets are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Begins the caller's session. Answers `Done`. Opening one that is open renews it.
    OpenSession {
        /// Whom what it makes belongs to.
        user: User,
    },
    /// Says that the caller's session lives. `Done`, or `Stale` if it has ended.
    Renew,
    /// Says which holders of files in a gateway's protocol live, in memory alone. `Silent`: how long those asked for were silent at the
    /// least. Together at most `HOLDERS_TOLD_MAX`.
    Holders {
        /// Those that were heard of, and how long ago.
        seen: Vec<(String, Duration)>,
        /// Those asked for.
        asked: Vec<String>,
    },
    /// Ends the caller's session and frees its leases. `Done`.
    CloseSession,
    /// `Attributes` of what has this name.
    Stat {
        /// The name.
        path: Path,
    },
    /// `Found`: the attributes of the root, then of each name of the path as far as there is something. Fewer than the path has
    /// names: the rest is missing, or the last that was found is a file.
    Lookup {
        /// The path.
        path: Path,
        /// The version of the directories that the asker has looked up, the path's own among them; 0: none. If it is the present
        /// one, the attributes of what the path names are answered alone.
        known: u64,
        /// What the asker must be allowed to there.
        wanted: Wanted,
    },
    /// `Below`: whether the asker may remove everything below a directory. A bounded part of it is looked at in each call.
    JudgeBelow {
        /// Which.
        path: Path,
        /// Where the last call stopped.
        resume: Option<Vec<u8>>,
        /// Empty directories that were told in the calls before.
        empty: usize,
    },
    /// Any other request, but asked for another user. Only a session of a superuser may ask so: a gateway's. The outermost of all.
    For {
        /// For whom.
        user: User,
        /// What.
        request: Box<Request>,
    },
    /// `PathOf` a file or directory. `NotFound` if it has none.
    PathOf {
        /// Which.
        inode: InodeId,
    },
    /// `Entries` of a directory, in the order of their names' bytes.
    List {
        /// The directory. A file lists as itself alone is refused.
        path: Path,
        /// Only names after this one.
        after: Option<String>,
        /// At most so many, and at most `LIST_PAGE_MAX`; fewer if the page has `LIST_PAGE_BYTES`.
        limit: usize,
        /// Say where the bytes of closed files are that have few extents: of at most `LOCATED_PAGE_MAX`, with which the page ends.
        located: bool,
        /// Other directories that are wanted whole, if the page has room for them.
        also: Vec<Path>,
    },
    /// Makes a change, provided that what the asker looked up is so still; else `Stale`, and nothing is done. What the change
    /// answers. Not for changes of sessions and devices.
    Provided {
        /// The version of the directories that the asker has looked up; 0: it relies on none, which counts only with `seen`.
        directories: u64,
        /// For each of the change's paths (`Request::paths`) what was found there; empty: nothing is compared.
        seen: Vec<Seen>,
        /// Directories that were found empty and have to be so still; at most `EMPTY_DIRECTORIES_MAX`.
        empty: Vec<InodeId>,
        /// The directory below which everything may go, as was judged (`JudgeBelow`).
        below: Option<InodeId>,
        /// The change.
        change: Box<Request>,
    },
    /// Makes a change that a client of a gateway asks for; if it was made before, it is answered as then. In a store of more than one
    /// node: there is no other gateway else. Not for changes of sessions and devices.
    Asked {
        /// Which call it is.
        asked: Asked,
        /// The change.
        change: Box<Request>,
    },
    /// `Answered`: what was answered to a change before.
    Answered {
        /// Which call it was.
        asked: Asked,
    },
    /// Makes a directory. `Attributes` of it.
    Mkdir {
        /// Its name to be.
        path: Path,
        /// Makes missing directories above it too, and is content if it exists.
        parents: bool,
        /// What it has from the start.
        new: NewInode,
    },
    /// Makes a file and leases it to the caller. `Handle`, with a group of one column.
    Create {
        /// Its name to be.
        path: Path,
        /// Whether a file of this name is replaced.
        overwrite: bool,
        /// Whether missing directories above are made.
        parents: bool,
        /// What it has from the start.
        new: NewInode,
        /// Most replicas of a group that the writer can write to at once; 0 is 1.
        replicas_max: usize,
    },
    /// Leases a file to the caller, to write on at its end in a new group of one column. `Handle`.
    AppendOpen {
        /// The file.
        file: FileRef,
        /// Who holds it in a gateway's protocol; empty: nobody in particular.
        holder: String,
        /// Where that holder began, if it goes on with what it has open through another gateway.
        began: Option<Began>,
        /// Only if its generation is this still, and it was closed for this holder so that he may go on with it (`Fence::for_holder`, or the end
        /// of his gateway's session); else `Stale`.
        at: Option<Generation>,
        /// As of `Create`.
        replicas_max: usize,
    },
    /// Records what the finished group holds and gives the next, a wider one where there are devices for it; elsewhere, if devices took no
    /// more of the group. `Group`.
    NextGroup {
        /// The file.
        inode: InodeId,
        /// Of the lease.
        generation: Generation,
        /// The lease's group and how many bytes of the file it holds.
        finished: (GroupId, u64),
        /// Most columns that the writer can write to.
        columns_max: usize,
        /// Devices that took no more of its bytes.
        refused: Refused,
        /// As of `Create`.
        replicas_max: usize,
    },
    /// Records how many bytes of the open group are synced. `Done`.
    SyncLength {
        /// The file.
        inode: InodeId,
        /// Of the lease.
        generation: Generation,
        /// The lease's group.
        group: GroupId,
        /// Bytes in it. Never fewer than before.
        length: u64,
    },
    /// Says how long the file may become before this is said again: so much counts against quotas until it is closed. `Done`, or
    /// `OverQuota`.
    Reserve {
        /// The file.
        inode: InodeId,
        /// Of the lease.
        generation: Generation,
        /// Bytes of the whole file.
        length: u64,
    },
    /// Says where the block of a gateway's protocol begins that is written from now on: until the file is closed or opened again any
    /// gateway finds it in the file's attributes. `Done`.
    BeginBlock {
        /// The file.
        inode: InodeId,
        /// Of the lease.
        generation: Generation,
        /// Where in the file; not zero.
        base: u64,
        /// Its number among the blocks of this file.
        number: u32,
    },
    /// Ends writing. `Attributes` of the file.
    Close {
        /// The file.
        inode: InodeId,
        /// Of the lease.
        generation: Generation,
        /// The lease's group and how many bytes of the file it holds; none means what `SyncLength` said last.
        finished: Option<(GroupId, u64)>,
        /// When the file was last changed; none means now.
        modified: Option<WallTime>,
        /// Permission bits; none leaves them.
        mode: Option<u32>,
    },
    /// Gives up writing: a created file goes, an appended one stays as its finished extents say. `Done`.
    Abandon {
        /// The file.
        inode: InodeId,
        /// Of the lease.
        generation: Generation,
    },
    /// A group for small files, owned by the caller's session until it ends. `Group`.
    PackGroup {
        /// Where its bytes should be.
        policy: Policy,
        /// A file that will be in it: it is begun on as many replicas as the policy there wants.
        beside: Option<Path>,
        /// To so many replicas the caller appends; zero is one.
        replicas_max: usize,
        /// Devices that took no more of the caller's last groups: others are taken if there are such.
        refused: Vec<DeviceId>,
    },
    /// A group of `PackGroup` takes no more files; one that is not the session's stays as it is. `Done`.
    FinishPack {
        /// The group.
        group: GroupId,
    },
    /// Makes small files, all in one log entry, each refused or done by itself. `Files`.
    PutFiles {
        /// At most `COMPOUND_FILES_MAX`.
        files: Vec<PutFile>,
    },
    /// Where a range of a file is. `Located`.
    Locate {
        /// The file.
        file: FileRef,
        /// Where the range begins.
        offset: u64,
        /// How long it is; may reach beyond the end.
        length: u64,
    },
    /// Gives a file or directory another name, at once or not at all. `Done`.
    Rename {
        /// The old name.
        from: Path,
        /// The new name.
        to: Path,
        /// Whether a file or empty directory of the new name is replaced (a file by a file, a directory by a directory).
        replace: bool,
        /// It is as good as removed, so its asker must be allowed to remove everything below it.
        removes: bool,
    },
    /// Removes a name and what it stands for. `Done`.
    Delete {
        /// The name.
        path: Path,
        /// Whether a directory may have something in it.
        recursive: bool,
    },
    /// Changes attributes of a file or directory. `Done`.
    SetAttributes {
        /// Which.
        path: Path,
        /// What to change.
        new: NewAttributes,
    },
    /// `Xattrs` of a file or directory, in the order of their names' bytes.
    GetXattrs {
        /// Which.
        path: Path,
        /// Only this one, `NotFound` if it is not there; none means all.
        name: Option<String>,
    },
    /// Sets or removes an extended attribute. `Done`.
    SetXattr {
        /// Of which file or directory.
        path: Path,
        /// Its name, with the namespace.
        name: String,
        /// Its value; none removes it, `NotFound` if it is not there.
        value: Option<Vec<u8>>,
    },
    /// Cuts off the end of a closed file. `Attributes` of it. Longer than it is: `Invalid`.
    Truncate {
        /// The file.
        path: Path,
        /// Bytes to keep.
        length: u64,
    },
    /// Joins closed files to the end of another, all or none; they are gone then. `Attributes` of the whole.
    Concat {
        /// The file that grows.
        target: Path,
        /// The others, in order; at most `CONCAT_FILES_MAX`.
        sources: Vec<Path>,
    },
    /// Sets the wishes of a file or directory; `Policy::default()` removes them. `Done`.
    SetPolicy {
        /// Which.
        path: Path,
        /// Its own wishes.
        policy: Policy,
    },
    /// `Policy` of a file or directory.
    GetPolicy {
        /// Which.
        path: Path,
    },
    /// Limits what may be below a directory. `Quota` as it is then: what is there is counted in steps, and limited meanwhile by
    /// what is counted. One that limits nothing counts all the same, unless a limit was removed: then it goes.
    SetQuota {
        /// Which.
        path: Path,
        /// Files and directories, its own name included.
        names: Limit,
        /// Bytes, as often as each file counts.
        bytes: Limit,
    },
    /// `Quota` of a directory itself.
    GetQuota {
        /// Which.
        path: Path,
    },
    /// Counts what is at and below a path, a bounded part of it in each call. `DiskUsage`: add the parts up.
    DiskUsage {
        /// The top.
        path: Path,
        /// Where the last call stopped.
        resume: Option<Vec<u8>>,
    },
    /// `Usage` of the whole store.
    Usage,
    /// How many sessions are open. `Sessions`.
    Sessions,
    /// Which sessions are open, and how long at least. `Leases`.
    SessionLeases {
        /// Only this one, if it is open.
        only: Option<SessionId>,
        /// At most so many, those with the longest time left.
        limit: usize,
    },
    /// Which of these marks of sessions (`SessionId::mark`) no open session has. `SessionsOver`.
    SessionsOver {
        /// The marks.
        marks: Vec<u64>,
    },
    /// Says that a device exists. `Done`.
    DeviceRegister {
        /// Its id.
        device: DeviceId,
        /// Its class.
        class: Class,
        /// Bytes that fit.
        capacity: u64,
        /// The node that has it.
        node: NodeId,
    },
    /// Says how full devices are. Forgotten when the store is opened again. `Done`.
    DeviceReport {
        /// Each of them.
        devices: Vec<DeviceUse>,
    },
    /// `Devices` of the store.
    DeviceList,
    /// From now on nothing new is placed on this device, and no new bag has it as a member. `Done`.
    DeviceDrain {
        /// Which.
        device: DeviceId,
    },
    /// Takes a device out of the store that was drained and has nothing that is needed. `Done`.
    DeviceRemove {
        /// Which.
        device: DeviceId,
    },
    /// `WereRemoved`: which of these devices were taken out of the store and did not come back. One whose disk had failed took no
    /// deletion, so chunks on it say nothing of another store.
    DevicesRemoved {
        /// Which are meant.
        devices: Vec<DeviceId>,
    },
    /// Says that a node is one of the store's, or that what is known of it changed. `Done`. `Stale` if a newer start of it is known,
    /// `Exists` if another node has the name.
    NodeJoin {
        /// What is known of it from now on.
        node: NodeInfo,
    },
    /// A node that joined was heard of. In memory alone: after the store is opened all are silent until then. `Done`.
    NodeReport {
        /// Which.
        node: NodeId,
        /// It keeps this very store: it is never silent.
        keeps: bool,
        /// Its devices that can be used; others of its devices are given nothing new.
        devices: Vec<DeviceId>,
    },
    /// `Nodes` of the store.
    NodeList,
    /// `NodeFound`: what is known of a node, of its devices and of others.
    NodeFind {
        /// Which.
        node: NodeId,
        /// Devices that it names.
        devices: Vec<DeviceId>,
    },
    /// `SilentNodes`.
    NodesSilent,
    /// From now on nothing new is placed on the devices of this node, those too that it brings later. `Done`.
    NodeDrain {
        /// Which.
        node: NodeId,
    },
    /// Forgets a node that has no device. `Done`.
    NodeRemove {
        /// Which.
        node: NodeId,
    },
    /// `GroupsOn`: the groups with a chunk on this device, in the order of their ids, garbage among them. A bounded part of all
    /// groups is looked at in each call.
    GroupsOn {
        /// Which.
        device: DeviceId,
        /// Only groups after this one.
        after: Option<GroupId>,
        /// At most so many, and at most `LIST_PAGE_MAX`.
        limit: usize,
    },
    /// The chunk of a group is on another device now, under the same name. `Done`; `Stale` if the group is garbage, or has no such
    /// chunk there.
    MoveGroup {
        /// The group.
        group: GroupId,
        /// The chunk.
        chunk: ChunkId,
        /// Where it was.
        from: DeviceId,
        /// Where it is, durably, with the same bytes.
        to: DeviceId,
    },
    /// `Lacking`: closed groups that have fewer replicas than they want, the most endangered first.
    Lacking {
        /// Only those after this one: `Lack::code` and group.
        after: Option<(u8, GroupId)>,
        /// At most so many, and at most `LIST_PAGE_MAX`; zero: how many there are is enough.
        limit: usize,
        /// Devices that shall get no replica now.
        avoid: Vec<DeviceId>,
    },
    /// The chunk of a closed group is on another device, too, under the same name; where a replica was named there that is doubted, it is not any more.
    /// `Done`; `Stale` if the group is garbage, wants no more replicas, or has none to be relied on where this one was copied from.
    AddReplica {
        /// The group.
        group: GroupId,
        /// The chunk.
        chunk: ChunkId,
        /// Whose copy it is.
        from: DeviceId,
        /// Where it is, durably, sealed and with the same bytes.
        to: DeviceId,
    },
    /// Nobody counts on this device any more: what it has is copied from other replicas, and from itself only where there are no others. A person
    /// says so: it is gone for good. `Done`.
    DeviceLost {
        /// Which.
        device: DeviceId,
    },
    /// The same of one that was away for long and may come back: what waits for it does so still. `Done`.
    DeviceGivenUp {
        /// Which.
        device: DeviceId,
    },
    /// It is there again, nothing is on it that the metadata do not know, and no open group names it: it counts as any other, and what it has does, but for
    /// replicas that are doubted (`LackingColumn::again`). `Done`; `Busy` while what it had is looked through, and while a group names one that a
    /// person gave up.
    DeviceBack {
        /// Which.
        device: DeviceId,
    },
    /// `LacksWithout`: whether a group would lack a replica, and could get one, if nobody counted on this device any more. A bounded part of all
    /// groups is looked at in each call.
    LacksWithout {
        /// Which.
        device: DeviceId,
        /// Only groups after this one.
        after: Option<GroupId>,
    },
    /// Makes a bag on all devices that fit. `Bag`.
    BagCreate {
        /// Its name.
        name: String,
        /// Where its chunks should be.
        policy: Policy,
        /// Bytes of a full chunk; zero means `BAG_CHUNK`.
        chunk_size: u64,
        /// Acknowledged chunks stay, to be given once in each pass.
        retain: bool,
        /// How those who push compress its chunks.
        compression: Compression,
    },
    /// Begins a new pass of a bag; its members are told then. `Bag`.
    BagRewind {
        /// Its name.
        name: String,
    },
    /// `Bag` of this name.
    BagStat {
        /// Its name.
        name: String,
    },
    /// `Bags` in the order of their names.
    BagList {
        /// Only names after this one.
        after: Option<String>,
        /// At most so many, and at most `LIST_PAGE_MAX`.
        limit: usize,
    },
    /// Records that the bag takes no more chunks; its members are told, then `BagSealed` is asked. `Bag`.
    BagSeal {
        /// Its name.
        name: String,
    },
    /// Every member of this epoch refuses pushes. `Bag`, or `Stale` if the epoch is over.
    BagSealed {
        /// Which.
        bag: BagId,
        /// The epoch whose members were told.
        epoch: u64,
    },
    /// Other devices become members of a bag, or one that is empty leaves it. The epoch rises. `Bag`.
    BagMembers {
        /// Which.
        bag: BagId,
        /// How far it is sealed, as those who join were told: if it is in another state by now, nobody joins.
        state: BagState,
        /// Members from now on.
        joining: Vec<DeviceId>,
        /// A member no more, and what it had counted.
        leaving: Option<(DeviceId, Carried)>,
    },
    /// `Bag` of this number.
    BagOf {
        /// Which.
        bag: BagId,
    },
    /// Removes a bag and all its chunks. `Done`.
    BagDelete {
        /// Its name.
        name: String,
    },
    /// What the node can remove from devices. `Garbage`.
    Garbage {
        /// Only ranges after this one, group and offset: those that have to wait for a device hold nobody up.
        ranges_after: Option<(GroupId, u64)>,
        /// Only bags after this one: those that have to wait for a member hold nobody up.
        bags_after: Option<BagId>,
        /// At most so many of each kind, and at most `LIST_PAGE_MAX`.
        limit: usize,
    },
    /// This garbage is gone from the devices. `Done`. Ask `Garbage` again afterwards: a group with much garbage comes more than once.
    Collected {
        /// Groups whose chunks are gone.
        groups: Vec<GroupId>,
        /// Ranges (group, offset) that were released.
        ranges: Vec<(GroupId, u64)>,
        /// Bags whose chunks are gone.
        bags: Vec<BagId>,
    },
    /// `Known`: which of these groups exist, garbage among them.
    KnownGroups {
        /// At most `LIST_PAGE_MAX` of them.
        groups: Vec<GroupId>,
    },
    /// `Pieces`: which files have bytes in these groups. A bounded part of the files is looked at in each call.
    FilesIn {
        /// At most `LIST_PAGE_MAX` of them.
        groups: Vec<GroupId>,
        /// Where the last call stopped.
        resume: Option<Vec<u8>>,
    },
    /// Takes a file from its writer: nobody may write under the old generation. `Orphans` with the one to seal and to say
    /// `Recovered` of, or `Attributes` if nobody writes it.
    Fence {
        /// The file.
        inode: InodeId,
        /// Only if the writer's session has ended or is the asker's own; else `Busy`.
        only_gone: bool,
        /// Its holder may go on with it: the next gateway opens it for him. Without this and `only_gone` it is taken from him, too, also if nobody
        /// writes it by now.
        for_holder: bool,
        /// Only the writer that opened it at this generation, else `Stale`; none: whoever writes it.
        generation: Option<Generation>,
    },
    /// `FenceList`: files whose writer's session ended, in the order of their numbers. Seal their chunks, then say `Recovered`.
    FenceList {
        /// Only files after this one: those that have to wait for a device hold nobody up.
        after: Option<InodeId>,
        /// At most so many, and at most `LIST_PAGE_MAX`.
        limit: usize,
    },
    /// The last group of an orphan is sealed with this length; the file ends there. `Attributes`; the first one counts, later ones are `Stale`.
    Recovered {
        /// The file.
        inode: InodeId,
        /// As the orphan had it.
        generation: Generation,
        /// Bytes of the file in the last group.
        length: u64,
        /// Replicas that have less than that, and are named no more. Never all of a chunk: such ones stay named.
        without: Vec<(ChunkId, DeviceId)>,
    },
}
