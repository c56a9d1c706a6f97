//! The system's randomness, fetched in pieces so that drawing is cheap.

use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use std::cell::Cell;

/// Random bits of the system, fetched for each thread some hundred bytes at a time. What was drawn says nothing of what will be: nonces
/// and ids are shown to strangers.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

/// Words that are fetched at once: a call for each would take ten times as long.
const WORDS: usize = 64;

thread_local! {
    static FETCHED: Cell<([u64; WORDS], usize)> = const { Cell::new(([0; WORDS], 0)) };
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

fn fetch() -> [u64; WORDS] {
    let mut bytes = [0u8; 8 * WORDS];
    match fill(&mut bytes) {
        Ok(()) => {}
        // Ids would collide and data with them: better no process than that.
        Err(error) => panic!("{error}"),
    }
    let (words, _) = bytes.as_chunks::<8>();
    let mut fetched = [0; WORDS];
    for (word, bytes) in fetched.iter_mut().zip(words) {
        *word = u64::from_le_bytes(*bytes);
    }
    fetched
}

impl Random for SystemRandom {
    fn next(&self) -> u64 {
        FETCHED.with(|fetched| {
            let (mut words, mut left) = fetched.get();
            if left == 0 {
                (words, left) = (fetch(), WORDS);
            }
            left -= 1;
            // It is given out once, and not kept.
            let word = std::mem::take(&mut words[left]);
            fetched.set((words, left));
            word
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{FETCHED, SystemRandom, WORDS};
    use base::env::Random;
    use std::collections::BTreeSet;

    /// No number comes twice, not across two fetches and not on another thread.
    #[test]
    fn no_number_twice() {
        let draw = || (0..70_000).map(|_| SystemRandom.next()).collect::<Vec<_>>();
        let other = crate::thread::spawn("draws", draw).unwrap();
        let numbers: BTreeSet<u64> = draw().into_iter().chain(other.join().unwrap()).collect();
        assert_eq!(numbers.len(), 140_000);
    }

    /// What was given out is not kept, and what is kept has nothing to do with it: nothing can be worked out from the numbers that
    /// strangers see.
    #[test]
    fn what_was_given_out_is_gone() {
        let given: Vec<u64> = (0..WORDS / 2).map(|_| SystemRandom.next()).collect();
        let (kept, _) = FETCHED.with(std::cell::Cell::get);
        assert!(given.iter().all(|number| !kept.contains(number)));
    }
}
