//! On-disk bytes of the metadata store: the records under the keys, and the entries and groups of its log.

pub use crate::answers::format::{
    AnswerRecord, AttributesRecord, CallRecord, FencedRecord, FileResultRecord, FilesRecord, FloorRecord, HandleRecord,
    LimitsRecord, PlacedRecord, ReplyRecord,
};
pub use crate::attributes::format::{InodeRecord, KeptRecord, OldNoteRecord, WriterRecord};
pub use crate::bags::format::{BagNameRecord, BagRecord, CarriedRecord};
use base::error::{Error, ErrorKind, Result};
use base::version::{ProgramVersion, newer};
use prost::Message;

/// Version of everything in this file. Older ones are read, too: version 1 knew no kinds of groups (`GroupRecord::kind`) and no notes of other
/// gateways (`InodeRecord::notes`), version 2 no access control lists (`InodeRecord::acl`), and they would lose them; up to version 3 the log was
/// another one (`old_log.rs`); up to version 4 nothing said how many replicas a group wants (`GroupRecord::wanted`), and what lacks some
/// would not be found. A store of a newer version is refused.
pub const VERSION: u32 = 6;
/// The oldest version that is read.
pub const VERSION_MIN: u32 = 1;
/// The least program that reads `VERSION`. Who raises the one raises the other.
pub const VERSION_SINCE: ProgramVersion = ProgramVersion { major: 0, minor: 1, patch: 0 };

/// The first version whose log is the keepers' (`quorum`).
pub const LOG_SINCE: u32 = 4;

/// A new file's generation.
pub const FIRST_GENERATION: u64 = 1;

/// Under `Key::Merged`.
#[derive(Clone, PartialEq, Message)]
pub struct MergedRecord {
    /// `VERSION` of the writer.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// Every log entry up to this one is in the tree.
    #[prost(uint64, tag = "2")]
    pub sequence: u64,
    /// The least program that knows everything in the metadata (`ProgramVersion::to_number`). Whoever is the first to write something of
    /// a kind that an older one does not know raises it before. Zero in version 1.
    #[prost(uint64, tag = "3")]
    pub least: u64,
    /// The tree has the index from devices to groups (`device_index.rs`). A program that does not know it leaves this out.
    #[prost(bool, tag = "4")]
    pub indexed: bool,
    /// The group of the keepers' log from behind which the log is asked for at a start, as others may lack what follows: its place. No entry behind
    /// `sequence` is in it or before it.
    #[prost(uint64, tag = "5")]
    pub index: u64,
    /// In which term it was written first.
    #[prost(uint64, tag = "6")]
    pub term: u64,
    /// CRC32C of it.
    #[prost(fixed32, tag = "7")]
    pub sum: u32,
    /// The keepers' log was begun. Before, all that counts is in the tree, and what is there of a log is none, or one of version 3 at the
    /// most, all of which the tree has.
    #[prost(bool, tag = "8")]
    pub begun: bool,
}

/// Under `Key::Keepers`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct KeepersRecord {
    /// Sixteen bytes, drawn when the log was begun: logs and votes of other stores are refused.
    #[prost(bytes = "vec", tag = "1")]
    pub store: Vec<u8>,
    /// The numbers of those that vote.
    #[prost(uint64, repeated, tag = "2")]
    pub voters: Vec<u64>,
    /// The number that the next one gets: none is given twice.
    #[prost(uint64, tag = "3")]
    pub next: u64,
}

/// Under `Key::Counters`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct CountersRecord {
    /// The next inode gets this number.
    #[prost(uint64, tag = "1")]
    pub next_inode: u64,
    /// The next group gets this number.
    #[prost(uint64, tag = "2")]
    pub next_group: u64,
    /// The next bag gets this number.
    #[prost(uint64, tag = "3")]
    pub next_bag: u64,
    /// Files that have a name or are being taken apart.
    #[prost(uint64, tag = "4")]
    pub files: u64,
    /// Directories, the root among them.
    #[prost(uint64, tag = "5")]
    pub directories: u64,
    /// Lengths of all these files together.
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    /// Rises with every change of the nodes and of what devices they have.
    #[prost(uint64, tag = "7")]
    pub epoch: u64,
    /// Directories that have a quota.
    #[prost(uint64, tag = "20")]
    pub quotas: u64,
    /// Groups of which a column has one good replica and wants more.
    #[prost(uint64, tag = "21")]
    pub one_left: u64,
    /// Their bytes.
    #[prost(uint64, tag = "22")]
    pub one_left_bytes: u64,
    /// Groups of which a column has fewer good replicas than it wants, and all have two.
    #[prost(uint64, tag = "23")]
    pub fewer: u64,
    /// Their bytes.
    #[prost(uint64, tag = "24")]
    pub fewer_bytes: u64,
    /// Groups of which a column has no good replica.
    #[prost(uint64, tag = "25")]
    pub none_left: u64,
    /// Their bytes.
    #[prost(uint64, tag = "26")]
    pub none_left_bytes: u64,
}

/// Under `Key::Name`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct NameRecord {
    /// What the name stands for.
    #[prost(uint64, tag = "1")]
    pub inode: u64,
    /// Whether that is a directory.
    #[prost(bool, tag = "2")]
    pub directory: bool,
}

/// A policy; absent parts are inherited.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct PolicyRecord {
    /// `Class::code`.
    #[prost(uint32, optional, tag = "1")]
    pub tier: Option<u32>,
    /// Copies.
    #[prost(uint32, optional, tag = "2")]
    pub replicas: Option<u32>,
    /// `Compression::code`.
    #[prost(uint32, optional, tag = "3")]
    pub compression: Option<u32>,
    /// Copies that there have to be places for.
    #[prost(uint32, optional, tag = "4")]
    pub least: Option<u32>,
}

/// Under `Key::Quota`: what may be below a directory, and what is.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct QuotaRecord {
    /// Tells it from others that the directory had before.
    #[prost(uint64, tag = "1")]
    pub serial: u64,
    /// Most names, the directory's own included; absent: as many as come.
    #[prost(uint64, optional, tag = "2")]
    pub names_max: Option<u64>,
    /// Most bytes, as often as each file counts; absent: as many as come.
    #[prost(uint64, optional, tag = "3")]
    pub bytes_max: Option<u64>,
    /// Names that there are, as far as they are counted.
    #[prost(uint64, tag = "4")]
    pub names: u64,
    /// Bytes that there are, as far as they are counted.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// How far they are counted; absent: completely.
    #[prost(message, optional, tag = "6")]
    pub counting: Option<WalkRecord>,
}

/// Under `Key::Detached`. Empty before there were quotas.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DetachedRecord {
    /// Quotas that what is below counts against until it is taken apart.
    #[prost(message, repeated, tag = "1")]
    pub charged: Vec<ChargedRecord>,
}

/// A quota, as something that counts against it knows it.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ChargedRecord {
    /// The directory that has it.
    #[prost(uint64, tag = "1")]
    pub directory: u64,
    /// `QuotaRecord::serial`: if it is another now, nothing counts against it.
    #[prost(uint64, tag = "2")]
    pub serial: u64,
}

/// Under `Key::Xattrs`.
#[derive(Clone, PartialEq, Message)]
pub struct XattrsRecord {
    /// In the order of their names' bytes.
    #[prost(message, repeated, tag = "1")]
    pub xattrs: Vec<XattrRecord>,
}

/// One extended attribute.
#[derive(Clone, PartialEq, Message)]
pub struct XattrRecord {
    /// With its namespace.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Any bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// Under `Key::Extent`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct ExtentRecord {
    /// Where in the file it begins.
    #[prost(uint64, tag = "1")]
    pub start: u64,
    /// The group with its bytes.
    #[prost(uint64, tag = "2")]
    pub group: u64,
    /// Where in the group they begin.
    #[prost(uint64, tag = "3")]
    pub group_offset: u64,
    /// How many they are.
    #[prost(uint64, tag = "4")]
    pub length: u64,
    /// CRC32C of them, if known.
    #[prost(fixed32, optional, tag = "5")]
    pub crc: Option<u32>,
}

/// Under `Key::Group`.
#[derive(Clone, PartialEq, Message)]
pub struct GroupRecord {
    /// Where its bytes are.
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<ColumnRecord>,
    /// Extents and writers that name it.
    #[prost(uint64, tag = "2")]
    pub references: u64,
    /// Bytes known to be in it.
    #[prost(uint64, tag = "3")]
    pub length: u64,
    /// It may still grow.
    #[prost(bool, tag = "4")]
    pub open: bool,
    /// It holds many small files.
    #[prost(bool, tag = "5")]
    pub packed: bool,
    /// Sixteen bytes, of a packed group that a session still adds to, or of one without bytes that was taken from the session's writer.
    #[prost(bytes = "vec", tag = "6")]
    pub session: Vec<u8>,
    /// Bytes of a cell; zero in groups of one column, which need none.
    #[prost(uint64, tag = "7")]
    pub cell: u64,
    /// How its bytes survive: 0 as replicas of its columns. A group of a kind that this program does not know is neither read, changed
    /// nor collected, and its record stays as it is. Tags 11 to 19 are for what other kinds add.
    #[prost(uint32, tag = "8")]
    pub kind: u32,
    /// k: data columns that are coded together; zero in kind 0.
    #[prost(uint32, tag = "9")]
    pub data: u32,
    /// m: parity columns for each k; zero in kind 0.
    #[prost(uint32, tag = "10")]
    pub parity: u32,
    /// How many replicas each of its columns shall have once it is closed; zero: one.
    #[prost(uint32, tag = "20")]
    pub wanted: u32,
    /// It has fewer than it wants: one more than `Lack::code`, which its `Key::Lacking` has. Zero: it has what it wants, or is open or garbage.
    #[prost(uint32, tag = "21")]
    pub lacking: u32,
}

/// One column of a group.
#[derive(Clone, PartialEq, Message)]
pub struct ColumnRecord {
    /// Chunks with the same bytes.
    #[prost(message, repeated, tag = "1")]
    pub replicas: Vec<ReplicaRecord>,
}

/// One chunk of a group.
#[derive(Clone, PartialEq, Message)]
pub struct ReplicaRecord {
    /// Sixteen bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub device: Vec<u8>,
    /// Sixteen bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub chunk: Vec<u8>,
    /// While the group is open and has several replicas: the start of the device's node when it was placed there
    /// (`base::id::NodeId::start`).
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// Of a closed group: its device was given up while another replica was good. It is not good before it was compared with one that is.
    #[prost(bool, tag = "4")]
    pub doubted: bool,
}

/// Under `Key::GarbageRange`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RangeRecord {
    /// Bytes.
    #[prost(uint64, tag = "1")]
    pub length: u64,
}

/// Under `Key::Recount`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub struct RecountRecord {
    /// Groups up to this one were looked at; absent: none yet.
    #[prost(uint64, optional, tag = "1")]
    pub after: Option<u64>,
}

/// Under `Key::Rewant`: how far the files below a directory, or one file, were gone through.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct RewantRecord {
    /// From the top down; none: of a file, or a file is the last.
    #[prost(message, repeated, tag = "1")]
    pub levels: Vec<WalkLevelRecord>,
    /// The file that is being gone through; zero: none.
    #[prost(uint64, tag = "2")]
    pub file: u64,
    /// Its extents up to this end are done.
    #[prost(uint64, tag = "3")]
    pub after: u64,
    /// Names that were looked at.
    #[prost(uint64, tag = "4")]
    pub names: u64,
    /// Groups that want another number of replicas since.
    #[prost(uint64, tag = "5")]
    pub groups: u64,
    /// When it began, in milliseconds since 1970.
    #[prost(uint64, tag = "6")]
    pub since: u64,
}

/// Under `Key::Session`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct SessionRecord {
    /// Its leases and remembered calls are being taken apart.
    #[prost(bool, tag = "1")]
    pub ended: bool,
    /// Whom files that it makes belong to; empty: nobody said.
    #[prost(string, tag = "2")]
    pub owner: String,
    /// And which group of people.
    #[prost(string, tag = "3")]
    pub group: String,
    /// Other groups that the user is in.
    #[prost(string, repeated, tag = "4")]
    pub groups: Vec<String>,
}

/// Under `Key::Device`.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceRecord {
    /// `Class::code`.
    #[prost(uint32, tag = "1")]
    pub class: u32,
    /// Bytes.
    #[prost(uint64, tag = "2")]
    pub capacity: u64,
    /// Sixteen bytes; the node that has it.
    #[prost(bytes = "vec", tag = "3")]
    pub node: Vec<u8>,
    /// It is being emptied and takes nothing new.
    #[prost(bool, tag = "4")]
    pub draining: bool,
    /// Higher than that of all devices that were being emptied when this one was to be; zero: it is not, or an older program began that.
    #[prost(uint64, tag = "5")]
    pub drain: u64,
    /// Nobody counts on it any more: what it has is not a replica to be relied on, and it takes nothing new.
    #[prost(bool, tag = "6")]
    pub lost: bool,
    /// It is lost because its node was silent for long, and not because a person said so: it may come back, and what waits for it does so still. A
    /// program that does not know this takes it for lost for good.
    #[prost(bool, tag = "7")]
    pub may_return: bool,
}

/// Under `Key::Node`.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct NodeRecord {
    /// Of the newest start that is known; an older one is refused.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// For people, one of its kind.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Where others reach it, `host:port`.
    #[prost(string, tag = "3")]
    pub address: String,
    /// Empty: nobody said.
    #[prost(string, tag = "4")]
    pub site: String,
    /// Empty: nobody said.
    #[prost(string, tag = "5")]
    pub rack: String,
    /// Where its HDFS gateway is, `host:port`; empty: it has none.
    #[prost(string, tag = "6")]
    pub hdfs: String,
    /// All its devices are being emptied, those too that it brings later.
    #[prost(bool, tag = "7")]
    pub leaving: bool,
}

/// Where a walk through a tree goes on; handed to clients as bytes.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WalkRecord {
    /// From the top down.
    #[prost(message, repeated, tag = "1")]
    pub levels: Vec<WalkLevelRecord>,
}

/// One directory of a walk.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct WalkLevelRecord {
    /// The directory.
    #[prost(uint64, tag = "1")]
    pub directory: u64,
    /// The last name done in it.
    #[prost(string, tag = "2")]
    pub after: String,
}

/// Largest sequence number, id or count that is believed: a million a second reach it after 290,000 years.
pub const SEQUENCE_MAX: u64 = 1 << 63;

/// An error if this version is not read.
pub fn check_version(version: u32, least: ProgramVersion) -> Result<()> {
    if (VERSION_MIN..=VERSION).contains(&version) {
        return Ok(());
    }
    if version > VERSION {
        let what =
            format!("the metadata has format version {version}, and versions {VERSION_MIN} to {VERSION} are read");
        return Err(newer(what, least));
    }
    let text = "the metadata has format version 0, which no program wrote; nothing was changed: keep the files and report this";
    Err(Error::new(ErrorKind::Corrupt, text))
}

/// A change of a log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// Its new value; none if it was removed.
    pub value: Option<Vec<u8>>,
}

/// A length that says: removed.
const REMOVED: u32 = u32::MAX;

/// Begins an entry: its sequence number (8 bytes) and how many changes follow (4 bytes), little-endian.
pub fn begin_entry(out: &mut Vec<u8>, sequence: u64, changes: u32) {
    out.extend_from_slice(&sequence.to_le_bytes());
    out.extend_from_slice(&changes.to_le_bytes());
}

/// Adds a change to an entry: key length (2 bytes), value length or `REMOVED` (4 bytes), key, value.
pub fn add_change(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    assert!(key.len() <= usize::from(u16::MAX), "keys are short: a kind, a number and a name");
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(&value.map_or(REMOVED, |value| value.len() as u32).to_le_bytes());
    out.extend_from_slice(key);
    out.extend_from_slice(value.unwrap_or_default());
}

/// The sequence number of the entry that `bytes` begins with.
pub fn first_of(bytes: &[u8]) -> Option<u64> {
    u64_at(bytes, 0)
}

/// Reads the entry that `bytes` begins with, and how many bytes it took. None if it is cut short.
pub fn decode_entry(bytes: &[u8]) -> Option<(u64, Vec<Change>, usize)> {
    let sequence = u64_at(bytes, 0)?;
    let count = u32_at(bytes, 8)?;
    let mut at = 12usize;
    // The count is foreign: nothing is allocated for it beforehand.
    let mut changes = Vec::new();
    for _ in 0..count {
        let key_length = usize::from(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?));
        let value_length = u32_at(bytes, at.checked_add(2)?)?;
        at = at.checked_add(6)?;
        let key = bytes.get(at..at.checked_add(key_length)?)?.to_vec();
        at = at.checked_add(key_length)?;
        let value = if value_length == REMOVED {
            None
        } else {
            let end = at.checked_add(usize::try_from(value_length).ok()?)?;
            let value = bytes.get(at..end)?.to_vec();
            at = end;
            Some(value)
        };
        changes.push(Change { key, value });
    }
    Some((sequence, changes, at))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{BagRecord, CallRecord, InodeRecord, NodeRecord, WalkRecord, add_change, begin_entry, decode_entry};
    use prost::Message;

    fn entry() -> Vec<u8> {
        let mut bytes = Vec::new();
        begin_entry(&mut bytes, 7, 2);
        add_change(&mut bytes, b"key", Some(b"value"));
        add_change(&mut bytes, b"gone", None);
        bytes
    }

    /// An entry reads back as it was written.
    #[test]
    fn round_trip() {
        let bytes = [entry(), vec![0xEE; 9]].concat();
        let Some((7, changes, used)) = decode_entry(&bytes) else { panic!("no entry") };
        assert_eq!(used, bytes.len() - 9);
        assert_eq!((changes[0].key.as_slice(), changes[0].value.as_deref()), (&b"key"[..], Some(&b"value"[..])));
        assert_eq!((changes[1].key.as_slice(), changes[1].value.as_deref()), (&b"gone"[..], None));
    }

    /// Any bytes are read or refused, never more.
    #[test]
    fn changed_bytes() {
        let good = entry();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                let _ = decode_entry(&bytes);
                let _ = decode_entry(&bytes[..at]);
                let _ = CallRecord::decode(&bytes[..at]);
                let _ = InodeRecord::decode(&bytes[at..]);
                let _ = BagRecord::decode(&bytes[at..]);
                let _ = WalkRecord::decode(&bytes[at..]);
                let _ = NodeRecord::decode(&bytes[at..]);
            }
        }
        assert_eq!(decode_entry(&[0xFF; 64]), None);
    }
}
