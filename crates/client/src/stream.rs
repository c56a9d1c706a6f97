//! Reading a file from front to back: several reads on their way at once, handed out in order.

use crate::client::Sizes;
use crate::reader::FileReader;
use base::error::{Error, ErrorKind, Result};
use base::fault::contained;
use base::limit::CELL;
use base::request::{current, within};
use bytes::Bytes;
use std::collections::VecDeque;
use tokio::task::JoinHandle;

/// Cells that a stream may have asked for of each column, if they are several.
const CELLS_OF_COLUMN: u64 = 2;

/// A file's bytes in order. Where the file is being written, `next` answers none at what is hflushed so far, and may
/// be asked again.
pub struct FileStream {
    reader: FileReader,
    sizes: Sizes,
    /// The next byte to hand out.
    position: u64,
    /// The next byte to ask for.
    asked: u64,
    /// Where the file ended when somebody last looked.
    end: u64,
    on_their_way: VecDeque<ReadAhead>,
    ready: VecDeque<Bytes>,
}

/// A read on its way, given up when dropped.
struct ReadAhead {
    length: u64,
    task: JoinHandle<Result<Vec<Bytes>>>,
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FileStream {
    pub(crate) fn new(reader: FileReader, offset: u64, sizes: Sizes) -> FileStream {
        FileStream {
            reader,
            sizes,
            position: offset,
            asked: offset,
            end: 0,
            on_their_way: VecDeque::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next byte to be handed out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next bytes; none at the end. After an error the next call tries again from the same place.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.position = self.position.saturating_add(bytes.len() as u64);
                return Ok(Some(bytes));
            }
            if self.on_their_way.is_empty() && self.asked >= self.end {
                // What is sure comes first, and only then a wait for what may be behind it.
                self.end = self.reader.length_known_or_reaching(self.asked.saturating_add(1)).await?;
                if self.asked >= self.end {
                    return Ok(None);
                }
            }
            self.read_ahead();
            // Taken from the queue only when it is there, so that a caller may give up waiting.
            let Some(first) = self.on_their_way.front_mut() else { return Ok(None) };
            let result = (&mut first.task).await;
            let length = first.length;
            self.on_their_way.pop_front();
            let parts = match result {
                Ok(Ok(parts)) => parts,
                Ok(Err(error)) => return Err(self.start_again(error)),
                Err(error) => {
                    let text = format!("reading {} was cut off: {error}; try again", self.reader.path());
                    return Err(self.start_again(Error::new(ErrorKind::Io, text)));
                }
            };
            let got: u64 = parts.iter().map(|part| part.len() as u64).sum();
            self.ready.extend(parts);
            if got < length {
                // The file is shorter than it seemed; what was asked for behind this place is not the next bytes.
                self.on_their_way.clear();
                self.asked = self.position.saturating_add(got);
                self.end = self.asked;
                if got == 0 {
                    return Ok(None);
                }
            }
        }
    }

    /// Keeps the window full.
    fn read_ahead(&mut self) {
        let piece = self.sizes.read_piece as u64;
        // Of several columns each has a cell that it reads and one that waits for it.
        let wide = CELLS_OF_COLUMN.saturating_mul(self.reader.columns_at(self.asked) as u64).saturating_mul(CELL);
        let depth = ((self.sizes.read_window as u64).max(wide) / piece).max(1) as usize;
        while self.on_their_way.len() < depth && self.asked < self.end {
            let length = piece.min(self.end - self.asked);
            let (reader, offset) = (self.reader.clone(), self.asked);
            let piece = async move { reader.read_at(offset, length).await };
            let task = tokio::spawn(contained(within(current(), piece)));
            self.on_their_way.push_back(ReadAhead { length, task });
            self.asked += length;
        }
    }

    fn start_again(&mut self, error: Error) -> Error {
        self.on_their_way.clear();
        self.asked = self.position;
        error
    }
}
