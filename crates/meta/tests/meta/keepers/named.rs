//! Histories of several keepers that broke something once, step by step.

use super::{Asked, Client, Cluster, MS, groups_of};
use crate::world::{path, small_file, stat};
use base::error::{ErrorKind, Result};
use base::id::{NodeId, SessionId};
use base::limit::NODE_SILENCE_MAX;
use base::planted::Planted;
use meta::request::{NewInode, NodeInfo, User};
use meta::{Caller, Effect, Part, Reply, Request};
use quorum::KeeperId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Three keepers without trouble, of which one leads.
pub fn three(seed: u64) -> Cluster {
    let mut cluster = Cluster::new(seed, 3, None);
    cluster.trouble = false;
    cluster.clients.clear();
    steps(&mut cluster, 5_000);
    cluster
}

pub fn steps(cluster: &mut Cluster, steps: u64) {
    cluster.steps(steps).unwrap_or_else(|broken| panic!("{broken}"));
}

/// Who leads; there is one.
pub fn leader(cluster: &mut Cluster) -> usize {
    for _ in 0..100 {
        let leads = |at: &usize| cluster.machines[*at].runs.as_ref().is_some_and(|(_, store)| store.part().leads());
        if let Some(at) = (0..cluster.machines.len()).find(leads) {
            return at;
        }
        steps(cluster, 100);
    }
    panic!("nobody leads");
}

/// The same with a fault put in, and who leads.
fn three_with(seed: u64, planted: Option<Planted>) -> (Cluster, usize) {
    let mut cluster = three(seed);
    cluster.planted = planted;
    (0..3).for_each(|at| cluster.dies(at));
    steps(&mut cluster, 5_000);
    let first = leader(&mut cluster);
    (cluster, first)
}

/// Nobody hears this one, nor does it hear anybody.
pub fn cut_off(cluster: &mut Cluster, at: usize) {
    for other in 0..cluster.machines.len() {
        cluster.cut.extend([(at, other), (other, at)]);
    }
}

/// Has this one lead, which led before.
fn lead_again(cluster: &mut Cluster, first: usize) {
    for _ in 0..100 {
        let at = leader(cluster);
        if at == first {
            return;
        }
        cut_off(cluster, at);
        steps(cluster, 3_000);
        cluster.cut.clear();
        steps(cluster, 1_000);
    }
    panic!("it does not lead again");
}

/// Asks this one, in the name of session 10; the answer, if it comes at once.
pub fn ask(cluster: &mut Cluster, at: usize, call: u64, request: Request) -> Option<Result<Reply>> {
    let (time, wall) = (cluster.time(), cluster.wall());
    let (_, store) = cluster.machines[at].runs.as_mut().expect("it runs");
    store.submit(time, wall, Caller { session: SessionId(10), call, floor: call }, request, (0, 1));
    let mut answer = None;
    for effect in store.take_effects(time) {
        match effect {
            Effect::Reply { result, .. } => answer = Some(result),
            other => cluster.does(at, other).unwrap_or_else(|broken| panic!("{broken}")),
        }
    }
    answer
}

pub fn in_service(cluster: &Cluster, at: usize) -> Result<()> {
    cluster.machines[at].runs.as_ref().expect("it runs").1.in_service()
}

/// The others commit what a leader begins with while its own disk still writes it: then it leads, and the end of that write commits nothing else.
#[test]
fn others_are_faster() {
    let mut cluster = Cluster::new(7, 3, None);
    cluster.trouble = false;
    cluster.clients.clear();
    let part = |cluster: &Cluster, at: usize| cluster.machines[at].runs.as_ref().map(|(_, store)| store.part());
    let leads = loop {
        steps(&mut cluster, 1);
        for at in 0..3 {
            if matches!(part(&cluster, at), Some(Part::Begins { .. })) {
                cluster.machines[at].slow_until = cluster.now + 1_000 * MS;
            }
        }
        if let Some(at) = (0..3).find(|at| part(&cluster, *at).is_some_and(Part::leads)) {
            break at;
        }
        assert!(cluster.now < 30_000 * MS, "nobody leads");
    };
    assert!(cluster.machines[leads].slow_until > cluster.now, "its disk was faster");
    cut_off(&mut cluster, leads);
    cluster.clients = vec![Client { call: 1, asked: Some(Asked::Opens), tries: 1, again_at: u64::MAX, made: 0 }];
    assert_eq!(ask(&mut cluster, leads, 1, Request::OpenSession { user: User::default() }), None);
    cluster.machines[leads].slow_until = 0;
    steps(&mut cluster, 100);
    assert_eq!(cluster.answered, 0, "no other keeper has it");
}

/// Whoever begins to lead has heard of no node yet, but the one before it may have until then: nobody is silent for that, nor loses a name. Terms rise.
#[test]
fn nobody_is_silent_because_of_a_turn() {
    let mut cluster = three(11);
    let first = leader(&mut cluster);
    let join = |id: u128, name: &str| Request::NodeJoin {
        node: NodeInfo { node: NodeId(id), name: name.to_string(), address: "a:1".to_string(), ..NodeInfo::default() },
    };
    let silent = |cluster: &mut Cluster, at| match ask(cluster, at, 0, Request::NodesSilent) {
        Some(Ok(Reply::SilentNodes { nodes, .. })) => nodes,
        other => panic!("{other:?}"),
    };
    let part = |cluster: &Cluster, at: usize| cluster.machines[at].runs.as_ref().map(|(_, store)| store.part());
    ask(&mut cluster, first, 1, Request::OpenSession { user: User::default() });
    steps(&mut cluster, 100);
    let joined = ask(&mut cluster, first, 0, join(1, "a"));
    assert_eq!(joined, None, "it waits for the others");
    steps(&mut cluster, 100);
    ask(&mut cluster, first, 0, Request::NodeReport { node: NodeId(1), keeps: false, devices: Vec::new() });
    let before = part(&cluster, first).map_or(0, Part::term);
    cut_off(&mut cluster, first);
    let at = loop {
        steps(&mut cluster, 1);
        if let Some(at) = (0..3).find(|at| *at != first && part(&cluster, *at).is_some_and(Part::leads)) {
            break at;
        }
    };
    assert_eq!(silent(&mut cluster, at), []);
    ask(&mut cluster, at, 0, join(2, "a"));
    steps(&mut cluster, 100);
    let known = ask(&mut cluster, at, 0, Request::NodeList);
    assert!(matches!(&known, Some(Ok(Reply::Nodes { nodes, .. })) if nodes.len() == 1), "{known:?}");
    steps(&mut cluster, NODE_SILENCE_MAX.as_millis() as u64);
    assert_eq!(silent(&mut cluster, at), [NodeId(1)]);
    let term = part(&cluster, at).map_or(0, Part::term);
    assert!(term > before, "{term} after {before}");
    let third = (0..3).find(|third| *third != first && *third != at).expect("it is of three");
    let leader = Some(KeeperId(at as u64 + 1));
    assert_eq!(part(&cluster, third), Some(Part::Follows { leader, term }));
}

/// A leader that hears of nobody reads nothing to anybody once its lease is over, though it does not know yet that another one may lead.
#[test]
fn without_a_lease_nothing_is_read() {
    let mut cluster = three(5);
    let at = leader(&mut cluster);
    let look = || Request::Usage;
    assert!(ask(&mut cluster, at, 0, look()).is_some_and(|answer| answer.is_ok()), "it has a lease");
    cut_off(&mut cluster, at);
    let part = |cluster: &Cluster| cluster.machines[at].runs.as_ref().map(|(_, store)| store.part());
    let mut without = 0;
    for millisecond in 0.. {
        steps(&mut cluster, 1);
        if !part(&cluster).is_some_and(Part::leads) {
            break;
        }
        let answer = ask(&mut cluster, at, 0, look());
        without += u64::from(answer.is_none());
        assert!(millisecond < 700 || answer.is_none(), "it answers {millisecond} steps later");
    }
    assert!(without > 0, "it knew at once that it does not lead");
}

/// One that is away fills nobody's log; it comes back, and gets a copy of the tree of another one.
#[test]
fn one_is_away_and_comes_back() {
    let mut cluster = three(7);
    let at = leader(&mut cluster);
    ask(&mut cluster, at, 1, Request::OpenSession { user: User::default() });
    steps(&mut cluster, 1_000);
    cut_off(&mut cluster, (at + 1) % 3);
    for round in 0..600 {
        in_service(&cluster, at).unwrap_or_else(|error| panic!("in round {round}: {error}"));
        let name = |place| format!("/{}{round}-{place}", "n".repeat(200));
        let files = (0..20).map(|place| small_file(&name(place))).collect();
        ask(&mut cluster, at, 0, Request::PutFiles { files });
        steps(&mut cluster, 30);
    }
    assert_eq!(cluster.copies, 0);
    cluster.cut.clear();
    for second in 0.. {
        steps(&mut cluster, 1_000);
        if cluster.copies == 1 {
            break;
        }
        assert!(second < 200, "there is no copy");
    }
    steps(&mut cluster, 3_000);
    let stand = |at: usize| cluster.machines[at].runs.as_ref().map(|(_, store)| store.sequence());
    assert_eq!(stand((at + 1) % 3), stand(at));
    steps(&mut cluster, 5_000);
    let at = leader(&mut cluster);
    in_service(&cluster, at).expect("the log has room");
    (0..3).for_each(|at| cluster.dies(at));
    steps(&mut cluster, 5_000);
    let at = leader(&mut cluster);
    in_service(&cluster, at).expect("the log has room after a start");
}

/// What leaders begin with comes free, too, though nobody asks anything.
#[test]
fn leaders_change_and_nothing_else() {
    let mut cluster = three(9);
    for turn in 0..700 {
        let at = leader(&mut cluster);
        in_service(&cluster, at).unwrap_or_else(|error| panic!("after {turn} leaders: {error}"));
        cut_off(&mut cluster, at);
        steps(&mut cluster, 2_000);
        cluster.cut.clear();
        steps(&mut cluster, 300);
    }
}

/// A session that one keeper told as begun, and that ended while another led, is told as over when the first one leads again.
#[test]
fn a_session_ends_elsewhere() {
    let mut cluster = three(11);
    let first = leader(&mut cluster);
    let mut told = BTreeMap::new();
    let mut hear = |cluster: &mut Cluster| {
        let (_, store) = cluster.machines[first].runs.as_mut().expect("it runs");
        told.extend(store.take_session_turns());
        told.get(&SessionId(10)).copied()
    };
    ask(&mut cluster, first, 1, Request::OpenSession { user: User::default() });
    steps(&mut cluster, 1_000);
    assert_eq!(hear(&mut cluster), Some(true));
    cut_off(&mut cluster, first);
    steps(&mut cluster, 4_000);
    let second = leader(&mut cluster);
    ask(&mut cluster, second, 2, Request::CloseSession);
    steps(&mut cluster, 1_000);
    cluster.cut.clear();
    lead_again(&mut cluster, first);
    steps(&mut cluster, 100);
    assert_eq!(hear(&mut cluster), Some(false));
}

/// A holder of files that another keeper heard of is silent for no longer than this one leads.
#[test]
fn a_holder_is_heard_of_elsewhere() {
    let mut cluster = three(11);
    let first = leader(&mut cluster);
    steps(&mut cluster, 20_000);
    cut_off(&mut cluster, first);
    steps(&mut cluster, 4_000);
    cluster.cut.clear();
    lead_again(&mut cluster, first);
    steps(&mut cluster, 1_000);
    let holders = Request::Holders { seen: Vec::new(), asked: vec!["h".to_string()] };
    let Some(Ok(Reply::Silent(silent))) = ask(&mut cluster, first, 0, holders) else { panic!("it does not say") };
    assert!(silent[0] < Duration::from_secs(10), "{silent:?}");
}

/// What a leader and this keeper have is committed, rots here, and the third one lacks it: the third one's tree is not enough to go on with.
#[test]
fn mended_with_all_that_it_said() {
    let mut cluster = three(13);
    let leads = leader(&mut cluster);
    let (rots, lacks) = ((leads + 1) % 3, (leads + 2) % 3);
    steps(&mut cluster, 20_000);
    cut_off(&mut cluster, lacks);
    steps(&mut cluster, 3_000);
    let leads = leader(&mut cluster);
    let before = groups_of(&cluster.machines[rots].device).len();
    ask(&mut cluster, leads, 1, Request::OpenSession { user: User::default() });
    steps(&mut cluster, 1_000);
    let groups = groups_of(&cluster.machines[rots].device);
    assert!(leads != lacks && groups.len() > before, "it has the session");
    cluster.dies(rots);
    let (file, offset, _) = groups[groups.len() - 1];
    cluster.machines[rots].device.rot(file, offset + 120, 1);
    cluster.rotten = Some(rots);
    cluster.cut.clear();
    cut_off(&mut cluster, leads);
    steps(&mut cluster, 20_000);
    assert!(cluster.machines[rots].mends.is_some(), "it goes on without what it said it has");
    cluster.cut.clear();
    steps(&mut cluster, 20_000);
    assert!(cluster.machines.iter().all(|machine| machine.runs.is_some()), "it is not mended");
    assert_eq!(cluster.mended, 1, "it was given less than it said it has");
}

/// A call that was answered, and whose answer is forgotten, as its session asked, comes late to a keeper that leads now.
#[test]
fn a_late_call_is_not_done_again() {
    let late = late_call(None).expect("an answer");
    assert_eq!(late.expect_err("it was answered").kind(), ErrorKind::Stale);
    assert_eq!(late_call(Some(Planted::FloorForgottenAtTurn)), None, "the fault is not seen");
}

/// What the late call is answered; none: nothing yet, as it is done again.
fn late_call(planted: Option<Planted>) -> Option<Result<Reply>> {
    let (mut cluster, first) = three_with(15, planted);
    let mkdir = || Request::Mkdir { path: path("/x"), parents: false, new: NewInode::with_mode(0o755) };
    let calls = [
        Request::OpenSession { user: User::default() },
        mkdir(),
        Request::Delete { path: path("/x"), recursive: false },
    ];
    for (call, request) in (1..).zip(calls) {
        ask(&mut cluster, first, call, request);
        steps(&mut cluster, 1_000);
    }
    cut_off(&mut cluster, first);
    steps(&mut cluster, 4_000);
    let second = leader(&mut cluster);
    assert_ne!(first, second);
    ask(&mut cluster, second, 2, mkdir())
}

/// A leader is stopped in the middle of a turn, another one leads and changes something; the first goes on with its turn, and is asked.
#[test]
fn an_old_clock_tells_nothing() {
    assert_eq!(
        asked_in_an_old_turn(None),
        None,
        "it waits for the lease, or is refused when it hears of the other one"
    );
    let told = asked_in_an_old_turn(Some(Planted::StaleClockTaken)).expect("an answer");
    assert_eq!(told.expect_err("it knows of none").kind(), ErrorKind::NotFound);
}

fn asked_in_an_old_turn(planted: Option<Planted>) -> Option<Result<Reply>> {
    let (mut cluster, first) = three_with(17, planted);
    let (began, wall) = (cluster.time(), cluster.wall());
    cluster.machines[first].busy = Some((began, u64::MAX));
    let mut second = first;
    while second == first {
        steps(&mut cluster, 100);
        let leads = |at: &usize| cluster.machines[*at].runs.as_ref().is_some_and(|(_, store)| store.part().leads());
        second = (0..3).filter(|at| *at != first).find(leads).unwrap_or(first);
    }
    ask(&mut cluster, second, 1, Request::OpenSession { user: User::default() });
    let mkdir = Request::Mkdir { path: path("/x"), parents: false, new: NewInode::with_mode(0o755) };
    ask(&mut cluster, second, 2, mkdir);
    steps(&mut cluster, 100);
    assert!(ask(&mut cluster, second, 0, stat("/x")).is_some_and(|answer| answer.is_ok()), "it is there");
    let now = cluster.time();
    let (_, store) = cluster.machines[first].runs.as_mut().expect("it runs");
    store.submit(began, wall, Caller { session: SessionId(10), call: 0, floor: 0 }, stat("/x"), (0, 1));
    let answers = store.take_effects(now).into_iter().filter_map(|effect| match effect {
        Effect::Reply { result, .. } => Some(result),
        _ => None,
    });
    answers.last()
}
