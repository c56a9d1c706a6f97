//! The chunks of a group as a client has them, and waiting for several of them at once.

use base::error::{Error, ErrorKind, Result};
use base::limit::{BLOCK, COLUMNS_MAX};
use base::stripe::Stripe;
use net::message::Id;
use net::message::file::{Column, Extent, NewGroup};
use std::future::{Future, poll_fn};
use std::task::Poll;

/// Where the bytes of a group are: one chunk, or several columns.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    chunks: Vec<Column>,
    stripe: Stripe,
}

impl Columns {
    /// Those of a group to write to. `Protocol` if no group can have them.
    pub(crate) fn of_group(group: &NewGroup) -> Result<Columns> {
        Columns::new(Column { device: group.device, chunk: group.chunk }, &group.columns, group.cell)
    }

    /// Those of a part of a file. `Protocol` if no group can have them.
    pub(crate) fn of_extent(extent: &Extent) -> Result<Columns> {
        Columns::new(Column { device: extent.device, chunk: extent.chunk }, &extent.columns, extent.cell)
    }

    fn new(only: Column, several: &[Column], cell: u64) -> Result<Columns> {
        let chunks = if several.is_empty() { vec![only] } else { several.to_vec() };
        let whole_blocks = chunks.len() == 1 || cell.is_multiple_of(BLOCK as u64);
        match Stripe::new(chunks.len(), cell) {
            Some(stripe) if whole_blocks && chunks.len() <= COLUMNS_MAX => Ok(Columns { chunks, stripe }),
            _ => {
                let text = format!(
                    "the node says that bytes go round {} columns in cells of {cell} bytes, which cannot be; nothing was changed; \
                     check that client and node have one version",
                    chunks.len()
                );
                Err(Error::new(ErrorKind::Protocol, text))
            }
        }
    }

    /// How the bytes lie in them.
    pub(crate) fn stripe(&self) -> Stripe {
        self.stripe
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// The chunk of a column.
    pub(crate) fn chunk(&self, column: usize) -> Column {
        self.chunks[column]
    }

    /// All of them, in their order.
    pub(crate) fn chunks(&self) -> &[Column] {
        &self.chunks
    }
}

/// What a column has of an extent.
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

/// Where the bytes of an extent are: a part for each column that has some, or may get some. `Protocol` if no group is like this.
pub fn parts(extent: &Extent) -> Result<Vec<Part>> {
    let columns = Columns::of_extent(extent)?;
    let range = extent.chunk_offset..extent.chunk_offset.saturating_add(extent.length);
    let part = |(column, place): (usize, &Column)| {
        let there = columns.stripe().column_range(range.clone(), column);
        let Column { device, chunk } = *place;
        let bytes = there.end - there.start;
        Part { column, columns: columns.count(), cell: extent.cell, device, chunk, start: there.start, bytes }
    };
    let parts = columns.chunks().iter().enumerate().map(part);
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
    use super::{Columns, together};
    use base::error::ErrorKind;
    use net::message::file::{Column, Extent};
    use std::time::Duration;

    /// A node that says nonsense about columns is refused.
    #[test]
    fn nonsense() {
        let extent =
            |columns: usize, cell| Extent { columns: vec![Column::default(); columns], cell, ..Extent::default() };
        for (columns, cell) in [(2, 0), (2, 5), (16, 4097), (17, 4096), (100_000, 1 << 20)] {
            let refused = Columns::of_extent(&extent(columns, cell)).map_err(|error| error.kind());
            assert_eq!(refused.err(), Some(ErrorKind::Protocol), "{columns} of {cell}");
        }
        for (columns, cell) in [(0, 0), (0, 5), (1, 0), (2, 4096), (16, u64::MAX / 4096 * 4096)] {
            assert_eq!(Columns::of_extent(&extent(columns, cell)).unwrap().count(), columns.max(1));
        }
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
