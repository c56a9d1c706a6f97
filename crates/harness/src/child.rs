//! Child processes that end with this one whatever happens, what they say on stderr, and servers among them.

use crate::owned::owned;
use base::error::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{self, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines of a child's stderr that are kept, far more than a server says in a trial. Of one that says more, the first go.
const LINES_MAX: usize = 10_000;

/// Last lines of a child's stderr that an error quotes.
const QUOTED_LINES: usize = 12;

/// What a server says when it serves, before its address.
pub const SERVING: &str = "stormwell: serving on ";

/// The same command, whose process the kernel kills when the thread that started it ends. Start it from a thread that lives on.
pub fn bound(mut command: Command) -> Command {
    // SAFETY: prctl is a plain system call, safe between fork and exec; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    command
}

/// A process of our own. It is killed and reaped when this goes.
pub struct Child {
    what: String,
    process: process::Child,
    said: Said,
}

impl Child {
    /// Starts a command, which errors call `what`. What it prints on stdout is thrown away.
    pub fn start(what: impl Into<String>, command: Command) -> Result<Child> {
        Ok(Child::spawn(what.into(), command)?.0)
    }

    fn spawn(what: String, command: Command) -> Result<(Child, Ready)> {
        let mut command = bound(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().map_err(|error| Error::from(error).during(format!("start {what}")))?;
        owned().processes.push(process.id());
        let Some(stderr) = process.stderr.take() else { unreachable!("stderr was asked for") };
        let child = Child { what, process, said: Said::default() };
        let (tell, serving) = sync_channel(1);
        child.said.listen(stderr, tell)?;
        let ready = Ready { what: child.what.clone(), said: child.said.clone(), serving };
        Ok((child, ready))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        let mut owned = owned();
        let status = self.process.try_wait()?;
        if status.is_some() {
            // It is reaped: its id is not ours to kill any more.
            owned.processes.retain(|process| *process != self.process.id());
        }
        Ok(status)
    }

    /// An error if it has ended by itself.
    pub fn check(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(self.failed(&format!("ended by itself with {status}"))),
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let status = self.process.wait()?;
        owned().processes.retain(|process| *process != self.process.id());
        Ok(status)
    }

    /// Waits for its end. An exit code other than 0 is an error that quotes the end of what it said.
    pub fn finish(mut self) -> Result<()> {
        match self.wait()? {
            status if status.success() => Ok(()),
            status => Err(self.failed(&format!("ended with {status}"))),
        }
    }

    /// Sends it a signal. One that it cannot get any more changes nothing.
    pub fn signal(&self, signal: i32) {
        // SAFETY: a plain system call; the process is ours and not reaped yet, so its id is nobody else's.
        unsafe { libc::kill(self.process.id() as i32, signal) };
    }

    /// Kills it with SIGKILL, in the middle of whatever it does, and waits until it is gone. One that has ended already is fine.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        // From here on its id is not ours to kill: the next line gives it back.
        owned().processes.retain(|process| *process != self.process.id());
        let _ = self.process.wait();
    }

    /// The lines that it has said so far.
    pub fn said(&self) -> Vec<String> {
        self.said.lines().iter().cloned().collect()
    }

    fn failed(&self, how: &str) -> Error {
        self.said.failed(&self.what, how)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The lines that a child wrote to its stderr.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads a child's stderr to its end in a thread of its own; `tell` gets the address once the child serves.
    fn listen(&self, stderr: ChildStderr, tell: SyncSender<String>) -> Result<()> {
        let said = self.clone();
        os::thread::spawn("child-stderr", move || {
            for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
                let serving = line.strip_prefix(SERVING).and_then(|rest| rest.split_whitespace().next());
                let address = serving.map(str::to_string);
                let mut lines = said.lines();
                if lines.len() == LINES_MAX {
                    lines.pop_front();
                }
                lines.push_back(line);
                drop(lines);
                if let Some(address) = address {
                    // Nobody waits, or not any more: then nobody minds.
                    let _ = tell.try_send(address);
                }
            }
        })
        .map(drop)
    }

    fn failed(&self, what: &str, how: &str) -> Error {
        let lines = self.lines();
        let last: Vec<&str> = lines.iter().skip(lines.len().saturating_sub(QUOTED_LINES)).map(String::as_str).collect();
        let said = if last.is_empty() { "it said nothing".to_string() } else { last.join(" | ") };
        Error::new(ErrorKind::Io, format!("{what} {how}: {said}"))
    }
}

/// Knows when a server serves.
pub struct Ready {
    what: String,
    said: Said,
    serving: Receiver<String>,
}

impl Ready {
    /// Blocks until the server serves, for `most` at most; where it listens.
    pub fn wait(self, most: Duration) -> Result<String> {
        self.serving.recv_timeout(most).map_err(|error| {
            let how = match error {
                RecvTimeoutError::Timeout => format!("did not serve within {} s", most.as_secs()),
                RecvTimeoutError::Disconnected => "ended before it served".to_string(),
            };
            self.said.failed(&self.what, &how)
        })
    }
}

/// A server of our own that serves.
pub struct Server {
    /// Its process.
    pub child: Child,
    /// Where it listens, `host:port`.
    pub address: String,
}

impl Server {
    /// Starts a `stormwell serve`, and whoever may block can wait until it serves.
    pub fn begin(command: Command) -> Result<(Child, Ready)> {
        Child::spawn("stormwell serve".to_string(), command)
    }

    /// Starts a `stormwell serve` and blocks until it serves, for `most` at most.
    pub fn start(command: Command, most: Duration) -> Result<Server> {
        let (child, ready) = Server::begin(command)?;
        let address = ready.wait(most)?;
        Ok(Server { child, address })
    }
}

#[cfg(test)]
mod tests {
    use super::{Child, Server};
    use std::process::Command;
    use std::time::Duration;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// A server is ready when it says so, what it said before is known then, and it goes with its value.
    #[test]
    fn servers() {
        let script = "echo started >&2; echo 'stormwell: serving on a:1 (two devices)' >&2; exec sleep 600";
        let mut server = Server::start(shell(script), SOON).expect("it serves");
        assert_eq!(server.address, "a:1");
        assert_eq!(server.child.said()[0], "started");
        server.child.check().expect("it runs");
        let id = server.child.id();
        assert!(os::process::name(id).is_some());
        drop(server);
        assert!(os::process::name(id).is_none());
    }

    /// One that ends or says nothing is an error with its last words.
    #[test]
    fn failures() {
        let ended = Server::start(shell("echo no room >&2; exit 4"), SOON).err().expect("it ended");
        assert_eq!(ended.text(), "stormwell serve ended before it served: no room");
        let silent = Server::start(shell("exec sleep 600"), Duration::ZERO).err().expect("it says nothing");
        assert_eq!(silent.text(), "stormwell serve did not serve within 0 s: it said nothing");
        let lost = Child::start("a tool", shell("exit 3")).expect("it starts").finish().expect_err("it failed");
        assert!(lost.text().starts_with("a tool ended with exit status: 3: "), "{lost}");
        Child::start("a tool", shell("exit 0")).expect("it starts").finish().expect("it ended well");
    }
}
