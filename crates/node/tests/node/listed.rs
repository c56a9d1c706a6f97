//! Many small files of a listing, read together: what comes is what was put, or the file is opened.

use crate::hdfs_user::{client, content};
use crate::{Fixture, until};
use base::error::ErrorKind;
use base::limit::{LISTED_TOGETHER_MAX, LOCATED_PAGE_MAX, SHORT_LOCATED_PAGE};
use base::policy::{Compression, Policy};
use bytes::Bytes;
use client::{Client, CreateOptions, Entry, Listed, PackOptions, PackerOptions, ReadOptions};
use std::collections::BTreeMap;

async fn pack(client: &Client, files: &BTreeMap<String, Bytes>) {
    let mut packer = client.packer(PackerOptions::default());
    for (path, bytes) in files {
        let options = PackOptions { overwrite: true, parents: true, ..PackOptions::default() };
        packer.put(path, bytes.clone(), options).await.expect("taken");
    }
    assert!(packer.close().await.expect("put").iter().all(|(_, result)| result.is_ok()));
}

async fn list(client: &Client, directory: &str) -> Vec<(String, Entry)> {
    let (mut listing, mut entries) = (client.list_all_located(directory), Vec::new());
    while let Some(entry) = listing.next().await.expect("listed") {
        entries.push((format!("{directory}/{}", entry.name), entry));
    }
    entries
}

/// The bytes of each file, read together or, where that failed, by opening it; and how many came together.
async fn read(client: &Client, entries: &[(String, Entry)]) -> (BTreeMap<String, Result<Bytes, ErrorKind>>, usize) {
    let listed: Vec<Listed<'_>> =
        entries.iter().map(|(_, Entry { attributes, extents, .. })| Listed { attributes, extents }).collect();
    let (mut all, mut together) = (BTreeMap::new(), 0);
    let read = client.read_listed(&listed, ReadOptions { once: true }).await;
    for ((path, entry), read) in entries.iter().zip(read) {
        let bytes = match read {
            Ok(parts) => {
                together += 1;
                let bytes = Bytes::from(parts.concat());
                assert_eq!(bytes.len() as u64, entry.attributes.length, "{path}");
                Ok(bytes)
            }
            Err(_) => client.read_small(path).await.map_err(|error| error.kind()),
        };
        all.insert(path.clone(), bytes);
    }
    (all, together)
}

/// Packed files, compressed ones of their own, joined ones and an open one; then after some were replaced and others deleted, when what they
/// had is given back; and after a restart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_together() {
    let mut fixture = Fixture::start("listed").await;
    let mut client = client(&fixture).await;
    let length = |number: u64| (number * number * 37 % 30_000) as usize;
    let mut files: BTreeMap<String, Bytes> =
        (0..300).map(|number| (format!("/d/{number:03}"), content(length(number), number))).collect();
    pack(&client, &files).await;
    let policy = Policy { compression: Some(Compression::Lz4), ..Policy::default() };
    client.set_policy("/d", policy).await.expect("set");
    for number in 0..5_u64 {
        let (path, bytes) = (format!("/d/compressed{number}"), Bytes::from(vec![number as u8; 1 << (16 + number)]));
        let mut writer = client.create(&path, CreateOptions::default()).await.expect("new");
        writer.write(bytes.clone()).await.expect("written");
        writer.close().await.expect("closed");
        files.insert(path, bytes);
    }
    client.concat("/d/007", &["/d/008".to_string(), "/d/compressed0".to_string()]).await.expect("joined");
    let joined =
        [files["/d/007"].clone(), files.remove("/d/008").expect("put"), files.remove("/d/compressed0").expect("put")];
    files.insert("/d/007".to_string(), joined.concat().into());
    let mut open = client.create("/d/open", CreateOptions::default()).await.expect("new");
    open.write(content(70_000, 9)).await.expect("written");
    open.sync().await.expect("synced");
    let entries = list(&client, "/d").await;
    let (mut read_files, together) = read(&client, &entries).await;
    assert!(read_files.remove("/d/open").expect("listed").expect("there") == content(70_000, 9));
    assert!(read_files.iter().all(|(path, bytes)| bytes.as_ref() == Ok(&files[path])));
    // All but the open one.
    assert_eq!((read_files.len(), together), (files.len(), files.len()));

    let new: BTreeMap<String, Bytes> = (0..300)
        .step_by(7)
        .map(|number| (format!("/d/{number:03}"), content(length(number + 1), number + 500)))
        .collect();
    pack(&client, &new).await;
    for number in (1..300).step_by(11) {
        client.delete(&format!("/d/{number:03}"), false).await.ok();
    }
    until("what was deleted is given back", async || read(&client, &entries).await.0.values().any(Result::is_err))
        .await;
    let (read_files, together) = read(&client, &entries).await;
    let mut gone = 0;
    for (path, bytes) in read_files.iter().filter(|(path, _)| *path != "/d/open") {
        match (bytes, client.stat(path).await) {
            (Ok(bytes), Ok(_)) => assert!(*bytes == files[path] || new.get(path) == Some(bytes), "{path}"),
            // It is there for as long as nobody has collected it.
            (Ok(bytes), Err(_)) => assert!(*bytes == files[path], "{path}"),
            (Err(kind), stat) => {
                assert!(*kind == ErrorKind::NotFound && stat.is_err(), "{path}: {kind:?}");
                gone += 1;
            }
        }
    }
    assert!(gone > 0 && together < entries.len(), "{gone} gone, {together} together");
    files.extend(new);
    open.close().await.expect("closed");
    drop(client);
    fixture.stop().await;
    fixture.run().await;
    client = crate::hdfs_user::client(&fixture).await;
    let entries = list(&client, "/d").await;
    let (read_files, together) = read(&client, &entries).await;
    assert_eq!(together, entries.len());
    let expected = |path: &String| if path == "/d/open" { content(70_000, 9) } else { files[path].clone() };
    assert!(read_files.iter().all(|(path, bytes)| *bytes == Ok(expected(path))));
    fixture.stop().await;
}

/// Small directories come together, each as it is by itself, until one that has no room or is gone; which is asked for by itself then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_directories_come_together() {
    let mut fixture = Fixture::start("listed-together").await;
    let client = client(&fixture).await;
    let sizes = [3, 0, 7, 1, SHORT_LOCATED_PAGE as u64 + 1, 2, 20, 28, 1, SHORT_LOCATED_PAGE as u64, 0];
    let paths: Vec<String> = (0..sizes.len()).map(|number| format!("/d/{number:02}")).collect();
    let mut files = BTreeMap::new();
    for (path, size) in paths.iter().zip(sizes) {
        client.make_directory(path, true).await.expect("made");
        files.extend((0..size).map(|number| (format!("{path}/{number}"), content(number as usize + 1, number))));
    }
    pack(&client, &files).await;
    let together = async |paths: &[String]| client.list_together_located(paths).await;
    // How many come with each question, until all have come; one that is too large comes by itself.
    let (mut came, mut at) = (Vec::new(), 0);
    while at < paths.len() {
        let listed = together(&paths[at..]).await.expect("listed");
        for (path, entries) in paths[at..].iter().zip(&listed) {
            let alone: Vec<Entry> = list(&client, path).await.into_iter().map(|(_, entry)| entry).collect();
            assert_eq!(*entries, alone, "{path}");
            assert!(entries.iter().all(|entry| entry.extents.len() == 1));
        }
        came.push(listed.len());
        at += listed.len().max(1);
    }
    assert_eq!(came, [4, 0, 2, 2, 1, 1]);
    client.delete(&paths[2], true).await.expect("deleted");
    assert_eq!(together(&paths).await.map(|listed| listed.len()), Ok(2));
    let gone = together(&paths[2..]).await.expect_err("it is gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    // One that renames pushed further down than a path can say keeps nobody else back.
    let far: Vec<String> = [200, 100].map(|names| "/x".repeat(names)).to_vec();
    client.make_directory(&far[0], true).await.expect("made");
    client.make_directory(&format!("/y{}", far[1]), true).await.expect("made");
    client.rename("/y", &format!("{}/y", far[0]), false).await.expect("renamed");
    let hidden = format!("{}/y{}", far[0], far[1]);
    let asked = [paths[0].clone(), paths[1].clone(), hidden.clone(), paths[3].clone()];
    assert_eq!(together(&asked).await.map(|listed| listed.len()), Ok(2));
    assert_eq!(together(&asked[2..]).await.err().map(|error| error.kind()), Some(ErrorKind::Invalid));
    // However many are asked for.
    let many = vec![paths[1].clone(); 40];
    assert_eq!(together(&many).await.map(|listed| listed.len()), Ok(LISTED_TOGETHER_MAX));
    fixture.stop().await;
}

/// A page says of so many files where they are, and others follow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_shorter() {
    let mut fixture = Fixture::start("listed-pages").await;
    let client = client(&fixture).await;
    let files: BTreeMap<String, Bytes> =
        (0..1200).map(|number| (format!("/d/{number:04}"), content(number % 3 * 5, 1))).collect();
    pack(&client, &files).await;
    let page = client.list_located("/d", "", 0).await.expect("listed");
    // A third of them is empty, and nobody looks for its bytes.
    assert_eq!((page.entries.len(), page.more), (LOCATED_PAGE_MAX * 3 / 2, true));
    assert_eq!(client.list("/d", "", 0).await.expect("listed").entries.len(), 1000);
    let entries = list(&client, "/d").await;
    let (read_files, together) = read(&client, &entries).await;
    assert_eq!((read_files.len(), together), (1200, 1200));
    assert!(read_files.iter().all(|(path, bytes)| bytes.as_ref() == Ok(&files[path])));
    fixture.stop().await;
}
