//! Emptying devices of one node: pushes that were under way or are asked again, and what a drain says that it waits for.

use crate::{Fixture, pull, until};
use base::buffer::Pool;
use base::checksum::BlockSums;
use base::error::ErrorKind;
use base::id::{ChunkId, DeviceId, Generation, Owner};
use base::policy::{Class, Level};
use base::unit::{MIB, Time};
use bytes::Bytes;
use chunk::{Effect, Engine, Request};
use net::message::{Id, bag, chunk as wire, device, file};
use net::{Link, Payload};
use std::path::Path;
use std::task::Poll;
use tokio::task::JoinHandle;

async fn devices(link: &Link) -> Vec<file::Device> {
    link.call(&file::Devices {}, Payload::empty()).await.expect("listed").0.devices
}

/// What a device that is being emptied waits for; none: it is gone.
async fn waits(link: &Link, device: Id) -> Option<String> {
    let found = devices(link).await.into_iter().find(|found| found.device == device)?;
    Some(found.drain.map(|drain| drain.waits).unwrap_or_default())
}

async fn drain(link: &Link, device: Id) {
    link.call(&device::Drain { device }, Payload::empty()).await.expect("it begins");
}

async fn make_bag(link: &Link) -> bag::Info {
    let create = bag::Create { name: "b".to_string(), ..bag::Create::default() };
    link.call(&create, Payload::empty()).await.expect("a bag").0
}

async fn counted(link: &Link) -> bag::Info {
    let stat = bag::Stat { name: "b".to_string(), ..bag::Stat::default() };
    link.call(&stat, Payload::empty()).await.expect("counted").0
}

/// Pushes a chunk by its name; whether it was taken.
async fn push(link: &Link, bag: u64, device: Id, name: u128, length: usize) -> bool {
    let push = bag::Push { bag, device, chunk: name.into(), floor: 0 };
    let (answer, _) = link.call(&push, Payload::new(Bytes::from(vec![name as u8; length]))).await.expect("answered");
    answer.refused.is_none()
}

async fn handle(link: &Link, bag: u64, device: Id, grant: u64) -> bool {
    let (pulled, _) = link.call(&pull(bag, device, grant), Payload::empty()).await.expect("answered");
    if pulled.pulled != bag::Pulled::Chunk as i32 {
        return false;
    }
    let grants = vec![bag::Grant { chunk: pulled.chunk, grant }];
    let acknowledge = bag::Acknowledge { bag, device, pass: 0, grants, retain: false, number: 0, floor: 0 };
    let (answer, _) = link.call(&acknowledge, Payload::empty()).await.expect("answered");
    answer.results[0].code == 0
}

/// A push to a device that is being emptied was taken by another one, and its answer lost. It is asked again when that other one is being
/// emptied, too, and when it has handled the chunk: it is recognised, also after a restart, and no third device stores it again. The other one
/// stays until the first one, which sends its pushes there, is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_taker_leaves() {
    let mut fixture = Fixture::start_with("taker", vec![Class::Ssd; 3], 256 * MIB).await;
    let link = fixture.link(1).await;
    let info = make_bag(&link).await;
    let (bag, leaving) = (info.bag, info.members[0]);
    assert!(push(&link, bag, leaving, 1, 5000).await);
    drain(&link, leaving).await;
    assert!(push(&link, bag, leaving, 7, 5000).await, "another one takes it");
    let taker = async || devices(&link).await.into_iter().find(|found| found.chunks == 1 && found.device != leaving);
    until("it is known who", async || taker().await.is_some()).await;
    let taker = taker().await.expect("it is known").device;
    drain(&link, taker).await;
    assert!(push(&link, bag, leaving, 7, 5000).await, "it is there");
    assert_eq!(counted(&link).await.pushed, 2, "stored twice");
    assert!(handle(&link, bag, taker, 5).await);
    let waits_for_it = async |link: &Link| {
        waits(link, taker).await.expect("it is there").contains("the end of drains that began before")
    };
    until("it waits for the other", async || waits_for_it(&link).await).await;
    assert!(push(&link, bag, leaving, 7, 5000).await, "it was there");
    link.close();
    fixture.stop().await;
    fixture.run().await;
    let link = fixture.link(2).await;
    until("it waits for the other", async || waits_for_it(&link).await).await;
    assert!(push(&link, bag, leaving, 7, 5000).await, "it was there");
    let counted = counted(&link).await;
    assert_eq!((counted.pushed, counted.waiting), (2, 1), "handled, and stored again");
    assert!(handle(&link, bag, leaving, 6).await);
    for device in [leaving, taker] {
        until("it is removed", async || waits(&link, device).await.is_none()).await;
    }
    link.close();
    fixture.stop().await;
}

/// Pushes chunks to a device until one waits for room: how many it took, and that one.
async fn fill(link: &Link, bag: u64, device: Id) -> (u128, JoinHandle<bool>) {
    let full = async || devices(link).await.iter().any(|found| found.device == device && found.full);
    for taken in 0..100 {
        let (asking, name) = (link.clone(), 100 + taken);
        let waiting = tokio::spawn(async move { push(&asking, bag, device, name, 4 * MIB as usize).await });
        until("it is taken or waits", async || waiting.is_finished() || full().await).await;
        if !waiting.is_finished() {
            return (taken, waiting);
        }
        assert!(waiting.await.expect("no panic"), "there was room");
    }
    panic!("it is never full");
}

/// A push waits for room on a full device when that begins to be emptied. It is refused for good before the chunks are counted, so that its
/// producer takes it elsewhere; asked again it stays refused, and when the bag has left the device every chunk that was taken was handled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_waits_for_room() {
    let mut fixture = Fixture::start_with("room", vec![Class::Ssd; 3], 96 * MIB).await;
    let link = fixture.link(1).await;
    let info = make_bag(&link).await;
    let (bag, leaving, other) = (info.bag, info.members[0], info.members[1]);
    let (taken, waiting) = fill(&link, bag, leaving).await;
    drain(&link, leaving).await;
    assert!(!waiting.await.expect("no panic"), "it takes nothing any more");
    assert!(!push(&link, bag, leaving, 100 + taken, 4 * MIB as usize).await, "what was refused stays refused");
    assert!(push(&link, bag, other, 1, 4 * MIB as usize).await, "elsewhere, under another name");
    let mut handled = 0;
    while handle(&link, bag, leaving, 1000 + handled).await {
        handled += 1;
    }
    assert_eq!(u128::from(handled), taken);
    until("it is removed", async || waits(&link, leaving).await.is_none()).await;
    let counted = counted(&link).await;
    assert_eq!((u128::from(counted.pushed), u128::from(counted.acknowledged), counted.waiting), (taken + 1, taken, 1));
    link.close();
    fixture.stop().await;
}

/// An append to a file waits for room on a full device when that begins to be emptied. It is done where the file's chunk goes, and its bytes
/// are in the file: not where the chunk was, when room comes there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_waits_for_room() {
    let mut fixture = Fixture::start_with("append-room", vec![Class::Ssd; 3], 96 * MIB).await;
    let link = fixture.link(1).await;
    let bag = make_bag(&link).await.bag;
    let create = file::Create { path: "/f".to_string(), ..file::Create::default() };
    let (opened, _) = link.call(&create, Payload::empty()).await.expect("a file");
    let file::NewGroup { group, layout, .. } = opened.group;
    let (leaving, chunk) = (layout.columns[0].device, layout.columns[0].chunk);
    let (_, pushed) = fill(&link, bag, leaving).await;
    let generation = opened.generation;
    let append = wire::Append { device: leaving, chunk, group, generation, level: 1, ..wire::Append::default() };
    let payload = Payload::new(Bytes::from(vec![7; 100_000]));
    let mut appending = std::pin::pin!(link.call(&append, payload));
    // Sent before anything else is.
    let has_to_wait = std::future::poll_fn(|context| Poll::Ready(appending.as_mut().poll(context).is_pending())).await;
    assert!(has_to_wait, "there is no room");
    drain(&link, leaving).await;
    assert!(!pushed.await.expect("no panic"), "it takes nothing any more");
    let place = async || {
        let locate = file::Locate { path: "/f".to_string(), length: u64::MAX, ..file::Locate::default() };
        let (located, _) = link.call(&locate, Payload::empty()).await.expect("located");
        located.extents[0].layout.columns[0].device
    };
    until("the file is elsewhere", async || place().await != leaving).await;
    let mut handled = 0;
    while handle(&link, bag, leaving, 1000 + handled).await {
        handled += 1;
    }
    appending.await.expect("there was room where it went");
    let (stat, _) = link
        .call(&wire::Stat { device: place().await, chunk, start: false }, Payload::empty())
        .await
        .expect("what was acknowledged is where the file is");
    assert_eq!(stat.length, 100_000);
    until("it is removed", async || waits(&link, leaving).await.is_none()).await;
    link.close();
    fixture.stop().await;
}

/// Who asks again that a device be emptied, because his connection broke before he heard the answer, may come after its end: then it is done,
/// also after a restart. A device that was never the store's is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asked_again_after_its_end() {
    let mut fixture = Fixture::start_with("drained-before", vec![Class::Ssd; 2], 96 * MIB).await;
    let mut link = fixture.link(1).await;
    let leaving = devices(&link).await[0].device;
    drain(&link, leaving).await;
    until("it is removed", async || waits(&link, leaving).await.is_none()).await;
    for number in 2..4 {
        drain(&link, leaving).await;
        let other = device::Drain { device: (leaving.value() ^ 1).into() };
        let refused = link.call(&other, Payload::empty()).await.map(drop).expect_err("there is none");
        assert_eq!(refused.kind(), ErrorKind::NotFound, "{refused}");
        link.close();
        fixture.stop().await;
        fixture.run().await;
        link = fixture.link(number).await;
    }
    link.close();
    fixture.stop().await;
}

/// Has a device that is not served do something.
pub fn do_unserved(chunks: &Path, request: Request) {
    let mut disk = os::disk::open(chunks, os::disk::Backend::Threads, Pool::new(1 << 20)).expect("its disk").disk;
    let settings = chunk::Settings::for_capacity(256 << 20, Pool::new(1 << 20));
    let (mut engine, _) = Engine::open(disk.as_mut(), settings, DeviceId(1), Time::ZERO).expect("a device");
    engine.submit(Time::ZERO, request, ());
    let (mut effects, mut done, mut answer) = (Vec::new(), Vec::new(), None);
    while answer.is_none() {
        engine.take_effects(&mut effects);
        for effect in effects.drain(..) {
            match effect {
                Effect::Disk { token, op } => disk.submit(token, op),
                Effect::Reply { result, .. } => answer = Some(result),
            }
        }
        if answer.is_none() {
            disk.poll(None, &mut done);
            done.drain(..).for_each(|finished| engine.completed(Time::ZERO, finished));
        }
    }
    answer.expect("there is one").expect("done");
}

/// Puts a chunk on a device that is not served, whose owner is of a kind that only a newer program knows.
fn put_newer(chunks: &Path) {
    let payload = Bytes::from(vec![9; 5000]);
    let request = Request::Append {
        chunk: ChunkId(77),
        owner: Owner::new(9, 77).expect("an owner"),
        generation: Generation(1),
        offset: 0,
        sums: BlockSums::of(&payload),
        payload,
        level: Level::Synced,
        seal: true,
        small_parts: false,
        cell: 0,
    };
    do_unserved(chunks, request);
}

/// A device with a chunk that only a newer program knows cannot be emptied, and says why; the chunk stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_a_newer_program_knows() {
    let mut fixture = Fixture::start_with("newer", vec![Class::Ssd; 2], 256 * MIB).await;
    fixture.stop().await;
    put_newer(&fixture.directory.join("0/chunks"));
    fixture.run().await;
    let link = fixture.link(1).await;
    let with_it = devices(&link).await.into_iter().find(|found| found.chunks == 1).expect("it is there").device;
    drain(&link, with_it).await;
    until("it says why", async || {
        let says = "1 chunks of a kind that only a newer program knows";
        waits(&link, with_it).await.is_some_and(|waits| waits.contains(says))
    })
    .await;
    assert!(devices(&link).await.iter().any(|found| found.device == with_it && found.chunks == 1), "it stays");
    link.close();
    fixture.stop().await;
}
