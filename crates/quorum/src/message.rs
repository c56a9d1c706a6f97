//! What keepers send each other, and which of it may come in.

use crate::kept::Entry;
use raft::eraftpb::{Message as Inner, MessageType};
use std::fmt;

/// A keeper: one directory of one machine. A number is given once; a keeper that lost its directory comes back under another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeeperId(pub u64);

/// A message of one keeper to another.
#[derive(Clone, PartialEq)]
pub struct Message(pub(crate) Inner);

impl Message {
    /// Who sent it, as it says.
    pub fn from(&self) -> KeeperId {
        KeeperId(self.0.from)
    }

    /// The term that it counts in; one ahead of the sender's in the question whether an election would be won.
    pub fn term(&self) -> u64 {
        self.0.term
    }

    /// Whom it wants elected, the sender or another one, in its term: a vote that counts.
    pub fn votes_for(&self) -> Option<KeeperId> {
        match self.0.msg_type {
            MessageType::MsgRequestVote => Some(KeeperId(self.0.from)),
            MessageType::MsgRequestVoteResponse if !self.0.reject => Some(KeeperId(self.0.to)),
            _ => None,
        }
    }

    /// The index up to which the sender says that it has the log of its leader.
    pub fn acknowledges(&self) -> Option<u64> {
        (self.0.msg_type == MessageType::MsgAppendResponse && !self.0.reject).then_some(self.0.index)
    }

    /// The entries that it carries.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.0.entries.iter().map(Entry::of)
    }

    /// Whether this kind comes from keepers at all. The library sends a follower's proposals and questions for reads on to the leader that it
    /// knows, without a term: a leader that was deposed a moment ago would so have changes made that it computed from a state that nobody
    /// shares any more, and would take the new leader's lease for its own.
    pub(crate) fn may_come_in(&self) -> bool {
        match self.0.msg_type {
            MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgTimeoutNow => true,
            // Nobody has any before there are copies of the tree.
            MessageType::MsgSnapshot
            | MessageType::MsgHup
            | MessageType::MsgBeat
            | MessageType::MsgPropose
            | MessageType::MsgUnreachable
            | MessageType::MsgSnapStatus
            | MessageType::MsgCheckQuorum
            | MessageType::MsgTransferLeader
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp => false,
        }
    }

    /// Whether it asks for a vote, or whether one would be given, otherwise than because the leader asked the sender to take over.
    pub(crate) fn asks_for_vote(&self) -> bool {
        let asks = matches!(self.0.msg_type, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        asks && self.0.context != raft::CAMPAIGN_TRANSFER
    }

    /// Whether it comes from a leader who counts on its answer.
    pub(crate) fn is_of_a_leader(&self) -> bool {
        matches!(self.0.msg_type, MessageType::MsgAppend | MessageType::MsgHeartbeat)
    }

    /// Whether it asks the receiver to campaign at once.
    pub(crate) fn asks_to_take_over(&self) -> bool {
        self.0.msg_type == MessageType::MsgTimeoutNow
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { msg_type, to, from, term, index, reject, .. } = &self.0;
        let entries = self.0.entries.len();
        write!(formatter, "{msg_type:?} {from}->{to} term {term} index {index} entries {entries} reject {reject}")
    }
}
