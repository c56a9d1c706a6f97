//! Answers that nobody takes, connections on which nothing is under way, and pulls that wait: what they hold is bounded, and others go on.

use crate::places::{begin, greeted, is_served, told, until};
use crate::support::{Doing, MemoryNet, echo, link, link_settings, payload, push, serve, serve_as};
use base::id::{ClusterId, NodeId};
use base::limit::{ANSWER_OWN, ANSWERS_EACH, UNWRITTEN_ALL_MAX, UNWRITTEN_MAX_PRESSED};
use base::net::Stream;
use net::frame::Header;
use net::message::{Ask, bag, chunk, cluster, file};
use net::{Asker, Call, Credentials, Link, Payload, Secret};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

/// As many questions of a kind as a connection may have unanswered.
fn questions(kind: u16) -> Vec<u8> {
    let question = |number| begin(Header { kind, number, ..Header::default() }, &[]);
    (1..=256).flat_map(question).collect()
}

/// A service whose directories have as many long names as fit, and which counts the bytes that it answered; pushes it echoes.
fn long_directories(answered: &Arc<AtomicUsize>) -> Arc<Doing<impl Fn(Call) + Send + Sync + use<>>> {
    let answered = answered.clone();
    Arc::new(Doing(move |call: Call| {
        if call.kind != file::List::KIND {
            return echo(call);
        }
        let length = call.respond.room() - 1000;
        answered.fetch_add(length, Ordering::Relaxed);
        let entry = file::Entry { name: "x".repeat(length), ..file::Entry::default() };
        call.respond
            .answer(file::ListAnswer { entries: vec![entry], more: true, ..Default::default() }, Payload::empty());
    }))
}

/// A listing, as a client asks for it.
async fn lists(good: &Link) -> file::ListAnswer {
    let asked = file::List::default();
    timeout(Duration::from_secs(1), good.call(&asked, Payload::empty())).await.expect("at once").unwrap().0
}

/// A client that asks 256 times for a large answer and reads none has a few made for it; forty of them together no more than there is memory
/// for. Others are served meanwhile, with shorter pages; when one waits for that memory, those that do not read end, and it has the whole.
#[tokio::test(start_paused = true)]
async fn answers_that_are_not_read_are_bounded() {
    let (net, answered) = (Arc::new(MemoryNet::default()), Arc::new(AtomicUsize::new(0)));
    let server = serve(&*net, "a", 64 << 20, long_directories(&answered)).await;
    let mut unread = vec![greeted(&net).await];
    unread[0].write_all(&questions(file::List::KIND)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let made = answered.load(Ordering::Relaxed);
    assert!(made > 1 << 20 && made <= ANSWERS_EACH + (1 << 20), "{made} bytes for one");
    for _ in 0..40 {
        let mut stream = greeted(&net).await;
        stream.write_all(&questions(file::List::KIND)).await.unwrap();
        unread.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let most = server.answers.names.total() as usize + 41 * (ANSWER_OWN + (256 << 10));
    let made = answered.load(Ordering::Relaxed);
    assert!(made <= most, "{made} bytes, {most} are the most");
    let good = link(net.clone(), "a").await;
    // The second waits beside the first, and needs nobody else's memory either.
    let (one, two) = tokio::join!(lists(&good), lists(&good));
    assert!([one, two].iter().all(|page| page.entries[0].name.len() <= ANSWER_OWN));
    is_served(&good).await;
    told(&server, "its answers were not taken").await;
    until("there is memory", || !server.answers.names.is_short()).await;
    is_served(&good).await;
    drop(unread);
    until("all is given back", || server.answers.names.available() == server.answers.names.total()).await;
    assert!(lists(&good).await.entries[0].name.len() > 1 << 19);
}

/// Two clients read nearly all that there is memory for and take none of it: a third one is served as soon as they have been ended for it, long
/// before they are for their silence.
#[tokio::test(start_paused = true)]
async fn reads_that_are_not_taken_end_for_others() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| {
        if call.kind != chunk::Read::KIND {
            return echo(call);
        }
        tokio::spawn(async move {
            let piece = call.respond.outgoing_budget().acquire(15 << 20).await;
            let answer = chunk::ReadAnswer::default();
            call.respond.answer(answer, payload(1, 1 << 20).with_piece(piece));
        });
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut unread = Vec::new();
    for _ in 0..2 {
        let mut stream = greeted(&net).await;
        let question = Header { kind: chunk::Read::KIND, number: 1, ..Header::default() };
        stream.write_all(&begin(question, &[])).await.unwrap();
        unread.push(stream);
    }
    let good = link(net.clone(), "a").await;
    let question = chunk::Read::default();
    let asked = timeout(Duration::from_secs(6), good.call(&question, Payload::empty())).await;
    assert_eq!(asked.expect("in time").unwrap().1.length(), 1 << 20);
    told(&server, "its answers were not taken").await;
}

/// Short answers that are not read are bounded over all connections, although each has a few of them; who reads is served meanwhile.
#[tokio::test(start_paused = true)]
async fn short_answers_that_are_not_read_are_bounded() {
    const ANSWER: usize = 16 << 10;
    let (net, answered) = (Arc::new(MemoryNet::default()), Arc::new(AtomicUsize::new(0)));
    let counted = answered.clone();
    let service = Doing(move |call: Call| {
        if call.kind != file::Stat::KIND {
            return echo(call);
        }
        counted.fetch_add(ANSWER, Ordering::Relaxed);
        call.respond.answer(file::PathOfAnswer { path: "x".repeat(ANSWER) }, Payload::empty());
    });
    let _server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let mut unread = Vec::new();
    for _ in 0..54 {
        let mut stream = greeted(&net).await;
        stream.write_all(&questions(file::Stat::KIND)).await.unwrap();
        unread.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    // What is on its way between the two was written.
    let most = UNWRITTEN_ALL_MAX + 54 * (UNWRITTEN_MAX_PRESSED + (256 << 10) + 2 * ANSWER);
    let made = answered.load(Ordering::Relaxed);
    assert!(made > 54 * (256 << 10) && made <= most, "{made} bytes, {most} are the most");
    is_served(&link(net.clone(), "a").await).await;
}

/// A question whose answer finds no memory waits beside its connection: what comes behind it is served, and it is when there is memory.
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_answers_memory_is_passed() {
    let net = Arc::new(MemoryNet::default());
    let service = Doing(|call: Call| match call.kind == file::GetXattrs::KIND {
        true => call.respond.answer(file::XattrsAnswer::default(), Payload::empty()),
        false => echo(call),
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let all = server.answers.names.try_acquire(server.answers.names.total()).unwrap();
    let good = Link::connect(net.clone(), "a", link_settings(1, 1)).await.unwrap();
    let question = file::GetXattrs::default();
    let mut waits = Box::pin(good.call(&question, Payload::empty()));
    tokio::select! {
        _ = &mut waits => panic!("there is no memory for it"),
        () = until("it waits", || server.answers.names.is_short()) => (),
    }
    is_served(&good).await;
    assert!(timeout(Duration::from_secs(60), &mut waits).await.is_err(), "there is no memory for it");
    drop(all);
    waits.await.unwrap();
}

/// Whoever is owed nothing is told who is there, and where a file's bytes are, while others hold all memory for answers: else nobody could
/// connect, or open a file, until those were cut.
#[tokio::test(start_paused = true)]
async fn who_is_owed_nothing_opens_files() {
    let net = Arc::new(MemoryNet::default());
    let most = Arc::new(AtomicUsize::new(0));
    let seen = most.clone();
    let service = Doing(move |call: Call| {
        seen.fetch_max(call.respond.room(), Ordering::Relaxed);
        match call.kind {
            cluster::View::KIND => call.respond.answer(cluster::ViewAnswer::default(), Payload::empty()),
            _ => call.respond.answer(file::LocateAnswer::default(), Payload::empty()),
        }
    });
    let server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let _all = server.answers.names.try_acquire(server.answers.names.total()).unwrap();
    let good = Link::connect(net.clone(), "a", link_settings(1, 1)).await.unwrap();
    let locate = file::Locate::default();
    for _ in 0..3 {
        let ask = cluster::View::default();
        let view = good.call(&ask, Payload::empty());
        timeout(Duration::from_secs(1), view).await.expect("it does not wait").unwrap();
        let places = good.call(&locate, Payload::empty());
        timeout(Duration::from_secs(1), places).await.expect("it does not wait").unwrap();
    }
    assert_eq!(most.load(Ordering::Relaxed), ANSWER_OWN, "what it may hold beside them");
}

/// Connections that have said who they are and nothing more.
async fn idle(net: &MemoryNet, count: usize) -> Vec<Box<dyn Stream>> {
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(greeted(net).await);
    }
    idle
}

/// Ten times as many connections as there are places say who they are and nothing more, while a client connects again and again: each time it
/// is served at once.
#[tokio::test(start_paused = true)]
async fn idle_connections_keep_nobody_out() {
    let net = Arc::new(MemoryNet::default());
    let server = serve(&*net, "a", 64 << 20, Arc::new(Doing(echo))).await;
    let mut strangers = Vec::new();
    for _ in 0..40 {
        strangers.extend(idle(&net, 16).await);
        let served = async { is_served(&link(net.clone(), "a").await).await };
        timeout(Duration::from_secs(1), served).await.expect("at once");
    }
    told(&server, "on this one nothing was under way for longest").await;
}

/// A client whose idle connection was given to somebody else, again and again, hears nothing of it: its next call is served. So is one that
/// waits for a chunk all the while.
#[tokio::test(start_paused = true)]
async fn who_gave_way_connects_again() {
    let net = Arc::new(MemoryNet::default());
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let pulls = waiting.clone();
    let service = Doing(move |call: Call| match call.kind == bag::Pull::KIND {
        true => pulls.lock().unwrap().push(call),
        false => echo(call),
    });
    let _server = serve(&*net, "a", 64 << 20, Arc::new(service)).await;
    let (good, consumer) = (link(net.clone(), "a").await, link(net.clone(), "a").await);
    is_served(&good).await;
    let question = bag::Pull::default();
    let mut pull = Box::pin(consumer.call(&question, Payload::empty()));
    for times in 1..=12 {
        let asked = async {
            until("it is asked again", || waiting.lock().unwrap().len() >= times).await;
            // The time is looked at each second, and who has nothing under way rests then.
            tokio::time::sleep(Duration::from_secs(2)).await;
            idle(&net, 80).await
        };
        tokio::select! { _ = &mut pull => panic!("nobody pushed"), _ = asked => () }
        is_served(&good).await;
    }
    waiting.lock().unwrap().drain(..).for_each(|call: Call| {
        call.respond.answer(bag::PullAnswer::default(), Payload::empty());
    });
    pull.await.unwrap();
}

/// A link of a node that has proved that it is one stays, however many come that have proved themselves and are idle.
#[tokio::test(start_paused = true)]
async fn links_of_nodes_stay() {
    let net = Arc::new(MemoryNet::default());
    let secret = Secret::from_hex(&"5a".repeat(32)).unwrap();
    let credentials = Credentials { cluster: Some(ClusterId(3)), secret: Some(secret) };
    let shared = credentials.clone();
    let server = serve_as(&*net, "a", 64 << 20, Arc::new(Doing(echo)), |settings| settings.credentials = shared).await;
    let settings = |asker| net::LinkSettings { asker, credentials: credentials.clone(), ..link_settings(1, 1) };
    let asker = Asker::Node { node: NodeId(9), incarnation: 1, term: 0 };
    let node = Link::connect(net.clone(), "a", settings(asker)).await.unwrap();
    is_served(&node).await;
    let mut clients = Vec::new();
    for _ in 0..80 {
        clients.push(Link::connect(net.clone(), "a", settings(Asker::Client)).await.unwrap());
    }
    let before = server.stats.connections.load(Ordering::Relaxed);
    is_served(&node).await;
    assert_eq!(server.stats.connections.load(Ordering::Relaxed), before, "it had to connect again");
    is_served(&clients[0]).await;
    assert!(server.stats.connections.load(Ordering::Relaxed) > before, "nobody had to give way");
}

/// Pulls that wait are bounded over all connections, and each has some whatever others have; one more waits beside its connection until one of
/// them is answered, and what comes behind it is served.
#[tokio::test(start_paused = true)]
async fn pulls_that_wait_are_bounded() {
    let net = Arc::new(MemoryNet::default());
    let waiting = Arc::new(Mutex::new(Vec::new()));
    let pulls = waiting.clone();
    let service = Doing(move |call: Call| match call.kind == bag::Pull::KIND {
        true => pulls.lock().unwrap().push(call),
        false => echo(call),
    });
    let _server = serve_as(&*net, "a", 64 << 20, Arc::new(service), |settings| settings.answers.pulls = 100).await;
    let mut strangers = Vec::new();
    for _ in 0..10 {
        let mut stream = greeted(&net).await;
        stream.write_all(&questions(bag::Pull::KIND)).await.unwrap();
        strangers.push(stream);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(waiting.lock().unwrap().len(), 100 + 9 * 4);
    let good = Link::connect(net.clone(), "a", link_settings(1, 1)).await.unwrap();
    let question = bag::Pull::default();
    let mut asked: Vec<_> = (0..6).map(|_| Box::pin(good.call(&question, Payload::empty()))).collect();
    let all = async { futures_of(&mut asked).await };
    tokio::select! {
        () = all => panic!("nobody pushed"),
        () = until("it has its part", || waiting.lock().unwrap().len() == 140) => (),
    }
    let (_, back) = good.call(&push(1), payload(1, 1000)).await.unwrap();
    assert_eq!(back.length(), 1000);
    let answering = async {
        loop {
            let calls: Vec<Call> = waiting.lock().unwrap().drain(..).collect();
            calls.into_iter().for_each(|call| call.respond.answer(bag::PullAnswer::default(), Payload::empty()));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! { () = futures_of(&mut asked) => (), () = answering => () }
}

/// Waits for all of them.
async fn futures_of<T>(asked: &mut [std::pin::Pin<Box<T>>])
where
    T: Future<Output = base::error::Result<(bag::PullAnswer, Payload)>>,
{
    let mut over = vec![false; asked.len()];
    std::future::poll_fn(|context| {
        for (call, over) in asked.iter_mut().zip(&mut over) {
            if !*over && let std::task::Poll::Ready(answer) = call.as_mut().poll(context) {
                answer.unwrap();
                *over = true;
            }
        }
        if over.iter().all(|over| *over) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
