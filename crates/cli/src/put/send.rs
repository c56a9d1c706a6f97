//! The store's side of `put`: small files through a packer, large ones as streams, several at a time.

use super::local::{BATCHES_WAITING, Item, Kept, Reader, Ready};
use crate::progress::Progress;
use base::buffer::{Buffer, Pool};
use base::error::{Error, ErrorKind, Result};
use base::unit::MIB;
use client::{Client, CreateOptions, FileWriter, NewAttributes, PackOptions, Packed, PackerOptions};
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{self, Receiver, Sender};
use tokio::task::{JoinSet, spawn_blocking};

/// Threads that open and read small files. More than cores, because opening a file that is not cached waits for a disk.
const READERS: usize = 4;
/// Large files on their way at once. One of them can fill a device; several hide each other's start and end.
const LARGE_FILES: usize = 4;
/// What is read from a large file at a time: a piece of the writer, which then goes on without a copy.
const PIECE: usize = MIB as usize;
/// Pieces of one large file that were read and not yet written.
const PIECES_WAITING: usize = 4;

/// Bytes to copy, and what people call them.
pub struct Source<R> {
    /// The bytes.
    pub stream: R,
    /// For messages.
    pub shown: String,
}

/// Copies everything that the walk finds.
pub async fn everything(
    client: &Client,
    pool: Pool,
    found: Receiver<Vec<Item>>,
    overwrite: bool,
    progress: &Arc<Progress>,
) -> Result<()> {
    let found = Arc::new(Mutex::new(found));
    let (small, small_ready) = mpsc::channel(BATCHES_WAITING);
    let (large, large_ready) = mpsc::channel(LARGE_FILES);
    let mut workers = JoinSet::new();
    for _ in 0..READERS {
        let reader =
            Reader { found: found.clone(), small: small.clone(), large: large.clone(), progress: progress.clone() };
        workers.spawn_blocking(move || reader.run());
    }
    drop((found, small, large));
    let large_ready = Arc::new(tokio::sync::Mutex::new(large_ready));
    for _ in 0..LARGE_FILES {
        let (client, pool, large_ready, progress) =
            (client.clone(), pool.clone(), large_ready.clone(), progress.clone());
        workers.spawn(async move {
            loop {
                let ready = large_ready.lock().await.recv().await;
                let Some(ready) = ready else { return };
                if let Err(error) = one(&client, &pool, ready, overwrite, &progress).await {
                    progress.complain(&error);
                }
            }
        });
    }
    let packed = pack(client, small_ready, overwrite, progress).await;
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended {
            progress.stop(Error::new(ErrorKind::Io, format!("the copy was cut off: {error}; run it again")));
        }
    }
    packed
}

/// Puts small files until no more come.
async fn pack(client: &Client, mut ready: Receiver<Ready>, overwrite: bool, progress: &Progress) -> Result<()> {
    let mut packer = client.packer(PackerOptions::default());
    let mut directories = BTreeSet::new();
    while let Some(ready) = ready.recv().await {
        let Ready::Small(batch) = ready else { unreachable!("readers send nothing else here") };
        if progress.stopped() {
            // Drained without effect, so that no reader waits for ever.
            continue;
        }
        let mut bytes = 0;
        for (path, range, kept) in batch.files {
            bytes += range.len() as u64;
            packer.put(&path, batch.bytes.slice(range), options(kept, overwrite)).await?;
        }
        for (path, kept) in batch.directories {
            packer.put_directory(&path, options(kept, overwrite)).await?;
            directories.insert(path);
        }
        progress.copied_bytes(bytes);
        account(packer.take_results(), &mut directories, progress);
    }
    account(packer.close().await?, &mut directories, progress);
    Ok(())
}

fn options(kept: Kept, overwrite: bool) -> PackOptions {
    let Kept { modified_ms, accessed_ms, mode } = kept;
    PackOptions { modified_ms, accessed_ms, mode, overwrite, parents: true }
}

/// Counts and reports results. `directories` on their way do not count as files.
fn account(results: Vec<Packed>, directories: &mut BTreeSet<String>, progress: &Progress) {
    let mut done = 0;
    for (path, result) in results {
        let directory = directories.remove(&path);
        match result {
            Ok(()) => done += u64::from(!directory),
            Err(error) => progress.complain(&refused(error, &path)),
        }
    }
    progress.copied(done);
}

/// A refusal that names the file and says what to do.
fn refused(error: Error, path: &str) -> Error {
    match error.kind() {
        ErrorKind::Exists => {
            Error::new(ErrorKind::Exists, format!("{path} exists already; use --overwrite to replace it"))
        }
        ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!("there is no directory to put {path} in; make it first with `stormwell mkdir -p`"),
        ),
        _ if error.text().contains(path) => error,
        _ => error.during(path),
    }
}

/// Puts one large file.
async fn one(client: &Client, pool: &Pool, ready: Ready, overwrite: bool, progress: &Arc<Progress>) -> Result<()> {
    if progress.stopped() {
        return Ok(());
    }
    match ready {
        Ready::Large(file, local, path, Kept { modified_ms, accessed_ms, mode }) => {
            let mode = (mode != 0).then_some(mode);
            let options = CreateOptions { overwrite, parents: true, mode, modified_ms, ..CreateOptions::default() };
            let source = Source { stream: file, shown: crate::path::shown(&local) };
            stream(client, pool.clone(), &path, source, options, progress).await?;
            let accessed = NewAttributes { accessed_ms: Some(accessed_ms), ..NewAttributes::default() };
            client.set_attributes(&path, accessed).await?;
            progress.copied(1);
            Ok(())
        }
        Ready::Small(_) => unreachable!("small files go to the packer"),
    }
}

/// Copies a stream into a new file and closes it. A copy that fails leaves no half file: what was made is removed.
pub async fn stream<R: Read + Send + 'static>(
    client: &Client,
    pool: Pool,
    path: &str,
    source: Source<R>,
    options: CreateOptions,
    progress: &Arc<Progress>,
) -> Result<()> {
    let mut writer = client.create(path, options).await.map_err(|error| refused(error, path))?;
    let (pieces, mut ready) = mpsc::channel(PIECES_WAITING);
    let reading = spawn_blocking(move || read_pieces(source, &pool, &pieces));
    let copied = async {
        while let Some(piece) = ready.recv().await {
            let length = piece.len() as u64;
            writer.write(piece.freeze()).await?;
            progress.copied_bytes(length);
            if progress.stopped() {
                return Err(Error::new(ErrorKind::Io, format!("putting {path} was given up; put it again")));
            }
        }
        Ok(())
    };
    let copied = copied.await;
    drop(ready);
    let read = reading.await.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Io, format!("reading for {path} was cut off: {error}; put it again")))
    });
    match copied.and(read) {
        Ok(()) => writer.close().await.map(|_| ()).map_err(|error| refused(error, path)),
        // Another writer has the file now: it is theirs.
        Err(error) if error.kind() == ErrorKind::Stale => Err(error),
        Err(error) => {
            give_up(client, writer, path).await;
            Err(error)
        }
    }
}

/// Removes what was begun, so that nobody takes half a file for a whole one. Errors were told already.
async fn give_up(client: &Client, writer: FileWriter, path: &str) {
    drop(writer);
    let _unreachable = client.delete(path, false).await;
}

/// Reads pieces until the stream ends or nobody wants more.
fn read_pieces<R: Read>(mut source: Source<R>, pool: &Pool, pieces: &Sender<Buffer>) -> Result<()> {
    loop {
        let mut piece = pool.take(PIECE);
        let mut filled = 0;
        let mut ended = false;
        while filled < PIECE && !ended {
            match source.stream.read(&mut piece[filled..]) {
                Ok(0) => ended = true,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::from(error).during(format!("cannot read {}", source.shown))),
            }
        }
        piece.set_length(filled);
        if (filled > 0 && pieces.blocking_send(piece).is_err()) || ended {
            return Ok(());
        }
    }
}
