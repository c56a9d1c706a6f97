//! What is said by a keeper that does not lead, and by a node that keeps nothing: which node leads, as far as it knows. Links read it and ask
//! there; programs never see it.

use crate::error::{Error, ErrorKind};

/// Another node answers. Nothing is said about whether a change was made that was asked for before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Where the one that leads listens (`host:port`), if that is known.
    pub leader: Option<String>,
    /// The term in which it leads; zero if no term is known. What names a higher one knows better.
    pub term: u64,
}

const TERM: &str = "the keepers' term is ";
const LEADER: &str = ", and the one that leads listens at ";
const NOBODY: &str = ", and it is not known which one leads";
const REST: &str = "; whether a change was made is not known if it was asked before";

impl From<Moved> for Error {
    fn from(Moved { leader, term }: Moved) -> Error {
        let who = leader.map_or_else(|| NOBODY.to_string(), |leader| format!("{LEADER}{leader}"));
        Error::new(ErrorKind::Moved, format!("{TERM}{term}{who}{REST}"))
    }
}

impl Moved {
    /// What such an error says. One of this kind with another text says that nothing is known.
    pub fn read(error: &Error) -> Option<Moved> {
        if error.kind() != ErrorKind::Moved {
            return None;
        }
        Some(Moved::parse(error.text()).unwrap_or_default())
    }

    fn parse(text: &str) -> Option<Moved> {
        let said = text.strip_prefix(TERM)?.strip_suffix(REST)?;
        if let Some(term) = said.strip_suffix(NOBODY) {
            return Some(Moved { leader: None, term: term.parse().ok()? });
        }
        let (term, leader) = said.split_once(LEADER)?;
        (!leader.is_empty()).then_some(Moved { leader: Some(leader.to_string()), term: term.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::Moved;
    use crate::error::{Error, ErrorKind};

    #[test]
    fn known_again() {
        for moved in [
            Moved::default(),
            Moved { leader: None, term: u64::MAX },
            Moved { leader: Some("[::1]:7400".to_string()), term: 0 },
            Moved { leader: Some("a, and b:7400".to_string()), term: 7 },
        ] {
            assert_eq!(Moved::read(&moved.clone().into()), Some(moved));
        }
        assert_eq!(Moved::read(&Error::new(ErrorKind::Moved, "somewhere else")), Some(Moved::default()));
        let text = Error::from(Moved::default());
        assert_eq!(Moved::read(&Error::new(ErrorKind::Busy, text.text())), None);
    }
}
