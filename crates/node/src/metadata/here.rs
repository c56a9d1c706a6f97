//! What somebody asks in a burst is done in his own thread when the burst is over, up to the write and the sync of the log, if the
//! metadata's thread is not at work at that moment and the disk is fast: a change then costs no wake-up of another thread on its way there,
//! none at the disk and none on the way back (record 0446).

use super::Metadata;
use super::thread::{Next, Thread};
use crate::sync::{Mutex, MutexGuard};
use crate::world::{Turn, Work};
use base::burst::Gathers;
use base::disk::{Disk, Done};
use std::sync::{Arc, TryLockError, Weak};

/// What the metadata's thread and those who ask share.
pub(super) type Shared = Mutex<Thread>;

/// The metadata's thread: each turn has what is shared to itself.
pub(super) struct Turning(pub Arc<Shared>, pub Arc<Metadata>);

impl Work for Turning {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        let Turning(shared, metadata) = self;
        assert!(!metadata.is_broken(), "{FAULT}");
        let mut thread = match shared.try_lock() {
            Ok(thread) => thread,
            Err(TryLockError::WouldBlock) => {
                // Should the tree's disk hang, nobody comes back here to find out.
                metadata.nudge();
                whole(shared)
            }
            Err(TryLockError::Poisoned(_)) => whole(shared),
        };
        if metadata.is_at_work_here() {
            // Should the log's disk hang, this thread may hang in the tree's before it looks again.
            metadata.nudge();
        }
        thread.turn(done, disk)
    }
}

const FAULT: &str = "the metadata store's fault showed in another thread";

fn whole(shared: &Shared) -> MutexGuard<'_, Thread> {
    match shared.lock() {
        Ok(thread) => thread,
        Err(_) => panic!("{FAULT}"),
    }
}

/// Tells the metadata's thread if its state is left by a panic, or an operation of the log is.
struct TellsOfPanic<'a>(&'a Metadata);

impl Drop for TellsOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.note_panic();
        }
    }
}

impl Gathers for Metadata {
    fn burst_ended(&self) -> bool {
        if std::thread::panicking() {
            self.mailbox.wake();
            return false;
        }
        let _tells = TellsOfPanic(self);
        let (operations, wakes) = self.do_here();
        if wakes {
            self.mailbox.wake();
        }
        operations > 0
    }
}

impl Metadata {
    /// Takes what came and does it. How many operations of the disk that were, and whether the metadata's thread has to take a turn.
    fn do_here(&self) -> (usize, bool) {
        let Some(shared) = self.shared.get().and_then(Weak::upgrade) else { return (0, true) };
        // Whoever has it may have looked into the mailbox before this came.
        let mut thread = match shared.try_lock() {
            Ok(thread) => thread,
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => return (0, true),
        };
        if !thread.takes_here() {
            return (0, true);
        }
        if thread.begins_here() {
            self.mailbox.wake();
        }
        let (mut done, mut operations) = (None, 0);
        loop {
            let (inline, token, op) = match thread.turn_here(done, operations) {
                Next::Do(inline, token, op) => (inline, token, op),
                Next::Leave(wakes) => {
                    if operations > 0 {
                        self.note_here(false);
                    }
                    // Who found it locked meanwhile has woken the thread.
                    return (operations, wakes);
                }
            };
            if operations == 0 {
                self.note_here(true);
            }
            // Others may ask meanwhile; what they change is in the next group, so none of them has an operation to do.
            drop(thread);
            done = Some(Done { token, result: inline.execute(op) });
            operations += 1;
            thread = whole(&shared);
        }
    }
}
