//! Bytes to store: random, different in every chunk, made before the clock starts, and known again when they come back.

use super::raw::incompressible;
use base::buffer::Buffer;
use base::limit::BLOCK;
use base::unit::MIB;
use bytes::Bytes;

/// Bytes of the arena that chunks are cut from.
const ARENA: usize = 64 * MIB as usize;

/// Every so many blocks a chunk begins: 16,384 blocks over 15 give more than a thousand chunks of 4 MiB that all differ.
const STEP: usize = 15;

/// An arena of random bytes. Every block begins with its stamp: its number and the arena's seed. A chunk is a run of blocks
/// from a place that follows from the chunk's number, so it costs nothing to make and each of its blocks tells whose it is.
pub struct Payload {
    arena: Bytes,
    seed: u64,
}

impl Payload {
    /// An arena from this seed, which must not be zero. Arenas of other seeds have other stamps.
    pub fn new(seed: u64) -> Payload {
        let mut arena: Buffer = incompressible(ARENA, seed);
        for (number, block) in arena.chunks_mut(BLOCK).enumerate() {
            block[..16].copy_from_slice(&stamp(seed, number));
        }
        Payload { arena: arena.freeze(), seed }
    }

    /// Chunks of `size` bytes that differ from each other.
    pub fn distinct(size: usize) -> u64 {
        ((ARENA - size) / BLOCK / STEP) as u64
    }

    /// Chunk `number` of `size` bytes, without copying. Numbers beyond `distinct` come round again.
    pub fn chunk(&self, number: u64, size: usize) -> Bytes {
        let start = Payload::first_block(number, size) * BLOCK;
        self.arena.slice(start..start + size)
    }

    /// Whether these are the bytes of chunk `number` from `offset`: each block by its stamp, and the whole of every
    /// sixteenth. That no bit differs is the checksums' work; that no block is another's is shown here.
    pub fn matches(&self, number: u64, size: usize, offset: usize, bytes: &[u8]) -> bool {
        if offset + bytes.len() > size {
            return false;
        }
        let start = Payload::first_block(number, size) * BLOCK + offset;
        let known = &self.arena[start..start + bytes.len()];
        let head = (offset.next_multiple_of(BLOCK) - offset).min(bytes.len());
        let same = |place: usize, (block, known): (&[u8], &[u8])| {
            let compared = if place.is_multiple_of(16) { block.len() } else { block.len().min(16) };
            block[..compared] == known[..compared]
        };
        let pairs = bytes[head..].chunks(BLOCK).zip(known[head..].chunks(BLOCK));
        bytes[..head] == known[..head] && pairs.enumerate().all(|(place, pair)| same(place, pair))
    }

    /// Whether these are the bytes from `position` of a file that is chunk after chunk of `size` bytes.
    pub fn matches_file(&self, mut position: u64, size: usize, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let (number, offset) = (position / size as u64, (position % size as u64) as usize);
            let (here, rest) = bytes.split_at(bytes.len().min(size - offset));
            if !self.matches(number, size, offset, here) {
                return false;
            }
            position += here.len() as u64;
            bytes = rest;
        }
        true
    }

    /// The number below `distinct` of the chunk that these bytes are, if they are one.
    pub fn number_of(&self, bytes: &[u8]) -> Option<u64> {
        let half = |start: usize| bytes.get(start..start + 8)?.try_into().ok().map(u64::from_le_bytes);
        let (seed, block) = (half(0)?, half(8)?);
        let number = block / STEP as u64;
        let begins = block.is_multiple_of(STEP as u64) && number < Payload::distinct(bytes.len());
        (seed == self.seed && begins).then_some(number)
    }

    fn first_block(number: u64, size: usize) -> usize {
        (number % Payload::distinct(size)) as usize * STEP
    }
}

fn stamp(seed: u64, number: usize) -> [u8; 16] {
    let mut stamp = [0; 16];
    stamp[..8].copy_from_slice(&seed.to_le_bytes());
    stamp[8..].copy_from_slice(&(number as u64).to_le_bytes());
    stamp
}

#[cfg(test)]
mod tests {
    use super::Payload;
    use base::limit::BLOCK;

    /// A chunk is known again by its bytes; another chunk, another seed and swapped blocks are not taken for it.
    #[test]
    fn chunks_are_known() {
        let size = 64 * BLOCK;
        let (payload, other) = (Payload::new(1), Payload::new(2));
        let chunk = payload.chunk(77, size);
        assert_eq!(payload.number_of(&chunk), Some(77));
        assert_eq!(other.number_of(&chunk), None);
        assert!(payload.matches(77, size, 0, &chunk));
        assert!(payload.matches(77, size, 8 * BLOCK, &chunk[8 * BLOCK..]));
        assert!(!payload.matches(78, size, 0, &chunk));
        assert!(!other.matches(77, size, 0, &chunk));
        let mut swapped = chunk.to_vec();
        swapped[BLOCK..3 * BLOCK].rotate_left(BLOCK);
        assert!(!payload.matches(77, size, 0, &swapped));
        assert!(Payload::distinct(4 << 20) >= 1000);
        let file = [payload.chunk(0, size), payload.chunk(1, size)].concat();
        assert!(payload.matches_file(0, size, &file));
        assert!(payload.matches_file(5000, size, &file[5000..]));
        assert!(!payload.matches_file(4096, size, &file));
    }
}
