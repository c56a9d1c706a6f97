//! Early records: records of the journal that somebody waits for who only wants them to survive the end of the process (`Level::Written`)
//! are copied through the page cache, into `early-00000000`, and answered at once. The journal, whose writes wait for the disk, has
//! them a moment later (record 0432). What is not in the journal when the device is opened is taken from there (`find`).
//!
//! The file has two halves, each a row of entries (`EarlyHeader`) from its start on. A half is begun anew when the journal has
//! everything in it, so no entry that is needed is ever overwritten; a half that is full while the journal has not is left alone, and who waits
//! waits for the journal.

pub(crate) mod find;
pub(crate) mod format;

use crate::format::{EARLY_HEADER, EarlyHeader};
use base::disk::{Early, FileKind, FileName};
use base::id::DeviceId;
use base::unit::MIB;
use std::sync::Arc;

/// Bytes of a half: twice what the journal lets gather (`journal::REST_MAX`).
const HALF: u64 = MIB / 2;

/// Bytes of the file.
const SIZE: u64 = 2 * HALF;

/// Records that are gathered beyond this many bytes go the journal's way: it writes so much in one go about as fast.
const ENTRY_MAX: u32 = 128 << 10;

const FILE: FileName = FileName::new(FileKind::Early, 0);

/// The file and what of it is in use.
#[derive(Default)]
pub(crate) struct EarlyLog {
    /// None: this disk has no such file, or it could not be made or written.
    file: Option<Arc<dyn Early>>,
    /// The half that is written, 0 or 1, and where in it the next entry goes.
    half: usize,
    at: u64,
    /// The last sequence number in each half.
    lasts: [u64; 2],
    /// What was written last; kept for its memory.
    entry: Vec<u8>,
    /// Bytes that the file occupies.
    pub size: u64,
}

impl EarlyLog {
    /// Whether something can be written.
    pub fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// Leaves alone what was found, up to this sequence number, until the journal has it.
    pub fn keep(&mut self, found: u64) {
        (self.lasts, self.at) = ([found; 2], HALF);
    }

    /// Writes an entry of these records, where the journal is written up to `written`. False: they are too many, there is no room until the
    /// journal is further, or the file could not be written, which it is not from then on; what was written before is found all the same.
    pub fn write<'a>(
        &mut self,
        device: DeviceId,
        header: EarlyHeader,
        records: impl Iterator<Item = &'a [u8]>,
        written: u64,
    ) -> bool {
        let length = EARLY_HEADER as u64 + u64::from(header.length);
        let fits = (1..=ENTRY_MAX).contains(&header.length);
        let (true, Some(file)) = (fits, self.file.clone()) else { return false };
        let Some(offset) = self.room(length, written) else { return false };
        self.entry.clear();
        self.entry.resize(EARLY_HEADER, 0);
        records.for_each(|records| self.entry.extend_from_slice(records));
        header.encode(device, &mut self.entry);
        if file.write(offset, &self.entry).is_err() {
            self.file = None;
            return false;
        }
        self.at += length;
        self.lasts[self.half] = header.last;
        true
    }

    /// Where the next entry, of so many bytes, goes; none if there is no room until the journal is further than `written`.
    fn room(&mut self, bytes: u64, written: u64) -> Option<u64> {
        if self.lasts[self.half] <= written {
            self.at = 0;
        }
        if self.at + bytes > HALF {
            let other = 1 - self.half;
            if self.lasts[other] > written {
                return None;
            }
            (self.half, self.at) = (other, 0);
        }
        Some(self.half as u64 * HALF + self.at)
    }
}
