//! Clients of gateways to whose calls answers were forgotten, and up to which number that may be so of each: what comes later under such a
//! number was answered, and is not done again.

use base::limit::FORGOTTEN_CLIENTS_AGE;
use base::unit::Time;
use std::collections::BTreeMap;

/// Hadoop's clients number their calls with 31 bits and begin anew when they are used up.
const CALLS: u32 = 1 << 31;

/// The floors of clients, of those that were raised last.
#[derive(Debug)]
pub struct Floors {
    /// Most clients.
    most: usize,
    of: BTreeMap<u128, Floor>,
    /// The clients in the order in which their floors were raised.
    order: BTreeMap<u64, u128>,
    next: u64,
}

/// One client's.
#[derive(Clone, Copy, Debug)]
struct Floor {
    /// The last of its calls whose answer was forgotten.
    call: u32,
    /// Its place in the order.
    order: u64,
    /// When it was raised, or the store was opened.
    since: Time,
}

/// Whether a call is the same as another one or was made before it.
fn is_at_or_below(call: u32, other: u32) -> bool {
    other.wrapping_sub(call) % CALLS < CALLS / 2
}

impl Floors {
    /// No client has one.
    pub fn new(most: usize) -> Floors {
        Floors { most, of: BTreeMap::new(), order: BTreeMap::new(), next: 0 }
    }

    /// Those of these clients: place in the order, client, call.
    pub fn load(most: usize, mut found: Vec<(u64, u128, u32)>, now: Time) -> Floors {
        found.sort_unstable();
        let mut floors = Floors::new(most);
        for (order, client, call) in found {
            floors.next = order;
            floors.put(client, call, now);
        }
        floors
    }

    /// Whether the answer to this call may have been forgotten.
    pub fn is_late(&self, client: u128, call: u32, now: Time) -> bool {
        self.holding(client, now).is_some_and(|floor| is_at_or_below(call, floor.call))
    }

    /// A client that reads without end and changes nothing comes to numbers that look older than its floor, so none holds for ever.
    fn holding(&self, client: u128, now: Time) -> Option<&Floor> {
        self.of.get(&client).filter(|floor| now.since(floor.since) < FORGOTTEN_CLIENTS_AGE)
    }

    /// The place in the order that the client's floor gets when the answer to this call is forgotten. None: it is as high already.
    pub fn would_rise(&self, client: u128, call: u32, now: Time) -> Option<u64> {
        (!self.is_late(client, call, now)).then_some(self.next)
    }

    /// Whose floors go when this client's is raised: those that nobody needs, and the oldest one if there is no room. Two at the most, so a
    /// change stays small.
    pub fn outdated(&self, client: u128, now: Time) -> Vec<u128> {
        let over = (self.of.len() + usize::from(!self.of.contains_key(&client))).saturating_sub(self.most);
        let oldest = self.order.values().filter(|other| **other != client).take(2).enumerate();
        oldest
            .filter(|(at, other)| *at < over || self.holding(**other, now).is_none())
            .map(|(_, other)| *other)
            .collect()
    }

    /// The answer to this call is forgotten.
    pub fn raise(&mut self, client: u128, call: u32, now: Time) {
        if self.would_rise(client, call, now).is_none() {
            return;
        }
        for other in self.outdated(client, now) {
            if let Some(floor) = self.of.remove(&other) {
                self.order.remove(&floor.order);
            }
        }
        self.put(client, call, now);
    }

    fn put(&mut self, client: u128, call: u32, now: Time) {
        let order = self.next;
        self.next = self.next.saturating_add(1);
        if let Some(before) = self.of.insert(client, Floor { call, order, since: now }) {
            self.order.remove(&before.order);
        }
        self.order.insert(order, client);
    }
}

#[cfg(test)]
mod tests {
    use super::Floors;
    use base::limit::FORGOTTEN_CLIENTS_AGE;
    use base::unit::Time;

    const NOW: Time = Time::from_nanos(1_000);

    /// What is at or below the highest call that was forgotten of a client is late, and nothing of other clients; numbers that begin anew go
    /// on above.
    #[test]
    fn late() {
        let mut floors = Floors::new(9);
        for call in [7, 5] {
            floors.raise(1, call, NOW);
        }
        let late = |floors: &Floors, client, call| floors.is_late(client, call, NOW);
        assert_eq!([0, 5, 7, 8, 1 << 29].map(|call| late(&floors, 1, call)), [true, true, true, false, false]);
        assert!(!late(&floors, 2, 5));
        assert_eq!((floors.would_rise(1, 6, NOW), floors.would_rise(1, 8, NOW)), (None, Some(1)));
        let last = i32::MAX as u32;
        floors.raise(2, last, NOW);
        assert_eq!(
            [last - 1, last, 0, 1, 1 << 31].map(|call| late(&floors, 2, call)),
            [true, true, false, false, false]
        );
        floors.raise(2, 3, NOW);
        assert_eq!([last, 0, 3, 4].map(|call| late(&floors, 2, call)), [true, true, true, false]);
    }

    /// There are as many as may be: those that were raised last. The same after they were loaded.
    #[test]
    fn bounded() {
        let mut floors = Floors::new(3);
        for (client, call) in [(1, 10), (2, 20), (3, 30), (1, 11)] {
            floors.raise(client, call, NOW);
        }
        assert_eq!(floors.outdated(1, NOW), Vec::<u128>::new());
        assert_eq!(floors.outdated(4, NOW), vec![2]);
        floors.raise(4, 40, NOW);
        let held = |floors: &Floors| [1, 2, 3, 4].map(|client| floors.is_late(client, 9, NOW));
        assert_eq!((held(&floors), floors.order.len()), ([true, false, true, true], 3));
        let loaded = Floors::load(3, vec![(4, 4, 40), (2, 3, 30), (3, 1, 11)], NOW);
        assert_eq!((held(&loaded), loaded.next, loaded.outdated(5, NOW)), (held(&floors), floors.next, vec![3]));
        let mut fewer = Floors::load(1, vec![(4, 4, 40), (2, 3, 30), (3, 1, 11)], NOW);
        fewer.raise(4, 41, NOW);
        assert_eq!((held(&fewer), fewer.order.len()), ([false, false, false, true], 1));
    }

    /// None holds for ever, and those that do not go.
    #[test]
    fn aged() {
        let mut floors = Floors::new(9);
        for client in [1, 2, 3] {
            floors.raise(client, 10, NOW);
        }
        let later = NOW.after(FORGOTTEN_CLIENTS_AGE);
        assert!(!floors.is_late(1, 10, later));
        assert_eq!((floors.outdated(1, later), floors.would_rise(1, 4, later)), (vec![2, 3], Some(3)));
        floors.raise(1, 4, later);
        assert_eq!((floors.is_late(1, 4, later), floors.is_late(1, 5, later), floors.of.len()), (true, false, 1));
    }
}
