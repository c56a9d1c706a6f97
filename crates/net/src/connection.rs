//! One connection: one task that reads and writes one stream, and a role (serving or asking) that knows what frames mean.
//!
//! Reading and writing share a task on purpose: the stream needs no lock, and answers that a service gives at once leave in
//! the same turn without waking anybody.

use crate::call::{Outlet, bounded_failure, encode};
use crate::credit::Piece;
use crate::decode::{Decoder, Frame};
use crate::frame::{self, CLOSING, FAILURE, Header};
use crate::outbound::Batch;
use crate::payload::Payload;
use crate::stats::{NetStats, count};
use base::burst::{Burst, KEPT_TURNS};
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::limit::GREETING_ANSWER_MAX;
use base::net::Stream;
use base::unit::Time;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Turns of reading and writing before other tasks of the runtime get theirs.
const TURNS: usize = 32;

/// Bytes read before other tasks of the runtime get their turns: a fraction of a millisecond's work, and one question with thousands of
/// texts. Some dozen connections that send all they can then keep a small call waiting for some milliseconds.
const TURN_BYTES: usize = 256 << 10;

/// A byte of a message, which is decoded and handed over, is as much work as so many that are only read.
const MESSAGE_WORK: usize = 16;

/// Bytes that are read and thrown away of a peer that is being told why its connection ends.
const DISCARDED_MAX: usize = 256 << 10;

/// How long a closing connection tries to say why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Whether the peer is told why, because it is there and can do something about it.
pub(crate) fn is_said(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Protocol | ErrorKind::Unsupported | ErrorKind::Refused | ErrorKind::Busy)
}

/// What the two kinds of connection do differently. An error from any of these ends the connection with that reason.
pub(crate) trait Role: Send {
    /// Judges a header before anything is allocated for its frame. Pending: there is no memory for it now; nothing is read until `turn` has
    /// found some and `may_read` says so, and then the header is judged again.
    fn admit(&mut self, header: &Header) -> Result<Poll<Option<Piece>>>;
    /// Takes a frame.
    fn take(&mut self, frame: Frame) -> Result<()>;
    /// Does what waits for something else than bytes. `Ok(false)`: the connection ends once what waits is written.
    fn turn(&mut self, context: &mut Context<'_>) -> Result<bool>;
    /// Whether more may be read now.
    fn may_read(&self) -> bool;
    /// Looks at the time.
    fn tick(&mut self, moments: &Moments) -> Result<()>;
    /// How often `tick` wants to be called.
    fn tick_every(&self) -> Duration;
}

/// What a role may want to know about time.
pub(crate) struct Moments {
    pub(crate) now: Time,
    /// When the last byte came in or the peer made room for more; at first, when the connection was made.
    pub(crate) heard: Time,
    /// Since when bytes wait that the peer does not take.
    pub(crate) stuck_since: Option<Time>,
    /// Since when, at the latest, the peer has not taken all that waited for it then, and how many bytes of that it took.
    pub(crate) owed: Option<(Time, u64)>,
    /// Whether payload that has a budget is among that.
    pub(crate) owes_payload: bool,
    /// The frame that has begun and not ended: since when, at the latest, and its bytes as far as they are known.
    pub(crate) frame: Option<(Time, u64)>,
    /// How many of these have come.
    pub(crate) come: u64,
}

/// A stream and the frames on it.
pub(crate) struct Connection<R> {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) decoder: Decoder,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) role: R,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) stats: Arc<NetStats>,
}

/// The parts of a running connection that only its task touches.
struct Running<R> {
    connection: Connection<R>,
    batch: Batch,
    flushing: bool,
    heard: Time,
    stuck_since: Option<Time>,
    /// The batch that did not go out at once: since when, and how many bytes of it went since then.
    owed: Option<(Time, u64)>,
    /// The frame that had begun when it was last looked: its number in the stream, and since when.
    frame: Option<(u64, Time)>,
    /// What was done since other tasks had their turns, in bytes read.
    work: usize,
    timer: Pin<Box<Sleep>>,
}

impl<R: Role> Connection<R> {
    /// Runs until the stream ends or a rule is broken. `Ok`: it ended between frames, as connections do. After an error nothing
    /// that is still to be sent arrives any more.
    pub(crate) async fn run(self) -> Result<()> {
        let heard = self.clock.now();
        let timer = Box::pin(sleep(self.role.tick_every()));
        let outlet = self.outlet.clone();
        if let Some(at_once) = self.stream.at_once() {
            outlet.outbound.write_by(at_once);
        }
        let mut running = Running {
            connection: self,
            batch: Batch::default(),
            flushing: false,
            heard,
            stuck_since: None,
            owed: None,
            frame: None,
            work: 0,
            timer,
        };
        let ending = poll_fn(|context| running.poll(context)).await;
        match &ending {
            Err(error) if is_said(error.kind()) => {
                running.say_why(error).await;
            }
            // Calls that were given up must not arrive after those that their caller made instead.
            Err(_) => running.connection.stream.abandon(),
            Ok(()) => (),
        }
        outlet.outbound.close();
        ending
    }
}

impl<R: Role> Running<R> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.connection.outlet.outbound.awake();
        self.work = 0;
        let mut kept = 0;
        for _ in 0..TURNS {
            let wrote = match self.write(context) {
                Ok(wrote) => wrote,
                Err(error) => return self.failed(context, error),
            };
            // What comes together is asked together.
            let burst = Burst::begin();
            let read = match self.read(context)? {
                Poll::Ready(0) => return Poll::Ready(self.ended()),
                Poll::Ready(_) => true,
                Poll::Pending => false,
            };
            kept += usize::from(burst.end());
            while self.timer.as_mut().poll(context).is_ready() {
                self.tick()?;
            }
            let waited = !self.connection.role.may_read();
            let goes_on = self.connection.role.turn(context)?;
            if self.work >= TURN_BYTES || kept >= KEPT_TURNS {
                break;
            }
            if wrote || read || waited && self.connection.role.may_read() {
                continue;
            }
            if !goes_on && self.batch.is_done() && !self.flushing && self.connection.outlet.outbound.backlog() == 0 {
                return Poll::Ready(Ok(()));
            }
            // Something came in between only if the writer is not stuck on the socket, which wakes by itself.
            if self.stuck_since.is_some() || self.flushing || self.connection.outlet.outbound.sleep(context) {
                return Poll::Pending;
            }
        }
        // What was answered leaves before others have their turns.
        if let Err(error) = self.write(context) {
            return self.failed(context, error);
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The end after a write that failed.
    fn failed(&mut self, context: &mut Context<'_>, error: Error) -> Poll<Result<()>> {
        Poll::Ready(Err(self.words_of_peer(context).unwrap_or(error)))
    }

    /// What the peer said last, after a write failed: it may have come before the end did.
    fn words_of_peer(&mut self, context: &mut Context<'_>) -> Option<Error> {
        for _ in 0..TURNS {
            match self.read(context) {
                Ok(Poll::Ready(1..)) => (),
                Ok(_) => return None,
                Err(error) => return is_said(error.kind()).then_some(error),
            }
        }
        None
    }

    fn ended(&self) -> Result<()> {
        if self.connection.decoder.is_between_frames() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unreachable, "the connection ended in the middle of a frame"))
    }

    fn tick(&mut self) -> Result<()> {
        let every = self.connection.role.tick_every();
        let now = self.connection.clock.now();
        self.timer.set(sleep(every));
        let unfinished = self.connection.decoder.unfinished();
        self.frame = match (unfinished, self.frame) {
            (Some((number, _)), Some((known, since))) if number == known && self.connection.role.may_read() => {
                Some((known, since))
            }
            // Time in which we do not read is not the peer's.
            (Some((number, _)), _) => Some((number, now)),
            (None, _) => None,
        };
        let frame = unfinished.zip(self.frame).map(|((_, bytes), (_, since))| (since, bytes));
        let come = self.connection.decoder.come();
        let (heard, stuck_since, owed) = (self.heard, self.stuck_since, self.owed);
        let owes_payload = owed.is_some() && self.batch.holds_payload();
        let moments = Moments { now, heard, stuck_since, owed, owes_payload, frame, come };
        self.connection.role.tick(&moments)
    }

    /// One write. True if bytes left.
    fn write(&mut self, context: &mut Context<'_>) -> Result<bool> {
        let Connection { stream, outlet, clock, stats, .. } = &mut self.connection;
        if self.batch.is_done() && !outlet.outbound.take(&mut self.batch) {
            if self.flushing && Pin::new(stream).poll_flush(context)?.is_ready() {
                self.flushing = false;
            }
            return Ok(false);
        }
        let written = self.batch.offer(|slices| Pin::new(stream).poll_write_vectored(context, slices))?;
        match written {
            Poll::Ready(0) => Err(Error::new(ErrorKind::Unreachable, "the other side takes no more bytes")),
            Poll::Ready(written) => {
                outlet.outbound.written(self.batch.advance(written));
                self.owed =
                    self.owed.filter(|_| !self.batch.is_done()).map(|(since, taken)| (since, taken + written as u64));
                if self.stuck_since.take().is_some() {
                    // The peer made room: a sign of life, even while its words wait behind our payload.
                    self.heard = clock.now();
                }
                self.flushing = true;
                count(&stats.bytes_out, written as u64);
                Ok(true)
            }
            Poll::Pending => {
                let since = *self.stuck_since.get_or_insert_with(|| clock.now());
                self.owed.get_or_insert((since, 0));
                Ok(false)
            }
        }
    }

    /// The frames that are here whole, for as long as more may be taken.
    fn take_frames(&mut self) -> Result<()> {
        let Connection { decoder, role, .. } = &mut self.connection;
        while role.may_read()
            && let Some(frame) = decoder.next(&mut |header| role.admit(header))?
        {
            self.work += frame.message.len() * MESSAGE_WORK;
            role.take(frame)?;
        }
        Ok(())
    }

    /// One read and the frames it completes. Ready with the number of bytes; zero at the stream's end.
    fn read(&mut self, context: &mut Context<'_>) -> Result<Poll<usize>> {
        // What had come before nothing more could be taken.
        self.take_frames()?;
        let Connection { stream, decoder, role, clock, stats, .. } = &mut self.connection;
        if !role.may_read() {
            return Ok(Poll::Pending);
        }
        let mut space = ReadBuf::new(decoder.space());
        let Poll::Ready(result) = Pin::new(stream).poll_read(context, &mut space) else {
            return Ok(Poll::Pending);
        };
        result?;
        let length = space.filled().len();
        decoder.filled(length);
        self.heard = clock.now();
        self.work += length;
        count(&stats.bytes_in, length as u64);
        self.take_frames()?;
        Ok(Poll::Ready(length))
    }

    /// Tells the peer the reason and waits a little for it to arrive: closing at once could overtake it.
    async fn say_why(&mut self, error: &Error) {
        let failure = bounded_failure(error.clone());
        let header = Header { kind: CLOSING, flags: FAILURE, ..Header::default() };
        let outbound = &self.connection.outlet.outbound;
        outbound.push(header, |bytes| encode(&failure, bytes), &Payload::empty());
        let mut left = DISCARDED_MAX;
        let words = poll_fn(|context| {
            while !self.batch.is_done() || self.connection.outlet.outbound.backlog() > 0 {
                if !self.write(context)? {
                    return Poll::Pending;
                }
            }
            let stream = &mut self.connection.stream;
            ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
            // Others need its place: it is not kept for the words to arrive.
            if error.kind() == ErrorKind::Busy {
                return Poll::Ready(Ok(()));
            }
            let mut discarded = [0; 4096];
            for _ in 0..TURNS {
                let mut space = ReadBuf::new(&mut discarded);
                ready!(Pin::new(&mut *stream).poll_read(context, &mut space))?;
                left = left.saturating_sub(space.filled().len());
                if space.filled().is_empty() || left == 0 {
                    return Poll::Ready(Ok(()));
                }
            }
            context.waker().wake_by_ref();
            Poll::<Result<()>>::Pending
        });
        // However it ends: the connection is over.
        drop(tokio::time::timeout(LAST_WORDS, words).await);
    }
}

/// Sends one frame and waits for one, before a connection runs. What comes is bounded: nobody knows yet whose it is.
pub(crate) async fn exchange(
    stream: &mut Box<dyn Stream>,
    decoder: &mut Decoder,
    header: Header,
    encode: impl FnOnce(&mut Vec<u8>),
) -> Result<Frame> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, header, encode);
    // Who has no place for us may have said so and closed before this left: its words come first.
    let sent = async { stream.write_all(&bytes).await.and(stream.flush().await) }.await;
    let mut admit = |header: &Header| match header.message_length as usize {
        length if length <= GREETING_ANSWER_MAX && header.payload_length == 0 => Ok(Poll::Ready(None)),
        length => Err(frame::broken(format!(
            "it answered a greeting with {length} bytes and a payload of {}",
            header.payload_length
        ))),
    };
    loop {
        if let Some(frame) = decoder.next(&mut admit)? {
            return Ok(frame);
        }
        let length = poll_fn(|context| {
            let mut space = ReadBuf::new(decoder.space());
            ready!(Pin::new(&mut *stream).poll_read(context, &mut space))?;
            Poll::Ready(std::io::Result::Ok(space.filled().len()))
        })
        .await?;
        if length == 0
            && let Err(error) = sent
        {
            return Err(error.into());
        }
        if length == 0 && decoder.holds_tls() {
            return Err(crate::tls::unexpected());
        }
        if length == 0 {
            return Err(Error::new(ErrorKind::Unreachable, "the other side closed the connection without a word"));
        }
        decoder.filled(length);
    }
}
