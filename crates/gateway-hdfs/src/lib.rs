//! The HDFS gateway: a server of Hadoop's RPC and of its data transfer protocol, so that unchanged Hadoop clients use
//! the store. It stands on `client` alone: it sees files, never a chunk or a device.

mod caller;
mod cluster;
mod files;
mod gateway;
mod hdfs_attributes;
mod listener;
mod memory;
pub mod message;
mod names;
mod refusal;
mod rpc;
mod serve;
mod ticket;
mod transfer;

pub use caller::Caller;
pub use gateway::{Gateway, Settings};
pub use hdfs_attributes::HdfsAttributes;
pub use refusal::Refusal;
