//! Every order in which threads can meet in the hand-made waking of `node` and `net`, tried by loom (record 0439). The files that are checked
//! are those of the two crates, compiled once more with loom's locks and atomics; what stands around them is as small as it can be.
//!
//! Nothing of it is compiled with `cargo test --lib`: the files' own unit tests run in their own crates, and the checker's locks work inside a model
//! only.

#[cfg(not(test))]
mod device;
#[cfg(not(test))]
pub mod here;
#[cfg(not(test))]
#[path = "../../node/src/mailbox.rs"]
#[allow(dead_code)]
pub mod mailbox;
#[cfg(not(test))]
pub mod mailboxes;
#[cfg(not(test))]
#[path = "../../net/src/outbound.rs"]
#[allow(dead_code)]
mod outbound;
#[cfg(not(test))]
pub mod outbounds;
#[cfg(not(test))]
#[path = "../../net/src/payload.rs"]
#[allow(dead_code)]
mod payload;
#[cfg(not(test))]
mod sleeper;
#[cfg(not(test))]
mod sync;
#[cfg(not(test))]
mod world;

#[cfg(not(test))]
use net::{credit, frame};
