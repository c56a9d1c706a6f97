//! `cargo x sim`: runs seeds of the simulation, one node and a cluster for each, and reports.

use crate::record;
use crate::simulate::{self, ACKNOWLEDGED_MIN, FAULTS, FAULTS_MIN, Report, Store};
use base::error::Result;
use base::planted::Planted;
use std::collections::BTreeMap;
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
    /// Play every seed twice and compare the histories; without this only the first is
    #[arg(long)]
    twice: bool,
    /// Put faults into the engines, one at a time, and see that each is caught within 200 seeds from each of three on
    #[arg(long)]
    planted: bool,
    /// Tell everything that happens
    #[arg(long)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Add what was checked to docs/trust.md
    #[arg(long)]
    record: bool,
}

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
            ("operations of clients".to_string(), operations),
            ("of them acknowledged".to_string(), self.acknowledged),
        ];
        rows.extend(checks.map(|(name, count)| ((*name).to_string(), *count)));
        rows.push(("seeds that broke a promise".to_string(), self.broken));
        rows.extend(self.faults.iter().map(|(name, count)| (format!("fault: {name}"), *count)));
        rows
    }
}

/// Runs the seeds. `Ok(false)`: one of them found a fault.
pub fn run(args: &Args) -> Result<bool> {
    if args.planted {
        return planted(args);
    }
    let mut well = true;
    for store in Store::ALL.into_iter().filter(|store| args.only.is_none_or(|only| only == *store)) {
        let mut total = Total::default();
        for seed in args.from..args.from.saturating_add(args.seeds) {
            let report = simulate::play(store, seed, None, args.verbose);
            total.broken += u64::from(!holds(args, store, seed, &report));
            total.add(&report);
        }
        print(args, store, &total);
        if args.record {
            record::add(Path::new(TRUST), table_of(store), &total.rows(store))?;
        }
        well &= total.broken == 0;
    }
    Ok(well)
}

/// Where docs/trust.md counts these histories.
fn table_of(store: Store) -> &'static str {
    match store {
        Store::Node => "simulation",
        Store::Cluster => "simulation of clusters",
    }
}

/// Whether a history broke no promise and is the same when it is played again.
fn holds(args: &Args, store: Store, seed: u64, report: &Report) -> bool {
    let repeat = format!("repeat: cargo x sim --only {} --seeds 1 --from {seed} --verbose", store.name());
    report.lines.iter().for_each(|line| eprintln!("{line}"));
    if let Some(broken) = &report.broken {
        eprintln!("seed {seed}: a promise was broken: {broken}\n{repeat}");
        return false;
    }
    let fired: u64 = report.faults.values().sum();
    if store == Store::Cluster && (report.acknowledged < ACKNOWLEDGED_MIN || fired < FAULTS_MIN) {
        eprintln!(
            "seed {seed}: only {} calls were acknowledged and {fired} faults fired\n{repeat}",
            report.acknowledged
        );
        return false;
    }
    if args.twice || seed == args.from {
        let again = simulate::play(store, seed, None, args.verbose);
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
    let mut all = true;
    let starts = PLANTED_STARTS.map(|start| args.from.saturating_add(start));
    let mut table =
        format!("| planted fault (`base::planted`) |{}", starts.map(|start| format!(" from {start} |")).concat());
    table.push_str("\n|---|---|---|---|\n");
    let wanted = |fault: &Planted| args.only.is_none_or(|only| only == store_with(*fault));
    for fault in Planted::ALL.into_iter().filter(wanted) {
        let store = store_with(fault);
        let seeds = starts.map(|start| {
            let mut tried = (start..start.saturating_add(PLANTED_SEEDS)).map(|seed| (seed, simulate::play(store, seed, Some(fault), args.verbose)));
            let caught = tried.find_map(|(seed, report)| Some((seed, report.broken?)));
            all &= caught.is_some();
            match &caught {
                _ if args.json => {
                    let (seed, broken) = caught.clone().unzip();
                    let line = serde_json::json!({ "planted": format!("{fault:?}"), "from": start, "seed": seed, "broken": broken });
                    println!("{line}");
                }
                Some((seed, broken)) => println!("{fault:?}: caught by seed {seed}: {broken}"),
                None => println!("{fault:?}: not caught within {PLANTED_SEEDS} seeds from {start}"),
            }
            caught.map(|(seed, _)| seed)
        });
        let cell = |seed: Option<u64>| seed.map_or(" none of 200 |".to_string(), |seed| format!(" {seed} |"));
        table.push_str(&format!("| {fault:?}: {} |{}\n", fault.says(), seeds.map(cell).concat()));
    }
    if args.record {
        record::replace(Path::new(TRUST), "planted", &table)?;
    }
    Ok(all)
}
