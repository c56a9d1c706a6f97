//! Names of things that machines use: 128-bit ids drawn at random, and numbers handed out by the metadata store.

use std::fmt;

macro_rules! wide_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// The sixteen bytes as they are sent and stored, most significant first, so that byte order is number order.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// The id with these sixteen bytes, most significant first.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }

            /// The id in these bytes, if there are exactly sixteen.
            pub fn from_slice(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_bytes)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
    };
}

impl NodeId {
    /// A number for one start of a node, which no other start of any node has by all chance, and which is never zero: starts are counted by each node
    /// for itself, and a disk may be put from one into another.
    pub fn start(self, incarnation: u64) -> u64 {
        let folded = (self.0 ^ (self.0 >> 64)) as u64;
        (folded ^ incarnation.wrapping_mul(0x9E37_79B9_7F4A_7C15)).max(1)
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

wide_id!(
    /// Names a chunk. Whoever creates the chunk draws it, so that a retried creation is recognised.
    ChunkId
);
wide_id!(
    /// Names a device for as long as its data lives, whatever path or node it is found at.
    DeviceId
);
wide_id!(
    /// Names a node for as long as its data lives.
    NodeId
);
wide_id!(
    /// Names one client process' session with the store.
    SessionId
);
wide_id!(
    /// Names a cluster: all nodes that make up one store.
    ClusterId
);

wide_id!(
    /// Names a request on all nodes that it passes, for people who follow it in logs. Nothing is decided by it. Zero: it has no name.
    RequestId
);

impl RequestId {
    /// It has no name.
    pub const NONE: RequestId = RequestId(0);

    /// A request that a session begins, by a number which the session gives once.
    pub const fn of(session: SessionId, number: u64) -> RequestId {
        RequestId((session.mark() as u128) << 64 | number as u128)
    }

    /// Whether it has no name.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl SessionId {
    /// The session's part of the names of what it pushes. Sessions are drawn at random: if two ever had the same, a device would
    /// remember what they pushed for longer than it had to.
    pub const fn mark(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

/// The name of a pushed chunk taken apart. It says who pushed it, so that a device can recognise the push for as long as it may be
/// asked again: until the pusher says that it has an answer to all pushes before a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PushName {
    /// `SessionId::mark` of the session that pushes.
    pub session: u64,
    /// Which of the session's streams: it has one for each device that it pushes to.
    pub stream: u16,
    /// Counts the pushes of the stream. 48 bits: at a million pushes a second they last nine years.
    pub number: u64,
}

impl PushName {
    const NUMBER_BITS: u32 = 48;

    /// The largest number that a name has room for.
    pub const NUMBER_MAX: u64 = (1 << PushName::NUMBER_BITS) - 1;

    /// The parts of a chunk's name: `session 64 | stream 16 | number 48`, most significant first.
    pub const fn of(chunk: ChunkId) -> PushName {
        let low = chunk.0 as u64;
        PushName {
            session: (chunk.0 >> 64) as u64,
            stream: (low >> PushName::NUMBER_BITS) as u16,
            number: low & PushName::NUMBER_MAX,
        }
    }

    /// The chunk's name. A number beyond `NUMBER_MAX` is cut.
    pub const fn chunk(self) -> ChunkId {
        let low = (self.stream as u64) << PushName::NUMBER_BITS | self.number & PushName::NUMBER_MAX;
        ChunkId((self.session as u128) << 64 | low as u128)
    }
}

impl ClusterId {
    /// The id as `Display` writes it: 32 hexadecimal digits. None for anything else.
    pub fn from_hex(text: &str) -> Option<ClusterId> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u128::from_str_radix(text, 16).ok().map(ClusterId)).flatten()
    }
}

number_id!(
    /// Names a file or directory; survives renames. The root directory is 1.
    InodeId
);
number_id!(
    /// Names a group: the chunks that hold bytes under one redundancy.
    GroupId
);
number_id!(
    /// Names a bag; survives restarts, never reused.
    BagId
);
number_id!(
    /// Rises when ownership of a file or chunk changes; the holder of an older one is refused.
    Generation
);

/// The root directory.
pub const ROOT: InodeId = InodeId(1);

/// Whom a chunk belongs to, as its records on the device say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A group of a file (or of many small files packed together).
    Group(GroupId),
    /// A bag.
    Bag(BagId),
    /// Something that a newer program knows. Its chunks are kept, listed and read, never changed, deleted or counted as damaged.
    Newer(NewerOwner),
}

/// An owner of a kind that this program does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NewerOwner {
    kind: u8,
    number: u64,
}

impl NewerOwner {
    /// Its kind.
    pub fn kind(self) -> u8 {
        self.kind
    }
    /// Its number among those of its kind.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl Owner {
    /// The owner of this kind and number: 1 a group, 2 a bag, up to 255 what newer programs know. None: kind 0 is nobody's.
    pub fn new(kind: u8, number: u64) -> Option<Owner> {
        match kind {
            0 => None,
            1 => Some(Owner::Group(GroupId(number))),
            2 => Some(Owner::Bag(BagId(number))),
            kind => Some(Owner::Newer(NewerOwner { kind, number })),
        }
    }

    /// Its kind, as `new` takes it.
    pub fn kind(self) -> u8 {
        match self {
            Owner::Group(_) => 1,
            Owner::Bag(_) => 2,
            Owner::Newer(owner) => owner.kind,
        }
    }

    /// Its number among those of its kind.
    pub fn number(self) -> u64 {
        match self {
            Owner::Group(group) => group.0,
            Owner::Bag(bag) => bag.0,
            Owner::Newer(owner) => owner.number,
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Group(group) => write!(f, "group {group}"),
            Owner::Bag(bag) => write!(f, "bag {bag}"),
            Owner::Newer(owner) => {
                write!(f, "owner {} of kind {}, which a newer Stormwell knows", owner.number, owner.kind)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkId, PushName, SessionId};

    /// A name is its parts and nothing else, and names of one stream are in the order of their numbers.
    #[test]
    fn names_of_pushes() {
        let session = SessionId(0x0123_4567_89AB_CDEF_0011_2233_4455_6677).mark();
        assert_eq!(session, 0x0123_4567_89AB_CDEF);
        let name = |stream, number| PushName { session, stream, number };
        let mut before = ChunkId(0);
        for name in [name(0, 0), name(0, 1), name(0, PushName::NUMBER_MAX), name(1, 0), name(u16::MAX, 7)] {
            assert_eq!(PushName::of(name.chunk()), name);
            assert!(name.chunk() > before);
            before = name.chunk();
        }
    }
}
