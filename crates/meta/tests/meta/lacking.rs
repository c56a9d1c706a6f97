//! Groups that have fewer replicas than they want are listed by whatever makes the lack, and get replicas until they have enough.

mod returned;

use crate::world::{World, append, create, delete, mkdir, path};
use base::env::Random;
use base::error::{ErrorKind, Result};
use base::id::{DeviceId, GroupId, NodeId};
use base::planted::Planted;
use base::policy::{Class, Compression, Policy};
use meta::request::{DeviceInfo, FileHandle, FileRef, Lack, LackingGroup, Lacks, NewGroup, NodeInfo, PutFile, Refused};
use meta::{Reply, Request};
use sim::random::SimRandom;
use std::collections::BTreeMap;
use std::time::Duration;

pub fn replicas(wanted: u32) -> Policy {
    Policy { replicas: Some(wanted), ..Policy::default() }
}

pub fn set(name: &str, policy: Policy) -> Request {
    Request::SetPolicy { path: path(name), policy }
}

/// A store with a device on each of so many nodes, beside the two that every world has, which are being emptied; and a directory whose
/// files want so many replicas.
pub fn world(seed: u64, nodes: u128, wanted: u32) -> World {
    let mut world = World::new(seed);
    heard(&mut world, nodes);
    for device in [1, 2] {
        world.ask(Request::DeviceDrain { device: DeviceId(device) }).expect("drained");
    }
    world.ask(mkdir("/d")).expect("made");
    world.ask(set("/d", replicas(wanted))).expect("set");
    world
}

/// All nodes are there.
pub fn heard(world: &mut World, nodes: u128) {
    for number in (0..=nodes).map(|number| if number == 0 { 1 } else { number + 10 }) {
        let node = NodeInfo {
            node: NodeId(number),
            incarnation: 1,
            name: format!("n{number}"),
            address: "host:1".to_string(),
            ..NodeInfo::default()
        };
        world.ask(Request::NodeJoin { node }).expect("joins");
        if number > 1 {
            report(world, number);
            register(world, number);
        }
    }
}

pub fn report(world: &mut World, number: u128) {
    let devices = vec![DeviceId(number)];
    world.ask(Request::NodeReport { node: NodeId(number), keeps: false, devices }).expect("heard");
}

fn register(world: &mut World, number: u128) {
    let (device, node) = (DeviceId(number), NodeId(number));
    world.ask(Request::DeviceRegister { device, class: Class::Ssd, capacity: 1 << 40, node }).expect("registered");
}

pub fn handle(reply: Result<Reply>) -> FileHandle {
    match reply {
        Ok(Reply::Handle(handle)) => handle,
        other => panic!("{other:?}"),
    }
}

/// By a writer who can write to so many replicas at once.
pub fn to_several(mut request: Request, most: usize) -> Request {
    if let Request::Create { replicas_max, .. } | Request::AppendOpen { replicas_max, .. } = &mut request {
        *replicas_max = most;
    }
    request
}

pub fn close(world: &mut World, file: &FileHandle, length: u64) {
    let finished = Some((file.group.group, length));
    let (inode, generation) = (file.inode, file.generation);
    world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
}

pub fn written(world: &mut World, name: &str) -> NewGroup {
    let file = handle(world.ask(create(name)));
    close(world, &file, 1000);
    file.group
}

pub fn lacking(world: &mut World) -> (Vec<LackingGroup>, Lacks) {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        match world.ask(Request::Lacking { after, limit: 2, avoid: Vec::new() }) {
            Ok(Reply::Lacking { groups, resume, lacks }) => {
                all.extend(groups);
                after = resume;
                if after.is_none() {
                    return (all, lacks);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Adds every replica that is asked for and has a place, and finds those to be the same that are doubted; how many.
pub fn repair(world: &mut World) -> usize {
    let mut added = 0;
    for group in lacking(world).0 {
        for column in group.columns {
            if let Some(to) = column.again.first().copied().or(column.to) {
                let from = if column.from.contains(&to) { to } else { column.from[0] };
                let chunk = column.chunk;
                world.ask(Request::AddReplica { group: group.group, chunk, from, to }).expect("added");
                added += 1;
            }
        }
    }
    added
}

pub fn devices_of(world: &mut World, name: &str) -> Vec<Vec<DeviceId>> {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(located)) => {
            let columns = located.groups.iter().flat_map(|group| group.layout.columns());
            columns.map(|column| column.devices().collect()).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// A file gets the replicas that its directory wants when it is closed, and not before; each on another node. What it wants no more of, what
/// is open or garbage, and what was copied from elsewhere is refused. An own wish counts where the directory wants several.
#[test]
fn closed_files_get_replicas() {
    let mut world = world(1, 4, 3);
    let file = handle(world.ask(create("/d/f")));
    assert_eq!(lacking(&mut world).0, []);
    let (chunk, head) = (file.group.layout.columns()[0].chunk(), file.group.layout.columns()[0].head());
    let add = |from, to| Request::AddReplica { group: file.group.group, chunk, from, to };
    let other = DeviceId(if head.0 == 11 { 12 } else { 11 });
    assert_eq!(world.refusal(add(head, other)), ErrorKind::Stale, "it is open");
    close(&mut world, &file, 1000);
    let (groups, lacks) = lacking(&mut world);
    assert_eq!((lacks.one_left, lacks.fewer, lacks.none_left), ((1, 1000), (0, 0), (0, 0)));
    let column = &groups[0].columns[0];
    assert_eq!((groups[0].lack, column.from.as_slice(), column.length), (Lack::OneLeft, &[head][..], 1000));
    let to = column.to.expect("there are others");
    assert_ne!(to, head);
    assert_eq!(world.refusal(add(other, to)), ErrorKind::Stale, "it is not there");
    assert_eq!(world.refusal(add(head, DeviceId(1))), ErrorKind::Stale, "that one is being emptied");
    assert_eq!(world.refusal(add(head, DeviceId(99))), ErrorKind::NotFound);
    world.ask(add(head, to)).expect("added");
    world.ask(add(head, to)).expect("asked again");
    world.crash(1);
    (11..15).for_each(|number| report(&mut world, number));
    let (groups, lacks) = lacking(&mut world);
    assert_eq!((lacks.one_left, lacks.fewer, groups[0].lack), ((0, 0), (1, 1000), Lack::Fewer));
    assert_eq!(repair(&mut world), 1);
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    let devices = devices_of(&mut world, "/d/f").remove(0);
    assert_eq!((devices.len(), devices[0]), (3, head));
    let fourth = (11..15).map(DeviceId).find(|device| !devices.contains(device)).expect("one is left");
    assert_eq!(world.refusal(add(head, fourth)), ErrorKind::Stale, "it has enough");
    world.ask(delete("/d/f")).expect("deleted");
    assert_eq!(world.refusal(add(head, fourth)), ErrorKind::Stale, "it is garbage");
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 9 })
    else {
        panic!("no list")
    };
    assert_eq!(garbage.groups[0].layout.replicas().count(), 3);
    world.ask(Request::Collected { groups: vec![file.group.group], ranges: vec![], bags: vec![] }).expect("noted");
    assert_eq!(world.refusal(add(head, fourth)), ErrorKind::Stale, "it is gone");
    // As a gateway asks: five in a directory of three, of which four nodes have as many as can be, and in one that says nothing.
    for (name, wanted) in [("/d/own", 4), ("/own", 1)] {
        let mut request = create(name);
        if let Request::Create { new, .. } = &mut request {
            new.copies = 5;
        }
        let file = handle(world.ask(request));
        close(&mut world, &file, 7);
        while repair(&mut world) > 0 {}
        assert_eq!(devices_of(&mut world, name)[0].len(), wanted, "{name}");
    }
    assert_eq!(lacking(&mut world).1.fewer, (0, 0), "there is no fifth node, and none is waited for");
    world.store().check_lacking().expect("as the records say");
}

/// Small files share a group, which has as many replicas as that of them wants that wants most, once its session is done with it.
#[test]
fn small_files() {
    let mut world = world(1, 3, 2);
    world.ask(mkdir("/once")).expect("made");
    let Ok(Reply::Group(pack)) =
        world.ask(Request::PackGroup { policy: Policy::default(), beside: None, replicas_max: 0, refused: Vec::new() })
    else {
        panic!("no group")
    };
    let put = |name: &str, offset| PutFile { offset, length: 50, group: pack.group, ..crate::world::small_file(name) };
    world.ask(Request::PutFiles { files: vec![put("/once/a", 0), put("/d/b", 50)] }).expect("put");
    assert_eq!(lacking(&mut world).0, []);
    world.ask(Request::FinishPack { group: pack.group }).expect("finished");
    assert_eq!(lacking(&mut world).1.one_left, (1, 100));
    assert_eq!(repair(&mut world), 1);
    assert_eq!(devices_of(&mut world, "/once/a")[0].len(), 2);
    world.store().check_lacking().expect("as the records say");
}

/// What was on a device that is given up lacks a replica then, found in steps over restarts. It is replaced, and named no more; where nothing
/// else is left it stays named, is read last, and is copied from should the device answer. A device that nothing names can be removed, and not
/// before; none comes back by a report of its node.
#[test]
fn lost_devices() {
    let mut world = world(1, 4, 2);
    let names: Vec<String> = (0..150).map(|number| format!("/d/f{number}")).collect();
    for name in &names {
        written(&mut world, name);
    }
    let lone = written(&mut world, "/lone");
    while repair(&mut world) > 0 {}
    let lost = lone.layout.columns()[0].head();
    world.ask(Request::DeviceLost { device: lost }).expect("given up");
    let remove = Request::DeviceRemove { device: lost };
    assert_eq!(world.refusal(remove.clone()), ErrorKind::Busy, "nobody looked what it has");
    let now = world.now;
    let wall = world.wall;
    world.store().tick(now, wall);
    world.run();
    world.store().check_lacking().expect("as the records say");
    world.crash(1);
    (11..15).for_each(|number| report(&mut world, number));
    register(&mut world, lost.0);
    world.pass(Duration::from_secs(1));
    world.store().check_lacking().expect("as the records say");
    let with_it: Vec<&String> = names.iter().filter(|name| devices_of(&mut world, name)[0].contains(&lost)).collect();
    assert!(with_it.len() > 50 && with_it.iter().all(|name| devices_of(&mut world, name)[0][1] == lost));
    let (groups, lacks) = lacking(&mut world);
    assert_eq!((lacks.one_left.0, lacks.none_left), (with_it.len() as u64, (1, 1000)));
    let last = groups.last().expect("the worst is last");
    assert_eq!((last.group, last.lack, &last.columns[0].from), (lone.group, Lack::NoneLeft, &vec![lost]));
    assert_eq!(world.refusal(remove.clone()), ErrorKind::Busy);
    while repair(&mut world) > 0 {}
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    for name in names.iter().map(String::as_str).chain(["/lone"]) {
        let devices = devices_of(&mut world, name).remove(0);
        assert_eq!((devices.len(), devices.contains(&lost)), (if name == "/lone" { 1 } else { 2 }, false), "{name}");
    }
    world.ask(remove).expect("removed");
    world.store().check_lacking().expect("as the records say");
}

fn lacks_without(world: &mut World, device: DeviceId) -> bool {
    let mut after = None;
    loop {
        match world.ask(Request::LacksWithout { device, after }) {
            Ok(Reply::LacksWithout { any: false, resume: Some(last) }) => after = Some(last),
            Ok(Reply::LacksWithout { any, .. }) => return any,
            other => panic!("{other:?}"),
        }
    }
}

fn device_info(world: &mut World, device: DeviceId) -> DeviceInfo {
    match world.ask(Request::DeviceList) {
        Ok(Reply::Devices(devices)) => devices.into_iter().find(|info| info.device == device).expect("it is known"),
        other => panic!("{other:?}"),
    }
}

/// A device that was given up by itself counts again, over a restart, and takes replicas as any other. A person who says
/// meanwhile that it is gone for good is believed: then it does once nothing names it. Whether anything is won by giving one up is known: not where files want one copy, nor where
/// there is no other one.
#[test]
fn given_up_and_back() {
    let mut world = world(1, 4, 2);
    let once = written(&mut world, "/once").layout.columns()[0].head();
    for number in 0..40 {
        written(&mut world, &format!("/d/f{number}"));
    }
    let devices: Vec<DeviceId> = (11..15).map(DeviceId).collect();
    assert!(!devices.iter().any(|device| lacks_without(&mut world, *device)), "there is no second copy of anything");
    while repair(&mut world) > 0 {}
    assert!(devices.iter().all(|device| lacks_without(&mut world, *device)));
    let (given_up, back) = (Request::DeviceGivenUp { device: once }, Request::DeviceBack { device: once });
    world.ask(given_up.clone()).expect("given up");
    assert!(!lacks_without(&mut world, once), "it does not count already");
    assert_eq!(world.refusal(back.clone()), ErrorKind::Busy, "nobody looked what it has");
    world.crash(1);
    (11..15).for_each(|number| report(&mut world, number));
    register(&mut world, once.0);
    world.pass(Duration::from_secs(1));
    let info = device_info(&mut world, once);
    assert!(info.lost && info.may_return && !info.is_gone(), "{info:?}");
    let only_there = lacking(&mut world).0.into_iter().find(|group| group.lack == Lack::NoneLeft).expect("one");
    assert_eq!(only_there.columns[0].from, [once]);
    while repair(&mut world) > 0 {}
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    world.ask(back.clone()).expect("nothing names it");
    world.ask(back.clone()).expect("it is so");
    let info = device_info(&mut world, once);
    assert!(!info.lost && !info.may_return, "{info:?}");
    world.crash(2);
    (11..15).for_each(|number| report(&mut world, number));
    assert!(!device_info(&mut world, once).lost);
    for number in 40..80 {
        written(&mut world, &format!("/d/f{number}"));
    }
    while repair(&mut world) > 0 {}
    let on_it = |world: &mut World| {
        (0..80).filter(|number| devices_of(world, &format!("/d/f{number}"))[0].contains(&once)).count()
    };
    assert!(on_it(&mut world) >= 10 && lacks_without(&mut world, once), "{}", on_it(&mut world));
    world.ask(given_up.clone()).expect("given up");
    world.ask(Request::DeviceLost { device: once }).expect("a person says so, too");
    world.ask(given_up).expect("it is lost");
    assert!(device_info(&mut world, once).is_gone());
    world.crash(3);
    (11..15).for_each(|number| report(&mut world, number));
    assert!(device_info(&mut world, once).is_gone());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.refusal(back.clone()), ErrorKind::Busy, "groups name it");
    while repair(&mut world) > 0 {}
    world.ask(back).expect("so it can come back, too");
    world.store().check_lacking().expect("as the records say");
}

/// A column that has no bytes has no chunk: one place for it is enough. On a device that is given up it gets another, for which nothing is copied,
/// so that the device can be forgotten.
#[test]
fn columns_without_bytes() {
    let mut world = world(1, 4, 2);
    let file = handle(world.ask(create("/d/f")));
    let (inode, generation, finished) = (file.inode, file.generation, (file.group.group, 1000));
    let request = Request::NextGroup {
        replicas_max: 1,
        inode,
        generation,
        finished,
        columns_max: 3,
        refused: Refused::default(),
    };
    let Ok(Reply::Group(wide)) = world.ask(request) else { panic!("no group") };
    assert!(wide.layout.columns().len() > 1, "{wide:?}");
    close(&mut world, &FileHandle { group: wide.clone(), ..file }, 10);
    let lacks = |world: &mut World| {
        let groups = lacking(world).0.into_iter();
        groups.filter(|group| group.group == wide.group).flat_map(|group| group.columns).collect::<Vec<_>>()
    };
    let columns = lacks(&mut world);
    assert_eq!((columns.len(), columns[0].length), (1, 10));
    while repair(&mut world) > 0 {}
    let lost = wide.layout.columns()[1].head();
    world.ask(Request::DeviceLost { device: lost }).expect("given up");
    world.pass(Duration::from_secs(1));
    let empty: Vec<_> = lacks(&mut world).into_iter().filter(|column| column.length == 0).collect();
    assert_eq!((empty.len(), lacking(&mut world).1.none_left.0), (1, 0), "nothing of it is lost");
    while repair(&mut world) > 0 {}
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    world.ask(Request::DeviceRemove { device: lost }).expect("nothing names it");
}

/// A record that no group can have holds up nothing but its own group: others that are listed with it are told of.
#[test]
fn a_damaged_record_holds_up_no_other() {
    let mut world = world(1, 4, 2);
    let (damaged, other) = (written(&mut world, "/d/a").group, written(&mut world, "/d/b").group);
    world.power_off(1);
    let key = [&[0x13][..], &damaged.0.to_be_bytes()].concat();
    // One reference, ten bytes, and no column.
    crate::stored::write(&world, &key, &[0x10, 1, 0x18, 10]);
    world.open();
    let listed: Vec<GroupId> = lacking(&mut world).0.iter().map(|group| group.group).collect();
    assert_eq!(listed, [other]);
}

/// A column has as many replicas as it can have, some on devices that are given up: a new one takes the place of one of those. A group whose one
/// replica was in memory that is gone lacks nothing: it was to be nowhere else.
#[test]
fn as_many_as_can_be() {
    let mut world = world(1, 18, 16);
    written(&mut world, "/d/f");
    while repair(&mut world) > 0 {}
    let devices = devices_of(&mut world, "/d/f").remove(0);
    assert_eq!(devices.len(), 16);
    for lost in &devices[3..5] {
        world.ask(Request::DeviceLost { device: *lost }).expect("given up");
    }
    world.pass(Duration::from_secs(1));
    (11..29).for_each(|number| report(&mut world, number));
    while repair(&mut world) > 0 {}
    let now = devices_of(&mut world, "/d/f").remove(0);
    assert!(now.len() == 16 && !devices[3..5].iter().any(|lost| now.contains(lost)), "{now:?}");
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    let (device, node) = (DeviceId(99), NodeId(11));
    world.ask(Request::DeviceRegister { device, class: Class::Memory, capacity: 1 << 40, node }).expect("registered");
    world.ask(mkdir("/m")).expect("made");
    world.ask(set("/m", Policy { tier: Some(Class::Memory), replicas: Some(1), ..Policy::default() })).expect("set");
    assert_eq!(written(&mut world, "/m/f").layout.columns()[0].head(), device);
    report(&mut world, 11);
    world.ask(Request::DeviceRemove { device }).expect("it is gone");
    world.pass(Duration::from_secs(1));
    assert_eq!(lacking(&mut world), (Vec::new(), Lacks::default()));
    world.store().check_lacking().expect("as the records say");
}

/// Whatever is done in any order: what is listed is what the records say, and once everything that can be is repaired each closed group has as
/// many replicas as it wants, on as many nodes.
#[test]
fn listed_as_recorded() {
    for seed in 0..40 {
        let mut world = world(seed, 5, 2);
        let random = SimRandom::new(seed);
        let (mut open, mut step): (BTreeMap<String, FileHandle>, u64) = (BTreeMap::new(), 0);
        let (mut gone, mut given_up) = (0, Vec::new());
        while step < 120 {
            step += 1;
            let name = format!("/d/f{}", random.below(12));
            match random.below(14) {
                0..4 => {
                    let request = if random.below(3) == 0 { append(&name) } else { create(&name) };
                    let request = to_several(request, random.below(4) as usize);
                    if let Ok(Reply::Handle(file)) = world.ask(request) {
                        open.insert(name, file);
                    }
                }
                4..7 => {
                    if let Some((name, file)) = open.pop_first() {
                        let length = random.below(3) * 500;
                        let finished = Some((file.group.group, length));
                        let (inode, generation) = (file.inode, file.generation);
                        let replicas = file.group.layout.replicas();
                        let short: Vec<_> = replicas
                            .filter(|_| random.below(3) == 0)
                            .map(|replica| (replica.chunk, replica.device))
                            .collect();
                        let request = match random.below(4) {
                            0 => Request::Abandon { inode, generation },
                            1 => Request::NextGroup {
                                inode,
                                generation,
                                finished: (file.group.group, length),
                                columns_max: 3,
                                replicas_max: random.below(4) as usize,
                                refused: Refused { short, ..Refused::default() },
                            },
                            2 => {
                                let fence =
                                    Request::Fence { inode, only_gone: false, for_holder: false, generation: None };
                                let Ok(Reply::Orphans(orphans)) = world.ask(fence) else { continue };
                                let generation = orphans[0].generation;
                                Request::Recovered { inode, generation, length, without: short }
                            }
                            _ => Request::Close { inode, generation, finished, modified: None, mode: None },
                        };
                        if let Ok(Reply::Group(group)) = world.ask(request) {
                            open.insert(name, FileHandle { group, ..file });
                        }
                    }
                }
                7 => drop(world.ask(delete(&name))),
                8 => drop(world.ask(Request::Truncate { path: path(&name), length: random.below(900) })),
                9 => drop(world.ask(set("/d", replicas(1 + random.below(3) as u32)))),
                10 => drop(repair(&mut world)),
                11 if gone < 2 && random.below(4) == 0 => {
                    let device = DeviceId(11 + u128::from(random.below(5)));
                    gone += 1;
                    let by_itself = random.below(2) == 0;
                    let request =
                        if by_itself { Request::DeviceGivenUp { device } } else { Request::DeviceLost { device } };
                    world.ask(request).expect("given up");
                    given_up.push(device);
                }
                11 => {
                    // As soon as what it has was looked through, or nothing names it.
                    given_up.retain(|device| world.ask(Request::DeviceBack { device: *device }).is_err());
                }
                12 => world.merge(),
                13 if random.below(3) == 0 => {
                    world.crash(seed * 1000 + step);
                    (11..16).for_each(|number| report(&mut world, number));
                }
                _ => {
                    let (now, wall) = (world.now, world.wall);
                    world.store().tick(now, wall);
                    world.run();
                }
            }
            world.store().check_lacking().unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
        }
        world.pass(Duration::from_secs(1));
        while repair(&mut world) > 0 {}
        let (groups, lacks) = lacking(&mut world);
        assert!(!lacks.recounting && groups.iter().all(|group| group.columns.iter().all(|column| column.to.is_none())));
        assert_eq!(groups, [], "seed {seed}: five devices less two are enough for three replicas");
        given_up.retain(|device| world.ask(Request::DeviceBack { device: *device }).is_err());
        world.pass(Duration::from_secs(1));
        while repair(&mut world) > 0 {}
        assert_eq!(lacking(&mut world).0, [], "seed {seed}: what is back has no part in anything, or is compared");
        world.store().check_lacking().unwrap_or_else(|error| panic!("seed {seed}, at the end: {error}"));
    }
}

/// Without the mark that the change makes, nothing is listed.
#[test]
fn planted_faults_are_seen() {
    let mut world = world(1, 3, 2);
    world.planted = Some(Planted::LackNotMarked);
    world.crash(1);
    (11..14).for_each(|number| report(&mut world, number));
    written(&mut world, "/d/f");
    assert_eq!(lacking(&mut world).0, []);
    assert!(world.store().check_lacking().is_err());
}

/// Without what a device has that was given up, bytes that only that has are gone.
#[test]
fn a_silent_replica_that_is_dropped_is_missed() {
    for planted in [None, Some(Planted::SilentReplicaDropped)] {
        let mut world = world(1, 3, 2);
        let device = written(&mut world, "/d/f").layout.columns()[0].head();
        world.planted = planted;
        world.crash(1);
        world.ask(Request::DeviceGivenUp { device }).expect("given up");
        world.pass(Duration::from_secs(1));
        let locate = Request::Locate { file: FileRef::Path(path("/d/f")), offset: 0, length: u64::MAX };
        assert_eq!(world.ask(locate).is_err(), planted.is_some());
    }
}

/// Bags have one copy: a wish for more is refused, not ignored.
#[test]
fn bags_have_one() {
    let mut world = world(1, 3, 2);
    let bag = |policy| Request::BagCreate {
        name: "b".to_string(),
        policy,
        chunk_size: 1 << 20,
        retain: false,
        compression: Compression::default(),
    };
    assert_eq!(world.refusal(bag(replicas(2))), ErrorKind::Unsupported);
    world.ask(bag(replicas(1))).expect("made");
    assert_eq!(world.ask(Request::KnownGroups { groups: vec![GroupId(9999)] }), Ok(Reply::Known(Vec::new())));
}

/// Nothing is won by giving a device up if there is no node that could have the copies instead: one that has a copy already, on another device, is
/// none.
#[test]
fn nothing_is_won_without_a_place() {
    for (nodes, any) in [(3, false), (4, true)] {
        let mut world = world(1, nodes, 3);
        world
            .ask(Request::DeviceRegister {
                device: DeviceId(77),
                class: Class::Ssd,
                capacity: 1 << 40,
                node: NodeId(11),
            })
            .expect("one more");
        let group = written(&mut world, "/d/f");
        while repair(&mut world) > 0 {}
        let device = group.layout.columns()[0].head();
        let lacks = world.ask(Request::LacksWithout { device, after: None });
        assert_eq!(lacks, Ok(Reply::LacksWithout { any, resume: None }), "{nodes} nodes");
    }
}
