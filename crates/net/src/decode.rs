//! From a stream of bytes to frames: a state machine without I/O, so that any bytes can be tried on it.

use crate::credit::Piece;
use crate::frame::{self, HEADER_LENGTH, Header};
use crate::payload::Payload;
use base::buffer::{Buffer, Pool};
use base::checksum::{BlockSums, crc32c};
use base::error::Result;
use base::limit::{BLOCK, GREETING_MAX, LARGE_MESSAGE};
use bytes::Bytes;
use std::task::Poll;

/// Bytes read at once while frames are small.
const STAGING: usize = 64 << 10;

/// Bytes read at once before the first frame is whole: strangers have not more, and a greeting fits.
const FIRST: usize = 8 << 10;
const _: () = assert!(FIRST >= HEADER_LENGTH + GREETING_MAX);

/// Message and payload together up to here are gathered in the staging buffer and copied out; half of it, so that
/// moving a frame that was cut by the buffer's end costs less than the reads it saves.
const STAGED_MAX: usize = STAGING / 2;
const _: () = assert!(STAGED_MAX == LARGE_MESSAGE);

/// Bytes of a payload read at once: their checksums are computed while they are still in the processor's own cache.
const PAYLOAD_READ: usize = 512 << 10;

/// Bytes of a large message read at once: others have their turns between two of them.
const MESSAGE_READ: usize = 256 << 10;

/// Bytes read at once where a frame with a large payload is expected: all of the payload that staging swallows is copied once more.
const LEAN_READ: usize = 4096;

/// A frame that has arrived whole. Header and message are verified, the payload is not.
#[derive(Debug)]
pub struct Frame {
    /// The header.
    pub header: Header,
    /// The encoded message.
    pub message: Bytes,
    /// The payload.
    pub payload: Payload,
}

/// Takes bytes as they come and gives frames. Fill `space`, say how much with `filled`, take frames with `next` until there is none.
pub struct Decoder {
    staging: Vec<u8>,
    /// The unread part of `staging`.
    start: usize,
    end: usize,
    state: State,
    lean: bool,
    pool: Pool,
    /// Frames that were given out.
    frames: u64,
}

/// What comes next in the stream.
enum State {
    Header,
    /// Message and payload (`gather` bytes), or the message alone, through staging.
    Staged {
        header: Header,
        piece: Option<Piece>,
        gather: usize,
    },
    /// A message too large for staging, read in place.
    Message {
        header: Header,
        piece: Option<Piece>,
        message: Vec<u8>,
        filled: usize,
    },
    /// A large payload, read in place.
    Payload {
        header: Header,
        message: Bytes,
        piece: Option<Piece>,
        buffer: Buffer,
        filled: usize,
        sums: BlockSums,
    },
}

impl Decoder {
    /// A decoder whose payload buffers come from `pool`.
    pub fn new(pool: Pool) -> Decoder {
        Decoder { staging: vec![0; FIRST], start: 0, end: 0, state: State::Header, lean: false, pool, frames: 0 }
    }

    /// Where the next bytes of the stream go. Never empty once `next` has returned none.
    pub fn space(&mut self) -> &mut [u8] {
        if self.staging.len() < STAGING && (self.frames > 0 || matches!(self.state, State::Staged { .. })) {
            self.staging.resize(STAGING, 0);
        }
        match &mut self.state {
            State::Message { message, filled, .. } => {
                let end = message.len().min(*filled + MESSAGE_READ);
                &mut message[*filled..end]
            }
            State::Payload { buffer, filled, .. } => {
                let end = buffer.len().min(*filled + PAYLOAD_READ);
                &mut buffer[*filled..end]
            }
            State::Header | State::Staged { .. } => {
                if self.start == self.end {
                    (self.start, self.end) = (0, 0);
                } else if self.staging.len() - self.start < HEADER_LENGTH + STAGED_MAX || self.end == self.staging.len()
                {
                    self.staging.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                }
                let room = if self.lean { LEAN_READ } else { STAGING };
                let limit = self.end.saturating_add(room).min(self.staging.len());
                &mut self.staging[self.end..limit]
            }
        }
    }

    /// So many bytes were put into `space`.
    pub fn filled(&mut self, bytes: usize) {
        match &mut self.state {
            State::Message { message, filled, .. } => {
                *filled += bytes;
                assert!(*filled <= message.len(), "more bytes than space");
            }
            State::Payload { buffer, filled, sums, .. } => {
                *filled += bytes;
                assert!(*filled <= buffer.len(), "more bytes than space");
                sum_up(sums, buffer, *filled);
            }
            State::Header | State::Staged { .. } => {
                self.end += bytes;
                assert!(self.end <= self.staging.len(), "more bytes than space");
            }
        }
    }

    /// Whether the stream may end here: between two frames.
    pub fn is_between_frames(&self) -> bool {
        matches!(self.state, State::Header) && self.start == self.end
    }

    /// The frame that has begun and not ended: its number in the stream, and its bytes as far as they are known.
    pub(crate) fn unfinished(&self) -> Option<(u64, u64)> {
        let header = match &self.state {
            State::Header => return (self.start < self.end).then_some((self.frames, HEADER_LENGTH as u64)),
            State::Staged { header, .. } | State::Message { header, .. } | State::Payload { header, .. } => header,
        };
        Some((self.frames, u64::from(header.message_length) + u64::from(header.payload_length)))
    }

    /// Bytes of a large frame that has not ended which have come.
    pub(crate) fn come(&self) -> u64 {
        match &self.state {
            State::Message { filled, .. } | State::Payload { filled, .. } => *filled as u64,
            State::Header | State::Staged { .. } => 0,
        }
    }

    /// Whether what came, too little for a frame, is the beginning of TLS.
    pub(crate) fn holds_tls(&self) -> bool {
        crate::tls::begins(&self.staging[self.start..self.end])
    }

    /// The next frame if it is here whole. `admit` sees each header before anything is allocated for it; it may refuse the
    /// frame, and gives the budget that a large message or payload was granted; at most one of both is large. Where it is pending there is no
    /// frame, and the same header is seen again next time. After an error the stream is of no use any more.
    pub fn next(&mut self, admit: &mut dyn FnMut(&Header) -> Result<Poll<Option<Piece>>>) -> Result<Option<Frame>> {
        let frame = self.step(admit)?;
        self.frames += u64::from(frame.is_some());
        Ok(frame)
    }

    fn step(&mut self, admit: &mut dyn FnMut(&Header) -> Result<Poll<Option<Piece>>>) -> Result<Option<Frame>> {
        loop {
            match std::mem::replace(&mut self.state, State::Header) {
                State::Header => {
                    let staged = &self.staging[self.start..self.end];
                    let Some(bytes) = staged.first_chunk::<HEADER_LENGTH>() else {
                        frame::check_beginning(staged)?;
                        return Ok(None);
                    };
                    let header = Header::decode(bytes)?;
                    let Poll::Ready(piece) = admit(&header)? else { return Ok(None) };
                    self.start += HEADER_LENGTH;
                    self.state = self.body(header, piece);
                }
                State::Staged { header, piece, gather } if self.end - self.start >= gather => {
                    let message = Bytes::copy_from_slice(self.take_staged(header.message_length as usize));
                    check_message(&header, &message)?;
                    if gather == header.message_length as usize && header.payload_length > 0 {
                        self.state = self.large_payload(header, message, piece);
                        continue;
                    }
                    self.lean = false;
                    return Ok(Some(Frame { header, message, payload: self.small_payload(&header) }));
                }
                State::Message { header, piece, message, filled } if filled == message.len() => {
                    check_message(&header, &message)?;
                    let (message, piece) = match piece {
                        // What was granted for a frame with such a message is for the message.
                        Some(piece) => (Bytes::from_owner(HeldMessage { message, _piece: piece }), None),
                        None => (Bytes::from(message), None),
                    };
                    if header.payload_length > 0 {
                        self.state = self.large_payload(header, message, piece);
                        continue;
                    }
                    return Ok(Some(Frame { header, message, payload: Payload::empty() }));
                }
                State::Payload { header, message, piece, buffer, filled, sums } if filled == buffer.len() => {
                    let bytes = match piece {
                        Some(piece) => Bytes::from_owner(Held { buffer, _piece: piece }),
                        None => buffer.freeze(),
                    };
                    return Ok(Some(Frame {
                        header,
                        message,
                        payload: Payload::arrived(bytes, header.payload_crc, sums),
                    }));
                }
                unfinished => {
                    self.state = unfinished;
                    return Ok(None);
                }
            }
        }
    }

    /// How message and payload of this frame are taken in.
    fn body(&mut self, header: Header, piece: Option<Piece>) -> State {
        let (message, payload) = (header.message_length as usize, header.payload_length as usize);
        if message + payload <= STAGED_MAX {
            return State::Staged { header, piece, gather: message + payload };
        }
        if message <= STAGED_MAX {
            return State::Staged { header, piece, gather: message };
        }
        let mut bytes = vec![0; message];
        let filled = self.drain_staged(&mut bytes);
        State::Message { header, piece, message: bytes, filled }
    }

    fn large_payload(&mut self, header: Header, message: Bytes, piece: Option<Piece>) -> State {
        let mut buffer = self.pool.take(header.payload_length as usize);
        let filled = self.drain_staged(&mut buffer);
        self.lean = true;
        let mut sums = BlockSums::for_length(buffer.len());
        sum_up(&mut sums, &buffer, filled);
        State::Payload { header, message, piece, buffer, filled, sums }
    }

    fn small_payload(&mut self, header: &Header) -> Payload {
        let length = header.payload_length as usize;
        if length == 0 {
            return Payload::empty();
        }
        let bytes = if length < BLOCK {
            Bytes::copy_from_slice(self.take_staged(length))
        } else {
            let mut buffer = self.pool.take(length);
            buffer.copy_from_slice(self.take_staged(length));
            buffer.freeze()
        };
        let sums = BlockSums::of(&bytes);
        Payload::arrived(bytes, header.payload_crc, sums)
    }

    fn take_staged(&mut self, length: usize) -> &[u8] {
        let bytes = &self.staging[self.start..self.start + length];
        self.start += length;
        bytes
    }

    /// Moves what is staged into `target`, as far as it goes.
    fn drain_staged(&mut self, target: &mut [u8]) -> usize {
        let length = target.len().min(self.end - self.start);
        target[..length].copy_from_slice(self.take_staged(length));
        length
    }
}

/// Brings the checksums of a payload's whole blocks up to what has arrived; the last block may be short.
fn sum_up(sums: &mut BlockSums, buffer: &[u8], filled: usize) {
    let end = if filled == buffer.len() { filled } else { filled / BLOCK * BLOCK };
    buffer[sums.length()..end].chunks(BLOCK).for_each(|block| sums.add(block));
}

fn check_message(header: &Header, message: &[u8]) -> Result<()> {
    if crc32c(message) == header.message_crc {
        return Ok(());
    }
    Err(frame::broken("a frame's message was damaged on the way"))
}

/// A large message and the budget it was granted from, given back together with the last share.
struct HeldMessage {
    message: Vec<u8>,
    _piece: Piece,
}

impl AsRef<[u8]> for HeldMessage {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

/// A payload and the budget it was granted from, given back together with the last share.
struct Held {
    buffer: Buffer,
    _piece: Piece,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}
