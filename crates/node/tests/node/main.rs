//! A whole node over real sockets and a real disk, asked in the words of the wire.
#![allow(clippy::disallowed_methods)] // The node under test lives in a directory and on a port of its own.
#![allow(missing_docs)]

mod cluster;
mod columns;
mod compressed;
mod drains;
mod failing;
mod faults;
mod fuzz;
mod hdfs_away;
mod hdfs_bounds;
mod hdfs_calls;
mod hdfs_cluster;
mod hdfs_gateways;
mod hdfs_late;
mod hdfs_lost;
mod hdfs_names;
mod hdfs_pipeline;
mod hdfs_quotas;
mod hdfs_read;
mod hdfs_shares;
mod hdfs_trouble;
mod hdfs_user;
mod hdfs_write;
mod keepers;
mod listed;
mod metadata_dir;
mod recover;
mod still;
mod users;

use base::buffer::Pool;
use base::env::Clock;
use base::error::ErrorKind;
use base::id::SessionId;
use base::limit::SESSION_LEASE;
use base::policy::Class;
use base::unit::{Time, WallTime};
use bytes::Bytes;
use net::message::layout::Column;
use net::message::{Id, bag, chunk, file, session};
use net::{Link, LinkSettings, Payload};
use node::{DeviceSetting, Door, Running, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The clock of a machine that stands still now and then: it may be put ahead.
struct AheadClock {
    clock: os::clock::SystemClock,
    ahead: AtomicU64,
    /// Whoever asks it next for the time of day meets a fault, but for engines, which have threads of their own.
    is_faulty: AtomicBool,
}

impl AheadClock {
    fn new() -> AheadClock {
        AheadClock { clock: os::clock::SystemClock::new(), ahead: AtomicU64::new(0), is_faulty: AtomicBool::new(false) }
    }
}

impl Clock for AheadClock {
    fn now(&self) -> Time {
        self.clock.now().after(Duration::from_secs(self.ahead.load(Ordering::Relaxed)))
    }
    fn wall(&self) -> WallTime {
        let is_task = std::thread::current().name().is_some_and(|name| name.starts_with("tokio"));
        assert!(!(is_task && self.is_faulty.swap(false, Ordering::Relaxed)), "planted");
        self.clock.wall()
    }
}

/// A node in a directory that goes with it.
struct Fixture {
    running: Option<Running>,
    directory: PathBuf,
    clock: Arc<AheadClock>,
    /// Of which class each of its devices is.
    classes: Vec<Class>,
    /// Bytes that each of them may have.
    capacity: u64,
    /// Where its metadata are, if not beside its first device.
    metadata_dir: Option<PathBuf>,
    /// The node as a process of its own, while it is one.
    elsewhere: Option<hdfs_trouble::Elsewhere>,
    /// What it stands on.
    world: Arc<dyn node::World>,
}

impl Fixture {
    async fn start(name: &str) -> Fixture {
        let mut fixture =
            Fixture::at(std::env::temp_dir().join(format!("stormwell-node-{}-{name}", std::process::id())));
        fixture.run().await;
        fixture
    }

    /// One with several devices, of which each may leave: the metadata are elsewhere.
    async fn start_with(name: &str, classes: Vec<Class>, capacity: u64) -> Fixture {
        let mut fixture =
            Fixture::at(std::env::temp_dir().join(format!("stormwell-node-{}-{name}", std::process::id())));
        (fixture.classes, fixture.capacity) = (classes, capacity);
        fixture.metadata_dir = Some(fixture.directory.join("metadata"));
        fixture.run().await;
        fixture
    }

    /// One that does not run yet.
    fn at(directory: PathBuf) -> Fixture {
        let clock = Arc::new(AheadClock::new());
        let (classes, capacity) = (vec![Class::Ssd], 256 << 20);
        Fixture {
            running: None,
            directory,
            clock,
            classes,
            capacity,
            metadata_dir: None,
            elsewhere: None,
            world: Arc::new(node::OsWorld),
        }
    }

    async fn run(&mut self) {
        let device = |(number, class): (usize, &Class)| {
            let several = self.classes.len() > 1;
            let own = if several { self.directory.join(format!("{number}")) } else { self.directory.clone() };
            DeviceSetting { directory: own, class: *class, capacity: Some(self.capacity) }
        };
        let devices = self.classes.iter().enumerate().map(device).collect();
        let hdfs = Door::At("127.0.0.1:0".to_string());
        let metadata_dir = self.metadata_dir.clone();
        let settings = Settings { hdfs, metadata_dir, ..Settings::new("127.0.0.1:0", devices) };
        let (world, random) = (self.world.clone(), Arc::new(os::random::SystemRandom));
        let started = node::start(settings, world, Arc::new(os::net::TcpNet), self.clock.clone(), random).await;
        self.running = Some(started.expect("the node starts"));
    }

    fn address(&self) -> &str {
        &self.running.as_ref().expect("it runs").address
    }

    async fn link(&self, session: u128) -> Link {
        let link = self.unbegun_link(session).await;
        link.call(&session::Renew::default(), Payload::empty()).await.expect("the session begins");
        link
    }

    /// A link of a session that may be open or not.
    async fn unbegun_link(&self, session: u128) -> Link {
        let settings = LinkSettings {
            session: SessionId(session),
            program: "node test".to_string(),
            connections: 1,
            silence_max: base::limit::CALL_SILENCE_MAX,
            pool: Pool::new(1 << 20),
            clock: Arc::new(os::clock::SystemClock::new()),
            random: Arc::new(os::random::SystemRandom),
            credentials: net::Credentials::default(),
            asker: net::Asker::Client,
            numbers: net::CallNumbers::default(),
            meant: None,
            once: false,
        };
        Link::connect(Arc::new(os::net::TcpNet), self.address(), settings).await.expect("it answers")
    }

    async fn stop(&mut self) {
        self.running.take().expect("it runs").stop().await;
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

/// Waits for something that comes by itself.
async fn until(what: &str, condition: impl AsyncFn() -> bool) {
    for _ in 0..3000 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("waited in vain: {what}");
}

fn pull(bag: u64, device: Id, grant: u64) -> bag::Pull {
    bag::Pull { bag, device, grant, wait_ms: 0, unchecked: false }
}

/// A push whose answer was lost is asked again after its chunk was consumed: it is answered as done, and the chunk does
/// not come back. A pull asked again under its grant gets the same chunk; an acknowledgement under another is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_again() {
    let mut fixture = Fixture::start("again").await;
    let link = fixture.link(1).await;
    let create = bag::Create { name: "b".to_string(), ..bag::Create::default() };
    let (info, _) = link.call(&create, Payload::empty()).await.expect("a bag");
    let (bag, device) = (info.bag, info.members[0]);
    let push = bag::Push { bag, device, chunk: 77_u128.into(), floor: 0 };
    let payload = || Payload::new(Bytes::from(vec![9; 100_000]));
    link.call(&push, payload()).await.expect("pushed");
    link.call(&push, payload()).await.expect("pushed again");
    for _ in 0..2 {
        let (answer, bytes) = link.call(&pull(bag, device, 5), Payload::empty()).await.expect("pulled");
        assert_eq!((answer.pulled, answer.chunk, bytes.length()), (bag::Pulled::Chunk as i32, 77_u128.into(), 100_000));
    }
    let (answer, _) = link.call(&pull(bag, device, 6), Payload::empty()).await.expect("answered");
    assert_eq!((answer.pulled, answer.granted), (bag::Pulled::Nothing as i32, 1));
    let acknowledge = |grant| bag::Acknowledge {
        bag,
        device,
        pass: 0,
        grants: vec![bag::Grant { chunk: 77_u128.into(), grant }],
        retain: false,
        number: 0,
        floor: 0,
    };
    for (grant, accepted) in [(8, false), (5, true), (5, true), (8, false)] {
        let (answer, _) = link.call(&acknowledge(grant), Payload::empty()).await.expect("answered");
        assert_eq!(answer.results[0].code == 0, accepted, "grant {grant}: {:?}", answer.results);
    }
    link.call(&push, payload()).await.expect("pushed long ago");
    let (answer, _) = link.call(&pull(bag, device, 7), Payload::empty()).await.expect("answered");
    assert_eq!((answer.pulled, answer.waiting, answer.granted), (bag::Pulled::Nothing as i32, 0, 0));
    let (info, _) = link
        .call(&bag::Stat { name: "b".to_string(), ..bag::Stat::default() }, Payload::empty())
        .await
        .expect("counted");
    assert_eq!((info.pushed, info.acknowledged, info.acknowledged_bytes), (1, 1, 100_000));
    link.close();
    fixture.stop().await;
}

/// A rewind gives every chunk of a bag that retains once more, whoever holds it; acknowledgements of the pass before are refused
/// unless they were accepted then, and in each pass one is accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rewound_while_consumers_pull() {
    let mut fixture = Fixture::start("rewound").await;
    let link = fixture.link(1).await;
    let create = bag::Create { name: "b".to_string(), retain: true, ..bag::Create::default() };
    let (info, _) = link.call(&create, Payload::empty()).await.expect("a bag");
    assert!(info.retain && info.pass == 0);
    let (bag, device) = (info.bag, info.members[0]);
    for chunk in 1..=3_u128 {
        let push = bag::Push { bag, device, chunk: chunk.into(), floor: 0 };
        link.call(&push, Payload::new(Bytes::from(vec![chunk as u8; 5000]))).await.expect("pushed");
    }
    let acknowledge = async |chunk: net::message::Id, grant, pass| {
        let ask = bag::Acknowledge {
            bag,
            device,
            pass,
            grants: vec![bag::Grant { chunk, grant }],
            retain: false,
            number: 0,
            floor: 0,
        };
        let (answer, _) = link.call(&ask, Payload::empty()).await.expect("answered");
        answer.results[0].code == 0
    };
    for pass in 0..3 {
        let mut pulled = Vec::new();
        for grant in 1..=3_u64 {
            let grant = 10 * u64::from(pass) + grant;
            let (answer, bytes) = link.call(&pull(bag, device, grant), Payload::empty()).await.expect("answered");
            let expected = (bag::Pulled::Chunk as i32, pass, 5000);
            assert_eq!((answer.pulled, answer.pass, bytes.length()), expected);
            pulled.push((answer.chunk, grant));
        }
        let [first, second, third] = pulled[..] else { panic!("{pulled:?}") };
        assert!(acknowledge(first.0, first.1, pass).await && acknowledge(second.0, second.1, pass).await);
        assert!(!acknowledge(second.0, 999, pass).await, "another consumer was first");
        let (info, _) = link.call(&bag::Rewind { name: "b".to_string() }, Payload::empty()).await.expect("rewound");
        assert_eq!((info.pass, info.acknowledged, info.waiting, info.granted), (pass + 1, 0, 3, 0));
        assert!(!acknowledge(third.0, third.1, pass).await, "the pass is over");
        assert!(acknowledge(first.0, first.1, pass).await, "accepted in its pass");
        let (info, _) = link
            .call(&bag::Stat { name: "b".to_string(), ..bag::Stat::default() }, Payload::empty())
            .await
            .expect("counted");
        assert_eq!((info.acknowledged, info.waiting), (0, 3), "that says nothing about this pass");
    }
    link.close();
    fixture.stop().await;
}

/// Who does not know how a bag's chunks are compressed cannot open it, and so never takes what lies in it for what was pushed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_cannot_decompress_is_refused() {
    let mut fixture = Fixture::start("compression").await;
    let link = fixture.link(1).await;
    let zstd = base::policy::Compression::Zstd.code();
    let create = bag::Create { name: "b".to_string(), exists_ok: true, compression: zstd, ..bag::Create::default() };
    let make = async |create: bag::Create| link.call(&create, Payload::empty()).await;
    let (info, _) = make(create.clone()).await.expect("a bag");
    assert_eq!(info.compression, zstd);
    for knows in 0..3 {
        let stat = bag::Stat { name: "b".to_string(), uncounted: true, knows };
        let answers = [link.call(&stat, Payload::empty()).await, make(bag::Create { knows, ..create.clone() }).await];
        for answer in answers {
            match answer {
                Ok((info, _)) => assert_eq!((knows, info.compression), (zstd, zstd)),
                Err(error) => assert!(knows < zstd && error.kind() == ErrorKind::Unsupported, "{knows}: {error:?}"),
            }
        }
    }
    let unknown = bag::Create { name: "new".to_string(), compression: 77, ..create };
    assert_eq!(make(unknown).await.expect_err("nobody knows it").kind(), ErrorKind::Unsupported);
    link.close();
    fixture.stop().await;
}

/// A bag's consumers that wait hear at once that it was sealed and is empty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_hear_of_the_end() {
    let mut fixture = Fixture::start("end").await;
    let (consumer, sealer) = (fixture.link(1).await, fixture.link(2).await);
    let create = bag::Create { name: "b".to_string(), ..bag::Create::default() };
    let (info, _) = sealer.call(&create, Payload::empty()).await.expect("a bag");
    let waiting = bag::Pull { wait_ms: 5000, ..pull(info.bag, info.members[0], 1) };
    let waiting = tokio::spawn(async move { consumer.call(&waiting, Payload::empty()).await });
    let (info, _) = sealer.call(&bag::Seal { name: "b".to_string() }, Payload::empty()).await.expect("sealed");
    assert!(info.sealed);
    let (answer, _) = waiting.await.expect("no panic").expect("answered");
    assert_eq!(answer.pulled, bag::Pulled::Ended as i32);
    sealer.close();
    fixture.stop().await;
}

/// What comes into a bag or a file that was deleted meanwhile is found and goes: nothing else would ever name it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_late_for_its_bag_and_file() {
    let mut fixture = Fixture::start("late").await;
    let link = fixture.link(1).await;
    let create = bag::Create { name: "b".to_string(), ..bag::Create::default() };
    let (info, _) = link.call(&create, Payload::empty()).await.expect("a bag");
    let (bag, device) = (info.bag, info.members[0]);
    let create = file::Create { path: "/f".to_string(), overwrite: false, parents: false, ..file::Create::default() };
    let (opened, _) = link.call(&create, Payload::empty()).await.expect("a file");
    link.call(&bag::Delete { name: "b".to_string() }, Payload::empty()).await.expect("deleted");
    link.call(&file::Delete { path: "/f".to_string(), recursive: false, ..file::Delete::default() }, Payload::empty())
        .await
        .expect("deleted");
    let chunks = async || {
        let (answer, _) = link.call(&file::Devices {}, Payload::empty()).await.expect("answered");
        answer.devices.iter().map(|device| device.chunks).sum::<u64>()
    };
    // The garbage of both is collected before they come.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let payload = || Payload::new(Bytes::from(vec![9; 100_000]));
    link.call(&bag::Push { bag, device, chunk: 7_u128.into(), floor: 0 }, payload()).await.expect("pushed");
    let file::NewGroup { group, layout, .. } = opened.group;
    let Column { device, chunk, .. } = layout.columns[0];
    let generation = opened.generation;
    let append = chunk::Append { device, chunk, group, generation, level: 2, ..chunk::Append::default() };
    link.call(&append, payload()).await.expect("appended");
    let mut looks = 0;
    while chunks().await > 0 {
        looks += 1;
        assert!(looks < 3000, "{} chunks stay", chunks().await);
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    link.close();
    fixture.stop().await;
}

/// Who asks how long a chunk is may ask which start of its node says so, and hears it also of a chunk that is not there, before its first bytes
/// come and where others are told that there is none. Each start has another number, which is what the leader records of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stat_with_the_start() {
    let mut fixture = Fixture::start("stat").await;
    let link = fixture.link(1).await;
    let create = file::Create { path: "/f".to_string(), overwrite: false, parents: false, ..file::Create::default() };
    let (opened, _) = link.call(&create, Payload::empty()).await.expect("a file");
    let file::NewGroup { group, layout, .. } = opened.group;
    let Column { device, chunk, .. } = layout.columns[0];
    let stat = async |link: &Link, start| {
        let told = link.call(&chunk::Stat { device, chunk, start }, Payload::empty()).await;
        told.map(|(answer, _)| answer).map_err(|error| error.kind())
    };
    let started = link.node().start(1);
    assert_eq!(stat(&link, false).await, Err(ErrorKind::NotFound));
    assert_eq!(stat(&link, true).await, Ok(chunk::StatAnswer { start: started, ..chunk::StatAnswer::default() }));
    let generation = opened.generation;
    let append = chunk::Append { device, chunk, group, generation, level: 2, ..chunk::Append::default() };
    link.call(&append, Payload::new(Bytes::from(vec![9; 5000]))).await.expect("appended");
    for life in 1..3 {
        let link = fixture.link(1).await;
        let told = stat(&link, true).await.expect("it is there");
        assert_eq!((told.length, told.generation, told.start), (5000, generation, link.node().start(life)));
        assert_eq!(stat(&link, false).await, Ok(chunk::StatAnswer { start: 0, ..told }));
        link.close();
        fixture.stop().await;
        fixture.run().await;
    }
    link.close();
    fixture.stop().await;
}

/// What a session sends after its end is dropped, however it comes and even after a restart: a push that was under way does not
/// come into the bag, the first append to a file makes no chunk, none is sealed, and renewing does not begin the session anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_after_the_end_of_its_session() {
    let mut fixture = Fixture::start("ended").await;
    let dead = fixture.link(1).await;
    let create = bag::Create { name: "b".to_string(), ..bag::Create::default() };
    let (info, _) = dead.call(&create, Payload::empty()).await.expect("a bag");
    let (bag, device) = (info.bag, info.members[0]);
    let push = |chunk: u128| bag::Push { bag, device, chunk: chunk.into(), floor: 0 };
    let payload = || Payload::new(Bytes::from(vec![9; 100_000]));
    dead.call(&push(1), payload()).await.expect("pushed");
    let create = file::Create { path: "/f".to_string(), overwrite: false, parents: false, ..file::Create::default() };
    let (opened, _) = dead.call(&create, Payload::empty()).await.expect("a file");
    let file::NewGroup { group, layout, .. } = opened.group;
    let Column { device: place, chunk, .. } = layout.columns[0];
    let (generation, level) = (opened.generation, 2);
    let append =
        chunk::Append { device: place, chunk, group, generation, offset: 0, level, seal: false, small_parts: false };
    let seal = chunk::Seal { device: place, chunk, generation, length: 0 };
    fixture.clock.ahead.fetch_add(SESSION_LEASE.as_secs() + 1, Ordering::Relaxed);
    // A turn of the metadata thread may have begun with the time before: the second answer is of a turn that did not.
    for _ in 0..2 {
        dead.call(&file::Stat { path: "/f".to_string() }, Payload::empty()).await.expect("anybody may look");
    }
    for life in 0..2 {
        let third = fixture.link(3 + life).await;
        let refused = |result: base::error::Result<()>| {
            let error = result.expect_err("its session is over");
            assert_eq!(error.kind(), base::error::ErrorKind::Stale, "{error}");
        };
        let dead = fixture.unbegun_link(1).await;
        refused(dead.call(&push(1), payload()).await.map(drop));
        refused(dead.call(&push(2), payload()).await.map(drop));
        refused(dead.call(&append, payload()).await.map(drop));
        refused(dead.call(&seal, Payload::empty()).await.map(drop));
        refused(
            dead.call(&session::Renew { again: true, ..session::Renew::default() }, Payload::empty()).await.map(drop),
        );
        refused(dead.call(&push(3), payload()).await.map(drop));
        let (info, _) = third
            .call(&bag::Stat { name: "b".to_string(), ..bag::Stat::default() }, Payload::empty())
            .await
            .expect("counted");
        let others = 1 + life as u64;
        assert_eq!((info.pushed, info.waiting), (others, others), "life {life}");
        let stat = third.call(&chunk::Stat { device: place, chunk, start: false }, Payload::empty()).await;
        // The fence makes the chunk, empty, so that nobody else does (record 0142).
        let empty = stat.as_ref().map_or(true, |(stat, _)| stat.length == 0);
        assert!(empty, "bytes were taken for a file whose writer is gone: {stat:?}");
        third.call(&push(10 + u128::from(life as u8)), payload()).await.expect("others push");
        let (answer, _) =
            third.call(&pull(bag, device, u64::from(life as u8)), Payload::empty()).await.expect("pulled");
        assert_eq!(answer.pulled, bag::Pulled::Chunk as i32);
        if life == 0 {
            fixture.stop().await;
            fixture.run().await;
        }
    }
    fixture.stop().await;
}

/// Bytes that are no frames end their own connection; the node goes on for everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers() {
    use std::io::{Read, Write};
    let mut fixture = Fixture::start("strangers").await;
    let link = fixture.link(1).await;
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 4096], &[0; 48], b"S"] {
        let mut stranger = std::net::TcpStream::connect(fixture.address()).expect("it listens");
        stranger.write_all(garbage).expect("it takes bytes");
        stranger.shutdown(std::net::Shutdown::Write).expect("half closed");
        let mut said = Vec::new();
        // It may answer with a reason, or reset a peer that is not read to its end.
        let _ended = stranger.read_to_end(&mut said);
        let (status, _) = link.call(&session::NodeStatus {}, Payload::empty()).await.expect("others are served");
        assert_eq!(status.process, u64::from(std::process::id()));
    }
    link.close();
    fixture.stop().await;
}

/// A store without a cluster has a view with itself in it. Its epoch is durable: it never goes back, and rises when the node is
/// started again, which may be at another address.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_view_of_oneself() {
    let mut fixture = Fixture::start("view").await;
    let mut before = None;
    for life in 1..=3 {
        let link = fixture.link(1).await;
        let (view, _) = link.call(&net::message::cluster::View::default(), Payload::empty()).await.expect("answered");
        let [member] = &view.members[..] else { panic!("{view:?}") };
        let (devices, _) = link.call(&file::Devices {}, Payload::empty()).await.expect("answered");
        assert_eq!((member.node.node, member.silent), (view.keeper, false));
        assert_eq!((member.node.incarnation, &*member.node.address), (life, fixture.address()));
        assert_eq!(member.devices, [devices.devices[0].device]);
        let (again, _) = link.call(&net::message::cluster::View::default(), Payload::empty()).await.expect("answered");
        assert_eq!(again, view);
        if let Some((node, epoch)) = before {
            assert!(member.node.node == node && view.epoch > epoch, "{epoch} {view:?}");
        }
        before = Some((member.node.node, view.epoch));
        link.close();
        fixture.stop().await;
        fixture.run().await;
    }
    fixture.stop().await;
}
