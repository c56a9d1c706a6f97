//! Taking a device out of use: what lies on it is listed, moved group by group, and in the end the device is forgotten.

use crate::convert;
use crate::device_index;
use crate::format::{BagRecord, ColumnRecord, DeviceRecord, GroupRecord, ReplicaRecord};
use crate::key::{Key, after_prefix, number_at};
use crate::reply::Reply;
use crate::request::Request;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, GroupId};
use base::policy::Class;
use prost::Message;
use std::collections::BTreeSet;

/// Groups looked at in one step, in pages: 20,000. Those that changed since the last merge are in memory, and so many take 7 ms; a page of the
/// index, whose groups lie all over the tree, 4 ms.
const STEP_PAGES: usize = 20;

/// Pages of groups that once were on a device, of which one is looked for that still is. If there are more, the next merge has forgotten them.
const NAMED_PAGES: usize = 8;

impl State {
    /// The record of a device. `NotFound` if it is none of the store's.
    pub fn device_record(&self, device: DeviceId) -> Result<DeviceRecord> {
        let unknown = || Error::new(ErrorKind::NotFound, format!("device {device} is not one of this store's"));
        self.layers.record(&Key::Device(device))?.ok_or_else(unknown)
    }

    /// Does `DeviceDrain`. Memory follows when it is committed.
    pub fn drain_device(&mut self, device: DeviceId) -> Result<Reply> {
        let record = self.device_record(device)?;
        if !record.draining {
            let drain = self.last_drain()?.saturating_add(1);
            self.put(&Key::Device(device), &DeviceRecord { draining: true, drain, ..record });
        }
        Ok(Reply::Done)
    }

    /// The highest `DeviceRecord::drain`.
    fn last_drain(&self) -> Result<u64> {
        let (mut last, prefix) = (0, [Key::Device(DeviceId(0)).ordinal()]);
        self.layers.scan(&prefix, &after_prefix(&prefix), |_, value| {
            let record = DeviceRecord::decode(value).map_err(|_| missing("a readable device record"))?;
            last = last.max(record.drain);
            Ok(true)
        })?;
        Ok(last)
    }

    /// Does `DeviceRemove`. Memory follows when it is committed.
    pub fn remove_device(&mut self, device: DeviceId) -> Result<Reply> {
        match self.device_record(device) {
            Ok(record) if record.draining || record.lost || self.devices.is_gone_memory(device) => {
                self.check_no_member(device)?;
                // What was in memory that is gone nobody brings back, whatever names it.
                if record.lost && !self.devices.is_gone_memory(device) {
                    self.check_not_named(device, "it was not removed")?;
                }
                if Class::from_code(record.class) == Some(Class::Memory) {
                    // What was in memory is gone with it.
                    self.recount(device);
                }
                self.remove(&Key::Device(device));
                // One in memory is new at each start of its node and never named again.
                if Class::from_code(record.class) != Some(Class::Memory) {
                    self.mark(&Key::Removed(device));
                }
                if self.devices.node_of(device).is_some_and(|node| self.nodes.is_known(node)) {
                    self.raise_epoch();
                }
            }
            Ok(_) => {
                let text = format!("device {device} is neither being drained nor lost; it was not removed");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            // Removed by a request whose answer was lost.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(Reply::Done)
    }

    /// Answers `DevicesRemoved`.
    pub fn were_removed(&self, devices: &[DeviceId]) -> Result<Reply> {
        let mut removed = Vec::new();
        for device in devices {
            // An older program leaves the mark where it is when the device comes back empty.
            if self.layers.has(&Key::Removed(*device))? && !self.layers.has(&Key::Device(*device))? {
                removed.push(*device);
            }
        }
        Ok(Reply::WereRemoved(removed))
    }

    /// `Busy` for a device that was given up while a group names it: what is there may be all that is left of it. `so`: what is not done then.
    pub fn check_not_named(&self, device: DeviceId, so: &str) -> Result<()> {
        let mut after = (!self.layers.has(&Key::Recount(device))?).then_some(None);
        for _ in 0..NAMED_PAGES {
            let Some(from) = after else { break };
            match self.groups_on(device, from, self.page_max)? {
                Reply::GroupsOn { groups, resume: None, .. } if groups.is_empty() => return Ok(()),
                Reply::GroupsOn { groups, resume, .. } if groups.is_empty() => after = Some(resume),
                _ => break,
            }
        }
        let text = format!("device {device}, which was given up, has replicas that are not elsewhere yet; {so}");
        Err(Error::new(ErrorKind::Busy, text))
    }

    /// `Busy` for a device that some bag has as a member. It has left them all when it is empty, and may have joined one again since: a bag
    /// with a member that is none of the store's could never be sealed.
    fn check_no_member(&self, device: DeviceId) -> Result<()> {
        let (mut of, prefix) = (None, [Key::Bag(BagId(0)).ordinal()]);
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = BagRecord::decode(value).map_err(|_| missing("a readable bag record"))?;
            if record.members.iter().any(|member| *member == device.to_bytes()) {
                of = Some(number_at(key, 1));
            }
            Ok(of.is_none())
        })?;
        let Some(bag) = of else { return Ok(()) };
        let text = format!(
            "device {device} is a member of bag number {bag} again; it was not removed; it leaves that bag first"
        );
        Err(Error::new(ErrorKind::Busy, text))
    }

    /// Answers `GroupsOn`.
    pub fn groups_on(&self, device: DeviceId, after: Option<GroupId>, limit: usize) -> Result<Reply> {
        let limit = self.page(limit);
        let (candidates, mut resume) = self.may_be_on(device, after, limit)?;
        let (mut groups, mut open) = (Vec::new(), Vec::new());
        for group in candidates {
            // It may be gone, or on another device, since it was merged.
            let Some(record) = self.layers.record::<GroupRecord>(&Key::Group(group))? else { continue };
            // One of a kind that is not known here stays where it is.
            if record.is_newer() || !replicas(&record).any(|replica| replica.device == device.to_bytes()) {
                continue;
            }
            groups.push(convert::placed(group, &record)?);
            if record.open {
                open.push(group);
            }
            if groups.len() >= limit {
                resume = Some(group);
                break;
            }
        }
        Ok(Reply::GroupsOn { groups, open, resume })
    }

    /// The next groups behind `after` that may have a replica on this device, in order: those of the index, of which a page, and those
    /// that changed since the last merge. And the last one, if there may be more behind it.
    pub fn may_be_on(
        &self,
        device: DeviceId,
        after: Option<GroupId>,
        page: usize,
    ) -> Result<(Vec<GroupId>, Option<GroupId>)> {
        let Some(first) = after.map_or(Some(0), |after| after.0.checked_add(1)).map(GroupId) else {
            return Ok((Vec::new(), None));
        };
        let prefix = &Key::OnDevice(device, first).encode()[..17];
        let mut indexed = Vec::new();
        self.layers.scan(&Key::OnDevice(device, first).encode(), &after_prefix(prefix), |key, _| {
            indexed.push(device_index::indexed_group(key));
            Ok(indexed.len() < page)
        })?;
        let mut last = indexed.last().copied().filter(|_| indexed.len() == page);
        let end = last.map_or_else(
            || after_prefix(&[Key::Group(first).ordinal()]),
            |last| after_prefix(&Key::Group(last).encode()),
        );
        // One more than the most of each overlay: of all that are found the first so many are none too few, and a cut is noticed.
        let most = self.page_max.max(1).saturating_mul(STEP_PAGES);
        let changed = self.layers.changed(&Key::Group(first).encode(), &end, most + 1);
        let mut candidates: BTreeSet<GroupId> = changed.filter_map(device_index::group_of).chain(indexed).collect();
        if candidates.len() > most {
            last = candidates.iter().nth(most - 1).copied();
            candidates.retain(|group| last.is_none_or(|last| *group <= last));
        }
        Ok((candidates.into_iter().collect(), last))
    }

    /// Does `MoveGroup`: its chunk keeps its name, so that only the device changes. References, extents and generations stay.
    pub fn move_group(&mut self, group: GroupId, chunk: ChunkId, from: DeviceId, to: DeviceId) -> Result<Reply> {
        let gone = |what: &str| Err(Error::new(ErrorKind::Stale, format!("group {group} {what}; it was not moved")));
        if !self.layers.has(&Key::Group(group))? {
            return gone("does not exist any more");
        }
        let mut record = self.group(group)?;
        if self.layers.has(&Key::GarbageGroup(group))? {
            return gone("is garbage");
        }
        if record.open && record.columns.iter().any(|column| column.replicas.len() > 1) {
            return gone("is being written to several replicas");
        }
        let target = self.device_record(to)?;
        let is_emptied = target.draining || target.lost;
        let of_chunk = |column: &&mut ColumnRecord| column.replicas.iter().any(|has| has.chunk == chunk.to_bytes());
        let replicas = record.columns.iter_mut().find(of_chunk).map(|column| &mut column.replicas);
        let on = |device: DeviceId| move |replica: &ReplicaRecord| replica.device == device.to_bytes();
        match replicas {
            Some(replicas) => match (replicas.iter().position(on(from)), replicas.iter().any(on(to))) {
                // It was to take nothing new before this one asked: what it had was listed, and it may be removed any moment.
                (Some(_), false) if is_emptied => {
                    return gone(&format!("cannot go to device {to}, which takes nothing new"));
                }
                (Some(at), false) => replicas[at].device = to.to_bytes().to_vec(),
                (Some(_), true) => return gone(&format!("has a replica of chunk {chunk} on device {to} already")),
                (None, true) => return Ok(Reply::Done),
                (None, false) => return gone(&format!("has no chunk {chunk} on device {from}")),
            },
            None => return gone(&format!("has no chunk {chunk}")),
        }
        self.put_group(group, record);
        Ok(Reply::Done)
    }

    /// What memory notes of a device once a change is committed.
    pub fn follow_device(&mut self, request: &Request) {
        match request {
            Request::DeviceDrain { device } => {
                let drain = self.device_record(*device).map_or(0, |record| record.drain);
                self.devices.draining(*device, drain);
            }
            Request::DeviceRemove { device } => self.devices.removed(*device),
            Request::DeviceLost { device } => self.devices.lost(*device, false),
            Request::DeviceGivenUp { device } => self.devices.lost(*device, true),
            Request::DeviceBack { device } => self.devices.back(*device),
            _ => {}
        }
    }
}

fn replicas(record: &GroupRecord) -> impl Iterator<Item = &ReplicaRecord> {
    record.columns.iter().flat_map(|column| &column.replicas)
}
