//! Memory for answers: taken before an answer is built, corrected when it is there, and given back when it was written.

use crate::memory::Memory;
use crate::refusal::{RETRIABLE, Refusal};
use base::limit::{
    HDFS_BLOCKS_SHOWN, HDFS_LARGE_ANSWER, HDFS_LARGE_ANSWERS_EACH, HDFS_LARGE_ANSWERS_MADE, HDFS_LARGE_ANSWERS_MAX,
    HDFS_LARGE_CALL, HDFS_LOCATED_BLOCK, HDFS_LOCATED_MAX, HDFS_OWN_ANSWER, HDFS_PAGE_BYTES, HDFS_SMALL_ANSWER,
    HDFS_SMALL_ANSWERS_MAX, HDFS_STALL_MAX_PRESSED, XATTRS_BYTES_MAX,
};
use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How often a call that waits for others looks whether the memory that it holds is wanted.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// What all connections share.
pub struct Budget {
    /// For answers that are small, whatever is asked.
    pub small: Arc<Memory>,
    large: Arc<Memory>,
    located: Arc<Memory>,
    /// Turns to make a large answer: each keeps the store and a processor busy, and what is small goes in between.
    making: Arc<Memory>,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget {
            small: Memory::new(HDFS_SMALL_ANSWERS_MAX),
            large: Memory::new(HDFS_LARGE_ANSWERS_MAX),
            located: Memory::new(HDFS_LOCATED_MAX),
            making: Memory::new(HDFS_LARGE_ANSWERS_MADE),
        }
    }
}

impl Budget {
    /// Whether a call waits for memory that answers hold.
    pub fn is_wanted(&self) -> bool {
        self.small.is_wanted() || self.large.is_wanted() || self.located.is_wanted()
    }
}

/// What one connection may have of it at once: so much of the large, one turn, and one answer with the places of very many blocks. One small call
/// has memory that is the connection's alone, so that it is answered whatever others hold.
#[derive(Clone)]
pub struct Each {
    own: Arc<Memory>,
    large: Arc<Memory>,
    located: Arc<Memory>,
    /// Its one place in the line for a turn, so that who asks once does not stand behind all that others ask.
    making: Arc<Memory>,
}

impl Default for Each {
    fn default() -> Each {
        Each {
            own: Memory::new(HDFS_OWN_ANSWER),
            large: Memory::new(HDFS_LARGE_ANSWERS_EACH),
            located: Memory::new(1),
            making: Memory::new(1),
        }
    }
}

impl Each {
    /// Memory for a small answer, if it is there: the connection's own first.
    pub fn now(&self, budget: &Budget, bytes: usize) -> Option<Small> {
        let own = if bytes <= HDFS_OWN_ANSWER { self.own.now(bytes) } else { None };
        match own {
            Some(permit) => Some(Small { permit, shared: false }),
            None => budget.small.now(bytes).map(|permit| Small { permit, shared: true }),
        }
    }

    /// The same, waited for.
    pub async fn take(self, budget: Arc<Budget>, bytes: usize) -> Small {
        let own = async {
            match bytes <= HDFS_OWN_ANSWER {
                true => self.own.clone().take(bytes).await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            permit = own => Small { permit, shared: false },
            permit = budget.small.clone().take(bytes) => Small { permit, shared: true },
        }
    }
}

/// Memory for a small answer.
#[derive(Debug)]
pub struct Small {
    permit: OwnedSemaphorePermit,
    /// It is of what all connections share.
    shared: bool,
}

impl Small {
    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.permit.num_permits()
    }
}

/// What one call holds, until its answer was written. It asks in one order: small, large, located; of each once, its connection's
/// part first. So no two calls wait for each other.
#[derive(Default)]
pub struct Share {
    budget: Arc<Budget>,
    each: Each,
    /// What it holds of the small is wanted by others, too.
    shared: bool,
    /// It may change something now, so it is done to its end whether its client is there or not.
    changes: AtomicBool,
    held: Mutex<Held>,
}

/// Permits of a call: its connection's and everybody's.
#[derive(Default)]
struct Held {
    small: Option<OwnedSemaphorePermit>,
    large: Option<[OwnedSemaphorePermit; 2]>,
    located: Option<[OwnedSemaphorePermit; 2]>,
    /// Its turn to make the answer.
    making: Option<[OwnedSemaphorePermit; 2]>,
}

impl Share {
    /// A call that has memory for a small answer.
    pub fn new(budget: Arc<Budget>, each: Each, small: Small) -> Share {
        let held = Held { small: Some(small.permit), ..Held::default() };
        Share { budget, each, shared: small.shared, changes: AtomicBool::new(false), held: Mutex::new(held) }
    }

    /// Whether something may be changed from here on.
    pub fn set_changes(&self, changes: bool) {
        self.changes.store(changes, Ordering::Relaxed);
    }

    /// Whether it may have changed something, or be about to.
    pub fn changes(&self) -> bool {
        self.changes.load(Ordering::Relaxed)
    }

    /// Waits for others to be done with something, having changed nothing. Whoever does that with memory which is wanted gives up.
    pub async fn stand<T>(&self, wait: impl Future<Output = T>) -> Result<T, Refusal> {
        let (mut wait, mut pressed) = (pin!(wait), Duration::ZERO);
        while pressed < HDFS_STALL_MAX_PRESSED {
            match timeout(LOOK_EVERY, &mut wait).await {
                Ok(come) => return Ok(come),
                Err(_) if self.shared && self.budget.small.is_wanted() => pressed += LOOK_EVERY,
                Err(_) => pressed = Duration::ZERO,
            }
        }
        let text =
            "it waited for others, and calls that would not have to wait need its memory; nothing was done; try again";
        Err(Refusal::new(RETRIABLE, text))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for memory for an answer of at most so many bytes, with what it is made from. What is asked for later is within that.
    pub async fn answer(&self, bytes: usize) {
        if bytes <= HDFS_SMALL_ANSWER || self.held().large.is_some() {
            return;
        }
        let each = self.each.large.clone().take(bytes.max(HDFS_LARGE_ANSWER)).await;
        let all = self.budget.large.clone().take(bytes).await;
        self.held().large = Some([each, all]);
        self.make().await;
    }

    /// Waits for the turn to make what there is memory for.
    async fn make(&self) {
        if self.held().making.is_none() {
            let each = self.each.making.clone().take(1).await;
            let all = self.budget.making.clone().take(1).await;
            self.held().making = Some([each, all]);
        }
    }

    /// Waits for others, a device perhaps, without keeping a turn from those who could use it.
    pub async fn aside<T>(&self, wait: impl Future<Output = T>) -> T {
        let had_turn = self.held().making.take().is_some();
        let come = wait.await;
        if had_turn {
            self.make().await;
        }
        come
    }

    /// Waits for memory for the places of so many blocks.
    pub async fn blocks(&self, count: u64) {
        let bytes = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(HDFS_LOCATED_BLOCK);
        if count <= HDFS_BLOCKS_SHOWN {
            return self.answer(bytes).await;
        }
        if self.held().located.is_none() {
            // Who has this memory waits for a turn: nobody with a turn may wait for this memory.
            self.held().making = None;
            let each = self.each.located.clone().take(1).await;
            let all = self.budget.located.clone().take(bytes).await;
            self.held().located = Some([each, all]);
            self.make().await;
        }
    }

    /// The answer is there and has so many bytes: nothing beyond that is held.
    pub fn answered_with(&self, bytes: usize) {
        let mut held = self.held();
        let Held { small, large, located, making: _over } = std::mem::take(&mut *held);
        let fits = |permit: &OwnedSemaphorePermit| permit.num_permits() >= bytes;
        *held = if small.as_ref().is_some_and(fits) {
            Held { small: small.map(|permit| cut(permit, bytes)), ..Held::default() }
        } else if large.as_ref().is_some_and(|[_, all]| fits(all)) {
            // The connection's part is held on to: a client that does not read gets a few of them, however small they came out.
            let cut_large = |[each, all]: [_; 2]| [cut(each, bytes.max(HDFS_LARGE_ANSWER)), cut(all, bytes)];
            Held { large: large.map(cut_large), ..Held::default() }
        } else {
            // The connection's one place is held on to.
            Held { small, large, located: located.map(|[each, all]| [each, cut(all, bytes)]), making: None }
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
        HDFS_BLOCKS_SHOWN, HDFS_LARGE_ANSWER, HDFS_LARGE_ANSWERS_EACH, HDFS_LARGE_ANSWERS_MADE, HDFS_LARGE_ANSWERS_MAX,
        HDFS_LOCATED_BLOCKS_MAX, HDFS_LOCATED_MAX, HDFS_OWN_ANSWER, HDFS_SMALL_ANSWERS_MAX,
    };
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    fn share(budget: &Arc<Budget>, each: &Each) -> Share {
        let small = each.now(budget, before(100)).expect("there is room");
        Share::new(budget.clone(), each.clone(), small)
    }

    async fn has(asking: impl Future<Output = ()>) -> bool {
        timeout(Duration::from_millis(5), asking).await.is_ok()
    }

    /// Listings that find files of many blocks, and questions for the blocks of such files: no two wait for each other, though all turns to
    /// make answers are taken.
    #[tokio::test(start_paused = true)]
    async fn turns_and_blocks_are_no_circle() {
        const BLOCKS: u64 = 40_000;
        let budget = Arc::new(Budget::default());
        let listing = |share: Share| async move {
            share.answer(HDFS_LARGE_ANSWER).await;
            tokio::task::yield_now().await;
            share.aside(tokio::task::yield_now()).await;
            share.blocks(BLOCKS).await;
        };
        let each = || share(&budget, &Each::default());
        let listings: Vec<_> = (0..HDFS_LARGE_ANSWERS_MADE).map(|_| tokio::spawn(listing(each()))).collect();
        let asked = each();
        let blocks = tokio::spawn(async move { asked.blocks(BLOCKS).await });
        for task in listings.into_iter().chain([blocks]) {
            timeout(Duration::from_secs(60), task).await.expect("nobody waits for ever").expect("no panic");
        }
    }

    /// Whatever others hold, a connection has memory for one small call, and no more than one; a larger one waits for what all share, and
    /// so does a second one, until one of both is there.
    #[tokio::test]
    async fn one_small_call_always() {
        let budget = Arc::new(Budget::default());
        let greedy = budget.small.now(HDFS_SMALL_ANSWERS_MAX).expect("all of it");
        let each = Each::default();
        assert!(each.now(&budget, HDFS_OWN_ANSWER + 1).is_none());
        let first = each.now(&budget, HDFS_OWN_ANSWER).expect("its own");
        assert!(each.now(&budget, 1).is_none());
        let waiting = tokio::spawn(each.clone().take(budget.clone(), 100));
        while !budget.small.is_wanted() {
            tokio::task::yield_now().await;
        }
        drop(first);
        assert!(!waiting.await.expect("no panic").shared, "its own was free first");
        let larger = tokio::spawn(each.take(budget.clone(), HDFS_OWN_ANSWER + 1));
        while !budget.small.is_wanted() {
            tokio::task::yield_now().await;
        }
        drop(greedy);
        assert!(larger.await.expect("no panic").shared);
    }

    /// A call that waits for others gives up while what it holds is wanted, and only then; one that has its connection's own memory
    /// waits on.
    #[tokio::test(start_paused = true)]
    async fn standing_still_with_memory() {
        let budget = Arc::new(Budget::default());
        let (each, never) = (Each::default(), || std::future::pending::<()>());
        let own = Share::new(budget.clone(), each.clone(), each.now(&budget, 100).expect("its own"));
        let shared = Share::new(budget.clone(), each.clone(), each.now(&budget, HDFS_OWN_ANSWER).expect("shared"));
        assert!(timeout(Duration::from_secs(60), shared.stand(never())).await.is_err(), "nobody wants it");
        assert!(shared.stand(std::future::ready(7)).await.is_ok_and(|come| come == 7));
        let _wants = budget.small.want();
        assert!(timeout(Duration::from_secs(60), own.stand(never())).await.is_err(), "nobody else may have it");
        let refused = timeout(Duration::from_secs(60), shared.stand(never())).await.expect("it gives up");
        assert!(refused.is_err_and(|refusal| refusal.text.contains("nothing was done")));
    }

    /// A client that reads nothing has a few large answers made for it, however small they come out, and only so many are made at
    /// once for all.
    #[tokio::test]
    async fn few_answers_for_who_does_not_read() {
        let budget = Arc::new(Budget::default());
        let each = Each::default();
        let mut unread = Vec::new();
        for _ in 0..HDFS_LARGE_ANSWERS_EACH / HDFS_LARGE_ANSWER {
            let share = share(&budget, &each);
            assert!(has(share.answer(100 << 10)).await);
            share.answered_with(100 << 10);
            unread.push(share);
        }
        let next = share(&budget, &each);
        assert!(!has(next.answer(100 << 10)).await);
        unread.pop();
        assert!(has(next.answer(100 << 10)).await);
        drop((next, unread));
        let others: Vec<Each> = (0..=HDFS_LARGE_ANSWERS_MADE).map(|_| Each::default()).collect();
        let others: Vec<Share> = others.iter().map(|each| share(&budget, each)).collect();
        let (last, making) = others.split_last().expect("several");
        for share in making {
            assert!(has(share.answer(100 << 10)).await);
        }
        assert!(!has(last.answer(100 << 10)).await, "it waits for its turn");
        making[0].answered_with(100 << 10);
        assert!(has(last.answer(100 << 10)).await);
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
        first[0].answered_with(HDFS_LARGE_ANSWERS_EACH / 2);
        assert!(has(second.answer(HDFS_LARGE_ANSWERS_EACH / 2)).await);
        first[1].answered_with(10);
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
        shares[0].answered_with(8 << 20);
        assert!(!has(shares[1].blocks(HDFS_BLOCKS_SHOWN + 1)).await, "not written yet");
        drop(shares);
        assert!(budget.located.now(HDFS_LOCATED_MAX).is_some(), "all was given back");
    }
}
