//! Histories in which everything happens at any time: whatever does, at most one store is kept by two machines, and a machine that lost what it kept
//! keeps nothing again.

use super::{ADDRESSES, Fails, From, Three, WALL, addresses, node};
use crate::keepers::formation::{Others, Outcome};
use base::env::Random;
use base::error::Result;
use base::id::NodeId;
use base::planted::Planted;
use net::message::keeper as wire;
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// What the keeper at a place answered.
type Answer = (usize, Result<(NodeId, wire::FormAnswer)>);

/// Steps of one history.
const STEPS: usize = 80;

struct History {
    three: Three,
    random: SimRandom,
    /// What was on the disks before they were wiped.
    old: [Option<BTreeMap<PathBuf, String>>; 3],
    /// Answers that are on their way to a machine.
    answers: [Vec<Answer>; 3],
    /// All that was ever told.
    told: Vec<(NodeId, wire::Begin)>,
    /// Of each store the directories with which it was served.
    served: BTreeMap<u128, BTreeSet<u128>>,
    /// Directories that served and were lost; they may come back.
    broken: Option<String>,
    /// Whether a machine serves a store with a directory.
    serves: [Option<u128>; 3],
    wipes: bool,
}

impl History {
    fn new(seed: u64, wipes: bool, planted: Option<Planted>) -> History {
        History {
            three: Three::planted(seed, planted),
            random: SimRandom::new(seed + 1_000_000),
            old: [None, None, None],
            answers: [Vec::new(), Vec::new(), Vec::new()],
            told: Vec::new(),
            served: BTreeMap::new(),
            broken: None,
            serves: [None; 3],
            wipes,
        }
    }

    fn is_one_in(&self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    fn start(&mut self, at: usize) {
        if self.three.try_start(at).is_err() {
            self.three.stop(at);
        }
    }

    /// A machine that keeps a store serves it, and its devices are in use from then on.
    fn serve(&mut self, at: usize) {
        if !self.three.is_up(at) {
            return;
        }
        let Some(Outcome::Keeps { seating, draw, .. }) = self.three.outcome(at) else { return };
        self.told.push((node(at), seating.begin()));
        if self.serves[at].is_some_and(|before| before != draw) {
            self.broken.get_or_insert(format!("{at} keeps again with another directory"));
        }
        if seating.of_draw(draw).is_none() {
            self.broken.get_or_insert(format!("{at} keeps a store that it is not one of"));
        }
        self.serves[at] = Some(draw);
        self.three.late[at] = true;
        self.served.entry(seating.store.0).or_default().insert(draw);
        if self.served.values().filter(|draws| draws.len() > 1).count() > 1 {
            self.broken.get_or_insert("two stores are served by two each".to_string());
        }
    }

    /// Asks, and lets the answers wait.
    async fn ask(&mut self, at: usize) {
        let Some(draw) = self.three.formation(at).empty_draw() else { return };
        let from = From(node(at), self.three.up.clone());
        let mut answers = Vec::new();
        let list = self.three.lists[at].clone();
        for (place, address) in list.iter().enumerate().filter(|(_, address)| **address != ADDRESSES[at]) {
            let place_of = list.iter().position(|address| address == ADDRESSES[at]).expect("it is one of them") as u32;
            let ask = wire::Form { keepers: list.clone(), place: place_of, draw: draw.into() };
            answers.push((place, from.form(address, ask).await));
        }
        self.answers[at] = answers;
    }

    async fn step(&mut self) {
        let at = self.random.below(3) as usize;
        match self.random.below(12) {
            0..=2 if !self.three.is_up(at) => self.start(at),
            0..=3 if self.three.is_up(at) => self.three.round(at).await,
            4 if self.three.is_up(at) => self.ask(at).await,
            5 if self.three.is_up(at) => {
                let answers = std::mem::take(&mut self.answers[at]);
                if answers.len() == 2 {
                    self.three.formation(at).hear(answers, WALL);
                }
            }
            6 if self.is_one_in(2) => {
                self.three.stop(at);
                self.answers[at].clear();
            }
            7 => {
                let fails = if self.is_one_in(2) { Fails::Written } else { Fails::Unwritten };
                *self.three.worlds[at].fails.lock().expect("whole") = Some((0, fails));
            }
            8 if !self.told.is_empty() && self.three.is_up(at) => {
                let (asker, begin) = &self.told[self.random.below(self.told.len() as u64) as usize];
                // Whatever it says to it.
                let _ = self.three.formation(at).begin(*asker, begin);
            }
            9 => self.serve(at),
            10 if self.is_one_in(4) => {
                self.three.stop(at);
                self.answers[at].clear();
                self.three.lists[at] = addresses();
                if self.is_one_in(2) {
                    self.three.lists[at].swap(0, 1 + self.random.below(2) as usize);
                }
            }
            11 if self.wipes && self.is_one_in(3) => {
                self.three.stop(at);
                self.answers[at].clear();
                let before = self.old[at].take().filter(|_| self.is_one_in(2));
                let wiped = self.three.wipe(at);
                self.old[at] = Some(wiped);
                *self.three.worlds[at].files.lock().expect("whole") = before.unwrap_or_default();
            }
            _ => (),
        }
        // What a machine begins is told at once as far as anybody knows.
        for at in 0..3 {
            if self.three.is_up(at)
                && let Some(Outcome::Keeps { seating, .. }) = self.three.outcome(at)
                && self.told.len() < 64
            {
                self.told.push((node(at), seating.begin()));
            }
        }
    }

    /// What is wrong with it; none: nothing.
    async fn play(mut self) -> Option<String> {
        for _ in 0..STEPS {
            self.step().await;
        }
        for at in 0..3 {
            *self.three.worlds[at].fails.lock().expect("whole") = None;
            self.three.stop(at);
            self.three.lists[at] = addresses();
        }
        (0..3).for_each(|at| self.start(at));
        for _ in 0..3 {
            self.three.rounds().await;
            (0..3).for_each(|at| self.serve(at));
        }
        if !self.wipes {
            self.three.all_keep();
        }
        self.broken
    }
}

/// Without wiped disks all three keep the store at last; with them nothing is broken.
#[tokio::test]
async fn whatever_happens() {
    for seed in sim::fuzz::seeds(1_000) {
        for wipes in [false, true] {
            let broken = History::new(seed, wipes, None).play().await;
            assert_eq!(broken, None, "seed {seed}, wipes {wipes}");
        }
    }
}

/// The planted fault is seen by them, too.
#[tokio::test]
async fn the_planted_fault_is_seen() {
    for seed in 0..200 {
        if History::new(seed, true, Some(Planted::WipedKeeperVotes)).play().await.is_some() {
            return;
        }
    }
    panic!("none of 200 histories showed it");
}
