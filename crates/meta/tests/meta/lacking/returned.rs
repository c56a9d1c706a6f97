//! What a device has that was given up by itself: where it stays named, because there was no other place, it counts again with the device, or as
//! soon as it was compared.

use super::{device_info, devices_of, lacking, lacks_without, repair, replicas, report, set, world, written};
use crate::world::{World, mkdir};
use base::error::ErrorKind;
use base::id::{ChunkId, DeviceId, GroupId};
use base::planted::Planted;
use meta::Request;
use meta::request::{Lack, LackingColumn, Lacks, NewGroup};
use std::time::Duration;

fn of(group: &NewGroup) -> (GroupId, ChunkId, DeviceId) {
    let column = &group.layout.columns()[0];
    (group.group, column.chunk(), column.head())
}

fn heard(world: &mut World, nodes: u128) {
    (11..11 + nodes).for_each(|number| report(world, number));
}

fn given_up(world: &mut World, device: DeviceId, nodes: u128) {
    world.ask(Request::DeviceGivenUp { device }).expect("given up");
    let back = Request::DeviceBack { device };
    assert_eq!(world.refusal(back), ErrorKind::Busy, "nobody looked what it has");
    world.pass(Duration::from_secs(1));
    heard(world, nodes);
    world.store().check_lacking().expect("as the records say");
}

/// As `repair`, but for what is on no device that is there.
fn repair_what_is_there(world: &mut World) -> usize {
    let mut added = 0;
    for group in lacking(world).0.into_iter().filter(|group| group.lack != Lack::NoneLeft) {
        for column in group.columns {
            if let Some(to) = column.to {
                let (from, chunk) = (column.from[0], column.chunk);
                world.ask(Request::AddReplica { group: group.group, chunk, from, to }).expect("added");
                added += 1;
            }
        }
    }
    added
}

fn lack_of(world: &mut World, group: GroupId) -> Option<(Lack, LackingColumn)> {
    let found = lacking(world).0.into_iter().find(|lacking| lacking.group == group)?;
    Some((found.lack, found.columns[0].clone()))
}

/// Of three nodes one is away, and most files want three copies: those of which there is no other place stay named there, and are not good when the
/// device counts again, over restarts, before they were compared with a good one. What has its one copy there is good with it. Nothing is good
/// by its own word while there are others.
#[test]
fn what_has_no_other_place() {
    let mut world = world(1, 3, 3);
    world.ask(mkdir("/two")).expect("made");
    world.ask(set("/two", replicas(2))).expect("set");
    let once = written(&mut world, "/once");
    let (once, _, device) = of(&once);
    let threes: Vec<NewGroup> = (0..30).map(|number| written(&mut world, &format!("/d/f{number}"))).collect();
    while repair(&mut world) > 0 {}
    assert!(!lacks_without(&mut world, device), "all have three");
    for number in 0..30 {
        written(&mut world, &format!("/two/f{number}"));
    }
    while repair(&mut world) > 0 {}
    assert!(lacks_without(&mut world, device), "some have two");
    given_up(&mut world, device, 3);
    while repair_what_is_there(&mut world) > 0 {}
    let (groups, lacks) = lacking(&mut world);
    assert_eq!((groups.len(), lacks.fewer.0, lacks.none_left.0), (31, 30, 1), "there is no place for them");
    let no_place = |column: &LackingColumn| column.to.is_none() && column.again.is_empty();
    assert!(groups.iter().all(|group| group.lack == Lack::NoneLeft || no_place(&group.columns[0])));
    world.crash(1);
    heard(&mut world, 3);
    world.ask(Request::DeviceBack { device }).expect("all was looked through");
    assert!(!device_info(&mut world, device).lost);
    world.pass(Duration::from_secs(1));
    heard(&mut world, 3);
    world.store().check_lacking().expect("as the records say");
    assert_eq!(lack_of(&mut world, once), None, "it is there again");
    world.crash(2);
    heard(&mut world, 3);
    let (groups, lacks) = lacking(&mut world);
    assert_eq!((groups.len(), lacks.fewer.0), (30, 30));
    assert_eq!(devices_of(&mut world, "/d/f0")[0][2], device, "it is read last");
    for group in &threes {
        let (group, chunk, _) = of(group);
        let (_, column) = lack_of(&mut world, group).expect("it is doubted");
        assert_eq!((column.again.as_slice(), column.from.len(), column.to), (&[device][..], 2, None));
        assert!(!column.from.contains(&device));
        let add = |from, to| Request::AddReplica { group, chunk, from, to };
        assert_eq!(world.refusal(add(device, device)), ErrorKind::Stale, "by its own word");
        assert_eq!(world.refusal(add(DeviceId(1), device)), ErrorKind::Stale, "that one has none");
        world.ask(add(column.from[0], device)).expect("it is the same");
        world.ask(add(column.from[0], device)).expect("asked again");
    }
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    assert!((0..30).all(|number| devices_of(&mut world, &format!("/d/f{number}"))[0].len() == 3));
    world.store().check_lacking().expect("as the records say");
}

/// A device that is away again before what it has was compared is given up as any other; what is good elsewhere by then is not named there any more.
#[test]
fn away_again() {
    let mut world = world(2, 4, 3);
    let (group, chunk, device) = of(&written(&mut world, "/d/f"));
    while repair(&mut world) > 0 {}
    let others: Vec<DeviceId> =
        devices_of(&mut world, "/d/f").remove(0).into_iter().filter(|one| *one != device).collect();
    given_up(&mut world, device, 4);
    world.ask(Request::DeviceBack { device }).expect("back");
    world.pass(Duration::from_secs(1));
    heard(&mut world, 4);
    let column = lack_of(&mut world, group).expect("it is doubted").1;
    assert_eq!((column.again.as_slice(), column.to.is_some()), (&[device][..], true));
    assert!(!lacks_without(&mut world, device), "it has nothing that counts");
    given_up(&mut world, device, 4);
    let column = lack_of(&mut world, group).expect("it lacks one").1;
    assert_eq!(column.again, []);
    let add = Request::AddReplica { group, chunk, from: others[0], to: device };
    assert_eq!(world.refusal(add), ErrorKind::Stale, "it is away");
    assert_eq!(repair(&mut world), 1);
    assert!(!devices_of(&mut world, "/d/f")[0].contains(&device));
    world.ask(Request::DeviceBack { device }).expect("back");
    world.pass(Duration::from_secs(1));
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
}

/// Of two that are given up one after the other the second one had the last good replica. It is good when it is back; until then what the first one
/// has may be by its own length, as nothing was written since it was given up, and is all that there is once a person says that the second is gone. Two
/// that went together are good together.
#[test]
fn the_last_good_one() {
    for gone in [false, true] {
        let mut world = world(3, 2, 2);
        let (group, chunk, first) = of(&written(&mut world, "/d/f"));
        while repair(&mut world) > 0 {}
        let second = DeviceId(23 - first.0);
        for device in [first, second] {
            given_up(&mut world, device, 2);
        }
        world.ask(Request::DeviceBack { device: first }).expect("back");
        world.pass(Duration::from_secs(1));
        heard(&mut world, 2);
        let (lack, column) = lack_of(&mut world, group).expect("none is left");
        assert_eq!(
            (lack, column.from.as_slice(), column.again.as_slice()),
            (Lack::NoneLeft, &[first][..], &[first][..])
        );
        let add = |from, to| Request::AddReplica { group, chunk, from, to };
        assert_eq!(world.refusal(add(second, first)), ErrorKind::Stale, "that one is away");
        if gone {
            world.ask(Request::DeviceLost { device: second }).expect("it is gone");
            let (_, column) = lack_of(&mut world, group).expect("none is left");
            assert_eq!(column.again, [first]);
            assert!(column.from.contains(&first));
            assert_eq!(world.refusal(add(second, first)), ErrorKind::Stale, "neither is good");
            world.ask(add(first, first)).expect("there is nothing else");
            assert_eq!(
                lack_of(&mut world, group).map(|(lack, column)| (lack, column.from)),
                Some((Lack::OneLeft, vec![first]))
            );
            let back = Request::DeviceBack { device: second };
            assert_eq!(world.refusal(back), ErrorKind::Busy, "a person gave it up, and it is named");
        } else {
            world.ask(Request::DeviceBack { device: second }).expect("back");
            world.pass(Duration::from_secs(1));
            heard(&mut world, 2);
            let (lack, column) = lack_of(&mut world, group).expect("one is doubted");
            assert_eq!(
                (lack, column.from.as_slice(), column.again.as_slice()),
                (Lack::OneLeft, &[second][..], &[first][..])
            );
            world.ask(add(second, first)).expect("it is the same");
            assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
        }
        world.store().check_lacking().expect("as the records say");
    }
    let mut world = world(4, 2, 2);
    written(&mut world, "/d/f");
    while repair(&mut world) > 0 {}
    for device in [11, 12].map(DeviceId) {
        world.ask(Request::DeviceGivenUp { device }).expect("given up");
    }
    world.pass(Duration::from_secs(1));
    for device in [11, 12].map(DeviceId) {
        world.ask(Request::DeviceBack { device }).expect("back");
    }
    world.pass(Duration::from_secs(1));
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
}

/// One is back and not compared yet when the other one goes for longer than its device is waited for: that gives up nothing that is not there, too. The
/// one that is back is good by its own length, and the other one is doubted then.
#[test]
fn away_by_turns() {
    let mut world = world(5, 3, 2);
    let (group, chunk, first) = of(&written(&mut world, "/d/f"));
    while repair(&mut world) > 0 {}
    let on = devices_of(&mut world, "/d/f").remove(0);
    let second = on.into_iter().find(|device| *device != first).expect("two");
    given_up(&mut world, first, 3);
    world.ask(Request::DeviceBack { device: first }).expect("back");
    world.pass(Duration::from_secs(1));
    heard(&mut world, 3);
    assert!(lacks_without(&mut world, second), "the other one's is there");
    given_up(&mut world, second, 3);
    let (_, column) = lack_of(&mut world, group).expect("none is good");
    assert_eq!((column.from.as_slice(), column.again.as_slice()), (&[first][..], &[first][..]));
    world.ask(Request::AddReplica { group, chunk, from: first, to: first }).expect("nothing else is there");
    assert_eq!(repair(&mut world), 1, "on the third");
    world.ask(Request::DeviceBack { device: second }).expect("back");
    world.pass(Duration::from_secs(1));
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    assert!(!devices_of(&mut world, "/d/f")[0].contains(&second));
}

/// Nothing is named less because fewer copies are wanted: those that count may be gone, and nobody know that yet.
#[test]
fn a_lowered_wish_takes_none() {
    let mut world = world(6, 3, 3);
    let device = of(&written(&mut world, "/d/f")).2;
    while repair(&mut world) > 0 {}
    given_up(&mut world, device, 3);
    for back in [false, true] {
        if back {
            world.ask(Request::DeviceBack { device }).expect("back");
            world.pass(Duration::from_secs(1));
            heard(&mut world, 3);
        }
        for wish in [1, 3] {
            world.ask(set("/d", replicas(wish))).expect("set");
            world.pass(Duration::from_secs(1));
            heard(&mut world, 3);
            assert!(devices_of(&mut world, "/d/f")[0].contains(&device), "back: {back}, {wish} wanted");
            world.store().check_lacking().expect("as the records say");
        }
    }
}

/// Without the doubt it counts when its device does.
#[test]
fn a_returned_replica_is_doubted() {
    for planted in [None, Some(Planted::ReturnedReplicaBelieved)] {
        let mut world = world(1, 3, 3);
        let device = of(&written(&mut world, "/d/f")).2;
        while repair(&mut world) > 0 {}
        world.planted = planted;
        world.crash(1);
        heard(&mut world, 3);
        world.ask(Request::DeviceGivenUp { device }).expect("given up");
        world.pass(Duration::from_secs(1));
        assert_eq!(world.store().check_lacking().is_err(), planted.is_some());
        world.ask(Request::DeviceBack { device }).expect("back");
        world.pass(Duration::from_secs(1));
        assert_eq!(lacking(&mut world).1.fewer.0, u64::from(planted.is_none()));
    }
}
