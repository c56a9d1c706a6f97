//! What is kept with names: bits, owners, times, extended attributes.

use crate::world::{SESSION, World, create, delete, mkdir, path, small_file, stat};
use base::attributes::{Attributes, NewAttributes};
use base::error::ErrorKind;
use base::id::{GroupId, InodeId, SessionId};
use base::limit::{
    LIST_PAGE_BYTES, NOTE_MAX, USER_NAME_MAX, XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_BYTES_MAX, XATTRS_MAX,
};
use base::unit::WallTime;
use meta::request::{NewInode, PutFile, User};
use meta::{Caller, Reply, Request};
use std::time::Duration;

fn attributes(world: &mut World, name: &str) -> Attributes {
    match world.ask(stat(name)) {
        Ok(Reply::Attributes(attributes)) => attributes,
        other => panic!("{other:?}"),
    }
}

fn set(name: &str, new: NewAttributes) -> Request {
    Request::SetAttributes { path: path(name), new }
}

fn xattr(name: &str, key: &str, value: Option<&[u8]>) -> Request {
    Request::SetXattr { path: path(name), name: key.to_string(), value: value.map(<[u8]>::to_vec) }
}

fn xattrs(world: &mut World, name: &str) -> Vec<(String, Vec<u8>)> {
    match world.ask(Request::GetXattrs { path: path(name), name: None }) {
        Ok(Reply::Xattrs(xattrs)) => xattrs,
        other => panic!("{other:?}"),
    }
}

/// What is set is shown, of files and directories, open or not, and outlives power losses; what is not named stays.
#[test]
fn set_and_kept() {
    let mut world = World::new(1);
    world.ask(mkdir("/d")).expect("mkdir");
    world.ask(create("/d/f")).expect("create");
    let before = attributes(&mut world, "/d/f");
    assert_eq!((before.accessed_ms, before.owner.as_str()), (before.modified_ms, ""));
    let new = NewAttributes {
        mode: Some(0o4750),
        owner: Some("ada".to_string()),
        group: None,
        modified_ms: None,
        accessed_ms: Some(77),
        note: None,
        copies: None,
        acl: None,
    };
    let both = NewAttributes { group: Some("staff".to_string()), modified_ms: Some(5), ..NewAttributes::default() };
    for name in ["/d/f", "/d", "/"] {
        world.ask(set(name, new.clone())).expect("set");
    }
    world.ask(set("/d", both)).expect("set");
    world.crash(1);
    for name in ["/d/f", "/"] {
        let after = attributes(&mut world, name);
        assert_eq!((after.mode, after.owner.as_str(), after.group.as_str()), (0o4750, "ada", ""), "{name}");
        assert_eq!(after.accessed_ms, 77, "{name}");
    }
    assert_eq!(attributes(&mut world, "/d/f").modified_ms, before.modified_ms);
    let directory = attributes(&mut world, "/d");
    assert_eq!((directory.modified_ms, directory.group.as_str()), (5, "staff"));
}

/// A directory is as new as the last name that came into it or left it; its own attributes and what lies deeper do not count.
#[test]
fn names_change_their_directory() {
    let mut world = World::new(1);
    for name in ["/a", "/b"] {
        world.ask(mkdir(name)).expect("mkdir");
    }
    let moved =
        |from: &str, to: &str| Request::Rename { from: path(from), to: path(to), replace: false, removes: false };
    // A tree that is copied keeps its times, in whatever order its parts come.
    let copy = |name: &str| Request::Create {
        replicas_max: 1,
        path: path(name),
        overwrite: false,
        parents: false,
        new: NewInode { copied: true, ..NewInode::with_mode(0o644) },
    };
    let steps = [
        (create("/a/f"), true, false),
        (mkdir("/a/d"), true, false),
        (mkdir("/a/d/deeper"), false, false),
        (set("/a/d", NewAttributes { mode: Some(0o700), ..NewAttributes::default() }), false, false),
        (copy("/a/old"), false, false),
        (moved("/a/d", "/b/d"), true, true),
        (moved("/b/d", "/b/e"), false, true),
        (delete("/a/f"), true, false),
    ];
    for (step, a, b) in steps {
        let before = ["/a", "/b"].map(|name| attributes(&mut world, name).modified_ms);
        world.pass(Duration::from_secs(1));
        let what = format!("{step:?}");
        world.ask(step).expect("done");
        let after = ["/a", "/b"].map(|name| attributes(&mut world, name).modified_ms);
        assert_eq!([before[0] != after[0], before[1] != after[1]], [a, b], "{what}");
    }
}

/// What cannot be kept is refused as the caller's mistake, and changes nothing.
#[test]
fn refused() {
    let mut world = World::new(1);
    world.ask(create("/f")).expect("create");
    let before = attributes(&mut world, "/f");
    let owner = |name: &str| NewAttributes { owner: Some(name.to_string()), ..NewAttributes::default() };
    let long = "n".repeat(USER_NAME_MAX + 1);
    for bad in ["", "a:b", "a/b", "a\n", &long] {
        assert_eq!(world.refusal(set("/f", owner(bad))), ErrorKind::Invalid, "{bad:?}");
    }
    let mode = NewAttributes { mode: Some(0o10000), owner: Some("ada".to_string()), ..NewAttributes::default() };
    assert_eq!(world.refusal(set("/f", mode)), ErrorKind::Invalid);
    assert_eq!(world.refusal(set("/no", owner("ada"))), ErrorKind::NotFound);
    assert_eq!(attributes(&mut world, "/f"), before);
}

/// What a session makes belongs to its user, whichever way it is made and after restarts.
#[test]
fn belongs_to_the_session() {
    let mut world = World::new(1);
    let user = User { name: "eve".to_string(), groups: vec!["wheel".to_string()] };
    let session = SessionId(99);
    let mut call = 0;
    let mut ask = |world: &mut World, request| {
        call += 1;
        world.ask_as(Caller { session, call, floor: 0 }, request).expect("answered").expect("done")
    };
    let open = NewAttributes { mode: Some(0o777), ..NewAttributes::default() };
    world.ask(set("/", open)).expect("set");
    ask(&mut world, Request::OpenSession { user });
    ask(&mut world, create("/f"));
    world.crash(1);
    let put = |name: &str, directory| PutFile {
        path: path(name),
        group: GroupId(0),
        offset: 0,
        length: 0,
        crc: 0,
        modified: Some(WallTime(5)),
        accessed: Some(WallTime(6)),
        mode: 0o700,
        overwrite: false,
        parents: true,
        directory,
    };
    ask(&mut world, Request::PutFiles { files: vec![put("/a/b", true), put("/c/d", false), put("/c", true)] });
    for name in ["/f", "/a", "/a/b", "/c", "/c/d"] {
        let attributes = attributes(&mut world, name);
        assert_eq!((attributes.owner.as_str(), attributes.group.as_str()), ("eve", "wheel"), "{name}");
        if name != "/f" && name != "/a" {
            assert_eq!((attributes.mode, attributes.modified_ms, attributes.accessed_ms), (0o700, 5, 6));
        }
    }
    assert_eq!(attributes(&mut world, "/a").mode, 0o755);
    world
        .ask_as(Caller { session: SESSION, call: 1 << 20, floor: 0 }, create("/mine"))
        .expect("answered")
        .expect("done");
    assert_eq!(attributes(&mut world, "/mine").owner, "");
}

/// What is made has the owner, group, bits and note that were said, and what is made on the way has owners and bits; what was there before
/// keeps its own. Over a power loss.
#[test]
fn made_with() {
    let mut world = World::new(1);
    let new = NewInode {
        mode: 0,
        open: None,
        owner: Some("ada".to_string()),
        group: Some("staff".to_string()),
        group_above: false,
        note: vec![1, 0, 255],
        above_mode: Some(0o711),
        copied: false,
        copies: 0,
        holder: String::new(),
    };
    world.ask(mkdir("/old")).expect("mkdir");
    let old = attributes(&mut world, "/old");
    world.ask(Request::Mkdir { path: path("/old/a/b"), parents: true, new: new.clone() }).expect("mkdir");
    let create = Request::Create {
        replicas_max: 1,
        path: path("/old/c/d/f"),
        overwrite: false,
        parents: true,
        new: new.clone(),
    };
    let Ok(Reply::Handle(handle)) = world.ask(create) else { panic!("no file") };
    assert_eq!(Ok(Reply::Attributes(handle.attributes)), world.ask(stat("/old/c/d/f")));
    world.crash(1);
    assert_eq!(attributes(&mut world, "/old"), Attributes { children: Some(2), ..old });
    for (name, mode, note) in [
        ("/old/a", 0o711, &[][..]),
        ("/old/a/b", 0, &[1, 0, 255]),
        ("/old/c", 0o711, &[]),
        ("/old/c/d", 0o711, &[]),
        ("/old/c/d/f", 0, &[1, 0, 255]),
    ] {
        let Attributes { mode: bits, note: kept, owner, group, .. } = attributes(&mut world, name);
        assert_eq!((bits, kept.as_slice()), (mode, note), "{name}");
        assert_eq!((owner.as_str(), group.as_str()), ("ada", "staff"), "{name}");
    }
    let wrong = [
        NewInode { mode: 0o10000, ..new.clone() },
        NewInode { owner: Some("a/b".to_string()), ..new.clone() },
        NewInode { group: Some(String::new()), ..new.clone() },
        NewInode { above_mode: Some(0o10000), ..new.clone() },
        NewInode { open: Some(0o10000), ..new.clone() },
        NewInode { note: vec![0; NOTE_MAX + 1], ..new },
    ];
    for new in wrong {
        let mkdir = Request::Mkdir { path: path("/no/no"), parents: true, new: new.clone() };
        assert_eq!(world.refusal(mkdir), ErrorKind::Invalid);
        let create = Request::Create { replicas_max: 1, path: path("/no/no"), overwrite: false, parents: true, new };
        assert_eq!(world.refusal(create), ErrorKind::Invalid);
    }
    assert_eq!(world.refusal(stat("/no")), ErrorKind::NotFound);
}

/// A note is kept as it is, over renames and restarts, until another takes its place; the answer to a repeated change has it too.
#[test]
fn notes() {
    let mut world = World::new(1);
    let note = |bytes: &[u8]| NewAttributes { note: Some(bytes.to_vec()), ..NewAttributes::default() };
    world.ask(create("/f")).expect("create");
    world.ask(set("/f", note(&[9; NOTE_MAX]))).expect("set");
    world.ask(Request::Rename { from: path("/f"), to: path("/g"), replace: false, removes: false }).expect("renamed");
    world.ask(set("/g", NewAttributes { mode: Some(0o600), ..NewAttributes::default() })).expect("set");
    assert_eq!(world.refusal(set("/g", note(&[9; NOTE_MAX + 1]))), ErrorKind::Invalid);
    world.crash(1);
    assert_eq!(attributes(&mut world, "/g").note, [9; NOTE_MAX]);
    let caller = Caller { session: SESSION, call: 1 << 20, floor: 0 };
    let Reply::Handle(handle) = world.ask_as(caller, create("/h")).expect("answered").expect("created") else {
        panic!("no handle")
    };
    world.ask(set("/h", note(b"h"))).expect("set");
    let close = Request::Close {
        inode: handle.inode,
        generation: handle.generation,
        finished: None,
        modified: None,
        mode: None,
    };
    let caller = Caller { session: SESSION, call: 1 + (1 << 20), floor: 0 };
    for life in 0..2 {
        let reply = world.ask_as(caller, close.clone()).expect("answered");
        assert!(matches!(&reply, Ok(Reply::Attributes(file)) if file.note == b"h"), "life {life}: {reply:?}");
        world.kill();
    }
    world.ask(set("/g", note(&[]))).expect("set");
    assert_eq!(attributes(&mut world, "/g").note, []);
}

/// A page of names with long notes ends early, and says that there is more: it fits into a message.
#[test]
fn pages_of_notes() {
    let mut world = World::new(1);
    let count = LIST_PAGE_BYTES / NOTE_MAX + 10;
    for number in 0..count {
        let new = NewInode { note: vec![1; NOTE_MAX], ..NewInode::with_mode(0o755) };
        world.ask(Request::Mkdir { path: path(&format!("/{number:04}")), parents: false, new }).expect("mkdir");
        if number % 100 == 99 {
            world.merge();
        }
    }
    let list =
        |after: Option<String>| Request::List { path: path("/"), after, limit: 1000, located: false, also: Vec::new() };
    let Ok(Reply::Entries { entries, more, .. }) = world.ask(list(None)) else { panic!("no list") };
    let bytes: usize = entries.iter().map(|entry| entry.attributes.note.len() + entry.name.len()).sum();
    assert!(more && bytes < LIST_PAGE_BYTES + NOTE_MAX, "{bytes}");
    let after = entries.last().map(|entry| entry.name.clone());
    let Ok(Reply::Entries { entries: rest, more, .. }) = world.ask(list(after)) else { panic!("no list") };
    assert!(!more);
    assert_eq!(entries.len() + rest.len(), count);
}

/// A lookup ends at the last name that is there, and a file is always its last. A number that is gone leads nowhere.
#[test]
fn looked_up() {
    let mut world = World::new(1);
    world.ask(mkdir("/a/b")).expect("mkdir");
    world.ask(create("/a/f")).expect("create");
    for (text, names) in [
        ("/", 0),
        ("/a", 1),
        ("/a/b", 2),
        ("/a/b/c", 2),
        ("/a/b/c/d", 2),
        ("/a/f", 2),
        ("/a/f/x", 2),
        ("/a/f/x/y", 2),
        ("/no/b", 0),
        ("/ab", 0),
    ] {
        let looked = world.ask(Request::Lookup { path: path(text), known: 0, wanted: Default::default() });
        let Ok(Reply::Found { found, .. }) = looked else { panic!("{text}") };
        assert_eq!(found.len(), 1 + names, "{text}");
        let mut above = String::new();
        for (name, found) in text.split('/').filter(|name| !name.is_empty()).zip(&found[1..]) {
            above = format!("{above}/{name}");
            assert_eq!(world.ask(stat(&above)), Ok(Reply::Attributes(found.clone())), "{text}");
        }
    }
    let gone = attributes(&mut world, "/a/b").inode;
    world.ask(delete("/a")).expect("deleted");
    assert_eq!(world.refusal(Request::PathOf { inode: InodeId(gone) }), ErrorKind::NotFound);
    assert_eq!(world.ask(Request::PathOf { inode: base::id::ROOT }), Ok(Reply::PathOf("/".to_string())));
}

/// Extended attributes are set, replaced, listed in order and removed; they follow a rename and go with the name.
#[test]
fn extended() {
    let mut world = World::new(1);
    world.ask(create("/f")).expect("create");
    world.ask(mkdir("/d")).expect("mkdir");
    for name in ["/f", "/d"] {
        world.ask(xattr(name, "user.b", Some(b"2"))).expect("set");
        world.ask(xattr(name, "security.a", Some(&[0, 255]))).expect("set");
        world.ask(xattr(name, "user.b", Some(b""))).expect("set");
    }
    world.ask(Request::Rename { from: path("/f"), to: path("/g"), replace: false, removes: false }).expect("renamed");
    world.crash(1);
    let both = vec![("security.a".to_string(), vec![0, 255]), ("user.b".to_string(), vec![])];
    assert_eq!(xattrs(&mut world, "/g"), both);
    assert_eq!(xattrs(&mut world, "/d"), both);
    let one = Request::GetXattrs { path: path("/g"), name: Some("user.b".to_string()) };
    assert_eq!(world.ask(one), Ok(Reply::Xattrs(vec![both[1].clone()])));
    let none = Request::GetXattrs { path: path("/g"), name: Some("user.c".to_string()) };
    assert_eq!(world.refusal(none), ErrorKind::NotFound);
    assert_eq!(world.refusal(xattr("/g", "user.c", None)), ErrorKind::NotFound);
    world.ask(xattr("/g", "user.b", None)).expect("removed");
    world.ask(xattr("/g", "security.a", None)).expect("removed");
    assert_eq!(xattrs(&mut world, "/g"), vec![]);
    world.ask(delete("/d")).expect("deleted");
    world.ask(mkdir("/d")).expect("mkdir");
    assert_eq!(xattrs(&mut world, "/d"), vec![], "a new directory has none");
}

/// Names without a namespace, and more than the limits allow, are refused; what was there stays.
#[test]
fn extended_limits() {
    let mut world = World::new(1);
    world.ask(create("/f")).expect("create");
    let long = format!("user.{}", "n".repeat(XATTR_NAME_MAX - 4));
    for bad in ["", "plain", ".x", "user.", "user.\0", &long] {
        assert_eq!(world.refusal(xattr("/f", bad, Some(b"1"))), ErrorKind::Invalid, "{bad:?}");
    }
    assert_eq!(world.refusal(xattr("/f", "user.a", Some(&vec![0; XATTR_VALUE_MAX + 1]))), ErrorKind::Invalid);
    for number in 0..XATTRS_MAX {
        world.ask(xattr("/f", &format!("user.{number}"), Some(b""))).expect("set");
    }
    assert_eq!(world.refusal(xattr("/f", "user.more", Some(b""))), ErrorKind::Invalid);
    world.ask(delete("/f")).expect("deleted");
    world.pass(Duration::from_secs(1));
    world.ask(create("/f")).expect("create");
    let large = vec![7; XATTR_VALUE_MAX];
    let fit = XATTRS_BYTES_MAX / (XATTR_VALUE_MAX + 6);
    for number in 0..fit {
        world.ask(xattr("/f", &format!("user.{number}"), Some(&large))).expect("set");
    }
    assert_eq!(world.refusal(xattr("/f", "user.9", Some(&large))), ErrorKind::Invalid);
    assert_eq!(xattrs(&mut world, "/f").len(), fit);
}

/// A directory says how many names it has, whatever made them come and go, also after a crash; a file says nothing.
#[test]
fn children_are_counted() {
    let mut world = World::new(3);
    let put = |name: &str, overwrite| PutFile { overwrite, modified: Some(WallTime(5)), ..small_file(name) };
    let over =
        |from: &str, to: &str, replace| Request::Rename { from: path(from), to: path(to), replace, removes: false };
    let copied = vec![put("/d/copied", false), put("/d/new/below", false)];
    let steps = [
        (mkdir("/d"), 0),
        (mkdir("/d/a"), 1),
        (create("/d/f"), 2),
        (Request::PutFiles { files: copied }, 4),
        (Request::PutFiles { files: vec![put("/d/copied", true)] }, 4),
        (over("/d/copied", "/d/moved", false), 4),
        (over("/d/new/below", "/d/below", false), 5),
        (over("/d/below", "/d/moved", true), 4),
        (over("/d/a", "/d/new", true), 3),
        (delete("/d/f"), 2),
        (over("/d/new", "/new", false), 1),
    ];
    for (step, expected) in steps {
        let text = format!("{step:?}");
        let reply = world.ask(step).expect(&text);
        if let Reply::Files(results) = reply {
            assert!(results.iter().all(Result::is_ok), "{results:?}");
        }
        assert_eq!(attributes(&mut world, "/d").children, Some(expected), "{text}");
    }
    assert!(world.ask(delete("/d/none")).is_err() && world.ask(mkdir("/d/moved")).is_err());
    world.crash(2);
    let counts = ["/", "/d", "/new", "/d/moved"].map(|name| attributes(&mut world, name).children);
    assert_eq!(counts, [Some(2), Some(1), Some(0), None]);
}
