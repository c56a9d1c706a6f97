//! Waiting to be told to end.

use base::error::{Error, ErrorKind, Result};
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGINT (Ctrl-C) or SIGTERM and says which came. Once this was called, neither ends the process by itself any more.
/// Needs a tokio runtime with I/O enabled.
pub async fn end() -> Result<&'static str> {
    let refused = |error| Error::new(ErrorKind::Io, format!("signals cannot be received: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(refused)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(refused)?;
    tokio::select! {
        biased;
        _ = interrupt.recv() => Ok("SIGINT"),
        _ = terminate.recv() => Ok("SIGTERM"),
    }
}
