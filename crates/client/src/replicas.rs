//! Reading a column that has several replicas: where one does not serve, the next is asked; those that failed lately are asked last.

use crate::client::Client;
use crate::columns::{Head, Places, Standing};
use crate::locality::Side;
use crate::routes::Routes;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use net::message::Id;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::timeout;

/// So long a device has to answer while another one that did not fail lately has the same bytes. Of a node that is gone it is known only after
/// `CALL_SILENCE_MAX`, 10 s. Not much shorter: what a client asks for ahead, 48 MiB (`Sizes::read_window`), takes a disk of 100 MB/s half a
/// second, so a disk that three such readers share is not given up. One that has more to do is left alone for `REMEMBERED` then, so
/// that a client asks it in vain for one window in 7 s at most. When all are as slow nobody is given up: then each has the whole time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// A failure counts for so long: the time after which the keeper holds a node for silent, too (`NODE_SILENCE_MAX`).
const REMEMBERED: Duration = Duration::from_secs(5);

/// Failures remembered. Beyond that they are not: then a read waits `PATIENCE` once more.
const FAILURES_MAX: usize = 4096;

/// What an error says of one device, at the most, in characters.
const SAID_MAX: usize = 200;

/// Who failed: all devices of a node that does not answer do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Device(u128),
    Node(u128),
}

/// What this client's reads had of each device lately.
#[derive(Default)]
pub(crate) struct Lately {
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    failed: BTreeMap<Who, Time>,
    /// Bytes asked for and not answered yet.
    under_way: BTreeMap<u128, u64>,
}

impl Lately {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes are asked of a device until what comes back is dropped.
    fn begin(&self, device: Id, bytes: u64) -> UnderWay<'_> {
        *self.seen().under_way.entry(device.value()).or_default() += bytes;
        UnderWay { lately: self, device: device.value(), bytes }
    }

    fn failed(&self, who: &[Who], now: Time) {
        let mut seen = self.seen();
        if seen.failed.len().saturating_add(who.len()) > FAILURES_MAX {
            seen.failed.retain(|_, at| now.since(*at) < REMEMBERED);
        }
        for who in who {
            if seen.failed.len() < FAILURES_MAX {
                seen.failed.insert(*who, now);
            }
        }
    }

    fn answered(&self, who: &[Who]) {
        let mut seen = self.seen();
        for who in who {
            seen.failed.remove(who);
        }
    }

    /// Whether one of these failed lately.
    fn has_failed(&self, who: &[Who], now: Time) -> bool {
        let seen = self.seen();
        who.iter().any(|who| seen.failed.get(who).is_some_and(|at| now.since(*at) < REMEMBERED))
    }

    fn under_way(&self, device: Id) -> u64 {
        self.seen().under_way.get(&device.value()).copied().unwrap_or(0)
    }
}

/// Bytes that are asked of a device.
struct UnderWay<'a> {
    lately: &'a Lately,
    device: u128,
    bytes: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut seen = self.lately.seen();
        if let Some(bytes) = seen.under_way.get_mut(&self.device) {
            *bytes = bytes.saturating_sub(self.bytes);
            if *bytes == 0 {
                seen.under_way.remove(&self.device);
            }
        }
    }
}

/// Asks the replicas of a column, one after another, until one serves.
pub(crate) struct Asking<'a> {
    lately: &'a Lately,
    routes: &'a Routes,
    clock: &'a Arc<dyn Clock>,
    places: Places,
    bytes: u64,
    failures: Vec<(Id, Error)>,
    /// Those that were given up after `PATIENCE`: asked once more if no other one serves, as one that is alone is.
    slow: Vec<Id>,
}

impl Client {
    /// Asks these places for so many bytes.
    pub(crate) async fn asking(&self, places: Places, bytes: u64) -> Asking<'_> {
        let (routes, clock) = (&self.session.routes, &self.session.clock);
        let table = routes.table();
        if places.are_several() && table.view.members.is_empty() {
            // Which of them is near is not known yet. If nobody says so, that is seen when they are asked.
            let _all_the_same = routes.refresh(&table).await;
        }
        Asking { lately: &self.session.lately, routes, clock, places, bytes, failures: Vec::new(), slow: Vec::new() }
    }
}

impl Asking<'_> {
    /// Asks the next one. None: it did not serve, and there is another one. The error of a device that was alone is as it was made; of
    /// several it says what each answered.
    pub(crate) async fn next<T, F: Future<Output = Result<T>>>(
        &mut self,
        ask: impl FnOnce(Head) -> F,
    ) -> Result<Option<T>> {
        let (head, another) = self.choose();
        let asked = ask(head);
        let _counted = self.lately.begin(head.device, self.bytes);
        let who = who(self.routes, head.device);
        let answered = match another {
            true => match timeout(PATIENCE, asked).await {
                Ok(answered) => answered,
                Err(_) => {
                    self.lately.failed(&who, self.clock.now());
                    self.slow.push(head.device);
                    return Ok(None);
                }
            },
            false => asked.await,
        };
        let error = match answered {
            Ok(served) => {
                self.lately.answered(&who);
                return Ok(Some(served));
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Unreachable => self.lately.failed(&who, self.clock.now()),
            ErrorKind::Io => self.lately.failed(&who[..1], self.clock.now()),
            // What it says is of these bytes alone.
            _ => self.lately.answered(&who),
        }
        let is_last = self.places.is_empty() && self.slow.is_empty();
        if !is_of_one_device(error.kind()) || (is_last && self.failures.is_empty()) {
            return Err(error);
        }
        self.failures.push((head.device, error));
        if is_last {
            return Err(none_served(&self.failures));
        }
        if self.places.is_empty() {
            self.places.give_back(std::mem::take(&mut self.slow));
        }
        Ok(None)
    }

    /// The one to ask now, and whether another one that did not fail lately is left.
    fn choose(&mut self) -> (Head, bool) {
        let (lately, routes, now) = (self.lately, self.routes, self.clock.now());
        let away = |device: Id| routes.is_away(device) || lately.has_failed(&who(routes, device), now);
        let standing = |device: Id| Standing {
            away: away(device),
            far: !matches!(routes.place_of(device), Some((_, Side::Near))),
            under_way: lately.under_way(device),
        };
        let Some(head) = self.places.take(standing) else { unreachable!("the last one's error ended it") };
        (head, self.places.have(|device| !away(device)))
    }
}

/// A device, and its node as far as that is known.
fn who(routes: &Routes, device: Id) -> [Who; 2] {
    let of_device = Who::Device(device.value());
    [of_device, routes.place_of(device).map_or(of_device, |(node, _)| Who::Node(node.0))]
}

/// Whether another device may answer otherwise.
pub(crate) fn is_of_one_device(kind: ErrorKind) -> bool {
    use ErrorKind::{Busy, Corrupt, Io, NotFound, Protocol, Refused, Unreachable};
    matches!(kind, Unreachable | NotFound | Corrupt | Io | Busy | Refused | Protocol)
}

/// Why no replica served. Its kind is that of the failure that leaves most hope.
fn none_served(failures: &[(Id, Error)]) -> Error {
    let hopes = [
        (
            ErrorKind::Unreachable,
            "the bytes may be safe on devices that do not answer now; bring their nodes back and read again",
        ),
        (ErrorKind::Busy, "the bytes may be safe; read again"),
        (
            ErrorKind::Io,
            "the bytes may be safe on a device that cannot be read now; look at it with `stormwell device ls`",
        ),
        (
            ErrorKind::Corrupt,
            "what is damaged was not served; scrub these devices with `stormwell device scrub`, and restore the file",
        ),
    ];
    let is = |kind: ErrorKind| failures.iter().any(|(_, error)| error.kind() == kind);
    let first = failures.first().map_or(ErrorKind::NotFound, |(_, error)| error.kind());
    let (kind, advice) = hopes.into_iter().find(|(kind, _)| is(*kind)).unwrap_or((
        first,
        "nothing was changed; read again, and if it stays so look at the devices with `stormwell device ls`",
    ));
    let said = |(device, error): &(Id, Error)| {
        let text: String = error.text().chars().take(SAID_MAX).collect();
        format!("device {:032x}: {text}", device.value())
    };
    let said: Vec<String> = failures.iter().map(said).collect();
    let text = format!("none of the {} copies of these bytes could be read; {}; {advice}", said.len(), said.join("; "));
    Error::new(kind, text)
}
