//! Time and chance as traits: `os` has the real ones, `sim` those that follow from a seed.

use crate::unit::{Time, WallTime};

/// Gives the time. Monotonic time orders and measures; wall time is shown to people and stored with files.
pub trait Clock: Send + Sync {
    /// Monotonic time since this clock was made.
    fn now(&self) -> Time;
    /// The calendar's time. It may jump.
    fn wall(&self) -> WallTime;
}

/// Gives random bits.
pub trait Random: Send + Sync {
    /// Sixty-four random bits.
    fn next(&self) -> u64;

    /// One hundred and twenty-eight random bits, as ids are made of.
    fn wide(&self) -> u128 {
        (u128::from(self.next()) << 64) | u128::from(self.next())
    }

    /// A number below `bound`, near enough to uniform for choices (the bias is below `bound` / 2^64). `bound` must not be zero.
    fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below zero");
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}
