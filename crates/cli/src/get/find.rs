//! What `get` is to copy: directories are listed, several at once, and made; files go to those who fetch, small ones many at a time.

use super::destination::Top;
use super::local::Local;
use crate::path;
use base::error::{Error, ErrorKind, Result};
use base::limit::{LISTED_TOGETHER_MAX, RECORD_PAYLOAD_MAX, SMALL_FILE_MAX};
use client::{Attributes, Client, Entry, Extent, Listed};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::Sender;
use tokio::task::{JoinSet, block_in_place};

/// Directories that are listed at once: a tree of small ones would else wait for one answer after another.
const LISTERS: usize = 8;
/// Files that are fetched together: as many as are put together,
const BATCH_FILES: usize = base::limit::COMPOUND_FILES_MAX;
/// and as many bytes.
const BATCH_BYTES: u64 = RECORD_PAYLOAD_MAX as u64;

/// A file or directory to fetch.
pub struct Wanted {
    /// Its path in the store.
    pub remote: String,
    /// Where it goes.
    pub local: PathBuf,
    /// What it was when it was listed.
    pub attributes: Attributes,
    /// Where its bytes were then, if the listing said so.
    pub extents: Vec<Extent>,
    /// Whether this command made the directory that it goes into, where nothing else is expected.
    pub directory_made: bool,
}

impl Wanted {
    /// Whether it can be put where it goes: asked before its bytes are fetched.
    pub fn check(&self, local: &Local) -> Result<()> {
        if self.directory_made { Ok(()) } else { local.check(&self.local) }
    }

    /// As the listing told of it.
    pub fn listed(&self) -> Listed<'_> {
        Listed { attributes: &self.attributes, extents: &self.extents }
    }

    /// Whether it can be fetched together with others.
    pub fn is_small_and_located(&self) -> bool {
        self.attributes.length <= SMALL_FILE_MAX && self.listed().is_located()
    }
}

/// A local directory that holds something that was copied.
pub struct Made {
    /// Where it is.
    pub local: PathBuf,
    /// What it is to be given; none if it was there before.
    pub attributes: Option<Attributes>,
}

/// Finds everything below the sources and makes local directories. Answers with them, parents first.
pub async fn find(client: &Client, tops: Vec<Top>, local: &Arc<Local>, wanted: Sender<Vec<Wanted>>) -> Vec<Made> {
    let progress = &local.progress;
    let (mut directories, mut pending) = (Vec::new(), Vec::new());
    let files = Arc::new(Files { wanted, gathered: Mutex::default() });
    for Top { remote, local: target, attributes } in tops {
        if local.sync {
            let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
            directories.push(Made { local: parent.unwrap_or(Path::new(".")).to_path_buf(), attributes: None });
        }
        let top = Wanted { remote, local: target, attributes, extents: Vec::new(), directory_made: false };
        if top.attributes.directory {
            pending.push(top);
        } else {
            progress.found(1, top.attributes.length);
            // Nobody receives any more when the copy was cut off, which is told there.
            let _given_up = files.add(top).await;
        }
    }
    let mut listers = JoinSet::new();
    loop {
        while listers.len() < LISTERS && !pending.is_empty() {
            let some = pending.len().div_ceil(LISTERS).min(LISTED_TOGETHER_MAX);
            let next = pending.split_off(pending.len() - some);
            if let Some(error) = progress.lost() {
                for Wanted { remote, .. } in next {
                    progress.leave_out(&format!("{remote} with everything below"), error);
                }
            } else if progress.stopped() {
                pending.clear();
            } else {
                let lister = Lister { client: client.clone(), local: local.clone(), files: files.clone() };
                listers.spawn(lister.list(next));
            }
        }
        match listers.join_next().await {
            None => break,
            Some(Ok((made, below))) => {
                directories.extend(made);
                pending.extend(below);
            }
            Some(Err(error)) => {
                let text = format!("the listing was cut off: {error}; run it again");
                progress.stop(Error::new(ErrorKind::Io, text));
            }
        }
    }
    // As above.
    let _given_up = files.flush().await;
    progress.found_all();
    directories
}

/// A local directory that is there, and the one in the store that is copied into it.
struct Target {
    remote: String,
    local: PathBuf,
    /// Whether this command made it.
    made: bool,
}

/// Lists directories, many small ones with one question.
struct Lister {
    client: Client,
    local: Arc<Local>,
    files: Arc<Files>,
}

impl Lister {
    /// Makes directories and lists them. Back come they and the directories below.
    async fn list(self, wanted: Vec<Wanted>) -> (Vec<Made>, Vec<Wanted>) {
        let (mut made, mut below) = (Vec::new(), Vec::new());
        let mut targets = block_in_place(|| self.make(wanted, &mut made));
        while let Some(first) = targets.first() {
            let progress = &self.local.progress;
            if progress.stopped() {
                if let Some(lost) = progress.lost() {
                    self.leave_out(&targets, lost);
                }
                break;
            }
            let paths: Vec<String> = targets.iter().map(|target| target.remote.clone()).collect();
            let done = match self.client.list_together_located(&paths).await {
                Ok(listed) if listed.is_empty() => self.page_by_page(first, &mut below).await.map(|()| 1),
                Ok(listed) => Ok(self.whole(&targets, listed, &mut below).await),
                Err(error) => Err(error),
            };
            match done {
                Ok(done) => drop(targets.drain(..done)),
                // Without the node that keeps the metadata nothing goes on.
                Err(error) if error.kind() == ErrorKind::Unreachable => {
                    self.leave_out(&targets, &error);
                    progress.stop(error);
                    break;
                }
                Err(error) => {
                    progress.complain(&error);
                    targets.remove(0);
                }
            }
        }
        (made, below)
    }

    /// Makes the local directories. One that cannot be made is complained about and left out.
    fn make(&self, wanted: Vec<Wanted>, all: &mut Vec<Made>) -> Vec<Target> {
        let mut targets = Vec::with_capacity(wanted.len());
        for Wanted { remote, local, attributes, .. } in wanted {
            match self.local.directory(&local) {
                Ok(made) => {
                    all.push(Made { local: local.clone(), attributes: made.then_some(attributes) });
                    targets.push(Target { remote, local, made });
                }
                Err(error) => self.local.progress.complain(&error),
            }
        }
        targets
    }

    /// Names what was not listed because nobody answers.
    fn leave_out(&self, targets: &[Target], error: &Error) {
        for Target { remote, .. } in targets {
            self.local.progress.leave_out(&format!("what is below {remote} and was not listed"), error);
        }
    }

    /// Takes the entries of the first directories, and answers how many these are.
    async fn whole(&self, targets: &[Target], listed: Vec<Vec<Entry>>, below: &mut Vec<Wanted>) -> usize {
        let count = listed.len();
        for (target, entries) in targets.iter().zip(listed) {
            for entry in entries {
                match self.take(target, entry, below).await {
                    Ok(true) => (),
                    Ok(false) => return count,
                    Err(error) => {
                        self.local.progress.complain(&error);
                        break;
                    }
                }
            }
        }
        count
    }

    async fn page_by_page(&self, target: &Target, below: &mut Vec<Wanted>) -> Result<()> {
        let mut listing = self.client.list_large_located(&target.remote);
        while let Some(entry) = listing.next().await? {
            if !self.take(target, entry, below).await? {
                break;
            }
        }
        Ok(())
    }

    /// Hands a file on, and keeps a directory. Answers whether the next entry is wanted.
    async fn take(&self, target: &Target, entry: Entry, below: &mut Vec<Wanted>) -> Result<bool> {
        let local = path::below(&target.local, &entry.name)?;
        let remote = path::join(&target.remote, &entry.name);
        let Entry { attributes, extents, .. } = entry;
        let wanted = Wanted { remote, local, attributes, extents, directory_made: target.made };
        if wanted.attributes.directory {
            below.push(wanted);
            return Ok(true);
        }
        let progress = &self.local.progress;
        progress.found(1, wanted.attributes.length);
        let given_up = !self.files.add(wanted).await;
        // What was listed is named, too, when nobody answers any more.
        Ok(!given_up && (!progress.stopped() || progress.lost().is_some()))
    }
}

/// The way of files to those who fetch them.
struct Files {
    wanted: Sender<Vec<Wanted>>,
    gathered: Mutex<Gathered>,
}

/// Small files that are fetched together, and their bytes.
#[derive(Default)]
struct Gathered {
    files: Vec<Wanted>,
    bytes: u64,
}

impl Files {
    /// Sends a file on: at once, or with others that come. Answers false when nobody fetches any more.
    async fn add(&self, wanted: Wanted) -> bool {
        if !wanted.is_small_and_located() {
            return self.wanted.send(vec![wanted]).await.is_ok();
        }
        let full = {
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            let length = wanted.attributes.length;
            let full = gathered.files.len() == BATCH_FILES || gathered.bytes + length > BATCH_BYTES;
            let full = full.then(|| std::mem::take(&mut *gathered).files);
            gathered.bytes += length;
            gathered.files.push(wanted);
            full
        };
        match full {
            Some(files) if !files.is_empty() => self.wanted.send(files).await.is_ok(),
            _ => true,
        }
    }

    /// Sends on what was gathered.
    async fn flush(&self) -> bool {
        let files = std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner)).files;
        files.is_empty() || self.wanted.send(files).await.is_ok()
    }
}
