//! The most memory that a process had.

use base::error::Result;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// Watches how much memory of its own (RssAnon: the page cache is not in it) a process has.
pub struct Sampler {
    peak: Arc<AtomicU64>,
    /// Ends the thread when it is dropped.
    _end: SyncSender<()>,
}

impl Sampler {
    /// Looks at this process so often until this is dropped.
    pub fn start(process: u32, every: Duration) -> Result<Sampler> {
        let (end, ended) = sync_channel::<()>(1);
        let peak = Arc::new(AtomicU64::new(0));
        let highest = peak.clone();
        os::thread::spawn("memory-sampler", move || {
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                if let Ok(used) = os::process::usage(process) {
                    highest.fetch_max(used.anonymous_bytes, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Sampler { peak, _end: end })
    }

    /// The most so far, in bytes.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}
