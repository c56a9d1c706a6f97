//! What connections that carry calls share.

use super::budget::Budget;
use super::retry_cache::RetryCache;
use crate::memory::Memory;
use base::limit::HDFS_LARGE_CALLS_MAX;
use std::sync::Arc;

/// What connections that carry calls share.
pub struct Rpc {
    /// Answers to calls that must not be done twice.
    pub(super) retries: RetryCache,
    /// Bytes of large calls that may be read or worked on.
    pub(super) large: Arc<Memory>,
    /// Memory for answers.
    pub(super) budget: Arc<Budget>,
}

impl Default for Rpc {
    fn default() -> Rpc {
        Rpc { retries: RetryCache::default(), large: Memory::new(HDFS_LARGE_CALLS_MAX), budget: Arc::default() }
    }
}
