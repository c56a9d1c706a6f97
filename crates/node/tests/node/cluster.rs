//! Several nodes, of which one keeps the metadata: what is on any of them is one store.

use crate::failing::FailingWorld;
use crate::{AheadClock, until};
use base::buffer::Pool;
use base::error::{ErrorKind, Result};
use base::id::{ClusterId, SessionId};
use base::limit::{CALL_SILENCE_MAX, NODE_SILENCE_MAX, REPAIR_AFTER, SESSION_LEASE};
use base::policy::Class;
use bytes::Bytes;
use net::message::layout::Column;
use net::message::{Ask, Id, bag, chunk, cluster, device, file, session};
use net::{CallNumbers, Link, LinkSettings, Payload};
use node::{DeviceSetting, Door, MetaPlace, Running, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

mod copies;
mod identity;
mod leaving;
mod orders;
mod replicas;
mod requests;
mod sessions;
mod still;

/// The cluster that all of them are of.
const ID: ClusterId = ClusterId(77);

/// Nodes in directories that go with them. The first keeps the metadata; all have one clock.
pub struct Cluster {
    root: PathBuf,
    keeper: String,
    nodes: BTreeMap<usize, Running>,
    clock: Arc<AheadClock>,
    /// Where each serves HDFS.
    pub hdfs: Door,
    /// How long devices are away before they are given up by themselves.
    pub repair_after: Duration,
}

impl Cluster {
    /// No node runs yet.
    pub fn new(name: &str) -> Cluster {
        let root = std::env::temp_dir().join(format!("stormwell-cluster-{}-{name}", std::process::id()));
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let keeper = port.expect("a free port").to_string();
        let clock = Arc::new(AheadClock::new());
        Cluster { root, keeper, nodes: BTreeMap::new(), clock, hdfs: Door::Off, repair_after: REPAIR_AFTER }
    }

    /// `count` nodes that know each other.
    pub async fn start(name: &str, count: usize) -> Cluster {
        let mut cluster = Cluster::new(name);
        for number in 0..count {
            cluster.run(number).await;
        }
        cluster.all_there(count).await;
        cluster
    }

    pub fn directory(&self, number: usize) -> PathBuf {
        self.root.join(format!("n{number}"))
    }

    fn settings(&self, number: usize) -> Settings {
        let device = DeviceSetting { directory: self.directory(number), class: Class::Ssd, capacity: Some(256 << 20) };
        let listen = if number == 0 { &self.keeper } else { "127.0.0.1:0" };
        let meta = if number == 0 { MetaPlace::Local } else { MetaPlace::Node(self.keeper.clone()) };
        let place = node::Cluster { name: format!("n{number}"), meta, ..node::Cluster::new(ID) };
        let settings = Settings::new(listen, vec![device]);
        Settings { cluster: Some(place), hdfs: self.hdfs.clone(), repair_after: self.repair_after, ..settings }
    }

    pub async fn run(&mut self, number: usize) {
        let running = self.try_run(self.settings(number)).await.expect("the node starts");
        self.nodes.insert(number, running);
    }

    /// Runs one that others reach at this address. Where it listens.
    pub async fn run_as(&mut self, number: usize, advertise: &str) -> String {
        let mut settings = self.settings(number);
        if let Some(cluster) = &mut settings.cluster {
            cluster.advertise = Some(advertise.to_string());
        }
        let running = self.try_run(settings).await.expect("the node starts");
        let address = running.address.clone();
        self.nodes.insert(number, running);
        address
    }

    /// Those that are run from now on reach the first one at this address.
    pub fn keeper_is_at(&mut self, address: &str) {
        self.keeper = address.to_string();
    }

    async fn try_run(&self, settings: Settings) -> Result<Running> {
        self.try_run_in(Arc::new(node::OsWorld), settings).await
    }

    async fn try_run_in(&self, world: Arc<dyn node::World>, settings: Settings) -> Result<Running> {
        let random = Arc::new(os::random::SystemRandom);
        node::start(settings, world, Arc::new(os::net::TcpNet), self.clock.clone(), random).await
    }

    pub async fn stop(&mut self, number: usize) {
        self.nodes.remove(&number).expect("it runs").stop().await;
    }

    pub async fn stop_all(mut self) {
        for number in self.nodes.keys().copied().collect::<Vec<_>>() {
            self.stop(number).await;
        }
    }

    pub fn ahead(&self, time: Duration) {
        self.clock.ahead.fetch_add(time.as_secs() + 1, Ordering::Relaxed);
    }

    /// Waits until so many nodes are there and none is silent.
    pub async fn all_there(&self, count: usize) {
        let link = link_to(&self.keeper, 900).await;
        until("all nodes are there", async || {
            let view = ask(&link, &cluster::View::default()).await.expect("a view");
            view.members.len() == count
                && view.members.iter().all(|member| !member.silent && !member.devices.is_empty())
        })
        .await;
    }

    async fn client(&self, session: u128) -> Client {
        Client::begin(&self.keeper, session, CallNumbers::default()).await
    }

    /// The same session, with links to those who are there now.
    async fn again(&self, client: Client) -> Client {
        Client::begin(&self.keeper, client.session, client.numbers).await
    }

    /// Where a node serves HDFS.
    pub fn hdfs_of(&self, number: usize) -> &str {
        self.nodes[&number].hdfs.as_deref().expect("its gateway runs")
    }

    pub fn address(&self, number: usize) -> &str {
        &self.nodes[&number].address
    }

    /// How many calls of a kind a node has answered, as its metrics say.
    pub async fn calls(&self, number: usize, kind: &str) -> u64 {
        let link = link_to(self.address(number), 902).await;
        let (_, page) = link.call(&session::Look {}, Payload::empty()).await.expect("it looks");
        let page = String::from_utf8(page.into_bytes().to_vec()).expect("text");
        let name = format!("stormwell_calls_total{{kind=\"{kind}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().expect("a number"))
    }

    /// What a node says is wrong with it.
    async fn troubles(&self, number: usize) -> (bool, String) {
        let link = link_to(self.address(number), 901).await;
        let look = ask(&link, &session::Look {}).await.expect("it looks");
        (look.ready, look.troubles.join("; "))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.root);
    }
}

pub async fn link_to(address: &str, session: u128) -> Link {
    link_of(address, session, CallNumbers::default()).await
}

async fn link_of(address: &str, session: u128, numbers: CallNumbers) -> Link {
    let settings = link_settings(session, numbers);
    Link::connect(Arc::new(os::net::TcpNet), address, settings).await.expect("it answers")
}

fn link_settings(session: u128, numbers: CallNumbers) -> LinkSettings {
    LinkSettings {
        session: SessionId(session),
        program: "node test".to_string(),
        connections: 1,
        silence_max: CALL_SILENCE_MAX,
        pool: Pool::new(1 << 20),
        clock: Arc::new(os::clock::SystemClock::new()),
        random: Arc::new(os::random::SystemRandom),
        credentials: net::Credentials::default(),
        asker: net::Asker::Client,
        numbers,
        meant: None,
        once: false,
    }
}

pub async fn ask<A: Ask>(link: &Link, ask: &A) -> Result<A::Answer> {
    link.call(ask, Payload::empty()).await.map(|(answer, _)| answer)
}

/// A session with a link to each node.
struct Client {
    session: u128,
    numbers: CallNumbers,
    keeper: Link,
    links: Vec<(Vec<Id>, Link)>,
}

/// A file that is being written.
struct Open {
    path: String,
    opened: file::OpenedFile,
    written: u64,
}

impl Client {
    async fn begin(keeper: &str, session: u128, numbers: CallNumbers) -> Client {
        let link = link_of(keeper, session, numbers.clone()).await;
        ask(&link, &session::Renew::default()).await.expect("the session begins");
        let view = ask(&link, &cluster::View::default()).await.expect("a view");
        let mut links = Vec::new();
        for member in view.members.into_iter().filter(|member| !member.silent) {
            links.push((member.devices, link_of(&member.node.address, session, numbers.clone()).await));
        }
        Client { session, numbers, keeper: link, links }
    }

    /// The link to the node that has a device.
    fn at(&self, device: Id) -> &Link {
        &self.links.iter().find(|(devices, _)| devices.contains(&device)).expect("a node has it").1
    }

    /// All devices; those of the keeper's first.
    fn devices(&self) -> Vec<Id> {
        self.links.iter().flat_map(|(devices, _)| devices.clone()).collect()
    }

    /// A device of another node than the keeper.
    fn far(&self) -> Id {
        let is_far = |device: &Id| self.at(*device).node() != self.keeper.node();
        self.devices().into_iter().find(is_far).expect("two nodes")
    }

    async fn create(&self, path: &str) -> Result<Open> {
        let create = file::Create { path: path.to_string(), ..file::Create::default() };
        Ok(Open { path: path.to_string(), opened: ask(&self.keeper, &create).await?, written: 0 })
    }

    /// A file whose group is on this device.
    async fn create_on(&self, device: Id, name: &str) -> Open {
        for number in 0..1000 {
            let open = self.create(&format!("/{name}{number}")).await.expect("a file");
            if open.opened.group.layout.columns[0].device == device {
                return open;
            }
        }
        panic!("nothing is placed on {device:?}");
    }

    async fn append(&self, open: &mut Open, bytes: &[u8]) -> Result<()> {
        let file::NewGroup { group, layout, .. } = open.opened.group.clone();
        let Column { device, chunk, .. } = layout.columns[0];
        let (generation, offset) = (open.opened.generation, open.written);
        let ask = chunk::Append { device, chunk, group, generation, offset, level: 2, ..chunk::Append::default() };
        self.at(device).call(&ask, Payload::new(Bytes::copy_from_slice(bytes))).await?;
        open.written += bytes.len() as u64;
        Ok(())
    }

    async fn close(&self, open: &Open) -> Result<file::Attributes> {
        let close = file::Close {
            inode: open.opened.inode,
            generation: open.opened.generation,
            finished_group: open.opened.group.group,
            finished_length: open.written,
            ..file::Close::default()
        };
        ask(&self.keeper, &close).await
    }

    async fn read(&self, path: &str) -> Result<Vec<u8>> {
        let locate = file::Locate { path: path.to_string(), length: u64::MAX >> 1, ..file::Locate::default() };
        let located = ask(&self.keeper, &locate).await?;
        let mut all = Vec::new();
        for extent in located.extents {
            let mut at = 0;
            while at < extent.length {
                let length = (extent.length - at).min(4_000_000);
                let ranges = vec![chunk::Range { offset: extent.group_offset + at, length }];
                let Column { device, chunk, .. } = extent.layout.columns[0];
                let read = chunk::Read { device, chunk, ranges, ..chunk::Read::default() };
                let (_, payload) = self.at(device).call(&read, Payload::empty()).await?;
                all.extend_from_slice(&payload.into_bytes());
                at += length;
            }
        }
        Ok(all)
    }

    async fn bag(&self, name: &str, retain: bool) -> bag::Info {
        let create = bag::Create { name: name.to_string(), retain, ..bag::Create::default() };
        ask(&self.keeper, &create).await.expect("a bag")
    }

    async fn stat(&self, name: &str) -> Result<bag::Info> {
        ask(&self.keeper, &bag::Stat { name: name.to_string(), ..bag::Stat::default() }).await
    }

    async fn push(&self, bag: u64, device: Id, name: u128) -> Result<()> {
        let push = bag::Push { bag, device, chunk: name.into(), floor: 0 };
        let (answer, _) = self.at(device).call(&push, Payload::new(Bytes::from(vec![name as u8; 10_000]))).await?;
        answer.refused.map_or(Ok(()), |why| Err(why.into()))
    }

    async fn pull(&self, bag: u64, device: Id, grant: u64) -> bag::PullAnswer {
        let pull = bag::Pull { bag, device, grant, ..bag::Pull::default() };
        ask(self.at(device), &pull).await.expect("answered")
    }

    async fn acknowledge(&self, bag: u64, device: Id, (chunk, pass): (Id, u32), grant: u64) {
        let acknowledge = bag::Acknowledge {
            bag,
            device,
            pass,
            grants: vec![bag::Grant { chunk, grant }],
            retain: false,
            number: 0,
            floor: 0,
        };
        let answer = ask(self.at(device), &acknowledge).await.expect("answered");
        assert_eq!(answer.results[0].code, 0, "{answer:?}");
    }

    async fn listed(&self) -> Vec<file::Device> {
        ask(&self.keeper, &file::Devices {}).await.expect("devices").devices
    }

    /// Waits until no device of the store has a chunk.
    async fn all_free(&self) {
        until("all space comes back", async || {
            self.listed().await.iter().all(|device| !device.missing && device.chunks == 0)
        })
        .await;
    }
}

/// Nodes start in any order: those that wait say for what. Then files and bags live on the devices of all of them, are read back,
/// and what is deleted frees its space everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_store() {
    let mut cluster = Cluster::new("one");
    cluster.run(1).await;
    cluster.run(2).await;
    until("it says what it waits for", async || cluster.troubles(1).await.1.contains("does not answer")).await;
    let (ready, troubles) = cluster.troubles(2).await;
    assert!(!ready && troubles.contains(&cluster.keeper), "{troubles}");
    cluster.run(0).await;
    cluster.all_there(3).await;
    until("they are ready", async || cluster.troubles(1).await.0 && cluster.troubles(2).await.0).await;
    let client = cluster.client(1).await;
    let devices = client.devices();
    assert_eq!(devices.len(), 3);
    for (number, device) in devices.iter().enumerate() {
        let mut open = client.create_on(*device, &format!("f{number}-")).await;
        for part in 0..3_u8 {
            client.append(&mut open, &vec![part; 100_000]).await.expect("written");
        }
        client.close(&open).await.expect("closed");
        let expected: Vec<u8> = (0..3_u8).flat_map(|part| vec![part; 100_000]).collect();
        assert!(client.read(&open.path).await.expect("read") == expected);
    }
    let info = client.bag("b", false).await;
    assert_eq!(
        info.members.iter().map(|id| id.value()).collect::<BTreeSet<_>>(),
        devices.iter().map(|id| id.value()).collect()
    );
    for (number, device) in devices.iter().enumerate() {
        client.push(info.bag, *device, 100 + number as u128).await.expect("pushed");
    }
    let counted = client.stat("b").await.expect("counted");
    assert_eq!((counted.pushed, counted.waiting, counted.pushed_bytes), (3, 3, 30_000));
    let sealed = ask(&client.keeper, &bag::Seal { name: "b".to_string() }).await.expect("sealed");
    assert!(sealed.sealed);
    for (number, device) in devices.iter().enumerate() {
        assert!(client.push(info.bag, *device, 200).await.is_err(), "it takes no chunks any more");
        let pulled = client.pull(info.bag, *device, 7).await;
        assert_eq!((pulled.pulled, pulled.chunk.value()), (bag::Pulled::Chunk as i32, 100 + number as u128));
        client.acknowledge(info.bag, *device, (pulled.chunk, 0), 7).await;
        assert_eq!(client.pull(info.bag, *device, 8).await.pulled, bag::Pulled::Ended as i32);
    }
    let second = client.bag("kept", true).await;
    for (number, device) in devices.iter().enumerate() {
        client.push(second.bag, *device, 300 + number as u128).await.expect("pushed");
    }
    let rewound = ask(&client.keeper, &bag::Rewind { name: "kept".to_string() }).await.expect("rewound");
    assert_eq!((rewound.pass, rewound.waiting), (1, 3));
    until("what is there is reported", async || client.listed().await.iter().all(|device| device.chunks > 0)).await;
    for name in ["b", "kept"] {
        ask(&client.keeper, &bag::Delete { name: name.to_string() }).await.expect("deleted");
    }
    let entries =
        ask(&client.keeper, &file::List { path: "/".to_string(), ..file::List::default() }).await.expect("listed");
    for entry in entries.entries {
        let delete = file::Delete { path: format!("/{}", entry.name), recursive: false, ..file::Delete::default() };
        ask(&client.keeper, &delete).await.expect("deleted");
    }
    client.all_free().await;
    cluster.stop_all().await;
}

/// A file on another node whose writer is gone ends with what was written, and nothing of the ended session is taken there any
/// more, not even what was on its way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_is_gone() {
    let cluster = Cluster::start("gone", 2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let mut open = client.create_on(far, "f").await;
    client.append(&mut open, b"written").await.expect("written");
    let info = client.bag("b", false).await;
    client.push(info.bag, far, 1).await.expect("pushed");
    cluster.ahead(SESSION_LEASE);
    let late = client.append(&mut open, b" too late").await.expect_err("its session is over");
    assert_eq!(late.kind(), ErrorKind::Stale, "{late}");
    assert_eq!(client.push(info.bag, far, 2).await.expect_err("over").kind(), ErrorKind::Stale);
    cluster.all_there(2).await;
    let other = cluster.client(2).await;
    until("the file is closed", async || {
        let found = ask(&other.keeper, &file::Stat { path: open.path.clone() }).await.expect("it is there");
        !found.open && found.length == 7
    })
    .await;
    assert_eq!(other.read(&open.path).await.expect("read"), b"written");
    let mut again = Open { opened: open.opened.clone(), path: String::new(), written: 7 };
    assert_eq!(other.append(&mut again, b"!").await.expect_err("fenced").kind(), ErrorKind::Stale);
    let counted = other.stat("b").await.expect("counted");
    assert_eq!(counted.pushed, 1, "nothing more came");
    cluster.stop_all().await;
}

/// While a node is away, what is on it is an error that names it, nothing new goes there, and everything else goes on. It comes back
/// with its data, at another address, and what was deleted meanwhile goes there, too. Its open files go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_away() {
    let mut cluster = Cluster::start("away", 2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let mut kept = client.create_on(far, "kept").await;
    client.append(&mut kept, b"kept").await.expect("written");
    let mut deleted = client.create_on(far, "deleted").await;
    client.append(&mut deleted, &[1; 100_000]).await.expect("written");
    client.close(&deleted).await.expect("closed");
    let (stays, goes) = (client.bag("stays", false).await, client.bag("goes", false).await);
    for (bag, name) in [(stays.bag, 1), (goes.bag, 2)] {
        client.push(bag, far, name).await.expect("pushed");
    }
    let epoch = ask(&client.keeper, &cluster::View::default()).await.expect("a view").epoch;
    cluster.stop(1).await;
    let error = client.stat("stays").await.expect_err("a member is away");
    assert!(error.kind() == ErrorKind::Unreachable && error.text().contains("n1"), "{error}");
    let listed = ask(&client.keeper, &bag::List::default()).await.expect("the others are counted").bags;
    let counts: Vec<_> = listed.iter().map(|info| (&info.name[..], info.members.len(), info.unasked)).collect();
    assert_eq!(counts, [("goes", 2, 1), ("stays", 2, 1)]);
    let uncounted = bag::Stat { name: "stays".to_string(), uncounted: true, ..bag::Stat::default() };
    assert_eq!(ask(&client.keeper, &uncounted).await.expect("its members are known").members.len(), 2);
    cluster.clock.ahead.fetch_add(NODE_SILENCE_MAX.as_secs() + 1, Ordering::Relaxed);
    until("it is silent", async || {
        let view = ask(&client.keeper, &cluster::View::default()).await.expect("a view");
        view.members.iter().any(|member| member.silent && member.node.name == "n1")
    })
    .await;
    for number in 0..30 {
        let open = client.create(&format!("/new{number}")).await.expect("a file");
        assert!(open.opened.group.layout.columns[0].device != far, "placed on a silent node");
    }
    let near = client.bag("near", false).await;
    assert!(!near.members.contains(&far), "a silent node is no member of a new bag");
    ask(&client.keeper, &file::Delete { path: deleted.path, recursive: false, ..file::Delete::default() })
        .await
        .expect("deleted");
    ask(&client.keeper, &bag::Delete { name: "goes".to_string() }).await.expect("deleted");
    let listed = client.listed().await;
    let lost = listed.iter().find(|device| device.device == far).expect("it is listed");
    assert!(lost.missing && lost.trouble.contains("n1"), "{lost:?}");
    cluster.run(1).await;
    cluster.all_there(2).await;
    // The session is the same: it was open all the time.
    let client = cluster.again(client).await;
    assert!(ask(&client.keeper, &cluster::View::default()).await.expect("a view").epoch > epoch);
    until("what was deleted goes", async || {
        let listed = client.listed().await;
        listed.iter().find(|device| device.device == far).is_some_and(|device| device.chunks == 2)
    })
    .await;
    client.append(&mut kept, b" and more").await.expect("goes on");
    client.close(&kept).await.expect("closed");
    assert_eq!(client.read(&kept.path).await.expect("read"), b"kept and more");
    assert_eq!(client.stat("stays").await.expect("counted").waiting, 1);
    until("it is a member of the bag made meanwhile", async || {
        client.stat("near").await.is_ok_and(|info| info.members.contains(&far))
    })
    .await;
    cluster.stop_all().await;
}

/// While the node with the metadata is away, the others go on with what needs it not: reads, and writes of sessions that were open.
/// Afterwards all is as before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_keeper_is_away() {
    let mut cluster = Cluster::start("keeper", 2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    let mut open = client.create_on(far, "f").await;
    client.append(&mut open, b"one").await.expect("written");
    let info = client.bag("b", false).await;
    cluster.stop(0).await;
    client.append(&mut open, b", two").await.expect("an open session goes on");
    client.push(info.bag, far, 5).await.expect("pushed");
    let (pulled, view) = (client.pull(info.bag, far, 9).await, ask(client.at(far), &cluster::View::default()).await);
    assert_eq!(pulled.pulled, bag::Pulled::Chunk as i32);
    assert_eq!(view.expect("what it was told last").members.len(), 2);
    let stranger = link_to(cluster.address(1), 77).await;
    let push = bag::Push { bag: info.bag, device: far, chunk: 6.into(), floor: 0 };
    let waiting = tokio::spawn(async move { stranger.call(&push, Payload::new(Bytes::from_static(b"x"))).await });
    until("it waits for the keeper", async || !cluster.troubles(1).await.0).await;
    cluster.run(0).await;
    let refused = waiting.await.expect("no panic").expect_err("no session of this number is open");
    assert_eq!(refused.kind(), ErrorKind::Stale, "{refused}");
    cluster.all_there(2).await;
    let client = cluster.again(client).await;
    client.append(&mut open, b", three").await.expect("goes on");
    client.close(&open).await.expect("closed");
    assert_eq!(client.read(&open.path).await.expect("read"), b"one, two, three");
    let counted = client.stat("b").await.expect("counted");
    assert_eq!((counted.pushed, counted.granted), (1, 1));
    cluster.stop_all().await;
}

/// A bag of before gets the devices of a node that joins, knows of its pass there, and ends only when those are empty, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_joins() {
    let mut cluster = Cluster::start("joins", 1).await;
    let client = cluster.client(1).await;
    let info = client.bag("b", true).await;
    client.push(info.bag, info.members[0], 1).await.expect("pushed");
    ask(&client.keeper, &bag::Rewind { name: "b".to_string() }).await.expect("rewound");
    let sealed = client.bag("sealed", false).await;
    ask(&client.keeper, &bag::Seal { name: "sealed".to_string() }).await.expect("sealed");
    cluster.run(1).await;
    cluster.all_there(2).await;
    // Nobody counts, which would tell the new member of its pass.
    let uncounted = bag::Stat { name: "b".to_string(), uncounted: true, ..bag::Stat::default() };
    let now = async || ask(&client.keeper, &uncounted).await.expect("its members are known");
    until("it is a member", async || now().await.members.len() == 2).await;
    let now = now().await;
    assert!(now.epoch > info.epoch);
    assert_eq!(client.stat("sealed").await.expect("counted").members, sealed.members, "it has an end already");
    let client = cluster.again(client).await;
    let new = *now.members.iter().find(|member| !info.members.contains(member)).expect("one joined");
    client.push(info.bag, new, 2).await.expect("pushed");
    let pulled = client.pull(info.bag, new, 1).await;
    assert_eq!((pulled.pulled, pulled.pass), (bag::Pulled::Chunk as i32, 1));
    client.acknowledge(info.bag, new, (pulled.chunk, 1), 1).await;
    let counted = client.stat("b").await.expect("counted");
    assert_eq!((counted.pushed, counted.acknowledged, counted.waiting), (2, 1, 1));
    let again = ask(&client.keeper, &bag::Rewind { name: "b".to_string() }).await.expect("rewound");
    assert_eq!((again.pass, again.acknowledged, again.waiting), (2, 0, 2), "what it retains is given again");
    cluster.stop_all().await;
}

/// A node is emptied while files and bags on it are read, written and pulled: all is there afterwards on other nodes, and then the
/// node can go. What is still being written waits for its writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_drained() {
    let mut cluster = Cluster::start("drained", 3).await;
    let client = cluster.client(1).await;
    let view = ask(&client.keeper, &cluster::View::default()).await.expect("a view");
    let leaving = view.members.iter().find(|member| member.node.name == "n1").expect("it is there").clone();
    let far = leaving.devices[0];
    let content = |number: u8| (0..400_000_u32).map(|at| (at as u8) ^ number).collect::<Vec<_>>();
    let mut files = Vec::new();
    for number in 0..3 {
        let mut open = client.create_on(far, &format!("f{number}-")).await;
        client.append(&mut open, &content(number)).await.expect("written");
        client.close(&open).await.expect("closed");
        files.push(open.path);
    }
    // One is longer than what is fetched at once, and lies in many records.
    let long: Vec<u8> = (0..18_000_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut open = client.create_on(far, "long").await;
    for part in long.chunks(3_000_000) {
        client.append(&mut open, part).await.expect("written");
    }
    client.close(&open).await.expect("closed");
    let long_path = open.path;
    let appends = cluster.calls(2, "chunk_append").await;
    // Of one the first half is cut away.
    ask(&client.keeper, &file::Truncate { path: files[2].clone(), length: 200_000, looked: None }).await.expect("cut");
    let mut writing = client.create_on(far, "writing").await;
    client.append(&mut writing, b"begun").await.expect("written");
    let info = client.bag("b", false).await;
    client.push(info.bag, far, 1).await.expect("pushed");
    let remove = cluster::RemoveNode { node: leaving.node.node };
    assert_eq!(ask(&client.keeper, &remove).await.expect_err("it has a device").kind(), ErrorKind::Invalid);
    let keeper = cluster::DrainNode { node: view.keeper };
    assert_eq!(ask(&client.keeper, &keeper).await.expect_err("it keeps the metadata").kind(), ErrorKind::Invalid);
    ask(&client.keeper, &cluster::DrainNode { node: leaving.node.node }).await.expect("begins");
    let waits = async || {
        let listed = client.listed().await;
        listed.into_iter().find(|device| device.device == far).and_then(|device| device.drain).map(|drain| drain.waits)
    };
    until("only the writer and the consumer are waited for", async || {
        waits()
            .await
            .is_some_and(|waits| waits.contains("1 chunks that are still being written") && waits.contains("of bag b"))
    })
    .await;
    let push = bag::Push { bag: info.bag, device: far, chunk: 2.into(), floor: 0 };
    let (answer, _) =
        client.at(far).call(&push, Payload::new(Bytes::from_static(b"x"))).await.expect("refused for good is no error");
    assert!(answer.refused.is_some(), "it takes nothing new");
    // Four chunks have moved, with all bytes but those that were cut away, of what was there when it began.
    let listed = client.listed().await;
    let drain =
        listed.into_iter().find(|device| device.device == far).and_then(|device| device.drain).expect("drained");
    assert!((18_900_000..=19_200_000).contains(&drain.bytes) && drain.chunks == 4, "{drain:?}");
    assert!(drain.whole_bytes >= drain.bytes && drain.whole_chunks >= 5, "{drain:?}");
    // The node that takes a chunk fetches it; the keeper sends it at most the ends of chunks, and no bytes.
    let (fetched, carried) = (cluster.calls(2, "order_fetch").await, cluster.calls(2, "chunk_append").await - appends);
    assert!(fetched >= 1 && carried <= 4, "{fetched} orders to fetch, {carried} appends");
    assert!(client.read(&long_path).await.expect("read") == long);
    for (number, path) in files.iter().enumerate() {
        let expected = content(number as u8);
        let expected = if number == 2 { &expected[..200_000] } else { &expected };
        assert!(client.read(path).await.expect("read") == expected, "{path}");
    }
    client.append(&mut writing, b" and ended").await.expect("written");
    client.close(&writing).await.expect("closed");
    let pulled = client.pull(info.bag, far, 1).await;
    client.acknowledge(info.bag, far, (pulled.chunk, 0), 1).await;
    until("the device is gone", async || waits().await.is_none()).await;
    let counted = client.stat("b").await.expect("counted");
    assert!((counted.pushed, counted.acknowledged) == (1, 1) && !counted.members.contains(&far), "{counted:?}");
    assert_eq!(client.read(&writing.path).await.expect("read"), b"begun and ended");
    let view = ask(&client.keeper, &cluster::View::default()).await.expect("a view");
    assert!(view.members.iter().all(|member| !member.devices.contains(&far)));
    cluster.stop(1).await;
    ask(&client.keeper, &remove).await.expect("removed");
    cluster.all_there(2).await;
    for (number, path) in files.iter().enumerate() {
        let expected = content(number as u8);
        let expected = if number == 2 { &expected[..200_000] } else { &expected };
        assert!(client.read(path).await.expect("read") == expected, "{path}");
    }
    let drain = device::Drain { device: far };
    ask(&client.keeper, &drain).await.expect("it was emptied, so there is nothing to do");
    cluster.stop_all().await;
}

/// A device of a member that failed a sync is emptied as one of the keeper's is: what is complete moves, and is read elsewhere. What
/// was being written is waited for with a word, until its node is started again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_device_is_drained() {
    let mut cluster = Cluster::new("failed");
    cluster.run(0).await;
    let broken = Arc::new(AtomicBool::new(false));
    let world = FailingWorld { place: cluster.directory(1), broken: broken.clone(), ..FailingWorld::default() };
    let running = cluster.try_run_in(Arc::new(world), cluster.settings(1)).await.expect("the node starts");
    cluster.nodes.insert(1, running);
    cluster.all_there(2).await;
    let client = cluster.client(1).await;
    let far = client.far();
    client.bag("b", false).await;
    let content = |number: u8| (0..400_000_u32).map(|at| (at as u8) ^ number).collect::<Vec<_>>();
    let mut files = Vec::new();
    for number in 0..3 {
        let mut open = client.create_on(far, &format!("f{number}-")).await;
        client.append(&mut open, &content(number)).await.expect("written");
        client.close(&open).await.expect("closed");
        files.push(open.path);
    }
    let mut writing = client.create_on(far, "writing").await;
    client.append(&mut writing, &content(9)).await.expect("written");
    broken.store(true, Ordering::SeqCst);
    client.append(&mut writing, &content(10)).await.expect_err("the sync fails");
    let of_far = async || {
        let devices = ask(&client.keeper, &file::Devices {}).await.expect("listed").devices;
        devices.into_iter().find(|device| device.device == far)
    };
    until("the keeper knows", async || of_far().await.is_some_and(|device| device.out_of_service)).await;
    ask(&client.keeper, &device::Drain { device: far }).await.expect("it begins");
    until("it says what it waits for", async || {
        let drain = of_far().await.and_then(|device| device.drain).unwrap_or_default();
        drain.waits.contains("1 chunks that were being written when the device failed") && drain.chunks == 3
    })
    .await;
    for (number, path) in (0..).zip(&files) {
        let locate = file::Locate { path: path.clone(), length: u64::MAX >> 1, ..file::Locate::default() };
        let located = ask(&client.keeper, &locate).await.expect("it is there");
        assert!(located.extents.iter().all(|extent| extent.layout.columns[0].device != far), "{path} has not moved");
        assert!(client.read(path).await.expect("it is read") == content(number), "{path} has changed");
    }
    // Its disk is tried anew; the file is closed by its writer.
    cluster.stop(1).await;
    broken.store(false, Ordering::SeqCst);
    cluster.run(1).await;
    cluster.all_there(2).await;
    let client = cluster.again(client).await;
    client.close(&writing).await.expect("closed");
    let devices = async || ask(&client.keeper, &file::Devices {}).await.expect("listed").devices;
    until("it is empty", async || devices().await.iter().all(|device| device.device != far)).await;
    assert!(client.read(&writing.path).await.expect("it is read").starts_with(&content(9)));
    cluster.stop_all().await;
}
