//! What `doctor` thinks of the machine: limits, io_uring, memory, clock.

use super::Check;
use crate::context::Context;
use base::env::Clock;
use base::limit::CONNECTIONS_MAX;
use base::unit::{MIB, WallTime, show_bytes, show_date};
use os::machine::{ClockState, Limit, Memory};
use std::time::Duration;

/// Descriptors that one device may keep open: two for each of 512 files.
const FILES_OF_DEVICE: u64 = 1024;

/// Fewer descriptors than one device and some connections need.
const FILES_LEAST: u64 = FILES_OF_DEVICE + 64;

/// All connections, four devices, and what a process has anyway.
const FILES_ENOUGH: u64 = CONNECTIONS_MAX as u64 + 4 * FILES_OF_DEVICE + 64;

/// What a busy server takes: the bar of `bench`'s row memory_bench.
const MEMORY_BUSY: u64 = 512 * MIB;

/// What an idle server takes, and some.
const MEMORY_LEAST: u64 = 128 * MIB;

/// Kernels before 5.12 count a ring's memory against the limit on locked memory; a ring of ours takes less than this.
const LOCKED_ENOUGH: u64 = MIB;

/// A clock that may be this far off orders files wrongly in the eyes of people.
const CLOCK_ERROR_MAX: Duration = Duration::from_secs(1);

/// Nobody has run this program before 2026-01-01.
const CALENDAR_LEAST: WallTime = WallTime(1_767_225_600_000);

/// The monotonic clock is read so often to see whether it goes back.
const READINGS: usize = 10_000;

/// Everything about the machine.
pub fn checks(context: &Context) -> Vec<Check> {
    let ring = os::disk::probe::ring();
    let clock = os::machine::clock();
    let source = clock.as_ref().ok().and_then(|state| state.source.clone());
    vec![
        match os::machine::open_files() {
            Ok(limit) => open_files(limit),
            Err(error) => unknown("open files", error.text(), "ulimit -Hn"),
        },
        match os::machine::locked_memory() {
            Ok(limit) => locked_memory(limit, ring.is_ok()),
            Err(error) => unknown("locked memory", error.text(), "ulimit -l"),
        },
        huge_pages(os::machine::huge_pages().as_deref()),
        io_uring(&ring, os::machine::io_uring_disabled(), os::machine::kernel().as_deref()),
        match os::machine::memory() {
            Some(found) => memory(found),
            None => unknown("memory", "/proc/meminfo cannot be read", "mount -t proc proc /proc"),
        },
        match clock {
            Ok(state) => calendar(&state, context.clock.wall()),
            Err(error) => unknown("clock", error.text(), "timedatectl"),
        },
        monotonic(context.clock.as_ref(), source),
    ]
}

/// What the system does not say.
fn unknown(name: &'static str, why: &str, remedy: &str) -> Check {
    Check::warning(name, why, "nobody knows whether it is enough", remedy)
}

fn shown(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_string(), |limit| limit.to_string())
}

fn open_files(limit: Limit) -> Check {
    let name = "open files";
    let seen = format!("{} may be open, and a server takes up to {}", shown(limit.soft), shown(limit.hard));
    let remedy =
        format!("ulimit -Hn {FILES_ENOUGH}   # as root; or, in the unit of the service: LimitNOFILE={FILES_ENOUGH}");
    // A server raises its limit as far as it may.
    match limit.hard {
        Some(hard) if hard < FILES_LEAST => {
            Check::trouble(name, seen, "a server cannot keep the files of one device open, and refuses clients", remedy)
        }
        Some(hard) if hard < FILES_ENOUGH => Check::warning(
            name,
            seen,
            "enough for few devices and clients; beyond that, connections are refused and reads fail",
            remedy,
        ),
        _ => Check::ok(name, seen),
    }
}

fn locked_memory(limit: Limit, ring: bool) -> Check {
    let name = "locked memory";
    let seen =
        limit.soft.map_or_else(|| "unlimited".to_string(), |bytes| format!("{} may be locked", show_bytes(bytes)));
    match limit.soft {
        Some(soft) if soft < LOCKED_ENOUGH && !ring => Check::warning(
            name,
            seen,
            "kernels before 5.12 count rings as locked memory and refuse them beyond this",
            "ulimit -l 65536   # or, in the unit of the service: LimitMEMLOCK=64M",
        ),
        _ => Check::ok(name, seen),
    }
}

fn huge_pages(chosen: Option<&str>) -> Check {
    let name = "huge pages";
    match chosen {
        Some("always") => Check::warning(
            name,
            "transparent huge pages: always",
            "the kernel may give 2 MiB where 4 KiB were asked for: a server can hold more memory than its budgets say, and \
             pauses while the kernel gathers them",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
        Some(other) => Check::ok(name, format!("transparent huge pages: {other}")),
        None => Check::ok(name, "this kernel has no transparent huge pages"),
    }
}

fn io_uring(ring: &Result<(), String>, disabled: Option<u64>, kernel: Option<&str>) -> Check {
    let name = "io_uring";
    let kernel = kernel.unwrap_or("of unknown release");
    let reason = match ring {
        Ok(()) => return Check::ok(name, format!("a ring was opened (Linux {kernel})")),
        Err(reason) => reason,
    };
    let remedy = match disabled {
        Some(1 | 2) => "sysctl kernel.io_uring_disabled=0",
        _ => {
            "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile, or use Linux 5.11 or newer"
        }
    };
    let setting = disabled.map_or_else(String::new, |value| format!(", kernel.io_uring_disabled is {value}"));
    Check::warning(
        name,
        format!("no ring can be opened ({reason}; Linux {kernel}{setting})"),
        "devices are driven by threads instead: as safe, and slower with many small operations",
        remedy,
    )
}

fn memory(found: Memory) -> Check {
    let name = "memory";
    let mut seen = format!("{} of {} available", show_bytes(found.available), show_bytes(found.total));
    if let Some(group) = found.group {
        seen.push_str(&format!(", the control group may have {}", show_bytes(group)));
    }
    let ours = found.group.unwrap_or(u64::MAX).min(found.available);
    let remedy = "stop something else, or raise MemoryMax of the service";
    if ours < MEMORY_LEAST {
        return Check::trouble(name, seen, "a server may be killed by the kernel while it works", remedy);
    }
    if ours < MEMORY_BUSY {
        let means = "a busy server takes up to 512 MiB, and what is left over keeps hot data in the page cache";
        return Check::warning(name, seen, means, remedy);
    }
    Check::ok(name, seen)
}

fn calendar(state: &ClockState, now: WallTime) -> Check {
    let name = "clock";
    let date = format!("it is {} UTC", show_date(now));
    if now < CALENDAR_LEAST {
        return Check::warning(
            name,
            format!("{date}, which cannot be"),
            "files and logs get wrong times; no data is at risk",
            "timedatectl set-ntp true",
        );
    }
    if !state.synchronised {
        return Check::warning(
            name,
            format!("{date}; nobody keeps this clock in step"),
            "times of files and log lines may differ from those of other machines; no data is at risk",
            "timedatectl set-ntp true   # or start chronyd",
        );
    }
    let seen = format!("{date}, in step with others, at most {} ms off", state.error_max.as_millis());
    if state.error_max > CLOCK_ERROR_MAX {
        let means = "times of files and log lines may differ from those of other machines; no data is at risk";
        return Check::warning(name, seen, means, "chronyc sources   # or: timedatectl timesync-status");
    }
    Check::ok(name, seen)
}

/// Reads the monotonic clock again and again: leases and latencies stand on it.
fn monotonic(clock: &dyn Clock, source: Option<String>) -> Check {
    let name = "monotonic";
    let source = source.unwrap_or_else(|| "an unknown source".to_string());
    let begun = clock.now();
    let mut before = begun;
    for _ in 0..READINGS {
        let now = clock.now();
        if now < before {
            return Check::trouble(
                name,
                format!("the clock of {source} went back by {:?}", before.since(now)),
                "leases and grants end at the wrong time; what is acknowledged is not at risk",
                "choose another clock source: cat /sys/devices/system/clocksource/clocksource0/available_clocksource",
            );
        }
        before = now;
    }
    let each = before.since(begun).as_nanos() / READINGS as u128;
    let seen = format!("never went back in {READINGS} readings of {source}, {each} ns each");
    if each > 1_000 {
        let means = "each reading costs much, and a server reads it several times for each operation";
        return Check::warning(
            name,
            seen,
            means,
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource",
        );
    }
    Check::ok(name, seen)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::{
        ClockState, Limit, Memory, WallTime, calendar, huge_pages, io_uring, locked_memory, memory, open_files,
    };
    use std::time::Duration;

    /// Limits below what a server needs are told, those above are not, and no limit is enough.
    #[test]
    fn limits() {
        let limit = |most| Limit { soft: most, hard: most };
        assert_eq!(open_files(limit(Some(256))).state, State::Trouble);
        assert_eq!(open_files(limit(Some(4096))).state, State::Warning);
        assert_eq!(open_files(limit(Some(65_536))).state, State::Ok);
        assert_eq!(open_files(limit(None)).state, State::Ok);
        assert_eq!(open_files(Limit { soft: Some(1024), hard: Some(65_536) }).state, State::Ok);
        assert_eq!(locked_memory(limit(Some(65_536)), true).state, State::Ok);
        assert_eq!(locked_memory(limit(Some(65_536)), false).state, State::Warning);
        assert_eq!(huge_pages(Some("always")).state, State::Warning);
        assert_eq!(huge_pages(Some("madvise")).state, State::Ok);
    }

    /// Without a ring the advice fits what forbids it.
    #[test]
    fn rings() {
        assert_eq!(io_uring(&Ok(()), Some(0), Some("6.1")).state, State::Ok);
        let refused = Err("Operation not permitted".to_string());
        let forbidden = io_uring(&refused, Some(2), Some("6.8"));
        assert!(forbidden.state == State::Warning && forbidden.remedy.contains("sysctl"), "{forbidden:?}");
        assert!(io_uring(&refused, None, None).remedy.contains("seccomp"));
    }

    /// What counts is the lesser of what the machine and the control group have.
    #[test]
    fn memories() {
        let of = |available, group| memory(Memory { total: 8 << 30, available, group, group_left: group }).state;
        assert_eq!(of(4 << 30, None), State::Ok);
        assert_eq!(of(4 << 30, Some(256 << 20)), State::Warning);
        assert_eq!(of(64 << 20, Some(1 << 30)), State::Trouble);
    }

    /// A clock that nobody keeps is told, one far off too, and a calendar in the past first of all.
    #[test]
    fn calendars() {
        let state = |synchronised, error_max| ClockState { synchronised, error_max, source: None };
        let now = WallTime(1_795_226_106_000);
        assert_eq!(calendar(&state(true, Duration::from_millis(5)), now).state, State::Ok);
        assert_eq!(calendar(&state(true, Duration::from_secs(5)), now).state, State::Warning);
        assert!(calendar(&state(false, Duration::ZERO), now).seen.contains("in step"));
        assert!(calendar(&state(true, Duration::ZERO), WallTime(0)).seen.contains("1970"));
    }
}
