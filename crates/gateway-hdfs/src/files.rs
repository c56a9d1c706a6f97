//! Files that are open for writing, their leases, and files as blocks.

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use bytes::Bytes;
use std::sync::Arc;

/// What is known of open files and their blocks.
#[derive(Default)]
pub struct Files {}

/// Does a call if it is one of this room's: the encoded answer. `None`: it is not.
pub async fn call(
    _gateway: &Arc<Gateway>,
    _caller: &Caller,
    _method: &str,
    _request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    None
}
