//! The store's side of `get`: directories are listed, small files fetched many at a time, large ones as streams.

use super::destination::Top;
use super::local::Local;
use crate::path;
use base::error::{Error, ErrorKind, Result};
use base::limit::SMALL_FILE_MAX;
use bytes::Bytes;
use client::{Attributes, Client, ReadOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex as Lock, PoisonError};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinSet, block_in_place};

/// Files that are fetched at once. A small one takes two round trips and hardly any bytes.
const FETCHERS: usize = 32;
/// Threads that write small files, because making a file blocks.
const WRITERS: usize = 4;
/// Files that may wait before fetchers, and again before writers: at most 64 MiB.
const FILES_WAITING: usize = 64;
/// Large files at once: each has a window of its own.
const LARGE_FILES: usize = 4;

/// A file or directory to fetch.
struct Wanted {
    remote: String,
    local: PathBuf,
    attributes: Attributes,
}

/// A small file that was fetched.
struct Fetched {
    wanted: Wanted,
    parts: Vec<Bytes>,
}

/// Copies every source with what is below.
pub async fn everything(client: &Client, tops: Vec<Top>, local: &Arc<Local>) -> Result<()> {
    let (wanted, to_fetch) = mpsc::channel(FILES_WAITING);
    let (fetched, to_write) = mpsc::channel(FILES_WAITING);
    let to_fetch = Arc::new(Mutex::new(to_fetch));
    let to_write = Arc::new(Lock::new(to_write));
    let large = Arc::new(tokio::sync::Semaphore::new(LARGE_FILES));
    let mut workers = JoinSet::new();
    let away = Away::default();
    for _ in 0..FETCHERS {
        let (client, local, fetched, large) = (client.clone(), local.clone(), fetched.clone(), large.clone());
        workers.spawn(Fetcher { client, local, fetched, large, away: away.clone() }.run(to_fetch.clone()));
    }
    for _ in 0..WRITERS {
        let (local, to_write) = (local.clone(), to_write.clone());
        workers.spawn_blocking(move || write(&local, &to_write));
    }
    drop(fetched);
    let directories = list(client, tops, local, wanted).await;
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended {
            let text = format!("the copy was cut off: {error}; run it again");
            local.progress.stop(Error::new(ErrorKind::Io, text));
        }
    }
    block_in_place(|| finish(local, directories))
}

/// Gives directories their times and bits, the deepest first, and makes them durable if that was asked for.
fn finish(local: &Local, directories: Vec<Made>) -> Result<()> {
    for Made { local: path, attributes } in directories.into_iter().rev() {
        if let Some(attributes) = attributes
            && let Err(error) = local.finish_directory(&path, &attributes)
        {
            local.progress.complain(&error);
        }
        if local.sync {
            os::file::sync_directory(&path)?;
        }
    }
    Ok(())
}

/// A local directory that holds something that was copied.
struct Made {
    local: PathBuf,
    /// What it is to be given; none if it was there before.
    attributes: Option<Attributes>,
}

/// Finds everything below the sources and makes local directories. Answers with them, parents first.
async fn list(client: &Client, tops: Vec<Top>, local: &Local, wanted: Sender<Wanted>) -> Vec<Made> {
    let progress = &local.progress;
    let mut directories = Vec::new();
    let mut pending = Vec::new();
    for Top { remote, local: target, attributes } in tops {
        if local.sync {
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
            directories.push(Made { local: parent.unwrap_or(Path::new(".")).to_path_buf(), attributes: None });
        }
        if attributes.directory {
            pending.push(Wanted { remote, local: target, attributes });
        } else {
            progress.found(1, attributes.length);
            // Nobody receives any more when the copy was cut off, which is told there.
            let _given_up = wanted.send(Wanted { remote, local: target, attributes }).await;
        }
    }
    while let Some(Wanted { remote, local: target, attributes }) = pending.pop() {
        if let Some(error) = progress.lost() {
            progress.leave_out(&format!("{remote} with everything below"), error);
            continue;
        }
        if progress.stopped() {
            break;
        }
        let made = match block_in_place(|| local.directory(&target)) {
            Ok(made) => made,
            Err(error) => {
                progress.complain(&error);
                continue;
            }
        };
        match directory(client, &remote, &target, local, &wanted, &mut pending).await {
            // Without the node that keeps the metadata nothing goes on.
            Err(error) if error.kind() == ErrorKind::Unreachable => {
                progress.leave_out(&format!("what is below {remote} and was not listed"), &error);
                progress.stop(error);
            }
            Err(error) => progress.complain(&error),
            Ok(()) => {}
        }
        directories.push(Made { local: target, attributes: made.then_some(attributes) });
    }
    progress.found_all();
    directories
}

async fn directory(
    client: &Client,
    remote: &str,
    target: &Path,
    local: &Local,
    wanted: &Sender<Wanted>,
    pending: &mut Vec<Wanted>,
) -> Result<()> {
    let mut listing = client.list_all(remote);
    while let Some(entry) = listing.next().await? {
        let below = path::below(target, &entry.name)?;
        let remote = path::join(remote, &entry.name);
        if entry.attributes.directory {
            pending.push(Wanted { remote, local: below, attributes: entry.attributes });
            continue;
        }
        local.progress.found(1, entry.attributes.length);
        let given_up = wanted.send(Wanted { remote, local: below, attributes: entry.attributes }).await.is_err();
        // What was listed is named, too, when nobody answers any more.
        if given_up || local.progress.stopped() && local.progress.lost().is_none() {
            break;
        }
    }
    Ok(())
}

/// Devices of nodes that do not answer, by their ids, with the names of the nodes. What is on them is not asked for again: each
/// question would wait as long as the first.
type Away = Arc<Lock<BTreeMap<u128, String>>>;

/// One of those that fetch.
struct Fetcher {
    client: Client,
    local: Arc<Local>,
    fetched: Sender<Fetched>,
    large: Arc<tokio::sync::Semaphore>,
    away: Away,
}

impl Fetcher {
    async fn run(self, to_fetch: Arc<Mutex<Receiver<Wanted>>>) {
        let progress = &self.local.progress;
        loop {
            let wanted = to_fetch.lock().await.recv().await;
            let Some(wanted) = wanted else { return };
            if let Some(error) = progress.lost() {
                progress.leave_out(&wanted.remote, error);
                continue;
            }
            if progress.stopped() {
                // Drained without effect, so that the listing does not wait for ever.
                continue;
            }
            let remote = wanted.remote.clone();
            match self.fetch(wanted).await {
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    progress.leave_out(&remote, &error);
                    self.look_who_is_away().await;
                }
                // Those two are the same for many, and need no list: what is there already, and a local disk without room.
                Err(error) if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Full) => progress.complain(&error),
                Err(error) => progress.leave_out(&remote, &error),
                Ok(()) => {}
            }
        }
    }

    /// After a node did not answer: files on others are fetched all the same, unless it is the one without which nothing goes on.
    async fn look_who_is_away(&self) {
        match self.client.devices_and_hosts().await {
            Ok(devices) => {
                let mut away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
                for (device, host) in devices {
                    if let Some(host) = host.filter(|host| host.silent) {
                        away.insert(device.device.value(), host.name);
                    }
                }
            }
            Err(error) if error.kind() == ErrorKind::Unreachable => self.local.progress.stop(error),
            // Then each file says what is wrong with it.
            Err(_) => {}
        }
    }

    /// Refuses a file whose first bytes are on a node that is away.
    async fn refuse_if_away(&self, attributes: &Attributes) -> Result<()> {
        if self.away.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
            return Ok(());
        }
        let (extents, _) = self.client.extents(attributes.inode, 0).await?;
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        for extent in &extents {
            if let Some(node) = client::parts(extent)?.iter().find_map(|part| away.get(&part.device.value())) {
                return Err(Error::new(ErrorKind::Unreachable, format!("node {node} does not answer")));
            }
        }
        Ok(())
    }

    async fn fetch(&self, wanted: Wanted) -> Result<()> {
        self.local.check(&wanted.local)?;
        let reader = self.client.open_with(&wanted.remote, ReadOptions { once: true }).await?;
        // Listed a while ago; what is known now counts.
        let attributes = reader.attributes();
        let small = !attributes.open && attributes.length <= SMALL_FILE_MAX;
        if small {
            self.refuse_if_away(&attributes).await?;
            let parts = reader.read_at(0, attributes.length).await?;
            whole(&wanted.remote, &attributes, parts.iter().map(|part| part.len() as u64).sum())?;
            let wanted = Wanted { attributes, ..wanted };
            // The writers end last, so this fails only with the whole program.
            let _given_up = self.fetched.send(Fetched { wanted, parts }).await;
            return Ok(());
        }
        let Ok(_turn) = self.large.acquire().await else { unreachable!("nobody closes this semaphore") };
        self.refuse_if_away(&attributes).await?;
        let mut unfinished = block_in_place(|| self.local.begin(&wanted.local, attributes.length))?;
        let (mut stream, mut length) = (reader.stream(0), 0);
        while let Some(bytes) = stream.next().await? {
            if self.local.progress.stopped() && self.local.progress.lost().is_none() {
                return Ok(());
            }
            block_in_place(|| unfinished.write(&bytes))?;
            length += bytes.len() as u64;
            self.local.progress.copied_bytes(bytes.len() as u64);
        }
        whole(&wanted.remote, &attributes, length)?;
        block_in_place(|| self.local.finish(unfinished, &reader.attributes()))?;
        self.local.progress.copied(1);
        Ok(())
    }
}

/// A closed file has all its bytes; half a file is never taken for a whole one.
fn whole(remote: &str, attributes: &Attributes, length: u64) -> Result<()> {
    if attributes.open || length == attributes.length {
        return Ok(());
    }
    let text = format!(
        "{remote} has {} bytes but {length} came; nothing was written; it may have been replaced meanwhile: get it again",
        attributes.length
    );
    Err(Error::new(ErrorKind::Io, text))
}

/// Writes small files until no more come.
fn write(local: &Local, to_write: &Lock<Receiver<Fetched>>) {
    loop {
        let fetched = to_write.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(Fetched { wanted, parts }) = fetched else { return };
        // What came before the store was lost is whole.
        if local.progress.stopped() && local.progress.lost().is_none() {
            continue;
        }
        match local.small(&wanted.local, &wanted.attributes, &parts) {
            Ok(()) => {
                local.progress.copied(1);
                local.progress.copied_bytes(wanted.attributes.length);
            }
            Err(error) => local.progress.complain(&error),
        }
    }
}
