//! The metadata store and its rules: names, extents, groups, bags, devices, sessions. An engine: a step function without threads,
//! sockets or clock. A group-committed log acknowledges; an overlay and an embedded tree hold the state behind it.

mod answers;
mod attributes;
mod bags;
mod calls;
mod convert;
mod devices;
mod extents;
mod files;
mod floors;
mod format;
mod garbage;
mod holders;
mod key;
mod layers;
mod locate;
mod log;
mod moves;
mod names;
mod nodes;
mod pack;
pub mod path;
pub mod place;
mod policy;
mod quota;
mod replay;
mod reply;
pub mod request;
mod serve;
mod sessions;
mod settle;
mod slots;
mod state;
mod store;
mod tree;
mod usage;
mod walk;
mod whose;
mod widen;

pub use path::Path;
pub use reply::Reply;
pub use request::{Caller, Request};
pub use settle::{SettleJob, SettleResult};
pub use store::{Effect, Opened, Settings, Store};
pub use widen::Widths;
