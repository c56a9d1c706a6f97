//! Every order in which threads can meet in the hand-made waking of `node` and `net`, tried by loom (record 0439). The files that are checked
//! are those of the two crates, compiled once more with loom's locks and atomics; what stands around them is as small as it can be.
//!
//! Nothing of it is compiled with `cargo test --lib`: the files' own unit tests run in their own crates, and the checker's locks work inside a model
//! only.
#![cfg(not(test))]

pub mod askers;
mod engine;
#[path = "../../node/src/here.rs"]
#[allow(dead_code)]
mod here;
mod loan;
#[path = "../../node/src/mailbox.rs"]
#[allow(dead_code)]
pub mod mailbox;
pub mod mailboxes;
#[path = "../../net/src/outbound.rs"]
#[allow(dead_code)]
mod outbound;
pub mod outbounds;
#[path = "../../net/src/payload.rs"]
#[allow(dead_code)]
mod payload;
mod sleeper;
mod sync;
mod world;

use net::{credit, frame};
