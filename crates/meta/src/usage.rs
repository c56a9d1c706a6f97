//! Counting what is below a path, a bounded part of it at a time.

use crate::format::{InodeRecord, WalkLevelRecord, WalkRecord};
use crate::key::Key;
use crate::path::Path;
use crate::reply::Reply;
use crate::request::Totals;
use crate::state::State;
use base::error::{Error, ErrorKind, Result};
use base::id::InodeId;
use base::limit::PATH_DEPTH_MAX;
use prost::Message;

/// Most names counted in one call: about ten milliseconds.
const STEP_MAX: usize = 4096;

/// Deepest walk. Renames may push trees below the deepest path that can be written.
const LEVELS_MAX: usize = 4 * PATH_DEPTH_MAX;

impl State {
    /// Answers `DiskUsage`.
    pub fn disk_usage(&mut self, path: &Path, resume: Option<&[u8]>) -> Result<Reply> {
        let mut totals = Totals::default();
        let mut levels = match resume {
            Some(bytes) => match WalkRecord::decode(bytes) {
                Ok(walk) if walk.levels.len() <= LEVELS_MAX => walk.levels,
                _ => return Err(Error::new(ErrorKind::Invalid, "this is not where a count stopped; start it again")),
            },
            None => {
                let found = self.find(path)?;
                if !found.record.directory {
                    totals = Totals { files: 1, directories: 0, bytes: found.record.length };
                    return Ok(Reply::DiskUsage { totals, resume: None });
                }
                totals.directories = 1;
                vec![WalkLevelRecord { directory: found.inode.0, after: String::new() }]
            }
        };
        let mut left = STEP_MAX;
        while let Some(level) = levels.last_mut() {
            if left == 0 {
                let resume = Some(WalkRecord { levels }.encode_to_vec());
                return Ok(Reply::DiskUsage { totals, resume });
            }
            let names = self.names_in(InodeId(level.directory), &level.after, left.min(256))?;
            if names.is_empty() {
                levels.pop();
                continue;
            }
            let mut below = None;
            for (name, found) in names {
                left -= 1;
                level.after = name;
                if found.directory {
                    totals.directories += 1;
                    below = Some(found.inode);
                    break;
                }
                // A name that was replaced between calls is counted as it is now; one without a file is not counted.
                if let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(InodeId(found.inode)))? {
                    totals.files += 1;
                    totals.bytes = totals.bytes.saturating_add(record.length);
                }
            }
            if let Some(directory) = below
                && levels.len() < LEVELS_MAX
            {
                levels.push(WalkLevelRecord { directory, after: String::new() });
            }
        }
        Ok(Reply::DiskUsage { totals, resume: None })
    }
}
