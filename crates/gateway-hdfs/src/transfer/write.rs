//! WRITE_BLOCK.

use super::connection::Connection;
use crate::gateway::Gateway;
use crate::message::transfer::{ERROR_UNSUPPORTED, OperationAnswer, WriteBlock};
use base::error::Result;
use std::sync::Arc;

/// Takes the bytes of a block.
pub(crate) async fn write_block(
    _gateway: &Arc<Gateway>,
    connection: &mut Connection,
    _request: WriteBlock,
) -> Result<()> {
    connection.write_message(&OperationAnswer { status: ERROR_UNSUPPORTED, ..OperationAnswer::default() }).await
}
