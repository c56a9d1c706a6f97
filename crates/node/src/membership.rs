//! A node that does not keep the metadata: what it knows of the cluster, and whose writes it takes. How it reports to the keeper is in
//! `reporting`.

pub mod reporting;
pub mod terms;

use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId, RequestId, SessionId};
use base::limit::{CLOCK_DRIFT_MAX, SESSION_LEASE};
use base::net::Net;
use base::planted::Planted;
use base::unit::Time;
use net::message::{Ask, cluster as wire};
use net::{Asker, Call, Link, LinkSettings, Payload};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terms::{Pass, Terms};

/// What a node knows of the cluster that it is a member of.
pub struct Membership {
    /// Where the node that keeps the metadata is.
    keeper: String,
    network: Arc<dyn Net>,
    settings: LinkSettings,
    clock: Arc<dyn Clock>,
    link: tokio::sync::Mutex<Option<Link>>,
    state: Mutex<State>,
    sessions: Mutex<Sessions>,
    terms: Arc<Terms>,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
}

struct State {
    /// Which node keeps the metadata, once it answered.
    keeper: Option<NodeId>,
    view: Option<wire::ViewAnswer>,
    /// What it waits for; none: it is a member, and its reports are taken.
    waits: Option<String>,
    /// It was a member since its start: what the keeper said then holds on while that cannot be reached.
    joined: bool,
    /// The log says that it waits, or nothing yet.
    said_waiting: bool,
}

/// Sessions whose writes are taken. One lock, because each write asks.
#[derive(Default)]
struct Sessions {
    /// The keeper answered, and refused this node: nobody's writes are.
    refused: bool,
    /// Until when a session does not end.
    open: BTreeMap<SessionId, Time>,
    /// Sessions that were asked for, and the calls that wait for the answer, in order. Bounded by the calls that connections may
    /// have unanswered.
    asked: BTreeMap<SessionId, Vec<Call>>,
}

/// How long a session that is not known is asked for while the keeper does not answer.
const FIND_WAIT_MAX: Duration = SESSION_LEASE;

/// Between two such attempts.
const FIND_PAUSE: Duration = Duration::from_millis(200);

/// A session that is asked for. If that ends by a fault, its calls are given up, which answers them, and the next one asks anew.
struct AskingFor<'a> {
    membership: &'a Membership,
    session: SessionId,
    is_over: bool,
}

impl Drop for AskingFor<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let calls = self.membership.sessions().asked.remove(&self.session);
            drop(calls);
        }
    }
}

impl Membership {
    /// A node that has not reported yet to the one at `keeper`. `settings` are those of its link there.
    pub fn new(keeper: String, network: Arc<dyn Net>, settings: LinkSettings, planted: Option<Planted>) -> Membership {
        let waits = Some(format!("it has not reported yet to the node that keeps the metadata, {keeper}"));
        let state = State { keeper: None, view: None, waits, joined: false, said_waiting: true };
        let (clock, link) = (settings.clock.clone(), tokio::sync::Mutex::default());
        let (state, sessions, terms) = (Mutex::new(state), Mutex::default(), Arc::new(Terms::new(planted)));
        Membership { keeper, network, settings, clock, link, state, sessions, terms, planted }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it waits for; none: nothing.
    pub fn waits(&self) -> Option<String> {
        self.state().waits.clone()
    }

    /// Who is there, as it was told last.
    pub fn view(&self) -> Result<wire::ViewAnswer> {
        let state = self.state();
        state.view.clone().ok_or_else(|| not_a_member(state.waits.as_deref()))
    }

    /// What must be asked of the node that keeps the metadata was asked of this one.
    pub fn elsewhere(&self) -> Error {
        let text = format!(
            "this node does not keep the metadata; nothing was done; ask the node that does, at {}",
            self.keeper
        );
        Error::new(ErrorKind::Unsupported, text)
    }

    /// Whether this is the node that keeps the metadata.
    pub fn is_keeper(&self, asker: Asker) -> bool {
        matches!(asker, Asker::Node { node, .. } if self.state().keeper == Some(node))
    }

    /// The term in which a node orders, if it leads, and in no earlier one than was heard of.
    pub fn term_of(&self, asker: Asker) -> Result<u64> {
        if let Asker::Node { term, .. } = asker
            && self.is_keeper(asker)
        {
            return self.terms.check(term);
        }
        if self.state().keeper.is_none() {
            let text = "this node was just started and does not know yet which one keeps the metadata; nothing was done; ask again";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let text = "only the node that keeps the metadata may order this of a device on another node; nothing was done";
        Err(Error::new(ErrorKind::Invalid, text))
    }

    /// Asks the node that keeps the metadata.
    pub async fn ask<A: Ask>(&self, ask: &A) -> Result<A::Answer> {
        let link = self.link().await?;
        link.call(ask, Payload::empty()).await.map(|(answer, _)| answer)
    }

    async fn link(&self) -> Result<Link> {
        let mut link = self.link.lock().await;
        if let Some(link) = &*link {
            return Ok(link.clone());
        }
        let made = Link::connect(self.network.clone(), &self.keeper, self.settings.clone()).await?;
        self.state().keeper = Some(made.node());
        *link = Some(made.clone());
        Ok(made)
    }

    /// Begins an order to a device in this term, which `term_of` gave.
    pub async fn begin(&self, term: u64, device: DeviceId) -> Result<Pass> {
        self.terms.begin(term, device).await
    }

    /// Gives a call back that changes something for its session, if that is open. One of a session that is not known waits until
    /// the keeper was asked, with all that the session sends meanwhile: then `ask` is to see to it that `find` runs, for this request.
    pub fn admit(&self, call: Call, ask: impl FnOnce(SessionId, RequestId)) -> Option<Call> {
        let now = self.clock.now();
        let mut sessions = self.sessions();
        if sessions.refused {
            drop(sessions);
            call.respond.fail(not_a_member(self.waits().as_deref()));
            return None;
        }
        let session = call.session;
        if let Some(waiting) = sessions.asked.get_mut(&session) {
            waiting.push(call);
            return None;
        }
        let is_open = |until: &Time| now < *until || self.planted == Some(Planted::MemberSessionNeverEnds);
        if sessions.open.get(&session).is_some_and(is_open) {
            return Some(call);
        }
        let request = call.request;
        sessions.asked.insert(session, vec![call]);
        drop(sessions);
        ask(session, request);
        None
    }

    /// Why nothing is taken from anybody, if the keeper refuses this node.
    fn refusal(&self) -> Option<Error> {
        let refused = self.sessions().refused;
        refused.then(|| not_a_member(self.waits().as_deref()))
    }

    /// Asks for a session, and lets its calls go on in their order.
    pub async fn find(&self, session: SessionId, go_on: impl Fn(Call)) {
        let mut asking = AskingFor { membership: self, session, is_over: false };
        let found = self.lease_of(session).await;
        if let Ok(until) = &found {
            self.sessions().open.insert(session, *until);
        }
        loop {
            let mut sessions = self.sessions();
            let calls = sessions.asked.get_mut(&session).map(std::mem::take).unwrap_or_default();
            if calls.is_empty() {
                // Only now may calls pass by: none that came before is left.
                sessions.asked.remove(&session);
                asking.is_over = true;
                return;
            }
            drop(sessions);
            for call in calls {
                match &found {
                    Ok(_) => go_on(call),
                    Err(error) => call.respond.fail(error.clone()),
                }
            }
        }
    }

    /// Until when a session does not end.
    async fn lease_of(&self, session: SessionId) -> Result<Time> {
        let began = self.clock.now();
        // What the first answer to a report says is to be known before anything is taken: which devices are to be emptied.
        while !self.state().joined {
            if let Some(refusal) = self.refusal() {
                return Err(refusal);
            }
            if self.clock.now().since(began) >= FIND_WAIT_MAX {
                return Err(not_a_member(self.waits().as_deref()));
            }
            tokio::time::sleep(FIND_PAUSE).await;
        }
        loop {
            let sent = self.clock.now();
            match self.ask(&wire::FindSession { session: session.0.into() }).await {
                Ok(wire::OpenSession { lease_ms: 0, .. }) => return Err(over(session)),
                Ok(found) => {
                    let until = surely_open(sent, found.lease_ms);
                    // An answer that was long on its way says nothing of now.
                    if self.clock.now() < until {
                        return Ok(until);
                    }
                    if self.clock.now().since(began) >= FIND_WAIT_MAX {
                        let text = "its answers were too long on their way to be believed";
                        return Err(self.unheard(&Error::new(ErrorKind::Unreachable, text)));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    if self.clock.now().since(began) >= FIND_WAIT_MAX {
                        return Err(self.unheard(&error));
                    }
                    tokio::time::sleep(FIND_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn unheard(&self, error: &Error) -> Error {
        let text = format!(
            "the node that keeps the metadata, {}, does not answer ({}); nothing was stored; what was acknowledged is safe; it goes \
             on when that node does",
            self.keeper,
            error.text()
        );
        Error::new(ErrorKind::Unreachable, text)
    }

    /// Notes the answer to a report that was sent at this moment.
    fn told(&self, sent: Time, answer: &wire::ReportAnswer) {
        self.terms.hear(answer.term);
        let mut sessions = self.sessions();
        let now = self.clock.now();
        sessions.refused = false;
        let never_ends = self.planted == Some(Planted::MemberSessionNeverEnds);
        sessions.open.retain(|_, until| now < *until || never_ends);
        for wire::OpenSession { session, lease_ms } in &answer.sessions {
            let until = surely_open(sent, *lease_ms);
            let known = sessions.open.entry(SessionId(session.value())).or_insert(until);
            *known = until.max(*known);
        }
        drop(sessions);
        let mut state = self.state();
        if let Some(view) = &answer.view {
            state.keeper = Some(NodeId(view.keeper.value()));
            state.view = Some(view.clone());
        }
        state.waits = None;
        state.joined = true;
    }
}

/// Until when a session does not end whose lease the keeper gave in answer to a question sent then. The keeper measures it with its
/// own clock, which may be faster than this one.
fn surely_open(sent: Time, lease_ms: u64) -> Time {
    let lease = Duration::from_millis(lease_ms).min(SESSION_LEASE);
    sent.after(lease.saturating_sub(lease / (1_000_000 / CLOCK_DRIFT_MAX)))
}

fn not_a_member(waits: Option<&str>) -> Error {
    let text = format!(
        "this node is no member of its cluster: {}; nothing was done; what was acknowledged is safe; ask again later",
        waits.unwrap_or("it was not told who is there")
    );
    Error::new(ErrorKind::Busy, text)
}

/// What a session sends after its end is refused.
pub fn over(session: SessionId) -> Error {
    Error::new(
        ErrorKind::Stale,
        format!(
            "session {session} is over: nothing was heard of it for {} s; nothing was stored, what was acknowledged before is safe; \
             start again in a new session",
            SESSION_LEASE.as_secs()
        ),
    )
}
