//! `stormwell get`: files and directories of the store to the local file system, or to stdout.

mod destination;
mod fetch;
mod find;
pub mod local;

use crate::cat;
use crate::context::Context;
use crate::exit::{Exit, Fault, Result};
use crate::output::Output;
use crate::path;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use clap::Args;
use client::Client;
use destination::Source;
use std::path::PathBuf;
use std::sync::Arc;

/// Copies files and directories of the store to the local file system, or one file to stdout
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell get /2026/results .
  stormwell get /2026/big.csv - | wc -l

DST follows the rules of `cp -r`: below DST if that is a directory, else as DST. A file appears under its name when it is
whole; every byte is checked. Modification times and permission bits are kept.

What cannot be read is left out, by name, and the exit code is not 0.")]
pub struct Get {
    /// Replace files that exist
    #[arg(long)]
    pub overwrite: bool,
    /// Make files and directories durable (fsync) before they count as copied
    #[arg(long)]
    pub sync: bool,
    /// What to copy
    #[arg(required = true, value_name = "SRC")]
    pub sources: Vec<String>,
    /// Where to; - is stdout
    #[arg(value_name = "DST")]
    pub destination: PathBuf,
}

impl Get {
    /// Copies everything and sums up.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let source = |text: &String| {
            let content = text == "." || text.ends_with("/.");
            path::parse(text).map(|path| Source { path, content })
        };
        let sources = self.sources.iter().map(source).collect::<base::error::Result<Vec<_>>>()?;
        let to_stdout = self.destination.as_os_str() == "-";
        if to_stdout && context.json {
            let text = "with - stdout carries the file, so --json has no place; leave one of them out";
            return Err(Error::new(ErrorKind::Invalid, text).into());
        }
        let client = context.connect("get").await?;
        let (progress, ticker) = Progress::start(context, "get", "file");
        if to_stdout {
            stdout(&client, &sources, &progress).await?;
        } else {
            self.files(context, &client, &sources, &progress).await?;
        }
        drop(ticker);
        let summary = progress.summary();
        if context.json {
            let mut output = Output::open()?;
            output.json(&summary)?;
            output.flush()?;
        }
        progress.outcome()
    }

    async fn files(
        &self,
        context: &Context,
        client: &Client,
        sources: &[Source],
        progress: &Arc<Progress>,
    ) -> Result<()> {
        let tops = destination::plan(client, sources, &self.destination, progress).await?;
        let local = Arc::new(local::Local {
            destination: self.destination.clone(),
            overwrite: self.overwrite,
            sync: self.sync,
            random: context.random.clone(),
            progress: progress.clone(),
        });
        // Half a file under a strange name would be left behind by a plain Ctrl-C.
        let signals = progress.stop_at_signal("files that were copied are whole, run it again for the others");
        let fetched = fetch::everything(client, tops, &local).await;
        signals.abort();
        fetched.map_err(Fault::Error)
    }
}

async fn stdout(client: &Client, sources: &[Source], progress: &Arc<Progress>) -> Result<()> {
    let [source] = sources else {
        let text = "only one file can go to stdout; use `stormwell cat` for several";
        return Err(Error::new(ErrorKind::Invalid, text).into());
    };
    let mut output = Output::open()?;
    let take = |bytes: &[u8]| {
        progress.copied_bytes(bytes.len() as u64);
        output.bytes(bytes)
    };
    cat::stream(client, &source.path, 0, u64::MAX, take).await?;
    progress.copied(1);
    Ok(())
}
