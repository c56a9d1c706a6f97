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
use std::sync::{Arc, mpsc};
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
        let directory = std::env::temp_dir().join(format!("stormwell-{name}-{}", std::process::id()));
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
        let payload = Bytes::from(vec![9; length]);
        let request = Request::Append {
            chunk: ChunkId(chunk),
            owner: Owner::Group(GroupId(1)),
            generation: Generation(1),
            offset: offset as u64,
            sums: BlockSums::of(&payload),
            payload,
            level: Level::Synced,
            seal: false,
            small_parts: false,
            cell: 0,
        };
        let (tell, told) = oneshot::channel();
        self.device.send(Item::Chunk { request, then: Then::Tell(tell) });
        told
    }

    async fn end(self) {
        self.device.send(Item::Stop);
        drop(self.device);
        let _ = self.ended.await;
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

const LENGTH: usize = 1000;

/// A small append is written and synced by whoever asks, and so are a few in a burst, together; many are left to the device's thread, and all of them
/// if the disk is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_appends_are_done_here() {
    for backend in [Backend::Auto, Backend::Threads] {
        let kept = Kept::open("appends", backend, &Arc::new(Loans::of_this_runtime()));
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
    let kept = Arc::new(Kept::open("order", Backend::Auto, &Arc::new(Loans::of_this_runtime())));
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

/// A disk that hangs under whoever does something himself holds up neither timers nor other devices, although each of them might keep a thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs() {
    let loans = Arc::new(Loans::of_this_runtime());
    let kept: Vec<_> = ["hangs", "too", "not"].iter().map(|name| Kept::open(name, Backend::Auto, &loans)).collect();
    let kept = Arc::new(kept);
    for kept in kept.iter() {
        kept.asked(1, 0, LENGTH).await.expect("told").expect("appended");
    }
    for round in 1..20 {
        let (goes_on, waits): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::sync_channel(2)).unzip();
        for (kept, waits) in kept.iter().zip(waits) {
            *kept.inline.hangs.lock().expect("whole") = Some(waits);
        }
        let askers: Vec<_> = (0..2)
            .map(|place| {
                let kept = kept.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    kept[place].asked(1, round * LENGTH, LENGTH).await
                })
            })
            .collect();
        let late = goes_on.clone();
        let (went_on, goes) = mpsc::sync_channel::<()>(1);
        // A test that cannot go on fails, and does not hang.
        let watch = os::thread::spawn("watch", move || {
            let went_on = goes.recv_timeout(Duration::from_secs(30)).is_ok();
            // Who waits for nothing any more is gone.
            late.iter().for_each(|late| late.send(()).unwrap_or(()));
            went_on
        })
        .expect("a thread");
        tokio::time::sleep(Duration::from_millis(5)).await;
        kept[2].asked(1, round * LENGTH, LENGTH).await.expect("told").expect("appended");
        went_on.send(()).expect("it is waited for");
        assert!(watch.join().expect("no panic"), "all stood still with the disks");
        goes_on.iter().for_each(|goes_on| goes_on.send(()).unwrap_or(()));
        for asker in askers {
            asker.await.expect("no panic").expect("told").expect("appended");
        }
        // One that a device's thread did waits for nothing.
        kept.iter().for_each(|kept| drop(kept.inline.hangs.lock().expect("whole").take()));
    }
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    for kept in kept {
        kept.end().await;
    }
}

/// A panic in the middle of an operation that whoever asked does himself ends the device's thread, and with it the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_in_an_operation() {
    let kept = Arc::new(Kept::open("fault", Backend::Auto, &Arc::new(Loans::of_this_runtime())));
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
