//! The counters of a node: hot paths only add to atomics. The page that shows them is in `page`.

pub mod page;

use crate::metered::DiskStats;
use base::id::DeviceId;
use net::{Budget, NetStats};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The counters that the parts of a node share with those who look.
pub struct Metrics {
    /// Calls and sockets.
    pub net: Arc<NetStats>,
    /// Memory for payload on its way in.
    pub incoming: Budget,
    /// Memory for payload on its way out.
    pub outgoing: Budget,
    /// What passed through each device.
    pub disks: BTreeMap<DeviceId, Arc<DiskStats>>,
    /// Files whose writer is gone that were closed without bytes which were synced, or may have been.
    pub damaged_ends: AtomicU64,
}

impl Metrics {
    /// With these counters, and the budgets for payload on its way in and out.
    pub fn new(
        net: Arc<NetStats>,
        (incoming, outgoing): (Budget, Budget),
        disks: BTreeMap<DeviceId, Arc<DiskStats>>,
    ) -> Metrics {
        Metrics { net, incoming, outgoing, disks, damaged_ends: AtomicU64::new(0) }
    }
}
