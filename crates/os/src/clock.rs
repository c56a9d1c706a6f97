//! The system's clocks.
#![allow(clippy::disallowed_methods)] // This is the real clock.

use base::env::Clock;
use base::unit::{Time, WallTime};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The real time; monotonic time counts from when this was made.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> WallTime {
        // A calendar before 1970 is shown as 1970.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::SystemClock;
    use base::env::Clock;

    /// Monotonic time does not go back; the calendar is past 2025.
    #[test]
    fn runs_forward() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.wall().0 > 1_735_689_600_000);
    }
}
