//! One seed, one history: a whole node and its clients in one thread, in virtual time, on simulated disks and network.

mod again;
mod bags;
mod cluster;
mod director;
mod directory;
mod ending;
mod files;
mod filled;
mod format;
mod hardware;
mod hdfs;
mod killed;
mod machine;
mod onlooker;
mod operator;
mod oracle;
mod outlived;
mod passes;
mod passing;
mod players;
mod replicas;
mod returned;
mod rivals;
mod scene;
mod sealing;
mod unanswered;
mod whereabouts;
mod witness;

pub use cluster::{ACKNOWLEDGED_MIN, FAULTS_MIN};
pub use director::FAULTS;

use base::env::{Clock, Random};
use base::planted::Planted;
use cluster::ClusterDirector;
use director::Director;
use hardware::Hardware;
use oracle::Broken;
use scene::Scene;
use sim::net::SimNet;
use sim::random::SimRandom;
use sim::runtime_clock::RuntimeClock;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

/// What came of one history.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Folded from every disk operation and every byte on the network: equal for equal histories.
    pub history: u64,
    /// How long it was, in virtual time.
    pub length: Duration,
    /// Calls of clients that were acknowledged.
    pub acknowledged: u64,
    /// Operations and checks.
    pub counts: BTreeMap<&'static str, u64>,
    /// Faults that fired.
    pub faults: BTreeMap<&'static str, u64>,
    /// Of a cluster: how many of them before the end began.
    pub fired: u64,
    /// The promise that was broken, if one was.
    pub broken: Option<String>,
    /// What happened, for people, if it was asked for.
    pub lines: Vec<String>,
}

/// What a history is of. Each seed has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Store {
    /// One node with its devices.
    Node,
    /// Several nodes, one of which keeps the metadata.
    Cluster,
}

impl Store {
    /// Both.
    pub const ALL: [Store; 2] = [Store::Node, Store::Cluster];

    /// As it is named on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Store::Node => "node",
            Store::Cluster => "cluster",
        }
    }

    /// Everything that its clients do.
    pub fn operations(self) -> Vec<&'static str> {
        // A device out of service is looked at where there is no other trouble.
        let everywhere = |name: &&str| self == Store::Node || *name != "read_out_of_service";
        let more: [&[&str]; 2] = match self {
            Store::Cluster => [&cluster::OPERATIONS, &hdfs::OPERATIONS],
            Store::Node => [&[], &[]],
        };
        director::OPERATIONS.iter().chain(more.concat().iter()).copied().filter(everywhere).collect()
    }

    /// The troubles that a director of it makes.
    pub fn troubles(self) -> &'static [&'static str] {
        match self {
            Store::Node => &director::TROUBLES,
            Store::Cluster => &cluster::TROUBLES,
        }
    }
}

/// Plays a history of a seed to its end, or until a promise is broken. `planted`: with this fault in engines and nodes.
/// `keep_lines`: remember what happens.
pub fn play(store: Store, seed: u64, planted: Option<Planted>, keep_lines: bool) -> Report {
    HOOKED.call_once(hear_panics);
    let panics: Panics = Arc::default();
    let listen = {
        let panics = panics.clone();
        move || HEARD.set(Some(panics.clone()))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        // What is computed aside belongs to the history, too.
        .on_thread_start(listen.clone())
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return Report { broken: Some(format!("no runtime: {error}")), ..Report::default() },
    };
    let mut report = Report::default();
    // A task that panics ends alone; here it must not go unnoticed.
    listen();
    let played = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let history: Pin<Box<dyn Future<Output = ()>>> = match store {
            Store::Node => Box::pin(of_a_node(seed, planted, keep_lines, &mut report)),
            Store::Cluster => Box::pin(of_a_cluster(seed, planted, keep_lines, &mut report)),
        };
        runtime.block_on(history)
    }));
    HEARD.set(None);
    let panics = lock(&panics);
    if played.is_err() || !panics.is_empty() {
        report.broken = Some(format!("a panic: {}", panics.join("; ")));
    }
    report
}

/// What the threads of one history panicked of.
type Panics = Arc<Mutex<Vec<String>>>;

/// The hook is the process's, and put in once; each thread knows which history it works for.
static HOOKED: Once = Once::new();

thread_local! {
    static HEARD: RefCell<Option<Panics>> = const { RefCell::new(None) };
}

/// From now on a panic is told to the history whose thread it is on, and any other one as before.
fn hear_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let heard = HEARD.try_with(|heard| heard.try_borrow().ok().and_then(|heard| heard.clone()));
        match heard.ok().flatten() {
            Some(heard) => lock(&heard).push(panic.to_string()),
            None => before(panic),
        }
    }));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn of_a_node(seed: u64, planted: Option<Planted>, keep_lines: bool, report: &mut Report) {
    let random = SimRandom::new(seed);
    let clock = Arc::new(RuntimeClock::starting_now());
    let count = 1 + random.fork("devices").below(3) as usize;
    let mut hardware = Hardware::new(count, &random, clock.clone(), Arc::default());
    let net = SimNet::new(random.fork("net").next(), clock.clone(), "nobody");
    let scene = Arc::new(Scene::new(random, clock, net, Duration::ZERO, keep_lines));
    if let Some(planted) = planted {
        scene.plant(planted);
    }
    hardware.remembered_calls = scene.remembered_calls;
    hardware.remembered_answers = scene.remembered_answers;
    hardware.page_max = scene.page_max;
    hardware.late_syncs = scene.late_syncs.clone();
    let mut director = Director::new(scene.clone(), hardware, planted);
    let outcome = async {
        director.start().await?;
        director.work().await?;
        director.finale().await
    };
    let outcome = outcome.await;
    note(report, &scene, director.history(), director.faults(), outcome);
}

async fn of_a_cluster(seed: u64, planted: Option<Planted>, keep_lines: bool, report: &mut Report) {
    let random = SimRandom::new(seed).fork("a cluster");
    let clock = Arc::new(RuntimeClock::starting_now());
    let net = SimNet::new(random.fork("net").next(), clock.clone(), "nobody");
    let scene = Arc::new(Scene::new(random, clock, net, cluster::LATE, keep_lines));
    if let Some(planted) = planted {
        scene.plant(planted);
    }
    let mut director = ClusterDirector::new(scene.clone(), planted);
    let outcome = async {
        director.start().await?;
        director.work().await?;
        // Not what ends every history: all nodes are ended once more, and disks rot when nobody is asking.
        report.fired = director.faults().values().sum();
        director.finale().await
    };
    let outcome = outcome.await;
    note(report, &scene, director.history(), director.faults(), outcome);
}

fn note(
    report: &mut Report,
    scene: &Scene,
    disks: u32,
    faults: BTreeMap<&'static str, u64>,
    outcome: oracle::Check<()>,
) {
    report.history = u64::from(disks) << 32 | u64::from(scene.net.history());
    report.length = Duration::from_nanos(scene.clock.now().as_nanos());
    report.counts = scene.counts();
    report.acknowledged = scene.acknowledgements();
    report.faults = faults;
    report.lines = scene.lines();
    report.broken = outcome.err().map(|Broken(text)| text);
}

#[cfg(test)]
mod tests {
    use super::{Store, play};
    use base::planted::Planted;

    /// A seed has one history, another seed another one, and no promise is broken in either.
    #[test]
    fn one_seed_one_history() {
        for store in Store::ALL {
            let repeat = format!("repeat: cargo x sim --seeds 2 --from 1 --only {}", store.name());
            let [first, again, other] = [1, 1, 2].map(|seed| play(store, seed, None, false));
            assert_eq!((first.broken.as_deref(), other.broken.as_deref()), (None, None), "{repeat}");
            assert_eq!((first.history, first.length), (again.history, again.length), "{repeat}");
            assert_ne!(first.history, other.history);
        }
    }

    /// Histories that are played at the same time are those that they are alone, and a panic breaks the one that it is in.
    #[test]
    fn side_by_side() {
        let alone = play(Store::Node, 3, None, false);
        let others: Vec<_> = (0..2)
            .map(|_| os::thread::spawn("player", || play(Store::Node, 3, None, false)).expect("a thread"))
            .collect();
        let panicking = os::thread::spawn("panics", || panic!("of no history")).expect("a thread");
        for other in others {
            let other = other.join().expect("it does not panic");
            assert_eq!(
                (other.history, other.broken),
                (alone.history, None),
                "repeat: cargo x sim --only node --from 3"
            );
        }
        assert!(panicking.join().is_err());
    }

    /// A device that answers before it syncs is noticed; and a change that is repeated because its answer was forgotten, which shows only
    /// where the way back from the node is cut.
    #[test]
    fn faults_are_noticed() {
        for fault in [Planted::AnsweredBeforeSync, Planted::AnswerForgottenByCount] {
            let noticed = |seed| play(Store::Node, seed, Some(fault), false).broken.is_some();
            assert!((0..20).any(noticed), "repeat: cargo x sim --planted --fault {fault:?}");
        }
    }
}
