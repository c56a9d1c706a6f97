//! The asking side of one connection: hands answers to those who wait, and notices silence.

use super::leader::{DOUBT, Leader};
use super::making::failure;
use super::slot::Slot;
use crate::call::Outlet;
use crate::connection::{Moments, Role};
use crate::credit::Piece;
use crate::decode::Frame;
use crate::frame::{self, CLOSING, CREDIT, FAILURE, Header, PING, REPLY};
use crate::payload::Payload;
use base::error::{Error, ErrorKind, Result};
use base::moved::Moved;
use base::unit::Time;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often silence and idle credit are looked at.
const TICK: Duration = Duration::from_millis(100);

/// A node that is silent is asked for a sign of life after this part of the silence that is too much. With 10 s that is 1.25 s: who waits for one of
/// several nodes, and for 2 s, knows by then that it lives (`Link::heard`).
const PINGS: u32 = 8;

/// Credit that nobody uses goes back after this long.
const IDLE_CREDIT_MAX: Duration = Duration::from_secs(1);

/// What an asking connection knows.
pub(super) struct Asking {
    slot: Arc<Slot>,
    outlet: Arc<Outlet>,
    /// When the last ping left.
    pinged: Time,
    /// Of a link to whoever leads: how this connection is left for another one.
    leaving: Option<Leaving>,
}

/// How a connection is left for one to another node.
struct Leaving {
    /// In which turn of the leader's addresses it was made.
    turn: u64,
    /// Comes when that is over.
    over: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// A call or a ping was answered: the node does not only take connections.
    is_heard: bool,
    /// The oldest call when it was last doubted that the node leads, how often before, and when again.
    doubted: (u64, u32, Time),
}

impl Asking {
    pub(super) fn new(slot: Arc<Slot>, outlet: Arc<Outlet>, turn: u64) -> Asking {
        let leaving = slot.shared.leader.as_ref().map(|leader| {
            let over = Box::pin(leader.changed(turn));
            Leaving { turn, over, is_heard: false, doubted: (0, 0, Time::ZERO) }
        });
        Asking { slot, outlet, pinged: Time::ZERO, leaving }
    }

    /// Looks at what the node of a link to whoever leads said. An error: it does not lead, and what it was asked stays pending.
    fn hear(&mut self, header: &Header, said: Option<&Error>) -> Result<()> {
        let (Some(leaving), Some(leader)) = (&mut self.leaving, &self.slot.shared.leader) else { return Ok(()) };
        if let Some(moved) = said.and_then(Moved::read) {
            return Err(leader.moved(leaving.turn, moved, &self.slot.shared));
        }
        leaving.is_heard |= header.kind < frame::OWN_KINDS || header.kind == PING;
        if header.kind < frame::OWN_KINDS && !self.slot.answers.swap(true, Ordering::Relaxed) {
            leader.answered();
        }
        Ok(())
    }

    /// Asks another node who leads while the oldest call has no answer: often at first, since an election takes its second, and seldom when
    /// there is just a lot to do.
    fn doubt(&mut self, now: Time) {
        let Some(leaving) = &mut self.leaving else { return };
        let Some((number, since)) = self.slot.oldest() else { return };
        if leaving.doubted.0 != number {
            leaving.doubted = (number, 0, since.after(DOUBT));
        }
        let (_, times, due) = &mut leaving.doubted;
        if now >= *due {
            *due = now.after(DOUBT * (1 << times.saturating_sub(4).min(4)));
            *times += 1;
            Leader::doubt(&self.slot.shared);
        }
    }
}

impl Role for Asking {
    fn admit(&mut self, header: &Header) -> Result<Poll<Option<Piece>>> {
        if header.flags & REPLY == 0 && !matches!(header.kind, CREDIT | CLOSING) {
            return Err(frame::broken("a question came to a client"));
        }
        Ok(Poll::Ready(None))
    }

    fn take(&mut self, frame: Frame) -> Result<()> {
        let Frame { header, message, payload } = frame;
        if header.credit > 0 {
            self.slot.granted(header.credit);
        }
        let refused = header.kind == CLOSING || header.flags & FAILURE != 0;
        let refusal = refused.then(|| failure(&message));
        self.hear(&header, refusal.as_ref())?;
        match header.kind {
            CLOSING => return refusal.map_or(Ok(()), Err),
            kind if kind >= frame::OWN_KINDS => return Ok(()),
            _ => (),
        }
        let answer = refusal.map_or(Ok((header.kind, message, payload)), Err);
        self.slot.answered(header.number, answer);
        Ok(())
    }

    fn turn(&mut self, context: &mut Context<'_>) -> Result<bool> {
        if let (Some(leaving), Some(leader)) = (&mut self.leaving, &self.slot.shared.leader)
            && (!leader.is_current(leaving.turn) || leaving.over.as_mut().poll(context).is_ready())
        {
            return Err(leader.elsewhere());
        }
        Ok(!self.slot.shared.closed.load(Ordering::Acquire))
    }

    fn may_read(&self) -> bool {
        true
    }

    fn tick(&mut self, moments: &Moments) -> Result<()> {
        self.slot.shared.check_start()?;
        if self.leaving.as_ref().is_none_or(|leaving| leaving.is_heard) {
            self.slot.shared.hear(moments.heard);
        }
        self.doubt(moments.now);
        self.slot.return_credit(IDLE_CREDIT_MAX, TICK);
        let Some(since) = self.slot.pending_since() else { return Ok(()) };
        let silence_max = self.slot.shared.settings.silence_max;
        let since = since.max(moments.heard);
        let silence = moments.now.since(since);
        if silence >= silence_max {
            return Err(Error::new(ErrorKind::Unreachable, format!("it was silent for {} s", silence_max.as_secs())));
        }
        if silence >= silence_max / PINGS && self.pinged <= since {
            self.pinged = moments.now;
            let header = Header { kind: PING, ..Header::default() };
            self.outlet.outbound.push(header, |_| (), &Payload::empty());
        }
        Ok(())
    }

    fn tick_every(&self) -> Duration {
        TICK.min(self.slot.shared.settings.silence_max / 8)
    }
}
