//! Devices that rot, lose, misdirect, lie and fill: nothing wrong is served, and it is said what happened.

use crate::world::{World, append, bytes, kind, small};
use base::checksum::crc32c;
use base::disk::{Caching, Disk, FileKind, FileName, Op};
use base::error::ErrorKind;
use base::id::{BagId, ChunkId, GroupId, Owner};
use base::limit::FULL_WAIT;
use base::policy::Level;
use base::unit::MIB;
use chunk::{Check, Effect, Reply, Request};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::time::Duration;

const BAG: Owner = Owner::Bag(BagId(2));

fn opened(device: &SimDevice, capacity: u64) -> World {
    World::open(device, &small(capacity)).unwrap_or_else(|error| panic!("{error}")).0
}

/// A rotten block is named and not served; the rest of the device is.
#[test]
fn rot_is_never_served() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let (first, second) = (bytes(&random, 200_000), bytes(&random, 200_000));
    world.push(BAG, 1, &first).expect("pushed");
    world.push(BAG, 2, &second).expect("pushed");
    device.rot(FileName::new(FileKind::Data, 0), 50_000, 3);
    let result = world.read_all(ChunkId(1));
    assert!(result.is_err_and(|error| error.kind() == ErrorKind::Corrupt && error.text().contains("bytes 0..200000")));
    assert_eq!(world.read_all(ChunkId(2)).expect("read"), second);
    assert_eq!(world.engine.usage().damaged, 1);
}

/// A large append that begins at a bound of 4 KiB keeps its checksums whatever was gathered before it.
#[test]
fn large_appends_keep_their_bounds() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, owner, packet) = (opened(&device, 32 * MIB), Owner::Group(GroupId(1)), 64_512);
    let mut at = 0;
    // The first ends off the bounds, those behind it are gathered up to one.
    for (length, level) in [(2 * packet, Level::Written), (packet, Level::Written), (packet, Level::Written)] {
        let sent = bytes(&random, length);
        world.call(append(owner, ChunkId(1), at, &sent, level, false)).expect("appended");
        at += length as u64;
    }
    for _ in 0..2 {
        let sent = bytes(&random, 16 * packet);
        world.call(append(owner, ChunkId(1), at, &sent, Level::Synced, false)).expect("appended");
        let (ranges, caching, check) = (vec![(at, sent.len() as u64)], Caching::Around, Check::ByBlocks);
        let Ok(Reply::Data { blocks, .. }) =
            world.call(Request::Read { chunk: ChunkId(1), ranges, caching, check, cells: false })
        else {
            panic!("it is answered")
        };
        assert_eq!(blocks, sent.chunks(4096).map(crc32c).collect::<Vec<u32>>());
        at += sent.len() as u64;
    }
}

/// Bytes that the reader is to check are answered with the checksum that was stored with them, so that it sees the rot;
/// blocks of which it gets a part are checked before.
#[test]
fn rot_is_seen_by_the_reader() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let sent = bytes(&random, 200_000);
    world.push(BAG, 1, &sent).expect("pushed");
    let read = |world: &mut World, offset, length| {
        let (caching, check) = (Caching::Around, Check::ByReader);
        let read = Request::Read { chunk: ChunkId(1), ranges: vec![(offset, length)], caching, check, cells: false };
        world.try_call(read).expect("it is answered")
    };
    let sound = crc32c(&sent);
    let of_blocks = |world: &mut World, offset, length| {
        let (caching, check) = (Caching::Around, Check::ByBlocks);
        let read = Request::Read { chunk: ChunkId(1), ranges: vec![(offset, length)], caching, check, cells: false };
        match world.try_call(read) {
            Some(Ok(Reply::Data { blocks, .. })) => blocks,
            other => panic!("{other:?} in answer to a read"),
        }
    };
    let blocks: Vec<u32> = sent.chunks(4096).map(crc32c).collect();
    assert_eq!(of_blocks(&mut world, 0, 200_000), blocks);
    assert_eq!(of_blocks(&mut world, 8192, 8192), blocks[2..4]);
    assert_eq!(of_blocks(&mut world, 8192, 100), [crc32c(&sent[8192..8292])]);
    assert_eq!(of_blocks(&mut world, 100, 8192), [], "blocks that begin elsewhere");
    assert!(matches!(read(&mut world, 0, 200_000), Ok(Reply::Data { crc, .. }) if crc == sound));
    // Byte 50,000 of the segment, behind a block of header, is in block 11 of the chunk.
    device.rot(FileName::new(FileKind::Data, 0), 50_000, 3);
    let Ok(Reply::Data { parts, crc, .. }) = read(&mut world, 0, 200_000) else { panic!("it is not read at all") };
    assert!(crc == sound && crc32c(&parts.concat()) != sound);
    assert_eq!(of_blocks(&mut world, 0, 200_000), blocks, "as stored");
    let part = read(&mut world, 11 * 4096 + 1, 100);
    assert!(part.is_err_and(|error| error.kind() == ErrorKind::Corrupt));
}

/// A rotten header of what had been durable is reported at opening, and what lies behind it is kept.
#[test]
fn rot_in_the_log_is_reported() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let all: Vec<_> = (0..4).map(|_| bytes(&random, 100_000)).collect();
    for (place, bytes) in all.iter().enumerate() {
        world.push(BAG, place as u128, bytes).expect("pushed");
    }
    drop(world);
    // The second record starts behind the first's 1 + 25 blocks.
    device.rot(FileName::new(FileKind::Data, 0), 26 * 4096 + 100, 3);
    let (mut world, opened) = World::open(&device, &small(32 * MIB)).expect("opened");
    assert_eq!(opened.rot.len(), 1, "{:?}", opened.rot);
    for place in [0, 2, 3] {
        assert_eq!(world.read_all(ChunkId(place)).expect("read"), all[place as usize]);
    }
    assert!(world.read_all(ChunkId(1)).is_err());
}

/// Writes that are lost or land elsewhere, and syncs that lie, never lead to wrong bytes or a panic.
#[test]
fn lost_misdirected_and_lying() {
    for seed in 0..12 {
        let fault = When::OneIn(8);
        let faults = match seed % 3 {
            0 => SimFaults { lost_write: fault, ..SimFaults::default() },
            1 => SimFaults { misdirected_write: fault, ..SimFaults::default() },
            _ => SimFaults { lying_sync: fault, ..SimFaults::default() },
        };
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let mut world = opened(&device, 32 * MIB);
        device.set_faults(faults);
        let all: Vec<_> = (0..20).map(|_| bytes(&random, 40_000)).collect();
        let check = |world: &mut World| {
            for (place, want) in all.iter().enumerate() {
                if let Ok(got) = world.read_all(ChunkId(place as u128)) {
                    assert!(want.starts_with(&got), "seed {seed}: wrong bytes were served");
                }
            }
        };
        for (place, bytes) in all.iter().enumerate() {
            drop(world.try_call(append(BAG, ChunkId(place as u128), 0, bytes, Level::Synced, true)));
        }
        check(&mut world);
        device.crash();
        device.set_faults(SimFaults::default());
        // It may be refused, with a reason.
        if let Ok((mut world, _)) = World::open(&device, &small(32 * MIB)) {
            check(&mut world);
        }
    }
}

/// A full device lets appends wait and then says so; deletes go on and make room again.
#[test]
fn full_waits_then_says_so() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 24 * MIB);
    let chunk = bytes(&random, MIB as usize);
    let mut stored = 0u128;
    let stuck = loop {
        let tag = world.submit(append(BAG, ChunkId(stored), 0, &chunk, Level::Synced, true));
        world.settle();
        match world.replies.remove(&tag) {
            Some(result) => drop(result.expect("pushed")),
            None => break tag,
        }
        stored += 1;
        assert!(stored < 64, "it is never full");
    };
    assert!(world.engine.usage().full && stored >= 8, "{stored}");
    world.later(FULL_WAIT);
    world.settle();
    assert_eq!(world.replies.remove(&stuck).as_ref().and_then(kind), Some(ErrorKind::Full));
    let waiting = world.submit(append(BAG, ChunkId(999), 0, &chunk, Level::Synced, true));
    world.settle();
    let chunks = (0..stored).map(ChunkId).collect();
    assert_eq!(world.call(Request::Delete { chunks }), Ok(Reply::Done));
    world.settle();
    assert_eq!(world.replies.remove(&waiting), Some(Ok(Reply::Appended { length: MIB })));
    assert_eq!(world.read_all(ChunkId(999)).expect("read"), chunk);
}

/// A bag that is consumed as it is filled goes on for ever on a small device.
#[test]
fn a_bag_streams_through_a_small_device() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 24 * MIB);
    let chunk = bytes(&random, MIB as usize);
    for place in 0..100u128 {
        world.push(BAG, place, &chunk).expect("pushed");
        if let Some(old) = place.checked_sub(4) {
            let done =
                world.call(Request::Acknowledge { chunks: vec![(ChunkId(old), 1)], pass: 0, retain: false, by: None });
            assert_eq!(done, Ok(Reply::Acknowledged { results: vec![Ok(())] }));
        }
    }
    assert!(world.engine.usage().used <= 24 * MIB);
}

/// One failed write is done again elsewhere; one failed sync takes the device out of service, and reads go on.
#[test]
fn errors_of_the_device() {
    for write in 0..6 {
        let (device, random) = (SimDevice::new(write, SimFaults::default()), SimRandom::new(write));
        let mut world = opened(&device, 32 * MIB);
        let before = device.operations().writes;
        device.set_faults(SimFaults { write_error: When::Nth(before + write), ..SimFaults::default() });
        let (big, little) = (bytes(&random, 100_000), bytes(&random, 100));
        let mut tail = Vec::new();
        for place in 0..4u128 {
            world.push(BAG, place, &big).expect("pushed in spite of one failed write");
            let add = append(Owner::Group(GroupId(1)), ChunkId(100), tail.len() as u64, &little, Level::Synced, false);
            world.call(add).expect("appended in spite of one failed write");
            tail.extend_from_slice(&little);
        }
        device.crash();
        let mut world = opened(&device, 32 * MIB);
        assert!((0..4).all(|place| world.read_all(ChunkId(place)).is_ok_and(|bytes| bytes == big)), "write {write}");
        assert_eq!(world.read_all(ChunkId(100)).expect("read"), tail, "write {write}");
    }
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let big = bytes(&random, 100_000);
    world.push(BAG, 1, &big).expect("pushed");
    device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
    assert_eq!(kind(&world.push(BAG, 2, &big)), Some(ErrorKind::Io));
    assert_eq!(kind(&world.push(BAG, 3, &big)), Some(ErrorKind::Io));
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), big);
}

/// Who reads an open chunk hears that nothing more comes to it as soon as its device takes nothing any more: its writer goes on elsewhere.
#[test]
fn nothing_comes_to_a_device_out_of_service() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let (chunk, piece) = (ChunkId(1), bytes(&random, 1000));
    let add = |at| append(Owner::Group(GroupId(1)), chunk, at, &piece, Level::Synced, false);
    let stays = |world: &mut World| {
        let (ranges, caching, check) = (vec![(0, 10_000)], Caching::Through, Check::Here);
        let reply = world.call(Request::Read { chunk, ranges, caching, check, cells: false });
        let Ok(Reply::Data { chunk_length, sealed, .. }) = reply else { panic!("it is read") };
        (chunk_length, sealed)
    };
    world.call(add(0)).expect("appended");
    assert_eq!(stays(&mut world), (1000, false));
    device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
    world.call(add(1000)).expect_err("the device fails");
    assert!(stays(&mut world).1, "nothing more comes");
}

/// A device on which the name of a new file cannot be made durable takes itself out of service, as after a failed sync of data: what it
/// acknowledged in that file could be lost with its name, though a second sync of the directory may go well. Reads go on, and after a start everything
/// acknowledged is there.
#[test]
fn names_that_are_not_durable_end_a_device() {
    for unnamed in [FileKind::Data, FileKind::Journal, FileKind::Checkpoint] {
        let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
        let mut world = opened(&device, 64 * MIB);
        let big = bytes(&random, 300_000);
        device.set_faults(SimFaults { unnamed: Some(unnamed), ..SimFaults::default() });
        let seal = |number| Request::SealBag { bag: BagId(1000 + number), epoch: 1 };
        let mut kept = 0;
        let error = loop {
            assert!(kept < 10_000, "no {unnamed:?} was made");
            let done = match unnamed {
                // Nothing but the journal has these.
                FileKind::Journal => world.call(seal(kept)).map(drop),
                _ => world.push(BAG, kept.into(), &big).map(drop),
            };
            match done {
                Ok(()) => kept += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Io, "{unnamed:?}: {error}");
        assert!(error.text().contains("failed to sync") && error.text().contains("replace the disk"), "{error}");
        assert!(world.engine.usage().failed && world.engine.next_tick().is_none_or(|due| due > world.now));
        device.set_faults(SimFaults::default());
        assert_eq!(kind(&world.push(BAG, 5000, &big)), Some(ErrorKind::Io), "{unnamed:?}: it stays so");
        device.crash();
        let mut world = opened(&device, 64 * MIB);
        for number in 0..kept {
            let is_there = match unnamed {
                FileKind::Journal => world.engine.bag_stat(BagId(1000 + number)).sealed_epoch == Some(1),
                _ => world.read_all(ChunkId(number.into())).is_ok(),
            };
            assert!(is_there, "{unnamed:?}: {number} of {kept}");
        }
        world.push(BAG, 5000, &big).expect("a start tries it anew");
    }
}

/// A disk that cannot read says so for the bytes asked for, does not call them wrong, and serves them when it can again.
#[test]
fn a_read_that_fails_is_said_to_be_that() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let big = bytes(&random, 200_000);
    world.push(BAG, 1, &big).expect("pushed");
    device.set_faults(SimFaults { read_error: When::Always, ..SimFaults::default() });
    let error = world.read_all(ChunkId(1)).expect_err("the disk cannot read");
    assert!(error.kind() == ErrorKind::Io && error.text().contains("bytes 0..200000 of chunk"), "{error}");
    assert!(error.text().contains("cannot be read: "), "{error}");
    device.set_faults(SimFaults::default());
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), big);
    // A single refusal is not told at all: the read is tried once more.
    let reads = device.operations().reads;
    device.set_faults(SimFaults { read_error: When::Nth(reads), ..SimFaults::default() });
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), big);
}

/// A lone synced append is one write and one sync; many at once share them.
#[test]
fn group_commit() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let little = bytes(&random, 4096);
    let file = Owner::Group(GroupId(1));
    world.call(append(file, ChunkId(1), 0, &little, Level::Synced, false)).expect("appended");
    world.counted = (0, 0);
    world.call(append(file, ChunkId(1), 4096, &little, Level::Synced, false)).expect("appended");
    assert_eq!(world.counted, (1, 1));
    for place in 0..12 {
        world.submit(append(file, ChunkId(50 + place), 0, &little, Level::Synced, false));
    }
    world.settle();
    assert_eq!(world.counted, (2, 2));
}

/// A device that is opened again knows at once what is dead on it: its used space is what it was, although nothing was
/// replayed and nobody has written anything.
#[test]
fn dead_space_is_known_when_opened() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let mut world = opened(&device, 32 * MIB);
    let chunk = bytes(&random, MIB as usize / 2);
    for place in 0..20u128 {
        world.push(BAG, place, &chunk).expect("pushed");
        if place % 4 != 0 {
            let done = world.call(Request::Acknowledge {
                chunks: vec![(ChunkId(place), 1)],
                pass: 0,
                retain: false,
                by: None,
            });
            assert_eq!(done, Ok(Reply::Acknowledged { results: vec![Ok(())] }));
        }
    }
    for _ in 0..3 {
        world.engine.want_checkpoint();
        world.settle();
    }
    let before = world.engine.usage();
    drop(world);
    let (world, found) = World::open(&device, &small(32 * MIB)).expect("opened");
    assert_eq!(found.records_replayed, 0);
    let after = world.engine.usage();
    assert_eq!((after.live, after.chunks), (before.live, before.chunks));
    assert!(after.used <= before.used, "{} used, {} before", after.used, before.used);
}

/// A disk that refuses reads while it is opened loses nothing: it is refused, or opened whole, and whole when it is opened
/// again. (Taken for the end of the log, a refused read would cut off what follows it.)
#[test]
fn read_errors_while_opening() {
    let mut refused = 0;
    for seed in 0..40 {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let mut world = opened(&device, 32 * MIB);
        let all: Vec<_> = (0..6).map(|place| bytes(&random, 3_000 + 30_000 * place)).collect();
        for (place, bytes) in all.iter().enumerate() {
            world.push(BAG, place as u128, bytes).expect("pushed");
        }
        device.crash();
        device.set_faults(SimFaults { read_error: When::OneIn(2), ..SimFaults::default() });
        match World::open(&device, &small(32 * MIB)) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "seed {seed}: {error}");
                refused += 1;
            }
        }
        device.crash();
        device.set_faults(SimFaults::default());
        let mut world = opened(&device, 32 * MIB);
        for (place, want) in all.iter().enumerate() {
            let got = world.read_all(ChunkId(place as u128));
            assert_eq!(got.as_deref(), Ok(want.as_ref()), "seed {seed}, chunk {place}");
        }
    }
    assert!(refused > 0, "no open was refused");
}

/// The file system is full and the journal's segments are, too: whoever waits for the journal is told after a while, with what to do, and
/// the device says that it is out of service; nobody waits for ever. After a start with room everything acknowledged is there.
#[test]
fn no_room_for_the_journal() {
    let device = SimDevice::new(1, SimFaults::default());
    let mut world = opened(&device, 32 * MIB);
    let random = SimRandom::new(1);
    let kept = bytes(&random, 100_000);
    world.push(BAG, 1, &kept).expect("pushed");
    let taken = device.files().into_iter().map(|(_, length)| length).sum();
    device.set_faults(SimFaults { capacity: Some(taken), ..SimFaults::default() });
    let mut sealed = 0;
    let waiting = loop {
        sealed += 1;
        assert!(sealed < 10_000, "the journal takes whatever comes");
        let tag = world.submit(Request::SealBag { bag: BagId(1000 + sealed), epoch: 1 });
        world.settle();
        match world.replies.remove(&tag) {
            Some(answer) => assert_eq!(answer, Ok(Reply::Done)),
            None => break tag,
        }
    };
    for _ in 0..=FULL_WAIT.as_secs() {
        world.later(Duration::from_secs(1));
        world.settle();
    }
    let error = world.replies.remove(&waiting).expect("it is answered").expect_err("it is refused");
    assert!(error.kind() == ErrorKind::Io && error.text().contains("no room for its journal"), "{error}");
    assert!(error.text().contains("make room"), "{error}");
    assert!(world.engine.usage().failed && world.engine.next_tick().is_none_or(|due| due > world.now));
    assert_eq!(world.read_all(ChunkId(1)).expect("reads go on"), kept);
    drop(world);
    device.set_faults(SimFaults::default());
    let mut world = opened(&device, 32 * MIB);
    assert_eq!(world.read_all(ChunkId(1)).expect("read"), kept);
    for bag in 1001..1000 + sealed {
        assert_eq!(world.engine.bag_stat(BagId(bag)).sealed_epoch, Some(1));
    }
    world.call(Request::SealBag { bag: BagId(5), epoch: 1 }).expect("it takes changes again");
}

/// What a device acknowledged in memory and could not make durable is not done: it is counted as what may come back, and does.
#[test]
fn acknowledged_in_vain() {
    let device = SimDevice::new(1, SimFaults::default());
    let mut world = opened(&device, 32 * MIB);
    let content = bytes(&SimRandom::new(1), 5000);
    for chunk in 1..=3 {
        world.push(BAG, chunk, &content).expect("pushed");
    }
    let acknowledge = |world: &mut World, chunk: u128| {
        let chunks = vec![(ChunkId(chunk), 1)];
        world.call(Request::Acknowledge { chunks, pass: 0, retain: false, by: None })
    };
    acknowledge(&mut world, 1).expect("acknowledged");
    assert_eq!(world.engine.acknowledged_for_now(BagId(2)), (0, 0));
    device.set_faults(SimFaults { sync_error: When::Always, ..SimFaults::default() });
    acknowledge(&mut world, 2).expect_err("the device fails");
    assert!(!world.engine.holds(ChunkId(2)), "not in memory");
    assert_eq!(world.engine.acknowledged_for_now(BagId(2)), (1, 5000));
    device.crash();
    device.set_faults(SimFaults::default());
    let mut world = opened(&device, 32 * MIB);
    assert_eq!(world.read_all(ChunkId(2)).expect("it is here"), content);
    assert_eq!(world.engine.acknowledged_for_now(BagId(2)), (0, 0));
}

/// While the next segment is being made the device is slow and not full, however long that takes: whoever looked for a device that takes
/// writes would find none, and whoever waits would be refused.
#[test]
fn a_segment_that_is_slow_to_come() {
    let device = SimDevice::new(1, SimFaults::default());
    let mut world = opened(&device, 64 * MIB);
    let content = bytes(&SimRandom::new(1), 100_000);
    let (mut held, mut pushes, mut effects, mut done) = (Vec::new(), 0, Vec::new(), Vec::new());
    while world.replies.len() == pushes {
        pushes += 1;
        assert!(pushes < 1000, "segments come from nowhere");
        world.submit(append(BAG, ChunkId(pushes as u128), 0, &content, Level::Synced, true));
        loop {
            world.engine.take_effects(&mut effects);
            for effect in effects.drain(..) {
                match effect {
                    Effect::Disk { token, op: op @ Op::Create { .. } } => held.push((token, op)),
                    Effect::Disk { token, op } => {
                        world.in_flight += 1;
                        world.disk.submit(token, op);
                    }
                    Effect::Reply { tag, result } => drop(world.replies.insert(tag, result)),
                }
            }
            if world.in_flight == 0 {
                break;
            }
            world.disk.poll(None, &mut done);
            world.in_flight -= done.len();
            done.drain(..).for_each(|done| world.engine.completed(world.now, done));
        }
    }
    assert!(!held.is_empty() && !world.engine.usage().full, "{:?}", world.engine.usage());
    world.later(3 * FULL_WAIT);
    assert!(!world.effects() || world.replies.len() + 1 == pushes, "it waits");
    for (token, op) in held {
        world.in_flight += 1;
        world.disk.submit(token, op);
    }
    world.settle();
    assert!(world.replies.len() == pushes && world.replies.values().all(Result::is_ok), "{:?}", world.replies);
}
