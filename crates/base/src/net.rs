//! The network as a trait: `os` has sockets; a simulation has queues that delay and cut.

use crate::error::Result;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to a peer.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {
    /// Who is at the other end, for messages to people.
    fn peer(&self) -> String;

    /// Whether the peer is on this machine, as far as the network can tell.
    fn is_near(&self) -> bool {
        false
    }

    /// A way to write that any thread may take while the stream lives. None: only whoever has the stream writes.
    fn at_once(&self) -> Option<Arc<dyn AtOnce>> {
        None
    }

    /// It will be dropped, and what it was given and has not sent by then shall never arrive, however late the way there is mended.
    /// A stream that keeps nothing back has nothing to do.
    fn abandon(&mut self) {}
}

/// Writes to a stream from any thread, between what others write to it.
pub trait AtOnce: Send + Sync {
    /// Writes as many of the bytes as find room and says how many those are: perhaps none. Never waits. An error: whoever has the stream
    /// meets it, too.
    fn write(&self, bytes: &[u8]) -> std::io::Result<usize>;
}

/// A future on the heap, as trait methods return, and large ones that other crates await: the code of an async function is compiled
/// where it is awaited, again and again, unless it is behind a pointer.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Takes connections.
pub trait Listener: Send {
    /// The address that was bound, as `host:port`.
    fn address(&self) -> String;
    /// The next connection.
    fn accept(&mut self) -> Boxed<'_, Result<Box<dyn Stream>>>;
}

/// Makes and takes connections. Addresses are `host:port`.
pub trait Net: Send + Sync {
    /// Connects to `address`.
    fn connect<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Stream>>>;
    /// Listens on `address`; port 0 picks a free one.
    fn listen<'a>(&'a self, address: &'a str) -> Boxed<'a, Result<Box<dyn Listener>>>;
    /// Whether `address` is one of this machine's own, so that bytes to it pass no network card. A network that cannot tell says no.
    fn is_here(&self, _address: &str) -> bool {
        false
    }
}
