//! Reads: which bytes lie where, fetched with few operations, verified block by block, sliced without copying.

use crate::append::missing;
use crate::core::{Core, Purpose, data_file};
use crate::format::DataHeader;
use crate::index::Run;
use crate::request::{Cell, Check, Reply};
use base::buffer::Buffer;
use base::checksum::{combine, crc32c};
use base::disk::{Caching, DiskError, Op};
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use base::limit::BLOCK;
use base::version::{ProgramVersion, newer};
use bytes::Bytes;

/// Up to so many blocks before the wanted ones are read along to save an operation (64 KiB: less than a seek costs).
const SKIP_MAX: u32 = 16;
/// Largest single read: a bag chunk of 4 MiB with its headers in one operation.
const STEP_MAX: u32 = 1028;

/// So many of the last steps are looked at for the same blocks.
const SAME_MAX: usize = 64;

/// A read under way.
pub(crate) struct Reading {
    ticket: u64,
    chunk: ChunkId,
    pieces: Vec<Piece>,
    steps: Vec<Step>,
    left: usize,
    chunk_length: u64,
    sealed: bool,
    check: Check,
    /// Who asked takes cells.
    takes_cells: bool,
    /// Those in the answer.
    cells: Vec<Cell>,
    /// The bytes did not match once; the second time is the last.
    again: bool,
    /// What the disk said when it could not read.
    refused: Option<String>,
    /// `Core::least`.
    least: ProgramVersion,
}

/// Why there is no answer to a reading.
enum Unread {
    /// These bytes of the chunk do not match.
    Damaged(u32, u32),
    /// A record says what only a newer program knows.
    Newer(Error),
}

/// Consecutive bytes of the answer.
enum Piece {
    Memory(Bytes),
    /// Bytes `start..end` of a record's payload, from these steps: one that holds the header, one that holds the blocks.
    Record {
        run: Run,
        start: u32,
        end: u32,
        header_step: usize,
        blocks_step: usize,
    },
}

/// One disk read: so many blocks of a segment.
struct Step {
    segment: u32,
    block: u32,
    blocks: u32,
    caching: Caching,
    bytes: Option<Bytes>,
}

impl Core {
    /// Handles a read.
    pub fn read(
        &mut self,
        ticket: u64,
        id: ChunkId,
        ranges: &[(u64, u64)],
        (caching, check, takes_cells): (Caching, Check, bool),
    ) {
        let Some(chunk) = self.index.chunks.get(&id) else {
            self.reply(ticket, Err(missing(id)));
            return;
        };
        // On a device that takes nothing any more every chunk stays as it is: its writer may have gone on elsewhere.
        let (chunk_length, sealed) = (u64::from(chunk.length), chunk.sealed || self.failed.is_some());
        let mut reading =
            Reading { least: self.least, ..Reading::new(ticket, id, (chunk_length, sealed), (check, takes_cells)) };
        for (offset, length) in ranges {
            let start = (*offset).min(chunk_length) as u32;
            let end = offset.saturating_add(*length).min(chunk_length) as u32;
            if let Err(error) = self.plan(&mut reading, id, (start, end), caching) {
                self.reply(ticket, Err(error));
                return;
            }
        }
        self.start_reading(ticket, reading);
    }

    /// Bytes that would be held for a read of these ranges: of the blocks that would be read, and of what is in memory. One range alone
    /// is not planned: it costs its records' headers and the blocks before its first byte at the most.
    pub fn planned_bytes(&self, id: ChunkId, ranges: &[(u64, u64)], answer: u64) -> u64 {
        let skipped = u64::from(SKIP_MAX + 2) * BLOCK as u64;
        let Some(chunk) = self.index.chunks.get(&id).filter(|_| ranges.len() > 1) else {
            return answer.saturating_add(skipped);
        };
        let length = u64::from(chunk.length);
        let mut reading = Reading::new(0, id, (length, chunk.sealed), (Check::Here, true));
        for (offset, asked) in ranges {
            let (start, end) = ((*offset).min(length) as u32, offset.saturating_add(*asked).min(length) as u32);
            // What cannot be read is said when it is read; nothing is held for it.
            if self.plan(&mut reading, id, (start, end), Caching::Around).is_err() {
                break;
            }
        }
        let blocks = reading.steps.iter().fold(0, |sum, step| sum + u64::from(step.blocks));
        let memory = reading.pieces.iter().map(|piece| match piece {
            Piece::Memory(bytes) => bytes.len() as u64,
            Piece::Record { .. } => 0,
        });
        (blocks * BLOCK as u64).saturating_add(memory.sum())
    }

    fn start_reading(&mut self, key: u64, mut reading: Reading) {
        reading.left = reading.steps.len();
        for (place, step) in reading.steps.iter().enumerate() {
            if let Some(segment) = self.space.segments.get_mut(&step.segment) {
                segment.readers += 1;
            }
            let offset = u64::from(step.block) * BLOCK as u64;
            let length = step.blocks as usize * BLOCK;
            let op = Op::Read { file: data_file(step.segment), offset, length, caching: step.caching };
            self.start(Purpose::Read(key, place), op);
        }
        if reading.steps.is_empty() {
            self.finish_reading(reading);
        } else {
            self.readings.insert(key, reading);
        }
    }

    /// Adds the pieces of one range.
    fn plan(&self, reading: &mut Reading, id: ChunkId, range: (u32, u32), caching: Caching) -> Result<()> {
        let (mut at, end) = range;
        if at < end && self.index.is_released(id, at, end) {
            let text =
                format!("bytes {at}..{end} of chunk {id} were released by their owner; they cannot be read any more");
            return Err(Error::new(ErrorKind::NotFound, text));
        }
        let Some(chunk) = self.index.chunks.get(&id) else { return Err(missing(id)) };
        while at < end {
            let place = chunk.runs.partition_point(|run| run.end() <= at);
            let next = match chunk.runs.get(place) {
                Some(run) if run.offset <= at && run.cell() > 0 => {
                    reading.add_cell(id, run)?;
                    reading.add_record(*run, 0, run.stored(), caching);
                    run.end().min(end)
                }
                Some(run) if run.offset <= at => {
                    let stop = run.end().min(end);
                    reading.add_record(*run, at - run.offset, stop - run.offset, caching);
                    stop
                }
                _ => self.plan_memory(reading, id, at, end)?,
            };
            at = next;
        }
        Ok(())
    }

    /// Bytes that are in no written record: of one on its way, or of the tail. Returns where they end.
    fn plan_memory(&self, reading: &mut Reading, id: ChunkId, at: u32, end: u32) -> Result<u32> {
        let lost =
            || Error::new(ErrorKind::Corrupt, format!("bytes from {at} of chunk {id} are lost; read another copy"));
        let open = self.index.open.get(&id).ok_or_else(lost)?;
        if at >= open.flushed {
            let tail = open.tail.get((at - open.flushed) as usize..(end - open.flushed) as usize).ok_or_else(lost)?;
            reading.pieces.push(Piece::Memory(Bytes::copy_from_slice(tail)));
            return Ok(end);
        }
        let record = self.data_log.find(id, open.birth, at).ok_or_else(lost)?;
        let stop = record.header.end().min(end);
        let (mut from, mut to) = ((at - record.header.offset) as usize, (stop - record.header.offset) as usize);
        if record.header.cell > 0 {
            reading.add_cell(id, &record.header.run())?;
            (from, to) = (0, record.header.length as usize);
        }
        let mut start = 0;
        for part in &record.parts {
            let stop = (start + part.len()).min(to);
            if from < stop {
                reading.pieces.push(Piece::Memory(part.slice(from - start..stop - start)));
                from = stop;
            }
            start += part.len();
        }
        Ok(stop)
    }

    /// A disk read of a reading ended.
    pub fn read_done(&mut self, key: u64, place: usize, result: std::result::Result<Buffer, DiskError>) {
        let Some(reading) = self.readings.get_mut(&key) else { return };
        let step = &mut reading.steps[place];
        if let Some(segment) = self.space.segments.get_mut(&step.segment) {
            segment.readers = segment.readers.saturating_sub(1);
            self.space.due = true;
        }
        let mut refused = None;
        step.bytes = Some(match result {
            Ok(buffer) => buffer.freeze(),
            // Missing bytes fail verification, are read once more, and then reported.
            Err(error) => {
                refused = Some(error.to_string());
                Bytes::new()
            }
        });
        if refused.is_some() {
            reading.refused = refused;
        }
        reading.left -= 1;
        if reading.left == 0
            && let Some(reading) = self.readings.remove(&key)
        {
            self.finish_reading(reading);
        }
    }

    /// Verifies what was read and answers; damage is read once more before it is believed.
    fn finish_reading(&mut self, mut reading: Reading) {
        let (ticket, id) = (reading.ticket, reading.chunk);
        match reading.assemble(self.device) {
            Ok((parts, Sums { whole: crc, blocks, .. })) => {
                let Reading { chunk_length, sealed, cells, .. } = reading;
                self.reply(ticket, Ok(Reply::Data { parts, crc, blocks, cells, chunk_length, sealed }));
            }
            Err(Unread::Newer(error)) if self.index.chunks.contains_key(&id) => self.reply(ticket, Err(error)),
            // The record's place may have changed hands only if the chunk is gone by now.
            Err(_) if !self.index.chunks.contains_key(&id) => self.reply(ticket, Err(missing(id))),
            Err(_) if !reading.again => {
                (reading.again, reading.refused) = (true, None);
                for step in &mut reading.steps {
                    step.bytes = None;
                    step.caching = Caching::Around;
                }
                self.start_reading(ticket, reading);
            }
            Err(Unread::Newer(error)) => self.reply(ticket, Err(error)),
            Err(Unread::Damaged(start, end)) => {
                self.damaged.insert(id);
                if let Some(refused) = reading.refused {
                    let text = format!(
                        "bytes {start}..{end} of chunk {id} on device {} cannot be read: {refused}; everything else is served; \
                         restore these bytes, and replace the disk if it happens again",
                        self.device
                    );
                    self.reply(ticket, Err(Error::new(ErrorKind::Io, text)));
                    return;
                }
                let text = format!(
                    "bytes {start}..{end} of chunk {id} on device {} do not match their checksum and were not served; read another copy or restore them",
                    self.device
                );
                self.reply(ticket, Err(Error::new(ErrorKind::Corrupt, text)));
            }
        }
    }
}

impl Reading {
    fn new(
        ticket: u64,
        chunk: ChunkId,
        (chunk_length, sealed): (u64, bool),
        (check, takes_cells): (Check, bool),
    ) -> Reading {
        let (pieces, steps, cells) = (Vec::new(), Vec::new(), Vec::new());
        let (left, again, refused) = (0, false, None);
        Reading {
            ticket,
            chunk,
            pieces,
            steps,
            left,
            chunk_length,
            sealed,
            check,
            takes_cells,
            cells,
            again,
            refused,
            least: ProgramVersion::default(),
        }
    }

    /// What comes next in the answer is a cell.
    fn add_cell(&mut self, id: ChunkId, run: &Run) -> Result<()> {
        if !self.takes_cells {
            let text = format!(
                "bytes {}..{} of chunk {id} are compressed, and this program does not know how to read them; they are safe; use a newer version of it",
                run.offset,
                run.end()
            );
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let (offset, length, stored) = (run.offset.into(), run.length().into(), run.stored().into());
        self.cells.push(Cell { offset, length, stored });
        Ok(())
    }

    /// Plans payload bytes `start..end` of a record, joined to the last step where they follow on, and without one where a step reads
    /// the same blocks already.
    fn add_record(&mut self, run: Run, start: u32, end: u32, caching: Caching) {
        let (first, last) = (start / BLOCK as u32, (end - 1) / BLOCK as u32);
        let mut want = |block: u32, blocks: u32| {
            let steps = &mut self.steps;
            let holds = |step: &Step| {
                step.segment == run.segment && step.block <= block && block + blocks <= step.block + step.blocks
            };
            if let Some(back) = steps.iter().rev().take(SAME_MAX).position(holds) {
                return steps.len() - 1 - back;
            }
            if let Some(step) = steps.last_mut()
                && step.segment == run.segment
                && step.block + step.blocks == block
                && step.blocks + blocks <= STEP_MAX
            {
                step.blocks += blocks;
            } else {
                steps.push(Step { segment: run.segment, block, blocks, caching, bytes: None });
            }
            steps.len() - 1
        };
        let (header_step, blocks_step) = if first <= SKIP_MAX {
            let step = want(run.block, 2 + last);
            (step, step)
        } else {
            (want(run.block, 1), want(run.block + 1 + first, last - first + 1))
        };
        self.pieces.push(Piece::Record { run, start, end, header_step, blocks_step });
    }

    /// The parts of the answer and their checksums, or why there are none.
    fn assemble(&self, device: base::id::DeviceId) -> std::result::Result<(Vec<Bytes>, Sums), Unread> {
        let mut parts = Vec::with_capacity(self.pieces.len());
        let uneven = self.check != Check::ByBlocks || !self.cells.is_empty();
        let mut sums = Sums { uneven, ..Sums::default() };
        for piece in &self.pieces {
            parts.push(match piece {
                Piece::Memory(bytes) => {
                    sums.add_bytes(bytes);
                    bytes.clone()
                }
                Piece::Record { run, start, end, header_step, blocks_step } => {
                    let damage =
                        if run.cell() > 0 { (run.offset, run.end()) } else { (run.offset + start, run.offset + end) };
                    let damaged = || Unread::Damaged(damage.0, damage.1);
                    let header = self.header(device, run, &self.steps[*header_step]).ok_or_else(damaged)?;
                    if header.newer != 0 {
                        let (chunk, flags) = (self.chunk, header.newer);
                        let text = format!("a record of chunk {chunk} on device {device} has the flags {flags:#x}");
                        return Err(Unread::Newer(newer(text, self.least)));
                    }
                    let blocks = &self.steps[*blocks_step];
                    self.verify(&header, run, (*start, *end), blocks, &mut sums).ok_or_else(damaged)?
                }
            });
        }
        Ok((parts, sums))
    }

    /// The header of a record, if it is there and is this record's.
    fn header(&self, device: base::id::DeviceId, run: &Run, step: &Step) -> Option<DataHeader> {
        let header = DataHeader::decode(device, &step.blocks_at(run.block, BLOCK)?)?;
        (header.chunk == self.chunk && header.run() == *run).then_some(header)
    }

    /// Payload bytes `start..end` of the record, if the blocks are what its header says (`Check`). Adds their checksums.
    fn verify(
        &self,
        header: &DataHeader,
        run: &Run,
        (start, end): (u32, u32),
        blocks_step: &Step,
        sums: &mut Sums,
    ) -> Option<Bytes> {
        let first = start / BLOCK as u32;
        let payload_end = (end.next_multiple_of(BLOCK as u32)).min(run.stored());
        let covered = (payload_end - first * BLOCK as u32) as usize;
        let blocks = blocks_step.blocks_at(run.block + 1 + first, covered)?;
        for (place, block) in blocks.chunks(BLOCK).enumerate() {
            let crc = *header.crcs.get(first as usize + place)?;
            let block_start = (first as usize + place) * BLOCK;
            let from = (start as usize).saturating_sub(block_start);
            let to = (end as usize - block_start).min(block.len());
            let whole_block = from == 0 && to == block.len();
            if (self.check == Check::Here || !whole_block) && crc32c(block) != crc {
                return None;
            }
            let crc = if whole_block { crc } else { crc32c(&block[from..to]) };
            sums.add(crc, to - from);
        }
        let skip = (start - first * BLOCK as u32) as usize;
        Some(blocks.slice(skip..skip + (end - start) as usize))
    }
}

/// Checksums of an answer, put together from those of its parts.
#[derive(Default)]
struct Sums {
    whole: u32,
    /// Of each block of the answer.
    blocks: Vec<u32>,
    length: usize,
    /// A part lies in two of the answer's blocks, or nobody wants to know theirs.
    uneven: bool,
}

impl Sums {
    /// The next `length` bytes, at most a block, have this checksum.
    fn add(&mut self, crc: u32, length: usize) {
        let begun = self.length % BLOCK;
        self.uneven |= begun + length > BLOCK;
        match self.blocks.last_mut() {
            _ if self.uneven => self.blocks = Vec::new(),
            Some(last) if begun > 0 => *last = combine(*last, crc, length as u64),
            _ => self.blocks.push(crc),
        }
        self.whole = combine(self.whole, crc, length as u64);
        self.length += length;
    }

    /// Computes those of the next bytes.
    fn add_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(BLOCK - self.length % BLOCK));
            self.add(crc32c(part), part.len());
            bytes = rest;
        }
    }
}

impl Step {
    /// `length` bytes from this block of the segment on, if all of them were read.
    fn blocks_at(&self, block: u32, length: usize) -> Option<Bytes> {
        let bytes = self.bytes.as_ref()?;
        let start = block.checked_sub(self.block)? as usize * BLOCK;
        (start + length <= bytes.len()).then(|| bytes.slice(start..start + length))
    }
}
