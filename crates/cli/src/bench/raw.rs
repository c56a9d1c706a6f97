//! What the device does without Stormwell: large sequential I/O by fio at depths 1, 4 and 16, or by a loop of our own
//! where there is no fio; a bare log; a bare synced write.
#![allow(clippy::disallowed_methods, reason = "this is the bare thing that everything else is measured against")]

use super::row::Latency;
use crate::demo::tree::sync_file_system;
use base::buffer::Buffer;
use base::error::{Error, ErrorKind, Result};
use base::limit::BLOCK;
use base::unit::MIB;
use harness::stopwatch::Stopwatch;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Bytes of one request of the sequential rows.
pub const REQUEST: usize = 4 * MIB as usize;

/// Requests in flight that are tried; the best is raw.
const DEPTHS: [u32; 3] = [1, 4, 16];

/// The file that raw runs use; 64 MiB of a bare log are written again and again.
pub const LOG_BYTES: u64 = 64 * MIB;

/// Disks are at rest when the kernel counted nothing for so long; it is looked for so often at most (10 s).
const REST: Duration = Duration::from_millis(100);
const REST_LOOKS_MAX: usize = 100;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into a fresh file.
    Write,
    /// Out of a file that was written.
    Read,
}

/// Random operations beside one stream.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Bytes of each operation.
    pub operation: usize,
    /// Threads, each with one operation under way.
    pub at_once: usize,
    /// So many operations of ten read, the others write.
    pub reads_of_ten: u64,
    /// The stream begins a new file after so many bytes, and removes the one before.
    pub streamed: u64,
}

/// The bare device under one directory.
pub struct Raw {
    file: PathBuf,
    fio: bool,
}

impl Raw {
    /// Raw runs in `directory`, with fio if there is one.
    pub fn new(directory: &Path) -> Raw {
        let found = Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        Raw { file: directory.join("raw"), fio: found.is_ok_and(|status| status.success()) }
    }

    /// The file that its runs use.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// What measures: `fio` or `internal`.
    pub fn tool(&self) -> &'static str {
        if self.fio { "fio" } else { "internal" }
    }

    /// The same in a sentence.
    pub fn description(&self) -> &'static str {
        if self.fio {
            "fio io_uring direct 4M, best of depths 1, 4, 16"
        } else {
            "an internal direct 4M loop (no fio), best of 1 and 4 threads"
        }
    }

    /// Bytes a second, the best of the depths. A read needs the file that the last write left.
    pub fn sequential(&self, direction: Direction, bytes: u64) -> Result<f64> {
        let mut best = 0.0_f64;
        for depth in DEPTHS {
            let speed = if self.fio {
                self.fio(direction, bytes, depth)?
            } else if depth <= 4 {
                self.internal(direction, bytes, depth)?
            } else {
                continue;
            };
            best = best.max(speed);
        }
        Ok(best)
    }

    /// Removes the file, and waits until the disks have nothing more to do for it: where the file system discards what is
    /// removed, that takes the disk up to a second after the file is gone, out of whatever is measured next.
    pub fn clean(&self) -> Result<()> {
        // A file that is not there is as clean as one that was removed; anything else shows at the next run.
        if std::fs::remove_file(&self.file).is_ok()
            && let Some(directory) = self.file.parent()
        {
            sync_file_system(directory)?;
            wait_for_rest();
        }
        Ok(())
    }

    fn fio(&self, direction: Direction, bytes: u64, depth: u32) -> Result<f64> {
        if direction == Direction::Write {
            self.clean()?;
        }
        let output = Command::new("fio")
            .args(["--name=raw", "--bs=4M", "--direct=1", "--ioengine=io_uring", "--output-format=json"])
            .args(["--end_fsync=1", "--fallocate=native", "--randrepeat=0"])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--rw={}", if direction == Direction::Write { "write" } else { "read" }))
            .arg(format!("--size={bytes}"))
            .arg(format!("--iodepth={depth}"))
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::from(error).during("start fio"))?;
        let report = String::from_utf8_lossy(&output.stdout);
        // fio may print notes before the object.
        let object = report.find('{').map_or("", |start| &report[start..]);
        let parsed: serde_json::Value = serde_json::from_str(object).unwrap_or_default();
        let side = if direction == Direction::Write { "write" } else { "read" };
        let side = &parsed["jobs"][0][side];
        match (side["bw_bytes"].as_f64(), side["io_bytes"].as_u64()) {
            (Some(speed), Some(done)) if speed > 0.0 && done >= bytes => Ok(speed),
            _ => Err(Error::new(
                ErrorKind::Io,
                format!(
                    "fio gave no result ({}); nothing of yours was touched; run without fio in PATH to use the internal loop",
                    String::from_utf8_lossy(&output.stderr).trim()
                ),
            )),
        }
    }

    /// `threads` threads, each with every `threads`-th request, one sync at the end.
    fn internal(&self, direction: Direction, bytes: u64, threads: u32) -> Result<f64> {
        if direction == Direction::Write {
            self.clean()?;
        }
        let file = direct(&self.file)?;
        if direction == Direction::Write {
            allocate(&file, bytes)?;
        }
        let requests = bytes / REQUEST as u64;
        let watch = Stopwatch::start();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|first| {
                    let file = &file;
                    scope.spawn(move || -> Result<()> {
                        let mut buffer = incompressible(REQUEST, u64::from(first) + 1);
                        for request in (u64::from(first)..requests).step_by(threads as usize) {
                            let offset = request * REQUEST as u64;
                            match direction {
                                Direction::Write => file.write_all_at(&buffer, offset)?,
                                Direction::Read => file.read_exact_at(&mut buffer, offset)?,
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| joined(worker.join()))
        })?;
        if direction == Direction::Write {
            file.sync_data()?;
        }
        Ok((requests * REQUEST as u64) as f64 / watch.seconds())
    }

    /// A bare log that makes groups of 64 appends durable: appends a second during `time`.
    /// An append takes 4096 bytes and 64 of header, so a group is 64 x 4160 = 65 blocks.
    pub fn grouped_log(&self, time: Duration) -> Result<f64> {
        let group = 64 * (4096 + 64);
        let latencies = self.synced_writes(group, time)?;
        let seconds = latencies.iter().sum::<u64>() as f64 / 1e9;
        Ok(64.0 * latencies.len() as f64 / seconds)
    }

    /// A bare write of 4 KiB and its fdatasync, one after another during `time`.
    pub fn synced_write(&self, time: Duration) -> Result<Latency> {
        let latencies = self.synced_writes(BLOCK, time)?;
        Latency::of(latencies)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "no synced write was done in the time given"))
    }

    /// Operations all over a direct file of `bytes` during `time`, each write with its fdatasync, beside a thread that writes
    /// other files and removes them.
    pub fn mixed(&self, mix: &Mix, bytes: u64, time: Duration) -> Result<Latency> {
        self.clean()?;
        let file = direct(&self.file)?;
        allocate(&file, bytes)?;
        let part = incompressible(REQUEST, 9);
        for offset in (0..bytes).step_by(REQUEST) {
            file.write_all_at(&part[..REQUEST.min((bytes - offset) as usize)], offset)?;
        }
        file.sync_data()?;
        let places = bytes / mix.operation as u64;
        let watch = Stopwatch::start();
        let all = std::thread::scope(|scope| -> Result<Vec<u64>> {
            let stream = scope.spawn(|| self.stream(mix.streamed, &watch, time));
            let worker = |seed: u64| -> Result<Vec<u64>> {
                let (mut buffer, mut chance) = (incompressible(mix.operation, seed), seed);
                let mut latencies = Vec::new();
                while watch.elapsed() < time {
                    let offset = next(&mut chance) % places * mix.operation as u64;
                    let reads = next(&mut chance) % 10 < mix.reads_of_ten;
                    let one = Stopwatch::start();
                    if reads {
                        file.read_exact_at(&mut buffer, offset)?;
                    } else {
                        file.write_all_at(&buffer, offset)?;
                        file.sync_data()?;
                    }
                    latencies.push(one.nanos());
                }
                Ok(latencies)
            };
            let workers: Vec<_> =
                (0..mix.at_once).map(|number| scope.spawn(move || worker(number as u64 + 1))).collect();
            let mut all = Vec::new();
            for worker in workers {
                all.extend(joined(worker.join())?);
            }
            joined(stream.join())?;
            Ok(all)
        })?;
        self.clean()?;
        Latency::of(all).ok_or_else(|| Error::new(ErrorKind::Invalid, "nothing was done in the time given"))
    }

    /// Writes files one after another and removes each.
    fn stream(&self, bytes: u64, watch: &Stopwatch, time: Duration) -> Result<()> {
        let path = self.file.with_extension("stream");
        let part = incompressible(REQUEST, 11);
        while watch.elapsed() < time {
            let file = direct(&path)?;
            allocate(&file, bytes)?;
            for offset in (0..bytes).step_by(REQUEST) {
                if watch.elapsed() >= time {
                    break;
                }
                file.write_all_at(&part, offset)?;
            }
            file.sync_data()?;
            std::fs::remove_file(&path)?;
        }
        Ok(())
    }

    /// Nanoseconds of each O_DIRECT write of `size` bytes with its fdatasync, into a file that was written with zeros before.
    fn synced_writes(&self, size: usize, time: Duration) -> Result<Vec<u64>> {
        assert!(size.is_multiple_of(BLOCK), "direct writes are whole blocks");
        self.clean()?;
        let file = direct(&self.file)?;
        allocate(&file, LOG_BYTES)?;
        let zeros = Buffer::zeroed(MIB as usize);
        for offset in (0..LOG_BYTES).step_by(zeros.len()) {
            file.write_all_at(&zeros, offset)?;
        }
        file.sync_all()?;
        let data = incompressible(size, 7);
        let places = LOG_BYTES / size as u64;
        let mut latencies = Vec::new();
        let whole = Stopwatch::start();
        while whole.elapsed() < time {
            let watch = Stopwatch::start();
            file.write_all_at(&data, latencies.len() as u64 % places * size as u64)?;
            file.sync_data()?;
            latencies.push(watch.nanos());
        }
        self.clean()?;
        Ok(latencies)
    }
}

/// Waits until no disk has done anything for a moment, as the kernel counts it; not for ever, since others may use them.
fn wait_for_rest() {
    let mut before = None;
    for _ in 0..REST_LOOKS_MAX {
        let now = std::fs::read("/proc/diskstats").ok();
        if now.is_none() || now == before {
            return;
        }
        before = now;
        std::thread::sleep(REST);
    }
}

/// The file, made if missing, for direct reads and writes.
pub fn direct(path: &Path) -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .map_err(|error| Error::from(error).during(format!("open {} for direct I/O", path.display())))
}

/// Sets space aside without writing it.
pub fn allocate(file: &File, bytes: u64) -> Result<()> {
    let length = i64::try_from(bytes).map_err(|_| Error::new(ErrorKind::Invalid, "a file of more than 8 EiB"))?;
    // SAFETY: the descriptor is open for as long as `file` lives; the call takes no memory of ours.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) } {
        0 => Ok(()),
        _ => Err(Error::from(std::io::Error::last_os_error()).during("set space aside for a raw run")),
    }
}

/// What a thread of ours ended with.
pub fn joined<T>(ended: std::thread::Result<T>) -> T {
    match ended {
        Ok(result) => result,
        Err(_) => unreachable!("the loops of this file do not panic"),
    }
}

/// Bytes that do not compress, from a seed that is not zero.
pub fn incompressible(length: usize, seed: u64) -> Buffer {
    let mut buffer = Buffer::zeroed(length);
    let mut state = seed;
    for word in buffer.chunks_mut(8) {
        let bytes = next(&mut state).to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    buffer
}

/// The next number of a series that follows from its seed, which is not zero: xorshift64*.
pub fn next(state: &mut u64) -> u64 {
    assert!(*state != 0, "xorshift stays at zero");
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}
