//! `stormwell serve` and other commands of this same program as child processes, which end with us whatever happens.

use crate::exit::{report, say};
use crate::settings::key::KEYS;
use crate::settings::{ADDRESS_VARIABLE, FILE_VARIABLE};
use base::error::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A server that has not said that it serves after so long never will.
const READY_WAIT: Duration = Duration::from_secs(60);

/// Last lines of a child's stderr that an error quotes.
const QUOTED_LINES: usize = 12;

/// What a server says when it serves, before its address.
const SERVING: &str = "stormwell: serving on ";

/// What must not outlive this process.
static OWNED: Mutex<Owned> = Mutex::new(Owned { processes: Vec::new(), directories: Vec::new() });

struct Owned {
    processes: Vec<u32>,
    /// Each with the directory above it, if that was made for it.
    directories: Vec<(PathBuf, Option<PathBuf>)>,
}

fn owned() -> MutexGuard<'static, Owned> {
    OWNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on SIGINT and SIGTERM kill our children by their ids, remove our directories, and end this process.
/// Must be called within a tokio runtime.
pub fn end_all_when_told() {
    tokio::spawn(async {
        match os::signal::end().await {
            Ok(signal) => {
                say(&format!("stormwell: {signal}: ending what was started and removing what was made"));
                end_all();
                // As a shell counts an end by SIGINT.
                std::process::exit(130);
            }
            // Then signals end this process as they always do, and its children with it.
            Err(error) => report(&error),
        }
    });
}

fn end_all() {
    let owned = owned();
    for process in &owned.processes {
        let Ok(id) = libc::pid_t::try_from(*process) else { continue };
        // SAFETY: kill is a plain system call, and the id is that of a child which nobody has reaped.
        unsafe { libc::kill(id, libc::SIGKILL) };
        // SAFETY: siginfo_t is plain numbers, for which all zeros is a value.
        let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // Waits until it is gone, and leaves it to be reaped by whoever holds it.
        // SAFETY: `about` is ours to be written.
        unsafe { libc::waitid(libc::P_PID, *process, &mut about, libc::WEXITED | libc::WNOWAIT) };
    }
    for (directory, parent) in &owned.directories {
        remove(directory, parent.as_deref());
    }
}

/// Removes a directory of ours, and the one above it if that was made for it and is empty now.
fn remove(directory: &Path, parent: Option<&Path>) {
    // What cannot be removed stays, under a name that says whose it was.
    let _ = std::fs::remove_dir_all(directory);
    if let Some(parent) = parent {
        let _ = std::fs::remove_dir(parent);
    }
}

/// This program, run with other arguments.
pub fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| Error::from(error).during("find the program that is running"))
}

/// A command that the kernel kills when the thread that started it ends. Start it from a thread that lives on.
pub fn bound(program: &Path) -> Command {
    let mut command = Command::new(program);
    // SAFETY: prctl is a plain system call, safe between fork and exec; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command
}

/// Variables that a server of our own follows, too: how its disks are driven and its log looks.
const KEPT: [&str; 2] = ["disk", "log"];

/// Keeps what the environment says of a node or a cluster from a command of our own: it must not join anything.
fn plain(command: &mut Command) {
    command.env_remove(FILE_VARIABLE).env_remove(ADDRESS_VARIABLE);
    for key in KEYS.iter().filter(|key| !KEPT.contains(&key.name)) {
        command.env_remove(key.variable());
    }
}

/// Runs a command of this program to its end. Its stdout is thrown away; an exit code other than 0 is an error that
/// quotes the end of its stderr.
pub fn run(arguments: &[&str]) -> Result<()> {
    Running::start(arguments)?.finish()
}

/// A command of this program that is running.
pub struct Running {
    what: String,
    child: Child,
    said: Said,
}

impl Running {
    /// Starts `stormwell ARGUMENTS`.
    pub fn start(arguments: &[&str]) -> Result<Running> {
        let what = format!("stormwell {}", arguments.join(" "));
        let mut command = bound(&program()?);
        plain(&mut command);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::from(error).during(format!("start {what}")))?;
        let stderr = child.stderr.take();
        owned().processes.push(child.id());
        let running = Running { what, said: Said::default(), child };
        if let Some(stderr) = stderr {
            running.said.listen(stderr, None)?;
        }
        Ok(running)
    }

    /// Whether it has ended.
    pub fn ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Result<()> {
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, format!("{} ended with {status}: {}", self.what, self.said.quoted())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Kills and reaps a child. A child that has ended already is fine.
fn end(child: &mut Child) {
    let _ = child.kill();
    // From here on its id is not ours to kill: the next line gives it back.
    owned().processes.retain(|process| *process != child.id());
    let _ = child.wait();
}

/// The last lines that a child wrote to its stderr.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    /// Reads a child's stderr to its end in a thread of its own; `serving` gets the address once the child serves.
    fn listen(&self, stderr: ChildStderr, mut serving: Option<SyncSender<String>>) -> Result<()> {
        let said = self.clone();
        os::thread::spawn("child-stderr", move || {
            for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
                if let Some(address) = line.strip_prefix(SERVING)
                    && let Some(serving) = serving.take()
                {
                    let address = address.split_whitespace().next().unwrap_or(address);
                    // Nobody waits any more: then nobody minds.
                    let _ = serving.try_send(address.to_string());
                }
                let mut lines = said.0.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() == QUOTED_LINES {
                    lines.pop_front();
                }
                lines.push_back(line);
            }
        })
        .map(drop)
    }

    fn quoted(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.is_empty() {
            return "it said nothing".to_string();
        }
        lines.iter().map(String::as_str).collect::<Vec<_>>().join(" | ")
    }
}

/// A `stormwell serve` of our own, on a free port of the loopback.
pub struct Server {
    /// Its `--data` arguments.
    data: Vec<String>,
    address: String,
    child: Child,
    said: Said,
}

impl Server {
    /// Starts a server with these `--data` arguments and waits until it serves.
    pub fn start(data: &[String]) -> Result<Server> {
        let (child, said, address) = Server::spawn("127.0.0.1:0", data)?;
        Ok(Server { data: data.to_vec(), address, child, said })
    }

    fn spawn(at: &str, data: &[String]) -> Result<(Child, Said, String)> {
        let mut command = bound(&program()?);
        plain(&mut command);
        command.arg("serve").args(["--at", at]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        for directory in data {
            command.args(["--data", directory]);
        }
        let mut child = command.spawn().map_err(|error| Error::from(error).during("start stormwell serve"))?;
        owned().processes.push(child.id());
        let said = Said::default();
        let (sender, receiver) = sync_channel(1);
        let listening = match child.stderr.take() {
            Some(stderr) => said.listen(stderr, Some(sender)),
            None => unreachable!("stderr was asked for"),
        };
        match listening.and_then(|()| Server::ready(&receiver, &said)) {
            Ok(address) => Ok((child, said, address)),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    fn ready(receiver: &Receiver<String>, said: &Said) -> Result<String> {
        receiver.recv_timeout(READY_WAIT).map_err(|error| {
            let what = match error {
                RecvTimeoutError::Timeout => format!("did not serve within {} s", READY_WAIT.as_secs()),
                RecvTimeoutError::Disconnected => "ended before it served".to_string(),
            };
            Error::new(ErrorKind::Io, format!("stormwell serve {what}: {}", said.quoted()))
        })
    }

    /// Where it listens, `host:port`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it with SIGKILL, in the middle of whatever it does, and waits until it is gone.
    pub fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Starts it again where it was, on the same port and data, after it ended.
    pub fn start_again(&mut self) -> Result<()> {
        end(&mut self.child);
        let (child, said, address) = Server::spawn(&self.address, &self.data)?;
        (self.child, self.said, self.address) = (child, said, address);
        Ok(())
    }

    /// An error if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(Error::new(
                ErrorKind::Io,
                format!("stormwell serve ended by itself with {status}: {}", self.said.quoted()),
            )),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// A directory of our own that goes with everything in it.
pub struct Scratch {
    path: PathBuf,
    /// The directory above, if it was not there before.
    parent: Option<PathBuf>,
}

impl Scratch {
    /// Makes `PARENT/NAME-PID`, and `PARENT` if it is missing.
    pub fn new(parent: &Path, name: &str) -> Result<Scratch> {
        let made = (!os::file::exists(parent)?).then_some(());
        let path = parent.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .map_err(|error| Error::from(error).during(format!("make the directory {}", path.display())))?;
        let path = path.canonicalize()?;
        // `path` is absolute now, and so is what is above it.
        let parent = made.and_then(|_| path.parent().map(Path::to_path_buf));
        owned().directories.push((path.clone(), parent.clone()));
        Ok(Scratch { path, parent })
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it, as text for a command line.
    pub fn join(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path, self.parent.as_deref());
        owned().directories.retain(|(directory, _)| *directory != self.path);
    }
}
