//! The early file when a device is opened: what it has that the journal has not, and its use from then on.

use super::{FILE, HALF, SIZE};
use crate::core::Core;
use crate::format::{EARLY_HEADER, EarlyHeader, Record};
use crate::recover::Driver;
use base::disk::{Caching, FileName, Fill, Op};
use base::id::DeviceId;
use base::planted::Planted;

impl Core {
    /// The records that were found come into the journal before anything else. The file must not be written before they are there.
    pub fn take_up_early(&mut self, found: Vec<(u64, Record)>) {
        let Some((last, _)) = found.last() else { return };
        self.found_early = *last;
        for (sequence, record) in found {
            self.gather(sequence, &record);
        }
        self.journal_log.groups_are_early();
        self.journal.early = self.found_early;
        self.early.keep(self.found_early);
    }

    /// Begins to use the file, which is made if it is missing. Without it everybody waits for the journal.
    pub fn begin_early(&mut self, driver: &mut Driver<'_>, files: &[(FileName, u64)]) {
        let there = files.contains(&(FILE, SIZE));
        let room = self.used() + SIZE + self.settings.reserve <= self.settings.capacity;
        // Zeros: the kernel's write-back then has no extents to convert, for which a write could have to wait.
        let create = Op::Create { file: FILE, size: SIZE, fill: Fill::Zeros };
        if driver.has_early() && (there || room && driver.run(create).is_ok()) {
            (self.early.file, self.early.size) = (driver.early(FILE), SIZE);
        }
    }
}

/// The journal's records that follow sequence number `last` without a gap and are in no group of it, in their order.
pub(crate) fn find_early(
    driver: &mut Driver<'_>,
    device: DeviceId,
    files: &[(FileName, u64)],
    mut last: u64,
    planted: Option<Planted>,
) -> Vec<(u64, Record)> {
    let mut found = Vec::new();
    if planted == Some(Planted::EarlyRecordsForgotten) || !files.contains(&(FILE, SIZE)) {
        return found;
    }
    let mut entries = Vec::new();
    for half in 0..2 {
        let Ok(bytes) = driver.read_by(Caching::Through, FILE, half * HALF, HALF as usize) else { return found };
        entries.extend(entries_of(device, &bytes));
    }
    entries.sort_by_key(|(header, _)| header.last);
    for (header, records) in entries {
        // The journal has it, or it followed records that are lost: with a power loss, perhaps long ago. One that follows what is there may
        // still come.
        if header.last <= last || header.previous > last {
            continue;
        }
        found.extend(records.into_iter().filter(|(sequence, _)| *sequence > last));
        last = header.last;
    }
    found
}

/// The entries of a half, from its start to where the first one is that is not whole or older than the one before.
fn entries_of(device: DeviceId, half: &[u8]) -> Vec<(EarlyHeader, Vec<(u64, Record)>)> {
    let mut found: Vec<(EarlyHeader, Vec<(u64, Record)>)> = Vec::new();
    let mut rest = half;
    while let Some((header, records)) = EarlyHeader::decode(device, rest) {
        let before = found.last().map_or(0, |(before, _)| before.last);
        let Some(records) = crate::scan::decode_records(records).filter(|_| header.last > before) else { break };
        rest = &rest[EARLY_HEADER + header.length as usize..];
        found.push((header, records));
    }
    found
}
