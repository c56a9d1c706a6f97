//! The bytes of an entry of the early file.

use crate::format::{CRC_AT, Reader, is_stamped, stamp};
use base::id::DeviceId;

const EARLY_MAGIC: [u8; 8] = *b"STORMEAR";
/// Bytes of an early entry's header.
pub const EARLY_HEADER: usize = 32;

/// The header of an entry of the early file: records of the journal that may not be in it yet (`early`). They follow at once, and the next
/// entry follows them. `0 magic 8 | 8 crc 4 (of header and records) | 12 records' bytes 4 | 16 previous 8 | 24 last 8`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyHeader {
    /// Bytes of records behind the header.
    pub length: u32,
    /// Sequence number of the journal's record before the first one.
    pub previous: u64,
    /// Sequence number of the last record.
    pub last: u64,
}

impl EarlyHeader {
    /// Writes the header over the first bytes of the entry, which has its records.
    pub fn encode(&self, device: DeviceId, entry: &mut [u8]) {
        entry[..CRC_AT].copy_from_slice(&EARLY_MAGIC);
        entry[12..16].copy_from_slice(&self.length.to_le_bytes());
        entry[16..24].copy_from_slice(&self.previous.to_le_bytes());
        entry[24..EARLY_HEADER].copy_from_slice(&self.last.to_le_bytes());
        stamp(device, entry);
    }

    /// The header and the records at the start of these bytes; `None` if there are none or they are damaged.
    pub fn decode(device: DeviceId, bytes: &[u8]) -> Option<(EarlyHeader, &[u8])> {
        let mut reader = Reader(bytes.get(CRC_AT + 4..EARLY_HEADER)?);
        let header = EarlyHeader { length: reader.four()?, previous: reader.eight()?, last: reader.eight()? };
        let entry = bytes.get(..EARLY_HEADER.checked_add(header.length as usize)?)?;
        let whole = is_stamped(device, EARLY_MAGIC, entry) && header.previous < header.last;
        whole.then(|| (header, &entry[EARLY_HEADER..]))
    }
}
