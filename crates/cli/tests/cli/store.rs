//! A server in a directory of its own, and the commands that are run against it.

use harness::child::Server;
use harness::scratch::Scratch;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for something that is so within a second on a machine that is not busy.
const SOON: Duration = Duration::from_secs(60);

/// A running store; killed by its process id, and its directory removed, when dropped.
pub struct Store {
    server: Server,
    pub address: String,
    /// Where its metrics and health are.
    pub console: String,
    pub directory: PathBuf,
    devices: Vec<String>,
    /// After the server, which uses it.
    _scratch: Scratch,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ended {
    /// Stdout as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Asserts success.
    #[track_caller]
    pub fn done(self) -> Ended {
        assert_eq!(self.code, 0, "{}", self.stderr);
        self
    }

    /// Asserts this code, and that stderr has an error in our form with this in it.
    #[track_caller]
    pub fn failed(self, code: i32, word: &str) -> Ended {
        assert_eq!(self.code, code, "{}", self.stderr);
        assert!(self.stderr.lines().any(|line| line.starts_with("stormwell: ")), "{}", self.stderr);
        assert!(self.stderr.contains(word), "no {word:?} in: {}", self.stderr);
        self
    }
}

/// The binary under test. STORMWELL_DISK is passed on, so that one run of these tests can drive disks each way.
pub fn binary() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stormwell"));
    command.env_remove("STORMWELL_AT").env_remove("STORMWELL_CONSOLE").env_remove("STORMWELL_LOG");
    command
}

/// Runs a command to its end with these bytes on stdin.
pub fn run(mut command: Command, stdin: &[u8]) -> Ended {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut pipe = child.stdin.take().expect("stdin is a pipe");
    let bytes = stdin.to_vec();
    let feeding = std::thread::spawn(move || drop(pipe.write_all(&bytes)));
    let output = child.wait_with_output().expect("the command ends");
    feeding.join().expect("feeding ends");
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Store {
    /// Turns one bit over in every data file of the device that holds these bytes; how many there were.
    pub fn rot(&self, device: &str, needle: &[u8]) -> usize {
        rot(&self.directory.join(device), needle)
    }

    /// Starts a server on a free port, with a device of 512 MiB, and waits until it serves.
    pub fn start() -> Store {
        Store::with_capacity("512M")
    }

    /// The same with a device of this capacity.
    pub fn with_capacity(capacity: &str) -> Store {
        Store::in_places(&["data"], capacity)
    }

    /// A server on what `fill` puts into a directory: a device of 128 MiB in `data`.
    pub fn filled(fill: impl FnOnce(&Path)) -> Store {
        Store::in_filled(&["data"], "128M", fill)
    }

    /// The same with so many devices of 512 MiB, `data0`, `data1`, ...
    pub fn with_devices(count: usize) -> Store {
        let places: Vec<String> = (0..count).map(|number| format!("data{number}")).collect();
        Store::in_places(&places.iter().map(String::as_str).collect::<Vec<_>>(), "512M")
    }

    fn in_places(places: &[&str], capacity: &str) -> Store {
        Store::in_filled(places, capacity, |_| ())
    }

    fn in_filled(places: &[&str], capacity: &str, fill: impl FnOnce(&Path)) -> Store {
        let scratch = scratch("store");
        let directory = scratch.path().to_path_buf();
        fill(&directory);
        let device = |place: &&str| format!("{}:ssd:{capacity}", directory.join(place).display());
        let devices: Vec<String> = places.iter().map(device).collect();
        let (server, address, console) = serve(&devices, "127.0.0.1:0", &[]);
        Store { server, address, console, directory, devices, _scratch: scratch }
    }

    /// Ends the server as `kill -9` does.
    pub fn kill(&mut self) {
        self.server.child.kill();
    }

    /// Starts it again on the same directory and port.
    pub fn start_again(&mut self) {
        self.start_again_with(&[]);
    }

    /// The same with more words for `serve`.
    pub fn start_again_with(&mut self, words: &[&str]) {
        (self.server, self.address, self.console) = serve(&self.devices, &self.address, words);
    }

    /// The same without its last device.
    pub fn start_without_the_last(&mut self) {
        let devices = &self.devices[..self.devices.len() - 1];
        (self.server, self.address, self.console) = serve(devices, &self.address, &[]);
    }

    /// A command against this store.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = binary();
        command.args(words).env("STORMWELL_AT", &self.address).current_dir(&self.directory);
        command
    }

    /// Runs a command against this store, in its directory.
    pub fn run(&self, words: &[&str]) -> Ended {
        run(self.command(words), b"")
    }

    /// The same with bytes on stdin.
    pub fn run_with(&self, words: &[&str], stdin: &[u8]) -> Ended {
        run(self.command(words), stdin)
    }

    /// Writes a local file below the store's directory and gives its path.
    pub fn local(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(&path, bytes).expect("a local file");
        path
    }

    /// The process id of the server.
    pub fn server(&self) -> u32 {
        self.server.child.id()
    }

    /// Waits for the server's end and gives its exit code.
    pub fn wait(&mut self) -> Option<i32> {
        self.server.child.wait().expect("the server ends").code()
    }
}

/// Turns one bit over in every data file of the device in this directory that holds these bytes; how many there were.
pub fn rot(device: &Path, needle: &[u8]) -> usize {
    let mut hits = 0;
    for entry in std::fs::read_dir(device.join("chunks")).expect("the device") {
        let path = entry.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("its bytes");
        if let Some(at) = bytes.windows(needle.len()).position(|window| window == needle) {
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).expect("it can be written");
            hits += 1;
        }
    }
    hits
}

/// Starts a server and waits until it serves: it, its address and its console's.
fn serve(devices: &[String], at: &str, words: &[&str]) -> (Server, String, String) {
    let mut command = binary();
    command.args(["serve", "--at", at]).args(devices.iter().flat_map(|device| ["--data", device])).args(words);
    let server = started(command);
    let said = server.child.said().join("\n");
    let console = said.split_once(" console=").and_then(|(_, rest)| rest.split_whitespace().next());
    let console = console.expect("the log says where the console is").to_string();
    let address = server.address.clone();
    (server, address, console)
}

/// Runs a command that serves and waits until it does.
pub fn started(command: Command) -> Server {
    Server::start(command, SOON).expect("it serves")
}

/// A directory that no other test has.
pub fn scratch(name: &str) -> Scratch {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("stormwell-{name}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    Scratch::new(&std::env::temp_dir(), &name).expect("a directory")
}

/// Whether this becomes so. By time: a number of questions is over at once when the answers are quick and a disk stands still.
pub fn soon(is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if began.elapsed() > SOON {
            return false;
        }
    }
}

/// Bytes that do not compress and differ everywhere.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The files and directories below a directory by relative path: content, permission bits, and modification time in milliseconds.
pub fn tree(top: &Path) -> std::collections::BTreeMap<PathBuf, (Vec<u8>, u32, u128)> {
    use std::os::unix::fs::PermissionsExt;
    let mut files = std::collections::BTreeMap::new();
    let mut pending = vec![top.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = std::fs::symlink_metadata(&path).expect("metadata");
            let modified = metadata.modified().expect("a time").duration_since(std::time::UNIX_EPOCH);
            let modified = modified.expect("after 1970").as_millis();
            let bits = metadata.permissions().mode() & 0o7777;
            let name = path.strip_prefix(top).expect("below the top").to_path_buf();
            if metadata.is_dir() {
                files.insert(name, (Vec::new(), bits, modified));
                pending.push(path);
            } else if metadata.is_file() {
                files.insert(name, (std::fs::read(&path).expect("a file"), bits, modified));
            }
        }
    }
    files
}
