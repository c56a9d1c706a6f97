//! Listings that say where the bytes of files are.

use crate::extents::{concat, file, truncate};
use crate::world::{World, append, create, delete, mkdir, path};
use base::limit::{LISTED_EXTENTS_MAX, LOCATED_PAGE_MAX};
use base::policy::Policy;
use meta::request::{Entry, Extent, FileRef, Located, NewGroup, PutFile};
use meta::{Reply, Request};

fn list(world: &mut World, after: Option<&str>) -> (Vec<Entry>, Vec<NewGroup>, bool) {
    let list = Request::List {
        path: path("/"),
        after: after.map(str::to_string),
        limit: 10_000,
        located: true,
        also: Vec::new(),
    };
    match world.ask(list) {
        Ok(Reply::Entries { entries, groups, more, .. }) => (entries, groups, more),
        other => panic!("{other:?}"),
    }
}

fn locate(world: &mut World, name: &str) -> (Vec<Extent>, Vec<NewGroup>) {
    match world.ask(Request::Locate { file: FileRef::Path(path(name)), offset: 0, length: u64::MAX }) {
        Ok(Reply::Located(Located { extents, groups, .. })) => (extents, groups),
        other => panic!("{other:?}"),
    }
}

/// The extents in a listing are those that are told of each file by itself, with all their groups; files that are open, that have many, and
/// directories come without. So it is in the log and in the tree, and when files were cut and joined.
#[test]
fn as_each_is_located() {
    let mut world = World::new(1);
    file(&mut world, "/empty", &[]);
    file(&mut world, "/few", &[10; LISTED_EXTENTS_MAX]);
    file(&mut world, "/many", &[10; LISTED_EXTENTS_MAX + 1]);
    file(&mut world, "/cut", &[10; LISTED_EXTENTS_MAX + 2]);
    file(&mut world, "/one", &[7]);
    file(&mut world, "/joined", &[5, 6]);
    file(&mut world, "/tail", &[3]);
    file(&mut world, "/appended", &[4]);
    world.ask(append("/appended")).expect("opened");
    world.ask(create("/open")).expect("created");
    world.ask(mkdir("/directory")).expect("made");
    world.ask(truncate("/cut", 31)).expect("cut");
    world.ask(concat("/joined", &["/tail"])).expect("joined");
    for merged in [false, true] {
        if merged {
            world.merge();
        }
        let (entries, groups, more) = list(&mut world, None);
        assert!(!more && groups.is_sorted_by(|a, b| a.group < b.group));
        let told: Vec<(&str, usize)> = entries.iter().map(|entry| (entry.name.as_str(), entry.extents.len())).collect();
        let expected = [
            ("appended", 0),
            ("cut", 4),
            ("directory", 0),
            ("empty", 0),
            ("few", LISTED_EXTENTS_MAX),
            ("joined", 3),
            ("many", 0),
            ("one", 1),
            ("open", 0),
        ];
        assert_eq!(told, expected, "merged: {merged}");
        for entry in entries.iter().filter(|entry| !entry.extents.is_empty()) {
            let (extents, its_groups) = locate(&mut world, &format!("/{}", entry.name));
            assert_eq!(entry.extents, extents, "{}", entry.name);
            assert!(its_groups.iter().all(|group| groups.contains(group)), "{}", entry.name);
            assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), entry.attributes.length);
        }
    }
    let plain = Request::List { path: path("/"), after: None, limit: 100, located: false, also: Vec::new() };
    let Ok(Reply::Entries { entries, groups, .. }) = world.ask(plain) else { panic!("no list") };
    assert!(groups.is_empty() && entries.iter().all(|entry| entry.extents.is_empty()), "nobody asked for them");
}

/// A page ends with so many files whose bytes were looked for, and all of them come in the end; those that share a group name it once.
#[test]
fn a_page_has_an_end() {
    let mut world = World::new(2);
    let group = match world.ask(Request::PackGroup {
        policy: Policy::default(),
        beside: None,
        replicas_max: 0,
        refused: Vec::new(),
    }) {
        Ok(Reply::Group(group)) => group.group,
        other => panic!("{other:?}"),
    };
    let count = LOCATED_PAGE_MAX as u64 + 100;
    let put = |number: u64| PutFile {
        path: path(&format!("/{number:04}")),
        group,
        offset: number * 10,
        length: 10,
        crc: 0,
        modified: None,
        accessed: None,
        mode: 0o644,
        overwrite: false,
        parents: false,
        directory: false,
    };
    for first in (0..count).step_by(100) {
        let files = (first..count.min(first + 100)).map(put).collect();
        world.ask(Request::PutFiles { files }).expect("put");
    }
    let (entries, groups, more) = list(&mut world, None);
    assert_eq!((entries.len(), groups.len(), more), (LOCATED_PAGE_MAX, 1, true));
    let last = entries[LOCATED_PAGE_MAX - 1].name.clone();
    let (rest, _, more) = list(&mut world, Some(&last));
    assert_eq!((rest.len(), more), (100, false));
    for (number, entry) in (0..).zip(entries.iter().chain(&rest)) {
        let Extent { group_offset, length, open, .. } = entry.extents[0];
        assert_eq!((group_offset, length, open), (number * 10, 10, false), "{}", entry.name);
    }
    world.ask(delete("/0003")).expect("deleted");
    assert_eq!(list(&mut world, None).0.len(), LOCATED_PAGE_MAX);
    // Another directory that would end the page before it is whole is not among those of a question.
    world.ask(mkdir("/empty")).expect("made");
    assert_eq!(together(&mut world, "/empty", &["/"], 10_000), (0, false, Vec::new()));
    assert_eq!(together(&mut world, "/empty", &["/empty"], 10_000), (0, false, vec![0]));
}

/// How many names the first directory has, whether there are more, and how many each of the others has that came: which are as each is told of
/// by itself.
fn together(world: &mut World, first: &str, also: &[&str], limit: usize) -> (usize, bool, Vec<usize>) {
    let mut ask = |first: &str, also: &[&str], limit| {
        let also = also.iter().map(|name| path(name)).collect();
        match world.ask(Request::List { path: path(first), after: None, limit, located: true, also }) {
            Ok(Reply::Entries { entries, groups, more, others }) => (entries, groups, more, others),
            other => panic!("{other:?}"),
        }
    };
    let (entries, groups, more, others) = ask(first, also, limit);
    for (name, entries) in also.iter().zip(&others) {
        let (alone, its_groups, ..) = ask(name, &[], 10_000);
        assert_eq!(*entries, alone, "{name}");
        assert!(its_groups.iter().all(|group| groups.contains(group)), "{name}");
    }
    (entries.len(), more, others.iter().map(Vec::len).collect())
}

/// Others come whole, in the order in which they were asked for, up to the first one that has no room, is none or is not there.
#[test]
fn others_come_whole() {
    let mut world = World::new(3);
    for (directory, files) in [("/a", 3), ("/b", 0), ("/c", 2), ("/c/d", 1), ("/large", 9)] {
        world.ask(mkdir(directory)).expect("made");
        for number in 0..files {
            file(&mut world, &format!("{directory}/f{number}"), &[10]);
        }
    }
    file(&mut world, "/file", &[1]);
    for merged in [false, true] {
        if merged {
            world.merge();
        }
        let mut ask = |also: &[&str], limit| together(&mut world, "/a", also, limit);
        assert_eq!(ask(&["/b", "/c", "/c/d"], 100), (3, false, vec![0, 3, 1]));
        // To the last name that there is room for; each directory takes that of one more.
        assert_eq!(ask(&["/b", "/c", "/c/d"], 8), (3, false, vec![0, 3]));
        assert_eq!(ask(&["/b", "/c", "/b"], 7), (3, false, vec![0]));
        assert_eq!(ask(&["/b", "/b", "/b"], 5), (3, false, vec![0, 0]));
        assert_eq!(ask(&["/b"], 3), (3, false, Vec::new()));
        assert_eq!(ask(&["/b"], 2), (2, true, Vec::new()));
        for none in ["/none", "/file", "/none/below", "/file/below"] {
            assert_eq!(ask(&["/c", none, "/b"], 100), (3, false, vec![3]), "{none}");
        }
        assert_eq!(ask(&["/a", "/a"], 100), (3, false, vec![3, 3]));
    }
}

/// However many are asked for: on the way to them there are as many directories as to the deepest one at the most.
#[test]
fn others_are_not_far() {
    let mut world = World::new(4);
    let mut deep = String::new();
    for _ in 0..100 {
        deep += "/d";
        world.ask(mkdir(&deep)).expect("made");
    }
    assert_eq!(together(&mut world, "/", &[&deep, &deep, &deep], 100), (1, false, vec![0, 0]));
}
