//! What everybody in one simulated history shares, and how calls are bounded and counted.

use super::hardware::Hardware;
use super::oracle::{Broken, Check, Oracle};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use base::limit::CALL_SILENCE_MAX;
use base::net::Net;
use client::{Client, Settings, Sizes};
use net::{CallNumbers, Link, LinkSettings};
use sim::net::SimNet;
use sim::random::SimRandom;
use sim::runtime_clock::RuntimeClock;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Where the node listens.
pub const ADDRESS: &str = "node:7400";

/// Every call ends within this much virtual time, whatever happens: an outage of 20 s, a silence of 10 s for each of a few
/// attempts, 10 s of waiting on a full device, twice over.
pub const CALL_BOUND: Duration = Duration::from_secs(180);

/// Everything that one history has.
pub struct Scene {
    /// Chance; everybody takes a fork.
    pub random: SimRandom,
    /// Virtual time.
    pub clock: Arc<RuntimeClock>,
    /// The network.
    pub net: SimNet,
    /// The node's devices.
    pub hardware: Arc<Hardware>,
    /// What must be there.
    oracle: Mutex<Oracle>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    log: Option<Mutex<Vec<String>>>,
    /// The node is to end now, right after an acknowledgement.
    pub end_now: Notify,
}

impl Scene {
    /// A scene in which nothing has happened. `keep_log`: remember what happens, for people.
    pub fn new(
        random: SimRandom,
        clock: Arc<RuntimeClock>,
        net: SimNet,
        hardware: Arc<Hardware>,
        keep_log: bool,
    ) -> Scene {
        let log = keep_log.then(Mutex::default);
        Scene {
            random,
            clock,
            net,
            hardware,
            oracle: Mutex::default(),
            counts: Mutex::default(),
            log,
            end_now: Notify::new(),
        }
    }

    /// The oracle. Not to be held across a wait.
    pub fn oracle(&self) -> MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was acknowledged: now and then that is the moment for the node to end.
    pub fn acknowledged(&self, random: &SimRandom) {
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

    /// Makes a call that has to end within `CALL_BOUND`.
    pub async fn call<T>(
        &self,
        who: &str,
        what: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Check<Result<T>> {
        self.count(what);
        self.say(|| format!("{who}: {what}"));
        let Ok(result) = tokio::time::timeout(CALL_BOUND, call).await else {
            return Err(Broken(format!("{who}: {what} did not end within {} s", CALL_BOUND.as_secs())));
        };
        if let Err(error) = &result {
            self.say(|| format!("{who}: {what}: {:?} {error}", error.kind()));
            if error.kind() == ErrorKind::Corrupt || error.kind() == ErrorKind::Protocol {
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
        mut call: impl FnMut() -> F,
    ) -> Check<Result<T>> {
        let begun = self.clock.now();
        loop {
            match self.call(who, what, call()).await? {
                Err(error) if may_pass(&error) => {
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

    /// A bare link to the node in a session of its own, which nobody begins or renews.
    pub async fn link(&self, name: &str, random: &SimRandom) -> Check<Link> {
        let settings = || LinkSettings {
            session: SessionId(random.wide()),
            program: name.to_string(),
            connections: 1,
            silence_max: CALL_SILENCE_MAX,
            pool: Pool::new(1 << 20),
            clock: self.clock.clone(),
            random: Arc::new(random.fork("link")),
            credentials: net::Credentials::default(),
            asker: net::Asker::Client,
            numbers: CallNumbers::default(),
        };
        let host: Arc<dyn Net> = Arc::new(self.net.host(name));
        let made = self.insist(name, "connect", || Link::connect(host.clone(), ADDRESS, settings())).await?;
        made.map_err(|error| Broken(format!("{name}: cannot connect: {error}")))
    }

    /// A session with the node, on a host of its own; and the host.
    pub async fn connect(&self, name: &str, random: &SimRandom) -> Check<(Client, SimNet)> {
        let host = self.net.host(name);
        let chance: Arc<dyn Random> = Arc::new(random.fork(name));
        let settings = || Settings {
            credentials: net::Credentials::default(),
            user: ("simulated".to_string(), "simulated".to_string()),
            net: Arc::new(host.clone()),
            address: ADDRESS.to_string(),
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
        let piece = 16 << (10 + 2 * random.below(3));
        let sizes = Sizes {
            piece,
            file_chunk: 128 << (10 + random.below(3)),
            write_window: 4 * piece,
            read_piece: 64 << 10,
            read_window: 256 << 10,
        };
        Ok((client.with_sizes(sizes), host))
    }
}

/// Whether asking again later may help.
pub fn may_pass(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable | ErrorKind::Io | ErrorKind::Busy | ErrorKind::Full | ErrorKind::Stale
    )
}

/// Whether the error says that nothing was done.
pub fn nothing_done(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists | ErrorKind::Invalid | ErrorKind::Busy)
}
