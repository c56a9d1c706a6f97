//! Groups that have fewer replicas than they want: which they are, what they lack, how a new replica is named, and what of a device that
//! nobody counts on any more lacks one now.
//!
//! A group is written with one replica; the others are made once it is closed, by the node that leads (`node::control::repairing`). Which groups
//! lack some is not looked for but written down, by the change that makes the lack: every record of a group is put by `State::put_group`, which
//! compares what the record says with the devices that count. A device that is lost, or that is none of the store's any more, makes a lack in
//! groups that are not changed with it: those are looked through in steps (`State::recount_step`).
//!
//! A replica on a device that does not count is doubted (`ReplicaRecord::doubted`) where a good one is elsewhere: when the device counts again it
//! does not before it was compared with a good one (`AddReplica`), or was made anew. Where no other is good it counts with its device, as that of one
//! that was away for a moment: nothing was written, and what is to be freed waits for it.

use crate::convert;
use crate::format::{ColumnRecord, DeviceRecord, GroupRecord, RecountRecord, ReplicaRecord};
use crate::key::{Key, after_prefix, number_at, wide_at};
use crate::placement::{self, Home};
use crate::reply::Reply;
use crate::request::{Lack, LackingColumn, LackingGroup, Lacks};
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, GroupId};
use base::limit::REPLICAS_MAX;
use base::planted::Planted;
use base::stripe::Stripe;
use prost::Message;

/// Most groups that one step of a recount changes: with the widest ones, of 48 replicas and 2 KiB each, 140 KiB of log.
const RECOUNT_STEP: usize = 64;

/// Devices looked at in one step for places of groups that would lack a replica: some milliseconds, in a store of however many.
const HOMES_LOOKED_AT: usize = 100_000;

impl State {
    /// Puts a group's record, in the transaction under way: the only way to do that. It is listed as lacking replicas, or no more.
    pub fn put_group(&mut self, group: GroupId, mut record: GroupRecord) {
        self.check_replicas(group, &record);
        self.doubt(&mut record);
        let lack = self.lack_of(&record);
        if self.planted != Some(Planted::LackNotMarked) || lack.is_none() {
            self.enlist(group, &mut record, lack);
        }
        self.put(&Key::Group(group), &record);
    }

    /// Doubts the replicas of a closed group on devices that do not count, in columns that have a good one.
    fn doubt(&self, record: &mut GroupRecord) {
        if record.open || record.is_newer() || self.planted == Some(Planted::ReturnedReplicaBelieved) {
            return;
        }
        for column in record.columns.iter_mut().filter(|column| column.replicas.len() > 1) {
            let has_good = self.good(column).next().is_some();
            for replica in column.replicas.iter_mut().filter(|replica| has_good && !self.is_there(replica)) {
                replica.doubted = true;
            }
        }
    }

    /// An open group has the replicas that it was placed with: its writer counts what it wrote by what all of them have, and so does who ends it
    /// for a writer that is gone. Of a fence that is kept for one that is gone (`keep_fence`) one is left. A column that loses its last one is lost.
    fn check_replicas(&self, group: GroupId, record: &GroupRecord) {
        let several = |record: &GroupRecord| record.columns.iter().any(|column| column.replicas.len() > 1);
        assert!(
            record.is_newer()
                || record.columns.iter().all(|column| !column.replicas.is_empty())
                || self.planted == Some(Planted::SilentReplicaDropped),
            "group {group} has a column without a replica"
        );
        if record.open
            && let Ok(Some(before)) = self.layers.record::<GroupRecord>(&Key::Group(group))
        {
            let becomes_fence = before.session.is_empty() && !record.session.is_empty() && !several(record);
            let is_same = before.columns == record.columns || !several(&before) && !several(record);
            assert!(before.open && (is_same || becomes_fence), "group {group} is open and its replicas change");
        }
    }

    /// Removes a group's record, in the transaction under way.
    pub fn remove_group(&mut self, group: GroupId) -> Result<()> {
        let record = self.group(group)?;
        self.remove_known_group(group, record);
        Ok(())
    }

    /// The same, for who has the record.
    pub fn remove_known_group(&mut self, group: GroupId, mut record: GroupRecord) {
        self.enlist(group, &mut record, None);
        self.remove(&Key::Group(group));
    }

    /// Lists it as what it lacks now, and not as what it lacked before. Its length is the same for as long as it is listed: it is closed.
    fn enlist(&mut self, group: GroupId, record: &mut GroupRecord, lack: Option<Lack>) {
        let mark = |lack: Option<Lack>| lack.map_or(0, |lack| u32::from(lack.code()) + 1);
        let before = Lack::all().find(|before| mark(Some(*before)) == record.lacking);
        if before == lack {
            return;
        }
        let length = record.length;
        if let Some(before) = before {
            self.remove(&Key::Lacking(before.code(), group));
            let (groups, bytes) = self.counted(before);
            (*groups, *bytes) = (groups.saturating_sub(1), bytes.saturating_sub(length));
        }
        if let Some(lack) = lack {
            self.mark(&Key::Lacking(lack.code(), group));
            let (groups, bytes) = self.counted(lack);
            (*groups, *bytes) = (groups.saturating_add(1), bytes.saturating_add(length));
        }
        record.lacking = mark(lack);
    }

    /// The counts of groups that lack this, and of their bytes.
    fn counted(&mut self, lack: Lack) -> (&mut u64, &mut u64) {
        let counters = &mut self.counters;
        match lack {
            Lack::OneLeft => (&mut counters.one_left, &mut counters.one_left_bytes),
            Lack::Fewer => (&mut counters.fewer, &mut counters.fewer_bytes),
            Lack::NoneLeft => (&mut counters.none_left, &mut counters.none_left_bytes),
        }
    }

    /// What a group lacks: what the worst of its columns does. Open ones lack nothing yet, and what is garbage, without bytes or of a kind that
    /// is not known here never does.
    fn lack_of(&self, record: &GroupRecord) -> Option<Lack> {
        if record.open || record.references == 0 || record.length == 0 || record.is_newer() {
            return None;
        }
        let lack = |(index, column): (usize, &ColumnRecord)| match (self.good(column).count(), wanted(record, index)) {
            (good, wanted) if good >= wanted => None,
            // Nothing of it is lost.
            (0, _) if column_length(record, index) == 0 => Some(Lack::Fewer),
            // It was in memory, and was to be nowhere else: nothing can be done, nor was anything promised.
            (0, 1) if !column.replicas.iter().any(|replica| self.is_known(replica)) => None,
            (0, _) => Some(Lack::NoneLeft),
            (1, _) => Some(Lack::OneLeft),
            _ => Some(Lack::Fewer),
        };
        record.columns.iter().enumerate().filter_map(lack).max_by_key(|lack| match lack {
            Lack::Fewer => 0,
            Lack::OneLeft => 1,
            Lack::NoneLeft => 2,
        })
    }

    /// Whether what is listed as lacking replicas, and the counts, are what the records of all groups say, but for what is still to be looked
    /// through. Reads all groups: for tests and simulations.
    pub fn check_lacking(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::new(ErrorKind::Corrupt, what));
        let mut recounted = Vec::new();
        let recounts = [Key::Recount(DeviceId(0)).ordinal()];
        self.layers.scan(&recounts, &after_prefix(&recounts), |key, _| {
            recounted.push(DeviceId(wide_at(key, 1)).to_bytes().to_vec());
            Ok(true)
        })?;
        let (mut said, mut lacks, mut records) = (Vec::new(), Lacks::default(), Vec::new());
        let groups = [Key::Group(GroupId(0)).ordinal()];
        self.layers.scan(&groups, &after_prefix(&groups), |key, value| {
            let record = GroupRecord::decode(value).map_err(|_| missing("a readable group record"))?;
            records.push((GroupId(number_at(key, 1)), record));
            Ok(true)
        })?;
        for (group, record) in records {
            let listed = Lack::all().find(|lack| u32::from(lack.code()) + 1 == record.lacking);
            let lack = self.lack_of(&record);
            let mut replicas = record.columns.iter().flat_map(|column| &column.replicas);
            let is_recounted = replicas.any(|replica| recounted.contains(&replica.device));
            if listed != lack && !is_recounted {
                return wrong(format!("group {group} lacks {lack:?} and is listed as {listed:?}: {record:?}"));
            }
            let believes = |column: &ColumnRecord| {
                let believed = |replica: &ReplicaRecord| !replica.doubted && !self.is_there(replica);
                self.good(column).next().is_some() && column.replicas.iter().any(believed)
            };
            if !record.open && !record.is_newer() && !is_recounted && record.columns.iter().any(believes) {
                return wrong(format!("group {group} believes a replica that does not count: {record:?}"));
            }
            let Some(listed) = listed else { continue };
            said.push((listed.code(), group));
            let (groups, bytes) = match listed {
                Lack::OneLeft => &mut lacks.one_left,
                Lack::Fewer => &mut lacks.fewer,
                Lack::NoneLeft => &mut lacks.none_left,
            };
            (*groups, *bytes) = (*groups + 1, *bytes + record.length);
        }
        said.sort();
        let (listed, counted) = (self.listed_after(None, usize::MAX)?, self.lacks()?);
        if listed != said {
            return wrong(format!("listed as lacking are {listed:?}, and groups say {said:?}"));
        }
        lacks.recounting = counted.recounting;
        if lacks != counted { wrong(format!("counted are {counted:?}, and there are {lacks:?}")) } else { Ok(()) }
    }

    /// How many groups lack replicas.
    fn lacks(&self) -> Result<Lacks> {
        let counters = self.counters;
        Ok(Lacks {
            one_left: (counters.one_left, counters.one_left_bytes),
            fewer: (counters.fewer, counters.fewer_bytes),
            none_left: (counters.none_left, counters.none_left_bytes),
            recounting: self.first_recount()?.is_some(),
        })
    }

    fn is_known(&self, replica: &ReplicaRecord) -> bool {
        DeviceId::from_slice(&replica.device).is_some_and(|device| self.devices.node_of(device).is_some())
    }

    /// Whether a replica is on one of the store's devices that is not lost.
    fn is_there(&self, replica: &ReplicaRecord) -> bool {
        DeviceId::from_slice(&replica.device).is_some_and(|device| self.devices.counts(device))
    }

    /// Whether a replica is to be relied on.
    fn is_good(&self, replica: &ReplicaRecord) -> bool {
        !replica.doubted && self.is_there(replica)
    }

    /// Whether a replica is good as soon as its device counts again, which nobody said to be gone.
    fn is_waited_for(&self, replica: &ReplicaRecord) -> bool {
        let device = DeviceId::from_slice(&replica.device).and_then(|device| self.devices.device(device));
        !replica.doubted && device.is_some_and(|device| !device.is_gone())
    }

    /// The devices of the replicas of a column that are to be relied on.
    fn good<'a>(&'a self, column: &'a ColumnRecord) -> impl Iterator<Item = DeviceId> + 'a {
        let good = column.replicas.iter().filter(|replica| self.is_good(replica));
        good.filter_map(|replica| DeviceId::from_slice(&replica.device))
    }

    /// Answers `Lacking`.
    pub fn lacking(&mut self, after: Option<(u8, GroupId)>, limit: usize, avoid: &[DeviceId]) -> Result<Reply> {
        // The counts have the newest change in them, so that is what this answer waits for.
        self.layers.observe(self.sequence());
        let lacks = self.lacks()?;
        let page = if limit == 0 { 0 } else { self.page(limit) };
        let listed = self.listed_after(after, page)?;
        let resume = listed.last().copied().filter(|_| !listed.is_empty() && listed.len() == page);
        let homes = if listed.is_empty() { Vec::new() } else { self.homes(avoid) };
        let mut groups = Vec::with_capacity(listed.len());
        for (code, group) in listed {
            let record = self.group_of_any_kind(group)?;
            let lack = Lack::all().find(|lack| lack.code() == code);
            let Some(lack) = lack.filter(|_| !record.is_newer()) else { continue };
            match self.lacking_group(group, &record, lack, &homes) {
                // Whoever reads it is told what is wrong with it: the others get their replicas all the same.
                Err(error) if error.kind() == ErrorKind::Corrupt => (),
                found => groups.push(found?),
            }
        }
        Ok(Reply::Lacking { groups, resume, lacks })
    }

    fn listed_after(&self, after: Option<(u8, GroupId)>, page: usize) -> Result<Vec<(u8, GroupId)>> {
        let prefix = [Key::Lacking(0, GroupId(0)).ordinal()];
        let mut from = after.map_or(prefix.to_vec(), |(code, group)| Key::Lacking(code, group).encode());
        if after.is_some() {
            from.push(0);
        }
        let mut listed = Vec::new();
        if page > 0 {
            self.layers.scan(&from, &after_prefix(&prefix), |key, _| {
                listed.push((key.get(1).copied().unwrap_or_default(), GroupId(number_at(key, 2))));
                Ok(listed.len() < page)
            })?;
        }
        Ok(listed)
    }

    fn lacking_group(
        &mut self,
        group: GroupId,
        record: &GroupRecord,
        lack: Lack,
        homes: &[Home],
    ) -> Result<LackingGroup> {
        let placed = convert::placed(group, record)?;
        let mut columns = Vec::new();
        for (index, column) in record.columns.iter().enumerate() {
            if self.good(column).count() >= wanted(record, index) {
                continue;
            }
            let has: Vec<DeviceId> = placed.layout.columns()[index].devices().collect();
            let from = self.copied_from(column);
            let takes = |device: &DeviceId| homes.iter().any(|home| home.candidate.device == *device && home.serves);
            let again = self
                .doubted(column)
                .filter(|device| takes(device) && (self.good(column).next().is_some() || from.contains(device)));
            let again = again.collect();
            let length = column_length(record, index);
            let to = placement::place_replica(homes, &has, length, self.random.next());
            columns.push(LackingColumn { chunk: placed.layout.columns()[index].chunk(), length, from, to, again });
        }
        Ok(LackingGroup { group, lack, columns })
    }

    /// The devices of the replicas of a column that are doubted, and would be good else.
    fn doubted<'a>(&'a self, column: &'a ColumnRecord) -> impl Iterator<Item = DeviceId> + 'a {
        let doubted = column.replicas.iter().filter(|replica| replica.doubted && self.is_there(replica));
        doubted.filter_map(|replica| DeviceId::from_slice(&replica.device))
    }

    /// Where a column is copied from: the good ones; if there are none those that are good when they are back, unless all of them are on devices that
    /// were given up and a doubted one is there: nothing was written to a closed group, and it has to have all bytes of it. Else what is there is better
    /// than nothing, should it answer.
    fn copied_from(&self, column: &ColumnRecord) -> Vec<DeviceId> {
        let those = |is: &dyn Fn(&ReplicaRecord) -> bool| -> Vec<DeviceId> {
            let replicas = column.replicas.iter().filter(|replica| is(replica));
            replicas.filter_map(|replica| DeviceId::from_slice(&replica.device)).collect()
        };
        let (good, waited) = (those(&|replica| self.is_good(replica)), those(&|replica| self.is_waited_for(replica)));
        let is_given_up = |device: &DeviceId| self.devices.device(*device).is_some_and(|info| info.lost);
        let back: Vec<DeviceId> =
            if waited.iter().all(is_given_up) { self.doubted(column).collect() } else { Vec::new() };
        [good, back, waited, those(&|_| true)].into_iter().find(|devices| !devices.is_empty()).unwrap_or_default()
    }

    /// Does `AddReplica`: the chunk of a closed group is on another device, too. Of a lost device nothing is named any more that has enough
    /// replicas without it.
    pub fn add_replica(&mut self, group: GroupId, chunk: ChunkId, from: DeviceId, to: DeviceId) -> Result<Reply> {
        let gone = |what: String| Err(Error::new(ErrorKind::Stale, format!("group {group} {what}; it got no replica")));
        if !self.layers.has(&Key::Group(group))? {
            return gone("does not exist any more".to_string());
        }
        let mut record = self.group(group)?;
        if record.open || record.references == 0 {
            return gone(if record.open { "is open" } else { "is garbage" }.to_string());
        }
        let target = self.device_record(to)?;
        let of_chunk = |column: &ColumnRecord| column.replicas.iter().any(|replica| replica.chunk == chunk.to_bytes());
        let Some(at) = record.columns.iter().position(of_chunk) else { return gone(format!("has no chunk {chunk}")) };
        let column = &record.columns[at];
        let on = |device: DeviceId| column.replicas.iter().position(|replica| replica.device == device.to_bytes());
        let again = on(to);
        if again.is_some_and(|again| !column.replicas[again].doubted) {
            return Ok(Reply::Done);
        }
        if on(from).is_none() {
            return gone(format!("has no chunk {chunk} on device {from} any more"));
        }
        // What was to take nothing new before this was asked may be removed any moment.
        if target.lost || target.draining && again.is_none() {
            return gone(format!("cannot have one on device {to}, which takes nothing new"));
        }
        let (good, wanted) = (self.good(column).count(), wanted(&record, at));
        if good >= wanted {
            return gone(format!("has {good} replicas of chunk {chunk} and wants {wanted}"));
        }
        if !self.copied_from(column).contains(&from) || again.is_some() && good == 0 && from != to {
            return gone(format!("has better replicas of chunk {chunk} than the one on device {from}"));
        }
        if let Some(again) = again {
            record.columns[at].replicas[again].doubted = false;
            self.strike(&mut record);
            self.put_group(group, record);
            return Ok(Reply::Done);
        }
        if column.replicas.len() >= REPLICAS_MAX {
            // No column can have more. One that counts is there: what does not can go.
            let may_go = |replica: &ReplicaRecord| {
                let device = DeviceId::from_slice(&replica.device);
                good > 0 && !self.is_good(replica) && device != Some(from)
            };
            let Some(one) = column.replicas.iter().position(may_go) else {
                return gone(format!("has {REPLICAS_MAX} replicas of chunk {chunk}, which is the most"));
            };
            record.columns[at].replicas.remove(one);
        }
        let (device, chunk) = (to.to_bytes().to_vec(), chunk.to_bytes().to_vec());
        let replica = ReplicaRecord { device, chunk, start: 0, doubted: false };
        record.columns[at].replicas.push(replica);
        self.strike(&mut record);
        self.put_group(group, record);
        Ok(Reply::Done)
    }

    /// Names no replicas any more that are not to be relied on, in columns that have enough others. Elsewhere they come last: they may have
    /// bytes that nothing else has.
    pub fn strike(&self, record: &mut GroupRecord) {
        let wanted: Vec<usize> = (0..record.columns.len()).map(|index| wanted(record, index)).collect();
        for (column, wanted) in record.columns.iter_mut().zip(wanted) {
            let enough = self.good(column).count() >= wanted;
            if enough || self.planted == Some(Planted::SilentReplicaDropped) {
                column.replicas.retain(|replica| self.is_good(replica));
            } else {
                column.replicas.sort_by_key(|replica| !self.is_good(replica));
            }
        }
    }

    /// Does `DeviceLost`, and `DeviceGivenUp` for one that may return. Memory follows when it is committed.
    pub fn lose_device(&mut self, device: DeviceId, may_return: bool) -> Result<Reply> {
        let record = self.device_record(device)?;
        // What a person said stands.
        if !record.lost || record.may_return && !may_return {
            self.put(&Key::Device(device), &DeviceRecord { lost: true, may_return, ..record.clone() });
        }
        if !record.lost {
            self.recount(device);
        }
        Ok(Reply::Done)
    }

    /// Does `DeviceBack`. Memory follows when it is committed. Nothing began to name the device since it was given up. What does still is doubted
    /// where a good replica is elsewhere, once all was looked through; what counts again with it is looked through after this. Nothing names one that
    /// a person gave up.
    pub fn take_device_back(&mut self, device: DeviceId) -> Result<Reply> {
        let record = self.device_record(device)?;
        if !record.lost {
            return Ok(Reply::Done);
        }
        if !record.may_return {
            self.check_not_named(device, "it does not count yet")?;
        } else if self.layers.has(&Key::Recount(device))? {
            let text = format!("what device {device} had is still looked through; it does not count yet");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        self.put(&Key::Device(device), &DeviceRecord { lost: false, may_return: false, ..record });
        self.recount(device);
        Ok(Reply::Done)
    }

    /// Answers `LacksWithout`: a group that wants several replicas, has as many as it wants or fewer, a good one elsewhere to copy from, and a place to
    /// copy it to. Without a place nothing is won, and the device would be named for ever, and never count again.
    pub fn lacks_without(&self, device: DeviceId, after: Option<GroupId>) -> Result<Reply> {
        let (groups, resume) = self.may_be_on(device, after, self.page_max)?;
        let mut homes = if groups.is_empty() { Vec::new() } else { self.homes(&[device]) };
        let returns = |home: &mut Home| home.returns |= home.candidate.device == device;
        homes.iter_mut().for_each(returns);
        if !homes.iter().any(|home| home.takes) {
            return Ok(Reply::LacksWithout { any: false, resume: None });
        }
        let mut looks = HOMES_LOOKED_AT / homes.len().max(1);
        for group in groups {
            let record = match self.layers.record::<GroupRecord>(&Key::Group(group)) {
                Ok(Some(record)) if !record.is_newer() && !record.open && record.references > 0 => record,
                // Whoever reads it is told what is wrong with it.
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                _ => continue,
            };
            let mut lacks = |(index, column): (usize, &ColumnRecord)| {
                let good: Vec<DeviceId> = self.good(column).collect();
                let mut has_place = || {
                    looks = looks.saturating_sub(1);
                    let has = column.replicas.iter().filter_map(|replica| DeviceId::from_slice(&replica.device));
                    let length = column_length(&record, index);
                    placement::place_replica(&homes, &has.collect::<Vec<_>>(), length, 0).is_some()
                };
                // What is doubted there is good if nothing else is left.
                let has_others = good.len() + self.doubted(column).count() > 1;
                good.contains(&device) && has_others && good.len() <= wanted(&record, index) && has_place()
            };
            if record.columns.iter().enumerate().any(&mut lacks) {
                return Ok(Reply::LacksWithout { any: true, resume: None });
            }
            if looks == 0 {
                return Ok(Reply::LacksWithout { any: false, resume: Some(group) });
            }
        }
        Ok(Reply::LacksWithout { any: false, resume })
    }

    /// What lies on this device does not count any more, or does again, from the end of this transaction on: it is looked through for what lacks
    /// replicas then.
    pub fn recount(&mut self, device: DeviceId) {
        self.put(&Key::Recount(device), &RecountRecord::default());
        self.recounting = true;
    }

    fn first_recount(&self) -> Result<Option<(DeviceId, RecountRecord)>> {
        let (mut first, prefix) = (None, [Key::Recount(DeviceId(0)).ordinal()]);
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = RecountRecord::decode(value).map_err(|_| missing("a readable recount record"))?;
            first = Some((DeviceId(wide_at(key, 1)), record));
            Ok(false)
        })?;
        Ok(first)
    }

    /// One step of looking through what lies on devices that do not count: whether there was one.
    pub fn recount_step(&mut self) -> Result<bool> {
        let Some((device, RecountRecord { after })) = self.first_recount()? else {
            self.recounting = false;
            return Ok(false);
        };
        let (groups, mut resume) = self.may_be_on(device, after.map(GroupId), RECOUNT_STEP)?;
        let mut changed = 0;
        for group in groups {
            let mut record = match self.layers.record::<GroupRecord>(&Key::Group(group)) {
                Ok(Some(record)) => record,
                // It is damaged: whoever reads it is told so, and others are looked through.
                Err(error) if error.kind() != ErrorKind::Corrupt => return Err(error),
                _ => continue,
            };
            let names =
                |column: &ColumnRecord| column.replicas.iter().any(|replica| replica.device == device.to_bytes());
            if record.is_newer() || record.open || !record.columns.iter().any(names) {
                continue;
            }
            self.strike(&mut record);
            self.put_group(group, record);
            changed += 1;
            if changed == RECOUNT_STEP {
                resume = Some(group);
                break;
            }
        }
        match resume {
            Some(last) => self.put(&Key::Recount(device), &RecountRecord { after: Some(last.0) }),
            None => self.remove(&Key::Recount(device)),
        }
        Ok(true)
    }
}

/// How many replicas a column of a group shall have: one is enough of a column that has no bytes, and no chunk.
fn wanted(record: &GroupRecord, index: usize) -> usize {
    if column_length(record, index) == 0 { 1 } else { record.wanted.max(1) as usize }
}

/// Bytes of a column: none of those behind the first ones of a group that is shorter than a cell of each.
fn column_length(record: &GroupRecord, index: usize) -> u64 {
    match Stripe::new(record.columns.len(), record.cell) {
        Some(stripe) => stripe.column_length(record.length, index),
        // No group is like this, and who reads it is told so.
        None => record.length,
    }
}
