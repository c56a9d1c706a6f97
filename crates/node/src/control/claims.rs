//! Who works on what, where several may come to the same thing at once: a claim is held by one at a time and given back when it is dropped.
//! In the memory of the keeper alone: after a restart nobody works on anything.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::Claims;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

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
}
