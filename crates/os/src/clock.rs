//! The system's clocks.
#![allow(clippy::disallowed_methods)] // This is the real clock.

use base::env::Clock;
use base::unit::{Time, WallTime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The real time; monotonic time counts from when this was made, and goes on while the machine is suspended: a lease that another
/// machine measures does not stop for that either.
#[derive(Debug)]
pub struct SystemClock {
    start: Duration,
}

impl SystemClock {
    /// A clock that starts now.
    pub fn new() -> SystemClock {
        SystemClock { start: since_boot() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(since_boot().saturating_sub(self.start).as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> WallTime {
        // A calendar before 1970 is shown as 1970.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        WallTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// CLOCK_BOOTTIME.
fn since_boot() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes into `now`, which is of the right type. It fails only for a clock that there is not; Linux has this one.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::{SystemClock, since_boot};
    use base::env::Clock;

    /// Time counts what /proc/uptime counts, which goes on while the machine is suspended.
    #[test]
    fn counts_suspended_time() {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
        let ours = since_boot().as_secs_f64();
        // A container may show its own uptime, which is shorter.
        assert!(ours + 1.0 >= uptime, "{ours} {uptime}");
    }

    /// Monotonic time does not go back; the calendar is past 2025.
    #[test]
    fn runs_forward() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.wall().0 > 1_735_689_600_000);
    }
}
