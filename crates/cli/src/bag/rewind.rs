//! `stormwell bag rewind`: begins a new pass.

use crate::context::Context;
use crate::exit::{Exit, Result};
use clap::Args;

/// Begins a new pass of a bag: every chunk that is there is given once more
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  stormwell bag rewind work\n\nWhat consumers pulled before and have not acknowledged yet is refused then; they discard it. A bag made with --retain\nstill has all its chunks; another has those that nobody acknowledged."
)]
pub struct Rewind {
    /// The bag
    name: String,
}

impl Rewind {
    /// Rewinds it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag rewind").await?;
        client.bag_rewind(&self.name).await.map_err(|error| super::missing(error, &self.name))?;
        Ok(Exit::Done)
    }
}
