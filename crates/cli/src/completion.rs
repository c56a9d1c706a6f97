//! `stormwell completion`: what a shell needs to complete our words.

use crate::command::Line;
use crate::exit::{Exit, Result};
use crate::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

/// Prints the completion script of a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  stormwell completion bash > /etc/bash_completion.d/stormwell")]
pub struct Completion {
    /// The shell
    shell: Shell,
}

impl Completion {
    /// Prints the script.
    pub fn run(self) -> Result<Exit> {
        let mut script = Vec::new();
        generate(self.shell, &mut Line::command(), "stormwell", &mut script);
        Output::open()?.bytes(&script)?;
        Ok(Exit::Done)
    }
}
