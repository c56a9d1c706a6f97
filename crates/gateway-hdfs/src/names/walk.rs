//! Everything below a directory, page by page: memory for one page of each level. In whose name it is listed may list all of it.

use crate::refusal::Refusal;
use base::error::ErrorKind;
use base::limit::PATH_DEPTH_MAX;
use client::{Client, Entry, Listing};

/// A walk through a tree. Directories come before what is in them; those that go meanwhile are passed over.
pub(crate) struct Walk {
    client: Client,
    levels: Vec<(String, Listing)>,
}

impl Walk {
    /// A walk below this directory.
    pub fn new(client: Client, path: &str) -> Walk {
        let mut walk = Walk { client, levels: Vec::new() };
        walk.enter(path.to_string());
        walk
    }

    /// The next file or directory.
    pub async fn next(&mut self) -> Result<Option<Entry>, Refusal> {
        while let Some((path, entries)) = self.levels.last_mut() {
            let entry = match entries.next().await {
                Ok(entry) => entry,
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Invalid) => None,
                Err(error) => return Err(error.into()),
            };
            let Some(entry) = entry else {
                self.levels.pop();
                continue;
            };
            if entry.attributes.directory {
                let below = format!("{}/{}", path.trim_end_matches('/'), entry.name);
                if self.levels.len() < PATH_DEPTH_MAX {
                    self.enter(below);
                }
            }
            return Ok(Some(entry));
        }
        Ok(None)
    }

    fn enter(&mut self, path: String) {
        let entries = self.client.list_all(&path);
        self.levels.push((path, entries));
    }
}
