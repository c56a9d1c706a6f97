//! Hadoop's messages, as far as they are used: made by `build.rs` from the files in `proto`, which are ours, after the tables of field
//! numbers of release 3.4.3; beside them stand the numbers that fields may have. Fields that are left out are skipped when they
//! come. Required fields are always written, also when they are zero.

use crate::refusal::Refusal;
use bytes::Bytes;
use prost::Message;

pub mod files;
pub mod hdfs;
pub mod located;
pub mod names;
pub mod policies;
pub mod rpc;
pub mod status;
pub mod transfer;

/// What a call asks. Refused if the bytes are none of that.
pub(crate) fn decode<M: Message + Default>(request: Bytes) -> Result<M, Refusal> {
    M::decode(request).map_err(|error| Refusal::io(format!("the request cannot be read: {error}; nothing was done")))
}
