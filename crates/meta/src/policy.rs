//! Wishes of files and directories: set, removed, inherited.

use crate::convert;
use crate::format::InodeRecord;
use crate::key::Key;
use crate::names::Found;
use crate::path::Path;
use crate::placement::{self, Wish};
use crate::quota::Taken;
use crate::reply::Reply;
use crate::state::State;
use base::error::Result;
use base::id::InodeId;
use base::policy::Policy;

impl State {
    /// How many copies there shall be of a file, in a directory that wants `above`.
    pub fn wish_of(&self, record: &InodeRecord, above: Option<u32>) -> Wish {
        placement::wish(record.own_replicas(), record.asked, above, || self.devices.nodes())
    }

    /// Does `SetPolicy`.
    pub fn set_policy(&mut self, path: &Path, policy: Policy) -> Result<Reply> {
        placement::check(policy)?;
        let Found { inode, mut record, .. } = self.find(path)?;
        // A number that is said again is followed again: there may be what an older program did not make follow, or more nodes.
        let follows = policy.replicas.is_some() || record.own_replicas().is_some();
        let is_same = convert::policy(record.policy) == policy;
        if is_same && !follows {
            return Ok(Reply::Done);
        }
        let before = Taken::of(&record);
        if !is_same {
            record.policy = (policy != Policy::default()).then(|| convert::policy_record(policy));
        }
        if record.directory {
            self.put(&Key::Inode(inode), &record);
            self.directories.clear();
            if follows {
                self.rewant(inode, true);
            }
        } else {
            if follows {
                // Who takes back what was said of the file wants it to be as its directory says, also if whoever made it asked for another number.
                record.asked = policy.replicas.map_or(0, |_| record.asked);
                let above = self.wish_above(path)?;
                record.copies = record.counted_as(self.wish_of(&record, above));
            }
            self.put_file(inode, &record, before)?;
            if follows {
                self.rewant_one(inode, &record);
            }
        }
        Ok(Reply::Done)
    }

    /// A file is gone through whose own wish is another one now, if it has or gets any bytes.
    pub fn rewant_one(&mut self, inode: InodeId, record: &InodeRecord) {
        if record.length > 0 || record.writer.is_some() {
            self.rewant(inode, false);
        }
    }

    /// How many copies the directory wants that a name is in.
    pub fn wish_above(&mut self, path: &Path) -> Result<Option<u32>> {
        let Some((above, _)) = path.split() else { return Ok(None) };
        Ok(self.directory(above)?.policy.replicas)
    }

    /// Answers `GetPolicy`.
    pub fn get_policy(&mut self, path: &Path) -> Result<Reply> {
        let found = self.find(path)?;
        Ok(Reply::Policy { own: convert::policy(found.record.policy), effective: found.policy })
    }
}
