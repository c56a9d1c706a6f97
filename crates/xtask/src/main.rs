//! The project's own commands, run as `cargo x COMMAND`: continuous integration, tests, tidiness, fuzzing.
#![allow(
    clippy::disallowed_methods,
    reason = "a build tool: it reads the real clock, disk and processes; no engine does"
)]

mod clients;
mod source;
mod stage;
mod suite;
mod tidy;
mod tool;
mod tree;
mod tutorial;

use std::process::ExitCode;

const HELP: &str = "\
The project's own commands.

  cargo x ci              formatting, clippy, tidy, everything that `test` does, rustdoc; what .ci/run calls
  cargo x test [STAGE…]   builds and runs all tests, the tutorial and the demo, or only the stages named
  cargo x nightly [STAGE…]
                          what `ci` has no time for: a thousand seeds, each planted fault, 300 kills, 50 clusters, jobs of
                          Hadoop and Spark, a minute of random bytes for each decoder; some hours
  cargo x tidy            checks that the tree keeps its rules: arrows, sizes, words, links
  cargo x fuzz [SECONDS]  feeds random bytes to every decoder for SECONDS each (default 60)
  cargo x sim [--help]    whole nodes and clusters in one thread, simulated time, disks and network: a history of each for a seed
  cargo x trials [--help] kills the real program under load, again and again, and compares every acknowledged byte
  cargo x attacks [NAME…] the real program with little memory, a healthy client beside it, and strangers who want all of it
  cargo x clients [shell|contract [SUITE…]|native|full|jobs|spark]
                          Hadoop's shell and test suites beside a real HDFS; Python; a store that is full;
                          Hadoop's own jobs, and Spark (the last two are not a part of `test`)
  cargo x lab hdfs [--rounds N] [--mib N] [--calls N] [--put-mib N]
                          measures Stormwell beside a real HDFS, both driven by Hadoop's own client
  cargo x lab dfsio [--rounds N] [--mib N] [--rate MB/S] [--files N,N] [--sync yes|no] [--only hdfs|stormwell]
                          TestDFSIO on eight nodes of each, on devices that are as slow as they are told; wants root
  cargo x lab hbase [--rounds N] [--rows N]
                          HBase's own PerformanceEvaluation on HBase over both: puts that are flushed, and that are synced
  cargo x lab scale [--help]
                          how bags scale: many devices on one machine, each as slow as it is told
  cargo x lab stalls [--times N] [--writers N] [--how killed|paused|stopped] [--leader]
                          files of three copies: for how long nothing is acknowledged when a node goes away
  cargo x lab turns [--turns N] [--how killed|paused|stopped]
                          three processes keep the metadata: for how long none acknowledges when whoever leads goes away
  cargo x help            this text

With CI=true a missing tool fails, and so does a stage that takes more than twice its bound; the end of what a stage that
failed printed is printed again after all of them.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match dispatch(command, rest) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("cargo x {command}: {text}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command. `Ok(false)`: it ran and found something; `Err`: it could not run.
fn dispatch(command: &str, rest: &[String]) -> Result<bool, String> {
    if matches!(command, "help" | "--help" | "-h") {
        print!("{HELP}");
        return Ok(true);
    }
    let root = tree::root()?;
    match (command, rest) {
        ("ci", []) => suite::ci(&root),
        ("test", names) => suite::test(&root, names),
        ("nightly", names) => suite::nightly(&root, names),
        ("tidy", []) => tidy::run(&root),
        ("fuzz", []) => suite::fuzz(&root, 60),
        ("fuzz", [seconds]) => match seconds.parse() {
            Ok(seconds) => suite::fuzz(&root, seconds),
            Err(_) => Err(format!("`{seconds}` is not a number of seconds")),
        },
        ("clients", words) => clients::run(&root, words),
        ("lab", [experiment, words @ ..]) if experiment == "hdfs" => clients::lab::run(&root, words),
        ("lab", [experiment, words @ ..]) if experiment == "dfsio" => clients::dfsio::run(&root, words),
        ("lab", [experiment, words @ ..]) if experiment == "hbase" => clients::hbase::run(&root, words),
        ("lab", [experiment, words @ ..]) if ["scale", "stalls", "turns"].contains(&experiment.as_str()) => {
            suite::lab(&root, experiment, words)
        }
        ("sim" | "trials" | "attacks", arguments) => suite::lab(&root, command, arguments),
        ("ci" | "tidy" | "fuzz", _) => Err("it takes no such arguments; `cargo x help` shows what there is".to_owned()),
        _ => Err("there is no such command; `cargo x help` lists them".to_owned()),
    }
}
