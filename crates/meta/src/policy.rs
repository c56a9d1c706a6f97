//! Wishes of files and directories: set, removed, inherited.

use crate::convert;
use crate::format::InodeRecord;
use crate::key::Key;
use crate::path::Path;
use crate::placement::{self, Wish};
use crate::reply::Reply;
use crate::state::State;
use base::error::Result;
use base::policy::Policy;

impl State {
    /// How many copies there shall be of a file, in a directory that wants `above`.
    pub fn wish_of(&self, record: &InodeRecord, above: Option<u32>) -> Wish {
        let own = record.policy.and_then(|policy| policy.replicas);
        placement::wish(own, record.asked, above, || self.devices.nodes())
    }

    /// Does `SetPolicy`.
    pub fn set_policy(&mut self, path: &Path, policy: Policy) -> Result<Reply> {
        placement::check(policy)?;
        let mut found = self.find(path)?;
        if convert::policy(found.record.policy) != policy {
            found.record.policy = (policy != Policy::default()).then(|| convert::policy_record(policy));
            self.put(&Key::Inode(found.inode), &found.record);
            if found.record.directory {
                self.directories.clear();
            }
        }
        Ok(Reply::Done)
    }

    /// Answers `GetPolicy`.
    pub fn get_policy(&mut self, path: &Path) -> Result<Reply> {
        let found = self.find(path)?;
        Ok(Reply::Policy { own: convert::policy(found.record.policy), effective: found.policy })
    }
}
