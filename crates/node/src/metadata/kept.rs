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
    /// How often in a row it did not serve for long, and when it was opened if it was since it failed last.
    failures: u32,
    opened: Option<Time>,
}

impl Several {
    pub(super) fn new(carrier: Arc<dyn Carrier>, files: Files, settings: meta::Settings) -> Several {
        Several { carrier, files, settings, ends: None, failures: 0, opened: None }
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
                // Opening reads the log, which may take long.
                self.opened = Some(clock.now());
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
        if self.opened.take().is_some_and(|opened| now.since(opened) > most) {
            self.failures = 0;
        }
        let pause = (first * (1 << self.failures.min(6))).min(most);
        self.failures = self.failures.saturating_add(1);
        Kept::Waits(now.after(pause))
    }
}

#[cfg(test)]
mod tests {
    use super::{Carrier, Files, Kept, Several};
    use crate::world::{OsWorld, World};
    use base::unit::Time;
    use meta::{KeeperId, KeeperMessage};
    use os::disk::Backend;
    use std::sync::Arc;
    use std::time::Duration;

    struct Nobody;

    impl Carrier for Nobody {
        fn send(&self, _: KeeperId, _: KeeperMessage) {}
    }

    /// The pauses of one that does not open double, however long ago it served; they begin anew after it served for long.
    #[test]
    fn pauses_double() {
        let settings = OsWorld.meta_settings(1 << 30, Arc::new(sim::random::SimRandom::new(1)));
        let files = Files::new(Arc::new(OsWorld), "/nowhere".into(), Backend::Threads);
        let mut several = Several::new(Arc::new(Nobody), files, settings);
        let mut now = Time::ZERO.after(Duration::from_secs(3_600));
        let mut pause = |several: &mut Several| {
            let Kept::Waits(until) = several.waits(now) else { panic!("it waits") };
            let pause = until.since(now).as_secs();
            now = until;
            pause
        };
        let pauses: Vec<u64> = (0..8).map(|_| pause(&mut several)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        several.opened = Some(Time::ZERO);
        assert_eq!([pause(&mut several), pause(&mut several)], [1, 2]);
    }
}
