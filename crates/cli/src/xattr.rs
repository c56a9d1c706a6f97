//! `stormwell xattr`: extended attributes of files and directories.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::path;
use clap::{Args, Subcommand};
use serde_json::json;

/// Shows and sets extended attributes: names with a value of any bytes, kept with a file or directory
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Xattr {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the names of extended attributes
    #[command(
        after_help = "Example:\n  stormwell xattr ls /data/table\n\nWith --json each line has the value, too, in hexadecimal."
    )]
    Ls {
        /// The file or directory
        path: String,
    },
    /// Writes the value of an extended attribute to stdout as it is
    #[command(after_help = "Example:\n  stormwell xattr get /data/table user.schema")]
    Get {
        /// The file or directory
        path: String,
        /// Its name, with the namespace
        name: String,
    },
    /// Sets an extended attribute
    #[command(
        after_help = "Example:\n  stormwell xattr set /data/table user.schema v7\n\nNames begin with a namespace, as in user.NAME; no namespace has a meaning of its own yet."
    )]
    Set {
        /// The file or directory
        path: String,
        /// Its name, with the namespace
        name: String,
        /// Its value
        value: String,
    },
    /// Removes an extended attribute
    #[command(after_help = "Example:\n  stormwell xattr rm /data/table user.schema")]
    Rm {
        /// The file or directory
        path: String,
        /// Its name, with the namespace
        name: String,
    },
}

impl Xattr {
    /// Does it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let client = context.connect("xattr").await?;
        match self.command {
            Command::Ls { path } => {
                let path = path::parse(&path)?;
                let mut output = Output::open()?;
                for (name, value) in client.xattrs(&path).await? {
                    if context.json {
                        let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                        output.json(&json!({ "path": path, "name": name, "value_hex": hex }))?;
                    } else {
                        output.line(&output.name(&name))?;
                    }
                }
                output.flush()?;
            }
            Command::Get { path, name } => {
                let value = client.xattr(&path::parse(&path)?, &name).await?;
                Output::open()?.bytes(&value)?;
            }
            Command::Set { path, name, value } => {
                client.set_xattr(&path::parse(&path)?, &name, Some(value.into_bytes())).await?;
            }
            Command::Rm { path, name } => client.set_xattr(&path::parse(&path)?, &name, None).await?,
        }
        Ok(Exit::Done)
    }
}
