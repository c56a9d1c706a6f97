//! The serving side of one connection: greets, grants credit, hands calls to the service.

use super::ServerSettings;
use super::greeting::{Answer, Greeting, Known};
use super::parked::{Parked, Question};
use super::wishes::{Acquiring, Credit, acquiring};
use crate::call::{Body, Call, Holding, Notes, Outlet, Responder, Room, Service, bounded_failure, encode};
use crate::connection::{Moments, Role};
use crate::credit::{Budget, Piece};
use crate::decode::Frame;
use crate::frame::{self, CLOSING, CREDIT, FAILURE, HELLO, Header, PING, PROVE, REPLY, RETURN};
use crate::message::{Ask, Failure, bag, is_for_device, keeper, session};
use crate::outbound::Outbound;
use crate::payload::Payload;
use crate::secret::Asker;
use crate::stats::count;
use base::error::{Error, ErrorKind, Result};
use base::limit::{
    ANSWER_OWN, CONNECTION_IDLE_MAX, CREDIT_IDLE_MAX, FRAME_DEPTH_MAX, FRAME_FIELDS_MAX, FRAME_PAYLOAD_MAX,
    FRAME_RATE_MIN, FRAME_STALL_MAX_PRESSED, HELLO_WAIT_MAX, LARGE_MESSAGE, LONG_QUESTION, SMALL_FRAMES_MAX,
    SMALL_PAYLOAD_MAX, UNWRITTEN_ALL_MAX, UNWRITTEN_MAX, UNWRITTEN_MAX_PRESSED, call_memory,
};
use base::places::{Place, Taken};
use base::protobuf::{Bounds, check};
use base::unit::Time;
use base::watched::Stopped;
use bytes::Bytes;
use prost::Message;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_secs(1);

/// Memory for a large message or payload whose header has come and found none.
enum Awaited {
    Now(Acquiring),
    Over(Piece),
}

/// A call that is here and waits until there is memory to work on it and, if it is long, until it is its turn to be decoded.
struct Held {
    question: Question,
    /// What its answer may take, if that may be large.
    room: Option<Room>,
    admitted: Pin<Box<dyn Future<Output = Admitted> + Send>>,
}

/// Memory to work on a call, and the turn to decode it, if it needs one.
type Admitted = (Piece, Option<OwnedSemaphorePermit>);

/// Decodes long questions one at a time. Without it as many connections as send them at once are always ready to run, and each short
/// question of others waits for a decoding of every one of them, at each step of its way.
pub(super) type DecodeTurns = Arc<Semaphore>;

/// What a serving connection knows.
pub(super) struct Serving {
    outlet: Arc<Outlet>,
    service: Arc<dyn Service>,
    settings: Arc<ServerSettings>,
    turns: DecodeTurns,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    stopping: bool,
    greeting: Greeting,
    place: Place,
    begun: Time,
    /// When a call last came in.
    called: Time,
    credit: Credit,
    /// Its last large payload was of keepers of the metadata: those that come next have their memory.
    keeps: bool,
    awaited: Option<Awaited>,
    /// Where the memory of the frame is from that has begun, if it is large.
    holds: Option<Budget>,
    held: Option<Held>,
    /// Questions that wait for room for their answers, while the connection goes on.
    parked: Parked,
    /// A question has begun to come and is not here.
    comes: bool,
    /// It takes so little of what it is owed that its place may go to others.
    slow: bool,
}

impl Serving {
    pub(super) fn new(
        service: Arc<dyn Service>,
        settings: Arc<ServerSettings>,
        turns: DecodeTurns,
        shutdown: Stopped,
        (place, peer): (Place, String),
    ) -> Serving {
        let (outgoing, all) = (settings.outgoing.clone(), settings.answers.all.clone());
        let notes = Some(Notes { peer, on_request: settings.on_request.clone() });
        let outlet = Arc::new(Outlet::new(outgoing, all, settings.stats.clone(), settings.clock.clone(), notes));
        Serving {
            outlet,
            service,
            called: settings.clock.now(),
            begun: settings.clock.now(),
            settings,
            turns,
            stop: Box::pin(shutdown.until()),
            stopping: false,
            greeting: Greeting::default(),
            place,
            credit: Credit::default(),
            keeps: false,
            awaited: None,
            holds: None,
            held: None,
            parked: Parked::default(),
            comes: false,
            slow: false,
        }
    }

    pub(super) fn outlet(&self) -> Arc<Outlet> {
        self.outlet.clone()
    }

    fn outbound(&self) -> &Outbound {
        &self.outlet.outbound
    }

    fn greet(&mut self, frame: &Frame) -> Result<()> {
        let heard = self.greeting.hear(&frame.message, &self.settings);
        let heard = heard.and_then(|answer| {
            if self.greeting.known().is_some() {
                self.place.prove().map_err(full)?;
            }
            Ok(answer)
        });
        let answer = match heard {
            Ok(answer) => answer,
            Err(error) => {
                let header = Header { kind: HELLO, flags: REPLY | FAILURE, ..Header::default() };
                let failure = bounded_failure(error.clone());
                self.outbound().push(header, |bytes| encode(&failure, bytes), &Payload::empty());
                return Err(error);
            }
        };
        let header = |kind, flags| Header { kind, flags, ..Header::default() };
        match answer {
            Answer::Challenge(challenge) => {
                self.outbound().push(header(PROVE, 0), |bytes| encode(&challenge, bytes), &Payload::empty());
            }
            Answer::Welcome(welcome) => {
                self.outbound().push(header(HELLO, REPLY), |bytes| encode(&welcome, bytes), &Payload::empty());
            }
        }
        Ok(())
    }

    /// A call is here: the service has it as soon as there is room for its answer and memory to work on it, and it is its turn.
    fn call(&mut self, known: Known, frame: Frame) {
        let (kind, question) = (frame.header.kind, Question { known, frame });
        // A pull waits for others to push: what it holds meanwhile must not keep them from it.
        if kind == bag::Pull::KIND {
            if let Some(pull) = self.parked.take_pull(question, &self.outlet, &self.settings.answers) {
                self.hand_over(pull, Holding::default());
            }
        } else if question.answer_max() == 0 {
            self.work_on(question, None);
        } else if let Some((question, room)) = self.parked.take(question, &self.outlet, &self.settings.answers) {
            self.work_on(question, Some(room));
        }
    }

    /// There is room for its answer.
    fn work_on(&mut self, question: Question, room: Option<Room>) {
        let (kind, length) = (question.frame.header.kind, question.frame.message.len());
        let bytes = call_memory(length);
        // It is answered at once and holds nothing; others of nodes wait for what it brings.
        if is_step(&question.known, kind) && length <= LONG_QUESTION {
            return self.hand_over(question, Holding { _call: None, answer: room });
        }
        let urgent = is_urgent(&question.known, kind);
        let calls = match kind {
            _ if urgent => &self.settings.urgent,
            kind if is_for_device(kind) => &self.settings.device_calls,
            _ => &self.settings.calls,
        };
        // Nodes count as silent after seconds, and claims end: what is urgent stands in no line of others.
        let turns = (length > LONG_QUESTION && !urgent).then(|| self.turns.clone());
        match calls.try_acquire(bytes) {
            Some(piece) if turns.is_none() => self.hand_over(question, Holding { _call: Some(piece), answer: room }),
            early => self.held = Some(Held { question, room, admitted: admitted(calls.clone(), bytes, early, turns) }),
        }
    }

    fn hand_over(&mut self, question: Question, holding: Holding) {
        let Question { known: Known { session, asker }, frame } = question;
        let Frame { header: Header { kind, number, floor, request, .. }, message, payload } = frame;
        count(&self.settings.stats.calls, 1);
        let respond = Responder::to_connection(self.outlet.clone(), (kind, number, request), self.called, holding);
        let body = Body::Encoded(message);
        self.service.handle(Call { kind, session, asker, number, floor, request, body, payload, respond });
    }

    /// Memory for the frame whose header is judged: now, or when it is judged again.
    fn memory(&mut self, budget: &Budget, bytes: u64) -> Poll<Piece> {
        if let Some(Awaited::Over(piece)) = self.awaited.take() {
            return Poll::Ready(piece);
        }
        match budget.try_acquire(bytes) {
            Some(piece) => Poll::Ready(piece),
            None => {
                // A wish is not looked at meanwhile, and must not hold what it came to.
                self.credit.let_go();
                self.awaited = Some(Awaited::Now(acquiring(budget, bytes)));
                Poll::Pending
            }
        }
    }

    /// Memory for a payload that comes against the client's credit.
    fn spend(&mut self, bytes: u32) -> Result<Poll<Piece>> {
        let (now, bytes) = (self.settings.clock.now(), u64::from(bytes));
        self.credit.check(bytes)?;
        if self.awaited.is_none()
            && let Some(piece) = self.credit.spend_kept(bytes, now)
        {
            return Ok(Poll::Ready(piece));
        }
        // Who waits for memory holds none that others wait for.
        self.credit.let_go();
        let budget = payloads(&self.settings, self.keeps).clone();
        Ok(self.memory(&budget, bytes).map(|piece| {
            self.credit.spend_promised(bytes);
            piece
        }))
    }

    /// A large payload comes with a question of this kind.
    fn payload_is_of(&mut self, kind: u16) {
        let keeps = self.greeting.known().is_some_and(|known| is_step(&known, kind));
        if keeps != self.keeps {
            // What is kept is of the other memory.
            self.credit.let_go();
            self.keeps = keeps;
        }
    }

    /// Whether it waits for memory, and reads nothing meanwhile.
    fn waits(&self) -> bool {
        self.held.is_some() || self.parked.is_full() || matches!(self.awaited, Some(Awaited::Now(_)))
    }

    /// Whether nothing is under way on it: no question that is worked on or comes, no answer that waits for anybody but its reader. A pull is
    /// nothing: it waits for others, and is asked again over another connection.
    fn is_idle(&self) -> bool {
        let Outlet { unanswered, pulls, .. } = self.outlet.as_ref();
        unanswered.load(Ordering::Relaxed).saturating_sub(pulls.load(Ordering::Relaxed)) == 0
            && (self.slow || self.outbound().backlog() == 0)
            && !self.comes
            && self.held.is_none()
            && self.awaited.is_none()
            && self.parked.is_without_large()
            && self.credit.kept() == 0
    }

    /// Who has said who it is and nothing more rests from the first moment on, whatever of our welcome it has taken.
    fn rest_if_greeted(&mut self) {
        let slow = std::mem::replace(&mut self.slow, true);
        self.rest_if_idle();
        self.slow = slow;
    }

    /// Lets its place go to somebody else who needs one. The links of nodes that have proved that they are some stay: others wait for them.
    fn rest_if_idle(&mut self) {
        let Some(known) = self.greeting.known() else { return };
        let proved = self.settings.credentials.secret.is_some() && matches!(known.asker, Asker::Node { .. });
        if !proved && self.is_idle() {
            self.place.rest();
        }
    }

    /// Looks whether what it waits for is there.
    fn look_for_memory(&mut self, context: &mut Context<'_>) {
        if let Some(Awaited::Now(acquiring)) = &mut self.awaited
            && let Poll::Ready(piece) = acquiring.as_mut().poll(context)
        {
            self.awaited = Some(Awaited::Over(piece));
        }
        if let Some(mut held) = self.held.take() {
            match held.admitted.as_mut().poll(context) {
                // The turn is over when the service has decoded the call.
                Poll::Ready((piece, _turn)) => {
                    self.hand_over(held.question, Holding { _call: Some(piece), answer: held.room });
                }
                Poll::Pending => self.held = Some(held),
            }
        }
        while let Some(pull) = self.parked.next_pull(&self.outlet, &self.settings.answers) {
            self.hand_over(pull, Holding::default());
        }
        while self.held.is_none()
            && let Some((question, room)) = self.parked.next(&self.outlet, &self.settings.answers, context)
        {
            self.work_on(question, Some(room));
        }
        if self.awaited.is_none() {
            let budget = payloads(&self.settings, self.keeps);
            let granted = self.credit.turn(budget, self.settings.clock.now(), context);
            if granted > 0 {
                self.outbound().grant(granted);
            }
        }
    }
}

impl Role for Serving {
    fn admit(&mut self, header: &Header) -> Result<Poll<Option<Piece>>> {
        if self.greeting.known().is_none() {
            return self.greeting.admit(header).map(|()| Poll::Ready(None));
        }
        if header.flags != 0 && header.kind != CLOSING {
            return Err(frame::broken("an answer came to a node that asked nothing"));
        }
        if matches!(header.kind, HELLO | PROVE) {
            return Err(frame::broken("a second greeting"));
        }
        if header.kind < frame::OWN_KINDS {
            if self.outlet.unanswered.load(Ordering::Relaxed) + self.parked.count() >= SMALL_FRAMES_MAX {
                return Err(frame::broken(format!("more than {SMALL_FRAMES_MAX} unanswered calls")));
            }
            self.comes = true;
            self.place.work().map_err(full)?;
        }
        let large = header.payload_length as usize > SMALL_PAYLOAD_MAX;
        let admitted = if header.message_length as usize > LARGE_MESSAGE {
            if large {
                return Err(frame::broken("a large message beside a large payload"));
            }
            let messages = self.settings.messages.clone();
            self.holds = Some(messages.clone());
            self.memory(&messages, header.message_length.into()).map(Some)
        } else if large {
            if header.kind >= frame::OWN_KINDS {
                return Err(frame::broken("a payload beside a message that has none"));
            }
            self.payload_is_of(header.kind);
            self.holds = Some(payloads(&self.settings, self.keeps).clone());
            self.spend(header.payload_length)?.map(Some)
        } else {
            self.holds = None;
            Poll::Ready(None)
        };
        // A header that is judged again wishes once.
        if admitted.is_ready() && header.kind != RETURN && header.credit > 0 {
            self.credit.wish(header.credit)?;
        }
        Ok(admitted)
    }

    fn take(&mut self, frame: Frame) -> Result<()> {
        self.comes = false;
        match (frame.header.kind, self.greeting.known()) {
            (HELLO | PROVE, _) => {
                self.greet(&frame)?;
                self.rest_if_greeted();
                Ok(())
            }
            (PING, _) => {
                let header = Header { kind: PING, flags: REPLY, ..Header::default() };
                self.outbound().push(header, |_| (), &Payload::empty());
                Ok(())
            }
            (CREDIT, _) => Ok(()),
            (RETURN, _) => self.credit.take_back(frame.header.credit),
            (CLOSING, _) => Err(left(&frame.message)),
            (_, Some(known)) => {
                // One that would become much more than it is does not come in good faith: it is not read, and no further one is.
                check(&frame.message, Bounds { fields: FRAME_FIELDS_MAX, depth: FRAME_DEPTH_MAX })?;
                self.called = self.settings.clock.now();
                if frame.payload.length() > SMALL_PAYLOAD_MAX {
                    self.credit.arrived(frame.payload.length() as u64);
                }
                self.call(known, frame);
                Ok(())
            }
            (_, None) => Err(frame::broken("the first frame must be a greeting")),
        }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Result<bool> {
        // Else when the time is looked at: a place costs a lock.
        if self.settings.places.is_scarce() {
            self.rest_if_idle();
        }
        if let Poll::Ready(taken) = self.place.poll_leave(context) {
            return Err(full(taken));
        }
        self.look_for_memory(context);
        if !self.stopping && self.stop.as_mut().poll(context).is_ready() {
            self.stopping = true;
        }
        // What is decided by how much is unanswered or unwritten is decided here: nobody else may write the last of it unnoticed.
        let waits = self.stopping || self.parked.count() > 0 || self.settings.places.is_scarce() || !self.may_read();
        self.outbound().await_answers(waits);
        let finished = self.stopping && self.outlet.unanswered.load(Ordering::Acquire) == 0;
        Ok(!finished)
    }

    fn may_read(&self) -> bool {
        let unwritten = self.outbound().backlog();
        let all = || self.outbound().backlog_of_all();
        let takes = unwritten < UNWRITTEN_MAX && (unwritten < UNWRITTEN_MAX_PRESSED || all() < UNWRITTEN_ALL_MAX);
        takes && !self.stopping && !self.waits()
    }

    fn tick(&mut self, moments: &Moments) -> Result<()> {
        let Moments { now, heard, stuck_since, owed, owes_payload, frame, come } = *moments;
        let silence_max = self.settings.silence_max;
        if self.greeting.known().is_none() && now.since(self.begun) >= HELLO_WAIT_MAX {
            return Err(frame::broken(format!("no greeting within {} s", HELLO_WAIT_MAX.as_secs())));
        }
        if stuck_since.is_some_and(|since| now.since(since) >= silence_max) {
            return Err(gone(format!("it took no bytes for {} s", silence_max.as_secs())));
        }
        if let Some((since, bytes)) = frame
            && now.since(since) >= silence_max + Duration::from_secs(bytes / FRAME_RATE_MIN)
        {
            return Err(gone(format!("a frame of {bytes} bytes was not there after {} s", now.since(since).as_secs())));
        }
        if let Some((since, bytes)) = frame
            && bytes > LARGE_MESSAGE as u64
            && self.holds.as_ref().is_some_and(Budget::is_short)
            && (now.since(heard) >= FRAME_STALL_MAX_PRESSED
                // What has come counts, not what is to come: a byte now and then does not keep the memory of the whole.
                || now.since(since) >= FRAME_STALL_MAX_PRESSED + Duration::from_secs(come / FRAME_RATE_MIN))
        {
            return Err(busy(format!(
                "a frame of {bytes} bytes was not there after {} s, and others wait for the memory that it holds; try again",
                now.since(since).as_secs()
            )));
        }
        self.slow = owed.is_some_and(|(since, taken)| {
            now.since(since) >= FRAME_STALL_MAX_PRESSED + Duration::from_secs(taken / FRAME_RATE_MIN)
        });
        let short = |known: Known| self.settings.answers.is_short(&known.asker);
        let holds_message = self.outlet.owed() > ANSWER_OWN && self.greeting.known().is_some_and(short);
        // Nobody waits for payload in a line: devices look again.
        let holds_payload = owes_payload && self.settings.outgoing.available() < FRAME_PAYLOAD_MAX as u64;
        if self.slow && (holds_message || holds_payload) {
            return Err(busy(
                "its answers were not taken, and others wait for the memory that they hold; try again".into(),
            ));
        }
        // Credit stays good without memory kept for it: what comes against it waits for memory then.
        let idle_max = if payloads(&self.settings, self.keeps).is_short() { CREDIT_IDLE_MAX } else { silence_max };
        if self.credit.unused(now) >= idle_max {
            self.credit.withdraw();
        }
        if self.waits() {
            // The client's own question whether we are there waits unread.
            let header = Header { kind: PING, flags: REPLY, ..Header::default() };
            self.outbound().push(header, |_| (), &Payload::empty());
        }
        let owes = frame.is_some() || self.credit.kept() > 0;
        if owes && self.may_read() && now.since(heard) >= silence_max {
            return Err(gone(format!(
                "nothing came for {} s while it held credit or a frame was unfinished",
                silence_max.as_secs()
            )));
        }
        self.rest_if_idle();
        let idle = self.outlet.unanswered.load(Ordering::Relaxed) == 0;
        if idle && now.since(self.called) >= CONNECTION_IDLE_MAX {
            self.stopping = true;
        }
        Ok(())
    }

    fn tick_every(&self) -> Duration {
        TICK.min(self.settings.silence_max / 4)
    }
}

/// Waits for memory, unless it is there, then for the turn: who has one does not wait for memory.
fn admitted(
    calls: Budget,
    bytes: u64,
    early: Option<Piece>,
    turns: Option<DecodeTurns>,
) -> Pin<Box<dyn Future<Output = Admitted> + Send>> {
    Box::pin(async move {
        let piece = match early {
            Some(piece) => piece,
            None => calls.acquire(bytes).await,
        };
        match turns {
            // It is never closed.
            Some(turns) => (piece, turns.acquire_owned().await.ok()),
            None => (piece, None),
        }
    })
}

/// Whether questions of others may wait for this one to be answered, so that it must not wait for their memory: those of nodes, which speak
/// for whoever asked them, and those that keep a client's claims alive or make room.
fn is_urgent(known: &Known, kind: u16) -> bool {
    matches!(known.asker, Asker::Node { .. })
        || [bag::Acknowledge::KIND, bag::RenewGrants::KIND, session::Renew::KIND].contains(&kind)
}

/// Where the memory of large payloads is from.
fn payloads(settings: &ServerSettings, keeps: bool) -> &Budget {
    if keeps { &settings.keepers } else { &settings.budget }
}

/// Whether a keeper of the metadata tells another one something.
fn is_step(known: &Known, kind: u16) -> bool {
    kind == keeper::Step::KIND && matches!(known.asker, Asker::Node { .. })
}

/// Longest part of a client's last words that is repeated to people.
const LAST_WORDS_SHOWN: usize = 300;

/// The client closed the connection and said why, in words of which it chose every byte.
fn left(message: &Bytes) -> Error {
    let words = Failure::decode(message.clone()).map(|failure| failure.text).unwrap_or_default();
    let words: String = words.chars().take(LAST_WORDS_SHOWN).flat_map(char::escape_debug).collect();
    Error::new(ErrorKind::Io, format!("the client closed the connection and said: {words}"))
}

fn full(taken: Taken) -> Error {
    busy(taken.to_string())
}

fn busy(text: String) -> Error {
    Error::new(ErrorKind::Busy, text)
}

fn gone(text: String) -> Error {
    Error::new(ErrorKind::Unreachable, text)
}
