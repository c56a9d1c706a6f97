//! Which call is remembered in which slot: slots are used in a circle, so the newest calls are, and what they take is bounded.

use std::collections::BTreeMap;

/// The names of calls in slots that are used in a circle.
#[derive(Debug)]
pub struct Slots<N> {
    /// How many there are.
    count: usize,
    of: BTreeMap<N, usize>,
    /// The name in each slot that was used; none if it was found empty when the store was opened.
    names: Vec<Option<N>>,
    /// Calls ever remembered; the next goes to this number modulo the slots.
    order: u64,
}

impl<N: Copy + Ord> Slots<N> {
    /// So many slots, all free.
    pub fn new(count: usize) -> Slots<N> {
        Slots { count, of: BTreeMap::new(), names: Vec::new(), order: 0 }
    }

    /// Slots that are used as these calls say, each with its number in the order of all that were ever remembered.
    pub fn load(count: usize, mut calls: Vec<(u64, N)>) -> Slots<N> {
        calls.sort_unstable();
        let mut slots = Slots::new(count);
        for (order, name) in calls {
            slots.order = order;
            slots.remember(name);
        }
        slots
    }

    /// The slot with the answer to this call.
    pub fn find(&self, name: &N) -> Option<usize> {
        self.of.get(name).copied()
    }

    /// The slot for the next answer, and its number in order.
    pub fn next(&self) -> (usize, u64) {
        ((self.order % self.count as u64) as usize, self.order)
    }

    /// The call whose answer is forgotten for the next one.
    pub fn forgets(&self) -> Option<N> {
        let (slot, _) = self.next();
        let old = (*self.names.get(slot)?)?;
        (self.of.get(&old) == Some(&slot)).then_some(old)
    }

    /// The answer to the call is in the slot that `next` gave.
    pub fn remember(&mut self, name: N) {
        let (slot, _) = self.next();
        if self.names.len() <= slot {
            self.names.resize(slot + 1, None);
        }
        if let Some(old) = self.names[slot].replace(name)
            && self.of.get(&old) == Some(&slot)
        {
            self.of.remove(&old);
        }
        self.of.insert(name, slot);
        self.order = self.order.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::Slots;

    /// The newest calls are remembered and no others, and the same after they were loaded.
    #[test]
    fn newest() {
        let mut slots = Slots::new(3);
        for call in 10..15 {
            let (slot, order) = slots.next();
            assert_eq!((slot, order), ((call as usize - 10) % 3, call - 10));
            slots.remember(call);
        }
        let found = |slots: &Slots<u64>| (10..16).map(|call| slots.find(&call)).collect::<Vec<_>>();
        let expected = [None, None, Some(2), Some(0), Some(1), None];
        assert_eq!(found(&slots), expected);
        assert_eq!(slots.forgets(), Some(12));
        let loaded = Slots::load(3, vec![(4, 14), (2, 12), (3, 13)]);
        assert_eq!((found(&loaded), loaded.next()), (expected.to_vec(), (2, 5)));
        let mut few = Slots::load(3, vec![(4, 14)]);
        assert_eq!(few.forgets(), None);
        few.remember(15);
        assert_eq!((few.find(&14), few.find(&15), few.next()), (Some(1), Some(2), (0, 6)));
    }
}
