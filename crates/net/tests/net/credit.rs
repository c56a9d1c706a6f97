//! Memory: large payloads travel only against credit, whoever sends them, and everybody gets a turn.

use crate::support::{Doing, MemoryNet, link_settings, payload, push, serve};
use net::{Call, Link, Payload};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Many clients push frames of unlike sizes into a budget that holds one or two of them, at a service that holds on to
/// them: what is held never exceeds the budget, and every client gets all its pushes through.
#[tokio::test(start_paused = true)]
async fn held_payload_stays_within_the_budget_and_nobody_starves() {
    const BUDGET: u64 = 16 << 20;
    let net = Arc::new(MemoryNet::default());
    let held: Arc<Mutex<Vec<Call>>> = Arc::default();
    let (bytes, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let came = Arc::new(Notify::new());
    let service = {
        let (held, bytes, most, came) = (held.clone(), bytes.clone(), most.clone(), came.clone());
        Doing(move |call: Call| {
            let now = bytes.fetch_add(call.payload.length() as u64, Ordering::Relaxed) + call.payload.length() as u64;
            most.fetch_max(now, Ordering::Relaxed);
            held.lock().unwrap().push(call);
            came.notify_one();
        })
    };
    let server = serve(&*net, "a", BUDGET, Arc::new(service)).await;
    let releasing = tokio::spawn(async move {
        loop {
            came.notified().await;
            tokio::time::sleep(std::time::Duration::from_millis(3)).await;
            let calls = std::mem::take(&mut *held.lock().unwrap());
            for Call { payload, respond, .. } in calls {
                bytes.fetch_sub(payload.length() as u64, Ordering::Relaxed);
                drop(payload);
                respond.answer(net::message::bag::PushAnswer::default(), Payload::empty());
            }
        }
    });
    let mut clients = JoinSet::new();
    for client in 0..12u64 {
        let net = net.clone();
        clients.spawn(async move {
            let link = Link::connect(net, "a", link_settings(client.into(), 1)).await.unwrap();
            // From just above the border to the largest frame; two clients send nothing but the largest.
            let sizes = [16 << 20, 65_537, 5 << 20, 1 << 20, 3_000_000, 200_000];
            let size = sizes[(client % 6) as usize];
            let mut calls = JoinSet::new();
            for _ in 0..4 {
                let link = link.clone();
                calls.spawn(async move {
                    let sent = payload(client, size);
                    for number in 0..2 {
                        link.call(&push(number), sent.clone()).await.unwrap();
                    }
                });
            }
            while let Some(ended) = calls.join_next().await {
                ended.unwrap();
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    releasing.abort();
    let most = most.load(Ordering::Relaxed);
    assert!(most <= BUDGET, "{most} bytes were held at once");
    assert!(most > BUDGET / 4, "the budget was hardly used: {most}");
    // Links are gone or idle: everything comes back.
    while server.budget.available() < BUDGET {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
}

/// A client that stays connected and stops sending gives back what it was granted.
#[tokio::test(start_paused = true)]
async fn idle_credit_comes_back() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(crate::support::echo))).await;
    let link = Link::connect(net, "a", link_settings(1, 1)).await.unwrap();
    link.call(&push(1), payload(1, 4 << 20)).await.unwrap();
    link.call(&push(1), payload(1, 4 << 20)).await.unwrap();
    assert!(server.budget.available() < 64 << 20, "no credit was kept at hand for the next push");
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!(server.budget.available(), 64 << 20);
    link.call(&push(1), payload(1, 4 << 20)).await.unwrap();
}

/// A client that holds credit for a smaller payload than the one it has to send does not wait for ever: it gives back what
/// does not suffice and asks for the whole.
#[tokio::test(start_paused = true)]
async fn credit_that_does_not_suffice_is_given_back() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 16 << 20, Arc::new(Doing(crate::support::echo))).await;
    let link = Link::connect(net, "a", link_settings(1, 1)).await.unwrap();
    link.call(&push(1), payload(1, 10 << 20)).await.unwrap();
    while server.budget.available() == 16 << 20 {
        tokio::task::yield_now().await;
    }
    let largest = push(2);
    let call = link.call(&largest, payload(1, 16 << 20));
    let answered = tokio::time::timeout(std::time::Duration::from_secs(5), call).await;
    answered.expect("the largest frame waits for ever").unwrap();
}
