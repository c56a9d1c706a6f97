//! Which calls of one session are remembered, and in which slots their answers are: until the session says that it does not ask them
//! again, and not a call sooner.

use std::collections::{BTreeMap, BTreeSet};

/// The remembered calls of a session.
#[derive(Debug, Default)]
pub struct Calls {
    /// No change with a lower number is asked again.
    floor: u64,
    /// The slot of each remembered call, by its number.
    slots: BTreeMap<u64, u16>,
    /// Slots whose answers nobody asks for any more.
    free: BTreeSet<u16>,
    /// Slots from this one on were never used.
    fresh: u32,
    /// Calls ever remembered.
    order: u64,
}

impl Calls {
    /// The calls whose answers lie in these slots: slot, place in the order of all that were remembered, number, and the session's floor then. A call that
    /// is forgotten, because another one has its slot, is below the highest of these floors.
    pub fn load(found: impl IntoIterator<Item = (u16, u64, u64, u64)>) -> Calls {
        let (mut calls, mut highest) = (Calls::default(), 0);
        for (slot, order, call, floor) in found {
            highest = highest.max(floor);
            calls.fresh = calls.fresh.max(u32::from(slot) + 1);
            calls.order = calls.order.max(order.saturating_add(1));
            calls.slots.insert(call, slot);
        }
        let used: BTreeSet<u16> = calls.slots.values().copied().collect();
        calls.free = (0..calls.fresh).map(|slot| slot as u16).filter(|slot| !used.contains(slot)).collect();
        calls.pass(highest);
        calls
    }

    /// No change with a lower number is asked again, as far as the session said.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// No change with a lower number is asked again: what was answered to them is forgotten.
    pub fn pass(&mut self, floor: u64) {
        if floor <= self.floor {
            return;
        }
        self.floor = floor;
        let kept = self.slots.split_off(&floor);
        let passed = std::mem::replace(&mut self.slots, kept);
        self.free.extend(passed.into_values());
    }

    /// Whether the session has said that it does not ask this call again.
    pub fn is_passed(&self, call: u64) -> bool {
        call < self.floor
    }

    /// The slot with the answer to this call.
    pub fn find(&self, call: u64) -> Option<u16> {
        self.slots.get(&call).copied()
    }

    /// How many are remembered.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// The slot for the next answer, and its place in the order of all. None: there is no other slot.
    pub fn next(&self) -> Option<(u16, u64)> {
        let slot = self.free.first().copied().or_else(|| u16::try_from(self.fresh).ok())?;
        Some((slot, self.order))
    }

    /// The answer to the call is in the slot that `next` gave.
    pub fn remember(&mut self, call: u64) {
        let Some((slot, _)) = self.next() else { return };
        if !self.free.remove(&slot) {
            self.fresh += 1;
        }
        self.slots.insert(call, slot);
        self.order = self.order.saturating_add(1);
    }

    /// Forgets the oldest, for the fault of that name.
    pub fn forget_all_but(&mut self, newest: usize) {
        while self.slots.len() > newest
            && let Some((_, slot)) = self.slots.pop_first()
        {
            self.free.insert(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Calls;

    fn remember(calls: &mut Calls, call: u64) -> u16 {
        let (slot, _) = calls.next().expect("a slot");
        calls.remember(call);
        slot
    }

    /// A call is remembered until the floor passes it, however many come after it; then its slot is used again.
    #[test]
    fn until_the_floor() {
        let mut calls = Calls::default();
        for call in 10..5_010 {
            assert_eq!(u64::from(remember(&mut calls, call)), call - 10);
        }
        assert_eq!((calls.find(10), calls.find(5_009), calls.count()), (Some(0), Some(4_999), 5_000));
        calls.pass(12);
        calls.pass(11);
        assert_eq!((calls.find(11), calls.find(12), calls.count()), (None, Some(2), 4_998));
        assert_eq!((calls.is_passed(11), calls.is_passed(12)), (true, false));
        assert_eq!([6_000, 6_001, 6_002].map(|call| remember(&mut calls, call)), [0, 1, 5_000]);
    }

    /// After it was loaded it goes on where it was: what is remembered is, and no slot is used twice.
    #[test]
    fn loaded() {
        let mut calls = Calls::load([(0, 7, 30, 0), (3, 2, 12, 12), (1, 8, 31, 11)]);
        assert_eq!((calls.is_passed(11), calls.is_passed(12)), (true, false));
        assert_eq!((calls.find(12), calls.find(30), calls.find(31), calls.find(13)), (Some(3), Some(0), Some(1), None));
        assert_eq!(calls.next(), Some((2, 9)));
        assert_eq!([40, 41].map(|call| remember(&mut calls, call)), [2, 4]);
        calls.pass(31);
        assert_eq!([42, 43].map(|call| remember(&mut calls, call)), [0, 3]);
    }

    /// When all slots are used there is none, and nothing is forgotten.
    #[test]
    fn all_slots() {
        let mut calls = Calls::load((0..=u16::MAX).map(|slot| (slot, u64::from(slot), u64::from(slot) + 1, 0)));
        assert_eq!((calls.next(), calls.find(1)), (None, Some(0)));
        calls.remember(70_000);
        assert_eq!((calls.find(70_000), calls.count()), (None, 65_536));
        calls.pass(2);
        assert_eq!(calls.next().map(|(slot, _)| slot), Some(0));
    }
}
