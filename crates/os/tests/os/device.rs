//! What every way to a disk promises. Each test runs over io_uring (where the system lets us), threads, memory and volatile.

use crate::Scratch;
use base::buffer::{Buffer, Pool};
use base::disk::{Caching, Disk, DiskError, Done, FileKind, FileName, Fill, Op};
use base::error::ErrorKind;
use base::limit::BLOCK;
use bytes::Bytes;
use os::disk::{Backend, open};
use std::collections::BTreeSet;
use std::time::Duration;

const FILE: FileName = FileName::new(FileKind::Data, 7);
const SIZE: u64 = 8 << 20;

/// Runs a test over each way, with a directory of its own.
fn over_all(test: impl Fn(&mut dyn Disk, &Scratch)) {
    for backend in [Backend::Auto, Backend::Threads, Backend::Memory, Backend::Volatile] {
        let scratch = Scratch::new();
        let mut opened = open(&scratch.0, backend, Pool::new(64 << 20)).unwrap();
        if let Some(note) = &opened.note {
            println!("{backend:?}: {note}");
        }
        test(opened.disk.as_mut(), &scratch);
    }
}

fn wait_for(disk: &mut dyn Disk, count: usize) -> Vec<Done> {
    let mut done = Vec::new();
    while done.len() < count {
        disk.poll(None, &mut done);
    }
    done
}

fn run(disk: &mut dyn Disk, op: Op) -> Result<Buffer, DiskError> {
    disk.submit(42, op);
    let done = wait_for(disk, 1).pop().unwrap();
    assert_eq!(done.token, 42);
    done.result
}

fn create(number: u32, size: u64, fill: Fill) -> Op {
    Op::Create { file: FileName { number, ..FILE }, size, fill }
}

fn read(offset: u64, length: usize, caching: Caching) -> Op {
    Op::Read { file: FILE, offset, length, caching }
}

fn blocks(count: usize, value: u8) -> Bytes {
    let mut buffer = Buffer::zeroed(count * BLOCK);
    buffer.fill(value);
    buffer.freeze()
}

fn write(offset: u64, parts: Vec<Bytes>) -> Op {
    Op::Write { file: FILE, offset, parts }
}

/// What is written is read back around and through the page cache; parts lie one after another; punched space is zeros.
#[test]
fn write_read_sync_punch() {
    over_all(|disk, _| {
        run(disk, create(7, SIZE, Fill::Reserved)).unwrap();
        run(disk, write(4096, vec![blocks(1, 1), blocks(300, 2), blocks(2, 3)])).unwrap();
        run(disk, Op::Sync { file: FILE }).unwrap();
        for caching in [Caching::Around, Caching::MemoryOrAround, Caching::Through, Caching::MemoryOrAround] {
            let bytes = run(disk, read(0, 305 * BLOCK, caching)).unwrap();
            let values: Vec<u8> = bytes.chunks(BLOCK).map(|block| block[BLOCK - 1]).collect();
            assert_eq!(values[..3], [0, 1, 2], "{}", disk.backend());
            assert_eq!(values[300..], [2, 2, 3, 3, 0][..5], "{}", disk.backend());
        }
        run(disk, Op::Punch { file: FILE, offset: 8192, length: 4096 * 64 }).unwrap();
        let bytes = run(disk, read(4096, 66 * BLOCK, Caching::Around)).unwrap();
        assert!(bytes[BLOCK..65 * BLOCK].iter().all(|byte| *byte == 0), "{}", disk.backend());
        assert_eq!((bytes[0], bytes[65 * BLOCK]), (1, 2), "{}", disk.backend());
        run(disk, write(8192, vec![blocks(1, 9)])).unwrap();
        assert_eq!(run(disk, read(8192, BLOCK, Caching::Through)).unwrap()[0], 9);
    });
}

/// What is written at once, anywhere in a file that is there, is read both ways. Memory and volatile have no such files.
#[test]
fn written_at_once() {
    over_all(|disk, _| {
        assert_eq!(disk.has_early(), ["io_uring", "threads"].contains(&disk.backend()));
        if !disk.has_early() {
            return;
        }
        let name = FileName::new(FileKind::Early, 0);
        assert!(disk.early(name).is_none(), "there is no such file");
        run(disk, Op::Create { file: name, size: 2 * BLOCK as u64, fill: Fill::Zeros }).expect("made");
        let early = disk.early(name).expect("it is there");
        early.write(BLOCK as u64 - 3, b"abcdef").expect("written");
        for caching in [Caching::Through, Caching::Around] {
            let read = Op::Read { file: name, offset: 0, length: 2 * BLOCK, caching };
            let bytes = run(disk, read).expect("read");
            assert_eq!(&bytes[BLOCK - 4..BLOCK + 4], b"\0abcdef\0");
        }
    });
}

/// Files are listed in order with their lengths, replaced by a new one of their name, and gone once removed.
#[test]
fn create_list_remove() {
    over_all(|disk, _| {
        assert_eq!(disk.list().unwrap(), []);
        run(disk, create(9, 3 << 20, Fill::Zeros)).unwrap();
        run(disk, create(7, SIZE, Fill::Reserved)).unwrap();
        run(disk, write(0, vec![blocks(1, 5)])).unwrap();
        run(disk, create(7, 4096, Fill::Zeros)).unwrap();
        assert_eq!(disk.list().unwrap(), [(FILE, 4096), (FileName { number: 9, ..FILE }, 3 << 20)]);
        assert_eq!(run(disk, read(0, BLOCK, Caching::Around)).unwrap()[..], [0; BLOCK]);
        run(disk, Op::Remove { file: FILE }).unwrap();
        run(disk, Op::Remove { file: FILE }).unwrap();
        assert_eq!(disk.list().unwrap().len(), 1);
    });
}

/// A read that reaches beyond the end is shorter; a missing file is told apart from an error.
#[test]
fn missing() {
    over_all(|disk, _| {
        assert_eq!(run(disk, read(0, BLOCK, Caching::Around)).unwrap_err(), DiskError::NotFound);
        assert_eq!(run(disk, Op::Sync { file: FILE }).unwrap_err(), DiskError::NotFound);
        assert_eq!(run(disk, write(0, vec![blocks(1, 1)])).unwrap_err(), DiskError::NotFound);
        run(disk, create(7, 8192, Fill::Zeros)).unwrap();
        for caching in [Caching::Around, Caching::MemoryOrAround, Caching::Through] {
            assert_eq!(run(disk, read(4096, 4 * BLOCK, caching)).unwrap().len(), 4096, "{}", disk.backend());
            assert_eq!(run(disk, read(1 << 20, BLOCK, caching)).unwrap().len(), 0, "{}", disk.backend());
        }
    });
}

/// Far more operations than a ring has entries are in flight at once; each ends exactly once with its own bytes.
#[test]
fn many_at_once() {
    over_all(|disk, _| {
        run(disk, create(7, SIZE, Fill::Zeros)).unwrap();
        for token in 0..600u64 {
            disk.submit(token, write(token * 4096, vec![blocks(1, token as u8)]));
        }
        let tokens: BTreeSet<u64> =
            wait_for(disk, 600).into_iter().map(|done| (done.result.unwrap(), done.token).1).collect();
        assert_eq!(tokens.len(), 600, "{}", disk.backend());
        for token in 0..600u64 {
            let caching = if token % 2 == 0 { Caching::Around } else { Caching::Through };
            disk.submit(token, read(token * 4096, BLOCK, caching));
        }
        for done in wait_for(disk, 600) {
            assert_eq!(done.result.unwrap()[..], [done.token as u8; BLOCK], "{}", disk.backend());
        }
    });
}

/// More parts than one system call takes are written all the same.
#[test]
fn many_parts() {
    over_all(|disk, _| {
        run(disk, create(7, SIZE, Fill::Reserved)).unwrap();
        let parts: Vec<Bytes> = (0..1500).map(|part| blocks(1, part as u8)).collect();
        run(disk, write(0, parts)).unwrap();
        let bytes = run(disk, read(0, 1500 * BLOCK, Caching::Around)).unwrap();
        assert!(bytes.chunks(BLOCK).enumerate().all(|(part, block)| block[0] == part as u8), "{}", disk.backend());
    });
}

/// A wake from another thread ends a wait without end; one that came before ends the next; time ends a wait with an end.
#[test]
fn wake() {
    over_all(|disk, _| {
        let mut done = Vec::new();
        let waker = disk.waker();
        waker.wake();
        disk.poll(None, &mut done);
        for _ in 0..100 {
            let waker = disk.waker();
            let thread = std::thread::spawn(move || waker.wake());
            disk.poll(None, &mut done);
            thread.join().unwrap();
        }
        disk.poll(Some(Duration::from_millis(1)), &mut done);
        disk.poll(Some(Duration::ZERO), &mut done);
        assert!(done.is_empty());
    });
}

/// A disk may be moved to the thread that will use it.
#[test]
fn moves_to_its_thread() {
    let scratch = Scratch::new();
    let mut disk = open(&scratch.0, Backend::Auto, Pool::new(1 << 20)).unwrap().disk;
    let thread = std::thread::spawn(move || run(disk.as_mut(), create(7, 4096, Fill::Zeros)).map(|_| ()));
    assert_eq!(thread.join().unwrap(), Ok(()));
}

/// A directory belongs to one process, and the error names it; dropping a disk waits for what is in flight and frees the directory.
#[test]
fn lock_and_drop() {
    for backend in [Backend::Auto, Backend::Threads] {
        let scratch = Scratch::new();
        let mut opened = open(&scratch.0, backend, Pool::new(1 << 20)).unwrap();
        run(opened.disk.as_mut(), create(7, SIZE, Fill::Reserved)).unwrap();
        let error = open(&scratch.0, backend, Pool::new(1 << 20)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Busy);
        assert!(error.text().contains(&format!("process {} (", std::process::id())), "{error}");
        for token in 0..64u64 {
            opened.disk.submit(token, write(token * 65536, vec![blocks(16, 6)]));
        }
        opened.disk.submit(99, create(8, 1 << 20, Fill::Zeros));
        opened.disk.poll(Some(Duration::ZERO), &mut Vec::new());
        drop(opened);
        // What a process that was killed leaves half made is swept away.
        std::fs::write(scratch.0.join("data-00000004.making"), b"half").unwrap();
        let mut again = open(&scratch.0, backend, Pool::new(1 << 20)).unwrap();
        let bytes = run(again.disk.as_mut(), read(0, 4 << 20, Caching::Around)).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 6), "{}", again.disk.backend());
        assert_eq!(again.disk.list().unwrap().len(), 2);
        assert!(!scratch.0.join("data-00000004.making").exists());
    }
}

/// A directory on a file system in memory works, with or without its O_DIRECT.
#[test]
fn on_tmpfs() {
    let path = std::path::Path::new("/dev/shm").join(format!("stormwell-os-{}", std::process::id()));
    if !std::path::Path::new("/dev/shm").is_dir() {
        return;
    }
    let mut opened = open(&path, Backend::Auto, Pool::new(1 << 20)).unwrap();
    run(opened.disk.as_mut(), create(7, 1 << 20, Fill::Zeros)).unwrap();
    run(opened.disk.as_mut(), write(0, vec![blocks(3, 4)])).unwrap();
    assert_eq!(run(opened.disk.as_mut(), read(8192, BLOCK, Caching::Around)).unwrap()[0], 4);
    drop(opened);
    std::fs::remove_dir_all(&path).unwrap();
}

/// Names of ways read back; others are refused with the choices.
#[test]
fn names() {
    assert_eq!(Backend::from_name("threads"), Ok(Backend::Threads));
    assert!(Backend::from_name("fast").unwrap_err().text().contains("auto, io_uring or threads"));
}

/// A device that is only looked at shows its files and the changes made to them, and keeps the changes to itself. It is
/// refused while somebody serves the device, and the other way round.
#[test]
fn looking_changes_nothing() {
    let scratch = Scratch::new();
    let pool = Pool::new(64 << 20);
    let mut served = open(&scratch.0, Backend::Threads, pool.clone()).unwrap().disk;
    run(served.as_mut(), create(7, SIZE, Fill::Zeros)).unwrap();
    run(served.as_mut(), write(BLOCK as u64, vec![blocks(2, 5)])).unwrap();
    assert_eq!(os::disk::open_to_look(&scratch.0, pool.clone()).err().map(|error| error.kind()), Some(ErrorKind::Busy));
    drop(served);
    let mut looked = os::disk::open_to_look(&scratch.0, pool.clone()).unwrap();
    let _another = os::disk::open_to_look(&scratch.0, pool.clone()).unwrap();
    assert_eq!(open(&scratch.0, Backend::Threads, pool.clone()).err().map(|error| error.kind()), Some(ErrorKind::Busy));
    let disk = looked.as_mut();
    run(disk, write(2 * BLOCK as u64, vec![blocks(2, 6)])).unwrap();
    run(disk, Op::Sync { file: FILE }).unwrap();
    run(disk, create(8, SIZE, Fill::Zeros)).unwrap();
    for caching in [Caching::Around, Caching::Through] {
        let bytes = run(disk, read(0, 5 * BLOCK, caching)).unwrap();
        let values: Vec<u8> = bytes.chunks(BLOCK).map(|block| block[17]).collect();
        assert_eq!(values, [0, 5, 6, 6, 0]);
    }
    assert_eq!(run(disk, read(SIZE - BLOCK as u64, 2 * BLOCK, Caching::Around)).unwrap().len(), BLOCK);
    assert_eq!(disk.list().unwrap().len(), 2);
    run(disk, Op::Remove { file: FILE }).unwrap();
    assert_eq!(run(disk, read(0, BLOCK, Caching::Around)).unwrap_err(), DiskError::NotFound);
    drop((looked, _another));
    let mut served = open(&scratch.0, Backend::Threads, pool).unwrap().disk;
    assert_eq!(served.list().unwrap(), [(FILE, SIZE)]);
    let bytes = run(served.as_mut(), read(0, 5 * BLOCK, Caching::Around)).unwrap();
    let values: Vec<u8> = bytes.chunks(BLOCK).map(|block| block[17]).collect();
    assert_eq!(values, [0, 5, 5, 0, 0]);
}
