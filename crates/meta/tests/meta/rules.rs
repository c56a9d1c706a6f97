//! What requests do and refuse.

use crate::world::{SESSION, World, append, create, delete, mkdir, path, register, stat};
use base::error::{ErrorKind, Result};
use base::id::{GroupId, InodeId};
use base::limit::CHUNK_MAX;
use base::policy::{Class, Compression, Policy};
use meta::request::{BagState, DeviceUse, FileHandle, FileRef, Located, NewGroup, PutFile, Refused, Totals};
use meta::{Caller, Reply, Request};
use std::time::Duration;

fn handle(reply: Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

fn group(reply: Result<Reply>) -> NewGroup {
    match reply {
        Ok(Reply::Group(group)) => group,
        other => panic!("{other:?}"),
    }
}

fn locate(world: &mut World, name: &str, offset: u64, length: u64) -> Located {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset, length }) {
        Ok(Reply::Located(located)) => located,
        other => panic!("{other:?}"),
    }
}

fn garbage(world: &mut World) -> (Vec<GroupId>, Vec<(GroupId, u64, u64)>, usize) {
    match world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 100 }) {
        Ok(Reply::Garbage(garbage)) => (
            garbage.groups.iter().map(|group| group.group).collect(),
            garbage.ranges.iter().map(|(group, offset, length)| (group.group, *offset, *length)).collect(),
            garbage.bags.len(),
        ),
        other => panic!("{other:?}"),
    }
}

fn close(file: &FileHandle, finished: Option<(GroupId, u64)>) -> Request {
    Request::Close { inode: file.inode, generation: file.generation, finished, modified: None, mode: None }
}

/// A file grows by groups, is found by any offset, is appended to under a new generation, and leaves its groups as garbage.
#[test]
fn life_of_a_file() {
    let mut world = World::new(1);
    let file = handle(world.ask(create("/f")));
    let (inode, generation, first) = (file.inode, file.generation, file.group.group);
    let next = |finished| Request::NextGroup {
        replicas_max: 1,
        inode,
        generation,
        finished,
        columns_max: 1,
        refused: Refused::default(),
    };
    assert_eq!(world.refusal(next((GroupId(99), 10))), ErrorKind::Invalid);
    assert_eq!(world.refusal(next((first, CHUNK_MAX + 1))), ErrorKind::Invalid);
    let second = group(world.ask(next((first, 1000)))).group;
    world.ask(Request::SyncLength { inode, generation, group: second, length: 10 }).expect("length");
    let located = locate(&mut world, "/f", 0, u64::MAX);
    assert!(located.attributes.open && located.attributes.length == 1010);
    assert_eq!(located.extents.iter().map(|extent| extent.open).collect::<Vec<_>>(), [false, true]);
    assert_eq!(world.refusal(append("/f")), ErrorKind::Busy);
    assert!(
        matches!(world.ask(close(&file, Some((second, 500)))), Ok(Reply::Attributes(closed)) if closed.length == 1500)
    );
    assert_eq!(world.refusal(close(&file, None)), ErrorKind::Stale);
    let appended = handle(world.ask(append("/f")));
    assert!(appended.generation > generation && appended.length == 1500);
    assert_eq!(world.refusal(next((second, 600))), ErrorKind::Stale);
    world.ask(close(&appended, Some((appended.group.group, 7)))).expect("closed");
    world.merge();
    let places = |located: &Located| -> Vec<(u64, u64)> {
        located.extents.iter().map(|extent| (extent.file_offset, extent.length)).collect()
    };
    assert_eq!(places(&locate(&mut world, "/f", 999, 1)), [(0, 1000)]);
    assert_eq!(places(&locate(&mut world, "/f", 1000, 1)), [(1000, 500)]);
    assert_eq!(places(&locate(&mut world, "/f", 999, 502)), [(0, 1000), (1000, 500), (1500, 7)]);
    assert_eq!(places(&locate(&mut world, "/f", 1507, 10)), []);
    world.ask(delete("/f")).expect("deleted");
    let (groups, ranges, _) = garbage(&mut world);
    assert_eq!((groups.len(), ranges.len()), (3, 0));
    assert_eq!(
        world.refusal(Request::Locate { file: FileRef::Inode(inode), offset: 0, length: 1 }),
        ErrorKind::NotFound
    );
    world.ask(Request::Collected { groups: groups.clone(), ranges: vec![], bags: vec![] }).expect("collected");
    assert_eq!(garbage(&mut world).0, []);
    assert_eq!(world.ask(Request::KnownGroups { groups }), Ok(Reply::Known(vec![])));
}

/// A file of many extents is located page by page and taken apart in steps; its number leads nowhere meanwhile.
#[test]
fn many_extents() {
    let mut world = World::new(1);
    let file = handle(world.ask(create("/f")));
    let mut open = file.group.group;
    for _ in 0..600 {
        let next = Request::NextGroup {
            replicas_max: 1,
            inode: file.inode,
            generation: file.generation,
            finished: (open, 10),
            columns_max: 1,
            refused: Refused::default(),
        };
        open = group(world.ask(next)).group;
    }
    let mut offset = 0;
    loop {
        let located = locate(&mut world, "/f", offset, u64::MAX);
        assert!(located.extents.windows(2).all(|two| two[0].file_offset + two[0].length == two[1].file_offset));
        let last = located.extents.last().expect("an extent");
        offset = last.file_offset + last.length;
        if !located.more {
            assert!(last.open);
            break;
        }
    }
    assert_eq!(offset, 6000);
    world.ask(delete("/f")).expect("deleted");
    let by_number = Request::Locate { file: FileRef::Inode(file.inode), offset: 0, length: 1 };
    assert_eq!(world.refusal(by_number), ErrorKind::NotFound);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(Totals { files: 0, directories: 1, bytes: 0 })));
}

/// Abandoning removes a created file and leaves an appended one as it was.
#[test]
fn abandoned() {
    let mut world = World::new(1);
    let file = handle(world.ask(create("/f")));
    world.ask(Request::Abandon { inode: file.inode, generation: file.generation }).expect("abandoned");
    assert_eq!(world.refusal(stat("/f")), ErrorKind::NotFound);
    let file = handle(world.ask(create("/f")));
    world.ask(close(&file, Some((file.group.group, 5)))).expect("closed");
    let file = handle(world.ask(append("/f")));
    let (inode, generation, open) = (file.inode, file.generation, file.group.group);
    world.ask(Request::SyncLength { inode, generation, group: open, length: 9 }).expect("length");
    world.ask(Request::Abandon { inode, generation }).expect("abandoned");
    assert!(matches!(world.ask(stat("/f")), Ok(Reply::Attributes(file)) if file.length == 5 && !file.open));
    assert_eq!(garbage(&mut world).0.len(), 2);
}

/// Small files share a group: a deleted one leaves its range, the last one the group; foreign groups are refused file by file.
#[test]
fn packed_files() {
    let mut world = World::new(1);
    let pack = group(world.ask(Request::PackGroup {
        policy: Policy::default(),
        beside: None,
        replicas_max: 0,
        refused: Vec::new(),
    }))
    .group;
    let put = |name: &str, group, offset, length| PutFile {
        path: path(name),
        group,
        offset,
        length,
        crc: 9,
        modified: None,
        accessed: None,
        mode: 0o600,
        overwrite: true,
        parents: true,
        directory: false,
    };
    let files = vec![
        put("/p/a", pack, 0, 10),
        put("/p/b", GroupId(77), 0, 1),
        put("/p/c", pack, 10, 20),
        put("/q/d", pack, u64::MAX, 2),
    ];
    let Ok(Reply::Files(results)) = world.ask(Request::PutFiles { files }) else { panic!("no files") };
    let kinds: Vec<_> =
        results.iter().map(|result| result.as_ref().map(|_| ()).map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Ok(()), Err(ErrorKind::Invalid), Ok(()), Err(ErrorKind::Invalid)]);
    assert_eq!(world.refusal(stat("/q")), ErrorKind::NotFound, "a refused file leaves no directory");
    let extent = locate(&mut world, "/p/c", 0, 100).extents[0];
    assert_eq!((extent.group_offset, extent.length, extent.crc), (10, 20, Some(9)));
    world.ask(Request::PutFiles { files: vec![put("/p/a", pack, 30, 5)] }).expect("replaced");
    assert_eq!(garbage(&mut world), (vec![], vec![(pack, 0, 10)], 0));
    world.ask(delete("/p")).expect("deleted");
    world.pass(Duration::from_secs(1));
    assert_eq!(garbage(&mut world).0, [], "the session may still add to the group");
    world.ask(Request::FinishPack { group: pack }).expect("finished");
    assert_eq!(garbage(&mut world).0, [pack]);
    world.ask(Request::Collected { groups: vec![pack], ranges: vec![(pack, 0)], bags: vec![] }).expect("collected");
    assert_eq!(garbage(&mut world), (vec![], vec![], 0));
}

/// Names in the way are named; roots and ancestors are protected; renaming replaces like for like.
#[test]
fn names() {
    let mut world = World::new(1);
    world.ask(mkdir("/a/b")).expect("mkdir");
    let file = handle(world.ask(create("/a/f")));
    world.ask(close(&file, None)).expect("closed");
    let error = world.ask(stat("/a/f/x")).expect_err("a file in the middle");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.text().contains("'/a/f'"), "{error}");
    let error = world.ask(stat("/a/no/x")).expect_err("nothing in the middle");
    assert!(error.kind() == ErrorKind::NotFound && error.text().contains("'/a/no'"), "{error}");
    let rename =
        |from: &str, to: &str| Request::Rename { from: path(from), to: path(to), replace: true, removes: false };
    for (from, to, kind) in [
        ("/a", "/a/b/c", ErrorKind::Invalid),
        ("/", "/x", ErrorKind::Invalid),
        ("/a/f", "/a/b", ErrorKind::Exists),
        ("/a/b", "/a/f", ErrorKind::Exists),
        ("/a/b", "/a", ErrorKind::Exists),
        ("/x", "/y", ErrorKind::NotFound),
        ("/a/f", "/x/y", ErrorKind::NotFound),
    ] {
        assert_eq!(world.refusal(rename(from, to)), kind, "{from} {to}");
    }
    assert_eq!(world.refusal(delete("/")), ErrorKind::Invalid);
    assert_eq!(world.refusal(Request::Delete { path: path("/a"), recursive: false }), ErrorKind::Exists);
    assert_eq!(world.refusal(create("/a/b")), ErrorKind::Exists);
    assert_eq!(world.refusal(create("/")), ErrorKind::Invalid);
    assert_eq!(world.refusal(create("/no/f")), ErrorKind::NotFound);
    assert_eq!(
        world.refusal(Request::List { path: path("/a/f"), after: None, limit: 1, located: false, also: Vec::new() }),
        ErrorKind::Invalid
    );
    world.ask(rename("/a", "/z")).expect("renamed");
    assert!(world.ask(stat("/z/f")).is_ok() && world.ask(stat("/a/f")).is_err());
    let moved = Request::Locate { file: FileRef::Inode(InodeId(file.inode.0)), offset: 0, length: 1 };
    assert!(world.ask(moved).is_ok(), "the number survives");
}

/// Wishes are inherited from the nearest directory above that has any, follow renames, and choose the device.
#[test]
fn policies() {
    let mut world = World::new(1);
    world.ask(register(9, Class::Hdd)).expect("a device");
    world.ask(mkdir("/cold/deep")).expect("mkdir");
    let cold = Policy { tier: Some(Class::Hdd), replicas: None, ..Policy::default() };
    let set = |name: &str, policy| Request::SetPolicy { path: path(name), policy };
    world.ask(set("/cold", cold)).expect("set");
    let file = handle(world.ask(create("/cold/deep/f")));
    assert_eq!(file.group.layout.columns()[0].head().0, 9);
    let effective = |world: &mut World, name: &str| match world.ask(Request::GetPolicy { path: path(name) }) {
        Ok(Reply::Policy { effective, .. }) => effective,
        other => panic!("{other:?}"),
    };
    assert_eq!(effective(&mut world, "/cold/deep/f"), cold);
    world
        .ask(Request::Rename { from: path("/cold/deep"), to: path("/deep"), replace: false, removes: false })
        .expect("renamed");
    assert_eq!(effective(&mut world, "/deep/f"), Policy::default());
    world.ask(set("/cold", Policy::default())).expect("removed");
    assert_eq!(effective(&mut world, "/cold"), Policy::default());
    assert_eq!(
        world.refusal(set("/cold", Policy { tier: None, replicas: Some(17), ..Policy::default() })),
        ErrorKind::Invalid
    );
    // Small files share groups of any tier: where another one is wished for, they are refused one by one.
    world.ask(set("/cold", cold)).expect("set");
    let pack = |world: &mut World, policy| {
        group(world.ask(Request::PackGroup { policy, beside: None, replicas_max: 0, refused: Vec::new() })).group
    };
    let warm_group = pack(&mut world, Policy { tier: Some(Class::Ssd), ..cold });
    let cold_group = pack(&mut world, cold);
    let put = |name: &str, group, length| PutFile {
        path: path(name),
        group,
        offset: 0,
        length,
        crc: 9,
        modified: None,
        accessed: None,
        mode: 0o600,
        overwrite: false,
        parents: false,
        directory: false,
    };
    let files =
        [("/cold/a", warm_group, 1), ("/cold/b", cold_group, 1), ("/cold/c", warm_group, 0), ("/d", warm_group, 1)];
    let files = files.into_iter().map(|(name, group, length)| put(name, group, length)).collect();
    let Ok(Reply::Files(results)) = world.ask(Request::PutFiles { files }) else { panic!("no files") };
    let kinds: Vec<_> =
        results.iter().map(|result| result.as_ref().map(|_| ()).map_err(|error| error.kind())).collect();
    assert_eq!(kinds, [Err(ErrorKind::Unsupported), Ok(()), Ok(()), Ok(())]);
    world.ask(set("/cold", Policy { tier: Some(Class::Nvm), replicas: None, ..Policy::default() })).expect("set");
    assert_eq!(world.refusal(create("/cold/f")), ErrorKind::Invalid, "no such device");
    for device in [1, 2, 9] {
        let device = base::id::DeviceId(device);
        let devices = vec![DeviceUse { device, taken: 1 << 40, capacity: 1 << 40, full: true }];
        world.ask(Request::DeviceReport { devices }).expect("report");
    }
    assert_eq!(world.refusal(create("/f")), ErrorKind::Full);
}

/// A bag is sealed in two steps that nobody can skip, lives on all fitting devices, and leaves its chunks as garbage.
#[test]
fn bags() {
    let mut world = World::new(1);
    let make = |name: &str| Request::BagCreate {
        name: name.to_string(),
        policy: Policy::default(),
        chunk_size: 0,
        retain: true,
        compression: Compression::None,
    };
    let bag = match world.ask(make("words")) {
        Ok(Reply::Bag(bag)) => bag,
        other => panic!("{other:?}"),
    };
    assert_eq!((bag.members.len(), bag.state), (2, BagState::Open));
    assert_eq!(world.refusal(make("words")), ErrorKind::Exists);
    assert_eq!(world.refusal(make("a/b")), ErrorKind::Invalid);
    let sealed = |epoch| Request::BagSealed { bag: bag.bag, epoch };
    assert_eq!(world.refusal(sealed(bag.epoch)), ErrorKind::Stale, "not sealing yet");
    let name = "words".to_string();
    assert_eq!((bag.retain, bag.pass), (true, 0));
    let rewind = Request::BagRewind { name: name.clone() };
    let again = Caller { session: SESSION, call: 1 << 20, floor: 0 };
    for _ in 0..2 {
        let rewound = world.ask_as(again, rewind.clone()).expect("answered");
        assert!(matches!(rewound, Ok(Reply::Bag(bag)) if bag.pass == 1), "asked again it is one rewind");
    }
    world.crash(1);
    assert!(matches!(world.ask(rewind), Ok(Reply::Bag(bag)) if bag.pass == 2 && bag.retain));
    assert!(
        matches!(world.ask(Request::BagSeal { name: name.clone() }), Ok(Reply::Bag(bag)) if bag.state == BagState::Sealing)
    );
    assert_eq!(world.refusal(sealed(bag.epoch + 1)), ErrorKind::Stale);
    assert!(matches!(world.ask(sealed(bag.epoch)), Ok(Reply::Bag(bag)) if bag.state == BagState::Sealed));
    world.ask(make("zebras")).expect("another");
    let list = |after| Request::BagList { after, limit: 1 };
    assert!(matches!(world.ask(list(None)), Ok(Reply::Bags { bags, more: true }) if bags[0].name == "words"));
    assert!(
        matches!(world.ask(list(Some(name.clone()))), Ok(Reply::Bags { bags, more: false }) if bags[0].name == "zebras")
    );
    world.ask(Request::BagDelete { name: name.clone() }).expect("deleted");
    assert_eq!(world.refusal(Request::BagStat { name }), ErrorKind::NotFound);
    assert_eq!(garbage(&mut world).2, 1);
    world.ask(Request::Collected { groups: vec![], ranges: vec![], bags: vec![bag.bag] }).expect("collected");
    assert_eq!(garbage(&mut world).2, 0);
}

/// A count in parts adds up to the whole, and nonsense to go on with is refused.
#[test]
fn disk_usage() {
    let mut world = World::new(1);
    for directory in 0..30 {
        let put = |number| PutFile {
            path: path(&format!("/t/d{directory}/e/f{number}")),
            group: GroupId(0),
            offset: 0,
            length: 0,
            crc: 0,
            modified: None,
            accessed: None,
            mode: 0,
            overwrite: false,
            parents: true,
            directory: false,
        };
        world.ask(Request::PutFiles { files: (0..200).map(put).collect() }).expect("files");
    }
    let (mut resume, mut parts, mut sum) = (None, 0, Totals::default());
    loop {
        let Ok(Reply::DiskUsage { totals, resume: next }) = world.ask(Request::DiskUsage { path: path("/t"), resume })
        else {
            panic!("no count")
        };
        parts += 1;
        sum.files += totals.files;
        sum.directories += totals.directories;
        resume = next;
        if resume.is_none() {
            break;
        }
    }
    assert_eq!((sum.files, sum.directories), (6000, 61));
    assert!(parts > 1);
    let nonsense = Request::DiskUsage { path: path("/t"), resume: Some(vec![0xFF; 9]) };
    assert_eq!(world.refusal(nonsense), ErrorKind::Invalid);
}

/// Two questions under one number are told apart: the second is refused, whatever it is, and the first is answered as before.
#[test]
fn a_number_used_twice() {
    let mut world = World::new(91);
    let caller = Caller { session: SESSION, call: 5000, floor: 0 };
    let first = world.ask_as(caller, create("/a")).expect("answered").expect("made");
    let others = [
        Request::Delete { path: path("/a"), recursive: false },
        Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() },
        Request::BagCreate {
            name: "b".to_string(),
            policy: Policy::default(),
            chunk_size: 0,
            retain: false,
            compression: Compression::None,
        },
    ];
    for other in others {
        let refused = world.ask_as(caller, other.clone()).expect("answered").expect_err("another question");
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{other:?}");
    }
    assert_eq!(world.ask_as(caller, create("/a")).expect("answered"), Ok(first));
}
