//! `stormwell device lost`: a device is given up, and what was there is made anew from other replicas.

use super::id_of;
use super::named::one_named;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use clap::Args;
use serde_json::json;

/// Gives up a device that does not come back
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell device lost b:/disk/2

Files with more than one copy (`stormwell policy set --replicas`) get new copies on other devices, from those that are left; how far that is,
`stormwell cluster status` says. Files whose only copy was on the device cannot be read; should it answer again, what is only there is copied off
it. Chunks of bags on it are lost, and nothing waits for it any more: a file whose writer is gone ends without it. It is forgotten when nothing is
left on it that is nowhere else; a disk that is well again after that is added as a new one, with its directory emptied. Should it answer before, it is
emptied by itself and counts again.

Devices that are away for `repair_after`, where the configuration sets it, are given up by themselves, and are waited for all the same: they are never
forgotten. This says that one does not come back.

A device that serves is not given up: `stormwell device rm` empties it without a copy less in between.")]
pub struct Lost {
    /// The directory of the device as `device ls` shows it, in a cluster as NODE:DIRECTORY, or the first digits of its id
    #[arg(value_name = "DEVICE")]
    device: String,
}

impl Lost {
    /// Gives it up.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("device lost").await?;
        let device = one_named(&client, &self.device).await?;
        client.give_up(device.device).await.map_err(|error| error.during(format!("device lost {}", device.place)))?;
        let mut output = Output::open()?;
        if context.json {
            output.json(&json!({ "device": id_of(&device), "directory": device.place, "lost": true }))?;
        } else {
            let line = output.name(&format!(
                "{} is given up; what it had gets new copies where others are left; `stormwell cluster status` says how far that is",
                device.place
            ));
            output.line(&line)?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}
