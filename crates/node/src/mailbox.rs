//! How the network's tasks hand work to an engine's thread: a queue whose reader sleeps in its disk's `poll`.

use crate::sync::{AtomicBool, Mutex};
use base::disk::Wake;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The sending and receiving side of one engine's queue. It refuses nothing, because its senders are bounded: connections by the memory of
/// the questions that are worked on, over all of them (`limit::CALLS_MEMORY_MAX`, `limit::DEVICE_CALLS_MEMORY_MAX` and `limit::URGENT_CALLS_MEMORY_MAX`, of which each item holds its part until it is answered),
/// for pulls by the calls that each may have unanswered (`limit::SMALL_FRAMES_MAX`), and by the payload budget; the gateway in the same
/// process, whose calls are function calls, by the calls that each of its connections may have at work (`limit::HDFS_CALLS_MAX`) and by
/// `limit::HDFS_WRITE_MEMORY_MAX`; housekeeping, drains and scrubs by waiting for one answer before the next question.
pub struct Mailbox<T> {
    queue: Mutex<Vec<T>>,
    /// Whether the reader sleeps, or is about to. Only then is a wake, which is a system call, worth its price.
    asleep: AtomicBool,
    waker: Arc<dyn Wake>,
}

impl<T> Mailbox<T> {
    /// An empty mailbox for the thread that `waker` wakes.
    pub fn new(waker: Arc<dyn Wake>) -> Mailbox<T> {
        Mailbox { queue: Mutex::new(Vec::new()), asleep: AtomicBool::new(false), waker }
    }

    /// Puts something in. Never blocks for long.
    pub fn send(&self, item: T) {
        self.put(item);
        self.wake();
    }

    /// The same without a wake, which whoever puts it in sees to later.
    pub fn put(&self, item: T) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(item);
    }

    /// Lets the reader take another turn although nothing came.
    pub fn wake(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Whether the reader sleeps, or is about to.
    pub fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::SeqCst)
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Moves everything that is there into `inbox`, which must be empty; the two vectors swap, so neither allocates for long.
    pub fn take(&self, inbox: &mut Vec<T>) {
        assert!(inbox.is_empty(), "what was taken before was not handled");
        std::mem::swap(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner), inbox);
    }

    /// Says that the reader is about to sleep. Returns false, and it must not sleep, if something is there.
    pub fn may_sleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let empty = self.is_empty();
        if !empty {
            self.asleep.store(false, Ordering::SeqCst);
        }
        empty
    }

    /// Says that the reader is awake, so that senders save themselves the wake.
    pub fn awake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::Mailbox;
    use base::disk::Wake;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A sleeping reader is woken once for a burst, an awake one not at all, and nothing is lost.
    #[test]
    fn one_wake_for_a_burst() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let mailbox = Mailbox::new(count.clone());
        mailbox.send(1);
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        assert!(!mailbox.may_sleep());
        let mut inbox = Vec::new();
        mailbox.take(&mut inbox);
        assert_eq!(inbox, [1]);
        inbox.clear();
        assert!(mailbox.may_sleep());
        mailbox.send(2);
        mailbox.send(3);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        mailbox.take(&mut inbox);
        assert_eq!(inbox, [2, 3]);
    }
}
