//! The serving side of one connection: greets, grants credit, hands calls to the service.

use super::greeting::{Answer, Greeting, Known};
use super::{ServerSettings, stopped};
use crate::call::{Call, Outlet, Responder, Service, bounded_failure, encode};
use crate::connection::{Moments, Role};
use crate::credit::Piece;
use crate::decode::Frame;
use crate::frame::{self, CLOSING, CREDIT, FAILURE, HELLO, Header, PING, PROVE, REPLY, RETURN};
use crate::message::Failure;
use crate::outbound::Outbound;
use crate::payload::Payload;
use crate::stats::count;
use base::error::{Error, ErrorKind, Result};
use base::limit::{
    CONNECTION_IDLE_MAX, CREDIT_IDLE_MAX, FRAME_RATE_MIN, HELLO_WAIT_MAX, LARGE_MESSAGE, SMALL_FRAMES_MAX,
    SMALL_PAYLOAD_MAX,
};
use base::places::{Place, Taken};
use base::unit::Time;
use bytes::Bytes;
use prost::Message;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

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
    greeting: Greeting,
    place: Place,
    begun: Time,
    /// Since when the client has credit of which it used nothing.
    unused_since: Option<Time>,
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
        place: Place,
    ) -> Serving {
        let outlet = Arc::new(Outlet::new(settings.outgoing.clone(), settings.stats.clone(), settings.clock.clone()));
        Serving {
            outlet,
            service,
            called: settings.clock.now(),
            begun: settings.clock.now(),
            settings,
            stop: Box::pin(stopped(shutdown)),
            stopping: false,
            greeting: Greeting::default(),
            place,
            unused_since: None,
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

    fn call(&mut self, known: Known, frame: Frame) {
        let Known { session, asker } = known;
        let Frame { header: Header { kind, number, floor, .. }, message, payload } = frame;
        count(&self.settings.stats.calls, 1);
        let respond = Responder::to_connection(self.outlet.clone(), kind, number, self.called);
        self.service.handle(Call { kind, session, asker, number, floor, message, payload, respond });
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
            Some(piece) => {
                let left = self.granted.as_ref().is_some_and(|granted| granted.bytes() > 0);
                self.unused_since = left.then(|| self.settings.clock.now());
                Ok(piece)
            }
            None => Err(frame::broken(format!("{bytes} bytes of payload came against a credit of {granted}"))),
        }
    }

    fn grant(&mut self, piece: Piece) {
        self.outbound().grant(piece.bytes());
        self.unused_since.get_or_insert_with(|| self.settings.clock.now());
        match &mut self.granted {
            Some(granted) => granted.merge(piece),
            None => self.granted = Some(piece),
        }
    }
}

impl Role for Serving {
    fn admit(&mut self, header: &Header) -> Result<Option<Piece>> {
        if self.greeting.known().is_none() {
            return self.greeting.admit(header).map(|()| None);
        }
        if header.flags != 0 && header.kind != CLOSING {
            return Err(frame::broken("an answer came to a node that asked nothing"));
        }
        if matches!(header.kind, HELLO | PROVE) {
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
        if header.message_length as usize > LARGE_MESSAGE {
            if header.payload_length as usize > SMALL_PAYLOAD_MAX {
                return Err(frame::broken("a large message beside a large payload"));
            }
            return self.settings.messages.try_acquire(header.message_length.into()).map(Some).ok_or_else(|| {
                let most = self.settings.messages.total();
                busy(format!(
                    "large messages of {most} bytes are worked on, which is the most; this one was not read; try again"
                ))
            });
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
        match (frame.header.kind, self.greeting.known()) {
            (HELLO | PROVE, _) => self.greet(&frame),
            (PING, _) => {
                let header = Header { kind: PING, flags: REPLY, ..Header::default() };
                self.outbound().push(header, |_| (), &Payload::empty());
                Ok(())
            }
            (CREDIT, _) => Ok(()),
            (RETURN, _) => self.take_back(frame.header.credit),
            (CLOSING, _) => Err(left(&frame.message)),
            (_, Some(known)) => {
                self.called = self.settings.clock.now();
                self.call(known, frame);
                Ok(())
            }
            (_, None) => Err(frame::broken("the first frame must be a greeting")),
        }
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Result<bool> {
        if let Poll::Ready(taken) = self.place.poll_leave(context) {
            return Err(full(taken));
        }
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
        let Moments { now, heard, stuck_since, frame } = *moments;
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
        // While a frame comes in, what is behind it cannot be used; its own time is bounded above.
        let unused = self.unused_since.filter(|_| frame.is_none()).map(|since| now.since(since)).unwrap_or_default();
        // A client whose calls are worked on may be about to send the next ones: it has longer, and is left alone if nobody waits.
        let (works, short) = (self.outlet.unanswered.load(Ordering::Relaxed) > 0, self.settings.budget.is_short());
        let withdrawn = match (works, short) {
            (true, false) => false,
            (false, true) => unused >= CREDIT_IDLE_MAX,
            (true, true) | (false, false) => unused >= silence_max,
        };
        if withdrawn {
            let held = self.granted.as_ref().map_or(0, Piece::bytes);
            return Err(busy(format!("of its credit of {held} bytes nothing was used for {} s", unused.as_secs())));
        }
        let owes = frame.is_some() || self.granted.as_ref().is_some_and(|granted| granted.bytes() > 0);
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
