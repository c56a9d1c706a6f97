//! The local side of `put`: one thread walks, a few read. Files are opened and read on threads because opening blocks,
//! and travel in batches because a message for each would cost more than the file.

use super::destination::Top;
use crate::path;
use crate::progress::Progress;
use base::error::{Error, ErrorKind, Result};
use base::limit::SMALL_FILE_MAX;
use bytes::Bytes;
use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::{Receiver, Sender};

/// Batches that may wait between two stages.
pub const BATCHES_WAITING: usize = 8;
/// Files in one batch of names.
const BATCH_FILES: usize = 64;
/// Bytes after which a batch of small files goes on: what one compound of the packer takes.
const BATCH_BYTES: usize = SMALL_FILE_MAX as usize;

/// Something to copy that the walk found.
pub enum Item {
    /// A file: where it is, and its path in the store.
    File(PathBuf, String),
    /// A directory, and its path in the store.
    Directory(PathBuf, String),
}

/// Small files that were read.
pub struct SmallFiles {
    /// All their bytes.
    pub bytes: Bytes,
    /// Each file: path in the store, range of `bytes`, what is kept with it.
    pub files: Vec<(String, std::ops::Range<usize>, Kept)>,
    /// Each directory: path in the store, what is kept with it.
    pub directories: Vec<(String, Kept)>,
}

/// What is kept of a local file besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Milliseconds since 1970, at least 1: zero would mean now.
    pub modified_ms: u64,
    /// The same, when it was last read.
    pub accessed_ms: u64,
    /// Permission bits.
    pub mode: u32,
}

/// What readers hand on.
pub enum Ready {
    /// Small files.
    Small(SmallFiles),
    /// A large file, open at its start.
    Large(File, PathBuf, String, Kept),
}

/// Finds everything below the sources.
pub struct Walk {
    /// Where batches go.
    pub found: Sender<Vec<Item>>,
    /// Whether links are followed.
    pub follow: bool,
    /// Who hears of what is left out.
    pub progress: Arc<Progress>,
}

/// A directory that waits to be walked.
struct Pending {
    local: PathBuf,
    remote: String,
    /// Its bits and times are not kept: it is a place in the store that was there before.
    bare: bool,
    /// Device and inode of it and of those above, to notice a link that leads back up. Kept only if links are followed.
    above: Vec<(u64, u64)>,
}

impl Walk {
    /// Walks until everything is found or the copy has to end.
    pub fn run(self, tops: Vec<Top>) {
        let mut batch = Vec::new();
        for top in tops {
            if top.directory {
                self.tree(
                    Pending { local: top.local, remote: top.remote, bare: !top.made, above: Vec::new() },
                    &mut batch,
                );
            } else {
                self.file(top.local, top.remote, &mut batch);
            }
        }
        self.pass_on(&mut batch);
        self.progress.found_all();
    }

    fn tree(&self, top: Pending, batch: &mut Vec<Item>) {
        let mut pending = vec![top];
        while let Some(directory) = pending.pop() {
            if self.progress.stopped() {
                return;
            }
            if let Err(error) = self.directory(directory, &mut pending, batch) {
                self.progress.complain(&error);
            }
        }
    }

    fn directory(&self, mut directory: Pending, pending: &mut Vec<Pending>, batch: &mut Vec<Item>) -> Result<()> {
        let named =
            |error: std::io::Error| Error::from(error).during(format!("cannot list {}", path::shown(&directory.local)));
        if self.follow {
            let metadata = os::file::metadata(&directory.local)?;
            let identity = (metadata.dev(), metadata.ino());
            if directory.above.contains(&identity) {
                self.progress.skip(&format!("{}: a link that leads back up", path::shown(&directory.local)));
                return Ok(());
            }
            directory.above.push(identity);
        }
        for entry in std::fs::read_dir(&directory.local).map_err(named)? {
            let entry = entry.map_err(named)?;
            let (local, name) = (entry.path(), entry.file_name());
            let name = match path::utf8(&name) {
                Ok(name) => name,
                Err(error) => {
                    let place = path::shown(&directory.local);
                    self.progress.complain(&error.during(format!("cannot put a file of {place}")));
                    continue;
                }
            };
            let remote = path::join(&directory.remote, name);
            let mut kind = entry.file_type().map_err(named)?;
            if kind.is_symlink() {
                if !self.follow {
                    self.progress.skip(&format!("{}: a symbolic link; --follow follows it", path::shown(&local)));
                    continue;
                }
                match os::file::metadata(&local) {
                    Ok(metadata) => kind = metadata.file_type(),
                    Err(error) => {
                        self.progress.complain(&error);
                        continue;
                    }
                }
            }
            if kind.is_dir() {
                pending.push(Pending { local, remote, bare: false, above: directory.above.clone() });
            } else if kind.is_file() {
                self.file(local, remote, batch);
            } else {
                let word = special(&kind);
                self.progress.skip(&format!("{}: {word}, not a file", path::shown(&local)));
            }
        }
        if !directory.bare {
            self.add(Item::Directory(directory.local, directory.remote), batch);
        }
        Ok(())
    }

    fn file(&self, local: PathBuf, remote: String, batch: &mut Vec<Item>) {
        self.progress.found(1, 0);
        self.add(Item::File(local, remote), batch);
    }

    fn add(&self, item: Item, batch: &mut Vec<Item>) {
        batch.push(item);
        if batch.len() >= BATCH_FILES {
            self.pass_on(batch);
        }
    }

    fn pass_on(&self, batch: &mut Vec<Item>) {
        if !batch.is_empty() {
            // Nobody receives any more when the copy was given up; the reason is told there.
            let _given_up = self.found.blocking_send(std::mem::take(batch));
        }
    }
}

fn special(kind: &std::fs::FileType) -> &'static str {
    match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

/// Reads what the walk found: runs on several threads with the same `found`.
pub struct Reader {
    /// Batches of the walk.
    pub found: Arc<Mutex<Receiver<Vec<Item>>>>,
    /// Small files go here, ...
    pub small: Sender<Ready>,
    /// ... large files there, so that neither waits for the other.
    pub large: Sender<Ready>,
    /// Who hears of what cannot be read.
    pub progress: Arc<Progress>,
}

/// Small files that are being gathered.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    files: Vec<(String, std::ops::Range<usize>, Kept)>,
    directories: Vec<(String, Kept)>,
}

impl Reader {
    /// Reads until the walk has ended or the copy has to.
    pub fn run(self) {
        loop {
            let batch = self.found.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv();
            let Some(batch) = batch else { return };
            let mut gathered = Gathered::default();
            for item in batch {
                if self.progress.stopped() {
                    return;
                }
                let given_up = match item {
                    Item::Directory(local, remote) => {
                        match os::file::metadata(&local) {
                            Ok(metadata) => gathered.directories.push((remote, kept(&metadata))),
                            Err(error) => self.progress.complain(&error),
                        }
                        false
                    }
                    Item::File(local, remote) => self.file(local, remote, &mut gathered).is_err(),
                };
                if given_up {
                    return;
                }
            }
            if self.pass_on(&mut gathered).is_err() {
                return;
            }
        }
    }

    /// Reads a small file, or opens a large one. An error means that nobody wants any more.
    fn file(&self, local: PathBuf, remote: String, gathered: &mut Gathered) -> std::result::Result<(), ()> {
        let opened = open(&local).and_then(|(file, metadata)| {
            self.progress.found(0, metadata.len());
            let kept = kept(&metadata);
            if metadata.len() > SMALL_FILE_MAX {
                return Ok(Some((file, kept)));
            }
            let start = gathered.bytes.len();
            // A file that has grown above the limit meanwhile is read as a large one, from its start.
            if !read_small(&file, metadata.len() as usize, &mut gathered.bytes)
                .map_err(|error| Error::from(error).during(format!("cannot read {}", path::shown(&local))))
                .inspect_err(|_| gathered.bytes.truncate(start))?
            {
                gathered.bytes.truncate(start);
                return open(&local).map(|(file, _)| Some((file, kept)));
            }
            gathered.files.push((remote.clone(), start..gathered.bytes.len(), kept));
            Ok(None)
        });
        match opened {
            Ok(Some((file, kept))) => self.large.blocking_send(Ready::Large(file, local, remote, kept)).map_err(|_| ()),
            Ok(None) if gathered.bytes.len() >= BATCH_BYTES => self.pass_on(gathered),
            Ok(None) => Ok(()),
            Err(error) => {
                self.progress.complain(&error);
                Ok(())
            }
        }
    }

    fn pass_on(&self, gathered: &mut Gathered) -> std::result::Result<(), ()> {
        if gathered.files.is_empty() && gathered.directories.is_empty() {
            return Ok(());
        }
        let Gathered { bytes, files, directories } = std::mem::take(gathered);
        let ready = Ready::Small(SmallFiles { bytes: Bytes::from(bytes), files, directories });
        self.small.blocking_send(ready).map_err(|_| ())
    }
}

fn open(local: &Path) -> Result<(File, Metadata)> {
    let file = os::file::open(local)?;
    let named = |error: std::io::Error| Error::from(error).during(format!("cannot look at {}", path::shown(local)));
    let metadata = file.metadata().map_err(named)?;
    if !metadata.is_file() {
        let text = format!("{} is not a file any more; put it again", path::shown(local));
        return Err(Error::new(ErrorKind::Io, text));
    }
    Ok((file, metadata))
}

/// Adds the file's bytes. One read if the file has the length that it said; it answers whether the file is small.
fn read_small(mut file: &File, length: usize, bytes: &mut Vec<u8>) -> std::io::Result<bool> {
    let start = bytes.len();
    bytes.resize(start + length, 0);
    let mut filled = start;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    if length > 0 {
        return Ok(true);
    }
    // Files of /proc and their like say zero and have more.
    let most = SMALL_FILE_MAX as usize + 1;
    file.take(most as u64).read_to_end(bytes)?;
    Ok(bytes.len() - start < most)
}

/// What is kept of those of these directories of the store that were made for one below `tops`. One that has gone meanwhile is left out.
pub fn kept_of(tops: &[Top], directories: BTreeSet<String>) -> Vec<(String, Kept)> {
    let local = |top: &Top, remote: &str| match remote.strip_prefix(top.remote.as_str())? {
        "" => top.made.then(|| top.local.clone()),
        below if top.remote == "/" => Some(top.local.join(below)),
        below => below.strip_prefix('/').map(|below| top.local.join(below)),
    };
    let kept_of = |remote: String| {
        // Several tops may go into one directory; the last that has this one gave it its time.
        let mut tops = tops.iter().rev().filter(|top| top.directory);
        let metadata = tops.find_map(|top| std::fs::metadata(local(top, &remote)?).ok())?;
        Some((remote, kept(&metadata)))
    };
    directories.into_iter().filter_map(kept_of).collect()
}

fn kept(metadata: &Metadata) -> Kept {
    let milliseconds = |seconds: i64, nanoseconds: i64| {
        let seconds = u64::try_from(seconds).unwrap_or(0);
        seconds.saturating_mul(1000).saturating_add(u64::try_from(nanoseconds).unwrap_or(0) / 1_000_000).max(1)
    };
    Kept {
        modified_ms: milliseconds(metadata.mtime(), metadata.mtime_nsec()),
        accessed_ms: milliseconds(metadata.atime(), metadata.atime_nsec()),
        mode: metadata.mode() & 0o7777,
    }
}
