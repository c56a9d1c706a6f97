//! The chunks of a group as a client has them, and waiting for several of them at once.

use base::error::{Error, ErrorKind, Result};
use base::layout::{Column, Layout, Replica};
use net::message::Id;
use net::message::file::{Extent, NewGroup};
use std::future::{Future, poll_fn};
use std::task::Poll;

/// The chunk that is asked for a column's bytes, and the device that is asked, as messages name them: the column's head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) device: Id,
    pub(crate) chunk: Id,
}

impl From<&Column> for Head {
    fn from(column: &Column) -> Head {
        Head { device: column.head().0.into(), chunk: column.chunk().0.into() }
    }
}

/// The layout of a group to write to. `Protocol` if no group can have it; `Unsupported` if a column has several replicas, all of which
/// would have to get the bytes: this program sends them to one.
pub(crate) fn to_write(group: &NewGroup) -> Result<Layout> {
    let layout = group.layout.checked()?;
    if layout.columns().iter().all(|column| column.others().is_empty()) {
        return Ok(layout);
    }
    let text = format!(
        "group {} has several replicas, and this program writes one; nothing was written; use a client of the node's version",
        group.group
    );
    Err(Error::new(ErrorKind::Unsupported, text))
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
    use super::{parts, to_write, together};
    use base::error::ErrorKind;
    use base::id::{ChunkId, DeviceId};
    use base::layout::{Column, Layout};
    use net::message::file::{Extent, NewGroup};
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
        let refused = to_write(&NewGroup { group: 1, room: 0, layout: sent }).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::Unsupported));
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
