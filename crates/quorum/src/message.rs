//! What keepers send each other, and which of it may come in.

mod format;

use crate::kept::Entry;
use raft::eraftpb::{Message as Inner, MessageType};
use std::fmt;

/// A keeper: one directory of one machine. A number is given once; a keeper that lost its directory comes back under another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeeperId(pub u64);

/// A message of one keeper to another.
#[derive(Clone, PartialEq)]
pub struct Message {
    pub(crate) inner: Inner,
    /// Which start of its sender it is of.
    pub(crate) life: u64,
    /// Which start of its receiver the sender had heard of; 0: none.
    pub(crate) to_life: u64,
    /// Of a leader: the index up to which it knows all keepers to have its log. Else 0.
    pub(crate) everybody: u64,
    /// Of a leader that believes that its receiver lacks what is not in the log any more: the last entry that is not. Else 0.
    pub(crate) front: u64,
}

impl Message {
    /// Who sent it, as it says.
    pub fn from(&self) -> KeeperId {
        KeeperId(self.inner.from)
    }

    /// The term that it counts in; one ahead of the sender's in the question whether an election would be won.
    pub fn term(&self) -> u64 {
        self.inner.term
    }

    /// Whom it wants elected, the sender or another one, in its term: a vote that counts.
    pub fn votes_for(&self) -> Option<KeeperId> {
        match self.inner.msg_type {
            MessageType::MsgRequestVote => Some(KeeperId(self.inner.from)),
            MessageType::MsgRequestVoteResponse if !self.inner.reject => Some(KeeperId(self.inner.to)),
            _ => None,
        }
    }

    /// The index up to which the sender says that it has the log of its leader.
    pub fn acknowledges(&self) -> Option<u64> {
        (self.inner.msg_type == MessageType::MsgAppendResponse && !self.inner.reject).then_some(self.inner.index)
    }

    /// The entries that it carries.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.inner.entries.iter().map(Entry::of)
    }

    /// Whether it is what a leader tells of its log, with entries or without: those of one leader are best heard in the order in which it sent
    /// them. One without entries that comes before those that it follows is refused, and all of them are sent again.
    pub fn is_append(&self) -> bool {
        self.inner.msg_type == MessageType::MsgAppend
    }

    /// Whether this kind comes from keepers at all. The library sends a follower's proposals and questions for reads on to the leader that it
    /// knows, without a term: a leader that was deposed a moment ago would so have changes made that it computed from a state that nobody
    /// shares any more, and would take the new leader's lease for its own.
    pub(crate) fn may_come_in(&self) -> bool {
        match self.inner.msg_type {
            MessageType::MsgAppend
            | MessageType::MsgAppendResponse
            | MessageType::MsgHeartbeat
            | MessageType::MsgHeartbeatResponse
            | MessageType::MsgRequestVote
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgTimeoutNow => true,
            // What is not in the log any more is copied beside it (`Output::Lacks`).
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
        let asks = matches!(self.inner.msg_type, MessageType::MsgRequestVote | MessageType::MsgRequestPreVote);
        asks && self.inner.context != raft::CAMPAIGN_TRANSFER
    }

    /// What of it is for this start of its receiver; none if nothing is. A leader counts on what the one before acknowledged, until it hears of this
    /// one: that may have lost the last of it, or have an older version in its place. So it is told nothing as committed by heartbeats, which
    /// do not name the entry that they mean; and entries that follow what it said before are not for it. It answers heartbeats, and is heard
    /// of so.
    pub(crate) fn for_life(mut self, life: u64) -> Option<Message> {
        match self.inner.msg_type {
            MessageType::MsgHeartbeat if self.to_life != life => self.inner.commit = 0,
            MessageType::MsgAppend if self.to_life != life => return None,
            _ => {}
        }
        Some(self)
    }

    /// Whether it comes from a leader who counts on its answer.
    pub(crate) fn is_of_a_leader(&self) -> bool {
        matches!(self.inner.msg_type, MessageType::MsgAppend | MessageType::MsgHeartbeat)
    }

    /// Whether it asks the receiver to campaign at once.
    pub(crate) fn asks_to_take_over(&self) -> bool {
        self.inner.msg_type == MessageType::MsgTimeoutNow
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { msg_type, to, from, term, index, reject, .. } = &self.inner;
        let entries = self.inner.entries.len();
        write!(formatter, "{msg_type:?} {from}->{to} term {term} index {index} entries {entries} reject {reject}")
    }
}
