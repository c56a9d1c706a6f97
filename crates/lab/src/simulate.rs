//! One seed, one history: a whole node and its clients in one thread, in virtual time, on simulated disks and network.

mod bags;
mod director;
mod files;
mod format;
mod hardware;
mod killed;
mod oracle;
mod passing;
mod returned;
mod rivals;
mod scene;
mod witness;

pub use director::{FAULTS, OPERATIONS, TROUBLES};

use base::env::{Clock, Random};
use base::planted::Planted;
use director::Director;
use hardware::Hardware;
use oracle::{Broken, Check};
use scene::Scene;
use sim::net::SimNet;
use sim::random::SimRandom;
use sim::runtime_clock::RuntimeClock;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What came of one history.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Folded from every disk operation and every byte on the network: equal for equal histories.
    pub history: u64,
    /// How long it was, in virtual time.
    pub length: Duration,
    /// Operations and checks.
    pub counts: BTreeMap<&'static str, u64>,
    /// Faults that fired.
    pub faults: BTreeMap<&'static str, u64>,
    /// The promise that was broken, if one was.
    pub broken: Option<String>,
    /// What happened, for people, if it was asked for.
    pub lines: Vec<String>,
}

/// Plays the history of a seed to its end, or until a promise is broken. `planted`: with this fault in the engines.
/// `keep_lines`: remember what happens.
pub fn play(seed: u64, planted: Option<Planted>, keep_lines: bool) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Report { broken: Some(format!("no runtime: {error}")), ..Report::default() },
    };
    // What is heard of panics is the process's: one history at a time.
    let _alone = lock(&ALONE);
    let mut report = Report::default();
    let panics = Arc::new(Mutex::new(Vec::new()));
    let heard = panics.clone();
    // A task that panics ends alone; here it must not go unnoticed.
    std::panic::set_hook(Box::new(move |panic| lock(&heard).push(panic.to_string())));
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(history(seed, planted, keep_lines, &mut report))
    }));
    drop(std::panic::take_hook());
    let panics = lock(&panics);
    if played.is_err() || !panics.is_empty() {
        report.broken = Some(format!("a panic: {}", panics.join("; ")));
    }
    report
}

static ALONE: Mutex<()> = Mutex::new(());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn history(seed: u64, planted: Option<Planted>, keep_lines: bool, report: &mut Report) {
    let random = SimRandom::new(seed);
    let clock = Arc::new(RuntimeClock::starting_now());
    let hardware = Arc::new(Hardware::new(1 + random.fork("devices").below(3) as usize, &random, clock.clone()));
    let net = SimNet::new(random.fork("net").next(), clock.clone(), "nobody");
    let scene = Arc::new(Scene::new(random, clock.clone(), net, hardware, keep_lines));
    let mut director = Director::new(scene.clone(), planted);
    let outcome = whole(&mut director).await;
    report.history = u64::from(scene.hardware.history()) << 32 | u64::from(scene.net.history());
    report.length = Duration::from_nanos(clock.now().as_nanos());
    report.counts = scene.counts();
    report.faults = director.faults();
    report.lines = scene.lines();
    report.broken = outcome.err().map(|Broken(text)| text);
}

async fn whole(director: &mut Director) -> Check<()> {
    director.start().await?;
    director.work().await?;
    director.finale().await
}

#[cfg(test)]
mod tests {
    use super::play;
    use base::planted::Planted;

    /// A seed has one history, another seed another one, and no promise is broken in either.
    #[test]
    fn one_seed_one_history() {
        let (first, again, other) = (play(1, None, false), play(1, None, false), play(2, None, false));
        assert_eq!(
            (first.broken.as_deref(), other.broken.as_deref()),
            (None, None),
            "repeat: cargo x sim --seeds 2 --from 1"
        );
        assert_eq!(
            (first.history, first.length),
            (again.history, again.length),
            "repeat: cargo x sim --seeds 1 --from 1"
        );
        assert_ne!(first.history, other.history);
    }

    /// A device that answers before it syncs is noticed.
    #[test]
    fn a_fault_is_noticed() {
        let noticed = |seed| play(seed, Some(Planted::AnsweredBeforeSync), false).broken.is_some();
        assert!((0..20).any(noticed), "repeat: cargo x sim --planted");
    }
}
