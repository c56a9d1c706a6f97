//! Keepers with their disks: the promises of `histories`, with all that disks do.

use base::checksum::crc32c;
use base::disk::Disk;
use base::env::Random;
use base::id::ClusterId;
use base::unit::Time;
use bytes::Bytes;
use quorum::{Effect, Entry, Keeper, KeeperId, Message, Role, Seat, Settings, Stamp};
use sim::disk::{SimDevice, SimDisk, SimFaults, When};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;

/// A machine with a keeper.
struct Machine {
    device: SimDevice,
    runs: Option<(Keeper, SimDisk)>,
    starts_at: u64,
    /// What it keeps elsewhere, as after the last entry of it.
    base: Stamp,
    told: u64,
    proposed: Vec<Entry>,
    /// From whom it gets what that one keeps elsewhere, and when it has it.
    copies: Option<(usize, u64)>,
}

/// A message on its way: when it comes, from whom, to whom.
type Sent = (u64, usize, usize, Message);

struct Cluster {
    random: SimRandom,
    now: u64,
    machines: Vec<Machine>,
    sent: Vec<Sent>,
    cut: BTreeSet<(usize, usize)>,
    ledger: BTreeMap<u64, Entry>,
    leaders: BTreeMap<u64, usize>,
    acknowledged: u64,
    number: u64,
    starts: u64,
    failures: u64,
    copied: u64,
}

impl Cluster {
    fn new(seed: u64, count: usize) -> Cluster {
        let random = SimRandom::new(seed);
        let machine = |_| Machine {
            device: SimDevice::new(random.next(), SimFaults::default()),
            runs: None,
            starts_at: random.below(50 * MS),
            base: Stamp::FIRST,
            told: 1,
            proposed: Vec::new(),
            copies: None,
        };
        let machines = (0..count).map(machine).collect();
        Cluster {
            machines,
            random,
            now: 0,
            sent: Vec::new(),
            cut: BTreeSet::new(),
            ledger: BTreeMap::new(),
            leaders: BTreeMap::new(),
            acknowledged: 1,
            number: 0,
            starts: 0,
            failures: 0,
            copied: 0,
        }
    }

    fn time(&self) -> Time {
        Time::from_nanos(self.now)
    }

    /// So many steps of about a millisecond.
    fn steps(&mut self, steps: u64, with_trouble: bool) {
        for _ in 0..steps {
            self.now += self.random.below(2 * MS);
            if with_trouble && self.random.one_in(120) {
                self.trouble();
            }
            self.deliver();
            for at in 0..self.machines.len() {
                self.turn(at);
            }
            self.look();
        }
    }

    fn trouble(&mut self) {
        let count = self.machines.len() as u64;
        let at = self.random.below(count) as usize;
        let crash_at = Some(self.machines[at].device.operations().changes() + self.random.below(40));
        let faults = match self.random.below(9) {
            0 => SimFaults { crash_at, ..SimFaults::default() },
            1 => SimFaults { sync_error: When::Once, ..SimFaults::default() },
            2 => SimFaults { write_error: When::Once, ..SimFaults::default() },
            3 => {
                (0..self.machines.len()).for_each(|at| self.dies(at));
                return;
            }
            4 | 5 => {
                let other = self.random.below(count) as usize;
                self.cut.insert((at, other));
                return;
            }
            6 => {
                self.cut.clear();
                return;
            }
            _ => {
                self.dies(at);
                return;
            }
        };
        // One that stops while it is opened would be waited for for ever.
        if self.machines[at].runs.is_some() {
            self.machines[at].device.set_faults(faults);
        }
    }

    /// The process is killed, or the power fails.
    fn dies(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if machine.runs.is_none() {
            return;
        }
        if machine.device.crashed() || self.random.one_in(2) {
            machine.device.crash();
        } else {
            machine.device.kill();
        }
        machine.runs = None;
        machine.copies = None;
        machine.device.set_faults(SimFaults::default());
        machine.starts_at = self.now + self.random.below(700 * MS);
    }

    fn starts(&mut self, at: usize) {
        let voters: Vec<KeeperId> = (1..=self.machines.len() as u64).map(KeeperId).collect();
        let chance = || Arc::new(SimRandom::new(self.random.next()));
        let is_alone = voters.len() == 1;
        let settings =
            Settings { segment_length: 64 << 10, segments_max: 8, random: chance(), is_alone, planted: None };
        let (cluster, own, random) = (ClusterId(5), voters[at], chance());
        let seat = Seat { cluster, own, voters, settings, random, planted: None };
        let (now, machine) = (self.time(), &mut self.machines[at]);
        let mut disk = machine.device.attach();
        let keeper = Keeper::open(&mut disk, seat, machine.base, now);
        let mut keeper = keeper.unwrap_or_else(|error| panic!("keeper {at} at {} ms: {error}", self.now / MS));
        keeper.lead_alone(now).expect("it leads, if it is alone");
        machine.runs = Some((keeper, disk));
        machine.told = machine.base.index;
        machine.proposed.clear();
        self.starts += 1;
    }

    fn deliver(&mut self) {
        let now = self.now;
        let (due, rest): (Vec<Sent>, Vec<Sent>) =
            std::mem::take(&mut self.sent).into_iter().partition(|(at, ..)| *at <= now);
        self.sent = rest;
        for (_, from, to, message) in due {
            let time = self.time();
            if let Some((keeper, _)) = &mut self.machines[to].runs
                && !self.cut.contains(&(from, to))
            {
                keeper.receive(time, message);
            }
        }
    }

    /// What a machine does in a step.
    fn turn(&mut self, at: usize) {
        let time = self.time();
        if self.machines[at].device.crashed() {
            self.dies(at);
        }
        if self.machines[at].runs.is_none() {
            if self.machines[at].starts_at <= self.now {
                self.starts(at);
            }
            return;
        }
        self.propose(at);
        self.free(at);
        self.copy(at);
        let Some((keeper, disk)) = &mut self.machines[at].runs else { return };
        keeper.take_operations().into_iter().for_each(|(token, op)| disk.submit(token, op));
        let mut done = Vec::new();
        if self.random.one_in(2) {
            disk.poll(Some(Duration::ZERO), &mut done);
        }
        if keeper.next_tick().is_some_and(|due| due <= time) {
            keeper.tick(time);
        }
        let failed = done.into_iter().any(|done| keeper.completed(time, done).is_err());
        let effects = keeper.take_effects();
        effects.into_iter().for_each(|effect| self.does(at, effect));
        self.acknowledge(at);
        if failed {
            self.failures += 1;
            self.dies(at);
        }
    }

    fn propose(&mut self, at: usize) {
        let (time, machine) = (self.time(), &mut self.machines[at]);
        let Some((keeper, _)) = &mut machine.runs else { return };
        let Role::Leads { term } = keeper.role() else { return };
        // Somebody may be away, and what he lacks fills the logs of all others.
        if keeper.wants_room() || !self.random.one_in(8) {
            return;
        }
        self.number += 1;
        let mut group = self.number.to_le_bytes().to_vec();
        group.resize(8 + self.random.below(6000) as usize, 7);
        let group = Bytes::from(group);
        if let Ok(index) = keeper.propose(time, term, group.clone()) {
            machine.proposed.push(Entry { term, index, group });
        }
    }

    /// Keeps elsewhere what everybody was told, or what it was told itself, and lets go of it.
    fn free(&mut self, at: usize) {
        let told = match self.random.one_in(2) {
            true => self.machines[at].told,
            false => self.machines.iter().map(|machine| machine.told).min().unwrap_or(1),
        };
        let (time, machine) = (self.time(), &mut self.machines[at]);
        let Some((keeper, _)) = &mut machine.runs else { return };
        if !keeper.wants_room() && !self.random.one_in(100) {
            return;
        }
        if let Some(Entry { term, index, group }) = self.ledger.get(&told).filter(|_| told > machine.base.index) {
            machine.base = Stamp { index: *index, term: *term, sum: crc32c(group) };
        }
        keeper.free(time, machine.base.index);
    }

    /// It has what another one keeps elsewhere, and begins anew behind that.
    fn copy(&mut self, at: usize) {
        let now = self.now;
        let Some((from, _)) = self.machines[at].copies.take_if(|(_, ends)| *ends <= now) else { return };
        let of = self.machines[from].base;
        if self.machines[from].runs.is_none() || of.index <= self.machines[at].told {
            return;
        }
        self.dies(at);
        let machine = &mut self.machines[at];
        (machine.base, machine.starts_at) = (of, now);
        self.copied += 1;
    }

    fn does(&mut self, at: usize, effect: Effect) {
        match effect {
            Effect::Send { to, message } => {
                if !self.random.one_in(100) {
                    let message =
                        Message::read(&message.bytes().expect("keepers send it").into()).expect("it was sent");
                    let late = if self.random.one_in(30) { 200 * MS } else { 2 * MS };
                    self.sent.push((self.now + self.random.below(late), at, to.0 as usize - 1, message));
                }
            }
            Effect::Committed(entries) => {
                for entry in entries {
                    assert_eq!(entry.index, self.machines[at].told + 1, "keeper {at}");
                    self.machines[at].told = entry.index;
                    self.record(&entry);
                }
            }
            Effect::Turned(Role::Leads { term }) => {
                let first = *self.leaders.entry(term).or_insert(at);
                assert_eq!(first, at, "two lead in term {term}");
            }
            Effect::Turned(Role::Follows { .. }) => {}
            Effect::Lacks { leader } => {
                let ends = self.now + self.random.below(400 * MS);
                self.machines[at].copies.get_or_insert((leader.0 as usize - 1, ends));
            }
        }
    }

    fn record(&mut self, entry: &Entry) {
        let first = self.ledger.entry(entry.index).or_insert_with(|| entry.clone());
        assert!(first == entry, "entry {} was of term {} and is of term {}", entry.index, first.term, entry.term);
    }

    fn acknowledge(&mut self, at: usize) {
        let Some((keeper, _)) = &self.machines[at].runs else { return };
        let (committed, role) = (keeper.committed(), keeper.role());
        let mut proposed = std::mem::take(&mut self.machines[at].proposed);
        proposed.retain(|entry| role == Role::Leads { term: entry.term });
        let known = proposed.partition_point(|entry| entry.index <= committed);
        self.machines[at].proposed = proposed.split_off(known);
        for entry in proposed {
            self.acknowledged = self.acknowledged.max(entry.index);
            self.record(&entry);
        }
    }

    /// At most one answers questions, and knows all that was acknowledged.
    fn look(&self) {
        let keepers = self.machines.iter().filter_map(|machine| machine.runs.as_ref());
        let leases: Vec<&Keeper> =
            keepers.map(|(keeper, _)| keeper).filter(|keeper| keeper.has_lease(self.time())).collect();
        assert!(leases.len() <= 1, "{} have a lease", leases.len());
        assert!(
            leases.iter().all(|keeper| keeper.committed() >= self.acknowledged),
            "an answer lacks what was acknowledged"
        );
    }

    fn is_well(&self, before: u64) -> bool {
        let told = |machine: &Machine| machine.runs.is_some() && machine.told >= self.acknowledged;
        self.acknowledged > before + 5 && self.machines.iter().all(told)
    }
}

/// Nothing that was acknowledged is lost or changed, nobody answers with less, and once all is well it goes on.
#[test]
fn no_promise_is_broken_by_disks() {
    let seeds = std::env::var("STORMWELL_QUORUM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let (mut starts, mut failures, mut acknowledged, mut copied) = (0, 0, 0, 0);
    for seed in 0..seeds {
        // Of a failure it is the last one that was printed.
        println!("seed {seed}");
        let mut cluster = Cluster::new(seed, [3, 3, 5, 1][seed as usize % 4]);
        cluster.steps(10_000, true);
        cluster.cut.clear();
        let (before, mut tries) = (cluster.acknowledged, 0);
        while !cluster.is_well(before) {
            cluster.steps(100, false);
            tries += 1;
            let told: Vec<u64> = cluster.machines.iter().map(|machine| machine.told).collect();
            assert!(tries < 80, "nothing goes on: {before}, {}, told {told:?}", cluster.acknowledged);
        }
        starts += cluster.starts;
        failures += cluster.failures;
        acknowledged += cluster.acknowledged;
        copied += cluster.copied;
    }
    assert!(
        starts > 30 * seeds && failures > seeds && acknowledged > 100 * seeds && copied > seeds,
        "{starts}, {failures}, {acknowledged}, {copied}"
    );
}
