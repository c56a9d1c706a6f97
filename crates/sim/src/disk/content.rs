//! What a simulated file holds: sparse blocks, now and on stable media, and the changes between the two.

use crate::random::{SimRandom, mix};
use base::env::Random;
use base::limit::BLOCK;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What a disk writes whole or not at all, in bytes.
pub(super) const SECTOR: usize = 512;
const SECTORS_PER_BLOCK: u64 = (BLOCK / SECTOR) as u64;

/// Bytes by block number; a block that is not there reads as zeros and costs nothing.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    written: BTreeMap<u64, Bytes>,
    punched: BTreeSet<u64>,
}

impl Blocks {
    /// Copies the bytes from `offset` on to `out`.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) {
        let mut at = offset;
        let mut rest = out;
        while !rest.is_empty() {
            let within = (at % BLOCK as u64) as usize;
            let length = rest.len().min(BLOCK - within);
            let (head, tail) = rest.split_at_mut(length);
            match self.written.get(&(at / BLOCK as u64)) {
                Some(bytes) => head.copy_from_slice(&bytes[within..within + length]),
                None => head.fill(0),
            }
            at += length as u64;
            rest = tail;
        }
    }

    /// Puts the bytes in, wherever they begin and end.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            let within = (at % BLOCK as u64) as usize;
            let (head, tail) = rest.split_at(rest.len().min(BLOCK - within));
            let number = at / BLOCK as u64;
            let mut block = self.block(number);
            block[within..within + head.len()].copy_from_slice(head);
            self.set(number, Bytes::copy_from_slice(&block));
            at += head.len() as u64;
            rest = tail;
        }
    }

    fn block(&self, number: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        if let Some(bytes) = self.written.get(&number) {
            block.copy_from_slice(bytes);
        }
        block
    }

    fn set(&mut self, number: u64, bytes: Bytes) {
        self.punched.remove(&number);
        self.written.insert(number, bytes);
    }

    /// Makes the sectors of the change that `keep` lets through.
    fn apply(&mut self, change: &Change, keep: impl Fn(u64) -> bool) {
        match change {
            Change::Write { first, blocks } => {
                for (place, bytes) in blocks.iter().enumerate() {
                    let sectors = place as u64 * SECTORS_PER_BLOCK..(place as u64 + 1) * SECTORS_PER_BLOCK;
                    self.overwrite(first + place as u64, bytes, sectors, &keep);
                }
            }
            Change::Punch { blocks } => {
                for number in blocks.clone().filter(|number| keep((number - blocks.start) * SECTORS_PER_BLOCK)) {
                    self.written.remove(&number);
                    self.punched.insert(number);
                }
            }
        }
    }

    fn overwrite(&mut self, number: u64, bytes: &Bytes, sectors: Range<u64>, keep: impl Fn(u64) -> bool) {
        let kept = sectors.clone().filter(|sector| keep(*sector)).count() as u64;
        if kept == SECTORS_PER_BLOCK {
            self.set(number, bytes.clone());
        } else if kept > 0 {
            let mut block = self.block(number);
            for (place, _) in sectors.enumerate().filter(|(_, sector)| keep(*sector)) {
                let range = place * SECTOR..(place + 1) * SECTOR;
                block[range.clone()].copy_from_slice(&bytes[range]);
            }
            self.set(number, Bytes::copy_from_slice(&block));
        }
    }
}

/// Something that was done to a file.
pub(super) enum Change {
    /// Blocks from `first` on have these bytes.
    Write { first: u64, blocks: Vec<Bytes> },
    /// These blocks are zeros and take no space.
    Punch { blocks: Range<u64> },
}

impl Change {
    fn sectors(&self) -> u64 {
        let blocks = match self {
            Change::Write { blocks, .. } => blocks.len() as u64,
            Change::Punch { blocks } => blocks.end - blocks.start,
        };
        blocks * SECTORS_PER_BLOCK
    }
}

/// Which sectors of a change reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    All,
    Nothing,
    First(u64),
    Some(u64),
}

impl Keep {
    /// One of the fates of a change that was under way or unsynced.
    pub(super) fn by_chance(change: &Change, random: &SimRandom) -> Keep {
        match random.below(4) {
            0 => Keep::All,
            1 => Keep::Nothing,
            2 => Keep::First(random.below(change.sectors().max(1))),
            _ => Keep::Some(random.next()),
        }
    }

    fn lets(self, sector: u64) -> bool {
        match self {
            Keep::All => true,
            Keep::Nothing => false,
            Keep::First(count) => sector < count,
            Keep::Some(seed) => mix(seed ^ mix(sector)) & 1 == 1,
        }
    }

    /// The name under which it is counted.
    pub(super) fn name(self) -> &'static str {
        match self {
            Keep::All => "kept",
            Keep::Nothing => "dropped",
            Keep::First(_) | Keep::Some(_) => "torn",
        }
    }
}

/// A change that is done and not durable.
struct Pending {
    /// Its place among all that the device did.
    sequence: u64,
    change: Change,
    keep: Keep,
}

/// A file of a device: what readers see, what a power loss leaves at least, and the changes in between, in the order they were done.
pub(super) struct Content {
    size: u64,
    current: Blocks,
    durable: Blocks,
    pending: Vec<Pending>,
}

impl Content {
    /// A file of `size` zeros.
    pub(super) fn new(size: u64) -> Content {
        Content { size, current: Blocks::default(), durable: Blocks::default(), pending: Vec::new() }
    }

    /// Its length in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that it takes on the device.
    pub(super) fn space(&self) -> u64 {
        self.size.saturating_sub(self.current.punched.len() as u64 * BLOCK as u64)
    }

    /// Bytes that a write of these blocks would take in addition.
    pub(super) fn more_space(&self, blocks: Range<u64>) -> u64 {
        self.current.punched.range(blocks).count() as u64 * BLOCK as u64
    }

    /// What readers see.
    pub(super) fn current(&self) -> &Blocks {
        &self.current
    }

    /// Does the change, not durably.
    pub(super) fn change(&mut self, sequence: u64, change: Change, keep: Keep) {
        self.current.apply(&change, |sector| keep.lets(sector));
        self.pending.push(Pending { sequence, change, keep });
    }

    /// Makes durable what was done before `sequence`, and by chance some of what was done since.
    pub(super) fn sync(&mut self, sequence: u64, random: &SimRandom) {
        // A prefix in the order of doing, so that of two writes to one place the older never comes back over the newer.
        let must = self.pending.partition_point(|pending| pending.sequence < sequence);
        let count = must + random.below((self.pending.len() - must) as u64 + 1) as usize;
        for pending in self.pending.drain(..count) {
            self.durable.apply(&pending.change, |sector| pending.keep.lets(sector));
        }
    }

    /// Forgets, for stable media, what is not durable; readers still see it.
    pub(super) fn forget(&mut self) {
        self.pending.clear();
    }

    /// The power is gone: each change that is not durable is kept, dropped or torn, whatever became of the others.
    /// Returns how each fared.
    pub(super) fn lose_power(&mut self, random: &SimRandom) -> Vec<Keep> {
        let mut fates = Vec::with_capacity(self.pending.len());
        for pending in std::mem::take(&mut self.pending) {
            let fate = Keep::by_chance(&pending.change, random);
            self.durable.apply(&pending.change, |sector| pending.keep.lets(sector) && fate.lets(sector));
            fates.push(fate);
        }
        self.current = self.durable.clone();
        fates
    }

    /// Puts bytes in, durably, lengthening the file if they reach beyond its end.
    pub(super) fn poke(&mut self, offset: u64, bytes: &[u8]) {
        self.size = self.size.max(offset + bytes.len() as u64);
        self.durable.write(offset, bytes);
        self.current.write(offset, bytes);
    }

    /// Whether readers see in this block what is on stable media.
    pub(super) fn is_durable(&self, block: u64) -> bool {
        self.current.written.get(&block) == self.durable.written.get(&block)
    }

    /// Turns over one bit on stable media, and for readers unless they see newer bytes.
    pub(super) fn rot(&mut self, offset: u64, bit: u32) {
        let shown = self.is_durable(offset / BLOCK as u64);
        let mut byte = [0];
        self.durable.read(offset, &mut byte);
        byte[0] ^= 1 << (bit % 8);
        self.durable.write(offset, &byte);
        if shown {
            self.current.write(offset, &byte);
        }
    }
}
