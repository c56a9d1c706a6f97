//! How long something took.

use base::env::Clock;
use base::unit::Time;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The clock of the process.
fn clock() -> &'static Arc<dyn Clock> {
    static CLOCK: OnceLock<Arc<dyn Clock>> = OnceLock::new();
    CLOCK.get_or_init(|| Arc::new(os::clock::SystemClock::new()))
}

/// Measures from the moment it is made.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    started: Time,
}

impl Stopwatch {
    /// Starts.
    pub fn start() -> Stopwatch {
        Stopwatch { started: clock().now() }
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        clock().now().since(self.started)
    }

    /// Seconds since the start, at least a nanosecond.
    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64().max(1e-9)
    }

    /// Nanoseconds since the start.
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
