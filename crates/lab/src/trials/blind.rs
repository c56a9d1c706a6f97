//! `cargo x trials --blind`: each sync of the code is left out in turn, and some trial must notice.

use super::server::{Launch, program, scratch};
use super::store::{Stop, Store};
use crate::record;
use base::error::{Error, ErrorKind, Result};
use os::disk::{SYNCS, Sync};
use std::path::Path;
use tokio::runtime::Runtime;

/// When leaving a sync out was noticed, and by what.
struct Noticed {
    sync: Sync,
    trial: Option<(u64, String)>,
}

/// Leaves out the sync of this name, or each in turn for `all`; at most `count` trials each. `Ok(false)`: one was not noticed.
/// `record` is the document that holds the table.
pub fn run(runtime: &Runtime, which: &str, count: u64, seed: u64, record: Option<&Path>) -> Result<bool> {
    let chosen: Vec<Sync> = SYNCS.into_iter().filter(|sync| which == "all" || which == sync.name).collect();
    if chosen.is_empty() {
        let names = SYNCS.map(|sync| sync.name).join(", ");
        return Err(Error::new(ErrorKind::Invalid, format!("there is no sync `{which}`; the syncs are {names}")));
    }
    let mut all = Vec::new();
    for sync in chosen {
        let noticed = without(runtime, sync, count, seed)?;
        match &noticed.trial {
            Some((trial, text)) => println!("without `{}`: noticed by trial {trial}: {}", sync.name, shortened(text)),
            None => println!("without `{}`: NOT NOTICED by {count} trials (seed {seed})", sync.name),
        }
        all.push(noticed);
    }
    if let Some(path) = record {
        write_table(path, &all)?;
    }
    Ok(all.iter().all(|noticed| noticed.trial.is_some()))
}

fn without(runtime: &Runtime, sync: Sync, count: u64, seed: u64) -> Result<Noticed> {
    let scratch = scratch("blind")?;
    let launch = Launch { program: program()?, disk: "auto", skip: Some(sync.name), data: Vec::new() };
    let mut store = Store::new(scratch.path(), launch, Stop::Power, seed);
    for trial in 1..=count {
        if let Err(finding) = runtime.block_on(store.trial(&scratch)) {
            return Ok(Noticed { sync, trial: Some((trial, finding.to_string())) });
        }
    }
    Ok(Noticed { sync, trial: None })
}

fn shortened(text: &str) -> String {
    let line: String = text.chars().take(240).collect();
    if line.len() < text.len() { line + " …" } else { line }
}

/// Puts the table between `<!-- syncs -->` and `<!-- end -->`.
fn write_table(path: &Path, all: &[Noticed]) -> Result<()> {
    let mut table = "| sync | what it keeps | noticed by trial | as |\n|---|---|---|---|\n".to_string();
    for noticed in all {
        let (trial, kind) = match &noticed.trial {
            Some((trial, text)) => (trial.to_string(), text.split(':').next().unwrap_or_default().to_lowercase()),
            None => ("never".to_string(), String::new()),
        };
        table.push_str(&format!("| {} | {} | {trial} | {kind} |\n", noticed.sync.name, noticed.sync.keeps));
    }
    record::replace(path, "syncs", &table)
}
