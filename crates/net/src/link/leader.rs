//! Which of several nodes a link asks: the one that leads the keepers, found by what nodes say of it (`base::moved`).

use super::making::{Made, make};
use super::slot::{Shared, Slot};
use super::{Link, LinkSettings};
use crate::message::cluster::{View, ViewAnswer};
use crate::payload::Payload;
use base::error::{Error, ErrorKind, Result};
use base::id::NodeId;
use base::limit::HELLO_WAIT_MAX;
use base::moved::Moved;
use base::unit::Time;
use base::watched::Watched;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Addresses that a link knows at the most; those that it was made with always stay.
const ADDRESSES_MAX: usize = 16;

/// Bytes of an address: a name of 255 bytes, brackets and a port. What is longer is none.
const ADDRESS_LENGTH_MAX: usize = 264;

/// The first pause after a node said that it does not lead.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// The longest pause while nobody leads: an election takes 0.6 to 1.3 s, and what is asked then waits this much longer at the most.
const PAUSE_ELECTING: Duration = Duration::from_millis(100);

/// The longest pause while nodes name others that do not lead, and after none could be connected to.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Named leaders that are followed without a pause before one answers: an old one, and the next two of elections that follow each other.
const HOPS_MAX: u32 = 3;

/// A connection that is not made within this gives way to the next address: a host without power says nothing. Doubled with each round of
/// addresses that failed, so that a slow network has time for a handshake.
const PATIENCE: Duration = Duration::from_millis(500);

/// A call without an answer for this long has the next node asked who leads. A leader that stopped, or is cut off, says nothing; its lease is
/// over half a second after its last beat, so sooner nobody else can lead; and silence alone is noticed after ten seconds only.
pub(super) const DOUBT: Duration = Duration::from_millis(500);

/// How long who is asked so has to answer.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// The addresses of a link to whoever leads, and which of them all its connections go to.
pub(super) struct Leader {
    state: Mutex<State>,
    /// The number of the target: it rises whenever another address is asked.
    turns: Watched<u64>,
    probing: AtomicBool,
}

struct State {
    /// Those that the link was made with, then those that were learnt, the oldest first.
    known: Vec<Known>,
    /// How many of them the link was made with.
    given: usize,
    target: String,
    /// Which node the last connection went to.
    node: NodeId,
    /// The highest term in which a named leader was followed.
    followed: Option<u64>,
    /// Since somebody answered: nodes that said that they do not lead, leaders that were followed.
    refusals: u32,
    hops: u32,
    /// In a row: connections that were not made, and those of them that one side does not want.
    failed: usize,
    unwanted: usize,
    /// Nothing is connected before.
    until: Time,
    /// Where the next question who leads goes.
    probes: usize,
}

struct Known {
    address: String,
    /// Asked since somebody answered.
    tried: bool,
}

/// Whom to ask now.
struct Target {
    address: String,
    turn: u64,
    until: Time,
    patience: Duration,
}

impl Leader {
    pub(super) fn new(addresses: Vec<String>) -> Leader {
        let Some(target) = addresses.first().cloned() else { unreachable!("a link has an address") };
        let known: Vec<Known> = addresses.into_iter().map(|address| Known { address, tried: false }).collect();
        let state = State {
            given: known.len(),
            known,
            target,
            node: NodeId::default(),
            followed: None,
            refusals: 0,
            hops: 0,
            failed: 0,
            unwanted: 0,
            until: Time::ZERO,
            probes: 0,
        };
        Leader { state: Mutex::new(state), turns: Watched::new(0), probing: AtomicBool::new(false) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn address(&self) -> String {
        self.lock().target.clone()
    }

    pub(super) fn node(&self) -> NodeId {
        self.lock().node
    }

    pub(super) fn learn(&self, addresses: Vec<String>) {
        let mut state = self.lock();
        addresses.into_iter().for_each(|address| state.learn(address));
    }

    /// Whether connections that were made in this turn go to the target.
    pub(super) fn is_current(&self, turn: u64) -> bool {
        self.turns.get() == turn
    }

    /// Comes when another address is the target than in this turn.
    pub(super) fn changed(&self, turn: u64) -> impl Future<Output = ()> + Send + 'static {
        self.turns.until(move |now| *now != turn)
    }

    /// A node that was asked in this turn says that it does not lead. What its connection ends with.
    pub(super) fn moved(&self, turn: u64, moved: Moved, shared: &Shared) -> Error {
        let mut state = self.lock();
        let leader = moved.leader.filter(|leader| leader.len() <= ADDRESS_LENGTH_MAX);
        let names =
            leader.as_deref().map_or("it knows nobody who does".to_string(), |leader| format!("it names {leader}"));
        let text = format!("{} does not lead in term {}: {names}", state.target, moved.term);
        let named = leader.is_some();
        state.unwanted = 0;
        let is_news = named && state.followed.is_none_or(|followed| moved.term > followed);
        leader.iter().for_each(|leader| state.learn(leader.clone()));
        if is_news || self.is_current(turn) {
            state.mark_tried();
            let next = leader.filter(|_| is_news);
            let hops = state.hops;
            match next {
                Some(leader) => {
                    (state.followed, state.hops) = (Some(moved.term), hops.saturating_add(1));
                    state.target = leader;
                }
                None => state.target = state.next(),
            }
            if !is_news || hops >= HOPS_MAX {
                let most = if named { PAUSE_MAX } else { PAUSE_ELECTING };
                let pause = (PAUSE_MIN * (1 << state.refusals.min(4))).min(most);
                state.refusals = state.refusals.saturating_add(1);
                state.until = shared.after_some_of(pause);
            } else {
                state.until = Time::ZERO;
            }
            self.turns.change(|turn| *turn += 1);
        }
        Error::new(ErrorKind::Moved, text)
    }

    /// What all connections of an earlier turn end with.
    pub(super) fn elsewhere(&self) -> Error {
        Error::new(ErrorKind::Moved, format!("{} is asked instead", self.lock().target))
    }

    /// Somebody who was not asked for it says who leads: that is followed if it is news, and no reason to leave who is asked now if not.
    pub(super) fn told(&self, leader: String, term: u64) {
        let mut state = self.lock();
        if leader.len() > ADDRESS_LENGTH_MAX || state.followed.is_some_and(|followed| term <= followed) {
            return;
        }
        state.followed = Some(term);
        if state.target != leader {
            state.learn(leader.clone());
            (state.target, state.until) = (leader, Time::ZERO);
            self.turns.change(|turn| *turn += 1);
        }
    }

    /// The target answered a call.
    pub(super) fn answered(&self) {
        let mut state = self.lock();
        (state.refusals, state.hops, state.failed, state.unwanted) = (0, 0, 0, 0);
        state.known.iter_mut().for_each(|known| known.tried = false);
    }

    /// No connection to the target was made, or it ended before a call was answered on it. True if one side wants none of all the addresses.
    pub(super) fn failed(&self, turn: u64, is_unwanted: bool, shared: &Shared) -> bool {
        let mut state = self.lock();
        if !self.is_current(turn) {
            return false;
        }
        state.mark_tried();
        state.failed = state.failed.saturating_add(1);
        state.unwanted = if is_unwanted { state.unwanted + 1 } else { 0 };
        if state.failed.is_multiple_of(state.known.len()) {
            let rounds = (state.failed / state.known.len()).min(4) as u32;
            state.until = shared.after_some_of((PAUSE_MIN * (1 << rounds)).min(PAUSE_MAX));
        }
        state.target = state.next();
        let ends = state.unwanted >= state.known.len();
        state.unwanted = if ends { 0 } else { state.unwanted };
        self.turns.change(|turn| *turn += 1);
        ends
    }

    fn target(&self) -> Target {
        let state = self.lock();
        let rounds = (state.failed / state.known.len()).min(5) as u32;
        let patience = (PATIENCE * (1 << rounds)).min(HELLO_WAIT_MAX);
        Target { address: state.target.clone(), turn: self.turns.get(), until: state.until, patience }
    }

    /// Whoever was welcomed by the target.
    fn connected(&self, node: NodeId) {
        self.lock().node = node;
    }

    /// What a call is told that nobody who leads has answered.
    pub(super) fn silence(&self, waited: Duration, trouble: Option<&str>) -> Error {
        let state = self.lock();
        let tried = state.known.iter().filter(|known| known.tried || known.address == state.target).count();
        let of = state.known.len();
        let because = trouble.map_or(String::new(), |trouble| format!(" ({trouble})"));
        let text = format!(
            "nobody who leads the metadata's keepers answered for {} s: {tried} of {of} addresses were tried, the last one {}{because}; whether it was done is not known; ask again or check that `stormwell serve` runs on most of them",
            waited.as_secs(),
            state.target
        );
        Error::new(ErrorKind::Unreachable, text)
    }

    /// Asks the next node who leads, unless one is being asked.
    pub(super) fn doubt(shared: &Arc<Shared>) {
        let Some(leader) = &shared.leader else { return };
        if leader.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        // Not before: while one is asked none is passed over.
        let Some(address) = leader.lock().next_probed() else {
            return leader.probing.store(false, Ordering::Release);
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let Some(leader) = &shared.leader else { return };
            // One that does not answer knows nothing; the next one is asked next time.
            if let Ok(Ok((term, named))) = timeout(PROBE_MAX, who_leads(&shared, &address)).await {
                leader.told(named, term);
            }
            leader.probing.store(false, Ordering::Release);
        });
    }
}

/// Who leads, and in which term, as the node at an address knows it.
async fn who_leads(shared: &Shared, address: &str) -> Result<(u64, String)> {
    let unknown = || Error::new(ErrorKind::NotFound, "it does not know who leads");
    let settings = LinkSettings { connections: 1, once: true, ..shared.settings.clone() };
    let link = Link::connect(shared.net.clone(), address, settings).await?;
    let moved = match link.call(&View::default(), Payload::empty()).await {
        Ok((view, _)) => Moved { leader: leader_of(&view), term: view.term },
        Err(error) => Moved::read(&error).ok_or(error)?,
    };
    match moved.leader {
        Some(leader) if moved.term > 0 => Ok((moved.term, leader)),
        _ => Err(unknown()),
    }
}

/// Where the node listens that leads as a view says.
fn leader_of(view: &ViewAnswer) -> Option<String> {
    let leader = view.members.iter().find(|member| member.node.node == view.keeper)?;
    (!leader.node.address.is_empty()).then(|| leader.node.address.clone())
}

impl State {
    /// Puts an address to those that are known, in place of the oldest that was learnt if there are too many.
    fn learn(&mut self, address: String) {
        let fits = !address.is_empty() && address.len() <= ADDRESS_LENGTH_MAX;
        if !fits || self.known.iter().any(|known| known.address == address) {
            return;
        }
        if self.known.len() >= ADDRESSES_MAX {
            if self.given >= self.known.len() {
                return;
            }
            self.known.remove(self.given);
        }
        self.known.push(Known { address, tried: false });
    }

    fn mark_tried(&mut self) {
        let State { known, target, .. } = self;
        known.iter_mut().filter(|known| known.address == *target).for_each(|known| known.tried = true);
    }

    /// The address after the target's; the first one if the target is known no more.
    fn next(&self) -> String {
        let at = self.known.iter().position(|known| known.address == self.target);
        self.known[at.map_or(0, |at| (at + 1) % self.known.len())].address.clone()
    }

    /// The next one to ask who leads: each in its turn but the target.
    fn next_probed(&mut self) -> Option<String> {
        for _ in 0..self.known.len() {
            self.probes = (self.probes + 1) % self.known.len();
            let address = &self.known[self.probes].address;
            if *address != self.target {
                return Some(address.clone());
            }
        }
        None
    }
}

impl Slot {
    /// Tries one address after the other until one takes the connection, nothing is pending any more, or none of them ever will.
    pub(super) async fn find(&self, leader: &Leader) -> Option<Made> {
        let shared = &self.shared;
        loop {
            let left = self.expire()?;
            let Target { address, turn, until, patience } = leader.target();
            let pause = until.since(shared.settings.clock.now());
            if !pause.is_zero() {
                tokio::select! {
                    biased;
                    () = leader.changed(turn) => (),
                    () = sleep(pause.min(left)) => (),
                }
                continue;
            }
            let result = tokio::select! {
                biased;
                () = leader.changed(turn) => continue,
                result = timeout(patience.min(left), make(shared, &address)) => result,
            };
            let unwanted = match result {
                Ok(Ok(mut made)) => {
                    leader.connected(made.welcomed.node);
                    made.turn = turn;
                    return Some(made);
                }
                Ok(Err(error)) => {
                    self.note(format!("{address}: {}", error.text()));
                    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Refused).then_some(error)
                }
                Err(_) => {
                    self.note(format!("{address} took no connection within {} ms", patience.min(left).as_millis()));
                    None
                }
            };
            if leader.failed(turn, unwanted.is_some(), shared)
                && let Some(error) = unwanted
            {
                self.fail_all(&error);
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESS_LENGTH_MAX, ADDRESSES_MAX, Leader};

    fn addresses(leader: &Leader) -> Vec<String> {
        leader.lock().known.iter().map(|known| known.address.clone()).collect()
    }

    /// What is learnt is bounded, and the oldest of it goes first; what the link was made with stays. Each is asked in its turn.
    #[test]
    fn addresses_are_learnt_and_forgotten() {
        let leader = Leader::new(vec!["a".to_string(), "b".to_string()]);
        leader.learn(vec![String::new(), "b".to_string(), "x".repeat(ADDRESS_LENGTH_MAX + 1), "c".to_string()]);
        assert_eq!(addresses(&leader), ["a", "b", "c"]);
        leader.learn((0..2 * ADDRESSES_MAX).map(|number| number.to_string()).collect());
        let known = addresses(&leader);
        assert_eq!((known.len(), &known[..2]), (ADDRESSES_MAX, &["a".to_string(), "b".to_string()][..]));
        assert_eq!(known.last().map(String::as_str), Some("31"));
        leader.told("31".to_string(), 5);
        leader.told("30".to_string(), 5);
        assert_eq!((leader.address(), leader.lock().next()), ("31".to_string(), "a".to_string()));
        // One that is asked and not known any more is followed by the first.
        leader.learn((100..140).map(|number| number.to_string()).collect());
        assert_eq!((leader.address(), leader.lock().next()), ("31".to_string(), "a".to_string()));
        let many = Leader::new((0..20).map(|number| number.to_string()).collect());
        many.learn(vec!["a".to_string()]);
        assert_eq!(addresses(&many).len(), 20);
        let probed: Vec<String> = (0..20).filter_map(|_| many.lock().next_probed()).collect();
        assert!(!probed.contains(&"0".to_string()) && probed[0] == "1" && probed[19] == "1", "{probed:?}");
        assert_eq!(Leader::new(vec!["a".to_string()]).lock().next_probed(), None);
    }
}
