//! `stormwell du`: counts files and bytes below a path.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::{path, show};
use clap::{ArgAction, Args};
use client::Usage;
use serde_json::json;

/// Counts files and bytes below a path, and in each directory directly in it
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_help = "Example:\n  stormwell du -h /logs\n\nColumns: bytes, files, path. The last line is the whole.")]
pub struct Du {
    /// Only the whole
    #[arg(short, long)]
    summary: bool,
    /// Sizes for people: 1.5 GiB
    #[arg(short, long)]
    human: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// The directory or file
    #[arg(default_value = "/")]
    path: String,
}

impl Du {
    /// Counts.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let path = path::parse(&self.path)?;
        let client = context.connect("du").await?;
        let mut output = Output::open()?;
        if !self.summary && client.stat(&path).await?.directory {
            let mut listing = client.list_all(&path);
            while let Some(entry) = listing.next().await? {
                if entry.attributes.directory {
                    let below = path::join(&path, &entry.name);
                    let usage = client.disk_usage(&below).await?;
                    self.print(context, &below, &usage, &mut output)?;
                    output.flush()?;
                }
            }
        }
        let usage = client.disk_usage(&path).await?;
        self.print(context, &path, &usage, &mut output)?;
        output.flush()?;
        Ok(Exit::Done)
    }

    fn print(&self, context: &Context, path: &str, usage: &Usage, output: &mut Output) -> Result<()> {
        if context.json {
            return output.json(&json!({
                "path": path,
                "bytes": usage.bytes,
                "files": usage.files,
                "directories": usage.directories,
            }));
        }
        let line = format!("{:>13} {:>10}  {}", show::size(usage.bytes, self.human), usage.files, output.name(path));
        output.line(&line)
    }
}
