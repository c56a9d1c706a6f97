//! CRC32C (Castagnoli, RFC 3720) of bytes, of blocks, and of bytes put together from parts.

use crate::limit::BLOCK;
use crc_fast::{CrcAlgorithm, checksum};

/// CRC32C of these bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// CRC-32 of IEEE 802.3 of these bytes: what others may send instead.
pub fn crc32(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32IsoHdlc, bytes) as u32
}

/// CRC32C of `a` followed by `b`, from their checksums and the length of `b`.
pub fn combine(crc_a: u32, crc_b: u32, length_b: u64) -> u32 {
    if length_b == BLOCK as u64 {
        return shift(&BLOCK_TABLES, crc_a) ^ crc_b;
    }
    if length_b == SECTOR as u64 {
        return shift(&SECTOR_TABLES, crc_a) ^ crc_b;
    }
    // One map for each bit of the length: lengths here are mostly powers of two, so one or two maps.
    let mut shifted = crc_a;
    let mut rest = length_b;
    while rest != 0 {
        shifted = apply(&MAPS[rest.trailing_zeros() as usize], shifted);
        rest &= rest - 1;
    }
    shifted ^ crc_b
}

/// CRC32C of every block of some bytes, the last of which may be short, and of all of them together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSums {
    /// Empty while there is one block: then it is `whole`, and nothing is allocated for a small payload.
    blocks: Vec<u32>,
    whole: u32,
    length: usize,
}

impl BlockSums {
    /// Of these bytes, in one pass.
    pub fn of(bytes: &[u8]) -> BlockSums {
        let mut sums = BlockSums::for_length(bytes.len());
        bytes.chunks(BLOCK).for_each(|block| sums.add(block));
        sums
    }

    /// Of no bytes yet, with room for those of `length` bytes.
    pub fn for_length(length: usize) -> BlockSums {
        let blocks = length.div_ceil(BLOCK);
        BlockSums { blocks: Vec::with_capacity(if blocks > 1 { blocks } else { 0 }), whole: 0, length: 0 }
    }

    /// Adds the next block. Only the last one may be shorter than `BLOCK`.
    pub fn add(&mut self, block: &[u8]) {
        assert!(self.length.is_multiple_of(BLOCK), "{} bytes behind a short block", block.len());
        self.add_known(crc32c(block), block.len());
    }

    /// Adds bytes with this CRC32C, which end in the block that they begin in.
    pub fn add_known(&mut self, crc: u32, length: usize) {
        let begun = self.length % BLOCK;
        assert!(length <= BLOCK - begun, "{length} bytes behind {begun} of a block");
        if length == 0 {
            return;
        }
        if begun > 0 {
            if let Some(last) = self.blocks.last_mut() {
                *last = combine(*last, crc, length as u64);
            }
        } else if self.length > 0 {
            if self.blocks.is_empty() {
                self.blocks.push(self.whole);
            }
            self.blocks.push(crc);
        }
        self.whole = combine(self.whole, crc, length as u64);
        self.length += length;
    }

    /// Those of `bytes`, which are the first of the bytes that these sums are of: nothing is summed again but a block that is cut.
    pub fn of_first(&self, bytes: &[u8]) -> BlockSums {
        assert!(bytes.len() <= self.length, "sums of {} bytes for {}", self.length, bytes.len());
        let mut sums = BlockSums::for_length(bytes.len());
        let (full, cut) = bytes.split_at(bytes.len() / BLOCK * BLOCK);
        self.blocks().iter().take(full.len() / BLOCK).for_each(|crc| sums.add_known(*crc, BLOCK));
        sums.add_known(crc32c(cut), cut.len());
        sums
    }

    /// Of all bytes together.
    pub fn whole(&self) -> u32 {
        self.whole
    }

    /// Of each block, in order.
    pub fn blocks(&self) -> &[u32] {
        if self.blocks.is_empty() && self.length > 0 { std::slice::from_ref(&self.whole) } else { &self.blocks }
    }

    /// Bytes that were added.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// CRC32C of every so many bytes (a unit) of what is added in pieces of any length, and of each piece: one pass for those who
/// compare with the one and send the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitSums {
    /// Bytes that a checksum covers.
    unit: usize,
    full: Vec<u32>,
    /// Of the last unit while it is not full, and how many bytes it has.
    last: (u32, usize),
}

/// A place to go back to.
#[derive(Clone, Copy, Debug)]
pub struct UnitMark {
    full: usize,
    last: (u32, usize),
}

impl UnitSums {
    /// Of no bytes yet, one for each `unit` of them, with room for those of `length` bytes.
    pub fn for_length(unit: usize, length: usize) -> UnitSums {
        assert!(unit > 0, "checksums of nothing");
        UnitSums { unit, full: Vec::with_capacity(length.div_ceil(unit)), last: (0, 0) }
    }

    /// Adds these bytes. Answers with their own CRC32C.
    pub fn add(&mut self, mut bytes: &[u8]) -> u32 {
        let mut whole = 0;
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(self.unit - self.last.1));
            let crc = crc32c(part);
            whole = combine(whole, crc, part.len() as u64);
            self.last = (combine(self.last.0, crc, part.len() as u64), self.last.1 + part.len());
            if self.last.1 == self.unit {
                self.full.push(self.last.0);
                self.last = (0, 0);
            }
            bytes = rest;
        }
        whole
    }

    /// Adds `length` bytes whose checksums, one for each `BLOCK` of them, are known. False, and nothing is added, if they are
    /// not those of units here.
    pub fn add_known(&mut self, blocks: &[u32], length: usize) -> bool {
        if self.unit != BLOCK || self.last.1 > 0 || blocks.len() != length.div_ceil(BLOCK) {
            return false;
        }
        let (full, rest) = blocks.split_at(length / BLOCK);
        self.full.extend_from_slice(full);
        self.last = rest.first().map_or((0, 0), |crc| (*crc, length % BLOCK));
        true
    }

    /// Where it stands.
    pub fn mark(&self) -> UnitMark {
        UnitMark { full: self.full.len(), last: self.last }
    }

    /// Forgets what was added since `mark`, which must be of these sums.
    pub fn back_to(&mut self, mark: UnitMark) {
        self.full.truncate(mark.full);
        self.last = mark.last;
    }

    /// Of each unit, in order; the last may be short.
    pub fn into_sums(mut self) -> Vec<u32> {
        if self.last.1 > 0 {
            self.full.push(self.last.0);
        }
        self.full
    }
}

/// The reversed Castagnoli polynomial.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// What so many zero bytes do to a checksum: a linear map over its 32 bits, as the images of the single bits.
/// crc(a ++ b) = map(crc(a)) ^ crc(b); the initial and final inversions cancel out.
type Map = [u32; 32];

/// The maps of 1, 2, 4, ... 2^63 zero bytes.
static MAPS: [Map; 64] = MAPS_OF_POWERS;
const MAPS_OF_POWERS: [Map; 64] = maps_of_powers();

/// A map as four tables of 256, for those needed all the time.
type Tables = [[u32; 256]; 4];

/// Bytes of a sector: what one checksum of HDFS's covers.
pub const SECTOR: usize = 512;

/// The map of `BLOCK` zero bytes: needed for every 4 KiB that passes.
static BLOCK_TABLES: Tables = tables(BLOCK);
/// The map of `SECTOR` zero bytes: needed for every 512 bytes that come through the HDFS gateway.
static SECTOR_TABLES: Tables = tables(SECTOR);

const fn maps_of_powers() -> [Map; 64] {
    let mut maps = [[0u32; 32]; 64];
    let mut bit = 0;
    while bit < 32 {
        // One zero byte shifts the register by eight bits.
        let mut register = 1u32 << bit;
        let mut step = 0;
        while step < 8 {
            register = if register & 1 == 1 { (register >> 1) ^ POLYNOMIAL } else { register >> 1 };
            step += 1;
        }
        maps[0][bit] = register;
        bit += 1;
    }
    let mut power = 1;
    while power < 64 {
        // Twice as many bytes: the map applied to itself.
        let mut bit = 0;
        while bit < 32 {
            maps[power][bit] = apply(&maps[power - 1], maps[power - 1][bit]);
            bit += 1;
        }
        power += 1;
    }
    maps
}

/// Of so many zero bytes, a power of two.
const fn tables(length: usize) -> Tables {
    let map = MAPS_OF_POWERS[length.trailing_zeros() as usize];
    let mut tables = [[0u32; 256]; 4];
    let mut place = 0;
    while place < 4 {
        let mut byte = 0;
        while byte < 256 {
            tables[place][byte] = apply(&map, (byte as u32) << (8 * place));
            byte += 1;
        }
        place += 1;
    }
    tables
}

const fn apply(map: &Map, value: u32) -> u32 {
    let mut out = 0;
    let mut rest = value;
    while rest != 0 {
        out ^= map[rest.trailing_zeros() as usize];
        rest &= rest - 1;
    }
    out
}

fn shift(tables: &Tables, crc: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes();
    tables[0][a as usize] ^ tables[1][b as usize] ^ tables[2][c as usize] ^ tables[3][d as usize]
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, BlockSums, SECTOR, UnitSums, combine, crc32, crc32c};

    /// The check value of RFC 3720 and of every CRC catalogue.
    #[test]
    fn known_value() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
    }

    /// Known checksums of parts of any length within a block make the same sums as the bytes do.
    #[test]
    fn known_parts_make_the_blocks() {
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for (step, length) in [(512, 20_000), (4096, 8192), (100, 4096), (1, 9000), (3000, 4095)] {
            let (bytes, mut sums, mut at) = (&bytes[..length], BlockSums::default(), 0);
            while at < length {
                let end = (at + step).min(at / 4096 * 4096 + 4096).min(length);
                sums.add_known(crc32c(&bytes[at..end]), end - at);
                at = end;
            }
            assert_eq!(sums, BlockSums::of(bytes), "{length} bytes, {step} at a time");
        }
    }

    /// Checksums of parts make the checksum of the whole, for block lengths (own tables) and odd ones.
    #[test]
    fn parts_make_the_whole() {
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for cut in [0, 1, 4095, 4096, 19_488, 8192, 12_288, 15_904, 19_999, 20_000] {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(combine(crc32c(a), crc32c(b), b.len() as u64), crc32c(&bytes), "cut at {cut}");
        }
        for length in [0, 1, 4095, 4096, 4097, 8192, 20_000] {
            let bytes = &bytes[..length];
            let sums = BlockSums::of(bytes);
            assert_eq!((sums.whole(), sums.length()), (crc32c(bytes), length));
            assert!(sums.blocks().iter().copied().eq(bytes.chunks(4096).map(crc32c)), "{length} bytes");
        }
    }

    /// Units have the checksums of their bytes however those were added, each piece has its own, and what is taken back
    /// leaves no trace.
    #[test]
    fn units_of_any_pieces() {
        let bytes: Vec<u8> = (0..9000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for unit in [SECTOR, BLOCK] {
            let expected: Vec<u32> = bytes.chunks(unit).map(crc32c).collect();
            for step in [1, 3, 511, 512, 513, 1024, 4096, 9000] {
                let mut sums = UnitSums::for_length(unit, bytes.len());
                for piece in bytes.chunks(step) {
                    let mark = sums.mark();
                    sums.add(&[7; 700]);
                    sums.back_to(mark);
                    assert_eq!(sums.add(piece), crc32c(piece), "pieces of {step}");
                }
                assert_eq!(sums.into_sums(), expected, "pieces of {step}");
            }
        }
        assert!(UnitSums::for_length(SECTOR, 0).into_sums().is_empty());
    }

    /// Known checksums of blocks stand for their bytes where units begin, and are refused where they do not fit.
    #[test]
    fn known_blocks_are_units() {
        let bytes: Vec<u8> = (0..20_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let blocks: Vec<u32> = bytes.chunks(BLOCK).map(crc32c).collect();
        let mut sums = UnitSums::for_length(BLOCK, bytes.len());
        assert!(sums.add_known(&blocks[..2], 8192) && sums.add_known(&[], 0));
        assert!(!sums.add_known(&blocks[2..4], 12_288) && !sums.add_known(&blocks[2..4], 4096));
        sums.add(&bytes[8192..8200]);
        assert!(!sums.add_known(&blocks[2..], 11_808), "it does not begin where a unit does");
        sums.add(&bytes[8200..12_288]);
        assert!(sums.add_known(&blocks[3..], 7712));
        assert_eq!(sums.into_sums(), blocks);
        assert!(!UnitSums::for_length(SECTOR, 0).add_known(&blocks[..1], 512));
    }
}
