//! Counting what is below a path, a bounded part of it at a time.

use crate::format::{InodeRecord, WalkRecord};
use crate::key::Key;
use crate::path::Path;
use crate::reply::Reply;
use crate::request::Totals;
use crate::state::State;
use crate::walk;
use base::error::Result;
use base::id::InodeId;
use prost::Message;

impl State {
    /// Answers `DiskUsage`.
    pub fn disk_usage(&mut self, path: &Path, resume: Option<&[u8]>) -> Result<Reply> {
        let mut totals = Totals::default();
        let levels = match resume {
            Some(bytes) => {
                let top = self.find(path)?.inode;
                let levels = self.resumed(top, bytes)?;
                // Rights may have gone since the step before, or the asker made it up.
                levels.iter().try_for_each(|level| self.permit_listing(InodeId(level.directory)))?;
                levels
            }
            None => {
                let found = self.find(path)?;
                if !found.record.directory {
                    totals = Totals { files: 1, directories: 0, bytes: found.record.length };
                    return Ok(Reply::DiskUsage { totals, resume: None });
                }
                totals.directories = 1;
                vec![walk::level(found.inode.0)]
            }
        };
        let levels = self.walk(levels, |found| {
            if found.directory {
                totals.directories += 1;
                return self.permit_listing(InodeId(found.inode));
            }
            // A name that was replaced between calls is counted as it is now; one without a file is not counted.
            if let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(InodeId(found.inode)))? {
                totals.files += 1;
                totals.bytes = totals.bytes.saturating_add(record.length);
            }
            Ok(())
        })?;
        let resume = (!levels.is_empty()).then(|| WalkRecord { levels }.encode_to_vec());
        Ok(Reply::DiskUsage { totals, resume })
    }
}
