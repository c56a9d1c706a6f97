//! The data stream: records of up to 1 MiB, laid one behind the other in data segments, several writes in flight.

use crate::core::{Core, Purpose, data_file};
use crate::format::{DataHeader, record_blocks};
use crate::piece::{pieces, record_max};
use base::buffer::is_aligned;
use base::checksum::{BlockSums, combine};
use base::disk::{DiskError, Op};
use base::id::ChunkId;
use base::limit::{BLOCK, FULL_WAIT, RECORD_PAYLOAD_MAX};
use base::planted::Planted;
use base::unit::Time;
use bytes::Bytes;
use std::collections::VecDeque;
use std::time::Duration;

/// Records next to each other are written by one operation up to this many bytes: one large record, or many small ones.
/// With four such writes in flight (`Settings::writes_max`) a disk runs at its full rate beside busy processors.
const WRITE_MAX: usize = RECORD_PAYLOAD_MAX + BLOCK;
/// A smaller write waits while two others are in flight: more of it comes together meanwhile.
const WRITE_SMALL: usize = 256 * 1024;

/// While more is being written, a sync waits until it covers so many bytes. During a sync no write is started: one of the
/// same file beside a steady stream of writes took up to a second here, alone it takes 0.13 ms. With the disk's 10 ms for
/// 24 MiB the pause (the last writes in flight, 1.6 ms, and the sync) is hidden by what the window of a writer holds.
/// A stream whose writer waits for no sync is synced as often, so that syncs of other files find their pause in time.
pub(crate) const SYNC_BYTES: u64 = 24 * base::unit::MIB;

/// The same if somebody waits who wrote little: six writes keep a disk busy while the small record waits for its turn.
pub(crate) const HURRIED_BYTES: u64 = 6 * base::unit::MIB;

/// The same on a disk that takes longer for so much: somebody waits for the sync, and a slow disk's pause is as short.
pub(crate) const SYNC_WAIT: Duration = Duration::from_millis(100);

/// Tails are folded at most so many times as fast as the journal is written. Memory that is not in huge pages takes 254 of a virtio disk's 256 places
/// for 1 MiB, so that nothing else is on its way to the disk meanwhile: half a millisecond, in which the journal would write and sync thrice.
const FOLD_PACE: u64 = 2;

/// A record that is not known to be written yet.
pub(crate) struct PendingRecord {
    pub header: DataHeader,
    /// The payload, aligned and padded with zeros.
    pub parts: Vec<Bytes>,
    pub birth: u64,
}

/// A write in flight or just ended: of so many records from the front of what is pending.
struct DataWrite {
    token: u64,
    records: usize,
    /// Ended well; `None` while it is in flight.
    ended: Option<bool>,
}

/// How far it has come to write again what is pending.
struct Repair {
    /// The writes that were in flight have ended, and the segments that they went to are closed.
    begun: bool,
    /// So many of the pending records have their new place; the rest waits for the next segment.
    moved: usize,
    /// When a record got its new place last, or a write failed.
    since: Time,
}

/// The records under way.
#[derive(Default)]
pub(crate) struct DataLog {
    /// In the order of their sequence numbers; the first `submitted` are in `writes`.
    pub pending: VecDeque<PendingRecord>,
    writes: VecDeque<DataWrite>,
    submitted: usize,
    /// Bytes of the records that wait for their write, without those in flight.
    pub bytes_ahead: usize,
    /// A write failed: what is pending is written again elsewhere.
    repair: Option<Repair>,
    /// Why the repair that has not succeeded was begun.
    strike: Option<DiskError>,
    /// Bytes written since the last checkpoint.
    pub written_bytes: u64,
    /// Bytes of the newest write.
    newest_bytes: u64,
}

impl DataLog {
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.writes.is_empty()
    }

    /// Nothing is in flight: a sync has nothing to wait for.
    pub fn rests(&self) -> bool {
        self.writes.is_empty()
    }

    /// Bytes of this range of the chunk that are under way, if all of the record that holds `offset` is.
    pub fn find(&self, chunk: ChunkId, birth: u64, offset: u32) -> Option<&PendingRecord> {
        self.pending.iter().find(|record| {
            let header = &record.header;
            header.chunk == chunk && record.birth == birth && header.offset <= offset && offset < header.end()
        })
    }
}

impl Core {
    /// Puts the chunk's tail and `payload` behind it into data records, the last of which seals the chunk if `seal`.
    /// `crcs` are those of the payload's blocks, used if it is not joined to a tail. There is room: `has_room` said so.
    pub fn put_records(&mut self, id: ChunkId, payload: Bytes, crcs: &[u32], seal: bool) {
        let Some(small) = self.index.open.get(&id).map(|open| open.small_records) else { return };
        let record_max = record_max(small);
        let apart = self.stays_apart(id, payload.len());
        let tail = self.index.take_tail(id, usize::MAX);
        let (mut left, mut rest) = (&tail[..], payload);
        let mut known = crcs.chunks(record_max / BLOCK).filter(|_| tail.is_empty() || apart);
        for (of_tail, of_payload) in pieces(tail.len(), rest.len(), record_max, apart) {
            let (first, behind) = left.split_at(of_tail);
            let piece = rest.split_to(of_payload);
            let (piece, crcs) = match of_tail {
                0 => (piece, known.next().map(<[u32]>::to_vec).unwrap_or_default()),
                _ => (self.joined(first, &piece), Vec::new()),
            };
            left = behind;
            let is_last = left.is_empty() && rest.is_empty();
            self.put_record(id, (&piece, of_tail + of_payload, 0), crcs, seal && is_last);
        }
    }

    /// Puts the chunk's tail into a data record and `payload`, which stands for `cell` bytes, into another, which seals the chunk
    /// if `seal`. There is room: `has_room` said so.
    pub fn put_cell(&mut self, id: ChunkId, (payload, crcs): (&Bytes, &[u32]), cell: u64, seal: bool) {
        if self.index.open.get(&id).is_some_and(|open| !open.tail.is_empty()) {
            self.put_records(id, Bytes::new(), &[], false);
        }
        self.put_record(id, (payload, payload.len(), cell as u32), crcs.to_vec(), seal);
    }

    /// `length` bytes of payload that stand for `cell` bytes of the chunk; 0: for themselves.
    pub fn put_record(
        &mut self,
        id: ChunkId,
        (piece, length, cell): (&Bytes, usize, u32),
        mut crcs: Vec<u32>,
        seal: bool,
    ) {
        // What the journal has, and has until this record is durable, is not waited for here.
        let folds = !seal
            && self.index.open.get(&id).is_some_and(|open| open.flushed as usize + length <= open.journaled as usize);
        assert!(length <= RECORD_PAYLOAD_MAX, "a data record of {length} bytes");
        if crcs.is_empty() {
            crcs.extend_from_slice(BlockSums::of(&piece[..length]).blocks());
        }
        let parts = self.aligned(piece);
        let (segment, block, incarnation) = self.allocate(record_blocks(length as u32));
        let sequence = self.sequence();
        let previous = std::mem::replace(&mut self.data.last, sequence);
        let Some((owner, generation)) = self.index.chunks.get(&id).map(|chunk| (chunk.owner, chunk.generation)) else {
            unreachable!("records are made only for chunks")
        };
        let Some(open) = self.index.open_mut(id) else { unreachable!("records are made only for open chunks") };
        let mut header = DataHeader {
            chunk: id,
            owner,
            generation,
            sequence,
            previous,
            durable_data: 0,
            durable_journal: 0,
            incarnation,
            segment,
            block,
            offset: open.flushed,
            length: length as u32,
            newer: 0,
            cell,
            seals: None,
            crcs,
        };
        open.flushed_crc = combine(open.flushed_crc, header.payload_crc(), length as u64);
        open.flushed = header.end();
        open.last_record = sequence;
        if !folds {
            open.last_data = sequence;
        }
        let (flushed, flushed_crc, birth) = (open.flushed, open.flushed_crc, open.birth);
        self.index.record_begun(id, header.run());
        self.index.live -= header.run().saved();
        if seal {
            header.seals = Some((flushed, flushed_crc));
            self.index.seal(id, flushed_crc);
            self.closing.push_back(id);
        }
        self.data_log.bytes_ahead += header.blocks() as usize * BLOCK;
        self.data_log.pending.push_back(PendingRecord { header, parts, birth });
    }

    /// The bytes as a device can write them: as they lie where that is possible, else copied; the last block padded with zeros.
    fn aligned(&self, piece: &Bytes) -> Vec<Bytes> {
        let whole = piece.len() / BLOCK * BLOCK;
        let from = if is_aligned(&piece[..whole]) { whole } else { 0 };
        let mut parts = Vec::with_capacity(2);
        if from > 0 {
            parts.push(piece.slice(..from));
        }
        if from < piece.len() {
            let rest = &piece[from..];
            let mut copy = self.settings.pool.take(rest.len().next_multiple_of(BLOCK));
            copy[..rest.len()].copy_from_slice(rest);
            copy[rest.len()..].fill(0);
            parts.push(copy.freeze());
        }
        parts
    }

    /// Starts the writes that may be in flight now.
    pub fn write_data(&mut self) {
        self.repair_data();
        // What waits for its new place is not written at its old one.
        let placed = self.data_log.repair.as_ref().map_or(self.data_log.pending.len(), |repair| repair.moved);
        let writes_max = self.data_writes_max();
        while self.data.round.is_none() && self.data_log.submitted < placed && self.data_log.writes.len() < writes_max {
            let (records, bytes) = self.next_write(placed);
            if bytes < WRITE_SMALL && self.data_log.writes.len() >= 2 {
                return;
            }
            self.submit_write(records, bytes);
        }
    }

    fn has_piled_up(&self) -> bool {
        self.data_log.bytes_ahead as u64 > self.settings.tails_max
    }

    /// What small appends wait for although the journal has their bytes: the oldest record, if so much waits for its write that nobody should bring more
    /// than is written.
    pub fn piled_up_behind(&self) -> u64 {
        let oldest = self.data_log.pending.front().filter(|_| self.has_piled_up());
        oldest.map_or(0, |record| record.header.sequence)
    }

    /// How many data writes may be in flight. While somebody waits for the journal and nobody for data, these writes are folded tails: 64 of
    /// 1 MiB at once, if as many writers sync small appends together. One at a time, and twice as fast as the journal brings more, they leave the
    /// disk to the journal in between, until they pile up, or something waits behind them: a large append for its turn, whoever waits for room, a
    /// checkpoint.
    fn data_writes_max(&self) -> usize {
        let yields = self.journal.has_waiters() && !self.data.has_waiters();
        let piled_up = self.has_piled_up();
        let wanted = self.checkpoint.waits_for()[0] > self.data.written
            || !self.admission.is_empty()
            || !self.waiting.is_empty()
            || !self.waiting_seals.is_empty();
        if !yields || piled_up || wanted {
            return self.settings.writes_max;
        }
        // A journal that stands still may wait for a checkpoint, which waits for data.
        let goes_on = self.journal_log.in_flight() || self.journal.round.is_some();
        usize::from(!goes_on || self.journal_log.since_data * FOLD_PACE >= self.data_log.newest_bytes)
    }

    /// How many of the next records, of the first `placed`, lie one behind the other and fit one write, and their bytes.
    fn next_write(&self, placed: usize) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0);
        let mut expected = None;
        for record in self.data_log.pending.iter().take(placed).skip(self.data_log.submitted) {
            let header = &record.header;
            let size = header.blocks() as usize * BLOCK;
            let place = (header.segment, header.block);
            if count > 0 && (expected != Some(place) || bytes + size > WRITE_MAX) {
                break;
            }
            count += 1;
            bytes += size;
            expected = Some((header.segment, header.block + header.blocks()));
        }
        (count, bytes)
    }

    fn submit_write(&mut self, records: usize, bytes: usize) {
        let mut parts = Vec::with_capacity(records * 3);
        let mut place = None;
        for record in self.data_log.pending.iter_mut().skip(self.data_log.submitted).take(records) {
            let header = &mut record.header;
            (header.durable_data, header.durable_journal) = (self.data.durable, self.journal.durable);
            let mut block = self.settings.pool.take(BLOCK);
            header.encode(self.device, &mut block);
            parts.push(block.freeze());
            parts.extend(record.parts.iter().cloned());
            place.get_or_insert((header.segment, header.block));
        }
        let Some((segment, block)) = place else { return };
        let offset = u64::from(block) * BLOCK as u64;
        let token = self.start(Purpose::DataWrite, Op::Write { file: data_file(segment), offset, parts });
        self.data_log.writes.push_back(DataWrite { token, records, ended: None });
        self.data_log.submitted += records;
        self.data_log.bytes_ahead -= bytes;
        self.data_log.written_bytes += bytes as u64;
        self.data_log.newest_bytes = bytes as u64;
        self.journal_log.since_data = 0;
    }

    /// A data write ended.
    pub fn data_written(&mut self, token: u64, result: std::result::Result<(), DiskError>) {
        if let Some(write) = self.data_log.writes.iter_mut().find(|write| write.token == token) {
            write.ended = Some(result.is_ok());
        }
        // Writes that were in flight when another one failed may have failed for the same cause: those are no second failure.
        let again = self.data_log.repair.as_ref().is_none_or(|repair| repair.begun);
        match result {
            Err(error) if again || self.settings.planted == Some(Planted::StrikePerWrite) => {
                self.data_log.repair = Some(Repair { begun: false, moved: 0, since: self.now });
                match self.data_log.strike.take() {
                    None => self.data_log.strike = Some(error),
                    Some(first) => return self.fail_to_write("", &first, &error),
                }
            }
            // Room alone does not mend the disk.
            Err(error) if error != DiskError::NoSpace => self.data_log.strike = Some(error),
            _ => {}
        }
        while self.data_log.writes.front().is_some_and(|write| write.ended == Some(true)) {
            let Some(write) = self.data_log.writes.pop_front() else { break };
            self.data_log.submitted -= write.records;
            for _ in 0..write.records {
                let Some(record) = self.data_log.pending.pop_front() else { break };
                self.data.written = record.header.sequence;
                self.data.unsynced_bytes += u64::from(record.header.length);
                self.data.unsynced_since.get_or_insert(self.now);
                self.data.dirty.insert(data_file(record.header.segment));
                self.index_record(&record);
            }
            match &mut self.data_log.repair {
                None => self.data_log.strike = None,
                Some(repair) if repair.begun => {
                    repair.moved -= write.records;
                    self.data_log.strike = None;
                }
                Some(_) => {}
            }
        }
        self.marks_moved();
    }

    /// A written record becomes a run of its chunk, or dead space if the chunk is gone.
    fn index_record(&mut self, record: &PendingRecord) {
        let header = &record.header;
        let (id, run) = (header.chunk, header.run());
        if !self.index.record_written(id, record.birth, run) {
            self.bury(&[run]);
            return;
        }
        if self.index.is_covered(id, &run) {
            let runs = self.index.release(id, run.offset, run.end());
            self.bury(&runs);
        }
    }

    /// After a failed write: when nothing is in flight, everything pending gets a place in fresh segments, as much at a time as
    /// those that are there hold, and is written again. The sequence numbers stay, so recovery takes each record once (`recover`).
    fn repair_data(&mut self) {
        let Some(repair) = &self.data_log.repair else { return };
        let mut moved = repair.moved;
        if !repair.begun {
            let in_flight = self.data_log.writes.iter().any(|write| write.ended.is_none());
            if in_flight || self.settings.planted == Some(Planted::RepairInOnePiece) && !self.spare_holds_pending() {
                return;
            }
            // Its snapshot names places that change now. No other one begins before all of them have.
            self.abandon_checkpoint();
            self.close_current_data();
            self.data_log.writes.clear();
            self.data_log.submitted = 0;
            let bytes = self.data_log.pending.iter().map(|record| record.header.blocks() as usize * BLOCK);
            self.data_log.bytes_ahead = bytes.sum();
            moved = 0;
        }
        while let Some(record) = self.data_log.pending.get(moved)
            && self.fits(record.header.blocks())
        {
            self.move_record(moved);
            moved += 1;
        }
        let all = moved == self.data_log.pending.len();
        if let Some(repair) = &mut self.data_log.repair {
            let since = if moved > repair.moved { self.now } else { repair.since };
            *repair = Repair { begun: true, moved, since };
        }
        if all {
            self.data_log.repair = None;
        }
    }

    /// Gives a pending record another place.
    fn move_record(&mut self, place: usize) {
        let header = &self.data_log.pending[place].header;
        let (segment, block, blocks) = (header.segment, header.block, header.blocks());
        self.space.kill(segment, block, blocks, self.journal.last);
        let (segment, block, incarnation) = self.allocate(blocks);
        let record = &mut self.data_log.pending[place];
        (record.header.segment, record.header.block, record.header.incarnation) = (segment, block, incarnation);
        let (id, birth, run) = (record.header.chunk, record.birth, record.header.run());
        self.index.record_moved(id, birth, run);
    }

    fn spare_holds_pending(&self) -> bool {
        let blocks: u64 = self.data_log.pending.iter().map(|record| u64::from(record.header.blocks())).sum();
        self.space.spare.is_some() && blocks <= self.settings.data_segment / BLOCK as u64
    }

    /// A data write failed and records wait for a place in a fresh segment.
    pub fn needs_fresh_segment(&self) -> bool {
        self.data_log.repair.is_some()
    }

    /// When the device leaves service because no segment comes for what failed to be written.
    pub fn repair_ends(&self) -> Option<Time> {
        let repair = self.data_log.repair.as_ref().filter(|repair| repair.begun && self.failed.is_none())?;
        Some(repair.since.max(self.space.came_back).after(FULL_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use crate::core::{Core, Parked};
    use crate::format::Record;
    use crate::request::{Reply, Request};
    use crate::settings::Settings;
    use base::buffer::Pool;
    use base::id::{BagId, ChunkId, DeviceId, Generation};
    use base::policy::Level;
    use base::unit::{MIB, Time};
    use sim::disk::{SimDevice, SimFaults};

    fn core() -> Core {
        let settings = Settings::for_capacity(256 * MIB, Pool::new(8 << 20));
        let mut disk = SimDevice::new(1, SimFaults::default()).attach();
        match crate::recover::open(&mut disk, settings, DeviceId(1), Time::ZERO) {
            Ok((core, _)) => core,
            Err(error) => panic!("{error}"),
        }
    }

    /// Folded tails leave the disk to a journal that somebody waits for, as long as nobody waits for them.
    #[test]
    fn folds_go_at_the_journals_pace() {
        let mut core = core();
        let most = core.settings.writes_max;
        assert_eq!(core.data_writes_max(), most);
        core.record(Record::SealBag { bag: BagId(1), epoch: 1 });
        core.reply_at(Level::Synced, [0, core.journal.last], 1, Reply::Done);
        core.data_log.newest_bytes = MIB;
        assert_eq!(core.data_writes_max(), 1, "the journal stands still");
        core.write_journal();
        assert_eq!(core.data_writes_max(), 0);
        core.journal_log.since_data = MIB / 2;
        assert_eq!(core.data_writes_max(), 1);
        let (chunk, generation) = (ChunkId(1), Generation(1));
        let request = || Request::Seal { chunk, generation, length: 0 };
        let parked = || Parked { since: Time::ZERO, ticket: 2, request: request() };
        core.waiting.push_back(parked());
        assert_eq!(core.data_writes_max(), most);
        core.waiting.clear();
        core.waiting_seals.push_back(parked());
        assert_eq!(core.data_writes_max(), most);
        core.waiting_seals.clear();
        core.admission.push(chunk, parked());
        assert_eq!(core.data_writes_max(), most);
        core.admission.give_up();
        core.data_log.bytes_ahead = core.settings.tails_max as usize + 1;
        assert_eq!(core.data_writes_max(), most);
        core.data_log.bytes_ahead = 0;
        assert_eq!(core.data_writes_max(), 1);
        core.reply_at(Level::Synced, [core.data.last + 1, 0], 3, Reply::Done);
        assert_eq!(core.data_writes_max(), most);
    }
}
