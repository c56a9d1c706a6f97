//! `stormwell put`: local files, directories and stdin into the store.

mod destination;
mod local;
mod send;

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::path;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use clap::Args;
use client::Client;
use std::path::PathBuf;
use std::sync::Arc;

/// Copies local files and directories, or stdin, into the store
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell put results/ /2026/results
  zcat big.gz | stormwell put - /2026/big.csv

DST follows the rules of `cp -r`: below DST if that is a directory, else as DST. When put ends with 0, everything is on
stable media. Modification times and permission bits are kept. Links named on the command line are followed.

With --overwrite an old file is given up when its copy begins, as in HDFS: if put is cut off, the beginning of the new
one may be all there is. To keep the old one until then: put under another name, then `stormwell mv --replace`.")]
pub struct Put {
    /// Replace files that exist
    #[arg(long)]
    pub overwrite: bool,
    /// Follow symbolic links below directories; otherwise they are skipped with a word
    #[arg(long)]
    pub follow: bool,
    /// What to copy; - is stdin
    #[arg(required = true, value_name = "SRC")]
    pub sources: Vec<PathBuf>,
    /// Where to, in the store
    #[arg(value_name = "DST")]
    pub destination: String,
}

impl Put {
    /// Copies everything and sums up.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let destination = path::parse(&self.destination)?;
        let from_stdin = self.sources.iter().any(|source| source.as_os_str() == "-");
        if from_stdin && self.sources.len() > 1 {
            return Err(Error::new(ErrorKind::Invalid, "stdin (-) can only be the one source; put files apart").into());
        }
        let client = context.connect("put").await?;
        let (progress, ticker) = Progress::start(context, "put", "file");
        if from_stdin {
            self.stdin(context, &client, &destination, &progress).await?;
        } else {
            self.files(context, &client, &destination, &progress).await?;
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

    async fn stdin(&self, context: &Context, client: &Client, path: &str, progress: &Arc<Progress>) -> Result<()> {
        if self.destination.ends_with('/') {
            let text = format!("{} is a directory; stdin has no name, so write the file's", self.destination);
            return Err(Error::new(ErrorKind::Invalid, text).into());
        }
        let options = client::CreateOptions { overwrite: self.overwrite, ..client::CreateOptions::default() };
        let stdin = send::Source { stream: std::io::stdin(), shown: "stdin".to_string() };
        send::stream(client, context.pool.clone(), path, stdin, options, progress).await?;
        progress.copied(1);
        Ok(())
    }

    async fn files(
        &self,
        context: &Context,
        client: &Client,
        destination: &str,
        progress: &Arc<Progress>,
    ) -> Result<()> {
        let tops = destination::plan(client, &self.sources, &self.destination, destination, progress).await?;
        let (found, sources) = tokio::sync::mpsc::channel(local::BATCHES_WAITING);
        let walk = local::Walk { found, follow: self.follow, progress: progress.clone() };
        let walker = tokio::task::spawn_blocking(move || walk.run(tops));
        send::everything(client, context.pool.clone(), sources, self.overwrite, progress).await?;
        match walker.await {
            Ok(()) => Ok(()),
            Err(error) => {
                let text = format!("looking for files was cut off: {error}; run it again with --overwrite");
                Err(Error::new(ErrorKind::Io, text).into())
            }
        }
    }
}
