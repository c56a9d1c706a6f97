//! Named threads.

use base::error::{Error, ErrorKind, Result};
use std::thread::{Builder, JoinHandle};

/// Runs `work` on a new thread of this name. The system shows the name's first 15 bytes.
pub fn spawn<T, F>(name: &str, work: F) -> Result<JoinHandle<T>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    Builder::new().name(name.to_string()).spawn(work).map_err(|error| {
        let text =
            format!("the system gives no thread for '{name}' ({error}); raise the limit on processes (ulimit -u)");
        Error::new(ErrorKind::Io, text)
    })
}
