//! The group that a writer's bytes go to, and how far each replica of its columns is.

use super::patience::GivenUp;
use crate::columns::Head;
use crate::routes::Table;
use base::error::{Error, Result};
use base::id::DeviceId;
use base::layout::{Layout, Replica};
use base::unit::Time;
use net::Link;
use net::message::file::NewGroup;
use std::ops::Range;

/// The group that is written to.
pub(super) struct Group {
    pub(super) number: u64,
    pub(super) layout: Layout,
    /// Every replica of every column, column after column, the head of each first.
    pub(super) slots: Vec<Slot>,
    /// The first slot of each column, and behind those of the last column.
    first: Vec<usize>,
    /// Bytes after which it ends. When they are on their way, all columns are, with their seals.
    pub(super) room: u64,
}

/// A replica of a column as its writer has it. All of a column get the same appends.
pub(super) struct Slot {
    pub(super) column: usize,
    pub(super) head: Head,
    /// Where its appends go. None before the first: a file of one append needs no order, so no connection of its own.
    pub(super) link: Option<Link>,
    /// It has bytes that are not synced, and nothing that would sync them is on its way.
    pub(super) unsynced: bool,
    /// Its last bytes are acknowledged, with its seal.
    pub(super) sealed: bool,
    /// Bytes that it has acknowledged, though other replicas may lack them, or others before them may be missing in the file.
    pub(super) acknowledged: u64,
    /// Those of them that are known to be synced.
    pub(super) synced: u64,
    /// When it acknowledged an append last, if its column has others.
    pub(super) answered: Option<Time>,
    /// How often its node had been started when the group was begun, as far as that was known.
    pub(super) incarnation: Option<u64>,
    /// Why the group goes on without it. It is asked for nothing more, and what it has of the group is struck out.
    pub(super) left: Option<Error>,
    /// Told when it is not waited for any more. None if its column has no other.
    pub(super) given_up: Option<GivenUp>,
}

impl Group {
    /// `chunk`: most bytes of a chunk.
    pub(super) fn new(group: &NewGroup, chunk: u64, table: &Table) -> Result<Group> {
        let layout = group.layout.checked()?;
        let most = chunk.saturating_mul(layout.columns().len() as u64);
        let room = if group.room == 0 { most } else { group.room.min(most) };
        let slot = |replica: Replica| {
            let is_alone = layout.columns()[replica.column].others().is_empty();
            let head = Head::from(replica);
            let incarnation = table.condition_of(head.device).map(|(incarnation, _)| incarnation);
            Slot { incarnation, ..Slot::new(replica.column, head, (!is_alone).then(GivenUp::new)) }
        };
        let slots: Vec<Slot> = layout.replicas().map(slot).collect();
        let columns = 0..=layout.columns().len();
        let first = columns.map(|column| slots.partition_point(|slot| slot.column < column)).collect();
        Ok(Group { number: group.group, layout, slots, first, room })
    }

    /// The slots of a column.
    pub(super) fn of(&self, column: usize) -> Range<usize> {
        self.first[column]..self.first[column + 1]
    }

    /// The other slots of a slot's column.
    pub(super) fn beside(&self, slot: usize) -> impl Iterator<Item = usize> {
        self.of(self.slots[slot].column).filter(move |other| *other != slot)
    }

    /// Whether a column has bytes that are not synced, and nothing that would sync them is on its way.
    pub(super) fn is_unsynced(&self, column: usize) -> bool {
        self.slots[self.of(column)].iter().any(|slot| slot.unsynced)
    }

    /// The device of a slot.
    pub(super) fn device(&self, slot: usize) -> DeviceId {
        DeviceId(self.slots[slot].head.device.value())
    }
}

impl Slot {
    fn new(column: usize, head: Head, given_up: Option<GivenUp>) -> Slot {
        Slot {
            column,
            head,
            link: None,
            unsynced: false,
            sealed: false,
            acknowledged: 0,
            synced: 0,
            answered: None,
            incarnation: None,
            left: None,
            given_up,
        }
    }
}
