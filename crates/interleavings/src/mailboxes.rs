//! Readers and senders of a mailbox.

use crate::mailbox::Mailbox;
use crate::sleeper::{Sleeper, check};
use std::sync::Arc;

/// So many senders with so many items each; the reader sleeps whenever it may. If it is left asleep, nobody can go on, and loom says so.
pub fn nothing_is_left(senders: usize, each: usize) {
    check(3, move || {
        let sleeper = Arc::new(Sleeper::default());
        let mailbox = Arc::new(Mailbox::new(sleeper.clone()));
        let threads: Vec<_> = (0..senders)
            .map(|sender| {
                let mailbox = mailbox.clone();
                loom::thread::spawn(move || (0..each).for_each(|item| mailbox.send((sender, item))))
            })
            .collect();
        let (mut inbox, mut taken) = (Vec::new(), Vec::new());
        loop {
            mailbox.awake();
            mailbox.take(&mut inbox);
            taken.append(&mut inbox);
            if taken.len() >= senders * each {
                break;
            }
            if mailbox.may_sleep() {
                sleeper.wait();
            }
        }
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "a sender ends"));
        assert!(mailbox.is_empty(), "something came twice");
        for sender in 0..senders {
            let of_one = taken.iter().filter(|(from, _)| *from == sender).map(|(_, item)| *item);
            assert!(of_one.eq(0..each), "lost, doubled or out of order: {taken:?}");
        }
    });
}
