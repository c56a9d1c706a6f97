//! Askers that have something done in their own thread, or leave it to the engine's.

use crate::engine::{Item, open};
use crate::sleeper::{Sleeper, check};
use crate::world::{Turn, Work};
use base::burst::Gathers;
use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use std::sync::Arc;
use std::time::Duration;

/// How somebody asks two things.
#[derive(Clone, Copy, Debug)]
pub enum Asker {
    /// Both are small, in a burst.
    Burst,
    /// One that is not small, which the engine's thread is woken for, then one that is small and is done at once, if that can be.
    AtOnce,
    /// Both by themselves, for the engine's thread.
    Alone,
}

/// A disk of which nobody wants anything: the model's operations are done by whoever takes a turn.
struct Idle;

impl Disk for Idle {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        unreachable!("only opened engines are checked")
    }
    fn submit(&mut self, _: u64, _: Op) {
        unreachable!("the model's engine does its operations itself")
    }
    fn poll(&mut self, _: Option<Duration>, _: &mut Vec<Done>) {
        unreachable!("the model sleeps itself")
    }
    fn waker(&self) -> Arc<dyn Wake> {
        unreachable!("the mailbox has the sleeper's")
    }
    fn backend(&self) -> &'static str {
        "model"
    }
}

/// All that these askers ask is done, once, what one of them asked in its order. If the engine's thread is left asleep before that, nobody can go on, and
/// loom says so.
pub fn nothing_is_left(askers: &'static [Asker]) {
    check(3, move || {
        let sleeper = Arc::new(Sleeper::default());
        let expected = 2 * askers.len();
        let (engine, mut turning, made) = open(&sleeper, expected);
        let threads: Vec<_> = askers
            .iter()
            .enumerate()
            .map(|(place, asker)| {
                let engine = engine.clone();
                loom::thread::spawn(move || {
                    let item = |number, small| Item { number: 2 * place + number, small };
                    match asker {
                        Asker::Burst => {
                            engine.mailbox.put(item(0, true));
                            engine.mailbox.put(item(1, true));
                            engine.burst_ended();
                        }
                        Asker::AtOnce => {
                            engine.mailbox.send(item(0, false));
                            engine.mailbox.put(item(1, true));
                            engine.take_turns();
                        }
                        Asker::Alone => (0..2).for_each(|number| engine.mailbox.send(item(number, true))),
                    }
                })
            })
            .collect();
        let made = || made.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        while made().len() < expected {
            let Turn::Wait(wait) = turning.turn(&mut Vec::new(), &mut Idle) else { unreachable!("nobody ends it") };
            if wait.is_none() && made().len() < expected {
                sleeper.wait();
            }
        }
        threads.into_iter().for_each(|thread| assert!(thread.join().is_ok(), "an asker ends"));
        let made = made();
        for place in 0..askers.len() {
            let of_one: Vec<usize> = made.iter().copied().filter(|number| number / 2 == place).collect();
            assert_eq!(of_one, [2 * place, 2 * place + 1], "lost, doubled or out of order");
        }
    });
}
