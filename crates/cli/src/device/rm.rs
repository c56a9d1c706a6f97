//! `stormwell device rm`: the node empties a device and forgets it; this command follows it.

use super::id_of;
use super::named::named;
use crate::context::Context;
use crate::emptied::Emptied;
use crate::exit::{Exit, Fault, Result, say};
use crate::output::Output;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use clap::Args;
use client::{Client, Device};
use serde_json::json;
use std::time::Duration;

/// Moves everything on a device to the node's other devices and removes it from the store
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell device rm /disk/2

Reads, writes, pushes and pulls go on. Nothing new is placed on the device from the moment on that this command is answered, also
after a restart of the node. Files move as they are, a few chunks at once. Chunks of bags are not moved: the device serves them
until consumers have handled them, and the command says which bags it waits for; a bag that retains its chunks is waited for until
it is removed. Chunks with damage cannot be moved either; `stormwell device scrub` names their files.

Interrupted, the command leaves the drain going on in the node: `stormwell device ls` shows it, and running this command again
follows it. If the other devices have too little room, nothing is moved. A device moves to others of its class if there are any.
The device whose directory holds the store's metadata (`meta`) cannot be removed.

At the end the device is no longer listed. Start the node without its `--data` from then on; its directory may be deleted.")]
pub struct Rm {
    /// The directory of the device as `device ls` shows it, in a cluster as NODE:DIRECTORY, or the first digits of its id
    #[arg(value_name = "DEVICE")]
    device: String,
}

/// Between two looks at how far the node is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Digits of a whole id, as `device ls --json` shows it.
const ID_DIGITS: usize = 32;

impl Rm {
    /// Begins, follows, tells.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        if self.device == "all" {
            let text = "a store cannot do without all of its devices; nothing was done; name one device";
            return Err(Error::new(ErrorKind::Invalid, text).into());
        }
        let client = context.connect("device rm").await?;
        let found = match named(&client, &self.device).await {
            Err(Fault::Error(error)) if error.kind() == ErrorKind::NotFound => {
                return removed_before(context, &client, &self.device, error).await;
            }
            found => found?,
        };
        let [device] = &found[..] else { unreachable!("one name is one device") };
        let (progress, ticker) = Progress::start(context, "rm", "chunk");
        client.drain(device.device).await.map_err(|error| error.during(format!("device rm {}", device.place)))?;
        let (chunks, bytes) = follow(context, &client, device, &progress).await?;
        drop(ticker);
        progress.summary();
        let mut output = Output::open()?;
        if context.json {
            output.json(&json!({
                "device": id_of(device),
                "directory": device.place,
                "removed": true,
                "chunks": chunks,
                "bytes": bytes,
            }))?;
        } else {
            let line = output.name(&format!(
                "{} is empty and removed; start the node without it from now on; its directory may be deleted",
                device.place
            ));
            output.line(&line)?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}

/// The store has no device of this name. If that is the whole id of one that was emptied and removed, says so: the store knows of these by
/// their ids alone.
async fn removed_before(context: &Context, client: &Client, name: &str, error: Error) -> Result<Exit> {
    let id = if name.len() == ID_DIGITS { u128::from_str_radix(name, 16).ok() } else { None };
    match id {
        Some(id) if client.drain(id.into()).await.is_ok() => (),
        _ => return Err(error.into()),
    }
    let mut output = Output::open()?;
    if context.json {
        output.json(&json!({ "device": name, "removed": true, "chunks": 0, "bytes": 0 }))?;
    } else {
        output.line(&format!("device {name} is empty and removed already; its directory may be deleted"))?;
    }
    output.flush()?;
    Ok(Exit::Done)
}

/// Looks how far the drain is until the device is gone. Chunks and bytes that were moved meanwhile.
async fn follow(context: &Context, client: &Client, device: &Device, progress: &Progress) -> Result<(u64, u64)> {
    let (mut emptied, mut told) = (Emptied::default(), String::new());
    loop {
        let now = client.devices().await?.devices;
        let Some(found) = now.iter().find(|other| other.device == device.device) else {
            if emptied.count() == 0 {
                // It was over before it was seen.
                emptied.look(&[device], progress);
            }
            emptied.look(&[], progress);
            return Ok(emptied.moved());
        };
        let Some(state) = &found.drain else {
            let text = format!("{} is in use again; nothing is lost; look at `stormwell device ls`", device.place);
            return Err(Error::new(ErrorKind::Stale, text).into());
        };
        emptied.look(&[found], progress);
        if state.waits != told && !state.waits.is_empty() && !context.quiet {
            say(&format!("rm: waits for {}", state.waits));
        }
        told = state.waits.clone();
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
