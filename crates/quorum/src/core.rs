//! One keeper: the library's state machine, and around it what it leaves open. See `lease` for what a promise is.

use crate::kept::{Entry, Kept, Vote, room_of};
use crate::lease::{Lease, PROMISE};
use crate::message::{KeeperId, Message};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use raft::eraftpb::{Message as Inner, MessageType};
use raft::{Config, RawNode, StateRole};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Ticks are at least so far apart, as they are executed: those that were missed are not made up for.
const TICK: Duration = Duration::from_millis(50);

/// Ticks between heartbeats.
const HEARTBEAT_TICKS: usize = 2;

/// A follower that hears of no leader campaigns after this many ticks at the soonest, and after less than twice as many: half a second to a
/// second. A leader that hears of no majority for so long steps down.
const ELECTION_TICKS: usize = 10;

/// A keeper that started votes for nobody for so long: it may have promised something before that it does not know of.
const SILENT_AT_START: Duration = Duration::from_secs(1);

/// Entries of one message, in bytes as they take them on the disk, and how many messages may be on their way to one keeper. No more than a quarter
/// of what may be uncommitted: a message is written as a whole.
const MESSAGE_MAX: u64 = 1 << 20;
const MESSAGES_AWAY: usize = 64;

/// A leader whose own disk has had something to write for so long is none: it could not take its own vote, and holds what others have committed.
const WRITE_MAX: Duration = Duration::from_secs(1);

/// What a keeper begins with.
pub struct Start {
    /// Which one it is.
    pub own: KeeperId,
    /// Which start of it this is, from 1 on: higher than that of any before.
    pub life: u64,
    /// What was on its disk, and who votes.
    pub kept: Kept,
    /// Bytes of the log, as groups take them on the disk (`Entry::room`), that may be proposed and not committed and durable here; more is
    /// refused. A quarter of the log is right: what a deposed leader proposed is cut off when that of the next one is durable, and there has to
    /// be room for both.
    pub uncommitted_max: u64,
    /// Its chance: when it campaigns.
    pub random: Arc<dyn Random>,
    /// Now.
    pub now: Time,
    /// A fault that is put in on purpose.
    pub planted: Option<Planted>,
}

/// What a keeper wants done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// To be made durable, in the order of these: the vote, then the entries, in place of those from the first one's index on. Say `durable` of
    /// it then.
    Write {
        /// Which one it is; higher than those before.
        number: u64,
        /// The new vote, if it changed.
        vote: Option<Vote>,
        /// New entries.
        entries: Vec<Entry>,
    },
    /// To be sent; it may be lost, late, or come twice.
    Send {
        /// To whom.
        to: KeeperId,
        /// What.
        message: Message,
    },
    /// Committed, and durable here: what follows the entries that were told before.
    Committed(Vec<Entry>),
    /// What it is from now on, in which term.
    Turned(Role),
    /// What it lacks is not in the log of this leader any more: it is to get what that one keeps elsewhere, and to begin anew behind that. Told again
    /// and again until then.
    Lacks {
        /// Who leads.
        leader: KeeperId,
    },
}

/// What a keeper is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads in this term: it may propose, and answers while it `has_lease`.
    Leads {
        /// The term.
        term: u64,
    },
    /// It does not. What it proposed and did not hear of as committed may be so later, or never.
    Follows {
        /// Who leads, if it knows.
        leader: Option<KeeperId>,
        /// In which term.
        term: u64,
    },
}

/// What waits until it and all before it is durable.
struct Writing {
    number: u64,
    begun: Time,
    /// There is something to write; otherwise it waits for those before only.
    writes: bool,
    /// A vote is in it.
    votes: bool,
    /// Its entries: the first one's index and the last one's.
    entries: Option<(u64, u64)>,
    sent_after: Vec<Inner>,
}

/// A start of another keeper.
struct Life {
    number: u64,
    /// When it was heard of first.
    heard: Time,
}

/// One keeper of the log.
pub struct Core {
    node: RawNode<Kept>,
    own: KeeperId,
    life: u64,
    /// Which start of each other keeper was heard of last.
    lives: BTreeMap<KeeperId, Life>,
    random: Arc<dyn Random>,
    planted: Option<Planted>,
    started: Time,
    ticked: Option<Time>,
    /// After how many ticks it campaigns, and the term and role for which that was drawn.
    campaigns_after: (usize, u64, StateRole),
    /// It lets nobody be elected until then.
    promised_until: Time,
    lease: Lease,
    /// When it asked another one to take over, and in which term.
    handing_over: Option<(u64, Time)>,
    vote: Vote,
    role: Role,
    writing: VecDeque<Writing>,
    uncommitted_max: u64,
    /// What it proposed as leader and is not committed, or not durable here: indices, and bytes on the disk.
    uncommitted: VecDeque<(u64, u64)>,
    /// These bytes together.
    uncommitted_room: u64,
    /// All up to this is durable.
    durable: u64,
    /// The last one that was handed to be written.
    written: u64,
    /// Where the log ends that is durable, of which the library was not told yet.
    end_untold: Option<u64>,
    /// Up to which index all keepers have the log, as the leader said last.
    everybody: u64,
    outputs: Vec<Output>,
}

impl Core {
    /// A keeper that goes on from what it has. The only voter leads when it is told to (`lead_alone`).
    pub fn start(start: Start) -> Result<Core> {
        let Start { own, life, kept, uncommitted_max, random, now, planted } = start;
        if life == 0 {
            return Err(Error::new(ErrorKind::Invalid, "a keeper's starts are counted from 1"));
        }
        let alone = kept.is_of(own);
        let base = kept.base();
        let config = Config {
            id: own.0,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: HEARTBEAT_TICKS,
            applied: base,
            max_size_per_msg: MESSAGE_MAX.min(uncommitted_max / 4),
            max_inflight_msgs: MESSAGES_AWAY,
            check_quorum: true,
            pre_vote: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let node = RawNode::new(&config, kept, &logger).map_err(|error| unusable(&error))?;
        let vote = vote_of(&node);
        let mut core = Core {
            node,
            own,
            life,
            lives: BTreeMap::new(),
            random,
            planted,
            started: now,
            ticked: None,
            campaigns_after: (0, 0, StateRole::Leader),
            promised_until: now,
            lease: Lease::default(),
            handing_over: None,
            vote,
            role: Role::Follows { leader: None, term: 0 },
            writing: VecDeque::new(),
            uncommitted_max,
            uncommitted: VecDeque::new(),
            uncommitted_room: 0,
            durable: 0,
            written: 0,
            end_untold: None,
            everybody: 0,
            outputs: Vec::new(),
        };
        if !alone && !core.is_planted(Planted::VotesRightAfterStart) {
            core.promised_until = now.after(SILENT_AT_START);
        }
        core.take_ready(now);
        Ok(core)
    }

    /// The only voter begins a term, in which it leads after its vote is durable. Others do not by this.
    pub fn lead_alone(&mut self, now: Time) -> Result<()> {
        if self.node.raft.prs().is_singleton() && self.node.raft.state != StateRole::Leader {
            self.node.campaign().map_err(|error| unusable(&error))?;
            self.take_ready(now);
        }
        Ok(())
    }

    /// A message came. What may not come in, is not from a keeper, or must not be answered now is left out. `now` is read after the message was
    /// taken from its link: a promise that is counted from before ends too early.
    pub fn receive(&mut self, now: Time, message: Message) {
        let known = message.inner.from != self.own.0 && self.node.raft.prs().get(message.inner.from).is_some();
        let forwarded = self.is_planted(Planted::ForwardedProposalTaken);
        if !known || message.inner.to != self.own.0 || !message.may_come_in() && !forwarded {
            return;
        }
        if !self.is_of_its_last_life(now, &message) {
            return;
        }
        let life = if self.is_planted(Planted::CommittedBeforeStart) { message.to_life } else { self.life };
        let Some(message) = message.for_life(life) else { return };
        // The library has a shield of its own, which counts ticks since it heard of a leader. It forgets the leader at any message of a
        // higher term, such as a refusal to a candidate that gave up long ago; the promise does not go with it.
        if message.asks_for_vote() && now < self.promised_until {
            return;
        }
        if message.asks_to_take_over() && now.since(self.started) < SILENT_AT_START {
            return;
        }
        let (leader, of_leader, everybody) = (message.inner.from, message.is_of_a_leader(), message.everybody);
        // Of an earlier start it may have lacked what it has now.
        let front = if message.to_life == self.life { message.front } else { 0 };
        // What does not fit is for the library to refuse; it changes nothing then.
        let _refused = self.node.step(message.inner);
        let follows = self.node.raft.state == StateRole::Follower && self.node.raft.leader_id == leader;
        if of_leader && follows {
            self.everybody = everybody;
            self.lacks_before(KeeperId(leader), front);
        }
        if of_leader && follows && !self.is_planted(Planted::PromiseForgotten) {
            self.promised_until = self.promised_until.max(now.after(PROMISE));
        }
        self.take_ready(now);
    }

    /// Entries up to this one are needed no more: they are kept elsewhere, durably. What was not told as committed stays. Whoever lacks some of them
    /// (`everybody`) has to get what is kept elsewhere (`Output::Lacks`).
    pub fn free(&mut self, to: u64) {
        let to = to.min(self.node.raft.raft_log.applied);
        self.node.mut_store().free(to);
    }

    /// The index up to which all keepers have the log, as far as it is known here: what a leader counts, or said last. It may fall, when one of them starts
    /// again. Of one that is alone what it told as committed.
    pub fn everybody(&self) -> u64 {
        let raft = &self.node.raft;
        if raft.prs().is_singleton() {
            return raft.raft_log.applied;
        }
        let counted = raft.prs().iter().map(|(_, progress)| progress.matched).min().unwrap_or(0);
        if raft.state == StateRole::Leader { counted } else { self.everybody }
    }

    /// The index up to which another keeper is known to have the log, if this one leads.
    pub fn matched(&self, keeper: KeeperId) -> Option<u64> {
        let progress = self.node.raft.prs().get(keeper.0).map(|progress| progress.matched);
        progress.filter(|_| self.node.raft.state == StateRole::Leader)
    }

    /// The index of the last entry that was let go of by `free`.
    pub fn front(&self) -> u64 {
        self.node.store().base()
    }

    /// Time has gone on. Call it when `next_tick` is due.
    pub fn tick(&mut self, now: Time) {
        if self.ticked.is_some_and(|ticked| now.since(ticked) < TICK) {
            return;
        }
        self.ticked = Some(now);
        if let Some((term, asked)) = self.handing_over
            && now.since(asked) >= PROMISE
        {
            self.handing_over = None;
            // The other one may still take over in this term, so it is not for us any more; an election decides.
            if self.leads_in(term) {
                self.node.raft.become_follower(term, raft::INVALID_ID);
            }
        }
        let oldest = self.writing.iter().find(|writing| writing.writes);
        if oldest.is_some_and(|oldest| now.since(oldest.begun) >= WRITE_MAX)
            && !self.node.raft.prs().is_singleton()
            && let Role::Leads { term } = self.role
            && self.leads_in(term)
        {
            self.node.raft.become_follower(term, raft::INVALID_ID);
        }
        if self.may_tick(now) {
            self.node.tick();
        }
        self.ask_for_lease(now);
        self.take_ready(now);
    }

    /// When `tick` is to be called next. None: never, as long as it is alone.
    pub fn next_tick(&self) -> Option<Time> {
        (!self.node.raft.prs().is_singleton()).then(|| self.ticked.map_or(self.started, |ticked| ticked.after(TICK)))
    }

    /// All writes up to this number are durable, votes and entries. It is one that was taken from this core.
    pub fn durable(&mut self, now: Time, number: u64) {
        assert!(number <= self.written, "write {number} is durable, and {} was the last", self.written);
        self.durable = self.durable.max(number);
        self.take_durable();
        self.take_ready(now);
    }

    /// Adds a group of changes that were computed as the leader of this term. It is committed when `committed` has come to its index, which is
    /// returned, while this keeper still leads in this term. Nothing was added at an error: `Stale` if it does not lead in that term any more, `Busy`
    /// if it does and takes no more now, because its disk is slow or another one is to take over.
    pub fn propose(&mut self, now: Time, term: u64, group: Bytes) -> Result<u64> {
        if group.is_empty() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "an empty group is what a leader begins with; nothing was added",
            ));
        }
        self.add(now, term, group)
    }

    /// Adds a group without changes, as the leader of this term, so that the log goes on where nobody changes anything. Errors as of `propose`.
    pub fn propose_nothing(&mut self, now: Time, term: u64) -> Result<u64> {
        self.add(now, term, Bytes::new())
    }

    fn add(&mut self, now: Time, term: u64, group: Bytes) -> Result<u64> {
        // It is looked at again here: between computing a group and proposing it a message of a higher term may have come.
        if !self.leads_in(term) && !self.is_planted(Planted::ForwardedProposalTaken) {
            return Err(moved(term));
        }
        let (applied, room) = (self.node.raft.raft_log.applied, room_of(group.len()));
        while let Some((_, room)) = self.uncommitted.pop_front_if(|(index, _)| *index <= applied) {
            self.uncommitted_room -= room;
        }
        // One goes however large it is: it would never go else.
        if !self.uncommitted.is_empty() && self.uncommitted_room + room > self.uncommitted_max {
            return Err(busy());
        }
        if self.node.propose(Vec::new(), group.into()).is_err() {
            return Err(if self.leads_in(term) { busy() } else { moved(term) });
        }
        let index = self.node.raft.raft_log.last_index();
        self.uncommitted.push_back((index, room));
        self.uncommitted_room += room;
        self.take_ready(now);
        Ok(index)
    }

    /// Asks another keeper to take over at once; nobody, if there is no such keeper. This one answers no reads any more in this term, and ends
    /// it half a second later if that one does not come.
    pub fn hand_over(&mut self, now: Time, to: KeeperId) {
        let Role::Leads { term } = self.role else { return };
        if to == self.own || self.node.raft.prs().get(to.0).is_none() {
            return;
        }
        if !self.is_planted(Planted::LeaseKeptInTransfer) {
            self.lease.give_up();
            // Asked again, it does not begin anew: it would never end.
            let began = self.handing_over.filter(|(of, _)| *of == term);
            self.handing_over = began.or(Some((term, now)));
        }
        self.node.transfer_leader(to.0);
        self.take_ready(now);
    }

    /// The other keeper that had best take over, if this one leads: one that was heard lately, and did not start so lately that it refuses to
    /// (`SILENT_AT_START`); of those the one that has most of the log.
    pub fn next_to_lead(&self, now: Time) -> Option<KeeperId> {
        let Role::Leads { .. } = self.role else { return None };
        let others = self.node.raft.prs().iter().filter(|(keeper, _)| **keeper != self.own.0);
        let may = |keeper: u64| {
            self.lives.get(&KeeperId(keeper)).is_some_and(|life| now.since(life.heard) >= SILENT_AT_START)
        };
        let best = others.max_by_key(|(keeper, progress)| {
            (may(**keeper) && progress.recent_active, progress.recent_active, progress.matched, **keeper)
        });
        best.map(|(keeper, _)| KeeperId(*keeper))
    }

    /// Whether nobody else can lead now, so that reads are answered: of all that is committed.
    pub fn has_lease(&self, now: Time) -> bool {
        let Role::Leads { term } = self.role else { return false };
        if !self.leads_in(term) {
            return false;
        }
        // What earlier terms committed is known when its own first entry is.
        if !self.node.raft.commit_to_current_term() {
            return self.is_planted(Planted::ServedBeforeOwnEntry);
        }
        // Alone, there is nobody else.
        let alone = self.node.raft.prs().is_singleton();
        alone || self.lease.holds(now) || self.is_planted(Planted::LeaseNotAsked)
    }

    /// The highest index that is durable at a majority, as far as it is known here.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// What it is.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What is to be done since this was asked.
    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }
}

impl Core {
    fn is_planted(&self, fault: Planted) -> bool {
        self.planted == Some(fault)
    }

    /// Whether it is not from before the last start of its sender that was heard of. A keeper that started may have lost the end of what it acknowledged
    /// before, if that rotted and nothing says that it was durable, or have an older version in its place. So nothing of what it
    /// acknowledged counts any more, and it is asked again what it has: the library would send it only what follows, for ever.
    fn is_of_its_last_life(&mut self, now: Time, message: &Message) -> bool {
        let (from, life, next) = (message.from(), message.life, self.node.raft.raft_log.last_index() + 1);
        let known = self.lives.entry(from).or_insert(Life { number: life, heard: now });
        let last = known.number;
        if life < last {
            return false;
        }
        if life > last {
            *known = Life { number: life, heard: now };
        }
        if life > last
            && !self.is_planted(Planted::StartNotHeard)
            && let Some(progress) = self.node.raft.mut_prs().get_mut(from.0)
        {
            progress.become_probe();
            (progress.matched, progress.next_idx) = (0, next);
        }
        true
    }

    fn leads_in(&self, term: u64) -> bool {
        self.node.raft.state == StateRole::Leader && self.node.raft.term == term
    }

    /// The last entry that is not here any more, if the entry before what comes next for another keeper is not, either.
    fn front_for(&self, to: KeeperId) -> u64 {
        let next = self.node.raft.prs().get(to.0).map_or(u64::MAX, |progress| progress.next_idx);
        Some(self.front()).filter(|front| next <= *front).unwrap_or(0)
    }

    /// The leader's log begins behind this entry, and it does not know this keeper to have that. If it has, what it said of it was lost, and the leader will
    /// send nothing that it could answer: it says so again.
    fn lacks_before(&mut self, leader: KeeperId, front: u64) {
        let (applied, term) = (self.node.raft.raft_log.applied, self.node.raft.term);
        if front > applied {
            self.outputs.push(Output::Lacks { leader });
        } else if front > 0 {
            let answer = Inner {
                msg_type: MessageType::MsgAppendResponse,
                to: leader.0,
                from: self.own.0,
                term,
                // Told as committed, and durable here.
                index: applied,
                commit: applied,
                ..Inner::default()
            };
            self.send(vec![answer]);
        }
    }

    /// Not while the tick would begin a campaign of its own against a promise, nor, alone, while its own writes are under way: it would win at once,
    /// and the library wants its log durable then.
    fn may_tick(&self, now: Time) -> bool {
        let raft = &self.node.raft;
        let campaigns = raft.state != StateRole::Leader && raft.election_elapsed + 1 >= self.campaigns_after.0;
        let promised = now < self.promised_until;
        let alone = raft.prs().is_singleton() && !self.writing.is_empty();
        !(alone || campaigns && promised)
    }

    fn ask_for_lease(&mut self, now: Time) {
        if let Role::Leads { term } = self.role
            && self.leads_in(term)
            && let Some(question) = self.lease.ask(now)
        {
            self.node.read_index(question);
        }
    }

    /// Takes everything that the library has ready: notes what is to be written and what may be sent before and after that.
    fn take_ready(&mut self, now: Time) {
        loop {
            self.draw();
            if !self.node.has_ready() {
                return;
            }
            let mut ready = self.node.ready();
            self.take_role(now);
            for state in ready.take_read_states() {
                self.lease.confirmed(&state.request_ctx);
            }
            let vote = Some(vote_of(&self.node)).filter(|vote| *vote != self.vote);
            self.vote = vote.unwrap_or(self.vote);
            let entries = ready.take_entries();
            self.node.mut_store().append(&entries);
            let (at_once, mut sent_after) = (ready.take_messages(), ready.take_persisted_messages());
            // A leader's messages need no write of its own, but while its vote is under way, of which nobody would know after a power loss.
            if vote.is_some() || self.writing.iter().any(|writing| writing.votes) {
                sent_after.extend(at_once);
            } else {
                self.send(at_once);
            }
            self.send_too_early(&mut sent_after);
            let number = ready.number();
            let writes = vote.is_some() || !entries.is_empty();
            let range = entries.first().zip(entries.last()).map(|(first, last)| (first.index, last.index));
            if writes {
                self.written = number;
                let entries = entries.iter().map(Entry::of).collect();
                self.outputs.push(Output::Write { number, vote, entries });
            }
            let votes = vote.is_some();
            self.writing.push_back(Writing { number, begun: now, writes, votes, entries: range, sent_after });
            self.commit(ready.take_committed_entries());
            self.node.advance_append_async(ready);
            self.node.advance_apply();
            self.take_durable();
        }
    }

    /// Lets go what waited for writes that are durable, or for none. The library is told of what is durable only when no later write, which is under
    /// way, cuts that off again: it looks for the end that was written in the log as it is now, and would find it there, written anew.
    fn take_durable(&mut self) {
        while let Some(first) = self.writing.front()
            && (!first.writes || first.number <= self.durable)
        {
            let Some(Writing { number, sent_after, entries, .. }) = self.writing.pop_front() else { return };
            self.send(sent_after);
            self.end_untold = entries.map(|(_, last)| last).or(self.end_untold);
            let end = self.end_untold.unwrap_or(0);
            let is_cut = self.writing.iter().filter_map(|later| later.entries).any(|(first, _)| first <= end);
            if !is_cut {
                self.node.on_persist_ready(number);
                self.end_untold = None;
            }
        }
    }

    /// With a fault put in, what it lets out.
    fn send_too_early(&mut self, sent_after: &mut Vec<Inner>) {
        let early: fn(MessageType) -> bool = match self.planted {
            Some(Planted::VoteNotSynced) => {
                |kind| matches!(kind, MessageType::MsgRequestVote | MessageType::MsgRequestVoteResponse)
            }
            Some(Planted::EntryAcknowledgedBeforeSync) => |kind| kind == MessageType::MsgAppendResponse,
            _ => return,
        };
        let (early, rest) = std::mem::take(sent_after).into_iter().partition(|message| early(message.msg_type));
        *sent_after = rest;
        self.send(early);
    }

    fn send(&mut self, messages: Vec<Inner>) {
        for inner in messages {
            let to = KeeperId(inner.to);
            let to_life = self.lives.get(&to).map_or(0, |life| life.number);
            let leads = self.node.raft.state == StateRole::Leader;
            let everybody = if leads { self.everybody() } else { 0 };
            let front = if leads { self.front_for(to) } else { 0 };
            let message = Message { inner, life: self.life, to_life, everybody, front };
            self.outputs.push(Output::Send { to, message });
        }
    }

    fn commit(&mut self, entries: Vec<raft::eraftpb::Entry>) {
        if !entries.is_empty() {
            self.outputs.push(Output::Committed(entries.iter().map(Entry::of).collect()));
        }
    }

    /// Notes what it is now.
    fn take_role(&mut self, now: Time) {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leads { term: raft.term },
            _ => Role::Follows {
                leader: Some(raft.leader_id).filter(|leader| *leader != raft::INVALID_ID).map(KeeperId),
                term: raft.term,
            },
        };
        if role == self.role {
            return;
        }
        self.role = role;
        self.uncommitted.clear();
        self.uncommitted_room = 0;
        match role {
            Role::Leads { term } => {
                self.lease.begin(term);
                // Whoever asks for a vote now is behind.
                self.promised_until = self.promised_until.max(now);
            }
            Role::Follows { .. } => self.lease.end(),
        }
        self.outputs.push(Output::Turned(role));
    }

    /// The library draws from the thread's own chance when it campaigns; put in its place is what our seed says, so that one seed is one history.
    fn draw(&mut self) {
        let (term, role) = (self.node.raft.term, self.node.raft.state);
        if (self.campaigns_after.1, self.campaigns_after.2) != (term, role) {
            let more = self.random.below(ELECTION_TICKS as u64) as usize;
            self.campaigns_after = (ELECTION_TICKS + more, term, role);
        }
        self.node.raft.set_randomized_election_timeout(self.campaigns_after.0);
    }
}

fn vote_of(node: &RawNode<Kept>) -> Vote {
    let voted_for = Some(node.raft.vote).filter(|vote| *vote != raft::INVALID_ID).map(KeeperId);
    Vote { term: node.raft.term, voted_for }
}

fn busy() -> Error {
    let text = "this keeper takes no changes just now: its disk is slow, or another one takes over; nothing was changed; try again";
    Error::new(ErrorKind::Busy, text)
}

fn moved(term: u64) -> Error {
    let text =
        format!("this keeper does not lead in term {term} any more; nothing was changed; ask the one that leads");
    Error::new(ErrorKind::Stale, text)
}

fn unusable(error: &raft::Error) -> Error {
    Error::new(ErrorKind::Invalid, format!("the keeper's log cannot be used: {error}"))
}

#[cfg(test)]
mod tests;
