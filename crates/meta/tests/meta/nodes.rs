//! Nodes join, fall silent, are refused and go; the epoch tells of it.

use crate::world::{SESSION, World, create};
use base::error::ErrorKind;
use base::id::{DeviceId, NodeId};
use base::limit::{NODE_SILENCE_MAX, SESSION_LEASE};
use base::policy::{Class, Compression, Policy};
use meta::request::{NodeInfo, NodeState};
use meta::{Reply, Request};
use std::time::Duration;

fn info(node: u128, incarnation: u64, name: &str) -> NodeInfo {
    let address = format!("host-{node}:8600");
    NodeInfo { node: NodeId(node), incarnation, name: name.to_string(), address, ..NodeInfo::default() }
}

fn join(world: &mut World, node: NodeInfo) -> Result<(), ErrorKind> {
    world.ask(Request::NodeJoin { node }).map(drop).map_err(|error| error.kind())
}

fn report(world: &mut World, node: u128, devices: &[u128]) {
    let devices = devices.iter().map(|device| DeviceId(*device)).collect();
    world.ask(Request::NodeReport { node: NodeId(node), keeps: node == 1, devices }).expect("it joined");
}

fn register(world: &mut World, device: u128, node: u128) {
    let request =
        Request::DeviceRegister { device: DeviceId(device), class: Class::Ssd, capacity: 1 << 40, node: NodeId(node) };
    world.ask(request).expect("registered");
}

fn nodes(world: &mut World) -> (u64, Vec<NodeState>) {
    match world.ask(Request::NodeList) {
        Ok(Reply::Nodes { epoch, nodes }) => (epoch, nodes),
        other => panic!("{other:?}"),
    }
}

/// What is found of a node, its devices and others that it names is what the lists of all say of them, whoever has them by then.
#[test]
fn found_as_listed() {
    let mut world = World::new(6);
    let find = |world: &mut World, node: u128, named: &[u128]| {
        let devices = named.iter().map(|device| DeviceId(*device)).collect();
        match world.ask(Request::NodeFind { node: NodeId(node), devices }) {
            Ok(Reply::NodeFound { info, mut devices }) => {
                devices.sort_by_key(|info| info.device);
                (info, devices)
            }
            other => panic!("{other:?}"),
        }
    };
    for node in [1, 9] {
        join(&mut world, info(node, 1, &node.to_string())).expect("joins");
    }
    for (device, node) in [(10, 1), (11, 1), (90, 9), (91, 9)] {
        register(&mut world, device, node);
    }
    report(&mut world, 1, &[10, 11]);
    let changes: [fn(&mut World); 4] = [
        |_| (),
        |world| register(world, 90, 1),
        |world| drop(world.ask(Request::DeviceDrain { device: DeviceId(91) }).expect("drains")),
        |world| drop(world.ask(Request::DeviceRemove { device: DeviceId(91) }).expect("removed")),
    ];
    for change in changes {
        change(&mut world);
        let Ok(Reply::Devices(all)) = world.ask(Request::DeviceList) else { panic!("no list") };
        for (node, named) in [(1, vec![]), (9, vec![10, 90, 777]), (5, vec![11])] {
            let (info, devices) = find(&mut world, node, &named);
            let (_, known) = nodes(&mut world);
            assert_eq!(
                info,
                known.iter().find(|known| known.info.node == NodeId(node)).map(|known| known.info.clone())
            );
            let meant = all.iter().filter(|info| info.node == NodeId(node) || named.contains(&info.device.0));
            assert_eq!(devices, meant.cloned().collect::<Vec<_>>(), "node {node}");
        }
        let Ok(Reply::SilentNodes { epoch, nodes: silent }) = world.ask(Request::NodesSilent) else {
            panic!("no list")
        };
        let (listed, known) = nodes(&mut world);
        let are: Vec<NodeId> = known.iter().filter(|node| node.silent).map(|node| node.info.node).collect();
        assert_eq!((epoch, silent), (listed, are));
    }
}

/// The epoch is durable and rises with what a view shows: a node that joins, starts again, gets a device, loses one, goes. A report
/// that says nothing new leaves it.
#[test]
fn epoch() {
    let mut world = World::new(5);
    let (first, none) = nodes(&mut world);
    assert_eq!((first, none.len()), (0, 0));
    let mut last = first;
    let mut rises = |world: &mut World, what: &str| {
        let (epoch, nodes) = nodes(world);
        assert!(epoch > last, "{what}: {epoch} after {last}");
        last = epoch;
        nodes
    };
    join(&mut world, info(1, 1, "one")).expect("joins");
    rises(&mut world, "a node");
    join(&mut world, info(9, 1, "nine")).expect("joins");
    register(&mut world, 90, 9);
    let seen = rises(&mut world, "a device");
    assert_eq!(seen[1].devices, [DeviceId(90)]);
    join(&mut world, info(9, 2, "nine")).expect("joins");
    rises(&mut world, "a start");
    world.ask(Request::DeviceDrain { device: DeviceId(90) }).expect("drained");
    world.ask(Request::DeviceRemove { device: DeviceId(90) }).expect("removed");
    assert_eq!(rises(&mut world, "no device")[1].devices, []);
    world.ask(Request::NodeRemove { node: NodeId(9) }).expect("removed");
    assert_eq!(rises(&mut world, "no node").len(), 1);
    join(&mut world, info(1, 1, "one")).expect("joins");
    report(&mut world, 1, &[1, 2]);
    register(&mut world, 1, 1);
    world.power_off(0);
    world.open();
    let (epoch, seen) = nodes(&mut world);
    assert_eq!((epoch, seen[0].info.clone()), (last, info(1, 1, "one")));
}

/// An older start of a node, a name that somebody has, and the removal of a node that has devices are refused; a name whose owner
/// is gone and left nothing is free.
#[test]
fn refused() {
    let mut world = World::new(6);
    join(&mut world, info(1, 4, "one")).expect("joins");
    assert_eq!(join(&mut world, info(1, 3, "one")), Err(ErrorKind::Stale));
    join(&mut world, info(2, 1, "two")).expect("joins");
    register(&mut world, 20, 2);
    assert_eq!(join(&mut world, info(3, 1, "two")), Err(ErrorKind::Exists), "silent, but it has a device");
    let remove =
        |world: &mut World, node| world.ask(Request::NodeRemove { node: NodeId(node) }).map_err(|error| error.kind());
    assert_eq!(remove(&mut world, 2), Err(ErrorKind::Invalid));
    assert_eq!(remove(&mut world, 77), Err(ErrorKind::NotFound));
    join(&mut world, info(4, 1, "four")).expect("joins");
    report(&mut world, 4, &[]);
    assert_eq!(join(&mut world, info(5, 1, "four")), Err(ErrorKind::Exists), "it is there");
    world.now = world.now.after(NODE_SILENCE_MAX + Duration::from_millis(1));
    join(&mut world, info(5, 1, "four")).expect("its owner is gone and left nothing");
    let names: Vec<_> = nodes(&mut world).1.into_iter().map(|node| (node.info.node.0, node.info.name)).collect();
    assert_eq!(names, [(1, "one".to_string()), (2, "two".to_string()), (5, "four".to_string())]);
    assert_eq!(join(&mut world, info(6, 1, "")), Err(ErrorKind::Invalid));
    assert_eq!(join(&mut world, info(6, 1, &"x".repeat(600))), Err(ErrorKind::Invalid));
}

/// A node that is drained stays so until it is removed: a device that it brings later, after a power loss too, takes nothing new.
#[test]
fn leaving() {
    let mut world = World::new(8);
    for (node, name) in [(1, "one"), (2, "two")] {
        join(&mut world, info(node, 1, name)).expect("joins");
    }
    register(&mut world, 10, 1);
    register(&mut world, 20, 2);
    assert_eq!(world.refusal(Request::NodeDrain { node: NodeId(7) }), ErrorKind::NotFound);
    world.ask(Request::NodeDrain { node: NodeId(2) }).expect("drained");
    let draining = |world: &mut World| match world.ask(Request::DeviceList) {
        Ok(Reply::Devices(devices)) => {
            devices.iter().filter(|device| device.draining).map(|device| device.device.0).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(draining(&mut world), [20]);
    register(&mut world, 21, 2);
    assert_eq!(draining(&mut world), [20, 21]);
    world.power_off(0);
    world.open();
    assert_eq!(draining(&mut world), [20, 21]);
    join(&mut world, info(2, 2, "two")).expect("joins");
    register(&mut world, 22, 2);
    assert_eq!(draining(&mut world), [20, 21, 22]);
    for device in [20, 21, 22] {
        world.ask(Request::DeviceRemove { device: DeviceId(device) }).expect("removed");
    }
    world.ask(Request::NodeRemove { node: NodeId(2) }).expect("removed");
    // It said so before it was removed: nobody would have the device.
    let late = Request::DeviceRegister { device: DeviceId(22), class: Class::Ssd, capacity: 1 << 40, node: NodeId(2) };
    assert_eq!(world.refusal(late), ErrorKind::NotFound);
    join(&mut world, info(2, 3, "two")).expect("joins");
    register(&mut world, 23, 2);
    assert_eq!(draining(&mut world), []);
}

/// A silent node gets nothing new until it is heard of again, and neither does a device that its node does not name.
#[test]
fn silence() {
    let mut world = World::new(7);
    join(&mut world, info(1, 1, "one")).expect("joins");
    join(&mut world, info(2, 1, "two")).expect("joins");
    register(&mut world, 20, 2);
    let mut number = 0;
    let mut used = |world: &mut World| {
        let mut used = std::collections::BTreeSet::new();
        for _ in 0..60 {
            number += 1;
            match world.ask(create(&format!("/f{number}"))) {
                Ok(Reply::Handle(handle)) => used.insert(handle.group.layout.columns()[0].head().0),
                other => panic!("{other:?}"),
            };
        }
        let name = format!("bag{number}");
        let bag = world.ask(Request::BagCreate {
            name,
            policy: Policy::default(),
            chunk_size: 0,
            retain: false,
            compression: Compression::None,
        });
        let Ok(Reply::Bag(bag)) = bag else { panic!("{bag:?}") };
        let members: Vec<u128> = bag.members.iter().map(|member| member.0).collect();
        (used.into_iter().collect::<Vec<_>>(), members)
    };
    report(&mut world, 1, &[1, 2]);
    assert_eq!(used(&mut world), (vec![1, 2], vec![1, 2]), "not heard of since the start");
    report(&mut world, 2, &[20]);
    assert_eq!(used(&mut world), (vec![1, 2, 20], vec![1, 2, 20]));
    world.now = world.now.after(NODE_SILENCE_MAX + Duration::from_millis(1));
    assert_eq!(used(&mut world), (vec![1, 2], vec![1, 2]), "silent; the keeper never is");
    assert_eq!(nodes(&mut world).1.iter().map(|node| node.silent).collect::<Vec<_>>(), [false, true]);
    report(&mut world, 2, &[20]);
    assert_eq!(used(&mut world), (vec![1, 2, 20], vec![1, 2, 20]));
    report(&mut world, 1, &[1]);
    assert_eq!(used(&mut world), (vec![1, 20], vec![1, 20]), "a device is missing");
}

/// Of sessions that are open, or were never heard of, or have ended: which are over. An end is told when it is durable.
#[test]
fn sessions_over() {
    let mut world = World::new(8);
    let over = |world: &mut World, marks: Vec<u64>| match world.ask(Request::SessionsOver { marks }) {
        Ok(Reply::SessionsOver(over)) => over,
        other => panic!("{other:?}"),
    };
    let (open, unknown) = (SESSION.mark(), SESSION.mark() + 1);
    assert_eq!(over(&mut world, vec![open, unknown]), [unknown]);
    world.ask(Request::CloseSession).expect("it is open");
    assert_eq!(over(&mut world, vec![open]), [open]);
}

/// What is said of a session's time is never more than it has.
#[test]
fn leases() {
    let mut world = World::new(8);
    let leases = |world: &mut World, only| match world.ask(Request::SessionLeases { only, limit: 10 }) {
        Ok(Reply::Leases(leases)) => leases,
        other => panic!("{other:?}"),
    };
    world.now = world.now.after(Duration::from_secs(7));
    assert_eq!(leases(&mut world, None), [(SESSION, SESSION_LEASE - Duration::from_secs(7))]);
    assert_eq!(leases(&mut world, Some(base::id::SessionId(999))), []);
    world.now = world.now.after(SESSION_LEASE);
    assert!(leases(&mut world, Some(SESSION)).iter().all(|(_, left)| left.is_zero()));
}
