//! Opening a keeper's disk: the votes, and the log as `replay` reads it.
//!
//! What is read may be in memory alone: a killed process wrote it, or a sync of it failed, after which the kernel forgets that it is to be
//! written, and the next sync says nothing. So what nobody said to be durable is written once more where it is, the same bytes, and synced,
//! before it is told to anybody.

use crate::format::{HEADER_BYTES, VOTE_FILES};
use crate::kept::{Entry, Vote};
use crate::log::{Log, Settings};
use crate::message::KeeperId;
use crate::replay::{Found, Header, Stamp, replay};
use crate::segments::{FoundSegment, Segments};
use crate::vote::VoteBlocks;
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::disk::{Caching, Disk, DiskError, FileKind, FileName, Fill, Op};
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::limit::BLOCK;
use base::unit::Time;
use bytes::Bytes;

/// Bytes read at once in search of groups: most have a few blocks, and a read of the disk for each takes longer than all else.
const WINDOW: usize = 1 << 20;

/// A segment's number far out comes from no log of ours; the file is left alone.
const SEGMENTS_FAR: u32 = 1024;

/// What was on the disk, all of it durable.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened {
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
    let is_log = |name: &FileName| name.kind == FileKind::Log && name.number < SEGMENTS_FAR;
    let logs: Vec<(FileName, u64)> = files.iter().copied().filter(|(name, _)| is_log(name)).collect();
    let votes = open_votes(disk, &files, keeper, &logs, &settings)?;
    let (mut places, mut segments) = (Vec::new(), Vec::new());
    for (name, length) in logs {
        let (before, salt) = (places.len(), votes.salt());
        read_groups(disk, (name, length), (salt, base.index), &mut places)?;
        let of_it = places[before..].iter().map(|place: &Place| place.is_of());
        let last = of_it.reduce(|one, other| (one.0.max(other.0), one.1.max(other.1), one.2.max(other.2)));
        let is_usable = length == settings.segment_length;
        segments.push(FoundSegment { number: name.number as usize, is_usable, last });
    }
    let found = places.iter().map(|place| place.found.clone()).collect();
    let replayed = replay(found, base, votes.voted())?;
    if let Some(lacks) = replayed.lacks {
        let text = format!(
            "this keeper's log lacks the entries {} to {}, which it had acknowledged; nothing was changed; no data is lost while most \
             keepers are well; take it out and add it under a new number",
            lacks.from, lacks.to
        );
        return Err(Error::new(ErrorKind::Corrupt, text));
    }
    make_durable(disk, &places, replayed.said)?;
    let (vote, entries, committed) = (votes.vote(), replayed.entries, replayed.committed);
    let segments = Segments::new((settings.segment_length, settings.segments_max), segments);
    let stamps = entries.iter().map(Entry::stamp).collect();
    let log = Log::new(votes, segments, (base, stamps), (replayed.next_order, committed), now);
    Ok((log, Opened { vote, entries, committed }))
}

/// The two blocks of the vote, durable as far as they are whole. Where there never were any, and no log either, they are made.
fn open_votes(
    disk: &mut dyn Disk,
    files: &[(FileName, u64)],
    (cluster, own): (ClusterId, KeeperId),
    logs: &[(FileName, u64)],
    settings: &Settings,
) -> Result<VoteBlocks> {
    let mut blocks = [Vec::new(), Vec::new()];
    for (block, name) in blocks.iter_mut().zip(VOTE_FILES) {
        if files.iter().any(|(there, _)| *there == name) {
            // One that cannot be read is damaged, and no sign of a new keeper.
            *block = read(disk, name, 0, BLOCK).unwrap_or(vec![1]);
        }
    }
    let never = |bytes: &Vec<u8>| bytes.iter().all(|byte| *byte == 0);
    let mut is_new = blocks.iter().all(never);
    for (name, length) in logs {
        is_new = is_new && read(disk, *name, 0, BLOCK.min(*length as usize)).is_ok_and(|block| never(&block));
    }
    if is_new {
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
    /// Its order, the highest index of its entries, and where in its segment it ends.
    fn is_of(&self) -> (u64, u64, u64) {
        let Header { is_mark, order, stamp, length, .. } = self.found.header;
        let end = self.offset.saturating_add(HEADER_BYTES as u64).saturating_add(length);
        (order, if is_mark { 0 } else { stamp.index }, end.next_multiple_of(BLOCK as u64))
    }
}

/// Adds the groups and marks of a segment that have the keeper's salt; of those up to `base` without what is in them. All blocks are looked at:
/// behind a damaged group others may follow.
fn read_groups(
    disk: &mut dyn Disk,
    (file, length): (FileName, u64),
    (salt, base): (u64, u64),
    places: &mut Vec<Place>,
) -> Result<()> {
    let (mut next, mut window, mut window_at) = (0, Vec::new(), 0);
    while next < length {
        if window_at + window.len() as u64 <= next {
            window = read_what_can_be(disk, file, next, WINDOW.min((length - next) as usize))?;
            window_at = next;
        }
        let Some(block) = window.get((next - window_at) as usize..).filter(|block| !block.is_empty()) else {
            return Ok(());
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
            None => read_what_can_be(disk, file, offset, bytes.next_multiple_of(BLOCK))?,
        };
        let group = whole.get(HEADER_BYTES..bytes).filter(|group| header.is_mark || crc32c(group) == header.stamp.sum);
        if group.is_some() {
            next = offset + bytes.next_multiple_of(BLOCK) as u64;
        }
        let is_needed = header.stamp.index > base;
        let group = group.map(|group| if is_needed { Bytes::copy_from_slice(group) } else { Bytes::new() });
        places.push(Place { file, offset, found: Found { header, group } });
    }
    Ok(())
}

/// Writes the entries behind `said` again where they are, and syncs them.
fn make_durable(disk: &mut dyn Disk, places: &[Place], said: u64) -> Result<()> {
    for Place { file, offset, found: Found { header, group } } in places {
        if let Some(group) = group.as_ref().filter(|_| !header.is_mark && header.stamp.index > said) {
            write(disk, *file, *offset, &[&header.bytes(), &group[..]].concat())?;
        }
    }
    Ok(())
}

/// Writes bytes that are there already, and zeros to the end of their last block, and syncs them.
fn write(disk: &mut dyn Disk, file: FileName, offset: u64, bytes: &[u8]) -> Result<()> {
    let mut block = Buffer::zeroed(bytes.len().next_multiple_of(BLOCK));
    block[..bytes.len()].copy_from_slice(bytes);
    let done = wait(disk, Op::Write { file, offset, parts: vec![block.freeze()] });
    done.and_then(|_| wait(disk, Op::Sync { file })).map(drop).map_err(|error| {
        let text = format!("the keepers' log could not be made durable: {error}; nothing is lost: check the disk");
        Error::new(ErrorKind::Io, text)
    })
}

/// Bytes of a file; fewer at its end. What cannot be read is zeros.
fn read_what_can_be(disk: &mut dyn Disk, file: FileName, offset: u64, length: usize) -> Result<Vec<u8>> {
    match read(disk, file, offset, length) {
        Ok(bytes) => Ok(bytes),
        Err(DiskError::Io(_)) if length > BLOCK => {
            let blocks = (0..length / BLOCK).map(|block| offset + (block * BLOCK) as u64);
            let read = |at| read(disk, file, at, BLOCK).unwrap_or_else(|_| vec![0; BLOCK]);
            Ok(blocks.flat_map(read).collect())
        }
        Err(DiskError::Io(_)) => Ok(vec![0; length]),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Bytes of a file; fewer at its end.
fn read(disk: &mut dyn Disk, file: FileName, offset: u64, length: usize) -> std::result::Result<Vec<u8>, DiskError> {
    wait(disk, Op::Read { file, offset, length, caching: Caching::Around })
}

/// Does one operation on a disk that does nothing else.
fn wait(disk: &mut dyn Disk, op: Op) -> std::result::Result<Vec<u8>, DiskError> {
    disk.submit(0, op);
    let mut done = Vec::new();
    loop {
        disk.poll(None, &mut done);
        if let Some(done) = done.pop() {
            return done.result.map(|buffer| buffer.to_vec());
        }
    }
}

fn unreadable(error: &DiskError) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the keepers' log could not be read: {error}; nothing was changed: check the disk"),
    )
}
