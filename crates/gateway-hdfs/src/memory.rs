//! Memory that connections share: taken before it is used. Who holds some and stands still gives it up, the sooner if others wait.

use base::limit::{HDFS_RATE_MIN, HDFS_STALL_MAX, HDFS_STALL_MAX_PRESSED};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that many share.
pub struct Memory {
    bytes: Arc<Semaphore>,
    most: usize,
    waiting: AtomicUsize,
}

impl Memory {
    /// So many bytes, fewer than 4 GiB.
    pub fn new(most: usize) -> Arc<Memory> {
        Arc::new(Memory { bytes: Arc::new(Semaphore::new(most)), most, waiting: AtomicUsize::new(0) })
    }

    /// Whether somebody waits for some.
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// So many bytes, if they are there. Nobody gets more than there are in all.
    pub fn now(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.bytes.clone().try_acquire_many_owned(self.at_most(bytes)).ok()
    }

    /// So many bytes, in the order in which they were asked for.
    pub async fn take(self: Arc<Memory>, bytes: usize) -> OwnedSemaphorePermit {
        if let Some(permit) = self.now(bytes) {
            return permit;
        }
        let wants = self.want();
        let permit = self.bytes.clone().acquire_many_owned(self.at_most(bytes)).await;
        drop(wants);
        match permit {
            Ok(permit) => permit,
            Err(_) => unreachable!("nobody closes it"),
        }
    }

    /// Somebody who goes on with less than it wants: as long as what is answered lives, others know that there is too little.
    pub fn want(self: &Arc<Memory>) -> Wants {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Wants(self.clone())
    }

    fn at_most(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.most)).unwrap_or(u32::MAX)
    }
}

/// Counts one that waits, until it has what it waits for or gives up.
pub struct Wants(Arc<Memory>);

impl Drop for Wants {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether so many bytes in so much time are too few for somebody who holds memory. `wanted`: others wait for it.
pub fn is_too_slow(elapsed: Duration, bytes: u64, wanted: bool) -> bool {
    let grace = if wanted { HDFS_STALL_MAX_PRESSED } else { HDFS_STALL_MAX };
    let counted = u64::try_from(elapsed.saturating_sub(grace).as_millis()).unwrap_or(u64::MAX);
    counted.saturating_mul(HDFS_RATE_MIN) / 1000 > bytes
}

#[cfg(test)]
mod tests {
    use super::{Memory, is_too_slow};
    use base::limit::{HDFS_RATE_MIN, HDFS_STALL_MAX, HDFS_STALL_MAX_PRESSED};
    use std::time::Duration;

    /// What is taken is missing until it is given back; whoever waits is known of, also one that gives up; who asks for more than
    /// there is in all gets all.
    #[tokio::test]
    async fn taken_and_given_back() {
        let memory = Memory::new(100);
        let held = memory.now(60).expect("there");
        assert!(memory.now(41).is_none() && !memory.is_wanted());
        let mut waiting = Box::pin(memory.clone().take(41));
        assert!(futures_pending(&mut waiting).await && memory.is_wanted());
        drop(waiting);
        assert!(!memory.is_wanted(), "it gave up");
        let wants = memory.want();
        assert!(memory.is_wanted());
        drop(wants);
        assert!(!memory.is_wanted());
        drop(held);
        let all = memory.clone().take(1000).await;
        assert_eq!(all.num_permits(), 100);
    }

    /// Whether a future is not through yet.
    async fn futures_pending<F: Future + Unpin>(future: &mut F) -> bool {
        tokio::time::timeout(Duration::from_millis(1), future).await.is_err()
    }

    /// There is a time of grace, shorter when others wait; after it every second counts.
    #[test]
    fn too_slow() {
        let second = Duration::from_secs(1);
        for (grace, wanted) in [(HDFS_STALL_MAX, false), (HDFS_STALL_MAX_PRESSED, true)] {
            assert!(!is_too_slow(grace, 0, wanted) && is_too_slow(grace + second, 0, wanted));
            assert!(!is_too_slow(grace + 10 * second, 10 * HDFS_RATE_MIN, wanted));
            assert!(is_too_slow(grace + 10 * second, 10 * HDFS_RATE_MIN - 1, wanted));
        }
        assert!(!is_too_slow(Duration::MAX, u64::MAX, true));
    }
}
