//! What somebody may rely on who looked before: directories and their version, numbered calls, lists of work.

use crate::world::{SESSION, World, create, delete, mkdir, path, stat};
use base::attributes::NewAttributes;
use base::error::ErrorKind;
use base::id::InodeId;
use base::limit::{HOLDER_MAX, HOLDERS_TOLD_MAX};
use meta::request::{FileRef, Garbage, NewInode, Seen};
use meta::{Caller, Reply, Request};
use std::time::Duration;

/// How many attributes a lookup answers, the version, and whether it left out what is above.
fn look(world: &mut World, name: &str, known: u64) -> (usize, u64, bool) {
    match world.ask(Request::Lookup { path: path(name), known, wanted: Default::default() }) {
        Ok(Reply::Found { found, version, without_above }) => (found.len(), version, without_above),
        other => panic!("{name}: {other:?}"),
    }
}

/// A change that relies on the directories as they were in this version.
fn relying_on(directories: u64, change: Request) -> Request {
    Request::Provided { directories, seen: vec![], empty: vec![], below: None, change: Box::new(change) }
}

fn rename(from: &str, to: &str) -> Request {
    Request::Rename { from: path(from), to: path(to), replace: true, removes: false }
}

fn chmod(name: &str, mode: u32) -> Request {
    Request::SetAttributes { path: path(name), new: NewAttributes { mode: Some(mode), ..NewAttributes::default() } }
}

/// Directories have a new version when one is renamed, goes or has other rights; not when files or new names come and go, nor by
/// what was refused. A change that relies on an old version is refused and does nothing; on the present one it is made.
#[test]
fn versions_of_directories() {
    let mut world = World::new(1);
    for request in [mkdir("/a/b"), mkdir("/a/c"), mkdir("/t"), create("/a/f"), create("/a/g")] {
        world.ask(request).expect("made");
    }
    let (_, mut version, _) = look(&mut world, "/a/f", 0);
    for same in [
        create("/a/h"),
        mkdir("/a/n"),
        rename("/a/h", "/a/g"),
        delete("/a/g"),
        chmod("/a/f", 0o600),
        chmod("/a", 0o755),
        Request::SetAttributes {
            path: path("/a"),
            new: NewAttributes { modified_ms: Some(world.wall.0), ..Default::default() },
        },
    ] {
        world.ask(same.clone()).expect("done");
        assert_eq!(look(&mut world, "/a/f", version), (1, version, true), "{same:?}");
        assert_eq!(look(&mut world, "/a/none", version), (0, version, true), "{same:?}");
    }
    assert_eq!(world.refusal(rename("/a/f", "/a/b")), ErrorKind::Exists);
    assert_eq!(look(&mut world, "/a/f", version).1, version);
    for other in [
        chmod("/a", 0o700),
        Request::SetAttributes { path: path("/a"), new: NewAttributes { note: Some(vec![1]), ..Default::default() } },
        rename("/a/b", "/a/d"),
        delete("/t"),
        rename("/a/d", "/a/c"),
    ] {
        world.ask(other.clone()).expect("done");
        let made = relying_on(version, create("/a/new"));
        assert_eq!(world.refusal(made), ErrorKind::Stale, "{other:?}");
        assert_eq!(world.refusal(stat("/a/new")), ErrorKind::NotFound);
        let (found, now, without_above) = look(&mut world, "/a/f", version);
        assert!(found == 3 && now != version && !without_above, "{other:?}");
        version = now;
    }
    let made = relying_on(version, create("/a/new"));
    assert!(matches!(world.ask(made), Ok(Reply::Handle(_))));
    world.ask(stat("/a/new")).expect("made");
    world.crash(7);
    assert!(look(&mut world, "/a/new", version).1 != version, "a version does not outlive the store");
    let none = relying_on(0, mkdir("/z"));
    assert_eq!(world.refusal(none), ErrorKind::Stale);
}

/// The answer to a call with a number is remembered, whatever it depended on; one without a number is made each time it is asked.
#[test]
fn calls_without_a_number() {
    let mut world = World::new(2);
    let version = look(&mut world, "/a", 0).1;
    let exclusive = |name: &str| Request::Mkdir { path: path(name), parents: false, new: Default::default() };
    let provided = relying_on(version, exclusive("/a"));
    for (call, request, again) in
        [(77, exclusive("/b"), true), (78, provided, true), (0, exclusive("/c"), false), (0, exclusive("/d"), false)]
    {
        let caller = Caller { session: SESSION, call, floor: 0 };
        let first = world.ask_as(caller, request.clone()).expect("answered");
        assert!(first.is_ok(), "{first:?}");
        let second = world.ask_as(caller, request.clone()).expect("answered");
        assert_eq!(second.is_ok(), again, "{request:?}: {second:?}");
    }
}

fn garbage(world: &mut World) -> Garbage {
    match world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 100 }) {
        Ok(Reply::Garbage(garbage)) => garbage,
        other => panic!("{other:?}"),
    }
}

/// Work for the node is told when it is made and not otherwise: a file that is closed without a byte leaves none, a rename over
/// nothing makes none. Garbage is listed whole however it came and went before, with older groups among it.
#[test]
fn work_is_told() {
    let mut world = World::new(3);
    assert!(world.store().take_made_work(), "what an earlier start left is not known");
    let mut groups = Vec::new();
    for number in 0..5 {
        let Ok(Reply::Handle(file)) = world.ask(create(&format!("/f{number}"))) else { panic!("no file") };
        groups.push(file.group.group);
        let finished = (number > 0).then_some((file.group.group, 100));
        let (inode, generation) = (file.inode, file.generation);
        world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
    }
    world.ask(rename("/f0", "/g0")).expect("renamed");
    world.ask(delete("/g0")).expect("deleted");
    assert!(!world.store().take_made_work());
    assert_eq!(garbage(&mut world), Garbage::default());
    // The last one first, so that the next ones have lower numbers.
    for number in [4, 1, 2] {
        world.ask(delete(&format!("/f{number}"))).expect("deleted");
        assert!(world.store().take_made_work() && !world.store().take_made_work());
        let listed: Vec<_> = garbage(&mut world).groups.iter().map(|group| group.group).collect();
        assert!(listed.contains(&groups[number]), "{listed:?}");
        if number != 4 {
            assert_eq!(listed.first(), Some(&groups[number]));
            world
                .ask(Request::Collected { groups: vec![groups[number]], ranges: vec![], bags: vec![] })
                .expect("noted");
        }
    }
    let listed: Vec<_> = garbage(&mut world).groups.iter().map(|group| group.group).collect();
    assert_eq!(listed, [groups[4]]);
}

/// What a path stands for and the version of its rights, as the store says.
fn seen(world: &mut World, name: &str) -> Seen {
    match world.ask(stat(name)) {
        Ok(Reply::Attributes(found)) => Seen { inode: Some(InodeId(found.inode)), version: Some(found.version) },
        other => panic!("{name}: {other:?}"),
    }
}

/// A change that relies on what was found at its paths is refused, and does nothing, if another thing has a path by now, or its rights, its
/// note or its extended attributes changed; not for what nobody judges by, as times and bytes. A path with nothing is relied on, too.
#[test]
fn changes_of_what_was_seen() {
    let mut world = World::new(4);
    for request in [mkdir("/d"), create("/d/a"), create("/d/b"), create("/d/c")] {
        world.ask(request).expect("made");
    }
    let provided = |seen: Vec<Seen>, change: Request| Request::Provided {
        directories: 0,
        seen,
        empty: vec![],
        below: None,
        change: Box::new(change),
    };
    let nothing = Seen { inode: None, version: None };
    let set = |new: NewAttributes| Request::SetAttributes { path: path("/d/a"), new };
    let before = seen(&mut world, "/d/a");
    world.ask(set(NewAttributes { modified_ms: Some(world.wall.0), ..Default::default() })).expect("set");
    assert_eq!(seen(&mut world, "/d/a"), before);
    world.ask(provided(vec![before], chmod("/d/a", 0o600))).expect("it is as it was");
    for change in [
        chmod("/d/a", 0o640),
        set(NewAttributes { owner: Some("ann".to_string()), ..Default::default() }),
        set(NewAttributes { note: Some(vec![7]), ..Default::default() }),
        Request::SetXattr { path: path("/d/a"), name: "user.x".to_string(), value: Some(vec![1]) },
        Request::SetXattr { path: path("/d/a"), name: "user.x".to_string(), value: Some(vec![2]) },
        rename("/d/b", "/d/a"),
    ] {
        let before = seen(&mut world, "/d/a");
        world.ask(change.clone()).expect("done");
        for relying in [chmod("/d/a", 0o777), delete("/d/a")] {
            assert_eq!(world.refusal(provided(vec![before], relying)), ErrorKind::Stale, "{change:?}");
        }
        let whatever = Seen { version: None, ..before };
        let same = !matches!(change, Request::Rename { .. });
        assert_eq!(world.ask(provided(vec![whatever], chmod("/d/a", 0o644))).is_ok(), same, "{change:?}");
    }
    let a = seen(&mut world, "/d/a");
    assert_eq!(world.refusal(provided(vec![a, nothing], rename("/d/a", "/d/c"))), ErrorKind::Stale);
    assert_eq!(world.refusal(provided(vec![nothing], create("/d/c"))), ErrorKind::Stale);
    assert_eq!(world.refusal(provided(vec![a], rename("/d/a", "/d/e"))), ErrorKind::Invalid);
    assert_eq!(world.refusal(provided(vec![nothing], create("/none/f"))), ErrorKind::NotFound);
    world.ask(provided(vec![a, nothing], rename("/d/a", "/d/e"))).expect("nothing was in the way");
    assert_eq!(world.refusal(provided(vec![a], delete("/d/a"))), ErrorKind::Stale);
    world.ask(provided(vec![a], delete("/d/e"))).expect("it is the same under another name");
    assert_eq!(world.refusal(stat("/d/e")), ErrorKind::NotFound);
}

/// Every change that may rely on what was found at its paths does: it is made while that is so, and is refused, and does nothing, once the
/// rights of any of its files changed.
#[test]
fn each_change_may_rely() {
    let changes: Vec<Request> = vec![
        Request::Create {
            replicas_max: 1,
            path: path("/d/a"),
            overwrite: true,
            parents: false,
            new: NewInode::default(),
        },
        Request::AppendOpen {
            replicas_max: 1,
            file: FileRef::Path(path("/d/a")),
            holder: String::new(),
            began: None,
            at: None,
        },
        delete("/d/a"),
        chmod("/d/a", 0o777),
        Request::SetXattr { path: path("/d/a"), name: "user.x".to_string(), value: Some(vec![1]) },
        Request::Truncate { path: path("/d/a"), length: 0 },
        rename("/d/a", "/d/b"),
        Request::Concat { target: path("/d/a"), sources: vec![path("/d/b")] },
    ];
    for change in changes {
        for stale in std::iter::once(None).chain((0..change.paths().len()).map(Some)) {
            let mut world = World::new(7);
            let names = ["/d/a", "/d/b"];
            for name in names {
                world.ask(mkdir("/d")).expect("made");
                closed(&mut world, name);
            }
            let found: Vec<Seen> = names[..change.paths().len()].iter().map(|name| seen(&mut world, name)).collect();
            if let Some(stale) = stale {
                world.ask(chmod(names[stale], 0o640)).expect("changed");
            }
            let before = names.map(|name| world.ask(stat(name)));
            let relying = Request::Provided {
                directories: 0,
                seen: found,
                empty: vec![],
                below: None,
                change: Box::new(change.clone()),
            };
            match stale {
                None => drop(world.ask(relying).unwrap_or_else(|error| panic!("{change:?}: {error}"))),
                Some(_) => {
                    assert_eq!(world.refusal(relying), ErrorKind::Stale, "{change:?}");
                    assert_eq!(names.map(|name| world.ask(stat(name))), before, "{change:?}");
                }
            }
        }
    }
}

/// Makes a file of some bytes that nobody writes any more.
fn closed(world: &mut World, name: &str) {
    let Ok(Reply::Handle(file)) = world.ask(create(name)) else { panic!("{name} was not made") };
    let (inode, generation, finished) = (file.inode, file.generation, Some((file.group.group, 5)));
    world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
}

/// A holder is silent since it was told of last, by whoever; one that nobody told of, since the store was opened.
#[test]
fn holders_are_heard_of() {
    let mut world = World::new(5);
    let silent = |world: &mut World, seen: &[(&str, u64)]| {
        let seen = seen.iter().map(|(name, ago)| (name.to_string(), Duration::from_secs(*ago))).collect();
        let asked = ["one", "two"].map(str::to_string).to_vec();
        match world.ask(Request::Holders { seen, asked }) {
            Ok(Reply::Silent(silent)) => [silent[0].as_secs(), silent[1].as_secs()],
            other => panic!("{other:?}"),
        }
    };
    let opened = silent(&mut world, &[])[0];
    world.now = world.now.after(Duration::from_secs(100));
    assert_eq!(silent(&mut world, &[("one", 30)]), [30, 100 + opened]);
    assert_eq!(silent(&mut world, &[("one", 50), ("two", 0)]), [30, 0], "older news changes nothing");
    world.crash(9);
    assert_eq!(silent(&mut world, &[]), [0, 0], "nobody was silent for longer than the store is open");
    let many = (0..=HOLDERS_TOLD_MAX).map(|number| (number.to_string(), Duration::ZERO)).collect();
    assert_eq!(world.refusal(Request::Holders { seen: many, asked: vec![] }), ErrorKind::Invalid);
    let long = vec![("h".repeat(HOLDER_MAX + 1), Duration::ZERO)];
    assert_eq!(world.refusal(Request::Holders { seen: long, asked: vec![] }), ErrorKind::Invalid);
}

/// Who opens a file is heard of then, before its gateway tells of it: a holder that was silent before, or that is new, loses nothing.
#[test]
fn holders_that_open_files_are_heard_of() {
    let mut world = World::new(5);
    let new = NewInode { holder: "one".to_string(), ..NewInode::default() };
    let (path, holder) = (path("/f"), "two".to_string());
    let make = Request::Create { replicas_max: 1, path: path.clone(), overwrite: false, parents: false, new };
    let append = Request::AppendOpen { replicas_max: 1, file: FileRef::Path(path), holder, began: None, at: None };
    let silent = |world: &mut World| {
        world.now = world.now.after(Duration::from_secs(100));
        let asked = ["one", "two"].map(str::to_string).to_vec();
        match world.ask(Request::Holders { seen: vec![], asked }) {
            Ok(Reply::Silent(silent)) => [silent[0].as_secs(), silent[1].as_secs()],
            other => panic!("{other:?}"),
        }
    };
    let opened = silent(&mut world)[0] - 100;
    let made = match world.ask(make) {
        Ok(Reply::Handle(made)) => made,
        other => panic!("{other:?}"),
    };
    assert_eq!(silent(&mut world), [100, opened + 200]);
    assert_eq!(world.refusal(append.clone()), ErrorKind::Busy);
    assert_eq!(silent(&mut world), [200, opened + 300], "who was refused has opened nothing");
    let (inode, generation, finished) = (made.inode, made.generation, Some((made.group.group, 0)));
    world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
    world.ask(append).expect("opened");
    assert_eq!(silent(&mut world), [300, 100]);
}

/// A change that relies on directories to be empty is refused once one of them is not, and does nothing; one that is gone is empty. Nobody
/// names more of them than there may be.
#[test]
fn directories_that_were_empty() {
    let mut world = World::new(6);
    for request in [mkdir("/t"), mkdir("/t/a"), mkdir("/t/b")] {
        world.ask(request).expect("made");
    }
    let number = |world: &mut World, name: &str| match world.ask(stat(name)) {
        Ok(Reply::Attributes(found)) => InodeId(found.inode),
        other => panic!("{name}: {other:?}"),
    };
    let top = Seen { version: None, ..seen(&mut world, "/t") };
    let empty = vec![number(&mut world, "/t/a"), number(&mut world, "/t/b")];
    let delete_tree = |empty: Vec<InodeId>| Request::Provided {
        directories: 0,
        seen: vec![top],
        empty,
        below: None,
        change: Box::new(Request::Delete { path: path("/t"), recursive: true }),
    };
    world.ask(create("/t/b/f")).expect("made");
    assert_eq!(world.refusal(delete_tree(empty.clone())), ErrorKind::Stale);
    world.ask(stat("/t/b/f")).expect("nothing was done");
    let many = vec![empty[0]; base::limit::EMPTY_DIRECTORIES_MAX + 1];
    assert_eq!(world.refusal(delete_tree(many)), ErrorKind::Invalid);
    world.ask(rename("/t/b/f", "/f")).expect("moved");
    world.ask(delete("/t/a")).expect("deleted");
    world.ask(delete_tree(empty)).expect("they are empty again, or gone");
    assert_eq!(world.refusal(stat("/t")), ErrorKind::NotFound);
}
