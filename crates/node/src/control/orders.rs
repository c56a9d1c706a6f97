//! What jobs share: what they claim, and the orders that they give devices.
//!
//! A device that does not answer within `PATIENCE` stands still. From then on, until it answers, jobs treat it as one that is missing: they
//! order nothing more of it, so what waits in its mailbox is what was ordered before, one order of a job or a few. The order itself goes
//! on, and may be done at any time later. So an order is only given where that harms nobody: who gives it says why, or holds a claim until
//! it is answered that keeps everybody away whom it would harm.

use super::claims::{Claims, lock};
use crate::device_handle::DeviceHandle;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, GroupId};
use base::limit::{MOVES_MAX, NODE_SILENCE_MAX};
use base::unit::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a device has for an order of a job before it stands still: as long as a node may be silent.
pub const PATIENCE: Duration = NODE_SILENCE_MAX;

/// How long a step waits for an order of which part after part is answered: a slow device must not hold up the others either.
const PATIENCE_IN_ALL: Duration = Duration::from_secs(4 * PATIENCE.as_secs());

/// What jobs share.
pub struct Jobs {
    /// Groups whose chunks are being freed, or are named on another device.
    pub groups: Claims<GroupId>,
    /// Chunks of groups that are being copied to another device, or deleted because the metadata do not know them there.
    pub copying: Claims<(GroupId, ChunkId)>,
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
        let (copying, moves) = (Claims::default(), Arc::new(Semaphore::new(MOVES_MAX)));
        Jobs { groups, copying, bags, told, unanswered: Unanswered::new(clock), moves }
    }

    /// Devices that stand still.
    pub fn still(&self) -> BTreeSet<DeviceId> {
        self.unanswered.older_than(PATIENCE)
    }

    /// Orders something of a device and waits for the answer, as long as jobs do; an error if it does not come in time, and nobody knows then
    /// whether it was done, or will be.
    pub async fn told<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        handle: &DeviceHandle,
        work: impl FnOnce(DeviceHandle, Arc<Order>) -> F,
    ) -> Result<T> {
        let ordered = self.order(handle.id(), |order| work(handle.clone(), order));
        ordered.answer().await.unwrap_or_else(|| Err(unanswered(handle)))
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

fn unanswered(handle: &DeviceHandle) -> Error {
    let text =
        format!("{} has not answered; what it was told may still be done; others go on meanwhile", handle.shown());
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

/// Orders that were given to devices and are not answered, with when they were given.
pub struct Unanswered {
    clock: Arc<dyn Clock>,
    orders: Arc<Mutex<BTreeMap<(DeviceId, u64), Time>>>,
}

/// An order that is not answered for as long as this is there.
pub struct Order {
    key: (DeviceId, u64),
    begun: Time,
    clock: Arc<dyn Clock>,
    orders: Arc<Mutex<BTreeMap<(DeviceId, u64), Time>>>,
}

impl Unanswered {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Unanswered {
        Unanswered { clock, orders: Arc::default() }
    }

    /// A device is ordered something.
    pub fn begin(&self, device: DeviceId) -> Order {
        let (now, mut orders) = (self.clock.now(), lock(&self.orders));
        let last = orders.range((device, 0)..=(device, u64::MAX)).next_back();
        let key = (device, last.map_or(0, |((_, number), _)| number + 1));
        orders.insert(key, now);
        Order { key, begun: now, clock: self.clock.clone(), orders: self.orders.clone() }
    }

    /// The devices of which an order is older than this.
    pub fn older_than(&self, age: Duration) -> BTreeSet<DeviceId> {
        let now = self.clock.now();
        let orders = lock(&self.orders);
        orders.iter().filter(|(_, given)| now.since(**given) >= age).map(|((device, _), _)| *device).collect()
    }
}

impl Order {
    /// A part of it was answered, and the next one is given.
    pub fn goes_on(&self) {
        lock(&self.orders).insert(self.key, self.clock.now());
    }

    /// The next part of it may have to wait for so long before anything is done.
    pub fn may_wait(&self, time: Duration) {
        lock(&self.orders).insert(self.key, self.clock.now().after(time));
    }

    /// For how long it has been under way, all its parts.
    pub fn lasts(&self) -> Duration {
        self.clock.now().since(self.begun)
    }

    /// For how long it has not been answered.
    pub fn age(&self) -> Duration {
        lock(&self.orders).get(&self.key).map_or(Duration::ZERO, |given| self.clock.now().since(*given))
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        lock(&self.orders).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::{Jobs, PATIENCE, PATIENCE_IN_ALL, Unanswered};
    use base::env::Clock;
    use base::error::Result;
    use base::id::DeviceId;
    use sim::clock::SimClock;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;
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
                parts.advance(Duration::from_secs(1));
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

    /// A device stands still from when its oldest order is too old until that one is answered, whatever others are.
    #[test]
    fn the_oldest_order_counts() {
        let clock = Arc::new(SimClock::default());
        let unanswered = Unanswered::new(clock.clone());
        let (slow, quick) = (DeviceId(1), DeviceId(2));
        let is_late = |devices: &[DeviceId]| {
            assert_eq!(unanswered.older_than(Duration::from_secs(5)), devices.iter().copied().collect::<BTreeSet<_>>());
        };
        let first = unanswered.begin(slow);
        clock.advance(Duration::from_secs(4));
        let others = (unanswered.begin(slow), unanswered.begin(quick));
        is_late(&[]);
        clock.advance(Duration::from_secs(1));
        is_late(&[slow]);
        first.goes_on();
        is_late(&[]);
        clock.advance(Duration::from_secs(5));
        is_late(&[slow, quick]);
        drop(others);
        is_late(&[slow]);
        drop(first);
        is_late(&[]);
    }
}
