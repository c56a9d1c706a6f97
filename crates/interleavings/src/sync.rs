//! The checker's locks and atomics, where `node` and `net` have those of the standard library.

pub(crate) use loom::sync::atomic::AtomicUsize;
pub(crate) use loom::sync::{Mutex, MutexGuard};
use std::sync::atomic::Ordering;

/// A flag. Loom takes SeqCst for AcqRel and lets a swap miss a store that it must see, so operations that are SeqCst come one after another
/// here, by a lock. A program whose other data is in locks has no other histories than those.
pub(crate) struct AtomicBool {
    turn: Mutex<()>,
    value: loom::sync::atomic::AtomicBool,
}

impl AtomicBool {
    pub(crate) fn new(value: bool) -> AtomicBool {
        AtomicBool { turn: Mutex::new(()), value: loom::sync::atomic::AtomicBool::new(value) }
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        let _turn = self.turn(order);
        self.value.load(order)
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        let _turn = self.turn(order);
        self.value.store(value, order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        let _turn = self.turn(order);
        self.value.swap(value, order)
    }

    fn turn(&self, order: Ordering) -> Option<MutexGuard<'_, ()>> {
        (order == Ordering::SeqCst).then(|| self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
