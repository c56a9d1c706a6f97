//! Where the bytes of a read come from, and the memory that they hold until the client has taken them.

use crate::memory::{Memory, Wants};
use base::error::Result;
use base::limit::{BLOCK, HDFS_READ_MEMORY, HDFS_READ_MEMORY_MAX, HDFS_READ_MEMORY_MIN, HDFS_READS_WITH_LITTLE};
use client::{FileReader, RangePiece, RangeStream, ReadOptions, Sums};
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// So long a read with little memory keeps others of its kind waiting at the most.
const TURN_MAX: Duration = Duration::from_millis(500);

const _: () = assert!(HDFS_READ_MEMORY_MIN.is_multiple_of(BLOCK));

/// What all reads share.
pub struct Reads {
    memory: Arc<Memory>,
    /// Turns of those that have too little of it, so that however many there are, others find the store and a processor free.
    turns: Semaphore,
}

impl Default for Reads {
    fn default() -> Reads {
        Reads { memory: Memory::new(HDFS_READ_MEMORY_MAX), turns: Semaphore::new(HDFS_READS_WITH_LITTLE) }
    }
}

/// The bytes of a range, in order. While there is memory for it they are asked for ahead; else a little at a time, so that no reader waits
/// for those that do not take their bytes.
pub struct Source {
    reader: FileReader,
    options: (ReadOptions, Sums),
    reads: Arc<Reads>,
    holds: Holds,
    /// Bytes that are asked for, and where they end in the file.
    part: RangeStream,
    part_end: u64,
    position: u64,
    end: u64,
}

/// What a source has in memory.
enum Holds {
    /// As little as every connection may have.
    Little,
    /// The same, although there is more to read.
    TooLittle { wants: Option<Wants> },
    /// Enough to ask ahead.
    Enough { _permit: OwnedSemaphorePermit },
}

impl Source {
    /// These bytes of a file.
    pub fn new(reader: FileReader, range: Range<u64>, options: (ReadOptions, Sums), reads: Arc<Reads>) -> Source {
        let (holds, length) = hold(&reads.memory, range.end - range.start);
        let part = reader.range(range.start, length, options.0, options.1);
        let (position, part_end) = (range.start, range.start + length);
        Source { reader, options, reads, holds, part, part_end, position, end: range.end }
    }

    /// The next piece. None at the end, or where the file ends before. After an error there is no more.
    pub async fn next(&mut self) -> Result<Option<RangePiece>> {
        if self.position == self.part_end && self.position < self.end {
            let (holds, length) = hold(&self.reads.memory, self.end - self.position);
            self.part = self.reader.range(self.position, length, self.options.0, self.options.1);
            self.part_end = self.position + length;
            self.holds = holds;
        }
        let piece = match self.holds {
            Holds::TooLittle { .. } => in_turn(&self.reads.turns, self.part.next()).await?,
            Holds::Little | Holds::Enough { .. } => self.part.next().await?,
        };
        self.position += piece.as_ref().map_or(0, |piece| piece.length);
        Ok(piece)
    }

    /// The client takes too little: whether others want the memory that this holds.
    pub fn is_slow(&mut self) -> bool {
        self.holds.is_slow(&self.reads.memory)
    }
}

impl Holds {
    /// The same. One that has too little itself needs no more for such a client, and says no longer that it wants some: those that have
    /// enough would end for it.
    fn is_slow(&mut self, memory: &Memory) -> bool {
        match self {
            Holds::Enough { .. } => memory.is_wanted(),
            Holds::Little => false,
            Holds::TooLittle { wants } => {
                *wants = None;
                false
            }
        }
    }
}

/// Asks when a turn is there, and gives it back with the answer; earlier if that does not come, for it may be a device that stands still,
/// and others read from others.
async fn in_turn<T>(turns: &Semaphore, asking: impl Future<Output = T>) -> T {
    let turn = turns.acquire().await;
    let mut asking = pin!(asking);
    if let Ok(answer) = timeout(TURN_MAX, asking.as_mut()).await {
        return answer;
    }
    drop(turn);
    asking.await
}

/// Memory for so many bytes, and how many of them may be asked for with it.
fn hold(memory: &Arc<Memory>, left: u64) -> (Holds, u64) {
    let little = HDFS_READ_MEMORY_MIN as u64;
    if left <= little {
        return (Holds::Little, left);
    }
    match memory.now(left.min(HDFS_READ_MEMORY as u64) as usize) {
        Some(permit) => (Holds::Enough { _permit: permit }, left),
        None => (Holds::TooLittle { wants: Some(memory.want()) }, little),
    }
}

#[cfg(test)]
mod tests {
    use super::{Holds, hold, in_turn};
    use crate::memory::Memory;
    use base::limit::{HDFS_READ_MEMORY, HDFS_READ_MEMORY_MIN};
    use std::future::{pending, ready};
    use tokio::sync::Semaphore;

    /// While there is memory a reader has enough of it; the next one reads on with little, and says so, until some is given back.
    /// Who reads little never takes any.
    #[test]
    fn enough_or_little() {
        let (memory, large) = (Memory::new(2 * HDFS_READ_MEMORY), 1 << 30);
        let first = hold(&memory, large);
        let _second = hold(&memory, large);
        assert!(matches!(first, (Holds::Enough { .. }, 0x4000_0000)) && !memory.is_wanted());
        let third = hold(&memory, large);
        assert!(matches!(third.0, Holds::TooLittle { .. }) && third.1 == HDFS_READ_MEMORY_MIN as u64);
        assert!(memory.is_wanted());
        assert!(matches!(hold(&memory, 4096), (Holds::Little, 4096)));
        drop((first, third));
        assert!(matches!(hold(&memory, large).0, Holds::Enough { .. }) && !memory.is_wanted());
    }

    /// One that has too little, and whose client takes nothing, wants no more: others that are slow are left alone.
    #[test]
    fn who_does_not_take_wants_nothing() {
        let memory = Memory::new(HDFS_READ_MEMORY);
        let (mut first, mut second) = (hold(&memory, 1 << 30).0, hold(&memory, 1 << 30).0);
        assert!(first.is_slow(&memory));
        assert!(!second.is_slow(&memory) && !first.is_slow(&memory));
    }

    /// Who asks a device that does not answer keeps others waiting for a moment, and goes on waiting itself.
    #[tokio::test(start_paused = true)]
    async fn who_stands_still_keeps_no_turn() {
        let turns = Semaphore::new(1);
        tokio::select! {
            biased;
            () = in_turn(&turns, pending()) => unreachable!("it is never answered"),
            answer = in_turn(&turns, ready(7)) => assert_eq!(answer, 7),
        }
    }
}
