//! `stormwell mkdir`: makes directories.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::path;
use clap::Args;

/// Makes directories in the store
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell mkdir -p /logs/2026/november")]
pub struct Mkdir {
    /// Make what is missing above, and do not mind if it exists
    #[arg(short, long)]
    parents: bool,
    /// The directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

impl Mkdir {
    /// Makes them in the order given; the first error ends it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        let client = context.connect("mkdir").await?;
        for path in paths {
            client.make_directory(&path, self.parents).await?;
        }
        Ok(Exit::Done)
    }
}
