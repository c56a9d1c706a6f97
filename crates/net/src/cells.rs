//! The answer to a read of a chunk taken apart: bytes as they are, and cells, which stand for more bytes than they have.

use crate::message::chunk::Cell;
use base::error::{Error, ErrorKind, Result};
use base::limit::RECORD_PAYLOAD_MAX;
use bytes::Bytes;
use std::ops::Range;

/// Bytes of a chunk as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where in the chunk they begin.
    pub offset: u64,
    /// What is stored.
    pub bytes: Bytes,
    /// Bytes of the chunk that it stands for; 0: for itself.
    pub cell: u64,
}

impl Stored {
    /// Behind the last byte of the chunk that it stands for.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.cell.max(self.bytes.len() as u64))
    }

    /// Where in what a cell stands for the bytes `start..end` of the chunk are, as far as it has them.
    pub fn part(&self, start: u64, end: u64) -> Range<usize> {
        let from = start.saturating_sub(self.offset).min(self.cell);
        let to = end.saturating_sub(self.offset).clamp(from, self.cell);
        from as usize..to as usize
    }
}

/// Takes the answer to a read of `length` bytes from `offset` on apart, in the order of the chunk. `Protocol` if it cannot be one.
pub fn apart(cells: &[Cell], (offset, length): (u64, u64), mut bytes: Bytes) -> Result<Vec<Stored>> {
    let (mut pieces, mut at, end) = (Vec::new(), offset, offset.saturating_add(length));
    for cell in cells {
        let before = cell.offset.saturating_sub(at);
        let behind = cell.offset.checked_add(cell.length).filter(|behind| *behind > at && cell.offset < end);
        let fits = cell.stored < cell.length && cell.length <= RECORD_PAYLOAD_MAX as u64;
        let Some(behind) = behind.filter(|_| fits && before.saturating_add(cell.stored) <= bytes.len() as u64) else {
            return Err(nonsense());
        };
        if before > 0 {
            pieces.push(Stored { offset: at, bytes: bytes.split_to(before as usize), cell: 0 });
        }
        let stored = bytes.split_to(cell.stored as usize);
        pieces.push(Stored { offset: cell.offset, bytes: stored, cell: cell.length });
        at = behind;
    }
    if bytes.len() as u64 > end.saturating_sub(at) {
        return Err(nonsense());
    }
    if !bytes.is_empty() {
        pieces.push(Stored { offset: at, bytes, cell: 0 });
    }
    Ok(pieces)
}

fn nonsense() -> Error {
    let text = "the node answered with other bytes than were asked for; nothing was changed; check that client and node have one version";
    Error::new(ErrorKind::Protocol, text)
}

#[cfg(test)]
mod tests {
    use super::{Cell, Stored, apart};
    use base::env::Random;
    use bytes::Bytes;
    use sim::random::SimRandom;

    /// Bytes and cells come in the order of the chunk, cells whole even where the range cuts them.
    #[test]
    fn in_order() {
        let cell = |offset, length, stored| Cell { offset, length, stored };
        let bytes = Bytes::from((0..40).collect::<Vec<u8>>());
        let cells = [cell(90, 30, 10), cell(130, 20, 15)];
        let stored = |offset, from: usize, to: usize, cell| Stored { offset, bytes: bytes.slice(from..to), cell };
        let expected = [stored(90, 0, 10, 30), stored(120, 10, 20, 0), stored(130, 20, 35, 20), stored(150, 35, 40, 0)];
        assert_eq!(apart(&cells, (100, 60), bytes.clone()).expect("it fits"), expected);
        assert_eq!(expected.iter().map(Stored::end).collect::<Vec<u64>>(), [120, 130, 150, 155]);
        assert_eq!(
            [expected[0].part(100, 160), expected[2].part(100, 140), expected[2].part(0, 9)],
            [10..30, 0..10, 0..0]
        );
        assert_eq!(apart(&[], (100, 60), bytes.clone()).expect("it fits"), [stored(100, 0, 40, 0)]);
        for nonsense in [cell(90, 10, 5), cell(160, 10, 5), cell(90, 30, 30), cell(90, 30, 41), cell(u64::MAX, 30, 5)] {
            assert!(apart(&[nonsense], (100, 60), bytes.clone()).is_err(), "{nonsense:?}");
        }
        assert!(apart(&[], (100, 39), bytes.clone()).is_err() && apart(&cells[..1], (100, 40), bytes).is_err());
    }

    /// Whatever a node says is in its answer, it is an error or pieces in order; nothing panics.
    #[test]
    fn fuzz_apart() {
        for seed in sim::fuzz::seeds(3000) {
            let random = SimRandom::new(seed);
            let number = || if random.one_in(9) { random.next() } else { random.below(50) };
            let cells: Vec<Cell> =
                (0..random.below(4)).map(|_| Cell { offset: number(), length: number(), stored: number() }).collect();
            let bytes = Bytes::from(vec![7; random.below(80) as usize]);
            if let Ok(pieces) = apart(&cells, (number(), number()), bytes.clone()) {
                assert_eq!(pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>(), bytes.len(), "seed {seed}");
                assert!(pieces.windows(2).all(|two| two[0].end() <= two[1].end()), "seed {seed}");
            }
        }
    }
}
