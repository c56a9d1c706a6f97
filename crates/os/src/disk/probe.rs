//! What a directory is good for, found out with a scratch file that has no name by the time it is used: a kill leaves nothing.
#![allow(clippy::disallowed_methods)] // The real files of a directory.

use super::directory::{PUNCH_MODE, fallocate};
use super::uring;
use base::buffer::Buffer;
use base::env::Clock;
use base::error::{Error, Result};
use base::limit::BLOCK;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of the scratch file.
const SCRATCH: usize = 4 << 20;

/// Syncs that are measured at most.
const SYNCS: usize = 100;

/// And for how long at most.
const SYNCING_MAX: Duration = Duration::from_secs(2);

/// Why something does not work there, for people.
pub type Works = std::result::Result<(), String>;

/// What a directory is good for.
#[derive(Clone, Debug)]
pub struct Directory {
    /// A write past the page cache came back as it was written.
    pub direct: Works,
    /// Space can be set aside.
    pub reserves: Works,
    /// Space can be given back in the middle of a file.
    pub punches: Works,
    /// A ring can read there. An error also where rings are not allowed.
    pub ring: Works,
    /// How long each write of a block and its fdatasync took, shortest first.
    pub syncs: Vec<Duration>,
}

/// Whether the kernel gives us a ring such as devices use.
pub fn ring() -> Works {
    uring::ring().map(drop)
}

/// Tries everything with a scratch file of 4 MiB in this directory, which takes two seconds at most on a disk that works.
/// An error if no file can be written there at all.
pub fn directory(path: &Path, clock: &dyn Clock) -> Result<Directory> {
    let scratch = path.join(format!("stormwell-doctor-{}", std::process::id()));
    let (file, direct) = open(&scratch).map_err(|error| {
        Error::from(error).during(format!("no file can be made in {}; check its owner and mode", path.display()))
    })?;
    let direct = match direct {
        Ok(()) => writes(&file),
        Err(error) => Err(format!("the file system refuses O_DIRECT ({error})")),
    };
    let whole = SCRATCH as u64;
    let reserves = fallocate(&file, 0, 0, whole).map_err(|error| error.to_string());
    let fill = || -> io::Result<()> {
        file.write_all_at(&Buffer::zeroed(SCRATCH), 0)?;
        file.sync_all()
    };
    let failed = |error: io::Error| Error::from(error).during(format!("cannot write in {}", path.display()));
    fill().map_err(failed)?;
    let syncs = syncs(&file, clock).map_err(failed)?;
    let ring = ring().and_then(|()| uring::probe(&file).map_err(|error| error.to_string()));
    Ok(Directory { direct, reserves, punches: punches(&file), ring, syncs })
}

/// The scratch file, and whether it could be opened past the page cache. Its name is gone.
fn open(path: &Path) -> io::Result<(File, io::Result<()>)> {
    let make = |flags: i32| OpenOptions::new().read(true).write(true).create_new(true).custom_flags(flags).open(path);
    let (file, direct) = match make(libc::O_DIRECT) {
        Ok(file) => (file, Ok(())),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // Some file systems refuse after they have made the file.
            let _ = std::fs::remove_file(path);
            (make(0)?, Err(error))
        }
        Err(error) => return Err(error),
    };
    std::fs::remove_file(path)?;
    Ok((file, direct))
}

/// Whether what is written past the page cache comes back.
fn writes(file: &File) -> Works {
    let mut block = Buffer::zeroed(BLOCK);
    for (place, byte) in block.iter_mut().enumerate() {
        *byte = (place * 31 % 251) as u8;
    }
    let mut back = Buffer::zeroed(BLOCK);
    let both = file.write_all_at(&block, 0).and_then(|()| file.read_exact_at(&mut back, 0));
    both.map_err(|error| error.to_string())?;
    if back[..] == block[..] { Ok(()) } else { Err("a block that was written came back changed".to_string()) }
}

/// Whether space comes back from the middle of the file, which reads as zeros there.
fn punches(file: &File) -> Works {
    let occupied = || file.metadata().map(|about| about.blocks().saturating_mul(512));
    let punch = || -> io::Result<(u64, u64)> {
        let before = occupied()?;
        fallocate(file, PUNCH_MODE, SCRATCH as u64 / 4, SCRATCH as u64 / 2)?;
        file.sync_all()?;
        Ok((before, occupied()?))
    };
    match punch() {
        Ok((before, after)) if after < before => Ok(()),
        Ok(_) => Err("the file system says yes and gives no space back".to_string()),
        Err(error) => Err(error.to_string()),
    }
}

/// How long syncs take, one after another, shortest first.
fn syncs(file: &File, clock: &dyn Clock) -> io::Result<Vec<Duration>> {
    let block = Buffer::zeroed(BLOCK);
    let (begun, mut took) = (clock.now(), Vec::new());
    while took.len() < SYNCS && clock.now().since(begun) < SYNCING_MAX {
        let since = clock.now();
        file.write_all_at(&block, (took.len() * BLOCK) as u64)?;
        file.sync_data()?;
        took.push(clock.now().since(since));
    }
    took.sort_unstable();
    Ok(took)
}

/// Where a path is mounted, and on what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    /// The kind of file system: `ext4`, `xfs`, `nfs4`, `tmpfs`.
    pub kind: String,
    /// The directory where it is mounted.
    pub point: PathBuf,
    /// Its options, those of the mount point and those of the file system, with commas between.
    pub options: String,
    /// Whether the disk below turns; none if there is none or nobody knows: what a virtual machine says of its disks is not known.
    pub turns: Option<bool>,
    /// Whether the disk says that it keeps writes in a volatile cache (`write back`); none if nobody knows.
    pub volatile_cache: Option<bool>,
}

/// The mount of an existing path. None if /proc does not say.
pub fn mount(path: &Path) -> Option<Mount> {
    let path = std::fs::canonicalize(path).ok()?;
    let (device, mut mount) = innermost(&std::fs::read_to_string("/proc/self/mountinfo").ok()?, &path)?;
    let disk = std::fs::canonicalize(format!("/sys/dev/block/{device}")).ok();
    let virtual_disk = disk.as_ref().is_none_or(|disk| {
        let disk = disk.to_string_lossy();
        ["/virtual/", "/virtio", "/xen", "/vmbus"].iter().any(|word| disk.contains(word))
    });
    // A partition has no queue; its disk, the directory above, has.
    let queue = disk.and_then(|disk| {
        let places = [Some(disk.join("queue")), disk.parent().map(|above| above.join("queue"))];
        places.into_iter().flatten().find(|queue| queue.is_dir())
    });
    let word = |name: &str| {
        let text = std::fs::read_to_string(queue.as_ref()?.join(name)).ok()?;
        Some(text.trim().to_string())
    };
    mount.turns = word("rotational").filter(|_| !virtual_disk).map(|word| word == "1");
    mount.volatile_cache = word("write_cache").map(|word| word == "write back");
    Some(mount)
}

/// The last mounted of the longest mount points above the path, and its device's number. A line of mountinfo: id, parent,
/// device, root, mount point, options, optional fields, a dash, kind, source, options of the file system.
fn innermost(table: &str, path: &Path) -> Option<(String, Mount)> {
    let mounts = table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let point = PathBuf::from(unescaped(left.get(4)?));
        let options = format!("{},{}", left.get(5)?, right.get(2).copied().unwrap_or_default());
        let mount = Mount { kind: (*right.first()?).to_string(), point, options, turns: None, volatile_cache: None };
        Some(((*left.get(2)?).to_string(), mount))
    });
    mounts.filter(|(_, mount)| path.starts_with(&mount.point)).max_by_key(|(_, mount)| mount.point.as_os_str().len())
}

/// Spaces, tabs, ends of lines and backslashes stand in octal in mountinfo.
fn unescaped(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::{innermost, mount};
    use std::path::Path;

    /// The innermost mount counts, the last one of several at one point; broken lines do no harm.
    #[test]
    fn mounts() {
        let table = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\nnonsense\n\
                     2 1 8:2 / /data\\040x rw - xfs /dev/sdb rw,nobarrier\n3 1 0:9 / /data\\040x ro - tmpfs t rw\n- - -\n";
        let (device, found) = innermost(table, Path::new("/data x/store")).unwrap();
        assert_eq!((device.as_str(), found.kind.as_str(), found.options.as_str()), ("0:9", "tmpfs", "ro,rw"));
        assert_eq!(innermost(table, Path::new("/data")).unwrap().1.kind, "ext4");
        assert!(innermost("", Path::new("/")).is_none());
        assert!(mount(Path::new("/")).is_some_and(|mount| !mount.kind.is_empty()));
        assert!(mount(Path::new("/does/not/exist")).is_none());
    }
}
