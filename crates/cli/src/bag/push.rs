//! `stormwell bag push`: cuts files or stdin into chunks and pushes them.

use super::cut::Cutter;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::path;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use base::limit::{BAG_CHUNK, BAG_CHUNK_MAX};
use base::unit::{parse_bytes, show_bytes};
use bytes::Bytes;
use clap::Args;
use client::{Producer, ProducerOptions};
use std::io::Read;
use std::path::PathBuf;
use tokio::sync::mpsc::{self, Sender};
use tokio::task::spawn_blocking;

/// Cuts files, or stdin, into chunks and pushes them into a bag
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell bag push work access.log --lines --create

A chunk never holds bytes of two files. When push ends with 0, every chunk is on stable media.")]
pub struct Push {
    /// Cut after newlines only, so that no line is split
    #[arg(long)]
    lines: bool,
    /// Largest chunk; with --lines one long line alone may have up to 16 MiB
    #[arg(long, value_name = "BYTES", default_value_t = BAG_CHUNK, value_parser = chunk_size)]
    chunk: u64,
    /// Make the bag if there is none
    #[arg(long)]
    create: bool,
    /// To which devices: those of the cluster, of a node by its name, or `here`: of the node of this machine
    #[arg(long, value_name = "SCOPE", default_value = "cluster")]
    scope: String,
    /// The bag
    bag: String,
    /// The files; - or none is stdin
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
}

fn chunk_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if (1..=BAG_CHUNK_MAX).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("a chunk has 1 byte to {}", show_bytes(BAG_CHUNK_MAX)))
}

/// Chunks that were cut and wait to be pushed: the next one is ready while one is handed over.
const CHUNKS_WAITING: usize = 2;

impl Push {
    /// Pushes everything and sums up.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag push").await?;
        let bag = if self.create {
            client.bag_create(&self.bag, true).await?
        } else {
            client.bag(&self.bag).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::new(
                    ErrorKind::NotFound,
                    format!(
                        "there is no bag named {0}; use --create, or make it with `stormwell bag create {0}`",
                        self.bag
                    ),
                ),
                _ => error,
            })?
        };
        let scope = super::scope(&client, &self.scope).await?;
        let (progress, ticker) = Progress::start(context, "push", "chunk");
        let producer = bag.producer(ProducerOptions { scope, ..ProducerOptions::default() });
        let pushed = self.sources(&producer, &progress).await;
        // What was handed over before an error is finished, so that the counts below are true.
        producer.flush().await?;
        drop(ticker);
        let summary = progress.summary();
        pushed?;
        if context.json {
            let mut output = Output::open()?;
            output.json(&summary)?;
            output.flush()?;
        }
        progress.outcome()
    }

    async fn sources(&self, producer: &Producer, progress: &Progress) -> base::error::Result<()> {
        if self.files.is_empty() {
            return self.source(std::io::stdin(), "stdin", producer, progress).await;
        }
        for file in &self.files {
            if file.as_os_str() == "-" {
                self.source(std::io::stdin(), "stdin", producer, progress).await?;
                continue;
            }
            match tokio::task::block_in_place(|| os::file::open(file)) {
                Ok(open) => self.source(open, &path::shown(file), producer, progress).await?,
                Err(error) => progress.complain(&error),
            }
        }
        Ok(())
    }

    async fn source<R: Read + Send + 'static>(
        &self,
        stream: R,
        shown: &str,
        producer: &Producer,
        progress: &Progress,
    ) -> base::error::Result<()> {
        // Both are at most 16 MiB.
        let cutter = Cutter::new(self.chunk as usize, BAG_CHUNK_MAX as usize, self.lines);
        let (chunks, mut ready) = mpsc::channel(CHUNKS_WAITING);
        let cutting = spawn_blocking(move || cut(stream, cutter, &chunks));
        let mut pushed = Ok(());
        while let Some(chunk) = ready.recv().await {
            let length = chunk.len() as u64;
            pushed = producer.push(chunk).await;
            if pushed.is_err() {
                break;
            }
            progress.copied(1);
            progress.copied_bytes(length);
        }
        drop(ready);
        let cut = cutting.await.unwrap_or_else(|error| Err(Error::new(ErrorKind::Io, error.to_string())));
        pushed.and(cut.map_err(|error| error.during(format!("cannot push all of {shown}"))))
    }
}

/// Cuts until the stream ends or nobody wants more.
fn cut<R: Read>(mut stream: R, mut cutter: Cutter, chunks: &Sender<Bytes>) -> base::error::Result<()> {
    while let Some(chunk) = cutter.next(&mut stream)? {
        if chunks.blocking_send(Bytes::from(chunk)).is_err() {
            break;
        }
    }
    Ok(())
}
