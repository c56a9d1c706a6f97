//! The one error that crosses crates: a kind that says what the caller can do, and a sentence that says what happened.

use std::fmt;

/// What the caller can do about it. The wire carries these as numbers; a new one goes at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The thing named does not exist. Check the name.
    NotFound,
    /// The thing to be made exists already.
    Exists,
    /// The request itself is wrong (a bad path, a length out of bounds). Mend it; repeating it does not help.
    Invalid,
    /// The caller's lease, generation or grant is no longer the current one. Stop, and start again from the present state.
    Stale,
    /// Somebody else holds it now. Try later.
    Busy,
    /// Nothing answered in time. Nothing is known about the request's fate until it is asked again.
    Unreachable,
    /// Stored bytes do not match their checksum. They were not served.
    Corrupt,
    /// No room. What was acknowledged before is safe; reads and deletes go on.
    Full,
    /// The disk or the system refused. The text says which and whether data is safe.
    Io,
    /// Another version or another cluster's data.
    Unsupported,
    /// The other side broke the protocol.
    Protocol,
    /// One side does not accept who the other is: its secret, its cluster or its certificate. Mend the settings; nothing was done.
    Refused,
    /// A quota of a directory is used up. Nothing was done; there may be room for it elsewhere (`base::quota`).
    OverQuota,
    /// The user lacks a right (`base::permission`). Nothing was done.
    Denied,
    /// Another keeper of the metadata answers (`base::moved`). Links ask there; programs never see it.
    Moved,
}

impl ErrorKind {
    const ALL: [ErrorKind; 15] = [
        ErrorKind::NotFound,
        ErrorKind::Exists,
        ErrorKind::Invalid,
        ErrorKind::Stale,
        ErrorKind::Busy,
        ErrorKind::Unreachable,
        ErrorKind::Corrupt,
        ErrorKind::Full,
        ErrorKind::Io,
        ErrorKind::Unsupported,
        ErrorKind::Protocol,
        ErrorKind::Refused,
        ErrorKind::OverQuota,
        ErrorKind::Denied,
        ErrorKind::Moved,
    ];

    /// The number on the wire, from 1.
    pub fn code(self) -> u32 {
        match ErrorKind::ALL.iter().position(|kind| *kind == self) {
            Some(place) => place as u32 + 1,
            None => unreachable!("every kind is in ALL"),
        }
    }

    /// The kind with this number; an unknown number is a protocol error.
    pub fn from_code(code: u32) -> ErrorKind {
        let place = (code as usize).wrapping_sub(1);
        ErrorKind::ALL.get(place).copied().unwrap_or(ErrorKind::Protocol)
    }
}

/// An error for people and for programs: a kind, and what happened, whether data is safe, what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

/// The result of anything that the world can refuse.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind. `text` is a sentence without a full stop: what happened; then, after a semicolon, what to do.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The same error with what was being done in front: `put a/b: no such directory`.
    #[must_use]
    pub fn during(self, what: impl fmt::Display) -> Error {
        Error { kind: self.kind, text: format!("{what}: {}", self.text) }
    }
}

/// Whether a file system has no room, or none that its user may use.
pub fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        // One of ours that travelled through a stream stays what it was.
        if let Some(own) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return own.clone();
        }
        let kind = match error.kind() {
            std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            std::io::ErrorKind::AlreadyExists => ErrorKind::Exists,
            _ if is_full(&error) => ErrorKind::Full,
            std::io::ErrorKind::ConnectionRefused
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::ConnectionAborted
            | std::io::ErrorKind::BrokenPipe
            | std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::TimedOut => ErrorKind::Unreachable,
            _ => ErrorKind::Io,
        };
        Error::new(kind, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorKind;

    /// Every kind survives the wire; numbers nobody knows become protocol errors.
    #[test]
    fn codes() {
        for kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_code(kind.code()), kind);
        }
        assert_eq!(ErrorKind::from_code(0), ErrorKind::Protocol);
        assert_eq!(ErrorKind::from_code(99), ErrorKind::Protocol);
    }
}
