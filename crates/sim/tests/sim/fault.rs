//! Each fault fires, does what it says, and is counted.

use crate::{FILE, SYNC, blocks, create, fired, read, run, write};
use base::disk::{Disk, DiskError, FileKind, FileName, Op};
use sim::disk::{SimDevice, SimDisk, SimFaults, When};

fn with(faults: SimFaults) -> (SimDevice, SimDisk) {
    let device = SimDevice::new(3, SimFaults::default());
    let mut disk = device.attach();
    run(&device, &mut disk, create(1 << 16)).unwrap().unwrap();
    run(&device, &mut disk, write(0, blocks(2, 7))).unwrap().unwrap();
    run(&device, &mut disk, SYNC).unwrap().unwrap();
    device.set_faults(faults);
    (device, disk)
}

/// An error on read is reported once and the bytes are there afterwards.
#[test]
fn read_error() {
    let (device, mut disk) = with(SimFaults { read_error: When::Nth(1), ..SimFaults::default() });
    assert_eq!(run(&device, &mut disk, read(0, 1)).unwrap().unwrap()[0], 7);
    assert!(matches!(run(&device, &mut disk, read(0, 1)), Some(Err(DiskError::Io(_)))));
    assert_eq!(run(&device, &mut disk, read(0, 1)).unwrap().unwrap()[0], 7);
    assert_eq!(fired(&device, "read_error"), 1);
}

/// A failed write is reported; a failed sync forgets what was unsynced though a later sync succeeds.
#[test]
fn write_and_sync_errors() {
    let (device, mut disk) = with(SimFaults { write_error: When::Nth(1), ..SimFaults::default() });
    assert!(matches!(run(&device, &mut disk, write(0, blocks(1, 8))), Some(Err(DiskError::Io(_)))));
    assert_eq!(fired(&device, "write_error"), 1);

    let (device, mut disk) = with(SimFaults { sync_error: When::Nth(1), ..SimFaults::default() });
    run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
    assert!(matches!(run(&device, &mut disk, SYNC), Some(Err(DiskError::Io(_)))));
    assert_eq!(run(&device, &mut disk, read(0, 1)).unwrap().unwrap()[0], 8, "the page cache still has it");
    run(&device, &mut disk, SYNC).unwrap().unwrap();
    device.crash();
    assert_eq!(device.peek(FILE)[0], 7);
    assert_eq!(fired(&device, "sync_error"), 1);
}

/// Writes that are under way when one fails fail with it, as many as are told, and no later one.
#[test]
fn writes_fail_together() {
    let (device, mut disk) = with(SimFaults { write_error: When::Together(3), ..SimFaults::default() });
    let mut done = Vec::new();
    (0..5).for_each(|token| disk.submit(token, write(token, blocks(1, 8))));
    while done.len() < 5 {
        disk.poll(None, &mut done);
    }
    assert_eq!(done.iter().filter(|done| done.result.is_err()).count(), 3);
    run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
    assert_eq!((fired(&device, "write_error"), fired(&device, "write_errors_together")), (1, 2));
}

/// A removal that fails leaves the file; a kind of file finds no room while others do; a power loss takes all of a kind that
/// was not synced.
#[test]
fn faults_of_a_kind() {
    let (device, mut disk) = with(SimFaults { remove_error: When::Once, ..SimFaults::default() });
    assert!(run(&device, &mut disk, Op::Remove { file: FILE }).unwrap().is_err());
    assert_eq!(disk.list().unwrap().len(), 1);
    run(&device, &mut disk, Op::Remove { file: FILE }).unwrap().unwrap();

    let (device, mut disk) = with(SimFaults { no_room_for: Some(FileKind::Checkpoint), ..SimFaults::default() });
    let make = |kind| Op::Create { file: FileName::new(kind, 9), size: 4096, fill: base::disk::Fill::Zeros };
    assert_eq!(run(&device, &mut disk, make(FileKind::Checkpoint)).unwrap().unwrap_err(), DiskError::NoSpace);
    run(&device, &mut disk, make(FileKind::Journal)).unwrap().unwrap();
    assert_eq!(fired(&device, "no_room_for_kind"), 1);

    for _ in 0..10 {
        let (device, mut disk) = with(SimFaults { forgets: Some(FILE.kind), ..SimFaults::default() });
        run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
        device.crash();
        assert_eq!(device.peek(FILE)[0], 7);
    }
}

/// Lost and misdirected writes are reported done and do not show where they should.
#[test]
fn lost_and_misdirected_writes() {
    let (device, mut disk) = with(SimFaults { lost_write: When::Always, ..SimFaults::default() });
    run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
    assert!(!device.peek(FILE).contains(&8));
    assert_eq!(fired(&device, "lost_write"), 1);

    let (device, mut disk) = with(SimFaults { misdirected_write: When::Always, ..SimFaults::default() });
    run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
    let bytes = device.peek(FILE);
    assert_eq!(bytes.iter().filter(|byte| **byte == 8).count(), 4096);
    assert_eq!(bytes[0], 7);
    assert_eq!(fired(&device, "misdirected_write"), 1);
}

/// A sync that lies makes nothing durable: by some seed the write is gone.
#[test]
fn lying_sync() {
    let mut gone = 0;
    for seed in 0..20 {
        let device = SimDevice::new(seed, SimFaults { lying_sync: When::Always, ..SimFaults::default() });
        let mut disk = device.attach();
        run(&device, &mut disk, create(4096)).unwrap().unwrap();
        run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
        run(&device, &mut disk, SYNC).unwrap().unwrap();
        device.crash();
        gone += u32::from(device.peek(FILE).contains(&0));
        assert_eq!(fired(&device, "lying_sync"), 1);
    }
    assert!(gone > 4, "{gone}");
}

/// Rot turns over one durable bit for good, on demand and on read; unsynced bytes do not rot.
#[test]
fn rot() {
    let (device, mut disk) = with(SimFaults { rot_on_read: When::Always, ..SimFaults::default() });
    device.rot(FILE, 5, 1);
    assert_eq!(device.peek(FILE)[5], 7 ^ 2);
    let bits = |bytes: &[u8]| bytes.iter().map(|byte| (byte ^ 7).count_ones()).sum::<u32>();
    let seen = run(&device, &mut disk, read(1, 1)).unwrap().unwrap();
    assert_eq!(bits(&seen), 1);
    device.crash();
    assert_eq!(device.peek(FILE)[4096..8192], seen[..]);
    let mut disk = device.attach();
    run(&device, &mut disk, write(1, blocks(1, 7))).unwrap().unwrap();
    assert_eq!(bits(&run(&device, &mut disk, read(1, 1)).unwrap().unwrap()), 0);
    assert_eq!((fired(&device, "rot"), fired(&device, "rot_on_read")), (1, 1));
}

/// A full device refuses files and writes to punched blocks; punching and removing make room.
#[test]
fn no_space() {
    let (device, mut disk) = with(SimFaults { capacity: Some(1 << 16), ..SimFaults::default() });
    let other = base::disk::FileName { number: 2, ..FILE };
    let more = || Op::Create { file: other, size: 4096, fill: base::disk::Fill::Zeros };
    assert_eq!(run(&device, &mut disk, more()).unwrap().unwrap_err(), DiskError::NoSpace);
    run(&device, &mut disk, Op::Punch { file: FILE, offset: 0, length: 4096 }).unwrap().unwrap();
    assert_eq!(device.space(), (1 << 16) - 4096);
    assert_eq!(run(&device, &mut disk, read(0, 1)).unwrap().unwrap()[..], [0; 4096]);
    run(&device, &mut disk, more()).unwrap().unwrap();
    assert_eq!(run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap_err(), DiskError::NoSpace);
    run(&device, &mut disk, Op::Remove { file: other }).unwrap().unwrap();
    run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
    assert_eq!(fired(&device, "no_space"), 2);
}

/// The device stops at exactly the change it was told to, serves nothing more, and is usable after the crash.
#[test]
fn crash_at() {
    let (device, mut disk) = with(SimFaults { crash_at: Some(4), ..SimFaults::default() });
    run(&device, &mut disk, write(0, blocks(1, 8))).unwrap().unwrap();
    assert!(run(&device, &mut disk, SYNC).is_none() && device.crashed());
    assert!(disk.list().is_err());
    device.crash();
    assert!(!device.crashed());
    let mut disk = device.attach();
    assert_eq!(run(&device, &mut disk, read(1, 1)).unwrap().unwrap()[..], [7; 4096]);
    assert_eq!(disk.list().unwrap(), [(FILE, 1 << 16)]);
    run(&device, &mut disk, SYNC).expect("the crash point is past").unwrap();
}

/// Reads of missing files and beyond the end are answered as by a file system.
#[test]
fn missing() {
    let (device, mut disk) = with(SimFaults::default());
    assert_eq!(run(&device, &mut disk, read(15, 4)).unwrap().unwrap().len(), 4096);
    assert_eq!(run(&device, &mut disk, read(99, 1)).unwrap().unwrap().len(), 0);
    run(&device, &mut disk, Op::Remove { file: FILE }).unwrap().unwrap();
    run(&device, &mut disk, Op::Remove { file: FILE }).unwrap().unwrap();
    assert_eq!(run(&device, &mut disk, read(0, 1)).unwrap().unwrap_err(), DiskError::NotFound);
}

/// Misaligned operations are bugs of the caller and panic.
#[test]
#[should_panic(expected = "multiples of 4096")]
fn misaligned() {
    let (_device, mut disk) = with(SimFaults::default());
    disk.submit(0, Op::Read { file: FILE, offset: 512, length: 4096, caching: base::disk::Caching::Around });
}
