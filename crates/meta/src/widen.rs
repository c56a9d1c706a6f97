//! How a file widens over devices as it grows: how many columns its groups have, and when each of them ends. Pure.

use base::limit::{CELL, COLUMNS_MAX, FILE_CHUNK, NARROW_COLUMN};

/// A group has so many times the columns of the one before.
const FACTOR: usize = 4;

/// The sizes of a file's groups. All in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Widths {
    /// A cell.
    pub cell: u64,
    /// A column of a group that wider ones follow.
    pub narrow: u64,
    /// A column of a group that is as wide as it gets. A device without room for one gets no further columns.
    pub full: u64,
    /// Most columns.
    pub columns_max: usize,
}

impl Default for Widths {
    fn default() -> Widths {
        Widths { cell: CELL, narrow: NARROW_COLUMN, full: FILE_CHUNK, columns_max: COLUMNS_MAX }
    }
}

impl Widths {
    /// Columns of the group behind one of `before` columns, if `possible` are the most. The first group of a writer, before which
    /// there is none, has one.
    pub fn columns(&self, before: Option<usize>, possible: usize) -> usize {
        before.map_or(1, |before| before.saturating_mul(FACTOR)).min(possible).max(1)
    }

    /// Bytes after which a group of so many columns ends, if `possible` are the most.
    pub fn room(&self, columns: usize, possible: usize) -> u64 {
        let column = if columns < possible { self.narrow } else { self.full };
        column.saturating_mul(columns as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Widths;
    use base::unit::MIB;

    /// A file grows over 1, 4 and 16 devices, or as many as there are, and no group but the widest is long. With one device it is as
    /// if there were no columns.
    #[test]
    fn grows() {
        let widths = Widths::default();
        let steps = |possible: usize| {
            let mut columns = widths.columns(None, possible);
            (0..4)
                .map(|_| {
                    let step = (columns, widths.room(columns, possible) / MIB);
                    columns = widths.columns(Some(columns), possible);
                    step
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(steps(16), [(1, 8), (4, 32), (16, 4096), (16, 4096)]);
        assert_eq!(steps(6), [(1, 8), (4, 32), (6, 1536), (6, 1536)]);
        assert_eq!(steps(2), [(1, 8), (2, 512), (2, 512), (2, 512)]);
        assert_eq!(steps(1), [(1, 256); 4]);
        assert_eq!(steps(0), [(1, 256); 4]);
    }
}
