//! Bytes of which less is stored than they are: cells. They are appended, read, released and scrubbed as a whole.

use crate::world::{World, append, append_cell, bytes, kind, restored, small, stands_for};
use base::disk::{Caching, FileKind, FileName};
use base::env::Random;
use base::error::ErrorKind;
use base::id::{BagId, ChunkId, GroupId, Owner};
use base::policy::Level;
use base::unit::{KIB, MIB};
use bytes::Bytes;
use chunk::scrub::Scrub;
use chunk::{Check, Reply, Request};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;
use std::time::Duration;

const FILE: Owner = Owner::Group(GroupId(7));
const CHUNK: ChunkId = ChunkId(1);
const CELL: usize = MIB as usize;

fn opened(seed: u64) -> (SimDevice, SimRandom, World) {
    let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
    let world = World::open(&device, &small(64 * MIB)).unwrap_or_else(|error| panic!("{error}")).0;
    (device, random, world)
}

fn cell(offset: u64, length: usize, stored: &Bytes) -> Request {
    append_cell(CHUNK, (offset, length), stored, append(FILE, CHUNK, offset, stored, Level::Synced, false))
}

/// A chunk of three cells with a few bytes behind the first; what is in it.
fn three_cells(world: &mut World, random: &SimRandom) -> Vec<u8> {
    let mut whole = Vec::new();
    for place in 0..3 {
        let stored = bytes(random, 100_000);
        world.call(cell(whole.len() as u64, CELL, &stored)).expect("a cell");
        whole.extend(stands_for(&stored, CELL));
        if place == 0 {
            let few = bytes(random, 300);
            world.call(append(FILE, CHUNK, whole.len() as u64, &few, Level::Written, false)).expect("appended");
            whole.extend_from_slice(&few);
        }
    }
    whole
}

/// Any range is read, over the bounds of cells and of bytes between them, before the records are written, after and after a
/// restart; and the device has only what is stored.
#[test]
fn any_range_is_read() {
    let (device, random, mut world) = opened(1);
    let whole = three_cells(&mut world, &random);
    for round in 0..2 {
        for _ in 0..200 {
            let (offset, length) = (random.below(whole.len() as u64), random.below(2 * MIB));
            let end = (offset + length).min(whole.len() as u64);
            let got = world.read_part(CHUNK, (offset, length)).expect("read");
            assert!(got == whole[offset as usize..end as usize], "{offset} {length}");
        }
        assert_eq!(world.engine.usage().live, 300_300, "round {round}");
        device.crash();
        world = World::open(&device, &small(64 * MIB)).expect("opened").0;
    }
    let stored = bytes(&random, 200_000);
    let tag = world.submit(cell(whole.len() as u64, CELL, &stored));
    world.effects();
    assert!(!world.replies.contains_key(&tag), "it is not written yet");
    let (ranges, caching, check) = (vec![(whole.len() as u64 + 5, 70)], Caching::Around, Check::ByBlocks);
    let read = world.submit(Request::Read { chunk: CHUNK, ranges, caching, check, cells: true });
    world.effects();
    let Some(Ok(Reply::Data { parts, cells, blocks, .. })) = world.replies.remove(&read) else { panic!("from memory") };
    assert!(blocks.is_empty(), "nobody takes the checksums of what is stored for those of the bytes");
    let got = restored(&parts.concat(), &cells, (whole.len() as u64 + 5, 70));
    assert!(got == stands_for(&stored, CELL)[5..75]);
}

/// An append that is asked again after its answer was lost is answered, whatever its bounds are, and stores nothing twice.
#[test]
fn asked_again() {
    let (_, random, mut world) = opened(2);
    let whole = three_cells(&mut world, &random);
    let (length, live) = (whole.len() as u64, world.engine.usage().live);
    let again = bytes(&random, 100_000);
    for (offset, size) in [(MIB + 300, CELL), (0, CELL), (MIB - 4096, 8192), (2 * MIB, CELL)] {
        let answer = world.call(cell(offset, size, &again.slice(..4000)));
        assert_eq!(answer, Ok(Reply::Appended { length }), "{offset} {size}");
    }
    let beyond = world.call(cell(length - 4096, 8192, &again.slice(..4000)));
    assert_eq!(kind(&beyond), Some(ErrorKind::Stale), "a part of it is there, a part is not");
    assert_eq!(world.engine.usage().live, live);
    assert!(world.read_all(CHUNK).expect("read") == whole);
}

/// What cannot be a cell is refused, and who does not know cells gets no byte of one.
#[test]
fn nonsense_and_strangers() {
    let (_, random, mut world) = opened(3);
    let stored = bytes(&random, 5000);
    for length in [1, 4096, 5000, 8191, CELL + 4096] {
        assert_eq!(kind(&world.call(cell(0, length, &stored))), Some(ErrorKind::Invalid), "{length}");
    }
    assert_eq!(kind(&world.call(cell(0, 8192, &Bytes::new()))), Some(ErrorKind::Invalid));
    let pushed = append(Owner::Bag(BagId(2)), CHUNK, 0, &stored, Level::Synced, true);
    assert_eq!(kind(&world.call(append_cell(CHUNK, (0, 8192), &stored, pushed))), Some(ErrorKind::Invalid));
    three_cells(&mut world, &random);
    let mut read = |range| {
        let (ranges, caching, check) = (vec![range], Caching::Around, Check::Here);
        kind(&world.call(Request::Read { chunk: CHUNK, ranges, caching, check, cells: false }))
    };
    assert_eq!((read((0, 1)), read((MIB - 1, 2))), (Some(ErrorKind::Unsupported), Some(ErrorKind::Unsupported)));
    assert_eq!(read((MIB, 300)), None, "bytes between cells are what they are");
}

/// A cell is released when all of it is; until then every byte of it is read. After a restart it is the same.
#[test]
fn released_as_a_whole() {
    let (device, random, mut world) = opened(4);
    let whole = three_cells(&mut world, &random);
    let (first, second) = (MIB / 2, MIB + 300);
    let ranges = vec![(first, second + MIB - first), (second + MIB + 1, MIB)];
    world.call(Request::Release { chunk: CHUNK, ranges }).expect("released");
    for _ in 0..3 {
        assert_eq!(world.read_part(CHUNK, (0, MIB)).expect("read"), whole[..CELL]);
        let third = world.read_part(CHUNK, (second + MIB, MIB)).expect("read");
        assert!(third == whole[(second + MIB) as usize..]);
        for released in [MIB, second, second + MIB - 1] {
            let error = world.read_part(CHUNK, (released, 1)).expect_err("released");
            assert_eq!(error.kind(), ErrorKind::NotFound, "{released}");
        }
        assert_eq!(world.engine.kept_ranges(CHUNK), [(0, MIB), (second + MIB, second + 2 * MIB)]);
        world.engine.want_checkpoint();
        world.settle();
        device.crash();
        world = World::open(&device, &small(64 * MIB)).expect("opened").0;
    }
    world.call(Request::Delete { chunks: vec![CHUNK] }).expect("deleted");
    assert_eq!(world.engine.usage().live, 0);
}

/// A cell with a rotten block is not served, and a scrub reports it as a whole, once, and nothing else.
#[test]
fn rot_in_a_cell() {
    let (device, random, mut world) = opened(5);
    let whole = three_cells(&mut world, &random);
    device.rot(FileName::new(FileKind::Data, 0), 50_000, 3);
    let error = world.read_part(CHUNK, (MIB - 10, 20)).expect_err("rotten");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(world.read_part(CHUNK, (MIB, 5000)).expect("read") == whole[CELL..CELL + 5000]);
    let mut scrub = Scrub::begin(world.now, 100 * MIB);
    let mut steps = 0;
    while !scrub.report().over {
        match scrub.next(world.now, false, &world.engine) {
            Some(request) => {
                steps += 1;
                let answer = world.call(request);
                scrub.took(&answer, &world.engine);
            }
            None => world.later(Duration::from_millis(20)),
        }
    }
    let report = scrub.report();
    let damaged: Vec<(u64, u64)> = report.damaged.iter().map(|range| (range.start, range.end)).collect();
    assert_eq!((damaged, report.damaged_bytes, report.bytes), (vec![(0, MIB)], MIB, whole.len() as u64));
    assert!(steps < 8, "{steps} steps");
}

/// After a power loss a cell that was not synced is whole or absent, like any record, and one that was is there.
#[test]
fn torn_cells_are_dropped() {
    let mut lost = 0;
    for seed in 0..30 {
        let (device, random, mut world) = opened(100 + seed);
        let stored: Vec<Bytes> = (0..6).map(|_| bytes(&random, 3000 + random.below(300 * KIB) as usize)).collect();
        let whole: Vec<u8> = stored.iter().flat_map(|stored| stands_for(stored, CELL)).collect();
        world.call(cell(0, CELL, &stored[0])).expect("synced");
        for (place, stored) in stored.iter().enumerate().skip(1) {
            let offset = place as u64 * MIB;
            let request = append(FILE, CHUNK, offset, stored, Level::Written, false);
            world.submit(append_cell(CHUNK, (offset, CELL), stored, request));
        }
        for _ in 0..random.below(8) {
            world.turn();
        }
        device.crash();
        let (mut world, opened) = World::open(&device, &small(64 * MIB)).expect("opened");
        assert_eq!(opened.rot, Vec::<String>::new(), "seed {seed}");
        let got = world.read_all(CHUNK).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(got.len() >= CELL && got.len().is_multiple_of(CELL) && whole.starts_with(&got), "seed {seed}");
        lost += u64::from(got.len() < whole.len());
    }
    assert!(lost > 5, "only {lost} power losses took something");
}
