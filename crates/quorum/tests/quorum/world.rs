//! A world of keepers: what they send is late, lost or comes twice, their disks forget what was not synced, they are stopped, killed and cut off;
//! and after each event everything is looked at that must never be.

use base::checksum::crc32c;
use base::env::Random;
use base::id::ClusterId;
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use quorum::{
    Core, Entry, Found, Header, KeeperId, Kept, Message, Output, Promised, Role, Stamp, Start, Vote, VoteBlocks, Voted,
    replay,
};
use sim::random::SimRandom;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

const MS: u64 = 1_000_000;
const CLUSTER: ClusterId = ClusterId(5);

/// What is durable at a keeper, and what is on its way there.
struct Disk {
    votes: VoteBlocks,
    /// The two blocks of the vote.
    blocks: [Vec<u8>; 2],
    /// The last entry that was let go of: it and all before are kept elsewhere.
    base: Stamp,
    entries: Vec<Entry>,
    /// The same, as it was written, and perhaps some before.
    found: Vec<Found>,
    /// Of what was written last.
    order: u64,
    writing: Vec<(u64, Option<Vote>, Vec<Entry>)>,
    planted: Option<Planted>,
    turn: usize,
}

impl Disk {
    fn new(own: KeeperId, planted: Option<Planted>) -> Disk {
        let mut votes = VoteBlocks::fresh(CLUSTER, own, 1);
        let block = votes.write(Vote::default(), Voted::default()).to_vec();
        let (entries, found, writing) = Default::default();
        let (base, blocks) = (Stamp::FIRST, [block.clone(), block]);
        Disk { votes, blocks, base, entries, found, order: 0, writing, planted, turn: 0 }
    }

    /// The last entry before this index.
    fn before(&self, index: u64) -> Stamp {
        let last = self.entries.iter().rev().find(|entry| entry.index < index);
        last.map_or(self.base, stamp)
    }

    fn has(&self, entry: &Entry) -> bool {
        entry.index <= self.base.index || self.entries.contains(entry)
    }

    /// Lets go of the entries up to this one, and now and then of what was written of them.
    fn free(&mut self, to: u64, random: &SimRandom) {
        self.base = self.before(to + 1);
        self.entries.retain(|entry| entry.index > to);
        let freed = self.found.iter().take_while(|found| found.header.stamp.index <= to).count();
        self.found.drain(..random.below(freed as u64 + 1) as usize);
    }

    /// What was written last, if nothing else says that it was durable: should it rot, it is taken for torn.
    fn unsaid(&self) -> Option<&Entry> {
        let (entry, (found, before)) = self.entries.last().zip(self.found.split_last())?;
        let is_this = |found: &Found| found.header.stamp == stamp(entry);
        let is_unsaid = found.header.order > self.votes.voted().order && !before.iter().any(is_this);
        (is_this(found) && is_unsaid).then_some(entry)
    }

    /// What was written last rots. An older version of it, which was cut off, may so come back.
    fn loses_last(&mut self) {
        self.found.pop();
        let replayed = replay(self.found.clone(), self.base, self.votes.voted());
        self.entries = replayed.map_or(Vec::new(), |replayed| replayed.entries);
    }

    /// What is found at a start: now and then one block of the vote has rotted since.
    fn open(&mut self, own: KeeperId, random: &SimRandom) -> Result<Vote, Broken> {
        let are_whole = self.blocks.iter().all(|block| VoteBlocks::open(CLUSTER, own, [block, &[]]).is_ok());
        let are_alike = self.blocks[0] == self.blocks[1] || self.planted == Some(Planted::VoteInOneBlock);
        if are_whole && are_alike && random.one_in(3) {
            let block = random.below(2) as usize;
            self.blocks[block][8 + random.below(60) as usize] ^= 1 << random.below(8);
        }
        let [one, other] = &self.blocks;
        self.votes = VoteBlocks::open(CLUSTER, own, [one, other]).map_err(|error| error.to_string())?;
        let vote = self.votes.vote();
        if self.votes.is_torn() {
            self.writes_vote(Some(vote), 2);
        }
        let replayed = replay(self.found.clone(), self.base, self.votes.voted()).map_err(|error| error.to_string())?;
        self.order = replayed.next_order;
        if replayed.entries != self.entries || replayed.lacks.is_some() {
            return Err(format!("its log is read as {replayed:?}, and is {:?}", self.entries));
        }
        Ok(vote)
    }

    /// Entries came to the disk, whole.
    fn append(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.entries.retain(|earlier| earlier.index < entry.index);
            let before = self.before(entry.index);
            let header = Header {
                is_mark: false,
                salt: 1,
                order: self.order + 1,
                stamp: stamp(entry),
                before: (before.term, before.sum),
                committed: 0,
                promised: Promised { durable: before, to: before.index },
                length: entry.group.len() as u64,
            };
            self.order += 1;
            self.found.push(Found { header, group: Some(entry.group.clone()) });
            self.entries.push(entry.clone());
        }
    }

    fn synced(&mut self, number: u64) {
        while self.writing.first().is_some_and(|(first, ..)| *first <= number) {
            let (_, vote, entries) = self.writing.remove(0);
            self.writes_vote(vote, 2);
            self.append(&entries);
        }
    }

    /// So many of the two writes of a vote are done.
    fn writes_vote(&mut self, vote: Option<Vote>, writes: usize) {
        let Some(vote) = vote else { return };
        let durable = self.before(u64::MAX);
        let voted = Voted { order: self.order, promised: Promised { durable, to: durable.index } };
        let order = self.votes.order();
        let block = self.votes.write(vote, voted).to_vec();
        match self.planted {
            // In turn, one for each vote.
            Some(Planted::VoteInOneBlock) => {
                self.turn = 1 - self.turn;
                if writes > 0 {
                    self.blocks[self.turn] = block;
                }
            }
            _ => order.iter().take(writes).for_each(|place| self.blocks[*place].clone_from(&block)),
        }
    }

    /// Of what was on its way a beginning is there.
    fn loses_power(&mut self, random: &SimRandom) {
        let whole = random.below(self.writing.len() as u64 + 1) as usize;
        for (at, (_, vote, entries)) in std::mem::take(&mut self.writing).into_iter().enumerate() {
            if at > whole {
                break;
            }
            let cut = if at == whole { random.below(entries.len() as u64 + 1) as usize } else { entries.len() };
            if at == whole && random.one_in(2) {
                // The vote is written before the entries, and was not whole.
                self.writes_vote(vote, random.below(2) as usize);
                break;
            }
            self.writes_vote(vote, 2);
            self.append(&entries[..cut]);
        }
    }
}

fn stamp(entry: &Entry) -> Stamp {
    Stamp { index: entry.index, term: entry.term, sum: crc32c(&entry.group) }
}

struct Keeper {
    core: Option<Core>,
    disk: Disk,
    /// Which start of it this is.
    life: u64,
    /// Millionths by which its clock is fast.
    drift: i64,
    /// It does nothing until then.
    stopped_until: u64,
    told: u64,
    /// What it proposed.
    proposed: Vec<Entry>,
    /// What it had, said that it had, and has lost.
    rotted: Vec<Entry>,
}

#[derive(Clone, Copy, PartialEq)]
enum Late {
    All,
    Elections,
}

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "most events are messages")]
enum Event {
    Arrives {
        to: usize,
        message: Message,
    },
    Synced {
        at: usize,
        life: u64,
        number: u64,
    },
    Tick {
        at: usize,
        life: u64,
    },
    Starts {
        at: usize,
    },
    /// Changes that were gathered by who led then.
    Proposed {
        at: usize,
        life: u64,
        term: u64,
    },
    Gather,
    Trouble,
    SlowEnds {
        from: usize,
        to: usize,
    },
    /// Dies and is there again at once, and does not hear of one of the others.
    Restarts {
        at: usize,
        without: usize,
    },
    CutEnds {
        from: usize,
        to: usize,
    },
}

/// What went wrong, in words.
pub type Broken = String;

pub struct World {
    random: SimRandom,
    now: u64,
    count: u64,
    events: BTreeMap<(u64, u64), Event>,
    keepers: Vec<Keeper>,
    cut: BTreeSet<(usize, usize)>,
    /// Links whose messages are late, all of them or those of elections.
    slow: BTreeMap<(usize, usize), Late>,
    calm: bool,
    /// Nobody changes anything until then: logs are equally long, and anybody may be elected.
    quiet_until: u64,
    planted: Option<Planted>,
    number: u64,
    /// Everything that a keeper was told to be committed: index to term and what it is.
    ledger: BTreeMap<u64, Entry>,
    sent: BTreeMap<(u64, u64), u64>,
    leaders: BTreeMap<u64, usize>,
    votes: BTreeMap<(usize, u64), u64>,
    acknowledged: u64,
    /// So many changes were acknowledged, and questions answered.
    pub done: (u64, u64),
    hasher: DefaultHasher,
}

impl World {
    pub fn new(seed: u64, keepers: usize, planted: Option<Planted>) -> World {
        let random = SimRandom::new(seed);
        // Two clocks differ by a thousandth at most.
        let drift = |_| random.below(1001) as i64 - 500;
        let keeper = |number: usize| Keeper {
            core: None,
            disk: Disk::new(KeeperId(number as u64 + 1), planted),
            life: 0,
            drift: drift(number),
            stopped_until: 0,
            told: 1,
            proposed: Vec::new(),
            rotted: Vec::new(),
        };
        let mut world = World {
            keepers: (0..keepers).map(keeper).collect(),
            random,
            now: 0,
            count: 0,
            events: BTreeMap::new(),
            cut: BTreeSet::new(),
            slow: BTreeMap::new(),
            calm: false,
            quiet_until: 0,
            planted,
            number: 0,
            ledger: BTreeMap::new(),
            sent: BTreeMap::new(),
            leaders: BTreeMap::new(),
            votes: BTreeMap::new(),
            acknowledged: 1,
            done: (0, 0),
            hasher: DefaultHasher::new(),
        };
        (0..keepers).for_each(|at| world.later(world.random.below(50 * MS), Event::Starts { at }));
        world.later(0, Event::Gather);
        world.later(1500 * MS, Event::Trouble);
        world
    }

    fn later(&mut self, delay: u64, event: Event) {
        self.count += 1;
        self.events.insert((self.now + delay, self.count), event);
    }

    /// The time on a keeper's clock.
    fn clock(&self, at: usize) -> Time {
        let drift = i128::from(self.keepers[at].drift) * i128::from(self.now) / 1_000_000;
        Time::from_nanos((i128::from(self.now) + drift) as u64)
    }

    /// Goes on with all troubles for so long, then without any, until a change is acknowledged that was proposed then and all know it.
    pub fn live(&mut self, time: Duration) -> Result<u64, Broken> {
        self.run(time.as_nanos() as u64)?;
        self.heal();
        let (healed, before) = (self.now, self.acknowledged);
        loop {
            self.run(100 * MS)?;
            let end = self.acknowledged;
            let keepers = self.keepers.iter().all(|keeper| keeper.told >= end && keeper.core.is_some());
            let answers = self
                .keepers
                .iter()
                .enumerate()
                .filter(|(at, keeper)| keeper.core.as_ref().is_some_and(|core| core.has_lease(self.clock(*at))));
            if end > before + 2 && keepers && answers.count() == 1 {
                return Ok(self.hasher.finish());
            }
            if self.now > healed + 8000 * MS {
                let told: Vec<u64> = self.keepers.iter().map(|keeper| keeper.told).collect();
                return Err(format!(
                    "nothing goes on {} s after all was well: acknowledged {end} (before {before}), told {told:?}",
                    8
                ));
            }
        }
    }

    fn heal(&mut self) {
        (self.calm, self.quiet_until) = (true, 0);
        self.slow.clear();
        self.cut.clear();
        for keeper in &mut self.keepers {
            keeper.stopped_until = self.now;
        }
    }

    fn run(&mut self, time: u64) -> Result<(), Broken> {
        let end = self.now + time;
        while let Some((&(at, count), _)) = self.events.first_key_value()
            && at <= end
        {
            let Some(event) = self.events.remove(&(at, count)) else { unreachable!("it was there") };
            self.now = at;
            (at, format!("{event:?}")).hash(&mut self.hasher);
            let when = format!("at {} ms, {event:?}", at / MS);
            self.happens(event).and_then(|()| self.look()).map_err(|broken| format!("{broken} ({when})"))?;
        }
        self.now = end;
        Ok(())
    }

    fn happens(&mut self, event: Event) -> Result<(), Broken> {
        // Who is stopped hears of it when he goes on.
        let of = match &event {
            Event::Arrives { to: at, .. }
            | Event::Synced { at, .. }
            | Event::Tick { at, .. }
            | Event::Proposed { at, .. } => Some(*at),
            _ => None,
        };
        if let Some(at) = of
            && self.keepers[at].stopped_until > self.now
        {
            let delay = self.keepers[at].stopped_until - self.now;
            self.later(delay, event);
            return Ok(());
        }
        match event {
            Event::Arrives { to, message } => {
                let now = self.clock(to);
                if let Some(core) = &mut self.keepers[to].core {
                    core.receive(now, message);
                }
                self.take(to)
            }
            Event::Synced { at, life, number } => {
                let now = self.clock(at);
                let keeper = &mut self.keepers[at];
                if keeper.life != life || keeper.core.is_none() {
                    return Ok(());
                }
                keeper.disk.synced(number);
                if let Some(core) = &mut keeper.core {
                    core.durable(now, number);
                }
                self.take(at)
            }
            Event::Tick { at, life } => self.tick(at, life),
            Event::Starts { at } => self.starts(at),
            Event::Proposed { at, life, term } => self.propose(at, life, term),
            Event::Gather => {
                self.gather();
                Ok(())
            }
            Event::Trouble => self.trouble(),
            Event::SlowEnds { from, to } => {
                self.slow.remove(&(from, to));
                Ok(())
            }
            Event::Restarts { at, without } => {
                self.dies(at, MS + self.random.below(20 * MS));
                self.cuts(without, at, 400 * MS);
                Ok(())
            }
            Event::CutEnds { from, to } => {
                self.cut.remove(&(from, to));
                Ok(())
            }
        }
    }

    fn tick(&mut self, at: usize, life: u64) -> Result<(), Broken> {
        let now = self.clock(at);
        let keeper = &mut self.keepers[at];
        let Some(core) = keeper.core.as_mut().filter(|_| keeper.life == life) else { return Ok(()) };
        core.tick(now);
        let due = core.next_tick().map_or(50 * MS, |due| due.since(now).as_nanos() as u64);
        // Busy now and then.
        let busy = if self.random.one_in(20) { self.random.below(60 * MS) } else { self.random.below(MS) };
        self.later(due + busy, Event::Tick { at, life });
        self.take(at)
    }

    fn starts(&mut self, at: usize) -> Result<(), Broken> {
        let (now, voters) = (self.clock(at), (1..=self.keepers.len() as u64).map(KeeperId).collect::<Vec<_>>());
        let random = Arc::new(self.random.fork(&format!("{at} {}", self.now)));
        let planted = self.planted;
        let keeper = &mut self.keepers[at];
        if keeper.core.is_some() {
            return Ok(());
        }
        keeper.life += 1;
        keeper.proposed.clear();
        let vote = keeper.disk.open(voters[at], &self.random)?;
        let (base, log) = (keeper.disk.base, keeper.disk.before(u64::MAX).term);
        keeper.told = base.index;
        let answered = self.votes.range((at, 0)..(at + 1, 0)).next_back().map_or(0, |((_, term), _)| *term);
        if answered > vote.term.max(log) {
            return Err(format!("K6: keeper {} voted in term {answered} and has forgotten it", at + 1));
        }
        let kept = Kept::new(&voters, vote, base, 0, keeper.disk.entries.clone()).map_err(|error| error.to_string())?;
        let start = Start { own: voters[at], life: keeper.life, kept, uncommitted_max: 64 << 20, random, now, planted };
        keeper.core = Some(Core::start(start).map_err(|error| error.to_string())?);
        let life = keeper.life;
        self.later(0, Event::Tick { at, life });
        self.take(at)
    }

    fn dies(&mut self, at: usize, after: u64) {
        let keeper = &mut self.keepers[at];
        if keeper.core.take().is_some() {
            keeper.disk.loses_power(&self.random);
            keeper.stopped_until = self.now;
            self.rots(at);
            self.later(after, Event::Starts { at });
        }
    }

    /// Now and then what a keeper wrote last rots, and is taken for torn, while all others have it.
    fn rots(&mut self, at: usize) {
        let Some(last) = self.keepers[at].disk.unsaid().cloned() else { return };
        let has = |keeper: &Keeper| keeper.disk.base.index < last.index && keeper.disk.has(&last);
        if self.keepers.iter().all(has) && self.random.one_in(2) {
            self.keepers[at].disk.loses_last();
            self.keepers[at].told = self.keepers[at].told.min(last.index - 1);
            self.keepers[at].rotted.push(last);
        }
    }

    /// A keeper lets go of what all were told.
    fn frees(&mut self, at: usize) {
        let told = self.keepers.iter().map(|keeper| keeper.told).min().unwrap_or(0);
        let Keeper { core: Some(core), disk, .. } = &mut self.keepers[at] else { return };
        let to = disk.base.index + self.random.below(told.saturating_sub(disk.base.index) + 1);
        core.free(to.min(core.everybody()));
        disk.free(core.front(), &self.random);
    }

    /// Whoever leads computes changes; they are proposed a moment later, whatever happens meanwhile.
    fn gather(&mut self) {
        for at in 0..self.keepers.len() {
            let keeper = &self.keepers[at];
            if let Some(Role::Leads { term }) = keeper.core.as_ref().map(Core::role)
                && keeper.stopped_until <= self.now
                && self.quiet_until <= self.now
            {
                let life = keeper.life;
                let delay =
                    if self.random.one_in(10) { self.random.below(400 * MS) } else { self.random.below(3 * MS) };
                self.later(delay, Event::Proposed { at, life, term });
            }
        }
        let any = self.random.below(self.keepers.len() as u64) as usize;
        self.frees(any);
        self.later(self.random.below(60 * MS), Event::Gather);
    }

    fn propose(&mut self, at: usize, life: u64, term: u64) -> Result<(), Broken> {
        let now = self.clock(at);
        self.number += 1;
        let group = Bytes::from([term.to_le_bytes(), self.number.to_le_bytes()].concat());
        let keeper = &mut self.keepers[at];
        let Some(core) = keeper.core.as_mut().filter(|_| keeper.life == life) else { return Ok(()) };
        if let Ok(index) = core.propose(now, term, group.clone()) {
            keeper.proposed.push(Entry { term, index, group });
        }
        self.take(at)
    }

    fn trouble(&mut self) -> Result<(), Broken> {
        if self.calm {
            return Ok(());
        }
        let count = self.keepers.len() as u64;
        let any = self.random.below(count) as usize;
        // Trouble for who leads is what changes things.
        let leads = (0..self.keepers.len())
            .find(|at| matches!(self.keepers[*at].core.as_ref().map(Core::role), Some(Role::Leads { .. })));
        let at = leads.filter(|_| self.random.one_in(2)).unwrap_or(any);
        let others: Vec<usize> = (0..self.keepers.len()).filter(|other| *other != at).collect();
        let other = others[self.random.below(count - 1) as usize];
        let long = 50 * MS + self.random.below(2000 * MS);
        let short = self.random.below(100 * MS);
        match self.random.below(11) {
            0 | 1 => self.dies(at, if self.random.one_in(2) { short } else { long }),
            2 => (0..self.keepers.len()).for_each(|at| self.dies(at, self.random.below(long))),
            3 => self.keepers[at].stopped_until = self.now + long,
            4 => others.iter().for_each(|other| self.cuts_both(at, *other, long)),
            5 => self.cuts(at, other, long),
            6 => {
                let all: Vec<usize> = (0..self.keepers.len()).collect();
                self.slows(&all, Late::All, long);
            }
            // Those that do not hear of their leader for long enough to campaign, and whose answers are late.
            7 => {
                let long = 750 * MS + self.random.below(300 * MS);
                others.iter().for_each(|other| self.cuts_both(at, *other, long));
                self.slows(&others, Late::Elections, 2 * long);
                self.quiet_until = self.now + 2 * long;
            }
            // One that does not hear of its leader, and another one that forgets that it did.
            8 => {
                self.cuts_both(at, other, 2000 * MS);
                self.quiet_until = self.now + 2000 * MS;
                let third = others.into_iter().find(|third| *third != other).unwrap_or(at);
                self.later(500 * MS + self.random.below(500 * MS), Event::Restarts { at: third, without: at });
            }
            _ => self.hands_over(at, other, long)?,
        }
        self.later(20 * MS + self.random.below(1200 * MS), Event::Trouble);
        Ok(())
    }

    /// Asks another one to take over; now and then it does not hear how that went.
    fn hands_over(&mut self, at: usize, to: usize, long: u64) -> Result<(), Broken> {
        let now = self.clock(at);
        if self.keepers[at].stopped_until <= self.now
            && let Some(core) = &mut self.keepers[at].core
        {
            core.hand_over(now, KeeperId(to as u64 + 1));
            if self.random.one_in(2) {
                (0..self.keepers.len()).filter(|other| *other != at).for_each(|other| self.cuts(other, at, long));
            }
        }
        self.take(at)
    }

    fn cuts(&mut self, from: usize, to: usize, long: u64) {
        self.cut.insert((from, to));
        self.later(long, Event::CutEnds { from, to });
    }

    fn cuts_both(&mut self, one: usize, other: usize, long: u64) {
        self.cuts(one, other, long);
        self.cuts(other, one, long);
    }

    /// All links between these.
    fn slows(&mut self, between: &[usize], late: Late, long: u64) {
        for (from, to) in between.iter().flat_map(|from| between.iter().map(move |to| (*from, *to))) {
            self.slow.insert((from, to), late);
            self.later(long, Event::SlowEnds { from, to });
        }
    }

    /// Takes what a keeper wants done.
    fn take(&mut self, at: usize) -> Result<(), Broken> {
        let Some(core) = &mut self.keepers[at].core else { return Ok(()) };
        for output in core.take_outputs() {
            match output {
                Output::Write { number, vote, entries } => {
                    let delay =
                        if self.random.one_in(30) { self.random.below(300 * MS) } else { self.random.below(2 * MS) };
                    let life = self.keepers[at].life;
                    self.keepers[at].disk.writing.push((number, vote, entries));
                    self.later(delay, Event::Synced { at, life, number });
                }
                Output::Send { to, message } => self.sends(at, to, message)?,
                Output::Committed(entries) => self.committed(at, &entries)?,
                Output::Turned(role) => self.turned(at, role)?,
                Output::Lacks { leader } => return Err(format!("{leader:?} let go of what {at} lacks")),
            }
        }
        self.acknowledge(at)
    }

    fn sends(&mut self, at: usize, to: KeeperId, message: Message) -> Result<(), Broken> {
        let disk = &self.keepers[at].disk;
        if let Some(voted_for) = message.votes_for() {
            let vote = Vote { term: message.term(), voted_for: Some(voted_for) };
            // It may have gone on to another term since, with the same sync.
            if disk.votes.vote() != vote && disk.votes.vote().term <= vote.term {
                return Err(format!("keeper {} sends {vote:?} and has {:?} on its disk", at + 1, disk.votes.vote()));
            }
            let first = *self.votes.entry((at, vote.term)).or_insert(voted_for.0);
            if first != voted_for.0 {
                return Err(format!(
                    "K6: keeper {} votes for {} and for {first} in term {}",
                    at + 1,
                    voted_for.0,
                    vote.term
                ));
            }
        }
        // What it said in an earlier term it had when it went on to this one, and may have been cut off since, with the same sync.
        if let Some(index) = message.acknowledges()
            && message.term() >= disk.votes.vote().term
            && index > disk.before(u64::MAX).index
        {
            return Err(format!("keeper {} acknowledges {index}, which is not durable", at + 1));
        }
        for entry in message.entries() {
            let mut hasher = DefaultHasher::new();
            entry.group.hash(&mut hasher);
            let hash = hasher.finish();
            if *self.sent.entry((entry.index, entry.term)).or_insert(hash) != hash {
                return Err(format!("K2: two entries {} of term {}", entry.index, entry.term));
            }
        }
        let to = to.0 as usize - 1;
        if self.cut.contains(&(at, to)) || self.random.one_in(50) && !self.calm {
            return Ok(());
        }
        let late = self.slow.get(&(at, to)).copied();
        let of_election = format!("{message:?}").contains("Vote");
        for _ in 0..1 + u64::from(self.random.one_in(60)) {
            let delay = match self.random.below(20) {
                _ if late == Some(Late::All) => self.random.below(700 * MS),
                _ if late == Some(Late::Elections) && of_election && self.random.one_in(2) => {
                    self.random.below(700 * MS)
                }
                0 if !self.calm => self.random.below(60 * MS),
                _ => 30_000 + self.random.below(MS),
            };
            self.later(delay, Event::Arrives { to, message: message.clone() });
        }
        Ok(())
    }

    fn turned(&mut self, at: usize, role: Role) -> Result<(), Broken> {
        if let Role::Leads { term } = role {
            let first = *self.leaders.entry(term).or_insert(at);
            // Alone, it is elected again in each life.
            if first != at {
                return Err(format!("K1: keepers {} and {} lead in term {term}", first + 1, at + 1));
            }
        }
        Ok(())
    }

    fn committed(&mut self, at: usize, entries: &[Entry]) -> Result<(), Broken> {
        for entry in entries {
            let told = &mut self.keepers[at].told;
            if entry.index != *told + 1 {
                return Err(format!("keeper {} is told of {} after {told}", at + 1, entry.index));
            }
            *told = entry.index;
            self.record(entry)?;
            if !self.keepers[at].disk.has(entry) {
                return Err(format!("keeper {} is told of {} and does not have it", at + 1, entry.index));
            }
        }
        Ok(())
    }

    fn record(&mut self, entry: &Entry) -> Result<(), Broken> {
        let first = self.ledger.entry(entry.index).or_insert_with(|| entry.clone());
        if first != entry {
            return Err(format!("K3: entry {} was of term {} and is of term {}", entry.index, first.term, entry.term));
        }
        let computed = entry.group.first_chunk::<8>().map(|term| u64::from_le_bytes(*term));
        if computed.is_some_and(|computed| computed != entry.term) {
            return Err(format!(
                "entry {} was computed in term {computed:?} and is of term {}",
                entry.index, entry.term
            ));
        }
        Ok(())
    }

    /// What a leader proposed and knows to be committed it acknowledges.
    fn acknowledge(&mut self, at: usize) -> Result<(), Broken> {
        let Some(core) = &self.keepers[at].core else { return Ok(()) };
        let (committed, role) = (core.committed(), core.role());
        let mut proposed = std::mem::take(&mut self.keepers[at].proposed);
        proposed.retain(|entry| role == Role::Leads { term: entry.term });
        let known = proposed.partition_point(|entry| entry.index <= committed);
        self.keepers[at].proposed = proposed.split_off(known);
        for entry in proposed {
            self.acknowledged = self.acknowledged.max(entry.index);
            self.done.0 += 1;
            self.record(&entry)?;
            let had = self.keepers.iter().filter(|keeper| keeper.disk.has(&entry) || keeper.rotted.contains(&entry));
            let had = had.count();
            if 2 * had <= self.keepers.len() {
                return Err(format!("K7: entry {} is acknowledged, and was durable at {had} keepers", entry.index));
            }
        }
        Ok(())
    }

    /// At each instant at most one may answer questions, and who does knows everything that was acknowledged.
    fn look(&mut self) -> Result<(), Broken> {
        let mut holder = None;
        for at in 0..self.keepers.len() {
            let now = self.clock(at);
            let Some(core) = self.keepers[at].core.as_ref().filter(|core| core.has_lease(now)) else { continue };
            if let Some(other) = holder.replace(at) {
                return Err(format!("K5: keepers {} and {} have a lease", other + 1, at + 1));
            }
            if core.committed() < self.acknowledged {
                let text = format!("K7: keeper {} answers with {} of {}", at + 1, core.committed(), self.acknowledged);
                return Err(text);
            }
            self.done.1 += 1;
        }
        Ok(())
    }
}
