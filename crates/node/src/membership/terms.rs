//! Whose orders this node carries out: those of the leader of the highest term that it heard of. What a leader ordered earlier ends before
//! the next one's orders begin, so that a late order undoes nothing that the next one did.

use base::error::{Error, ErrorKind, Result};
use base::planted::Planted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long the orders of a new leader wait for those of an earlier one, which are at a device; then it is told to ask again.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Knows the term, and what is under way.
#[derive(Default)]
pub struct Terms {
    state: Mutex<State>,
    /// The last order of a term has ended.
    ended: Notify,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
}

#[derive(Default)]
struct State {
    /// The highest that was heard of since this process began; zero: none was.
    term: u64,
    /// Orders that were let in and have not ended, by their term.
    under_way: BTreeMap<u64, usize>,
}

/// An order that was let in. It is under way until this is dropped.
pub struct Pass {
    terms: Arc<Terms>,
    term: u64,
}

impl Terms {
    /// One that has heard of no term yet.
    pub fn new(planted: Option<Planted>) -> Terms {
        Terms { planted, ..Terms::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody leads in this term: who leads in a lower one orders nothing any more.
    pub fn hear(&self, term: u64) {
        let mut state = self.state();
        state.term = state.term.max(term);
    }

    /// Lets an order of this term in, which may begin when `Pass::begins` says so. `Refused` if a higher one was heard of. Zero is the term of a
    /// leader of an older version, which says none: it counts as the one that is known.
    pub fn let_in(self: &Arc<Terms>, term: u64) -> Result<Pass> {
        let mut state = self.state();
        let term = if term == 0 { state.term } else { term };
        self.check(&state, term)?;
        state.term = state.term.max(term);
        *state.under_way.entry(term).or_default() += 1;
        Ok(Pass { terms: self.clone(), term })
    }

    fn check(&self, state: &State, term: u64) -> Result<()> {
        if term < state.term && self.planted != Some(Planted::OldTermObeyed) {
            return Err(over(term, state.term));
        }
        Ok(())
    }
}

impl Pass {
    /// Whether nothing of an earlier term is under way any more.
    pub fn is_next(&self) -> bool {
        let state = self.terms.state();
        state.under_way.keys().next().is_none_or(|first| *first >= self.term)
    }

    /// Waits until nothing of an earlier term is under way. `Refused` if a later term began meanwhile, `Busy` if that takes too long: nothing was
    /// done then.
    pub async fn begins(&self) -> Result<()> {
        if timeout(WAIT_MAX, self.earlier_ended()).await.is_err() {
            let text = format!(
                "a device of this node is at what the leader of an earlier term ordered, for {} s at least; nothing was done; ask again",
                WAIT_MAX.as_secs()
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        self.terms.check(&self.terms.state(), self.term)
    }

    async fn earlier_ended(&self) {
        loop {
            let mut ended = std::pin::pin!(self.terms.ended.notified());
            // From here on no word is missed.
            ended.as_mut().enable();
            if self.is_next() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.terms.state();
        let Some(count) = state.under_way.get_mut(&self.term) else { unreachable!("it was let in") };
        *count -= 1;
        if *count == 0 {
            state.under_way.remove(&self.term);
            drop(state);
            self.terms.ended.notify_waiters();
        }
    }
}

fn over(term: u64, now: u64) -> Error {
    let text = format!(
        "the term {term} in which this was ordered is over, this node follows the leader of term {now}; nothing was done; if the metadata was \
         put back from a copy, start this node again"
    );
    Error::new(ErrorKind::Refused, text)
}

#[cfg(test)]
mod tests {
    use super::{Terms, WAIT_MAX};
    use base::error::{ErrorKind, Result};
    use base::planted::Planted;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    /// Orders of a lower term than one that was heard of are refused, however it was heard of.
    #[tokio::test]
    async fn earlier_leaders_are_refused() {
        let terms = Arc::new(Terms::new(None));
        assert!(terms.let_in(5).is_ok() && terms.let_in(5).is_ok() && terms.let_in(6).is_ok());
        assert_eq!(kind(terms.let_in(5)), Some(ErrorKind::Refused));
        terms.hear(9);
        terms.hear(7);
        assert_eq!(kind(terms.let_in(8)), Some(ErrorKind::Refused));
        assert!(terms.let_in(9).is_ok_and(|pass| pass.is_next()));
        assert!(terms.let_in(0).is_ok_and(|pass| pass.is_next()), "it says no term");
        assert!(terms.state().under_way.is_empty());
        let obeys = Arc::new(Terms::new(Some(Planted::OldTermObeyed)));
        obeys.hear(9);
        assert!(obeys.let_in(8).is_ok());
    }

    /// What a later leader orders begins when all that earlier ones ordered has ended. What was let in, and waits while a still later one
    /// comes, is refused.
    #[tokio::test(start_paused = true)]
    async fn earlier_orders_end_first() {
        let terms = Arc::new(Terms::new(None));
        let (first, second) = (terms.let_in(5).expect("the first"), terms.let_in(5).expect("the same term"));
        assert!(first.is_next() && second.begins().await.is_ok());
        let later = terms.let_in(6).expect("a later one");
        let soon = Duration::from_secs(1);
        assert!(!later.is_next() && timeout(soon, later.begins()).await.is_err());
        drop(first);
        assert!(timeout(soon, later.begins()).await.is_err(), "the other one is under way");
        let ends = async {
            tokio::time::sleep(soon).await;
            drop(second);
        };
        let (begins, ()) = tokio::join!(later.begins(), ends);
        assert!(begins.is_ok());
        let last = terms.let_in(7).expect("the last one");
        assert_eq!(kind(later.begins().await), Some(ErrorKind::Refused));
        assert_eq!(kind(timeout(WAIT_MAX * 2, last.begins()).await.expect("it gives up")), Some(ErrorKind::Busy));
        drop(later);
        assert!(last.begins().await.is_ok());
    }
}
