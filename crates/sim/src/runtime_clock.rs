//! Time as a tokio runtime has it: in a simulation, where the runtime's time is paused, it jumps to the next thing that is due.
#![allow(clippy::disallowed_methods)] // The runtime's time is the master here; everybody else asks this clock.

use base::env::Clock;
use base::unit::{Time, WallTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::Instant;

/// A clock that follows its runtime's time, and a calendar that can be set wrong. To be asked within the runtime only.
pub struct RuntimeClock {
    start: Instant,
    /// How far the calendar is wrong, in milliseconds.
    wall_error: AtomicI64,
}

/// What the calendar shows at first: 2026-01-01 00:00 UTC, in milliseconds since 1970.
const WALL_START: i64 = 1_767_225_600_000;

impl RuntimeClock {
    /// A clock that stands at zero now.
    pub fn starting_now() -> RuntimeClock {
        RuntimeClock { start: Instant::now(), wall_error: AtomicI64::new(0) }
    }

    /// Moves the calendar by so many milliseconds, forwards or back. Monotonic time does not notice.
    pub fn jump_wall(&self, milliseconds: i64) {
        self.wall_error.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for RuntimeClock {
    fn now(&self) -> Time {
        Time::ZERO.after(self.start.elapsed())
    }

    fn wall(&self) -> WallTime {
        let passed = i64::try_from(self.start.elapsed().as_millis()).unwrap_or(i64::MAX);
        let shown = WALL_START.saturating_add(passed).saturating_add(self.wall_error.load(Ordering::Relaxed));
        WallTime(u64::try_from(shown).unwrap_or(0))
    }
}

/// The clock of one machine, which goes a little faster or slower than time does, and whose calendar can be set wrong.
pub struct MachineClock {
    time: Arc<RuntimeClock>,
    /// What it gains, in parts in a million.
    drift: i64,
    /// How far its calendar is wrong, in milliseconds.
    wall_error: AtomicI64,
}

impl MachineClock {
    /// A clock that gains `drift` parts in a million.
    pub fn new(time: Arc<RuntimeClock>, drift: i64) -> MachineClock {
        MachineClock { time, drift, wall_error: AtomicI64::new(0) }
    }

    /// Moves the calendar by so many milliseconds, forwards or back. Monotonic time does not notice.
    pub fn jump_wall(&self, milliseconds: i64) {
        self.wall_error.fetch_add(milliseconds, Ordering::Relaxed);
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Time {
        let nanos = self.time.now().as_nanos();
        let gained = i128::from(nanos) * i128::from(self.drift) / 1_000_000;
        Time::from_nanos(nanos.saturating_add_signed(i64::try_from(gained).unwrap_or(i64::MAX)))
    }

    fn wall(&self) -> WallTime {
        WallTime(self.time.wall().0.saturating_add_signed(self.wall_error.load(Ordering::Relaxed)))
    }
}
