//! A device directory served by threads that block: for kernels and containers that refuse io_uring.

use super::directory::Directory;
use super::workers::{Finished, Workers};
use base::buffer::Pool;
use base::disk::{Disk, DiskError, Done, Early, FileName, Op, Wake};
use base::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// Operations done at once.
const THREADS: usize = 4;

/// The directory and its threads.
pub(super) struct ThreadsDisk {
    directory: Arc<Directory>,
    finished: Arc<Finished>,
    workers: Workers,
}

impl ThreadsDisk {
    /// Serves this directory.
    pub(super) fn start(directory: Directory, pool: &Pool) -> Result<ThreadsDisk> {
        let directory = Arc::new(directory);
        let finished = Arc::new(Finished::default());
        let workers = Workers::start(THREADS, &directory, pool, &finished, None)?;
        Ok(ThreadsDisk { directory, finished, workers })
    }
}

impl Disk for ThreadsDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.directory.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.workers.submit(token, op);
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        self.finished.wait(wait, done);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.finished) as Arc<dyn Wake>
    }

    fn has_early(&self) -> bool {
        true
    }

    fn early(&mut self, file: FileName) -> Option<Arc<dyn Early>> {
        self.directory.file(file).early()
    }

    fn backend(&self) -> &'static str {
        "threads"
    }
}
