//! Files that were read lately, open to be read again: a client that reads here and there asks for each place anew, and the
//! metadata store need not be asked each time.

use base::error::Result;
use base::limit::{HDFS_READERS_MAX, HDFS_SUSPECTS_MAX};
use client::{Client, FileReader};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Closed files that were read lately, by number.
#[derive(Default)]
pub struct Readers {
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_inode: BTreeMap<u64, (FileReader, u64)>,
    /// Counts uses; the reader with the smallest count was not used for longest.
    uses: u64,
    /// Files of which a client said that bytes did not match their checksums, the latest last.
    suspects: VecDeque<u64>,
}

impl Readers {
    /// A reader of this file as it was at this generation or later.
    pub async fn open(&self, client: &Client, inode: u64, generation: u64) -> Result<FileReader> {
        if let Some(reader) = self.kept().find(inode)
            && reader.attributes().generation >= generation
        {
            return Ok(reader);
        }
        self.open_anew(client, inode).await
    }

    /// A reader of this file as it is now.
    pub async fn open_anew(&self, client: &Client, inode: u64) -> Result<FileReader> {
        self.forget(inode);
        let reader = client.open_inode(inode).await?;
        // How long a file that is being written is must be asked for each time.
        if !reader.attributes().open {
            self.kept().keep(inode, reader.clone());
        }
        Ok(reader)
    }

    /// Forgets a file that turned out to be otherwise than it was.
    pub fn forget(&self, inode: u64) {
        self.kept().by_inode.remove(&inode);
    }

    /// A client said that bytes of this file did not match their checksums.
    pub fn suspect(&self, inode: u64) {
        let suspects = &mut self.kept().suspects;
        suspects.retain(|known| *known != inode);
        suspects.push_back(inode);
        if suspects.len() > HDFS_SUSPECTS_MAX {
            suspects.pop_front();
        }
    }

    /// Whether a client lately said so.
    pub fn is_suspect(&self, inode: u64) -> bool {
        self.kept().suspects.contains(&inode)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn find(&mut self, inode: u64) -> Option<FileReader> {
        let (reader, used) = self.by_inode.get_mut(&inode)?;
        self.uses += 1;
        *used = self.uses;
        Some(reader.clone())
    }

    fn keep(&mut self, inode: u64, reader: FileReader) {
        if self.by_inode.len() >= HDFS_READERS_MAX {
            let oldest = self.by_inode.iter().min_by_key(|(_, (_, used))| *used).map(|(inode, _)| *inode);
            oldest.and_then(|inode| self.by_inode.remove(&inode));
        }
        self.uses += 1;
        self.by_inode.insert(inode, (reader, self.uses));
    }
}
