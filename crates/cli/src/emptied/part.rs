//! What is said of a drain by commands that look once.

use super::{Amount, add, less};
use crate::show;
use base::unit::{WallTime, show_bytes};
use client::Device;
use serde_json::{Value, json};
use std::time::Duration;

/// How much of what was on devices has moved.
#[derive(Debug, PartialEq)]
pub struct Part {
    moved: Amount,
    whole: Amount,
    /// How long the rest takes if it goes on as fast; none: nothing moved yet, or it waits.
    left: Option<Duration>,
    /// What it waits for.
    waits: Vec<String>,
}

impl Part {
    /// Of those of the devices that are being emptied; none: no one is.
    pub fn of(devices: &[&Device], now: WallTime) -> Option<Part> {
        let drains: Vec<_> = devices.iter().filter_map(|device| Some((device, device.drain.as_ref()?))).collect();
        let began = drains.iter().map(|(_, drain)| drain.began_ms).min()?;
        let moved = drains.iter().map(|(_, drain)| (drain.chunks, drain.bytes)).fold((0, 0), add);
        let whole = drains.iter().map(|(device, drain)| match (drain.whole_chunks, drain.whole_bytes) {
            // Its turn has not come, or an older server does not say: it is what is there, and what moved.
            (0, 0) => add((device.chunks, device.live), (drain.chunks, drain.bytes)),
            whole => whole,
        });
        let whole = whole.fold((0, 0), add);
        let waits: Vec<String> =
            drains.iter().map(|(_, drain)| drain.waits.clone()).filter(|waits| !waits.is_empty()).collect();
        let worked = Duration::from_millis(now.0.saturating_sub(began));
        let seconds = worked.as_secs_f64() / moved.1.max(1) as f64 * less(whole, moved).1 as f64;
        let left = (moved.1 > 0 && waits.is_empty()).then(|| Duration::from_secs_f64(seconds.min(1e9)));
        Some(Part { moved, whole, left, waits })
    }

    /// `43 % emptied: 1.2 GiB of 2.8 GiB, 12 of 30 chunks; about 75 s left`.
    pub fn sentence(&self) -> String {
        let mut text = format!(
            "{} % emptied: {} of {}, {} of {}",
            self.percent(),
            show_bytes(self.moved.1),
            show_bytes(self.whole.1),
            show::thousands(self.moved.0),
            show::count(self.whole.0, "chunk", "chunks")
        );
        if let Some(left) = self.left {
            text.push_str(&format!("; about {} left", show::duration(left)));
        }
        text
    }

    /// The lines below a device or a node that is being emptied.
    pub fn lines(&self) -> Vec<String> {
        let waits = self.waits.iter().map(|waits| format!("waits for {waits}"));
        std::iter::once(self.sentence()).chain(waits).collect()
    }

    /// The same for programs.
    pub fn object(&self) -> Value {
        json!({
            "chunks": self.moved.0,
            "bytes": self.moved.1,
            "whole_chunks": self.whole.0,
            "whole_bytes": self.whole.1,
            "percent": self.percent(),
            "seconds_left": self.left.map(|left| left.as_secs_f64()),
            "waits": self.waits.join("; "),
        })
    }

    /// By bytes; by chunks if there are none. Only what is over is whole.
    fn percent(&self) -> u64 {
        let (moved, whole) = if self.whole.1 > 0 { (self.moved.1, self.whole.1) } else { (self.moved.0, self.whole.0) };
        (u128::from(moved) * 100 / u128::from(whole.max(1))).min(99) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Part;
    use base::unit::WallTime;
    use client::{Device, DrainState};

    fn device(moved: (u64, u64), (whole_chunks, whole_bytes): (u64, u64), waits: &str) -> Device {
        let drain = DrainState {
            began_ms: 10_000,
            chunks: moved.0,
            bytes: moved.1,
            waits: waits.to_string(),
            whole_chunks,
            whole_bytes,
        };
        Device { chunks: 10, live: 1 << 30, drain: Some(drain), ..Device::default() }
    }

    /// All devices that are being emptied count, those too whose turn has not come; time left is of the bytes of all.
    #[test]
    fn several_devices() {
        let (first, second) = (device((4, 1 << 29), (10, 1 << 30), ""), device((0, 0), (0, 0), ""));
        let part = Part::of(&[&first, &Device::default()], WallTime(30_000)).expect("one is being emptied");
        assert_eq!(part.sentence(), "50 % emptied: 512 MiB of 1.0 GiB, 4 of 10 chunks; about 20 s left");
        let part = Part::of(&[&first, &second], WallTime(30_000)).expect("two are");
        assert_eq!(part.lines(), ["25 % emptied: 512 MiB of 2.0 GiB, 4 of 20 chunks; about 60 s left"]);
        assert_eq!(part.object()["seconds_left"], 60.0);
        assert_eq!(Part::of(&[&Device::default()], WallTime(30_000)), None);
    }

    /// No time is told before anything moved, and while it waits; what is nearly done is not called done.
    #[test]
    fn no_time_left() {
        let part = Part::of(&[&device((0, 0), (0, 0), "")], WallTime(9_000)).expect("it is");
        assert_eq!(part.lines(), ["0 % emptied: 0 B of 1.0 GiB, 0 of 10 chunks"]);
        let waits = device((10, 1 << 30), (10, 1 << 30), "3 chunks of bag b to be handled");
        let part = Part::of(&[&waits], WallTime(30_000)).expect("it is");
        assert_eq!(
            part.lines(),
            ["99 % emptied: 1.0 GiB of 1.0 GiB, 10 of 10 chunks", "waits for 3 chunks of bag b to be handled"]
        );
        assert!(part.object()["seconds_left"].is_null());
    }
}
