//! Calls that go well: many at once, of every size, over memory and over sockets.

use crate::support::{Doing, LoopbackNet, MemoryNet, echo, echo_to, link, link_settings, payload, push, serve};
use base::error::{Error, ErrorKind};
use base::id::{NodeId, SessionId};
use base::limit::FRAME_MESSAGE_MAX;
use base::net::Net;
use net::message::Done;
use net::message::bag::Push;
use net::message::file::{Delete, PathOf, PathOfAnswer, Stat};
use net::{Body, Call, Link, Payload};
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// Sizes around every border: nothing, copied in line, staged, small, large, largest.
const SIZES: [usize; 12] =
    [0, 1, 100, 4095, 4096, 4097, 32 << 10, (32 << 10) + 1, 64 << 10, (64 << 10) + 1, 1 << 20, 16 << 20];

async fn every_size(net: Arc<dyn Net>, address: &str) {
    let server = serve(&*net, address, 64 << 20, Arc::new(Doing(echo))).await;
    let link = link(net, &server.address).await;
    assert_eq!(link.node(), NodeId(42));
    for (at, size) in SIZES.into_iter().chain(SIZES.into_iter().rev()).enumerate() {
        let sent = payload(at as u64, size);
        let (answer, back) = link.call(&push(at as u64), sent.clone()).await.unwrap();
        assert_eq!(answer.waiting, at as u64);
        assert!(back.into_bytes() == sent.into_bytes(), "{size} bytes came back changed");
    }
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
    let counted: Vec<(u16, u64)> =
        server.stats.answers.by_kind().map(|(kind, stats)| (kind, stats.took.counted().count())).collect();
    assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), 2 * SIZES.len() as u64);
    assert_eq!(counted[usize::from(<Push as net::message::Ask>::KIND)].1, 2 * SIZES.len() as u64);
}

/// Payloads of every size come through sockets and back as they were.
#[tokio::test]
async fn every_size_over_sockets() {
    every_size(Arc::new(LoopbackNet), "127.0.0.1:0").await;
}

/// Payloads of every size come through streams that take a few bytes at a time.
#[tokio::test]
async fn every_size_over_memory() {
    every_size(Arc::new(MemoryNet::default()), "a").await;
}

/// A thousand calls at once over two connections are each answered with their own answer, in whatever order the service has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_calls_answered_in_any_order() {
    let net = Arc::new(LoopbackNet);
    let held: Mutex<Vec<(u64, Call)>> = Mutex::default();
    // Answers come from another thread's hands, newest first, whenever seven have gathered; the stragglers at once.
    let service = Doing(move |mut call: Call| {
        let mut held = held.lock().unwrap();
        let bag = call.ask::<Push>().unwrap().bag;
        held.push((bag, call));
        if held.len() >= 7 || bag >= 1000 {
            let calls: Vec<(u64, Call)> = held.drain(..).rev().collect();
            std::thread::spawn(|| calls.into_iter().for_each(|(bag, call)| echo_to(bag, call)));
        }
    });
    let server = serve(&*net, "127.0.0.1:0", 64 << 20, Arc::new(service)).await;
    let link = link(net, &server.address).await;
    let mut calls = JoinSet::new();
    for number in 0..1000u64 {
        let link = link.clone();
        calls.spawn(async move {
            let sent = payload(number, (number as usize * 97) % 9000);
            let (answer, back) = link.call(&push(number), sent.clone()).await.unwrap();
            assert_eq!(answer.waiting, number);
            assert_eq!(back.into_bytes(), sent.into_bytes());
        });
    }
    // The last call releases what does not make seven; it is repeated until nothing is left.
    let release = push(1000);
    while !calls.is_empty() {
        tokio::select! {
            ended = calls.join_next() => ended.unwrap().unwrap(),
            released = link.call(&release, Payload::empty()) => drop(released.unwrap()),
        }
    }
    assert!(server.stats.calls.load(std::sync::atomic::Ordering::Relaxed) >= 1000);
}

/// A payload of many parts arrives as one; an answer whose bytes do not match its checksum is refused.
#[tokio::test]
async fn parts_and_damage() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|mut call: Call| match call.ask::<Push>().unwrap().bag {
        0 => echo_to(0, call),
        1 => call.respond.answer(
            net::message::bag::PushAnswer { waiting: 0, under_way: None, refused: None },
            Payload::with_crc(vec![b"abc".as_slice().into()], 1),
        ),
        2 => call.respond.fail(Error::new(ErrorKind::Full, "no room; delete something")),
        _ => drop(call),
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let link = link(net, &server.address).await;
    let whole = payload(5, 200_000).into_bytes();
    let parts = [0..10, 10..10, 10..5000, 5000..100_000, 100_000..200_000].map(|range| whole.slice(range)).to_vec();
    let sent = Payload::with_crc(parts, base::checksum::crc32c(&whole));
    assert_eq!(link.call(&push(0), sent).await.unwrap().1.into_bytes(), whole);
    assert_eq!(link.call(&push(1), Payload::empty()).await.unwrap_err().kind(), ErrorKind::Corrupt);
    let full = link.call(&push(2), Payload::empty()).await.unwrap_err();
    assert_eq!((full.kind(), full.text()), (ErrorKind::Full, "no room; delete something"));
    let dropped = link.call(&push(3), Payload::empty()).await.unwrap_err();
    assert_eq!(dropped.kind(), ErrorKind::Io, "{dropped}");
}

/// Over a local link a message is handed over as it is, never encoded: the answer's text is the very memory that the service wrote it to.
/// What would not fit in a frame is refused all the same, and a message of another kind is an error, not a fault.
#[tokio::test]
async fn a_local_link_hands_messages_over() {
    let told: Arc<Mutex<Vec<usize>>> = Arc::default();
    let telling = told.clone();
    let service = Doing(move |mut call: Call| {
        assert!(matches!(call.body, Body::Typed(_)), "{:?}", call.body);
        match call.ask::<PathOf>() {
            Ok(PathOf { inode: 0 }) => call.respond.answer(Done {}, Payload::empty()),
            Ok(PathOf { inode }) => {
                let path = "x".repeat(inode as usize);
                telling.lock().unwrap().push(path.as_ptr() as usize);
                call.respond.answer(PathOfAnswer { path }, Payload::empty());
            }
            Err(error) => call.respond.fail(error),
        }
    });
    let link = Link::local(Arc::new(service), SessionId(3));
    let ask = async |inode| link.call(&PathOf { inode }, Payload::empty()).await.map(|(answer, _)| answer.path);
    let path = ask(1000).await.unwrap();
    assert_eq!((path.len(), path.as_ptr() as usize), (1000, told.lock().unwrap()[0]));
    let large = ask(FRAME_MESSAGE_MAX as u64).await.unwrap_err();
    assert!(large.text().contains("does not fit in a frame"), "{large}");
    assert_eq!(ask(0).await.unwrap_err().kind(), ErrorKind::Protocol);
    assert_eq!(link.call(&push(1), Payload::empty()).await.unwrap_err().kind(), ErrorKind::Protocol);
    let long = Stat { path: "x".repeat(FRAME_MESSAGE_MAX) };
    assert_eq!(link.call(&long, Payload::empty()).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(told.lock().unwrap().len(), 2);
}

/// A local link calls the service at once and hands the very same bytes over.
#[tokio::test]
async fn a_local_link_is_a_function_call() {
    let link = Link::local(Arc::new(Doing(echo)), SessionId(3));
    let sent = payload(1, 1 << 20).into_bytes();
    let (answer, back) = link.call(&push(8), Payload::new(sent.clone())).await.unwrap();
    assert_eq!(answer.waiting, 8);
    assert_eq!(back.into_bytes().as_ptr(), sent.as_ptr());
    let dropping = Link::local(Arc::new(Doing(drop)), SessionId(3));
    assert_eq!(dropping.call(&push(8), Payload::empty()).await.unwrap_err().kind(), ErrorKind::Io);
}

/// Each call says which change of its session is the oldest that may be asked again: that one's number, however many are answered after
/// it and over whichever link of the session they go. So many changes as are remembered are begun from it on, and the next one waits.
#[tokio::test(start_paused = true)]
async fn calls_carry_the_floor() {
    let held: Arc<std::sync::Mutex<Vec<Call>>> = Arc::default();
    let seen: Arc<std::sync::Mutex<Vec<(u64, u64)>>> = Arc::default();
    let (holding, noting) = (held.clone(), seen.clone());
    let service = Doing(move |mut call: Call| {
        noting.lock().unwrap().push((call.number, call.floor));
        match call.ask::<Delete>() {
            Ok(delete) if delete.path == "held" => holding.lock().unwrap().push(call),
            _ => call.respond.answer(Done {}, Payload::empty()),
        }
    });
    let net = Arc::new(MemoryNet::default());
    let _server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let settings = link_settings(1, 2);
    settings.numbers.set_room(4);
    let first = Link::connect(net.clone(), "a", settings.clone()).await.unwrap();
    let second = Link::connect(net, "a", settings).await.unwrap();
    let delete = |path: &str| Delete { path: path.to_string(), ..Delete::default() };
    let stat = Stat { path: "x".to_string() };
    second.call(&delete("x"), Payload::empty()).await.unwrap();
    let (asking, question) = (first.clone(), delete("held"));
    let oldest = tokio::spawn(async move { asking.call(&question, Payload::empty()).await });
    while held.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    for link in [&second, &first, &second] {
        link.call(&delete("x"), Payload::empty()).await.unwrap();
    }
    assert_eq!(*seen.lock().unwrap(), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 2)]);
    let fifth = tokio::spawn(async move { second.call(&delete("x"), Payload::empty()).await.map(drop) });
    // A read goes on, and whatever had begun before it would have come before it.
    let read = first.call(&stat, Payload::empty()).await;
    assert!(read.is_ok() && !fifth.is_finished(), "{read:?}");
    assert_eq!(seen.lock().unwrap().last(), Some(&(6, 2)));
    let call = held.lock().unwrap().pop().unwrap();
    call.respond.answer(Done {}, Payload::empty());
    oldest.await.unwrap().unwrap();
    fifth.await.unwrap().unwrap();
    assert_eq!(seen.lock().unwrap().last(), Some(&(7, 7)));
}
