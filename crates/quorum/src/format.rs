//! Bytes that keepers write and send and that are this crate's own. (What the library's messages look like on the wire and on the disk comes
//! with them.) All numbers are little-endian.

use crate::kept::Vote;
use crate::message::KeeperId;
use crate::replay::{Header, Promised, Stamp, Voted};
use base::checksum::crc32c;
use base::disk::{FileKind, FileName};
use base::id::ClusterId;

/// The files with the two blocks of the vote, each of one block.
pub(crate) const VOTE_FILES: [FileName; 2] = [FileName::new(FileKind::Vote, 0), FileName::new(FileKind::Vote, 1)];

/// What is counted up never comes so far: more is no keeper's, and adding to it would end the program.
pub(crate) const COUNT_MAX: u64 = u64::MAX / 2;

/// What a vote block begins with.
const VOTE_MAGIC: [u8; 8] = *b"SWVOTE-1";

/// Bytes of a vote in its block; the rest of the block means nothing:
///
/// | bytes | what |
/// |---|---|
/// | 0 to 8 | `SWVOTE-1` |
/// | 8 to 24 | the cluster |
/// | 24 to 32 | the keeper |
/// | 32 to 40 | 64 bits that the keeper drew, which are in all headers of its log |
/// | 40 to 48 | how often it was started |
/// | 48 to 56 | the number of this vote, one more than that of the last one |
/// | 56 to 64 | the term |
/// | 64 to 72 | for whom, or 0 |
/// | 72 to 80 | the order of what it had written to the log last (`Header::order`) |
/// | 80 to 108 | what was promised of its log then, as in a header |
/// | 108 to 112 | CRC-32C of all before |
pub(crate) const VOTE_BYTES: usize = 112;
const VOTE_SUMMED: usize = VOTE_BYTES - 4;

/// A vote as it is in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VoteBlock {
    pub(crate) cluster: ClusterId,
    pub(crate) keeper: KeeperId,
    pub(crate) salt: u64,
    pub(crate) life: u64,
    pub(crate) number: u64,
    pub(crate) vote: Vote,
    pub(crate) voted: Voted,
}

impl VoteBlock {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let VoteBlock { cluster, keeper, salt, life, number, vote: Vote { term, voted_for }, voted } = self;
        let mut bytes = VOTE_MAGIC.to_vec();
        bytes.extend(cluster.0.to_le_bytes());
        let voted_for = voted_for.map_or(0, |voter| voter.0);
        for value in [keeper.0, salt, life, number, term, voted_for, voted.order] {
            bytes.extend(value.to_le_bytes());
        }
        add_promised(&mut bytes, voted.promised);
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
        let mut numbers = Numbers(&summed[24..]);
        let (keeper, salt) = (KeeperId(numbers.long()?), numbers.long()?);
        let (life, number, term) = (numbers.count()?, numbers.count()?, numbers.count()?);
        let voted_for = KeeperId(numbers.long()?);
        let voted = Voted { order: numbers.count()?, promised: numbers.promised()? };
        let vote = Vote { term, voted_for: Some(voted_for).filter(|voter| voter.0 != 0) };
        Some(VoteBlock { cluster, keeper, salt, life, number, vote, voted })
    }
}

/// What a group of the log begins with on the disk, and all that a mark is. Little-endian; a stamp is an index (8 bytes), a term (8) and the
/// CRC-32C of the group (4):
///
/// | bytes | what |
/// |---|---|
/// | 0 to 8 | `SWGROUP2` |
/// | 8 to 12 | 1: an entry; 2: a mark |
/// | 12 to 20 | the salt, which is in the keeper's votes |
/// | 20 to 28 | the order: higher than that of what was written before, wherever that is |
/// | 28 to 48 | the entry's stamp; in a mark the newest one's |
/// | 48 to 60 | term and CRC-32C of the entry before it |
/// | 60 to 68 | the highest index known as committed when this was written |
/// | 68 to 88 | the stamp of the last entry that was durable then with all before it, of the log that this goes on |
/// | 88 to 96 | the highest index that was ever durable of that log |
/// | 96 to 104 | bytes of the group, which follow |
/// | 104 to 108 | CRC-32C of all before |
///
/// The group's own sum stands in the header, and the header has one of its own: of a group that rotted it is known which one it was.
pub(crate) const HEADER_BYTES: usize = 108;
const HEADER_SUMMED: usize = HEADER_BYTES - 4;
const HEADER_MAGIC: [u8; 8] = *b"SWGROUP2";
const ENTRY: u32 = 1;
const MARK: u32 = 2;

/// Whether a group or a mark of a keepers' log begins with these bytes.
pub fn is_group(bytes: &[u8]) -> bool {
    Header::read(bytes).is_some()
}

/// Takes little-endian numbers from the front.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn short(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn long(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn count(&mut self) -> Option<u64> {
        self.long().filter(|count| *count <= COUNT_MAX)
    }

    fn stamp(&mut self) -> Option<Stamp> {
        Some(Stamp { index: self.count()?, term: self.count()?, sum: self.short()? })
    }

    fn promised(&mut self) -> Option<Promised> {
        let promised = Promised { durable: self.stamp()?, to: self.count()? };
        (promised.to >= promised.durable.index).then_some(promised)
    }
}

fn add_stamp(bytes: &mut Vec<u8>, stamp: Stamp) {
    bytes.extend(stamp.index.to_le_bytes());
    bytes.extend(stamp.term.to_le_bytes());
    bytes.extend(stamp.sum.to_le_bytes());
}

fn add_promised(bytes: &mut Vec<u8>, promised: Promised) {
    add_stamp(bytes, promised.durable);
    bytes.extend(promised.to.to_le_bytes());
}

impl Header {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let Header { is_mark, salt, order, stamp, before, committed, promised, length } = *self;
        let mut bytes = HEADER_MAGIC.to_vec();
        bytes.extend(if is_mark { MARK } else { ENTRY }.to_le_bytes());
        bytes.extend(salt.to_le_bytes());
        bytes.extend(order.to_le_bytes());
        add_stamp(&mut bytes, stamp);
        bytes.extend(before.0.to_le_bytes());
        bytes.extend(before.1.to_le_bytes());
        bytes.extend(committed.to_le_bytes());
        add_promised(&mut bytes, promised);
        bytes.extend(length.to_le_bytes());
        bytes.extend(crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// The header that these bytes begin with; none if there is none, or it is damaged.
    pub fn read(bytes: &[u8]) -> Option<Header> {
        let (summed, sum) = bytes.get(..HEADER_BYTES)?.split_at(HEADER_SUMMED);
        let (magic, rest) = summed.split_at(HEADER_MAGIC.len());
        if sum != crc32c(summed).to_le_bytes() || magic != HEADER_MAGIC {
            return None;
        }
        let mut numbers = Numbers(rest);
        let is_mark = match numbers.short()? {
            ENTRY => false,
            MARK => true,
            _ => return None,
        };
        let header = Header {
            is_mark,
            salt: numbers.long()?,
            order: numbers.count()?,
            stamp: numbers.stamp()?,
            before: (numbers.count()?, numbers.short()?),
            committed: numbers.count()?,
            promised: numbers.promised()?,
            length: numbers.long()?,
        };
        let Header { stamp, promised: Promised { durable, to }, .. } = header;
        let is_right = if is_mark {
            (stamp, stamp.index) == (durable, to)
        } else {
            durable.index < stamp.index && header.before.0 <= stamp.term
        };
        (is_right && stamp.index > 0).then_some(header)
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
    use super::{HEADER_BYTES, VOTE_BYTES, VoteBlock, question, read_question};
    use crate::kept::Vote;
    use crate::message::KeeperId;
    use crate::replay::{Header, Promised, Stamp, Voted};
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
        VoteBlock {
            cluster: ClusterId(1 << 100),
            keeper: KeeperId(9),
            salt: 5,
            life: 6,
            number: 4,
            vote,
            voted: Voted { order: 6, promised: promised() },
        }
    }

    /// A vote is read as it was written; its bytes are those that older programs wrote.
    #[test]
    fn votes() {
        let bytes = block().bytes();
        assert_eq!((bytes.len(), VoteBlock::read(&bytes)), (VOTE_BYTES, Some(block())));
        let for_nobody = VoteBlock { vote: Vote { term: 3, voted_for: None }, ..block() };
        assert_eq!(VoteBlock::read(&for_nobody.bytes()), Some(for_nobody));
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("5357564f54452d3100000000000000000000000010000000090000000000000005"), "{hex}");
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

    fn promised() -> Promised {
        Promised { durable: Stamp { index: 8, term: 3, sum: 7 }, to: 8 }
    }

    fn header(is_mark: bool) -> Header {
        let stamp = if is_mark { promised().durable } else { Stamp { index: 9, term: 3, sum: 0x1234_5678 } };
        let (salt, order, before, committed, promised, length) = (1 << 50, 44, (2, 7), 7, promised(), 0);
        Header { is_mark, salt, order, stamp, before, committed, promised, length }
    }

    /// A header is read as it was written; its bytes are those that older programs wrote.
    #[test]
    fn headers() {
        for header in [header(true), Header { length: 1 << 30, ..header(false) }] {
            let bytes = header.bytes();
            assert_eq!((bytes.len(), Header::read(&bytes)), (HEADER_BYTES, Some(header)));
        }
        let hex: String = header(false).bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(hex.starts_with("535747524f5550320100000000000000000004002c000000000000000900"), "{hex}");
        // An entry is not durable before it is written, and follows none of a later term; a mark lacks nothing.
        let (durable, to) = (promised().durable, 8);
        let promising = |index, to| Promised { durable: Stamp { index, ..durable }, to };
        for wrong in [
            Header { promised: promising(9, 9), ..header(false) },
            Header { promised: promising(8, 7), ..header(false) },
            Header { before: (4, 7), ..header(false) },
            Header { promised: promising(7, to), ..header(true) },
            Header { promised: promising(8, 9), ..header(true) },
        ] {
            assert_eq!(Header::read(&wrong.bytes()), None, "{wrong:?}");
        }
        let lacking = Header { promised: promising(8, 99), ..header(false) };
        assert_eq!(Header::read(&lacking.bytes()), Some(lacking));
    }

    /// Damaged bytes are no header, or the same one.
    #[test]
    fn fuzz_headers() {
        for seed in seeds(1000) {
            let whole = header(seed % 2 == 0);
            let mut bytes = whole.bytes();
            damage(&SimRandom::new(seed), &mut bytes);
            let read = Header::read(&bytes);
            assert!(read.is_none() || read == Some(whole), "seed {seed}: {read:?}");
        }
    }
}
