//! Hadoop RPC: connections that carry calls.

pub(crate) mod budget;
mod calls;
mod connection;
mod dispatch;
mod frame;
mod methods;
mod outgoing;
mod retry_cache;
pub(crate) mod shared;

pub use connection::Connection;
pub(crate) use frame::append_fatal;
