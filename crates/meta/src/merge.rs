//! Merging: a frozen overlay goes into the tree, on whatever thread has time for it.

use crate::format::{MergedRecord, VERSION, VERSION_SINCE};
use crate::key::Key;
use crate::layers::Frozen;
use crate::tree::{self, TABLE};
use base::error::Result;
use base::planted::Planted;
use prost::Message;
use redb::{Database, Durability, ReadableTable};
use std::sync::Arc;

/// An overlay to be put into the tree.
pub struct MergeJob {
    database: Arc<Database>,
    frozen: Arc<Frozen>,
    planted: Option<Planted>,
}

/// What became of a `MergeJob`; goes to `Store::merged`.
#[derive(Debug)]
pub struct MergeResult {
    pub(crate) result: Result<()>,
    pub(crate) sequence: u64,
}

impl MergeJob {
    pub(crate) fn new(database: Arc<Database>, frozen: Arc<Frozen>, planted: Option<Planted>) -> MergeJob {
        MergeJob { database, frozen, planted }
    }

    /// Changes that will be put into the tree.
    pub fn changes(&self) -> usize {
        self.frozen.overlay.len()
    }

    /// Does it. Blocks: reads, writes and syncs the tree's file.
    pub fn run(self) -> MergeResult {
        MergeResult { result: write(&self.database, &self.frozen, self.planted), sequence: self.frozen.sequence }
    }
}

/// One durable transaction with everything in the overlay and its sequence number.
pub fn write(database: &Database, frozen: &Frozen, planted: Option<Planted>) -> Result<()> {
    let mut transaction = database.begin_write().map_err(|error| tree::failed("begin a change", error))?;
    transaction.set_durability(Durability::Immediate).map_err(|error| tree::failed("begin a durable change", error))?;
    // Two phases, and the allocator's state with each commit: opening after a crash then reads no page that it does not need.
    transaction.set_two_phase_commit(true);
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(TABLE).map_err(|error| tree::failed("open its table", error))?;
        for (key, slot) in &frozen.overlay {
            let changed = match &slot.value {
                Some(value) => table.insert(key.as_slice(), value.as_slice()).map(|_| ()),
                None if planted == Some(Planted::TombstoneDroppedEarly) => continue,
                None => table.remove(key.as_slice()).map(|_| ()),
            };
            changed.map_err(|error| tree::failed("write", error))?;
        }
        let key = Key::Merged.encode();
        // What does not read was refused at the opening.
        let before = match table.get(key.as_slice()).map_err(|error| tree::failed("read", error))? {
            Some(bytes) => MergedRecord::decode(bytes.value()).unwrap_or_default(),
            None => MergedRecord::default(),
        };
        let least = before.least.max(VERSION_SINCE.to_number());
        let merged = MergedRecord { version: VERSION, sequence: frozen.sequence, least };
        table
            .insert(key.as_slice(), merged.encode_to_vec().as_slice())
            .map_err(|error| tree::failed("write", error))?;
    }
    transaction.commit().map_err(|error| tree::failed("commit", error))
}
