//! Ends that follow each other before a checkpoint, and writes that fail together: nothing acknowledged is lost, nothing hangs.

use crate::world::{World, append, bytes, kind, small};
use base::buffer::Pool;
use base::disk::{FileKind, FileName};
use base::env::Random;
use base::error::{ErrorKind, Result};
use base::id::{BagId, ChunkId, GroupId, Owner};
use base::limit::FULL_WAIT;
use base::planted::Planted;
use base::policy::Level;
use base::unit::{KIB, MIB};
use bytes::Bytes;
use chunk::{Opened, Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::time::Duration;

const BAG: Owner = Owner::Bag(BagId(2));

/// Starts from which a chain of faults is looked for.
const SEEDS: u64 = 24;

/// A file system on which no checkpoint finds room.
fn without_checkpoints() -> SimFaults {
    SimFaults { no_room_for: Some(FileKind::Checkpoint), ..SimFaults::default() }
}

fn open(device: &SimDevice, settings: &Settings) -> (World, Opened) {
    World::open(device, settings).unwrap_or_else(|error| panic!("{error}"))
}

fn with(planted: Option<Planted>) -> Settings {
    Settings { planted, ..small(64 * MIB) }
}

/// A power loss cuts the log, no checkpoint can be made at the next start, so many pushes follow, one synced after the other,
/// and the power is lost again. What was lost or reported as damaged then.
fn two_losses(seed: u64, pushes: u128, planted: Option<Planted>) -> Option<String> {
    let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
    let (mut world, _) = open(&device, &with(planted));
    world.push(BAG, 1, &bytes(&random, 9_000)).expect("pushed");
    for id in 10..14 {
        world.submit(append(BAG, ChunkId(id), 0, &bytes(&random, 30_000), Level::Written, true));
        world.settle();
    }
    device.crash();
    device.set_faults(without_checkpoints());
    let (mut world, _) = open(&device, &with(planted));
    let all: Vec<Bytes> = (0..pushes).map(|_| bytes(&random, 20_000)).collect();
    for (place, chunk) in all.iter().enumerate() {
        world.push(BAG, 100 + place as u128, chunk).expect("pushed");
    }
    device.crash();
    device.set_faults(SimFaults::default());
    let (mut world, opened) = open(&device, &with(planted));
    if let Some(rot) = opened.rot.first() {
        return Some(rot.clone());
    }
    let mut lost = all.iter().zip(100..).filter(|(chunk, id)| world.read_all(ChunkId(*id)).as_deref() != Ok(chunk));
    lost.next().map(|(_, id)| format!("chunk {id}"))
}

/// What is acknowledged after a power loss is there after the next one, also if no checkpoint was made between the two, and a
/// device that lost nothing is not said to be damaged.
#[test]
fn two_power_losses_without_a_checkpoint() {
    for pushes in [1, 3] {
        for seed in 0..SEEDS {
            let lost = two_losses(seed, pushes, None);
            assert_eq!(lost, None, "seed {seed}, {pushes} pushes");
        }
        let noticed = (0..SEEDS).filter_map(|seed| two_losses(seed, pushes, Some(Planted::ChainStaysEnded)));
        assert!(noticed.count() > 0, "this test sees nothing with {pushes} pushes");
    }
}

/// A push, cut into small records if `small`.
fn cut(chunk: &Bytes, small: bool) -> Request {
    match append(BAG, ChunkId(2), 0, chunk, Level::Synced, true) {
        Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, cell, .. } => {
            Request::Append { chunk, owner, generation, offset, payload, sums, level, seal, cell, small_parts: small }
        }
        request => request,
    }
}

/// A push of several records is cut short by a kill, asked again after a start at which no checkpoint can be made, and the
/// power is lost with all of the journal that was not synced. True: the chunk is there; none: the kill came too early or late.
fn retried_push(seed: u64, other: bool) -> Option<bool> {
    let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
    let (mut world, _) = open(&device, &with(None));
    world.push(BAG, 1, &bytes(&random, 9_000)).expect("pushed");
    let chunk = bytes(&random, 1_900_000);
    // Cut into other records than later, as another version of the program might do it.
    world.submit(cut(&chunk, other));
    world.effects();
    for _ in 0..seed % 3 {
        world.turn();
    }
    device.kill();
    device.set_faults(SimFaults { forgets: Some(FileKind::Journal), ..without_checkpoints() });
    let (mut world, opened) = open(&device, &with(None));
    if opened.records_replayed < 2 || world.engine.holds(ChunkId(2)) {
        return None;
    }
    let answer = world.call(cut(&chunk, false));
    assert_eq!(answer, Ok(Reply::Appended { length: chunk.len() as u64 }), "seed {seed}");
    // Asked once more, it waits for the same.
    assert_eq!(world.call(cut(&chunk, false)), answer, "seed {seed}");
    device.crash();
    device.set_faults(SimFaults::default());
    let (mut world, _) = open(&device, &with(None));
    Some(world.read_all(ChunkId(2)).as_deref() == Ok(&chunk))
}

/// A push that is asked again is acknowledged when the deletion of its torn beginning is as durable as its bytes. Without that
/// nothing is lost as long as both are cut into the same records, which is so with one version of the program: the beginning
/// comes back, and the rest of the second push fits behind it. Cut otherwise, the acknowledged chunk is gone.
#[test]
fn a_retried_push_waits_for_the_end_of_its_predecessor() {
    for other in [false, true] {
        let outcomes: Vec<bool> = (0..4 * SEEDS).filter_map(|seed| retried_push(seed, other)).collect();
        assert!(outcomes.len() > 3, "the kill never came in time");
        assert!(outcomes.iter().all(|is_there| *is_there), "an acknowledged push is gone: {outcomes:?}");
    }
}

/// Submits pushes at once and goes on until all are answered, for so many seconds at the most.
fn push_all(world: &mut World, chunks: &[Bytes], seconds: u64) -> Vec<Option<Result<Reply>>> {
    let tags: Vec<u64> = (chunks.iter().zip(1..))
        .map(|(chunk, id)| world.submit(append(BAG, ChunkId(id), 0, chunk, Level::Synced, true)))
        .collect();
    world.settle();
    for _ in 0..seconds {
        world.later(Duration::from_secs(1));
        world.settle();
    }
    tags.into_iter().map(|tag| world.replies.remove(&tag)).collect()
}

/// Writes in flight that fail for one cause are one failure: they are written again, and the device goes on.
#[test]
fn writes_that_fail_together_are_one_failure() {
    let survives = |seed, count, planted| {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let (mut world, _) = open(&device, &with(planted));
        device.set_faults(SimFaults { write_error: When::Together(count), ..SimFaults::default() });
        let chunks: Vec<Bytes> = (0..6).map(|_| bytes(&random, MIB as usize)).collect();
        let answers = push_all(&mut world, &chunks, 0);
        if world.engine.usage().failed {
            return false;
        }
        assert!(answers.iter().all(|answer| matches!(answer, Some(Ok(_)))), "seed {seed}: {answers:?}");
        device.crash();
        let (mut world, _) = open(&device, &with(planted));
        for (chunk, id) in chunks.iter().zip(1..) {
            assert_eq!(world.read_all(ChunkId(id)).as_deref(), Ok(chunk.as_ref()), "seed {seed}, chunk {id}");
        }
        true
    };
    for count in [2, 3] {
        assert!((0..SEEDS / 3).all(|seed| survives(seed, count, None)), "{count} failed together");
        assert!(
            (0..SEEDS / 3).any(|seed| !survives(seed, count, Some(Planted::StrikePerWrite))),
            "this test sees nothing"
        );
    }
    // What fails again at its new place is a second failure, as before.
    let device = SimDevice::new(1, SimFaults::default());
    let (mut world, _) = open(&device, &with(None));
    device.set_faults(SimFaults { write_error: When::Always, ..SimFaults::default() });
    assert_eq!(kind(&world.push(BAG, 1, &bytes(&SimRandom::new(1), 100_000))), Some(ErrorKind::Io));
    assert!(world.engine.usage().failed);
}

/// A device whose data segments hold less than may wait to be written.
fn narrow(planted: Option<Planted>) -> Settings {
    Settings { planted, writes_max: 1, data_segment: 1280 * KIB, pool: Pool::new(8 << 20), ..small(64 * MIB) }
}

/// What failed to be written is written again in as many segments as it takes.
#[test]
fn a_repair_takes_several_segments() {
    let answered = |seed, planted| {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let (mut world, _) = open(&device, &narrow(planted));
        device.set_faults(SimFaults {
            write_error: When::Nth(device.operations().writes + seed % 4),
            ..SimFaults::default()
        });
        let chunks: Vec<Bytes> = (0..16).map(|_| bytes(&random, 500_000)).collect();
        let answers = push_all(&mut world, &chunks, 2 * FULL_WAIT.as_secs());
        if !answers.iter().all(|answer| matches!(answer, Some(Ok(_)))) {
            return false;
        }
        device.crash();
        let (mut world, _) = open(&device, &narrow(planted));
        for (chunk, id) in chunks.iter().zip(1..) {
            assert_eq!(world.read_all(ChunkId(id)).as_deref(), Ok(chunk.as_ref()), "seed {seed}, chunk {id}");
        }
        true
    };
    for seed in 0..SEEDS / 3 {
        assert!(answered(seed, None), "seed {seed}");
    }
    assert!((0..SEEDS).any(|seed| !answered(seed, Some(Planted::RepairInOnePiece))), "this test sees nothing");
}

/// A device that has no segment for what failed to be written says so after a while; nobody waits for ever.
#[test]
fn a_repair_without_room_ends() {
    for seed in 0..8 {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let (mut world, _) = open(&device, &narrow(None));
        let kept = bytes(&random, 500_000);
        world.push(BAG, 99, &kept).expect("pushed");
        let no_room_for = Some(FileKind::Data);
        device.set_faults(SimFaults { write_error: When::Once, no_room_for, ..SimFaults::default() });
        let chunks: Vec<Bytes> = (0..8).map(|_| bytes(&random, 500_000)).collect();
        let answers = push_all(&mut world, &chunks, 2 * FULL_WAIT.as_secs());
        for answer in &answers {
            let Some(Err(error)) = answer else { continue };
            let told = error.kind() == ErrorKind::Io && error.text().contains("no room to write it again elsewhere");
            assert!(told && error.text().contains("make room on its file system"), "seed {seed}: {error}");
        }
        let failed = answers.iter().filter(|answer| matches!(answer, Some(Err(_)))).count();
        assert!(failed > 0 && answers.iter().all(Option::is_some), "seed {seed}: {answers:?}");
        assert_eq!(world.read_all(ChunkId(99)).expect("reads go on"), kept);
    }
}

/// Segments that nothing names and that cannot be removed while the device is opened go later, and so does a segment that is
/// dead and cannot be removed at first; their space comes back, and one of another size is never written to.
#[test]
fn strays_that_cannot_be_removed_go_later() {
    let (device, random) = (SimDevice::new(3, SimFaults::default()), SimRandom::new(3));
    let (mut world, _) = open(&device, &with(None));
    let kept = bytes(&random, 900_000);
    world.push(BAG, 1, &kept).expect("pushed");
    drop(world);
    // Made and never used, and one whose making was interrupted.
    for (number, length) in [(7, 2 * MIB), (8, 2 * MIB), (9, MIB)] {
        device.poke(FileName::new(FileKind::Data, number), length - 1, &[0]);
    }
    let is_there = |number| device.files().iter().any(|(name, _)| *name == FileName::new(FileKind::Data, number));
    device.set_faults(SimFaults { remove_error: When::Always, ..SimFaults::default() });
    let (mut world, _) = open(&device, &with(None));
    let go_on = |world: &mut World, seconds| {
        for _ in 0..seconds {
            world.later(Duration::from_secs(1));
            world.settle();
        }
    };
    go_on(&mut world, 3);
    assert!(is_there(9));
    let used = world.engine.usage().used;
    device.set_faults(SimFaults::default());
    go_on(&mut world, 10);
    assert!(!is_there(9), "it stays for ever");
    assert!(world.engine.usage().used < used);
    for id in 10..16 {
        world.push(BAG, id, &bytes(&random, 900_000)).expect("pushed");
    }
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), kept);
}

/// An append of a file's bytes that makes two records goes on where a kill left it: its writer asks again for the whole. One that says
/// something else of the bytes that can still be compared is refused.
#[test]
fn an_append_goes_on_between_its_records() {
    let file = Owner::Group(GroupId(1));
    let mut cut_short = 0;
    for seed in 0..200 {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let (mut world, _) = open(&device, &with(None));
        let (first, second) = (bytes(&random, 100), bytes(&random, MIB as usize));
        world.call(append(file, ChunkId(1), 0, &first, Level::Written, false)).expect("written");
        world.submit(append(file, ChunkId(1), 100, &second, Level::Written, false));
        world.effects();
        for _ in 0..random.below(3) {
            world.turn();
        }
        device.kill();
        drop(world);
        let (mut world, _) = open(&device, &with(None));
        let there = world.read_all(ChunkId(1)).expect("read").len();
        cut_short += usize::from(there > 100 && there < 100 + second.len());
        let seal = random.one_in(2);
        let appended = world.call(append(file, ChunkId(1), 100, &second, Level::Synced, seal));
        assert_eq!(appended, Ok(Reply::Appended { length: 100 + MIB }), "seed {seed}: {there} bytes were there");
        assert!(world.read_all(ChunkId(1)).expect("read") == [&first[..], &second[..]].concat(), "seed {seed}");
    }
    assert!(cut_short > 0, "no append was cut short");
    let (mut world, _) = open(&SimDevice::new(1, SimFaults::default()), &with(None));
    world.call(append(file, ChunkId(1), 0, &Bytes::from_static(b"storm"), Level::Written, false)).expect("written");
    let other =
        world.call(append(file, ChunkId(1), 0, &Bytes::from_static(b"stork and others"), Level::Written, false));
    assert_eq!(other.map_err(|error| error.kind()), Err(ErrorKind::Stale));
}
