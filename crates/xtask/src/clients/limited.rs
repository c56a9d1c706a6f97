//! Slow devices: loop devices over files, each with a file system, that the system's blkio cgroup lets read and write only so fast,
//! whoever does it. Stormwell's own limiter sits in its program; this one is there for HDFS as well.

use crate::tool;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Makes the devices, says which they are, and takes everything down as soon as whoever started it is gone, however that happened: then
/// the pipe closes. Arguments: directory, devices, MiB of each, bytes a second. The limit lies on the root group: write-back of buffered
/// pages is always the root group's in cgroup v1, and direct writes are as long as nobody leaves it. A device may have 64 MiB of dirty
/// pages: as where files are larger than memory, who writes through the page cache is slowed down while it writes, not at the end.
const KEEPER: &str = r#"
place=$1 count=$2 mib=$3 rate=$4
throttle=/sys/fs/cgroup/blkio/blkio.throttle
loops=()
limit() {
    number=$(cat /sys/block/$1/dev)
    echo "$number $2" >$throttle.read_bps_device && echo "$number $2" >$throttle.write_bps_device
}
take_down() {
    set +e
    for index in "${!loops[@]}"; do
        loop=${loops[$index]}
        limit $loop 0
        # Servers that still end hold it for some seconds.
        for pause in {1..60}; do
            mountpoint -q $place/$index || break
            umount $place/$index 2>/dev/null || sleep 0.25
        done
        mountpoint -q $place/$index && umount -l $place/$index
        echo 0 >/sys/block/$loop/bdi/strict_limit
        echo 100 >/sys/block/$loop/bdi/max_ratio
        losetup -d /dev/$loop
        rm -f $place/$index.device
        rmdir $place/$index
    done
}
trap '' INT TERM HUP
trap take_down EXIT
set -e
for ((index = 0; index < count; index++)); do
    truncate -s ${mib}M $place/$index.device
    loop=$(losetup --find --show --direct-io=on $place/$index.device)
    loop=${loop#/dev/}
    loops+=($loop)
    mkfs.ext4 -q -N 8192 -E lazy_itable_init=0 /dev/$loop
    mkdir $place/$index
    mount -o noatime /dev/$loop $place/$index
    echo 1 >/sys/block/$loop/bdi/strict_limit
    echo $((64 << 20)) >/sys/block/$loop/bdi/max_bytes
    limit $loop $rate
done
echo ${loops[@]}
cat >/dev/null
"#;

/// What the keeper and the checks run.
const PROGRAMS: [&str; 6] = ["losetup", "mkfs.ext4", "mount", "mountpoint", "dd", "sync"];

/// MiB that a check moves over each device.
const CHECK_MIB: u64 = 64;

/// Devices that are there as long as this value, or as this program.
pub struct Limited {
    keeper: Child,
    output: BufReader<ChildStdout>,
    place: PathBuf,
    names: Vec<String>,
}

/// How fast bare programs were on all devices at once, in MB/s.
pub struct Checked {
    /// What was done.
    pub what: &'static str,
    /// On the slowest and on the fastest device.
    pub rates: (f64, f64),
}

impl Limited {
    /// Why there can be none here, if there cannot.
    pub fn obstacle() -> Option<String> {
        if !tool::is_root() {
            return Some("only root can make loop devices and limit them".to_owned());
        }
        let found = |program: &&str| tool::answers("bash", &["-c", "type -P \"$0\"", program]);
        if let Some(missing) = PROGRAMS.iter().find(|program| !found(program)) {
            return Some(format!("{missing} is missing; install it"));
        }
        for (file, what) in [
            ("/dev/loop-control", "loop devices"),
            ("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device", "a cgroup v1 with blkio at /sys/fs/cgroup/blkio"),
        ] {
            if !Path::new(file).exists() {
                return Some(format!("this system has no {what} ({file})"));
            }
        }
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let outside = own.lines().filter(|line| line.contains(":blkio:")).find(|line| !line.ends_with(":/"));
        outside.map(|line| format!("this shell is in a blkio group of its own ({line}); start it from the root group"))
    }

    /// Makes so many in a directory, each of so many MiB and with so many bytes a second in each direction.
    pub fn make(place: &Path, count: usize, mib: u64, rate: u64) -> Result<Limited, String> {
        let mut command = Command::new("bash");
        command.args(["-c", KEEPER, "devices"]).arg(place).args([count as u64, mib, rate].map(|word| word.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut keeper = command.spawn().map_err(|error| format!("bash does not start: {error}"))?;
        let Some(output) = keeper.stdout.take() else { unreachable!("it is piped") };
        let mut limited =
            Limited { keeper, output: BufReader::new(output), place: place.to_owned(), names: Vec::new() };
        let mut line = String::new();
        let read = limited.output.read_line(&mut line);
        read.map_err(|error| format!("what makes the devices says nothing: {error}"))?;
        limited.names = line.split_whitespace().map(str::to_owned).collect();
        if limited.names.len() != count {
            return Err("the devices could not be made; what stands above says why".to_owned());
        }
        Ok(limited)
    }

    /// Their names below /sys/block.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Where each is mounted.
    pub fn directories(&self) -> Vec<PathBuf> {
        (0..self.names.len()).map(|index| self.place.join(index.to_string())).collect()
    }

    /// Bare writes and reads, direct and through the page cache, on all at once.
    pub fn check(&self) -> Result<Vec<Checked>, String> {
        let read = ["if=check", "of=/dev/null"];
        let write = ["if=/dev/zero", "of=check"];
        let kinds = [
            ("write, direct", write, "oflag=direct"),
            ("read, direct", read, "iflag=direct"),
            ("write, through the page cache, synced", write, "conv=fsync"),
            ("read, through the page cache, dropped before", read, "iflag=fullblock"),
        ];
        let mut all = Vec::new();
        for (what, files, flag) in kinds {
            fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("caches cannot be dropped: {error}"))?;
            let mut running = Vec::new();
            for directory in self.directories() {
                let mut dd = Command::new("dd");
                dd.args(files).args([flag, "bs=1M", &format!("count={CHECK_MIB}")]).current_dir(directory);
                dd.stdin(Stdio::null()).stderr(Stdio::null());
                running.push(std::thread::spawn(move || {
                    let begin = Instant::now();
                    let good = dd.status().is_ok_and(|status| status.success());
                    good.then(|| (CHECK_MIB << 20) as f64 / 1e6 / begin.elapsed().as_secs_f64())
                }));
            }
            let rates: Option<Vec<f64>> = running.into_iter().map(|thread| thread.join().ok().flatten()).collect();
            let rates = rates.ok_or_else(|| format!("dd failed on a device: {what}"))?;
            let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
            all.push(Checked { what, rates: (least, rates.iter().copied().fold(0.0, f64::max)) });
        }
        for directory in self.directories() {
            let _ = fs::remove_file(directory.join("check"));
        }
        Ok(all)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::Limited;

    /// Devices go with the value: nothing stays mounted, and no loop device has their files.
    #[test]
    fn taken_down() {
        if let Some(obstacle) = Limited::obstacle() {
            println!("skipped: {obstacle}");
            return;
        }
        let place = std::env::temp_dir().join(format!("stormwell-limited-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a fresh directory");
        let limited = Limited::make(&place, 2, 64, 40_000_000).expect("nothing speaks against it");
        let mounts = || std::fs::read_to_string("/proc/mounts").expect("Linux has it");
        let name = place.display().to_string();
        assert_eq!(mounts().matches(&name).count(), 2);
        for directory in limited.directories() {
            std::fs::write(directory.join("file"), "bytes").expect("it is a file system");
        }
        let names = limited.names().to_vec();
        drop(limited);
        assert_eq!(mounts().matches(&name).count(), 0);
        let limits =
            std::fs::read_to_string("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device").expect("it was there");
        for loop_device in names {
            let file =
                std::fs::read_to_string(format!("/sys/block/{loop_device}/loop/backing_file")).unwrap_or_default();
            assert!(!file.contains(&name), "{loop_device} still has {file}");
            let number = std::fs::read_to_string(format!("/sys/block/{loop_device}/dev")).unwrap_or_default();
            assert!(!limits.lines().any(|line| line.starts_with(&format!("{} ", number.trim()))), "{limits}");
        }
        std::fs::remove_dir(&place).expect("nothing is left in it");
    }
}
