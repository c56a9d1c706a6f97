//! A keeper's disk: after every way to end, what was told as durable is there, and the rest as far as it came.

use base::disk::{Disk, FileKind, FileName};
use base::env::Random;
use base::error::ErrorKind;
use base::id::ClusterId;
use base::unit::Time;
use bytes::Bytes;
use quorum::{Entry, Header, KeeperId, Log, Opened, Promised, Settings, Stamp, Vote, open};
use sim::disk::{SimDevice, SimDisk, SimFaults, When};
use sim::random::SimRandom;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

const OWN: (ClusterId, KeeperId) = (ClusterId(5), KeeperId(3));
const SEGMENT: u64 = 64 << 10;
const MOST: usize = 6;

fn settings(random: &SimRandom) -> Settings {
    Settings {
        segment_length: SEGMENT,
        segments_max: MOST,
        random: Arc::new(SimRandom::new(random.next())),
        is_alone: false,
        planted: None,
    }
}

/// Vote and entries, as they are after each step of what was to be written.
#[derive(Clone, Debug, PartialEq)]
struct State {
    vote: Vote,
    entries: Vec<Entry>,
}

/// A user's bytes that are a header where a group's second block begins, to whoever does not know the salt.
fn forged(salt: u64) -> Vec<u8> {
    let (stamp, durable) = (Stamp { index: 1000, term: 1000, sum: 0 }, Stamp { index: 999, term: 999, sum: 1 });
    let promised = Promised { durable, to: u64::MAX };
    let (order, before, committed, length) = (u64::MAX, (999, 1), 999, 0);
    Header { is_mark: false, salt, order, stamp, before, committed, promised, length }.bytes()
}

/// A keeper's disk, and what is known of it.
struct Keeper {
    random: SimRandom,
    device: SimDevice,
    disk: SimDisk,
    log: Log,
    now: Time,
    base: Stamp,
    /// What was durable for sure, and all states that were to follow; for each write how many of them.
    states: Vec<State>,
    writes: Vec<(u64, usize)>,
    number: u64,
    /// How often it was started.
    life: u64,
    failed: bool,
}

impl Keeper {
    fn new(seed: u64) -> Keeper {
        let random = SimRandom::new(seed);
        let device = SimDevice::new(random.next(), SimFaults::default());
        let mut disk = device.attach();
        let (log, opened) = open(&mut disk, OWN, Stamp::FIRST, settings(&random), Time::ZERO).expect("empty");
        assert_eq!((opened.vote, opened.entries.len()), (Vote::default(), 0));
        let states = vec![State { vote: Vote::default(), entries: Vec::new() }];
        let (now, base, writes) = (Time::ZERO, Stamp::FIRST, Vec::new());
        Keeper { random, device, disk, log, now, base, states, writes, number: 0, life: 1, failed: false }
    }

    fn last(&self) -> &State {
        self.states.last().expect("there is one")
    }

    /// Has something written: a vote, entries behind the last one, or in place of some.
    fn push(&mut self) {
        let mut state = self.last().clone();
        let vote = self.random.one_in(6).then(|| Vote { term: state.vote.term + 1, voted_for: Some(KeeperId(1)) });
        if let Some(vote) = vote {
            state.vote = vote;
            self.states.push(state.clone());
        }
        let mut entries: Vec<Entry> = Vec::new();
        let term = state.entries.last().map_or(self.base.term, |entry| entry.term).max(state.vote.term);
        if vote.is_none() || self.random.one_in(2) {
            let cut = if self.random.one_in(5) { self.random.below(state.entries.len() as u64 + 1) } else { 0 };
            // What is committed is not cut off; here it is what is let go of.
            state.entries.truncate(state.entries.len() - cut as usize);
            // Of an entry that cuts off others the header may be there alone.
            self.states.push(state.clone());
            for _ in 0..=self.random.below(5) {
                let index = state.entries.last().map_or(self.base.index, |entry| entry.index) + 1;
                let length = if self.random.one_in(3) { self.random.below(12_000) } else { self.random.below(200) };
                let mut group = vec![0; length as usize];
                group.iter_mut().for_each(|byte| *byte = self.random.next() as u8);
                if let Some(second_block) = group.get_mut(4096 - 108..4096) {
                    second_block.copy_from_slice(&forged(self.random.below(2)));
                }
                let entry = Entry { term: term + u64::from(cut > 0), index, group: Bytes::from(group) };
                state.entries.push(entry.clone());
                self.states.push(state.clone());
                entries.push(entry);
            }
        }
        self.number += 1;
        self.writes.push((self.number, self.states.len() - 1));
        self.log.push(self.now, self.number, vote, entries, self.base.index);
    }

    /// Lets go of some entries that are durable.
    fn free(&mut self) {
        let durable = self.durable();
        let kept = self.states[durable..].iter().map(|state| state.entries.len()).min().unwrap_or(0);
        let stays = |place: &usize| {
            let entry = &self.states[durable].entries[*place];
            self.states[durable..].iter().all(|state| state.entries[*place] == *entry)
        };
        let Some(place) = (0..kept).take_while(stays).last().filter(|_| self.random.one_in(3)) else { return };
        let entry = self.states[durable].entries[place].clone();
        self.base = Stamp { index: entry.index, term: entry.term, sum: base::checksum::crc32c(&entry.group) };
        self.states.iter_mut().for_each(|state| state.entries.retain(|later| later.index > entry.index));
        self.log.free(self.now, entry.index);
    }

    /// Which state is durable, as the log says.
    fn durable(&self) -> usize {
        let done = self.writes.iter().rev().find(|(number, _)| *number <= self.log.durable());
        done.map_or(0, |(_, state)| *state)
    }

    /// So many turns of the disk.
    fn turns(&mut self, turns: u64) {
        for _ in 0..turns {
            for (token, op) in self.log.take_operations() {
                self.disk.submit(token, op);
            }
            let mut done = Vec::new();
            self.disk.poll(Some(Duration::ZERO), &mut done);
            self.now = self.now.after(Duration::from_millis(self.random.below(8)));
            for done in done {
                self.failed |= self.log.completed(self.now, done).is_err();
            }
            self.log.tick(self.now);
        }
    }

    /// Ends in one of the ways and opens again: what is there is one of the states since the durable one, and durable.
    fn again(&mut self, seed: u64) {
        let durable = self.durable();
        match self.random.below(3) {
            _ if self.device.crashed() => self.device.crash(),
            0 => self.device.kill(),
            _ => self.device.crash(),
        }
        self.device.set_faults(SimFaults::default());
        self.disk = self.device.attach();
        let opened = open(&mut self.disk, OWN, self.base, settings(&self.random), self.now);
        let (log, Opened { life, vote, entries, .. }) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(life, self.life + 1, "seed {seed}");
        self.life = life;
        // What is cut off by something that was on its way may be gone, as far as it was to be, and the rest be there.
        self.states.drain(..durable);
        let least = self.states.iter().map(|state| state.entries.len()).min().unwrap_or(0);
        let is_right = |state: &State| entries.len() >= least && state.entries.starts_with(&entries);
        let indices = |entries: &[Entry]| entries.iter().map(|entry| (entry.index, entry.term)).collect::<Vec<_>>();
        let Some(first) = self.states.iter().find(|state| is_right(state)) else {
            let all: Vec<_> = self.states.iter().map(|state| indices(&state.entries)).collect();
            panic!("seed {seed}: {:?} of {all:?}", indices(&entries));
        };
        // All votes before were durable then.
        let is_one = self.states.iter().any(|state| state.vote == vote);
        assert!(is_one && vote.term >= first.vote.term, "seed {seed}: {vote:?} with what came behind {:?}", first.vote);
        self.states = vec![State { vote, entries }];
        (self.log, self.failed) = (log, false);
        self.writes.clear();
    }
}

/// Kills, power losses at any change of the disk, failed writes and syncs, logs that are cut and whose front is let go of.
#[test]
fn what_is_durable_is_there() {
    let seeds = std::env::var("STORMWELL_QUORUM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(300);
    let (mut told, mut failures) = (0, 0);
    for seed in 0..seeds {
        let mut keeper = Keeper::new(seed);
        for _ in 0..12 {
            let crash_at = Some(keeper.device.operations().changes() + keeper.random.below(60));
            let faults = match keeper.random.below(5) {
                0 => SimFaults { write_error: When::OneIn(20), ..SimFaults::default() },
                1 => SimFaults { sync_error: When::OneIn(20), ..SimFaults::default() },
                2 | 3 => SimFaults { crash_at, ..SimFaults::default() },
                _ => SimFaults::default(),
            };
            keeper.device.set_faults(faults);
            for _ in 0..keeper.random.below(20) {
                if !keeper.failed && !keeper.device.crashed() {
                    keeper.push();
                }
                keeper.turns(keeper.random.below(12));
                keeper.free();
            }
            let durable = keeper.log.durable();
            told += keeper.writes.iter().filter(|(number, _)| *number <= durable).count() as u64;
            failures += u64::from(keeper.failed);
            keeper.again(seed);
        }
    }
    assert!(told > 20 * seeds && failures > seeds, "{told} writes told, {failures} failures");
}

/// With nothing in the way all is written, however small the log is, as long as what is kept elsewhere is let go of.
#[test]
fn all_is_written() {
    let mut keeper = Keeper::new(1);
    for round in 0..400 {
        keeper.push();
        keeper.turns(20);
        keeper.free();
        if round % 50 == 0 {
            keeper.again(1);
        }
    }
    for _ in 0..400 {
        keeper.turns(10);
        keeper.free();
        if keeper.log.durable() == keeper.number {
            break;
        }
    }
    assert_eq!(keeper.log.durable(), keeper.number);
    let files = keeper.device.files();
    assert!(files.iter().filter(|(name, _)| name.kind == FileKind::Log).count() <= MOST, "{files:?}");
}

/// A keeper that starts again and again with entries of which nobody knows whether they are committed takes no more room each time.
#[test]
fn starts_take_no_room() {
    let mut keeper = Keeper::new(2);
    // All segments have been used once.
    for _ in 0..200 {
        keeper.push();
        keeper.turns(20);
        keeper.free();
    }
    while keeper.last().entries.len() < 20 {
        keeper.push();
        keeper.turns(40);
    }
    for _ in 0..300 {
        keeper.turns(keeper.random.below(40));
        keeper.again(2);
    }
    keeper.push();
    keeper.turns(100);
    assert_eq!(keeper.log.durable(), keeper.number);
    assert!(keeper.device.files().iter().filter(|(name, _)| name.kind == FileKind::Log).count() <= MOST);
}

/// A keeper on an empty device.
fn new_keeper(device: &SimDevice, random: &SimRandom) -> (SimDisk, Log) {
    let mut disk = device.attach();
    let (log, _) = open(&mut disk, OWN, Stamp::FIRST, settings(random), Time::ZERO).expect("empty");
    (disk, log)
}

/// Entries of a term and so many bytes.
fn entries(term: u64, range: RangeInclusive<u64>, length: usize) -> Vec<Entry> {
    range.map(|index| Entry { term, index, group: Bytes::from(vec![1; length]) }).collect()
}

/// A log, and its disk, that does what there is to be done for so many milliseconds.
fn passes(log: &mut Log, disk: &mut SimDisk, now: &mut Time, milliseconds: u64) {
    for _ in 0..milliseconds {
        log.take_operations().into_iter().for_each(|(token, op)| disk.submit(token, op));
        let mut done = Vec::new();
        disk.poll(None, &mut done);
        *now = now.after(Duration::from_millis(1));
        done.into_iter().for_each(|done| log.completed(*now, done).expect("done"));
        log.tick(*now);
    }
}

/// The last group rots. A moment later a mark says that it was durable, and it is missed; before that it is taken for a torn end.
#[test]
fn a_mark_tells_rot_from_a_torn_end() {
    for waits in [false, true] {
        let random = SimRandom::new(3);
        let device = SimDevice::new(4, SimFaults::default());
        let (mut disk, mut log) = new_keeper(&device, &random);
        let entry = |index| Entry { term: 2, index, group: Bytes::from(vec![index as u8; 100]) };
        let mut now = Time::ZERO;
        log.push(now, 1, Some(Vote { term: 2, voted_for: Some(OWN.1) }), vec![entry(2), entry(3)], 1);
        passes(&mut log, &mut disk, &mut now, if waits { 200 } else { 40 });
        assert_eq!(log.durable(), 1);
        device.crash();
        // Entry 2, entry 3.
        device.rot(FileName::new(FileKind::Log, 0), 4096 + 120, 1);
        let mut disk = device.attach();
        let opened = open(&mut disk, OWN, Stamp::FIRST, settings(&random), now).map(|(_, opened)| opened.entries);
        match opened {
            Err(error) => assert!(waits && error.kind() == ErrorKind::Corrupt, "{error}"),
            Ok(entries) => assert_eq!((entries, waits), (vec![entry(2)], false)),
        }
    }
}

/// What a new leader cut off takes no room for longer than what it put in its place.
#[test]
fn what_is_cut_off_takes_no_room() {
    let random = SimRandom::new(9);
    let device = SimDevice::new(10, SimFaults::default());
    let (mut disk, mut log) = new_keeper(&device, &random);
    let mut now = Time::ZERO;
    log.push(now, 1, None, entries(1, 2..=70, 3000), 1);
    passes(&mut log, &mut disk, &mut now, 300);
    assert!(log.durable() == 1 && log.wants_room());
    log.push(now, 2, None, entries(2, 2..=4, 3000), 1);
    passes(&mut log, &mut disk, &mut now, 50);
    drop(disk);
    let mut disk = device.attach();
    let (mut log, opened) = open(&mut disk, OWN, Stamp::FIRST, settings(&random), now).expect("it opens");
    assert_eq!(opened.entries, entries(2, 2..=4, 3000));
    log.free(now, 4);
    assert!(!log.wants_room());
    log.push(now, 3, None, entries(2, 5..=70, 3000), 4);
    passes(&mut log, &mut disk, &mut now, 300);
    assert_eq!(log.durable(), 3);
}

/// What a new leader committed is not said of entries that it cuts off and that still wait.
#[test]
fn committed_is_said_of_its_own_log() {
    let random = SimRandom::new(12);
    let device = SimDevice::new(13, SimFaults::default());
    let (mut disk, mut log) = new_keeper(&device, &random);
    let mut now = Time::ZERO;
    log.push(now, 1, None, entries(1, 2..=13, 100), 1);
    log.push(now, 2, Some(Vote { term: 2, voted_for: None }), entries(2, 5..=9, 100), 9);
    // After each turn of the disk the process may be killed.
    for turn in 0..20 {
        passes(&mut log, &mut disk, &mut now, 1);
        let copy = SimDevice::new(14, SimFaults::default());
        device.files().into_iter().for_each(|(name, _)| copy.poke(name, 0, &device.peek(name)));
        let opened = open(&mut copy.attach(), OWN, Stamp::FIRST, settings(&random), now).map(|(_, opened)| opened);
        let Opened { entries, committed, .. } = opened.expect("it opens");
        let of_old = entries.iter().find(|entry| entry.index >= 5 && entry.term == 1);
        let of_old = of_old.map_or(u64::MAX, |entry| entry.index);
        assert!(committed < of_old, "turn {turn}: {committed} are committed, {of_old} is not");
    }
    assert_eq!(log.durable(), 2);
}

/// What lies behind the end of a log that is all kept elsewhere holds no segment.
#[test]
fn nothing_behind_the_base_is_needed() {
    let random = SimRandom::new(15);
    let device = SimDevice::new(16, SimFaults::default());
    let (mut disk, mut log) = new_keeper(&device, &random);
    let mut now = Time::ZERO;
    log.push(now, 1, None, entries(1, 2..=60, 100), 1);
    let last = entries(2, 2..=2, 100);
    log.push(now, 2, None, last.clone(), 2);
    passes(&mut log, &mut disk, &mut now, 300);
    assert_eq!(log.durable(), 2);
    drop(disk);
    let mut disk = device.attach();
    let (mut log, opened) = open(&mut disk, OWN, last[0].stamp(), settings(&random), now).expect("it opens");
    assert_eq!(opened.entries, []);
    for index in 3..40 {
        log.push(now, index, None, entries(2, index..=index, 12_000), index - 1);
        passes(&mut log, &mut disk, &mut now, 20);
        log.free(now, index);
        assert_eq!(log.durable(), index);
    }
}

/// A segment that finds no room is tried again; nothing is asked of anybody meanwhile, and what waits is written then.
#[test]
fn room_comes_back() {
    let random = SimRandom::new(5);
    let device = SimDevice::new(6, SimFaults { no_room_for: Some(FileKind::Log), ..SimFaults::default() });
    let (mut disk, mut log) = new_keeper(&device, &random);
    let mut now = Time::ZERO;
    log.push(now, 1, Some(Vote { term: 2, voted_for: None }), Vec::new(), 1);
    let entry = Entry { term: 2, index: 2, group: Bytes::from_static(b"1") };
    log.push(now, 2, None, vec![entry], 1);
    passes(&mut log, &mut disk, &mut now, 300);
    assert!(log.durable() == 1 && log.next_tick().is_some_and(|at| at > now), "{:?}", log.next_tick());
    device.set_faults(SimFaults::default());
    passes(&mut log, &mut disk, &mut now, 1500);
    assert_eq!((log.durable(), log.next_tick()), (2, None));
    // A group that no segment takes ends the log.
    let group = Bytes::from(vec![0; SEGMENT as usize]);
    log.push(now, 3, None, vec![Entry { term: 2, index: 3, group }], 1);
    assert_eq!((log.failure().map(|error| error.kind()), log.next_tick()), (Some(ErrorKind::Invalid), None));
}

/// A segment is full to its end, and no other one could be made then: when there is one the log has room.
#[test]
fn full_to_the_end() {
    let random = SimRandom::new(17);
    let device = SimDevice::new(18, SimFaults::default());
    let (mut disk, mut log) = new_keeper(&device, &random);
    let mut now = Time::ZERO;
    let is_log = |(name, _): &(FileName, u64)| name.kind == FileKind::Log;
    while !device.files().iter().any(is_log) {
        passes(&mut log, &mut disk, &mut now, 1);
    }
    device.set_faults(SimFaults { no_room_for: Some(FileKind::Log), ..SimFaults::default() });
    log.push(now, 1, None, entries(1, 2..=17, 100), 1);
    passes(&mut log, &mut disk, &mut now, 300);
    assert!(log.durable() == 1 && log.wants_room(), "there is one segment");
    device.set_faults(SimFaults::default());
    passes(&mut log, &mut disk, &mut now, 1500);
    assert!(device.files().iter().filter(|file| is_log(file)).count() > 1 && !log.wants_room());
}

/// One read that fails is read again, block by block; a disk that gives nothing is said, and nothing is taken for empty.
#[test]
fn what_cannot_be_read() {
    let mut keeper = Keeper::new(11);
    for _ in 0..10 {
        keeper.push();
        keeper.turns(30);
    }
    let last = keeper.last().clone();
    keeper.device.kill();
    // The votes are read first, one after the other, then the log.
    for fails in 0..4 {
        keeper.device.set_faults(SimFaults {
            read_error: When::Nth(keeper.device.operations().reads + fails),
            ..SimFaults::default()
        });
        let mut disk = keeper.device.attach();
        let (_, opened) = open(&mut disk, OWN, Stamp::FIRST, settings(&keeper.random), keeper.now).expect("it opens");
        assert_eq!((opened.vote, opened.entries), (last.vote, last.entries.clone()), "read {fails}");
    }
    keeper.device.set_faults(SimFaults { read_error: When::Always, ..SimFaults::default() });
    let mut disk = keeper.device.attach();
    let refused = open(&mut disk, OWN, Stamp::FIRST, settings(&keeper.random), keeper.now).map(drop);
    assert_eq!(refused.expect_err("nothing is read").kind(), ErrorKind::Io);
}

/// A disk whose votes are gone is said, and not taken for an empty one; nor is another keeper's.
#[test]
fn votes_that_are_gone() {
    let random = SimRandom::new(7);
    let device = SimDevice::new(8, SimFaults::default());
    let opens = |own| open(&mut device.attach(), own, Stamp::FIRST, settings(&random), Time::ZERO).map(drop);
    opens(OWN).expect("empty");
    opens(OWN).expect("nothing was written");
    let (mut disk, mut log) = new_keeper(&device, &random);
    log.push(Time::ZERO, 1, Some(Vote { term: 2, voted_for: None }), Vec::new(), 1);
    passes(&mut log, &mut disk, &mut Time::ZERO.clone(), 40);
    assert_eq!(log.durable(), 1);
    drop(disk);
    assert_eq!(opens((OWN.0, KeeperId(4))).expect_err("another one's").kind(), ErrorKind::Invalid);
    let votes = [0, 1].map(|number| FileName::new(FileKind::Vote, number));
    device.rot(votes[0], 30, 1);
    opens(OWN).expect("the other one is whole");
    votes.iter().for_each(|vote| device.rot(*vote, 30, 1));
    assert_eq!(opens(OWN).expect_err("none is whole").kind(), ErrorKind::Corrupt);
    votes.iter().for_each(|vote| device.poke(*vote, 0, &[0; 4096]));
    assert_eq!(opens(OWN).expect_err("there is a log").kind(), ErrorKind::Corrupt);
}
