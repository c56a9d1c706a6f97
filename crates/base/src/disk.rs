//! One device as a trait: a directory of numbered files, read and written in aligned blocks, operations in flight at once.
//!
//! An engine is a step function: it puts operations in with `submit` and takes what has finished with `poll`.
//! `os` has the real ones (io_uring, threads, memory); `sim` has one that tears, rots, fills, forgets and lies.

use crate::buffer::Buffer;
use bytes::Bytes;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a file of a device directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// Says which device this is. One block, number 0.
    Identity,
    /// A segment of the device log's data stream.
    Data,
    /// A segment of the device log's journal stream.
    Journal,
    /// A checkpoint of the device log's index.
    Checkpoint,
    /// A segment of the metadata store's log.
    Log,
    /// A keeper's vote, of which there are two copies: what it promised in the elections of who leads.
    Vote,
    /// What the device log's journal has a moment later (`Early`).
    Early,
}

impl FileKind {
    /// Every kind, for those that read a directory.
    pub const ALL: [FileKind; 7] = [
        FileKind::Identity,
        FileKind::Data,
        FileKind::Journal,
        FileKind::Checkpoint,
        FileKind::Log,
        FileKind::Vote,
        FileKind::Early,
    ];

    /// The word in the file's name.
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Identity => "identity",
            FileKind::Data => "data",
            FileKind::Journal => "journal",
            FileKind::Checkpoint => "checkpoint",
            FileKind::Log => "log",
            FileKind::Vote => "vote",
            FileKind::Early => "early",
        }
    }
}

/// A file of a device directory: `data-00000007`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName {
    /// What it is for.
    pub kind: FileKind,
    /// Its number within the kind.
    pub number: u32,
}

impl FileName {
    /// The file of this kind and number.
    pub const fn new(kind: FileKind, number: u32) -> FileName {
        FileName { kind, number }
    }

    /// The name in this text, if it is exactly what `Display` writes.
    pub fn parse(text: &str) -> Option<FileName> {
        let (word, digits) = text.split_once('-')?;
        let kind = FileKind::ALL.into_iter().find(|kind| kind.name() == word)?;
        let name = FileName::new(kind, digits.parse().ok()?);
        (name.to_string() == text).then_some(name)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:08}", self.kind.name(), self.number)
    }
}

/// What a new file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Space is set aside and reads as zeros, but was never written. Quick to make; the first write of each block costs more.
    Reserved,
    /// Zeros were written. For files that take many small synced writes.
    Zeros,
}

/// How a read goes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Past the page cache, whatever it holds: recovery, scrubs, bytes that were damaged in memory. What the device has.
    Around,
    /// From the page cache if it holds all of it already, else past it: large reads, which are not kept.
    MemoryOrAround,
    /// Through the page cache, so that the next reader finds it in memory.
    Through,
}

/// An operation. Offsets, lengths and addresses are multiples of `limit::BLOCK`.
#[derive(Debug)]
pub enum Op {
    /// Makes a file of `size` bytes. Done once it and its name would survive a power loss. An existing file is replaced.
    Create {
        /// The new file.
        file: FileName,
        /// Its length in bytes.
        size: u64,
        /// What it holds.
        fill: Fill,
    },
    /// Removes a file. Durable at some later time; a file that comes back must be recognised as old.
    Remove {
        /// The file. One that does not exist counts as removed.
        file: FileName,
    },
    /// Reads `length` bytes; what lies beyond the end of the file reads as missing (the buffer is shorter).
    Read {
        /// The file.
        file: FileName,
        /// Where to start, in bytes.
        offset: u64,
        /// How many bytes.
        length: usize,
        /// Through or around the page cache.
        caching: Caching,
    },
    /// Writes the parts one after another from `offset`. Not durable before a later `Sync` of the file is done.
    Write {
        /// The file, which is at least as long as the write reaches.
        file: FileName,
        /// Where to start, in bytes.
        offset: u64,
        /// The bytes. Each part's address and length are multiples of `limit::BLOCK`.
        parts: Vec<Bytes>,
    },
    /// Makes every write of the file that was done before this was submitted durable.
    Sync {
        /// The file.
        file: FileName,
    },
    /// Gives the range's space back; it reads as zeros afterwards. May be durable late.
    Punch {
        /// The file.
        file: FileName,
        /// Where to start, in bytes.
        offset: u64,
        /// How many bytes.
        length: u64,
    },
}

/// Bytes of a write that a thread does itself if the disk is fast. What is larger would keep it from what comes meanwhile.
pub const INLINE_MAX: usize = 64 << 10;

impl Op {
    /// Whether a thread may do it itself (`Disk::inline`): a sync, and a write of at most `INLINE_MAX` bytes.
    pub fn is_small(&self) -> bool {
        match self {
            Op::Sync { .. } => true,
            Op::Write { parts, .. } => parts.iter().map(Bytes::len).sum::<usize>() <= INLINE_MAX,
            _ => false,
        }
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// The file does not exist.
    NotFound,
    /// The file system has no room.
    NoSpace,
    /// The device reported an error: the text says which. After a failed `Sync` nothing unsynced may be believed.
    Io(String),
    /// The names of files could not be made durable, in this `Create` or one before: the text says why. What the system says of them from
    /// then on may not be believed, so no file is made any more.
    Unnamed(String),
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskError::NotFound => f.write_str("the file is not there"),
            DiskError::NoSpace => f.write_str("the file system has no room"),
            DiskError::Io(text) | DiskError::Unnamed(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for DiskError {}

/// A finished operation.
#[derive(Debug)]
pub struct Done {
    /// The number given with `submit`.
    pub token: u64,
    /// The bytes of a `Read`; an empty buffer for everything else.
    pub result: Result<Buffer, DiskError>,
}

/// Wakes the thread that waits in `Disk::poll`. May be called from any thread, at any time, at little cost.
pub trait Wake: Send + Sync {
    /// Makes the current or the next `poll` return without waiting further.
    fn wake(&self);
}

/// One file of a device directory that is written at once, by whoever calls, from memory to memory: through the page cache. What is
/// written survives the end of the process, however that comes, and may be lost with the power.
pub trait Early: Send + Sync {
    /// Writes the bytes at `offset`, neither of them aligned, within the file's length.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError>;
}

/// The operations of a device directory done by whoever calls, in its own thread, blocking.
pub trait Inline: Send + Sync {
    /// Whether they have been ending so fast of late that handing them to another thread would take as long.
    fn is_fast(&self) -> bool;

    /// Does one.
    fn execute(&self, op: Op) -> Result<Buffer, DiskError>;

    /// Something else that waits for the same disk, or for one as fast, took so long.
    fn took(&self, time: Duration);
}

/// One device directory. Operations may finish in any order; the engine orders them by waiting.
pub trait Disk: Send {
    /// The files that are there, with their lengths in bytes, in the order of their names. Blocks; used when opening.
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError>;

    /// Starts an operation. `token` comes back with its end; it must not be in use.
    fn submit(&mut self, token: u64, op: Op);

    /// Moves finished operations to `done`, waiting up to `wait` for the first (`None`: until something finishes or `Wake::wake`).
    /// Returns at once if something had finished or a wake came before.
    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>);

    /// The waker of this disk's `poll`.
    fn waker(&self) -> Arc<dyn Wake>;

    /// Whether files can be written at once. If not, the engine does without.
    fn has_early(&self) -> bool {
        false
    }

    /// The file, which is there, for writes that are done at once. None: it cannot be opened, or `has_early` says no.
    fn early(&mut self, _file: FileName) -> Option<Arc<dyn Early>> {
        None
    }

    /// For those who do small operations (`Op::is_small`) in their own thread, which has to order them with what was submitted. None: the disk
    /// takes none but those of its thread.
    fn inline(&self) -> Option<Arc<dyn Inline>> {
        None
    }

    /// How it moves bytes, for people and metrics: `io_uring`, `threads`, `memory`, `simulated`.
    fn backend(&self) -> &'static str;
}

/// Does one operation on a disk that does nothing else, and waits for its end: what opening does.
pub fn wait(disk: &mut dyn Disk, op: Op) -> Result<Vec<u8>, DiskError> {
    disk.submit(0, op);
    let mut done = Vec::new();
    loop {
        disk.poll(None, &mut done);
        if let Some(done) = done.pop() {
            return done.result.map(|buffer| buffer.to_vec());
        }
    }
}

/// One file of flexible length that is read and written at any offset, blocking: what the embedded tree of the metadata store needs.
pub trait BlockFile: Send + Sync + fmt::Debug {
    /// Its length in bytes.
    fn length(&self) -> std::io::Result<u64>;
    /// Fills `out` from `offset`; reading beyond the end is an error.
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()>;
    /// Cuts it, or lengthens it with zeros.
    fn set_length(&self, length: u64) -> std::io::Result<()>;
    /// Makes all earlier writes durable.
    fn sync(&self) -> std::io::Result<()>;
    /// Writes all of `data` at `offset`, which may lie at the end.
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()>;
}

#[cfg(test)]
mod tests {
    use super::{FileKind, FileName};

    /// Names read back as they were written, and nothing else is taken for one.
    #[test]
    fn names() {
        let name = FileName::new(FileKind::Data, 7);
        assert_eq!(name.to_string(), "data-00000007");
        assert_eq!(FileName::parse("data-00000007"), Some(name));
        for bad in ["data-7", "data", "date-00000007", "data-+0000007", "data-00000007.tmp"] {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }
}
