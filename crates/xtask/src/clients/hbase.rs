//! `cargo x lab hbase`: HBase's own PerformanceEvaluation, on HBase over a real HDFS and on HBase over Stormwell.

use super::kit::{Kit, WARM_JVM};
use super::lab::{median, row};
use super::servers::{Hdfs, Kept, START_MAX, Stormwell, free_ports, last_lines, properties};
use crate::stage::{self, Run};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Threads that put, each one row after another.
const CLIENTS: u64 = 4;

/// Bytes of a row's only value: what PerformanceEvaluation has by default.
const VALUE: u64 = 1000;

/// How many times the rows of HDFS we want.
const BAR: f64 = 1.1;

/// The least rows a second, of all clients, that are waited for: fewer mean that something hangs.
const RATE_MIN: u64 = 20;

/// The JVM of HBase and of its clients. Since Java 17 they reach their buffers only if they are allowed to, and PerformanceEvaluation writes numbers
/// as the user's language does.
const JVM: [&str; 10] = [
    "-Xmx2g",
    "-Duser.language=en",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
];

/// What is put, and how far it must have come when it is acknowledged.
struct Workload {
    name: &'static str,
    /// As PerformanceEvaluation takes it: a command or a class. Its own commands say SYNC_WAL with each put, an hflush, whatever
    /// `hbase.wal.hsync` says; only puts that leave it open would heed that. Ours say FSYNC_WAL.
    command: &'static str,
    /// Rows are drawn, some of them more than once.
    random: bool,
}

const WORKLOADS: [Workload; 4] = [
    Workload { name: "sequentialWrite-hflush", command: "sequentialWrite", random: false },
    Workload { name: "randomWrite-hflush", command: "randomWrite", random: true },
    Workload { name: "sequentialWrite-hsync", command: "org.apache.hadoop.hbase.SyncedSequentialWrite", random: false },
    Workload { name: "randomWrite-hsync", command: "org.apache.hadoop.hbase.SyncedRandomWrite", random: true },
];

/// Of one run: thousand rows a second; the median and the 99th percentile of a put in milliseconds, each the mean of the clients' own.
type Measured = [f64; 3];

const MEASURES: [&str; 3] = ["thousand rows/s", "p50 of a put, ms", "p99 of a put, ms"];

/// How large the experiment is.
struct Size {
    /// Rounds that count; a shorter one warms up.
    rounds: u64,
    /// Rows that each client puts in a run.
    rows: u64,
}

/// Runs the experiment and prints its table in Markdown. Words: `--rounds N --rows N`. `Ok(true)`: it ran.
pub fn run(root: &Path, words: &[String]) -> Result<bool, String> {
    let size = size(words)?;
    Run::of("cargo build --release --workspace --bins --locked").execute(root, None)?;
    let kit = Kit::set_up(root, None)?;
    let hbase = kit.other(root, "hbase")?;
    stage::aside("lab-hbase", |directory| {
        // Both at a time, one busy after the other. Each HBase ends before its store.
        let hdfs = Hdfs::prepare(&kit, directory, WARM_JVM, false)?.start()?;
        let ours = Stormwell::start(root, directory)?;
        let sides = [
            HBase::start(&hbase, &directory.join("on-hdfs"), &hdfs.address())?,
            HBase::start(&hbase, &directory.join("on-stormwell"), &ours.address())?,
        ];
        let result = compare(&hbase, &sides, &size);
        drop(sides);
        show(&size, &result?);
        Ok(())
    })??;
    Ok(true)
}

fn size(words: &[String]) -> Result<Size, String> {
    let mut size = Size { rounds: 3, rows: 20_000 };
    for pair in words.chunks(2) {
        let number = pair.get(1).and_then(|word| word.parse().ok()).filter(|number| *number > 0);
        let number = number.ok_or_else(|| format!("`{}` wants a number above 0", pair[0]))?;
        match pair[0].as_str() {
            "--rounds" => size.rounds = number,
            "--rows" => size.rows = number,
            other => return Err(format!("`{other}` is not known; there are --rounds, --rows")),
        }
    }
    Ok(size)
}

/// For each workload, for each side, for each measure: what the rounds gave.
type Results = Vec<[[Vec<f64>; 3]; 2]>;

/// All rounds. Whoever goes first in one goes second in the next.
fn compare(kit: &Kit, sides: &[HBase; 2], size: &Size) -> Result<Results, String> {
    let mut results: Results = vec![Default::default(); WORKLOADS.len()];
    for round in 0..=size.rounds {
        let begin = Instant::now();
        let rows = if round == 0 { size.rows.div_ceil(4) } else { size.rows };
        for (workload, result) in WORKLOADS.iter().zip(&mut results) {
            let mut order = [0, 1];
            order.rotate_left(usize::from(round % 2 == 0));
            for side in order {
                let measured = sides[side].measure(kit, workload, rows, round)?;
                for (column, value) in result[side].iter_mut().zip(measured).filter(|_| round > 0) {
                    column.push(value);
                }
            }
        }
        eprintln!("lab hbase: round {round} of {}: {:.0} s", size.rounds, begin.elapsed().as_secs_f64());
    }
    Ok(results)
}

fn show(size: &Size, results: &Results) {
    println!(
        "HBase 2.6.4 for Hadoop 3, master, region server and ZooKeeper in one JVM, over HDFS 3.4.3 (one NameNode and one DataNode) and over \
         Stormwell as `serve` starts it; one copy. {CLIENTS} clients put {} rows of {VALUE} bytes each, one after another.",
        size.rows
    );
    println!("Medians of {} rounds (least to greatest); the ratio is Stormwell to HDFS.\n", size.rounds);
    println!(
        "| PerformanceEvaluation | HBase on HDFS | HBase on Stormwell | ratio | bar: {BAR} |\n|---|---|---|---|---|"
    );
    for (workload, [hdfs, ours]) in WORKLOADS.iter().zip(results) {
        for ((measure, hdfs), ours) in MEASURES.into_iter().zip(hdfs).zip(ours) {
            let verdict = match median(ours) / median(hdfs) {
                _ if measure != MEASURES[0] => "",
                ratio if ratio >= BAR => "ok",
                _ => "missed",
            };
            println!("{} {verdict} |", row(&format!("{}, {measure}", workload.name), hdfs, ours));
        }
    }
}

/// HBase over one store: master, region server and ZooKeeper in one process.
struct HBase {
    server: Kept,
    configuration: PathBuf,
    place: PathBuf,
}

impl HBase {
    /// Starts it in a directory that is not there yet, and waits until it takes tables.
    fn start(kit: &Kit, place: &Path, store: &str) -> Result<HBase, String> {
        let configuration = place.join("conf");
        fs::create_dir_all(&configuration).map_err(|error| format!("{}: {error}", place.display()))?;
        let site = site(place, store, free_ports::<1>()?[0]);
        fs::write(configuration.join("hbase-site.xml"), site).map_err(|error| format!("hbase-site.xml: {error}"))?;
        let mut run = kit.configured(&JVM, &configuration, "hbase", "org.apache.hadoop.hbase.master.HMaster");
        run.words.push("start".to_owned());
        let server = Kept::start("hbase", &run, place)?;
        let hbase = HBase { server, configuration, place: place.to_owned() };
        let ready = kit.configured(&JVM, &hbase.configuration, "ready", "stormwell.hbase.Ready");
        hbase.execute(&ready, "ready", START_MAX)?;
        Ok(hbase)
    }

    /// One run into a fresh table, which is read and dropped afterwards.
    fn measure(&self, kit: &Kit, workload: &Workload, rows: u64, round: u64) -> Result<Measured, String> {
        let total = rows * CLIENTS;
        let limit = START_MAX + Duration::from_secs(total / RATE_MIN);
        let name = format!("{}-{round}", workload.name);
        let class = "org.apache.hadoop.hbase.PerformanceEvaluation";
        let mut run = kit.configured(&JVM, &self.configuration, &name, class);
        run.words.extend(["--nomapred", "--autoFlush=true", "--table=measured"].map(str::to_owned));
        run.words.extend([format!("--presplit={CLIENTS}"), format!("--valueSize={VALUE}"), format!("--rows={rows}")]);
        run.words.extend([workload.command.to_owned(), CLIENTS.to_string()]);
        self.execute(&run, &name, limit)?;
        let said = fs::read_to_string(self.log(&name)).map_err(|error| format!("{name}: {error}"))?;
        let measured = parse(&said).map_err(|text| format!("{name}: {text}; it said\n{}", self.said(&name)))?;
        let mut check = kit.configured(&JVM, &self.configuration, "check", "stormwell.hbase.Check");
        let (least, most) = if workload.random { drawn(total) } else { (total, total) };
        check.words.push("measured".to_owned());
        check.words.extend([VALUE, least, most].map(|number| number.to_string()));
        self.execute(&check, "check", limit)?;
        Ok(measured)
    }

    fn execute(&self, run: &Run, name: &str, limit: Duration) -> Result<(), String> {
        let result = run.execute(&self.place, Some(limit));
        result.map_err(|text| format!("{name}: {text}; it said\n{}HBase said\n{}", self.said(name), self.server.said()))
    }

    fn said(&self, name: &str) -> String {
        last_lines(&self.log(name))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.place.join(format!("{name}.log"))
    }
}

/// The configuration of HBase and of its clients: everything on loopback, on ports that the servers take themselves where they can; one copy. The
/// rest is HBase's own, also the log: AsyncFSWAL, which speaks to DataNodes without HDFS's client and does so with both stores.
fn site(place: &Path, store: &str, port: u16) -> String {
    let loopback = || "127.0.0.1".to_owned();
    let below = |name: &str| place.join(name).display().to_string();
    properties([
        ("fs.defaultFS", store.to_owned()),
        ("hbase.rootdir", format!("{store}/hbase")),
        ("dfs.replication", "1".to_owned()),
        ("hbase.tmp.dir", below("tmp")),
        ("hadoop.tmp.dir", below("tmp")),
        ("hbase.zookeeper.property.dataDir", below("zookeeper")),
        ("hbase.zookeeper.quorum", loopback()),
        ("hbase.zookeeper.property.clientPort", port.to_string()),
        ("hbase.zookeeper.property.clientPortAddress", loopback()),
        ("hbase.master.hostname", loopback()),
        ("hbase.unsafe.regionserver.hostname", loopback()),
        ("hbase.master.port", "0".to_owned()),
        ("hbase.regionserver.port", "0".to_owned()),
        // Pages for browsers, which nobody looks at.
        ("hbase.master.info.port", "-1".to_owned()),
        ("hbase.regionserver.info.port", "-1".to_owned()),
    ])
}

/// How many different rows there are, at least and at most, when of so many rows that many are drawn: six deviations about 1 - 1/e of them.
fn drawn(total: u64) -> (u64, u64) {
    let missed = (-1.0_f64).exp();
    let deviation = (total as f64 * (missed - 2.0 * missed * missed)).sqrt();
    let mean = total as f64 * (1.0 - missed);
    (((mean - 6.0 * deviation).max(1.0)) as u64, ((mean + 6.0 * deviation) as u64).min(total))
}

/// What PerformanceEvaluation logged: a rate for all clients, and a line of latencies in microseconds for each.
fn parse(log: &str) -> Result<Measured, String> {
    let after = |line: &str, word: &str| -> Option<f64> {
        let rest = line.split_once(word)?.1.trim_start();
        rest.split([',', ' ', '\t']).next()?.parse().ok()
    };
    let rate = log.lines().find_map(|line| after(line, "[ Avg TPS/QPS]"));
    let rate = rate.ok_or("it told no rate")?;
    let latencies = || log.lines().filter(|line| line.contains("Latency (us) :"));
    let mean = |percentile: &str| {
        let found: Vec<f64> = latencies().filter_map(|line| after(line, percentile)).collect();
        let all = found.len() as u64 == CLIENTS;
        all.then(|| found.iter().sum::<f64>() / CLIENTS as f64 / 1000.0)
            .ok_or_else(|| format!("it told{percentile} of {} clients, not of {CLIENTS}", found.len()))
    };
    Ok([rate / 1000.0, mean(" 50th=")?, mean(" 99th=")?])
}

#[cfg(test)]
mod tests {
    use super::{drawn, parse, size};

    /// The rate and the means of all clients' percentiles are read; a client that is missing is no run.
    #[test]
    fn logs() {
        let client = |median: u32| {
            format!(
                "2026-11-27 17:40:01,123 INFO PerformanceEvaluation: Latency (us) : mean=900.10, min=300.00, max=9000.00, stdDev=100.00, \
                 50th={median}.00, 75th=950.00, 95th=1200.00, 99th=2000.50, 99.9th=4000.00, 99.99th=9000.00, 99.999th=9000.00\n"
            )
        };
        let rate = "2026-11-27 17:40:02,001 INFO PerformanceEvaluation: [ Avg TPS/QPS]\t4321\t row per second\n";
        let three: String = [800, 820, 840].map(client).concat();
        assert_eq!(parse(&format!("{three}{}{rate}", client(860))), Ok([4.321, 0.83, 2.0005]));
        assert!(parse(&format!("{three}{rate}")).is_err_and(|text| text.contains("3 clients")));
        assert!(parse(&three).is_err_and(|text| text.contains("no rate")));
    }

    /// Sizes are given by name; what is no number or no name is refused.
    #[test]
    fn sizes() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let given = size(&words("--rows 500")).expect("it is known");
        assert_eq!((given.rounds, given.rows), (3, 500));
        for wrong in ["--rounds", "--rows x", "--rows 0", "--mib 1"] {
            assert!(size(&words(wrong)).is_err(), "{wrong}");
        }
    }

    /// Some two thirds of the rows are drawn; nothing and all of them are neither.
    #[test]
    fn rows_drawn() {
        assert_eq!(drawn(10_000), (6134, 6508));
        let (least, most) = drawn(4);
        assert!(least >= 1 && most <= 4);
    }
}
