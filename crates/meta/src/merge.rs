//! Merging: a frozen overlay goes into the tree, on whatever thread has time for it.

use crate::device_index;
use crate::format::{MergedRecord, VERSION, VERSION_SINCE};
use crate::key::Key;
use crate::layers::Frozen;
use crate::tree::{self, TABLE};
use base::error::Result;
use base::planted::Planted;
use prost::Message;
use quorum::Stamp;
use redb::{AccessGuard, Database, ReadableTable};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An overlay to be put into the tree.
pub struct MergeJob {
    database: Arc<Database>,
    frozen: Arc<Frozen>,
    front: Stamp,
    planted: Option<Planted>,
}

/// What became of a `MergeJob`; goes to `Store::merged`.
#[derive(Debug)]
pub struct MergeResult {
    pub(crate) result: Result<()>,
    pub(crate) sequence: u64,
    pub(crate) front: Stamp,
}

impl MergeJob {
    pub(crate) fn new(
        database: Arc<Database>,
        frozen: Arc<Frozen>,
        front: Stamp,
        planted: Option<Planted>,
    ) -> MergeJob {
        MergeJob { database, frozen, front, planted }
    }

    /// Changes that will be put into the tree.
    pub fn changes(&self) -> usize {
        self.frozen.overlay.len()
    }

    /// Does it. Blocks: reads, writes and syncs the tree's file.
    pub fn run(self) -> MergeResult {
        let result = write(&self.database, &self.frozen, Some(self.front), self.planted);
        MergeResult { result, sequence: self.frozen.sequence, front: self.front }
    }
}

/// One durable transaction with everything in the overlay, its sequence number and the group from behind which it asks for the log; none: the log is not begun.
pub fn write(database: &Database, frozen: &Frozen, front: Option<Stamp>, planted: Option<Planted>) -> Result<()> {
    let mut transaction = database.begin_write().map_err(|error| tree::failed("begin a change", error))?;
    tree::make_durable(&mut transaction)?;
    {
        let mut table = transaction.open_table(TABLE).map_err(|error| tree::failed("open its table", error))?;
        for (key, slot) in &frozen.overlay {
            let group = device_index::group_of(key);
            let devices = |before: Option<AccessGuard<'_, &[u8]>>| match (group, before) {
                (Some(_), Some(record)) => device_index::devices(record.value()),
                _ => BTreeSet::new(),
            };
            let before = match &slot.value {
                Some(value) => table.insert(key.as_slice(), value.as_slice()).map(devices),
                None if planted == Some(Planted::TombstoneDroppedEarly) => continue,
                None => table.remove(key.as_slice()).map(devices),
            };
            let before = before.map_err(|error| tree::failed("write", error))?;
            if let Some(group) = group {
                let after = slot.value.as_deref().map(device_index::devices).unwrap_or_default();
                device_index::follow(&mut table, group, &before, &after)?;
            }
        }
        let key = Key::Merged.encode();
        // What does not read was refused at the opening.
        let before = match table.get(key.as_slice()).map_err(|error| tree::failed("read", error))? {
            Some(bytes) => MergedRecord::decode(bytes.value()).unwrap_or_default(),
            None => MergedRecord::default(),
        };
        let least = before.least.max(VERSION_SINCE.to_number());
        let begun = front.is_some();
        let Stamp { index, term, sum } = front.unwrap_or_default();
        let sequence = frozen.sequence;
        let merged = MergedRecord { version: VERSION, sequence, least, index, term, sum, begun, ..before };
        table
            .insert(key.as_slice(), merged.encode_to_vec().as_slice())
            .map_err(|error| tree::failed("write", error))?;
    }
    transaction.commit().map_err(|error| tree::failed("commit", error))
}
