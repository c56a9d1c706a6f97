//! Space comes back after deletes, by itself and soon.

use crate::world::{World, append, bytes, small};
use base::error::ErrorKind;
use base::id::{BagId, ChunkId, GroupId, Owner};
use base::limit::FULL_WAIT;
use base::policy::Level;
use base::unit::{KIB, MIB};
use bytes::Bytes;
use chunk::{Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::time::Duration;

const BAG: Owner = Owner::Bag(BagId(2));
const FILE: Owner = Owner::Group(GroupId(1));

/// Lets ten seconds pass, as the thread of a device does: it ticks when the engine wants to be ticked.
fn ten_seconds(world: &mut World) {
    let end = world.now.after(Duration::from_secs(10));
    world.settle();
    while let Some(due) = world.engine.next_tick().filter(|due| *due <= end) {
        world.later(due.since(world.now));
        world.settle();
    }
}

/// What the brief of every store is measured by: what is used beside what lives, and the reserve.
fn assert_came_back(world: &World, what: &str) {
    let usage = world.engine.usage();
    let most = usage.live + usage.live / 10 + usage.reserve;
    assert!(usage.used <= most, "{what}: {} used of at most {most}, {} live", usage.used, usage.live);
}

/// With 90 % of the chunks deleted, used space is at most 1.1 times what lives and the reserve within ten seconds, whatever
/// the chunks' sizes and whichever are deleted; nothing but time passes.
#[test]
fn deleted_space_comes_back() {
    for (seed, length) in [(1, 100 * KIB), (2, MIB), (3, 300 * KIB)] {
        for scattered in [false, true] {
            let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
            let settings = Settings { checkpoint_bytes: 64 * MIB, ..small(96 * MIB) };
            let (mut world, _) = World::open(&device, &settings).expect("opened");
            let count = u128::from(50 * MIB / length);
            let content = bytes(&random, length as usize);
            for id in 0..count {
                world.push(BAG, id, &content).expect("pushed");
            }
            let keep = |id: &u128| if scattered { id % 10 == 3 } else { *id < count / 10 };
            let chunks = (0..count).filter(|id| !keep(id)).map(ChunkId).collect();
            assert_eq!(world.call(Request::Delete { chunks }), Ok(Reply::Done));
            ten_seconds(&mut world);
            assert_came_back(&world, &format!("chunks of {length}, scattered {scattered}"));
            device.crash();
            let (mut world, _) = World::open(&device, &settings).expect("opened");
            ten_seconds(&mut world);
            assert_came_back(&world, "after a restart");
            for id in (0..count).filter(keep) {
                assert_eq!(world.read_all(ChunkId(id)).expect("read"), content);
            }
        }
    }
}

/// What is released while it is gathered, before it is in a record, is released for good: its space comes back when the record is written,
/// and it is released after a restart, also if the chunk had no record at all by then.
#[test]
fn released_while_it_is_gathered() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &small(96 * MIB)).expect("opened");
    let (id, piece) = (ChunkId(1), bytes(&random, 16 * KIB as usize));
    let mut length = 0;
    let mut append_one = |world: &mut World, level: Level, release: bool| {
        world.call(append(FILE, id, length, &piece, level, false)).expect("appended");
        if release {
            world.call(Request::Release { chunk: id, ranges: vec![(length, 16 * KIB)] }).expect("released");
        }
        length += 16 * KIB;
    };
    append_one(&mut world, Level::Received, true);
    append_one(&mut world, Level::Synced, false);
    let kept = [(16 * KIB, 32 * KIB)];
    assert_eq!(world.engine.kept_ranges(id), kept);
    device.crash();
    let (mut world, _) = World::open(&device, &small(96 * MIB)).expect("opened");
    assert_eq!(world.engine.kept_ranges(id), kept);
    for _ in 0..40 * 64 {
        append_one(&mut world, Level::Written, true);
    }
    for again in [false, true] {
        assert_eq!(world.engine.kept_ranges(id), kept, "{again}");
        ten_seconds(&mut world);
        let usage = world.engine.usage();
        // Of 40 MiB: two segments, the checkpoints (up to 6 MiB, for each holds what is gathered), and the early file.
        assert!(usage.used < usage.reserve + 10 * MIB, "{again}: {} used", usage.used);
        device.crash();
        world = World::open(&device, &small(96 * MIB)).expect("opened").0;
    }
}

/// What comes to an open chunk where it was released before is released, too: an append of a writer that went on elsewhere may come late. Its
/// space comes back, also when a power loss comes first and it is read from the log.
#[test]
fn released_before_it_comes() {
    let (device, random) = (SimDevice::new(2, SimFaults::default()), SimRandom::new(2));
    let settings = Settings { checkpoint_bytes: 64 * MIB, ..small(96 * MIB) };
    let (mut world, _) = World::open(&device, &settings).expect("opened");
    let (id, large) = (ChunkId(1), bytes(&random, MIB as usize));
    world.call(append(FILE, id, 0, &large, Level::Synced, false)).expect("appended");
    world.call(Request::Release { chunk: id, ranges: vec![(1000, u64::MAX - 1000)] }).expect("released");
    for number in 1..32 {
        world.call(append(FILE, id, number * MIB, &large, Level::Synced, false)).expect("appended");
    }
    for again in [false, true] {
        device.crash();
        world = World::open(&device, &settings).expect("opened").0;
        assert_eq!(world.engine.kept_ranges(id), [(0, 1000)], "{again}");
        assert_eq!(world.read_part(id, (0, 1000)).expect("read"), large[..1000]);
        let late = world.read_part(id, (5 * MIB, 1)).expect_err("released");
        assert_eq!(late.kind(), ErrorKind::NotFound);
        ten_seconds(&mut world);
        let usage = world.engine.usage();
        assert!(usage.used < usage.reserve + 8 * MIB, "{again}: {} used", usage.used);
    }
    world.call(Request::Delete { chunks: vec![id] }).expect("deleted");
    assert_eq!(world.engine.usage().live, 0);
}

/// Pushes chunks until one waits for room: how many were stored, and the tag of that one.
fn fill(world: &mut World, content: &Bytes) -> (u128, u64) {
    for stored in 0..64 {
        let tag = world.submit(append(BAG, ChunkId(stored), 0, content, Level::Synced, true));
        world.settle();
        if world.replies.remove(&tag).is_none() {
            return (stored, tag);
        }
    }
    panic!("it is never full");
}

/// A full device serves reads and deletes, says that it is full, and takes writes again when space came back, without help.
#[test]
fn a_full_device_comes_back() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &small(24 * MIB)).expect("opened");
    let content = bytes(&random, MIB as usize);
    let (stored, _) = fill(&mut world, &content);
    let tail = bytes(&random, 1000);
    for id in 0..stored {
        assert_eq!(world.read_all(ChunkId(id)).expect("read on a full device"), content);
    }
    world.later(FULL_WAIT);
    world.settle();
    assert!(!world.replies.is_empty(), "the one that waits is not told");
    let chunks = (0..stored / 2).map(ChunkId).collect();
    assert_eq!(world.call(Request::Delete { chunks }), Ok(Reply::Done));
    ten_seconds(&mut world);
    for id in 100..103 {
        world.push(BAG, id, &content).expect("pushed when space came back");
    }
    world.call(append(Owner::Group(GroupId(1)), ChunkId(500), 0, &tail, Level::Synced, false)).expect("appended");
    assert!(!world.engine.usage().full);
}

/// What waits for room to change one chunk is given back in its order, and nothing of it is done when room comes; what waits for others is.
#[test]
fn what_waits_is_given_back() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &small(24 * MIB)).expect("opened");
    let content = bytes(&random, MIB as usize);
    let (stored, waiting) = fill(&mut world, &content);
    let (leaving, stays) = (ChunkId(1000), ChunkId(1001));
    let ask = |world: &mut World, chunk, at: u64| {
        let group = Owner::Group(GroupId(1));
        world.submit(append(group, chunk, at * MIB, &content, Level::Written, false))
    };
    let tags = [ask(&mut world, leaving, 0), ask(&mut world, leaving, 1)];
    let other = ask(&mut world, stays, 0);
    world.settle();
    let given = world.engine.give_back(leaving);
    let offsets: Vec<(u64, u64)> = given
        .into_iter()
        .map(|(request, tag)| match request {
            Request::Append { chunk, offset, .. } if chunk == leaving => (offset, tag),
            request => panic!("{request:?} did not wait to change it"),
        })
        .collect();
    assert_eq!(offsets, [(0, tags[0]), (MIB, tags[1])]);
    let chunks = (0..stored).map(ChunkId).collect();
    assert_eq!(world.call(Request::Delete { chunks }), Ok(Reply::Done));
    ten_seconds(&mut world);
    for tag in [waiting, other] {
        assert_eq!(world.replies.remove(&tag), Some(Ok(Reply::Appended { length: MIB })));
    }
    assert!(!world.engine.holds(leaving) && world.engine.holds(stays));
    assert!(tags.iter().all(|tag| !world.replies.contains_key(tag)), "nobody answers for it");
}

/// On a full device a sync of what is written is done at once, and one behind bytes of its chunk that wait for room waits with them.
#[test]
fn a_sync_needs_no_room() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &small(24 * MIB)).expect("opened");
    let (group, chunk, content) = (Owner::Group(GroupId(1)), ChunkId(1000), bytes(&random, MIB as usize));
    let written = append(group, chunk, 0, &bytes(&random, 1000), Level::Written, false);
    assert_eq!(world.call(written), Ok(Reply::Appended { length: 1000 }));
    let (stored, _) = fill(&mut world, &content);
    let sync = |at| append(group, chunk, at, &Bytes::new(), Level::Synced, false);
    assert_eq!(world.call(sync(1000)), Ok(Reply::Appended { length: 1000 }));
    let waiting = world.submit(append(group, chunk, 1000, &content, Level::Written, false));
    let behind = world.submit(sync(1000 + MIB));
    world.settle();
    assert!(!world.replies.contains_key(&waiting) && !world.replies.contains_key(&behind));
    assert_eq!(world.call(Request::Delete { chunks: (0..stored).map(ChunkId).collect() }), Ok(Reply::Done));
    ten_seconds(&mut world);
    for tag in [waiting, behind] {
        assert_eq!(world.replies.remove(&tag), Some(Ok(Reply::Appended { length: 1000 + MIB })));
    }
}

/// A device at rest stays at rest: dead space leads to a few checkpoints, not to one after another, also when the device failed.
#[test]
fn rest_is_rest() {
    for failing in [false, true] {
        let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
        let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
        let content = bytes(&random, 150_000);
        for id in 0..12 {
            world.push(BAG, id, &content).expect("pushed");
            assert_eq!(world.call(Request::Delete { chunks: vec![ChunkId(id)] }), Ok(Reply::Done));
        }
        if failing {
            device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
            world.push(BAG, 50, &content).expect_err("a device whose syncs fail takes no writes");
        }
        let mut ticks = 0;
        while let Some(due) = world.engine.next_tick() {
            world.later(due.since(world.now));
            world.settle();
            ticks += 1;
            assert!(ticks < 20, "it never comes to rest (failing: {failing})");
        }
    }
}
