//! Hadoop RPC: connections that carry calls.

mod calls;
mod connection;
mod dispatch;
mod frame;
mod retries;

use base::limit::HDFS_LARGE_CALLS_MAX;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use connection::Connection;

/// What all connections that carry calls share.
pub struct Rpc {
    /// Answers to calls that must not be done twice.
    retries: retries::Retries,
    /// Bytes of large calls that may be read or worked on.
    large: Arc<Semaphore>,
}

impl Default for Rpc {
    fn default() -> Rpc {
        Rpc { retries: retries::Retries::default(), large: Arc::new(Semaphore::new(HDFS_LARGE_CALLS_MAX)) }
    }
}

impl Rpc {
    /// Waits until a call of so many bytes, at most a largest frame, may be read. The right to it is held until it is answered.
    fn large_call(&self, bytes: usize) -> Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>> {
        let (large, count) = (self.large.clone(), bytes.min(HDFS_LARGE_CALLS_MAX) as u32);
        Box::pin(async move {
            match large.acquire_many_owned(count).await {
                Ok(permit) => permit,
                Err(_) => unreachable!("nobody closes it"),
            }
        })
    }
}
