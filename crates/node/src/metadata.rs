//! What serves the metadata store, in a thread of its own, and the thread that merges its changes into the tree behind the log.

use crate::mailbox::Mailbox;
use crate::world::{Ended, Turn, Work, World};
use base::disk::{BlockFile, Disk, Done};
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, SessionId};
use base::planted::Planted;
use base::unit::Time;
use meta::{Caller, Effect, Frozen, MergeJob, MergeResult, Reply, Request, Store};
use net::{Cork, Responder};
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};

/// How the rest of the node reaches the metadata store.
pub struct Metadata {
    mailbox: Mailbox<Item>,
    /// The sessions that are open, for those who must not wait for the store.
    open_sessions: RwLock<BTreeSet<SessionId>>,
    /// The session of this very process: it lives as long as the process does, however long the machine stood still.
    kept_open: OnceLock<SessionId>,
    /// Says that something came onto the lists that the node works off: garbage, files whose writer went away.
    work: Mutex<Vec<Arc<Notify>>>,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
}

/// What the metadata thread can be asked.
#[expect(clippy::large_enum_variant, reason = "nearly every item is the large one")]
pub enum Item {
    /// Something for the store, and what to do with the answer.
    Ask { caller: Caller, request: Request, then: Then },
    /// A frozen layer was merged, or was not.
    Merged(MergeResult),
    /// End when nothing is under way.
    Stop,
}

// A call that comes over the network has as much counted for it at the least, for as long as it is in the queue.
const _: () = assert!(size_of::<Item>() as u64 <= base::limit::call_memory(0));

/// Turns an answer of the store into the one on the wire.
pub type Translate = fn(Reply, Responder);

/// What happens with an answer.
pub enum Then {
    /// It goes over the wire in the form that this function gives it.
    Answer(Responder, Translate),
    /// The node itself wants it.
    Tell(oneshot::Sender<Result<Reply>>),
}

/// The session under which the node itself makes changes.
const NODE_SESSION: SessionId = SessionId(0);

impl Metadata {
    /// Hands work to the thread.
    pub fn send(&self, item: Item) {
        self.mailbox.send(item);
    }

    /// Whether a session has begun and is not over.
    pub fn is_open(&self, session: SessionId) -> bool {
        self.open_sessions.read().unwrap_or_else(PoisonError::into_inner).contains(&session)
    }

    /// Those of these marks of sessions (`SessionId::mark`) that no open session has.
    pub fn over(&self, mut marks: Vec<u64>) -> Vec<u64> {
        let open = self.open_sessions.read().unwrap_or_else(PoisonError::into_inner);
        let of =
            |mark: u64| SessionId(u128::from(mark) << 64)..=SessionId(u128::from(mark) << 64 | u128::from(u64::MAX));
        marks.retain(|mark| open.range(of(*mark)).next().is_none());
        marks
    }

    /// This session does not end for want of renewal. The first one that is named counts.
    pub fn keep_open(&self, session: SessionId) {
        let _named = self.kept_open.set(session);
    }

    /// Is notified from now on when something comes onto the lists that the node works off. Each who asks gets his own, and they are notified
    /// in that order: a channel would wake them by chance, and no history of the simulation be played twice.
    pub fn work(&self) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        self.work.lock().unwrap_or_else(PoisonError::into_inner).push(notify.clone());
        notify
    }

    /// Sessions began (true) or ended.
    fn note_turns(&self, turns: Vec<(SessionId, bool)>) {
        if turns.is_empty() {
            return;
        }
        let mut open = self.open_sessions.write().unwrap_or_else(PoisonError::into_inner);
        for (session, begins) in turns {
            if begins {
                open.insert(session);
            } else if self.planted != Some(Planted::EndedSessionAccepted) {
                open.remove(&session);
            }
        }
    }

    /// Asks in the name of a client and waits for the answer.
    pub async fn ask_for(&self, caller: Caller, request: Request) -> Result<Reply> {
        let (tell, told) = oneshot::channel();
        self.send(Item::Ask { caller, request, then: Then::Tell(tell) });
        told.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Open sessions, or only one, and how long they do not end; at most `limit`, those with the longest time.
    pub async fn leases(&self, only: Option<SessionId>, limit: usize) -> Result<Vec<(SessionId, Duration)>> {
        // It is renewed when its time is over: others should not see that time come near.
        if let Some(session) = self.kept_open.get() {
            // One that was closed needs none.
            let _ = self.ask_for(Caller { session: *session, call: 0, floor: 0 }, Request::Renew).await;
        }
        match self.ask(Request::SessionLeases { only, limit }).await? {
            Reply::Leases(leases) => Ok(leases),
            other => unreachable!("leases were asked for: {other:?}"),
        }
    }

    /// Which of these devices were emptied and taken out of the store, and did not come back.
    pub async fn removed(&self, devices: Vec<DeviceId>) -> Result<Vec<DeviceId>> {
        if devices.is_empty() {
            return Ok(devices);
        }
        match self.ask(Request::DevicesRemoved { devices }).await? {
            Reply::WereRemoved(removed) => Ok(removed),
            other => unreachable!("removed devices were asked for: {other:?}"),
        }
    }

    /// Asks in the node's own name. Call number 0 is never remembered: what the node asks can be repeated.
    pub async fn ask(&self, request: Request) -> Result<Reply> {
        self.ask_for(Caller { session: NODE_SESSION, call: 0, floor: 0 }, request).await
    }
}

fn gone() -> Error {
    Error::new(
        ErrorKind::Io,
        "the metadata store is no longer served; what was acknowledged is safe; start the node again",
    )
}

/// Opens the store and starts both threads. It is opened in the thread that serves it, which a ring belongs to.
pub fn spawn(
    world: &dyn World,
    disk: Box<dyn Disk>,
    tree: Box<dyn BlockFile>,
    settings: meta::Settings,
    clock: Arc<dyn Clock>,
) -> Result<(Arc<Metadata>, Vec<Ended>)> {
    let metadata = Arc::new(Metadata {
        mailbox: Mailbox::new(disk.waker()),
        open_sessions: RwLock::default(),
        kept_open: OnceLock::new(),
        work: Mutex::default(),
        planted: settings.planted,
    });
    // One layer is merged at a time, and the one before it may not be freed yet.
    let (jobs, merging) = mpsc::channel(2);
    let merger = world.aside("meta-merge", Box::pin(merge(merging, metadata.clone())))?;
    let (opened, opening) = sync_channel(1);
    let served = metadata.clone();
    let open = move |disk: &mut dyn Disk| -> Option<Box<dyn Work>> {
        match Store::open(disk, tree, &settings, clock.now(), clock.wall()) {
            Ok((mut store, _)) => {
                served.note_turns(store.take_session_turns());
                // Whoever started this thread waits for the word.
                let _ = opened.send(Ok(()));
                let inbox = Vec::new();
                let long = VecDeque::new();
                Some(Box::new(Thread {
                    metadata: served,
                    store,
                    clock,
                    jobs,
                    inbox,
                    long,
                    stopping: false,
                    in_flight: 0,
                }))
            }
            Err(error) => {
                let _ = opened.send(Err(error));
                None
            }
        }
    };
    let serving = world.run("meta", disk, Box::new(open))?;
    opening.recv().unwrap_or_else(|_| Err(gone()))?;
    Ok((metadata, vec![serving, merger]))
}

/// What is done away from the thread that answers, because it takes milliseconds or tens of them.
enum Aside {
    Merge(MergeJob),
    /// A layer that was merged.
    Free(Arc<Frozen>),
}

/// Freed layers of so many changes, some tens of megabytes, leave the allocator with memory that nobody else will want.
const MANY_CHANGES: usize = 200_000;

/// Merges and frees layers.
async fn merge(mut jobs: mpsc::Receiver<Aside>, metadata: Arc<Metadata>) {
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

struct Thread {
    metadata: Arc<Metadata>,
    store: Store<Then>,
    clock: Arc<dyn Clock>,
    jobs: mpsc::Sender<Aside>,
    /// What was taken out of the mailbox; kept for its memory.
    inbox: Vec<Item>,
    /// Long ones (`Item::is_long`) that wait for their turns.
    long: VecDeque<Item>,
    stopping: bool,
    in_flight: usize,
}

impl Item {
    /// Whether it may take milliseconds, so that others should not wait behind many of its kind.
    fn is_long(&self) -> bool {
        matches!(self, Item::Ask { request, .. } if request.is_long())
    }
}

/// Hands over everything short that has come, and one of what is long: the others wait for the next turns.
fn in_turns<T>(come: &mut Vec<T>, long: &mut VecDeque<T>, is_long: impl Fn(&T) -> bool, mut take: impl FnMut(T)) {
    for item in come.drain(..) {
        if is_long(&item) {
            long.push_back(item);
        } else {
            take(item);
        }
    }
    if let Some(item) = long.pop_front() {
        take(item);
    }
}

impl Work for Thread {
    fn turn(&mut self, done: &mut Vec<Done>, disk: &mut dyn Disk) -> Turn {
        self.metadata.mailbox.awake();
        let now = self.clock.now();
        for finished in done.drain(..) {
            self.in_flight -= 1;
            self.store.completed(now, finished);
        }
        self.perform(disk);
        let mut inbox = std::mem::take(&mut self.inbox);
        self.metadata.mailbox.take(&mut inbox);
        let mut long = std::mem::take(&mut self.long);
        in_turns(&mut inbox, &mut long, Item::is_long, |item| match item {
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
        if self.store.next_tick().is_some_and(|due| due <= now) {
            self.renew_kept_open(now);
            self.store.tick(now, self.clock.wall());
        }
        if let Some(job) = self.store.merge_job(now) {
            hand_over(&self.jobs, Aside::Merge(job));
        }
        self.perform(disk);
        if self.stopping && self.in_flight == 0 && self.long.is_empty() {
            return Turn::End;
        }
        Turn::Wait(if self.long.is_empty() && self.metadata.mailbox.may_sleep() {
            self.store.next_tick().map(|due| due.since(now))
        } else {
            Some(Duration::ZERO)
        })
    }
}

impl Thread {
    fn renew_kept_open(&mut self, now: Time) {
        if let Some(session) = self.metadata.kept_open.get() {
            let caller = Caller { session: *session, call: 0, floor: 0 };
            // Nobody waits for the answer: a session that was closed needs none.
            let (tell, _) = oneshot::channel();
            self.store.submit(now, self.clock.wall(), caller, Request::Renew, Then::Tell(tell));
        }
    }

    fn perform(&mut self, disk: &mut dyn Disk) {
        let _cork = Cork::hold();
        // Before the answers: who hears that its session began must be believed.
        self.metadata.note_turns(self.store.take_session_turns());
        if self.store.take_made_work() {
            let work = self.metadata.work.lock().unwrap_or_else(PoisonError::into_inner);
            work.iter().for_each(|notify| notify.notify_one());
        }
        for effect in self.store.take_effects() {
            match effect {
                Effect::Disk { token, op } => {
                    self.in_flight += 1;
                    disk.submit(token, op);
                }
                Effect::Reply { tag: Then::Answer(respond, translate), result } => match result {
                    Ok(reply) => translate(reply, respond),
                    Err(error) => respond.fail(error),
                },
                // The one who asked may be gone; then nobody misses the answer.
                Effect::Reply { tag: Then::Tell(tell), result } => drop(tell.send(result)),
            }
        }
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
            in_turns(&mut come, &mut long, |item| *item >= 100, |item| done.push(item));
            assert!(come.is_empty());
        }
        assert_eq!(done, [1, 2, 100, 101, 3, 102, 103]);
        assert!(long.is_empty());
    }
}
