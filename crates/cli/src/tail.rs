//! `stormwell tail`: the end of a file, and with `-f` what is added to it.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::path;
use base::error::ErrorKind;
use base::unit::{MIB, parse_bytes};
use clap::Args;
use client::{FileReader, ReadOptions};
use std::time::Duration;
use tokio::task::block_in_place;

/// Writes the end of a file to stdout, and with -f goes on with what is added to it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell tail -n 100 /logs/today.log
  stormwell tail -f /logs/today.log

With -f it sees what writers hflush, across writers, and ends when the file is deleted or replaced.")]
pub struct Tail {
    /// The last so many lines
    #[arg(short = 'n', long, default_value = "10", conflicts_with = "bytes")]
    lines: u64,
    /// The last so many bytes instead
    #[arg(short = 'c', long, value_parser = parse_bytes)]
    bytes: Option<u64>,
    /// Go on with what is added
    #[arg(short, long)]
    follow: bool,
    /// The file
    path: String,
}

/// How often a file is looked at that does not grow: a person hardly notices, and the node neither.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Read at once while looking for line ends, and while writing.
const PIECE: u64 = MIB;

impl Tail {
    /// Writes it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let path = path::parse(&self.path)?;
        let client = context.connect("tail").await?;
        let mut output = Output::open()?;
        let reader = client.open_with(&path, ReadOptions::default()).await?;
        let mut end = reader.length().await?;
        let mut at = match self.bytes {
            Some(bytes) => end.saturating_sub(bytes),
            None => start_of_lines(&reader, end, self.lines).await?,
        };
        loop {
            at = write(&reader, at, end, &mut output).await?;
            if !self.follow {
                return Ok(Exit::Done);
            }
            tokio::time::sleep(LOOK_EVERY).await;
            // What is sure is written at once; only what may be behind it is waited for.
            end = match reader.length_reaching(at.saturating_add(1)).await {
                Ok(end) => end,
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    say(&format!("stormwell: {path} was deleted or replaced; tail ends here"));
                    return Ok(Exit::Done);
                }
                Err(error) => return Err(error.into()),
            };
            if end < at {
                say(&format!("stormwell: {path} was cut to {end} bytes; tail goes on there"));
                at = end;
            }
        }
    }
}

/// Writes the bytes from `at` to `end`; answers where it came to.
async fn write(reader: &FileReader, mut at: u64, end: u64, output: &mut Output) -> Result<u64> {
    while at < end {
        let parts = reader.read_at(at, PIECE.min(end - at)).await?;
        if parts.is_empty() {
            break;
        }
        for part in parts {
            at = at.saturating_add(part.len() as u64);
            block_in_place(|| output.bytes(&part))?;
        }
    }
    Ok(at)
}

/// Where the last `lines` lines before `end` begin. A line end at the very end ends the last line and begins no other.
async fn start_of_lines(reader: &FileReader, end: u64, lines: u64) -> Result<u64> {
    let mut left = lines;
    let mut before = end;
    if lines == 0 {
        return Ok(end);
    }
    while before > 0 {
        let from = before.saturating_sub(PIECE);
        let bytes = reader.read_at(from, before - from).await?.concat();
        for (place, byte) in bytes.iter().enumerate().rev() {
            let position = from.saturating_add(place as u64);
            if *byte != b'\n' || position.saturating_add(1) == end {
                continue;
            }
            left -= 1;
            if left == 0 {
                return Ok(position.saturating_add(1));
            }
        }
        before = from;
    }
    Ok(0)
}
