//! Logs as a keeper writes them, cut off, marked and freed, with power losses and rot: what is read back is what was promised, or is said.

use super::{Found, GROUPS_AWAY, Header, Lacks, Promised, Replayed, Stamp, Voted, replay};
use crate::kept::Entry;
use base::checksum::crc32c;
use base::env::Random;
use base::error::ErrorKind;
use bytes::Bytes;
use sim::fuzz::seeds;
use sim::random::SimRandom;
use std::collections::{BTreeMap, HashSet};

const BASE: Stamp = Stamp { index: 1, term: 1, sum: 0 };

/// A keeper that writes its log, through several lives.
struct Writer {
    /// What it has, from the base on, which is the first.
    log: Vec<(Stamp, Bytes)>,
    /// What was ever durable and not cut off, whether it has it now or not.
    kept: BTreeMap<u64, (Stamp, Bytes)>,
    written: Vec<Found>,
    /// So many of them are synced.
    synced: usize,
    /// What was in `kept` at any time.
    ever_durable: HashSet<Stamp>,
    order: u64,
    /// The highest index of its own that is durable.
    durable: u64,
    /// It lacks some up to this index, and this one first, if it knows which that is.
    lacks_to: u64,
    lacks_first: Option<Stamp>,
    /// It lacked something when this life began.
    began_lacking: bool,
    committed: u64,
    /// What it ever knew as committed, of which it may lack some now.
    ever_committed: u64,
    voted: Voted,
    /// The highest term that it heard of.
    term: u64,
    number: u32,
}

impl Writer {
    fn new() -> Writer {
        Writer {
            log: vec![(BASE, Bytes::new())],
            kept: BTreeMap::new(),
            written: Vec::new(),
            synced: 0,
            ever_durable: HashSet::new(),
            order: 0,
            durable: BASE.index,
            lacks_to: 0,
            lacks_first: None,
            began_lacking: false,
            committed: BASE.index,
            ever_committed: BASE.index,
            voted: Voted::default(),
            term: 1,
            number: 0,
        }
    }

    fn end(&self) -> Stamp {
        self.log[self.log.len() - 1].0
    }

    fn base(&self) -> Stamp {
        self.log[0].0
    }

    fn at(&self, index: u64) -> &(Stamp, Bytes) {
        &self.log[(index - self.base().index) as usize]
    }

    fn promised(&self) -> Promised {
        Promised { durable: self.at(self.durable).0, to: self.durable.max(self.lacks_to) }
    }

    fn is_whole(&self) -> bool {
        self.lacks_to <= self.end().index
    }

    fn write(&mut self, is_mark: bool, stamp: Stamp, group: Bytes) {
        self.order += 1;
        let before = if is_mark { (0, 0) } else { (self.end().term, self.end().sum) };
        let (committed, promised, length) = (self.committed, self.promised(), group.len() as u64);
        let header = Header { is_mark, salt: 1, order: self.order, stamp, before, committed, promised, length };
        assert_eq!(Header::read(&header.bytes()), Some(header));
        self.written.push(Found { header, group: Some(group) });
    }

    fn append(&mut self, term: u64) {
        self.term = term;
        self.number += 1;
        let group = Bytes::copy_from_slice(&self.number.to_le_bytes());
        let stamp = Stamp { index: self.end().index + 1, term, sum: crc32c(&group) };
        self.write(false, stamp, group.clone());
        self.log.push((stamp, group));
    }

    /// A leader of a higher term wants another entry at this index. What it cuts off was committed nowhere.
    fn cut(&mut self, index: u64, term: u64) {
        self.log.truncate((index - self.base().index) as usize);
        self.kept.split_off(&index);
        self.durable = self.durable.min(index - 1);
        self.lacks_to = self.lacks_to.min(index - 1);
        self.append(term);
    }

    fn sync(&mut self) {
        self.ever_durable.extend(self.log.iter().map(|entry| entry.0));
        self.synced = self.written.len();
        self.durable = self.end().index;
        let base = self.base().index;
        self.kept.extend(
            self.log.iter().filter(|(stamp, _)| stamp.index > base).map(|entry| (entry.0.index, entry.clone())),
        );
    }

    fn mark(&mut self) {
        self.write(true, self.end(), Bytes::new());
        self.synced = self.written.len();
    }

    fn vote(&mut self) {
        let Promised { durable, to } = self.promised();
        let lacks = self.lacks_first.filter(|first| first.index == durable.index + 1 && to > durable.index);
        self.voted = Voted { order: self.order, promised: Promised { durable: lacks.unwrap_or(durable), to } };
    }

    /// What is committed and durable is in the tree, and the front of the log is free.
    fn free(&mut self, index: u64) {
        let base = self.at(index).0;
        self.log.drain(..(index - self.base().index) as usize);
        let is_old = |found: &Found| found.header.stamp.index <= base.index;
        let free = self.written[..self.synced].iter().take_while(|found| is_old(found)).count();
        self.written.drain(..free);
        self.synced -= free;
        self.kept = self.kept.split_off(&(base.index + 1));
    }

    /// The next entry that it lacks comes from another keeper, or another one instead from a leader that has none such.
    fn mend(&mut self) {
        let next = self.end().index + 1;
        match self.kept.get(&next).cloned() {
            Some((stamp, group)) => {
                self.write(false, stamp, group.clone());
                self.log.push((stamp, group));
            }
            None => self.cut(next, self.term + 1),
        }
    }

    /// One thing that a keeper does.
    fn step(&mut self, random: &SimRandom, cuts: bool) {
        let term = self.term + random.below(4) / 3;
        match random.below(10) {
            0..5 if self.is_whole() => self.append(term),
            0..5 => self.mend(),
            5 | 6 => self.sync(),
            7 => {
                let room = self.end().index.saturating_sub(self.committed);
                if cuts && room > 0 {
                    self.cut(self.committed + 1 + random.below(room), self.term + 1);
                }
            }
            8 if self.is_whole() => {
                // The others may have committed what is not durable here yet.
                self.committed += random.below(self.end().index + 1 - self.committed);
                self.ever_committed = self.ever_committed.max(self.committed);
                let most = self.committed.min(self.durable);
                let index = self.base().index + random.below(most + 1 - self.base().index);
                self.free(index);
            }
            9 if self.is_whole() && self.durable == self.end().index => self.mark(),
            _ => self.vote(),
        }
        if self.written.len() - self.synced >= GROUPS_AWAY as usize {
            self.sync();
        }
    }

    /// What is there after the power was lost: of what was not synced each may be whole, damaged or not there.
    fn power_loss(&mut self, random: &SimRandom) {
        for at in (self.synced..self.written.len()).rev() {
            match random.below(3) {
                0 => (),
                1 => self.written[at].group = None,
                _ => drop(self.written.remove(at)),
            }
        }
    }

    /// Starts again, and says whether it lacks anything.
    fn start(&mut self) -> Result<Option<Lacks>, String> {
        let base = self.base();
        let Replayed { entries, committed, said, lacks, next_order } =
            replay(self.written.clone(), base, self.voted).map_err(|error| error.to_string())?;
        let from = lacks.map_or(u64::MAX, |lacks| lacks.from);
        for (index, (stamp, group)) in self.kept.range(..from) {
            let entry = entries.get((index - base.index - 1) as usize);
            let right = Entry { term: stamp.term, index: *index, group: group.clone() };
            if entry != Some(&right) {
                return Err(format!("entry {index} was durable as {right:?}, and there is {entry:?}"));
            }
        }
        for entry in entries.iter().filter(|entry| entry.index <= said) {
            if !self.ever_durable.contains(&entry.stamp()) {
                return Err(format!("{said} is said to be durable, and {} never was", entry.index));
            }
        }
        if committed > self.ever_committed {
            return Err(format!("{committed} are committed, and {} were", self.ever_committed));
        }
        if let Some(first) = lacks.and_then(|lacks| lacks.first)
            && let Some((right, _)) = self.kept.get(&from)
            && first != *right
        {
            return Err(format!("it lacks {right:?}, and says {first:?}"));
        }
        let stamp = |entry: &Entry| Stamp { index: entry.index, term: entry.term, sum: crc32c(&entry.group) };
        self.log.truncate(1);
        self.log.extend(entries.iter().map(|entry| (stamp(entry), entry.group.clone())));
        // The reader has synced what it found. What is committed elsewhere it hears of from its leader.
        (self.order, self.synced) = (next_order - 1, self.written.len());
        self.durable = self.end().index;
        self.lacks_to = lacks.map_or(0, |lacks| lacks.to);
        self.lacks_first = lacks.and_then(|lacks| lacks.first);
        self.began_lacking = lacks.is_some();
        self.committed = self.committed.min(self.end().index);
        // Whoever leads now does in another term.
        self.term += 1;
        if lacks.is_none() {
            self.sync();
            self.mark();
        } else {
            self.vote();
        }
        Ok(lacks)
    }
}

/// Several lives, each of some steps, with what happens to the disk after each.
fn live(seed: u64, cuts: bool, mut happens: impl FnMut(&SimRandom, &mut Writer)) -> (Writer, u64) {
    let (random, mut writer, mut lacking) = (SimRandom::new(seed), Writer::new(), 0);
    for life in 0..1 + random.below(4) {
        for _ in 0..random.below(30) {
            writer.step(&random, cuts);
        }
        writer.power_loss(&random);
        happens(&random, &mut writer);
        let lacks = writer.start().unwrap_or_else(|why| panic!("seed {seed}, life {life}: {why}"));
        lacking += u64::from(lacks.is_some());
    }
    (writer, lacking)
}

/// After a power loss all that was durable and not cut off is there, and nothing is missed that was not promised.
#[test]
fn durable_is_there() {
    let mut entries = 0;
    for seed in 0..6000 {
        let (writer, lacking) = live(seed, seed % 2 == 0, |_, _| ());
        assert_eq!(lacking, 0, "seed {seed}");
        entries += writer.log.len();
    }
    assert!(entries > 10_000, "{entries} entries");
}

/// One durable group that rots, whole or in its bytes alone, in each life that began with all that was promised: what was promised is there, or it is said what is not. But for the last
/// one, of which nothing says that it was durable.
#[test]
fn rot_is_no_torn_end() {
    let (mut said, mut unseen) = (0, 0);
    for seed in 0..12_000 {
        let rots = |random: &SimRandom, writer: &mut Writer| {
            if writer.synced == 0 || writer.began_lacking {
                return;
            }
            let at = random.below(writer.synced as u64) as usize;
            let rotten = writer.written[at].header;
            if random.one_in(2) && !rotten.is_mark {
                writer.written[at].group = None;
            } else {
                drop(writer.written.remove(at));
            }
            let says = |promised: Promised| promised.to >= rotten.stamp.index;
            let later = writer.written.iter().filter(|later| later.header.order > rotten.order);
            let voted = writer.voted.order >= rotten.order && says(writer.voted.promised);
            let is_attested = voted || later.into_iter().any(|later| says(later.header.promised));
            if !rotten.is_mark
                && !is_attested
                && writer.kept.get(&rotten.stamp.index).is_some_and(|kept| kept.0 == rotten.stamp)
            {
                unseen += 1;
                writer.kept.split_off(&rotten.stamp.index);
            }
        };
        said += live(seed, seed % 2 == 0, rots).1;
    }
    assert!(said > 1000 && unseen > 50, "{said} said, {unseen} could not be known");
}

/// An older entry at the place of one that rotted is not taken for it, if what follows names another one.
#[test]
fn older_version_is_no_entry() {
    let mut writer = Writer::new();
    (0..3).for_each(|_| writer.append(1));
    writer.sync();
    writer.cut(3, 2);
    writer.sync();
    writer.append(2);
    writer.sync();
    let right = writer.at(3).0;
    let mut rotten = writer.written.clone();
    drop(rotten.remove(3));
    let replayed = replay(rotten, BASE, Voted::default()).expect("a log");
    assert_eq!(replayed.entries.len(), 1, "entry 3 of term 1 is another one");
    assert_eq!(replayed.lacks, Some(Lacks { from: 3, to: 4, first: Some(right) }));
    // The last one, which rots with nothing behind it, is known by a mark, or by a vote.
    let without = |writer: &Writer, voted| {
        let mut rotten = writer.written.clone();
        drop(rotten.remove(4));
        let replayed = replay(rotten, BASE, voted).expect("a log");
        (replayed.entries.len(), replayed.lacks)
    };
    let lacks = Lacks { from: 4, to: 4, first: Some(writer.end()) };
    assert_eq!(without(&writer, Voted::default()), (2, None));
    writer.vote();
    assert_eq!(without(&writer, writer.voted), (2, Some(lacks)));
    writer.mark();
    assert_eq!(without(&writer, Voted::default()), (2, Some(lacks)));
}

/// A vote names the entry that was durable: an older version of it, with all behind that, is none.
#[test]
fn a_vote_names_its_entry() {
    let mut writer = Writer::new();
    (0..5).for_each(|_| writer.append(1));
    writer.sync();
    writer.cut(4, 2);
    writer.sync();
    writer.vote();
    let mut rotten = writer.written.clone();
    drop(rotten.pop());
    let replayed = replay(rotten, BASE, writer.voted).expect("a log");
    let lacks = Lacks { from: 4, to: 4, first: Some(writer.end()) };
    assert_eq!((replayed.entries.len(), replayed.lacks), (2, Some(lacks)));
}

/// What was promised before a cut counts no more, also if a vote said it, and also if the cut itself was lost with what it wrote.
#[test]
fn a_cut_ends_promises() {
    let mut writer = Writer::new();
    (0..5).for_each(|_| writer.append(1));
    writer.sync();
    writer.vote();
    writer.cut(4, 2);
    writer.append(2);
    let of = |found: &[usize]| {
        let found = found.iter().map(|at| writer.written[*at].clone()).collect();
        let replayed = replay(found, BASE, writer.voted).expect("a log");
        (replayed.entries.len(), replayed.lacks)
    };
    assert_eq!(of(&[0, 1, 2, 3, 4, 5, 6]), (4, None));
    assert_eq!(of(&[0, 1, 2, 3, 4, 5]), (3, None));
    assert_eq!(of(&[0, 1, 2, 3, 4, 6]), (2, None), "the cut was torn, what followed it was not");
    assert_eq!(of(&[0, 1, 2, 3, 4]), (5, None), "the leader asks again");
}

/// Commits of entries that are not durable here say nothing of older ones in their place.
#[test]
fn what_is_committed_elsewhere() {
    let mut writer = Writer::new();
    (0..5).for_each(|_| writer.append(1));
    writer.sync();
    writer.cut(3, 2);
    writer.append(2);
    writer.committed = 4;
    writer.append(2);
    let torn = writer.written.iter().enumerate().filter(|(at, _)| ![5, 6].contains(at)).map(|(_, found)| found.clone());
    let replayed = replay(torn.collect(), BASE, Voted::default()).expect("a log");
    assert_eq!((replayed.committed, replayed.lacks), (2, None));
}

/// While a keeper gets back what it lacks, its promises go as far as before.
#[test]
fn mended_step_by_step() {
    let mut writer = Writer::new();
    (0..8).for_each(|_| writer.append(1));
    writer.sync();
    writer.mark();
    drop(writer.written.remove(2));
    writer.synced -= 1;
    let lacks = writer.start().expect("a log").expect("entry 4 is lacking");
    assert_eq!((lacks.from, lacks.to), (4, 9));
    writer.mend();
    writer.sync();
    writer.vote();
    // What was on the disk behind it counts again.
    assert_eq!(writer.start(), Ok(None));
    assert_eq!(writer.end().index, 9);
}

/// A log that ends before the tree, or is of another history than it, counts for nothing; what its leader wrote since does.
#[test]
fn another_history() {
    let mut writer = Writer::new();
    (0..5).for_each(|_| writer.append(1));
    writer.sync();
    writer.mark();
    writer.vote();
    let of = |index, term| Stamp { index, term, sum: 9 };
    for base in [of(4, 2), of(6, 1), of(9, 1)] {
        let replayed = replay(writer.written.clone(), base, writer.voted).expect("a log");
        assert_eq!((replayed.entries.len(), replayed.lacks, replayed.committed), (0, None, base.index), "{base:?}");
    }
    let right = writer.at(4).0;
    let replayed = replay(writer.written.clone(), right, Voted::default()).expect("a log");
    assert_eq!((replayed.entries.len(), replayed.lacks), (2, None));
    assert_eq!(replayed.next_order, writer.order + 1 + GROUPS_AWAY, "some may have been on their way");
    let mut twice = writer.written.clone();
    twice[1].header.order = twice[2].header.order;
    assert_eq!(replay(twice, BASE, Voted::default()).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
    // Its own older history, whose end is there still, does not take what follows the base with it.
    writer.cut(4, 2);
    let base = writer.end();
    (0..3).for_each(|_| writer.append(2));
    writer.sync();
    writer.mark();
    writer.written.retain(|found| found.header.stamp != base);
    drop(writer.written.remove(6));
    let lacks = replay(writer.written.clone(), base, Voted::default()).expect("a log").lacks;
    assert_eq!(lacks.map(|lacks| (lacks.from, lacks.to)), Some((5, 7)));
}

/// Whatever is found, it is a log or an error.
#[test]
fn fuzz_found() {
    for seed in seeds(2000) {
        let random = SimRandom::new(seed);
        let small = || random.below(8);
        let one = |_| {
            let is_mark = random.one_in(4);
            let (term, sum) = (small(), small() as u32 / 4);
            let stamp = Stamp { index: 1 + small(), term, sum };
            let durable = Stamp { index: random.below(stamp.index), term: small(), sum: small() as u32 / 4 };
            let promised = Promised { durable, to: durable.index + small() / 4 };
            let before = (random.below(term + 1), small() as u32 / 4);
            let (salt, order, committed, length) = (1, small() * 2 + small(), small(), 0);
            let header = Header { is_mark, salt, order, stamp, before, committed, promised, length };
            Found { header, group: random.one_in(4).then(Bytes::new) }
        };
        let found = (0..random.below(12)).map(one).collect();
        let base = Stamp { index: small(), term: small(), sum: 0 };
        let durable = Stamp { index: small(), term: small(), sum: 0 };
        let voted = Voted { order: small() * 2, promised: Promised { durable, to: durable.index + small() } };
        if let Ok(Replayed { entries, committed, lacks, .. }) = replay(found, base, voted) {
            let end = base.index + entries.len() as u64;
            assert!((base.index..=end).contains(&committed), "seed {seed}");
            assert!(lacks.is_none_or(|lacks| lacks.from == end + 1 && lacks.to >= lacks.from), "seed {seed}");
        }
    }
}
