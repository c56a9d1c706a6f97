//! What a server counts, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Frames that ended their connection: damaged, out of bounds, unknown, or sent without credit.
    pub refused_frames: AtomicU64,
}

/// Adds to a counter that orders nothing.
pub(crate) fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}
