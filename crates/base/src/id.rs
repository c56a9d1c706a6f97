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
