//! Answers on their way out of one connection, and the memory that they hold until they are written.

use crate::memory::is_too_slow;
use crate::rpc::budget::Share;
use crate::rpc::frame::{self, Answer};
use base::net::Stream;
use base::unit::Time;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;

/// Buffers larger than this are given back after use.
const SPARE_MAX: usize = 64 << 10;

/// A call that is through: its answer, what it holds, and what it was counted for while it was under way.
pub struct Done {
    pub answer: Answer,
    pub share: Arc<Share>,
    pub counted: usize,
}

/// What waits to be written.
#[derive(Default)]
pub struct Outgoing {
    /// Answers, of which `written` bytes are gone.
    bytes: Vec<u8>,
    written: usize,
    flushing: bool,
    /// Bytes that ever left.
    gone: u64,
    /// What answers hold until that many bytes have left.
    held: VecDeque<(u64, Arc<Share>)>,
    /// Bytes that calls under way are counted for.
    under_way: usize,
    /// Since when there was always something to write, and what had left by then.
    waiting: Option<(Time, u64)>,
}

/// What a write did.
pub enum Wrote {
    Nothing,
    Some,
    /// The other side takes no more.
    Deaf,
}

impl Outgoing {
    /// Bytes that calls hold: under way, and as answers.
    pub fn held(&self) -> usize {
        self.under_way + self.bytes.len() - self.written
    }

    /// Whether all was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.flushing
    }

    /// Whether something waits for the other side to take it.
    pub fn is_waiting(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// A call begins.
    pub fn begun(&mut self, counted: usize) {
        self.under_way += counted;
    }

    /// A call is through.
    pub fn answered(&mut self, Done { answer, share, counted }: Done) {
        self.under_way = self.under_way.saturating_sub(counted);
        // What has left makes room, so that no more is there than twice what waits.
        if self.written >= SPARE_MAX && self.written >= self.bytes.len() / 2 {
            self.bytes.drain(..std::mem::take(&mut self.written));
        }
        let before = self.bytes.len();
        frame::append_answer(&mut self.bytes, &answer);
        share.answered_with(self.bytes.len() - before);
        self.held.push_back((self.gone + (self.bytes.len() - self.written) as u64, share));
    }

    /// Something that is no answer to a call, and small.
    pub fn append(&mut self, append: impl FnOnce(&mut Vec<u8>)) {
        append(&mut self.bytes);
    }

    /// Forgets everything: nobody takes it.
    pub fn clear(&mut self) {
        *self = Outgoing { under_way: self.under_way, ..Outgoing::default() };
    }

    /// Whether the other side took too little for too long. `wanted`: others wait for the memory.
    pub fn is_too_slow(&self, now: Time, wanted: bool) -> bool {
        self.waiting.is_some_and(|(since, gone)| is_too_slow(now.since(since), self.gone - gone, wanted))
    }

    /// One write. `idle`: no call is under way.
    pub fn write(
        &mut self,
        stream: &mut Box<dyn Stream>,
        context: &mut Context<'_>,
        now: impl Fn() -> Time,
        idle: bool,
    ) -> Wrote {
        if self.bytes.is_empty() {
            self.flushing &= Pin::new(stream).poll_flush(context).is_pending();
            return Wrote::Nothing;
        }
        match Pin::new(stream).poll_write(context, &self.bytes[self.written..]) {
            Poll::Pending => {
                let gone = self.gone;
                self.waiting.get_or_insert_with(|| (now(), gone));
                Wrote::Nothing
            }
            Poll::Ready(Ok(written)) if written > 0 => {
                self.left(written, idle);
                Wrote::Some
            }
            Poll::Ready(_) => Wrote::Deaf,
        }
    }

    /// So many bytes have left.
    fn left(&mut self, written: usize, idle: bool) {
        self.written += written;
        self.gone += written as u64;
        while self.held.front().is_some_and(|(end, _)| *end <= self.gone) {
            self.held.pop_front();
        }
        if self.written < self.bytes.len() {
            return;
        }
        (self.written, self.flushing, self.waiting) = (0, true, None);
        // Small memory is kept while more is under way, none for an idle connection.
        if idle || self.bytes.capacity() > SPARE_MAX {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }
}
