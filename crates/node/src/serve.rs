//! Starting and stopping a node: opens what lies on disk, starts the threads, listens, and ends them in order.

use crate::device::{self, Device, Started};
use crate::housekeeping;
use crate::identity::Identity;
use crate::metadata::{self, Metadata};
use crate::service::{Node, NodeService};
use crate::settings::{DeviceSetting, Settings, metadata_directory, shown};
use crate::world::{Ended, World};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::net::Net;
use base::policy::Class;
use base::unit::{MIB, show_bytes};
use net::{Budget, Server, ServerSettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// A node that serves.
pub struct Running {
    /// Where it listens, `host:port`.
    pub address: String,
    /// What was found when opening, one sentence each, for people.
    pub notes: Vec<String>,
    shutdown: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
    housekeeping: tokio::task::JoinHandle<()>,
    node: Arc<Node>,
    engines: Vec<Ended>,
}

/// Idle buffers that the pool keeps: eight bag chunks and their headers, and what small frames need.
const POOL_IDLE_MAX: usize = 64 * MIB as usize;

/// Starts a node that stands on `world`. It serves when this returns.
pub async fn start(
    settings: Settings,
    world: Arc<dyn World>,
    network: Arc<dyn Net>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> Result<Running> {
    // The port first: a taken one should be said before any disk is touched.
    let listener = network.listen(&settings.listen).await?;
    let address = listener.address();
    let pool = Pool::new(POOL_IDLE_MAX);
    let outgoing = Budget::new(settings.outgoing_bytes);
    let mut notes = Vec::new();
    let directory = metadata_directory(world.as_ref(), &settings.devices)?;
    let mut engines = Vec::new();

    let opened = world.disk(&directory, settings.backend, pool.clone())?;
    notes.extend(opened.note);
    let identity = Identity::start(world.as_ref(), &directory, random.as_ref())?;
    let tree = world.tree(&directory.join("tree.redb"))?;
    let sizes = world.meta_settings(random.clone());
    let (metadata, ended) = metadata::spawn(world.as_ref(), opened.disk, tree, sizes, clock.clone())
        .map_err(|error| error.during(shown(&directory)))?;
    engines.extend(ended);

    let mut devices = BTreeMap::new();
    for setting in &settings.devices {
        let (start, note) =
            prepare_device(world.as_ref(), setting, &settings, &pool, &outgoing, &clock, random.as_ref())?;
        notes.extend(note);
        let place = start.place.clone();
        let Started { device, ended, opened } =
            device::spawn(world.as_ref(), start).map_err(|error| error.during(&place))?;
        notes.extend(opened.rot.iter().map(|rot| format!("{place}: {rot}")));
        if opened.formatted {
            notes.push(format!("{place}: made a new device of {}", show_bytes(device.usage().capacity)));
        }
        register(&metadata, identity.node, &device).await.map_err(|error| error.during(&place))?;
        if devices.insert(device.id, device.clone()).is_some() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} holds a copy of a device that is named already; leave one of them out", device.place),
            ));
        }
        engines.push(ended);
    }
    let node = Arc::new(Node {
        id: identity.node,
        metadata,
        devices,
        clock: clock.clone(),
        started: clock.now(),
        garbage: Arc::new(tokio::sync::Notify::new()),
        runtime: tokio::runtime::Handle::current(),
        world: world.clone(),
    });
    let (shutdown, stopped) = watch::channel(false);
    let server_settings = ServerSettings {
        node: identity.node,
        incarnation: identity.incarnation,
        budget: Budget::new(settings.incoming_bytes),
        outgoing,
        pool,
        clock,
        silence_max: base::limit::CALL_SILENCE_MAX,
        stats: Arc::new(net::NetStats::default()),
        on_trouble: Arc::new(move |trouble| world.say(&trouble)),
    };
    let service = Arc::new(NodeService(node.clone()));
    let server = tokio::spawn(Server::serve(listener, service, server_settings, stopped.clone()));
    let housekeeping = tokio::spawn(housekeeping::run(node.clone(), stopped));
    Ok(Running { address, notes, shutdown, server, housekeeping, node, engines })
}

impl Running {
    /// Stops taking calls, lets what is under way end, and ends the threads. Everything acknowledged is on disk already.
    pub async fn stop(self) {
        // Both tasks end by themselves on this; a receiver that is gone already has ended.
        let _ = self.shutdown.send(true);
        for task in [self.server, self.housekeeping] {
            let _ = task.await;
        }
        for device in self.node.devices.values() {
            device.send(device::Item::Stop);
        }
        self.node.metadata.send(metadata::Item::Stop);
        drop(self.node);
        for ended in self.engines {
            // An engine whose thread panicked has said so on stderr; the others still end.
            let _ = ended.await;
        }
    }
}

/// Tells the metadata store of a device. One that holds chunks and is not known there belongs to another store: serving
/// it would mean deleting everything on it.
async fn register(metadata: &Metadata, node: NodeId, device: &Device) -> Result<()> {
    let meta::Reply::Devices(known) = metadata.ask(meta::Request::DeviceList).await? else {
        unreachable!("devices were asked for")
    };
    let usage = device.usage();
    if usage.chunks > 0 && !known.iter().any(|info| info.device == device.id) {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "this device holds {} chunks of another store; nothing was changed. Start it together with the directory \
                 that holds its metadata (the one with `meta` in it), or give an empty directory",
                usage.chunks
            ),
        ));
    }
    let capacity = usage.capacity;
    metadata.ask(meta::Request::DeviceRegister { device: device.id, class: device.class, capacity, node }).await?;
    let report =
        meta::Request::DeviceReport { device: device.id, used: usage.used, capacity, full: usage.full || usage.failed };
    metadata.ask(report).await?;
    Ok(())
}

fn prepare_device(
    world: &dyn World,
    setting: &DeviceSetting,
    settings: &Settings,
    pool: &Pool,
    outgoing: &Budget,
    clock: &Arc<dyn Clock>,
    random: &dyn Random,
) -> Result<(device::Start, Option<String>)> {
    let place = shown(&setting.directory);
    let directory = setting.chunks();
    let backend = if setting.class == Class::Memory { os::disk::Backend::Memory } else { settings.backend };
    let opened = world.disk(&directory, backend, pool.clone())?;
    let note = opened.note.map(|note| format!("{place}: {note}"));
    let capacity = match setting.capacity {
        Some(capacity) => capacity,
        None => world.free_bytes(&setting.directory)? / 10 * 9,
    };
    let start = device::Start {
        disk: opened.disk,
        settings: chunk::Settings {
            keep_capacity: setting.capacity.is_none(),
            ..world.chunk_settings(capacity, pool.clone())
        },
        new_id: DeviceId(random.wide()),
        class: setting.class,
        place,
        clock: clock.clone(),
        outgoing: outgoing.clone(),
    };
    Ok((start, note))
}
