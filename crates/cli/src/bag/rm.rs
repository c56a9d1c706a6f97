//! `stormwell bag rm`: removes bags.

use crate::context::Context;
use crate::exit::{Exit, Result};
use clap::Args;

/// Removes bags with everything in them, pulled or not
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag rm work")]
pub struct Rm {
    /// The bags
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
}

impl Rm {
    /// Removes them in the order given; the first error ends it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag rm").await?;
        for name in &self.names {
            client.bag_delete(name).await.map_err(|error| super::missing(error, name))?;
        }
        Ok(Exit::Done)
    }
}
