//! Counting that costs a few nanoseconds: histograms of durations that any thread may add to, without locks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets: 32 us doubled again and again, up to 16.8 s. A synced append takes a fraction of a
/// millisecond on a good device and tens on a bad one; factors of two are fine enough to see either.
pub const BOUNDS: usize = 20;

/// The first bound, in nanoseconds.
const FIRST: u64 = 32_000;

/// How long something took, counted by buckets. Relaxed: a reader may see a sum that is one event ahead of its buckets.
#[derive(Debug)]
pub struct Histogram {
    /// One for each bound, and one for everything above.
    buckets: [AtomicU64; BOUNDS + 1],
    nanos: AtomicU64,
}

/// What a histogram held at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Events in each bucket; the last one has no bound.
    pub buckets: [u64; BOUNDS + 1],
    /// All durations together.
    pub sum: Duration,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one event.
    pub fn add(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[place(nanos)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What it holds now.
    pub fn counted(&self) -> Counted {
        Counted {
            buckets: std::array::from_fn(|place| self.buckets[place].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

/// The bucket: the first whose bound is not below.
fn place(nanos: u64) -> usize {
    let steps = nanos.saturating_sub(1) / FIRST;
    ((u64::BITS - steps.leading_zeros()) as usize).min(BOUNDS)
}

impl Counted {
    /// All events.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The upper bound of a bucket but the last.
    pub fn bound(place: usize) -> Duration {
        Duration::from_nanos(FIRST << place.min(BOUNDS - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::{BOUNDS, Counted, Histogram};
    use std::time::Duration;

    /// An event lies in the first bucket whose bound is not below it; none is lost, whatever its length.
    #[test]
    fn buckets() {
        for bucket in 0..BOUNDS {
            let bound = Counted::bound(bucket);
            for (took, expected) in [(bound, bucket), (bound + Duration::from_nanos(1), bucket + 1)] {
                let histogram = Histogram::default();
                histogram.add(took);
                let counted = histogram.counted();
                assert_eq!(counted.buckets[expected], 1, "{took:?}: {counted:?}");
                assert_eq!((counted.count(), counted.sum), (1, took));
            }
        }
        let histogram = Histogram::default();
        histogram.add(Duration::ZERO);
        histogram.add(Duration::from_secs(1 << 30));
        assert_eq!((histogram.counted().buckets[0], histogram.counted().buckets[BOUNDS]), (1, 1));
    }
}
