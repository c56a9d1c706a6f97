//! The serving side of one connection: greets, grants credit, hands calls to the service.

use super::{ServerSettings, stopped};
use crate::call::{Call, Outlet, Responder, Service, bounded_failure, encode};
use crate::connection::{Moments, Role};
use crate::credit::Piece;
use crate::decode::Frame;
use crate::frame::{self, CLOSING, CREDIT, FAILURE, HELLO, Header, PING, REPLY, RETURN, VERSION_MAX, VERSION_MIN};
use crate::message::session::{Hello, Welcome};
use crate::outbound::Outbound;
use crate::payload::Payload;
use crate::stats::count;
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use base::limit::{CONNECTION_IDLE_MAX, HELLO_WAIT_MAX, SMALL_FRAMES_MAX, SMALL_PAYLOAD_MAX};
use base::unit::Time;
use prost::Message;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// Longest first message: two ids, two versions and a program's name. Larger ones are refused before they are read.
const HELLO_MAX: u32 = 4096;

/// Wishes for credit that may be open. A client wishes once for each unanswered call and once for what follows it.
const WISHES_MAX: usize = 4 * SMALL_FRAMES_MAX;

/// A peer whose untaken answers are this many bytes is not asked for more.
const BACKLOG_MAX: usize = 2 << 20;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_secs(1);

type Acquiring = Pin<Box<dyn Future<Output = Piece> + Send>>;

/// What a serving connection knows.
pub(super) struct Serving {
    outlet: Arc<Outlet>,
    service: Arc<dyn Service>,
    settings: Arc<ServerSettings>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
    stopping: bool,
    session: Option<SessionId>,
    begun: Option<Time>,
    /// When a call last came in.
    called: Time,
    /// Credit that the client has and has not used.
    granted: Option<Piece>,
    wishes: VecDeque<u32>,
    acquiring: Option<Acquiring>,
}

impl Serving {
    pub(super) fn new(
        service: Arc<dyn Service>,
        settings: Arc<ServerSettings>,
        shutdown: watch::Receiver<bool>,
    ) -> Serving {
        let outlet = Arc::new(Outlet::new(settings.outgoing.clone(), settings.stats.clone(), settings.clock.clone()));
        Serving {
            outlet,
            service,
            called: settings.clock.now(),
            settings,
            stop: Box::pin(stopped(shutdown)),
            stopping: false,
            session: None,
            begun: None,
            granted: None,
            wishes: VecDeque::new(),
            acquiring: None,
        }
    }

    pub(super) fn outlet(&self) -> Arc<Outlet> {
        self.outlet.clone()
    }

    fn outbound(&self) -> &Outbound {
        &self.outlet.outbound
    }

    fn greet(&mut self, frame: &Frame) -> Result<()> {
        let hello = Hello::decode(frame.message.clone())
            .map_err(|error| frame::broken(format!("the first message cannot be read: {error}")))?;
        let shared = hello.version_max.min(u32::from(VERSION_MAX));
        if shared < hello.version_min || shared < u32::from(VERSION_MIN) {
            let error = frame::wrong_version(hello.version_min, hello.version_max);
            let header = Header { kind: HELLO, flags: REPLY | FAILURE, ..Header::default() };
            let failure = bounded_failure(error.clone());
            self.outbound().push(header, |bytes| encode(&failure, bytes), &Payload::empty());
            return Err(error);
        }
        self.session = Some(SessionId(hello.session.value()));
        let welcome =
            Welcome { version: shared, node: self.settings.node.0.into(), incarnation: self.settings.incarnation };
        let header = Header { kind: HELLO, flags: REPLY, ..Header::default() };
        self.outbound().push(header, |bytes| encode(&welcome, bytes), &Payload::empty());
        Ok(())
    }

    fn call(&mut self, session: SessionId, frame: Frame) {
        let Frame { header: Header { kind, number, .. }, message, payload } = frame;
        count(&self.settings.stats.calls, 1);
        let respond = Responder::to_connection(self.outlet.clone(), kind, number, self.called);
        self.service.handle(Call { kind, session, number, message, payload, respond });
    }

    /// The client gives back so much and wishes for nothing any more.
    fn take_back(&mut self, bytes: u32) -> Result<()> {
        self.wishes.clear();
        self.acquiring = None;
        if bytes > 0 {
            drop(self.spend(bytes)?);
        }
        Ok(())
    }

    /// So many bytes of the client's credit.
    fn spend(&mut self, bytes: u32) -> Result<Piece> {
        let granted = self.granted.as_ref().map_or(0, Piece::bytes);
        match self.granted.as_mut().and_then(|granted| granted.split(u64::from(bytes))) {
            Some(piece) => Ok(piece),
            None => Err(frame::broken(format!("{bytes} bytes of payload came against a credit of {granted}"))),
        }
    }

    fn grant(&mut self, piece: Piece) {
        self.outbound().grant(piece.bytes());
        match &mut self.granted {
            Some(granted) => granted.merge(piece),
            None => self.granted = Some(piece),
        }
    }
}

impl Role for Serving {
    fn admit(&mut self, header: &Header) -> Result<Option<Piece>> {
        if self.session.is_none() {
            if header.kind != HELLO || header.message_length > HELLO_MAX || header.payload_length > 0 {
                return Err(frame::broken("the first frame must be a greeting"));
            }
            return Ok(None);
        }
        if header.flags != 0 && header.kind != CLOSING {
            return Err(frame::broken("an answer came to a node that asked nothing"));
        }
        if header.kind == HELLO {
            return Err(frame::broken("a second greeting"));
        }
        if header.kind != RETURN && header.credit > 0 {
            if self.wishes.len() >= WISHES_MAX {
                return Err(frame::broken(format!("more than {WISHES_MAX} wishes for credit")));
            }
            self.wishes.push_back(header.credit);
        }
        if header.kind < frame::OWN_KINDS && self.outlet.unanswered.load(Ordering::Relaxed) >= SMALL_FRAMES_MAX {
            return Err(frame::broken(format!("more than {SMALL_FRAMES_MAX} unanswered calls")));
        }
        if header.payload_length as usize <= SMALL_PAYLOAD_MAX {
            return Ok(None);
        }
        if header.kind >= frame::OWN_KINDS {
            return Err(frame::broken("a payload beside a message that has none"));
        }
        self.spend(header.payload_length).map(Some)
    }

    fn take(&mut self, frame: Frame) -> Result<()> {
        match (frame.header.kind, self.session) {
            (HELLO, _) => self.greet(&frame),
            (PING, _) => {
                let header = Header { kind: PING, flags: REPLY, ..Header::default() };
                self.outbound().push(header, |_| (), &Payload::empty());
                Ok(())
            }
            (CREDIT, _) => Ok(()),
            (RETURN, _) => self.take_back(frame.header.credit),
            (CLOSING, _) => Err(Error::new(ErrorKind::Io, "the client closed the connection and said why in a frame")),
            (_, Some(session)) => {
                self.called = self.settings.clock.now();
                self.call(session, frame);
                Ok(())
            }
            (_, None) => Err(frame::broken("the first frame must be a greeting")),
        }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Result<bool> {
        loop {
            if let Some(acquiring) = &mut self.acquiring {
                let Poll::Ready(piece) = acquiring.as_mut().poll(context) else { break };
                self.acquiring = None;
                self.grant(piece);
            }
            let Some(wish) = self.wishes.pop_front() else { break };
            match self.settings.budget.try_acquire(u64::from(wish)) {
                Some(piece) => self.grant(piece),
                None => {
                    let budget = self.settings.budget.clone();
                    self.acquiring = Some(Box::pin(async move { budget.acquire(u64::from(wish)).await }));
                }
            }
        }
        if !self.stopping && self.stop.as_mut().poll(context).is_ready() {
            self.stopping = true;
        }
        let finished = self.stopping && self.outlet.unanswered.load(Ordering::Acquire) == 0;
        Ok(!finished)
    }

    fn may_read(&self) -> bool {
        !self.stopping && self.outbound().backlog() < BACKLOG_MAX
    }

    fn tick(&mut self, moments: &Moments) -> Result<()> {
        let Moments { now, heard, stuck_since, in_frame } = *moments;
        let begun = *self.begun.get_or_insert(now);
        let silence_max = self.settings.silence_max;
        if self.session.is_none() && now.since(begun) >= HELLO_WAIT_MAX {
            return Err(frame::broken(format!("no greeting within {} s", HELLO_WAIT_MAX.as_secs())));
        }
        if stuck_since.is_some_and(|since| now.since(since) >= silence_max) {
            return Err(gone(format!("it took no bytes for {} s", silence_max.as_secs())));
        }
        let owes = in_frame || self.granted.as_ref().is_some_and(|granted| granted.bytes() > 0);
        if owes && self.may_read() && now.since(heard) >= silence_max {
            return Err(gone(format!(
                "nothing came for {} s while it held credit or a frame was unfinished",
                silence_max.as_secs()
            )));
        }
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

fn gone(text: String) -> Error {
    Error::new(ErrorKind::Unreachable, text)
}
