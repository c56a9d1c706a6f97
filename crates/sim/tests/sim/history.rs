//! Random histories: the same seed repeats, synced bytes survive, kills lose nothing that was done.

use crate::{FILE, SYNC, blocks, create, fired, run, write};
use base::disk::{Disk, Done, FileKind, FileName, Fill, Op};
use base::env::Random;
use base::limit::BLOCK;
use sim::disk::{SimDevice, SimFaults};
use sim::random::SimRandom;
use std::collections::BTreeMap;

const FILE_BLOCKS: usize = 16;

/// What a test knows of each 512-byte sector: the values that may be found there.
struct Model {
    /// Value that a sync made certain, with the number of the write.
    certain: Vec<u8>,
    /// Values written since, done or not.
    possible: Vec<Vec<u8>>,
}

impl Model {
    fn check(&self, bytes: &[u8], seed: u64) {
        for (sector, found) in bytes.chunks(512).enumerate() {
            assert!(found.iter().all(|byte| *byte == found[0]), "sector {sector} is torn inside; seed {seed}");
            let block = sector / 8;
            let allowed = found[0] == self.certain[block] || self.possible[block].contains(&found[0]);
            assert!(allowed, "sector {sector} holds {}; seed {seed}", found[0]);
        }
    }
}

/// Many writes to distinct and equal places and syncs in flight at once, then a power loss. Returns what is left.
fn history(seed: u64, checked: bool) -> (Vec<u8>, SimDevice) {
    let device = SimDevice::new(seed, SimFaults::default());
    let random = SimRandom::new(seed).fork("history");
    let mut disk = device.attach();
    run(&device, &mut disk, create((FILE_BLOCKS * BLOCK) as u64)).unwrap().unwrap();
    let mut model = Model { certain: vec![0; FILE_BLOCKS], possible: vec![Vec::new(); FILE_BLOCKS] };
    // Writes under way and done, by token: (block, value).
    let mut writing: BTreeMap<u64, (usize, u8)> = BTreeMap::new();
    let mut written: Vec<(usize, u8)> = Vec::new();
    let mut syncing: BTreeMap<u64, Vec<(usize, u8)>> = BTreeMap::new();
    for token in 1..=120u64 {
        let block = random.below(FILE_BLOCKS as u64) as usize;
        if random.one_in(4) {
            disk.submit(token, SYNC);
            syncing.insert(token, written.clone());
        } else if !writing.values().any(|(busy, _)| *busy == block) {
            disk.submit(token, write(block as u64, blocks(1, token as u8)));
            writing.insert(token, (block, token as u8));
            model.possible[block].push(token as u8);
        }
        let mut done: Vec<Done> = Vec::new();
        if random.one_in(2) {
            disk.poll(None, &mut done);
        }
        for done in done {
            done.result.unwrap();
            if let Some(write) = writing.remove(&done.token) {
                written.push(write);
            }
            for (block, value) in syncing.remove(&done.token).unwrap_or_default() {
                // Only this value or one written after it can be there from now on.
                if let Some(place) = model.possible[block].iter().position(|possible| *possible == value) {
                    model.possible[block].drain(..=place);
                    model.certain[block] = value;
                }
            }
        }
    }
    device.crash();
    if checked {
        model.check(&device.peek(FILE), seed);
    }
    (device.peek(FILE), device)
}

/// Whatever was synced is there after a power loss, unless something newer is; nothing is there that nobody wrote.
#[test]
fn synced_data_survives() {
    let (mut kept, mut dropped, mut torn) = (0, 0, 0);
    for seed in 0..300 {
        let (_, device) = history(seed, true);
        kept += fired(&device, "kept");
        dropped += fired(&device, "dropped");
        torn += fired(&device, "torn");
    }
    assert!(kept > 100 && dropped > 100 && torn > 100, "{kept} {dropped} {torn}");
}

/// The same seed gives the same bytes and counts; different seeds do not.
#[test]
fn one_seed_one_history() {
    let mut different = 0;
    for seed in 0..20 {
        let ((first, one), (second, two)) = (history(seed, false), history(seed, false));
        assert_eq!(first, second, "seed {seed}");
        assert_eq!((one.fired(), one.operations()), (two.fired(), two.operations()), "seed {seed}");
        different += u32::from(history(seed + 1, false).0 != first);
    }
    assert!(different > 10);
}

/// A kill keeps every write that was done, and a later sync makes it durable.
#[test]
fn kill_keeps_what_was_done() {
    for seed in 0..50 {
        let device = SimDevice::new(seed, SimFaults::default());
        let mut disk = device.attach();
        run(&device, &mut disk, create(1 << 16)).unwrap().unwrap();
        run(&device, &mut disk, write(0, blocks(2, 7))).unwrap().unwrap();
        disk.submit(9, write(4, blocks(4, 8)));
        device.kill();
        let mut disk = device.attach();
        assert_eq!(device.peek(FILE)[..8192], [7; 8192], "seed {seed}");
        let before = device.peek(FILE);
        run(&device, &mut disk, SYNC).unwrap().unwrap();
        device.crash();
        assert_eq!(device.peek(FILE), before, "seed {seed}");
    }
}

/// Files under way may or may not be there after a power loss; removed ones may be back; finished ones are there.
#[test]
fn names() {
    let (old, new) = (FileName::new(FileKind::Log, 1), FileName::new(FileKind::Log, 2));
    let (mut back, mut made) = (0, 0);
    for seed in 0..60 {
        let device = SimDevice::new(seed, SimFaults::default());
        let mut disk = device.attach();
        run(&device, &mut disk, create(4096)).unwrap().unwrap();
        run(&device, &mut disk, Op::Create { file: old, size: 4096, fill: Fill::Zeros }).unwrap().unwrap();
        run(&device, &mut disk, Op::Remove { file: old }).unwrap().unwrap();
        disk.submit(1, Op::Create { file: new, size: 8192, fill: Fill::Zeros });
        device.crash();
        let files = device.files();
        assert!(files.contains(&(FILE, 4096)), "seed {seed}");
        back += u32::from(files.contains(&(old, 4096)));
        made += u32::from(files.contains(&(new, 8192)));
    }
    assert!((10..50).contains(&back) && (10..50).contains(&made), "{back} {made}");
}

/// A punch that was not synced may or may not have happened; a segment of a GiB costs no memory.
#[test]
fn punches_and_large_files() {
    let mut undone = 0;
    for seed in 0..40 {
        let device = SimDevice::new(seed, SimFaults::default());
        let mut disk = device.attach();
        run(&device, &mut disk, create(1 << 30)).unwrap().unwrap();
        run(&device, &mut disk, write(1000, blocks(1, 7))).unwrap().unwrap();
        run(&device, &mut disk, SYNC).unwrap().unwrap();
        run(&device, &mut disk, Op::Punch { file: FILE, offset: 1000 * 4096, length: 4096 }).unwrap().unwrap();
        assert_eq!(device.space(), (1 << 30) - 4096);
        device.crash();
        undone += u32::from(device.space() == 1 << 30);
    }
    assert!((5..35).contains(&undone), "{undone}");
}
