//! How far a fault of our own reaches: one in a task that serves one connection ends that connection, any other the process.
//!
//! What a connection's task changes and others see is behind locks that are held for single steps, or belongs to engines, which have
//! threads of their own: a task that ends in the middle leaves what a connection that breaks there leaves.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

thread_local! {
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

static ENDED: AtomicU64 = AtomicU64::new(0);

/// Whether a fault in what runs on this thread now ends no more than its task. For the process's panic hook.
pub fn is_contained() -> bool {
    CONTAINED.get()
}

/// Contained tasks of this process that ended by a fault.
pub fn contained_faults() -> u64 {
    ENDED.load(Ordering::Relaxed)
}

/// A task that serves one connection: a fault in it ends it and is counted.
pub struct Contained<F>(Pin<Box<F>>);

/// The same future, as a task whose faults are contained.
pub fn contained<F: Future>(future: F) -> Contained<F> {
    Contained(Box::pin(future))
}

/// Does work of a connection on another thread: a fault in it ends that work and is counted.
pub fn contained_work<T>(work: impl FnOnce() -> T) -> T {
    let _inside = Inside(CONTAINED.replace(true));
    work()
}

struct Inside(bool);

impl Drop for Inside {
    fn drop(&mut self) {
        CONTAINED.set(self.0);
        if std::thread::panicking() {
            ENDED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let _inside = Inside(CONTAINED.replace(true));
        self.0.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::{contained, contained_faults, is_contained};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::task::{Context, Waker};

    /// A fault inside is known as such, and counted; outside and afterwards none is.
    #[test]
    fn inside_and_outside() {
        let mut context = Context::from_waker(Waker::noop());
        assert!(!is_contained());
        let mut sound = pin!(contained(async { is_contained() }));
        assert_eq!(sound.as_mut().poll(&mut context), std::task::Poll::Ready(true));
        let before = contained_faults();
        let mut faulty = pin!(contained(async { panic!("planted") }));
        let ended = catch_unwind(AssertUnwindSafe(|| faulty.as_mut().poll(&mut context).is_ready()));
        assert!(ended.is_err() && !is_contained() && contained_faults() == before + 1);
    }
}
