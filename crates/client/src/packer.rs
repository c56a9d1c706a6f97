//! Many small files: gathered into compounds, whose bytes become durable together and whose names appear in one transaction.

use crate::client::Client;
use crate::lane::Lane;
use base::error::{Error, ErrorKind, Result};
use base::limit::{COMPOUND_FILES_MAX, SMALL_FILE_MAX};
use base::unit::show_bytes;
use bytes::Bytes;
use net::message::file::PutFile;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Mutex as Turn, Semaphore, mpsc};
use tokio::task::JoinSet;

/// How small files are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackerOptions {
    /// Compounds on their way at once, at least 1; each uses a shared group, so a device, of its own.
    pub lanes: usize,
    /// Bytes of one compound.
    pub compound_bytes: usize,
    /// Files of one compound, at most `base::limit::COMPOUND_FILES_MAX`.
    pub compound_files: usize,
}

impl Default for PackerOptions {
    /// A compound is one record of the device; four at once keep a device's sync busy while others wait for theirs.
    fn default() -> PackerOptions {
        PackerOptions { lanes: 4, compound_bytes: SMALL_FILE_MAX as usize, compound_files: COMPOUND_FILES_MAX }
    }
}

/// How one small file is put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackOptions {
    /// Modification time in milliseconds since 1970; zero means now.
    pub modified_ms: u64,
    /// Access time in milliseconds since 1970; zero means as modified.
    pub accessed_ms: u64,
    /// Permission bits; zero means 0644.
    pub mode: u32,
    /// Replace a file that exists.
    pub overwrite: bool,
    /// Make missing directories.
    pub parents: bool,
}

/// How one file fared: its path, and done or why not.
pub type Packed = (String, Result<()>);

/// Puts many small files. A file is there, whole and durable, or not at all; which, is in the results.
///
/// Files are put in no order: a path that is put twice without a `flush` between may keep either. Dropped without
/// `flush`, files that were not sent are not put.
pub struct Packer {
    options: PackerOptions,
    gathering: Compound,
    compounds: Option<mpsc::Sender<Work>>,
    /// One permit for each compound on its way or waiting for a lane.
    room: Arc<Semaphore>,
    results: Results,
    touched: Touched,
    lanes: JoinSet<()>,
}

/// Results that nobody has taken yet.
pub(crate) type Results = Arc<Mutex<Vec<Packed>>>;

/// Directories in which files were renamed.
pub(crate) type Touched = Arc<Mutex<BTreeSet<String>>>;

/// Files that travel together.
#[derive(Default)]
pub(crate) struct Compound {
    pub(crate) files: Vec<PutFile>,
    /// Each file's bytes, in the order of `files`.
    pub(crate) contents: Vec<Bytes>,
    pub(crate) bytes: usize,
}

/// A compound and its place in `room`, which goes back when its results are there.
pub(crate) struct Work {
    pub(crate) compound: Compound,
    pub(crate) _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Client {
    /// A packer. Must be called within a tokio runtime.
    pub fn packer(&self, options: PackerOptions) -> Packer {
        let lanes = options.lanes.max(1);
        let options = PackerOptions {
            lanes,
            compound_bytes: options.compound_bytes.max(1),
            compound_files: options.compound_files.clamp(1, COMPOUND_FILES_MAX),
        };
        let (compounds, inbox) = mpsc::channel(lanes);
        let inbox = Arc::new(Turn::new(inbox));
        let (results, touched) = (Results::default(), Touched::default());
        let mut tasks = JoinSet::new();
        for _ in 0..lanes {
            tasks.spawn(Lane::new(self.clone(), results.clone(), touched.clone()).run(inbox.clone()));
        }
        Packer {
            options,
            gathering: Compound::default(),
            compounds: Some(compounds),
            room: Arc::new(Semaphore::new(2 * lanes)),
            results,
            touched,
            lanes: tasks,
        }
    }
}

impl Packer {
    /// Puts a file of at most `base::limit::SMALL_FILE_MAX` bytes; a larger one is `Invalid`. Waits while too much is on
    /// its way. How the file fared is told by `take_results` and `flush`.
    pub async fn put(&mut self, path: &str, bytes: Bytes, options: PackOptions) -> Result<()> {
        if bytes.len() as u64 > SMALL_FILE_MAX {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "{path} has {}, more than the {} of a small file; it was not put; write it with Client::create",
                    show_bytes(bytes.len() as u64),
                    show_bytes(SMALL_FILE_MAX)
                ),
            ));
        }
        self.add(path, bytes, options, false).await
    }

    /// Makes a directory if it is missing, and gives it these times and bits in any case. It counts as a file of no bytes.
    pub async fn put_directory(&mut self, path: &str, options: PackOptions) -> Result<()> {
        self.add(path, Bytes::new(), options, true).await
    }

    async fn add(&mut self, path: &str, bytes: Bytes, options: PackOptions, directory: bool) -> Result<()> {
        let full = self.gathering.files.len() >= self.options.compound_files
            || self.gathering.bytes + bytes.len() > self.options.compound_bytes;
        if full {
            self.send().await?;
        }
        self.gathering.bytes += bytes.len();
        self.gathering.files.push(PutFile {
            path: path.to_string(),
            group: 0,
            offset: 0,
            length: bytes.len() as u64,
            modified_ms: options.modified_ms,
            accessed_ms: options.accessed_ms,
            mode: options.mode,
            overwrite: options.overwrite,
            parents: options.parents,
            directory,
        });
        self.gathering.contents.push(bytes);
        Ok(())
    }

    /// The results that have come in since somebody last took them. Does not wait.
    pub fn take_results(&mut self) -> Vec<Packed> {
        std::mem::take(&mut *self.results.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Directories that were changed as such by files that could not share a group, and so have the time of that, since somebody last
    /// asked.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut *self.touched.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until every file is put or refused, and answers with the results that nobody has taken yet.
    pub async fn flush(&mut self) -> Result<Vec<Packed>> {
        self.send().await?;
        let everything = 2 * self.options.lanes as u32;
        match self.room.acquire_many(everything).await {
            Ok(all) => drop(all),
            Err(_) => unreachable!("nobody closes a packer's room"),
        }
        Ok(self.take_results())
    }

    /// Like `flush`, and seals the groups that were used, so that no open end remains on the devices.
    pub async fn close(mut self) -> Result<Vec<Packed>> {
        let results = self.flush().await?;
        self.compounds = None;
        while self.lanes.join_next().await.is_some() {}
        Ok(results)
    }

    async fn send(&mut self) -> Result<()> {
        if self.gathering.files.is_empty() {
            return Ok(());
        }
        let permit = match self.room.clone().acquire_owned().await {
            Ok(permit) => permit,
            Err(_) => unreachable!("nobody closes a packer's room"),
        };
        let Some(compounds) = &self.compounds else { unreachable!("a closed packer is gone") };
        let work = Work { compound: std::mem::take(&mut self.gathering), _permit: permit };
        compounds.send(work).await.map_err(|_| {
            let text = "putting small files was cut off because the program is ending; files without a result may be missing; put them again";
            Error::new(ErrorKind::Io, text)
        })
    }
}
