//! The log while it is written: entries gathered into groups, one group in flight, segments that come round again.

use crate::format::{self, HEADER};
use base::buffer::Pool;
use base::disk::{DiskError, Done, FileKind, FileName, Fill, Op};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes kept warm for writing groups.
const POOL: usize = 4 << 20;

/// Groups that may wait behind the one in flight, full ones: 16 MiB with segments of the usual size.
const WAITING_MAX: usize = 4;

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    /// Being made.
    Making,
    /// Nothing in it is needed.
    Free,
    /// Groups are added to it.
    Current,
    /// It has no room; needed until this entry is merged.
    Full(u64),
    /// Could not be made.
    Missing,
}

/// Entries that wait together.
struct Gather {
    first: u64,
    last: u64,
    /// `HEADER` bytes of room, then the entries.
    bytes: Vec<u8>,
}

/// What is in flight.
#[derive(Clone, Copy)]
struct Flight {
    token: u64,
    last: u64,
    /// Written; its sync is under way.
    syncing: bool,
    segment: usize,
    /// Bytes that it takes.
    length: u64,
}

/// The log.
pub struct Log {
    segment_length: u64,
    segments: Vec<Segment>,
    segments_max: usize,
    current: Option<usize>,
    /// Where the next group goes in the current segment.
    offset: u64,
    incarnation: u64,
    random: Arc<dyn Random>,
    pool: Pool,
    waiting: VecDeque<Gather>,
    flight: Option<Flight>,
    making: Option<(u64, usize)>,
    /// Making a segment failed, and nothing was merged since.
    making_failed: bool,
    next_token: u64,
    durable: u64,
    last_logged: u64,
    failure: Option<Error>,
    operations: Vec<(u64, Op)>,
}

impl Log {
    /// A log whose entries up to `durable` are merged. `usable` says which segments are there, all of them free.
    /// `segment_length` is a multiple of `BLOCK`.
    pub fn new(
        segment_length: u64,
        usable: &[bool],
        segments_max: usize,
        durable: u64,
        random: Arc<dyn Random>,
    ) -> Log {
        let segment = |usable: &bool| if *usable { Segment::Free } else { Segment::Missing };
        Log {
            segment_length,
            segments: usable.iter().map(segment).collect(),
            segments_max: segments_max.max(usable.len()),
            current: None,
            offset: 0,
            incarnation: 0,
            random,
            pool: Pool::new(POOL),
            waiting: VecDeque::new(),
            flight: None,
            making: None,
            making_failed: false,
            next_token: 1,
            durable,
            last_logged: durable,
            failure: None,
            operations: Vec::new(),
        }
    }

    /// Largest entry for segments of this length: four fit in a segment whatever is around them.
    pub fn entry_max(segment_length: u64) -> usize {
        usize::try_from(segment_length / 4).unwrap_or(usize::MAX).saturating_sub(HEADER)
    }

    /// Sequence number up to which entries survive a power loss.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// Why the log takes no more entries, ever.
    pub fn failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    /// Gives the log up.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
        self.waiting.clear();
        self.operations.clear();
    }

    /// Whether another entry is taken now.
    pub fn check(&self) -> Result<()> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(Error::new(
                ErrorKind::Full,
                "the metadata log is full: changes come faster than they are merged or the disk is; \
                 nothing was changed and what was acknowledged is safe: try again later",
            ));
        }
        Ok(())
    }

    /// Whether merging should not wait: segments run short, or none can be had.
    pub fn wants_room(&self) -> bool {
        let full = self.segments.iter().filter(|segment| matches!(segment, Segment::Full(_))).count();
        2 * full >= self.segments_max || (full > 0 && self.current.is_none()) || self.failure.is_some()
    }

    /// Takes an entry, which has the sequence number after the last one's.
    pub fn push(&mut self, sequence: u64, entry: &[u8]) {
        let room = Log::entry_max(self.segment_length);
        match self.waiting.back_mut() {
            Some(gather) if gather.bytes.len() + entry.len() <= room => {
                gather.bytes.extend_from_slice(entry);
                gather.last = sequence;
            }
            _ => {
                let mut bytes = vec![0; HEADER];
                bytes.extend_from_slice(entry);
                self.waiting.push_back(Gather { first: sequence, last: sequence, bytes });
            }
        }
    }

    /// Starts what can be started.
    pub fn advance(&mut self) {
        if self.failure.is_some() || self.flight.is_some() {
            return;
        }
        let Some(length) = self.waiting.front().map(|gather| gather.bytes.len().next_multiple_of(BLOCK) as u64) else {
            return;
        };
        if !self.has_room_for(length) {
            return;
        }
        let (Some(segment), Some(gather)) = (self.current, self.waiting.pop_front()) else { return };
        let mut group = self.pool.take(length as usize);
        let used = gather.bytes.len();
        group[..used].copy_from_slice(&gather.bytes);
        group[used..].fill(0);
        format::finish_group(&mut group, self.incarnation, gather.first, gather.last, used - HEADER);
        let token = self.token();
        let file = FileName::new(FileKind::Log, segment as u32);
        self.operations.push((token, Op::Write { file, offset: self.offset, parts: vec![group.freeze()] }));
        self.flight = Some(Flight { token, last: gather.last, syncing: false, segment, length });
    }

    /// Whether a group of this length can be written now; makes a segment current if need be.
    fn has_room_for(&mut self, length: u64) -> bool {
        if let Some(current) = self.current {
            if self.offset + length <= self.segment_length {
                return true;
            }
            self.segments[current] = Segment::Full(self.last_logged);
            self.current = None;
        }
        let free = self.segments.iter().position(|segment| *segment == Segment::Free);
        if let Some(free) = free {
            self.segments[free] = Segment::Current;
            self.current = Some(free);
            self.offset = 0;
            self.incarnation = self.random.next();
        }
        // One spare is made ahead of need.
        if self.making.is_none() && !self.making_failed && !self.segments.contains(&Segment::Free) {
            self.make_segment();
        }
        self.current.is_some()
    }

    fn make_segment(&mut self) {
        let number = match self.segments.iter().position(|segment| *segment == Segment::Missing) {
            Some(missing) => missing,
            None if self.segments.len() < self.segments_max => {
                self.segments.push(Segment::Missing);
                self.segments.len() - 1
            }
            None => return,
        };
        self.segments[number] = Segment::Making;
        let token = self.token();
        self.making = Some((token, number));
        let file = FileName::new(FileKind::Log, number as u32);
        self.operations.push((token, Op::Create { file, size: self.segment_length, fill: Fill::Zeros }));
    }

    fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token - 1
    }

    /// Operations to be put to the disk, in order.
    pub fn take_operations(&mut self) -> Vec<(u64, Op)> {
        std::mem::take(&mut self.operations)
    }

    /// An operation is done. `Err` if the log failed with it: nothing that is not durable yet will be.
    pub fn completed(&mut self, done: Done) -> Result<()> {
        if let Some((token, number)) = self.making
            && token == done.token
        {
            self.making = None;
            self.making_failed = done.result.is_err();
            self.segments[number] = if done.result.is_ok() { Segment::Free } else { Segment::Missing };
            // Names are not durable any more: as after a failed sync.
            return match &done.result {
                Err(error @ DiskError::Unnamed(_)) => Err(write_failed(error)),
                _ => Ok(()),
            };
        }
        let Some(mut flight) = self.flight.filter(|flight| flight.token == done.token) else { return Ok(()) };
        self.flight = None;
        if let Err(error) = done.result {
            return Err(write_failed(&error));
        }
        if self.failure.is_some() {
            return Ok(());
        }
        if flight.syncing {
            self.durable = self.durable.max(flight.last);
            return Ok(());
        }
        self.offset += flight.length;
        self.last_logged = flight.last;
        flight.syncing = true;
        flight.token = self.token();
        let file = FileName::new(FileKind::Log, flight.segment as u32);
        self.operations.push((flight.token, Op::Sync { file }));
        self.flight = Some(flight);
        Ok(())
    }

    /// Entries up to `sequence` are in the tree, durably: segments with nothing newer are free, and what waits of them need not be written.
    pub fn merged(&mut self, sequence: u64) {
        for segment in &mut self.segments {
            if matches!(segment, Segment::Full(last) if *last <= sequence) {
                *segment = Segment::Free;
            }
        }
        self.making_failed = false;
        while self.waiting.front().is_some_and(|gather| gather.last <= sequence) {
            self.waiting.pop_front();
        }
        self.durable = self.durable.max(sequence);
    }
}

fn write_failed(error: &DiskError) -> Error {
    Error::new(
        ErrorKind::Io,
        format!(
            "the metadata log could not be written: {error}; changes are refused until a restart, reads go on, \
             what was acknowledged is safe, and whether this change is kept is not known: check the disk, restart, look"
        ),
    )
}
