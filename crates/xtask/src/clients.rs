//! `cargo x clients`: other people's clients of HDFS, against Stormwell and against a real HDFS in the same run.

pub mod dfsio;
mod failover;
pub mod hbase;
mod jobs;
mod kit;
pub mod lab;
mod limited;
pub mod servers;

use crate::stage::{self, Run};
use crate::tool;
use kit::{Kit, SMALL_JVM};
use servers::{Hdfs, Stormwell};
use std::path::Path;
use std::time::{Duration, Instant};

/// What there is, in the order in which it runs.
const STAGES: [&str; 7] = ["shell", "contract", "native", "full", "failover", "jobs", "spark"];

/// What runs in every test of the tree; the others download more and take longer.
const TESTED: [&str; 5] = ["shell", "contract", "native", "full", "failover"];

/// Runs all stages, or those named. After `contract` names of suites may follow. `Ok(true)` if all passed.
pub fn run(root: &Path, words: &[String]) -> Result<bool, String> {
    let (stages, suites): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| STAGES.contains(&word.as_str()));
    if !suites.is_empty() && !stages.iter().any(|stage| *stage == "contract") {
        return Err(format!("there is no stage `{}`; the stages are {}", suites[0], STAGES.join(", ")));
    }
    Run::of("cargo build --release --workspace --bins --locked").execute(root, None)?;
    let named = |stage: &&str| stages.is_empty() || stages.iter().any(|name| name == stage);
    let wanted: Vec<&str> = STAGES.into_iter().filter(named).collect();
    match all(root, &wanted, &suites, None) {
        Ok(()) => Ok(true),
        Err(text) => {
            println!("clients: FAILED: {text}");
            Ok(false)
        }
    }
}

/// The stage of `cargo x test`. Outside continuous integration it is skipped, with a word, where it cannot run.
pub fn stage(root: &Path, limit: Option<Duration>) -> Result<(), String> {
    all(root, &TESTED, &[], limit)
}

/// These stages with everything that they need started before and ended after.
fn all(root: &Path, wanted: &[&str], suites: &[&String], limit: Option<Duration>) -> Result<(), String> {
    let kit = match timed("jars and packages", || Kit::set_up(root, limit)) {
        Ok(kit) => kit,
        Err(text) if tool::in_ci() => return Err(text),
        Err(text) => {
            println!("clients: skipped: {text}");
            return Ok(());
        }
    };
    stage::aside("clients", |directory| {
        let mut ours = timed("start of Stormwell", || Stormwell::start(root, directory))?;
        let both = wanted.iter().any(|stage| ["shell", "contract"].contains(stage));
        let hdfs = if both {
            Some(timed("start of HDFS", || Hdfs::prepare(&kit, directory, &SMALL_JVM, false)?.start())?)
        } else {
            None
        };
        let there = hdfs.as_ref().map_or_else(|| "-".to_owned(), Hdfs::address);
        let mut failed = Vec::new();
        for stage in wanted {
            let address = ours.address();
            let result = timed(stage, || match *stage {
                "shell" => shell(root, &kit, directory, &there, &address).execute(directory, limit),
                "contract" => contract(root, &kit, directory, &there, &address, suites).execute(directory, limit),
                "native" => python(root, &kit.python(), "native.py", directory, &address).execute(directory, limit),
                "full" => full(root, &kit, directory, limit),
                "failover" => failover::run(root, &kit, directory),
                "jobs" => jobs::run(root, &kit, directory, &mut ours),
                _ => {
                    let interpreter = kit.spark(root)?;
                    python(root, &interpreter, "spark.py", directory, &address).execute(directory, limit)
                }
            });
            if let Err(text) = result {
                println!(
                    "{stage}: FAILED: {}\nrepeat: cargo x clients {stage}",
                    text.lines().next().unwrap_or_default()
                );
                failed.push(format!("{stage}: {text}"));
            }
        }
        if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
    })?
}

/// Every line of shell-commands.txt on both sides; what they print must be equal.
fn shell(root: &Path, kit: &Kit, directory: &Path, hdfs: &str, ours: &str) -> Run {
    let lists = ["shell-commands.txt", "shell-differences.txt"].map(|name| root.join("clients").join(name));
    let mut run = kit.java("client", "stormwell.clients.CompareShell", directory);
    run.words.extend(lists.map(|list| list.display().to_string()));
    run.words.extend([directory.display().to_string(), hdfs.to_owned(), ours.to_owned()]);
    run
}

/// Hadoop's contract suites on both sides; what passes there must pass here.
fn contract(root: &Path, kit: &Kit, directory: &Path, hdfs: &str, ours: &str, suites: &[&String]) -> Run {
    let mut run = kit.java("client", "stormwell.clients.Contracts", directory);
    run.words.push(root.join("clients/contract-failures.txt").display().to_string());
    run.words.extend([directory.display().to_string(), hdfs.to_owned(), ours.to_owned()]);
    run.words.extend(suites.iter().map(|suite| (*suite).clone()));
    run
}

/// A program of `clients/python`: `native.py` (hdfs-native, fsspec, pandas, pyarrow) or `spark.py`.
fn python(root: &Path, interpreter: &Path, program: &str, directory: &Path, ours: &str) -> Run {
    let mut run = Run::of("");
    run.words.push(interpreter.display().to_string());
    run.words.push(root.join("clients/python").join(program).display().to_string());
    run.words.extend([ours.to_owned(), directory.display().to_string()]);
    run
}

/// A store of its own, which is filled by Java writers.
fn full(root: &Path, kit: &Kit, directory: &Path, limit: Option<Duration>) -> Result<(), String> {
    let small = Stormwell::prepare_with(root, &directory.join("small-server"), "data:ssd:256M")?.start()?;
    let mut run = kit.java("full", "stormwell.clients.Full", directory);
    run.words.push(small.address());
    run.execute(directory, limit)
}

fn timed<T>(name: &str, action: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let start = Instant::now();
    let result = action();
    println!("clients: {name}: {:.1} s", start.elapsed().as_secs_f64());
    result
}
