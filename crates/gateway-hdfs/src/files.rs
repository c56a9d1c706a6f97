//! Files that are open for writing, their leases, and files as blocks.

pub mod blocks;
pub mod located;
pub mod readers;

use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::refusal::Refusal;
use bytes::Bytes;
use std::sync::Arc;

/// What is known of open files and their blocks.
#[derive(Default)]
pub struct Files {
    /// Numbers of blocks.
    pub blocks: blocks::Blocks,
    /// Files that were read lately.
    pub readers: readers::Readers,
}

/// Does a call if it is one of this room's: the encoded answer. `None`: it is not.
pub async fn call(
    gateway: &Arc<Gateway>,
    caller: &Caller,
    method: &str,
    request: Bytes,
) -> Option<Result<Vec<u8>, Refusal>> {
    located::call(gateway, caller, method, request).await
}
