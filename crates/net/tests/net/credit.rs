//! Memory: large payloads travel only against credit, whoever sends them, and everybody gets a turn.

use crate::places::until;
use crate::support::{Doing, MemoryNet, link_settings, payload, push, serve, serve_as};
use base::id::NodeId;
use net::message::keeper::Step;
use net::message::{Ask, Done};
use net::{Asker, Budget, Call, Link, LinkSettings, Payload};
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

/// What keepers of the metadata tell each other needs nothing of what clients hold: an append holds its payload until they have agreed on its
/// session, and its memory until then. What else their nodes send waits as that of all others does, on the same connection, too, and so
/// does what a client calls a message of keepers.
#[tokio::test(start_paused = true)]
async fn keepers_do_not_wait_for_clients() {
    const BUDGET: u64 = 16 << 20;
    let net = Arc::new(MemoryNet::default());
    let held: Arc<Mutex<Vec<Call>>> = Arc::default();
    let holding = held.clone();
    let service = Doing(move |call: Call| match call.kind {
        Step::KIND => call.respond.answer(Done {}, Payload::empty()),
        _ => holding.lock().unwrap().push(call),
    });
    let (keepers, urgent) = (Budget::new(32 << 20), Budget::new(16 << 20));
    let (of_keepers, of_nodes) = (keepers.clone(), urgent.clone());
    let server = serve_as(&*net, "a", BUDGET, Arc::new(service), |settings| {
        (settings.keepers, settings.urgent) = (of_keepers, of_nodes);
    });
    let server = server.await;
    let link = |session, asker| Link::connect(net.clone(), "a", LinkSettings { asker, ..link_settings(session, 1) });
    let client = link(1, Asker::Client).await.unwrap();
    let node = link(2, Asker::Node { node: NodeId(7), incarnation: 1, term: 0 }).await.unwrap();
    let step = Step { store: 1.into(), from: 1, to: 2, draw: 3.into(), parts: vec![1 << 20] };
    let pushed = tokio::spawn({
        let client = client.clone();
        async move { client.call(&push(1), payload(1, BUDGET as usize)).await.map(|_| ()) }
    });
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    until("all of it is held", || server.budget.available() < 1 << 16 && held.lock().unwrap().len() == 1).await;
    let all_of_nodes = urgent.acquire(urgent.total()).await;
    for seed in 0..40 {
        node.call(&step, payload(seed, 1 << 20)).await.unwrap();
    }
    assert_eq!(urgent.available(), 0, "nor of what other calls of nodes hold");
    drop(all_of_nodes);
    assert!(keepers.available() < 32 << 20, "no credit was kept at hand for the next one");
    // A client is no keeper.
    let stranger = tokio::spawn({
        let (link, step) = (link(3, Asker::Client).await.unwrap(), step.clone());
        async move { link.call(&step, payload(1, 1 << 20)).await.map(|_| ()) }
    });
    let other = tokio::spawn({
        let node = node.clone();
        async move { node.call(&push(2), payload(1, 1 << 20)).await.map(|_| ()) }
    });
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(!stranger.is_finished() && held.lock().unwrap().len() == 1, "{:?}", server.troubles.lock().unwrap());
    while !(pushed.is_finished() && other.is_finished() && stranger.is_finished()) {
        for Call { payload, respond, .. } in std::mem::take(&mut *held.lock().unwrap()) {
            drop(payload);
            respond.answer(net::message::bag::PushAnswer::default(), Payload::empty());
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for ended in [pushed, other, stranger] {
        ended.await.unwrap().unwrap();
    }
    node.call(&step, payload(1, 1 << 20)).await.unwrap();
    drop((client, node));
    until("all of it is back", || {
        server.budget.available() == server.budget.total() && keepers.available() == 32 << 20
    })
    .await;
    assert!(server.troubles.lock().unwrap().is_empty(), "{:?}", server.troubles.lock().unwrap());
}
