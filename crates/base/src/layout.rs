//! Where the bytes of a group lie: in columns, over which its cells go round, and of each column in one replica or several.
//!
//! This is the only place that answers which chunks a group has, what of it lies in which, and how long it is. A `Layout` is checked
//! when it is made, so that no replica is ever taken for a column.

use crate::id::{ChunkId, DeviceId};
use crate::limit::{BLOCK, COLUMNS_MAX, REPLICAS_MAX};
use crate::stripe::Stripe;

/// One column of a group: a chunk that lies on one device or several, under one name and with the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    chunk: ChunkId,
    head: DeviceId,
    others: Vec<DeviceId>,
}

impl Column {
    /// A column with a single replica.
    pub fn single(chunk: ChunkId, device: DeviceId) -> Column {
        Column { chunk, head: device, others: Vec::new() }
    }

    /// A column with a replica on each of these devices, the first of which is the head. None if no column can have them: there has to
    /// be one, at most `REPLICAS_MAX`, and none twice.
    pub fn new(chunk: ChunkId, mut devices: impl Iterator<Item = DeviceId>) -> Option<Column> {
        let mut column = Column::single(chunk, devices.next()?);
        for device in devices {
            if column.has(device) || column.others.len() + 1 == REPLICAS_MAX {
                return None;
            }
            column.others.push(device);
        }
        Some(column)
    }

    /// The name of its chunk on every one of its devices.
    pub fn chunk(&self) -> ChunkId {
        self.chunk
    }

    /// The first of its devices.
    pub fn head(&self) -> DeviceId {
        self.head
    }

    /// The devices of its other replicas.
    pub fn others(&self) -> &[DeviceId] {
        &self.others
    }

    /// All of its devices, the head first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        std::iter::once(self.head).chain(self.others.iter().copied())
    }

    /// Whether one of its replicas is on this device.
    pub fn has(&self, device: DeviceId) -> bool {
        self.devices().any(|has| has == device)
    }
}

/// A chunk on a device that holds a column's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Which column, from 0 on.
    pub column: usize,
    /// Where it is.
    pub device: DeviceId,
    /// Its name, which all replicas of the column have.
    pub chunk: ChunkId,
}

/// Where the bytes of a group lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    columns: Vec<Column>,
    cell: u64,
    stripe: Stripe,
}

impl Layout {
    /// These columns, with cells of so many bytes going round them if they are several. The numbers may be anybody's: none if no group can
    /// have them. Several columns need cells of whole blocks and chunks of different names.
    pub fn new(columns: Vec<Column>, cell: u64) -> Option<Layout> {
        let cell = if columns.len() == 1 { 0 } else { cell };
        let stripe = Stripe::new(columns.len(), cell)?;
        let is_named_again =
            |(at, column): (usize, &Column)| columns[..at].iter().any(|other| other.chunk == column.chunk);
        let fits = columns.len() <= COLUMNS_MAX && cell.is_multiple_of(BLOCK as u64);
        (fits && !columns.iter().enumerate().any(is_named_again)).then_some(Layout { columns, cell, stripe })
    }

    /// One column with one replica.
    pub fn single(chunk: ChunkId, device: DeviceId) -> Layout {
        match Layout::new(vec![Column::single(chunk, device)], 0) {
            Some(layout) => layout,
            None => unreachable!("one column needs no cell"),
        }
    }

    /// The same, with the replicas of each column in the order of these keys, and as they are among equals.
    #[must_use]
    pub fn sorted_by_key<K: Ord>(mut self, key: impl Fn(DeviceId) -> K) -> Layout {
        for column in &mut self.columns {
            let mut devices: Vec<DeviceId> = column.devices().collect();
            devices.sort_by_key(|device| key(*device));
            column.head = devices.remove(0);
            column.others = devices;
        }
        self
    }

    /// Its columns, in the order in which cells go round them.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Bytes of a cell; zero if there is one column, which needs none.
    pub fn cell(&self) -> u64 {
        self.cell
    }

    /// How the bytes go round the columns.
    pub fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// Whether a column has more than one replica.
    pub fn has_several(&self) -> bool {
        self.columns.iter().any(|column| !column.others.is_empty())
    }

    /// All replicas of all columns, column after column, the head of each first.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> + '_ {
        let columns = self.columns.iter().enumerate();
        columns.flat_map(|(column, of)| of.devices().map(move |device| Replica { column, device, chunk: of.chunk }))
    }

    /// Those of them that are on this device.
    pub fn on(&self, device: DeviceId) -> impl Iterator<Item = Replica> + '_ {
        self.replicas().filter(move |replica| replica.device == device)
    }

    /// How long the group is when its replicas have these lengths, each told with the number of its column. A column has what every one of
    /// its replicas has of which a length is told, and nothing if none is; the group ends at the first byte that a column lacks.
    pub fn length(&self, of_replicas: impl IntoIterator<Item = (usize, u64)>) -> u64 {
        let mut least: Vec<Option<u64>> = vec![None; self.columns.len()];
        for (column, length) in of_replicas {
            let known = &mut least[column];
            *known = Some(known.map_or(length, |known| known.min(length)));
        }
        let lengths: Vec<u64> = least.into_iter().map(Option::unwrap_or_default).collect();
        self.stripe.group_length(&lengths)
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, Layout, Replica};
    use crate::id::{ChunkId, DeviceId};
    use crate::limit::{BLOCK, COLUMNS_MAX, REPLICAS_MAX};

    fn column(chunk: u128, devices: &[u128]) -> Option<Column> {
        Column::new(ChunkId(chunk), devices.iter().copied().map(DeviceId))
    }

    /// What no group can have is refused, whoever says it.
    #[test]
    fn foreign() {
        let most: Vec<u128> = (0..REPLICAS_MAX as u128).collect();
        assert_eq!(column(1, &most).expect("so many may be").devices().count(), REPLICAS_MAX);
        let more: Vec<u128> = (0..=REPLICAS_MAX as u128).collect();
        assert_eq!([column(1, &[]), column(1, &more), column(1, &[4, 5, 4])], [None, None, None]);
        let columns =
            |count: usize| (0..count as u128).map(|chunk| Column::single(ChunkId(chunk), DeviceId(1))).collect();
        let block = BLOCK as u64;
        for (count, cell) in [(0, block), (2, 0), (2, 1), (3, block + 1), (COLUMNS_MAX + 1, block)] {
            assert_eq!(Layout::new(columns(count), cell), None, "{count} of {cell}");
        }
        for (count, cell) in [(1, 0), (1, 7), (2, block), (COLUMNS_MAX, u64::MAX / block * block)] {
            let layout = Layout::new(columns(count), cell).expect("it can be");
            assert_eq!((layout.columns().len(), layout.cell()), (count, if count == 1 { 0 } else { cell }));
        }
        let twice = vec![Column::single(ChunkId(1), DeviceId(1)), Column::single(ChunkId(1), DeviceId(2))];
        assert_eq!(Layout::new(twice, block), None, "these are replicas of one column");
    }

    /// Replicas are never columns: bytes go round the columns, however many replicas each has, and the length is what all replicas have.
    #[test]
    fn replicas_are_no_columns() {
        let block = BLOCK as u64;
        let columns = vec![column(6, &[1, 2, 3]).unwrap(), column(7, &[4, 1]).unwrap()];
        let layout = Layout::new(columns, block).expect("it can be");
        assert_eq!(layout.stripe().columns(), 2);
        let replica = |column, device, chunk| Replica { column, device: DeviceId(device), chunk: ChunkId(chunk) };
        let all = [(0, 1, 6), (0, 2, 6), (0, 3, 6), (1, 4, 7), (1, 1, 7)]
            .map(|(column, device, chunk)| replica(column, device, chunk));
        assert_eq!(layout.replicas().collect::<Vec<_>>(), all);
        assert_eq!(layout.on(DeviceId(1)).collect::<Vec<_>>(), [all[0], all[4]]);
        let long = 5 * block;
        assert_eq!(layout.length([(0, long), (0, long), (0, long), (1, long), (1, long)]), 10 * block);
        assert_eq!(layout.length([(0, long), (0, 10), (0, long), (1, long), (1, long)]), 10, "one replica is short");
        assert_eq!(
            layout.length([(0, long), (1, long), (1, 0)]),
            block,
            "the second column has nothing that all of it have"
        );
        assert_eq!(layout.length([(0, long)]), block, "nothing is known of the second column");
        assert_eq!(layout.length([]), 0);
    }
}
