//! The bytes that simulated clients write: they follow from whose they are and where they belong, so none has to be kept.

use base::env::Random;
use sim::random::SimRandom;

/// Tags of chunks, apart from those of files.
const CHUNK_TAGS: u64 = 1 << 40;

/// The eight bytes at `8 * word` of the content of a tag. Every fourth tag of a file has content that can be compressed: numbers
/// that rise.
fn word(tag: u64, word: u64) -> [u8; 8] {
    if tag % 4 == 3 && tag < CHUNK_TAGS {
        return ((SimRandom::new(tag).next() << 24) | (word & 0xFF_FFFF)).to_le_bytes();
    }
    SimRandom::new(tag.wrapping_mul(0x0100_0000_01B3) ^ word).next().to_le_bytes()
}

/// Bytes `offset..offset + length` of the content of a tag.
pub fn content(tag: u64, offset: u64, length: usize) -> Vec<u8> {
    let start = (offset % 8) as usize;
    let words = (offset / 8..).map(|number| word(tag, number));
    words.flatten().skip(start).take(length).collect()
}

/// The bytes of a chunk of a bag: its number, then what follows from it.
pub fn chunk_bytes(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(content(CHUNK_TAGS + number, 0, length.saturating_sub(8)));
    bytes
}

/// The number that a chunk says it has.
pub fn chunk_number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes))
}
