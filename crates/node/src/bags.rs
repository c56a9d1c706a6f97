//! The volatile side of the bags on one device: their queues, and the consumers that wait for a chunk to come.

use crate::device::Then;
use base::id::{BagId, ChunkId, Owner, SessionId};
use base::planted::Planted;
use base::unit::Time;
use chunk::bag::BagQueue;
use chunk::{BagStat, Check, Engine};
use net::message::bag::{PullAnswer, Pulled};
use net::{Payload, Responder};
use std::collections::{BTreeMap, VecDeque};

/// A consumer that wants a chunk.
pub struct Waiter {
    /// Whose session it is.
    pub consumer: SessionId,
    /// The grant's name, drawn by the consumer.
    pub grant: u64,
    /// When to give up.
    pub deadline: Time,
    /// Who compares the chunk's bytes with their checksums.
    pub check: Check,
    /// Where the answer goes.
    pub respond: Responder,
}

/// What a device has counted of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BagCounts {
    /// What is durable or on its way there; of acknowledgements what is durable.
    pub stat: BagStat,
    /// Chunks that wait to be pulled.
    pub waiting: u64,
    /// Chunks granted and not yet acknowledged.
    pub granted: u64,
    /// Chunks that are there, or may be again: a device that failed has them after its next start although they were acknowledged.
    pub chunks: u64,
}

/// Every bag that was asked for since the start.
#[derive(Default)]
pub struct Bags {
    bags: BTreeMap<BagId, Bag>,
}

struct Bag {
    queue: BagQueue,
    /// Pushes that the engine has and has not answered: what may become chunks yet.
    pushes: usize,
    /// Consumers that wait, oldest first. Bounded by the calls that connections may have unanswered.
    waiters: VecDeque<Waiter>,
}

impl Bags {
    /// The queue of a bag. The first time it is made from the chunks that the device holds.
    pub fn queue(&mut self, bag: BagId, engine: &Engine<Then>) -> &mut BagQueue {
        &mut self.bag(bag, engine).queue
    }

    /// What is counted of a bag.
    pub fn counts(&mut self, bag: BagId, engine: &Engine<Then>) -> BagCounts {
        let lengths = self.queue(bag, engine).lengths();
        let (unsure, unsure_bytes) = engine.acknowledged_for_now(bag);
        let mut stat = engine.bag_stat(bag);
        stat.acknowledged = stat.acknowledged.saturating_sub(unsure);
        stat.acknowledged_bytes = stat.acknowledged_bytes.saturating_sub(unsure_bytes);
        BagCounts {
            stat,
            waiting: lengths.waiting as u64,
            granted: lengths.granted as u64,
            chunks: engine.chunks_of(Owner::Bag(bag)).count() as u64 + unsure,
        }
    }

    fn bag(&mut self, bag: BagId, engine: &Engine<Then>) -> &mut Bag {
        self.bags.entry(bag).or_insert_with(|| Bag {
            queue: queue_of(bag, engine),
            pushes: 0,
            waiters: VecDeque::new(),
        })
    }

    /// The engine gets a push to this bag.
    pub fn push_begins(&mut self, bag: BagId, engine: &Engine<Then>) {
        self.bag(bag, engine).pushes += 1;
    }

    /// The engine answered it, one way or the other.
    pub fn push_ended(&mut self, bag: BagId) {
        if let Some(entry) = self.bags.get_mut(&bag) {
            entry.pushes = entry.pushes.saturating_sub(1);
        }
    }

    /// A new pass has begun: every chunk that is there waits again, and no grant counts any more.
    pub fn rewound(&mut self, bag: BagId, engine: &Engine<Then>) {
        if let Some(entry) = self.bags.get_mut(&bag) {
            entry.queue = queue_of(bag, engine);
        }
    }

    /// Lets a consumer wait for a chunk to come, or answers at once if none will or it does not want to. `ended`: none will,
    /// although the bag is not sealed.
    pub fn wait(&mut self, now: Time, bag: BagId, waiter: Waiter, ended: bool, engine: &Engine<Then>) {
        let stat = engine.bag_stat(bag);
        let ended = ended || stat.sealed_epoch.is_some();
        let entry = self.bag(bag, engine);
        if ended && entry.is_empty(engine) {
            return answer_empty(waiter, Pulled::Ended, &entry.queue, stat.pass);
        }
        if waiter.deadline <= now {
            return answer_empty(waiter, Pulled::Nothing, &entry.queue, stat.pass);
        }
        entry.waiters.push_back(waiter);
    }

    /// The next chunk for a consumer that waits. When the bag has ended, all who wait are told so.
    pub fn next_served(&mut self, now: Time, bag: BagId, engine: &Engine<Then>) -> Option<(ChunkId, u64, Waiter)> {
        let stat = engine.bag_stat(bag);
        let entry = self.bags.get_mut(&bag)?;
        if stat.sealed_epoch.is_some() && entry.is_empty(engine) {
            for waiter in entry.waiters.drain(..) {
                answer_empty(waiter, Pulled::Ended, &entry.queue, stat.pass);
            }
            return None;
        }
        let waiter = entry.waiters.front()?;
        let (chunk, length) = entry.queue.pull(now, waiter.consumer, waiter.grant)?;
        entry.waiters.pop_front().map(|waiter| (chunk, length, waiter))
    }

    /// Reads the bag anew from the device at its next use; those who wait stay.
    pub fn forget_state(&mut self, bag: BagId, engine: &Engine<Then>) {
        if let Some(entry) = self.bags.get_mut(&bag)
            && !engine.has_chunks(bag)
        {
            entry.queue = BagQueue::default();
        }
    }

    /// Ends grants and waits that are over; returns the bags that may have something to give again.
    pub fn expire(&mut self, now: Time, engine: &Engine<Then>) -> Vec<BagId> {
        for (bag, entry) in &mut self.bags {
            entry.queue.expire(now);
            let (over, waiting): (VecDeque<Waiter>, VecDeque<Waiter>) =
                entry.waiters.drain(..).partition(|waiter| waiter.deadline <= now);
            entry.waiters = waiting;
            for waiter in over {
                answer_empty(waiter, Pulled::Nothing, &entry.queue, engine.bag_stat(*bag).pass);
            }
        }
        self.with_waiters()
    }

    fn with_waiters(&self) -> Vec<BagId> {
        self.bags.iter().filter(|(_, entry)| !entry.waiters.is_empty()).map(|(bag, _)| *bag).collect()
    }

    /// When `expire` must be called next.
    pub fn next_due(&self) -> Option<Time> {
        let ends = self.bags.values().filter_map(|entry| entry.queue.next_expiry());
        let waits = self.bags.values().flat_map(|entry| entry.waiters.iter().map(|waiter| waiter.deadline));
        ends.chain(waits).min()
    }
}

impl Bag {
    /// No chunk is there to be handled, and none that was accepted is on its way to the disk.
    fn is_empty(&self, engine: &Engine<Then>) -> bool {
        self.queue.is_empty() && (self.pushes == 0 || engine.planted() == Some(Planted::EndedBeforeDurable))
    }
}

/// The chunks of a bag on this device that were not handled in its present pass.
fn queue_of(bag: BagId, engine: &Engine<Then>) -> BagQueue {
    let wanted = |(chunk, _, sealed): &(ChunkId, u64, bool)| *sealed && engine.wants_handling(*chunk);
    let chunks = engine.chunks_of(Owner::Bag(bag)).filter(wanted);
    let mut queue = BagQueue::new(chunks.map(|(chunk, length, _)| (chunk, length)));
    queue.planted = engine.planted();
    queue
}

fn answer_empty(waiter: Waiter, pulled: Pulled, queue: &BagQueue, pass: u32) {
    let lengths = queue.lengths();
    let answer = PullAnswer {
        pulled: pulled as i32,
        pass,
        waiting: lengths.waiting as u64,
        granted: lengths.granted as u64,
        ..PullAnswer::default()
    };
    waiter.respond.answer(&answer, Payload::empty());
}

#[cfg(test)]
mod tests {
    use super::Waiter;
    use crate::device::{Device, Item, Pushed, Start, Started, spawn};
    use crate::world::{OsWorld, World};
    use base::buffer::Pool;
    use base::checksum::BlockSums;
    use base::disk::{Disk, DiskError, Done, FileKind, FileName, Op, Wake};
    use base::id::{BagId, ChunkId, DeviceId, Generation, Owner, PushName, SessionId};
    use base::policy::{Class, Level};
    use base::unit::Time;
    use bytes::Bytes;
    use chunk::Request;
    use net::message::{Ask, bag};
    use net::{Call, Link, Payload, Service};
    use os::disk::Backend;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

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
        };
        spawn(&OsWorld, start).expect("it starts")
    }

    async fn push(device: &Device, chunk: ChunkId) {
        let payload = Bytes::from(vec![9; 1000]);
        let request = Request::Append {
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
        };
        device.ask(request).await.expect("pushed");
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
        fn handle(&self, call: Call) {
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
                handled
                    .ask(Request::Acknowledge { chunks, pass: 0, retain: false, by: None })
                    .await
                    .expect("acknowledged");
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
}
