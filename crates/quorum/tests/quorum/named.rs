//! Histories that are too rare for chance, step by step.

use base::env::Random;
use base::planted::Planted;
use base::unit::Time;
use quorum::{Core, KeeperId, Kept, Message, Output, Role, Stamp, Start, Vote};
use std::sync::Arc;
use std::time::Duration;

/// Campaigns so many tenths of half a second later than it may.
struct Late(u64);

impl Random for Late {
    fn next(&self) -> u64 {
        self.0 * (u64::MAX / 10 + 1)
    }
}

/// Everybody as soon as he may.
const SOON: [u64; 3] = [0; 3];

/// One after another, so that somebody is elected.
const APART: [u64; 3] = [0, 3, 6];

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

/// Three keepers with disks that take no time. What they send waits until it is delivered.
struct Three {
    cores: Vec<Core>,
    now: Time,
    sent: Vec<(usize, usize, Message)>,
    /// Whose disk does nothing any more.
    hangs: Option<usize>,
}

/// A keeper of three that has nothing.
fn started(own: u64, life: u64, (late, planted): (u64, Option<Planted>), now: Time) -> Core {
    let voters: Vec<KeeperId> = (1..=3).map(KeeperId).collect();
    let kept = Kept::new(&voters, Vote::default(), Stamp::FIRST, 0, Vec::new()).expect("empty");
    let (own, random) = (KeeperId(own), Arc::new(Late(late)));
    Core::start(Start { own, life, kept, uncommitted_max: 64 << 20, random, now, planted }).expect("it starts")
}

impl Three {
    fn new(late: [u64; 3], planted: Option<Planted>) -> Three {
        let cores = (1..).zip(late).map(|(own, late)| started(own, 1, (late, planted), Time::ZERO));
        Three { cores: cores.collect(), now: Time::ZERO, sent: Vec::new(), hangs: None }
    }

    /// So much time goes by for these; what they send waits.
    fn passes(&mut self, milliseconds: u64, who: &[usize]) {
        self.now = self.now.after(Duration::from_millis(milliseconds));
        for at in who {
            self.cores[*at].tick(self.now);
            self.take(*at);
        }
    }

    fn take(&mut self, at: usize) {
        loop {
            let outputs = self.cores[at].take_outputs();
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                match output {
                    Output::Send { to, message } => self.sent.push((at, to.0 as usize - 1, message)),
                    Output::Write { number, .. } if self.hangs != Some(at) => self.cores[at].durable(self.now, number),
                    Output::Write { .. } | Output::Committed(_) | Output::Turned(_) | Output::Lacks { .. } => {}
                }
            }
        }
    }

    /// Delivers what waits between these, and what they answer, until there is no more.
    fn deliver(&mut self, between: &[usize]) {
        while let Some(at) = self.sent.iter().position(|(from, to, _)| between.contains(from) && between.contains(to)) {
            self.deliver_one(at);
        }
    }

    fn deliver_one(&mut self, at: usize) {
        let (_, to, message) = self.sent.remove(at);
        self.cores[to].receive(self.now, message);
        self.take(to);
    }

    /// Takes what one sent another out of what waits: messages of which this is a part of the name.
    fn hold(&mut self, from: usize, to: usize, kind: &str) -> Vec<(usize, usize, Message)> {
        let held = |sent: &(usize, usize, Message)| {
            sent.0 == from && sent.1 == to && format!("{:?}", sent.2).starts_with(kind)
        };
        let (held, rest) = std::mem::take(&mut self.sent).into_iter().partition(held);
        self.sent = rest;
        held
    }

    fn arrives(&mut self, held: Vec<(usize, usize, Message)>) {
        assert_eq!(held.len(), 1, "{held:?}");
        self.sent.splice(0..0, held);
        self.deliver_one(0);
    }

    fn holders(&self) -> usize {
        self.cores.iter().filter(|core| core.has_lease(self.now)).count()
    }

    /// A leads, all follow, and it has a lease; its next count of who it hears of is 300 ms away.
    fn led_by_a(late: [u64; 3], planted: Option<Planted>) -> Three {
        let mut three = Three::new(late, planted);
        while !matches!(three.cores[A].role(), Role::Leads { .. }) {
            three.passes(50, &[A]);
            three.deliver(&[A, B, C]);
        }
        for _ in 0..14 {
            three.passes(50, &[A, B, C]);
            three.deliver(&[A, B, C]);
        }
        assert_eq!((three.cores[A].has_lease(three.now), three.holders()), (true, 1));
        three
    }
}

/// A keeper follows its leader again after it was cut off, and hears then that it would not be elected: by a refusal of a term to come. The
/// library forgets its leader at that, and votes for who asks next; its promise to the leader is not over.
fn refused_while_it_follows(planted: Option<Planted>) -> usize {
    let mut three = Three::led_by_a(SOON, planted);
    // B and C hear nothing, and both want to know whether they would be elected.
    for _ in 0..10 {
        three.passes(50, &[A, B, C]);
        three.sent.retain(|(from, to, _)| *from != A && *to != A);
    }
    let late = three.hold(B, C, "MsgRequestPreVote");
    three.sent.retain(|(_, to, _)| *to != A);
    let question = three.hold(C, B, "MsgRequestPreVote ");
    three.arrives(question);
    let yes = three.hold(B, C, "MsgRequestPreVoteResponse");
    three.arrives(yes);
    let asks = three.hold(C, B, "MsgRequestVote ");
    three.sent.clear();
    // A is heard of again, at B, before C's question for its vote.
    three.passes(50, &[A, B]);
    three.deliver(&[A, B]);
    assert!(matches!(three.cores[B].role(), Role::Follows { leader: Some(KeeperId(1)), .. }));
    assert_eq!((three.cores[A].has_lease(three.now), three.holders()), (true, 1));
    three.arrives(late);
    let refusal = three.hold(C, B, "MsgRequestPreVoteResponse");
    three.arrives(refusal);
    three.arrives(asks);
    // A moment of B and C alone.
    three.deliver(&[B, C]);
    for _ in 0..2 {
        three.passes(10, &[C]);
        three.deliver(&[B, C]);
    }
    three.holders()
}

#[test]
fn a_refusal_ends_no_promise() {
    assert_eq!(refused_while_it_follows(None), 1);
    assert_eq!(refused_while_it_follows(Some(Planted::PromiseForgotten)), 2);
}

/// A leader asks another keeper to take over, which hears of it so late that the leader goes on; it takes over then, in the same term, past every
/// promise.
fn taken_over_late(planted: Option<Planted>) -> usize {
    let mut three = Three::led_by_a(SOON, planted);
    three.cores[A].hand_over(three.now, KeeperId(2));
    three.take(A);
    let late = three.hold(A, B, "MsgTimeoutNow");
    for _ in 0..11 {
        three.passes(50, &[A, B, C]);
        three.deliver(&[A, B, C]);
    }
    three.arrives(late);
    three.deliver(&[B, C]);
    three.passes(50, &[B, C]);
    three.deliver(&[B, C]);
    three.passes(50, &[B, C]);
    three.deliver(&[B, C]);
    three.holders()
}

#[test]
fn a_late_turn_meets_no_lease() {
    assert!(taken_over_late(None) <= 1);
    assert_eq!(taken_over_late(Some(Planted::LeaseKeptInTransfer)), 2);
}

/// A keeper that has just started obeys no leader that asks it to take over; another one is asked.
#[test]
fn who_has_just_started_is_not_asked_to_lead() {
    let mut three = Three::led_by_a(SOON, None);
    let pass = |three: &mut Three, times: usize| {
        for _ in 0..times {
            three.passes(50, &[A, B, C]);
            three.deliver(&[A, B, C]);
        }
    };
    pass(&mut three, 10);
    assert_eq!(three.cores[A].next_to_lead(three.now), Some(KeeperId(3)), "of equals the last one");
    three.cores[C] = started(3, 2, (0, None), three.now);
    pass(&mut three, 5);
    assert_eq!(three.cores[A].next_to_lead(three.now), Some(KeeperId(2)));
    pass(&mut three, 20);
    assert_eq!(three.cores[A].next_to_lead(three.now), Some(KeeperId(3)));
    assert_eq!(three.cores[B].next_to_lead(three.now), None, "it does not lead");
}

/// A leader whose disk hangs gives the lead to others, who can go on; until then it says that it is busy, and not that it does not lead.
#[test]
fn a_leader_whose_disk_hangs() {
    let mut three = Three::led_by_a(APART, None);
    three.hangs = Some(A);
    let Role::Leads { term } = three.cores[A].role() else { unreachable!("it leads") };
    let large = bytes::Bytes::from(vec![0; 1 << 20]);
    let mut refused = 0;
    while let Role::Leads { .. } = three.cores[A].role() {
        for _ in 0..10 {
            if let Err(error) = three.cores[A].propose(three.now, term, large.clone()) {
                assert_eq!(error.kind(), base::error::ErrorKind::Busy, "{error}");
                refused += 1;
            }
        }
        three.take(A);
        three.passes(50, &[A, B, C]);
        three.deliver(&[A, B, C]);
        assert!(three.now < Time::ZERO.after(Duration::from_secs(20)), "it leads still");
    }
    assert!(refused > 0);
    for _ in 0..40 {
        three.passes(50, &[A, B, C]);
        three.deliver(&[A, B, C]);
    }
    assert!(three.cores[B].has_lease(three.now), "{:?}", three.cores[B].role());
}

/// A leader that asks again and again a keeper that is gone to take over ends its term all the same, and somebody answers questions.
#[test]
fn a_turn_to_nobody() {
    let mut three = Three::led_by_a(APART, None);
    let (mut answered, led) = (0, three.cores[A].role());
    for _ in 0..20 {
        if three.cores[A].role() == led {
            three.cores[A].hand_over(three.now, KeeperId(3));
            three.take(A);
        }
        for _ in 0..8 {
            three.passes(50, &[A, B]);
            three.deliver(&[A, B]);
            answered += three.holders();
        }
    }
    assert!(answered > 50, "{answered} of 160 looks");
}
