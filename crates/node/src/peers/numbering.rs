//! Numbers of the deletes that a leadership orders, from 1 on for each device: with them a node does each once, however often a link asks it
//! (`membership::deletes`).

use crate::control::claims::lock;
use base::id::DeviceId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Gives the numbers.
#[derive(Default)]
pub struct Numbering(Mutex<BTreeMap<DeviceId, Numbers>>);

#[derive(Default)]
struct Numbers {
    last: u64,
    under_way: BTreeSet<u64>,
}

/// A delete that is under way until this is dropped: it has its answer, or nobody waits for one, and it is never asked again.
pub struct Numbered {
    of: Arc<Numbering>,
    device: DeviceId,
    /// Its number.
    pub number: u64,
    /// The lowest number that is under way: no lower one is asked again. What comes late of one to which no answer came is not done any more then.
    pub floor: u64,
}

impl Numbering {
    /// Begins a delete.
    pub fn begin(self: &Arc<Numbering>, device: DeviceId) -> Numbered {
        let mut devices = lock(&self.0);
        let numbers = devices.entry(device).or_default();
        numbers.last += 1;
        let number = numbers.last;
        numbers.under_way.insert(number);
        let floor = numbers.under_way.first().copied().unwrap_or(number);
        Numbered { of: self.clone(), device, number, floor }
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Some(numbers) = lock(&self.of.0).get_mut(&self.device) {
            numbers.under_way.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Numbering;
    use base::id::DeviceId;
    use std::sync::Arc;

    /// Each number is given once to a device; the floor is the lowest that is under way.
    #[test]
    fn floors() {
        let numbering = Arc::new(Numbering::default());
        let begin = || numbering.begin(DeviceId(1));
        let (first, second, third) = (begin(), begin(), begin());
        assert_eq!([&first, &second, &third].map(|one| (one.number, one.floor)), [(1, 1), (2, 1), (3, 1)]);
        drop(second);
        let fourth = begin();
        assert_eq!((fourth.number, fourth.floor), (4, 1));
        drop(first);
        let fifth = begin();
        assert_eq!((fifth.number, fifth.floor), (5, 3));
        drop((third, fourth, fifth));
        let (sixth, other) = (begin(), numbering.begin(DeviceId(2)));
        assert_eq!([(sixth.number, sixth.floor), (other.number, other.floor)], [(6, 6), (1, 1)]);
    }
}
