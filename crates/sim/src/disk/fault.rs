//! Which faults a simulated device has, and when each fires.

use base::disk::FileKind;

/// When a fault fires, among the operations that could have it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Not at all.
    #[default]
    Never,
    /// Once: at the operation with this number, counted from 0 over the device's life.
    Nth(u64),
    /// By the seed, once in so many operations on average. Must not be zero.
    OneIn(u64),
    /// Once: at the next operation after the faults were set.
    Once,
    /// The same, and at so many in all of those that are under way then: they fail for one cause.
    Together(u64),
    /// Every time.
    Always,
}

/// The faults of a device. The default has none.
#[derive(Clone, Debug, Default)]
pub struct SimFaults {
    /// Reads that end with an I/O error.
    pub read_error: When,
    /// Reads that meet a block that rotted: one bit of it is turned over for good, and served so. Only durable blocks rot.
    pub rot_on_read: When,
    /// Writes that end with an I/O error; any part of their bytes may have reached the disk.
    pub write_error: When,
    /// Early writes (`base::disk::Early`) that end with an I/O error; any part of their bytes may be there.
    pub early_write_error: When,
    /// Removals of files that end with an I/O error.
    pub remove_error: When,
    /// Files of this kind find no room: making one ends with no space, however much there is.
    pub no_room_for: Option<FileKind>,
    /// Names of files of this kind cannot be made durable: making one ends so.
    pub unnamed: Option<FileKind>,
    /// A power loss takes every write to files of this kind that was not synced, instead of some.
    pub forgets: Option<FileKind>,
    /// Writes that are reported done and never happen.
    pub lost_write: When,
    /// Writes that are reported done and land at another block of the same file.
    pub misdirected_write: When,
    /// Syncs that end with an I/O error. As on Linux, what was unsynced is then forgotten: it can still be read,
    /// a later sync succeeds without it, and it is gone after a power loss.
    pub sync_error: When,
    /// Syncs that are reported done and do nothing.
    pub lying_sync: When,
    /// Bytes that fit: the sum of all file lengths without punched blocks. Beyond it, creating files and
    /// writing to punched blocks ends with no space.
    pub capacity: Option<u64>,
    /// The device stops when the change with this number would be done, counted from 0 over its life as `Operations::changes` counts.
    /// From then on nothing is done any more and `SimDevice::crashed` is true, until `SimDevice::crash` or `kill`. It fires once.
    pub crash_at: Option<u64>,
}

/// What a device was asked for so far and finished, with or without an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operations {
    /// Files made.
    pub creates: u64,
    /// Files removed.
    pub removes: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Punches.
    pub punches: u64,
    /// Bytes returned by reads.
    pub read_bytes: u64,
    /// Bytes given to writes.
    pub written_bytes: u64,
}

impl Operations {
    /// Everything that changes the device: creates, removes, writes, syncs and punches. A test that crashes at every number
    /// below the one a run without crash ended with has crashed at every place.
    pub fn changes(&self) -> u64 {
        self.creates + self.removes + self.writes + self.syncs + self.punches
    }
}
