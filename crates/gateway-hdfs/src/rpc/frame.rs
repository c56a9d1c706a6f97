//! Frames of Hadoop RPC: four bytes of length, then messages that each begin with their own length.

use crate::message::rpc::{
    CALL_SASL, ERROR_APPLICATION, ERROR_NO_SUCH_METHOD, ERROR_NO_SUCH_PROTOCOL, ERROR_VERSION_MISMATCH, ResponseHeader,
    SASL_SUCCESS, STATUS_ERROR, STATUS_FATAL, STATUS_SUCCESS, Sasl, VERSION,
};
use crate::refusal::{self, Refusal};
use base::limit::HDFS_FRAME_MAX;
use bytes::{Buf, Bytes};
use prost::Message;

/// Bytes before a frame's content: its length, big-endian.
pub const LENGTH_BYTES: usize = 4;

/// What bytes begin with.
#[derive(Debug, PartialEq, Eq)]
pub enum Front {
    /// Not yet a whole length.
    Nothing,
    /// A frame of so many bytes, length included, which are not all there yet.
    Part(usize),
    /// A whole frame of so many bytes, length included.
    Whole(usize),
    /// A length that no frame may have.
    TooLong(i64),
}

/// Looks at the front of what arrived. `most`: bytes that a frame may have now, its length not counted.
pub fn front(bytes: &[u8], most: usize) -> Front {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Front::Nothing };
    let length = i32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(content) if content <= most => {
            let whole = content + LENGTH_BYTES;
            if bytes.len() >= whole { Front::Whole(whole) } else { Front::Part(whole) }
        }
        _ => Front::TooLong(length.into()),
    }
}

/// Takes a message with its length in front off `content`. `None`: there is none, or it is cut off.
pub fn take_delimited(content: &mut Bytes) -> Option<Bytes> {
    let length = prost::decode_length_delimiter(&mut *content).ok()?;
    (length <= content.remaining()).then(|| content.split_to(length))
}

/// The answer to a call as it waits to be written.
pub type Answer = (i32, Result<Vec<u8>, Refusal>);

/// Appends the answer to a call.
pub fn append_answer(out: &mut Vec<u8>, (call, result): &Answer) {
    match result {
        Ok(message) if message.len() > HDFS_FRAME_MAX - ANSWER_HEADER_MAX => {
            let text = format!("the answer of {} bytes is larger than a frame; ask for less at once", message.len());
            append(out, &failure(*call, STATUS_ERROR, &Refusal::io(text), ERROR_APPLICATION), |_| ());
        }
        Ok(message) => {
            // What comes behind a large answer takes no double of it.
            out.reserve_exact(if message.len() > LARGE { message.len() + 2 * ANSWER_HEADER_MAX } else { 0 });
            append(out, &header(*call, STATUS_SUCCESS), |out| {
                prost::encoding::encode_varint(message.len() as u64, out);
                out.extend_from_slice(message);
            });
        }
        Err(refusal) => {
            let detail = match refusal.class {
                refusal::NO_SUCH_METHOD => ERROR_NO_SUCH_METHOD,
                refusal::NO_SUCH_PROTOCOL => ERROR_NO_SUCH_PROTOCOL,
                refusal::VERSION_MISMATCH => ERROR_VERSION_MISMATCH,
                _ => ERROR_APPLICATION,
            };
            append(out, &failure(*call, STATUS_ERROR, refusal, detail), |_| ());
        }
    }
}

/// Appends that the connection ends, and why. `detail` is `FATAL_INVALID_HEADER` or one of its kin.
pub fn append_fatal(out: &mut Vec<u8>, call: i32, refusal: &Refusal, detail: i32) {
    append(out, &failure(call, STATUS_FATAL, refusal, detail), |_| ());
}

/// Appends that nothing needs to be proved.
pub fn append_sasl_success(out: &mut Vec<u8>) {
    let sasl = Sasl { state: SASL_SUCCESS };
    append(out, &header(CALL_SASL, STATUS_SUCCESS), |out| append_delimited(out, &sasl));
}

fn header(call: i32, status: i32) -> ResponseHeader {
    ResponseHeader { call: call as u32, status, ..ResponseHeader::default() }
}

fn failure(call: i32, status: i32, refusal: &Refusal, detail: i32) -> ResponseHeader {
    let text = refusal.text[..refusal.text.floor_char_boundary(TEXT_MAX)].to_string();
    ResponseHeader {
        version: Some(VERSION.into()),
        class: Some(refusal.class.to_string()),
        text: Some(text),
        detail: Some(detail),
        ..header(call, status)
    }
}

/// More than the header of an answer that is not refused takes.
const ANSWER_HEADER_MAX: usize = 64;

/// Answers of more bytes than this get exactly the memory that they need.
const LARGE: usize = 64 << 10;

/// Longest text of a refusal, in bytes: no name or path in it is longer.
const TEXT_MAX: usize = 16 << 10;

/// Appends a frame with this header; `body` appends what follows it. The length is filled in at the end.
fn append(out: &mut Vec<u8>, header: &ResponseHeader, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    append_delimited(out, header);
    body(out);
    let length = (out.len() - start - LENGTH_BYTES) as u32;
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

fn append_delimited<M: Message>(out: &mut Vec<u8>, message: &M) {
    if message.encode_length_delimited(out).is_err() {
        unreachable!("a Vec grows as it must");
    }
}

#[cfg(test)]
mod tests {
    use super::{Front, append_answer, append_fatal, append_sasl_success, front, take_delimited};
    use crate::message::rpc::{
        CALL_CONTEXT, CALL_PING, CALL_SASL, CallHeader, ConnectionContext, FATAL_VERSION_MISMATCH, RequestHeader,
        ResponseHeader, SASL_NEGOTIATE, Sasl,
    };
    use crate::refusal::{NO_SUCH_METHOD, NO_SUCH_PROTOCOL, Refusal, VERSION_MISMATCH};
    use base::limit::{HDFS_CALL_MAX, HDFS_FRAME_MAX};
    use bytes::Bytes;
    use prost::Message;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
    }

    /// The content of a whole frame and its header.
    fn opened(frame: &[u8]) -> (RequestHeader, Bytes) {
        assert_eq!(front(frame, HDFS_CALL_MAX), Front::Whole(frame.len()));
        let mut content = Bytes::copy_from_slice(&frame[4..]);
        let header = take_delimited(&mut content).unwrap();
        (RequestHeader::decode(header).unwrap(), content)
    }

    const CONTEXT: &str = "00 00 00 55 1a 08 02 10 00 18 05 22 10 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 28 01 39 12 07 \
        0a 05 61 6c 69 63 65 1a 2e 6f 72 67 2e 61 70 61 63 68 65 2e 68 61 64 6f 6f 70 2e 68 64 66 73 2e 70 72 6f 74 6f 63 6f 6c \
        2e 43 6c 69 65 6e 74 50 72 6f 74 6f 63 6f 6c";
    const CALL: &str = "00 00 00 5f 1a 08 02 10 00 18 00 22 10 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 28 00 3f 0a 0b 67 \
        65 74 46 69 6c 65 49 6e 66 6f 12 2e 6f 72 67 2e 61 70 61 63 68 65 2e 68 61 64 6f 6f 70 2e 68 64 66 73 2e 70 72 6f 74 6f \
        63 6f 6c 2e 43 6c 69 65 6e 74 50 72 6f 74 6f 63 6f 6c 18 01 03 0a 01 2f";
    const SASL: &str = "00 00 00 0e 0a 08 02 10 00 18 41 22 00 28 01 02 10 01";
    const PING: &str = "00 00 00 1b 1a 08 02 10 00 18 07 22 10 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 28 01";

    /// What a Java client sends is read, byte for byte as the reference has it.
    #[test]
    fn frames_of_clients() {
        let client: Vec<u8> = (0..16).collect();
        let (header, mut content) = opened(&bytes(CONTEXT));
        assert_eq!((header.call, header.client.as_ref(), header.retry), (CALL_CONTEXT, client.as_slice(), Some(-1)));
        let context = ConnectionContext::decode(take_delimited(&mut content).unwrap()).unwrap();
        assert_eq!(context.user.unwrap().effective.as_deref(), Some("alice"));
        let (header, mut content) = opened(&bytes(CALL));
        assert_eq!((header.call, header.kind, header.operation, header.retry), (0, Some(2), Some(0), Some(0)));
        let call = CallHeader::decode(take_delimited(&mut content).unwrap()).unwrap();
        assert_eq!((call.method.as_ref(), call.version), (b"getFileInfo".as_slice(), 1));
        assert_eq!(take_delimited(&mut content).unwrap(), b"\x0a\x01/".as_slice());
        assert!(content.is_empty());
        let (header, mut content) = opened(&bytes(SASL));
        let sasl = Sasl::decode(take_delimited(&mut content).unwrap()).unwrap();
        assert_eq!((header.call, sasl.state), (CALL_SASL, SASL_NEGOTIATE));
        assert_eq!(opened(&bytes(PING)).0.call, CALL_PING);
    }

    /// Answers are, byte for byte, what the reference says that a Java client expects.
    #[test]
    fn frames_for_clients() {
        let mut out = Vec::new();
        append_answer(&mut out, &(0, Ok(Vec::new())));
        assert_eq!(out, bytes("00 00 00 06 04 08 00 10 00 00"));
        out.clear();
        append_answer(&mut out, &(0, Err(Refusal::not_found("File does not exist: /x"))));
        let expected = "00 00 00 41 40 08 00 10 01 18 09 22 1d 6a 61 76 61 2e 69 6f 2e 46 69 6c 65 4e 6f 74 46 6f 75 6e 64 45 78 63 \
            65 70 74 69 6f 6e 2a 17 46 69 6c 65 20 64 6f 65 73 20 6e 6f 74 20 65 78 69 73 74 3a 20 2f 78 30 01";
        assert_eq!(out, bytes(expected));
        out.clear();
        append_sasl_success(&mut out);
        assert_eq!(out, bytes("00 00 00 0c 08 08 df ff ff ff 0f 10 00 02 10 00"));
    }

    /// Clients learn from a number which kind of refusal it is; a long text is cut at a letter's end.
    #[test]
    fn refusals() {
        let header = |out: &[u8]| {
            let mut content = Bytes::copy_from_slice(&out[4..]);
            let header = ResponseHeader::decode(take_delimited(&mut content).unwrap()).unwrap();
            assert!(content.is_empty());
            header
        };
        for (class, detail) in [(NO_SUCH_METHOD, 2), (NO_SUCH_PROTOCOL, 3), (VERSION_MISMATCH, 6), ("x", 1)] {
            let mut out = Vec::new();
            append_answer(&mut out, &(7, Err(Refusal::new(class, "é".repeat(20_000)))));
            let header = header(&out);
            assert_eq!((header.call, header.status, header.detail), (7, 1, Some(detail)));
            assert_eq!(header.text.map(|text| text.len()), Some(16 << 10));
        }
        let mut out = Vec::new();
        append_fatal(&mut out, -1, &Refusal::new(VERSION_MISMATCH, "no"), FATAL_VERSION_MISMATCH);
        assert_eq!((header(&out).call, header(&out).status, header(&out).detail), (u32::MAX, 2, Some(14)));
        out.clear();
        append_answer(&mut out, &(7, Ok(vec![0; HDFS_FRAME_MAX])));
        assert_eq!(header(&out).status, 1, "an answer that no client takes is refused");
    }

    /// Lengths are believed only when they are possible, and messages only when they are whole.
    #[test]
    fn lengths() {
        let front = |bytes: &[u8]| front(bytes, HDFS_CALL_MAX);
        assert_eq!((front(&[]), front(&[0, 0, 0])), (Front::Nothing, Front::Nothing));
        assert_eq!((front(&[0, 0, 0, 0]), front(&[0, 0, 0, 2, 1])), (Front::Whole(4), Front::Part(6)));
        assert_eq!(front(&[0, 0x20, 0, 0]), Front::Part(HDFS_CALL_MAX + 4));
        assert_eq!(front(&[0, 0x20, 0, 1]), Front::TooLong(HDFS_CALL_MAX as i64 + 1));
        assert_eq!(front(&[0xFF, 0xFF, 0xFF, 0xFF]), Front::TooLong(-1));
        let take = |bytes: &'static [u8]| take_delimited(&mut Bytes::from_static(bytes));
        assert_eq!(take(&[2, 7, 8, 9]).as_deref(), Some([7, 8].as_slice()));
        for broken in [&[][..], &[1], &[0x80], &[0xFF; 12], &[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 1]]
        {
            assert_eq!(take_delimited(&mut Bytes::copy_from_slice(broken)), None, "{broken:?}");
        }
    }
}
