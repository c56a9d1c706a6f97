//! How many walks through trees go on at once: each keeps the store busy for as long as its tree is large.

use base::limit::{HDFS_WALKS_EACH, HDFS_WALKS_MAX};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns to walk: a few for each user, and some more for all of them.
pub(crate) struct Walks {
    all: Arc<Semaphore>,
    /// Of users who walk now or wait for it.
    users: Mutex<BTreeMap<Arc<str>, Weak<Semaphore>>>,
}

/// A turn, over when it is dropped: everybody's part and the user's.
pub(crate) struct Turn {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Default for Walks {
    fn default() -> Walks {
        Walks { all: Arc::new(Semaphore::new(HDFS_WALKS_MAX)), users: Mutex::default() }
    }
}

impl Walks {
    /// Waits for a turn of this user.
    pub async fn turn(&self, user: &Arc<str>) -> Turn {
        let own = permit(self.of(user)).await;
        Turn { _all: permit(self.all.clone()).await, _own: own }
    }

    fn of(&self, user: &Arc<str>) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = users.get(user).and_then(Weak::upgrade) {
            return own;
        }
        users.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(HDFS_WALKS_EACH));
        users.insert(user.clone(), Arc::downgrade(&own));
        own
    }
}

async fn permit(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    match semaphore.acquire_owned().await {
        Ok(permit) => permit,
        Err(_) => unreachable!("nobody closes it"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Turn, Walks};
    use base::limit::{HDFS_WALKS_EACH, HDFS_WALKS_MAX};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn turn(walks: &Walks, user: &str) -> Option<Turn> {
        timeout(Duration::from_millis(5), walks.turn(&Arc::from(user))).await.ok()
    }

    /// A user has a few turns at once and leaves others theirs; all have no more than there are; who ends gives way to the next, and
    /// nothing is remembered of users who do not walk.
    #[tokio::test]
    async fn turns() {
        let walks = Walks::default();
        let mut eves = Vec::new();
        for _ in 0..HDFS_WALKS_EACH {
            eves.push(turn(&walks, "eve").await.expect("there is one"));
        }
        assert!(turn(&walks, "eve").await.is_none());
        let mut others = Vec::new();
        for number in HDFS_WALKS_EACH..HDFS_WALKS_MAX {
            others.push(turn(&walks, &format!("user {number}")).await.expect("others have theirs"));
        }
        assert!(turn(&walks, "ada").await.is_none(), "all are taken");
        eves.pop();
        assert!(turn(&walks, "ada").await.is_some());
        drop((eves, others));
        assert!(turn(&walks, "eve").await.is_some());
        assert!(walks.users.lock().expect("sound").len() <= HDFS_WALKS_MAX + 2);
    }
}
