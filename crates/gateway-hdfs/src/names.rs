//! Calls about names, attributes, permissions and policies.

mod status;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use bytes::Bytes;
use std::sync::Arc;

pub use status::file_status;

/// Does a call of ClientProtocol if it is one of this room's: the encoded answer. `None`: it is not.
pub async fn call(
    _gateway: &Arc<Gateway>,
    _caller: &Caller,
    _method: &str,
    _request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    None
}
