//! Cuts a stream into chunks for a bag: anywhere, or only after a newline.

use base::error::{Error, ErrorKind, Result};
use std::io::Read;

/// Cuts one stream.
pub struct Cutter {
    /// Chunks have this many bytes, fewer at the end of the stream or where a line ends earlier.
    chunk: usize,
    /// A line that does not fit in so many bytes is an error.
    chunk_max: usize,
    /// Whether lines stay whole.
    lines: bool,
    /// Bytes that were read and belong to the next chunk: the start of a line.
    carried: Vec<u8>,
    /// Whether the stream has ended.
    ended: bool,
}

impl Cutter {
    /// Cuts into pieces of `chunk` bytes; with `lines`, at the last newline before that, and one line alone may have up
    /// to `chunk_max` bytes.
    pub fn new(chunk: usize, chunk_max: usize, lines: bool) -> Cutter {
        assert!(chunk > 0 && chunk <= chunk_max, "chunks of {chunk} bytes with {chunk_max} at most");
        Cutter { chunk, chunk_max, lines, carried: Vec::new(), ended: false }
    }

    /// The next chunk; none at the end of the stream. Blocks until the chunk is full or the stream ends.
    pub fn next(&mut self, stream: &mut impl Read) -> Result<Option<Vec<u8>>> {
        let mut piece = Vec::with_capacity(self.chunk);
        piece.append(&mut self.carried);
        // Bytes before `searched` hold no newline.
        let (mut searched, mut wanted) = (0, self.chunk);
        loop {
            self.fill(stream, &mut piece, wanted)?;
            if !self.lines || (self.ended && piece.len() <= self.chunk) {
                return Ok((!piece.is_empty()).then_some(piece));
            }
            if let Some(end) = self.line_end(&piece, searched) {
                self.carried = piece.split_off(end);
                return Ok(Some(piece));
            }
            if piece.len() > self.chunk_max {
                return Err(Error::new(
                    ErrorKind::Invalid,
                    format!(
                        "a line has more than {}, the largest chunk; push it without --lines, or break it up first",
                        base::unit::show_bytes(self.chunk_max as u64)
                    ),
                ));
            }
            if self.ended {
                return Ok(Some(piece));
            }
            searched = piece.len();
            // One byte more than the largest chunk tells a line that just fits from one that does not.
            wanted = (piece.len() * 2).min(self.chunk_max + 1);
        }
    }

    /// Reads until the piece has `wanted` bytes or the stream ends.
    fn fill(&mut self, stream: &mut impl Read, piece: &mut Vec<u8>, wanted: usize) -> Result<()> {
        let missing = wanted.saturating_sub(piece.len());
        if self.ended || missing == 0 {
            return Ok(());
        }
        let read = stream.by_ref().take(missing as u64).read_to_end(piece).map_err(Error::from)?;
        self.ended = read < missing;
        Ok(())
    }

    /// Where to cut: after the last newline within a chunk, else after the first one behind it.
    fn line_end(&self, piece: &[u8], searched: usize) -> Option<usize> {
        let within = piece.len().min(self.chunk);
        if searched < within
            && let Some(place) = piece[..within].iter().rposition(|byte| *byte == b'\n')
        {
            return Some(place + 1);
        }
        let from = searched.max(within);
        let behind = piece[from..].iter().position(|byte| *byte == b'\n').map(|place| from + place + 1);
        behind.filter(|end| *end <= self.chunk_max)
    }
}

#[cfg(test)]
mod tests {
    use super::Cutter;
    use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};
    use std::io::Read;

    /// Gives out a few bytes at a time, as a pipe does.
    struct Dribble<'a>(&'a [u8], usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let count = self.1.min(out.len()).min(self.0.len());
            let (now, later) = self.0.split_at(count);
            out[..count].copy_from_slice(now);
            self.0 = later;
            Ok(count)
        }
    }

    fn cut(text: &[u8], step: usize, chunk: usize, chunk_max: usize, lines: bool) -> Result<Vec<Vec<u8>>, String> {
        let (mut cutter, mut stream, mut pieces) =
            (Cutter::new(chunk, chunk_max, lines), Dribble(text, step), Vec::new());
        while let Some(piece) = cutter.next(&mut stream).map_err(|error| error.text().to_string())? {
            pieces.push(piece);
        }
        Ok(pieces)
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>(), any::<u8>(), any::<u8>()], 0..200)
    }

    proptest! {
        /// The pieces joined are the input, none is empty, and none is longer than allowed.
        #[test]
        fn nothing_is_lost(text in text(), step in 1usize..40, chunk in 1usize..30) {
            let pieces = cut(&text, step, chunk, 30, false).unwrap();
            assert_eq!(pieces.concat(), text);
            assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= chunk));
        }

        /// With lines, every piece but the last ends with a newline; a piece above the chunk size is one line; a refusal
        /// means that there is a line above the largest chunk.
        #[test]
        fn no_line_is_split(text in text(), step in 1usize..40, chunk in 1usize..30) {
            let longest = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0);
            match cut(&text, step, chunk, 30, true) {
                Ok(pieces) => {
                    assert!(longest <= 30, "a line of {longest} bytes was taken");
                    assert_eq!(pieces.concat(), text);
                    for (place, piece) in pieces.iter().enumerate() {
                        assert!(place + 1 == pieces.len() || piece.ends_with(b"\n"), "piece {place} of {pieces:?}");
                        let newlines = piece.iter().filter(|byte| **byte == b'\n').count();
                        assert!(!piece.is_empty() && (piece.len() <= chunk || newlines <= 1), "piece {piece:?}");
                    }
                }
                Err(refusal) => assert!(longest > 30 && refusal.contains("largest chunk"), "{refusal}"),
            }
        }
    }

    /// A chunk is as full as its lines allow.
    #[test]
    fn chunks_are_full() {
        let pieces = cut(b"aa\nbb\ncc\ndddddddd\ne", 100, 6, 100, true).unwrap();
        assert_eq!(pieces, [&b"aa\nbb\n"[..], b"cc\n", b"dddddddd\n", b"e"]);
    }
}
