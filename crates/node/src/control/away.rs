//! Which devices are away, as those are told who look: what the job that gives devices up (`giving_up`) knows.

use super::claims::lock;
use base::id::DeviceId;
use base::unit::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

/// Which devices are away, for who looks.
#[derive(Default)]
pub struct Away {
    /// Since when, as far as this leadership knows.
    since: Mutex<BTreeMap<DeviceId, Time>>,
    /// Why nothing is given up that would be; empty: nothing would, or it is.
    withheld: Mutex<String>,
    /// Devices that are back, and do not count as long as something goes on there.
    kept_back: Mutex<BTreeSet<DeviceId>>,
}

impl Away {
    /// Since when a device is away.
    pub fn since(&self, device: DeviceId) -> Option<Time> {
        lock(&self.since).get(&device).copied()
    }

    /// Notes which devices are away.
    pub fn note(&self, since: &BTreeMap<DeviceId, Time>) {
        lock(&self.since).clone_from(since);
    }

    /// Whether a device that is back does not count for some time yet.
    pub fn is_kept_back(&self, device: DeviceId) -> bool {
        lock(&self.kept_back).contains(&device)
    }

    /// Notes which devices do not.
    pub fn keep_back(&self, devices: BTreeSet<DeviceId>) {
        *lock(&self.kept_back) = devices;
    }

    /// Notes why nothing is given up; empty: that is not so. Whether that is new.
    pub fn withhold(&self, why: &str) -> bool {
        let mut withheld = lock(&self.withheld);
        let is_new = withheld.is_empty() && !why.is_empty();
        why.clone_into(&mut withheld);
        is_new
    }

    /// Why nothing is given up; empty if that is not so.
    pub fn withheld(&self) -> String {
        lock(&self.withheld).clone()
    }
}
