//! What a process has used, from /proc.
#![allow(clippy::disallowed_methods)] // /proc is not data that an engine keeps.

use base::error::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

/// What a process that was killed had, its locks and its ports, is free when the kernel is done with what the process had on its way to
/// disks. Whoever wants it waits for so long.
const ENDING_WAIT: Duration = Duration::from_secs(5);

/// If the process is still seen, and to be ending, so long: before its ports and locks the kernel gives back its memory, which took
/// 0.1 s and more for each GB here, and a server may have hundreds.
const SEEN_ENDING_WAIT: Duration = Duration::from_mins(2);

/// And looks so often whether it is free.
const ENDING_PAUSE: Duration = Duration::from_millis(10);

/// How long is waited for what a process has that may be ending.
pub(crate) struct Ending {
    unseen: Duration,
    seen: Duration,
    /// When somebody last looked. To look takes as long as a pause where there are thousands of sockets.
    looked: Instant,
}

impl Ending {
    /// The whole wait, or none.
    pub(crate) fn new(waits: bool) -> Ending {
        let (unseen, seen) = if waits { (ENDING_WAIT, SEEN_ENDING_WAIT) } else { (Duration::ZERO, Duration::ZERO) };
        Ending { unseen, seen, looked: Instant::now() }
    }

    /// How long to wait now, or none: that was long enough. `holder` has what is waited for, if it is seen.
    pub(crate) fn pause(&mut self, holder: Option<u32>) -> Option<Duration> {
        let left = if holder.is_some_and(is_ending) { &mut self.seen } else { &mut self.unseen };
        let passed = std::mem::replace(&mut self.looked, Instant::now()).elapsed();
        *left = left.checked_sub(passed.max(Duration::from_nanos(1)))?;
        Some(ENDING_PAUSE)
    }
}

/// Whether a process was killed, or ends of itself, and is not gone yet.
pub(crate) fn is_ending(process: u32) -> bool {
    let read = |file| read(process, file).unwrap_or_default();
    has_exiting_flag(&read("stat")) || has_kill_pending(&read("status"))
}

/// Field 9 of /proc/PID/stat are the kernel's flags of the process; 4 is PF_EXITING (include/linux/sched.h).
fn has_exiting_flag(stat: &str) -> bool {
    const EXITING: u64 = 4;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let flags = after_name.split_whitespace().nth(6).and_then(|field| field.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

/// SIGKILL, which is signal 9, was sent to it and has not been taken.
fn has_kill_pending(status: &str) -> bool {
    let pending = ["SigPnd:", "ShdPnd:"].into_iter().filter_map(|key| {
        let rest = status.lines().find_map(|line| line.strip_prefix(key))?;
        u64::from_str_radix(rest.trim(), 16).ok()
    });
    pending.fold(0, |all, some| all | some) & (1 << 8) != 0
}

/// What a process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory it holds now, in bytes (VmRSS).
    pub resident_bytes: u64,
    /// The part of it that is its own and no file's (RssAnon), in bytes.
    pub anonymous_bytes: u64,
    /// Processor time of all its threads, in user and kernel mode.
    pub processor: Duration,
    /// Bytes that storage was made to read.
    pub read_bytes: u64,
    /// Bytes that storage was, or will be, made to write.
    pub written_bytes: u64,
}

/// Gives memory back to the system that the allocator keeps of what was freed. It goes through all that it keeps: not for every day.
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes no memory of ours, and any thread may make it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// What the process with this id has used. /proc/PID/io may be read for one's own processes only; without leave it counts as zero.
pub fn usage(process: u32) -> Result<Usage> {
    let status = read(process, "status")?;
    let io = read(process, "io").unwrap_or_default();
    Ok(Usage {
        resident_bytes: number_after(&status, "VmRSS:").saturating_mul(1024),
        anonymous_bytes: number_after(&status, "RssAnon:").saturating_mul(1024),
        processor: processor_time(process).unwrap_or_default(),
        read_bytes: number_after(&io, "read_bytes:"),
        written_bytes: number_after(&io, "write_bytes:"),
    })
}

/// The name of the process with this id, if it is there.
pub fn name(process: u32) -> Option<String> {
    read(process, "comm").ok().map(|text| text.trim().to_string())
}

fn read(process: u32, file: &str) -> Result<String> {
    std::fs::read_to_string(format!("/proc/{process}/{file}")).map_err(|error| {
        Error::new(ErrorKind::NotFound, format!("process {process} cannot be looked at ({error}); it may have ended"))
    })
}

/// Processor time of all threads that the process has or had, by the clock that the kernel keeps for it: to the nanosecond, where
/// /proc/PID/stat counts ticks of 10 ms, more than a short measurement takes. None if there is no such process.
fn processor_time(process: u32) -> Option<Duration> {
    let process = libc::pid_t::try_from(process).ok()?;
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write into variables of the right types, and only before they return.
    let read = unsafe {
        libc::clock_getcpuclockid(process, &raw mut clock) == 0 && libc::clock_gettime(clock, &raw mut time) == 0
    };
    read.then(|| Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

fn number_after(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{has_exiting_flag, has_kill_pending, is_ending, name, processor_time, usage};

    /// A process sees its own use, also of processor time that is less than a tick; of one that is not there it is told nothing.
    #[test]
    fn own_use() {
        let own = usage(std::process::id()).unwrap();
        assert!(own.resident_bytes > 100_000 && own.anonymous_bytes <= own.resident_bytes, "{own:?}");
        assert!(name(std::process::id()).is_some());
        assert!(usage(u32::MAX).is_err());
        assert!(
            own.processor > std::time::Duration::ZERO && usage(std::process::id()).unwrap().processor > own.processor
        );
        assert_eq!(processor_time(u32::MAX), None);
    }

    /// One that was killed is told from one that lives: by the kernel's flags, or by the signal that it has not taken yet.
    #[test]
    fn those_that_end() {
        assert!(!is_ending(std::process::id()) && !is_ending(u32::MAX));
        assert!(!has_exiting_flag("7 (a) b (c) S 1 2 3 4 5 4194304 7") && !has_exiting_flag("nonsense"));
        assert!(has_exiting_flag("7 (a) b (c) D 1 2 3 4 5 4194308 7"));
        assert!(!has_kill_pending("SigPnd:\t0000000000000000\nShdPnd:\t0000000000004000\n"));
        assert!(has_kill_pending("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // It is not gone before it is waited for.
        while !is_ending(child.id()) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
