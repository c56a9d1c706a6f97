//! The numbers of a session's calls: which changes may still be asked again, and how many are begun before the oldest is answered.

use crate::message::is_change;
use base::limit::REMEMBERED_CALLS;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Numbers calls: unique in a session whatever links it has. Clones count on together.
#[derive(Clone, Default)]
pub struct CallNumbers(Arc<Numbers>);

struct Numbers {
    state: Mutex<State>,
    /// The oldest change was answered, or there is more room.
    moved: Notify,
}

struct State {
    /// The number of the next call, from 1: 0 is for calls that are never asked again.
    next: u64,
    /// Changes ever begun.
    begun: u64,
    /// By the number of each change that may be sent again: how many were begun before it.
    unanswered: BTreeMap<u64, u64>,
    /// Changes begun from the oldest unanswered one on, at the most.
    room: u64,
}

impl Default for Numbers {
    fn default() -> Numbers {
        let state = State { next: 1, begun: 0, unanswered: BTreeMap::new(), room: REMEMBERED_CALLS as u64 };
        Numbers { state: Mutex::new(state), moved: Notify::new() }
    }
}

impl CallNumbers {
    /// At most so many changes are begun from the oldest unanswered one on, itself included: as many as the store remembers of a
    /// session. `limit::REMEMBERED_CALLS` unless this is called.
    pub fn set_room(&self, changes: usize) {
        self.lock().room = changes.max(1) as u64;
        self.0.moved.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a call that begins. A change waits while there is no room: the store would not remember its answer.
    pub(super) async fn begin(&self, kind: u16) -> CallNumber {
        let is_change = is_change(kind);
        if let Some(number) = self.try_begin(is_change) {
            return CallNumber { number, is_change, numbers: self.clone() };
        }
        loop {
            let mut moved = std::pin::pin!(self.0.moved.notified());
            // From here on no word is missed.
            moved.as_mut().enable();
            if let Some(number) = self.try_begin(is_change) {
                return CallNumber { number, is_change, numbers: self.clone() };
            }
            moved.await;
        }
    }

    fn try_begin(&self, is_change: bool) -> Option<u64> {
        let mut state = self.lock();
        if is_change {
            let oldest = state.unanswered.first_key_value().map_or(state.begun, |(_, before)| *before);
            if state.begun - oldest >= state.room {
                return None;
            }
            let (number, before) = (state.next, state.begun);
            state.unanswered.insert(number, before);
            state.begun += 1;
        }
        state.next += 1;
        Some(state.next - 1)
    }
}

/// The number of one call. When it is dropped the call is not sent any more.
pub(super) struct CallNumber {
    number: u64,
    is_change: bool,
    numbers: CallNumbers,
}

impl CallNumber {
    pub(super) fn value(&self) -> u64 {
        self.number
    }

    /// No change of the session with a lower number is sent from now on.
    pub(super) fn floor(&self) -> u64 {
        let state = self.numbers.lock();
        state.unanswered.first_key_value().map_or(state.next, |(number, _)| *number)
    }
}

impl Drop for CallNumber {
    fn drop(&mut self) {
        if !self.is_change {
            return;
        }
        let mut state = self.numbers.lock();
        let was_oldest = state.unanswered.first_key_value().is_some_and(|(number, _)| *number == self.number);
        state.unanswered.remove(&self.number);
        drop(state);
        if was_oldest {
            self.numbers.0.moved.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CallNumbers;
    use crate::message::{Ask, file};

    const CHANGE: u16 = file::Rename::KIND;
    const READ: u16 = file::Stat::KIND;

    /// The floor is the oldest change that is not answered; what is only read does not hold it, whenever it began.
    #[tokio::test]
    async fn the_floor() {
        let numbers = CallNumbers::default();
        let read = numbers.begin(READ).await;
        assert_eq!((read.value(), read.floor()), (1, 2));
        let (first, second) = (numbers.begin(CHANGE).await, numbers.begin(CHANGE).await);
        assert_eq!((first.value(), second.value(), second.floor()), (2, 3, 2));
        drop(second);
        assert_eq!((first.floor(), read.floor()), (2, 2));
        drop(first);
        assert_eq!(read.floor(), 4);
    }

    /// No more changes are begun than are remembered from the oldest unanswered one on, however many of them are answered. Those that
    /// wait begin when it is answered; reads do not wait.
    #[tokio::test]
    async fn changes_wait_for_the_oldest() {
        let numbers = CallNumbers::default();
        numbers.set_room(3);
        let oldest = numbers.begin(CHANGE).await;
        for _ in 0..2 {
            drop(numbers.begin(CHANGE).await);
        }
        let mut fourth = std::pin::pin!(numbers.begin(CHANGE));
        assert!(outcome_now(fourth.as_mut()).is_none());
        assert_eq!(numbers.begin(READ).await.floor(), oldest.value());
        drop(oldest);
        let fourth = fourth.await;
        assert_eq!(fourth.floor(), fourth.value());
    }

    /// What a future has come to without waiting.
    fn outcome_now<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
