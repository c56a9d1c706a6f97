//! One connection of the simulated network, and its ends.

use super::{State, machine_of};
use base::net::Stream;
use base::unit::Time;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Bytes that one direction holds before its writer waits.
const WINDOW: usize = 256 << 10;

/// When what a held process says arrives, until it is let go.
const NEVER: Time = Time::from_nanos(u64::MAX);

/// A connection: from end 0 to end 1, and back.
pub(super) struct Wire {
    hosts: [Arc<str>; 2],
    address: String,
    /// Lane `n` carries what end `n` writes.
    lanes: [Lane; 2],
    /// It is over: nothing more is taken.
    cut: bool,
    silent: bool,
    /// Ends that were dropped.
    left: [bool; 2],
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<(Time, Bytes)>,
    bytes: usize,
    last_due: Time,
    /// Its writer has shut it down.
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Lane {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

impl Wire {
    pub(super) fn new(hosts: [Arc<str>; 2], address: &str) -> Wire {
        let (lanes, left) = (Default::default(), [false; 2]);
        Wire { hosts, address: address.to_string(), lanes, cut: false, silent: false, left }
    }

    pub(super) fn touches(&self, host: &str) -> bool {
        self.hosts.iter().any(|end| end.as_ref() == host)
    }

    pub(super) fn is_silent_at(&self, address: &str) -> bool {
        self.silent && self.address == address
    }

    pub(super) fn is_silent_from(&self, machine: &str) -> bool {
        self.silent && self.hosts.iter().any(|host| machine_of(host) == machine)
    }

    /// The machines that end `end` reads from, and stands on.
    fn way_to(&self, end: usize) -> (&str, &str) {
        (machine_of(&self.hosts[1 - end]), machine_of(&self.hosts[end]))
    }

    pub(super) fn wake(&mut self) {
        self.lanes.iter_mut().for_each(Lane::wake);
    }

    /// What a machine's processes said while they were held is said now.
    pub(super) fn let_go(&mut self, machine: &str, now: Time) {
        for (lane, host) in self.lanes.iter_mut().zip(&self.hosts) {
            if machine_of(host) == machine {
                lane.queue.iter_mut().filter(|(due, _)| *due == NEVER).for_each(|(due, _)| *due = now);
                lane.last_due = lane.last_due.min(now);
            }
        }
    }

    /// Over for both ends. `keeps`: whether what is on its way in each lane arrives.
    pub(super) fn cut(&mut self, keeps: [bool; 2]) {
        let silent = std::mem::replace(&mut self.silent, false);
        self.cut = true;
        for (lane, keep) in self.lanes.iter_mut().zip(keeps) {
            if !keep || silent {
                lane.queue.clear();
                lane.bytes = 0;
            }
            lane.wake();
        }
    }

    pub(super) fn silence(&mut self) {
        self.silent = true;
    }
}

impl State {
    /// Whether an end hears nothing of the other one now, not even that it is gone.
    fn is_unheard(&self, wire: u64, end: usize) -> bool {
        let Some(wire) = self.wires.get(&wire) else { return false };
        let (from, to) = wire.way_to(end);
        self.held.contains(to) || self.is_blocked(from, to)
    }

    /// Whether the process at an end stands still.
    fn is_held(&self, wire: u64, end: usize) -> bool {
        self.wires.get(&wire).is_some_and(|wire| self.held.contains(wire.way_to(end).1))
    }
}

/// One end of a connection.
pub(super) struct SimStream {
    state: Arc<Mutex<State>>,
    wire: u64,
    end: usize,
    peer: String,
    timer: Option<Pin<Box<Sleep>>>,
}

impl SimStream {
    pub(super) fn new(state: Arc<Mutex<State>>, wire: u64, end: usize, peer: String) -> SimStream {
        SimStream { state, wire, end, peer, timer: None }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What can be read now, or when to look again.
    fn take(&mut self, context: &Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<Option<Time>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = state.clock.now();
        let unheard = state.is_unheard(self.wire, self.end);
        let Some(wire) = state.wires.get_mut(&self.wire) else { return Poll::Ready(Err(reset())) };
        let (cut, silent) = (wire.cut, wire.silent || unheard);
        let lane = &mut wire.lanes[1 - self.end];
        match lane.queue.front_mut() {
            _ if silent => {}
            Some((due, bytes)) if *due <= now => {
                let part = bytes.split_to(bytes.len().min(out.remaining()));
                if !bytes.has_remaining() {
                    lane.queue.pop_front();
                }
                lane.bytes -= part.len();
                if let Some(writer) = lane.writer.take() {
                    writer.wake();
                }
                out.put_slice(&part);
                state.note(&part);
                return Poll::Ready(Ok(None));
            }
            Some((due, _)) if *due == NEVER => {}
            Some((due, _)) => return Poll::Ready(Ok(Some(*due))),
            None if cut => return Poll::Ready(Err(reset())),
            None if lane.closed => return Poll::Ready(Ok(None)),
            None => {}
        }
        lane.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

fn reset() -> Error {
    Error::new(ErrorKind::ConnectionReset, "the simulated connection was cut")
}

impl AsyncRead for SimStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        loop {
            let due = match self.take(context, out) {
                Poll::Ready(Ok(Some(due))) => due,
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(())),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            };
            let wait = due.since(self.lock().clock.now());
            let timer = self.timer.insert(Box::pin(tokio::time::sleep(wait)));
            if timer.as_mut().poll(context).is_pending() {
                // A cut is noticed before the bytes are due.
                let waker = context.waker().clone();
                let (wire, lane) = (self.wire, 1 - self.end);
                if let Some(wire) = self.lock().wires.get_mut(&wire) {
                    wire.lanes[lane].reader = Some(waker);
                }
                return Poll::Pending;
            }
        }
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        let mut state = self.lock();
        let now = state.clock.now();
        let Some(wire) = state.wires.get(&self.wire) else { return Poll::Ready(Err(reset())) };
        if wire.cut || wire.left[1 - self.end] {
            if state.is_unheard(self.wire, self.end) {
                // That the connection is over was not heard here.
                return Poll::Ready(Ok(bytes.len()));
            }
            return Poll::Ready(Err(reset()));
        }
        if !wire.silent && state.cuts_now() {
            state.cut(self.wire);
            return Poll::Ready(Err(reset()));
        }
        let (delay, held) = (state.delay(), state.is_held(self.wire, self.end));
        let Some(wire) = state.wires.get_mut(&self.wire) else { return Poll::Ready(Err(reset())) };
        let lane = &mut wire.lanes[self.end];
        let room = WINDOW - lane.bytes.min(WINDOW);
        if room == 0 {
            lane.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let part = Bytes::copy_from_slice(&bytes[..bytes.len().min(room)]);
        let length = part.len();
        lane.last_due = if held { NEVER } else { lane.last_due.max(now.after(delay)) };
        lane.bytes += length;
        lane.queue.push_back((lane.last_due, part));
        if let Some(reader) = lane.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(wire) = self.lock().wires.get_mut(&self.wire) {
            wire.lanes[self.end].closed = true;
            wire.lanes[self.end].wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for SimStream {
    fn peer(&self) -> String {
        self.peer.clone()
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        let (number, end) = (self.wire, self.end);
        let mut state = self.lock();
        let Some(wire) = state.wires.get_mut(&number) else { return };
        wire.left[end] = true;
        wire.lanes[end].closed = true;
        wire.lanes.iter_mut().for_each(Lane::wake);
        if wire.left == [true; 2] {
            state.wires.remove(&number);
        }
    }
}
