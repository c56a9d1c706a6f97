//! `stormwell device scrub`: the node reads everything on a device and compares checksums; this command follows it and tells
//! what was found.

use super::id_of;
use super::named::named;
use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use base::unit::{BadSize, parse_bytes};
use clap::Args;
use client::{Client, DamagedRange, Device, ScrubState};
use serde_json::json;
use std::time::Duration;

/// Reads every live byte of a device in the background, compares checksums, and names the files with damage
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell device scrub all
  stormwell device scrub /disk/2 --rate 200M

The node reads, at a bounded rate and behind the reads and writes of others; this command shows how far it is. Interrupted, it
leaves the scrub going on: `stormwell device ls` shows how the last one of each device went, and running this command again
follows it. Exit code 1: something is damaged, or `all` leaves out a device because it is missing. Damaged bytes are not served; put
these files again from where they came from.")]
pub struct Scrub {
    /// The directory of a device as `device ls` shows it, in a cluster as NODE:DIRECTORY, the first digits of its id, or `all`
    #[arg(value_name = "DEVICE|all")]
    device: String,
    /// Bytes a second that are read at most on each device: 64M if nothing is said
    #[arg(long, value_name = "BYTES", value_parser = rate)]
    rate: Option<u64>,
}

/// Between two looks at how far the node is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn rate(text: &str) -> std::result::Result<u64, BadSize> {
    parse_bytes(text)
}

impl Scrub {
    /// Begins, follows, tells.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("device scrub").await?;
        let devices = named(&client, &self.device).await?;
        let (progress, ticker) = Progress::start(context, "scrub", "chunk");
        for device in &devices {
            progress.found(device.chunks, device.live);
            client.scrub(device.device, self.rate.unwrap_or(0)).await.map_err(|error| error.during(&device.place))?;
        }
        progress.found_all();
        let states = follow(&client, &devices, &progress).await?;
        drop(ticker);
        progress.summary();
        let mut output = Output::open()?;
        let mut failed = self.device == "all" && leaves_out(&client).await?;
        for (device, state) in devices.iter().zip(states) {
            failed |= state.damaged_ranges > 0;
            tell(context, &client, (device, &state), &mut output).await?;
        }
        output.flush()?;
        Ok(if failed { Exit::Failed } else { Exit::Done })
    }
}

/// Says which devices could not be scrubbed because they are missing; whether there are any.
async fn leaves_out(client: &Client) -> Result<bool> {
    let devices = client.devices().await?.devices;
    let missing = || devices.iter().filter(|device| device.missing);
    for device in missing() {
        say(&format!("stormwell: {} is missing: nothing on it was compared", device.place));
    }
    Ok(missing().next().is_some())
}

/// Looks how far the scrubs of these devices are until all are over, at the node of each: what others know of it may be of before.
async fn follow(client: &Client, devices: &[Device], progress: &Progress) -> Result<Vec<ScrubState>> {
    let mut before = (0, 0);
    loop {
        let mut states = Vec::with_capacity(devices.len());
        for device in devices {
            let state = client.scrubbed(device.device).await.map_err(|error| error.during(&device.place))?;
            let state = state.ok_or_else(|| {
                let text = format!(
                    "the scrub of {} was cut off: the node was started anew or the device removed; no data is at risk; scrub it again",
                    device.place
                );
                Error::new(ErrorKind::Unreachable, text)
            })?;
            states.push(state);
        }
        let sum = |part: fn(&ScrubState) -> u64| states.iter().map(part).fold(0, u64::saturating_add);
        let (chunks, bytes) = (sum(|state| state.chunks), sum(|state| state.bytes));
        progress.copied(chunks.saturating_sub(before.0));
        progress.copied_bytes(bytes.saturating_sub(before.1));
        before = (chunks, bytes);
        if states.iter().all(|state| !state.running) {
            return Ok(states);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// One line for each damaged range and name, and one for the device.
async fn tell(
    context: &Context,
    client: &Client,
    (device, state): (&Device, &ScrubState),
    output: &mut Output,
) -> Result<()> {
    let damage = client.damage(device.device).await?;
    for range in &damage.ranges {
        for (what, path, (start, end)) in places(range) {
            if context.json {
                output.json(&json!({
                    "device": id_of(device),
                    "place": device.place,
                    "chunk": format!("{:032x}", range.chunk.value()),
                    "chunk_start": range.start,
                    "chunk_end": range.end,
                    "unreadable": range.unreadable,
                    what: path,
                    "start": start,
                    "end": end,
                }))?;
                continue;
            }
            let why = if range.unreadable { "cannot be read" } else { "do not match their checksum" };
            let line = match what {
                "path" => format!("{path}: bytes {start} to {end} {why}"),
                "bag" => format!("bag {path}: bytes {start} to {end} of chunk {:032x} {why}", range.chunk.value()),
                _ => format!("{path}: bytes {start} to {end} {why}; no file needs them"),
            };
            let line = output.name(&line);
            output.line(&line)?;
        }
    }
    if context.json {
        output.json(&json!({
            "device": id_of(device),
            "place": device.place,
            "chunks": state.chunks,
            "bytes": state.bytes,
            "damaged_ranges": state.damaged_ranges,
            "damaged_bytes": state.damaged_bytes,
            "not_listed": damage.not_listed,
        }))?;
        return Ok(());
    }
    let line = output.name(&format!("{}: {}", device.place, super::scrub_sentence(state)));
    output.line(&line)?;
    Ok(())
}

/// What lies in a damaged range: the kind of name, the name, and which bytes of it.
fn places(range: &DamagedRange) -> Vec<(&'static str, String, (u64, u64))> {
    let whole = (range.start, range.end);
    if !range.bag.is_empty() {
        return vec![("bag", range.bag.clone(), whole)];
    }
    if range.pieces.is_empty() {
        return vec![("nothing", format!("chunk {:032x}", range.chunk.value()), whole)];
    }
    range.pieces.iter().map(|piece| ("path", piece.path.clone(), (piece.start, piece.end))).collect()
}
