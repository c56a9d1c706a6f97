//! The two sides of a client: the nodes of its own machine, and all others, which its network card leads to. Bytes go where they are
//! expected to be done first, so that a link slower than a device gets less, and a client alone has both.
//!
//! Two sides and not a time for each device: all that is far shares one card, a side is measured with every chunk that goes there, and
//! devices of one side stay as equal as they are. Little's law: what is open divided by what gets done in a second is the time until
//! what is asked now is done.

use base::unit::Time;

/// Where a device is, as seen by the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Side {
    /// On the client's machine.
    Near,
    /// Behind its network card.
    #[default]
    Far,
}

/// Both, in the order in which arrays have them.
pub(crate) const SIDES: [Side; 2] = [Side::Near, Side::Far];

/// What is remembered of a side counts half after so many nanoseconds with something open there.
const REMEMBERED: u64 = 500_000_000;

/// What got done on one side lately, in so many nanoseconds with something open there.
#[derive(Clone, Copy, Default)]
struct Done {
    bytes: u64,
    nanos: u64,
    last: Time,
}

/// How fast bytes get done on each side.
#[derive(Default)]
pub(crate) struct Sides {
    done: [Done; 2],
}

impl Sides {
    /// So many bytes that were asked for at `began` were done at `ended`.
    pub(crate) fn done(&mut self, side: Side, began: Time, ended: Time, bytes: u64) {
        let done = &mut self.done[side as usize];
        // What is open at once takes its time once.
        let nanos = u64::try_from(ended.since(began.max(done.last)).as_nanos()).unwrap_or(u64::MAX);
        done.last = done.last.max(ended);
        done.bytes = done.bytes.saturating_add(bytes);
        done.nanos = done.nanos.saturating_add(nanos);
        while done.nanos > REMEMBERED {
            (done.bytes, done.nanos) = (done.bytes / 2, done.nanos / 2);
        }
    }

    /// Bytes a second on each side, which has so many devices. One that nobody measured is as fast for each device as the other.
    fn rates(&self, devices: [usize; 2]) -> [u128; 2] {
        let measured = self.done.map(|done| {
            let rate = u128::from(done.bytes).saturating_mul(1_000_000_000) / u128::from(done.nanos.max(1));
            (done.nanos > 0).then_some(rate.max(1))
        });
        let guess = |side: usize, other: usize| {
            let each = measured[other].map_or(1, |rate| (rate / devices[other].max(1) as u128).max(1));
            each.saturating_mul(devices[side].max(1) as u128)
        };
        [measured[0].unwrap_or_else(|| guess(0, 1)), measured[1].unwrap_or_else(|| guess(1, 0))]
    }

    /// The sides, that first on which something is expected to be done first, with so much open on each.
    pub(crate) fn first_done(&self, open: [u64; 2], devices: [usize; 2]) -> [Side; 2] {
        let rates = self.rates(devices);
        let near = u128::from(open[0]).saturating_mul(rates[1]);
        let far = u128::from(open[1]).saturating_mul(rates[0]);
        if near <= far { SIDES } else { [Side::Far, Side::Near] }
    }

    /// The part of a window for one side, at least 1 of it; all of it if the other has no devices.
    pub(crate) fn part(&self, window: u64, side: Side, devices: [usize; 2]) -> u64 {
        let (mine, other) = (side as usize, 1 - side as usize);
        if devices[other] == 0 {
            return window;
        }
        let rates = self.rates(devices);
        let part = u128::from(window).saturating_mul(rates[mine]).div_ceil(rates[mine].saturating_add(rates[other]));
        u64::try_from(part).unwrap_or(window).clamp(1, window.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::{Side, Sides};
    use base::unit::Time;

    const MS: u64 = 1_000_000;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * MS)
    }

    /// Unmeasured, devices are equal wherever they are; measured, what is open is in proportion to what gets done.
    #[test]
    fn in_proportion() {
        let mut sides = Sides::default();
        assert_eq!([sides.part(80, Side::Near, [1, 7]), sides.part(80, Side::Far, [1, 7])], [10, 70]);
        assert_eq!(sides.first_done([10, 71], [1, 7])[0], Side::Near);
        assert_eq!(sides.first_done([11, 70], [1, 7])[0], Side::Far);
        // The near device does 80 a second, the card lets 20 pass: two at once take as long as one after the other.
        for round in 0..10 {
            sides.done(Side::Near, at(100 * round), at(100 * round + 100), 8000);
            sides.done(Side::Far, at(200 * round), at(200 * round + 200), 2000);
            sides.done(Side::Far, at(200 * round), at(200 * round + 200), 2000);
        }
        let parts = [sides.part(1000, Side::Near, [1, 7]), sides.part(1000, Side::Far, [1, 7])];
        // What is remembered is halved now and then, which may fall between the two of the far side.
        assert!((760..=840).contains(&parts[0]) && (160..=240).contains(&parts[1]), "{parts:?}");
        assert_eq!(sides.first_done([50, 10], [1, 7])[0], Side::Far);
        assert_eq!(sides.first_done([30, 10], [1, 7])[0], Side::Near);
        assert_eq!(sides.part(100, Side::Far, [0, 7]), 100, "nobody is near");
    }

    /// A card that becomes slower is known after a second.
    #[test]
    fn follows() {
        let mut sides = Sides::default();
        let mut now = 0;
        let mut run = |sides: &mut Sides, far: u64, seconds: u64| {
            for _ in 0..10 * seconds {
                sides.done(Side::Near, at(now), at(now + 100), 1000);
                sides.done(Side::Far, at(now), at(now + 100), far);
                now += 100;
            }
            sides.part(1000, Side::Far, [1, 1])
        };
        assert_eq!(run(&mut sides, 1000, 5), 500);
        assert!(run(&mut sides, 100, 1) < 250);
        assert!(run(&mut sides, 100, 2) < 110);
    }
}
