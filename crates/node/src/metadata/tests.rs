//! The metadata store in its threads on a real disk: what is done by whoever asks.

mod several;

use super::{Files, Item, Metadata, Then, spawn};
use crate::loan::Loans;
use crate::told::{Told, ToldInline};
use crate::world::{OsWorld, World};
use base::buffer::Pool;
use base::burst::Burst;
use base::env::{Clock, Random};
use base::error::Result;
use base::id::SessionId;
use meta::path::Path;
use meta::request::{NewInode, User};
use meta::{Caller, Reply, Request};
use os::disk::Backend;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// Whoever asks, in one session.
const ASKER: Caller = Caller { session: SessionId(5), call: 0, floor: 0 };

/// A store in a directory of its own.
struct Kept {
    metadata: Arc<Metadata>,
    ended: Vec<crate::world::Ended>,
    inline: Arc<ToldInline>,
    directory: PathBuf,
}

impl Kept {
    async fn open(name: &str) -> Kept {
        let directory = std::env::temp_dir().join(format!("stormwell-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory for the test");
        let opened = OsWorld.disk(&directory.join("log"), Backend::Threads, Pool::new(0)).expect("a fresh directory");
        let (disk, inline) = Told::wrap(opened.disk);
        let files = Files::new(Arc::new(OsWorld), directory.clone(), Backend::Threads);
        let random: Arc<dyn Random> = Arc::new(sim::random::SimRandom::new(1));
        let mut settings = OsWorld.meta_settings(1 << 30, random);
        settings.superuser = "ada".to_string();
        let clock: Arc<dyn Clock> = Arc::new(os::clock::SystemClock::new());
        let loans = Arc::new(Loans::of_this_runtime());
        loans.watch().expect("a thread");
        let (metadata, ended) = spawn((&OsWorld, files), disk, settings, clock, loans, None).expect("it opens");
        let user = User { name: "ada".to_string(), groups: Vec::new() };
        metadata.ask_for(ASKER, Request::OpenSession { user }).await.expect("a session");
        Kept { metadata, ended, inline, directory }
    }

    /// Asks without waiting.
    fn asked(&self, number: usize) -> oneshot::Receiver<Result<Reply>> {
        let path = Path::parse(&format!("/{number}")).expect("a path");
        let request = Request::Mkdir { path, parents: false, new: NewInode::with_mode(0o755) };
        let (tell, told) = oneshot::channel();
        self.metadata.send(Item::Ask { caller: ASKER, request, then: Then::Tell(tell) });
        told
    }

    /// Stops it and sees that so many directories were made.
    async fn end(self, made: u64) {
        let Ok(Reply::Usage(totals)) = self.metadata.ask(Request::Usage).await else { panic!("it answers") };
        assert_eq!(totals.directories, made + 1, "with the root");
        self.metadata.send(Item::Stop);
        drop(self.metadata);
        for ended in self.ended {
            let _ = ended.await;
        }
        std::fs::remove_dir_all(&self.directory).expect("it is ours");
    }
}

/// Who is told that there is work is told until he is dropped: a keeper that leads often leaves nothing behind of its jobs.
#[tokio::test]
async fn told_until_dropped() {
    let kept = Kept::open("told").await;
    for _ in 0..50 {
        let (dropped, stays) = (kept.metadata.work(), kept.metadata.work());
        drop(dropped);
        kept.metadata.notify_of_work();
        stays.notified().await;
        assert_eq!(kept.metadata.registered(), (1, 1));
    }
    let _next = kept.metadata.work();
    assert_eq!(kept.metadata.registered(), (1, 0));
    kept.end(0).await;
}

/// What is asked in a burst is done when it ends, in the thread that asked, as one group of the log: written and synced once. Not before, and
/// not if the disk is slow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_is_done_here() {
    let kept = Kept::open("burst").await;
    // The log has a file from now on.
    kept.asked(0).await.expect("told").expect("made");
    let (mut made, mut here) = (1, 0);
    let mut round = 0;
    while here < 20 {
        round += 1;
        assert!(round < 1000, "{here} of 1000 bursts were done here");
        let fast = round % 5 != 4;
        kept.inline.fast.store(fast, Ordering::Relaxed);
        let before = kept.inline.done.load(Ordering::Relaxed);
        let mut told = Vec::new();
        let burst = Burst::begin();
        for _ in 0..4 {
            told.push(kept.asked(made as usize));
            made += 1;
        }
        assert!(told.iter_mut().all(|told| told.try_recv().is_err()), "nothing is done before all are there");
        drop(burst);
        let done = kept.inline.done.load(Ordering::Relaxed) - before;
        // The thread may be at work just now, for the round before: then it does it.
        assert!(done == 0 || fast && done == 2, "round {round}: {done} operations");
        for mut told in told {
            let reply = match done {
                0 => told.await.expect("told"),
                _ => told.try_recv().expect("answered when the burst is over"),
            };
            reply.expect("made");
        }
        here += done / 2;
    }
    kept.end(made).await;
}

/// A disk that hangs under whoever does something himself, who may be the one that hears for the whole runtime what comes, holds up nothing but
/// the metadata: timers go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs() {
    let kept = Arc::new(Kept::open("hangs").await);
    kept.asked(0).await.expect("told").expect("made");
    let mut made = 1;
    for _ in 0..20 {
        let (goes_on, waits) = mpsc::sync_channel(2);
        *kept.inline.hangs.lock().expect("whole") = Some(waits);
        let (asker, number) = (kept.clone(), made);
        let asking = tokio::spawn(async move {
            // The thread of the runtime that hears of this is the one that goes on here.
            tokio::time::sleep(Duration::from_millis(1)).await;
            let burst = Burst::begin();
            let told = asker.asked(number);
            drop(burst);
            told.await
        });
        let late = goes_on.clone();
        let (slept, sleeps) = mpsc::sync_channel::<()>(1);
        // A test that cannot go on fails, and does not hang.
        let watch = os::thread::spawn("watch", move || {
            let went_on = sleeps.recv_timeout(Duration::from_secs(30)).is_ok();
            let _ = late.send(());
            went_on
        })
        .expect("a thread");
        tokio::time::sleep(Duration::from_millis(5)).await;
        slept.send(()).expect("it is waited for");
        assert!(watch.join().expect("no panic"), "timers stood still with the disk");
        let _ = goes_on.send(());
        asking.await.expect("no panic").expect("told").expect("made");
        // One that the metadata's thread did waits for nothing.
        kept.inline.hangs.lock().expect("whole").take();
        made += 1;
    }
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    kept.end(made as u64).await;
}

/// A panic in the middle of an operation that whoever asked does himself ends the store's thread, and with it the node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_in_an_operation() {
    let kept = Arc::new(Kept::open("fault").await);
    kept.asked(0).await.expect("told").expect("made");
    let mut made = 1;
    // Until one is not done by the thread, which may be at work for the one before.
    loop {
        kept.inline.panics.store(true, Ordering::Relaxed);
        let asker = kept.clone();
        let asking = tokio::spawn(async move {
            let burst = Burst::begin();
            let told = asker.asked(made);
            drop(burst);
            told.await
        });
        match asking.await {
            Ok(told) => told.expect("told").expect("made"),
            Err(panicked) => {
                assert!(panicked.is_panic());
                break;
            }
        };
        made += 1;
        assert!(made < 100, "the thread did all of them");
    }
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    let mut ended = kept.ended.into_iter();
    let served = ended.next().expect("the thread that serves is the first");
    assert!(tokio::time::timeout(Duration::from_secs(30), served).await.is_ok(), "the thread waits for the operation");
    drop(kept.metadata);
    for ended in ended {
        let _ = ended.await;
    }
    std::fs::remove_dir_all(&kept.directory).expect("it is ours");
}

/// Many who ask at once, in bursts and alone: everything is done and answered, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left() {
    const ASKERS: usize = 6;
    const ROUNDS: usize = 200;
    let kept = Arc::new(Kept::open("bursts").await);
    let askers: Vec<_> = (0..ASKERS)
        .map(|asker| {
            let kept = kept.clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let first = (asker * ROUNDS + round) * 4;
                    let burst = (asker % 3 != 0).then(Burst::begin);
                    let told: Vec<_> = (first..first + 4).map(|number| kept.asked(number)).collect();
                    drop(burst);
                    for told in told {
                        told.await.expect("told").expect("made");
                    }
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.expect("no panic");
    }
    let Some(kept) = Arc::into_inner(kept) else { unreachable!("the askers are gone") };
    kept.end((ASKERS * ROUNDS * 4) as u64).await;
}
