//! `stormwell cat`: files of the store to stdout.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::path;
use base::unit::{BadSize, parse_bytes};
use clap::Args;
use client::{Client, ReadOptions};
use tokio::task::block_in_place;

/// Writes files of the store to stdout, one after another
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell cat /logs/today.log --offset 1GiB --length 64K")]
pub struct Cat {
    /// Start at this byte of each file
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = size)]
    offset: u64,
    /// At most so many bytes of each file
    #[arg(long, value_name = "BYTES", value_parser = size)]
    length: Option<u64>,
    /// The files
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

/// A size on the command line.
pub fn size(text: &str) -> std::result::Result<u64, BadSize> {
    parse_bytes(text)
}

impl Cat {
    /// Writes them; the first error ends it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        let client = context.connect("cat").await?;
        let mut output = Output::open()?;
        for path in paths {
            stream(&client, &path, self.offset, self.length.unwrap_or(u64::MAX), |bytes| output.bytes(bytes)).await?;
        }
        Ok(Exit::Done)
    }
}

/// Hands a range of a file to `take`, which may block, and tells how many bytes there were.
pub async fn stream(
    client: &Client,
    path: &str,
    offset: u64,
    length: u64,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<u64> {
    let reader = client.open_with(path, ReadOptions { once: true }).await?;
    let mut missing = length;
    if length <= RANGE_MAX {
        for part in reader.read_at(offset, length).await? {
            missing = missing.saturating_sub(part.len() as u64);
            block_in_place(|| take(&part))?;
        }
        return Ok(length - missing);
    }
    let mut stream = reader.stream(offset);
    while missing > 0
        && let Some(bytes) = stream.next().await?
    {
        let wanted = usize::try_from(missing).unwrap_or(usize::MAX).min(bytes.len());
        missing -= wanted as u64;
        block_in_place(|| take(&bytes[..wanted]))?;
    }
    Ok(length - missing)
}

/// Ranges up to this are read as they are; longer ones are read ahead, and what was read too far is thrown away.
const RANGE_MAX: u64 = 4 << 20;
