//! `stormwell policy`: wishes for the bytes under a file or directory.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::path;
use base::error::{Error, ErrorKind};
use base::policy::{Class, Compression, Policy as Wishes};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// Sets and shows wishes for the bytes under a directory: on which tier, with how many copies, how compressed
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Policy {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Sets the wishes of a file or directory; new bytes below follow them, and old ones the number of copies
    #[command(after_help = "Examples:
  stormwell policy set /archive --tier hdd --replicas 3 --least 2
  stormwell policy set /logs --compression zstd
  stormwell policy set /archive --inherit

Files of more than 1 MiB, and those that are written piece by piece, are compressed in pieces of up to 1 MiB by
who writes them; what gets no smaller, and pieces under 64 KiB, are stored as they are. `stormwell df` shows what
is stored (live).

Wishes that are not named stay as they are; what has no wish inherits it from the directory above. To take one back: --inherit
takes all back, then set the others again.

With --replicas N a file is acknowledged when N disks have it, on other nodes where there are some; what they lack is made within seconds once it
is closed. What was written before follows by itself: it gets copies that it lacks; those that are too many stay. A directory or file below with
a number of its own keeps that. A store that three nodes or more keep begins with 3 for all of it, and with --least 2: nothing is
written there that one disk alone would have.")]
    Set {
        /// The file or directory
        path: String,
        /// memory, nvm, ssd, hdd or bulk
        #[arg(long, value_name = "CLASS", value_parser = class)]
        tier: Option<Class>,
        /// How many copies of each byte there shall be, 1 to 16
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
        replicas: Option<u32>,
        /// With how many of them a file is begun at the least: while there are places for fewer, nothing is written
        #[arg(long, value_name = "M", value_parser = clap::value_parser!(u32).range(1..=16))]
        least: Option<u32>,
        /// none, lz4 (quick) or zstd (tighter)
        #[arg(long, value_name = "HOW", value_parser = compression)]
        compression: Option<Compression>,
        /// Have no wishes of its own
        #[arg(long, conflicts_with_all = ["tier", "replicas", "least", "compression"])]
        inherit: bool,
    },
    /// Shows the wishes of a file or directory, and those in force there
    #[command(after_help = "Example:\n  stormwell policy get /archive/2025")]
    Get {
        /// The file or directory
        path: String,
    },
}

fn class(text: &str) -> std::result::Result<Class, String> {
    Class::from_name(text).ok_or_else(|| "it is one of memory, nvm, ssd, hdd, bulk".to_string())
}

fn compression(text: &str) -> std::result::Result<Compression, String> {
    Compression::from_name(text).ok_or_else(|| "it is one of none, lz4, zstd".to_string())
}

fn object(wishes: Wishes) -> Value {
    json!({
        "tier": wishes.tier.map(Class::name),
        "replicas": wishes.replicas,
        "least": wishes.least,
        "compression": wishes.compression.map(Compression::name),
    })
}

fn line(wishes: Wishes, otherwise: [&'static str; 3]) -> String {
    let tier = wishes.tier.map_or(otherwise[0], Class::name);
    let replicas = wishes.replicas.map_or(otherwise[1].to_string(), |replicas| replicas.to_string());
    let least = wishes.least.map_or(String::new(), |least| format!(", least {least}"));
    let compression = wishes.compression.map_or(otherwise[2], Compression::name);
    format!("tier {tier}, replicas {replicas}{least}, compression {compression}")
}

impl Policy {
    /// Does it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("policy").await?;
        match self.command {
            Command::Set { path, tier, replicas, least, compression, inherit } => {
                let path = path::parse(&path)?;
                let wishes = Wishes { tier, replicas, least, compression };
                if wishes == Wishes::default() && !inherit {
                    let text = "no wish is named; use --tier, --replicas, --least, --compression or --inherit";
                    return Err(Error::new(ErrorKind::Invalid, text).into());
                }
                // The store does not compare before it sets: of two that are set in the same moment the later may undo the other.
                let kept = if inherit { Wishes::default() } else { client.get_policy(&path).await?.0 };
                let wishes = Wishes {
                    tier: tier.or(kept.tier),
                    replicas: replicas.or(kept.replicas),
                    // No more of them can be wanted at the least than are wanted.
                    least: least.or(kept.least.map(|least| least.min(replicas.unwrap_or(least)))),
                    compression: compression.or(kept.compression),
                };
                client.set_policy(&path, wishes).await?;
                let devices = client.devices().await?.devices;
                if let Some(tier) = tier
                    && !devices.iter().any(|device| device.class == tier.code())
                    && !context.quiet
                {
                    let name = tier.name();
                    say(&format!("no device of class {name} is served: writes below {path} are refused until one is"));
                }
                if let Some(replicas) = replicas
                    && devices.len() < replicas as usize
                    && !context.quiet
                {
                    let here = devices.len();
                    say(&format!(
                        "the store has {here} of the {replicas} devices that so many copies need: fewer are made until it has more"
                    ));
                }
            }
            Command::Get { path } => {
                let path = path::parse(&path)?;
                let (own, in_force) = client.get_policy(&path).await?;
                let mut output = Output::open()?;
                if context.json {
                    output.json(&json!({ "path": path, "own": object(own), "in_force": object(in_force) }))?;
                } else {
                    output.line(&format!("own       {}", line(own, ["inherited"; 3])))?;
                    output.line(&format!("in force  {}", line(in_force, ["nvm, ssd or hdd", "1", "none"])))?;
                }
                output.flush()?;
            }
        }
        Ok(Exit::Done)
    }
}
