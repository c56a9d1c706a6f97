//! Memory for answers: which questions are handed over at once, and which wait beside a connection that goes on.
//!
//! A question whose answer may be large is handed over when there is memory for that answer, and it holds it until the answer is written. One
//! that waits for it holds nothing that another one waits for: the memory to work on a question, and the turn to decode it, come after. What
//! is short or urgent passes it. A connection to which nothing is owed has a little for one answer whatever others hold.

use super::greeting::Known;
use super::wishes::{Acquiring, acquiring};
use crate::call::{AllAnswers, Outlet, Room};
use crate::credit::Budget;
use crate::decode::Frame;
use crate::message::{answer_max, is_of_others, is_page};
use crate::secret::Asker;
use base::limit::{
    ANSWER_OWN, ANSWERS_EACH, ANSWERS_EACH_PRESSED, ANSWERS_MEMORY_MAX, DEVICE_ANSWERS_MEMORY_MAX, PARKED_MAX,
    PULLS_OWN, PULLS_WAITING_MAX, URGENT_ANSWERS_MEMORY_MAX,
};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// What a server has for answers. Of a server's own.
#[derive(Clone)]
pub struct AnswerMemory {
    /// For large ones about names.
    pub names: Budget,
    /// For large ones in which devices or other nodes have a part.
    pub others: Budget,
    /// For large ones to nodes. Never one with the others: questions of others may wait for these.
    pub urgent: Budget,
    /// Pulls that may wait, over all connections, beside some of each.
    pub pulls: usize,
    pub(crate) all: AllAnswers,
}

impl Default for AnswerMemory {
    fn default() -> AnswerMemory {
        AnswerMemory {
            names: Budget::new(ANSWERS_MEMORY_MAX),
            others: Budget::new(DEVICE_ANSWERS_MEMORY_MAX),
            urgent: Budget::new(URGENT_ANSWERS_MEMORY_MAX),
            pulls: PULLS_WAITING_MAX,
            all: AllAnswers::default(),
        }
    }
}

impl AnswerMemory {
    fn of(&self, asker: &Asker, kind: u16) -> &Budget {
        match asker {
            Asker::Node { .. } => &self.urgent,
            Asker::Client if is_of_others(kind) => &self.others,
            Asker::Client => &self.names,
        }
    }

    /// Whether somebody waits for memory that one who asks like this may hold.
    pub(super) fn is_short(&self, asker: &Asker) -> bool {
        match asker {
            Asker::Node { .. } => self.urgent.is_short(),
            Asker::Client => self.names.is_short() || self.others.is_short(),
        }
    }

    /// Whether a connection may have one pull more that waits: each some, and as many as it likes while there are not very many in all.
    fn may_pull(&self, outlet: &Outlet) -> bool {
        outlet.pulls.load(Ordering::Relaxed) < PULLS_OWN || self.all.pulls.load(Ordering::Relaxed) < self.pulls
    }

    /// What there is now for the answer to a question.
    fn room(&self, outlet: &Outlet, question: &Question) -> Option<Room> {
        let (kind, bytes) = (question.frame.header.kind, question.answer_max());
        let budget = self.of(&question.known.asker, kind);
        if is_too_much(outlet, bytes, budget) {
            return None;
        }
        if let Some(piece) = budget.try_acquire(bytes as u64) {
            return Some(Room { bytes, piece: Some(piece) });
        }
        own(outlet, question)
    }
}

/// What a connection to which nothing is owed has for an answer whatever others hold, if that is enough.
fn own(outlet: &Outlet, question: &Question) -> Option<Room> {
    let bytes = question.answer_max();
    let fits = bytes <= ANSWER_OWN || is_page(question.frame.header.kind);
    (fits && outlet.owed() == 0).then(|| Room { bytes: bytes.min(ANSWER_OWN), piece: None })
}

/// Whether a connection is owed so much that no answer of so many bytes is made for it.
fn is_too_much(outlet: &Outlet, bytes: usize, budget: &Budget) -> bool {
    let owed = outlet.owed();
    let most = if budget.available() < budget.total() / 2 { ANSWERS_EACH_PRESSED } else { ANSWERS_EACH };
    owed > 0 && owed + bytes > most
}

/// A question that was taken.
pub(super) struct Question {
    pub(super) known: Known,
    pub(super) frame: Frame,
}

impl Question {
    /// Most bytes of its answer, if they may be many.
    pub(super) fn answer_max(&self) -> usize {
        answer_max(self.frame.header.kind, &self.frame.message)
    }
}

/// The questions of one connection that wait for their answers to have room, and its pulls that wait until there are fewer.
#[derive(Default)]
pub(super) struct Parked {
    large: VecDeque<Question>,
    /// Memory for the first of them.
    acquiring: Option<Acquiring>,
    pulls: VecDeque<Question>,
}

impl Parked {
    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.large.len() + self.pulls.len()
    }

    /// Whether the connection must not be read, because one more would be too many.
    pub(super) fn is_full(&self) -> bool {
        self.large.len() >= PARKED_MAX || self.pulls.len() >= PARKED_MAX
    }

    /// Whether only pulls wait.
    pub(super) fn is_without_large(&self) -> bool {
        self.large.is_empty()
    }

    /// Takes a question whose answer may be large; back comes one that may be worked on now.
    pub(super) fn take(
        &mut self,
        question: Question,
        outlet: &Outlet,
        memory: &AnswerMemory,
    ) -> Option<(Question, Room)> {
        if self.large.is_empty()
            && let Some(room) = memory.room(outlet, &question)
        {
            return Some((question, room));
        }
        self.large.push_back(question);
        None
    }

    /// Takes a pull; back comes one that may be handed over now.
    pub(super) fn take_pull(&mut self, question: Question, outlet: &Outlet, memory: &AnswerMemory) -> Option<Question> {
        self.pulls.push_back(question);
        self.next_pull(outlet, memory)
    }

    /// The next pull, if there may be one more.
    pub(super) fn next_pull(&mut self, outlet: &Outlet, memory: &AnswerMemory) -> Option<Question> {
        if self.pulls.is_empty() || !memory.may_pull(outlet) {
            return None;
        }
        self.pulls.pop_front()
    }

    /// The next question for whose answer there is room. Wakes the connection when memory for it comes; what it waits to have written, its
    /// own task sees.
    pub(super) fn next(
        &mut self,
        outlet: &Outlet,
        memory: &AnswerMemory,
        context: &mut Context<'_>,
    ) -> Option<(Question, Room)> {
        let first = self.large.front()?;
        let bytes = first.answer_max();
        if self.acquiring.is_none()
            && let Some(room) = memory.room(outlet, first)
        {
            return self.large.pop_front().map(|question| (question, room));
        }
        // Who does not take what it is owed already stands in nobody's way.
        let budget = memory.of(&first.known.asker, first.frame.header.kind);
        if self.acquiring.is_none() && is_too_much(outlet, bytes, budget) {
            return None;
        }
        let waiting = self.acquiring.get_or_insert_with(|| acquiring(budget, bytes as u64));
        let room = match waiting.as_mut().poll(context) {
            Poll::Ready(piece) => Room { bytes, piece: Some(piece) },
            Poll::Pending => own(outlet, first)?,
        };
        self.acquiring = None;
        self.large.pop_front().map(|question| (question, room))
    }
}
