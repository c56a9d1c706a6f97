//! Devices: which exist (remembered) and how full they are (reported, forgotten when the store is opened again).

use crate::format::DeviceRecord;
use crate::key::{Key, after_prefix, wide_at};
use crate::place::Candidate;
use crate::reply::Reply;
use crate::request::DeviceInfo;
use crate::state::{State, missing};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::policy::Class;
use prost::Message;
use std::collections::BTreeMap;

/// Devices as memory has them.
#[derive(Default)]
pub struct Devices {
    known: BTreeMap<DeviceId, Device>,
}

struct Device {
    info: DeviceInfo,
    /// Groups placed since the last report: they weigh until the report shows their bytes.
    placed: u64,
}

impl Devices {
    /// A node was heard of: of its devices these can be used.
    pub fn present(&mut self, node: NodeId, devices: &[DeviceId]) {
        for device in self.known.values_mut().filter(|device| device.info.node == node) {
            device.info.reported = devices.contains(&device.info.device);
        }
    }

    /// The devices of a node.
    pub fn of_node(&self, node: NodeId) -> Vec<DeviceId> {
        self.known.values().filter(|device| device.info.node == node).map(|device| device.info.device).collect()
    }

    /// A group was placed on the device.
    pub fn placed(&mut self, device: DeviceId) {
        if let Some(device) = self.known.get_mut(&device) {
            device.placed += 1;
        }
    }

    /// A device is registered in the log. It counts as empty until it reports.
    pub fn registered(&mut self, info: DeviceInfo) {
        let device = self.known.entry(info.device).or_insert_with(|| Device { info: info.clone(), placed: 0 });
        let (used, full) = (device.info.used, device.info.full);
        let (reported, draining) = (info.reported || device.info.reported, info.draining || device.info.draining);
        device.info = DeviceInfo { used, full, reported, draining, ..info };
    }

    /// Nothing new is placed on the device any more.
    pub fn draining(&mut self, device: DeviceId) {
        if let Some(device) = self.known.get_mut(&device) {
            device.info.draining = true;
        }
    }

    /// The device is none of the store's any more.
    pub fn removed(&mut self, device: DeviceId) {
        self.known.remove(&device);
    }

    /// The class of a device, if it was ever registered.
    pub fn class(&self, device: DeviceId) -> Option<Class> {
        self.known.get(&device).map(|device| device.info.class)
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
        free: info.capacity.saturating_sub(info.used),
        capacity: info.capacity,
        queue: device.placed,
        full: info.full,
    }
}

impl State {
    /// The devices that placement may choose from: those heard of since the store was opened, on nodes that are not silent.
    /// `Busy` if there are devices and none of them can be used now.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        let usable = |device: &&Device| {
            device.info.reported && !device.info.draining && !self.nodes.is_silent(device.info.node, self.now)
        };
        let candidates: Vec<Candidate> = self.devices.known.values().filter(usable).map(candidate).collect();
        if candidates.is_empty() && !self.devices.known.is_empty() {
            return Err(Error::new(
                ErrorKind::Busy,
                "no device has been heard of since the metadata store was started; nothing was done: try again when nodes are up",
            ));
        }
        Ok(candidates)
    }

    /// All devices in the order of their ids.
    pub fn list_devices(&self) -> Vec<DeviceInfo> {
        let silent = |info: &DeviceInfo| self.nodes.is_silent(info.node, self.now);
        let known = self.devices.known.values().map(|device| &device.info);
        known.map(|info| DeviceInfo { silent: silent(info), ..info.clone() }).collect()
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
                used: 0,
                full: false,
                reported: false,
                draining: record.draining,
                silent: false,
            });
            Ok(true)
        })?;
        for device in devices {
            self.devices.registered(device);
        }
        Ok(())
    }

    /// What is known of a device that registers. One that a node brings which is to be emptied is to be emptied, too: a node that
    /// was started again while it is drained has its emptied directories as new devices.
    pub fn registering(&self, device: DeviceId, class: Class, capacity: u64, node: NodeId) -> DeviceInfo {
        let draining = self.nodes.is_leaving(node);
        DeviceInfo { device, class, node, capacity, used: 0, full: false, reported: true, draining, silent: false }
    }

    /// Does `DeviceRegister`. Memory follows with `Devices::registered` when it is committed.
    pub fn register_device(&mut self, info: &DeviceInfo) -> Result<Reply> {
        let known = self.layers.record::<DeviceRecord>(&Key::Device(info.device))?;
        let record = DeviceRecord {
            class: info.class.code(),
            capacity: info.capacity,
            node: info.node.to_bytes().to_vec(),
            draining: known.as_ref().is_some_and(|known| known.draining) || info.draining,
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
    pub fn report_device(&mut self, device: DeviceId, used: u64, capacity: u64, full: bool) -> Result<Reply> {
        let Some(known) = self.devices.known.get_mut(&device) else {
            let text = format!("device {device} reports but was never registered; register it first");
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        known.placed = 0;
        known.info = DeviceInfo { used, capacity, full, reported: true, ..known.info.clone() };
        Ok(Reply::Done)
    }
}
