//! Taking apart what has no name any more, and the list of what devices can give back.

use crate::convert;
use crate::format::{BagRecord, ExtentRecord, GroupRecord, InodeRecord, RangeRecord};
use crate::key::{Key, after_prefix, number_at};
use crate::quota::{Load, Taken};
use crate::reply::Reply;
use crate::request::Garbage;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, GroupId, InodeId, SessionId};
use base::limit::LIST_PAGE_MAX;
use prost::Message;

/// Most names that one step takes apart: with up to `EXTENTS_AT_ONCE` extents of 170 bytes of log each, a step stays below 200 KiB.
pub const STEP_MAX: usize = 64;

/// The same while there are requests, each of which may wait for a step: about as long as for one another.
pub const STEP_BESIDE_OTHERS: usize = 16;

/// Most extents that one step releases.
const EXTENTS_MAX: usize = 256;

/// A file with at most so many extents is taken apart with its name.
const EXTENTS_AT_ONCE: usize = 16;

/// Most ranges that one collected group takes with it at once.
const RANGES_MAX: usize = 1024;

impl State {
    /// Takes a file or directory apart whose name is gone: at once if it is small, else in steps.
    pub fn detach(&mut self, inode: InodeId, mut record: InodeRecord) -> Result<()> {
        if record.directory {
            self.directories_changed();
            if self.has_names(inode)? {
                let detached = self.release_tree(inode, &record)?;
                record.parent = 0;
                self.put(&Key::Inode(inode), &record);
                self.put(&Key::Detached(inode), &detached);
                self.collect_from(inode);
                return Ok(());
            }
            self.charge(InodeId(record.parent), &record.name, Load { names: -1, bytes: 0 })?;
            self.counters.directories = self.counters.directories.saturating_sub(1);
            self.remove_inode(inode, &record);
            return Ok(());
        }
        let before = Taken::of(&record);
        self.charge(InodeId(record.parent), &record.name, Load { names: -1, bytes: -before.space })?;
        self.give_up_fences(&mut record)?;
        if let Some(writer) = record.writer.take() {
            match SessionId::from_slice(&writer.session) {
                Some(session) if !writer.ended => self.remove(&Key::SessionFile(session, inode)),
                _ => self.remove(&Key::Orphan(inode)),
            }
            // The open bytes go; without a writer nothing can add to the file.
            record.length = writer.start;
            record.generation = record.generation.saturating_add(1);
            self.put_counted(inode, &record, before);
            self.drop_reference(GroupId(writer.group), None)?;
        }
        if self.release_extents(inode, EXTENTS_AT_ONCE)? {
            self.remove_file(inode, &record);
        } else {
            // Without a parent: a reader that knows its number must not be given what is left of it.
            record.parent = 0;
            self.put(&Key::Inode(inode), &record);
            self.mark(&Key::Detached(inode));
            self.collect_from(inode);
        }
        Ok(())
    }

    /// There is this to take apart, perhaps before what was passed over.
    fn collect_from(&mut self, inode: InodeId) {
        (self.collecting, self.collect_from) = (true, self.collect_from.min(inode));
    }

    fn remove_file(&mut self, inode: InodeId, record: &InodeRecord) {
        self.counters.files = self.counters.files.saturating_sub(1);
        self.counters.bytes = self.counters.bytes.saturating_sub(record.length);
        self.remove_inode(inode, record);
    }

    /// Releases up to `limit` extents; whether those were all.
    fn release_extents(&mut self, inode: InodeId, limit: usize) -> Result<bool> {
        let prefix = Key::Extent(inode, 0).encode()[..9].to_vec();
        let mut extents = Vec::new();
        let mut all = true;
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            all = extents.len() < limit;
            if all {
                let extent = ExtentRecord::decode(value).map_err(|_| missing("a readable extent record"))?;
                extents.push((number_at(key, 9), extent));
            }
            Ok(all)
        })?;
        for (end, extent) in extents {
            self.remove(&Key::Extent(inode, end));
            self.drop_reference(GroupId(extent.group), Some((extent.group_offset, extent.length)))?;
        }
        Ok(all)
    }

    /// One name of a group less. Without names left the group is garbage; until then the range is.
    pub fn drop_reference(&mut self, group: GroupId, range: Option<(u64, u64)>) -> Result<()> {
        let mut record = self.group(group)?;
        record.references = record.references.saturating_sub(1);
        if record.references == 0 && record.session.is_empty() {
            record.open = false;
            self.mark(&Key::GarbageGroup(group));
        } else if let Some((offset, length)) = range {
            self.put(&Key::GarbageRange(group, offset), &RangeRecord { length });
        }
        self.put_group(group, record);
        Ok(())
    }

    /// A session adds no more files to its packed group.
    pub fn give_up_pack(&mut self, session: SessionId, group: GroupId) -> Result<()> {
        self.remove(&Key::SessionGroup(session, group));
        let Some(mut record) = self.layers.record::<GroupRecord>(&Key::Group(group))? else { return Ok(()) };
        if record.is_newer() {
            return Ok(());
        }
        record.session = Vec::new();
        record.open = false;
        record.columns.iter_mut().flat_map(|column| &mut column.replicas).for_each(|replica| replica.start = 0);
        // What was given up while it took files was passed over then.
        self.strike(&mut record);
        if record.references == 0 {
            self.mark(&Key::GarbageGroup(group));
        }
        self.put_group(group, record);
        Ok(())
    }

    /// One step of taking apart what was detached first, of up to so many names: how many names' work it was. None if there is nothing left
    /// that this program can take apart.
    pub fn collect_step(&mut self, names: usize) -> Result<Option<usize>> {
        let from = Key::Detached(self.collect_from);
        let mut found = None;
        self.layers.scan(&from.encode(), &after_prefix(&[from.ordinal()]), |key, _| {
            found = Some(InodeId(number_at(key, 1)));
            Ok(false)
        })?;
        let Some(inode) = found else {
            self.collecting = false;
            return Ok(None);
        };
        // Nothing lies before it but what went and is not merged yet.
        self.collect_from = inode;
        let savepoint = self.savepoint();
        match self.take_apart(inode, names) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                // Bytes of it are in a group that a newer program knows: that one goes on with it.
                self.take_back(&savepoint);
                self.collect_from = InodeId(inode.0.saturating_add(1));
                Ok(Some(1))
            }
            done => done.map(Some),
        }
    }

    fn take_apart(&mut self, inode: InodeId, limit: usize) -> Result<usize> {
        let mut record: InodeRecord =
            self.layers.record(&Key::Inode(inode))?.ok_or_else(|| missing("the record of a detached inode"))?;
        if record.quota {
            // What is below is not counted any more: while it is, nothing of it could be taken apart.
            self.remove_quota(inode, &record);
            record.quota = false;
            self.put(&Key::Inode(inode), &record);
        }
        if !record.directory {
            if self.release_extents(inode, EXTENTS_MAX)? {
                self.remove_file(inode, &record);
                self.remove(&Key::Detached(inode));
            }
            return Ok(EXTENTS_MAX / EXTENTS_AT_ONCE);
        }
        let after = match self.collect_after.take() {
            Some((directory, last)) if directory == inode => last,
            _ => String::new(),
        };
        let names = self.names_in(inode, &after, limit)?;
        let last = names.last().map(|(name, _)| name.clone()).filter(|_| names.len() == limit);
        // The directory itself is one more.
        let work = names.len() + 1;
        for (name, found) in names {
            let child = self.named_inode(&found)?;
            self.remove(&Key::Name(inode, &name));
            self.detach(InodeId(found.inode), child)?;
        }
        if let Some(last) = last {
            self.collect_after = Some((inode, last));
        } else if after.is_empty() || !self.has_names(inode)? {
            self.counters.directories = self.counters.directories.saturating_sub(1);
            self.remove_inode(inode, &record);
            self.remove(&Key::Detached(inode));
        }
        Ok(work)
    }

    /// The numbers behind the first byte or bytes of up to `limit` keys that begin with `prefix`.
    pub fn numbers_under(&self, prefix: &[u8], limit: usize) -> Result<Vec<u64>> {
        self.numbers_in(prefix, prefix, limit)
    }

    /// The same from the key `from` on.
    fn numbers_in(&self, from: &[u8], prefix: &[u8], limit: usize) -> Result<Vec<u64>> {
        let mut numbers = Vec::new();
        if limit == 0 {
            return Ok(numbers);
        }
        self.layers.scan(from, &after_prefix(prefix), |key, _| {
            numbers.push(number_at(key, prefix.len()));
            Ok(numbers.len() < limit)
        })?;
        Ok(numbers)
    }

    /// A page of the numbers of all keys of a kind, those after `after`; and the last of them if there may be more.
    pub fn numbers_from(
        &self,
        key: impl Fn(u64) -> Key<'static>,
        after: Option<u64>,
        limit: usize,
    ) -> Result<(Vec<u64>, Option<u64>)> {
        let (page, prefix) = (self.page(limit), [key(0).ordinal()]);
        let mut from = after.map_or(prefix.to_vec(), |after| key(after).encode());
        if after.is_some() {
            from.push(0);
        }
        let numbers = self.numbers_in(&from, &prefix, page)?;
        let resume = numbers.last().copied().filter(|_| numbers.len() == page);
        Ok((numbers, resume))
    }

    /// Answers `Garbage`.
    pub fn garbage(
        &mut self,
        ranges_after: Option<(GroupId, u64)>,
        bags_after: Option<BagId>,
        limit: usize,
    ) -> Result<Reply> {
        let page = self.page(limit);
        let mut garbage = Garbage::default();
        for group in self.garbage_groups(page)? {
            garbage.groups.push(convert::placed(group, &self.group(group)?)?);
        }
        let ranges = self.garbage_ranges(ranges_after, page)?;
        garbage.ranges_resume =
            ranges.last().map(|(group, offset, _)| (*group, *offset)).filter(|_| ranges.len() == page);
        for (group, offset, length) in ranges {
            garbage.ranges.push((convert::placed(group, &self.group(group)?)?, offset, length));
        }
        let (bags, resume) =
            self.numbers_from(|bag| Key::GarbageBag(BagId(bag)), bags_after.map(|after| after.0), limit)?;
        garbage.bags_resume = resume.map(BagId);
        for bag in bags {
            let bag = BagId(bag);
            if let Some(record) = self.layers.record::<BagRecord>(&Key::GarbageBag(bag))? {
                garbage.bags.push(convert::bag(bag, record));
            }
        }
        Ok(Reply::Garbage(garbage))
    }

    /// Ranges that are garbage, those after `after`, in their order: group, offset, length. Those of groups of a kind that only a newer
    /// program knows are for that one to collect.
    fn garbage_ranges(&self, after: Option<(GroupId, u64)>, limit: usize) -> Result<Vec<(GroupId, u64, u64)>> {
        let prefix = [Key::GarbageRange(GroupId(0), 0).ordinal()];
        let mut from = after.map_or(prefix.to_vec(), |(group, offset)| Key::GarbageRange(group, offset).encode());
        if after.is_some() {
            from.push(0);
        }
        let mut ranges = Vec::new();
        self.layers.scan(&from, &after_prefix(&prefix), |key, value| {
            let record = RangeRecord::decode(value).map_err(|_| missing("a readable range record"))?;
            let group = GroupId(number_at(key, 1));
            if !self.group_of_any_kind(group)?.is_newer() {
                ranges.push((group, number_at(key, 9), record.length));
            }
            Ok(ranges.len() < limit)
        })?;
        Ok(ranges)
    }

    /// The first numbers of groups that are garbage. The scan begins where the last one found the first: what was collected since
    /// lies before it, and thousands of removals that are not merged yet would be passed over each time.
    /// Those of a kind that only a newer program knows are for that one to collect.
    fn garbage_groups(&mut self, limit: usize) -> Result<Vec<GroupId>> {
        let from = Key::GarbageGroup(self.garbage_from);
        let mut groups = Vec::new();
        self.layers.scan(&from.encode(), &after_prefix(&[from.ordinal()]), |key, _| {
            let group = GroupId(number_at(key, 1));
            if !self.group_of_any_kind(group)?.is_newer() {
                groups.push(group);
            }
            Ok(groups.len() < limit)
        })?;
        self.garbage_from = groups.first().copied().unwrap_or(GroupId(u64::MAX));
        Ok(groups)
    }

    /// Does `Collected`.
    pub fn collected(&mut self, groups: &[GroupId], ranges: &[(GroupId, u64)], bags: &[BagId]) -> Result<Reply> {
        if groups.len().max(ranges.len()).max(bags.len()) > LIST_PAGE_MAX {
            let text =
                format!("more than {LIST_PAGE_MAX} things of one kind were collected at once; nothing was noted");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        for (group, offset) in ranges {
            let key = Key::GarbageRange(*group, *offset);
            if self.layers.has(&key)? {
                self.remove(&key);
            }
        }
        let mut left = RANGES_MAX;
        for group in groups {
            if !self.layers.has(&Key::GarbageGroup(*group))? {
                continue;
            }
            let record = self.group(*group)?;
            let prefix = Key::GarbageRange(*group, 0).encode()[..9].to_vec();
            let offsets = self.numbers_under(&prefix, left + 1)?;
            let all = offsets.len() <= left;
            for offset in offsets.into_iter().take(left) {
                self.remove(&Key::GarbageRange(*group, offset));
                left -= 1;
            }
            if all {
                self.remove(&Key::GarbageGroup(*group));
                self.remove_known_group(*group, record);
            }
        }
        for bag in bags {
            if self.layers.has(&Key::GarbageBag(*bag))? {
                self.remove(&Key::GarbageBag(*bag));
            }
        }
        Ok(Reply::Done)
    }

    /// Answers `KnownGroups`.
    pub fn known_groups(&self, groups: &[GroupId]) -> Result<Reply> {
        if groups.len() > LIST_PAGE_MAX {
            let text = format!("{} groups were asked for and {LIST_PAGE_MAX} are the most", groups.len());
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let mut known = Vec::new();
        for group in groups {
            if let Some(record) = self.layers.record::<GroupRecord>(&Key::Group(*group))? {
                known.push(convert::known(*group, &record)?);
            }
        }
        Ok(Reply::Known(known))
    }
}
