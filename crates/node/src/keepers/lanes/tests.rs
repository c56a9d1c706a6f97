//! What lanes hold, and how they find a keeper that was away.

use super::super::seating::Seating;
use super::super::tests::wires::Wires;
use super::super::tests::{Serves, clock, copy, links, log, seating, serve, until};
use super::{AT_ONCE, Kind, Lanes, PAUSE, Queue};
use crate::metadata::Carrier;
use base::net::{Listener, Net};
use bytes::Bytes;
use meta::{KeeperId, KeeperMessage};
use net::message::Done;
use net::message::keeper::Step;
use net::{Call, Payload, Service};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn entries(bytes: usize) -> KeeperMessage {
    log(1, (1, 2), 1, &[Bytes::from(vec![7; bytes])])
}

fn beat(term: u64) -> KeeperMessage {
    log(3, (1, 2), term, &[])
}

/// What a leader tells of its log keeps its order, with entries and without; pages wait for nothing but pages; all else is short.
#[test]
fn kinds() {
    for kind in 2..=9 {
        assert_eq!(Kind::of(&log(kind, (1, 2), 1, &[])), Kind::Beats, "{kind}");
    }
    assert_eq!(Kind::of(&log(1, (1, 2), 1, &[])), Kind::Entries);
    assert_eq!(Kind::of(&entries(100)), Kind::Entries);
    assert_eq!(Kind::of(&copy(2, 1, b"value")), Kind::Pages);
    assert_eq!([Kind::of(&copy(1, 1, b"")), Kind::of(&copy(3, 1, b""))], [Kind::Beats; 2]);
    assert_eq!(Kind::ALL.map(|kind| kind as usize), [0, 1, 2]);
}

/// Of beats the oldest goes where there is no room, of all else the newest; one that is too long goes alone.
#[test]
fn bounds() {
    let taken = |queue: &Queue| {
        let mut taken = Vec::new();
        while let [first, ..] = &queue.take()[..] {
            taken.push(first.clone());
        }
        taken
    };
    let beats = Queue::new(Kind::Beats.bounds());
    (1..=100).for_each(|term| beats.put(beat(term)));
    assert_eq!(beats.take(), (37..=100).map(beat).collect::<Vec<_>>());
    assert_eq!(beats.lock().bytes, 0);
    assert!(beats.take().is_empty());
    let queue = Queue::new(Kind::Entries.bounds());
    (1..=100).for_each(|term| queue.put(log(1, (1, 2), term, &[])));
    assert_eq!(queue.take(), (1..=64).map(|term| log(1, (1, 2), term, &[])).collect::<Vec<_>>());
    (0..20).for_each(|_| queue.put(entries(1 << 20)));
    assert_eq!(taken(&queue).len(), 7, "8 MiB with what each has beside its bytes");
    queue.put(entries(AT_ONCE / 2));
    queue.put(entries(AT_ONCE / 4));
    queue.put(entries(AT_ONCE));
    queue.put(entries(4 * AT_ONCE));
    queue.put(entries(1));
    let counts: Vec<usize> = (0..5).map(|_| queue.take().len()).collect();
    assert_eq!(counts, [2, 1, 1, 1, 0]);
    let pages = Queue::new(Kind::Pages.bounds());
    (0..9).for_each(|value| pages.put(copy(2, 1, &[value; 1000])));
    assert_eq!(pages.take(), (0..4).map(|value| copy(2, 1, &[value; 1000])).collect::<Vec<_>>());
    pages.put(copy(2, 1, b"value"));
    pages.clear(true);
    pages.put(copy(2, 1, b"value"));
    assert!(pages.take().is_empty(), "it is closed");
}

/// Counts what it hears, of each kind.
#[derive(Default)]
struct Hears {
    heard: [AtomicUsize; 3],
    /// Entries are not answered.
    unanswered: Mutex<Option<Vec<Call>>>,
}

impl Hears {
    fn of(&self, kind: Kind) -> usize {
        self.heard[kind as usize].load(Ordering::SeqCst)
    }
}

impl Service for Hears {
    fn handle(&self, mut call: Call) {
        let step = call.ask::<Step>().expect("a step");
        let (mut rest, _) = std::mem::take(&mut call.payload).into_verified().expect("whole");
        let mut last = Kind::Beats;
        for length in step.parts {
            let message = KeeperMessage::read(&rest.split_to(length as usize)).expect("a message");
            last = Kind::of(&message);
            self.heard[last as usize].fetch_add(1, Ordering::SeqCst);
        }
        match &mut *self.unanswered.lock().expect("whole") {
            Some(calls) if last == Kind::Entries => calls.push(call),
            _ => call.respond.answer(Done {}, Payload::empty()),
        }
    }
}

async fn listen(address: &str) -> Box<dyn Listener> {
    os::net::TcpNet.listen(address).await.expect("a port")
}

/// Keeper 1's lanes to keeper 2, which is to listen there, and what says a beat each 20 ms.
struct Beats {
    lanes: Arc<Lanes>,
    wires: Arc<Wires>,
    hears: Arc<Hears>,
    beating: tokio::task::JoinHandle<()>,
    address: String,
}

fn two(address: &str) -> Seating {
    seating(&["nowhere".to_string(), address.to_string()])
}

impl Beats {
    fn begin(address: &str) -> Beats {
        let wires = Wires::new();
        let lanes = Lanes::new(wires.clone(), links(1), &two(address), KeeperId(1));
        let beating = tokio::spawn({
            let lanes = lanes.clone();
            async move {
                loop {
                    lanes.send(KeeperId(2), beat(1));
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        });
        Beats { lanes, wires, hears: Arc::default(), beating, address: address.to_string() }
    }

    fn serve(&self, listener: Box<dyn Listener>) -> Serves {
        serve(listener, 2, self.hears.clone())
    }

    /// How many milliseconds pass until one of the kind is heard.
    async fn next(&self, kind: Kind) -> u64 {
        let (clock, before) = (clock(), self.hears.of(kind));
        let begun = clock.now();
        until("one is heard", async || self.hears.of(kind) > before).await;
        clock.now().since(begun).as_millis() as u64
    }

    async fn lasts(&self, time: Duration) {
        let (clock, tried) = (clock(), self.wires.tried());
        let begun = clock.now();
        until("the time", async || clock.now().since(begun) >= time).await;
        let (tried, most) = (self.wires.tried() - tried, (2 * time.as_millis() / PAUSE.as_millis()) as usize + 2);
        assert!((1..=most).contains(&tried), "{tried} connections were tried in {} ms", time.as_millis());
        let waits = self.lanes.others[0].queues[0].lock().messages.len();
        assert!(waits <= 64, "{waits} wait");
    }

    fn end(self) {
        self.beating.abort();
    }
}

/// A keeper that was away hears the next beats within about a second, however it was: nobody listened there, somebody who said nothing, or nothing
/// passed. Each takes connections as seldom as the pause says.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_comes_back() {
    let listener = listen("127.0.0.1:0").await;
    let beats = Beats::begin(&listener.address());
    drop(listener);
    beats.lasts(Duration::from_secs(2)).await;
    let serves = beats.serve(listen(&beats.address).await);
    let refused = beats.next(Kind::Beats).await;
    // Whoever has the port says nothing.
    drop(serves);
    let mut silent = listen(&beats.address).await;
    let taken = Arc::new(Mutex::new(Vec::new()));
    let taking = tokio::spawn({
        let taken = taken.clone();
        async move {
            while let Ok(stream) = silent.accept().await {
                taken.lock().expect("whole").push(stream);
            }
        }
    });
    beats.lasts(Duration::from_secs(3)).await;
    assert!(!taken.lock().expect("whole").is_empty());
    taking.abort();
    let _ended = taking.await;
    let _serves = beats.serve(listen(&beats.address).await);
    let silent = beats.next(Kind::Beats).await;
    // It was heard, and then nothing passes, on old connections for ever.
    beats.wires.cut();
    beats.lasts(Duration::from_secs(3)).await;
    beats.wires.mend();
    let cut = beats.next(Kind::Beats).await;
    eprintln!("back after {refused}, {silent}, {cut} ms");
    assert!(refused < 1000 && silent < 2000 && cut < 2000, "{refused}, {silent}, {cut} ms");
    beats.end();
}

/// After a cut entries and pages do not wait for their old connections, which would be tried again ever more seldom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_come_back_with_beats() {
    let listener = listen("127.0.0.1:0").await;
    let beats = Beats::begin(&listener.address());
    let _serves = beats.serve(listener);
    let entering = tokio::spawn({
        let lanes = beats.lanes.clone();
        async move {
            loop {
                lanes.send(KeeperId(2), entries(100_000));
                lanes.send(KeeperId(2), copy(2, 1, &[7; 1000]));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    });
    beats.next(Kind::Entries).await;
    beats.next(Kind::Pages).await;
    beats.wires.cut();
    beats.lasts(Duration::from_secs(2)).await;
    beats.wires.mend();
    let (entries, pages) = tokio::join!(beats.next(Kind::Entries), beats.next(Kind::Pages));
    eprintln!("back after {entries}, {pages} ms");
    assert!(entries < 3000 && pages < 3000, "{entries}, {pages} ms");
    entering.abort();
    beats.end();
}

/// So many are sent without an answer and no more, and beats are not kept back by them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unanswered() {
    let listener = listen("127.0.0.1:0").await;
    let beats = Beats::begin(&listener.address());
    *beats.hears.unanswered.lock().expect("whole") = Some(Vec::new());
    let _serves = beats.serve(listener);
    let waits = || beats.lanes.others[0].queues[1].lock().messages.len();
    for sent in 1..=4 {
        beats.lanes.send(KeeperId(2), entries(AT_ONCE));
        until("it came", async || beats.hears.of(Kind::Entries) == sent).await;
    }
    (0..10).for_each(|_| beats.lanes.send(KeeperId(2), entries(AT_ONCE)));
    for _ in 0..20 {
        beats.next(Kind::Beats).await;
    }
    assert_eq!((beats.hears.of(Kind::Entries), waits()), (4, 7));
    // All are answered: what waited comes.
    for call in beats.hears.unanswered.lock().expect("whole").take().into_iter().flatten() {
        call.respond.answer(Done {}, Payload::empty());
    }
    until("all came", async || beats.hears.of(Kind::Entries) == 11).await;
    beats.end();
}

/// A keeper is found at its new address; another node there is told nothing; and when lanes are closed, or gone, nothing is connected any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moved_and_closed() {
    let (old, new) = (listen("127.0.0.1:0").await, listen("127.0.0.1:0").await);
    let beats = Beats::begin(&old.address());
    let stranger: Arc<Hears> = Arc::default();
    let strange = serve(old, 3, stranger.clone());
    beats.lasts(Duration::from_secs(1)).await;
    assert_eq!(stranger.of(Kind::Beats), 0);
    let address = new.address();
    let serves = beats.serve(new);
    beats.lanes.moved(base::id::NodeId(13), "nowhere");
    beats.lanes.moved(base::id::NodeId(12), &address);
    beats.next(Kind::Beats).await;
    until("it is left", async || strange.stats.connections_open.load(Ordering::Relaxed) == 0).await;
    beats.lanes.close();
    until("it is closed", async || serves.stats.connections_open.load(Ordering::Relaxed) == 0).await;
    beats.lanes.moved(base::id::NodeId(12), &beats.address);
    beats.lanes.send(KeeperId(2), beat(1));
    until("nothing waits", async || beats.lanes.others[0].queues.iter().all(|queue| queue.lock().closed)).await;
    assert!(beats.lanes.others[0].queues[0].take().is_empty());
    let again = Lanes::new(Wires::new(), links(1), &two(&address), KeeperId(1));
    again.send(KeeperId(2), beat(1));
    beats.next(Kind::Beats).await;
    drop(again);
    until("it is closed", async || serves.stats.connections_open.load(Ordering::Relaxed) == 0).await;
    beats.end();
}
