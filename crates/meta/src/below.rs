//! Whether somebody may remove everything below a directory: judged step by step, as such a tree may be large.

use crate::access::InodeRights;
use crate::format::{InodeRecord, WalkRecord};
use crate::key::Key;
use crate::path::Path;
use crate::reply::Reply;
use crate::state::State;
use crate::walk::{self, LEVELS_MAX, PAGE, STEP_MAX};
use base::error::{Error, ErrorKind, Result};
use base::id::InodeId;
use base::limit::EMPTY_DIRECTORIES_MAX;
use base::permission::{ALL, STICKY, may_access, may_remove};
use prost::Message;

/// Names that are read at once behind a directory: where one is there are often more, and each of them ends the page.
const PAGE_BEHIND: usize = 4;

impl State {
    /// Answers `JudgeBelow`: whoever removes a tree must have all rights on every directory in it that has something in it, and own what is in
    /// a sticky one. Directories that may go only because they are empty are told. `empty`: how many were told before.
    pub fn judge_below(&mut self, path: &Path, resume: Option<&[u8]>, empty: usize) -> Result<Reply> {
        let top = self.find(path)?;
        let mut levels = match resume {
            Some(bytes) => self.resumed(top.inode, bytes)?,
            None if top.record.directory => vec![walk::level(top.inode.0)],
            None => Vec::new(),
        };
        let (mut left, mut page, mut found_empty) = (STEP_MAX, PAGE, Vec::new());
        while let Some(walked) = levels.last_mut()
            && left > 0
        {
            let directory = InodeId(walked.directory);
            let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(directory))? else {
                levels.pop();
                continue;
            };
            let rights = self.rights_of(&record);
            // Whatever is read counts: behind a directory all of it is read again.
            let names = self.names_in(directory, &walked.after, left.min(page))?;
            left = left.saturating_sub(1 + names.len());
            if walked.after.is_empty() && may_access(self.asker.user(), &rights.view(), "", ALL).is_err() {
                if !names.is_empty() || empty.saturating_add(found_empty.len()) >= EMPTY_DIRECTORIES_MAX {
                    let path = self.shown(directory)?;
                    may_access(self.asker.user(), &rights.view(), &path, ALL)?;
                }
                found_empty.push(directory);
            }
            if names.is_empty() {
                levels.pop();
                continue;
            }
            let mut below = None;
            for (name, found) in names {
                walked.after = name;
                self.may_go_from(&rights, directory, InodeId(found.inode))?;
                if found.directory {
                    below = Some(found.inode);
                    break;
                }
            }
            page = if below.is_some() { PAGE_BEHIND } else { (2 * page).min(PAGE) };
            if let Some(directory) = below {
                if levels.len() >= LEVELS_MAX {
                    let path = self.shown(top.inode)?;
                    let text = format!(
                        "directories lie more than {LEVELS_MAX} levels below {path}; who may remove those is not judged so deep; nothing was \
                         done; move them up, or remove them, first"
                    );
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
                levels.push(walk::level(directory));
            }
        }
        let resume = (!levels.is_empty()).then(|| WalkRecord { levels }.encode_to_vec());
        Ok(Reply::Below { top: top.inode, version: self.directories_version(), empty: found_empty, resume })
    }

    /// Its path, for people.
    pub fn shown(&self, inode: InodeId) -> Result<String> {
        Ok(self.path_of(inode)?.unwrap_or_default())
    }

    /// Refuses to remove something from a sticky directory.
    fn may_go_from(&self, directory: &InodeRights, parent: InodeId, inode: InodeId) -> Result<()> {
        if directory.view().mode & STICKY == 0 {
            return Ok(());
        }
        let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { return Ok(()) };
        let rights = self.rights_of(&record);
        let asker = self.asker.user();
        if may_remove(asker, (&directory.view(), ""), (&rights.view(), "")).is_ok() {
            return Ok(());
        }
        let (above, path) = (self.shown(parent)?, self.shown(inode)?);
        Ok(may_remove(asker, (&directory.view(), &above), (&rights.view(), &path))?)
    }
}
