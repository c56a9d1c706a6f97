//! A thread that sleeps until it is woken; a wake that comes before is not lost. So do a disk's `poll` and a task of the runtime.

use loom::sync::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Sleeper {
    pub(crate) fn notify(&self) {
        *self.woken.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    pub(crate) fn wait(&self) {
        let mut woken = self.woken.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while !std::mem::take(&mut *woken) {
            woken = self.changed.wait(woken).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

impl base::disk::Wake for Sleeper {
    fn wake(&self) {
        self.notify();
    }
}

impl std::task::Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.notify();
    }
}

/// Tries every order in which the threads of `model` can meet with at most so many switches that no thread asked for.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
