//! Leaderships that begin and end on nodes that serve, and what a keeper does that does not lead.

mod copies;

use super::Leading;
use crate::control::begin;
use crate::control::moving::Move;
use crate::device::Device;
use crate::device::control::Copied;
use crate::device_handle::DeviceHandle;
use crate::node::{Keeper, Node};
use crate::serve::{Running, start};
use crate::settings::{Cluster, DeviceSetting, MetaPlace, Settings};
use crate::world::OsWorld;
use crate::{health, metrics};
use base::buffer::Pool;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, ClusterId, Generation, GroupId, SessionId};
use base::policy::{Class, Level};
use bytes::Bytes;
use net::message::{bag, cluster as wire, session};
use net::{Asker, CallNumbers, Credentials, Link, LinkSettings, Payload};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{sleep, timeout};

const ID: ClusterId = ClusterId(0x1234);

/// How long it is waited for what has to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A node in a directory of its own.
struct Served {
    running: Running,
    node: Arc<Node>,
    directory: PathBuf,
}

impl Served {
    /// With so many devices, none of which the metadata lie beside.
    async fn start(name: &str, devices: usize, keeper: Option<&str>) -> Served {
        let directory = std::env::temp_dir().join(format!("stormwell-leading-{name}-{}", std::process::id()));
        let device = |number: usize| {
            let directory = directory.join(number.to_string());
            DeviceSetting { directory, class: Class::Ssd, capacity: Some(256 << 20) }
        };
        let meta = keeper.map_or(MetaPlace::Local, |address| MetaPlace::Node(address.to_string()));
        let metadata_dir = keeper.is_none().then(|| directory.join("metadata"));
        let place = Cluster { name: name.to_string(), meta, ..Cluster::new(ID) };
        let devices = (0..devices).map(device).collect();
        let settings = Settings { cluster: Some(place), metadata_dir, ..Settings::new("127.0.0.1:0", devices) };
        let (net, clock) = (Arc::new(os::net::TcpNet), Arc::new(os::clock::SystemClock::new()));
        let random = Arc::new(os::random::SystemRandom);
        let running = start(settings, Arc::new(OsWorld), net, clock, random).await.expect("it starts");
        let node = running.node();
        Served { running, node, directory }
    }

    fn keeper(&self) -> &Keeper {
        self.node.keeper().expect("it keeps the metadata")
    }

    /// Leads in this term, without jobs.
    async fn leads_idly(&self, term: u64) -> Arc<Leading> {
        self.keeper().end().await;
        self.keeper().leads(&self.node, term)
    }

    async fn link(&self) -> Link {
        let settings = LinkSettings {
            session: SessionId(7 << 64),
            program: "node test".to_string(),
            connections: 1,
            silence_max: base::limit::CALL_SILENCE_MAX,
            pool: Pool::new(1 << 20),
            clock: Arc::new(os::clock::SystemClock::new()),
            random: Arc::new(os::random::SystemRandom),
            credentials: Credentials { cluster: Some(ID), secret: None },
            asker: Asker::Client,
            numbers: CallNumbers::default(),
            meant: None,
            once: false,
        };
        Link::connect(Arc::new(os::net::TcpNet), &self.running.address, settings).await.expect("it answers")
    }

    async fn stop(self) {
        drop(self.node);
        self.running.stop().await;
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let waits = async {
        while !condition() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(PATIENCE, waits).await.is_ok(), "in vain: {what}");
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|error: Error| error.kind())
}

/// A keeper that leads fifty times leaves nothing of it: no job and nobody who works for one, no link, nobody who waits for work. While it does not
/// lead it says so, and the orders of an earlier leadership go nowhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_times() {
    let keeps = Served::start("keeps", 1, None).await;
    let member = Served::start("member", 1, Some(&keeps.running.address)).await;
    let (node, keeper, device) = (&keeps.node, keeps.keeper(), member.node.devices.keys().next().copied());
    let device = device.expect("it has one");
    let is_there = || keeper.leading().is_some_and(|leading| leading.peers.device(device).is_some());
    until("the member reports", is_there).await;
    let first = keeper.leading().expect("it leads").term;
    let view = node.view(false).await.expect("a view");
    let itself = view.members.iter().find(|member| member.node.node.value() != node.id.0).expect("two").node.clone();
    let asker = Asker::Node { node: member.node.id, incarnation: itself.incarnation, term: 0 };
    let link = keeps.link().await;
    link.call(&session::Renew::default(), Payload::empty()).await.expect("a session");
    keeper.end().await;
    let alive = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = alive();
    assert!(first > 0, "a lone keeper leads in a term, too");
    for term in first + 1..=first + 50 {
        let leading = begin(node, keeper, term);
        assert_eq!(node.leading().map(|found| found.term), Ok(term));
        let devices = member.node.own_devices();
        let report = wire::Report { node: itself.clone(), devices, ..wire::Report::default() };
        node.take_report(&leading, asker, report).await.expect("it is one of the cluster's");
        let handle = leading.device_handle(node, device).expect("it was reported");
        handle.inventory(None, 1).await.expect("its node obeys");
        let work = Arc::new(AtomicU64::new(0));
        let (counted, of) = (work.clone(), leading.clone());
        let detached = tokio::spawn(async move {
            let works = async {
                loop {
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            };
            of.meanwhile::<()>(works).await
        });
        until("its jobs begin", || keeper.metadata.registered().0 == 3 && work.load(Ordering::Relaxed) > 0).await;

        keeper.end().await;
        let done = work.load(Ordering::Relaxed);
        assert_eq!(keeper.metadata.registered().0, 0);
        assert_eq!(kind(node.leading()), Some(ErrorKind::Moved));
        let bags = bag::List { after: String::new(), limit: 1 };
        assert_eq!(kind(link.call(&bags, Payload::empty()).await), Some(ErrorKind::Moved));
        assert_eq!(kind(handle.inventory(None, 1).await), Some(ErrorKind::Moved));
        let late = wire::Report { node: itself.clone(), ..wire::Report::default() };
        drop(node.take_report(&leading, asker, late).await);
        assert_eq!(kind(handle.inventory(None, 1).await), Some(ErrorKind::Moved), "a late report opens nothing");
        assert_eq!(work.load(Ordering::Relaxed), done, "nobody works for it");
        assert!(matches!(timeout(PATIENCE, detached).await, Ok(Ok(None))), "it hears of the end");
        let weak = Arc::downgrade(&leading);
        drop((handle, leading));
        until("nobody has it any more", || weak.strong_count() == 0).await;
    }
    // Of each leadership one would be left at the least: fifty. The member's reports come and go.
    until("no task is left", || alive() < before + 10).await;
    drop(link);
    member.stop().await;
    keeps.stop().await;
}

async fn written(device: &Device, (group, chunk): (GroupId, ChunkId), offset: u64) -> Result<()> {
    let (generation, bytes) = (Generation(1), Bytes::from(vec![7; 4096]));
    let piece = Copied { generation, offset, bytes, level: Level::Synced, small_parts: false, cell: 0 };
    device.append((group, chunk), piece).await
}

/// A move of a chunk with some bytes from the first device to the second, and both.
async fn begun(keeps: &Served, leading: &Arc<Leading>) -> (Move, Vec<Arc<Device>>) {
    let devices: Vec<Arc<Device>> = keeps.node.devices.values().cloned().collect();
    let (group, chunk) = (GroupId(1), ChunkId(1));
    written(&devices[0], (group, chunk), 0).await.expect("room");
    let (from, to) = (DeviceHandle::Local(devices[0].clone()), DeviceHandle::Local(devices[1].clone()));
    let one = Move::begin((&keeps.node, leading), (group, chunk), (from, to)).await.expect("nobody else copies it");
    (one, devices)
}

/// A move whose keeper leads no more when it names the copy ends, and lets go of what it claimed. Whether the copy is named is not known: it
/// stays, and nothing is written to the original any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_and_not_known() {
    let keeps = Served::start("moves", 2, None).await;
    let leading = keeps.leads_idly(2).await;
    let (one, devices) = begun(&keeps, &leading).await;
    let (group, chunk) = (one.copying.group, one.copying.chunk);
    keeps.keeper().metadata.moved.store(true, Ordering::Relaxed);
    let moved = timeout(PATIENCE, one.run()).await.expect("it does not ask for ever");
    assert_eq!(kind(moved), Some(ErrorKind::Moved));
    assert!(leading.jobs.groups.try_claim(group).is_some(), "nobody has it");
    let copy = devices[1].stat(chunk).await.expect("it answers");
    assert_eq!(copy.map(|copy| copy.length), Some(4096), "it may be named");
    let later = timeout(PATIENCE, written(&devices[0], (group, chunk), 4096)).await.expect("nobody waits for it");
    assert_eq!(kind(later), Some(ErrorKind::Io));
    keeps.keeper().metadata.moved.store(false, Ordering::Relaxed);
    drop((one, devices, leading));
    keeps.stop().await;
}

/// A node whose keeper does not lead is as well as any: it is ready, and says all of itself that it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn well_without_leading() {
    let keeps = Served::start("well", 1, None).await;
    let has = |page: &str, name: &str| page.lines().any(|line| line.starts_with(name));
    let page = metrics::page::page(&keeps.node).await.expect("a page");
    assert!(has(&page, "stormwell_files ") && has(&page, "stormwell_device"), "{page}");
    keeps.keeper().end().await;
    keeps.keeper().metadata.moved.store(true, Ordering::Relaxed);
    let health = health::look(&keeps.node).await;
    assert!(health.ready && health.troubles.is_empty(), "{health:?}");
    let page = metrics::page::page(&keeps.node).await.expect("a page");
    assert!(!has(&page, "stormwell_files "), "{page}");
    for stays in ["stormwell_disk_seconds", "stormwell_damaged_ends_total", "stormwell_devices_missing"] {
        assert!(has(&page, stays), "{stays}: {page}");
    }
    keeps.keeper().metadata.moved.store(false, Ordering::Relaxed);
    keeps.stop().await;
}

/// A move that is cut short while the chunk's writers wait for it lets nobody wait: they are refused, as it is not known where the chunk is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_while_writers_wait() {
    let keeps = Served::start("cut", 2, None).await;
    let leading = keeps.leads_idly(2).await;
    let (one, devices) = begun(&keeps, &leading).await;
    let (group, chunk) = (one.copying.group, one.copying.chunk);
    // Somebody works on the group, for which the move waits while it holds the chunk.
    let claim = leading.jobs.groups.try_claim(group);
    let of = leading.clone();
    let moving = tokio::spawn(async move { of.meanwhile(one.run()).await });
    let mut offset = 4096;
    let waits = async {
        while timeout(Duration::from_millis(200), written(&devices[0], (group, chunk), offset)).await.is_ok() {
            offset += 4096;
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waits).await.expect("a writer waits");
    keeps.keeper().end().await;
    assert!(matches!(moving.await, Ok(None)));
    drop(claim);
    let later = timeout(PATIENCE, written(&devices[0], (group, chunk), offset)).await.expect("nobody waits for it");
    assert_eq!(kind(later), Some(ErrorKind::Io));
    drop((devices, leading));
    keeps.stop().await;
}

/// A drain that is recorded, and was not begun because the leadership was over then, is begun by the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_and_not_begun() {
    let keeps = Served::start("recorded", 2, None).await;
    let device = keeps.node.devices.values().next().cloned().expect("two");
    let leading = keeps.leads_idly(2).await;
    let caller = meta::Caller { session: SessionId(7 << 64), call: 0, floor: 0 };
    let user = meta::request::User { name: "ada".to_string(), groups: Vec::new() };
    leading.metadata.ask_for(caller, meta::Request::OpenSession { user }).await.expect("a session");
    leading.metadata.ask_for(caller, meta::Request::DeviceDrain { device: device.id }).await.expect("recorded");
    keeps.keeper().end().await;
    assert!(!device.is_draining());
    let again = begin(&keeps.node, keeps.keeper(), 3);
    let begins = async {
        while !device.is_draining() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, begins).await.expect("it begins");
    drop((again, leading, device));
    keeps.stop().await;
}
