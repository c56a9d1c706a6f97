//! How far devices are that are being emptied, as the commands show it that follow a drain.

mod part;

use crate::progress::Progress;
use client::Device;
use std::collections::BTreeMap;

pub use part::Part;

/// Chunks and bytes.
type Amount = (u64, u64);

/// The devices that a command follows, by their ids, and what it told of them.
#[derive(Default)]
pub struct Emptied {
    devices: BTreeMap<u128, Known>,
    told: Amount,
}

/// What is known of one device.
#[derive(Default)]
struct Known {
    /// Whether it is known what is left to do: the server says so once it has begun.
    counted: bool,
    /// Which drain it is: it begins anew when the node that keeps the metadata is started again.
    began_ms: u64,
    /// What had moved in that drain when it was first counted: before the command came, and no part of its rate.
    before: Amount,
    /// What was left to do then.
    left: Amount,
    /// What its node last said that it has.
    held: Amount,
    /// What moved since then, in drains that are over, and in all.
    earlier: Amount,
    moved: Amount,
}

impl Known {
    /// Notes what a device says. What there is to do, if that became known.
    fn look(&mut self, device: &Device) -> Option<Amount> {
        let drain = device.drain.clone().unwrap_or_default();
        let (whole, moved) = ((drain.whole_chunks, drain.whole_bytes), (drain.chunks, drain.bytes));
        let mut found = None;
        if !self.counted && (whole, moved) != ((0, 0), (0, 0)) {
            // An older server does not say how much there was: it is what is there, and what moved.
            let whole = if whole == (0, 0) { add((device.chunks, device.live), moved) } else { whole };
            let left = less(whole, moved);
            found = Some(left);
            *self = Known { counted: true, began_ms: drain.began_ms, before: moved, left, ..Known::default() };
        }
        if drain.began_ms != self.began_ms {
            (self.began_ms, self.before, self.earlier) = (drain.began_ms, (0, 0), self.moved);
        }
        self.moved = add(self.earlier, less(moved, self.before));
        self.held = (device.chunks, device.live);
        found
    }

    /// Its turn comes later. What there is to do, if that was not known.
    fn later(&mut self) -> Option<Amount> {
        let found = (!self.counted).then_some(self.held)?;
        (self.counted, self.left) = (true, found);
        Some(found)
    }

    /// Everything has moved. What there was to do, if that was not known.
    fn gone(&mut self) -> Option<Amount> {
        let found = (!self.counted).then_some(self.held);
        (self.counted, self.left) = (true, found.unwrap_or(self.left));
        self.moved = most(self.moved, self.left);
        found
    }
}

impl Emptied {
    /// Notes what these devices say. One that is not there any more is empty.
    pub fn look(&mut self, there: &[&Device], progress: &Progress) {
        let mut found = Vec::new();
        for device in there {
            found.extend(self.devices.entry(device.device.value()).or_default().look(device));
        }
        let is_there = |id: u128| there.iter().any(|device| device.device.value() == id);
        for (_, known) in self.devices.iter_mut().filter(|(id, _)| !is_there(**id)) {
            found.extend(known.gone());
        }
        // A node's devices are emptied one after another: as soon as one has begun the others are a part of the whole.
        if self.devices.values().any(|known| known.counted) {
            found.extend(self.devices.values_mut().filter_map(Known::later));
        }
        for (chunks, bytes) in found {
            progress.found(chunks, bytes);
            progress.found_all();
            progress.begins();
        }
        // A chunk that could not be moved is taken back, and comes again.
        let more = less(self.moved(), self.told);
        self.told = add(self.told, more);
        progress.copied(more.0);
        progress.copied_bytes(more.1);
    }

    /// How many devices there were.
    pub fn count(&self) -> usize {
        self.devices.len()
    }

    /// Chunks and bytes that moved since the command came.
    pub fn moved(&self) -> Amount {
        self.devices.values().map(|known| known.moved).fold((0, 0), add)
    }
}

fn add(a: Amount, b: Amount) -> Amount {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1))
}

fn less(a: Amount, b: Amount) -> Amount {
    (a.0.saturating_sub(b.0), a.1.saturating_sub(b.1))
}

fn most(a: Amount, b: Amount) -> Amount {
    (a.0.max(b.0), a.1.max(b.1))
}

#[cfg(test)]
mod tests {
    use super::Known;
    use client::{Device, DrainState};

    /// A device of whose drain the server says this: which it is, chunks and bytes that moved, and those that there were.
    fn device(began_ms: u64, (chunks, bytes): (u64, u64), (whole_chunks, whole_bytes): (u64, u64)) -> Device {
        let drain = DrainState { began_ms, chunks, bytes, whole_chunks, whole_bytes, ..DrainState::default() };
        Device { chunks: 10, live: 1000, drain: Some(drain), ..Device::default() }
    }

    /// What is left is counted once the drain has begun.
    #[test]
    fn from_the_start() {
        let mut known = Known::default();
        assert_eq!(known.look(&device(7, (0, 0), (0, 0))), None);
        assert_eq!(known.look(&device(7, (0, 20), (12, 1200))), Some((12, 1180)));
        assert_eq!(known.look(&device(7, (1, 120), (12, 1200))), None);
        assert_eq!(known.moved, (1, 100));
    }

    /// A command that comes later counts what is left then and what moves from then on, also when a chunk is taken back and when
    /// the drain begins anew.
    #[test]
    fn later() {
        let mut known = Known::default();
        assert_eq!(known.look(&device(7, (4, 450), (10, 1000))), Some((6, 550)));
        assert_eq!(known.moved, (0, 0));
        known.look(&device(7, (5, 600), (10, 1000)));
        assert_eq!(known.moved, (1, 150));
        known.look(&device(7, (5, 580), (10, 1000)));
        assert_eq!(known.moved, (1, 130));
        known.look(&device(9, (1, 70), (5, 400)));
        assert_eq!(known.moved, (2, 200));
        assert_eq!(known.gone(), None);
        assert_eq!(known.moved, (6, 550));
    }

    /// A device whose turn comes later counts with what it has, once; when its turn has come it counts on from there.
    #[test]
    fn one_after_another() {
        let mut known = Known::default();
        known.look(&device(7, (0, 0), (0, 0)));
        assert_eq!((known.later(), known.later()), (Some((10, 1000)), None));
        assert_eq!(known.look(&device(7, (1, 120), (10, 1000))), None);
        assert_eq!(known.moved, (1, 120));
        assert_eq!((known.gone(), known.moved), (None, (10, 1000)));
    }

    /// A drain that was over before it began to count had what the device had.
    #[test]
    fn at_once() {
        let mut known = Known::default();
        known.look(&device(7, (0, 0), (0, 0)));
        assert_eq!((known.gone(), known.moved), (Some((10, 1000)), (10, 1000)));
        assert_eq!(known.gone(), None);
    }

    /// A server that does not say how much there was has what it has now.
    #[test]
    fn older_servers() {
        let mut known = Known::default();
        assert_eq!(known.look(&device(7, (1, 90), (0, 0))), Some((10, 1000)));
    }
}
