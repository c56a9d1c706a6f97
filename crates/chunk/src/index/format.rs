//! How the index becomes the body of a checkpoint, and back.

use super::{Chunk, Index, Open, Recent, Run};
use crate::format::{Reader, put_owner};
use crate::request::BagStat;
use base::checksum::crc32c;
use base::id::{BagId, Generation};
use base::limit::{BLOCK, RECORD_PAYLOAD_MAX};

impl Index {
    /// The body of a checkpoint: only what is durable, so unjournaled tail bytes are left out.
    /// ```text
    /// count 8 of chunks, each: id 16 | owner 12 | generation 8 | sealed 4 | length 4 | crc 4 (open: of the flushed bytes)
    ///   | tail bytes 4 | tail | count 4 of runs, each offset 4, segment 4, block 4, length 4 | count 4 of released, each start 4, end 4
    /// count 8 of bags, each: id 8 | pushed 8, bytes 8 | acknowledged 8, bytes 8
    ///   | flags 4 (1: sealed, 2: retains) | pass 4 | epoch 8
    /// count 8 of acknowledgements, oldest first, each: chunk 16 | grant 8 | length 4
    /// count 8 of data segments, each: number 4 | incarnation 8
    /// ```
    pub fn encode(&self, segments: &[(u32, u64)]) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.chunks.len() * 96);
        out.extend_from_slice(&(self.chunks.len() as u64).to_le_bytes());
        for (id, chunk) in &self.chunks {
            out.extend_from_slice(&id.to_bytes());
            put_owner(&mut out, chunk.owner);
            out.extend_from_slice(&chunk.generation.0.to_le_bytes());
            let open = if chunk.sealed { None } else { self.open.get(id) };
            let tail = open.map_or(&[][..], |open| {
                &open.tail[..(open.journaled.saturating_sub(open.flushed) as usize).min(open.tail.len())]
            });
            let (length, crc) = open.map_or((chunk.length, chunk.crc), |open| (open.flushed, open.flushed_crc));
            for value in [u32::from(chunk.sealed), length + tail.len() as u32, crc, tail.len() as u32] {
                out.extend_from_slice(&value.to_le_bytes());
            }
            out.extend_from_slice(tail);
            out.extend_from_slice(&(chunk.runs.len() as u32).to_le_bytes());
            for run in &chunk.runs {
                for value in [run.offset, run.segment, run.block, run.length] {
                    out.extend_from_slice(&value.to_le_bytes());
                }
            }
            let released = self.released.get(id).map_or(&[][..], |ranges| ranges);
            out.extend_from_slice(&(released.len() as u32).to_le_bytes());
            for (start, end) in released {
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(&end.to_le_bytes());
            }
        }
        out.extend_from_slice(&(self.bags.len() as u64).to_le_bytes());
        for (bag, stat) in &self.bags {
            let flags =
                u64::from(stat.sealed_epoch.is_some()) | u64::from(stat.retain) << 1 | u64::from(stat.pass) << 32;
            let counts = [stat.pushed, stat.pushed_bytes, stat.acknowledged, stat.acknowledged_bytes];
            for value in [bag.0].into_iter().chain(counts).chain([flags, stat.sealed_epoch.unwrap_or(0)]) {
                out.extend_from_slice(&value.to_le_bytes());
            }
        }
        out.extend_from_slice(&(self.recent_order.len() as u64).to_le_bytes());
        for (id, recent) in self.recent_order.iter().filter_map(|id| Some((id, self.recent.get(id)?))) {
            out.extend_from_slice(&id.to_bytes());
            out.extend_from_slice(&recent.grant.to_le_bytes());
            out.extend_from_slice(&recent.length.to_le_bytes());
        }
        out.extend_from_slice(&(segments.len() as u64).to_le_bytes());
        for (number, incarnation) in segments {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&incarnation.to_le_bytes());
        }
        out
    }

    /// The index in a checkpoint's body, and the data segments with their incarnations. `None` if it cannot be read.
    pub fn decode(body: &[u8]) -> Option<(Index, Vec<(u32, u64)>)> {
        let mut reader = Reader(body);
        let mut index = Index::default();
        for _ in 0..reader.eight()? {
            index.decode_chunk(&mut reader)?;
        }
        for _ in 0..reader.eight()? {
            let bag = BagId(reader.eight()?);
            let mut stat = BagStat {
                pushed: reader.eight()?,
                pushed_bytes: reader.eight()?,
                acknowledged: reader.eight()?,
                acknowledged_bytes: reader.eight()?,
                ..BagStat::default()
            };
            let (flags, epoch) = (reader.eight()?, reader.eight()?);
            stat.sealed_epoch = (flags & 1 == 1).then_some(epoch);
            (stat.retain, stat.pass) = (flags & 2 == 2, (flags >> 32) as u32);
            index.bags.insert(bag, stat);
        }
        for _ in 0..reader.eight()? {
            let chunk = reader.chunk()?;
            index.remember(chunk, Recent { grant: reader.eight()?, length: reader.four()? });
        }
        let mut segments = Vec::new();
        for _ in 0..reader.eight()? {
            segments.push((reader.four()?, reader.eight()?));
        }
        reader.0.is_empty().then_some((index, segments))
    }

    fn decode_chunk(&mut self, reader: &mut Reader<'_>) -> Option<()> {
        let (id, owner, generation) = (reader.chunk()?, reader.owner()?, Generation(reader.eight()?));
        let (sealed, length, crc) = (reader.four()? == 1, reader.four()?, reader.four()?);
        let tail_length = reader.four()?;
        let tail = reader.take(tail_length as usize)?;
        let mut runs = Vec::new();
        let mut end = 0u32;
        for _ in 0..reader.four()? {
            let run =
                Run { offset: reader.four()?, segment: reader.four()?, block: reader.four()?, length: reader.four()? };
            if run.length as usize > RECORD_PAYLOAD_MAX || run.offset < end {
                return None;
            }
            end = run.offset.checked_add(run.length)?;
            run.block.checked_add(1 + run.length.div_ceil(BLOCK as u32))?;
            runs.push(run);
        }
        let flushed = length.checked_sub(tail_length)?;
        if end > flushed || u64::from(length) > base::limit::CHUNK_MAX {
            return None;
        }
        let mut released = Vec::new();
        for _ in 0..reader.four()? {
            released.push((reader.four()?, reader.four()?));
        }
        if !released.is_empty() {
            self.released.insert(id, released);
        }
        if !sealed {
            let (tail, tail_crc) = (tail.to_vec(), crc32c(tail));
            self.tails += tail.len() as u64;
            self.open
                .insert(id, Open { flushed, flushed_crc: crc, tail, tail_crc, journaled: length, ..Open::default() });
        }
        self.live = self.live.checked_add(u64::from(length))?;
        self.chunks.insert(id, Chunk { owner, generation, length, crc, sealed, runs });
        Some(())
    }
}
