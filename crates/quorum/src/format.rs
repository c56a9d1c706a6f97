//! Bytes that keepers write and send and that are this crate's own. (What the library's messages look like on the wire and on the disk comes
//! with them.) All numbers are little-endian.

use crate::kept::Vote;
use crate::message::KeeperId;
use base::checksum::crc32c;
use base::id::ClusterId;

/// What a vote block begins with.
const VOTE_MAGIC: [u8; 8] = *b"SWVOTE-1";

/// Bytes of a vote in its block; the rest of the block means nothing:
///
/// | bytes | what |
/// |---|---|
/// | 0 to 8 | `SWVOTE-1` |
/// | 8 to 24 | the cluster |
/// | 24 to 32 | the keeper |
/// | 32 to 40 | the number of this vote, one more than that of the last one |
/// | 40 to 48 | the term |
/// | 48 to 56 | for whom, or 0 |
/// | 56 to 64 | the highest index of the log that this keeper has acknowledged |
/// | 64 to 68 | CRC-32C of all before |
pub(crate) const VOTE_BYTES: usize = 68;
const VOTE_SUMMED: usize = VOTE_BYTES - 4;

/// A vote as it is in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VoteBlock {
    pub(crate) cluster: ClusterId,
    pub(crate) keeper: KeeperId,
    pub(crate) number: u64,
    pub(crate) vote: Vote,
    pub(crate) acknowledged: u64,
}

impl VoteBlock {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let VoteBlock { cluster, keeper, number, vote: Vote { term, voted_for }, acknowledged } = self;
        let mut bytes = VOTE_MAGIC.to_vec();
        bytes.extend(cluster.0.to_le_bytes());
        for value in [keeper.0, number, term, voted_for.map_or(0, |voter| voter.0), acknowledged] {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// What a block holds; none if it is damaged, or was never written.
    pub(crate) fn read(bytes: &[u8]) -> Option<VoteBlock> {
        let (summed, sum) = bytes.get(..VOTE_BYTES)?.split_at(VOTE_SUMMED);
        if sum != crc32c(summed).to_le_bytes() || summed[..8] != VOTE_MAGIC {
            return None;
        }
        let cluster = ClusterId(u128::from_le_bytes(summed[8..24].try_into().ok()?));
        let mut numbers =
            summed[24..].chunks_exact(8).filter_map(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
        let mut next = || numbers.next();
        let (keeper, number, term, voted_for, acknowledged) = (KeeperId(next()?), next()?, next()?, next()?, next()?);
        let vote = Vote { term, voted_for: Some(KeeperId(voted_for)).filter(|voter| voter.0 != 0) };
        Some(VoteBlock { cluster, keeper, number, vote, acknowledged })
    }
}

/// A leader's question whether it still leads: its term and the question's number, both little-endian.
pub(crate) fn question(term: u64, number: u64) -> Vec<u8> {
    [term.to_le_bytes(), number.to_le_bytes()].concat()
}

/// The term and number of a question; none of other bytes.
pub(crate) fn read_question(bytes: &[u8]) -> Option<(u64, u64)> {
    let (term, number) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*term), u64::from_le_bytes(number.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::{VOTE_BYTES, VoteBlock, question, read_question};
    use crate::kept::Vote;
    use crate::message::KeeperId;
    use base::id::ClusterId;
    use sim::fuzz::{damage, seeds};
    use sim::random::SimRandom;

    /// What is asked is read again; anything else is not.
    #[test]
    fn questions() {
        let asked = question(3, 1 << 40);
        assert_eq!(read_question(&asked), Some((3, 1 << 40)));
        for length in (0..16).chain(17..20) {
            let mut other = asked.clone();
            other.resize(length, 0);
            assert_eq!(read_question(&other), None, "{length} bytes");
        }
    }

    fn block() -> VoteBlock {
        let vote = Vote { term: 3, voted_for: Some(KeeperId(2)) };
        VoteBlock { cluster: ClusterId(1 << 100), keeper: KeeperId(9), number: 4, vote, acknowledged: 5 }
    }

    /// A vote is read as it was written; its bytes are those that older programs wrote.
    #[test]
    fn votes() {
        let bytes = block().bytes();
        assert_eq!((bytes.len(), VoteBlock::read(&bytes)), (VOTE_BYTES, Some(block())));
        let for_nobody = VoteBlock { vote: Vote { term: 3, voted_for: None }, ..block() };
        assert_eq!(VoteBlock::read(&for_nobody.bytes()), Some(for_nobody));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("5357564f54452d3100000000000000000000000010000000090000000000000004"), "{hex}");
    }

    /// Damaged bytes are no vote, or the same one.
    #[test]
    fn fuzz_votes() {
        for seed in seeds(1000) {
            let mut bytes = block().bytes();
            damage(&SimRandom::new(seed), &mut bytes);
            let read = VoteBlock::read(&bytes);
            assert!(read.is_none() || read == Some(block()), "seed {seed}: {read:?}");
        }
    }
}
