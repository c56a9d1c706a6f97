//! Names of blocks: which bytes of which file a block's number stands for.
//!
//! A regular block begins at a multiple of the file's block size, and its number says all: bit 63 is clear (set, it would mean
//! a striped block), bit 62 too, then 42 bits of the file's number and 20 of the block's place. Writers may end a block anywhere;
//! the next one gets a number with bit 62 set, which only the table here knows. It is for the writer alone: readers are
//! always shown regular blocks, so that what they know of a file does not change when it is closed.

use base::limit::HDFS_IRREGULAR_BLOCKS_MAX;
use base::unit::Time;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bits of a regular number that say which block of its file it is.
const INDEX_BITS: u32 = 20;
/// Bits that say which file.
const INODE_BITS: u32 = 42;
/// Set in the numbers of irregular blocks.
const IRREGULAR: u64 = 1 << 62;
const _: () = assert!(1 << (INDEX_BITS + INODE_BITS) == IRREGULAR);

/// An irregular block's number is known for so long after it was last used.
const IRREGULAR_KEPT: Duration = Duration::from_secs(3600);

/// Generation stamps are a file's generation and this: HDFS begins there, and some tools take smaller ones for none.
pub const FIRST_STAMP: u64 = 1000;

/// Where a block begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's number.
    pub inode: u64,
    /// Where within the file.
    pub base: Base,
}

/// Where a block begins within its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// After so many whole blocks.
    Blocks(u64),
    /// At this byte.
    Byte(u64),
}

impl Base {
    /// The byte, in a file with blocks of this size. None: no file is that long.
    pub fn byte(self, block_size: u64) -> Option<u64> {
        match self {
            Base::Blocks(blocks) => blocks.checked_mul(block_size),
            Base::Byte(byte) => Some(byte),
        }
    }
}

/// The numbers of blocks.
#[derive(Default)]
pub struct Blocks {
    irregular: Mutex<Irregular>,
}

/// Irregular blocks, by number and by place. The oldest numbers are the smallest.
#[derive(Default)]
struct Irregular {
    by_number: BTreeMap<u64, Known>,
    by_place: BTreeMap<(u64, u64), u64>,
    last: u64,
}

struct Known {
    inode: u64,
    base: u64,
    used: Time,
}

impl Blocks {
    /// The number of the block that begins at byte `base` of this file: always the same while it is in use.
    pub fn number(&self, inode: u64, base: u64, block_size: u64, now: Time) -> u64 {
        let index = base.checked_div(block_size).filter(|index| index * block_size == base);
        match index {
            Some(index) if inode < 1 << INODE_BITS && index < 1 << INDEX_BITS => inode << INDEX_BITS | index,
            _ => self.irregular().number(inode, base, now),
        }
    }

    /// Where the block of this number begins. None: it is no block, or an irregular one that was not used for long.
    pub fn place(&self, number: u64, now: Time) -> Option<Place> {
        if number < IRREGULAR {
            let (inode, index) = (number >> INDEX_BITS, number & ((1 << INDEX_BITS) - 1));
            return (inode > 0).then_some(Place { inode, base: Base::Blocks(index) });
        }
        let mut irregular = self.irregular();
        let known = irregular.by_number.get_mut(&number)?;
        known.used = now;
        Some(Place { inode: known.inode, base: Base::Byte(known.base) })
    }

    fn irregular(&self) -> MutexGuard<'_, Irregular> {
        self.irregular.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Irregular {
    fn number(&mut self, inode: u64, base: u64, now: Time) -> u64 {
        if let Some(number) = self.by_place.get(&(inode, base)) {
            if let Some(known) = self.by_number.get_mut(number) {
                known.used = now;
            }
            return *number;
        }
        self.forget_old(now);
        self.last = (self.last + 1) % IRREGULAR;
        let number = IRREGULAR | self.last;
        self.by_number.insert(number, Known { inode, base, used: now });
        self.by_place.insert((inode, base), number);
        number
    }

    /// Makes room for one more: the oldest go if nobody used them for long, and if the table is full in any case.
    fn forget_old(&mut self, now: Time) {
        while let Some(oldest) = self.by_number.first_entry() {
            let kept = now.since(oldest.get().used) < IRREGULAR_KEPT;
            if kept && self.by_number.len() < HDFS_IRREGULAR_BLOCKS_MAX {
                return;
            }
            if let Some((_, Known { inode, base, .. })) = self.by_number.pop_first() {
                self.by_place.remove(&(inode, base));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Base, Blocks, IRREGULAR, IRREGULAR_KEPT, Place};
    use base::limit::HDFS_IRREGULAR_BLOCKS_MAX;
    use base::unit::Time;
    use std::time::Duration;

    const NOW: Time = Time::ZERO;
    const SIZE: u64 = 128 << 20;

    /// Regular blocks are found by their number alone, in another gateway too; the numbers are positive and never zero.
    #[test]
    fn regular_numbers_say_all() {
        let (blocks, other) = (Blocks::default(), Blocks::default());
        for (inode, index) in [(1, 0), (16_385, 0), (16_385, 7), ((1 << 42) - 1, (1 << 20) - 1)] {
            let number = blocks.number(inode, index * SIZE, SIZE, NOW);
            assert!(number > 0 && number < IRREGULAR);
            let place = other.place(number, NOW).expect("a place");
            assert_eq!(place, Place { inode, base: Base::Blocks(index) });
            assert_eq!(place.base.byte(SIZE), Some(index * SIZE));
        }
        assert_eq!(blocks.number(16_385, 7 * SIZE, SIZE, NOW), 16_385 << 20 | 7);
    }

    /// Whatever does not fit a regular number gets an irregular one, the same each time; numbers that nobody gave mean nothing.
    #[test]
    fn irregular_numbers_are_remembered() {
        let blocks = Blocks::default();
        let places =
            [(5, 1000, SIZE), (5, 2000, SIZE), (6, 1000, SIZE), (7, 0, 0), (7, SIZE << 20, SIZE), (1 << 42, 0, SIZE)];
        let numbers: Vec<u64> =
            places.iter().map(|(inode, base, size)| blocks.number(*inode, *base, *size, NOW)).collect();
        for ((inode, base, size), number) in places.into_iter().zip(&numbers) {
            assert!(*number >= IRREGULAR && *number < 1 << 63);
            assert_eq!(blocks.place(*number, NOW), Some(Place { inode, base: Base::Byte(base) }));
            assert_eq!(blocks.number(inode, base, size, NOW), *number);
        }
        for nothing in [0, 5, (1 << 20) - 1, IRREGULAR, IRREGULAR | 100, 1 << 63, u64::MAX] {
            assert_eq!(blocks.place(nothing, NOW), None, "{nothing:x}");
        }
    }

    /// An irregular block that was not used for an hour goes when room is made, one in use stays; the table is bounded.
    #[test]
    fn irregular_numbers_are_forgotten() {
        let blocks = Blocks::default();
        let old = blocks.number(5, 1, SIZE, NOW);
        let later = NOW.after(IRREGULAR_KEPT - Duration::from_secs(1));
        assert!(blocks.place(old, later).is_some(), "used");
        let other = blocks.number(5, 2, SIZE, NOW.after(IRREGULAR_KEPT));
        assert!(blocks.place(old, later).is_some() && blocks.place(other, later).is_some());
        let end = later.after(2 * IRREGULAR_KEPT);
        let fresh = blocks.number(5, 3, SIZE, end);
        assert_eq!((blocks.place(old, end), blocks.place(other, end)), (None, None));
        for base in 0..HDFS_IRREGULAR_BLOCKS_MAX as u64 {
            blocks.number(6, 2 * base + 1, SIZE, end);
        }
        assert_eq!(blocks.place(fresh, end), None);
        assert_eq!(blocks.irregular().by_number.len(), HDFS_IRREGULAR_BLOCKS_MAX);
        assert_eq!(blocks.irregular().by_place.len(), HDFS_IRREGULAR_BLOCKS_MAX);
    }
}
