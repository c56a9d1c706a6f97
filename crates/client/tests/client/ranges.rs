//! Ranges: the right bytes with the right checksums, and no more asked for than is used.

use crate::fake::Fake;
use crate::files::{DELAYED, SMALL, content, write};
use base::checksum::{SECTOR, crc32c};
use base::env::Random;
use base::error::ErrorKind;
use base::limit::BLOCK;
use bytes::Bytes;
use client::{CreateOptions, RangeStream, ReadOptions, Sums};

const ALL: [Sums; 4] = [Sums::None, Sums::Sectors, Sums::Blocks, Sums::Stored];

/// Checksums of these bytes.
fn sums_of(bytes: &[u8], sums: Sums) -> Vec<u32> {
    match sums {
        Sums::None => Vec::new(),
        Sums::Sectors => bytes.chunks(SECTOR).map(crc32c).collect(),
        Sums::Blocks | Sums::Stored => bytes.chunks(BLOCK).map(crc32c).collect(),
    }
}

/// Takes everything; compares the checksums with the bytes.
async fn take_all(mut range: RangeStream, sums: Sums) -> Vec<u8> {
    let unit = if matches!(sums, Sums::None | Sums::Sectors) { SECTOR } else { BLOCK };
    let mut out = Vec::new();
    while let Some(piece) = range.next().await.expect("read") {
        assert!(out.len().is_multiple_of(unit), "only the last piece ends within a unit");
        let bytes = piece.parts.concat();
        assert_eq!(piece.length, bytes.len() as u64);
        assert_eq!(piece.sums, sums_of(&bytes, sums));
        out.extend_from_slice(&bytes);
    }
    out
}

/// Any range brings its bytes and their checksums, also where chunks of odd lengths meet, and through a file's number.
#[tokio::test(start_paused = true)]
async fn any_range() {
    for seed in 0..4 {
        let fake = Fake::new(seed);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(3_000_000, seed);
        write(&client, "/a", &bytes.slice(..70_001), 1000).await;
        let mut writer = client.append("/a").await.expect("it was made");
        writer.write(bytes.slice(70_001..)).await.expect("written");
        writer.close().await.expect("closed");
        if seed % 2 == 1 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let inode = client.stat("/a").await.expect("it is there").inode;
        let reader = client.open_inode(inode).await.expect("it is there");
        for round in 0..40 {
            let offset = fake.random.below(bytes.len() as u64 + 10);
            let length = fake.random.below(1 + (bytes.len() as u64 >> fake.random.below(20)));
            let end = (offset + length).min(bytes.len() as u64);
            let sums = ALL[round % 4];
            fake.fail(|faults| faults.without_blocks = round % 8 == 7);
            let range = reader.range(offset, length, ReadOptions { once: round % 3 == 0 }, sums);
            let expected = &bytes[offset.min(end) as usize..end as usize];
            assert!(take_all(range, sums).await == expected, "seed {seed}: {length} bytes from {offset}");
        }
    }
    let fake = Fake::new(9);
    let client = fake.client();
    let error = client.open_inode(77).await.err().expect("there is no such file");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

/// A small range costs its own bytes and one call; of a large one only a little is asked for before it is taken, and then
/// more and more, up to a bound.
#[tokio::test(start_paused = true)]
async fn asked_for_as_it_is_taken() {
    let fake = Fake::new(1);
    let client = fake.client();
    let bytes = content(32 << 20, 1);
    write(&client, "/a", &bytes, 8 << 20).await;
    let reader = client.open("/a").await.expect("it was made");
    let calls = |fake: &Fake| fake.state().calls.values().sum::<u64>();
    let before = calls(&fake);
    assert_eq!(
        take_all(reader.range(5000, 9000, ReadOptions::default(), Sums::Blocks), Sums::Blocks).await,
        bytes[5000..14_000]
    );
    assert_eq!((calls(&fake) - before, fake.state().bytes_read), (1, 9000));
    fake.state().bytes_read = 0;
    let mut range = reader.range(0, 32 << 20, ReadOptions::default(), Sums::Stored);
    let mut taken = 0;
    for asked_max in [1 << 20, 3 << 20, 5 << 20, 5 << 20, 6 << 20, 7 << 20, 8 << 20] {
        taken += range.next().await.expect("read").expect("more").length;
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        let asked = fake.state().bytes_read;
        assert!(asked <= asked_max && asked <= taken + (3 << 20), "{asked} bytes were asked for, {taken} were taken");
    }
    assert!(taken >= 4 << 20, "pieces grow: {taken}");
    drop(range);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(fake.state().bytes_read < 12 << 20);
}

/// Bytes that do not match are asked for again; rotten ones never come out, and the error says so.
#[tokio::test(start_paused = true)]
async fn damage_does_not_come_out() {
    let fake = Fake::new(2);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(100_000, 2);
    write(&client, "/a", &bytes, 50_000).await;
    let reader = client.open("/a").await.expect("it was made");
    for sums in ALL {
        fake.fail(|faults| faults.damaged = 1);
        let range = reader.range(700, 90_000, ReadOptions::default(), sums);
        assert!(take_all(range, sums).await == bytes[700..90_700]);
        fake.fail(|faults| faults.damaged = 2);
        let mut range = reader.range(700, 20_000, ReadOptions::default(), sums);
        assert_eq!(range.next().await.expect_err("rotten").kind(), ErrorKind::Corrupt);
        assert!(range.next().await.expect("over").is_none());
    }
}

/// What many readers have asked for ahead is bounded together, and comes back when they are gone.
#[tokio::test(start_paused = true)]
async fn many_readers_ask_for_less() {
    let fake = Fake::new(3);
    let client = fake.client();
    let bytes = content(4 << 20, 3);
    write(&client, "/a", &bytes, 8 << 20).await;
    let reader = client.open("/a").await.expect("it was made");
    for _ in 0..2 {
        let mut ranges = Vec::new();
        let mut largest = Vec::new();
        for _ in 0..140 {
            let mut range = reader.range(0, 4 << 20, ReadOptions::default(), Sums::None);
            let mut most = 0;
            for _ in 0..4 {
                most = most.max(range.next().await.expect("read").expect("more").length);
            }
            largest.push(most);
            ranges.push(range);
        }
        assert!(largest[..128].iter().all(|most| *most > 256 << 10), "{largest:?}");
        assert!(largest[128..].iter().all(|most| *most == 256 << 10), "{largest:?}");
    }
}

/// A range of a file that is being written ends at what is visible, and another begun later goes on from there.
#[tokio::test(start_paused = true)]
async fn ranges_of_an_open_file() {
    let fake = Fake::new(4);
    let client = fake.client().with_sizes(SMALL);
    let bytes = content(200_000, 4);
    let mut writer = client.create("/a", CreateOptions::default()).await.expect("the file is new");
    let reader = client.open("/a").await.expect("it was made");
    let mut out: Vec<u8> = Vec::new();
    for end in [0, 1000, 1700, 100_000, 200_000] {
        writer.write(bytes.slice(out.len()..end)).await.expect("written");
        writer.hflush().await.expect("visible");
        let range = reader.range(out.len() as u64, 1 << 20, ReadOptions::default(), Sums::Stored);
        out.extend(take_all(range, Sums::Stored).await);
        assert_eq!(Bytes::copy_from_slice(&out), bytes.slice(..end));
    }
}

/// Of stored checksums only the first piece is compared here; bytes behind it that do not match come with checksums that show
/// it.
#[tokio::test(start_paused = true)]
async fn stored_checksums_show_damage() {
    let fake = Fake::new(5);
    let client = fake.client();
    let bytes = content(4 << 20, 5);
    write(&client, "/a", &bytes, 8 << 20).await;
    let reader = client.open("/a").await.expect("it was made");
    for sums in [Sums::Blocks, Sums::Stored] {
        let mut range = reader.range(4096, 4 << 20, ReadOptions::default(), sums);
        let mut out = range.next().await.expect("read").expect("more").parts.concat();
        fake.fail(|faults| faults.damaged = 1);
        let mut damaged = 0;
        while let Some(piece) = range.next().await.expect("read") {
            let got = piece.parts.concat();
            assert_eq!(piece.sums, sums_of(&bytes[4096 + out.len()..4096 + out.len() + got.len()], sums));
            damaged += usize::from(piece.sums != sums_of(&got, sums));
            out.extend(got);
        }
        assert_eq!(out.len(), bytes.len() - 4096);
        assert_eq!((damaged, out == bytes[4096..]), if sums == Sums::Stored { (1, false) } else { (0, true) });
    }
}
