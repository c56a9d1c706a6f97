//! A small world in which one group is written, looked at, broken and ended, and the search through all its histories.
//!
//! Each event is something that may happen next, never something that has to: who is silent, cut off, slow or stopped is one whose events
//! come later or not at all, and a process that is down and comes back is one whose events wait until its start has another number. So
//! silence and return need no events of their own. Lengths are counted in appends; a cell is one append, so that they go round the columns.

mod packed;

use crate::ended::{End, Ending, Has, Known, ending};
use crate::stripe::Stripe;
use packed::Mixed;
use std::collections::HashSet;
use std::hash::BuildHasherDefault;

/// Replicas of the largest world.
const MOST: usize = 6;

/// What is tried, and what is done wrong in it.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub columns: usize,
    pub copies: usize,
    pub appends: u8,
    /// Appends on their way at once.
    pub window: u8,
    /// Answers come and readers look as soon as there is something: what is promised early has to outlive more. Fewer histories are gone
    /// through so, and those that are left out promise later.
    pub at_once: bool,
    /// Readers look.
    pub looks: bool,
    /// Devices are given up.
    pub gives_up: bool,
    /// The leader calls nodes silent, so that readers leave them out.
    pub passes_over: bool,
    /// Replicas have no room: the writer seals them with less than it sent.
    pub fills: bool,
    /// Every second append of a column is synced, and that is recorded. Chunks are deleted under running processes; of what was acknowledged
    /// only what is recorded as synced is promised then.
    pub deletes: bool,
    pub wrong: Wrong,
}

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    Nothing,
    /// A column ends where the least of its replicas does.
    LeastCounts,
    /// Who started anew is taken for one that has all it took.
    RestartedIsSound,
    /// One answer decides, whoever gave it.
    UnsoundDecides,
    /// Lengths are asked for, and nobody is fenced.
    EndsWithoutFence,
    /// The writer acknowledges what those that it gave up lack before the change that strikes them out.
    AcknowledgesBeforeStrike,
    /// A leader's end names those that have less than their part.
    NamesShort,
    /// A writer's end names those that it gave up.
    NamesGivenUp,
    /// What is recorded as synced does not count.
    NoFloor,
    /// A reader believes the one that has most.
    SeenOfOne,
    /// A reader leaves out who does not answer it, and that is not recorded: who comes back is sound and ends the group with less.
    SilentLeftOut,
    /// A reader leaves out who started anew, though it is fenced.
    FencedLeftOut,
    /// What a leader heard before a node was called silent still counts as sound.
    HeardStaysSound,
}

/// What one replica is, and what the writer and the leader know of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Replica {
    has: u8,
    /// So much it has answered to the writer.
    answered: u8,
    restarted: bool,
    fenced: bool,
    sealed: bool,
    lost: bool,
    /// Its node was called silent, or it is lost: by what is recorded it is no more sound than one that started anew.
    passed_over: bool,
    /// What the leader knows: its length, and whether it was sound.
    heard: Option<(u8, bool)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    replicas: [Replica; MOST],
    sent: u8,
    acknowledged: u8,
    seen: u8,
    /// Recorded as synced.
    floor: u8,
    /// The writer ends the group, and sends nothing more of it.
    ending: bool,
    /// The metadata have taken the file from the writer.
    taken: bool,
    /// Then it is over: this is not packed.
    closed: Option<u8>,
}

/// What came next, to which replica.
type Event = (&'static str, usize);

struct Step {
    event: Event,
    state: State,
    broken: Option<&'static str>,
}

/// A history at whose end something is not as it has to be.
pub struct Broken {
    pub what: &'static str,
    pub history: Vec<String>,
}

impl World {
    /// Goes through all histories, the shortest first. How many states there are, or the first history that breaks something.
    pub fn explore(&self) -> Result<usize, Broken> {
        let mut known: HashSet<u128, BuildHasherDefault<Mixed>> = HashSet::default();
        let mut found: Vec<(u128, u32)> = vec![(State::default().packed(), 0)];
        known.insert(found[0].0);
        let (mut at, mut next) = (0, Vec::new());
        while at < found.len() {
            let state = State::unpacked(found[at].0);
            self.steps(&state, &mut next);
            for Step { event, mut state, broken } in next.drain(..) {
                if let Some(what) = broken {
                    return Err(self.broken_at(what, (event, state), at, &found));
                }
                if state.closed.is_some() {
                    continue;
                }
                self.sort(&mut state);
                let packed = state.packed();
                if known.insert(packed) {
                    if let Some(what) = self.broken(&state) {
                        return Err(self.broken_at(what, (event, state), at, &found));
                    }
                    found.push((packed, at as u32));
                }
            }
            at += 1;
        }
        Ok(found.len())
    }

    fn broken_at(&self, what: &'static str, last: (Event, State), at: usize, found: &[(u128, u32)]) -> Broken {
        let (mut history, mut at) = (vec![self.said(last.0, &last.1)], at);
        while at != 0 {
            let (packed, before) = found[at];
            let mut steps = Vec::new();
            self.steps(&State::unpacked(found[before as usize].0), &mut steps);
            let step = steps.into_iter().find_map(|Step { event, mut state, .. }| {
                self.sort(&mut state);
                (state.packed() == packed).then_some((event, state))
            });
            let (event, state) = step.expect("it was found by one of them");
            history.push(self.said(event, &state));
            at = before as usize;
        }
        history.reverse();
        Broken { what, history }
    }

    fn said(&self, (event, at): Event, state: &State) -> String {
        let replica = |replica: &Replica| {
            let flag = |is: bool, letter: char| is.then_some(letter);
            let flags = [
                flag(replica.restarted, 'r'),
                flag(replica.fenced, 'f'),
                flag(replica.sealed, 's'),
                flag(replica.lost, 'l'),
                flag(replica.passed_over, 'p'),
            ];
            let flags: String = flags.into_iter().flatten().collect();
            let heard =
                replica.heard.map_or(String::new(), |(has, sound)| format!("({has}{})", if sound { "!" } else { "" }));
            format!("{}/{}{flags}{heard}", replica.has, replica.answered)
        };
        let replicas: Vec<String> = self.replicas().map(|at| replica(&state.replicas[at])).collect();
        let State { sent, acknowledged, seen, closed, .. } = state;
        format!(
            "{event} {at}: {} sent {sent} acknowledged {acknowledged} seen {seen} closed {closed:?}",
            replicas.join(" ")
        )
    }

    fn replicas(&self) -> std::ops::Range<usize> {
        0..self.columns * self.copies
    }

    fn stripe(&self) -> Stripe {
        Stripe::new(self.columns, 1).expect("there is a column")
    }

    fn column_of(&self, replica: usize) -> usize {
        replica / self.copies
    }

    /// What of a group of this length a replica has to have.
    fn part(&self, length: u8, replica: usize) -> u8 {
        self.stripe().column_length(length.into(), self.column_of(replica)) as u8
    }

    /// The length of the group when each column has so much.
    fn length(&self, of_column: impl Fn(std::ops::Range<usize>) -> u8) -> u8 {
        let columns = (0..self.columns).map(|column| column * self.copies..(column + 1) * self.copies);
        self.stripe().group_length(&columns.map(|column| of_column(column).into()).collect::<Vec<u64>>()) as u8
    }

    /// Replicas of a column are alike: of two states that differ in their order one is enough.
    fn sort(&self, state: &mut State) {
        for column in state.replicas[self.replicas()].chunks_mut(self.copies) {
            column.sort_unstable_by_key(Replica::packed);
        }
    }

    /// What must never be.
    fn broken(&self, state: &State) -> Option<&'static str> {
        // Progress: a sound answer in each column is enough, and so are all answers.
        let is_enough = |column: std::ops::Range<usize>| {
            let known = column.map(|at| (state.replicas[at], self.part(state.floor, at)));
            let is_sound = |replica: Replica, least| replica.heard.is_some_and(|(has, sound)| sound && has >= least);
            known.clone().any(|(replica, least)| is_sound(replica, least))
                || known.clone().all(|(replica, _)| replica.heard.is_some() || replica.lost)
        };
        let columns = self.replicas().step_by(self.copies).map(|at| at..at + self.copies);
        let is_enough = state.taken && columns.into_iter().all(is_enough);
        (is_enough && matches!(self.heard(state), Ending::Waits(_))).then_some("not ended though enough is known")
    }

    /// The rule, or what is wrong in this world instead of it.
    fn judged(&self, floor: u8, mut replicas: Vec<(usize, Known)>) -> Ending {
        let answered = |column: usize, replicas: &[(usize, Known)]| {
            replicas.iter().any(|(of, known)| *of == column && matches!(known, Known::Answered { .. }))
        };
        if self.wrong == Wrong::UnsoundDecides {
            for at in 0..replicas.len() {
                if replicas[at].1 == Known::Unanswered && answered(replicas[at].0, &replicas) {
                    replicas[at].1 = Known::Lost;
                }
            }
        }
        let floor = if self.wrong == Wrong::NoFloor { 0 } else { floor };
        let ended = ending(self.stripe(), floor.into(), &replicas);
        let Ending::Ends(End { parts, is_damaged, .. }) = &ended else { return ended };
        if self.wrong != Wrong::LeastCounts {
            return ended;
        }
        let least =
            self.length(|column| replicas[column].iter().filter_map(|of| of.1.length()).min().unwrap_or(0) as u8);
        let has = |(at, has): (usize, &Has)| match replicas[at].1.length() {
            Some(length) if length >= self.part(least, at).into() => Has::All,
            _ => *has,
        };
        let parts = parts.iter().enumerate().map(has).collect();
        Ending::Ends(End { length: least.into(), parts, is_damaged: *is_damaged })
    }

    /// What the leader makes of what it has heard.
    fn heard(&self, state: &State) -> Ending {
        let known = |at: usize| match state.replicas[at] {
            Replica { heard: Some((has, sound)), .. } => Known::Answered { length: has.into(), sound },
            Replica { lost: true, .. } => Known::Lost,
            _ => Known::Unanswered,
        };
        self.judged(state.floor, self.replicas().map(|at| (self.column_of(at), known(at))).collect())
    }

    /// What of a column stays after a loss of power, and is recorded when it is acknowledged.
    fn synced(&self, length: u8) -> u8 {
        if self.deletes { length & !1 } else { 0 }
    }

    /// Whether what is promised of the column of a replica is still somewhere: what is acknowledged, or may be as soon as answers come that are
    /// on their way, and what readers saw. What is gone everywhere is lost, whatever the rule: the histories go without that. All but one
    /// replica of a column may so lose power or be given up, and more where that takes nothing that was promised.
    fn is_somewhere(&self, state: &State, replica: usize) -> bool {
        let counted = || self.beside(replica).map(|at| &state.replicas[at]).filter(|replica| !replica.lost);
        let answered = counted().map(|replica| replica.answered).min().unwrap_or(0);
        let promised = answered.max(self.part(state.acknowledged.max(state.seen), replica));
        let promised = if self.deletes { self.synced(promised) } else { promised };
        counted().any(|replica| replica.has >= promised)
    }

    /// The replicas of its column.
    fn beside(&self, replica: usize) -> std::ops::Range<usize> {
        let first = self.column_of(replica) * self.copies;
        first..first + self.copies
    }

    fn steps(&self, state: &State, next: &mut Vec<Step>) {
        self.steps_but_looks(state, next);
        let look = |state: &mut State| state.seen = state.seen.max(self.visible(state));
        match (self.looks, self.at_once) {
            (false, _) => {}
            (true, false) => change(state, ("seen", 0), next, look),
            (true, true) => {
                next.iter_mut().filter(|step| step.state.closed.is_none()).for_each(|step| look(&mut step.state))
            }
        }
    }

    fn steps_but_looks(&self, state: &State, next: &mut Vec<Step>) {
        self.writer_steps(state, next);
        self.losses(state, next);
        if state.taken {
            self.leader_steps(state, next);
        } else {
            self.ending_writer_steps(state, next);
        }
    }

    /// The writer sends, and is answered. It may not know that it is not the writer any more.
    fn writer_steps(&self, state: &State, next: &mut Vec<Step>) {
        if !state.ending && state.sent < self.appends.min(state.acknowledged + self.window) {
            change(state, ("sent", 0), next, |state| state.sent += 1);
        }
        for at in self.replicas() {
            let Replica { has, answered, fenced, sealed, .. } = state.replicas[at];
            // One that has less than it had answered is not what the writer goes on from.
            if has < self.part(state.sent, at) && answered <= has && !fenced && !sealed {
                change(state, ("delivered", at), next, |state| {
                    state.replicas[at].has += 1;
                    if self.at_once {
                        self.answer(state, at);
                    }
                });
            }
            if !self.at_once && answered < has {
                change(state, ("answered", at), next, |state| self.answer(state, at));
            }
        }
    }

    fn answer(&self, state: &mut State, at: usize) {
        state.replicas[at].answered += 1;
        state.acknowledged = state.acknowledged.max(self.acknowledged(state));
    }

    fn acknowledged(&self, state: &State) -> u8 {
        let without = self.wrong == Wrong::AcknowledgesBeforeStrike;
        self.length(|column| {
            let asked = state.replicas[column].iter().filter(|replica| !(without && state.ending && !replica.sealed));
            asked.map(|replica| replica.answered).min().unwrap_or(0)
        })
    }

    /// The writer gives a replica up, seals the others, and ends the group with a change that strikes out those that lack something.
    fn ending_writer_steps(&self, state: &State, next: &mut Vec<Step>) {
        // Whether its writer is gone or not: one that is does nothing more.
        change(state, ("taken", 0), next, |state| {
            state.taken = true;
            // What it has sealed by now is all that it does so: done later it changes nothing for the others, or is refused.
            state.ending = false;
        });
        change(state, ("writer ends", 0), next, |state| state.ending = true);
        let synced =
            self.length(|column| column.map(|at| self.synced(self.part(state.acknowledged, at))).min().unwrap_or(0));
        if self.deletes {
            change(state, ("recorded", 0), next, |state| state.floor = synced);
        }
        if !state.ending {
            return;
        }
        for at in self.replicas() {
            let Replica { has, answered, .. } = state.replicas[at];
            if (answered == self.part(state.sent, at) || self.fills) && answered == has {
                change(state, ("sealed by the writer", at), next, |state| state.replicas[at].sealed = true);
            }
        }
        // All that it has not sealed it may give up by now.
        let known = |at: usize| match state.replicas[at] {
            Replica { sealed: true, has, .. } => Known::Answered { length: has.into(), sound: true },
            _ => Known::Unanswered,
        };
        let ended =
            self.judged(state.acknowledged, self.replicas().map(|at| (self.column_of(at), known(at))).collect());
        if let Ending::Ends(end) = ended {
            let is_named = |at: usize| end.parts[at] == Has::All || self.wrong == Wrong::NamesGivenUp;
            // What it sent and did not get into this group it sends again, to the same place of the file in the next one.
            next.push(self.closed(state, ("ended by the writer", 0), (&end, state.sent), is_named));
        }
    }

    /// The change that ends the group, naming these replicas. Of what readers saw so much is not taken away.
    fn closed(&self, state: &State, event: Event, (end, stays): (&End, u8), is_named: impl Fn(usize) -> bool) -> Step {
        let mut state = *state;
        let length = end.length as u8;
        let named: Vec<usize> = self.replicas().filter(|at| is_named(*at)).collect();
        let is_short = |at: &usize| state.replicas[*at].has < self.part(length, *at);
        let keeps = |column: usize| length == 0 || named.iter().any(|at| self.column_of(*at) == column);
        let broken = match () {
            () if named.iter().any(is_short) => Some("a named replica has less than its part"),
            () if !(0..self.columns).all(keeps) => Some("a column is left without a replica"),
            () if length < state.floor => Some("recorded as synced and cut"),
            () if length < state.acknowledged && !self.deletes => Some("acknowledged and cut"),
            () if stays < state.seen => Some("seen and cut"),
            () => self.broken_later(&state, length, stays),
        };
        state.closed = Some(length);
        Step { event, state, broken }
    }

    /// What may come to light when a group has ended at this length, with all that was on its way to replicas that nobody fenced.
    fn broken_later(&self, state: &State, length: u8, stays: u8) -> Option<&'static str> {
        let mut late = *state;
        let sent = if state.ending { state.sent } else { self.appends };
        for at in self.replicas() {
            let replica = &mut late.replicas[at];
            if !replica.fenced && !replica.sealed {
                replica.has = replica.has.max(self.part(sent, at));
            }
            replica.answered = replica.answered.max(replica.has);
        }
        late.ending = false;
        if !self.deletes && self.acknowledged(&late) > length {
            return Some("acknowledged after the end");
        }
        // Readers that have located it as open ask replicas of which none, some or all have started anew.
        let seen = |restarts: fn(&Replica) -> bool| {
            let mut late = late;
            late.replicas.iter_mut().for_each(|replica| replica.restarted |= restarts(replica));
            self.visible(&late)
        };
        let seen = [seen(|_| false), seen(|_| true), seen(|replica| replica.fenced || replica.sealed)];
        (self.looks && seen.into_iter().any(|seen| seen > stays)).then_some("seen after the end")
    }

    /// What happens to devices.
    fn losses(&self, state: &State, next: &mut Vec<Step>) {
        for at in self.replicas() {
            let Replica { has, fenced, sealed, .. } = state.replicas[at];
            // It is killed and starts again: what was written stays, and answers that did not come never come.
            change(state, ("killed", at), next, |state| state.replicas[at].restarted = true);
            // What it took and did not sync is gone, or some of the end of that.
            let kept = if fenced || sealed { has } else { self.synced(has) };
            let before = next.len();
            for has in kept..has {
                change(state, ("power lost", at), next, |state| {
                    (state.replicas[at].has, state.replicas[at].restarted) = (has, true);
                });
            }
            if self.deletes && !fenced && !sealed {
                change(state, ("deleted by mistake", at), next, |state| state.replicas[at].has = 0);
            }
            if self.gives_up {
                // What it answered before that counts no more than what it may answer after it.
                change(state, ("device lost", at), next, |state| {
                    let replica = &mut state.replicas[at];
                    (replica.lost, replica.passed_over, replica.restarted) = (true, true, true);
                    state.replicas[at].heard = state.replicas[at].heard.map(|(has, _)| (has, false));
                });
            }
            for lost in (before..next.len()).rev() {
                if !self.is_somewhere(&next[lost].state, at) {
                    next.swap_remove(lost);
                }
            }
            if self.passes_over {
                let stays = self.wrong == Wrong::HeardStaysSound;
                change(state, ("called silent", at), next, |state| {
                    (state.replicas[at].passed_over, state.replicas[at].restarted) = (true, true);
                    state.replicas[at].heard = state.replicas[at].heard.map(|(has, sound)| (has, sound && stays));
                });
            }
        }
    }

    /// The leader fences, judges, seals and brings up, and ends the group; or another one begins anew.
    fn leader_steps(&self, state: &State, next: &mut Vec<Step>) {
        for at in self.replicas().filter(|at| state.replicas[*at].heard.is_none()) {
            let Replica { has, restarted, lost, passed_over, .. } = state.replicas[at];
            let is_sound = !restarted || !lost && !passed_over && self.wrong == Wrong::RestartedIsSound;
            change(state, ("fenced", at), next, |state| {
                state.replicas[at].fenced |= self.wrong != Wrong::EndsWithoutFence;
                state.replicas[at].heard = Some((has, is_sound));
            });
        }
        change(state, ("another leader", 0), next, |state| {
            state.replicas.iter_mut().for_each(|replica| replica.heard = None);
        });
        let Ending::Ends(end) = self.heard(state) else { return };
        for at in self.replicas() {
            let Replica { has, sealed, heard, .. } = state.replicas[at];
            let Some((_, sound)) = heard.filter(|_| !sealed) else { continue };
            // One that it brings up has its part then; another leader may want more of it.
            let has = if end.parts[at] == Has::Less { self.part(end.length as u8, at) } else { has };
            change(state, ("sealed", at), next, |state| {
                (state.replicas[at].has, state.replicas[at].sealed) = (has, true);
                state.replicas[at].heard = Some((has, sound));
            });
        }
        let is_ready = |at: usize| end.parts[at] == Has::All && state.replicas[at].sealed;
        let is_named = |at: usize| is_ready(at) || self.wrong == Wrong::NamesShort && end.parts[at] == Has::Less;
        // Who was sealed and brought up in time is named; of each column one is there, if anybody is.
        let is_ready_column = |column: usize| {
            let mut of = self.replicas().filter(|at| self.column_of(*at) == column);
            of.clone().any(is_ready) || of.all(|at| end.parts[at] == Has::Unknown)
        };
        if end.length == 0 || (0..self.columns).all(is_ready_column) {
            next.push(self.closed(state, ("ended by the leader", 0), (&end, end.length as u8), is_named));
        }
    }

    /// The most that a reader may see who has located the group while it was open, and asks its replicas now.
    fn visible(&self, state: &State) -> u8 {
        self.length(|column| {
            let of = &state.replicas[column];
            let most = of.iter().filter(|replica| !replica.lost).map(|replica| replica.has).max().unwrap_or(0);
            let is_over = |replica: &Replica| (replica.fenced || replica.sealed) && self.wrong != Wrong::FencedLeftOut;
            // Whose node started anew since may have lost its end, and says so. But one that is fenced may have been heard before.
            let counts =
                |replica: &&Replica| !replica.lost && !replica.passed_over && (!replica.restarted || is_over(replica));
            let counted = of.iter().filter(counts).map(|replica| replica.has);
            match self.wrong {
                Wrong::SeenOfOne => most,
                // Whichever of them answers.
                Wrong::SilentLeftOut => counted.max().unwrap_or(0),
                // If none of them counts all have to answer before the group can end.
                _ => counted.min().unwrap_or(most),
            }
        })
    }
}

/// Adds what the state becomes with a change, if that is another one.
fn change(state: &State, event: Event, next: &mut Vec<Step>, change: impl FnOnce(&mut State)) {
    let mut changed = *state;
    change(&mut changed);
    if changed != *state {
        next.push(Step { event, state: changed, broken: None });
    }
}
