//! What the network layer promises: calls are answered whatever breaks, bad frames hurt nobody else, memory stays bounded.
#![allow(clippy::disallowed_methods, reason = "tests bring their own clock and sockets")]
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may stop where it finds a surprise")]

mod answers;
mod calls;
mod credit;
mod frames;
mod leader;
mod once;
mod places;
mod requests;
mod secrets;
mod strangers;
mod support;
mod tls;
mod trouble;
