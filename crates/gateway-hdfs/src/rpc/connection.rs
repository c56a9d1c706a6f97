//! One connection that carries calls: one task reads frames, works on calls and writes answers, as many at once as there are.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::memory::is_too_slow;
use crate::message::rpc::{
    AUTHENTICATION_NONE, AUTHENTICATION_SASL, CALL_CONTEXT, CALL_PING, CALL_SASL, CALL_UNKNOWN, CallHeader,
    ConnectionContext, FATAL_DESERIALIZING, FATAL_INVALID_HEADER, FATAL_UNAUTHORIZED, FATAL_UNKNOWN,
    FATAL_VERSION_MISMATCH, KIND_PROTOCOL_BUFFER, MAGIC, OPERATION_FINAL, RequestHeader, SASL_NEGOTIATE, Sasl, VERSION,
};
use crate::refusal::{ACCESS_CONTROL, RETRIABLE, RPC_SERVER, Refusal, VERSION_MISMATCH};
use crate::rpc::budget::{self, Each, Share, Small};
use crate::rpc::calls::Calls;
use crate::rpc::dispatch;
use crate::rpc::frame::{self, Front, LENGTH_BYTES};
use crate::rpc::methods::Method;
use crate::rpc::outgoing::{Done, Outgoing, Wrote};
use crate::ticket::{IDLE_MAX_CROWDED, Ticket};
use base::burst::{Burst, KEPT_TURNS};
use base::id::RequestId;
use base::limit::{
    CONNECTION_IDLE_MAX, HDFS_BACKLOG_MAX, HDFS_BACKLOG_MAX_PRESSED, HDFS_CALL_MAX, HDFS_CONTEXT_MAX, HDFS_LARGE_CALL,
    HELLO_WAIT_MAX, USER_NAME_MAX,
};
use base::net::Stream;
use base::permission::SUPERUSERS_GROUP;
use base::places::Taken;
use base::request::{Notable, is_slow, within};
use base::unit::Time;
use base::watched::Stopped;
use bytes::Bytes;
use client::User;
use prost::Message;
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Sleep, sleep};

/// Bytes that one read takes. They lie on the stack, so that a connection without calls holds no memory for them.
const READ_AT_ONCE: usize = 16 << 10;

/// Turns of reading and writing before other tasks of the runtime get theirs.
const TURNS: usize = 16;

/// How often a connection is looked at whose other side has something to do in time.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A client that has said that it sends nothing more, and of which nothing was heard and that took nothing for so long, is taken to be gone:
/// a closed program looks the same, and its calls that change nothing would go on for nobody.
const GONE_AFTER: Duration = Duration::from_secs(10);

/// How long the groups of a connection's user are believed. The lists of the system are read once a minute.
const GROUPS_BELIEVED: Duration = Duration::from_secs(10);

/// Length of what a connection begins with: the magic, a version, a class of service, how users prove who they are.
pub const PREAMBLE_LENGTH: usize = 7;

/// A future that a connection waits for beside its stream.
type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a call needs before it is taken: to be read, if it is large, and for its answer.
type CallMemory = (Option<OwnedSemaphorePermit>, Option<Small>);

/// What a connection expects next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its first seven bytes.
    Preamble,
    /// The wish to prove something.
    Sasl,
    /// Who calls.
    Context,
    /// Calls.
    Calls,
}

/// Why the connection ends although the client goes on: told to it before.
struct Fatal {
    call: i32,
    refusal: Refusal,
    detail: i32,
}

impl Fatal {
    fn new(call: i32, detail: i32, text: impl Into<String>) -> Fatal {
        Fatal { call, refusal: Refusal::new(RPC_SERVER, text), detail }
    }
}

/// A connection that carries calls.
pub struct Connection {
    gateway: Arc<Gateway>,
    stream: Box<dyn Stream>,
    stage: Stage,
    /// Who calls, once it is known. Client and number are filled in for each call.
    caller: Option<Caller>,
    /// When the caller's groups were looked up.
    grouped: Time,
    calls: Calls<Done>,
    /// Its place among all connections, and what its calls may have of the memory for answers.
    place: Ticket,
    each: Each,
    /// What arrived and was not taken yet.
    input: Vec<u8>,
    /// Since when a frame is there in part.
    part_since: Option<Time>,
    output: Outgoing,
    /// Memory to read a large call.
    large: Option<OwnedSemaphorePermit>,
    /// Memory for the next call's answer.
    small: Option<Small>,
    /// The wait for one of them.
    wait: Option<Wait>,
    stop: Waiting<()>,
    /// Nothing more arrives.
    ended: bool,
    /// Nothing more is taken; the connection ends when what was begun is answered.
    ending: bool,
    /// The other side takes no more bytes.
    deaf: bool,
    /// The end was not asked for by the client: it is waited for a little, so that it learns the reason.
    linger: bool,
    /// When it was taken, and when bytes last came or went.
    accepted: Time,
    heard: Time,
    timer: Pin<Box<Sleep>>,
    /// Whether the timer ends soon.
    looks: bool,
}

/// Memory that is waited for.
enum Wait {
    /// Of a large call.
    Call(Waiting<OwnedSemaphorePermit>),
    /// Of the answer to the next one.
    Answer(Waiting<Small>),
}

impl Connection {
    /// A connection that was taken at `accepted`, whose first bytes, `begun`, were read already. It ends when `stop` comes.
    pub fn new(
        gateway: Arc<Gateway>,
        stream: Box<dyn Stream>,
        (accepted, place): (Time, Ticket),
        begun: Vec<u8>,
        stop: Stopped,
    ) -> Connection {
        Connection {
            heard: gateway.clock.now(),
            gateway,
            stream,
            stage: Stage::Preamble,
            caller: None,
            grouped: accepted,
            calls: Calls::default(),
            place,
            each: Each::default(),
            input: begun,
            part_since: None,
            output: Outgoing::default(),
            large: None,
            small: None,
            wait: None,
            stop: Box::pin(stop.until()),
            ended: false,
            ending: false,
            deaf: false,
            linger: false,
            accepted,
            timer: Box::pin(sleep(LOOK_EVERY)),
            looks: true,
        }
    }

    /// Serves until the client goes, a rule is broken or the node stops. Calls that were begun are finished in any case:
    /// a change of several steps must not stay half done.
    pub async fn run(mut self) {
        poll_fn(|context| self.poll(context)).await;
        if self.linger && !self.deaf {
            crate::listener::linger(&mut self.stream).await;
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut kept = 0;
        for _ in 0..TURNS {
            let output = &mut self.output;
            // What comes together is asked together.
            let burst = Burst::begin();
            self.calls.turn(|done| output.answered(done));
            let read = self.read(context);
            kept += usize::from(burst.end());
            // Behind reading, so that all answers of this turn leave together.
            let wrote = self.write(context);
            if !self.looks && self.is_watched() {
                self.looks = true;
                self.timer.set(sleep(LOOK_EVERY));
            }
            while self.timer.as_mut().poll(context).is_ready() {
                self.look_at_time();
            }
            if !self.ending && self.stop.as_mut().poll(context).is_ready() {
                (self.ending, self.linger) = (true, true);
            }
            if self.stage == Stage::Calls && !self.is_resting() {
                self.work();
            } else if !self.ending {
                self.place.rest();
                // What came in this turn is looked at first: it may say who it is, or be a call.
                if !read && let Poll::Ready(taken) = self.place.poll_leave(context) {
                    self.leave(&taken);
                    continue;
                }
            }
            if self.ending {
                // No further call begins.
                (self.wait, self.large, self.small) = (None, None, None);
            }
            if self.deaf {
                self.calls.forget_unchanged();
            }
            if self.ending && self.calls.len() == 0 && (self.deaf || self.output.is_empty()) {
                return Poll::Ready(());
            }
            if !read && !wrote && self.calls.sleep(context) {
                return Poll::Pending;
            }
            if kept >= KEPT_TURNS {
                break;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Whether nothing is under way that would be lost if the connection ended: a client makes another one for its next call.
    fn is_resting(&self) -> bool {
        self.calls.len() == 0 && !self.output.is_waiting() && self.wait.is_none() && self.large.is_none()
    }

    /// Something is under way. If its place was given away before that, the connection ends behind it.
    fn work(&mut self) {
        self.ending |= self.place.work().is_err();
    }

    /// Its place is given to a newcomer, and not kept for last words to arrive. One that rests just ends, as those do that are idle for long:
    /// a word that answers no call would be an error to its client.
    fn leave(&mut self, taken: &Taken) {
        if self.stage == Stage::Calls {
            (self.ending, self.deaf) = (true, true);
            return;
        }
        let refusal = Refusal::new(RETRIABLE, taken.to_string());
        self.end_because(&Fatal { call: CALL_UNKNOWN, refusal, detail: FATAL_UNKNOWN });
        self.linger = false;
    }

    /// Whether the other side has something to do in time: to say who it is, to send the rest of a frame, to take answers.
    fn is_watched(&self) -> bool {
        self.stage != Stage::Calls || self.part_since.is_some() || self.output.is_waiting() || self.ended
    }

    /// The other side has had its time, or nothing came or went for long: it is gone, or might as well be.
    fn look_at_time(&mut self) {
        let now = self.gateway.clock.now();
        let silence = now.since(self.heard);
        let rpc = &self.gateway.rpc;
        if !self.may_take() {
            // What is not read cannot come.
            self.part_since = self.part_since.map(|_| now);
        }
        let part = self.part_since.filter(|since| {
            is_too_slow(now.since(*since), self.input.len() as u64, self.large.is_some() && rpc.large.is_wanted())
        });
        let unnamed = self.stage != Stage::Calls && now.since(self.accepted) >= HELLO_WAIT_MAX;
        let idle_max = if self.place.is_crowded() { IDLE_MAX_CROWDED } else { CONNECTION_IDLE_MAX };
        let silent = silence >= idle_max && self.calls.len() == 0;
        if unnamed || silent || self.output.is_too_slow(now, rpc.budget.is_wanted()) {
            (self.ending, self.deaf) = (true, true);
        } else if part.is_some() && !self.ending {
            let text = format!("the rest of a call did not come: {} bytes of it are there", self.input.len());
            self.end_because(&Fatal::new(CALL_UNKNOWN, FATAL_DESERIALIZING, text));
        }
        if self.ended && silence >= GONE_AFTER {
            self.calls.forget_unchanged();
        }
        self.looks = self.is_watched();
        self.timer.set(sleep(if self.looks { LOOK_EVERY } else { HELLO_WAIT_MAX }));
    }

    /// Whether more may be taken now. If not, an answer that leaves or a call that ends comes first.
    fn may_take(&self) -> bool {
        // Whoever has more than a few calls under way leaves what is free to those who wait.
        let wanted = self.gateway.rpc.budget.small.is_wanted();
        let backlog = if wanted { HDFS_BACKLOG_MAX_PRESSED } else { HDFS_BACKLOG_MAX };
        !self.ending && self.wait.is_none() && self.calls.has_room() && self.output.held() < backlog
    }

    /// One read, and what it completes. True if something happened.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        match &mut self.wait {
            Some(Wait::Call(wait)) => {
                let Poll::Ready(permit) = wait.as_mut().poll(context) else { return false };
                self.large = Some(permit);
            }
            Some(Wait::Answer(wait)) => {
                let Poll::Ready(small) = wait.as_mut().poll(context) else { return false };
                self.small = Some(small);
            }
            None => (),
        }
        self.wait = None;
        if self.may_take() && self.take_waiting() {
            return true;
        }
        if !self.may_take() {
            return self.wait.is_some();
        }
        if self.ended {
            self.ending = true;
            return true;
        }
        let mut room = [const { MaybeUninit::<u8>::uninit() }; READ_AT_ONCE];
        let mut space = ReadBuf::uninit(&mut room);
        match Pin::new(&mut self.stream).poll_read(context, &mut space) {
            Poll::Pending => return false,
            Poll::Ready(Err(_)) => (self.ending, self.deaf) = (true, true),
            // Half of a connection may be closed: answers to what was asked before still go out.
            Poll::Ready(Ok(())) if space.filled().is_empty() => self.ended = true,
            Poll::Ready(Ok(())) => {
                self.heard = self.gateway.clock.now();
                let arrived = space.filled();
                let taken = if self.input.is_empty() { self.take(arrived) } else { 0 };
                self.input.extend_from_slice(&arrived[taken..]);
            }
        }
        true
    }

    /// Takes what arrived before and was not taken. True if that was something.
    fn take_waiting(&mut self) -> bool {
        if self.input.is_empty() {
            return false;
        }
        let mut input = std::mem::take(&mut self.input);
        let taken = self.take(&input);
        if taken < input.len() {
            input.drain(..taken);
            self.input = input;
        }
        taken > 0
    }

    /// Takes whole frames off the front of what arrived, as long as there is room for their calls. How many bytes.
    fn take(&mut self, arrived: &[u8]) -> usize {
        let mut taken = 0;
        while self.may_take() {
            let rest = &arrived[taken..];
            let done = match self.stage {
                Stage::Preamble => self.take_preamble(rest),
                Stage::Sasl | Stage::Context | Stage::Calls => self.take_frame(rest),
            };
            match done {
                Ok(0) => break,
                Ok(length) => taken += length,
                Err(fatal) => {
                    self.end_because(&fatal);
                    break;
                }
            }
        }
        taken
    }

    fn take_preamble(&mut self, rest: &[u8]) -> Result<usize, Fatal> {
        let mismatch = |said: &str| Fatal {
            call: CALL_UNKNOWN,
            refusal: Refusal::new(
                VERSION_MISMATCH,
                format!("Server IPC version {VERSION} cannot communicate with {said}"),
            ),
            detail: FATAL_VERSION_MISMATCH,
        };
        if rest.first_chunk().is_some_and(|magic| *magic != MAGIC) {
            return Err(mismatch("a client of another protocol"));
        }
        let Some([_, _, _, _, version, _class, authentication]) = rest.first_chunk::<PREAMBLE_LENGTH>() else {
            return Ok(0);
        };
        if *version != VERSION {
            return Err(mismatch(&format!("client version {version}")));
        }
        self.stage = match *authentication {
            AUTHENTICATION_NONE => Stage::Context,
            AUTHENTICATION_SASL => Stage::Sasl,
            other => return Err(mismatch(&format!("a client that proves who it is by way {other}"))),
        };
        Ok(PREAMBLE_LENGTH)
    }

    fn take_frame(&mut self, rest: &[u8]) -> Result<usize, Fatal> {
        let most = if self.stage == Stage::Calls { HDFS_CALL_MAX } else { HDFS_CONTEXT_MAX };
        match frame::front(rest, most) {
            Front::Nothing => Ok(0),
            Front::Part(length) => {
                if self.part_since.is_none() {
                    self.part_since = Some(self.gateway.clock.now());
                }
                // Only one of which something came holds memory.
                if length > HDFS_LARGE_CALL && rest.len() >= HDFS_LARGE_CALL && self.large.is_none() {
                    self.wait = Some(Wait::Call(Box::pin(self.gateway.rpc.large.clone().take(length))));
                }
                Ok(0)
            }
            Front::Whole(length) => {
                if self.stage == Stage::Calls && !self.has_memory(length) {
                    return Ok(0);
                }
                self.part_since = None;
                // Its own memory: a slice of a larger buffer would keep all of that for as long as the call takes.
                let content = Bytes::copy_from_slice(&rest[LENGTH_BYTES..length]);
                // What begins no call gives both back.
                let memory = (self.large.take(), self.small.take());
                self.take_content(content, memory).map(|()| length)
            }
            Front::TooLong(length) => {
                let text = format!("a frame of {length} bytes; the most is {most}. Nothing of it was done");
                Err(Fatal::new(CALL_UNKNOWN, FATAL_DESERIALIZING, text))
            }
        }
    }

    /// Whether there is memory to begin a call of this length; if not it is waited for.
    fn has_memory(&mut self, length: usize) -> bool {
        let wanted = budget::before(length);
        if self.small.as_ref().is_some_and(|held| held.bytes() >= wanted) {
            return true;
        }
        let budget = &self.gateway.rpc.budget;
        self.small = self.each.now(budget, wanted);
        if self.small.is_none() {
            self.wait = Some(Wait::Answer(Box::pin(self.each.clone().take(budget.clone(), wanted))));
        }
        self.small.is_some()
    }

    fn take_content(&mut self, mut content: Bytes, memory: CallMemory) -> Result<(), Fatal> {
        let unreadable = |call, what: &str| {
            Fatal::new(call, FATAL_DESERIALIZING, format!("{what} cannot be read. Nothing was done"))
        };
        let header = frame::take_delimited(&mut content).and_then(|header| RequestHeader::decode(header).ok());
        let header = header.ok_or_else(|| unreadable(CALL_UNKNOWN, "the header of a frame"))?;
        let call = header.call;
        if header.kind != Some(KIND_PROTOCOL_BUFFER) || header.operation != Some(OPERATION_FINAL) {
            let text = format!(
                "a frame of kind {:?} and operation {:?} is none of Hadoop's calls",
                header.kind, header.operation
            );
            return Err(Fatal::new(call, FATAL_INVALID_HEADER, text));
        }
        match call {
            CALL_PING => Ok(()),
            CALL_SASL if self.stage == Stage::Sasl => {
                let sasl = frame::take_delimited(&mut content).and_then(|sasl| Sasl::decode(sasl).ok());
                if sasl.is_none_or(|sasl| sasl.state != SASL_NEGOTIATE) {
                    let text = "this server knows simple authentication only";
                    return Err(Fatal {
                        refusal: Refusal::new(ACCESS_CONTROL, text),
                        ..Fatal::new(call, FATAL_UNAUTHORIZED, "")
                    });
                }
                self.output.append(frame::append_sasl_success);
                self.stage = Stage::Context;
                Ok(())
            }
            CALL_CONTEXT if self.stage == Stage::Context => {
                let context =
                    frame::take_delimited(&mut content).and_then(|context| ConnectionContext::decode(context).ok());
                let context = context.ok_or_else(|| unreadable(call, "the connection context"))?;
                self.grouped = self.gateway.clock.now();
                self.caller = Some(self.caller_of(context)?);
                self.stage = Stage::Calls;
                let crowded = |text: String| Fatal {
                    refusal: Refusal::new(RETRIABLE, text),
                    ..Fatal::new(call, FATAL_UNKNOWN, "")
                };
                self.place.known().map_err(|taken| crowded(taken.to_string()))
            }
            0.. if self.stage == Stage::Calls => self.begin_call(&header, content, memory),
            0.. => Err(Fatal::new(call, FATAL_INVALID_HEADER, "Connection context not established")),
            _ => Err(Fatal::new(call, FATAL_INVALID_HEADER, format!("Unknown out of band call #{call}"))),
        }
    }

    /// Whom the context names.
    fn caller_of(&self, context: ConnectionContext) -> Result<Caller, Fatal> {
        let user = context.user.and_then(|user| user.effective).unwrap_or_default();
        if user.is_empty() || user.len() > USER_NAME_MAX || user.chars().any(char::is_control) {
            let text = format!("the connection names no user, or one of {} bytes", user.len());
            let refusal = Refusal::new(ACCESS_CONTROL, text);
            return Err(Fatal { call: CALL_CONTEXT, refusal, detail: FATAL_UNAUTHORIZED });
        }
        let (judged_as, superuser) = self.with_groups(&user);
        let address = self.stream.peer().into();
        Ok(Caller {
            user: user.into(),
            judged_as,
            superuser,
            client_id: [0; 16],
            call: 0,
            again: false,
            address,
            share: Arc::default(),
        })
    }

    /// A user with its groups, and whether it may do everything.
    fn with_groups(&self, user: &str) -> (Arc<User>, bool) {
        let groups = (self.gateway.groups_of)(user);
        let superuser = user == self.gateway.superuser || groups.iter().any(|group| group == SUPERUSERS_GROUP);
        (Arc::new(User { name: user.to_string(), groups }), superuser)
    }

    /// A connection may be open for days: who left a group, or came into one, is believed to be in it for no longer than this.
    fn look_up_groups(&mut self, now: Time) {
        if now.since(self.grouped) < GROUPS_BELIEVED {
            return;
        }
        self.grouped = now;
        let Some(user) = self.caller.as_ref().map(|caller| caller.user.clone()) else { return };
        let looked_up = self.with_groups(&user);
        if let Some(caller) = &mut self.caller {
            (caller.judged_as, caller.superuser) = looked_up;
        }
    }

    fn begin_call(
        &mut self,
        header: &RequestHeader,
        mut content: Bytes,
        (large, small): CallMemory,
    ) -> Result<(), Fatal> {
        let call = header.call;
        let method = frame::take_delimited(&mut content).and_then(|method| CallHeader::decode(method).ok());
        let request = frame::take_delimited(&mut content);
        let (Some(method), Some(request)) = (method, request) else {
            return Err(Fatal::new(call, FATAL_DESERIALIZING, "IPC server unable to read call parameters"));
        };
        let began = self.gateway.clock.now();
        self.look_up_groups(began);
        let Some(caller) = &self.caller else { unreachable!("calls come behind the context") };
        // A name of another length is nobody's: its calls are never remembered.
        let client_id = header.client.as_ref().try_into().unwrap_or_default();
        let again = header.retry.is_some_and(|retry| retry > 0);
        let Some(small) = small else { unreachable!("a frame is taken when there is memory for its answer") };
        let counted = small.bytes();
        let share = Arc::new(Share::new(self.gateway.rpc.budget.clone(), self.each.clone(), small));
        let caller = Caller { client_id, call, again, share: share.clone(), ..caller.clone() };
        let (gateway, held) = (self.gateway.clone(), share.clone());
        let name = gateway.client.new_request();
        let doing = within(name, async move {
            let result = dispatch::answer(&gateway, &caller, &method, request).await;
            drop(large);
            note(&gateway, (name, &method), (&caller, began), &result);
            Done { answer: (call, result), share: held, counted }
        });
        self.output.begun(counted);
        // Also if it is answered at once: the connection is no longer the one that rests longest.
        self.work();
        if let Some(done) = self.calls.begin(Box::pin(doing), share) {
            self.output.answered(done);
        }
        Ok(())
    }

    /// Says why the connection ends. What was begun before is still answered.
    fn end_because(&mut self, fatal: &Fatal) {
        let Fatal { call, refusal, detail } = fatal;
        self.output.append(|out| frame::append_fatal(out, *call, refusal, *detail));
        (self.gateway.on_trouble)(format!("{}: disconnected: {}", self.stream.peer(), refusal.text));
        (self.ending, self.linger) = (true, true);
    }

    /// One write. True if bytes left.
    fn write(&mut self, context: &mut Context<'_>) -> bool {
        if self.deaf {
            self.output.clear();
            return false;
        }
        let clock = &self.gateway.clock;
        match self.output.write(&mut self.stream, context, || clock.now(), self.calls.len() == 0) {
            Wrote::Nothing => false,
            Wrote::Some => {
                self.heard = clock.now();
                true
            }
            Wrote::Deaf => {
                (self.ending, self.deaf) = (true, true);
                true
            }
        }
    }
}

/// Tells of a call that was slow, or that the store could not do.
fn note(
    gateway: &Gateway,
    (request, method): (RequestId, &CallHeader),
    (caller, began): (&Caller, Time),
    result: &Result<Vec<u8>, Refusal>,
) {
    let took = gateway.clock.now().since(began);
    let error = result.as_ref().err().filter(|refusal| refusal.failed).map(|refusal| refusal.text.as_str());
    if error.is_some() || is_slow(took) {
        let what = String::from_utf8_lossy(&method.method);
        let what = if Method::find(&what).is_some() { &*what } else { "another call" };
        (gateway.on_request)(&Notable { request, what, from: &caller.address, took: Some(took), error });
    }
}
