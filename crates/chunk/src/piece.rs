//! How a chunk's bytes are cut into data records.

use crate::format::record_blocks;
use base::limit::{RECORD_PAYLOAD_MAX, RECORD_PAYLOAD_MIN};

/// Bytes of payload in a data record at most, of chunks that are read in small parts and of others.
pub(crate) fn record_max(small: bool) -> usize {
    if small { RECORD_PAYLOAD_MIN } else { RECORD_PAYLOAD_MAX }
}

/// Blocks of the data records that a tail of so many bytes makes.
pub(crate) fn tail_blocks(tail: usize, record_max: usize) -> u64 {
    let (whole, rest) = (tail / record_max, (tail % record_max) as u32);
    let last = if rest > 0 { record_blocks(rest) } else { 0 };
    whole as u64 * u64::from(record_blocks(record_max as u32)) + u64::from(last)
}

/// The data records of a tail and of payload behind it, in the order in which they get their places: bytes of the tail and of the payload in
/// each. A tail of more than one record is what a power loss leaves that took records: the journal has had what was in them. With `apart`
/// payload begins in a record of its own.
pub(crate) fn pieces(
    mut tail: usize,
    mut payload: usize,
    record_max: usize,
    apart: bool,
) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let of_tail = tail.min(record_max);
        let most = if apart && of_tail > 0 { 0 } else { record_max - of_tail };
        let of_payload = payload.min(most);
        (tail, payload) = (tail - of_tail, payload - of_payload);
        (of_tail + of_payload > 0).then_some((of_tail, of_payload))
    })
}

/// Where an append's bytes go.
pub(crate) enum Way {
    /// Behind the tail's records, into one that stands for more bytes.
    Cell,
    /// Into records, with the tail.
    Records,
    /// Into the tail; the tail that is there becomes records before if the two together are longer than one.
    Tail { folds: bool },
}

#[cfg(test)]
pub(crate) const TAILS: [usize; 8] = [0, 1, 4096, 65_536, 65_537, 1 << 20, (1 << 20) + 1, 5_000_000];

#[cfg(test)]
mod tests {
    use super::{TAILS, pieces, record_max, tail_blocks};
    use crate::format::record_blocks;

    #[test]
    fn a_tail_takes_the_blocks_of_its_records() {
        for (tail, small) in TAILS.iter().flat_map(|tail| [(*tail, false), (*tail, true)]) {
            let records: Vec<_> = pieces(tail, 0, record_max(small), false).collect();
            assert_eq!(records.iter().map(|(of_tail, _)| of_tail).sum::<usize>(), tail);
            let blocks: u64 = records.iter().map(|(of_tail, _)| u64::from(record_blocks(*of_tail as u32))).sum();
            assert_eq!(blocks, tail_blocks(tail, record_max(small)), "{tail}, {small}");
        }
    }
}
