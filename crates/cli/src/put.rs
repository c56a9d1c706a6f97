//! `stormwell put`: local files, directories and stdin into the store.

mod destination;
mod local;
mod send;

use crate::context::Context;
use crate::exit::{Exit, Fault, Result, say};
use crate::output::Output;
use crate::path;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use base::policy::Class;
use clap::Args;
use client::CreateOptions;
use send::Sender;
use std::path::PathBuf;

/// Copies local files and directories, or stdin, into the store
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell put results/ /2026/results
  zcat big.gz | stormwell put - /2026/big.csv

DST follows the rules of `cp -r`: below DST if that is a directory, else as DST. When put ends with 0, everything is on
stable media, except what a policy wishes to have in memory: that is in the memory of a node, and gone when it ends.
Modification times and permission bits are kept. Links named on the command line are followed.

A file has its name when it is whole; until then a large one is written as .stormwell-put-* beside it. Whatever ends put,
no half file has a name, and with --overwrite the old file stays until then: there must be room, and quota, for both. Only
a put that is killed, or that does not reach the store any more, leaves a .stormwell-put-* behind; remove it by hand.")]
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
        let sender =
            Sender { client, pool: context.pool.clone(), overwrite: self.overwrite, progress: progress.clone() };
        // Half a file under a strange name would be left behind by a plain Ctrl-C.
        let signals =
            progress.stop_at_signal("files that were put are whole, names of others are as they were; put these again");
        let copied = match from_stdin {
            true => self.stdin(&sender, &destination).await,
            false => self.files(&sender, &destination).await,
        };
        signals.abort();
        copied.map_err(|error| sender.explained(error, &destination))?;
        drop(ticker);
        if !context.quiet && progress.done() > 0 {
            say_if_in_memory(&sender, &destination).await;
        }
        let summary = progress.summary();
        if context.json {
            let mut output = Output::open()?;
            output.json(&summary)?;
            output.flush()?;
        }
        progress.outcome().map_err(|fault| match fault {
            Fault::Error(error) => Fault::Error(sender.explained(error, &destination)),
            Fault::ClosedPipe => fault,
        })
    }

    async fn stdin(&self, sender: &Sender, path: &str) -> base::error::Result<()> {
        if self.destination.ends_with('/') {
            let text = format!("{} is a directory; stdin has no name, so write the file's", self.destination);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let stdin = send::Source { stream: std::io::stdin(), shown: "stdin".to_string() };
        let put = sender.stream(path, stdin, CreateOptions::default(), None).await?;
        sender.progress.copied(u64::from(put));
        Ok(())
    }

    async fn files(&self, sender: &Sender, destination: &str) -> base::error::Result<()> {
        let progress = &sender.progress;
        let tops = destination::plan(&sender.client, &self.sources, &self.destination, destination, progress).await?;
        let (found, sources) = tokio::sync::mpsc::channel(local::BATCHES_WAITING);
        let walk = local::Walk { found, follow: self.follow, progress: progress.clone() };
        let walked = tops.clone();
        let walker = tokio::task::spawn_blocking(move || walk.run(walked));
        let touched = sender.everything(sources).await?;
        if let Err(error) = walker.await {
            let text = format!("looking for files was cut off: {error}; run it again with --overwrite");
            return Err(Error::new(ErrorKind::Io, text));
        }
        if progress.stopped() {
            return Ok(());
        }
        let directories = tokio::task::block_in_place(|| local::kept_of(&tops, touched));
        sender.dress(directories).await
    }
}

/// Who puts something where it is not on stable media is told so.
async fn say_if_in_memory(sender: &Sender, destination: &str) {
    // That it is not known is no reason to fail: everything is put.
    if let Ok((_, in_force)) = sender.client.get_policy(destination).await
        && in_force.tier == Some(Class::Memory)
    {
        say(&format!("put: the policy of {destination} wishes for memory: what is there is gone when its node ends"));
    }
}
