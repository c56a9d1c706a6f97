//! Files over several columns: what is ahead in one of them is not seen before the others have what comes before it.

use crate::fake::Fake;
use crate::fake::file::layout_of;
use crate::files::{DELAYED, SMALL, WIDE, content, narrow_or_wide};
use base::env::Random;
use base::error::ErrorKind;
use base::layout::Replica;
use bytes::Bytes;
use client::{CreateOptions, FileReader, ReadOptions, Sums};
use std::sync::Arc;

/// Whether the columns of some group hold bytes behind one that is missing.
fn is_ahead(fake: &Arc<Fake>) -> bool {
    let state = fake.state();
    state.files.groups.values().any(|group| {
        let layout = layout_of(group);
        let length = |replica: Replica| state.chunks.get(&replica.chunk.0).map_or(0, |chunk| chunk.length);
        let lengths: Vec<(usize, u64)> = layout.replicas().map(|replica| (replica.column, length(replica))).collect();
        layout.length(lengths.iter().copied()) < lengths.iter().map(|(_, length)| length).sum()
    })
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
