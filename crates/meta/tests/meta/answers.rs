//! Changes that clients of gateways ask for: one that is asked again through another gateway, so under another session, is answered as
//! before and not repeated; and a file that was opened through one goes on through another.

use crate::world::{World, delete, mkdir, path, stat};
use base::error::ErrorKind;
use base::id::{DeviceId, Generation, InodeId, NodeId, SessionId};
use base::planted::Planted;
use meta::request::{Asked, FileHandle, FileRef, NewInode, NodeInfo, Orphan, User};
use meta::{Caller, Reply, Request};
use std::time::Duration;

const GATEWAYS: [SessionId; 2] = [SessionId(101), SessionId(102)];

/// A store with two gateways' sessions and this many nodes.
fn world(seed: u64, nodes: u128) -> World {
    let mut world = World::new(seed);
    for node in 1..=nodes {
        let (name, address) = (format!("n{node}"), format!("host-{node}:1"));
        let info = NodeInfo { node: NodeId(node), incarnation: 1, name, address, ..NodeInfo::default() };
        world.ask(Request::NodeJoin { node: info }).expect("a node");
    }
    report(&mut world);
    for session in GATEWAYS {
        ask(&mut world, session, 1, Request::OpenSession { user: User::default() }).expect("a session");
    }
    world
}

fn report(world: &mut World) {
    let report = Request::NodeReport { node: NodeId(1), keeps: true, devices: vec![DeviceId(1), DeviceId(2)] };
    world.ask(report).expect("it joined");
}

fn ask(world: &mut World, session: SessionId, call: u64, request: Request) -> base::error::Result<Reply> {
    world.ask_as(Caller { session, call, floor: 0 }, request).expect("answered")
}

fn asked(client: u128, call: u32, change: Request) -> Request {
    Request::Asked { asked: Asked { client, call }, change: Box::new(change) }
}

fn answered(world: &mut World, client: u128, call: u32) -> Option<Reply> {
    match world.ask(Request::Answered { asked: Asked { client, call } }) {
        Ok(Reply::Answered(answer)) => answer.map(|answer| *answer),
        other => panic!("{other:?}"),
    }
}

fn create(name: &str, holder: &str) -> Request {
    let new = NewInode { holder: holder.to_string(), ..NewInode::with_mode(0o644) };
    Request::Create { replicas_max: 1, path: path(name), overwrite: true, parents: false, new }
}

fn rename(from: &str, to: &str) -> Request {
    Request::Rename { from: path(from), to: path(to), replace: false, removes: false }
}

fn handle(reply: base::error::Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

/// A call is done once, whichever gateway it is asked through and whatever happened to the store in between; other calls and other
/// clients are others; what was refused is asked anew.
#[test]
fn done_once() {
    let mut world = world(1, 2);
    world.ask(mkdir("/a")).expect("mkdir");
    let [first, second] = GATEWAYS;
    assert_eq!(answered(&mut world, 5, 1), None);
    assert_eq!(ask(&mut world, first, 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done));
    assert_eq!(ask(&mut world, second, 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done), "it was done");
    let error = ask(&mut world, second, 3, asked(5, 2, rename("/a", "/b"))).expect_err("another call");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(answered(&mut world, 5, 2), None, "what was refused");
    let error = ask(&mut world, second, 4, asked(6, 1, rename("/a", "/b"))).expect_err("another client");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let made = handle(ask(&mut world, first, 3, asked(5, 3, create("/f", "c"))));
    let error = ask(&mut world, second, 5, asked(5, 3, delete("/b"))).expect_err("another question");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    world.crash(1);
    assert_eq!(ask(&mut world, second, 6, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done));
    let again = handle(ask(&mut world, second, 7, asked(5, 3, create("/f", "c"))));
    assert_eq!((again.inode, again.generation), (made.inode, made.generation), "no second file");
    assert!(matches!(answered(&mut world, 5, 3), Some(Reply::Handle(found)) if found.inode == made.inode));
    let now = world.ask(stat("/f"));
    assert!(matches!(now, Ok(Reply::Attributes(found)) if found.inode == made.inode.0 && found.holder == "c"));
    world.ask(delete("/b")).expect("deleted");
    assert_eq!(ask(&mut world, first, 8, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done), "even so");
}

/// A store of one node remembers them as well: its gateway forgets all when it is started again.
#[test]
fn alone() {
    let mut world = world(2, 1);
    world.ask(mkdir("/a")).expect("mkdir");
    assert_eq!(ask(&mut world, GATEWAYS[0], 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done));
    world.crash(1);
    assert_eq!(ask(&mut world, GATEWAYS[1], 2, asked(5, 1, rename("/a", "/b"))), Ok(Reply::Done), "it was done");
    assert_eq!(answered(&mut world, 5, 1), Some(Reply::Done));
}

/// A call that comes when its answer is forgotten is not done again, whatever came between and also after a crash: what was made since at its
/// path stays. Later calls of the same client are done, and calls of others, whatever their numbers.
#[test]
fn forgotten() {
    let mut world = world(6, 1);
    world.answers_max = Some(4);
    world.crash(1);
    report(&mut world);
    let [first, second] = GATEWAYS;
    let mut number = 10;
    let mut say = |world: &mut World, session, client, call, change| {
        number += 1;
        ask(world, session, number, asked(client, call, change))
    };
    let made = handle(say(&mut world, first, 5, 7, create("/f", "c")));
    let close = Request::Close {
        inode: made.inode,
        generation: made.generation,
        finished: Some((made.group.group, 5)),
        modified: None,
        mode: None,
    };
    ask(&mut world, first, 3, close).expect("closed");
    world.ask(mkdir("/a")).expect("mkdir");
    assert_eq!(say(&mut world, first, 5, 9, rename("/a", "/b")), Ok(Reply::Done), "not in order");
    assert_eq!(say(&mut world, first, 5, 8, rename("/b", "/a")), Ok(Reply::Done), "as calls of several threads are");
    let busy = |world: &mut World,
                say: &mut dyn FnMut(&mut World, u128, u32, Request) -> base::error::Result<Reply>| {
        for (at, (from, to)) in [("/a", "/b"), ("/b", "/a"), ("/a", "/b"), ("/b", "/a")].into_iter().enumerate() {
            assert_eq!(say(world, 6, 1 + at as u32, rename(from, to)), Ok(Reply::Done));
        }
    };
    busy(&mut world, &mut |world, client, call, change| say(world, first, client, call, change));
    for round in 0..3 {
        assert_eq!(answered(&mut world, 5, 7), None, "it is forgotten");
        for (call, change) in [(7, create("/f", "c")), (8, rename("/b", "/a")), (9, delete("/f")), (1, delete("/f"))] {
            let refused = say(&mut world, second, 5, call, change).expect_err("it may have been done long ago");
            assert_eq!(refused.kind(), ErrorKind::Protocol, "call {call} in round {round}: {refused}");
        }
        let now = world.ask(stat("/f"));
        assert!(matches!(now, Ok(Reply::Attributes(found)) if found.inode == made.inode.0 && found.length == 5));
        assert_eq!(say(&mut world, second, 6, 4, rename("/b", "/a")), Ok(Reply::Done), "it is remembered");
        world.crash(2 + round);
    }
    assert_eq!(say(&mut world, second, 7, 1, rename("/a", "/c")), Ok(Reply::Done), "another client");
    assert_eq!(say(&mut world, second, 5, 10, rename("/c", "/a")), Ok(Reply::Done), "a later call");
    assert_eq!(say(&mut world, first, 5, 10, rename("/c", "/a")), Ok(Reply::Done), "it was done");
    let refused = say(&mut world, first, 6, 1, rename("/a", "/b")).expect_err("forgotten by now");
    assert_eq!(refused.kind(), ErrorKind::Protocol);
}

/// The lease of a remembered answer is said to be lost to whoever does not have it: another session, and its own once somebody took the
/// file.
#[test]
fn leases_of_remembered_answers() {
    let mut world = world(4, 2);
    let [first, second] = GATEWAYS;
    let made = handle(ask(&mut world, first, 2, asked(5, 1, create("/f", "c"))));
    let here = handle(ask(&mut world, first, 2, asked(5, 1, create("/f", "c"))));
    let there = handle(ask(&mut world, second, 2, asked(5, 1, create("/f", "c"))));
    assert_eq!([&made, &here, &there].map(|answer| answer.lost), [false, false, true]);
    assert_eq!([&here, &there].map(|answer| (answer.inode, answer.generation)), [(made.inode, made.generation); 2]);
    let there = handle(ask(&mut world, second, 2, asked(5, 1, create("/f", "c"))));
    assert!(there.lost, "as the session was told before");
    let fence = Request::Fence { inode: made.inode, only_gone: false, for_holder: false, generation: None };
    world.ask(fence).expect("fenced");
    assert!(handle(ask(&mut world, first, 2, asked(5, 1, create("/f", "c")))).lost);
}

/// Nobody takes a file whose writer lives by opening it, whoever holds it; what was recovered of it without a byte stays fenced on its
/// device until the session of that writer is over, or the file is gone.
#[test]
fn taken_without_bytes() {
    for deleted in [false, true] {
        take_without_bytes(deleted);
    }
}

/// A file that was closed for the next gateway is opened there by its number, whatever its name is by now, and only if nobody has opened it
/// since.
#[test]
fn taken_by_its_number() {
    let mut world = world(3, 2);
    let [first, second] = GATEWAYS;
    let (inode, generation) = closed_for(&mut world, true);
    let rename = Request::Rename { from: path("/f"), to: path("/g"), replace: false, removes: false };
    ask(&mut world, first, 3, rename).expect("renamed");
    let open = |holder: &str| Request::AppendOpen {
        replicas_max: 1,
        file: FileRef::Inode(inode),
        holder: holder.to_string(),
        began: None,
        at: Some(generation),
    };
    let error = ask(&mut world, second, 5, open("d")).expect_err("another holder");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    let taken = handle(ask(&mut world, second, 6, open("c")));
    assert_eq!((taken.inode, taken.length), (inode, 9));
    let (generation, finished) = (taken.generation, Some((taken.group.group, 5)));
    let close = Request::Close { inode, generation, finished, modified: None, mode: None };
    ask(&mut world, second, 7, close).expect("closed");
    let error = ask(&mut world, second, 8, open("c")).expect_err("it was written to since");
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
}

/// A file that is closed for its holder shows him until somebody takes it from him, before or after it is closed, or changes it; what an
/// earlier call takes it from is not he.
#[test]
fn kept_for_its_holder() {
    let fence = |inode, for_holder, generation| Request::Fence { inode, only_gone: false, for_holder, generation };
    let holder = |world: &mut World| match world.ask(stat("/f")) {
        Ok(Reply::Attributes(found)) => (found.open, found.holder, found.began_generation),
        other => panic!("not there: {other:?}"),
    };
    let (nobody, its) = ((false, String::new(), 0), (false, "c".to_string(), 1));
    let mut world = world(3, 2);
    let (inode, generation) = closed_for(&mut world, true);
    assert_eq!(holder(&mut world), its);
    world.crash(1);
    assert_eq!(holder(&mut world), its, "as it is stored");
    let [first, second] = GATEWAYS;
    ask(&mut world, second, 5, fence(inode, true, Some(generation))).expect("it is closed");
    ask(&mut world, second, 6, fence(inode, false, Some(Generation(generation.0 - 2)))).expect("it is closed");
    assert_eq!(holder(&mut world), its);
    ask(&mut world, second, 7, fence(inode, false, Some(generation))).expect("it is closed");
    assert_eq!(holder(&mut world), nobody);
    // Whoever takes it between the two steps of the one that keeps it has it taken.
    let mut world = self::world(3, 2);
    let made = handle(ask(&mut world, first, 2, create("/f", "c")));
    for for_holder in [true, false, true] {
        world.ask(fence(made.inode, for_holder, Some(made.generation))).expect("fenced");
    }
    assert_eq!(holder(&mut world).1, "");
    let generation = Generation(made.generation.0 + 1);
    world.ask(Request::Recovered { without: Vec::new(), inode: made.inode, generation, length: 9 }).expect("closed");
    assert_eq!(holder(&mut world), nobody);
    // Its gateway is gone.
    let mut world = self::world(3, 2);
    let made = handle(ask(&mut world, first, 2, create("/f", "c")));
    ask(&mut world, first, 3, Request::CloseSession).expect("over");
    world.pass(Duration::ZERO);
    world.ask(Request::Recovered { without: Vec::new(), inode: made.inode, generation, length: 9 }).expect("closed");
    let only_gone = Request::Fence { inode: made.inode, only_gone: true, for_holder: false, generation: None };
    ask(&mut world, second, 4, only_gone).expect("it is closed");
    assert_eq!(holder(&mut world), its, "whoever wants what is left has not opened it");
    world.ask(Request::Truncate { path: path("/f"), length: 3 }).expect("shorter");
    assert_eq!(holder(&mut world), nobody, "it is not the file that he wrote any more");
}

/// A file of one gateway's, "/f" of "c", that another one has closed with nine bytes; for its holder, or from him, too.
fn closed_for(world: &mut World, for_holder: bool) -> (InodeId, Generation) {
    let [first, second] = GATEWAYS;
    let made = handle(ask(world, first, 2, create("/f", "c")));
    let fence = Request::Fence { inode: made.inode, only_gone: false, for_holder, generation: Some(made.generation) };
    let Ok(Reply::Orphans(orphans)) = ask(world, second, 3, fence) else { panic!("not fenced") };
    let Orphan { inode, generation, .. } = orphans[0].clone();
    ask(world, second, 4, Request::Recovered { without: Vec::new(), inode, generation, length: 9 }).expect("closed");
    (inode, generation)
}

fn take_without_bytes(deleted: bool) {
    let mut world = world(3, 2);
    let [first, second] = GATEWAYS;
    let open = |holder: &str| Request::AppendOpen {
        replicas_max: 1,
        file: FileRef::Path(path("/f")),
        holder: holder.to_string(),
        began: None,
        at: None,
    };
    let made = handle(ask(&mut world, first, 2, create("/f", "c")));
    for holder in ["c", "d", ""] {
        assert_eq!(ask(&mut world, second, 2, open(holder)).expect_err("it has a writer").kind(), ErrorKind::Busy);
    }
    let fence =
        Request::Fence { inode: made.inode, only_gone: false, for_holder: false, generation: Some(made.generation) };
    let Ok(Reply::Orphans(orphans)) = ask(&mut world, second, 3, fence) else { panic!("not fenced") };
    let Orphan { inode, generation, .. } = orphans[0].clone();
    ask(&mut world, second, 4, Request::Recovered { without: Vec::new(), inode, generation, length: 0 })
        .expect("closed");
    let taken = handle(ask(&mut world, second, 5, open("c")));
    assert!(taken.generation > made.generation && taken.group.group != made.group.group);
    let close = |of: &FileHandle, length| {
        let (inode, generation, group) = (of.inode, of.generation, of.group.group);
        Request::Close { inode, generation, finished: Some((group, length)), modified: None, mode: None }
    };
    assert_eq!(ask(&mut world, first, 3, close(&made, 5)).expect_err("not its own any more").kind(), ErrorKind::Stale);
    ask(&mut world, second, 6, close(&taken, 9)).expect("closed");
    world.crash(1);
    let group = made.group.group;
    let is_garbage = |world: &mut World| {
        let Ok(Reply::Garbage(garbage)) =
            world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 9 })
        else {
            panic!("no list")
        };
        garbage.groups.iter().any(|found| found.group == group)
    };
    let known = world.ask(Request::KnownGroups { groups: vec![group] });
    assert!(
        matches!(known, Ok(Reply::Known(known)) if known.len() == 1) && !is_garbage(&mut world),
        "it is fenced there"
    );
    if deleted {
        world.ask(delete("/f")).expect("deleted");
        assert!(is_garbage(&mut world), "it goes with the file");
        return;
    }
    ask(&mut world, first, 4, Request::CloseSession).expect("over");
    world.pass(Duration::ZERO);
    assert!(is_garbage(&mut world), "it goes with its writer's session");
    assert!(
        matches!(world.ask(Request::FenceList { after: None, limit: 9 }), Ok(Reply::FenceList { orphans, resume: None }) if orphans.is_empty())
    );
    let now = world.ask(stat("/f"));
    assert!(matches!(now, Ok(Reply::Attributes(found)) if found.length == 9 && !found.open));
    world.ask(delete("/f")).expect("deleted");
}

/// A call whose answer was forgotten is done again when it comes late if that fault is put in: `forgotten` would see it.
#[test]
fn a_repeated_call_is_seen() {
    for planted in [None, Some(Planted::ForgottenCallRepeated)] {
        let mut world = world(6, 1);
        (world.answers_max, world.planted) = (Some(2), planted);
        world.crash(1);
        report(&mut world);
        let session = GATEWAYS[0];
        ask(&mut world, session, 2, asked(5, 1, mkdir("/a"))).expect("made");
        for (number, name) in ["/b", "/c"].into_iter().enumerate() {
            ask(&mut world, session, 3 + number as u64, asked(6, 1 + number as u32, mkdir(name))).expect("made");
        }
        world.ask(delete("/a")).expect("deleted");
        let late = ask(&mut world, session, 5, asked(5, 1, mkdir("/a")));
        assert_eq!(
            (late.is_ok(), world.ask(stat("/a")).is_ok()),
            (planted.is_some(), planted.is_some()),
            "{planted:?}"
        );
    }
}

/// Faults that are put in on purpose do what `leases_of_remembered_answers` and `taken_without_bytes` would see.
#[test]
fn planted_faults_are_seen() {
    let with = |planted| {
        let mut world = world(3, 2);
        world.planted = Some(planted);
        world.crash(1);
        let report = Request::NodeReport { node: NodeId(1), keeps: true, devices: vec![DeviceId(1), DeviceId(2)] };
        world.ask(report).expect("it is heard again");
        world
    };
    let [first, second] = GATEWAYS;
    let mut world = with(Planted::RememberedLeaseBelieved);
    for session in [first, second] {
        assert!(!handle(ask(&mut world, session, 2, asked(5, 1, create("/f", "c")))).lost);
    }
    let mut world = with(Planted::LateCallTakesFile);
    let made = handle(ask(&mut world, first, 2, create("/f", "c")));
    let append = Request::AppendOpen {
        replicas_max: 1,
        file: FileRef::Path(path("/f")),
        holder: "c".to_string(),
        began: None,
        at: None,
    };
    assert_ne!(handle(ask(&mut world, second, 2, append)).group.group, made.group.group);
    let mut world = with(Planted::FenceForgotten);
    let made = handle(ask(&mut world, first, 2, create("/f", "c")));
    let fence =
        Request::Fence { inode: made.inode, only_gone: false, for_holder: false, generation: Some(made.generation) };
    let Ok(Reply::Orphans(orphans)) = ask(&mut world, second, 2, fence) else { panic!("not fenced") };
    let Orphan { inode, generation, .. } = orphans[0].clone();
    ask(&mut world, second, 3, Request::Recovered { without: Vec::new(), inode, generation, length: 0 })
        .expect("closed");
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 9 })
    else {
        panic!("no list")
    };
    assert!(garbage.groups.iter().any(|found| found.group == made.group.group));
}
