//! Three keepers of one store that speak over real sockets; and what the tests of the parts beside have in common.

pub(super) mod wires;

use super::lanes::Lanes;
use super::seating::{Seat, Seating};
use super::steps::take_step;
use crate::loan::Loans;
use crate::metadata::{Carrier, Files, Item, Metadata, spawn};
use crate::world::{Ended, OsWorld, World};
use base::buffer::Pool;
use base::checksum::crc32c;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId, SessionId};
use base::net::{Listener, Net};
use base::unit::{MIB, WallTime};
use base::watched::Stop;
use bytes::Bytes;
use meta::path::Path;
use meta::request::{NewInode, User};
use meta::{Caller, KeeperId, KeeperMessage, Part, Reply, Request};
use net::message::keeper::Step;
use net::{Ask, Asker, Budget, Call, Credentials, Link, LinkSettings, Payload, Server, ServerSettings, Service};
use os::disk::Backend;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use wires::Wires;

const ASKER: Caller = Caller { session: SessionId(5), call: 0, floor: 0 };

pub(super) fn clock() -> Arc<dyn Clock> {
    Arc::new(os::clock::SystemClock::new())
}

/// A message of the log of this kind, as `quorum` writes them down: 1 is an append, 3 a heartbeat.
pub(super) fn log(kind: u8, (from, to): (u64, u64), term: u64, groups: &[Bytes]) -> KeeperMessage {
    let mut bytes = b"SWK1".to_vec();
    bytes.extend([kind, 0]);
    for count in [to, from, term, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0] {
        bytes.extend(u64::to_le_bytes(count));
    }
    bytes.extend(0u32.to_le_bytes());
    bytes.extend((groups.len() as u32).to_le_bytes());
    for group in groups {
        bytes.extend(term.to_le_bytes());
        bytes.extend((group.len() as u32).to_le_bytes());
        bytes.extend(group);
    }
    summed(bytes)
}

/// What is told of a copy: 1 asks, 2 is a page with this value, 3 is gone.
pub(super) fn copy(kind: u8, from: u64, value: &[u8]) -> KeeperMessage {
    let mut bytes = b"SWC1".to_vec();
    bytes.extend([kind, 0]);
    [from, 7, 0, 0].iter().for_each(|count| bytes.extend(count.to_le_bytes()));
    [0u32, 0].iter().for_each(|count| bytes.extend(count.to_le_bytes()));
    bytes.extend(u32::from(kind == 2).to_le_bytes());
    if kind == 2 {
        bytes.extend(1u32.to_le_bytes());
        bytes.extend((value.len() as u32).to_le_bytes());
        bytes.extend(b"k");
        bytes.extend(value);
    }
    summed(bytes)
}

fn summed(mut bytes: Vec<u8>) -> KeeperMessage {
    bytes.extend(crc32c(&bytes).to_le_bytes());
    KeeperMessage::read(&bytes.into()).expect("keepers send it")
}

/// Keepers 1, 2 and so on, on nodes 11, 12 and so on, at these addresses.
pub(super) fn seating(addresses: &[String]) -> Seating {
    let seat = |(address, number): (&String, u64)| Seat {
        number: KeeperId(number),
        node: NodeId(u128::from(number) + 10),
        draw: u128::from(number) + 100,
        address: address.clone(),
    };
    Seating {
        store: ClusterId(9),
        made: WallTime(1_700_000_000_000),
        seats: addresses.iter().zip(1..).map(seat).collect(),
    }
}

/// How the node of this keeper greets others.
pub(super) fn links(number: u64) -> LinkSettings {
    LinkSettings {
        session: SessionId(u128::from(number) << 64),
        program: "node test".to_string(),
        connections: 2,
        silence_max: base::limit::CALL_SILENCE_MAX,
        pool: Pool::new(1 << 20),
        clock: clock(),
        random: Arc::new(os::random::SystemRandom),
        credentials: Credentials::default(),
        asker: Asker::Node { node: NodeId(u128::from(number) + 10), incarnation: 1, term: 0 },
        numbers: net::CallNumbers::default(),
        meant: None,
        once: false,
    }
}

/// Bytes that keepers may have sent to one of them: less than a quarter of its log, which it keeps for one that is away.
const KEEPERS_MEMORY: usize = 4 << 20;

/// Serves there as the node of this keeper until the answer is dropped.
pub(super) fn serve(listener: Box<dyn Listener>, number: u64, service: Arc<dyn Service>) -> Serves {
    let memory = || Budget::new(32 << 20);
    let settings = ServerSettings {
        node: NodeId(u128::from(number) + 10),
        incarnation: 1,
        budget: memory(),
        keepers: Budget::new(KEEPERS_MEMORY as u64),
        outgoing: memory(),
        messages: memory(),
        calls: memory(),
        device_calls: memory(),
        urgent: memory(),
        answers: net::AnswerMemory::default(),
        places: base::places::Places::new(64),
        credentials: Credentials::default(),
        random: Arc::new(os::random::SystemRandom),
        pool: Pool::new(1 << 20),
        clock: clock(),
        silence_max: base::limit::CALL_SILENCE_MAX,
        stats: Arc::default(),
        on_trouble: Arc::new(|_| ()),
        on_request: Arc::new(|_| ()),
    };
    let stats = settings.stats.clone();
    let (stop, stopped) = Stop::new();
    Serves { stats, task: tokio::spawn(Server::serve(listener, service, settings, stopped)), _stop: stop }
}

pub(super) struct Serves {
    pub(super) stats: Arc<net::NetStats>,
    task: JoinHandle<()>,
    _stop: Stop,
}

impl Drop for Serves {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let waits = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What a keeper's node serves here.
struct Takes(Seating, KeeperId, Arc<Metadata>);

impl Service for Takes {
    fn handle(&self, call: Call) {
        match call.kind {
            Step::KIND => take_step(call, &self.0, self.1, &self.2),
            _ => call.respond.fail(Error::new(ErrorKind::Unsupported, "keepers speak here")),
        }
    }
}

struct Keeper {
    metadata: Arc<Metadata>,
    ended: Vec<Ended>,
    lanes: Arc<Lanes>,
    serves: Serves,
}

struct Three {
    directory: PathBuf,
    seating: Seating,
    wires: [Arc<Wires>; 3],
    keepers: [Option<Keeper>; 3],
}

impl Three {
    async fn open(name: &str) -> Three {
        let directory = std::env::temp_dir().join(format!("stormwell-{name}-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&directory);
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(os::net::TcpNet.listen("127.0.0.1:0").await.expect("a port"));
        }
        let addresses: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
        let wires = std::array::from_fn(|_| Wires::new());
        let mut three = Three { directory, seating: seating(&addresses), wires, keepers: [None, None, None] };
        for (at, listener) in listeners.into_iter().enumerate() {
            three.run_at(at, listener);
        }
        let user = User { name: "ada".to_string(), groups: Vec::new() };
        three.ask(Request::OpenSession { user }).await.expect("a session");
        three
    }

    async fn run(&mut self, at: usize) {
        let listener = os::net::TcpNet.listen(&self.seating.seats[at].address).await.expect("its port");
        self.run_at(at, listener);
    }

    fn run_at(&mut self, at: usize, listener: Box<dyn Listener>) {
        let own = KeeperId(at as u64 + 1);
        let directory = self.directory.join(at.to_string());
        std::fs::create_dir_all(&directory).expect("a directory for the test");
        let disk = OsWorld.disk(&directory, Backend::Threads, Pool::new(0)).expect("it opens").disk;
        let random: Arc<dyn Random> = Arc::new(sim::random::SimRandom::new(at as u64));
        let settings = meta::Settings {
            segment_length: 8 * MIB,
            segments_max: 8,
            superuser: "ada".to_string(),
            seats: Some(self.seating.seats(own)),
            ..OsWorld.meta_settings(1 << 30, random)
        };
        let loans = Arc::new(Loans::of_this_runtime());
        let files = Files::new(Arc::new(OsWorld), directory, Backend::Threads);
        let lanes = Lanes::new(self.wires[at].clone(), links(own.0), &self.seating, own);
        let carrier: Arc<dyn Carrier> = lanes.clone();
        let spawned = spawn((&OsWorld, files), disk, settings, clock(), loans, Some(carrier));
        let (metadata, ended) = spawned.expect("one of several begins, whatever it finds");
        let serves = serve(listener, own.0, Arc::new(Takes(self.seating.clone(), own, metadata.clone())));
        self.keepers[at] = Some(Keeper { metadata, ended, lanes, serves });
    }

    async fn stop(&mut self, at: usize) {
        let Keeper { metadata, ended, lanes, serves } = self.keepers[at].take().expect("it runs");
        drop((lanes, serves));
        metadata.send(Item::Stop);
        drop(metadata);
        for ended in ended {
            let _ = ended.await;
        }
    }

    async fn end(mut self) {
        for at in 0..3 {
            if self.keepers[at].is_some() {
                self.stop(at).await;
            }
        }
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }

    fn part(&self, at: usize) -> Part {
        self.keepers[at].as_ref().expect("it runs").metadata.part()
    }

    async fn leader(&self) -> usize {
        let leads = || (0..3).find(|at| self.keepers[*at].is_some() && self.part(*at).leads());
        until("one leads", async || leads().is_some()).await;
        leads().expect("it was seen")
    }

    /// Asks whoever leads until it is answered. A change may be done twice.
    async fn ask(&self, request: Request) -> Result<Reply> {
        loop {
            let leader = self.leader().await;
            let metadata = &self.keepers[leader].as_ref().expect("it runs").metadata;
            match metadata.ask_for(ASKER, request.clone()).await {
                Err(error) if error.kind() == ErrorKind::Moved => tokio::time::sleep(Duration::from_millis(10)).await,
                other => return other,
            }
        }
    }

    async fn make(&self, name: &str) {
        let made = self.ask(mkdir(name)).await;
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    async fn has(&self, name: &str) -> bool {
        self.ask(Request::Stat { path: Path::parse(name).expect("a path") }).await.is_ok()
    }
}

impl Three {
    /// Has so many directories made at once by this one, with seventeen above each, of 6 KiB in the log. Their names.
    async fn make_deep(&self, by: usize, of: &str, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count)
            .map(|number| (0..18).map(|place| format!("/{of}{number}-{place}-{}", "n".repeat(200))).collect())
            .collect();
        let mut asked = JoinSet::new();
        for name in &names {
            let (metadata, request) = (self.keepers[by].as_ref().expect("it runs").metadata.clone(), mkdir(name));
            asked.spawn(async move {
                loop {
                    match metadata.ask_for(ASKER, request.clone()).await {
                        // What is made and not yet at the others has a bound.
                        Err(error) if error.kind() == ErrorKind::Full => {
                            tokio::time::sleep(Duration::from_millis(10)).await
                        }
                        other => return other,
                    }
                }
            });
        }
        while let Some(made) = asked.join_next().await {
            made.expect("no panic").expect("it is made by the one who was asked");
        }
        names
    }
}

fn mkdir(name: &str) -> Request {
    let path = Path::parse(name).expect("a path");
    Request::Mkdir { path, parents: true, new: NewInode::with_mode(0o755) }
}

/// Keepers elect one, which makes names with the others. When its lanes end, or the whole of it, another one leads and has all names; and when it
/// is back it is one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_speak() {
    let mut three = Three::open("keepers-speak").await;
    let mut names = Vec::new();
    for round in 0..4 {
        let first = three.leader().await;
        names.push(format!("/{round}"));
        three.make(&format!("/{round}")).await;
        if round % 2 == 0 {
            three.keepers[first].as_ref().expect("it runs").lanes.close();
            until("it leads no more", async || !three.part(first).leads()).await;
        } else {
            three.stop(first).await;
        }
        for name in &names {
            assert!(three.has(name).await, "{name} in round {round}");
        }
        assert_ne!(three.leader().await, first, "nobody hears it");
        names.push(format!("/{round}-without"));
        names.push(format!("/{round}-without"));
        three.make(&format!("/{round}-without")).await;
        if three.keepers[first].is_some() {
            three.stop(first).await;
        }
        three.run(first).await;
    }
    three.end().await;
}

/// Entries of a MiB on ways that take a second for each keep nobody from hearing beats: the one who leads goes on leading, and they are all made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_do_not_stop_beats() {
    let three = Three::open("keepers-entries").await;
    let leader = three.leader().await;
    let term = three.part(leader).term();
    three.wires.iter().for_each(|wires| wires.slow(MIB as usize));
    let names = three.make_deep(leader, "", 800).await;
    for at in 0..3 {
        assert_eq!(three.part(at).term(), term, "keeper {}", at + 1);
    }
    let sent = three.wires[leader].sent();
    assert!(sent > 4 * MIB as usize, "entries were sent: {sent} bytes");
    three.wires.iter().for_each(|wires| wires.slow(0));
    for name in names.iter().step_by(100) {
        assert!(three.has(name).await);
    }
    three.end().await;
}

/// While one is away the two others go on, by more than the memory has room for that is for what keepers send each other: their logs keep all that it
/// lacks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_go_on_while_one_is_away() {
    let mut three = Three::open("keepers-away").await;
    let leader = three.leader().await;
    three.stop((leader + 1) % 3).await;
    let other = (leader + 2) % 3;
    let before = three.wires[leader].sent();
    let makes = async {
        for round in 0..4 {
            three.make_deep(leader, &format!("{round}-"), 400).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), makes).await.expect("the two of them go on");
    let sent = three.wires[leader].sent() - before;
    assert!(sent > 2 * KEEPERS_MEMORY, "{sent} bytes were sent to keeper {}", other + 1);
    three.end().await;
}

/// What is not of a keeper of the store, and to this one, is refused and changes nothing; what is, is heard.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_not_heard() {
    let three = Three::open("keepers-strangers").await;
    let leader = three.leader().await;
    let (from, to) = ((leader as u64 + 1) % 3 + 1, leader as u64 + 1);
    let address = &three.seating.seats[leader].address;
    let link = |number| Link::connect(Arc::new(os::net::TcpNet), address, links(number));
    let (right, other) = (link(from).await.expect("it answers"), link((leader as u64 + 2) % 3 + 1).await.expect("too"));
    let client = LinkSettings { asker: Asker::Client, ..links(from) };
    let client = Link::connect(Arc::new(os::net::TcpNet), address, client).await.expect("it answers");
    // A heartbeat of a leader of a later term: whoever hears it follows.
    let beat = log(3, (from, to), 1000, &[]).bytes().expect("bytes");
    let step =
        Step { store: 9.into(), from, to, draw: (u128::from(from) + 100).into(), parts: vec![beat.len() as u32] };
    let payload = || Payload::new(Bytes::from(beat.clone()));
    let wrong = [
        (&other, step.clone(), payload()),
        (&client, step.clone(), payload()),
        (&right, Step { store: 8.into(), ..step.clone() }, payload()),
        (&right, Step { draw: 7.into(), ..step.clone() }, payload()),
        (&right, Step { to: from, ..step.clone() }, payload()),
        (&right, Step { from: 4, ..step.clone() }, payload()),
        (&right, Step { parts: vec![], ..step.clone() }, payload()),
        (&right, step.clone(), Payload::new(Bytes::from(vec![7; beat.len()]))),
        (&right, Step { parts: vec![beat.len() as u32, 1], ..step.clone() }, {
            Payload::new(Bytes::from([&beat[..], b"x"].concat()))
        }),
    ];
    for (at, (link, step, payload)) in wrong.into_iter().enumerate() {
        let refused = link.call(&step, payload).await.err().map(|error| error.kind());
        assert_eq!(refused, Some(ErrorKind::Invalid), "{at}");
        three.make(&format!("/{at}")).await;
        assert!(three.part(leader).term() < 1000, "{at}: it was heard");
    }
    right.call(&step, payload()).await.expect("it is right");
    until("it is heard", async || three.part(leader).term() >= 1000).await;
    three.end().await;
}
