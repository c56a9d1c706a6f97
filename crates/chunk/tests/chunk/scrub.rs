//! Scrubs: everything that is alive is read, at the rate asked for, and damage is found where it is.

use crate::world::{World, append, bytes, small};
use base::disk::{FileKind, FileName};
use base::id::{BagId, ChunkId, GroupId, Owner};
use base::policy::Level;
use base::unit::{KIB, MIB};
use chunk::Request;
use chunk::scrub::{Scrub, ScrubReport};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::time::Duration;

const FILE: Owner = Owner::Group(GroupId(7));

fn opened(seed: u64) -> (SimDevice, SimRandom, World) {
    let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
    let world = World::open(&device, &small(64 * MIB)).unwrap_or_else(|error| panic!("{error}")).0;
    (device, random, world)
}

/// Runs a scrub to its end; `between` is called before each step. Returns what it found.
fn run(world: &mut World, rate: u64, mut between: impl FnMut(&mut World)) -> ScrubReport {
    let mut scrub = Scrub::begin(world.now, rate);
    while !scrub.report().over {
        between(world);
        match scrub.next(world.now, false, &world.engine) {
            Some(request) => {
                let answer = world.call(request);
                scrub.took(&answer, &world.engine);
            }
            None => {
                let due = scrub.next_due(false).unwrap_or(world.now);
                world.later(due.since(world.now));
            }
        }
    }
    scrub.report().clone()
}

/// Every live byte is read once, records, tails and all; what was released or deleted is not; and no faster than it may.
#[test]
fn reads_what_is_alive() {
    let (_, random, mut world) = opened(1);
    world.push(Owner::Bag(BagId(2)), 1, &bytes(&random, 1_000_000)).expect("pushed");
    for offset in [0, MIB] {
        let piece = bytes(&random, MIB as usize);
        world.call(append(FILE, ChunkId(2), offset, &piece, Level::Synced, offset > 0)).expect("appended");
    }
    world.call(append(FILE, ChunkId(3), 0, &bytes(&random, 5000), Level::Synced, false)).expect("appended");
    world.push(FILE, 4, &bytes(&random, 1_000_000)).expect("pushed");
    world.call(Request::Delete { chunks: vec![ChunkId(4)] }).expect("deleted");
    let ranges = vec![(100, 1000), (MIB, MIB / 2)];
    world.call(Request::Release { chunk: ChunkId(2), ranges }).expect("released");
    let before = world.now;
    let report = run(&mut world, MIB, |_| ());
    let alive = 1_000_000 + 2 * MIB - 1000 - MIB / 2 + 5000;
    assert_eq!((report.chunks, report.bytes, report.damaged.len()), (3, alive, 0), "{report:?}");
    // The wait after the last step is not needed.
    let took = world.now.since(before).as_nanos() as u64;
    assert!(took >= (alive - MIB) * 1_000_000_000 / MIB - 1000, "{alive} bytes took {took} ns");
}

/// One rotten bit costs one block; the ranges say where, and everything else is compared all the same. A disk that refuses
/// to read is told from one that returns other bytes.
#[test]
fn finds_rot_where_it_is() {
    let (device, random, mut world) = opened(2);
    world.push(FILE, 1, &bytes(&random, MIB as usize)).expect("pushed");
    world.push(FILE, 2, &bytes(&random, 300_000)).expect("pushed");
    // Behind the record's header.
    let at = 4096 + 200 * 4096 + 5;
    device.rot(FileName::new(FileKind::Data, 0), at, 3);
    let report = run(&mut world, 1 << 40, |_| ());
    let [found] = report.damaged[..] else { panic!("{report:?}") };
    assert_eq!((found.chunk, found.owner, found.unreadable), (ChunkId(1), FILE, false));
    assert_eq!((found.start, found.end), (200 * 4096, 201 * 4096));
    assert_eq!((report.bytes, report.damaged_bytes), (MIB + 300_000, 4096));
    assert_eq!(world.engine.usage().damaged, 1, "one chunk is damaged, however often it was read");
    device.set_faults(SimFaults { read_error: When::Always, ..SimFaults::default() });
    let report = run(&mut world, 1 << 40, |_| ());
    assert!(report.damaged.iter().all(|found| found.unreadable), "{report:?}");
    assert_eq!(report.damaged_bytes, MIB + 300_000);
}

/// Chunks that are deleted, released and made while it goes on disturb nothing, and are no damage.
#[test]
fn the_device_changes_meanwhile() {
    let (_, random, mut world) = opened(3);
    for id in 1..=20 {
        world.push(FILE, id, &bytes(&random, 400_000)).expect("pushed");
    }
    let mut step = 0;
    let report = run(&mut world, 1 << 40, |world| {
        step += 1;
        match step {
            3 => drop(world.call(Request::Delete { chunks: (1..=10).map(ChunkId).collect() }).expect("deleted")),
            5 => drop(world.push(FILE, 30, &bytes(&random, 64 * KIB as usize)).expect("pushed")),
            7 => {
                let ranges = vec![(0, 399_999)];
                let release = |id| Request::Release { chunk: ChunkId(id), ranges: ranges.clone() };
                (12..=20).for_each(|id| drop(world.call(release(id)).expect("released")));
            }
            _ => (),
        }
    });
    assert!(report.over && report.damaged.is_empty() && report.not_listed == 0, "{report:?}");
}

/// A disk with other work is left alone for a while, and not for ever.
#[test]
fn foreground_first() {
    let (_, random, mut world) = opened(4);
    world.push(FILE, 1, &bytes(&random, 400_000)).expect("pushed");
    let mut scrub = Scrub::begin(world.now, 1 << 40);
    assert!(scrub.next(world.now, true, &world.engine).is_none());
    let later = scrub.next_due(true).expect("it goes on");
    assert!(later > world.now && later.since(world.now) < Duration::from_secs(1));
    assert!(scrub.next(later, true, &world.engine).is_some());
    assert!(scrub.next_due(false).is_none(), "it waits for the answer");
}
