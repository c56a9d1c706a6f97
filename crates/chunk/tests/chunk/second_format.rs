//! A device with checkpoints of version 2, a full one and one that builds upon it, kept in `golden/second-device.bin` in the form
//! of the first one's image: it is read. So is one of version 3, with cells, in `golden/third-device.bin`. One of version 4, which
//! keeps who acknowledged and has chunks of an owner of a kind that is not known, in `golden/fourth-device.bin`: today's program writes
//! the same checkpoints. And what damage makes of them.

use crate::first_format::{self, content};
use crate::world::{DEVICE, World, append, append_cell, small, stands_for};
use base::checksum::crc32c;
use base::disk::{FileKind, FileName};
use base::env::Random;
use base::id::{BagId, ChunkId, GroupId, Owner};
use base::limit::BLOCK;
use base::policy::Level;
use base::unit::MIB;
use bytes::Bytes;
use chunk::format::{CheckpointHeader, VERSION};
use chunk::{Asking, Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;
use std::panic::AssertUnwindSafe;

const SECOND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chunk/golden/second-device.bin");
const THIRD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chunk/golden/third-device.bin");
const FOURTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/chunk/golden/fourth-device.bin");

const FILE: Owner = Owner::Group(GroupId(1));
const BAG: Owner = Owner::Bag(BagId(2));

/// What stands for the cell of chunk 5, whole in the full checkpoint, and of chunk 6, in the one behind it.
fn cell(id: u128) -> Bytes {
    content(id, 5000).into()
}

/// Checkpoints, the last but one of all that is there, the last of what changed after it. A little comes after them.
fn write(device: &SimDevice) {
    // As many numbers as were skipped when the images were made.
    let settings = Settings { sequence_gap: 1 << 20, ..small(32 * MIB) };
    let (mut world, _) = World::open(device, &settings).expect("opened");
    let part = |id: u128, from: usize, to: usize, length| content(id, length)[from..to].to_vec().into();
    for id in 10..14 {
        world.push(BAG, id, &content(id, 3000).into()).expect("pushed");
    }
    world.call(append(FILE, ChunkId(1), 0, &part(1, 0, 5000, 9000), Level::Synced, false)).expect("appended");
    world.call(append(FILE, ChunkId(2), 0, &content(2, 70_000).into(), Level::Synced, true)).expect("appended");
    world.call(append(FILE, ChunkId(3), 0, &content(3, 200).into(), Level::Synced, true)).expect("appended");
    add_cells(&mut world, 5);
    let acknowledge = |id, grant, number| Request::Acknowledge {
        chunks: vec![(ChunkId(id), grant)],
        pass: 0,
        retain: false,
        by: Some(Asking { session: 8, number, floor: 3 }),
    };
    world.call(acknowledge(10, 5, 3)).expect("acknowledged");
    world.call(Request::BagPass { bag: BagId(4), pass: 3, retain: true }).expect("a pass");
    world.push(newer(), 30, &content(30, 3000).into()).expect("pushed");
    for _ in 0..2 {
        // What has grown larger than its base is followed by a full one.
        world.engine.want_checkpoint();
        world.settle();
    }
    world.push(BAG, 20, &content(20, 4096).into()).expect("pushed");
    world.call(append(FILE, ChunkId(1), 5000, &part(1, 5000, 7000, 9000), Level::Synced, false)).expect("appended");
    add_cells(&mut world, 6);
    world.call(Request::Release { chunk: ChunkId(2), ranges: vec![(0, 4096)] }).expect("released");
    world.call(Request::Delete { chunks: vec![ChunkId(3), ChunkId(11)] }).expect("deleted");
    world.call(Request::SealBag { bag: BagId(2), epoch: 9 }).expect("sealed");
    world.engine.want_checkpoint();
    world.settle();
    world.call(append(FILE, ChunkId(1), 7000, &part(1, 7000, 9000, 9000), Level::Synced, false)).expect("appended");
    world.call(acknowledge(12, 6, 4)).expect("acknowledged");
    world.push(newer(), 31, &content(31, 70_000).into()).expect("pushed");
}

/// Of a kind that no program knew when version 4 was made.
fn newer() -> Owner {
    Owner::new(200, 5).expect("an owner")
}

/// Chunks of such an owner are there, with their bytes.
fn check_newer(world: &mut World) {
    for (id, length) in [(30, 3000), (31, 70_000)] {
        let Ok(Reply::Stat(stat)) = world.call(Request::Stat { chunk: ChunkId(id) }) else { panic!("{id} is lost") };
        assert_eq!((stat.owner, stat.sealed), (newer(), true));
        assert_eq!(world.read_all(ChunkId(id)).expect("read"), content(id, length), "{id}");
    }
}

/// A chunk of a few bytes, a cell, and a few bytes that are not sealed.
fn add_cells(world: &mut World, id: u128) {
    let (chunk, few) = (ChunkId(id), Bytes::from(content(id, 100)));
    let add = |offset, bytes: &Bytes| append(FILE, chunk, offset, bytes, Level::Synced, false);
    world.call(add(0, &few)).expect("appended");
    world.call(append_cell(chunk, (100, 300 << 10), &cell(id), add(0, &few))).expect("a cell");
    world.call(add(100 + (300 << 10), &few)).expect("appended");
}

fn check_cells(world: &mut World) {
    for id in [5, 6] {
        let whole = [content(id, 100), stands_for(&cell(id), 300 << 10), content(id, 100)].concat();
        assert!(world.read_all(ChunkId(id)).expect("read") == whole, "{id}");
    }
}

fn check(world: &mut World) {
    for (id, length) in [(13, 3000), (20, 4096), (1, 9000)] {
        assert_eq!(world.read_all(ChunkId(id)).expect("read"), content(id, length), "{id}");
    }
    for gone in [3, 10, 11, 12] {
        assert!(world.read_all(ChunkId(gone)).is_err(), "{gone} is back");
    }
    assert!(world.read_all(ChunkId(2)).is_err(), "released bytes were served");
    let stat = world.engine.bag_stat(BagId(2));
    assert_eq!((stat.pushed, stat.acknowledged, stat.sealed_epoch), (5, 2, Some(9)));
    let stat = world.engine.bag_stat(BagId(4));
    assert_eq!((stat.pass, stat.retain), (3, true));
    let again =
        |id, grant| Request::Acknowledge { chunks: vec![(ChunkId(id), grant)], pass: 0, retain: false, by: None };
    assert_eq!(world.call(again(10, 5)), Ok(Reply::Acknowledged { results: vec![Ok(())] }));
}

fn fourth_device() -> SimDevice {
    if std::env::var("STORMWELL_GOLDEN").is_ok_and(|value| value == "write") {
        let device = SimDevice::new(2, SimFaults::default());
        write(&device);
        device.kill();
        std::fs::write(FOURTH, first_format::image_of(&device)).expect("written");
    }
    first_format::device_of(FOURTH)
}

/// The checkpoints of a device: their files, headers and bodies.
fn checkpoints(device: &SimDevice) -> Vec<(FileName, CheckpointHeader, Vec<u8>)> {
    let names = device.files().into_iter().map(|(name, _)| name).filter(|name| name.kind == FileKind::Checkpoint);
    let read = |name: FileName| {
        let bytes = device.peek(name);
        let header = CheckpointHeader::decode(DEVICE, &bytes[..BLOCK])?;
        let body = bytes[BLOCK..BLOCK + header.length as usize].to_vec();
        Some((name, header, body))
    };
    names.filter_map(read).collect()
}

fn is_read(device: &SimDevice, version: u32, check: impl Fn(&mut World)) {
    let found = checkpoints(device);
    let newest = found.last().expect("there are some");
    let builds = newest.1.version == version && newest.1.base < newest.1.number;
    assert!(builds, "the newest builds upon another: {:?}", newest.1);
    assert!(found.iter().any(|(_, header, _)| header.number == newest.1.base), "its base is there");
    for _ in 0..3 {
        let (mut world, opened) = World::open(device, &small(32 * MIB)).expect("opened");
        assert_eq!((opened.rot, opened.formatted), (vec![], false));
        check(&mut world);
        device.crash();
    }
}

/// A device with full and incremental checkpoints of version 2 is read whole, and so it is after a power loss; it takes cells, and
/// is a device of today's version from then on.
#[test]
fn second_device_is_read() {
    let device = first_format::device_of(SECOND);
    is_read(&device, 2, check);
    let (mut world, opened) = World::open(&device, &small(32 * MIB)).expect("opened");
    assert_eq!(opened.version, VERSION);
    for id in [5, 6] {
        add_cells(&mut world, id);
    }
    device.crash();
    let (mut world, _) = World::open(&device, &small(32 * MIB)).expect("opened");
    check(&mut world);
    check_cells(&mut world);
}

/// The same of one of version 3, cells included.
#[test]
fn third_device_is_read() {
    is_read(&first_format::device_of(THIRD), 3, |world| {
        check(world);
        check_cells(world);
    });
}

/// The same of one of version 4, chunks of an owner included that is of no kind that was known; who acknowledged is known there, too,
/// from the checkpoint as from the log behind it.
#[test]
fn fourth_device_is_read() {
    is_read(&fourth_device(), 4, |world| {
        check(world);
        check_cells(world);
        check_newer(world);
        for (id, grant) in [(10, 5), (12, 6)] {
            for (session, accepted) in [(8, true), (9, false)] {
                let by = Some(Asking { session, number: 5, floor: 3 });
                let chunks = vec![(ChunkId(id), grant)];
                let again = Request::Acknowledge { chunks, pass: 0, retain: false, by };
                let Ok(Reply::Acknowledged { results }) = world.call(again) else { panic!("no answer") };
                assert_eq!(results[0].is_ok(), accepted, "chunk {id} by session {session}: {results:?}");
            }
        }
    });
}

/// Today's program writes the checkpoints of the image, byte for byte but for the version in their headers: 5 added another file, 6 nothing.
#[test]
fn checkpoints_are_written_as_they_were() {
    assert_eq!(VERSION, 6);
    let (kept, device) = (checkpoints(&fourth_device()), SimDevice::new(2, SimFaults::default()));
    write(&device);
    let as_fourth = |(name, header, body)| (name, CheckpointHeader { version: 4, ..header }, body);
    let written: Vec<_> = checkpoints(&device).into_iter().map(as_fourth).collect();
    assert!(written == kept, "checkpoints are encoded differently now: a new format version is needed");
}

/// What a fuzzer calls: opens a device whose checkpoints have these changes, with checksums that fit, and reads what is there.
fn open_damaged(random: &SimRandom) {
    let device = fourth_device();
    for (name, header, mut body) in checkpoints(&device) {
        if body.is_empty() || random.one_in(3) {
            continue;
        }
        for _ in 0..=random.below(4) {
            let at = random.below(body.len() as u64) as usize;
            match random.below(4) {
                0 => body[at] ^= 1 << random.below(8),
                1 => body[at] = 0xFF,
                2 => body[at..].iter_mut().take(4).for_each(|byte| *byte = 0xFF),
                _ => body[at] = random.next() as u8,
            }
        }
        let cut = if random.one_in(4) { random.below(body.len() as u64 + 1) } else { body.len() as u64 };
        let header = CheckpointHeader { length: cut, body_crc: crc32c(&body[..cut as usize]), ..header };
        device.poke(name, BLOCK as u64, &body);
        device.poke(name, 0, &header.encode(DEVICE));
    }
    let Ok((mut world, _)) = World::open(&device, &small(32 * MIB)) else { return };
    for id in (1..7).chain(10..14).chain([20]) {
        let _whatever = world.try_call(Request::Stat { chunk: ChunkId(id) });
        let read = base::disk::Caching::Around;
        let ranges = vec![(0, 10_000)];
        let _whatever = world.try_call(Request::Read {
            chunk: ChunkId(id),
            ranges,
            caching: read,
            check: chunk::Check::Here,
            cells: true,
        });
    }
    world.engine.want_checkpoint();
    world.settle();
}

/// Bodies of checkpoints with any damage, under checksums that fit, end in an error or in a device that serves something.
#[test]
fn fuzz_checkpoints() {
    for seed in sim::fuzz::seeds(300) {
        let attempt = std::panic::catch_unwind(AssertUnwindSafe(|| open_damaged(&SimRandom::new(seed))));
        assert!(attempt.is_ok(), "seed {seed}: cargo test --release -p chunk --test chunk fuzz_checkpoints");
    }
}
