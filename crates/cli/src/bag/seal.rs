//! `stormwell bag seal`: ends pushing.

use crate::context::Context;
use crate::exit::{Exit, Result};
use clap::Args;

/// Ends pushing to a bag for good, so that consumers know when they are done
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag seal work")]
pub struct Seal {
    /// The bag
    name: String,
}

impl Seal {
    /// Seals it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag seal").await?;
        client.bag_seal(&self.name).await.map_err(|error| super::missing(error, &self.name))?;
        Ok(Exit::Done)
    }
}
