//! The server of a trial: the real program as a child, killed with SIGKILL and started again.

use super::report::{Finding, Found, Kind};
use base::env::Random;
use base::error::{Error, ErrorKind, Result};
use sim::random::SimRandom;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A server that does not serve after so long never will. Long, because the machine may be busy with something else.
const READY_WAIT: Duration = Duration::from_secs(180);

/// What it says when it serves, before its address.
const SERVING: &str = "stormwell: serving on ";

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

/// A server that serves.
pub struct Server {
    child: Child,
    said: Said,
    /// Where it listens.
    pub address: String,
}

type Said = Arc<Mutex<Vec<String>>>;

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
        let server = Server::start(self.command(random)).await?;
        server.check_words()?;
        Ok(server)
    }
}

/// Starts a server, and kills it so much later, wherever it has come to.
pub async fn start_and_kill(command: Command, after: Duration) -> Result<()> {
    let mut child = spawn(command)?;
    // What it says is thrown away with the pipe, which holds far more than it says.
    tokio::time::sleep(after).await;
    end(&mut child);
    Ok(())
}

fn spawn(mut command: Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: prctl is a plain system call, safe between fork and exec; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command.spawn().map_err(|error| Error::from(error).during("start stormwell serve"))
}

impl Server {
    /// Starts a server and waits until it serves.
    pub async fn start(command: Command) -> Found<Server> {
        let mut child = spawn(command)?;
        let said = Said::default();
        let Some(stderr) = child.stderr.take() else { unreachable!("stderr was asked for") };
        let (tell, told) = oneshot::channel();
        listen(stderr, said.clone(), tell)?;
        let what = match timeout(READY_WAIT, told).await {
            Ok(Ok(address)) => return Ok(Server { child, said, address }),
            Ok(Err(_)) => "ended before it served".to_string(),
            Err(_) => format!("does not serve after {} s", READY_WAIT.as_secs()),
        };
        end(&mut child);
        let words = said.lock().unwrap_or_else(PoisonError::into_inner).join(" | ");
        Err(Finding::new(Kind::Trouble, format!("the server {what}: {words}")))
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Sends it a signal, which ends nothing by itself.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is ours and not waited for yet, so its id is nobody else's.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// The lines that it has said so far.
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Refuses what a server that lost nothing has no reason to say.
    pub fn check_words(&self) -> Found<()> {
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
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match said.iter().find(|line| !FINE.iter().any(|fine| line.contains(fine))) {
            None => Ok(()),
            Some(line) => Err(Finding::new(Kind::Trouble, format!("the server said: {line}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn end(child: &mut Child) {
    // One that has ended already is fine.
    let _ = child.kill();
    let _ = child.wait();
}

/// Reads what the server says to its end, in a thread of its own.
fn listen(stderr: ChildStderr, said: Said, tell: oneshot::Sender<String>) -> Result<()> {
    os::thread::spawn("server-stderr", move || {
        let mut tell = Some(tell);
        for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
            let address = line.strip_prefix(SERVING).map(str::to_string);
            said.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            if let Some((address, tell)) = address.and_then(|address| Some((address, tell.take()?))) {
                // Nobody waits any more: then nobody minds.
                let _ = tell.send(address);
            }
        }
    })
    .map(drop)
}

/// A directory of this process that goes with it, unless something was found in it.
pub struct Scratch {
    /// Where it is, absolute.
    pub path: PathBuf,
    kept: bool,
}

impl Scratch {
    /// Makes a fresh directory beside the program, which lies on a real disk more surely than /tmp.
    pub fn new(name: &str) -> Result<Scratch> {
        let beside = std::env::current_exe()?.with_file_name("trials");
        let path = beside.join(format!("{name}-{}", std::process::id()));
        let scratch = Scratch { path, kept: false };
        scratch.clear()?;
        Ok(scratch)
    }

    /// Removes what is in it.
    pub fn clear(&self) -> Result<()> {
        remove(&self.path)?;
        os::file::create_directories(&self.path)
    }

    /// Leaves it where it is, for people to look at.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from(error).during(format!("remove {}", path.display())))
        }
        _ => Ok(()),
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.kept {
            // What cannot be removed stays, under a name that says whose it was.
            let _ = remove(&self.path);
        }
    }
}
