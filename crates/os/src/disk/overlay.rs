//! A device directory that is only looked at: reads come from its files, changes stay in memory and end with it.
#![allow(clippy::disallowed_methods)] // The real files of a device, opened for reading.

use super::directory::{self, disk_error};
use super::workers::Finished;
use base::buffer::{Buffer, Pool};
use base::disk::{Disk, DiskError, Done, FileName, Op, Wake};
use base::error::{Error, Result};
use base::limit::BLOCK;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Descriptors that are kept. Looking goes through a device segment by segment, so few are in use at a time.
const FILES_OPEN_MAX: usize = 128;

/// The directory as it was when it was opened, and what was changed since, in memory. Operations finish as they are submitted.
pub(super) struct OverlayDisk {
    path: PathBuf,
    files: BTreeMap<FileName, OverlayFile>,
    descriptors: BTreeMap<FileName, File>,
    finished: Arc<Finished>,
    pool: Pool,
    /// Keeps servers away; there is none if nothing ever locked the directory.
    _lock: Option<File>,
}

struct OverlayFile {
    length: u64,
    /// Whether there is a file below; else it was made here.
    below: bool,
    /// Blocks written here, by number.
    blocks: BTreeMap<u64, Bytes>,
}

impl OverlayDisk {
    /// Looks at the directory, which nobody may be serving meanwhile.
    pub(super) fn open(path: &Path, pool: Pool) -> Result<OverlayDisk> {
        let lock = directory::lock_for_looking(path)?;
        let listed = directory::list(path).map_err(|error| {
            Error::new(base::error::ErrorKind::Io, format!("{error}; nothing was changed; check the path and the disk"))
        })?;
        let file = |(name, length)| (name, OverlayFile { length, below: true, blocks: BTreeMap::new() });
        Ok(OverlayDisk {
            path: path.to_path_buf(),
            files: listed.into_iter().map(file).collect(),
            descriptors: BTreeMap::new(),
            finished: Arc::default(),
            pool,
            _lock: lock,
        })
    }

    fn execute(&mut self, op: Op) -> std::result::Result<Buffer, DiskError> {
        match op {
            Op::Create { file, size, .. } => {
                self.files.insert(file, OverlayFile { length: size, below: false, blocks: BTreeMap::new() });
            }
            Op::Remove { file } => {
                self.files.remove(&file);
            }
            Op::Read { file, offset, length, .. } => {
                return self.read(file, offset, length);
            }
            Op::Write { file, offset, parts } => {
                self.files.get_mut(&file).ok_or(DiskError::NotFound)?.write(offset, &parts);
            }
            // A punched range may come back as zeros late, and nobody reads one again: what lies below stays to be seen.
            Op::Sync { file } | Op::Punch { file, .. } => {
                self.files.get(&file).ok_or(DiskError::NotFound)?;
            }
        }
        Ok(Buffer::zeroed(0))
    }

    fn read(&mut self, name: FileName, offset: u64, length: usize) -> std::result::Result<Buffer, DiskError> {
        let file = self.files.get(&name).ok_or(DiskError::NotFound)?;
        let length = usize::try_from(file.length.saturating_sub(offset)).unwrap_or(usize::MAX).min(length);
        let mut buffer = self.pool.take(length.next_multiple_of(BLOCK));
        if file.below {
            let below = open(&mut self.descriptors, &self.path, name)
                .and_then(|descriptor| directory::read(descriptor, offset, buffer))
                .map_err(|error| disk_error("read", name, &error))?;
            let filled = below.len();
            buffer = below;
            buffer.set_length(length.next_multiple_of(BLOCK).min(buffer.room()));
            buffer[filled..].fill(0);
        } else {
            buffer.fill(0);
        }
        let first = offset / BLOCK as u64;
        let blocks = buffer.len() / BLOCK;
        for (number, block) in file.blocks.range(first..first.saturating_add(blocks as u64)) {
            let at = (number - first) as usize * BLOCK;
            buffer[at..at + BLOCK].copy_from_slice(block);
        }
        buffer.set_length(length);
        Ok(buffer)
    }
}

/// The descriptor of a file below, past the page cache where the file system lets us: what a disk holds is the question.
fn open<'a>(descriptors: &'a mut BTreeMap<FileName, File>, path: &Path, name: FileName) -> io::Result<&'a File> {
    if !descriptors.contains_key(&name) && descriptors.len() >= FILES_OPEN_MAX {
        descriptors.clear();
    }
    match descriptors.entry(name) {
        std::collections::btree_map::Entry::Occupied(entry) => Ok(entry.into_mut()),
        std::collections::btree_map::Entry::Vacant(entry) => {
            let path = path.join(name.to_string());
            let opened = match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => OpenOptions::new().read(true).open(&path),
                other => other,
            };
            Ok(entry.insert(opened?))
        }
    }
}

impl OverlayFile {
    fn write(&mut self, offset: u64, parts: &[Bytes]) {
        let mut number = offset / BLOCK as u64;
        for part in parts {
            for start in (0..part.len()).step_by(BLOCK) {
                self.blocks.insert(number, part.slice(start..start + BLOCK));
                number += 1;
            }
        }
        self.length = self.length.max(number * BLOCK as u64);
    }
}

impl Disk for OverlayDisk {
    fn list(&mut self) -> std::result::Result<Vec<(FileName, u64)>, DiskError> {
        Ok(self.files.iter().map(|(name, file)| (*name, file.length)).collect())
    }

    fn submit(&mut self, token: u64, op: Op) {
        let result = self.execute(op);
        self.finished.put(Done { token, result });
    }

    fn poll(&mut self, wait: Option<Duration>, done: &mut Vec<Done>) {
        self.finished.wait(wait, done);
    }

    fn waker(&self) -> Arc<dyn Wake> {
        Arc::clone(&self.finished) as Arc<dyn Wake>
    }

    fn backend(&self) -> &'static str {
        "read-only"
    }
}
