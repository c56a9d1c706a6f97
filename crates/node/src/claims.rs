//! Who works on what, where several may come to the same thing at once: a claim is held by one at a time and given back when it is dropped.
//! In the memory of the keeper alone: after a restart nobody works on anything.

use base::env::Clock;
use base::id::DeviceId;
use base::unit::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Things of one kind, each claimed by one at a time.
pub struct Claims<K: Ord + Clone>(Arc<Claimed<K>>);

struct Claimed<K> {
    keys: Mutex<BTreeSet<K>>,
    given_back: Notify,
}

impl<K: Ord + Clone> Default for Claims<K> {
    fn default() -> Claims<K> {
        Claims(Arc::new(Claimed { keys: Mutex::default(), given_back: Notify::new() }))
    }
}

/// Something that is claimed for as long as this is there.
pub struct Claim<K: Ord + Clone> {
    key: K,
    of: Arc<Claimed<K>>,
}

impl<K: Ord + Clone> Claims<K> {
    /// Claims it, unless somebody else has.
    pub fn try_claim(&self, key: K) -> Option<Claim<K>> {
        let is_free = lock(&self.0.keys).insert(key.clone());
        is_free.then(|| Claim { key, of: self.0.clone() })
    }

    /// Claims it as soon as nobody else has it.
    pub async fn claim(&self, key: K) -> Claim<K> {
        loop {
            let mut given_back = pin!(self.0.given_back.notified());
            // Before it is tried: what is given back in between is heard of.
            given_back.as_mut().enable();
            if let Some(claim) = self.try_claim(key.clone()) {
                return claim;
            }
            given_back.await;
        }
    }
}

impl<K: Ord + Clone> Drop for Claim<K> {
    fn drop(&mut self) {
        lock(&self.of.keys).remove(&self.key);
        self.of.given_back.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
    use super::{Claims, Unanswered};
    use base::id::DeviceId;
    use sim::clock::SimClock;
    use std::collections::BTreeSet;
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    /// One has it at a time; who waits for it gets it when it is given back, and what is claimed beside it does not matter.
    #[test]
    fn one_at_a_time() {
        let claims = Claims::default();
        let (first, other) = (claims.try_claim(1).expect("it is free"), claims.try_claim(2).expect("so is that"));
        assert!(claims.try_claim(1).is_none());
        let mut context = Context::from_waker(Waker::noop());
        let (mut second, mut third) = (pin!(claims.claim(1)), pin!(claims.claim(1)));
        assert!(second.as_mut().poll(&mut context).is_pending() && third.as_mut().poll(&mut context).is_pending());
        drop(other);
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(first);
        let Poll::Ready(claim) = second.as_mut().poll(&mut context) else { panic!("it was given back") };
        assert!(third.as_mut().poll(&mut context).is_pending());
        drop(claim);
        assert!(third.as_mut().poll(&mut context).is_ready());
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
