//! Several replicas in the fake: those that get the bytes of the one, and what can be wrong with one of them.

use super::{Fake, State};
use base::error::{Error, ErrorKind, Result};
use net::message::chunk::Read;
use std::time::Duration;

/// What a device does to reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// Its bytes do not match their checksums: the client finds it, and so does the node when it is asked to look.
    Rotten,
    /// It has no such chunk.
    Missing,
    /// It cannot be read.
    Failed,
    /// It says nothing, until a link gives up.
    Silent,
    /// It has half of the bytes.
    Short,
    /// It serves after 4 s.
    Slow,
}

impl Fake {
    /// Counts a read, and answers in place of a device that cannot.
    pub async fn come_to_read(&self, ask: &Read) -> Result<Option<Bad>> {
        let device = ask.device.value();
        let bad = {
            let mut state = self.state();
            state.readers_of.push(device);
            state.bad.get(&device).copied()
        };
        match bad {
            Some(Bad::Missing) => Err(Error::new(ErrorKind::NotFound, "the chunk is not here")),
            Some(Bad::Failed) => Err(Error::new(ErrorKind::Io, "the disk cannot be read")),
            Some(Bad::Silent) => {
                tokio::time::sleep(Duration::from_secs(10)).await;
                Err(Error::new(ErrorKind::Unreachable, "nothing was heard for 10 s"))
            }
            Some(Bad::Slow) => {
                tokio::time::sleep(Duration::from_secs(4)).await;
                Ok(None)
            }
            bad => Ok(bad),
        }
    }
}

impl State {
    /// Every column gets so many replicas: its own, then those on the devices that follow it, which have what its own has.
    pub fn replicate(&mut self, count: u64) {
        let devices = self.devices;
        for column in self.files.groups.values_mut().flat_map(|group| &mut group.layout.columns) {
            let after = |place: u64| ((column.device.value() as u64 - 1 + place) % devices + 1) as u128;
            column.others = (1..count).map(|place| after(place).into()).collect();
            let head = self.chunks.get(&(column.chunk.value(), column.device.value())).cloned();
            for other in column.others.iter().map(|device| device.value()) {
                let start = self.starts.get(&other).copied().unwrap_or(1);
                self.files.placed.insert((column.chunk.value(), other), start);
                if let Some(stored) = &head {
                    self.chunks.insert((column.chunk.value(), other), stored.clone());
                }
            }
        }
    }

    /// The devices that the last extent of a file is on, column after column.
    pub fn devices_of(&self, path: &str) -> Vec<Vec<u128>> {
        let file = &self.files.by_number[&self.files.by_path[path]];
        let group = file.extents.last().map(|piece| piece.group).or(file.writer).expect("it has bytes");
        let columns = &self.files.groups[&group].layout.columns;
        let devices = |column: &net::message::layout::Column| {
            std::iter::once(&column.device).chain(&column.others).map(|device| device.value()).collect()
        };
        columns.iter().map(devices).collect()
    }
}
