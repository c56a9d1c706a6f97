//! The frame: a header of 72 bytes, a message, a payload. What every connection carries, and nothing else.
//!
//! ```text
//!   0  magic            u32   "SWFR"; this and the next field stay where they are in every version
//!   4  version          u16   2
//!   6  kind             u16   of the question (`message::asks`), or one of this file
//!   8  flags            u16   bit 0: reply; bit 1: the message is a `Failure`
//!  10  zero             u16
//!  12  message length   u32   bytes, at most `limit::FRAME_MESSAGE_MAX`
//!  16  number           u64   of the call: unique within the session, the same when it is asked again
//!  24  payload length   u32   bytes, at most `limit::FRAME_PAYLOAD_MAX`
//!  28  payload CRC32C   u32   not checked by the connection
//!  32  credit           u32   bytes of payload: from the server granted, from the client wished for (in `RETURN` given back)
//!  36  message CRC32C   u32
//!  40  floor            u64   in questions: the lowest number of a change that the session may still ask again; in answers 0
//!  48  request id       16 bytes  in questions: what the request is known by on all nodes (record 0437); 0: it has none. Any value is taken
//!  64  zero             u32
//!  68  header CRC32C    u32   of bytes 0 to 67, so that no length is believed before it is known to be whole
//!  72  message, then payload
//! ```
//! All numbers are little-endian. Version 1 had a header of 48 bytes, without a floor and a request id (records 0230 and 0231).

use base::checksum::crc32c;
use base::error::{Error, ErrorKind, Result};
use base::id::RequestId;
use base::limit::{FRAME_MESSAGE_MAX, FRAME_PAYLOAD_MAX};

/// Bytes of a frame before its message.
pub const HEADER_LENGTH: usize = 72;

/// The oldest protocol version that this program speaks.
pub const VERSION_MIN: u16 = 2;
/// The newest protocol version that this program speaks.
pub const VERSION_MAX: u16 = 2;

/// "SWFR" as it lies in memory.
const MAGIC: u32 = u32::from_le_bytes(*b"SWFR");

/// The frame answers the call of its number.
pub const REPLY: u16 = 1;
/// The message is a `Failure`.
pub const FAILURE: u16 = 2;

/// Kinds from here on are the connection's own; questions stay below.
pub const OWN_KINDS: u16 = 0xFF00;
/// The first frame of a connection; its reply carries `Welcome`.
pub const HELLO: u16 = 0xFF00;
/// Asks whether anybody is there; answered at once.
pub const PING: u16 = 0xFF01;
/// Carries nothing but its credit field: a wish, or a grant.
pub const CREDIT: u16 = 0xFF02;
/// Gives back the credit named in the credit field and withdraws every wish.
pub const RETURN: u16 = 0xFF03;
/// Says, as a `Failure`, why the sender is about to close.
pub const CLOSING: u16 = 0xFF04;
/// Wants a proof of the secret (`Challenge`); its reply carries `Proof`.
pub const PROVE: u16 = 0xFF05;

/// Whether this program knows the kind.
pub fn is_known(kind: u16) -> bool {
    matches!(kind, HELLO | PING | CREDIT | RETURN | CLOSING | PROVE) || crate::message::kind_name(kind).is_some()
}

/// What a frame's first 72 bytes say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// What is asked, answered or said.
    pub kind: u16,
    /// `REPLY`, `FAILURE`.
    pub flags: u16,
    /// The call's number.
    pub number: u64,
    /// Bytes of message.
    pub message_length: u32,
    /// CRC32C of the message.
    pub message_crc: u32,
    /// Bytes of payload.
    pub payload_length: u32,
    /// CRC32C of the payload, as its maker says.
    pub payload_crc: u32,
    /// Bytes of payload granted, wished for or given back.
    pub credit: u32,
    /// Of a question: no change of the session with a lower number is asked again.
    pub floor: u64,
    /// What the request is known by on all nodes that it passes; 0: nobody gave it a name.
    pub request: RequestId,
}

impl Header {
    /// The 72 bytes.
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION_MAX.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.flags.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.message_length.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.number.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.payload_length.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.credit.to_le_bytes());
        bytes[36..40].copy_from_slice(&self.message_crc.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.floor.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.request.0.to_le_bytes());
        let crc = crc32c(&bytes[..68]);
        bytes[68..72].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header. `Unsupported` for another version, `Protocol` for anything else that is not a frame of ours, each
    /// with its reason.
    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Result<Header> {
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        check_beginning(bytes)?;
        if word(68) != crc32c(&bytes[..68]) {
            return Err(broken("a frame's header was damaged on the way"));
        }
        let header = Header {
            kind: short(6),
            flags: short(8),
            number: long(16),
            message_length: word(12),
            message_crc: word(36),
            payload_length: word(24),
            payload_crc: word(28),
            credit: word(32),
            floor: long(40),
            request: RequestId(u128::from(long(48)) | u128::from(long(56)) << 64),
        };
        if header.message_length as usize > FRAME_MESSAGE_MAX || header.payload_length as usize > FRAME_PAYLOAD_MAX {
            return Err(broken(format!(
                "a frame of {} bytes of message and {} of payload is out of bounds ({FRAME_MESSAGE_MAX} and {FRAME_PAYLOAD_MAX})",
                header.message_length, header.payload_length
            )));
        }
        if header.flags & !(REPLY | FAILURE) != 0 || short(10) != 0 || word(64) != 0 {
            return Err(broken("a frame's header has bits set that mean nothing in this version"));
        }
        if !is_known(header.kind) {
            return Err(broken(format!("a frame of unknown kind {}", header.kind)));
        }
        Ok(header)
    }
}

/// Whether what came may begin a frame of a version that this program speaks; too little to tell may. Headers of other versions have
/// other lengths, so nobody waits for the rest of one before this is known.
pub(crate) fn check_beginning(bytes: &[u8]) -> Result<()> {
    let Some(bytes) = bytes.first_chunk::<6>() else { return Ok(()) };
    if crate::tls::begins(bytes) {
        return Err(crate::tls::unexpected());
    }
    if bytes[..4] != MAGIC.to_le_bytes() {
        return Err(broken("these bytes are no frame (wrong magic): the other side is not a Stormwell program"));
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    if !(VERSION_MIN..=VERSION_MAX).contains(&version) {
        return Err(wrong_version(u32::from(version), u32::from(version)));
    }
    Ok(())
}

/// The refusal of a peer that speaks only versions `min` to `max`.
pub(crate) fn wrong_version(min: u32, max: u32) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!(
            "this program speaks protocol versions {VERSION_MIN} to {VERSION_MAX}, the other side {min} to {max}; use the same Stormwell version on both sides"
        ),
    )
}

/// A protocol error. Its connection is closed; calls are asked again on a new one.
pub(crate) fn broken(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Protocol, text)
}

/// Appends a header and the message that `encode` appends. `header`'s message fields are filled in here.
pub fn append(bytes: &mut Vec<u8>, mut header: Header, encode: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; HEADER_LENGTH]);
    encode(bytes);
    let message = &bytes[start + HEADER_LENGTH..];
    assert!(message.len() <= FRAME_MESSAGE_MAX, "a message of {} bytes was not refused earlier", message.len());
    header.message_length = message.len() as u32;
    header.message_crc = crc32c(message);
    bytes[start..start + HEADER_LENGTH].copy_from_slice(&header.encode());
}

#[cfg(test)]
mod tests {
    use super::{Header, OWN_KINDS, REPLY};
    use crate::message::kind_name;
    use base::id::RequestId;

    /// A header says after the wire what it said before, and no flipped bit goes unnoticed.
    #[test]
    fn headers_come_back_or_are_refused() {
        let header = Header {
            kind: 69,
            flags: REPLY,
            number: 0x0123_4567_89ab_cdef,
            message_length: 1000,
            message_crc: 7,
            payload_length: 4 << 20,
            payload_crc: 9,
            credit: 1 << 24,
            floor: 0x1122_3344_5566_7788,
            request: RequestId(0xf0e1_d2c3_b4a5_9687_7869_5a4b_3c2d_1e0f),
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err(), "bit {bit} flipped and nobody noticed");
        }
    }

    /// No question uses a kind that belongs to the connection.
    #[test]
    fn kinds_are_apart() {
        assert!((OWN_KINDS..=u16::MAX).all(|kind| kind_name(kind).is_none()));
    }
}
