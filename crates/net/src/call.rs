//! The serving side as a service sees it: a call comes in, an answer goes out, from whatever thread has it.

use crate::cork;
use crate::credit::{Budget, Piece};
use crate::frame::{FAILURE, Header, REPLY};
use crate::message::{Ask, Failure, bag, kind_name};
use crate::outbound::Outbound;
use crate::payload::Payload;
use crate::secret::Asker;
use crate::stats::{NetStats, count};
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{RequestId, SessionId};
use base::limit::{FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX};
use base::request::{self, Notable, Noting};
use base::unit::Time;
use bytes::Bytes;
use prost::Message;
use std::any::Any;
use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// Whoever answers calls.
pub trait Service: Send + Sync {
    /// Takes a call. Runs on the connection's task: it never blocks; it may spawn or hand the call to a device thread.
    fn handle(&self, call: Call);
}

/// A question from a client.
pub struct Call {
    /// `Ask::KIND` of the question.
    pub kind: u16,
    /// Who asks.
    pub session: SessionId,
    /// What kind of program asks, as it has said; if the node has a secret, one that knows it.
    pub asker: Asker,
    /// Unique within the session; the same when a call is asked again because its answer did not arrive. 0: it is never asked again.
    pub number: u64,
    /// No change of the session with a lower number is asked again: what was answered to those need not be remembered. 0: unknown.
    pub floor: u64,
    /// What the request is known by on all nodes: what is asked of others for it carries the same (`base::request`).
    pub request: RequestId,
    /// What is asked.
    pub body: Body,
    /// The bytes beside it. Their checksum is not verified yet.
    pub payload: Payload,
    /// Where the answer goes.
    pub respond: Responder,
}

/// What is asked, in the form in which it came.
#[derive(Debug)]
pub enum Body {
    /// Over a connection: the encoded message. What may be in it was counted when it came.
    Encoded(Bytes),
    /// Over a local link: the message itself.
    Typed(Box<dyn Any + Send + Sync>),
    /// It was taken out.
    Taken,
}

impl Call {
    /// Takes the question out, which is done once. `Protocol` if it is none of this type.
    pub fn ask<A: Ask>(&mut self) -> Result<A> {
        match std::mem::replace(&mut self.body, Body::Taken) {
            Body::Encoded(message) => A::decode(message).map_err(|error| self.unreadable(&error)),
            Body::Typed(message) => {
                message.downcast().map(|ask| *ask).map_err(|_| self.unreadable(&"it is another message"))
            }
            Body::Taken => unreachable!("who takes a question out keeps it"),
        }
    }

    fn unreadable(&self, why: &dyn Display) -> Error {
        let name = kind_name(self.kind).unwrap_or("unknown");
        Error::new(
            ErrorKind::Protocol,
            format!(
                "the question {name} cannot be read: {why}; nothing was done; use the same Stormwell version on both sides"
            ),
        )
    }
}

/// An answer as it travels on a local link: the message itself.
pub(crate) type LocalAnswer = Result<(Box<dyn Any + Send>, Payload)>;

/// The server's end of a connection that answers go to.
pub(crate) struct Outlet {
    pub(crate) outbound: Outbound,
    /// Calls that were handed to the service and are not answered yet.
    pub(crate) unanswered: AtomicUsize,
    /// How many of them are pulls.
    pub(crate) pulls: AtomicUsize,
    /// Bytes of large answers that are being made, as far as is known.
    promised: AtomicUsize,
    /// Bounds the payload of answers that wait to be written.
    pub(crate) outgoing: Budget,
    all: AllAnswers,
    stats: Arc<NetStats>,
    clock: Arc<dyn Clock>,
    /// Who is told of requests that are worth a line; nobody on the asking side.
    notes: Option<Notes>,
}

/// Who is told of requests, and who asks them.
pub(crate) struct Notes {
    /// `host:port`.
    pub(crate) peer: String,
    pub(crate) on_request: Arc<Noting>,
}

/// What the connections of a server count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllAnswers {
    /// Bytes that wait to be written.
    pub(crate) unwritten: Arc<AtomicUsize>,
    /// Pulls that are not answered, of connections that have ended, too.
    pub(crate) pulls: Arc<AtomicUsize>,
}

/// What a large answer may take.
pub(crate) struct Room {
    /// Bytes at the most.
    pub(crate) bytes: usize,
    /// The memory; none if it is the connection's own.
    pub(crate) piece: Option<Piece>,
}

/// What a call takes of a server until its answer is written.
#[derive(Default)]
pub(crate) struct Holding {
    /// What the question takes in memory, in whatever form: given back when it is answered.
    pub(crate) _call: Option<Piece>,
    /// What the answer may take, if it may be large.
    pub(crate) answer: Option<Room>,
}

impl Outlet {
    pub(crate) fn new(
        outgoing: Budget,
        all: AllAnswers,
        stats: Arc<NetStats>,
        clock: Arc<dyn Clock>,
        notes: Option<Notes>,
    ) -> Outlet {
        Outlet {
            outbound: Outbound::new(all.unwritten.clone()),
            unanswered: AtomicUsize::new(0),
            pulls: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            outgoing,
            all,
            stats,
            clock,
            notes,
        }
    }

    /// Bytes of answers that are made for this connection, or wait to be written to it.
    pub(crate) fn owed(&self) -> usize {
        self.promised.load(Ordering::Relaxed) + self.outbound.backlog()
    }

    /// Queues an answer. The counts fall while the queue is locked: not after the client may ask again, and not before
    /// a connection that is ending can see that there is something to write. A pull's own fall first, and whether anybody is there or not.
    /// How long the call took.
    fn answered<M: Message>(
        self: &Arc<Self>,
        started: Time,
        header: Header,
        message: &M,
        payload: &Payload,
        room: Option<Room>,
    ) -> Duration {
        let took = self.clock.now().since(started);
        self.stats.answers.add(header.kind, header.flags & FAILURE != 0, took);
        if header.kind == bag::Pull::KIND {
            self.pulls.fetch_sub(1, Ordering::Relaxed);
            self.all.pulls.fetch_sub(1, Ordering::Relaxed);
        }
        let (promised, piece) = room.map_or((0, None), |room| (room.bytes, room.piece));
        let encode = |bytes: &mut Vec<u8>| {
            self.promised.fetch_sub(promised, Ordering::Relaxed);
            self.unanswered.fetch_sub(1, Ordering::Release);
            encode(message, bytes);
        };
        self.outbound.push_holding(header, encode, payload, piece, || cork::leave(self));
        took
    }

    /// Tells of an answered request if it is worth a line. A pull waits for others, however long it takes.
    fn note(&self, kind: u16, request: RequestId, took: Duration, error: Option<&Error>) {
        let slow = request::is_slow(took) && kind != bag::Pull::KIND;
        if let Some(notes) = &self.notes
            && (slow || error.is_some())
        {
            let what = kind_name(kind).unwrap_or("unknown");
            let (took, error) = (Some(took), error.map(Error::text));
            (notes.on_request)(&Notable { request, what, from: &notes.peer, took, error });
        }
    }

    /// Writes what waits, if the connection's task sleeps (`cork`).
    pub(crate) fn write_at_once(&self) {
        let bytes = self.outbound.write_at_once();
        count(&self.stats.bytes_out, bytes as u64);
    }
}

enum Target {
    Connection(Arc<Outlet>),
    Local(oneshot::Sender<LocalAnswer>),
}

/// Answers one call, once, from any thread. Dropped without an answer it answers with an error, so no caller waits for ever.
pub struct Responder {
    target: Option<Target>,
    kind: u16,
    number: u64,
    request: RequestId,
    /// When the call came.
    started: Time,
    holding: Holding,
}

impl Responder {
    pub(crate) fn to_connection(
        outlet: Arc<Outlet>,
        (kind, number, request): (u16, u64, RequestId),
        started: Time,
        holding: Holding,
    ) -> Responder {
        outlet.unanswered.fetch_add(1, Ordering::Relaxed);
        if kind == bag::Pull::KIND {
            outlet.pulls.fetch_add(1, Ordering::Relaxed);
            outlet.all.pulls.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(room) = &holding.answer {
            outlet.promised.fetch_add(room.bytes, Ordering::Relaxed);
        }
        Responder { target: Some(Target::Connection(outlet)), kind, number, request, started, holding }
    }

    pub(crate) fn to_local(sender: oneshot::Sender<LocalAnswer>, kind: u16) -> Responder {
        Responder {
            target: Some(Target::Local(sender)),
            kind,
            number: 0,
            request: RequestId::NONE,
            started: Time::ZERO,
            holding: Holding::default(),
        }
    }

    /// Answers. Cheap: encodes into the connection's queue and wakes its task at most once a burst; on a local link it hands the message
    /// over. An answer that does not fit in a frame becomes an error on either.
    pub fn answer<M: Message + 'static>(mut self, message: M, payload: Payload) {
        let length = message.encoded_len();
        if length > FRAME_MESSAGE_MAX || payload.length() > FRAME_PAYLOAD_MAX {
            return self.fail(Error::new(
                ErrorKind::Io,
                format!(
                    "the answer does not fit in a frame ({length} bytes of message, {} of payload); this is a fault in Stormwell; ask for less at once",
                    payload.length()
                ),
            ));
        }
        match self.target.take() {
            Some(Target::Connection(outlet)) => {
                let header = Header { kind: self.kind, flags: REPLY, number: self.number, ..Header::default() };
                let took = outlet.answered(self.started, header, &message, &payload, self.holding.answer.take());
                outlet.note(self.kind, self.request, took, None);
            }
            // The caller may have stopped waiting: nobody minds.
            Some(Target::Local(sender)) => drop(sender.send(Ok((Box::new(message), payload)))),
            None => unreachable!("answering takes the responder"),
        }
    }

    /// Answers with an error.
    pub fn fail(mut self, error: Error) {
        self.send_failure(error);
    }

    fn send_failure(&mut self, error: Error) {
        match self.target.take() {
            Some(Target::Connection(outlet)) => {
                let header =
                    Header { kind: self.kind, flags: REPLY | FAILURE, number: self.number, ..Header::default() };
                let noted = request::is_failure(error.kind()).then(|| error.clone());
                let (failure, room) = (bounded_failure(error), self.holding.answer.take());
                let took = outlet.answered(self.started, header, &failure, &Payload::empty(), room);
                outlet.note(self.kind, self.request, took, noted.as_ref());
            }
            Some(Target::Local(sender)) => drop(sender.send(Err(error))),
            None => (),
        }
    }

    /// Bytes that the answer's message should have at the most, where it may as well have fewer entries (`message::is_page`).
    pub fn room(&self) -> usize {
        self.holding.answer.as_ref().map_or(FRAME_MESSAGE_MAX, |room| room.bytes)
    }

    /// The node's budget for payload of answers that are not written to a socket yet. Acquire a piece before reading from a
    /// device and attach it with `Payload::with_piece`. On a local link nothing waits for a socket, and the budget is without bound.
    pub fn outgoing_budget(&self) -> &Budget {
        static WITHOUT_BOUND: OnceLock<Budget> = OnceLock::new();
        match &self.target {
            Some(Target::Connection(outlet)) => &outlet.outgoing,
            _ => WITHOUT_BOUND.get_or_init(|| Budget::new(u64::MAX)),
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.target.is_some() {
            let name = kind_name(self.kind).unwrap_or("unknown");
            self.send_failure(Error::new(
                ErrorKind::Io,
                format!("the node gave up on {name} without an answer; whether it was done is not known; this is a fault in Stormwell: look at what `stormwell serve` printed, and ask again"),
            ));
        }
    }
}

/// Appends the encoded message.
pub(crate) fn encode<M: Message>(message: &M, bytes: &mut Vec<u8>) {
    if message.encode(bytes).is_err() {
        unreachable!("a Vec grows as it must");
    }
}

/// The error as a message that fits in a frame whatever its text.
pub(crate) fn bounded_failure(error: Error) -> Failure {
    const TEXT_MAX: usize = 16 << 10;
    let mut failure = Failure::from(error);
    if failure.text.len() > TEXT_MAX {
        let cut = (0..=TEXT_MAX).rev().find(|at| failure.text.is_char_boundary(*at)).unwrap_or(0);
        failure.text.truncate(cut);
    }
    failure
}
