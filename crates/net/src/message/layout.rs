//! Where the bytes of a group are, as it is sent: `base::layout` without its rules, which are checked when it comes in.

use super::id::Id;
use base::error::{Error, ErrorKind, Result};
use base::id::{ChunkId, DeviceId};
use prost::Message;

/// One column of a group: a chunk that has one name on each of its devices.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Column {
    /// The first of its devices.
    #[prost(message, required, tag = "1")]
    pub device: Id,
    /// The chunk's name.
    #[prost(message, required, tag = "2")]
    pub chunk: Id,
    /// The devices of its other replicas.
    #[prost(message, repeated, tag = "3")]
    pub others: Vec<Id>,
}

/// Where the bytes of a group are.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct Layout {
    /// Its columns, from one to `base::limit::COLUMNS_MAX`: cells go round them as `base::stripe` says.
    #[prost(message, repeated, tag = "1")]
    pub columns: Vec<Column>,
    /// Bytes of a cell if there are several columns.
    #[prost(uint64, tag = "2")]
    pub cell: u64,
}

impl From<&base::layout::Layout> for Layout {
    fn from(layout: &base::layout::Layout) -> Layout {
        let column = |column: &base::layout::Column| Column {
            device: column.head().0.into(),
            chunk: column.chunk().0.into(),
            others: column.others().iter().map(|device| device.0.into()).collect(),
        };
        Layout { columns: layout.columns().iter().map(column).collect(), cell: layout.cell() }
    }
}

impl Layout {
    /// The same as a layout that can be used. `Protocol` if no group can have it: the other side may say anything.
    pub fn checked(&self) -> Result<base::layout::Layout> {
        let column = |column: &Column| {
            let devices = std::iter::once(&column.device).chain(&column.others);
            base::layout::Column::new(ChunkId(column.chunk.value()), devices.map(|device| DeviceId(device.value())))
        };
        let columns = self.columns.iter().map(column).collect::<Option<_>>();
        let layout = columns.and_then(|columns| base::layout::Layout::new(columns, self.cell));
        layout.ok_or_else(|| {
            let text = format!(
                "the node says that bytes go round {} columns in cells of {} bytes, or names a device or chunk of theirs twice, which \
                 cannot be; nothing was changed; check that client and node have one version",
                self.columns.len(),
                self.cell
            );
            Error::new(ErrorKind::Protocol, text)
        })
    }
}
