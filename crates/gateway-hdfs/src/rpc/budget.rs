//! Memory for answers: taken before an answer is built, corrected when it is there, and given back when it was written.

use crate::memory::Memory;
use base::limit::{
    HDFS_BLOCKS_SHOWN, HDFS_LARGE_ANSWERS_EACH, HDFS_LARGE_ANSWERS_MAX, HDFS_LARGE_CALL, HDFS_LOCATED_BLOCK,
    HDFS_LOCATED_MAX, HDFS_PAGE_BYTES, HDFS_SMALL_ANSWER, HDFS_SMALL_ANSWERS_MAX, XATTRS_BYTES_MAX,
};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OwnedSemaphorePermit;

/// What all connections share.
pub struct Budget {
    /// For answers that are small, whatever is asked.
    pub small: Arc<Memory>,
    large: Arc<Memory>,
    located: Arc<Memory>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            small: Memory::new(HDFS_SMALL_ANSWERS_MAX),
            large: Memory::new(HDFS_LARGE_ANSWERS_MAX),
            located: Memory::new(HDFS_LOCATED_MAX),
        }
    }
}

impl Budget {
    /// Whether a call waits for memory that answers hold.
    pub fn is_wanted(&self) -> bool {
        self.small.is_wanted() || self.large.is_wanted() || self.located.is_wanted()
    }
}

/// What one connection may have of it at once: so much of the large, and one answer with the places of very many blocks.
#[derive(Clone)]
pub struct Each {
    large: Arc<Memory>,
    located: Arc<Memory>,
}

impl Default for Each {
    fn default() -> Each {
        Each { large: Memory::new(HDFS_LARGE_ANSWERS_EACH), located: Memory::new(1) }
    }
}

/// What one call holds, until its answer was written. It asks in one order: small, large, located; of each once, its connection's
/// part first. So no two calls wait for each other.
#[derive(Default)]
pub struct Share {
    budget: Arc<Budget>,
    each: Each,
    held: Mutex<Held>,
}

/// Permits of a call: its connection's and everybody's.
#[derive(Default)]
struct Held {
    small: Option<OwnedSemaphorePermit>,
    large: Option<[OwnedSemaphorePermit; 2]>,
    located: Option<[OwnedSemaphorePermit; 2]>,
}

impl Share {
    /// A call that has memory for a small answer.
    pub fn new(budget: Arc<Budget>, each: Each, small: OwnedSemaphorePermit) -> Share {
        let held = Held { small: Some(small), ..Held::default() };
        Share { budget, each, held: Mutex::new(held) }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for memory for an answer of at most so many bytes, with what it is made from. What is asked for later is within that.
    pub async fn answer(&self, bytes: usize) {
        if bytes <= HDFS_SMALL_ANSWER || self.held().large.is_some() {
            return;
        }
        let each = self.each.large.clone().take(bytes).await;
        let all = self.budget.large.clone().take(bytes).await;
        self.held().large = Some([each, all]);
    }

    /// Waits for memory for the places of so many blocks.
    pub async fn blocks(&self, count: u64) {
        let bytes = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(HDFS_LOCATED_BLOCK);
        if count <= HDFS_BLOCKS_SHOWN {
            return self.answer(bytes).await;
        }
        if self.held().located.is_none() {
            let each = self.each.located.clone().take(1).await;
            let all = self.budget.located.clone().take(bytes).await;
            self.held().located = Some([each, all]);
        }
    }

    /// The answer is there and has so many bytes: nothing beyond that is held.
    pub fn settle(&self, bytes: usize) {
        let mut held = self.held();
        let Held { small, large, located } = std::mem::take(&mut *held);
        let fits = |permit: &OwnedSemaphorePermit| permit.num_permits() >= bytes;
        *held = if small.as_ref().is_some_and(fits) {
            Held { small: small.map(|permit| cut(permit, bytes)), ..Held::default() }
        } else if large.as_ref().is_some_and(|[_, all]| fits(all)) {
            Held { large: large.map(|permits| permits.map(|permit| cut(permit, bytes))), ..Held::default() }
        } else {
            // The connection's one place is held on to.
            Held { small, large, located: located.map(|[each, all]| [each, cut(all, bytes)]) }
        };
    }
}

/// A permit of at most so many bytes.
fn cut(mut permit: OwnedSemaphorePermit, bytes: usize) -> OwnedSemaphorePermit {
    drop(permit.split(permit.num_permits().saturating_sub(bytes)));
    permit
}

impl fmt::Debug for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Share")
    }
}

/// Memory that a call takes before its method is known: a refusal may repeat what was asked. `length`: of its frame.
pub fn before(length: usize) -> usize {
    HDFS_SMALL_ANSWER + 3 * length.min(HDFS_LARGE_CALL)
}

/// Most bytes of the answer to a method, with what it is made from, as far as the method says: listings and blocks ask for their
/// own. `asked`: bytes of the question.
pub fn estimate(method: &str, asked: usize) -> usize {
    match method {
        "getXAttrs" | "listXAttrs" => 4 * XATTRS_BYTES_MAX,
        "listOpenFiles" | "getDatanodeReport" | "getDatanodeStorageReport" => 4 * HDFS_PAGE_BYTES,
        "getAclStatus"
        | "getStoragePolicies"
        | "getErasureCodingPolicies"
        | "getErasureCodingCodecs"
        | "getFsStats"
        | "getGroupsForUser" => HDFS_PAGE_BYTES / 4,
        "getAdditionalDatanode" => HDFS_SMALL_ANSWER.saturating_add(asked.saturating_mul(2)),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Each, Share, before};
    use base::limit::{
        HDFS_BLOCKS_SHOWN, HDFS_LARGE_ANSWERS_EACH, HDFS_LARGE_ANSWERS_MAX, HDFS_LOCATED_BLOCKS_MAX, HDFS_LOCATED_MAX,
    };
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    fn share(budget: &Arc<Budget>, each: &Each) -> Share {
        let small = budget.small.now(before(100)).expect("there is room");
        Share::new(budget.clone(), each.clone(), small)
    }

    async fn has(asking: impl Future<Output = ()>) -> bool {
        timeout(Duration::from_millis(5), asking).await.is_ok()
    }

    /// A connection's calls have no more of the large answers at once than is its part, others have theirs, and all together no more
    /// than there is; what an answer does not need is given back when it is there, all of it when it is gone.
    #[tokio::test]
    async fn shares() {
        let budget = Arc::new(Budget::default());
        let each: Vec<Each> = (0..=HDFS_LARGE_ANSWERS_MAX / HDFS_LARGE_ANSWERS_EACH).map(|_| Each::default()).collect();
        let greedy: Vec<Share> = each.iter().map(|each| share(&budget, each)).collect();
        let (last, first) = greedy.split_last().expect("several");
        for share in first {
            assert!(has(share.answer(HDFS_LARGE_ANSWERS_EACH)).await);
        }
        assert!(!has(last.answer(HDFS_LARGE_ANSWERS_EACH)).await && !budget.is_wanted());
        let second = share(&budget, &each[0]);
        first[0].settle(HDFS_LARGE_ANSWERS_EACH / 2);
        assert!(has(second.answer(HDFS_LARGE_ANSWERS_EACH / 2)).await);
        first[1].settle(10);
        assert!(has(last.answer(HDFS_LARGE_ANSWERS_EACH)).await);
        drop((greedy, second));
        assert!(budget.large.now(HDFS_LARGE_ANSWERS_MAX).is_some(), "all was given back");
    }

    /// The places of very many blocks go out one answer at a time on each connection, and two at a time on all.
    #[tokio::test]
    async fn many_blocks() {
        let budget = Arc::new(Budget::default());
        let (one, other, third) = (Each::default(), Each::default(), Each::default());
        let shares = [&one, &one, &other, &third].map(|each| share(&budget, each));
        assert!(has(shares[0].blocks(HDFS_LOCATED_BLOCKS_MAX)).await);
        assert!(!has(shares[1].blocks(HDFS_BLOCKS_SHOWN + 1)).await, "the connection has one");
        assert!(has(shares[2].blocks(HDFS_LOCATED_BLOCKS_MAX)).await);
        assert!(!has(shares[3].blocks(HDFS_BLOCKS_SHOWN + 1)).await, "there is no more");
        assert!(has(shares[3].blocks(HDFS_BLOCKS_SHOWN)).await, "fewer are not held up");
        shares[0].settle(8 << 20);
        assert!(!has(shares[1].blocks(HDFS_BLOCKS_SHOWN + 1)).await, "not written yet");
        drop(shares);
        assert!(budget.located.now(HDFS_LOCATED_MAX).is_some(), "all was given back");
    }
}
