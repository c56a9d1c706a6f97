//! What waits to be written to one connection: filled from any thread, emptied by the connection's task in few large writes.

use crate::credit::Piece;
use crate::frame::{self, CREDIT, Header};
use crate::payload::Payload;
use crate::sync::{AtomicBool, AtomicUsize, Mutex, MutexGuard};
use base::net::AtOnce;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Waker};

/// Payload parts up to here are copied in line: cheaper than a slice of their own in the write.
const COPY_MAX: usize = 4096;

/// Slices in one write. The kernel takes 1,024; beyond some dozens they save nothing.
const SLICES: usize = 64;

/// Bytes offered to one write.
const WRITE_MAX: usize = 1 << 20;

/// Bytes that a thread with answers writes itself, at the most: a copy into the socket of some microseconds.
const AT_ONCE_MAX: usize = 16 << 10;

/// A spare buffer larger than this is given back after its burst.
const SPARE_MAX: usize = 256 << 10;

/// The outbound queue of one connection. Its bound is the caller's: a client has `SMALL_FRAMES_MAX` calls unanswered at
/// most, and a server stops reading from a peer that does not take its answers.
pub(crate) struct Outbound {
    queue: Mutex<Queue>,
    /// Bytes that were put in and are not written, in the queue or in the batch that was taken out of it.
    unwritten: AtomicUsize,
    /// The same of all connections that share it.
    all: Arc<AtomicUsize>,
    /// How other threads than the task's write, if the stream has such a way.
    at_once: OnceLock<Arc<dyn AtOnce>>,
    /// Something in the task waits for answers to be gone: it is woken whoever writes them.
    awaited: AtomicBool,
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
    /// Memory of answers, in their order.
    held: VecDeque<Held>,
}

/// Memory that is given back when so many bytes of the buffer, and so many splices, are written.
struct Held {
    at: usize,
    splices: usize,
    _piece: Piece,
}

/// A payload part that belongs after `at` bytes of the buffer.
struct Splice {
    at: usize,
    part: Bytes,
    piece: Option<Arc<Piece>>,
}

impl Outbound {
    /// An empty queue. `all`: where the bytes of all connections are counted.
    pub(crate) fn new(all: Arc<AtomicUsize>) -> Outbound {
        let (unwritten, at_once, awaited) = (AtomicUsize::new(0), OnceLock::new(), AtomicBool::new(false));
        Outbound { queue: Mutex::default(), unwritten, all, at_once, awaited }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a frame in. `header` needs kind, flags, number and credit; `encode` appends the message. Does nothing once closed.
    pub(crate) fn push(&self, header: Header, encode: impl FnOnce(&mut Vec<u8>), payload: &Payload) {
        self.push_holding(header, encode, payload, None, || false);
    }

    /// The same with the memory that was taken for the frame: what it does not need of it is given back at once, the rest when it is written.
    /// A task that sleeps is not woken if `leave` says that somebody sees to what waits: by `write_at_once`.
    pub(crate) fn push_holding(
        &self,
        header: Header,
        encode: impl FnOnce(&mut Vec<u8>),
        payload: &Payload,
        piece: Option<Piece>,
        leave: impl FnOnce() -> bool,
    ) {
        let waker = {
            let mut queue = self.lock();
            if queue.closed {
                return;
            }
            let credit = if queue.grant > 0 { take_grant(&mut queue.grant) } else { header.credit };
            let header = Header { credit, ..header };
            let bytes = queue.batch.push(header, encode, payload);
            self.add(bytes);
            if let Some(piece) = piece {
                queue.batch.hold(piece, bytes);
            }
            if queue.asleep.is_some() && self.at_once.get().is_some() && leave() {
                return;
            }
            queue.asleep.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets other threads write, too. Once.
    pub(crate) fn write_by(&self, at_once: Arc<dyn AtOnce>) {
        let set = self.at_once.set(at_once);
        assert!(set.is_ok(), "a queue is of one connection");
    }

    /// Whether something in the task waits for answers to be gone. Said by the task, before it sleeps.
    pub(crate) fn await_answers(&self, awaited: bool) {
        self.awaited.store(awaited, Ordering::Relaxed);
    }

    /// Writes what waits, if that is little, and the task sleeps: it is woken only if something is left to do. How many bytes left.
    pub(crate) fn write_at_once(&self) -> usize {
        let mut queue = self.lock();
        if queue.asleep.is_none() {
            return 0;
        }
        let (mut left, mut counted) = (0, 0);
        let Queue { batch, .. } = &mut *queue;
        if batch.splices.is_empty()
            && (1..=AT_ONCE_MAX).contains(&batch.bytes.len())
            && let Some(at_once) = self.at_once.get()
        {
            // What fails here fails for the task, too, which can say so.
            left = at_once.write(&batch.bytes).unwrap_or(0);
            counted = batch.advance(left);
        }
        let done = batch.is_done();
        if done {
            batch.clear();
        }
        let goes_on = done && queue.grant == 0 && !self.awaited.load(Ordering::Relaxed);
        let waker = if goes_on { None } else { queue.asleep.take() };
        // Before the queue may be closed, which forgets what is not written.
        self.written(counted);
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
        left
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

    /// Bytes that are not written; large payload parts that are in a budget do not count.
    pub(crate) fn backlog(&self) -> usize {
        self.unwritten.load(Ordering::Relaxed)
    }

    /// The same of all connections that share the count.
    pub(crate) fn backlog_of_all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    fn add(&self, bytes: usize) {
        self.unwritten.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of the bytes that count are written. The connection's task says so, which closes the queue when it writes no more, or whoever
    /// wrote while it slept.
    pub(crate) fn written(&self, bytes: usize) {
        self.unwritten.fetch_sub(bytes, Ordering::Relaxed);
        self.all.fetch_sub(bytes, Ordering::Relaxed);
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
            self.add(queue.batch.push(header, |_| (), &Payload::empty()));
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
            self.all.fetch_sub(self.unwritten.swap(0, Ordering::Relaxed), Ordering::Relaxed);
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
    /// Appends a frame; its bytes that count are returned.
    fn push(&mut self, header: Header, encode: impl FnOnce(&mut Vec<u8>), payload: &Payload) -> usize {
        let before = self.bytes.len();
        let mut spliced = 0;
        let header = Header { payload_length: payload.length() as u32, payload_crc: payload.crc(), ..header };
        frame::append(&mut self.bytes, header, encode);
        for part in payload.parts() {
            if part.len() <= COPY_MAX {
                self.bytes.extend_from_slice(part);
            } else {
                let piece = payload.piece().cloned();
                spliced += if piece.is_none() { part.len() } else { 0 };
                self.splices.push(Splice { at: self.bytes.len(), part: part.clone(), piece });
            }
        }
        self.bytes.len() - before + spliced
    }

    /// Holds so much of the piece until what is in the batch now is written.
    fn hold(&mut self, mut piece: Piece, bytes: usize) {
        drop(piece.split(piece.bytes().saturating_sub(bytes as u64)));
        self.held.push_back(Held { at: self.bytes.len(), splices: self.splices.len(), _piece: piece });
    }

    fn clear(&mut self) {
        if self.bytes.capacity() > SPARE_MAX {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.splices.clear();
        self.held.clear();
        (self.position, self.spliced, self.splice_position) = (0, 0, 0);
    }

    /// Whether everything is written.
    pub(crate) fn is_done(&self) -> bool {
        self.position == self.bytes.len() && self.spliced == self.splices.len()
    }

    /// Whether payload that has a budget waits in it.
    pub(crate) fn holds_payload(&self) -> bool {
        self.splices[self.spliced..].iter().any(|splice| splice.piece.is_some())
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

    /// So many bytes are written; payload parts and memory that are through are let go at once. How many of them count.
    pub(crate) fn advance(&mut self, mut written: usize) -> usize {
        let mut counted = 0;
        while written > 0 {
            let (end, splice) = match self.splices.get_mut(self.spliced) {
                Some(splice) => (splice.at, Some(splice)),
                None => (self.bytes.len(), None),
            };
            let step = written.min(end - self.position);
            self.position += step;
            counted += step;
            written -= step;
            let Some(splice) = splice else {
                assert!(written == 0, "{written} bytes were written that nobody offered");
                break;
            };
            let step = written.min(splice.part.len() - self.splice_position);
            self.splice_position += step;
            counted += if splice.piece.is_none() { step } else { 0 };
            written -= step;
            if self.splice_position == splice.part.len() {
                (splice.part, splice.piece) = (Bytes::new(), None);
                self.splice_position = 0;
                self.spliced += 1;
            }
        }
        while self.held.front().is_some_and(|held| self.position >= held.at && self.spliced >= held.splices) {
            self.held.pop_front();
        }
        counted
    }
}
