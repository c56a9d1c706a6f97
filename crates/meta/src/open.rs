//! Opening: the tree as it was merged, and the log after it.

use crate::device_index;
use crate::format::{
    CountersRecord, InodeRecord, KeepersRecord, LOG_SINCE, MergedRecord, PolicyRecord, SEQUENCE_MAX, check_version,
};
use crate::key::Key;
use crate::layers::{Frozen, Layers, Overlay, Slot};
use crate::log::Log;
use crate::merge;
use crate::old_log::{self, unreadable};
use crate::replay::apply_group;
use crate::settings::{Seats, Settings};
use crate::state::missing;
use crate::tree::{self, Storage};
use base::disk::{BlockFile, Disk, FileKind, FileName, Op, wait};
use base::error::{Error, ErrorKind, Result};
use base::id::{ClusterId, ROOT};
use base::limit::{LEAST_OF_CLUSTERS, REPLICAS_OF_CLUSTERS};
use base::unit::{Time, WallTime};
use base::version::ProgramVersion;
use prost::Message;
use quorum::{Entry, KeeperId, Seat, Stamp};
use redb::{Database, ReadableDatabase, TableError};
use std::sync::Arc;

/// What opening found.
pub struct Found {
    /// The state, all of it in the tree.
    pub layers: Layers,
    /// Sequence number of the last change.
    pub sequence: u64,
    /// Log entries that were not in the tree yet.
    pub entries: u64,
    /// The log, which goes on behind them.
    pub log: Log,
    /// `MergedRecord::least`.
    pub least: ProgramVersion,
}

/// The number of the first keeper of a store.
const FIRST_KEEPER: u64 = 1;

/// Opens the tree, replays the log into it and merges that. Afterwards nothing of the log is needed. Blocks. What is refused is as it was, but that the
/// keeper may have said in its vote that it was started.
pub fn open(
    disk: &mut dyn Disk,
    file: Box<dyn BlockFile>,
    settings: &Settings,
    (now, wall): (Time, WallTime),
) -> Result<Found> {
    let files = disk.list().map_err(|error| unreadable(&error))?;
    let of_kind = |kind| files.iter().copied().filter(move |(name, _)| name.kind == kind);
    let segments: Vec<(FileName, u64)> = of_kind(FileKind::Log).collect();
    // Votes are made when the tree is there; before that version there were none.
    let fresh = of_kind(FileKind::Vote).next().is_none() && !old_log::has_groups(disk, &segments)?;
    let (database, storage) = tree::open(file, fresh)?;
    let database = Arc::new(database);
    let merged = merged(&database)?;
    if merged.is_none() && !fresh {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "the metadata log has changes but its tree is empty; nothing was changed: put the tree's file back beside the log",
        ));
    }
    let before = merged.as_ref().map_or(0, |merged| merged.sequence);
    let begun = merged.as_ref().is_some_and(|merged| merged.begun);
    let (base, mut sequence) = match &merged {
        Some(MergedRecord { begun: true, index, term, sum, .. }) => {
            // Both are there, durably, before the tree says that the log was begun.
            if files.iter().all(|(name, _)| name.kind != FileKind::Vote) || segments.is_empty() {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    "the metadata tree has a log, and its files or votes are not there; nothing was changed: put them back beside the tree",
                ));
            }
            (Stamp { index: *index, term: *term, sum: *sum }, before)
        }
        _ => {
            let sequence = begin(disk, &segments, (&database, &storage), merged.as_ref(), (settings, wall))?;
            // The tree has all that counts.
            let old = files.iter().filter(|(name, _)| matches!(name.kind, FileKind::Log | FileKind::Vote));
            old.map(|(name, _)| *name).try_for_each(|file| remove(disk, file))?;
            (Stamp::FIRST, sequence)
        }
    };
    let mut layers = Layers::new(Arc::clone(&database))?;
    let (mut log, groups) = Log::open(disk, seat(&layers, settings)?, base, now)?;
    if !begun {
        log.begin(disk, now)?;
        log.make_segments(disk, now)?;
    }
    // Of the log of one that is alone nothing is needed any more, nor what it began earlier terms with.
    let front = groups.last().filter(|_| log.is_alone()).map_or(base, Entry::stamp);
    let found = !groups.is_empty();
    for entry in groups {
        sequence = apply_group(&mut layers, &entry.group, sequence)?;
        log.found(entry, sequence);
    }
    // All of it is understood: from here on the tree's file changes. From now on what is written is of today's version, which older programs must refuse.
    storage.release()?;
    let frozen = layers.freeze(sequence);
    if !begun || found {
        merge::write(&database, &frozen, Some(front), None)?;
    }
    layers.merged()?;
    // First: what was found gives its room to what the keeper begins with, however full the log is, and however often that fails.
    log.merged(now, sequence, front);
    if begun {
        log.begin(disk, now)?;
    }
    let least = merged.map_or(ProgramVersion::default(), |merged| ProgramVersion::from_number(merged.least));
    Ok(Found { layers, sequence, entries: sequence - before, log, least })
}

/// What the tree says of itself; none if nothing was ever put into it.
fn merged(database: &Database) -> Result<Option<MergedRecord>> {
    let transaction = database.begin_read().map_err(|error| tree::failed("begin reading", error))?;
    let table = match transaction.open_table(tree::TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(tree::failed("open its table", error)),
    };
    let bytes = table.get(Key::Merged.encode().as_slice()).map_err(|error| tree::failed("read", error))?;
    let Some(bytes) = bytes else { return Ok(None) };
    let record = MergedRecord::decode(bytes.value()).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("the metadata tree's first record does not read: {error}"))
    })?;
    check_version(record.version, ProgramVersion::from_number(record.least))?;
    if [record.sequence, record.index, record.term].into_iter().any(|count| count > SEQUENCE_MAX / 2) {
        return Err(Error::new(
            ErrorKind::Corrupt,
            "the metadata tree has an impossible sequence number; nothing was changed",
        ));
    }
    Ok(Some(record))
}

/// Makes a tree that has all that counts, of today's version: an empty one with the root directory, or what an older program left, with its log. Its
/// last change.
fn begin(
    disk: &mut dyn Disk,
    segments: &[(FileName, u64)],
    (database, storage): (&Arc<Database>, &Storage),
    merged: Option<&MergedRecord>,
    (settings, wall): (&Settings, WallTime),
) -> Result<u64> {
    let alone = || (ClusterId(settings.random.wide()), vec![FIRST_KEEPER], wall);
    let of = |seats: &Seats| (seats.store, seats.voters.iter().map(|voter| voter.0).collect(), seats.made);
    let (store, voters, made) = settings.seats.as_ref().map_or_else(alone, of);
    let next = voters.iter().max().map_or(FIRST_KEEPER, |last| last + 1);
    let keepers = KeepersRecord { store: store.to_bytes().to_vec(), voters, next };
    let mut sequence = merged.map_or(0, |merged| merged.sequence);
    let older = match merged.filter(|merged| merged.version < LOG_SINCE) {
        Some(_) => {
            let mut layers = Layers::new(Arc::clone(database))?;
            sequence = old_log::replay(disk, segments, &mut layers, sequence)?;
            layers.change(Key::Keepers.encode(), Slot { sequence, value: Some(keepers.encode_to_vec()) });
            Some(layers.freeze(sequence))
        }
        None => None,
    };
    // All of it is understood: from here on the tree's file changes.
    storage.release()?;
    if merged.is_none() {
        merge::write(database, &first_state(&keepers, made), None, None)?;
    }
    // What is merged from the log finds the index.
    if !merged.is_some_and(|merged| merged.indexed) {
        device_index::build(database)?;
    }
    if let Some(frozen) = older {
        merge::write(database, &frozen, None, None)?;
    }
    Ok(sequence)
}

/// The first state: the root directory. Who has three machines that keep the names wants their bytes to outlive one, too; a store of one keeper may be
/// one machine, which has nowhere to put a second copy.
fn first_state(keepers: &KeepersRecord, wall: WallTime) -> Frozen {
    let counters = CountersRecord {
        next_inode: ROOT.0 + 1,
        next_group: 1,
        next_bag: 1,
        directories: 1,
        ..CountersRecord::default()
    };
    let policy = (keepers.voters.len() >= 3).then(|| PolicyRecord {
        replicas: Some(REPLICAS_OF_CLUSTERS),
        least: Some(LEAST_OF_CLUSTERS),
        ..PolicyRecord::default()
    });
    let (created, modified) = (wall.0, wall.0);
    let root = InodeRecord { mode: 0o755, generation: 1, created, modified, policy, ..InodeRecord::empty(true) };
    let mut overlay = Overlay::new();
    let mut put = |key: Key<'_>, value| overlay.insert(key.encode(), Slot { sequence: 0, value: Some(value) });
    put(Key::Counters, counters.encode_to_vec());
    put(Key::Keepers, keepers.encode_to_vec());
    put(Key::Inode(ROOT), root.encode_to_vec());
    Frozen { overlay, sequence: 0 }
}

fn remove(disk: &mut dyn Disk, file: FileName) -> Result<()> {
    let removed = wait(disk, Op::Remove { file });
    removed.map(drop).map_err(|error| {
        let text =
            format!("{file} of an older metadata log could not be removed: {error}; nothing is lost: check the disk");
        Error::new(ErrorKind::Io, text)
    })
}

/// Who keeps the metadata here.
fn seat(layers: &Layers, settings: &Settings) -> Result<Seat> {
    let record: KeepersRecord = layers.record(&Key::Keepers)?.ok_or_else(|| missing("who keeps it"))?;
    let store = <[u8; 16]>::try_from(record.store).map_err(|_| missing("a readable record of who keeps it"))?;
    let store = ClusterId::from_bytes(store);
    let voters: Vec<KeeperId> = record.voters.iter().copied().map(KeeperId).collect();
    let own = match (&settings.seats, &voters[..]) {
        (None, [own]) => *own,
        (Some(seats), _) if seats.store == store && voters.contains(&seats.own) => seats.own,
        (Some(seats), _) => {
            let text = format!(
                "keeper {} of store {} is none of the keepers of the metadata here, which are of store {store}; nothing was changed",
                seats.own.0, seats.store
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        (None, _) => {
            let text = format!(
                "the metadata here is kept by {} nodes together, and what they acknowledged may be at another one of them; nothing was changed; \
                 start the node with the `keepers` that it had",
                voters.len()
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
    };
    Ok(Seat {
        cluster: store,
        own,
        settings: quorum::Settings {
            segment_length: settings.segment_length,
            segments_max: settings.segments_max,
            random: Arc::clone(&settings.random),
            is_alone: voters.len() == 1,
            planted: settings.planted,
        },
        voters,
        random: Arc::clone(&settings.random),
        planted: settings.planted,
    })
}
