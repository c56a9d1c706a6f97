//! Names of blocks: which bytes of which file a block's number stands for. Every gateway knows that from the number and the file.
//!
//! A regular number says the file and a place: bit 63 is clear (set, it would mean a striped block), bit 62 too, then 42 bits of the
//! file's number and 20 of the place. The first half of the places are blocks of the file's block size; behind those come steps of
//! blocks of twice the size, four times, and so on, so that the places of any file suffice. Writers may end a block anywhere; then the
//! next one has a number with bit 62 set, the file's number and one that counts, and the store keeps with the file where it begins, as
//! long as it is being written. It is for the writer alone: readers are always shown regular blocks, so that what they know of a
//! file does not change when it is closed.

use crate::message::hdfs::ExtendedBlock;
use client::Attributes;

/// Bits of a number that say which block of its file it is.
const INDEX_BITS: u32 = 20;
/// Bits that say which file.
const INODE_BITS: u32 = 42;
/// Set in the numbers of irregular blocks.
const IRREGULAR: u64 = 1 << 62;
const _: () = assert!(1 << (INDEX_BITS + INODE_BITS) == IRREGULAR);
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// Places of blocks of the file's block size.
const PLAIN: u64 = 1 << (INDEX_BITS - 1);
/// Places of each step of larger blocks behind them.
const STEP: u64 = 1 << 14;
const _: () = assert!(PLAIN + 32 * STEP == 1 << INDEX_BITS);

/// Generation stamps of blocks begin here, as in HDFS: some tools take smaller ones for none.
const STAMP_BASE: u64 = 1000;

/// Bits of a stamp that count how often a writer's connection to its block was renewed, below those of the file's generation: so each
/// gateway knows the first stamp of a generation, and none of an older one is as high.
const GRANT_BITS: u32 = 16;

/// Stamps are signed numbers to Java: generations beyond this have the same one. No file is opened as often.
const GENERATION_MAX: u64 = (1 << (63 - GRANT_BITS)) - 2;
const _: () = assert!((STAMP_BASE + ((GENERATION_MAX + 1) << GRANT_BITS)) < 1 << 63);

/// The first generation stamp of a file's blocks at this generation.
pub fn first_stamp(generation: u64) -> u64 {
    STAMP_BASE + (generation.min(GENERATION_MAX) << GRANT_BITS)
}

/// The highest one.
pub fn last_stamp(generation: u64) -> u64 {
    first_stamp(generation) + ((1 << GRANT_BITS) - 1)
}

/// The generation of a file that a stamp is of.
pub fn generation_of(stamp: u64) -> u64 {
    stamp.saturating_sub(STAMP_BASE) >> GRANT_BITS
}

/// Bytes that a file had when its holder opened it, through whichever gateway; as many as it has, if that is not known.
pub fn began_at(attributes: &Attributes) -> u64 {
    if attributes.began_generation == 0 { attributes.length } else { attributes.began_length }
}

/// Whether a block is named as it was before the holder of its file opened that: what is said of it comes late.
pub fn is_of_earlier(block: &ExtendedBlock, attributes: &Attributes) -> bool {
    generation_of(block.generation_stamp) < attributes.began_generation
}

/// What a block's number says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedBlock {
    /// The file's number.
    pub inode: u64,
    /// Where within the file.
    pub base: Base,
}

/// Where a block begins within its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// At this place.
    Regular(u64),
    /// Where the store says as long as it is being written, if it is the block of this number.
    Irregular(u32),
}

impl NamedBlock {
    /// The first byte within the file that these attributes are of. None: no file is that long, or the block is not being written.
    pub fn byte(self, attributes: &Attributes, block_size: u64) -> Option<u64> {
        match self.base {
            Base::Regular(place) => start_of(place, block_size),
            Base::Irregular(number) => {
                let here = attributes.block_base != 0 && attributes.block_number == number;
                here.then_some(attributes.block_base)
            }
        }
    }

    /// The byte behind a block that is full. None: a writer ends it where it likes, or no file is that long.
    pub fn end(self, block_size: u64) -> Option<u64> {
        match self.base {
            Base::Regular(place) => start_of(place + 1, block_size),
            Base::Irregular(_) => None,
        }
    }
}

/// Whether blocks of this file have numbers.
pub fn has_numbers(inode: u64) -> bool {
    inode < 1 << INODE_BITS
}

/// The number of the block at this place of a file.
pub fn number(inode: u64, place: u64) -> u64 {
    (inode & ((1 << INODE_BITS) - 1)) << INDEX_BITS | (place & INDEX_MASK)
}

/// The number of the block that a writer begins at this byte. None: it is no regular one.
pub fn number_at(inode: u64, base: u64, block_size: u64) -> Option<u64> {
    let place = base.checked_div(block_size).filter(|place| place * block_size == base && *place < PLAIN)?;
    Some(number(inode, place))
}

/// The number of an irregular block.
pub fn irregular(inode: u64, count: u32) -> u64 {
    IRREGULAR | number(inode, u64::from(count))
}

/// The count that comes after this one.
pub fn count_after(count: u32) -> u32 {
    ((u64::from(count) + 1) & INDEX_MASK) as u32
}

/// What a block's number says. None: it is none.
pub fn place(block: u64) -> Option<NamedBlock> {
    let (inode, index) = ((block & (IRREGULAR - 1)) >> INDEX_BITS, block & INDEX_MASK);
    if block >> 63 != 0 || inode == 0 {
        return None;
    }
    let base = if block < IRREGULAR { Base::Regular(index) } else { Base::Irregular(index as u32) };
    Some(NamedBlock { inode, base })
}

/// The first byte at a place. None: no file is that long.
pub fn start_of(place: u64, block_size: u64) -> Option<u64> {
    if place < PLAIN {
        return place.checked_mul(block_size);
    }
    let (step, within) = ((place - PLAIN) / STEP, (place - PLAIN) % STEP);
    let size = u128::from(block_size);
    // All steps before have STEP blocks of 2, 4 and more sizes: together 2 * (2^step - 1) times STEP.
    let before = u128::from(PLAIN) + 2 * ((1u128.checked_shl(step as u32)?) - 1) * u128::from(STEP);
    let start = (before + (u128::from(within) << (step + 1))).checked_mul(size)?;
    u64::try_from(start).ok()
}

/// The place whose block has this byte. None: no place has it.
pub fn place_of(byte: u64, block_size: u64) -> Option<u64> {
    let plain = byte.checked_div(block_size)?;
    if plain < PLAIN {
        return Some(plain);
    }
    let mut behind = plain - PLAIN;
    for step in 0..32 {
        let length = STEP << (step + 1);
        if behind < length {
            return Some(PLAIN + step * STEP + (behind >> (step + 1)));
        }
        behind -= length;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{
        Base, INDEX_BITS, IRREGULAR, NamedBlock, PLAIN, STEP, count_after, first_stamp, generation_of, irregular,
    };
    use super::{last_stamp, number, number_at, place, place_of, start_of};
    use client::Attributes;

    const SIZE: u64 = 128 << 20;

    /// A regular number says which bytes it stands for: each place of a file has one, whose block follows the one before without a gap,
    /// and the blocks of a file's places cover more bytes than any file has.
    #[test]
    fn regular_numbers() {
        assert_eq!(number_at(16_385, 7 * SIZE, SIZE), Some(16_385 << 20 | 7));
        let places = [0, 1, PLAIN - 1, PLAIN, PLAIN + 1, PLAIN + STEP - 1, PLAIN + STEP, (1 << INDEX_BITS) - 1];
        for size in [1, 512] {
            for at in places {
                let (begin, end) = (start_of(at, size).expect("short"), start_of(at + 1, size).expect("short"));
                assert!(begin < end, "{at}");
                assert_eq!((place_of(begin, size), place_of(end - 1, size)), (Some(at), Some(at)), "{size}");
                let attributes = Attributes::default();
                let named = place(number(5, at)).expect("a block");
                assert_eq!((named.inode, named.byte(&attributes, size), named.end(size)), (5, Some(begin), Some(end)));
            }
        }
        assert!(start_of(1 << INDEX_BITS, 1).is_some_and(|end| end > 1 << 47));
        assert_eq!((start_of(PLAIN, u64::MAX), place_of(7, 0)), (None, None));
        assert_eq!((number_at(5, 1, SIZE), number_at(5, PLAIN * SIZE, SIZE)), (None, None));
        for nothing in [0, 5, (1 << 20) - 1, IRREGULAR, IRREGULAR | 100, 1 << 63, u64::MAX] {
            assert_eq!(place(nothing), None, "{nothing:x}");
        }
    }

    /// An irregular block begins where the store says as long as it is the one that is being written; the count never leaves the number's
    /// bits.
    #[test]
    fn irregular_numbers() {
        let attributes = Attributes { block_base: 77, block_number: 9, ..Attributes::default() };
        let named = place(irregular(6, 9)).expect("a block");
        assert_eq!(named, NamedBlock { inode: 6, base: Base::Irregular(9) });
        assert_eq!((named.byte(&attributes, SIZE), named.end(SIZE)), (Some(77), None));
        assert_eq!(place(irregular(6, 8)).expect("a block").byte(&attributes, SIZE), None);
        assert_eq!(named.byte(&Attributes::default(), SIZE), None);
        assert_eq!(count_after((1 << INDEX_BITS) - 1), 0);
    }

    /// Stamps of a generation are above all of the one before, whatever was granted then, and are positive numbers to Java.
    #[test]
    fn stamps() {
        for generation in [0, 1, 2, 1 << 20, (1 << 47) - 3] {
            let (first, last) = (first_stamp(generation), last_stamp(generation));
            assert!(first < last && last < first_stamp(generation + 1));
            assert_eq!((generation_of(first), generation_of(last)), (generation, generation));
        }
        assert!(last_stamp(u64::MAX) <= i64::MAX as u64);
        assert_eq!((first_stamp(0), generation_of(0)), (1000, 0));
    }
}
