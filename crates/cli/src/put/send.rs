//! The store's side of `put`: small files through a packer, large ones as streams, several at a time. Both are there whole or not at all.

use super::local::{BATCHES_WAITING, Item, Kept, Reader, Ready};
use crate::progress::Progress;
use base::buffer::{Buffer, Pool};
use base::error::{Error, ErrorKind, Result};
use base::permission::Denied;
use base::unit::MIB;
use client::{Client, CreateOptions, FileWriter, NewAttributes, PackOptions, Packed, PackerOptions, Unfinished};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{self, Receiver};
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

/// Puts files: what all of them share.
#[derive(Clone)]
pub struct Sender {
    /// The store.
    pub client: Client,
    /// Aligned memory.
    pub pool: Pool,
    /// Replace files that exist.
    pub overwrite: bool,
    /// Who hears of what goes on.
    pub progress: Arc<Progress>,
}

/// Permission bits that a directory has while its files are put, for its owner.
const OPEN_BITS: u32 = 0o300;

/// Directories of the store whose times are not those that they were given, because files got their names in them since, or whose bits are
/// not, because files had to.
pub type Touched = BTreeSet<String>;

impl Sender {
    /// What ended a copy to this destination; where room was missing, with what stands.
    pub fn explained(&self, error: Error, destination: &str) -> Error {
        if error.kind() != ErrorKind::Full {
            return error;
        }
        let what = error.text().rsplit_once("; ").map_or(error.text(), |(what, _)| what);
        let stands = match self.progress.done() {
            0 => "no file was put".to_string(),
            files => format!(
                "{} put: whatever `stormwell ls -R {destination}` shows is whole",
                crate::show::count(files, "file is", "files are")
            ),
        };
        let text = format!(
            "{what}; {stands}; none of the others has its name, and files that had these names are as they were; make room with `stormwell rm` or one more --data DIR of `stormwell serve`, and put the others again"
        );
        Error::new(ErrorKind::Full, text)
    }

    /// Copies everything that the walk finds.
    pub async fn everything(&self, found: Receiver<Vec<Item>>) -> Result<Touched> {
        let found = Arc::new(Mutex::new(found));
        let (small, small_ready) = mpsc::channel(BATCHES_WAITING);
        let (large, large_ready) = mpsc::channel(LARGE_FILES);
        let (mut readers, mut large_files) = (JoinSet::new(), JoinSet::new());
        for _ in 0..READERS {
            let (found, small, large) = (found.clone(), small.clone(), large.clone());
            let reader = Reader { found, small, large, progress: self.progress.clone() };
            readers.spawn_blocking(move || reader.run());
        }
        drop((found, small, large));
        let large_ready = Arc::new(tokio::sync::Mutex::new(large_ready));
        for _ in 0..LARGE_FILES {
            large_files.spawn(self.clone().large_files(large_ready.clone()));
        }
        let packed = self.pack(small_ready).await;
        let cut_off = |error| {
            self.progress.stop(Error::new(ErrorKind::Io, format!("the copy was cut off: {error}; run it again")));
        };
        let mut touched = Touched::new();
        while let Some(ended) = large_files.join_next().await {
            ended.map_or_else(cut_off, |more| touched.extend(more));
        }
        while let Some(ended) = readers.join_next().await {
            ended.unwrap_or_else(cut_off);
        }
        touched.extend(packed?);
        Ok(touched)
    }

    /// Puts large files, one after another, until no more come.
    async fn large_files(self, ready: Arc<tokio::sync::Mutex<Receiver<Ready>>>) -> Touched {
        let mut touched = Touched::new();
        loop {
            let next = ready.lock().await.recv().await;
            let Some(next) = next else { return touched };
            if self.progress.stopped() {
                // Taken without effect, so that no reader waits for ever.
                continue;
            }
            let Ready::Large(file, local, path, kept) = next else { unreachable!("small files go to the packer") };
            match self.large(file, &local, &path, kept).await {
                Ok(false) => {}
                Ok(true) => {
                    self.progress.copied(1);
                    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
                    touched.insert(if directory.is_empty() { "/" } else { directory }.to_string());
                }
                Err(error) => self.progress.complain(&error),
            }
        }
    }

    async fn large(&self, file: File, local: &Path, path: &str, kept: Kept) -> Result<bool> {
        let Kept { modified_ms, accessed_ms, mode } = kept;
        let mode = (mode != 0).then_some(mode);
        let options = CreateOptions { parents: true, mode, modified_ms, ..CreateOptions::default() };
        let source = Source { stream: file, shown: crate::path::shown(local) };
        self.stream(path, source, options, Some(accessed_ms)).await
    }

    /// Puts small files until no more come.
    async fn pack(&self, mut ready: Receiver<Ready>) -> Result<Touched> {
        let (mut packer, progress) = (self.client.packer(PackerOptions::default()), &self.progress);
        let (mut directories, mut opened) = (BTreeSet::new(), Touched::new());
        while let Some(ready) = ready.recv().await {
            let Ready::Small(batch) = ready else { unreachable!("readers send nothing else here") };
            if progress.stopped() {
                // Drained without effect, so that no reader waits for ever.
                continue;
            }
            let mut bytes = 0;
            for (path, range, kept) in batch.files {
                bytes += range.len() as u64;
                packer.put(&path, batch.bytes.slice(range), options(kept, self.overwrite)).await?;
            }
            for (path, kept) in batch.directories {
                // What is in it comes before and behind it: until all is there its owner may put names into it.
                let open = Kept { mode: kept.mode | OPEN_BITS, ..kept };
                if open != kept {
                    opened.insert(path.clone());
                }
                packer.put_directory(&path, options(open, self.overwrite)).await?;
                directories.insert(path);
            }
            progress.copied_bytes(bytes);
            account(packer.take_results(), &mut directories, progress);
        }
        account(packer.flush().await?, &mut directories, progress);
        opened.extend(packer.take_touched());
        packer.close().await?;
        Ok(opened)
    }

    /// Gives directories their times and bits, when nothing gets a name in them any more: those in others first, as bits may end the way there.
    pub async fn dress(&self, directories: Vec<(String, Kept)>) -> Result<()> {
        let mut packer = self.client.packer(PackerOptions { lanes: 1, ..PackerOptions::default() });
        let mut dressed = BTreeSet::new();
        for (path, kept) in directories.into_iter().rev() {
            packer.put_directory(&path, options(kept, true)).await?;
            dressed.insert(path);
        }
        account(packer.close().await?, &mut dressed, &self.progress);
        Ok(())
    }

    /// Copies a stream into a file, which has its name only when it is whole and on stable media. What was made of a copy that fails
    /// is removed. Answers whether the file is there: not if the copy was stopped meanwhile, the reason of which is told elsewhere.
    pub async fn stream<R: Read + Send + 'static>(
        &self,
        path: &str,
        source: Source<R>,
        options: CreateOptions,
        accessed_ms: Option<u64>,
    ) -> Result<bool> {
        let options = CreateOptions { overwrite: self.overwrite, ..options };
        let begun = self.client.create_beside(path, options).await.map_err(|error| refused(error, path))?;
        let (unfinished, writer) = begun;
        let written = tokio::select! {
            biased;
            () = self.progress.until_stopped() => None,
            written = self.write(&unfinished, writer, source, accessed_ms) => Some(written),
        };
        let named = match written {
            Some(Ok(())) => unfinished.finish().await.map(|()| true),
            Some(Err(error)) => Err(error),
            None => Ok(false),
        };
        if !matches!(named, Ok(true))
            && let Err(left) = unfinished.remove().await
        {
            // By itself it is no reason to stop.
            self.progress.complain(&Error::new(ErrorKind::Io, left.text()));
        }
        named.map_err(|error| refused(unfinished.named(error), path))
    }

    /// Writes and closes a file. Dropped in the middle, it leaves a file that is not whole.
    async fn write<R: Read + Send + 'static>(
        &self,
        unfinished: &Unfinished,
        mut writer: FileWriter,
        source: Source<R>,
        accessed_ms: Option<u64>,
    ) -> Result<()> {
        let (pieces, mut ready) = mpsc::channel(PIECES_WAITING);
        let (pool, shown) = (self.pool.clone(), source.shown.clone());
        let reading = spawn_blocking(move || read_pieces(source, &pool, &pieces));
        while let Some(piece) = ready.recv().await {
            let length = piece.len() as u64;
            writer.write(piece.freeze()).await?;
            self.progress.copied_bytes(length);
        }
        reading.await.unwrap_or_else(|error| {
            Err(Error::new(ErrorKind::Io, format!("reading {shown} was cut off: {error}; put it again")))
        })?;
        writer.close().await?;
        if accessed_ms.is_some() {
            let accessed = NewAttributes { accessed_ms, ..NewAttributes::default() };
            self.client.set_attributes(unfinished.temporary(), accessed).await?;
        }
        Ok(())
    }
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
            // It was there before and stays as its owner has it.
            Err(error) if directory && matches!(Denied::read(&error), Some(Denied::Owner { .. })) => {}
            Err(error) => progress.complain(&refused(error, &path)),
        }
    }
    progress.copied(done);
}

/// A refusal that names the file and says what to do.
fn refused(error: Error, path: &str) -> Error {
    match error.kind() {
        ErrorKind::Exists if error.text().contains("is a directory; ") => {
            let text =
                format!("{path} is a directory, so no file can be put in its place; remove it, or choose another DST");
            Error::new(ErrorKind::Exists, text)
        }
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

/// Reads pieces until the stream ends or nobody wants more.
fn read_pieces<R: Read>(mut source: Source<R>, pool: &Pool, pieces: &mpsc::Sender<Buffer>) -> Result<()> {
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
