//! A device as far as `here` knows it, whose engine counts what it is asked to do.

#[path = "../../node/src/device/here.rs"]
mod here;
pub(crate) mod thread;

use crate::mailbox::Mailbox;
use crate::sleeper::Sleeper;
use crate::world::{Turn, Work};
use base::disk::Disk;
use chunk::Request;
use std::sync::{Arc, OnceLock, Weak};

pub(crate) struct Device {
    mailbox: Mailbox<Item>,
    shared: OnceLock<Weak<here::Shared>>,
}

pub(crate) enum Item {
    Chunk { request: Request, number: usize },
    Other { number: usize },
}

impl Device {
    /// A device, and the work of its thread.
    pub(crate) fn new(sleeper: Arc<Sleeper>) -> (Arc<Device>, impl FnMut(&mut dyn Disk) -> Turn) {
        let device = Arc::new(Device { mailbox: Mailbox::new(sleeper), shared: OnceLock::new() });
        let shared = Arc::new(here::Shared::new(thread::Thread::new(device.clone())));
        let set = device.shared.set(Arc::downgrade(&shared));
        assert!(set.is_ok(), "nobody has set it before");
        let mut turning = here::Turning(shared);
        (device, move |disk| turning.turn(&mut Vec::new(), disk))
    }

    /// As `node`'s `Device::send`.
    pub(crate) fn send(&self, item: Item) {
        if let Some(item) = self.here(item) {
            self.mailbox.send(item);
        }
    }
}
