//! The bytes of a key: numbers most significant byte first, so that their order is the order of the state.

use super::Key;

impl Key<'_> {
    /// The bytes; their order is the order of the state.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.push(self.ordinal());
        match self {
            Key::Merged | Key::Counters | Key::Keepers => {}
            Key::Name(directory, name) => {
                out.extend_from_slice(&directory.0.to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Key::Inode(inode)
            | Key::Xattrs(inode)
            | Key::Quota(inode)
            | Key::Counting(inode)
            | Key::Rewant(inode)
            | Key::Orphan(inode)
            | Key::Detached(inode) => out.extend_from_slice(&inode.0.to_be_bytes()),
            Key::Extent(inode, end) => {
                out.extend_from_slice(&inode.0.to_be_bytes());
                out.extend_from_slice(&end.to_be_bytes());
            }
            Key::Group(group) | Key::GarbageGroup(group) => out.extend_from_slice(&group.0.to_be_bytes()),
            Key::Session(session) => out.extend_from_slice(&session.to_bytes()),
            Key::Call(session, slot) => {
                out.extend_from_slice(&session.to_bytes());
                out.extend_from_slice(&slot.to_be_bytes());
            }
            Key::Floor(client) => out.extend_from_slice(&client.to_be_bytes()),
            Key::Answer(slot) => out.extend_from_slice(&slot.to_be_bytes()),
            Key::SessionFile(session, inode) => {
                out.extend_from_slice(&session.to_bytes());
                out.extend_from_slice(&inode.0.to_be_bytes());
            }
            Key::SessionGroup(session, group) => {
                out.extend_from_slice(&session.to_bytes());
                out.extend_from_slice(&group.0.to_be_bytes());
            }
            Key::GarbageRange(group, offset) => {
                out.extend_from_slice(&group.0.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
            }
            Key::Lacking(code, group) => {
                out.push(*code);
                out.extend_from_slice(&group.0.to_be_bytes());
            }
            Key::GarbageBag(bag) | Key::Bag(bag) => out.extend_from_slice(&bag.0.to_be_bytes()),
            Key::BagName(name) => out.extend_from_slice(name.as_bytes()),
            Key::Device(device) | Key::Removed(device) | Key::Recount(device) => {
                out.extend_from_slice(&device.to_bytes())
            }
            Key::OnDevice(device, group) => {
                out.extend_from_slice(&device.to_bytes());
                out.extend_from_slice(&group.0.to_be_bytes());
            }
            Key::Node(node) => out.extend_from_slice(&node.to_bytes()),
        }
        out
    }
}

/// The number in the eight bytes of a key from `at`; zero if the key is too short, which no key that we wrote is.
pub fn number_at(key: &[u8], at: usize) -> u64 {
    match key.get(at..at.saturating_add(8)).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u64::from_be_bytes(bytes),
        None => 0,
    }
}

/// The wide number in the sixteen bytes of a key from `at`; zero if the key is too short.
pub fn wide_at(key: &[u8], at: usize) -> u128 {
    match key.get(at..at.saturating_add(16)).and_then(|bytes| bytes.try_into().ok()) {
        Some(bytes) => u128::from_be_bytes(bytes),
        None => 0,
    }
}
