//! Who leads: a store answers while its keeper leads and nobody else can. One that does not lead does what the others agree on.

use super::{Effect, Store, Waiting};
use crate::copies::KeeperMessage;
use crate::log::Event;
use crate::replay;
use crate::state::State;
use base::error::{Error, ErrorKind, Result};
use base::moved::Moved;
use base::unit::Time;
use quorum::{Entry, KeeperId, Role};

/// What a store does for the keepers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It answers.
    Leads {
        /// The term: nobody else answers in it, and whoever answers in a higher one came later.
        term: u64,
    },
    /// It was elected, and does not know all that is committed yet.
    Begins {
        /// The term.
        term: u64,
    },
    /// Another one answers.
    Follows {
        /// Which, if it is known.
        leader: Option<KeeperId>,
        /// In which term.
        term: u64,
    },
}

impl Part {
    /// Whether it answers.
    pub fn leads(self) -> bool {
        matches!(self, Part::Leads { .. })
    }

    /// The term.
    pub fn term(self) -> u64 {
        let (Part::Leads { term } | Part::Begins { term } | Part::Follows { term, .. }) = self;
        term
    }
}

fn another_history(settled: u64, sequence: u64) -> Error {
    let text = format!(
        "the keepers agreed on a group behind change {settled}, and this one is at {sequence}; it says nothing more; what was acknowledged \
         is safe; report this, and restart"
    );
    Error::new(ErrorKind::Corrupt, text)
}

impl<T> Store<T> {
    /// What this store does for the keepers now.
    pub fn part(&self) -> Part {
        self.part
    }

    /// Whether its log or its tree failed, and there are others: it says nothing more, and is to be opened again.
    pub fn has_failed(&self) -> bool {
        !self.log.is_alone() && self.log.failure().is_some()
    }

    /// Asks another keeper to answer in its place, if this one does. What has come and is not committed is asked of that one. Whether it does, `part`
    /// says; if it does not within half a second, there is an election.
    pub fn hand_over(&mut self, now: Time) {
        self.state.now = now;
        self.log.hand_over(now);
        self.follow_log();
    }

    /// It is about to be ended: who waits for the other keepers is told that another one answers. Of one that is alone nobody waits then.
    pub fn give_up(&mut self) {
        if !self.log.is_alone() {
            self.refuse_waiting(&self.elsewhere(), |_| true);
        }
    }

    /// The number of the last change that this store has in its state: one that does not lead is behind by what it lacks.
    pub fn sequence(&self) -> u64 {
        self.state.sequence()
    }

    /// A message of another keeper came. `now` is read after it was taken from its link.
    pub fn receive(&mut self, now: Time, message: KeeperMessage) {
        self.state.now = now;
        match message {
            KeeperMessage::Log(message) => self.log.receive(now, message),
            KeeperMessage::Copy(message) => self.receive_copy(message),
        }
        self.follow_log();
    }

    /// The error for a question that another keeper answers. Where that one listens, the store does not know.
    pub(super) fn elsewhere(&self) -> Error {
        Moved { leader: None, term: self.part.term() }.into()
    }

    /// That error, if this store does not answer.
    pub(super) fn check_leads(&self) -> Result<()> {
        if self.part.leads() { Ok(()) } else { Err(self.elsewhere()) }
    }

    /// Whether what was read may be told now: nobody else can have changed it.
    pub(super) fn may_tell(&self) -> bool {
        self.log.is_alone() || self.log.has_lease(self.state.now)
    }

    /// Does what the log has to say, and answers everything whose changes are committed.
    pub(super) fn follow_log(&mut self) {
        while let Some(event) = self.log.take_event() {
            match event {
                Event::Turned(role) => self.turned(role),
                Event::Group(entry) => self.apply(entry),
                Event::Lacks(leader) => self.target.needs(self.state.now, leader),
            }
        }
        if matches!(self.part, Part::Begins { .. }) && self.log.has_lease(self.state.now) {
            self.begin_to_lead();
        }
        self.release(self.log.is_alone());
        if let Some(failure) = self.log.failure().filter(|_| !self.refused) {
            let failure = failure.clone();
            self.refused = true;
            if self.log.is_alone() {
                // Whether it is kept is not known: the log may have it after a restart, so nobody is to see it undone. The tree makes it durable.
                self.refuse_waiting(&failure, |waiting| waiting.made);
            } else {
                // The others may have what it did not hear of as committed.
                self.refuse_waiting(&self.elsewhere(), |_| true);
                self.throw_away();
                self.set_part(Part::Follows { leader: None, term: self.part.term() });
            }
        }
    }

    /// Whether what is not committed may go into the tree: where there are no others the tree decides what is kept, when the log cannot.
    pub(super) fn tree_decides(&self) -> bool {
        self.log.is_alone() && self.log.failure().is_some()
    }

    /// Answers what is committed: changes, and if `may_tell` what was read, too.
    pub(super) fn release(&mut self, may_tell: bool) {
        let committed = self.log.committed();
        while let Some(first) = self.waiting.first_entry()
            && first.key().0 <= committed
            && (may_tell || first.get().made)
        {
            let Waiting { tag, result, .. } = first.remove();
            self.effects.push(Effect::Reply { tag, result });
        }
    }

    pub(super) fn refuse_waiting(&mut self, error: &Error, which: impl Fn(&Waiting<T>) -> bool) {
        for (key, waiting) in std::mem::take(&mut self.waiting) {
            if which(&waiting) {
                self.effects.push(Effect::Reply { tag: waiting.tag, result: Err(error.clone()) });
            } else {
                self.waiting.insert(key, waiting);
            }
        }
    }

    fn set_part(&mut self, part: Part) {
        self.part = part;
        self.effects.push(Effect::Turned(part));
    }

    /// Another leader, or this one. What it answered before counts; what it did not answer may be done or not.
    fn turned(&mut self, role: Role) {
        let part = match role {
            Role::Leads { term } => Part::Begins { term },
            Role::Follows { leader, term } => Part::Follows { leader, term },
        };
        let followed = matches!(self.part, Part::Follows { .. });
        if !followed {
            self.release(false);
        }
        self.set_part(part);
        if !followed {
            self.refuse_waiting(&self.elsewhere(), |_| true);
            self.throw_away();
        }
    }

    /// What is not committed, or not heard of as such, is not in the state any more.
    fn throw_away(&mut self) {
        let settled = self.log.settled();
        match self.state.settled(&self.log, &self.settings) {
            Ok(state) => {
                self.state = state;
                self.to_merge = self.to_merge.take().filter(|frozen| frozen.sequence <= settled);
                self.unmerged_since = self.state.layers.has_overlay().then_some(self.state.now);
            }
            // Whatever meets a change that is not committed is refused.
            Err(error) => {
                self.failures.insert("throwing away what is not committed", error.clone());
                self.log.fail(error);
            }
        }
    }

    /// A group that another keeper made, or this one before it was another's turn.
    fn apply(&mut self, entry: Entry) {
        let sequence = self.log.settled();
        // What begins a term has no changes. It may come while this one leads already, and has changes that are not committed: the others were faster.
        if entry.group.is_empty() {
            return self.log.settle(entry, sequence);
        }
        if sequence != self.state.sequence() {
            return self.log.fail(another_history(sequence, self.state.sequence()));
        }
        match replay::apply_group(&mut self.state.layers, &entry.group, sequence) {
            Ok(last) => {
                if last > sequence {
                    self.state.follow(last);
                    self.unmerged_since.get_or_insert(self.state.now);
                }
                self.log.settle(entry, last);
            }
            Err(error) => {
                self.failures.insert("doing what the keepers agreed on", error.clone());
                self.log.fail(error);
            }
        }
    }

    /// All that is committed is in the layers; memory gets the rest.
    fn begin_to_lead(&mut self) {
        let (now, wall, least) = (self.state.now, self.state.wall, self.state.least);
        let loaded = self
            .state
            .layers
            .take()
            .and_then(|layers| State::load((layers, self.state.sequence()), &self.settings, (now, wall), least));
        match loaded {
            Ok(mut state) => {
                // Who was heard of since it led last, others know. What it told then, and ended since, it tells now.
                state.sessions.keep_untold(&self.state.sessions, self.log.settled());
                self.state = state;
                self.state.nodes.led_since(now);
                self.set_part(Part::Leads { term: self.part.term() });
            }
            Err(error) => {
                self.failures.insert("beginning to lead", error.clone());
                self.log.fail(error);
            }
        }
    }
}
