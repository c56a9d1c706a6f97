//! Whether a node can do what it is there for, and what stands in the way.

use crate::device::Device;
use crate::metadata::Metadata;
use crate::node::{Node, Role};
use base::error::ErrorKind;
use net::message::file;
use std::time::Duration;

/// What is said of a device that a failed write or sync took out of service.
pub const OUT_OF_SERVICE: &str = "out of service after a failed write or sync; reads go on; replace the disk, or make room on its file system \
     and start its node again";

/// The metadata store answers within milliseconds; one that takes this long is stuck.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// How a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Reads and writes are taken.
    pub ready: bool,
    /// What is wrong, one sentence each; there may be troubles while it is ready.
    pub troubles: Vec<String>,
}

/// Looks at the metadata store and at every device.
pub async fn look(node: &Node) -> Health {
    let mut troubles = Vec::new();
    let mut ready = true;
    let waits = match &node.role {
        Role::Keeper(keeper) => trouble_of(&keeper.metadata).await,
        Role::Member(membership) => membership.waits(),
        Role::Several(several) => several.membership.waits(),
    };
    if let Some(trouble) = waits {
        ready = false;
        troubles.push(trouble);
    }
    if let Role::Several(several) = &node.role {
        // Two others may serve meanwhile.
        troubles.extend(several.troubles());
    }
    let mut writable = 0;
    for device in node.served() {
        let usage = device.usage();
        let place = &device.place;
        if usage.failed {
            troubles.push(format!("{place} is {OUT_OF_SERVICE}"));
        } else if usage.full {
            troubles.push(format!("{place} is full; reads and deletes go on"));
        } else if !device.is_draining() {
            writable += 1;
        }
        if usage.damaged > 0 {
            troubles.push(format!("{place} has {} damaged chunks; their bytes are not served", usage.damaged));
        }
    }
    for missing in &node.missing {
        troubles.push(format!("{} is missing: {}", missing.place, missing.why));
    }
    if writable == 0 {
        ready = false;
        troubles.push("no device takes writes; what was acknowledged is safe; add one with --data DIR".to_string());
    }
    Health { ready, troubles }
}

/// What is wrong with the metadata store, if anything is.
async fn trouble_of(metadata: &Metadata) -> Option<String> {
    // A change that changes nothing: it is refused when no change can be taken.
    let nothing = meta::Request::Collected { groups: Vec::new(), ranges: Vec::new(), bags: Vec::new() };
    match tokio::time::timeout(PATIENCE, metadata.ask(nothing)).await {
        Ok(Ok(_)) => None,
        // It does not lead: so it is with all keepers but one, and nothing is wrong here.
        Ok(Err(error)) if error.kind() == ErrorKind::Moved => None,
        Ok(Err(error)) => Some(format!("the metadata store: {error}")),
        Err(_) => Some(format!(
            "the metadata store has not answered for {} s; what was acknowledged is safe; look at its disk",
            PATIENCE.as_secs()
        )),
    }
}

/// A device of this node as others are told of it.
pub fn reported(node: &Node, device: &Device) -> file::Device {
    let usage = device.usage();
    let trouble = match (usage.failed, usage.damaged) {
        (true, _) => OUT_OF_SERVICE.to_string(),
        (false, 0) => String::new(),
        (false, damaged) => format!("{damaged} damaged chunks were found; their bytes are not served"),
    };
    file::Device {
        device: device.id.0.into(),
        class: device.class.code(),
        capacity: usage.capacity,
        used: usage.used,
        reserve: usage.reserve,
        live: usage.live,
        chunks: usage.chunks,
        place: device.place.clone(),
        backend: device.backend.to_string(),
        trouble,
        missing: false,
        out_of_service: usage.failed,
        drain: device.draining().map(|draining| draining.state()),
        scrub: device.scrubbed().map(|scrubbed| scrubbed.state()),
        failures: node.metrics.disks.get(&device.id).map_or(0, |stats| stats.failures()),
        full: usage.full,
        node: None,
        lost: false,
        away_ms: 0,
    }
}

impl Node {
    /// The devices of this node, those that are missing too.
    pub fn own_devices(&self) -> Vec<file::Device> {
        let missing = self.missing.iter().map(|missing| file::Device {
            device: missing.device.0.into(),
            place: missing.place.clone(),
            trouble: format!("missing: {}", missing.why),
            missing: true,
            ..file::Device::default()
        });
        self.served().map(|device| reported(self, device)).chain(missing).collect()
    }
}
