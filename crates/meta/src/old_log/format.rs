//! The bytes of a group of the log of versions 1 to 3.

use crate::format::{SEQUENCE_MAX, u32_at, u64_at};
use base::checksum::crc32c;
use base::limit::BLOCK;

/// What every group of the log begins with.
const MAGIC: [u8; 8] = *b"SWmetalg";

/// Bytes of a group's header.
pub const HEADER: usize = 64;

/// Where the header keeps the checksum of everything else in header and entries.
const CRC_AT: usize = 48;

/// The header of a group of log entries. Numbers are little-endian:
/// magic 8, version 4, entry count 4, incarnation 8, first 8, last 8, length 8, crc 4, zeros 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Names one use of a segment: groups of an earlier use do not count.
    pub incarnation: u64,
    /// Sequence number of the first entry; they rise by one.
    pub first: u64,
    /// Sequence number of the last entry.
    pub last: u64,
    /// Bytes of all entries.
    pub length: u64,
    /// CRC32C of header (with zeros here) and entries.
    pub crc: u32,
}

impl GroupHeader {
    /// Bytes that the group takes in a segment.
    pub fn padded(&self) -> u64 {
        self.length.saturating_add(HEADER as u64).saturating_add(BLOCK as u64 - 1) / BLOCK as u64 * BLOCK as u64
    }

    /// Reads a header. None if these bytes are no header of a group; the version may be any.
    pub fn decode(bytes: &[u8]) -> Option<(GroupHeader, u32)> {
        let bytes = bytes.get(..HEADER)?;
        if bytes[..8] != MAGIC {
            return None;
        }
        let header = GroupHeader {
            incarnation: u64_at(bytes, 16)?,
            first: u64_at(bytes, 24)?,
            last: u64_at(bytes, 32)?,
            length: u64_at(bytes, 40)?,
            crc: u32_at(bytes, CRC_AT)?,
        };
        let version = u32_at(bytes, 8)?;
        let counted = u64::from(u32_at(bytes, 12)?);
        let agrees = header.first > 0 && header.last.checked_sub(header.first)?.checked_add(1)? == counted;
        (agrees && header.last <= SEQUENCE_MAX).then_some((header, version))
    }
}

/// Whether header and entries have the checksum that the header says. `group` is the header and at least all entries.
pub fn group_is_whole(group: &[u8], header: &GroupHeader) -> bool {
    let Some(end) = usize::try_from(header.length).ok().and_then(|length| length.checked_add(HEADER)) else {
        return false;
    };
    let (Some(entries), Some(start)) = (group.get(HEADER..end), group.get(..HEADER)) else { return false };
    let mut bare = [0; HEADER];
    bare.copy_from_slice(start);
    bare[CRC_AT..CRC_AT + 4].fill(0);
    base::checksum::combine(crc32c(&bare), crc32c(entries), header.length) == header.crc
}

#[cfg(test)]
mod tests {
    use super::{CRC_AT, GroupHeader, HEADER, MAGIC, group_is_whole};
    use crate::format::{add_change, begin_entry};
    use base::checksum::crc32c;

    const VERSION: u32 = 3;

    fn group() -> Vec<u8> {
        let mut group = vec![0; HEADER];
        begin_entry(&mut group, 7, 2);
        add_change(&mut group, b"key", Some(b"value"));
        add_change(&mut group, b"gone", None);
        let length = group.len() - HEADER;
        group[..8].copy_from_slice(&MAGIC);
        group[8..12].copy_from_slice(&VERSION.to_le_bytes());
        group[12..16].copy_from_slice(&1u32.to_le_bytes());
        for (at, number) in [(16, 0x1122), (24, 7), (32, 7), (40, length as u64)] {
            group[at..at + 8].copy_from_slice(&u64::to_le_bytes(number));
        }
        let crc = crc32c(&group);
        group[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        group.resize(4096, 0xEE);
        group
    }

    /// A group reads back as it was written.
    #[test]
    fn round_trip() {
        let bytes = group();
        let Some((header, version)) = GroupHeader::decode(&bytes) else { panic!("no header") };
        assert_eq!(
            (header.incarnation, header.first, header.last, header.padded(), version),
            (0x1122, 7, 7, 4096, VERSION)
        );
        assert!(group_is_whole(&bytes, &header));
    }

    /// Any bytes are read or refused, never more; a changed bit of header or entries is noticed.
    #[test]
    fn changed_bytes() {
        let good = group();
        let used = 64 + 12 + 2 * 6 + 3 + 5 + 4;
        for at in 0..used {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[at] ^= 1 << bit;
                if let Some((header, version)) = GroupHeader::decode(&bytes) {
                    assert!(version != VERSION || !group_is_whole(&bytes, &header), "bit {bit} of byte {at}");
                }
            }
        }
        assert_eq!(GroupHeader::decode(&[0xFF; 64]), None);
    }
}
