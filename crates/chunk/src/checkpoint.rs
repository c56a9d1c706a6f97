//! Checkpoints: the log comes to rest, the index is copied, changes go on, the copy is written in the background to the file
//! that does not hold the newest one.

use crate::core::{Core, Purpose, RETRY};
use crate::format::{CheckpointHeader, Place};
use crate::index::Places;
use crate::space::State;
use base::buffer::Buffer;
use base::checksum::crc32c;
use base::disk::{DiskError, FileKind, FileName, Fill, Op};
use base::limit::BLOCK;
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;

/// Bytes of one write of a checkpoint.
const PIECE: usize = 4 << 20;

/// How far the checkpoint under way has come.
#[derive(Default)]
enum Stage {
    #[default]
    None,
    /// Changes are held until everything accepted is durable: what is not in the log must not be in a checkpoint.
    Resting,
    Creating,
    Writing,
    Syncing,
}

/// The checkpoint under way and those that are there.
#[derive(Default)]
pub(crate) struct Checkpoint {
    stage: Stage,
    /// The bytes to write and how many are written.
    bytes: Bytes,
    at: usize,
    taken: Places,
    /// Number of the newest complete one, 0 if there is none.
    pub number: u64,
    /// Where its scan starts.
    pub newest: Places,
    /// Not before this, because the last attempt failed.
    pub retry_at: Option<Time>,
    /// Wanted whatever the thresholds say.
    pub forced: bool,
}

impl Checkpoint {
    /// Changes wait for the log to come to rest.
    pub fn holds_changes(&self) -> bool {
        matches!(self.stage, Stage::Resting)
    }

    /// None is under way.
    pub fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::None)
    }
}

impl Core {
    /// Starts a checkpoint if one is due, and takes it when the log is at rest.
    pub fn advance_checkpoint(&mut self) {
        if self.checkpoint.is_idle() && self.checkpoint_is_due() {
            self.checkpoint.stage = Stage::Resting;
            self.checkpoint.forced = false;
        }
        let durable = self.data.durable == self.data.last && self.journal.durable == self.journal.last;
        let at_rest = (self.log_is_idle() && durable) || self.settings.planted == Some(Planted::CheckpointAheadOfLog);
        if self.checkpoint.holds_changes() && at_rest {
            self.take_checkpoint();
            self.release_intake();
        }
    }

    fn checkpoint_is_due(&self) -> bool {
        if self.checkpoint.retry_at.is_some_and(|at| at > self.now) {
            return false;
        }
        let journal = self.journal_log.written_bytes;
        self.checkpoint.forced
            || journal >= self.settings.checkpoint_journal
            || self.data_log.written_bytes + journal >= self.settings.checkpoint_bytes
            || (self.space_is_short() && self.checkpoint_would_help())
    }

    /// Copies the index and starts writing the copy.
    fn take_checkpoint(&mut self) {
        if !self.waiting.is_empty() && self.checkpoint_would_help() {
            // A closed segment can be given back; the current one cannot.
            self.close_current_data();
        }
        let data = match self.space.current.and_then(|number| Some((number, self.space.segments.get(&number)?))) {
            Some((segment, known)) => {
                Place { segment, incarnation: known.incarnation, block: known.end, last: self.data.last }
            }
            None => Place { segment: 0, incarnation: self.next_sequence, block: 0, last: self.data.last },
        };
        let journal = match self.journal_log.current {
            Some((segment, block)) => {
                let incarnation = self.journal_log.segments.get(&segment).copied().unwrap_or(0);
                Place { segment, incarnation, block, last: self.journal.last }
            }
            None => Place { segment: 0, incarnation: self.next_sequence, block: 0, last: self.journal.last },
        };
        let used = |state: State| matches!(state, State::Current | State::Closed);
        let segments: Vec<(u32, u64)> = (self.space.segments.iter())
            .filter(|(_, segment)| used(segment.state))
            .map(|(number, segment)| (*number, segment.incarnation))
            .collect();
        let body = self.index.encode(&segments);
        let header = CheckpointHeader {
            number: self.checkpoint.number + 1,
            sequence: self.next_sequence,
            length: body.len() as u64,
            body_crc: crc32c(&body),
            data,
            journal,
        };
        let mut bytes = Buffer::zeroed(BLOCK + body.len().next_multiple_of(BLOCK));
        bytes[..BLOCK].copy_from_slice(&header.encode(self.device));
        bytes[BLOCK..BLOCK + body.len()].copy_from_slice(&body);
        let size = bytes.len();
        let checkpoint = &mut self.checkpoint;
        checkpoint.bytes = bytes.freeze().slice(..size.next_multiple_of(BLOCK));
        checkpoint.at = 0;
        checkpoint.taken = Places { data, journal };
        checkpoint.stage = Stage::Creating;
        (self.data_log.written_bytes, self.journal_log.written_bytes) = (0, 0);
        let file = self.checkpoint_file();
        let size = self.checkpoint.bytes.len() as u64;
        self.start(Purpose::Checkpoint, Op::Create { file, size, fill: Fill::Reserved });
    }

    /// The file of the checkpoint under way: not the one that holds the newest.
    fn checkpoint_file(&self) -> FileName {
        FileName::new(FileKind::Checkpoint, ((self.checkpoint.number + 1) % 2) as u32)
    }

    /// An operation of the checkpoint ended.
    pub fn checkpoint_done(&mut self, result: std::result::Result<(), DiskError>) {
        if result.is_err() {
            if matches!(self.checkpoint.stage, Stage::Syncing) {
                self.fail("failed to sync its checkpoint");
            }
            // The newest complete checkpoint is untouched, and so is the log behind it.
            self.checkpoint.stage = Stage::None;
            self.checkpoint.bytes = Bytes::new();
            self.checkpoint.forced = true;
            self.checkpoint.retry_at = Some(self.now.after(RETRY));
            return;
        }
        let file = self.checkpoint_file();
        match self.checkpoint.stage {
            Stage::Creating | Stage::Writing if self.checkpoint.at < self.checkpoint.bytes.len() => {
                self.checkpoint.stage = Stage::Writing;
                let at = self.checkpoint.at;
                let piece = self.checkpoint.bytes.slice(at..(at + PIECE).min(self.checkpoint.bytes.len()));
                self.checkpoint.at += piece.len();
                self.start(Purpose::Checkpoint, Op::Write { file, offset: at as u64, parts: vec![piece] });
            }
            Stage::Creating | Stage::Writing => {
                self.checkpoint.stage = Stage::Syncing;
                self.start(Purpose::Checkpoint, Op::Sync { file });
            }
            Stage::Syncing => {
                let checkpoint = &mut self.checkpoint;
                checkpoint.stage = Stage::None;
                checkpoint.number += 1;
                checkpoint.retry_at = None;
                self.space.checkpoint_bytes[file.number as usize] = checkpoint.bytes.len() as u64;
                checkpoint.bytes = Bytes::new();
                self.space.floor = std::mem::replace(&mut checkpoint.newest, checkpoint.taken);
                self.space.due = true;
            }
            Stage::None | Stage::Resting => unreachable!("no operation of a checkpoint is under way"),
        }
    }
}
