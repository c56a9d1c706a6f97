//! `stormwell truncate`: cuts off the end of a file.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::path;
use base::unit::parse_bytes;
use clap::Args;

/// Cuts off the end of a file that nobody is writing
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stormwell truncate --size 1MiB /logs/today.log\n\nA size above the file's is refused. The space of what is cut off comes back by itself."
)]
pub struct Truncate {
    /// Bytes to keep
    #[arg(short, long, value_name = "BYTES", value_parser = parse_bytes)]
    size: u64,
    /// The file
    path: String,
}

impl Truncate {
    /// Cuts it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let path = path::parse(&self.path)?;
        context.connect("truncate").await?.truncate(&path, self.size).await?;
        Ok(Exit::Done)
    }
}
