//! The ordered state in three layers: an overlay of recent changes, a frozen overlay being merged, and the tree.

use crate::key::Key;
use crate::tree::{self, TABLE};
use base::error::{Error, ErrorKind, Result};
use prost::Message;
use redb::{Database, ReadOnlyTable, ReadableDatabase};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

/// A change in an overlay.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The log entry that made it.
    pub sequence: u64,
    /// The value; none if the key was removed.
    pub value: Option<Vec<u8>>,
}

/// Changes by key.
pub type Overlay = BTreeMap<Vec<u8>, Slot>;

/// An overlay that takes no more changes and goes into the tree.
#[derive(Debug)]
pub struct Frozen {
    /// Its changes.
    pub overlay: Overlay,
    /// The last log entry whose changes it has.
    pub sequence: u64,
}

/// A reading of the tree that stands still.
pub type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// What one change costs in memory beyond its bytes: a tree slot, two lengths, a sequence number.
const SLOT_COST: usize = 96;

/// The layers, newest first.
pub struct Layers {
    overlay: Overlay,
    overlay_bytes: usize,
    frozen: Option<Arc<Frozen>>,
    database: Arc<Database>,
    table: Table,
    /// Newest sequence number that a lookup met since it was last set to zero.
    observed: Cell<u64>,
}

impl Layers {
    /// The state as the tree has it. The table must exist.
    pub fn new(database: Arc<Database>) -> Result<Layers> {
        let table = read_table(&database)?;
        Ok(Layers { overlay: Overlay::new(), overlay_bytes: 0, frozen: None, database, table, observed: Cell::new(0) })
    }

    /// The same without what was changed since an overlay was frozen; nor that one, if it has changes behind `committed`. And the last change that
    /// the frozen one has.
    pub fn without_overlay(&self, committed: u64) -> Result<(Layers, Option<u64>)> {
        let frozen = self.frozen.clone().filter(|frozen| frozen.sequence <= committed);
        let sequence = frozen.as_ref().map(|frozen| frozen.sequence);
        Ok((Layers { frozen, ..Layers::new(self.database())? }, sequence))
    }

    /// The same, which takes the changes from these.
    pub fn take(&mut self) -> Result<Layers> {
        let again = Layers::new(self.database())?;
        let (overlay, overlay_bytes) = (std::mem::take(&mut self.overlay), std::mem::take(&mut self.overlay_bytes));
        Ok(Layers { overlay, overlay_bytes, frozen: self.frozen.clone(), ..again })
    }

    /// The tree.
    pub fn database(&self) -> Arc<Database> {
        Arc::clone(&self.database)
    }

    /// About how many bytes of memory the overlay takes.
    pub fn overlay_bytes(&self) -> usize {
        self.overlay_bytes
    }

    /// Whether there are changes that are neither in the tree nor frozen.
    pub fn has_overlay(&self) -> bool {
        !self.overlay.is_empty()
    }

    /// Whether an overlay is on its way into the tree.
    pub fn is_merging(&self) -> bool {
        self.frozen.is_some()
    }

    /// Whether everything is in the tree.
    pub fn is_merged(&self) -> bool {
        self.overlay.is_empty() && self.frozen.is_none()
    }

    /// Newest sequence number met by lookups since `forget_observed`.
    pub fn observed(&self) -> u64 {
        self.observed.get()
    }

    /// Starts a new observation.
    pub fn forget_observed(&self) {
        self.observed.set(0);
    }

    /// Counts an earlier observation as made now.
    pub fn observe(&self, sequence: u64) {
        self.observed.set(self.observed.get().max(sequence));
    }

    /// The record under the key.
    pub fn record<M: Message + Default>(&self, key: &Key<'_>) -> Result<Option<M>> {
        let decode = |bytes: &[u8]| M::decode(bytes).map_err(|error| unreadable(key, &error));
        let bytes = key.encode();
        if let Some(slot) = self.slot(&bytes) {
            self.observe(slot.sequence);
            return slot.value.as_deref().map(decode).transpose();
        }
        match self.table.get(bytes.as_slice()).map_err(|error| tree::failed("read", error))? {
            Some(guard) => decode(guard.value()).map(Some),
            None => Ok(None),
        }
    }

    /// Whether there is anything under the key.
    pub fn has(&self, key: &Key<'_>) -> Result<bool> {
        let bytes = key.encode();
        if let Some(slot) = self.slot(&bytes) {
            self.observe(slot.sequence);
            return Ok(slot.value.is_some());
        }
        Ok(self.table.get(bytes.as_slice()).map_err(|error| tree::failed("read", error))?.is_some())
    }

    fn slot(&self, key: &[u8]) -> Option<&Slot> {
        self.overlay.get(key).or_else(|| self.frozen.as_ref().and_then(|frozen| frozen.overlay.get(key)))
    }

    /// Calls `visit` with keys and values from `from` on and below `end`, in order, until it answers false.
    pub fn scan(&self, from: &[u8], end: &[u8], mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool>) -> Result<()> {
        if from >= end {
            return Ok(());
        }
        let bounds = (Bound::Included(from), Bound::Excluded(end));
        let none = Overlay::new();
        let mut newest = self.overlay.range::<[u8], _>(bounds).peekable();
        let mut frozen = match &self.frozen {
            Some(frozen) => frozen.overlay.range::<[u8], _>(bounds),
            None => none.range::<[u8], _>(bounds),
        }
        .peekable();
        let mut merged = self.table.range::<&[u8]>(bounds).map_err(|error| tree::failed("read", error))?;
        let mut next_merged = merged.next().transpose().map_err(|error| tree::failed("read", error))?;
        loop {
            let tree_key = next_merged.as_ref().map(|(key, _)| key.value());
            let overlay_key = first_key(&mut newest, &mut frozen);
            let from_overlay = match (overlay_key, tree_key) {
                (None, None) => return Ok(()),
                (Some(_), None) => true,
                (None, Some(_)) => false,
                (Some(overlay_key), Some(tree_key)) => overlay_key <= tree_key,
            };
            if from_overlay {
                let Some((key, slot)) = pop_first(&mut newest, &mut frozen) else {
                    unreachable!("one of the overlays has a next key")
                };
                if tree_key == Some(key.as_slice()) {
                    next_merged = merged.next().transpose().map_err(|error| tree::failed("read", error))?;
                }
                self.observe(slot.sequence);
                if let Some(value) = &slot.value
                    && !visit(key, value)?
                {
                    return Ok(());
                }
            } else {
                if let Some((key, value)) = &next_merged
                    && !visit(key.value(), value.value())?
                {
                    return Ok(());
                }
                next_merged = merged.next().transpose().map_err(|error| tree::failed("read", error))?;
            }
        }
    }

    /// Keys from `from` on and below `end` that were changed or removed and are not in the tree as they are now: the first `most` of one
    /// overlay, in order, then those of the other.
    pub fn changed(&self, from: &[u8], end: &[u8], most: usize) -> impl Iterator<Item = &[u8]> + use<'_> {
        let bounds = (Bound::Included(from.to_vec()), Bound::Excluded(end.to_vec()));
        let overlays = [Some(&self.overlay), self.frozen.as_ref().map(|frozen| &frozen.overlay)];
        overlays
            .into_iter()
            .flatten()
            .flat_map(move |overlay| overlay.range(bounds.clone()).take(most))
            .map(|(key, _)| key.as_slice())
    }

    /// Puts a change into the overlay and returns what it had there before.
    pub fn change(&mut self, key: Vec<u8>, slot: Slot) -> Option<Slot> {
        self.overlay_bytes += key.len() + slot.value.as_ref().map_or(0, Vec::len) + SLOT_COST;
        let key_length = key.len();
        let before = self.overlay.insert(key, slot);
        if let Some(before) = &before {
            self.shrink(key_length, before);
        }
        before
    }

    /// Takes a change back: the overlay has `before` again.
    pub fn restore(&mut self, key: Vec<u8>, before: Option<Slot>) {
        let key_length = key.len();
        match before {
            Some(before) => {
                self.change(key, before);
            }
            None => {
                if let Some(gone) = self.overlay.remove(&key) {
                    self.shrink(key_length, &gone);
                }
            }
        }
    }

    fn shrink(&mut self, key_length: usize, slot: &Slot) {
        let cost = key_length + slot.value.as_ref().map_or(0, Vec::len) + SLOT_COST;
        self.overlay_bytes = self.overlay_bytes.saturating_sub(cost);
    }

    /// What the overlay has under these bytes.
    pub fn overlay_slot(&self, key: &[u8]) -> Option<&Slot> {
        self.overlay.get(key)
    }

    /// Starts to merge all changes up to `sequence`, the last one made.
    pub fn freeze(&mut self, sequence: u64) -> Arc<Frozen> {
        assert!(self.frozen.is_none(), "one overlay is merged at a time");
        let overlay = std::mem::take(&mut self.overlay);
        self.overlay_bytes = 0;
        let frozen = Arc::new(Frozen { overlay, sequence });
        self.frozen = Some(Arc::clone(&frozen));
        frozen
    }

    /// The frozen overlay is in the tree now. Returns it, for whoever has time to free it.
    pub fn merged(&mut self) -> Result<Option<Arc<Frozen>>> {
        self.table = read_table(&self.database)?;
        Ok(self.frozen.take())
    }
}

/// A reading of the tree as it is now.
pub fn read_table(database: &Database) -> Result<Table> {
    let transaction = database.begin_read().map_err(|error| tree::failed("begin reading", error))?;
    transaction.open_table(TABLE).map_err(|error| tree::failed("open its table", error))
}

type Changes<'a> = Peekable<Range<'a, Vec<u8>, Slot>>;

fn first_key<'a>(newest: &mut Changes<'a>, frozen: &mut Changes<'a>) -> Option<&'a [u8]> {
    match (newest.peek(), frozen.peek()) {
        (Some((first, _)), Some((second, _))) => Some(first.min(second)),
        (Some((key, _)), None) | (None, Some((key, _))) => Some(key),
        (None, None) => None,
    }
}

/// The change with the first key; the newer one if both have it.
fn pop_first<'a>(newest: &mut Changes<'a>, frozen: &mut Changes<'a>) -> Option<(&'a Vec<u8>, &'a Slot)> {
    match (newest.peek(), frozen.peek()) {
        (Some((first, _)), Some((second, _))) if first > second => frozen.next(),
        (Some((first, _)), Some((second, _))) => {
            if first == second {
                frozen.next();
            }
            newest.next()
        }
        (Some(_), None) => newest.next(),
        (None, _) => frozen.next(),
    }
}

fn unreadable(key: &Key<'_>, error: &prost::DecodeError) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "the metadata record {key:?} does not read: {error}; nothing was changed: keep the files and report this"
        ),
    )
}
