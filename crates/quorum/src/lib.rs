//! What the keepers of the metadata agree on: one log of groups of changes, in one order, durable at a majority of them. The algorithm is Raft
//! (Ongaro and Ousterhout, 2014), by TiKV's crate `raft`; here is what it leaves to whoever uses it, or does otherwise than we promise: the
//! lease under which a leader answers reads, the promises behind it, and what may leave before which write is durable.
//!
//! Nothing here reads a clock or a network, and nothing but `open` a disk: `Core` is told the time, what came and what is durable, and says what
//! is to be written and sent; `Log` is told what is to be written, and says which operations of the disk that takes.

mod core;
mod format;
mod keeper;
mod kept;
mod lease;
mod log;
mod message;
mod open;
mod replay;
mod segments;
mod vote;

pub use crate::core::{Core, Output, Role, Start};
pub use format::is_group;
pub use keeper::{Effect, Keeper, Seat};
pub use kept::{Entry, Kept, Vote, group_max, room_of};
pub use log::{Log, Settings};
pub use message::{KeeperId, Message};
pub use open::{Opened, open, promised};
pub use replay::{Found, GROUPS_AWAY, Header, Lacks, Promised, Replayed, Stamp, Voted, replay};
pub use vote::VoteBlocks;
