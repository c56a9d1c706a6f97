//! Calls that ask the store to open a file now, so that others can wait until what came of them is in the table.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Which calls ask the store at this moment. Nobody who waits for them keeps others from asking.
#[derive(Default)]
pub struct Openings {
    asking: Mutex<Asking>,
    ended: Notify,
}

/// Each call has a number, in the order in which they began.
#[derive(Default)]
struct Asking {
    next: u64,
    numbers: BTreeSet<u64>,
}

/// One call that asks, until this is dropped.
pub struct Opening<'a> {
    openings: &'a Openings,
    number: u64,
}

impl Openings {
    /// The store is asked to open a file from now on. To be dropped when that is in the table; no device may be asked for anything in
    /// between, for others wait.
    pub fn begin(&self) -> Opening<'_> {
        let mut asking = self.asking();
        let number = asking.next;
        asking.next += 1;
        asking.numbers.insert(number);
        Opening { openings: self, number }
    }

    /// Waits until all calls that ask now have ended: what each of them opened is in the table. Not to be asked by one of them.
    pub async fn ended_by_now(&self) {
        let next = self.asking().next;
        loop {
            // Made before it is looked: an end in between wakes it.
            let ended = self.ended.notified();
            if self.asking().numbers.first().is_none_or(|first| *first >= next) {
                return;
            }
            ended.await;
        }
    }

    fn asking(&self) -> MutexGuard<'_, Asking> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.openings.asking().numbers.remove(&self.number);
        self.openings.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::Openings;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// Who waits waits for those that had begun before, and for none that began since; none of these waits for it.
    #[test]
    fn only_earlier_ones_are_waited_for() {
        let openings = Openings::default();
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(openings.ended_by_now()).poll(&mut context).is_ready());
        let (first, second) = (openings.begin(), openings.begin());
        let mut waiting = pin!(openings.ended_by_now());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let later = openings.begin();
        drop(second);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(first);
        assert!(waiting.as_mut().poll(&mut context).is_ready());
        drop(later);
        assert!(openings.asking().numbers.is_empty());
    }
}
