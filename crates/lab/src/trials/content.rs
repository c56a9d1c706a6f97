//! Bytes that follow from a number, so that nothing has to be kept to compare them.

use bytes::{Buf, BufMut, Bytes};

/// The eight bytes at this place of the content of this number: splitmix64 of both.
fn word(content: u64, place: u64) -> u64 {
    let mut mixed = content.wrapping_mul(0xD6E8_FEB8_6659_FD93).wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// `length` bytes of a content from byte `offset` on.
pub fn bytes(content: u64, offset: u64, length: usize) -> Bytes {
    let within = (offset % 8) as usize;
    let mut out = Vec::with_capacity(length + 16);
    let mut place = offset / 8;
    while out.len() < within + length {
        out.put_u64_le(word(content, place));
        place += 1;
    }
    Bytes::from(out).slice(within..within + length)
}

/// A chunk of a bag: its number and length first, so that it says itself what it should be.
pub fn chunk(content: u64, length: usize) -> Bytes {
    let mut out = Vec::with_capacity(length);
    out.put_u64_le(content);
    out.put_u64_le(length as u64);
    out.extend_from_slice(&bytes(content, 16, length.saturating_sub(16)));
    Bytes::from(out)
}

/// The number of a chunk that is as it was made; none if it was damaged.
pub fn read_chunk(got: &[u8]) -> Option<u64> {
    let content = got.get(..8)?.get_u64_le();
    (chunk(content, got.len()) == got).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::{bytes, chunk, read_chunk};

    /// Any part of a content is the part of the whole; a chunk knows itself, and a changed bit is seen.
    #[test]
    fn parts_of_the_whole() {
        let whole = bytes(7, 0, 1000);
        for (offset, length) in [(0, 1000), (1, 999), (13, 8), (999, 1), (500, 0)] {
            assert_eq!(bytes(7, offset, length), whole[offset as usize..offset as usize + length]);
        }
        assert_ne!(bytes(8, 0, 1000), whole);
        let mut made = chunk(9, 5000).to_vec();
        assert_eq!(read_chunk(&made), Some(9));
        made[4999] ^= 1;
        assert_eq!(read_chunk(&made), None);
        assert_eq!(read_chunk(&made[..4000]), None);
    }
}
