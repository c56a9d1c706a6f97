//! Files: what was written is read, whatever happens between.

use crate::fake::file::Wide;
use crate::fake::{Fake, Faults};
use base::checksum::BlockSums;
use base::env::Random;
use base::error::ErrorKind;
use base::limit::{FILE_CHUNK, RECORD_PAYLOAD_MAX};
use base::policy::Compression;
use bytes::Bytes;
use client::{Client, CreateOptions, FileReader, ReadOptions, Sizes};
use net::Ask;
use sim::random::SimRandom;
use std::sync::Arc;
use std::time::Duration;

/// Pieces of 16 KiB and chunks of five: boundaries come often.
pub const SMALL: Sizes = Sizes {
    piece: 16 << 10,
    file_chunk: 80 << 10,
    write_window: 64 << 10,
    read_piece: 24 << 10,
    read_window: 96 << 10,
};

pub const DELAYED: Faults = Faults {
    delay_max: Duration::from_millis(9),
    lose_one_in: 5,
    full: 0,
    crowded: 0,
    cut: 0,
    unreachable: false,
    unanswered: false,
    left: None,
    moved: 0,
    silent_device: None,
    damaged: 0,
    without_blocks: false,
    without_extents: false,
};

/// Cells of half a piece over four columns.
pub const WIDE: Wide = Wide { columns: 4, cell: 8 << 10, narrow: 24 << 10, room: 200_000, replicas: 1 };

/// A node on which files widen from this seed on.
pub fn narrow_or_wide(seed: u64, wide_from: u64) -> Arc<Fake> {
    let fake = Fake::new(seed);
    if seed >= wide_from {
        fake.state().wide = WIDE;
    }
    fake
}

pub fn content(length: usize, seed: u64) -> Bytes {
    let random = SimRandom::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(length);
    Bytes::from(bytes)
}

pub async fn write(client: &Client, path: &str, bytes: &Bytes, step: usize) {
    let mut writer = client.create(path, CreateOptions::default()).await.expect("the file is new");
    for start in (0..bytes.len()).step_by(step) {
        writer.write(bytes.slice(start..bytes.len().min(start + step))).await.expect("written");
    }
    assert_eq!(writer.position(), bytes.len() as u64);
    let attributes = writer.close().await.expect("closed");
    assert_eq!(attributes.length, bytes.len() as u64);
}

async fn read_stream(reader: &FileReader, offset: u64) -> Bytes {
    let mut stream = reader.stream(offset);
    let mut out = Vec::new();
    while let Some(bytes) = stream.next().await.expect("read") {
        assert!(!bytes.is_empty(), "a part without bytes");
        out.extend_from_slice(&bytes);
        assert_eq!(stream.position(), offset + out.len() as u64);
    }
    Bytes::from(out)
}

async fn read_at(reader: &FileReader, offset: u64, length: u64) -> Bytes {
    Bytes::from(reader.read_at(offset, length).await.expect("read").concat())
}

/// Files of all sizes around the boundaries of blocks, pieces and chunks come back byte for byte, however they were
/// written, though calls overtake each other and answers are lost.
#[tokio::test(start_paused = true)]
async fn round_trips() {
    let (piece, chunk) = (SMALL.piece, SMALL.file_chunk as usize);
    let sizes = [
        0,
        1,
        4095,
        4096,
        4097,
        piece - 1,
        piece,
        piece + 1,
        chunk - 1,
        chunk,
        chunk + 1,
        2 * chunk,
        3 * chunk + piece + 7,
    ];
    for seed in 0..12 {
        let fake = narrow_or_wide(seed, 6);
        let client = fake.client().with_sizes(SMALL);
        if seed % 2 == 1 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let step = [usize::MAX / 2, 1000, piece, 3 * piece + 5, chunk, 40_000][seed as usize % 6];
        for size in sizes {
            let (path, bytes) = (format!("/{size}"), content(size, seed));
            write(&client, &path, &bytes, step).await;
            let reader = client.open(&path).await.expect("it was made");
            let about = format!("seed {seed}, {size} bytes written {step} at a time");
            assert_eq!(reader.length().await.expect("known"), size as u64, "{about}");
            assert!(read_stream(&reader, 0).await == bytes, "{about}");
            assert!(client.read_small(&path).await.expect("read") == bytes, "{about}");
            for _ in 0..5 {
                let offset = fake.random.below(size as u64 + 10);
                let length = fake.random.below(size as u64 + 10);
                let end = (offset + length).min(size as u64);
                let expected = bytes.slice(offset.min(end) as usize..end as usize);
                assert!(read_at(&reader, offset, length).await == expected, "{about}, from {offset} for {length}");
                assert!(
                    read_stream(&reader, offset).await == bytes.slice(offset.min(size as u64) as usize..),
                    "{about}"
                );
            }
        }
    }
}

/// A node of an older version, which does not know how to store what is compressed, gets the bytes themselves, whatever overtakes
/// what.
#[tokio::test(start_paused = true)]
async fn older_nodes_get_the_bytes() {
    for seed in 0..6 {
        let fake = Fake::new(seed);
        fake.state().compression = [Compression::Lz4, Compression::Zstd][seed as usize % 2];
        if seed % 3 == 1 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let client = fake.client();
        let bytes = Bytes::from([vec![0; 3 << 20], vec![7; 700_001]].concat());
        write(&client, "/f", &bytes, [usize::MAX / 2, 900_000][seed as usize % 2]).await;
        assert!(client.read_small("/f").await.expect("read") == bytes, "seed {seed}");
        let tried = fake.state().calls.get(&net::message::chunk::AppendCell::KIND).copied().unwrap_or(0);
        assert!((1..20).contains(&tried), "seed {seed}: {tried} attempts");
    }
}

/// The same with the sizes that everybody uses, around a record and around a chunk.
#[tokio::test(start_paused = true)]
async fn round_trips_at_full_size() {
    let fake = Fake::new(1);
    let client = fake.client();
    let whole = content(FILE_CHUNK as usize + 1, 1);
    for size in [
        RECORD_PAYLOAD_MAX - 1,
        RECORD_PAYLOAD_MAX,
        RECORD_PAYLOAD_MAX + 1,
        whole.len() - 2,
        whole.len() - 1,
        whole.len(),
    ] {
        let (path, bytes) = (format!("/{size}"), whole.slice(..size));
        write(&client, &path, &bytes, 8 << 20).await;
        let reader = client.open_with(&path, ReadOptions { once: true }).await.expect("it was made");
        assert!(read_stream(&reader, 0).await == bytes, "{size} bytes");
        fake.state().chunks.clear();
    }
}

/// Large writes are passed on where they lie; only what is smaller than a piece is copied.
#[tokio::test(start_paused = true)]
async fn large_writes_are_not_copied() {
    let fake = Fake::new(1);
    let client = fake.client();
    let bytes = content(3 << 20, 1);
    write(&client, "/a", &bytes, usize::MAX / 2).await;
    let state = fake.state();
    let (_, stored) = state.chunks.iter().next().expect("there is a chunk");
    for (place, part) in stored.parts.iter().filter(|part| !part.is_empty()).enumerate() {
        assert_eq!(part.as_ptr(), bytes[place << 20..].as_ptr(), "part {place}");
    }
    assert!(stored.sealed && stored.synced == 3 << 20);
}

/// Bytes that are to go out at once go out as one append, where they lie; how far they are written is told as it happens: only
/// up, only over what all appends before have reached, and to the end. An error is told, too.
#[tokio::test(start_paused = true)]
async fn progress_is_told() {
    for seed in 0..12 {
        let fake = narrow_or_wide(seed, 6);
        fake.fail(|faults| *faults = DELAYED);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(300_000, seed);
        write(&client, "/a", &bytes.slice(..1000), 1000).await;
        let mut writer = client.append("/a").await.expect("it was made");
        let mut written = writer.written();
        assert_eq!(written.borrow().length, 1000);
        let node = fake.clone();
        let told = tokio::spawn(async move {
            let mut last = 1000;
            while written.changed().await.is_ok() {
                let now = written.borrow_and_update().clone();
                assert!(now.length > last && now.failed.is_none(), "seed {seed}: {now:?} after {last}");
                let stored: u64 = node.state().chunks.values().map(|chunk| chunk.length).sum();
                assert!(now.length <= stored, "seed {seed}: {now:?} with {stored} bytes at the node");
                last = now.length;
            }
            last
        });
        let mut at = 1000;
        while at < bytes.len() {
            let length = (fake.random.below(SMALL.piece as u64) as usize + 1).min(bytes.len() - at);
            let part = bytes.slice(at..at + length);
            let sums = BlockSums::of(&part);
            at += length;
            if fake.random.one_in(4) {
                let synced = writer.sync_now(part, sums).await.expect("handed over");
                synced.await.expect("synced");
                assert_eq!(writer.written().borrow().length, at as u64, "seed {seed}");
            } else {
                writer.write_now(part, sums).await.expect("written");
            }
            assert_eq!(writer.position(), at as u64);
        }
        writer.close().await.expect("closed");
        assert_eq!(told.await.expect("no panic"), bytes.len() as u64, "seed {seed}");
        assert!(client.read_small("/a").await.expect("read") == bytes, "seed {seed}");
        let mut writer = client.append("/a").await.expect("it was made");
        fake.fail(|faults| faults.unreachable = true);
        writer.write_now(bytes.slice(..5), BlockSums::of(&bytes[..5])).await.expect("handed over");
        let mut written = writer.written();
        written.changed().await.expect("it goes on");
        let failed = written.borrow().failed.clone();
        assert_eq!(failed.map(|error| error.kind()), Some(ErrorKind::Unreachable));
    }
}

/// Any number of syncs of one stream are on their way at once: the node has been asked for all of them before the first is answered.
#[tokio::test(start_paused = true)]
async fn syncs_do_not_wait_for_each_other() {
    let fake = narrow_or_wide(1, 6);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(4 * 500, 1);
    let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
    // The way to its device is known afterwards.
    writer.sync_now(bytes.slice(..1), BlockSums::of(&bytes[..1])).await.expect("handed over").await.expect("synced");
    fake.fail(|faults| faults.delay_max = Duration::from_secs(1));
    let mut syncs = Vec::new();
    for number in 0..4 {
        let part = bytes.slice(number * 500..(number + 1) * 500);
        let sums = BlockSums::of(&part);
        syncs.push(writer.sync_now(part, sums).await.expect("handed over"));
    }
    let asked = || fake.state().calls.get(&net::message::chunk::Append::KIND).copied().unwrap_or_default();
    // No time passes as long as somebody has something to do.
    for _ in 0..1000 {
        if asked() == 5 {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(asked(), 5, "they wait for each other");
    assert_eq!(writer.written().borrow().length, 1);
    for (number, sync) in syncs.into_iter().enumerate() {
        sync.await.expect("synced");
        assert!(writer.written().borrow().length > (number as u64 + 1) * 500);
    }
}

/// Syncs are reported in their order, each when all bytes before it are synced, however calls overtake each other and answers are lost.
#[tokio::test(start_paused = true)]
async fn syncs_are_reported_in_their_order() {
    for seed in 0..16 {
        let fake = narrow_or_wide(seed, 8);
        fake.fail(|faults| *faults = DELAYED);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(150_000, seed);
        let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
        let (mut at, mut syncs) = (0, Vec::new());
        while at < bytes.len() {
            let length = (fake.random.below(4000) as usize + 1).min(bytes.len() - at);
            let part = bytes.slice(at..at + length);
            let sums = BlockSums::of(&part);
            at += length;
            if fake.random.one_in(3) {
                writer.write_now(part, sums).await.expect("handed over");
            } else {
                syncs.push((at as u64, writer.sync_now(part, sums).await.expect("handed over")));
            }
        }
        let written = writer.written();
        for (end, sync) in syncs {
            sync.await.expect("synced");
            assert!(written.borrow().length >= end, "seed {seed}");
            let synced: u64 = fake.state().chunks.values().map(|chunk| chunk.synced).sum();
            assert!(synced >= end, "seed {seed}: {synced} bytes are synced, {end} were reported");
        }
        writer.close().await.expect("closed");
        assert!(client.read_small("/a").await.expect("read") == bytes, "seed {seed}");
    }
}

/// Whoever stops waiting for a sync or a flush loses nothing: it goes on, and so does the writer.
#[tokio::test(start_paused = true)]
async fn syncs_that_nobody_waits_for_go_on() {
    for seed in 0..16 {
        let fake = narrow_or_wide(seed, 8);
        fake.fail(|faults| *faults = DELAYED);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(120_000, seed);
        let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
        for part in bytes.chunks(1500) {
            writer.write(Bytes::copy_from_slice(part)).await.expect("written");
            let patience = Duration::from_millis(fake.random.below(12));
            if seed % 2 == 0 {
                let _left = tokio::time::timeout(patience, writer.sync()).await;
            } else {
                let _left = tokio::time::timeout(patience, writer.hflush()).await;
            }
        }
        writer.close().await.expect("closed");
        assert!(client.read_small("/a").await.expect("read") == bytes, "seed {seed}");
    }
}

/// Whoever stops waiting for a write goes on from the writer's position, and no byte is missing or twice there.
#[tokio::test(start_paused = true)]
async fn writes_that_nobody_waits_for_are_counted() {
    for seed in 0..16 {
        let fake = narrow_or_wide(seed, 8);
        fake.fail(|faults| *faults = DELAYED);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(400_000, seed);
        let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
        let mut given_up = 0;
        while writer.position() < 400_000 {
            let at = writer.position() as usize;
            let part = bytes.slice(at..400_000.min(at + 50_000));
            let patience = Duration::from_millis(fake.random.below(12));
            given_up += u32::from(tokio::time::timeout(patience, writer.write(part)).await.is_err());
        }
        assert!(given_up > 0, "seed {seed}");
        writer.close().await.expect("closed");
        assert!(client.read_small("/a").await.expect("read") == bytes, "seed {seed}");
    }
}

/// Appending goes on where the file ended, again and again.
#[tokio::test(start_paused = true)]
async fn append() {
    for seed in 3..5 {
        let fake = narrow_or_wide(seed, 4);
        fake.fail(|faults| *faults = DELAYED);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(200_000, 3);
        write(&client, "/a", &bytes.slice(..1), 1).await;
        let mut at = 1;
        for length in [0, 5, 100_000, 16_384, 83_610] {
            let mut writer = client.append("/a").await.expect("it was made");
            assert_eq!(writer.position(), at as u64);
            writer.write(bytes.slice(at..at + length)).await.expect("written");
            writer.close().await.expect("closed");
            at += length;
        }
        assert!(client.read_small("/a").await.expect("read") == bytes);
    }
}

/// What hflush or sync reported is seen by everybody at once, also by readers that were there before, and across chunks.
#[tokio::test(start_paused = true)]
async fn hflush_is_visible() {
    for seed in 0..16 {
        let fake = narrow_or_wide(seed, 8);
        fake.fail(|faults| *faults = DELAYED);
        let (writing, reading) = (fake.client().with_sizes(SMALL), fake.client().with_sizes(SMALL));
        let bytes = content(400_000, seed);
        let mut writer = writing.create("/a", CreateOptions::default()).await.expect("the file is new");
        let early = reading.open("/a").await.expect("it was made");
        let mut stream = early.stream(0);
        let (mut at, mut streamed) = (0, Vec::new());
        while at < bytes.len() {
            let length = (fake.random.below(90_000) as usize).min(bytes.len() - at);
            writer.write(bytes.slice(at..at + length)).await.expect("written");
            at += length;
            match seed % 2 {
                0 => writer.hflush().await.expect("visible"),
                _ => writer.sync().await.expect("visible"),
            }
            assert_eq!(early.length().await.expect("known"), at as u64, "seed {seed}");
            let late = reading.open("/a").await.expect("it was made");
            assert!(read_at(&late, 0, u64::MAX).await == bytes.slice(..at), "seed {seed}: a new reader, {at} bytes");
            assert!(read_at(&early, 0, u64::MAX).await == bytes.slice(..at), "seed {seed}: an old reader, {at} bytes");
            while let Some(part) = stream.next().await.expect("read") {
                streamed.extend_from_slice(&part);
            }
            assert!(streamed == bytes.slice(..at), "seed {seed}: a stream, {at} bytes");
        }
        if seed % 2 == 1 {
            let state = fake.state();
            assert!(
                state.chunks.values().all(|chunk| chunk.synced == chunk.length),
                "seed {seed}: sync left something"
            );
        }
    }
}

/// While a writer lives nobody else opens the file. When its lease is over, another writer goes on: the first is told so,
/// cannot add a byte, and what it hflushed is kept.
#[tokio::test(start_paused = true)]
async fn stale_writer_is_refused() {
    let fake = Fake::new(5);
    let (first, second) = (fake.client().with_sizes(SMALL), fake.client().with_sizes(SMALL));
    let mut old = first.create("/a", CreateOptions::default()).await.expect("the file is new");
    old.write(Bytes::from_static(b"kept")).await.expect("written");
    old.hflush().await.expect("visible");
    assert_eq!(second.append("/a").await.err().map(|error| error.kind()), Some(ErrorKind::Busy));
    fake.state().end_leases();
    let mut new = second.append("/a").await.expect("nobody writes it");
    old.write(Bytes::from_static(b" lost")).await.expect("gathered");
    let error = old.hflush().await.expect_err("somebody else writes");
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert!(error.text().contains("somebody else"), "{error}");
    assert_eq!(old.write(Bytes::new()).await, Err(error.clone()), "errors stay");
    assert_eq!(old.close().await, Err(error));
    new.write(Bytes::from_static(b", and more")).await.expect("written");
    new.close().await.expect("closed");
    assert_eq!(first.read_small("/a").await.expect("read"), "kept, and more");
}

/// A full device makes a writer wait, not fail, while room comes back; without any for 20 s it is told.
#[tokio::test(start_paused = true)]
async fn full_devices() {
    let fake = Fake::new(6);
    let client = fake.client().with_sizes(SMALL);
    fake.fail(|faults| faults.full = 7);
    let bytes = content(100_000, 6);
    write(&client, "/a", &bytes, 30_000).await;
    assert!(client.read_small("/a").await.expect("read") == bytes);
    fake.fail(|faults| faults.full = u32::MAX);
    let mut writer = client.create("/b", CreateOptions::default()).await.expect("the file is new");
    let mut error = None;
    for _ in 0..10 {
        error = error.or(writer.write(bytes.slice(..20_000)).await.err());
    }
    let error = error.or(writer.hflush().await.err()).expect("there was no room");
    assert_eq!(error.kind(), ErrorKind::Full);
}

/// A reader whose chunks were moved asks where they are now; one whose file is gone is told so.
#[tokio::test(start_paused = true)]
async fn moved_chunks_are_found_again() {
    let fake = Fake::new(7);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(300_000, 7);
    write(&client, "/a", &bytes, 50_000).await;
    let reader = client.open("/a").await.expect("it was made");
    assert!(read_stream(&reader, 0).await == bytes);
    fake.state().move_chunks();
    assert!(read_stream(&reader, 0).await == bytes);
    // Again on the way from the metadata to the device, a few times.
    for again in 1..4 {
        fake.state().move_chunks();
        fake.fail(|faults| faults.moved = again);
        assert!(reader.read_at(0, 300_000).await.expect("found").concat() == bytes, "moved {again} times more");
    }
    fake.state().chunks.clear();
    let error = reader.read_at(0, 10).await.expect_err("the chunk is gone");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// A chunk that is shorter than the file says is damage, told as such, never a shorter file.
#[tokio::test(start_paused = true)]
async fn missing_bytes_are_no_end() {
    let fake = Fake::new(8);
    let client = fake.client().with_sizes(SMALL);
    write(&client, "/a", &content(100_000, 8), 50_000).await;
    let reader = client.open("/a").await.expect("it was made");
    for chunk in fake.state().chunks.values_mut() {
        chunk.parts.pop();
    }
    let error = reader.read_at(0, 100_000).await.expect_err("bytes are missing");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    // Which file, which of its bytes, on which device.
    assert!(["/a", "device ", "bytes of the file at "].iter().all(|part| error.text().contains(part)), "{error}");
    assert_eq!(reader.stream(0).next().await.err().map(|error| error.kind()), None);
}

/// Dropped without close, a writer leaves whole pieces that it had taken; an unreachable node is an error that stays.
#[tokio::test(start_paused = true)]
async fn drop_and_unreachable() {
    let fake = Fake::new(9);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(SMALL.piece * 7, 9);
    let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
    writer.write(bytes.clone()).await.expect("written");
    drop(writer);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(client.read_small("/a").await.expect("read") == bytes);
    fake.state().end_leases();
    let mut writer = client.append("/a").await.expect("it was made");
    fake.fail(|faults| faults.unreachable = true);
    writer.write(bytes.slice(..5)).await.expect("gathered");
    assert_eq!(writer.sync().await.map_err(|error| error.kind()), Err(ErrorKind::Unreachable));
    assert_eq!(writer.close().await.map_err(|error| error.kind()), Err(ErrorKind::Unreachable));
}

/// The session is renewed while a client lives, and not after.
#[tokio::test(start_paused = true)]
async fn session_is_renewed() {
    let fake = Fake::new(10);
    let client = fake.client();
    let copy = client.clone();
    drop(client);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(fake.state().calls.get(&1), Some(&6));
    drop(copy);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(fake.state().calls.get(&1), Some(&6));
    assert_eq!(Arc::strong_count(&fake), 1, "something still holds the link");
}
