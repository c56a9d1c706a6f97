//! A device directory served by io_uring: one ring, owned by the thread that uses the disk, and one thread for what the ring cannot do well.

use super::directory::{Directory, OpenFile, PUNCH_MODE, Vectors, disk_error};
use super::inline::{BUSY_MAX, InlineDirectory};
use super::workers::{Finished, Workers};
use base::buffer::{Buffer, Pool};
use base::disk::{Caching, Disk, DiskError, Done, Early, FileName, Inline, Op, Wake};
use base::error::{Error, Result};
use base::limit::BLOCK;
use bytes::Bytes;
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Entries of the submission queue: more than an engine has in flight. The completion queue has twice as many.
const ENTRIES: [u32; 2] = [128, 64];

/// Marks the completion of the read of the eventfd.
const WAKE: u64 = u64::MAX;

/// The directory, its ring, and the operations in it.
pub(super) struct UringDisk {
    ring: IoUring,
    /// The ring was made disabled: it belongs to the thread that enables it.
    enabled: bool,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Operations of `slots` that are not finished.
    active: usize,
    /// Completions (user data, result) that were taken out to make room.
    taken: VecDeque<(u64, i32)>,
    /// Syncs that `poll` begins. Not `submit`: its caller may hold what other threads wait for.
    syncs: Vec<(u64, FileName)>,
    /// For what threads do themselves, this one its syncs: in the ring a sync waits for a worker of the kernel's to be scheduled first, 59 us of the
    /// 313 us of a round of appends on two busy processors. It knows how many bytes the ring moves (`Kind::weight`).
    inline: Arc<InlineDirectory>,
    /// Operations that ended without the ring.
    ready: Vec<Done>,
    waker: Arc<EventWaker>,
    /// Where the ring puts the eventfd's count.
    wake_count: Box<u64>,
    wake_armed: bool,
    pool: Pool,
    /// Creates and removes files.
    workers: Workers,
    finished: Arc<Finished>,
    directory: Arc<Directory>,
}

/// One operation in the ring, with everything that the kernel may touch until it is finished.
#[derive(Default)]
struct Slot {
    token: u64,
    work: Option<Work>,
    /// Bytes that earlier rounds of the operation moved.
    moved: usize,
    vectors: Vectors,
}

struct Work {
    name: FileName,
    file: Arc<OpenFile>,
    kind: Kind,
}

enum Kind {
    Read { offset: u64, caching: Caching, buffer: Buffer },
    Write { offset: u64, total: usize, parts: Vec<Bytes> },
    Sync,
    Punch { offset: u64, length: u64 },
}

impl Kind {
    fn verb(&self) -> &'static str {
        match self {
            Kind::Read { .. } => "read",
            Kind::Write { .. } => "write",
            Kind::Sync => "sync",
            Kind::Punch { .. } => "punch",
        }
    }

    /// About how many bytes the disk moves for it: what a sync would wait for.
    fn weight(&self) -> usize {
        match self {
            Kind::Read { buffer, .. } => buffer.len(),
            Kind::Write { total, .. } => *total,
            Kind::Sync => 0,
            Kind::Punch { .. } => BUSY_MAX,
        }
    }
}

/// Wakes by eventfd, and only if the disk's thread sleeps: a busy thread costs the caller no system call.
struct EventWaker {
    event: OwnedFd,
    woken: AtomicBool,
    asleep: AtomicBool,
}

impl Wake for EventWaker {
    fn wake(&self) {
        // The sleeper stores `asleep` and then looks at `woken`; this is the other way round, so one of the two sees the other.
        self.woken.store(true, Ordering::SeqCst);
        if self.asleep.swap(false, Ordering::SeqCst) {
            self.ring_bell();
        }
    }
}

impl EventWaker {
    fn ring_bell(&self) {
        let one = 1u64;
        // SAFETY: writes eight bytes from a local to an open descriptor. It cannot fail: the count is far from its limit.
        unsafe { libc::write(self.event.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// The ring for a disk, after one read through another ring showed that it works here; else why not.
///
/// It holds the directory's lock as well: the kernel goes on with the writes of a process that was killed after the process
/// is gone, and lets go of what a ring holds when all of them have ended.
pub(super) fn build_ring(directory: &Directory) -> std::result::Result<IoUring, String> {
    let mut probed = Err(io::Error::other("not tried"));
    let result = directory.probe(|file| {
        probed = probe(file);
        Ok(())
    });
    result.and(probed).map_err(|error| error.to_string())?;
    let ring = ring()?;
    let held = ring.submitter().register_files(&[directory.lock_descriptor()]);
    held.map_err(|error| format!("it cannot hold the lock: {error}"))?;
    Ok(ring)
}

/// A ring of the most entries that the kernel gives, or why there is none.
pub(super) fn ring() -> std::result::Result<IoUring, String> {
    let mut reason = String::new();
    for entries in ENTRIES {
        let mut fast = IoUring::builder();
        fast.setup_r_disabled().setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun().setup_taskrun_flag();
        // Kernels before 6.1 know fewer flags.
        match fast.build(entries).or_else(|_| IoUring::builder().setup_r_disabled().build(entries)) {
            Ok(ring) if ring.params().is_feature_nodrop() && ring.params().is_feature_ext_arg() => return Ok(ring),
            Ok(_) => return Err("the kernel is older than 5.11".to_string()),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// Reads the first block of a file over a ring; nothing is read of an empty one.
pub(super) fn probe(file: &File) -> io::Result<()> {
    let mut ring = IoUring::new(2)?;
    let mut buffer = Buffer::zeroed(BLOCK);
    let entry = opcode::Read::new(types::Fd(file.as_raw_fd()), buffer.as_mut_ptr(), BLOCK as u32).build();
    // SAFETY: file and buffer outlive the wait below.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    while let Err(error) = ring.submit_and_wait(1) {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match ring.completion().next().map(|completion| completion.result()) {
        Some(count) if count == BLOCK as i32 || count == 0 => Ok(()),
        Some(errno) if errno < 0 => Err(io::Error::from_raw_os_error(-errno)),
        other => Err(io::Error::other(format!("a read of one block returned {other:?}"))),
    }
}

impl UringDisk {
    /// Serves this directory with this ring.
    pub(super) fn start(directory: Directory, pool: Pool, ring: IoUring) -> Result<UringDisk> {
        // SAFETY: makes a descriptor out of nothing.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if event < 0 {
            return Err(Error::from(io::Error::last_os_error()).during("cannot make an eventfd"));
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        let waker = Arc::new(EventWaker { event, woken: AtomicBool::new(false), asleep: AtomicBool::new(false) });
        let directory = Arc::new(directory);
        let finished = Arc::new(Finished::default());
        let wake = Arc::clone(&waker) as Arc<dyn Wake>;
        let workers = Workers::start(1, &directory, &pool, &finished, Some(&wake))?;
        let inline = Arc::new(InlineDirectory::new(directory.clone(), pool.clone()));
        Ok(UringDisk {
            ring,
            enabled: false,
            slots: Vec::new(),
            free: Vec::new(),
            active: 0,
            syncs: Vec::new(),
            inline,
            taken: VecDeque::new(),
            ready: Vec::new(),
            waker,
            wake_count: Box::new(0),
            wake_armed: false,
            pool,
            workers,
            finished,
            directory,
        })
    }

    /// Makes the ring this thread's own.
    fn enable(&mut self) {
        if !self.enabled {
            self.enabled = true;
            match self.ring.submitter().register_enable_rings() {
                Ok(()) => {}
                Err(error) => panic!("a ring that was just made cannot be enabled: {error}"),
            }
        }
    }

    /// Puts an operation into the ring.
    fn begin(&mut self, token: u64, name: FileName, kind: Kind) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let file = self.directory.file(name);
        let slot = &mut self.slots[index as usize];
        slot.token = token;
        slot.moved = 0;
        self.inline.busy.fetch_add(kind.weight(), Ordering::Relaxed);
        slot.work = Some(Work { name, file, kind });
        self.active += 1;
        self.advance(index);
    }

    /// Queues the next round of a slot's operation.
    fn advance(&mut self, index: u32) {
        match self.slots[index as usize].entry() {
            Ok(entry) => self.push(&entry.user_data(u64::from(index))),
            Err(error) => {
                let done = self.release(index, Err(error));
                self.ready.push(done);
            }
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: what the entry points to is owned by its slot, or by the disk, until its completion; `drop` waits for it.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // The queue is full. A kernel that is busy with completions lets more in once they are taken.
            must_enter(self.enter(Some(Duration::ZERO)));
            for completion in self.ring.completion() {
                self.taken.push_back((completion.user_data(), completion.result()));
            }
        }
    }

    /// Frees the slot and says how its operation ended.
    fn release(&mut self, index: u32, result: io::Result<()>) -> Done {
        let slot = &mut self.slots[index as usize];
        let Some(work) = slot.work.take() else { unreachable!("a slot is released once") };
        let token = slot.token;
        let moved = slot.moved;
        self.free.push(index);
        self.active -= 1;
        self.inline.busy.fetch_sub(work.kind.weight(), Ordering::Relaxed);
        let result = match (result, work.kind) {
            (Ok(()), Kind::Read { mut buffer, .. }) => {
                buffer.set_length(moved);
                Ok(buffer)
            }
            (Ok(()), _) => Ok(Buffer::zeroed(0)),
            (Err(error), kind) => Err(disk_error(kind.verb(), work.name, &error)),
        };
        Done { token, result }
    }

    /// Begins the syncs that were submitted: in this thread while nothing large is under way, else in the ring.
    fn sync(&mut self) {
        if self.syncs.is_empty() {
            return;
        }
        // What was submitted before them goes on while this thread is in the kernel.
        self.enter_if_needed();
        for (token, name) in std::mem::take(&mut self.syncs) {
            if !self.inline.is_fast() {
                self.begin(token, name, Kind::Sync);
                continue;
            }
            let result = self.inline.execute(Op::Sync { file: name });
            self.ready.push(Done { token, result });
        }
    }

    /// Hands queued operations to the kernel, and waits for a completion: not at all (zero), up to `wait`, or until there is one.
    fn enter(&mut self, wait: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        let entered = match wait {
            Some(Duration::ZERO) => submitter.submit(),
            Some(wait) => {
                let time = types::Timespec::from(wait);
                submitter.submit_with_args(1, &types::SubmitArgs::new().timespec(&time))
            }
            None => submitter.submit_and_wait(1),
        };
        match entered.map_err(|error| (error.raw_os_error(), error)) {
            // Time is up, a signal came, or completions must be taken first: the caller takes them and comes again.
            Ok(_) | Err((Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes all completions out of the ring.
    fn reap(&mut self, done: &mut Vec<Done>) {
        loop {
            let next = self.taken.pop_front().or_else(|| {
                self.ring.completion().next().map(|completion| (completion.user_data(), completion.result()))
            });
            let Some((user_data, result)) = next else { return };
            if user_data == WAKE {
                self.wake_armed = false;
                continue;
            }
            let index = user_data as u32;
            match self.slots[index as usize].account(result) {
                Round::Again => self.advance(index),
                Round::Over(result) => done.push(self.release(index, result)),
            }
        }
    }

    fn arm_wake(&mut self) {
        if !self.wake_armed {
            self.wake_armed = true;
            let target = (&raw mut *self.wake_count).cast();
            let entry = opcode::Read::new(types::Fd(self.waker.event.as_raw_fd()), target, 8).build();
            self.push(&entry.user_data(WAKE));
        }
    }

    /// Moves what ended without the ring to `done`.
    fn take_ready(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.ready);
        self.finished.take(done);
    }

    /// Enters the kernel only if that can change anything.
    fn enter_if_needed(&mut self) {
        let queue = self.ring.submission();
        let needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if needed {
            must_enter(self.enter(Some(Duration::ZERO)));
        }
    }
}

/// The kernel refuses a ring only to a caller that broke its rules.
fn must_enter(entered: io::Result<()>) {
    if let Err(error) = entered {
        panic!("io_uring_enter: {error}; a disk is used by one thread only");
    }
}

/// What a completion means for its operation.
enum Round {
    Again,
    Over(io::Result<()>),
}

impl Slot {
    /// The next round as the kernel wants it.
    fn entry(&mut self) -> io::Result<squeue::Entry> {
        let Some(work) = &mut self.work else { unreachable!("an operation has work until it is released") };
        let moved = self.moved;
        Ok(match &mut work.kind {
            Kind::Read { offset, caching, buffer } => {
                let (from, rest) = (*offset + moved as u64, &mut buffer[moved..]);
                let fd = types::Fd(work.file.for_read(*caching, from, rest.len())?.as_raw_fd());
                let length = u32::try_from(rest.len()).unwrap_or(1 << 30);
                opcode::Read::new(fd, rest.as_mut_ptr(), length).offset(from).build()
            }
            Kind::Write { offset, parts, .. } => {
                let fd = types::Fd(work.file.around()?.as_raw_fd());
                self.vectors.point_at(parts, moved);
                let list = &self.vectors.list;
                opcode::Writev::new(fd, list.as_ptr(), list.len() as u32).offset(*offset + moved as u64).build()
            }
            Kind::Sync => {
                let fd = types::Fd(work.file.around()?.as_raw_fd());
                opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build()
            }
            Kind::Punch { offset, length } => {
                let fd = types::Fd(work.file.around()?.as_raw_fd());
                opcode::Fallocate::new(fd, *length).offset(*offset).mode(PUNCH_MODE).build()
            }
        })
    }

    /// Takes in what a round returned: a count, or an error number below zero.
    fn account(&mut self, result: i32) -> Round {
        if result < 0 {
            return match -result {
                libc::EINTR | libc::EAGAIN => Round::Again,
                errno => Round::Over(Err(io::Error::from_raw_os_error(errno))),
            };
        }
        let count = result as usize;
        match self.work.as_ref().map(|work| &work.kind) {
            Some(Kind::Read { buffer, .. }) => {
                self.moved += count;
                // Only the end of the file is not at a block's edge; reading on from there is refused past the page cache.
                let ended = count == 0 || self.moved == buffer.len() || !self.moved.is_multiple_of(BLOCK);
                if ended { Round::Over(Ok(())) } else { Round::Again }
            }
            Some(Kind::Write { total, .. }) => {
                self.moved += count;
                if self.moved == *total {
                    Round::Over(Ok(()))
                } else if count == 0 {
                    Round::Over(Err(io::ErrorKind::WriteZero.into()))
                } else {
                    Round::Again
                }
            }
            _ => Round::Over(Ok(())),
        }
    }
}

impl Disk for UringDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        self.directory.list()
    }

    fn submit(&mut self, token: u64, op: Op) {
        self.enable();
        match op {
            Op::Create { .. } | Op::Remove { .. } => self.workers.submit(token, op),
            Op::Read { file, offset, length, caching } => {
                let buffer = self.pool.take(length);
                self.begin(token, file, Kind::Read { offset, caching, buffer });
            }
            Op::Write { file, offset, parts } => {
                let total = parts.iter().map(Bytes::len).sum();
                self.begin(token, file, Kind::Write { offset, total, parts });
            }
            Op::Sync { file } => self.syncs.push((token, file)),
            Op::Punch { file, offset, length } => self.begin(token, file, Kind::Punch { offset, length }),
        }
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        self.enable();
        let before = done.len();
        // Time is read only if there is time to wait.
        #[allow(clippy::disallowed_methods)]
        let deadline = wait.filter(|wait| !wait.is_zero()).and_then(|wait| Instant::now().checked_add(wait));
        loop {
            self.arm_wake();
            self.sync();
            self.take_ready(done);
            self.reap(done);
            let left = match (wait, deadline) {
                (None, _) => None,
                #[allow(clippy::disallowed_methods)]
                (Some(_), Some(deadline)) => Some(deadline.saturating_duration_since(Instant::now())),
                (Some(_), None) => Some(Duration::ZERO),
            };
            let mut sleeps = done.len() == before && left != Some(Duration::ZERO);
            if sleeps {
                self.waker.asleep.store(true, Ordering::SeqCst);
                sleeps = !self.waker.woken.load(Ordering::SeqCst);
            }
            if sleeps {
                must_enter(self.enter(left));
            } else {
                self.enter_if_needed();
            }
            self.waker.asleep.store(false, Ordering::SeqCst);
            // A wake up to here is answered by returning: what it announced is looked at afterwards.
            let woken = self.waker.woken.swap(false, Ordering::SeqCst);
            self.take_ready(done);
            self.reap(done);
            if woken || done.len() > before || left == Some(Duration::ZERO) {
                return;
            }
        }
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.waker) as Arc<dyn Wake>
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
        "io_uring"
    }
}

impl Drop for UringDisk {
    /// Waits for everything in the ring: the kernel writes to memory that ends here.
    fn drop(&mut self) {
        if self.wake_armed {
            self.waker.ring_bell();
        }
        let mut done = Vec::new();
        while self.active > 0 || self.wake_armed {
            if self.enter(None).is_err() {
                // Dropped by a thread that may not wait: memory that the kernel may still write to is given up, not reused.
                std::mem::forget(std::mem::take(&mut self.slots));
                std::mem::forget(std::mem::take(&mut self.wake_count));
                return;
            }
            self.reap(&mut done);
        }
        // Nothing is in the ring: the lock goes with the directory, not some time later with the ring.
        drop(self.ring.submitter().unregister_files());
    }
}

#[cfg(test)]
mod tests {
    use super::{BUSY_MAX, Directory, InlineDirectory, UringDisk, build_ring};
    use base::buffer::{Buffer, Pool};
    use base::disk::{Disk, Done, FileName, Fill, Inline, Op};
    use base::error::ErrorKind;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    const FILE: FileName = FileName { kind: base::disk::FileKind::Data, number: 1 };

    fn fresh(disk: &UringDisk) -> Arc<InlineDirectory> {
        Arc::new(InlineDirectory::new(disk.directory.clone(), Pool::new(0)))
    }

    fn busy(disk: &UringDisk) -> usize {
        disk.inline.busy.load(Ordering::Relaxed)
    }

    /// Polls until so many operations have ended.
    fn ended(disk: &mut UringDisk, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        for _ in 0..1000 {
            disk.poll(Some(Duration::from_millis(20)), &mut done);
            if done.len() >= count {
                break;
            }
        }
        assert_eq!(done.len(), count);
        done
    }

    /// Syncs are done here while little is under way, after what came before them was handed to the kernel; else by the ring, and also for a while
    /// after a slow one, longer after a slower one. None is begun before `poll`.
    #[test]
    fn syncs_here_and_there() {
        let path = std::env::temp_dir().join(format!("stormwell-sync-{}", std::process::id()));
        let (directory, _) = Directory::open(&path).expect("a fresh directory");
        let Ok(ring) = build_ring(&directory) else { return println!("not tried, there is no ring here") };
        let mut disk = UringDisk::start(directory, Pool::new(0), ring).expect("it starts");
        disk.submit(1, Op::Create { file: FILE, size: 1 << 20, fill: Fill::Zeros });
        assert!(ended(&mut disk, 1).into_iter().all(|done| done.result.is_ok()));
        let write = |length| Op::Write { file: FILE, offset: 0, parts: vec![Buffer::zeroed(length).freeze()] };
        for (length, slow, here) in
            [(4096, false, true), (BUSY_MAX, false, false), (4096, true, false), (4096, false, true)]
        {
            disk.inline = fresh(&disk);
            // After one of a minute the next is far away; after one of a tenth of a millisecond it is not.
            disk.inline.took(if slow { Duration::from_secs(60) } else { Duration::from_micros(100) });
            disk.submit(2, write(length));
            disk.submit(3, Op::Sync { file: FILE });
            assert_eq!((disk.active, busy(&disk)), (1, length));
            disk.sync();
            assert_eq!((disk.active, disk.ready.len()), if here { (1, 1) } else { (2, 0) }, "{length} {slow}");
            let done = ended(&mut disk, 2);
            assert!(done.iter().all(|done| done.result.is_ok()));
            assert_eq!((disk.active, busy(&disk)), (0, 0));
        }
        disk.inline = fresh(&disk);
        disk.submit(4, Op::Sync { file: FileName { number: 9, ..FILE } });
        assert!(ended(&mut disk, 1)[0].result.is_err(), "there is no such file");
        drop(disk);
        std::fs::remove_dir_all(&path).expect("it is ours");
    }

    /// Whoever has the ring has the directory, also when the descriptor of the lock is closed, as in a process that was
    /// killed. Who comes then waits until the kernel is done with the ring.
    #[test]
    fn a_ring_holds_the_lock() {
        let path = std::env::temp_dir().join(format!("stormwell-held-{}", std::process::id()));
        let (directory, _) = Directory::open(&path).expect("a fresh directory");
        match build_ring(&directory) {
            Ok(ring) => {
                drop(directory);
                let refused = Directory::open(&path).err().map(|error| error.kind());
                assert_eq!(refused, Some(ErrorKind::Busy), "the ring is there");
                drop(ring);
            }
            Err(reason) => println!("not tried, there is no ring here: {reason}"),
        }
        Directory::open(&path).expect("the ring ended");
        std::fs::remove_dir_all(&path).expect("it is ours");
    }
}
