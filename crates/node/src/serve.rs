//! Starting and stopping a node: opens what lies on disk, starts the threads, listens, and ends them in order.

use crate::device::{self, Device};
use crate::housekeeping;
use crate::metadata::{self, Metadata};
use crate::service::{Node, NodeService};
use crate::settings::{DeviceSetting, Settings, metadata_directory, shown};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId};
use base::net::Net;
use base::unit::{MIB, show_bytes};
use chunk::Engine;
use net::{Budget, Server, ServerSettings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
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
    threads: Vec<JoinHandle<()>>,
}

/// Idle buffers that the pool keeps: eight bag chunks and their headers, and what small frames need.
const POOL_IDLE_MAX: usize = 64 * MIB as usize;

/// Starts a node. It serves when this returns.
pub async fn start(
    settings: Settings,
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
    let directory = metadata_directory(&settings.devices)?;
    let mut threads = Vec::new();

    let opened = open_metadata(&directory, &settings, &pool, clock.as_ref(), random.as_ref(), &mut notes)?;
    let (metadata, meta_threads) = metadata::spawn(opened.disk, opened.store, clock.clone())?;
    threads.extend(meta_threads);

    let mut devices = BTreeMap::new();
    for setting in &settings.devices {
        let (device, thread) =
            open_device(setting, &settings, &pool, &outgoing, &clock, random.as_ref(), &metadata, &mut notes).await?;
        if devices.insert(device.id, device.clone()).is_some() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} holds a copy of a device that is named already; leave one of them out", device.place),
            ));
        }
        threads.push(thread);
    }
    let node = Arc::new(Node {
        id: opened.node,
        metadata,
        devices,
        clock: clock.clone(),
        started: clock.now(),
        garbage: Arc::new(tokio::sync::Notify::new()),
        runtime: tokio::runtime::Handle::current(),
    });
    let (shutdown, stopped) = watch::channel(false);
    let server_settings = ServerSettings {
        node: opened.node,
        incarnation: opened.incarnation,
        budget: Budget::new(settings.incoming_bytes),
        outgoing,
        pool,
        clock,
        ..ServerSettings::default()
    };
    let service = Arc::new(NodeService(node.clone()));
    let server = tokio::spawn(Server::serve(listener, service, server_settings, stopped.clone()));
    let housekeeping = tokio::spawn(housekeeping::run(node.clone(), stopped));
    Ok(Running { address, notes, shutdown, server, housekeeping, node, threads })
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
        let ended = tokio::task::spawn_blocking(move || {
            for thread in self.threads {
                // A thread that panicked has said so on stderr; the others still end.
                let _ = thread.join();
            }
        });
        let _ = ended.await;
    }
}

struct OpenedMetadata {
    disk: Box<dyn base::disk::Disk>,
    store: meta::Store<metadata::Then>,
    node: NodeId,
    incarnation: u64,
}

fn open_metadata(
    directory: &std::path::Path,
    settings: &Settings,
    pool: &Pool,
    clock: &dyn Clock,
    random: &dyn Random,
    notes: &mut Vec<String>,
) -> Result<OpenedMetadata> {
    let opened = os::disk::open(directory, settings.backend, pool.clone())?;
    notes.extend(opened.note);
    let mut disk = opened.disk;
    let tree = os::file::BlockingFile::open(&directory.join("tree.redb"))?;
    let (store, found) = meta::Store::open(
        disk.as_mut(),
        Box::new(tree),
        meta::Settings { new_node: NodeId(random.wide()), pool: pool.clone(), ..meta::Settings::default() },
        clock.now(),
        clock.wall(),
    )
    .map_err(|error| error.during(shown(directory)))?;
    notes.extend(found.notes);
    Ok(OpenedMetadata { disk, store, node: found.node, incarnation: found.incarnation })
}

#[expect(clippy::too_many_arguments, reason = "called once; a struct for it would be read once")]
async fn open_device(
    setting: &DeviceSetting,
    settings: &Settings,
    pool: &Pool,
    outgoing: &Budget,
    clock: &Arc<dyn Clock>,
    random: &dyn Random,
    metadata: &Metadata,
    notes: &mut Vec<String>,
) -> Result<(Arc<Device>, JoinHandle<()>)> {
    let place = shown(&setting.directory);
    let directory = setting.chunks();
    let backend = if setting.class == base::policy::Class::Memory { os::disk::Backend::Memory } else { settings.backend };
    let opened = os::disk::open(&directory, backend, pool.clone())?;
    notes.extend(opened.note.map(|note| format!("{place}: {note}")));
    let mut disk = opened.disk;
    let capacity = match setting.capacity {
        Some(capacity) => capacity,
        None => os::file::free_bytes(&directory)? / 10 * 9,
    };
    let new_id = DeviceId(random.wide());
    let chunk_settings = chunk::Settings::for_capacity(capacity, pool.clone());
    let (engine, found): (Engine<device::Then>, chunk::Opened) =
        Engine::open(disk.as_mut(), chunk_settings, new_id, clock.now()).map_err(|error| error.during(&place))?;
    for rot in &found.rot {
        notes.push(format!("{place}: {rot}"));
    }
    if found.formatted {
        notes.push(format!("{place}: made a new device of {}", show_bytes(engine.usage().capacity)));
    }
    let register = meta::Request::DeviceRegister {
        device: found.id,
        class: setting.class,
        capacity: engine.usage().capacity,
        new: found.formatted || engine.usage().chunks == 0,
    };
    metadata.ask(register).await.map_err(|error| error.during(&place))?;
    let start = device::Start {
        disk,
        engine,
        id: found.id,
        class: setting.class,
        place,
        clock: clock.clone(),
        outgoing: outgoing.clone(),
    };
    device::spawn(start)
}
