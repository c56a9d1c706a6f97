//! A file of flexible length that forgets what was not synced: what the embedded tree of the metadata store stands on.

use crate::random::SimRandom;
use base::disk::BlockFile;
use base::limit::BLOCK;
use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a simulated file is stored on. It outlives the processes that open it. Handles are cheap and show the same file.
#[derive(Clone, Debug, Default)]
pub struct SimFileDevice {
    state: Arc<Mutex<State>>,
}

/// The file as one process sees it. After a crash every call fails.
#[derive(Debug)]
pub struct SimFile {
    state: Arc<Mutex<State>>,
    process: u64,
}

#[derive(Debug, Default)]
struct State {
    /// What readers see.
    current: Vec<u8>,
    /// What a power loss leaves at least.
    durable: Vec<u8>,
    pending: Vec<Change>,
    process: u64,
    changes: u64,
    crash_at: Option<u64>,
    error_at: Option<u64>,
    read_error_at: Option<u64>,
    reads: u64,
    fired: BTreeMap<&'static str, u64>,
    crashed: bool,
}

#[derive(Debug)]
enum Change {
    Write { offset: u64, bytes: Vec<u8> },
    Length(u64),
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimFileDevice {
    /// An empty file.
    pub fn new() -> SimFileDevice {
        SimFileDevice::default()
    }

    /// Opens the file. Whoever had it open before is dead: its calls fail.
    pub fn open(&self) -> SimFile {
        let mut state = lock(&self.state);
        assert!(!state.crashed, "the file stopped at its crash point: call crash() before open()");
        state.process += 1;
        SimFile { state: Arc::clone(&self.state), process: state.process }
    }

    /// Power loss: what was synced stays; each unsynced change of length, and each 4 KiB page of each unsynced write, is kept or
    /// dropped by the seed, whatever became of the others.
    pub fn crash(&self, seed: u64) {
        let mut state = lock(&self.state);
        let random = SimRandom::new(seed);
        for change in std::mem::take(&mut state.pending) {
            state.lose(change, &random);
        }
        state.current = state.durable.clone();
        state.process += 1;
        state.crashed = false;
    }

    /// Process kill: what was done stays, no more durable than it was.
    pub fn kill(&self) {
        let mut state = lock(&self.state);
        state.process += 1;
        state.crashed = false;
    }

    /// Removes the file, durably: there is an empty one in its place. Whoever had it open before is dead.
    pub fn remove(&self) {
        let mut state = lock(&self.state);
        (state.current, state.durable, state.pending) = Default::default();
        state.process += 1;
    }

    /// Puts another file in this one's place, as a rename whose directory is synced then: what was not synced of it is no more durable than it was.
    /// The other one is gone, and whoever had one of both open before is dead.
    pub fn take_place(&self, other: &SimFileDevice) {
        let (current, durable, pending) = {
            let mut other = lock(&other.state);
            other.process += 1;
            (std::mem::take(&mut other.current), std::mem::take(&mut other.durable), std::mem::take(&mut other.pending))
        };
        let mut state = lock(&self.state);
        (state.current, state.durable, state.pending) = (current, durable, pending);
        state.process += 1;
    }

    /// Stops the file when the change (write, change of length or sync) with this number would be done, counted from 0 over its life.
    /// That call and all later ones fail until `crash` or `kill`.
    pub fn crash_at(&self, change: Option<u64>) {
        lock(&self.state).crash_at = change;
    }

    /// Makes the change with this number fail with an I/O error. A write or a change of length is then not done; what was
    /// unsynced at a sync is forgotten: it can still be read, and is gone after a power loss.
    pub fn error_at(&self, change: Option<u64>) {
        lock(&self.state).error_at = change;
    }

    /// Makes the read with this number, counted from 0 over the file's life, fail with an I/O error.
    pub fn read_error_at(&self, read: Option<u64>) {
        lock(&self.state).read_error_at = read;
    }

    /// Reads so far.
    pub fn reads(&self) -> u64 {
        lock(&self.state).reads
    }

    /// How often each fault fired, by name. What never happened is not listed.
    pub fn fired(&self) -> Vec<(&'static str, u64)> {
        lock(&self.state).fired.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// Whether the file stopped at its crash point.
    pub fn crashed(&self) -> bool {
        lock(&self.state).crashed
    }

    /// Changes (writes, changes of length, syncs) so far.
    pub fn changes(&self) -> u64 {
        lock(&self.state).changes
    }

    /// All bytes, as readers see them.
    pub fn peek(&self) -> Vec<u8> {
        lock(&self.state).current.clone()
    }

    /// Puts bytes in, durably, lengthening the file if they reach beyond its end.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut state = lock(&self.state);
        put(&mut state.current, offset, bytes);
        put(&mut state.durable, offset, bytes);
    }
}

impl BlockFile for SimFile {
    fn length(&self) -> Result<u64> {
        Ok(self.alive()?.current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut state = self.alive()?;
        state.reads += 1;
        if state.read_error_at == Some(state.reads - 1) {
            return Err(state.error("tree_read_error"));
        }
        let end = offset.checked_add(out.len() as u64).filter(|end| *end <= state.current.len() as u64);
        let end =
            end.ok_or_else(|| Error::new(ErrorKind::UnexpectedEof, "a read beyond the end of the simulated file"))?;
        out.copy_from_slice(&state.current[offset as usize..end as usize]);
        Ok(())
    }

    fn set_length(&self, length: u64) -> Result<()> {
        let mut state = self.changing()?;
        state.check("tree_write_error")?;
        state.current.resize(length as usize, 0);
        state.pending.push(Change::Length(length));
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.changing()?;
        let pending = std::mem::take(&mut state.pending);
        state.check("tree_sync_error")?;
        for change in pending {
            match change {
                Change::Write { offset, bytes } => put(&mut state.durable, offset, &bytes),
                Change::Length(length) => state.durable.resize(length as usize, 0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut state = self.changing()?;
        state.check("tree_write_error")?;
        put(&mut state.current, offset, data);
        state.pending.push(Change::Write { offset, bytes: data.to_vec() });
        Ok(())
    }
}

impl SimFile {
    fn alive(&self) -> Result<MutexGuard<'_, State>> {
        let state = lock(&self.state);
        if state.crashed || state.process != self.process {
            return Err(Error::other("the simulated file has crashed"));
        }
        Ok(state)
    }

    /// Counts a change, or stops there.
    fn changing(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.alive()?;
        if state.crash_at == Some(state.changes) {
            state.crashed = true;
            state.crash_at = None;
            return Err(Error::other("the simulated file has crashed"));
        }
        state.changes += 1;
        Ok(state)
    }
}

impl State {
    /// An error if the change that was counted last is to fail.
    fn check(&mut self, name: &'static str) -> Result<()> {
        if self.error_at == Some(self.changes - 1) { Err(self.error(name)) } else { Ok(()) }
    }

    fn error(&mut self, name: &'static str) -> Error {
        *self.fired.entry(name).or_default() += 1;
        Error::other(format!("{name}: input/output error (simulated)"))
    }

    /// Decides what becomes of an unsynced change.
    fn lose(&mut self, change: Change, random: &SimRandom) {
        match change {
            Change::Length(length) => {
                if random.one_in(2) {
                    self.durable.resize(length as usize, 0);
                }
            }
            Change::Write { offset, bytes } => {
                let mut at = offset;
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let (page, tail) = rest.split_at(rest.len().min(BLOCK - at as usize % BLOCK));
                    if random.one_in(2) {
                        put(&mut self.durable, at, page);
                    }
                    at += page.len() as u64;
                    rest = tail;
                }
            }
        }
    }
}

/// Puts bytes at an offset, lengthening with zeros as needed.
fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let start = offset as usize;
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::SimFileDevice;
    use base::disk::BlockFile;

    /// Synced bytes survive every power loss; unsynced pages sometimes do and sometimes do not, by the seed.
    #[test]
    fn power_loss() {
        let (mut kept, mut dropped, mut short, mut long) = (0, 0, 0, 0);
        for seed in 0..64 {
            let device = SimFileDevice::new();
            let file = device.open();
            file.write(0, &[1; 8192]).unwrap();
            file.sync().unwrap();
            file.write(4096, &[2; 4096]).unwrap();
            file.set_length(16384).unwrap();
            assert_eq!(file.length().unwrap(), 16384);
            device.crash(seed);
            assert!(file.read(0, &mut [0; 1]).is_err(), "a file must be dead after a crash");
            let bytes = device.peek();
            assert_eq!(bytes[..4096], [1; 4096], "seed {seed}");
            match bytes[4096] {
                1 => dropped += 1,
                _ => kept += 1,
            }
            match bytes.len() {
                8192 => short += 1,
                _ => long += 1,
            }
        }
        assert!(kept > 8 && dropped > 8 && short > 8 && long > 8, "{kept} {dropped} {short} {long}");
    }

    /// A file that takes another one's place has what was synced of it after a power loss; nobody who had either open reaches it.
    #[test]
    fn takes_a_place() {
        let (tree, copy) = (SimFileDevice::new(), SimFileDevice::new());
        let (old, new) = (tree.open(), copy.open());
        old.write(0, &[1; 8192]).unwrap();
        old.sync().unwrap();
        new.write(0, &[2; 4096]).unwrap();
        new.sync().unwrap();
        new.set_length(4100).unwrap();
        tree.take_place(&copy);
        assert!(old.length().is_err() && new.length().is_err());
        assert_eq!((tree.open().length().unwrap(), copy.open().length().unwrap()), (4100, 0));
        tree.crash(3);
        assert_eq!(tree.peek()[..4096], [2; 4096]);
        tree.remove();
        tree.crash(3);
        assert!(tree.peek().is_empty());
    }

    /// A kill loses nothing that was written; a crash point stops exactly there; a failed sync forgets.
    #[test]
    fn kill_crash_point_and_failed_sync() {
        let device = SimFileDevice::new();
        let file = device.open();
        file.write(0, &[1; 100]).unwrap();
        device.kill();
        let file = device.open();
        assert_eq!(device.peek(), [1; 100]);
        device.crash_at(Some(2));
        file.write(0, &[2; 100]).unwrap();
        assert!(file.write(0, &[3; 100]).is_err() && device.crashed());
        assert!(file.length().is_err());
        device.crash(1);
        let file = device.open();
        file.set_length(10).unwrap();
        file.sync().unwrap();
        let before = device.peek();
        file.write(0, &[9; 10]).unwrap();
        device.error_at(Some(device.changes()));
        assert!(file.sync().is_err());
        file.sync().unwrap();
        device.crash(2);
        assert_eq!(device.peek(), before);
        let mut beyond = [0; 11];
        assert!(device.open().read(0, &mut beyond).is_err());
    }
}
