//! Waiting for room on full devices: when the next try is, and when there was none for too long.

use crate::writer::FileWriter;
use base::env::Clock;
use base::error::{ErrorKind, Result};
use base::limit::FULL_WAIT;
use base::unit::Time;
use std::future::Future;
use std::time::Duration;

/// The first pause; each is twice the one before, up to the last.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_LAST: Duration = Duration::from_secs(1);

/// The pauses between tries.
pub(crate) struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Pauses {
        Pauses(PAUSE_FIRST)
    }
}

impl Pauses {
    /// Waits until the next try is due.
    pub async fn rest(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(PAUSE_LAST);
    }
}

/// Tries of one thing, until there was no room for it for `FULL_WAIT`.
#[derive(Default)]
pub struct Tries {
    /// When there was none for the first time.
    since: Option<Time>,
    pauses: Pauses,
}

impl Tries {
    /// There was no room: waits until the next try is due. False, at once: there was none for too long.
    pub async fn goes_on(&mut self, clock: &dyn Clock) -> bool {
        let now = clock.now();
        let goes_on = now.since(*self.since.get_or_insert(now)) < FULL_WAIT;
        if goes_on {
            self.pauses.rest().await;
        }
        goes_on
    }
}

/// Opens a file for writing. Where no device has room for its first bytes one may have some soon: what was deleted comes back by and by,
/// and devices report it every second.
pub(crate) async fn when_there_is_room<F: Future<Output = Result<FileWriter>>>(
    clock: &dyn Clock,
    open: impl Fn() -> F,
) -> Result<FileWriter> {
    let mut tries = Tries::default();
    loop {
        match open().await {
            Err(error) if error.kind() == ErrorKind::Full && tries.goes_on(clock).await => (),
            other => return other,
        }
    }
}
