//! `stormwell config`: looks at a configuration without serving.

use crate::context::Context;
use crate::exit::{Exit, Result, say};
use crate::output::Output;
use crate::settings::key::KEYS;
use crate::settings::{self, FILE_UNSAID, Fault, Origin, Said};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Looks at a node's configuration
#[derive(Debug, Args)]
pub struct Config {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(Check),
    Keys(Keys),
}

/// Lists every key: its variable, what counts unless it is said, what it does
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell config keys --json")]
struct Keys {}

/// Names every fault of a configuration
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  stormwell config check
  stormwell config check /etc/stormwell/stormwell.toml --json

Looks at FILE, at the environment and at the files that they name, as `stormwell serve` would, and changes nothing. Ends with 0 if nothing
is wrong, else with 2 and one line for each fault on stdout: where it is, which key, what is wrong.")]
struct Check {
    /// The configuration; without it --config's, or stormwell.toml
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Config {
    /// Looks and says what it sees.
    pub fn run(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::Check(check) => check.run(context),
            Command::Keys(keys) => keys.run(context),
        }
    }
}

impl Keys {
    fn run(self, context: &Context) -> Result<Exit> {
        let mut output = Output::open()?;
        for key in KEYS {
            let (name, variable, default, what) = (key.name, key.variable(), key.unless_said, key.what);
            if context.json {
                output.json(&json!({ "key": name, "variable": variable, "default": default, "what": what }))?;
            } else {
                output.line(&format!("{name}  ({variable}; {default})\n    {what}"))?;
            }
        }
        output.flush()?;
        Ok(Exit::Done)
    }
}

impl Check {
    /// Looks and says what is wrong.
    fn run(self, context: &Context) -> Result<Exit> {
        let Check { file } = self;
        let file = file.or_else(|| context.config.clone()).unwrap_or_else(|| PathBuf::from(FILE_UNSAID));
        let faults = faults(&file)?;
        let mut output = Output::open()?;
        for fault in &faults {
            if context.json {
                output.json(&shown(fault))?;
            } else {
                output.line(&fault.to_string())?;
            }
        }
        output.flush()?;
        if !context.quiet {
            let count = match faults.len() {
                0 => "nothing is wrong".to_string(),
                1 => "1 fault".to_string(),
                count => format!("{count} faults"),
            };
            say(&format!("stormwell: {}: {count}", file.display()));
        }
        Ok(if faults.is_empty() { Exit::Done } else { Exit::Usage })
    }
}

/// Everything that is wrong with a file and the environment.
fn faults(file: &Path) -> base::error::Result<Vec<Fault>> {
    let (said, mut faults) = settings::gather(Said::default(), Some(file))?;
    if let Err(more) = settings::serving(&said) {
        faults.extend(more);
    }
    Ok(faults)
}

fn shown(fault: &Fault) -> serde_json::Value {
    let (what, advice) = fault.text.rsplit_once("; ").unwrap_or((&fault.text, ""));
    let (file, line, variable) = match &fault.origin {
        Some(Origin::Line(file, line)) => (Some(file.display().to_string()), Some(*line), None),
        Some(Origin::Variable(name)) => (None, None, Some(name.clone())),
        Some(Origin::Option(_)) | None => (None, None, None),
    };
    json!({ "file": file, "line": line, "variable": variable, "key": fault.key, "fault": what, "advice": advice })
}
