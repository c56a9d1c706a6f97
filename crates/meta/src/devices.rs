//! Devices: which exist (remembered) and how full they are (reported, forgotten when the store is opened again).

use crate::format::DeviceRecord;
use crate::key::{Key, after_prefix, wide_at};
use crate::place::Candidate;
use crate::request::{DeviceInfo, Reply};
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
    /// The devices that placement may choose from: those heard of since the store was opened.
    /// `Busy` if there are devices and none was heard of yet.
    pub fn candidates(&self) -> Result<Vec<Candidate>> {
        let present = self.known.values().filter(|device| device.info.reported && !device.info.draining);
        let candidates: Vec<Candidate> = present.map(candidate).collect();
        if candidates.is_empty() && !self.known.is_empty() {
            return Err(Error::new(
                ErrorKind::Busy,
                "no device has been heard of since the metadata store was started; nothing was done: try again when nodes are up",
            ));
        }
        Ok(candidates)
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

    /// All devices in the order of their ids.
    pub fn list(&self) -> Vec<DeviceInfo> {
        self.known.values().map(|device| device.info.clone()).collect()
    }
}

fn candidate(device: &Device) -> Candidate {
    let info = &device.info;
    Candidate {
        device: info.device,
        class: info.class,
        free: info.capacity.saturating_sub(info.used),
        capacity: info.capacity,
        queue: device.placed,
        full: info.full,
    }
}

impl State {
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
            });
            Ok(true)
        })?;
        for device in devices {
            self.devices.registered(device);
        }
        Ok(())
    }

    /// Does `DeviceRegister`. Memory follows with `Devices::registered` when it is committed.
    pub fn register_device(&mut self, info: &DeviceInfo) -> Result<Reply> {
        let known = self.layers.record::<DeviceRecord>(&Key::Device(info.device))?;
        let record = DeviceRecord {
            class: info.class.code(),
            capacity: info.capacity,
            node: info.node.to_bytes().to_vec(),
            draining: known.as_ref().is_some_and(|known| known.draining),
        };
        if known.as_ref() != Some(&record) {
            self.put(&Key::Device(info.device), &record);
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
