//! Early records: records of the journal that somebody waits for who only wants them to survive the end of the process (`Level::Written`)
//! are copied through the page cache, into `early-00000000`, and answered at once. The journal, whose writes wait for the disk, has
//! them a moment later (record 0432). What is not in the journal when the device is opened is taken from there.
//!
//! The file has two halves, each a row of entries (`EarlyHeader`) from its start on. A half is begun anew when the journal has
//! everything in it, so no entry that is needed is ever overwritten; a half that is full while the journal has not is left alone, and who waits
//! waits for the journal.

use crate::core::Core;
use crate::format::{EARLY_HEADER, EarlyHeader, Record};
use crate::recover::Driver;
use base::disk::{Caching, Early, FileKind, FileName, Fill, Op};
use base::id::DeviceId;
use base::planted::Planted;
use base::unit::{MIB, Time};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a half: twice what the journal lets gather (`REST_MAX`).
const HALF: u64 = MIB / 2;

/// Bytes of the file.
const SIZE: u64 = 2 * HALF;

/// Records that are gathered beyond this many bytes go the journal's way: it writes so much in one go about as fast.
const ENTRY_MAX: usize = 128 << 10;

/// For so long, at most, the journal leaves a group alone that is early as a whole and that nobody wants synced. A log that is flushed all the
/// time then costs 100 writes of the disk a second, not one for each flush.
const JOURNAL_REST: Duration = Duration::from_millis(10);

/// A group of so many bytes is written without rest.
const REST_MAX: usize = 256 << 10;

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
    /// Where the next entry, of so many bytes, goes; none if there is no room until the journal is further than `written`.
    fn room(&mut self, bytes: u64, written: u64) -> Option<u64> {
        if self.lasts[self.half] <= written {
            self.at = 0;
        }
        if self.at + bytes > HALF {
            let other = 1 - self.half;
            if self.lasts[other] > written || bytes > HALF {
                return None;
            }
            (self.half, self.at) = (other, 0);
        }
        Some(self.half as u64 * HALF + self.at)
    }
}

impl Core {
    /// Copies what the journal has gathered into the early file if somebody waits who needs no more.
    pub fn keep_early(&mut self) {
        if self.early.file.is_none() || !self.journal.is_awaited_early() {
            return;
        }
        let groups = &mut self.journal_log.groups;
        let bytes: usize = groups.iter().map(|group| group.records.len() - group.early).sum();
        if bytes == 0 || bytes > ENTRY_MAX {
            return;
        }
        let length = (EARLY_HEADER + bytes) as u64;
        let overwrites = self.settings.planted == Some(Planted::EarlyRecordsOverwritten);
        let written = if overwrites { u64::MAX } else { self.journal.written };
        let Some(offset) = self.early.room(length, written) else { return };
        let mut entry = std::mem::take(&mut self.early.entry);
        entry.clear();
        entry.resize(EARLY_HEADER, 0);
        for group in groups.iter() {
            entry.extend_from_slice(&group.records[group.early..]);
        }
        let header = EarlyHeader { length: bytes as u32, previous: self.journal.kept(), last: self.journal.last };
        header.encode(self.device, &mut entry);
        let written = self.early.file.as_ref().map(|file| file.write(offset, &entry));
        self.early.entry = entry;
        if let Some(Err(_)) = written {
            // What was written before is read up to here. From now on everybody waits for the journal, whose errors are told.
            self.early.file = None;
            return;
        }
        self.early.at += length;
        self.early.lasts[self.early.half] = header.last;
        for group in &mut self.journal_log.groups {
            group.early = group.records.len();
        }
        self.journal.early = header.last;
        self.marks_moved();
    }

    /// Until when the gathered group may wait for others: nobody waits for it, and it would survive the end of the process. None: it is to
    /// be written.
    pub fn journal_rests_until(&self) -> Option<Time> {
        let log = &self.journal_log;
        let group = log.groups.front().filter(|_| log.groups.len() == 1 && !log.in_flight && !log.was_refused())?;
        let rests = group.early == group.records.len() && group.early <= REST_MAX && self.failed.is_none();
        let written = self.journal.written;
        let wanted =
            self.journal.is_wanted_synced() || self.found_early > written || self.checkpoint.waits_for()[1] > written;
        (rests && !wanted).then(|| group.since.after(JOURNAL_REST))
    }

    /// The records that were found come into the journal before anything else. The file must not be written before they are there.
    pub fn take_up_early(&mut self, found: Vec<(u64, Record)>) {
        let Some((last, _)) = found.last() else { return };
        self.found_early = *last;
        for (sequence, record) in found {
            self.gather(sequence, &record);
        }
        for group in &mut self.journal_log.groups {
            group.early = group.records.len();
        }
        self.journal.early = self.found_early;
        self.early.lasts = [self.found_early; 2];
        self.early.at = HALF;
    }

    /// Begins to use the file, which is made if it is missing. Without it everybody waits for the journal.
    pub fn begin_early(&mut self, driver: &mut Driver<'_>, files: &[(FileName, u64)]) {
        let Some(early) = driver.early(FILE) else { return };
        let there = files.iter().any(|(file, length)| (*file, *length) == (FILE, SIZE));
        let room = self.used() + SIZE + self.settings.reserve <= self.settings.capacity;
        if there || (room && driver.run(Op::Create { file: FILE, size: SIZE, fill: Fill::Reserved }).is_ok()) {
            self.early.file = Some(early);
            self.early.size = SIZE;
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
        if header.last <= last {
            continue;
        }
        if header.previous > last {
            break;
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
