//! Chunks on one device: log, index, recovery. A step function over `base::disk`: requests and finished operations go in,
//! operations and replies come out. No threads, no sockets, no clock.

pub mod bag;
mod engine;
mod request;
mod settings;

pub use engine::Engine;
pub use request::{BagStat, ChunkStat, Effect, Opened, Reply, Request, Usage};
pub use settings::Settings;
