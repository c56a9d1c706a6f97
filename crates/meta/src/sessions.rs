//! Sessions of clients: their leases on life, the answers remembered for them, and what happens when they end.

use crate::attributes::session_record;
use crate::calls::Calls;
use crate::convert;
use crate::format::{CallRecord, FencedRecord, InodeRecord, ReplyRecord, SessionRecord};
use crate::key::{Key, after_prefix, number_at, wide_at};
use crate::reply::Reply;
use crate::request::{Caller, User};
use crate::state::{State, missing};
use base::acl::ENTRIES_MAX;
use base::error::{Error, ErrorKind, Result};
use base::id::{GroupId, InodeId, SessionId};
use base::limit::{ENTRY_MAX, SESSION_LEASE, USER_NAME_MAX};
use base::planted::Planted;
use base::session::SessionOver;
use base::unit::{MIB, Time};
use prost::Message;
use quorum::group_max;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Most things of an ended session that one step takes apart.
const STEP_MAX: usize = 256;

/// Most files of it: their records, which have a note and an access list of long names at the most, fit in one entry of the smallest log, a
/// quarter of a MiB (`quorum::group_max`).
const FILES_MAX: usize = 16;
const FILE_RECORD_MAX: usize = ENTRY_MAX + ENTRIES_MAX * (USER_NAME_MAX + 16) + 512;
const _: () = assert!(FILES_MAX * FILE_RECORD_MAX < group_max(MIB));

/// Sessions as memory has them; the state has a record of each, of its leases and of its calls.
#[derive(Default)]
pub struct Sessions {
    open: BTreeMap<SessionId, Session>,
    ending: BTreeSet<SessionId>,
    /// Sessions that began since somebody asked.
    begun: Vec<SessionId>,
    /// Those that ended, and the sequence number of the record that says so.
    over: VecDeque<(SessionId, u64)>,
    /// The last such number.
    last_end: u64,
}

/// An open session.
struct Session {
    expires: Time,
    user: Arc<User>,
    /// Remembered calls.
    calls: Calls,
}

impl Session {
    fn new(user: &User) -> Session {
        let user = Arc::new(user.clone());
        Session { expires: Time::ZERO, user, calls: Calls::default() }
    }
}

impl Sessions {
    /// Whether the session is open.
    pub fn is_open(&self, session: SessionId) -> bool {
        self.open.contains_key(&session)
    }

    /// Number of open sessions.
    pub fn count(&self) -> usize {
        self.open.len()
    }

    /// When the first session ends unless it is renewed; the beginning of time if one is being taken apart.
    pub fn next_end(&self) -> Option<Time> {
        if !self.ending.is_empty() {
            return Some(Time::ZERO);
        }
        self.open.values().map(|session| session.expires).min()
    }

    /// Whether an ended session is being taken apart.
    pub fn is_ending(&self) -> bool {
        !self.ending.is_empty()
    }

    /// Sessions whose time is over.
    pub fn expired(&self, now: Time) -> Vec<SessionId> {
        let over = self.open.iter().filter(|(_, session)| session.expires <= now);
        over.map(|(session, _)| *session).collect()
    }

    /// The session was opened: its record is in the log.
    pub fn opened(&mut self, session: SessionId, user: &User, now: Time) {
        self.open.entry(session).or_insert_with(|| Session::new(user)).expires = now.after(SESSION_LEASE);
        self.begun.push(session);
    }

    /// Sessions that began (true) or ended since this was asked; at first all that are open. The end of one is told when the log is durable
    /// up to it: a power loss must not bring back what devices have taken for over, and forgotten.
    pub fn take_turns(&mut self, durable: u64) -> Vec<(SessionId, bool)> {
        let mut turns: Vec<(SessionId, bool)> = self.begun.drain(..).map(|session| (session, true)).collect();
        while let Some((session, _)) = self.over.pop_front_if(|(_, sequence)| *sequence <= durable) {
            turns.push((session, false));
        }
        turns
    }

    /// These are read anew: ends that are committed, and were not told yet, are still to be told, and sessions that were told as begun and are not there.
    pub fn keep_untold(&mut self, before: &Sessions, committed: u64) {
        self.over = before.over.iter().filter(|(_, sequence)| *sequence <= committed).copied().collect();
        let is_known = |session: &SessionId| self.open.contains_key(session) || self.ending.contains(session);
        self.over.extend(before.open.keys().filter(|session| !is_known(session)).map(|session| (*session, committed)));
        self.last_end = self.over.back().map_or(0, |(_, sequence)| *sequence);
    }

    /// Open sessions, or only one, and how long from `now` they do not end; those with the longest time first.
    pub fn leases(&self, now: Time, only: Option<SessionId>, limit: usize) -> Vec<(SessionId, Duration)> {
        let wanted = self.open.iter().filter(|(session, _)| only.is_none_or(|only| only == **session));
        let mut leases: Vec<_> = wanted.map(|(session, open)| (*session, open.expires.since(now))).collect();
        leases.sort_by_key(|(session, left)| (std::cmp::Reverse(*left), *session));
        leases.truncate(limit);
        leases
    }

    /// Those of these marks (`SessionId::mark`) that no open session has.
    pub fn over(&self, mut marks: Vec<u64>) -> Vec<u64> {
        let of =
            |mark: u64| SessionId(u128::from(mark) << 64)..=SessionId(u128::from(mark) << 64 | u128::from(u64::MAX));
        marks.retain(|mark| self.open.range(of(*mark)).next().is_none());
        marks
    }

    /// Who has this session.
    pub fn user(&self, session: SessionId) -> Arc<User> {
        self.open.get(&session).map(|session| session.user.clone()).unwrap_or_default()
    }

    /// The session lives: its time begins anew. Nothing if it is not open.
    fn renewed(&mut self, session: SessionId, now: Time) {
        if let Some(session) = self.open.get_mut(&session) {
            session.expires = now.after(SESSION_LEASE);
        }
    }

    /// The session has ended, if it was open: the record with this sequence number says so in the log.
    pub fn ended(&mut self, session: SessionId, sequence: u64) {
        if self.open.remove(&session).is_some() {
            self.ending.insert(session);
            self.over.push_back((session, sequence));
            self.last_end = sequence;
        }
    }

    /// Nothing is left of the session.
    pub fn forgotten(&mut self, session: SessionId) {
        self.ending.remove(&session);
    }

    /// The slot with the answer to this call.
    fn slot_of(&self, caller: Caller) -> Option<u16> {
        self.open.get(&caller.session)?.calls.find(caller.call)
    }

    /// The slot for the next answer, and its number in order.
    fn next_slot(&self, session: SessionId) -> Option<(u16, u64)> {
        self.open.get(&session)?.calls.next()
    }

    /// No change of the session with a lower number is asked again.
    fn floor_of(&self, session: SessionId) -> u64 {
        self.open.get(&session).map_or(0, |session| session.calls.floor())
    }

    /// The answer to the call is in the log, in the slot that `next_slot` gave.
    pub fn remembered(&mut self, caller: Caller) {
        if let Some(session) = self.open.get_mut(&caller.session) {
            session.calls.remember(caller.call);
        }
    }

    /// The session says that it asks no change below its floor again.
    pub fn pass(&mut self, caller: Caller) {
        if let Some(session) = self.open.get_mut(&caller.session) {
            session.calls.pass(caller.floor);
        }
    }
}

impl State {
    /// Reads sessions and their remembered calls; all are renewed. Done once, when the store is opened.
    pub fn load_sessions(&mut self) -> Result<()> {
        let mut sessions = Vec::new();
        let prefix = [Key::Session(SessionId(0)).ordinal()];
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = SessionRecord::decode(value).map_err(|_| missing("a readable session record"))?;
            sessions.push((SessionId(wide_at(key, 1)), record));
            Ok(true)
        })?;
        for (session, SessionRecord { ended, owner, group, groups }) in sessions {
            if ended {
                self.sessions.ending.insert(session);
            } else {
                let first = Some(group).filter(|group| !group.is_empty());
                let user = User { name: owner, groups: first.into_iter().chain(groups).collect() };
                self.sessions.opened(session, &user, self.now);
                if self.planted != Some(Planted::AnswersForgottenAtTurn) {
                    self.load_calls(session)?;
                }
            }
        }
        Ok(())
    }

    fn load_calls(&mut self, session: SessionId) -> Result<()> {
        let prefix = Key::Call(session, 0).encode()[..17].to_vec();
        let mut calls = Vec::new();
        self.layers.scan(&prefix, &after_prefix(&prefix), |key, value| {
            let record = CallRecord::decode(value).map_err(|_| missing("a readable remembered call"))?;
            let floor = if self.planted == Some(Planted::FloorForgottenAtTurn) { 0 } else { record.floor };
            calls.push((slot_in(key), record.order, record.call, floor));
            Ok(true)
        })?;
        if let Some(open) = self.sessions.open.get_mut(&session) {
            open.calls = Calls::load(calls);
        }
        Ok(())
    }

    /// `Stale` unless the session is open.
    pub fn check_session(&self, session: SessionId) -> Result<()> {
        if self.sessions.is_open(session) {
            return Ok(());
        }
        // Who is told so believes it: it has to be durable first.
        self.layers.observe(self.sessions.last_end);
        Err(SessionOver { session }.into())
    }

    /// The remembered answer to this call, if it was made before.
    pub fn remembered(&self, caller: Caller) -> Result<Option<Reply>> {
        let Some(slot) = self.sessions.slot_of(caller) else { return Ok(None) };
        let record: CallRecord =
            self.layers.record(&Key::Call(caller.session, slot))?.ok_or_else(|| missing("a remembered call"))?;
        self.recall(caller.session, record.reply.unwrap_or_default()).map(Some)
    }

    /// A remembered answer as it is given again, to a session.
    pub fn recall(&self, session: SessionId, record: ReplyRecord) -> Result<Reply> {
        let file = |inode| self.layers.record(&Key::Inode(inode));
        if let Some(FencedRecord { inode, generation }) = record.fenced {
            let inode = InodeId(inode);
            let now: InodeRecord = file(inode)?.unwrap_or_default();
            // Whoever ended it meanwhile did what was left to do.
            return if now.generation == generation && now.writer.as_ref().is_some_and(|writer| writer.ended) {
                Ok(Reply::Orphans(vec![self.orphan_of(inode)?]))
            } else {
                Ok(Reply::Attributes(now.attributes(inode)))
            };
        }
        let mut reply = convert::reply(record, session, |bag| self.bag_info(bag), file)?;
        if let (Reply::Handle(handle), Some(Planted::RememberedLeaseBelieved)) = (&mut reply, self.planted) {
            handle.lost = false;
        }
        Ok(reply)
    }

    /// `Stale` for a change that the session has said it does not ask again: it was answered or given up, and what was answered is
    /// forgotten. `Busy` if the session would have more answers remembered than it may.
    pub fn may_be_done(&self, caller: Caller) -> Result<()> {
        let Some(session) = self.sessions.open.get(&caller.session) else { return Ok(()) };
        let by_count = self.planted == Some(Planted::AnswerForgottenByCount);
        if session.calls.is_passed(caller.call) && !by_count {
            let text = format!(
                "call {} of session {} comes after that session said it would not ask it again; nothing was done",
                caller.call, caller.session
            );
            return Err(Error::new(ErrorKind::Stale, text));
        }
        if session.calls.count() >= self.remembered_max && !by_count {
            let text = format!(
                "session {} has {} changes whose answers it may still ask for, and that is the most; nothing was done: ask again when \
                 the oldest of them is answered",
                caller.session, self.remembered_max
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        Ok(())
    }

    /// Remembers the answer in the transaction under way. `Sessions::remembered` follows when it is committed.
    pub fn remember(&mut self, caller: Caller, reply: &Reply) {
        if self.planted == Some(Planted::AnswerForgottenByCount)
            && let Some(session) = self.sessions.open.get_mut(&caller.session)
        {
            session.calls.forget_all_but(1);
        }
        if let Some((slot, order)) = self.sessions.next_slot(caller.session) {
            let floor = self.sessions.floor_of(caller.session);
            let record = CallRecord { call: caller.call, order, reply: Some(convert::reply_record(reply)), floor };
            self.put(&Key::Call(caller.session, slot), &record);
        }
    }

    /// Does `OpenSession`.
    pub fn open_session(&mut self, session: SessionId, user: &User) -> Result<Reply> {
        if self.sessions.ending.contains(&session) {
            return Err(Error::new(ErrorKind::Stale, format!("session {session} has ended; open one with a new id")));
        }
        // Looked up, not remembered: an answer to a repeated request waits for the record like the first one.
        if !self.layers.has(&Key::Session(session))? {
            self.put(&Key::Session(session), &session_record(user)?);
        }
        Ok(Reply::Done)
    }

    /// Does `Renew`. In memory alone: all sessions are renewed when the store is opened.
    pub fn renew(&mut self, session: SessionId) -> Result<Reply> {
        self.check_session(session)?;
        // Who is told that it lives believes it: that it began has to be committed.
        self.layers.has(&Key::Session(session))?;
        self.sessions.renewed(session, self.now);
        Ok(Reply::Done)
    }

    /// Marks a session as ended; `end_step` takes it apart. Nothing if it is not open.
    pub fn end_session(&mut self, session: SessionId) -> Result<Reply> {
        if self.layers.has(&Key::Session(session))? && self.sessions.is_open(session) {
            self.put(&Key::Session(session), &SessionRecord { ended: true, ..SessionRecord::default() });
        }
        Ok(Reply::Done)
    }

    /// One step of taking an ended session apart. Returns the session if that was the last step.
    pub fn end_step(&mut self) -> Result<Option<SessionId>> {
        let Some(session) = self.sessions.ending.first().copied() else { return Ok(None) };
        let files = Key::SessionFile(session, InodeId(0)).encode()[..17].to_vec();
        let groups = Key::SessionGroup(session, GroupId(0)).encode()[..17].to_vec();
        let calls = Key::Call(session, 0).encode()[..17].to_vec();
        let mut left = STEP_MAX;
        let open_files = self.numbers_under(&files, FILES_MAX)?;
        for inode in &open_files {
            self.orphan(session, InodeId(*inode))?;
            left -= 1;
        }
        if open_files.len() == FILES_MAX {
            return Ok(None);
        }
        for group in self.numbers_under(&groups, left)? {
            self.give_up_pack(session, GroupId(group))?;
            left -= 1;
        }
        let mut slots = Vec::new();
        if left > 0 {
            self.layers.scan(&calls, &after_prefix(&calls), |key, _| {
                slots.push(slot_in(key));
                Ok(slots.len() < left)
            })?;
        }
        left -= slots.len();
        for slot in slots {
            self.remove(&Key::Call(session, slot));
        }
        if left == 0 {
            return Ok(None);
        }
        self.remove(&Key::Session(session));
        Ok(Some(session))
    }
}

/// The slot in the key of a remembered call: its last two bytes, after six of the session.
fn slot_in(key: &[u8]) -> u16 {
    (number_at(key, 11) & 0xFFFF) as u16
}
