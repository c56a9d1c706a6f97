//! Data follows its policy: what is below a directory whose wish for copies changed, and files whose own wish did or that moved to where another one
//! holds, are gone through in steps, and their groups want as many replicas as their files do now. What lacks some then is listed by that
//! (`lacking.rs`), and gets them as ever.
//!
//! Each step is a transaction with what it changed and how far it came, so a restart or another leader goes on there. What it meets is judged by what
//! holds at that moment, wherever it is by then: two walks, or a walk and a rename, come to the same end in any order.

use crate::convert;
use crate::format::{ExtentRecord, GroupRecord, InodeRecord, PolicyRecord, RewantRecord};
use crate::key::{Key, after_prefix, number_at};
use crate::placement::Wish;
use crate::quota::{Taken, Way};
use crate::state::{State, missing};
use crate::walk::{self, LEVELS_MAX};
use base::error::{Error, ErrorKind, Result};
use base::id::{GroupId, InodeId, ROOT};
use base::planted::Planted;
use base::unit::KIB;
use prost::Message;
use std::collections::BTreeSet;

/// Most names of one step: of each the record, the extents and the groups may have to be read from the disk.
const NAMES_MAX: usize = 128;

/// Most groups of one step: with the widest ones, of 48 replicas and 2 KiB each, 140 KiB of log.
const GROUPS_MAX: usize = 64;

/// Bytes of changed records of files after which a step ends.
const RECORDS_MAX: usize = 32 * KIB as usize;

/// Names that are read at once; fewer where a directory was among the ones before, as the others would be read again behind it.
const PAGE: usize = 64;
const PAGE_BEHIND: usize = 4;

/// What is left of a step.
struct Left {
    names: usize,
    groups: usize,
    bytes: usize,
    /// The directory whose wish was looked for last, and that.
    above: Option<(u64, Option<Option<u32>>)>,
}

impl Left {
    fn is_over(&self) -> bool {
        self.names == 0 || self.groups == 0 || self.bytes == 0
    }
}

impl State {
    /// How many copies a directory wants, by its own wish or the nearest one above; none within: nobody wishes. None: it does not lead to the root.
    /// It is being taken apart then, and what is in it is left alone.
    pub fn replicas_above(&self, directory: InodeId) -> Result<Option<Option<u32>>> {
        let (mut at, mut way, mut wish) = (directory, Way::from(directory), None);
        while let Some(record) = self.layers.record::<InodeRecord>(&Key::Inode(at))? {
            wish = wish.or(record.own_replicas());
            if at == ROOT {
                return Ok(Some(wish));
            }
            if record.parent == 0 {
                return Ok(None);
            }
            at = InodeId(record.parent);
            way.goes_on(at)?;
        }
        Ok(None)
    }

    /// A directory or a file is gone through from the end of this transaction on; from its beginning, if it is being gone through.
    pub fn rewant(&mut self, inode: InodeId, directory: bool) {
        let record = match directory {
            true => RewantRecord { levels: vec![walk::level(inode.0)], ..RewantRecord::default() },
            false => RewantRecord { file: inode.0, ..RewantRecord::default() },
        };
        self.put(&Key::Rewant(inode), &RewantRecord { since: self.wall.0, ..record });
        self.rewanting = true;
    }

    /// Notes whether anything is to be gone through. Done once, when the store is opened or begins to lead.
    pub fn load_rewants(&mut self) -> Result<()> {
        self.rewanting = self.next_rewant()?.is_some();
        Ok(())
    }

    /// What is gone through next: each in turn, so that a file does not wait for a million names.
    fn next_rewant(&self) -> Result<Option<InodeId>> {
        let end = after_prefix(&[Key::Rewant(ROOT).ordinal()]);
        for from in [self.rewant_from, InodeId(0)] {
            let mut first = None;
            self.layers.scan(&Key::Rewant(from).encode(), &end, |key, _| {
                first = Some(InodeId(number_at(key, 1)));
                Ok(false)
            })?;
            if first.is_some() {
                return Ok(first);
            }
        }
        Ok(None)
    }

    /// One step of following changed wishes: of one that takes several, or of many that are short. False if there is nothing left to follow.
    pub fn rewant_step(&mut self) -> Result<bool> {
        let mut left = Left { names: NAMES_MAX, groups: GROUPS_MAX, bytes: RECORDS_MAX, above: None };
        let mut any = false;
        while !left.is_over()
            && let Some(inode) = self.next_rewant()?
        {
            any = true;
            left.names -= 1;
            // Before it is tried: what cannot be gone through holds up no other.
            self.rewant_from = InodeId(inode.0.saturating_add(1));
            self.rewant_next(inode, &mut left)?;
        }
        // Not one step longer: what is renamed while this goes on is gone through, too.
        self.rewanting = self.next_rewant()?.is_some();
        Ok(any)
    }

    /// Goes on with this one, to its end or that of the step.
    fn rewant_next(&mut self, inode: InodeId, left: &mut Left) -> Result<()> {
        let Some(mut walk) = self.rewant_record(inode)? else {
            self.remove(&Key::Rewant(inode));
            return Ok(());
        };
        self.rewant_on(&mut walk, left)?;
        let is_done = walk.levels.is_empty() && walk.file == 0;
        if is_done || self.planted == Some(Planted::PolicyForgottenAtStep) {
            self.remove(&Key::Rewant(inode));
        } else {
            self.put(&Key::Rewant(inode), &walk);
        }
        Ok(())
    }

    /// How far this was gone through. None: it is gone, or being taken apart.
    fn rewant_record(&mut self, inode: InodeId) -> Result<Option<RewantRecord>> {
        let found = self.layers.record::<InodeRecord>(&Key::Inode(inode)).and_then(|record| match record {
            Some(record) if inode == ROOT || self.replicas_above(InodeId(record.parent))?.is_some() => Ok(Some(record)),
            _ => Ok(None),
        });
        let Some(record) = self.unless_damaged(found)?.flatten() else { return Ok(None) };
        let walk = self.layers.record::<RewantRecord>(&Key::Rewant(inode));
        match self.unless_damaged(walk)?.flatten() {
            Some(walk) if walk.levels.len() <= LEVELS_MAX => Ok(Some(walk)),
            // Where it was is not known: from the beginning.
            _ if record.directory => {
                Ok(Some(RewantRecord { levels: vec![walk::level(inode.0)], ..RewantRecord::default() }))
            }
            _ => Ok(Some(RewantRecord { file: inode.0, ..RewantRecord::default() })),
        }
    }

    /// What is damaged is passed over, and told with the other failures of what the store does by itself.
    fn unless_damaged<T>(&mut self, found: Result<T>) -> Result<Option<T>> {
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                self.passed_over = Some(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Goes on until the step is over or everything was gone through.
    fn rewant_on(&mut self, walk: &mut RewantRecord, left: &mut Left) -> Result<()> {
        let mut page = PAGE_BEHIND;
        while !left.is_over() {
            if walk.file != 0 {
                self.rewant_found(walk, left)?;
                continue;
            }
            let Some(level) = walk.levels.last() else { break };
            let names = self.names_in(InodeId(level.directory), &level.after, page.min(left.names));
            let Some(names) = self.unless_damaged(names)? else {
                // Those before the damaged one are found one by one; the directory's others are passed over.
                if page == 1 {
                    walk.levels.pop();
                }
                page = 1;
                continue;
            };
            if names.is_empty() {
                walk.levels.pop();
                page = PAGE_BEHIND;
                continue;
            }
            page = (2 * page).min(PAGE);
            for (name, found) in names {
                left.names = left.names.saturating_sub(1);
                walk.names = walk.names.saturating_add(1);
                if let Some(level) = walk.levels.last_mut() {
                    level.after = name;
                }
                if found.directory {
                    self.rewant_below(InodeId(found.inode), walk)?;
                    page = PAGE_BEHIND;
                    break;
                }
                walk.file = found.inode;
                if !self.rewant_found(walk, left)? || left.is_over() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Goes through a directory that was met, unless it has a wish of its own.
    fn rewant_below(&mut self, directory: InodeId, walk: &mut RewantRecord) -> Result<()> {
        let record = self.layers.record::<InodeRecord>(&Key::Inode(directory));
        let Some(record) = self.unless_damaged(record)?.flatten() else { return Ok(()) };
        if record.own_replicas().is_some() {
            return Ok(());
        }
        if walk.levels.len() < LEVELS_MAX {
            walk.levels.push(walk::level(directory.0));
        } else {
            self.rewant(directory, true);
        }
        Ok(())
    }

    /// The file of the walk; whether that is done.
    fn rewant_found(&mut self, walk: &mut RewantRecord, left: &mut Left) -> Result<bool> {
        let savepoint = self.savepoint();
        let done = self.rewant_file(walk, left);
        if done.is_err() {
            self.take_back(&savepoint);
        }
        let done = self.unless_damaged(done)?.unwrap_or(true);
        if done {
            (walk.file, walk.after) = (0, 0);
        }
        Ok(done)
    }

    /// Goes on with a file where the walk is in it: its writer's wish, its groups, and how often it counts. Whether it is done.
    fn rewant_file(&mut self, walk: &mut RewantRecord, left: &mut Left) -> Result<bool> {
        let inode = InodeId(walk.file);
        let Some(before) = self.layers.record::<InodeRecord>(&Key::Inode(inode))? else { return Ok(true) };
        let above = match left.above {
            Some((parent, above)) if parent == before.parent => above,
            _ => self.replicas_above(InodeId(before.parent))?,
        };
        left.above = Some((before.parent, above));
        let Some(above) = above.filter(|_| !before.directory) else { return Ok(true) };
        let wish = self.wish_of(&before, above);
        let mut record = before.clone();
        if let Some(writer) = record.writer.as_mut().filter(|_| self.planted != Some(Planted::WriterKeepsOldWish)) {
            if convert::policy(writer.policy).replicas != wish.replicas {
                let policy = writer.policy.unwrap_or_default();
                writer.policy = Some(PolicyRecord { replicas: wish.replicas, ..policy });
            }
            let group = GroupId(writer.group);
            self.rewant_group(group, wish, (walk, left))?;
        }
        let extents = self.extents_behind(inode, walk.after, left.groups.saturating_add(1))?;
        let is_last = extents.len() <= left.groups;
        for (end, group) in extents.into_iter().take(left.groups) {
            self.rewant_group(group, wish, (walk, left))?;
            walk.after = end;
        }
        if is_last {
            record.copies = record.counted_as(wish);
        }
        if record != before {
            left.bytes = left.bytes.saturating_sub(record.encoded_len());
            // What is there already is not refused: new bytes are.
            self.put_file_anyway(inode, &record, Taken::of(&before))?;
        }
        Ok(is_last)
    }

    fn rewant_group(&mut self, group: GroupId, wish: Wish, (walk, left): (&mut RewantRecord, &mut Left)) -> Result<()> {
        left.groups = left.groups.saturating_sub(1);
        if self.want(group, wish.replicas)? {
            walk.groups = walk.groups.saturating_add(1);
        }
        Ok(())
    }

    /// The ends of a file's extents behind `after`, and their groups. At most `limit`.
    fn extents_behind(&self, inode: InodeId, after: u64, limit: usize) -> Result<Vec<(u64, GroupId)>> {
        let end = after_prefix(&Key::Extent(inode, 0).encode()[..9]);
        let mut extents = Vec::new();
        self.layers.scan(&Key::Extent(inode, after.saturating_add(1)).encode(), &end, |key, value| {
            let extent = ExtentRecord::decode(value).map_err(|_| missing("a readable extent record"))?;
            extents.push((number_at(key, 9), GroupId(extent.group)));
            Ok(extents.len() < limit)
        })?;
        Ok(extents)
    }

    /// A group shall have so many replicas from now on; whether that is another number. What files share has as many as that of them wants which wants
    /// most, and nobody knows here who the others are: it only ever gets more.
    fn want(&mut self, group: GroupId, wanted: Option<u32>) -> Result<bool> {
        let mut record = match self.layers.record::<GroupRecord>(&Key::Group(group)) {
            Ok(Some(record)) => record,
            // Whoever reads it is told what is wrong with it.
            Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
            _ => return Ok(false),
        };
        if record.is_newer() || record.references == 0 || convert::placed(group, &record).is_err() {
            return Ok(false);
        }
        let wanted = wanted.filter(|wanted| *wanted > 1).unwrap_or(0);
        let wanted = match is_shared(&record) && self.planted != Some(Planted::SharedLowered) {
            true => wanted.max(record.wanted),
            false => wanted,
        };
        if wanted == record.wanted {
            return Ok(false);
        }
        // Nothing is named less for it: a replica that is not good now may be the last one that is whole, should those that count be gone and nobody
        // know that yet.
        record.wanted = wanted;
        self.put_group(group, record);
        Ok(true)
    }

    /// An error unless everything wants what its files want, but for what is still to be gone through; how many wishes that are. Reads everything: for
    /// tests and simulations.
    pub fn check_wishes(&self) -> Result<usize> {
        let mut followed = BTreeSet::new();
        let prefix = [Key::Rewant(ROOT).ordinal()];
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, _| {
            followed.insert(number_at(key, 1));
            Ok(true)
        })?;
        let (mut files, prefix) = (Vec::new(), [Key::Inode(ROOT).ordinal()]);
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = InodeRecord::decode(value).map_err(|_| missing("a readable inode record"))?;
            if !record.directory {
                files.push((InodeId(number_at(key, 1)), record));
            }
            Ok(true)
        })?;
        for (inode, record) in files {
            let Some(above) = self.replicas_above(InodeId(record.parent))? else { continue };
            let (mut is_followed, mut at) = (followed.contains(&inode.0), InodeId(record.parent));
            while !is_followed {
                is_followed = followed.contains(&at.0);
                match self.layers.record::<InodeRecord>(&Key::Inode(at))? {
                    Some(record) if at != ROOT => at = InodeId(record.parent),
                    _ => break,
                }
            }
            if !is_followed {
                self.check_wish(inode, &record, above)?;
            }
        }
        Ok(followed.len())
    }

    fn check_wish(&self, inode: InodeId, record: &InodeRecord, above: Option<u32>) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::Corrupt, format!("file {inode}: {what}: {record:?}")));
        let wish = self.wish_of(record, above);
        if record.copies != record.counted_as(wish) {
            return wrong(format!("counts {} times instead of {wish:?}", record.copies));
        }
        // It may have been followed when there were fewer nodes, or more.
        let least = wish.replicas.unwrap_or(1).min(above.unwrap_or(1).max(1));
        let most = self.most_wished(record, above).max(least);
        let writer = record.writer.as_ref();
        let of_writer = writer.map(|writer| convert::policy(writer.policy).replicas.unwrap_or(1).max(1));
        if of_writer.is_some_and(|wanted| !(least..=most).contains(&wanted)) {
            return wrong(format!("its writer wants {of_writer:?} instead of {wish:?}"));
        }
        let extents = self.extents_behind(inode, 0, usize::MAX)?;
        let groups = extents.into_iter().map(|(_, group)| group).chain(writer.map(|writer| GroupId(writer.group)));
        for group in groups {
            let record = self.group(group)?;
            let wanted = record.wanted.max(1);
            if wanted < least || wanted > most && !is_shared(&record) {
                return wrong(format!("group {group} wants {wanted} instead of {wish:?}"));
            }
        }
        Ok(())
    }

    /// What a file wishes for where there are nodes for all of it.
    fn most_wished(&self, record: &InodeRecord, above: Option<u32>) -> u32 {
        crate::placement::wish(record.own_replicas(), record.asked, above, || u32::MAX).replicas.unwrap_or(1)
    }
}

impl InodeRecord {
    /// How many copies somebody wished for of this one, and not of a directory above.
    pub fn own_replicas(&self) -> Option<u32> {
        self.policy.and_then(|policy| policy.replicas)
    }

    /// What `copies` is under this wish.
    pub fn counted_as(&self, wish: Wish) -> u32 {
        let is_said = self.asked > 0 || self.own_replicas().is_some();
        if wish.counted == 1 && !is_said { 0 } else { wish.counted }
    }
}

/// Whether other files may have bytes in it.
fn is_shared(group: &GroupRecord) -> bool {
    group.packed || group.references > 1
}
