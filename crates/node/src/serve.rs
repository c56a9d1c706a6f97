//! Starting and stopping a node: opens what lies on disk, starts the threads, listens, and ends them in order. What the node is in its cluster is found
//! in `role`.

mod role;

use crate::control::{self, cluster};
use crate::device::{self, Device, Started};
use crate::device_paths::{DevicePaths, Missing, Standing, left_out, left_out_as_it_is};
use crate::hdfs::{self, Hdfs};
use crate::identity::Identity;
use crate::loan::Loans;
use crate::log::{Level, Log};
use crate::membership;
use crate::metadata::{self, Metadata};
use crate::metered::{DiskStats, MeteredDisk};
use crate::metrics::Metrics;
use crate::neighbours::Neighbours;
use crate::node::{Node, Role};
use crate::service::NodeService;
use crate::settings::{DeviceSetting, Door, MetaPlace, Settings, identity_in, shown};
use crate::troubles::Troubles;
use crate::world::{Ended, World};
use crate::{console, home, keeping};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId, SessionId};
use base::limit::{connections, console_connections};
use base::net::{Boxed, Listener, Net};
use base::policy::Class;
use base::request::Noting;
use base::unit::{WallTime, show_bytes};
use base::watched::Stop;
use meta::request::{DeviceInfo, NodeInfo};
use net::{Asker, Budget, CallNumbers, LinkSettings, Server, ServerSettings};
use os::disk::Backend;
use role::{Forms, Home, Means, formation_of, open_home, role_of};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A node that serves.
pub struct Running {
    /// Where it listens, `host:port`.
    pub address: String,
    /// Where metrics and health are, `host:port`.
    pub console: Option<String>,
    /// Where Hadoop's clients find it as an HDFS, `host:port`.
    pub hdfs: Option<String>,
    /// What was found when opening, one sentence each, for people.
    pub notes: Vec<String>,
    /// Devices that could not be opened, and why; what lies on them is an error until the node starts with them again.
    pub missing: Vec<Missing>,
    tasks: Tasks,
    node: Arc<Node>,
    engines: Vec<Ended>,
}

/// Starts a node that stands on `world`. It serves when this returns.
///
/// On the heap, so that the code of a node is compiled here and not by everybody who starts one.
pub fn start(
    settings: Settings,
    world: Arc<dyn World>,
    network: Arc<dyn Net>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> Boxed<'static, Result<Running>> {
    Box::pin(open(settings, world, network, clock, random))
}

async fn open(
    settings: Settings,
    world: Arc<dyn World>,
    network: Arc<dyn Net>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
) -> Result<Running> {
    // Nodes and clients speak TLS if it is set; the console and Hadoop's clients do not.
    let (plain, network) = (network.clone(), settings.tls.as_ref().map_or(network.clone(), |tls| tls.over(network)));
    // The port first: a taken one should be said before any disk is touched.
    let listener = network.listen(&settings.listen).await?;
    let (address, log) = (listener.address(), Log::new(clock.clone(), settings.log, world.clone()));
    let console_listener = listen(&settings.console, "console", plain.as_ref(), &log).await?;
    let hdfs_listener = listen(&settings.hdfs, "hdfs", plain.as_ref(), &log).await?;
    let pool = pool_of(&settings);
    let (outgoing, loans) = (Budget::new(settings.outgoing_bytes), Arc::new(Loans::of_this_runtime()));
    world.watch(&loans)?;
    let (mut notes, mut engines) = (Vec::from_iter(os::disk::warning(settings.backend)?), Vec::new());
    let means = Means { pool: pool.clone(), clock: clock.clone(), random: random.clone(), loans: loans.clone() };
    let Home { directory, kept, found } = open_home(&settings, &world, &means)?;
    let identity = Identity::start(world.as_ref(), &directory, settings.backend, random.as_ref())?;
    let together = formation_of(found, (&settings, &world), (identity.node, &means))?;
    let (hdfs, console) = (address_of(&hdfs_listener), address_of(&console_listener));
    let itself = cluster::itself(&settings, &identity, &address, hdfs.as_deref());
    let mut places = places_of(&settings, world.as_ref(), &directory, &mut notes)?;
    let mut metadata = None;
    if let Some(kept) = kept {
        notes.extend(kept.note);
        engines.extend(kept.engines);
        join(&kept.metadata, itself.clone(), &mut places).await?;
        metadata = Some((kept.metadata, kept.disk));
    }

    let given = Given {
        settings: &settings,
        world: world.as_ref(),
        directory: &directory,
        pool: &pool,
        outgoing: &outgoing,
        clock: &clock,
        loans: &loans,
    };
    let keeping = metadata.as_ref().map(|(metadata, _)| metadata.as_ref());
    let opened = open_devices(&given, random.as_ref(), keeping, identity.node, &mut places).await?;
    let OpenDevices { devices, disks, missing, removed, .. } = opened;
    engines.extend(opened.engines);
    tell_of_devices(&log, (&missing, &removed, &opened.damage), !devices.is_empty())?;
    notes.extend(opened.notes.into_iter().chain(removed));
    notes.extend(note_devices(&settings, world.as_ref(), &directory, &places, &devices)?);
    report(keeping, identity.node, &devices).await?;
    let links = links_of(&settings, &identity, (&pool, &clock, &random));
    let neighbours = Neighbours::new((identity.node, itself.address.clone()), network.clone(), links.clone());
    let (kept, ways) = ((metadata, together), (network.clone(), links));
    let (role, forms) = role_of((&settings, &world, &directory), kept, ways, &means)?;
    let (stats, incoming) = (Arc::new(net::NetStats::default()), Budget::new(settings.incoming_bytes));
    let node = Arc::new(Node {
        id: identity.node,
        start: identity.node.start(identity.incarnation),
        role,
        devices,
        clock: clock.clone(),
        started: clock.now(),
        runtime: tokio::runtime::Handle::current(),
        missing,
        console: console.clone(),
        hdfs: hdfs.clone(),
        neighbours,
        repair_after: settings.repair_after,
        taking: tokio::sync::Mutex::new(()),
        metrics: Metrics::new(stats.clone(), (incoming.clone(), outgoing.clone()), disks),
        troubles: Troubles::new(log.clone(), clock.clone()),
        log: log.clone(),
        planted: world.planted(),
    });
    let server_settings = ServerSettings {
        credentials: settings.credentials(),
        random: random.clone(),
        node: identity.node,
        incarnation: identity.incarnation,
        budget: incoming,
        keepers: Budget::new(base::limit::KEEPERS_MEMORY_MAX),
        outgoing,
        messages: Budget::new(base::limit::LARGE_MESSAGES_MAX),
        calls: Budget::new(base::limit::CALLS_MEMORY_MAX),
        device_calls: Budget::new(base::limit::DEVICE_CALLS_MEMORY_MAX),
        urgent: Budget::new(base::limit::URGENT_CALLS_MEMORY_MAX),
        answers: net::AnswerMemory::default(),
        places: base::places::Places::new(connections(world.open_files())),
        pool,
        clock,
        silence_max: base::limit::CALL_SILENCE_MAX,
        stats,
        on_trouble: told(&node.troubles, "connection"),
        on_request: noted(&node.troubles, "connection"),
    };
    let listeners = Listeners { store: listener, console: console_listener, hdfs: hdfs_listener };
    let given = (server_settings, world.open_files());
    let tasks = begin(&node, listeners, given, (network, itself, &settings), forms).await?;
    Ok(Running { address, console, hdfs, notes, missing: node.missing.clone(), tasks, node, engines })
}

fn address_of(listener: &Option<Box<dyn Listener>>) -> Option<String> {
    listener.as_ref().map(|listener| listener.address())
}

/// Keeps all that payload on its way may take, so that a steady stream meets no fresh memory.
fn pool_of(settings: &Settings) -> Pool {
    let idle_max = settings.incoming_bytes.saturating_add(settings.outgoing_bytes);
    Pool::new(usize::try_from(idle_max).unwrap_or(usize::MAX))
}

/// Where devices were at the last start, without those that somebody said are gone for good; but one that is there is not.
fn places_of(settings: &Settings, world: &dyn World, directory: &Path, notes: &mut Vec<String>) -> Result<DevicePaths> {
    let mut places = DevicePaths::read(world, directory)?;
    for new in &settings.as_new {
        if !world.exists(&identity_in(new))? {
            places.forget(new);
            continue;
        }
        notes.push(format!(
            "{}: --as-new changed nothing: a device is there, and is kept; take --as-new out again, or a later start at which this disk is not \
             mounted makes a new device in its place; only to give up what is on the device, empty the directory first",
            shown(new)
        ));
    }
    Ok(places)
}

/// The node that keeps the metadata is one of the store's from now on; and it looks up whose the devices of its earlier starts are by now.
async fn join(metadata: &Metadata, itself: NodeInfo, places: &mut DevicePaths) -> Result<()> {
    let node = itself.node;
    metadata.ask(meta::Request::NodeJoin { node: itself }).await?;
    let known = devices_of(metadata).await?;
    let nodes = nodes_of(metadata).await?;
    // Another node may have been started with one of its devices meanwhile, which then is that node's.
    let of_another = |other| other != node && nodes.contains(&other);
    places.compare(|device| match known.iter().find(|info| info.device == device) {
        Some(info) if of_another(info.node) => Standing::Elsewhere,
        Some(_) => Standing::Here,
        None => Standing::Removed,
    });
    Ok(())
}

/// Tells the metadata store which devices can be used, if this node keeps it.
async fn report(metadata: Option<&Metadata>, node: NodeId, devices: &BTreeMap<DeviceId, Arc<Device>>) -> Result<()> {
    if let Some(metadata) = metadata {
        let devices = devices.keys().copied().collect();
        metadata.ask(meta::Request::NodeReport { node, keeps: true, devices }).await?;
    }
    Ok(())
}

/// Writes down which device is where; a member on all of its disks. On the devices of the node that keeps the metadata stands where these
/// are.
fn note_devices(
    settings: &Settings,
    world: &dyn World,
    directory: &Path,
    places: &DevicePaths,
    devices: &BTreeMap<DeviceId, Arc<Device>>,
) -> Result<Vec<String>> {
    places.write(world, settings.backend)?;
    let there = |path: &Path| devices.values().any(|device| device.place == shown(path));
    if *settings.meta() == MetaPlace::Local {
        let devices: Vec<DeviceSetting> =
            settings.devices.iter().filter(|device| there(&device.directory)).cloned().collect();
        return Ok(keeping::note(world, directory, &devices, settings.backend));
    }
    home::copy(world, directory, &settings.devices, there, settings.backend)
}

/// How this node reaches others.
fn links_of(
    settings: &Settings,
    identity: &Identity,
    (pool, clock, random): (&Pool, &Arc<dyn Clock>, &Arc<dyn Random>),
) -> LinkSettings {
    LinkSettings {
        session: SessionId(identity.node.0),
        program: "stormwell serve".to_string(),
        connections: 1,
        silence_max: base::limit::NODE_SILENCE_MAX,
        pool: pool.clone(),
        clock: clock.clone(),
        random: random.clone(),
        credentials: settings.credentials(),
        asker: Asker::Node { node: identity.node, incarnation: identity.incarnation, term: 0 },
        numbers: CallNumbers::default(),
        meant: None,
        once: false,
    }
}

/// Where a node listens.
struct Listeners {
    store: Box<dyn Listener>,
    console: Option<Box<dyn Listener>>,
    hdfs: Option<Box<dyn Listener>>,
}

/// What a node does at once, until it is told to stop.
struct Tasks {
    shutdown: Stop,
    server: tokio::task::JoinHandle<()>,
    /// Housekeeping, or reporting to the node that does it.
    by_itself: tokio::task::JoinHandle<()>,
    console: Option<tokio::task::JoinHandle<()>>,
    hdfs: Option<Hdfs>,
}

/// Begins to serve.
async fn begin(
    node: &Arc<Node>,
    listeners: Listeners,
    (settings, open_files): (ServerSettings, Option<u64>),
    (net, itself, said): (Arc<dyn Net>, NodeInfo, &Settings),
    forms: Option<Forms>,
) -> Result<Tasks> {
    let (shutdown, stopped) = Stop::new();
    let ServerSettings { incarnation, pool, random, credentials, .. } = settings.clone();
    let by_itself: Boxed<'static, ()> = match &node.role {
        Role::Keeper(keeper) => {
            keeper.metadata.tell_to(node.troubles.clone());
            // Before anybody is served: the first call and the first report are to find that it leads.
            Box::pin(control::begin(node, keeper, keeper.metadata.part().term()).until(stopped.clone()))
        }
        Role::Member(membership) => {
            let itself = cluster::wire_node(itself);
            Box::pin(membership::reporting::run(node.clone(), membership.clone(), itself, stopped.clone()))
        }
        Role::Several(several) => {
            if several.formation.is_none() {
                let text =
                    "this node keeps no metadata: its own address, `advertise` or `listen`, is none of `keepers`";
                node.log.say(Level::Info, "keepers", text, &[("address", &itself.address)]);
            }
            let itself = cluster::wire_node(itself);
            let reports = membership::reporting::run(node.clone(), several.membership.clone(), itself, stopped.clone());
            let keeps = forms.map(|Forms { open, links }| {
                control::turns::run(node.clone(), (net.clone(), links), open, stopped.clone())
            });
            Box::pin(async move {
                // Side by side in one task, so that who goes on first is no chance.
                tokio::join!(reports, async {
                    if let Some(keeps) = keeps {
                        keeps.await;
                    }
                });
            })
        }
    };
    let service = Arc::new(NodeService(node.clone()));
    let server = tokio::spawn(Server::serve(listeners.store, service, settings, stopped.clone()));
    let by_itself = tokio::spawn(by_itself);
    let (keepers, min_block_size) = (said.meta().elsewhere(), said.hdfs_min_block_size);
    let (on_trouble, on_request) = (told(&node.troubles, "hdfs"), noted(&node.troubles, "hdfs"));
    let given = hdfs::Given {
        node: node.clone(),
        incarnation,
        pool,
        random,
        net,
        credentials,
        keepers,
        min_block_size,
        connections: connections(open_files),
        on_trouble,
        on_request,
    };
    let hdfs = match listeners.hdfs {
        Some(listener) => Some(Hdfs::start(given, listener, stopped.clone()).await?),
        None => None,
    };
    let places = base::places::Places::new(console_connections(open_files));
    let answer = |listener| tokio::spawn(console::run(listener, node.clone(), places, stopped));
    let console = listeners.console.map(answer);
    Ok(Tasks { shutdown, server, by_itself, console, hdfs })
}

/// What every device is opened with.
struct Given<'a> {
    settings: &'a Settings,
    world: &'a dyn World,
    /// What the node keeps of itself is there, and the metadata if it keeps them.
    directory: &'a Path,
    pool: &'a Pool,
    outgoing: &'a Budget,
    clock: &'a Arc<dyn Clock>,
    loans: &'a Arc<Loans>,
}

/// The devices of a node, and those that should be and are not.
#[derive(Default)]
struct OpenDevices {
    devices: BTreeMap<DeviceId, Arc<Device>>,
    disks: BTreeMap<DeviceId, Arc<DiskStats>>,
    missing: Vec<Missing>,
    /// Why devices are left out that were removed from the store, a sentence each.
    removed: Vec<String>,
    engines: Vec<Ended>,
    notes: Vec<String>,
    /// What recovery found damaged.
    damage: Vec<String>,
}

/// Opens all devices that are there and tells the metadata store of them, if this node keeps it.
async fn open_devices(
    given: &Given<'_>,
    random: &dyn Random,
    metadata: Option<&Metadata>,
    node: NodeId,
    places: &mut DevicePaths,
) -> Result<OpenDevices> {
    let mut open = OpenDevices::default();
    let in_memory = given.settings.devices.iter().filter(|setting| setting.class == Class::Memory);
    let said: Vec<Option<u64>> = in_memory.map(|setting| setting.capacity).collect();
    let mut in_memory = memory_capacities(&said, || given.world.free_memory())?.into_iter();
    for setting in &given.settings.devices {
        if let Some(lost) = places.lost(given.world, setting)? {
            open.missing.push(lost);
            continue;
        }
        // Its disk may have been taken away, and this be where it was mounted.
        if setting.class != Class::Memory
            && let Some(device) = places.removed_at(setting)
            && !given.world.exists(&setting.identity())?
        {
            open.removed.push(left_out(&shown(&setting.directory), device, 0));
            continue;
        }
        let Prepared { start, stats, note } = match prepare_device(given, setting, &mut in_memory, random) {
            Ok(prepared) => prepared,
            Err(error) => {
                open.missing.push(places.unreadable(setting, error)?);
                continue;
            }
        };
        open.notes.extend(note);
        let place = start.place.clone();
        // A device that was removed may have been another store's since, whose chunks are then on it.
        let is_ours = || keeping::is_of(given.world, setting, given.directory);
        let Started { device, ended, opened } = match device::spawn(given.world, start) {
            Ok(started) => started,
            Err(error) => {
                match places.removed_at(setting).filter(|_| DevicePaths::is_of_the_disk(&error) && is_ours()) {
                    Some(device) => {
                        let state = format!("cannot be opened ({error})");
                        open.removed.push(left_out_as_it_is(&place, device, &state));
                    }
                    None => {
                        open.missing.push(places.unreadable(setting, error).map_err(|error| error.during(&place))?);
                    }
                }
                continue;
            }
        };
        let chunks = device.usage().chunks;
        // An older program removed devices without a mark in the metadata; that one is none of theirs any more says the file of places.
        let was_removed = places.was_removed(device.id) || was_removed(metadata, device.id).await?;
        if was_removed && (chunks == 0 || is_ours()) {
            open.removed.push(left_out(&place, device.id, chunks));
            places.stays_removed(setting, device.id);
            device.send(device::Item::Stop);
            open.engines.push(ended);
            continue;
        }
        places.found(setting, device.id);
        open.damage.extend(opened.rot.iter().map(|rot| format!("{place}: {rot}")));
        if opened.formatted {
            open.notes.push(format!("{place}: made a new device of {}", show_bytes(device.usage().capacity)));
        }
        open.disks.insert(device.id, stats);
        if let Some(metadata) = metadata {
            let registered = register(metadata, node, &device, given.clock.wall()).await;
            if registered.map_err(|error| error.during(&place))? && !opened.formatted {
                open.notes.push(format!(
                    "{place}: this device was empty and none of the store's; it is one of them from now on"
                ));
            }
        }
        if open.devices.insert(device.id, device.clone()).is_some() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{} holds a copy of a device that is named already; leave one of them out", device.place),
            ));
        }
        open.engines.push(ended);
    }
    // A member cannot know which of the devices that it had are the store's still; the node that keeps the metadata can.
    if metadata.is_some() {
        open.missing.extend(places.left_out(&given.settings.devices));
    }
    Ok(open)
}

impl Running {
    /// What runs.
    #[cfg(test)]
    pub(crate) fn node(&self) -> Arc<Node> {
        self.node.clone()
    }

    /// Stops taking calls, lets what is under way end, and ends the threads. Everything acknowledged is on disk already.
    pub fn stop(self) -> Boxed<'static, ()> {
        Box::pin(self.end())
    }

    async fn end(self) {
        // While this node still serves: who asks it is told who leads, and goes there.
        if let Some(keeper) = self.node.keeper() {
            keeper.metadata.hand_over().await;
        }
        // Both tasks end by themselves on this; a receiver that is gone already has ended.
        let Tasks { shutdown, server, by_itself, console, hdfs } = self.tasks;
        shutdown.stop();
        if let Some(hdfs) = hdfs {
            hdfs.end().await;
        }
        for task in [server, by_itself].into_iter().chain(console) {
            let _ = task.await;
        }
        // Its jobs are over. What calls needed of it until now, they had.
        if let Some(keeper) = self.node.keeper() {
            keeper.end().await;
        }
        for device in self.node.devices.values() {
            device.send(device::Item::Stop);
        }
        if let Some(keeper) = self.node.keeper() {
            keeper.metadata.send(metadata::Item::Stop);
        }
        let mut engines = self.engines;
        if let Role::Several(several) = &self.node.role {
            // What was under way has been agreed on with the others, or never will be.
            several.falls_silent();
            engines.extend(several.engines());
        }
        drop(self.node);
        for ended in engines {
            // An engine whose thread panicked has said so on stderr; the others still end.
            let _ = ended.await;
        }
    }
}

/// Says what is damaged and which devices are missing. An error if no other is served than these and those that were removed.
fn tell_of_devices(
    log: &Log,
    (missing, removed, damage): (&[Missing], &[String], &[String]),
    others: bool,
) -> Result<()> {
    damage.iter().for_each(|damage| log.say(Level::Error, "device", damage, &[]));
    for lost in missing {
        log.say(Level::Error, "device", &lost.why, &[("place", &lost.place), ("device", &lost.device)]);
    }
    match missing.first() {
        Some(lost) if !others => {
            let text = format!("no device can be served: {}: {}", lost.place, lost.why);
            return Err(Error::new(ErrorKind::Io, text));
        }
        _ => (),
    }
    match removed.first() {
        Some(why) if !others => Err(Error::new(ErrorKind::Invalid, format!("no device can be served: {why}"))),
        _ => Ok(()),
    }
}

/// Tells why connections to `area` were refused or cut.
fn told(troubles: &Troubles, area: &'static str) -> Arc<dyn Fn(String) + Send + Sync> {
    let troubles = troubles.clone();
    Arc::new(move |trouble| troubles.tell(area, &trouble, &[]))
}

/// Tells of requests over connections to `area` that were slow, or failed.
fn noted(troubles: &Troubles, area: &'static str) -> Arc<Noting> {
    let troubles = troubles.clone();
    Arc::new(move |notable| troubles.note(area, notable))
}

/// The listener of a server beside the store's own, named as its option is. A port that was only a suggestion gives way to a free
/// one, and says so.
async fn listen(door: &Door, name: &str, network: &dyn Net, log: &Log) -> Result<Option<Box<dyn Listener>>> {
    let wanted = match door {
        Door::Off => return Ok(None),
        Door::At(address) => {
            let listened = network.listen(address).await;
            return listened.map(Some).map_err(|error| error.during(format!("--{name}")));
        }
        Door::Near(address) => address,
    };
    match network.listen(wanted).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) => {
            let host = wanted.rsplit_once(':').map_or(wanted.as_str(), |(host, _)| host);
            let listener = network.listen(&format!("{host}:0")).await?;
            let at = listener.address();
            log.say(Level::Warn, name, "its usual port is taken; a free one is used", &[("at", &at), ("why", &error)]);
            Ok(Some(listener))
        }
    }
}

/// Tells the metadata store of a device. One that holds chunks and is not known there belongs to another store: serving
/// it would mean deleting everything on it. Answers whether it is new there.
async fn register(metadata: &Metadata, node: NodeId, device: &Device, now: WallTime) -> Result<bool> {
    let known = devices_of(metadata).await?;
    let new = !known.iter().any(|info| info.device == device.id);
    if known.iter().any(|info| info.device == device.id && info.draining) {
        device.begin_draining(now);
    }
    let usage = device.usage();
    if usage.chunks > 0 && new {
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
    metadata.ask(control::reports::report_of([device].into_iter())).await?;
    Ok(new)
}

/// Whether a device of this node was taken out of the store. A member is told so when it reports.
async fn was_removed(metadata: Option<&Metadata>, device: DeviceId) -> Result<bool> {
    match metadata {
        Some(metadata) => Ok(!metadata.removed(vec![device]).await?.is_empty()),
        None => Ok(false),
    }
}

async fn nodes_of(metadata: &Metadata) -> Result<Vec<NodeId>> {
    match metadata.ask(meta::Request::NodeList).await? {
        meta::Reply::Nodes { nodes, .. } => Ok(nodes.iter().map(|node| node.info.node).collect()),
        other => unreachable!("nodes were asked for: {other:?}"),
    }
}

async fn devices_of(metadata: &Metadata) -> Result<Vec<DeviceInfo>> {
    match metadata.ask(meta::Request::DeviceList).await? {
        meta::Reply::Devices(known) => Ok(known),
        other => unreachable!("devices were asked for: {other:?}"),
    }
}

/// A device that is about to be opened.
struct Prepared {
    start: device::Start,
    /// What its disk does from now on.
    stats: Arc<DiskStats>,
    /// What people should know about its disk.
    note: Option<String>,
}

/// What each device in memory may take of what is free when the node starts: as much as is said, the others together a quarter, in equal
/// parts, and all of them never more than three quarters, because a system without memory kills whatever it likes.
fn memory_capacities(said: &[Option<u64>], free: impl FnOnce() -> Result<u64>) -> Result<Vec<u64>> {
    if said.is_empty() {
        return Ok(Vec::new());
    }
    let free = free()?;
    let most = free / 4 * 3;
    let wanted = said.iter().flatten().fold(0, |sum: u64, said| sum.saturating_add(*said));
    let unsaid = said.iter().filter(|said| said.is_none()).count() as u64;
    let each = (free / 4).min(most.saturating_sub(wanted)) / unsaid.max(1);
    if wanted > most || unsaid > 0 && each == 0 {
        let (wanted, most, free) = (show_bytes(wanted), show_bytes(most), show_bytes(free));
        let text = format!(
            "memory devices of {wanted} together are more than {most}, three quarters of the {free} of memory that are free, or leave nothing \
             of that to those without a capacity; nothing was changed; give them less, DIR:memory:CAPACITY, or leave the capacities out for a \
             quarter"
        );
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    Ok(said.iter().map(|said| said.unwrap_or(each)).collect())
}

fn prepare_device(
    given: &Given<'_>,
    setting: &DeviceSetting,
    in_memory: &mut impl Iterator<Item = u64>,
    random: &dyn Random,
) -> Result<Prepared> {
    let Given { settings, world, pool, outgoing, clock, loans, .. } = *given;
    let place = shown(&setting.directory);
    let directory = setting.chunks();
    let backend = if setting.class == Class::Memory { Backend::Memory } else { settings.backend };
    let opened = world.disk(&directory, backend, pool.clone())?;
    let note = opened.note.map(|note| format!("{place}: {note}"));
    let capacity = match (setting.class, setting.capacity) {
        (Class::Memory, _) => in_memory.next().unwrap_or_default(),
        (_, Some(capacity)) => capacity,
        (_, None) => world.free_bytes(&setting.directory)? / 10 * 9,
    };
    let stats = Arc::new(DiskStats::default());
    let start = device::Start {
        disk: MeteredDisk::wrap(opened.disk, stats.clone(), clock.clone()),
        settings: chunk::Settings {
            keep_capacity: setting.capacity.is_none(),
            ..world.chunk_settings(capacity, pool.clone())
        },
        new_id: DeviceId(random.wide()),
        class: setting.class,
        place,
        clock: clock.clone(),
        outgoing: outgoing.clone(),
        loans: loans.clone(),
    };
    Ok(Prepared { start, stats, note })
}

#[cfg(test)]
mod tests {
    use super::memory_capacities;
    use base::error::ErrorKind;
    use base::unit::GIB;

    /// Memory devices that are told nothing share a quarter of what is free; all together are refused more than three quarters. Without one
    /// nobody has to know what is free.
    #[test]
    fn memory_devices() {
        let of_eight = |said: &[Option<u64>]| memory_capacities(said, || Ok(8 * GIB));
        assert_eq!(of_eight(&[None]).ok(), Some(vec![2 * GIB]));
        assert_eq!(of_eight(&[None; 4]).ok(), Some(vec![GIB / 2; 4]));
        assert_eq!(of_eight(&[Some(6 * GIB)]).ok(), Some(vec![6 * GIB]));
        assert_eq!(of_eight(&[Some(5 * GIB), None, None]).ok(), Some(vec![5 * GIB, GIB / 2, GIB / 2]));
        for said in [&[Some(6 * GIB + 1)][..], &[Some(2 * GIB); 4], &[Some(6 * GIB), None], &[Some(u64::MAX); 2]] {
            let refused = of_eight(said).expect_err("too much");
            assert_eq!(refused.kind(), ErrorKind::Invalid);
            assert!(refused.text().contains("three quarters of the 8.0 GiB"), "{refused}");
        }
        assert_eq!(memory_capacities(&[], || panic!("nobody asked")).ok(), Some(Vec::new()));
    }
}
