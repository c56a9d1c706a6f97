//! How many pulls a consumer keeps open: so many that each device has the next one at hand, whatever the way to it takes.
//!
//! Batch sampling (Chaos): with k requests at the devices for each of as many consumers, a device has none with probability
//! e^-k, which is under one percent for k = 5. What is on its way is not at a device: by Little's law as many pulls are as come in a
//! second, times the way. A consumer that has the devices to itself needs one request at each of them, however many they are; how many
//! others there are, the devices say: so many pulls had they under way when they took ours.
//!
//! What waits in front of a full network card looks like a long way, and would open more pulls, which wait there too. So the way is
//! measured from time to time with no more than k pulls open, and in between only shorter ones are believed.

use base::limit::BAG_CHUNK;
use base::unit::Time;
use std::time::Duration;

/// Pulls at the devices for each consumer, at least.
const AT_DEVICES: u64 = 5;

/// Most bytes that may come in at once, when all pulls are answered: 32 chunks of 4 MiB.
const MEMORY: u64 = 128 << 20;

/// Most pulls open, however small the chunks are.
const PULLS_MAX: u64 = 256;

/// How long a measured way is believed. Measuring takes about two ways.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The rate is that of the fastest so many answers since the way was measured, or before.
const ROUND: u32 = 64;

/// Each answer counts for so much of what is known.
const WEIGHT: u64 = 8;

/// A pull that was answered with a chunk.
pub(crate) struct Came {
    /// When it was sent.
    pub began: Time,
    /// When the chunk was there.
    pub ended: Time,
    /// It was to wait for a chunk, so the time between says nothing.
    pub waited: bool,
    /// How long a device had it, others before it included; zero: it does not say.
    pub service: Duration,
    /// Pulls of all consumers that the device had then.
    pub under_way: u32,
    /// The chunk's.
    pub bytes: usize,
}

/// What answers have told so far. Times in nanoseconds.
#[derive(Default)]
pub(crate) struct Pace {
    /// How long a device has a pull, others before it included; zero: nobody said.
    service: u64,
    /// Pulls under way at a device, in sixteenths.
    under_way: u64,
    way: Way,
    /// From one answer to the next, in the fastest round since the way was measured and before.
    between: [Option<u64>; 2],
    /// Answers of this round, and when it began.
    round: (u32, Time),
    /// The largest chunk, in bytes.
    largest: u64,
}

/// What is known of the way.
enum Way {
    /// It is being measured with pulls from then on: so many answers came, the shortest way was that.
    Measured { from: Time, answers: u64, shortest: u64 },
    /// The shortest way, measured then.
    Known { at: Time, shortest: u64 },
}

impl Default for Way {
    fn default() -> Way {
        Way::Measured { from: Time::ZERO, answers: 0, shortest: u64::MAX }
    }
}

impl Pace {
    /// Learns from an answer.
    pub(crate) fn came(&mut self, came: &Came) {
        self.largest = self.largest.max(came.bytes as u64);
        if came.service.is_zero() {
            return;
        }
        let service = nanos(came.service);
        let sixteenths = u64::from(came.under_way.max(1)).saturating_mul(16);
        if self.service == 0 {
            (self.service, self.under_way) = (service, sixteenths);
        }
        self.service = mean(self.service, service).max(1);
        self.under_way = mean(self.under_way, sixteenths).max(16);
        if !came.waited {
            self.learn_way(came.began, came.ended, nanos(came.ended.since(came.began)).saturating_sub(service));
        }
    }

    fn learn_way(&mut self, began: Time, now: Time, way: u64) {
        match &mut self.way {
            // With more of them open.
            Way::Measured { from, .. } if began < *from => {}
            Way::Measured { answers, shortest, .. } => {
                (*answers, *shortest) = (*answers + 1, way.min(*shortest));
                if *answers == AT_DEVICES {
                    self.way = Way::Known { at: now, shortest: *shortest };
                    self.round = (0, now);
                }
            }
            Way::Known { at, shortest } => {
                *shortest = way.min(*shortest);
                let is_old = now.since(*at) >= KNOWN_FOR;
                self.round.0 += 1;
                if self.round.0 == ROUND {
                    let between = nanos(now.since(self.round.1)) / u64::from(ROUND);
                    self.between[0] = Some(self.between[0].map_or(between, |known| known.min(between)));
                    self.round = (0, now);
                }
                if is_old {
                    self.between = [None, self.between[0].or(self.between[1])];
                    self.way = Way::Measured { from: now, answers: 0, shortest: u64::MAX };
                }
            }
        }
    }

    /// How many pulls to keep open on so many devices.
    pub(crate) fn window(&self, devices: usize) -> usize {
        let devices = devices as u64;
        let mine = devices.saturating_mul(16).checked_div(self.under_way).unwrap_or(AT_DEVICES);
        let at_devices = mine.clamp(AT_DEVICES, devices.max(AT_DEVICES));
        let on_way = match self.way {
            Way::Measured { .. } => 0,
            Way::Known { shortest, .. } => {
                // As many as at the devices, until there was a round.
                let between = self.between.into_iter().flatten().min();
                let by_rate = between.map_or(at_devices, |between| shortest.div_ceil(between.max(1)));
                by_rate.min(at_devices.saturating_mul(shortest).div_ceil(self.service.max(1)))
            }
        };
        let memory = MEMORY / if self.largest == 0 { BAG_CHUNK } else { self.largest };
        at_devices.saturating_add(on_way).min(memory.clamp(1, PULLS_MAX)) as usize
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn mean(before: u64, now: u64) -> u64 {
    (before / WEIGHT * (WEIGHT - 1)).saturating_add(now / WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::{Came, Pace};
    use base::unit::Time;
    use std::collections::VecDeque;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    /// A consumer with so many devices, each of which has a pull for `service` ms with `under_way` at once, for so many seconds. The
    /// way takes `way` ms, and what comes in is at least `between` us apart.
    fn after(devices: usize, seconds: u64, service: u64, way: u64, between: u64, under_way: u32, bytes: usize) -> Pace {
        let mut pace = Pace::default();
        go_on(&mut pace, devices, [0, seconds], [service, way, between], under_way, bytes);
        pace
    }

    fn go_on(
        pace: &mut Pace,
        devices: usize,
        [from, to]: [u64; 2],
        [service, way, between]: [u64; 3],
        under_way: u32,
        bytes: usize,
    ) {
        let (mut open, mut now, mut free) = (VecDeque::new(), from * 1000 * MS, 0);
        while now < to * 1000 * MS {
            while open.len() < pace.window(devices) {
                free = (free + between * 1000).max(now + (service + way) * MS);
                open.push_back((now, free));
            }
            let Some((began, ended)) = open.pop_front() else { unreachable!("one is open") };
            now = ended;
            let (began, ended) = (Time::from_nanos(began), Time::from_nanos(ended));
            let service = Duration::from_millis(service);
            pace.came(&Came { began, ended, waited: false, service, under_way, bytes });
        }
    }

    /// Five pulls are at the devices and as many more as the way takes.
    #[test]
    fn the_way_is_covered() {
        assert_eq!(Pace::default().window(3), 5);
        assert_eq!(after(3, 5, 10, 0, 10, 1, 1000).window(3), 5);
        assert_eq!(after(3, 5, 10, 20, 10, 1, 1000).window(3), 15);
        assert!((45..=50).contains(&after(3, 8, 10, 90, 10, 1, 1000).window(3)));
    }

    /// What waits before a full network card opens no more, however long: no more than five wait there beside what the way takes, and
    /// the five that are at the devices elsewhere.
    #[test]
    fn a_full_card_is_not_a_long_way() {
        for seconds in [5, 30, 200] {
            let window = after(7, seconds, 13, 52, 52_000, 3, 1 << 20).window(7);
            assert!((6..=12).contains(&window), "{window} after {seconds} s");
        }
        // One that becomes full while many are on a long way.
        let mut pace = after(3, 8, 10, 90, 10, 1, 1000);
        go_on(&mut pace, 3, [8, 60], [10, 90, 52_000], 1, 1000);
        assert!((6..=12).contains(&pace.window(3)), "{}", pace.window(3));
    }

    /// A way that becomes longer, or shorter, is known after ten seconds.
    #[test]
    fn the_way_changes() {
        let mut pace = after(3, 30, 10, 20, 10, 1, 1000);
        let came = |pace: &mut Pace, from: u64, way: u64| {
            for answer in 0..8000 {
                let ended = from + 2 * answer;
                let (began, ended) = (Time::from_nanos((ended - 10 - way) * MS), Time::from_nanos(ended * MS));
                let service = Duration::from_millis(10);
                pace.came(&Came { began, ended, waited: false, service, under_way: 1, bytes: 1000 });
            }
            pace.window(3)
        };
        assert_eq!(came(&mut pace, 40_000, 40), 25);
        assert_eq!(came(&mut pace, 60_000, 2), 6);
    }

    /// Alone, a consumer has a pull at every device; among many, five. It never has more than memory for.
    #[test]
    fn devices_are_shared() {
        assert!((126..=128).contains(&after(64, 5, 10, 10, 10, 1, 1000).window(64)));
        assert!((31..=32).contains(&after(64, 5, 10, 10, 10, 4, 1000).window(64)));
        assert_eq!(after(64, 5, 10, 10, 10, 64, 1000).window(64), 10);
        assert_eq!(after(64, 5, 10, 10, 10, 1, 4 << 20).window(64), 32);
        assert_eq!(after(64, 5, 10, 10, 10, 1, 200 << 20).window(64), 1);
        assert_eq!(after(64, 20, 1, 999, 10, 1, 1).window(64), 256);
    }
}
