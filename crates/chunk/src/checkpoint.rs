//! Checkpoints: a snapshot of one moment is written in pieces while changes go on, and becomes valid by its header, which is
//! written when the whole log before that moment is durable. Most hold what changed since the one before; now and then one
//! holds everything, and the files before it go.

pub(crate) mod load;

use crate::core::{Core, Purpose, REPLACE, RETRY};
use crate::format::{CheckpointHeader, LogPosition, VERSION};
use crate::index::Places;
use crate::space::State;
use base::checksum::{combine, crc32c};
use base::disk::{DiskError, FileKind, FileName, Fill, Op};
use base::limit::BLOCK;
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Checkpoints that are read one after another when a device is opened, at most.
const CHAIN_MAX: u64 = 32;

/// How far the checkpoint under way has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    None,
    Creating,
    Writing,
    /// The body is written; the header waits until everything in it is durable in the log.
    Waiting,
    Heading,
    Syncing,
    /// Given up; its last operation has not ended yet.
    Abandoned,
}

/// A checkpoint's file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub file: FileName,
    pub bytes: u64,
    pub base: u64,
    pub version: u32,
}

/// The checkpoint under way and those that are there.
#[derive(Default)]
pub(crate) struct Checkpoint {
    stage: Stage,
    in_flight: bool,
    /// Of the one under way; length and CRC of the body grow as it is written.
    header: Option<CheckpointHeader>,
    /// Encoded and not written yet.
    encoded: Vec<u8>,
    /// Where in the file the next piece goes, and the file's size.
    at: u64,
    size: u64,
    /// What the snapshot holds is durable when both streams are up to here.
    needs: [u64; 2],
    /// Number of the newest complete one.
    pub number: u64,
    /// Where its scan starts.
    pub newest: Places,
    /// The files that are there, by number.
    pub kept: BTreeMap<u64, Kept>,
    /// Not before this, because the last attempt failed.
    pub retry_at: Option<Time>,
    /// Wanted whatever the thresholds say.
    pub forced: bool,
}

impl Checkpoint {
    /// Up to where the streams must become durable for the checkpoint under way to go on; zeros if it waits for nothing.
    pub fn waits_for(&self) -> [u64; 2] {
        if self.stage == Stage::Waiting { self.needs } else { [0, 0] }
    }

    /// None is under way.
    pub fn is_idle(&self) -> bool {
        self.stage == Stage::None
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        let under_way = if self.is_idle() { 0 } else { self.size };
        self.kept.values().map(|kept| kept.bytes).sum::<u64>() + under_way
    }

    /// The base of the next one: itself, when the ones behind the last base have grown larger than the base.
    fn next_base(&self) -> u64 {
        let next = self.number + 1;
        let Some(newest) = self.kept.get(&self.number).filter(|newest| newest.version == VERSION) else { return next };
        let Some(base) = self.kept.get(&newest.base) else { return next };
        let behind: u64 = self.kept.range(newest.base + 1..).map(|(_, kept)| kept.bytes).sum();
        if behind > base.bytes || next - newest.base >= CHAIN_MAX { next } else { newest.base }
    }
}

/// The file of the checkpoint with this number.
pub(crate) fn checkpoint_file(number: u64) -> FileName {
    FileName::new(FileKind::Checkpoint, u32::try_from(number).unwrap_or(u32::MAX))
}

impl Core {
    /// Starts a checkpoint if one is due, and goes on with the one under way.
    pub fn advance_checkpoint(&mut self) {
        if self.checkpoint.is_idle() && self.checkpoint_is_due() {
            self.begin_checkpoint();
        }
        if self.checkpoint.in_flight {
            return;
        }
        if self.checkpoint.stage == Stage::Writing {
            self.write_piece();
        }
        let counts =
            self.is_durable(self.checkpoint.needs) || self.settings.planted == Some(Planted::CheckpointAheadOfLog);
        if self.checkpoint.stage == Stage::Waiting && counts {
            self.write_header();
        }
    }

    /// Both streams are durable up to these sequence numbers.
    fn is_durable(&self, needs: [u64; 2]) -> bool {
        self.data.durable >= needs[0] && self.journal.durable >= needs[1]
    }

    fn checkpoint_is_due(&self) -> bool {
        // While records wait for another place it could not end.
        if self.needs_fresh_segment() || self.checkpoint.retry_at.is_some_and(|at| at > self.now) {
            return false;
        }
        // An end that the opening makes again comes before the checkpoint's moment: behind it nobody would make it durable before it is seen.
        if !self.index.passed_over.is_empty() {
            return false;
        }
        let journal = self.journal_log.written_bytes;
        self.checkpoint.forced
            || journal >= self.settings.checkpoint_journal
            || self.data_log.written_bytes + journal >= self.settings.checkpoint_bytes
            || self.garbage_waits()
            || (self.space_is_short() && self.checkpoint_would_help())
    }

    /// Takes the moment: the state of the index, and where the streams stand.
    fn begin_checkpoint(&mut self) {
        self.checkpoint.forced = false;
        if !self.waiting.is_empty() && self.checkpoint_would_help() {
            // A closed segment can be given back; the current one cannot.
            self.close_current_data();
        }
        if self.garbage_waits() {
            self.close_dying_current();
        }
        let data = match self.space.current.and_then(|number| Some((number, self.space.segments.get(&number)?))) {
            Some((segment, known)) => {
                LogPosition { segment, incarnation: known.incarnation, block: known.end, last: self.data.last }
            }
            None => LogPosition { segment: 0, incarnation: self.next_sequence, block: 0, last: self.data.last },
        };
        let journal = self.journal_place();
        let used = |state: State| matches!(state, State::Current | State::Closed);
        let segments: Vec<(u32, u64)> = (self.space.segments.iter())
            .filter(|(_, segment)| used(segment.state))
            .map(|(number, segment)| (*number, segment.incarnation))
            .collect();
        let (number, base) = (self.checkpoint.number + 1, self.checkpoint.next_base());
        let entries = self.index.begin_snapshot(base == number);
        let head = self.index.encode_head(&segments);
        let sequence = self.next_sequence;
        let header =
            CheckpointHeader { version: VERSION, number, base, sequence, length: 0, body_crc: 0, data, journal };
        let checkpoint = &mut self.checkpoint;
        checkpoint.size = BLOCK as u64 + (head.len() as u64 + entries).next_multiple_of(BLOCK as u64);
        checkpoint.encoded = head;
        checkpoint.at = BLOCK as u64;
        checkpoint.needs = [self.data.last, self.journal.last];
        checkpoint.header = Some(header);
        (self.data_log.written_bytes, self.journal_log.written_bytes) = (0, 0);
        let op = Op::Create { file: checkpoint_file(number), size: checkpoint.size, fill: Fill::Reserved };
        self.start_checkpoint(Stage::Creating, op);
    }

    fn start_checkpoint(&mut self, stage: Stage, op: Op) {
        self.checkpoint.stage = stage;
        self.checkpoint.in_flight = true;
        self.start(Purpose::Checkpoint, op);
    }

    /// Encodes and writes the next piece of the body.
    fn write_piece(&mut self) {
        let checkpoint = &mut self.checkpoint;
        let Some(header) = &mut checkpoint.header else { unreachable!("a checkpoint under way has a header") };
        let finished = self.index.write_snapshot(&mut checkpoint.encoded, self.settings.checkpoint_piece);
        let whole = checkpoint.encoded.len() / BLOCK * BLOCK;
        let length = if finished { checkpoint.encoded.len() } else { whole };
        if length == 0 {
            checkpoint.stage = Stage::Waiting;
            return;
        }
        let mut piece = self.settings.pool.take(length.next_multiple_of(BLOCK));
        piece[..length].copy_from_slice(&checkpoint.encoded[..length]);
        piece[length..].fill(0);
        checkpoint.encoded.drain(..length);
        header.body_crc = combine(header.body_crc, crc32c(&piece[..length]), length as u64);
        header.length += length as u64;
        let (file, offset) = (checkpoint_file(header.number), checkpoint.at);
        checkpoint.at += piece.len() as u64;
        assert!(checkpoint.at <= checkpoint.size, "a checkpoint has more bytes than were counted");
        let parts = vec![piece.freeze()];
        self.start_checkpoint(Stage::Writing, Op::Write { file, offset, parts });
    }

    /// Makes the checkpoint valid: everything in it is durable in the log.
    fn write_header(&mut self) {
        let Some(header) = self.checkpoint.header else { unreachable!("a checkpoint under way has a header") };
        let mut block = self.settings.pool.take(BLOCK);
        block.copy_from_slice(&header.encode(self.device));
        let parts: Vec<Bytes> = vec![block.freeze()];
        let op = Op::Write { file: checkpoint_file(header.number), offset: 0, parts };
        self.start_checkpoint(Stage::Heading, op);
    }

    /// An operation of the checkpoint ended.
    pub fn checkpoint_done(&mut self, result: std::result::Result<(), DiskError>) {
        self.checkpoint.in_flight = false;
        let Some(header) = self.checkpoint.header else { unreachable!("a checkpoint under way has a header") };
        match &result {
            Err(_) if self.checkpoint.stage == Stage::Syncing => self.fail("failed to sync its checkpoint", REPLACE),
            Err(error @ DiskError::Unnamed(_)) => self.failed_to_create(error),
            _ => {}
        }
        match self.checkpoint.stage {
            Stage::Abandoned => self.checkpoint.stage = Stage::None,
            _ if result.is_err() => {
                // The checkpoints before are untouched, and so is the log behind the older of them.
                self.abandon_checkpoint();
                self.checkpoint.retry_at = Some(self.now.after(RETRY));
            }
            Stage::Creating => self.checkpoint.stage = Stage::Writing,
            Stage::Heading => {
                let op = Op::Sync { file: checkpoint_file(header.number) };
                self.start_checkpoint(Stage::Syncing, op);
            }
            Stage::Syncing => self.keep_checkpoint(header),
            Stage::None | Stage::Writing | Stage::Waiting => {}
        }
    }

    /// The checkpoint is durable: the one before is the older one now, and what both do without can go.
    fn keep_checkpoint(&mut self, header: CheckpointHeader) {
        self.index.end_snapshot(true);
        let CheckpointHeader { version, number, base, data, journal, .. } = header;
        let checkpoint = &mut self.checkpoint;
        checkpoint.stage = Stage::None;
        checkpoint.retry_at = None;
        checkpoint.number = number;
        checkpoint.kept.insert(number, Kept { file: checkpoint_file(number), bytes: checkpoint.size, base, version });
        self.space.floor = std::mem::replace(&mut checkpoint.newest, Places { data, journal });
        self.space.due = true;
        let needed = checkpoint.kept.get(&(number - 1)).map_or(base, |older| older.base);
        let useless: Vec<(u64, FileName)> =
            checkpoint.kept.range(..needed).map(|(number, kept)| (*number, kept.file)).collect();
        for (number, file) in useless {
            self.start(Purpose::RemoveCheckpoint(number), Op::Remove { file });
        }
    }

    /// A file was removed, or not: then the next checkpoint tries again.
    pub fn checkpoint_removed(&mut self, number: u64, removed: bool) {
        if removed {
            self.checkpoint.kept.remove(&number);
        }
    }

    /// Gives up the checkpoint under way: a place that it names is not what it was any more.
    pub fn abandon_checkpoint(&mut self) {
        if self.checkpoint.is_idle() {
            return;
        }
        self.index.end_snapshot(false);
        let checkpoint = &mut self.checkpoint;
        checkpoint.encoded = Vec::new();
        checkpoint.forced = true;
        checkpoint.stage = if checkpoint.in_flight { Stage::Abandoned } else { Stage::None };
    }
}
