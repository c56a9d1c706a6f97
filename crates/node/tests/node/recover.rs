//! Files are taken from their writers.

use crate::drains::do_unserved;
use crate::failing::FailingWorld;
use crate::hdfs_user::client_of;
use crate::{Fixture, until};
use base::error::ErrorKind;
use base::id::ChunkId;
use base::limit::SESSION_LEASE;
use base::planted::Planted;
use base::policy::{Class, Policy};
use bytes::Bytes;
use client::CreateOptions;
use net::message::layout::Column;
use net::message::{chunk, file, session};
use net::{Link, Payload};
use std::sync::Arc;
use std::sync::atomic::Ordering;

async fn open(link: &Link, path: &str) -> file::OpenedFile {
    let create = file::Create { path: path.to_string(), ..file::Create::default() };
    link.call(&create, Payload::empty()).await.expect("a file").0
}

async fn append(link: &Link, opened: &file::OpenedFile, offset: u64, bytes: &'static [u8]) -> base::error::Result<()> {
    let file::NewGroup { group, layout, .. } = opened.group.clone();
    let Column { device, chunk, .. } = layout.columns[0];
    let generation = opened.generation;
    let ask = chunk::Append { device, chunk, group, generation, offset, level: 1, ..chunk::Append::default() };
    link.call(&ask, Payload::new(Bytes::from_static(bytes))).await.map(drop)
}

/// A file that is taken from its writer is closed when the answer comes, with what was written; the writer adds nothing more and
/// cannot close it; asked again, or of a closed file, the answer is the same. Somebody else goes on at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_from_its_writer() {
    let mut fixture = Fixture::start("taken").await;
    let (first, second) = (fixture.link(1).await, fixture.link(2).await);
    for bytes in [&b"written"[..], b""] {
        let path = format!("/{}", bytes.len());
        let opened = open(&first, &path).await;
        if !bytes.is_empty() {
            append(&first, &opened, 0, bytes).await.expect("written");
        }
        let recover = file::Recover { inode: opened.inode, only_gone: false, generation: 0, for_holder: false };
        let wary = file::Recover { only_gone: true, ..recover };
        let busy = second.call(&wary, Payload::empty()).await.expect_err("its writer lives");
        assert_eq!(busy.kind(), ErrorKind::Busy);
        for _ in 0..2 {
            let (found, _) = second.call(&recover, Payload::empty()).await.expect("taken");
            assert_eq!((found.open, found.length), (false, bytes.len() as u64));
        }
        if !bytes.is_empty() {
            let late = append(&first, &opened, bytes.len() as u64, b" too late").await;
            assert_eq!(late.expect_err("fenced").kind(), ErrorKind::Stale);
        }
        let close = file::Close {
            inode: opened.inode,
            generation: opened.generation,
            finished_group: opened.group.group,
            finished_length: bytes.len() as u64,
            ..file::Close::default()
        };
        let late = first.call(&close, Payload::empty()).await.expect_err("fenced");
        assert_eq!(late.kind(), ErrorKind::Stale);
        let (again, _) =
            second.call(&file::Append { path, ..file::Append::default() }, Payload::empty()).await.expect("closed");
        assert_eq!(again.length, bytes.len() as u64);
        assert!(again.generation > opened.generation);
        append(&second, &again, 0, b"more").await.expect("goes on");
    }
    fixture.stop().await;
}

/// A file that a session left, and one of the asker's own session that it does not know any more, count as left by their writers;
/// a file that is not there is not found.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn taken_from_who_is_gone() {
    let mut fixture = Fixture::start("gone").await;
    let (gone, own) = (fixture.link(1).await, fixture.link(2).await);
    let mut opened = Vec::new();
    for (link, path) in [(&gone, "/a"), (&own, "/b")] {
        let file = open(link, path).await;
        append(link, &file, 0, b"kept").await.expect("written");
        opened.push(file.inode);
    }
    let wary = |inode| file::Recover { inode, only_gone: true, generation: 0, for_holder: false };
    assert_eq!(own.call(&wary(opened[0]), Payload::empty()).await.expect_err("it lives").kind(), ErrorKind::Busy);
    let (found, _) = own.call(&wary(opened[1]), Payload::empty()).await.expect("taken");
    assert_eq!((found.open, found.length), (false, 4));
    fixture.clock.ahead.fetch_add(SESSION_LEASE.as_secs() + 1, Ordering::Relaxed);
    let third = fixture.link(3).await;
    let (found, _) = third.call(&wary(opened[0]), Payload::empty()).await.expect("taken");
    assert_eq!((found.open, found.length), (false, 4));
    let missing = third.call(&wary(999), Payload::empty()).await;
    assert_eq!(missing.expect_err("there is none").kind(), ErrorKind::NotFound);
    fixture.stop().await;
}

/// An append that was on its way when its file was taken, before its chunk had a byte, is refused when it comes at last: the file is closed
/// without its bytes. With the fault of that name put in it is taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_on_its_way_is_too_late() {
    for planted in [None, Some(Planted::UnmadeNotFenced)] {
        let directory = std::env::temp_dir().join(format!("stormwell-node-{}-way", std::process::id()));
        let mut fixture = Fixture::at(directory.clone());
        let place = directory.join("none of them fails");
        fixture.world = Arc::new(FailingWorld { place, planted, ..FailingWorld::default() });
        fixture.run().await;
        let (first, second) = (fixture.link(1).await, fixture.link(2).await);
        let opened = open(&first, "/f").await;
        let recover = file::Recover { inode: opened.inode, only_gone: false, generation: 0, for_holder: false };
        let (found, _) = second.call(&recover, Payload::empty()).await.expect("taken");
        assert_eq!((found.open, found.length), (false, 0));
        let late = append(&first, &opened, 0, b"acknowledged, and in no file").await;
        assert_eq!(late.is_ok(), planted.is_some(), "{late:?}");
        if let Err(error) = late {
            assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
        }
        fixture.stop().await;
    }
}

/// A file whose writer is gone, and whose device lost what was synced of it, keeps the length that was synced; the log says which bytes of
/// which file are missing, they are counted, and reading them is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_synced_is_missed() {
    let mut fixture = Fixture::at(std::env::temp_dir().join(format!("stormwell-node-{}-missed", std::process::id())));
    let world = Arc::new(FailingWorld { place: "/nowhere".into(), ..FailingWorld::default() });
    fixture.world = world.clone();
    fixture.run().await;
    let native = client_of(fixture.address()).await;
    let mut writer = native.create("/f", CreateOptions::default()).await.expect("made");
    let inode = writer.inode();
    writer.write(Bytes::from(vec![7; 100_000])).await.expect("written");
    writer.sync().await.expect("synced");
    until("its length is known", async || native.stat("/f").await.expect("there").length == 100_000).await;
    // What is synced soon after that is known soon after that.
    writer.write(Bytes::from(vec![8; 50_000])).await.expect("written");
    writer.sync().await.expect("synced");
    until("its new length is known", async || native.stat("/f").await.expect("there").length == 150_000).await;
    let (extents, _) = native.extents(inode, 0).await.expect("it has one");
    fixture.stop().await;
    drop(writer);
    let chunks = vec![ChunkId(extents[0].layout.columns[0].chunk.value())];
    do_unserved(&fixture.directory.join("chunks"), ::chunk::Request::Delete { chunks });
    fixture.run().await;
    let native = client_of(fixture.address()).await;
    let closed = native.recover(inode, false).await.expect("taken");
    assert_eq!((closed.open, closed.length), (false, 150_000));
    let said = world.said.lock().expect("nobody panicked").clone();
    assert!(said.contains("bytes 0 to 150000 of /f were synced and are not there any more"), "{said}");
    assert!(native.read_small("/f").await.is_err(), "there is nothing to read");
    let look = fixture.link(3).await.call(&session::Look::default(), Payload::empty()).await.expect("it answers");
    let page = String::from_utf8(look.1.into_bytes().to_vec()).expect("it is a page");
    assert!(page.contains("\nstormwell_damaged_ends_total 1\n"), "{page}");
    fixture.stop().await;
}

/// A file whose writer is gone, whose device is none of the store's any more (in memory, of an earlier start), ends where the metadata know it
/// to end, and the log says that it may have been longer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_is_said() {
    let mut fixture = Fixture::at(std::env::temp_dir().join(format!("stormwell-node-{}-maybe", std::process::id())));
    fixture.classes = vec![Class::Ssd, Class::Memory];
    fixture.metadata_dir = Some(fixture.directory.join("metadata"));
    let world = Arc::new(FailingWorld { place: "/nowhere".into(), ..FailingWorld::default() });
    fixture.world = world.clone();
    fixture.run().await;
    let native = client_of(fixture.address()).await;
    let policy = Policy { tier: Some(Class::Memory), ..Policy::default() };
    native.set_policy("/", policy).await.expect("set");
    let mut writer = native.create("/f", CreateOptions::default()).await.expect("made");
    let inode = writer.inode();
    writer.write(Bytes::from_static(b"lost")).await.expect("written");
    writer.hflush().await.expect("written");
    fixture.stop().await;
    drop(writer);
    fixture.run().await;
    let native = client_of(fixture.address()).await;
    until("the device is forgotten", async || native.recover(inode, false).await.is_ok()).await;
    let closed = native.stat("/f").await.expect("there");
    assert_eq!((closed.open, closed.length), (false, 0));
    let said = world.said.lock().expect("nobody panicked").clone();
    assert!(said.contains("/f, whose writer is gone, ends at 0 bytes and may have been longer"), "{said}");
    fixture.stop().await;
}
