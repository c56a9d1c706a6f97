//! Ends of chunks that an opening passes over, because a power loss took the record that their bytes had been folded into, and makes again.

use crate::world::{World, append, bytes, small};
use base::disk::FileKind;
use base::id::{ChunkId, Generation, GroupId, Owner};
use base::policy::Level;
use base::unit::MIB;
use chunk::{Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;

const FILE: Owner = Owner::Group(GroupId(1));
const CHUNK: ChunkId = ChunkId(0);
const LENGTH: u64 = 16 << 10;

fn faults() -> SimFaults {
    SimFaults { forgets: Some(FileKind::Data), ..SimFaults::default() }
}

/// A device on which the end of a chunk was asked for, and the power lost `changes` operations later, with all data that was not synced. Its
/// first segment is in use.
fn ended_and_lost(seed: u64, changes: u64, settings: &Settings) -> SimDevice {
    let (random, device) = (SimRandom::new(seed), SimDevice::new(seed, faults()));
    let (mut world, _) = World::open(&device, settings).expect("a fresh device");
    for (chunk, length) in [(ChunkId(5), 100_000), (CHUNK, LENGTH as usize), (ChunkId(9), 4096)] {
        world.call(append(FILE, chunk, 0, &bytes(&random, length), Level::Synced, false)).expect("appended");
    }
    let crash_at = Some(device.operations().changes() + changes);
    device.set_faults(SimFaults { crash_at, ..faults() });
    drop(world.try_call(Request::Seal { chunk: CHUNK, generation: Generation(1), length: LENGTH }));
    drop(world);
    device.crash();
    device.set_faults(faults());
    device
}

fn is_sealed(world: &mut World) -> bool {
    let Ok(Reply::Stat(stat)) = world.call(Request::Stat { chunk: CHUNK }) else { panic!("it is gone") };
    assert_eq!(stat.length, LENGTH);
    stat.sealed
}

/// Every seed with every place at which the power may go.
fn cases() -> impl Iterator<Item = (u64, u64)> {
    (0..20).flat_map(|seed| (0..6).map(move |changes| (seed, changes)))
}

fn settings() -> Settings {
    Settings { tails_max: 16 << 10, ..small(64 * MIB) }
}

/// A chunk that was seen sealed stays so, however often the power goes.
#[test]
fn made_again_for_good() {
    let mut seen = 0;
    for (seed, changes) in cases() {
        let device = ended_and_lost(seed, changes, &settings());
        let mut before = false;
        for life in 0..3 {
            let (mut world, _) = World::open(&device, &settings()).expect("it opens");
            let sealed = is_sealed(&mut world);
            assert!(sealed || !before, "seed {seed}, {changes} changes: sealed in life {}, open in the next", life - 1);
            before = sealed;
            seen += usize::from(sealed);
            drop(world);
            device.crash();
        }
    }
    assert!(seen > 0, "none was sealed");
}

/// Whoever fenced a chunk whose end found no room was told that it is open: it stays open.
#[test]
fn open_for_whoever_fenced_it() {
    let mut open = 0;
    for (seed, changes) in cases() {
        let device = ended_and_lost(seed, changes, &settings());
        // The file system is full.
        device.set_faults(SimFaults { capacity: Some(0), ..faults() });
        let Ok((mut world, _)) = World::open(&device, &settings()) else { continue };
        let sealed = is_sealed(&mut world);
        let fenced = world.try_call(Request::Fence { chunk: CHUNK, generation: Generation(1) });
        drop(world);
        device.crash();
        device.set_faults(faults());
        if !sealed && matches!(fenced, Some(Ok(_))) {
            let (mut world, _) = World::open(&device, &settings()).expect("it opens");
            assert!(!is_sealed(&mut world), "seed {seed}, {changes} changes");
            let more = bytes(&SimRandom::new(seed), 1000);
            world.call(append(FILE, CHUNK, LENGTH, &more, Level::Synced, false)).expect("appended");
            open += 1;
        }
    }
    assert!(open > 0, "none was open");
}
