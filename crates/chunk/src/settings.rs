//! Sizes and thresholds of an engine, derived from the capacity.

use base::buffer::Pool;
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};
use base::planted::Planted;
use base::unit::{GIB, MIB};

/// How an engine uses its device. All sizes are bytes and multiples of `limit::BLOCK`.
#[derive(Clone)]
pub struct Settings {
    /// What the engine may use of the device.
    pub capacity: u64,
    /// On a device that exists already: use the capacity that it was made with instead.
    pub keep_capacity: bool,
    /// Where aligned memory comes from.
    pub pool: Pool,
    /// Size of a data segment.
    pub data_segment: u64,
    /// Size of a journal segment.
    pub journal_segment: u64,
    /// A checkpoint is written after so many bytes of log.
    pub checkpoint_bytes: u64,
    /// A checkpoint is written after so many bytes of journal.
    pub checkpoint_journal: u64,
    /// So many bytes of a checkpoint are encoded in one step and written at once.
    pub checkpoint_piece: usize,
    /// Kept back so that deletes, acknowledgements and seals work on a full device.
    pub reserve: u64,
    /// Tails in memory, of all open chunks together.
    pub tails_max: u64,
    /// Data writes in flight at once.
    pub writes_max: usize,
    /// What is remembered of pushes and acknowledgements of all sessions (`base::limit::REMEMBERED_MAX`).
    pub remembered_max: u64,
    /// Bytes of one journal group.
    pub group_max: usize,
    /// Sequence numbers skipped by every recovery: more than can have been given to records that are lost behind one that was found, so
    /// that none of those is given again. A checkpoint is due after 128 MiB of journal, four million records; where none can be made,
    /// so many as this are 128 GiB. Enough numbers are left for billions of recoveries.
    pub sequence_gap: u64,
    /// A fault put in on purpose, by the simulation alone.
    pub planted: Option<Planted>,
}

impl Settings {
    /// - data segment: capacity / 16, within 16..=256 MiB: a dead segment is 6 % of a small device, and a large device has
    ///   thousands of them at most (16 TiB: 65,536);
    /// - journal segment: capacity / 128, within 1..=16 MiB;
    /// - a checkpoint every min(512 MiB, capacity / 16) of data: recovery reads the headers behind the newest one, at 0.1 ms
    ///   each a quarter of a second for 2,600 chunks of 200 KiB; a checkpoint of what changed is then 200 KiB;
    /// - a piece of 256 KiB is encoded in a fraction of a millisecond;
    /// - and every 2 to 8 journal segments, as the capacity allows (1/64 of it): open tails are written into the checkpoint,
    ///   so with 64 tails of up to 1 MiB a checkpoint every 128 MiB costs at most half a byte for each byte journaled;
    /// - reserve: capacity / 16, and the journal segments of two checkpoints, the current and the next one.
    pub fn for_capacity(capacity: u64, pool: Pool) -> Settings {
        let whole = |bytes: u64| bytes / BLOCK as u64 * BLOCK as u64;
        let data_segment = whole((capacity / 16).clamp(16 * MIB, 256 * MIB));
        let journal_segment = whole((capacity / 128).clamp(MIB, 16 * MIB));
        let journal_segments = (capacity / 64 / journal_segment).clamp(2, 8);
        Settings {
            capacity,
            keep_capacity: false,
            pool,
            data_segment,
            journal_segment,
            checkpoint_bytes: (capacity / 16).min(GIB / 2),
            checkpoint_journal: journal_segments * journal_segment,
            checkpoint_piece: 256 << 10,
            reserve: whole((capacity / 16).clamp(MIB, GIB)) + (2 * journal_segments + 2) * journal_segment,
            tails_max: (capacity / 16).min(64 * MIB),
            writes_max: 4,
            remembered_max: base::limit::REMEMBERED_MAX,
            group_max: (MIB as usize).min(journal_segment as usize),
            sequence_gap: 1 << 32,
            planted: None,
        }
    }

    /// Why these settings cannot work, if they cannot.
    pub(crate) fn fault(&self) -> Option<String> {
        let block = BLOCK as u64;
        let record = (RECORD_PAYLOAD_MAX + BLOCK) as u64;
        let floor = self.data_segment.saturating_add(self.reserve).saturating_add(4 * self.journal_segment);
        if !self.data_segment.is_multiple_of(block) || !self.journal_segment.is_multiple_of(block) {
            return Some(format!(
                "segments of {} and {} bytes are no multiples of 4 KiB",
                self.data_segment, self.journal_segment
            ));
        }
        if self.data_segment < record || self.data_segment > u64::from(u32::MAX) {
            return Some(format!("a data segment of {} bytes holds no whole record", self.data_segment));
        }
        if self.group_max < 128 * 1024 || self.group_max as u64 > self.journal_segment {
            return Some(format!(
                "a journal group of {} bytes does not fit a segment or is below 128 KiB",
                self.group_max
            ));
        }
        if self.capacity < floor {
            return Some(format!(
                "a capacity of {} bytes is below the least of {floor}: one data segment, the reserve and four journal segments",
                self.capacity
            ));
        }
        None
    }
}
