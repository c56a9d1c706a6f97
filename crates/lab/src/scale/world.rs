//! What a node of the experiments stands on: limited devices in memory, small files in memory, real threads.

use super::limiter::{Busy, LimitedDisk, Speed};
use super::pattern_disk::{Pattern, PatternDisk};
use base::buffer::Pool;
use base::disk::{BlockFile, Disk};
use base::env::{Clock, Random};
use base::error::{Error, ErrorKind, Result};
use base::net::Boxed;
use base::unit::MIB;
use node::{Ended, Open, OsWorld, World};
use os::disk::{Backend, Opened};
use sim::file::SimFileDevice;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The world of one node. The disk of its metadata store is not limited: no experiment is about names.
pub struct LimitedWorld {
    speed: Speed,
    busy: Arc<Busy>,
    pattern: Arc<Pattern>,
    clock: Arc<dyn Clock>,
    files: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
    tree: SimFileDevice,
}

impl LimitedWorld {
    /// A node without anything, whose device will be of this speed and tell what it does.
    pub fn new(speed: Speed, busy: Arc<Busy>, pattern: Arc<Pattern>, clock: Arc<dyn Clock>) -> LimitedWorld {
        LimitedWorld { speed, busy, pattern, clock, files: Mutex::default(), tree: SimFileDevice::new() }
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Vec<u8>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl World for LimitedWorld {
    fn disk(&self, directory: &Path, _backend: Backend, pool: Pool) -> Result<Opened> {
        let kept: Box<dyn Disk> = Box::new(PatternDisk::new(self.pattern.clone(), pool));
        let disk = match directory.ends_with("chunks") {
            true => Box::new(LimitedDisk::new(kept, self.speed, self.busy.clone(), self.clock.clone())),
            false => kept,
        };
        Ok(Opened { disk, note: None })
    }

    fn tree(&self, _path: &Path, _backend: Backend) -> Result<Box<dyn BlockFile>> {
        Ok(Box::new(self.tree.open()))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files().contains_key(path))
    }

    fn is_same(&self, one: &Path, other: &Path) -> bool {
        one == other
    }

    fn read_text(&self, path: &Path) -> Result<String> {
        let bytes = self.files().get(path).cloned().unwrap_or_default();
        String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))
    }

    fn replace(&self, path: &Path, bytes: &[u8], _backend: Backend) -> Result<()> {
        self.files().insert(path.to_path_buf(), bytes.to_vec());
        Ok(())
    }

    fn make_directory(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _path: &Path) -> Result<u64> {
        Ok(u64::MAX / 16)
    }

    fn chunk_settings(&self, capacity: u64, pool: Pool) -> chunk::Settings {
        chunk::Settings::for_capacity(capacity, pool)
    }

    fn meta_settings(&self, _capacity: u64, random: Arc<dyn Random>) -> meta::Settings {
        meta::Settings::for_capacity(64 * MIB, random)
    }

    fn run(&self, name: &str, disk: Box<dyn Disk>, open: Open) -> Result<Ended> {
        OsWorld.run(name, disk, open)
    }

    fn aside(&self, name: &str, work: Boxed<'static, ()>) -> Result<Ended> {
        OsWorld.aside(name, work)
    }

    /// Only what is wrong: 64 nodes tell much.
    fn say(&self, line: &str) {
        if !line.contains(" info ") {
            OsWorld.say(line);
        }
    }
}
