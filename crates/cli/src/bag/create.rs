//! `stormwell bag create`: makes a bag.

use crate::context::Context;
use crate::exit::{Exit, Result};
use base::error::{Error, ErrorKind};
use clap::Args;

/// Makes a bag, which is open for pushing
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell bag create work --exists-ok")]
pub struct Create {
    /// Its name
    name: String,
    /// Do not mind if it exists
    #[arg(long)]
    exists_ok: bool,
}

impl Create {
    /// Makes it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag create").await?;
        client.bag_create(&self.name, self.exists_ok).await.map_err(|error| match error.kind() {
            ErrorKind::Exists => Error::new(
                ErrorKind::Exists,
                format!("there is a bag named {} already; use --exists-ok if that is fine", self.name),
            ),
            _ => error,
        })?;
        Ok(Exit::Done)
    }
}
