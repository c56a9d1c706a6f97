//! A device directory served by threads that block: for kernels and containers that refuse io_uring.

use super::directory::Directory;
use super::inline::InlineDirectory;
use super::workers::{Finished, Workers};
use base::buffer::Pool;
use base::disk::{Disk, DiskError, Done, Early, FileName, Inline, Op, Wake};
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
    /// What `poll` does itself unless more comes before: for a log, which has one operation on its way at a time, handing it over and back costs
    /// as much as the disk takes. Not `submit`: its caller may hold what other threads wait for.
    held: Option<(u64, Op)>,
    /// Operations that were handed over and are not picked up yet.
    handed: usize,
    inline: Arc<InlineDirectory>,
}

impl ThreadsDisk {
    /// Serves this directory.
    pub(super) fn start(directory: Directory, pool: Pool) -> Result<ThreadsDisk> {
        let directory = Arc::new(directory);
        let finished = Arc::new(Finished::default());
        let workers = Workers::start(THREADS, &directory, &pool, &finished, None)?;
        let inline = Arc::new(InlineDirectory::new(directory.clone(), pool));
        Ok(ThreadsDisk { directory, finished, workers, held: None, handed: 0, inline })
    }

    fn hand_over(&mut self, token: u64, op: Op) {
        self.handed += 1;
        self.workers.submit(token, op);
    }
}

impl Disk for ThreadsDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.directory.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        let alone = self.handed == 0 && self.held.is_none();
        if let Some((token, op)) = self.held.take() {
            self.hand_over(token, op);
        }
        if alone && op.is_small() {
            self.held = Some((token, op));
        } else {
            self.hand_over(token, op);
        }
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        match self.held.take() {
            Some((token, op)) if self.inline.is_fast() => {
                let result = self.inline.execute(op);
                done.push(Done { token, result });
                return;
            }
            Some((token, op)) => self.hand_over(token, op),
            None => (),
        }
        let before = done.len();
        self.finished.wait(wait, done);
        self.handed -= done.len() - before;
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

    fn inline(&self) -> Option<Arc<dyn Inline>> {
        Some(self.inline.clone())
    }

    fn backend(&self) -> &'static str {
        "threads"
    }
}

#[cfg(test)]
mod tests {
    use super::{Directory, InlineDirectory, ThreadsDisk};
    use base::buffer::{Buffer, Pool};
    use base::disk::{Disk, FileKind, FileName, Fill, INLINE_MAX, Op};
    use std::sync::Arc;
    use std::time::Duration;

    const FILE: FileName = FileName { kind: FileKind::Log, number: 1 };

    fn fresh(disk: &ThreadsDisk) -> Arc<InlineDirectory> {
        Arc::new(InlineDirectory::new(disk.directory.clone(), Pool::new(0)))
    }

    /// What is small and alone is done by the disk's own thread when it polls, and not before; what is large, comes with others, or comes to a
    /// disk that was slow, by the other threads. All of it is done.
    #[test]
    fn alone_or_together() {
        let path = std::env::temp_dir().join(format!("stormwell-threads-{}", std::process::id()));
        let (directory, _) = Directory::open(&path).expect("a fresh directory");
        let mut disk = ThreadsDisk::start(directory, Pool::new(0)).expect("it starts");
        let write = |length| Op::Write { file: FILE, offset: 0, parts: vec![Buffer::zeroed(length).freeze()] };
        let sync = || Op::Sync { file: FILE };
        let create = Op::Create { file: FILE, size: 1 << 20, fill: Fill::Zeros };
        let cases = [
            (vec![create], false, 1),
            (vec![write(4096)], false, 0),
            (vec![sync()], false, 0),
            (vec![write(INLINE_MAX + 4096)], false, 1),
            (vec![write(4096), write(4096), sync()], false, 3),
            (vec![sync()], true, 1),
        ];
        for (number, (ops, slow, handed)) in cases.into_iter().enumerate() {
            disk.inline = fresh(&disk);
            if slow {
                disk.inline.speed.took(Duration::from_secs(60));
            }
            let count = ops.len();
            for (token, op) in ops.into_iter().enumerate() {
                disk.submit(token as u64, op);
            }
            assert_eq!(disk.held.is_some(), count == 1 && (handed == 0 || slow), "case {number}");
            let mut done = Vec::new();
            disk.poll(Some(Duration::ZERO), &mut done);
            assert_eq!(disk.handed + done.len(), if handed == 0 { 1 } else { handed }, "case {number}");
            assert!(handed > 0 || done.len() == 1, "case {number}: done when it polls");
            while done.len() < count {
                disk.poll(Some(Duration::from_secs(1)), &mut done);
            }
            assert!(done.iter().all(|done| done.result.is_ok()) && disk.handed == 0, "case {number}: {done:?}");
        }
        disk.submit(9, Op::Sync { file: FileName { number: 7, ..FILE } });
        let mut done = Vec::new();
        disk.poll(None, &mut done);
        assert!(done[0].result.is_err(), "there is no such file");
        drop(disk);
        std::fs::remove_dir_all(&path).expect("it is ours");
    }
}
