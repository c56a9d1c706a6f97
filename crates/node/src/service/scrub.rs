//! Scrubs as a node knows them: the one under way in a device's thread, what the others see of it, and the names of what it
//! found damaged.

use crate::device_handle::{DeviceHandle, owner_of};
use crate::leading::Leading;
use crate::node::Node;
use base::error::{Error, ErrorKind, Result};
use base::id::{BagId, ChunkId, DeviceId, GroupId, Owner};
use base::layout::Layout;
use base::limit::LIST_PAGE_MAX;
use chunk::Request;
use chunk::scrub::DamagedRange;
use meta::request::FilePiece;
use net::message::{Done, Id, device as wire};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Cells of a damaged range that are named: of a chunk of the usual size all.
const CELLS_MAX: usize = 256;

impl Node {
    /// Begins a scrub.
    pub async fn scrub(&self, ask: wire::Scrub) -> Result<Done> {
        self.device(ask.device)?.scrub(ask.rate).await?;
        Ok(Done {})
    }

    /// How the last scrub of a device of this node went, or goes.
    pub async fn scrubbed(&self, ask: wire::Scrubbed) -> Result<wire::ScrubbedAnswer> {
        let device = self.device(ask.device)?;
        let Some(scrubbed) = device.scrubbed() else { return Ok(wire::ScrubbedAnswer::default()) };
        let mut answer = wire::ScrubbedAnswer { state: Some(scrubbed.state()), ..wire::ScrubbedAnswer::default() };
        if !ask.ranges {
            return Ok(answer);
        }
        answer.not_listed = scrubbed.report.not_listed;
        for range in &scrubbed.report.damaged {
            // Of what was deleted since then nothing is left to restore.
            match device.ask(Request::Stat { chunk: range.chunk }).await {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => drop(other?),
            }
            answer.ranges.push(owned(range));
        }
        Ok(answer)
    }

    /// What the last scrub of a device found, wherever it is, by its present names.
    pub async fn damage(&self, leading: &Leading, device: Id) -> Result<wire::DamageAnswer> {
        let handle = leading.device_handle(self, DeviceId(device.value()))?;
        let ask = wire::Scrubbed { device, ranges: true };
        let found = match &handle {
            DeviceHandle::Local(_) => self.scrubbed(ask).await?,
            DeviceHandle::Remote(far) => far.ask(&ask).await?,
        };
        if found.state.is_none() {
            let text = format!(
                "{} was not scrubbed since its node started; `stormwell device scrub` reads it and compares checksums",
                handle.shown()
            );
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let damaged: Vec<DamagedRange> = found.ranges.iter().map(damaged).collect();
        let (mut groups, mut bags) = (BTreeSet::new(), BTreeSet::new());
        for range in &damaged {
            match range.owner {
                Owner::Group(group) => drop(groups.insert(group)),
                Owner::Bag(bag) => drop(bags.insert(bag)),
                Owner::Newer(_) => (),
            }
        }
        let groups: Vec<GroupId> = groups.into_iter().collect();
        let known = leading.known_groups(&groups).await?;
        let pieces = leading.pieces_of(groups).await?;
        let bags = if bags.is_empty() { Vec::new() } else { leading.bags().await? };
        let bags: BTreeMap<BagId, String> = bags.into_iter().map(|bag| (bag.bag, bag.name)).collect();
        let with_names = |range: &DamagedRange| {
            let within = |group: GroupId| within_group(range, known.get(&group));
            named(range, within, &pieces, &bags)
        };
        Ok(wire::DamageAnswer { ranges: damaged.iter().map(with_names).collect(), not_listed: found.not_listed })
    }
}

impl Leading {
    async fn known_groups(&self, groups: &[GroupId]) -> Result<BTreeMap<GroupId, Layout>> {
        let mut all = BTreeMap::new();
        for groups in groups.chunks(LIST_PAGE_MAX) {
            let request = meta::Request::KnownGroups { groups: groups.to_vec() };
            let meta::Reply::Known(known) = self.metadata.ask(request).await? else {
                unreachable!("known groups were asked for")
            };
            all.extend(known.into_iter().filter_map(|known| Some((known.group, known.layout?))));
        }
        Ok(all)
    }

    async fn pieces_of(&self, groups: Vec<GroupId>) -> Result<Vec<FilePiece>> {
        let mut all = Vec::new();
        for groups in groups.chunks(LIST_PAGE_MAX) {
            let mut resume = None;
            loop {
                let request = meta::Request::FilesIn { groups: groups.to_vec(), resume };
                let meta::Reply::Pieces { pieces, resume: next } = self.metadata.ask(request).await? else {
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

/// A damaged range as the wire has it between nodes.
fn owned(range: &DamagedRange) -> wire::OwnedRange {
    let DamagedRange { chunk, owner, start, end, unreadable } = *range;
    wire::OwnedRange {
        chunk: chunk.0.into(),
        start,
        end,
        unreadable,
        owner: owner.number(),
        of_bag: matches!(owner, Owner::Bag(_)),
        owner_kind: owner.kind().into(),
    }
}

/// The same back again.
fn damaged(range: &wire::OwnedRange) -> DamagedRange {
    let wire::OwnedRange { chunk, start, end, unreadable, owner, of_bag, owner_kind } = *range;
    let owner = owner_of(owner, of_bag, owner_kind);
    DamagedRange { chunk: ChunkId(chunk.value()), owner, start, end, unreadable }
}

/// A damaged range with the names of what lies in it.
fn named(
    range: &DamagedRange,
    within_group: impl Fn(GroupId) -> Vec<Range<u64>>,
    pieces: &[FilePiece],
    bags: &BTreeMap<BagId, String>,
) -> wire::DamagedRange {
    let mut found = wire::DamagedRange {
        chunk: range.chunk.0.into(),
        start: range.start,
        end: range.end,
        unreadable: range.unreadable,
        ..wire::DamagedRange::default()
    };
    match range.owner {
        // It is shown by its chunk alone: whose it is, a newer program says.
        Owner::Newer(_) => (),
        Owner::Bag(bag) => found.bag = bags.get(&bag).cloned().unwrap_or_else(|| format!("number {bag}")),
        Owner::Group(group) => {
            let ranges = within_group(group);
            let of_group = pieces.iter().filter(|piece| piece.group == group);
            found.pieces = of_group.flat_map(|piece| ranges.iter().filter_map(|range| within(range, piece))).collect();
        }
    }
    found
}

/// The bytes of a group that a damaged range of one of its columns holds. Of a group that is gone nothing is to be restored.
fn within_group(range: &DamagedRange, layout: Option<&Layout>) -> Vec<Range<u64>> {
    let Some(layout) = layout else { return Vec::new() };
    let column = layout.columns().iter().position(|column| column.chunk() == range.chunk);
    let ranges = column.map(|column| layout.stripe().group_ranges(column, range.start..range.end));
    ranges.into_iter().flatten().take(CELLS_MAX).collect()
}

/// The part of a file's piece that is damaged.
fn within(range: &Range<u64>, piece: &FilePiece) -> Option<wire::FileRange> {
    let start = range.start.max(piece.group_offset);
    let end = range.end.min(piece.group_offset.saturating_add(piece.length));
    let in_file = |at: u64| piece.file_offset.saturating_add(at - piece.group_offset);
    (start < end).then(|| wire::FileRange { path: piece.path.clone(), start: in_file(start), end: in_file(end) })
}

#[cfg(test)]
mod tests {
    use super::{within, within_group};
    use base::id::{ChunkId, DeviceId, GroupId, Owner};
    use base::layout::{Column, Layout};
    use chunk::scrub::DamagedRange;
    use meta::request::FilePiece;

    /// A damaged range of a chunk becomes the bytes of the file that lie in it, and no others.
    #[test]
    fn places() {
        let piece =
            FilePiece { path: "/f".to_string(), file_offset: 1000, group: GroupId(1), group_offset: 100, length: 50 };
        let found = |start: u64, end: u64| within(&(start..end), &piece).map(|range| (range.start, range.end));
        assert_eq!(found(0, 4096), Some((1000, 1050)));
        assert_eq!(found(120, 130), Some((1020, 1030)));
        assert_eq!((found(0, 100), found(150, 200)), (None, None));
        assert_eq!(found(149, u64::MAX), Some((1049, 1050)));
    }

    /// A damaged range of one of several columns is the cells of the group that lie in it.
    #[test]
    fn columns() {
        let owner = Owner::Group(GroupId(1));
        let damaged = |start, end| DamagedRange { chunk: ChunkId(7), owner, start, end, unreadable: false };
        let column = |chunk| Column::single(ChunkId(chunk), DeviceId(1));
        let layout = Layout::new(vec![column(6), column(7)], 4096).expect("it can be");
        let found = |start, end| within_group(&damaged(start, end), Some(&layout));
        assert_eq!(found(50, 10_000), [4146..8192, 12_288..16_384, 20_480..22_288]);
        assert_eq!(within_group(&damaged(0, 10), None), []);
        let one = Layout::single(ChunkId(7), DeviceId(1));
        assert_eq!(within_group(&damaged(50, 250), Some(&one)).first(), Some(&(50..250)));
    }
}
