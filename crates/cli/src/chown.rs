//! `stormwell chown`: who owns files and directories.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::{below, path};
use base::error::{Error, ErrorKind};
use clap::Args;
use client::NewAttributes;

/// Sets owner and group of files and directories
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell chown ada:research -R /data
  stormwell chown :research /data/shared

Owners are names, not numbers, and need not exist on any machine. The owner is given by whoever runs the server, or is in
supergroup; the group also by the owner, to a group that the owner is in.")]
pub struct Chown {
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// The owner, the group, or both
    #[arg(value_name = "OWNER[:GROUP]")]
    owner: String,
    /// The files or directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

impl Chown {
    /// Sets them; what fails is reported, the rest is done.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        let (owner, group) = self.owner.split_once(':').unwrap_or((&self.owner, ""));
        let named = |name: &str| (!name.is_empty()).then(|| name.to_string());
        let new = NewAttributes { owner: named(owner), group: named(group), ..NewAttributes::default() };
        if new == NewAttributes::default() {
            return Err(Error::new(
                ErrorKind::Invalid,
                "neither owner nor group is named; write OWNER, OWNER:GROUP or :GROUP",
            )
            .into());
        }
        let client = context.connect("chown").await?;
        below::each(&client, &paths, self.recursive, |client, path, _| {
            let new = new.clone();
            async move { client.set_attributes(&path, new).await }
        })
        .await
    }
}
