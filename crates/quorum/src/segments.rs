//! The files of the log: which one is written, which ones are needed, which come round again.

use base::disk::{DiskError, Done, FileKind, FileName, Fill, Op};
use base::unit::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// A segment's number that is not lower comes from no log of ours; the file is left alone.
pub(crate) const SEGMENTS_FAR: u32 = 1024;

/// A segment that could not be made is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    /// Being made.
    Making,
    /// Nothing in it is needed.
    Free,
    /// Groups are added to it.
    Current,
    /// It has no room, and is needed.
    Full,
    /// Could not be made, is not there, or has another length.
    Missing,
}

/// A segment as it was found.
pub(crate) struct FoundSegment {
    pub(crate) number: usize,
    /// It has the right length.
    pub(crate) is_usable: bool,
    /// The last thing in it, by order: that, the highest index of its entries, and where what comes next may be written.
    pub(crate) last: Option<(u64, u64, u64)>,
}

/// A segment that is needed.
#[derive(Clone, Copy)]
struct Full {
    number: usize,
    /// The highest index of its entries.
    highest: u64,
    is_usable: bool,
}

/// All of them.
pub(crate) struct Segments {
    length: u64,
    most: usize,
    segments: Vec<Segment>,
    current: Option<usize>,
    /// Where the next group goes in it, and the highest index that is in it.
    offset: u64,
    highest: u64,
    /// The full ones in the order in which they were written.
    full: VecDeque<Full>,
    making: Option<(u64, usize)>,
    /// Making one failed then.
    failed: Option<Time>,
}

impl Segments {
    /// Those that were found. The one that was written last goes on being written: else each start would take one.
    pub(crate) fn new((length, most): (u64, usize), mut found: Vec<FoundSegment>) -> Segments {
        let count = found.iter().map(|found| found.number + 1).max().unwrap_or(0);
        let needed = found.iter().filter(|found| found.last.is_some()).map(|found| found.number + 1).max().unwrap_or(0);
        let mut segments = Segments {
            length,
            // One is written while the other one says what was promised.
            most: most.max(needed).clamp(2, SEGMENTS_FAR as usize),
            segments: vec![Segment::Missing; count],
            current: None,
            offset: 0,
            highest: 0,
            full: VecDeque::new(),
            making: None,
            failed: None,
        };
        found.sort_by_key(|found| found.last.map(|(order, ..)| order));
        let newest = found.len();
        for (at, FoundSegment { number, is_usable, last }) in found.into_iter().enumerate() {
            let Some((_, highest, end)) = last else {
                segments.segments[number] = if is_usable { Segment::Free } else { Segment::Missing };
                continue;
            };
            if at + 1 == newest && is_usable {
                (segments.current, segments.offset, segments.highest) = (Some(number), end, highest);
                segments.segments[number] = Segment::Current;
            } else {
                segments.full.push_back(Full { number, highest, is_usable });
                segments.segments[number] = Segment::Full;
            }
        }
        segments
    }

    /// Whether so many bytes can be written now; takes another segment if need be.
    pub(crate) fn has_room_for(&mut self, length: u64) -> bool {
        if let Some(current) = self.current
            && self.offset + length > self.length
        {
            self.segments[current] = Segment::Full;
            self.full.push_back(Full { number: current, highest: self.highest, is_usable: true });
            self.current = None;
        }
        if self.current.is_none()
            && let Some(free) = self.segments.iter().position(|segment| *segment == Segment::Free)
        {
            self.segments[free] = Segment::Current;
            self.current = Some(free);
            (self.offset, self.highest) = (0, 0);
        }
        self.current.is_some() && length <= self.length
    }

    /// The most bytes that can be written together.
    pub(crate) fn longest(&self) -> u64 {
        self.length
    }

    /// Whether a mark can be written now. A segment that has marks alone begins anew with it: one that starts again and again would fill all of
    /// them else.
    pub(crate) fn has_room_for_mark(&mut self, length: u64) -> bool {
        if self.current.is_some() && self.highest == 0 && self.offset + length > self.length {
            self.offset = 0;
        }
        self.has_room_for(length)
    }

    /// Bytes that can be written without another segment, in pieces of at most so many: each segment may end with less than one of them.
    pub(crate) fn sure_room(&self, piece: u64) -> u64 {
        let free = self.segments.iter().filter(|segment| **segment == Segment::Free).count() as u64;
        let current = self.current.map_or(0, |_| self.room().saturating_sub(piece));
        current + free * self.length.saturating_sub(piece)
    }

    /// Whether there is the one that is written, and a spare one, or two that nothing is in.
    pub(crate) fn has_spare(&self) -> bool {
        let free = self.segments.iter().filter(|segment| **segment == Segment::Free).count();
        free + usize::from(self.current.is_some()) >= 2
    }

    /// Bytes that are left of the current one.
    pub(crate) fn room(&self) -> u64 {
        self.length - self.offset
    }

    /// Takes so many bytes, which `has_room_for` said are there, for entries up to this index: where they are to be written.
    pub(crate) fn take(&mut self, length: u64, highest: u64) -> (FileName, u64) {
        let offset = self.offset;
        self.offset += length;
        self.highest = self.highest.max(highest);
        (self.written(), offset)
    }

    /// What was written last.
    pub(crate) fn written(&self) -> FileName {
        file(self.current.unwrap_or(0))
    }

    /// What was written behind index `to` is cut off, durably, and the log ends at `last` now, in the current segment.
    pub(crate) fn cut(&mut self, to: u64, last: u64) {
        self.full.iter_mut().for_each(|full| full.highest = full.highest.min(to));
        self.highest = self.highest.min(to.max(last));
    }

    /// Entries up to this index are kept elsewhere: segments without others come free, in the order in which they were written, as a later one may
    /// cut off what an earlier one has. The newest stays while there is no current one: what it says was promised is not to be overwritten
    /// before something newer says it durably.
    pub(crate) fn free(&mut self, to: u64) {
        let kept = usize::from(self.current.is_none());
        while self.full.len() > kept
            && let Some(Full { number, is_usable, .. }) = self.full.pop_front_if(|full| full.highest <= to)
        {
            self.segments[number] = if is_usable { Segment::Free } else { Segment::Missing };
        }
    }

    /// Whether segments run short, or none can be had.
    pub(crate) fn wants_room(&self) -> bool {
        2 * self.full.len() >= self.most || self.has_none()
    }

    /// Whether no more is to be added by whoever leads: an eighth of them after `wants_room`, which is time to free some, if there are so many. What a leader
    /// cuts off and what it puts in its place have to have room in the rest.
    pub(crate) fn is_too_long(&self) -> bool {
        2 * self.full.len().saturating_sub(self.most / 8) >= self.most || self.has_none()
    }

    fn has_none(&self) -> bool {
        !self.full.is_empty() && self.current.is_none() && !self.segments.contains(&Segment::Free)
    }

    /// Whether a quarter of them is full.
    pub(crate) fn is_long(&self) -> bool {
        4 * self.full.len() >= self.most
    }

    /// When it is worth asking again for a segment that could not be made. None: none is wanted, or one is being made.
    pub(crate) fn again(&self) -> Option<Time> {
        let wanted = self.making.is_none() && !self.has_spare();
        self.failed.filter(|_| wanted).map(|failed| failed.after(AGAIN_AFTER))
    }

    /// Begins to make a segment, if there is no spare one and the last that failed was long ago, with the next of these tokens. One is made ahead of
    /// need.
    pub(crate) fn make(&mut self, now: Time, tokens: &mut u64) -> Option<(u64, Op)> {
        if self.making.is_some() || self.has_spare() || self.again().is_some_and(|at| now < at) {
            return None;
        }
        let number = match self.segments.iter().position(|segment| *segment == Segment::Missing) {
            Some(missing) => missing,
            None if self.segments.len() < self.most => {
                self.segments.push(Segment::Missing);
                self.segments.len() - 1
            }
            None => return None,
        };
        self.segments[number] = Segment::Making;
        let token = *tokens;
        *tokens += 1;
        self.making = Some((token, number));
        Some((token, Op::Create { file: file(number), size: self.length, fill: Fill::Zeros }))
    }

    /// Whether that was the making of a segment. `Err` if names are not durable any more, which is as bad as a failed sync.
    pub(crate) fn made(&mut self, now: Time, done: &Done) -> Option<Result<(), DiskError>> {
        let (_, number) = self.making.take_if(|(token, _)| *token == done.token)?;
        self.failed = done.result.is_err().then_some(now);
        self.segments[number] = if done.result.is_ok() { Segment::Free } else { Segment::Missing };
        Some(match &done.result {
            Err(error @ DiskError::Unnamed(_)) => Err(error.clone()),
            _ => Ok(()),
        })
    }
}

/// The file of a segment.
fn file(number: usize) -> FileName {
    FileName::new(FileKind::Log, number as u32)
}
