//! Answers that come in pages: who goes on where each page ended finds everything, however little a page holds.

use crate::world::{World, create, delete, path};
use base::id::{BagId, DeviceId, GroupId, InodeId};
use base::limit::SESSION_LEASE;
use base::policy::{Compression, Policy};
use meta::request::FileHandle;
use meta::{Path, Reply, Request};

const ALL: usize = usize::MAX;

fn world_of(page: usize) -> World {
    let mut world = World::new(1);
    world.page_max = Some(page);
    world.crash(1);
    world
}

/// The files to recover, asked for page by page.
fn to_recover(world: &mut World) -> Vec<InodeId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        match world.ask(Request::FenceList { after, limit: ALL }) {
            Ok(Reply::FenceList { orphans, resume }) => {
                found.extend(orphans.iter().map(|orphan| orphan.inode));
                after = resume;
            }
            other => panic!("no list: {other:?}"),
        }
        if after.is_none() {
            return found;
        }
    }
}

/// The ranges that are garbage, in the same way.
fn to_release(world: &mut World) -> Vec<(GroupId, u64, u64)> {
    let (mut found, mut ranges_after) = (Vec::new(), None);
    loop {
        match world.ask(Request::Garbage { ranges_after, bags_after: None, limit: ALL }) {
            Ok(Reply::Garbage(garbage)) => {
                found.extend(garbage.ranges.iter().map(|(group, offset, length)| (group.group, *offset, *length)));
                ranges_after = garbage.ranges_resume;
            }
            other => panic!("no list: {other:?}"),
        }
        if ranges_after.is_none() {
            return found;
        }
    }
}

/// The deleted bags, in the same way.
fn to_drop(world: &mut World) -> Vec<BagId> {
    let (mut found, mut bags_after) = (Vec::new(), None);
    loop {
        match world.ask(Request::Garbage { ranges_after: None, bags_after, limit: ALL }) {
            Ok(Reply::Garbage(garbage)) => {
                found.extend(garbage.bags.iter().map(|bag| bag.bag));
                bags_after = garbage.bags_resume;
            }
            other => panic!("no list: {other:?}"),
        }
        if bags_after.is_none() {
            return found;
        }
    }
}

/// Files whose writer is gone, and deleted bags, that wait for a device stay on their lists: those behind them are found all the same.
#[test]
fn what_waits_holds_up_nothing() {
    for page in [1, 2, 3, 1000] {
        let mut world = world_of(page);
        let files: Vec<InodeId> = (0..3).map(|number| created(&mut world, &format!("/f{number}"))).collect();
        let bags: Vec<BagId> = (0..3).map(|number| made_bag(&mut world, &format!("b{number}"))).collect();
        for number in 0..3 {
            world.ask(Request::BagDelete { name: format!("b{number}") }).expect("deleted");
        }
        world.pass(SESSION_LEASE * 2);
        assert_eq!(to_recover(&mut world), files, "pages of {page}");
        assert_eq!(to_drop(&mut world), bags, "pages of {page}");
    }
}

/// Ranges that wait for a device stay on the list until they are collected, each by itself, whatever is collected around them and whenever the
/// store is opened again; only with their group they go.
#[test]
fn ranges_wait() {
    for page in [1, 2, 3, 1000] {
        let mut world = world_of(page);
        let mut expected = Vec::new();
        for name in ["/f", "/g", "/h"] {
            let file = made(&mut world, name);
            let (inode, generation, group) = (file.inode, file.generation, file.group.group);
            let finished = Some((group, 100));
            world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
            for length in [70, 30, 10] {
                world.ask(Request::Truncate { path: path(name), length }).expect("cut");
            }
            expected.extend([(group, 10, 20), (group, 30, 40), (group, 70, 30)]);
        }
        expected.sort_unstable();
        assert_eq!(to_release(&mut world), expected, "pages of {page}");
        let (group, offset, _) = expected.remove(4);
        let collected = Request::Collected { groups: Vec::new(), ranges: vec![(group, offset)], bags: Vec::new() };
        world.ask(collected).expect("collected");
        world.crash(2);
        assert_eq!(to_release(&mut world), expected, "pages of {page}");
        world.ask(delete("/f")).expect("deleted");
        let gone = expected[0].0;
        world.ask(Request::Collected { groups: vec![gone], ranges: Vec::new(), bags: Vec::new() }).expect("collected");
        expected.retain(|(group, ..)| *group != gone);
        assert_eq!((expected.len(), to_release(&mut world)), (5, expected), "pages of {page}");
    }
}

fn made(world: &mut World, name: &str) -> FileHandle {
    match world.ask(create(name)) {
        Ok(Reply::Handle(file)) => file,
        other => panic!("no file: {other:?}"),
    }
}

fn created(world: &mut World, name: &str) -> InodeId {
    made(world, name).inode
}

fn made_bag(world: &mut World, name: &str) -> BagId {
    let (name, policy, compression) = (name.to_string(), Policy::default(), Compression::default());
    match world.ask(Request::BagCreate { name, policy, chunk_size: 0, retain: false, compression }) {
        Ok(Reply::Bag(bag)) => bag.bag,
        other => panic!("no bag: {other:?}"),
    }
}

/// Names, bags and groups come whole, and a page is never longer than it may be.
#[test]
fn pages_are_gone_on_after() {
    let mut world = world_of(2);
    let names: Vec<String> = (0..5).map(|number| format!("n{number}")).collect();
    for name in &names {
        made_bag(&mut world, name);
    }
    for name in &names {
        created(&mut world, &format!("/{name}"));
    }
    let (mut listed, mut bags) = (Vec::new(), Vec::new());
    loop {
        let after = listed.last().cloned();
        let path = Path::parse("/").expect("a path");
        let Ok(Reply::Entries { entries, more, .. }) =
            world.ask(Request::List { path, after, limit: ALL, located: false, also: Vec::new() })
        else {
            panic!()
        };
        assert!(entries.len() <= 2);
        listed.extend(entries.into_iter().map(|entry| entry.name));
        if !more {
            break;
        }
    }
    loop {
        let after = bags.last().cloned();
        let Ok(Reply::Bags { bags: page, more }) = world.ask(Request::BagList { after, limit: ALL }) else { panic!() };
        assert!(page.len() <= 2);
        bags.extend(page.into_iter().map(|bag| bag.name));
        if !more {
            break;
        }
    }
    assert_eq!((&listed, &bags), (&names, &names));
    let (mut groups, mut after) = (0, None);
    for device in [DeviceId(1), DeviceId(2)] {
        loop {
            let asked = world.ask(Request::GroupsOn { device, after, limit: ALL });
            let Ok(Reply::GroupsOn { groups: page, resume, .. }) = asked else { panic!("{asked:?}") };
            assert!(page.len() <= 2);
            groups += page.len();
            after = resume;
            if after.is_none() {
                break;
            }
        }
    }
    assert!(groups > 0);
}
