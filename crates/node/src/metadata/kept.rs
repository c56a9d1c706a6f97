//! What the metadata's thread has: its store; or, of several keepers, what mends it; or nothing, until it is tried again. How one becomes another.

use super::Then;
use crate::world::World;
use base::disk::{BlockFile, Disk};
use base::env::Clock;
use base::error::{Error, ErrorKind, Result};
use base::unit::Time;
use meta::{KeeperId, KeeperMessage, Mending, Store};
use os::disk::Backend;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A store that does not open, or fails as soon as it serves, is tried again after a second, then two, four, and so on up to this.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The tree's file, and the file of its copy beside it.
#[derive(Clone)]
pub struct Files {
    world: Arc<dyn World>,
    directory: PathBuf,
    backend: Backend,
}

impl Files {
    /// Those in this directory.
    pub fn new(world: Arc<dyn World>, directory: PathBuf, backend: Backend) -> Files {
        Files { world, directory, backend }
    }

    /// The tree's; it is made if it is missing.
    pub(super) fn tree(&self) -> Result<Box<dyn BlockFile>> {
        self.world.tree(&self.directory.join(TREE), self.backend)
    }

    /// A new one for a copy.
    pub(super) fn copy(&self) -> Result<Box<dyn BlockFile>> {
        self.world.new_tree(&self.directory.join(COPY), self.backend)
    }

    /// Puts the copy in the tree's place, durably.
    fn put(&self) -> Result<()> {
        self.world.put_tree(&self.directory.join(COPY), &self.directory.join(TREE), self.backend)
    }
}

/// The file of the metadata's tree.
pub const TREE: &str = "tree.redb";
const COPY: &str = "tree.copy";

/// Carries messages to the other keepers. It may lose them; it never waits.
pub trait Carrier: Send + Sync {
    /// Sends this, or drops it.
    fn send(&self, to: KeeperId, message: KeeperMessage);
}

/// What the thread has.
pub(super) enum Kept {
    /// The store, which leads, or follows.
    Serves(Box<Store<Then>>),
    /// It gets a copy of another keeper's tree.
    Mends(Box<Mending>),
    /// Nothing; it is opened then.
    Waits(Time),
}

/// Why a store ends that is not to be the last one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Its copy takes its place.
    Copied,
    /// Its log or its tree failed.
    Failed,
}

/// What a keeper has who is one of several.
pub(super) struct Several {
    pub(super) carrier: Arc<dyn Carrier>,
    files: Files,
    settings: meta::Settings,
    /// The store ends when all is over that is under way for it.
    pub(super) ends: Option<Ends>,
    /// How often in a row it did not serve for long, and when it was opened last.
    failures: u32,
    opened: Time,
}

impl Several {
    pub(super) fn new(carrier: Arc<dyn Carrier>, files: Files, settings: meta::Settings) -> Several {
        Several { carrier, files, settings, ends: None, failures: 0, opened: Time::ZERO }
    }

    /// What there is to be when the store before it has been dropped, and nothing is under way on the disk. `swaps`: the copy takes the tree's place
    /// first. What went wrong, too. Blocks.
    pub(super) fn begins(&mut self, disk: &mut dyn Disk, clock: &dyn Clock, swaps: bool) -> (Kept, Option<Error>) {
        let now = clock.now();
        if swaps && let Err(error) = self.files.put() {
            return (self.waits(now), Some(error));
        }
        match self.open(disk, clock) {
            Ok(store) => {
                self.opened = now;
                (Kept::Serves(Box::new(store)), None)
            }
            // A copy that does not open is not made again at once: it would never end.
            Err(error) if swaps || error.kind() != ErrorKind::Corrupt => (self.waits(now), Some(error)),
            Err(error) => match Mending::open(disk, &self.settings, now, error.clone()) {
                Ok(mending) => (Kept::Mends(Box::new(mending)), Some(error)),
                Err(error) => (self.waits(now), Some(error)),
            },
        }
    }

    fn open(&self, disk: &mut dyn Disk, clock: &dyn Clock) -> Result<Store<Then>> {
        let tree = self.files.tree()?;
        Store::open(disk, tree, &self.settings, clock.now(), clock.wall()).map(|(store, _)| store)
    }

    /// When it is opened again after it failed.
    pub(super) fn waits(&mut self, now: Time) -> Kept {
        let (first, most) = AGAIN;
        self.failures = if now.since(self.opened) > most { 0 } else { self.failures.min(6) };
        let pause = (first * (1 << self.failures)).min(most);
        self.failures += 1;
        Kept::Waits(now.after(pause))
    }
}
