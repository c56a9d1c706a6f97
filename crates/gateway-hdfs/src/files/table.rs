//! What is known of open files and their blocks.

use super::{locks, open, openings, readers, room};
use crate::transfer::gathering::Incoming;
use std::sync::Arc;

/// What is known of open files and their blocks.
#[derive(Default)]
pub struct Files {
    /// Files that were read lately.
    pub readers: readers::Readers,
    /// Files that are open for writing.
    pub open: open::OpenFiles,
    /// Memory for bytes that were received and are not written yet.
    pub memory: Arc<Incoming>,
    /// Devices that had no room lately.
    pub room: room::Room,
    opening: locks::Locks,
    /// Calls that ask the store to open a file, until that is in the table.
    pub(super) openings: openings::Openings,
}

impl Files {
    /// Nobody else opens this path for writing until what is answered is dropped: a file that the store says is open and that is
    /// not open here belongs to somebody who is gone.
    pub(super) async fn opening(&self, path: &str) -> locks::Held<'_> {
        // As the store has it: clients may write a path in several ways.
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        self.opening.lock(&names.join("/")).await
    }
}
