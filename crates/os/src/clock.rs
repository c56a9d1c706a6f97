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
    use std::time::Duration;

    /// Seconds that a namespace of the test says its machine was suspended.
    const SUSPENDED: u64 = 1_000_000;

    /// Time goes on while the machine is suspended: in a time namespace in which the clock that counts that is ahead, and the other one is
    /// not, ours is ahead.
    #[test]
    fn counts_suspended_time() {
        let before = since_boot();
        let Some(there) = since_boot_after_suspension() else {
            let needed = std::env::var("CI").is_ok_and(|ci| ci == "true");
            assert!(!needed, "a time namespace cannot be made here");
            eprintln!("not tried: a time namespace cannot be made here");
            return;
        };
        let ahead = there.saturating_sub(before).as_secs();
        assert!((SUSPENDED..SUSPENDED + 1000).contains(&ahead), "{ahead} s");
    }

    /// What a process reads in such a namespace. None: the system does not let us make one.
    fn since_boot_after_suspension() -> Option<Duration> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two descriptors into `ends`.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: the child calls nothing that may wait for another thread, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe { libc::_exit(read_in_namespace(ends[1])) };
        }
        let mut bytes = [0u8; 8];
        // SAFETY: the descriptors are ours, `bytes` has eight bytes, the child is ours.
        let read = unsafe {
            libc::close(ends[1]);
            let read = libc::read(ends[0], bytes.as_mut_ptr().cast(), bytes.len());
            libc::close(ends[0]);
            libc::waitpid(child, std::ptr::null_mut(), 0);
            read
        };
        (read == 8).then(|| Duration::from_nanos(u64::from_ne_bytes(bytes)))
    }

    /// Makes the namespace, in which only a child of this process is, and lets one write what it reads. The exit status.
    fn read_in_namespace(out: libc::c_int) -> libc::c_int {
        /// Of linux/sched.h, since 5.6.
        const CLONE_NEWTIME: libc::c_int = 0x80;
        let offset = b"boottime 1000000 0\n";
        // SAFETY: only calls that may follow a fork, with texts that end with a zero byte and memory that is there.
        unsafe {
            if libc::unshare(CLONE_NEWTIME) != 0 {
                return 1;
            }
            let file = libc::open(c"/proc/self/timens_offsets".as_ptr(), libc::O_WRONLY);
            if file < 0 || libc::write(file, offset.as_ptr().cast(), offset.len()) != offset.len() as isize {
                return 1;
            }
            let child = libc::fork();
            if child == 0 {
                let now = (since_boot().as_nanos() as u64).to_ne_bytes();
                libc::_exit(i32::from(libc::write(out, now.as_ptr().cast(), now.len()) != 8));
            }
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        0
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
