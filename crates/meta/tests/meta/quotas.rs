//! Quotas: what is refused, what is counted, and that the sums are those of a recount whatever happened before.

use crate::world::{World, create, delete, mkdir, path};
use base::attributes::NewAttributes;
use base::error::ErrorKind;
use base::id::{Generation, GroupId, InodeId, SessionId};
use base::policy::Policy;
use base::quota::Exceeded;
use meta::request::{FileHandle, Limit, NewInode, PutFile, Quota, User};
use meta::{Caller, Reply, Request};
use std::time::Duration;

fn set(name: &str, names: Limit, bytes: Limit) -> Request {
    Request::SetQuota { path: path(name), names, bytes }
}

fn quota_of(world: &mut World, name: &str) -> Option<Quota> {
    match world.ask(Request::GetQuota { path: path(name) }) {
        Ok(Reply::Quota(quota)) => quota,
        other => panic!("{other:?}"),
    }
}

/// Names and bytes that count, once all is counted and taken apart.
fn used(world: &mut World, name: &str) -> (u64, u64) {
    world.pass(Duration::ZERO);
    let quota = quota_of(world, name).expect("it has a quota");
    assert!(!quota.counting, "{name} is counted");
    (quota.names, quota.bytes)
}

fn rename(from: &str, to: &str) -> Request {
    Request::Rename { from: path(from), to: path(to), replace: true, removes: false }
}

fn pack(world: &mut World) -> GroupId {
    match world.ask(Request::PackGroup {
        policy: Policy::default(),
        beside: None,
        replicas_max: 0,
        refused: Vec::new(),
    }) {
        Ok(Reply::Group(group)) => group.group,
        other => panic!("{other:?}"),
    }
}

fn small(name: &str, group: GroupId, length: u64) -> PutFile {
    PutFile {
        path: path(name),
        group,
        offset: 0,
        length,
        crc: 1,
        modified: None,
        accessed: None,
        mode: 0o644,
        overwrite: true,
        parents: true,
        directory: false,
    }
}

/// Puts small files; the kind of error of each that was not made.
fn put(world: &mut World, files: Vec<PutFile>) -> Vec<Option<ErrorKind>> {
    match world.ask(Request::PutFiles { files }) {
        Ok(Reply::Files(results)) => results.into_iter().map(|result| result.err().map(|error| error.kind())).collect(),
        other => panic!("{other:?}"),
    }
}

fn open(world: &mut World, name: &str, copies: u32) -> FileHandle {
    let new = NewInode { copies, ..NewInode::with_mode(0o644) };
    let request = Request::Create { replicas_max: 1, path: path(name), overwrite: true, parents: false, new };
    match world.ask(request) {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

fn close(world: &mut World, handle: &FileHandle, length: u64) -> base::error::Result<Reply> {
    let FileHandle { inode, generation, group, .. } = handle.clone();
    world.ask(Request::Close { inode, generation, finished: Some((group.group, length)), modified: None, mode: None })
}

fn reserve(inode: InodeId, generation: Generation, length: u64) -> Request {
    Request::Reserve { inode, generation, length }
}

fn exceeded(world: &mut World, request: Request) -> (String, bool, u64, u64) {
    let error = world.ask(request).expect_err("it is too much");
    let Exceeded { path, of_names, limit, would } = Exceeded::read(&error).expect("a quota");
    (path, of_names, limit, would)
}

/// No more names come to be below a directory than its quota allows, whichever way; names that go make room at once.
#[test]
fn names_are_limited() {
    let mut world = World::new(1);
    world.ask(mkdir("/q/d")).expect("mkdir");
    world.ask(mkdir("/elsewhere/tree/below")).expect("mkdir");
    world.ask(set("/q", Limit::Most(3), Limit::Keep)).expect("set");
    assert_eq!(used(&mut world, "/q"), (2, 0));
    let handle = open(&mut world, "/q/d/f", 1);
    close(&mut world, &handle, 0).expect("closed");
    let over = ("/q".to_string(), true, 3, 4);
    assert_eq!(exceeded(&mut world, create("/q/g")), over);
    assert_eq!(exceeded(&mut world, mkdir("/q/d/e")), over);
    assert_eq!(exceeded(&mut world, mkdir("/q/d/e/e/e")), over, "what it had made is taken back");
    assert_eq!(exceeded(&mut world, rename("/elsewhere/tree", "/q/tree")), ("/q".to_string(), true, 3, 5));
    assert_eq!(put(&mut world, vec![small("/q/s", GroupId(0), 0)]), [Some(ErrorKind::OverQuota)]);
    world.ask(rename("/q/d/f", "/q/f")).expect("inside nothing changes");
    let handle = open(&mut world, "/q/f", 1);
    close(&mut world, &handle, 0).expect("one for another");
    world.ask(rename("/q/f", "/f")).expect("out of it");
    assert_eq!(used(&mut world, "/q"), (2, 0));
    world.ask(create("/q/g")).expect("there is room again");
    world.ask(delete("/q/d")).expect("deleted");
    world.ask(set("/q", Limit::Most(2), Limit::Keep)).expect("as many as there are");
    assert_eq!(world.refusal(create("/q/h")), ErrorKind::OverQuota);
    world.ask(set("/q", Limit::Most(1), Limit::Keep)).expect("less than there are");
    assert_eq!(world.refusal(rename("/f", "/q/i")), ErrorKind::OverQuota);
    world.ask(rename("/f", "/q/g")).expect("one for another, even so");
    assert_eq!(used(&mut world, "/q"), (2, 0));
    world.ask(set("/q", Limit::None, Limit::Keep)).expect("none");
    assert_eq!(quota_of(&mut world, "/q"), None);
    world.ask(create("/q/h")).expect("nobody counts");
    let file = set("/q/h", Limit::Most(1), Limit::Keep);
    assert_eq!(world.refusal(file), ErrorKind::Invalid);
}

/// Bytes count as often as the file says; what is reserved counts until the file is closed, and a close takes what was written.
#[test]
fn bytes_are_limited() {
    let mut world = World::new(2);
    world.ask(mkdir("/q")).expect("mkdir");
    world.ask(set("/q", Limit::Keep, Limit::Most(1000))).expect("set");
    let handle = open(&mut world, "/q/f", 3);
    assert!(handle.limited, "its writer has to ask");
    let (inode, generation) = (handle.inode, handle.generation);
    assert_eq!(exceeded(&mut world, reserve(inode, generation, 400)), ("/q".to_string(), false, 1000, 1200));
    world.ask(reserve(inode, generation, 300)).expect("it fits");
    assert_eq!(used(&mut world, "/q"), (2, 900));
    let other = open(&mut world, "/q/g", 1);
    assert_eq!(world.refusal(reserve(other.inode, other.generation, 101)), ErrorKind::OverQuota);
    close(&mut world, &handle, 200).expect("closed");
    assert_eq!(used(&mut world, "/q"), (3, 600));
    assert_eq!(close(&mut world, &other, 401).map_err(|error| error.kind()), Err(ErrorKind::OverQuota));
    close(&mut world, &other, 400).expect("closed");
    assert_eq!(used(&mut world, "/q"), (3, 1000));
    let copies = |copies| Request::SetAttributes {
        path: path("/q/g"),
        new: NewAttributes { copies: Some(copies), ..NewAttributes::default() },
    };
    assert_eq!(world.refusal(copies(2)), ErrorKind::OverQuota);
    world.ask(Request::Truncate { path: path("/q/f"), length: 50 }).expect("cut");
    world.ask(copies(2)).expect("there is room now");
    assert_eq!(used(&mut world, "/q"), (3, 950));
    let group = pack(&mut world);
    let both = vec![small("/q/s", group, 50), small("/q/t", group, 1)];
    assert_eq!(put(&mut world, both), [None, Some(ErrorKind::OverQuota)]);
    world.ask(Request::Concat { target: path("/q/s"), sources: vec![path("/q/f")] }).expect("joined");
    assert_eq!(used(&mut world, "/q"), (3, 900));
    let free = open(&mut world, "/free", 1);
    assert!(!free.limited);
}

/// Whose session is over keeps what was written, and no reservation; what happened already is never refused.
#[test]
fn a_lost_writer_frees_what_it_reserved() {
    let mut world = World::new(3);
    world.ask(mkdir("/q")).expect("mkdir");
    world.ask(set("/q", Limit::Keep, Limit::Most(1000))).expect("set");
    let other = SessionId(99);
    let caller = |call| Caller { session: other, call, floor: 0 };
    world.ask_as(caller(1), Request::OpenSession { user: User::default() }).expect("answered").expect("a session");
    let Some(Ok(Reply::Handle(handle))) = world.ask_as(caller(2), create("/q/f")) else { panic!("no handle") };
    world.ask_as(caller(3), reserve(handle.inode, handle.generation, 1000)).expect("answered").expect("reserved");
    assert_eq!(used(&mut world, "/q"), (2, 1000));
    world.ask_as(caller(5), create("/q/g")).expect("answered").expect("it is empty");
    world.ask_as(caller(4), Request::CloseSession).expect("answered").expect("over");
    world.pass(Duration::ZERO);
    let Ok(Reply::FenceList { orphans, .. }) = world.ask(Request::FenceList { after: None, limit: 10 }) else {
        panic!("no list")
    };
    world.ask(set("/q", Limit::Keep, Limit::Most(10))).expect("less than there is");
    for (orphan, length) in orphans.iter().zip([77, 5]) {
        let recovered =
            Request::Recovered { without: Vec::new(), inode: orphan.inode, generation: orphan.generation, length };
        world.ask(recovered).expect("what is written is kept, whatever the quota says");
    }
    assert_eq!(used(&mut world, "/q"), (3, 82));
}

/// A tree that is too large for one step is counted in steps, while names come and go in it; a crash in between loses nothing. Such
/// a tree moves across a quota when it was counted, and counts until it is taken apart after it was deleted.
#[test]
fn large_trees_are_counted_in_steps() {
    let mut world = World::new(4);
    let group = pack(&mut world);
    for directory in 0..60 {
        let name = |file| format!("/q/big/d{:02}/f{file:03}", directory % 30 + 30 * (directory / 30));
        world.ask(mkdir(&format!("/q/big/d{directory:02}"))).expect("mkdir");
        assert_eq!(put(&mut world, (0..150).map(|file| small(&name(file), group, 2)).collect()), vec![None; 150]);
    }
    let all = (2 + 60 + 60 * 150, 60 * 150 * 2);
    world.ask(set("/q", Limit::Most(20_000), Limit::Keep)).expect("set");
    assert!(quota_of(&mut world, "/q").expect("there").counting, "not at once");
    world.crash(1);
    assert_eq!(world.refusal(rename("/q/big", "/out")), ErrorKind::Busy);
    assert_eq!(world.refusal(delete("/q/big")), ErrorKind::Busy);
    let group = pack(&mut world);
    for (name, before) in [("/q/big/d00/new", true), ("/q/big/d59/new", false), ("/q/a", true), ("/q/z", false)] {
        let counted = quota_of(&mut world, "/q").expect("there").names;
        assert_eq!(put(&mut world, vec![small(name, group, 5)]), [None]);
        assert_eq!(quota_of(&mut world, "/q").expect("there").names - counted, u64::from(before), "{name}");
    }
    // The 4,096th name, in the order of the count: big, 27 directories with 150 files each, one more, and 17 files of it.
    let counted = quota_of(&mut world, "/q").expect("there").names;
    world.ask(delete("/q/big/d27/f016")).expect("the last one that was counted");
    world.ask(delete("/q/big/d27/f017")).expect("the next one");
    assert_eq!(counted - quota_of(&mut world, "/q").expect("there").names, 1);
    assert_eq!(world.refusal(rename("/q/big/d27", "/q/being-counted")), ErrorKind::Busy);
    world.ask(rename("/q/big/d00/f000", "/q/big/d59/moved")).expect("a file");
    world.ask(rename("/q/big/d01", "/q/zz")).expect("a small directory");
    world.ask(delete("/q/big/d02")).expect("another");
    world.ask(delete("/q/big/d58")).expect("one that was not counted yet");
    let now = (all.0 + 4 - 2 - 2 * 151, all.1 + 20 - 4 - 4 * 150);
    assert_eq!(used(&mut world, "/q"), now);

    world.ask(mkdir("/p")).expect("mkdir");
    world.ask(set("/p", Limit::Most(20_000), Limit::Keep)).expect("set");
    assert_eq!(world.refusal(rename("/q/big", "/p/big")), ErrorKind::Busy);
    world.ask(set("/q/big", Limit::Keep, Limit::Keep)).expect("count it");
    let big = used(&mut world, "/q/big");
    world.ask(rename("/q/big", "/p/big")).expect("counted");
    assert_eq!(used(&mut world, "/p"), (1 + big.0, big.1));
    assert_eq!(used(&mut world, "/q"), (now.0 - big.0, now.1 - big.1));
    world.ask(set("/p/big", Limit::None, Limit::None)).expect("none");
    world.ask(delete("/p/big")).expect("deleted");
    let after = quota_of(&mut world, "/p").expect("there");
    assert_eq!(after.names, big.0, "only its own name is gone");
    world.crash(2);
    assert_eq!(used(&mut world, "/p"), (1, 0));
}

/// What is below a name, with its copies.
fn recount(world: &mut World, top: &str) -> (u64, u64) {
    let tree = world.dump();
    let mut sums = (1, 0);
    for (name, length) in tree {
        if top == "/" || name.starts_with(&format!("{top}/")) {
            sums.0 += 1;
            if length.is_some() {
                let Ok(Reply::Attributes(attributes)) = world.ask(crate::world::stat(&name)) else {
                    panic!("no {name}")
                };
                // In this test files whose name has an x in it count twice.
                sums.1 += attributes.length * if name_of(&name).contains('x') { 2 } else { 1 };
            }
        }
    }
    sums
}

fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

const DIRECTORIES: [&str; 6] = ["/", "/a", "/a/b", "/a/b/c", "/d", "/d/e"];

/// Something to do, of all that changes what quotas count.
fn drawn(draw: &mut impl FnMut(u64) -> u64, group: GroupId, writers: &[FileHandle]) -> Request {
    let directory = DIRECTORIES[draw(DIRECTORIES.len() as u64) as usize];
    let other = DIRECTORIES[draw(DIRECTORIES.len() as u64) as usize];
    let file = |number: u64| format!("{}/f{number}", directory.trim_end_matches('/'));
    let (number, length) = (draw(4), draw(50));
    match draw(14) {
        0 | 1 => mkdir(directory),
        2 | 3 => Request::PutFiles { files: vec![small(&file(number), group, length)] },
        4 => Request::Create {
            replicas_max: 1,
            path: path(&format!("{}/x{number}", directory.trim_end_matches('/'))),
            overwrite: true,
            parents: false,
            new: NewInode { copies: 2, ..NewInode::with_mode(0o644) },
        },
        5 if !writers.is_empty() => {
            let FileHandle { inode, generation, group, .. } = writers[draw(writers.len() as u64) as usize].clone();
            match draw(4) {
                0 => Request::Abandon { inode, generation },
                1 => reserve(inode, generation, length),
                2 => Request::SyncLength { inode, generation, group: group.group, length },
                _ => {
                    let finished = Some((group.group, length));
                    Request::Close { inode, generation, finished, modified: None, mode: None }
                }
            }
        }
        6 => delete(directory),
        7 => delete(&file(number)),
        8 => rename(directory, other),
        9 => rename(directory, &format!("{}/moved", other.trim_end_matches('/'))),
        10 => rename(&file(number), &format!("{}/f{}", other.trim_end_matches('/'), draw(4))),
        11 => Request::Truncate { path: path(&file(number)), length: length / 2 },
        12 => Request::Concat { target: path(&file(number)), sources: vec![path(&file(draw(4)))] },
        _ => {
            let limit = |drawn: u64| match drawn {
                0 => Limit::None,
                1 => Limit::Keep,
                _ => Limit::Most(1 + drawn * 3),
            };
            set(directory, limit(draw(6)), limit(draw(20)))
        }
    }
}

/// After random changes, with directories that get and lose quotas on the way, renames across them, writers that give up and power
/// cuts, every quota's sums are those of a recount, and none grew beyond its limit.
#[test]
fn sums_are_those_of_a_recount() {
    for seed in 0..40 {
        let random = sim::random::SimRandom::new(seed);
        let mut draw = move |below: u64| base::env::Random::next(&random) % below;
        let mut world = World::new(seed);
        let mut group = pack(&mut world);
        let mut writers: Vec<FileHandle> = Vec::new();
        for step in 0..300 {
            let request = drawn(&mut draw, group, &writers);
            let limits = matches!(request, Request::SetQuota { .. });
            let before: Vec<_> =
                DIRECTORIES.iter().map(|name| world.ask(Request::GetQuota { path: path(name) })).collect();
            if let Ok(Reply::Handle(handle)) = world.ask(request.clone()) {
                writers.push(handle);
            }
            if draw(60) == 0 {
                world.crash(seed * 1000 + step);
                group = pack(&mut world);
            }
            for (name, before) in DIRECTORIES.iter().zip(before) {
                let Ok(Reply::Quota(Some(now))) = world.ask(Request::GetQuota { path: path(name) }) else { continue };
                let Ok(Reply::Quota(Some(before))) = before else { continue };
                let grown = |now: u64, before: u64, limit: Option<u64>| {
                    !limits && now > before && limit.is_some_and(|limit| now > limit)
                };
                // Another directory may have this name now.
                if matches!(request, Request::Rename { .. }) {
                    continue;
                }
                assert!(!grown(now.names, before.names, now.names_max), "seed {seed}, {request:?}: {now:?}");
                // What is synced already counts, however much it is.
                if !matches!(request, Request::SyncLength { .. }) {
                    assert!(!grown(now.bytes, before.bytes, now.bytes_max), "seed {seed}, {request:?}: {now:?}");
                }
            }
        }
        for handle in writers {
            let FileHandle { inode, generation, .. } = handle;
            // Those that were closed or given up refuse it.
            let _ = world.ask(Request::Abandon { inode, generation });
        }
        world.pass(Duration::ZERO);
        for name in DIRECTORIES {
            if let Ok(Reply::Quota(Some(quota))) = world.ask(Request::GetQuota { path: path(name) }) {
                assert_eq!((quota.names, quota.bytes), recount(&mut world, name), "seed {seed}: {name}");
            }
        }
    }
}
