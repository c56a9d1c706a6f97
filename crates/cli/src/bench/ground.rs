//! What every row stands on: a directory of our own, the bare device under it, a server with its data there, and clients.

use super::raw::Raw;
use super::resources::SAMPLE;
use super::row::Moved;
use crate::child::Server;
use crate::context::Context;
use crate::demo::tree::sync_file_system;
use base::error::{Error, Result};
use base::unit::MIB;
use client::Client;
use harness::sampler::Sampler;
use harness::scratch::Scratch;
use harness::stopwatch::Stopwatch;
use os::process::{Usage, usage};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of one chunk of the large rows.
pub const CHUNK: u64 = 4 * MIB;

/// The server counts as quiet when the kernel counted no write of it for so long.
const QUIET: Duration = Duration::from_millis(200);

/// Space that was not given back for so long is kept: longer than a device waits for anything.
const GIVEN_BACK: Duration = Duration::from_secs(4);

/// But nobody waits longer than this for either.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(15);

/// Where and how rows are measured.
pub struct Ground {
    /// A directory that goes at the end.
    pub scratch: Scratch,
    /// The bare device under it.
    pub raw: Raw,
    /// Rounds of every row.
    pub rounds: usize,
    /// Bytes of the large rows: a multiple of `CHUNK`.
    pub size: u64,
    /// How long rows last that go on for a time.
    pub time: Duration,
    /// Only shows that everything runs.
    pub quick: bool,
    /// The tree of the rows with small files; none means the demo's.
    pub tree: Option<PathBuf>,
    /// Files that the rows about many names remove.
    pub names: u64,
    server: Server,
    sampler: Sampler,
    context: Context,
}

/// What client and server used between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Processor seconds of this process.
    pub client: f64,
    /// Processor seconds of the server.
    pub server: f64,
    /// Bytes that the kernel counted as read for the server.
    pub read: u64,
    /// Bytes that the kernel counted as written for the server.
    pub written: u64,
    /// Seconds on the wall.
    pub seconds: f64,
}

impl Spent {
    /// What bounded it, as far as processors can tell.
    pub fn processors(&self) -> String {
        let (server, client) = (self.server / self.seconds, self.client / self.seconds);
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        format!("server kept {server:.2} and client {client:.2} of {there} processors busy")
    }

    /// The bytes written for this payload.
    pub fn wrote(&self, payload: u64) -> Moved {
        Moved { payload, kernel: self.written }
    }
}

/// A moment from which use is measured.
pub struct Since {
    client: Usage,
    server: Usage,
    watch: Stopwatch,
}

impl Ground {
    /// A server of our own on a fresh directory under `parent`, for rows of `size` bytes at most.
    pub fn new(context: &Context, parent: &Path, size: u64, rounds: usize, time: Duration) -> Result<Ground> {
        let scratch = Scratch::new(parent, "stormwell-bench")?;
        let mut server = Server::start(&[scratch.join("store")])?;
        let sampler = Sampler::start(server.child().id(), SAMPLE)?;
        // A round of a large row needs room for the raw file, for what the server holds, and for what it has not yet given back.
        let room = free_bytes(scratch.path())? / 6;
        let size = (size.min(room) / CHUNK).max(1) * CHUNK;
        let raw = Raw::new(scratch.path());
        let context = at(context, server.address());
        Ok(Ground { raw, rounds, size, time, quick: false, tree: None, names: 0, server, sampler, context, scratch })
    }

    /// A session with the server.
    pub async fn connect(&self) -> Result<Client> {
        self.context.connect("bench").await
    }

    /// Where the server listens.
    pub fn address(&self) -> &str {
        self.server.address()
    }

    /// The server's memory of its own so far.
    pub fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// What the server has used so far. An error if it has ended.
    pub fn used(&mut self) -> Result<Usage> {
        self.server.child().check()?;
        usage(self.server.child().id())
    }

    /// The moment from which use is measured: now.
    pub fn since(&mut self) -> Result<Since> {
        let server = self.used()?;
        Ok(Since { client: usage(std::process::id())?, server, watch: Stopwatch::start() })
    }

    /// What was used since then.
    pub fn spent(&mut self, since: &Since) -> Result<Spent> {
        let seconds = since.watch.seconds();
        let (client, server) = (usage(std::process::id())?, self.used()?);
        let processor = |now: Usage, then: Usage| now.processor.saturating_sub(then.processor).as_secs_f64();
        Ok(Spent {
            client: processor(client, since.client),
            server: processor(server, since.server),
            read: server.read_bytes.saturating_sub(since.server.read_bytes),
            written: server.written_bytes.saturating_sub(since.server.written_bytes),
            seconds,
        })
    }

    /// Waits until what earlier rows left to do is done: dirty pages are written, and the server writes nothing any more.
    pub async fn settle(&mut self) -> Result<()> {
        sync_file_system(self.scratch.path())?;
        let whole = Stopwatch::start();
        let mut before = self.used()?.written_bytes;
        while whole.elapsed() < QUIET_WAIT_MAX {
            tokio::time::sleep(QUIET).await;
            let now = self.used()?.written_bytes;
            if now == before {
                break;
            }
            before = now;
        }
        Ok(())
    }

    /// Waits until the server has given back the space of what was deleted: it keeps dead segments for a few seconds to use
    /// them again, and removing them is work for the disk that the next row must not see.
    pub async fn given_back(&mut self, client: &Client) -> Result<()> {
        let whole = Stopwatch::start();
        let (mut before, mut since) = (0, Stopwatch::start());
        while whole.elapsed() < QUIET_WAIT_MAX && since.elapsed() < GIVEN_BACK {
            let used = client.devices().await?.devices.iter().map(|device| device.used).sum::<u64>();
            if used != before {
                (before, since) = (used, Stopwatch::start());
            }
            tokio::time::sleep(QUIET).await;
        }
        self.settle().await
    }

    /// Makes the kernel forget what it keeps in memory of the server's files (posix_fadvise DONTNEED on each),
    /// so that the next read comes from the device.
    pub async fn forget_cache(&mut self) -> Result<()> {
        self.settle().await?;
        self.each_server_file(forget)
    }

    /// Brings the server's files into memory, as a program that reads them here would: the server does not for large reads.
    pub fn fill_cache(&self) -> Result<()> {
        self.each_server_file(remember)
    }

    fn each_server_file(&self, act: fn(&Path) -> Result<()>) -> Result<()> {
        let mut open = vec![self.scratch.path().join("store")];
        while let Some(directory) = open.pop() {
            for path in os::file::read_directory(&directory)? {
                match os::file::metadata(&path) {
                    Ok(about) if about.is_dir() => open.push(path),
                    Ok(about) if about.is_file() => act(&path)?,
                    // Sockets, and files that the server removed meanwhile.
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// The same surroundings, with the store of our own at this address.
pub fn at(context: &Context, address: &str) -> Context {
    Context {
        at: address.to_string(),
        others: Vec::new(),
        at_option: None,
        config: None,
        secret_file: None,
        own_server: true,
        json: context.json,
        quiet: context.quiet,
        clock: context.clock.clone(),
        random: context.random.clone(),
        pool: context.pool.clone(),
    }
}

fn forget(path: &Path) -> Result<()> {
    let file = match os::file::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == base::error::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // SAFETY: the descriptor is open for as long as `file` lives; the call takes no memory of ours.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(Error::from(std::io::Error::from_raw_os_error(code)).during("make the kernel forget cached pages")),
    }
}

fn remember(path: &Path) -> Result<()> {
    match os::file::open(path).and_then(|mut file| Ok(std::io::copy(&mut file, &mut std::io::sink())?)) {
        Err(error) if error.kind() != base::error::ErrorKind::NotFound => Err(error.during("bring a file into memory")),
        _ => Ok(()),
    }
}

/// Bytes that the file system of this directory has free for us.
pub fn free_bytes(directory: &Path) -> Result<u64> {
    let file = os::file::open(directory)?;
    // SAFETY: statvfs is plain numbers, for which all zeros is a value.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `about` is ours to be written.
    match unsafe { libc::fstatvfs(file.as_raw_fd(), &mut about) } {
        0 => Ok(about.f_bavail.saturating_mul(about.f_frsize)),
        _ => Err(Error::from(std::io::Error::last_os_error()).during("ask how much room there is")),
    }
}
