//! What somebody asks in a burst is done in his own thread when the burst is over, up to the write and the sync of the log, if the
//! metadata's thread is not at work at that moment and the disk is fast: a change then costs no wake-up of another thread on its way there,
//! none at the disk and none on the way back (record 0446).

use super::Metadata;
use super::thread::{Next, Thread};
use crate::sync::Mutex;
use crate::world::{Turn, Work};
use base::burst::Gathers;
use base::disk::{Disk, Done};
use std::sync::{Arc, TryLockError, Weak};

/// What the metadata's thread and those who ask share.
pub(super) type Shared = Mutex<Thread>;

/// The metadata's thread: each turn has what is shared to itself.
pub(super) struct Turning(pub Arc<Shared>);

impl Work for Turning {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        let Ok(mut thread) = self.0.lock() else {
            panic!("the metadata store's fault showed in the thread of one who asked it")
        };
        thread.turn(done, disk)
    }
}

/// Wakes the metadata's thread if its state is left by a panic: it ends as it does after one of its own.
struct WakesOnPanic<'a>(&'a Metadata);

impl Drop for WakesOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.mailbox.wake();
        }
    }
}

impl Gathers for Metadata {
    fn burst_ended(&self) {
        let _wakes = WakesOnPanic(self);
        if self.do_here() {
            self.mailbox.wake();
        }
    }
}

impl Metadata {
    /// Takes what came and does it. True: the metadata's thread has to take a turn.
    fn do_here(&self) -> bool {
        let Some(shared) = self.shared.get().and_then(Weak::upgrade) else { return true };
        // Whoever has it may have looked into the mailbox before this came.
        let mut thread = match shared.try_lock() {
            Ok(thread) => thread,
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => return true,
        };
        if !thread.takes_here() {
            return true;
        }
        let (mut done, mut operations) = (None, 0);
        loop {
            let (inline, token, op) = match thread.turn_here(done, operations) {
                Next::Do(inline, token, op) => (inline, token, op),
                Next::Leave(wakes) => {
                    drop(thread);
                    // Who found it locked woke the thread; who came without a try to lock it did, too.
                    return wakes;
                }
            };
            // Others may ask meanwhile; what they change is in the next group.
            drop(thread);
            done = Some(Done { token, result: inline.execute(op) });
            operations += 1;
            thread = match shared.lock() {
                Ok(thread) => thread,
                Err(_) => panic!("the metadata store's fault showed in another thread"),
            };
        }
    }
}
