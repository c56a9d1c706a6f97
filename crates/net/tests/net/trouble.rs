//! Servers that die, come back or fall silent.

use crate::support::{
    Doing, LoopbackNet, MemoryNet, Serving, echo, echo_to, link, link_settings, payload, push, serve,
};
use base::error::ErrorKind;
use base::net::Net;
use net::message::bag::Push;
use net::{Call, Link, Payload};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

type Seen = Arc<Mutex<BTreeMap<u64, Vec<u64>>>>;

/// Echoes every second call; the others are held for ever. Notes the numbers under which each bag was seen.
fn forgetful(seen: Seen, remembers: bool) -> Arc<dyn net::Service> {
    let held: Mutex<Vec<Call>> = Mutex::default();
    Arc::new(Doing(move |mut call: Call| {
        let bag = call.ask::<Push>().unwrap().bag;
        seen.lock().unwrap().entry(bag).or_default().push(call.number);
        if remembers || bag.is_multiple_of(2) {
            echo_to(bag, call);
        } else {
            held.lock().unwrap().push(call);
        }
    }))
}

async fn killed_and_restarted(net: Arc<dyn Net>, address: &str) {
    let seen: Seen = Arc::default();
    let server = serve(&*net, address, 64 << 20, forgetful(seen.clone(), false)).await;
    let address = server.address.clone();
    let link = link(net.clone(), &address).await;
    let mut calls = JoinSet::new();
    for bag in 0..40u64 {
        let link = link.clone();
        calls.spawn(async move {
            let sent = payload(bag, if bag.is_multiple_of(3) { 300_000 } else { 1000 });
            let (answer, back) = link.call(&push(bag), sent.clone()).await.unwrap();
            assert_eq!(answer.waiting, bag);
            assert_eq!(back.into_bytes(), sent.into_bytes());
        });
    }
    // Every call has arrived once and half are answered: now the server is killed, its connections with it.
    while calls.len() > 20 {
        calls.join_next().await.unwrap().unwrap();
    }
    while seen.lock().unwrap().len() < 40 {
        tokio::task::yield_now().await;
    }
    let Serving { task, .. } = server;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    let _server = serve(&*net, &address, 64 << 20, forgetful(seen.clone(), true)).await;
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    for (bag, numbers) in seen.lock().unwrap().iter() {
        assert_eq!(numbers.len(), if bag.is_multiple_of(2) { 1 } else { 2 }, "bag {bag}");
        assert!(numbers.iter().all(|number| *number == numbers[0]), "bag {bag} was asked again under another number");
    }
}

/// A server is killed in the middle and started again: all calls are answered, those asked again under the same number.
#[tokio::test(start_paused = true)]
async fn killed_and_restarted_in_memory() {
    killed_and_restarted(Arc::new(MemoryNet::default()), "a").await;
}

/// The same over sockets.
#[tokio::test]
async fn killed_and_restarted_over_sockets() {
    killed_and_restarted(Arc::new(LoopbackNet), "127.0.0.1:0").await;
}

/// A pulled cable: a call fails as unreachable after ten seconds of silence, not sooner, and works again after the cable is back.
/// What was sent for it is taken back as far as that can be; a link without trouble takes nothing back.
#[tokio::test(start_paused = true)]
async fn silence_is_unreachable() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let link = link(net.clone(), "a").await;
    link.call(&push(1), Payload::empty()).await.unwrap();
    assert_eq!(net.abandoned.load(Ordering::Relaxed), 0);
    net.deaf.store(true, Ordering::Relaxed);
    let before = tokio::time::Instant::now();
    let error = link.call(&push(2), payload(1, 1 << 20)).await.unwrap_err();
    assert!(net.abandoned.load(Ordering::Relaxed) > 0);
    let waited = before.elapsed();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.text().contains("no answer from a for 10 s"), "{error}");
    assert!((Duration::from_secs(10)..Duration::from_secs(12)).contains(&waited), "{waited:?}");
    net.deaf.store(false, Ordering::Relaxed);
    link.call(&push(3), payload(1, 1 << 20)).await.unwrap();
    drop(server);
}

/// A service may work for an hour on a call: pings are answered meanwhile, and that is no silence.
#[tokio::test(start_paused = true)]
async fn long_work_is_no_silence() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            echo(call);
        });
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let link = link(net, "a").await;
    assert_eq!(link.call(&push(6), payload(1, 1 << 20)).await.unwrap().0.waiting, 6);
    assert_eq!(server.stats.calls.load(Ordering::Relaxed), 1, "the call was asked again");
}

/// An idle connection is closed by the server; the next call makes a new one, silently.
#[tokio::test(start_paused = true)]
async fn idle_connections_close_and_come_back() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let link = link(net, "a").await;
    link.call(&push(1), Payload::empty()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(400)).await;
    assert_eq!(server.stats.connections_open.load(Ordering::Relaxed), 0);
    link.call(&push(1), Payload::empty()).await.unwrap();
    assert_eq!(server.stats.connections.load(Ordering::Relaxed), 2);
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
}

/// Nothing listens: told at once, with what to do. A closed link refuses.
#[tokio::test(start_paused = true)]
async fn nobody_there() {
    let net = Arc::new(MemoryNet::default());
    let before = tokio::time::Instant::now();
    let error = Link::connect(net.clone(), "a", link_settings(1, 2)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.text().contains("stormwell serve") && error.text().contains("--at"), "{error}");
    assert_eq!(before.elapsed(), Duration::ZERO);
    let _server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let link = link(net, "a").await;
    link.close();
    let error = link.call(&push(1), Payload::empty()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
}

/// Shutting down answers what is being worked on before the connections close.
#[tokio::test(start_paused = true)]
async fn shutdown_answers_first() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            echo(call);
        });
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let link = link(net, "a").await;
    let call = tokio::spawn(async move { link.call(&push(5), payload(1, 1 << 20)).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.shutdown.stop();
    server.task.await.unwrap();
    assert_eq!(call.await.unwrap().unwrap().0.waiting, 5);
}
