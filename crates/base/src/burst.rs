//! Questions that come together: whoever is about to ask several says so, and those who are asked begin when all have come (record 0446).

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

/// Bursts of one task in which a disk may keep the thread, before others of its runtime have their turns. It may be the thread that hears for the
/// whole runtime what comes: when the task yields, another one does.
pub const KEPT_TURNS: usize = 4;

/// Somebody who is asked, and would rather begin when all questions are there.
pub trait Gathers: Send + Sync {
    /// All are there. Of several who are asked in a burst only the last one hears of it so. Called in the thread that asked; what is asked from in here is by itself. True: the thread was kept for a while, by a disk.
    fn burst_ended(&self) -> bool;

    /// All are there, and this thread does not stay: somebody else who is asked keeps it.
    fn leave(&self);
}

thread_local! {
    /// Who was asked in this thread's burst; none: it has no burst.
    static ASKED: RefCell<Option<Vec<Arc<dyn Gathers>>>> = const { RefCell::new(None) };
}

/// As long as it lives, this thread is asking.
#[derive(Debug)]
pub struct Burst {
    /// Another one was there before, with which this one ends.
    inner: bool,
    /// A burst belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Burst {
    /// This thread begins to ask.
    #[must_use]
    pub fn begin() -> Burst {
        let inner = ASKED.with_borrow_mut(|asked| {
            let inner = asked.is_some();
            asked.get_or_insert_default();
            inner
        });
        Burst { inner, _here: PhantomData }
    }

    /// It has asked everything. True: somebody kept the thread for a while, so others of its runtime should have their turns.
    pub fn end(mut self) -> bool {
        self.tell()
    }

    fn tell(&mut self) -> bool {
        if std::mem::replace(&mut self.inner, true) {
            return false;
        }
        // One of them may keep this thread; the others begin beside it, and do not wait for its disk.
        let Some((last, others)) = ASKED.take().and_then(|mut asked| Some((asked.pop()?, asked))) else { return false };
        others.iter().for_each(|other| other.leave());
        last.burst_ended()
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.tell();
    }
}

/// Lets `burst_ended` be called when this thread has asked everything. False: it is not in a burst, so there is nothing to wait for.
pub fn join<T: Gathers + 'static>(asked: &Arc<T>) -> bool {
    ASKED.with_borrow_mut(|all| {
        let Some(all) = all else { return false };
        if !all.iter().any(|other| Arc::as_ptr(other).cast::<()>() == Arc::as_ptr(asked).cast()) {
            all.push(asked.clone());
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::{Burst, Gathers, join};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Ended(AtomicUsize, AtomicUsize);

    impl Gathers for Ended {
        fn burst_ended(&self) -> bool {
            self.0.fetch_add(1, Ordering::Relaxed) == 0
        }
        fn leave(&self) {
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Who was asked in a burst hears of its end, once, also of one within another; the last of several has the thread, and the others are told
    /// before it has. Without a burst nobody hears of anything, and other threads have their own.
    #[test]
    fn ends() {
        let (one, other) = (Arc::new(Ended::default()), Arc::new(Ended::default()));
        let ended = || [&one, &other].map(|ended| (ended.0.load(Ordering::Relaxed), ended.1.load(Ordering::Relaxed)));
        assert!(!join(&one));
        let burst = Burst::begin();
        let inner = Burst::begin();
        assert!(join(&one) && join(&other) && join(&one));
        assert!(!inner.end());
        std::thread::scope(|scope| scope.spawn(|| assert!(!join(&one))).join()).expect("no panic");
        assert_eq!(ended(), [(0, 0); 2]);
        assert!(burst.end(), "it was asked for the first time");
        assert_eq!(ended(), [(0, 1), (1, 0)]);
        assert!(!Burst::begin().end());
        assert_eq!((ended(), join(&one)), ([(0, 1), (1, 0)], false));
        let dropped = Burst::begin();
        assert!(join(&one));
        drop(dropped);
        assert_eq!(ended(), [(1, 1), (1, 0)]);
    }
}
