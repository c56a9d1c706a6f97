//! Time that moves only when a test says so.

use base::env::Clock;
use base::unit::{Time, WallTime};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Virtual time. Shared by reference or in an `Arc`.
#[derive(Debug, Default)]
pub struct SimClock {
    nanos: AtomicU64,
}

/// What the calendar shows when the clock is at zero: 2026-01-01 00:00 UTC, in milliseconds since 1970.
const WALL_START: u64 = 1_767_225_600_000;

impl SimClock {
    /// A clock that stands at zero.
    pub fn new() -> SimClock {
        SimClock::default()
    }

    /// Moves it on; it stays at the largest moment instead of overflowing.
    pub fn advance(&self, by: Duration) {
        self.set(self.now().after(by));
    }

    /// Sets it. Going back is for tests of what must not happen.
    pub fn set(&self, time: Time) {
        self.nanos.store(time.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime(WALL_START + self.now().as_nanos() / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::SimClock;
    use base::env::Clock;
    use base::unit::Time;
    use std::time::Duration;

    /// Both times move together, and only when told.
    #[test]
    fn moves_when_told() {
        let clock = SimClock::new();
        let wall = clock.wall();
        assert_eq!(clock.now(), Time::ZERO);
        clock.advance(Duration::from_millis(1500));
        assert_eq!(clock.now(), Time::from_nanos(1_500_000_000));
        assert_eq!(clock.wall().0 - wall.0, 1500);
    }
}
