//! `stormwell bag pull`: chunks to stdout, or each to a command.

use crate::context::Context;
use crate::exit::{Exit, Fault, Result, report};
use crate::output::Output;
use crate::progress::Progress;
use base::error::{Error, ErrorKind};
use base::id::ChunkId;
use bytes::Bytes;
use clap::Args;
use client::{Acknowledged, Chunk, Consumer, ConsumerOptions};
use std::collections::BTreeMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use tokio::task::{JoinSet, block_in_place};

/// Pulls chunks out of a bag: to stdout, or each to a command
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell bag pull work --exec 'grep ERROR >> errors.txt' -j 4

Without --exec a chunk is acknowledged when it is written to stdout. With --exec it is the command's stdin, its id is in
STORMWELL_CHUNK, and it is acknowledged if the command ends with 0; else somebody gets it again when its grant ends, and pull
ends with 1. A chunk whose command failed here three times ends the pull. Every chunk is handled at least once and
acknowledged exactly once. Pull ends when the bag is sealed and everything in it is acknowledged.")]
pub struct Pull {
    /// Run `sh -c CMD` for each chunk, with the chunk on its stdin
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// Commands at once
    #[arg(short, long, value_name = "N", default_value = "1", requires = "exec")]
    jobs: NonZeroUsize,
    /// End when the bag is empty, sealed or not
    #[arg(long)]
    no_wait: bool,
    /// From which devices: those of the cluster, of a node by its name, or `here`: of the node of this machine. Pull then ends when
    /// that is so of what is there, which says nothing of the rest
    #[arg(long, value_name = "SCOPE", default_value = "cluster")]
    scope: String,
    /// The bag
    bag: String,
}

/// A command that fails this often for one chunk will fail again.
const FAILURES_OF_ONE_CHUNK: u32 = 3;

/// One command and what it was given.
struct Job {
    chunk: Chunk,
    ended: std::io::Result<ExitStatus>,
}

impl Pull {
    /// Pulls until the bag ends.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        if context.json && self.exec.is_none() {
            let text = "without --exec stdout carries the chunks, so --json has no place; leave it out";
            return Err(Error::new(ErrorKind::Invalid, text).into());
        }
        let client = context.connect("bag pull").await?;
        let bag = client.bag(&self.bag).await.map_err(|error| super::missing(error, &self.bag))?;
        let scope = super::scope(&client, &self.scope).await?;
        let mut options = ConsumerOptions { wait: !self.no_wait, scope, ..ConsumerOptions::default() };
        if self.exec.is_some() {
            // Commands are slow beside the network: chunks held in advance would only be kept from other consumers.
            options.window = Some(self.jobs.get());
        }
        let mut consumer = bag.consumer(options);
        let (progress, ticker) = Progress::start(context, "pull", "chunk");
        let pulled = match &self.exec {
            None => to_stdout(&mut consumer, &progress).await,
            Some(command) => to_commands(&mut consumer, command, self.jobs.get(), &progress).await,
        };
        let acknowledged = consumer.flush().await;
        tell(acknowledged, &progress);
        drop(ticker);
        if matches!(pulled, Err(Fault::ClosedPipe)) {
            return pulled.map(|()| Exit::Done);
        }
        let summary = progress.summary();
        pulled?;
        if context.json {
            let mut output = Output::open()?;
            output.json(&summary)?;
            output.flush()?;
        }
        Ok(if progress.failures() > 0 { Exit::Failed } else { Exit::Done })
    }
}

async fn to_stdout(consumer: &mut Consumer, progress: &Progress) -> Result<()> {
    let mut output = Output::open()?;
    while let Some(chunk) = consumer.pull().await? {
        block_in_place(|| output.bytes(&chunk.bytes))?;
        progress.copied(1);
        progress.copied_bytes(chunk.bytes.len() as u64);
        chunk.acknowledge();
        let acknowledged = consumer.take_results();
        tell(acknowledged, progress);
    }
    Ok(())
}

async fn to_commands(consumer: &mut Consumer, command: &str, jobs_max: usize, progress: &Progress) -> Result<()> {
    let mut jobs = JoinSet::new();
    let mut failures = BTreeMap::new();
    let mut pulling = Ok(true);
    while matches!(pulling, Ok(true)) || !jobs.is_empty() {
        tokio::select! {
            biased;
            Some(job) = jobs.join_next(), if !jobs.is_empty() => {
                if settle(job, &mut failures, progress) {
                    pulling = pulling.map(|_| false);
                }
                let acknowledged = consumer.take_results();
                tell(acknowledged, progress);
            }
            pulled = consumer.pull(), if matches!(pulling, Ok(true)) && jobs.len() < jobs_max => match pulled {
                Ok(Some(chunk)) => {
                    let command = command.to_string();
                    jobs.spawn_blocking(move || {
                        let ended = run(&command, chunk.id, &chunk.bytes);
                        Job { chunk, ended }
                    });
                }
                Ok(None) => pulling = Ok(false),
                // Commands that run are waited for; their chunks may still be acknowledged.
                Err(error) => pulling = Err(error),
            },
        }
    }
    pulling?;
    Ok(())
}

/// Acknowledges the chunk if its command ended well. Answers whether a chunk failed so often that going on is pointless.
fn settle(
    job: std::result::Result<Job, tokio::task::JoinError>,
    failures: &mut BTreeMap<ChunkId, u32>,
    progress: &Progress,
) -> bool {
    let Job { chunk, ended } = match job {
        Ok(job) => job,
        Err(error) => {
            progress.complain(&Error::new(ErrorKind::Io, format!("a command was cut off: {error}; its chunk is safe")));
            return false;
        }
    };
    let what = match ended {
        Ok(status) if status.success() => {
            progress.copied(1);
            progress.copied_bytes(chunk.bytes.len() as u64);
            chunk.acknowledge();
            return false;
        }
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("the command ended with {code}"),
            (None, signal) => format!("the command was killed by signal {}", signal.unwrap_or_default()),
        },
        Err(error) => format!("the command could not be run: {error}"),
    };
    let count = failures.entry(chunk.id).or_insert(0);
    *count += 1;
    let advice = if *count < FAILURES_OF_ONE_CHUNK {
        "it is not acknowledged and will be given again"
    } else {
        "it failed three times here, so this pull ends; the chunk stays in the bag"
    };
    progress.complain(&Error::new(ErrorKind::Io, format!("chunk {}: {what}; {advice}", chunk.id)));
    *count >= FAILURES_OF_ONE_CHUNK
}

/// Runs the command with the chunk on its stdin and waits for its end.
fn run(command: &str, id: ChunkId, bytes: &Bytes) -> std::io::Result<ExitStatus> {
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(command)
        .env("STORMWELL_CHUNK", id.to_string())
        .stdin(Stdio::piped())
        .spawn()?;
    let written = match child.stdin.take() {
        Some(mut stdin) => stdin.write_all(bytes),
        None => Ok(()),
    };
    let ended = child.wait()?;
    match written {
        // A command need not read all of its stdin: `head` does not.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(ended),
    }
}

/// Reports acknowledgements that were refused.
fn tell(acknowledged: Acknowledged, progress: &Progress) {
    for refusal in acknowledged.refused {
        let error = refusal.error;
        if error.kind() == ErrorKind::Unreachable {
            report(&error.clone().during(format!("the acknowledgement of chunk {} has no answer", refusal.chunk)));
        }
        let text = format!(
            "the acknowledgement of chunk {} was refused: {}; somebody else may have it, so discard what was made of it here",
            refusal.chunk,
            error.text()
        );
        if error.kind() != ErrorKind::Unreachable {
            progress.complain(&Error::new(ErrorKind::Stale, text));
        }
    }
}
