//! Reverse lookup from groups to files. There is no index for it: all extents are scanned, in bounded steps, which is acceptable because
//! only damage asks for it.

use crate::format::{ExtentRecord, InodeRecord};
use crate::key::{Key, after_prefix, number_at};
use crate::names::gone;
use crate::reply::Reply;
use crate::request::FilePiece;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{GroupId, InodeId, ROOT, SessionId};
use base::limit::{CHUNK_MAX, LIST_PAGE_MAX, PATH_DEPTH_MAX};
use prost::Message;
use std::collections::BTreeSet;

/// Extents looked at in one step: about ten milliseconds.
const STEP_MAX: usize = 20_000;

impl State {
    /// Answers `FilesIn`.
    pub fn files_in(&self, groups: &[GroupId], resume: Option<&[u8]>) -> Result<Reply> {
        if groups.len() > LIST_PAGE_MAX {
            let text = format!("{} groups were asked for and {LIST_PAGE_MAX} are the most", groups.len());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let wanted: BTreeSet<u64> = groups.iter().map(|group| group.0).collect();
        let mut found: Vec<(InodeId, u64, ExtentRecord)> = Vec::new();
        if resume.is_none() {
            self.open_pieces(&wanted, &mut found)?;
        }
        let prefix = [Key::Extent(InodeId(0), 0).ordinal()];
        let mut from = resume.unwrap_or(&prefix).to_vec();
        if resume.is_some() {
            from.push(0);
        }
        let (mut looked, mut last) = (0, None);
        self.layers.scan(&from, &after_prefix(&prefix), |key, value| {
            looked += 1;
            let extent = ExtentRecord::decode(value).map_err(|_| missing("a readable extent record"))?;
            if wanted.contains(&extent.group) {
                found.push((InodeId(number_at(key, 1)), extent.start, extent));
            }
            let full = looked >= STEP_MAX || found.len() >= self.page_max;
            last = full.then(|| key.to_vec());
            Ok(!full)
        })?;
        let mut pieces = Vec::with_capacity(found.len());
        for (inode, start, extent) in found {
            if let Some(path) = self.path_of(inode)? {
                let (group, group_offset) = (GroupId(extent.group), extent.group_offset);
                pieces.push(FilePiece { path, file_offset: start, group, group_offset, length: extent.length });
            }
        }
        Ok(Reply::Pieces { pieces, resume: last })
    }

    /// Pieces that are being written: they have no extent yet, and end where their chunks do.
    fn open_pieces(&self, wanted: &BTreeSet<u64>, found: &mut Vec<(InodeId, u64, ExtentRecord)>) -> Result<()> {
        let of_sessions = [Key::SessionFile(SessionId(0), InodeId(0)).ordinal()];
        let mut inodes = self.numbers_under(&[Key::Orphan(InodeId(0)).ordinal()], usize::MAX)?;
        self.layers.scan(&of_sessions, &after_prefix(&of_sessions), |key, _| {
            inodes.push(number_at(key, 17));
            Ok(true)
        })?;
        for inode in inodes {
            let inode = InodeId(inode);
            let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { continue };
            if let Some(writer) = record.writer.filter(|writer| wanted.contains(&writer.group)) {
                let columns = self.group_of_any_kind(GroupId(writer.group))?.columns.len() as u64;
                let (group, length) = (writer.group, CHUNK_MAX.saturating_mul(columns));
                let extent = ExtentRecord { start: writer.start, group, group_offset: 0, length, crc: None };
                found.push((inode, writer.start, extent));
            }
        }
        Ok(())
    }

    /// Answers `PathOf`.
    pub fn answer_path_of(&self, inode: InodeId) -> Result<Reply> {
        self.path_of(inode)?.map(Reply::PathOf).ok_or_else(|| gone(inode))
    }

    /// The path of a file; none if it is being taken apart.
    pub fn path_of(&self, inode: InodeId) -> Result<Option<String>> {
        let (mut names, mut at) = (Vec::new(), inode);
        while at != ROOT {
            let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(at))? else { return Ok(None) };
            if record.parent == 0 || names.len() > PATH_DEPTH_MAX || self.layers.has(&Key::Detached(at))? {
                return Ok(None);
            }
            names.push(record.name);
            at = InodeId(record.parent);
        }
        names.reverse();
        Ok(Some(format!("/{}", names.join("/"))))
    }
}
