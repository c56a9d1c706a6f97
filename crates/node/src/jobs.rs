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
use crate::service::Node;
use base::env::Clock;
use base::error::Result;
use base::id::{BagId, DeviceId, GroupId};
use base::limit::NODE_SILENCE_MAX;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How often most jobs look without being told to.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long a job waits after it was woken (a delete), so that one step does what many changes left: a step costs a sync of its own
/// and as much processor as ten deletes.
const GATHER: Duration = Duration::from_millis(50);

/// How long a device has for an order of a job before it stands still: as long as a node may be silent.
pub const PATIENCE: Duration = NODE_SILENCE_MAX;

/// Something that the keeper does again and again.
pub trait Job: Send + 'static {
    /// Its name, for people.
    const NAME: &'static str;
    /// Whether it is woken by what comes onto the metadata store's lists of work: garbage, files whose writer is gone.
    const WOKEN: bool = false;

    /// Does what can be done now. Whether there is more to do at once.
    fn step(&mut self, node: &Arc<Node>) -> impl Future<Output = Result<bool>> + Send;
}

/// Runs a job until the node stops.
pub async fn run<J: Job>(mut job: J, node: Arc<Node>, mut stopped: watch::Receiver<bool>) {
    let Ok(mut work) = node.metadata().map(|metadata| metadata.work()) else {
        unreachable!("only the node that keeps the metadata keeps house")
    };
    while !*stopped.borrow() {
        let done = tokio::select! {
            biased;
            _ = stopped.changed() => return,
            done = job.step(&node) => done,
        };
        if matches!(done, Ok(true)) {
            continue;
        }
        said(&node, J::NAME, done.map(drop));
        tokio::select! {
            biased;
            _ = stopped.changed() => return,
            () = woken(&mut work), if J::WOKEN => (),
            () = tokio::time::sleep(LOOK_EVERY) => (),
        }
    }
}

/// Waits until there is something to do, and a little more of it.
async fn woken(work: &mut watch::Receiver<()>) {
    if work.changed().await.is_err() {
        // The metadata store has ended, and the node with it.
        std::future::pending::<()>().await;
    }
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
}

impl Jobs {
    /// Nobody works on anything yet.
    pub fn new(clock: Arc<dyn Clock>) -> Jobs {
        let (groups, bags, told) = (Claims::default(), Claims::default(), Claims::default());
        Jobs { groups, bags, told, unanswered: Unanswered::new(clock) }
    }

    /// Devices that stand still.
    pub fn still(&self) -> BTreeSet<DeviceId> {
        self.unanswered.older_than(PATIENCE)
    }

    /// Begins to order something of a device, in parts: `work` says when the next one is given. It goes on whether its answer is waited for
    /// or not.
    pub fn order<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        device: DeviceId,
        work: impl FnOnce(Arc<Order>) -> F,
    ) -> Ordered<T> {
        let order = Arc::new(self.unanswered.begin(device));
        Ordered { order: Arc::downgrade(&order), task: tokio::spawn(work(order)) }
    }
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
            let age = self.order.upgrade().map_or(Duration::ZERO, |order| order.age());
            if age >= PATIENCE {
                return None;
            }
            match timeout(PATIENCE - age, &mut self.task).await {
                // A fault in it was said where it happened; nobody knows how far it came.
                Ok(ended) => return ended.ok(),
                // It went on meanwhile, or it is too late.
                Err(_) => (),
            }
        }
    }
}
