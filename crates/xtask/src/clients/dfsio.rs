//! `cargo x lab dfsio`: Hadoop's TestDFSIO on a real HDFS and on a cluster of Stormwell, eight nodes each, on the same slow devices.

use super::kit::Kit;
use super::limited::Limited;
use super::servers::{Hdfs, Stormwell};
use crate::stage::{self, Run};
use std::path::Path;

/// Nodes of both.
const NODES: usize = 8;

/// MiB of a device: files of two stores, what was deleted and is not collected yet, and what HDFS keeps back for blocks that it opened: with
/// 2,560 it found no room in its second round.
const DEVICE_MIB: u64 = 4096;

/// The JVM of a server of HDFS. Nine of them are on one machine.
const SERVER_JVM: [&str; 2] = ["-Xmx256m", "-XX:+UseSerialGC"];

/// The JVM that runs the tasks, each with its buffers.
const CLIENT_JVM: [&str; 2] = ["-Xmx2g", "-XX:+UseSerialGC"];

/// How large the experiment is.
struct Size {
    /// Rounds, all of which count; before them both stores are warmed up.
    rounds: u64,
    /// MiB in all files.
    mib: u64,
    /// MB/s of each device, in each direction.
    rate: u64,
    /// How many files, and tasks at once, one number after another.
    files: String,
    /// Whether HDFS syncs a block before it acknowledges its end. Without it, it acknowledges from the page cache.
    sync: bool,
    /// Leaves the other one out.
    only: Option<String>,
}

/// Runs the experiment and prints its tables in Markdown. Words: `--rounds N --mib N --rate N --files N,N --sync yes|no
/// --only hdfs|stormwell`. `Ok(true)`: it ran.
pub fn run(root: &Path, words: &[String]) -> Result<bool, String> {
    let size = size(words)?;
    if let Some(obstacle) = Limited::obstacle() {
        return Err(format!("there can be no limited devices: {obstacle}"));
    }
    Run::of("cargo build --release --workspace --bins --locked").execute(root, None)?;
    let kit = Kit::set_up(root, None)?;
    let jobs = kit.other(root, "jobs")?;
    stage::aside("lab-dfsio", |directory| {
        let devices = Limited::make(directory, NODES, DEVICE_MIB, size.rate * 1_000_000)?;
        println!(
            "{NODES} devices: loop devices with ext4, limited to {} MB/s by the blkio cgroup. Bare dd on all at once:\n",
            size.rate
        );
        println!("| 64 MiB with dd | slowest device, MB/s | fastest, MB/s |\n|---|---|---|");
        for checked in devices.check()? {
            println!("| {} | {:.1} | {:.1} |", checked.what, checked.rates.0, checked.rates.1);
        }
        compare(root, &kit, &jobs, directory, &size, &devices)
    })??;
    Ok(true)
}

/// Both clusters at a time on the same devices, one busy after the other. They end before the devices do.
fn compare(root: &Path, kit: &Kit, jobs: &Kit, directory: &Path, size: &Size, devices: &Limited) -> Result<(), String> {
    let data = devices.directories();
    let hdfs_data: Vec<_> = data.iter().map(|device| device.join("hdfs")).collect();
    let wanted = |name: &str| size.only.as_ref().is_none_or(|only| only == name);
    let hdfs = if wanted("hdfs") {
        Some(Hdfs::prepare_on(kit, directory, &SERVER_JVM, size.sync, &hdfs_data)?.start()?)
    } else {
        None
    };
    let configuration = directory.join("stormwell.toml");
    Stormwell::init(root, &configuration)?;
    let mut nodes: Vec<Stormwell> = Vec::new();
    for (number, device) in data.iter().enumerate().filter(|_| wanted("stormwell")) {
        let (name, bytes) = (format!("node-{number}"), device.join("stormwell").display().to_string());
        let keeper = nodes.first().map(Stormwell::store);
        let mut node = Stormwell::prepare_node(root, directory, &configuration, (&name, &[&bytes]), keeper)?;
        if keeper.is_none() {
            // On the machine's own disk, as the NameNode's metadata are.
            node.say("--metadata-dir", "metadata");
        }
        nodes.push(node.start()?);
    }
    let addresses: Vec<String> = nodes.iter().map(Stormwell::address).collect();
    let processes = nodes.iter().map(Stormwell::processes).collect::<Result<Vec<String>, String>>()?;
    let synced = if size.sync { "blocks synced when they end" } else { "as it is by default: from the page cache" };
    println!(
        "\n{} MiB in all files, all written and read at once by one JVM; both stores have {NODES} nodes and one copy. HDFS 3.4.3: {synced}. Medians \
         of {} rounds (least to greatest); the ratio is Stormwell to HDFS.\n",
        size.mib, size.rounds
    );
    let mut run = jobs.java_as(&CLIENT_JVM, "dfsio", "stormwell.jobs.Beside", directory);
    run.words.extend([size.rounds.to_string(), size.mib.to_string(), size.files.clone()]);
    run.words.push((size.rate * NODES as u64).to_string());
    run.words.extend([directory.display().to_string(), devices.names().join(",")]);
    if let Some(hdfs) = &hdfs {
        run.words.extend(["HDFS".to_owned(), hdfs.address(), hdfs.processes()?]);
    }
    if wanted("stormwell") {
        run.words.extend(["Stormwell".to_owned(), addresses.join(","), processes.join(",")]);
    }
    run.execute(directory, None)
}

fn size(words: &[String]) -> Result<Size, String> {
    let mut size = Size { rounds: 3, mib: 2048, rate: 40, files: "8,64".to_owned(), sync: true, only: None };
    for pair in words.chunks(2) {
        let value = pair.get(1).map_or("", String::as_str);
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let wanted = |what: &str| format!("`{}` wants {what}", pair[0]);
        match (pair[0].as_str(), number(value)) {
            ("--rounds", Some(number)) => size.rounds = number,
            ("--mib", Some(number)) => size.mib = number,
            ("--rate", Some(number)) => size.rate = number,
            ("--rounds" | "--mib" | "--rate", None) => return Err(wanted("a number above 0")),
            ("--files", _) if value.split(',').all(|text| number(text).is_some()) => size.files = value.to_owned(),
            ("--files", _) => return Err(wanted("numbers above 0 with commas")),
            ("--sync", _) if matches!(value, "yes" | "no") => size.sync = value == "yes",
            ("--sync", _) => return Err(wanted("yes or no")),
            ("--only", _) if matches!(value, "hdfs" | "stormwell") => size.only = Some(value.to_owned()),
            ("--only", _) => return Err(wanted("hdfs or stormwell")),
            (other, _) => {
                return Err(format!(
                    "`{other}` is not known; there are --rounds, --mib, --rate, --files, --sync, --only"
                ));
            }
        }
    }
    let uneven = size
        .files
        .split(',')
        .filter_map(|text| text.parse::<u64>().ok())
        .find(|count| !size.mib.is_multiple_of(*count));
    match uneven {
        Some(count) => Err(format!("{} MiB are not {count} files of whole MiB", size.mib)),
        None => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    /// Sizes are given by name; what is no number, no name or no even part is refused.
    #[test]
    fn sizes() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let given = size(&words("--rounds 1 --files 4,16 --sync no")).expect("all are known");
        assert_eq!((given.rounds, given.mib, given.files.as_str(), given.sync), (1, 2048, "4,16", false));
        for wrong in ["--rounds", "--rate x", "--mib 0", "--size 1", "--files 8,", "--files 3", "--sync 1", "--only 1"]
        {
            assert!(size(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
