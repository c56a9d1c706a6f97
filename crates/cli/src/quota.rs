//! `stormwell quota`: how many names and bytes may be below a directory.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::path;
use base::error::{Error, ErrorKind};
use base::unit::{parse_bytes, show_bytes};
use clap::{Args, Subcommand};
use client::NewQuota;
use serde_json::json;

/// Sets and shows how many names and bytes may be below a directory
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Quota {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Limits what may be below a directory; what is there is counted first and stays, even if it is more
    #[command(after_help = "Examples:
  stormwell quota set /home/ada --names 100000 --bytes 1TiB
  stormwell quota set /home/ada --bytes none")]
    Set {
        /// The directory
        path: String,
        /// Most files and directories, its own name included; or none
        #[arg(long, value_name = "COUNT", value_parser = names)]
        names: Option<Most>,
        /// Most bytes, as often as each file counts (HDFS's replication; once for others); or none
        #[arg(long, value_name = "SIZE", value_parser = bytes)]
        bytes: Option<Most>,
    },
    /// Shows the quota of a directory and what is used of it
    #[command(after_help = "Example:\n  stormwell quota get /home/ada")]
    Get {
        /// The directory
        path: String,
    },
}

/// A limit, or that there is none.
#[derive(Clone, Copy, Debug)]
struct Most(Option<u64>);

fn names(text: &str) -> std::result::Result<Most, String> {
    match text {
        "none" => Ok(Most(None)),
        count => count.parse().map(|count| Most(Some(count))).map_err(|_| "it is a number, or none".to_string()),
    }
}

fn bytes(text: &str) -> std::result::Result<Most, String> {
    match text {
        "none" => Ok(Most(None)),
        size => parse_bytes(size).map(|bytes| Most(Some(bytes))).map_err(|error| format!("{error}, or none")),
    }
}

impl Quota {
    /// Does it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("quota").await?;
        match self.command {
            Command::Set { path, names, bytes } => {
                let path = path::parse(&path)?;
                if names.is_none() && bytes.is_none() {
                    let text = "no limit is named; use --names or --bytes";
                    return Err(Error::new(ErrorKind::Invalid, text).into());
                }
                let limit = |most: Option<Most>| most.map(|Most(most)| most);
                client.set_quota(&path, NewQuota { names: limit(names), bytes: limit(bytes) }).await?;
            }
            Command::Get { path } => {
                let path = path::parse(&path)?;
                let quota = client.quota(&path).await?;
                let mut output = Output::open()?;
                if context.json {
                    output.json(&json!({
                        "path": path,
                        "names_max": quota.and_then(|quota| quota.names_max),
                        "names": quota.map(|quota| quota.names),
                        "bytes_max": quota.and_then(|quota| quota.bytes_max),
                        "bytes": quota.map(|quota| quota.bytes),
                        "counting": quota.is_some_and(|quota| quota.counting),
                    }))?;
                } else if let Some(quota) = quota {
                    let of = |most: Option<String>| most.map_or(String::new(), |most| format!(" of {most}"));
                    output.line(&format!(
                        "names  {}{}",
                        quota.names,
                        of(quota.names_max.map(|most| most.to_string()))
                    ))?;
                    output.line(&format!(
                        "bytes  {}{}",
                        show_bytes(quota.bytes),
                        of(quota.bytes_max.map(show_bytes))
                    ))?;
                } else {
                    output.line("no quota")?;
                }
                output.flush()?;
            }
        }
        Ok(Exit::Done)
    }
}
