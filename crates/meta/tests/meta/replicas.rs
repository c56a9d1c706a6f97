//! Groups that are written to several replicas at once: where these are, how such a group ends, and what is named of it then.

use crate::lacking::{close, devices_of, handle, lacking, repair, replicas, report, set, to_several, world};
use crate::world::{World, append, create, path};
use base::error::ErrorKind;
use base::id::{ChunkId, DeviceId, NodeId};
use base::layout::Layout;
use base::planted::Planted;
use base::policy::Policy;
use meta::request::{FileHandle, FileRef, Located, Open, Orphan, PutFile, Refused};
use meta::{Reply, Request};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;

/// What ends an open group of 1000 bytes without some of its replicas.
type End = fn(&mut World, &FileHandle, Vec<(ChunkId, DeviceId)>);

/// A new group behind one of so many bytes, of which these replicas are short.
fn next(file: &FileHandle, length: u64, short: Vec<(ChunkId, DeviceId)>) -> Request {
    Request::NextGroup {
        inode: file.inode,
        generation: file.generation,
        finished: (file.group.group, length),
        columns_max: 1,
        replicas_max: 3,
        refused: Refused { short, ..Refused::default() },
    }
}

fn open(world: &mut World, name: &str) -> FileHandle {
    handle(world.ask(to_several(create(name), 3)))
}

fn all(layout: &Layout) -> Vec<(ChunkId, DeviceId)> {
    layout.replicas().map(|replica| (replica.chunk, replica.device)).collect()
}

fn locate(world: &mut World, name: &str) -> Located {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(located)) => located,
        other => panic!("{other:?}"),
    }
}

fn fenced(world: &mut World, file: &FileHandle) -> Orphan {
    let fence = Request::Fence { inode: file.inode, only_gone: false, for_holder: false, generation: None };
    match world.ask(fence) {
        Ok(Reply::Orphans(mut orphans)) => orphans.remove(0),
        other => panic!("{other:?}"),
    }
}

/// As many replicas as the directory wants and the writer can write to, each on another node and named with that node's start; one for who says
/// nothing. A closed file has them all, lacks none, and says no start.
#[test]
fn as_many_as_both_want() {
    let mut world = world(1, 4, 3);
    for (most, wanted) in [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)] {
        let name = format!("/d/f{most}");
        let file = handle(world.ask(to_several(create(&name), most)));
        assert_eq!(file.group.layout.columns()[0].devices().count(), wanted, "{most}");
        close(&mut world, &file, 1000);
        let again = handle(world.ask(to_several(append(&name), most)));
        assert_eq!(again.group.layout.columns()[0].devices().count(), wanted, "{most}");
        let Ok(Reply::Group(group)) = world.ask(next(&again, 500, Vec::new())) else { panic!("no group") };
        assert_eq!(group.layout.columns()[0].devices().count(), 3);
        let orphan = fenced(&mut world, &FileHandle { group, ..again });
        // A device has the number of its node here.
        let starts: Vec<u64> = all(&orphan.group.layout).iter().map(|(_, device)| NodeId(device.0).start(1)).collect();
        assert_eq!((orphan.starts, starts.len()), (starts.clone(), 3));
        let (inode, generation) = (orphan.inode, orphan.generation);
        world.ask(Request::Recovered { inode, generation, length: 10, without: Vec::new() }).expect("ended");
    }
    assert_eq!(lacking(&mut world).1.one_left, (4, 3000), "what was written to one replica");
    world.store().check_lacking().expect("as the records say");
}

/// Where there have to be places for two copies nothing is begun with one, and nothing that goes on; who can write to one alone is not held up.
#[test]
fn least() {
    let mut world = world(1, 3, 3);
    let wish = |least| Policy { least: Some(least), ..replicas(3) };
    assert_eq!(world.refusal(set("/d", wish(4))), ErrorKind::Invalid);
    world.ask(set("/d", wish(2))).expect("set");
    let file = open(&mut world, "/d/a");
    let all_of = |file: &FileHandle| all(&file.group.layout).into_iter().map(|(_, device)| device).collect::<Vec<_>>();
    let devices = all_of(&file);
    assert_eq!(devices.len(), 3);
    // One is gone: two are enough. Of two that refused something, one is taken all the same: it may have room by now.
    let go_on = |file: &FileHandle, (group, length), gone: &[DeviceId], last| Request::NextGroup {
        inode: file.inode,
        generation: file.generation,
        finished: (group, length),
        columns_max: 1,
        replicas_max: 3,
        refused: Refused { gone: gone.to_vec(), last, ..Refused::default() },
    };
    let mut group = (file.group.group, 1000);
    for gone in [&devices[2..], &devices[1..]] {
        match world.ask(go_on(&file, group, gone, false)) {
            Ok(Reply::Group(next)) => {
                assert!(all(&next.layout).len() >= 2, "{next:?} without {gone:?}");
                group = (next.group, 1000);
            }
            other => panic!("{other:?}"),
        }
    }
    // The same where nodes are silent, for new files, small ones too.
    for device in &devices[1..] {
        world.ask(Request::DeviceDrain { device: *device }).expect("drained");
    }
    assert_eq!(world.refusal(to_several(create("/d/b"), 3)), ErrorKind::Full);
    let error = world.ask(go_on(&file, group, &[], false)).expect_err("one is left");
    assert!(error.kind() == ErrorKind::Full && error.text().contains("2 copies at the least"), "{error}");
    assert!(world.ask(go_on(&file, group, &[], true)).is_ok(), "nothing is written behind it, and it can be closed");
    let beside = Some(path("/d/c"));
    let pack = Request::PackGroup { policy: Policy::default(), beside, replicas_max: 3, refused: Vec::new() };
    assert_eq!(world.refusal(pack), ErrorKind::Full);
    world.ask(create("/d/d")).expect("an older program writes one");
    world.ask(to_several(create("/e"), 3)).expect("nobody wants more than one there");
}

/// A group for small files is begun on as many replicas as the first of them shall have, wherever its directories end that are there. When it
/// takes no more it lacks nothing, unless a device of it was given up in between.
#[test]
fn small_files() {
    let mut world = world(1, 4, 3);
    let pack_without = |world: &mut World, name: &str, replicas_max, refused| {
        let beside = Some(path(name));
        match world.ask(Request::PackGroup { policy: Policy::default(), beside, replicas_max, refused }) {
            Ok(Reply::Group(group)) => group,
            other => panic!("{other:?}"),
        }
    };
    let pack = |world: &mut World, name: &str, most| pack_without(world, name, most, Vec::new());
    for (name, most, wanted) in
        [("/d/f", 16, 3), ("/d/not/yet/there", 16, 3), ("/d/f", 2, 2), ("/d/f", 0, 1), ("/g", 16, 1)]
    {
        let group = pack(&mut world, name, most);
        assert_eq!(all(&group.layout).len(), wanted, "{name} for {most}");
    }
    // Those that refused the last bytes are taken where there are no others, for the first replica alone.
    let some = (0..32).flat_map(|_| all(&pack(&mut world, "/d/f", 16).layout).into_iter().map(|(_, device)| device));
    let devices: Vec<DeviceId> = some.collect::<BTreeSet<_>>().into_iter().collect();
    assert_eq!(devices.len(), 4);
    for (refused, wanted) in [(1, 3), (2, 2), (4, 1)] {
        for _ in 0..8 {
            let group = pack_without(&mut world, "/d/f", 16, devices[..refused].to_vec());
            let on: Vec<DeviceId> = all(&group.layout).iter().map(|(_, device)| *device).collect();
            assert_eq!(on.len(), wanted, "{on:?} without {refused}");
            assert!(refused == 4 || on.iter().all(|device| !devices[..refused].contains(device)), "{on:?}");
        }
    }
    let lost = pack(&mut world, "/d/f", 16);
    let whole = loop {
        let group = pack(&mut world, "/d/f", 16);
        if !group.layout.columns()[0].has(all(&lost.layout)[0].1) {
            break group;
        }
    };
    for (number, group) in [&lost, &whole].into_iter().enumerate() {
        let name = format!("/d/small{number}");
        let file = PutFile { length: 50, group: group.group, ..crate::world::small_file(&name) };
        world.ask(Request::PutFiles { files: vec![file] }).expect("put");
    }
    let device = all(&lost.layout)[0].1;
    world.ask(Request::DeviceLost { device }).expect("given up");
    for group in [&lost, &whole] {
        world.ask(Request::FinishPack { group: group.group }).expect("finished");
    }
    assert_eq!(lacking(&mut world).0.len(), 1);
    while repair(&mut world) > 0 {}
    for name in ["/d/small0", "/d/small1"] {
        let devices = devices_of(&mut world, name)[0].clone();
        assert!(devices.len() == 3 && !devices.contains(&device), "{name}: {devices:?}");
    }
    world.store().check_lacking().expect("as the records say");
}

/// Where the store has fewer nodes that take data than are wanted there are fewer replicas, never two on one node; what is closed like that
/// gets the others when it can.
#[test]
fn fewer_where_there_is_no_place() {
    let mut world = world(1, 4, 3);
    world.ask(set("/d", replicas(9))).expect("set");
    let file = handle(world.ask(to_several(create("/d/f"), 16)));
    assert_eq!(file.group.layout.columns()[0].devices().count(), 4, "there is no fifth node");
    world.crash(1);
    [11, 12].into_iter().for_each(|number| report(&mut world, number));
    let file = handle(world.ask(to_several(create("/d/g"), 16)));
    assert_eq!(file.group.layout.columns()[0].devices().count(), 2, "two were not heard of");
    close(&mut world, &file, 1000);
    (11..15).for_each(|number| report(&mut world, number));
    while repair(&mut world) > 0 {}
    assert_eq!(devices_of(&mut world, "/d/g")[0].len(), 4);
}

/// Who reads what is being written is told of all replicas, in the order in which they were placed, whoever of them is silent, and the
/// generation of the writer, also when it is fenced. Of one replica, and of what is closed, nothing of that is said.
#[test]
fn open_ones_are_told() {
    let mut world = world(1, 4, 3);
    let [file, closed] = ["/d/f", "/d/g"].map(|name| open(&mut world, name));
    close(&mut world, &closed, 1000);
    let single = handle(world.ask(create("/d/h")));
    let placed = all(&file.group.layout);
    // A device has the number of its node here.
    let starts: Vec<u64> = placed.iter().map(|(_, device)| NodeId(device.0).start(1)).collect();
    let told = Some(Open { generation: file.generation, starts });
    let before = devices_of(&mut world, "/d/g")[0].clone();
    for silent in placed.iter().map(|(_, device)| *device) {
        world.crash(1);
        (11..15).filter(|number| silent != DeviceId(*number)).for_each(|number| report(&mut world, number));
        let located = locate(&mut world, "/d/f");
        assert_eq!((all(&located.groups[0].layout), located.open), (placed.clone(), told.clone()), "{silent}");
        let now = devices_of(&mut world, "/d/g")[0].clone();
        assert!(!before.contains(&silent) || now[2] == silent, "{silent} is the last of {now:?}, as it is silent");
        assert_eq!(locate(&mut world, "/d/g").open, None);
        assert_eq!(locate(&mut world, "/d/h").open, None);
    }
    close(&mut world, &single, 0);
    let Orphan { inode, generation, .. } = fenced(&mut world, &file);
    assert!(generation > file.generation);
    let located = locate(&mut world, "/d/f");
    assert_eq!((all(&located.groups[0].layout), located.open), (placed, told));
    world.ask(Request::Recovered { inode, generation, length: 1000, without: Vec::new() }).expect("ended");
    assert_eq!(locate(&mut world, "/d/f").open, None);
}

/// Replicas that have less than a group's end are named no more; others are made. None is struck out while it is open, and never all of a
/// chunk: what they have may be all there is. The rest of those that have more is garbage.
#[test]
fn none_is_the_last() {
    let ends: [End; 2] = [
        |world, file, short| drop(world.ask(next(file, 1000, short)).expect("ended")),
        |world, file, without| {
            let Orphan { inode, generation, .. } = fenced(world, file);
            world.ask(Request::Recovered { inode, generation, length: 1000, without }).expect("ended");
        },
    ];
    for end in ends {
        for struck in 0..4 {
            let mut world = world(1, 4, 3);
            let file = open(&mut world, "/d/f");
            let placed = all(&file.group.layout);
            end(&mut world, &file, placed[..struck].to_vec());
            let left = if struck == 3 { 3 } else { 3 - struck };
            assert_eq!(devices_of(&mut world, "/d/f")[0].len(), left, "{struck} of three");
            assert_eq!(lacking(&mut world).0.len(), usize::from(left < 3));
            while repair(&mut world) > 0 {}
            assert_eq!(devices_of(&mut world, "/d/f")[0].len(), 3);
            let Ok(Reply::Garbage(garbage)) =
                world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 9 })
            else {
                panic!("no list")
            };
            let listed: Vec<_> = garbage.ranges.iter().map(|(group, offset, _)| (group.group, *offset)).collect();
            assert_eq!(listed.contains(&(file.group.group, 1000)), struck > 0 || listed.len() == 1);
            world.store().check_lacking().expect("as the records say");
        }
    }
    let mut world = world(1, 4, 3);
    world.planted = Some(Planted::LastReplicaStruck);
    world.crash(1);
    (11..15).for_each(|number| report(&mut world, number));
    let file = open(&mut world, "/d/f");
    let request = next(&file, 1000, all(&file.group.layout));
    std::panic::catch_unwind(AssertUnwindSafe(|| drop(world.ask(request)))).expect_err("it leaves none");
}

/// A group that is written to several replicas stays where it is; once it is closed a replica can move.
#[test]
fn open_ones_stay() {
    let mut world = world(1, 4, 2);
    let file = open(&mut world, "/d/f");
    let (chunk, from) = all(&file.group.layout)[0];
    let other =
        (11..15).map(DeviceId).find(|device| file.group.layout.on(*device).next().is_none()).expect("one is left");
    let group = file.group.group;
    let move_group = Request::MoveGroup { group, chunk, from, to: other };
    assert_eq!(world.refusal(move_group.clone()), ErrorKind::Stale);
    close(&mut world, &file, 1000);
    world.ask(move_group).expect("moved");
    assert!(devices_of(&mut world, "/d/f")[0].contains(&other));
}

/// A group without bytes whose writer is gone keeps its fence on one replica that has it, and is no group for small files that its session could
/// finish.
#[test]
fn fences_without_bytes_are_kept() {
    let mut world = world(1, 4, 3);
    let file = open(&mut world, "/d/f");
    let Orphan { inode, generation, .. } = fenced(&mut world, &file);
    let placed = all(&file.group.layout);
    let without = vec![placed[0]];
    world.ask(Request::Recovered { inode, generation, length: 0, without }).expect("ended");
    world.ask(Request::FinishPack { group: file.group.group }).expect("it is none of those");
    let Ok(Reply::Known(known)) = world.ask(Request::KnownGroups { groups: vec![file.group.group] }) else {
        panic!("not told")
    };
    assert_eq!(known[0].layout.as_ref().map(all), Some(vec![placed[1]]));
}
