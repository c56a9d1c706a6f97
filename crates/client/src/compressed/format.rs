//! The bytes before each chunk of a bag whose chunks are compressed, all little-endian.
//!
//! ```text
//!  0  magic   u32  "SWCC"
//!  4  how     u8   Compression::code; 0: what follows is the chunk as it was pushed
//!  5  zero    3
//!  8  length  u32  of the chunk as it was pushed: 1 to BAG_CHUNK_MAX
//! 12  crc     u32  CRC32C of the chunk as it was pushed
//! 16  the chunk, compressed or as it was
//! ```

use base::limit::{BAG_CHUNK_MAX, BAG_HEADER};
use base::policy::Compression;

const MAGIC: u32 = u32::from_le_bytes(*b"SWCC");

/// What is said of a chunk before its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// How it is compressed.
    pub how: Compression,
    /// Bytes that were pushed: 1 to `BAG_CHUNK_MAX`.
    pub length: u32,
    /// Their CRC32C.
    pub crc: u32,
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; BAG_HEADER] {
        let mut bytes = [0; BAG_HEADER];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.how.code() as u8;
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.crc.to_le_bytes());
        bytes
    }

    /// Reads the header of these bytes. None: they do not begin with one.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<BAG_HEADER>()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let how = Compression::from_code(u32::from(bytes[4]))?;
        let (length, crc) = (word(8), word(12));
        let fits = (1..=BAG_CHUNK_MAX).contains(&u64::from(length));
        (word(0) == MAGIC && bytes[5..8] == [0; 3] && fits).then_some(Header { how, length, crc })
    }
}

#[cfg(test)]
mod tests {
    use super::{Compression, Header};

    /// The bytes as they are stored, drawn above.
    #[test]
    fn golden() {
        let header = Header { how: Compression::Zstd, length: 0x0040_0001, crc: 0x1234_5678 };
        let bytes = *b"SWCC\x02\0\0\0\x01\0\x40\0\x78\x56\x34\x12";
        assert_eq!((header.encode(), Header::decode(&bytes)), (bytes, Some(header)));
        assert_eq!(Header::decode(&bytes[..15]), None);
    }
}
