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
    /// Acknowledged chunks stay, to be given once more after each rewind, until the bag is removed
    #[arg(long)]
    retain: bool,
}

impl Create {
    /// Makes it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("bag create").await?;
        let created = match self.retain {
            true => client.bag_create_retaining(&self.name, self.exists_ok).await,
            false => client.bag_create(&self.name, self.exists_ok).await,
        };
        created.map_err(|error| match error.kind() {
            ErrorKind::Exists if !self.exists_ok => Error::new(
                ErrorKind::Exists,
                format!("there is a bag named {} already; use --exists-ok if that is fine", self.name),
            ),
            _ => error,
        })?;
        Ok(Exit::Done)
    }
}
