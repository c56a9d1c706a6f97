//! The thread of the metadata store: turns, in which the store takes what has come and what the disk has done, and its answers leave. And
//! the thread that merges its changes into the tree behind the log.

use super::{Item, Metadata, Then};
use crate::here::{Between, Next, Turns};
use crate::world::Turn;
use base::disk::{Disk, Done};
use base::env::Clock;
use base::unit::Time;
use meta::{Caller, Effect, Frozen, MergeJob, Request, Store};
use net::Cork;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// What is done away from the thread that answers, because it takes milliseconds or tens of them.
pub(super) enum Aside {
    Merge(MergeJob),
    /// A layer that was merged.
    Free(Arc<Frozen>),
}

/// Freed layers of so many changes, some tens of megabytes, leave the allocator with memory that nobody else will want.
const MANY_CHANGES: usize = 200_000;

/// Merges and frees layers.
pub(super) async fn merge(mut jobs: mpsc::Receiver<Aside>, metadata: Arc<Metadata>) {
    while let Some(job) = jobs.recv().await {
        match job {
            Aside::Merge(job) => metadata.send(Item::Merged(job.run())),
            Aside::Free(frozen) => {
                // A log that waits for room waits for the merge.
                if let Ok(Aside::Merge(job)) = jobs.try_recv() {
                    metadata.send(Item::Merged(job.run()));
                }
                let many = frozen.overlay.len() >= MANY_CHANGES;
                drop(frozen);
                if many {
                    os::process::give_back_memory();
                }
            }
        }
    }
}

fn hand_over(jobs: &mpsc::Sender<Aside>, job: Aside) {
    if jobs.try_send(job).is_err() {
        unreachable!(
            "the merging task has one layer to merge and one to free at the most, and lives as long as this one"
        );
    }
}

pub(super) struct Thread {
    metadata: Arc<Metadata>,
    store: Store<Then>,
    clock: Arc<dyn Clock>,
    jobs: mpsc::Sender<Aside>,
    /// What was taken out of the mailbox; kept for its memory.
    inbox: Vec<Item>,
    /// Long ones (`Item::is_long`) that wait for their turns.
    long: VecDeque<Item>,
    stopping: bool,
    /// It has had its last turn.
    ended: bool,
    in_flight: usize,
    between: Between,
}

impl Item {
    /// Whether it may take milliseconds, so that others should not wait behind many of its kind.
    fn is_long(&self) -> bool {
        matches!(self, Item::Ask { request, .. } if request.is_long())
    }
}

/// Hands over everything short that has come, and one of what is long, or none: the others wait for the next turns.
fn in_turns<T>(
    come: &mut Vec<T>,
    (long, takes_long): (&mut VecDeque<T>, bool),
    is_long: impl Fn(&T) -> bool,
    mut take: impl FnMut(T),
) {
    for item in come.drain(..) {
        if is_long(&item) {
            long.push_back(item);
        } else {
            take(item);
        }
    }
    if takes_long && let Some(item) = long.pop_front() {
        take(item);
    }
}

impl Thread {
    pub(super) fn new(
        metadata: Arc<Metadata>,
        store: Store<Then>,
        clock: Arc<dyn Clock>,
        jobs: mpsc::Sender<Aside>,
        between: Between,
    ) -> Thread {
        Thread {
            metadata,
            store,
            clock,
            jobs,
            inbox: Vec::new(),
            long: VecDeque::new(),
            stopping: false,
            ended: false,
            in_flight: 0,
            between,
        }
    }

    fn completed(&mut self, now: Time, done: Done) {
        self.in_flight -= 1;
        self.store.completed(now, done);
    }

    /// Takes what has come, and one that is long, or none.
    fn take_mailbox(&mut self, now: Time, takes_long: bool) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.metadata.served.mailbox.take(&mut inbox);
        let mut long = std::mem::take(&mut self.long);
        if !inbox.is_empty() {
            self.between.tells();
        }
        in_turns(&mut inbox, (&mut long, takes_long), Item::is_long, |item| match item {
            Item::Ask { caller, request, then } => {
                self.store.submit(now, self.clock.wall(), caller, request, then);
            }
            Item::Merged(merged) => {
                if let Some(frozen) = self.store.merged(now, merged) {
                    hand_over(&self.jobs, Aside::Free(frozen));
                }
            }
            Item::Stop => self.stopping = true,
        });
        (self.inbox, self.long) = (inbox, long);
    }

    fn merge(&mut self, now: Time) {
        if let Some(job) = self.store.merge_job(now) {
            self.between.tells();
            hand_over(&self.jobs, Aside::Merge(job));
        }
    }

    fn renew_kept_open(&mut self, now: Time) {
        if let Some(session) = self.metadata.kept_open.get() {
            let caller = Caller { session: *session, call: 0, floor: 0 };
            // Nobody waits for the answer: a session that was closed needs none.
            let (tell, _) = oneshot::channel();
            self.store.submit(now, self.clock.wall(), caller, Request::Renew, Then::Tell(tell));
        }
    }

    /// Lets answers go, and notes what the disk is to do.
    fn perform(&mut self) {
        let _cork = Cork::hold();
        let effects = self.store.take_effects(self.clock.now());
        // Before the answers leave, and with all that they tell: who hears that its session began must be believed, and one that is over forgets.
        self.metadata.note_turns(self.store.take_session_turns());
        if self.store.take_made_work() {
            self.between.tells();
            self.metadata.notify_of_work();
        }
        for effect in effects {
            match effect {
                Effect::Disk { token, op } => {
                    self.in_flight += 1;
                    self.between.left.push((token, op));
                    continue;
                }
                // It is alone.
                Effect::Send { .. } | Effect::Turned(_) | Effect::Page(_) | Effect::Copy(_) | Effect::Copied => {
                    continue;
                }
                Effect::Reply { tag: Then::Answer(respond, translate), result } => match result {
                    Ok(reply) => translate(reply, respond),
                    Err(error) => respond.fail(error),
                },
                // The one who asked may be gone; then nobody misses the answer.
                Effect::Reply { tag: Then::Tell(tell), result } => drop(tell.send(result)),
            }
            self.between.tells();
        }
    }

    fn hand_over_left(&mut self, disk: &mut dyn Disk) {
        for (token, op) in self.between.left.drain(..) {
            disk.submit(token, op);
        }
    }
}

impl Turns for Thread {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        let now = self.clock.now();
        for finished in done.drain(..) {
            self.completed(now, finished);
        }
        self.perform();
        self.hand_over_left(disk);
        self.take_mailbox(now, true);
        if self.store.next_tick().is_some_and(|due| due <= now) {
            self.renew_kept_open(now);
            self.store.tick(now, self.clock.wall());
            self.store.take_failures().iter().for_each(|(what, error)| self.metadata.tell(what, error));
        }
        self.merge(now);
        self.perform();
        self.hand_over_left(disk);
        if self.stopping && self.in_flight == 0 && self.long.is_empty() {
            self.ended = true;
            self.between.end();
            return Turn::End;
        }
        let wait = match self.long.is_empty() && self.metadata.served.mailbox.may_sleep() {
            true => self.store.next_tick().map(|due| due.since(now)),
            false => Some(Duration::ZERO),
        };
        self.between.sleeps(now, wait);
        Turn::Wait(wait)
    }

    /// Not if something is due: sessions that are over end before anybody is told of them.
    fn takes_here(&self) -> bool {
        let is_due = self.store.next_tick().is_some_and(|due| due <= self.clock.now());
        !self.ended && !is_due && self.between.is_fast()
    }

    /// What is not small, or not the first group of the log, is left to the metadata's thread, and so are long questions, and what is due at some
    /// time.
    fn turn_here(&mut self, done: Option<Done>, operations: usize) -> Next {
        let now = self.clock.now();
        if let Some(done) = done {
            self.completed(now, done);
            // Whoever waits for that hears of it before more is begun.
            self.perform();
        }
        self.take_mailbox(now, false);
        self.merge(now);
        self.perform();
        self.between.took(now, self.clock.now());
        let wakes = self.stopping || !self.long.is_empty();
        self.between.next(operations, self.store.next_tick(), wakes)
    }
}

#[cfg(test)]
mod tests {
    use super::in_turns;
    use std::collections::VecDeque;

    /// What is short never waits behind more than one that is long, whatever came first; what is long keeps its order, and all of it is done.
    #[test]
    fn short_ones_pass() {
        let (mut long, mut done) = (VecDeque::new(), Vec::new());
        for mut come in [vec![100, 101, 1, 102, 2], vec![], vec![3, 103], vec![], vec![]] {
            in_turns(&mut come, (&mut long, true), |item| *item >= 100, |item| done.push(item));
            assert!(come.is_empty());
            in_turns(&mut vec![7, 200], (&mut VecDeque::new(), false), |item| *item >= 100, |item| assert_eq!(item, 7));
        }
        assert_eq!(done, [1, 2, 100, 101, 3, 102, 103]);
        assert!(long.is_empty());
    }
}
