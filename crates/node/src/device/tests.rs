//! Devices in their threads on a real disk: what is done by whoever asks.

use super::{Device, Item, Start, Started, Then, spawn};
use crate::loan::Loans;
use crate::told::{Told, ToldInline};
use crate::world::{Ended, OsWorld, World};
use base::buffer::Pool;
use base::burst::Burst;
use base::checksum::BlockSums;
use base::error::Result;
use base::id::{ChunkId, DeviceId, Generation, GroupId, Owner};
use base::policy::{Class, Level};
use bytes::Bytes;
use chunk::{Reply, Request};
use os::disk::Backend;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// A device in a directory of its own.
struct Kept {
    device: Arc<Device>,
    ended: Ended,
    inline: Arc<ToldInline>,
    directory: PathBuf,
}

impl Kept {
    fn open(name: &str, backend: Backend, loans: &Arc<Loans>) -> Kept {
        let directory = std::env::temp_dir().join(format!("stormwell-device-{name}-{}", std::process::id()));
        let pool = Pool::new(16 << 20);
        let opened = OsWorld.disk(&directory, backend, pool.clone()).expect("a fresh directory");
        let (disk, inline) = Told::wrap(opened.disk);
        let start = Start {
            disk,
            settings: OsWorld.chunk_settings(256 << 20, pool),
            new_id: DeviceId(7),
            class: Class::Ssd,
            place: name.to_string(),
            clock: Arc::new(os::clock::SystemClock::new()),
            outgoing: net::Budget::new(1 << 24),
            loans: loans.clone(),
        };
        let Started { device, ended, .. } = spawn(&OsWorld, start).expect("it starts");
        Kept { device, ended, inline, directory }
    }

    /// Asks without waiting: so many bytes, which are to come next.
    fn asked(&self, chunk: u128, offset: usize, length: usize) -> oneshot::Receiver<Result<Reply>> {
        let (item, told) = Kept::question(chunk, offset, length, Level::Synced);
        self.device.send(item);
        told
    }

    fn question(chunk: u128, offset: usize, length: usize, level: Level) -> (Item, oneshot::Receiver<Result<Reply>>) {
        let payload = Bytes::from(vec![9; length]);
        let request = Request::Append {
            chunk: ChunkId(chunk),
            owner: Owner::Group(GroupId(1)),
            generation: Generation(1),
            offset: offset as u64,
            sums: BlockSums::of(&payload),
            payload,
            level,
            seal: false,
            small_parts: false,
            cell: 0,
        };
        let (tell, told) = oneshot::channel();
        (Item::Chunk { request, then: Then::Tell(tell) }, told)
    }

    async fn end(self) {
        self.device.send(Item::Stop);
        drop(self.device);
        let _ = self.ended.await;
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

const LENGTH: usize = 1000;

fn loans() -> Arc<Loans> {
    let loans = Arc::new(Loans::of_this_runtime());
    loans.watch().expect("a thread");
    loans
}

/// Devices with a chunk of `LENGTH` bytes each.
async fn several(names: &[&str]) -> Arc<Vec<Kept>> {
    let loans = loans();
    let kept: Vec<_> = names.iter().map(|name| Kept::open(name, Backend::Auto, &loans)).collect();
    for kept in &kept {
        kept.asked(1, 0, LENGTH).await.expect("told").expect("appended");
    }
    Arc::new(kept)
}

async fn end(kept: Arc<Vec<Kept>>) {
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    for kept in kept {
        kept.end().await;
    }
}

/// What lets hanging disks go on, at the latest after half a minute: a test that cannot go on fails, and does not hang.
struct Watch {
    goes_on: Vec<mpsc::SyncSender<()>>,
    went_on: mpsc::SyncSender<()>,
    watching: std::thread::JoinHandle<bool>,
}

impl Watch {
    /// The next operation that somebody does himself hangs at each of these, or the next look of its thread at its disk.
    fn hang(on: &[&Mutex<Option<mpsc::Receiver<()>>>]) -> Watch {
        let (goes_on, waits): (Vec<_>, Vec<_>) = on.iter().map(|_| mpsc::sync_channel(2)).unzip();
        for (on, waits) in on.iter().zip(waits) {
            *on.lock().expect("whole") = Some(waits);
        }
        let (went_on, goes) = mpsc::sync_channel::<()>(1);
        let late = goes_on.clone();
        let watching = os::thread::spawn("late", move || {
            let went_on = goes.recv_timeout(Duration::from_secs(30)).is_ok();
            // Who waits for nothing any more is gone.
            late.iter().for_each(|late| late.send(()).unwrap_or(()));
            went_on
        });
        Watch { goes_on, went_on, watching: watching.expect("a thread") }
    }

    /// What was to go on while they hang has; now they do.
    fn end(self) {
        self.went_on.send(()).expect("it is waited for");
        assert!(self.watching.join().expect("no panic"), "all stood still with the disks");
        self.goes_on.iter().for_each(|goes_on| goes_on.send(()).unwrap_or(()));
    }
}

/// A small append is written and synced by whoever asks, and so are a few in a burst, together; many are left to the device's thread, and all of them
/// if the disk is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_appends_are_done_here() {
    for backend in [Backend::Auto, Backend::Threads] {
        let kept = Kept::open("appends", backend, &loans());
        // The journal has a segment from now on.
        kept.asked(1, 0, LENGTH).await.expect("told").expect("appended");
        let (mut length, mut here) = (LENGTH, 0);
        let mut round = 0;
        while here < 20 {
            round += 1;
            assert!(round < 1000, "{here} of 1000 were done here");
            let fast = round % 5 != 4;
            kept.inline.fast.store(fast, Ordering::Relaxed);
            let count = [1, 3, super::thread::FEW + 1][round % 3];
            let before = kept.inline.done.load(Ordering::Relaxed);
            let burst = (count > 1).then(Burst::begin);
            let mut told: Vec<_> = (0..count).map(|place| kept.asked(1, length + place * LENGTH, LENGTH)).collect();
            length += count * LENGTH;
            drop(burst);
            let done = kept.inline.done.load(Ordering::Relaxed) - before;
            // The thread may be at work just now, for the round before: then it does it.
            let may = fast && count <= super::thread::FEW;
            assert!(done == 0 || may && done == 2, "round {round}, {count} appends: {done} operations");
            for told in &mut told {
                let reply = match done {
                    0 => told.await.expect("told"),
                    _ => told.try_recv().expect("answered when it is done"),
                };
                reply.expect("appended");
            }
            here += done / 2;
        }
        kept.end().await;
    }
}

/// What one asker sends is taken in its order, whoever takes it, small or not: an append that comes before its turn would be refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_overtaken() {
    const ASKERS: usize = 6;
    const ROUNDS: usize = 100;
    let kept = Arc::new(Kept::open("order", Backend::Auto, &loans()));
    let askers: Vec<_> = (0..ASKERS)
        .map(|asker| {
            let kept = kept.clone();
            tokio::spawn(async move {
                let mut length = 0;
                for round in 0..ROUNDS {
                    let burst = (asker % 3 != 0).then(Burst::begin);
                    let mut told = Vec::new();
                    for place in 0..1 + (asker + round) % 4 {
                        // Every fifth is not small.
                        let more = if (round + place) % 5 == 0 { super::SMALL_MAX + 1 } else { LENGTH };
                        told.push(kept.asked(asker as u128 + 1, length, more));
                        length += more;
                    }
                    drop(burst);
                    for told in told {
                        told.await.expect("told").expect("it comes in its turn");
                    }
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.expect("no panic");
    }
    assert!(kept.inline.done.load(Ordering::Relaxed) > 0, "nothing was done by those who ask");
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    kept.end().await;
}

/// Disks that hang under whoever does something himself hold up neither timers nor other devices, although each of them might keep a thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_that_hang() {
    let kept = several(&["hangs", "too", "not"]).await;
    for round in 1..20 {
        let watch = Watch::hang(&[&kept[0].inline.hangs, &kept[1].inline.hangs]);
        let askers: Vec<_> = (0..2)
            .map(|place| {
                let kept = kept.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    kept[place].asked(1, round * LENGTH, LENGTH).await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(5)).await;
        kept[2].asked(1, round * LENGTH, LENGTH).await.expect("told").expect("appended");
        watch.end();
        for asker in askers {
            asker.await.expect("no panic").expect("told").expect("appended");
        }
        // One that a device's thread did waits for nothing.
        kept.iter().for_each(|kept| drop(kept.inline.hangs.lock().expect("whole").take()));
    }
    end(kept).await;
}

/// The same while the device's own thread hangs at its disk, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_twice() {
    let kept = several(&["twice"]).await;
    let mut twice = 0;
    for round in 1..20 {
        let watch = Watch::hang(&[&kept[0].inline.poll_hangs, &kept[0].inline.hangs]);
        // Woken, the thread goes to its disk, if it is not on its way there already: then nobody hears this before it goes on.
        let looker = kept.clone();
        let looked = tokio::spawn(async move { looker[0].device.look(|_| ()).await });
        let hangs = async {
            while kept[0].inline.poll_hangs.lock().expect("whole").is_some() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), hangs).await.expect("the thread looks after its disk");
        let asker = kept.clone();
        let asking = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            asker[0].asked(1, round * LENGTH, LENGTH).await
        });
        tokio::time::sleep(Duration::from_millis(5)).await;
        twice += usize::from(kept[0].inline.hangs.lock().expect("whole").is_none());
        watch.end();
        looked.await.expect("no panic").expect("it goes on");
        asking.await.expect("no panic").expect("told").expect("appended");
        kept[0].inline.hangs.lock().expect("whole").take();
    }
    assert!(twice > 0, "in no round an asker hung beside the thread");
    end(kept).await;
}

/// Who is answered by a thread that a disk keeps then goes on, although nobody but that thread could have taken him up at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answered_before_it_hangs() {
    let kept = several(&["answers"]).await;
    for round in 1..20 {
        let (item, told) = Kept::question(2, (round - 1) * LENGTH, LENGTH, Level::Written);
        let waiting = tokio::spawn(told);
        kept[0].device.served.mailbox.put(item);
        // It is in the journal's next group, and answered before that is written.
        let watch = Watch::hang(&[&kept[0].inline.hangs]);
        let asker = kept.clone();
        let asking = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            asker[0].asked(1, round * LENGTH, LENGTH).await
        });
        waiting.await.expect("no panic").expect("told").expect("appended");
        watch.end();
        asking.await.expect("no panic").expect("told").expect("appended");
        kept[0].inline.hangs.lock().expect("whole").take();
    }
    end(kept).await;
}

/// The same if he is answered between the write of the asker's group and its sync, at which the disk hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answered_before_a_sync_that_hangs() {
    let kept = several(&["sync"]).await;
    let mut hung = 0;
    for round in 1..20 {
        let (item, told) = Kept::question(2, (round - 1) * LENGTH, LENGTH, Level::Written);
        let waiting = tokio::spawn(told);
        let device = kept[0].device.clone();
        kept[0].inline.hangs_after.store(1, Ordering::Relaxed);
        *kept[0].inline.during.lock().expect("whole") = Some(Box::new(move || device.served.mailbox.put(item)));
        let watch = Watch::hang(&[&kept[0].inline.hangs]);
        let asker = kept.clone();
        let asking = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let told = asker[0].asked(1, round * LENGTH, LENGTH).await;
            // The device's thread was at work, and did it.
            let left = asker[0].inline.during.lock().expect("whole").take();
            left.into_iter().for_each(|left| left());
            asker[0].device.served.mailbox.wake();
            told
        });
        waiting.await.expect("no panic").expect("told").expect("appended");
        watch.end();
        asking.await.expect("no panic").expect("told").expect("appended");
        hung += usize::from(kept[0].inline.hangs.lock().expect("whole").take().is_none());
    }
    assert!(hung > 0, "in no round an asker's sync hung");
    end(kept).await;
}

/// What somebody asks of several devices in a burst waits for none of their disks but its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_several_hangs() {
    let kept = several(&["one", "two", "three"]).await;
    for round in 1..20 {
        for hanging in 0..3 {
            let watch = Watch::hang(&[&kept[hanging].inline.hangs]);
            let asker = kept.clone();
            let (tell, told) = oneshot::channel();
            let asking = tokio::spawn(async move {
                let burst = Burst::begin();
                let mut asked: Vec<_> = asker.iter().map(|kept| kept.asked(1, round * LENGTH, LENGTH)).collect();
                let own = asked.remove(hanging);
                // Whoever waits for that takes it.
                let _ = tell.send(asked);
                drop(burst);
                own.await
            });
            for (place, told) in told.await.expect("they were asked").into_iter().enumerate() {
                let reply = told.await.expect("told");
                // Those of the rounds before are asked again.
                assert!(reply.is_ok(), "device {place} of the others, round {round}: {reply:?}");
            }
            watch.end();
            asking.await.expect("no panic").expect("told").expect("appended");
            kept[hanging].inline.hangs.lock().expect("whole").take();
        }
    }
    end(kept).await;
}

/// What is sent on to another device, because its chunk went there, waits for that one's disk without this device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_on_to_a_disk_that_hangs() {
    let kept = several(&["from", "to"]).await;
    let (from, to) = (&kept[0], &kept[1]);
    from.device.send(Item::Hold { chunk: ChunkId(1) });
    from.device.send(Item::Departed { chunk: ChunkId(1), to: Some(to.device.clone()) });
    from.device.look(|_| ()).await.expect("it takes what came before");
    for round in 1..20 {
        let watch = Watch::hang(&[&to.inline.hangs]);
        let told = from.asked(1, round * LENGTH, LENGTH);
        from.device.look(|_| ()).await.expect("it goes on");
        watch.end();
        told.await.expect("told").expect("appended there");
        to.inline.hangs.lock().expect("whole").take();
    }
    end(kept).await;
}

/// A panic in the middle of an operation that whoever asked does himself ends the device's thread, and with it the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_in_an_operation() {
    let kept = Arc::new(Kept::open("fault", Backend::Auto, &loans()));
    kept.asked(1, 0, LENGTH).await.expect("told").expect("appended");
    let mut made = 1;
    // Until one is not done by the thread, which may be at work for the one before.
    loop {
        kept.inline.panics.store(true, Ordering::Relaxed);
        let asker = kept.clone();
        let asking = tokio::spawn(async move { asker.asked(1, made * LENGTH, LENGTH).await });
        match asking.await {
            Ok(told) => told.expect("told").expect("appended"),
            Err(panicked) => {
                assert!(panicked.is_panic());
                break;
            }
        };
        made += 1;
        assert!(made < 100, "the thread did all of them");
    }
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    assert!(
        tokio::time::timeout(Duration::from_secs(30), kept.ended).await.is_ok(),
        "the thread waits for the operation"
    );
    std::fs::remove_dir_all(&kept.directory).expect("it is ours");
}
