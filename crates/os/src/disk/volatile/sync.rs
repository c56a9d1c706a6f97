//! Every sync of the code by name, and the switch that leaves one of them out. Only the volatile backend knows the switch.

use base::disk::FileKind;
use base::error::{Error, ErrorKind, Result};
use std::sync::OnceLock;

/// A place in the code that makes something durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sync {
    /// Its name, as `STORMWELL_SKIP_SYNC` takes it.
    pub name: &'static str,
    /// What it makes durable.
    pub keeps: &'static str,
}

const fn sync(name: &'static str, keeps: &'static str) -> Sync {
    Sync { name, keeps }
}

/// All of them. A new sync is a new line here, and is left out by its name in `crates/os/src/disk/volatile`.
pub const SYNCS: [Sync; 11] = [
    sync("data", "data records of the device log"),
    sync("journal", "journal groups of the device log"),
    sync("checkpoint", "a checkpoint of the device log"),
    sync("identity", "the file that says which device this is"),
    sync("log", "changes in the metadata store's log"),
    sync("vote", "a keeper's vote and how far its log was promised"),
    sync("name", "the name of a new segment or checkpoint, in its directory"),
    sync("tree", "changes merged into the metadata store's tree"),
    sync("tree-name", "the name of the tree's file, in its directory"),
    sync("node", "the bytes that say which node this is"),
    sync("node-name", "the name under which they are found"),
];

/// The name of the sync of files of this kind.
pub(super) fn of_kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Data => "data",
        FileKind::Journal => "journal",
        FileKind::Checkpoint => "checkpoint",
        FileKind::Identity => "identity",
        FileKind::Log => "log",
        FileKind::Vote => "vote",
        // Nobody syncs it; this disk has none anyway.
        FileKind::Early => "early",
    }
}

/// How this process plays a disk with a volatile cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Play {
    /// From which the disk draws what it lets through early.
    pub seed: u64,
    skip: Option<Sync>,
}

impl Play {
    /// What the environment says: `STORMWELL_SEED`, else one that is drawn; `STORMWELL_SKIP_SYNC`.
    pub fn of_environment() -> Result<Play> {
        static PLAY: OnceLock<Result<Play>> = OnceLock::new();
        PLAY.get_or_init(Play::read).clone()
    }

    fn read() -> Result<Play> {
        let invalid = |text: String| Error::new(ErrorKind::Invalid, text);
        let seed = match std::env::var("STORMWELL_SEED") {
            Ok(text) => {
                text.parse().map_err(|_| invalid(format!("STORMWELL_SEED={text} is no number; nothing was changed")))?
            }
            Err(_) => base::env::Random::next(&crate::random::SystemRandom),
        };
        let skip = match std::env::var("STORMWELL_SKIP_SYNC") {
            Ok(name) if !name.is_empty() => {
                Some(SYNCS.into_iter().find(|sync| sync.name == name).ok_or_else(|| {
                    let names = SYNCS.map(|sync| sync.name).join(", ");
                    invalid(format!(
                        "STORMWELL_SKIP_SYNC={name} names no sync; nothing was changed; the syncs are {names}"
                    ))
                })?)
            }
            _ => None,
        };
        Ok(Play { seed, skip })
    }

    /// Whether the sync of this name is left out.
    pub fn skips(&self, name: &str) -> bool {
        self.skip.is_some_and(|sync| sync.name == name)
    }

    /// What people must know who start a server in this way.
    pub fn note(&self) -> String {
        let skipped = self.skip.map_or(String::new(), |sync| {
            format!("; the sync `{}` is left out, so {} WILL be lost", sync.name, sync.keeps)
        });
        format!(
            "disks are volatile, for trials only: what is not synced ends with this process, nothing survives a fault of \
             the machine (STORMWELL_SEED={}){skipped}",
            self.seed
        )
    }
}

/// Chance that follows from a seed: splitmix64 (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// The chance of one disk: the seed, and the name of its place so that two disks differ.
    pub fn new(seed: u64, place: &str) -> Dice {
        let mixed = place.bytes().fold(seed, |mixed, byte| {
            mixed.rotate_left(7).wrapping_mul(0x0000_0100_0000_01B3).wrapping_add(u64::from(byte))
        });
        Dice(mixed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// True once in `count` times.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }

    /// Mixes the order of a list (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
    }
}
