//! Kills and power losses, at random and at every change of a device: what was acknowledged is there, what was not is there whole or not at all.

use crate::model::{Change, Tree};
use crate::stored::{make_older, merged_of};
use crate::world::{SESSION, World, delete, mkdir};
use base::env::Random;
use base::error::{ErrorKind, Result};
use base::id::GroupId;
use base::policy::Policy;
use meta::request::Totals;
use meta::{Caller, MergeJob, Reply, Request};
use sim::disk::SimFaults;
use sim::random::SimRandom;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A change handed in.
struct Sent {
    call: u64,
    request: Request,
    outcomes: Vec<std::result::Result<(), ErrorKind>>,
    /// The tree after it.
    after: Tree,
    tag: u64,
    reply: Option<Result<Reply>>,
}

/// A world and what must be true of it.
struct Run {
    world: World,
    random: SimRandom,
    /// The tree before the first of `sent`.
    base: Tree,
    sent: Vec<Sent>,
    group: GroupId,
    offset: u64,
    job: Option<MergeJob>,
    trace: Vec<String>,
}

/// An answer given again: what it says of a file is what is so then, and else it is the first one.
fn same(again: &Result<Reply>, first: &Result<Reply>) -> bool {
    let mut again = again.clone();
    if let (Ok(Reply::Handle(again)), Ok(Reply::Handle(first))) = (&mut again, first) {
        (again.attributes, again.lost) = (first.attributes.clone(), first.lost);
    }
    again == *first
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut world = World::new(seed);
        let group = pack_group(&mut world);
        let random = SimRandom::new(seed).fork("changes");
        Run { world, random, base: Tree::new(), sent: Vec::new(), group, offset: 0, job: None, trace: Vec::new() }
    }

    fn tree(&self) -> Tree {
        self.sent.last().map_or(&self.base, |sent| &sent.after).clone()
    }

    fn name(&self) -> String {
        let mut name = String::new();
        for _ in 0..=self.random.below(3) {
            name.push('/');
            name.push((b'a' + self.random.below(4) as u8) as char);
        }
        name
    }

    fn draw(&self) -> Change {
        let flag = || self.random.one_in(2);
        match self.random.below(16) {
            0..=1 => Change::Mkdir(self.name(), flag()),
            2..=5 => {
                let files = (0..=self.random.below(4)).map(|_| (self.name(), self.random.below(3) * 1000)).collect();
                Change::Put(files, flag(), flag())
            }
            6 => Change::Create(self.name(), flag()),
            7..=9 => Change::Rename(self.name(), self.name(), flag()),
            10..=11 => Change::Truncate(self.name(), self.random.below(3) * 500),
            12..=13 => Change::Concat(self.name(), (0..=self.random.below(2)).map(|_| self.name()).collect()),
            _ => Change::Delete(self.name(), flag()),
        }
    }

    fn send(&mut self, change: &Change) {
        let mut after = self.tree();
        let outcomes = change.apply(&mut after);
        let request = change.request(self.group, self.offset);
        self.offset += 4096;
        let call = self.world.next_call;
        self.world.next_call += 1;
        let tag = self.world.submit_as(Caller { session: SESSION, call, floor: 0 }, request.clone());
        self.sent.push(Sent { call, request, outcomes, after, tag, reply: None });
    }

    /// Notes replies and checks that they are what the model says.
    fn note(&mut self) {
        for sent in &mut self.sent {
            let Some(reply) = self.world.replies.remove(&sent.tag) else { continue };
            let seed = self.world.seed;
            let outcomes = match &reply {
                Ok(Reply::Files(results)) => {
                    results.iter().map(|result| result.as_ref().map(|_| ()).map_err(|error| error.kind())).collect()
                }
                Ok(_) => vec![Ok(())],
                Err(error) => vec![Err(error.kind())],
            };
            assert_eq!(outcomes, sent.outcomes, "seed {seed}: {:?} was answered {reply:?}", sent.request);
            self.trace.push(format!("{reply:?}"));
            sent.reply = Some(reply);
        }
    }

    /// After the store came back: it has every acknowledged change and, beyond that, a beginning of what was sent.
    /// Then everything is asked again: nothing happens twice and every answer is the same.
    fn check(&mut self) {
        let seed = self.world.seed;
        self.job = None;
        let found = self.world.dump();
        // A refusal says nothing about changes before it.
        let changed = |sent: &Sent| matches!(sent.reply, Some(Ok(_)));
        let acknowledged = self.sent.iter().rposition(changed).map_or(0, |place| place + 1);
        let states = std::iter::once(&self.base).chain(self.sent.iter().map(|sent| &sent.after));
        let Some(kept) =
            states.enumerate().skip(acknowledged).find(|(_, state)| **state == found).map(|(kept, _)| kept)
        else {
            panic!(
                "seed {seed}: {acknowledged} of {} changes were acknowledged, and there is {found:?}",
                self.sent.len()
            );
        };
        // Among equal states the first was taken: later changes that changed no name may have been made too.
        for (place, sent) in std::mem::take(&mut self.sent).into_iter().enumerate() {
            // What failed may succeed now.
            if place < kept && sent.outcomes.iter().all(|outcome| outcome.is_err()) {
                self.base = sent.after;
                continue;
            }
            let caller = Caller { session: SESSION, call: sent.call, floor: 0 };
            let Some(again) = self.world.ask_as(caller, sent.request.clone()) else {
                panic!("seed {seed}: {:?} was not answered again", sent.request)
            };
            if let Some(reply) = &sent.reply
                && reply.is_ok()
            {
                assert!(same(&again, reply), "seed {seed}: {:?} asked again: {again:?}, not {reply:?}", sent.request);
            }
            self.base = sent.after;
        }
        assert_eq!(self.world.dump(), self.base, "seed {seed}: after asking again");
    }

    fn random_step(&mut self) {
        match self.random.below(10) {
            0..=4 => {
                let change = self.draw();
                self.send(&change);
            }
            5..=7 => {
                self.world.step();
            }
            8 => match self.job.take() {
                Some(job) => self.world.merge_with(job),
                None if self.random.one_in(4) => self.job = self.world.store().merge_now(),
                None => {}
            },
            _ => {
                let (now, wall) = (self.world.now, self.world.wall);
                self.world.store().tick(now, wall);
            }
        }
        self.note();
    }

    /// Deletes everything: nothing stays behind, no file, no group.
    fn end(&mut self) {
        let seed = self.world.seed;
        self.world.merge();
        for name in ["/a", "/b", "/c", "/d"] {
            let _ = self.world.ask(delete(name));
        }
        self.world.pass(Duration::from_secs(1));
        let totals = Totals { files: 0, directories: 1, bytes: 0 };
        assert_eq!(self.world.ask(Request::Usage), Ok(Reply::Usage(totals)), "seed {seed}");
        assert_eq!(self.world.ask(Request::CloseSession), Ok(Reply::Done), "seed {seed}");
        self.world.pass(Duration::from_secs(1));
        let known: Vec<GroupId> = (1..500).map(GroupId).collect();
        collect(&mut self.world);
        assert_eq!(self.world.ask(Request::KnownGroups { groups: known }), Ok(Reply::Known(vec![])), "seed {seed}");
    }
}

fn pack_group(world: &mut World) -> GroupId {
    match world.ask(Request::PackGroup {
        policy: Policy::default(),
        beside: None,
        replicas_max: 0,
        refused: Vec::new(),
    }) {
        Ok(Reply::Group(group)) => group.group,
        other => panic!("seed {}: {other:?}", world.seed),
    }
}

fn collect(world: &mut World) {
    for _ in 0..100 {
        let Ok(Reply::Garbage(garbage)) =
            world.ask(Request::Garbage { ranges_after: None, bags_after: None, limit: 10 })
        else {
            panic!("seed {}: no garbage", world.seed)
        };
        if garbage.groups.is_empty() && garbage.ranges.is_empty() {
            return;
        }
        let groups = garbage.groups.iter().map(|group| group.group).collect();
        let ranges = garbage.ranges.iter().map(|(group, offset, _)| (group.group, *offset)).collect();
        world.ask(Request::Collected { groups, ranges, bags: vec![] }).expect("collected");
    }
    panic!("seed {}: garbage without end", world.seed);
}

fn random_run(seed: u64) -> Vec<String> {
    let mut run = Run::new(seed);
    for life in 0..6 {
        for _ in 0..40 + run.random.below(60) {
            run.random_step();
        }
        match run.random.below(3) {
            0 => run.world.kill(),
            _ => run.world.crash(seed * 100 + life),
        }
        run.check();
    }
    run.end();
    run.trace
}

/// Whatever happens and whenever the process or the power goes: acknowledged changes stay, others are whole or absent and keep their
/// order, repeated calls are answered as before, and in the end nothing is left behind.
#[test]
fn random_changes_and_crashes() {
    for seed in 0..120 {
        random_run(seed);
    }
}

/// One seed, one history.
#[test]
fn same_seed_same_history() {
    for seed in 500..503 {
        assert_eq!(random_run(seed), random_run(seed), "seed {seed}");
    }
}

/// What the scripted run does between changes.
fn script() -> Vec<Change> {
    let name = |text: &str| text.to_string();
    vec![
        Change::Mkdir(name("/a/b"), true),
        Change::Put(vec![(name("/a/x"), 1000), (name("/a/b/y"), 2000), (name("/c/z"), 0)], false, true),
        Change::Create(name("/a/f"), false),
        Change::Rename(name("/a/x"), name("/a/b/x"), false),
        Change::Rename(name("/a/b"), name("/d"), false),
        Change::Put(vec![(name("/d/x"), 3000), (name("/d/y"), 500)], true, false),
        Change::Truncate(name("/d/x"), 1500),
        Change::Put(vec![(name("/d/v"), 100), (name("/d/w"), 0)], false, false),
        Change::Concat(name("/d/x"), vec![name("/d/v"), name("/d/w")]),
        Change::Rename(name("/d/x"), name("/a/f"), true),
        Change::Delete(name("/d"), true),
        Change::Mkdir(name("/d"), false),
        Change::Delete(name("/c/z"), false),
    ]
}

/// Runs the script; stops where a device stops.
fn scripted(run: &mut Run) {
    for (place, change) in script().iter().enumerate() {
        if run.world.stopped() {
            return;
        }
        run.send(change);
        // Some changes go in groups, some alone.
        if place % 3 != 1 {
            run.world.run();
        }
        run.note();
        if place % 4 == 3 && !run.world.stopped() {
            run.world.merge();
        }
    }
    if !run.world.stopped() {
        run.world.run();
        run.note();
    }
}

/// A power loss or a kill at every write and sync of the log, and of the tree.
#[test]
fn crash_at_every_change() {
    for kill in [false, true] {
        for on_tree in [false, true] {
            let mut at = 0;
            loop {
                let mut run = Run::new(at + 1000);
                let operations = run.world.device.operations();
                if on_tree {
                    run.world.file.crash_at(Some(run.world.file.changes() + at));
                } else {
                    let before = operations.creates
                        + operations.removes
                        + operations.writes
                        + operations.syncs
                        + operations.punches;
                    run.world.device.set_faults(SimFaults { crash_at: Some(before + at), ..SimFaults::default() });
                }
                scripted(&mut run);
                let stopped = run.world.stopped();
                run.world.file.crash_at(None);
                run.world.device.set_faults(SimFaults::default());
                if kill {
                    run.world.kill();
                } else {
                    run.world.crash(at);
                }
                run.check();
                run.end();
                if !stopped {
                    assert!(at > 5, "the script makes changes (tree {on_tree}, {at})");
                    break;
                }
                at += 1;
            }
        }
    }
}

/// Power losses while the store is being opened lose nothing either, wherever the log and the tree are then.
#[test]
fn crash_while_opening() {
    for on_tree in [false, true] {
        for at in 0..40 {
            let mut run = Run::new(at + 2000);
            scripted(&mut run);
            run.world.power_off(at);
            let opened = stops_while_opening(&mut run.world, on_tree, at);
            if opened {
                run.world.kill();
            } else {
                run.world.crash(at + 7);
            }
            run.check();
            run.end();
        }
    }
}

/// Opens the store, and stops at this change of the log's disk or the tree's file. Whether it came to its end.
fn stops_while_opening(world: &mut World, on_tree: bool, at: u64) -> bool {
    if on_tree {
        world.file.crash_at(Some(world.file.changes() + at));
    } else {
        let crash_at = Some(world.device.operations().changes() + at);
        world.device.set_faults(SimFaults { crash_at, ..SimFaults::default() });
    }
    // A device that stopped ends whoever waits for it.
    let opened = catch_unwind(AssertUnwindSafe(|| world.try_open().is_ok())).unwrap_or(false) && !world.stopped();
    world.file.crash_at(None);
    world.device.set_faults(SimFaults::default());
    opened
}

/// A power loss or a kill at every change that opening a store of version 3 makes of the log and of the tree: it has all that was in its log, and
/// a later start makes it one of today's version.
#[test]
fn crash_while_a_format_is_changed() {
    for (on_tree, kill) in [(false, false), (false, true), (true, false), (true, true)] {
        for at in 0.. {
            let mut world = World::new(at);
            world.are_counted = false;
            world.power_off(1);
            make_older(&world, include_str!("golden/log-3.hex"), at % 2 == 0);
            let opened = stops_while_opening(&mut world, on_tree, at);
            if kill {
                world.kill();
            } else {
                world.crash(at + 7);
            }
            assert_eq!(world.dump().into_keys().collect::<Vec<_>>(), ["/a", "/a/f"], "on the tree {on_tree}, {at}");
            world.ask(mkdir("/later")).expect("made");
            world.crash(at + 8);
            assert_eq!(world.dump().len(), 3);
            assert!(merged_of(&world).begun);
            if opened {
                assert!(at > 5, "opening makes changes (tree {on_tree}, {at})");
                break;
            }
        }
    }
}
