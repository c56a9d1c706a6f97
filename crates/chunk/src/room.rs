//! Room for data records: for what an append makes at once, and for the tails of all chunks, which are folded into records later, one
//! record at a time.

use crate::append::Append;
use crate::core::Core;
use crate::format::record_blocks;
use crate::piece::{Way, pieces, record_max, tail_blocks};
use base::id::ChunkId;
use base::limit::{BLOCK, RECORD_PAYLOAD_MIN};
use bytes::Bytes;

impl Core {
    /// Where an append's bytes go, beside the tail that is there.
    pub fn way(&self, append: &Append, payload: usize) -> Way {
        let open = self.index.open.get(&append.chunk);
        let (tail, small) = open.map_or((0, false), |open| (open.tail.len(), open.small_records));
        if append.cell > 0 {
            Way::Cell
        } else if payload >= RECORD_PAYLOAD_MIN || append.seal && payload > 0 {
            Way::Records
        } else {
            let most = record_max(append.small_parts || small);
            Way::Tail { folds: tail > 0 && payload > 0 && tail + payload > most }
        }
    }

    /// Payload that begins at a block's bound behind the tail keeps its checksums, and what is behind it its place on the bounds, if it is much.
    pub fn stays_apart(&self, id: ChunkId, payload: usize) -> bool {
        let behind = self.index.open.get(&id).map_or(0, |open| open.flushed as usize + open.tail.len());
        payload >= RECORD_PAYLOAD_MIN && behind.is_multiple_of(BLOCK)
    }

    /// Whether the data records that this append makes now have room, and those of all tails behind them.
    pub fn room_for_append(&self, append: &Append, payload: usize) -> bool {
        if payload == 0 && !append.seal {
            return true;
        }
        let open = self.index.open.get(&append.chunk);
        let (tail, was_small) = open.map_or((0, false), |open| (open.tail.len(), open.small_records));
        let record_max_before = record_max(was_small);
        let record_max = record_max(append.small_parts || was_small);
        let blocks = |(of_tail, of_payload): (usize, usize)| record_blocks((of_tail + of_payload) as u32);
        let tail_alone = || pieces(tail, 0, record_max, false).map(blocks);
        let (records, tail_then): (Vec<u32>, usize) = match self.way(append, payload) {
            Way::Cell => (tail_alone().chain([record_blocks(payload as u32)]).collect(), 0),
            Way::Records => {
                let apart = self.stays_apart(append.chunk, payload);
                (pieces(tail, payload, record_max, apart).map(blocks).collect(), 0)
            }
            Way::Tail { folds: true } => (tail_alone().collect(), payload),
            Way::Tail { folds: false } if append.seal => (tail_alone().collect(), 0),
            Way::Tail { folds: false } => (Vec::new(), tail + payload),
        };
        // The end of what is there takes what was counted for it already, whatever else has lost its place meanwhile.
        if payload == 0 {
            return self.has_room(&records, 0);
        }
        let others = self.index.tail_blocks - tail_blocks(tail, record_max_before);
        self.has_room(&records, others + tail_blocks(tail_then, record_max))
    }

    /// Puts the first bytes of a chunk's tail, as many as one record takes, into one. False: it has no room now.
    fn fold_record(&mut self, id: ChunkId) -> bool {
        let Some(open) = self.index.open.get(&id) else { return false };
        let length = open.tail.len().min(record_max(open.small_records));
        if !self.has_room(&[record_blocks(length as u32)], 0) {
            return false;
        }
        let first = self.index.take_tail(id, length);
        let first = self.joined(&first, &[]);
        self.put_record(id, (&first, length, 0), Vec::new(), false);
        true
    }

    /// Folds a record's bytes of the oldest tail. False: there is none, or it has no room now.
    fn fold_oldest(&mut self) -> bool {
        while let Some((id, birth)) = self.tail_order.front().copied() {
            let tail = |core: &Core| {
                core.index.open.get(&id).filter(|open| open.birth == birth).map_or(0, |open| open.tail.len())
            };
            let folded = tail(self) > 0 && self.fold_record(id);
            if tail(self) > 0 {
                return folded;
            }
            self.tail_order.pop_front();
            if folded {
                return true;
            }
        }
        false
    }

    /// Folds the oldest tails into data records while all of them take more memory than they may, or so much room that an append might have to wait
    /// for it: behind a current segment that is full there may be a spare one and no more.
    pub fn fold_oldest_tails(&mut self) {
        let most = self.settings.data_segment / BLOCK as u64 / 4 * 3;
        while (self.index.tails > self.settings.tails_max || self.index.tail_blocks > most) && self.fold_oldest() {}
    }

    /// Folds the beginning of a tail that is longer than a record, until its rest is one. False: it has no room now, or the rest has none.
    pub fn fold_to_last(&mut self, id: ChunkId) -> bool {
        while let Some(open) = self.index.open.get(&id) {
            let (tail, most) = (open.tail.len(), record_max(open.small_records));
            if tail <= most {
                return tail == 0 || self.has_room(&[record_blocks(tail as u32)], 0);
            }
            if !self.fold_record(id) {
                return false;
            }
        }
        true
    }

    /// Folds what is too long of the tails that were found when the device was opened: the memory, the checkpoints and the next opening have less of it.
    pub fn fold_long_tails(&mut self) {
        while let Some(id) = self.long_tails.front().copied() {
            if !self.fold_to_last(id) {
                return;
            }
            self.long_tails.pop_front();
        }
    }

    /// Seals the chunks again whose end was passed over while the device was read (`Index::passed_over`), as if the end came now. While it is being
    /// opened nobody has seen them open; after that it may be too late, so what finds no room then stays open. Nor is one ended that somebody went
    /// on with or took over: whoever did knows that it is open.
    pub fn seal_again(&mut self) {
        while let Some((id, (generation, length))) =
            self.index.passed_over.first_key_value().map(|(id, end)| (*id, *end))
        {
            let is_as_it_was = (self.index.chunks.get(&id))
                .is_some_and(|chunk| !chunk.sealed && chunk.length == length && chunk.generation <= generation);
            if is_as_it_was {
                if !self.fold_to_last(id) {
                    return;
                }
                if let Some(chunk) = self.index.chunk_mut(id) {
                    chunk.generation = generation;
                }
                self.finish(id);
            }
            self.index.passed_over.remove(&id);
        }
    }

    /// Does something so that the append that waits longest finds room: tails that are in its way get the places that were kept for them, until the
    /// spare segment is in use and another one can be made. True: it may fit now.
    pub fn make_way(&mut self) -> bool {
        self.space.spare.is_some() && !self.needs_fresh_segment() && (self.fold_oldest() || self.leave_current_data())
    }

    /// A buffer with the bytes of both, padded with zeros to whole blocks.
    pub fn joined(&self, first: &[u8], second: &[u8]) -> Bytes {
        let length = first.len() + second.len();
        let mut joined = self.settings.pool.take(length.next_multiple_of(BLOCK));
        joined[..first.len()].copy_from_slice(first);
        joined[first.len()..length].copy_from_slice(second);
        joined[length..].fill(0);
        joined.freeze()
    }
}

#[cfg(test)]
mod tests {
    use crate::index::Index;
    use crate::piece::{TAILS, record_max, tail_blocks};
    use base::id::{ChunkId, Generation, GroupId, Owner};

    #[test]
    fn tails_are_counted() {
        let mut index = Index::default();
        let id = |at: usize| ChunkId(at as u128);
        for (at, tail) in TAILS.iter().enumerate() {
            index.create(id(at), Owner::Group(GroupId(1)), Generation(1), at as u64);
            index.push_tail(id(at), &vec![7; *tail], 0);
        }
        let counted = |index: &Index| {
            let tails = index.open.values().map(|open| tail_blocks(open.tail.len(), record_max(open.small_records)));
            assert_eq!(index.tail_blocks, tails.sum::<u64>());
            assert_eq!(index.tails, index.open.values().map(|open| open.tail.len() as u64).sum::<u64>());
        };
        counted(&index);
        for at in (0..TAILS.len()).step_by(2) {
            index.make_small(id(at));
            counted(&index);
        }
        for at in 0..TAILS.len() {
            index.take_tail(id(at), 65_536);
            counted(&index);
        }
        for at in 0..TAILS.len() {
            index.remove(id(at));
            counted(&index);
        }
        assert_eq!((index.tails, index.tail_blocks), (0, 0));
    }
}
