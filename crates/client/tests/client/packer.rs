//! Small files: each is there whole or not at all, and its result says which.

use crate::fake::file::Wide;
use crate::fake::nodes::Nodes;
use crate::fake::{Fake, Faults, Held};
use base::env::{Clock, Random};
use base::error::ErrorKind;
use base::limit::SMALL_FILE_MAX;
use base::planted::Planted;
use bytes::Bytes;
use client::{PackOptions, Packed, PackerOptions, Sizes};
use net::message::{Ask, file as files};
use std::collections::BTreeMap;
use std::time::Duration;

const OVERWRITE: PackOptions =
    PackOptions { modified_ms: 5, accessed_ms: 0, mode: 0o600, overwrite: true, parents: true };

/// Thousands of files over lanes that overtake each other, with lost answers and groups that fill up: every result is
/// right, every file reads back, and refused ones are not there.
#[tokio::test(start_paused = true)]
async fn results_are_true() {
    for seed in 0..4 {
        let fake = Fake::new(seed);
        let delay_max = Duration::from_millis(5 * (seed % 3));
        fake.fail(|faults| *faults = Faults { delay_max, lose_one_in: 4, full: 3, cut: 1, ..Faults::default() });
        let sizes = Sizes { file_chunk: 300_000, ..Sizes::default() };
        let client = fake.client().with_sizes(sizes);
        let options = PackerOptions { lanes: 3, compound_bytes: 50_000, compound_files: 40 };
        let mut packer = client.packer(options);
        let mut expected = BTreeMap::new();
        let mut results: Vec<Packed> = Vec::new();
        for number in 0..1500u64 {
            let bytes = Bytes::from(vec![number as u8; fake.random.below(4000).saturating_sub(200) as usize]);
            let directory = if number % 50 == 3 { "missing/" } else { "" };
            let path = format!("/d/{directory}{number}");
            packer.put(&path, bytes.clone(), OVERWRITE).await.expect("admitted");
            expected.insert(path, bytes);
            if number % 400 == 0 {
                results.extend(packer.take_results());
            }
        }
        results.extend(packer.flush().await.expect("sent"));
        assert_eq!(results.len(), expected.len(), "seed {seed}");
        for (path, result) in results {
            let bytes = expected.remove(&path).unwrap_or_else(|| panic!("seed {seed}: {path} has two results"));
            match result {
                Ok(()) => assert!(client.read_small(&path).await.expect("it was put") == bytes, "seed {seed}: {path}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NotFound, "seed {seed}: {path}: {error}");
                    assert!(path.contains("missing") && client.stat(&path).await.is_err(), "seed {seed}: {path}");
                }
            }
        }
        assert_eq!(packer.close().await.expect("nothing is left"), []);
        // The group with the append that was cut short is left to the session's end.
        let open = fake.state().chunks.values().filter(|chunk| chunk.length > 0 && !chunk.sealed).count();
        assert_eq!(open, 1, "seed {seed}");
    }
}

/// When bytes cannot be stored, none of the compound's files is there and each has the error; the next ones go on, and
/// are not taken for a repetition of bytes that were stored without an answer.
#[tokio::test(start_paused = true)]
async fn all_or_nothing() {
    let fake = Fake::new(1);
    let client = fake.client();
    let mut packer = client.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
    packer.put("/early", Bytes::from_static(b"1"), OVERWRITE).await.expect("admitted");
    assert_eq!(packer.flush().await.expect("sent"), [("/early".to_string(), Ok(()))]);
    fake.fail(|faults| faults.unanswered = true);
    packer.put("/a", Bytes::from_static(b"23"), OVERWRITE).await.expect("admitted");
    packer.put("/b", Bytes::from_static(b"45"), OVERWRITE).await.expect("admitted");
    for (path, result) in packer.flush().await.expect("sent") {
        assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::Unreachable), "{path}");
    }
    fake.fail(|faults| faults.unanswered = false);
    assert!(client.stat("/a").await.is_err() && client.stat("/b").await.is_err());
    packer.put("/a", Bytes::from_static(b"67"), OVERWRITE).await.expect("admitted");
    assert_eq!(packer.flush().await.expect("sent"), [("/a".to_string(), Ok(()))]);
    assert_eq!(client.read_small("/a").await.expect("read"), "67");
    assert_eq!(client.read_small("/early").await.expect("read"), "1");
    fake.fail(|faults| faults.full = u32::MAX);
    packer.put("/c", Bytes::from_static(b"8"), OVERWRITE).await.expect("admitted");
    let results = packer.flush().await.expect("sent");
    assert_eq!(results[0].1.clone().map_err(|error| error.kind()), Err(ErrorKind::Full));
    fake.fail(|faults| faults.full = 0);
    packer.put("/d", Bytes::from_static(b"9"), OVERWRITE).await.expect("admitted");
    packer.close().await.expect("sent");
    // Each group gets its copies now: the one in use at the end, and those that took what no file names, to which nobody comes back.
    let state = fake.state();
    assert_eq!(state.finished_packs.len() as u64, state.calls[&files::PackGroup::KIND]);
}

/// A file too large to be packed is refused; the largest that is packed is passed on without a copy; existing files stay.
#[tokio::test(start_paused = true)]
async fn sizes() {
    let fake = Fake::new(1);
    let client = fake.client();
    let mut packer = client.packer(PackerOptions::default());
    let largest = Bytes::from(vec![9; SMALL_FILE_MAX as usize]);
    let larger = Bytes::from(vec![9; SMALL_FILE_MAX as usize + 1]);
    let error = packer.put("/larger", larger, OVERWRITE).await.expect_err("too large");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    packer.put("/empty", Bytes::new(), OVERWRITE).await.expect("admitted");
    packer.put("/largest", largest.clone(), OVERWRITE).await.expect("admitted");
    assert_eq!(packer.flush().await.expect("sent").len(), 2);
    packer.put("/largest", Bytes::new(), PackOptions::default()).await.expect("admitted");
    let results = packer.flush().await.expect("sent");
    assert_eq!(results[0].1.clone().map_err(|error| error.kind()), Err(ErrorKind::Exists));
    assert_eq!(client.read_small("/empty").await.expect("read"), "");
    assert!(client.read_small("/largest").await.expect("read") == largest);
    let state = fake.state();
    assert_eq!(state.chunks.values().next().expect("one chunk").parts[0].as_ptr(), largest.as_ptr());
}

/// Small files are named when all replicas of their group have them. One that fails in between costs another group, and no file.
#[tokio::test(start_paused = true)]
async fn on_all_replicas() {
    for planted in [None, Some(Planted::PackedOnOne)] {
        let fake = Fake::new(1);
        fake.state().wide = Wide { replicas: 2, ..Wide::default() };
        let client = fake.client().with_planted(planted);
        let put = tokio::spawn(async move {
            let mut packer = client.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
            for number in 0..20 {
                if number == 10 {
                    assert!(packer.flush().await.expect("sent").iter().all(|(_, result)| result.is_ok()));
                    let mut state = fake.state();
                    let (_, group) = state.files.groups.last_key_value().expect("one is in use");
                    let second = group.layout.columns[0].others[0].value();
                    state.fail_device(second);
                }
                packer.put(&format!("/{number}"), Bytes::from(vec![number; 100]), OVERWRITE).await.expect("admitted");
            }
            let all = packer.close().await.expect("sent");
            assert!(all.len() == 10 && all.iter().all(|(_, result)| result.is_ok()), "{all:?}");
            for number in 0..20 {
                assert_eq!(client.read_small(&format!("/{number}")).await.expect("read"), vec![number; 100]);
            }
            assert!(fake.state().calls[&files::PackGroup::KIND] >= 2);
        });
        assert_eq!(put.await.is_ok(), planted.is_none());
    }
}

/// A node of a shared group goes, or a disk of it stands still: the others have answered, so it is waited for as long as by any writer, and what
/// comes then is elsewhere.
#[tokio::test(start_paused = true)]
async fn one_replica_is_silent() {
    for (is_killed, seconds) in [(true, 2), (false, 8)] {
        let fake = Fake::new(3);
        let nodes = Nodes::new(&fake, 5).await;
        fake.state().wide = Wide { replicas: 3, ..Wide::default() };
        let client = nodes.client("node1").await;
        let mut packer = client.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
        let put = |number: u8| (format!("/{number}"), Bytes::from(vec![number; 100]));
        let (path, bytes) = put(0);
        packer.put(&path, bytes, OVERWRITE).await.expect("admitted");
        assert!(packer.flush().await.expect("sent")[0].1.is_ok());
        let devices = |fake: &Fake| {
            let state = fake.state();
            let (_, group) = state.files.groups.last_key_value().expect("one is in use");
            let column = &group.layout.columns[0];
            [&[column.device], &column.others[..]].concat().into_iter().map(|device| device.value()).collect::<Vec<_>>()
        };
        let silent = *devices(&fake).iter().find(|device| **device != 1).expect("three");
        if is_killed {
            nodes.kill(&format!("node{silent}"));
        } else {
            fake.state().held.insert(Held::Device(silent));
        }
        let began = fake.clock.now();
        for number in 1..10 {
            let (path, bytes) = put(number);
            packer.put(&path, bytes, OVERWRITE).await.expect("admitted");
        }
        let results = packer.flush().await.expect("sent");
        assert!(results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
        let took = fake.clock.now().since(began);
        let wanted = Duration::from_secs(seconds);
        assert!((wanted..wanted + Duration::from_millis(500)).contains(&took), "{took:?}");
        assert!(!devices(&fake).contains(&silent));
        assert_eq!(fake.state().calls[&files::PackGroup::KIND], 2);
        for number in 0..10 {
            let (path, bytes) = put(number);
            assert_eq!(client.read_small(&path).await.expect("read"), bytes);
        }
    }
}
