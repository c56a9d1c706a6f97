//! Whose orders this node carries out: those of the leader of the highest term that it heard of. What a leader ordered of a device earlier ends
//! before the next one's orders to that device begin, so that a late order undoes nothing that the next one did.

use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::planted::Planted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long an order of a new leader waits for those of an earlier one, which the device is at; then it is told to ask again.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Knows the term, and what is under way.
#[derive(Default)]
pub struct Terms {
    state: Mutex<State>,
    /// The last order of a term to a device has ended, or the term rose.
    changed: Notify,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
}

#[derive(Default)]
struct State {
    /// The highest that was heard of since this process began; zero: none was.
    term: u64,
    /// Orders that have not ended, by device and term: a device that stands still holds up none but its own.
    under_way: BTreeMap<(DeviceId, u64), usize>,
}

/// An order to a device. It is under way until this is dropped.
pub struct Pass {
    terms: Arc<Terms>,
    device: DeviceId,
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

    /// Somebody leads in this term: who leads in a lower one orders nothing any more. The highest that was heard of.
    pub fn hear(&self, term: u64) -> u64 {
        let mut state = self.state();
        if term > state.term {
            state.term = term;
            drop(state);
            // Who waits in a lower one waits in vain.
            self.changed.notify_waiters();
            return term;
        }
        state.term
    }

    /// Whether something may be ordered in this term: the term as it counts. `Refused` if a higher one was heard of. Zero is the term of a leader of an older
    /// version, which says none: it counts as the one that is known.
    pub fn check(&self, term: u64) -> Result<u64> {
        let known = self.hear(term);
        let term = if term == 0 { known } else { term };
        self.refuse(term, known).map(|()| term)
    }

    fn refuse(&self, term: u64, known: u64) -> Result<()> {
        if term < known && self.planted != Some(Planted::OldTermObeyed) {
            return Err(over(term, known));
        }
        Ok(())
    }

    /// Begins an order to a device in a term that `check` gave, when nothing that was ordered of that in an earlier one is under way any more. `Refused` if
    /// a later term began meanwhile, `Busy` if that takes too long: nothing was done then.
    pub async fn begin(self: &Arc<Terms>, term: u64, device: DeviceId) -> Result<Pass> {
        {
            // Checked again in one: whoever looks what is under way in a lower term finds this, or this finds that one's term.
            let mut state = self.state();
            self.refuse(term, state.term)?;
            *state.under_way.entry((device, term)).or_default() += 1;
        }
        let pass = Pass { terms: self.clone(), device, term };
        if timeout(WAIT_MAX, pass.is_next()).await.is_err() {
            let text = format!(
                "the device is at what the leader of an earlier term ordered, for {} s at least; nothing was done; ask again",
                WAIT_MAX.as_secs()
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let known = self.state().term;
        self.refuse(term, known).map(|()| pass)
    }
}

impl Pass {
    /// Waits until nothing of an earlier term is under way at the device, or this term is over.
    async fn is_next(&self) {
        loop {
            let mut changed = std::pin::pin!(self.terms.changed.notified());
            // From here on no word is missed.
            changed.as_mut().enable();
            {
                let state = self.terms.state();
                let earlier = (self.device, 0)..(self.device, self.term);
                if state.under_way.range(earlier).next().is_none() || self.terms.refuse(self.term, state.term).is_err()
                {
                    return;
                }
            }
            changed.await;
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.terms.state();
        let key = (self.device, self.term);
        let Some(count) = state.under_way.get_mut(&key) else { unreachable!("it was begun") };
        *count -= 1;
        if *count == 0 {
            state.under_way.remove(&key);
            drop(state);
            self.terms.changed.notify_waiters();
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
    use base::id::DeviceId;
    use base::planted::Planted;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::time::timeout;

    const DEVICE: DeviceId = DeviceId(1);
    const SOON: Duration = Duration::from_secs(1);

    fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    /// Orders of a lower term than one that was heard of are refused, however it was heard of.
    #[tokio::test]
    async fn earlier_leaders_are_refused() {
        let terms = Arc::new(Terms::new(None));
        assert_eq!([terms.check(5).ok(), terms.check(5).ok(), terms.check(6).ok()], [Some(5), Some(5), Some(6)]);
        assert_eq!(kind(terms.check(5)), Some(ErrorKind::Refused));
        assert_eq!(kind(terms.begin(5, DEVICE).await), Some(ErrorKind::Refused), "it was let in before");
        terms.hear(9);
        terms.hear(7);
        assert_eq!(kind(terms.check(8)), Some(ErrorKind::Refused));
        assert_eq!([terms.check(9).ok(), terms.check(0).ok()], [Some(9), Some(9)], "zero says no term");
        assert!(terms.begin(9, DEVICE).await.is_ok());
        assert!(terms.state().under_way.is_empty());
        let obeys = Arc::new(Terms::new(Some(Planted::OldTermObeyed)));
        obeys.hear(9);
        assert_eq!(obeys.check(8).ok(), Some(8));
        assert!(obeys.begin(8, DEVICE).await.is_ok());
    }

    /// What a later leader orders of a device begins when all that earlier ones ordered of it has ended; another device is nothing to it. What waits while
    /// a still later leader comes is refused.
    #[tokio::test(start_paused = true)]
    async fn earlier_orders_end_first() {
        let terms = Arc::new(Terms::new(None));
        let (first, second) =
            (terms.begin(5, DEVICE).await.expect("next"), terms.begin(5, DEVICE).await.expect("next"));
        terms.hear(6);
        assert!(terms.begin(6, DeviceId(2)).await.is_ok());
        assert!(timeout(SOON, terms.begin(6, DEVICE)).await.is_err());
        drop(first);
        assert!(timeout(SOON, terms.begin(6, DEVICE)).await.is_err(), "the other one is under way");
        let ends = async {
            tokio::time::sleep(SOON).await;
            drop(second);
        };
        let (begun, ()) = tokio::join!(terms.begin(6, DEVICE), ends);
        let begun = begun.expect("nothing of an earlier term is under way");
        let later = async {
            tokio::time::sleep(SOON).await;
            terms.hear(8);
        };
        terms.hear(7);
        let (waits, ()) =
            timeout(2 * SOON, async { tokio::join!(terms.begin(7, DEVICE), later) }).await.expect("it waits in vain");
        assert_eq!(kind(waits), Some(ErrorKind::Refused));
        assert_eq!(
            kind(timeout(2 * WAIT_MAX, terms.begin(8, DEVICE)).await.expect("it gives up")),
            Some(ErrorKind::Busy)
        );
        drop(begun);
        assert!(terms.begin(8, DEVICE).await.is_ok());
        assert!(terms.state().under_way.is_empty());
    }
}
