//! Where each source of a `put` goes, decided before anything is copied.

use crate::path::{self, Found, Placing};
use crate::progress::Progress;
use base::error::{Error, ErrorKind, Result};
use client::Client;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A source and its path in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Top {
    /// The source.
    pub local: PathBuf,
    /// Its path in the store.
    pub remote: String,
    /// Whether it is a directory.
    pub directory: bool,
    /// Whether that directory of the store was made for it.
    pub made: bool,
}

/// Places every source and makes the directories that stand for source directories. A source with a name that cannot
/// be kept, or that is not there, is complained about and left out.
pub async fn plan(
    client: &Client,
    sources: &[PathBuf],
    written: &str,
    destination: &str,
    progress: &Progress,
) -> Result<Vec<Top>> {
    let found = match client.stat(destination).await {
        Ok(attributes) if attributes.directory => Found::Directory,
        Ok(_) => Found::File,
        Err(error) if error.kind() == ErrorKind::NotFound => Found::Nothing,
        Err(error) => return Err(error),
    };
    let placing = path::placing(written, found, sources.len())?;
    let (mut tops, mut taken) = (Vec::new(), BTreeSet::new());
    for source in sources {
        match top(source, placing, destination) {
            Ok(top) if !top.directory && !taken.insert(top.remote.clone()) => progress.complain(&Error::new(
                ErrorKind::Invalid,
                format!("two sources would become {}; put {} apart", top.remote, path::shown(source)),
            )),
            Ok(top) => tops.push(top),
            Err(error) => progress.complain(&error),
        }
    }
    for top in tops.iter_mut().filter(|top| top.directory && top.remote != "/") {
        top.made = make(client, &top.remote).await?;
    }
    Ok(tops)
}

fn top(source: &Path, placing: Placing, destination: &str) -> Result<Top> {
    let directory = os::file::metadata(source)?.is_dir();
    let remote = match (placing, path::local_name(source)?) {
        (Placing::Below, Some(name)) => path::join(destination, &name),
        (Placing::Below, None) | (Placing::As, _) => destination.to_string(),
    };
    Ok(Top { local: source.to_path_buf(), remote, directory, made: false })
}

/// Makes a directory below one that exists; that it exists is fine. Answers whether it was made.
async fn make(client: &Client, path: &str) -> Result<bool> {
    match client.make_directory(path, false).await {
        Err(error) if error.kind() == ErrorKind::Exists => {
            if client.stat(path).await?.directory {
                return Ok(false);
            }
            let text =
                format!("{path} is a file, so no directory can be copied to it; remove it, or choose another DST");
            Err(Error::new(ErrorKind::Exists, text))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let text = format!("there is no directory to put {path} in; make it first with `stormwell mkdir -p`");
            Err(Error::new(ErrorKind::NotFound, text))
        }
        result => result.map(|()| true),
    }
}
