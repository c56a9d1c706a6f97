//! How many threads of the node's runtime stand still for its disks, and that nothing else does with them.

use base::error::Result;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::Duration;
use tokio::runtime::Handle;

/// While threads are lent, somebody looks so often whether one of them is held up.
const WATCH_EVERY: Duration = Duration::from_millis(10);

/// The threads of a runtime that disks may keep at a time, over all engines of a node: at most half of them (one, if there is only one), so that the
/// others go on whatever hangs.
#[derive(Debug)]
pub struct Loans {
    most: usize,
    lent: Arc<Lent>,
    watcher: OnceLock<Thread>,
}

#[derive(Debug)]
struct Lent {
    runtime: Handle,
    count: AtomicUsize,
    /// There was a loan since the watcher looked.
    was_used: AtomicBool,
    /// The watcher sleeps until it is woken.
    asleep: AtomicBool,
    ended: AtomicBool,
}

impl Loans {
    /// Of the runtime that this is called in, which serves one node: of several, all of them together might lend all threads. Nobody watches them
    /// yet.
    pub fn of_this_runtime() -> Loans {
        let runtime = Handle::current();
        let most = (runtime.metrics().num_workers() / 2).max(1);
        let lent = Lent {
            runtime,
            count: AtomicUsize::new(0),
            was_used: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        };
        Loans { most, lent: Arc::new(lent), watcher: OnceLock::new() }
    }

    /// Starts a thread that looks after lent ones: the one that is held up may be the one that hears for the whole runtime what comes, and the others
    /// sleep then. It waits for no disk itself.
    pub fn watch(&self) -> Result<()> {
        let lent = Arc::clone(&self.lent);
        let watching = os::thread::spawn("watch", move || lent.watch())?;
        let set = self.watcher.set(watching.thread().clone());
        assert!(set.is_ok(), "one thread watches");
        Ok(())
    }

    /// A disk may keep the calling thread as long as the loan lives. None: too many are kept.
    pub fn begin(&self) -> Option<Loan<'_>> {
        let lent = &*self.lent;
        let before = lent.count.fetch_add(1, Ordering::Relaxed);
        // One that is too many is given back when it is dropped.
        let loan = Loan(lent);
        if before >= self.most {
            return None;
        }
        lent.was_used.store(true, Ordering::SeqCst);
        if lent.asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        Some(loan)
    }

    fn wake(&self) {
        self.watcher.get().into_iter().for_each(Thread::unpark);
    }
}

impl Drop for Loans {
    fn drop(&mut self) {
        self.lent.ended.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Lent {
    fn watch(&self) {
        while !self.ended.load(Ordering::SeqCst) {
            if self.was_used.swap(false, Ordering::SeqCst) || self.count.load(Ordering::Relaxed) > 0 {
                std::thread::park_timeout(WATCH_EVERY);
                if self.count.load(Ordering::Relaxed) > 0 {
                    // Another thread of the runtime hears of this, and of what comes for all of them.
                    drop(self.runtime.spawn(async {}));
                }
                continue;
            }
            self.asleep.store(true, Ordering::SeqCst);
            // Whoever lends one says so first and then looks whether this sleeps.
            if !self.was_used.load(Ordering::SeqCst) && !self.ended.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
    }
}

/// A thread that a disk may keep.
#[derive(Debug)]
pub struct Loan<'a>(&'a Lent);

impl Loan<'_> {
    /// The disk may hang from now on. The task that this thread woke last is in a place from which no other thread takes it; a newer one puts it
    /// among those that all of them take.
    pub fn begins(&self) {
        drop(self.0.runtime.spawn(async {}));
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Loans;

    /// Half of the threads are lent, one of two and of one, and lent again.
    #[test]
    fn half() {
        for (threads, most) in [(1, 1), (2, 1), (5, 2)] {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(threads).build().expect("a runtime");
            let loans = runtime.block_on(async { Loans::of_this_runtime() });
            for _ in 0..2 {
                let lent: Vec<_> = (0..most).map(|_| loans.begin().expect("not too many")).collect();
                assert!(
                    loans.begin().is_none() && loans.begin().is_none(),
                    "of {threads} threads {} were lent",
                    lent.len()
                );
            }
        }
    }
}
