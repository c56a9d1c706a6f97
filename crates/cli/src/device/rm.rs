//! `stormwell device rm`: the node empties a device and forgets it; this command follows it.

use super::{id_of, named};
use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use clap::Args;
use client::{Client, Device, DrainState};
use serde_json::json;
use std::time::Duration;

/// Moves everything on a device to the node's other devices and removes it from the store
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell device rm /disk/2

Reads, writes, pushes and pulls go on. Nothing new is placed on the device from the moment on that this command is answered, also
after a restart of the node. Files move as they are, one chunk after another. Chunks of bags are not moved: the device serves them
until consumers have handled them, and the command says which bags it waits for; a bag that retains its chunks is waited for until
it is removed. Chunks with damage cannot be moved either; `stormwell device scrub` names their files.

Interrupted, the command leaves the drain going on in the node: `stormwell device ls` shows it, and running this command again
follows it. If the other devices have too little room, nothing is moved. A device moves to others of its class if there are any.
The device whose directory holds the store's metadata (`meta`) cannot be removed.

At the end the device is no longer listed. Start the node without its `--data` from then on; its directory may be deleted.")]
pub struct Rm {
    /// The directory of the device as `device ls` shows it, or the first digits of its id
    #[arg(value_name = "DEVICE")]
    device: String,
}

/// Between two looks at how far the node is.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Rm {
    /// Begins, follows, tells.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        if self.device == "all" {
            let text = "a store cannot do without all of its devices; nothing was done; name one device";
            return Err(Error::new(ErrorKind::Invalid, text).into());
        }
        let client = context.connect("device rm").await?;
        let [device] = &named(&client, &self.device).await?[..] else { unreachable!("one name is one device") };
        let (progress, ticker) = Progress::start(context, "rm", "chunk");
        client.drain(device.device).await.map_err(|error| error.during(format!("device rm {}", device.place)))?;
        let moved = follow(context, &client, device, &progress).await?;
        drop(ticker);
        progress.summary();
        let mut output = Output::open()?;
        if context.json {
            output.json(&json!({
                "device": id_of(device),
                "directory": device.place,
                "removed": true,
                "chunks": moved.chunks,
                "bytes": moved.bytes,
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

/// Looks how far the drain is until the device is gone. What was moved, as last seen.
async fn follow(context: &Context, client: &Client, device: &Device, progress: &Progress) -> Result<DrainState> {
    let (mut last, mut first) = (DrainState::default(), true);
    loop {
        let now = client.devices().await?.devices;
        let Some(found) = now.into_iter().find(|other| other.device == device.device) else {
            // What was moved between the last look and the end.
            progress.copied(device.chunks.saturating_sub(last.chunks));
            progress.copied_bytes(device.live.saturating_sub(last.bytes));
            return Ok(DrainState {
                chunks: last.chunks.max(device.chunks),
                bytes: last.bytes.max(device.live),
                ..last
            });
        };
        let state = found.drain.ok_or_else(|| {
            let text = format!("{} is in use again; nothing is lost; look at `stormwell device ls`", device.place);
            Error::new(ErrorKind::Stale, text)
        })?;
        if first {
            progress.found(found.chunks.saturating_add(state.chunks), found.live.saturating_add(state.bytes));
            progress.found_all();
            first = false;
        }
        progress.copied(state.chunks.saturating_sub(last.chunks));
        progress.copied_bytes(state.bytes.saturating_sub(last.bytes));
        if state.waits != last.waits && !state.waits.is_empty() && !context.quiet {
            say(&format!("rm: waits for {}", state.waits));
        }
        last = state;
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
