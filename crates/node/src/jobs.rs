//! What the keeper does by itself, as jobs: each is a task with its own cadence, so that none waits for another one's slowest device.
//!
//! Here is what all jobs share: their shape, what runs them, how long they wait for a device, and what they claim. What a job does stands
//! in a file of its own; which ones there are, in `housekeeping::run`.
//!
//! A job has a step, which does what can be done now. A step may be repeated, cut short anywhere, and run beside all others: what is left
//! to do follows from the metadata store and the devices, and whatever two must not do to one thing at once is claimed. What a job
//! remembers between steps only spares work.
//!
//! A device that does not answer within `PATIENCE` stands still. From then on, until it answers, jobs treat it as one that is missing: they
//! order nothing more of it, so what waits in its mailbox is what was ordered before, one order of a job or a few. The order itself goes
//! on, and may be done at any time later. So an order is only given where that harms nobody: who gives it says why, or holds a claim until
//! it is answered that keeps everybody away whom it would harm.

use crate::claims::{Claims, Order, Unanswered};
use crate::log::Level;
use crate::place::Place;
use crate::service::Node;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, DeviceId, GroupId};
use base::limit::{MOVES_MAX, NODE_SILENCE_MAX};
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How often most jobs look without being told to.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a job waits after it was woken (a delete), so that one step does what many changes left: a step costs a sync of its own
/// and as much processor as ten deletes.
pub const GATHER: Duration = Duration::from_millis(50);

/// How long a device has for an order of a job before it stands still: as long as a node may be silent.
pub const PATIENCE: Duration = NODE_SILENCE_MAX;

/// How long a step waits for an order of which part after part is answered: a slow device must not hold up the others either.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(4 * PATIENCE.as_secs());

/// Something that the keeper does again and again.
pub trait Job: Send + 'static {
    /// Its name, for people.
    const NAME: &'static str;
    /// Whether it is woken by what comes onto the metadata store's lists of work: garbage, files whose writer is gone.
    const WOKEN: bool = false;

    /// Does what can be done now. Whether there is more to do at once.
    fn step(&mut self, node: &Arc<Node>) -> impl Future<Output = Result<bool>> + Send;
}

/// Runs a job until it is cut short.
pub async fn run<J: Job>(mut job: J, node: Arc<Node>) {
    let Ok(work) = node.metadata().map(|metadata| metadata.work()) else {
        unreachable!("only the node that keeps the metadata keeps house")
    };
    loop {
        let done = job.step(&node).await;
        if matches!(done, Ok(true)) {
            continue;
        }
        said(&node, J::NAME, done.map(drop));
        tokio::select! {
            biased;
            () = woken(&work), if J::WOKEN => (),
            () = tokio::time::sleep(LOOK_EVERY) => (),
        }
    }
}

/// Waits until there is something to do, and a little more of it.
async fn woken(work: &Notify) {
    work.notified().await;
    tokio::time::sleep(GATHER).await;
}

/// Says what went wrong with a job, once a step; the next one tries again. Returns whether it went well.
pub fn said(node: &Node, job: &str, result: Result<()>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            let text = format!("{error}; no data is at risk; it is tried again");
            node.log.say(Level::Warn, "housekeeping", &text, &[("job", &job)]);
            false
        }
    }
}

/// What jobs share.
pub struct Jobs {
    /// Groups whose chunks are being freed, or are named on another device.
    pub groups: Claims<GroupId>,
    /// Bags whose members change, or that are being dropped.
    pub bags: Claims<BagId>,
    /// Devices that are told of a bag: before they become members of it, and when they come back.
    pub told: Claims<(BagId, DeviceId)>,
    /// What devices have not answered.
    pub unanswered: Unanswered,
    /// Chunks that may be on their way off devices at once.
    pub moves: Arc<Semaphore>,
}

impl Jobs {
    /// Nobody works on anything yet.
    pub fn new(clock: Arc<dyn Clock>) -> Jobs {
        let (groups, bags, told) = (Claims::default(), Claims::default(), Claims::default());
        let moves = Arc::new(Semaphore::new(MOVES_MAX));
        Jobs { groups, bags, told, unanswered: Unanswered::new(clock), moves }
    }

    /// Devices that stand still.
    pub fn still(&self) -> BTreeSet<DeviceId> {
        self.unanswered.older_than(PATIENCE)
    }

    /// Orders something of a device and waits for the answer, as long as jobs do; an error if it does not come in time, and nobody knows then
    /// whether it was done, or will be.
    pub async fn told<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        place: &Place,
        work: impl FnOnce(Place, Arc<Order>) -> F,
    ) -> Result<T> {
        let ordered = self.order(place.id(), |order| work(place.clone(), order));
        ordered.answer().await.unwrap_or_else(|| Err(unanswered(place)))
    }

    /// Begins to order something of a device, in parts: `work` says when the next one is given. It goes on whether its answer is waited for
    /// or not.
    pub fn order<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        device: DeviceId,
        work: impl FnOnce(Arc<Order>) -> F,
    ) -> Ordered<T> {
        let order = Arc::new(self.unanswered.begin(device));
        let (given, work) = (Arc::downgrade(&order), work(order.clone()));
        let task = tokio::spawn(async move {
            let done = work.await;
            // Until then it is not answered, whether the work knows of it or not.
            drop(order);
            done
        });
        Ordered { order: given, task }
    }
}

fn unanswered(place: &Place) -> Error {
    let text =
        format!("{} has not answered; what it was told may still be done; others go on meanwhile", place.shown());
    Error::new(ErrorKind::Unreachable, text)
}

/// Something that a device was ordered.
pub struct Ordered<T> {
    order: Weak<Order>,
    task: JoinHandle<Result<T>>,
}

impl<T> Ordered<T> {
    /// The answer; none: it does not come in time.
    pub async fn answer(mut self) -> Option<Result<T>> {
        loop {
            let ages = self.order.upgrade().map(|order| (order.age(), order.lasts()));
            let (age, in_all) = ages.unwrap_or_default();
            if age >= PATIENCE || in_all >= PATIENCE_IN_ALL {
                return None;
            }
            // Else it went on meanwhile, or it is too late. A fault in it was said where it happened; nobody knows how far it came.
            if let Ok(ended) = timeout(PATIENCE - age, &mut self.task).await {
                return ended.ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Jobs, PATIENCE, PATIENCE_IN_ALL};
    use base::env::Clock;
    use base::error::Result;
    use base::id::DeviceId;
    use sim::clock::SimClock;
    use std::sync::Arc;
    use tokio::sync::oneshot;

    /// An order that is not answered in time is given up by who gave it, and goes on; its device stands still until it is done. One that was
    /// answered is not waited for.
    #[tokio::test]
    async fn given_up_and_not_forgotten() {
        let (clock, device) = (Arc::new(SimClock::default()), DeviceId(1));
        let jobs = Jobs::new(clock.clone());
        let (tell, told) = oneshot::channel::<()>();
        let late = jobs.order(device, |_| async move {
            let _told = told.await;
            Ok(())
        });
        let quick = jobs.order(DeviceId(2), |_| async { Ok(7) });
        assert_eq!(quick.answer().await, Some(Ok(7)));
        assert!(jobs.still().is_empty());
        clock.advance(PATIENCE);
        assert_eq!(jobs.still(), [device].into());
        assert!(late.answer().await.is_none());
        assert_eq!(jobs.still(), [device].into(), "it is owed");
        tell.send(()).expect("it goes on");
        while !jobs.still().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// An order of which part after part is answered is waited for, but not for ever.
    #[tokio::test]
    async fn slow_is_not_still() {
        let (clock, device) = (Arc::new(SimClock::default()), DeviceId(1));
        let jobs = Jobs::new(clock.clone());
        let parts = clock.clone();
        let slow = jobs.order(device, |order| async move {
            for _ in 0..PATIENCE_IN_ALL.as_secs() {
                parts.advance(std::time::Duration::from_secs(1));
                order.goes_on();
            }
            std::future::pending::<Result<()>>().await
        });
        let begun = Clock::now(&*clock);
        while Clock::now(&*clock).since(begun) < PATIENCE_IN_ALL {
            tokio::task::yield_now().await;
        }
        assert!(slow.answer().await.is_none());
        assert!(jobs.still().is_empty());
    }
}
