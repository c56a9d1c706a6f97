//! What the node that keeps the metadata may order of a device, whichever node has it: the steps of collecting, sealing,
//! recovering and moving. Here they are done by the device's own node, and taken from the wire.

use crate::device::answer::wire_cell;
use crate::device::{Device, Item};
use base::checksum::BlockSums;
use base::disk::Caching;
use base::error::{ErrorKind, Result};
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use base::policy::Level;
use bytes::Bytes;
use chunk::{Check, ChunkStat, Engine, Reply, Request};
use net::cells::{self, Stored};

/// How far a chunk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes.
    pub length: u64,
    /// The highest generation seen.
    pub generation: Generation,
    /// Whether it is complete.
    pub sealed: bool,
    /// CRC32C of all that is stored of it, as it came, also of what was released since. None: its node, of an older version, does not say.
    pub crc: Option<u32>,
}

/// What is left of a chunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// (start, end) of each range that was not released, in order.
    pub ranges: Vec<(u64, u64)>,
    /// Its records are small.
    pub small_parts: bool,
}

/// A piece of a copy.
#[derive(Clone, Debug)]
pub struct Copied {
    /// As the original has it.
    pub generation: Generation,
    /// Where it goes: the length of the copy so far.
    pub offset: u64,
    /// The bytes.
    pub bytes: Bytes,
    /// How far they must have come before the answer.
    pub level: Level,
    /// As the original has it.
    pub small_parts: bool,
    /// Bytes of the chunk that they stand for; 0: for themselves.
    pub cell: u64,
}

/// A page of chunks, and whether there are more.
pub type Inventory = (Vec<(ChunkId, ChunkStat)>, bool);

impl Device {
    /// Raises a chunk's generation, durably. Its length, bytes.
    pub async fn fence(&self, chunk: ChunkId, generation: Generation) -> Result<u64> {
        match self.ask(Request::Fence { chunk, generation }).await? {
            Reply::Length(length) => Ok(length),
            other => unreachable!("a fence was answered by {other:?}"),
        }
    }

    /// Makes a chunk complete, durably.
    pub async fn seal(&self, chunk: ChunkId, generation: Generation, length: u64) -> Result<()> {
        self.ask(Request::Seal { chunk, generation, length }).await.map(drop)
    }

    /// Deletes chunks, durably.
    pub async fn delete(&self, chunks: Vec<ChunkId>) -> Result<()> {
        self.ask(Request::Delete { chunks }).await.map(drop)
    }

    /// Gives bytes of a chunk back: (offset, length) of each range.
    pub async fn release(&self, chunk: ChunkId, ranges: Vec<(u64, u64)>) -> Result<()> {
        self.ask(Request::Release { chunk, ranges }).await.map(drop)
    }

    /// Chunks in the order of their ids, behind `after`.
    pub async fn inventory(&self, after: Option<ChunkId>, limit: usize) -> Result<Inventory> {
        match self.ask(Request::List { after, limit }).await? {
            Reply::List { chunks, more } => Ok((chunks, more)),
            other => unreachable!("a list was answered by {other:?}"),
        }
    }

    /// What is known of a chunk, if it is there.
    pub async fn stat(&self, chunk: ChunkId) -> Result<Option<Extent>> {
        match self.ask(Request::Stat { chunk }).await {
            Ok(Reply::Stat(ChunkStat { length, generation, sealed, crc, .. })) => {
                Ok(Some(Extent { length, generation, sealed, crc: Some(crc) }))
            }
            Ok(other) => unreachable!("a chunk was asked about: {other:?}"),
            // Nothing was written to it yet.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Which bytes of a chunk were not released: (start, end) of each range, in order.
    pub async fn kept(&self, chunk: ChunkId) -> Result<Kept> {
        let look = move |engine: &Engine<_>| (engine.kept_ranges(chunk), engine.has_small_records(chunk));
        let (ranges, small_parts) = self.look(look).await?;
        Ok(Kept { ranges, small_parts })
    }

    /// Bytes of a chunk as they are stored, all of them compared with their checksums.
    pub async fn read(&self, chunk: ChunkId, start: u64, end: u64) -> Result<Vec<Stored>> {
        let (ranges, caching, check) = (vec![(start, end - start)], Caching::Around, Check::Here);
        let request = Request::Read { chunk, ranges, caching, check, cells: true };
        let Reply::Data { mut parts, cells, .. } = self.ask(request).await? else {
            unreachable!("bytes were asked for")
        };
        let bytes = if parts.len() == 1 { parts.remove(0) } else { Bytes::from(parts.concat()) };
        let cells: Vec<_> = cells.into_iter().map(wire_cell).collect();
        cells::apart(&cells, (start, end - start), bytes)
    }

    /// Adds to the copy of a group's chunk, or makes it.
    pub async fn append(&self, (group, chunk): (GroupId, ChunkId), piece: Copied) -> Result<()> {
        let Copied { generation, offset, bytes: payload, level, small_parts, cell } = piece;
        let (owner, sums) = (Owner::Group(group), BlockSums::of(&payload));
        // A chunk of small records may have cells between them.
        let (seal, small_parts) = (false, small_parts && cell == 0);
        let request =
            Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, small_parts, cell };
        self.ask(request).await.map(drop)
    }

    /// The bag is in this pass from now on, durably.
    pub async fn begin_pass(&self, bag: BagId, pass: u32, retain: bool) -> Result<()> {
        let before = self.look(move |engine| engine.bag_stat(bag).pass).await?;
        self.ask(Request::BagPass { bag, pass, retain }).await?;
        // Told again, it changes nothing: what was granted stays granted.
        if pass > before {
            self.send(Item::BagRewound { bag });
        }
        Ok(())
    }

    /// From now on new chunks of this bag are refused, durably.
    pub async fn seal_bag(&self, bag: BagId, epoch: u64) -> Result<()> {
        self.ask(Request::SealBag { bag, epoch }).await?;
        self.send(Item::BagChanged { bag });
        Ok(())
    }

    /// Takes chunks of a bag again that the device has left, durably.
    pub async fn readmit_bag(&self, bag: BagId) -> Result<()> {
        self.ask(Request::ReadmitBag { bag }).await?;
        self.send(Item::BagChanged { bag });
        Ok(())
    }

    /// Deletes all chunks of a bag and forgets its counters, durably.
    pub async fn drop_bag(&self, bag: BagId) -> Result<()> {
        self.ask(Request::DropBag { bag }).await?;
        self.send(Item::BagChanged { bag });
        Ok(())
    }
}
