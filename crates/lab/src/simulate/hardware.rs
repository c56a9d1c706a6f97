//! What a simulated node stands on: devices that outlive its processes, and the one process that has them now.

use super::oracle::{Broken, Check};
use base::buffer::{Buffer, Pool};
use base::checksum::crc32c;
use base::disk::{BlockFile, Disk, DiskError, Done, Early, FileKind, FileName, Inline, Op, Wake};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::limit::REMEMBERED_MAX;
use base::net::Boxed;
use base::planted::Planted;
use base::unit::{KIB, MIB, Time};
use node::{Ended, Open, Turn, Work, World};
use os::disk::{Backend, Opened};
use sim::disk::{SimDevice, SimDisk, SimFaults};
use sim::file::SimFileDevice;
use sim::random::SimRandom;
use sim::runtime_clock::RuntimeClock;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The devices of one node, and how slow they are.
pub struct Hardware {
    /// Those that hold chunks.
    pub devices: Vec<SimDevice>,
    /// The one with the log of the metadata store.
    pub log: SimDevice,
    /// The file with the tree behind it.
    pub tree: SimFileDevice,
    /// The file of a copy of another keeper's tree, until it takes that one's place.
    pub copy: SimFileDevice,
    files: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
    random: SimRandom,
    clock: Arc<RuntimeClock>,
    /// Every operation of every disk, and how it ended, folded into one number.
    history: Mutex<u32>,
    /// Disks take up to so many milliseconds; zero: 2, and half of the time none at all.
    pub slowness: AtomicU64,
    /// A sync of data takes up to so many milliseconds more than anything else on its disk. All machines of a history have the same.
    pub late_syncs: Arc<AtomicU64>,
    /// A device stopped at the operation it was told to. All machines of a history have the same.
    pub stopped: Arc<Notify>,
    /// Answers that the metadata store remembers for a session, at the most.
    pub remembered_calls: usize,
    /// The same for all clients of gateways together.
    pub remembered_answers: usize,
    /// Entries, extents and the like in one page of an answer of the metadata store, at the most.
    pub page_max: usize,
    /// Everything is to stop when a checkpoint of a device was synced.
    pub stop_at_checkpoint: AtomicBool,
    /// It is to stop when a copy takes its tree's place.
    pub stop_at_swap: AtomicBool,
    /// How often one did, and it stopped then.
    swaps: Mutex<BTreeMap<&'static str, u64>>,
    halted: AtomicBool,
    sizes: Sizes,
    /// What the node complained of, for `--verbose`.
    pub complaints: Mutex<Vec<String>>,
}

/// What is large in life and small here.
struct Sizes {
    data_segment: u64,
    checkpoint_bytes: u64,
    writes_max: usize,
    remembered_max: u64,
}

impl Sizes {
    /// A segment has room for hardly more than one large record, or for some. What waits to be written may be more than that.
    fn draw(random: &SimRandom) -> Sizes {
        Sizes {
            data_segment: [1280 * KIB, 2 * MIB][random.below(2) as usize],
            checkpoint_bytes: [256 * KIB, MIB, 4 * MIB][random.below(3) as usize],
            writes_max: [1, 2, 4, 4][random.below(4) as usize],
            remembered_max: [12, 40, REMEMBERED_MAX, REMEMBERED_MAX][random.below(4) as usize],
        }
    }
}

/// How a process of the node ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// What was written stays.
    Kill,
    /// What was synced stays.
    PowerLoss,
}

/// One life of the node, as its engines see it.
#[derive(Default)]
pub struct Process {
    over: AtomicBool,
    /// Its engines do nothing now.
    held: AtomicBool,
    /// It is over, or goes on.
    bell: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hardware {
    /// `count` new devices.
    pub fn new(count: usize, random: &SimRandom, clock: Arc<RuntimeClock>, stopped: Arc<Notify>) -> Hardware {
        let device = |name: &str| SimDevice::new(random.fork(name).next(), SimFaults::default());
        Hardware {
            devices: (0..count).map(|number| device(&format!("device {number}"))).collect(),
            log: device("log"),
            tree: SimFileDevice::new(),
            copy: SimFileDevice::new(),
            files: Mutex::new(BTreeMap::new()),
            random: random.fork("hardware"),
            clock,
            history: Mutex::new(0),
            slowness: AtomicU64::new(0),
            late_syncs: Arc::default(),
            stopped,
            remembered_calls: base::limit::REMEMBERED_CALLS,
            remembered_answers: base::limit::REMEMBERED_ANSWERS,
            page_max: base::limit::LIST_PAGE_MAX,
            stop_at_checkpoint: AtomicBool::new(false),
            stop_at_swap: AtomicBool::new(false),
            swaps: Mutex::default(),
            halted: AtomicBool::new(false),
            sizes: Sizes::draw(&random.fork("sizes")),
            complaints: Mutex::new(Vec::new()),
        }
    }

    /// Ends whatever process has the devices.
    pub fn end(&self, how: End) {
        self.stop_at_checkpoint.store(false, Ordering::Relaxed);
        self.halted.store(false, Ordering::Relaxed);
        for device in self.devices.iter().chain([&self.log]) {
            match how {
                End::Kill => device.kill(),
                End::PowerLoss => device.crash(),
            }
        }
        match how {
            End::Kill => [&self.tree, &self.copy].iter().for_each(|file| file.kill()),
            End::PowerLoss => [&self.tree, &self.copy].iter().for_each(|file| file.crash(self.random.next())),
        }
    }

    /// The disk with the metadata is replaced by an empty one; the devices stay. No process runs on it.
    pub fn lose_metadata(&self) {
        let is_of_metadata = |path: &Path| device_directory(path).is_some_and(|rest| rest.starts_with("meta"));
        lock(&self.files).retain(|path, _| !is_of_metadata(path));
        self.log.replace();
        [&self.tree, &self.copy].iter().for_each(|file| file.remove());
    }

    /// Whether something stopped at the operation it was told to.
    pub fn has_stopped(&self) -> bool {
        let devices = self.devices.iter().chain([&self.log]).any(SimDevice::crashed);
        devices || self.tree.crashed() || self.copy.crashed() || self.halted.load(Ordering::Relaxed)
    }

    /// Syncs that failed so far, of any device and of the tree.
    pub fn failed_syncs(&self) -> u64 {
        let devices = self.devices.iter().chain([&self.log]).flat_map(SimDevice::fired);
        let failed = |(name, _): &(&str, u64)| matches!(*name, "sync_error" | "tree_sync_error");
        devices.chain(self.tree.fired()).chain(self.copy.fired()).filter(failed).map(|(_, count)| count).sum()
    }

    /// Nothing rots before the end: a device that says at its start that something of its log is lost is wrong, or lost it.
    pub fn refuse_damage(&self) -> Check<()> {
        let complaints = lock(&self.complaints);
        match complaints.iter().find(|complaint| complaint.contains("is lost here; restore it from replicas")) {
            None => Ok(()),
            Some(complaint) => Err(Broken(complaint.clone())),
        }
    }

    /// How often each fault of a disk fired, by name.
    pub fn fired(&self) -> Vec<(&'static str, u64)> {
        let disks = self.devices.iter().chain([&self.log]).flat_map(SimDevice::fired);
        let swaps = lock(&self.swaps).clone();
        disks.chain(self.tree.fired()).chain(self.copy.fired()).chain(swaps).collect()
    }

    /// The history of all disks so far.
    pub fn history(&self) -> u32 {
        *lock(&self.history)
    }

    fn note(&self, text: &str) {
        let mut history = lock(&self.history);
        *history = crc32c(format!("{} {} {text}", *history, self.clock.now().as_nanos()).as_bytes());
    }

    /// How long what is under way on a disk takes until some of it is done.
    fn latency(&self) -> Duration {
        match self.slowness.load(Ordering::Relaxed) {
            0 if self.random.one_in(2) => Duration::ZERO,
            0 => Duration::from_millis(1 + self.random.below(2)),
            most => Duration::from_millis(1 + self.random.below(most)),
        }
    }
}

impl Process {
    /// Ends every engine that runs in it.
    pub fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        self.bell.notify_waiters();
    }

    /// Its engines stand still from here on.
    pub fn hold(&self) {
        self.held.store(true, Ordering::Relaxed);
        self.bell.notify_waiters();
    }

    /// They go on.
    pub fn let_go(&self) {
        self.held.store(false, Ordering::Relaxed);
        self.bell.notify_waiters();
    }

    async fn ended(&self) {
        self.until(|| self.over.load(Ordering::Relaxed)).await;
    }

    fn is_held(&self) -> bool {
        self.held.load(Ordering::Relaxed)
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let mut rung = std::pin::pin!(self.bell.notified());
            rung.as_mut().enable();
            if is_so() {
                return;
            }
            rung.await;
        }
    }
}

/// The world of one process of the node.
pub struct SimWorld {
    hardware: Arc<Hardware>,
    process: Arc<Process>,
    planted: Option<Planted>,
    /// Of the disk that was opened last: the one that is run next.
    pulse: Mutex<Option<Arc<Pulse>>>,
}

/// What a disk and the task that serves its engine share.
#[derive(Default)]
struct Pulse {
    woken: Notify,
    under_way: AtomicUsize,
    /// Its engine is open: time passes while it waits.
    serves: AtomicBool,
    /// When the next sync begins that is held back.
    late: Mutex<Option<Time>>,
}

impl Wake for Pulse {
    fn wake(&self) {
        self.woken.notify_one();
    }
}

impl SimWorld {
    /// A new process on this hardware, with a fault in its engines or without.
    pub fn new(hardware: Arc<Hardware>, process: Arc<Process>, planted: Option<Planted>) -> SimWorld {
        SimWorld { hardware, process, planted, pulse: Mutex::new(None) }
    }

    /// An error once something has stopped: whoever opens something again must not find it well before the machine has started anew.
    fn goes_on(&self) -> Result<()> {
        match self.hardware.has_stopped() {
            true => Err(Error::new(ErrorKind::Io, "the device is gone: its machine has stopped (simulated)")),
            false => Ok(()),
        }
    }
}

/// The number of the device whose chunks lie in this directory.
fn device_number(directory: &Path) -> Option<usize> {
    directory.to_str()?.strip_suffix("/chunks")?.strip_prefix('/')?.parse().ok()
}

/// What a path says behind the directory of a device.
fn device_directory(path: &Path) -> Option<&Path> {
    let mut parts = path.components();
    let number = parts.by_ref().nth(1)?;
    number.as_os_str().to_str()?.parse::<usize>().ok().map(|_| parts.as_path())
}

impl World for SimWorld {
    /// `/N/chunks` is device N, everything else the metadata store's log.
    fn disk(&self, directory: &Path, _backend: Backend, _pool: Pool) -> Result<Opened> {
        let name = directory.display().to_string();
        let number = device_number(directory);
        let device = number.map_or(&self.hardware.log, |number| &self.hardware.devices[number]);
        if number.is_none() {
            // The directory is there from now on.
            lock(&self.hardware.files).entry(directory.to_path_buf()).or_default();
        }
        let pulse: Arc<Pulse> = Arc::default();
        *lock(&self.pulse) = Some(pulse.clone());
        let disk = ProcessDisk {
            name,
            disk: device.attach(),
            device: device.clone(),
            hardware: self.hardware.clone(),
            under_way: BTreeSet::new(),
            late: Vec::new(),
            checkpoints: BTreeSet::new(),
            pulse,
        };
        Ok(Opened { disk: Box::new(disk), note: None })
    }

    fn tree(&self, path: &Path, _backend: Backend) -> Result<Box<dyn BlockFile>> {
        self.goes_on()?;
        lock(&self.hardware.files).entry(path.to_path_buf()).or_default();
        Ok(Box::new(self.hardware.tree.open()))
    }

    fn new_tree(&self, _path: &Path, _backend: Backend) -> Result<Box<dyn BlockFile>> {
        self.goes_on()?;
        self.hardware.copy.remove();
        Ok(Box::new(self.hardware.copy.open()))
    }

    /// Now and then the machine stops there: half of the time the copy has taken the place, and nobody was told.
    fn put_tree(&self, _copy: &Path, _tree: &Path, _backend: Backend) -> Result<()> {
        self.goes_on()?;
        let stops = self.hardware.stop_at_swap.swap(false, Ordering::Relaxed);
        let swaps = !stops || self.hardware.random.one_in(2);
        if swaps {
            self.hardware.tree.take_place(&self.hardware.copy);
        }
        let name = match (stops, swaps) {
            (false, _) => "copy took a tree's place",
            (true, true) => "stop after a copy took a tree's place",
            (true, false) => "stop before a copy took a tree's place",
        };
        *lock(&self.hardware.swaps).entry(name).or_default() += 1;
        self.hardware.halted.fetch_or(stops, Ordering::Relaxed);
        self.hardware.note(name);
        self.goes_on()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let files = lock(&self.hardware.files);
        // A device is there from the first start on, though its files come later.
        let is_device = !files.is_empty() && path.parent().and_then(device_number).is_some();
        Ok(is_device || files.contains_key(path))
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }

    fn read_text(&self, path: &Path) -> Result<String> {
        let bytes = lock(&self.hardware.files).get(path).cloned().unwrap_or_default();
        String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))
    }

    fn replace(&self, path: &Path, bytes: &[u8], _backend: Backend) -> Result<()> {
        lock(&self.hardware.files).insert(path.to_path_buf(), bytes.to_vec());
        Ok(())
    }

    fn make_directory(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(u64::MAX / 16)
    }

    /// Small segments, so that everything happens within a few MiB.
    fn chunk_settings(&self, capacity: u64, pool: Pool) -> chunk::Settings {
        chunk::Settings {
            data_segment: self.hardware.sizes.data_segment,
            journal_segment: 256 * KIB,
            checkpoint_bytes: self.hardware.sizes.checkpoint_bytes,
            checkpoint_journal: 256 * KIB,
            writes_max: self.hardware.sizes.writes_max,
            remembered_max: self.hardware.sizes.remembered_max,
            reserve: 4 * MIB,
            tails_max: MIB / 2,
            group_max: 128 << 10,
            planted: self.planted,
            ..chunk::Settings::for_capacity(capacity, pool)
        }
    }

    fn meta_settings(&self, _capacity: u64, random: Arc<dyn Random>) -> meta::Settings {
        let merge_bytes = MIB as usize / 2;
        // As small as the chunks of the clients there: files of some hundred KiB have several columns.
        let widths = meta::Widths { cell: 16 * KIB, narrow: 64 * KIB, full: 256 * KIB, columns_max: 3 };
        let Hardware { remembered_calls, remembered_answers, page_max, .. } = *self.hardware;
        let (segment_length, segments_max, planted) = (MIB, 4, self.planted);
        meta::Settings {
            segment_length,
            segments_max,
            merge_bytes,
            random,
            widths,
            remembered_calls,
            remembered_answers,
            page_max,
            superuser: String::new(),
            copy_page: base::limit::COPY_PAGE,
            seats: None,
            planted,
        }
    }

    fn run(&self, _name: &str, mut disk: Box<dyn Disk>, open: Open) -> Result<Ended> {
        let (ending, ended) = oneshot::channel::<()>();
        let (hardware, process) = (self.hardware.clone(), self.process.clone());
        let Some(pulse) = lock(&self.pulse).take() else { unreachable!("a disk is opened before its engine is run") };
        if let Some(work) = open(disk.as_mut()) {
            tokio::spawn(async move {
                serve(work, disk, &pulse, &hardware, &process).await;
                drop(ending);
            });
        }
        Ok(ended)
    }

    fn aside(&self, _name: &str, work: Boxed<'static, ()>) -> Result<Ended> {
        let (ending, ended) = oneshot::channel::<()>();
        let process = self.process.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = process.ended() => (),
                () = when_it_goes_on(&process, work) => (),
            }
            drop(ending);
        });
        Ok(ended)
    }

    fn say(&self, trouble: &str) {
        lock(&self.hardware.complaints).push(format!("{:?} {trouble}", self.hardware.clock.now().since(Time::ZERO)));
    }

    fn planted(&self) -> Option<Planted> {
        self.planted
    }
}

/// Carries out work, but none of it while the process stands still.
async fn when_it_goes_on(process: &Process, mut work: Boxed<'static, ()>) {
    loop {
        process.until(|| !process.is_held()).await;
        tokio::select! {
            biased;
            () = process.until(|| process.is_held()) => (),
            () = work.as_mut() => return,
        }
    }
}

/// Turns of an engine at one instant of virtual time. No history comes near them.
const TURNS_AT_ONCE: u64 = 1_000_000;

/// Serves one engine until it ends, its process ends, or something stops.
async fn serve(
    mut work: Box<dyn Work>,
    mut disk: Box<dyn Disk>,
    pulse: &Pulse,
    hardware: &Hardware,
    process: &Process,
) {
    pulse.serves.store(true, Ordering::Relaxed);
    let mut done: Vec<Done> = Vec::new();
    // When the disk has something to say.
    let mut ready: Option<Time> = None;
    let (mut turns, mut since) = (0, hardware.clock.now());
    loop {
        // Time goes on when all are at rest: with an engine that never is, the history would not end.
        (turns, since) = if hardware.clock.now() == since { (turns + 1, since) } else { (0, hardware.clock.now()) };
        assert!(turns < TURNS_AT_ONCE, "an engine asked for {TURNS_AT_ONCE} turns at the same instant");
        if process.is_held() {
            tokio::select! {
                biased;
                () = process.ended() => return,
                () = process.until(|| !process.is_held()) => (),
            }
        }
        let Turn::Wait(wait) = work.turn(&mut done, disk.as_mut()) else { return };
        let now = hardware.clock.now();
        if pulse.under_way.load(Ordering::Relaxed) == 0 {
            ready = None;
        } else if ready.is_none() {
            ready = Some(now.after(hardware.latency()));
        }
        let due = ready.into_iter().chain(*lock(&pulse.late)).min();
        let rest = due.map(|due| due.since(now)).into_iter().chain(wait).min();
        let pause = async {
            match rest {
                Some(Duration::ZERO) => tokio::task::yield_now().await,
                Some(rest) => tokio::time::sleep(rest).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = process.ended() => return,
            () = pulse.woken.notified() => (),
            () = pause => (),
        }
        if !hardware.has_stopped() && due.is_some_and(|due| due <= hardware.clock.now()) {
            disk.poll(Some(Duration::ZERO), &mut done);
            ready = None;
        }
        if hardware.has_stopped() {
            // It ends where it stands; the director ends the rest of the process.
            hardware.stopped.notify_one();
            return process.ended().await;
        }
    }
}

/// A device as one process of the node sees it.
struct ProcessDisk {
    name: String,
    disk: SimDisk,
    device: SimDevice,
    hardware: Arc<Hardware>,
    under_way: BTreeSet<u64>,
    /// Those of them that the disk itself has not been given yet, and when it is.
    late: Vec<(Time, u64, Op)>,
    /// Syncs of checkpoints under way.
    checkpoints: BTreeSet<u64>,
    pulse: Arc<Pulse>,
}

impl ProcessDisk {
    fn is_gone(&self) -> bool {
        self.device.crashed() || self.hardware.halted.load(Ordering::Relaxed)
    }

    fn tell(&self) {
        self.pulse.under_way.store(self.under_way.len() - self.late.len(), Ordering::Relaxed);
        *lock(&self.pulse.late) = self.late.iter().map(|(when, ..)| *when).min();
    }
}

impl Disk for ProcessDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.disk.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.hardware.note(&format!("{} {token} {}", self.name, shown(&op)));
        if matches!(op, Op::Sync { file } if file.kind == FileKind::Checkpoint) {
            self.checkpoints.insert(token);
        }
        self.under_way.insert(token);
        let may_wait = device_number(Path::new(&self.name)).is_some() && self.pulse.serves.load(Ordering::Relaxed);
        let late = if may_wait { self.hardware.late_syncs.load(Ordering::Relaxed) } else { 0 };
        match &op {
            Op::Sync { file } if file.kind == FileKind::Data && late > 0 => {
                let pause = Duration::from_millis(1 + self.hardware.random.below(late));
                self.late.push((self.hardware.clock.now().after(pause), token, op));
            }
            _ => self.disk.submit(token, op),
        }
        self.tell();
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        if !self.is_gone() {
            let now = self.hardware.clock.now();
            for (_, token, op) in self.late.extract_if(.., |(when, ..)| *when <= now) {
                self.disk.submit(token, op);
            }
            self.disk.poll(wait, done);
        }
        for finished in done.iter() {
            self.under_way.remove(&finished.token);
            let synced = self.checkpoints.remove(&finished.token) && finished.result.is_ok();
            if synced && self.hardware.stop_at_checkpoint.swap(false, Ordering::Relaxed) {
                self.hardware.halted.store(true, Ordering::Relaxed);
            }
            let how = finished.result.as_ref().map(|bytes| crc32c(bytes));
            self.hardware.note(&format!("{} {} {how:?}", self.name, finished.token));
        }
        if self.is_gone() {
            // An engine that is being opened waits here: it is told that the device is gone.
            let gone = || DiskError::Io("the device is gone: its machine has stopped".to_string());
            let left = std::mem::take(&mut self.under_way);
            self.late.clear();
            done.extend(left.into_iter().map(|token| Done { token, result: Err(gone()) }));
        }
        self.tell();
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.pulse.clone()
    }

    fn has_early(&self) -> bool {
        self.disk.has_early()
    }

    fn early(&mut self, file: FileName) -> Option<Arc<dyn Early>> {
        self.disk.early(file)
    }

    fn inline(&self) -> Option<Arc<dyn Inline>> {
        let (device, hardware, pulse) = (self.device.clone(), self.hardware.clone(), self.pulse.clone());
        let inner = self.disk.inline()?;
        Some(Arc::new(ProcessInline { inner, name: self.name.clone(), device, hardware, pulse }))
    }

    fn backend(&self) -> &'static str {
        "simulated"
    }
}

/// The same device for those who do its operations themselves, which takes no time.
struct ProcessInline {
    inner: Arc<dyn Inline>,
    name: String,
    device: SimDevice,
    hardware: Arc<Hardware>,
    pulse: Arc<Pulse>,
}

impl Inline for ProcessInline {
    /// Slow every fourth time, so that both ways are taken in one history, and a write without its sync.
    fn is_fast(&self) -> bool {
        self.hardware.random.below(4) > 0
    }

    fn execute(&self, op: Op) -> std::result::Result<Buffer, DiskError> {
        let is_gone = || self.device.crashed() || self.hardware.halted.load(Ordering::Relaxed);
        if is_gone() {
            return Err(DiskError::Io("the device is gone: its machine has stopped".to_string()));
        }
        self.hardware.note(&format!("{} inline {}", self.name, shown(&op)));
        let result = self.inner.execute(op);
        self.hardware.note(&format!("{} inline {:?}", self.name, result.as_ref().map(|_| ())));
        if is_gone() {
            // Its engine sees to the end.
            self.pulse.wake();
        }
        result
    }

    fn took(&self, _: Duration) {}
}

/// An operation in the notes.
fn shown(op: &Op) -> String {
    match op {
        // How the bytes are cut into parts depends on addresses, which are not the seed's.
        Op::Write { file, offset, parts } => format!("write {file} {offset} {}", crc32c(&parts.concat())),
        other => format!("{other:?}"),
    }
}
