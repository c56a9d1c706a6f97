//! Files of which each column is written to several replicas: all of them have what is acknowledged, and the file goes on without one that is full,
//! failed, silent or has lost bytes, which is not named then.

use crate::columns::{durable, read_all};
use crate::fake::file::{Wide, layout_of};
use crate::fake::nodes::Nodes;
use crate::fake::{Fake, Held};
use crate::files::{DELAYED, SMALL, WIDE, content};
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::planted::Planted;
use bytes::Bytes;
use client::{Client, CreateOptions, FileWriter};
use net::Ask;
use net::message::chunk::{Append, Seal};
use net::message::file::NextGroup;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A node that gives each column so many replicas, of one column or several.
fn replicated(seed: u64, replicas: u64, is_wide: bool) -> Arc<Fake> {
    let fake = Fake::new(seed);
    fake.state().wide = Wide { replicas, ..if is_wide { WIDE } else { Wide::default() } };
    fake
}

/// All kinds of them, by seed: two replicas or three, narrow or wide.
fn some_kind(seed: u64) -> Arc<Fake> {
    replicated(seed, 2 + seed % 2, (seed / 2).is_multiple_of(2))
}

async fn create(client: &Client) -> FileWriter {
    client.create("/a", CreateOptions::default()).await.expect("the file is new")
}

/// Every replica that is named of a closed file has its part, and the same bytes as the others of its column.
fn assert_alike(fake: &Arc<Fake>, about: &str) {
    let state = fake.state();
    for piece in &state.files.by_number[&state.files.by_path["/a"]].extents {
        let layout = layout_of(&state.files.groups[&piece.group]);
        for column in 0..layout.columns().len() {
            let length = layout.stripe().column_length(piece.length, column) as usize;
            let of = layout.replicas().filter(|replica| replica.column == column && length > 0);
            let of: Vec<Vec<u8>> = of
                .map(|replica| {
                    let stored = state.stored(replica.chunk, replica.device).expect("it is named");
                    let bytes = stored.parts.concat();
                    assert!(stored.sealed && bytes.len() >= length, "{about}: {replica:?}");
                    bytes[..length].to_vec()
                })
                .collect();
            assert!(of.windows(2).all(|two| two[0] == two[1]), "{about}: column {column}");
        }
    }
}

/// Writes bytes in steps by chance, with something that happens before each of them; everything that is promised is looked at.
async fn written(fake: &Arc<Fake>, client: &Client, bytes: &Bytes, mut before: impl FnMut(usize)) {
    let reading = fake.client().with_sizes(SMALL);
    let mut writer = create(client).await;
    let mut at = 0;
    while at < bytes.len() {
        before(at);
        let end = (at + 1 + fake.random.below(40_000) as usize).min(bytes.len());
        writer.write(bytes.slice(at..end)).await.expect("written");
        at = end;
        match fake.random.below(8) {
            0 => {
                writer.hflush().await.expect("visible");
                assert_eq!(writer.written().borrow().length, at as u64);
                let there = reading.open("/a").await.expect("it was made").length().await.expect("known");
                assert!(there >= at as u64, "{there} bytes of {at}");
            }
            1 => {
                writer.sync().await.expect("durable");
                assert!(durable(fake, "/a") >= at as u64, "at {at}");
            }
            _ => (),
        }
    }
    assert_eq!(writer.close().await.expect("closed").length, bytes.len() as u64);
}

/// What is written comes to all replicas, whatever overtakes on the way and whichever answers are lost; none is left out for that.
#[tokio::test(start_paused = true)]
async fn all_have_all() {
    for seed in 0..48 {
        let fake = some_kind(seed);
        fake.fail(|faults| *faults = DELAYED);
        let (client, bytes) = (fake.client().with_sizes(SMALL), content(300_000, seed));
        written(&fake, &client, &bytes, |_| ()).await;
        assert_alike(&fake, &format!("seed {seed}"));
        assert_eq!(fake.state().ended_early, 0, "seed {seed}");
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "seed {seed}");
    }
}

/// Nothing is acknowledged that a replica lacks which is not left out.
#[tokio::test(start_paused = true)]
async fn acknowledged_by_all() {
    for (planted, syncs) in [(None, false), (None, true), (Some(Planted::AcknowledgedWithoutAReplica), false)] {
        let fake = replicated(1, 3, false);
        let client = fake.client().with_planted(planted);
        let mut writer = create(&client).await;
        let last = *fake.state().devices_of("/a")[0].last().expect("three");
        fake.state().held.insert(Held::Device(last));
        writer.write(content(5000, 1)).await.expect("taken");
        let length = writer.written();
        let flushed = async { if syncs { writer.sync().await } else { writer.hflush().await } };
        let mut flushed = Box::pin(flushed);
        let early = tokio::time::timeout(Duration::from_millis(1500), &mut flushed).await.is_ok();
        assert_eq!(early, planted.is_some());
        if planted.is_none() {
            assert_eq!(length.borrow().length, 0);
            fake.state().held.clear();
            flushed.await.expect("all have it");
            assert_eq!((length.borrow().length, fake.state().ended_early), (5000, 0));
        }
    }
}

/// Replicas are full at random, but never all of a column: the file goes on, and those that lack something are not named. The store of the tests
/// refuses an end that names one.
#[tokio::test(start_paused = true)]
async fn one_is_full() {
    let mut ended_early = 0;
    for seed in 0..60 {
        let fake = some_kind(seed);
        if seed % 3 > 0 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let (client, bytes) = (fake.client().with_sizes(SMALL), content(700_000, seed));
        written(&fake, &client, &bytes, |_| {
            if fake.random.one_in(4) {
                let count = fake.random.below(2 + seed % 2);
                fake.state().full_devices = (0..count).map(|_| u128::from(1 + fake.random.below(3))).collect();
            }
        })
        .await;
        assert_alike(&fake, &format!("seed {seed}"));
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "seed {seed}");
        ended_early += fake.state().ended_early;
    }
    assert!(ended_early > 60, "{ended_early} groups ended early");
}

/// Its test is the store's, which refuses an end that names a replica without its part.
#[tokio::test(start_paused = true)]
async fn a_laggard_is_noticed() {
    let fake = replicated(1, 2, false);
    let client = fake.client().with_sizes(SMALL).with_planted(Some(Planted::LaggardNotStruck));
    let bytes = content(50_000, 1);
    let mut writer = create(&client).await;
    writer.write(bytes.slice(..20_000)).await.expect("taken");
    writer.hflush().await.expect("visible");
    let last = *fake.state().devices_of("/a")[0].last().expect("two");
    fake.state().full_devices.insert(last);
    let noticed = tokio::spawn(async move {
        writer.write(bytes.slice(20_000..)).await?;
        writer.hflush().await
    });
    assert!(!matches!(noticed.await, Ok(Ok(()))), "the store refuses to name it");
}

/// A device fails, with all that was not synced there: what the others have is enough.
#[tokio::test(start_paused = true)]
async fn one_fails() {
    let mut ended_early = 0;
    for seed in 0..60 {
        let fake = some_kind(seed);
        if seed % 3 > 0 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let (client, bytes) = (fake.client().with_sizes(SMALL), content(300_000, seed));
        let fails_at = fake.random.below(300_000) as usize;
        written(&fake, &client, &bytes, |at| {
            if at >= fails_at && fake.state().failed_devices.is_empty() {
                let device = u128::from(1 + fake.random.below(3));
                fake.state().fail_device(device);
            }
        })
        .await;
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "seed {seed}");
        ended_early += fake.state().ended_early;
    }
    assert!(ended_early > 30, "{ended_early} groups ended early");
}

/// What the others have is not acknowledged before the one that lacks it is struck out; then it is, though nothing more is written.
#[tokio::test(start_paused = true)]
async fn nothing_is_told_before_the_strike() {
    let fake = replicated(1, 3, false);
    let client = fake.client();
    let mut writer = create(&client).await;
    writer.write(content(1000, 1)).await.expect("taken");
    writer.hflush().await.expect("visible");
    let devices = fake.state().devices_of("/a").remove(0);
    fake.state().fail_device(devices[1]);
    fake.state().held.insert(Held::Kind(NextGroup::KIND));
    writer.write(content(5000, 2)).await.expect("taken");
    let length = writer.written();
    let mut flushed = Box::pin(writer.hflush());
    assert!(tokio::time::timeout(Duration::from_secs(5), &mut flushed).await.is_err());
    assert_eq!(length.borrow().length, 1000);
    fake.state().held.clear();
    flushed.await.expect("two have it");
    assert_eq!(length.borrow().length, 6000);
    let chunk = fake.state().short.clone();
    assert_eq!(chunk.iter().map(|(_, device)| *device).collect::<Vec<_>>(), [devices[1]]);
}

/// The same without anybody who waits for it: who looks at how far the file is hears of it.
#[tokio::test(start_paused = true)]
async fn a_quiet_writer_is_told() {
    let fake = replicated(1, 2, false);
    let client = fake.client().with_sizes(SMALL);
    let mut writer = create(&client).await;
    let head = fake.state().devices_of("/a")[0][0];
    fake.state().fail_device(head);
    writer.write(content(SMALL.piece, 1)).await.expect("taken");
    let mut written = writer.written();
    let told = written.wait_for(|written| written.length == SMALL.piece as u64);
    tokio::time::timeout(Duration::from_secs(5), told).await.expect("told").expect("it writes");
}

/// Both replicas of one of two columns are full: the file goes on from where the other columns end, without a byte twice.
#[tokio::test(start_paused = true)]
async fn again_from_its_end() {
    for planted in [None, Some(Planted::SentAgainFromWrongByte)] {
        let mut wrong = 0;
        for seed in 0..30 {
            let fake = replicated(seed, 2, seed % 2 == 0);
            fake.fail(|faults| *faults = DELAYED);
            let client = fake.client().with_sizes(SMALL).with_planted(planted);
            let bytes = content(400_000, seed);
            let mut writer = create(&client).await;
            for (number, part) in bytes.chunks(20_000).enumerate() {
                if number == 5 {
                    let full = u128::from(1 + fake.random.below(3));
                    fake.state().full_devices = BTreeSet::from([full]);
                }
                writer.write(Bytes::copy_from_slice(part)).await.expect("written");
            }
            writer.close().await.expect("closed");
            wrong += u64::from(read_all(&client.open("/a").await.expect("there")).await != bytes);
        }
        assert_eq!(wrong > 0, planted.is_some(), "{wrong} files with {planted:?}");
    }
}

/// A device fails before the only append, between the last one and the close, or at the close.
#[tokio::test(start_paused = true)]
async fn at_the_close() {
    for (seed, fails_at) in (0..24).map(|seed| (seed, seed % 4)) {
        let fake = replicated(seed, 2 + seed % 2, seed % 3 == 0);
        let client = fake.client().with_sizes(SMALL);
        let length = [3000, 70_000, 200_000][seed as usize % 3];
        let bytes = content(length, seed);
        let mut writer = create(&client).await;
        let fail = |now| {
            if fails_at == now {
                let device = fake.state().devices_of("/a")[0][seed as usize / 4 % 2];
                fake.state().fail_device(device);
            }
        };
        fail(0);
        writer.write(bytes.slice(..length / 2)).await.expect("taken");
        fail(1);
        writer.hflush().await.expect("visible");
        fail(2);
        writer.write(bytes.slice(length / 2..)).await.expect("taken");
        fail(3);
        assert_eq!(writer.close().await.expect("closed").length, length as u64, "seed {seed}");
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "seed {seed}");
        assert_alike(&fake, &format!("seed {seed}"));
    }
}

/// Somebody takes the file: the writer hears that, and no byte that was acknowledged is missing, though one device is dead.
#[tokio::test(start_paused = true)]
async fn taken_over() {
    for seed in 0..20 {
        let fake = some_kind(seed);
        fake.fail(|faults| *faults = DELAYED);
        let (client, bytes) = (fake.client().with_sizes(SMALL), content(200_000, seed));
        let mut writer = create(&client).await;
        let mut at = 0;
        while at < 100_000 {
            let end = at + 1 + fake.random.below(30_000) as usize;
            writer.write(bytes.slice(at..end)).await.expect("written");
            at = end;
        }
        let promised = writer.written().borrow().length as usize;
        if seed % 4 > 1 {
            let device = u128::from(1 + fake.random.below(3));
            fake.state().dead.insert(device);
        }
        fake.state().end_leases();
        let kept = fake.state().stat("/a").expect("there").length as usize;
        assert!(kept >= promised, "seed {seed}: {kept} of {promised}");
        let late = match writer.write(bytes.slice(at..)).await {
            Ok(()) => writer.hflush().await,
            known => known,
        };
        assert_eq!(late.map_err(|error| error.kind()), Err(ErrorKind::Stale), "seed {seed}");
        assert_eq!(fake.state().stat("/a").expect("there").length as usize, kept, "seed {seed}");
    }
}

/// The node of one replica loses its power, and with it what was not synced there, while the writer idles: the file goes on without it.
#[tokio::test(start_paused = true)]
async fn power_is_lost() {
    let mut ended_early = 0;
    for seed in 0..40 {
        let fake = some_kind(seed);
        if seed % 3 > 0 {
            fake.fail(|faults| *faults = DELAYED);
        }
        let (client, bytes) = (fake.client().with_sizes(SMALL), content(300_000, seed));
        let lost_at = fake.random.below(300_000) as usize;
        let mut is_lost = false;
        written(&fake, &client, &bytes, |at| {
            if at >= lost_at && !is_lost {
                is_lost = true;
                let device = u128::from(1 + fake.random.below(3));
                fake.state().restart(device, true);
            }
        })
        .await;
        assert_alike(&fake, &format!("seed {seed}"));
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "seed {seed}");
        ended_early += fake.state().ended_early;
    }
    assert!(ended_early > 10, "{ended_early} groups ended early");
}

/// All of them lose it at once: the writer fails and nothing that was synced is missing.
#[tokio::test(start_paused = true)]
async fn power_is_lost_everywhere() {
    for seed in 0..12 {
        let fake = some_kind(seed);
        let (client, bytes) = (fake.client().with_sizes(SMALL), content(100_000, seed));
        let mut writer = create(&client).await;
        writer.write(bytes.slice(..40_000)).await.expect("taken");
        writer.sync().await.expect("durable");
        writer.write(bytes.slice(40_000..50_000)).await.expect("taken");
        writer.hflush().await.expect("visible");
        (1..=3).for_each(|device| fake.state().restart(device, true));
        let went = match writer.write(bytes.slice(50_000..)).await {
            Ok(()) => writer.hflush().await,
            failed => failed,
        };
        // Of a wide file only the columns that had unsynced bytes.
        assert!(went.is_err(), "seed {seed}");
        assert_eq!(fake.state().short, [], "seed {seed}: all are as bad as each other");
        fake.state().end_leases();
        let kept = read_all(&client.open("/a").await.expect("there")).await;
        assert!(kept.len() >= 40_000 && kept == bytes.slice(..kept.len()), "seed {seed}");
    }
}

/// How long something takes.
async fn took<T>(fake: &Arc<Fake>, what: impl Future<Output = T>) -> Duration {
    let began = fake.clock.now();
    what.await;
    fake.clock.now().since(began)
}

/// A replica that says nothing is waited for 2 s when others have answered, the next one twice as long; one that answers late is not left out,
/// and neither are all.
#[tokio::test(start_paused = true)]
async fn silence() {
    let fake = replicated(1, 3, false);
    let client = fake.client();
    let mut writer = create(&client).await;
    writer.write(content(1000, 1)).await.expect("taken");
    writer.hflush().await.expect("visible");
    // Late by 1.5 s.
    let devices = fake.state().devices_of("/a").remove(0);
    fake.state().held.insert(Held::Device(devices[0]));
    let released = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        released.state().held.clear();
    });
    writer.write(content(1000, 2)).await.expect("taken");
    writer.hflush().await.expect("visible");
    assert_eq!(fake.state().ended_early, 0);
    // All of them for 8 s.
    fake.state().held.insert(Held::Kind(Append::KIND));
    let released = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(8)).await;
        released.state().held.clear();
    });
    writer.write(content(1000, 3)).await.expect("taken");
    writer.hflush().await.expect("visible");
    assert_eq!(fake.state().ended_early, 0);
    // One for good, then another one.
    for (dead, seconds) in [(devices[1], 2), (devices[2], 4)] {
        fake.state().held.insert(Held::Device(dead));
        writer.write(content(1000, 4)).await.expect("taken");
        let took = took(&fake, async { writer.hflush().await.expect("visible") }).await;
        let wanted = Duration::from_secs(seconds);
        assert!((wanted..wanted + Duration::from_millis(500)).contains(&took), "{took:?}");
    }
    fake.state().held.clear();
    writer.close().await.expect("closed");
    assert_alike(&fake, "after silence");
}

/// A disk that syncs for long is no silent one while its node is heard: it has four times as long.
#[tokio::test(start_paused = true)]
async fn a_long_sync() {
    let fake = Fake::new(5);
    let nodes = Nodes::new(&fake, 4).await;
    fake.state().wide = Wide { replicas: 3, ..Wide::default() };
    let client = nodes.client("node1").await;
    let mut writer = create(&client).await;
    let devices = fake.state().devices_of("/a").remove(0);
    for (seconds, ended_early) in [(6, 0), (60, 1)] {
        fake.state().held.insert(Held::Device(devices[2]));
        let released = fake.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            released.state().held.clear();
        });
        writer.write(content(1000, 1)).await.expect("taken");
        let took = took(&fake, async { writer.sync().await.expect("durable") }).await;
        let wanted = Duration::from_secs(seconds.min(8));
        assert!((wanted..wanted + Duration::from_millis(500)).contains(&took), "{took:?}");
        assert_eq!(fake.state().ended_early, ended_early);
    }
}

/// Lets everything go on after so long.
fn release_after(fake: &Arc<Fake>, wait: Duration) {
    let fake = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        fake.state().held.clear();
    });
}

/// A disk of a node stands still, and the other one of that node does not: files are without the one alone.
#[tokio::test(start_paused = true)]
async fn one_disk_of_a_node() {
    let mut short = 0;
    for number in 0..8 {
        let fake = Fake::new(number);
        let nodes = Nodes::new(&fake, 4).await;
        {
            // Two nodes of two disks: 1 and 2, 3 and 4, at the addresses of the first and the third.
            let mut state = fake.state();
            let members = &mut state.view.members;
            members.retain(|member| [1, 3].contains(&member.node.node.value()));
            members[0].devices = vec![1.into(), 2.into()];
            members[1].devices = vec![3.into(), 4.into()];
            state.wide = Wide { replicas: 2, ..WIDE };
        }
        let client = nodes.client("node1").await.with_sizes(SMALL);
        let bytes = content(400_000, number);
        let mut writer = create(&client).await;
        writer.write(bytes.slice(..100_000)).await.expect("taken");
        writer.hflush().await.expect("visible");
        fake.state().held.insert(Held::Device(4));
        writer.write(bytes.slice(100_000..150_000)).await.expect("taken");
        writer.hflush().await.expect("visible");
        writer.write(bytes.slice(150_000..)).await.expect("taken");
        writer.close().await.expect("closed");
        let struck = fake.state().short.clone();
        assert!(struck.iter().all(|(_, device)| *device == 4), "{number}: {struck:?}");
        short += struck.len();
        fake.state().held.clear();
        assert_alike(&fake, &format!("{number}"));
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "{number}");
    }
    assert!(short >= 8, "{short} replicas");
}

/// All replicas need long to be sealed, for their disks empty a cache: they are waited for like one alone, and none is left out.
#[tokio::test(start_paused = true)]
async fn all_seal_slowly() {
    let fake = Fake::new(2);
    let nodes = Nodes::new(&fake, 3).await;
    fake.state().wide = Wide { replicas: 3, ..Wide::default() };
    let client = nodes.client("node1").await;
    let mut writer = create(&client).await;
    writer.write(content(5000, 1)).await.expect("taken");
    writer.hflush().await.expect("visible");
    fake.state().held.insert(Held::Kind(Seal::KIND));
    release_after(&fake, Duration::from_secs(12));
    assert_eq!(writer.close().await.expect("closed").length, 5000);
    assert_eq!(fake.state().short, []);
    assert_alike(&fake, "after a slow seal");
}

/// One replica is slower than the others, whose answers come long before its own: it answers, so it is no silent one.
#[tokio::test(start_paused = true)]
async fn a_slow_one() {
    for (each, is_left) in [(Duration::from_millis(700), false), (Duration::from_secs(3), true)] {
        let fake = replicated(1, 2, false);
        let client = fake.client().with_sizes(SMALL);
        let mut writer = create(&client).await;
        writer.write(content(1000, 1)).await.expect("taken");
        writer.hflush().await.expect("visible");
        let last = *fake.state().devices_of("/a")[0].last().expect("two");
        fake.state().slow.insert(last, each);
        // All of it is on its way at once, and waits there.
        for number in 0..8 {
            writer.write(content(SMALL.piece / 2, number)).await.expect("taken");
        }
        writer.hflush().await.expect("visible");
        assert_eq!(fake.state().ended_early > 0, is_left, "{each:?}");
    }
}

/// A replica is given up for its silence, and just then the other one fails: the silent one is the last, so it is waited for, and whatever it has
/// of the file by then counts.
#[tokio::test(start_paused = true)]
async fn the_silent_one_is_the_last() {
    for (seed, hears) in (0..16).map(|seed| (seed, seed % 2 == 0)) {
        let fake = replicated(seed, 2, false);
        let client = fake.client().with_sizes(SMALL);
        let bytes = content(60_000, seed);
        let mut writer = create(&client).await;
        writer.write(bytes.slice(..1000)).await.expect("taken");
        writer.hflush().await.expect("visible");
        let devices = fake.state().devices_of("/a").remove(0);
        // It carries out what comes, and nobody hears of that; or it does nothing.
        let carried = if hears { Held::Answers(devices[1]) } else { Held::Device(devices[1]) };
        fake.state().held.insert(carried);
        let (failing, from) = (fake.clone(), devices[0]);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1900)).await;
            failing.state().fail_device(from);
        });
        release_after(&fake, Duration::from_secs(4 + seed % 3));
        if seed % 3 == 0 {
            // Of the last of what it takes it has a part, as one that was killed in the middle of it.
            fake.state().tails.insert(devices[1], 100);
        }
        writer.write(bytes.slice(1000..30_000)).await.expect("taken");
        writer.hflush().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        writer.write(bytes.slice(30_000..)).await.expect("taken");
        writer.close().await.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(read_all(&client.open("/a").await.expect("there")).await == bytes, "seed {seed}");
    }
}

/// The last but one of three is sealed by the time that its disk has emptied its cache, and another one never answers: nobody waits for that.
#[tokio::test(start_paused = true)]
async fn one_of_the_last_is_enough() {
    let fake = replicated(1, 3, false);
    let client = fake.client().with_sizes(SMALL);
    let mut writer = create(&client).await;
    writer.write(content(1000, 1)).await.expect("taken");
    writer.hflush().await.expect("visible");
    let devices = fake.state().devices_of("/a").remove(0);
    fake.state().held.extend([Held::Device(devices[1]), Held::Device(devices[2])]);
    let late = fake.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(1900)).await;
        late.state().fail_device(devices[0]);
        tokio::time::sleep(Duration::from_secs(20)).await;
        late.state().held.remove(&Held::Device(devices[1]));
    });
    writer.write(content(1000, 2)).await.expect("taken");
    let flushed = tokio::time::timeout(Duration::from_secs(60), writer.hflush());
    flushed.await.expect("one of them is enough").expect("it has all");
    fake.state().held.clear();
    assert_eq!(writer.close().await.expect("closed").length, 2000);
}

/// One replica stands still and the other one has no room, so none has answered: the file goes on elsewhere all the same.
#[tokio::test(start_paused = true)]
async fn one_is_full_and_one_silent() {
    let fake = Fake::new(5);
    let nodes = Nodes::new(&fake, 4).await;
    fake.state().wide = Wide { replicas: 2, ..Wide::default() };
    let client = nodes.client("node1").await;
    let mut writer = create(&client).await;
    let devices = fake.state().devices_of("/a").remove(0);
    fake.state().held.insert(Held::Device(devices[0]));
    fake.state().full_devices.insert(devices[1]);
    writer.write(content(1000, 1)).await.expect("taken");
    let took = took(&fake, async { writer.hflush().await.expect("visible") }).await;
    assert!((Duration::from_secs(8)..Duration::from_secs(9)).contains(&took), "{took:?}");
    assert_eq!(writer.close().await.expect("closed").length, 1000);
}

/// One replica does not let itself be sealed, for whatever reason: the other one is enough.
#[tokio::test(start_paused = true)]
async fn one_is_not_sealed() {
    for kind in [ErrorKind::Full, ErrorKind::Busy, ErrorKind::Invalid, ErrorKind::Stale, ErrorKind::Io] {
        let fake = replicated(1, 2, false);
        let client = fake.client();
        let mut writer = create(&client).await;
        writer.write(content(1000, 1)).await.expect("taken");
        writer.hflush().await.expect("visible");
        let devices = fake.state().devices_of("/a").remove(0);
        fake.state().seals_refused.insert(devices[1], kind);
        assert_eq!(writer.close().await.unwrap_or_else(|error| panic!("{kind:?}: {error}")).length, 1000);
        assert_eq!(fake.state().short.iter().map(|(_, device)| *device).collect::<Vec<_>>(), [devices[1]]);
        assert_alike(&fake, "sealed by one");
    }
}

/// With one replica nothing is given up before its link does that: 10 s.
#[tokio::test(start_paused = true)]
async fn one_replica_is_waited_for() {
    let fake = Fake::new(3);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await;
    for number in 0..3 {
        let path = format!("/{number}");
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("new");
        let device = fake.state().devices_of(&path)[0][0];
        if device == 1 {
            continue;
        }
        fake.state().dead.insert(device);
        writer.write(content(1000, 1)).await.expect("taken");
        let took = took(&fake, async { writer.hflush().await.expect("elsewhere") }).await;
        assert!(took >= Duration::from_secs(10), "{took:?}");
        fake.state().dead.clear();
    }
}

/// A node is gone: every file goes on within 3 s, with what was acknowledged and not synced, and is read on by whoever has it open.
#[tokio::test(start_paused = true)]
async fn a_node_is_gone() {
    let fake = Fake::new(11);
    let nodes = Nodes::new(&fake, 4).await;
    fake.state().wide = Wide { replicas: 3, ..Wide::default() };
    let (client, reading) = (nodes.client("node1").await.with_sizes(SMALL), nodes.client("node3").await);
    let bytes = content(20_000, 1);
    let mut files = Vec::new();
    for number in 0..9 {
        let path = format!("/log{number}");
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("new");
        writer.write(bytes.slice(..10_000)).await.expect("written");
        writer.sync().await.expect("synced");
        writer.write(bytes.slice(10_000..10_100)).await.expect("written");
        writer.hflush().await.expect("visible");
        let reader = reading.open(&path).await.expect("there");
        assert!(reader.read_at(9_000, 100).await.is_ok());
        files.push((path, writer, reader));
    }
    nodes.kill("node2");
    let mut went_on = 0;
    for (number, (path, mut writer, reader)) in files.into_iter().enumerate() {
        let is_touched = fake.state().devices_of(&path)[0].contains(&2);
        writer.write(bytes.slice(10_100..)).await.expect("taken");
        let promised = async { if number % 2 == 0 { writer.hflush().await } else { writer.sync().await } };
        let took = took(&fake, async { promised.await.expect("the others have it") }).await;
        assert!(took < Duration::from_secs(3), "{path}: {took:?}");
        let read = Bytes::from(reader.read_at(0, 30_000).await.expect("read").concat());
        assert!(read == bytes, "{path}");
        assert_eq!(writer.close().await.expect("closed").length, 20_000);
        went_on += u64::from(is_touched);
    }
    assert!(went_on >= 5 && fake.state().ended_early >= went_on, "{went_on} files");
}

/// What a file of one replica costs in calls: what several need costs nothing there.
#[tokio::test(start_paused = true)]
async fn calls_of_one_replica() {
    let fake = Fake::new(1);
    let client = fake.client().with_sizes(SMALL);
    let mut writer = create(&client).await;
    for part in content(200_000, 1).chunks(10_000) {
        writer.write(Bytes::copy_from_slice(part)).await.expect("written");
    }
    writer.sync().await.expect("durable");
    writer.close().await.expect("closed");
    let calls = fake.state().calls.clone();
    let of = |kind: u16| calls.get(&kind).copied().unwrap_or_default();
    // 80 KiB a chunk in pieces of 16 KiB: five, five and three of 200,000 bytes, the last of which is synced; then it is sealed.
    assert_eq!((of(Append::KIND), of(Seal::KIND), of(NextGroup::KIND)), (13, 1, 2));
}
