//! Small files that a listing told the places of: read with few questions, each whole as it was listed, or not at all.

use crate::fake::Fake;
use crate::fake::nodes::Nodes;
use crate::files::{DELAYED, SMALL, WIDE, content, write};
use base::error::{ErrorKind, Result};
use base::limit::SMALL_RANGES_MAX;
use bytes::Bytes;
use client::{Client, CreateOptions, Entry, Listed, PackOptions, PackerOptions, ReadOptions};
use net::message::{Ask, chunk, file};
use std::collections::BTreeMap;

fn path_of(entry: &Entry) -> String {
    format!("/{}", entry.name)
}

async fn put(client: &Client, files: &BTreeMap<String, Bytes>) {
    let mut packer = client.packer(PackerOptions { lanes: 2, compound_bytes: 30_000, compound_files: 20 });
    for (path, bytes) in files {
        let options = PackOptions { overwrite: true, ..PackOptions::default() };
        packer.put(path, bytes.clone(), options).await.expect("taken");
    }
    assert!(packer.close().await.expect("put").iter().all(|(_, result)| result.is_ok()));
}

/// So many files of up to 4,000 bytes, the first of which is empty.
fn small(count: u64, seed: u64) -> BTreeMap<String, Bytes> {
    let length = |number: u64| (number * 977 % 4001) as usize;
    (0..count).map(|number| (format!("/f{number:03}"), content(length(number), seed * 1000 + number))).collect()
}

async fn listed(client: &Client) -> Vec<Entry> {
    let (mut listing, mut entries) = (client.list_all_located("/"), Vec::new());
    while let Some(entry) = listing.next().await.expect("listed") {
        entries.push(entry);
    }
    entries
}

async fn read(client: &Client, entries: &[Entry]) -> Vec<Result<Bytes>> {
    let files: Vec<Listed<'_>> =
        entries.iter().map(|Entry { attributes, extents, .. }| Listed { attributes, extents }).collect();
    let read = client.read_listed(&files, ReadOptions { once: true }).await;
    assert_eq!(read.len(), entries.len());
    read.into_iter().map(|read| read.map(|parts| parts.concat().into())).collect()
}

fn reads(fake: &Fake) -> u64 {
    fake.state().calls.get(&chunk::Read::KIND).copied().unwrap_or(0)
}

/// What comes is what each file has when it is opened, whatever calls do on their way and however a file is cut; packed ones come with a
/// question for each of their chunks and piece, and an open one has to be opened.
#[tokio::test(start_paused = true)]
async fn as_if_each_was_opened() {
    for seed in 0..6 {
        let fake = Fake::new(seed);
        fake.state().wide = if seed % 2 == 0 { Default::default() } else { WIDE };
        let client = fake.client().with_sizes(SMALL);
        let mut files = small(120, seed);
        put(&client, &files).await;
        for (number, length) in [1, 25_000, 70_000, 200_000, 330_000].into_iter().enumerate() {
            let (path, bytes) = (format!("/large{number}"), content(length, number as u64));
            write(&client, &path, &bytes, 9_000).await;
            files.insert(path, bytes);
        }
        let mut open = client.create("/open", CreateOptions::default()).await.expect("new");
        open.write(content(5000, 1)).await.expect("written");
        open.hflush().await.expect("visible");
        let entries = listed(&client).await;
        assert_eq!(entries.len(), files.len() + 1);
        let before = reads(&fake);
        let packed: Vec<Entry> = entries.iter().filter(|entry| entry.name.starts_with('f')).cloned().collect();
        for (entry, got) in packed.iter().zip(read(&client, &packed).await) {
            assert!(got.expect("read") == files[&path_of(entry)], "seed {seed}: {}", entry.name);
        }
        let bytes: usize = packed.iter().map(|entry| entry.attributes.length as usize).sum();
        let most = (bytes / (SMALL.read_piece / 2) + 3) as u64;
        assert!(reads(&fake) - before <= most, "{} questions for {bytes} bytes", reads(&fake) - before);
        fake.fail(|faults| *faults = crate::fake::Faults { damaged: 3, ..DELAYED });
        let mut located = 0;
        for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
            let is_located = Listed { attributes: &entry.attributes, extents: &entry.extents }.is_located();
            assert_eq!(got.is_ok(), is_located, "seed {seed}: {}: {got:?}", entry.name);
            match got {
                Ok(bytes) => assert!(bytes == files[&path_of(entry)], "seed {seed}: {}", entry.name),
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
            }
            located += usize::from(is_located);
        }
        assert!((124..files.len() + 1).contains(&located), "seed {seed}: {located}");
        open.close().await.expect("closed");
    }
}

/// Files that are replaced, deleted, or moved away after they were listed are the old ones whole, or an error that leads to opening them; bytes
/// that a chunk lacks are an error of all that were asked for with them.
#[tokio::test(start_paused = true)]
async fn changed_since_they_were_listed() {
    let fake = Fake::new(7);
    let client = fake.client();
    let old = small(60, 1);
    put(&client, &old).await;
    let entries = listed(&client).await;
    let new: BTreeMap<String, Bytes> = small(30, 2).into_iter().filter(|(path, _)| path.ends_with('3')).collect();
    put(&client, &new).await;
    let gone = ["/f011", "/f044"];
    for path in gone {
        fake.state().files.by_path.remove(path);
    }
    for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
        // Nothing was released yet.
        assert!(got.expect("read") == old[&path_of(entry)], "{}", entry.name);
    }
    fake.state().release();
    let (mut whole, mut failed) = (0, 0);
    for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
        let path = path_of(entry);
        match got {
            Ok(bytes) => {
                assert!(bytes == old[&path] && !gone.contains(&path.as_str()), "{path}");
                assert!(!new.contains_key(&path) || bytes.is_empty(), "{path}");
                whole += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{path}");
                let opened = client.read_small(&path).await;
                match (gone.contains(&path.as_str()), new.get(&path)) {
                    (true, _) => assert!(opened.is_err(), "{path}"),
                    (false, Some(new)) => assert!(opened.expect("there") == new, "{path}"),
                    (false, None) => assert!(opened.expect("there") == old[&path], "{path}"),
                }
                failed += 1;
            }
        }
    }
    assert!(whole > 0 && failed >= new.len() + gone.len(), "{whole} whole, {failed} failed");
    let entries = listed(&client).await;
    fake.state().move_chunks();
    for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
        let empty = entry.attributes.length == 0;
        assert_eq!(got.map_err(|error| error.kind()).err(), (!empty).then_some(ErrorKind::NotFound), "{}", entry.name);
    }
    let entries = listed(&client).await;
    for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
        let path = path_of(entry);
        assert!(got.expect("read") == *new.get(&path).unwrap_or(&old[&path]), "{path}");
    }
    for stored in fake.state().chunks.values_mut() {
        let short = stored.parts.concat()[..stored.length as usize - 1].to_vec();
        (stored.length, stored.parts) = (short.len() as u64, vec![short.into()]);
    }
    let failed = read(&client, &entries).await.into_iter().filter(Result::is_err).count();
    assert!(failed > 0, "a byte is missing of each chunk");
}

/// Files that lie scattered are asked for with no more ranges in one question than a node takes.
#[tokio::test(start_paused = true)]
async fn scattered() {
    let fake = Fake::new(8);
    let client = fake.client();
    let files: BTreeMap<String, Bytes> =
        (0..700).map(|number| (format!("/f{number:03}"), content(10, number))).collect();
    let mut packer = client.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
    for (path, bytes) in &files {
        packer.put(path, bytes.clone(), PackOptions::default()).await.expect("taken");
    }
    packer.close().await.expect("put");
    let all = listed(&client).await;
    let every_other: Vec<Entry> = all.iter().step_by(2).cloned().collect();
    for (entries, most) in [(&all, 1), (&every_other, 350_usize.div_ceil(SMALL_RANGES_MAX) as u64)] {
        let before = reads(&fake);
        for (entry, got) in entries.iter().zip(read(&client, entries).await) {
            assert!(got.expect("read") == files[&path_of(entry)], "{}", entry.name);
        }
        assert_eq!(reads(&fake) - before, most, "{} files", entries.len());
    }
}

/// Where a node does not answer its files are not read, and say so; all others are.
#[tokio::test(start_paused = true)]
async fn a_node_is_away() {
    let fake = Fake::new(9);
    let nodes = Nodes::new(&fake, 3).await;
    let client = nodes.client("node1").await;
    let files = small(200, 3);
    put(&client, &files).await;
    let entries = listed(&client).await;
    nodes.kill("node3");
    let mut away = 0;
    for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
        let there = entry.extents.iter().any(|extent| extent.layout.columns[0].device.value() == 3);
        match got {
            Ok(bytes) => assert!(!there && bytes == files[&path_of(entry)], "{}", entry.name),
            Err(error) => assert!(there && error.kind() == ErrorKind::Unreachable, "{}: {error}", entry.name),
        }
        away += usize::from(there);
    }
    assert!((1..files.len()).contains(&away), "{away} files are on the node that is away");
    assert_eq!(fake.state().astray, 0);
}

/// A node of an older version says no places: nothing is asked for, and each file is to be opened. So is one of which nonsense is said.
#[tokio::test(start_paused = true)]
async fn an_older_node() {
    let fake = Fake::new(10);
    fake.fail(|faults| faults.without_extents = true);
    let client = fake.client();
    let files = small(30, 4);
    put(&client, &files).await;
    let entries = listed(&client).await;
    assert_eq!(entries.len(), files.len());
    for (entry, got) in entries.iter().zip(read(&client, &entries).await) {
        assert_eq!(got.is_ok(), entry.attributes.length == 0, "{}", entry.name);
        assert!(client.read_small(&path_of(entry)).await.expect("read") == files[&path_of(entry)]);
    }
    fake.fail(|faults| faults.without_extents = false);
    let located = listed(&client).await.into_iter().find(|entry| entry.attributes.length > 9).expect("a file");
    let before = reads(&fake);
    let lie = |change: fn(&mut Entry)| {
        let mut entry = located.clone();
        change(&mut entry);
        entry
    };
    let lies = [
        lie(|entry| entry.attributes.length += 1),
        lie(|entry| entry.attributes.open = true),
        lie(|entry| entry.attributes.directory = true),
        lie(|entry| entry.extents[0].offset = 1),
        lie(|entry| entry.extents[0].open = true),
        lie(|entry| entry.extents[0].length = u64::MAX),
        lie(|entry| entry.extents.push(entry.extents[0].clone())),
        lie(|entry| entry.extents[0].layout.columns.clear()),
        lie(|entry| (entry.attributes.length, entry.extents[0].length) = (2 << 20, 2 << 20)),
    ];
    for (number, got) in read(&client, &lies).await.into_iter().enumerate() {
        assert!(got.is_err(), "{number}");
    }
    assert_eq!(reads(&fake), before, "nothing was asked for");
    assert!(fake.state().calls.contains_key(&file::List::KIND));
}
