//! The thread of the metadata store: turns, in which the store takes what has come and what the disk has done, and its answers leave.

use super::aside::{Aside, Copying, copies, hand_over};
use super::kept::{Ends, Kept, Several};
use super::{Item, Metadata, Then};
use crate::here::{Between, Next, Turns};
use crate::world::Turn;
use base::disk::{Disk, Done};
use base::env::Clock;
use base::error::Error;
use base::moved::Moved;
use base::unit::Time;
use meta::{Caller, Effect, KeeperId, KeeperMessage, Part, Request, Store};
use net::Cork;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

pub(super) struct Thread {
    metadata: Arc<Metadata>,
    kept: Kept,
    /// It is one of several keepers.
    several: Option<Several>,
    clock: Arc<dyn Clock>,
    jobs: mpsc::Sender<Aside>,
    copying: mpsc::Sender<Copying>,
    /// Merges and pages that are worked on elsewhere: they have the store's tree.
    aside: usize,
    /// Messages of other keepers that were taken; kept for its memory.
    heard: Vec<KeeperMessage>,
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
        (kept, several): (Kept, Option<Several>),
        clock: Arc<dyn Clock>,
        (jobs, copying): (mpsc::Sender<Aside>, mpsc::Sender<Copying>),
        between: Between,
    ) -> Thread {
        let mut thread = Thread {
            metadata,
            kept,
            several,
            clock,
            jobs,
            copying,
            aside: 0,
            heard: Vec::new(),
            inbox: Vec::new(),
            long: VecDeque::new(),
            stopping: false,
            ended: false,
            in_flight: 0,
            between,
        };
        thread.note_sessions();
        thread.note_part();
        thread
    }

    /// A store was opened: it says which sessions are open. Until one is, those that were are.
    fn note_sessions(&mut self) {
        if let Some(turns) = self.store().map(Store::take_session_turns) {
            self.metadata.sessions_are(turns);
        }
    }

    /// The store, if it is there, and not about to end.
    fn store(&mut self) -> Option<&mut Store<Then>> {
        match &mut self.kept {
            Kept::Serves(store) if self.several.as_ref().is_none_or(|several| several.ends.is_none()) => Some(store),
            _ => None,
        }
    }

    /// Tells others what it does for the keepers.
    fn note_part(&mut self) {
        let before = self.metadata.part();
        let part = match self.store().map(|store| store.part()) {
            // One that was just opened has heard of no term yet.
            Some(Part::Follows { leader, term }) => Part::Follows { leader, term: term.max(before.term()) },
            Some(part) => part,
            None => Part::Follows { leader: None, term: before.term() },
        };
        if part != before {
            self.metadata.part.set(part);
        }
    }

    fn completed(&mut self, now: Time, done: Done) {
        self.in_flight -= 1;
        if let Some(store) = self.store() {
            store.completed(now, done);
        }
    }

    /// Whether other keepers sent something.
    fn is_spoken_to(&self) -> bool {
        self.several.is_some() && !self.metadata.heard.is_empty()
    }

    /// Takes what other keepers sent. The time is read after that: what a keeper promises in answer to a message it promises from then on.
    fn take_heard(&mut self) {
        if self.several.is_none() {
            return;
        }
        let mut heard = std::mem::take(&mut self.heard);
        self.metadata.heard.take(&mut heard);
        let now = self.clock.now();
        for message in heard.drain(..) {
            match &mut self.kept {
                Kept::Mends(mending) => mending.receive(now, message),
                Kept::Serves(_) | Kept::Waits(_) => {
                    if let Some(store) = self.store() {
                        store.receive(now, message);
                    }
                }
            }
        }
        self.heard = heard;
    }

    /// Takes what has come, and one that is long, or none. The time is read after that: what is answered of times, as how long a session lasts, is
    /// counted from when it was asked, and that is not later.
    fn take_mailbox(&mut self, takes_long: bool) {
        let mut inbox = std::mem::take(&mut self.inbox);
        self.metadata.served.mailbox.take(&mut inbox);
        let now = self.clock.now();
        let mut long = std::mem::take(&mut self.long);
        if !inbox.is_empty() {
            self.between.tells();
        }
        in_turns(&mut inbox, (&mut long, takes_long), Item::is_long, |item| self.takes(now, item));
        (self.inbox, self.long) = (inbox, long);
    }

    fn takes(&mut self, now: Time, item: Item) {
        match item {
            Item::Ask { caller, request, then } => {
                let wall = self.clock.wall();
                match self.store() {
                    Some(store) => store.submit(now, wall, caller, request, then),
                    None => then.tell(Err(self.elsewhere())),
                }
            }
            Item::Merged(merged) => {
                self.aside -= 1;
                if let Some(frozen) = self.store().and_then(|store| store.merged(now, merged)) {
                    hand_over(&self.jobs, Aside::Free(frozen));
                }
            }
            Item::Paged(page) => {
                self.aside -= 1;
                match page {
                    // One that is about to end says nothing more.
                    Ok(_) if self.store().is_none() => {}
                    Ok((to, message)) => self.send(to, message),
                    Err(error) => self.metadata.tell("reading the tree for another keeper", &error),
                }
            }
            Item::Copied(copied) => {
                self.aside -= 1;
                if let Kept::Mends(mending) = &mut self.kept {
                    if let Err(error) = mending.copied(now, copied) {
                        self.metadata.tell("copying the tree of another keeper", &error);
                    }
                } else if let Some(store) = self.store() {
                    store.copied(now, copied);
                }
            }
            Item::HandOver => {
                if let Some(store) = self.store() {
                    store.hand_over(now);
                }
            }
            Item::Stop => self.stopping = true,
        }
    }

    fn send(&self, to: KeeperId, message: KeeperMessage) {
        if let Some(several) = &self.several {
            several.carrier.send(to, message);
        }
    }

    /// What is said to those who ask while there is no store.
    fn elsewhere(&self) -> Error {
        Moved { leader: None, term: self.metadata.part().term() }.into()
    }

    fn merge(&mut self, now: Time) {
        if let Some(job) = self.store().and_then(|store| store.merge_job(now)) {
            self.between.tells();
            self.aside += 1;
            hand_over(&self.jobs, Aside::Merge(job));
        }
    }

    /// Does what is due at some time.
    fn tick(&mut self, now: Time) {
        if self.next_tick().is_none_or(|due| due > now) {
            return;
        }
        let wall = self.clock.wall();
        self.renew_kept_open(now);
        if let Kept::Mends(mending) = &mut self.kept {
            mending.tick(now);
        }
        let Some(store) = self.store() else { return };
        store.tick(now, wall);
        let failures = store.take_failures();
        failures.iter().for_each(|(what, error)| self.metadata.tell(what, error));
    }

    /// When `tick` has something to do, or the store is opened again.
    fn next_tick(&self) -> Option<Time> {
        match &self.kept {
            // It ends when something ends.
            Kept::Serves(_) if self.several.as_ref().is_some_and(|several| several.ends.is_some()) => None,
            Kept::Serves(store) => store.next_tick(),
            Kept::Mends(mending) => mending.next_tick(),
            Kept::Waits(until) => Some(*until),
        }
    }

    fn renew_kept_open(&mut self, now: Time) {
        if let Some(session) = self.metadata.kept_open.get() {
            let caller = Caller { session: *session, call: 0, floor: 0 };
            // Nobody waits for the answer: a session that was closed needs none.
            let (tell, _) = oneshot::channel();
            let wall = self.clock.wall();
            if let Some(store) = self.store() {
                store.submit(now, wall, caller, Request::Renew, Then::Tell(tell));
            }
        }
    }

    /// Lets answers go, and notes what the disk is to do.
    fn perform(&mut self) {
        let _cork = Cork::hold();
        let now = self.clock.now();
        let effects = match &mut self.kept {
            Kept::Mends(mending) => mending.take_effects(),
            Kept::Serves(_) | Kept::Waits(_) => self.store().map(|store| store.take_effects(now)).unwrap_or_default(),
        };
        if let Some(store) = self.store() {
            let (turns, made_work) = (store.take_session_turns(), store.take_made_work());
            // Before the answers leave, and with all that they tell: who hears that its session began must be believed, and one that is over forgets.
            self.metadata.note_turns(turns);
            if made_work {
                self.between.tells();
                self.metadata.notify_of_work();
            }
        }
        effects.into_iter().for_each(|effect| self.does(effect));
        self.note_failure();
        if self.several.is_some() {
            let copies = match &self.kept {
                Kept::Mends(_) => true,
                Kept::Serves(store) => store.copies(),
                Kept::Waits(_) => false,
            };
            self.metadata.copies.store(copies, Ordering::Relaxed);
        }
    }

    fn does(&mut self, effect: Effect<Then>) {
        match effect {
            Effect::Disk { token, op } => {
                self.in_flight += 1;
                self.between.left.push((token, op));
                return;
            }
            Effect::Send { to, message } => self.send(to, message),
            Effect::Turned(_) => self.note_part(),
            Effect::Page(job) => self.aside += usize::from(copies(&self.copying, Copying::Page(job))),
            Effect::Copy(job) => self.aside += usize::from(copies(&self.copying, Copying::Write(job))),
            Effect::Copied => self.end_store(Ends::Copied),
            Effect::Reply { tag, result } => tag.tell(result),
        }
        self.between.tells();
    }

    /// A store of one of several that failed ends, and is opened again: another one leads meanwhile.
    fn note_failure(&mut self) {
        if self.several.is_some() && self.store().is_some_and(|store| store.has_failed()) {
            if let Some(Err(error)) = self.store().map(|store| store.in_service()) {
                self.metadata.stands(Some(&error));
                self.metadata.tell("keeping the metadata", &error);
            }
            self.end_store(Ends::Failed);
        }
    }

    fn end_store(&mut self, ends: Ends) {
        if let Some(several) = &mut self.several {
            several.ends = several.ends.or(Some(ends));
        }
        self.note_part();
    }

    /// Opens the store again when nothing of the one before is under way any more, on its disk or elsewhere, and the time has come.
    fn begin_again(&mut self, now: Time, disk: &mut dyn Disk) -> bool {
        if self.in_flight > 0 || self.aside > 0 || self.stopping {
            return false;
        }
        let Some(several) = &mut self.several else { return false };
        let ends = several.ends.take();
        let swaps = match (&self.kept, ends) {
            (_, Some(Ends::Copied)) => true,
            (_, Some(Ends::Failed)) => {
                self.kept = several.waits(now);
                return false;
            }
            (Kept::Waits(until), None) if *until <= now => false,
            (_, None) => return false,
        };
        // The tree's file is closed before another one takes its place, or it is opened again.
        self.kept = Kept::Waits(now);
        let (kept, trouble) = several.begins(disk, self.clock.as_ref(), swaps);
        self.kept = kept;
        self.metadata.stands(trouble.as_ref());
        if let Some(error) = trouble {
            self.metadata.tell("opening the metadata again", &error);
        }
        self.note_sessions();
        self.note_part();
        true
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
        self.take_heard();
        self.take_mailbox(true);
        self.tick(now);
        self.merge(now);
        self.perform();
        self.hand_over_left(disk);
        let begins = self.begin_again(now, disk);
        if self.stopping && self.in_flight == 0 && self.long.is_empty() {
            if let Some(store) = self.store() {
                store.give_up();
                self.perform();
            }
            self.ended = true;
            self.between.end();
            return Turn::End;
        }
        // In this order: what comes now wakes this thread.
        let may_sleep = self.long.is_empty() && self.metadata.served.mailbox.may_sleep();
        let wait = match may_sleep && !begins && !self.is_spoken_to() {
            true => self.next_tick().map(|due| due.since(now)),
            false => Some(Duration::ZERO),
        };
        self.between.sleeps(now, wait);
        Turn::Wait(wait)
    }

    /// Not if something is due: sessions that are over end before anybody is told of them.
    fn takes_here(&self) -> bool {
        let is_due = self.next_tick().is_some_and(|due| due <= self.clock.now());
        !self.ended && !is_due && !self.is_spoken_to() && self.between.is_fast()
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
        self.take_mailbox(false);
        self.merge(now);
        self.perform();
        self.between.took(now, self.clock.now());
        let wakes = self.stopping || !self.long.is_empty();
        let ends = self.several.as_ref().is_some_and(|several| several.ends.is_some());
        self.between.next(operations, self.next_tick(), wakes || ends)
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
