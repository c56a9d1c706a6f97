//! The keeper's report of its own devices to the metadata store, and to the operator.

use super::job::Job;
use crate::device::Device;
use crate::leading::Leading;
use crate::log::Level;
use crate::node::Node;
use base::error::Result;
use base::id::DeviceId;
use meta::request::DeviceUse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// How full devices of this node are, for placement.
pub fn report_of<'a>(devices: impl Iterator<Item = &'a Device>) -> meta::Request {
    meta::Request::DeviceReport { devices: devices.map(|device| use_of(device.id, &device.usage())).collect() }
}

/// How full a device is, for placement: what it keeps back is taken, and one that is out of service is full.
pub fn use_of(device: DeviceId, usage: &chunk::Usage) -> DeviceUse {
    let taken = usage.used.saturating_add(usage.reserve);
    DeviceUse { device, capacity: usage.capacity, taken, full: usage.full || usage.failed }
}

/// Tells the metadata store how full the devices of this node are, and the operator which devices stand still.
#[derive(Default)]
pub struct Report {
    still: BTreeSet<DeviceId>,
}

impl Job for Report {
    const NAME: &'static str = "report";

    async fn step(&mut self, node: &Arc<Node>, leading: &Arc<Leading>) -> Result<bool> {
        node.troubles.look();
        self.tell_still(node, leading);
        // Of several keepers the one that leads reports to itself, as all nodes do.
        if !leading.alone {
            return Ok(false);
        }
        leading.metadata.ask(report_of(node.served().map(Arc::as_ref))).await?;
        let devices = node.served().map(|device| device.id).collect();
        leading.metadata.ask(meta::Request::NodeReport { node: node.id, keeps: true, devices }).await?;
        Ok(false)
    }
}

impl Report {
    fn tell_still(&mut self, node: &Node, leading: &Leading) {
        let still = leading.jobs.still();
        let shown = |device: DeviceId| {
            let handle = leading.device_handle(node, device);
            handle.map_or_else(|_| device.to_string(), |handle| handle.shown())
        };
        for device in still.difference(&self.still) {
            let text = "a device has not answered an order for 5 s; what was acknowledged is safe; its garbage, its abandoned \
                        files, its drain and the bags that it joins wait for it, others do not; look at its disk and its node";
            node.log.say(Level::Warn, "housekeeping", text, &[("place", &shown(*device))]);
        }
        for device in self.still.difference(&still) {
            let text = "a device that had not answered goes on";
            node.log.say(Level::Info, "housekeeping", text, &[("place", &shown(*device))]);
        }
        self.still = still;
    }
}
