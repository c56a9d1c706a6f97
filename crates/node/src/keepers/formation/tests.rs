//! Three machines whose keepers begin a store, in memory: started in each order, ended at each write, wiped, set differently, told late.

mod histories;
mod sockets;

use super::{Formation, Given, Others, Outcome, Part};
use crate::keepers::seating::{FILE, KeeperFile, Seating};
use crate::log::{Form, Log};
use crate::metadata::TREE;
use crate::troubles::Troubles;
use crate::world::{Ended, Open, OsWorld, World};
use base::buffer::Pool;
use base::disk::{BlockFile, Disk};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, NodeId};
use base::net::Boxed;
use base::planted::Planted;
use base::unit::WallTime;
use meta::KeeperId;
use net::message::keeper as wire;
use os::disk::{Backend, Opened};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const ADDRESSES: [&str; 3] = ["a:7400", "b:7400", "c:7400"];

const WALL: WallTime = WallTime(1_700_000_000_000);

fn addresses() -> Vec<String> {
    ADDRESSES.map(str::to_string).into()
}

fn node(at: usize) -> NodeId {
    NodeId(100 + at as u128)
}

/// What becomes of a write that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fails {
    /// Nothing is written.
    Unwritten,
    /// All is written, and nobody is told.
    Written,
}

/// Small files in memory, of which one write may fail.
#[derive(Default)]
struct Files {
    files: Mutex<BTreeMap<PathBuf, String>>,
    /// After so many writes one fails.
    fails: Mutex<Option<(usize, Fails)>>,
    planted: Option<Planted>,
    said: Mutex<String>,
}

impl Files {
    fn said(&self) -> String {
        self.said.lock().expect("whole").clone()
    }
}

impl World for Files {
    fn disk(&self, _: &Path, _: Backend, _: Pool) -> Result<Opened> {
        unreachable!("no store is opened")
    }
    fn tree(&self, _: &Path, _: Backend) -> Result<Box<dyn BlockFile>> {
        unreachable!("no store is opened")
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().expect("whole").contains_key(path))
    }
    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }
    fn read_text(&self, path: &Path) -> Result<String> {
        let files = self.files.lock().expect("whole");
        files.get(path).cloned().ok_or_else(|| Error::new(ErrorKind::NotFound, "it is not there"))
    }
    fn replace(&self, path: &Path, bytes: &[u8], _: Backend) -> Result<()> {
        let mut fails = self.fails.lock().expect("whole");
        let fault = match &mut *fails {
            Some((0, fault)) => Some(*fault),
            Some((left, _)) => {
                *left -= 1;
                None
            }
            None => None,
        };
        if fault.is_some() {
            *fails = None;
        }
        if fault != Some(Fails::Unwritten) {
            let text = String::from_utf8(bytes.to_vec()).expect("it is text");
            self.files.lock().expect("whole").insert(path.to_path_buf(), text);
        }
        fault.map_or(Ok(()), |_| Err(Error::new(ErrorKind::Io, "the disk failed")))
    }
    fn make_directory(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn free_bytes(&self, _: &Path) -> Result<u64> {
        Ok(1 << 40)
    }
    fn chunk_settings(&self, capacity: u64, pool: Pool) -> chunk::Settings {
        OsWorld.chunk_settings(capacity, pool)
    }
    fn meta_settings(&self, capacity: u64, random: Arc<dyn Random>) -> meta::Settings {
        OsWorld.meta_settings(capacity, random)
    }
    fn run(&self, _: &str, _: Box<dyn Disk>, _: Open) -> Result<Ended> {
        unreachable!("no store is opened")
    }
    fn aside(&self, _: &str, _: Boxed<'static, ()>) -> Result<Ended> {
        unreachable!("no store is opened")
    }
    fn say(&self, line: &str) {
        let mut said = self.said.lock().expect("whole");
        said.push_str(line);
        said.push('\n');
    }
    fn planted(&self) -> Option<Planted> {
        self.planted
    }
}

/// Who is up, by address.
type Up = BTreeMap<String, (NodeId, Arc<Formation>)>;

/// The network: who asks, and who is there.
struct From(NodeId, Arc<Mutex<Up>>);

impl From {
    fn at(&self, at: &str) -> Result<(NodeId, Arc<Formation>)> {
        let up = self.1.lock().expect("whole");
        up.get(at).cloned().ok_or_else(|| Error::new(ErrorKind::Unreachable, format!("nobody is at {at}")))
    }
}

impl Others for From {
    fn form<'a>(&'a self, at: &'a str, ask: wire::Form) -> Boxed<'a, Result<(NodeId, wire::FormAnswer)>> {
        Box::pin(async move {
            let (node, formation) = self.at(at)?;
            Ok((node, formation.form(self.0, &ask)?))
        })
    }
    fn begin<'a>(&'a self, at: &'a str, ask: wire::Begin) -> Boxed<'a, Result<NodeId>> {
        Box::pin(async move {
            let (node, formation) = self.at(at)?;
            formation.begin(self.0, &ask)?;
            Ok(node)
        })
    }
}

/// Three machines, each with a disk of its own.
struct Three {
    worlds: [Arc<Files>; 3],
    lists: [Vec<String>; 3],
    late: [bool; 3],
    up: Arc<Mutex<Up>>,
    random: Arc<SimRandom>,
}

impl Three {
    fn new(seed: u64) -> Three {
        Three::planted(seed, None)
    }

    fn planted(seed: u64, planted: Option<Planted>) -> Three {
        let worlds = [(); 3].map(|()| Arc::new(Files { planted, ..Files::default() }));
        let lists = [(); 3].map(|()| addresses());
        Three { worlds, lists, late: [false; 3], up: Arc::default(), random: Arc::new(SimRandom::new(seed)) }
    }

    fn meta() -> PathBuf {
        PathBuf::from("/meta")
    }

    /// Starts a machine. An error: its disk failed.
    fn try_start(&self, at: usize) -> Result<()> {
        let own = self.lists[at].iter().position(|address| address == ADDRESSES[at]).expect("it is one of them");
        let given = Given {
            world: self.worlds[at].clone(),
            directory: Three::meta(),
            backend: Backend::Threads,
            keepers: self.lists[at].clone(),
            own,
            node: node(at),
            late: self.late[at],
            random: self.random.clone(),
        };
        let formation = Arc::new(Formation::open(given)?);
        self.up.lock().expect("whole").insert(ADDRESSES[at].to_string(), (node(at), formation));
        Ok(())
    }

    fn start(&self, at: usize) {
        self.try_start(at).expect("its disk works");
    }

    fn stop(&self, at: usize) {
        self.up.lock().expect("whole").remove(ADDRESSES[at]);
    }

    fn is_up(&self, at: usize) -> bool {
        self.up.lock().expect("whole").contains_key(ADDRESSES[at])
    }

    fn formation(&self, at: usize) -> Arc<Formation> {
        self.up.lock().expect("whole")[ADDRESSES[at]].1.clone()
    }

    fn others(&self, at: usize) -> Arc<dyn Others> {
        Arc::new(From(node(at), self.up.clone()))
    }

    fn outcome(&self, at: usize) -> Option<Outcome> {
        self.formation(at).outcome()
    }

    fn wipe(&self, at: usize) -> BTreeMap<PathBuf, String> {
        std::mem::take(&mut *self.worlds[at].files.lock().expect("whole"))
    }

    async fn round(&self, at: usize) {
        self.formation(at).round(&self.others(at), WALL).await;
    }

    /// All that are up ask all others, so often that nothing more comes of it.
    async fn rounds(&self) {
        for at in [0, 1, 2, 2, 1, 0] {
            if self.is_up(at) {
                self.round(at).await;
            }
        }
    }

    /// All keep one store, each as its own keeper, and their files say so.
    fn all_keep(&self) -> Seating {
        let mut all = None;
        for at in 0..3 {
            let Some(Outcome::Keeps { seating, own, draw }) = self.outcome(at) else {
                panic!("{at} does not keep: {:?}, {:?}", self.outcome(at), self.formation(at).waits());
            };
            assert_eq!((own, seating.of_draw(draw).map(|seat| seat.node)), (KeeperId(at as u64 + 1), Some(node(at))));
            let file = KeeperFile::read(self.worlds[at].as_ref(), &Three::meta()).expect("readable");
            assert_eq!(file, Some(KeeperFile { draw, late: false, seating: Some(seating.clone()) }));
            assert_eq!(*all.get_or_insert_with(|| seating.clone()), seating);
        }
        all.expect("three")
    }

    /// None keeps a store, and this one says why.
    fn none_keeps(&self, at: usize, why: &str) {
        let none =
            (0..3).filter(|at| self.is_up(*at)).all(|at| !matches!(self.outcome(at), Some(Outcome::Keeps { .. })));
        let waits = self.formation(at).waits();
        assert!(none && waits.iter().any(|text| text.contains(why)), "{why:?} is not in {waits:?}");
    }
}

/// Whoever starts first, the store begins when the last one is there, and is the same after restarts.
#[tokio::test]
async fn in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let three = Three::new(1);
        for at in order {
            assert!((0..3).filter(|at| three.is_up(*at)).all(|at| three.outcome(at).is_none()), "{order:?}");
            three.start(at);
            three.rounds().await;
        }
        let seating = three.all_keep();
        assert_eq!((seating.made, seating.seats.len()), (WALL, 3));
        for at in order {
            three.stop(at);
            three.start(at);
        }
        three.rounds().await;
        assert_eq!(three.all_keep(), seating);
    }
}

/// Each of the writes fails, written or not, and then the machine starts again: they come together all the same.
#[tokio::test]
async fn ended_at_each_write() {
    for (at, after, fails) in (0..3)
        .flat_map(|at| [0, 1].map(|after| (at, after)))
        .flat_map(|(at, after)| [Fails::Unwritten, Fails::Written].map(|fails| (at, after, fails)))
    {
        for restarts in [false, true] {
            let three = Three::new(2);
            *three.worlds[at].fails.lock().expect("whole") = Some((after, fails));
            for each in 0..3 {
                if three.try_start(each).is_err() {
                    assert!(each == at && after == 0);
                    three.start(each);
                }
            }
            three.rounds().await;
            assert!(three.worlds[at].fails.lock().expect("whole").is_none(), "it failed");
            if restarts {
                three.stop(at);
                three.start(at);
            }
            three.rounds().await;
            three.all_keep();
        }
    }
}

/// The first one begins, and ends before it told anybody; the others go on when it is back, and by one that was told without it.
#[tokio::test]
async fn the_first_ends_right_after() {
    let three = Three::new(3);
    (0..3).for_each(|at| three.start(at));
    three.round(0).await;
    three.stop(0);
    for at in [1, 2] {
        three.stop(at);
        three.start(at);
    }
    three.rounds().await;
    three.none_keeps(1, "nobody is at a:7400");
    three.start(0);
    three.round(1).await;
    three.stop(0);
    three.round(2).await;
    three.start(0);
    three.all_keep();
}

/// Lists that differ, also in their order, are said on both sides, and no store begins until they are the same.
#[tokio::test]
async fn lists_differ() {
    let other = |list: [&str; 3]| list.map(str::to_string).to_vec();
    for list in [
        other(["a:7400", "c:7400", "b:7400"]),
        other(["d:7400", "b:7400", "c:7400"]),
        other(["c:7400", "b:7400", "a:7400"]),
    ] {
        let mut three = Three::new(4);
        three.lists[2] = list;
        (0..3).for_each(|at| three.start(at));
        three.rounds().await;
        for at in [0, 2] {
            three.none_keeps(at, "set them the same on all, in one order");
        }
        three.none_keeps(0, "keeper c:7400: its `keepers` are not the same: number ");
        three.stop(2);
        three.lists[2] = addresses();
        three.start(2);
        three.rounds().await;
        three.all_keep();
    }
    let mut three = Three::new(4);
    three.lists[0] = [&addresses()[..], &["d:7400".to_string(), "e:7400".to_string()]].concat();
    (0..3).for_each(|at| three.start(at));
    three.rounds().await;
    three.none_keeps(0, "here are 5 of them");
    three.none_keeps(1, "here are 3 of them");
}

/// A list that was changed after the store began keeps one out that was not told before, until it is as it was.
#[tokio::test]
async fn a_list_that_changed_meanwhile() {
    let mut three = Three::new(5);
    (0..3).for_each(|at| three.start(at));
    three.round(0).await;
    three.stop(2);
    three.lists[2].swap(0, 1);
    three.start(2);
    three.rounds().await;
    assert!(three.outcome(2).is_none());
    let waits = three.formation(2).waits();
    assert!(waits.iter().any(|text| text.contains("set them as they were")), "{waits:?}");
    three.stop(2);
    three.lists[2] = addresses();
    three.start(2);
    three.rounds().await;
    three.all_keep();
}

/// A directory that is wiped before the store begins is a new one of the same keeper.
#[tokio::test]
async fn wiped_before() {
    let three = Three::new(6);
    three.start(0);
    three.start(1);
    three.rounds().await;
    for at in [1, 0] {
        three.stop(at);
        three.wipe(at);
        three.start(at);
    }
    three.start(2);
    three.rounds().await;
    three.all_keep();
}

/// Wiped when the store begins, or later: it keeps nothing any more, says so, and goes on if its directory comes back.
async fn wiped(at: usize, told: bool, planted: Option<Planted>) -> Option<Outcome> {
    let mut three = Three::planted(7, planted);
    (0..3).for_each(|at| three.start(at));
    three.round(0).await;
    if told {
        three.rounds().await;
    }
    three.stop(at);
    three.late[at] = told;
    let old = three.wipe(at);
    three.start(at);
    three.rounds().await;
    let outcome = three.outcome(at);
    if planted.is_none() {
        let others: Vec<Option<Outcome>> =
            (0..3).filter(|other| *other != at).map(|other| three.outcome(other)).collect();
        assert!(others.iter().all(|outcome| matches!(outcome, Some(Outcome::Keeps { .. }))), "{others:?}");
        three.stop(at);
        *three.worlds[at].files.lock().expect("whole") = old;
        three.start(at);
        three.rounds().await;
        three.all_keep();
    }
    outcome
}

#[tokio::test]
async fn wiped_during_and_after() {
    for (at, told) in [(1, false), (2, false), (0, true), (1, true), (2, true)] {
        let Some(Outcome::Lost { seating, text }) = wiped(at, told, None).await else { panic!("{at} is lost") };
        assert!(seating.seats[at].node == node(at) && text.contains("is not one of those"), "{text}");
        assert!(text.contains("put it back") && text.contains("/meta"), "{text}");
    }
}

/// The planted fault: who does not compare what the directory was given lets it vote under its old number.
#[tokio::test]
async fn a_wiped_keeper_that_votes_is_seen() {
    let outcome = wiped(2, true, Some(Planted::WipedKeeperVotes)).await;
    assert!(matches!(outcome, Some(Outcome::Keeps { own: KeeperId(3), .. })), "{outcome:?}");
}

/// Nothing begins beside devices that were in use when the directory was made: not all keepers' metadata may be taken for none.
#[tokio::test]
async fn devices_in_use() {
    let mut three = Three::new(8);
    (0..3).for_each(|at| three.start(at));
    three.rounds().await;
    three.all_keep();
    three.late = [true; 3];
    for at in 0..3 {
        three.stop(at);
        three.wipe(at);
        three.start(at);
    }
    three.rounds().await;
    for at in 0..3 {
        three.none_keeps(at, "mount their disk");
        three.stop(at);
    }
    // It stays so: the devices may be gone next time.
    three.late = [false; 3];
    (0..3).for_each(|at| three.start(at));
    three.rounds().await;
    three.none_keeps(0, "devices of this node are in use already");
}

/// A store that a node keeps alone is left as it is, and refused on both sides. So are metadata whose file was lost or put back from elsewhere.
#[tokio::test]
async fn a_store_kept_alone() {
    for there in [TREE, "node", "vote-00000000", "vote-00000001"] {
        for at in 0..3 {
            let three = Three::new(9);
            let path = Three::meta().join(there);
            three.worlds[at].files.lock().expect("whole").insert(path.clone(), "kept".to_string());
            (0..3).for_each(|at| three.start(at));
            three.rounds().await;
            let Some(Outcome::Refused(error)) = three.outcome(at) else { panic!("it is refused") };
            assert!(error.text().contains("meta = \"local\""), "{error}");
            three.none_keeps((at + 1) % 3, "that it keeps alone");
            assert_eq!(three.wipe(at), BTreeMap::from([(path, "kept".to_string())]));
        }
    }
    let three = Three::new(9);
    three.start(0);
    let file = Three::meta().join(FILE);
    for (there, text, said) in [
        (Three::meta().join(TREE), "kept", "no store was begun there"),
        (file.clone(), "", "put the file back"),
        (file, "stormwell keeper 1\n", "put the file back"),
    ] {
        three.worlds[0].files.lock().expect("whole").insert(there, text.to_string());
        three.start(0);
        three.start(1);
        three.rounds().await;
        let Some(Outcome::Refused(error)) = three.outcome(0) else { panic!("it is refused") };
        assert!(error.text().contains(said), "{error}");
        three.none_keeps(1, said);
    }
}

/// What is told twice is done once; what is of another store, of strangers, or does not fit, is refused and changes nothing.
#[tokio::test]
async fn told() {
    let three = Three::new(10);
    (0..3).for_each(|at| three.start(at));
    three.round(0).await;
    let Some(Outcome::Keeps { seating, .. }) = three.outcome(0) else { panic!("it began") };
    let (told, begin) = (three.formation(1), seating.begin());
    let refused = |begin: &wire::Begin, asker, why: &str| {
        let refusal = told.begin(asker, begin).expect_err("refused");
        assert!(refusal.text().contains(why) && matches!(told.state().part, Part::Empty(_)), "{refusal}");
    };
    refused(&begin, NodeId(7), "does not keep itself");
    refused(&wire::Begin { seats: begin.seats[..2].to_vec(), ..begin.clone() }, node(0), "neither one nor three");
    refused(&wire::Begin { seats: Vec::new(), ..begin.clone() }, node(0), "neither one nor three");
    let mut changed = seating.clone();
    changed.seats[1].node = NodeId(9);
    refused(&changed.begin(), node(0), "this is node");
    let mut changed = seating.clone();
    (changed.seats[1].draw, changed.seats[2].draw) = (changed.seats[2].draw, changed.seats[1].draw);
    refused(&changed.begin(), node(0), "this is node");
    let mut changed = seating.clone();
    changed.seats[2].address = "d:7400".to_string();
    refused(&changed.begin(), node(0), "number 3 is c:7400 here and d:7400 there");
    for _ in 0..2 {
        assert!(told.begin(node(0), &begin).is_ok() && told.begin(node(2), &begin).is_ok());
    }
    let other = Seating { store: ClusterId(7), ..seating.clone() };
    let refusal = told.begin(node(0), &other.begin()).expect_err("another store");
    assert!(refusal.text().contains("was told of store"), "{refusal}");
    three.rounds().await;
    assert_eq!(three.all_keep(), seating);
    // A directory that is not among them is lost, and stays so.
    let mut changed = seating;
    changed.seats[2].draw = 5;
    let three = Three::new(11);
    three.start(2);
    assert!(three.formation(2).begin(node(0), &changed.begin()).is_err());
    assert!(matches!(three.outcome(2), Some(Outcome::Lost { .. })));
}

/// A copy of a directory, two addresses of one node, and a directory that came with other devices are no keepers.
#[tokio::test]
async fn copies() {
    let three = Three::new(12);
    three.start(1);
    let files = three.worlds[1].files.lock().expect("whole").clone();
    *three.worlds[2].files.lock().expect("whole") = files;
    (0..3).for_each(|at| three.start(at));
    three.rounds().await;
    three.none_keeps(0, "have one directory, or a copy of it");
    three.none_keeps(1, "has a copy of the directory");
    let three = Three::new(12);
    (0..3).for_each(|at| three.start(at));
    let same = (node(1), three.formation(1));
    three.up.lock().expect("whole").insert(ADDRESSES[2].to_string(), same);
    three.round(0).await;
    three.none_keeps(0, "another keeper answers at this address");
    let three = Three::new(12);
    (0..3).for_each(|at| three.start(at));
    three.rounds().await;
    let files = three.worlds[1].files.lock().expect("whole").clone();
    *three.worlds[2].files.lock().expect("whole") = files;
    three.start(2);
    let Some(Outcome::Refused(error)) = three.outcome(2) else { panic!("it is refused") };
    assert!(error.text().contains("is the directory of keeper 2"), "{error}");
}

/// With time: all run until they keep the store, say once what they wait for, and the one who keeps it tells the others.
#[tokio::test(start_paused = true)]
async fn run_and_tell() {
    let three = Three::new(13);
    let clock = Arc::new(sim::clock::SimClock::new());
    let troubles =
        |at: usize| Troubles::new(Log::new(clock.clone(), Form::Text, three.worlds[at].clone()), clock.clone());
    three.start(0);
    three.start(1);
    let run = |at: usize| {
        let (formation, others, clock, troubles) = (three.formation(at), three.others(at), clock.clone(), troubles(at));
        tokio::spawn(async move { formation.run(others, clock.as_ref(), &troubles).await })
    };
    let (first, second) = (run(0), run(1));
    tokio::time::sleep(std::time::Duration::from_secs(30)).await;
    let said = three.worlds[0].said();
    assert_eq!(said.matches("keeper c:7400: nobody is at c:7400").count(), 1, "{said}");
    three.start(2);
    assert!(matches!(first.await.expect("it ran"), Outcome::Keeps { own: KeeperId(1), .. }));
    // The one that does not ask is told, by a task that ends then.
    three.formation(0).tell(three.others(0).as_ref(), &troubles(0)).await;
    assert!(matches!(second.await.expect("it ran"), Outcome::Keeps { own: KeeperId(2), .. }));
    three.all_keep();
}

/// A single keeper begins at once.
#[tokio::test]
async fn one() {
    let mut three = Three::new(14);
    three.lists[1] = vec![ADDRESSES[1].to_string()];
    three.start(1);
    three.round(1).await;
    assert!(matches!(three.outcome(1), Some(Outcome::Keeps { own: KeeperId(1), .. })));
}
