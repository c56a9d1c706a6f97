//! Files that go over several devices as they grow: which groups they get, and what is left of them when a writer goes away.

use crate::world::{World, create, delete, mkdir, path, register};
use base::error::{ErrorKind, Result};
use base::id::{DeviceId, GroupId, NodeId};
use base::limit::{CHUNK_MAX, FILE_CHUNK, NARROW_COLUMN};
use base::policy::{Class, Policy};
use base::unit::MIB;
use meta::request::{DeviceUse, FileHandle, FileRef, NewGroup, Refused};
use meta::{Caller, Reply, Request};
use std::collections::{BTreeMap, BTreeSet};

fn handle(reply: Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

fn next_of(file: &FileHandle, finished: (GroupId, u64), columns_max: usize) -> Request {
    Request::NextGroup {
        replicas_max: 1,
        inode: file.inode,
        generation: file.generation,
        finished,
        columns_max,
        refused: Refused::default(),
    }
}

fn group(reply: Result<Reply>) -> NewGroup {
    match reply {
        Ok(Reply::Group(group)) => group,
        other => panic!("{other:?}"),
    }
}

fn devices(group: &NewGroup) -> BTreeSet<DeviceId> {
    group.layout.replicas().map(|replica| replica.device).collect()
}

/// A store with so many devices.
fn world(devices: u128) -> World {
    let mut world = World::new(1);
    for number in 3..=devices {
        world.ask(register(number, Class::Ssd)).expect("a device");
    }
    world
}

/// The groups of a file have 1, 4 and 16 columns on different devices, or as many as the writer can write to; those that others follow
/// end early. Asked again, the answer is the same, and what is located says how the bytes lie, also after a restart.
#[test]
fn widens() {
    let mut world = world(20);
    let file = handle(world.ask(create("/f")));
    assert_eq!((file.group.layout.columns().len(), file.group.layout.cell(), file.group.room), (1, 0, NARROW_COLUMN));
    let ask = next_of(&file, (file.group.group, NARROW_COLUMN), 16);
    let caller = Caller { session: crate::world::SESSION, call: 1 << 40, floor: 0 };
    let second = group(world.ask_as(caller, ask.clone()).expect("answered"));
    assert_eq!((devices(&second).len(), second.layout.cell(), second.room), (4, MIB, 4 * NARROW_COLUMN));
    assert_eq!(group(world.ask_as(caller, ask).expect("answered")), second, "asked again");
    let third = group(world.ask(next_of(&file, (second.group, second.room), 16)));
    assert_eq!((devices(&third).len(), third.room), (16, 16 * FILE_CHUNK));
    let fourth = group(world.ask(next_of(&file, (third.group, third.room), 16)));
    assert_eq!((devices(&fourth).len(), fourth.room), (16, 16 * FILE_CHUNK));
    let narrower = group(world.ask(next_of(&file, (fourth.group, 16 * CHUNK_MAX), 5)));
    assert_eq!((devices(&narrower).len(), narrower.room), (5, 5 * FILE_CHUNK));
    assert_eq!(world.refusal(next_of(&file, (narrower.group, 5 * CHUNK_MAX + 1), 5)), ErrorKind::Invalid);
    let old = group(world.ask(next_of(&file, (narrower.group, 10), 1)));
    assert_eq!((old.layout.columns().len(), old.layout.cell(), old.room), (1, 0, FILE_CHUNK));
    world.merge();
    world.kill();
    let located = match world.ask(Request::Locate { file: FileRef::Path(path("/f")), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(located)) => located,
        other => panic!("{other:?}"),
    };
    let found = located.groups.iter().find(|found| found.group == third.group).expect("it is one of the file's");
    assert_eq!((&found.layout, found.layout.cell()), (&third.layout, MIB));
}

/// With one device that fits, all groups have one column and the length that they always had; a group of small files has one column
/// however many devices there are.
#[test]
fn stays_narrow() {
    let mut one = world(2);
    one.ask(Request::DeviceDrain { device: DeviceId(2) }).expect("drains");
    let file = handle(one.ask(create("/f")));
    assert_eq!((file.group.layout.columns().len(), file.group.room), (1, FILE_CHUNK));
    let next = group(one.ask(next_of(&file, (file.group.group, FILE_CHUNK), 16)));
    assert_eq!((next.layout.columns().len(), next.room), (1, FILE_CHUNK));
    let mut many = world(20);
    let pack = group(many.ask(Request::PackGroup {
        policy: Policy::default(),
        beside: None,
        replicas_max: 0,
        refused: Vec::new(),
    }));
    assert_eq!((pack.layout.columns().len(), pack.room), (1, 0));
}

/// A device without room for a column of full length gets none of several columns.
#[test]
fn wants_room() {
    let mut world = world(6);
    for (number, free) in [(1, FILE_CHUNK), (2, FILE_CHUNK - 1), (3, 0), (4, 1 << 39)] {
        let report = Request::DeviceReport {
            devices: vec![DeviceUse {
                device: DeviceId(number),
                taken: (1 << 40) - free,
                capacity: 1 << 40,
                full: false,
            }],
        };
        world.ask(report).expect("noted");
    }
    let file = handle(world.ask(create("/f")));
    let next = group(world.ask(next_of(&file, (file.group.group, 10), 16)));
    assert_eq!(devices(&next), [1, 4, 5, 6].map(DeviceId).into());
}

/// Many files at once lie evenly over equal devices, groups of each width by themselves, whenever devices report meanwhile; and a device
/// that joins later takes its part, and no more to catch up.
#[test]
fn even() {
    let mut world = world(8);
    let (mut firsts, mut seconds) = (BTreeMap::new(), BTreeMap::new());
    let count = |counts: &mut BTreeMap<DeviceId, u32>, group: &NewGroup| {
        devices(group).into_iter().for_each(|device| *counts.entry(device).or_default() += 1);
    };
    for number in 0..64 {
        let file = handle(world.ask(create(&format!("/{number}"))));
        count(&mut firsts, &file.group);
        let device = DeviceId(number % 8 + 1);
        let devices = vec![DeviceUse { device, taken: 0, capacity: 1 << 40, full: false }];
        world.ask(Request::DeviceReport { devices }).expect("noted");
        count(&mut seconds, &group(world.ask(next_of(&file, (file.group.group, NARROW_COLUMN), 16))));
    }
    assert_eq!(firsts.values().copied().collect::<Vec<_>>(), [8; 8]);
    assert_eq!(seconds.values().copied().collect::<Vec<_>>(), [32; 8]);
    world.ask(register(9, Class::Ssd)).expect("a device");
    let firsts = (0..18).map(|number| handle(world.ask(create(&format!("/later-{number}")))).group);
    let mut later = BTreeMap::new();
    firsts.for_each(|group| count(&mut later, &group));
    assert_eq!(later.values().copied().collect::<Vec<_>>(), [2; 9]);
}

/// When a writer has gone away, its last group keeps what the node says that it has; what columns hold behind that is garbage, and
/// with the file all of it is.
#[test]
fn recovered() {
    let mut world = world(4);
    let file = handle(world.ask(create("/f")));
    let wide = group(world.ask(next_of(&file, (file.group.group, 10), 16)));
    assert_eq!(wide.layout.columns().len(), 4);
    let fence = Request::Fence { inode: file.inode, only_gone: false, for_holder: false, generation: None };
    let Ok(Reply::Orphans(orphans)) = world.ask(fence) else { panic!("nothing to seal") };
    assert_eq!(orphans[0].group.layout, wide.layout);
    let kept = 5 * MIB + 7;
    let done =
        Request::Recovered { without: Vec::new(), inode: file.inode, generation: orphans[0].generation, length: kept };
    assert!(matches!(world.ask(done), Ok(Reply::Attributes(closed)) if closed.length == 10 + kept && !closed.open));
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 10 })
    else {
        panic!("no garbage")
    };
    let (group, offset, length) = &garbage.ranges[0];
    assert_eq!((group.group, *offset, offset.checked_add(*length)), (wide.group, kept, Some(u64::MAX)));
    let ranges = (0..4).map(|column| group.layout.stripe().column_range(*offset..u64::MAX, column).start);
    assert_eq!(ranges.collect::<Vec<_>>(), [2 * MIB, MIB + 7, MIB, MIB]);
    world.ask(delete("/f")).expect("deleted");
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 10 })
    else {
        panic!("no garbage")
    };
    assert!(garbage.groups.iter().any(|group| group.layout == wide.layout));
}

/// Behind a group that ended early the next lies on other devices, as long as some of them take data; what columns had behind its end is
/// garbage, and one that ended before its first byte is garbage altogether.
#[test]
fn ended_early() {
    let mut world = world(6);
    let file = handle(world.ask(create("/f")));
    let early = |finished, full: &[u128]| {
        let refused = Refused { full: full.iter().map(|device| DeviceId(*device)).collect(), ..Refused::default() };
        let Request::NextGroup { inode, generation, columns_max, .. } = next_of(&file, finished, 16) else {
            unreachable!()
        };
        Request::NextGroup { replicas_max: 1, inode, generation, finished, columns_max, refused }
    };
    let wide = group(world.ask(early((file.group.group, 10), &[1, 2])));
    assert_eq!(devices(&wide), [3, 4, 5, 6].map(DeviceId).into());
    let kept = 5 * MIB + 7;
    let two = group(world.ask(early((wide.group, kept), &[3, 4, 5, 6])));
    assert_eq!(devices(&two), [1, 2].map(DeviceId).into());
    let any = group(world.ask(early((two.group, 0), &[1, 2, 3, 4, 5, 6])));
    assert!(!devices(&any).is_empty(), "one that was full is better than none");
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 10 })
    else {
        panic!("no garbage")
    };
    let ranges: Vec<_> = garbage.ranges.iter().map(|(group, offset, _)| (group.group, *offset)).collect();
    assert_eq!(ranges, [(wide.group, kept)]);
    assert!(garbage.groups.iter().any(|group| group.group == two.group), "{garbage:?}");
    let located = match world.ask(Request::Locate { file: FileRef::Path(path("/f")), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(located)) => located,
        other => panic!("{other:?}"),
    };
    assert_eq!(located.extents.iter().map(|extent| extent.length).sum::<u64>(), 10 + kept);
}

/// What was synced on a device that is gone is there when it comes back, unless it was in memory, or the store does not know the device any
/// more: then the writer is told which bytes may be lost, and its file is not changed.
#[test]
fn gone_devices() {
    let mut world = world(4);
    for number in [7, 8] {
        world.ask(register(number, Class::Memory)).expect("a device");
    }
    world.ask(mkdir("/memory")).expect("made");
    let policy = Policy { tier: Some(Class::Memory), ..Policy::default() };
    world.ask(Request::SetPolicy { path: path("/memory"), policy }).expect("set");
    for (name, is_kept) in [("/f", true), ("/memory/f", false)] {
        let file = handle(world.ask(create(name)));
        let gone: Vec<DeviceId> = devices(&file.group).into_iter().collect();
        let next = |finished, gone: &[DeviceId]| {
            let Request::NextGroup { inode, generation, columns_max, .. } = next_of(&file, finished, 16) else {
                unreachable!()
            };
            let refused = Refused { gone: gone.to_vec(), ..Refused::default() };
            Request::NextGroup { replicas_max: 1, inode, generation, finished, columns_max, refused }
        };
        let empty = group(world.ask(next((file.group.group, 0), &gone)));
        assert!(devices(&empty).is_disjoint(&gone.into_iter().collect()), "{empty:?}");
        let gone: Vec<DeviceId> = devices(&empty).into_iter().collect();
        match world.ask(next((empty.group, 10), &gone)) {
            Ok(Reply::Group(next)) => assert!(is_kept && devices(&next).is_disjoint(&devices(&empty)), "{next:?}"),
            Err(error) => {
                assert!(!is_kept && error.kind() == ErrorKind::Io, "{error}");
                assert!(error.text().contains("bytes 0 to 10 of the file may be lost"), "{error}");
                let others = group(world.ask(next((empty.group, 10), &[DeviceId(1)])));
                assert!(!devices(&others).is_empty(), "a device that it is not on does not matter");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// In a store of many devices not all are looked at for each group, and each has its part all the same, whatever its id, and however many
/// there are; also where few of them can have a group.
#[test]
fn even_over_many() {
    for (count, every) in [(127u128, 1), (255, 1), (300, 1), (300, 3), (127, 16)] {
        let mut world = World::new(3);
        let id = |number: u128| DeviceId(if number.is_multiple_of(2) { number } else { number << 100 });
        for number in 1..=count {
            let class = if number.is_multiple_of(every) { Class::Ssd } else { Class::Bulk };
            let (device, node) = (id(number), NodeId(number % 20));
            world.ask(Request::DeviceRegister { device, class, capacity: 1 << 40, node }).expect("registered");
        }
        let fitting = count / every;
        let (mut firsts, mut seconds) = (BTreeMap::<DeviceId, u32>::new(), BTreeMap::<DeviceId, u32>::new());
        for number in 0..5 * fitting {
            // Nothing of this is asked again, and the log has no room for all of it.
            world.floor = world.next_call;
            if number % 100 == 0 {
                world.merge();
            }
            let file = handle(world.ask(create(&format!("/{number}"))));
            devices(&file.group).into_iter().for_each(|device| *firsts.entry(device).or_default() += 1);
            let next = group(world.ask(next_of(&file, (file.group.group, NARROW_COLUMN), 16)));
            assert_eq!(devices(&next).len(), 4);
            devices(&next).into_iter().for_each(|device| *seconds.entry(device).or_default() += 1);
        }
        for counts in [&firsts, &seconds] {
            let part = counts.values().sum::<u32>() / counts.len() as u32;
            // The world has one of its own beside them: 128 and 256 in the first two, which a turn of 64 divides evenly.
            assert_eq!(counts.len() as u128, fitting + 1);
            let (least, most) = (counts.values().min().expect("some"), counts.values().max().expect("some"));
            assert!(*least + 2 >= part && *most <= part + 2, "{count}, {every}: {least} to {most} of {part}");
        }
    }
}

/// Where most of many devices are full, those that have room are found.
#[test]
fn the_roomy_ones_of_many() {
    let mut world = World::new(4);
    for number in 1..=300 {
        let (device, node) = (DeviceId(number), NodeId(number % 20));
        world.ask(Request::DeviceRegister { device, class: Class::Ssd, capacity: 1 << 40, node }).expect("registered");
    }
    let roomy: BTreeSet<DeviceId> = [7, 50, 51, 200, 299, 300].map(DeviceId).into();
    let full = (1..=300).map(DeviceId).filter(|device| !roomy.contains(device));
    let full = full.map(|device| DeviceUse { device, taken: 1 << 40, capacity: 1 << 40, full: true }).collect();
    world.ask(Request::DeviceReport { devices: full }).expect("noted");
    for number in 0..20 {
        let file = handle(world.ask(create(&format!("/later-{number}"))));
        assert!(devices(&file.group).is_subset(&roomy));
        let wide = group(world.ask(next_of(&file, (file.group.group, NARROW_COLUMN), 16)));
        assert!(devices(&wide).is_subset(&roomy) && devices(&wide).len() == 4);
    }
}
