//! Changes that are asked again: each is done once, for as long as its session may ask it, and whatever others did meanwhile.

use crate::world::{SESSION, World, append, create, delete, mkdir, path, stat};
use base::attributes::NewAttributes;
use base::error::{ErrorKind, Result};
use base::id::{DeviceId, GroupId, InodeId, NodeId, SessionId};
use base::policy::{Class, Compression, Policy};
use meta::request::{FileHandle, Limit, NewInode, NodeInfo, PutFile, Refused, User};
use meta::{Caller, Reply, Request};
use std::collections::BTreeSet;

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
    Request::Rename { from: path(from), to: path(to), replace, removes: false }
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

fn retaining(name: &str) -> Request {
    let (policy, compression) = (Policy::default(), Compression::default());
    Request::BagCreate { name: name.to_string(), policy, chunk_size: 1 << 20, retain: true, compression }
}

/// A change, and what another client does after it, which must stay.
type Made = (Request, Vec<Request>);

/// A kind of change: its name, what another client did before that makes it possible, and what makes the change for the session.
type Kind = (&'static str, Vec<Request>, Box<dyn Fn(&mut World) -> Made>);

/// Requests whose answers are remembered, and the others. A new one does not compile until it is in one of both lists, and one whose answer is
/// remembered fails `each_kind_is_done_once` until `kinds` has it.
macro_rules! requests {
    (remembered: $($change:ident)*; others: $($other:ident)*) => {
        const REMEMBERED: &[&str] = &[$(stringify!($change)),*];

        /// Its place in that list.
        fn remembered(request: &Request) -> Option<&'static str> {
            match request {
                $(Request::$change { .. } => Some(stringify!($change)),)*
                $(Request::$other { .. } => None,)*
            }
        }
    };
}

requests! {
    remembered: Mkdir Create AppendOpen NextGroup SyncLength Reserve BeginBlock Close Abandon PackGroup FinishPack PutFiles Rename Delete
        SetAttributes SetXattr Truncate Concat SetPolicy SetQuota DeviceDrain DeviceLost NodeDrain NodeRemove BagCreate BagRewind BagSeal BagDelete
        Fence;
    others: OpenSession Renew Holders CloseSession Stat Lookup JudgeBelow For PathOf List Provided Asked Answered Locate GetXattrs GetPolicy
        GetQuota DiskUsage Usage Sessions SessionLeases SessionsOver DeviceRegister DeviceReport DeviceList DeviceRemove DevicesRemoved NodeJoin NodeReport
        NodeList NodeFind NodesSilent GroupsOn MoveGroup DeviceGivenUp DeviceBack LacksWithout Lacking AddReplica BagStat BagList BagSealed BagMembers BagOf Garbage Collected KnownGroups FilesIn FenceList Recovered
}

/// A change that is the same in every world.
fn plain(name: &'static str, before: Vec<Request>, change: Request, after: Vec<Request>) -> Kind {
    (name, before, Box::new(move |_: &mut World| (change.clone(), after.clone())))
}

/// A change under the session's lease on a file.
fn leased(name: &'static str, change: fn(&FileHandle) -> Request, after: fn(&FileHandle) -> Request) -> Kind {
    let make = move |world: &mut World| {
        let lease = match world.ask(create("/d/x")) {
            Ok(Reply::Handle(lease)) => lease,
            other => panic!("{other:?}"),
        };
        (change(&lease), vec![after(&lease)])
    };
    (name, vec![mkdir("/d")], Box::new(make))
}

fn kinds() -> Vec<Kind> {
    let mut all = kinds_of_names();
    all.extend(kinds_under_leases());
    all.extend(kinds_of_nodes_and_bags());
    all
}

fn kinds_of_names() -> Vec<Kind> {
    let d = || vec![mkdir("/d")];
    let f = || vec![put("/d/f", false)];
    let new = |name: &str| Request::Mkdir { path: path(name), parents: false, new: NewInode::with_mode(0o755) };
    let truncate = |length| Request::Truncate { path: path("/d/f"), length };
    let concat = Request::Concat { target: path("/d/t"), sources: vec![path("/d/f")] };
    vec![
        plain("mkdir", d(), new("/d/x"), vec![delete("/d/x")]),
        plain("mkdir -p", d(), mkdir("/d/x/y"), vec![delete("/d/x")]),
        plain("create", d(), create("/d/x"), vec![delete("/d/x")]),
        plain("put", d(), put("/d/x", true), vec![delete("/d/x")]),
        plain("put over", f(), put("/d/f", true), vec![delete("/d/f"), new("/d/f")]),
        plain("rename", f(), rename("/d/f", "/d/x", false), vec![rename("/d/x", "/d/f", false)]),
        plain("rename over", f(), rename("/d/f", "/d/x", true), vec![rename("/d/x", "/d/f", true)]),
        plain("delete", f(), delete("/d/f"), f()),
        plain("mode", d(), set_mode(0o700), vec![set_mode(0o755)]),
        plain("note", d(), set_note(b"one"), vec![set_note(b"two")]),
        plain("attribute", d(), set_xattr(Some(b"one")), vec![set_xattr(None)]),
        plain("policy", d(), set_policy(Class::Ssd), vec![set_policy(Class::Hdd)]),
        plain("quota", d(), set_quota(5), vec![set_quota(500)]),
        plain("cut", f(), truncate(0), vec![delete("/d/f")]),
        plain("join", vec![put("/d/f", false), put("/d/t", false)], concat, f()),
        plain("open to append", f(), append("/d/f"), vec![delete("/d/f"), put("/d/f", false)]),
    ]
}

fn kinds_under_leases() -> Vec<Kind> {
    // Done anew under a lease that was taken away, it would be refused.
    let fence = |lease: &FileHandle| Request::Fence {
        inode: lease.inode,
        only_gone: false,
        for_holder: false,
        generation: None,
    };
    let next_group = |lease: &FileHandle| {
        let (inode, generation, finished) = (lease.inode, lease.generation, (lease.group.group, 100));
        Request::NextGroup { replicas_max: 1, inode, generation, finished, columns_max: 1, refused: Refused::default() }
    };
    let sync = |lease: &FileHandle| {
        let (inode, generation, group) = (lease.inode, lease.generation, lease.group.group);
        Request::SyncLength { inode, generation, group, length: 100 }
    };
    let reserve = |lease: &FileHandle| {
        let (inode, generation) = (lease.inode, lease.generation);
        Request::Reserve { inode, generation, length: 4096 }
    };
    let block = |lease: &FileHandle| {
        let (inode, generation) = (lease.inode, lease.generation);
        Request::BeginBlock { inode, generation, base: 50, number: 3 }
    };
    let close = |lease: &FileHandle| {
        let (inode, generation, finished) = (lease.inode, lease.generation, Some((lease.group.group, 7)));
        Request::Close { inode, generation, finished, modified: None, mode: None }
    };
    let abandon = |lease: &FileHandle| Request::Abandon { inode: lease.inode, generation: lease.generation };
    let take = |world: &mut World| {
        let inode = match world.ask(stat("/d/f")) {
            Ok(Reply::Attributes(found)) => InodeId(found.inode),
            other => panic!("{other:?}"),
        };
        // Done anew, it would take the file from the other one.
        (Request::Fence { inode, only_gone: false, for_holder: false, generation: None }, vec![append("/d/f")])
    };
    vec![
        leased("next group", next_group, fence),
        leased("length", sync, fence),
        leased("room", reserve, fence),
        leased("block", block, fence),
        leased("close", close, |_| append("/d/x")),
        leased("give up", abandon, |_| put("/d/x", false)),
        ("fence", vec![put("/d/f", false)], Box::new(take)),
    ]
}

/// The end of a group with a file in it, which another client removes.
fn finished_pack(world: &mut World) -> (Request, Vec<Request>) {
    let Ok(Reply::Group(pack)) =
        world.ask(Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() })
    else {
        panic!("no group")
    };
    let file = PutFile { group: pack.group, ..crate::world::small_file("/small") };
    world.ask(Request::PutFiles { files: vec![file] }).expect("put");
    (Request::FinishPack { group: pack.group }, vec![delete("/small")])
}

fn kinds_of_nodes_and_bags() -> Vec<Kind> {
    let name = || "b".to_string();
    let (delete_bag, rewind) = (|| Request::BagDelete { name: name() }, || Request::BagRewind { name: name() });
    let (device, node) = (DeviceId(3), NodeId(3));
    let join = |node| {
        let (name, address) = (format!("n{node}"), "host:1".to_string());
        Request::NodeJoin { node: NodeInfo { node, incarnation: 1, name, address, ..NodeInfo::default() } }
    };
    let register = |node| Request::DeviceRegister { device, class: Class::Ssd, capacity: 1 << 40, node };
    let drain = Request::DeviceDrain { device };
    let gone = vec![Request::DeviceRemove { device }];
    let next = vec![Request::NodeRemove { node }, join(node), register(node)];
    // Once a node is known, so has that of the other devices to be.
    let both = || vec![join(NodeId(1)), join(node)];
    let pack = || Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() };
    vec![
        plain("group for small files", vec![], pack(), vec![pack()]),
        ("end of a group for small files", vec![], Box::new(finished_pack)),
        plain("device's end", vec![register(NodeId(1))], drain, gone),
        plain(
            "device given up",
            vec![register(NodeId(1))],
            Request::DeviceLost { device },
            vec![Request::DeviceDrain { device }],
        ),
        plain("node's leaving", both(), Request::NodeDrain { node }, next),
        plain("node's end", both(), Request::NodeRemove { node }, vec![join(node)]),
        plain("bag", vec![], bag("b"), vec![delete_bag()]),
        plain("sealing", vec![bag("b")], Request::BagSeal { name: name() }, vec![delete_bag(), bag("b")]),
        plain("pass", vec![retaining("b")], rewind(), vec![rewind()]),
        plain("bag's end", vec![bag("b")], delete_bag(), vec![bag("b")]),
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
    let (devices, nodes) = (world.ask(Request::DeviceList), world.ask(Request::NodeList));
    let groups = world.ask(Request::KnownGroups { groups: (0..50).map(GroupId).collect() });
    let shown = format!("{attributes:?} {xattrs:?} {policy:?} {quota:?} {bag:?} {devices:?} {nodes:?} {groups:?}");
    format!("{:?} {shown}", world.dump())
}

/// A change of any kind that was done, and whose answer was lost, is not done again after another client has changed the same: what
/// that one was acknowledged stays. Not after a power loss either.
#[test]
fn each_kind_is_done_once() {
    let mut missing: BTreeSet<&str> = REMEMBERED.iter().copied().collect();
    for crash in [false, true] {
        for (kind, before, make) in kinds() {
            let mut world = world(1);
            before.into_iter().for_each(|request| other(&mut world, request));
            let (change, after) = make(&mut world);
            missing.remove(remembered(&change).unwrap_or_else(|| panic!("{kind} is on the other list")));
            assert!(change.is_remembered(), "{kind}");
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
    assert_eq!(missing, BTreeSet::new(), "changes that `kinds` does not have");
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
    let fence = Request::Fence { inode: handle.inode, only_gone: false, for_holder: false, generation: None };
    let call = world.next_call;
    world.next_call += 1;
    let Ok(Reply::Orphans(orphans)) = ask(&mut world, call, call, fence.clone()) else { panic!("it had a writer") };
    world.crash(1);
    assert_eq!(ask(&mut world, call, call, fence.clone()), Ok(Reply::Orphans(orphans.clone())));
    let generation = orphans[0].generation;
    world.ask(Request::Recovered { without: Vec::new(), inode: handle.inode, generation, length: 0 }).expect("ended");
    other(&mut world, append("/f"));
    let again = ask(&mut world, call, call, fence);
    assert!(matches!(&again, Ok(Reply::Attributes(file)) if file.open), "{again:?}");
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
            world.merge();
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
