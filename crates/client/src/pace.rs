//! How many pulls a consumer keeps open: so many that each device has the next one at hand, whatever the way to it takes.
//!
//! Batch sampling (Chaos): with k requests at the devices for each of as many consumers, a device has none with probability
//! e^-k, which is under one percent for k = 5. What is on its way is not at a device, so k is multiplied by 1 + R_net / R_storage.
//! A consumer that has the devices to itself needs one request at each of them, however many they are; how many others there
//! are, the devices say: so many pulls had they under way when they took ours.

use base::limit::BAG_CHUNK;
use std::time::Duration;

/// Pulls at the devices for each consumer, at least.
const AT_DEVICES: u64 = 5;

/// Most bytes that may come in at once, when all pulls are answered: 32 chunks of 4 MiB.
const MEMORY: u64 = 128 << 20;

/// Most pulls open, however small the chunks are.
const PULLS_MAX: u64 = 256;

/// The shortest way of the last so many pulls counts, and of as many before them.
const REMEMBERED: u32 = 64;

/// Each answer counts for so much of what is known.
const WEIGHT: u64 = 8;

/// What answers have told so far. Times in nanoseconds.
#[derive(Default)]
pub(crate) struct Pace {
    /// How long a device has a pull, others before it included; zero: nobody said.
    service: u64,
    /// Pulls under way at a device, in sixteenths.
    under_way: u64,
    /// The shortest way of this round and of the one before.
    shortest: [Option<u64>; 2],
    samples: u32,
    /// The largest chunk, in bytes.
    largest: u64,
}

impl Pace {
    /// A chunk of `bytes` came after `total`, of which a device had the pull for `service` with `under_way` of all consumers at once.
    pub(crate) fn came(&mut self, total: Duration, service: Duration, under_way: u32, bytes: usize) {
        self.largest = self.largest.max(bytes as u64);
        if service.is_zero() {
            return;
        }
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let way = nanos(total.saturating_sub(service));
        let sixteenths = u64::from(under_way.max(1)).saturating_mul(16);
        if self.service == 0 {
            (self.service, self.under_way) = (nanos(service), sixteenths);
        }
        self.service = mean(self.service, nanos(service)).max(1);
        self.under_way = mean(self.under_way, sixteenths).max(16);
        self.shortest[0] = Some(self.shortest[0].map_or(way, |shortest| shortest.min(way)));
        self.samples += 1;
        if self.samples == REMEMBERED {
            (self.samples, self.shortest) = (0, [None, self.shortest[0]]);
        }
    }

    /// How many pulls to keep open on so many devices.
    pub(crate) fn window(&self, devices: usize) -> usize {
        let devices = devices as u64;
        let mine = devices.saturating_mul(16).checked_div(self.under_way).unwrap_or(devices);
        let at_devices = mine.clamp(AT_DEVICES, devices.max(AT_DEVICES));
        // As long on the way as at the device, until somebody says.
        let (way, service) = match self.shortest.iter().flatten().min() {
            Some(way) => (*way, self.service),
            None => (1, 1),
        };
        let open = at_devices.saturating_add((at_devices.saturating_mul(way)).div_ceil(service));
        let memory = MEMORY / if self.largest == 0 { BAG_CHUNK } else { self.largest };
        open.min(memory.clamp(1, PULLS_MAX)) as usize
    }
}

fn mean(before: u64, now: u64) -> u64 {
    (before / WEIGHT * (WEIGHT - 1)).saturating_add(now / WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    fn after(total: u32, service: u32, under_way: u32, bytes: usize) -> Pace {
        let mut pace = Pace::default();
        (0..200).for_each(|_| pace.came(MS * total, MS * service, under_way, bytes));
        pace
    }

    /// Five pulls are at the devices and as many more as the way takes; the shortest way counts, so that what waits in a full
    /// network opens no more.
    #[test]
    fn the_way_is_covered() {
        assert_eq!(Pace::default().window(3), 10);
        assert_eq!(after(10, 10, 1, 1000).window(3), 5);
        assert_eq!(after(30, 10, 1, 1000).window(3), 15);
        let mut pace = after(30, 10, 1, 1000);
        (0..20).for_each(|_| pace.came(MS * 300, MS * 10, 1, 1000));
        assert_eq!(pace.window(3), 15);
    }

    /// Alone, a consumer has a pull at every device; among many, five. It never has more than memory for.
    #[test]
    fn devices_are_shared() {
        assert_eq!(after(20, 10, 1, 1000).window(64), 128);
        assert_eq!(after(20, 10, 4, 1000).window(64), 32);
        assert_eq!(after(20, 10, 64, 1000).window(64), 10);
        assert_eq!(after(20, 10, 1, 4 << 20).window(64), 32);
        assert_eq!(after(20, 10, 1, 200 << 20).window(64), 1);
        assert_eq!(after(1000, 1, 1, 1).window(64), 256);
    }
}
