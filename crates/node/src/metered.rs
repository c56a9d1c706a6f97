//! A disk that counts what passes: the same for devices and for the metadata store's log.

use base::buffer::Buffer;
use base::disk::{Disk, DiskError, Done, Early, FileKind, FileName, Inline, Op, Wake};
use base::env::Clock;
use base::metric::Histogram;
use base::unit::Time;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What a disk was asked to do, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making writes durable.
    Sync,
    /// Making, removing and punching files.
    Files,
}

impl Doing {
    /// All of them.
    pub const ALL: [Doing; 4] = [Doing::Read, Doing::Write, Doing::Sync, Doing::Files];

    /// The word for it in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Doing::Read => "read",
            Doing::Write => "write",
            Doing::Sync => "sync",
            Doing::Files => "files",
        }
    }
}

/// What passed through one disk since the node started.
#[derive(Debug, Default)]
pub struct DiskStats {
    /// How long operations took, by `Doing`.
    pub took: [Histogram; 4],
    /// Operations that failed, by `Doing`. A file system without room is no failure of the disk.
    pub failed: [AtomicU64; 4],
    /// Bytes read.
    pub bytes_read: AtomicU64,
    /// Bytes written.
    pub bytes_written: AtomicU64,
    /// Bytes given back to the file system.
    pub bytes_punched: AtomicU64,
    /// Checkpoints that were written and synced.
    pub checkpoints: AtomicU64,
}

impl DiskStats {
    /// Operations that failed, of any kind.
    pub fn failures(&self) -> u64 {
        self.failed.iter().map(|failed| failed.load(Ordering::Relaxed)).fold(0, u64::saturating_add)
    }
}

/// Passes everything on and counts it.
pub struct MeteredDisk {
    inner: Box<dyn Disk>,
    stats: Arc<DiskStats>,
    clock: Arc<dyn Clock>,
    under_way: BTreeMap<u64, (Doing, FileName, Time)>,
}

impl MeteredDisk {
    /// The disk, counted in `stats`.
    pub fn wrap(inner: Box<dyn Disk>, stats: Arc<DiskStats>, clock: Arc<dyn Clock>) -> Box<dyn Disk> {
        Box::new(MeteredDisk { inner, stats, clock, under_way: BTreeMap::new() })
    }

    fn ended(&mut self, now: Time, done: &Done) {
        let Some((doing, file, since)) = self.under_way.remove(&done.token) else { return };
        self.stats.ended((doing, file), now.since(since), &done.result);
    }
}

impl DiskStats {
    /// Something begins.
    fn begins(&self, op: &Op) -> (Doing, FileName) {
        match op {
            Op::Read { file, .. } => (Doing::Read, *file),
            Op::Write { file, parts, .. } => {
                count(&self.bytes_written, parts.iter().map(|part| part.len() as u64).sum());
                (Doing::Write, *file)
            }
            Op::Sync { file } => (Doing::Sync, *file),
            Op::Punch { file, length, .. } => {
                count(&self.bytes_punched, *length);
                (Doing::Files, *file)
            }
            Op::Create { file, .. } | Op::Remove { file } => (Doing::Files, *file),
        }
    }

    fn ended(&self, (doing, file): (Doing, FileName), took: Duration, result: &Result<Buffer, DiskError>) {
        self.took[doing as usize].add(took);
        match result {
            Ok(bytes) => {
                count(&self.bytes_read, bytes.len() as u64);
                if doing == Doing::Sync && file.kind == FileKind::Checkpoint {
                    count(&self.checkpoints, 1);
                }
            }
            Err(DiskError::NoSpace) => (),
            Err(DiskError::NotFound | DiskError::Io(_) | DiskError::Unnamed(_)) => {
                count(&self.failed[doing as usize], 1)
            }
        }
    }
}

/// The same for operations that others do themselves.
struct MeteredInline {
    inner: Arc<dyn Inline>,
    stats: Arc<DiskStats>,
    clock: Arc<dyn Clock>,
}

impl Inline for MeteredInline {
    fn is_fast(&self) -> bool {
        self.inner.is_fast()
    }

    fn execute(&self, op: Op) -> Result<Buffer, DiskError> {
        let (what, since) = (self.stats.begins(&op), self.clock.now());
        let result = self.inner.execute(op);
        self.stats.ended(what, self.clock.now().since(since), &result);
        result
    }

    fn took(&self, time: Duration) {
        self.inner.took(time);
    }
}

fn count(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Ordering::Relaxed);
}

impl Disk for MeteredDisk {
    fn list(&mut self) -> Result<Vec<(FileName, u64)>, DiskError> {
        self.inner.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        let (doing, file) = self.stats.begins(&op);
        self.under_way.insert(token, (doing, file, self.clock.now()));
        self.inner.submit(token, op);
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        let before = done.len();
        self.inner.poll(wait, done);
        if done.len() > before {
            let now = self.clock.now();
            for finished in &done[before..] {
                self.ended(now, finished);
            }
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        self.inner.waker()
    }

    fn has_early(&self) -> bool {
        self.inner.has_early()
    }

    fn early(&mut self, file: FileName) -> Option<Arc<dyn Early>> {
        self.inner.early(file)
    }

    fn inline(&self) -> Option<Arc<dyn Inline>> {
        let (stats, clock) = (self.stats.clone(), self.clock.clone());
        self.inner.inline().map(|inner| Arc::new(MeteredInline { inner, stats, clock }) as Arc<dyn Inline>)
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }
}
