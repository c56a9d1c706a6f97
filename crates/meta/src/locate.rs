//! Where the bytes of files are: of one file in pages, and of those in a listing that have few extents.

use crate::convert;
use crate::format::{ExtentRecord, InodeRecord, WriterRecord};
use crate::key::{Key, after_prefix};
use crate::names::gone;
use crate::reply::Reply;
use crate::request::{Extent, FileRef, Located, NewGroup, Open};
use crate::state::{State, missing};
use base::error::{ErrorKind, Result};
use base::id::{Generation, GroupId, InodeId};
use base::limit::{LISTED_EXTENT_BYTES, LISTED_EXTENTS_MAX, LISTED_REPLICAS_MAX};
use prost::Message;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Most extents in one answer to `Locate`: with their groups about 100 KiB, with the widest ones 500 KiB.
const LOCATE_PAGE_MAX: usize = 512;

/// Replicas after which such an answer ends, counted anew for each extent: 12,000 of 48 bytes take half of a message. The widest group has 256.
const LOCATE_REPLICAS_MAX: usize = 12_000;

/// The groups of the extents of an answer, each once: most files of a listing share theirs.
#[derive(Default)]
pub struct Groups(BTreeMap<GroupId, NewGroup>);

impl Groups {
    /// Looks the group of an extent up, if it was not yet.
    fn note(&mut self, state: &State, extent: &Extent) -> Result<&NewGroup> {
        let group = extent.group;
        Ok(match self.0.entry(group) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let record = state.group(group)?;
                let mut placed = convert::placed(group, &record)?;
                // Of an open one all have to answer, and each is known by its place.
                if placed.layout.has_several() && !extent.open {
                    placed.layout = placed.layout.sorted_by_key(|device| state.is_away(&record, device));
                }
                place.insert(placed)
            }
        })
    }

    /// Chunks on devices that these extents lie in, counted for each extent.
    fn replicas(&self, extents: &[Extent]) -> usize {
        let count = |extent: &Extent| self.0.get(&extent.group).map_or(0, |group| group.layout.replicas().count());
        extents.iter().map(count).sum()
    }

    fn have_several(&self, group: GroupId) -> bool {
        self.0.get(&group).is_some_and(|group| group.layout.has_several())
    }

    /// Bytes that these extents take of a listing.
    pub fn listed_bytes(&self, extents: &[Extent]) -> usize {
        let (extent, replica) = LISTED_EXTENT_BYTES;
        extents.len() * extent + self.replicas(extents) * replica
    }

    /// In the order of their numbers.
    pub fn into_all(self) -> Vec<NewGroup> {
        self.0.into_values().collect()
    }
}

impl State {
    /// Answers `Locate`.
    pub fn locate(&mut self, file: &FileRef, offset: u64, length: u64) -> Result<Reply> {
        let (inode, record) = match file {
            FileRef::Path(path) => {
                let found = self.find_file(path)?;
                (found.inode, found.record)
            }
            FileRef::Inode(inode) => {
                let record: InodeRecord = self.layers.record(&Key::Inode(*inode))?.ok_or_else(|| gone(*inode))?;
                if record.directory || record.parent == 0 {
                    return Err(gone(*inode));
                }
                (*inode, record)
            }
        };
        let end = offset.saturating_add(length);
        let (mut extents, page_max) = (Vec::new(), self.page(LOCATE_PAGE_MAX));
        let mut more = false;
        if length > 0 {
            let last = after_prefix(&Key::Extent(inode, 0).encode()[..9]);
            self.layers.scan(&Key::Extent(inode, offset.saturating_add(1)).encode(), &last, |_, value| {
                let extent = ExtentRecord::decode(value).map_err(|_| missing("a readable extent record"))?;
                if extent.start >= end {
                    return Ok(false);
                }
                more = extents.len() == page_max;
                if !more {
                    extents.push(extent_of(&extent));
                }
                Ok(!more)
            })?;
        }
        if let Some(writer) = &record.writer
            && !more
            && writer.start < end
        {
            more = extents.len() == page_max;
            if !more {
                extents.push(open_extent(writer));
            }
        }
        let mut groups = Groups::default();
        let mut replicas = 0;
        for (index, extent) in extents.iter().enumerate() {
            replicas += groups.note(self, extent)?.layout.replicas().count();
            if replicas > LOCATE_REPLICAS_MAX && index > 0 {
                (extents, more) = (extents[..index].to_vec(), true);
                groups.0.retain(|group, _| extents.iter().any(|extent| extent.group == *group));
                break;
            }
        }
        let open = match (&record.writer, extents.last()) {
            (Some(writer), Some(last)) if last.open && groups.have_several(last.group) => {
                Some(self.open_of(&record, writer)?)
            }
            _ => None,
        };
        let (attributes, groups) = (record.attributes(inode), groups.into_all());
        Ok(Reply::Located(Located { attributes, extents, groups, open, more }))
    }

    fn open_of(&self, record: &InodeRecord, writer: &WriterRecord) -> Result<Open> {
        // A fence raises it by one.
        let generation = Generation(record.generation.saturating_sub(u64::from(writer.ended)));
        let replicas = self.group(GroupId(writer.group))?.columns.into_iter().flat_map(|column| column.replicas);
        Ok(Open { generation, starts: replicas.map(|replica| replica.start).collect() })
    }

    /// All extents of a closed file of this length, if they are few; none else. Whatever is wrong with their records is said to whoever asks
    /// for the file itself: the other names of the directory are listed all the same.
    pub fn few_extents(&self, inode: InodeId, length: u64, groups: &mut Groups) -> Result<Vec<Extent>> {
        match self.listed_extents(inode, length, groups) {
            Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Vec::new()),
            found => found,
        }
    }

    fn listed_extents(&self, inode: InodeId, length: u64, groups: &mut Groups) -> Result<Vec<Extent>> {
        let extents = match self.layers.record::<ExtentRecord>(&Key::Extent(inode, length))? {
            // Nearly all files: one look-up tells that this is all.
            Some(only) if only.start == 0 => vec![extent_of(&only)],
            _ => self.all_extents(inode, LISTED_EXTENTS_MAX + 1)?,
        };
        let few = extents.len() <= LISTED_EXTENTS_MAX
            && extents.iter().all(|extent| groups.note(self, extent).is_ok())
            && groups.replicas(&extents) <= LISTED_REPLICAS_MAX;
        Ok(if few { extents } else { Vec::new() })
    }

    /// The first extents of a file, at most `limit`.
    fn all_extents(&self, inode: InodeId, limit: usize) -> Result<Vec<Extent>> {
        let last = after_prefix(&Key::Extent(inode, 0).encode()[..9]);
        let mut extents = Vec::new();
        self.layers.scan(&Key::Extent(inode, 1).encode(), &last, |_, value| {
            let extent = ExtentRecord::decode(value).map_err(|_| missing("a readable extent record"))?;
            extents.push(extent_of(&extent));
            Ok(extents.len() < limit)
        })?;
        Ok(extents)
    }
}

fn extent_of(record: &ExtentRecord) -> Extent {
    Extent {
        file_offset: record.start,
        group: GroupId(record.group),
        group_offset: record.group_offset,
        length: record.length,
        crc: record.crc,
        open: false,
    }
}

fn open_extent(writer: &WriterRecord) -> Extent {
    Extent {
        file_offset: writer.start,
        group: GroupId(writer.group),
        group_offset: 0,
        length: writer.length,
        crc: None,
        open: true,
    }
}
