//! Changes that are asked again: each is done once, for as long as its session may ask it, and whatever others did meanwhile.

use crate::world::{SESSION, World, append, create, delete, mkdir, path, stat};
use base::error::{ErrorKind, Result};
use base::id::{GroupId, SessionId};
use base::policy::{Class, Compression, Policy};
use meta::request::{Limit, NewAttributes, NewInode, PutFile, User};
use meta::{Caller, Reply, Request};

/// Another client's session.
const OTHER: SessionId = SessionId(8);

/// A store with both sessions.
fn world(seed: u64) -> World {
    let mut world = World::new(seed);
    other(&mut world, Request::OpenSession { user: User::default() });
    world
}

fn ask(world: &mut World, call: u64, floor: u64, request: Request) -> Result<Reply> {
    world.ask_as(Caller { session: SESSION, call, floor }, request).expect("answered")
}

/// The other client does something, and is answered.
fn other(world: &mut World, request: Request) {
    world.next_call += 1;
    let caller = Caller { session: OTHER, call: world.next_call, floor: 0 };
    let shown = format!("{request:?}");
    world.ask_as(caller, request).expect("answered").unwrap_or_else(|error| panic!("{shown}: {error}"));
}

fn put(name: &str, overwrite: bool) -> Request {
    let (group, mode) = (GroupId(0), 0o644);
    let file = PutFile {
        path: path(name),
        group,
        offset: 0,
        length: 0,
        crc: 0,
        modified: None,
        accessed: None,
        mode,
        overwrite,
        parents: true,
        directory: false,
    };
    Request::PutFiles { files: vec![file] }
}

fn rename(from: &str, to: &str, replace: bool) -> Request {
    Request::Rename { from: path(from), to: path(to), replace }
}

fn set_mode(mode: u32) -> Request {
    Request::SetAttributes { path: path("/d"), new: NewAttributes { mode: Some(mode), ..NewAttributes::default() } }
}

fn set_note(note: &[u8]) -> Request {
    let new = NewAttributes { note: Some(note.to_vec()), ..NewAttributes::default() };
    Request::SetAttributes { path: path("/d"), new }
}

fn set_xattr(value: Option<&[u8]>) -> Request {
    Request::SetXattr { path: path("/d"), name: "user.a".to_string(), value: value.map(<[u8]>::to_vec) }
}

fn set_policy(tier: Class) -> Request {
    Request::SetPolicy { path: path("/d"), policy: Policy { tier: Some(tier), ..Policy::default() } }
}

fn set_quota(names: u64) -> Request {
    Request::SetQuota { path: path("/d"), names: Limit::Most(names), bytes: Limit::Keep }
}

fn bag(name: &str) -> Request {
    let (policy, compression) = (Policy::default(), Compression::default());
    Request::BagCreate { name: name.to_string(), policy, chunk_size: 1 << 20, retain: false, compression }
}

/// A kind of change: what makes it possible, the change, and what another client does after it, which must stay.
type Kind = (&'static str, Vec<Request>, Request, Vec<Request>);

fn kinds() -> Vec<Kind> {
    let d = || vec![mkdir("/d")];
    let f = || vec![put("/d/f", false)];
    let plain = |name: &str| Request::Mkdir { path: path(name), parents: false, new: NewInode::with_mode(0o755) };
    let truncate = |length| Request::Truncate { path: path("/d/f"), length };
    let concat = Request::Concat { target: path("/d/t"), sources: vec![path("/d/f")] };
    let name = || "b".to_string();
    vec![
        ("mkdir", d(), plain("/d/x"), vec![delete("/d/x")]),
        ("mkdir -p", d(), mkdir("/d/x/y"), vec![delete("/d/x")]),
        ("create", d(), create("/d/x"), vec![delete("/d/x")]),
        ("put", d(), put("/d/x", true), vec![delete("/d/x")]),
        ("put over", f(), put("/d/f", true), vec![delete("/d/f"), plain("/d/f")]),
        ("rename", f(), rename("/d/f", "/d/x", false), vec![rename("/d/x", "/d/f", false)]),
        ("rename over", f(), rename("/d/f", "/d/x", true), vec![rename("/d/x", "/d/f", true)]),
        ("delete", f(), delete("/d/f"), f()),
        ("mode", d(), set_mode(0o700), vec![set_mode(0o755)]),
        ("note", d(), set_note(b"one"), vec![set_note(b"two")]),
        ("attribute", d(), set_xattr(Some(b"one")), vec![set_xattr(None)]),
        ("policy", d(), set_policy(Class::Ssd), vec![set_policy(Class::Hdd)]),
        ("quota", d(), set_quota(5), vec![set_quota(500)]),
        ("cut", f(), truncate(0), vec![delete("/d/f")]),
        ("join", vec![put("/d/f", false), put("/d/t", false)], concat, f()),
        ("bag", vec![], bag("b"), vec![Request::BagDelete { name: name() }]),
        (
            "sealing",
            vec![bag("b")],
            Request::BagSeal { name: name() },
            vec![Request::BagDelete { name: name() }, bag("b")],
        ),
        ("bag's end", vec![bag("b")], Request::BagDelete { name: name() }, vec![bag("b")]),
    ]
}

/// What anybody can see of what the kinds change, times left out.
fn seen(world: &mut World) -> String {
    let attributes = world.ask(stat("/d")).map(|reply| match reply {
        Reply::Attributes(found) => (found.mode, found.note, found.owner, found.group),
        other => panic!("{other:?}"),
    });
    let xattrs = world.ask(Request::GetXattrs { path: path("/d"), name: None });
    let policy = world.ask(Request::GetPolicy { path: path("/d") });
    let quota = world.ask(Request::GetQuota { path: path("/d") });
    let bag = world.ask(Request::BagStat { name: "b".to_string() });
    format!("{:?} {attributes:?} {xattrs:?} {policy:?} {quota:?} {bag:?}", world.dump())
}

/// A change of any kind that was done, and whose answer was lost, is not done again after another client has changed the same: what
/// that one was acknowledged stays. Not after a power loss either.
#[test]
fn each_kind_is_done_once() {
    for crash in [false, true] {
        for (kind, before, change, after) in kinds() {
            let mut world = world(1);
            before.into_iter().for_each(|request| other(&mut world, request));
            let call = world.next_call;
            world.next_call += 1;
            let first = ask(&mut world, call, call, change.clone());
            assert!(first.is_ok(), "{kind}: {first:?}");
            after.into_iter().for_each(|request| other(&mut world, request));
            if crash {
                world.crash(1);
            }
            let stands = seen(&mut world);
            let again = ask(&mut world, call, call, change);
            assert_eq!(seen(&mut world), stands, "{kind} asked again, after a crash: {crash}");
            match &again {
                // The bag is gone, and the answer would have told of it.
                Err(error) if kind.contains("bag") || kind == "sealing" => {
                    assert_eq!(error.kind(), ErrorKind::NotFound)
                }
                again => assert!(again.is_ok(), "{kind}: {again:?}"),
            }
        }
    }
}

/// A file that was taken from its writer is not taken from the next one by the same call; what was left to be done of the first time is
/// told again as long as nobody did it.
#[test]
fn a_fence_is_done_once() {
    let mut world = world(1);
    let handle = match world.ask(create("/f")) {
        Ok(Reply::Handle(handle)) => handle,
        reply => panic!("{reply:?}"),
    };
    let fence = Request::Fence { inode: handle.inode, only_gone: false, generation: None };
    let call = world.next_call;
    world.next_call += 1;
    let Ok(Reply::Orphans(orphans)) = ask(&mut world, call, call, fence.clone()) else { panic!("it had a writer") };
    world.crash(1);
    assert_eq!(ask(&mut world, call, call, fence.clone()), Ok(Reply::Orphans(orphans.clone())));
    let generation = orphans[0].generation;
    world.ask(Request::Recovered { inode: handle.inode, generation, length: 0 }).expect("ended");
    other(&mut world, append("/f"));
    let again = ask(&mut world, call, call, fence);
    assert!(matches!(&again, Ok(Reply::Attributes(file)) if file.writing), "{again:?}");
    assert_eq!(world.ask(append("/f")).map_err(|error| error.kind()), Err(ErrorKind::Busy), "the writer has it still");
}

/// An answer is remembered until its session says that it does not ask again, however many changes come after it and over restarts; from
/// then on the change is refused and not done. What is remembered of a session goes with it.
#[test]
fn until_the_session_says_so() {
    let mut world = world(1);
    let first = world.next_call;
    let answer = ask(&mut world, first, first, create("/f"));
    for number in 1..1_100 {
        ask(&mut world, first + number, first, create(&format!("/f{number}"))).expect("made");
        if number % 200 == 0 {
            world.settle();
        }
    }
    for life in 0..3 {
        assert_eq!(ask(&mut world, first, first, create("/f")), answer, "life {life}");
        if life == 0 { world.crash(1) } else { world.kill() }
    }
    other(&mut world, delete("/f"));
    // A read says it as well.
    ask(&mut world, first + 2_000, first + 1, stat("/f1")).expect("it is there");
    assert_eq!(ask(&mut world, first, first, create("/f")).map_err(|error| error.kind()), Err(ErrorKind::Stale));
    assert_eq!(world.refusal(stat("/f")), ErrorKind::NotFound, "it was not made again");
    assert!(ask(&mut world, first + 1, first + 1, create("/f1")).is_ok(), "that one may be asked again still");
    world.ask(Request::CloseSession).expect("ended");
    world.pass(std::time::Duration::from_secs(1));
    assert_eq!(
        ask(&mut world, first + 1, first + 1, create("/f1")).map_err(|error| error.kind()),
        Err(ErrorKind::Stale)
    );
}

/// A session that would have more answers remembered than it may is refused, and nothing is done or forgotten; it goes on when its
/// oldest change is answered. Other sessions go on meanwhile.
#[test]
fn refused_rather_than_forgotten() {
    let mut world = World::new(1);
    world.calls_max = Some(5);
    world.crash(1);
    other(&mut world, Request::OpenSession { user: User::default() });
    let first = world.next_call;
    let ask_mkdir = |world: &mut World, number: u64, floor: u64| {
        ask(world, first + number, first + floor, mkdir(&format!("/d{number}")))
    };
    let made: Vec<_> = (0..5).map(|number| ask_mkdir(&mut world, number, 0)).collect();
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    for life in 0..2 {
        let refused = ask_mkdir(&mut world, 5, 0).expect_err("one too many");
        assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
        assert_eq!(world.refusal(stat("/d5")), ErrorKind::NotFound);
        for (number, answer) in made.iter().enumerate() {
            assert_eq!(ask_mkdir(&mut world, number as u64, 0), *answer, "life {life}");
        }
        other(&mut world, mkdir(&format!("/other{life}")));
        world.crash(1);
    }
    assert!(ask_mkdir(&mut world, 5, 1).is_ok());
    assert_eq!(ask_mkdir(&mut world, 6, 1).map_err(|error| error.kind()), Err(ErrorKind::Busy));
    assert!(ask_mkdir(&mut world, 6, 6).is_ok());
}
