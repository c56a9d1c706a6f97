//! The system's randomness, stretched so that drawing is cheap.

use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use std::cell::Cell;

/// Random bits from xoshiro256**, one generator per thread, each seeded by the system and again every 65,536 draws.
/// Good for ids, choices and delays; secrets come from `fill`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

/// Draws between two seedings.
const DRAWS: u32 = 1 << 16;

thread_local! {
    static GENERATOR: Cell<([u64; 4], u32)> = const { Cell::new(([0; 4], 0)) };
}

/// Fills `out` with bits straight from the system, as secrets need.
pub fn fill(out: &mut [u8]) -> Result<()> {
    getrandom::fill(out).map_err(|error| {
        let text = format!(
            "the system gives no random numbers ({error}); nothing was changed; check that getrandom(2) is allowed here"
        );
        Error::new(ErrorKind::Io, text)
    })
}

fn seed() -> [u64; 4] {
    let mut bytes = [0u8; 32];
    match fill(&mut bytes) {
        Ok(()) => {}
        // Ids would collide and data with them: better no process than that.
        Err(error) => panic!("{error}"),
    }
    let (words, _) = bytes.as_chunks::<8>();
    let mut state = [1; 4];
    for (word, bytes) in state.iter_mut().zip(words) {
        *word = u64::from_le_bytes(*bytes);
    }
    state
}

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        GENERATOR.with(|generator| {
            let (mut state, mut left) = generator.get();
            if left == 0 {
                (state, left) = (seed(), DRAWS);
            }
            let [a, b, c, d] = &mut state;
            let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
            let shifted = *b << 17;
            *c ^= *a;
            *d ^= *b;
            *b ^= *c;
            *a ^= *d;
            *c ^= shifted;
            *d = d.rotate_left(45);
            generator.set((state, left - 1));
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SystemRandom;
    use base::env::Random;
    use std::collections::BTreeSet;

    /// No number comes twice, not across a new seed and not on another thread.
    #[test]
    fn no_number_twice() {
        let draw = || (0..70_000).map(|_| SystemRandom.next()).collect::<Vec<_>>();
        let other = crate::thread::spawn("draws", draw).unwrap();
        let numbers: BTreeSet<u64> = draw().into_iter().chain(other.join().unwrap()).collect();
        assert_eq!(numbers.len(), 140_000);
    }
}
