//! Early records: what was written and not synced survives every end of the process, with the journal's help or without, and nothing that was
//! acknowledged as synced hangs on them.

use crate::world::{DEVICE, World, append, bytes, small};
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

/// On a full file system, where no segment can be made for the journal, too, a device opens with what is early, whenever it was killed.
#[test]
fn a_full_file_system_has_room_for_it() {
    let full = SimFaults { no_room_for: Some(FileKind::Journal), ..SimFaults::default() };
    for records in 0..180 {
        let (device, random) = (SimDevice::new(records, SimFaults::default()), SimRandom::new(records));
        drop(World::open(&device, &with(None)).expect("opened"));
        let mut log: Vec<u8> = Vec::new();
        for life in 0..3 {
            device.kill();
            device.set_faults(full.clone());
            let opened = World::open(&device, &with(None));
            let (mut world, _) = opened.unwrap_or_else(|error| panic!("{records} records, life {life}: {error}"));
            if !log.is_empty() {
                let there = world.read_all(ChunkId(1)).expect("read");
                assert!(there.starts_with(&log), "{records} records, life {life}: {} of {}", there.len(), log.len());
                log = there;
            }
            for _ in 0..records {
                let piece = bytes(&random, 2800);
                let tag = world.submit(append(FILE, ChunkId(1), log.len() as u64, &piece, Level::Written, false));
                for _ in 0..random.below(3) {
                    world.turn();
                }
                let Some(Ok(Reply::Appended { .. })) = world.replies.remove(&tag) else { break };
                log.extend_from_slice(&piece);
            }
        }
    }
}
