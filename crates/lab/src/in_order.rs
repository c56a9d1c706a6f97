//! Work on several threads whose results are told in order.

use base::error::Result;
use std::collections::BTreeMap;
use std::ops::{ControlFlow, Range};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// So many results for each thread may wait to be told.
const AHEAD: u64 = 8;

struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    end: u64,
    ahead: u64,
}

struct State<T> {
    /// The next number to be worked on.
    next: u64,
    /// The next number to be told.
    told: u64,
    done: BTreeMap<u64, std::thread::Result<T>>,
    /// Nothing more is asked for.
    over: bool,
}

/// Does the work of each number of the range on `jobs` threads and tells what came of it, in the order of the numbers, until `tell`
/// breaks off; work that is under way then is waited for and forgotten. A panic of the work is one of the caller. Errors: the system
/// gives no thread.
pub fn in_order<T: Send + 'static>(
    jobs: u64,
    numbers: Range<u64>,
    work: impl Fn(u64) -> T + Send + Sync + 'static,
    mut tell: impl FnMut(u64, T) -> ControlFlow<()>,
) -> Result<()> {
    let state = State { next: numbers.start, told: numbers.start, done: BTreeMap::new(), over: false };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        changed: Condvar::new(),
        end: numbers.end,
        ahead: jobs.saturating_mul(AHEAD),
    });
    let work = Arc::new(work);
    let mut threads = Vec::new();
    let mut told = Ok(());
    for number in 0..jobs.min(numbers.end.saturating_sub(numbers.start)) {
        let (shared, work) = (shared.clone(), work.clone());
        match os::thread::spawn(&format!("job {number}"), move || shared.work_through(work.as_ref())) {
            Ok(thread) => threads.push(thread),
            Err(error) => told = Err(error),
        }
    }
    let mut ended = None;
    if told.is_ok() {
        for number in numbers {
            match shared.result_of(number) {
                Ok(result) => {
                    if tell(number, result).is_break() {
                        break;
                    }
                }
                Err(panic) => {
                    ended = Some(panic);
                    break;
                }
            }
        }
    }
    shared.lock().over = true;
    shared.changed.notify_all();
    // What a thread panics of is caught there.
    threads.into_iter().for_each(|thread| drop(thread.join()));
    if let Some(panic) = ended {
        resume_unwind(panic);
    }
    told
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn work_through(&self, work: &(impl Fn(u64) -> T + ?Sized)) {
        while let Some(number) = self.take() {
            let result = catch_unwind(AssertUnwindSafe(|| work(number)));
            self.lock().done.insert(number, result);
            self.changed.notify_all();
        }
    }

    /// The next number to be worked on, when those before it were told.
    fn take(&self) -> Option<u64> {
        let mut state = self.lock();
        loop {
            if state.over || state.next >= self.end {
                return None;
            }
            if state.next < state.told.saturating_add(self.ahead) {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.wait(state);
        }
    }

    fn result_of(&self, number: u64) -> std::thread::Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(result) = state.done.remove(&number) {
                state.told = number + 1;
                self.changed.notify_all();
                return result;
            }
            state = self.wait(state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::in_order;
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Condvar, Mutex};
    use std::time::Duration;

    /// Results come in order however long each takes, several are worked on at once, and none runs far ahead of what was told.
    #[test]
    fn results_come_in_order() {
        let (begun, most) = (Arc::new((Mutex::new(0u64), Condvar::new())), Arc::new(AtomicU64::new(0)));
        let (seen, told) = (begun.clone(), Arc::new(AtomicU64::new(0)));
        let (ahead, behind) = (most.clone(), told.clone());
        let work = move |number: u64| {
            ahead.fetch_max(number - behind.load(Ordering::SeqCst), Ordering::SeqCst);
            let mut count = seen.0.lock().expect("nobody panics");
            *count += 1;
            seen.1.notify_all();
            // The first one ends only when another one was begun beside it.
            while number == 0 && *count < 2 {
                let (next, waited) = seen.1.wait_timeout(count, Duration::from_secs(60)).expect("nobody panics");
                assert!(!waited.timed_out(), "nothing is begun beside it");
                count = next;
            }
            number * number
        };
        let mut heard = Vec::new();
        let outcome = in_order(3, 0..200, work, |number, square| {
            told.store(number + 1, Ordering::SeqCst);
            heard.push((number, square));
            ControlFlow::Continue(())
        });
        assert!(outcome.is_ok());
        assert_eq!(heard, (0..200).map(|number| (number, number * number)).collect::<Vec<_>>());
        assert!(most.load(Ordering::SeqCst) <= 3 * super::AHEAD + 1, "{most:?}");
    }

    /// Nothing new is begun when it was broken off, no work is no trouble, and a panic of the work is the caller's.
    #[test]
    fn it_ends_early() {
        let begun = Arc::new(AtomicU64::new(0));
        let counted = begun.clone();
        let work = move |number: u64| {
            counted.fetch_add(1, Ordering::SeqCst);
            number
        };
        let mut last = 0;
        let outcome = in_order(2, 10..1_000_000, work, |number, _| {
            last = number;
            if number == 12 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(outcome.is_ok());
        assert_eq!(last, 12);
        assert!(begun.load(Ordering::SeqCst) <= 3 + 2 * super::AHEAD);
        assert!(in_order(4, 5..5, |number| number, |_, _| unreachable!("there is no work")).is_ok());
        let panics = std::panic::catch_unwind(|| {
            in_order(2, 0..9, |number| assert!(number != 3, "three"), |_, ()| ControlFlow::Continue(()))
        });
        assert!(panics.is_err());
    }
}
