//! Devices that are drained: nothing new comes there, groups move as a whole, and both survive crashes.

use crate::world::{World, create, delete, path, register};
use base::error::{ErrorKind, Result};
use base::id::{ChunkId, DeviceId, GroupId, NodeId};
use base::policy::{Class, Compression, Policy};
use meta::request::{BagInfo, BagState, Carried, FileHandle, FileRef, Located, NewGroup, NewInode, PutFile};
use meta::{Reply, Request};

fn handle(reply: Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

fn placed(group: &NewGroup) -> (DeviceId, ChunkId) {
    let column = &group.layout.columns()[0];
    (column.head(), column.chunk())
}

fn other(device: DeviceId) -> DeviceId {
    DeviceId(3 - device.0)
}

fn locate(world: &mut World, name: &str) -> Located {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(located)) => located,
        other => panic!("{other:?}"),
    }
}

/// Every group that names the device, asked for in pages of one.
fn groups_on(world: &mut World, device: DeviceId) -> Vec<GroupId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        match world.ask(Request::GroupsOn { device, after, limit: 1 }) {
            Ok(Reply::GroupsOn { groups, resume, .. }) => {
                found.extend(groups.iter().map(|group| group.group));
                after = resume;
            }
            other => panic!("{other:?}"),
        }
        if after.is_none() {
            return found;
        }
    }
}

fn move_to_other(group: &NewGroup) -> Request {
    let (from, chunk) = placed(group);
    Request::MoveGroup { group: group.group, chunk, from, to: other(from) }
}

/// What lies on a device is found in pages, whatever of it was merged, moved or deleted before or since, and while a merge is under way.
#[test]
fn found_whatever_is_merged() {
    let mut world = World::new(3);
    // A step looks at twenty groups: fewer than change between two merges.
    world.page_max = Some(1);
    world.crash(3);
    let mut there = std::collections::BTreeMap::new();
    let close = |world: &mut World, name: &str| {
        let file = handle(world.ask(create(name)));
        let finished = Some((file.group.group, 1000));
        let (inode, generation) = (file.inode, file.generation);
        world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
        file.group
    };
    for step in 0..90 {
        let group = close(&mut world, &format!("/f{step}"));
        let (device, chunk) = placed(&group);
        there.insert(group.group, device);
        if step % 3 == 0 {
            world.ask(move_to_other(&group)).expect("moved");
            there.insert(group.group, other(device));
        }
        if step % 29 == 3 {
            world.merge();
        }
        if step % 5 == 4 {
            // Perhaps merged, and moved back behind that.
            let (from, to) = (there[&group.group], other(there[&group.group]));
            world.ask(Request::MoveGroup { group: group.group, chunk, from, to }).expect("moved");
            there.insert(group.group, to);
        }
        if step % 11 == 10 {
            // Garbage is still there.
            world.ask(delete(&format!("/f{}", step - 5))).expect("deleted");
        }
        for device in [DeviceId(1), DeviceId(2)] {
            let said: Vec<_> = there.iter().filter(|(_, on)| **on == device).map(|(group, _)| *group).collect();
            assert_eq!(groups_on(&mut world, device), said, "step {step}");
        }
    }
    // More than a step looks at lie elsewhere, before one that does not.
    for step in 90..=120 {
        let group = close(&mut world, &format!("/f{step}"));
        let (on, wanted) = (placed(&group).0, DeviceId(if step < 120 { 1 } else { 2 }));
        if on != wanted {
            world.ask(move_to_other(&group)).expect("moved");
        }
        there.insert(group.group, wanted);
    }
    let said: Vec<_> = there.iter().filter(|(_, on)| **on == DeviceId(2)).map(|(group, _)| *group).collect();
    assert_eq!(groups_on(&mut world, DeviceId(2)), said);
    world.crash(5);
    for device in [DeviceId(1), DeviceId(2)] {
        let said: Vec<_> = there.iter().filter(|(_, on)| **on == device).map(|(group, _)| *group).collect();
        assert_eq!(groups_on(&mut world, device), said);
    }
}

/// A group of a written file, one that is being written, and one that many small files share move in one change each: every
/// file that names them is found at the new place, nothing else changes, and a crash at any time after the answer changes
/// nothing either. What is no more, or was elsewhere, is refused; asked again, a move is answered.
#[test]
fn groups_move() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        let closed = handle(world.ask(create("/closed")));
        let finished = Some((closed.group.group, 1000));
        let (inode, generation) = (closed.inode, closed.generation);
        world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
        let open = handle(world.ask(create("/open")));
        let Ok(Reply::Group(pack)) = world.ask(Request::PackGroup {
            policy: Policy::default(),
            beside: None,
            replicas_max: 0,
            refused: Vec::new(),
        }) else {
            panic!("no group")
        };
        let small = |number: u64| PutFile {
            path: path(&format!("/small{number}")),
            group: pack.group,
            offset: number * 100,
            length: 100,
            crc: 0,
            modified: None,
            accessed: None,
            mode: 0o644,
            overwrite: false,
            parents: false,
            directory: false,
        };
        world.ask(Request::PutFiles { files: (0..5).map(small).collect() }).expect("put");
        let before = ["/closed", "/open", "/small0", "/small4"].map(|name| locate(&mut world, name));
        for group in [&closed.group, &open.group, &pack] {
            let (device, chunk) = placed(group);
            assert!(groups_on(&mut world, device).contains(&group.group));
            world.ask(move_to_other(group)).expect("moved");
            world.ask(move_to_other(group)).expect("asked again");
            assert!(!groups_on(&mut world, device).contains(&group.group));
            let back = Request::MoveGroup { group: group.group, chunk: ChunkId(1), from: other(device), to: device };
            assert_eq!(world.refusal(back), ErrorKind::Stale, "that is not its chunk");
            let nowhere = Request::MoveGroup { group: group.group, chunk, from: other(device), to: DeviceId(9) };
            assert_eq!(world.refusal(nowhere), ErrorKind::NotFound);
        }
        if seed % 2 == 0 {
            world.merge();
        }
        world.crash(seed);
        for (name, before) in ["/closed", "/open", "/small0", "/small4"].into_iter().zip(before) {
            let after = locate(&mut world, name);
            assert_eq!((&after.attributes, &after.extents), (&before.attributes, &before.extents), "seed {seed}");
            let (was, is) = (placed(&before.groups[0]), placed(&after.groups[0]));
            assert_eq!(is, (other(was.0), was.1), "seed {seed}: {name}");
        }
        world.ask(delete("/closed")).expect("deleted");
        let (device, chunk) = placed(&closed.group);
        let late = Request::MoveGroup { group: closed.group.group, chunk, from: other(device), to: device };
        assert_eq!(world.refusal(late), ErrorKind::Stale, "it is garbage");
        match world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 10 }) {
            Ok(Reply::Garbage(garbage)) => assert_eq!(placed(&garbage.groups[0]), (other(device), chunk)),
            other => panic!("{other:?}"),
        }
    }
}

/// From the answer on nothing is placed on a device that is drained, nor moved there, across crashes and registrations; only such a device
/// can be removed, and then it is no longer listed.
#[test]
fn nothing_new_comes() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        let device = DeviceId(2);
        assert_eq!(world.refusal(Request::DeviceRemove { device }), ErrorKind::Invalid);
        assert_eq!(world.refusal(Request::DeviceDrain { device: DeviceId(9) }), ErrorKind::NotFound);
        world.ask(Request::DeviceDrain { device }).expect("drained");
        for round in 0..2 {
            for number in 0..20 {
                let file = handle(world.ask(create(&format!("/f{round}-{number}"))));
                let (from, chunk) = placed(&file.group);
                assert_eq!(from, DeviceId(1), "seed {seed}");
                let late = Request::MoveGroup { group: file.group.group, chunk, from, to: device };
                assert_eq!(world.refusal(late), ErrorKind::Stale, "a move that was begun before is late");
            }
            let name = format!("b{round}");
            let create = bag_named(name);
            assert!(matches!(world.ask(create), Ok(Reply::Bag(bag)) if bag.members == [DeviceId(1)]));
            if round == 0 {
                world.crash(seed);
            }
        }
        world.ask(Request::DeviceRemove { device }).expect("removed");
        world.ask(Request::DeviceRemove { device }).expect("asked again");
        match world.ask(Request::DeviceList) {
            Ok(Reply::Devices(devices)) => assert!(devices.iter().all(|info| info.device != device)),
            other => panic!("{other:?}"),
        }
    }
}

/// In which order devices are emptied is known across crashes, and asked twice it stays.
#[test]
fn drains_have_an_order() {
    let mut world = World::new(3);
    let order = |world: &mut World| match world.ask(Request::DeviceList) {
        Ok(Reply::Devices(devices)) => {
            devices.iter().map(|info| (info.device.0, info.draining, info.drain)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    for device in [2, 1, 2] {
        world.ask(Request::DeviceDrain { device: DeviceId(device) }).expect("it begins");
    }
    let expected = [(1, true, 2), (2, true, 1)];
    assert_eq!(order(&mut world), expected);
    world.crash(1);
    assert_eq!(order(&mut world), expected);
    world.ask(Request::DeviceRemove { device: DeviceId(2) }).expect("removed");
    let device = DeviceId(3);
    let register = Request::DeviceRegister { device, class: Class::Ssd, capacity: 1 << 30, node: NodeId(1) };
    world.ask(register).expect("registered");
    world.ask(Request::DeviceDrain { device }).expect("it begins");
    assert_eq!(order(&mut world), [(1, true, 2), (3, true, 3)]);
}

/// Which devices were removed is known across crashes, for good: none registers again. Those in memory, new at each start, are not noted.
#[test]
fn removed_ones_are_known() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        // The first two register at each start of this world.
        let (disk, memory) = (DeviceId(3), DeviceId(4));
        let register = |device, class| Request::DeviceRegister { device, class, capacity: 1 << 30, node: NodeId(1) };
        for (device, class) in [(disk, Class::Ssd), (memory, Class::Memory)] {
            world.ask(register(device, class)).expect("registered");
            world.ask(Request::DeviceDrain { device }).expect("drained");
            world.ask(Request::DeviceRemove { device }).expect("removed");
        }
        let removed = |world: &mut World| {
            let devices = vec![DeviceId(1), disk, memory, DeviceId(9)];
            match world.ask(Request::DevicesRemoved { devices }) {
                Ok(Reply::WereRemoved(removed)) => removed,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(removed(&mut world), [disk]);
        if seed % 2 == 0 {
            world.merge();
        }
        world.crash(seed);
        assert_eq!(removed(&mut world), [disk], "seed {seed}");
        let error = world.ask(register(disk, Class::Ssd)).expect_err("it was removed");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert_eq!(removed(&mut world), [disk], "seed {seed}");
    }
}

fn bag_named(name: String) -> Request {
    let (policy, compression) = (Policy::default(), Compression::None);
    Request::BagCreate { name, policy, chunk_size: 0, retain: false, compression }
}

/// A member leaves a bag once and its counts stay; others join once; the epoch rises with each change and only then.
#[test]
fn members_change() {
    let mut world = World::new(1);
    let create = bag_named("b".to_string());
    let bag = |reply: Result<Reply>| -> BagInfo {
        match reply {
            Ok(Reply::Bag(bag)) => bag,
            other => panic!("{other:?}"),
        }
    };
    let made = bag(world.ask(create));
    let counts = Carried { pushed: 5, pushed_bytes: 500, acknowledged: 4, acknowledged_bytes: 400 };
    let (bag_number, state) = (made.bag, BagState::Open);
    let leave = Request::BagMembers { bag: bag_number, state, joining: vec![], leaving: Some((DeviceId(2), counts)) };
    for _ in 0..2 {
        let left = bag(world.ask(leave.clone()));
        assert_eq!((left.members, left.carried, left.epoch), (vec![DeviceId(1)], counts, made.epoch + 1));
    }
    let both = vec![DeviceId(1), DeviceId(2)];
    let join = Request::BagMembers { bag: bag_number, state, joining: both, leaving: None };
    for _ in 0..2 {
        let joined = bag(world.ask(join.clone()));
        assert_eq!((joined.members.len(), joined.epoch), (2, made.epoch + 2));
    }
    assert_eq!(bag(world.ask(Request::BagOf { bag: made.bag })).carried, counts);
}

/// A device that was told that a bag takes chunks does not join it once the bag is sealed.
#[test]
fn nobody_joins_unawares() {
    let mut world = World::new(1);
    let name = || "b".to_string();
    let create = bag_named(name());
    let Ok(Reply::Bag(made)) = world.ask(create) else { panic!("made") };
    world.ask(register(9, Class::Ssd)).expect("registered");
    world.ask(Request::BagSeal { name: name() }).expect("sealing");
    let joining = |state| Request::BagMembers { bag: made.bag, state, joining: vec![DeviceId(9)], leaving: None };
    let members = |reply: Result<Reply>| match reply {
        Ok(Reply::Bag(bag)) => bag.members,
        other => panic!("{other:?}"),
    };
    assert_eq!(members(world.ask(joining(BagState::Open))), made.members, "it takes nothing any more");
    assert!(members(world.ask(joining(BagState::Sealing))).contains(&DeviceId(9)), "one that knows it joins");
}

/// A device that joined a bag again while it was being removed is not removed before it has left that, too; one that was removed joins none:
/// a bag with a member that is none of the store's could never be sealed.
#[test]
fn members_are_of_the_store() {
    let mut world = World::new(1);
    let create = bag_named("b".to_string());
    let Ok(Reply::Bag(made)) = world.ask(create) else { panic!("made") };
    let device = DeviceId(2);
    let change = |joining: Vec<DeviceId>, leaving| Request::BagMembers {
        bag: made.bag,
        state: BagState::Open,
        joining,
        leaving,
    };
    let members = |reply: Result<Reply>| match reply {
        Ok(Reply::Bag(bag)) => bag.members,
        other => panic!("{other:?}"),
    };
    let leaving = Some((device, Carried::default()));
    world.ask(Request::DeviceDrain { device }).expect("drains");
    assert!(!members(world.ask(change(vec![], leaving))).contains(&device));
    assert!(members(world.ask(change(vec![device], None))).contains(&device));
    assert_eq!(world.refusal(Request::DeviceRemove { device }), ErrorKind::Busy);
    world.ask(change(vec![], leaving)).expect("left");
    world.ask(Request::DeviceRemove { device }).expect("removed");
    assert!(!members(world.ask(change(vec![device], None))).contains(&device));
}

/// The way back from groups to names finds every file with bytes in them, and the one that is being written; renamed files
/// under their new names, deleted ones not at all.
#[test]
fn names_of_groups() {
    let mut world = World::new(1);
    let closed = handle(world.ask(create("/a")));
    let finished = Some((closed.group.group, 1000));
    let (inode, generation) = (closed.inode, closed.generation);
    world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
    let open = handle(world.ask(create("/d/open")).or_else(|_| {
        world
            .ask(Request::Mkdir { path: path("/d"), parents: true, new: NewInode::with_mode(0o755) })
            .expect("a directory");
        world.ask(create("/d/open"))
    }));
    world.ask(Request::Rename { from: path("/a"), to: path("/d/b"), replace: false, removes: false }).expect("renamed");
    let names = |world: &mut World| -> Vec<(String, u64)> {
        let groups = vec![closed.group.group, open.group.group];
        match world.ask(Request::FilesIn { groups, resume: None }) {
            Ok(Reply::Pieces { mut pieces, resume: None }) => {
                pieces.sort_by(|one, other| one.path.cmp(&other.path));
                pieces.into_iter().map(|piece| (piece.path, piece.length)).collect()
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(names(&mut world), [("/d/b".to_string(), 1000), ("/d/open".to_string(), base::limit::CHUNK_MAX)]);
    world.ask(delete("/d/b")).expect("deleted");
    assert_eq!(names(&mut world).len(), 1);
}
