//! Threads that do operations of a directory blocking, and the place where finished ones are picked up.

use super::directory::Directory;
use base::buffer::Pool;
use base::disk::{Done, Op, Wake};
use base::error::Result;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that take operations in order and do them. Dropping it waits until all are done.
pub(super) struct Workers {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

/// Operations that wait for a thread. The engine bounds them: each holds one of its tokens.
#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    arrived: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<(u64, Op)>,
    closing: bool,
}

/// Where threads put finished operations and one engine picks them up.
#[derive(Default)]
pub(super) struct Finished {
    state: Mutex<FinishedState>,
    arrived: Condvar,
}

#[derive(Default)]
struct FinishedState {
    done: Vec<Done>,
    woken: bool,
    /// Somebody waits, so that a notice is worth its system call.
    waited_for: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Workers {
    /// Starts `count` threads that put what they finished into `finished` and then call `wake`, if there is one.
    pub(super) fn start(
        count: usize,
        directory: &Arc<Directory>,
        pool: &Pool,
        finished: &Arc<Finished>,
        wake: Option<&Arc<dyn Wake>>,
    ) -> Result<Workers> {
        let mut workers = Workers { queue: Arc::default(), threads: Vec::with_capacity(count) };
        for number in 0..count {
            let (queue, directory) = (Arc::clone(&workers.queue), Arc::clone(directory));
            let (pool, finished, wake) = (pool.clone(), Arc::clone(finished), wake.cloned());
            let work = move || {
                while let Some((token, op)) = queue.next() {
                    finished.put(Done { token, result: directory.execute(op, &pool) });
                    if let Some(wake) = &wake {
                        wake.wake();
                    }
                }
            };
            workers.threads.push(crate::thread::spawn(&format!("disk-{number}"), work)?);
        }
        Ok(workers)
    }

    /// Hands over an operation.
    pub(super) fn submit(&self, token: u64, op: Op) {
        lock(&self.queue.jobs).waiting.push_back((token, op));
        self.queue.arrived.notify_one();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        lock(&self.queue.jobs).closing = true;
        self.queue.arrived.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Queue {
    fn next(&self) -> Option<(u64, Op)> {
        let mut jobs = lock(&self.jobs);
        loop {
            if let Some(job) = jobs.waiting.pop_front() {
                return Some(job);
            }
            if jobs.closing {
                return None;
            }
            jobs = self.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Finished {
    /// Puts in a finished operation.
    pub(super) fn put(&self, done: Done) {
        let mut state = lock(&self.state);
        state.done.push(done);
        self.notify(state);
    }

    fn notify(&self, mut state: MutexGuard<'_, FinishedState>) {
        if std::mem::take(&mut state.waited_for) {
            drop(state);
            self.arrived.notify_one();
        }
    }

    /// Moves what has finished to `out`.
    pub(super) fn take(&self, out: &mut Vec<Done>) {
        out.append(&mut lock(&self.state).done);
    }

    /// Moves what has finished to `out`, waiting up to `wait` for the first, or for `wake`.
    pub(super) fn wait(&self, wait: Option<Duration>, out: &mut Vec<Done>) {
        let state = lock(&self.state);
        let idle = |state: &mut FinishedState| {
            state.waited_for = state.done.is_empty() && !state.woken;
            state.waited_for
        };
        let mut state = match wait {
            None => self.arrived.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner),
            Some(wait) => self.arrived.wait_timeout_while(state, wait, idle).unwrap_or_else(PoisonError::into_inner).0,
        };
        (state.woken, state.waited_for) = (false, false);
        out.append(&mut state.done);
    }
}

impl Wake for Finished {
    fn wake(&self) {
        let mut state = lock(&self.state);
        state.woken = true;
        self.notify(state);
    }
}
