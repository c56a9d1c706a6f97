//! Budgets: how many bytes of payload a node may hold at once, given out in the order in which they were asked for.

use base::limit::FRAME_PAYLOAD_MAX;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of bytes that many share. Clones are the same budget. First come, first served: a large wish is not overtaken
/// by small ones, so nobody starves.
#[derive(Clone)]
pub struct Budget {
    free: Arc<Semaphore>,
    total: usize,
    waiting: Arc<AtomicUsize>,
}

/// Counts one that waits, also if it stops waiting.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes taken out of a budget; they go back when this is dropped.
pub struct Piece {
    permit: OwnedSemaphorePermit,
}

impl Budget {
    /// A budget of so many bytes; at least one largest frame, or such a frame would wait for ever.
    pub fn new(bytes: u64) -> Budget {
        let total = usize::try_from(bytes).unwrap_or(usize::MAX).clamp(FRAME_PAYLOAD_MAX, Semaphore::MAX_PERMITS);
        Budget { free: Arc::new(Semaphore::new(total)), total, waiting: Arc::default() }
    }

    /// Bytes in all.
    pub fn total(&self) -> u64 {
        self.total as u64
    }

    /// Bytes that nobody has now.
    pub fn available(&self) -> u64 {
        self.free.available_permits() as u64
    }

    /// Whether somebody waits for bytes of it.
    pub fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// `bytes`, as soon as everybody who asked before has theirs. A wish for more than there is in all gets all there is.
    /// Dropping the future withdraws the wish.
    pub async fn acquire(&self, bytes: u64) -> Piece {
        let wish = self.wish(bytes);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(self.waiting.clone());
        match self.free.clone().acquire_many_owned(wish).await {
            Ok(permit) => Piece { permit },
            Err(_) => unreachable!("a budget is never closed"),
        }
    }

    /// `bytes` if they are free and nobody else waits for them.
    pub fn try_acquire(&self, bytes: u64) -> Option<Piece> {
        let permit = self.free.clone().try_acquire_many_owned(self.wish(bytes)).ok()?;
        Some(Piece { permit })
    }

    fn wish(&self, bytes: u64) -> u32 {
        u32::try_from(bytes.min(self.total as u64)).unwrap_or(u32::MAX)
    }
}

impl Piece {
    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        self.permit.num_permits() as u64
    }

    /// Takes `bytes` out of this piece, if it has as many.
    pub fn split(&mut self, bytes: u64) -> Option<Piece> {
        let permit = self.permit.split(usize::try_from(bytes).ok()?)?;
        Some(Piece { permit })
    }

    /// Adds a piece of the same budget to this one.
    pub fn merge(&mut self, other: Piece) {
        self.permit.merge(other.permit);
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.bytes())
    }
}
