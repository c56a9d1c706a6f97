//! The embedded tree on a `BlockFile`: what redb asks of its storage, and how its errors read.

use base::disk::BlockFile;
use base::error::{Error, ErrorKind};
use redb::{Builder, Database, StorageBackend, TableDefinition};
use std::io;

/// The one table: the ordered state.
pub const TABLE: TableDefinition<'static, &'static [u8], &'static [u8]> = TableDefinition::new("state");

/// Bytes of pages that redb keeps in memory.
const CACHE: usize = 32 << 20;

#[derive(Debug)]
struct Backend(Box<dyn BlockFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

/// Opens the tree in the file, or makes it there. `fresh` says that no change was ever logged: then a file that was begun
/// and not finished (redb writes its magic number last) is made again.
pub fn open(file: Box<dyn BlockFile>, fresh: bool) -> base::error::Result<Database> {
    let length = file.length()?;
    if fresh && length > 0 {
        let mut start = [0; 8];
        if length < 8 || (file.read(0, &mut start).is_ok() && start == [0; 8]) {
            file.set_length(0)?;
        }
    }
    Builder::new().set_cache_size(CACHE).create_with_backend(Backend(file)).map_err(|error| failed("open", error))
}

/// The error for people of something that redb could not do.
pub fn failed(doing: &str, error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    let kind = match &error {
        redb::Error::Corrupted(_) => ErrorKind::Corrupt,
        _ => ErrorKind::Io,
    };
    Error::new(
        kind,
        format!(
            "the metadata tree could not {doing}: {error}; acknowledged changes are in the log or the tree: check the disk and restart"
        ),
    )
}
