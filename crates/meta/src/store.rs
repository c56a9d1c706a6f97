//! The store as a step machine: requests and finished disk operations in, replies and disk operations out.

mod copying;
mod leading;

pub use leading::Part;

use crate::copies::{CopyJob, KeeperMessage, PageJob, Source, Target};
use crate::layers::Frozen;
use crate::log::Log;
use crate::merge::{MergeJob, MergeResult};
use crate::open::{self, Found};
use crate::pace::Pace;
use crate::reply::Reply;
use crate::request::{Caller, Request};
use crate::settings::Settings;
use crate::state::State;
use base::disk::{BlockFile, Disk, Done, Op};
use base::error::{Error, ErrorKind, Result};
use base::id::SessionId;
use base::limit::BLOCK;
use base::planted::Planted;
use base::unit::{MIB, Time, WallTime};
use quorum::KeeperId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Age of the oldest unmerged change at which the overlay is merged.
const MERGE_AGE: Duration = Duration::from_secs(5);

/// What the store does by itself goes on so much later when the log has no room for it now.
const AGAIN_AFTER: Duration = Duration::from_millis(10);

/// Between two steps of following changed wishes while others ask: such a step takes about as long.
const REWANT_PAUSE: Duration = Duration::from_millis(1);

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Log entries that were not in the tree yet, and are now.
    pub replayed: u64,
    /// Sessions that are open, renewed.
    pub sessions: usize,
}

/// What the store wants done.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "effects are taken at once, and answers are most of them")]
pub enum Effect<T> {
    /// Put this to the disk; its `Done` goes to `completed`. In the order given.
    Disk {
        /// Comes back with the end.
        token: u64,
        /// The operation.
        op: Op,
    },
    /// Send this to another keeper; it may be lost, late, or come twice.
    Send {
        /// To whom.
        to: KeeperId,
        /// What.
        message: KeeperMessage,
    },
    /// What this store does for the keepers from now on, if it is not alone.
    Turned(Part),
    /// Run this on another thread, and send what it says.
    Page(PageJob),
    /// Run this on another thread, and hand the result to `copied`.
    Copy(CopyJob),
    /// The copy is whole, and this store says nothing more: when all that its disk does has ended, put the copy's file in the place of the tree's,
    /// durably, and open the store anew. What comes of this one's jobs is not for the new one. A copy that does not open is not to be made again at once.
    Copied,
    /// Answer a request.
    Reply {
        /// As given with the request.
        tag: T,
        /// The answer.
        result: Result<Reply>,
    },
}

/// An answer that waits for the log.
struct Waiting<T> {
    tag: T,
    result: Result<Reply>,
    /// It answers a change that it made: that this is committed shows that nobody else led.
    made: bool,
}

/// The metadata store. `T` comes back with each reply.
pub struct Store<T> {
    state: State,
    log: Log,
    /// By the sequence number that has to be durable, and the order of the requests.
    waiting: BTreeMap<(u64, u64), Waiting<T>>,
    requests: u64,
    /// Requests of clients and gateways.
    asked: u64,
    effects: Vec<Effect<T>>,
    /// When something is taken apart beside them.
    pace: Pace,
    /// When the next step of following changed wishes is due, and how many requests there were at the last one.
    rewant: (Time, u64),
    settings: Settings,
    /// When the oldest change was made that is neither merged nor being merged.
    unmerged_since: Option<Time>,
    /// The frozen overlay, until it may be merged: when all of it is committed.
    to_merge: Option<Arc<Frozen>>,
    /// Why nothing can be merged any more.
    merge_failure: Option<Error>,
    part: Part,
    source: Source,
    target: Target,
    /// Copies that were asked for while something is merged: by whom, which, and up to which group at the least.
    copies_asked: Vec<(KeeperId, u64, u64)>,
    /// A copy waits for what is not merged yet.
    merges_soon: bool,
    /// The log failed, and those who waited for their changes were told.
    refused: bool,
    /// A step of what the store does by itself failed: there is no use in trying it again and again.
    stuck: Option<Time>,
    /// Why such steps failed since somebody asked, by what they were for: the last error of each.
    failures: BTreeMap<&'static str, Error>,
}

/// A client that gives two questions one number has lost count: the second may be done, or not, and nobody could tell.
fn used_twice(caller: Caller) -> Error {
    let text = format!(
        "call {} of session {} was another question before; nothing was done; number each call anew",
        caller.call, caller.session
    );
    Error::new(ErrorKind::Invalid, text)
}

impl<T> Store<T> {
    /// Opens the store on its log's disk and its tree's file, or makes it there. Blocks: reads the log and merges it.
    pub fn open(
        disk: &mut dyn Disk,
        tree: Box<dyn BlockFile>,
        settings: &Settings,
        now: Time,
        wall: WallTime,
    ) -> Result<(Store<T>, Opened)> {
        let length = settings.segment_length;
        assert!(length >= MIB && length.is_multiple_of(BLOCK as u64), "a log segment of {length} bytes");
        let Found { layers, sequence, entries, log, least } = open::open(disk, tree, settings, (now, wall))?;
        let state = State::load((layers, sequence), settings, (now, wall), least)?;
        let part = match log.is_alone() {
            true => Part::Leads { term: log.term() },
            false => Part::Follows { leader: None, term: 0 },
        };
        let target = Target::new(log.own(), 0, Arc::clone(&settings.random), settings.planted);
        let opened = Opened { replayed: entries, sessions: state.sessions.count() };
        let store = Store {
            state,
            log,
            waiting: BTreeMap::new(),
            requests: 0,
            asked: 0,
            effects: Vec::new(),
            pace: Pace::default(),
            rewant: (Time::ZERO, 0),
            settings: settings.clone(),
            unmerged_since: None,
            to_merge: None,
            merge_failure: None,
            part,
            source: Source::new(settings.copy_page),
            target,
            copies_asked: Vec::new(),
            merges_soon: false,
            refused: false,
            stuck: None,
            failures: BTreeMap::new(),
        };
        Ok((store, opened))
    }

    /// Takes a request. Its reply comes among the effects, now or later.
    pub fn submit(&mut self, now: Time, wall: WallTime, caller: Caller, request: Request, tag: T) {
        self.state.now = now;
        self.state.wall = wall;
        self.state.layers.forget_observed();
        self.requests += 1;
        if let Err(elsewhere) = self.check_leads() {
            self.effects.push(Effect::Reply { tag, result: Err(elsewhere) });
            return;
        }
        let before = self.state.sequence();
        // The node's own questions and renewals are nobody who waits.
        self.asked += u64::from(caller.session != SessionId(0) && !matches!(request, Request::Renew));
        self.state.sessions.pass(caller);
        let (user, request) = match request {
            Request::For { user, request } => (Some(user), *request),
            request => (None, request),
        };
        let asked = self.state.asked_by(caller.session, user);
        let change = request.is_change();
        let (result, wait_for) = if let Err(denied) = asked {
            // That the session is over, if that is why, has to stay so.
            (Err(denied), self.state.layers.observed())
        } else if change {
            let result = self.change(caller, request);
            // A change waits for its own entry; one that changed nothing, or failed, for what it saw.
            (result, self.state.layers.observed())
        } else {
            (self.state.read(caller, request), self.state.layers.observed())
        };
        // What a transaction that was taken back saw of itself counts for nothing.
        let wait_for = wait_for.min(self.state.sequence());
        let made = result.is_ok() && self.state.sequence() > before;
        self.answer(Waiting { tag, result, made }, wait_for, change);
    }

    fn change(&mut self, caller: Caller, request: Request) -> Result<Reply> {
        if let Some(failure) = self.merge_failure.as_ref().or(self.log.failure()) {
            return Err(failure.clone());
        }
        let once = request.is_remembered()
            && !(self.settings.planted == Some(Planted::ChangeNotRemembered) && request.is_setting());
        // A call without a number is never asked again.
        let remembered = once && caller.call != 0;
        if once {
            if self.settings.planted != Some(Planted::RetriedChangeRepeated)
                && let Some(reply) = self.state.remembered(caller)?
            {
                return if request.is_answered_by(&reply) { Ok(reply) } else { Err(used_twice(caller)) };
            }
            if self.settings.planted != Some(Planted::OldGenerationAccepted) {
                self.state.check_session(caller.session)?;
            }
            if remembered {
                self.state.may_be_done(caller)?;
            }
        }
        // Not before: what was done is not said to be refused, however full the log is.
        self.log.check()?;
        let result = self.state.serve(caller, &request).and_then(|reply| {
            if remembered {
                self.state.remember(caller, &reply);
            }
            self.commit()?;
            Ok(reply)
        });
        match &result {
            Ok(_) => {
                if remembered {
                    self.state.sessions.remembered(caller);
                }
                self.state.answer_remembered();
                self.follow(caller, request);
            }
            Err(_) => self.state.roll_back(),
        }
        result
    }

    /// What memory notes once the change is committed.
    fn follow(&mut self, caller: Caller, request: Request) {
        match request {
            Request::OpenSession { user } => self.state.sessions.opened(caller.session, &user, self.state.now),
            Request::CloseSession => self.state.sessions.ended(caller.session, self.state.sequence()),
            Request::DeviceRegister { device, class, capacity, node } => {
                let info = self.state.registering(device, class, capacity, node);
                self.state.devices.registered(info);
            }
            Request::DeviceDrain { .. }
            | Request::DeviceRemove { .. }
            | Request::DeviceLost { .. }
            | Request::DeviceGivenUp { .. }
            | Request::DeviceBack { .. } => self.state.follow_device(&request),
            Request::NodeJoin { node } => self.state.nodes.joined(node),
            Request::NodeDrain { node } => self.state.node_leaves(node),
            Request::NodeRemove { node } => self.state.nodes.removed(node),
            _ => {}
        }
    }

    /// Ends the transaction and hands its entry to the log.
    fn commit(&mut self) -> Result<bool> {
        let Some(entry) = self.state.commit()? else { return Ok(false) };
        let sequence = self.state.sequence();
        self.log.push(sequence, &entry);
        self.state.layers.observe(sequence);
        self.unmerged_since.get_or_insert(self.state.now);
        Ok(true)
    }

    fn check_in_service(&self) -> Result<()> {
        if let Some(failure) = &self.merge_failure {
            return Err(failure.clone());
        }
        self.log.check()
    }

    fn answer(&mut self, waiting: Waiting<T>, wait_for: u64, change: bool) {
        let early = match self.settings.planted {
            Some(Planted::ChangeAnsweredBeforeSync) => change,
            Some(Planted::ReadAnsweredBeforeSync) => !change,
            _ => false,
        };
        let Waiting { tag, result, made } = waiting;
        // Of several one that reads waits until answers leave (`take_effects`): this one may not lead any more then.
        if early || wait_for <= self.log.committed() && (made || self.log.is_alone()) {
            self.effects.push(Effect::Reply { tag, result });
        } else if let Some(failure) = self.log.failure()
            && (!self.log.is_alone() || self.merge_failure.is_some())
        {
            // Neither the log nor the tree will ever make durable what this answer shows.
            let error = if self.log.is_alone() { failure.clone() } else { self.elsewhere() };
            self.effects.push(Effect::Reply { tag, result: Err(error) });
        } else {
            self.waiting.insert((wait_for, self.requests), Waiting { tag, result, made });
        }
    }

    /// A disk operation is done.
    pub fn completed(&mut self, now: Time, done: Done) {
        self.state.now = now;
        self.log.completed(now, done);
        self.follow_log();
    }

    fn advance(&mut self) {
        self.log.advance(self.state.now);
        self.follow_log();
        for (token, op) in self.log.take_operations() {
            self.effects.push(Effect::Disk { token, op });
        }
        for (to, message) in self.log.take_messages() {
            self.effects.push(Effect::Send { to, message: KeeperMessage::Log(message) });
        }
        self.take_wishes();
    }

    /// Lets time pass: sessions end, and a bounded step of what is being taken apart is done.
    pub fn tick(&mut self, now: Time, wall: WallTime) {
        self.state.now = now;
        self.state.wall = wall;
        self.log.tick(now);
        self.follow_log();
        self.tick_copies();
        if !self.part.leads() {
            return;
        }
        if self.check_in_service().is_err() {
            self.stuck = Some(now.after(Duration::from_secs(1)));
            return;
        }
        self.stuck = None;
        // Each by itself: what holds one up may wait for another.
        let ended = self.end_sessions();
        self.tried("ending sessions", ended);
        let collected = self.collect();
        self.tried("taking apart what was removed", collected);
        let counted = self.count();
        self.tried("counting what quotas limit", counted);
        let recounted = self.recount();
        self.tried("looking through what was on lost devices", recounted);
        let rewanted = self.rewant();
        self.tried("following changed policies", rewanted);
        self.advance();
    }

    /// A step was tried. One that failed is taken back, told (`take_failures`) and tried again.
    fn tried(&mut self, what: &'static str, done: Result<()>) {
        if let Err(error) = done {
            self.state.roll_back();
            self.stuck = Some(self.state.now.after(Duration::from_secs(1)));
            self.failures.insert(what, error);
        }
    }

    /// Whether the log takes another entry; if not, there is no use in going on at once.
    fn has_room(&mut self) -> bool {
        let has_room = self.log.check().is_ok();
        if !has_room {
            self.stuck = Some(self.state.now.after(AGAIN_AFTER));
        }
        has_room
    }

    fn end_sessions(&mut self) -> Result<()> {
        for session in self.state.sessions.expired(self.state.now) {
            // The others at the next step: what is taken has to have room (`Log::check`).
            if !self.has_room() {
                return Ok(());
            }
            self.state.end_session(session)?;
            self.commit()?;
            self.state.sessions.ended(session, self.state.sequence());
        }
        if self.state.sessions.is_ending() && self.has_room() {
            let forgotten = self.state.end_step()?;
            self.commit()?;
            if let Some(session) = forgotten {
                self.state.sessions.forgotten(session);
            }
        }
        Ok(())
    }

    fn collect(&mut self) -> Result<()> {
        if self.state.collecting && self.collect_due() <= self.state.now {
            let names = self.pace.begin(self.state.now, self.asked, self.state.counters.next_inode);
            let mut taken = 0;
            // Small directories go several at once, each a transaction: else a tree of them would go one with each pause.
            while taken < names
                && self.has_room()
                && let Some(work) = self.state.collect_step(names - taken)?
            {
                taken += work;
                self.commit()?;
            }
            self.pace.end(taken, self.state.counters.next_inode);
        }
        Ok(())
    }

    fn collect_due(&self) -> Time {
        self.pace.due(self.state.counters.next_inode)
    }

    fn count(&mut self) -> Result<()> {
        if self.state.counting && self.has_room() && self.state.count_step()? {
            self.commit()?;
        }
        Ok(())
    }

    fn recount(&mut self) -> Result<()> {
        if self.state.recounting && self.has_room() && self.state.recount_step()? {
            self.commit()?;
        }
        Ok(())
    }

    fn rewant(&mut self) -> Result<()> {
        let (due, asked) = self.rewant;
        if self.state.rewanting && due <= self.state.now && self.has_room() {
            let done = self.state.rewant_step();
            if let Some(damaged) = self.state.passed_over.take() {
                self.failures.insert("following changed policies", damaged);
            }
            if done? {
                self.commit()?;
            }
            let is_asked = self.asked != asked;
            let due = if is_asked { self.state.now.after(REWANT_PAUSE) } else { self.state.now };
            self.rewant = (due, self.asked);
        }
        Ok(())
    }

    /// When `tick` has something to do, or an overlay is old enough for `merge_job`; it may lie in the past.
    pub fn next_tick(&self) -> Option<Time> {
        let merge = match self.state.layers.is_merging() || self.merge_failure.is_some() {
            true => None,
            false => self.unmerged_since.map(|since| since.after(MERGE_AGE)),
        };
        let work = if self.state.counting || self.state.recounting {
            Some(Time::ZERO)
        } else {
            let collect = self.state.collecting.then(|| self.collect_due());
            let rewant = self.state.rewanting.then_some(self.rewant.0);
            collect.into_iter().chain(rewant).chain(self.state.sessions.next_end()).min()
        };
        let work = work.filter(|_| self.part.leads());
        let work = work.map(|time| self.stuck.map_or(time, |stuck| stuck.max(time)));
        let copies = self.target.next_tick().into_iter().chain(self.source.next_tick());
        merge.into_iter().chain(work).chain(self.log.next_tick()).chain(copies).min()
    }

    /// What the store wants done since it was last asked, in order. All that was submitted meanwhile is one group of the log. `now` is read when all of
    /// that was done: answers leave as of then, if nobody else can lead.
    pub fn take_effects(&mut self, now: Time) -> Vec<Effect<T>> {
        if self.settings.planted != Some(Planted::StaleClockTaken) {
            self.state.now = now;
        }
        self.advance();
        self.release(self.may_tell());
        std::mem::take(&mut self.effects)
    }

    /// Sessions that began (true) or ended (false, when that is durable) since this was asked, in that order; at first all that are open.
    pub fn take_session_turns(&mut self) -> Vec<(SessionId, bool)> {
        self.state.sessions.take_turns(self.log.committed())
    }

    /// What `tick` tried and could not do since this was asked, and why: nobody asked for it, so nobody else is told. It is tried again.
    pub fn take_failures(&mut self) -> BTreeMap<&'static str, Error> {
        std::mem::take(&mut self.failures)
    }

    /// Whether something came onto the lists that the node works off (`Garbage`, `FenceList`) since this was asked; at first it did.
    pub fn take_made_work(&mut self) -> bool {
        std::mem::take(&mut self.state.made_work)
    }

    /// An overlay to be merged, if it is time: run it on another thread and hand the result to `merged`.
    /// Ask after every step; it is cheap.
    pub fn merge_job(&mut self, now: Time) -> Option<MergeJob> {
        // Whether the log wants room shows when it begins a group.
        self.advance();
        self.let_copies_go();
        let is_due = |since: Time| {
            self.state.layers.overlay_bytes() >= self.settings.merge_bytes
                || since.after(MERGE_AGE) <= now
                || self.log.wants_room()
                || self.merges_soon
                || self.tree_decides()
        };
        let frees = (self.log.wants_room() || self.log.is_long()) && self.log.can_free();
        if self.to_merge.is_some() || frees || self.unmerged_since.is_some_and(is_due) {
            self.merge_now()
        } else {
            None
        }
    }

    /// The overlay to be merged whether it is time or not, if there is any and none is being merged. It is given when all its changes are
    /// committed: only that may be in the tree, but where the log of one that is alone has failed.
    pub fn merge_now(&mut self) -> Option<MergeJob> {
        if self.merge_failure.is_some() {
            return None;
        }
        if !self.state.layers.is_merging() {
            // Without changes it says from where on the log is needed, which others hold back.
            self.merges_soon = false;
            if self.unmerged_since.take().is_none() && !self.log.can_free() {
                return None;
            }
            self.to_merge = Some(self.state.layers.freeze(self.state.sequence()));
        }
        let early = self.settings.planted == Some(Planted::MergedUncommitted) || self.tree_decides();
        let frozen = self.to_merge.take_if(|frozen| early || frozen.sequence <= self.log.settled())?;
        let front = self.log.front_at(frozen.sequence);
        Some(MergeJob::new(self.state.layers.database(), frozen, front, self.settings.planted))
    }

    /// What became of a merge job. On success log segments come free. The overlay that was merged is nobody's any more: freeing it takes
    /// milliseconds, on whatever thread has time for that.
    pub fn merged(&mut self, now: Time, done: MergeResult) -> Option<Arc<Frozen>> {
        self.state.now = now;
        let freed = match done.result.and_then(|()| self.state.layers.merged()) {
            Ok(freed) => {
                self.log.merged(now, done.sequence, done.front);
                self.source.forget_before(done.front.index);
                self.give_what_was_asked();
                freed
            }
            Err(error) => {
                let text = format!("changes are refused until a restart, reads go on: {error}");
                self.merge_failure = Some(Error::new(ErrorKind::Io, text));
                if !self.log.is_alone() {
                    // Another one leads, whose tree is well.
                    self.log.fail(error.clone());
                }
                // If the log failed too, nothing can make durable what is not: not even reads of it may be answered.
                if self.log.is_alone() && self.log.failure().is_some() {
                    self.refuse_waiting(&error, |_| true);
                }
                None
            }
        };
        self.advance();
        freed
    }

    /// An error if what is listed as lacking replicas is not what the records of all groups say. Reads them all: for tests and simulations.
    pub fn check_lacking(&self) -> Result<()> {
        self.state.check_lacking()
    }

    /// An error unless everything wants as many replicas as its files do, but for what is still to be gone through; how many wishes are followed still.
    /// Reads everything: for tests and simulations.
    pub fn check_wishes(&self) -> Result<usize> {
        self.state.check_wishes()
    }

    /// Whether changes are taken: `Full` while the log has no room, the failure after the log or the tree failed.
    pub fn in_service(&self) -> Result<()> {
        self.check_in_service()
    }

    /// Whether all changes are durable and merged, and nobody waits: a clean stop loses nothing and replays nothing.
    pub fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.state.layers.is_merged()
    }
}
