//! An engine that is served by a thread of its own, and by those who ask: what somebody asks is done in the asker's thread, up to one write and one
//! sync of a log, if the engine's thread is not at work at that moment and the disk is fast. It costs no wake-up of another thread on its way
//! there then, none at the disk and none on the way back (records 0432, 0446, 0449).

use crate::loan::Loans;
use crate::mailbox::Mailbox;
use crate::sync::{AtomicBool, Mutex, MutexGuard};
use crate::world::{Turn, Work};
use base::burst::Gathers;
use base::disk::{Disk, Done, FileKind, Inline, Op, Wake};
use base::unit::Time;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, TryLockError, Weak};
use std::time::Duration;

/// A turn in an asker's thread that takes so long waited for a disk behind the engine's back (a page of a tree, the page cache), or for a processor: it
/// counts as slow as an operation of the log would.
const SLOW: Duration = Duration::from_millis(1);

/// Operations of one asker: a group of the log is written and synced. Whoever goes on with others' groups does not answer its own callers.
const OPERATIONS: usize = 2;

/// What is done in turns, by the engine's thread and by those who ask.
pub(crate) trait Turns: Send {
    /// One turn of the engine's thread.
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn;

    /// Whether something may be done in another thread now.
    fn takes_here(&self) -> bool;

    /// A turn in the thread of whoever asks, after `done`, the end of what it did for the one before; `operations` of them so far.
    fn turn_here(&mut self, done: Option<Done>, operations: usize) -> Next;
}

/// What an asker does next in its own thread.
pub(crate) enum Next {
    /// This, and then it asks again. True: somebody may have been told something since the operation before it.
    Do(Arc<dyn Inline>, (u64, Op), bool),
    /// Nothing. True: the engine's thread has to take a turn.
    Leave(bool),
}

/// What the turns of the engine's thread and those of others leave to each other.
#[derive(Default)]
pub(crate) struct Between {
    /// What the disk is to do; it is in flight.
    pub left: Vec<(u64, Op)>,
    /// For those who do it themselves; none: nobody does.
    inline: Option<Arc<dyn Inline>>,
    /// When the engine's thread takes its next turn if nothing wakes it. None: never.
    sleeps_until: Option<Time>,
    /// Since an operation was last done here, somebody may have been told something: a task of the runtime may have been woken.
    told: bool,
}

impl Between {
    /// Nothing is left; operations may be done with `inline`.
    pub fn new(inline: Option<Arc<dyn Inline>>) -> Between {
        Between { inline, ..Between::default() }
    }

    /// Whether others can do operations, and the disk is fast.
    pub fn is_fast(&self) -> bool {
        self.inline.as_ref().is_some_and(|inline| inline.is_fast())
    }

    /// The engine is over: what operations are done with holds its directory.
    pub fn end(&mut self) {
        self.inline = None;
    }

    /// The engine's thread is about to sleep for `wait`; none: until it is woken.
    pub fn sleeps(&mut self, now: Time, wait: Option<Duration>) {
        self.sleeps_until = wait.map(|wait| now.after(wait));
    }

    /// Somebody may have been told something: an answer, that there is work to do.
    pub fn tells(&mut self) {
        self.told = true;
    }

    /// A turn in an asker's thread took from `began` to `now`.
    pub fn took(&self, began: Time, now: Time) {
        let took = now.since(began);
        if took >= SLOW
            && let Some(inline) = &self.inline
        {
            inline.took(took);
        }
    }

    /// What an asker does next, after so many operations: what is left, if that is one small operation. Else it leaves, and wakes the engine's thread for
    /// what is left, if the engine has something `due` sooner than that thread would look, or if it `wakes` anyway.
    pub fn next(&mut self, operations: usize, due: Option<Time>, wakes: bool) -> Next {
        if let ([(_, op)], Some(inline)) = (&*self.left, &self.inline)
            && operations < OPERATIONS
            && op.is_small()
            && inline.is_fast()
        {
            let inline = inline.clone();
            if let Some(operation) = self.left.pop() {
                return Next::Do(inline, operation, std::mem::take(&mut self.told));
            }
        }
        let sooner = due.is_some_and(|due| self.sleeps_until.is_none_or(|until| due < until));
        if sooner {
            self.sleeps_until = due;
        }
        Next::Leave(sooner || wakes || !self.left.is_empty())
    }
}

/// How an engine is reached: the questions of type `I`, and the turns `T` of whoever has taken it.
pub(crate) struct Served<I, T> {
    pub mailbox: Mailbox<I>,
    /// Set when the engine is open.
    turns: OnceLock<Weak<Mutex<T>>>,
    /// Itself.
    me: Weak<Served<I, T>>,
    /// Somebody who asked panicked in a turn or at an operation: the engine waits for what will never end.
    broken: AtomicBool,
    loans: Arc<Loans>,
}

/// The engine's thread: each turn has the engine to itself.
pub(crate) struct Turning<I, T>(Arc<Mutex<T>>, Arc<Served<I, T>>);

impl<I: Send + 'static, T: Turns + 'static> Work for Turning<I, T> {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        let Turning(turns, served) = self;
        assert!(!served.broken.load(Ordering::Acquire), "{FAULT}");
        let mut turns = whole(turns);
        served.mailbox.awake();
        turns.turn(done, disk)
    }
}

const FAULT: &str = "an engine's fault showed in the thread of one who asked it";

fn whole<T>(turns: &Mutex<T>) -> MutexGuard<'_, T> {
    match turns.lock() {
        Ok(turns) => turns,
        Err(_) => panic!("{FAULT}"),
    }
}

/// Tells the engine's thread if the engine is left by a panic, or an operation of the log is: it ends as it does after a panic of its own.
struct TellsOfPanic<'a, I, T>(&'a Served<I, T>);

impl<I, T> Drop for TellsOfPanic<'_, I, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.broken.store(true, Ordering::Release);
            self.0.mailbox.wake();
        }
    }
}

impl<I: Send + 'static, T: Turns + 'static> Gathers for Served<I, T> {
    fn burst_ended(&self) -> bool {
        self.take_turns()
    }

    fn leave(&self) {
        self.mailbox.wake();
    }
}

impl<I: Send + 'static, T: Turns + 'static> Served<I, T> {
    /// An engine that is opened with the disk of this waker.
    pub fn new(waker: Arc<dyn Wake>, loans: Arc<Loans>) -> Arc<Served<I, T>> {
        Arc::new_cyclic(|me| Served {
            mailbox: Mailbox::new(waker),
            turns: OnceLock::new(),
            me: me.clone(),
            broken: AtomicBool::new(false),
            loans,
        })
    }

    /// The engine is open: what its thread does from now on.
    pub fn open(self: &Arc<Self>, turns: T) -> Turning<I, T> {
        let turns = Arc::new(Mutex::new(turns));
        let set = self.turns.set(Arc::downgrade(&turns));
        assert!(set.is_ok(), "an engine is opened once");
        Turning(turns, Arc::clone(self))
    }

    /// Hands something to the end of the burst that this thread is in. False: it is in none, and has to see to it that somebody looks.
    pub fn send_in_burst(&self, item: I) -> bool {
        self.mailbox.put(item);
        self.me.upgrade().is_some_and(|me| base::burst::join(&me))
    }

    /// Takes what came and does it here, as far as that goes, and leaves the rest to the engine's thread. True: a disk kept this thread for a while.
    pub fn take_turns(&self) -> bool {
        if std::thread::panicking() {
            self.mailbox.wake();
            return false;
        }
        let _tells = TellsOfPanic(self);
        let (operations, wakes) = self.turns_here();
        if wakes {
            self.mailbox.wake();
        }
        operations > 0
    }

    /// How many operations of the disk that were, and whether the engine's thread has to take a turn.
    fn turns_here(&self) -> (usize, bool) {
        let Some(shared) = self.turns.get().and_then(Weak::upgrade) else { return (0, true) };
        // A thread that is awake comes anyway, and both would only wait for each other.
        if !self.mailbox.is_asleep() {
            return (0, true);
        }
        // Whoever has it may have looked into the mailbox before this came.
        let mut turns = match shared.try_lock() {
            Ok(turns) => turns,
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => return (0, true),
        };
        let Some(loan) = self.loans.begin().filter(|_| turns.takes_here()) else { return (0, true) };
        let (mut done, mut operations, mut frees) = (None, 0, false);
        loop {
            let (inline, (token, op), told) = match turns.turn_here(done, operations) {
                Next::Do(inline, operation, told) => (inline, operation, told),
                // Who found it locked meanwhile has woken the thread.
                Next::Leave(wakes) => return (operations, wakes),
            };
            // Others may ask meanwhile; what they change is in the next group.
            drop(turns);
            // Before the first, whoever asked may have woken somebody. This wakes another thread, so it is not done for nothing.
            if operations == 0 || told || frees {
                loan.begins();
            }
            // With the end of a write of data its memory goes, for which somebody may wait.
            frees = matches!(&op, Op::Write { file, .. } if file.kind == FileKind::Data);
            done = Some(Done { token, result: inline.execute(op) });
            operations += 1;
            turns = whole(&shared);
        }
    }
}
