//! The store's side of `get`: small files that a listing told the places of are fetched many at a time, others one by one, large ones as
//! streams.

use super::destination::Top;
use super::find::{Made, Wanted, find};
use super::local::Local;
use base::error::{Error, ErrorKind, Result};
use base::limit::SMALL_FILE_MAX;
use bytes::Bytes;
use client::{Attributes, Client, Extent, Listed, Part, ReadOptions};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinError, JoinSet, block_in_place};

/// Fetchers. One that was not told where a small file is takes two round trips for it, and hardly any bytes.
const FETCHERS: usize = 32;
/// Files of a batch that one fetcher opens at once, because they did not come together.
const ALONE: usize = 8;
/// Threads that write small files, because making a file blocks.
const WRITERS: usize = 4;
/// Batches of files that may wait before fetchers: with their names and places some 6 MiB, 25 where each file has as many places as are told.
const BATCHES_WAITING: usize = 32;
/// Batches of fetched files that may wait before writers, and how many files are one: at most 32 MiB.
const FETCHED_WAITING: usize = 32;
/// See `FETCHED_WAITING`. Writers that are in one directory wait for each other, so not too few: with 32 a tree of 9,504 files took a tenth more
/// time than with 128 or 512.
const FETCHED_FILES: usize = 128;
/// Large files at once: each has a window of its own.
const LARGE_FILES: usize = 4;

/// A small file that was fetched.
struct Fetched {
    wanted: Wanted,
    parts: Vec<Bytes>,
}

/// Copies every source with what is below.
pub async fn everything(client: &Client, tops: Vec<Top>, local: &Arc<Local>) -> Result<()> {
    let (wanted, to_fetch) = mpsc::channel(BATCHES_WAITING);
    let (fetched, to_write) = mpsc::channel(FETCHED_WAITING);
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
    let directories = find(client, tops, local, wanted).await;
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

/// Devices of nodes that do not answer, by their ids, with the names of the nodes. What is on them is not asked for again: each
/// question would wait as long as the first.
type Away = Arc<Lock<BTreeMap<u128, String>>>;

/// One of those that fetch.
#[derive(Clone)]
struct Fetcher {
    client: Client,
    local: Arc<Local>,
    fetched: Sender<Vec<Fetched>>,
    large: Arc<tokio::sync::Semaphore>,
    away: Away,
}

impl Fetcher {
    async fn run(self, to_fetch: Arc<Mutex<Receiver<Vec<Wanted>>>>) {
        loop {
            let files = to_fetch.lock().await.recv().await;
            let Some(files) = files else { return };
            let mut alone = JoinSet::new();
            for wanted in self.fetch_together(files).await {
                while alone.len() >= ALONE {
                    self.note(alone.join_next().await);
                }
                alone.spawn(self.clone().fetch_alone(wanted));
            }
            while !alone.is_empty() {
                self.note(alone.join_next().await);
            }
        }
    }

    /// One that was fetched alone has ended: by itself, as it should, or by a fault.
    fn note(&self, ended: Option<std::result::Result<(), JoinError>>) {
        if let Some(Err(error)) = ended {
            let text = format!("the copy was cut off: {error}; run it again");
            self.local.progress.stop(Error::new(ErrorKind::Io, text));
        }
    }

    async fn fetch_alone(self, wanted: Wanted) {
        let remote = wanted.remote.clone();
        let fetched = if self.goes_on(&remote) { self.fetch(wanted).await } else { Ok(()) };
        if let Err(error) = fetched {
            self.tell(&remote, &error).await;
        }
    }

    /// Whether files are fetched still. One that is not, because the store is lost, is named; after any other end they are drained without
    /// effect, so that the listing does not wait for ever.
    fn goes_on(&self, remote: &str) -> bool {
        let progress = &self.local.progress;
        if let Some(error) = progress.lost() {
            progress.leave_out(remote, error);
        }
        !progress.stopped()
    }

    /// Says that a file was not copied, and why.
    async fn tell(&self, remote: &str, error: &Error) {
        let progress = &self.local.progress;
        match error.kind() {
            ErrorKind::Unreachable => {
                progress.leave_out(remote, error);
                self.look_who_is_away().await;
            }
            // Those two are the same for many, and need no list: what is there already, and a local disk without room.
            ErrorKind::Exists | ErrorKind::Full => progress.complain(error),
            _ => progress.leave_out(remote, error),
        }
    }

    /// Fetches those small files of which the listing said where they are, with few requests. Back come those that have to be opened: the
    /// others, and what is not any more as it was listed, or does not come.
    async fn fetch_together(&self, files: Vec<Wanted>) -> Vec<Wanted> {
        let (mut together, mut others) = (Vec::with_capacity(files.len()), Vec::new());
        for wanted in files {
            if !wanted.is_small_and_located() || self.is_away(&wanted.extents) {
                others.push(wanted);
                continue;
            }
            match wanted.check(&self.local) {
                Ok(()) if self.goes_on(&wanted.remote) => together.push(wanted),
                Ok(()) => {}
                Err(error) => self.tell(&wanted.remote, &error).await,
            }
        }
        let listed: Vec<Listed<'_>> = together.iter().map(Wanted::listed).collect();
        let read = self.client.read_listed(&listed, ReadOptions { once: true }).await;
        let (mut fetched, mut away) = (Vec::with_capacity(together.len()), false);
        for (wanted, read) in together.into_iter().zip(read) {
            match read {
                Ok(parts) => fetched.push(Fetched { wanted, parts }),
                Err(error) => {
                    away |= error.kind() == ErrorKind::Unreachable;
                    others.push(wanted);
                }
            }
        }
        self.hand_over(fetched).await;
        if away {
            self.look_who_is_away().await;
        }
        others
    }

    async fn hand_over(&self, mut fetched: Vec<Fetched>) {
        while !fetched.is_empty() {
            let rest = fetched.split_off(fetched.len().min(FETCHED_FILES));
            // The writers end last, so this fails only with the whole program.
            let _given_up = self.fetched.send(fetched).await;
            fetched = rest;
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
        match self.away_of(&extents)? {
            Some(node) => Err(Error::new(ErrorKind::Unreachable, format!("node {node} does not answer"))),
            None => Ok(()),
        }
    }

    /// A node that is away, if some of these bytes are on such nodes alone.
    fn away_of(&self, extents: &[Extent]) -> Result<Option<String>> {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        if away.is_empty() {
            return Ok(None);
        }
        for extent in extents {
            let parts = client::parts(extent)?;
            let mut columns = parts.chunk_by(|one, next| one.column == next.column);
            if let Some(node) = columns.find_map(|replicas| all_away(replicas, &away)) {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }

    fn is_away(&self, extents: &[Extent]) -> bool {
        !matches!(self.away_of(extents), Ok(None))
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
            self.hand_over(vec![Fetched { wanted, parts }]).await;
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

/// The node of the first of a column's replicas, if no other one is on a node that is here.
fn all_away(replicas: &[Part], away: &BTreeMap<u128, String>) -> Option<String> {
    let nodes: Option<Vec<&String>> = replicas.iter().map(|part| away.get(&part.device.value())).collect();
    nodes?.first().map(|node| (*node).clone())
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
fn write(local: &Local, to_write: &Lock<Receiver<Vec<Fetched>>>) {
    loop {
        let fetched = to_write.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
        let Some(fetched) = fetched else { return };
        for Fetched { wanted, parts } in fetched {
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
}

#[cfg(test)]
mod tests {
    use super::all_away;
    use client::Part;
    use std::collections::BTreeMap;

    /// A column is away if all of its replicas are.
    #[test]
    fn away() {
        let away = BTreeMap::from([(1, "one".to_string()), (2, "two".to_string())]);
        let part = |device: u128| Part {
            column: 0,
            columns: 1,
            cell: 0,
            device: device.into(),
            chunk: 5u128.into(),
            start: 0,
            bytes: 9,
        };
        let node = |devices: &[u128]| all_away(&devices.iter().copied().map(part).collect::<Vec<_>>(), &away);
        assert_eq!(node(&[2, 1]).as_deref(), Some("two"));
        assert_eq!([node(&[1, 3]), node(&[3, 1]), node(&[3])], [None, None, None]);
    }
}
