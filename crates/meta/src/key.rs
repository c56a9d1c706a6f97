//! Every key of the ordered state: one byte that says which kind, then its parts, most significant byte first.

mod format;

pub use format::{number_at, wide_at};

use base::id::{BagId, DeviceId, GroupId, InodeId, NodeId, SessionId};

/// A key. The comment says what lies under it. Ordinals are on disk: never change or reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// `MergedRecord`: the log sequence up to which the tree holds every change. Only in the tree.
    Merged,
    /// `CountersRecord`: the next ids and the totals.
    Counters,
    /// `KeepersRecord`: who keeps the metadata.
    Keepers,
    /// `NameRecord`: what the directory has under this name.
    Name(InodeId, &'a str),
    /// `InodeRecord`: a file or directory.
    Inode(InodeId),
    /// `ExtentRecord`: the extent of this file that ends before this offset. By its end, so that the extent with an offset in it
    /// is the first one with a greater key.
    Extent(InodeId, u64),
    /// `GroupRecord`.
    Group(GroupId),
    /// `XattrsRecord`: the extended attributes of a file or directory, if it has any.
    Xattrs(InodeId),
    /// `QuotaRecord`: the quota of a directory that has one.
    Quota(InodeId),
    /// Nothing: what is below this directory is being counted for its quota.
    Counting(InodeId),
    /// `RewantRecord`: what is below this directory, or this file, is being gone through, as its wish for copies changed; see `rewant.rs`.
    Rewant(InodeId),
    /// `SessionRecord`.
    Session(SessionId),
    /// `CallRecord`: a remembered reply of the session, or one that nobody asks for any more; see `calls.rs`.
    Call(SessionId, u16),
    /// `AnswerRecord`: a remembered reply to a gateway's client; slots are used in a circle.
    Answer(u32),
    /// `FloorRecord`: up to which number answers to this client of a gateway were forgotten.
    Floor(u128),
    /// Nothing: the session writes this file.
    SessionFile(SessionId, InodeId),
    /// Nothing: the group is garbage no sooner than the session is over: it owns it for small files, or had it taken away.
    SessionGroup(SessionId, GroupId),
    /// Nothing: a file whose writer's session ended; its last group has to be sealed.
    Orphan(InodeId),
    /// `DetachedRecord`: a file or directory without a name, being taken apart.
    Detached(InodeId),
    /// Nothing: a group without references; its chunks can go.
    GarbageGroup(GroupId),
    /// `RangeRecord`: bytes of a group, from this offset, that no file needs.
    GarbageRange(GroupId, u64),
    /// `BagRecord`: a deleted bag; its members' chunks can go.
    GarbageBag(BagId),
    /// Nothing: the group has fewer replicas than it wants; the number is `Lack::code`. So `GroupRecord::lacking` says, too.
    Lacking(u8, GroupId),
    /// `RecountRecord`: what lies on this device, which is lost or gone, is being looked through for what lacks replicas now.
    Recount(DeviceId),
    /// `BagRecord`.
    Bag(BagId),
    /// `BagNameRecord`: the bag of this name.
    BagName(&'a str),
    /// `DeviceRecord`.
    Device(DeviceId),
    /// `NodeRecord`.
    Node(NodeId),
    /// Nothing: the device was emptied and removed from the store.
    Removed(DeviceId),
    /// Nothing: the group has a replica on the device. Only in the tree; see `device_index.rs`.
    OnDevice(DeviceId, GroupId),
}

impl Key<'_> {
    /// The byte it begins with.
    pub fn ordinal(&self) -> u8 {
        match self {
            Key::Merged => 0x01,
            Key::Counters => 0x02,
            Key::Keepers => 0x03,
            Key::Name(..) => 0x10,
            Key::Inode(_) => 0x11,
            Key::Extent(..) => 0x12,
            Key::Group(_) => 0x13,
            Key::Xattrs(_) => 0x14,
            Key::Quota(_) => 0x15,
            Key::Counting(_) => 0x16,
            Key::Rewant(_) => 0x17,
            Key::Session(_) => 0x20,
            Key::Call(..) => 0x21,
            Key::SessionFile(..) => 0x22,
            Key::SessionGroup(..) => 0x23,
            Key::Orphan(_) => 0x24,
            Key::Answer(_) => 0x25,
            Key::Floor(_) => 0x26,
            Key::Detached(_) => 0x30,
            Key::GarbageGroup(_) => 0x31,
            Key::GarbageRange(..) => 0x32,
            Key::GarbageBag(_) => 0x33,
            Key::Lacking(..) => 0x34,
            Key::Recount(_) => 0x35,
            Key::Bag(_) => 0x40,
            Key::BagName(_) => 0x41,
            Key::Device(_) => 0x50,
            Key::Node(_) => 0x51,
            Key::Removed(_) => 0x52,
            Key::OnDevice(..) => 0x53,
        }
    }

    /// Whether it is on a list that the node works off.
    pub fn is_work(&self) -> bool {
        matches!(
            self,
            Key::Orphan(_) | Key::GarbageGroup(_) | Key::GarbageRange(..) | Key::GarbageBag(_) | Key::Lacking(..)
        )
    }
}

/// The first key after all keys that begin with `prefix`.
pub fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::{Key, after_prefix, number_at};
    use base::id::InodeId;

    /// Keys of one directory lie together in the order of their names, and numbers in their own order.
    #[test]
    fn order() {
        let name = |directory, name| Key::Name(InodeId(directory), name).encode();
        assert!(name(1, "a") < name(1, "b"));
        assert!(name(1, "zz") < name(2, ""));
        assert!(name(255, "") < name(256, ""));
        assert!(Key::Extent(InodeId(1), 255).encode() < Key::Extent(InodeId(1), 256).encode());
        assert_eq!(number_at(&name(77, "x"), 1), 77);
        assert_eq!(number_at(&[1, 2], 1), 0);
        assert_eq!(after_prefix(&[1, 255]), vec![2]);
        let prefix = name(u64::MAX, "");
        assert!(name(u64::MAX, "x") < after_prefix(&prefix));
    }
}
