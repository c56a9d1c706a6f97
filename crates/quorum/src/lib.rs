//! What the keepers of the metadata agree on: one log of groups of changes, in one order, durable at a majority of them. The algorithm is Raft
//! (Ongaro and Ousterhout, 2014), by TiKV's crate `raft`; here is what it leaves to whoever uses it, or does otherwise than we promise: the
//! lease under which a leader answers reads, the promises behind it, and what may leave before which write is durable.
//!
//! Nothing here reads a clock, a disk or a network: `Core` is told the time, what came and what is durable, and says what is to be written
//! and sent.

mod core;
mod format;
mod kept;
mod lease;
mod message;
mod replay;
mod vote;

pub use crate::core::{Core, Output, Role, Start};
pub use kept::{Entry, Kept, Vote};
pub use message::{KeeperId, Message};
pub use replay::{Found, GROUPS_AWAY, Header, Lacks, Promised, Replayed, Stamp, Voted, replay};
pub use vote::VoteBlocks;
