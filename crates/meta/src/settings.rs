//! How a metadata store is opened.

use crate::widen::Widths;
use base::env::Random;
use base::id::ClusterId;
use base::limit::{COPY_PAGE, LIST_PAGE_MAX, REMEMBERED_ANSWERS, REMEMBERED_CALLS};
use base::planted::Planted;
use base::unit::{MIB, WallTime};
use quorum::KeeperId;
use std::sync::Arc;

/// Which of several keepers of a store this is. All of them are told the same of the store.
#[derive(Clone)]
pub struct Seats {
    /// The store.
    pub store: ClusterId,
    /// This keeper.
    pub own: KeeperId,
    /// All that vote, when the store is made; afterwards its own record counts.
    pub voters: Vec<KeeperId>,
    /// When the store is made.
    pub made: WallTime,
}

/// How a store is opened.
#[derive(Clone)]
pub struct Settings {
    /// Bytes of a log segment; a multiple of `BLOCK`, at least 1 MiB: a step of collecting takes up to 200 KiB in one entry, which may take a quarter.
    pub segment_length: u64,
    /// Most log segments.
    pub segments_max: usize,
    /// Bytes of the overlay at which it is merged.
    pub merge_bytes: usize,
    /// Draws chunk ids, places, and the marks of log segments.
    pub random: Arc<dyn Random>,
    /// How wide files become.
    pub widths: Widths,
    /// Answers that are remembered for one session at the most, up to 65,536. `limit::REMEMBERED_CALLS` unless there is a reason.
    pub remembered_calls: usize,
    /// Answers that are remembered for all clients of gateways together. `limit::REMEMBERED_ANSWERS` unless there is a reason.
    pub remembered_answers: usize,
    /// Entries, extents, groups and the like in one page of an answer at the most. `limit::LIST_PAGE_MAX` unless there is a reason.
    pub page_max: usize,
    /// Bytes of a page of a copy of the tree, about: `limit::COPY_PAGE` unless there is a reason.
    pub copy_page: usize,
    /// The user who may do everything, and owns what nobody claimed: whoever runs the node. Empty: there is none by name.
    pub superuser: String,
    /// Who keeps it; none: this one alone.
    pub seats: Option<Seats>,
    /// A fault put in on purpose, by the simulation alone.
    pub planted: Option<Planted>,
}

impl Settings {
    /// For a store whose devices hold `capacity` bytes together: 16 segments of 16 MiB from 2 GiB on, smaller ones, of at
    /// least 1 MiB, for less. Half a segment is merged at a time, so there is plenty of room for merging to lag.
    pub fn for_capacity(capacity: u64, random: Arc<dyn Random>) -> Settings {
        let segment_length = (capacity / 128 / MIB * MIB).clamp(MIB, 16 * MIB);
        let (merge_bytes, widths) = (segment_length as usize / 2, Widths::default());
        let (remembered_calls, remembered_answers) = (REMEMBERED_CALLS, REMEMBERED_ANSWERS);
        let (segments_max, page_max, planted) = (16, LIST_PAGE_MAX, None);
        Settings {
            segment_length,
            segments_max,
            merge_bytes,
            random,
            widths,
            remembered_calls,
            remembered_answers,
            page_max,
            copy_page: COPY_PAGE,
            superuser: String::new(),
            seats: None,
            planted,
        }
    }
}
