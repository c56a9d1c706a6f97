//! The calls of one connection that are under way. They are worked on by the connection's own task: an answer of the store
//! wakes that task and no other, and a call costs no task of its own.

use crate::rpc::budget::Share;
use base::limit::HDFS_CALLS_MAX;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A call under way, and what comes of it.
pub type Doing<A> = Pin<Box<dyn Future<Output = A> + Send>>;

/// Places that are kept for the next calls when nothing is under way. More were a burst.
const SPARE_PLACES: usize = 8;

/// Calls under way, at most `HDFS_CALLS_MAX`.
pub struct Calls<A> {
    places: Vec<Slot<A>>,
    free: Vec<usize>,
    woken: Arc<Woken>,
}

struct Slot<A> {
    /// With what it holds.
    doing: Option<(Doing<A>, Arc<Share>)>,
    alarm: Arc<Alarm>,
    waker: Waker,
}

/// Which calls can go on, filled from any thread.
#[derive(Default)]
struct Woken(Mutex<List>);

#[derive(Default)]
struct List {
    places: Vec<usize>,
    /// The connection's task, if it sleeps. Whoever wakes it takes it, so that a burst of answers wakes once.
    task: Option<Waker>,
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the call of one place.
struct Alarm {
    place: usize,
    /// Whether the place is in the list.
    listed: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let mut list = self.woken.lock();
            list.places.push(self.place);
            list.task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl<A> Default for Calls<A> {
    fn default() -> Calls<A> {
        Calls { places: Vec::new(), free: Vec::new(), woken: Arc::default() }
    }
}

impl<A> Calls<A> {
    /// How many are under way.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether another one may begin.
    pub fn has_room(&self) -> bool {
        self.len() < HDFS_CALLS_MAX
    }

    /// Begins a call, which holds `share`; the answer if it is there at once. There must be room.
    pub fn begin(&mut self, doing: Doing<A>, share: Arc<Share>) -> Option<A> {
        assert!(self.has_room(), "a connection has {} calls under way", self.len());
        let at = self.free.pop().unwrap_or_else(|| {
            let woken = self.woken.clone();
            let alarm = Arc::new(Alarm { place: self.places.len(), listed: AtomicBool::new(false), woken });
            self.places.push(Slot { doing: None, waker: alarm.clone().into(), alarm });
            self.places.len() - 1
        });
        self.places[at].doing = Some((doing, share));
        self.go_on(at)
    }

    /// Gives up those calls that change nothing, or nothing yet: nobody hears their answers.
    pub fn forget_unchanged(&mut self) {
        for (at, place) in self.places.iter_mut().enumerate() {
            if place.doing.take_if(|(_, share)| !share.changes()).is_some() {
                self.free.push(at);
            }
        }
    }

    /// Lets those calls go on that can, and hands over the answers that are there. What can go on meanwhile is for the next turn, so that
    /// reading and writing get theirs, and wakes nobody: the task is at work until it sleeps.
    pub fn turn(&mut self, mut answered: impl FnMut(A)) {
        let mut ready = {
            let mut list = self.woken.lock();
            list.task = None;
            std::mem::take(&mut list.places)
        };
        for at in ready.drain(..) {
            self.places[at].alarm.listed.store(false, Ordering::Release);
            if let Some(answer) = self.go_on(at) {
                answered(answer);
            }
        }
        if self.len() == 0 && self.places.len() > SPARE_PLACES {
            // Late alarms of calls that are through hold the old list; nobody reads it.
            *self = Calls::default();
        }
        let mut list = self.woken.lock();
        if list.places.is_empty() {
            // Its memory serves the next burst.
            list.places = ready;
        }
    }

    /// Lets `context` be woken when a call can go on. False: one can now, so the task has to take another turn; not without end, for a task that
    /// has had its share of time gets no answers before others had theirs.
    #[must_use]
    pub fn sleep(&self, context: &Context<'_>) -> bool {
        let mut list = self.woken.lock();
        if list.places.is_empty() {
            list.task = Some(context.waker().clone());
        }
        list.places.is_empty()
    }

    /// Takes a call one step further.
    fn go_on(&mut self, at: usize) -> Option<A> {
        let place = &mut self.places[at];
        // A call that is through may have left an alarm behind.
        let (doing, _) = place.doing.as_mut()?;
        match doing.as_mut().poll(&mut Context::from_waker(&place.waker)) {
            Poll::Ready(answer) => {
                place.doing = None;
                self.free.push(at);
                Some(answer)
            }
            Poll::Pending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Calls, SPARE_PLACES};
    use crate::rpc::budget::Share;
    use crate::rpc::frame::Answer;
    use base::limit::HDFS_CALLS_MAX;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Poll;
    use tokio::sync::oneshot;

    fn waiting(call: i32) -> (oneshot::Sender<()>, super::Doing<Answer>) {
        let (tell, told) = oneshot::channel();
        let doing = async move {
            drop(told.await);
            (call, Ok(Vec::new()))
        };
        (tell, Box::pin(doing))
    }

    /// The next answers, when there are some.
    async fn answers(calls: &mut Calls<Answer>) -> Vec<i32> {
        let mut numbers = Vec::new();
        poll_fn(|context| {
            calls.turn(|(call, _): Answer| numbers.push(call));
            if !numbers.is_empty() {
                return Poll::Ready(());
            }
            // Not at once again: a task that has had its share of time gets no answers before others had theirs.
            if !calls.sleep(context) {
                context.waker().wake_by_ref();
            }
            Poll::Pending
        })
        .await;
        numbers
    }

    /// A call that is done at once is answered at once and takes no place; others are answered in the order in which they end.
    #[tokio::test]
    async fn any_order() {
        let mut calls = Calls::default();
        assert_eq!(calls.begin(Box::pin(async { (9, Ok(vec![1])) }), Arc::default()), Some((9, Ok(vec![1]))));
        assert_eq!(calls.len(), 0);
        let (first, doing) = waiting(1);
        assert_eq!(calls.begin(doing, Arc::default()), None);
        let (second, doing) = waiting(2);
        assert_eq!(calls.begin(doing, Arc::default()), None);
        drop(second);
        assert_eq!((answers(&mut calls).await, calls.len()), (vec![2], 1));
        let (third, doing) = waiting(3);
        assert_eq!(calls.begin(doing, Arc::default()), None);
        drop(third);
        drop(first);
        assert_eq!((answers(&mut calls).await, calls.len()), (vec![3, 1], 0), "both with one wake-up");
    }

    /// Calls whose answers nobody hears are given up, with all that they hold, unless they may change something.
    #[tokio::test]
    async fn given_up() {
        let mut calls = Calls::default();
        let changing = Arc::new(Share::default());
        changing.set_changes(true);
        let (tell, doing) = waiting(1);
        assert_eq!(calls.begin(doing, changing), None);
        let (told, doing) = waiting(2);
        assert_eq!(calls.begin(doing, Arc::default()), None);
        calls.forget_unchanged();
        assert!(told.is_closed() && !tell.is_closed() && calls.len() == 1);
        drop(tell);
        assert_eq!((answers(&mut calls).await, calls.len()), (vec![1], 0));
    }

    /// Calls that end on other threads while the connection sleeps are all answered; their number is bounded, and afterwards
    /// little memory is kept.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn from_other_threads() {
        let mut calls = Calls::default();
        for round in 0..50 {
            let mut tells = Vec::new();
            for call in 0..HDFS_CALLS_MAX as i32 {
                let (tell, doing) = waiting(call);
                assert_eq!(calls.begin(doing, Arc::default()), None);
                tells.push(tell);
            }
            assert!(!calls.has_room());
            let ending = tokio::spawn(async move {
                for tell in tells {
                    drop(tell);
                    if round % 5 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
            });
            let mut done = Vec::new();
            while done.len() < HDFS_CALLS_MAX {
                done.extend(answers(&mut calls).await);
            }
            done.sort_unstable();
            assert_eq!(done, (0..HDFS_CALLS_MAX as i32).collect::<Vec<i32>>());
            assert!(calls.len() == 0 && calls.places.len() <= SPARE_PLACES);
            ending.await.expect("no panic");
        }
    }
}
