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

/// Looks at the front of what arrived.
pub fn front(bytes: &[u8]) -> Front {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else { return Front::Nothing };
    let length = i32::from_be_bytes(*length);
    match usize::try_from(length) {
        Ok(content) if content <= HDFS_FRAME_MAX => {
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
