//! Hadoop RPC: connections that carry calls.

pub(crate) mod budget;
mod calls;
mod connection;
mod dispatch;
mod frame;
mod methods;
mod outgoing;
mod retries;

use crate::memory::Memory;
use base::limit::HDFS_LARGE_CALLS_MAX;
use std::sync::Arc;

pub use connection::Connection;
pub(crate) use frame::append_fatal;

/// What connections that carry calls share.
pub struct Rpc {
    /// Answers to calls that must not be done twice.
    retries: retries::Retries,
    /// Bytes of large calls that may be read or worked on.
    large: Arc<Memory>,
    /// Memory for answers.
    budget: Arc<budget::Budget>,
}

impl Default for Rpc {
    fn default() -> Rpc {
        Rpc { retries: retries::Retries::default(), large: Memory::new(HDFS_LARGE_CALLS_MAX), budget: Arc::default() }
    }
}
