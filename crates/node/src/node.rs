//! A node while it runs: what it is made of, and where its devices and the metadata are. What it does with calls is in `service`, what it
//! does by itself in `control`.

use crate::device::Device;
use crate::device_paths::Missing;
use crate::keepers::Several;
use crate::leading::Leading;
use crate::log::Log;
use crate::membership::Membership;
use crate::metadata::Metadata;
use crate::metered::DiskStats;
use crate::metrics::Metrics;
use crate::neighbours::Neighbours;
use crate::troubles::Troubles;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::fault::contained;
use base::id::{DeviceId, NodeId, RequestId};
use base::moved::Moved;
use base::net::Net;
use base::planted::Planted;
use base::request::within;
use base::unit::Time;
use net::LinkSettings;
use net::message::Id;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// Everything that answers.
pub struct Node {
    /// Which node.
    pub id: NodeId,
    /// Which start of it this process is: `NodeId::start`.
    pub start: u64,
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
    /// Other nodes, for bytes that are fetched from them.
    pub neighbours: Neighbours,
    /// How long a device has to be away before it is given up by itself, while this node leads.
    pub repair_after: Duration,
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
    /// It keeps the metadata, and while it leads it drives what is done with devices, wherever they are.
    Keeper(Box<Keeper>),
    /// It has devices; another node keeps the metadata.
    Member(Arc<Membership>),
    /// Several nodes keep the metadata together, and this one may be one of them. Whoever of them leads drives what is done with devices, those of
    /// its own node like those of the others: to itself it is a member as they are.
    Several(Box<Several>),
}

/// What only a node that keeps the metadata has.
pub struct Keeper {
    /// The metadata store.
    pub metadata: Arc<Metadata>,
    /// The directory of the device that the metadata store lies beside, for people.
    pub metadata_at: String,
    /// What passed through the metadata store's log.
    pub disk: Arc<DiskStats>,
    /// The network, to other nodes.
    pub network: Arc<dyn Net>,
    /// How they are reached.
    pub links: LinkSettings,
    /// What it has because it leads, as long as it does (`Keeper::leads`, `Keeper::end`).
    pub leading: RwLock<Option<Arc<Leading>>>,
}

impl Node {
    /// What it has because its keeper leads; else an error: `Moved` if it keeps the metadata and does not lead, and on a node that does not keep
    /// them one that says where that one is. Whoever needs it for more than one thing asks once, and goes on with that.
    pub fn leading(&self) -> Result<Arc<Leading>> {
        match &self.role {
            Role::Keeper(keeper) => keeper.leading().ok_or_else(|| Moved::default().into()),
            Role::Member(membership) => Err(membership.elsewhere()),
            Role::Several(several) => several.leading(),
        }
    }

    /// Whether its keeper leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.leading().is_ok()
    }

    /// The metadata store, if this node keeps it: whether it leads, the store itself says. Of several keepers only the one that leads, as far as it
    /// knows, is asked.
    pub fn metadata(&self) -> Result<&Arc<Metadata>> {
        match &self.role {
            Role::Keeper(keeper) => Ok(&keeper.metadata),
            Role::Member(membership) => Err(membership.elsewhere()),
            Role::Several(several) => several.metadata(),
        }
    }

    /// What it has if it keeps the metadata, alone or with others.
    pub fn keeper(&self) -> Option<&Keeper> {
        match &self.role {
            Role::Keeper(keeper) => Some(keeper),
            Role::Member(_) => None,
            Role::Several(several) => several.keeping().map(|keeping| &keeping.keeper),
        }
    }

    /// The nodes that keep the metadata, as far as this one knows.
    pub fn keepers(&self) -> Vec<NodeId> {
        match &self.role {
            Role::Keeper(_) => vec![self.id],
            Role::Member(_) => Vec::new(),
            Role::Several(several) => several.keepers(),
        }
    }

    /// Whether it keeps the metadata alone.
    pub fn is_alone(&self) -> bool {
        matches!(self.role, Role::Keeper(_))
    }

    /// What it knows of its cluster if it does not keep the metadata alone.
    pub fn membership(&self) -> Option<&Arc<Membership>> {
        match &self.role {
            Role::Keeper(_) => None,
            Role::Member(membership) => Some(membership),
            Role::Several(several) => Some(&several.membership),
        }
    }

    /// Does what a call needs beyond this moment, as a task. A fault in it ends this call alone: dropped, it answers that it was given up,
    /// and what it shares with others is behind locks that go on (`base::fault`). What it asks other nodes is a part of `request`.
    pub fn apart<F: Future<Output = ()> + Send + 'static>(&self, request: RequestId, steps: F) {
        self.runtime.spawn(contained(within(request, steps)));
    }

    /// The devices that are the store's: those that were emptied and removed since the start are not.
    pub fn served(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.devices.values().filter(|device| device.draining().is_none_or(|draining| !draining.over))
    }

    /// The device of this id, one that was removed too: those who ask it are sent to where its chunks are.
    pub fn device(&self, id: Id) -> Result<&Arc<Device>> {
        let id = DeviceId(id.value());
        self.devices.get(&id).ok_or_else(|| self.not_here(id, self.leading().ok().as_deref()))
    }

    /// Why a device is not on this node.
    pub fn not_here(&self, id: DeviceId, leading: Option<&Leading>) -> Error {
        if let Some(missing) = self.missing.iter().find(|missing| missing.device == id) {
            let text = format!(
                "these bytes are on device {id} in {}, which is missing; everything else is served; bring the disk back \
                 and start the node again (`stormwell device ls` says why it is missing)",
                missing.place
            );
            return Error::new(ErrorKind::Io, text);
        }
        if let Some(far) = leading.and_then(|leading| leading.peers.device(id)) {
            let text = format!("device {id} is on node {}; nothing was done; ask that node", far.peer.name());
            return Error::new(ErrorKind::NotFound, text);
        }
        let text = format!(
            "device {id} is not on this node; `stormwell df` lists those that are; start the node with its directory"
        );
        Error::new(ErrorKind::NotFound, text)
    }
}
