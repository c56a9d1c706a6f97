//! Operations that a thread does itself instead of handing them to another one, as long as the disk is fast.

use super::directory::Directory;
use base::buffer::{Buffer, Pool};
use base::disk::{DiskError, Inline, Op};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Beside operations that take this long on average, the wait for another thread is nothing, and this one is missed elsewhere.
const SLOW: Duration = Duration::from_micros(500);

/// While they are slow, others do them for so many times as long as they take: a thread is held up for about a hundredth of its time,
/// however slow the disk is.
const PAUSE: u64 = 100;

/// One operation counts for a sixteenth of the average: one in which the file system merged a tree, or that had to wait for a processor, makes
/// no disk slow.
const SHARE: u64 = 16;

/// Whether a disk is fast enough. Several threads may ask and tell.
pub(super) struct Speed {
    began: Instant,
    /// How long operations take, in nanoseconds.
    average: AtomicU64,
    /// Nanoseconds after `began` until which it counts as slow.
    slow_until: AtomicU64,
}

impl Speed {
    pub(super) fn new() -> Speed {
        #[allow(clippy::disallowed_methods)]
        let began = Instant::now();
        Speed { began, average: AtomicU64::new(0), slow_until: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.began.elapsed())
    }

    /// Does something that the average is to know of.
    pub(super) fn time<T>(&self, operation: impl FnOnce() -> T) -> T {
        let began = self.now();
        let result = operation();
        self.took(Duration::from_nanos(self.now().saturating_sub(began)));
        result
    }

    /// An operation took so long.
    pub(super) fn took(&self, took: Duration) {
        let took = nanoseconds(took);
        let before = self.average.load(Ordering::Relaxed);
        let average = before - before / SHARE + took / SHARE;
        self.average.store(average, Ordering::Relaxed);
        if average >= nanoseconds(SLOW) {
            let pause = average.saturating_mul(PAUSE);
            self.slow_until.store(self.now().saturating_add(pause), Ordering::Relaxed);
        }
    }

    /// Whether operations were fast on average, or slow ones are long ago.
    pub(super) fn is_fast(&self) -> bool {
        let until = self.slow_until.load(Ordering::Relaxed);
        until == 0 || self.now() >= until
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Nobody does operations himself while the disk has so many bytes to move for others: they would wait for those, and count as slow.
pub(super) const BUSY_MAX: usize = 256 << 10;

/// A directory for those who do its operations themselves.
pub(super) struct InlineDirectory {
    directory: Arc<Directory>,
    pool: Pool,
    pub(super) speed: Speed,
    /// Bytes that others have the disk move.
    pub(super) busy: AtomicUsize,
}

impl InlineDirectory {
    pub(super) fn new(directory: Arc<Directory>, pool: Pool) -> InlineDirectory {
        InlineDirectory { directory, pool, speed: Speed::new(), busy: AtomicUsize::new(0) }
    }
}

impl Inline for InlineDirectory {
    fn is_fast(&self) -> bool {
        self.busy.load(Ordering::Relaxed) < BUSY_MAX && self.speed.is_fast()
    }

    fn execute(&self, op: Op) -> Result<Buffer, DiskError> {
        self.speed.time(|| self.directory.execute(op, &self.pool))
    }

    fn took(&self, time: Duration) {
        self.speed.took(time);
    }
}

#[cfg(test)]
mod tests {
    use super::Speed;
    use std::time::Duration;

    /// One slow operation among fast ones makes no slow disk, one of seconds does, and so do many; then it is slow for long, and fast again
    /// some time after.
    #[test]
    fn slow_on_average() {
        let speed = Speed::new();
        let takes = |times: u32, took: Duration| (0..times).for_each(|_| speed.took(took));
        takes(20, Duration::from_micros(100));
        takes(1, Duration::from_millis(6));
        assert!(speed.is_fast());
        takes(10, Duration::from_millis(2));
        assert!(!speed.is_fast());
        let speed = Speed::new();
        speed.took(Duration::from_secs(60));
        assert!(!speed.is_fast());
        speed.slow_until.store(1, std::sync::atomic::Ordering::Relaxed);
        assert!(speed.is_fast());
    }
}
