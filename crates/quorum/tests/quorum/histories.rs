//! Histories of two to five keepers with troubles of all kinds.

use crate::world::World;
use base::planted::Planted;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);

fn live(seed: u64, planted: Option<Planted>) -> Result<(u64, (u64, u64)), String> {
    let keepers = [3, 5, 3, 4, 3, 5, 3, 2][seed as usize % 8];
    let mut world = World::new(seed, keepers, planted);
    let history = world.live(LONG)?;
    Ok((history, world.done))
}

/// No promise is broken, and once all is well it goes on; the same seed is the same history.
#[test]
fn no_promise_is_broken() {
    let seeds = std::env::var("STORMWELL_QUORUM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let (mut changes, mut answers) = (0, 0);
    for seed in 0..seeds {
        let (history, done) = live(seed, None).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        (changes, answers) = (changes + done.0, answers + done.1);
        if seed % 20 == 0 {
            let again = live(seed, None).map(|(history, _)| history);
            assert_eq!(again, Ok(history), "seed {seed} has two histories");
        }
    }
    assert!(changes > 100 * seeds && answers > 1000 * seeds, "{changes} changes, {answers} looks under a lease");
}

/// What goes wrong with a fault, if anything does. The library ends a keeper that sees a rule of its own broken.
fn breaks(seed: u64, planted: Planted) -> Option<String> {
    match std::panic::catch_unwind(|| live(seed, Some(planted))) {
        Ok(lived) => lived.err(),
        Err(panic) => Some(panic.downcast_ref::<String>().cloned().unwrap_or_default()),
    }
}

/// Each fault is noticed.
#[test]
fn planted_faults_are_seen() {
    let ours = Planted::ALL
        .into_iter()
        .filter(|planted| planted.unit_test() == Some("quorum histories::planted_faults_are_seen"));
    // Panics are told below.
    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    for planted in ours {
        let seen = [0, 10_000, 20_000]
            .map(|from| (from..from + 200).find_map(|seed| Some((seed - from, breaks(seed, planted)?))));
        for seen in &seen {
            match seen {
                Some((seeds, broken)) => println!("{planted:?}: {seeds} seeds: {broken}"),
                None => missed.push(planted),
            }
        }
    }
    let _hook = std::panic::take_hook();
    assert!(missed.is_empty(), "not noticed in 200 seeds from one start or several: {missed:?}");
}
