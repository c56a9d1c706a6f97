//! The nodes of a trial's cluster: their configurations as an operator writes them, and their processes.

use super::network::{Namespace, Network, address};
use crate::trials::image::{Mounted, make_file};
use crate::trials::report::{Counts, Finding, Found, Kind};
use crate::trials::server;
use crate::trials::store::CAPACITY;
use crate::trials::tool;
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use base::id::ClusterId;
use harness::child::Server;
use net::{Credentials, Secret};
use sim::random::SimRandom;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where every node listens.
const PORT: u16 = 7400;

/// The first is the node that keeps the metadata, or the first three are.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Size of the file system of a node whose disk will be full: room for its device and the metadata store's files.
const SMALL_BYTES: u64 = 2 * CAPACITY;

/// A node that was told to end has ended after this long.
const END_WAIT: Duration = Duration::from_secs(60);
const END_PAUSE: Duration = Duration::from_millis(20);

/// A node of the cluster.
pub struct Node {
    /// Its name.
    pub name: &'static str,
    /// Where it is reached.
    pub address: String,
    program: PathBuf,
    configuration: PathBuf,
    data: PathBuf,
    namespace: Namespace,
    server: Option<Server>,
    /// What its processes said that are gone.
    log: Vec<String>,
    /// Its disk, if it has one of its own. After `server`, which uses it.
    disk: Option<Mounted>,
}

/// Makes a new cluster: the files that all its nodes have. `keepers`: the nodes that keep its metadata, if several do.
pub fn init(program: &Path, directory: &Path, keepers: &[String]) -> Result<Credentials> {
    let file = directory.join("stormwell.toml");
    let program = program.display().to_string();
    let keepers = keepers.join(",");
    let words: [&str; 5] = [&program, "--quiet", "init", "--keepers", &keepers];
    tool::run(if keepers.is_empty() { &words[..3] } else { &words }, &[&file])?;
    let secret = Secret::from_hex(&os::file::read_text(&file.with_extension("secret"))?)?;
    let text = os::file::read_text(&file)?;
    let id = text.lines().find_map(|line| line.strip_prefix("cluster = \"")?.strip_suffix('"'));
    let Some(id) = id.and_then(ClusterId::from_hex) else {
        return Err(Error::new(ErrorKind::Invalid, format!("{} names no cluster", file.display())));
    };
    Ok(Credentials { cluster: Some(id), secret: Some(secret) })
}

/// Where the node on this host listens.
pub fn address_of(host: usize) -> String {
    format!("{}:{PORT}", address(host))
}

impl Node {
    /// The node on this host of the network, not started yet. `alone`: the first node keeps the metadata alone, else those do that the cluster's files
    /// name. `own_disk`: its device is on a file system of its own, which can be full.
    pub fn new(
        (program, directory): (&Path, &Path),
        network: &Network,
        host: usize,
        (alone, own_disk): (bool, bool),
    ) -> Result<Node> {
        let name = NAMES[host];
        let data = directory.join(name);
        os::file::create_directories(&data)?;
        let mut disk = None;
        if own_disk {
            let image = directory.join(format!("{name}.img"));
            make_file(&image, SMALL_BYTES)?;
            tool::run(&["mkfs.ext4", "-q", "-F", "-m", "0"], &[&image])?;
            disk = Some(Mounted::new(&image, &data)?);
        }
        let meta = match (alone, host) {
            (false, _) => String::new(),
            (true, 0) => "meta = \"local\"\n".to_string(),
            (true, _) => format!("meta = \"node://{}\"\n", address_of(0)),
        };
        let address = address_of(host);
        let written = os::file::read_text(&directory.join("stormwell.toml"))?;
        let shared = written.lines().filter(|line| !line.starts_with("meta ")).collect::<Vec<_>>().join("\n");
        let own = format!(
            "\nname = \"{name}\"\nlisten = \"{address}\"\n{meta}data = [\"{name}/device:ssd:{CAPACITY}\"]\n\
             console = \"off\"\nhdfs = \"off\"\n"
        );
        let configuration = directory.join(format!("{name}.toml"));
        os::file::replace(&configuration, (shared + &own).as_bytes())?;
        let namespace = network.namespace(host)?;
        let program = program.to_path_buf();
        Ok(Node { name, address, program, configuration, data, namespace, server: None, log: Vec::new(), disk })
    }

    fn command(&self, random: &SimRandom) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--quiet", "serve", "--config"]).arg(&self.configuration);
        command.env("STORMWELL_SEED", random.next().to_string());
        self.namespace.hold(&mut command);
        command
    }

    /// Starts it, if it does not run; sometimes it is killed while it starts, several times in a row.
    pub async fn start(&mut self, random: &SimRandom, counts: &mut Counts) -> Found<()> {
        if self.server.is_some() {
            return Ok(());
        }
        while random.below(3) == 0 {
            let after = Duration::from_micros(random.below(60_000));
            server::start_and_kill(self.command(random), after).await?;
            counts.stops += 1;
            counts.stops_at_start += 1;
        }
        self.start_at_once(random).await
    }

    /// Starts it and lets it serve.
    pub async fn start_at_once(&mut self, random: &SimRandom) -> Found<()> {
        let started = server::start(self.command(random)).await;
        self.server = Some(started.map_err(|error| error.during(self.name))?);
        Ok(())
    }

    /// Ends it as `kill -9` does, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.child.kill();
            self.log.extend(server.child.said());
            self.log.push("(killed)".to_string());
        }
    }

    /// It stands still until it is told to go on.
    pub fn pause(&self) {
        if let Some(server) = &self.server {
            server.child.signal(libc::SIGSTOP);
        }
    }

    /// It goes on.
    pub fn go_on(&self) {
        if let Some(server) = &self.server {
            server.child.signal(libc::SIGCONT);
        }
    }

    /// Tells it to end and waits until it has.
    pub async fn end(&mut self) -> Found<()> {
        let Some(mut server) = self.server.take() else { return Ok(()) };
        server.child.signal(libc::SIGTERM);
        let mut waited = Duration::ZERO;
        let status = loop {
            if let Some(status) = server.child.ended()? {
                break status;
            }
            if waited >= END_WAIT {
                let text = format!("node {} does not end within {} s", self.name, END_WAIT.as_secs());
                return Err(Finding::new(Kind::Trouble, text));
            }
            tokio::time::sleep(END_PAUSE).await;
            waited += END_PAUSE;
        };
        self.log.extend(server.child.said());
        if status.success() {
            return Ok(());
        }
        Err(Finding::new(Kind::Trouble, format!("node {} ended with {status} when it was told to end", self.name)))
    }

    /// Fills its disk to the last byte.
    pub fn fill_disk(&self) -> Result<()> {
        let ballast = self.data.join("ballast").display().to_string();
        // It ends when nothing more fits, which is no success for the tool.
        Command::new("dd").args(["if=/dev/zero", &format!("of={ballast}"), "bs=64K"]).output()?;
        Ok(())
    }

    /// Gives the room back.
    pub fn empty_disk(&self) -> Result<()> {
        let ballast = self.data.join("ballast");
        if os::file::exists(&ballast)? { os::file::remove(&ballast) } else { Ok(()) }
    }

    /// Everything that its processes said.
    pub fn said(&self) -> Vec<String> {
        let running = self.server.as_ref().map(|server| server.child.said()).unwrap_or_default();
        self.log.iter().cloned().chain(running).collect()
    }

    /// Refuses what no node has a reason to say, whatever happens to its neighbours: warnings are fine, faults are not.
    pub fn check_words(&self) -> Found<()> {
        let is_fault = |line: &&String| line.split(' ').nth(1) == Some("error") || line.contains("panicked");
        match self.said().iter().find(is_fault) {
            None => Ok(()),
            Some(line) => Err(Finding::new(Kind::Trouble, format!("node {} said: {line}", self.name))),
        }
    }

    /// Writes what it said beside its configuration.
    pub fn write_log(&self) -> Result<()> {
        let path = self.configuration.with_extension("log");
        os::file::replace(&path, (self.said().join("\n") + "\n").as_bytes())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Before its disk is unmounted.
        self.server = None;
        self.disk = None;
    }
}
