//! `cargo x sim`: runs seeds of the simulation, one node and a cluster for each, and reports.

use crate::in_order::in_order;
use crate::record;
use crate::simulate::{self, ACKNOWLEDGED_MIN, FAULTS, FAULTS_MIN, Report, Store};
use base::error::{Error, ErrorKind, Result};
use base::planted::Planted;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Which seeds to run.
#[derive(clap::Args)]
pub struct Args {
    /// How many seeds
    #[arg(long, default_value_t = 40)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only histories of this; without it each seed is one of a node and one of a cluster
    #[arg(long, value_enum)]
    only: Option<Store>,
    /// Play every seed twice and compare the histories; without this the first of each sixteen is
    #[arg(long)]
    twice: bool,
    /// Put faults into the engines, one at a time, and see that each is caught within 200 seeds from each of three on
    #[arg(long)]
    planted: bool,
    /// With --planted, only this fault, by its name in `base::planted`; without, all seeds are played with it, to see what it does
    #[arg(long, value_name = "NAME", value_parser = fault_named)]
    fault: Option<Planted>,
    /// Histories at once; without it one for each processor
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1024))]
    jobs: Option<u64>,
    /// Tell everything that happens
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Add what was checked to docs/trust.md; with --planted, the row of each fault that was tried
    #[arg(long)]
    record: bool,
}

/// One seed of so many is played twice. What depends on chance does not show in every history.
const TWICE_EVERY: u64 = 16;

/// Seeds within which a planted fault has to be caught.
const PLANTED_SEEDS: u64 = 200;

/// The page that keeps count, from the root of the tree.
const TRUST: &str = "docs/trust.md";

/// What all seeds together have done.
#[derive(Default)]
struct Total {
    seeds: u64,
    /// Seeds whose history broke a promise, was another one when it was played again, or was too quiet.
    broken: u64,
    acknowledged: u64,
    milliseconds: u64,
    counts: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
}

impl Total {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.acknowledged += report.acknowledged;
        self.milliseconds += report.length.as_millis() as u64;
        for (what, count) in &report.counts {
            *self.counts.entry(what).or_default() += count;
        }
        for (what, count) in &report.faults {
            *self.faults.entry(what).or_default() += count;
        }
    }

    /// Faults and operations that there should have been and were not.
    fn missing(&self, store: Store) -> Vec<&'static str> {
        let faults = store.troubles().iter().chain(&FAULTS).filter(|name| !self.faults.contains_key(*name));
        let operations = store.operations().into_iter().filter(|name| !self.counts.contains_key(name));
        faults.copied().chain(operations).collect()
    }

    fn rows(&self, store: Store) -> Vec<(String, u64)> {
        let names = store.operations();
        let operations = names.iter().filter_map(|name| self.counts.get(name)).sum();
        let checks = self.counts.iter().filter(|(name, _)| !names.contains(name));
        let mut rows = vec![
            ("seeds".to_string(), self.seeds),
            ("virtual minutes".to_string(), self.milliseconds / 60_000),
            ("calls of clients begun".to_string(), operations),
            ("calls of clients acknowledged".to_string(), self.acknowledged),
        ];
        rows.extend(checks.map(|(name, count)| ((*name).to_string(), *count)));
        rows.push(("seeds that broke a promise".to_string(), self.broken));
        rows.extend(self.faults.iter().map(|(name, count)| (format!("fault: {name}"), *count)));
        rows
    }
}

/// Runs the seeds. `Ok(false)`: one of them found a fault.
pub fn run(args: &Args) -> Result<bool> {
    if let (Some(fault), Some(only)) = (args.fault, args.only)
        && (args.planted && args.record || fault.is_of_cluster())
        && store_with(fault) != only
    {
        let text = format!("{fault:?} is not a fault of a {}; nothing was run; leave --only out", only.name());
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    if args.planted {
        return planted(args);
    }
    if args.record && args.fault.is_some() {
        let text = "histories with a fault put in are not counted; leave --record out, or ask for --planted";
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let mut well = true;
    for store in Store::ALL.into_iter().filter(|store| is_wanted(args, *store)) {
        let begin = || record::Run::begin(Path::new(TRUST), table_of(store), "seeds", args.from, args.seeds);
        let run = if args.record { Some(begin()?) } else { None };
        let mut total = Total::default();
        let (fault, verbose, twice, first) = (args.fault, args.verbose, args.twice, args.from);
        let work = move |seed| {
            let report = simulate::play(store, seed, fault, verbose);
            let asked = (twice || (seed - first).is_multiple_of(TWICE_EVERY)) && report.broken.is_none();
            let again = asked.then(|| simulate::play(store, seed, fault, verbose));
            (report, again)
        };
        in_order(jobs(args), first..first.saturating_add(args.seeds), work, |seed, (report, again)| {
            total.broken += u64::from(!holds(args, store, seed, &report, again.as_ref()));
            total.add(&report);
            ControlFlow::Continue(())
        })?;
        print(args, store, &total);
        if let Some(run) = run {
            run.add(Path::new(TRUST), &total.rows(store))?;
        }
        well &= total.broken == 0;
    }
    Ok(well)
}

/// How many histories are played at once.
fn jobs(args: &Args) -> u64 {
    args.jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |processors| processors.get() as u64))
}

/// The fault of this name.
fn fault_named(name: &str) -> std::result::Result<Planted, String> {
    let names = || Planted::ALL.map(|fault| format!("{fault:?}")).join(", ");
    let named = Planted::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
    named.ok_or_else(|| format!("no fault has this name; there are {}", names()))
}

/// Whether histories of this are asked for. A fault of one node is one in clusters, too, if somebody asks.
fn is_wanted(args: &Args, store: Store) -> bool {
    args.only.or(args.fault.map(store_with)).is_none_or(|wanted| wanted == store)
}

/// Where docs/trust.md counts these histories.
fn table_of(store: Store) -> &'static str {
    match store {
        Store::Node => "simulation",
        Store::Cluster => "simulation of clusters",
    }
}

/// Whether a history broke no promise and is the same when it was played again.
fn holds(args: &Args, store: Store, seed: u64, report: &Report, again: Option<&Report>) -> bool {
    let fault = args.fault.map(|fault| format!(" --fault {fault:?}")).unwrap_or_default();
    let repeat = format!("repeat: cargo x sim --only {} --seeds 1 --from {seed}{fault} --verbose", store.name());
    report.lines.iter().for_each(|line| eprintln!("{line}"));
    if let Some(broken) = &report.broken {
        eprintln!("seed {seed}: a promise was broken: {broken}\n{repeat}");
        return false;
    }
    let fired = report.fired;
    if store == Store::Cluster && (report.acknowledged < ACKNOWLEDGED_MIN || fired < FAULTS_MIN) {
        eprintln!(
            "seed {seed}: only {} calls were acknowledged and {fired} faults fired\n{repeat}",
            report.acknowledged
        );
        return false;
    }
    if let Some(again) = again {
        if again.history != report.history {
            eprintln!("seed {seed} has the history {:016x}, and {:016x} again", report.history, again.history);
            if let Some((one, other)) = report.lines.iter().zip(&again.lines).find(|(one, other)| one != other) {
                eprintln!("first difference:\n- {one}\n+ {other}");
            }
            eprintln!("{repeat} --twice");
            return false;
        }
        if !args.json {
            println!("{} {seed}: history {:016x}, the same when played again", store.name(), report.history);
        }
    }
    true
}

fn print(args: &Args, store: Store, total: &Total) {
    let missing = total.missing(store);
    if args.json {
        let rows: BTreeMap<String, u64> = total.rows(store).into_iter().collect();
        let operations = &total.counts;
        println!(
            "{}",
            serde_json::json!({ "store": store.name(), "counts": rows, "operations": operations, "never": missing })
        );
        return;
    }
    println!("{}:", table_of(store));
    for (what, count) in total.rows(store) {
        println!("{what:<40} {count:>12}");
    }
    if !missing.is_empty() {
        println!("never happened: {}", missing.join(", "));
    }
}

/// The list must not depend on where it begins: each fault is looked for from these seeds on, counted from `--from`.
const PLANTED_STARTS: [u64; 3] = [0, 5_000, 10_000];

/// What a history is of that can notice the fault.
fn store_with(fault: Planted) -> Store {
    if fault.is_of_cluster() { Store::Cluster } else { Store::Node }
}

/// Puts each fault in and looks which seed catches it, from several on.
fn planted(args: &Args) -> Result<bool> {
    if args.record && args.from != 0 {
        let text = "the table of docs/trust.md counts from seed 0; nothing was run; leave --from or --record out";
        return Err(Error::new(ErrorKind::Invalid, text));
    }
    let mut all = true;
    let wanted = |fault: &Planted| match args.fault {
        Some(only) => only == *fault,
        None => is_wanted(args, store_with(*fault)),
    };
    let commit = if args.record { Some(record::commit(Path::new(TRUST))?) } else { None };
    for fault in Planted::ALL.into_iter().filter(wanted) {
        if let Some(test) = fault.unit_test().filter(|_| args.fault.is_none()) {
            if !args.json {
                println!("{fault:?}: no history is played, a unit test notices it: {test}");
            }
            continue;
        }
        let mut seeds = [None; PLANTED_STARTS.len()];
        for (seed, start) in seeds.iter_mut().zip(PLANTED_STARTS) {
            *seed = caught_by(args, fault, args.from.saturating_add(start))?;
        }
        all &= seeds.iter().all(Option::is_some);
        if let Some(commit) = &commit {
            // Each as it is known: the whole table takes long.
            let cell = |seed: Option<u64>| seed.map_or(" none of 200 |".to_string(), |seed| format!(" {seed} |"));
            let row = format!("| {fault:?}: {} | {commit} |{}", fault.says(), seeds.map(cell).concat());
            record::set_row(Path::new(TRUST), "planted", &format!("| {fault:?}:"), &row)?;
        }
    }
    Ok(all)
}

/// The first seed from this one on in which the fault is noticed.
fn caught_by(args: &Args, fault: Planted, start: u64) -> Result<Option<u64>> {
    let (verbose, store) = (args.verbose, args.only.unwrap_or_else(|| store_with(fault)));
    let play = move |seed| simulate::play(store, seed, Some(fault), verbose).broken;
    let mut caught = None;
    in_order(jobs(args), start..start.saturating_add(PLANTED_SEEDS), play, |seed, broken| {
        caught = broken.map(|broken| (seed, broken));
        if caught.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    match &caught {
        _ if args.json => {
            let (seed, broken) = caught.clone().unzip();
            let line =
                serde_json::json!({ "planted": format!("{fault:?}"), "from": start, "seed": seed, "broken": broken });
            println!("{line}");
        }
        Some((seed, broken)) => println!("{fault:?}: caught by seed {seed}: {broken}"),
        None => println!("{fault:?}: not caught within {PLANTED_SEEDS} seeds from {start}"),
    }
    Ok(caught.map(|(seed, _)| seed))
}

#[cfg(test)]
mod tests {
    use super::fault_named;
    use base::planted::Planted;

    /// Each fault is found by its name, and a wrong name is answered with those that there are.
    #[test]
    fn faults_have_names() {
        assert_eq!(fault_named("OpenChunkMoved"), Ok(Planted::OpenChunkMoved));
        let text = fault_named("Nothing").expect_err("there is no such fault");
        assert!(text.contains("AnsweredBeforeSync, ") && text.contains(", JoinerNotToldOfPass"), "{text}");
    }
}
