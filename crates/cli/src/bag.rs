//! `stormwell bag`: bags of chunks, for work that many producers hand to many consumers.

mod create;
mod cut;
mod ls;
mod pull;
mod push;
mod rewind;
mod rm;
mod seal;
mod stat;

use crate::context::Context;
use crate::exit::{Exit, Result};
use base::error::{Error, ErrorKind};
use base::id::NodeId;
use clap::{Args, Subcommand};
use client::{Client, Scope};

/// Works with bags: unordered sets of chunks that producers push and consumers pull
#[derive(Debug, Args)]
#[command(after_help = "Example:
  stormwell bag create work && stormwell bag push work big.log --lines && stormwell bag seal work
  stormwell bag pull work --exec 'grep -c ERROR' -j 4")]
pub struct Bag {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Create(create::Create),
    Push(push::Push),
    Pull(pull::Pull),
    Seal(seal::Seal),
    Rewind(rewind::Rewind),
    Stat(stat::Stat),
    Ls(ls::Ls),
    Rm(rm::Rm),
}

impl Bag {
    /// Runs the command.
    pub async fn run(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::Create(command) => command.run(context).await,
            Command::Push(command) => command.run(context).await,
            Command::Pull(command) => command.run(context).await,
            Command::Rewind(command) => command.run(context).await,
            Command::Seal(command) => command.run(context).await,
            Command::Stat(command) => command.run(context).await,
            Command::Ls(command) => command.run(context).await,
            Command::Rm(command) => command.run(context).await,
        }
    }
}

/// What a scope means: `cluster`, `here`, or a node.
async fn scope(client: &Client, said: &str) -> Result<Scope> {
    match said {
        "cluster" => Ok(Scope::Cluster),
        "here" => client.here().map(Scope::Node).ok_or_else(|| {
            let text = "the node that was asked is not on this machine, so nothing is here; nothing was done; name a node that \
                        `stormwell node ls` lists, or the node of this machine with --at HOST:PORT";
            Error::new(ErrorKind::Invalid, text).into()
        }),
        node => Ok(Scope::Node(NodeId(crate::node::named(client, node).await?.node.node.value()))),
    }
}

/// A missing bag is the most likely mistake, so it gets its own hint.
fn missing(error: Error, name: &str) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!(
                "there is no bag named {name}; make it with `stormwell bag create {name}`, or see `stormwell bag ls`"
            ),
        ),
        _ => error,
    }
}
