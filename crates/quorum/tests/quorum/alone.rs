//! A keeper that is alone.

use base::unit::Time;
use bytes::Bytes;
use quorum::{Core, Entry, KeeperId, Kept, Output, Role, Stamp, Start, Vote};
use sim::random::SimRandom;
use std::sync::Arc;

fn start(vote: Vote, entries: Vec<Entry>) -> Core {
    let own = KeeperId(1);
    let kept = Kept::new(&[own], vote, Stamp::FIRST, 0, entries).expect("they follow one another");
    let random = Arc::new(SimRandom::new(1));
    let mut core =
        Core::start(Start { own, life: 1, kept, uncommitted_max: 64 << 20, random, now: Time::ZERO, planted: None })
            .expect("it starts");
    core.lead_alone(Time::ZERO).expect("it leads");
    core
}

/// What it wants written, all of it, in order; and that it sends nothing.
fn written(core: &mut Core) -> (Option<u64>, Option<Vote>, Vec<Entry>) {
    let (mut last, mut votes, mut all) = (None, None, Vec::new());
    for output in core.take_outputs() {
        match output {
            Output::Write { number, vote, entries } => {
                (last, votes) = (Some(number), vote.or(votes));
                all.extend(entries);
            }
            Output::Send { to, message } => panic!("{message:?} to {to:?}"),
            Output::Committed(_) | Output::Turned(_) | Output::Lacks { .. } => {}
        }
    }
    (last, votes, all)
}

/// It leads at once, in a new term each time; commits what its own disk has, and nothing before.
#[test]
fn leads_at_once() {
    let mut core = start(Vote::default(), Vec::new());
    let Role::Leads { term } = core.role() else { panic!("{:?}", core.role()) };
    assert!(!core.has_lease(Time::ZERO), "its first entry is not durable");
    let (number, vote, mut log) = written(&mut core);
    assert_eq!(vote, Some(Vote { term, voted_for: Some(KeeperId(1)) }));
    core.durable(Time::ZERO, number.expect("it writes"));
    assert!(core.has_lease(Time::ZERO));
    let index = core.propose(Time::ZERO, term, Bytes::from_static(b"a group")).expect("proposed");
    assert!(core.propose(Time::ZERO, term + 1, Bytes::from_static(b"later")).is_err(), "of another term");
    let (number, _, entries) = written(&mut core);
    log.extend(entries);
    assert!(core.committed() < index);
    core.durable(Time::ZERO, number.expect("it writes"));
    assert_eq!(core.committed(), index);
    let committed = core.take_outputs();
    assert!(committed.contains(&Output::Committed(vec![log.last().expect("the group").clone()])), "{committed:?}");
    let again = start(Vote { term, voted_for: Some(KeeperId(1)) }, log);
    let Role::Leads { term: later } = again.role() else { panic!("{:?}", again.role()) };
    assert!(later > term, "a term is led once");
}

/// While its disk does nothing a leader takes as much as there may be room for, in blocks: groups of one byte take as much as those of a thousand.
#[test]
fn what_is_uncommitted_has_an_end() {
    let mut core = start(Vote::default(), Vec::new());
    let Role::Leads { term } = core.role() else { panic!("{:?}", core.role()) };
    let (number, ..) = written(&mut core);
    core.durable(Time::ZERO, number.expect("it writes"));
    let propose = |core: &mut Core| core.propose(Time::ZERO, term, Bytes::from_static(b"1"));
    let taken = (0..1 << 20).take_while(|_| propose(&mut core).is_ok()).count();
    assert_eq!(taken, (64 << 20) / 4096);
    let refused = propose(&mut core).expect_err("no more");
    assert_eq!(refused.kind(), base::error::ErrorKind::Busy, "{refused}");
    let (number, ..) = written(&mut core);
    core.durable(Time::ZERO, number.expect("it writes"));
    propose(&mut core).expect("there is room again");
}
