//! Bags: naming them, and the data path that touches no metadata.

use super::id::Id;
use super::outcome::Failure;
use prost::Message;

/// Makes a bag.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Create {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Do not mind if it exists.
    #[prost(bool, tag = "2")]
    pub exists_ok: bool,
    /// Acknowledged chunks stay, to be given once in each pass.
    #[prost(bool, tag = "3")]
    pub retain: bool,
    /// As in `Stat`.
    #[prost(bool, tag = "4")]
    pub uncounted: bool,
    /// How its chunks are compressed: `base::policy::Compression::code`.
    #[prost(uint32, tag = "5")]
    pub compression: u32,
    /// As in `Stat`.
    #[prost(uint32, tag = "6")]
    pub knows: u32,
}

/// Begins a new pass: every chunk that is there is given again, and acknowledgements of earlier passes are refused.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Rewind {
    /// The bag's name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Asks about a bag. Who wants to push or pull asks first, for its number and its devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Stat {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Leaves the counts at zero: no member is asked, so that it is cheap, and answered while one cannot be reached.
    #[prost(bool, tag = "2")]
    pub uncounted: bool,
    /// The largest `Compression::code` that the asker can undo: a bag beyond it is refused, so that nobody takes what lies in it
    /// for what was pushed.
    #[prost(uint32, tag = "3")]
    pub knows: u32,
}

/// A bag. Counts are sums over its devices at about the same moment.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Info {
    /// Its number.
    #[prost(uint64, tag = "1")]
    pub bag: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Whether pushes are refused for good.
    #[prost(bool, tag = "3")]
    pub sealed: bool,
    /// The epoch it was sealed at.
    #[prost(uint64, tag = "4")]
    pub epoch: u64,
    /// The devices that hold its chunks.
    #[prost(message, repeated, tag = "5")]
    pub members: Vec<Id>,
    /// Chunks pushed.
    #[prost(uint64, tag = "6")]
    pub pushed: u64,
    /// Bytes pushed, as they are stored.
    #[prost(uint64, tag = "7")]
    pub pushed_bytes: u64,
    /// Chunks acknowledged; of a bag that retains: in the present pass.
    #[prost(uint64, tag = "8")]
    pub acknowledged: u64,
    /// Bytes acknowledged, as they are stored.
    #[prost(uint64, tag = "9")]
    pub acknowledged_bytes: u64,
    /// Chunks that wait to be pulled.
    #[prost(uint64, tag = "10")]
    pub waiting: u64,
    /// Chunks granted and not yet acknowledged.
    #[prost(uint64, tag = "11")]
    pub granted: u64,
    /// Whether acknowledged chunks stay.
    #[prost(bool, tag = "12")]
    pub retain: bool,
    /// The present pass, counted from 0.
    #[prost(uint32, tag = "13")]
    pub pass: u32,
    /// How its chunks are compressed, by those who push: `Compression::code`.
    #[prost(uint32, tag = "14")]
    pub compression: u32,
    /// Of a bag in a list: members that could not be asked, whose counts are not in.
    #[prost(uint32, tag = "15")]
    pub unasked: u32,
}

/// Asks for a page of bags, in the order of their names.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct List {
    /// Names after this one; empty from the start.
    #[prost(string, tag = "1")]
    pub after: String,
    /// At most so many; `base::limit::LIST_PAGE_MAX` at the most, and if zero.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
}

/// A page of bags.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct ListAnswer {
    /// The bags, with the counts of those members that can be asked.
    #[prost(message, repeated, tag = "1")]
    pub bags: Vec<Info>,
    /// Whether there are more after the last.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Refuses further pushes, durably, on every member. A bag that is sealed already is answered.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Seal {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Removes a bag with what is in it.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Delete {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Pushes the frame's payload as one chunk: answered when it is synced.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Push {
    /// The bag.
    #[prost(uint64, tag = "1")]
    pub bag: u64,
    /// The member that takes it.
    #[prost(message, required, tag = "2")]
    pub device: Id,
    /// The chunk's name, a `base::id::PushName` of the client's session; asking again with the same name does not push twice.
    #[prost(message, required, tag = "3")]
    pub chunk: Id,
    /// The lowest number of a push of the name's stream that may be asked again: all below have their answers, or were given up. The
    /// member remembers what was handled that long, and stores nothing that still comes of pushes before.
    #[prost(uint64, tag = "4")]
    pub floor: u64,
}

/// The chunk is in the bag, unless it says that it was refused.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PushAnswer {
    /// Chunks that wait on this device, for choosing the next one.
    #[prost(uint64, tag = "1")]
    pub waiting: u64,
    /// Bytes of all producers' pushes, without this one, that the device has taken and not answered for; none: it did not count.
    #[prost(uint64, optional, tag = "2")]
    pub under_way: Option<u64>,
    /// Why the chunk was not stored and will not be, whatever is still on its way of this push: the bag takes no chunks here. It may be
    /// pushed to another member, under another name.
    #[prost(message, optional, tag = "3")]
    pub refused: Option<Failure>,
}

/// Asks for one chunk that nobody else has.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Pull {
    /// The bag.
    #[prost(uint64, tag = "1")]
    pub bag: u64,
    /// The member to take it from.
    #[prost(message, required, tag = "2")]
    pub device: Id,
    /// The grant's name, drawn by the client; asking again with the same name gives the same chunk.
    #[prost(fixed64, tag = "3")]
    pub grant: u64,
    /// Wait so long for a chunk to come, in milliseconds.
    #[prost(uint32, tag = "4")]
    pub wait_ms: u32,
    /// As in `Read`.
    #[prost(bool, tag = "5")]
    pub unchecked: bool,
}

/// How a pull ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Pulled {
    /// Nothing was there in the time given; there may be later.
    Nothing = 0,
    /// The payload is the chunk.
    Chunk = 1,
    /// The bag is sealed and everything on this device is acknowledged.
    Ended = 2,
}

/// A chunk, or why there is none.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct PullAnswer {
    /// Which of the three.
    #[prost(enumeration = "Pulled", tag = "1")]
    pub pulled: i32,
    /// The chunk's name.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The pass that the bag is in on this device, to which the chunk belongs. Older than the one that the metadata names: the device
    /// was not told of that yet, and its answer says nothing of it.
    #[prost(uint32, tag = "3")]
    pub pass: u32,
    /// Chunks that wait on this device.
    #[prost(uint64, tag = "4")]
    pub waiting: u64,
    /// The grant ends after so many milliseconds without renewal or acknowledgement.
    #[prost(uint32, tag = "5")]
    pub grant_ms: u32,
    /// Chunks granted to somebody and not yet acknowledged, on this device.
    #[prost(uint64, tag = "6")]
    pub granted: u64,
    /// So many microseconds the device had this pull, from the moment there was a chunk for it; zero: it was not measured.
    #[prost(uint32, tag = "7")]
    pub service_us: u32,
    /// Pulls that the device read for when it began with this one, this one too.
    #[prost(uint32, tag = "8")]
    pub under_way: u32,
}

/// One chunk and the grant it was pulled under.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Grant {
    /// The chunk.
    #[prost(message, required, tag = "1")]
    pub chunk: Id,
    /// The grant.
    #[prost(fixed64, tag = "2")]
    pub grant: u64,
}

/// Says that chunks are done with. Answered when that is durable.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Acknowledge {
    /// The bag.
    #[prost(uint64, tag = "1")]
    pub bag: u64,
    /// The member they were pulled from.
    #[prost(message, required, tag = "2")]
    pub device: Id,
    /// The pass.
    #[prost(uint32, tag = "3")]
    pub pass: u32,
    /// The chunks.
    #[prost(message, repeated, tag = "4")]
    pub grants: Vec<Grant>,
    /// The bag retains: the chunks stay, even if the member was not told.
    #[prost(bool, tag = "5")]
    pub retain: bool,
    /// Counts the session's messages of this kind to the member, from 1: asked again, it has the same number.
    #[prost(uint64, tag = "6")]
    pub number: u64,
    /// The lowest number that may be asked again: all below have their answers. The member remembers what was acknowledged that long.
    #[prost(uint64, tag = "7")]
    pub floor: u64,
}

/// How each acknowledgement fared, in their order.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct AcknowledgeAnswer {
    /// `code` zero means accepted. Refused means: somebody else has or had the chunk; discard what you made of it.
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<Failure>,
}

/// Keeps grants alive while their chunks are worked on.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RenewGrants {
    /// The bag.
    #[prost(uint64, tag = "1")]
    pub bag: u64,
    /// The member they were pulled from.
    #[prost(message, required, tag = "2")]
    pub device: Id,
    /// The grants.
    #[prost(message, repeated, tag = "3")]
    pub grants: Vec<Grant>,
}
