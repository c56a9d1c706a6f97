//! Answers to changes, kept for a while: a client that lost the connection before it was answered asks again under the same
//! name and number, and the change must not be made twice. What was made through another gateway the store remembers.

use crate::caller::Caller;
use crate::refusal::Refusal;
use base::env::Clock;
use base::limit::{HDFS_RETRIES_BYTES_MAX, HDFS_RETRIES_MAX, HDFS_RETRY_WINDOW};
use base::unit::Time;
use base::watched::Watched;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A client's name and its call's number.
type Name = ([u8; 16], i32);

/// Answers to changes.
#[derive(Default)]
pub struct RetryCache(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    calls: BTreeMap<Name, State>,
    /// Finished calls and when they were, the oldest first.
    order: VecDeque<(Time, Name)>,
    /// Bytes of the answers.
    bytes: usize,
}

enum State {
    /// It is being done; those who wait hear when it is not any more, and why it was refused if it was.
    Doing(Watched<Over>),
    /// It was done.
    Done(Arc<[u8]>),
}

/// How it is with a call that somebody does.
#[derive(Default)]
struct Over {
    is_over: bool,
    refusal: Option<Refusal>,
}

/// What is known of a call that begins.
pub enum Known {
    /// Nothing, or it was not done: do it, and say how it went.
    Do(Turn),
    /// It was done, with this answer.
    Done(Arc<[u8]>),
    /// It was not done: refused while this call waited for it, or it waited for too long.
    Refused(Refusal),
}

/// The right to do a call. When it is dropped without an answer, others may do it.
pub struct Turn {
    kept: Arc<Mutex<Kept>>,
    name: Name,
    over: Watched<Over>,
}

fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RetryCache {
    /// What is known of this call. Waits while somebody else does it. `None`: the client has no name, so it cannot ask again.
    pub async fn begin(&self, caller: &Caller) -> Option<Known> {
        let name = (caller.client_id, caller.call);
        if name.0 == [0; 16] {
            return None;
        }
        loop {
            let doing = match lock(&self.0).calls.get(&name) {
                Some(State::Done(answer)) => return Some(Known::Done(answer.clone())),
                Some(State::Doing(over)) => Some(over.clone()),
                None => None,
            };
            match doing {
                Some(over) => {
                    let ended = caller.share.stand(over.until(|over| over.is_over)).await;
                    if let Err(refusal) = ended {
                        return Some(Known::Refused(refusal));
                    }
                    if let Some(refusal) = over.look(|over| over.refusal.clone()) {
                        return Some(Known::Refused(refusal));
                    }
                }
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
        let over: Watched<Over> = Watched::default();
        let mut kept = lock(&self.0);
        if kept.calls.contains_key(&name) {
            return None;
        }
        kept.calls.insert(name, State::Doing(over.clone()));
        Some(Turn { kept: self.0.clone(), name, over })
    }
}

impl Turn {
    /// It was refused. That is not kept, for a client that asks again means it; but those who asked the same meanwhile are told, instead
    /// of being refused one after another.
    pub fn refused(self, refusal: &Refusal) {
        self.over.change(|over| over.refusal = Some(refusal.clone()));
    }

    /// It was done.
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
        drop(kept);
        self.over.change(|over| over.is_over = true);
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

#[cfg(test)]
mod tests {
    use super::{Known, RetryCache, lock};
    use crate::caller::Caller;
    use crate::refusal::Refusal;
    use base::limit::{HDFS_RETRIES_BYTES_MAX, HDFS_RETRIES_MAX, HDFS_RETRY_WINDOW};
    use sim::clock::SimClock;
    use std::sync::Arc;

    fn caller(client: u8, call: i32) -> Caller {
        let (user, judged_as, address) = ("ada".into(), Arc::default(), "here:1".into());
        Caller {
            user,
            judged_as,
            superuser: false,
            client_id: [client; 16],
            call,
            again: false,
            address,
            share: Arc::default(),
        }
    }

    async fn turn(retries: &RetryCache, client: u8, call: i32) -> super::Turn {
        match retries.begin(&caller(client, call)).await {
            Some(Known::Do(turn)) => turn,
            _ => panic!("call {call} of client {client} is new"),
        }
    }

    async fn answer(retries: &RetryCache, client: u8, call: i32) -> Option<Vec<u8>> {
        match retries.begin(&caller(client, call)).await {
            Some(Known::Done(answer)) => Some(answer.to_vec()),
            _ => None,
        }
    }

    /// A change that was done is not done again: its answer is remembered, for that client and that call alone. One that was
    /// refused or given up is done again. Clients without a name are not remembered.
    #[tokio::test]
    async fn remembered() {
        let (retries, clock) = (RetryCache::default(), SimClock::new());
        turn(&retries, 1, 7).await.done(&clock, b"yes");
        assert_eq!(answer(&retries, 1, 7).await.as_deref(), Some(b"yes".as_slice()));
        assert_eq!((answer(&retries, 1, 8).await, answer(&retries, 2, 7).await), (None, None));
        drop(turn(&retries, 1, 9).await);
        turn(&retries, 1, 9).await.done(&clock, b"");
        assert_eq!(answer(&retries, 1, 9).await, Some(Vec::new()));
        assert!(retries.begin(&caller(0, 1)).await.is_none());
    }

    /// Who asks while the change is being made waits for it; if it comes to nothing, one of those who wait makes it.
    #[tokio::test]
    async fn waited_for() {
        let retries = Arc::new(RetryCache::default());
        for done in [true, false] {
            let first = turn(&retries, 3, i32::from(done)).await;
            let others: Vec<_> = (0..3)
                .map(|_| {
                    let retries = retries.clone();
                    tokio::spawn(async move {
                        match retries.begin(&caller(3, i32::from(done))).await {
                            Some(Known::Done(answer)) => (answer.to_vec(), 0),
                            Some(Known::Do(turn)) => {
                                turn.done(&SimClock::new(), b"second");
                                (b"second".to_vec(), 1)
                            }
                            Some(Known::Refused(_)) | None => unreachable!("it has a name, and nobody was refused"),
                        }
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            assert!(others.iter().all(|other| !other.is_finished()));
            let expected: &[u8] = if done {
                first.done(&SimClock::new(), b"first");
                b"first"
            } else {
                drop(first);
                b"second"
            };
            let mut made = 0;
            for other in others {
                let (answer, more) = other.await.expect("no panic");
                assert_eq!(answer, expected);
                made += more;
            }
            assert_eq!(made, i32::from(!done));
        }
    }

    /// Those who wait for a call that is refused are refused with it; who asks later is not.
    #[tokio::test]
    async fn refused_together() {
        let retries = Arc::new(RetryCache::default());
        let first = turn(&retries, 5, 1).await;
        let others: Vec<_> = (0..3)
            .map(|_| {
                let retries = retries.clone();
                tokio::spawn(async move { retries.begin(&caller(5, 1)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(others.iter().all(|other| !other.is_finished()));
        first.refused(&Refusal::io("no"));
        for other in others {
            assert!(matches!(other.await.expect("no panic"), Some(Known::Refused(refusal)) if refusal.text == "no"));
        }
        turn(&retries, 5, 1).await.done(&SimClock::new(), b"yes");
    }

    /// After ten minutes an answer is forgotten, and before that if there are too many, or too many bytes of them.
    #[tokio::test]
    async fn bounded() {
        let (retries, clock) = (RetryCache::default(), SimClock::new());
        turn(&retries, 1, 1).await.done(&clock, b"old");
        clock.advance(HDFS_RETRY_WINDOW);
        turn(&retries, 1, 2).await.done(&clock, b"new");
        assert_eq!((answer(&retries, 1, 1).await, answer(&retries, 1, 2).await), (None, Some(b"new".to_vec())));
        for call in 0..HDFS_RETRIES_MAX as i32 {
            turn(&retries, 2, call).await.done(&clock, b"");
        }
        assert_eq!((answer(&retries, 1, 2).await, lock(&retries.0).calls.len()), (None, HDFS_RETRIES_MAX));
        let large = vec![0; HDFS_RETRIES_BYTES_MAX / 2];
        for call in 0..3 {
            turn(&retries, 3, call).await.done(&clock, &large);
        }
        assert_eq!((answer(&retries, 3, 0).await, lock(&retries.0).calls.len()), (None, 2));
        assert!(answer(&retries, 3, 2).await.is_some());
        turn(&retries, 4, 0).await.done(&clock, &vec![0; HDFS_RETRIES_BYTES_MAX + 1]);
        let kept = lock(&retries.0);
        assert_eq!((kept.calls.len(), kept.bytes), (0, 0));
    }
}
