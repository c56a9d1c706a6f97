//! `stormwell touch`: makes empty files, and sets times.

use crate::context::Context;
use crate::exit::{Exit, Result, report};
use crate::path;
use base::error::ErrorKind;
use base::unit::WallTime;
use clap::Args;
use client::{Client, NewAttributes};

/// Makes empty files where nothing is, and sets the times of files and directories
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell touch /done
  stormwell touch --time-ms 1795226106000 /logs/today.log

Reads are not noted: an access time is what somebody set.")]
pub struct Touch {
    /// Set the access time only
    #[arg(short, long)]
    access: bool,
    /// Set the modification time only
    #[arg(short, long)]
    modification: bool,
    /// Make nothing
    #[arg(short = 'c', long)]
    no_create: bool,
    /// The time to set, in milliseconds since 1970; now by default
    #[arg(long, value_name = "MS")]
    time_ms: Option<u64>,
    /// The files or directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

impl Touch {
    /// Touches them in the order given; what fails is reported, the rest is done.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        let client = context.connect("touch").await?;
        let WallTime(now) = context.clock.wall();
        let time = self.time_ms.unwrap_or(now);
        let both = self.access == self.modification;
        let new = NewAttributes {
            modified_ms: (both || self.modification).then_some(time),
            accessed_ms: (both || self.access).then_some(time),
            ..NewAttributes::default()
        };
        let mut exit = Exit::Done;
        for path in &paths {
            let Err(error) = self.touch(&client, path, &new).await else { continue };
            if error.kind() == ErrorKind::Unreachable || paths.len() == 1 {
                return Err(error.into());
            }
            report(&error);
            exit = Exit::Failed;
        }
        Ok(exit)
    }

    async fn touch(&self, client: &Client, path: &str, new: &NewAttributes) -> base::error::Result<()> {
        match client.set_attributes(path, new.clone()).await {
            Err(error) if error.kind() == ErrorKind::NotFound && self.no_create => return Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result,
        }
        match client.create_empty(path).await {
            // Somebody else made it meanwhile.
            Err(error) if error.kind() == ErrorKind::Exists => {}
            Err(error) => return Err(error),
            Ok(()) if self.time_ms.is_none() && !self.access && !self.modification => return Ok(()),
            Ok(()) => {}
        }
        client.set_attributes(path, new.clone()).await
    }
}
