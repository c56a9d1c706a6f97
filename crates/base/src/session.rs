//! What is said to a session that is over: a sentence for people, by which a gateway knows it from other things that are stale.

use crate::error::{Error, ErrorKind};
use crate::id::SessionId;

/// The session is not open any more, or never was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionOver {
    /// Which.
    pub session: SessionId,
}

const WHY: &str = " is not open, it may have ended for want of renewal; nothing was done: open a new one";

impl From<SessionOver> for Error {
    fn from(SessionOver { session }: SessionOver) -> Error {
        Error::new(ErrorKind::Stale, format!("session {session}{WHY}"))
    }
}

impl SessionOver {
    /// Whether the error says this.
    pub fn is(error: &Error) -> bool {
        error.kind() == ErrorKind::Stale && error.text().ends_with(WHY)
    }

    /// Whether the error says this among other things, as a writer's does.
    pub fn is_in(error: &Error) -> bool {
        error.kind() == ErrorKind::Stale && error.text().contains(WHY)
    }
}

#[cfg(test)]
mod tests {
    use super::SessionOver;
    use crate::error::{Error, ErrorKind};
    use crate::id::SessionId;

    /// It is known again, and nothing else is taken for it.
    #[test]
    fn known_again() {
        let over = Error::from(SessionOver { session: SessionId(7) });
        assert!(SessionOver::is(&over) && !SessionOver::is(&Error::new(ErrorKind::Denied, over.text())));
        assert!(!SessionOver::is(&Error::new(ErrorKind::Stale, "somebody else opened it")));
        let explained = Error::new(ErrorKind::Stale, format!("the file was not closed ({})", over.text()));
        assert!(SessionOver::is_in(&explained) && !SessionOver::is(&explained));
    }
}
