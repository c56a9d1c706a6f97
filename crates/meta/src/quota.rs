//! Quotas: how many names and how many bytes may be below a directory, and how many are. A directory with a quota keeps these sums
//! in a record of its own, and every transaction that changes names or lengths below it changes them, too. Others cost nothing.

use crate::convert;
use crate::format::{ChargedRecord, DetachedRecord, InodeRecord, QuotaRecord, WalkRecord};
use crate::key::Key;
use crate::path::Path;
use crate::reply::Reply;
use crate::request::Limit;
use crate::state::{State, missing};
use crate::walk::{self, STEP_MAX};
use base::error::{Error, ErrorKind, Result};
use base::id::{InodeId, ROOT};
use base::quota::Exceeded;
use std::sync::Arc;

/// Most directories whose quotas above are remembered. Beyond that all are forgotten.
const KNOWN_MAX: usize = 4096;

/// What counts against quotas, or a change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Files and directories.
    pub names: i64,
    /// Bytes of files, as often as the file counts.
    pub bytes: i128,
}

impl Load {
    /// A name, without bytes.
    pub const NAME: Load = Load { names: 1, bytes: 0 };

    /// A name and what a file takes, or a directory without names.
    pub fn of(record: &InodeRecord) -> Load {
        Load { names: 1, bytes: Taken::of(record).space }
    }

    /// These bytes.
    pub fn bytes(bytes: i128) -> Load {
        Load { names: 0, bytes }
    }

    fn negative(self) -> Load {
        Load { names: self.names.saturating_neg(), bytes: self.bytes.saturating_neg() }
    }

    fn add(&mut self, other: Load) {
        self.names = self.names.saturating_add(other.names);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// A directory whose quota something below it counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    directory: InodeId,
    serial: u64,
}

/// The quotas that each of some directories counts against, itself included.
pub type Known = std::collections::BTreeMap<InodeId, Arc<[Charged]>>;

/// What a file takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its length.
    pub length: u64,
    /// What of it counts against quotas: what a writer has reserved, if that is more, and as often as the file counts.
    pub space: i128,
}

impl Taken {
    /// What the file takes as the record has it.
    pub fn of(record: &InodeRecord) -> Taken {
        let reserved = record.writer.as_ref().map_or(0, |writer| writer.reserved);
        let space = i128::from(record.length.max(reserved)) * i128::from(record.copies.max(1));
        Taken { length: record.length, space }
    }
}

/// A way from a directory to the root. Damaged records may lead round in a circle: that comes back to where it was after 1, 2, 4, ... steps,
/// whichever of these its length is below (Brent 1980).
pub struct Way {
    from: InodeId,
    steps: u64,
    passed: InodeId,
}

impl Way {
    /// That from this directory.
    pub fn from(directory: InodeId) -> Way {
        Way { from: directory, steps: 0, passed: directory }
    }

    /// `Corrupt` if it does not lead to the root.
    pub fn goes_on(&mut self, at: InodeId) -> Result<()> {
        if at == self.passed {
            return Err(missing(&format!("the way from inode {} to the root", self.from)));
        }
        self.steps += 1;
        if self.steps.is_power_of_two() {
            self.passed = at;
        }
        Ok(())
    }
}

impl State {
    /// The quotas that something in this directory counts against, the nearest first.
    fn quotas_above(&mut self, directory: InodeId) -> Result<Arc<[Charged]>> {
        if self.counters.quotas == 0 {
            return Ok(Arc::default());
        }
        if let Some(known) = self.quotas_known.get(&directory) {
            return Ok(known.clone());
        }
        let (mut found, mut at) = (Vec::new(), directory);
        let mut way = Way::from(directory);
        while let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(at))? {
            if record.quota {
                let Some(quota) = self.layers.record::<QuotaRecord>(&Key::Quota(at))? else {
                    return Err(missing(&format!("the quota of inode {at}")));
                };
                found.push(Charged { directory: at, serial: quota.serial });
            }
            if at == ROOT {
                break;
            }
            if record.parent == 0 {
                let detached: DetachedRecord = self.layers.record(&Key::Detached(at))?.unwrap_or_default();
                let charged =
                    |record: &ChargedRecord| Charged { directory: InodeId(record.directory), serial: record.serial };
                found.extend(detached.charged.iter().map(charged));
                break;
            }
            at = InodeId(record.parent);
            way.goes_on(at)?;
        }
        let found: Arc<[Charged]> = found.into();
        if self.quotas_known.len() >= KNOWN_MAX {
            self.quotas_known.clear();
        }
        self.quotas_known.insert(directory, found.clone());
        Ok(found)
    }

    /// The record of a quota, unless it is gone or another one.
    fn quota_record(&self, charged: Charged) -> Result<Option<QuotaRecord>> {
        let record = self.layers.record::<QuotaRecord>(&Key::Quota(charged.directory))?;
        Ok(record.filter(|record| record.serial == charged.serial))
    }

    /// What is below the quotas above a name changes. `OverQuota` if it grows beyond one of them.
    pub fn charge(&mut self, directory: InodeId, name: &str, change: Load) -> Result<()> {
        self.charge_all(directory, name, change, change)
    }

    /// The same for what has happened already: it cannot be refused any more.
    pub fn charge_anyway(&mut self, directory: InodeId, name: &str, change: Load) -> Result<()> {
        self.charge_all(directory, name, change, Load::default())
    }

    fn charge_all(&mut self, directory: InodeId, name: &str, change: Load, growth: Load) -> Result<()> {
        if change == Load::default() {
            return Ok(());
        }
        for charged in self.quotas_above(directory)?.iter() {
            let Some(record) = self.quota_record(*charged)? else { continue };
            if self.is_counted(&record, directory, name)? {
                self.charge_one(charged.directory, record, change, growth)?;
            }
        }
        Ok(())
    }

    /// `growth`: what of the change is refused beyond a limit, if it grows at all.
    fn charge_one(&mut self, quota: InodeId, mut record: QuotaRecord, change: Load, growth: Load) -> Result<()> {
        let names = add(record.names, change.names.into());
        let bytes = add(record.bytes, change.bytes);
        let over = |grows: bool, limit: Option<u64>, would: u64| limit.filter(|limit| grows && would > *limit);
        let limits = [
            (true, over(growth.names > 0, record.names_max, names), names),
            (false, over(growth.bytes > 0, record.bytes_max, bytes), bytes),
        ];
        for (of_names, limit, would) in limits {
            if let Some(limit) = limit {
                let path = self.path_of(quota)?.unwrap_or_default();
                return Err(Exceeded { path, of_names, limit, would }.into());
            }
        }
        (record.names, record.bytes) = (names, bytes);
        self.put(&Key::Quota(quota), &record);
        Ok(())
    }

    /// Whether the count of a quota has met this name: it has if it is complete.
    fn is_counted(&self, quota: &QuotaRecord, directory: InodeId, name: &str) -> Result<bool> {
        let Some(walk) = &quota.counting else { return Ok(true) };
        let (mut at, mut name, mut way) = (directory, name.to_string(), Way::from(directory));
        loop {
            if let Some(level) = walk.levels.iter().find(|level| level.directory == at.0) {
                return Ok(name <= level.after);
            }
            let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(at))? else { return Ok(true) };
            if record.parent == 0 {
                return Ok(true);
            }
            (at, name) = (InodeId(record.parent), record.name);
            way.goes_on(at)?;
        }
    }

    /// Whether a quota limits the bytes of what is in this directory.
    pub fn is_limited(&mut self, directory: InodeId) -> Result<bool> {
        for charged in self.quotas_above(directory)?.iter() {
            if self.quota_record(*charged)?.is_some_and(|quota| quota.bytes_max.is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What of a tree counts, its top included. None: more than can be counted at once.
    fn tree_load(&mut self, inode: InodeId, record: &InodeRecord) -> Result<Option<Load>> {
        if !record.directory {
            return Ok(Some(Load::of(record)));
        }
        if let Some(load) = self.counted_load(inode, record)? {
            return Ok(Some(load));
        }
        let (mut load, mut left, mut todo) = (Load::NAME, STEP_MAX, vec![inode]);
        while let Some(directory) = todo.pop() {
            let names = self.names_in(directory, "", left + 1)?;
            if names.len() > left {
                return Ok(None);
            }
            left -= names.len();
            for (_, found) in names {
                let below = InodeId(found.inode);
                let record = self.named_inode(&found)?;
                match self.counted_load(below, &record)? {
                    Some(counted) => load.add(counted),
                    None => {
                        load.add(Load::of(&record));
                        if found.directory {
                            todo.push(below);
                        }
                    }
                }
            }
        }
        Ok(Some(load))
    }

    /// What a directory with a quota has counted completely.
    fn counted_load(&self, inode: InodeId, record: &InodeRecord) -> Result<Option<Load>> {
        if !record.quota {
            return Ok(None);
        }
        let quota = self.layers.record::<QuotaRecord>(&Key::Quota(inode))?;
        Ok(quota
            .filter(|quota| quota.counting.is_none())
            .map(|quota| Load { names: quota.names.try_into().unwrap_or(i64::MAX), bytes: quota.bytes.into() }))
    }

    /// A name moves: what it stands for counts elsewhere from now on. `replaced`: what counted there under the new name until now.
    pub fn charge_move(
        &mut self,
        inode: InodeId,
        record: &InodeRecord,
        (from, from_name): (InodeId, &str),
        (to, to_name): (InodeId, &str),
        replaced: Load,
    ) -> Result<()> {
        if self.counters.quotas == 0 {
            return Ok(());
        }
        let (before, after) = (self.quotas_above(from)?, self.quotas_above(to)?);
        let mut all: Vec<Charged> = before.to_vec();
        all.extend(after.iter().filter(|charged| !before.contains(charged)));
        let mut changes = Vec::new();
        for charged in all {
            let Some(quota) = self.quota_record(charged)? else { continue };
            if is_walked(&quota, inode) {
                return Err(being_counted());
            }
            let left = before.contains(&charged) && self.is_counted(&quota, from, from_name)?;
            let came = after.contains(&charged) && self.is_counted(&quota, to, to_name)?;
            if left != came {
                changes.push((charged.directory, quota, came));
            }
        }
        if changes.is_empty() {
            return Ok(());
        }
        let load = self.tree_load(inode, record)?.ok_or_else(being_counted)?;
        for (directory, quota, came) in changes {
            if came {
                let mut growth = load;
                growth.add(replaced.negative());
                self.charge_one(directory, quota, load, growth)?;
            } else {
                self.charge_one(directory, quota, load.negative(), Load::default())?;
            }
        }
        Ok(())
    }

    /// A directory with names in it goes: what is below it counts no more. If that is too much to count at once, it counts until it
    /// is taken apart, against the quotas that are answered.
    pub fn release_tree(&mut self, inode: InodeId, record: &InodeRecord) -> Result<DetachedRecord> {
        let parent = InodeId(record.parent);
        let above = self.quotas_above(parent)?;
        if above.is_empty() {
            return Ok(DetachedRecord::default());
        }
        let mut counting = false;
        for charged in above.iter() {
            let quota = self.quota_record(*charged)?;
            if quota.as_ref().is_some_and(|quota| is_walked(quota, inode)) {
                return Err(being_counted());
            }
            counting |= quota.is_some_and(|quota| quota.counting.is_some());
        }
        // What is taken apart already goes on counting until it is gone, step by step.
        if !self.layers.has(&Key::Detached(parent))? {
            if let Some(load) = self.tree_load(inode, record)? {
                self.charge(parent, &record.name, load.negative())?;
                return Ok(DetachedRecord::default());
            }
            if counting {
                return Err(being_counted());
            }
        }
        self.charge(parent, &record.name, Load::NAME.negative())?;
        let charged =
            above.iter().map(|charged| ChargedRecord { directory: charged.directory.0, serial: charged.serial });
        Ok(DetachedRecord { charged: charged.collect() })
    }

    /// Does `SetQuota`.
    pub fn set_quota(&mut self, path: &Path, names: Limit, bytes: Limit) -> Result<Reply> {
        let found = self.find(path)?;
        if !found.record.directory {
            let text = format!("'{path}' is a file, and only directories have quotas; nothing was changed");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let inode = found.inode;
        let before = self.layers.record::<QuotaRecord>(&Key::Quota(inode))?;
        let mut quota = before.clone().unwrap_or_else(|| QuotaRecord {
            serial: self.sequence() + 1,
            names: 1,
            counting: Some(WalkRecord { levels: vec![walk::level(inode.0)] }),
            ..QuotaRecord::default()
        });
        for (limit, kept) in [(names, &mut quota.names_max), (bytes, &mut quota.bytes_max)] {
            match limit {
                Limit::Keep => {}
                Limit::None => *kept = None,
                Limit::Most(most) => *kept = Some(most),
            }
        }
        let unlimited = quota.names_max.is_none() && quota.bytes_max.is_none();
        if unlimited && [names, bytes].contains(&Limit::None) {
            self.remove_quota(inode, &found.record);
            if found.record.quota {
                self.put(&Key::Inode(inode), &InodeRecord { quota: false, ..found.record });
            }
            return Ok(Reply::Quota(None));
        }
        if before.is_none() {
            self.counters.quotas += 1;
            self.put(&Key::Inode(inode), &InodeRecord { quota: true, ..found.record });
            self.mark(&Key::Counting(inode));
            self.counting = true;
            self.quotas_known.clear();
        }
        self.put(&Key::Quota(inode), &quota);
        if quota.counting.is_some() {
            quota = self.count(inode, quota)?;
        }
        Ok(Reply::Quota(Some(convert::quota(&quota))))
    }

    /// Answers `GetQuota`.
    pub fn get_quota(&mut self, path: &Path) -> Result<Reply> {
        let found = self.find(path)?;
        let quota = self.layers.record::<QuotaRecord>(&Key::Quota(found.inode))?;
        Ok(Reply::Quota(quota.map(|quota| convert::quota(&quota))))
    }

    /// The directory has no quota from now on.
    pub fn remove_quota(&mut self, inode: InodeId, record: &InodeRecord) {
        if record.quota {
            self.remove(&Key::Quota(inode));
            self.remove(&Key::Counting(inode));
            self.counters.quotas = self.counters.quotas.saturating_sub(1);
            self.quotas_known.clear();
        }
    }

    /// One step of counting what is below a directory that was given a quota. False if there is nothing left to count.
    pub fn count_step(&mut self) -> Result<bool> {
        let Some(inode) = self.numbers_under(&[Key::Counting(ROOT).ordinal()], 1)?.pop().map(InodeId) else {
            self.counting = false;
            return Ok(false);
        };
        match self.layers.record::<QuotaRecord>(&Key::Quota(inode))? {
            Some(quota) => drop(self.count(inode, quota)?),
            None => self.remove(&Key::Counting(inode)),
        }
        Ok(true)
    }

    /// Counts on from where the quota's count has come to, a bounded number of names.
    fn count(&mut self, inode: InodeId, mut quota: QuotaRecord) -> Result<QuotaRecord> {
        let levels = quota.counting.take().unwrap_or_default().levels;
        let levels = self.walk(levels, |found| {
            quota.names = quota.names.saturating_add(1);
            if !found.directory {
                quota.bytes = add(quota.bytes, Taken::of(&self.named_inode(found)?).space);
            }
            Ok(())
        })?;
        if levels.is_empty() {
            self.remove(&Key::Counting(inode));
        } else {
            quota.counting = Some(WalkRecord { levels });
        }
        self.put(&Key::Quota(inode), &quota);
        Ok(quota)
    }
}

/// Whether the count is within this directory right now.
fn is_walked(quota: &QuotaRecord, directory: InodeId) -> bool {
    let levels = quota.counting.iter().flat_map(|walk| walk.levels.iter().skip(1));
    levels.into_iter().any(|level| level.directory == directory.0)
}

fn add(to: u64, change: i128) -> u64 {
    let sum = i128::from(to).saturating_add(change).max(0);
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn being_counted() -> Error {
    let text = "this would move many names across a quota, and they have to be counted before; nothing was changed: \
                count the directory (`stormwell quota --count`) and do it again";
    Error::new(ErrorKind::Busy, text)
}

#[cfg(test)]
mod tests {
    use super::Way;
    use base::id::InodeId;

    /// A way that leads into a circle of any length ends; one that does not goes on.
    #[test]
    fn circles_end() {
        for (before, round) in [(0, 1), (0, 2), (5, 1), (3, 7), (100, 33)] {
            let mut way = Way::from(InodeId(0));
            let circle = (1..).map(|step| if step < before { step } else { before + (step - before) % round });
            assert!(circle.take(1000).any(|at| way.goes_on(InodeId(at)).is_err()), "{before} and {round}");
        }
        let mut way = Way::from(InodeId(0));
        assert!((1..1000).all(|at| way.goes_on(InodeId(at)).is_ok()));
    }
}
