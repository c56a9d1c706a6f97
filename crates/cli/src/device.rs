//! `stormwell device`: the devices of a store, one by one.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::show;
use base::policy::Class;
use clap::{Args, Subcommand};
use client::Device as Found;
use serde_json::json;

/// Shows the devices of a store and how they are
#[derive(Debug, Args)]
pub struct Device {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Ls(Ls),
}

/// Lists the devices: state, class, used, size, failed operations, directory, trouble
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell device ls

States: `serving`; `out of service` after a failed sync, which no write may follow, reads go on; `missing` if it could not be
opened when the server started. Bytes on a missing device are answered with an error; all others are served.")]
struct Ls {}

impl Device {
    /// Does what was asked for.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        match self.what {
            What::Ls(_) => list(context).await,
        }
    }
}

async fn list(context: &Context) -> Result<Exit> {
    let client = context.connect("device ls").await?;
    let answer = client.devices().await?;
    let mut output = Output::open()?;
    if !context.json {
        output.line(&row(["state", "class", "used", "size", "failures"], "directory"))?;
    }
    for device in &answer.devices {
        let class = Class::from_code(device.class).map_or("unknown", Class::name);
        if context.json {
            output.json(&json!({
                "device": format!("{:032x}", device.device.value()),
                "state": state(device),
                "class": class,
                "used": device.used,
                "size": device.capacity,
                "chunks": device.chunks,
                "failures": device.failures,
                "directory": device.place,
                "trouble": device.trouble,
            }))?;
            continue;
        }
        let (used, size) = (show::size(device.used, true), show::size(device.capacity, true));
        let columns = [state(device), class, &used, &size, &device.failures.to_string()];
        let line = output.name(&row(columns, &device.place));
        output.line(&line)?;
        if !device.trouble.is_empty() {
            let line = output.name(&format!("  {}", device.trouble));
            output.line(&line)?;
        }
    }
    output.flush()?;
    Ok(Exit::Done)
}

fn row([state, class, used, size, failures]: [&str; 5], directory: &str) -> String {
    format!("{state:<14} {class:<7} {used:>10} {size:>10} {failures:>8}  {directory}")
}

/// A word for how it is.
fn state(device: &Found) -> &'static str {
    match (device.missing, device.out_of_service) {
        (true, _) => "missing",
        (false, true) => "out of service",
        (false, false) => "serving",
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, state};

    /// A device that is not there is missing, whatever else is said of it.
    #[test]
    fn states() {
        let found = |missing, out_of_service| Found { missing, out_of_service, ..Found::default() };
        assert_eq!(state(&found(false, false)), "serving");
        assert_eq!(state(&found(false, true)), "out of service");
        assert_eq!(state(&found(true, true)), "missing");
    }
}
