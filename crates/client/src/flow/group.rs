//! The group that a writer's bytes go to, and how far each of its columns is.

use crate::columns::{Head, to_write};
use base::error::Result;
use base::layout::Layout;
use net::Link;
use net::message::file::NewGroup;

/// The group that is written to.
pub(super) struct Group {
    pub(super) number: u64,
    pub(super) layout: Layout,
    /// Of each column.
    pub(super) states: Vec<ColumnState>,
    /// Bytes after which it ends. When they are on their way, all columns are, with their seals.
    pub(super) room: u64,
}

/// How far a column of the present group is.
#[derive(Clone, Default)]
pub(super) struct ColumnState {
    /// Where its appends go. None before the first: a file of one append needs no order, so no connection of its own.
    pub(super) link: Option<Link>,
    /// It has bytes that are not synced, and nothing that would sync them is on its way.
    pub(super) unsynced: bool,
    /// Its last bytes are acknowledged, with its seal.
    pub(super) sealed: bool,
    /// Bytes of it that were acknowledged, though others before them may be missing in the file.
    pub(super) acknowledged: u64,
    /// Those of them that are known to be synced.
    pub(super) synced: u64,
}

impl Group {
    /// `chunk`: most bytes of a chunk.
    pub(super) fn new(group: &NewGroup, chunk: u64) -> Result<Group> {
        let layout = to_write(group)?;
        let columns = layout.columns().len();
        let most = chunk.saturating_mul(columns as u64);
        let room = if group.room == 0 { most } else { group.room.min(most) };
        Ok(Group { number: group.group, states: vec![ColumnState::default(); columns], layout, room })
    }

    /// Where a column's bytes go.
    pub(super) fn head(&self, column: usize) -> Head {
        Head::from(&self.layout.columns()[column])
    }
}
