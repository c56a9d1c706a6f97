//! `cargo x trials`: kills the real program under load, again and again, and compares.

mod bag;
mod blind;
mod check;
mod cluster;
mod content;
mod image;
mod keepers;
mod load;
mod model;
pub mod report;
pub mod server;
pub mod stalls;
mod store;
mod swallowed;
mod tool;
pub mod turns;

use crate::record;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::unit::show_bytes;
use harness::scratch::Scratch;
use image::Image;
use os::random::SystemRandom;
use report::{Counts, Finding, Found};
use serde_json::json;
use server::{Launch, scratch};
use sim::random::SimRandom;
use std::io::IsTerminal;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;
use store::{Stop, Store};
use tokio::runtime::Runtime;

/// How many trials, and of which kind.
#[derive(clap::Args)]
pub struct Args {
    /// Trials of each kind; with --blind, at most so many for each sync
    #[arg(long, default_value_t = 20)]
    count: u64,
    /// Only this kind; without it kill and power
    #[arg(long, value_enum)]
    kind: Option<Choice>,
    /// Where the choices of the load come from; the moments of the kills depend on the machine as well
    #[arg(long)]
    seed: Option<u64>,
    /// Leave out each sync of the code in turn, or the one named: some trial must notice
    #[arg(long, value_name = "SYNC", num_args = 0..=1, default_missing_value = "all")]
    blind: Option<String>,
    /// Chunks of 4 KiB that pass through the bag of each trial of kind swallowed
    #[arg(long, default_value_t = 100_000)]
    chunks: u64,
    /// One JSON object a kind on stdout
    #[arg(long)]
    json: bool,
    /// Add what was counted to docs/trust.md
    #[arg(long)]
    record: bool,
}

/// What a trial does to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Choice {
    /// kill -9: what was written must be there
    Kill,
    /// kill -9 on volatile disks: what was synced must be there
    Power,
    /// A file system in a loop device, copied at one instant: what was synced must be there (root only)
    Image,
    /// Nodes in network namespaces, killed, stopped, cut off and filled (root only)
    Cluster,
    /// A proxy that swallows answers while small chunks stream through a bag: each must be handled once
    Swallowed,
}

/// Where counts are kept.
const TRUST: &str = "docs/trust.md";

/// Runs the trials. `Ok(false)`: one of them found a fault.
pub fn run(args: &Args) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let seed = args.seed.unwrap_or_else(|| SystemRandom.next() >> 32);
    if let Some(which) = &args.blind {
        return blind::run(&runtime, which, args.count, seed, args.record.then_some(Path::new(TRUST)));
    }
    let choices = match args.kind {
        Some(kind) => vec![kind],
        None => vec![Choice::Kill, Choice::Power],
    };
    let mut good = true;
    for choice in choices {
        good &= run_kind(&runtime, args, choice, seed)?;
    }
    Ok(good)
}

fn run_kind(runtime: &Runtime, args: &Args, choice: Choice, seed: u64) -> Result<bool> {
    let name = format!("{choice:?}").to_lowercase();
    let table = if choice == Choice::Cluster { "cluster" } else { "trials" };
    let begin = || record::Run::begin(Path::new(TRUST), table, &name, seed, args.count);
    let run = if args.record { Some(begin()?) } else { None };
    let mut again = (args.count, seed);
    let (counts, finding) = match choice {
        Choice::Kill => run_store(runtime, Stop::Kill, args.count, seed)?,
        Choice::Power => run_store(runtime, Stop::Power, args.count, seed)?,
        Choice::Swallowed => run_swallowed(runtime, args.count, seed, args.chunks)?,
        Choice::Image => match impeded("images", image::obstacle())? {
            true => return Ok(true),
            false => run_images(runtime, args.count, seed)?,
        },
        Choice::Cluster => match impeded("clusters", cluster::obstacle())? {
            true => return Ok(true),
            false => {
                let (counts, found) = run_clusters(runtime, args.count, seed)?;
                // Each cluster has its own seed.
                again = found.as_ref().map_or(again, |(seed, _)| (1, *seed));
                (counts, found.map(|(_, finding)| finding))
            }
        },
    };
    if args.json {
        let mut object = json!({
            "kind": name, "seed": seed, "trials": counts.trials, "kills": counts.stops,
            "kills_at_start": counts.stops_at_start, "steps": counts.steps, "compared": counts.compared, "bytes": counts.bytes,
            "sweeps": counts.sweeps, "pauses": counts.pauses, "cuts": counts.cuts, "half_cuts": counts.half_cuts,
            "filled": counts.filled, "repeats": counts.repeats, "finding": finding.as_ref().map(|finding| finding.text.clone()),
        });
        for (what, number) in report::by_kind(finding.as_ref()) {
            object[what] = number.into();
        }
        println!("{object}");
    } else {
        let blows = match choice {
            Choice::Cluster => counts.blows(),
            Choice::Swallowed => format!("{} cuts with swallowed answers, ", counts.half_cuts),
            _ => String::new(),
        };
        let verdict = finding.as_ref().map_or("nothing lost, corrupt, duplicated, resurrected or leaked", |_| "FAILED");
        println!(
            "{name}: {} trials, {} kills ({} while starting), {}{} steps answered, {} names and chunks with {} compared: {verdict}",
            counts.trials,
            counts.stops,
            counts.stops_at_start,
            blows,
            counts.steps,
            counts.compared,
            show_bytes(counts.bytes),
        );
    }
    if let Some(finding) = &finding {
        eprintln!("lab: {name} trial {}: {finding}", counts.trials + 1);
        let chunks = if choice == Choice::Swallowed { format!(" --chunks {}", args.chunks) } else { String::new() };
        eprintln!("repeat: cargo x trials --kind {name} --count {} --seed {}{chunks}", again.0, again.1);
    }
    if let Some(run) = run {
        let mut rows = if choice == Choice::Cluster { counts.of_clusters() } else { counts.of_servers() };
        rows.extend(report::by_kind(finding.as_ref()));
        let mut rows: Vec<(String, u64)> = rows.into_iter().map(|(what, number)| (what.to_string(), number)).collect();
        if choice != Choice::Cluster {
            rows.insert(0, (format!("trials, {name}"), counts.trials));
        }
        run.add(Path::new(TRUST), &rows)?;
    }
    Ok(finding.is_none())
}

/// Whether something is in the way of trials of this kind, which is no fault, except where it must not be.
fn impeded(what: &str, obstacle: Option<String>) -> Result<bool> {
    let Some(obstacle) = obstacle else { return Ok(false) };
    if std::env::var("CI").is_ok_and(|ci| ci == "true") {
        return Err(Error::new(ErrorKind::Unsupported, format!("no {what} can be tried: {obstacle}")));
    }
    eprintln!("lab: no {what} are tried: {obstacle}");
    Ok(true)
}

/// Trials with kills, on one store after another.
fn run_store(runtime: &Runtime, stop: Stop, count: u64, seed: u64) -> Result<(Counts, Option<Finding>)> {
    let mut scratch = scratch(&format!("{stop:?}").to_lowercase())?;
    let launch = Launch { program: server::program()?, disk: "auto", skip: None, data: Vec::new() };
    let mut store = Store::new(scratch.path(), launch, stop, seed);
    let mut counts = Counts::default();
    let finding = run_trials(runtime, &mut store, &mut scratch, count, &mut counts)?;
    Ok((counts, finding))
}

/// Trials with images, half of them on each file system.
fn run_images(runtime: &Runtime, count: u64, seed: u64) -> Result<(Counts, Option<Finding>)> {
    let mut counts = Counts::default();
    let mut left = count;
    for (place, (name, make)) in image::FILE_SYSTEMS.into_iter().enumerate() {
        let mine = left.div_ceil((image::FILE_SYSTEMS.len() - place) as u64);
        left -= mine;
        let mut scratch = scratch(name)?;
        let launch = Launch { program: server::program()?, disk: "auto", skip: None, data: Vec::new() };
        let image = Image::new(scratch.path(), make)?;
        let mut store = Store::in_image(scratch.path(), launch, seed.wrapping_add(place as u64), image);
        let finding = run_trials(runtime, &mut store, &mut scratch, mine, &mut counts)?;
        // Mounts go before the directory that they are in.
        drop(store);
        if finding.is_some() {
            return Ok((counts, finding));
        }
    }
    Ok((counts, None))
}

/// Trials with answers that are swallowed, each with a fresh server.
fn run_swallowed(runtime: &Runtime, count: u64, seed: u64, chunks: u64) -> Result<(Counts, Option<Finding>)> {
    let scratch = scratch("swallowed")?;
    let launch = Launch { program: server::program()?, disk: "auto", skip: None, data: Vec::new() };
    let random = SimRandom::new(seed);
    let mut counts = Counts::default();
    for _ in 0..count {
        match until_signal(runtime, swallowed::trial(&scratch, &launch, &random, chunks))? {
            Ok(more) => counts += more,
            Err(finding) => return Ok((counts, Some(finding))),
        }
    }
    Ok((counts, None))
}

/// Trials of clusters; what was found comes with its seed.
fn run_clusters(runtime: &Runtime, count: u64, seed: u64) -> Result<(Counts, Option<(u64, Finding)>)> {
    let mut counts = Counts::default();
    let finding = until_signal(runtime, cluster::run(count, seed, &mut counts))??;
    Ok((counts, finding))
}

/// Runs trials until one finds something.
fn run_trials(
    runtime: &Runtime,
    store: &mut Store,
    scratch: &mut Scratch,
    count: u64,
    counts: &mut Counts,
) -> Result<Option<Finding>> {
    let terminal = std::io::stderr().is_terminal();
    for number in 1..=count {
        let found: Found<Counts> = until_signal(runtime, store.trial(scratch))?;
        match found {
            Ok(more) => *counts += more,
            Err(finding) => {
                eprintln!("lab: the store is kept in {}", scratch.path().display());
                scratch.keep();
                return Ok(Some(finding));
            }
        }
        if terminal {
            eprint!("\r{number} of {count} trials ");
        }
    }
    if terminal {
        eprintln!();
    }
    // What still runs in the background ends with its client.
    runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    Ok(None)
}

/// Runs a trial to its end. A signal ends it, with everything that was started and mounted.
fn until_signal<'a, T: 'a>(runtime: &Runtime, trial: impl Future<Output = T> + 'a) -> Result<T> {
    let trial: Pin<Box<dyn Future<Output = T> + 'a>> = Box::pin(trial);
    runtime.block_on(async {
        tokio::select! {
            biased;
            signal = os::signal::end() => {
                let text = format!("{} came; the trials were ended", signal?);
                Err(Error::new(ErrorKind::Io, text))
            }
            done = trial => Ok(done),
        }
    })
}
