//! `stormwell bag create`: makes a bag.

use crate::context::Context;
use crate::exit::{Exit, Result};
use base::error::{Error, ErrorKind};
use base::policy::Compression;
use clap::Args;
use client::BagOptions;

/// Makes a bag, which is open for pushing
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag create work --compression lz4 --exists-ok")]
pub struct Create {
    /// Its name
    name: String,
    /// Do not mind if it exists
    #[arg(long)]
    exists_ok: bool,
    /// Acknowledged chunks stay, to be given once more after each rewind, until the bag is removed
    #[arg(long)]
    retain: bool,
    /// Compress chunks before they are sent: none, lz4, or zstd, which is tighter and takes more processor
    #[arg(long, value_name = "HOW", value_parser = compression)]
    compression: Option<Compression>,
}

fn compression(text: &str) -> std::result::Result<Compression, String> {
    Compression::from_name(text)
        .ok_or_else(|| format!("there is no compression `{text}`; there are none, lz4 and zstd"))
}

impl Create {
    /// Makes it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag create").await?;
        let options = BagOptions { retain: self.retain, compression: self.compression };
        client.bag_create_with(&self.name, self.exists_ok, options).await.map_err(|error| match error.kind() {
            ErrorKind::Exists if !self.exists_ok => Error::new(
                ErrorKind::Exists,
                format!("there is a bag named {} already; use --exists-ok if that is fine", self.name),
            ),
            _ => error,
        })?;
        Ok(Exit::Done)
    }
}
