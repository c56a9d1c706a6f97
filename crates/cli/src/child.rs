//! `stormwell serve` and other commands of this same program as child processes, which end with us whatever happens.

use crate::exit::{report, say};
use crate::settings::key::KEYS;
use crate::settings::{ADDRESS_VARIABLE, FILE_VARIABLE};
use base::error::{Error, Result};
use harness::child::{self, Child};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A server that has not said that it serves after so long never will.
const READY_WAIT: Duration = Duration::from_secs(60);

/// From here on SIGINT and SIGTERM kill our children by their ids, remove our directories, and end this process.
/// Must be called within a tokio runtime.
pub fn end_all_when_told() {
    tokio::spawn(async {
        match os::signal::end().await {
            Ok(signal) => {
                say(&format!("stormwell: {signal}: ending what was started and removing what was made"));
                harness::end_all();
                // As a shell counts an end by SIGINT.
                std::process::exit(130);
            }
            // Then signals end this process as they always do, and its children with it.
            Err(error) => report(&error),
        }
    });
}

/// This program, run with other arguments.
pub fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::from(error).during("find the program that is running"))
}

/// Variables that a server of our own follows, too: how its disks are driven and its log looks.
const KEPT: [&str; 2] = ["disk", "log"];

/// This program, without what the environment says of a node or a cluster: it must not join anything.
fn plain() -> Result<Command> {
    let mut command = Command::new(program()?);
    command.env_remove(FILE_VARIABLE).env_remove(ADDRESS_VARIABLE);
    for key in KEYS.iter().filter(|key| !KEPT.contains(&key.name)) {
        command.env_remove(key.variable());
    }
    Ok(command)
}

/// Starts `stormwell ARGUMENTS`. Its stdout is thrown away.
pub fn start(arguments: &[&str]) -> Result<Child> {
    let mut command = plain()?;
    command.args(arguments);
    Child::start(format!("stormwell {}", arguments.join(" ")), command)
}

/// Runs a command of this program to its end. An exit code other than 0 is an error that quotes the end of its stderr.
pub fn run(arguments: &[&str]) -> Result<()> {
    start(arguments)?.finish()
}

/// A `stormwell serve` of our own, on a free port of the loopback.
pub struct Server {
    /// Its `--data` arguments.
    data: Vec<String>,
    server: child::Server,
}

impl Server {
    /// Starts a server with these `--data` arguments and waits until it serves.
    pub fn start(data: &[String]) -> Result<Server> {
        Ok(Server { data: data.to_vec(), server: serve("127.0.0.1:0", data)? })
    }

    /// Where it listens, `host:port`.
    pub fn address(&self) -> &str {
        &self.server.address
    }

    /// Its process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.server.child
    }

    /// Starts it again where it was, on the same port and data, after it ended.
    pub fn start_again(&mut self) -> Result<()> {
        self.server.child.kill();
        self.server = serve(&self.server.address, &self.data)?;
        Ok(())
    }
}

fn serve(at: &str, data: &[String]) -> Result<child::Server> {
    let mut command = plain()?;
    command.args(["serve", "--at", at]).args(data.iter().flat_map(|directory| ["--data", directory]));
    child::Server::start(command, READY_WAIT)
}
