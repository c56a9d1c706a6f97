//! A device on which everything can go wrong that goes wrong with devices, in an order that follows from a seed.

mod content;
mod fault;

pub use fault::{Operations, SimFaults, When};

use crate::random::SimRandom;
use base::buffer::{Buffer, is_aligned};
use base::disk::{Disk, DiskError, Done, Early, FileName, Inline, Op, Wake};
use base::env::Random;
use base::limit::BLOCK;
use bytes::Bytes;
use content::{Change, Content, Keep};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A simulated device. It outlives the processes that use it: each `attach` is one process that opens it,
/// `kill` and `crash` are two ways for that process to end. Handles are cheap and show the same device.
#[derive(Clone)]
pub struct SimDevice {
    state: Arc<Mutex<State>>,
}

/// The device as one process sees it. Operations finish in an order picked by the seed; nothing ever waits for real.
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    process: u64,
}

struct State {
    random: SimRandom,
    faults: SimFaults,
    /// How often each fault fired.
    fired: BTreeMap<&'static str, u64>,
    /// Faults set to fire once that have.
    spent: BTreeSet<&'static str>,
    /// How often each fault could have fired.
    chances: BTreeMap<&'static str, u64>,
    operations: Operations,
    files: BTreeMap<FileName, Content>,
    /// Removed files that a power loss may bring back, oldest first.
    removed: Vec<(FileName, Content)>,
    flights: Vec<Flight>,
    /// Changes done so far.
    sequence: u64,
    /// Processes so far.
    processes: u64,
    /// The process that has the device.
    attached: Option<u64>,
    crashed: bool,
    idle_polls: u64,
}

/// An operation under way.
struct Flight {
    token: u64,
    op: Op,
    /// `State::sequence` when it was submitted: a sync covers what came before.
    submitted: u64,
    /// It fails for the cause for which another write failed.
    doomed: bool,
}

/// Removed files remembered; older removals are durable.
const REMOVED_MAX: usize = 16;

/// Polls of a crashed device before the test is told that it waits for nothing.
const IDLE_POLLS_MAX: u64 = 1_000_000;

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimDevice {
    /// An empty device.
    pub fn new(seed: u64, faults: SimFaults) -> SimDevice {
        let state = State {
            random: SimRandom::new(seed),
            faults,
            fired: BTreeMap::new(),
            spent: BTreeSet::new(),
            chances: BTreeMap::new(),
            operations: Operations::default(),
            files: BTreeMap::new(),
            removed: Vec::new(),
            flights: Vec::new(),
            sequence: 0,
            processes: 0,
            attached: None,
            crashed: false,
            idle_polls: 0,
        };
        SimDevice { state: Arc::new(Mutex::new(state)) }
    }

    /// Opens the device, which nobody may have open: end the process before with `kill`, `crash`, or by dropping its disk.
    pub fn attach(&self) -> SimDisk {
        let mut state = lock(&self.state);
        assert!(!state.crashed, "the device stopped at `crash_at`: call crash() before attach()");
        assert!(state.attached.is_none(), "the device is attached: call kill() or crash(), or drop the disk");
        state.processes += 1;
        let process = state.processes;
        state.attached = Some(process);
        SimDisk { state: Arc::clone(&self.state), process }
    }

    /// Power loss. What was synced stays; every other change is kept, dropped or torn in 512-byte sectors, each by itself.
    /// Files being made may be there, removed files may be back. The attached disk is dead: its operations never finish.
    pub fn crash(&self) {
        let mut state = lock(&self.state);
        state.end_process();
        state.lose_power();
    }

    /// Process kill. What was done stays, though no more durable than it was; what was under way is kept, dropped or torn.
    /// The attached disk is dead: its operations never finish.
    pub fn kill(&self) {
        lock(&self.state).end_process();
    }

    /// The device is replaced by an empty one. Nobody may have it open.
    pub fn replace(&self) {
        let mut state = lock(&self.state);
        assert!(state.attached.is_none(), "the device is attached: call kill() or crash(), or drop the disk");
        state.files.clear();
        state.removed.clear();
    }

    /// Whether the device stopped by itself (`SimFaults::crash_at`). `crash` makes it usable again.
    pub fn crashed(&self) -> bool {
        lock(&self.state).crashed
    }

    /// Changes the faults from here on. The counts go on.
    pub fn set_faults(&self, faults: SimFaults) {
        let mut state = lock(&self.state);
        state.faults = faults;
        state.spent.clear();
    }

    /// How often each fault fired, and how unsynced changes fared, by name. What never happened is not listed.
    pub fn fired(&self) -> Vec<(&'static str, u64)> {
        lock(&self.state).fired.iter().map(|(name, count)| (*name, *count)).collect()
    }

    /// What was finished so far.
    pub fn operations(&self) -> Operations {
        lock(&self.state).operations
    }

    /// The files that are there and their lengths in bytes.
    pub fn files(&self) -> Vec<(FileName, u64)> {
        lock(&self.state).list()
    }

    /// Bytes in use: file lengths without punched blocks.
    pub fn space(&self) -> u64 {
        lock(&self.state).space()
    }

    /// All bytes of a file, as readers see them. Panics if it is not there.
    pub fn peek(&self, file: FileName) -> Vec<u8> {
        let state = lock(&self.state);
        let content = state.files.get(&file).unwrap_or_else(|| panic!("there is no {file}"));
        let mut bytes = vec![0; content.size() as usize];
        content.current().read(0, &mut bytes);
        bytes
    }

    /// Puts bytes into a file, durably and without alignment; makes and lengthens it as needed.
    pub fn poke(&self, file: FileName, offset: u64, bytes: &[u8]) {
        lock(&self.state).files.entry(file).or_insert_with(|| Content::new(0)).poke(offset, bytes);
    }

    /// Turns over one bit of a stored byte. Readers that see newer, unsynced bytes there do not notice. Panics if the file is not there.
    pub fn rot(&self, file: FileName, offset: u64, bit: u32) {
        let mut state = lock(&self.state);
        let content = state.files.get_mut(&file).unwrap_or_else(|| panic!("there is no {file}"));
        assert!(offset < content.size(), "{file} has {} bytes, none at {offset}", content.size());
        content.rot(offset, bit);
        state.count("rot");
    }
}

impl Disk for SimDisk {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        let state = lock(&self.state);
        if !state.is_alive(self.process) {
            return Err(DiskError::Io("the simulated device has crashed".to_string()));
        }
        Ok(state.list())
    }

    fn submit(&mut self, token: u64, op: Op) {
        check_alignment(&op);
        let mut state = lock(&self.state);
        if state.is_alive(self.process) {
            assert!(!state.flights.iter().any(|flight| flight.token == token), "token {token} is in use");
            let submitted = state.sequence;
            state.flights.push(Flight { token, op, submitted, doomed: false });
        }
    }

    fn poll(&mut self, _wait: Option<Duration>, done: &mut Vec<Done>) {
        let mut state = lock(&self.state);
        if !state.is_alive(self.process) {
            state.idle_polls += 1;
            assert!(state.idle_polls < IDLE_POLLS_MAX, "a crashed device is polled in a loop: ask SimDevice::crashed");
            return;
        }
        if state.flights.is_empty() {
            return;
        }
        let count = 1 + state.random.below(state.flights.len() as u64);
        for _ in 0..count {
            let place = state.random.below(state.flights.len() as u64) as usize;
            match state.finish(place) {
                Some(finished) => done.push(finished),
                None => return,
            }
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::new(NeverAsleep)
    }

    fn has_early(&self) -> bool {
        true
    }

    fn early(&mut self, file: FileName) -> Option<Arc<dyn Early>> {
        // As with real ones: what is not there cannot be opened.
        lock(&self.state).files.contains_key(&file).then_some(())?;
        Some(Arc::new(SimEarly { state: Arc::clone(&self.state), process: self.process, file }))
    }

    fn inline(&self) -> Option<Arc<dyn Inline>> {
        Some(Arc::new(SimInline { state: Arc::clone(&self.state), process: self.process }))
    }

    fn backend(&self) -> &'static str {
        "simulated"
    }
}

/// The device for one process that does operations at once, between those that are under way.
struct SimInline {
    state: Arc<Mutex<State>>,
    process: u64,
}

impl Inline for SimInline {
    fn is_fast(&self) -> bool {
        true
    }

    fn execute(&self, op: Op) -> Result<Buffer, DiskError> {
        check_alignment(&op);
        let mut state = lock(&self.state);
        let gone = || DiskError::Io("the simulated device has crashed".to_string());
        if !state.is_alive(self.process) {
            return Err(gone());
        }
        let (submitted, place) = (state.sequence, state.flights.len());
        // No other operation has this token: it is gone before anybody looks.
        state.flights.push(Flight { token: u64::MAX, op, submitted, doomed: false });
        state.finish(place).map_or_else(|| Err(gone()), |done| done.result)
    }

    fn took(&self, _: Duration) {}
}

/// A file of the device that one process writes at once.
struct SimEarly {
    state: Arc<Mutex<State>>,
    process: u64,
    file: FileName,
}

impl Early for SimEarly {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        let mut state = lock(&self.state);
        let gone = || DiskError::Io("the simulated device has crashed".to_string());
        if !state.is_alive(self.process) || state.stops_here() {
            return Err(gone());
        }
        state.write_early(self.file, offset, bytes)
    }
}

impl Drop for SimDisk {
    /// As the real ones do: waits for what is under way.
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if std::thread::panicking() {
            // Finishing could panic again, on what made the test fail.
            state.flights.clear();
        }
        while state.is_alive(self.process) && !state.flights.is_empty() {
            let place = state.random.below(state.flights.len() as u64) as usize;
            state.finish(place);
        }
        if state.is_alive(self.process) {
            state.attached = None;
        }
    }
}

/// A simulated disk never waits, so nothing has to be woken.
struct NeverAsleep;

impl Wake for NeverAsleep {
    fn wake(&self) {}
}

impl State {
    fn is_alive(&self, process: u64) -> bool {
        self.attached == Some(process) && !self.crashed
    }

    fn list(&self) -> Vec<(FileName, u64)> {
        self.files.iter().map(|(name, content)| (*name, content.size())).collect()
    }

    fn space(&self) -> u64 {
        self.files.values().map(Content::space).sum()
    }

    fn has_no_room(&mut self, more: u64) -> bool {
        let full = self.faults.capacity.is_some_and(|capacity| self.space().saturating_add(more) > capacity);
        if full && more > 0 {
            self.count("no_space");
            return true;
        }
        false
    }

    fn count(&mut self, name: &'static str) {
        *self.fired.entry(name).or_default() += 1;
    }

    /// Whether the fault happens to this operation.
    fn fires(&mut self, name: &'static str, when: When) -> bool {
        let chances = self.chances.entry(name).or_default();
        let number = *chances;
        *chances += 1;
        let fires = match when {
            When::Never => false,
            When::Nth(wanted) => number == wanted,
            When::OneIn(bound) => self.random.one_in(bound),
            When::Once | When::Together(_) => self.spent.insert(name),
            When::Always => true,
        };
        if fires {
            self.count(name);
        }
        fires
    }

    /// Whether the device stops instead of doing the next change.
    fn stops_here(&mut self) -> bool {
        if self.faults.crash_at != Some(self.operations.changes()) {
            return false;
        }
        self.crashed = true;
        self.faults.crash_at = None;
        self.count("crash_at");
        true
    }

    /// Ends one operation; nothing if the device stops instead.
    fn finish(&mut self, place: usize) -> Option<Done> {
        let is_change = !matches!(self.flights[place].op, Op::Read { .. });
        if is_change && self.stops_here() {
            return None;
        }
        let Flight { token, op, submitted, doomed } = self.flights.swap_remove(place);
        let result = match op {
            Op::Create { file, size, .. } => self.create(file, size),
            Op::Remove { file } if self.fires("remove_error", self.faults.remove_error) => {
                Err(io_error("remove", file, 0))
            }
            Op::Remove { file } => {
                self.remove(file);
                Ok(())
            }
            Op::Read { file, offset, length, .. } => {
                return Some(Done { token, result: self.read(file, offset, length) });
            }
            Op::Write { file, offset, parts } => self.write(file, offset, &parts, doomed),
            Op::Sync { file } => self.sync(file, submitted),
            Op::Punch { file, offset, length } => self.punch(file, offset, length),
        };
        Some(Done { token, result: result.map(|()| Buffer::zeroed(0)) })
    }

    fn create(&mut self, file: FileName, size: u64) -> Result<(), DiskError> {
        self.operations.creates += 1;
        if self.faults.no_room_for == Some(file.kind) {
            self.count("no_room_for_kind");
            return Err(DiskError::NoSpace);
        }
        if self.has_no_room(size) {
            return Err(DiskError::NoSpace);
        }
        if self.faults.unnamed == Some(file.kind) {
            self.count("unnamed");
            return Err(DiskError::Unnamed(format!("cannot sync the directory of {file} (simulated)")));
        }
        self.removed.retain(|(name, _)| *name != file);
        self.files.insert(file, Content::new(size));
        Ok(())
    }

    fn remove(&mut self, file: FileName) {
        self.operations.removes += 1;
        if let Some(content) = self.files.remove(&file) {
            if self.removed.len() == REMOVED_MAX {
                self.removed.remove(0);
            }
            self.removed.push((file, content));
        }
    }

    fn read(&mut self, file: FileName, offset: u64, length: usize) -> Result<Buffer, DiskError> {
        self.operations.reads += 1;
        let size = self.files.get(&file).ok_or(DiskError::NotFound)?.size();
        if self.fires("read_error", self.faults.read_error) {
            return Err(io_error("read", file, offset));
        }
        let length = length.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX));
        if length > 0 && self.faults.rot_on_read != When::Never {
            self.rot_on_read(file, offset, length);
        }
        let mut buffer = Buffer::zeroed(length);
        self.content(file)?.current().read(offset, &mut buffer);
        self.operations.read_bytes += length as u64;
        Ok(buffer)
    }

    fn rot_on_read(&mut self, file: FileName, offset: u64, length: usize) {
        let at = offset + self.random.below(length as u64);
        let bit = self.random.below(8) as u32;
        let durable = self.files.get(&file).is_some_and(|content| content.is_durable(at / BLOCK as u64));
        if durable
            && self.fires("rot_on_read", self.faults.rot_on_read)
            && let Some(content) = self.files.get_mut(&file)
        {
            content.rot(at, bit);
        }
    }

    fn write(&mut self, file: FileName, offset: u64, parts: &[Bytes], doomed: bool) -> Result<(), DiskError> {
        let length: u64 = parts.iter().map(|part| part.len() as u64).sum();
        self.operations.writes += 1;
        self.operations.written_bytes += length;
        let content = self.files.get(&file).ok_or(DiskError::NotFound)?;
        let size = content.size();
        assert!(offset + length <= size, "a write of {length} bytes at {offset} to {file}, which ends at {size}");
        let (first, count) = (offset / BLOCK as u64, length / BLOCK as u64);
        let more = content.more_space(first..first + count);
        if self.has_no_room(more) {
            return Err(DiskError::NoSpace);
        }
        if self.fires("lost_write", self.faults.lost_write) {
            return Ok(());
        }
        let mut change = change_of(first, parts);
        let fails = if doomed { true } else { self.fires("write_error", self.faults.write_error) };
        if fails {
            if doomed {
                self.count("write_errors_together");
            } else if let When::Together(count) = self.faults.write_error {
                self.doom(count.saturating_sub(1));
            }
            let keep = Keep::by_chance(&change, &self.random);
            self.change(file, change, keep)?;
            return Err(io_error("write", file, offset));
        }
        let places = size / BLOCK as u64 - count + 1;
        if places > 1 && self.fires("misdirected_write", self.faults.misdirected_write) {
            let elsewhere = (first + 1 + self.random.below(places - 1)) % places;
            if let Change::Write { first, .. } = &mut change {
                *first = elsewhere;
            }
        }
        self.change(file, change, Keep::All)
    }

    /// A write through the page cache, which has whole blocks: what lies beside the bytes in theirs is written with them.
    fn write_early(&mut self, file: FileName, offset: u64, bytes: &[u8]) -> Result<(), DiskError> {
        self.operations.writes += 1;
        self.operations.written_bytes += bytes.len() as u64;
        let size = self.content(file)?.size();
        let end = offset + bytes.len() as u64;
        assert!(end <= size, "a write of {} bytes at {offset} to {file}, which ends at {size}", bytes.len());
        let (first, behind) = (offset / BLOCK as u64, end.div_ceil(BLOCK as u64));
        let more = self.content(file)?.more_space(first..behind);
        if self.has_no_room(more) {
            return Err(DiskError::NoSpace);
        }
        let mut blocks = Buffer::zeroed((behind - first) as usize * BLOCK);
        self.content(file)?.current().read(first * BLOCK as u64, &mut blocks);
        let start = (offset - first * BLOCK as u64) as usize;
        blocks[start..start + bytes.len()].copy_from_slice(bytes);
        let change = change_of(first, &[blocks.freeze()]);
        if self.fires("early_write_error", self.faults.early_write_error) {
            let keep = Keep::by_chance(&change, &self.random);
            self.change(file, change, keep)?;
            return Err(io_error("write", file, offset));
        }
        self.change(file, change, Keep::All)
    }

    /// So many more of the writes under way fail for the cause for which one did.
    fn doom(&mut self, more: u64) {
        let writes = self.flights.iter_mut().filter(|flight| matches!(flight.op, Op::Write { .. }));
        writes.take(usize::try_from(more).unwrap_or(usize::MAX)).for_each(|flight| flight.doomed = true);
    }

    fn sync(&mut self, file: FileName, submitted: u64) -> Result<(), DiskError> {
        self.operations.syncs += 1;
        self.content(file)?;
        if self.fires("sync_error", self.faults.sync_error) {
            self.content(file)?.forget();
            return Err(io_error("sync", file, 0));
        }
        if self.fires("lying_sync", self.faults.lying_sync) {
            return Ok(());
        }
        let content = self.files.get_mut(&file).ok_or(DiskError::NotFound)?;
        content.sync(submitted, &self.random);
        Ok(())
    }

    fn punch(&mut self, file: FileName, offset: u64, length: u64) -> Result<(), DiskError> {
        self.operations.punches += 1;
        let change = self.punch_of(file, offset, length);
        self.change(file, change, Keep::All)
    }

    fn punch_of(&self, file: FileName, offset: u64, length: u64) -> Change {
        let size = self.files.get(&file).map_or(0, Content::size);
        let end = offset.saturating_add(length).min(size).max(offset);
        Change::Punch { blocks: offset / BLOCK as u64..end / BLOCK as u64 }
    }

    fn content(&mut self, file: FileName) -> Result<&mut Content, DiskError> {
        self.files.get_mut(&file).ok_or(DiskError::NotFound)
    }

    fn change(&mut self, file: FileName, change: Change, keep: Keep) -> Result<(), DiskError> {
        let sequence = self.sequence;
        self.sequence += 1;
        self.content(file)?.change(sequence, change, keep);
        Ok(())
    }

    /// The process is gone. What it had under way happened, or not, or in part, in any order.
    fn end_process(&mut self) {
        self.attached = None;
        self.crashed = false;
        self.idle_polls = 0;
        while !self.flights.is_empty() {
            let place = self.random.below(self.flights.len() as u64) as usize;
            let flight = self.flights.swap_remove(place);
            self.interrupt(flight.op);
        }
    }

    fn interrupt(&mut self, op: Op) {
        let (file, change) = match op {
            Op::Create { file, size, .. } => {
                let fits = self.faults.no_room_for != Some(file.kind)
                    && self.faults.capacity.is_none_or(|capacity| self.space().saturating_add(size) <= capacity);
                let happened = self.random.one_in(2) && fits;
                self.count(if happened { "create_kept" } else { "create_dropped" });
                if happened {
                    self.removed.retain(|(name, _)| *name != file);
                    self.files.insert(file, Content::new(size));
                }
                return;
            }
            Op::Remove { file } => {
                if self.random.one_in(2) {
                    self.remove(file);
                    // It was not finished, so it does not count.
                    self.operations.removes -= 1;
                }
                return;
            }
            Op::Read { .. } | Op::Sync { .. } => return,
            Op::Write { file, offset, parts } => (file, change_of(offset / BLOCK as u64, &parts)),
            Op::Punch { file, offset, length } => (file, self.punch_of(file, offset, length)),
        };
        let keep = Keep::by_chance(&change, &self.random);
        self.count(keep.name());
        // A file that is gone by now takes nothing.
        let _ = self.change(file, change, keep);
    }

    fn lose_power(&mut self) {
        for (name, content) in std::mem::take(&mut self.removed) {
            if !self.files.contains_key(&name) && self.random.one_in(2) {
                self.files.insert(name, content);
                self.count("removed_file_back");
            }
        }
        let mut fates = Vec::new();
        for (name, content) in &mut self.files {
            if self.faults.forgets == Some(name.kind) {
                content.forget();
            }
            fates.append(&mut content.lose_power(&self.random));
        }
        for fate in fates {
            self.count(fate.name());
        }
    }
}

fn io_error(what: &str, file: FileName, offset: u64) -> DiskError {
    DiskError::Io(format!("{what} {file} at {offset}: input/output error (simulated)"))
}

fn change_of(first: u64, parts: &[Bytes]) -> Change {
    // Copied, so that a block kept here does not hold a whole buffer of a pool.
    let blocks = parts.iter().flat_map(|part| part.chunks_exact(BLOCK)).map(Bytes::copy_from_slice).collect();
    Change::Write { first, blocks }
}

/// Panics on what a device opened past the page cache refuses: such a call is a bug of the caller.
fn check_alignment(op: &Op) {
    let whole = |value: u64| value.is_multiple_of(BLOCK as u64);
    let fine = match op {
        Op::Create { size, .. } => whole(*size),
        Op::Remove { .. } | Op::Sync { .. } => true,
        Op::Read { offset, length, .. } => whole(*offset) && whole(*length as u64) && *length > 0,
        Op::Write { offset, parts, .. } => {
            whole(*offset) && !parts.is_empty() && parts.iter().all(|part| is_aligned(part) && !part.is_empty())
        }
        Op::Punch { offset, length, .. } => whole(*offset) && whole(*length),
    };
    assert!(fine, "offsets, lengths and addresses must be multiples of {BLOCK}, and lengths not zero: {op:?}");
}
