//! The engine: takes requests and finished operations, hands out operations and replies.

use crate::request::{Effect, Opened, Request, Usage};
use crate::settings::Settings;
use base::disk::{Disk, Done};
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId, Owner};
use base::unit::Time;

/// Chunks on one device.
pub struct Engine<T> {
    effects: Vec<Effect<T>>,
}

impl<T> Engine<T> {
    /// Opens the device: formats an empty directory, recovers any other.
    pub fn open(_disk: &mut dyn Disk, _settings: Settings, _new_id: DeviceId, _now: Time) -> Result<(Engine<T>, Opened)> {
        Err(Error::new(ErrorKind::Unsupported, "not yet"))
    }
    /// Takes a request.
    pub fn submit(&mut self, _now: Time, _request: Request, _tag: T) {}
    /// Takes a finished operation.
    pub fn completed(&mut self, _now: Time, _done: Done) {}
    /// Does what is due.
    pub fn tick(&mut self, _now: Time) {}
    /// Moves what the engine wants done to `out`.
    pub fn take_effects(&mut self, out: &mut Vec<Effect<T>>) {
        out.append(&mut self.effects);
    }
    /// When `tick` must be called next.
    pub fn next_tick(&self) -> Option<Time> {
        None
    }
    /// How full the device is.
    pub fn usage(&self) -> Usage {
        Usage::default()
    }
    /// The chunks of an owner: id, length in bytes, whether sealed; in the order in which they were sealed.
    pub fn chunks_of(&self, _owner: Owner) -> impl Iterator<Item = (ChunkId, u64, bool)> + '_ {
        std::iter::empty()
    }
}
