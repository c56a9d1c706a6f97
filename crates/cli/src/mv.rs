//! `stormwell mv`: moves files and directories, atomically each.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::path;
use base::error::{Error, ErrorKind};
use clap::Args;

/// Moves a file or directory to another name, or into a directory that exists
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell mv --replace /results/new.csv /results/current.csv")]
pub struct Mv {
    /// Replace a file, or an empty directory, of that name
    #[arg(long)]
    replace: bool,
    /// What is moved
    #[arg(value_name = "FROM")]
    from: String,
    /// Its new name, or the directory it goes into
    #[arg(value_name = "TO")]
    to: String,
}

impl Mv {
    /// Moves it. Into a directory that exists, like `mv`, except with `--replace` of a directory by a directory.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let (from, mut to) = (path::parse(&self.from)?, path::parse(&self.to)?);
        let Some(name) = path::last_name(&from) else {
            return Err(Error::new(ErrorKind::Invalid, "the root directory cannot be moved").into());
        };
        let client = context.connect("mv").await?;
        match client.stat(&to).await {
            Ok(found) if found.directory => to = path::join(&to, name),
            Ok(_) if self.to.ends_with('/') => {
                return Err(Error::new(ErrorKind::Invalid, format!("{to} is a file, not a directory")).into());
            }
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        client.rename(&from, &to, self.replace).await.map_err(|error| match error.kind() {
            ErrorKind::Exists if !self.replace => {
                Error::new(ErrorKind::Exists, format!("{to} exists already; use --replace to put {from} in its place"))
            }
            _ => error,
        })?;
        Ok(Exit::Done)
    }
}
