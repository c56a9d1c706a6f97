//! What waits to be written to one connection: filled from any thread, emptied by the connection's task in few large writes.

use crate::credit::Piece;
use crate::frame::{self, CREDIT, Header};
use crate::payload::Payload;
use bytes::Bytes;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// Payload parts up to here are copied in line: cheaper than a slice of their own in the write.
const COPY_MAX: usize = 4096;

/// Slices in one write. The kernel takes 1,024; beyond some dozens they save nothing.
const SLICES: usize = 64;

/// Bytes offered to one write.
const WRITE_MAX: usize = 1 << 20;

/// A spare buffer larger than this is given back after its burst.
const SPARE_MAX: usize = 256 << 10;

/// The outbound queue of one connection. Its bound is the caller's: a client has `SMALL_FRAMES_MAX` calls unanswered at
/// most, and a server stops reading from a peer that does not take its answers.
#[derive(Default)]
pub(crate) struct Outbound {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    batch: Batch,
    /// Credit that rides on the next frame.
    grant: u64,
    /// The connection's task, if it sleeps with nothing to write. Taken by whoever wakes it, so a burst wakes once.
    asleep: Option<Waker>,
    closed: bool,
}

/// Frames on their way: headers, messages and small payloads in one buffer, large payload parts between them.
#[derive(Default)]
pub(crate) struct Batch {
    bytes: Vec<u8>,
    splices: Vec<Splice>,
    /// Bytes of `bytes` that are written.
    position: usize,
    /// Splices that are written.
    spliced: usize,
    /// Bytes of the next splice that are written.
    splice_position: usize,
}

/// A payload part that belongs after `at` bytes of the buffer.
struct Splice {
    at: usize,
    part: Bytes,
    _piece: Option<Arc<Piece>>,
}

impl Outbound {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a frame in. `header` needs kind, flags, number and credit; `encode` appends the message. Does nothing once closed.
    pub(crate) fn push(&self, header: Header, encode: impl FnOnce(&mut Vec<u8>), payload: &Payload) {
        let waker = {
            let mut queue = self.lock();
            if queue.closed {
                return;
            }
            let credit = if queue.grant > 0 { take_grant(&mut queue.grant) } else { header.credit };
            let header = Header { credit, ..header };
            queue.batch.push(header, encode, payload);
            queue.asleep.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Grants the peer so many bytes of payload, with the next frame or with one of its own.
    pub(crate) fn grant(&self, bytes: u64) {
        let mut queue = self.lock();
        queue.grant = queue.grant.saturating_add(bytes);
        drop(queue);
        self.wake();
    }

    /// Lets the task take another turn.
    pub(crate) fn wake(&self) {
        let waker = self.lock().asleep.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Bytes that wait in the buffer; large payload parts, which have a budget of their own, do not count.
    pub(crate) fn backlog(&self) -> usize {
        self.lock().batch.bytes.len()
    }

    /// The task runs: pushes need not wake it.
    pub(crate) fn awake(&self) {
        self.lock().asleep = None;
    }

    /// The task is about to sleep. False if there is something to write after all.
    pub(crate) fn sleep(&self, context: &Context<'_>) -> bool {
        let mut queue = self.lock();
        if !queue.batch.bytes.is_empty() || queue.grant > 0 {
            return false;
        }
        queue.asleep = Some(context.waker().clone());
        true
    }

    /// Moves everything that waits into `batch`, which must be done with. False if nothing waits.
    pub(crate) fn take(&self, batch: &mut Batch) -> bool {
        batch.clear();
        let mut queue = self.lock();
        if queue.grant > 0 {
            let credit = take_grant(&mut queue.grant);
            let header = Header { kind: CREDIT, credit, ..Header::default() };
            queue.batch.push(header, |_| (), &Payload::empty());
        }
        if queue.batch.bytes.is_empty() {
            return false;
        }
        std::mem::swap(&mut queue.batch, batch);
        true
    }

    /// Nothing goes in or out any more; what waited is dropped.
    pub(crate) fn close(&self) {
        let dropped = {
            let mut queue = self.lock();
            queue.closed = true;
            queue.grant = 0;
            std::mem::take(&mut queue.batch)
        };
        drop(dropped);
    }
}

fn take_grant(grant: &mut u64) -> u32 {
    let credit = u32::try_from(*grant).unwrap_or(u32::MAX);
    *grant -= u64::from(credit);
    credit
}

impl Batch {
    fn push(&mut self, header: Header, encode: impl FnOnce(&mut Vec<u8>), payload: &Payload) {
        let header = Header { payload_length: payload.length() as u32, payload_crc: payload.crc(), ..header };
        frame::append(&mut self.bytes, header, encode);
        for part in payload.parts() {
            if part.len() <= COPY_MAX {
                self.bytes.extend_from_slice(part);
            } else {
                let piece = payload.piece().cloned();
                self.splices.push(Splice { at: self.bytes.len(), part: part.clone(), _piece: piece });
            }
        }
    }

    fn clear(&mut self) {
        if self.bytes.capacity() > SPARE_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.splices.clear();
        (self.position, self.spliced, self.splice_position) = (0, 0, 0);
    }

    /// Whether everything is written.
    pub(crate) fn is_done(&self) -> bool {
        self.position == self.bytes.len() && self.spliced == self.splices.len()
    }

    /// The next slices to write.
    fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES]) -> usize {
        let mut used = 0;
        let mut room = WRITE_MAX;
        let mut position = self.position;
        let mut offset = self.splice_position;
        let mut add = |bytes: &'a [u8]| {
            let bytes = &bytes[..bytes.len().min(room)];
            if !bytes.is_empty() && used < SLICES {
                slices[used] = IoSlice::new(bytes);
                used += 1;
                room -= bytes.len();
            }
            used < SLICES && room > 0
        };
        for splice in &self.splices[self.spliced..] {
            if !add(&self.bytes[position..splice.at]) || !add(&splice.part[offset..]) {
                return used;
            }
            (position, offset) = (splice.at, 0);
        }
        add(&self.bytes[position..]);
        used
    }

    /// Hands the next slices to `write`, which says how many bytes it took.
    pub(crate) fn offer<R>(&self, write: impl FnOnce(&[IoSlice<'_>]) -> R) -> R {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let used = self.slices(&mut slices);
        write(&slices[..used])
    }

    /// So many bytes are written; payload parts that are through are let go at once.
    pub(crate) fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let (end, splice) = match self.splices.get_mut(self.spliced) {
                Some(splice) => (splice.at, Some(splice)),
                None => (self.bytes.len(), None),
            };
            let step = written.min(end - self.position);
            self.position += step;
            written -= step;
            let Some(splice) = splice else {
                assert!(written == 0, "{written} bytes were written that nobody offered");
                return;
            };
            let step = written.min(splice.part.len() - self.splice_position);
            self.splice_position += step;
            written -= step;
            if self.splice_position == splice.part.len() {
                splice.part = Bytes::new();
                splice._piece = None;
                self.splice_position = 0;
                self.spliced += 1;
            }
        }
    }
}
