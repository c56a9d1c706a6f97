//! What a newer program has written into the metadata: a newer format is refused as it is; groups of kinds that are not known, and
//! notes of gateways that are not, are kept.

use crate::stored::{Merged, SEGMENT, add_group, log_of, make_older, merged_of, put_into_tree, tree_of, value, write};
use crate::world::{World, append, create, delete, mkdir, path, stat};
use base::attributes::NewAttributes;
use base::disk::FileName;
use base::env::Random;
use base::error::{Error, ErrorKind};
use base::id::{ChunkId, DeviceId, GroupId};
use base::limit::BLOCK;
use base::version::ProgramVersion;
use meta::request::{FileHandle, FileRef};
use meta::{Reply, Request};
use prost::Message;
use sim::random::SimRandom;
use std::time::Duration;

fn is_newer(error: &Error, says: &str) {
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let text = error.text();
    assert!(text.starts_with("newer: ") && text.contains("data is safe") && text.contains(says), "{text}");
}

fn key(ordinal: u8, number: u64) -> Vec<u8> {
    [&[ordinal][..], &number.to_be_bytes()].concat()
}

fn closed(world: &mut World, name: &str) -> FileHandle {
    let Ok(Reply::Handle(file)) = world.ask(create(name)) else { panic!("{name} was not made") };
    let finished = Some((file.group.group, 1000));
    let (inode, generation) = (file.inode, file.generation);
    world.ask(Request::Close { inode, generation, finished, modified: None, mode: None }).expect("closed");
    file
}

fn all_bytes(world: &World) -> Vec<(FileName, Vec<u8>)> {
    world.device.files().into_iter().map(|(name, _)| (name, world.device.peek(name))).collect()
}

/// Tags 8 to 10 of `GroupRecord`: kind 7, k 6, m 3.
const CODED: [u8; 6] = [0x40, 7, 0x48, 6, 0x50, 3];

/// A file in a group of a kind that is not known is listed and renamed; to read, append, cut or delete it is refused as newer, and its
/// group is neither moved nor collected nor written anew, nor are its chunks said to be nobody's. Everything else goes on.
#[test]
fn groups_of_unknown_kinds_are_kept() {
    let mut world = World::new(1);
    world.ask(mkdir("/d")).expect("mkdir");
    let (file, other) = (closed(&mut world, "/d/f"), closed(&mut world, "/d/g"));
    let group = file.group.group;
    let (device, chunk) = (file.group.layout.columns()[0].head(), file.group.layout.columns()[0].chunk());
    world.power_off(1);
    let record = key(0x13, group.0);
    let coded = [&value(&world, &record).expect("a record")[..], &CODED].concat();
    write(&world, &record, &coded);
    for _ in 0..2 {
        world.open();
        let list = Request::List { path: path("/d"), after: None, limit: 9, located: true, also: Vec::new() };
        let Ok(Reply::Entries { entries, .. }) = world.ask(list) else { panic!("no list") };
        let told = |name: &str| entries.iter().find(|entry| entry.name == name).map(|entry| entry.extents.len());
        assert_eq!(told("f"), Some(0), "it is listed, without its place");
        assert!(told("g").is_none_or(|count| count == 1), "others have theirs");
        let attributes = world.ask(stat("/d/f"));
        assert!(matches!(attributes, Ok(Reply::Attributes(found)) if found.length == 1000));
        let refused = [
            Request::Locate { file: FileRef::Path(path("/d/f")), offset: 0, length: 10 },
            Request::Truncate { path: path("/d/f"), length: 10 },
            Request::Truncate { path: path("/d/f"), length: 0 },
            delete("/d/f"),
            Request::MoveGroup { group, chunk, from: device, to: DeviceId(3 - device.0) },
        ];
        for request in refused {
            let shown = format!("{request:?}");
            let error = world.ask(request).map(|reply| panic!("{shown}: {reply:?}")).expect_err("newer");
            is_newer(&error, "kind 7 with 6 data and 3 parity");
        }
        let Ok(Reply::GroupsOn { groups, .. }) = world.ask(Request::GroupsOn { device, after: None, limit: 100 })
        else {
            panic!("no groups")
        };
        assert!(groups.iter().all(|on| on.group != group), "it would be moved");
        let Ok(Reply::Known(known)) = world.ask(Request::KnownGroups { groups: vec![group, other.group.group] }) else {
            panic!("no answer")
        };
        assert_eq!(known.iter().map(|group| group.layout.is_none()).collect::<Vec<_>>(), [true, false]);
        world.crash(3);
        assert_eq!(value(&world, &record), Some(coded.clone()), "its record was changed");
        world.power_off(4);
    }
    world.open();
    let rename = Request::Rename { from: path("/d/f"), to: path("/d/h"), replace: false, removes: false };
    world.ask(rename).expect("renamed");
    world.ask(delete("/d/g")).expect("deleted");
    assert_eq!(garbage(&mut world), [other.group.group]);
    world.ask(append("/d/h")).expect("opened, for a group of its own");
}

/// A stored column whose chunk has replicas on these devices: tag 1 of `GroupRecord`, in it tag 1 for each replica.
fn stored_column(devices: &[DeviceId], chunks: &[ChunkId]) -> Vec<u8> {
    let replica = |(device, chunk): (&DeviceId, &ChunkId)| {
        [&[0x0a, 36, 0x0a, 16][..], &device.to_bytes(), &[0x12, 16], &chunk.to_bytes()].concat()
    };
    let replicas = devices.iter().zip(chunks).flat_map(replica).collect::<Vec<u8>>();
    [&[0x0a, replicas.len() as u8][..], &replicas].concat()
}

/// A group whose column has replicas is located with all of them, a replica is moved by itself and never onto a device that has another
/// one, and all of that survives a restart.
#[test]
fn replicas_are_kept() {
    let mut world = World::new(1);
    let file = closed(&mut world, "/f");
    let (group, column) = (file.group.group, file.group.layout.columns()[0].clone());
    let (head, other, chunk) = (column.head(), DeviceId(3 - column.head().0), column.chunk());
    let record = key(0x13, group.0);
    world.power_off(1);
    let (single, stored) = (stored_column(&[head], &[chunk]), value(&world, &record).expect("a record"));
    let rest = stored.strip_prefix(&single[..]).expect("its one column comes first").to_vec();
    let far = DeviceId(9);
    write(&world, &record, &[stored_column(&[head, far], &[chunk, chunk]), rest].concat());
    world.open();
    let layout =
        |world: &mut World| match world.ask(Request::Locate { file: FileRef::Path(path("/f")), offset: 0, length: 10 })
        {
            Ok(Reply::Located(located)) => Ok(located.groups[0].layout.clone()),
            Err(error) => Err(error),
            other => panic!("{other:?}"),
        };
    let devices = |world: &mut World| layout(world).expect("located").columns()[0].devices().collect::<Vec<_>>();
    assert_eq!(devices(&mut world), [head, far]);
    let to_itself = Request::MoveGroup { group, chunk, from: far, to: head };
    assert_eq!(world.refusal(to_itself), ErrorKind::Stale, "two replicas on one device");
    world.ask(Request::MoveGroup { group, chunk, from: far, to: other }).expect("moved");
    world.ask(Request::MoveGroup { group, chunk, from: far, to: other }).expect("asked again");
    world.crash(2);
    assert_eq!(devices(&mut world), [head, other]);
    let Ok(Reply::GroupsOn { groups, .. }) = world.ask(Request::GroupsOn { device: other, after: None, limit: 9 })
    else {
        panic!("no groups")
    };
    assert_eq!(groups.iter().map(|on| on.group).collect::<Vec<_>>(), [group]);
}

/// A program that does not know the index from devices to groups changes groups and leaves the index as it is, and its mark out: the next
/// one finds what lies on a device all the same.
#[test]
fn older_programs_leave_no_index() {
    let mut world = World::new(1);
    let (file, group) = (closed(&mut world, "/f"), GroupId(99));
    let column = file.group.layout.columns()[0].clone();
    let groups_on =
        |world: &mut World| match world.ask(Request::GroupsOn { device: column.head(), after: None, limit: 9 }) {
            Ok(Reply::GroupsOn { groups, .. }) => groups.iter().map(|on| on.group).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
    world.power_off(1);
    let record = value(&world, &key(0x13, file.group.group.0)).expect("a record");
    world.open();
    assert_eq!(groups_on(&mut world), [file.group.group]);
    world.power_off(2);
    put_into_tree(&world, &key(0x13, group.0), Some(&record));
    world.open();
    assert_eq!(groups_on(&mut world), [file.group.group], "the tree has a mark, and no entry for the other");
    world.power_off(3);
    make_older(&world, "", false);
    world.open();
    assert_eq!(groups_on(&mut world), [file.group.group, group]);
}

/// A record of a group that no group can have is damage, which reading the file says; nothing of it is taken for a layout.
#[test]
fn impossible_layouts_are_damage() {
    let (device, chunk, other) = (DeviceId(1), ChunkId(5), ChunkId(6));
    let two_names = stored_column(&[device, DeviceId(2)], &[chunk, other]);
    let twice = stored_column(&[device, device], &[chunk, chunk]);
    let two_columns_of_one_name =
        [stored_column(&[device], &[chunk]), stored_column(&[DeviceId(2)], &[chunk])].concat();
    for columns in [two_names, twice, two_columns_of_one_name, vec![0x0a, 0], Vec::new()] {
        let mut world = World::new(1);
        let group = closed(&mut world, "/f").group.group;
        world.power_off(1);
        write(&world, &key(0x13, group.0), &[columns, vec![0x10, 1, 0x18, 10, 0x38, 128, 32]].concat());
        world.open();
        let locate = Request::Locate { file: FileRef::Path(path("/f")), offset: 0, length: 10 };
        assert_eq!(world.refusal(locate), ErrorKind::Corrupt);
    }
}

fn garbage(world: &mut World) -> Vec<GroupId> {
    let Ok(Reply::Garbage(garbage)) = world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 100 })
    else {
        panic!("no garbage")
    };
    garbage.groups.iter().map(|group| group.group).collect()
}

/// A directory that was deleted is taken apart up to such a file; that one waits for the newer program, and holds up nothing else.
#[test]
fn taking_apart_passes_them_over() {
    let mut world = World::new(2);
    for directory in ["/d", "/e"] {
        world.ask(mkdir(directory)).expect("mkdir");
    }
    let (file, other) = (closed(&mut world, "/d/f"), closed(&mut world, "/e/g"));
    world.power_off(1);
    let record = key(0x13, file.group.group.0);
    let coded = [&value(&world, &record).expect("a record")[..], &CODED].concat();
    write(&world, &record, &coded);
    write(&world, &key(0x31, file.group.group.0), &[]);
    world.open();
    world.ask(delete("/d")).expect("deleted");
    world.ask(delete("/e")).expect("deleted");
    world.pass(Duration::from_secs(2));
    assert_eq!(garbage(&mut world), [other.group.group]);
    let collected = Request::Collected { groups: vec![file.group.group], ranges: vec![], bags: vec![] };
    is_newer(&world.ask(collected).expect_err("it is not this program's to collect"), "kind 7");
    world.ask(mkdir("/d")).expect("the name is free");
    assert_eq!(value(&world, &record), Some(coded));
}

/// What another gateway keeps with a file stays with it, whatever is changed of the file.
#[test]
fn notes_of_other_gateways_are_kept() {
    let mut world = World::new(3);
    let file = closed(&mut world, "/f");
    world.power_off(1);
    let record = key(0x11, file.inode.0);
    // Tag 22: gateway 9, note "abc".
    let note = [0xB2, 0x01, 7, 0x08, 9, 0x12, 3, b'a', b'b', b'c'];
    write(&world, &record, &[&value(&world, &record).expect("a record")[..], &note].concat());
    world.open();
    let new = NewAttributes { mode: Some(0o600), note: Some(vec![1]), ..NewAttributes::default() };
    world.ask(Request::SetAttributes { path: path("/f"), new }).expect("set");
    world.ask(Request::Truncate { path: path("/f"), length: 10 }).expect("cut");
    let rename = Request::Rename { from: path("/f"), to: path("/g"), replace: false, removes: false };
    world.ask(rename).expect("renamed");
    let kept = value(&world, &record).expect("a record");
    assert!(kept.windows(note.len()).any(|bytes| bytes == note), "{kept:02x?}");
}

/// A newer format is refused by its name, and no byte of log or tree is another afterwards.
#[test]
fn a_newer_format_is_refused() {
    let mut world = World::new(4);
    world.ask(mkdir("/d")).expect("mkdir");
    world.merge();
    world.power_off(1);
    let least = ProgramVersion { major: 9, minor: 1, patch: 2 }.to_number();
    let newer = Merged { version: 7, least, ..merged_of(&world) };
    put_into_tree(&world, &[1], Some(&newer.encode_to_vec()));
    let before = (all_bytes(&world), tree_of(&world));
    let refused = world.try_open().expect_err("it is newer");
    is_newer(&refused, "the metadata has format version 7");
    is_newer(&refused, "use a version of at least 9.1.2");
    assert!((all_bytes(&world), tree_of(&world)) == before, "what was refused has other bytes now");
}

/// Metadata that several keep are refused where one keeps them alone, and say with what they are opened.
#[test]
fn several_keep_them() {
    let mut world = World::new(4);
    world.ask(mkdir("/d")).expect("mkdir");
    world.power_off(1);
    // Tag 1: sixteen bytes; tag 2, packed: three numbers.
    let keepers = [&[0x0a, 16][..], &[7; 16], &[0x12, 3, 1, 2, 3, 0x18, 4]].concat();
    put_into_tree(&world, &[3], Some(&keepers));
    let refused = world.try_open().expect_err("others may have acknowledged more");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
    let text = refused.text();
    assert!(
        text.contains("kept by 3 nodes") && text.contains("nothing was changed") && text.contains("`keepers`"),
        "{text}"
    );
}

/// Bytes behind the end of an older log that look like the header of a newer version's group and are none, as what a client wrote may in a group that
/// a power loss has torn, are passed over: the store opens with all it had.
#[test]
fn bytes_that_look_newer_are_no_group() {
    let mut world = World::new(5);
    world.are_counted = false;
    world.power_off(1);
    let log = include_str!("golden/log-3.hex");
    make_older(&world, log, true);
    let mut header = b"SWmetalg".to_vec();
    header.extend([99u32.to_le_bytes(), 1u32.to_le_bytes()].concat());
    header.extend(&world.device.peek(SEGMENT)[16..24]);
    header.extend([50u64, 50, 10].map(u64::to_le_bytes).concat());
    header.resize(64 + 10, 7);
    world.device.poke(SEGMENT, (log.split("\n\n").count() * BLOCK) as u64, &header);
    world.open();
    world.ask(stat("/a/f")).expect("it is there");
    world.ask(mkdir("/e")).expect("and the log goes on");
}

/// Groups with a right checksum and whatever bytes in them, numbers that nobody would write included, are refused or passed over.
#[test]
fn fuzz_log() {
    for seed in sim::fuzz::seeds(30) {
        let random = SimRandom::new(seed);
        let mut world = World::new(seed);
        world.ask(mkdir("/d")).expect("mkdir");
        world.power_off(1);
        let sequence = log_of(&world).last().expect("a change").0 + 1;
        let number = |usual: u32| if random.one_in(3) { random.next() as u32 >> random.below(32) } else { usual };
        let value: Vec<u8> = (0..random.below(200)).map(|_| random.next() as u8).collect();
        let mut entry = sequence.to_le_bytes().to_vec();
        entry.extend(number(1).to_le_bytes());
        entry.extend((number(9) as u16).to_le_bytes());
        entry.extend(number(value.len() as u32).to_le_bytes());
        entry.extend(key(random.next() as u8 % 0x30, random.next()));
        entry.extend(value);
        entry.truncate(random.below(2 * entry.len() as u64 + 1) as usize);
        if entry.is_empty() {
            continue;
        }
        add_group(&world, entry);
        if let Err(error) = world.try_open() {
            let text = error.text();
            assert!(text.contains("nothing was changed") || text.contains("does not read"), "seed {seed}: {error}");
        }
    }
}
