//! Opening: the tree as it was merged, and the log after it.

use crate::device_index;
use crate::format::{self, CountersRecord, GroupHeader, InodeRecord, MergedRecord, SEQUENCE_MAX, VERSION, VERSION_MIN};
use crate::key::Key;
use crate::layers::{Frozen, Layers, Overlay, Slot};
use crate::merge;
use crate::tree;
use base::disk::{BlockFile, Caching, Disk, DiskError, FileKind, FileName, Fill, Op, wait};
use base::error::{Error, ErrorKind, Result};
use base::id::ROOT;
use base::limit::BLOCK;
use base::unit::WallTime;
use base::version::{ProgramVersion, newer};
use prost::Message;
use redb::{Database, ReadableDatabase, TableError};
use std::sync::Arc;

/// What opening found.
pub struct Replayed {
    /// The state, all of it in the tree.
    pub layers: Layers,
    /// Sequence number of the last change.
    pub sequence: u64,
    /// Log entries that were not in the tree yet.
    pub entries: u64,
    /// Which segments of the log can be used as they are.
    pub usable: Vec<bool>,
    /// `MergedRecord::least`.
    pub least: ProgramVersion,
}

/// Bytes read at once in search of groups: most groups have a few blocks, and a read of the disk for each takes longer than all else.
const WINDOW: usize = 1 << 20;

/// A whole group of the log.
struct Group {
    header: GroupHeader,
    bytes: Vec<u8>,
}

/// Opens the tree, replays the log into it and merges that. Afterwards no segment of the log is needed. Blocks.
pub fn open(disk: &mut dyn Disk, file: Box<dyn BlockFile>, segment_length: u64, wall: WallTime) -> Result<Replayed> {
    let files = disk.list().map_err(|error| unreadable(&error))?;
    let segments: Vec<(FileName, u64)> = files.into_iter().filter(|(name, _)| name.kind == FileKind::Log).collect();
    let mut fresh = true;
    for (segment, _) in &segments {
        let block = read(disk, *segment, 0, BLOCK)?;
        fresh &= GroupHeader::decode(&block).is_none();
    }
    let (database, storage) = tree::open(file, fresh)?;
    let database = Arc::new(database);
    let merged = merged(&database)?;
    if merged.is_none() && !fresh {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "the metadata log has changes but its tree is empty; nothing was changed: put the tree's file back beside the log",
        ));
    }
    let mut sequence = merged.as_ref().map_or(0, |merged| merged.sequence);
    let mut groups = Vec::new();
    for (segment, length) in &segments {
        read_groups(disk, *segment, *length, sequence, &mut groups)?;
    }
    if merged.is_none() {
        begin(&database, wall)?;
    }
    let mut layers = Layers::new(Arc::clone(&database))?;
    groups.sort_by_key(|group| group.header.first);
    let before = sequence;
    for group in groups {
        sequence = apply(&mut layers, &group, sequence)?;
    }
    // All of it is understood: from here on the tree's file changes.
    storage.release()?;
    // What is merged from the log finds the index.
    if !merged.as_ref().is_some_and(|merged| merged.indexed) {
        device_index::build(&database)?;
    }
    // From now on what is written is of today's version, which older programs must refuse.
    if sequence > before || merged.as_ref().is_some_and(|merged| merged.version < VERSION) {
        let frozen = layers.freeze(sequence);
        merge::write(&database, &frozen, None)?;
    }
    layers.merged()?;
    let mut usable = Vec::new();
    for (segment, length) in segments {
        let number = segment.number as usize;
        // A number far out comes from no log of ours; it is left alone.
        if number < 1024 {
            usable.resize(usable.len().max(number + 1), false);
            usable[number] = length == segment_length;
        }
    }
    if !usable.contains(&true) {
        let file = FileName::new(FileKind::Log, 0);
        wait(disk, Op::Create { file, size: segment_length, fill: Fill::Zeros }).map_err(|error| {
            Error::new(ErrorKind::Io, format!("the metadata log could not be made: {error}; nothing is lost"))
        })?;
        usable.resize(usable.len().max(1), false);
        usable[0] = true;
    }
    let least = merged.map_or(ProgramVersion::default(), |merged| ProgramVersion::from_number(merged.least));
    Ok(Replayed { layers, sequence, entries: sequence - before, usable, least })
}

/// What the tree says of itself; none if nothing was ever put into it.
fn merged(database: &Database) -> Result<Option<MergedRecord>> {
    let transaction = database.begin_read().map_err(|error| tree::failed("begin reading", error))?;
    let table = match transaction.open_table(tree::TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(tree::failed("open its table", error)),
    };
    let bytes = table.get(Key::Merged.encode().as_slice()).map_err(|error| tree::failed("read", error))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let record = MergedRecord::decode(bytes.value()).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("the metadata tree's first record does not read: {error}"))
    })?;
    check_version(record.version, ProgramVersion::from_number(record.least))?;
    if record.sequence > SEQUENCE_MAX {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "the metadata tree has an impossible sequence number; nothing was changed",
        ));
    }
    Ok(Some(record))
}

/// Puts the first state into an empty tree: the root directory.
fn begin(database: &Database, wall: WallTime) -> Result<()> {
    let counters = CountersRecord {
        next_inode: ROOT.0 + 1,
        next_group: 1,
        next_bag: 1,
        directories: 1,
        ..CountersRecord::default()
    };
    let root =
        InodeRecord { mode: 0o755, generation: 1, created: wall.0, modified: wall.0, ..InodeRecord::empty(true) };
    let mut overlay = Overlay::new();
    overlay.insert(Key::Counters.encode(), Slot { sequence: 0, value: Some(counters.encode_to_vec()) });
    overlay.insert(Key::Inode(ROOT).encode(), Slot { sequence: 0, value: Some(root.encode_to_vec()) });
    merge::write(database, &Frozen { overlay, sequence: 0 }, None)
}

/// Adds the groups of a segment that have entries after `merged`. A group that is not whole is passed over: if it was the
/// log's tail nothing follows it, else what follows shows the gap.
fn read_groups(
    disk: &mut dyn Disk,
    segment: FileName,
    length: u64,
    merged: u64,
    groups: &mut Vec<Group>,
) -> Result<()> {
    let mut offset = 0;
    let mut incarnation = None;
    let (mut window, mut window_at) = (Vec::new(), 0);
    while offset < length {
        if window_at + window.len() as u64 <= offset {
            window = read(disk, segment, offset, WINDOW)?;
            window_at = offset;
        }
        let Some(block) = window.get((offset - window_at) as usize..) else { return Ok(()) };
        let decoded = GroupHeader::decode(block);
        if let Some((_, version)) = decoded
            && offset == 0
        {
            // A segment begins with a header that a program wrote, whether its group is whole to us or not: of a newer one nothing is
            // passed over.
            check_version(version, ProgramVersion::default())?;
        }
        if let Some((header, version)) = decoded
            && incarnation.is_none_or(|incarnation| incarnation == header.incarnation)
            && header.padded() <= length - offset
        {
            // Bounded by the segment's length, as just checked.
            let padded = header.padded() as usize;
            let bytes = match block.get(..padded) {
                Some(whole) => whole.to_vec(),
                None => read(disk, segment, offset, padded)?,
            };
            if format::group_is_whole(&bytes, &header) {
                // Behind the first header only now: bytes of a torn group, which anybody may have written, can look like the header of another
                // version.
                check_version(version, ProgramVersion::default())?;
                offset += header.padded();
                incarnation = Some(header.incarnation);
                if header.last > merged {
                    groups.push(Group { header, bytes });
                }
                continue;
            }
        }
        // To the end of the segment, also where everything so far was merged: behind a damaged group others may follow, which show the gap.
        offset += BLOCK as u64;
    }
    Ok(())
}

/// Puts the group's entries after `sequence` into the overlay; returns the sequence number of the last one.
fn apply(layers: &mut Layers, group: &Group, sequence: u64) -> Result<u64> {
    let GroupHeader { first, last, length, .. } = group.header;
    if last <= sequence {
        return Ok(sequence);
    }
    let wrong = |why: String| {
        Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "the metadata log {why}; acknowledged changes would be lost, so nothing was changed: keep the files and report this"
            ),
        ))
    };
    if first > sequence + 1 {
        return wrong(format!("lacks the changes {} to {}", sequence + 1, first - 1));
    }
    let end = format::HEADER + length as usize;
    let mut rest = group.bytes.get(format::HEADER..end).unwrap_or_default();
    for expected in first..=last {
        let Some((number, changes, used)) = format::decode_entry(rest) else {
            return wrong(format!("has a change {expected} that does not read"));
        };
        if number != expected {
            return wrong(format!("has change {number} in the place of {expected}"));
        }
        rest = &rest[used..];
        if number > sequence {
            for change in changes {
                layers.change(change.key, Slot { sequence: number, value: change.value });
            }
        }
    }
    Ok(last)
}

/// Bytes of a segment; fewer at its end.
fn read(disk: &mut dyn Disk, file: FileName, offset: u64, length: usize) -> Result<Vec<u8>> {
    let read = Op::Read { file, offset, length, caching: Caching::Around };
    wait(disk, read).map_err(|error| unreadable(&error))
}

fn unreadable(error: &DiskError) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the metadata log could not be read: {error}; nothing was changed: check the disk"),
    )
}

/// An error if this version is not read.
fn check_version(version: u32, least: ProgramVersion) -> Result<()> {
    if (VERSION_MIN..=VERSION).contains(&version) {
        return Ok(());
    }
    if version > VERSION {
        let what =
            format!("the metadata has format version {version}, and versions {VERSION_MIN} to {VERSION} are read");
        return Err(newer(what, least));
    }
    let text = "the metadata has format version 0, which no program wrote; nothing was changed: keep the files and report this";
    Err(Error::new(ErrorKind::Corrupt, text))
}
