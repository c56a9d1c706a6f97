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

/// What is remembered of a side counts half after so many nanoseconds with something open there. After as many without, it is
/// forgotten, and the side is tried again.
const REMEMBERED: u64 = 500_000_000;

/// A side is tried again after so many times what the last one took there, at least: so trying costs a slow side little.
const TRIED_AFTER: u64 = 8;

/// What got done on one side lately, in so many nanoseconds with something open there.
#[derive(Clone, Copy, Default)]
struct Done {
    bytes: u64,
    nanos: u64,
    last: Time,
    /// How long the last one took.
    took: u64,
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
        if nanos_since(done.last, began) > REMEMBERED {
            (done.bytes, done.nanos) = (0, 0);
        }
        done.took = nanos_since(began, ended);
        // What is open at once takes its time once.
        let nanos = nanos_since(began.max(done.last), ended);
        done.last = done.last.max(ended);
        done.bytes = done.bytes.saturating_add(bytes);
        done.nanos = done.nanos.saturating_add(nanos);
        while done.nanos > REMEMBERED {
            (done.bytes, done.nanos) = (done.bytes / 2, done.nanos / 2);
        }
    }

    /// Bytes a second on each side. One that nobody measured is as fast as the other: among clients on all machines each device has
    /// as much from its own as from the others then, and none of them waits for what is stuck before somebody's card.
    fn rates(&self) -> [u128; 2] {
        let measured = self.done.map(|done| {
            let rate = u128::from(done.bytes).saturating_mul(1_000_000_000) / u128::from(done.nanos.max(1));
            (done.nanos > 0).then_some(rate.max(1))
        });
        let other = |other: usize| measured[other].unwrap_or(1);
        [measured[0].unwrap_or_else(|| other(1)), measured[1].unwrap_or_else(|| other(0))]
    }

    /// The sides, that first on which so much more than what is open on each is expected to be done first. One on which nothing is open
    /// and nothing got done for a while is tried first: by what was known of it once, it would never be asked again.
    pub(crate) fn first_done(&self, now: Time, open: [u64; 2], more: u64) -> [Side; 2] {
        let far_first = [Side::Far, Side::Near];
        let tried = [0, 1].map(|side| {
            let done = self.done[side];
            let wait = REMEMBERED.max(done.took.saturating_mul(TRIED_AFTER));
            open[side] == 0 && nanos_since(done.last, now) >= wait
        });
        match tried {
            [true, false] => return SIDES,
            [false, true] => return far_first,
            _ => {}
        }
        let rates = self.rates();
        let near = u128::from(open[0].saturating_add(more)).saturating_mul(rates[1]);
        let far = u128::from(open[1].saturating_add(more)).saturating_mul(rates[0]);
        if near <= far { SIDES } else { far_first }
    }

    /// The part of a window for one side, at least 1 of it; all of it if the other has no devices.
    pub(crate) fn part(&self, window: u64, side: Side, devices: [usize; 2]) -> u64 {
        let (mine, other) = (side as usize, 1 - side as usize);
        if devices[other] == 0 {
            return window;
        }
        let rates = self.rates();
        let part = u128::from(window).saturating_mul(rates[mine]).div_ceil(rates[mine].saturating_add(rates[other]));
        u64::try_from(part).unwrap_or(window).clamp(1, window.max(1))
    }
}

fn nanos_since(from: Time, to: Time) -> u64 {
    u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{SIDES, Side, Sides};
    use base::unit::Time;

    const MS: u64 = 1_000_000;

    fn at(millis: u64) -> Time {
        Time::from_nanos(millis * MS)
    }

    /// Unmeasured, both sides are equal; measured, what is open is in proportion to what gets done.
    #[test]
    fn in_proportion() {
        let mut sides = Sides::default();
        assert_eq!([sides.part(80, Side::Near, [1, 7]), sides.part(80, Side::Far, [1, 7])], [40, 40]);
        assert_eq!(sides.first_done(at(0), [10, 10], 1)[0], Side::Near);
        assert_eq!(sides.first_done(at(0), [11, 10], 1)[0], Side::Far);
        // The near device does 80 a second, the card lets 20 pass: two at once take as long as one after the other.
        for round in 0..10 {
            sides.done(Side::Near, at(100 * round), at(100 * round + 100), 8000);
            sides.done(Side::Far, at(200 * round), at(200 * round + 200), 2000);
            sides.done(Side::Far, at(200 * round), at(200 * round + 200), 2000);
        }
        let parts = [sides.part(1000, Side::Near, [1, 7]), sides.part(1000, Side::Far, [1, 7])];
        // What is remembered is halved now and then, which may fall between the two of the far side.
        assert!((760..=840).contains(&parts[0]) && (160..=240).contains(&parts[1]), "{parts:?}");
        assert_eq!(sides.first_done(at(2000), [49, 9], 1)[0], Side::Far);
        assert_eq!(sides.first_done(at(2000), [29, 9], 1)[0], Side::Near);
        assert_eq!(sides.part(100, Side::Far, [0, 7]), 100, "nobody is near");
    }

    /// A side that was slow once, and is therefore asked for nothing, is tried again after half a second or eight times what the last
    /// one took, and then only what it does now counts.
    #[test]
    fn tried_again() {
        let mut sides = Sides::default();
        sides.done(Side::Near, at(0), at(400), 1000);
        (0..100).for_each(|round| sides.done(Side::Far, at(10 * round), at(10 * round + 10), 1000));
        assert_eq!(sides.first_done(at(3599), [0, 9000], 1000), [Side::Far, Side::Near]);
        assert_eq!(sides.first_done(at(3600), [0, 9000], 1000), SIDES);
        assert_eq!(sides.first_done(at(3600), [1000, 9000], 1000), [Side::Far, Side::Near], "one is enough");
        (360..370).for_each(|round| sides.done(Side::Far, at(10 * round), at(10 * round + 10), 1000));
        sides.done(Side::Near, at(3600), at(3610), 1000);
        assert_eq!(sides.part(1000, Side::Near, [1, 7]), 500);
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
