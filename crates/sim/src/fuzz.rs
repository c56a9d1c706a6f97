//! How long the tests that feed damaged bytes to decoders go on.
#![allow(clippy::disallowed_methods)] // Real time bounds real work here; no history depends on it.

use std::time::{Duration, Instant};

/// Seeds for such a test: `count` of them, and then more until `STORMWELL_FUZZ_SECONDS` (if set) have passed.
pub fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let seconds = std::env::var("STORMWELL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let (start, length) = (Instant::now(), Duration::from_secs(seconds));
    (0..).take_while(move |seed| *seed < count || start.elapsed() < length)
}
