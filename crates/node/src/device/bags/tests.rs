//! What a device keeps of its bags, asked directly and through its thread.

use super::{Bags, Waiter};
use crate::device::{Device, Item, Pushed, Start, Started, Then, spawn};
use crate::loan::Loans;
use crate::world::{OsWorld, World};
use base::buffer::Pool;
use base::checksum::BlockSums;
use base::disk::{Disk, DiskError, Done, FileKind, FileName, Op, Wake};
use base::id::{BagId, ChunkId, DeviceId, Generation, Owner, PushName, SessionId};
use base::limit::DEVICE_PULLS_WAITING_EACH;
use base::policy::{Class, Level};
use base::unit::Time;
use bytes::Bytes;
use chunk::{Effect, Engine, Request};
use net::message::{Ask, bag};
use net::{Call, Link, Payload, Service};
use os::disk::Backend;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;

const BAG: BagId = BagId(1);

/// A device in memory, on such a disk as `on` makes of one.
fn started(on: impl FnOnce(Box<dyn Disk>) -> Box<dyn Disk>) -> Started {
    let pool = Pool::new(64 << 20);
    let opened = OsWorld.disk(Path::new("/nowhere"), Backend::Memory, pool.clone()).expect("a disk");
    let start = Start {
        disk: on(opened.disk),
        settings: OsWorld.chunk_settings(256 << 20, pool),
        new_id: DeviceId(7),
        class: Class::Memory,
        place: "memory".to_string(),
        clock: Arc::new(os::clock::SystemClock::new()),
        outgoing: net::Budget::new(1 << 24),
        loans: Arc::new(Loans::of_this_runtime()),
    };
    spawn(&OsWorld, start).expect("it starts")
}

fn append(chunk: ChunkId) -> Request {
    let payload = Bytes::from(vec![9; 1000]);
    Request::Append {
        chunk,
        owner: Owner::Bag(BAG),
        generation: Generation(1),
        offset: 0,
        sums: BlockSums::of(&payload),
        payload,
        level: Level::Written,
        seal: true,
        small_parts: false,
        cell: 0,
    }
}

async fn push(device: &Device, chunk: ChunkId) {
    device.ask(append(chunk)).await.expect("pushed");
}

/// A disk on which syncs of data wait as long as they are held.
struct SlowDisk {
    disk: Box<dyn Disk>,
    is_held: Arc<AtomicBool>,
    held: Vec<(u64, Op)>,
}

impl Disk for SlowDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.disk.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        let is_sync = matches!(&op, Op::Sync { file } if file.kind == FileKind::Data);
        if is_sync && self.is_held.load(Ordering::Acquire) {
            self.held.push((token, op));
        } else {
            self.disk.submit(token, op);
        }
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        if !self.is_held.load(Ordering::Acquire) {
            self.held.drain(..).for_each(|(token, op)| self.disk.submit(token, op));
        }
        self.disk.poll(wait, done);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.disk.waker()
    }

    fn backend(&self) -> &'static str {
        self.disk.backend()
    }
}

/// Pushes to and pulls from a device.
struct Direct(Arc<Device>);

impl Service for Direct {
    fn handle(&self, mut call: Call) {
        if call.kind == bag::Push::KIND {
            let ask: bag::Push = call.ask().expect("a push");
            let push = Pushed { bag: BAG, chunk: ChunkId(ask.chunk.value()), floor: ask.floor };
            let (bytes, sums) = call.payload.into_verified().expect("whole");
            return self.0.send(Item::Push { push, bytes, sums, respond: call.respond });
        }
        let ask: bag::Pull = call.ask().expect("a pull");
        let deadline = Time::from_nanos(u64::MAX / 2);
        let (grant, check, respond) = (ask.grant, chunk::Check::Here, call.respond);
        let waiter = Waiter { consumer: call.session, grant, deadline, check, respond };
        self.0.send(Item::Pull { bag: BAG, waiter });
    }
}

/// A push that was accepted before the seal is on its way to a slow disk while the seal is durable already: who waits for a chunk is
/// given it, and is not told that the bag has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_waits_for_pushes() {
    let is_held = Arc::new(AtomicBool::new(false));
    let mut wake = None;
    let started = started(|disk| {
        wake = Some(disk.waker());
        Box::new(SlowDisk { disk, is_held: is_held.clone(), held: Vec::new() })
    });
    let waker = wake.expect("it has a disk");
    let device = started.device;
    let link = Link::local(Arc::new(Direct(device.clone())), SessionId(9 << 64));
    let chunk = PushName { session: 9, stream: 0, number: 1 }.chunk();
    is_held.store(true, Ordering::Release);
    let push = bag::Push { bag: 1, device: 7.into(), chunk: chunk.0.into(), floor: 1 };
    let payload = || Payload::new(Bytes::from(vec![9; 100_000]));
    let mut push = Box::pin(link.call(&push, payload()));
    tokio::select! {
        biased;
        _ = &mut push => panic!("its data is not synced"),
        known = device.look(move |engine| engine.holds(chunk)) => assert_eq!(known, Ok(true)),
    }
    device.seal_bag(BAG, 1).await.expect("sealed");
    let pull = bag::Pull { bag: 1, device: 7.into(), grant: 5, ..bag::Pull::default() };
    let mut pull = Box::pin(link.call(&pull, Payload::empty()));
    tokio::select! {
        biased;
        answer = &mut pull => panic!("nothing can be said yet: {:?}", answer.map(|(answer, _)| answer)),
        looked = device.look(|_| ()) => assert_eq!(looked, Ok(())),
    }
    // Had the end been told, it would be on its way by now.
    assert_eq!(device.look(|_| ()).await, Ok(()));
    is_held.store(false, Ordering::Release);
    waker.wake();
    push.await.expect("it was accepted");
    let (answer, bytes) = pull.await.expect("answered");
    assert_eq!((answer.pulled, bytes.length()), (bag::Pulled::Chunk as i32, 100_000));
    drop(link);
    device.send(Item::Stop);
    assert!(started.ended.await.is_err(), "its end is told by nobody being left to tell");
}

/// A session that has more streams to a device than it may (one for each device that is emptied there) is refused for good what it pushes
/// in another, which is no error: it pushes that elsewhere. What the device has already it is not refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_are_bounded() {
    let started = started(|disk| disk);
    let device = started.device;
    let link = Link::local(Arc::new(Direct(device.clone())), SessionId(9 << 64));
    let refused = async |stream: u16| {
        let chunk = PushName { session: 9, stream, number: 1 }.chunk();
        let push = bag::Push { bag: 1, device: 7.into(), chunk: chunk.0.into(), floor: 1 };
        let (answer, _) = link.call(&push, Payload::new(Bytes::from(vec![9; 1000]))).await.expect("no error");
        answer.refused.is_some()
    };
    // As before a restart: it is there, and its stream is not known.
    push(&device, PushName { session: 9, stream: 1000, number: 1 }.chunk()).await;
    for stream in 0..base::limit::PUSH_STREAMS_MAX as u16 {
        assert!(!refused(stream).await, "stream {stream}");
    }
    assert!(refused(500).await && refused(500).await, "one too many");
    assert!(!refused(1000).await, "it is there");
    drop(link);
    device.send(Item::Stop);
    assert!(started.ended.await.is_err(), "its end is told by nobody being left to tell");
}

/// What is counted of a bag is of one moment, while chunks are acknowledged: who leaves it takes the counts of no chunks along.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_are_of_one_moment() {
    const CHUNKS: u128 = 2000;
    let started = started(|disk| disk);
    let device = started.device;
    for chunk in 1..=CHUNKS {
        push(&device, ChunkId(chunk)).await;
    }
    let handled = device.clone();
    let handling = tokio::spawn(async move {
        for chunk in 1..=CHUNKS {
            let chunks = vec![(ChunkId(chunk), 5)];
            handled.ask(Request::Acknowledge { chunks, pass: 0, retain: false, by: None }).await.expect("acknowledged");
        }
    });
    loop {
        let counts = device.bag_counts(BAG).await.expect("counted");
        assert_eq!(counts.chunks, counts.stat.pushed - counts.stat.acknowledged, "{counts:?}");
        if counts.chunks == 0 {
            break;
        }
    }
    handling.await.expect("no panic");
    device.send(Item::Stop);
    assert!(started.ended.await.is_err(), "its end is told by nobody being left to tell");
}

/// A table of bags beside its engine, asked directly, at such a time as it is told.
struct Table(Mutex<Parts>);

struct Parts {
    bags: Bags,
    engine: Engine<Then>,
    disk: Box<dyn Disk>,
    now: Time,
}

impl Table {
    fn new() -> Arc<Table> {
        let pool = Pool::new(64 << 20);
        let opened = OsWorld.disk(Path::new("/nowhere"), Backend::Memory, pool.clone()).expect("a disk");
        let (settings, mut disk) = (OsWorld.chunk_settings(256 << 20, pool), opened.disk);
        let (engine, _) = Engine::open(disk.as_mut(), settings, DeviceId(7), Time::ZERO).expect("it opens");
        Arc::new(Table(Mutex::new(Parts { bags: Bags::default(), engine, disk, now: Time::ZERO })))
    }

    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.0.lock().expect("nobody panicked")
    }

    fn link(self: &Arc<Table>, session: u128) -> Link {
        Link::local(self.clone(), SessionId(session))
    }

    /// How many bags have an entry, and how many of them are due.
    fn entries(&self) -> (usize, usize) {
        let parts = self.parts();
        (parts.bags.bags.len(), parts.bags.due.len())
    }
}

impl Parts {
    /// Has the engine do something, to the end.
    fn done(&mut self, request: Request) {
        let (tell, mut told) = oneshot::channel();
        self.engine.submit(self.now, request, Then::Tell(tell));
        let mut done = Vec::new();
        loop {
            let mut effects = Vec::new();
            self.engine.take_effects(&mut effects);
            for effect in effects {
                match effect {
                    Effect::Disk { token, op } => self.disk.submit(token, op),
                    Effect::Reply { tag: Then::Tell(tell), result } => tell.send(result).expect("somebody waits"),
                    Effect::Reply { .. } => unreachable!("only one asks"),
                }
            }
            if let Ok(result) = told.try_recv() {
                result.expect("done");
                return;
            }
            self.disk.poll(Some(Duration::from_millis(1)), &mut done);
            done.drain(..).for_each(|done| self.engine.completed(self.now, done));
        }
    }
}

impl Service for Table {
    fn handle(&self, mut call: Call) {
        let ask: bag::Pull = call.ask().expect("a pull");
        let Parts { bags, engine, now, .. } = &mut *self.parts();
        let (bag, consumer, deadline) =
            (BagId(ask.bag), call.session, now.after(Duration::from_millis(ask.wait_ms.into())));
        assert_eq!(bags.pull(*now, bag, (consumer, ask.grant), engine), None, "nothing is there");
        let waiter = Waiter { consumer, grant: ask.grant, deadline, check: chunk::Check::Here, respond: call.respond };
        bags.wait(*now, bag, waiter, false, engine);
    }
}

fn pull_of(bag: u64, grant: u64, wait_ms: u32) -> bag::Pull {
    bag::Pull { bag, device: 7.into(), grant, wait_ms, ..bag::Pull::default() }
}

/// Whoever names bags of which nothing is on a device, in pulls, renewals, acknowledgements or questions for their counts, leaves nothing
/// behind, however many they are.
#[tokio::test]
async fn bags_that_are_not_here_cost_nothing() {
    let table = Table::new();
    let link = table.link(1);
    for bag in 0..100_000 {
        let (answer, _) = link.call(&pull_of(bag, 1, 0), Payload::empty()).await.expect("answered");
        assert_eq!(answer.pulled, bag::Pulled::Nothing as i32);
        let Parts { bags, engine, now, .. } = &mut *table.parts();
        let (bag, grants) = (BagId(bag), vec![(ChunkId(5), 1)]);
        assert_eq!(bags.acknowledge(*now, bag, &grants, SessionId(1), engine), [chunk::bag::Verdict::Unknown]);
        bags.renew(*now, bag, grants, SessionId(1), engine);
        assert_eq!(bags.counts(bag, engine), super::BagCounts::default());
    }
    assert_eq!(table.entries(), (0, 0));
}

/// A bag is kept in memory while a push is on its way, a consumer waits, or a chunk is there, and goes with the last of them.
#[tokio::test]
async fn bags_go_with_what_is_there_of_them() {
    let table = Table::new();
    {
        let Parts { bags, engine, .. } = &mut *table.parts();
        bags.push_begins(BAG, engine);
        assert_eq!(bags.bags.len(), 1, "a push is on its way");
        bags.push_ended(BAG, None, engine);
    }
    assert_eq!(table.entries(), (0, 0), "it failed");
    let link = table.link(1);
    let ask = pull_of(1, 1, 1000);
    let mut waiting = Box::pin(link.call(&ask, Payload::empty()));
    assert!(std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending())).await);
    assert_eq!(table.entries(), (1, 1), "somebody waits");
    {
        let Parts { bags, engine, .. } = &mut *table.parts();
        assert_eq!(bags.expire(Time::ZERO.after(Duration::from_millis(999)), engine), []);
        assert_eq!(bags.expire(Time::ZERO.after(Duration::from_millis(1000)), engine), [BAG]);
    }
    assert_eq!(waiting.await.expect("answered").0.pulled, bag::Pulled::Nothing as i32);
    assert_eq!(table.entries(), (0, 0), "its time is over");
    let parts = &mut *table.parts();
    let chunk = ChunkId(9);
    parts.bags.push_begins(BAG, &parts.engine);
    parts.done(append(chunk));
    parts.bags.push_ended(BAG, Some((chunk, 1000)), &parts.engine);
    let who = (SessionId(1), 5);
    assert_eq!(parts.bags.pull(parts.now, BAG, who, &parts.engine), Some((chunk, 1000)));
    assert_eq!(parts.bags.acknowledge(parts.now, BAG, &[(chunk, 5)], who.0, &parts.engine).len(), 1);
    parts.done(Request::Acknowledge { chunks: vec![(chunk, 5)], pass: 0, retain: false, by: None });
    assert_eq!(parts.bags.bags.len(), 1, "its acknowledgement is not told");
    parts.bags.acknowledged(BAG, vec![chunk], &parts.engine);
    assert!(parts.bags.bags.is_empty() && parts.bags.due.is_empty(), "its last chunk is handled");
    // After a restart the table is made of the chunks that are there.
    parts.done(append(ChunkId(10)));
    parts.bags = Bags::default();
    assert_eq!(parts.bags.counts(BAG, &parts.engine).waiting, 1);
}

/// So many pulls of one session wait on a device, and one more is answered at once, while those of others wait. Only those whose time is
/// over are answered then; the others are served in the order in which they came.
#[tokio::test]
async fn waiting_pulls_are_bounded() {
    let table = Table::new();
    let (one, other) = (table.link(1), table.link(2));
    let mut waiting = Vec::new();
    for number in 0..DEVICE_PULLS_WAITING_EACH as u64 {
        // The first waits longest.
        let ask = pull_of(number % 3, number, 2000 - number as u32);
        let one = &one;
        let mut call = Box::pin(async move { one.call(&ask, Payload::empty()).await.expect("answered").0 });
        assert!(std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await);
        waiting.push(call);
    }
    let (answer, _) = one.call(&pull_of(1, 999, 2000), Payload::empty()).await.expect("answered");
    assert_eq!(answer.pulled, bag::Pulled::Nothing as i32, "one too many");
    let ask = pull_of(1, 999, 3000);
    let mut others = Box::pin(other.call(&ask, Payload::empty()));
    assert!(std::future::poll_fn(|context| Poll::Ready(others.as_mut().poll(context).is_pending())).await);
    let over = {
        let Parts { bags, engine, .. } = &mut *table.parts();
        let early = Time::ZERO.after(Duration::from_millis(1));
        assert_eq!((bags.expire(early, engine), bags.waiters), (Vec::new(), DEVICE_PULLS_WAITING_EACH + 1));
        let now = Time::ZERO.after(Duration::from_millis(1990));
        bags.expire(now, engine);
        bags.push_begins(BAG, engine);
        bags.push_ended(BAG, Some((ChunkId(4), 1000)), engine);
        let (chunk, _, waiter) = bags.next_served(now, BAG, engine).expect("one waits");
        assert_eq!((chunk, waiter.grant), (ChunkId(4), 1), "who came first");
        bags.waiters
    };
    // Those that end at 1,990 ms or before are over: all but the first ten, of which one was given a chunk.
    assert_eq!(over, 10 - 1 + 1);
    for call in waiting.drain(10..) {
        assert_eq!(call.await.pulled, bag::Pulled::Nothing as i32);
    }
}

/// Who holds a chunk or waits for one is named, so that it is asked whether its session is over; when it is, its wait is over, too, and what it
/// held is for the others who wait.
#[tokio::test]
async fn what_a_session_has_ends_with_it() {
    let (table, [gone, other]) = (Table::new(), [7 << 64, 8 << 64]);
    let links = [table.link(gone), table.link(other)];
    let chunk = (ChunkId(4), 1000);
    {
        let Parts { bags, engine, .. } = &mut *table.parts();
        bags.push_begins(BAG, engine);
        bags.push_ended(BAG, Some(chunk), engine);
        assert_eq!(bags.pull(Time::ZERO, BAG, (SessionId(gone), 1), engine), Some(chunk));
    }
    let asks = [pull_of(1, 2, 2000), pull_of(1, 3, 2000)];
    let mut waiting: Vec<_> =
        links.iter().zip(&asks).map(|(link, ask)| Box::pin(link.call(ask, Payload::empty()))).collect();
    for call in &mut waiting {
        assert!(std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_pending())).await);
    }
    {
        let Parts { bags, engine, now, .. } = &mut *table.parts();
        assert_eq!(
            (bags.holders(None, 9), bags.holders(None, 1), bags.holders(Some(7), 9)),
            (vec![7, 8], vec![7], vec![8])
        );
        assert_eq!(bags.sessions_over(&[9], engine), []);
        assert_eq!(bags.sessions_over(&[7], engine), [BAG]);
        let (given, _, waiter) = bags.next_served(*now, BAG, engine).expect("one waits");
        assert_eq!((given, waiter.consumer, bags.waiters), (chunk.0, SessionId(other), 0));
    }
    assert_eq!(waiting.remove(0).await.expect("answered").0.pulled, bag::Pulled::Nothing as i32);
}
