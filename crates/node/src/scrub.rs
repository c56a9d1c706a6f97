//! Scrubs as a node knows them: the one under way in a device's thread, what the others see of it, and the names of what it
//! found damaged.

use crate::service::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, GroupId, Owner};
use base::limit::{LIST_PAGE_MAX, SCRUB_RATE};
use base::unit::{Time, WallTime};
use chunk::scrub::{DamagedRange, Scrub, ScrubReport};
use chunk::{Engine, Reply, Request};
use meta::request::FilePiece;
use net::message::{Done, Id, device as wire};
use std::collections::{BTreeMap, BTreeSet};

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

impl Node {
    /// Begins a scrub.
    pub async fn scrub(&self, ask: wire::Scrub) -> Result<Done> {
        self.device(ask.device)?.scrub(ask.rate).await?;
        Ok(Done {})
    }

    /// What the last scrub of a device found, by its present names.
    pub async fn damage(&self, device: Id) -> Result<wire::DamageAnswer> {
        let device = self.device(device)?;
        let Some(Scrubbed { report, .. }) = device.scrubbed() else {
            let text = format!(
                "{} was not scrubbed since the node started; `stormwell device scrub` reads it and compares checksums",
                device.place
            );
            return Err(Error::new(ErrorKind::NotFound, text));
        };
        let (mut groups, mut bags) = (BTreeSet::new(), BTreeSet::new());
        for range in &report.damaged {
            match range.owner {
                Owner::Group(group) => drop(groups.insert(group)),
                Owner::Bag(bag) => drop(bags.insert(bag)),
            }
        }
        let pieces = self.pieces_of(groups.into_iter().collect()).await?;
        let bags = if bags.is_empty() { Vec::new() } else { self.bags().await? };
        let bags: BTreeMap<BagId, String> = bags.into_iter().map(|bag| (bag.bag, bag.name)).collect();
        let mut ranges = Vec::with_capacity(report.damaged.len());
        for range in &report.damaged {
            // Of what was deleted since then nothing is left to restore.
            match device.ask(Request::Stat { chunk: range.chunk }).await {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => drop(other?),
            }
            ranges.push(named(range, &pieces, &bags));
        }
        Ok(wire::DamageAnswer { ranges, not_listed: report.not_listed })
    }

    async fn pieces_of(&self, groups: Vec<GroupId>) -> Result<Vec<FilePiece>> {
        let mut all = Vec::new();
        for groups in groups.chunks(LIST_PAGE_MAX) {
            let mut resume = None;
            loop {
                let request = meta::Request::FilesIn { groups: groups.to_vec(), resume };
                let meta::Reply::Pieces { pieces, resume: next } = self.metadata()?.ask(request).await? else {
                    unreachable!("the names of groups were asked for")
                };
                all.extend(pieces);
                resume = next;
                if resume.is_none() {
                    break;
                }
            }
        }
        Ok(all)
    }
}

/// A damaged range with the names of what lies in it.
fn named(range: &DamagedRange, pieces: &[FilePiece], bags: &BTreeMap<BagId, String>) -> wire::DamagedRange {
    let mut found = wire::DamagedRange {
        chunk: range.chunk.0.into(),
        start: range.start,
        end: range.end,
        unreadable: range.unreadable,
        ..wire::DamagedRange::default()
    };
    match range.owner {
        Owner::Bag(bag) => found.bag = bags.get(&bag).cloned().unwrap_or_else(|| format!("number {bag}")),
        Owner::Group(group) => {
            found.pieces =
                pieces.iter().filter(|piece| piece.group == group).filter_map(|piece| within(range, piece)).collect();
        }
    }
    found
}

/// The part of a file's piece that is damaged.
fn within(range: &DamagedRange, piece: &FilePiece) -> Option<wire::FileRange> {
    let start = range.start.max(piece.group_offset);
    let end = range.end.min(piece.group_offset.saturating_add(piece.length));
    let in_file = |at: u64| piece.file_offset.saturating_add(at - piece.group_offset);
    (start < end).then(|| wire::FileRange { path: piece.path.clone(), start: in_file(start), end: in_file(end) })
}

#[cfg(test)]
mod tests {
    use super::within;
    use base::id::{ChunkId, GroupId, Owner};
    use chunk::scrub::DamagedRange;
    use meta::request::FilePiece;

    /// A damaged range of a chunk becomes the bytes of the file that lie in it, and no others.
    #[test]
    fn places() {
        let owner = Owner::Group(GroupId(1));
        let damaged = |start, end| DamagedRange { chunk: ChunkId(1), owner, start, end, unreadable: false };
        let piece =
            FilePiece { path: "/f".to_string(), file_offset: 1000, group: GroupId(1), group_offset: 100, length: 50 };
        let found = |start, end| within(&damaged(start, end), &piece).map(|range| (range.start, range.end));
        assert_eq!(found(0, 4096), Some((1000, 1050)));
        assert_eq!(found(120, 130), Some((1020, 1030)));
        assert_eq!((found(0, 100), found(150, 200)), (None, None));
        assert_eq!(found(149, u64::MAX), Some((1049, 1050)));
    }
}
