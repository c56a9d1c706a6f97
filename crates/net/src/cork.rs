//! Small answers that leave from the thread that has them: whoever holds a cork while it answers writes, when it lets go, what came together for
//! each connection to its socket, and wakes the connection's task only for what that did not take (record 0433). A task that sleeps would be
//! woken for one system call otherwise, which costs more than the call.

use crate::call::Outlet;
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    /// Connections for which this thread's cork holds answers; none: it has no cork.
    static CORKED: RefCell<Option<Vec<Arc<Outlet>>>> = const { RefCell::new(None) };
}

/// As long as it lives, the answers of this thread wait to be written together.
#[derive(Debug)]
pub struct Cork {
    /// Another one was there before, which lets go of everything.
    inner: bool,
    /// A cork belongs to its thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Cork {
    /// Answers of this thread wait from now on.
    #[must_use]
    pub fn hold() -> Cork {
        let inner = CORKED.with_borrow_mut(|corked| {
            let inner = corked.is_some();
            corked.get_or_insert_default();
            inner
        });
        Cork { inner, _here: std::marker::PhantomData }
    }
}

impl Drop for Cork {
    fn drop(&mut self) {
        if self.inner {
            return;
        }
        for outlet in CORKED.take().unwrap_or_default() {
            outlet.write_at_once();
        }
    }
}

/// Leaves it to this thread's cork to see to what waits for the connection. False: there is no cork.
pub(crate) fn leave(outlet: &Arc<Outlet>) -> bool {
    CORKED.with_borrow_mut(|corked| {
        let Some(corked) = corked else { return false };
        if corked.last().is_none_or(|last| !Arc::ptr_eq(last, outlet)) {
            corked.push(outlet.clone());
        }
        true
    })
}

#[cfg(test)]
mod tests {
    use super::Cork;
    use crate::call::{AllAnswers, Holding, Outlet, Responder};
    use crate::credit::Budget;
    use crate::message::Done;
    use crate::payload::Payload;
    use base::id::RequestId;
    use base::net::AtOnce;
    use base::unit::Time;
    use sim::clock::SimClock;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Wake, Waker};

    /// A socket with room for so many bytes, and what was written to it, by each call.
    struct Socket {
        room: AtomicUsize,
        writes: Mutex<Vec<usize>>,
    }

    impl AtOnce for Socket {
        fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
            let taken = bytes.len().min(self.room.load(Ordering::Relaxed));
            self.writes.lock().expect("whole").push(taken);
            Ok(taken)
        }
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A connection whose task sleeps: what is answered under a cork, three times, is written how, how often is the task woken, and what is
    /// left for it?
    fn answer_three(room: usize, awaited: bool, corked: bool) -> (Vec<usize>, usize, usize) {
        let outlet = Arc::new(Outlet::new(
            Budget::new(1 << 20),
            AllAnswers::default(),
            Arc::default(),
            Arc::new(SimClock::new()),
            None,
        ));
        let socket = Arc::new(Socket { room: AtomicUsize::new(room), writes: Mutex::default() });
        outlet.outbound.write_by(socket.clone());
        outlet.outbound.await_answers(awaited);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        assert!(outlet.outbound.sleep(&Context::from_waker(&waker)));
        let cork = corked.then(Cork::hold);
        for number in 1..=3 {
            let respond =
                Responder::to_connection(outlet.clone(), (77, number, RequestId::NONE), Time::ZERO, Holding::default());
            // A cork in a cork changes nothing.
            let _inner = corked.then(Cork::hold);
            respond.answer(Done {}, Payload::empty());
        }
        assert!(socket.writes.lock().expect("whole").is_empty());
        drop(cork);
        let writes = socket.writes.lock().expect("whole").clone();
        (writes, woken.0.load(Ordering::Relaxed), outlet.outbound.backlog())
    }

    /// What is answered under a cork is one write, and the task sleeps on; it is woken for what the socket did not take, if something waits for
    /// the answers to be gone, and by those who have no cork.
    #[test]
    fn answers_leave_together() {
        let (writes, woken, left) = answer_three(1 << 20, false, true);
        assert_eq!((writes.len(), woken, left), (1, 0, 0));
        let all = writes[0];
        assert_eq!(answer_three(10, false, true), (vec![10], 1, all - 10));
        assert_eq!(answer_three(0, false, true), (vec![0], 1, all));
        assert_eq!(answer_three(1 << 20, true, true), (vec![all], 1, 0));
        assert_eq!(answer_three(1 << 20, false, false), (vec![], 1, all));
    }
}
