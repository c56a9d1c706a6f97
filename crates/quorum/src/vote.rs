//! The two blocks in which a keeper's vote is kept, and which of them counts.
//!
//! Both are written for each vote, one after the other, each synced, and the vote is answered after the second: so whatever was answered is in
//! both, and one of them may rot. (Were they written in turn, one rotten block would be a forgotten vote, and a second one in the same term.)

use crate::format::VoteBlock;
use crate::kept::Vote;
use crate::message::KeeperId;
use crate::replay::Voted;
use base::buffer::Buffer;
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use base::limit::BLOCK;

/// What to do about a keeper that does not have what it promised.
pub(crate) const REMEDY: &str = "keep its files; where most other keepers are well nothing is lost: take this one out and add it under a new \
                                 number; if it is the only one, put whole copies of its files back, and report this";

/// The two blocks of a keeper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VoteBlocks {
    last: VoteBlock,
    /// The one that does not hold what the other one does.
    bad: Option<usize>,
}

impl VoteBlocks {
    /// Those of a keeper that has voted for nobody yet and has no log. `salt`: drawn at random; nobody else knows it.
    pub fn fresh(cluster: ClusterId, own: KeeperId, salt: u64) -> VoteBlocks {
        let (life, number, vote, voted) = (0, 0, Vote::default(), Voted::default());
        let last = VoteBlock { cluster, keeper: own, salt, life, number, vote, voted };
        VoteBlocks { last, bad: Some(0) }
    }

    /// What the two blocks say. `Corrupt` if neither is whole: then nobody knows what this keeper promised, and it goes on under another
    /// number only. `Invalid` if they are another keeper's, or another cluster's.
    pub fn open(cluster: ClusterId, own: KeeperId, blocks: [&[u8]; 2]) -> Result<VoteBlocks> {
        let read = blocks.map(VoteBlock::read);
        let Some(last) = read.into_iter().flatten().max_by_key(|block| block.number) else {
            let text = format!(
                "both copies of the vote of keeper {} are damaged, so nobody knows what it promised; nothing was changed; {REMEDY}",
                own.0
            );
            return Err(Error::new(ErrorKind::Corrupt, text));
        };
        if (last.cluster, last.keeper) != (cluster, own) {
            let text = format!(
                "this is keeper {} of cluster {cluster}, and its directory is that of keeper {} of cluster {}; start it with its own",
                own.0, last.keeper.0, last.cluster
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        Ok(VoteBlocks { last, bad: read.iter().position(|found| *found != Some(last)) })
    }

    /// What is in each header of its log. A group is in part users' bytes, and after a power loss its header may be gone: without this they could be a
    /// header to whoever looks at all blocks.
    pub fn salt(&self) -> u64 {
        self.last.salt
    }

    /// How often this keeper was started.
    pub fn life(&self) -> u64 {
        self.last.life
    }

    /// It starts once more, with a log of which it says this: the block to be written to both places, as of `write`.
    pub fn start(&mut self, voted: Voted) -> Buffer {
        self.last.life += 1;
        self.write(self.vote(), voted)
    }

    /// What it promised.
    pub fn vote(&self) -> Vote {
        self.last.vote
    }

    /// What it said of its log when it last voted. Written again after a start, it says what is to be said after `replay`, and not before: what
    /// it promised may be known from here alone.
    pub fn voted(&self) -> Voted {
        self.last.voted
    }

    /// Whether the vote is to be written again before anything is answered: one of the blocks does not hold it, and the other one may rot.
    pub fn is_torn(&self) -> bool {
        self.bad.is_some()
    }

    /// In which order the blocks are to be written: first the one that is not whole, as the other one is all there is meanwhile.
    pub fn order(&self) -> [usize; 2] {
        if self.bad == Some(1) { [1, 0] } else { [0, 1] }
    }

    /// A new vote, or the same again, of a keeper that says this of its log: the block to be written to both places, in
    /// the `order` that was asked for before, each synced before the next.
    pub fn write(&mut self, vote: Vote, voted: Voted) -> Buffer {
        self.last = VoteBlock { number: self.last.number + 1, vote, voted, ..self.last };
        self.bad = None;
        let bytes = self.last.bytes();
        let mut block = Buffer::zeroed(BLOCK);
        block[..bytes.len()].copy_from_slice(&bytes);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::VoteBlocks;
    use crate::format::VOTE_BYTES;
    use crate::kept::Vote;
    use crate::message::KeeperId;
    use crate::replay::{Promised, Stamp, Voted};
    use base::error::ErrorKind;
    use base::id::ClusterId;

    const OWN: KeeperId = KeeperId(7);
    const CLUSTER: ClusterId = ClusterId(1);

    fn vote(term: u64) -> Vote {
        Vote { term, voted_for: Some(KeeperId(9)) }
    }

    fn voted(order: u64) -> Voted {
        let durable = Stamp { index: order / 2, term: 1, sum: 9 };
        Voted { order, promised: Promised { durable, to: durable.index } }
    }

    /// Whatever was answered survives a block that rots, and one that was being written when the power went; two that rot are said.
    #[test]
    fn one_block_may_rot() {
        let mut blocks = VoteBlocks::fresh(CLUSTER, OWN, 1);
        let first = blocks.write(vote(3), voted(10));
        let second = blocks.write(Vote { term: 4, voted_for: None }, voted(9));
        let opened = |one: &[u8], other: &[u8]| VoteBlocks::open(CLUSTER, OWN, [one, other]);
        let whole = opened(&second, &second).expect("whole");
        assert_eq!((whole.vote(), whole.is_torn()), (Vote { term: 4, voted_for: None }, false));
        assert_eq!(whole.voted(), voted(9));
        for at in 0..second.len() {
            let mut rotten = second.to_vec();
            rotten[at] ^= 1;
            for (one, other) in [(&rotten[..], &second[..]), (&second[..], &rotten[..])] {
                let found = opened(one, other).expect("the other one is whole");
                assert_eq!(found.vote().term, 4);
                // What is behind the vote is not looked at.
                assert_eq!(found.is_torn(), at < VOTE_BYTES, "byte {at}");
            }
        }
        for torn in [&first[..], &second[..20], &[]] {
            // The first was written, the second was not, or in part.
            let found = opened(&second, torn).expect("one is whole");
            assert_eq!((found.vote().term, found.is_torn(), found.order()), (4, true, [1, 0]));
            assert_eq!(opened(torn, &second).expect("one is whole").order(), [0, 1]);
        }
        let found = opened(&second[..20], &first).expect("one is whole");
        assert_eq!((found.vote(), found.is_torn()), (vote(3), true), "the new one was not answered");
        assert_eq!(opened(&[0; 4096], &second[..30]).expect_err("neither").kind(), ErrorKind::Corrupt);
        for (cluster, own) in [(CLUSTER, KeeperId(8)), (ClusterId(2), OWN)] {
            let other = VoteBlocks::open(cluster, own, [&second, &second]).expect_err("of another one");
            assert_eq!(other.kind(), ErrorKind::Invalid);
        }
        // What is written next has a higher number than both had.
        let mut again = opened(&first, &second).expect("whole");
        let third = again.write(vote(5), voted(11));
        assert_eq!(opened(&third, &second).expect("whole").vote(), vote(5));
    }
}
