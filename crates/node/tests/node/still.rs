//! A device that neither answers nor fails: its disk stands still.

use crate::failing::FailingWorld;
use crate::{Fixture, until};
use base::error::ErrorKind;
use base::limit::SESSION_LEASE;
use base::policy::Class;
use bytes::Bytes;
use net::message::layout::Column;
use net::message::{Id, chunk, file};
use net::{Link, Payload};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Begins a file on a device and writes to it. Where it is.
async fn begin(link: &Link, device: Id, name: &str) -> (String, file::OpenedFile) {
    for number in 0..1000 {
        let path = format!("/{name}-{:x}-{number}", device.value());
        let create = file::Create { path: path.clone(), ..file::Create::default() };
        let (opened, _) = link.call(&create, Payload::empty()).await.expect("a file");
        let column = opened.group.layout.columns[0].clone();
        if column.device != device {
            continue;
        }
        let (chunk, group, generation) = (column.chunk, opened.group.group, opened.generation);
        let append = chunk::Append { device, chunk, group, generation, level: 2, ..chunk::Append::default() };
        link.call(&append, Payload::new(Bytes::from(vec![7; 100_000]))).await.expect("written");
        return (path, opened);
    }
    panic!("nothing is placed on {device:?}");
}

async fn make(link: &Link, device: Id, name: &str) -> String {
    make_at(link, device, name).await.0
}

/// Its chunk, too.
async fn make_at(link: &Link, device: Id, name: &str) -> (String, Column) {
    let (path, opened) = begin(link, device, name).await;
    let close = file::Close {
        inode: opened.inode,
        generation: opened.generation,
        finished_group: opened.group.group,
        finished_length: 100_000,
        ..file::Close::default()
    };
    link.call(&close, Payload::empty()).await.expect("closed");
    let file::OpenedFile { group, .. } = opened;
    (path, group.layout.columns[0].clone())
}

/// Cuts a file in half.
async fn cut(link: &Link, path: &str) {
    let cut = file::Truncate { path: path.to_string(), length: 50_000, ..file::Truncate::default() };
    link.call(&cut, Payload::empty()).await.expect("cut");
}

/// Whether the second half of a file's chunk is not to be read any more.
async fn is_cut(link: &Link, column: &Column) -> bool {
    let Column { device, chunk, .. } = *column;
    let ranges = vec![chunk::Range { offset: 60_000, length: 1 }];
    match link.call(&chunk::Read { device, chunk, ranges, ..chunk::Read::default() }, Payload::empty()).await {
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

async fn delete(link: &Link, path: &str) {
    let delete = file::Delete { path: path.to_string(), ..file::Delete::default() };
    link.call(&delete, Payload::empty()).await.expect("deleted");
}

async fn chunks(link: &Link, device: Id) -> u64 {
    let (listed, _) = link.call(&file::Devices {}, Payload::empty()).await.expect("listed");
    listed.devices.iter().find(|found| found.device == device).expect("it is there").chunks
}

async fn is_open(link: &Link, path: &str) -> bool {
    link.call(&file::Stat { path: path.to_string() }, Payload::empty()).await.expect("it is there").0.open
}

/// One device of a node stands still. Garbage on another one is freed, before and after it is known to stand still, and an abandoned file there
/// is ended. When it goes on, its own garbage is freed, also what was not ordered of it meanwhile, and its own abandoned file ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_stands_still() {
    let mut fixture = Fixture::at(std::env::temp_dir().join(format!("stormwell-node-{}-still", std::process::id())));
    fixture.classes = vec![Class::Ssd; 2];
    fixture.metadata_dir = Some(fixture.directory.join("metadata"));
    let world = Arc::new(FailingWorld { place: fixture.directory.join("1"), ..FailingWorld::default() });
    fixture.world = world.clone();
    fixture.run().await;
    let link = fixture.link(1).await;
    let (listed, _) = link.call(&file::Devices {}, Payload::empty()).await.expect("listed");
    let is_still = |device: &&file::Device| device.place.ends_with("/1");
    let still = listed.devices.iter().find(is_still).expect("it is there").device;
    let other = listed.devices.iter().find(|device| device.device != still).expect("another one").device;
    let mut made = Vec::new();
    for name in ["first", "second"] {
        made.push((make(&link, still, name).await, make(&link, other, name).await));
    }
    let (waits, ends) = (begin(&link, still, "left").await.0, begin(&link, other, "left").await.0);
    let mut halves = Vec::new();
    for name in ["before", "after"] {
        halves.push((make_at(&link, still, name).await, make_at(&link, other, name).await));
    }
    until("all are there", async || chunks(&link, other).await == 5 && chunks(&link, still).await == 5).await;
    world.still.begin();
    for (number, (on_still, on_other)) in made.iter().enumerate() {
        delete(&link, on_still).await;
        delete(&link, on_other).await;
        until("it is freed", async || chunks(&link, other).await == 4 - number as u64).await;
    }
    fixture.clock.ahead.fetch_add(SESSION_LEASE.as_secs() + 1, Ordering::Relaxed);
    let link = fixture.link(2).await;
    until("the abandoned file is ended", async || !is_open(&link, &ends).await).await;
    assert!(is_open(&link, &waits).await, "its device was not asked");
    for ((on_still, _), (on_other, column)) in &halves {
        cut(&link, on_still).await;
        cut(&link, on_other).await;
        until("what was cut off is released", async || is_cut(&link, column).await).await;
    }
    let is_said = |word| world.said.lock().expect("nobody panicked").contains(word);
    until("it is said", async || is_said("has not answered an order")).await;
    world.still.end();
    until("its garbage is freed", async || chunks(&link, still).await == 3).await;
    until("its abandoned file is ended", async || !is_open(&link, &waits).await).await;
    for ((_, column), _) in &halves {
        until("what was cut off is released", async || is_cut(&link, column).await).await;
    }
    until("it is said", async || is_said("goes on")).await;
    link.close();
    fixture.stop().await;
}
