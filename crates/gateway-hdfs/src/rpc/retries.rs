//! Answers to changes, kept for a while: a client that lost the connection before it was answered asks again under the same
//! name and number, and the change must not be made twice.

use crate::caller::Caller;
use base::env::Clock;
use base::limit::{HDFS_RETRIES_BYTES_MAX, HDFS_RETRIES_MAX, HDFS_RETRY_WINDOW};
use base::unit::Time;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The methods that may be done only once: those that Hadoop marks so and that change something here.
const ONCE: [&str; 9] =
    ["append", "concat", "create", "delete", "removeXAttr", "rename", "rename2", "setXAttr", "updatePipeline"];

/// Whether the answer to this method is kept.
pub fn is_kept(method: &str) -> bool {
    ONCE.binary_search(&method).is_ok()
}

/// A client's name and its call's number.
type Name = ([u8; 16], i32);

/// Answers to changes.
#[derive(Default)]
pub struct Retries(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    calls: BTreeMap<Name, State>,
    /// Finished calls and when they were, the oldest first.
    order: VecDeque<(Time, Name)>,
    /// Bytes of the answers.
    bytes: usize,
}

enum State {
    /// It is being done; those who wait hear when it is not any more.
    Doing(watch::Receiver<()>),
    /// It was done.
    Done(Arc<[u8]>),
}

/// What is known of a call that begins.
pub enum Known {
    /// Nothing, or it was not done: do it, and say how it went.
    Do(Turn),
    /// It was done, with this answer.
    Done(Arc<[u8]>),
}

/// The right to do a call. When it is dropped without an answer, others may do it.
pub struct Turn {
    kept: Arc<Mutex<Kept>>,
    name: Name,
    _over: watch::Sender<()>,
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Retries {
    /// What is known of this call. Waits while somebody else does it. `None`: the client has no name, so it cannot ask again.
    pub async fn begin(&self, caller: &Caller) -> Option<Known> {
        let name = (caller.client_id, caller.call);
        if name.0 == [0; 16] {
            return None;
        }
        loop {
            let mut doing = match lock(&self.0).calls.get(&name) {
                Some(State::Done(answer)) => return Some(Known::Done(answer.clone())),
                Some(State::Doing(over)) => Some(over.clone()),
                None => None,
            };
            match &mut doing {
                // Nothing is ever sent: this ends when the turn is dropped.
                Some(over) => while over.changed().await.is_ok() {},
                None => {
                    if let Some(turn) = self.take_turn(name) {
                        return Some(Known::Do(turn));
                    }
                }
            }
        }
    }

    /// `None`: somebody else was faster.
    fn take_turn(&self, name: Name) -> Option<Turn> {
        let (sender, over) = watch::channel(());
        let mut kept = lock(&self.0);
        if kept.calls.contains_key(&name) {
            return None;
        }
        kept.calls.insert(name, State::Doing(over));
        Some(Turn { kept: self.0.clone(), name, _over: sender })
    }
}

impl Turn {
    /// It was done. What was refused is not kept: a client that asks again means it.
    pub fn done(self, clock: &dyn Clock, answer: &[u8]) {
        let now = clock.now();
        let mut kept = lock(&self.kept);
        kept.calls.insert(self.name, State::Done(answer.into()));
        kept.order.push_back((now, self.name));
        kept.bytes = kept.bytes.saturating_add(answer.len());
        while kept.order.front().is_some_and(|(since, _)| {
            now.since(*since) >= HDFS_RETRY_WINDOW
                || kept.order.len() > HDFS_RETRIES_MAX
                || kept.bytes > HDFS_RETRIES_BYTES_MAX
        }) {
            kept.forget_oldest();
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut kept = lock(&self.kept);
        if matches!(kept.calls.get(&self.name), Some(State::Doing(_))) {
            kept.calls.remove(&self.name);
        }
    }
}

impl Kept {
    fn forget_oldest(&mut self) {
        if let Some((_, name)) = self.order.pop_front()
            && let Some(State::Done(answer)) = self.calls.remove(&name)
        {
            self.bytes = self.bytes.saturating_sub(answer.len());
        }
    }
}
