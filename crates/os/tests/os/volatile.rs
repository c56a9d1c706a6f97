//! What a disk with a volatile cache keeps when its process is killed, which is: what lies in its files.

use crate::Scratch;
use base::buffer::{Buffer, Pool};
use base::disk::{Caching, Disk, Done, FileKind, FileName, Fill, Op};
use base::limit::BLOCK;
use bytes::Bytes;
use os::disk::{Backend, open, open_block_file};

const FILE: FileName = FileName::new(FileKind::Data, 1);
const BLOCKS: usize = 512;

fn run(disk: &mut dyn Disk, op: Op) -> Buffer {
    disk.submit(1, op);
    let mut done: Vec<Done> = Vec::new();
    while done.is_empty() {
        disk.poll(None, &mut done);
    }
    done.pop().unwrap().result.unwrap()
}

/// One write for each block, so that some of them go through early and some do not.
fn write_all(disk: &mut dyn Disk, value: u8) {
    for block in 0..BLOCKS {
        let parts = vec![Bytes::from_owner(Buffer::copy_of(&[value; BLOCK]))];
        run(disk, Op::Write { file: FILE, offset: (block * BLOCK) as u64, parts });
    }
}

fn count(bytes: &[u8], value: u8) -> usize {
    bytes.chunks(BLOCK).filter(|block| block.iter().all(|byte| *byte == value)).count()
}

/// What is written is read at once; the file has some of it, in whole blocks, before the sync, and all of it after.
#[test]
fn synced_is_kept() {
    let scratch = Scratch::new();
    let mut disk = open(&scratch.0, Backend::Volatile, Pool::new(8 << 20)).unwrap().disk;
    run(disk.as_mut(), Op::Create { file: FILE, size: (BLOCKS * BLOCK) as u64, fill: Fill::Zeros });
    let kept = || std::fs::read(scratch.0.join(FILE.to_string())).unwrap();
    write_all(disk.as_mut(), 1);
    let read = Op::Read { file: FILE, offset: 0, length: BLOCKS * BLOCK, caching: Caching::Through };
    assert_eq!(count(&run(disk.as_mut(), read), 1), BLOCKS);
    let early = count(&kept(), 1);
    assert!(early > 0 && early < BLOCKS / 2 && early + count(&kept(), 0) == BLOCKS, "{early} of {BLOCKS}");
    run(disk.as_mut(), Op::Sync { file: FILE });
    assert_eq!(count(&kept(), 1), BLOCKS);
    write_all(disk.as_mut(), 2);
    let (old, new) = (count(&kept(), 1), count(&kept(), 2));
    assert!(old > BLOCKS / 2 && new > 0 && old + new == BLOCKS, "{old} old and {new} new of {BLOCKS}");
    // A planned end loses nothing.
    drop(disk);
    assert_eq!(count(&kept(), 2), BLOCKS);
}

/// The blocking file keeps what was synced, whatever was written or cut off behind it, and reads what was written.
#[test]
fn blocking_file_too() {
    let scratch = Scratch::new();
    let path = scratch.0.join("tree");
    let file = open_block_file(&path, Backend::Volatile).unwrap();
    file.write(0, &[1; 3 * BLOCK]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [], "nothing goes beyond the end of the file early");
    file.sync().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [1; 3 * BLOCK]);
    file.set_length(BLOCK as u64 + 10).unwrap();
    file.set_length(4 * BLOCK as u64).unwrap();
    file.write(3 * BLOCK as u64, b"abc").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), [1; 3 * BLOCK]);
    let mut expected = vec![0; 4 * BLOCK];
    expected[..BLOCK + 10].fill(1);
    expected[3 * BLOCK..3 * BLOCK + 3].copy_from_slice(b"abc");
    let mut out = vec![9; 4 * BLOCK];
    file.read(0, &mut out).unwrap();
    assert_eq!(out, expected);
    assert!(file.read(1, &mut out).is_err());
    file.sync().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), expected);
}
