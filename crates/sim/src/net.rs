//! A network in memory that delays, cuts and falls silent, in an order that follows from a seed.

mod wire;

use crate::random::SimRandom;
use base::checksum::crc32c;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::net::{Boxed, Listener, Net, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use wire::{SimStream, Wire};

/// The network as one host sees it. Clones and other hosts' handles show the same network.
///
/// A host is one start of a machine: what stands before the point of `node2.7` names the machine, and the address `node2:7400` is on
/// it. Links between machines are cut and machines are held; both outlive a start.
#[derive(Clone)]
pub struct SimNet {
    state: Arc<Mutex<State>>,
    host: Arc<str>,
}

/// What the network does wrong. The default does nothing wrong and takes no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetFaults {
    /// A connection is cut once in so many writes on average; `None`: never.
    pub cut_one_in: Option<u64>,
    /// A write takes up to so many milliseconds to arrive; half of them take none. Nothing overtakes on one connection.
    pub delay_max: u64,
}

/// How a host goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// Its system closes its connections: the others see them end, after what was on its way or instead of it.
    Reset,
    /// Nothing is heard of it until somebody listens at its address again; then its connections are found to be over.
    Silent,
}

struct State {
    random: SimRandom,
    clock: Arc<dyn Clock>,
    faults: NetFaults,
    /// Who takes connections, by address.
    listeners: BTreeMap<String, (Arc<str>, Doorstep)>,
    wires: BTreeMap<u64, Wire>,
    next_wire: u64,
    gone: BTreeSet<Arc<str>>,
    /// (from, to) of the links that carry nothing now.
    blocked: BTreeSet<(String, String)>,
    /// Machines whose processes stand still.
    held: BTreeSet<String>,
    /// Machines without power: nobody there refuses anything.
    dark: BTreeSet<String>,
    /// One of these three changed.
    opened: Arc<Notify>,
    fired: BTreeMap<&'static str, u64>,
    /// Everything that was read from any connection, and when, folded into one number.
    history: u32,
}

/// Where connections wait to be accepted.
type Doorstep = mpsc::Sender<Box<dyn Stream>>;

/// So many of them.
const BACKLOG: usize = 64;

impl SimNet {
    /// A network without faults, as the first host sees it.
    pub fn new(seed: u64, clock: Arc<dyn Clock>, host: &str) -> SimNet {
        let state = State {
            random: SimRandom::new(seed),
            clock,
            faults: NetFaults::default(),
            listeners: BTreeMap::new(),
            wires: BTreeMap::new(),
            next_wire: 0,
            gone: BTreeSet::new(),
            blocked: BTreeSet::new(),
            held: BTreeSet::new(),
            dark: BTreeSet::new(),
            opened: Arc::default(),
            fired: BTreeMap::new(),
            history: 0,
        };
        SimNet { state: Arc::new(Mutex::new(state)), host: host.into() }
    }

    /// The same network as another host sees it.
    #[must_use]
    pub fn host(&self, host: &str) -> SimNet {
        SimNet { state: self.state.clone(), host: host.into() }
    }

    /// Changes the faults from here on.
    pub fn set_faults(&self, faults: NetFaults) {
        self.lock().faults = faults;
    }

    /// This host is gone for good: its connections end, it makes no new ones and takes none.
    pub fn leave(&self, how: Gone) {
        let mut state = self.lock();
        state.gone.insert(self.host.clone());
        state.listeners.retain(|_, (host, _)| *host != self.host);
        if how == Gone::Silent {
            state.dark.insert(machine_of(&self.host).to_string());
        }
        let wires: Vec<u64> = state.wires_of(&self.host);
        for number in wires {
            match how {
                Gone::Reset => state.cut(number),
                Gone::Silent => state.silence(number),
            }
        }
    }

    /// Cuts every connection of this host, which goes on.
    pub fn cut_all(&self) {
        let mut state = self.lock();
        let wires: Vec<u64> = state.wires_of(&self.host);
        for number in wires {
            state.count("connection_cut");
            state.cut(number);
        }
    }

    /// From here on nothing that a machine sends reaches the other one: it waits until the link is mended. `back` the same the other
    /// way. Connections know nothing of it; new ones need both ways.
    pub fn cut_link(&self, from: &str, to: &str, back: bool) {
        let mut state = self.lock();
        state.count(if back { "link cut" } else { "link cut one way" });
        state.blocked.insert((from.to_string(), to.to_string()));
        if back {
            state.blocked.insert((to.to_string(), from.to_string()));
        }
    }

    /// Both ways between two machines carry everything again.
    pub fn mend_link(&self, one: &str, other: &str) {
        let mut state = self.lock();
        state.blocked.retain(|(from, to)| (from != one || to != other) && (from != other || to != one));
        state.open();
    }

    /// The processes of a machine stand still: they read nothing and say nothing until they are let go. Its system still takes
    /// connections, and what was sent before arrives.
    pub fn hold(&self, machine: &str) {
        self.lock().held.insert(machine.to_string());
    }

    /// The machine goes on where it stood.
    pub fn let_go(&self, machine: &str) {
        let mut state = self.lock();
        state.held.remove(machine);
        let now = state.clock.now();
        state.wires.values_mut().for_each(|wire| wire.let_go(machine, now));
        state.open();
    }

    /// How often each fault fired, by name. What never happened is not listed.
    pub fn fired(&self) -> Vec<(&'static str, u64)> {
        self.lock().fired.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// All bytes that arrived anywhere, and when, folded into one number: equal for equal histories.
    pub fn history(&self) -> u32 {
        self.lock().history
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two ends of a new connection to `address`, if somebody listens there. None: nobody says anything; another attempt is worth it
    /// when the network changes.
    fn dial(&self, address: &str) -> Option<Result<Box<dyn Stream>>> {
        let mut state = self.lock();
        let (here, there) = (machine_of(&self.host), machine_at(address));
        let unheard = state.dark.contains(there) || state.is_blocked(here, there) || state.is_blocked(there, here);
        if state.gone.contains(&self.host) || state.held.contains(here) || unheard {
            return None;
        }
        let refused = || {
            let text = format!("cannot connect to {address}: refused; nothing listens there");
            Some(Err(Error::new(ErrorKind::Unreachable, text)))
        };
        let Some((host, sender)) = state.listeners.get(address).cloned() else { return refused() };
        let Ok(place) = sender.try_reserve() else { return refused() };
        let number = state.next_wire;
        state.next_wire += 1;
        state.wires.insert(number, Wire::new([self.host.clone(), host], address));
        let end = |side: usize| SimStream::new(self.state.clone(), number, side, format!("wire {number}"));
        place.send(Box::new(end(1)));
        Some(Ok(Box::new(end(0))))
    }
}

impl Net for SimNet {
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let opened = self.lock().opened.clone();
            loop {
                let mut changed = std::pin::pin!(opened.notified());
                changed.as_mut().enable();
                match self.dial(address) {
                    Some(result) => return result,
                    // A host that is gone waits for ever, as the process that was on it does.
                    None => changed.await,
                }
            }
        })
    }

    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (sender, streams) = mpsc::channel(BACKLOG);
            let mut state = self.lock();
            if state.listeners.contains_key(address) {
                return Err(Error::new(ErrorKind::Busy, format!("{address} is taken; choose another address")));
            }
            // Who answers there now knows nothing of connections from before.
            let machine = machine_of(&self.host);
            let is_old = |wire: &Wire| wire.is_silent_at(address) || wire.is_silent_from(machine);
            let old: Vec<u64> =
                state.wires.iter().filter(|(_, wire)| is_old(wire)).map(|(number, _)| *number).collect();
            old.into_iter().for_each(|number| state.cut(number));
            state.dark.remove(machine);
            state.open();
            state.listeners.insert(address.to_string(), (self.host.clone(), sender));
            Ok(Box::new(SimListener { address: address.to_string(), streams }) as Box<dyn Listener>)
        })
    }
}

struct SimListener {
    address: String,
    streams: mpsc::Receiver<Box<dyn Stream>>,
}

impl Listener for SimListener {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Boxed<'_, Result<Box<dyn Stream>>> {
        Box::pin(async move {
            match self.streams.recv().await {
                Some(stream) => Ok(stream),
                // Its host is gone.
                None => std::future::pending().await,
            }
        })
    }
}

/// The machine of a host.
fn machine_of(host: &str) -> &str {
    host.split_once('.').map_or(host, |(machine, _)| machine)
}

/// The machine that an address is on.
fn machine_at(address: &str) -> &str {
    address.split_once(':').map_or(address, |(machine, _)| machine)
}

impl State {
    fn is_blocked(&self, from: &str, to: &str) -> bool {
        // Nearly always nothing is.
        !self.blocked.is_empty() && self.blocked.contains(&(from.to_string(), to.to_string()))
    }

    /// Something may pass that could not.
    fn open(&mut self) {
        self.wires.values_mut().for_each(Wire::wake);
        self.opened.notify_waiters();
    }

    fn count(&mut self, name: &'static str) {
        *self.fired.entry(name).or_default() += 1;
    }

    fn wires_of(&self, host: &str) -> Vec<u64> {
        self.wires.iter().filter(|(_, wire)| wire.touches(host)).map(|(number, _)| *number).collect()
    }

    /// The connection is over for both ends; what is on its way arrives first, or not.
    fn cut(&mut self, number: u64) {
        let keeps = [self.random.one_in(2), self.random.one_in(2)];
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.cut(keeps);
        }
    }

    fn silence(&mut self, number: u64) {
        self.count("silence");
        if let Some(wire) = self.wires.get_mut(&number) {
            wire.silence();
        }
    }

    /// How long the next write takes.
    fn delay(&mut self) -> Duration {
        let most = self.faults.delay_max;
        if most == 0 || self.random.one_in(2) {
            return Duration::ZERO;
        }
        self.count("delay");
        Duration::from_millis(1 + self.random.below(most))
    }

    fn cuts_now(&mut self) -> bool {
        let cuts = self.faults.cut_one_in.is_some_and(|bound| self.random.one_in(bound));
        if cuts {
            self.count("connection_cut");
        }
        cuts
    }

    fn note(&mut self, bytes: &[u8]) {
        let mark = format!("{} {} {}", self.history, self.clock.now().as_nanos(), crc32c(bytes));
        self.history = crc32c(mark.as_bytes());
    }
}
