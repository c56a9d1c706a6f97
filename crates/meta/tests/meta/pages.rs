//! Answers that come in pages: who goes on where each page ended finds everything, however little a page holds.

use crate::world::{World, create};
use base::id::{BagId, DeviceId, InodeId};
use base::limit::SESSION_LEASE;
use base::policy::{Compression, Policy};
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

fn created(world: &mut World, name: &str) -> InodeId {
    match world.ask(create(name)) {
        Ok(Reply::Handle(file)) => file.inode,
        other => panic!("no file: {other:?}"),
    }
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
        let Ok(Reply::Entries { entries, more }) = world.ask(Request::List { path, after, limit: ALL }) else {
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
