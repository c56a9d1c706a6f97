//! An engine as `node`'s devices and metadata store are, as far as `here` knows them: what it is asked has numbers, and each group of its log is one operation
//! of the disk.

use crate::here::{Between, Next, Served, Turning, Turns};
use crate::loan::Loans;
use crate::sleeper::Sleeper;
use crate::world::Turn;
use base::buffer::Buffer;
use base::disk::{Disk, DiskError, Done, FileKind, FileName, Inline, Op};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What it is asked.
pub(crate) struct Item {
    pub number: usize,
    /// Whether it may be done by whoever asks.
    pub small: bool,
}

pub(crate) type Engine = Served<Item, Model>;

/// What was made durable, in order. Nothing that loom has to know of: it is looked at in turns alone.
type Made = Arc<Mutex<Vec<usize>>>;

pub(crate) struct Model {
    served: Arc<Engine>,
    /// Told when all is made: it stands for those who wait for the answers.
    answered: Arc<Sleeper>,
    expected: usize,
    not_small: Vec<Item>,
    /// Of no group yet.
    waiting: Vec<usize>,
    /// The group that is being written.
    flight: Vec<usize>,
    between: Between,
    made: Made,
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

/// An engine that has answered when it has done `expected` things, its thread, and what it has done.
pub(crate) fn open(sleeper: &Arc<Sleeper>, expected: usize) -> (Arc<Engine>, Turning<Item, Model>, Made) {
    let served = Engine::new(sleeper.clone(), Arc::new(Loans));
    let made = Made::default();
    let model = Model {
        served: served.clone(),
        answered: sleeper.clone(),
        expected,
        not_small: Vec::new(),
        waiting: Vec::new(),
        flight: Vec::new(),
        between: Between::new(Some(Arc::new(AtOnce))),
        made: made.clone(),
    };
    let turning = served.open(model);
    (served, turning, made)
}

impl Turns for Model {
    fn turn(&mut self, done: &mut Vec<Done>, _: &mut dyn Disk) -> Turn {
        assert!(done.is_empty(), "the model's disk does everything at once");
        let mut not_small = std::mem::take(&mut self.not_small);
        self.take(&mut not_small);
        self.take_mailbox(false);
        while self.between.left.pop().is_some() {
            self.completed();
            self.take_mailbox(false);
        }
        let wait = if self.served.mailbox.may_sleep() { None } else { Some(Duration::ZERO) };
        // The checker lets another thread come in between only where something shared is touched, and this turn still has the engine.
        self.served.mailbox.is_empty();
        Turn::Wait(wait)
    }

    fn takes_here(&self) -> bool {
        self.not_small.is_empty()
    }

    fn turn_here(&mut self, done: Option<Done>, operations: usize) -> Next {
        if done.is_some() {
            self.completed();
        }
        self.take_mailbox(true);
        // One operation is enough for all that can happen, and there are fewer histories.
        if operations == 1 {
            return Next::Leave(!self.between.left.is_empty() || !self.not_small.is_empty());
        }
        let wakes = !self.not_small.is_empty();
        self.between.next(operations, None, wakes)
    }
}

impl Model {
    fn completed(&mut self) {
        assert!(!self.flight.is_empty(), "a group ends that nobody began");
        // Loom knows nothing of this lock: it is not held where another thread may come in.
        let made = {
            let mut made = self.made.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            made.append(&mut self.flight);
            made.len()
        };
        if made == self.expected {
            self.answered.notify();
        }
    }

    /// Takes what has come, or only what is small and before the first that is not, and begins a group unless one is under way.
    fn take_mailbox(&mut self, only_small: bool) {
        let mut inbox = Vec::new();
        self.served.mailbox.take(&mut inbox);
        let small = if only_small { inbox.iter().take_while(|item| item.small).count() } else { inbox.len() };
        self.not_small.extend(inbox.split_off(if self.not_small.is_empty() { small } else { 0 }));
        self.take(&mut inbox);
    }

    fn take(&mut self, items: &mut Vec<Item>) {
        self.waiting.extend(items.drain(..).map(|item| item.number));
        if self.flight.is_empty() && !self.waiting.is_empty() {
            self.flight.append(&mut self.waiting);
            self.between.left.push((0, Op::Sync { file: FileName::new(FileKind::Log, 0) }));
        }
    }
}
