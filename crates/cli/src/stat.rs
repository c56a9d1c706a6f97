//! `stormwell stat`: what is known about files and directories.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::{path, show};
use base::unit::WallTime;
use clap::Args;
use client::Attributes;
use serde_json::{Value, json};

/// Shows what is known about files and directories
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell stat /logs/today.log --json")]
pub struct Stat {
    /// The files or directories
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<String>,
}

/// A file or directory as an object.
pub fn object(path: &str, attributes: &Attributes) -> Value {
    json!({
        "path": path,
        "kind": kind(attributes),
        "bytes": attributes.length,
        "modified_ms": attributes.modified_ms,
        "accessed_ms": attributes.accessed_ms,
        "created_ms": attributes.created_ms,
        "owner": attributes.owner,
        "group": attributes.group,
        "mode": format!("{:04o}", attributes.mode & 0o7777),
        "open": attributes.open,
        "inode": attributes.inode,
        "generation": attributes.generation,
        "children": attributes.children,
    })
}

fn kind(attributes: &Attributes) -> &'static str {
    if attributes.directory { "directory" } else { "file" }
}

impl Stat {
    /// Shows them in the order given; the first error ends it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let paths = self.paths.iter().map(|text| path::parse(text)).collect::<base::error::Result<Vec<_>>>()?;
        let client = context.connect("stat").await?;
        let mut output = Output::open()?;
        for path in paths {
            let attributes = match client.stat(&path).await {
                Ok(attributes) => attributes,
                Err(error) => {
                    output.flush()?;
                    return Err(error.into());
                }
            };
            let (_, wishes) = client.get_policy(&path).await?;
            let compression = wishes.compression.unwrap_or_default().name();
            if context.json {
                let mut object = object(&path, &attributes);
                object["compression"] = compression.into();
                output.json(&object)?;
                continue;
            }
            output.line(&format!("path        {}", output.name(&path)))?;
            output.line(&format!("kind        {}", kind(&attributes)))?;
            output.line(&format!("bytes       {}", attributes.length))?;
            if let Some(children) = attributes.children {
                output.line(&format!("children    {children}"))?;
            }
            output.line(&format!("modified    {} UTC", show::date(WallTime(attributes.modified_ms))))?;
            output.line(&format!("accessed    {} UTC", show::date(WallTime(attributes.accessed_ms))))?;
            output.line(&format!("created     {} UTC", show::date(WallTime(attributes.created_ms))))?;
            let bits = format!("{:04o}", attributes.mode & 0o7777);
            output.line(&format!("mode        {}  {bits}", show::mode(attributes.directory, attributes.mode)))?;
            output.line(&format!("owner       {}", output.name(show::said(&attributes.owner))))?;
            output.line(&format!("group       {}", output.name(show::said(&attributes.group))))?;
            output.line(&format!("open        {}", if attributes.open { "yes, for writing" } else { "no" }))?;
            output.line(&format!(
                "compressed  {compression}{}",
                if attributes.directory { ", new files" } else { ", new bytes" }
            ))?;
            output.line(&format!("inode       {}", attributes.inode))?;
            output.line(&format!("generation  {}", attributes.generation))?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}
