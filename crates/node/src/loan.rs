//! How many threads of the node's runtime stand still for its disks.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;

/// The threads of a runtime that disks may keep at a time, over all engines of a node: at most half of them, so that the others go on whatever
/// hangs.
#[derive(Debug)]
pub struct Loans {
    runtime: Handle,
    most: usize,
    lent: AtomicUsize,
}

impl Loans {
    /// Of the runtime that this is called in.
    pub fn of_this_runtime() -> Loans {
        let runtime = Handle::current();
        let most = (runtime.metrics().num_workers() / 2).max(1);
        Loans { runtime, most, lent: AtomicUsize::new(0) }
    }

    /// A disk may keep the calling thread as long as the loan lives. None: too many are kept.
    pub fn begin(&self) -> Option<Loan<'_>> {
        let loan = Loan(self);
        // One that is too many is given back when it is dropped.
        (self.lent.fetch_add(1, Ordering::Relaxed) < self.most).then_some(loan)
    }

    /// Makes another thread of the runtime hear what comes for all of them: the one that is held up may be the one that did.
    pub fn nudge(&self) {
        drop(self.runtime.spawn(async {}));
    }
}

/// A thread that a disk may keep.
#[derive(Debug)]
pub struct Loan<'a>(&'a Loans);

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.0.lent.fetch_sub(1, Ordering::Relaxed);
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
