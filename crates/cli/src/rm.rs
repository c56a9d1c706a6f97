//! `stormwell rm`: removes files and directories.

use crate::context::Context;
use crate::exit::{Exit, Result, report};
use crate::path;
use base::error::{Error, ErrorKind};
use clap::Args;

/// Removes files, and with -r directories with everything below
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell rm -r /logs/2025")]
pub struct Rm {
    /// Remove directories with everything below them
    #[arg(short, long)]
    recursive: bool,
    /// What is removed
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

impl Rm {
    /// Removes what can be removed, and reports the rest.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        if paths.iter().any(|path| path == "/") {
            return Err(
                Error::new(ErrorKind::Invalid, "the root directory cannot be removed; name what is in it").into()
            );
        }
        let client = context.connect("rm").await?;
        let mut exit = Exit::Done;
        for path in &paths {
            let Err(mut error) = self.remove(&client, path).await else { continue };
            if error.kind() == ErrorKind::Unreachable || paths.len() == 1 {
                return Err(error.into());
            }
            if !error.text().contains(path.as_str()) {
                error = error.during(path);
            }
            report(&error);
            exit = Exit::Failed;
        }
        Ok(exit)
    }

    async fn remove(&self, client: &client::Client, path: &str) -> base::error::Result<()> {
        if !self.recursive && client.stat(path).await?.directory {
            let text = format!("{path} is a directory; use -r to remove it with everything below");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        client.delete(path, self.recursive).await
    }
}
