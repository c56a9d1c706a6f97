//! The journal stream: small records gathered into groups, one group in flight at a time.

use crate::core::{Core, Purpose, journal_file};
use crate::format::{EarlyHeader, GROUP_HEADER, GroupHeader, JOURNAL_PAYLOAD_MAX, LogPosition, Record};
use base::disk::{DiskError, Fill, Op};
use base::limit::{BLOCK, FULL_WAIT};
use base::planted::Planted;
use base::unit::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A record with the largest payload, its frame, fields and padding.
const RECORD_MAX: usize = JOURNAL_PAYLOAD_MAX + 128;

/// For so long, at most, a group is left alone that is early as a whole (`early`) and that nobody wants synced. A log that is flushed all the time
/// then costs 100 writes of the disk a second, not one for each flush.
const REST: Duration = Duration::from_millis(10);

/// A group of so many bytes is written without rest.
const REST_MAX: usize = 256 << 10;

/// Records that are written together.
#[derive(Default)]
struct Group {
    records: Vec<u8>,
    /// Bytes of them that are in the early file, too.
    early: usize,
    /// When the first of them came.
    since: Time,
    first: u64,
    last: u64,
}

/// Groups under way and the segments.
#[derive(Default)]
pub(crate) struct JournalLog {
    /// The first is in flight if `in_flight`; the last gathers.
    groups: VecDeque<Group>,
    in_flight: bool,
    /// The last write failed, for this cause.
    strike: Option<DiskError>,
    /// Bytes written since the last checkpoint.
    pub written_bytes: u64,
    /// Bytes written since the data stream's newest write began.
    pub since_data: u64,
    /// The segment that is written, and the block where the next group goes.
    pub current: Option<(u32, u32)>,
    /// Segments that may be used next.
    pub free: VecDeque<u32>,
    creating: bool,
    /// Since when a group has waited for a segment.
    waits_since: Option<Time>,
    /// Every segment with the incarnation in which it was last used (0: never).
    pub segments: BTreeMap<u32, u64>,
}

impl JournalLog {
    /// A group is being written.
    pub fn in_flight(&self) -> bool {
        self.in_flight
    }

    /// The disk did not take the first group, which is written again.
    fn was_refused(&self) -> bool {
        self.strike.is_some()
    }

    /// Everything in the groups is in the early file, too.
    pub fn groups_are_early(&mut self) {
        self.groups.iter_mut().for_each(|group| group.early = group.records.len());
    }
}

impl Core {
    /// Adds a record to the journal: its sequence number.
    pub fn record(&mut self, record: Record) -> u64 {
        let sequence = self.sequence();
        self.gather(sequence, &record);
        sequence
    }

    /// Adds the record with the next sequence number.
    pub fn gather(&mut self, sequence: u64, record: &Record) {
        self.gather_encoded(sequence, |out| record.encode(sequence, out));
    }

    /// The same of a record that `encode` adds to the group's bytes.
    pub fn gather_encoded(&mut self, sequence: u64, encode: impl FnOnce(&mut Vec<u8>)) {
        let log = &mut self.journal_log;
        // What the disk was given once, whole or in part, stays as it is.
        let only_given = (log.in_flight || log.was_refused()) && log.groups.len() == 1;
        let limit = self.settings.group_max - GROUP_HEADER - RECORD_MAX;
        if only_given || log.groups.back().is_none_or(|group| group.records.len() > limit) {
            log.groups.push_back(Group { first: sequence, since: self.now, ..Group::default() });
        }
        if let Some(group) = log.groups.back_mut() {
            encode(&mut group.records);
            group.last = sequence;
        }
        self.journal.last = sequence;
    }

    /// Copies what the journal has gathered into the early file if somebody waits who needs no more.
    pub fn keep_early(&mut self) {
        if !self.early.is_there() || !self.journal.is_awaited_early() || !self.opening_has_room() {
            return;
        }
        let records = self.journal_log.groups.iter().map(|group| &group.records[group.early..]);
        let length = records.clone().map(<[u8]>::len).sum::<usize>();
        let (previous, last) = (self.journal.kept(), self.journal.last);
        let header = EarlyHeader { length: u32::try_from(length).unwrap_or(u32::MAX), previous, last };
        let overwrites = self.settings.planted == Some(Planted::EarlyRecordsOverwritten);
        let written = if overwrites { u64::MAX } else { self.journal.written };
        if self.early.write(self.device, header, records, written) {
            self.journal_log.groups_are_early();
            self.journal.early = last;
            self.marks_moved();
        }
    }

    /// Whether an opening would have where to put what is early. It never goes on in a segment that was used, and on a full file system it can
    /// make none: so one must stand ready. And what is gathered must fit one group: if the process ends while that is written to the segment that
    /// stood ready, the group is whole, and nothing is left to be put anywhere, or it is torn, and the segment is as good as unused.
    fn opening_has_room(&self) -> bool {
        let log = &self.journal_log;
        let gathered = log.groups.iter().map(|group| group.records.len()).sum::<usize>();
        !log.free.is_empty() && !log.was_refused() && gathered <= self.settings.group_max - GROUP_HEADER - RECORD_MAX
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
        (rests && !wanted).then(|| group.since.after(REST))
    }

    /// Writes the first gathered group if none is in flight and it need not wait for more.
    pub fn write_journal(&mut self) {
        let rests = self.journal_rests_until().is_some_and(|until| until > self.now);
        if self.journal_log.in_flight || self.journal_log.groups.is_empty() || rests {
            return;
        }
        let bytes = (GROUP_HEADER + self.journal_log.groups[0].records.len()).next_multiple_of(BLOCK);
        let blocks = (bytes / BLOCK) as u32;
        let size = (self.settings.journal_segment / BLOCK as u64) as u32;
        if self.journal_log.current.is_none_or(|(_, block)| block + blocks > size) {
            let Some(number) = self.journal_log.free.pop_front() else {
                self.journal_log.current = None;
                self.journal_log.waits_since.get_or_insert(self.now);
                self.prepare_journal();
                return;
            };
            self.journal_log.waits_since = None;
            let incarnation = self.sequence();
            self.journal_log.segments.insert(number, incarnation);
            self.journal_log.current = Some((number, 0));
            self.prepare_journal();
        }
        let Some((segment, block)) = self.journal_log.current else { return };
        let group = &self.journal_log.groups[0];
        let header = GroupHeader {
            length: group.records.len() as u32,
            records_crc: GroupHeader::crc_of(self.device, &group.records),
            segment,
            block,
            incarnation: self.journal_log.segments.get(&segment).copied().unwrap_or(0),
            previous: self.journal.written,
            first: group.first,
            last: group.last,
            durable_data: self.data.durable,
            durable_journal: self.journal.durable,
        };
        let mut out = self.settings.pool.take(bytes);
        header.encode(self.device, &mut out);
        let end = GROUP_HEADER + group.records.len();
        out[GROUP_HEADER..end].copy_from_slice(&group.records);
        out[end..].fill(0);
        self.journal_log.current = Some((segment, block + blocks));
        self.journal_log.in_flight = true;
        self.journal_log.written_bytes += bytes as u64;
        self.journal_log.since_data += bytes as u64;
        let offset = u64::from(block) * BLOCK as u64;
        self.start(Purpose::JournalWrite, Op::Write { file: journal_file(segment), offset, parts: vec![out.freeze()] });
    }

    /// When the device leaves service because no segment comes for its journal: whoever waits for it would wait for ever.
    pub fn journal_ends(&self) -> Option<Time> {
        let log = &self.journal_log;
        // While one is being made it is not refused, however long that takes.
        let since = log.waits_since.filter(|_| self.failed.is_none() && !log.creating)?;
        Some(since.max(self.space.came_back).after(FULL_WAIT))
    }

    /// A journal write ended. A failed one is written once more, to another segment.
    pub fn journal_written(&mut self, result: std::result::Result<(), DiskError>) {
        let log = &mut self.journal_log;
        log.in_flight = false;
        let place = log.current;
        if let Err(error) = result {
            log.current = None;
            // Its place is before this group, which goes elsewhere.
            self.abandon_checkpoint();
            match self.journal_log.strike.take() {
                None => self.journal_log.strike = Some(error),
                Some(first) => self.fail_to_write("its journal ", &first, &error),
            }
            return;
        }
        log.strike = None;
        if let (Some(group), Some((segment, _))) = (log.groups.pop_front(), place) {
            self.journal.written = group.last;
            self.journal.dirty.insert(journal_file(segment));
        }
        self.marks_moved();
    }

    /// Behind the last group that is written or being written. Groups that follow may begin with records that are older than
    /// this moment.
    pub fn journal_place(&self) -> LogPosition {
        let log = &self.journal_log;
        let in_flight = log.groups.front().filter(|_| log.in_flight);
        let last = in_flight.map_or(self.journal.written, |group| group.last);
        match log.current {
            Some((segment, block)) => {
                let incarnation = log.segments.get(&segment).copied().unwrap_or(0);
                LogPosition { segment, incarnation, block, last }
            }
            None => LogPosition { segment: 0, incarnation: self.next_sequence, block: 0, last },
        }
    }

    /// Sees to it that a segment is ready when the current one is full: one below the older checkpoint, else a new one.
    pub fn prepare_journal(&mut self) {
        let floor = self.space.floor.journal.incarnation;
        let current = self.journal_log.current.map(|(number, _)| number);
        let log = &mut self.journal_log;
        let old = |(number, incarnation): (&u32, &u64)| {
            let usable = *incarnation < floor && Some(*number) != current && !log.free.contains(number);
            usable.then_some(*number)
        };
        let recycled: Vec<u32> = log.segments.iter().filter_map(old).collect();
        log.free.extend(recycled);
        let waits = self.space.retry_at.is_some_and(|at| at > self.now);
        if !log.free.is_empty() || log.creating || waits {
            return;
        }
        let number = log.segments.last_key_value().map_or(0, |(number, _)| number + 1);
        log.creating = true;
        let size = self.settings.journal_segment;
        self.start(Purpose::CreateJournal(number), Op::Create { file: journal_file(number), size, fill: Fill::Zeros });
    }

    /// A journal segment was made, or not.
    pub fn journal_created(&mut self, number: u32, result: std::result::Result<(), DiskError>) {
        self.journal_log.creating = false;
        match result {
            Ok(()) => {
                self.journal_log.segments.insert(number, 0);
                self.journal_log.free.push_back(number);
            }
            Err(error) => self.failed_to_create(&error),
        }
    }
}
