//! What the system lets a server have: limits, memory, kernel and clock, as `doctor` looks at them. Nothing is changed here.
#![allow(clippy::disallowed_methods)] // /proc and /sys are not data that an engine keeps.

use base::error::{Error, Result};
use std::time::Duration;

/// A limit of this process. Those it starts have the same unless somebody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What counts now. None: no limit.
    pub soft: Option<u64>,
    /// What it may be raised to without rights. None: no limit.
    pub hard: Option<u64>,
}

/// How many files and sockets a process may have open.
pub fn open_files() -> Result<Limit> {
    limit(libc::RLIMIT_NOFILE)
}

/// Lets this process have as many files and sockets open as it may without rights, and says how many those are (none: no
/// limit). The limit that a shell gives is for programs that use `select`, which cannot see beyond 1,024.
pub fn raise_open_files() -> Result<Option<u64>> {
    let Limit { soft, hard } = open_files()?;
    if soft == hard {
        return Ok(hard);
    }
    let most = hard.unwrap_or(libc::RLIM_INFINITY);
    let wanted = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the call reads `wanted`, which is of the right type.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } != 0 {
        return Err(Error::from(std::io::Error::last_os_error()).during("raise the limit on open files"));
    }
    Ok(hard)
}

/// How many bytes of memory a process may lock.
pub fn locked_memory() -> Result<Limit> {
    limit(libc::RLIMIT_MEMLOCK)
}

fn limit(which: libc::__rlimit_resource_t) -> Result<Limit> {
    let mut found = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes into `found`, which is of the right type.
    if unsafe { libc::getrlimit(which, &raw mut found) } != 0 {
        return Err(Error::from(std::io::Error::last_os_error()).during("ask for a limit of the process"));
    }
    let finite = |value: libc::rlim_t| (value != libc::RLIM_INFINITY).then_some(value);
    Ok(Limit { soft: finite(found.rlim_cur), hard: finite(found.rlim_max) })
}

/// The kernel's release, `6.1.0-amd64`. None if /proc does not say.
pub fn kernel() -> Option<String> {
    text("/proc/sys/kernel/osrelease")
}

/// `kernel.io_uring_disabled`: 0 allowed, 1 for those with rights, 2 for nobody. None before Linux 6.6.
pub fn io_uring_disabled() -> Option<u64> {
    text("/proc/sys/kernel/io_uring_disabled")?.parse().ok()
}

/// When the kernel gives out huge pages unasked: `always`, `madvise` or `never`. None if it has none.
pub fn huge_pages() -> Option<String> {
    chosen(&text("/sys/kernel/mm/transparent_hugepage/enabled")?)
}

/// The word in brackets: `always [madvise] never`.
fn chosen(words: &str) -> Option<String> {
    let (_, rest) = words.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_string())
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All there is.
    pub total: u64,
    /// What a new program could have without swapping, as the kernel estimates.
    pub available: u64,
    /// What the control group of this process may have (`memory.max`), if it is limited.
    pub group: Option<u64>,
    /// What of that it, and the groups around it, have not taken yet; pages of files that nobody uses count as not taken.
    pub group_left: Option<u64>,
}

/// The machine's memory. None if /proc does not say.
pub fn memory() -> Option<Memory> {
    let known = text("/proc/meminfo")?;
    let kib = |key: &str| {
        let rest = known.lines().find_map(|line| line.strip_prefix(key))?;
        rest.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib.saturating_mul(1024))
    };
    let path = text("/proc/self/cgroup").and_then(|groups| {
        groups.lines().find_map(|line| line.strip_prefix("0::")).map(|path| path.trim_end_matches('/').to_string())
    });
    let group = path.as_deref().and_then(|path| number(path, "memory.max"));
    let group_left = path.as_deref().and_then(left_of_groups);
    Some(Memory { total: kib("MemTotal:")?, available: kib("MemAvailable:")?, group, group_left })
}

/// What the tightest of a control group and those around it has left. None: none is limited.
fn left_of_groups(path: &str) -> Option<u64> {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.filter_map(|end| left_of_group(&path[..end])).min()
}

fn left_of_group(path: &str) -> Option<u64> {
    let most = number(path, "memory.max")?;
    let taken = number(path, "memory.current")?;
    let unused = text(&format!("/sys/fs/cgroup{path}/memory.stat"))
        .and_then(|stat| stat.lines().find_map(|line| line.strip_prefix("inactive_file "))?.parse::<u64>().ok());
    Some(most.saturating_sub(taken.saturating_sub(unused.unwrap_or(0))))
}

/// A number that a control group says; `max` is none.
fn number(group: &str, name: &str) -> Option<u64> {
    text(&format!("/sys/fs/cgroup{group}/{name}"))?.parse().ok()
}

/// How the system's clock is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClockState {
    /// Whether somebody keeps it in step with others (NTP, PTP).
    pub synchronised: bool,
    /// How far it may be off at most, as the kernel estimates; it means something only while it is synchronised.
    pub error_max: Duration,
    /// What the monotonic clock is read from: `tsc`, `kvm-clock`, `hpet`.
    pub source: Option<String>,
}

/// Asks the kernel (adjtimex, which changes nothing so).
pub fn clock() -> Result<ClockState> {
    // SAFETY: timex is plain numbers, for which all zeros is a value.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is of the right type and alive during the call; `modes` is zero, so nothing is set.
    let answer = unsafe { libc::adjtimex(&raw mut state) };
    if answer < 0 {
        return Err(Error::from(std::io::Error::last_os_error()).during("ask how the clock is"));
    }
    Ok(ClockState {
        synchronised: answer != libc::TIME_ERROR && state.status & libc::STA_UNSYNC == 0,
        error_max: Duration::from_micros(u64::try_from(state.maxerror).unwrap_or(0)),
        source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    })
}

fn text(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::{chosen, clock, kernel, locked_memory, memory, open_files};

    /// What every Linux has is found, and a word in brackets is the one that counts.
    #[test]
    fn this_machine() {
        let files = open_files().unwrap();
        assert!(files.soft.is_none_or(|soft| soft > 0 && files.hard.is_none_or(|hard| hard >= soft)), "{files:?}");
        locked_memory().unwrap();
        clock().unwrap();
        assert!(kernel().is_some_and(|release| release.contains('.')));
        let memory = memory().unwrap();
        assert!(memory.available > 0 && memory.available <= memory.total, "{memory:?}");
        assert!(memory.group_left.is_none_or(|left| memory.group.is_none_or(|most| left <= most)), "{memory:?}");
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!((chosen("always"), chosen("[never")), (None, None));
    }
}
