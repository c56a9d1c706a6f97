//! What connections that carry calls share.

use super::budget::Budget;
use super::retries::Retries;
use crate::memory::Memory;
use base::limit::HDFS_LARGE_CALLS_MAX;
use std::sync::Arc;

/// What connections that carry calls share.
pub struct Rpc {
    /// Answers to calls that must not be done twice.
    pub(super) retries: Retries,
    /// Bytes of large calls that may be read or worked on.
    pub(super) large: Arc<Memory>,
    /// Memory for answers.
    pub(super) budget: Arc<Budget>,
}

impl Default for Rpc {
    fn default() -> Rpc {
        Rpc { retries: Retries::default(), large: Memory::new(HDFS_LARGE_CALLS_MAX), budget: Arc::default() }
    }
}
