//! States as numbers: 15 bits for each of six replicas and 14 for the rest fit into 128, so that millions can be remembered.

use super::{MOST, Replica, State};
use std::hash::Hasher;

impl Replica {
    pub fn packed(&self) -> u32 {
        let heard = self.heard.map_or(0, |(has, sound)| 1 + 2 * u32::from(has) + u32::from(sound));
        let flags = [self.restarted, self.fenced, self.sealed, self.lost, self.passed_over];
        let flags = flags.into_iter().fold(0, |flags, flag| flags << 1 | u32::from(flag));
        assert!(self.has < 8 && self.answered < 8 && heard < 16, "it does not fit");
        flags << 10 | heard << 6 | u32::from(self.answered) << 3 | u32::from(self.has)
    }

    pub fn unpacked(packed: u32) -> Replica {
        let heard = packed >> 6 & 15;
        let flag = |at: u32| packed >> (14 - at) & 1 == 1;
        Replica {
            has: (packed & 7) as u8,
            answered: (packed >> 3 & 7) as u8,
            restarted: flag(0),
            fenced: flag(1),
            sealed: flag(2),
            lost: flag(3),
            passed_over: flag(4),
            heard: heard.checked_sub(1).map(|heard| ((heard >> 1) as u8, heard & 1 == 1)),
        }
    }
}

impl State {
    pub fn packed(&self) -> u128 {
        let replicas = self.replicas.iter().fold(0, |packed, replica| packed << 15 | u128::from(replica.packed()));
        let numbers = [self.sent, self.acknowledged, self.seen, self.floor];
        let all = numbers.into_iter().fold(replicas, |packed, number| packed << 3 | u128::from(number));
        all << 2 | u128::from(self.ending) << 1 | u128::from(self.taken)
    }

    pub fn unpacked(packed: u128) -> State {
        let number = |at: u32| (packed >> (2 + 3 * (3 - at)) & 7) as u8;
        let replica = |at: usize| Replica::unpacked((packed >> (14 + 15 * (MOST - 1 - at)) & 0x7fff) as u32);
        State {
            replicas: std::array::from_fn(replica),
            sent: number(0),
            acknowledged: number(1),
            seen: number(2),
            floor: number(3),
            ending: packed >> 1 & 1 == 1,
            taken: packed & 1 == 1,
            closed: None,
        }
    }
}

/// Hashes packed states: nobody chooses them so that they collide.
#[derive(Default)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("states are numbers");
    }

    fn write_u128(&mut self, state: u128) {
        let low = (state as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let high = ((state >> 64) as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mixed = (low ^ high.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
