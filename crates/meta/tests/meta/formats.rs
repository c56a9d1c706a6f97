//! Bytes on disk: golden, and whatever rot makes of them.

use crate::stored::{SEGMENT, groups_of, make_older, tree_of};
use crate::world::{SESSION, World, create, mkdir, path};
use base::attributes::NewAttributes;
use base::disk::{FileKind, FileName, Op, wait};
use base::env::Random;
use base::error::ErrorKind;
use base::id::SessionId;
use base::limit::BLOCK;
use meta::request::User;
use meta::{Caller, Request};
use sim::random::SimRandom;

/// The groups that changes leave in the log of a new store, without what the keepers put before each, as text.
fn written(change: impl Fn(&mut World)) -> String {
    let mut world = World::new(1);
    change(&mut world);
    let mut text = String::new();
    for group in groups_of(&world) {
        for line in group.chunks(32) {
            text.extend(line.iter().map(|byte| format!("{byte:02x}")));
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// The log and the records in it have the bytes that version 4 has. A change of them is a new version, unless it is a field more that
/// older programs pass over.
#[test]
fn golden() {
    let written = written(|world| {
        let unnumbered = Caller { session: SESSION, call: 0, floor: 0 };
        world.ask_as(unnumbered, mkdir("/a")).expect("answered").expect("mkdir");
        world.next_call += 1;
        world.ask(create("/a/f")).expect("create");
    });
    is_golden(&written, "log-4");
}

/// With `STORMWELL_GOLDEN=write` the file is written anew, which is a change of format.
fn is_golden(written: &str, name: &str) {
    let path = format!("{}/tests/meta/golden/{name}.hex", env!("CARGO_MANIFEST_DIR"));
    if std::env::var("STORMWELL_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::write(&path, written).expect("written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert!(written == golden, "the log has other bytes than {path}:\n{written}");
}

/// Logs of older versions are read, and what comes after them is of today's version.
#[test]
fn older_versions_are_read() {
    let logs = [
        include_str!("golden/log-1.hex"),
        include_str!("golden/log-1-attributes.hex"),
        include_str!("golden/log-2.hex"),
        include_str!("golden/log-2-attributes.hex"),
        // Of version 3, before names were counted.
        include_str!("golden/log-3-uncounted.hex"),
        include_str!("golden/log-3.hex"),
        include_str!("golden/log-3-attributes.hex"),
    ];
    let (file, directory) = (vec!["/a", "/a/f"], vec!["/a"]);
    let names = [&file, &directory, &file, &directory, &file, &file, &directory];
    for (golden, names) in logs.into_iter().zip(names) {
        let mut world = World::new(1);
        // This program made the root, and an older one changed it: there is no such store.
        world.are_counted = false;
        world.power_off(1);
        make_older(&world, golden, true);
        world.open();
        let found: Vec<String> = world.dump().into_keys().collect();
        assert_eq!(&found, names);
        world.ask(mkdir("/later")).expect("mkdir");
        world.crash(3);
        assert_eq!(world.dump().len(), names.len() + 1);
    }
}

/// The same for what was added later: sessions with a user, attributes, extended ones.
#[test]
fn golden_attributes() {
    let new = NewAttributes {
        mode: Some(0o640),
        owner: Some("ada".to_string()),
        group: Some("staff".to_string()),
        modified_ms: Some(1_600_000_000_123),
        accessed_ms: Some(1_600_000_000_456),
        note: None,
        copies: None,
        acl: None,
    };
    let written = written(|world| {
        let user = User { name: "ada".to_string(), groups: vec!["staff".to_string(), "supergroup".to_string()] };
        let caller = Caller { session: SessionId(8), call: 1, floor: 0 };
        world.ask_as(caller, Request::OpenSession { user }).expect("answered").expect("opened");
        // Without a number, so not remembered.
        world.ask_as(Caller { call: 0, ..caller }, mkdir("/a")).expect("answered").expect("mkdir");
        let unnumbered = Caller { session: SESSION, call: 0, floor: 0 };
        let set = Request::SetAttributes { path: path("/a"), new: new.clone() };
        world.ask_as(unnumbered, set).expect("answered").expect("set");
        world.next_call += 1;
        let (name, value) = ("user.a".to_string(), Some(vec![0, 1, 255]));
        world.ask(Request::SetXattr { path: path("/a"), name, value }).expect("set");
    });
    is_golden(&written, "log-4-attributes");
}

/// Rot in the log is refused or is the lost tail; it never panics, and what is served afterwards is a state that once was.
#[test]
fn rotten_log() {
    let random = SimRandom::new(77);
    let (mut refused, mut opened) = (0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for number in 0..10 {
            world.ask(mkdir(&format!("/d{number}"))).expect("mkdir");
        }
        world.power_off(seed);
        let at = random.below(16 * BLOCK as u64) / BLOCK as u64 * BLOCK as u64 + random.below(120);
        world.device.rot(SEGMENT, at, random.below(8) as u32);
        match world.try_open() {
            Ok(()) => {
                opened += 1;
                let names: Vec<String> = world.dump().into_keys().collect();
                let expected: Vec<String> = (0..names.len()).map(|number| format!("/d{number}")).collect();
                assert_eq!(names, expected, "seed {seed}");
            }
            Err(error) => {
                refused += 1;
                assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "seed {seed}: {error}");
            }
        }
    }
    assert!(refused > 30 && opened > 0, "refused {refused}, opened {opened}");
}

/// A damaged group behind those that were merged is not the end of the log while others follow it: then the log is refused. Only the very
/// last one may be taken for a group that was never acknowledged (docs/internals/metadata-log.md).
#[test]
fn rot_behind_what_was_merged() {
    let mut refused = 0;
    for block in 0..16 {
        let mut world = World::new(5);
        let make = |world: &mut World, numbers: std::ops::Range<u32>| {
            numbers.for_each(|number| drop(world.ask(mkdir(&format!("/d{number}"))).expect("mkdir")));
        };
        make(&mut world, 0..5);
        world.merge();
        make(&mut world, 5..10);
        world.power_off(5);
        world.device.rot(SEGMENT, block * BLOCK as u64 + 70, 3);
        let before = tree_of(&world);
        match world.try_open() {
            Ok(()) => assert!(world.dump().len() >= 9, "block {block}: only {:?} are left", world.dump().into_keys()),
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Corrupt, "block {block}: {error}");
                assert!(tree_of(&world) == before, "block {block}: the tree was changed, though that said nothing was");
            }
        }
    }
    assert!(refused >= 4, "{refused}");
}

/// A log without its tree is refused: the tree had what the log has no more.
#[test]
fn lost_tree() {
    let mut world = World::new(3);
    world.ask(mkdir("/a")).expect("mkdir");
    world.power_off(0);
    world.file = sim::file::SimFileDevice::new();
    let refused = world.try_open().map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Corrupt));
    // The log alone, or the votes alone, tell as much.
    let mut disk = world.device.attach();
    for file in [0, 1].map(|number| FileName::new(FileKind::Vote, number)) {
        wait(&mut disk, Op::Remove { file }).expect("removed");
    }
    drop(disk);
    world.device.kill();
    let refused = world.try_open().map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Corrupt));
}
