//! Which devices took no more of a file: so that the next group lies elsewhere, each of them has its chance, and a writer gives up some time.

use base::error::Error;
use base::id::DeviceId;
use base::limit::{FULL_WAIT, REFUSED_MAX};
use base::unit::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// So long after it refused bytes a device is not asked for more if others take them: its file system may be full although its node reports
/// room, and then each try costs `FULL_WAIT`.
const AVOIDED: Duration = Duration::from_secs(60);

/// Why a device takes no more.
#[derive(Clone)]
pub(super) enum Reason {
    /// It has no room.
    Full,
    /// It failed or cannot be reached, and what was heard of it.
    Gone(Error),
}

struct Refusal {
    reason: Reason,
    at: Time,
    /// The acknowledged bytes have grown since then: it may be tried again.
    is_old: bool,
}

/// Devices that refused bytes of one writer.
#[derive(Default)]
pub(super) struct Refusals {
    devices: BTreeMap<DeviceId, Refusal>,
    /// When one of them did for the first time, the last such time, since the acknowledged bytes grew.
    since: Option<Time>,
    /// It was time to give up, and the store is asked once more.
    last: Last,
}

/// The last question to the store before a writer gives up: a device may have room by now that was not asked, or has refused long ago.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Last {
    #[default]
    NotYet,
    /// It is to be asked.
    Ask,
    /// It gave the present group.
    Asked,
}

/// What a writer does whose append is refused again.
pub(super) enum Next {
    /// Asks the same device later.
    Wait,
    /// Goes elsewhere.
    Elsewhere,
    /// Fails.
    GiveUp,
}

impl Refusals {
    /// Remembers that a device takes no more. Whether that is news since the acknowledged bytes grew: others may be tried then.
    pub(super) fn note(&mut self, device: DeviceId, reason: Reason, now: Time) -> bool {
        let known = self.devices.get(&device).filter(|known| !known.is_old).map(|known| &known.reason);
        let is_news = match (known, &reason) {
            // One that was full and is gone by now is not sealed, and the store has to know that.
            (Some(Reason::Full), Reason::Gone(_)) => true,
            (Some(_), _) => return false,
            (None, _) => self.is_new(device),
        };
        if is_news {
            self.devices.insert(device, Refusal { reason, at: now, is_old: false });
            self.since = Some(now);
        }
        is_news
    }

    /// Whether a device may still take what the others did not: each has its chance, and no writer waits for ever.
    pub(super) fn is_new(&self, device: DeviceId) -> bool {
        match self.devices.get(&device) {
            Some(known) => known.is_old,
            None => self.devices.len() < REFUSED_MAX,
        }
    }

    /// More bytes are acknowledged, without a gap.
    pub(super) fn progress(&mut self) {
        (self.since, self.last) = (None, Last::NotYet);
        self.devices.values_mut().for_each(|known| known.is_old = true);
    }

    /// What a writer does whose append this device refuses again.
    pub(super) fn next(&mut self, device: DeviceId, now: Time) -> Next {
        if self.is_new(device) {
            return Next::Elsewhere;
        }
        if self.last == Last::Asked {
            return Next::GiveUp;
        }
        if !self.is_over(now) {
            return Next::Wait;
        }
        self.last = Last::Ask;
        Next::Elsewhere
    }

    /// Whether the store is to be asked for the last time. It is now.
    pub(super) fn is_last_question(&mut self) -> bool {
        let asks = self.last == Last::Ask;
        if asks {
            self.last = Last::Asked;
        }
        asks
    }

    /// Whether the store gave one of these devices for a new group although it refused a moment ago, so that all are to be avoided: then
    /// those that refused before the bytes grew are tried first, and are avoided no longer.
    pub(super) fn is_given_again(&mut self, mut devices: impl Iterator<Item = DeviceId>) -> bool {
        let known = self.devices.len();
        if devices.any(|device| !self.is_new(device)) {
            self.devices.retain(|_, known| !known.is_old);
        }
        self.devices.len() < known
    }

    /// Whether it is time to give up, should no other device be there to be tried.
    pub(super) fn is_over(&mut self, now: Time) -> bool {
        now.since(*self.since.get_or_insert(now)) >= FULL_WAIT
    }

    /// Whether a device took no more since the acknowledged bytes grew last.
    pub(super) fn has_refused(&self, device: DeviceId) -> bool {
        self.devices.get(&device).is_some_and(|known| !known.is_old)
    }

    /// A device that was taken for gone has answered, and with it its node, which these others are on.
    pub(super) fn is_heard_again(&mut self, device: DeviceId, beside: impl IntoIterator<Item = DeviceId>) {
        for device in beside.into_iter().chain([device]) {
            if self.gone(device).is_some() {
                self.devices.remove(&device);
            }
        }
    }

    /// What was heard of a device that is gone.
    pub(super) fn gone(&self, device: DeviceId) -> Option<&Error> {
        match self.devices.get(&device) {
            Some(Refusal { reason: Reason::Gone(error), is_old: false, .. }) => Some(error),
            _ => None,
        }
    }

    /// What was heard of the first that is gone, if no other is only full.
    pub(super) fn gone_alone(&self) -> Option<Error> {
        let mut fresh = self.devices.values().filter(|known| !known.is_old).map(|known| &known.reason);
        let first = fresh.next().cloned();
        match first {
            Some(Reason::Gone(error)) if fresh.all(|reason| matches!(reason, Reason::Gone(_))) => Some(error),
            _ => None,
        }
    }

    /// The only one that takes no more, if it is full.
    pub(super) fn only_full(&self) -> Option<DeviceId> {
        let mut fresh = self.devices.iter().filter(|(_, known)| !known.is_old);
        match (fresh.next(), fresh.next()) {
            (Some((device, Refusal { reason: Reason::Full, .. })), None) => Some(*device),
            _ => None,
        }
    }

    /// Those to be avoided now, and apart from them those that are gone: what the present group has on these is not sealed.
    pub(super) fn avoided(&mut self, now: Time) -> (Vec<DeviceId>, Vec<DeviceId>) {
        self.devices.retain(|_, known| !known.is_old || now.since(known.at) < AVOIDED);
        let (gone, others): (Vec<DeviceId>, Vec<DeviceId>) =
            self.devices.keys().copied().partition(|device| self.gone(*device).is_some());
        (others, gone)
    }
}
