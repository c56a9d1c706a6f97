//! Chunks on one device: log, index, recovery. A step function over `base::disk`: requests and finished operations go in,
//! operations and replies come out. No threads, no sockets, no clock.

mod admission;
mod append;
pub mod bag;
mod checkpoint;
mod commit;
mod core;
mod data;
mod early;
mod engine;
pub mod format;
mod index;
mod journal;
mod piece;
mod read;
mod recover;
mod request;
mod room;
mod scan;
pub mod scrub;
mod settings;
mod space;

pub use engine::Engine;
pub use request::{Asking, BagStat, Cell, Check, ChunkStat, Effect, Handling, Opened, Reply, Request, Usage};
pub use settings::Settings;
