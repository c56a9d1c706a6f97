//! What everybody in one simulated history shares, and how calls are bounded and counted.

use super::hdfs;
use super::oracle::{Broken, Check, Oracle};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use base::limit::{CALL_SILENCE_MAX, LIST_PAGE_MAX, REMEMBERED_ANSWERS, REMEMBERED_CALLS, REPLICAS_MAX};
use base::net::Net;
use base::planted::Planted;
use base::session::SessionOver;
use client::{Client, Settings, Sizes};
use net::{CallNumbers, Link, LinkSettings};
use sim::net::SimNet;
use sim::random::SimRandom;
use sim::runtime_clock::RuntimeClock;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Where the node listens, if it is the only one.
pub const ADDRESS: &str = "node:7400";

/// Where the node of this number listens, if there are several.
pub fn address_of(number: usize) -> String {
    format!("node{number}:7400")
}

/// Every call ends within this much virtual time, whatever happens: an outage of 20 s, a silence of 10 s for each of a few
/// attempts, 10 s of waiting on a full device, twice over.
pub const CALL_BOUND: Duration = Duration::from_secs(180);

/// What a device says that left service because a write failed, was repeated, and failed again.
const FAILED_TWICE: &str = "failed to write twice";

/// Everything that one history has.
pub struct Scene {
    /// Chance; everybody takes a fork.
    pub random: SimRandom,
    /// Virtual time.
    pub clock: Arc<RuntimeClock>,
    /// The network.
    pub net: SimNet,
    /// Changes of a session from its oldest unanswered one on, which metadata stores remember: mostly far fewer than in life.
    pub remembered_calls: usize,
    /// Answers to gateways' clients that metadata stores remember: often far fewer than in life.
    pub remembered_answers: usize,
    /// What a page of an answer of metadata stores holds: mostly far less than in life, so that what goes on after a page is gone on with.
    pub page_max: usize,
    /// Syncs of data take up to so many milliseconds more, on all devices.
    pub late_syncs: Arc<AtomicU64>,
    /// So many nodes keep the metadata.
    pub keepers: usize,
    /// So many copies files shall have.
    pub replicas: u32,
    /// Devices that are away for longer are given up by themselves, in clusters whose files shall have copies.
    pub repair_after: Duration,
    /// What must be there.
    oracle: Mutex<Oracle>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    log: Option<Mutex<Vec<String>>>,
    /// The node is to end now, right after an acknowledgement.
    pub end_now: Notify,
    /// Something durable was acknowledged.
    pub promised: Notify,
    /// Calls of clients under way, by a number that rises: whose, and what.
    under_way: Mutex<BTreeMap<u64, String>>,
    calls: AtomicU64,
    /// Where nodes are, for those who come.
    addresses: Mutex<Vec<String>>,
    /// So long after a call was given up it may still be carried out, because it was held on the way. Zero: an end of the node ends
    /// whatever is under way.
    pub late: Duration,
    acknowledged: AtomicU64,
    /// Clients go on until so many of their calls were acknowledged.
    pub goal: AtomicU64,
    /// Nodes of which somebody said that they are out of the cluster now.
    pub left: Mutex<BTreeSet<String>>,
    /// Nodes of which somebody asked that they be out of the cluster, and was not told that they stay.
    pub leaving: Mutex<BTreeSet<String>>,
    /// A fault put in on purpose, for the clients that can have it.
    planted: OnceLock<Planted>,
    power_losses: AtomicU64,
    /// Of several keepers the node that led when somebody looked last.
    leader: Mutex<Option<String>>,
}

impl Scene {
    /// A scene in which nothing has happened. `late`: see there. `keep_log`: remember what happens, for people.
    pub fn new(random: SimRandom, clock: Arc<RuntimeClock>, net: SimNet, late: Duration, keep_log: bool) -> Scene {
        let log = keep_log.then(Mutex::default);
        let remembered_calls = [4, 12, 64, REMEMBERED_CALLS][random.fork("remembered calls").below(4) as usize];
        let remembered_answers = [3, 24, REMEMBERED_ANSWERS][random.fork("remembered answers").below(3) as usize];
        let page_max = [1, 2, 3, 7, LIST_PAGE_MAX][random.fork("pages").below(5) as usize];
        // Of clusters half have several.
        let keepers = if !late.is_zero() && random.fork("keepers").one_in(2) { 3 } else { 1 };
        // Of clusters a third have copies.
        let copies = random.fork("replicas");
        let replicas = if !late.is_zero() && copies.one_in(3) { 2 + copies.below(2) as u32 } else { 1 };
        // Less than what is down mostly is for, and hardly more than a node is silent before that counts.
        let repair_after = Duration::from_millis(5_500 + copies.below(4_000));
        Scene {
            random,
            keepers,
            replicas,
            repair_after,
            remembered_calls,
            remembered_answers,
            page_max,
            late_syncs: Arc::default(),
            clock,
            net,
            oracle: Mutex::default(),
            counts: Mutex::default(),
            log,
            end_now: Notify::new(),
            promised: Notify::new(),
            under_way: Mutex::default(),
            calls: AtomicU64::new(0),
            addresses: Mutex::new(vec![ADDRESS.to_string()]),
            late,
            acknowledged: AtomicU64::new(0),
            goal: AtomicU64::new(0),
            left: Mutex::default(),
            leaving: Mutex::default(),
            planted: OnceLock::new(),
            power_losses: AtomicU64::new(0),
            leader: Mutex::default(),
        }
    }

    /// The fault that was put in on purpose.
    pub fn planted(&self) -> Option<Planted> {
        self.planted.get().copied()
    }

    /// Whether the node of this name may be out of the cluster, which then knows no start of it any more.
    pub fn may_have_left(&self, node: &str) -> bool {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    /// Clients have this fault from now on, if it is one of theirs.
    pub fn plant(&self, planted: Planted) {
        let _first = self.planted.set(planted);
    }

    /// Who comes from now on goes to one of these addresses.
    pub fn set_addresses(&self, addresses: Vec<String>) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    /// The address of the one node that there is; none: there are several.
    pub fn only_address(&self) -> Option<String> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if self.late.is_zero() { addresses.first().cloned() } else { None }
    }

    /// Where the nodes' HDFS gateways are.
    pub fn gateways(&self) -> Vec<String> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let machine =
            |address: &String| address.split_once(':').map(|(machine, _)| format!("{machine}:{}", hdfs::PORT));
        addresses.iter().filter_map(machine).collect()
    }

    fn address(&self, random: &SimRandom) -> String {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        match addresses.len() {
            1 => addresses[0].clone(),
            several => addresses[random.below(several as u64) as usize].clone(),
        }
    }

    /// Calls of clients that were acknowledged so far.
    pub fn acknowledgements(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Whether clients may end their work.
    pub fn has_seen_enough(&self) -> bool {
        self.acknowledgements() >= self.goal.load(Ordering::Relaxed)
    }

    /// The oracle. Not to be held across a wait.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node that keeps the metadata, of several the one that led, when somebody looked last.
    pub fn leader(&self) -> Option<String> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Somebody looked: it is this one.
    pub fn is_led_by(&self, node: Option<String>) {
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = node;
    }

    /// How often the power of a machine went.
    pub fn power_losses(&self) -> u64 {
        self.power_losses.load(Ordering::Relaxed)
    }

    /// The power of a machine is gone.
    pub fn power_lost(&self, machine: &str) {
        self.power_losses.fetch_add(1, Ordering::Relaxed);
        let (beside, by_others) = self.oracle().power_lost(machine);
        if beside > 0 {
            self.count_more("promises kept beside a power loss", beside);
        }
        if by_others > 0 {
            self.count_more("promises kept by other replicas", by_others);
        }
    }

    /// The processes of a machine were killed.
    pub fn killed(&self, machine: &str) {
        self.oracle().killed(machine);
    }

    /// Something was acknowledged: now and then that is the moment for the node to end.
    pub fn acknowledged(&self, random: &SimRandom) {
        self.promised.notify_one();
        if random.one_in(25) {
            self.end_now.notify_one();
        }
    }

    /// Counts something that was done or checked.
    pub fn count(&self, what: &'static str) {
        self.count_more(what, 1);
    }

    /// Counts several at once.
    pub fn count_more(&self, what: &'static str, more: u64) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += more;
    }

    /// What was counted.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers a line for people.
    pub fn say(&self, line: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            let now = Duration::from_nanos(self.clock.now().as_nanos());
            let line = format!("{:9.3} {}", now.as_secs_f64(), line());
            log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }

    /// The lines that were remembered.
    pub fn lines(&self) -> Vec<String> {
        self.log.as_ref().map(|log| log.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    /// Calls that have not ended.
    pub fn calls_under_way(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that has to end within `CALL_BOUND`.
    pub async fn call<T>(
        &self,
        who: &str,
        what: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Check<Result<T>> {
        self.count(what);
        self.say(|| format!("{who}: {what}"));
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.calls_under_way().insert(number, format!("{who}: {what}"));
        let under_way = UnderWay { scene: self, number };
        let ended = tokio::time::timeout(CALL_BOUND, call).await;
        drop(under_way);
        let Ok(result) = ended else {
            return Err(Broken(format!("{who}: {what} did not end within {} s", CALL_BOUND.as_secs())));
        };
        self.acknowledged.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        if let Err(error) = &result {
            self.say(|| format!("{who}: {what}: {:?} {error}", error.kind()));
            if error.text().contains("no room to write it again elsewhere") {
                self.count("no room to repair");
            }
            if error.text().contains(FAILED_TWICE) && error.text().contains("(simulated)") {
                // Nobody lets writes of one life of a node fail for two causes.
                return Err(Broken(format!("{who}: {what}: a device left service for one failure: {error}")));
            }
            // Links ask the one that leads.
            if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Protocol | ErrorKind::Moved) {
                return Err(Broken(format!("{who}: {what}: {error}")));
            }
        }
        Ok(result)
    }

    /// Makes a call again and again until it is done or refused for a reason that stays.
    pub async fn insist<T, F: Future<Output = Result<T>>>(
        &self,
        who: &str,
        what: &'static str,
        call: impl FnMut() -> F,
    ) -> Check<Result<T>> {
        self.insist_unless(who, what, |_| false, call).await
    }

    /// The same for what needs room: that there is too little may stay so.
    pub async fn insist_with_room<T, F: Future<Output = Result<T>>>(
        &self,
        who: &str,
        what: &'static str,
        call: impl FnMut() -> F,
    ) -> Check<Result<T>> {
        self.insist_unless(who, what, |error| error.kind() == ErrorKind::Full, call).await
    }

    async fn insist_unless<T, F: Future<Output = Result<T>>>(
        &self,
        who: &str,
        what: &'static str,
        stays: impl Fn(&Error) -> bool,
        mut call: impl FnMut() -> F,
    ) -> Check<Result<T>> {
        let begun = self.clock.now();
        loop {
            match self.call(who, what, call()).await? {
                Err(error) if may_pass(&error) && !stays(&error) => {
                    if self.clock.now().since(begun) > CALL_BOUND {
                        return Err(Broken(format!(
                            "{who}: {what} was refused for {} s: {error}",
                            CALL_BOUND.as_secs()
                        )));
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                other => return Ok(other),
            }
        }
    }

    /// What bare links of a session of its own are made with, which nobody begins or renews.
    pub fn bare_session(&self, name: &str, random: &SimRandom) -> LinkSettings {
        let numbers = CallNumbers::default();
        numbers.set_room(self.remembered_calls);
        LinkSettings {
            session: SessionId(random.wide()),
            program: name.to_string(),
            connections: 1,
            silence_max: CALL_SILENCE_MAX,
            pool: Pool::new(1 << 20),
            clock: self.clock.clone(),
            random: Arc::new(random.fork("link")),
            credentials: net::Credentials::default(),
            asker: net::Asker::Client,
            numbers,
            meant: None,
            once: false,
        }
    }

    /// A bare link to the node at an address.
    pub async fn link(&self, name: &str, address: &str, settings: &LinkSettings) -> Check<Link> {
        let host: Arc<dyn Net> = Arc::new(self.net.host(name));
        let made = self.insist(name, "connect", || Link::connect(host.clone(), address, settings.clone())).await?;
        made.map_err(|error| Broken(format!("{name}: cannot connect: {error}")))
    }

    /// A bare link to whoever keeps the metadata: to the node at this address, or, of several, to whichever leads.
    pub async fn keepers_link(&self, name: &str, address: &str, settings: &LinkSettings) -> Check<Link> {
        if self.keepers == 1 {
            return self.link(name, address, settings).await;
        }
        let host: Arc<dyn Net> = Arc::new(self.net.host(name));
        let addresses = (0..self.keepers).map(address_of).collect();
        Ok(Link::to_leader(host, addresses, settings.clone()))
    }

    /// A session with the node, on a host of its own; and the host.
    pub async fn connect(&self, name: &str, random: &SimRandom) -> Check<(Client, SimNet)> {
        let host = self.net.host(name);
        let chance: Arc<dyn Random> = Arc::new(random.fork(name));
        let settings = || Settings {
            credentials: net::Credentials::default(),
            user: client::User::default(),
            net: Arc::new(host.clone()),
            addresses: vec![self.address(random)],
            program: name.to_string(),
            clock: self.clock.clone(),
            random: chance.clone(),
            pool: Pool::new(1 << 20),
            connections: 2,
            silence_max: CALL_SILENCE_MAX,
        };
        let client = match self.insist(name, "connect", || Client::connect(settings())).await? {
            Ok(client) => client,
            Err(error) => return Err(Broken(format!("{name}: cannot connect: {error}"))),
        };
        client.set_changes_under_way(self.remembered_calls);
        let piece = 16 << (10 + 2 * random.below(3));
        let sizes = Sizes {
            piece,
            file_chunk: 128 << (10 + random.below(3)),
            write_window: 4 * piece,
            read_piece: 64 << 10,
            read_window: 256 << 10,
        };
        let client = client.with_sizes(sizes).with_planted(self.planted());
        Ok((client.with_replicas_max(self.replicas_max(random)), host))
    }

    /// To how many replicas a client writes: some write one, as programs do that know of no others; the store makes the rest.
    fn replicas_max(&self, random: &SimRandom) -> u32 {
        let writes_several = self.replicas > 1 && !random.fork("replicas").one_in(4);
        if writes_several { REPLICAS_MAX as u32 } else { 1 }
    }
}

/// A call that has not ended. Its client may be gone before it does.
struct UnderWay<'a> {
    scene: &'a Scene,
    number: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.scene.calls_under_way().remove(&self.number);
    }
}

/// Whether asking again later may help. What a writer is told of somebody else does not pass: `check_alone`.
pub fn may_pass(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable | ErrorKind::Io | ErrorKind::Busy | ErrorKind::Full | ErrorKind::Stale
    )
}

/// A writer that has its file for itself failed: broken if it is told of somebody else, though its session is open.
pub fn check_alone(what: &str, error: &Error) -> Check<()> {
    if error.kind() == ErrorKind::Stale && !SessionOver::is_in(error) {
        return Err(Broken(format!("{what}: nobody else opened it, and its session is open: {error}")));
    }
    Ok(())
}

/// Whether the error says that nothing was done.
pub fn nothing_done(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid | ErrorKind::Busy)
}
