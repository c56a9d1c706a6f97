//! How far the drain of a device has come, for those who look.

use base::unit::WallTime;
use net::message::device as wire;

/// How far a drain has come since the node started.
#[derive(Clone, Debug, Default)]
pub struct Draining {
    /// When it began, or went on.
    pub began: WallTime,
    /// Live bytes and chunks that were there when the first was moved; zeros before that.
    pub whole: (u64, u64),
    /// Chunks that were moved.
    pub chunks: u64,
    /// Bytes that were copied, those of chunks that are on their way included.
    pub bytes: u64,
    /// What it waits for; empty while it has work.
    pub waits: String,
    /// The device is empty and no longer one of the store's.
    pub over: bool,
}

impl Draining {
    /// As the wire has it.
    pub fn state(&self) -> wire::DrainState {
        wire::DrainState {
            began_ms: self.began.0,
            chunks: self.chunks,
            bytes: self.bytes,
            waits: self.waits.clone(),
            whole_chunks: self.whole.1,
            whole_bytes: self.whole.0,
        }
    }
}
