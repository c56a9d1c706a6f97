//! `stormwell ls`: lists a directory page by page, so that one with millions of names needs no memory here.

use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::output::Output;
use crate::{path, show, stat};
use base::unit::WallTime;
use clap::{ArgAction, Args};
use client::{Attributes, Client, Listing};

/// Lists a directory of the store, in the order of the names' bytes
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "Example:\n  stormwell ls -l -h /logs\n\nTimes are UTC. With -R every line is a path below PATH."
)]
pub struct Ls {
    /// Mode, owner, group, size, time and name
    #[arg(short, long)]
    long: bool,
    /// Sizes for people: 1.5 GiB
    #[arg(short, long)]
    human: bool,
    /// Everything below
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
    /// The directory, or one file
    #[arg(default_value = "/")]
    path: String,
}

impl Ls {
    /// Lists it.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        let path = path::parse(&self.path)?;
        let client = context.connect("ls").await?;
        let mut output = Output::open()?;
        let attributes = client.stat(&path).await?;
        if attributes.directory {
            self.directory(context, &client, &path, &mut output).await?;
        } else {
            self.entry(context, &path, &path, &attributes, &mut output)?;
        }
        output.flush()?;
        Ok(Exit::Done)
    }

    /// Lists a directory, and with `-R` what is below, depth first: at any time one page of each directory on the way
    /// down is held.
    async fn directory(&self, context: &Context, client: &Client, top: &str, output: &mut Output) -> Result<()> {
        let mut open: Vec<(String, Listing)> = vec![(top.to_string(), client.list_all(top))];
        while let Some((directory, listing)) = open.last_mut() {
            let entry = match listing.next().await {
                Ok(Some(entry)) => entry,
                Ok(None) => {
                    open.pop();
                    continue;
                }
                // Below the top, a directory that somebody removes meanwhile is no error.
                Err(error) if error.kind() == base::error::ErrorKind::NotFound && open.len() > 1 => {
                    open.pop();
                    continue;
                }
                Err(error) => {
                    output.flush()?;
                    return Err(error.into());
                }
            };
            let path = path::join(directory, &entry.name);
            let shown = path.strip_prefix(top).unwrap_or(&path).trim_start_matches('/');
            self.entry(context, &path, shown, &entry.attributes, output)?;
            if self.recursive && entry.attributes.directory {
                let listing = client.list_all(&path);
                open.push((path, listing));
            }
        }
        Ok(())
    }

    fn entry(
        &self,
        context: &Context,
        path: &str,
        shown: &str,
        attributes: &Attributes,
        output: &mut Output,
    ) -> Result<()> {
        if context.json {
            return output.json(&stat::object(path, attributes));
        }
        let name = output.name(shown);
        let line = if self.long { output.name(&long_line(&name, attributes, self.human)) } else { name };
        output.line(&line)
    }
}

/// `-rw-r--r-- ada      staff            1234  2026-11-21 01:55:06  name`, with a slash behind directories.
fn long_line(name: &str, attributes: &Attributes, human: bool) -> String {
    let size = if attributes.directory { "-".to_string() } else { show::size(attributes.length, human) };
    let mode = show::mode(attributes.directory, attributes.mode);
    let date = show::date(WallTime(attributes.modified_ms));
    let slash = if attributes.directory { "/" } else { "" };
    let width = if human { 9 } else { 13 };
    let (owner, group) = (show::said(&attributes.owner), show::said(&attributes.group));
    format!("{mode} {owner:<8} {group:<8} {size:>width$}  {date}  {name}{slash}")
}

#[cfg(test)]
mod tests {
    use super::long_line;
    use client::Attributes;

    /// Columns stay where they are, whatever the size.
    #[test]
    fn long_lines() {
        let (owner, group) = ("ada".to_string(), "research".to_string());
        let file = Attributes { length: 3 << 29, mode: 0o640, owner, group, ..Attributes::default() };
        let exact = "-rw-r----- ada      research    1610612736  1970-01-01 00:00:00  a b";
        assert_eq!(long_line("a b", &file, false), exact);
        let rounded = "-rw-r----- ada      research   1.5 GiB  1970-01-01 00:00:00  a b";
        assert_eq!(long_line("a b", &file, true), rounded);
        let directory = Attributes { directory: true, mode: 0o755, ..Attributes::default() };
        assert_eq!(long_line("d", &directory, true), "drwxr-xr-x -        -                -  1970-01-01 00:00:00  d/");
    }
}
