//! Chance that follows from a seed.

use base::env::Random;
use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64: a counter that steps by an odd constant, and a mixing of its bits. Shared by reference or in an `Arc`.
#[derive(Debug)]
pub struct SimRandom {
    seed: u64,
    state: AtomicU64,
}

/// 2^64 divided by the golden ratio, made odd.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads every bit of `value` over all bits of the result.
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

impl SimRandom {
    /// The stream of this seed.
    pub fn new(seed: u64) -> SimRandom {
        SimRandom { seed, state: AtomicU64::new(mix(seed)) }
    }

    /// An independent stream. It depends on the seed and the label alone, not on what was drawn before.
    pub fn fork(&self, label: &str) -> SimRandom {
        let labelled = label.bytes().fold(self.seed, |hash, byte| mix(hash.wrapping_add(STEP) ^ u64::from(byte)));
        SimRandom::new(mix(labelled ^ STEP))
    }

    /// The seed that repeats this stream.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// True once in `bound` draws on average. `bound` must not be zero.
    pub fn one_in(&self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

impl Random for SimRandom {
    fn next(&self) -> u64 {
        mix(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }
}

#[cfg(test)]
mod tests {
    use super::SimRandom;
    use base::env::Random;

    fn draws(random: &SimRandom) -> Vec<u64> {
        (0..100).map(|_| random.next()).collect()
    }

    /// A seed gives one stream; other seeds and labels give others; a fork does not care what was drawn before.
    #[test]
    fn streams() {
        let random = SimRandom::new(7);
        let early = draws(&random.fork("disk"));
        let own = draws(&random);
        assert_eq!(own, draws(&SimRandom::new(7)));
        assert_eq!(early, draws(&random.fork("disk")));
        assert_ne!(own, early);
        assert_ne!(own, draws(&SimRandom::new(8)));
        assert_ne!(early, draws(&random.fork("net")));
    }

    /// Numbers below a bound reach all of them.
    #[test]
    fn covers_the_bound() {
        let random = SimRandom::new(1);
        let mut seen = [0u32; 10];
        (0..1000).for_each(|_| seen[random.below(10) as usize] += 1);
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
    }
}
