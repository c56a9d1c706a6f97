//! What the metadata's thread and those who ask do in each turn, in the order of `node`'s, with a log of which each group is one operation
//! of the disk.

use super::Metadata;
use crate::sleeper::Sleeper;
use crate::world::Turn;
use base::buffer::Buffer;
use base::disk::{Disk, DiskError, Done, FileKind, FileName, Inline, Op};
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Thread {
    metadata: Arc<Metadata>,
    /// Told when all changes are made: it stands for those who wait for the answers.
    answered: Arc<Sleeper>,
    expected: usize,
    /// Changes of no group yet.
    waiting: Vec<usize>,
    /// The group that is being written.
    flight: Vec<usize>,
    left: Vec<(u64, Op)>,
    pub(super) made: Vec<usize>,
}

pub(super) enum Next {
    Do(Arc<dyn Inline>, u64, Op),
    Leave(bool),
}

/// A disk that does everything at once.
struct AtOnce;

impl Inline for AtOnce {
    fn is_fast(&self) -> bool {
        true
    }
    fn execute(&self, _: Op) -> Result<Buffer, DiskError> {
        Ok(Buffer::zeroed(0))
    }
    fn took(&self, _: Duration) {}
}

impl Thread {
    pub(super) fn new(metadata: Arc<Metadata>, answered: Arc<Sleeper>, expected: usize) -> Thread {
        let (waiting, flight, left, made) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Thread { metadata, answered, expected, waiting, flight, left, made }
    }

    pub(super) fn turn(&mut self, done: &mut [Done], _: &mut dyn Disk) -> Turn {
        assert!(done.is_empty(), "the model's disk does everything at once");
        self.metadata.mailbox.awake();
        self.take_mailbox();
        while self.left.pop().is_some() {
            self.completed();
            self.take_mailbox();
        }
        let wait = if self.metadata.mailbox.may_sleep() { None } else { Some(Duration::ZERO) };
        // The checker lets another thread come in between only where something shared is touched, and this turn still has the store.
        self.metadata.mailbox.is_empty();
        Turn::Wait(wait)
    }

    pub(super) fn takes_here(&self) -> bool {
        true
    }

    pub(super) fn begins_here(&mut self) -> bool {
        false
    }

    pub(super) fn turn_here(&mut self, done: Option<Done>, operations: usize) -> Next {
        if done.is_some() {
            self.completed();
        }
        self.take_mailbox();
        if operations == 0
            && let Some((token, op)) = self.left.pop()
        {
            return Next::Do(Arc::new(AtOnce), token, op);
        }
        Next::Leave(!self.left.is_empty())
    }

    fn completed(&mut self) {
        assert!(!self.flight.is_empty(), "a group ends that nobody began");
        self.made.append(&mut self.flight);
        if self.made.len() == self.expected {
            self.answered.notify();
        }
    }

    /// Takes what has come, and begins a group unless one is under way.
    fn take_mailbox(&mut self) {
        let mut inbox = Vec::new();
        self.metadata.mailbox.take(&mut inbox);
        self.waiting.append(&mut inbox);
        if self.flight.is_empty() && !self.waiting.is_empty() {
            self.flight.append(&mut self.waiting);
            self.left.push((0, Op::Sync { file: FileName::new(FileKind::Log, 0) }));
        }
    }
}
