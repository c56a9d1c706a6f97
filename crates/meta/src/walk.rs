//! A walk through all names below a directory, a bounded part of it at a time. Where it has come to can be stored.

use crate::format::{NameRecord, WalkLevelRecord};
use crate::state::State;
use base::error::Result;
use base::id::InodeId;
use base::limit::PATH_DEPTH_MAX;

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
