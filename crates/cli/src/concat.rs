//! `stormwell concat`: joins files without moving a byte.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::path;
use clap::Args;

/// Joins files to the end of another, all or none, without moving bytes; they are gone then
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stormwell concat /2026/whole.csv /2026/part-1.csv /2026/part-2.csv\n\nNobody may be writing any of them."
)]
pub struct Concat {
    /// The file that grows
    target: String,
    /// The files that are joined to it, in this order
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
}

impl Concat {
    /// Joins them.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let target = path::parse(&self.target)?;
        let sources = self.sources.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        context.connect("concat").await?.concat(&target, &sources).await?;
        Ok(Exit::Done)
    }
}
