//! The chunks of a group as a client has them, and waiting for several of them at once.

use base::error::Result;
use base::id::DeviceId;
use base::layout::{Column, Layout, Replica};
use net::message::Id;
use net::message::file::Extent;
use std::future::{Future, poll_fn};
use std::task::Poll;

/// The chunk that is asked for a column's bytes, and the device that is asked, as messages name them: the column's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) device: Id,
    pub(crate) chunk: Id,
}

impl From<Replica> for Head {
    fn from(replica: Replica) -> Head {
        Head { device: replica.device.0.into(), chunk: replica.chunk.0.into() }
    }
}

impl From<&Column> for Head {
    fn from(column: &Column) -> Head {
        Head { device: column.head().0.into(), chunk: column.chunk().0.into() }
    }
}

/// What speaks for asking another replica of a column first: the least of them is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    /// It failed lately, or its node is silent.
    pub(crate) away: bool,
    /// It is on another machine.
    pub(crate) far: bool,
    /// Bytes that this client has asked it for.
    pub(crate) under_way: u64,
}

/// The replicas of a column that a reader has not asked yet. Writers have nothing to choose: see `Head`.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    chunk: Id,
    devices: Vec<DeviceId>,
}

impl Places {
    /// Of a closed group all of them have the same bytes, each of an open one what came to it: there the head alone says what can be read.
    pub(crate) fn of(column: &Column, open: bool) -> Places {
        let count = if open { 1 } else { usize::MAX };
        Places { chunk: column.chunk().0.into(), devices: column.devices().take(count).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }

    pub(crate) fn are_several(&self) -> bool {
        self.devices.len() > 1
    }

    /// These are to be asked once more.
    pub(crate) fn give_back(&mut self, devices: Vec<Id>) {
        self.devices.extend(devices.into_iter().map(|device| DeviceId(device.value())));
    }

    /// The one to ask first; among equals the one that the layout names first.
    pub(crate) fn take(&mut self, standing: impl Fn(Id) -> Standing) -> Option<Head> {
        let first = match self.devices.as_slice() {
            [_, _, ..] => (0..self.devices.len()).min_by_key(|place| standing(self.devices[*place].0.into()))?,
            _ => 0,
        };
        let device = (first < self.devices.len()).then(|| self.devices.remove(first))?;
        Some(Head { device: device.0.into(), chunk: self.chunk })
    }

    /// Whether one of them is like this.
    pub(crate) fn have(&self, is: impl Fn(Id) -> bool) -> bool {
        self.devices.iter().any(|device| is(device.0.into()))
    }
}

/// Whether a layout names no replica that another one does not: whoever asked all of that one has nobody left to ask.
pub(crate) fn brings_nothing(now: &Layout, before: &Layout) -> bool {
    let is_known = |(now, before): (&Column, &Column)| {
        now.chunk() == before.chunk() && now.devices().all(|device| before.has(device))
    };
    let same_shape = now.cell() == before.cell() && now.columns().len() == before.columns().len();
    same_shape && now.columns().iter().zip(before.columns()).all(is_known)
}

/// What a replica of a column has of an extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which column, from 0 on.
    pub column: usize,
    /// How many the group has.
    pub columns: usize,
    /// Bytes of a cell, if there are several.
    pub cell: u64,
    /// The device that has the column's chunk.
    pub device: Id,
    /// That chunk.
    pub chunk: Id,
    /// The first byte of the extent that is there, counted within the chunk.
    pub start: u64,
    /// How many bytes of it are there.
    pub bytes: u64,
}

/// Where the bytes of an extent are: a part for each replica of a column that has some, or may get some. `Protocol` if no group is like this.
pub fn parts(extent: &Extent) -> Result<Vec<Part>> {
    let layout = extent.layout.checked()?;
    let (columns, cell) = (layout.columns().len(), layout.cell());
    let range = extent.group_offset..extent.group_offset.saturating_add(extent.length);
    let part = |Replica { column, device, chunk }: Replica| {
        let there = layout.stripe().column_range(range.clone(), column);
        let (device, chunk, bytes) = (device.0.into(), chunk.0.into(), there.end - there.start);
        Part { column, columns, cell, device, chunk, start: there.start, bytes }
    };
    let parts = layout.replicas().map(part);
    Ok(parts.filter(|part| part.bytes > 0 || extent.open).collect())
}

/// Waits for all of these at once. What comes out of each, in their order. For a few: each is looked at whenever one of them moves.
pub(crate) async fn together<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(|future| Some(Box::pin(future))).collect();
    let mut came: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut all = true;
        for (future, output) in waiting.iter_mut().zip(&mut came) {
            let Some(pinned) = future else { continue };
            match pinned.as_mut().poll(context) {
                Poll::Ready(found) => (*future, *output) = (None, Some(found)),
                Poll::Pending => all = false,
            }
        }
        if all { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    came.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::{Places, Standing, brings_nothing, parts, together};
    use base::error::ErrorKind;
    use base::id::{ChunkId, DeviceId};
    use base::layout::{Column, Layout};
    use net::message::file::Extent;
    use net::message::layout;
    use prost::Message;
    use std::time::Duration;

    /// A node that says nonsense about columns is refused.
    #[test]
    fn nonsense() {
        let column = |number: u128| layout::Column { chunk: number.into(), ..layout::Column::default() };
        let said = |columns: u128, cell| layout::Layout { columns: (0..columns).map(column).collect(), cell };
        for (columns, cell) in [(0, 0), (2, 0), (2, 5), (16, 4097), (17, 4096), (100_000, 1 << 20)] {
            let refused = said(columns, cell).checked().map_err(|error| error.kind());
            assert_eq!(refused.err(), Some(ErrorKind::Protocol), "{columns} of {cell}");
        }
        for (columns, cell) in [(1, 0), (1, 5), (2, 4096), (16, u64::MAX / 4096 * 4096)] {
            assert_eq!(said(columns, cell).checked().unwrap().columns().len(), columns as usize);
        }
    }

    /// What lies on several devices is shown for each of them, and not written to one of them alone.
    #[test]
    fn replicas() {
        let column =
            |chunk: u128, devices: [u128; 2]| Column::new(ChunkId(chunk), devices.into_iter().map(DeviceId)).unwrap();
        let both = Layout::new(vec![column(5, [1, 2]), column(6, [3, 1])], 4096).unwrap();
        let bytes = layout::Layout::from(&both).encode_to_vec();
        let sent = layout::Layout::decode(bytes.as_slice()).unwrap();
        assert_eq!(sent.checked().unwrap(), both, "it passes the wire as it is");
        let extent = Extent { length: 4096 + 10, layout: sent.clone(), ..Extent::default() };
        let found = parts(&extent).unwrap().into_iter().map(|part| (part.column, part.device.value(), part.bytes));
        assert_eq!(found.collect::<Vec<_>>(), [(0, 1, 4096), (0, 2, 4096), (1, 3, 10), (1, 1, 10)]);
    }

    /// A reader asks each replica once: near ones before far ones, of equals the one with the fewest bytes under way, of those the first that
    /// is named, and what is away last. Of an open group it asks the head alone.
    #[test]
    fn places() {
        let column = Column::new(ChunkId(5), [4, 3, 2, 1].map(DeviceId).into_iter()).unwrap();
        let order = |open, standing: &dyn Fn(u128) -> (bool, bool, u64)| {
            let mut places = Places::of(&column, open);
            let standing = |device: net::message::Id| {
                let (away, far, under_way) = standing(device.value());
                Standing { away, far, under_way }
            };
            std::iter::from_fn(|| places.take(standing)).map(|head| head.device.value()).collect::<Vec<_>>()
        };
        assert_eq!(order(false, &|_| (false, true, 0)), [4, 3, 2, 1]);
        assert_eq!(order(false, &|device| (false, true, device as u64 % 2)), [4, 2, 3, 1]);
        assert_eq!(order(false, &|device| (false, device != 1, 9 * u64::from(device == 1))), [1, 4, 3, 2]);
        assert_eq!(order(false, &|device| (device % 2 == 0, device > 2, 0)), [1, 3, 2, 4]);
        assert_eq!(order(true, &|device| (device == 4, true, 0)), [4]);
    }

    /// Another order, or fewer replicas, bring nobody to ask; a new one does, or a chunk of another name.
    #[test]
    fn what_a_layout_brings() {
        let layout = |chunk: u128, devices: &[u128]| {
            let column = Column::new(ChunkId(chunk), devices.iter().copied().map(DeviceId)).unwrap();
            Layout::new(vec![Column::single(ChunkId(1), DeviceId(9)), column], 4096).unwrap()
        };
        let before = layout(5, &[1, 2, 3]);
        for (chunk, devices, nothing) in
            [(5, &[1, 2, 3][..], true), (5, &[3, 1], true), (5, &[1, 4], false), (6, &[1, 2, 3], false)]
        {
            assert_eq!(brings_nothing(&layout(chunk, devices), &before), nothing, "{chunk} on {devices:?}");
        }
        assert!(!brings_nothing(&Layout::single(ChunkId(1), DeviceId(9)), &before));
    }

    /// What is waited for together comes in its order, after the time of the slowest.
    #[tokio::test(start_paused = true)]
    async fn all_at_once() {
        let wait = |seconds: u64| async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            seconds
        };
        let all = tokio::time::timeout(Duration::from_millis(3100), together([3, 1, 2].map(wait)));
        assert_eq!(all.await.expect("not one after another"), [3, 1, 2]);
        assert_eq!(together(Vec::<std::future::Ready<u8>>::new()).await, []);
    }
}
