//! The asking side of one connection: hands answers to those who wait, and notices silence.

use super::slot::{Slot, failure};
use crate::call::Outlet;
use crate::connection::{Moments, Role};
use crate::credit::Piece;
use crate::decode::Frame;
use crate::frame::{self, CLOSING, CREDIT, FAILURE, Header, PING, REPLY};
use crate::payload::Payload;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

/// How often silence and idle credit are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Credit that nobody uses goes back after this long.
const IDLE_CREDIT_MAX: Duration = Duration::from_secs(1);

/// What an asking connection knows.
pub(super) struct Asking {
    slot: Arc<Slot>,
    outlet: Arc<Outlet>,
    /// When the last ping left.
    pinged: Time,
}

impl Asking {
    pub(super) fn new(slot: Arc<Slot>, outlet: Arc<Outlet>) -> Asking {
        Asking { slot, outlet, pinged: Time::ZERO }
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
        match header.kind {
            CLOSING => return Err(failure(&message)),
            kind if kind >= frame::OWN_KINDS => return Ok(()),
            _ => (),
        }
        let refused = header.flags & FAILURE != 0;
        let answer = if refused { Err(failure(&message)) } else { Ok((header.kind, message, payload)) };
        self.slot.answered(header.number, answer);
        Ok(())
    }

    fn turn(&mut self, _context: &mut Context<'_>) -> Result<bool> {
        Ok(!self.slot.shared.closed.load(Ordering::Acquire))
    }

    fn may_read(&self) -> bool {
        true
    }

    fn tick(&mut self, moments: &Moments) -> Result<()> {
        self.slot.shared.check_start()?;
        self.slot.shared.hear(moments.heard);
        self.slot.return_credit(IDLE_CREDIT_MAX, TICK);
        let Some(since) = self.slot.pending_since() else { return Ok(()) };
        let silence_max = self.slot.shared.settings.silence_max;
        let since = since.max(moments.heard);
        let silence = moments.now.since(since);
        if silence >= silence_max {
            return Err(Error::new(ErrorKind::Unreachable, format!("it was silent for {} s", silence_max.as_secs())));
        }
        if silence >= silence_max / 4 && self.pinged <= since {
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
