//! What must hold after a crash, by a model: random requests, several under way at once, kill or power loss, recovery.

use crate::world::{World, append, append_cell, bytes, newest_checkpoint, restless, restored, small, stands_for};
use base::checksum::{combine, crc32c};
use base::disk::Caching;
use base::env::Random;
use base::error::ErrorKind;
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use base::limit::BLOCK;
use base::policy::Level;
use base::unit::MIB;
use chunk::{Check, Reply, Request, Settings};
use sim::disk::SimDevice;
use sim::random::SimRandom;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Known {
    owner: Owner,
    /// All bytes handed in.
    bytes: Vec<u8>,
    /// Where appends ended, and the checksum of what is stored of all bytes up to there.
    ends: Vec<(usize, u32)>,
    /// Acknowledged lengths by level.
    written: usize,
    synced: usize,
    sealing: bool,
    sealed: bool,
    /// An append was acknowledged at all: `written` or `synced` may be 0 for one of no bytes.
    deleting: bool,
    deleted: bool,
    under_way: usize,
}

#[derive(Debug)]
enum Asked {
    Append(ChunkId, usize, Level, bool),
    Seal(ChunkId),
    Fence(ChunkId),
    Delete(Vec<ChunkId>),
    Acknowledge(ChunkId),
    Read(ChunkId, usize, usize),
}

pub struct Model {
    seed: u64,
    random: SimRandom,
    known: BTreeMap<ChunkId, Known>,
    asked: BTreeMap<u64, Asked>,
    acknowledged: u64,
    acknowledging: u64,
    next: u128,
}

const BAG: BagId = BagId(3);

impl Model {
    pub fn new(seed: u64) -> Model {
        let random = SimRandom::new(seed);
        Model {
            seed,
            random,
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
            acknowledged: 0,
            acknowledging: 0,
            next: 1,
        }
    }

    fn pick(&self, wanted: impl Fn(&Known) -> bool) -> Option<ChunkId> {
        let fitting: Vec<ChunkId> = self.known.iter().filter(|(_, known)| wanted(known)).map(|(id, _)| *id).collect();
        (!fitting.is_empty()).then(|| fitting[self.random.below(fitting.len() as u64) as usize])
    }

    fn level(&self) -> Level {
        [Level::Received, Level::Written, Level::Synced, Level::Synced][self.random.below(4) as usize]
    }

    pub fn act(&mut self, world: &mut World) {
        match self.random.below(12) {
            0..=2 => self.create(world),
            3..=6 => self.grow(world),
            7 => {
                if let Some(id) = self.pick(|known| !known.sealing && known.under_way == 0 && !known.deleting) {
                    let known = self.known.get_mut(&id).expect("picked");
                    known.sealing = true;
                    let (length, generation) = (known.bytes.len() as u64, Generation(9));
                    let tag = world.submit(if self.random.one_in(4) {
                        known.sealing = false;
                        self.asked.insert(u64::MAX, Asked::Fence(id));
                        Request::Fence { chunk: id, generation: Generation(1) }
                    } else {
                        Request::Seal { chunk: id, generation, length }
                    });
                    let asked = self.asked.remove(&u64::MAX).unwrap_or(Asked::Seal(id));
                    self.asked.insert(tag, asked);
                }
            }
            8 => {
                if let Some(id) = self.pick(|known| known.under_way == 0 && !known.deleting) {
                    self.known.get_mut(&id).expect("picked").deleting = true;
                    let tag = world.submit(Request::Delete { chunks: vec![id, ChunkId(u128::MAX)] });
                    self.asked.insert(tag, Asked::Delete(vec![id]));
                }
            }
            9 => {
                let mine = Owner::Bag(BAG);
                if let Some(id) = self.pick(|known| known.sealed && known.owner == mine && !known.deleting) {
                    self.known.get_mut(&id).expect("picked").deleting = true;
                    let tag =
                        world.submit(Request::Acknowledge { chunks: vec![(id, 7)], pass: 0, retain: false, by: None });
                    self.acknowledging += 1;
                    self.asked.insert(tag, Asked::Acknowledge(id));
                }
            }
            _ => {
                // One whose first append waits for room may not be there.
                if let Some(id) = self.pick(|known| !known.deleting && known.written > 0) {
                    let length = self.known[&id].bytes.len() as u64;
                    let (offset, size) = (self.random.below(length + 1), self.random.below(2 * MIB));
                    let caching = Caching::Through;
                    let check = if self.random.one_in(2) { Check::Here } else { Check::ByReader };
                    let ranges = vec![(offset, size)];
                    let tag = world.submit(Request::Read { chunk: id, ranges, caching, check, cells: true });
                    self.asked.insert(tag, Asked::Read(id, offset as usize, size as usize));
                }
            }
        }
    }

    fn size(&self) -> usize {
        match self.random.below(8) {
            0 => 0,
            1..=3 => self.random.below(9000) as usize,
            4 => 4096 * self.random.below(20) as usize,
            5 => self.random.below(200_000) as usize,
            6 => MIB as usize,
            _ => self.random.below(3 * MIB) as usize,
        }
    }

    fn create(&mut self, world: &mut World) {
        let id = ChunkId(self.next);
        self.next += 1;
        let bag = self.random.one_in(2);
        let owner = if bag { Owner::Bag(BAG) } else { Owner::Group(GroupId(5)) };
        let known = Known {
            owner,
            bytes: Vec::new(),
            ends: vec![(0, 0)],
            written: 0,
            synced: 0,
            sealing: false,
            sealed: false,
            deleting: false,
            deleted: false,
            under_way: 0,
        };
        self.known.insert(id, known);
        self.append_to(world, id, bag);
    }

    fn grow(&mut self, world: &mut World) {
        let fits = |known: &Known| !known.sealing && !known.deleting && known.bytes.len() < 4 << 20;
        if let Some(id) = self.pick(fits) {
            let seal = self.random.one_in(8);
            self.append_to(world, id, seal);
        }
    }

    fn append_to(&mut self, world: &mut World, id: ChunkId, seal: bool) {
        let (size, level) = (self.size(), self.level());
        let payload = bytes(&self.random, size);
        // Some bytes of files stand for more than they are.
        let most = (MIB as usize - size.min(MIB as usize)) / BLOCK;
        let blocks = if size > 0 && self.random.one_in(2) {
            size / BLOCK + 1 + self.random.below(most as u64 + 1) as usize
        } else {
            0
        };
        let known = self.known.get_mut(&id).expect("known");
        let is_cell = matches!(known.owner, Owner::Group(_)) && blocks > 0 && blocks * BLOCK <= MIB as usize;
        let offset = known.bytes.len();
        if is_cell {
            known.bytes.extend(stands_for(&payload, blocks * BLOCK));
        } else {
            known.bytes.extend_from_slice(&payload);
        }
        let before = known.ends.last().expect("the first").1;
        let crc = combine(before, crc32c(&payload), size as u64);
        known.ends.push((known.bytes.len(), crc));
        known.sealing |= seal;
        known.under_way += 1;
        let end = known.bytes.len();
        let mut request = append(known.owner, id, offset as u64, &payload, level, seal);
        if is_cell {
            request = append_cell(id, (offset as u64, blocks * BLOCK), &payload, request);
        }
        let tag = world.submit(request);
        self.asked.insert(tag, Asked::Append(id, end, level, seal));
    }

    /// Takes the answers that came.
    pub fn hear(&mut self, world: &mut World) {
        for (tag, result) in std::mem::take(&mut world.replies) {
            let seed = self.seed;
            let asked = self.asked.remove(&tag).unwrap_or_else(|| panic!("seed {seed}: {tag} answered twice"));
            let reply = match (&asked, result) {
                (_, Ok(reply)) => reply,
                // The chunk was deleted in the meantime.
                (Asked::Read(id, ..), Err(error)) if error.kind() == ErrorKind::NotFound && self.known[id].deleting => {
                    continue;
                }
                (asked, Err(error)) => panic!("seed {seed}: {error} in answer to {asked:?}"),
            };
            match (asked, reply) {
                (Asked::Append(id, end, level, seal), Reply::Appended { length }) => {
                    assert!(length >= end as u64, "seed {seed}: {id} answered with {length}, not {end}");
                    let known = self.known.get_mut(&id).expect("known");
                    known.under_way -= 1;
                    known.written = known.written.max(if level >= Level::Written { end } else { 0 });
                    known.synced = known.synced.max(if level == Level::Synced { end } else { 0 });
                    known.sealed |= seal && level == Level::Synced;
                }
                (Asked::Seal(id), Reply::Sealed { length, crc }) => {
                    let known = self.known.get_mut(&id).expect("known");
                    assert_eq!(
                        (length, crc),
                        (known.bytes.len() as u64, known.ends.last().expect("the first").1),
                        "seed {seed}"
                    );
                    (known.sealed, known.written, known.synced) = (true, known.bytes.len(), known.bytes.len());
                }
                (Asked::Fence(id), Reply::Length(length)) => {
                    let known = self.known.get_mut(&id).expect("known");
                    known.written = known.written.max(length as usize);
                    known.synced = known.synced.max(length as usize);
                }
                (Asked::Delete(ids), Reply::Done) => {
                    ids.iter().for_each(|id| self.known.get_mut(id).expect("known").deleted = true);
                }
                (Asked::Acknowledge(id), Reply::Acknowledged { results }) => {
                    assert_eq!(results, vec![Ok(())], "seed {seed}");
                    self.known.get_mut(&id).expect("known").deleted = true;
                    self.acknowledged += 1;
                }
                (Asked::Read(id, offset, size), Reply::Data { parts, crc, cells, .. }) => {
                    let answer = parts.concat();
                    let got = restored(&answer, &cells, (offset as u64, size as u64));
                    let all = &self.known[&id].bytes;
                    // Appends that wait for room are not there yet: what is there must be right.
                    let want = &all[offset.min(all.len())..(offset + got.len()).min(all.len())];
                    assert!(got == want && got.len() <= size, "seed {seed}: wrong bytes of {id} at {offset}");
                    assert_eq!(crc, crc32c(&answer), "seed {seed}");
                }
                (_, reply) => panic!("seed {seed}: answered with {reply:?}"),
            }
        }
    }

    /// What must hold after a crash; then the model is what is there.
    pub fn check(&mut self, world: &mut World, power: bool) {
        self.asked.clear();
        let seed = self.seed;
        for (id, known) in std::mem::take(&mut self.known) {
            let stat = world.call(Request::Stat { chunk: id });
            let floor = if power { known.synced } else { known.written };
            let Ok(Reply::Stat(stat)) = stat else {
                let must = (floor > 0 || known.sealed) && !known.deleting;
                assert!(!must, "seed {seed}: {id} with {floor} acknowledged bytes is gone");
                continue;
            };
            assert!(!known.deleted, "seed {seed}: {id} is back");
            assert!(stat.length >= floor as u64, "seed {seed}: {id} lost bytes: {} of {floor}", stat.length);
            assert!(!known.sealed || stat.sealed, "seed {seed}: {id} is no longer sealed");
            assert!(!stat.sealed || known.sealing, "seed {seed}: {id} was never sealed");
            let bytes = world.read_all(id).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert_eq!(bytes.len() as u64, stat.length, "seed {seed}: {id}");
            assert!(known.bytes.starts_with(&bytes), "seed {seed}: {id} has wrong bytes");
            // Of bytes up to the end of an append it is known what is stored.
            let end = known.ends.iter().rev().find(|(end, _)| *end == bytes.len());
            assert!(end.is_none_or(|(_, crc)| *crc == stat.crc), "seed {seed}: {id}");
            let mut ends = known.ends.clone();
            ends.retain(|(end, _)| *end < bytes.len());
            ends.push((bytes.len(), stat.crc));
            if stat.sealed {
                assert_eq!(bytes.len(), known.bytes.len(), "seed {seed}: {id} sealed short");
            }
            let (length, sealed) = (bytes.len(), stat.sealed);
            let now = Known {
                bytes,
                ends,
                written: length,
                synced: length,
                sealing: sealed,
                sealed,
                deleting: false,
                under_way: 0,
                ..known
            };
            self.known.insert(id, now);
        }
        let counted = world.engine.bag_stat(BAG).acknowledged;
        assert!(counted >= self.acknowledged, "seed {seed}: {counted} counted of {} acknowledged", self.acknowledged);
        assert!(counted <= self.acknowledging, "seed {seed}: {counted} counted of {} asked for", self.acknowledging);
        (self.acknowledged, self.acknowledging) = (counted, counted);
    }
}

/// Runs `lives` processes of random length on one device.
fn live(seed: u64, lives: usize, settings: &Settings) -> u32 {
    let device = SimDevice::new(seed, Default::default());
    let mut model = Model::new(seed);
    let mut history = 0;
    for life in 0..lives {
        let (mut world, opened) = World::open(&device, settings).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(opened.rot, Vec::<String>::new(), "seed {seed} life {life}");
        if life > 0 {
            model.check(&mut world, seed.is_multiple_of(2));
        }
        for _ in 0..model.random.below(150) {
            model.act(&mut world);
            if model.random.one_in(3) {
                for _ in 0..model.random.below(20) {
                    world.turn();
                }
                model.hear(&mut world);
            }
            if model.random.one_in(60) {
                world.engine.want_checkpoint();
            }
        }
        if model.random.one_in(3) {
            world.settle();
            model.hear(&mut world);
        } else {
            // Answers that came before the crash count.
            world.effects();
            model.hear(&mut world);
        }
        history ^= world.history.rotate_left(life as u32);
        if seed.is_multiple_of(2) {
            device.crash()
        } else {
            device.kill()
        }
        if model.random.one_in(4)
            && let Some(newest) = newest_checkpoint(&device)
        {
            // The one before it must do. (A bit of the padding does nothing.)
            let block = BLOCK as u64 * model.random.below(2);
            device.rot(newest, block + 20 + model.random.below(80), 5);
        }
    }
    history
}

/// After a power loss (even seeds) or a kill (odd seeds) every byte acknowledged at its level is there and right, nothing that
/// was deleted or acknowledged is back, and what was not acknowledged is whole or absent.
#[test]
fn acknowledged_bytes_survive() {
    for seed in 0..14 {
        live(seed, 5, &small(96 * MIB));
    }
}

/// The same while checkpoints are always under way.
#[test]
fn checkpoints_all_the_time() {
    for seed in 100..106 {
        live(seed, 6, &restless(96 * MIB));
    }
}

/// The same seed gives the same history: every operation and every answer.
#[test]
fn one_seed_one_history() {
    for seed in [4, 5] {
        assert_eq!(live(seed, 3, &small(96 * MIB)), live(seed, 3, &small(96 * MIB)), "seed {seed}");
    }
}
