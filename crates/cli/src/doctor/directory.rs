//! What `doctor` thinks of a data directory: its file system, what that can do, its room, and its syncs.

use super::Check;
use crate::context::Context;
use base::error::Error;
use base::unit::{GIB, MIB, show_bytes};
use os::disk::probe::{Directory, Mount, Works};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// With less room no device is worth making: a small one has segments of some MiB each, two checkpoints and a reserve.
const FREE_LEAST: u64 = 256 * MIB;

/// With less room than this, a look now is better than an alert at night.
const FREE_ENOUGH: u64 = 5 * GIB;

/// No way to stable media is this short: the fastest NVMe devices with a capacitor take some ten microseconds.
const SYNC_FASTEST: Duration = Duration::from_micros(6);

/// A disk that turns needs a part of a turn: 8 ms at 7,200 turns a minute, 4 ms at 15,000.
const SYNC_FASTEST_TURNING: Duration = Duration::from_millis(1);

/// Every durable answer waits for one.
const SYNC_SLOW: Duration = Duration::from_millis(20);

/// The same for a disk that turns.
const SYNC_SLOW_TURNING: Duration = Duration::from_millis(60);

/// One of a hundred that takes so long is felt as a stop.
const SYNC_STALL: Duration = Duration::from_millis(500);

/// Options of a mount with which a sync does not reach the medium.
const NO_FLUSH: [&str; 4] = ["nobarrier", "barrier=0", "nosync", "fsync_mode=nobarrier"];

/// Everything about this directory.
pub fn checks(data: &Path, context: &Context) -> Vec<Check> {
    let subject = data.display().to_string();
    let (place, mut checks) = match existing(data) {
        Ok(found) => found,
        Err(check) => return vec![check.of(subject)],
    };
    let mount = os::disk::probe::mount(&place);
    checks.push(match &mount {
        Some(mount) => file_system(mount),
        None => Check::warning("file system", "/proc/self/mountinfo does not name it", "nobody knows what it is", ""),
    });
    checks.push(match os::file::free_bytes(&place) {
        Ok(free) => room(free),
        Err(error) => Check::warning("free space", error.text(), "nobody knows how much fits", ""),
    });
    match os::disk::probe::directory(&place, context.clock.as_ref()) {
        Ok(found) => checks.extend(probed(&found, mount.as_ref())),
        Err(error) => checks.push(unwritable(&error, &place)),
    }
    checks.into_iter().map(|check| check.of(subject.clone())).collect()
}

/// The directory, or the one above in which `serve` would make it; or why there cannot be any.
fn existing(data: &Path) -> Result<(PathBuf, Vec<Check>), Check> {
    let name = "directory";
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_path_buf());
    for place in data.ancestors() {
        match os::file::metadata(place) {
            Ok(about) if !about.is_dir() => {
                let seen = format!("{} is a file", place.display());
                let means = "it cannot be a device";
                return Err(Check::trouble(name, seen, means, "name a directory with --data DIR"));
            }
            Ok(_) if place == data => return Ok((data.clone(), vec![taken(place)])),
            Ok(_) => {
                let seen = format!("not there; `serve` would make it, so {} is looked at", place.display());
                return Ok((place.to_path_buf(), vec![Check::ok(name, seen)]));
            }
            Err(error) if error.kind() == base::error::ErrorKind::NotFound => {}
            Err(error) => {
                let means = "it cannot be a device";
                return Err(Check::trouble(name, error.text(), means, format!("ls -ld {}", place.display())));
            }
        }
    }
    Err(Check::trouble(name, "nothing above it exists", "it cannot be a device", "name a directory with --data DIR"))
}

/// Whose it is now: a store's that runs, one's that does not, or nobody's.
fn taken(place: &Path) -> Check {
    let name = "directory";
    let chunks = place.join("chunks");
    match os::disk::holder(&chunks) {
        Ok(Some(who)) => Check::ok(name, format!("a device, in use by {who}")),
        Ok(None) if chunks.is_dir() => Check::ok(name, "a device that nobody serves now"),
        Ok(None) => Check::ok(name, "there, and no device yet"),
        Err(error) => Check::warning(
            name,
            error.text(),
            "nobody knows whether a server has it open",
            format!("ls -l {}", chunks.join("lock").display()),
        ),
    }
}

fn unwritable(error: &Error, place: &Path) -> Check {
    let (what, advice) = error.text().rsplit_once("; ").unwrap_or((error.text(), "check the disk and its mount"));
    let remedy = format!("{advice}: ls -ld {0}; findmnt -T {0}", place.display());
    Check::trouble("writing", what, "a device there takes no writes", remedy)
}

fn file_system(mount: &Mount) -> Check {
    let name = "file system";
    let seen = format!("{} on {} ({})", mount.kind, mount.point.display(), mount.options);
    let moved = "put the device on a file system of a local disk, xfs or ext4";
    let has = |option: &str| mount.options.split(',').any(|one| one == option);
    if let Some(option) = NO_FLUSH.iter().find(|option| has(option)) {
        return Check::trouble(
            name,
            seen,
            "with this option a sync does not reach the medium: a power cut loses what was acknowledged as durable",
            format!("take {option} out of /etc/fstab, then: mount -o remount {}", mount.point.display()),
        );
    }
    if has("ro") {
        let means = "a device there takes no writes; a kernel mounts so after errors of the disk";
        return Check::trouble(name, seen, means, "dmesg | tail -50");
    }
    match mount.kind.as_str() {
        "tmpfs" | "ramfs" => Check::warning(name, seen, "what is stored there ends with the machine's power", moved),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "lustre" | "ceph" => {
            Check::warning(name, seen, "syncs, locks and free space are what a server elsewhere says", moved)
        }
        kind if kind.starts_with("fuse") => {
            Check::warning(name, seen, "syncs are what a program of somebody else makes of them", moved)
        }
        "overlay" => Check::warning(name, seen, "a layer of a container, which goes with it", "mount a volume there"),
        _ => Check::ok(name, seen),
    }
}

fn room(free: u64) -> Check {
    let name = "free space";
    let seen = format!("{} free", show_bytes(free));
    let remedy =
        "give it another disk with --data DIR, or remove something; `stormwell df -h` shows what the store holds";
    if free < FREE_LEAST {
        return Check::trouble(name, seen, "a device there is full or cannot be made; reads and deletes go on", remedy);
    }
    if free < FREE_ENOUGH {
        return Check::warning(name, seen, "a few large files fill it; then writers wait", remedy);
    }
    Check::ok(name, seen)
}

/// What the scratch file showed.
fn probed(found: &Directory, mount: Option<&Mount>) -> Vec<Check> {
    let works = |name, works: &Works, good: &str, means: &str, remedy: &str| match works {
        Ok(()) => Check::ok(name, good),
        Err(why) => Check::warning(name, why.clone(), means, remedy),
    };
    let moved = "put the device on xfs or ext4";
    let changed = found.direct.as_ref().is_err_and(|why| why.contains("changed"));
    let direct = if changed {
        let means = "this disk or file system does not keep what is written; Stormwell would report damage and serve none of it";
        Check::trouble(
            "O_DIRECT",
            "a block that was written came back changed",
            means,
            "replace the disk; dmesg | tail -50",
        )
    } else {
        let means = "writes go through the page cache: as safe, at the cost of memory and a copy";
        works("O_DIRECT", &found.direct, "a block was written past the page cache and came back", means, moved)
    };
    vec![
        direct,
        works(
            "ring there",
            &found.ring,
            "a block was read over a ring",
            "threads drive this device: slower, as safe",
            moved,
        ),
        works(
            "preallocation",
            &found.reserves,
            "4 MiB were set aside",
            "a full disk shows later, and files lie scattered",
            moved,
        ),
        works(
            "hole punching",
            &found.punches,
            "2 MiB in the middle of a file came back",
            "space of deleted data comes back only when a whole segment is empty",
            moved,
        ),
        syncs(&found.syncs, mount),
    ]
}

fn syncs(took: &[Duration], mount: Option<&Mount>) -> Check {
    let name = "syncs";
    let at = |part: usize| took.get((took.len().saturating_sub(1)) * part / 100).copied();
    let (Some(half), Some(most)) = (at(50), at(99)) else {
        return Check::trouble(name, "none ended in time", "nothing becomes durable there", "dmesg | tail -50");
    };
    let turns = mount.and_then(|mount| mount.turns).unwrap_or(false);
    let cache = match mount.and_then(|mount| mount.volatile_cache) {
        Some(true) => "; the disk has a volatile cache, which the kernel flushes",
        Some(false) => "; the disk says that it has no volatile cache",
        None => "",
    };
    let seen = format!("{} of 4 KiB: p50 {half:.0?}, p99 {most:.0?}{cache}", took.len());
    let in_memory = mount.is_some_and(|mount| matches!(mount.kind.as_str(), "tmpfs" | "ramfs"));
    if in_memory {
        return Check::ok(name, format!("{seen}; in memory, where a sync does nothing"));
    }
    let (fastest, slow) = if turns { (SYNC_FASTEST_TURNING, SYNC_SLOW_TURNING) } else { (SYNC_FASTEST, SYNC_SLOW) };
    if half < fastest {
        return Check::warning(
            name,
            seen,
            "too fast to be true: something between here and the medium says yes without writing, and a power cut may \
             lose what was acknowledged as durable",
            "look at the hypervisor's cache mode (not `unsafe`), the controller's battery, and LD_PRELOAD",
        );
    }
    if half > slow || most > SYNC_STALL {
        return Check::warning(
            name,
            seen,
            "slow: every durable write waits for one; others may be using the disk",
            "iostat -x 1   # who uses the disk; then see docs/operate/StormwellSlowSync.md",
        );
    }
    Check::ok(name, seen)
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::{Mount, file_system, room, syncs};
    use std::time::Duration;

    fn mounted(kind: &str, options: &str) -> Mount {
        Mount { kind: kind.to_string(), options: options.to_string(), ..Mount::default() }
    }

    /// A mount that loses acknowledged data or takes no writes is in trouble; one in memory or elsewhere gets a warning.
    #[test]
    fn mounts() {
        assert_eq!(file_system(&mounted("ext4", "rw,relatime,rw")).state, State::Ok);
        assert_eq!(file_system(&mounted("ext4", "rw,relatime,rw,nobarrier")).state, State::Trouble);
        assert_eq!(file_system(&mounted("xfs", "ro,noatime,rw")).state, State::Trouble);
        assert_eq!(file_system(&mounted("ext4", "rw,errors=remount-ro,rw")).state, State::Ok);
        for kind in ["tmpfs", "nfs4", "fuse.sshfs", "overlay"] {
            assert_eq!(file_system(&mounted(kind, "rw")).state, State::Warning, "{kind}");
        }
    }

    /// Room is judged by what a device needs at least.
    #[test]
    fn rooms() {
        for (free, state) in [(0, State::Trouble), (1 << 30, State::Warning), (u64::MAX, State::Ok)] {
            assert_eq!(room(free).state, state, "{free}");
        }
    }

    /// Syncs that cannot be true and syncs that are too slow are told, by what kind of disk it is.
    #[test]
    fn suspicious_syncs() {
        let of = |micros: u64| vec![Duration::from_micros(micros); 100];
        let turning = Mount { turns: Some(true), ..mounted("ext4", "rw") };
        assert_eq!(syncs(&of(300), Some(&mounted("ext4", "rw"))).state, State::Ok);
        assert!(syncs(&of(2), None).means.contains("too fast"));
        assert!(syncs(&of(300), Some(&turning)).means.contains("too fast"));
        assert_eq!(syncs(&of(8_000), Some(&turning)).state, State::Ok);
        assert!(syncs(&of(50_000), None).means.contains("slow"));
        assert_eq!(syncs(&of(2), Some(&mounted("tmpfs", "rw"))).state, State::Ok);
        assert_eq!(syncs(&[], None).state, State::Trouble);
        let mut stalled = of(300);
        stalled[98..].fill(Duration::from_secs(1));
        assert!(syncs(&stalled, None).means.contains("slow"));
    }
}
