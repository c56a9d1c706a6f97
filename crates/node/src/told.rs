//! A disk for tests, whose operations done by whoever asks go as they are told.

use base::buffer::Buffer;
use base::disk::{Disk, DiskError, Done, Early, FileName, Inline, Op, Wake};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// A real disk that is as fast as it is told, and counts what was done inline.
pub(crate) struct Told {
    disk: Box<dyn Disk>,
    inline: Arc<ToldInline>,
}

pub(crate) struct ToldInline {
    inner: Arc<dyn Inline>,
    pub fast: AtomicBool,
    pub done: AtomicUsize,
    /// What is done during the next operation, once.
    pub during: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// So many operations are done before the one that hangs.
    pub hangs_after: AtomicUsize,
    /// What that one waits for.
    pub hangs: Mutex<Option<mpsc::Receiver<()>>>,
    /// What the thread of the disk waits for the next time that it looks after it.
    pub poll_hangs: Mutex<Option<mpsc::Receiver<()>>>,
    /// The next one panics.
    pub panics: AtomicBool,
}

impl Told {
    /// This disk, and what tells it.
    pub(crate) fn wrap(disk: Box<dyn Disk>) -> (Box<dyn Disk>, Arc<ToldInline>) {
        let Some(inner) = disk.inline() else { unreachable!("a test has a disk whose operations others can do") };
        let inline = Arc::new(ToldInline {
            inner,
            fast: AtomicBool::new(true),
            done: AtomicUsize::new(0),
            during: Mutex::default(),
            hangs_after: AtomicUsize::new(0),
            hangs: Mutex::default(),
            poll_hangs: Mutex::default(),
            panics: AtomicBool::new(false),
        });
        (Box::new(Told { disk, inline: inline.clone() }), inline)
    }
}

impl Inline for ToldInline {
    fn is_fast(&self) -> bool {
        self.fast.load(Ordering::Relaxed)
    }
    fn execute(&self, op: Op) -> std::result::Result<Buffer, DiskError> {
        self.done.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics.swap(false, Ordering::Relaxed), "a fault that was put in on purpose");
        let during = self.during.lock().unwrap_or_else(PoisonError::into_inner).take();
        during.into_iter().for_each(|during| during());
        if self.hangs_after.load(Ordering::Relaxed) == 0 {
            hang(&self.hangs);
        } else {
            self.hangs_after.fetch_sub(1, Ordering::Relaxed);
        }
        self.inner.execute(op)
    }
    fn took(&self, _: Duration) {}
}

impl Disk for Told {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.disk.list()
    }
    fn submit(&mut self, token: u64, op: Op) {
        self.disk.submit(token, op);
    }
    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        hang(&self.inline.poll_hangs);
        self.disk.poll(wait, done);
    }
    fn waker(&self) -> Arc<dyn Wake> {
        self.disk.waker()
    }
    fn has_early(&self) -> bool {
        self.disk.has_early()
    }
    fn early(&mut self, file: FileName) -> Option<Arc<dyn Early>> {
        self.disk.early(file)
    }
    fn inline(&self) -> Option<Arc<dyn Inline>> {
        Some(self.inline.clone())
    }
    fn backend(&self) -> &'static str {
        self.disk.backend()
    }
}

fn hang(on: &Mutex<Option<mpsc::Receiver<()>>>) {
    let taken = on.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(goes_on) = taken {
        // Whoever is gone lets it go on, too.
        let _ = goes_on.recv();
    }
}
