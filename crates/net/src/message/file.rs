//! Names, files and devices: the questions that the metadata store answers.

pub use super::access::{JudgeBelow, JudgeBelowAnswer, User, Wanted};
use super::id::Id;
pub use super::layout::Layout;
pub use super::looked::{BeginBlock, Holders, HoldersAnswer, Looked, Seen, SeenHolder, SyncLength};
pub use super::names::{Delete, MakeDirectory, Rename};
pub use super::xattrs::{GetXattrs, SetXattr, Xattr, XattrsAnswer};
pub use base::attributes::{Attributes, NewAttributes};
use prost::Message;

/// Asks for the attributes of a path.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stat {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// Asks for the attributes of everything on the way to a path.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Lookup {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The version of the directories above the path, all of which the asker has looked up; 0: it has not. If that is still the
    /// present one, only what the path names is answered.
    #[prost(fixed64, tag = "2")]
    pub known: u64,
    /// What the asker must be allowed to there; absent: to go there.
    #[prost(message, optional, tag = "3")]
    pub wanted: Option<Wanted>,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
}

/// Of the root, then of each name of the path as far as there is something. Fewer than the path has names: the rest is
/// missing, or the last that was found is a file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LookupAnswer {
    /// The attributes, from the root down.
    #[prost(message, repeated, tag = "1")]
    pub found: Vec<Attributes>,
    /// The version of the directories: another one as soon as one is renamed, goes, or has other rights. 0 from nodes that have none.
    #[prost(fixed64, tag = "2")]
    pub version: u64,
    /// What is above the path was left out, because the asker knows it.
    #[prost(bool, tag = "3")]
    pub without_above: bool,
}

/// Asks which path a file or directory has now.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PathOf {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
}

/// Which path it has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PathOfAnswer {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// Changes attributes of a file or directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetAttributes {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// What to change; absent: refused.
    #[prost(message, optional, tag = "30")]
    pub new: Option<NewAttributes>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
}

/// Cuts off the end of a closed file.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Truncate {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Bytes to keep; more than it has is refused.
    #[prost(uint64, tag = "2")]
    pub length: u64,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
}

/// Joins closed files to the end of another; they are gone then. All or none.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Concat {
    /// Absolute path of the file that grows.
    #[prost(string, tag = "1")]
    pub target: String,
    /// Absolute paths of the others, in order; `base::limit::CONCAT_FILES_MAX` at the most.
    #[prost(string, repeated, tag = "2")]
    pub sources: Vec<String>,
    /// Which call of a gateway's client this is; absent: none that may be asked at another gateway.
    #[prost(message, optional, tag = "30")]
    pub asked: Option<Asked>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
}

/// Asks for a page of a directory, in the order of the names' bytes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct List {
    /// Absolute path of the directory.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Names after this one; empty from the start.
    #[prost(string, tag = "2")]
    pub after: String,
    /// At most so many; `base::limit::LIST_PAGE_MAX` at the most, and if zero. Fewer come if they are long.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    /// Where the bytes of files are is wanted, too (`Entry::extents`): of `base::limit::LOCATED_PAGE_MAX` at the most, with which the page
    /// ends. Nodes before this field say it of none.
    #[prost(bool, tag = "4")]
    pub extents: bool,
    /// Absolute paths of other directories that are wanted whole, if the page has room for them (`ListAnswer::others`): each takes that of
    /// one name more than it has. `base::limit::LISTED_TOGETHER_MAX` in all at the most, and as many names in their paths as the deepest path
    /// may have; the rest has no room. Nodes before this field list none of them.
    #[prost(string, repeated, tag = "5")]
    pub also: Vec<String>,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Entry {
    /// The name, without its directory.
    #[prost(string, tag = "1")]
    pub name: String,
    /// What it names.
    #[prost(message, required, tag = "2")]
    pub attributes: Attributes,
    /// If they were asked for: all extents of a closed file that has `base::limit::LISTED_EXTENTS_MAX` or fewer, as they were when it had
    /// these attributes. None of a file that has more, that is open, or whose bytes only a newer program finds: `Locate` tells of it.
    #[prost(message, repeated, tag = "3")]
    pub extents: Vec<Extent>,
}

/// A page of a directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListAnswer {
    /// The entries.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Whether there are more after the last.
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// The first of the other directories that were asked for, each whole. They end before the first one that has more names than there is room
    /// for, is no directory, may not be listed or cannot be named: asking for that one by itself tells which.
    #[prost(message, repeated, tag = "3")]
    pub others: Vec<Whole>,
}

/// All of a directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Whole {
    /// The entries, in the order of their names' bytes.
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
}

/// Makes a file and opens it for writing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Create {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Replace a file that exists. Its bytes stay readable to those who hold it until the new one is made.
    #[prost(bool, tag = "2")]
    pub overwrite: bool,
    /// Make missing directories.
    #[prost(bool, tag = "3")]
    pub parents: bool,
    /// Permission bits; absent means 0644.
    #[prost(uint32, optional, tag = "4")]
    pub mode: Option<u32>,
    /// Who owns it and directories that are made; absent: the session's user.
    #[prost(string, optional, tag = "5")]
    pub owner: Option<String>,
    /// Which group of people does; absent: the session's.
    #[prost(string, optional, tag = "6")]
    pub group: Option<String>,
    /// What a gateway keeps with it.
    #[prost(bytes = "vec", tag = "7")]
    pub note: Vec<u8>,
    /// Permission bits of directories that are made; absent means 0755.
    #[prost(uint32, optional, tag = "8")]
    pub above_mode: Option<u32>,
    // 9 was a note for these: lists of access are handed down by the store.
    /// It is a copy that will have times of its own: the directory that it comes into keeps its own, too.
    #[prost(bool, tag = "10")]
    pub copied: bool,
    // 11 was a version of the directories to rely on: whoever asked had judged the rights itself.
    /// How often its bytes count against quotas; zero: once.
    #[prost(uint32, tag = "20")]
    pub copies: u32,
    /// Who holds it in a gateway's protocol while it is written; empty: nobody in particular.
    #[prost(string, tag = "21")]
    pub holder: String,
    /// Which call of a gateway's client this is; absent: none that may be asked at another gateway.
    #[prost(message, optional, tag = "30")]
    pub asked: Option<Asked>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
    /// For whom; absent: the session's own user.
    #[prost(message, optional, tag = "32")]
    pub user: Option<User>,
    /// Permission bits before a umask took some of them, which count instead of `mode` where the directory hands down an access control list;
    /// absent: `mode`.
    #[prost(uint32, optional, tag = "33")]
    pub open: Option<u32>,
    /// It belongs to the group of its directory, and so does what is made above.
    #[prost(bool, tag = "34")]
    pub group_above: bool,
    /// What is made above has the permission bits of the directory that is there, and its owner may go there and write; `above_mode` is not
    /// looked at.
    #[prost(bool, tag = "35")]
    pub above_alike: bool,
    /// Most replicas of a group that the writer can write to at once; zero means one. Nodes of before it give one.
    #[prost(uint32, tag = "36")]
    pub replicas_max: u32,
}

/// Opens a closed file to write at its end. While a writer has it open the answer is `Busy`; a writer whose session ended is
/// fenced first, after which the file can be opened.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Append {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Who holds it in a gateway's protocol while it is written; empty: nobody in particular.
    #[prost(string, tag = "21")]
    pub holder: String,
    // 22 was a wish to take the file from whoever has it open, with nothing kept of what was written: it is answered `Busy`.
    /// `Attributes::began_length` of what the holder goes on with, after it was taken from another gateway.
    #[prost(uint64, tag = "23")]
    pub began_length: u64,
    /// The same of `Attributes::began_generation`; 0: it begins here.
    #[prost(uint64, tag = "24")]
    pub began_generation: u64,
    /// The file that the holder goes on with, whatever its name is by now; 0: the one at `path`. Where it is set a node looks at neither
    /// `path` nor `looked`, which are for one that does not know it.
    #[prost(uint64, tag = "25")]
    pub inode: u64,
    /// With `inode`: only if its generation is this still, else `Stale`.
    #[prost(uint64, tag = "26")]
    pub generation: u64,
    /// Which call of a gateway's client this is; absent: none that may be asked at another gateway.
    #[prost(message, optional, tag = "30")]
    pub asked: Option<Asked>,
    /// What the asker looked up and relies on: if it is otherwise by now the answer is `Stale`, and nothing is done; absent: nothing.
    #[prost(message, optional, tag = "31")]
    pub looked: Option<Looked>,
    /// Most replicas of a group that the writer can write to at once; zero means one. Nodes of before it give one.
    #[prost(uint32, tag = "33")]
    pub replicas_max: u32,
}

/// Takes a file away from whoever writes it: what is written is kept and synced, the writer is refused from then on, and the
/// file is closed when the answer comes. A file that nobody writes is answered as it is.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Recover {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Only from a writer that is gone: its session has ended, or is the asker's own, which knows what it has open. `Busy` if
    /// the writer may live.
    #[prost(bool, tag = "2")]
    pub only_gone: bool,
    /// Only if its generation is this still, else `Stale`; 0: whatever it is.
    #[prost(uint64, tag = "3")]
    pub generation: u64,
    /// Its holder may go on with it: `Append::generation` opens it for him. Without this and `only_gone` it is taken from him, too, also if
    /// nobody writes it by now.
    #[prost(bool, tag = "4")]
    pub for_holder: bool,
}

/// A file that is open for writing.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct OpenedFile {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The writer's generation: chunks and metadata refuse older ones.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// Its length so far.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// Where the next bytes go.
    #[prost(message, required, tag = "4")]
    pub group: NewGroup,
    /// What is known about it; nodes before this field left it out.
    #[prost(message, optional, tag = "5")]
    pub attributes: Option<Attributes>,
    /// A quota above limits bytes: `Reserve` says in time that they are too many.
    #[prost(bool, tag = "20")]
    pub limited: bool,
    /// How its writer shall make bytes smaller: `base::policy::Compression::code`.
    #[prost(uint32, tag = "21")]
    pub compression: u32,
    /// This was answered before, and by now the session that asks does not have the file open: it never had, as its answer is another
    /// session's, or it lost it.
    #[prost(bool, tag = "22")]
    pub lost: bool,
}

/// A group to write into, from offset zero.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NewGroup {
    /// The group.
    #[prost(uint64, tag = "1")]
    pub group: u64,
    /// Bytes after which a file goes on in the next group; zero: as many as the writer likes.
    #[prost(uint64, tag = "6")]
    pub room: u64,
    /// Where its bytes go.
    #[prost(message, required, tag = "7")]
    pub layout: Layout,
}

/// Records that the current group has ended (its chunks are sealed, and it has this length) and asks for the next.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NextGroup {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The writer's generation.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// That group.
    #[prost(uint64, tag = "3")]
    pub finished_group: u64,
    /// Its length in bytes.
    #[prost(uint64, tag = "4")]
    pub finished_length: u64,
    /// Most columns that the next may have; zero means one.
    #[prost(uint32, tag = "5")]
    pub columns_max: u32,
    /// Devices that refused its bytes for want of room: it ended early, and chunks may have bytes behind its end. The next lies elsewhere, if
    /// others have room. At most `base::limit::REFUSED_MAX`.
    #[prost(message, repeated, tag = "6")]
    pub full: Vec<Id>,
    /// Devices that failed or cannot be reached: what the group has on them is synced and cannot be sealed. Else as `full`.
    #[prost(message, repeated, tag = "7")]
    pub gone: Vec<Id>,
    /// Most replicas of a group that the writer can write to at once; zero means one.
    #[prost(uint32, tag = "8")]
    pub replicas_max: u32,
    /// Replicas that have less than that length: they are named no more where others of the same chunk are left. At most
    /// `base::limit::REFUSED_MAX`.
    #[prost(message, repeated, tag = "9")]
    pub short: Vec<Replica>,
    /// Nothing is written behind it, and the file is closed next: it is only told how the last group ended. The next one need not have as many
    /// replicas as the file's policy wants at the least.
    #[prost(bool, tag = "10")]
    pub last: bool,
}

/// The chunk of a column on one of its devices.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Replica {
    /// The device.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
}

/// Ends writing: the last group's chunks are sealed, and it has this length.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Close {
    /// The file.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// The writer's generation.
    #[prost(uint64, tag = "2")]
    pub generation: u64,
    /// The last group.
    #[prost(uint64, tag = "3")]
    pub finished_group: u64,
    /// Its length in bytes; zero drops it.
    #[prost(uint64, tag = "4")]
    pub finished_length: u64,
    /// Modification time to record in milliseconds since 1970; zero means now.
    #[prost(uint64, tag = "5")]
    pub modified_ms: u64,
    /// Permission bits to record, by who made the file; zero leaves them, and so does who goes on with a file.
    #[prost(uint32, tag = "6")]
    pub mode: u32,
}

/// Asks for a group that small files share.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PackGroup {
    /// A file that will be in it: as many replicas as the policy there wants are begun. Empty: one.
    #[prost(string, tag = "1")]
    pub path: String,
    /// To so many replicas the caller appends; zero is one.
    #[prost(uint32, tag = "2")]
    pub replicas_max: u32,
    /// Devices that took no more of the caller's last groups: others are given if there are such.
    #[prost(message, repeated, tag = "3")]
    pub refused: Vec<Id>,
}

/// Says that a group of `PackGroup` takes no more small files, so that it gets its copies. Without it that is so when the session is over.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FinishPack {
    /// The group; one that is finished or gone stays so.
    #[prost(uint64, tag = "1")]
    pub group: u64,
}

/// Names small files whose bytes are already durable in shared groups: one transaction, each file answered by itself.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutFiles {
    /// At most `base::limit::COMPOUND_FILES_MAX` files.
    #[prost(message, repeated, tag = "1")]
    pub files: Vec<PutFile>,
}

/// One small file, or a directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutFile {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The group that holds its bytes; ignored for an empty file.
    #[prost(uint64, tag = "2")]
    pub group: u64,
    /// Where in the group they start.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    /// How many.
    #[prost(uint64, tag = "4")]
    pub length: u64,
    /// Modification time in milliseconds since 1970; zero means now.
    #[prost(uint64, tag = "5")]
    pub modified_ms: u64,
    /// Permission bits; zero means 0644.
    #[prost(uint32, tag = "6")]
    pub mode: u32,
    /// Replace a file that exists.
    #[prost(bool, tag = "7")]
    pub overwrite: bool,
    /// Make missing directories.
    #[prost(bool, tag = "8")]
    pub parents: bool,
    /// When it was last read, in milliseconds since 1970; zero means as modified.
    #[prost(uint64, tag = "9")]
    pub accessed_ms: u64,
    /// It is a directory without bytes: made if it is missing, and given these times and bits in any case.
    #[prost(bool, tag = "10")]
    pub directory: bool,
}

/// How each file of `PutFiles` fared, in their order.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PutFilesAnswer {
    /// `code` zero means done.
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<super::outcome::Failure>,
}

/// Asks where a file's bytes are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Locate {
    /// Absolute path; empty when `inode` is given.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The file; zero when `path` is given.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    /// First byte of interest.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    /// How many bytes.
    #[prost(uint64, tag = "4")]
    pub length: u64,
}

/// Where a run of a file's bytes is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Extent {
    /// First byte within the file.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// Bytes; of an open extent what the metadata store has heard of: its chunk may have more.
    #[prost(uint64, tag = "2")]
    pub length: u64,
    /// First byte within the group.
    #[prost(uint64, tag = "5")]
    pub group_offset: u64,
    /// Whether a writer may still be adding to it.
    #[prost(bool, tag = "6")]
    pub open: bool,
    /// Where the bytes of its group are.
    #[prost(message, required, tag = "9")]
    pub layout: Layout,
    /// Of an open one of several replicas: which start of its node each of them was placed into, in the order of the layout, column after column.
    /// One that has started anew since may have lost bytes. Empty: not told.
    #[prost(uint64, repeated, tag = "10")]
    pub starts: Vec<u64>,
    /// Of such a one: the generation of its writer. Chunks of a higher one are fenced. Zero: not told.
    #[prost(uint64, tag = "11")]
    pub generation: u64,
}

/// Where a file's bytes are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct LocateAnswer {
    /// The file.
    #[prost(message, required, tag = "1")]
    pub attributes: Attributes,
    /// Extents that touch the range, in order.
    #[prost(message, repeated, tag = "2")]
    pub extents: Vec<Extent>,
    /// Whether there are more after the last: ask again from its end.
    #[prost(bool, tag = "3")]
    pub more: bool,
}

/// Wishes for the bytes under a directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Policy {
    /// `base::policy::Class::code` plus one; zero means: as above.
    #[prost(uint32, tag = "1")]
    pub tier: u32,
    /// Copies; zero means: as above.
    #[prost(uint32, tag = "2")]
    pub replicas: u32,
    /// `base::policy::Compression::code` plus one; zero means: as above.
    #[prost(uint32, tag = "3")]
    pub compression: u32,
    /// Copies that there have to be places for; zero means: as above.
    #[prost(uint32, tag = "4")]
    pub least: u32,
}

/// Sets the policy of a file or directory.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SetPolicy {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// The wishes.
    #[prost(message, required, tag = "2")]
    pub policy: Policy,
}

/// The policy in force at a path.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PolicyAnswer {
    /// `base::policy::Class::code` plus one, inherited or own; zero means: nobody wished.
    #[prost(uint32, tag = "1")]
    pub tier: u32,
    /// Copies, inherited or own; zero means: nobody wished.
    #[prost(uint32, tag = "2")]
    pub replicas: u32,
    /// What was set at the path itself.
    #[prost(message, optional, tag = "3")]
    pub own: Option<Policy>,
    /// `base::policy::Compression::code` plus one, inherited or own; zero means: nobody wished.
    #[prost(uint32, tag = "4")]
    pub compression: u32,
    /// Copies that there have to be places for, inherited or own; zero means: nobody wished.
    #[prost(uint32, tag = "6")]
    pub least: u32,
}

/// Asks for the policy in force at a path, inherited parts included.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct GetPolicy {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
}

/// A call of a client of a gateway, which the client may ask again at another gateway.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Asked {
    /// The client's name.
    #[prost(message, required, tag = "1")]
    pub client: Id,
    /// Its number of the call, the same when it asks again.
    #[prost(fixed32, tag = "2")]
    pub call: u32,
}

/// Asks whether a change that carried this `asked` was made.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct Answered {
    /// Which call it was.
    #[prost(message, required, tag = "1")]
    pub asked: Asked,
}

/// Whether a change was made.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct AnsweredAnswer {
    /// It was, and is remembered.
    #[prost(bool, tag = "1")]
    pub known: bool,
    /// The file that it opened; zero: none.
    #[prost(uint64, tag = "2")]
    pub inode: u64,
}

/// Counts what lies under a path.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiskUsage {
    /// Absolute path.
    #[prost(string, tag = "1")]
    pub path: String,
    /// `next` of the answer before; empty at the start.
    #[prost(bytes = "vec", tag = "2")]
    pub resume: Vec<u8>,
}

/// A part of a count: add up the answers until `next` is empty.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DiskUsageAnswer {
    /// Files counted.
    #[prost(uint64, tag = "1")]
    pub files: u64,
    /// Directories counted, the path itself included.
    #[prost(uint64, tag = "2")]
    pub directories: u64,
    /// Bytes in those files.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    /// Where to go on; empty at the end.
    #[prost(bytes = "vec", tag = "4")]
    pub next: Vec<u8>,
}

/// Asks for all devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Devices {}

/// One device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Device {
    /// Its id.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// `base::policy::Class::code`.
    #[prost(uint32, tag = "2")]
    pub class: u32,
    /// Bytes it may use.
    #[prost(uint64, tag = "3")]
    pub capacity: u64,
    /// Bytes it uses, dead ones not yet given back included.
    #[prost(uint64, tag = "4")]
    pub used: u64,
    /// Bytes of chunks that are alive.
    #[prost(uint64, tag = "5")]
    pub live: u64,
    /// Chunks.
    #[prost(uint64, tag = "6")]
    pub chunks: u64,
    /// Where it is, for people: its directory.
    #[prost(string, tag = "7")]
    pub place: String,
    /// How it moves bytes: `io_uring`, `threads`, `memory`.
    #[prost(string, tag = "8")]
    pub backend: String,
    /// It was named when the node started and could not be opened.
    #[prost(bool, tag = "10")]
    pub missing: bool,
    /// It takes no writes after a failed write or sync.
    #[prost(bool, tag = "12")]
    pub out_of_service: bool,
    /// Disk operations that failed since the node started.
    #[prost(uint64, tag = "11")]
    pub failures: u64,
    /// Why it is out of service; empty when it serves.
    #[prost(string, tag = "9")]
    pub trouble: String,
    /// The last scrub since the node started.
    #[prost(message, optional, tag = "13")]
    pub scrub: Option<super::device::ScrubState>,
    /// It is being emptied.
    #[prost(message, optional, tag = "14")]
    pub drain: Option<super::device::DrainState>,
    /// Writers wait for room on it.
    #[prost(bool, tag = "15")]
    pub full: bool,
    /// The node that has it; none: the node that answered.
    #[prost(message, optional, tag = "16")]
    pub node: Option<super::id::Id>,
    /// Bytes that it keeps back, so that deletes work when it is full.
    #[prost(uint64, tag = "17")]
    pub reserve: u64,
    /// It was given up: nobody counts on what it has, and it takes nothing new.
    #[prost(bool, tag = "18")]
    pub lost: bool,
    /// How long it has been away, or failed, as far as whoever leads knows; zero: it is not.
    #[prost(uint64, tag = "19")]
    pub away_ms: u64,
}

/// All devices, and the namespace's totals.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DevicesAnswer {
    /// The devices.
    #[prost(message, repeated, tag = "1")]
    pub devices: Vec<Device>,
    /// Files in the namespace.
    #[prost(uint64, tag = "2")]
    pub files: u64,
    /// Directories in the namespace.
    #[prost(uint64, tag = "3")]
    pub directories: u64,
    /// Bytes in files.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// What has fewer replicas than it wants; none: its sender does not know.
    #[prost(message, optional, tag = "5")]
    pub lacks: Option<Lacks>,
}

/// How many groups of files that are closed have fewer replicas than they want, and how many bytes these have.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Lacks {
    /// Groups of which one good replica is left.
    #[prost(uint64, tag = "1")]
    pub one_left: u64,
    /// Their bytes.
    #[prost(uint64, tag = "2")]
    pub one_left_bytes: u64,
    /// Groups of which more are left.
    #[prost(uint64, tag = "3")]
    pub fewer: u64,
    /// Their bytes.
    #[prost(uint64, tag = "4")]
    pub fewer_bytes: u64,
    /// Groups of which none is left.
    #[prost(uint64, tag = "5")]
    pub none_left: u64,
    /// Their bytes.
    #[prost(uint64, tag = "6")]
    pub none_left_bytes: u64,
    /// What was on a device that was given up is being looked through: there may be more.
    #[prost(bool, tag = "7")]
    pub recounting: bool,
    /// Bytes that were copied for new replicas since the leader began to lead, those under way included.
    #[prost(uint64, tag = "8")]
    pub copied_bytes: u64,
    /// Replicas that were made since then.
    #[prost(uint64, tag = "9")]
    pub made: u64,
    /// Why replicas are not made that could be; empty: they are, or none lacks.
    #[prost(string, tag = "10")]
    pub waits: String,
    /// Why devices that are away for long are not given up by themselves; empty: they are, or none is.
    #[prost(string, tag = "11")]
    pub withheld: String,
}
