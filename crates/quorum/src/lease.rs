//! The leader's lease: until when nobody else can lead, so that what it reads from its memory is the newest there is.
//!
//! With each heartbeat the leader asks a question. Whoever answers, at time t of its own clock or later, has promised to let nobody else be
//! elected for `PROMISE` from t on. So when a majority has answered a question that was asked at time a, no other leader can be elected before
//! a + `PROMISE`: each majority has one who promised. The lease is shorter than the promise by what clocks may differ, and then some.

use crate::format::{question, read_question};
use base::unit::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// What a keeper promises to a leader whose message it answers.
pub(crate) const PROMISE: Duration = Duration::from_millis(500);

/// What a leader takes of it: a tenth less, and a thousandth of that, for clocks that go wrong by so much.
pub(crate) const LEASE: Duration = Duration::from_micros(450_000 - 450);

/// How often it asks.
pub(crate) const ASKED_EVERY: Duration = Duration::from_millis(100);

/// The lease of one term.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// The term in which this keeper leads.
    term: u64,
    /// Questions that nobody answered yet: their numbers, and when they were asked.
    asked: VecDeque<(u64, Time)>,
    next: u64,
    last_asked: Option<Time>,
    until: Option<Time>,
    /// The leader asked another keeper to take over: there is no lease in this term any more, as that one may do so at any time, however late.
    given_up: bool,
}

impl Lease {
    /// This keeper leads in this term from now on.
    pub(crate) fn begin(&mut self, term: u64) {
        let next = self.next;
        *self = Lease { term, next, ..Lease::default() };
    }

    /// It does not lead any more.
    pub(crate) fn end(&mut self) {
        self.begin(0);
    }

    pub(crate) fn give_up(&mut self) {
        (self.until, self.given_up) = (None, true);
    }

    /// The next question, if it is time for one.
    pub(crate) fn ask(&mut self, now: Time) -> Option<Vec<u8>> {
        if self.last_asked.is_some_and(|last| now.since(last) < ASKED_EVERY) {
            return None;
        }
        self.last_asked = Some(now);
        // An answer to one of these would give nothing any more. The library drops questions until the leader knows what was committed.
        while self.asked.front().is_some_and(|(_, asked)| now.since(*asked) >= LEASE) {
            self.asked.pop_front();
        }
        self.next += 1;
        self.asked.push_back((self.next, now));
        Some(question(self.term, self.next))
    }

    /// A majority has answered this question.
    pub(crate) fn confirmed(&mut self, answered: &[u8]) {
        let Some((term, number)) = read_question(answered) else { return };
        // What was asked in another term says nothing about this one, nor what comes twice.
        if term != self.term || self.given_up {
            return;
        }
        let Some(at) = self.asked.iter().position(|(asked, _)| *asked == number) else { return };
        let (_, asked) = self.asked[at];
        self.asked.drain(..=at);
        self.until = self.until.max(Some(asked.after(LEASE)));
    }

    pub(crate) fn holds(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::{LEASE, Lease, PROMISE};
    use base::unit::Time;
    use std::time::Duration;

    /// It counts from the question, not from the answer; a question of another term, or one that is not this leader's, gives none, and after it
    /// was given up none comes back.
    #[test]
    fn counts_from_the_question() {
        assert!(LEASE + LEASE / 1000 < PROMISE);
        let at = |milliseconds| Time::ZERO.after(Duration::from_millis(milliseconds));
        let mut lease = Lease::default();
        lease.begin(3);
        let first = lease.ask(at(0)).expect("the first");
        assert!(lease.ask(at(99)).is_none(), "not so often");
        let second = lease.ask(at(100)).expect("the second");
        assert!(!lease.holds(at(100)));
        lease.confirmed(&second);
        assert!(lease.holds(at(549)) && !lease.holds(at(550)));
        lease.confirmed(&first);
        assert!(lease.holds(at(549)), "an older answer takes nothing away");
        lease.begin(4);
        assert!(!lease.holds(at(101)));
        let third = lease.ask(at(200)).expect("the third");
        for question in [&second[..], &third[..15], &[]] {
            lease.confirmed(question);
            assert!(!lease.holds(at(201)));
        }
        for time in 3..1000 {
            lease.ask(at(100 * time));
            assert!(lease.asked.len() <= 5, "what nobody answers is forgotten");
        }
        lease.give_up();
        lease.confirmed(&third);
        assert!(!lease.holds(at(201)));
    }
}
