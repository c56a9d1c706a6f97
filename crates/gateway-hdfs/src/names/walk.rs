//! Everything below a directory, page by page: memory for one page of each level.

use crate::gateway::Gateway;
use crate::refusal::Refusal;
use base::error::ErrorKind;
use base::limit::PATH_DEPTH_MAX;
use client::{Attributes, Entry, Listing};

/// A walk through a tree. Directories come before what is in them; those that go meanwhile are passed over.
pub(crate) struct Walk<'a> {
    gateway: &'a Gateway,
    levels: Vec<Level>,
    first: bool,
    empty: Option<(Attributes, String)>,
}

struct Level {
    path: String,
    directory: Attributes,
    entries: Listing,
    begun: bool,
}

impl<'a> Walk<'a> {
    /// A walk below this directory.
    pub fn new(gateway: &'a Gateway, path: &str, directory: Attributes) -> Walk<'a> {
        let mut walk = Walk { gateway, levels: Vec::new(), first: false, empty: None };
        walk.enter(path.to_string(), directory);
        walk
    }

    /// The next file or directory, with the directory that it is in and that one's path.
    pub async fn next(&mut self) -> Result<Option<(Attributes, String, Entry)>, Refusal> {
        while let Some(level) = self.levels.last_mut() {
            let entry = match level.entries.next().await {
                Ok(entry) => entry,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => None,
                Err(error) => return Err(error.into()),
            };
            let Some(entry) = entry else {
                if let Some(Level { path, directory, begun: false, .. }) = self.levels.pop() {
                    self.empty = Some((directory, path));
                }
                continue;
            };
            self.first = !level.begun;
            level.begun = true;
            let (directory, path) = (level.directory.clone(), level.path.clone());
            if entry.attributes.directory && self.levels.len() < PATH_DEPTH_MAX {
                self.enter(format!("{}/{}", path.trim_end_matches('/'), entry.name), entry.attributes.clone());
            }
            return Ok(Some((directory, path, entry)));
        }
        Ok(None)
    }

    /// The directory, and its path, that was found empty before what came last, if one was: no two are without something in between.
    pub fn take_empty(&mut self) -> Option<(Attributes, String)> {
        self.empty.take()
    }

    /// Whether what came last was the first of its directory.
    pub fn is_first(&self) -> bool {
        self.first
    }

    fn enter(&mut self, path: String, directory: Attributes) {
        let entries = self.gateway.client.list_all(&path);
        self.levels.push(Level { path, directory, entries, begun: false });
    }
}
