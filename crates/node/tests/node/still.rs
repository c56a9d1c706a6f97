//! A device that neither answers nor fails: its disk stands still.

use crate::failing::FailingWorld;
use crate::{Fixture, until};
use base::error::ErrorKind;
use base::limit::SESSION_LEASE;
use base::policy::Class;
use bytes::Bytes;
use net::message::layout::Column;
use net::message::{Id, chunk, device, file};
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

/// Four devices, of which the second may stand still; files are made only by the test.
async fn four(name: &str) -> (Fixture, Arc<FailingWorld>, Vec<Id>) {
    let mut fixture = Fixture::at(std::env::temp_dir().join(format!("stormwell-node-{}-{name}", std::process::id())));
    fixture.classes = vec![Class::Ssd; 4];
    fixture.metadata_dir = Some(fixture.directory.join("metadata"));
    let world = Arc::new(FailingWorld { place: fixture.directory.join("1"), ..FailingWorld::default() });
    fixture.world = world.clone();
    fixture.run().await;
    let link = fixture.link(1).await;
    let (listed, _) = link.call(&file::Devices {}, Payload::empty()).await.expect("listed");
    let at = |number: usize| {
        let end = format!("/{number}");
        listed.devices.iter().find(|device| device.place.ends_with(&end)).expect("it is there").device
    };
    (fixture, world, (0..4).map(at).collect())
}

async fn drain(link: &Link, device: Id) {
    link.call(&device::Drain { device }, Payload::empty()).await.expect("it begins");
}

async fn is_there(link: &Link, device: Id) -> bool {
    let (listed, _) = link.call(&file::Devices {}, Payload::empty()).await.expect("listed");
    listed.devices.iter().any(|found| found.device == device)
}

/// Of two devices that are emptied the first one stands still. The other one is emptied; when the first one goes on it is emptied, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drains_go_on_beside_it() {
    let (mut fixture, world, devices) = four("still-drains").await;
    let link = fixture.link(1).await;
    let (other, still) = (devices[0], devices[1]);
    for number in 0..3 {
        make(&link, still, &format!("on-still{number}")).await;
        make(&link, other, &format!("on-other{number}")).await;
    }
    world.still.begin();
    drain(&link, still).await;
    drain(&link, other).await;
    until("the other one is emptied", async || chunks(&link, other).await == 0).await;
    assert_eq!(chunks(&link, still).await, 3);
    world.still.end();
    for device in [still, other] {
        until("it is removed", async || !is_there(&link, device).await).await;
    }
    link.close();
    fixture.stop().await;
}

/// A device is emptied while one that would take what is on it stands still: others take it. When that one goes on, nothing of the copies that
/// were begun is left there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_goes_around_it() {
    let (mut fixture, world, devices) = four("still-target").await;
    let link = fixture.link(1).await;
    let (drained, still) = (devices[0], devices[1]);
    for number in 0..8 {
        make(&link, drained, &format!("f{number}")).await;
    }
    world.still.begin();
    drain(&link, drained).await;
    until("it is removed", async || !is_there(&link, drained).await).await;
    assert_eq!(chunks(&link, devices[2]).await + chunks(&link, devices[3]).await, 8);
    world.still.end();
    until("no copy is left", async || chunks(&link, still).await == 0).await;
    link.close();
    fixture.stop().await;
}
