//! `cargo x lab hdfs`: a real HDFS and Stormwell beside each other, driven by the same client jars.

use super::kit::{Kit, WARM_JVM};
use super::servers::{Hdfs, Stormwell};
use crate::stage::{self, Run};
use crate::tree;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Nodes of the last table.
const NODES: usize = 8;

/// How large the experiment is.
struct Size {
    /// Rounds that count; one more warms up.
    rounds: u64,
    /// MiB of each file that a thread writes and reads.
    mib: u64,
    /// Calls of each kind about names.
    calls: u64,
    /// MiB of the file that the command lines put and get.
    put_mib: u64,
}

/// Runs the experiment and prints its tables in Markdown. Words: `--rounds N --mib N --calls N --put-mib N`. `Ok(true)`: it ran.
pub fn run(root: &Path, words: &[String]) -> Result<bool, String> {
    let size = size(words)?;
    Run::of("cargo build --release --workspace --bins --locked").execute(root, None)?;
    let kit = Kit::set_up(root, None)?;
    stage::aside("lab-hdfs", |directory| {
        println!(
            "HDFS 3.4.3 from its jars, without native libraries, one NameNode and one DataNode; Stormwell as `serve` starts it."
        );
        println!("Medians of {} rounds (least to greatest); the ratio is Stormwell to HDFS.\n", size.rounds);
        compare(root, &kit, directory, &size, false)?;
        println!("\nThe same with `dfs.datanode.synconclose`: closed files are durable on both sides.\n");
        compare(root, &kit, directory, &Size { calls: 0, ..size }, true)?;
        println!("\n{NODES} DataNodes, and {NODES} nodes with a gateway each, of which one is asked:\n");
        compare_nodes(root, &kit, directory, &size)
    })??;
    Ok(true)
}

fn size(words: &[String]) -> Result<Size, String> {
    let mut size = Size { rounds: 5, mib: 1024, calls: 20_000, put_mib: 4096 };
    for pair in words.chunks(2) {
        let number = pair.get(1).and_then(|word| word.parse().ok()).filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("`{}` wants a number above 0", pair[0]))?;
        match pair[0].as_str() {
            "--rounds" => size.rounds = number,
            "--mib" => size.mib = number,
            "--calls" => size.calls = number,
            "--put-mib" => size.put_mib = number,
            other => return Err(format!("`{other}` is not known; there are --rounds, --mib, --calls, --put-mib")),
        }
    }
    Ok(size)
}

/// Both servers at a time, one busy after the other.
fn compare(root: &Path, kit: &Kit, directory: &Path, size: &Size, sync: bool) -> Result<(), String> {
    let place = directory.join(if sync { "synced" } else { "plain" });
    std::fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let prepared = Hdfs::prepare(kit, &place, WARM_JVM, sync)?;
    let hdfs = prepared.start()?;
    let ours = Stormwell::start(root, &place)?;
    let mut run = kit.java_as(&["-Xmx1g"], "lab", "stormwell.clients.Lab", &place);
    run.words.extend([size.rounds, size.mib, size.calls].map(|number| number.to_string()));
    run.words.push(place.display().to_string());
    run.words.extend(["HDFS".to_owned(), hdfs.address(), hdfs.processes()?]);
    run.words.extend(["Stormwell".to_owned(), ours.address(), ours.processes()?]);
    run.execute(&place, None)?;
    if sync {
        return Ok(());
    }
    println!();
    put_and_get(root, kit, &place, size, (&hdfs, &ours))?;
    first_write(root, kit, &place, size, &ours)
}

/// Stores of several nodes, and small files alone: what of them does not grow with the nodes.
fn compare_nodes(root: &Path, kit: &Kit, directory: &Path, size: &Size) -> Result<(), String> {
    let place = directory.join("nodes");
    std::fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let data: Vec<PathBuf> = (0..NODES).map(|number| place.join(format!("data-{number}"))).collect();
    let hdfs = Hdfs::prepare_on(kit, &place, WARM_JVM, false, &data)?.start()?;
    let nodes = Stormwell::cluster(root, &place, NODES)?;
    let processes = nodes.iter().map(Stormwell::processes).collect::<Result<Vec<String>, String>>()?;
    let mut run = kit.java_as(&["-Xmx1g"], "lab", "stormwell.clients.Lab", &place);
    run.words.extend([size.rounds, 0, size.calls].map(|number| number.to_string()));
    run.words.push(place.display().to_string());
    run.words.extend(["HDFS".to_owned(), hdfs.address(), hdfs.processes()?]);
    run.words.extend(["Stormwell".to_owned(), nodes[0].address(), processes.join(",")]);
    run.execute(&place, None)
}

/// `stormwell put` and `get` beside `hdfs dfs` on HDFS, the start of the JVM included.
fn put_and_get(root: &Path, kit: &Kit, place: &Path, size: &Size, servers: (&Hdfs, &Stormwell)) -> Result<(), String> {
    let program = tree::release_directory(root).join("stormwell").display().to_string();
    let stormwell = |words: &[&str]| {
        let mut run = Run::of("").with("STORMWELL_AT", servers.1.store());
        run.words.push(program.clone());
        run.words.extend(words.iter().map(|word| (*word).to_owned()));
        run
    };
    let hadoop = |words: &[&str]| {
        let mut run = kit.java_as(&["-Xmx1g"], "hadoop", "org.apache.hadoop.fs.FsShell", place);
        run.words.extend(["-fs".to_owned(), servers.0.address()]);
        run.words.extend(words.iter().map(|word| (*word).to_owned()));
        run
    };
    let mut noise = Command::new("head");
    let file = File::create(place.join("large")).map_err(|error| format!("the file to put: {error}"))?;
    noise.args(["-c", &format!("{}", size.put_mib << 20), "/dev/urandom"]).stdout(file);
    noise.status().map_err(|error| format!("head does not start: {error}"))?;
    let mut rows = [const { Vec::new() }; 4];
    for round in 0..=size.rounds {
        let steps = [
            hadoop(&["-put", "large", "/large"]),
            stormwell(&["put", "large", "/large"]),
            hadoop(&["-get", "/large", "got"]),
            stormwell(&["get", "/large", "got"]),
        ];
        for (row, step) in rows.iter_mut().zip(steps) {
            let start = Instant::now();
            step.execute(place, None)?;
            if round > 0 {
                row.push(start.elapsed().as_secs_f64() * 1024.0 / size.put_mib as f64);
            }
            let _ = std::fs::remove_file(place.join("got"));
        }
        hadoop(&["-rm", "-skipTrash", "/large"]).execute(place, None)?;
        stormwell(&["rm", "/large"]).execute(place, None)?;
    }
    println!("\n| the commands, seconds a GiB | `hdfs dfs` on HDFS | `stormwell` | ratio |\n|---|---|---|---|");
    for (name, pair) in ["put", "get"].into_iter().zip(rows.chunks(2)) {
        println!("{}", row(name, &pair[0], &pair[1]));
    }
    Ok(())
}

/// From starting the servers on empty directories to the first durable write of a client that waits for them.
fn first_write(root: &Path, kit: &Kit, place: &Path, size: &Size, warm: &Stormwell) -> Result<(), String> {
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=size.rounds {
        for (side, times) in times.iter_mut().enumerate() {
            let here = place.join(format!("start-{round}-{side}"));
            std::fs::create_dir(&here).map_err(|error| format!("{}: {error}", here.display()))?;
            let took = if side == 0 {
                let prepared = Hdfs::prepare(kit, &here, WARM_JVM, true)?;
                timed_start(kit, &here, (&warm.address(), &prepared.address()), || prepared.start().map(drop_later))?
            } else {
                let prepared = Stormwell::prepare(root, &here)?;
                timed_start(kit, &here, (&warm.address(), &prepared.address()), || prepared.start().map(drop_later))?
            };
            if round > 0 {
                times.push(took);
            }
        }
    }
    println!("\n| seconds from the start to the first durable write | HDFS | Stormwell | ratio |\n|---|---|---|---|");
    println!("{}", row("cold start", &times[0], &times[1]));
    Ok(())
}

/// A server of whatever kind, kept until the client has done its write.
fn drop_later<T: 'static>(server: T) -> Box<dyn std::any::Any> {
    Box::new(server)
}

fn timed_start(
    kit: &Kit,
    place: &Path,
    (warm, address): (&str, &str),
    start: impl FnOnce() -> Result<Box<dyn std::any::Any>, String>,
) -> Result<f64, String> {
    let run = kit.java_as(&["-Xmx512m"], "first", "stormwell.clients.FirstWrite", place);
    let mut command = Command::new(&run.words[0]);
    command.args(&run.words[1..]).args([warm, address]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut client = command.spawn().map_err(|error| format!("java does not start: {error}"))?;
    let Some(output) = client.stdout.take() else { unreachable!("it is piped") };
    let mut lines = BufReader::new(output).lines();
    let mut said = move |word: &str| lines.next().is_some_and(|line| line.is_ok_and(|line| line == word));
    let result = if said("ready") {
        let begin = Instant::now();
        // Read aside: the write may be done before this program sees that the server is up.
        let done = std::thread::spawn(move || said("done").then(Instant::now));
        start().and_then(|server| {
            let end = done.join().ok().flatten();
            drop(server);
            let end = end.ok_or_else(|| "the waiting client ended without its write".to_owned())?;
            Ok(end.duration_since(begin).as_secs_f64())
        })
    } else {
        Err("the waiting client never was ready".to_owned())
    };
    if result.is_err() {
        let _ = client.kill();
    }
    let _ = client.wait();
    result
}

/// A line of a table in Markdown: medians, in brackets the least and the greatest, and the ratio.
pub fn row(name: &str, hdfs: &[f64], ours: &[f64]) -> String {
    let shown = |all: &[f64]| {
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = all.iter().copied().fold(0.0, f64::max);
        format!("{:.2} ({least:.2} to {greatest:.2})", median(all))
    };
    format!("| {name} | {} | {} | {:.2} |", shown(hdfs), shown(ours), median(ours) / median(hdfs))
}

pub fn median(all: &[f64]) -> f64 {
    let mut sorted = all.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::{median, size};

    /// Sizes are given by name; what is no number or no name is refused.
    #[test]
    fn sizes() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let given = size(&words("--rounds 3 --mib 64")).expect("both are known");
        assert_eq!((given.rounds, given.mib, given.calls), (3, 64, 20_000));
        for wrong in ["--rounds", "--rounds x", "--mib 0", "--size 1"] {
            assert!(size(&words(wrong)).is_err(), "{wrong}");
        }
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
