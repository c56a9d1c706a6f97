//! Changing which bytes a closed file names, without touching the bytes: cutting its end off, joining files.

use crate::format::{ExtentRecord, InodeRecord, RangeRecord};
use crate::key::{Key, after_prefix, number_at};
use crate::names::Found;
use crate::path::Path;
use crate::quota::{Load, Taken};
use crate::reply::Reply;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{GroupId, InodeId};
use base::limit::CONCAT_FILES_MAX;
use prost::Message;
use std::collections::BTreeSet;

/// Most extents that one change may touch: a TiB of full chunks. Each takes about 140 bytes of log, together 2.3 MiB.
const CHANGED_EXTENTS_MAX: usize = 16_384;

impl State {
    /// The file with this name, if nobody writes it.
    fn find_closed(&mut self, path: &Path) -> Result<Found> {
        let found = self.find_file(path)?;
        if found.record.writer.is_some() {
            let text = format!("'{path}' is open for writing; nothing was changed: try again when it is closed");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(found)
    }

    /// The extents of a file that end after `offset`, by their end. At most `limit`.
    fn extents_after(&self, inode: InodeId, offset: u64, limit: usize) -> Result<Vec<(u64, ExtentRecord)>> {
        let last = after_prefix(&Key::Extent(inode, 0).encode()[..9]);
        let mut extents = Vec::new();
        self.layers.scan(&Key::Extent(inode, offset.saturating_add(1)).encode(), &last, |key, value| {
            let extent = ExtentRecord::decode(value).map_err(|_| missing("a readable extent record"))?;
            extents.push((number_at(key, 9), extent));
            Ok(extents.len() <= limit)
        })?;
        if extents.len() > limit {
            let text = format!(
                "more than {CHANGED_EXTENTS_MAX} pieces of files would change at once; nothing was changed: do it in several steps"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(extents)
    }

    /// Does `Truncate`.
    pub fn truncate(&mut self, path: &Path, length: u64) -> Result<Reply> {
        let Found { inode, mut record, .. } = self.find_closed(path)?;
        let (taken, before) = (Taken::of(&record), record.length);
        if length > before {
            let text = format!(
                "'{path}' has {before} bytes and cannot be cut to {length}; nothing was changed: append what is missing"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if length < before {
            for (end, extent) in self.extents_after(inode, length, CHANGED_EXTENTS_MAX)? {
                self.remove(&Key::Extent(inode, end));
                let kept = length.saturating_sub(extent.start);
                if kept == 0 {
                    self.drop_reference(GroupId(extent.group), Some((extent.group_offset, extent.length)))?;
                    continue;
                }
                // The reference stays with what is kept; what is cut off is garbage of the group.
                self.group(GroupId(extent.group))?;
                let garbage = Key::GarbageRange(GroupId(extent.group), extent.group_offset.saturating_add(kept));
                self.put(&garbage, &RangeRecord { length: extent.length.saturating_sub(kept) });
                self.put(&Key::Extent(inode, length), &ExtentRecord { length: kept, crc: None, ..extent });
            }
            record.length = length;
            record.modified = self.wall.0;
            record.generation = record.generation.saturating_add(1);
            self.put_file(inode, &record, taken)?;
        }
        Ok(Reply::Attributes(record.attributes(inode)))
    }

    /// Does `Concat`: every extent keeps its one reference, under another file.
    pub fn concat(&mut self, target: &Path, sources: &[Path]) -> Result<Reply> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Invalid, format!("{why}; nothing was changed")));
        if sources.is_empty() || sources.len() > CONCAT_FILES_MAX {
            return wrong(format!(
                "1 to {CONCAT_FILES_MAX} files can be joined to another at once, not {}",
                sources.len()
            ));
        }
        let Found { inode, mut record, .. } = self.find_closed(target)?;
        let before = Taken::of(&record);
        let mut taken = BTreeSet::from([inode]);
        let mut found = Vec::with_capacity(sources.len());
        for path in sources {
            let source = self.find_closed(path)?;
            if !taken.insert(source.inode) {
                return wrong(format!("'{path}' is named twice"));
            }
            found.push(source);
        }
        let (mut left, mut freed) = (CHANGED_EXTENTS_MAX, 0);
        // What comes from where another wish holds, or is still to be gone through, wants what the target wants.
        let wishes = |record: &InodeRecord| (record.parent, record.own_replicas(), record.asked);
        let follows = self.rewanting || found.iter().any(|source| wishes(&source.record) != wishes(&record));
        for source in found {
            let Some(length) = record.length.checked_add(source.record.length) else {
                return wrong(format!("'{target}' would be longer than 2^64 bytes"));
            };
            let extents = self.extents_after(source.inode, 0, left)?;
            left -= extents.len();
            for (end, extent) in extents {
                self.remove(&Key::Extent(source.inode, end));
                let start = record.length.saturating_add(extent.start);
                self.put(&Key::Extent(inode, record.length.saturating_add(end)), &ExtentRecord { start, ..extent });
            }
            self.remove_name(InodeId(source.record.parent), &source.record.name)?;
            let space = Taken::of(&source.record).space;
            freed += space;
            let gone = Load { names: -1, bytes: -space };
            self.charge(InodeId(source.record.parent), &source.record.name, gone)?;
            self.remove_inode(source.inode, &source.record);
            self.counters.files = self.counters.files.saturating_sub(1);
            self.counters.bytes = self.counters.bytes.saturating_sub(source.record.length);
            record.length = length;
        }
        record.modified = self.wall.0;
        record.generation = record.generation.saturating_add(1);
        // What only moves from file to file is not refused, even if there is too much already.
        if Taken::of(&record).space - before.space > freed {
            self.put_file(inode, &record, before)?;
        } else {
            self.put_file_anyway(inode, &record, before)?;
        }
        if follows {
            self.rewant_one(inode, &record);
        }
        Ok(Reply::Attributes(record.attributes(inode)))
    }
}
