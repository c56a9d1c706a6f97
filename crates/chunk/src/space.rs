//! Room on the device: data segments, what is dead in them, and how it comes back.

use crate::core::{Core, Purpose, RETRY, data_file};
use crate::format::record_blocks;
use crate::index::Places;
use base::disk::{DiskError, Fill, Op};
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use base::unit::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Dead ranges of a segment are punched from so many blocks on (64 KiB): less is not worth an operation.
const PUNCH_MIN: u32 = 16;
/// Dead space is much if it is this part of what lives and of a segment.
const HELD_PART: u64 = 16;
/// It waits so long for more of its kind before a checkpoint is made for it. Two are needed: back within a few seconds.
const HELD_WAIT: Duration = Duration::from_secs(1);
/// Dead ranges of a segment wait so long before they are punched while space is not short. A bag that is consumed in its
/// order kills whole segments within that time, and a punch holds up the reads of its segment.
const PUNCH_WAIT: Duration = Duration::from_secs(1);
/// A segment that is dead as a whole is kept so long to be used again before its file is removed: a stream that is pushed
/// and pulled then goes round in the same few files, and a file system that discards what is removed (`-o discard`) does
/// not do that beside every read.
const IDLE_WAIT: Duration = Duration::from_secs(3);
/// Punches under way at a time. On a file system that passes them on to the disk as discards, 64 at once took 15 ms each, in
/// which syncs waited for up to 0.1 s; two at once take 2.5 ms and are done as soon.
const PUNCHES_MAX: usize = 2;
/// The same while space is short: then whoever waits for room waits longer than any sync.
const PUNCHES_SHORT_MAX: usize = 64;

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Creating,
    /// Dead as a whole, and kept for a while to become the spare.
    Idle,
    /// Ready to be the next current one.
    Spare,
    Current,
    Closed,
    Removing,
}

/// A data segment. Sizes in blocks.
#[derive(Debug)]
pub(crate) struct Segment {
    pub incarnation: u64,
    pub state: State,
    /// Where the next record goes.
    pub end: u32,
    /// Blocks of records that are of use.
    pub live: u32,
    /// Ranges (start, blocks) of no use that are not punched yet.
    dead: Vec<(u32, u32)>,
    dead_blocks: u32,
    /// Since when there has been enough to punch.
    dead_since: Option<Time>,
    punched: u32,
    /// The journal must be durable up to here before dead ranges are given up.
    pub dead_after: u64,
    /// Reads in flight.
    pub readers: u32,
    punching: u32,
    /// Not of the size of a segment: it is never used again.
    pub misfit: bool,
    /// The file system did not remove it: not tried again before.
    retry_at: Option<Time>,
}

impl Segment {
    pub fn new(state: State, incarnation: u64) -> Segment {
        Segment {
            incarnation,
            state,
            end: 0,
            live: 0,
            dead: Vec::new(),
            dead_blocks: 0,
            dead_since: None,
            punched: 0,
            dead_after: 0,
            readers: 0,
            punching: 0,
            misfit: false,
            retry_at: None,
        }
    }

    /// A range is of no use.
    pub fn bury(&mut self, start: u32, blocks: u32) {
        if blocks > 0 {
            self.dead.push((start, blocks));
            self.dead_blocks = self.dead_blocks.saturating_add(blocks);
        }
    }
}

/// All data segments.
#[derive(Default)]
pub(crate) struct Space {
    pub segments: BTreeMap<u32, Segment>,
    pub current: Option<u32>,
    pub spare: Option<u32>,
    /// Segments that may be used again, and since when; the oldest first.
    idle: VecDeque<(u32, Time)>,
    creating: bool,
    /// Nothing at or above this is punched, recycled or removed: where the older checkpoint's scan starts.
    pub floor: Places,
    /// Segments with dead ranges.
    candidates: BTreeSet<u32>,
    /// Something may have become reclaimable.
    pub due: bool,
    /// Punched blocks of all segments.
    punched: u64,
    /// Punches under way.
    punching: usize,
    /// When the next segment will have waited long enough to be punched or removed.
    reclaim_at: Option<Time>,
    /// Since when much is dead that only a checkpoint can bring back.
    pub held_since: Option<Time>,
    /// When space last came back.
    pub came_back: Time,
    /// The file system refused something; not tried again before.
    pub retry_at: Option<Time>,
}

impl Space {
    /// Whether a segment is being made.
    pub fn is_making(&self) -> bool {
        self.creating
    }

    /// A range of a segment is of no use once the journal is durable up to `after`.
    pub fn kill(&mut self, segment: u32, block: u32, blocks: u32, after: u64) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        found.live = found.live.saturating_sub(blocks);
        found.bury(block, blocks);
        found.dead_after = found.dead_after.max(after);
        self.candidates.insert(segment);
    }
}

impl Core {
    fn segment_blocks(&self) -> u32 {
        (self.settings.data_segment / BLOCK as u64) as u32
    }

    /// Bytes that the engine's files occupy.
    pub fn used(&self) -> u64 {
        let blocks = self.space.segments.len() as u64 * u64::from(self.segment_blocks());
        let data = (blocks - self.space.punched) * BLOCK as u64;
        let journal = self.journal_log.segments.len() as u64 * self.settings.journal_segment;
        data + journal + self.checkpoint.bytes() + self.early.size + BLOCK as u64
    }

    /// Blocks behind the last record of the current segment.
    fn left(&self) -> u32 {
        let current = self.space.current.and_then(|number| self.space.segments.get(&number));
        current.map_or(0, |segment| self.segment_blocks() - segment.end)
    }

    /// Whether records of these sizes, in this order (that of `allocate`), fit the segments that are there, and behind them `tails` blocks of
    /// tails, in whatever order these become records.
    pub fn has_room(&self, records: &[u32], tails: u64) -> bool {
        if self.needs_fresh_segment() && !self.data_log.is_idle() {
            return false;
        }
        let (mut left, mut spare) = (self.left(), self.space.spare.is_some());
        for blocks in records.iter().copied() {
            if blocks > left {
                if !spare || blocks > self.segment_blocks() {
                    return false;
                }
                (left, spare) = (self.segment_blocks(), false);
            }
            left -= blocks;
        }
        // The first tail's record that does not fit leaves less than itself behind.
        let lost = left.min(record_blocks(RECORD_PAYLOAD_MAX as u32) - 1);
        let next = if spare { self.segment_blocks() - lost } else { 0 };
        tails <= u64::from(left) + u64::from(next)
    }

    /// Whether the segments that are there hold one more record, whatever else waits.
    pub fn fits(&self, blocks: u32) -> bool {
        self.space.spare.is_some() || blocks <= self.left()
    }

    /// A place for a record: segment, block, incarnation. Only after `has_room` or `fits`.
    pub fn allocate(&mut self, blocks: u32) -> (u32, u32, u64) {
        if blocks > self.left() {
            self.take_spare();
        }
        let Some(number) = self.space.current else { unreachable!("has_room was asked before") };
        let Some(segment) = self.space.segments.get_mut(&number) else { unreachable!("the current segment is known") };
        let block = segment.end;
        segment.end += blocks;
        segment.live += blocks;
        (number, block, segment.incarnation)
    }

    /// The spare segment becomes the current one.
    fn take_spare(&mut self) {
        self.close_current_data();
        let incarnation = self.sequence();
        let number = self.space.spare.take();
        if let Some(segment) = number.and_then(|number| self.space.segments.get_mut(&number)) {
            (segment.state, segment.incarnation, segment.end) = (State::Current, incarnation, 0);
        }
        self.space.current = number;
    }

    /// Leaves what is left of the current segment, so that an append finds two that are empty: the records of 16 MiB are longer than a segment of as
    /// much. Only if another one can be made.
    pub fn leave_current_data(&mut self) -> bool {
        let next_comes = !self.space.idle.is_empty() || self.may_make(self.settings.reserve);
        let leaves = next_comes && self.space.spare.is_some() && self.left() < self.segment_blocks();
        if leaves {
            self.take_spare();
        }
        leaves
    }

    /// Whether one more segment, and this much beside it, is within the capacity.
    fn may_make(&self, reserve: u64) -> bool {
        self.used() + self.settings.data_segment + reserve <= self.settings.capacity
    }

    /// No more records go to the current segment; what is left of it is dead.
    pub fn close_current_data(&mut self) {
        let size = self.segment_blocks();
        let Some(number) = self.space.current.take() else { return };
        if let Some(segment) = self.space.segments.get_mut(&number) {
            segment.state = State::Closed;
            segment.bury(segment.end, size - segment.end);
            self.space.candidates.insert(number);
        }
    }

    /// Sees to it that a next data segment is there: made while there is room beside the reserve, or within the reserve if
    /// records that were accepted need it.
    pub fn prepare_segments(&mut self) {
        self.prepare_journal();
        let size = self.segment_blocks();
        let current = self.space.current.and_then(|number| self.space.segments.get(&number));
        let half_full = current.is_none_or(|segment| segment.end >= size / 2) || !self.waiting.is_empty();
        let seals = !self.waiting_seals.is_empty() || !self.index.passed_over.is_empty();
        let must = seals || self.needs_fresh_segment();
        let waits = self.space.retry_at.is_some_and(|at| at > self.now);
        if self.space.spare.is_some() || self.space.creating || waits || !(half_full || must) {
            return;
        }
        if let Some((number, _)) = self.space.idle.pop_back() {
            self.make_spare(number);
            return;
        }
        let reserve = if must { 0 } else { self.settings.reserve };
        if !self.may_make(reserve) {
            if !self.waiting.is_empty() && self.checkpoint_would_help() {
                self.close_current_data();
            }
            return;
        }
        let number = self.space.segments.last_key_value().map_or(0, |(number, _)| number + 1);
        self.space.creating = true;
        self.space.segments.insert(number, Segment::new(State::Creating, 0));
        let size = self.settings.data_segment;
        self.start(Purpose::CreateData(number), Op::Create { file: data_file(number), size, fill: Fill::Reserved });
    }

    /// A data segment was made, or not.
    pub fn data_created(&mut self, number: u32, result: std::result::Result<(), DiskError>) {
        self.space.creating = false;
        match result {
            Ok(()) => self.make_spare(number),
            Err(error) => {
                self.space.segments.remove(&number);
                self.failed_to_create(&error);
            }
        }
    }

    fn make_spare(&mut self, number: u32) {
        self.space.segments.insert(number, Segment::new(State::Spare, 0));
        self.space.spare = Some(number);
        self.space.came_back = self.now;
    }

    /// The file system refused something: try again later.
    pub fn retry_later(&mut self) {
        self.space.retry_at = Some(self.now.after(RETRY));
    }

    /// Gives back what is dead below the floor: whole segments are used again or removed, parts are punched.
    pub fn reclaim(&mut self) {
        if !std::mem::take(&mut self.space.due) {
            return;
        }
        let (patience, punches_max) =
            if self.space_is_short() { (Duration::ZERO, PUNCHES_SHORT_MAX) } else { (PUNCH_WAIT, PUNCHES_MAX) };
        self.space.reclaim_at = None;
        self.remove_idle();
        let candidates: Vec<u32> = self.space.candidates.iter().copied().collect();
        for number in candidates {
            let Some(segment) = self.space.segments.get(&number) else {
                self.space.candidates.remove(&number);
                continue;
            };
            if segment.state != State::Closed || !self.is_below_floor(segment) {
                continue;
            }
            if let Some(at) = segment.retry_at.filter(|at| *at > self.now) {
                self.reclaim_by(at);
            } else if segment.live == 0 {
                self.free_segment(number);
            } else if segment.dead_blocks >= PUNCH_MIN && self.space.punching < punches_max {
                let punch_at = segment.dead_since.unwrap_or(self.now).after(patience);
                if punch_at <= self.now {
                    self.punch(number, punches_max - self.space.punching);
                } else {
                    self.wait_to_punch(number, punch_at);
                }
            }
        }
        let much =
            self.held_blocks() * BLOCK as u64 >= self.index.live / HELD_PART + self.settings.data_segment / HELD_PART;
        self.space.held_since = much.then(|| self.space.held_since.unwrap_or(self.now));
    }

    /// Dead blocks in segments that the older checkpoint may name: checkpoints bring them back.
    fn held_blocks(&self) -> u64 {
        let (floor, small) = (self.space.floor.data.incarnation, self.segment_blocks() / 8);
        let known = self.space.candidates.iter().filter_map(|number| self.space.segments.get(number));
        let is_held = |segment: &&Segment| match segment.state {
            State::Closed => segment.incarnation >= floor,
            // Less of the current one stays with it: it is not closed for that.
            State::Current => segment.dead_blocks >= small,
            _ => false,
        };
        known.filter(is_held).map(|segment| u64::from(segment.dead_blocks)).sum()
    }

    /// Much is dead for a while and waits for a checkpoint.
    pub fn garbage_waits(&self) -> bool {
        self.space.held_since.is_some_and(|since| since.after(HELD_WAIT) <= self.now)
    }

    /// When a checkpoint is due for that, if nothing changes.
    pub fn garbage_due(&self) -> Option<Time> {
        // None begins while records wait for another place; what gives them one is an event, and the pump goes on with it.
        let possible = self.failed.is_none() && self.checkpoint.is_idle() && !self.needs_fresh_segment();
        let due = self.space.held_since.filter(|_| possible)?.after(HELD_WAIT);
        Some(due.max(self.checkpoint.retry_at.unwrap_or(due)))
    }

    /// A current segment that is of little use is closed, so that the checkpoint that begins brings its dead parts back, too.
    pub fn close_dying_current(&mut self) {
        self.space.held_since = None;
        let small = self.segment_blocks() / 8;
        let current = self.space.current.and_then(|number| self.space.segments.get(&number));
        if current.is_some_and(|segment| segment.dead_blocks >= small) {
            self.close_current_data();
        }
        self.space.due = true;
    }

    fn is_below_floor(&self, segment: &Segment) -> bool {
        segment.readers == 0
            && segment.punching == 0
            && segment.dead_after <= self.journal.durable
            && segment.incarnation < self.space.floor.data.incarnation
    }

    fn free_segment(&mut self, number: u32) {
        self.space.candidates.remove(&number);
        let Some(segment) = self.space.segments.get_mut(&number) else { return };
        // A segment that was written through is better than a new one: syncs into it cost less.
        if segment.punched > 0 || segment.misfit {
            self.remove_segment(number);
        } else if self.space.spare.is_none() && !self.space.creating {
            self.make_spare(number);
        } else {
            segment.state = State::Idle;
            self.space.idle.push_back((number, self.now));
            self.reclaim_by(self.now.after(IDLE_WAIT));
        }
    }

    fn remove_segment(&mut self, number: u32) {
        if let Some(segment) = self.space.segments.get_mut(&number) {
            segment.state = State::Removing;
        }
        self.start(Purpose::Remove(number), Op::Remove { file: data_file(number) });
    }

    /// Removes what nobody used again.
    fn remove_idle(&mut self) {
        while let Some((number, _)) = self.space.idle.pop_front_if(|(_, since)| since.after(IDLE_WAIT) <= self.now) {
            self.remove_segment(number);
        }
        if let Some((_, since)) = self.space.idle.front() {
            self.reclaim_by(since.after(IDLE_WAIT));
        }
    }

    fn wait_to_punch(&mut self, number: u32, punch_at: Time) {
        if let Some(segment) = self.space.segments.get_mut(&number) {
            segment.dead_since.get_or_insert(self.now);
        }
        self.reclaim_by(punch_at);
    }

    fn reclaim_by(&mut self, due: Time) {
        let earliest = self.space.reclaim_at.map_or(due, |at| at.min(due));
        self.space.reclaim_at = Some(earliest);
    }

    /// When `reclaim` has something to do for time's sake.
    pub fn reclaim_due(&self) -> Option<Time> {
        self.space.reclaim_at.filter(|_| self.failed.is_none())
    }

    /// Gives back the first `most` dead ranges of a segment; the rest stays for the next turn.
    fn punch(&mut self, number: u32, most: usize) {
        let Some(segment) = self.space.segments.get_mut(&number) else { return };
        let mut ranges = std::mem::take(&mut segment.dead);
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::new();
        for (start, blocks) in ranges {
            match joined.last_mut() {
                Some(last) if last.0 + last.1 == start => last.1 += blocks,
                _ => joined.push((start, blocks)),
            }
        }
        segment.dead = joined.split_off(joined.len().min(most));
        segment.dead_blocks = segment.dead.iter().map(|(_, blocks)| blocks).sum();
        if segment.dead_blocks < PUNCH_MIN {
            segment.dead_since = None;
        }
        segment.punching = joined.len() as u32;
        self.space.punching += joined.len();
        for (start, blocks) in joined {
            let (offset, length) = (u64::from(start) * BLOCK as u64, u64::from(blocks) * BLOCK as u64);
            self.start(Purpose::Punch(number, blocks), Op::Punch { file: data_file(number), offset, length });
        }
    }

    /// A range was punched, or not: then the space is lost until the whole segment goes.
    pub fn punched(&mut self, number: u32, blocks: u32, result: std::result::Result<(), DiskError>) {
        self.space.punching -= 1;
        let Some(segment) = self.space.segments.get_mut(&number) else { return };
        segment.punching = segment.punching.saturating_sub(1);
        if result.is_ok() {
            segment.punched += blocks;
            self.space.punched += u64::from(blocks);
            self.space.came_back = self.now;
        }
        self.space.due = true;
    }

    /// A segment was removed, or not: it is tried again after a while.
    pub fn removed(&mut self, number: u32, result: std::result::Result<(), DiskError>) {
        match result {
            Ok(()) | Err(DiskError::NotFound) => {
                let segment = self.space.segments.remove(&number);
                self.space.punched -= segment.map_or(0, |segment| u64::from(segment.punched));
                self.space.came_back = self.now;
            }
            Err(_) => {
                let retry_at = self.now.after(RETRY);
                if let Some(segment) = self.space.segments.get_mut(&number) {
                    (segment.state, segment.retry_at) = (State::Closed, Some(retry_at));
                }
                self.space.candidates.insert(number);
                self.reclaim_by(retry_at);
            }
        }
    }

    /// There is dead space that a checkpoint would bring nearer to its return.
    pub fn checkpoint_would_help(&self) -> bool {
        let floor = self.space.floor.data.incarnation;
        let small = self.segment_blocks() / 8;
        let helps = |segment: &Segment| {
            segment.incarnation >= floor
                && match segment.state {
                    State::Closed => segment.live == 0 || segment.dead_blocks >= small,
                    State::Current => !self.waiting.is_empty() && segment.dead_blocks >= small,
                    _ => false,
                }
        };
        self.space.candidates.iter().filter_map(|number| self.space.segments.get(number)).any(helps)
    }

    /// Less than a quarter of the device is free beside the reserve.
    pub fn space_is_short(&self) -> bool {
        let wanted = self.settings.capacity / 4 + self.settings.reserve;
        !self.waiting.is_empty() || !self.waiting_seals.is_empty() || self.used() + wanted > self.settings.capacity
    }
}
