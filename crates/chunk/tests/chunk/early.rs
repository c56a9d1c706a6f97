//! Early records: what was written and not synced survives every end of the process, with the journal's help or without, and nothing that was
//! acknowledged as synced hangs on them.

use crate::world::{DEVICE, World, append, bytes, small};
use base::buffer::Pool;
use base::disk::{FileKind, FileName};
use base::env::Random;
use base::id::{ChunkId, Generation, GroupId, Owner};
use base::planted::Planted;
use base::policy::Level;
use base::unit::MIB;
use chunk::format::{EARLY_HEADER, EarlyHeader, Record};
use chunk::{Reply, Request, Settings};
use sim::disk::{SimDevice, SimFaults, When};
use sim::random::SimRandom;
use std::time::Duration;

const FILE: Owner = Owner::Group(GroupId(1));
const SEEDS: u64 = 150;

fn with(planted: Option<Planted>) -> Settings {
    Settings { planted, ..small(32 * MIB) }
}

/// What a chunk holds, and what of it must be there after a kill and after a power loss.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    written: usize,
    synced: usize,
}

/// One life of a device after another, with writers of small records that wait for them to be written, or synced, or for nothing, until a kill
/// or a power loss. Why it did not keep its word, if it did not.
fn lives(seed: u64, planted: Option<Planted>) -> Result<(), String> {
    let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed ^ 0xEA71));
    let mut logs: Vec<Log> = (0..3).map(|_| Log::default()).collect();
    for life in 0..6 {
        device.set_faults(SimFaults::default());
        let (mut world, opened) = World::open(&device, &with(planted)).map_err(|error| error.to_string())?;
        if !opened.rot.is_empty() {
            return Err(format!("life {life}: {:?}", opened.rot));
        }
        for (log, id) in logs.iter_mut().zip(1..) {
            let chunk = ChunkId(id);
            let there = match world.call(Request::Stat { chunk }) {
                Ok(Reply::Stat(stat)) => stat.length as usize,
                _ => 0,
            };
            if there < log.written || there > log.bytes.len() {
                return Err(format!("life {life}: chunk {id} has {there} bytes of {}", log.written));
            }
            if there > 0 && world.read_all(chunk).map_err(|error| error.to_string())? != log.bytes[..there] {
                return Err(format!("life {life}: chunk {id} has other bytes"));
            }
            log.bytes.truncate(there);
            // What was found is as safe as it ever was, and no safer before somebody asks.
            log.written = there;
            if random.one_in(3) {
                world.call(append(FILE, chunk, there as u64, &bytes(&random, 0), Level::Synced, false)).ok();
                log.synced = there;
            }
        }
        if random.one_in(3) {
            device.set_faults(SimFaults { early_write_error: When::Nth(random.below(60)), ..SimFaults::default() });
        }
        for _ in 0..random.below(120) {
            let place = random.below(3) as usize;
            let (log, chunk) = (&mut logs[place], ChunkId(place as u128 + 1));
            let piece = bytes(&random, 1 + random.below(if random.one_in(8) { 60_000 } else { 3000 }) as usize);
            let level = [Level::Written, Level::Written, Level::Written, Level::Synced, Level::Received]
                [random.below(5) as usize];
            let tag = world.submit(append(FILE, chunk, log.bytes.len() as u64, &piece, level, false));
            log.bytes.extend_from_slice(&piece);
            for _ in 0..random.below(4) {
                world.turn();
            }
            if random.one_in(4) {
                world.later(Duration::from_millis(random.below(12)));
            }
            if let Some(Ok(Reply::Appended { length })) = world.replies.remove(&tag) {
                let length = length as usize;
                log.written = log.written.max(if level >= Level::Written { length } else { 0 });
                log.synced = log.synced.max(if level == Level::Synced { length } else { 0 });
            }
        }
        if random.one_in(3) {
            device.crash();
            logs.iter_mut().for_each(|log| log.written = log.synced);
        } else {
            device.kill();
        }
    }
    Ok(())
}

/// No life loses what it answered for; with a fault put in, some do.
#[test]
fn what_is_written_survives() {
    for seed in 0..SEEDS {
        if let Err(error) = lives(seed, None) {
            panic!("seed {seed}: {error}");
        }
    }
    for planted in [Planted::EarlyRecordsForgotten, Planted::EarlyRecordsOverwritten] {
        assert!((0..4 * SEEDS).any(|seed| lives(seed, Some(planted)).is_err()), "{planted:?} is not seen");
    }
}

/// A written record is answered without one write of the disk; the journal has it when its rest is over, or at once when somebody wants it
/// synced.
#[test]
fn the_journal_comes_later() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &with(None)).expect("opened");
    let (chunk, piece) = (ChunkId(1), bytes(&random, 1000));
    let append_at = |world: &mut World, place: u64, level| {
        let tag = world.submit(append(FILE, chunk, place * 1000, &piece, level, false));
        world.effects();
        world.replies.contains_key(&tag)
    };
    world.counted = (0, 0);
    for place in 0..40 {
        assert!(append_at(&mut world, place, Level::Written), "it waits for the disk");
    }
    assert_eq!(world.counted, (0, 0));
    world.later(Duration::from_millis(10));
    world.effects();
    assert_eq!(world.counted, (1, 0), "the journal has it");
    world.settle();
    for place in 40..50 {
        assert!(append_at(&mut world, place, Level::Written), "it waits for the disk");
    }
    assert!(!append_at(&mut world, 50, Level::Synced));
    assert_eq!(world.counted, (2, 0), "whoever wants it synced waits for no rest");
    world.settle();
    assert_eq!(world.counted, (2, 1));
}

/// A file that cannot be written costs time and nothing else.
#[test]
fn without_the_file_everybody_waits_for_the_journal() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &with(None)).expect("opened");
    device.set_faults(SimFaults { early_write_error: When::Always, ..SimFaults::default() });
    let piece = bytes(&random, 1000);
    for place in 0..10 {
        world.call(append(FILE, ChunkId(1), place * 1000, &piece, Level::Written, false)).expect("written");
    }
    device.kill();
    device.set_faults(SimFaults { no_room_for: Some(FileKind::Early), ..SimFaults::default() });
    let (mut world, _) = World::open(&device, &with(None)).expect("opened");
    assert_eq!(world.read_all(ChunkId(1)).expect("read").len(), 10_000);
}

/// An opening that cannot read the file is refused: what was acknowledged may be in it.
#[test]
fn an_unreadable_file_is_no_empty_one() {
    let (device, random) = (SimDevice::new(1, SimFaults::default()), SimRandom::new(1));
    let (mut world, _) = World::open(&device, &with(None)).expect("opened");
    let tag = world.submit(append(FILE, ChunkId(1), 0, &bytes(&random, 1000), Level::Written, false));
    world.effects();
    assert!(world.replies.contains_key(&tag));
    device.kill();
    device.set_faults(SimFaults { read_error: When::Always, ..SimFaults::default() });
    assert!(World::open(&device, &with(None)).is_err());
    device.kill();
    device.set_faults(SimFaults::default());
    // Damage in it is a torn end.
    device.poke(FileName::new(FileKind::Early, 0), 40, &[1; 8]);
    let (mut world, _) = World::open(&device, &with(None)).expect("opened");
    assert!(world.read_all(ChunkId(1)).is_err());
}

/// What an earlier life left in one half, behind records that a power loss took, hides nothing of what is in the other.
#[test]
fn a_stale_entry_hides_nothing() {
    let device = SimDevice::new(1, SimFaults::default());
    drop(World::open(&device, &with(None)).expect("opened"));
    let entry = |previous, last| {
        let record = Record::Append {
            chunk: ChunkId(last),
            owner: FILE,
            generation: Generation(1),
            offset: 0,
            payload: vec![7; 100].into(),
        };
        let mut entry = vec![0; EARLY_HEADER];
        record.encode(last as u64, &mut entry);
        let header = EarlyHeader { length: (entry.len() - EARLY_HEADER) as u32, previous, last: last as u64 };
        header.encode(DEVICE, &mut entry);
        entry
    };
    let file = FileName::new(FileKind::Early, 0);
    device.poke(file, 0, &entry(0, 1 << 40));
    device.poke(file, MIB / 2, &entry(100, 110));
    let (mut world, _) = World::open(&device, &with(None)).expect("opened");
    assert_eq!(world.read_all(ChunkId(1 << 40)).expect("read"), [7; 100]);
    assert!(world.read_all(ChunkId(110)).is_err());
}

/// On a full file system, where no segment can be made for the journal, a log is written beside a disk that stands still now and then, until
/// the process ends: killed, or with what the kernel has carried out. One opening is cut short, too. Why the next one did not find all that was
/// acknowledged, if it did not.
fn opened_on_a_full_file_system(seed: u64, settings: &Settings, piece: usize, pieces: u64) -> Result<(), String> {
    let full = SimFaults { no_room_for: Some(FileKind::Journal), ..SimFaults::default() };
    let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
    let (mut world, _) = World::open(&device, settings).map_err(|error| error.to_string())?;
    world.call(append(FILE, ChunkId(9), 0, &bytes(&random, 10), Level::Synced, false)).map_err(|e| e.to_string())?;
    world.settle();
    device.set_faults(full.clone());
    let (mut log, mut written, mut stalls): (Vec<u8>, usize, u64) = (Vec::new(), 0, 0);
    for _ in 0..pieces {
        let piece = bytes(&random, piece);
        let tag = world.submit(append(FILE, ChunkId(1), log.len() as u64, &piece, Level::Written, false));
        log.extend_from_slice(&piece);
        stalls = if stalls > 0 { stalls - 1 } else { random.below(30) * u64::from(random.one_in(6)) };
        for _ in 0..if stalls == 0 { random.below(3) } else { 0 } {
            world.turn();
        }
        world.effects();
        if random.one_in(5) {
            world.later(Duration::from_millis(6));
        }
        if let Some(Ok(Reply::Appended { length })) = world.replies.remove(&tag) {
            written = length as usize;
        }
    }
    world.effects();
    if random.one_in(2) {
        device.kill();
    }
    drop(world);
    if random.one_in(2) {
        let crash_at = Some(device.operations().changes() + random.below(6));
        device.set_faults(SimFaults { crash_at, ..full.clone() });
        drop(World::open(&device, settings));
        device.kill();
        device.set_faults(full);
    }
    let (mut world, _) = World::open(&device, settings).map_err(|error| error.to_string())?;
    let there = world.read_all(ChunkId(1)).map_err(|error| error.to_string())?;
    let kept = there.len() >= written && log.starts_with(&there);
    kept.then_some(()).ok_or_else(|| format!("{} bytes of {written} are there", there.len()))
}

/// Such a device opens, whenever its process ends.
#[test]
fn a_full_file_system_has_room_for_it() {
    let of_a_device = Settings::for_capacity(256 * MIB, Pool::new(8 << 20));
    for seed in 0..600 {
        let opened = match seed % 2 {
            0 => opened_on_a_full_file_system(seed, &with(None), 2800, 5 + seed % 115),
            _ => opened_on_a_full_file_system(seed, &of_a_device, 9000, 20 + seed % 240),
        };
        opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

/// One write of the disk takes long while more than a group is flushed: what does not fit one waits for the journal.
#[test]
fn what_is_early_fits_one_group() {
    let settings = Settings::for_capacity(256 * MIB, Pool::new(8 << 20));
    for seed in 0..40 {
        let (device, random) = (SimDevice::new(seed, SimFaults::default()), SimRandom::new(seed));
        let (mut world, _) = World::open(&device, &settings).expect("opened");
        for chunk in 0..20 {
            let full_segment = append(FILE, ChunkId(50 + chunk), 0, &bytes(&random, 60_000), Level::Synced, false);
            world.call(full_segment).expect("synced");
            world.settle();
        }
        device.set_faults(SimFaults { no_room_for: Some(FileKind::Journal), ..SimFaults::default() });
        let mut written = [0; 8];
        for step in 0..110 + seed % 12 {
            let (place, at) = ((step % 8) as usize, step / 8 * 9000);
            let chunk = ChunkId(100 + place as u128);
            let tag = world.submit(append(FILE, chunk, at, &bytes(&random, 9000), Level::Written, false));
            world.effects();
            if matches!(world.replies.remove(&tag), Some(Ok(_))) {
                written[place] = at + 9000;
            }
            if step == 1 {
                world.later(Duration::from_millis(11));
            }
        }
        for _ in 0..random.below(3) {
            world.turn();
        }
        drop(world);
        let (mut world, _) = World::open(&device, &settings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (place, written) in (100..).zip(written) {
            let there = world.read_all(ChunkId(place)).map_or(0, |bytes| bytes.len() as u64);
            assert!(there >= written, "seed {seed}: {there} of {written} bytes of chunk {place}");
        }
    }
}
