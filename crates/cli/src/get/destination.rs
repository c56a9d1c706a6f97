//! Where each source of a `get` goes, decided before anything is copied.

use crate::path::{self, Found, Placing};
use crate::progress::Progress;
use base::error::{Error, ErrorKind, Result};
use client::{Attributes, Client};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A source and its local path.
pub struct Top {
    /// Its path in the store.
    pub remote: String,
    /// Its local path.
    pub local: PathBuf,
    /// What is known about it.
    pub attributes: Attributes,
}

/// A source as it was named.
pub struct Source {
    /// Its path in the store.
    pub path: String,
    /// Whether it was written `DIR/.`: then what is in it goes below the destination, without its name.
    pub content: bool,
}

/// Places every source. One that is not there is complained about and left out.
pub async fn plan(client: &Client, sources: &[Source], destination: &Path, progress: &Progress) -> Result<Vec<Top>> {
    let found = match std::fs::metadata(destination) {
        Ok(metadata) if metadata.is_dir() => Found::Directory,
        Ok(_) => Found::File,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Found::Nothing,
        Err(error) => return Err(Error::from(error).during(format!("cannot look at {}", path::shown(destination)))),
    };
    let mut written = path::shown(destination);
    if destination.as_os_str().as_bytes().ends_with(b"/") && !written.ends_with('/') {
        written.push('/');
    }
    let placing = path::placing(&written, found, sources.len())?;
    let (mut tops, mut taken) = (Vec::new(), BTreeSet::new());
    for source in sources {
        match top(client, source, placing, destination).await {
            Ok(top) if !top.attributes.directory && !taken.insert(top.local.clone()) => {
                progress.complain(&Error::new(
                    ErrorKind::Invalid,
                    format!("two sources would become {}; get {} apart", path::shown(&top.local), source.path),
                ));
            }
            Ok(top) => tops.push(top),
            Err(error) => progress.complain(&error),
        }
    }
    Ok(tops)
}

async fn top(client: &Client, source: &Source, placing: Placing, destination: &Path) -> Result<Top> {
    let attributes = client.stat(&source.path).await?;
    let name = path::last_name(&source.path).filter(|_| !source.content);
    let local = match (placing, name) {
        (Placing::Below, Some(name)) => path::below(destination, name)?,
        // The root directory has no name: its content goes there.
        (Placing::Below, None) | (Placing::As, _) => destination.to_path_buf(),
    };
    Ok(Top { remote: source.path.clone(), local, attributes })
}
