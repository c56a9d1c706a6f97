//! The server of a trial: the real program as a child, killed with SIGKILL and started again.

use super::report::{Finding, Found, Kind};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use harness::child::{SERVING, Server};
use harness::scratch::Scratch;
use sim::random::SimRandom;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A server that does not serve after so long never will. Long, because the machine may be busy with something else.
const READY_WAIT: Duration = Duration::from_secs(180);

/// How servers are started.
#[derive(Clone)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// `STORMWELL_DISK`.
    pub disk: &'static str,
    /// The sync that is left out, if any.
    pub skip: Option<&'static str>,
    /// Its `--data` arguments.
    pub data: Vec<String>,
}

/// The program `stormwell` beside this one.
pub fn program() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("stormwell");
    if os::file::exists(&path)? {
        return Ok(path);
    }
    let text = format!("{} is not there; build it with cargo build --release --workspace --bins", path.display());
    Err(Error::new(ErrorKind::NotFound, text))
}

impl Launch {
    fn command(&self, random: &SimRandom) -> Command {
        let mut command = Command::new(&self.program);
        // What a trial does not use is off: another server may have the usual ports, and somebody's client may know a free one from the
        // server that had it before, of both of which this one would have to tell.
        command.args(["--quiet", "serve", "--at", "127.0.0.1:0", "--console", "off", "--hdfs", "off"]);
        for data in &self.data {
            command.args(["--data", data]);
        }
        command.env("STORMWELL_DISK", self.disk).env("STORMWELL_SEED", random.next().to_string());
        command.env_remove("STORMWELL_SKIP_SYNC");
        if let Some(skip) = self.skip {
            command.env("STORMWELL_SKIP_SYNC", skip);
        }
        command
    }

    /// Starts a server, and kills it so much later, wherever it has come to.
    pub async fn start_and_kill(&self, random: &SimRandom, after: Duration) -> Result<()> {
        start_and_kill(self.command(random), after).await
    }

    /// Starts a server and waits until it serves.
    pub async fn start(&self, random: &SimRandom) -> Found<Server> {
        let server = start(self.command(random)).await?;
        check_words(&server)?;
        Ok(server)
    }
}

/// Starts a server, and kills it so much later, wherever it has come to.
pub async fn start_and_kill(command: Command, after: Duration) -> Result<()> {
    let _child = Server::begin(command)?;
    tokio::time::sleep(after).await;
    Ok(())
}

/// Starts a server and waits until it serves, while other trials go on.
pub async fn start(command: Command) -> Result<Server> {
    let (child, ready) = Server::begin(command)?;
    // Only the wait is another thread's: a child ends with the thread that started it.
    let address = tokio::task::spawn_blocking(move || ready.wait(READY_WAIT)).await;
    Ok(Server { child, address: address.map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?? })
}

/// Refuses what a server that lost nothing has no reason to say.
pub fn check_words(server: &Server) -> Found<()> {
    const FINE: [&str; 8] = [
        SERVING,
        " info start serving at=",
        " info start disks are volatile, for trials only",
        ": made a new device of ",
        // Killed in its first start, between making the device and entering it. One that had something of the store and is empty shows
        // in what is compared.
        ": this device was empty and none of the store's; ",
        " refuses O_DIRECT; ",
        "threads are used instead",
        // Of a machine that stood still: the connection is made again, and nothing was promised on it.
        " disconnected: nothing came for ",
    ];
    match server.child.said().iter().find(|line| !FINE.iter().any(|fine| line.contains(fine))) {
        None => Ok(()),
        Some(line) => Err(Finding::new(Kind::Trouble, format!("the server said: {line}"))),
    }
}

/// A fresh directory beside the program, which lies on a real disk more surely than /tmp.
pub fn scratch(name: &str) -> Result<Scratch> {
    let beside = std::env::current_exe()?.with_file_name("trials");
    // Made first, so that it stays when the scratch goes: others may be about to make theirs in it.
    os::file::create_directories(&beside)?;
    Scratch::new(&beside, name)
}
