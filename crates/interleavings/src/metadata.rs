//! The metadata store as far as `here` knows it, whose changes only have numbers.

#[path = "../../node/src/metadata/here.rs"]
mod here;
pub(crate) mod thread;

use crate::mailbox::Mailbox;
use crate::sleeper::Sleeper;
use crate::world::{Turn, Work};
use base::disk::Disk;
use std::sync::{Arc, OnceLock, Weak};

pub(crate) struct Metadata {
    mailbox: Mailbox<usize>,
    shared: OnceLock<Weak<here::Shared>>,
}

impl Metadata {
    /// A store that has answered when it has made `expected` changes, and the work of its thread.
    pub(crate) fn new(sleeper: &Arc<Sleeper>, expected: usize) -> (Arc<Metadata>, impl FnMut(&mut dyn Disk) -> Turn) {
        let metadata = Arc::new(Metadata { mailbox: Mailbox::new(sleeper.clone()), shared: OnceLock::new() });
        let thread = thread::Thread::new(metadata.clone(), sleeper.clone(), expected);
        let shared = Arc::new(here::Shared::new(thread));
        let set = metadata.shared.set(Arc::downgrade(&shared));
        assert!(set.is_ok(), "nobody has set it before");
        let mut turning = here::Turning(shared, metadata.clone());
        (metadata, move |disk| turning.turn(&mut Vec::new(), disk))
    }

    /// As `node`'s `Metadata::send`, in a burst or not.
    pub(crate) fn send(&self, number: usize, in_burst: bool) {
        self.mailbox.put(number);
        if !in_burst {
            self.mailbox.wake();
        }
    }

    pub(super) fn note_here(&self, _: bool) {}

    fn is_at_work_here(&self) -> bool {
        false
    }

    fn nudge(&self) {}

    fn note_panic(&self) {}

    fn is_broken(&self) -> bool {
        false
    }

    /// The changes that were made durable.
    pub(crate) fn made(&self) -> Vec<usize> {
        let Some(shared) = self.shared.get().and_then(Weak::upgrade) else { unreachable!("its thread lives") };
        let Ok(thread) = shared.lock() else { unreachable!("nobody panicked") };
        thread.made.clone()
    }
}
