//! Bytes between nodes: frames, messages, connections, links and the serving side.

mod call;
pub mod cells;
mod connection;
mod cork;
pub mod credit;
pub mod decode;
pub mod frame;
mod link;
pub mod message;
mod outbound;
mod payload;
mod secret;
mod server;
mod stats;
mod sync;
mod tls;

pub use call::{Body, Call, Responder, Service};
pub use cork::Cork;
pub use credit::{Budget, Piece};
pub use link::{CallNumbers, Link, LinkSettings, Sent};
pub use message::Ask;
pub use payload::Payload;
pub use secret::{Asker, Credentials, Secret};
pub use server::{AnswerMemory, Server, ServerSettings};
pub use stats::{Answers, KindStats, NetStats};
pub use tls::Tls;
