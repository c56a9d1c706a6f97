//! How the bytes of a group go round its columns, cell after cell. Arithmetic alone; which chunks the columns are says `layout`.

use std::ops::Range;

/// The columns of a group. Cell i of the group's bytes is in column i mod `columns`, behind the column's earlier cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    columns: u64,
    cell: u64,
}

/// Bytes that are together in one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which column.
    pub column: usize,
    /// Where in the column's chunk they begin.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

impl Stripe {
    /// So many columns with cells of so many bytes. The numbers may be anybody's: none if no group can have them.
    pub fn new(columns: usize, cell: u64) -> Option<Stripe> {
        match columns {
            0 => None,
            // All is one cell, however long.
            1 => Some(Stripe { columns: 1, cell: u64::MAX }),
            _ => (cell > 0).then_some(Stripe { columns: columns as u64, cell }),
        }
    }

    /// How many columns there are.
    pub fn columns(&self) -> usize {
        self.columns as usize
    }

    /// The bytes of the group from `offset` on that are together, at most `length`.
    pub fn piece(&self, offset: u64, length: u64) -> Piece {
        let (cell, within) = (offset / self.cell, offset % self.cell);
        Piece {
            column: (cell % self.columns) as usize,
            offset: (cell / self.columns).saturating_mul(self.cell).saturating_add(within),
            length: length.min(self.cell - within),
        }
    }

    /// The pieces of a range of the group, in its order. At most 2^64 - 1 is where the range ends.
    pub fn pieces(self, offset: u64, length: u64) -> impl Iterator<Item = Piece> {
        let (stripe, mut at, end) = (self, offset, offset.saturating_add(length));
        std::iter::from_fn(move || {
            let piece = (at < end).then(|| stripe.piece(at, end - at))?;
            at = at.saturating_add(piece.length);
            Some(piece)
        })
    }

    /// Bytes of a column when the group has `length`.
    pub fn column_length(&self, length: u64, column: usize) -> u64 {
        let (cells, rest) = (length / self.cell, length % self.cell);
        let (rows, over) = (cells / self.columns, cells % self.columns);
        let whole = rows.saturating_mul(self.cell);
        match (column as u64).cmp(&over) {
            std::cmp::Ordering::Less => whole.saturating_add(self.cell),
            std::cmp::Ordering::Equal => whole.saturating_add(rest),
            std::cmp::Ordering::Greater => whole,
        }
    }

    /// Where in the group the byte at this offset of a column is.
    pub fn group_offset(&self, column: usize, offset: u64) -> u64 {
        let (row, within) = (offset / self.cell, offset % self.cell);
        let cell = row.saturating_mul(self.columns).saturating_add(column as u64);
        cell.saturating_mul(self.cell).saturating_add(within)
    }

    /// The length of a group whose columns have these lengths, one for each column: up to the first byte that is missing.
    pub fn group_length(&self, lengths: &[u64]) -> u64 {
        assert!(lengths.len() == self.columns(), "{} lengths of {} columns", lengths.len(), self.columns);
        let missing = lengths.iter().enumerate().map(|(column, length)| self.group_offset(column, *length));
        missing.min().unwrap_or(0)
    }

    /// What of a column belongs to a range of the group: one range, perhaps empty.
    pub fn column_range(&self, range: Range<u64>, column: usize) -> Range<u64> {
        self.column_length(range.start, column)..self.column_length(range.end, column)
    }

    /// Which ranges of the group a range of a column holds: one for each of its cells, in their order.
    pub fn group_ranges(self, column: usize, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let (stripe, mut at) = (self, range.start);
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let length = (stripe.cell - at % stripe.cell).min(range.end - at);
            let start = stripe.group_offset(column, at);
            at = at.saturating_add(length);
            Some(start..start.saturating_add(length))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Piece, Stripe};

    /// A group that is small enough to write down byte by byte: which column has each, and where.
    fn written_down(columns: usize, cell: u64, length: u64) -> Vec<(usize, u64)> {
        let mut have = vec![0; columns];
        (0..length)
            .map(|at| {
                let column = (at / cell) as usize % columns;
                have[column] += 1;
                (column, have[column] - 1)
            })
            .collect()
    }

    /// Pieces, lengths and ranges are what writing cell after cell round the columns gives, for every range of small groups.
    #[test]
    fn as_written_down() {
        for (columns, cell) in [(1, 1), (2, 1), (2, 3), (3, 2), (4, 5)] {
            let stripe = Stripe::new(columns, cell).unwrap();
            let cell = if columns == 1 { u64::MAX } else { cell };
            for length in 0..32 {
                let bytes = written_down(columns, cell, length);
                let lengths: Vec<u64> =
                    (0..columns).map(|column| bytes.iter().filter(|byte| byte.0 == column).count() as u64).collect();
                for (column, have) in lengths.iter().enumerate() {
                    assert_eq!(stripe.column_length(length, column), *have);
                }
                assert_eq!(stripe.group_length(&lengths), length);
                for start in 0..length {
                    let pieces: Vec<Piece> = stripe.pieces(start, length - start).collect();
                    let each =
                        pieces.iter().flat_map(|piece| (0..piece.length).map(|at| (piece.column, piece.offset + at)));
                    assert_eq!(each.collect::<Vec<_>>(), bytes[start as usize..]);
                    assert!(pieces.iter().all(|piece| piece.length <= cell && piece.length > 0));
                    for column in 0..columns {
                        let range = stripe.column_range(start..length, column);
                        let mut found = Vec::new();
                        for range in stripe.group_ranges(column, range) {
                            found.extend(range);
                        }
                        let right = (start..length).filter(|at| bytes[*at as usize].0 == column);
                        assert_eq!(found, right.collect::<Vec<_>>());
                    }
                }
            }
        }
    }

    /// A column that is ahead of the others adds nothing: the group ends at the first byte that is missing.
    #[test]
    fn prefix() {
        let stripe = Stripe::new(3, 10).unwrap();
        assert_eq!(stripe.group_length(&[20, 10, 10]), 40);
        assert_eq!(stripe.group_length(&[20, 0, 20]), 10, "the second cell is missing");
        assert_eq!(stripe.group_length(&[4, 10, 10]), 4);
        assert_eq!(stripe.group_length(&[10, 10, 7]), 27);
        assert_eq!(stripe.group_length(&[0, 10, 10]), 0);
    }

    /// Numbers from outside are refused or bounded, whatever they are.
    #[test]
    fn foreign() {
        assert_eq!((Stripe::new(0, 5), Stripe::new(2, 0)), (None, None));
        for (columns, cell) in [(1, 0), (2, 1), (3, u64::MAX), (usize::MAX, u64::MAX), (16, 1 << 20)] {
            let stripe = Stripe::new(columns, cell).unwrap();
            for at in [0, 1, u64::MAX / 2, u64::MAX] {
                assert!(stripe.piece(at, u64::MAX).length > 0);
                assert!(stripe.pieces(at, u64::MAX).take(3).count() <= 3);
                assert!(stripe.column_length(at, 0) <= at);
                let _ = (stripe.group_offset(columns - 1, at), stripe.column_range(0..at, columns - 1));
            }
        }
        assert_eq!(
            Stripe::new(1, 7).unwrap().pieces(5, 100).collect::<Vec<_>>(),
            [Piece { column: 0, offset: 5, length: 100 }]
        );
    }
}
