//! What serves the metadata store, in a thread of its own, and the threads that merge its changes into the tree behind the log and copy that.

mod aside;
mod heard;
mod kept;
#[cfg(test)]
mod tests;
mod thread;

use crate::here::{Between, Served};
use crate::loan::Loans;
use crate::troubles::Troubles;
use crate::world::{Ended, Work, World};
use base::disk::Disk;
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::id::{DeviceId, SessionId};
use base::moved::Moved;
use base::planted::Planted;
use base::watched::Watched;
use heard::Heard;
pub use kept::{Carrier, Files, TREE};
use kept::{Kept, Several};
use meta::{Caller, CopyResult, KeeperId, KeeperMessage, MergeResult, Part, Reply, Request, Store};
use net::Responder;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;

/// Longest wait for another keeper to lead in this one's place. One that was asked to and does not come is given up after half a second, and there
/// is an election: nothing is gained by waiting on.
const HAND_OVER_MAX: Duration = Duration::from_secs(1);

/// How the rest of the node reaches the metadata store.
pub struct Metadata {
    /// Its thread, and those who ask.
    served: Arc<Served<Item, thread::Thread>>,
    /// The sessions that are open, for those who must not wait for the store.
    open_sessions: RwLock<BTreeSet<SessionId>>,
    /// The session of this very process: it lives as long as the process does, however long the machine stood still.
    kept_open: OnceLock<SessionId>,
    /// Say that something came onto the lists that the node works off: garbage, files whose writer went away. They are those of jobs, and go with
    /// them: a keeper that leads again and again begins its jobs as often.
    work: Mutex<Vec<Weak<Notify>>>,
    /// What the store does for the keepers.
    part: Watched<Part>,
    /// What other keepers sent.
    heard: Heard,
    /// Why it has no store now, if it has none.
    standing: Mutex<Option<String>>,
    /// Its store was opened once, or could not be: one of several may have much to read first.
    has_opened: AtomicBool,
    /// It gets a copy of another keeper's tree, and has not what most have until that is done.
    copies: AtomicBool,
    /// Where is told what the store cannot do of what it does by itself.
    troubles: OnceLock<Troubles>,
    /// Others keep it, too, and may lead when this one stops.
    is_of_several: bool,
    /// A fault put in on purpose, by the simulation alone.
    planted: Option<Planted>,
    /// A test says that the keeper does not lead.
    #[cfg(test)]
    pub moved: std::sync::atomic::AtomicBool,
}

/// What the metadata thread can be asked.
pub enum Item {
    /// Something for the store, and what to do with the answer.
    Ask { caller: Caller, request: Request, then: Then },
    /// A frozen layer was merged, or was not.
    Merged(MergeResult),
    /// A page of the tree was read for that keeper.
    Paged(Result<(KeeperId, KeeperMessage)>),
    /// A page of another keeper's tree was written, or was not.
    Copied(CopyResult),
    /// Another keeper is to lead.
    HandOver,
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

impl Then {
    /// Does that.
    fn tell(self, result: Result<Reply>) {
        match (self, result) {
            (Then::Answer(respond, translate), Ok(reply)) => translate(reply, respond),
            (Then::Answer(respond, _), Err(error)) => respond.fail(error),
            // The one who asked may be gone; then nobody misses the answer.
            (Then::Tell(tell), result) => drop(tell.send(result)),
        }
    }
}

/// The session under which the node itself makes changes.
const NODE_SESSION: SessionId = SessionId(0);

impl Metadata {
    /// Hands work to the thread, or to the end of the burst that this thread is in (`here`).
    pub fn send(&self, item: Item) {
        if !self.served.send_in_burst(item) {
            self.served.mailbox.wake();
        }
    }

    /// Whether a session has begun and is not over.
    pub fn is_open(&self, session: SessionId) -> bool {
        self.open_sessions.read().unwrap_or_else(PoisonError::into_inner).contains(&session)
    }

    /// Those of these marks of sessions (`SessionId::mark`) that no open session has.
    pub async fn over(&self, marks: Vec<u64>) -> Result<Vec<u64>> {
        if marks.is_empty() {
            return Ok(marks);
        }
        match self.ask(Request::SessionsOver { marks }).await? {
            Reply::SessionsOver(over) => Ok(over),
            other => unreachable!("sessions that are over were asked for: {other:?}"),
        }
    }

    /// This session does not end for want of renewal. The first one that is named counts.
    pub fn keep_open(&self, session: SessionId) {
        let _named = self.kept_open.set(session);
    }

    /// What the store does for the keepers.
    pub fn part(&self) -> Part {
        self.part.get()
    }

    /// Why this node keeps nothing now, if that is so: others may.
    pub fn standing(&self) -> Option<String> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether its store was opened once, or could not be.
    pub fn has_opened(&self) -> bool {
        self.has_opened.load(Ordering::Relaxed)
    }

    /// Whether it gets a copy of another keeper's tree.
    pub fn copies(&self) -> bool {
        self.copies.load(Ordering::Relaxed)
    }

    /// The store was opened, or could not be.
    fn stands(&self, trouble: Option<&Error>) {
        let text = |error: &Error| {
            format!(
                "this node's metadata cannot be used now ({error}); other keepers serve meanwhile; it is put right by itself if their disk is"
            )
        };
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = trouble.map(text);
        self.has_opened.store(true, Ordering::Relaxed);
    }

    /// The same, for whoever waits until that changes.
    pub fn parts(&self) -> Watched<Part> {
        self.part.clone()
    }

    /// Lets another keeper lead, if this one does. Returns when that one is known to, or after `HAND_OVER_MAX`.
    pub async fn hand_over(&self) {
        if self.is_of_several && self.part().leads() {
            self.send(Item::HandOver);
            let leads_another = |part: &Part| matches!(part, Part::Follows { leader: Some(_), .. });
            let _late = timeout(HAND_OVER_MAX, self.part.until(leads_another)).await;
        }
    }

    /// Another keeper sent this, of so many bytes. It is dropped if too much waits: keepers say everything again.
    pub fn step(&self, message: KeeperMessage, bytes: usize) {
        if self.heard.put(message, bytes) {
            self.served.mailbox.wake();
        }
    }

    /// A store was opened, whose sessions these are.
    fn sessions_are(&self, turns: Vec<(SessionId, bool)>) {
        let open = turns.into_iter().filter(|(_, begins)| *begins).map(|(session, _)| session);
        *self.open_sessions.write().unwrap_or_else(PoisonError::into_inner) = open.collect();
    }

    /// What the store cannot do of what it does by itself is told here from now on. Whoever is named first counts.
    pub fn tell_to(&self, troubles: Troubles) {
        let _named = self.troubles.set(troubles);
    }

    /// The store could not do something that nobody asked for.
    fn tell(&self, what: &str, error: &Error) {
        if let Some(troubles) = self.troubles.get() {
            let text = format!("{what} failed: {error}; what was acknowledged is safe; it is tried again");
            troubles.tell("metadata", &text, &[]);
        }
    }

    /// Is notified from now on when something comes onto the lists that the node works off, until it is dropped. Each who asks gets his own, and
    /// they are notified in that order: a channel would wake them by chance, and no history of the simulation be played twice.
    pub fn work(&self) -> Arc<Notify> {
        let notify = Arc::new(Notify::new());
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.retain(|registered| registered.strong_count() > 0);
        work.push(Arc::downgrade(&notify));
        notify
    }

    /// Something came onto these lists.
    fn notify_of_work(&self) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.iter().filter_map(Weak::upgrade).for_each(|notify| notify.notify_one());
    }

    /// How many are told of that, and how many were who are gone by now.
    #[cfg(test)]
    pub fn registered(&self) -> (usize, usize) {
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let there = work.iter().filter(|registered| registered.strong_count() > 0).count();
        (there, work.len() - there)
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
        #[cfg(test)]
        if self.moved.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Moved::default().into());
        }
        let (tell, told) = oneshot::channel();
        self.send(Item::Ask { caller, request, then: Then::Tell(tell) });
        told.await.unwrap_or_else(|_| Err(if self.is_of_several { Moved::default().into() } else { gone() }))
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

/// Opens the store and starts its threads. It is opened in the thread that serves it, which a ring belongs to. One of several keepers is given what
/// carries its messages: its store need not open yet, or ever (`Part`); it gets a copy of another one's tree then.
pub fn spawn(
    (world, files): (&dyn World, Files),
    disk: Box<dyn Disk>,
    settings: meta::Settings,
    clock: Arc<dyn Clock>,
    loans: Arc<Loans>,
    carrier: Option<Arc<dyn Carrier>>,
) -> Result<(Arc<Metadata>, Vec<Ended>)> {
    let metadata = Arc::new(Metadata {
        served: Served::new(disk.waker(), loans),
        open_sessions: RwLock::default(),
        kept_open: OnceLock::new(),
        work: Mutex::default(),
        part: Watched::new(Part::Follows { leader: None, term: 0 }),
        heard: Heard::default(),
        standing: Mutex::default(),
        has_opened: AtomicBool::new(carrier.is_none()),
        copies: AtomicBool::new(false),
        troubles: OnceLock::new(),
        is_of_several: carrier.is_some(),
        planted: settings.planted,
        #[cfg(test)]
        moved: Default::default(),
    });
    // One layer is merged at a time, and the one before it may not be freed yet.
    let (jobs, merging) = mpsc::channel(2);
    let mut engines = vec![world.aside("meta-merge", Box::pin(aside::merge(merging, metadata.clone())))?];
    let (copies, copying) = aside::copying();
    if carrier.is_some() {
        let copy = aside::copy(copying, metadata.clone(), files.clone());
        engines.push(world.aside("meta-copy", Box::pin(copy))?);
    }
    let (opened, opening) = sync_channel(1);
    let served = metadata.clone();
    let open = move |disk: &mut dyn Disk| -> Option<Box<dyn Work>> {
        let kept = match carrier {
            Some(carrier) => {
                let mut several = Several::new(carrier, files, settings);
                let (kept, trouble) = several.begins(disk, clock.as_ref(), false);
                served.stands(trouble.as_ref());
                trouble.iter().for_each(|error| served.tell("opening the metadata", error));
                (kept, Some(several))
            }
            None => {
                let tree = files.tree();
                match tree.and_then(|tree| Store::open(disk, tree, &settings, clock.now(), clock.wall())) {
                    Ok((store, _)) => (Kept::Serves(Box::new(store)), None),
                    Err(error) => {
                        let _ = opened.send(Err(error));
                        return None;
                    }
                }
            }
        };
        let between = Between::new(disk.inline());
        let thread = thread::Thread::new(served.clone(), kept, clock, (jobs, copies), between);
        // Whoever started this thread waits for the word.
        let _ = opened.send(Ok(()));
        Some(Box::new(served.served.open(thread)))
    };
    let serving = world.run("meta", disk, Box::new(open))?;
    // One of several may have much to read, and whoever is on this thread has others to serve.
    if !metadata.is_of_several {
        opening.recv().unwrap_or_else(|_| Err(gone()))?;
    }
    engines.insert(0, serving);
    Ok((metadata, engines))
}
