//! Small writes that wait for no disk are done by whoever asks for them, in the asker's own thread, if the device's is not at work at that
//! moment: a flush of a log then costs no wake-up of another thread on its way there and none on its way back (record 0432). What the
//! disk is to do for them is left to the device's thread.

use crate::device::thread::Thread;
use crate::device::{Device, Item};
use crate::sync::{Mutex, MutexGuard};
use crate::world::{Turn, Work};
use base::disk::{Disk, Done};
use base::id::Owner;
use base::policy::Level;
use chunk::Request;
use std::sync::{Arc, TryLockError, Weak};

/// Largest payload that an asker's thread takes in: what is longer is worth a wake-up, and others wait for that thread, too.
const PAYLOAD_MAX: usize = 16 << 10;

/// What the device's thread and those who ask share. The disk is the thread's alone.
pub(super) type Shared = Mutex<Thread>;

/// The device's thread: each turn has what is shared to itself.
pub(super) struct Turning(pub Arc<Shared>);

impl Work for Turning {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        let Ok(mut thread) = self.0.lock() else {
            panic!("an engine's fault showed in the thread of one who asked it")
        };
        thread.turn(done, disk)
    }
}

/// Wakes the device's thread if its state is left by a panic: it ends as it does after one of its own.
struct WakesOnPanic<'a>(&'a Device);

impl Drop for WakesOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.mailbox.wake();
        }
    }
}

impl Device {
    /// Does this here if it is such a write and the device has nothing before it. Gives it back if not.
    pub(super) fn here(&self, item: Item) -> Option<Item> {
        if !matches!(&item, Item::Chunk { request, .. } if is_early(request)) {
            return Some(item);
        }
        let Some(shared) = self.shared.get().and_then(Weak::upgrade) else { return Some(item) };
        let _wakes = WakesOnPanic(self);
        match shared.try_lock() {
            Ok(thread) => self.do_here(thread, item),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => Some(item),
        }
    }

    fn do_here(&self, mut thread: MutexGuard<'_, Thread>, item: Item) -> Option<Item> {
        // What was sent before comes first. Whoever sends something at this moment waits for no answer to what comes here.
        if !thread.takes_here() || !self.mailbox.is_empty() {
            return Some(item);
        }
        if thread.do_here(item) {
            self.mailbox.wake();
        }
        None
    }
}

/// Whether this only has to survive the end of the process, and is small.
fn is_early(request: &Request) -> bool {
    matches!(
        request,
        Request::Append { level: Level::Written, owner: Owner::Group(_), seal: false, cell: 0, payload, .. }
            if payload.len() <= PAYLOAD_MAX
    )
}
