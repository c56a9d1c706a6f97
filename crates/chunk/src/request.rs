//! What can be asked of an engine, and what it answers.

use base::checksum::BlockSums;
use base::disk::{Caching, Op};
use base::error::Result;
use base::id::{BagId, ChunkId, DeviceId, Generation, Owner};
use base::policy::Level;
use bytes::Bytes;

/// Who compares bytes that are read with the checksums stored beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The engine, before it answers. What does not match is read once more, then reported with its place.
    Here,
    /// Whoever receives them: the answer's CRC is put together from the stored ones, without a pass over the bytes. Blocks
    /// of which only a part was asked for are compared by the engine all the same.
    ByReader,
    /// The same, block by block: the answer has the stored checksum of each.
    ByBlocks,
}

/// Something asked of the engine. Offsets and lengths are bytes.
#[derive(Clone, Debug)]
pub enum Request {
    /// Adds bytes to the end of an open chunk; the first append (offset 0) creates it. Answered with `Reply::Appended`
    /// when the bytes are at `level`. An append of no bytes asks for what is there to be brought to `level`.
    Append {
        /// The chunk.
        chunk: ChunkId,
        /// Whom it belongs to; must be the same in every append.
        owner: Owner,
        /// The writer's generation; a lower one than the chunk's is `Stale`, a higher one raises the chunk's.
        generation: Generation,
        /// The chunk's length before this append. An append of bytes that are there already is a retry, and answered.
        offset: u64,
        /// The bytes. Nothing is copied if they are aligned and large.
        payload: Bytes,
        /// Its checksums, compared with the client's when the bytes came in. They are stored with the bytes and compared
        /// whenever those are read, so that damage since then is seen, too.
        sums: BlockSums,
        /// How far the bytes must have come before the answer.
        level: Level,
        /// The chunk is complete with these bytes: it is sealed by the same durable record.
        seal: bool,
        /// The chunk will be read in small parts: its data records hold `limit::RECORD_PAYLOAD_MIN` bytes at most, so that
        /// header and bytes of any part up to there come with one read of the disk.
        small_parts: bool,
        /// Bytes of the chunk that the payload stands for, because its writer made it smaller; 0: for itself. A cell is whole
        /// blocks of a group's chunk, at most `limit::RECORD_PAYLOAD_MAX`, and more than its payload. It becomes one data record,
        /// which is only given back whole; what was made of the bytes is for the writer and its readers to know.
        cell: u64,
    },
    /// Reads ranges of a chunk: `Reply::Data`.
    Read {
        /// The chunk.
        chunk: ChunkId,
        /// (offset, length) of each range. What lies beyond the chunk's end is left out.
        ranges: Vec<(u64, u64)>,
        /// Through or around the page cache.
        caching: Caching,
        /// Who compares the bytes with their checksums.
        check: Check,
        /// Who asked can make bytes of a cell: a cell that a range touches is answered as it is stored, and whole. Else to touch
        /// one is `Unsupported`.
        cells: bool,
    },
    /// Makes a chunk complete and durable: `Reply::Sealed`. May be repeated.
    Seal {
        /// The chunk.
        chunk: ChunkId,
        /// The writer's generation.
        generation: Generation,
        /// The length the writer believes in; another one is an error.
        length: u64,
    },
    /// Raises the generation durably and makes what was received durable: `Reply::Length`.
    Fence {
        /// The chunk.
        chunk: ChunkId,
        /// The new generation; equal to the present one is a retry.
        generation: Generation,
    },
    /// Deletes chunks durably; those that do not exist count as deleted. `Reply::Done`.
    Delete {
        /// The chunks.
        chunks: Vec<ChunkId>,
    },
    /// These bytes are no longer needed; reading them is an error from now on. `Reply::Done`. Space comes back when whole
    /// records (up to 1 MiB) are released. Of a chunk that is not sealed also bytes that come there later.
    Release {
        /// The chunk.
        chunk: ChunkId,
        /// (offset, length) of each range.
        ranges: Vec<(u64, u64)>,
    },
    /// A consumer has handled chunks of bags: each is counted and, unless its bag retains, deleted, durably. `Reply::Acknowledged`.
    Acknowledge {
        /// Each chunk with the grant under which it was handled.
        chunks: Vec<(ChunkId, u64)>,
        /// The pass of the bag, counted from 0.
        pass: u32,
        /// Their bag retains. A device need not know that yet, or may have forgotten it with its power: it learns it here, before a chunk
        /// that has to stay would go.
        retain: bool,
        /// Which message says so, so that it is recognised when it comes again; none: it does not.
        by: Option<Asking>,
    },
    /// The bag is in this pass from now on, durably; acknowledgements of earlier ones are refused. `Reply::Done`. The highest
    /// pass is kept, and that a bag retains stays so.
    BagPass {
        /// The bag.
        bag: BagId,
        /// Counted from 0.
        pass: u32,
        /// Acknowledged chunks stay, to be given once in each pass, until the bag is dropped.
        retain: bool,
    },
    /// From now on new chunks of this bag are refused, durably. `Reply::Done`. The highest epoch is kept.
    SealBag {
        /// The bag.
        bag: BagId,
        /// The epoch at which it was sealed.
        epoch: u64,
    },
    /// Deletes all chunks of a bag and forgets its counters. `Reply::Done`.
    DropBag {
        /// The bag.
        bag: BagId,
    },
    /// Takes chunks of a bag again that was sealed here and has none here; changes nothing if it has, or was not. `Reply::Done`.
    ReadmitBag {
        /// The bag.
        bag: BagId,
    },
    /// What is known about a chunk: `Reply::Stat`.
    Stat {
        /// The chunk.
        chunk: ChunkId,
    },
    /// Chunks in the order of their ids: `Reply::List`.
    List {
        /// Start behind this one.
        after: Option<ChunkId>,
        /// At most so many.
        limit: usize,
    },
}

/// Which message of acknowledgements of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// `SessionId::mark` of the session.
    pub session: u64,
    /// Counts the session's messages of acknowledgements to this device, from 1.
    pub number: u64,
    /// The lowest number that may be asked again: all below have their answers.
    pub floor: u64,
}

/// How a chunk was acknowledged, as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// The grant under which it was handled.
    pub grant: u64,
    /// Which message said so; none: it does not come again.
    pub by: Option<Asking>,
    /// The lowest number of a push of the chunk's stream (`PushName`) that may be asked again, as far as that was heard.
    pub push_floor: u64,
}

/// The answer to a request that went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The bytes are at the level asked for.
    Appended {
        /// The chunk's length now, bytes.
        length: u64,
    },
    /// The bytes of the ranges, one after another. A range may take several parts.
    Data {
        /// The bytes.
        parts: Vec<Bytes>,
        /// CRC32C of all parts put together.
        crc: u32,
        /// CRC32C of every `limit::BLOCK` of these bytes, counted from the first one, as stored; the last may be short. Empty
        /// unless `Check::ByBlocks` was asked for, and if the stored ones are of blocks that begin elsewhere.
        blocks: Vec<u32>,
        /// What in these bytes is a cell as it is stored, in the order of the ranges.
        cells: Vec<Cell>,
        /// The chunk's length, bytes.
        chunk_length: u64,
        /// Whether it will stay so: the chunk is complete, or the device takes nothing any more.
        sealed: bool,
    },
    /// The chunk is sealed, durably.
    Sealed {
        /// Its length, bytes.
        length: u64,
        /// CRC32C of all that is stored of it.
        crc: u32,
    },
    /// The chunk's length, bytes, all durable.
    Length(u64),
    /// Done, durably.
    Done,
    /// One result for each chunk, in order: accepted, or why not (`Stale`: somebody else handled it: discard).
    Acknowledged {
        /// The results.
        results: Vec<Result<()>>,
    },
    /// What is known about a chunk.
    Stat(ChunkStat),
    /// A page of chunks in the order of their ids.
    List {
        /// The chunks.
        chunks: Vec<(ChunkId, ChunkStat)>,
        /// Whether there are more.
        more: bool,
    },
}

/// Bytes of a chunk that were made smaller by their writer, as they are in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Where in the chunk they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
    /// Bytes of the answer that stand for them.
    pub stored: u64,
}

/// What this device knows about a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BagStat {
    /// Complete chunks that were ever pushed here.
    pub pushed: u64,
    /// Their bytes.
    pub pushed_bytes: u64,
    /// Chunks that were acknowledged; of a bag that retains: in the present pass.
    pub acknowledged: u64,
    /// Their bytes.
    pub acknowledged_bytes: u64,
    /// The epoch at which further pushes were refused.
    pub sealed_epoch: Option<u64>,
    /// The present pass, counted from 0.
    pub pass: u32,
    /// Acknowledged chunks stay.
    pub retain: bool,
}

/// What is known about a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkStat {
    /// Whom it belongs to.
    pub owner: Owner,
    /// Bytes received.
    pub length: u64,
    /// The highest generation seen.
    pub generation: Generation,
    /// Whether it is complete.
    pub sealed: bool,
    /// CRC32C of all that is stored of it so far: of its bytes, if none are in cells.
    pub crc: u32,
}

/// What the engine wants done. `T` is the tag that came with the request.
#[derive(Debug)]
pub enum Effect<T> {
    /// Hand this to the disk; its end goes to `Engine::completed`.
    Disk {
        /// The number to submit it with.
        token: u64,
        /// The operation.
        op: Op,
    },
    /// The answer to a request.
    Reply {
        /// The tag that came with the request.
        tag: T,
        /// The answer.
        result: Result<Reply>,
    },
}

/// How full a device is. All but the counts in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// What the engine may use.
    pub capacity: u64,
    /// What its files occupy.
    pub used: u64,
    /// Payload of the chunks that exist, as it is stored.
    pub live: u64,
    /// Kept back so that deletes and repair work on a full device.
    pub reserve: u64,
    /// Chunks that exist.
    pub chunks: u64,
    /// Appends are waiting for room.
    pub full: bool,
    /// The device left service: only reads go on.
    pub failed: bool,
    /// Chunks whose stored bytes were found damaged since opening.
    pub damaged: u64,
}

/// How opening a device went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Which device this is.
    pub id: DeviceId,
    /// The version of its format, as it was found or made.
    pub version: u32,
    /// The directory was empty and has been made a device.
    pub formatted: bool,
    /// Records of the log that were applied after the checkpoint.
    pub records_replayed: u64,
    /// Bytes read from the log.
    pub bytes_scanned: u64,
    /// Records that were cut off at the end of the log because they had not become durable: no acknowledged byte was in them.
    pub torn: u64,
    /// Damage to what had been durable, one sentence each.
    pub rot: Vec<String>,
}
