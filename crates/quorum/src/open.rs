//! Opening a keeper's disk: the votes, and the log as `replay` reads it.
//!
//! What is read may be in memory alone: a killed process wrote it, or a sync of it failed, after which the kernel forgets that it is to be
//! written, and the next sync says nothing. So what nobody said to be durable is written once more where it is, the same bytes, and synced,
//! before it is told to anybody.

use crate::format::{HEADER_BYTES, VOTE_FILES};
use crate::kept::{Entry, Vote};
use crate::log::{Log, Settings};
use crate::message::KeeperId;
use crate::replay::{Found, Header, Promised, Replayed, Stamp, Voted, replay};
use crate::segments::{FoundSegment, SEGMENTS_FAR, Segments};
use crate::vote::{REMEDY, VoteBlocks};
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::disk::{Caching, Disk, DiskError, FileKind, FileName, Fill, Op, wait};
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::limit::BLOCK;
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use std::collections::{BTreeSet, HashSet};

/// Bytes read at once in search of groups: most have a few blocks, and a read of the disk for each takes longer than all else.
const WINDOW: usize = 1 << 20;

/// What was on the disk, all of it durable.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
    /// Which start of this keeper it is, from 1 on.
    pub life: u64,
    /// The vote.
    pub vote: Vote,
    /// The entries behind the one that was asked from.
    pub entries: Vec<Entry>,
    /// The highest index that is known as committed.
    pub committed: u64,
}

/// Opens the disk of this keeper, whose entries up to `base` are kept elsewhere; an empty one is made. Blocks. `Corrupt` if nobody knows what it
/// voted, or if it lacks entries that it promised to have; `Invalid` if it is another keeper's.
pub fn open(
    disk: &mut dyn Disk,
    keeper: (ClusterId, KeeperId),
    base: Stamp,
    settings: Settings,
    now: Time,
) -> Result<(Log, Opened)> {
    let files = disk.list().map_err(|error| unreadable(&error))?;
    let logs: Vec<(FileName, u64)> = files.iter().copied().filter(|(name, _)| is_log(name)).collect();
    let mut votes = open_votes(disk, &files, keeper, logs.is_empty(), &settings)?;
    let (mut places, mut unread) = (Vec::new(), Vec::new());
    for (name, length) in &logs {
        let blocks = read_groups(disk, (*name, *length), (votes.salt(), base.index), &mut places)?;
        unread.extend(blocks.into_iter().map(|offset| (*name, offset)));
    }
    // What cannot be read may be the last that was acknowledged, of which nothing behind it says so. Others have it; where there are none it is not to be
    // taken for a torn end, and must not be overwritten.
    if let Some((name, offset)) = unread.first().filter(|_| settings.is_alone) {
        let text = format!(
            "the keepers' log could not be read: {name} at {offset}; nothing was changed, and nothing is lost as long as it is kept: check the disk, start again"
        );
        return Err(Error::new(ErrorKind::Io, text));
    }
    let found = places.iter().map(|place| place.found.clone()).collect();
    let Replayed { entries, committed, said, lacks, next_order } = replay(found, base, votes.voted())?;
    let next_order = next_order.saturating_add(unread.len() as u64);
    if let Some(lacks) = lacks.filter(|_| settings.planted != Some(Planted::RotTakenForTear)) {
        let text = format!(
            "this keeper's log lacks the entries {} to {}, which it had acknowledged: a file is damaged, or not there; nothing was changed; {REMEDY}",
            lacks.from, lacks.to
        );
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    let stamps: Vec<Stamp> = entries.iter().map(Entry::stamp).collect();
    make_durable(disk, &places, &stamps, said)?;
    // What cannot be read now must not come back later. A block that cannot be written either may, with an order that nothing else has.
    for (name, offset) in unread {
        let _is_gone = write(disk, name, offset, &[0; BLOCK]).and_then(|()| sync(disk, name));
    }
    // What was said last may be of a log that was cut off since by a group that is lost. A new keeper's votes are there before it has a log: a log
    // without votes has lost them.
    let durable = stamps.last().copied().unwrap_or(base);
    let voted = Voted { order: next_order - 1, promised: Promised { durable, to: durable.index } };
    let (order, block) = (votes.order(), votes.start(voted));
    for place in order {
        write(disk, VOTE_FILES[place], 0, &block)?;
        sync(disk, VOTE_FILES[place])?;
    }
    let log = stamps.iter().copied().collect();
    let segments = logs.iter().map(|(name, length)| {
        let last = last(places.iter().filter(|place| place.file == *name), &log);
        FoundSegment { number: name.number as usize, is_usable: *length == settings.segment_length, last }
    });
    let segments = Segments::new((settings.segment_length, settings.segments_max), segments.collect());
    let (life, vote) = (votes.life(), votes.vote());
    let log = Log::new(votes, segments, (base, stamps.into()), (next_order, committed), now);
    Ok((log, Opened { life, vote, entries, committed }))
}

/// The highest index that this keeper may have said it has, as far as its disk shows: whoever keeps all elsewhere up to there owes nothing any more. Blocks.
/// `Corrupt` if nobody knows what it voted, or if its votes or its log are not there; `Invalid` if they are another keeper's.
pub fn promised(disk: &mut dyn Disk, (cluster, own): (ClusterId, KeeperId)) -> Result<u64> {
    let files = disk.list().map_err(|error| unreadable(&error))?;
    // A block that is not there, or cannot be read, is damaged.
    let blocks = VOTE_FILES.map(|name| read(disk, name, 0, BLOCK).unwrap_or_default());
    let votes = VoteBlocks::open(cluster, own, [&blocks[0], &blocks[1]])?;
    let mut places = Vec::new();
    let logs: Vec<(FileName, u64)> = files.into_iter().filter(|(name, _)| is_log(name)).collect();
    // What it said it has is in the vote as of the last vote alone.
    if logs.is_empty() {
        let text = format!(
            "the log of keeper {} is not there; nobody knows what it had; nothing was changed; {REMEDY}",
            own.0
        );
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    for (name, length) in logs {
        read_groups(disk, (name, length), (votes.salt(), u64::MAX), &mut places)?;
    }
    let of_groups = places.iter().map(|place| place.found.header.stamp.index.max(place.found.header.promised.to));
    Ok(of_groups.chain([votes.voted().promised.to]).max().unwrap_or(0))
}

/// Of a segment's places: the highest order, the highest index of entries that are in the log, and where what comes next may be written. A segment is
/// written from its beginning on: what has a lower order than the first is of an earlier use. What is not in the log is not needed: the
/// votes of this start say where it ends.
fn last<'a>(of_it: impl Iterator<Item = &'a Place>, log: &HashSet<Stamp>) -> Option<(u64, u64, u64)> {
    let mut of_it = of_it.peekable();
    let first = of_it.peek()?.order();
    let of_use: Vec<&Place> = of_it.filter(|place| place.order() >= first).collect();
    let entries = of_use.iter().map(|place| &place.found.header).filter(|header| !header.is_mark);
    let highest = entries.map(|header| header.stamp).filter(|stamp| log.contains(stamp)).map(|stamp| stamp.index).max();
    let last = of_use.into_iter().max_by_key(|place| place.order())?;
    Some((last.order(), highest.unwrap_or(0), last.end()))
}

fn is_log(name: &FileName) -> bool {
    name.kind == FileKind::Log && name.number < SEGMENTS_FAR
}

/// The two blocks of the vote, durable as far as they are whole. Where there never were any, and no log either, they are made.
fn open_votes(
    disk: &mut dyn Disk,
    files: &[(FileName, u64)],
    (cluster, own): (ClusterId, KeeperId),
    no_log: bool,
    settings: &Settings,
) -> Result<VoteBlocks> {
    let (mut blocks, mut failed) = ([Vec::new(), Vec::new()], Vec::new());
    for (block, name) in blocks.iter_mut().zip(VOTE_FILES) {
        if files.iter().any(|(there, _)| *there == name) {
            // One that cannot be read is damaged, and no sign of a new keeper.
            *block = read(disk, name, 0, BLOCK).unwrap_or_else(|error| {
                failed.push(error);
                vec![1]
            });
        }
    }
    if let [error, _] = &failed[..] {
        return Err(unreadable(error));
    }
    if no_log && blocks.iter().flatten().all(|byte| *byte == 0) {
        for name in VOTE_FILES {
            let made = wait(disk, Op::Create { file: name, size: BLOCK as u64, fill: Fill::Zeros });
            made.map_err(|error| {
                Error::new(ErrorKind::Io, format!("the keeper's vote could not be made: {error}; nothing is lost"))
            })?;
        }
        return Ok(VoteBlocks::fresh(cluster, own, settings.random.next()));
    }
    let votes = VoteBlocks::open(cluster, own, [&blocks[0], &blocks[1]])?;
    for (block, name) in blocks.iter().zip(VOTE_FILES) {
        if VoteBlocks::open(cluster, own, [block, &[]]).is_ok() {
            write(disk, name, 0, block)?;
            sync(disk, name)?;
        }
    }
    Ok(votes)
}

/// A group or a mark, and where it was found.
struct Place {
    file: FileName,
    offset: u64,
    found: Found,
}

impl Place {
    fn order(&self) -> u64 {
        self.found.header.order
    }

    /// Where in its segment, which it is within, it ends.
    fn end(&self) -> u64 {
        (self.offset + HEADER_BYTES as u64 + self.found.header.length).next_multiple_of(BLOCK as u64)
    }
}

/// Adds the groups and marks of a segment that have the keeper's salt; of those up to `base` without what is in them. All blocks are looked at: behind
/// a damaged group others may follow. Where the blocks are that cannot be read; if none can, it is not the blocks, and an error.
fn read_groups(
    disk: &mut dyn Disk,
    (file, length): (FileName, u64),
    (salt, base): (u64, u64),
    places: &mut Vec<Place>,
) -> Result<Vec<u64>> {
    let mut unread = Vec::new();
    let (mut next, mut damaged) = (0, None);
    let (mut window, mut window_at) = (Vec::new(), 0);
    // Less than a block was never a segment of ours.
    let length = length / BLOCK as u64 * BLOCK as u64;
    while next < length {
        if window_at + window.len() as u64 <= next {
            window = read_what_can_be(disk, file, (next, WINDOW.min((length - next) as usize)), &mut unread)?;
            window_at = next;
        }
        let Some(block) = window.get((next - window_at) as usize..).filter(|block| !block.is_empty()) else {
            break;
        };
        let offset = next;
        next += BLOCK as u64;
        let Some(header) = Header::read(block).filter(|header| header.salt == salt) else { continue };
        let bytes = (HEADER_BYTES as u64).saturating_add(header.length);
        if bytes > length - offset {
            continue;
        }
        // Bounded by the segment's length, as just checked.
        let bytes = bytes as usize;
        let whole = match block.get(..bytes) {
            Some(whole) => whole.to_vec(),
            None => read_what_can_be(disk, file, (offset, bytes.next_multiple_of(BLOCK)), &mut Vec::new())?,
        };
        let group = whole.get(HEADER_BYTES..bytes).filter(|group| header.is_mark || crc32c(group) == header.stamp.sum);
        let end = offset + bytes.next_multiple_of(BLOCK) as u64;
        // Within a damaged one there may be what an earlier use left there; or it is that itself, and something newer was written into it.
        if damaged.is_some_and(|(order, end)| offset < end && header.order < order) {
            continue;
        }
        match group {
            Some(_) => next = end,
            None => damaged = Some((header.order, end)),
        }
        let is_needed = header.stamp.index > base;
        let group = group.map(|group| if is_needed { Bytes::copy_from_slice(group) } else { Bytes::new() });
        places.push(Place { file, offset, found: Found { header, group } });
    }
    if !unread.is_empty() && unread.len() as u64 * BLOCK as u64 == length {
        let text =
            format!("the keepers' log could not be read: no block of {file} can; nothing was changed: check the disk");
        return Err(Error::new(ErrorKind::Io, text));
    }
    Ok(unread)
}

/// Writes the entries of the log behind `said` again where they are, and syncs them.
fn make_durable(disk: &mut dyn Disk, places: &[Place], stamps: &[Stamp], said: u64) -> Result<()> {
    let behind: HashSet<&Stamp> = stamps.iter().filter(|stamp| stamp.index > said).collect();
    let mut files = BTreeSet::new();
    for Place { file, offset, found: Found { header, group } } in places {
        if let Some(group) = group.as_ref().filter(|_| !header.is_mark && behind.contains(&header.stamp)) {
            write(disk, *file, *offset, &[&header.bytes(), &group[..]].concat())?;
            files.insert(*file);
        }
    }
    files.into_iter().try_for_each(|file| sync(disk, file))
}

/// Writes bytes, and zeros to the end of their last block.
fn write(disk: &mut dyn Disk, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut block = Buffer::zeroed(bytes.len().next_multiple_of(BLOCK));
    block[..bytes.len()].copy_from_slice(bytes);
    let done = wait(disk, Op::Write { file, offset, parts: vec![block.freeze()] });
    done.map(drop).map_err(|error| not_durable(&error))
}

fn sync(disk: &mut dyn Disk, file: FileName) -> Result<()> {
    wait(disk, Op::Sync { file }).map(drop).map_err(|error| not_durable(&error))
}

fn not_durable(error: &DiskError) -> Error {
    let text = format!("the keepers' log could not be made durable: {error}; nothing is lost: check the disk");
    Error::new(ErrorKind::Io, text)
}

/// Bytes of a file; fewer at its end. Blocks that cannot be read are zeros, and noted.
fn read_what_can_be(
    disk: &mut dyn Disk,
    file: FileName,
    (offset, length): (u64, usize),
    unread: &mut Vec<u64>,
) -> Result<Vec<u8>> {
    match read(disk, file, offset, length) {
        Err(DiskError::Io(_)) => {}
        read => return read.map_err(|error| unreadable(&error)),
    }
    let mut bytes = Vec::with_capacity(length);
    for at in (offset..offset + length as u64).step_by(BLOCK) {
        bytes.extend(read(disk, file, at, BLOCK).unwrap_or_else(|_| {
            unread.push(at);
            vec![0; BLOCK]
        }));
    }
    Ok(bytes)
}

/// Bytes of a file; fewer at its end.
fn read(disk: &mut dyn Disk, file: FileName, offset: u64, length: usize) -> std::result::Result<Vec<u8>, DiskError> {
    wait(disk, Op::Read { file, offset, length, caching: Caching::Around })
}

fn unreadable(error: &DiskError) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the keepers' log could not be read: {error}; nothing was changed: check the disk"),
    )
}
