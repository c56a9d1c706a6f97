//! How long a writer waits for one replica of a column when another one has answered. One that is silent is given up, so that the file goes on
//! without it: its node may be stopped, cut off or gone, and only the time tells.

use super::Flow;
use super::append::Outcome;
use base::error::{Error, ErrorKind, Result};
use base::id::DeviceId;
use base::policy::Level;
use base::unit::Time;
use base::watched::{Stop, Stopped};
use futures_util::StreamExt;
use net::Link;
use std::time::Duration;

/// So long at first: readers wait as long for a replica before they ask another one. A node that is up answers an append in milliseconds, and one
/// that is given up for nothing costs a copy of up to a chunk.
pub(crate) const FIRST: Duration = Duration::from_secs(2);

/// It doubles with each replica that is given up, to this: where all are slow by turns, none is to blame.
const LAST: Duration = Duration::from_secs(16);

/// So much longer is waited for what is on its way to stable media while its node is heard, and for a call that nobody else has answered yet: a
/// disk that syncs a full cache is no dead one.
const OF_SYNCS: u32 = 4;

/// How long the next one is waited for when one was given up.
pub(crate) fn next(patience: Duration) -> Duration {
    patience.saturating_mul(2).min(LAST)
}

/// When a replica is given up that has not answered what another one answered at `first`, if that is to be synced: so long after its node was heard
/// last. `heard`: none of one that is asked within this process.
pub(crate) fn due_of_sync(first: Time, heard: Option<Time>, patience: Duration) -> Time {
    let latest = first.after(patience.saturating_mul(OF_SYNCS));
    heard.map_or(latest, |heard| heard.max(first).after(patience).min(latest))
}

/// How long the calls to a replica may last: until it is given up, and no longer than this.
pub(super) struct Limit {
    pub(super) given_up: Stopped,
    pub(super) at_most: Option<Duration>,
}

impl Limit {
    /// What comes of a call to this device; `Unreachable` if it is not waited for any more.
    pub(super) async fn keep<T>(self, call: impl Future<Output = Result<T>>, device: DeviceId) -> Result<T> {
        let over = async {
            match self.at_most {
                None => self.given_up.until().await,
                Some(at_most) => {
                    let _heard_or_late = tokio::time::timeout(at_most, self.given_up.until()).await;
                }
            }
        };
        tokio::select! {
            biased;
            result = call => result,
            () = over => Err(silent(device)),
        }
    }
}

pub(crate) fn silent(device: DeviceId) -> Error {
    let text = format!(
        "device {device} has not answered while another replica has; the file goes on without it, and gets another copy later"
    );
    Error::new(ErrorKind::Unreachable, text)
}

/// Hears when a replica is given up.
pub(super) struct GivenUp {
    stop: Stop,
    stopped: Stopped,
}

impl GivenUp {
    pub(super) fn new() -> GivenUp {
        let (stop, stopped) = Stop::new();
        GivenUp { stop, stopped }
    }
}

impl Flow {
    /// How long an append to this replica may last; as long as its link lets it, if the column has no other.
    pub(super) fn limit(&self, slot: usize) -> Option<Limit> {
        let given_up = self.group.slots[slot].given_up.as_ref()?;
        Some(Limit { given_up: given_up.stopped.clone(), at_most: None })
    }

    /// The same for a call that is made alone.
    pub(super) fn limit_alone(&self, slot: usize) -> Option<Limit> {
        let at_most = self.patience.saturating_mul(OF_SYNCS);
        self.limit(slot).filter(|_| self.has_another(slot)).map(|limit| Limit { at_most: Some(at_most), ..limit })
    }

    /// The next append that is answered, or that is not waited for any more. None if none is on its way.
    pub(super) async fn next_outcome(&mut self) -> Option<Outcome> {
        while self.group.layout.has_several() {
            let Some(due) = self.overdue().map(|(due, _)| due).min() else { break };
            let left = due.since(self.client.session.clock.now());
            tokio::select! {
                biased;
                outcome = self.in_flight.next() => return outcome,
                () = tokio::time::sleep(left) => self.give_up_overdue(),
            }
        }
        self.in_flight.next().await
    }

    /// The replicas that have not answered an append which another one that is well has answered or refused, and when each is given up for it.
    fn overdue(&self) -> impl Iterator<Item = (Time, usize)> + '_ {
        let begun = self.unacknowledged.iter().filter_map(|sent| {
            let answered = sent.first.map(|first| (first, false));
            Some((answered.or_else(|| Some((sent.refused?, true)))?, sent))
        });
        begun.flat_map(move |((first, is_refused), sent)| {
            let of = self.group.of(sent.column);
            let waits = move |slot: usize| sent.waits & (1 << (slot - of.start)) != 0;
            // One that has refused it is asked again.
            let has_refused = |slot: usize| self.refused.iter().any(|(append, _)| append.slot == slot);
            let is_answered = move |slot: usize| !waits(slot) || is_refused && has_refused(slot);
            let is_waited_for = self.group.of(sent.column).any(|slot| is_answered(slot) && self.is_well(slot));
            let slots = self.group.of(sent.column).filter(move |slot| is_waited_for && waits(*slot));
            let slots = slots.filter(move |slot| self.is_well(*slot) && !has_refused(*slot));
            slots.map(move |slot| (self.due(slot, first, is_refused || sent.level >= Level::Synced), slot))
        })
    }

    /// When a replica is given up that has not answered what another one answered at `first`. One that answers all the same, only later and later,
    /// is slow and not silent: it has as long again after each answer. `is_long`: it may be syncing, which takes long while its node is heard.
    fn due(&self, slot: usize, first: Time, is_long: bool) -> Time {
        let slot = &self.group.slots[slot];
        let answered = slot.answered.map_or(first, |answered| answered.max(first));
        let latest = first.after(self.patience.saturating_mul(OF_SYNCS));
        match is_long {
            true => due_of_sync(first, slot.link.as_ref().and_then(Link::heard), self.patience),
            false => answered.after(self.patience).min(latest),
        }
    }

    /// One device after another: each replica there has to have one beside it that is well still. What one device does not answer in several columns
    /// is one silence.
    fn give_up_overdue(&mut self) {
        let now = self.client.session.clock.now();
        loop {
            let overdue = self.overdue().find(|(due, _)| *due <= now);
            let Some((_, slot)) = overdue else { return };
            let device = self.group.device(slot);
            let there = self.overdue().map(|(_, slot)| slot).filter(|slot| self.group.device(*slot) == device);
            for slot in there.collect::<Vec<_>>() {
                self.leave(slot, silent(device));
                if let Some(given_up) = &self.group.slots[slot].given_up {
                    given_up.stop.stop();
                }
            }
            self.patience = next(self.patience);
        }
    }
}
