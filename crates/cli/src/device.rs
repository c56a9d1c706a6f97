//! `stormwell device`: the devices of a store, one by one.

mod lost;
mod named;
mod rm;
mod scrub;

use crate::context::Context;
use crate::emptied::Part;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::show;
use base::policy::Class;
use base::unit::{WallTime, show_bytes};
use clap::{Args, Subcommand};
use client::{Device as Found, ScrubState};
use serde_json::{Value, json};
use std::time::Duration;

/// Shows the devices of a store, checks their bytes, removes one
#[derive(Debug, Args)]
pub struct Device {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Ls(Ls),
    Scrub(scrub::Scrub),
    Rm(rm::Rm),
    Lost(lost::Lost),
}

/// Lists the devices: state, class, used, size, failed operations, node, directory, trouble
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell device ls

States: `serving`; `draining` after `device rm` or `node drain`, while it is being emptied, with how far that is below it; `out of service` after a failed sync or a second failed write, which no other may follow, reads go on; `lost` after `device lost`, until it answers and nothing is left there that is nowhere else, or by itself when it was away for `repair_after`, until it answers; `missing` if it could not be
opened when the server started. Bytes on a missing device are answered with an error; all others are served.

In a cluster a device is shown, and named, as NODE:DIRECTORY: each machine may have a directory of that name.")]
struct Ls {}

impl Device {
    /// Does what was asked for.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        match self.what {
            What::Ls(_) => list(context).await,
            What::Scrub(scrub) => scrub.run(context).await,
            What::Rm(rm) => rm.run(context).await,
            What::Lost(lost) => lost.run(context).await,
        }
    }
}

async fn list(context: &Context) -> Result<Exit> {
    let client = context.connect("device ls").await?;
    let devices = client.devices_and_hosts().await?;
    let mut output = Output::open()?;
    if !context.json {
        output.line(&row(["state", "class", "used", "size", "failures", "node"], "directory"))?;
    }
    for (device, host) in &devices {
        let node = host.as_ref().map_or("", |host| &host.name);
        let class = Class::from_code(device.class).map_or("unknown", Class::name);
        let part = Part::of(&[device], context.clock.wall());
        if context.json {
            output.json(&json!({
                "device": format!("{:032x}", device.device.value()),
                "state": state(device),
                "class": class,
                "used": device.used,
                "size": device.capacity,
                "chunks": device.chunks,
                "failures": device.failures,
                "node": node,
                "directory": device.place,
                "trouble": device.trouble,
                "away_ms": device.away_ms,
                "drain": drain(device, part.as_ref()),
                "scrub": device.scrub.as_ref().map(|state| json!({
                    "running": state.running,
                    "began_ms": state.began_ms,
                    "ended_ms": state.ended_ms,
                    "bytes": state.bytes,
                    "damaged_ranges": state.damaged_ranges,
                    "damaged_bytes": state.damaged_bytes,
                })),
            }))?;
            continue;
        }
        let (used, size) = (show::size(device.used, true), show::size(device.capacity, true));
        let columns = [state(device), class, &used, &size, &device.failures.to_string(), node];
        let line = output.name(&row(columns, &device.place));
        output.line(&line)?;
        if !device.trouble.is_empty() {
            let line = output.name(&format!("  {}", device.trouble));
            output.line(&line)?;
        }
        if let Some(away) = away(device) {
            output.line(&format!("  {away}"))?;
        }
        for line in part.iter().flat_map(Part::lines) {
            let line = output.name(&format!("  {line}"));
            output.line(&line)?;
        }
        if let Some(state) = &device.scrub {
            output.line(&format!("  {}", scrub_sentence(state)))?;
        }
    }
    output.flush()?;
    Ok(Exit::Done)
}

/// How far its drain is, for programs.
fn drain(device: &Found, part: Option<&Part>) -> Option<Value> {
    let mut drain = part?.object();
    drain["began_ms"] = device.drain.as_ref()?.began_ms.into();
    Some(drain)
}

fn row([state, class, used, size, failures, node]: [&str; 6], directory: &str) -> String {
    format!("{state:<14} {class:<7} {used:>10} {size:>10} {failures:>8}  {node:<10} {directory}")
}

/// How the last scrub went, or goes.
fn scrub_sentence(state: &ScrubState) -> String {
    let when = match (state.running, state.ended_ms) {
        (true, _) => "is being scrubbed".to_string(),
        (false, ended) => format!("scrubbed {}", show::date(WallTime(ended))),
    };
    let found = match state.damaged_ranges {
        0 => "no damage".to_string(),
        ranges => format!(
            "{} damaged with {} in them; `stormwell device scrub` names the files",
            show::count(ranges, "range is", "ranges are"),
            show_bytes(state.damaged_bytes)
        ),
    };
    format!("{when}: {} in {} compared, {found}", show_bytes(state.bytes), show::count(state.chunks, "chunk", "chunks"))
}

/// A device's id as it is shown.
fn id_of(device: &Found) -> String {
    format!("{:032x}", device.device.value())
}

/// How long it has been away, for people; none: it is not.
pub fn away(device: &Found) -> Option<String> {
    let how = if device.out_of_service && !device.missing { "failed" } else { "away" };
    (device.away_ms > 0).then(|| format!("{how} for {}", show::duration(Duration::from_millis(device.away_ms))))
}

/// A word for how it is.
fn state(device: &Found) -> &'static str {
    if device.lost {
        return "lost";
    }
    match (device.missing, device.drain.is_some(), device.out_of_service) {
        (true, _, _) => "missing",
        (false, true, _) => "draining",
        (false, false, true) => "out of service",
        (false, false, false) => "serving",
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, away, state};

    /// A device that is not there is missing, whatever else is said of it.
    #[test]
    fn states() {
        let found = |missing, out_of_service| Found { missing, out_of_service, ..Found::default() };
        assert_eq!(state(&found(false, false)), "serving");
        assert_eq!(state(&found(false, true)), "out of service");
        assert_eq!(state(&found(true, true)), "missing");
        assert_eq!(state(&Found { lost: true, ..found(true, true) }), "lost");
        assert_eq!(away(&found(true, false)), None);
        let since = |device| Found { away_ms: 90_000, ..device };
        assert!(away(&since(found(true, false))).is_some_and(|told| told.starts_with("away for ")));
        assert!(away(&since(found(false, true))).is_some_and(|told| told.starts_with("failed for ")));
    }
}
