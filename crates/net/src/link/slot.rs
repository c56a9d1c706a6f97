//! One of a link's connections and the calls on it. The connection may break and be made again; the calls stay.

use super::asking::Asking;
use super::leader::Leader;
use super::making::{Made, make};
use super::numbers::CallNumber;
use super::{Answer, LinkSettings, Sent};
use crate::call::{AllAnswers, Outlet};
use crate::connection::Connection;
use crate::credit::Budget;
use crate::frame::{self, Header, RETURN};
use crate::payload::Payload;
use crate::stats::NetStats;
use base::error::{Error, ErrorKind, Result};
use base::id::RequestId;
use base::limit::{CREDIT_WINDOW_MAX, RECONNECT_WAIT, SMALL_FRAMES_MAX, SMALL_PAYLOAD_MAX};
use base::net::Net;
use base::unit::Time;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// A call is given up after it was sent on this many connections that all broke: it may be what breaks them.
const ATTEMPTS_MAX: u32 = 10;

/// What all connections of a link share.
pub(super) struct Shared {
    pub(super) net: Arc<dyn Net>,
    /// Where the node listens; of a link to whoever leads, where it was asked for first.
    pub(super) address: String,
    /// Of a link to whoever leads: where that is.
    pub(super) leader: Option<Leader>,
    pub(super) settings: LinkSettings,
    /// When the node was last heard on any connection, in nanoseconds of the clock.
    pub(super) heard: AtomicU64,
    pub(super) closed: AtomicBool,
    /// Another start of the node answered than the one that is meant: nothing is sent any more.
    anew: AtomicBool,
    stats: Arc<NetStats>,
}

impl Shared {
    pub(super) fn new(net: Arc<dyn Net>, address: &str, settings: LinkSettings) -> Shared {
        let heard = AtomicU64::new(settings.clock.now().as_nanos());
        let stats = Arc::new(NetStats::default());
        let (closed, anew) = (AtomicBool::new(false), AtomicBool::new(false));
        Shared { net, address: address.to_string(), leader: None, settings, heard, closed, anew, stats }
    }

    pub(super) fn to_leader(net: Arc<dyn Net>, addresses: Vec<String>, settings: LinkSettings) -> Shared {
        let leader = Leader::new(addresses);
        Shared { leader: Some(leader), ..Shared::new(net, "", settings) }
    }

    /// Where is asked now.
    pub(super) fn address(&self) -> String {
        self.leader.as_ref().map_or_else(|| self.address.clone(), Leader::address)
    }

    /// The moment after between half and all of a pause, so that many do not come at once.
    pub(super) fn after_some_of(&self, pause: Duration) -> Time {
        let half = pause / 2;
        let spread = Duration::from_nanos(self.settings.random.below(half.as_nanos() as u64 + 1));
        self.settings.clock.now().after(half + spread)
    }

    /// Whether another start of the node answered than the one that is meant.
    pub(super) fn is_anew(&self) -> bool {
        self.anew.load(Ordering::Acquire)
    }

    /// An error if so: connections that were made to the earlier start end.
    pub(super) fn check_start(&self) -> Result<()> {
        if self.is_anew() { Err(self.started_anew(true)) } else { Ok(()) }
    }

    /// Another start of the node answers than the one that is meant, from now on. Why its connection is not used.
    pub(super) fn found_anew(&self) -> Error {
        self.anew.store(true, Ordering::Release);
        self.started_anew(false)
    }

    /// What calls fail with then. `left`: the call left on an earlier connection.
    fn started_anew(&self, left: bool) -> Error {
        let fate = if left { "whether it was done before is not known" } else { "nothing was sent to it" };
        let text = format!(
            "the node at {} is another one than is meant, or was started anew since it was last heard of; {fate}; look what it holds now before asking again",
            self.address()
        );
        Error::new(ErrorKind::Unreachable, text)
    }

    /// Whether connections that were made in this turn of the leader's addresses are still the right ones.
    fn is_current(&self, turn: u64) -> bool {
        self.leader.as_ref().is_none_or(|leader| leader.is_current(turn))
    }

    pub(super) fn heard(&self) -> Time {
        Time::from_nanos(self.heard.load(Ordering::Relaxed))
    }

    pub(super) fn hear(&self, now: Time) {
        self.heard.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }
}

/// A call that waits for its answer.
pub(super) struct Pending {
    /// Held as long as it may be sent again.
    pub(super) number: CallNumber,
    /// The request that it is a part of.
    pub(super) request: RequestId,
    pub(super) kind: u16,
    pub(super) message: Bytes,
    pub(super) payload: Payload,
    pub(super) answer: oneshot::Sender<Answer>,
    pub(super) since: Time,
    pub(super) attempts: u32,
    /// It was put on a connection, so it may have arrived.
    pub(super) left: bool,
    /// Counts how often it is sent, for those who ask.
    pub(super) sent: Sent,
}

impl Pending {
    /// It is put on a connection, and may arrive from now on.
    fn leaves(&mut self) {
        self.left = true;
        self.sent.again();
    }

    /// What its frame begins with, and a wish for so much credit.
    fn header(&self, number: u64, credit: u32) -> Header {
        let (kind, floor, request) = (self.kind, self.number.floor(), self.request);
        Header { kind, number, floor, request, credit, ..Header::default() }
    }
}

/// One connection's place in the link.
pub(super) struct Slot {
    pub(super) shared: Arc<Shared>,
    /// Calls that may still be put on this connection.
    pub(super) allowance: Semaphore,
    /// Unanswered calls and their payload bytes, for choosing the least loaded connection.
    pub(super) calls: AtomicUsize,
    pub(super) bytes: AtomicU64,
    work: Notify,
    /// Of a link to whoever leads: a call was answered on this connection, so it goes to one that leads.
    pub(super) answers: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The connection as long as it lives.
    outlet: Option<Arc<Outlet>>,
    /// In which turn of the leader's addresses it was made; zero on other links.
    turn: u64,
    /// By number, which is the order in which they are sent again.
    pending: BTreeMap<u64, Pending>,
    /// Since when there has been something pending without a break.
    pending_since: Time,
    credit: Credit,
    /// Why the last connection ended or could not be made.
    trouble: Option<String>,
}

/// A connection's credit for large payloads.
#[derive(Default)]
struct Credit {
    /// Granted and not used.
    have: u64,
    /// Wished for and not granted.
    wished: u64,
    /// Calls that wait for credit, first come first served.
    waiting: VecDeque<(u64, u32)>,
    waiting_bytes: u64,
    /// Large payload of all unanswered calls, waiting ones included.
    unanswered: u64,
    /// When credit last came or large payload was last unanswered.
    moved: Time,
}

impl Slot {
    pub(super) fn new(shared: Arc<Shared>) -> Slot {
        Slot {
            shared,
            allowance: Semaphore::new(SMALL_FRAMES_MAX),
            calls: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            work: Notify::new(),
            answers: AtomicBool::new(false),
            state: Mutex::new(State::default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        self.shared.settings.clock.now()
    }

    /// Puts a call on this connection, now or as soon as there is one.
    pub(super) fn put(&self, call: Pending) {
        let number = call.number.value();
        let mut state = self.lock();
        // The same holds for what is set when another start of the node answers.
        if self.shared.is_anew() {
            drop(state);
            self.allowance.add_permits(1);
            drop(call.answer.send(Err(self.shared.started_anew(false))));
            return;
        }
        // Closing sets the flag before it takes the lock: either it finds this call, or this finds the flag.
        if self.shared.closed.load(Ordering::Acquire) {
            self.allowance.add_permits(1);
            return;
        }
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(call.payload.length() as u64, Ordering::Relaxed);
        if state.pending.is_empty() {
            state.pending_since = call.since;
        }
        state.pending.insert(number, call);
        match state.outlet.clone() {
            // This connection ends, and it goes on the next one.
            Some(_) if !self.shared.is_current(state.turn) => (),
            Some(outlet) => state.send(number, &outlet),
            None => self.work.notify_one(),
        }
    }

    /// Accounts for a call that is not pending any more.
    fn settle(&self, state: &mut State, number: u64) -> Option<Pending> {
        let call = state.pending.remove(&number)?;
        let length = call.payload.length();
        if length > SMALL_PAYLOAD_MAX {
            let credit = &mut state.credit;
            credit.unanswered = credit.unanswered.saturating_sub(length as u64);
            credit.moved = self.now();
        }
        self.calls.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(length as u64, Ordering::Relaxed);
        self.allowance.add_permits(1);
        Some(call)
    }

    /// An answer came in, perhaps to a call that was settled before.
    pub(super) fn answered(&self, number: u64, answer: Answer) {
        let call = self.settle(&mut self.lock(), number);
        if let Some(call) = call {
            call.sent.answered();
            // The caller may have stopped waiting: nobody minds.
            drop(call.answer.send(answer));
        }
    }

    /// The node grants so many more bytes.
    pub(super) fn granted(&self, bytes: u32) {
        let now = self.now();
        let mut state = self.lock();
        let credit = &mut state.credit;
        credit.have += u64::from(bytes);
        credit.wished = credit.wished.saturating_sub(u64::from(bytes));
        credit.moved = now;
        if let Some(outlet) = state.outlet.clone() {
            state.send_waiting(&outlet);
        }
    }

    /// Since when calls are pending; none if there are no calls.
    pub(super) fn pending_since(&self) -> Option<Time> {
        let state = self.lock();
        (!state.pending.is_empty()).then_some(state.pending_since)
    }

    /// The oldest call that has no answer, and since when.
    pub(super) fn oldest(&self) -> Option<(u64, Time)> {
        self.lock().pending.first_key_value().map(|(number, call)| (*number, call.since))
    }

    /// Gives back credit that is of no use: nothing large is asked any more, or what there is does not suffice for what
    /// waits. Holding on to it while wishing for more could make two clients wait for each other.
    pub(super) fn return_credit(&self, idle: Duration, insufficient: Duration) {
        let now = self.now();
        let mut state = self.lock();
        let Some(outlet) = state.outlet.clone() else { return };
        let credit = &mut state.credit;
        let patience = match credit.waiting.front() {
            Some((_, length)) if u64::from(*length) > credit.have => insufficient,
            _ if credit.unanswered == 0 => idle,
            _ => return,
        };
        if credit.have == 0 || now.since(credit.moved) < patience {
            return;
        }
        let back = u32::try_from(credit.have).unwrap_or(u32::MAX);
        credit.have -= u64::from(back);
        credit.wished = 0;
        let header = Header { kind: RETURN, credit: back, ..Header::default() };
        outlet.outbound.push(header, |_| (), &Payload::empty());
        state.send_waiting(&outlet);
    }

    /// Fails every call that has waited `silence_max` since the node was last heard, and says when the next one would.
    pub(super) fn expire(&self) -> Option<Duration> {
        let silence_max = self.shared.settings.silence_max;
        let now = self.now();
        let heard = self.shared.heard();
        let mut failed = Vec::new();
        let mut next: Option<Duration> = None;
        let mut state = self.lock();
        let numbers: Vec<(u64, Duration)> =
            state.pending.iter().map(|(number, call)| (*number, now.since(call.since.max(heard)))).collect();
        for (number, silence) in numbers {
            if silence >= silence_max {
                failed.extend(self.settle(&mut state, number));
            } else {
                let left = silence_max - silence;
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        let trouble = state.trouble.clone();
        drop(state);
        for call in failed {
            drop(call.answer.send(Err(self.silence(trouble.as_deref()))));
        }
        next
    }

    fn silence(&self, trouble: Option<&str>) -> Error {
        if let Some(leader) = &self.shared.leader {
            return leader.silence(self.shared.settings.silence_max, trouble);
        }
        let because = trouble.map_or(String::new(), |trouble| format!(" ({trouble})"));
        Error::new(
            ErrorKind::Unreachable,
            format!(
                "no answer from {} for {} s{because}; whether it was done is not known; ask again or check that `stormwell serve` runs there",
                self.shared.address(),
                self.shared.settings.silence_max.as_secs()
            ),
        )
    }

    /// Fails every pending call with the same error.
    pub(super) fn fail_all(&self, error: &Error) {
        self.fail_which(|_| true, |_| error.clone());
    }

    /// Fails the pending calls that are `meant`.
    fn fail_which(&self, meant: impl Fn(&Pending) -> bool, error: impl Fn(&Pending) -> Error) {
        let mut state = self.lock();
        let meant = state.pending.iter().filter(|(_, call)| meant(call));
        let numbers: Vec<u64> = meant.map(|(number, _)| *number).collect();
        let failed: Vec<Pending> = numbers.into_iter().filter_map(|number| self.settle(&mut state, number)).collect();
        drop(state);
        for call in failed {
            let error = error(&call);
            drop(call.answer.send(Err(error)));
        }
    }

    /// Of a link that sends once: what left on the connection that ended is not sent again.
    fn fail_left(&self) {
        let because = self.lock().trouble.clone().unwrap_or_default();
        let text = format!(
            "it was sent to {}, and the connection broke ({because}); whether it was done is not known, and it is not sent again; look before asking again",
            self.shared.address()
        );
        self.fail_which(|call| call.left, |_| Error::new(ErrorKind::Unreachable, text.clone()));
    }

    /// Ends this connection and its task.
    pub(super) fn close(&self, error: &Error) {
        self.fail_all(error);
        if let Some(outlet) = self.lock().outlet.take() {
            outlet.outbound.wake();
        }
        self.work.notify_one();
    }

    /// Takes a new connection into use: everything that is pending is sent (again).
    fn attach(&self, outlet: Arc<Outlet>, turn: u64) {
        let mut given_up = Vec::new();
        let mut state = self.lock();
        self.answers.store(false, Ordering::Relaxed);
        state.turn = turn;
        state.credit = Credit { moved: self.now(), ..Credit::default() };
        let numbers: Vec<u64> = state.pending.keys().copied().collect();
        for number in numbers {
            let Some(call) = state.pending.get_mut(&number) else { continue };
            call.attempts += 1;
            if call.answer.is_closed() || call.attempts > ATTEMPTS_MAX {
                given_up.extend(self.settle(&mut state, number));
            } else {
                state.send(number, &outlet);
            }
        }
        state.outlet = Some(outlet);
        let trouble = state.trouble.clone().unwrap_or_default();
        drop(state);
        for call in given_up {
            let text = format!(
                "the connection to {} broke {ATTEMPTS_MAX} times while this was asked ({trouble}); whether it was done is not known; look at what `stormwell serve` printed there",
                self.shared.address()
            );
            drop(call.answer.send(Err(Error::new(ErrorKind::Unreachable, text))));
        }
    }

    fn detach(&self, ending: Result<()>) {
        let mut state = self.lock();
        state.outlet = None;
        // A place that went to somebody else is not lost by what was asked, and neither is a lead.
        let follows = self.shared.leader.is_some();
        let is_innocent = |error: &Error| match error.kind() {
            ErrorKind::Busy => true,
            ErrorKind::Moved => follows,
            _ => false,
        };
        if ending.as_ref().is_err_and(is_innocent) {
            state.pending.values_mut().for_each(|call| call.attempts = call.attempts.saturating_sub(1));
        }
        state.trouble = Some(ending.map_or_else(|error| error.text().to_string(), |()| "the node closed it".into()));
    }

    /// Keeps a connection up while there are calls, until the link is closed.
    pub(super) async fn run(self: Arc<Slot>, mut made: Option<Made>) {
        while !self.shared.closed.load(Ordering::Acquire) {
            let ready = match made.take() {
                Some(ready) => ready,
                None if self.pending_since().is_none() => {
                    self.work.notified().await;
                    continue;
                }
                None => match self.make_another().await {
                    Some(ready) => ready,
                    None => continue,
                },
            };
            // Another address was chosen while this one took the connection.
            if !self.shared.is_current(ready.turn) {
                continue;
            }
            let (stats, clock) = (self.shared.stats.clone(), self.shared.settings.clock.clone());
            let outlet = Arc::new(Outlet::new(Budget::new(0), AllAnswers::default(), stats, clock, None));
            let turn = ready.turn;
            self.attach(outlet.clone(), turn);
            let connection = Connection {
                stream: ready.stream,
                decoder: ready.decoder,
                role: Asking::new(self.clone(), outlet.clone(), turn),
                outlet,
                clock: self.shared.settings.clock.clone(),
                stats: self.shared.stats.clone(),
            };
            let ending = connection.run().await;
            self.detach(ending);
            if let Some(leader) = &self.shared.leader
                && !self.answers.load(Ordering::Relaxed)
            {
                // Unless it was left for another one.
                leader.failed(turn, false, &self.shared);
            }
            if self.shared.settings.once {
                self.fail_left();
            }
            self.expire();
        }
    }

    async fn make_another(&self) -> Option<Made> {
        match &self.shared.leader {
            Some(leader) => self.find(leader).await,
            None => self.make_again().await,
        }
    }

    /// Why there is no connection now.
    pub(super) fn note(&self, trouble: String) {
        self.lock().trouble = Some(trouble);
    }

    /// Tries to connect until it works, nothing is pending any more, or the node says that it never will.
    async fn make_again(&self) -> Option<Made> {
        let (wait_min, wait_max) = RECONNECT_WAIT;
        let mut wait = wait_min;
        loop {
            if self.shared.is_anew() {
                self.fail_which(|_| true, |call| self.shared.started_anew(call.left));
                return None;
            }
            let attempt = make(&self.shared, &self.shared.address);
            tokio::pin!(attempt);
            let result = loop {
                let left = self.expire()?;
                if let Ok(result) = timeout(left, &mut attempt).await {
                    break result;
                }
            };
            match result {
                Ok(made) => return Some(made),
                Err(_) if self.shared.is_anew() => continue,
                Err(error) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Refused) => {
                    self.fail_all(&error);
                    return None;
                }
                Err(error) => self.lock().trouble = Some(error.text().to_string()),
            }
            // Between half and all of the wait, so that clients of a restarted node do not come at once.
            let half = wait / 2;
            let spread = self.shared.settings.random.below(half.as_nanos() as u64 + 1);
            sleep((half + Duration::from_nanos(spread)).min(self.expire()?)).await;
            wait = (wait * 2).min(wait_max);
        }
    }
}

impl State {
    /// Sends a pending call, or lets it wait for credit.
    fn send(&mut self, number: u64, outlet: &Outlet) {
        let Some(call) = self.pending.get_mut(&number) else { return };
        let length = call.payload.length();
        if length <= SMALL_PAYLOAD_MAX {
            call.leaves();
            let header = call.header(number, 0);
            outlet.outbound.push(header, |bytes| bytes.extend_from_slice(&call.message), &call.payload);
            return;
        }
        self.credit.unanswered += length as u64;
        self.credit.waiting_bytes += length as u64;
        self.credit.waiting.push_back((number, length as u32));
        self.send_waiting(outlet);
        let credit = &mut self.credit;
        if credit.have + credit.wished < credit.waiting_bytes {
            wish(credit, length as u32, outlet);
        }
    }

    /// Sends what waits, as far as the credit goes, and wishes for as much again while the window has room: whoever keeps
    /// sending finds the credit for the next payload already there.
    fn send_waiting(&mut self, outlet: &Outlet) {
        let credit = &mut self.credit;
        while let Some((number, length)) = credit.waiting.front().copied() {
            let needed = u64::from(length);
            let Some(call) = self.pending.get_mut(&number) else {
                credit.waiting.pop_front();
                credit.waiting_bytes -= needed;
                continue;
            };
            if credit.have < needed {
                if credit.have + credit.wished < needed {
                    wish(credit, length, outlet);
                }
                return;
            }
            credit.waiting.pop_front();
            credit.waiting_bytes -= needed;
            credit.have -= needed;
            let window = credit.unanswered.min(CREDIT_WINDOW_MAX);
            let again = credit.have + credit.wished < credit.waiting_bytes + window;
            let wished = if again { length } else { 0 };
            credit.wished += u64::from(wished);
            call.leaves();
            let header = call.header(number, wished);
            outlet.outbound.push(header, |bytes| bytes.extend_from_slice(&call.message), &call.payload);
        }
    }
}

/// Wishes for the whole length of a payload, so that a grant is always of use by itself.
fn wish(credit: &mut Credit, length: u32, outlet: &Outlet) {
    credit.wished += u64::from(length);
    let header = Header { kind: frame::CREDIT, credit: length, ..Header::default() };
    outlet.outbound.push(header, |_| (), &Payload::empty());
}
