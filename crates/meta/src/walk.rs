//! A walk through all names below a directory, a bounded part of it at a time. Where it has come to can be stored.

use crate::format::{InodeRecord, NameRecord, WalkLevelRecord, WalkRecord};
use crate::key::Key;
use crate::state::State;
use base::error::{Error, ErrorKind, Result};
use base::id::InodeId;
use base::limit::PATH_DEPTH_MAX;
use prost::Message;

/// Most names of one step: about ten milliseconds.
pub const STEP_MAX: usize = 4096;

/// Deepest walk. Renames may push trees below the deepest path that can be written.
pub const LEVELS_MAX: usize = 4 * PATH_DEPTH_MAX;

/// Names that are read at once.
pub const PAGE: usize = 256;

/// The beginning of a walk through a directory, or what is to be walked there when what is below it is done.
pub fn level(directory: u64) -> WalkLevelRecord {
    WalkLevelRecord { directory, after: String::new() }
}

impl State {
    /// Where a walk below a directory goes on, as its asker says. What does not lie in the level above, by now or because somebody made it up,
    /// is left out: nobody is told of directories that he could not come to.
    pub fn resumed(&self, top: InodeId, bytes: &[u8]) -> Result<Vec<WalkLevelRecord>> {
        let wrong = || Error::new(ErrorKind::Invalid, "this is not where a walk stopped; start it again");
        let mut levels = match WalkRecord::decode(bytes) {
            Ok(walk) if walk.levels.len() <= LEVELS_MAX => walk.levels,
            _ => return Err(wrong()),
        };
        if self.asker.superuser {
            return Ok(levels);
        }
        let Some(mut above) = levels.first().map(|first| first.directory).filter(|first| *first == top.0) else {
            return Err(wrong());
        };
        for at in 1..levels.len() {
            let record = self.layers.record::<InodeRecord>(&Key::Inode(InodeId(levels[at].directory)))?;
            if record.is_none_or(|record| record.parent != above) {
                levels.truncate(at);
                break;
            }
            above = levels[at].directory;
        }
        Ok(levels)
    }

    /// Goes one step on from where a walk has come to. `each` hears of every name. What is left to walk: nothing at its end.
    pub fn walk(
        &self,
        mut levels: Vec<WalkLevelRecord>,
        mut each: impl FnMut(&NameRecord) -> Result<()>,
    ) -> Result<Vec<WalkLevelRecord>> {
        let mut left = STEP_MAX;
        while let Some(walked) = levels.last_mut()
            && left > 0
        {
            let names = self.names_in(InodeId(walked.directory), &walked.after, left.min(PAGE))?;
            if names.is_empty() {
                levels.pop();
                continue;
            }
            let mut below = None;
            for (name, found) in names {
                left -= 1;
                walked.after = name;
                each(&found)?;
                if found.directory {
                    below = Some(found.inode);
                    break;
                }
            }
            if let Some(directory) = below
                && levels.len() < LEVELS_MAX
            {
                levels.push(level(directory));
            }
        }
        Ok(levels)
    }
}
