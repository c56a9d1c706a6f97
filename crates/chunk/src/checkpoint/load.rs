//! Reading checkpoints when a device is opened: the newest that is whole, with those it builds upon.

use super::{Kept, checkpoint_file};
use crate::format::{CheckpointHeader, Fault, VERSION};
use crate::index::{Index, Places};
use crate::recover::Driver;
use base::checksum::crc32c;
use base::disk::{FileKind, FileName};
use base::id::DeviceId;
use base::limit::BLOCK;
use std::collections::BTreeMap;

/// What was found.
pub(crate) struct Loaded {
    pub header: CheckpointHeader,
    pub index: Index,
    /// The data segments with their incarnations.
    pub segments: BTreeMap<u32, u64>,
    /// Where the older checkpoint's scan starts.
    pub floor: Places,
    pub kept: BTreeMap<u64, Kept>,
    /// Files that are of no use any more.
    pub useless: Vec<FileName>,
}

/// Files with a readable header by number, and what they are.
type Headers = BTreeMap<u64, (CheckpointHeader, Kept)>;

/// The newest checkpoint, or the one before if that is damaged. `Damaged`: there is neither. Older ones do not count, because the
/// log behind them may be gone. `Newer`: one of the two says what this program does not know.
pub(crate) fn load(driver: &mut Driver<'_>, device: DeviceId, files: &[(FileName, u64)]) -> Result<Loaded, Fault> {
    let mut headers = Headers::new();
    let mut damaged: Vec<FileName> = Vec::new();
    let mut top = 0;
    for (file, bytes) in files.iter().copied().filter(|(file, _)| file.kind == FileKind::Checkpoint) {
        let block = driver.read(file, 0, BLOCK).ok();
        let header = block.as_deref().and_then(|block| CheckpointHeader::decode(device, block));
        let own_file = |header: &CheckpointHeader| header.version == 1 || checkpoint_file(header.number) == file;
        if let Some(header) = header.filter(own_file) {
            if header.version > VERSION {
                return Err(Fault::Newer);
            }
            top = top.max(header.number);
            let CheckpointHeader { version, base, number, .. } = header;
            // Files come in the order of their numbers: one of version 1 whose number was given again (because it was damaged)
            // comes before the one that took its place.
            let before = headers.insert(number, (header, Kept { file, bytes, base, version }));
            damaged.extend(before.map(|(_, kept)| kept.file));
            continue;
        }
        // A header comes last: zeros say that the checkpoint never became one. (Version 1 had files 0 and 1 for all numbers.)
        let was_one = block.is_none_or(|block| block.iter().any(|byte| *byte != 0));
        if was_one && file.number > 1 {
            top = top.max(u64::from(file.number));
        }
        damaged.push(file);
    }
    let mut found = None;
    for number in [top, top.saturating_sub(1)] {
        match load_chain(driver, &headers, number) {
            Ok((index, segments)) => {
                found = Some((number, index, segments));
                break;
            }
            Err(Fault::Newer) => return Err(Fault::Newer),
            Err(Fault::Damaged) => (),
        }
    }
    let (number, index, segments) = found.ok_or(Fault::Damaged)?;
    let places = |header: &CheckpointHeader| Places { data: header.data, journal: header.journal };
    let header = headers.get(&number).ok_or(Fault::Damaged)?.0;
    let older = number.checked_sub(1).ok_or(Fault::Damaged)?;
    let floor = headers.get(&older).map_or(places(&header), |(older, _)| places(older));
    let newer = headers.split_off(&number.saturating_add(1));
    damaged.extend(newer.into_values().map(|(_, kept)| kept.file));
    let kept = headers.into_iter().map(|(known, (_, kept))| (known, kept)).collect();
    let next = checkpoint_file(number.saturating_add(1));
    let useless = damaged.into_iter().filter(|file| *file != next).collect();
    Ok(Loaded { header, index, segments, floor, kept, useless })
}

/// The index of this checkpoint, built from its base on.
fn load_chain(driver: &mut Driver<'_>, headers: &Headers, number: u64) -> Result<(Index, BTreeMap<u32, u64>), Fault> {
    let base = headers.get(&number).ok_or(Fault::Damaged)?.0.base;
    let mut index = Index::default();
    let mut segments = Vec::new();
    for step in base..=number {
        let (version, body) = read_body(driver, headers, step, base).ok_or(Fault::Damaged)?;
        if version == 1 {
            (index, segments) = Index::decode_first_version(&body).ok_or(Fault::Damaged)?;
        } else {
            segments = index.decode(&body, version)?;
        }
    }
    index.all_is_kept();
    Ok((index, segments.into_iter().collect()))
}

/// The body of a checkpoint that builds upon `base`, and its version; `None` if it is not whole.
fn read_body(driver: &mut Driver<'_>, headers: &Headers, number: u64, base: u64) -> Option<(u32, Vec<u8>)> {
    let (header, kept) = headers.get(&number)?;
    if header.base != base || header.length > kept.bytes.checked_sub(BLOCK as u64)? {
        return None;
    }
    let size = usize::try_from(header.length).ok()?;
    let mut body = driver.read_long(kept.file, BLOCK as u64, size.next_multiple_of(BLOCK)).ok()?;
    if body.len() < size {
        return None;
    }
    body.truncate(size);
    (crc32c(&body) == header.body_crc).then_some((header.version, body))
}
