//! Reading a range of a file in order for somebody else, who may stop anywhere: what is asked for ahead grows with what was
//! taken, and never goes beyond the range.

use crate::reader::{FileReader, Gathered, ReadOptions};
use base::checksum::{SECTOR, UnitSums};
use base::error::Result;
use base::limit::{AROUND_MIN, BLOCK, RANGES_AHEAD_MAX, RECORD_PAYLOAD_MAX};
use bytes::Bytes;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// What is asked for first. Whoever reads a little here and there gets little more than that.
const FIRST: u64 = AROUND_MIN;

/// A piece at most: what a device reads with one operation.
const PIECE: u64 = RECORD_PAYLOAD_MAX as u64;
const _: () = assert!(PIECE.is_multiple_of(FIRST) && FIRST.is_multiple_of(BLOCK as u64));

/// What may be asked for and not taken: one piece on its way and one that waits for its turn.
const AHEAD: u64 = 2 * PIECE;

/// Which checksums a range is handed out with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// None. The bytes were compared with those that are stored.
    None,
    /// Of every `base::checksum::SECTOR`. The bytes were compared.
    Sectors,
    /// Of every `base::limit::BLOCK`. The bytes were compared.
    Blocks,
    /// Of every `base::limit::BLOCK`, as stored. Only the first piece was compared with them: whoever takes the others must do
    /// it, and ask again for `Blocks` where they differ.
    Stored,
}

impl Sums {
    /// Bytes that one of them covers.
    fn unit(self) -> usize {
        match self {
            Sums::None | Sums::Sectors => SECTOR,
            Sums::Blocks | Sums::Stored => BLOCK,
        }
    }
}

/// A range of a file that is being read in order.
///
/// It starts no task: reads are asked for, and go on, when `next` is called.
pub struct RangeStream {
    reader: FileReader,
    options: ReadOptions,
    sums: Sums,
    start: u64,
    end: u64,
    /// The next byte to hand out.
    position: u64,
    /// The next byte to ask for.
    asked: u64,
    /// What may be asked for and not handed out.
    ahead: u64,
    on_their_way: VecDeque<Read>,
}

/// A read on its way.
enum Read {
    Asked { length: u64, reading: Pin<Box<dyn Future<Output = Result<Gathered>> + Send>> },
    Here { length: u64, result: Result<Gathered> },
}

/// The next bytes of a range.
#[derive(Debug)]
pub struct RangePiece {
    /// The bytes one after another. All of them are a multiple of what a checksum covers, except where the range ends.
    pub parts: Vec<Bytes>,
    /// How many they are.
    pub length: u64,
    /// Their checksums as asked for (`Sums`), each CRC32C, counted from the range's first byte.
    pub sums: Vec<u32>,
}

impl FileReader {
    /// The bytes from `offset`, `length` of them, in order, and these checksums of them.
    pub fn range(&self, offset: u64, length: u64, options: ReadOptions, sums: Sums) -> RangeStream {
        RangeStream {
            reader: self.clone(),
            options,
            sums,
            start: offset,
            end: offset.saturating_add(length),
            position: offset,
            asked: offset,
            ahead: FIRST,
            on_their_way: VecDeque::new(),
        }
    }
}

impl RangeStream {
    /// The next piece. None at the end of the range, or where the file ends before. After an error there is no more.
    pub async fn next(&mut self) -> Result<Option<RangePiece>> {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<RangePiece>>> {
        self.read_ahead(context);
        let (length, result) = match self.on_their_way.pop_front() {
            Some(Read::Here { length, result }) => (length, result),
            Some(asked) => {
                self.on_their_way.push_front(asked);
                return Poll::Pending;
            }
            None => return Poll::Ready(Ok(None)),
        };
        let gathered = result.as_ref().map(|gathered| gathered.parts.iter().map(|part| part.len() as u64).sum::<u64>());
        let got = gathered.unwrap_or(0);
        self.position = self.position.saturating_add(got);
        if got < length {
            // What was asked for behind this place is not the next bytes.
            self.on_their_way.clear();
            (self.asked, self.end) = (self.position, self.position);
        }
        let Gathered { parts, sums, .. } = result?;
        if got == 0 {
            return Poll::Ready(Ok(None));
        }
        self.grow();
        // So that bytes come in while these go out.
        self.read_ahead(context);
        let sums = sums.map(UnitSums::into_sums).unwrap_or_default();
        Poll::Ready(Ok(Some(RangePiece { parts, length: got, sums })))
    }

    /// Asks for as much as may be on its way, and brings all of it forward.
    fn read_ahead(&mut self, context: &mut Context<'_>) {
        self.ask_ahead();
        for read in &mut self.on_their_way {
            if let Read::Asked { length, reading } = read
                && let Poll::Ready(result) = reading.as_mut().poll(context)
            {
                *read = Read::Here { length: *length, result };
            }
        }
    }

    /// Asks for as much as may be on its way.
    fn ask_ahead(&mut self) {
        while self.asked < self.end && self.asked - self.position < self.ahead {
            let size = self.ahead.min(PIECE);
            let length = self.piece_length(size);
            let (reader, offset, options) = (self.reader.clone(), self.asked, self.options);
            let sums = (self.sums != Sums::None).then(|| UnitSums::for_length(self.sums.unit(), length as usize));
            let stored = self.sums == Sums::Stored && self.asked > self.start;
            let gathered = Gathered { sums, stored, ..Gathered::default() };
            let reading = Box::pin(async move { reader.gather(offset, length, options, gathered).await });
            self.on_their_way.push_back(Read::Asked { length, reading });
            self.asked += length;
        }
    }

    /// How much is asked for next, about `size` bytes: pieces end where records probably do, and where a checksum
    /// does.
    fn piece_length(&self, size: u64) -> u64 {
        let left = self.end - self.asked;
        if left <= size {
            return left;
        }
        let stop = (self.asked / size + 1).saturating_mul(size);
        let whole = stop - (stop - self.start) % self.sums.unit() as u64;
        let length = whole.saturating_sub(self.asked);
        if length == 0 { size } else { length.min(left) }
    }

    /// The one who reads came back for more: asks for more ahead from now on, if all together may.
    fn grow(&mut self) {
        let ahead = &self.reader.client().session.ahead;
        if self.ahead >= AHEAD || self.asked >= self.end {
            return;
        }
        if self.ahead == FIRST && ahead.fetch_add(AHEAD, Ordering::Relaxed) >= RANGES_AHEAD_MAX {
            ahead.fetch_sub(AHEAD, Ordering::Relaxed);
            return;
        }
        self.ahead *= 2;
    }
}

impl Drop for RangeStream {
    fn drop(&mut self) {
        if self.ahead > FIRST {
            self.reader.client().session.ahead.fetch_sub(AHEAD, Ordering::Relaxed);
        }
    }
}
