//! All chunks in the order of their ids, packed: 48 bytes for a chunk and 16 for each run, and next to nothing around them.
//!
//! Leaves of up to 64 KiB hold neighbouring chunks, one behind the other, and their runs, in the same order. What comes between
//! moves what is behind it, some 24 KiB or two microseconds, little beside what a record costs. A leaf's memory grows by less
//! than a hundredth at a time, not to twice its size; no chunk has memory of its own.

use super::Run;
use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, Range};

/// A leaf of so many bytes is cut in two before anything is added to it. Smaller ones have more slack around them, in larger
/// ones more has to be moved.
const LEAF_MAX: usize = 64 << 10;

/// A chunk as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk<'a> {
    pub owner: Owner,
    pub generation: Generation,
    pub length: u32,
    /// Of all bytes; kept up to date only when sealed.
    pub crc: u32,
    pub sealed: bool,
    /// In the order of their offsets; released ones are missing.
    pub runs: &'a [Run],
}

/// What is kept of a chunk, but for its runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    id: ChunkId,
    pub generation: Generation,
    pub length: u32,
    pub crc: u32,
    owner_number: u64,
    /// Where the runs begin among those of the leaf; they end where the next chunk's begin.
    first_run: u32,
    /// `Owner::kind`.
    owner_kind: u8,
    pub sealed: bool,
}
const _: () = assert!(size_of::<Fields>() == 48 && size_of::<Run>() == 16);

impl Fields {
    /// Those of an open chunk of no bytes.
    pub fn new(id: ChunkId, owner: Owner, generation: Generation) -> Fields {
        let (owner_kind, owner_number) = (owner.kind(), owner.number());
        Fields { id, generation, length: 0, crc: 0, owner_number, first_run: 0, owner_kind, sealed: false }
    }

    /// Whom the chunk belongs to.
    pub fn owner(&self) -> Owner {
        // The kind came from an owner, so there is one; a group is what it would be if there were none.
        Owner::new(self.owner_kind, self.owner_number).unwrap_or(Owner::Group(GroupId(self.owner_number)))
    }
}

/// Chunks next to each other, in the order of their ids, and their runs in the same order.
#[derive(Debug, Default)]
struct Leaf {
    fields: Vec<Fields>,
    runs: Vec<Run>,
}

/// All chunks.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    /// Each by an id that is not above any in it, and above all in the one before.
    leaves: BTreeMap<ChunkId, Leaf>,
    count: usize,
    runs: u64,
    /// The bags that have chunks.
    of_bags: BTreeMap<BagId, OfBag>,
}

/// Where the chunks of a bag are: their ids are in no order of bags, and a list of them all would be half as large as what is kept of them.
#[derive(Debug, Default)]
struct OfBag {
    count: u64,
    /// How many are in each leaf, by its bound, of those that have any.
    leaves: BTreeMap<ChunkId, u32>,
}

impl Chunks {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// How many of them are of this bag.
    pub fn of_bag(&self, bag: BagId) -> u64 {
        self.of_bags.get(&bag).map_or(0, |of_bag| of_bag.count)
    }

    /// Those of a bag, in the order of their ids. Looks at the leaves that hold some, at most `LEAF_MAX` bytes each.
    pub fn in_bag(&self, bag: BagId) -> impl Iterator<Item = (ChunkId, Chunk<'_>)> {
        let bounds = self.of_bags.get(&bag).into_iter().flat_map(|of_bag| of_bag.leaves.keys());
        let leaves = bounds.filter_map(|bound| self.leaves.get(bound));
        leaves.flat_map(move |leaf| {
            let of_bag = leaf.fields.iter().enumerate().filter(move |(_, fields)| fields.owner() == Owner::Bag(bag));
            of_bag.map(|(place, fields)| (fields.id, leaf.chunk(place)))
        })
    }

    /// The bags that have chunks.
    pub fn bags(&self) -> impl Iterator<Item = BagId> {
        self.of_bags.keys().copied()
    }

    /// The runs of all.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Whether it is there.
    pub fn contains_key(&self, id: &ChunkId) -> bool {
        self.find(*id).is_some()
    }

    /// The chunk, if it is there.
    pub fn get(&self, id: &ChunkId) -> Option<Chunk<'_>> {
        let (leaf, place) = self.find(*id)?;
        Some(leaf.chunk(place))
    }

    /// All, in the order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (ChunkId, Chunk<'_>)> {
        self.after(None)
    }

    /// Those with ids above this one, in order.
    pub fn after(&self, after: Option<ChunkId>) -> impl Iterator<Item = (ChunkId, Chunk<'_>)> {
        let first = after.and_then(|id| self.leaves.range(..=id).next_back()).map(|(bound, _)| *bound);
        let leaves = self.leaves.range((first.map_or(Bound::Unbounded, Bound::Included), Bound::Unbounded));
        leaves.flat_map(move |(_, leaf)| {
            let from = leaf.fields.partition_point(|fields| after.is_some_and(|after| fields.id <= after));
            (from..leaf.fields.len()).map(|place| (leaf.fields[place].id, leaf.chunk(place)))
        })
    }

    /// A chunk's fields, to be changed.
    pub fn get_mut(&mut self, id: ChunkId) -> Option<&mut Fields> {
        let (_, leaf) = self.leaves.range_mut(..=id).next_back()?;
        let place = leaf.place(id).ok()?;
        Some(&mut leaf.fields[place])
    }

    /// Adds a chunk, which is not there.
    pub fn insert(&mut self, mut fields: Fields, runs: &[Run]) {
        let bound = self.bound_with_room(fields.id);
        if let Owner::Bag(bag) = fields.owner() {
            let of_bag = self.of_bags.entry(bag).or_default();
            of_bag.count += 1;
            *of_bag.leaves.entry(bound).or_default() += 1;
        }
        let leaf = self.leaves.entry(bound).or_default();
        let Err(place) = leaf.place(fields.id) else { unreachable!("a chunk is made twice") };
        let at = leaf.first_run(place);
        fields.first_run = at as u32;
        reserve(&mut leaf.fields, 1);
        leaf.fields.insert(place, fields);
        leaf.insert_runs(place, at, runs);
        self.count += 1;
        self.runs += runs.len() as u64;
    }

    /// Adds a run behind those of a chunk, if that is there.
    pub fn push_run(&mut self, id: ChunkId, run: Run) {
        let bound = self.bound_with_room(id);
        let leaf = self.leaves.entry(bound).or_default();
        let Ok(place) = leaf.place(id) else { return };
        let at = leaf.runs_of(place).end;
        leaf.insert_runs(place, at, &[run]);
        self.runs += 1;
    }

    /// Takes out runs of a chunk.
    pub fn take_runs(&mut self, id: ChunkId, which: impl Fn(&Run) -> bool) -> Vec<Run> {
        let Some((_, leaf)) = self.leaves.range_mut(..=id).next_back() else { return Vec::new() };
        let Ok(place) = leaf.place(id) else { return Vec::new() };
        let taken: Vec<Run> = leaf.runs.extract_if(leaf.runs_of(place), |run| which(run)).collect();
        for later in &mut leaf.fields[place + 1..] {
            later.first_run -= taken.len() as u32;
        }
        shrink(&mut leaf.runs);
        self.runs -= taken.len() as u64;
        taken
    }

    /// Takes out a chunk: its fields and its runs.
    pub fn remove(&mut self, id: ChunkId) -> Option<(Fields, Vec<Run>)> {
        self.find(id)?;
        let runs = self.take_runs(id, |_| true);
        let (bound, leaf) = self.leaves.range_mut(..=id).next_back()?;
        let bound = *bound;
        let fields = leaf.fields.remove(leaf.place(id).ok()?);
        shrink(&mut leaf.fields);
        self.count -= 1;
        if let Owner::Bag(bag) = fields.owner()
            && let Some(of_bag) = self.of_bags.get_mut(&bag)
        {
            of_bag.count -= 1;
            of_bag.take(bound, 1);
            if of_bag.count == 0 {
                self.of_bags.remove(&bag);
            }
        }
        self.join_if_small(bound);
        Some((fields, runs))
    }

    fn find(&self, id: ChunkId) -> Option<(&Leaf, usize)> {
        let (_, leaf) = self.leaves.range(..=id).next_back()?;
        Some((leaf, leaf.place(id).ok()?))
    }

    /// The bound of the leaf where this id belongs, which is cut in two before if it is full.
    fn bound_with_room(&mut self, id: ChunkId) -> ChunkId {
        let mut bound = self.leaves.range(..=id).next_back().map_or(ChunkId(0), |(bound, _)| *bound);
        let leaf = self.leaves.entry(bound).or_default();
        if leaf.bytes() >= LEAF_MAX
            && let Some((first, rest)) = leaf.cut(id)
        {
            self.note_moved(&rest, bound, first);
            self.leaves.insert(first, rest);
            if first <= id {
                bound = first;
            }
        }
        bound
    }

    /// Chunks of bags went from one leaf to another.
    fn note_moved(&mut self, moved: &Leaf, from: ChunkId, to: ChunkId) {
        let mut counts: BTreeMap<BagId, u32> = BTreeMap::new();
        for fields in &moved.fields {
            if let Owner::Bag(bag) = fields.owner() {
                *counts.entry(bag).or_default() += 1;
            }
        }
        for (bag, count) in counts {
            if let Some(of_bag) = self.of_bags.get_mut(&bag) {
                of_bag.take(from, count);
                *of_bag.leaves.entry(to).or_default() += count;
            }
        }
    }

    /// A leaf that became small is joined with the one behind it or the one before, if that is small, too.
    fn join_if_small(&mut self, bound: ChunkId) {
        let Some(leaf) = self.leaves.get(&bound) else { return };
        if leaf.fields.is_empty() {
            self.leaves.remove(&bound);
            return;
        }
        if leaf.bytes() > LEAF_MAX / 2 || self.join_next(bound) {
            return;
        }
        if let Some(before) = self.leaves.range(..bound).next_back().map(|(before, _)| *before) {
            self.join_next(before);
        }
    }

    /// Puts what follows a leaf behind it. False: it is too much, or nothing.
    fn join_next(&mut self, bound: ChunkId) -> bool {
        let mut both = self.leaves.range(bound..);
        let (Some((_, leaf)), Some((next, following))) = (both.next(), both.next()) else { return false };
        if leaf.bytes() + following.bytes() > LEAF_MAX / 4 * 3 {
            return false;
        }
        let next = *next;
        if let Some(following) = self.leaves.remove(&next) {
            self.note_moved(&following, next, bound);
            if let Some(leaf) = self.leaves.get_mut(&bound) {
                leaf.append(&following);
            }
        }
        true
    }
}

impl OfBag {
    fn take(&mut self, bound: ChunkId, count: u32) {
        if let Entry::Occupied(mut of_leaf) = self.leaves.entry(bound) {
            *of_leaf.get_mut() -= count;
            if *of_leaf.get() == 0 {
                of_leaf.remove();
            }
        }
    }
}

impl Leaf {
    fn bytes(&self) -> usize {
        self.fields.len() * size_of::<Fields>() + self.runs.len() * size_of::<Run>()
    }

    /// Where the chunk is, or where it belongs.
    fn place(&self, id: ChunkId) -> Result<usize, usize> {
        self.fields.binary_search_by_key(&id, |fields| fields.id)
    }

    /// Where the runs of the chunk at this place begin, or would begin.
    fn first_run(&self, place: usize) -> usize {
        self.fields.get(place).map_or(self.runs.len(), |fields| fields.first_run as usize)
    }

    fn runs_of(&self, place: usize) -> Range<usize> {
        self.first_run(place)..self.first_run(place + 1)
    }

    fn chunk(&self, place: usize) -> Chunk<'_> {
        let fields = &self.fields[place];
        let Fields { generation, length, crc, sealed, .. } = *fields;
        Chunk { owner: fields.owner(), generation, length, crc, sealed, runs: &self.runs[self.runs_of(place)] }
    }

    /// Adds runs of the chunk at `place`, before the run at `at`.
    fn insert_runs(&mut self, place: usize, at: usize, runs: &[Run]) {
        reserve(&mut self.runs, runs.len());
        self.runs.splice(at..at, runs.iter().copied());
        for later in &mut self.fields[place + 1..] {
            later.first_run += runs.len() as u32;
        }
    }

    /// Takes the upper half out, with a bound for it. Behind the last chunk nothing is taken: ids that rise fill leaf after
    /// leaf. `None` if it is one chunk.
    fn cut(&mut self, id: ChunkId) -> Option<(ChunkId, Leaf)> {
        if self.fields.last()?.id < id {
            return Some((id, Leaf::default()));
        }
        let last = self.fields.len().checked_sub(1).filter(|last| *last > 0)?;
        let half = self.bytes() / 2;
        let below = |place: &usize| place * size_of::<Fields>() + self.first_run(*place) * size_of::<Run>();
        let place = (1..last).find(|place| below(place) >= half).unwrap_or(last);
        let first_run = self.first_run(place);
        let mut upper = Leaf { fields: self.fields[place..].to_vec(), runs: self.runs[first_run..].to_vec() };
        for fields in &mut upper.fields {
            fields.first_run -= first_run as u32;
        }
        self.fields.truncate(place);
        self.runs.truncate(first_run);
        shrink(&mut self.fields);
        shrink(&mut self.runs);
        Some((upper.fields.first()?.id, upper))
    }

    fn append(&mut self, next: &Leaf) {
        let before = self.runs.len() as u32;
        reserve(&mut self.fields, next.fields.len());
        reserve(&mut self.runs, next.runs.len());
        let moved = next.fields.iter().map(|fields| Fields { first_run: fields.first_run + before, ..*fields });
        self.fields.extend(moved);
        self.runs.extend_from_slice(&next.runs);
    }
}

/// A little room for what is added soon: less than a hundredth.
fn slack<T>(vec: &[T]) -> usize {
    vec.len() / 128 + 2
}

fn reserve<T>(vec: &mut Vec<T>, count: usize) {
    if vec.capacity() - vec.len() < count {
        vec.reserve_exact(count + slack(vec));
    }
}

fn shrink<T>(vec: &mut Vec<T>) {
    if vec.capacity() - vec.len() > slack(vec) {
        vec.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::{Chunks, Fields, LEAF_MAX};
    use crate::index::Run;
    use base::env::Random;
    use base::id::{BagId, ChunkId, Generation, GroupId, Owner};
    use sim::random::SimRandom;
    use std::collections::BTreeMap;

    /// What a plain map holds.
    type Model = BTreeMap<ChunkId, (Owner, u32, Vec<Run>)>;

    fn assert_same(chunks: &Chunks, model: &Model, seed: u64) {
        let found: Vec<_> =
            chunks.iter().map(|(id, chunk)| (id, (chunk.owner, chunk.length, chunk.runs.to_vec()))).collect();
        let known: Vec<_> = model.iter().map(|(id, chunk)| (*id, chunk.clone())).collect();
        assert!(found == known, "seed {seed}: the chunks differ from those of the model");
        for bag in [BagId(7), BagId(8), BagId(9)] {
            let of_bag: Vec<ChunkId> =
                model.iter().filter(|(_, (owner, ..))| *owner == Owner::Bag(bag)).map(|(id, _)| *id).collect();
            assert_eq!(chunks.of_bag(bag), of_bag.len() as u64, "seed {seed}");
            assert!(chunks.in_bag(bag).map(|(id, _)| id).eq(of_bag.iter().copied()), "seed {seed}: chunks of {bag}");
            assert_eq!(chunks.bags().any(|other| other == bag), !of_bag.is_empty(), "seed {seed}");
            let leaves = chunks.of_bags.get(&bag).map_or(0, |of_bag| of_bag.leaves.len());
            let held = chunks.leaves.values().filter(|leaf| leaf.fields.iter().any(|f| f.owner() == Owner::Bag(bag)));
            assert_eq!(leaves, held.count(), "seed {seed}: leaves that hold none of {bag} are looked at");
        }
        let runs: usize = model.values().map(|(_, _, runs)| runs.len()).sum();
        assert_eq!((chunks.len(), chunks.runs()), (model.len(), runs as u64), "seed {seed}");
    }

    /// Whatever comes and goes in whatever order, the packed chunks hold what a plain map holds, and no leaf grows beyond what one
    /// chunk needs.
    #[test]
    fn like_a_map() {
        for seed in 0..24 {
            let random = SimRandom::new(seed);
            let (mut chunks, mut model) = (Chunks::default(), Model::new());
            let (spread, runs_max) = ([40, 3000, 1 << 40][seed as usize % 3], [3, 200, 20][seed as usize / 3 % 3]);
            for step in 0..6000u32 {
                let id = ChunkId(u128::from(random.below(spread)) << 70);
                // First more comes than goes, later more goes.
                let growing = step < 4000;
                match random.below(10) {
                    0..=3 if growing && !model.contains_key(&id) => {
                        let owner = match step % 4 {
                            0 | 2 => Owner::Bag(BagId(9)),
                            1 if step % 100 == 1 => Owner::Bag(BagId(7)),
                            _ => Owner::Group(GroupId(8)),
                        };
                        let runs: Vec<Run> = (0..random.below(3) as u32).map(|place| run(place, step)).collect();
                        chunks.insert(Fields::new(id, owner, Generation(1)), &runs);
                        model.insert(id, (owner, 0, runs));
                    }
                    0..=6 => {
                        let Some((known, (_, length, runs))) = model.range_mut(id..).next() else { continue };
                        for _ in 0..random.below(runs_max) {
                            let run = run(runs.len() as u32, step);
                            chunks.push_run(*known, run);
                            runs.push(run);
                        }
                        *length = step;
                        chunks.get_mut(*known).expect("the chunk of the model").length = step;
                    }
                    7 => {
                        let Some((known, (_, _, runs))) = model.range_mut(id..).next() else { continue };
                        let odd = |run: &Run| run.segment % 2 == 1;
                        let taken: Vec<Run> = runs.extract_if(.., |run| odd(run)).collect();
                        assert_eq!(chunks.take_runs(*known, odd), taken, "seed {seed}");
                    }
                    _ => {
                        let known = model.range(id..).next().map_or(id, |(known, _)| *known);
                        let removed = model.remove(&known);
                        let found = chunks.remove(known).map(|(fields, runs)| (fields.owner(), fields.length, runs));
                        assert_eq!(found, removed, "seed {seed}");
                    }
                }
                let next = model.range((std::ops::Bound::Excluded(id), std::ops::Bound::Unbounded)).next();
                assert_eq!(chunks.after(Some(id)).next().map(|(id, _)| id), next.map(|(id, _)| *id), "seed {seed}");
                assert_eq!(chunks.contains_key(&id), model.contains_key(&id), "seed {seed}");
                if step % 500 == 0 {
                    assert_same(&chunks, &model, seed);
                }
            }
            assert_same(&chunks, &model, seed);
            for leaf in chunks.leaves.values() {
                let large =
                    leaf.fields.iter().enumerate().any(|(place, _)| leaf.runs_of(place).len() * 16 > LEAF_MAX / 2);
                assert!(large || leaf.bytes() < LEAF_MAX + 4096, "seed {seed}: a leaf of {} bytes", leaf.bytes());
            }
        }
    }

    fn run(place: u32, step: u32) -> Run {
        Run::new(place << 10, (step, 7 * place), 1 << 10, 0)
    }
}
