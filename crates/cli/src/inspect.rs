//! `stormwell inspect`: looks at devices whose server is gone or stopped, and gets files and chunks out of them.

mod export;

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::progress::Progress;
use crate::show;
use base::error::{Error, ErrorKind};
use base::id::{ChunkId, DeviceId, Owner};
use base::policy::Class;
use base::unit::{WallTime, show_bytes};
use bytes::Bytes;
use clap::Args;
use node::inspect::{InspectedDevice, Inspection};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Looks at devices without a server: what they hold, whether it is whole, and gets it out
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell inspect ./stormwell-data
  stormwell inspect ./stormwell-data --files
  stormwell inspect /disk/a /disk/b --verify
  stormwell inspect /disk/a /disk/b --export /rescue

Name each directory that was given to `stormwell serve --data`. Files are found by their names if the directory that holds
`meta` is among them; without it only chunks can be listed and exported. Nothing in these directories is changed. A
directory that a server has open is refused. Exit code 6: something is damaged. Exit code 1 of --verify: what was looked at is
whole, but devices of this store were not named, so not all of it was looked at.")]
pub struct Inspect {
    /// Directories of devices
    #[arg(required = true, value_name = "DEVICE_DIR")]
    directories: Vec<PathBuf>,
    /// List the chunks: id, length, sealed or open, generation, owner
    #[arg(long)]
    list: bool,
    /// List the files and directories
    #[arg(long)]
    files: bool,
    /// Read every chunk and compare its checksums
    #[arg(long)]
    verify: bool,
    /// Write files (and the chunks of bags) into a new directory; without metadata, all chunks
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

impl Inspect {
    /// Does what was asked for; without options, shows what is there.
    pub fn run(self, context: &Context) -> Result<Exit> {
        let mut found = Inspection::open(&self.directories, &context.clock, &context.random)?;
        let mut output = Output::open()?;
        if !(self.list || self.files || self.verify || self.export.is_some()) {
            summary(context, &mut found, &mut output)?;
        }
        if self.list {
            list(context, &mut found, &mut output)?;
        }
        if self.files {
            list_files(context, &mut found, &mut output)?;
        }
        output.flush()?;
        let mut exit = Exit::Done;
        if self.verify {
            exit = verify(context, &mut found, &mut output)?;
        }
        if let Some(directory) = &self.export
            && !export::export(context, &mut found, directory, &mut output)?
        {
            exit = Exit::Corrupt;
        }
        output.flush()?;
        let rot: usize = found.devices.iter().map(|device| device.opened.rot.len()).sum();
        Ok(if rot > 0 { Exit::Corrupt } else { exit })
    }
}

/// The metadata store, or why there is nothing to do without it.
fn needs_names() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "none of these directories holds the metadata store (`meta`), so the names of files are not known; name the \
         directory that was first in `stormwell serve --data` too, or use --list and --export for chunks",
    )
}

fn summary(context: &Context, found: &mut Inspection, output: &mut Output) -> Result<()> {
    let mut classes = BTreeMap::new();
    if let Some(names) = &mut found.names {
        classes.extend(names.devices()?);
    }
    for device in &mut found.devices {
        let class = classes.get(&device.opened.id).map_or("unknown", |class| class.name());
        if context.json {
            output.json(&device_object(device, class)?)?;
        } else {
            for line in device_lines(device, class)? {
                let line = output.name(&line);
                output.line(&line)?;
            }
        }
    }
    let Some(names) = &mut found.names else {
        if !context.json {
            output.line("metadata: not in these directories; files have no names without it")?;
        }
        return Ok(());
    };
    let (totals, bags) = (names.totals()?, names.bags()?.len() as u64);
    let missing = missing(&found.devices, classes.keys().copied());
    if context.json {
        return output.json(&json!({
            "kind": "metadata",
            "directory": names.directory.display().to_string(),
            "files": totals.files,
            "directories": totals.directories,
            "bytes": totals.bytes,
            "bags": bags,
            "devices_missing": missing,
        }));
    }
    output.line(&format!(
        "metadata in {}: {} in {}, {}; {}",
        names.directory.display(),
        show::count(totals.files, "file", "files"),
        show::count(totals.directories, "directory", "directories"),
        show_bytes(totals.bytes),
        show::count(bags, "bag", "bags"),
    ))?;
    for id in missing {
        output.line(&format!("device {id} belongs to this store too and was not named"))?;
    }
    Ok(())
}

/// The devices of the store that are not among those that were named.
fn missing(here: &[InspectedDevice], all: impl Iterator<Item = DeviceId>) -> Vec<String> {
    let here: BTreeSet<_> = here.iter().map(|device| device.opened.id).collect();
    all.filter(|id| !here.contains(id)).map(|id| id.to_string()).collect()
}

/// Chunks of a device: (sealed, open, of files, of bags).
fn counts(device: &mut InspectedDevice) -> Result<(u64, u64, u64, u64)> {
    let chunks = device.chunks()?;
    let count =
        |is: &dyn Fn(&node::inspect::ChunkStat) -> bool| chunks.iter().filter(|(_, stat)| is(stat)).count() as u64;
    let sealed = count(&|stat| stat.sealed);
    let of_bags = count(&|stat| matches!(stat.owner, Owner::Bag(_)));
    let all = chunks.len() as u64;
    Ok((sealed, all - sealed, all - of_bags, of_bags))
}

fn device_lines(device: &mut InspectedDevice, class: &str) -> Result<Vec<String>> {
    let (sealed, open, of_files, of_bags) = counts(device)?;
    let (usage, opened) = (&device.usage, &device.opened);
    let files: Vec<String> = device
        .files
        .iter()
        .filter(|(_, count, _)| *count > 0)
        .map(|(kind, count, bytes)| format!("{count} {} ({})", kind.name(), show_bytes(*bytes)))
        .collect();
    let mut lines = vec![
        format!(
            "{}: device {}, class {class}, format version {}",
            device.directory.display(),
            opened.id,
            opened.version
        ),
        format!(
            "  {} used of {}; {} live in {}: {sealed} sealed, {open} open; {of_files} of files, {of_bags} of bags",
            show_bytes(usage.used),
            show_bytes(usage.capacity),
            show_bytes(usage.live),
            show::count(usage.chunks, "chunk", "chunks"),
        ),
        format!("  segments and checkpoints: {}", files.join(", ")),
        format!(
            "  the log behind the newest checkpoint: {}, {} read; {} cut off that nobody was promised",
            show::count(opened.records_replayed, "record", "records"),
            show_bytes(opened.bytes_scanned),
            show::count(opened.torn, "record", "records"),
        ),
    ];
    lines.extend(opened.rot.iter().map(|rot| format!("  DAMAGED: {rot}")));
    Ok(lines)
}

fn device_object(device: &mut InspectedDevice, class: &str) -> Result<Value> {
    let (sealed, open, of_files, of_bags) = counts(device)?;
    let (usage, opened) = (&device.usage, &device.opened);
    let files: Vec<Value> = device
        .files
        .iter()
        .map(|(kind, count, bytes)| json!({ "kind": kind.name(), "count": count, "bytes": bytes }))
        .collect();
    Ok(json!({
        "kind": "device",
        "directory": device.directory.display().to_string(),
        "device": opened.id.to_string(),
        "class": class,
        "format": opened.version,
        "capacity": usage.capacity,
        "used": usage.used,
        "live": usage.live,
        "chunks": usage.chunks,
        "sealed": sealed,
        "open": open,
        "of_files": of_files,
        "of_bags": of_bags,
        "files": files,
        "records_replayed": opened.records_replayed,
        "bytes_scanned": opened.bytes_scanned,
        "torn": opened.torn,
        "damage": opened.rot,
    }))
}

fn list(context: &Context, found: &mut Inspection, output: &mut Output) -> Result<()> {
    for device in &mut found.devices {
        for (chunk, stat) in device.chunks()? {
            let (owner, sealed) = (stat.owner.to_string(), if stat.sealed { "sealed" } else { "open" });
            if context.json {
                output.json(&json!({
                    "kind": "chunk",
                    "device": device.opened.id.to_string(),
                    "chunk": chunk.to_string(),
                    "length": stat.length,
                    "sealed": stat.sealed,
                    "generation": stat.generation.0,
                    "owner": owner,
                    "crc": format!("{:08x}", stat.crc),
                }))?;
            } else {
                let generation = stat.generation;
                output.line(&format!("{chunk} {:>12} {sealed:<6} {generation:>4}  {owner}", stat.length))?;
            }
        }
    }
    Ok(())
}

fn list_files(context: &Context, found: &mut Inspection, output: &mut Output) -> Result<()> {
    let names = found.names.as_mut().ok_or_else(needs_names)?;
    let mut lines = Vec::new();
    names.walk(&mut |_, path, attributes| {
        lines.push((path.to_string(), attributes.clone()));
        Ok(())
    })?;
    for (path, attributes) in lines {
        if context.json {
            output.json(&json!({
                "kind": if attributes.directory { "directory" } else { "file" },
                "path": path,
                "length": attributes.length,
                "mode": format!("{:o}", attributes.mode),
                "modified_ms": attributes.modified_ms,
                "open": attributes.open,
            }))?;
        } else {
            let slash = if attributes.directory { "/" } else { "" };
            let path = output.name(&path);
            output.line(&format!(
                "{} {:>13}  {}  {path}{slash}",
                show::mode(attributes.directory, attributes.mode),
                attributes.length,
                show::date(WallTime(attributes.modified_ms)),
            ))?;
        }
    }
    Ok(())
}

/// Reads every chunk and says what is damaged, and what could not be looked at.
fn verify(context: &Context, found: &mut Inspection, output: &mut Output) -> Result<Exit> {
    let (progress, ticker) = Progress::start(context, "verify", "chunk");
    let mut all = Vec::new();
    for device in &mut found.devices {
        let chunks = device.chunks()?;
        let bytes = chunks.iter().map(|(_, stat)| stat.length).sum();
        progress.found(chunks.len() as u64, bytes);
        all.push(chunks);
    }
    progress.found_all();
    let mut rotten = BTreeSet::new();
    let mut good = 0_u64;
    for (device, chunks) in found.devices.iter_mut().zip(all) {
        let id = device.opened.id;
        for (chunk, stat) in chunks {
            let mut counted = |_: u64, bytes: Bytes| {
                progress.copied_bytes(bytes.len() as u64);
                Ok(())
            };
            let (damage, released) = device.read_chunk(chunk, &stat, &mut counted)?;
            progress.copied(1);
            if damage.is_empty() {
                good += 1;
                continue;
            }
            rotten.insert((id, chunk));
            let owner = stat.owner.to_string();
            for bad in damage {
                if context.json {
                    output.json(&json!({
                        "kind": "damage", "device": id.to_string(), "chunk": chunk.to_string(), "owner": owner,
                        "start": bad.start, "end": bad.end, "released": released, "why": bad.why,
                    }))?;
                } else {
                    output
                        .line(&format!("DAMAGED {chunk} of {owner}, bytes {}..{}: {}", bad.start, bad.end, bad.why))?;
                }
            }
        }
    }
    drop(ticker);
    progress.summary();
    let files = if rotten.is_empty() { Vec::new() } else { files_in(found, &rotten)? };
    let missing = not_named(found)?;
    if context.json {
        output.json(&json!({
            "kind": "verified", "good": good, "damaged": rotten.len(), "files_touched": files,
            "devices_missing": missing,
        }))?;
    } else {
        for file in &files {
            let file = output.name(file);
            output.line(&format!("has bytes in a damaged chunk: {file}"))?;
        }
        output.line(&format!(
            "{} good, {} damaged",
            show::count(good, "chunk", "chunks"),
            show::thousands(rotten.len() as u64)
        ))?;
    }
    Ok(match (rotten.is_empty(), missing.is_empty()) {
        (false, _) => Exit::Corrupt,
        (true, false) => Exit::Failed,
        (true, true) => Exit::Done,
    })
}

/// Says which devices of the store were not looked at, as far as that is known.
fn not_named(found: &mut Inspection) -> Result<Vec<String>> {
    let Some(names) = &mut found.names else {
        say("stormwell: whether the store has other devices is not known without the directory that holds `meta`");
        return Ok(Vec::new());
    };
    // What was in memory went with its node.
    let on_disks = names.devices()?.into_iter().filter(|(_, class)| *class != Class::Memory);
    let missing = missing(&found.devices, on_disks.map(|(id, _)| id));
    for id in &missing {
        say(&format!("stormwell: device {id} belongs to this store too and was not named: nothing on it was compared"));
    }
    Ok(missing)
}

/// The files that have bytes in one of these chunks.
fn files_in(found: &mut Inspection, chunks: &BTreeSet<(DeviceId, ChunkId)>) -> Result<Vec<String>> {
    let Some(names) = &mut found.names else {
        say("stormwell: which files these chunks belong to is not known without the directory that holds `meta`");
        return Ok(Vec::new());
    };
    let mut files = Vec::new();
    names.walk(&mut |names, path, attributes| {
        if !attributes.directory {
            let parts = names.chunks_of(path)?;
            if parts.iter().any(|(device, chunk, _, _)| chunks.contains(&(*device, *chunk))) {
                files.push(path.to_string());
            }
        }
        Ok(())
    })?;
    Ok(files)
}
