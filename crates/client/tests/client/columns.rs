//! Files over several columns: what is ahead in one of them is not seen before the others have what comes before it.

use crate::fake::Fake;
use crate::fake::file::layout_of;
use crate::files::{DELAYED, SMALL, WIDE, content, narrow_or_wide};
use base::checksum::BlockSums;
use base::env::Random;
use base::error::ErrorKind;
use base::layout::Replica;
use bytes::Bytes;
use client::{CreateOptions, FileReader, ReadOptions, Sums};
use std::sync::Arc;
use std::time::Duration;

/// Whether the columns of some group hold bytes behind one that is missing.
fn is_ahead(fake: &Arc<Fake>) -> bool {
    let state = fake.state();
    state.files.groups.values().any(|group| {
        let layout = layout_of(group);
        let length = |replica: Replica| state.stored(replica.chunk, replica.device).map_or(0, |chunk| chunk.length);
        let lengths: Vec<(usize, u64)> = layout.replicas().map(|replica| (replica.column, length(replica))).collect();
        layout.length(lengths.iter().copied()) < lengths.iter().map(|(_, length)| length).sum()
    })
}

/// How much of the file with this name is on stable media.
fn durable(fake: &Arc<Fake>, path: &str) -> u64 {
    let state = fake.state();
    let file = &state.files.by_number[&state.files.by_path[path]];
    let Some(group) = file.writer else { return file.length };
    let layout = layout_of(&state.files.groups[&group]);
    let synced = |replica: Replica| state.stored(replica.chunk, replica.device).map_or(0, |chunk| chunk.synced);
    file.length + layout.length(layout.replicas().map(|replica| (replica.column, synced(replica))))
}

async fn read_all(reader: &FileReader) -> Bytes {
    Bytes::from(reader.read_at(0, u64::MAX).await.expect("read").concat())
}

/// While columns are ahead of each other readers see the first bytes of the file, however they read, and never a byte behind one
/// that is missing.
#[tokio::test(start_paused = true)]
async fn no_holes() {
    let mut ahead = 0;
    for seed in 0..40 {
        let fake = narrow_or_wide(seed, 0);
        fake.fail(|faults| *faults = DELAYED);
        let (writing, reading) = (fake.client().with_sizes(SMALL), fake.client().with_sizes(SMALL));
        let bytes = content(600_000, seed);
        let mut writer = writing.create("/a", CreateOptions::default()).await.expect("the file is new");
        let whole = bytes.clone();
        let written = tokio::spawn(async move {
            for part in whole.chunks(10_000) {
                writer.write(Bytes::copy_from_slice(part)).await.expect("written");
            }
            writer.close().await.expect("closed")
        });
        let early = reading.open("/a").await.expect("it was made");
        let mut stream = early.stream(0);
        let mut streamed = Vec::new();
        let mut least = 0;
        while !written.is_finished() {
            ahead += u64::from(is_ahead(&fake));
            let late = reading.open("/a").await.expect("it was made");
            for reader in [&early, &late] {
                let length = reader.length().await.expect("known");
                assert!(length >= least, "seed {seed}: {length} bytes, and {least} before");
                least = length;
                // Across the place where the file ends just now.
                let from = length.saturating_sub(fake.random.below(60_000));
                let parts = reader.read_at(from, 100_000).await.expect("read").concat();
                let end = from as usize + parts.len();
                assert!(end as u64 >= length, "seed {seed}: {end} bytes of {length}");
                assert!(parts == bytes[from as usize..end], "seed {seed}: other bytes in {from}..{end}");
            }
            if let Some(part) = stream.next().await.expect("read") {
                streamed.extend_from_slice(&part);
            }
            assert!(streamed == bytes.slice(..streamed.len()), "seed {seed}: a stream");
        }
        written.await.expect("no panic");
        assert!(read_all(&early).await == bytes, "seed {seed}");
    }
    assert!(ahead > 10, "columns were ahead {ahead} times");
}

/// When a writer goes away in the middle, the file keeps the bytes up to the first one that some column lacks: all that were
/// acknowledged, and none that are not its own.
#[tokio::test(start_paused = true)]
async fn left_in_the_middle() {
    for seed in 0..20 {
        let fake = narrow_or_wide(seed, 0);
        fake.fail(|faults| *faults = DELAYED);
        let (first, second) = (fake.client().with_sizes(SMALL), fake.client().with_sizes(SMALL));
        let bytes = content(400_000, seed);
        let mut writer = first.create("/a", CreateOptions::default()).await.expect("the file is new");
        let (mut at, mut promised) = (0, 0);
        let left = 50_000 + fake.random.below(300_000) as usize;
        while at < left {
            let length = 1 + fake.random.below(30_000) as usize;
            writer.write(bytes.slice(at..at + length)).await.expect("written");
            at += length;
            if fake.random.one_in(5) {
                writer.hflush().await.expect("visible");
                promised = at;
            }
        }
        promised = promised.max(writer.written().borrow().length as usize);
        fake.state().end_leases();
        let mut next = second.append("/a").await.expect("nobody writes it");
        let kept = next.position() as usize;
        assert!((promised..=at).contains(&kept), "seed {seed}: {kept} bytes of {at}, and {promised} were promised");
        next.write(Bytes::from_static(b"behind")).await.expect("written");
        next.close().await.expect("closed");
        let all = second.read_small("/a").await.expect("read");
        assert!(all[..kept] == bytes[..kept] && all[kept..] == b"behind"[..], "seed {seed}");
        let late = match writer.write(Bytes::from_static(b"late")).await {
            Ok(()) => writer.hflush().await,
            known => known,
        };
        assert_eq!(late.err().map(|error| error.kind()), Some(ErrorKind::Stale), "seed {seed}");
    }
}

/// A file goes on elsewhere when devices of it are full, whichever of them are and when: no byte is lost or written twice, what is promised
/// is there, and nobody waits.
#[tokio::test(start_paused = true)]
async fn goes_on_elsewhere() {
    let mut ended_early = 0;
    for seed in 0..60 {
        let fake = narrow_or_wide(seed, 15);
        if seed % 3 > 0 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let (writing, reading) = (fake.client().with_sizes(SMALL), fake.client().with_sizes(SMALL));
        let bytes = content(700_000, seed);
        let mut writer = writing.create("/a", CreateOptions::default()).await.expect("the file is new");
        let (mut at, mut syncs) = (0, Vec::new());
        while at < bytes.len() {
            if fake.random.one_in(4) {
                // At most two of the three.
                let full = (0..fake.random.below(3)).map(|_| u128::from(1 + fake.random.below(3))).collect();
                fake.state().full_devices = full;
            }
            let end = (at + 1 + fake.random.below(40_000) as usize).min(bytes.len());
            let part = bytes.slice(at..end);
            match fake.random.below(8) {
                0 => writer.hflush().await.expect("visible"),
                1 => {
                    writer.sync().await.expect("durable");
                    assert!(durable(&fake, "/a") >= at as u64, "seed {seed}");
                }
                2 if part.len() <= SMALL.piece => {
                    let synced = writer.sync_now(part.clone(), BlockSums::of(&part)).await.expect("taken");
                    syncs.push((end, synced));
                    at = end;
                    continue;
                }
                _ => (),
            }
            let promised = at as u64;
            writer.write(part).await.expect("written");
            at = end;
            if fake.random.one_in(6) {
                writer.hflush().await.expect("visible");
                let there = reading.open("/a").await.expect("it was made").length().await.expect("known");
                assert!(there >= promised.max(at as u64), "seed {seed}: {there} bytes of {at}");
            }
        }
        for (end, synced) in syncs {
            synced.await.expect("durable");
            assert!(durable(&fake, "/a") >= end as u64, "seed {seed}");
            assert!(writer.written().borrow().length >= end as u64, "seed {seed}");
        }
        let attributes = writer.close().await.expect("closed");
        assert_eq!(attributes.length, bytes.len() as u64, "seed {seed}");
        fake.state().full_devices.clear();
        assert!(read_all(&reading.open("/a").await.expect("it was made")).await == bytes, "seed {seed}");
        ended_early += fake.state().ended_early;
    }
    assert!(ended_early > 100, "{ended_early} groups ended early");
}

/// While all devices are full a writer waits, and each of them may be the first that has room again; without any it is told.
#[tokio::test(start_paused = true)]
async fn all_are_full() {
    for seed in 0..12 {
        let fake = narrow_or_wide(seed, 6);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(300_000, seed);
        let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
        writer.write(bytes.slice(..100_000)).await.expect("written");
        writer.sync().await.expect("durable");
        fake.state().full_devices = [1, 2, 3].into();
        let (fake_too, lucky) = (fake.clone(), seed % 3 + 1);
        let relief = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(6)).await;
            fake_too.state().full_devices.remove(&u128::from(lucky));
        });
        let went_on = async {
            writer.write(bytes.slice(100_000..)).await?;
            writer.sync().await
        };
        let went_on = went_on.await;
        relief.await.expect("no panic");
        // Which of them is waited for is chance: the one that has room again, or another, after which the writer is told so.
        match went_on {
            Ok(()) => drop(writer.close().await.expect("closed")),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Full, "seed {seed}: {error}");
                // Only one that refuses alone is named.
                assert_eq!(writer.written().borrow().full, None, "seed {seed}");
                fake.state().end_leases();
            }
        }
        let kept = read_all(&client.open("/a").await.expect("it was made")).await;
        assert!(kept.len() >= 100_000 && kept == bytes.slice(..kept.len()), "seed {seed}: {} bytes", kept.len());
    }
}

/// When a device fails a sync, a file on it goes on elsewhere if all that was acknowledged there was synced. Else it fails and says which
/// bytes may be lost; what was synced is there either way.
#[tokio::test(start_paused = true)]
async fn a_device_fails() {
    let (mut went_on, mut lost) = (0, 0);
    for seed in 0..80 {
        let fake = narrow_or_wide(seed, 6);
        if seed % 3 > 0 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(300_000, seed);
        let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
        let follower = client.open("/a").await.expect("it was made");
        let (mut at, mut synced, fails_at) = (0, 0, fake.random.below(bytes.len() as u64) as usize);
        let syncs_each = seed % 2 == 0;
        let mut went = Ok(());
        while at < bytes.len() && went.is_ok() {
            if at >= fails_at && fake.state().failed_devices.is_empty() {
                let device = u128::from(1 + fake.random.below(3));
                fake.state().fail_device(device);
            }
            let end = (at + 1 + fake.random.below(20_000) as usize).min(bytes.len());
            went = writer.write(bytes.slice(at..end)).await;
            at = end;
            if fake.random.one_in(8) {
                let seen = read_all(&follower).await;
                assert!(seen == bytes.slice(..seen.len()) && seen.len() <= at, "seed {seed}: {} seen", seen.len());
            }
            if went.is_ok() && (syncs_each || fake.random.one_in(4)) {
                went = writer.sync().await;
                synced = if went.is_ok() { at } else { synced };
            } else if went.is_ok() && fake.random.one_in(2) {
                went = writer.hflush().await;
            }
            assert!(durable(&fake, "/a") >= synced as u64, "seed {seed}");
        }
        let closed = match went {
            Ok(()) => writer.close().await.map(drop),
            failed => failed,
        };
        match closed {
            Ok(()) => {
                assert!(read_all(&client.open("/a").await.expect("it was made")).await == bytes, "seed {seed}");
                // No seal tells it that the file went on.
                tokio::time::sleep(Duration::from_secs(2)).await;
                assert!(read_all(&follower).await == bytes, "seed {seed}: a reader from before");
                went_on += fake.state().ended_early.min(1);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "seed {seed}: {error}");
                assert!(error.text().contains("may be lost"), "seed {seed}: {error}");
                fake.state().end_leases();
                let kept = read_all(&client.open("/a").await.expect("it was made")).await;
                assert!(kept.len() >= synced && kept == bytes.slice(..kept.len()), "seed {seed}: {}", kept.len());
                lost += 1;
            }
        }
    }
    assert!(went_on >= 20 && lost >= 10, "{went_on} files went on elsewhere, {lost} lost bytes that were not synced");
}

/// A file uses all columns at once, and each cell lies where it should; a small one uses a single chunk.
#[tokio::test(start_paused = true)]
async fn spreads() {
    let fake = narrow_or_wide(1, 0);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(200_000, 1);
    crate::files::write(&client, "/small", &bytes.slice(..WIDE.narrow as usize - 1), 5_000).await;
    assert_eq!(fake.state().chunks.len(), 1);
    fake.state().chunks.clear();
    crate::files::write(&client, "/a", &bytes, 10_000).await;
    let state = fake.state();
    let chunks: Vec<_> = state.chunks.values().collect();
    assert_eq!(chunks.len(), 5, "a narrow group and four columns");
    let lengths: Vec<u64> = chunks.iter().map(|chunk| chunk.length).collect();
    // 200,000 - 24 KiB are 21 cells of 8 KiB and 3,392 bytes.
    assert_eq!(lengths, [24 << 10, 6 * 8192, 5 * 8192 + 3392, 5 * 8192, 5 * 8192]);
    let second: Vec<u8> = chunks[2].parts.concat();
    let cell = |number: usize| (24 << 10) + number * 8192;
    assert!(second[..8192] == bytes[cell(1)..cell(2)] && second[8192..16384] == bytes[cell(5)..cell(6)]);
}

/// Checksums come with bytes of several columns as with those of one.
#[tokio::test(start_paused = true)]
async fn ranges_with_sums() {
    let fake = narrow_or_wide(2, 0);
    fake.fail(|faults| *faults = DELAYED);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(300_000, 2);
    crate::files::write(&client, "/a", &bytes, 100_000).await;
    let reader = client.open("/a").await.expect("it was made");
    for sums in [Sums::None, Sums::Sectors, Sums::Blocks, Sums::Stored] {
        for _ in 0..10 {
            let from = fake.random.below(bytes.len() as u64);
            let length = fake.random.below(bytes.len() as u64 - from);
            let mut range = reader.range(from, length, ReadOptions::default(), sums);
            let (mut got, mut summed) = (Vec::new(), Vec::new());
            while let Some(piece) = range.next().await.expect("read") {
                got.extend(piece.parts.concat());
                summed.extend(piece.sums);
            }
            assert!(got == bytes[from as usize..(from + length) as usize]);
            let unit = match sums {
                Sums::None => continue,
                Sums::Sectors => base::checksum::SECTOR,
                Sums::Blocks | Sums::Stored => base::limit::BLOCK,
            };
            let right: Vec<u32> = got.chunks(unit).map(base::checksum::crc32c).collect();
            assert_eq!(summed, right, "{sums:?} from {from}");
        }
    }
}
