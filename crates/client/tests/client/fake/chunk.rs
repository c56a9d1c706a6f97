//! Chunks of the fake: bytes in a list of parts, as they came.

use super::State;
use base::checksum::crc32c;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId};
use base::limit::BLOCK;
use bytes::Bytes;
use net::message::chunk::{Append, AppendAnswer, Read, ReadAnswer, Seal, SealAnswer, Stat, StatAnswer};
use std::ops::Range;

/// A replica of a chunk.
#[derive(Clone, Default)]
pub struct Stored {
    pub parts: Vec<Bytes>,
    pub length: u64,
    pub sealed: bool,
    pub generation: u64,
    /// Bytes that an append asked to be synced, and those before.
    pub synced: u64,
}

impl Stored {
    /// What was not synced is lost.
    fn cut(&mut self) {
        let kept = self.parts.concat()[..self.synced as usize].to_vec();
        (self.parts, self.length) = (vec![kept.into()], self.synced);
    }
}

fn missing() -> Error {
    Error::new(ErrorKind::NotFound, "the chunk is not here")
}

impl State {
    /// A sync of this device fails. What was not synced is gone at once, and so it is said to have started anew, at which it is gone there.
    pub fn fail_device(&mut self, device: u128) {
        self.failed_devices.insert(device);
        *self.starts.entry(device).or_insert(1) += 1;
        let its = self.chunks.iter_mut().filter(|((_, on), _)| *on == device);
        its.for_each(|(_, chunk)| chunk.cut());
    }

    /// The process behind a device starts anew: killed it loses nothing, without power what was not synced.
    pub fn restart(&mut self, device: u128, power: bool) {
        *self.starts.entry(device).or_insert(1) += 1;
        if power {
            let is_open = |on: u128, chunk: &Stored| on == device && !chunk.sealed;
            self.chunks.retain(|(_, on), chunk| !is_open(*on, chunk) || chunk.synced > 0);
            let open = self.chunks.iter_mut().filter(|((_, on), chunk)| is_open(*on, chunk));
            open.for_each(|(_, chunk)| chunk.cut());
        }
    }

    /// How often the process behind a device started.
    pub fn start_of(&self, device: u128) -> u64 {
        self.starts.get(&device).copied().unwrap_or(1)
    }

    /// What a device has of a chunk.
    pub fn stored(&self, chunk: ChunkId, device: DeviceId) -> Option<&Stored> {
        self.chunks.get(&(chunk.0, device.0))
    }

    fn check_takes(&self, device: u128) -> Result<()> {
        if self.failed_devices.contains(&device) {
            return Err(Error::new(ErrorKind::Io, "the device failed to sync"));
        }
        Ok(())
    }

    pub fn append(&mut self, ask: &Append, bytes: Bytes) -> Result<AppendAnswer> {
        self.check_takes(ask.device.value())?;
        let key = (ask.chunk.value(), ask.device.value());
        let there = self.chunks.get(&key).map_or(0, |chunk| chunk.length);
        // What is there needs no more room.
        if there < ask.offset + bytes.len() as u64 {
            self.refuse_full()?;
            if self.full_devices.contains(&ask.device.value()) {
                return Err(Error::new(ErrorKind::Full, "this device is full"));
            }
        }
        if self.faults.cut > 0 {
            self.faults.cut -= 1;
            self.append(&Append { seal: false, ..*ask }, bytes.slice(..bytes.len() / 2))?;
            return Err(Error::new(ErrorKind::Stale, "the chunk holds a part of the append"));
        }
        if ask.offset > 0 && !self.chunks.contains_key(&key) {
            return Err(missing());
        }
        let chunk = self.chunks.entry(key).or_default();
        let stale = |text: &str| Err(Error::new(ErrorKind::Stale, text));
        if ask.generation < chunk.generation {
            return stale("another writer took over");
        }
        chunk.generation = ask.generation;
        let end = ask.offset + bytes.len() as u64;
        if end > chunk.length || (ask.seal && !chunk.sealed) {
            if chunk.sealed || ask.offset != chunk.length {
                return stale("the append is not for the chunk's end");
            }
            chunk.length = end;
            chunk.parts.push(bytes);
            chunk.sealed = ask.seal;
        }
        if ask.level == 2 {
            chunk.synced = chunk.length;
        }
        Ok(AppendAnswer { length: chunk.length })
    }

    pub fn read(&mut self, ask: &Read) -> Result<(ReadAnswer, Bytes)> {
        let chunk = self.chunks.get(&(ask.chunk.value(), ask.device.value())).ok_or_else(missing)?;
        let mut out = Vec::new();
        for range in &ask.ranges {
            let overlaps = |(chunk, gone): &(u128, Range<u64>)| {
                *chunk == ask.chunk.value() && gone.start < range.offset + range.length && range.offset < gone.end
            };
            if self.released.iter().any(overlaps) {
                return Err(Error::new(ErrorKind::NotFound, "these bytes were released"));
            }
            let (mut start, end) = (0, range.offset.saturating_add(range.length));
            for part in &chunk.parts {
                let stop = start + part.len() as u64;
                let (from, to) = (range.offset.max(start), end.min(stop));
                if from < to {
                    out.extend_from_slice(&part[(from - start) as usize..(to - start) as usize]);
                }
                start = stop;
            }
        }
        self.bytes_read += out.len() as u64;
        let blocks = if ask.blocks && !self.faults.without_blocks {
            out.chunks(BLOCK).map(crc32c).collect()
        } else {
            Vec::new()
        };
        Ok((
            ReadAnswer { chunk_length: chunk.length, sealed: chunk.sealed, blocks, cells: Vec::new() },
            Bytes::from(out),
        ))
    }

    pub fn seal(&mut self, ask: &Seal) -> Result<SealAnswer> {
        self.check_takes(ask.device.value())?;
        if let Some(kind) = self.seals_refused.get(&ask.device.value()) {
            return Err(Error::new(*kind, "it is not sealed"));
        }
        let chunk = self.chunks.get_mut(&(ask.chunk.value(), ask.device.value())).ok_or_else(missing)?;
        if ask.generation < chunk.generation || ask.length != chunk.length {
            return Err(Error::new(ErrorKind::Stale, "another writer took over, or the length is another"));
        }
        (chunk.sealed, chunk.synced) = (true, chunk.length);
        Ok(SealAnswer { length: chunk.length, crc: crc32c(&chunk.parts.concat()) })
    }

    pub fn chunk_stat(&mut self, ask: &Stat) -> Result<StatAnswer> {
        let start = if ask.start { self.start_of(ask.device.value()) } else { 0 };
        let tail = self.tails.remove(&ask.device.value()).unwrap_or(0);
        if let Some(chunk) = self.chunks.get_mut(&(ask.chunk.value(), ask.device.value())).filter(|_| tail > 0) {
            chunk.parts.push(vec![7; tail].into());
            chunk.length += tail as u64;
        }
        match self.chunks.get(&(ask.chunk.value(), ask.device.value())) {
            Some(&Stored { length, sealed, generation, .. }) => {
                Ok(StatAnswer { length, sealed, generation, crc: None, start })
            }
            None if ask.start => Ok(StatAnswer { start, ..StatAnswer::default() }),
            None => Err(missing()),
        }
    }

    /// Moves a chunk to another name, as packing anew does.
    pub fn move_chunks(&mut self) {
        for group in self.files.groups.values_mut() {
            for chunk in group.layout.columns.iter_mut().map(|column| &mut column.chunk) {
                let (old, new) = (chunk.value(), chunk.value() + (1 << 100));
                let replicas: Vec<u128> =
                    self.chunks.range((old, 0)..=(old, u128::MAX)).map(|(key, _)| key.1).collect();
                for device in &replicas {
                    let stored = self.chunks.remove(&(old, *device)).expect("listed");
                    self.chunks.insert((new, *device), stored);
                }
                if !replicas.is_empty() {
                    *chunk = new.into();
                }
            }
        }
    }
}
