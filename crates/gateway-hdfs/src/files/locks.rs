//! One lock for each path that somebody waits for or has: as many as there are calls under way that open files.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedMutexGuard;

/// Locks by path.
#[derive(Default)]
pub struct Locks {
    in_use: Mutex<BTreeMap<Box<str>, InUse>>,
}

/// The lock of a path, and how many have it or wait for it.
#[derive(Default)]
struct InUse {
    lock: Arc<tokio::sync::Mutex<()>>,
    users: usize,
}

/// Nobody else has the path until this is dropped.
pub struct Held<'a> {
    // In this order: the lock is free before nobody uses it any more.
    _lock: OwnedMutexGuard<()>,
    _user: User<'a>,
}

/// One who has a path's lock or waits for it.
struct User<'a> {
    locks: &'a Locks,
    path: Box<str>,
}

impl Locks {
    /// Waits until nobody else has this path.
    pub async fn lock(&self, path: &str) -> Held<'_> {
        let user = User { locks: self, path: path.into() };
        let lock = {
            let mut in_use = self.in_use();
            let of_path = in_use.entry(user.path.clone()).or_default();
            of_path.users += 1;
            of_path.lock.clone()
        };
        Held { _lock: lock.lock_owned().await, _user: user }
    }

    fn in_use(&self) -> MutexGuard<'_, BTreeMap<Box<str>, InUse>> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut in_use = self.locks.in_use();
        if let Some(of_path) = in_use.get_mut(&self.path) {
            of_path.users = of_path.users.saturating_sub(1);
            if of_path.users == 0 {
                in_use.remove(&self.path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Locks;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    /// Whoever has a path keeps others from it and from no other path, and a path that nobody has or waits for takes no memory, also if
    /// somebody stopped waiting.
    #[test]
    fn one_path_alone() {
        let locks = Locks::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut held = Vec::new();
        for number in 0..1000 {
            let path = format!("/{number}");
            match pin!(locks.lock(&path)).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(lock) => held.push(lock),
                Poll::Pending => panic!("{path} waits for another path"),
            }
        }
        {
            let mut second = pin!(locks.lock("/7"));
            assert!(second.as_mut().poll(&mut context).is_pending());
            let mut third = pin!(locks.lock("/7"));
            assert!(third.as_mut().poll(&mut context).is_pending());
            held.clear();
            assert!(second.as_mut().poll(&mut context).is_ready());
            assert_eq!(locks.in_use().len(), 1);
        }
        assert_eq!(locks.in_use().len(), 0);
    }
}
