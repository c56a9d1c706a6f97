//! The scrub of one device: in the device's thread, and as others see it.

use base::error::Result;
use base::limit::SCRUB_RATE;
use base::unit::{Time, WallTime};
use chunk::scrub::{Scrub, ScrubReport};
use chunk::{Engine, Reply, Request};
use net::message::device as wire;

/// A scrub as others see it.
#[derive(Clone, Debug)]
pub struct Scrubbed {
    /// When it began.
    pub began: WallTime,
    /// When it ended; none while it is under way.
    pub ended: Option<WallTime>,
    /// Bytes a second that it may read.
    pub rate: u64,
    /// What it found so far.
    pub report: ScrubReport,
}

impl Scrubbed {
    /// As the wire has it.
    pub fn state(&self) -> wire::ScrubState {
        let report = &self.report;
        wire::ScrubState {
            running: self.ended.is_none(),
            began_ms: self.began.0,
            ended_ms: self.ended.map_or(0, |ended| ended.0),
            chunks: report.chunks,
            bytes: report.bytes,
            damaged_ranges: (report.damaged.len() as u64).saturating_add(report.not_listed),
            damaged_bytes: report.damaged_bytes,
            rate: self.rate,
        }
    }
}

/// The scrub of one device, in the device's thread.
#[derive(Default)]
pub struct Scrubbing {
    present: Option<Scrub>,
    rate: u64,
}

impl Scrubbing {
    /// Begins one, unless one is under way. Whether it did.
    pub fn begin(&mut self, now: Time, rate: u64) -> bool {
        if self.present.is_some() {
            return false;
        }
        self.rate = if rate == 0 { SCRUB_RATE } else { rate };
        self.present = Some(Scrub::begin(now, self.rate));
        true
    }

    /// What to ask the engine now, if anything.
    pub fn next<T>(&mut self, now: Time, busy: bool, engine: &Engine<T>) -> Option<Request> {
        self.present.as_mut()?.next(now, busy, engine)
    }

    /// Takes the engine's answer.
    pub fn took<T>(&mut self, result: &Result<Reply>, engine: &Engine<T>) {
        if let Some(scrub) = &mut self.present {
            scrub.took(result, engine);
        }
    }

    /// When `next` should be asked again although nothing happened.
    pub fn next_due(&self, busy: bool) -> Option<Time> {
        self.present.as_ref()?.next_due(busy)
    }

    /// Whether there is one that has come to its end, and nobody was shown that yet.
    pub fn ended(&self) -> bool {
        self.present.as_ref().is_some_and(|scrub| scrub.report().over)
    }

    /// Brings what others see up to date.
    pub fn show(&self, shown: &mut Option<Scrubbed>, began: Option<WallTime>, now: WallTime) {
        let Some(scrub) = &self.present else { return };
        let report = scrub.report().clone();
        let began = began.or(shown.as_ref().map(|shown| shown.began)).unwrap_or(now);
        *shown = Some(Scrubbed { began, ended: report.over.then_some(now), rate: self.rate, report });
    }

    /// Forgets one that has come to its end.
    pub fn forget(&mut self) {
        self.present = None;
    }
}
