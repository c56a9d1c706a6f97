//! Three keepers in their threads on real disks: one leads, another one takes over, one that lacks too much or cannot be opened gets a copy.

use super::super::{Carrier, Files, Item, Metadata, TREE, Then, spawn};
use super::ASKER;
use crate::loan::Loans;
use crate::world::{Ended, OsWorld, World};
use base::buffer::Pool;
use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use base::env::{Clock, Random};
use base::error::{ErrorKind, Result};
use base::id::ClusterId;
use base::unit::{MIB, WallTime};
use meta::path::Path;
use meta::request::{NewInode, User};
use meta::{KeeperId, KeeperMessage, Part, Reply, Request, Seats};
use os::disk::Backend;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::oneshot;

/// Who hears what is sent to a keeper; and the keepers whom nobody hears.
#[derive(Default)]
struct Lanes {
    hear: Mutex<[Weak<Metadata>; 3]>,
    cut: [AtomicBool; 3],
}

/// The way from one keeper to the others.
struct From(usize, Arc<Lanes>);

impl Carrier for From {
    fn send(&self, to: KeeperId, message: KeeperMessage) {
        let From(from, lanes) = self;
        let to = to.0 as usize - 1;
        let is_cut = |at: usize| lanes.cut[at].load(Ordering::Relaxed);
        let hears = lanes.hear.lock().expect("whole")[to].upgrade();
        if let Some(hears) = hears.filter(|_| !is_cut(*from) && !is_cut(to)) {
            let bytes = message.bytes().expect("keepers send it");
            let length = bytes.len();
            hears.step(KeeperMessage::read(&bytes.into()).expect("it was sent"), length);
        }
    }
}

/// A disk whose syncs fail when it is told so.
struct Breaks {
    disk: Box<dyn Disk>,
    broken: Arc<AtomicBool>,
    syncs: BTreeSet<u64>,
}

impl Disk for Breaks {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.disk.list()
    }
    fn submit(&mut self, token: u64, op: Op) {
        if matches!(op, Op::Sync { .. }) {
            self.syncs.insert(token);
        }
        self.disk.submit(token, op);
    }
    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let before = done.len();
        self.disk.poll(wait, done);
        for finished in &mut done[before..] {
            if self.syncs.remove(&finished.token) && self.broken.load(Ordering::SeqCst) {
                finished.result = Err(DiskError::Io("Input/output error (os error 5)".to_string()));
            }
        }
    }
    fn waker(&self) -> Arc<dyn Wake> {
        self.disk.waker()
    }
    fn backend(&self) -> &'static str {
        self.disk.backend()
    }
}

struct Keeper {
    metadata: Arc<Metadata>,
    ended: Vec<Ended>,
    broken: Arc<AtomicBool>,
}

struct Three {
    directory: PathBuf,
    lanes: Arc<Lanes>,
    clock: Arc<dyn Clock>,
    keepers: [Option<Keeper>; 3],
}

impl Three {
    async fn open(name: &str) -> Three {
        let directory = std::env::temp_dir().join(format!("stormwell-{name}-{}", std::process::id()));
        let _left = std::fs::remove_dir_all(&directory);
        let clock = Arc::new(os::clock::SystemClock::new());
        let mut three = Three { directory, lanes: Arc::default(), clock, keepers: [None, None, None] };
        (0..3).for_each(|at| three.run(at));
        let leader = three.leader().await;
        let user = User { name: "ada".to_string(), groups: Vec::new() };
        three.metadata(leader).ask_for(ASKER, Request::OpenSession { user }).await.expect("a session");
        three
    }

    fn of(&self, at: usize) -> PathBuf {
        self.directory.join(at.to_string())
    }

    fn run(&mut self, at: usize) {
        let directory = self.of(at);
        std::fs::create_dir_all(&directory).expect("a directory for the test");
        let opened = OsWorld.disk(&directory, Backend::Threads, Pool::new(0)).expect("it opens");
        let broken: Arc<AtomicBool> = Arc::default();
        let disk = Box::new(Breaks { disk: opened.disk, broken: broken.clone(), syncs: BTreeSet::new() });
        let random: Arc<dyn Random> = Arc::new(sim::random::SimRandom::new(at as u64));
        let voters = (1..=3).map(KeeperId).collect();
        let seats =
            Seats { store: ClusterId(9), own: KeeperId(at as u64 + 1), voters, made: WallTime(1_700_000_000_000) };
        let settings = meta::Settings {
            segment_length: MIB,
            segments_max: 4,
            merge_bytes: MIB as usize / 2,
            copy_page: 64 << 10,
            superuser: "ada".to_string(),
            seats: Some(seats),
            ..OsWorld.meta_settings(1 << 30, random)
        };
        let loans = Arc::new(Loans::of_this_runtime());
        let files = Files::new(Arc::new(OsWorld), directory, Backend::Threads);
        let carrier: Arc<dyn Carrier> = Arc::new(From(at, self.lanes.clone()));
        let spawned = spawn((&OsWorld, files), disk, settings, self.clock.clone(), loans, Some(carrier));
        let (metadata, ended) = spawned.expect("one of several begins, whatever it finds");
        self.lanes.hear.lock().expect("whole")[at] = Arc::downgrade(&metadata);
        self.keepers[at] = Some(Keeper { metadata, ended, broken });
    }

    async fn stop(&mut self, at: usize) {
        let Keeper { metadata, ended, .. } = self.keepers[at].take().expect("it runs");
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

    fn metadata(&self, at: usize) -> &Arc<Metadata> {
        &self.keepers[at].as_ref().expect("it runs").metadata
    }

    fn leads(&self) -> Option<usize> {
        (0..3).find(|at| self.keepers[*at].as_ref().is_some_and(|keeper| keeper.metadata.part().leads()))
    }

    async fn leader(&self) -> usize {
        until("one leads", async || self.leads().is_some()).await;
        self.leads().expect("it was seen")
    }

    /// Asks whoever leads until it is answered. A change may be done twice.
    async fn ask(&self, request: Request) -> Result<Reply> {
        loop {
            let leader = self.leader().await;
            match self.metadata(leader).ask_for(ASKER, request.clone()).await {
                // Four segments of 1 MiB are few: what is refused for want of room is asked again.
                Err(error) if matches!(error.kind(), ErrorKind::Moved | ErrorKind::Full) => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                other => return other,
            }
        }
    }

    async fn make(&self, name: &str) {
        let path = Path::parse(name).expect("a path");
        let made = self.ask(Request::Mkdir { path, parents: true, new: NewInode::with_mode(0o755) }).await;
        made.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    async fn has(&self, name: &str) -> bool {
        self.ask(Request::Stat { path: Path::parse(name).expect("a path") }).await.is_ok()
    }

    /// Makes 7,200 names of some 2 MiB in the log: the one who lacks them is not waited for from a quarter of its 4 MiB on.
    async fn make_many(&self, of: &str) {
        for number in 0..400 {
            // Eighteen names in one: each directory on the way is made, too.
            let deep: Vec<String> = (0..18).map(|place| format!("{of}{number}-{place}-{}", "n".repeat(200))).collect();
            self.make(&format!("/{}", deep.join("/"))).await;
        }
    }

    /// Which file the tree's is: another one when a copy took its place.
    fn tree(&self, at: usize) -> u64 {
        std::fs::metadata(self.of(at).join(TREE)).expect("a tree").ino()
    }
}

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let waits = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waits).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What is acknowledged by one that leads, the next one has. One that does not lead says so, and knows who does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_one_takes_over() {
    let mut three = Three::open("takes-over").await;
    let mut last = 0;
    for round in 0..3 {
        let first = three.leader().await;
        let term = three.metadata(first).part().term();
        assert!(term > last, "{term} after {last}");
        last = term;
        three.make(&format!("/{round}")).await;
        let other = (first + 1) % 3;
        let leader = Some(KeeperId(first as u64 + 1));
        until("the others know it", async || three.metadata(other).part() == Part::Follows { leader, term }).await;
        let refused = three.metadata(other).ask_for(ASKER, Request::Usage).await;
        assert_eq!(refused.err().map(|error| error.kind()), Some(ErrorKind::Moved));
        three.stop(first).await;
        for made in 0..=round {
            assert!(three.has(&format!("/{made}")).await, "{made} in round {round}");
        }
        three.run(first);
    }
    three.end().await;
}

/// One that is away while more is made than the others' logs hold gets a copy, and is as good as the others then: with it, and without one of those,
/// changes are made, and it leads with all names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_gets_a_copy() {
    let mut three = Three::open("copy").await;
    three.make("/before").await;
    let leader = three.leader().await;
    let (away, other) = ((leader + 1) % 3, (leader + 2) % 3);
    three.stop(away).await;
    let before = three.tree(away);
    three.make_many("away").await;
    three.run(away);
    three.make_many("comes").await;
    until("its tree is a copy", async || three.tree(away) != before).await;
    three.make_many("has").await;
    // It and the one that leads are most of them.
    three.stop(other).await;
    three.make("/last").await;
    three.run(other);
    three.make("/with-all").await;
    for at in [leader, other] {
        three.stop(at).await;
        assert!(three.has("/before").await && three.has("/last").await && three.has("/with-all").await);
        three.run(at);
    }
    three.end().await;
}

/// One whose tree does not read is no reason for the others to stop, gets a copy, and leads with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_is_mended() {
    let mut three = Three::open("mended").await;
    three.make("/before").await;
    let leader = three.leader().await;
    three.stop(leader).await;
    let tree = three.of(leader).join(TREE);
    let length = std::fs::metadata(&tree).expect("a tree").len() as usize;
    std::fs::write(&tree, vec![0x5a; length]).expect("it is ours");
    let before = three.tree(leader);
    three.run(leader);
    three.make("/meanwhile").await;
    until("its tree is a copy", async || three.tree(leader) != before).await;
    let other = (leader + 1) % 3;
    three.stop(other).await;
    three.make("/with-it").await;
    three.run(other);
    three.stop((leader + 2) % 3).await;
    for name in ["/before", "/meanwhile", "/with-it"] {
        assert!(three.has(name).await, "{name}");
    }
    three.end().await;
}

/// A log that fails ends a leadership, and not the process: another one leads, and the one whose log failed is opened again and follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_fails() {
    let mut three = Three::open("fails").await;
    for round in 0..3 {
        let leader = three.leader().await;
        let broken = three.keepers[leader].as_ref().expect("it runs").broken.clone();
        broken.store(true, Ordering::SeqCst);
        // Whether it was made is not known to the one that fails; whoever leads next knows.
        three.make(&format!("/{round}")).await;
        assert_ne!(three.leader().await, leader, "its log failed");
        broken.store(false, Ordering::SeqCst);
        // With one of the others away nothing is made without it.
        let other = (0..3).find(|at| *at != leader && !three.metadata(*at).part().leads()).expect("of three");
        three.stop(other).await;
        three.make(&format!("/{round}-with-it")).await;
        three.run(other);
    }
    for round in 0..3 {
        assert!(three.has(&format!("/{round}")).await && three.has(&format!("/{round}-with-it")).await);
    }
    three.end().await;
}

/// Cut off from the others, a leader says that it leads no more, and what it was asked is done by another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_off() {
    let three = Three::open("cut-off").await;
    let first = three.leader().await;
    three.lanes.cut[first].store(true, Ordering::Relaxed);
    let path = Path::parse("/cut").expect("a path");
    let request = Request::Mkdir { path, parents: true, new: NewInode::with_mode(0o755) };
    let asked = three.metadata(first).ask_for(ASKER, request).await;
    assert_eq!(asked.err().map(|error| error.kind()), Some(ErrorKind::Moved), "it waits for the others in vain");
    until("another one leads", async || three.leads().is_some_and(|leads| leads != first)).await;
    three.make("/elsewhere").await;
    three.lanes.cut[first].store(false, Ordering::Relaxed);
    assert!(three.has("/elsewhere").await);
    three.end().await;
}

/// Who waits for the other keepers when one is stopped is told that another one answers, and not that the node gave up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_while_somebody_waits() {
    let mut three = Three::open("stopped").await;
    let leader = three.leader().await;
    three.lanes.cut[leader].store(true, Ordering::Relaxed);
    let path = Path::parse("/waits").expect("a path");
    let request = Request::Mkdir { path, parents: true, new: NewInode::with_mode(0o755) };
    let (tell, told) = oneshot::channel();
    three.metadata(leader).send(Item::Ask { caller: ASKER, request, then: Then::Tell(tell) });
    three.stop(leader).await;
    let answer = told.await.expect("it is told");
    assert_eq!(answer.err().map(|error| error.kind()), Some(ErrorKind::Moved));
    three.end().await;
}
