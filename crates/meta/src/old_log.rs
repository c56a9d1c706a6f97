//! The log of versions 1 to 3, which is read once, when this version opens a store for the first time. Groups have the headers of `format::GroupHeader`; there is
//! one on its way at a time, so a group that is not whole is torn if nothing follows it, and damage if something does.

mod format;

use crate::format::check_version;
use crate::layers::Layers;
use crate::replay::apply;
use base::disk::{Caching, Disk, DiskError, FileName, Op, wait};
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use base::version::ProgramVersion;
use format::{GroupHeader, HEADER, group_is_whole};

/// Bytes read at once in search of groups: most groups have a few blocks, and a read of the disk for each takes longer than all else.
const WINDOW: usize = 1 << 20;

/// A whole group of the log.
struct Group {
    header: GroupHeader,
    bytes: Vec<u8>,
}

/// Whether a segment begins with a group, of this log or of the keepers'.
pub fn has_groups(disk: &mut dyn Disk, segments: &[(FileName, u64)]) -> Result<bool> {
    for (segment, _) in segments {
        let block = read(disk, *segment, 0, BLOCK)?;
        if GroupHeader::decode(&block).is_some() || quorum::is_group(&block) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Puts what is behind `sequence` into the overlay; the sequence number of the last entry. Blocks.
pub fn replay(
    disk: &mut dyn Disk,
    segments: &[(FileName, u64)],
    layers: &mut Layers,
    mut sequence: u64,
) -> Result<u64> {
    let mut groups = Vec::new();
    for (segment, length) in segments {
        read_groups(disk, *segment, *length, sequence, &mut groups)?;
    }
    groups.sort_by_key(|group| group.header.first);
    for group in groups {
        let GroupHeader { first, last, length, .. } = group.header;
        if last > sequence {
            let end = HEADER + length as usize;
            sequence = apply(layers, group.bytes.get(HEADER..end).unwrap_or_default(), first, sequence)?;
        }
    }
    Ok(sequence)
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
            if group_is_whole(&bytes, &header) {
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

/// Bytes of a segment; fewer at its end.
fn read(disk: &mut dyn Disk, file: FileName, offset: u64, length: usize) -> Result<Vec<u8>> {
    let read = Op::Read { file, offset, length, caching: Caching::Around };
    wait(disk, read).map_err(|error| unreadable(&error))
}

/// The error of a log that cannot be read.
pub fn unreadable(error: &DiskError) -> Error {
    Error::new(
        ErrorKind::Io,
        format!("the metadata log could not be read: {error}; nothing was changed: check the disk"),
    )
}
