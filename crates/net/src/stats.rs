//! What a server counts, for metrics.

use base::metric::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters of one server. They only rise, except `connections_open`. All are sums since the server began.
#[derive(Debug, Default)]
pub struct NetStats {
    /// Connections that are open now.
    pub connections_open: AtomicU64,
    /// Connections taken.
    pub connections: AtomicU64,
    /// Calls handed to the service.
    pub calls: AtomicU64,
    /// Bytes read from sockets.
    pub bytes_in: AtomicU64,
    /// Bytes written to sockets.
    pub bytes_out: AtomicU64,
    /// Answered calls by kind.
    pub answers: Answers,
    /// Connections that were refused or ended because others need their place or what they held.
    pub refused_connections: AtomicU64,
    /// Frames that ended their connection: damaged, out of bounds, unknown, or sent without credit.
    pub refused_frames: AtomicU64,
}

/// Adds to a counter that orders nothing.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

/// Kinds of calls that are counted apart; none has a higher number yet.
const KINDS: usize = 128;

/// Answered calls by kind, from when a call was handed to the service until its answer was queued.
#[derive(Debug)]
pub struct Answers(Box<[KindStats]>);

/// Answered calls of one kind.
#[derive(Debug, Default)]
pub struct KindStats {
    /// How long they took; failed ones too.
    pub took: Histogram,
    /// Those that were answered with an error.
    pub failed: AtomicU64,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers((0..KINDS).map(|_| KindStats::default()).collect())
    }
}

impl Answers {
    /// Counts an answer. A kind that nobody knows counts as kind 0.
    pub(crate) fn add(&self, kind: u16, failed: bool, took: Duration) {
        let stats = self.0.get(usize::from(kind)).unwrap_or(&self.0[0]);
        stats.took.add(took);
        if failed {
            count(&stats.failed, 1);
        }
    }

    /// Each kind's number and counts.
    pub fn by_kind(&self) -> impl Iterator<Item = (u16, &KindStats)> {
        self.0.iter().enumerate().map(|(kind, stats)| (kind as u16, stats))
    }
}
