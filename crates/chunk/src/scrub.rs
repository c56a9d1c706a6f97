//! Scrub: which live bytes of a device to read next, at which rate, and what turned out to be damaged. A step function beside
//! the engine: it says what to read, whoever serves the engine asks for it and hands the answer back.

use crate::engine::Engine;
use crate::index::Run;
use crate::request::{Check, Reply, Request};
use base::disk::Caching;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, Owner};
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX, SCRUB_DAMAGE_MAX};
use base::unit::Time;
use std::time::Duration;

/// Bytes read at once: one record. A foreground read that comes just then waits for no more than that.
const STEP: u64 = RECORD_PAYLOAD_MAX as u64;

/// While the disk has other work a step is put off, but no longer than this: 1 MiB every quarter of a second goes on in any case.
const PATIENCE: Duration = Duration::from_millis(250);

/// Bytes of a chunk that could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The chunk.
    pub chunk: ChunkId,
    /// Whom it belongs to.
    pub owner: Owner,
    /// Where in the chunk they begin.
    pub start: u64,
    /// Behind the last of them.
    pub end: u64,
    /// The disk could not read them; else it could, and their checksum is another.
    pub unreadable: bool,
}

/// How far a scrub has come and what it found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Chunks looked at.
    pub chunks: u64,
    /// Bytes compared, damaged ones included.
    pub bytes: u64,
    /// Everything was looked at.
    pub over: bool,
    /// What is damaged, in the order of the chunks' ids; at most `SCRUB_DAMAGE_MAX` ranges.
    pub damaged: Vec<DamagedRange>,
    /// Bytes in all damaged ranges, those that are not listed included.
    pub damaged_bytes: u64,
    /// Damaged ranges that are not listed because there were too many.
    pub not_listed: u64,
}

/// A scrub under way.
pub struct Scrub {
    /// Bytes a second; never zero.
    rate: u64,
    report: ScrubReport,
    /// The last chunk that was begun.
    cursor: Option<(ChunkId, Owner)>,
    /// Ranges of that chunk still to be read, the next one last.
    todo: Vec<(u64, u64)>,
    /// The range that is being read.
    asked: Option<(u64, u64)>,
    /// When the next step may be made.
    due: Time,
}

impl Scrub {
    /// Begins with the first chunk. `rate` is in bytes a second; zero counts as one.
    pub fn begin(now: Time, rate: u64) -> Scrub {
        let rate = rate.max(1);
        Scrub { rate, report: ScrubReport::default(), cursor: None, todo: Vec::new(), asked: None, due: now }
    }

    /// How far it has come.
    pub fn report(&self) -> &ScrubReport {
        &self.report
    }

    /// What to read next, if it is time and nothing of it is under way. `busy`: the disk has other work just now.
    pub fn next<T>(&mut self, now: Time, busy: bool, engine: &Engine<T>) -> Option<Request> {
        let due = if busy { self.due.after(PATIENCE) } else { self.due };
        if self.asked.is_some() || self.report.over || now < due {
            return None;
        }
        while self.todo.is_empty() {
            let Some((chunk, owner)) = engine.chunk_after(self.cursor.map(|(chunk, _)| chunk)) else {
                self.report.over = true;
                return None;
            };
            self.cursor = Some((chunk, owner));
            self.report.chunks += 1;
            self.todo = engine.kept_ranges(chunk).into_iter().rev().collect();
        }
        let (chunk, _) = self.cursor?;
        let (start, end) = self.todo.pop()?;
        let stop = end.min(start.saturating_add(STEP));
        if stop < end {
            self.todo.push((stop, end));
        }
        self.asked = Some((start, stop));
        // No credit is saved: after a pause it goes on at its rate, not faster.
        self.due = now.after(Duration::from_nanos((stop - start).saturating_mul(1_000_000_000) / self.rate));
        let ranges = vec![(start, stop - start)];
        Some(Request::Read { chunk, ranges, caching: Caching::Around, check: Check::Here, cells: true })
    }

    /// Takes the answer to what `next` asked for. What failed is asked for again in halves, down to the unit of checksums.
    pub fn took<T>(&mut self, result: &Result<Reply>, engine: &Engine<T>) {
        let (Some((start, end)), Some((chunk, owner))) = (self.asked.take(), self.cursor) else { return };
        let error = match result {
            Ok(_) => {
                self.report.bytes += end - start;
                return;
            }
            Err(error) => error,
        };
        if !engine.holds(chunk) {
            // Deleted meanwhile: what is left of it is nobody's.
            self.todo.clear();
        } else if end - start > BLOCK as u64 && !engine.is_in_cell(chunk, start, end) {
            let middle = start + ((end - start) / 2).next_multiple_of(BLOCK as u64).min(end - start - 1);
            self.todo.push((middle, end));
            self.todo.push((start, middle));
        } else if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unsupported) {
            // `NotFound` is a block of which a part was released meanwhile, `Unsupported` what a newer program has written.
            self.note((chunk, owner), (start, end), error);
        }
    }

    fn note(&mut self, (chunk, owner): (ChunkId, Owner), (start, end): (u64, u64), error: &Error) {
        let unreadable = error.kind() != ErrorKind::Corrupt;
        let report = &mut self.report;
        report.bytes += end - start;
        report.damaged_bytes += end - start;
        let listed = report.damaged.len();
        match report.damaged.last_mut() {
            Some(last) if last.chunk == chunk && last.end == start && last.unreadable == unreadable => last.end = end,
            _ if listed < SCRUB_DAMAGE_MAX => {
                report.damaged.push(DamagedRange { chunk, owner, start, end, unreadable });
            }
            _ => report.not_listed += 1,
        }
    }

    /// When `next` should be asked again although nothing happened; none if it waits for an answer or is over.
    pub fn next_due(&self, busy: bool) -> Option<Time> {
        let due = if busy { self.due.after(PATIENCE) } else { self.due };
        (self.asked.is_none() && !self.report.over).then_some(due)
    }
}

impl<T> Engine<T> {
    /// The next chunk in the order of ids, and its owner.
    fn chunk_after(&self, after: Option<ChunkId>) -> Option<(ChunkId, Owner)> {
        self.index().chunks.after(after).next().map(|(id, chunk)| (id, chunk.owner))
    }

    /// Whether these bytes are in one cell, which is whole or damaged.
    fn is_in_cell(&self, id: ChunkId, start: u64, end: u64) -> bool {
        let holds = |run: &Run| run.cell() > 0 && u64::from(run.offset) <= start && end <= u64::from(run.end());
        self.index().chunks.get(&id).is_some_and(|chunk| chunk.runs.iter().any(holds))
    }

    /// Whether less is stored of some bytes of a chunk than they are.
    pub fn has_cells(&self, id: ChunkId) -> bool {
        self.index().chunks.get(&id).is_some_and(|chunk| chunk.runs.iter().any(|run| run.cell() > 0))
    }

    /// Bytes of the answer to a read of these ranges, cells whole and as they are stored.
    pub fn answer_length(&self, id: ChunkId, ranges: &[(u64, u64)]) -> u64 {
        let asked = ranges.iter().fold(0u64, |sum, (_, length)| sum.saturating_add(*length));
        let index = self.index();
        let Some(chunk) = index.chunks.get(&id) else { return asked };
        let under_way = index.open.get(&id).into_iter().flat_map(|open| &open.under_way);
        let (mut bytes, known) = (asked, chunk.runs);
        for (offset, length) in ranges {
            let end = offset.saturating_add(*length);
            let first = known.partition_point(|run| u64::from(run.end()) <= *offset);
            let touched = known[first..].iter().take_while(|run| u64::from(run.offset) < end);
            for run in touched.chain(under_way.clone()).filter(|run| run.cell() > 0) {
                let (from, to) = (u64::from(run.offset).max(*offset), u64::from(run.end()).min(end));
                if from < to {
                    bytes = bytes.saturating_sub(to - from).saturating_add(run.stored().into());
                }
            }
        }
        bytes
    }

    /// A chunk's length in bytes; zero if it is not here.
    pub fn length_of(&self, id: ChunkId) -> u64 {
        self.index().chunks.get(&id).map_or(0, |chunk| u64::from(chunk.length))
    }

    /// The ranges (start, end) of a chunk's bytes that its owner has not released, in order.
    pub fn kept_ranges(&self, id: ChunkId) -> Vec<(u64, u64)> {
        let Some(chunk) = self.index().chunks.get(&id) else { return Vec::new() };
        let mut kept = Vec::new();
        let mut at = 0;
        let released = self.index().released.get(&id).map(Vec::as_slice).unwrap_or_default();
        for (start, end) in released {
            if at < *start {
                kept.push((u64::from(at), u64::from(*start)));
            }
            at = *end;
        }
        if at < chunk.length {
            kept.push((u64::from(at), u64::from(chunk.length)));
        }
        kept
    }
}
