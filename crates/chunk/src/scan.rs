//! Finding the log's records behind a checkpoint, in the order in which they were written, up to where they end.

use crate::core::{data_file, journal_file};
use crate::format::{DataHeader, GROUP_HEADER, GroupHeader, LogPosition, Reader, Record};
use crate::recover::{Driver, READS};
use base::checksum::crc32c;
use base::disk::{FileKind, FileName};
use base::id::DeviceId;
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use base::planted::Planted;
use base::unit::MIB;

/// Blocks looked at behind one that should hold a header and does not: the next record, which tells damage from the end of
/// the log, starts at most one record of 257 blocks later.
const LOOK_AHEAD: u32 = 2 * 257;

/// Records of fewer blocks (128 KiB) are read with what is near them, larger ones are stepped over: 1 MiB takes as long to
/// read as eight headers.
const NEAR: u32 = 32;

/// A segment with records behind the checkpoint.
pub(crate) struct Scanned<R> {
    pub number: u32,
    pub incarnation: u64,
    pub records: Vec<R>,
}

/// What a stream's records have in common.
pub(crate) trait Link {
    /// First and last sequence number.
    fn sequences(&self) -> (u64, u64);
    /// Last sequence number of the record before.
    fn previous(&self) -> u64;
    /// Highest durable sequence numbers it knows of, data and journal.
    fn marks(&self) -> [u64; 2];
}

impl Link for DataHeader {
    fn sequences(&self) -> (u64, u64) {
        (self.sequence, self.sequence)
    }
    fn previous(&self) -> u64 {
        self.previous
    }
    fn marks(&self) -> [u64; 2] {
        [self.durable_data, self.durable_journal]
    }
}

/// A journal group that was found.
pub(crate) struct Group {
    pub header: GroupHeader,
    /// `None`: the header is right, what follows is damaged.
    pub records: Option<Vec<(u64, Record)>>,
}

impl Link for Group {
    fn sequences(&self) -> (u64, u64) {
        (self.header.first, self.header.last)
    }
    fn previous(&self) -> u64 {
        self.header.previous
    }
    fn marks(&self) -> [u64; 2] {
        [self.header.durable_data, self.header.durable_journal]
    }
}

/// The records of a stream in one chain.
pub(crate) struct Chain<R> {
    pub records: Vec<R>,
    /// Ranges of sequence numbers that had been durable and are missing.
    pub gaps: Vec<(u64, u64)>,
    /// Records behind the end of the chain.
    pub cut: u64,
}

/// Joins the segments' records to one chain that starts behind sequence number `start`. A later segment says what the one
/// before ended with, and the chain goes on there; what goes beyond had been cut off by an earlier recovery, and what was
/// missing before it is nobody's loss. A gap below `mark` is damage; one above it is the end.
pub(crate) fn join<R: Link>(
    mut segments: Vec<Scanned<R>>,
    start: u64,
    mark: u64,
    planted: Option<Planted>,
) -> Chain<R> {
    let stays_ended = planted == Some(Planted::ChainStaysEnded);
    segments.sort_by_key(|segment| segment.incarnation);
    let mut chain = Chain { records: Vec::new(), gaps: Vec::new(), cut: 0 };
    let mut ended = false;
    for segment in segments {
        if let Some(first) = segment.records.first() {
            let before = first.previous();
            while chain.records.last().is_some_and(|record: &R| record.sequences().1 > before) {
                chain.records.pop();
                ended = false;
            }
            if !stays_ended {
                ended = false;
                let last = chain.records.last().map_or(start, |record| record.sequences().1);
                chain.gaps.retain(|(first, _)| *first <= last);
            }
        }
        for record in segment.records {
            let last = chain.records.last().map_or(start, |record| record.sequences().1);
            let previous = record.previous();
            if ended || previous < last || (previous > last && previous > mark) {
                ended = true;
                chain.cut += 1;
                continue;
            }
            if previous > last {
                chain.gaps.push((last + 1, previous));
            }
            chain.records.push(record);
        }
    }
    let last = chain.records.last().map_or(start, |record| record.sequences().1);
    if last < mark {
        chain.gaps.push((last + 1, mark));
    }
    chain
}

/// Reads a file's blocks one after another through a window.
struct Window<'a, 'b> {
    driver: &'a mut Driver<'b>,
    file: FileName,
    bytes: Vec<u8>,
    start: u32,
    ahead: usize,
}

impl Window<'_, '_> {
    fn get(&mut self, block: u32, length: usize) -> Option<&[u8]> {
        let inside = block >= self.start && (block - self.start) as usize * BLOCK + length <= self.bytes.len();
        if !inside {
            let want = length.max(self.ahead).next_multiple_of(BLOCK);
            self.bytes = self.driver.read(self.file, u64::from(block) * BLOCK as u64, want).ok()?.to_vec();
            self.start = block;
        }
        let from = (block - self.start) as usize * BLOCK;
        self.bytes.get(from..from + length)
    }
}

/// Where to look in a segment: the first block, and the incarnation if it is known.
fn entry(number: u32, place: LogPosition) -> (u32, Option<u64>) {
    if number == place.segment && place.block > 0 { (place.block, Some(place.incarnation)) } else { (0, None) }
}

/// The segments that may hold something behind `place`, by their first blocks; several are read at once.
fn behind(
    driver: &mut Driver<'_>,
    kind: FileKind,
    files: &[(u32, u64)],
    place: LogPosition,
    incarnation: impl Fn(&[u8]) -> Option<u64>,
) -> Vec<(u32, u64)> {
    let mut found = Vec::new();
    for some in files.chunks(READS) {
        let reads: Vec<_> = some.iter().map(|(number, _)| (FileName::new(kind, *number), 0, BLOCK)).collect();
        for (file, block) in some.iter().zip(driver.read_many(&reads)) {
            let block = block.ok();
            let begun = file.0 == place.segment && place.block > 0;
            if begun || !is_old(block.as_deref().and_then(&incarnation), place, block.as_deref()) {
                found.push(*file);
            }
        }
    }
    found
}

/// Whether a segment's first block says that there is nothing behind `place` in it: it is of an earlier life, or was never
/// written, or punched. Otherwise opening would look into every segment of a large device.
fn is_old(incarnation: Option<u64>, place: LogPosition, block: Option<&[u8]>) -> bool {
    match incarnation {
        Some(incarnation) => incarnation < place.incarnation,
        None => block.is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0)),
    }
}

/// The data records behind `place`. Behind a damaged header it looks for the next one: within
/// `LOOK_AHEAD` blocks, or `thorough`ly to the segment's end.
pub(crate) fn scan_data(
    driver: &mut Driver<'_>,
    device: DeviceId,
    files: &[(u32, u64)],
    place: LogPosition,
    thorough: bool,
) -> Vec<Scanned<DataHeader>> {
    let mut found = Vec::new();
    let first = |block: &[u8]| DataHeader::decode(device, block).map(|header| header.incarnation);
    let files = if thorough { files.to_vec() } else { behind(driver, FileKind::Data, files, place, first) };
    for (number, bytes) in &files {
        let (mut block, mut incarnation) = entry(*number, place);
        let end = u32::try_from(*bytes / BLOCK as u64).unwrap_or(u32::MAX);
        let mut window =
            Window { driver: &mut *driver, file: data_file(*number), bytes: Vec::new(), start: 0, ahead: BLOCK };
        let mut missed = 0;
        let mut records: Vec<DataHeader> = Vec::new();
        while block < end {
            // Behind a small record the next ones are near: they are read together.
            let near = missed > 0 || records.last().is_some_and(|record| record.blocks() < NEAR);
            window.ahead = if near { MIB as usize } else { BLOCK };
            let header = window.get(block, BLOCK).and_then(|bytes| DataHeader::decode(device, bytes));
            let last = records.last().map_or(0, |record| record.sequence);
            let right = header.filter(|header| {
                (header.segment, header.block) == (*number, block)
                    && incarnation.map_or(header.incarnation >= place.incarnation, |known| header.incarnation == known)
                    && header.sequence > last
                    && u64::from(block) + u64::from(header.blocks()) <= u64::from(end)
            });
            match right {
                Some(header) => {
                    incarnation = Some(header.incarnation);
                    missed = 0;
                    block += header.blocks();
                    records.push(header);
                }
                None if thorough || missed < LOOK_AHEAD => (block, missed) = (block + 1, missed + 1),
                None => break,
            }
        }
        if let Some(incarnation) = incarnation {
            found.push(Scanned { number: *number, incarnation, records });
        }
    }
    found
}

/// Whether the payload behind this header is what the header says.
pub(crate) fn payload_matches(driver: &mut Driver<'_>, header: &DataHeader) -> bool {
    let offset = (u64::from(header.block) + 1) * BLOCK as u64;
    let length = (header.length as usize).next_multiple_of(BLOCK).min(RECORD_PAYLOAD_MAX);
    if length == 0 {
        return true;
    }
    let Ok(bytes) = driver.read(data_file(header.segment), offset, length) else { return false };
    let Some(payload) = bytes.get(..header.length as usize) else { return false };
    payload.chunks(BLOCK).map(crc32c).eq(header.crcs.iter().copied())
}

/// The journal groups behind `place`; `thorough` as in `scan_data`.
pub(crate) fn scan_journal(
    driver: &mut Driver<'_>,
    device: DeviceId,
    files: &[(u32, u64)],
    place: LogPosition,
    thorough: bool,
) -> Vec<Scanned<Group>> {
    let mut found = Vec::new();
    let first = |block: &[u8]| GroupHeader::decode(device, block).map(|header| header.incarnation);
    let files = if thorough { files.to_vec() } else { behind(driver, FileKind::Journal, files, place, first) };
    for (number, bytes) in &files {
        let (mut block, mut incarnation) = entry(*number, place);
        let end = u32::try_from(*bytes / BLOCK as u64).unwrap_or(u32::MAX);
        let mut window = Window {
            driver: &mut *driver,
            file: journal_file(*number),
            bytes: Vec::new(),
            start: 0,
            ahead: MIB as usize,
        };
        let mut missed = 0;
        let mut records: Vec<Group> = Vec::new();
        while block < end {
            let header = window.get(block, GROUP_HEADER).and_then(|bytes| GroupHeader::decode(device, bytes));
            let last = records.last().map_or(0, |record| record.header.last);
            let right = header.filter(|header| {
                (header.segment, header.block) == (*number, block)
                    && incarnation.map_or(header.incarnation >= place.incarnation, |known| header.incarnation == known)
                    && header.first > last
                    && u64::from(block) * BLOCK as u64 + header.padded() <= *bytes
            });
            let Some(header) = right else {
                if thorough || missed < LOOK_AHEAD {
                    (block, missed) = (block + 1, missed + 1);
                    continue;
                }
                break;
            };
            (incarnation, missed) = (Some(header.incarnation), 0);
            let total = GROUP_HEADER + header.length as usize;
            let records_of = window.get(block, total).and_then(|bytes| decode_group(device, &header, bytes));
            block += (header.padded() / BLOCK as u64) as u32;
            records.push(Group { header, records: records_of });
        }
        if let Some(incarnation) = incarnation {
            found.push(Scanned { number: *number, incarnation, records });
        }
    }
    found
}

/// The records of a whole group, if all of them are right.
pub(crate) fn decode_group(device: DeviceId, header: &GroupHeader, bytes: &[u8]) -> Option<Vec<(u64, Record)>> {
    let body = bytes.get(GROUP_HEADER..GROUP_HEADER.checked_add(header.length as usize)?)?;
    if GroupHeader::crc_of(device, body) != header.records_crc {
        return None;
    }
    decode_records(body)
}

/// Records one after another, if all of them are right.
pub(crate) fn decode_records(bytes: &[u8]) -> Option<Vec<(u64, Record)>> {
    let mut reader = Reader(bytes);
    let mut records = Vec::new();
    while !reader.0.is_empty() {
        records.push(Record::decode(&mut reader)?);
    }
    Some(records)
}

/// The incarnation in which a journal segment was last used, as its first group says; 0 if there is none.
pub(crate) fn journal_incarnation(driver: &mut Driver<'_>, device: DeviceId, number: u32) -> u64 {
    let bytes = driver.read(FileName::new(FileKind::Journal, number), 0, BLOCK);
    bytes.ok().and_then(|bytes| GroupHeader::decode(device, &bytes)).map_or(0, |header| header.incarnation)
}

#[cfg(test)]
mod tests {
    use super::{Chain, Link, Scanned, join};
    use base::planted::Planted;

    /// A record by its number and that of the one before.
    struct Bare(u64, u64);

    impl Link for Bare {
        fn sequences(&self) -> (u64, u64) {
            (self.0, self.0)
        }
        fn previous(&self) -> u64 {
            self.1
        }
        fn marks(&self) -> [u64; 2] {
            [0, 0]
        }
    }

    fn joined(segments: &[&[(u64, u64)]], mark: u64, planted: Option<Planted>) -> Chain<Bare> {
        let scanned = segments.iter().zip(1..).map(|(records, number)| Scanned {
            number,
            incarnation: u64::from(number),
            records: records.iter().map(|(sequence, previous)| Bare(*sequence, *previous)).collect(),
        });
        join(scanned.collect(), 0, mark, planted)
    }

    fn numbers(chain: &Chain<Bare>) -> Vec<u64> {
        chain.records.iter().map(|record| record.0).collect()
    }

    /// What an earlier recovery cut off ends no chain: the next segment says where it went on.
    #[test]
    fn a_chain_goes_on_where_the_next_segment_says_so() {
        // Record 3 was lost, 4 was not; the recovery after that went on behind 2, in another segment.
        let log: [&[(u64, u64)]; 2] = [&[(1, 0), (2, 1), (4, 3)], &[(13, 2)]];
        let chain = joined(&log, 2, None);
        assert_eq!((numbers(&chain), chain.gaps, chain.cut), (vec![1, 2, 13], vec![], 1));
        // Once more: 13 was cut off as well, or synced and gone on from.
        let again: [&[(u64, u64)]; 3] = [log[0], &[(13, 2), (15, 14)], &[(23, 13)]];
        assert_eq!(numbers(&joined(&again, 2, None)), [1, 2, 13, 23]);
        let again: [&[(u64, u64)]; 3] = [log[0], &[(13, 2), (15, 14)], &[(23, 2)]];
        assert_eq!(numbers(&joined(&again, 2, None)), [1, 2, 23]);
        // Nothing follows what was lost last.
        assert_eq!(numbers(&joined(&[log[0], &[(14, 13)]], 2, None)), [1, 2]);
        // This test sees it.
        assert_eq!(numbers(&joined(&log, 2, Some(Planted::ChainStaysEnded))), [1, 2]);
    }

    /// What an earlier recovery cut off is missed by nobody, although what was written since is durable; what is missing
    /// before a record that counts is damage.
    #[test]
    fn what_was_cut_off_leaves_no_gap() {
        let log: [&[(u64, u64)]; 2] = [&[(1, 0), (2, 1), (4, 3)], &[(13, 2), (14, 13)]];
        let chain = joined(&log, 13, None);
        assert_eq!((numbers(&chain), chain.gaps), (vec![1, 2, 13, 14], vec![]));
        let chain = joined(&log, 13, Some(Planted::ChainStaysEnded));
        assert_eq!(chain.gaps, [(3, 3)], "this test sees it");
        let damaged: [&[(u64, u64)]; 2] = [&[(1, 0), (3, 2), (4, 3)], &[(14, 13)]];
        assert_eq!(joined(&damaged, 13, None).gaps, [(2, 2), (5, 13)]);
        assert_eq!(joined(&[&[(1, 0), (2, 1)]], 5, None).gaps, [(3, 5)]);
    }
}
