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

impl State {
    /// Answers `JudgeBelow`: whoever removes a tree must have all rights on every directory in it that has something in it, and own what is in
    /// a sticky one. Directories that may go only because they are empty are told. `empty`: how many were told before.
    pub fn judge_below(&mut self, path: &Path, resume: Option<&[u8]>, empty: usize) -> Result<Reply> {
        let top = self.find(path)?;
        let mut levels = match resume {
            Some(bytes) => match WalkRecord::decode(bytes) {
                Ok(walk) if walk.levels.len() <= LEVELS_MAX => walk.levels,
                _ => return Err(Error::new(ErrorKind::Invalid, "this is not where a walk stopped; start it again")),
            },
            None if top.record.directory => vec![walk::level(top.inode.0)],
            None => Vec::new(),
        };
        let (mut left, mut found_empty) = (STEP_MAX, Vec::new());
        while let Some(walked) = levels.last_mut()
            && left > 0
        {
            let directory = InodeId(walked.directory);
            let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(directory))? else {
                levels.pop();
                continue;
            };
            let rights = self.rights_of(&record);
            let names = self.names_in(directory, &walked.after, left.min(PAGE))?;
            left -= 1;
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
                left = left.saturating_sub(1);
                walked.after = name;
                self.may_go_from(&rights, directory, InodeId(found.inode))?;
                if found.directory {
                    below = Some(found.inode);
                    break;
                }
            }
            if let Some(directory) = below
                && levels.len() < LEVELS_MAX
            {
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
