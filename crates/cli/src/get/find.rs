//! What `get` is to copy: directories are listed, several at once, and made; files go to those who fetch, small ones many at a time.

use super::destination::Top;
use super::local::Local;
use crate::path;
use base::error::{Error, ErrorKind, Result};
use base::limit::{RECORD_PAYLOAD_MAX, SMALL_FILE_MAX};
use client::{Attributes, Client, Extent, Listed};
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
        while listers.len() < LISTERS
            && let Some(next) = pending.pop()
        {
            if let Some(error) = progress.lost() {
                progress.leave_out(&format!("{} with everything below", next.remote), error);
            } else if progress.stopped() {
                pending.clear();
            } else {
                listers.spawn(list(client.clone(), next, local.clone(), files.clone()));
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

/// Makes a directory and lists it. Back come it and the directories below.
async fn list(client: Client, wanted: Wanted, local: Arc<Local>, files: Arc<Files>) -> (Option<Made>, Vec<Wanted>) {
    let (Wanted { remote, local: target, attributes, .. }, progress) = (wanted, &local.progress);
    let made = match block_in_place(|| local.directory(&target)) {
        Ok(made) => made,
        Err(error) => {
            progress.complain(&error);
            return (None, Vec::new());
        }
    };
    let mut below = Vec::new();
    match entries(&client, (&remote, &target, made), &local, &files, &mut below).await {
        // Without the node that keeps the metadata nothing goes on.
        Err(error) if error.kind() == ErrorKind::Unreachable => {
            progress.leave_out(&format!("what is below {remote} and was not listed"), &error);
            progress.stop(error);
        }
        Err(error) => progress.complain(&error),
        Ok(()) => {}
    }
    (Some(Made { local: target, attributes: made.then_some(attributes) }), below)
}

async fn entries(
    client: &Client,
    (remote, target, made): (&str, &Path, bool),
    local: &Local,
    files: &Files,
    directories: &mut Vec<Wanted>,
) -> Result<()> {
    let mut listing = client.list_all_located(remote);
    while let Some(entry) = listing.next().await? {
        let below = path::below(target, &entry.name)?;
        let remote = path::join(remote, &entry.name);
        let wanted =
            Wanted { remote, local: below, attributes: entry.attributes, extents: entry.extents, directory_made: made };
        if wanted.attributes.directory {
            directories.push(wanted);
            continue;
        }
        local.progress.found(1, wanted.attributes.length);
        let given_up = !files.add(wanted).await;
        // What was listed is named, too, when nobody answers any more.
        if given_up || local.progress.stopped() && local.progress.lost().is_none() {
            break;
        }
    }
    Ok(())
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
