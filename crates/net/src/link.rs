//! The asking side: a link to one node, over several connections that mend themselves.

mod asking;
mod greeting;
mod leader;
mod making;
mod numbers;
mod slot;

use crate::call::{Body, Call, LocalAnswer, Responder, Service};
use crate::frame::broken;
use crate::message::{Ask, kind_name};
use crate::payload::Payload;
use crate::secret::{Asker, Credentials};
use base::buffer::Pool;
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::id::{NodeId, RequestId, SessionId};
use base::limit::{FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX, SMALL_FRAMES_MAX, SMALL_PAYLOAD_MAX};
use base::net::Net;
use base::request;
use base::unit::Time;
use bytes::Bytes;
use leader::Leader;
use making::{Made, make_first};
pub use numbers::CallNumbers;
use prost::Message;
use slot::{Pending, Shared, Slot};
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// What a link needs to know.
#[derive(Clone)]
pub struct LinkSettings {
    /// The client's session; every link of the process names the same one.
    pub session: SessionId,
    /// Which program this is, for people at the other end: `stormwell put`.
    pub program: String,
    /// Connections to spread large payloads over. Two is best on the machines we measured; zero counts as one.
    pub connections: usize,
    /// A call fails after this much silence from the node, not after this much work. `limit::CALL_SILENCE_MAX`.
    pub silence_max: Duration,
    /// Where buffers for answers come from.
    pub pool: Pool,
    /// Measures silence.
    pub clock: Arc<dyn Clock>,
    /// Spreads the attempts of many clients to connect again.
    pub random: Arc<dyn Random>,
    /// What is shown to the node, and wanted of it.
    pub credentials: Credentials,
    /// Who asks.
    pub asker: Asker,
    /// Numbers the session's calls: every link of the session has clones of one.
    pub numbers: CallNumbers,
    /// The node that is meant, and which start of it (zero: any), as `Welcome` says. Nothing is sent to another one: all calls fail
    /// (`Unreachable`) from then on, since who ordered something of a node's earlier life has to look first what the new one is. None: whichever
    /// answers. A node of an older version, which says no start, counts as the one that is meant.
    pub meant: Option<(NodeId, u64)>,
    /// A call leaves once: if its connection breaks it fails (`Unreachable`, it may have been done), and what had not left goes on the next
    /// one. Else all that has no answer is sent again under its number.
    pub once: bool,
}

/// A link to one node. Clones are the same link; the last one closes it.
#[derive(Clone)]
pub struct Link {
    route: Route,
}

#[derive(Clone)]
enum Route {
    Local(Local),
    Remote(Arc<Remote>),
}

/// The node is this process.
#[derive(Clone)]
struct Local {
    service: Arc<dyn Service>,
    session: SessionId,
}

/// How often a question was put on a connection, and answered. One that was sent on a connection that broke may have been done, or be
/// done yet; one that found no connection was not sent.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    answered: AtomicU64,
}

impl Sent {
    fn again(&self) {
        self.counts.sent.fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self) {
        self.counts.answered.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether it was sent at all.
    pub fn is_sent(&self) -> bool {
        self.counts.sent.load(Ordering::Acquire) > 0
    }

    /// Whether it was sent more often than it was answered.
    pub fn is_unanswered(&self) -> bool {
        self.counts.sent.load(Ordering::Acquire) > self.counts.answered.load(Ordering::Acquire)
    }
}

/// A link's connections. Dropping it ends their tasks.
struct Remote {
    shared: Arc<Shared>,
    slots: Vec<Arc<Slot>>,
    node: NodeId,
}

/// What comes back for a call: the kind it answers, the message, the payload.
type Answer = Result<(u16, Bytes, Payload)>;

impl Link {
    /// Connects to the node at `address` (`host:port`). Fails at once if nothing listens there (`Unreachable`), and if one side
    /// does not want the other (`Refused`: secret or cluster; `Unsupported`: version). A node that has no place just now is asked again for
    /// `silence_max` (`Busy`).
    pub async fn connect(net: Arc<dyn Net>, address: &str, settings: LinkSettings) -> Result<Link> {
        let silence_max = settings.silence_max;
        let shared = Arc::new(Shared::new(net, address, settings));
        let mut busy = None;
        let made = match timeout(silence_max, make_first(&shared, &mut busy)).await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) if error.kind() == ErrorKind::Unreachable && !shared.is_anew() => {
                return Err(nobody(address, error.text()));
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let silence = || nobody(address, &format!("silence for {} s", silence_max.as_secs()));
                return Err(busy.map_or_else(silence, |busy| busy.during(address)));
            }
        };
        Ok(Link::start(shared, Some(made)))
    }

    /// A link to the node at `address` that connects when it is first used. A call waits for the node to come as it waits for an
    /// answer; which node it is, `node` does not say. Must be called within a tokio runtime.
    pub fn when_used(net: Arc<dyn Net>, address: &str, settings: LinkSettings) -> Link {
        Link::start(Arc::new(Shared::new(net, address, settings)), None)
    }

    /// A link to whichever of several nodes leads the metadata's keepers, first asked for at the first of these addresses, of which there is one
    /// at least. It connects when it is first used. A node that says that it does not lead (`base::moved`) settles no call: all that has no
    /// answer is asked of the next one under its number, so a change is made once as long as answers are remembered under their numbers. What
    /// callers get when nobody who leads answers for `silence_max` is `Unreachable`, never `Moved`.
    /// With `once` what was sent to a node that does not lead fails so at once. Must be called within a tokio runtime.
    pub fn to_leader(net: Arc<dyn Net>, addresses: Vec<String>, settings: LinkSettings) -> Link {
        // No start of one node is meant.
        let settings = LinkSettings { meant: None, ..settings };
        Link::start(Arc::new(Shared::to_leader(net, addresses, settings)), None)
    }

    /// Addresses at which a link to whoever leads may ask, too, as views of the cluster name them. Other links need none.
    pub fn learn(&self, addresses: Vec<String>) {
        if let Route::Remote(remote) = &self.route
            && let Some(leader) = &remote.shared.leader
        {
            leader.learn(addresses);
        }
    }

    /// Somebody says which node leads in this term, and where it listens: a link to whoever leads goes there if that is news.
    pub fn follow(&self, leader: String, term: u64) {
        if let Route::Remote(remote) = &self.route
            && let Some(leads) = &remote.shared.leader
        {
            leads.told(leader, term);
        }
    }

    fn start(shared: Arc<Shared>, mut made: Option<Made>) -> Link {
        let connections = shared.settings.connections.max(1);
        let node = made.as_ref().map_or(NodeId::default(), |made| made.welcomed.node);
        let slots: Vec<Arc<Slot>> = (0..connections).map(|_| Arc::new(Slot::new(shared.clone()))).collect();
        // The first connection may be there; the others are made when they are first used.
        for slot in &slots {
            tokio::spawn(slot.clone().run(made.take()));
        }
        Link { route: Route::Remote(Arc::new(Remote { shared, slots, node })) }
    }

    /// A link to oneself: a call is a function call, messages and payloads are handed over as they are. Its calls have no numbers, because no
    /// answer can be lost on the way and nothing is asked again: nobody has to remember what was answered.
    pub fn local(service: Arc<dyn Service>, session: SessionId) -> Link {
        Link { route: Route::Local(Local { service, session }) }
    }

    /// Asks, and waits for the answer as long as the node gives signs of life. The answer's payload is verified.
    ///
    /// The node's refusal comes back as the error it made. `Unreachable`: nothing was heard for `silence_max`; whether the
    /// call was done is not known. `Corrupt`: the answer's payload was damaged on the way. `Invalid`: the question does not fit in a frame.
    pub async fn call<A: Ask>(&self, ask: &A, payload: Payload) -> Result<(A::Answer, Payload)> {
        let (answer, payload) = self.call_unverified(ask, payload).await?;
        payload.verify()?;
        Ok((answer, payload))
    }

    /// As `call`, but whether the answer's payload is what its CRC says is for the caller to find out: it goes over the bytes
    /// anyway and does it on the way.
    pub async fn call_unverified<A: Ask>(&self, ask: &A, payload: Payload) -> Result<(A::Answer, Payload)> {
        self.call_counted(ask, payload, &Sent::default()).await
    }

    /// As `call_unverified`, and counts in `sent` how often the question left and was answered.
    pub async fn call_counted<A: Ask>(&self, ask: &A, payload: Payload, sent: &Sent) -> Result<(A::Answer, Payload)> {
        let name = kind_name(A::KIND).unwrap_or("unknown");
        let length = ask.encoded_len();
        if length > FRAME_MESSAGE_MAX || payload.length() > FRAME_PAYLOAD_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{name} with {length} bytes of message and {} of payload does not fit in a frame ({FRAME_MESSAGE_MAX} and {FRAME_PAYLOAD_MAX}); nothing was sent; ask for less at once",
                    payload.length()
                ),
            ));
        }
        match &self.route {
            Route::Local(local) => local.ask(ask, payload, sent).await,
            Route::Remote(remote) => {
                let (message, payload) = remote.ask(A::KIND, ask.encode_to_vec().into(), payload, sent).await?;
                let answer = A::Answer::decode(message).map_err(|error| unreadable(name, &error))?;
                Ok((answer, payload))
            }
        }
    }

    /// The node at the other end; all zeros on a local link, which needs no name for itself, and on one that connects when used. Of a link to
    /// whoever leads: the node that was connected to last.
    pub fn node(&self) -> NodeId {
        match &self.route {
            Route::Local(_) => NodeId::default(),
            Route::Remote(remote) => remote.shared.leader.as_ref().map_or(remote.node, Leader::node),
        }
    }

    /// When the node at the other end was last heard, by the clock of the link's settings; while a call waits it is asked for a sign of life each
    /// eighth of `silence_max`. None on a local link.
    pub fn heard(&self) -> Option<Time> {
        match &self.route {
            Route::Local(_) => None,
            Route::Remote(remote) => Some(remote.shared.heard()),
        }
    }

    /// Closes the link for all its clones: calls that wait and calls to come fail with `Unreachable`.
    /// A local link stays.
    pub fn close(&self) {
        if let Route::Remote(remote) = &self.route {
            remote.close();
        }
    }
}

impl Local {
    async fn ask<A: Ask>(&self, ask: &A, payload: Payload, sent: &Sent) -> Result<(A::Answer, Payload)> {
        let (sender, receiver) = oneshot::channel::<LocalAnswer>();
        let respond = Responder::to_local(sender, A::KIND);
        let body = Body::Typed(Box::new(ask.clone()));
        let (kind, session, asker) = (A::KIND, self.session, Asker::Client);
        sent.again();
        let request = request::current();
        self.service.handle(Call { kind, session, asker, number: 0, floor: 0, request, body, payload, respond });
        let answer = receiver.await;
        sent.answered();
        let Ok(answer) = answer else { unreachable!("a responder answers when it is dropped") };
        let (message, payload) = answer?;
        let name = kind_name(A::KIND).unwrap_or("unknown");
        let answer = message.downcast().map_err(|_| unreadable(name, &"it answers another question"))?;
        Ok((*answer, payload))
    }
}

impl Remote {
    async fn ask(&self, kind: u16, message: Bytes, payload: Payload, sent: &Sent) -> Result<(Bytes, Payload)> {
        // Asked for another request it is a part of that; else it is one by itself, and has the number of its call.
        let outer = request::current();
        let number = self.shared.settings.numbers.begin(kind).await;
        let own = RequestId::of(self.shared.settings.session, number.value());
        let request = if outer.is_none() { own } else { outer };
        let slot = self.choose(payload.length());
        match slot.allowance.acquire().await {
            // It comes back with the answer, even if the caller has gone by then.
            Ok(permit) => permit.forget(),
            Err(_) => unreachable!("the allowance is never closed"),
        }
        let (answer, receiver) = oneshot::channel();
        let since = self.shared.settings.clock.now();
        slot.put(Pending {
            number,
            request,
            kind,
            message,
            payload,
            answer,
            since,
            attempts: 0,
            left: false,
            sent: sent.clone(),
        });
        let Ok(answer) = receiver.await else { return Err(self.closed()) };
        // Whoever began the request says to people which it was, and nodes compare what they were told with what they hear later.
        let is_whole = outer.is_none() && self.shared.settings.asker == Asker::Client;
        let (answered, message, payload) =
            answer.map_err(|error| if is_whole { request::named(error, request) } else { error })?;
        if answered != kind {
            return Err(broken(format!("{} answered another question than was asked", self.shared.address())));
        }
        Ok((message, payload))
    }

    /// Large payloads go where the fewest bytes are under way; small calls stay together on the first connection, so that
    /// many share one write, while it is not full and carries no large payloads.
    fn choose(&self, payload: usize) -> &Slot {
        let calls = |slot: &Slot| slot.calls.load(Ordering::Relaxed);
        let bytes = |slot: &Slot| slot.bytes.load(Ordering::Relaxed);
        let first = &self.slots[0];
        let small = payload <= SMALL_PAYLOAD_MAX;
        if small && calls(first) < SMALL_FRAMES_MAX / 2 && bytes(first) < BACKLOG {
            return first;
        }
        let load =
            |slot: &&Arc<Slot>| if small { (bytes(slot) / BACKLOG, calls(slot)) } else { (bytes(slot), calls(slot)) };
        match self.slots.iter().min_by_key(load) {
            Some(slot) => slot,
            None => unreachable!("a link has at least one connection"),
        }
    }

    fn closed(&self) -> Error {
        Error::new(
            ErrorKind::Unreachable,
            format!("the link to {} was closed; whether it was done is not known", self.shared.address()),
        )
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
        let error = self.closed();
        self.slots.iter().for_each(|slot| slot.close(&error));
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.close();
    }
}

/// Payload under way that small calls had rather not wait behind.
const BACKLOG: u64 = 4 << 20;

fn unreadable(name: &str, why: &dyn Display) -> Error {
    Error::new(
        ErrorKind::Protocol,
        format!("the answer to {name} cannot be read: {why}; use the same Stormwell version on both sides"),
    )
}

/// Nothing listens, as far as one can tell.
fn nobody(address: &str, reason: &str) -> Error {
    Error::new(
        ErrorKind::Unreachable,
        format!(
            "no store answers at {address} ({reason}); nothing was sent; start one there with `stormwell serve`, or name another address with --at HOST:PORT"
        ),
    )
}
