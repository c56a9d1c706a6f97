//! Devices: which exist (remembered) and how full they are (reported, forgotten when the store is opened again).

use crate::format::{DeviceRecord, GroupRecord};
use crate::key::{Key, after_prefix, wide_at};
use crate::placement::{self, Candidate, Home};
use crate::reply::Reply;
use crate::request::{DeviceInfo, DeviceUse};
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::limit::COLUMNS_MAX;
use base::policy::{Class, Policy};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Devices as memory has them.
#[derive(Default)]
pub struct Devices {
    known: BTreeMap<DeviceId, Device>,
    /// Those of each node: its reports are not to cost more where there are more nodes.
    of_nodes: BTreeSet<(NodeId, DeviceId)>,
    /// The last of those that were chosen from for the last new group of each kind. One for all would give files whose groups come by turns
    /// of a kind one half of the devices for ever.
    last: [DeviceId; 3],
}

/// Kinds of new groups.
#[derive(Clone, Copy, Debug)]
pub enum GroupOf {
    /// Small files share it.
    SmallFiles,
    /// A file's first one.
    File,
    /// One behind others of its file.
    LongFile,
}

struct Device {
    info: DeviceInfo,
    /// Groups placed by the number of their columns: those of one width are about equally large. All devices are counted from the same
    /// moment on.
    placed: [u32; COLUMNS_MAX + 1],
}

/// Counting begins anew for all devices when one has so many groups of a width: a device of a node that was silent, or one where much
/// was deleted, has no more than these to catch up with.
const PLACED_MAX: u32 = 64;

/// Devices that a new group chooses from in a store of more: four times as many as the widest one has columns.
const CHOSEN_FROM: usize = 4 * COLUMNS_MAX;

impl Devices {
    /// A node was heard of: of its devices these can be used.
    pub fn present(&mut self, node: NodeId, devices: &[DeviceId]) {
        let mut back = false;
        for id in self.of_node(node) {
            let Some(device) = self.known.get_mut(&id) else { continue };
            let reported = devices.contains(&id);
            back |= reported && !device.info.reported;
            device.info.reported = reported;
        }
        if back {
            self.count_anew();
        }
    }

    /// The devices of a node.
    pub fn of_node(&self, node: NodeId) -> Vec<DeviceId> {
        let all = (node, DeviceId(0))..=(node, DeviceId(u128::MAX));
        self.of_nodes.range(all).map(|(_, device)| *device).collect()
    }

    /// How many groups as wide were placed on a device, counted from the same moment on for all devices.
    pub fn placed(&self, device: DeviceId, columns: usize) -> u32 {
        self.known.get(&device).map_or(0, |device| device.placed[columns.min(COLUMNS_MAX)])
    }

    /// A group of so many columns has one on the device.
    pub fn place(&mut self, device: DeviceId, columns: usize) {
        let width = columns.min(COLUMNS_MAX);
        let Some(device) = self.known.get_mut(&device) else { return };
        device.placed[width] += 1;
        if device.placed[width] >= PLACED_MAX {
            self.known.values_mut().for_each(|device| device.placed[width] = 0);
        }
    }

    /// A device takes groups that took none before: it gets its part from now on, and has nothing to catch up.
    fn count_anew(&mut self) {
        self.known.values_mut().for_each(|device| device.placed = [0; COLUMNS_MAX + 1]);
    }

    /// A device is registered in the log. It counts as empty until it reports.
    pub fn registered(&mut self, info: DeviceInfo) {
        let before = self.known.get(&info.device).map(|device| device.info.clone());
        let before = before.unwrap_or(DeviceInfo { reported: false, ..info.clone() });
        let (taken, full) = (before.taken, before.full);
        let (reported, draining) = (info.reported || before.reported, info.draining || before.draining);
        let (drain, lost) = (info.drain.max(before.drain), info.lost || before.lost);
        let may_return = info.may_return || before.may_return;
        let placed = [0; COLUMNS_MAX + 1];
        self.of_nodes.remove(&(before.node, info.device));
        self.of_nodes.insert((info.node, info.device));
        let device = self.known.entry(info.device).or_insert_with(|| Device { info: info.clone(), placed });
        device.info = DeviceInfo { taken, full, reported, draining, drain, lost, may_return, ..info };
        if reported && !before.reported {
            self.count_anew();
        }
    }

    /// These are read anew: what was reported of them before still counts.
    pub fn keep_reports(&mut self, before: &Devices) {
        for (id, device) in &mut self.known {
            if let Some(Device { info, .. }) = before.known.get(id) {
                (device.info.taken, device.info.full, device.info.reported) = (info.taken, info.full, info.reported);
            }
        }
    }

    /// Nothing new is placed on the device any more. `drain`: `DeviceInfo::drain`.
    pub fn draining(&mut self, device: DeviceId, drain: u64) {
        if let Some(device) = self.known.get_mut(&device) {
            (device.info.draining, device.info.drain) = (true, drain);
        }
    }

    /// Nobody counts on the device any more. `may_return`: nobody said that it is gone for good.
    pub fn lost(&mut self, device: DeviceId, may_return: bool) {
        if let Some(DeviceInfo { lost, may_return: may, .. }) = self.known.get_mut(&device).map(|known| &mut known.info)
        {
            (*lost, *may) = (true, may_return && (*may || !*lost));
        }
    }

    /// The device counts again.
    pub fn back(&mut self, device: DeviceId) {
        if let Some(known) = self.known.get_mut(&device) {
            (known.info.lost, known.info.may_return) = (false, false);
            self.count_anew();
        }
    }

    /// Whether what is on the device is to be relied on.
    pub fn counts(&self, device: DeviceId) -> bool {
        self.known.get(&device).is_some_and(|device| !device.info.lost)
    }

    /// Nodes that have a device which takes copies, or would if it were there: none that is being emptied, or gone for good.
    pub fn nodes(&self) -> u32 {
        let stays = |device: &&Device| !device.info.draining && !device.info.is_gone();
        let nodes: BTreeSet<NodeId> = self.known.values().filter(stays).map(|device| device.info.node).collect();
        nodes.len() as u32
    }

    /// What is known of a device, but for whether it is silent.
    pub fn device(&self, device: DeviceId) -> Option<&DeviceInfo> {
        self.known.get(&device).map(|device| &device.info)
    }

    /// The device is none of the store's any more.
    pub fn removed(&mut self, device: DeviceId) {
        if let Some(removed) = self.known.remove(&device) {
            self.of_nodes.remove(&(removed.info.node, device));
        }
    }

    /// The class of a device, if it was ever registered.
    pub fn class(&self, device: DeviceId) -> Option<Class> {
        self.known.get(&device).map(|device| device.info.class)
    }

    /// Whether a device lies in memory and its node, which says what it has, does not name it: nobody brings that one back.
    pub fn is_gone_memory(&self, device: DeviceId) -> bool {
        self.known.get(&device).is_some_and(|device| device.info.class == Class::Memory && !device.info.reported)
    }

    /// The node that has a device, if it was ever registered.
    pub fn node_of(&self, device: DeviceId) -> Option<NodeId> {
        self.known.get(&device).map(|device| device.info.node)
    }
}

fn candidate(device: &Device) -> Candidate {
    let info = &device.info;
    Candidate {
        device: info.device,
        node: info.node,
        class: info.class,
        free: info.capacity.saturating_sub(info.taken),
        placed: 0,
        full: info.full,
    }
}

impl State {
    fn is_usable(&self, device: &Device) -> bool {
        let info = &device.info;
        info.reported && !info.draining && !info.lost && !self.nodes.is_silent(info.node, self.now)
    }

    /// The devices that placement chooses from for a group of so many columns with so much room each: in a store of many, the next ones that
    /// can have one, behind those that were chosen from last for the same kind of group, in the order of their ids and round again. So a new
    /// file costs the same in any store, and each device has its turn as often as any other. All, if these are fewer than the columns. Errors
    /// as `candidates`.
    pub fn next_candidates(
        &mut self,
        of: GroupOf,
        policy: Policy,
        (columns, room): (usize, u64),
    ) -> Result<Vec<Candidate>> {
        let Devices { known, last, .. } = &self.devices;
        if known.len() > CHOSEN_FROM {
            let last = last[of as usize];
            let behind = known.range((Bound::Excluded(last), Bound::Unbounded)).chain(known.range(..=last));
            let usable = behind.filter(|(_, device)| self.is_usable(device)).map(|(_, device)| candidate(device));
            let next = usable.filter(|candidate| placement::takes_column(candidate, policy, room)).take(CHOSEN_FROM);
            let candidates: Vec<Candidate> = next.collect();
            if let Some(last) = candidates.last().filter(|_| candidates.len() >= columns) {
                self.devices.last[of as usize] = last.device;
                return Ok(candidates);
            }
        }
        self.candidates()
    }

    /// The devices that placement may choose from: those heard of since the store was opened, on nodes that are not silent.
    /// `Busy` if there are devices and none of them can be used now.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        let usable = |device: &&Device| self.is_usable(device);
        let candidates: Vec<Candidate> = self.devices.known.values().filter(usable).map(candidate).collect();
        if candidates.is_empty() && !self.devices.known.is_empty() {
            return Err(Error::new(
                ErrorKind::Busy,
                "no device has been heard of since the metadata store was started; nothing was done: try again when nodes are up",
            ));
        }
        Ok(candidates)
    }

    /// Why a group is read from this device only if others cannot be read from: what it has does not count, or its node is silent.
    pub fn is_away(&self, group: &GroupRecord, device: DeviceId) -> (bool, bool) {
        let silent = self.devices.node_of(device).is_some_and(|node| self.nodes.is_silent(node, self.now));
        let mut replicas = group.columns.iter().flat_map(|column| &column.replicas);
        let is_doubted = replicas.any(|replica| replica.doubted && replica.device == device.to_bytes());
        (is_doubted || !self.devices.counts(device), silent)
    }

    /// The devices that the replicas of a new group are chosen from: in a store of many those that its columns are. The others are there as places
    /// to wait for: two replicas are on no node because all others are away.
    pub fn homes_for(&self, candidates: &[Candidate], avoid: &[DeviceId]) -> Vec<Home> {
        let mut homes = self.homes(avoid);
        if homes.len() > CHOSEN_FROM {
            let is_candidate = |home: &Home| candidates.iter().any(|one| one.device == home.candidate.device);
            homes.iter_mut().for_each(|home| home.takes &= is_candidate(home));
        }
        homes
    }

    /// All devices as the placement of one more replica sees them. Those to `avoid` take none.
    pub fn homes(&self, avoid: &[DeviceId]) -> Vec<Home> {
        let mut racks = BTreeMap::new();
        let home = |device: &Device| {
            let rack = self.nodes.rack(device.info.node).map(|rack| {
                let next = racks.len() as u32;
                *racks.entry(rack).or_insert(next)
            });
            let serves = self.is_usable(device) && !avoid.contains(&device.info.device);
            let takes = serves && !device.info.full;
            let (lost, returns) =
                (device.info.is_gone() || device.info.draining, device.info.lost && device.info.may_return);
            Home { candidate: candidate(device), rack, serves, takes, lost, returns }
        };
        self.devices.known.values().map(home).collect()
    }

    /// What kind of device this is; none if it is not known any more, as those in memory once their node was started again.
    pub fn class_of(&self, device: DeviceId) -> Option<Class> {
        self.devices.known.get(&device).map(|known| known.info.class)
    }

    /// All devices in the order of their ids.
    pub fn list_devices(&self) -> Vec<DeviceInfo> {
        self.devices.known.values().map(|device| self.info_of(device)).collect()
    }

    /// What is known of a device, if it is one of the store's.
    pub fn device_info(&self, device: DeviceId) -> Option<DeviceInfo> {
        self.devices.known.get(&device).map(|device| self.info_of(device))
    }

    fn info_of(&self, device: &Device) -> DeviceInfo {
        DeviceInfo { silent: self.nodes.is_silent(device.info.node, self.now), ..device.info.clone() }
    }

    /// Reads the devices that were registered. Done once, when the store is opened.
    pub fn load_devices(&mut self) -> Result<()> {
        let prefix = [Key::Device(DeviceId(0)).ordinal()];
        let mut devices = Vec::new();
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = DeviceRecord::decode(value).map_err(|_| missing("a readable device record"))?;
            devices.push(DeviceInfo {
                device: DeviceId(wide_at(key, 1)),
                class: Class::from_code(record.class).unwrap_or_default(),
                node: NodeId::from_slice(&record.node).unwrap_or_default(),
                capacity: record.capacity,
                taken: 0,
                full: false,
                reported: false,
                draining: record.draining,
                drain: record.drain,
                lost: record.lost,
                may_return: record.may_return,
                silent: false,
            });
            Ok(true)
        })?;
        for device in devices {
            self.devices.registered(device);
        }
        Ok(())
    }

    /// What is known of a device that registers. One that a node brings which is to be emptied is to be emptied, too.
    pub fn registering(&self, device: DeviceId, class: Class, capacity: u64, node: NodeId) -> DeviceInfo {
        let draining = self.nodes.is_leaving(node);
        let (taken, full, reported, drain, lost, silent) = (0, false, true, 0, false, false);
        let may_return = false;
        DeviceInfo { device, class, node, capacity, taken, full, reported, draining, drain, lost, may_return, silent }
    }

    /// Does `DeviceRegister`. Memory follows with `Devices::registered` when it is committed.
    pub fn register_device(&mut self, info: &DeviceInfo) -> Result<Reply> {
        // Its node was removed while it said what it has: the device would be one that nobody has. A store of before nodes knows none.
        if !self.nodes.is_known(info.node) && self.nodes.are_known() {
            let text = format!(
                "node {} of device {} is none of this cluster's; nothing was changed; it joins with its next report",
                info.node, info.device
            );
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let known = self.layers.record::<DeviceRecord>(&Key::Device(info.device))?;
        let removed = Key::Removed(info.device);
        if self.layers.has(&removed)? {
            if known.is_none() {
                let text =
                    format!("device {} was emptied and removed from this store; nothing was changed", info.device);
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            // An older program took it again.
            self.remove(&removed);
        }
        let record = DeviceRecord {
            class: info.class.code(),
            capacity: info.capacity,
            node: info.node.to_bytes().to_vec(),
            draining: known.as_ref().is_some_and(|known| known.draining) || info.draining,
            drain: known.as_ref().map_or(0, |known| known.drain),
            lost: known.as_ref().is_some_and(|known| known.lost),
            may_return: known.as_ref().is_some_and(|known| known.may_return),
        };
        if known.as_ref() != Some(&record) {
            self.put(&Key::Device(info.device), &record);
        }
        let before = self.devices.node_of(info.device);
        if before != Some(info.node)
            && (self.nodes.is_known(info.node) || before.is_some_and(|node| self.nodes.is_known(node)))
        {
            self.raise_epoch();
        }
        Ok(Reply::Done)
    }

    /// Does `DeviceReport`.
    pub fn report_devices(&mut self, devices: &[DeviceUse]) -> Result<Reply> {
        let mut back = false;
        for DeviceUse { device, taken, capacity, full } in devices {
            let Some(known) = self.devices.known.get_mut(device) else {
                let text = format!("device {device} reports but was never registered; register it first");
                return Err(Error::new(ErrorKind::NotFound, text));
            };
            back |= !known.info.reported;
            (known.info.taken, known.info.capacity, known.info.full, known.info.reported) =
                (*taken, *capacity, *full, true);
        }
        if back {
            self.devices.count_anew();
        }
        Ok(Reply::Done)
    }
}
