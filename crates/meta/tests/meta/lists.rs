//! Access control lists: stored, handed down to what is made, counted when rights are judged, and read from the notes of older stores.

use crate::stored::{value, write};
use crate::world::{SESSION, World, create, mkdir, path, small_file, stat};
use base::acl::{ACCESS, Acl, AclEntry, DEFAULT, GROUP, MASK, OTHER, USER};
use base::attributes::{Attributes, NewAttributes};
use base::error::ErrorKind;
use base::id::SessionId;
use base::limit::NOTE_MAX;
use meta::request::{NewInode, PutFile, User};
use meta::{Caller, Reply, Request};

const BOB: SessionId = SessionId(0xB0B);

fn entry(scope: u32, kind: u32, permissions: u32, name: &str) -> AclEntry {
    AclEntry { scope, kind, permissions, name: name.to_string() }
}

/// Bob may all that the group bits allow.
fn bobs() -> Vec<AclEntry> {
    vec![entry(ACCESS, USER, 7, "bob"), entry(ACCESS, GROUP, 0, "")]
}

/// What is made below gets Bob as well.
fn handed_down() -> Vec<AclEntry> {
    vec![
        entry(DEFAULT, USER, 7, ""),
        entry(DEFAULT, USER, 7, "bob"),
        entry(DEFAULT, GROUP, 5, ""),
        entry(DEFAULT, MASK, 7, ""),
        entry(DEFAULT, OTHER, 0, ""),
    ]
}

fn set(world: &mut World, name: &str, acl: Vec<AclEntry>) -> Result<Reply, base::error::Error> {
    let new = NewAttributes { acl: Some(Acl { entries: acl }), ..NewAttributes::default() };
    world.ask(Request::SetAttributes { path: path(name), new })
}

fn attributes(world: &mut World, name: &str) -> Attributes {
    match world.ask(stat(name)) {
        Ok(Reply::Attributes(attributes)) => attributes,
        other => panic!("{name}: {other:?}"),
    }
}

/// Whether Bob may list a directory.
fn bob_lists(world: &mut World, name: &str) -> bool {
    let caller = Caller { session: BOB, call: 0, floor: 0 };
    let user = User { name: "bob".to_string(), groups: vec!["users".to_string()] };
    world.ask_as(caller, Request::OpenSession { user }).expect("answered").expect("opened");
    let list = Request::List { path: path(name), after: None, limit: 1, located: false, also: Vec::new() };
    world.ask_as(caller, list).expect("answered").is_ok()
}

/// A list is kept over restarts, counts at once, and goes when it is set to none; a new version of the file says so. A foreign one, or one that is too
/// long, is refused.
#[test]
fn set_and_judged() {
    let mut world = World::new(1);
    let new = NewInode::with_mode(0o750);
    world.ask(Request::Mkdir { path: path("/d"), parents: false, new }).expect("made");
    assert!(!bob_lists(&mut world, "/d"));
    let before = attributes(&mut world, "/d");
    set(&mut world, "/d", bobs()).expect("set");
    assert!(bob_lists(&mut world, "/d"));
    world.crash(1);
    assert!(bob_lists(&mut world, "/d"));
    let after = attributes(&mut world, "/d");
    assert_eq!((after.acl.clone(), after.version), (bobs(), before.version + 1));
    let too_long: Vec<_> =
        (0..30).map(|number| entry(ACCESS, GROUP, 1, &format!("{number:02}{}", "n".repeat(200)))).collect();
    let unnamed = vec![entry(ACCESS, GROUP, 1, "")];
    for bad in [vec![entry(ACCESS, USER, 7, "bob")], vec![entry(ACCESS, GROUP, 9, "")], [unnamed, too_long].concat()] {
        assert_eq!(
            set(&mut world, "/d", bad.clone()).map_err(|error| error.kind()),
            Err(ErrorKind::Invalid),
            "{bad:?}"
        );
    }
    assert_eq!(attributes(&mut world, "/d"), after);
    set(&mut world, "/d", vec![]).expect("set");
    assert!(!bob_lists(&mut world, "/d"));
}

/// What is made in a directory gets what that hands down, whichever way it is made, and directories hand it on; bits without a umask count
/// then. Without anything handed down the umask counts, and what is made on the way may be as its directory.
#[test]
fn handed_down_to_what_is_made() {
    let mut world = World::new(1);
    world.ask(mkdir("/d")).expect("made");
    set(&mut world, "/d", handed_down()).expect("set");
    let new = NewInode { open: Some(0o666), above_mode: None, group_above: true, ..NewInode::with_mode(0o644) };
    let make =
        Request::Create { replicas_max: 1, path: path("/d/a/b/f"), overwrite: false, parents: true, new: new.clone() };
    world.ask(make).expect("made");
    let got = || vec![entry(ACCESS, USER, 7, "bob"), entry(ACCESS, GROUP, 5, "")];
    for (name, mode, list) in [
        ("/d/a", 0o750, [got(), handed_down()].concat()),
        ("/d/a/b", 0o750, [got(), handed_down()].concat()),
        ("/d/a/b/f", 0o660, got()),
    ] {
        let found = attributes(&mut world, name);
        assert_eq!((found.mode, found.acl, found.group.as_str()), (mode, list, "supergroup"), "{name}");
    }
    let open = NewAttributes { mode: Some(0o1520), group: Some("staff".to_string()), ..NewAttributes::default() };
    world.ask(mkdir("/e")).expect("made");
    world.ask(Request::SetAttributes { path: path("/e"), new: open }).expect("set");
    world
        .ask(Request::Create { replicas_max: 1, path: path("/e/a/b/f"), overwrite: false, parents: true, new })
        .expect("made");
    for (name, mode) in [("/e/a", 0o720), ("/e/a/b", 0o720), ("/e/a/b/f", 0o644)] {
        let found = attributes(&mut world, name);
        assert_eq!((found.mode, found.acl, found.group.as_str()), (mode, vec![], "staff"), "{name}");
    }
    // What would be handed down twice does not fit: it is not made.
    let name = |number: usize| format!("{number:02}{}", "n".repeat(80));
    let mut long = handed_down();
    long.splice(2..2, (0..20).map(|number| entry(DEFAULT, USER, 7, &name(number)))).for_each(drop);
    long.sort_by(|one, other| one.key().cmp(&other.key()));
    set(&mut world, "/e", long).expect("it fits once");
    assert_eq!(world.refusal(mkdir("/e/g")), ErrorKind::Invalid);
    assert_eq!(world.refusal(stat("/e/g")), ErrorKind::NotFound);
}

/// Has a directory of bits 0750 keep this note as a program of format 2 wrote it: a list in it, and no other one.
fn keep_old_note(world: &mut World, name: &str, note: &[u8]) {
    let new = NewAttributes { note: Some(note.to_vec()), mode: Some(0o750), ..NewAttributes::default() };
    world.ask(Request::SetAttributes { path: path(name), new }).expect("set");
    let inode = attributes(world, name).inode;
    world.power_off(1);
    let key = [&[0x11][..], &inode.to_be_bytes()].concat();
    let mut value = value(world, &key).expect("a record");
    // Tag 28, the list that there is beside each note that is set now: of no entries.
    let none = [0xE2, 0x01, 0];
    let at = value.windows(none.len()).rposition(|bytes| bytes == none).expect("no list");
    value.drain(at..at + none.len());
    write(world, &key, &value);
    world.open();
}

/// A list that the HDFS gateway of format 2 kept in its note counts, and is kept when it sets another note, until the list is set; a note that is none
/// holds none.
#[test]
fn lists_in_old_notes() {
    // Tag 5 of that note, as the gateway of format 2 wrote it: entries of scope, kind, permissions, name; and tag 2, a number.
    let bob = [0x2A, 7, 0x18, 7, 0x22, 3, b'b', b'o', b'b'];
    let group = [0x2A, 4, 0x10, 1, 0x18, 0];
    let (number, other) = ([0x10, 3], [0x2A, 1, 0xFF]);
    let old = [&number[..], &bob, &group].concat();
    let unnamed = [entry(ACCESS, USER, 7, "bob"), entry(ACCESS, GROUP, 0, "")];
    let mut world = World::new(1);
    world.ask(mkdir("/d")).expect("made");
    world.ask(create("/f")).expect("made");
    let note =
        |bytes: &[u8]| NewAttributes { note: Some(bytes.to_vec()), mode: Some(0o750), ..NewAttributes::default() };
    keep_old_note(&mut world, "/d", &old);
    // It is said once.
    assert_eq!(attributes(&mut world, "/d").note, number);
    assert_eq!(attributes(&mut world, "/d").acl, unnamed);
    assert!(bob_lists(&mut world, "/d"));
    // Another note without a list does not take the list away.
    world.ask(Request::SetAttributes { path: path("/d"), new: note(&number) }).expect("set");
    assert_eq!(attributes(&mut world, "/d").note, number);
    assert!(bob_lists(&mut world, "/d"));
    set(&mut world, "/d", vec![]).expect("set");
    // Nor does a note bring one back that was taken away.
    world.ask(Request::SetAttributes { path: path("/d"), new: note(&old) }).expect("set");
    assert!(!bob_lists(&mut world, "/d"));
    for none in [&other[..], &group[..2], &bob] {
        world.ask(Request::SetAttributes { path: path("/f"), new: note(none) }).expect("set");
        assert_eq!(attributes(&mut world, "/f").acl, [], "{none:?}");
    }
    let caller = Caller { session: SESSION, call: 0, floor: 0 };
    let long =
        NewAttributes { note: Some(vec![0; NOTE_MAX]), acl: Some(Acl { entries: bobs() }), ..NewAttributes::default() };
    let set = Request::SetAttributes { path: path("/d"), new: long };
    let refused = world.ask_as(caller, set).expect("answered").map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Invalid), "both together are too long");
}

/// Whoever may write may set a note; a list in it is nobody's list, neither of what is there nor of what is made.
#[test]
fn notes_bring_no_lists() {
    let planted = [0x2A, 7, 0x18, 7, 0x22, 3, b'b', b'o', b'b', 0x2A, 4, 0x10, 1, 0x18, 0];
    let mut world = World::new(1);
    let new = NewInode { note: planted.to_vec(), ..NewInode::with_mode(0o750) };
    world.ask(Request::Mkdir { path: path("/made"), parents: false, new }).expect("made");
    world.ask(mkdir("/d")).expect("made");
    let new = NewAttributes { note: Some(planted.to_vec()), mode: Some(0o750), ..NewAttributes::default() };
    for name in ["/made", "/d", "/d"] {
        world.ask(Request::SetAttributes { path: path(name), new: new.clone() }).expect("set");
        assert_eq!(attributes(&mut world, name).acl, []);
        assert!(!bob_lists(&mut world, name), "{name}");
    }
    world.crash(1);
    assert!(!bob_lists(&mut world, "/made") && !bob_lists(&mut world, "/d"));
}

/// In the place of a long list of an older store another one that is as long fits, as the one that it replaces goes from the note.
#[test]
fn old_lists_make_room() {
    let name = |number: u32| format!("{number:02}{}", "n".repeat(88));
    let mut old = vec![0x10, 3];
    for number in 0..30 {
        old.extend([0x2A, 94, 0x18, 7, 0x22, 90]);
        old.extend(name(number).as_bytes());
    }
    old.extend([0x2A, 4, 0x10, 1, 0x18, 0]);
    let list = |permissions| {
        let named = (0..30).map(|number| entry(ACCESS, USER, permissions, &name(number)));
        named.chain([entry(ACCESS, GROUP, 0, "")]).collect::<Vec<_>>()
    };
    let mut world = World::new(1);
    world.ask(mkdir("/d")).expect("made");
    keep_old_note(&mut world, "/d", &old);
    let Attributes { acl, note, .. } = attributes(&mut world, "/d");
    assert_eq!((acl, note.as_slice()), (list(7), &old[..2]));
    set(&mut world, "/d", list(5)).expect("as long as the one before");
    let Attributes { acl, note, .. } = attributes(&mut world, "/d");
    assert_eq!((acl, note.as_slice()), (list(5), &old[..2]));
}

/// A directory that is put gets its bits as one that is made does: as far as the list allows that is handed down, whether it is there or not.
#[test]
fn put_below_a_list() {
    let mut world = World::new(1);
    for name in ["/d", "/e"] {
        world.ask(mkdir(name)).expect("made");
    }
    set(&mut world, "/d", handed_down()).expect("set");
    let put = |name: &str, mode| PutFile { mode, overwrite: true, directory: true, ..small_file(name) };
    for (name, mode, expected) in
        [("/d/p", 0o755, 0o750), ("/d/p", 0o777, 0o770), ("/d/p", 0o1507, 0o1500), ("/e/p", 0o757, 0o757)]
    {
        world.ask(Request::PutFiles { files: vec![put(name, mode)] }).expect("put");
        let found = attributes(&mut world, name);
        assert_eq!((found.mode, found.acl.is_empty()), (expected, name == "/e/p"), "{name} {mode:o}");
    }
}
