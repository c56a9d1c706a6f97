//! Cutting and joining files: bytes that no file names become garbage, all others stay where they are.

use crate::world::{World, create, delete, path, stat};
use base::error::ErrorKind;
use base::id::GroupId;
use base::limit::CONCAT_FILES_MAX;
use meta::request::{FileRef, Garbage, Located, Refused, Totals};
use meta::{Reply, Request};
use std::time::Duration;

/// Makes a closed file of groups with these lengths; the groups.
pub fn file(world: &mut World, name: &str, lengths: &[u64]) -> Vec<GroupId> {
    world.floor = world.next_call;
    let Ok(Reply::Handle(handle)) = world.ask(create(name)) else { panic!("not created") };
    let (inode, generation) = (handle.inode, handle.generation);
    let mut groups = vec![handle.group.group];
    for length in lengths {
        let finished = (groups[groups.len() - 1], *length);
        match world.ask(Request::NextGroup {
            replicas_max: 1,
            inode,
            generation,
            finished,
            columns_max: 16,
            refused: Refused::default(),
        }) {
            Ok(Reply::Group(group)) => groups.push(group.group),
            other => panic!("{other:?}"),
        }
        if groups.len() % 500 == 0 {
            world.merge();
        }
    }
    let last = groups.pop().expect("one was given");
    let close = Request::Close { inode, generation, finished: Some((last, 0)), modified: None, mode: None };
    world.ask(close).expect("closed");
    world.ask(Request::Collected { groups: vec![last], ranges: vec![], bags: vec![] }).expect("collected");
    groups
}

/// (offset in the file, group, offset in the group, length) of each extent.
fn extents(world: &mut World, name: &str) -> Vec<(u64, GroupId, u64, u64)> {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(Located { extents, .. })) => {
            let piece =
                |extent: &meta::request::Extent| (extent.file_offset, extent.group, extent.group_offset, extent.length);
            extents.iter().map(piece).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn garbage(world: &mut World) -> (Vec<GroupId>, Vec<(GroupId, u64, u64)>) {
    match world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 100 }) {
        Ok(Reply::Garbage(Garbage { groups, ranges, .. })) => (
            groups.iter().map(|group| group.group).collect(),
            ranges.iter().map(|(group, offset, length)| (group.group, *offset, *length)).collect(),
        ),
        other => panic!("{other:?}"),
    }
}

pub fn truncate(name: &str, length: u64) -> Request {
    Request::Truncate { path: path(name), length }
}

pub fn concat(target: &str, sources: &[&str]) -> Request {
    Request::Concat { target: path(target), sources: sources.iter().map(|name| path(name)).collect() }
}

/// A file is cut at any byte: whole groups behind it go, of the one in the middle the end goes; what is left can be cut
/// again, and at last the group goes with all its ranges.
#[test]
fn truncated() {
    let mut world = World::new(1);
    let groups = file(&mut world, "/f", &[100, 100, 50]);
    let Ok(Reply::Attributes(before)) = world.ask(stat("/f")) else { panic!("no file") };
    assert_eq!(world.refusal(truncate("/f", 251)), ErrorKind::Invalid);
    world.ask(truncate("/f", 250)).expect("nothing to cut");
    assert_eq!(garbage(&mut world), (vec![], vec![]));
    let Ok(Reply::Attributes(after)) = world.ask(truncate("/f", 130)) else { panic!("not cut") };
    assert!(after.length == 130 && after.generation > before.generation);
    world.merge();
    assert_eq!(extents(&mut world, "/f"), [(0, groups[0], 0, 100), (100, groups[1], 0, 30)]);
    assert_eq!(garbage(&mut world), (vec![groups[2]], vec![(groups[1], 30, 70)]));
    world.ask(truncate("/f", 101)).expect("cut again");
    assert_eq!(garbage(&mut world).1, [(groups[1], 1, 29), (groups[1], 30, 70)]);
    world.crash(1);
    assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(Totals { files: 1, directories: 1, bytes: 101 })));
    world.ask(truncate("/f", 0)).expect("cut to nothing");
    assert_eq!(extents(&mut world, "/f"), []);
    let (all, ranges) = garbage(&mut world);
    assert_eq!((all.len(), ranges.len()), (3, 2));
    world.ask(Request::Collected { groups: all, ranges: vec![], bags: vec![] }).expect("collected");
    assert_eq!(garbage(&mut world), (vec![], vec![]));
}

/// A file that is written, by a living writer or a dead one, is not cut or joined; directories never are.
#[test]
fn busy() {
    let mut world = World::new(1);
    file(&mut world, "/f", &[10]);
    world.ask(create("/open")).expect("create");
    world.ask(crate::world::mkdir("/d")).expect("mkdir");
    for (name, kind) in [("/open", ErrorKind::Busy), ("/d", ErrorKind::Invalid), ("/no", ErrorKind::NotFound)] {
        assert_eq!(world.refusal(truncate(name, 0)), kind, "{name}");
        assert_eq!(world.refusal(concat(name, &["/f"])), kind, "{name}");
        assert_eq!(world.refusal(concat("/f", &[name])), kind, "{name}");
    }
    assert_eq!(extents(&mut world, "/f").len(), 1);
}

/// Joined files become one, in the order named, and nothing becomes garbage: each extent keeps its one reference.
#[test]
fn joined() {
    let mut world = World::new(1);
    let target = file(&mut world, "/t", &[100]);
    let first = file(&mut world, "/a", &[10, 20]);
    file(&mut world, "/empty", &[]);
    let second = file(&mut world, "/b", &[5]);
    for bad in [vec![], vec!["/t"], vec!["/a", "/a"], vec!["/a"; CONCAT_FILES_MAX + 1]] {
        assert_eq!(world.refusal(concat("/t", &bad)), ErrorKind::Invalid, "{}", bad.len());
    }
    world.ask(truncate("/a", 25)).expect("cut");
    let cut = (vec![], vec![(first[1], 15, 5)]);
    assert_eq!(garbage(&mut world), cut);
    assert!(
        matches!(world.ask(concat("/t", &["/b", "/empty", "/a"])), Ok(Reply::Attributes(whole)) if whole.length == 130)
    );
    world.crash(1);
    let whole = [(0, target[0], 0, 100), (100, second[0], 0, 5), (105, first[0], 0, 10), (115, first[1], 0, 15)];
    assert_eq!(extents(&mut world, "/t"), whole);
    for gone in ["/a", "/b", "/empty"] {
        assert_eq!(world.refusal(stat(gone)), ErrorKind::NotFound);
    }
    assert_eq!(garbage(&mut world), cut);
    assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(Totals { files: 1, directories: 1, bytes: 130 })));
    world.ask(delete("/t")).expect("deleted");
    world.pass(Duration::from_secs(1));
    let mut all = [target, first, second].concat();
    all.sort();
    assert_eq!(garbage(&mut world).0, all);
}

/// What needs more log than one change may take is refused whole.
#[test]
fn too_much_at_once() {
    let mut world = World::new(1);
    for number in 0..4 {
        file(&mut world, &format!("/f{number}"), &vec![10; 2300]);
        world.merge();
    }
    assert_eq!(world.refusal(concat("/f0", &["/f1", "/f2", "/f3"])), ErrorKind::Invalid);
    world.ask(concat("/f0", &["/f1"])).expect("a part of it");
    world.merge();
    assert_eq!(world.refusal(truncate("/f0", 5)), ErrorKind::Invalid);
    world.ask(truncate("/f0", 35_000)).expect("in steps");
    assert_eq!(world.ask(Request::Usage), Ok(Reply::Usage(Totals { files: 3, directories: 1, bytes: 81_000 })));
}
