//! What a device's thread does in each turn, in the order of `node`'s, with an engine of which each request is one operation of the disk.

use crate::device::{Device, Item};
use crate::world::Turn;
use base::disk::{Disk, Done, FileKind, FileName, Op};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Thread {
    device: Arc<Device>,
    inbox: Vec<Item>,
    /// What those who did something here leave for the disk.
    left: Vec<(u64, Op)>,
}

impl Thread {
    pub(crate) fn new(device: Arc<Device>) -> Thread {
        Thread { device, inbox: Vec::new(), left: Vec::new() }
    }

    pub(super) fn turn(&mut self, done: &mut [Done], disk: &mut dyn Disk) -> Turn {
        assert!(done.is_empty(), "nothing is told to be finished");
        self.device.mailbox.awake();
        self.left.drain(..).for_each(|(token, op)| disk.submit(token, op));
        let mut inbox = std::mem::take(&mut self.inbox);
        self.device.mailbox.take(&mut inbox);
        for item in inbox.drain(..) {
            let (token, op) = operation(item);
            disk.submit(token, op);
        }
        self.inbox = inbox;
        Turn::Wait(if self.device.mailbox.may_sleep() { None } else { Some(Duration::ZERO) })
    }

    pub(super) fn takes_here(&self) -> bool {
        true
    }

    pub(super) fn do_here(&mut self, item: Item) -> bool {
        self.left.push(operation(item));
        true
    }
}

fn operation(item: Item) -> (u64, Op) {
    let (Item::Chunk { number, .. } | Item::Other { number }) = item;
    (number as u64, Op::Sync { file: FileName::new(FileKind::Data, 0) })
}
