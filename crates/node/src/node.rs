//! A node while it runs: what it is made of, and where its devices and the metadata are. What it does with calls is in `service`, what it
//! does by itself in `control`.

use crate::control::orders::Jobs;
use crate::device::Device;
use crate::device_handle::DeviceHandle;
use crate::device_paths::Missing;
use crate::log::Log;
use crate::membership::Membership;
use crate::metadata::Metadata;
use crate::metered::DiskStats;
use crate::metrics::Metrics;
use crate::neighbours::Neighbours;
use crate::peers::Peers;
use crate::troubles::Troubles;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::fault::contained;
use base::id::{DeviceId, NodeId, RequestId};
use base::planted::Planted;
use base::request::within;
use base::unit::Time;
use net::message::Id;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that answers.
pub struct Node {
    /// Which node.
    pub id: NodeId,
    /// What it is in its cluster.
    pub role: Role,
    /// The devices of this node.
    pub devices: BTreeMap<DeviceId, Arc<Device>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// When it began to serve.
    pub started: Time,
    /// The runtime that multi-step answers run on.
    pub runtime: tokio::runtime::Handle,
    /// Devices of this store that could not be opened.
    pub missing: Vec<Missing>,
    /// Where its console is, `host:port`.
    pub console: Option<String>,
    /// Where its HDFS gateway is, `host:port`.
    pub hdfs: Option<String>,
    /// Says that a device is to be emptied.
    pub drains: Arc<tokio::sync::Notify>,
    /// Other nodes, for bytes that are fetched from them.
    pub neighbours: Neighbours,
    /// What it does by itself, and who is at what.
    pub jobs: Jobs,
    /// Held while it is found out which device takes a push for one that is being emptied, and until it is in that one's queue: two that
    /// are sent for the same chunk must not choose for themselves.
    pub taking: tokio::sync::Mutex<()>,
    /// Counters for those who look.
    pub metrics: Metrics,
    /// Why connections were refused or cut.
    pub troubles: Troubles,
    /// Where everything else is told.
    pub log: Log,
    /// A fault put in on purpose, by the simulation alone.
    pub planted: Option<Planted>,
}

/// What a node is in its cluster.
pub enum Role {
    /// It keeps the metadata, and drives what is done with devices, wherever they are.
    Keeper(Box<Keeper>),
    /// It has devices; another node keeps the metadata.
    Member(Arc<Membership>),
}

/// What only the node that keeps the metadata has.
pub struct Keeper {
    /// The metadata store.
    pub metadata: Arc<Metadata>,
    /// The directory of the device that the metadata store lies beside, for people.
    pub metadata_at: String,
    /// The other nodes.
    pub peers: Peers,
    /// What passed through the metadata store's log.
    pub disk: Arc<DiskStats>,
}

impl Node {
    /// What only the node that keeps the metadata has; on another node an error that says where that one is.
    pub fn keeper(&self) -> Result<&Keeper> {
        match &self.role {
            Role::Keeper(keeper) => Ok(keeper.as_ref()),
            Role::Member(membership) => Err(membership.elsewhere()),
        }
    }

    /// The metadata store, as `keeper`.
    pub fn metadata(&self) -> Result<&Arc<Metadata>> {
        self.keeper().map(|keeper| &keeper.metadata)
    }

    /// What it knows of its cluster if another node keeps the metadata.
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        match &self.role {
            Role::Keeper(_) => None,
            Role::Member(membership) => Some(membership),
        }
    }

    /// Does what a call needs beyond this moment, as a task. A fault in it ends this call alone: dropped, it answers that it was given up,
    /// and what it shares with others is behind locks that go on (`base::fault`). What it asks other nodes is a part of `request`.
    pub fn apart<F: Future<Output = ()> + Send + 'static>(&self, request: RequestId, steps: F) {
        self.runtime.spawn(contained(within(request, steps)));
    }

    /// A device of the store, wherever it is. `Unreachable` if it is on a node that was not heard of since this one started.
    pub fn device_handle(&self, id: DeviceId) -> Result<DeviceHandle> {
        if let Some(device) = self.devices.get(&id) {
            return Ok(DeviceHandle::Local(device.clone()));
        }
        if let Role::Keeper(keeper) = &self.role
            && let Some(far) = keeper.peers.device(id)
        {
            return Ok(DeviceHandle::Remote(far));
        }
        let is_missing = self.missing.iter().any(|missing| missing.device == id);
        if matches!(self.role, Role::Keeper(_)) && !is_missing {
            let text = format!(
                "device {id} is on a node that was not heard of since this one started; what is on it is safe there and comes back \
                 with it; start that node, or look at the network"
            );
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        Err(self.not_here(id))
    }

    /// All devices of the store that are known to be somewhere, near ones first.
    pub fn device_handles(&self) -> Vec<DeviceHandle> {
        let near = self.served().cloned().map(DeviceHandle::Local);
        let far = match &self.role {
            Role::Keeper(keeper) => keeper.peers.devices(),
            Role::Member(_) => Vec::new(),
        };
        near.chain(far.into_iter().map(DeviceHandle::Remote)).collect()
    }

    /// The devices that are the store's: those that were emptied and removed since the start are not.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.devices.values().filter(|device| device.draining().is_none_or(|draining| !draining.over))
    }

    /// The device of this id, one that was removed too: those who ask it are sent to where its chunks are.
    pub fn device(&self, id: Id) -> Result<&Arc<Device>> {
        let id = DeviceId(id.value());
        self.devices.get(&id).ok_or_else(|| self.not_here(id))
    }

    /// Why a device is not on this node.
    pub fn not_here(&self, id: DeviceId) -> Error {
        if let Some(missing) = self.missing.iter().find(|missing| missing.device == id) {
            let text = format!(
                "these bytes are on device {id} in {}, which is missing; everything else is served; bring the disk back \
                 and start the node again (`stormwell device ls` says why it is missing)",
                missing.place
            );
            return Error::new(ErrorKind::Io, text);
        }
        if let Role::Keeper(keeper) = &self.role
            && let Some(far) = keeper.peers.device(id)
        {
            let text = format!("device {id} is on node {}; nothing was done; ask that node", far.peer.name());
            return Error::new(ErrorKind::NotFound, text);
        }
        let text = format!(
            "device {id} is not on this node; `stormwell df` lists those that are; start the node with its directory"
        );
        Error::new(ErrorKind::NotFound, text)
    }
}
