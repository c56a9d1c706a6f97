//! A connection's credit as the node keeps it: what the client was granted, for what of it memory is kept, and what it wishes for.
//!
//! A grant is a number that the client may rely on. Memory is kept for it only as far as the client has lately used what it was granted;
//! what comes against a grant without memory waits for some, with its header read and nothing more. So credit that is wished for and never
//! used costs nobody anything.

use crate::credit::{Budget, Piece};
use crate::frame;
use base::error::Result;
use base::limit::{CREDIT_WINDOW_MAX, FRAME_PAYLOAD_MAX, SMALL_FRAMES_MAX};
use base::unit::Time;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// Wishes for credit that may be open. A client wishes once for each unanswered call and once for what follows it.
const WISHES_MAX: usize = 4 * SMALL_FRAMES_MAX;

/// A piece of a budget on its way.
pub(super) type Acquiring = Pin<Box<dyn Future<Output = Piece> + Send>>;

/// So much of the budget, in its turn.
pub(super) fn acquiring(budget: &Budget, bytes: u64) -> Acquiring {
    let budget = budget.clone();
    Box::pin(async move { budget.acquire(bytes).await })
}

/// A client's credit for large payloads.
#[derive(Default)]
pub(super) struct Credit {
    /// Granted and not used, with memory kept for it.
    kept: Option<Piece>,
    /// Granted and not used, without.
    promised: u64,
    /// Bytes for which memory is kept at the most: as many as came lately.
    earned: u64,
    wishes: VecDeque<u32>,
    /// The wish that waits for memory.
    acquiring: Option<(u32, Acquiring)>,
    /// Since when memory is kept and nothing of it was used.
    unused_since: Option<Time>,
}

impl Credit {
    /// Bytes for which memory is kept.
    pub(super) fn kept(&self) -> u64 {
        self.kept.as_ref().map_or(0, Piece::bytes)
    }

    /// For how long memory has been kept of which nothing was used.
    pub(super) fn unused(&self, now: Time) -> Duration {
        self.unused_since.map(|since| now.since(since)).unwrap_or_default()
    }

    /// The client wishes for so much more.
    pub(super) fn wish(&mut self, bytes: u32) -> Result<()> {
        if self.wishes.len() >= WISHES_MAX {
            return Err(frame::broken(format!("more than {WISHES_MAX} wishes for credit")));
        }
        if bytes as usize > FRAME_PAYLOAD_MAX {
            return Err(frame::broken(format!("a wish for {bytes} bytes of credit, more than any payload has")));
        }
        self.wishes.push_back(bytes);
        Ok(())
    }

    /// Whether the client may send so much.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        let granted = self.kept() + self.promised;
        if bytes <= granted {
            return Ok(());
        }
        Err(frame::broken(format!("{bytes} bytes of payload came against a credit of {granted}")))
    }

    /// So many bytes of the memory that is kept, if it has as many.
    pub(super) fn spend_kept(&mut self, bytes: u64, now: Time) -> Option<Piece> {
        let piece = self.kept.as_mut()?.split(bytes)?;
        self.unused_since = (self.kept() > 0).then_some(now);
        Some(piece)
    }

    /// So many bytes were used that no memory was kept for.
    pub(super) fn spend_promised(&mut self, bytes: u64) {
        self.promised = self.promised.saturating_sub(bytes);
    }

    /// A payload has come whole.
    pub(super) fn arrived(&mut self, bytes: u64) {
        self.earned = (self.earned + bytes).min(CREDIT_WINDOW_MAX);
    }

    /// Keeps no memory any more until something has come again, because the client used nothing of it.
    pub(super) fn withdraw(&mut self) {
        self.let_go();
        self.earned = 0;
    }

    /// Keeps no memory now, nor waits for any; what was granted stays granted.
    pub(super) fn let_go(&mut self) {
        self.promised += self.kept();
        (self.kept, self.unused_since) = (None, None);
        if let Some((wish, _)) = self.acquiring.take() {
            self.wishes.push_front(wish);
        }
    }

    /// The client gives back so much and wishes for nothing any more.
    pub(super) fn take_back(&mut self, bytes: u32) -> Result<()> {
        self.wishes.clear();
        self.acquiring = None;
        self.check(bytes.into())?;
        self.withdraw();
        self.spend_promised(bytes.into());
        Ok(())
    }

    /// Grants what can be granted now; how much that is.
    pub(super) fn turn(&mut self, budget: &Budget, now: Time, context: &mut Context<'_>) -> u64 {
        let mut granted = 0;
        loop {
            if let Some((_, acquiring)) = &mut self.acquiring {
                let Poll::Ready(piece) = acquiring.as_mut().poll(context) else { return granted };
                self.acquiring = None;
                granted += piece.bytes();
                self.keep(piece, now);
            }
            let Some(wish) = self.wishes.front().copied() else { return granted };
            // Two of the largest payloads: one on its way, and one behind it. The others wait until something was used.
            if self.kept() + self.promised + u64::from(wish) > CREDIT_WINDOW_MAX {
                return granted;
            }
            self.wishes.pop_front();
            if self.kept() + u64::from(wish) > self.earned {
                self.promised += u64::from(wish);
                granted += u64::from(wish);
                continue;
            }
            match budget.try_acquire(u64::from(wish)) {
                Some(piece) => {
                    granted += piece.bytes();
                    self.keep(piece, now);
                }
                None => self.acquiring = Some((wish, acquiring(budget, wish.into()))),
            }
        }
    }

    fn keep(&mut self, piece: Piece, now: Time) {
        self.unused_since.get_or_insert(now);
        match &mut self.kept {
            Some(kept) => kept.merge(piece),
            None => self.kept = Some(piece),
        }
    }
}
