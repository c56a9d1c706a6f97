//! The bytes that travel beside a message: shared parts, never copied, with one checksum over all of them.

use crate::credit::Piece;
use base::checksum::{BlockSums, combine, crc32c};
use base::error::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use std::fmt;
use std::sync::Arc;

/// Bytes in one or more parts, their total length, and the CRC32C that whoever made them computed.
/// Cloning shares the bytes.
#[derive(Clone, Default)]
pub struct Payload {
    parts: Parts,
    length: usize,
    crc: u32,
    /// What the bytes' checksums were when they came in; none if they were made here.
    seen: Option<BlockSums>,
    piece: Option<Arc<Piece>>,
}

#[derive(Clone, Default)]
enum Parts {
    #[default]
    None,
    One(Bytes),
    Many(Vec<Bytes>),
}

impl Payload {
    /// No bytes.
    pub fn empty() -> Payload {
        Payload::default()
    }

    /// These bytes; computes their CRC32C.
    pub fn new(bytes: Bytes) -> Payload {
        let crc = crc32c(&bytes);
        Payload::one(bytes, crc)
    }

    /// These bytes, whose CRC32C is known.
    pub(crate) fn one(bytes: Bytes, crc: u32) -> Payload {
        let length = bytes.len();
        Payload { parts: Parts::One(bytes), length, crc, ..Payload::default() }
    }

    /// These bytes, whose checksums the caller computed from them, or compared with them: nobody does it again.
    pub fn summed(bytes: Bytes, sums: BlockSums) -> Payload {
        let crc = sums.whole();
        Payload::arrived(bytes, crc, sums)
    }

    /// Bytes that came in with these checksums, which were computed while they did; `crc` is what the sender says.
    pub(crate) fn arrived(bytes: Bytes, crc: u32, seen: BlockSums) -> Payload {
        assert_eq!(bytes.len(), seen.length(), "checksums of other bytes");
        Payload { seen: Some(seen), ..Payload::one(bytes, crc) }
    }

    /// These parts one after another. `crc` is the CRC32C of all of them together; it is believed here and checked by the receiver.
    pub fn with_crc(parts: Vec<Bytes>, crc: u32) -> Payload {
        let length = parts.iter().map(Bytes::len).sum();
        Payload { parts: Parts::Many(parts), length, crc, ..Payload::default() }
    }

    /// The same payload, which gives `piece` back to its budget once the bytes are written to the socket.
    #[must_use]
    pub fn with_piece(mut self, piece: Piece) -> Payload {
        self.piece = Some(Arc::new(piece));
        self
    }

    /// What stands for these bytes in a budget, if anything does.
    pub(crate) fn piece(&self) -> Option<&Arc<Piece>> {
        self.piece.as_ref()
    }

    /// The parts, in order.
    pub fn parts(&self) -> &[Bytes] {
        match &self.parts {
            Parts::None => &[],
            Parts::One(bytes) => std::slice::from_ref(bytes),
            Parts::Many(parts) => parts,
        }
    }

    /// CRC32C of all bytes, as the sender says. `verify` says whether it is so.
    pub fn crc(&self) -> u32 {
        self.crc
    }

    /// Bytes in all parts.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Compares the bytes with the CRC. `Corrupt` if they differ. Reads them only if that was not done when they came in.
    pub fn verify(&self) -> Result<()> {
        let crc = match &self.seen {
            Some(seen) => seen.whole(),
            None => self.parts().iter().fold(0, |crc, part| combine(crc, crc32c(part), part.len() as u64)),
        };
        if crc == self.crc {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{} bytes were damaged on the way (their checksum is {crc:08x} and should be {:08x}); nothing was done with them; ask again",
                self.length, self.crc
            ),
        ))
    }

    /// The bytes as one and their checksums, if they are what the sender says: as `verify`, `into_bytes`.
    pub fn into_verified(mut self) -> Result<(Bytes, BlockSums)> {
        self.verify()?;
        let seen = self.seen.take();
        let bytes = self.into_bytes();
        let sums = seen.unwrap_or_else(|| BlockSums::of(&bytes));
        Ok((bytes, sums))
    }

    /// The bytes as one. One part is shared, several are copied together.
    pub fn into_bytes(self) -> Bytes {
        match self.parts {
            Parts::None => Bytes::new(),
            Parts::One(bytes) => bytes,
            Parts::Many(mut parts) if parts.len() == 1 => parts.remove(0),
            Parts::Many(parts) => {
                let mut bytes = BytesMut::with_capacity(self.length);
                parts.iter().for_each(|part| bytes.extend_from_slice(part));
                bytes.freeze()
            }
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes in {} parts, crc {:08x})", self.length, self.parts().len(), self.crc)
    }
}

#[cfg(test)]
mod tests {
    use super::Payload;
    use base::checksum::crc32c;
    use base::error::ErrorKind;
    use bytes::Bytes;

    /// Parts are checked and joined as the bytes they stand for; damage is told.
    #[test]
    fn parts_are_one_payload() {
        let (a, b) = (Bytes::from_static(b"a storm of "), Bytes::from_static(b"writes"));
        let payload = Payload::with_crc(vec![a, b.clone()], crc32c(b"a storm of writes"));
        assert_eq!(payload.length(), 17);
        assert_eq!(payload.verify(), Ok(()));
        assert_eq!(payload.into_bytes(), "a storm of writes");
        let damaged = Payload::with_crc(vec![b], 5);
        assert_eq!(damaged.verify().expect_err("the checksum is wrong").kind(), ErrorKind::Corrupt);
        assert_eq!(damaged.into_verified().expect_err("the checksum is wrong").kind(), ErrorKind::Corrupt);
        assert_eq!(Payload::empty().verify(), Ok(()));
    }

    /// One part is handed on, not copied.
    #[test]
    fn one_part_is_shared() {
        let bytes = Bytes::from(vec![7; 5000]);
        let address = bytes.as_ptr();
        assert_eq!(Payload::new(bytes.clone()).into_bytes().as_ptr(), address);
        assert_eq!(Payload::with_crc(vec![bytes], 0).into_bytes().as_ptr(), address);
    }
}
