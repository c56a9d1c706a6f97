//! A node that does not keep the metadata alone: what it knows of the cluster, and whose writes it takes. How it reports to the keeper, or to the one
//! of several that leads, is in `reporting`.

pub mod deletes;
pub mod reporting;
pub mod terms;

use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, NodeId, RequestId, SessionId};
use base::limit::{CLOCK_DRIFT_MAX, SESSION_LEASE};
use base::moved::Moved;
use base::net::Net;
use base::planted::Planted;
use base::unit::Time;
use deletes::Deletes;
use net::message::{Ask, cluster as wire};
use net::{Asker, Call, Link, LinkSettings, Payload};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use terms::{Pass, Terms};
use tokio::sync::Notify;

/// Where a member reports to.
pub enum Keepers {
    /// The node there keeps the metadata, `host:port`.
    Alone(String),
    /// The nodes there keep it together, and whoever of them leads takes reports.
    Several(Vec<String>),
}

/// What a node knows of the cluster that it is a member of.
pub struct Membership {
    keepers: Keepers,
    network: Arc<dyn Net>,
    settings: LinkSettings,
    clock: Arc<dyn Clock>,
    link: tokio::sync::Mutex<Option<Link>>,
    state: Mutex<State>,
    sessions: Mutex<Sessions>,
    terms: Arc<Terms>,
    /// What was deleted by order.
    pub deletes: Deletes,
    /// It is to report now: another one leads.
    due: Notify,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
}

struct State {
    /// Which node keeps the metadata, once it answered; of several, the one that leads, in this term, there.
    keeper: Option<NodeId>,
    leads: Moved,
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

/// Bytes of an address: a name of 255 bytes, brackets and a port.
const ADDRESS_MAX: usize = 264;

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
    /// A node that has not reported yet. `settings` are those of its link to the keeper.
    pub fn new(
        keepers: Keepers,
        network: Arc<dyn Net>,
        settings: LinkSettings,
        planted: Option<Planted>,
    ) -> Membership {
        let waits = Some(format!("it has not reported yet to {}", keepers.shown()));
        let leads = Moved::default();
        let state = State { keeper: None, leads, view: None, waits, joined: false, said_waiting: true };
        let (clock, link) = (settings.clock.clone(), tokio::sync::Mutex::default());
        let (state, sessions, terms) = (Mutex::new(state), Mutex::default(), Arc::new(Terms::new(planted)));
        let (deletes, due) = (Deletes::new(planted), Notify::new());
        Membership { keepers, network, settings, clock, link, state, sessions, terms, deletes, due, planted }
    }

    /// Whether several nodes keep the metadata.
    fn is_of_several(&self) -> bool {
        matches!(self.keepers, Keepers::Several(_))
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

    /// What must be asked of the node that keeps the metadata, or leads those that do, was asked of this one.
    pub fn elsewhere(&self) -> Error {
        match &self.keepers {
            Keepers::Alone(keeper) => {
                let text = format!(
                    "this node does not keep the metadata; nothing was done; ask the node that does, at {keeper}"
                );
                Error::new(ErrorKind::Unsupported, text)
            }
            Keepers::Several(_) => self.state().leads.clone().into(),
        }
    }

    /// Another node says that it leads in this term, and listens there. It is believed if that is news: from then on what leaders of earlier terms
    /// order is refused, and this one is reported to. Of a term that is over it is refused.
    pub async fn follow(&self, asker: Asker, address: String) -> Result<()> {
        let Asker::Node { node, term, .. } = asker else {
            return Err(Error::new(
                ErrorKind::Invalid,
                "only a node leads the keepers of the metadata; nothing was changed",
            ));
        };
        if !self.is_of_several() || term == 0 {
            let text = "this node belongs to a store whose metadata one node keeps, which nobody else leads; nothing was changed";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if address.len() > ADDRESS_MAX {
            let text = format!("an address has at most {ADDRESS_MAX} bytes; nothing was changed");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let keepers = self.keepers();
        if !keepers.is_empty() && !keepers.contains(&node) {
            let text = "only a node that keeps the metadata leads; nothing was changed";
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let term = self.terms.check(term)?;
        if self.led_by(node, Moved { leader: Some(address.clone()), term }) {
            self.link().await?.follow(address, term);
            self.due.notify_one();
        }
        Ok(())
    }

    /// Notes who leads, if it is news.
    fn led_by(&self, node: NodeId, leads: Moved) -> bool {
        let mut state = self.state();
        let is_news = leads.term > state.leads.term;
        if is_news {
            (state.keeper, state.leads) = (Some(node), leads);
        }
        is_news
    }

    /// The nodes that keep the metadata together, as it was told last.
    pub fn keepers(&self) -> Vec<NodeId> {
        let state = self.state();
        let keepers = state.view.iter().flat_map(|view| &view.keepers);
        keepers.map(|keeper| NodeId(keeper.value())).collect()
    }

    /// Where a node listens, as it was told last.
    pub fn address_of(&self, node: NodeId) -> Option<String> {
        let state = self.state();
        let mut members = state.view.iter().flat_map(|view| &view.members);
        members.find(|member| member.node.node.value() == node.0).map(|member| member.node.address.clone())
    }

    /// Who leads the keepers, as far as it was told.
    pub fn leads(&self) -> Moved {
        self.state().leads.clone()
    }

    /// Whether this is the node that keeps the metadata.
    pub fn is_keeper(&self, asker: Asker) -> bool {
        matches!(asker, Asker::Node { node, .. } if self.state().keeper == Some(node))
    }

    /// The term in which a node orders, if it leads, and in no earlier one than was heard of.
    pub fn term_of(&self, asker: Asker) -> Result<u64> {
        // Of several, one may lead that knows nothing yet of this start: until a report was answered nothing is done for any.
        let knows = !self.is_of_several() || self.state().view.is_some();
        if let Asker::Node { term, .. } = asker
            && knows
            && self.is_keeper(asker)
            && (term > 0 || !self.is_of_several())
        {
            return self.terms.check(term);
        }
        if !knows || self.state().keeper.is_none() {
            let text = "this node was just started and does not know yet which one keeps the metadata; nothing was done; ask again";
            return Err(Error::new(ErrorKind::Busy, text));
        }
        if self.is_of_several() && matches!(asker, Asker::Node { term: 1.., .. }) {
            let text = "this node does not follow the one that ordered it, or not yet; nothing was done; ask again";
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
        let (network, settings) = (self.network.clone(), self.settings.clone());
        let made = match &self.keepers {
            Keepers::Alone(keeper) => {
                let made = Link::connect(network, keeper, settings).await?;
                self.state().keeper = Some(made.node());
                made
            }
            Keepers::Several(addresses) => Link::to_leader(network, addresses.clone(), settings),
        };
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
            "{}, does not answer ({}); nothing was stored; what was acknowledged is safe; it goes on when that node does",
            self.keepers.shown(),
            error.text()
        );
        Error::new(ErrorKind::Unreachable, text)
    }

    /// Whether the answer to a report counts. Not if another one leads by now than who gave it: then nothing of it does, and the report has none.
    fn counts(&self, answer: &wire::ReportAnswer) -> Result<()> {
        let known = self.terms.hear(answer.term);
        if !self.is_of_several() || answer.term >= known {
            return Ok(());
        }
        let text = format!(
            "who leads in term {} answered a report, and this node heard of term {known}; if nobody leads in that one, because the metadata was put back or \
             made anew, start this node again",
            answer.term
        );
        Err(Error::new(ErrorKind::Unreachable, text))
    }

    /// Notes the answer to a report that was sent at this moment.
    fn told(&self, sent: Time, answer: &wire::ReportAnswer) {
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
            state.view = Some(view.clone());
        }
        // It may have been told of a later leader since the answer was found to count.
        if !self.is_of_several() {
            let keeper = answer.view.as_ref().map(|view| NodeId(view.keeper.value()));
            state.keeper = keeper.or(state.keeper);
        } else if answer.term >= state.leads.term {
            self.follows(&mut state, answer);
        }
        state.waits = None;
        state.joined = true;
    }

    /// Notes who of several leads. Another one need not say the view anew.
    fn follows(&self, state: &mut State, answer: &wire::ReportAnswer) {
        let Some(leader) = answer.leader else { return };
        state.keeper = Some(NodeId(leader.value()));
        if let Some(view) = &mut state.view {
            (view.keeper, view.term) = (leader, answer.term);
            let of = view.members.iter().find(|member| member.node.node == leader);
            state.leads = Moved { leader: of.map(|member| member.node.address.clone()), term: answer.term };
        }
    }
}

impl Keepers {
    /// For people.
    pub fn shown(&self) -> String {
        match self {
            Keepers::Alone(keeper) => format!("the node that keeps the metadata, {keeper}"),
            Keepers::Several(keepers) => format!("whoever leads the metadata's keepers, of {}", keepers.join(", ")),
        }
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
