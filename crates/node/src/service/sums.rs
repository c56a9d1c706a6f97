//! What a device of this node reads of a chunk, summed up for whoever compares it with another copy.

use super::control::check_length;
use crate::neighbours::PIECE;
use crate::node::Node;
use base::checksum::{combine, crc32c};
use base::error::{Error, ErrorKind, Result};
use base::id::ChunkId;
use base::limit::FETCH_MAX;
use net::message::chunk::Range;
use net::message::order::{Sums, SumsAnswer};

impl Node {
    /// Reads ranges of a chunk, a piece at a time, each of which waits for its part of the budget that fetches have. An error if something cannot be
    /// read for another cause than that its bytes do not match their checksums.
    pub async fn sums(&self, ask: Sums) -> Result<SumsAnswer> {
        check_length(ask.ranges.len())?;
        let bytes = ask.ranges.iter().fold(0u64, |sum, range| sum.saturating_add(range.length));
        if bytes > FETCH_MAX {
            let text = format!(
                "{bytes} bytes of a chunk were to be read, and {FETCH_MAX} are the most at once; nothing was done"
            );
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let (device, chunk) = (self.device(ask.device)?.clone(), ChunkId(ask.chunk.value()));
        let mut answer = SumsAnswer::default();
        for range in &ask.ranges {
            let (mut at, end) = (range.offset, range.offset.saturating_add(range.length));
            while at < end {
                let _turn = self.neighbours.may_ask(true).await;
                let until = at.saturating_add(PIECE).min(end);
                match device.read(chunk, at, until).await {
                    Ok(pieces) => {
                        for piece in &pieces {
                            answer.crc = combine(answer.crc, crc32c(&piece.bytes), piece.bytes.len() as u64);
                        }
                        // The last cell may go on behind this piece, and then counts once.
                        let behind = pieces.last().map_or(at, |last| last.end());
                        if behind < until {
                            let text = format!("bytes {behind}..{until} of chunk {chunk} are not there");
                            return Err(Error::new(ErrorKind::NotFound, text));
                        }
                        at = behind;
                    }
                    Err(error) if error.kind() == ErrorKind::Corrupt => {
                        note(&mut answer.damaged, (at, until));
                        at = until;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(answer)
    }
}

/// Adds a damaged range, to the last one if that ends there.
fn note(damaged: &mut Vec<Range>, (start, end): (u64, u64)) {
    match damaged.last_mut() {
        Some(last) if last.offset.saturating_add(last.length) == start => last.length += end - start,
        _ => damaged.push(Range { offset: start, length: end - start }),
    }
}
