//! A connection's task, and threads that have answers for it.

use crate::frame::{CREDIT, HEADER_LENGTH, Header};
use crate::outbound::{Batch, Outbound};
use crate::payload::Payload;
use crate::sleeper::{Sleeper, check};
use crate::sync::{AtomicUsize, Mutex};
use base::net::AtOnce;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Waker};

/// A socket that takes so many bytes of what is written at once, and everything from the task. Unless the task awaits that itself, it is
/// woken when `whole` bytes are there, as by a peer that has what it asked for.
struct Socket {
    at_once: usize,
    whole: Option<(usize, Arc<Sleeper>)>,
    bytes: Mutex<Vec<u8>>,
}

impl Socket {
    fn append(&self, bytes: &[u8]) {
        let mut all = self.bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.extend_from_slice(bytes);
        if let Some((whole, task)) = &self.whole
            && all.len() >= *whole
        {
            task.notify();
        }
    }

    /// The frames' numbers in their order, and the credit they carry. Bytes of two threads that were mixed are no frames.
    fn frames(&self) -> (Vec<u64>, u64) {
        let (mut numbers, mut credit) = (Vec::new(), 0);
        for bytes in self.bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).as_chunks::<HEADER_LENGTH>().0
        {
            let Ok(header) = Header::decode(bytes) else { unreachable!("bytes of two threads were mixed") };
            credit += u64::from(header.credit);
            if header.kind != CREDIT {
                numbers.push(header.number);
            }
        }
        numbers.sort_unstable();
        (numbers, credit)
    }
}

impl AtOnce for Socket {
    fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.at_once);
        self.append(&bytes[..taken]);
        Ok(taken)
    }
}

/// One answer as by a thread with a cork: it sees to it itself what becomes of it, if the task sleeps.
fn answer(outbound: &Outbound, number: u64) {
    let mut corked = false;
    let header = Header { kind: 1, number, ..Header::default() };
    let leave = || {
        corked = true;
        true
    };
    outbound.push_holding(header, |_| (), &Payload::empty(), None, leave);
    if corked {
        outbound.write_at_once();
    }
}

/// The task writes what waits, as `connection` does.
fn write_all(outbound: &Outbound, socket: &Socket, batch: &mut Batch) {
    while outbound.take(batch) {
        let length = batch.offer(|slices| {
            slices.iter().for_each(|slice| socket.append(slice));
            slices.iter().map(|slice| slice.len()).sum()
        });
        outbound.written(batch.advance(length));
        assert!(batch.is_done(), "the socket took everything");
    }
}

/// So many threads with one answer each, and another that grants so much credit, unless it is none. The socket takes so many bytes of each
/// write that is not the task's. All of it arrives, whole and once; `awaited`: the task hears of it. If the task is left asleep while something
/// waits, nobody can go on, and loom says so.
pub fn nothing_is_left(answers: u64, credit: u64, at_once: usize, awaited: bool) {
    check(3, move || {
        let task = Arc::new(Sleeper::default());
        let waker = Waker::from(task.clone());
        let all = Arc::new(AtomicUsize::new(0));
        let outbound = Arc::new(Outbound::new(all.clone()));
        let whole = (!awaited).then(|| (answers as usize * HEADER_LENGTH, task.clone()));
        let socket = Arc::new(Socket { at_once, whole, bytes: Mutex::default() });
        outbound.write_by(socket.clone());
        let mut threads: Vec<_> = (1..=answers)
            .map(|number| {
                let outbound = outbound.clone();
                loom::thread::spawn(move || answer(&outbound, number))
            })
            .collect();
        if credit > 0 {
            let outbound = outbound.clone();
            threads.push(loom::thread::spawn(move || outbound.grant(credit)));
        }
        let expected = ((1..=answers).collect(), credit);
        let mut batch = Batch::default();
        loop {
            outbound.awake();
            write_all(&outbound, &socket, &mut batch);
            if socket.frames() == expected {
                break;
            }
            outbound.await_answers(awaited);
            if outbound.sleep(&Context::from_waker(&waker)) {
                task.wait();
            }
        }
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "an answer is given"));
        assert_eq!(socket.frames(), expected);
        assert_eq!((outbound.backlog(), all.load(Ordering::Relaxed)), (0, 0), "what is written counts no more");
    });
}

/// The connection ends while answers come: nothing of it counts any more.
pub fn nothing_counts_after_the_end(answers: u64, at_once: usize) {
    check(3, move || {
        let all = Arc::new(AtomicUsize::new(0));
        let outbound = Arc::new(Outbound::new(all.clone()));
        let socket = Arc::new(Socket { at_once, whole: None, bytes: Mutex::default() });
        outbound.write_by(socket);
        let waker = Waker::from(Arc::new(Sleeper::default()));
        assert!(outbound.sleep(&Context::from_waker(&waker)));
        let threads: Vec<_> = (1..=answers)
            .map(|number| {
                let outbound = outbound.clone();
                loom::thread::spawn(move || answer(&outbound, number))
            })
            .collect();
        outbound.close();
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "an answer is given"));
        assert_eq!((outbound.backlog(), all.load(Ordering::Relaxed)), (0, 0));
    });
}
